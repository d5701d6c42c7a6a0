"""The time of an audit: the local time, the service's time if the clocks differ, or that of a clock passed explicitly."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from email.utils import formatdate

import anyio
import attrs
import pytest
from support.audit import MailboxService, mailbox, wire
from support.audit_reports import make_report
from support.cli import Shell, serve_in_thread

from outreach_async import OutreachClient, Progress, Request, Response
from outreach_async.audit import Report, audit
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import build_brief
from outreach_async.fake import FakeService, FakeTransport


@pytest.mark.thorough
def test_a_served_fake_has_one_audit_by_command_and_in_python(shell: Shell) -> None:
    fake = FakeService()
    fake.add_workspace("space_1")
    fake.add_mailboxes("space_1", 2, daily_limit=60)
    fake.add_campaign("space_1", id="camp_1", status="live", steps=["A"], contacts=40)
    young = anyio.run(read, OutreachClient(transport=FakeTransport(fake)), lambda: fake.now)
    fake.advance(days=400)
    known = anyio.run(read, OutreachClient(transport=FakeTransport(fake)), lambda: fake.now)
    with serve_in_thread(fake) as url:
        _, printed = shell.json("audit", "--base-url", url, "--workspace", "space_1", "--campaigns")
        found = anyio.run(read, OutreachClient(url))

    assert printed == json.loads(write(found, "json"))
    assert (found.service_clock, known.service_clock) == (True, False)
    assert attrs.evolve(found, service_clock=False) == known
    assert known.counts != young.counts  # ages decide


async def read(client: OutreachClient, clock: Callable[[], float] | None = None) -> Report:
    async with client:
        return await audit(client, ["space_1"], campaigns=True, clock=clock)


@pytest.mark.parametrize(("ahead", "follows"), [(0, False), (45, False), (-45, False), (90, True), (-90, True)])
async def test_the_services_clock_decides_from_a_minute_of_difference(ahead: float, follows: bool) -> None:
    fake = FakeService(clock=lambda: time.time() + ahead)
    fake.add_workspace("space_1")
    found = await audit(OutreachClient(transport=FakeTransport(fake)), ["space_1"])
    assert found.service_clock is follows
    assert found.at == pytest.approx(time.time() + (ahead if follows else 0), abs=10)


class DatedService(MailboxService):
    """Sends one `Date` after another."""

    def __init__(self, *dates: str) -> None:
        super().__init__({"space_1": [wire(mailbox(id=f"mailbox_{n}")) for n in range(4)]})
        self.dates = iter(dates)

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await super().send(request, progress)
        date = next(self.dates, "")
        return attrs.evolve(response, headers={**response.headers, "date": date}) if date else response


@pytest.mark.parametrize("dates", [(), ("soon",), ("soon", formatdate(0)), ("", formatdate(0))])
async def test_an_audit_without_a_date_at_its_first_page_is_local(dates: tuple[str, ...]) -> None:
    found = await audit(OutreachClient(transport=DatedService(*dates)), ["space_1"], display=1)
    assert (found.mailboxes, found.service_clock) == (4, False)
    assert found.at == pytest.approx(time.time(), abs=10)


async def test_a_service_that_denies_access_still_tells_the_time() -> None:
    fake = FakeService()
    found = await audit(OutreachClient(transport=FakeTransport(fake)), ["space_gone"])
    assert (found.unreadable, found.service_clock, found.at) == (["space_gone"], True, fake.now)


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
@pytest.mark.parametrize("differs", [True, False])
def test_reports_and_briefs_say_that_the_clocks_differ(form: str, differs: bool) -> None:
    found = make_report(service_clock=differs)
    for text in (write(found, form), write(build_brief(found), form)):
        said = "by the service's clock, from which this computer's differs" in " ".join(text.split()).replace("&#39;", "'")
        assert said is differs
