"""Check the options of the command `import`, and pass the rows of its file to a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from outreach_async._cli import files
from outreach_async._cli.commands.results import NO_RESULTS, is_findings_file, is_results_file
from outreach_async._cli.settings import ImportSettings
from outreach_async._plumbing import WHOLE_INPUT, Rereadable, require_id, trim
from outreach_async.importer import Row
from outreach_async.importer._mapping_file import is_mapping
from outreach_async.importer._rejects import is_rejects_file
from outreach_async.models import ID_PREFIXES


def read_campaign(value: str | None) -> str | None:
    """Return the id or the name in the option `--campaign`, without blanks around it."""
    name = value and trim(value)
    if value is None or (name and not name.startswith(tuple(ID_PREFIXES.values()))):
        return name or None
    return require_id("--campaign", value, "campaign", "pass the id or the name of a campaign, or omit the option")


def require_fitting(settings: ImportSettings) -> None:
    """Check that no option conflicts with another, and that each has those that it needs."""
    journal, ledger, repeats, dry_run = settings["journal"], settings["ledger"], settings["repeats"], settings["dry_run"]
    unknown, ignores, no_ledger = settings["earlier"] == "unknown", settings["changed"] == "ignore", settings["ledger"] is None
    policies = "pass --duplicates overwrite or --duplicates update_missing_fields, or --changed ignore to send only new contacts"
    of_results = "with --dry-run, the only results are those of a ledger; pass --ledger, or omit --results"
    faults = {
        "--max-age: needs a ledger; pass --ledger PATH": no_ledger and settings["max_age"] is not None,
        "--changed: needs a ledger; pass --ledger PATH": no_ledger and ignores,
        NO_RESULTS.removesuffix("."): settings["keeps"] and settings["results"] is None,
        f"--results: {of_results}": no_ledger and dry_run and settings["results"] is not None,
        f"--duplicates skip: with --ledger, the service would ignore each changed row; {policies}": (
            ledger and settings["duplicates"] == "skip" and not ignores
        ),
        "--journal: conflicts with --ledger, which has a journal of its own; omit --journal": ledger and journal,
        "--resume: conflicts with --ledger, which has a journal of its own; omit --resume": ledger and settings["resume"],
        "--earlier unknown: conflicts with --ledger; to send every row again, pass --max-age 0": ledger and unknown,
        "--repeats coalesce: conflicts with --ledger; pass --repeats last, first, serial or error": (
            ledger and repeats == "coalesce"
        ),
        "--earlier unknown: needs --journal; pass the path of the damaged or lost journal": journal is None and unknown,
        "--resume: needs the journal of the run; pass --journal PATH": journal is None and settings["resume"],
        f"--repeats {repeats}: needs a journal to store all rows before sending; pass --journal PATH": (
            journal is None and not ledger and repeats in WHOLE_INPUT and not dry_run
        ),
    }
    for text in (text for text, found in faults.items() if found):
        raise click.UsageError(f"{text}.")


def require_files(file: Path, settings: ImportSettings) -> None:
    """Check that no file is used for two purposes, and that none would be overwritten."""
    files.require_writable(
        files.FileUse.of("FILE", file),
        files.FileUse.of("--mapping", settings["mapping"]),
        files.FileUse.of_journal("--journal", settings["journal"], written=True),
        files.FileUse.of_journal("--ledger", settings["ledger"], written=not settings["dry_run"]),
        files.FileUse.of_run("--rejects", settings["rejects"], is_rejects_file),
        files.FileUse.of_run("--results", settings["results"], is_results_file),
        files.FileUse.of_run("--findings", settings["findings"], is_findings_file),
        files.FileUse.of("--save-mapping", settings["save_mapping"], is_mapping),
        force=settings["force"],
    )


class FileRows(Rereadable, Iterable[Row]):
    """The rows of a file. A run with a ledger reads them twice to compare the rows of each contact together, if there are any."""

    def __init__(self, read: Callable[[], Iterable[Row]], *, may_repeat: bool) -> None:
        self._read = read
        self._may_repeat = may_repeat

    def __iter__(self) -> Iterator[Row]:
        return iter(self._read())

    def read_again(self) -> Iterator[Row]:
        return iter(self._read() if self._may_repeat else ())
