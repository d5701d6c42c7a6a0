"""A campaign in motion: the contacts waiting for each step, and the counts so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from outreach_async.fake.records import Campaign
from outreach_async.fake.simulation.chance import draw
from outreach_async.fake.simulation.events import BOUNCE, CLICK, DUE, INTERESTED, OPEN, REPLY, UNSUBSCRIBE, Event

COUNTS: Final = ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")
"""The counts of each template, in this order."""

PLACES: Final = {DUE: 0, OPEN: 1, CLICK: 2, REPLY: 3, INTERESTED: 3, UNSUBSCRIBE: 4}
"""Index of the count that an event increases. A bounce increases none (rule T10)."""

ENDS: Final = frozenset({REPLY, INTERESTED, UNSUBSCRIBE, BOUNCE})
"""Kinds of events that end a contact's path."""

ENDED: Final = -1
"""Takes the place of the next step when a path has ended."""

Joined = tuple[str, str, int]
"""A contact that joined: its id, the token of its draws, and the time, in Unix microseconds."""


@attrs.define
class Flow:
    """A campaign's queue and counts. The campaign's record holds the seeded values.

    Attributes:
        since: Time at which the campaign was seeded, in Unix microseconds.
        counts: The five counts of every template of every step.
        lefts: Contacts left to send to, by step.
        bounces: Number of bounced e-mails.
        interested: Number of replies that show interest.
        last: Time of the last event, in Unix seconds; `None` before the first.
        begun: Whether the seeded contacts are under way.
        joined: Contacts that joined and are not under way yet.
        queue: Due e-mails that could not be sent yet.
        progress: The next step of each contact that has received one, or `ENDED`.
        rounds: Number of times a contact has rejoined.
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
        """Return the flow of a campaign as it was seeded."""
        counts = [[[getattr(part, name) for name in COUNTS] for part in step.templates] for step in campaign.steps]
        lefts = [step.left_to_send for step in campaign.steps]
        return cls(now, counts, lefts, campaign.bounces_num, campaign.interested_num)

    def copy(self) -> Flow:
        """Return a copy that shares no mutable value."""
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
        """Return the number of contacts that have completed a step."""
        return sum(part[0] for part in self.counts[step])

    def total(self, place: int) -> int:
        """Return the sum of one of the counts over every template (rule T10)."""
        return sum(part[place] for step in self.counts for part in step)

    # Joining and leaving.

    def join(self, who: str, token: str, at: int) -> None:
        """Add a contact to the campaign (rule T5)."""
        self.joined.append((who, token, at))
        for step in range(len(self.lefts)):
            self.lefts[step] += 1

    def join_again(self, who: str, token: str, at: int) -> None:
        """Restart a contact. Its old path ends, and its e-mails remain counted."""
        number = self.rounds.get(who, 0)
        self.end(_in_round(who, number), len(self.lefts))
        self.rounds[who] = number + 1
        self.join(_in_round(who, number + 1), token, at)

    def end(self, who: str, stop: int) -> bool:
        """End a contact's path: no step has it left to send to any more (rule T4).

        Returns:
            Whether the path had not ended before.
        """
        coming = self.progress.get(who, 0)
        if coming == ENDED:
            return False
        for step in range(coming, stop):
            self.lefts[step] -= 1
        self.progress[who] = ENDED
        return True

    def has_ended(self, who: str) -> bool:
        """Return whether a contact's path has ended."""
        return self.progress.get(who) == ENDED

    def departures(self, campaign: Campaign, seed: int) -> Iterator[Event]:
        """Yield the first event of every contact that is not under way yet. Each contact departs once."""
        waits = [step.wait_time * 1000 for step in campaign.steps]
        if not self.begun:
            self.begun = True
            for number, (start, stop) in enumerate(paths([step.left_to_send for step in campaign.steps])):
                who = f"#{number:09}"
                # A seeded contact beyond the first step has waited for a part of its time; nobody knows how long, so draw it.
                passed = draw(seed, campaign.id, who, start, "wait") if start else 0.0
                at = self.since + waits[start] - int(waits[start] * passed)
                yield Event(at, DUE, campaign.id, who, start, who, stop)
        joined, self.joined = self.joined, []
        if waits:
            for who, token, at in joined:
                # An e-mail that was due before the world was created is due at its creation.
                yield Event(max(at + waits[0], self.since), DUE, campaign.id, who, 0, token, len(waits))


def _in_round(who: str, number: int) -> str:
    return f"{who}~{number}" if number else who


def paths(lefts: Sequence[int]) -> list[tuple[int, int]]:
    """Return paths of contacts that leave each step with the given number of contacts to send to.

    Returns:
        For each contact, its first step and the first step that it does not reach.
    """
    ended: list[tuple[int, int]] = []
    running: list[int] = []
    for step, left in enumerate(lefts):
        while len(running) > left:
            ended.append((running.pop(), step))
        running += [step] * (left - len(running))
    return ended + [(start, len(lefts)) for start in running]
