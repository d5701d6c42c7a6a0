"""A campaign in motion: who waits for which step, and what has been counted so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from outreach_async.fake.records import Campaign
from outreach_async.fake.simulation.chance import draw
from outreach_async.fake.simulation.events import BOUNCE, CLICK, DUE, INTERESTED, OPEN, REPLY, UNSUBSCRIBE, Event

COUNTS: Final = ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")
"""What is counted for each template, in this order."""

PLACES: Final = {DUE: 0, OPEN: 1, CLICK: 2, REPLY: 3, INTERESTED: 3, UNSUBSCRIBE: 4}
"""Which of the counts an event adds to; a bounce adds to none (rule T10)."""

ENDS: Final = frozenset({REPLY, INTERESTED, UNSUBSCRIBE, BOUNCE})
"""What ends a contact's path."""

ENDED: Final = -1
"""Stands in place of the next step of a path that has ended."""

Joined = tuple[str, str, int]
"""Who joined: the contact, the token of its chance, and when, in Unix microseconds."""


@attrs.define
class Flow:
    """A campaign's queue and counts; the campaign's record keeps what it was seeded with.

    Attributes:
        since: When the campaign was seeded, Unix microseconds.
        counts: The five counts of every template of every step.
        lefts: Contacts that each step is still to be sent to.
        bounces: E-mails bounced.
        interested: Replies that show interest.
        last: When anything last happened, Unix seconds; `None` for never.
        begun: Whether the contacts that it was seeded with are under way.
        joined: Contacts that joined and are not under way yet.
        queue: Contacts for whom an e-mail is due that could not be sent yet.
        progress: The next step of each contact that has got one, or `ENDED`.
        rounds: How often a contact has joined again.
    """

    since: int
    counts: list[list[list[int]]]
    lefts: list[int]
    bounces: int
    interested: int
    last: float | None = None
    begun: bool = False
    joined: list[Joined] = attrs.Factory(list)
    queue: deque[Event] = attrs.Factory(deque)
    progress: dict[str, int] = attrs.Factory(dict)
    rounds: dict[str, int] = attrs.Factory(dict)

    @classmethod
    def of(cls, campaign: Campaign, now: int) -> Flow:
        """Begin with what a campaign was seeded with."""
        counts = [[[getattr(part, name) for name in COUNTS] for part in step.templates] for step in campaign.steps]
        lefts = [step.left_to_send for step in campaign.steps]
        return cls(now, counts, lefts, campaign.bounces_num, campaign.interested_num)

    def copy(self) -> Flow:
        """Copy everything that changes."""
        return attrs.evolve(
            self,
            counts=[[list(part) for part in step] for step in self.counts],
            lefts=list(self.lefts),
            joined=list(self.joined),
            queue=self.queue.copy(),
            progress=dict(self.progress),
            rounds=dict(self.rounds),
        )

    def sent(self, step: int) -> int:
        """Contacts that have completed a step."""
        return sum(part[0] for part in self.counts[step])

    def total(self, place: int) -> int:
        """Sum one of the counts over every template (rule T10)."""
        return sum(part[place] for step in self.counts for part in step)

    # Coming and going.

    def join(self, who: str, token: str, at: int) -> None:
        """Take a contact in (rule T5)."""
        self.joined.append((who, token, at))
        for step in range(len(self.lefts)):
            self.lefts[step] += 1

    def join_again(self, who: str, token: str, at: int) -> None:
        """Let a contact begin anew: its old path ends, and what it got stays counted."""
        number = self.rounds.get(who, 0)
        self.end(_in_round(who, number), len(self.lefts))
        self.rounds[who] = number + 1
        self.join(_in_round(who, number + 1), token, at)

    def end(self, who: str, stop: int) -> bool:
        """End a contact's path, so that no step has it left to send to any more (rule T4).

        Returns:
            Whether it had not ended before.
        """
        coming = self.progress.get(who, 0)
        if coming == ENDED:
            return False
        for step in range(coming, stop):
            self.lefts[step] -= 1
        self.progress[who] = ENDED
        return True

    def has_ended(self, who: str) -> bool:
        """Tell whether a contact's path has ended."""
        return self.progress.get(who) == ENDED

    def departures(self, campaign: Campaign, seed: int) -> Iterator[Event]:
        """Make the first event of everybody who is not under way yet; once."""
        waits = [step.wait_time * 1000 for step in campaign.steps]
        if not self.begun:
            self.begun = True
            for number, (start, stop) in enumerate(paths([step.left_to_send for step in campaign.steps])):
                who = f"#{number:09}"
                # Those on their way have waited for a while; nobody says how long.
                passed = draw(seed, campaign.id, who, start, "wait") if start else 0.0
                at = self.since + waits[start] - int(waits[start] * passed)
                yield Event(at, DUE, campaign.id, who, start, who, stop)
        joined, self.joined = self.joined, []
        if waits:
            for who, token, at in joined:
                # What was due before the world was made is due when it is made.
                yield Event(max(at + waits[0], self.since), DUE, campaign.id, who, 0, token, len(waits))


def _in_round(who: str, number: int) -> str:
    return f"{who}~{number}" if number else who


def paths(lefts: Sequence[int]) -> list[tuple[int, int]]:
    """Find people whose ways through the steps leave each step with the given number to send to.

    Returns:
        The first step of each, and the first that is not theirs any more.
    """
    ended: list[tuple[int, int]] = []
    running: list[int] = []
    for step, left in enumerate(lefts):
        while len(running) > left:
            ended.append((running.pop(), step))
        running += [step] * (left - len(running))
    return ended + [(start, len(lefts)) for start in running]
