"""Campaigns of the fake that send e-mails, and independent checks of its responses against the log of activities."""

from __future__ import annotations

from typing import Any

from support.fake import SPACE, document, page, steps

from outreach_async.fake import Activity, FakeService

DAY = 86_400
HOUR_MS = 3_600_000
NOTHING: dict[str, Any] = {
    **dict.fromkeys(["sent_today", "sent_30days", "sent_90days", "bounced_30days"], 0),
    **dict.fromkeys(["opened_14days", "avg_open_rate", "avg_click_rate"], (0, 0)),
}
"""The fields of a mailbox that has not sent anything yet."""

SILENT = dict.fromkeys(["open", "click", "reply", "bounce", "unsubscribe", "interested"], 0.0)
"""Rates at which nobody responds."""


def quiet_world(
    count: int = 0, *, limit: int = 40, boxes: int = 1, clock: Any = "2026-01-01T00:00:00Z", **campaign: Any
) -> FakeService:
    """Return a fake with a live campaign `camp_1`, new mailboxes and `count` contacts. By default, nobody responds."""
    fake = FakeService(clock=clock)
    fake.add_workspace(SPACE)
    fake.add_owner_key(SPACE, key="key_1")
    ids = fake.add_mailboxes(SPACE, boxes, daily_limit=limit, **NOTHING)
    fields: dict[str, Any] = {"status": "live", "mailboxes": ids, "steps": ["A"], "rates": SILENT} | campaign
    fake.add_campaign(SPACE, id="camp_1", **fields)
    fake.add_contacts(SPACE, count, campaign="camp_1")
    return fake


def listed(fake: FakeService, campaign: str = "camp_1") -> Any:
    (item,) = [item for item in document(page(fake, "/campaigns", display=100))["data"] if item["id"] == campaign]
    return item


def boxes_of(fake: FakeService) -> Any:
    return document(page(fake, "/mailboxes", display=2000))["data"]


def flow(fake: FakeService, campaign: str = "camp_1") -> list[tuple[int, int, int]]:
    return [(step["left_to_send"], step["already_sent"], step["out_of"]) for step in steps(fake, campaign)["data"]]


def watched(fake: FakeService) -> list[Activity]:
    log: list[Activity] = []
    fake.sim.watch(log.append)
    return log
