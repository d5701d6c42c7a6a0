from __future__ import annotations

from typing import Any, NoReturn

import anyio
import attrs
import pytest
from support.audit import NOW, ConductedService, MailboxService, mailbox, wire

from outreach_async.audit import Policy, audit, stream
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest
from outreach_async.resources import Mailboxes


def clock() -> float:
    return NOW


def boxes(count: int, **changes: Any) -> list[dict[str, Any]]:
    return [wire(mailbox(id=f"mailbox_{n}", email=f"a@d{n}.example", **changes)) for n in range(count)]


FLEET: dict[str, list[dict[str, Any]] | int] = {
    "space_1": [*boxes(5, blacklists=1), *boxes(7, spf=False)[5:]],
    "space_2": [wire(mailbox(id=f"mailbox_b{n}", email=f"b{n}@d0.example", sent_today=99)) for n in range(6)],
    "space_3": 404,
}


async def test_a_stream_gives_every_finding_of_the_report_once() -> None:
    client = OutreachClient(transport=MailboxService(FLEET))
    async with stream(client, FLEET, display=2, clock=clock) as findings:
        came = [finding async for finding in findings]
    assert sorted(map(repr, came)) == sorted(map(repr, findings.report.findings))
    assert findings.report == await audit(client, FLEET, display=2, clock=clock)


async def test_findings_that_depend_on_a_domain_come_after_the_last_page() -> None:
    limits = [
        wire(mailbox(id=f"mailbox_{n}", daily_limit=1000, type="SMTP & IMAP", spf=n > 0, sent_30days=9000)) for n in range(5)
    ]
    service = MailboxService({"space_1": limits})

    async with stream(OutreachClient(transport=service), ["space_1"], display=1) as findings:
        first = await anext(findings)

    assert (first.rule, first.severity, len(service.requests)) == ("OA101", "critical", 5)


async def test_reading_goes_on_only_when_the_last_finding_of_a_page_is_taken() -> None:
    service = MailboxService({"space_1": boxes(20, blacklists=1)})

    async with stream(OutreachClient(transport=service), ["space_1"], display=4) as findings:
        asked = []
        for number in range(4):
            assert (await anext(findings)).mailbox == f"mailbox_{number}"
            await anyio.wait_all_tasks_blocked()
            asked.append(len(service.requests))

    assert asked[0] == asked[1] == asked[2] < asked[3] < 5


async def test_leaving_the_block_early_ends_the_readers_and_the_iteration() -> None:
    service = MailboxService({f"space_{n}": boxes(40, blacklists=1) for n in range(9)})
    async with stream(OutreachClient(transport=service), service.workspaces, display=4) as findings:
        first = await anext(findings)
    left = [finding async for finding in findings]

    assert [first.mailbox, *(finding.mailbox for finding in left)] == [f"mailbox_{n}" for n in range(4)]
    assert len(service.requests) < 9 * 10
    with pytest.raises(InvalidRequest, match="has not finished"):
        _ = findings.report


async def test_an_iteration_that_has_ended_stays_ended() -> None:
    async with stream(OutreachClient(transport=MailboxService(FLEET)), ["space_1"]) as findings:
        came = [finding async for finding in findings]
        assert [finding async for finding in findings] == []
    assert came
    assert [finding async for finding in findings] == []


async def test_two_tasks_cannot_iterate_at_the_same_time() -> None:
    client = OutreachClient(transport=ConductedService(FLEET, seed=None))

    async with stream(client, ["space_1"]) as findings, anyio.create_task_group() as group:
        group.start_soon(anext, findings)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.BusyResourceError):
            await anext(findings)
        group.cancel_scope.cancel()


async def test_a_stream_can_be_awaited_and_used_only_once() -> None:
    run = stream(OutreachClient(transport=MailboxService(FLEET)), "space_2", policy=Policy.of({"off": ["OA130"]}))
    report = await run
    assert [(one.rule, report.policy.off) for one in report.findings] == [("OA170", ["OA130"])]
    with pytest.raises(InvalidRequest, match="already started"):
        await run


async def test_a_stream_says_how_to_iterate_over_it() -> None:
    with pytest.raises(InvalidRequest, match="async with"):
        async for _ in stream(OutreachClient(transport=MailboxService(FLEET)), "space_2"):
            pass


async def test_an_error_of_the_block_passes_through_unchanged() -> None:
    with pytest.raises(ZeroDivisionError):
        async with stream(OutreachClient(transport=MailboxService(FLEET)), "space_1"):
            raise ZeroDivisionError


@attrs.frozen
class BrokenMailboxes(Mailboxes):
    """Raises an error that no client should raise."""

    def list(self, **_options: Any) -> NoReturn:
        raise AttributeError


class BrokenClient(OutreachClient):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.mailboxes = BrokenMailboxes(self._engine, self._settings)


async def test_an_error_of_the_reader_is_raised_to_the_consumer() -> None:
    with pytest.raises(ExceptionGroup) as caught:  # pages are fetched by separate tasks
        await audit(BrokenClient(transport=MailboxService(FLEET)), ["space_1"])
    assert caught.group_contains(AttributeError)
