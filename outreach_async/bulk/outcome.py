"""What became of one row, and what the evidence allows to say of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

import attrs

from outreach_async.contacts import CreateAnswer, possible_outcomes
from outreach_async.errors import InvalidRequest, OutreachError, StatusError, UnexpectedResponse
from outreach_async.operations import Trail
from outreach_async.retry import Evidence, Repeat, taints, weigh
from outreach_async.vocabulary import DUPLICATE_OUTCOMES, Outcome

_ABOUT_EVERY_ROW: Final = frozenset({401, 403, 404, 405, 501, 505})
_REDIRECTS: Final = range(300, 400)


@attrs.frozen(kw_only=True)
class ContactOutcome:
    """The outcome of one row of a bulk run.

    Attributes:
        index: The row's place in the input, from 0.
        contact: The row as it was given.
        status: The service's last word, or `rejected`, `not_applied` or `unknown`.
        id: The contact's id, where the service gave one.
        possible: Every outcome that agrees with the evidence.
        attempts: How often the row was sent or tried to be sent.
        error: Why it failed; `None` for an answer of the service.
        repeats: Index of the row with the same e-mail that stands for this one, or because of which this one was refused.

    Example:
        ```python
        async with client.contacts.create_many([{"email": "bo@acme.example"}]) as outcomes:
            async for outcome in outcomes:
                print(outcome.index, outcome.status, outcome.id, outcome.attempts)  # -> 0 skipped None 1
        ```
    """

    index: int
    contact: object
    status: Outcome
    id: str | None
    possible: frozenset[Outcome]
    attempts: int
    error: OutreachError | None = None
    repeats: int | None = None

    @property
    def certain(self) -> bool:
        """Whether `status` is known to be what happened."""
        return len(self.possible) == 1


def answered(index: int, row: object, answer: CreateAnswer, trail: Trail) -> ContactOutcome:
    """Return the outcome of a row that the service answered."""
    return ContactOutcome(
        index=index,
        contact=row,
        status=answer.status,
        id=answer.id,
        possible=trail.possible or possible_outcomes(answer.status, tainted=trail.tainted),
        attempts=trail.attempts,
    )


def failed(index: int, row: object, error: OutreachError, duplicates: str) -> ContactOutcome:
    """Return the outcome of a row that was sent, or tried to be, and failed."""
    status = _status(error)
    possible: set[Outcome] = {Outcome.NOT_APPLIED if status is Outcome.UNKNOWN else status}
    if error.maybe_applied:
        possible |= {Outcome.ADDED, DUPLICATE_OUTCOMES[duplicates]}
    return ContactOutcome(
        index=index, contact=row, status=status, id=None, possible=frozenset(possible), attempts=error.attempts, error=error
    )


def _status(error: OutreachError) -> Outcome:
    if is_refusal(error) and not taints(error, Evidence.FINAL):
        return Outcome.REJECTED
    return Outcome.UNKNOWN if error.maybe_applied else Outcome.NOT_APPLIED


def is_refusal(error: OutreachError) -> bool:
    """Whether the service answered with a status that ends a row: asking again would change nothing."""
    return isinstance(error, StatusError) and weigh(error, Repeat.KNOWINGLY) is Evidence.FINAL


def unsent(index: int, row: object, status: Outcome, cause: OutreachError) -> ContactOutcome:
    """Return the outcome of a row that was read, but not sent: it can never be right, or the run stopped before its turn."""
    return ContactOutcome(index=index, contact=row, status=status, id=None, possible=frozenset({status}), attempts=0, error=cause)


def unfinished(index: int, row: object, cause: OutreachError, duplicates: str, *, attempts: int, tainted: bool) -> ContactOutcome:
    """Return the outcome of a row that was under way when the run ended."""
    possible = {Outcome.NOT_APPLIED}
    if tainted:
        possible |= {Outcome.ADDED, DUPLICATE_OUTCOMES[duplicates]}
    status = Outcome.UNKNOWN if tainted else Outcome.NOT_APPLIED
    return ContactOutcome(
        index=index, contact=row, status=status, id=None, possible=frozenset(possible), attempts=attempts, error=cause
    )


_REACH: Final = 4096
"""Answers whose ids are remembered."""


class RecentIds:
    """Notices when a row is given the id of another row's contact.

    Some server or proxy wrote a response twice, say, so that later answers on that connection belong to other rows. Two rows may
    share an id only if their e-mails could be equal to the service.
    """

    def __init__(self) -> None:
        self._rows: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def earlier(self, contact_id: str | None, key: str, index: int) -> int | None:
        """Return the index of another contact's row that was given this id; remember this row if there is none.

        Args:
            contact_id: Given to the row.
            key: What is equal for e-mails that could be equal.
            index: Of the row.
        """
        if contact_id is None:
            return None
        known = hash(key)  # takes less memory than the key
        other, found = self._rows.setdefault(contact_id, (known, index))
        if len(self._rows) > _REACH:
            self._rows.popitem(last=False)
        return None if other == known else found


def misdirected(outcome: ContactOutcome, other: int, duplicates: str) -> ContactOutcome:
    """Return what is left to say of a row if its answer may belong to another row, which was given the same id."""
    text = f"create_contact: rows {outcome.index} and {other} were given the same contact id; one answer belongs to another row"
    error = UnexpectedResponse(text, operation="create_contact", attempts=outcome.attempts, maybe_sent=True)
    return failed(outcome.index, outcome.contact, error, duplicates)


def refused_repeat(index: int, row: object, earlier: int, cause: OutreachError) -> ContactOutcome:
    """Return the outcome of a row that was refused because it repeats an earlier one."""
    return attrs.evolve(unsent(index, row, Outcome.REJECTED, cause), repeats=earlier)


def stood_for(index: int, row: object, sent: int) -> ContactOutcome:
    """Return the outcome of a row in whose stead another with the same e-mail is sent: nothing of its own ever is."""
    possible = frozenset({Outcome.NOT_APPLIED})
    return ContactOutcome(
        index=index, contact=row, status=Outcome.NOT_APPLIED, id=None, possible=possible, attempts=0, repeats=sent
    )


def was_stood_for(outcome: ContactOutcome) -> bool:
    """Whether another row was sent in this one's stead."""
    return outcome.repeats is not None and outcome.status is Outcome.NOT_APPLIED


def concerns_every_row(error: OutreachError) -> bool:
    """Whether the failure is not about this row: a key, workspace, campaign or address that no further row will change.

    The row itself was found right before it was sent, so a transport that refuses it refuses them all: it is closed, say. And a
    refusal for now is given up only after it has lasted too long.
    """
    if isinstance(error, InvalidRequest) or weigh(error, Repeat.KNOWINGLY) is Evidence.REFUSED:
        return True
    return isinstance(error, StatusError) and (error.status_code in _ABOUT_EVERY_ROW or error.status_code in _REDIRECTS)


def is_final_answer(error: OutreachError) -> bool:
    """Whether the service has had its last word on a row: not a failure that another attempt may end, nor the end of the run."""
    return isinstance(error, StatusError | UnexpectedResponse) and weigh(error, Repeat.KNOWINGLY) is Evidence.FINAL
