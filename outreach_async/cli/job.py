"""An import as the command line asks for it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import click

from outreach_async.bulk import Journal, Repeats
from outreach_async.bulk.journal import JournalReport
from outreach_async.bulk.journal.values import Earlier
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import File, open_file
from outreach_async.importer.checks import Policy
from outreach_async.vocabulary import DuplicatePolicy

IN_FLIGHT: Final = 64


@attrs.frozen(kw_only=True)
class Job:
    """What to import, and how.

    Attributes:
        file: Where the rows are.
        overrides: Codes by column name.
        ignore_unknown: Whether to leave out columns that no field is known for.
        duplicates: What to do if the workspace has an e-mail.
        campaign: Campaign to add the contacts to.
        strict: Whether the service validates the standard fields.
        concurrency: Requests at a time at most.
        repeats: What to do with an e-mail that comes again.
        journal: File to keep the run in.
        resume: Whether to go on with a journal that is there.
        earlier: With `unknown` every row without an outcome counts as possibly sent.
        rejects: File to write the rows to that made no contact.
        checks: What to check the values for before anything is sent; `None` for nothing, and nothing is told.
        save_mapping: File to write the mapping to.
        rate: Requests a second that the caller knows to be allowed.
        notes: What a person should know before it starts.
        spooled: Whether the rows are in the journal only, since they came from standard input.
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
        """Return the journal to keep the run in, which knows the file; standard input is known by its rows alone.

        Args:
            mapping: Codes by column, as decided; those asked for if nothing was decided.
        """
        if self.journal is None:
            return None
        known = self.overrides if mapping is None else mapping
        if self.file.path is None:
            return Journal(self.journal, source=self.file.name, mapping=known)
        source = str(self.file.path.resolve())
        return Journal(self.journal, source=source, fingerprint=self.file.fingerprint(), mapping=known)

    def before(self) -> JournalReport | None:
        """Return what is known of the run that is to be resumed."""
        return begun(self.journal, self.earlier) if self.resume else None

    def is_settled(self, report: JournalReport) -> bool:
        """Whether a run is finished, and its rows need not be read: the journal has them, or compares the file's fingerprint."""
        if report.state != "finished" or self.save_mapping is not None or self.earlier == "unknown":
            return False
        return self.spooled or (report.fingerprint is not None and self.file.path is not None)


def begun(journal: Path | None, earlier: Earlier = "known") -> JournalReport | None:
    """Return the figures of a journal that is there; nothing of one that is damaged, if it is to be set aside."""
    if journal is None or not journal.exists():
        return None
    try:
        return Journal(journal).report()
    except (InvalidRequest, JournalError):
        if earlier == "known":
            raise
        return None


def is_spooled(report: JournalReport | None) -> bool:
    """Whether a run from standard input goes on from its journal alone: no row was marked before the whole input was in it."""
    if report is None or report.source is None or report.fingerprint is not None:  # it is of a file, or of no command's import
        return False
    return report.marked > 0 or report.state == "finished"


def gone() -> File:
    """Return what stands for an input that is gone: a file without rows."""
    return open_file(io.BytesIO(b"email\n"), format="csv")


def require_journal(*, resume: bool, earlier: Earlier, journal: Path | None) -> None:
    """Check that there is a journal where one is needed.

    Raises:
        click.UsageError: There is none.
    """
    if earlier == "unknown" and journal is None:
        raise click.UsageError("--earlier unknown needs --journal PATH, the journal that is damaged or lost.")
    if resume and journal is None:
        raise click.UsageError("--resume needs --journal PATH, the journal to go on with.")
