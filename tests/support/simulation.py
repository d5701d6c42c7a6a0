"""Campaigns of the fake that send e-mails, and independent checks of its responses against the log of activities."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import attrs
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

NUMBERS = ("opened", "clicked", "replied", "unsubscribed")
ENDS = {"replied", "interested", "unsubscribed", "bounced"}


def day_of(at: float) -> int:
    return int(at // DAY)


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


def percent(n: int, of: int) -> Fraction:
    return round(Fraction(100 * n, of), 2) if of else Fraction(0)


def same_number(shown: float, exact: Fraction) -> bool:
    return Fraction(str(shown)) == exact


@attrs.define
class Reader:
    """Compares the responses of the fake with the log."""

    fake: FakeService
    log: list[Activity]
    seeded: dict[str, Any]
    start: int
    limits: dict[tuple[str, int], int] = attrs.Factory(dict)

    @classmethod
    def of(cls, fake: FakeService) -> Reader:
        campaigns = document(page(fake, "/campaigns", display=100))["data"]
        seeded = {camp["id"]: {"listed": camp, "steps": steps(fake, camp["id"])["data"]} for camp in campaigns}
        return cls(fake, watched(fake), seeded | {box["id"]: box for box in boxes_of(fake)}, day_of(fake.now))

    def of_kind(self, kind: str) -> list[Activity]:
        return [entry for entry in self.log if entry.kind == kind or (kind == "replied" and entry.kind == "interested")]

    def allow(self, first: int, last: int) -> None:
        """Record the current daily limits as allowed on these days."""
        for box in boxes_of(self.fake):
            for day in range(first, last + 1):
                self.limits[box["id"], day] = max(self.limits.get((box["id"], day), 0), box["daily_limit"])

    # Checks of the responses.

    def check(self) -> None:
        self.check_order_of_the_log()
        for item in document(page(self.fake, "/campaigns", display=100))["data"]:
            self.check_campaign(item, steps(self.fake, item["id"]))
        for box in boxes_of(self.fake):
            self.check_mailbox(box)
        self.check_lives()

    def check_order_of_the_log(self) -> None:
        times = [entry.at for entry in self.log]
        assert times == sorted(times)
        ended: set[tuple[str, str]] = set()
        seen: set[tuple[str, str, int, str]] = set()
        for entry in self.log:
            email = (entry.campaign, entry.contact, entry.step)
            kind = "replied" if entry.kind == "interested" else entry.kind
            assert (*email, kind) not in seen
            if kind == "sent":
                assert email[:2] not in ended
            else:
                assert (*email, "sent") in seen
            if kind in {"clicked", "replied", "unsubscribed"}:
                assert (*email, "opened") in seen
            assert (*email, "bounced") not in seen
            if entry.kind in ENDS:
                assert email[:2] not in ended
                ended.add(email[:2])
            seen.add((*email, kind))

    def check_campaign(self, item: Any, answered: Any) -> None:
        data, seeded = answered["data"], self.seeded[item["id"]]
        templates = [template for step in data for template in step["templates"]]
        sent = sum(template["sent"] for template in templates)
        for step, was in zip(data, seeded["steps"], strict=True):
            self.check_step(item, step, was)
        for name in ("out_of", "already_sent"):
            assert [step[name] for step in data] == sorted((step[name] for step in data), reverse=True)
        assert item["opens_num"] == sum(template["opened_num"] for template in templates)
        assert item["replies_num"] == sum(template["replied_num"] for template in templates)
        for name, kind in (("interested_num", "interested"), ("bounces_num", "bounced")):
            assert item[name] - seeded["listed"][name] == sum(e.campaign == item["id"] for e in self.log if e.kind == kind)
        assert item["interested_num"] <= item["replies_num"]
        assert item["bounces_num"] + item["opens_num"] <= sent
        assert item["initials"] == (data[0]["already_sent"] if data else 0)
        for name in ("opens", "replies", "bounces", "interested"):
            assert same_number(item[name], percent(item[f"{name}_num"], sent))
        nothing_left = all(step["left_to_send"] == 0 for step in data)
        complete = nothing_left and item["contacts"] > 0
        assert (item["days_left"] == 0) == nothing_left
        assert (item["days_left_date"] == "Complete") == (answered["days_left_date"] == "Complete") == complete
        if answered["days_left_date"] in {"Complete", "Not started", "Unknown"}:
            assert item["days_left_date"] == answered["days_left_date"]
        assert (item["days_left"], item["days_left_display"]) == (answered["days_left"], answered["days_left_display"])

    def check_step(self, item: Any, step: Any, was: Any) -> None:
        left, sent = step["left_to_send"], step["already_sent"]
        own = [entry for entry in self.log if entry.campaign == item["id"]]
        furthest = {entry.contact: entry.step for entry in own if entry.kind == "sent"}
        got = [entry for entry in own if entry.kind == "sent" and entry.step == step["order"]]
        gone = [entry for entry in own if entry.kind in ENDS and furthest[entry.contact] < step["order"]]
        joined = item["contacts"] - self.seeded[item["id"]]["listed"]["contacts"]
        assert 0 <= left == was["left_to_send"] + joined - len(got) - len(gone)
        assert left + sent == step["out_of"] <= item["contacts"]
        assert sent == sum(template["sent"] for template in step["templates"])
        letters = [template["sent"] for template in step["templates"] if template["test_letter"] != "PER"]
        assert not letters or max(letters) - min(letters) <= 1
        for template, before in zip(step["templates"], was["templates"], strict=True):
            counts = Counter("replied" if e.kind == "interested" else e.kind for e in self.log if e.template == template["id"])
            assert template["sent"] - before["sent"] == counts["sent"]
            for name in NUMBERS:
                assert template[f"{name}_num"] - before[f"{name}_num"] == counts[name]
                assert same_number(template[name], percent(template[f"{name}_num"], template["sent"]))
            assert template["opened_num"] <= template["sent"]
            assert max(template[f"{name}_num"] for name in NUMBERS[1:]) <= template["opened_num"]

    def check_mailbox(self, box: Any) -> None:
        today, was = day_of(self.fake.now), self.seeded[box["id"]]
        passed = today - self.start
        sends = {(e.campaign, e.contact, e.step): day_of(e.at) for e in self.log if e.kind == "sent" and e.mailbox == box["id"]}
        days = Counter(sends.values())

        def of_emails_of(kind: str, length: int) -> int:
            emails = [(e.campaign, e.contact, e.step) for e in self.log if e.kind == kind and e.mailbox == box["id"]]
            return sum(today - sends[email] < length for email in emails)

        def sent_in(length: int) -> int:
            return sum(count for day, count in days.items() if today - day < length)

        first, month, quarter = was["sent_today"], was["sent_30days"], was["sent_90days"]
        old_month = first * (passed < 30) + (month - first) * max(0, 29 - passed) // 29
        old_quarter = (
            first * (passed < 90)
            + (month - first) * min(29, max(0, 89 - passed)) // 29
            + (quarter - month) * max(0, 60 - passed) // 60
        )
        assert box["sent_today"] == sent_in(1) + first * (passed == 0)
        assert box["sent_30days"] == sent_in(30) + old_month
        assert box["sent_90days"] == sent_in(90) + old_quarter
        old_bounced = was["bounced_30days"] * old_month // max(1, month)
        assert box["bounced_30days"] == of_emails_of("bounced", 30) + old_bounced
        if month == 0:
            assert same_number(box["opened_14days"], percent(of_emails_of("opened", 14), sent_in(14)))
            everything = len(sends)
            assert same_number(box["avg_open_rate"], percent(of_emails_of("opened", 10**6), everything))
            assert same_number(box["avg_click_rate"], percent(of_emails_of("clicked", 10**6), everything))
        assert 0 <= box["opened_14days"] <= 100
        assert 0 <= box["sent_today"] <= box["sent_30days"] <= box["sent_90days"]
        assert box["bounced_30days"] <= box["sent_30days"]
        for day, count in days.items():
            assert count + first * (day == self.start) <= self.limits[box["id"], day]

    def check_lives(self) -> None:
        """Check that the lifetime totals of all mailboxes equal those of the log; they do not depend on time windows."""
        ledgers = self.fake._world.simulation.stats.values()
        kinds = Counter(entry.kind for entry in self.log)
        lives = [(ledger.sent.total(), ledger.opened.total(), ledger.clicks) for ledger in ledgers]
        assert [sum(column) for column in zip(*lives, strict=True)] in (
            [],
            [kinds["sent"], kinds["opened"], kinds["clicked"]],
        )
