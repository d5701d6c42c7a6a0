"""A mailbox's counts by UTC day, with the sums over its windows kept up to date: no answer adds up days (rules B2 to B4).

The figures that a mailbox was seeded with are of one day. As time passes they leave the windows as if they had been sent evenly:
what was sent today counts on that day; the rest of the 30 days leaves over the next 29; the rest of the 90 over 60. Opens and
bounces are of the day their e-mail was sent on, so that no share exceeds the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from outreach_async.fake.records import Mailbox, Share
from outreach_async.fake.relative import DAY

FORTNIGHT: Final = 14
MONTH: Final = 30
QUARTER: Final = 90


@attrs.frozen
class Past:
    """What a mailbox was seeded with.

    Attributes:
        day: The UTC day that the figures are of, counted from 1970.
        today: E-mails sent on that day.
        month: In the 30 days up to it.
        quarter: In the 90 days up to it.
        bounced: Of those of the 30 days.
        opened: Share of those of 14 days.
        opens: Share of all ever.
        clicks: The same.
        pinned: Figures set by hand to what no service can have counted: they stay as they are.
    """

    day: int
    today: int
    month: int
    quarter: int
    bounced: int
    opened: Share
    opens: Share
    clicks: Share
    pinned: frozenset[str]

    @classmethod
    def of(cls, mailbox: Mailbox) -> Past:
        """Read a mailbox's figures; damaged ones count as 0."""
        values = mailbox.values
        counts = {name: _count(values[name]) for name in ("sent_today", "sent_30days", "sent_90days", "bounced_30days")}
        today, month, quarter, bounced = (count or 0 for count in counts.values())
        shares = {
            "opened_14days": _share(values["opened_14days"], month * FORTNIGHT // MONTH),
            "avg_open_rate": _share(values["avg_open_rate"], quarter),
            "avg_click_rate": _share(values["avg_click_rate"], quarter),
        }
        opened, opens, clicks = (share or Share(0, 0) for share in shares.values())
        pinned = frozenset(name for name, value in {**counts, **shares}.items() if value is None)
        return cls(int(mailbox.as_of // DAY), today, month, quarter, bounced, opened, opens, clicks, pinned)

    def month_after(self, days: int) -> int:
        """What is still in the window of 30 days after so many days."""
        return (self.today if days < MONTH else 0) + _rest(self.month - self.today, MONTH - 1, days)

    def quarter_after(self, days: int) -> int:
        """What is still in the window of 90 days."""
        rest = _rest(self.month - self.today, MONTH - 1, max(0, days - QUARTER + MONTH))
        return (self.today if days < QUARTER else 0) + rest + _rest(self.quarter - self.month, QUARTER - MONTH, days)

    def bounced_after(self, days: int) -> int:
        """What of the window of 30 days has bounced: always the same part."""
        return self.bounced * self.month_after(days) // self.month if self.month else self.bounced * (days == 0)

    def opened_after(self, days: int) -> Share:
        """What of the window of 14 days was opened, of how many."""
        return Share(_rest(self.opened.n, FORTNIGHT, days), _rest(self.opened.of, FORTNIGHT, days))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _share(value: Any, of: int) -> Share | None:
    """Read a rate; a bare percentage is of so many as the other figures suggest."""
    if isinstance(value, Share):
        return value if 0 <= value.n <= value.of else None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100  # noqa: PLR2004 - a percentage
    return Share(round(of * value / 100), of) if fits else None


def _rest(total: int, days: int, passed: int) -> int:
    """What is left of a total that leaves over so many days, evenly."""
    return total * max(0, days - passed) // days


@attrs.define
class Ledger:
    """What a mailbox sent, by day, and the sums over the windows that end with its latest day.

    Attributes:
        past: What it was seeded with.
        day: The latest day, counted from 1970.
        sent: E-mails by day; a ring, in which the day's place is its number modulo the length.
        opened: Those of the e-mails sent on a day that were opened; likewise.
        bounced: Those that bounced; likewise.
        fortnight: E-mails sent in 14 days, the latest included.
        month: In 30 days.
        quarter: In 90 days.
        opened_sum: Opened ones of the 14 days.
        bounced_sum: Bounced ones of the 30 days.
        life: E-mails sent ever.
        opens: Opened ever.
        clicks: Clicked ever.
        last: When anything last happened, Unix seconds; `None` for never.
    """

    past: Past
    day: int
    sent: list[int] = attrs.field(factory=lambda: [0] * QUARTER)
    opened: list[int] = attrs.field(factory=lambda: [0] * FORTNIGHT)
    bounced: list[int] = attrs.field(factory=lambda: [0] * MONTH)
    fortnight: int = 0
    month: int = 0
    quarter: int = 0
    opened_sum: int = 0
    bounced_sum: int = 0
    life: int = 0
    opens: int = 0
    clicks: int = 0
    last: float | None = None

    @classmethod
    def of(cls, mailbox: Mailbox) -> Ledger:
        """Open a mailbox's ledger."""
        past = Past.of(mailbox)
        return cls(past, past.day)

    def copy(self) -> Ledger:
        """Copy everything that changes."""
        return attrs.evolve(self, sent=list(self.sent), opened=list(self.opened), bounced=list(self.bounced))

    def roll(self, day: int) -> None:
        """Move on to a day. Time never goes back: an earlier day changes nothing."""
        for _ in range(min(day - self.day, QUARTER)):
            self._turn()
        self.day = max(self.day, day)

    def _turn(self) -> None:
        """Let every window lose its oldest day. After 90 turns they are empty, whatever the days' numbers are."""
        self.day += 1
        self.fortnight -= self.sent[(self.day - FORTNIGHT) % QUARTER]
        self.month -= self.sent[(self.day - MONTH) % QUARTER]
        self.quarter -= self.sent[self.day % QUARTER]
        self.sent[self.day % QUARTER] = 0
        self.opened_sum -= self.opened[self.day % FORTNIGHT]
        self.opened[self.day % FORTNIGHT] = 0
        self.bounced_sum -= self.bounced[self.day % MONTH]
        self.bounced[self.day % MONTH] = 0

    @property
    def today(self) -> int:
        """E-mails sent on the latest day."""
        return self.sent[self.day % QUARTER] + (self.past.today if self.day == self.past.day else 0)

    def count_sent(self) -> None:
        """Count an e-mail sent on the latest day."""
        self.sent[self.day % QUARTER] += 1
        self.fortnight += 1
        self.month += 1
        self.quarter += 1
        self.life += 1

    def count_opened(self, day: int) -> None:
        """Count the open of an e-mail that was sent on a day."""
        self.opens += 1
        if self.day - day < FORTNIGHT:
            self.opened[day % FORTNIGHT] += 1
            self.opened_sum += 1

    def count_bounced(self, day: int) -> None:
        """Count the bounce of an e-mail that was sent on a day."""
        if self.day - day < MONTH:
            self.bounced[day % MONTH] += 1
            self.bounced_sum += 1

    def figures(self) -> Mapping[str, Any]:
        """Make the figures of the mailbox's item, as of the latest day; those that stay as they were seeded are left out."""
        past, days = self.past, self.day - self.past.day
        if not days and not self.life:
            return {}
        opened = past.opened_after(days)
        figures = {
            "sent_today": self.today,
            "sent_30days": past.month_after(days) + self.month,
            "opened_14days": Share(opened.n + self.opened_sum, opened.of + self.fortnight),
            "sent_90days": past.quarter_after(days) + self.quarter,
            "bounced_30days": past.bounced_after(days) + self.bounced_sum,
            "avg_open_rate": Share(past.opens.n + self.opens, past.opens.of + self.life),
            "avg_click_rate": Share(past.clicks.n + self.clicks, past.clicks.of + self.life),
        }
        return {name: value for name, value in figures.items() if name not in past.pinned}
