"""Campaigns, steps and mailboxes as they stand in answers: every field of the interface, in its order (rule W4)."""

from __future__ import annotations

import zlib
from typing import Any, Literal

import attrs

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.estimates import COMPLETE, Estimate, estimate
from outreach_async.fake.figures import Figures
from outreach_async.fake.records import Campaign, Mailbox, Share, Step, Template
from outreach_async.fake.relative import ago
from outreach_async.fake.world import ListKind, World


@attrs.frozen
class Items:
    """Makes items of records, as of one instant.

    Attributes:
        world: Where the records are.
        now: Unix seconds.
        figures: How percentages are written.
        list_date: How the campaign list writes dates (rule T16).
    """

    world: World = attrs.field(repr=False)
    now: float
    figures: Figures
    list_date: Literal["timestamp", "text", "mixed"]

    @classmethod
    def of(cls, world: World, now: float, behaviour: Behaviour) -> Items:
        """Make items by a behaviour's readings."""
        return cls(world, now, Figures(behaviour.numbers, behaviour.percent_digits), behaviour.list_date)

    def listed(self, kind: ListKind, id_: str) -> dict[str, Any]:
        """Make an item of either list."""
        return self.campaign(self.world.campaigns[id_]) if kind == "campaign" else self.mailbox(self.world.mailboxes[id_])

    def campaign(self, campaign: Campaign) -> dict[str, Any]:
        """Make an item of the campaign list."""
        sent, opens, replies = (campaign.total(count) for count in ("sent", "opened_num", "replied_num"))
        end = self._end(campaign)
        return {
            "id": campaign.id,
            "status": campaign.status,
            "name": campaign.name,
            "steps": len(campaign.steps),
            "contacts": self._contacts(campaign),
            "opens": self.figures.percent(opens, sent, f"{campaign.id}.opens"),
            "initials": campaign.steps[0].already_sent if campaign.steps else 0,
            "interested": self.figures.percent(campaign.interested_num, sent, f"{campaign.id}.interested"),
            "replies": self.figures.percent(replies, sent, f"{campaign.id}.replies"),
            "bounces": self.figures.percent(campaign.bounces_num, sent, f"{campaign.id}.bounces"),
            "last_activity": ago(campaign.last_activity, self.now),
            "opens_num": opens,
            "replies_num": replies,
            "bounces_num": campaign.bounces_num,
            "interested_num": campaign.interested_num,
            "days_left": end.days,
            "days_left_date": self._list_date(campaign, end),
            "days_left_display": end.display,
            "created": campaign.created,
        }

    def steps(self, campaign: Campaign) -> dict[str, Any]:
        """Make the answer of list-steps, all but its status."""
        end = self._end(campaign)
        enrolled = self.world.enrolled[campaign.id]
        return {
            "days_left": end.days,
            "days_left_date": end.date(self.now),
            "days_left_display": end.display,
            "data": [self._step(step, order, enrolled) for order, step in enumerate(campaign.steps, 1)],
        }

    def mailbox(self, mailbox: Mailbox) -> dict[str, Any]:
        """Make an item of the mailbox list."""
        item = dict(mailbox.values)
        for name in ("opened_14days", "avg_open_rate", "avg_click_rate"):
            share = item[name]
            if isinstance(share, Share):
                item[name] = self.figures.percent(share.n, share.of, f"{mailbox.id}.{name}")
        if item["campaigns"] is None:
            item["campaigns"] = self.world.usage.campaigns.get(mailbox.id, 0)
        for name in ("age", "created"):
            if item[name] is None:
                item[name] = ago(mailbox.created, self.now)
        if not isinstance(item["last_activity"], str):
            item["last_activity"] = ago(mailbox.last_activity, self.now)
        return item

    def _contacts(self, campaign: Campaign) -> int:
        return campaign.contacts + self.world.enrolled[campaign.id]

    def _end(self, campaign: Campaign) -> Estimate:
        enrolled = self.world.enrolled[campaign.id]
        lefts = [step.left_to_send + enrolled for step in campaign.steps]
        waits = [step.wait_time for step in campaign.steps]
        capacity = self.world.usage.capacity(campaign, self.world.mailboxes)
        return estimate(self._contacts(campaign), lefts, waits, capacity)

    def _list_date(self, campaign: Campaign, end: Estimate) -> int | str:
        timestamp = self.list_date == "timestamp" or (self.list_date == "mixed" and zlib.crc32(campaign.id.encode()) & 1)
        return end.timestamp(self.now) if timestamp and end.word != COMPLETE else end.date(self.now)

    def _step(self, step: Step, order: int, enrolled: int) -> dict[str, Any]:
        # Who left early is not going through the step any more: what is left and what is sent make up the whole (rule T4).
        left, sent = step.left_to_send + enrolled, step.already_sent
        return {
            "id": step.id,
            "order": order,
            "status": step.status,
            "type": "auto_email",
            "wait_time": step.wait_time,
            "left_to_send": left,
            "already_sent": sent,
            "out_of": left + sent,
            "templates": [self._template(template) for template in step.templates],
        }

    def _template(self, template: Template) -> dict[str, Any]:
        def percent(n: int, name: str) -> float:
            return self.figures.percent(n, template.sent, f"{template.id}.{name}")

        return {
            "id": template.id,
            "test_letter": template.test_letter,
            "name": template.name,
            "status": template.status,
            "new_thread": template.new_thread,
            "subject": template.subject,
            "body_text": template.body_text,
            "sent": template.sent,
            "opened": percent(template.opened_num, "opened"),
            "opened_num": template.opened_num,
            "clicked": percent(template.clicked_num, "clicked"),
            "clicked_num": template.clicked_num,
            "replied": percent(template.replied_num, "replied"),
            "replied_num": template.replied_num,
            "unsubscribed": percent(template.unsubscribed_num, "unsubscribed"),
            "unsubscribed_num": template.unsubscribed_num,
        }
