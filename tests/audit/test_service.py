"""Audits of the whole in-memory service."""

from __future__ import annotations

from functools import partial

import pytest
from support.examples import scaled

from outreach_async import OutreachClient, Progress, Request, Response
from outreach_async.audit import audit
from outreach_async.fake import Behaviour, FakeService, FakeTransport


@pytest.mark.thorough
async def test_problems_are_found_despite_unreadable_items_and_workspaces() -> None:
    fake = FakeService(seed=1)
    fake.add_workspace("space_1")
    fake.add_workspace("space_2")
    fake.add_mailboxes("space_1", 2000, domain_ip="203.0.113.9")
    (damaged,) = fake.add_mailboxes("space_1", 1, spf="yes")
    (open_,) = fake.add_mailboxes("space_1", 1, dmarc=False)
    (listed,) = fake.add_mailboxes("space_2", 1, blacklists=3)

    found = await audit(OutreachClient(transport=FakeTransport(fake)), ["space_1", "space_unknown", "space_2"])

    assert [(one.rule, one.workspace, one.mailbox) for one in found.findings] == [
        ("OA110", "space_2", listed),
        ("OA103", "space_1", open_),
        ("OA902", "space_1", damaged),
        ("OA901", "space_unknown", None),
    ]
    assert (found.mailboxes, found.unreadable) == (2002, ["space_unknown"])
    assert (found.incomplete, found.exit_code(), found.exit_code("critical")) == (True, 3, 3)


class GrowingTransport(FakeTransport):
    """Adds a mailbox after the first response."""

    service: FakeService

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await super().send(request, progress)
        if len(self.service.requests) == 1:
            self.service.add_mailboxes("space_1", 1)
        return response


async def test_a_mailbox_added_during_the_audit_hides_no_other() -> None:
    fake = FakeService(behaviour=Behaviour(order="newest"))
    fake.add_workspace("space_1")
    fake.add_mailboxes("space_1", 6, dkim=False)
    found = await audit(OutreachClient(transport=GrowingTransport(fake)), ["space_1"], display=2)

    assert len([one for one in found.findings if one.rule == "OA102"]) == found.mailboxes == 6
    assert [one.message for one in found.findings if one.rule == "OA903"] == [
        "the service reports more mailboxes than it listed (missing: 1)"
    ]
    assert (found.unreadable, found.exit_code()) == ([], 3)


@pytest.mark.thorough
@pytest.mark.parametrize("contacts", [9000, 0], ids=["busy", "idle"])
async def test_healthy_mailboxes_stay_healthy_day_by_day_whether_they_send_or_not(contacts: int) -> None:
    for seed in range(scaled(3)):
        fake = FakeService(seed=seed)
        space = fake.add_workspace()
        boxes = fake.add_mailboxes(space, 10, daily_limit=30)
        fake.add_contacts(space, contacts, campaign=fake.add_campaign(space, status="live", mailboxes=boxes, steps=["A|B", "A"]))
        client = OutreachClient(transport=FakeTransport(fake))
        for day in range(35):
            found = await audit(client, [space], clock=partial(getattr, fake, "now"))
            about_mail = [
                (day, each.rule, each.message) for each in found.findings if each.rule not in {"OA133", "OA140", "OA160"}
            ]
            assert about_mail == []
            fake.advance(days=1)
