"""An import as the command line describes it."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import click

from outreach_async.bulk import Journal, Repeats
from outreach_async.bulk.journal import JournalReport
from outreach_async.bulk.journal.values import Earlier
from outreach_async.bulk.repeats import WHOLE_INPUT
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import File, open_file
from outreach_async.importer.checks import Policy
from outreach_async.vocabulary import DuplicatePolicy

IN_FLIGHT: Final = 64


@attrs.frozen(kw_only=True)
class Job:
    """The input and the options of an import.

    Attributes:
        file: The input.
        overrides: Field codes by column name.
        ignore_unknown: Whether to skip columns that match no field.
        duplicates: What to do with an e-mail that is already in the workspace.
        campaign: Campaign to add the contacts to.
        strict: Whether the service validates the standard fields.
        concurrency: Maximum number of concurrent requests.
        repeats: What to do with duplicates within the file.
        journal: File that records the run.
        resume: Whether to resume the run of an existing journal.
        earlier: `unknown` marks every row without an outcome as possibly sent.
        rejects: File for rows that were rejected, not applied or unknown.
        checks: Levels of the checks; `None` to check nothing and print no findings.
        save_mapping: File for the mapping.
        rate: Quota in requests per second, as the user gave it.
        notes: Remarks to print before the run.
        spooled: Whether the rows are in the journal only, because they came from standard input.
    """

    file: File
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    ignore_unknown: bool = False
    duplicates: DuplicatePolicy = "skip"
    campaign: str | None = None
    strict: bool = True
    concurrency: int = IN_FLIGHT
    repeats: Repeats = "serial"
    journal: Path | None = None
    resume: bool = False
    earlier: Earlier = "known"
    rejects: Path | None = None
    checks: Policy | None = None
    save_mapping: Path | None = None
    rate: float | None = None
    notes: tuple[str, ...] = ()
    spooled: bool = False

    def kept_in(self, mapping: Mapping[str, str] | None = None) -> Journal | None:
        """Return the journal, with the path and fingerprint of the input; standard input has only its rows to identify it.

        Args:
            mapping: Final field codes by column; `None` for those of `overrides`.
        """
        if self.journal is None:
            return None
        known = self.overrides if mapping is None else mapping
        if self.file.path is None:
            return Journal(self.journal, source=self.file.name, mapping=known)
        source = str(self.file.path.resolve())
        return Journal(self.journal, source=source, fingerprint=self.file.fingerprint(), mapping=known)

    def before(self) -> JournalReport | None:
        """Return the report of the run to resume; `None` if there is none."""
        return begun(self.journal, self.earlier) if self.resume else None

    def is_settled(self, report: JournalReport) -> bool:
        """Return whether a run is finished and need not read its rows: the journal has them or the fingerprint."""
        if report.state != "finished" or self.save_mapping is not None or self.earlier == "unknown":
            return False
        return self.spooled or (report.fingerprint is not None and self.file.path is not None)


def begun(journal: Path | None, earlier: Earlier = "known") -> JournalReport | None:
    """Return the report of an existing journal; `None` if it is damaged and `earlier` allows to replace it."""
    if journal is None or not journal.exists():
        return None
    try:
        return Journal(journal).report()
    except (InvalidRequest, JournalError):
        if earlier == "known":
            raise
        return None


def is_spooled(report: JournalReport | None) -> bool:
    """Return whether a run from standard input can be resumed from its journal alone."""
    if report is None or report.source is None or report.fingerprint is not None:  # the input was a file, or not this command's
        return False
    # The first row is marked only after the whole input is in the journal.
    return report.marked > 0 or report.state == "finished"


def gone() -> File:
    """Return a file without rows, in place of an input that no longer exists."""
    return open_file(io.BytesIO(b"email\n"), format="csv")


def require_journal(*, resume: bool, earlier: Earlier, journal: Path | None) -> None:
    """Check that a journal is given where one is needed.

    Raises:
        click.UsageError: No journal is given.
    """
    if earlier == "unknown" and journal is None:
        raise click.UsageError("--earlier unknown: needs the journal that was damaged or lost; pass --journal PATH.")
    if resume and journal is None:
        raise click.UsageError("--resume: needs the journal of the run; pass --journal PATH.")


def require_fitting_journal(*, resume: bool, repeats: Repeats, journal: Path | None) -> None:
    """Check that a run can be recorded as its options demand; a dry run records nothing.

    Raises:
        click.UsageError: No journal is given where one is needed, or the journal of another run exists.
    """
    if repeats in WHOLE_INPUT and journal is None:
        raise click.UsageError(f"--repeats {repeats}: needs a journal, to store the whole input first; pass --journal PATH.")
    if journal is not None and not resume and os.path.lexists(journal):
        raise click.UsageError(f"--journal {journal}: the file exists; resume its run with --resume, or pass another path.")
