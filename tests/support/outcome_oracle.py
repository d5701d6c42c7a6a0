"""A minimal service with a ledger of what it did for each row, and checks of reported outcomes against the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import permutations, product
from typing import Any, Final, Literal

import attrs

from outreach_async._vocabulary import DUPLICATE_OUTCOMES, Outcome
from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.errors import OutreachError, RateLimited, StatusError, TransportError, UnexpectedResponse

Act = Literal["never", "now", "later"]
"""When the service carries out an attempt. `later` means once an intermediary such as a proxy releases it, or never."""
Payload = tuple[str | None, ...]
"""The values of the fields a, b, c and d."""
FIELDS: Final = "abcd"
FIRST: Final[Payload] = ("first", "first", None, "first")
SECOND: Final[Payload] = ("second", None, "second", "second")
BEFORE: Final[Payload] = (None, None, None, "before")
"""Payloads whose fields overlap in every combination, so that the result shows the order in which they were applied."""
FINDINGS: Final = frozenset({Outcome.REJECTED, Outcome.NOT_APPLIED, Outcome.UNKNOWN})
"""Outcomes that the service never sends; the library determines them itself."""


@attrs.frozen
class Way:
    """How an attempt fails."""

    name: str
    act: Act
    error: Callable[[], OutreachError]
    sent: bool = True
    invalid: bool = False


def _status(code: int, **headers: str) -> Callable[[], OutreachError]:
    return partial(StatusError, f"{code}", status_code=code, headers={name.replace("_", "-"): headers[name] for name in headers})


def before_and_after(*codes: int) -> tuple[Way, ...]:
    """Return two failures for each status: one instead of the creation, and one after it."""
    acts: tuple[tuple[str, Act], ...] = (("before", "never"), ("after", "now"))
    return tuple(Way(f"{code} {when}", act, _status(code)) for code in codes for when, act in acts)


DOUBTFUL: Final = (*range(300, 309), 408, 425, 499, *range(500, 512), 520, 598, 599)
"""Statuses after which the creation may have been carried out. The same holds for every other 3xx and 5xx status."""
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
    *before_and_after(301, 499),  # 301 stops the run, 499 rejects the row
)
DEATHS: Final[tuple[tuple[str, Act], ...]] = (("before", "never"), ("after", "now"), ("while delayed", "later"))
"""The possible states of an attempt when its process is killed: a name, and when the service carries the attempt out."""
CUTS: Final[tuple[tuple[bool, Act], ...]] = ((False, "never"), (True, "never"), (True, "now"), (True, "later"))
"""The possible states of an attempt that an orderly end interrupts: whether bytes may have left, and when it is carried out."""


@attrs.define
class Service:
    """The state of the service on one path."""

    contact: Payload | None
    delayed: tuple[int, ...] = ()
    ledger: tuple[tuple[int, Outcome], ...] = ()

    def truth(self, row: int) -> Outcome | None:
        """Return the first outcome of a row. Any later creation of the row shows only in the contact."""
        for done, outcome in self.ledger:
            if done == row:
                return outcome
        return None


@cache
def apply(duplicates: str, stored: Payload | None, sent: Payload) -> tuple[Payload, Outcome]:
    """Return the contact after a creation, and the outcome that the service sends (section "Create contact")."""
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
    """A row that is sent."""

    payload: Payload
    means: tuple[Payload, ...]


def turns(sure: Sequence[bool | None]) -> Iterator[tuple[int, ...]]:
    """Yield every order in which rows may have been applied."""
    fixed = [row for row, known in enumerate(sure) if known]
    loose = [row for row, known in enumerate(sure) if known is False]
    for choices in product((True, False), repeat=len(loose)):
        chosen = fixed + [row for row, take in zip(loose, choices, strict=True) if take]
        yield from (order for order in permutations(chosen) if [row for row in order if row in fixed] == fixed)


def sequences(duplicates: str, before: Payload | None, rows: Sequence[Sent], sure: Sequence[bool | None]) -> frozenset[Any]:
    """Return every contact that can result from the rows."""
    stored_fields = set()
    for order in turns(sure):
        contact = before
        for payload in (payload for row in order for payload in rows[row].means):
            contact, _ = apply(duplicates, contact, payload)
        stored_fields.add(contact)
    return frozenset(stored_fields)


def find_wrong_labels(outcome: ContactOutcome, truth: Outcome | None, *, sent: bool) -> Iterator[str]:
    """Yield each violation in the outcome of a row."""
    status, possible = outcome.status, outcome.possible
    if truth is None and status not in FINDINGS:
        yield "reported as carried out although it was not"
    if (truth or (Outcome.REJECTED if status is Outcome.REJECTED else Outcome.NOT_APPLIED)) not in possible:
        yield "label excludes the true outcome"
    if status is Outcome.NOT_APPLIED and (sent or not outcome.certain):
        yield "not_applied although sent"
    if status is Outcome.UNKNOWN and outcome.certain:
        yield "unknown but certain"


def when_applied(outcome: ContactOutcome) -> bool | None:
    """Return the value that `turns` takes for a row with this outcome."""
    if outcome.status in FINDINGS:
        return None if outcome.certain else False
    return True
