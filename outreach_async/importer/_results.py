"""The columns of results: what became of a row, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from outreach_async._vocabulary import Outcome
from outreach_async.bulk._outcomes import ContactOutcome
from outreach_async.bulk._targets import fails_only_its_rows
from outreach_async.errors import InvalidRequest
from outreach_async.importer._rejects import is_reject, number_record
from outreach_async.importer._table import File, Row, RowNumber

OUTCOME_COLUMNS: Final = ("workspace", "campaign", "status", "possible", "attempts", "id", "error", "remedy")
COLUMNS: Final = ("file", "line", "record", "email", *OUTCOME_COLUMNS[:3], "certain", *OUTCOME_COLUMNS[3:])
"""Columns of a results file. A row from standard input has a record number instead of a file and a line."""
_REMEDIES: Final[Mapping[Outcome, str]] = {
    Outcome.REJECTED: "correct the row, and import it again",
    Outcome.NOT_APPLIED: "import the row again",
    Outcome.UNKNOWN: "import the row again; the service detects a contact that exists",
}
_UNKNOWN_TARGET: Final = "check the workspace and the campaign of the row, and import it again"


def describe_outcome(outcome: ContactOutcome, message: str | None = None) -> dict[str, Any]:
    """Return the columns of an outcome; `message` replaces that of its error."""
    error, remedy = str(outcome.error or "") if message is None else message, None
    if is_reject(outcome):
        remedy = _REMEDIES[outcome.status]
        if isinstance(outcome.error, InvalidRequest):  # its message ends with the remedy
            error, _, remedy = error.rpartition("; ") if "; " in error else (error, "", remedy)
        elif outcome.error is not None and fails_only_its_rows(outcome.error):
            remedy = _UNKNOWN_TARGET
    certainty = (outcome.status.value, sorted(outcome.possible), outcome.attempts)
    return dict(zip(OUTCOME_COLUMNS, (*outcome.target, *certainty, outcome.id, error or None, remedy), strict=True))


def find_email(outcome: ContactOutcome) -> str:
    row = outcome.contact
    if isinstance(row, Row):
        return row.email.strip()
    return str(row.get("email", "")).strip() if isinstance(row, Mapping) else ""


def describe_outcomes(
    outcomes: Iterator[ContactOutcome], file: File | None, mapping: Mapping[str, str]
) -> Iterator[dict[str, Any]]:
    """Yield the columns of each outcome of a journal, with the line and the e-mail of its row if the file is known."""
    records = enumerate(file.records() if file else ())
    headers = file.headers if file else ()
    email = next((at for at, header in enumerate(headers) if mapping.get(header.strip()) == "email"), None)
    for outcome in outcomes:
        number, address = number_record(outcome.index), find_email(outcome)
        if file is not None:
            line, cells, _ = next(record for index, record in records if index == outcome.index)
            number = RowNumber("line", line)
            address = cells[email].strip() if email is not None and email < len(cells) else ""
        yield {number.unit: number.value, "email": address, **describe_outcome(outcome)}
