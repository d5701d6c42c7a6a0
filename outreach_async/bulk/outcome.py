"""The outcome of one row, derived from the responses and failures of its attempts."""

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
        index: Index of the row in the input, from 0.
        contact: The row as the caller passed it.
        status: The status in the service's last response, or `rejected`, `not_applied` or `unknown`.
        id: Id of the contact; `None` if the service returned none.
        possible: Every outcome that is consistent with the evidence.
        attempts: Number of attempts to send the row.
        error: The error of a row that failed or was not sent; `None` otherwise.
        repeats: Index of the row with the same e-mail that was sent instead, or because of which this row was rejected.

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
        """True if `status` is the only possible outcome."""
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
    """Return the outcome of a row whose attempts failed."""
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
    """Return whether the service answered with a status that is final for a row: a retry would change nothing."""
    return isinstance(error, StatusError) and weigh(error, Repeat.KNOWINGLY) is Evidence.FINAL


def unsent(index: int, row: object, status: Outcome, cause: OutreachError) -> ContactOutcome:
    """Return the outcome of a row that was read but not sent: it is invalid, or the run stopped before its turn."""
    return ContactOutcome(index=index, contact=row, status=status, id=None, possible=frozenset({status}), attempts=0, error=cause)


def unfinished(index: int, row: object, cause: OutreachError, duplicates: str, *, attempts: int, tainted: bool) -> ContactOutcome:
    """Return the outcome of a row that was being processed when the run ended."""
    possible = {Outcome.NOT_APPLIED}
    if tainted:
        possible |= {Outcome.ADDED, DUPLICATE_OUTCOMES[duplicates]}
    status = Outcome.UNKNOWN if tainted else Outcome.NOT_APPLIED
    return ContactOutcome(
        index=index, contact=row, status=status, id=None, possible=frozenset(possible), attempts=attempts, error=cause
    )


_REACH: Final = 4096
"""Number of recent responses whose ids are remembered."""


class RecentIds:
    """Detects a response with the id of another row's contact.

    This happens if, for example, a server or proxy writes a response twice: later responses on that connection then belong to
    other rows. Two rows may share an id only if the service may treat their e-mails as equal.
    """

    def __init__(self) -> None:
        self._rows: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def earlier(self, contact_id: str | None, key: str, index: int) -> int | None:
        """Return the index of the row of another contact that received this id; remember this row if there is none.

        Args:
            contact_id: The id that the row received, if any.
            key: The row's order key: equal for e-mails that the service may treat as equal.
            index: Index of the row.
        """
        if contact_id is None:
            return None
        known = hash(key)  # smaller than the key
        other, found = self._rows.setdefault(contact_id, (known, index))
        if len(self._rows) > _REACH:
            self._rows.popitem(last=False)
        return None if other == known else found


def misdirected(outcome: ContactOutcome, other: int, duplicates: str) -> ContactOutcome:
    """Return the outcome of a row whose response may belong to another row, because that row received the same id."""
    text = f"create_contact: rows {outcome.index} and {other} received the same contact id; one response belongs to another row"
    error = UnexpectedResponse(text, operation="create_contact", attempts=outcome.attempts, maybe_sent=True)
    return failed(outcome.index, outcome.contact, error, duplicates)


def refused_repeat(index: int, row: object, earlier: int, cause: OutreachError) -> ContactOutcome:
    """Return the outcome of a row that was rejected because it repeats an earlier one."""
    return attrs.evolve(unsent(index, row, Outcome.REJECTED, cause), repeats=earlier)


def stood_for(index: int, row: object, sent: int) -> ContactOutcome:
    """Return the outcome of a row that is never sent, because another row with the same e-mail is sent instead."""
    possible = frozenset({Outcome.NOT_APPLIED})
    return ContactOutcome(
        index=index, contact=row, status=Outcome.NOT_APPLIED, id=None, possible=possible, attempts=0, repeats=sent
    )


def was_stood_for(outcome: ContactOutcome) -> bool:
    """Return whether another row with the same e-mail was sent instead."""
    return outcome.repeats is not None and outcome.status is Outcome.NOT_APPLIED


def concerns_every_row(error: OutreachError) -> bool:
    """Return whether the failure affects every row, as a wrong key, workspace, campaign or base URL does.

    The row was validated before it was sent, so a transport that refuses it, because it is closed for example, refuses every row.
    A temporary refusal (such as 429) gets here only after it has lasted too long.
    """
    if isinstance(error, InvalidRequest) or weigh(error, Repeat.KNOWINGLY) is Evidence.REFUSED:
        return True
    return isinstance(error, StatusError) and (error.status_code in _ABOUT_EVERY_ROW or error.status_code in _REDIRECTS)


def is_final_answer(error: OutreachError) -> bool:
    """Return whether the service's answer is final for the row: neither a failure that a retry may resolve nor the run's end."""
    return isinstance(error, StatusError | UnexpectedResponse) and weigh(error, Repeat.KNOWINGLY) is Evidence.FINAL
