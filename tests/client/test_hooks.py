"""Hooks: the events of calls and bulk runs, what events never contain, and failing hooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.time import ALLOW_LOOP_FIXTURE, virtual_time
from support.transport import FAULTS, HANG, STUCK, Script, added, lost, skipped, status

from outreach_async import NewContact, Outcome, OutreachClient, Request, Response, RetryPolicy, Store
from outreach_async.errors import BulkStopped, BulkSuspended, InvalidRequest, JournalError, OutreachError, StatusError
from outreach_async.hooks import (
    AttemptEnded,
    AttemptStarted,
    BulkRateChanged,
    BulkStateChanged,
    CallEnded,
    CallStarted,
    Event,
    RetryScheduled,
    RowEnded,
)
from outreach_async.store import Identity
from outreach_async.store._writer import JournalWriter
from outreach_async.testing import VirtualTime

pytestmark = virtual_time

FULL: Callable[[], float] = lambda: 1.0  # noqa: E731 - maximum jitter
CONTACT = NewContact("ann@b.example", first_name="Annabel")


class Spy:
    def __init__(self) -> None:
        self.events: list[Any] = []

    def __call__(self, event: Event, /) -> None:
        self.events.append(event)

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def kinds(self) -> list[str]:
        return [type(event).__name__ for event in self.events]

    @property
    def states(self) -> list[str]:
        return [event.state for event in self.of(BulkStateChanged)]


def client(transport: Any, *hooks: Any, **options: Any) -> OutreachClient:
    options = {"retry": RetryPolicy(jitter=FULL), "hooks": hooks, **options}
    return OutreachClient(transport=transport, owner_key="key_secret", workspace="space_1", **options)


def rows(count: int) -> list[NewContact]:
    return [NewContact(f"user{number}@b.example") for number in range(count)]


async def call(transport: Any, **options: Any) -> Spy:
    """Create a contact and return the events, even if the call fails."""
    spy = Spy()
    with suppress(OutreachError):
        await client(transport, spy, **options).contacts.create(CONTACT)
    return spy


async def run(transport: Any, contacts: Any, *, error: type[BaseException] | None = None, **options: Any) -> Spy:
    """Create many contacts and return the events. With `error`, the run must end with this error."""
    spy = Spy()
    with pytest.raises(error) if error else nullcontext():
        await client(transport, spy).contacts.create_many(contacts, **options)
    return spy


async def test_events_cover_a_call_from_its_start_over_its_attempts_to_its_end() -> None:
    spy = await call(Script(2.0, lost(), status(429, retry_after="7"), added()))
    number = spy.events[0].call
    one = {"call": number, "operation": "create_contact"}
    lost_one = {**one, "attempt": 1, "error": "TransportError", "status_code": None}
    refused = {**one, "attempt": 2, "status_code": 429}
    answered = {**one, "status_code": 201, "request_id": "req_1", "error": None}
    assert [(type(event), attrs.asdict(event)) for event in spy.events] == [
        (CallStarted, {**one, "method": "POST", "target": "/contacts", "base_url": None, "run": None}),
        (AttemptStarted, {**one, "attempt": 1}),
        (AttemptEnded, {**lost_one, "seconds": pytest.approx(2.0), "request_id": None}),
        (RetryScheduled, {**lost_one, "evidence": "ambiguous", "wait": pytest.approx(0.5)}),
        (AttemptStarted, {**one, "attempt": 2}),
        (AttemptEnded, {**refused, "seconds": pytest.approx(0.0), "request_id": None, "error": None}),
        (RetryScheduled, {**refused, "error": "RateLimited", "evidence": "refused", "wait": pytest.approx(7.7)}),
        (AttemptStarted, {**one, "attempt": 3}),
        (AttemptEnded, {**answered, "attempt": 3, "seconds": pytest.approx(0.0)}),
        (CallEnded, {**answered, "attempts": 3, "seconds": pytest.approx(10.2)}),
    ]


@pytest.mark.parametrize(
    ("entry", "timeout", "answer", "errors"),
    [
        (status(422, b"{}", x_request_id="req_9"), 3.0, (422, "req_9"), (None, "ContactRejected")),
        (Response(200, {"x-request-id": "req_8"}, b'{"status":"odd"}'), 3.0, (200, "req_8"), (None, "UnexpectedResponse")),
        (lost(), 3.0, (None, None), ("TransportError", "TransportError")),
        (ValueError("key_secret"), 3.0, (None, None), ("TransportError", "TransportError")),
        (HANG, 3.0, (None, None), ("timeout", "TransportError")),
        (STUCK, 3.0, (None, None), ("timeout", "TransportError")),
        (HANG, None, (None, None), ("timeout", "DeadlineExceeded")),
    ],
    ids=["refused", "unexpected", "lost", "foreign", "hanging", "stuck", "deadline"],
)
async def test_a_failure_is_reported_for_the_attempt_and_the_call(entry: Any, timeout: Any, answer: Any, errors: Any) -> None:
    spy = await call(Script(entry), retry=RetryPolicy(attempts=1), timeout=timeout)
    assert spy.kinds == ["CallStarted", "AttemptStarted", "AttemptEnded", "CallEnded"]
    reported = [((event.status_code, event.request_id), event.error) for event in spy.events[2:]]
    assert reported == [(answer, error) for error in errors]
    assert spy.events[3].attempts == 1


@pytest.mark.parametrize("entry", [HANG, status(429, retry_after="60"), STUCK], ids=repr)
async def test_a_cancelled_call_ends_as_cancelled_wherever_it_was(entry: Any) -> None:
    spy = Spy()
    with anyio.move_on_after(5.0):
        await client(Script(entry), spy).contacts.create(CONTACT)
    last = spy.events[-1]
    assert (last.error, last.attempts, last.seconds) == ("cancelled", 1, pytest.approx(5.0))
    assert [event.error for event in spy.of(AttemptEnded)] == ["cancelled" if isinstance(entry, str) else None]


class Unreadable:
    """A response of a foreign transport, whose body cannot be read."""

    status = 200
    headers: Mapping[str, str] = {}

    @property
    def body(self) -> bytes:
        raise ZeroDivisionError

    async def send(self, _request: Request, _progress: Any, /) -> Any:
        return self

    async def aclose(self) -> None: ...


async def test_a_foreign_error_ends_a_call_too() -> None:
    spy = Spy()
    with pytest.raises(ZeroDivisionError):
        await client(Unreadable(), spy).workspaces.fields()
    assert (spy.kinds[-1], spy.events[-1].error, spy.events[-1].attempts) == ("CallEnded", "ZeroDivisionError", 1)


ENDS = {"finished", "interrupted", "stopped", "suspended"}
ENTRIES: dict[str, Callable[[], Any]] = {
    **FAULTS,
    "400": lambda: status(400),
    "401": lambda: status(401),
    "added": added,
    "skipped": skipped,
    "slow": lambda: 1.0,
}


@settings(max_examples=scaled(50), suppress_health_check=ALLOW_LOOP_FIXTURE)
@given(faults=st.lists(st.sampled_from(sorted(ENTRIES)), max_size=12), left=st.none() | st.floats(0.0, 60.0), many=st.booleans())
def test_every_start_event_is_followed_by_its_end_event(
    anyio_backend: Any, faults: list[str], left: float | None, many: bool
) -> None:
    spy = Spy()
    script = Script(*(ENTRIES[fault]() for fault in faults), added())
    one = client(script, spy, timeout=10.0)

    async def run() -> None:
        with anyio.move_on_after(left):
            with suppress(OutreachError):
                await (one.contacts.create_many(rows(6), concurrency=3) if many else one.contacts.create(CONTACT))

    anyio.run(run, backend=anyio_backend[0], backend_options=VirtualTime().options(anyio_backend[0]))
    assert one._engine.observer is not None
    assert not one._engine.observer._calls
    for number in {event.call for event in spy.of(CallStarted)}:
        own = [event for event in spy.events if getattr(event, "call", None) == number]
        assert [type(own[0]), type(own[-1])] == [CallStarted, CallEnded]
        assert sum(isinstance(event, CallStarted | CallEnded) for event in own) == 2
        tried = [event for event in own if isinstance(event, AttemptStarted | AttemptEnded)]
        assert [type(event) for event in tried] == [AttemptStarted, AttemptEnded] * (len(tried) // 2)
        assert [event.attempt for event in tried[::2]] == list(range(1, len(tried) // 2 + 1))
        assert own[-1].attempts == len(tried) // 2
    assert len(spy.of(AttemptStarted)) == len(script.requests)
    assert not spy.states or (spy.states[0], spy.states[-1] in ENDS) == ("running", True)


class Breaking(Store):
    """A journal whose disk is full when its writer performs this step."""

    verb = "end"

    def writer(self, identity: Identity, *, resume: bool, **options: Any) -> JournalWriter:
        writer = super().writer(identity, resume=resume, **options)

        def failing(*_values: Any) -> None:
            raise JournalError("the disk is full")

        setattr(writer, self.verb, failing)
        return writer


async def test_a_successful_run_starts_finishes_and_reports_every_row() -> None:
    spy = await run(Script(added(), skipped(), added()), rows(3), concurrency=1)
    assert spy.states == ["running", "finished"]
    ended = spy.of(RowEnded)
    assert [(row.index, row.status, row.certain, row.attempts) for row in ended] == [
        (0, Outcome.ADDED, True, 1),
        (1, Outcome.SKIPPED, True, 1),
        (2, Outcome.ADDED, True, 1),
    ]
    assert {row.run for row in ended} == {event.run for event in spy.of(CallStarted)} == {spy.events[0].run}
    assert spy.events[-1] == BulkStateChanged(run=spy.events[0].run, state="finished", before="running", rows=3)


async def test_a_failed_row_has_its_status_and_request_id_but_not_the_contact() -> None:
    script = Script(added(), status(422, b'{"error":"bad ann@b.example"}', x_request_id="req_7"))
    spy = await run(script, [*rows(2), {"email": ""}], concurrency=1)
    reported = [(row.status, row.error, row.status_code, row.request_id) for row in spy.of(RowEnded)]
    assert reported == [
        (Outcome.ADDED, None, None, None),
        (Outcome.REJECTED, "ContactRejected", 422, "req_7"),
        (Outcome.REJECTED, "InvalidRequest", None, None),
    ]
    assert "b.example" not in repr(spy.events)


@pytest.mark.thorough
async def test_a_run_reports_at_once_that_it_pauses_and_that_it_continues() -> None:
    spy = Spy()
    script = Script(added(), status(429, retry_after="10"), added())
    times: list[float] = []

    def timed(event: Event, /) -> None:
        if isinstance(event, BulkRateChanged):
            times.append(anyio.current_time())

    await client(script, spy, timed).contacts.create_many(rows(200), concurrency=2)
    assert spy.states[:2] == ["running", "paused"]
    assert spy.states[2:] in (["throttled", "running", "finished"], ["throttled", "finished"])
    paused, after = spy.of(BulkStateChanged)[1:3]
    assert (paused.before, paused.wait, paused.rows) == ("running", pytest.approx(11.0), 1)
    assert paused.limit > 0
    assert (after.before, after.wait) == ("paused", 0.0)
    paced = spy.of(BulkRateChanged)
    assert paced
    assert all(later - earlier > 0.99 for earlier, later in pairwise(times))
    assert [event.limit for event in paced] == sorted(event.limit for event in paced)


async def test_a_run_whose_journal_fails_during_a_pause_ends_at_once(tmp_path: Path) -> None:
    journal = Breaking(tmp_path / "run.db", inline=True)
    journal.verb = "record"
    script, started = Script(status(429, retry_after="600"), 1.0, added(), together=2), anyio.current_time()
    spy = await run(script, rows(2), error=JournalError, journal=journal, concurrency=3)
    assert "paused" in spy.states
    assert anyio.current_time() - started < 60.0


async def test_a_run_that_is_suspended_or_stopped_says_why() -> None:
    waiting = status(503, retry_after="5000", x_request_id="req_5")
    last = (await run(Script(added(), waiting), rows(3), error=BulkSuspended)).events[-1]
    assert (last.state, last.error, last.status_code, last.request_id) == ("suspended", "BulkSuspended", 503, "req_5")
    last = (await run(Script(status(401)), rows(3), error=BulkStopped)).events[-1]
    assert (last.state, last.error, last.status_code) == ("stopped", "BulkStopped", 401)


async def test_a_run_that_is_left_early_is_interrupted_and_so_are_its_calls() -> None:
    spy = Spy()
    async with client(Script(added(), HANG), spy).contacts.create_many(rows(9), concurrency=3) as outcomes:
        await anext(outcomes)
    assert [event.error for event in spy.of(CallEnded)] == [None, "cancelled", "cancelled", "cancelled"]
    assert spy.events[-1] == BulkStateChanged(run=spy.events[0].run, state="interrupted", before="running", rows=1)


async def test_a_run_left_during_a_pause_emits_nothing_afterwards() -> None:
    spy = Spy()
    async with client(Script(status(429, retry_after="100")), spy).contacts.create_many(rows(9), concurrency=3):
        await anyio.sleep(5.0)
    assert spy.states == ["running", "paused", "interrupted"]
    reported = len(spy.events)
    await anyio.sleep(500.0)
    assert len(spy.events) == reported


@pytest.mark.parametrize("verb", ["record", "end"])
async def test_a_journal_that_fails_at_the_very_end_still_stops_the_run(tmp_path: Path, verb: str) -> None:
    journal = Breaking(tmp_path / "run.db", inline=True)
    journal.verb = verb
    spy = await run(Script(added()), rows(2), error=JournalError, journal=journal)
    assert (spy.events[-1].state, spy.events[-1].error) == ("stopped", "JournalError")
    assert len(spy.of(RowEnded)) == spy.events[-1].rows == (2 if verb == "end" else 0)


async def test_a_resumed_run_counts_the_rows_of_earlier_runs(tmp_path: Path) -> None:
    journal = Store(tmp_path / "run.db", inline=True)
    async with client(Script(added())).contacts.create_many(rows(3), journal=journal, concurrency=1) as outcomes:
        async for outcome in outcomes:
            if outcome.index == 1:
                break
    spy = await run(Script(added()), rows(3), journal=journal, resume=True)
    started = 3 - len(spy.of(RowEnded))
    assert started > 0
    assert [event.rows for event in spy.of(BulkStateChanged)] == [started, 3]


async def test_an_error_of_the_row_iterator_is_reported_by_its_class_only(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Any:
        yield from rows(1)
        raise ValueError("ann@b.example")

    spy = Spy()
    with caplog.at_level(logging.INFO, logger="outreach_async"), pytest.raises(ValueError, match=r"ann@b\.example"):
        await client(Script(added()), spy).contacts.create_many(broken())
    assert (spy.events[-1].state, spy.events[-1].error) == ("interrupted", "ValueError")
    assert "ValueError" in caplog.text
    assert "ann@" not in caplog.text


@pytest.mark.parametrize(
    ("sent_id", "reported"),
    [("req_1", "req_1"), ("for key_secret", "for ***"), ("", None), ("x" * 256, "x" * 256), ("x" * 257, None), (None, None)],
    ids=["plain", "secret", "empty", "long", "too long", "none"],
)
async def test_a_request_id_is_masked_and_left_out_if_empty_or_too_long(sent_id: str | None, reported: str | None) -> None:
    headers = {} if sent_id is None else {"x-request-id": sent_id}
    spy = await call(Script(Response(201, headers, added().body)))
    assert [event.request_id for event in spy.events[2:]] == [reported, reported]


async def test_no_event_contains_a_key_a_header_a_body_or_a_raw_query() -> None:
    spy = Spy()
    echo = b'{"error":"key_secret of ann@b.example, Annabel, token-12345"}'
    script = Script(status(500, echo), lost(), status(400, echo), added(), status(400, echo))
    one = client(script, spy, headers={"authorization": "Bearer token-12345"})
    with pytest.raises(StatusError):
        await one.contacts.create(CONTACT)
    await one.request("GET", "/search/key_secret?email=ann@b.example&api_key=other")
    await one.contacts.create_many([CONTACT])
    shown = repr(spy.events)
    for secret in ("key_secret", "Annabel", "ann@", "token-12345", "api_key", "other", "Bearer"):
        assert secret not in shown
    assert spy.of(CallStarted)[1].target == "/search/***"


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ("https://ann:pass-word@api.example/v1", "https://api.example/v1"),
        ("http://api.example:8080/", "http://api.example:8080"),
        ("nowhere", None),
        (None, None),
    ],
    ids=["credentials", "port", "junk", "none"],
)
async def test_the_base_url_of_a_transport_is_reported_without_credentials(reported: str | None, shown: str | None) -> None:
    script = Script(added())
    script.base_url = reported  # type: ignore[attr-defined]  # a transport may have one
    assert (await call(script)).events[0].base_url == shown


async def test_a_failing_hook_is_logged_once_and_affects_no_call_and_no_other_hook(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: Event, /) -> None:
        raise ZeroDivisionError(type(event).__name__)

    spy = Spy()
    one = client(Script(status(500, b"words of a body"), added()), broken, spy)
    await one.contacts.create(CONTACT)
    await one.contacts.create_many(rows(3))
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "broken raised" in record.getMessage()
    assert "ZeroDivisionError: CallStarted" in caplog.text
    assert len(spy.of(RowEnded)) == 3


async def test_a_failing_hook_does_not_log_the_error_of_the_call(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __call__(self, event: Event, /) -> None:
            if isinstance(event, CallEnded):
                raise ZeroDivisionError

    with pytest.raises(StatusError, match="words of a body"):
        await client(Script(status(400, b"words of a body")), Broken()).contacts.create(CONTACT)
    assert "ZeroDivisionError" in caplog.text
    assert "words of a body" not in caplog.text


async def test_hooks_are_called_in_order_and_for_copies_of_the_client() -> None:
    reported: list[int] = []
    one = client(Script(added()), lambda _: reported.append(1), lambda _: reported.append(2))
    await one.with_options(workspace="space_2", timeout=1.0).contacts.create(CONTACT)
    assert reported == [1, 2] * 4


async def wait_for_it(_event: Event) -> None: ...


class Waiting:
    async def __call__(self, _event: Event) -> None: ...


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        (print, "expected a list of callables, got builtin_function_or_method; pass hooks="),
        (b"", "expected a list of callables, got bytes; pass hooks="),
        (["print"], "expected callables, got str"),
        ([wait_for_it], "got an async function"),
        ([Waiting()], "got an async function"),
    ],
    ids=["one", "bytes", "text", "async", "async object"],
)
def test_an_invalid_hook_is_refused_at_once(anyio_backend: Any, hooks: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^hooks: .*{message}"):
        client(Script(added()), hooks=hooks)
    assert anyio_backend
