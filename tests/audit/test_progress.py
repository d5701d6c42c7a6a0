"""The progress of an audit: what has been read, at which rate, how long the rest takes, and why it waits."""

from __future__ import annotations

from typing import Any

import anyio
import attrs
import pytest
from support.audit import NOW, MailboxService, mailbox, wire
from support.flow import Scenario
from support.rates import RateLimitedService, create_client
from support.time import virtual_time

from outreach_async import OutreachClient, Progress, Request, Response
from outreach_async.audit import AuditProgress, stream

pytestmark = virtual_time

LATENCY = 0.1


class SlowService(MailboxService):
    """A service that takes a tenth of a second for a page."""

    async def send(self, request: Request, progress: Progress, /) -> Response:
        await anyio.sleep(LATENCY)
        return await super().send(request, progress)


@attrs.frozen
class Watched:
    """The progress of an audit at regular intervals, with the time of each in seconds, and the duration of the audit."""

    seen: list[tuple[float, AuditProgress]]
    seconds: float


async def watch(client: OutreachClient, workspaces: list[str], **options: Any) -> Watched:
    seen: list[tuple[float, AuditProgress]] = []
    began = anyio.current_time()
    async with stream(client, workspaces, clock=lambda: NOW, **options) as findings, anyio.create_task_group() as group:

        async def look() -> None:
            while True:
                seen.append((anyio.current_time() - began, findings.progress))
                await anyio.sleep(0.1)

        group.start_soon(look)
        async for _ in findings:
            pass
        seen.append((anyio.current_time() - began, findings.progress))
        group.cancel_scope.cancel()
    return Watched(seen, anyio.current_time() - began)


def fleet(workspaces: int, mailboxes: int) -> dict[str, list[dict[str, Any]] | int]:
    return {
        f"space_{space}": [wire(mailbox(id=f"mailbox_{space}_{box}", spf=False)) for box in range(mailboxes)]
        for space in range(workspaces)
    }


async def test_progress_begins_with_nothing_and_ends_with_everything() -> None:
    spaces = {**fleet(5, 6), "space_gone": 404}
    watched = await watch(OutreachClient(transport=SlowService(spaces), max_in_flight=2), list(spaces), display=2)
    (_, first), (_, last) = watched.seen[0], watched.seen[-1]
    assert (first.workspaces, first.total, first.mailboxes, first.eta) == (0, 6, 0, None)
    assert (last.workspaces, last.total, last.mailboxes, last.eta) == (6, 6, 30, 0)
    assert {progress.state for _, progress in watched.seen} == {"running"}
    counts = [(progress.workspaces, progress.mailboxes) for _, progress in watched.seen]
    assert [sorted(each) for each in zip(*counts, strict=True)] == [list(each) for each in zip(*counts, strict=True)]


@pytest.mark.parametrize(("workspaces", "mailboxes"), [(1, 100), (100, 1), (20, 10)])
async def test_the_eta_is_close_to_the_time_that_is_left(workspaces: int, mailboxes: int) -> None:
    spaces = fleet(workspaces, mailboxes)
    watched = await watch(OutreachClient(transport=SlowService(spaces), max_in_flight=2), list(spaces), display=2)
    middle = [(at, progress.eta) for at, progress in watched.seen if 0.4 * watched.seconds < at < 0.8 * watched.seconds]
    assert middle
    assert all(eta == pytest.approx(watched.seconds - at, rel=0.2, abs=2 * LATENCY) for at, eta in middle)


async def test_the_rate_counts_mailboxes_per_second() -> None:
    spaces = fleet(20, 10)
    watched = await watch(OutreachClient(transport=SlowService(spaces), max_in_flight=2), list(spaces), display=2)
    assert watched.seen[-1][1].rate == pytest.approx(200 / watched.seconds, rel=0.1)


async def test_the_rate_limit_bounds_the_eta_and_shows_as_throttled() -> None:
    client = create_client(RateLimitedService(Scenario(seconds=0, limits=[(0, 1e6)])), rate=10)
    watched = await watch(client, [f"space_{number}" for number in range(100)])
    middle = [(at, progress) for at, progress in watched.seen if 1 < at < 9]
    assert {progress.state for _, progress in middle} == {"throttled"}
    assert all(progress.eta == pytest.approx(watched.seconds - at, rel=0.2, abs=0.5) for at, progress in middle)


@pytest.mark.thorough
async def test_a_paused_audit_says_why_and_for_how_long() -> None:
    scene = Scenario(seconds=0, limits=[(0, 1000)], latency=0.5, outages=[(0.1, 60, "503")])
    watched = await watch(create_client(RateLimitedService(scene), max_in_flight=8), [f"space_{n}" for n in range(100)])
    paused = [progress for _, progress in watched.seen if progress.state == "paused"]
    assert all("the service answered 503" in progress.why for progress in paused)
    assert max(progress.resumes for progress in paused) > 1
    assert not any(progress.why for _, progress in watched.seen if progress.state != "paused")


async def test_the_progress_of_an_audit_as_text_shows_its_mailboxes() -> None:
    progress = AuditProgress(workspaces=3, total=9, mailboxes=1234, rate=56.7, state="paused", resumes=5.0, eta=90.0, why="[x]")
    assert str(progress) == "3 of 9 workspaces, 1,234 mailboxes, 57/s, paused for 0:00:05 ([x]), ETA 0:01:30"
    running = attrs.evolve(progress, campaigns=7, state="running", why="", resumes=0.0, eta=None)
    assert str(running) == "3 of 9 workspaces, 1,234 mailboxes, 7 campaigns, 57/s"
