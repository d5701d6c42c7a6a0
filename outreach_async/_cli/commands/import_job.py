"""An import of the command: its file, its options, and what they mean for its journal and its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from outreach_async import DuplicatePolicy
from outreach_async._cli import files
from outreach_async._cli.values import MAX_IN_FLIGHT
from outreach_async._plumbing import WHOLE_INPUT, Targets
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.importer import Columns, File, Row
from outreach_async.importer._checks import CheckPolicy
from outreach_async.importer._mapping_file import number_codes
from outreach_async.importer._rejects import KeptColumns
from outreach_async.importer._rows import ExcludedPeople, RowUnit
from outreach_async.importer._source import InputChanged
from outreach_async.importer._table import read_rows, require_content
from outreach_async.importer._target_columns import with_ids
from outreach_async.models import ID_PREFIXES

if TYPE_CHECKING:
    from outreach_async._plumbing import Earlier
    from outreach_async.bulk import Blank, Repeats
    from outreach_async.store.journal import Journal, JournalReport, ObjectJournal
    from outreach_async.store.ledger import Changed


@attrs.frozen(kw_only=True)
class ImportJob:
    file: File
    overrides: Mapping[str, str] = attrs.field(factory=dict)
    ignore_unknown: bool = False
    duplicates: DuplicatePolicy = "skip"
    campaign: str | None = None
    campaign_names: Mapping[tuple[str, str], str] = attrs.field(factory=dict)
    """The id of the campaign that the command names, by its workspace and name."""
    workspaces: Mapping[str, str] = attrs.field(factory=dict)
    refused: Mapping[str, str] = attrs.field(factory=dict)
    strict: bool = True
    concurrency: int = MAX_IN_FLIGHT
    repeats: Repeats = "serial"
    journal: files.JournalLocation | None = None
    ledger: files.JournalLocation | None = None
    max_age: float | None = None
    changed: Changed = "send"
    blank: Blank | None = None
    stop_after_rejects: int | None = 50
    resume: bool = False
    earlier: Earlier = "known"
    rejects: Path | None = None
    results: Path | None = None
    findings: Path | None = None
    keeps: tuple[str, ...] = ()
    checks: CheckPolicy = attrs.field(factory=CheckPolicy.of)
    save_mapping: Path | None = None
    missing_consent: tuple[str, ...] = ()
    """Columns of `--mapping` that say who must not be written to, and that the file does not have."""
    notes: tuple[str, ...] = ()
    spooled: bool = False
    fingerprint: str | None = attrs.field(init=False)
    kept: KeptColumns = attrs.field(init=False)

    @fingerprint.default
    def _compute_fingerprint(self) -> str | None:
        return None if self.file.path is None else self.file.fingerprint()

    @kept.default
    def _find_kept(self) -> KeptColumns:
        return KeptColumns(self.keeps, self.file.headers)

    @property
    def names_campaign(self) -> bool:
        """True if the option `--campaign` has a name, whose id must be found first."""
        return self.campaign is not None and not self.campaign.startswith(ID_PREFIXES["campaign"])

    @property
    def spools(self) -> bool:
        """True if the journal stores the rows, because the input is a stream that can be read only once."""
        return self.journal is not None and self.file.path is None

    @property
    def stores_rows(self) -> bool:
        """True if the journal stores all rows before the first one is sent, so that they are not read from the file again."""
        return self.spools or (self.journal is not None and self.repeats in WHOLE_INPUT)

    @property
    def unit(self) -> RowUnit:
        return "record" if self.spools else "line"

    def create_journal(self, mapping: Mapping[str, str] | None = None) -> Journal | ObjectJournal | None:
        """Create the journal of the import, if it has one. Standard input is identified by its rows."""
        from outreach_async.store.journal import journal_at

        if self.journal is None:
            return None
        source = self.file.name if self.file.path is None else str(self.file.path.resolve())
        mapping = number_codes(self.overrides if mapping is None else mapping)
        return journal_at(self.journal, source=source, fingerprint=self.fingerprint, mapping=mapping)

    def find_journal(self) -> Journal | ObjectJournal | None:
        """Return the journal; `None` if the import has none, or if it was removed, renamed or unmounted."""
        journal = self.create_journal()
        return journal if journal is not None and journal.exists() else None

    def find_content_change(self) -> InputChanged | None:
        """Return an error if the bytes of the input file are not those that were opened."""
        if self.fingerprint is None:
            return None
        try:
            require_content(self.file, self.fingerprint)
        except InvalidRequest as error:  # also if the file can no longer be read
            return InputChanged(str(error).partition("; ")[0])
        return None

    def read_earlier_report(self) -> JournalReport | None:
        """Return the report of the run to resume, unless there is none, or it is damaged and `earlier` is `unknown`."""
        journal = self.find_journal() if self.resume else None
        try:
            return None if journal is None else journal.report()
        except (InvalidRequest, JournalError):
            if self.earlier == "known":
                raise
            return None

    def is_settled(self, report: JournalReport) -> bool:
        """Return whether the results of an earlier run can be printed again without reading the input."""
        if report.state != "finished" or self.save_mapping or self.findings or self.earlier == "unknown":
            return False
        return self.spooled or (report.fingerprint is not None and self.file.path is not None)

    def guard(self, columns: Columns, targets: Targets, people: ExcludedPeople) -> Iterable[Row]:
        """Return the rows of the file as the check has judged them, with the ids of their campaigns."""
        rows = with_ids(read_rows(self.file, columns, self.checks, people), columns, targets)
        return map(Row.clear_blanks, rows) if self.blank == "clear" else rows
