"""What really happened to rows, and which outcomes are true: a minimal service with a ledger, and the judge of labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import permutations, product
from typing import Any, Final, Literal

import attrs

from outreach_async.bulk.outcomes import ContactOutcome
from outreach_async.errors import OutreachError, RateLimited, StatusError, TransportError, UnexpectedResponse
from outreach_async.vocabulary import DUPLICATE_OUTCOMES, Outcome

Act = Literal["never", "now", "later"]
"""When the service carries an attempt out; `later` is after whatever stands between lets go of it, or not at all."""
Payload = tuple[str | None, ...]
"""Values of the fields a, b, c and d."""
FIELDS: Final = "abcd"
FIRST: Final[Payload] = ("first", "first", None, "first")
SECOND: Final[Payload] = ("second", None, "second", "second")
BEFORE: Final[Payload] = (None, None, None, "before")
"""Rows that share fields in every combination, which reveals the order in which they were applied."""
FINDINGS: Final = frozenset({Outcome.REJECTED, Outcome.NOT_APPLIED, Outcome.UNKNOWN})
"""Outcomes that the service does not send."""


@attrs.frozen
class Way:
    """How an attempt fails.

    Attributes:
        name: Of it.
        act: When the service carries it out.
        error: Makes the error that the client meets.
        sent: Whether it left, and was not surely refused.
        invalid: Whether the service finds the row itself wrong, so that it always will.
    """

    name: str
    act: Act
    error: Callable[[], OutreachError]
    sent: bool = True
    invalid: bool = False


def _status(code: int, **headers: str) -> Callable[[], OutreachError]:
    return partial(StatusError, f"{code}", status_code=code, headers={name.replace("_", "-"): headers[name] for name in headers})


def before_and_after(*codes: int) -> tuple[Way, ...]:
    """Return two ways for each status: instead of the creation, and after it."""
    acts: tuple[tuple[str, Act], ...] = (("before", "never"), ("after", "now"))
    return tuple(Way(f"{code} {when}", act, _status(code)) for code in codes for when, act in acts)


DOUBTFUL: Final = (*range(300, 309), 408, 425, 499, *range(500, 512), 520, 598, 599)
"""Statuses that do not prove that the creation was not carried out; any other 3xx and 5xx is one as well."""
_LOST: Final = partial(TransportError, "lost", maybe_sent=True)
INVALID: Final = Way("422", "never", _status(422), sent=False, invalid=True)
FAULTS: Final = (
    INVALID,
    Way("429", "never", partial(RateLimited, "too many", status_code=429), sent=False),
    Way("503 before", "never", _status(503, retry_after="1")),
    Way("503 after", "now", _status(503, retry_after="1")),
    Way("not sent", "never", partial(TransportError, "no connection", maybe_sent=False), sent=False),
    Way("lost before", "never", _LOST),
    Way("lost after", "now", _LOST),
    Way("delayed", "later", _LOST),
    Way("broken answer", "now", partial(UnexpectedResponse, "no JSON")),
    *before_and_after(301, 499),  # the first stops the run, the second rejects the row
)
DEATHS: Final[tuple[tuple[str, Act], ...]] = (("before", "never"), ("after", "now"), ("while delayed", "later"))
"""How an attempt stands with the service when its process is killed."""
CUTS: Final[tuple[tuple[bool, Act], ...]] = ((False, "never"), (True, "never"), (True, "now"), (True, "later"))
"""How an attempt stands that a run's orderly end cuts short: whether a byte may have left, and what the service makes of it."""


@attrs.define
class Service:
    """The service's side of a path.

    Attributes:
        contact: What is stored.
        delayed: Rows of requests that may still arrive.
        ledger: Row and outcome of all that was done, in order.
    """

    contact: Payload | None
    delayed: tuple[int, ...] = ()
    ledger: tuple[tuple[int, Outcome], ...] = ()

    def truth(self, row: int) -> Outcome | None:
        """Return what was done for a row first; what was done again shows in the contact."""
        for done, outcome in self.ledger:
            if done == row:
                return outcome
        return None


@cache
def apply(duplicates: str, stored: Payload | None, sent: Payload) -> tuple[Payload, Outcome]:
    """Return what a creation makes of a contact, and what the service answers (section "Create contact")."""
    if stored is None:
        return sent, Outcome.ADDED
    pairs = zip(stored, sent, strict=True)
    if duplicates == "skip":
        stored_fields = stored
    elif duplicates == "overwrite":
        stored_fields = tuple(old if new is None else new for old, new in pairs)
    else:
        stored_fields = tuple(new if old is None else old for old, new in pairs)
    return stored_fields, DUPLICATE_OUTCOMES[duplicates]


@attrs.frozen
class Sent:
    """A row that is sent.

    Attributes:
        payload: What is sent of it.
        means: What the input says, one row after the other: more than one where rows are merged.
    """

    payload: Payload
    means: tuple[Payload, ...]


def turns(sure: Sequence[bool | None]) -> Iterator[tuple[int, ...]]:
    """Yield every order in which rows may have counted.

    Args:
        sure: For each row, `True` if the service answered it: it counts, in its place. `False` if nobody knows: it counts once at
            any place, or not at all. `None` if it surely never was applied.
    """
    fixed = [row for row, known in enumerate(sure) if known]
    loose = [row for row, known in enumerate(sure) if known is False]
    for choices in product((True, False), repeat=len(loose)):
        chosen = fixed + [row for row, take in zip(loose, choices, strict=True) if take]
        yield from (order for order in permutations(chosen) if [row for row in order if row in fixed] == fixed)


def sequences(duplicates: str, before: Payload | None, rows: Sequence[Sent], sure: Sequence[bool | None]) -> frozenset[Any]:
    """Return every contact that the rows can make, one after the other.

    Args:
        duplicates: The duplicates option.
        before: What is stored at first.
        rows: The rows.
        sure: For each, what `turns` takes.
    """
    stored_fields = set()
    for order in turns(sure):
        contact = before
        for payload in (payload for row in order for payload in rows[row].means):
            contact, _ = apply(duplicates, contact, payload)
        stored_fields.add(contact)
    return frozenset(stored_fields)


def find_wrong_labels(outcome: ContactOutcome, truth: Outcome | None, *, sent: bool) -> Iterator[str]:
    """Yield what is wrong with what is said of a row.

    Args:
        outcome: What is said.
        truth: What the service did; `None` for nothing.
        sent: Whether an attempt left that the service did not surely refuse.
    """
    status, possible = outcome.status, outcome.possible
    if truth is None and status not in FINDINGS:
        yield "lost"
    if (truth or (Outcome.REJECTED if status is Outcome.REJECTED else Outcome.NOT_APPLIED)) not in possible:
        yield "label without the truth"
    if status is Outcome.NOT_APPLIED and (sent or not outcome.certain):
        yield "not_applied although sent"
    if status is Outcome.UNKNOWN and outcome.certain:
        yield "unknown, and certain"


def when_applied(outcome: ContactOutcome) -> bool | None:
    """Return whether a row was applied, in its turn; `None` if it surely never was."""
    if outcome.status in FINDINGS:
        return None if outcome.certain else False
    return True
