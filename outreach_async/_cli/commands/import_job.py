"""The input and the options of the command `import`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import attrs

from outreach_async._cli import files
from outreach_async._cli.connection import MAX_IN_FLIGHT
from outreach_async._vocabulary import DuplicatePolicy
from outreach_async.bulk import Journal, ObjectJournal, Repeats
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.bulk.journal import JournalReport, journal_at
from outreach_async.bulk.journal._identity import Earlier
from outreach_async.bulk.ledger import Changed
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import File
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._source import InputChanged
from outreach_async.importer._table import RowUnit


@attrs.frozen(kw_only=True)
class ImportJob:
    """The input and the options of an import."""

    file: File
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    ignore_unknown: bool = False
    duplicates: DuplicatePolicy = "skip"
    campaign: str | None = None
    strict: bool = True
    concurrency: int = MAX_IN_FLIGHT
    repeats: Repeats = "serial"
    journal: files.JournalLocation | None = None
    ledger: files.JournalLocation | None = None
    max_age: float | None = None
    changed: Changed = "send"
    resume: bool = False
    earlier: Earlier = "known"
    rejects: Path | None = None
    results: Path | None = None
    checks: CheckPolicy | None = None
    save_mapping: Path | None = None
    rate: float | None = None
    notes: tuple[str, ...] = ()
    spooled: bool = False
    fingerprint: str | None = attrs.field(init=False)

    @fingerprint.default
    def _compute_fingerprint(self) -> str | None:
        return None if self.file.path is None else self.file.fingerprint()

    @property
    def spools(self) -> bool:
        """True if the journal stores the rows: the import has a journal, and the input is a stream that can be read only once."""
        return self.journal is not None and self.file.path is None

    @property
    def unit(self) -> RowUnit:
        """Unit of row numbers in messages: `record` if the journal stores the rows, otherwise `line`."""
        return "record" if self.spools else "line"

    def create_journal(self, mapping: Mapping[str, str] | None = None) -> Journal | ObjectJournal | None:
        """Create the `Journal` or `ObjectJournal` of the import. Return `None` if the import has no journal."""
        # The journal receives the path and the fingerprint of an input file. Standard input has neither, and is identified by its
        # rows.
        if self.journal is None:
            return None
        mapping = self.overrides if mapping is None else mapping
        if self.file.path is None:
            return journal_at(self.journal, source=self.file.name, mapping=mapping)
        return journal_at(self.journal, source=str(self.file.path.resolve()), fingerprint=self.fingerprint, mapping=mapping)

    @property
    def stores_rows(self) -> bool:
        """True if the journal stores all rows before the first one is sent, so that they are not read from the file again."""
        return self.spools or (self.journal is not None and self.repeats in WHOLE_INPUT)

    def find_content_change(self) -> InputChanged | None:
        """Return an error that states how the bytes of the input file have changed; `None` if they are the same."""
        if self.fingerprint is None:
            return None
        try:
            self.file.source.require_content(self.fingerprint)
        except InvalidRequest as error:  # also if the file can no longer be read
            return InputChanged(str(error).partition("; ")[0])
        return None

    def read_earlier_report(self) -> JournalReport | None:
        """Return the report of the run to resume; `None` if there is no such run."""
        # If the journal is damaged and `earlier` is `unknown`, also return `None`.
        if not self.resume or self.journal is None or not (journal := journal_at(self.journal)).exists():
            return None
        try:
            return journal.report()
        except (InvalidRequest, JournalError):
            if self.earlier == "known":
                raise
            return None

    def is_settled(self, report: JournalReport) -> bool:
        """Return whether the results of an earlier run can be printed again without parsing the input."""
        # The run must be finished. Its journal must contain the rows or the fingerprint of the input file. With `save_mapping` or
        # `earlier="unknown"`, the input is always parsed.
        if report.state != "finished" or self.save_mapping is not None or self.earlier == "unknown":
            return False
        return self.spooled or (report.fingerprint is not None and self.file.path is not None)
