"""A mailbox's counts per UTC day, with running sums over its windows, so that no answer adds up days (rules B2 to B4).

The figures that a mailbox was seeded with belong to one day. As time passes they leave the windows as if they had been sent
evenly: those of the day itself count on that day, the rest of the 30 days leaves over the next 29 days, and the rest of the 90
days over 60. Opens and bounces belong to the day on which their e-mail was sent, so that no share exceeds the whole.
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
    """The figures that a mailbox was seeded with.

    Attributes:
        day: UTC day of the figures, in days since 1970.
        today: E-mails sent on that day.
        month: E-mails sent in the 30 days up to it.
        quarter: E-mails sent in the 90 days up to it.
        bounced: Bounces of the 30 days.
        opened: Share opened of 14 days.
        opens: Share opened of all e-mails.
        clicks: Share clicked of all e-mails.
        pinned: Figures set to values that no service could have counted; they stay unchanged.
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
        """Read a mailbox's figures. Invalid ones count as 0."""
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
        """Return the e-mails still in the window of 30 days after a number of days."""
        return (self.today if days < MONTH else 0) + _rest(self.month - self.today, MONTH - 1, days)

    def quarter_after(self, days: int) -> int:
        """Return the e-mails still in the window of 90 days after a number of days."""
        rest = _rest(self.month - self.today, MONTH - 1, max(0, days - QUARTER + MONTH))
        return (self.today if days < QUARTER else 0) + rest + _rest(self.quarter - self.month, QUARTER - MONTH, days)

    def bounced_after(self, days: int) -> int:
        """Return the bounces still in the window of 30 days after a number of days, always in the same proportion."""
        return self.bounced * self.month_after(days) // self.month if self.month else self.bounced * (days == 0)

    def opened_after(self, days: int) -> Share:
        """Return the opened e-mails, and all e-mails, still in the window of 14 days after a number of days."""
        return Share(_rest(self.opened.n, FORTNIGHT, days), _rest(self.opened.of, FORTNIGHT, days))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _share(value: Any, of: int) -> Share | None:
    """Return a rate as a share; a plain percentage refers to the total that the other figures suggest."""
    if isinstance(value, Share):
        return value if 0 <= value.n <= value.of else None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100  # noqa: PLR2004 - a percentage
    return Share(round(of * value / 100), of) if fits else None


def _rest(total: int, days: int, passed: int) -> int:
    """Return what remains of a total that leaves evenly over a number of days."""
    return total * max(0, days - passed) // days


@attrs.define
class Ledger:
    """A mailbox's counts by day, and the sums over the windows that end with its latest day.

    Attributes:
        past: The seeded figures; the other counts do not include them.
        day: The latest day, in days since 1970.
        sent: E-mails by day, as a ring: a day's index is its number modulo the length.
        opened: Opened e-mails by the day of their sending, as a ring.
        bounced: Bounced e-mails by the day of their sending, as a ring.
        fortnight: E-mails sent in 14 days, including the latest.
        month: E-mails sent in 30 days.
        quarter: E-mails sent in 90 days.
        opened_sum: Opened e-mails of 14 days.
        bounced_sum: Bounced e-mails of 30 days.
        life: E-mails sent in total.
        opens: Opens in total.
        clicks: Clicks in total.
        last: Time of the last event, in Unix seconds; `None` before the first.
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
        """Return the ledger of a mailbox as it was seeded."""
        past = Past.of(mailbox)
        return cls(past, past.day)

    def copy(self) -> Ledger:
        """Return a copy that shares no mutable value."""
        return attrs.evolve(self, sent=list(self.sent), opened=list(self.opened), bounced=list(self.bounced))

    def roll(self, day: int) -> None:
        """Advance to a day. Time never goes back, so an earlier day changes nothing."""
        for _ in range(min(day - self.day, QUARTER)):
            self._turn()
        self.day = max(self.day, day)

    def _turn(self) -> None:
        """Remove the oldest day from every window. After 90 turns all windows are empty, so `roll` needs no more of them."""
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
        """Return the figures of the mailbox's item as of the latest day, without those that stay as they were seeded."""
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
