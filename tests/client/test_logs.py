"""Logging: off unless the environment enables it, then to stderr; messages, levels, and what is never logged."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import anyio
import pytest
from support.scenarios import KEY, SPACE, new_fake
from support.time import virtual_time
from support.transport import Script, added, lost, status

from outreach_async import NewContact, OutreachClient, OutreachError, Response, RetryPolicy
from outreach_async.fake import FakeTransport

CLIENT = """
import logging
import os
from outreach_async import OutreachClient
{before}
for _ in range(2):
    OutreachClient("https://api.example", owner_key="key_secret")
logger = logging.getLogger("outreach_async")
logger.debug("a debug line")
logger.warning("a warning")
print(logger.level, *(type(handler).__name__ for handler in logger.handlers))
"""

PAUSING = """
import logging
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import status
from outreach_async.testing import VirtualTime
{before}
virtual = VirtualTime()
fake = FakeService(clock=virtual)
space = fake.add_workspace()
fake.faults.script("create_contact", status(429, retry_after=60))
client = OutreachClient(transport=FakeTransport(fake), owner_key=fake.add_owner_key(space), workspace=space)

async def main():
    report = await client.contacts.create_many([{{"email": "a@a.example"}}, {{"email": "b@a.example"}}])
    print(report.outcomes["added"], virtual.elapsed >= 60)

anyio.run(main, backend_options=virtual.options("asyncio"))
"""


def run_program(code: str, level: str | None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "OUTREACH_LOG"}
    environment |= {} if level is None else {"OUTREACH_LOG": level}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert "key_" not in done.stdout + done.stderr
    return done


def run_and_log(level: str | None, before: str = "") -> tuple[str, list[str]]:
    """Return what a program that uses clients prints, and the lines it logs."""
    done = run_program(CLIENT.format(before=before), level)
    return done.stdout.strip(), done.stderr.splitlines()


def test_the_environment_configures_logging_once_for_all_clients() -> None:
    printed, lines = run_and_log("debug")
    assert printed == "10 NullHandler StreamHandler"
    assert [line.partition(" outreach_async: ")[2] for line in lines] == ["a debug line", "a warning"]
    assert " DEBUG outreach_async: " in lines[0]


@pytest.mark.thorough
def test_a_level_is_set_in_any_case_and_an_unknown_one_is_ignored() -> None:
    for level in ("info", "INFO"):
        assert run_and_log(level)[0] == "20 NullHandler StreamHandler"
    for unknown in (None, "", "chatty", "10"):
        assert run_and_log(unknown) == ("0 NullHandler", [])


def test_a_logger_configured_by_the_program_is_left_alone() -> None:
    before = "logging.getLogger('outreach_async').addHandler(logging.FileHandler(os.devnull))"
    assert run_and_log("debug", before) == ("0 FileHandler NullHandler", [])


@pytest.mark.thorough
@pytest.mark.parametrize(("before", "lines"), [("", 0), ("logging.basicConfig()", 1)], ids=["none", "basic"])
def test_a_paused_run_warns_only_a_program_that_configured_logging(before: str, lines: int) -> None:
    logged_records = run_program(PAUSING.format(before=before), None)
    assert logged_records.stdout == "2 True\n"
    assert len(logged_records.stderr.splitlines()) == lines
    assert ("WARNING:outreach_async:create_many: run 1 paused" in logged_records.stderr) == (lines > 0)


CONTACT = NewContact("ann@b.example")
OF_EVERY_RECORD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


async def slowly(rows: list[NewContact]) -> AsyncIterator[NewContact]:
    for row in rows:
        yield row
        await anyio.sleep(5.0)


async def records(caplog: pytest.LogCaptureFixture, *entries: Any, many: int = 0, slow: bool = False) -> list[logging.LogRecord]:
    """Create one or many contacts and return the log records, even if the call fails."""
    retry = RetryPolicy(jitter=lambda: 1.0)
    one = OutreachClient(transport=Script(*entries), owner_key="key_secret", workspace="space_1", retry=retry)
    rows = [NewContact(f"ann{number}@b.example") for number in range(many)]
    with caplog.at_level(logging.DEBUG, logger="outreach_async"), suppress(OutreachError):
        await (one.contacts.create_many(slowly(rows) if slow else rows, concurrency=2) if many else one.contacts.create(CONTACT))
    return [record for record in caplog.records if record.name == "outreach_async"]


def shown(record: logging.LogRecord) -> tuple[str, str]:
    return record.levelname, record.getMessage()


def extras(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in OF_EVERY_RECORD}


@virtual_time
async def create(base_url: str | None) -> None:
    transport: Any = Script(added())
    transport.base_url = base_url
    async with OutreachClient(transport=transport, owner_key="key_secret", workspace="space_1") as client:
        await client.contacts.create(NewContact("ann@company.example"))


async def test_an_owner_key_over_plain_http_is_logged_once_for_each_url(
    caplog: pytest.LogCaptureFixture, anyio_backend_name: str
) -> None:
    urls = [f"http://{anyio_backend_name}.example", f"http://10.0.0.{len(anyio_backend_name)}:8080/v1"]
    for url in (*urls, *urls):
        await create(url)
    remedy = "where anyone on the way can read the owner key; use https"
    assert caplog.messages == [f"base_url: expected https, got {url}, {remedy}" for url in urls]


@virtual_time
async def test_a_field_that_none_clears_in_an_existing_contact_is_logged_once(
    caplog: pytest.LogCaptureFixture, anyio_backend_name: str
) -> None:
    first, second = {"asyncio": ("first_name", "city"), "trio": ("last_name", "region")}[anyio_backend_name]
    fake = new_fake()
    async with OutreachClient(transport=FakeTransport(fake), owner_key=KEY, workspace=SPACE) as client:
        ann: Any = {"email": "ann@company.example", first: None, second: None}
        await client.contacts.create(**ann, duplicates="overwrite")  # adds the contact
        await client.contacts.create(**ann)
        await client.contacts.create(NewContact("ann@company.example", **{second: "Lyon"}), duplicates="overwrite")
        assert caplog.messages == []
        for _ in range(2):
            await client.contacts.create(**ann, duplicates="overwrite")
    (contact,) = fake.contacts(SPACE)
    assert contact["fields"] == {}
    cleared = f"create: None was sent as null for '{first}', '{second}', which clears the fields of an existing contact"
    assert caplog.messages == [f"{cleared}; leave out a field to keep its value"]


@pytest.mark.parametrize(
    "url", ["https://api.example", "http://localhost:80", "http://api.localhost", "http://127.1.2.3", "http://[::1]:8000", None]
)
async def test_an_owner_key_over_https_or_to_this_machine_logs_nothing(url: str | None, caplog: pytest.LogCaptureFixture) -> None:
    await create(url)
    assert caplog.messages == []


@virtual_time
async def test_attempts_and_waits_are_logged_with_their_values_as_attributes(caplog: pytest.LogCaptureFixture) -> None:
    answer = status(503, b"words", retry_after="7", x_request_id="req_0")
    logged_records = await records(caplog, 2.0, lost(), answer, added())
    assert [shown(record) for record in logged_records] == [
        ("DEBUG", "create_contact: attempt 1 failed: the answer was lost"),
        ("INFO", "create_contact: retrying in 0.5 s after attempt 1: the answer was lost"),
        ("DEBUG", "create_contact: 503 on attempt 2"),
        ("DEBUG", "create_contact: attempt 2 failed: StatusError 503"),
        ("INFO", "create_contact: retrying in 7 s after attempt 2: StatusError 503"),
        ("DEBUG", "create_contact: 201 on attempt 3"),
    ]
    first = {"operation": "create_contact", "attempt": 1, "seconds": pytest.approx(2.0)}
    failed = {**first, "status_code": None, "request_id": None, "error": "TransportError", "evidence": "ambiguous"}
    second = {"operation": "create_contact", "attempt": 2, "seconds": pytest.approx(0.0)}
    answered = {**second, "status_code": 503, "request_id": "req_0"}
    refused = {**answered, "error": "StatusError", "evidence": "refused"}
    last = {**second, "attempt": 3, "status_code": 201, "request_id": "req_1"}
    expected = [failed, {**failed, "wait": 0.5}, answered, refused, {**refused, "wait": 7.0}, last]
    assert [extras(record) for record in logged_records] == expected


@virtual_time
async def test_a_run_logs_its_states_and_only_at_debug_its_rows(caplog: pytest.LogCaptureFixture) -> None:
    logged_records = await records(caplog, added(), status(429, retry_after="1"), added(), many=30)
    states = [shown(record) for record in logged_records if record.levelno > logging.DEBUG]
    number = next(record.run for record in logged_records if hasattr(record, "run"))
    assert states[0] == ("INFO", f"create_many: run {number} running: 0 rows so far")
    assert states[1][0] == "WARNING"
    assert states[1][1].startswith(f"create_many: run {number} paused: 1 rows so far, at most ")
    assert states[1][1].endswith("requests/s, for 1.1 s")
    assert states[-1][0] == "INFO"
    assert states[-1][1].startswith(f"create_many: run {number} finished: 30 rows so far")
    repeats = [record.levelname for record in logged_records if "retrying" in record.getMessage()]
    assert repeats == ["DEBUG"] * len(repeats) != []
    paused = next(record for record in logged_records if extras(record).get("state") == "paused")
    assert set(extras(paused)) == {"run", "state", "before", "rows", "limit", "wait", "error"}


@virtual_time
async def test_the_end_of_a_pause_is_logged_as_resumed(caplog: pytest.LogCaptureFixture) -> None:
    logged_records = await records(caplog, added(), status(429, retry_after="1"), added(), many=6, slow=True)
    (resumed,) = [record for record in logged_records if "resumed" in record.getMessage()]
    assert (resumed.levelname, extras(resumed)["state"]) == ("INFO", "running")
    assert extras(resumed)["before"] in {"paused", "throttled"}


@virtual_time
@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (status(401, b"words of a body"), "stopped: 2 rows so far, BulkStopped 401"),
        (status(503, b"words of a body", retry_after="9999"), "suspended: 0 rows so far, BulkSuspended 503"),
    ],
    ids=["stopped", "suspended"],
)
async def test_a_run_that_ends_early_logs_a_warning_with_the_reason(
    caplog: pytest.LogCaptureFixture, entry: Response, message: str
) -> None:
    last = (await records(caplog, entry, many=2))[-1]
    assert last.levelname == "WARNING"
    assert message.partition(":")[0] in last.getMessage()
    assert last.getMessage().endswith(message.rpartition(" ")[2])
    assert extras(last)["error"] == message.rpartition(", ")[2]


@virtual_time
@pytest.mark.parametrize("many", [0, 2])
async def test_no_record_contains_a_key_or_a_body(caplog: pytest.LogCaptureFixture, many: int) -> None:
    echo = b'{"error":"key_secret of ann@b.example is odd"}'
    garbled = Response(201, {"x-request-id": "for key_secret"}, echo + b"<")
    logged_records = await records(caplog, status(500, echo), garbled, status(429, echo), status(400, echo), many=many)
    assert len(logged_records) > 6
    for record in logged_records:
        for secret in ("key_secret", "ann", "is odd"):
            assert secret not in repr(vars(record)) + record.getMessage()
