"""The values of the options that a command passes on to what it works with, as click reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypedDict


class FileSettings(TypedDict):
    """How a file is read, which fields its columns are, what is checked, and where results go."""

    form: Literal["csv", "jsonl", "parquet", "xlsx"] | None
    encoding: str | None
    sheet: str | None
    header_row: int | None
    delimiter: str | None
    short_rows: Literal["reject", "pad"] | None
    hidden: Literal["send", "skip"] | None
    maps: tuple[str, ...]
    mapping: Path | None
    blank: Literal["keep", "clear"] | None
    ignore_unknown: bool
    checks: tuple[str, ...]
    rejects: Path | None
    results: Path | None
    keeps: tuple[str, ...]
    force: bool


class ReportSettings(FileSettings):
    """The options of `report`."""

    uncertain: bool
    source: Path | None
    campaign: str | None
    workspace: str | None


class ImportSettings(FileSettings):
    """The options of `import`."""

    duplicates: Literal["skip", "overwrite", "update_missing_fields"]
    campaign: str | None
    strict: bool
    concurrency: int
    repeats: Literal["serial", "error", "first", "last", "coalesce"]
    journal: Path | str | None
    ledger: Path | str | None
    max_age: float | None
    exclude: tuple[Path, ...]
    changed: Literal["send", "ignore"]
    hold: float | None
    held_by: tuple[str, ...]
    hold_domains: bool
    stop_after_rejects: int | None
    resume: bool
    earlier: Literal["known", "unknown"]
    dry_run: bool
    findings: Path | None
    save_mapping: Path | None
    dask: str | None
    processes: int | None
    gate: bool | str | None
    bounced: tuple[Path, ...]
    max_risk: float | None


class AuditSettings(TypedDict):
    """The options that `audit` and `brief` share."""

    history: Path | None
    ledgers: tuple[Path | str, ...]
    no_append: bool
    since: Callable[[float], float] | None
    fail_on: Literal["critical", "error", "warning", "info"]
    policy: Path | None
    deadline: float | None
    outputs: tuple[Path, ...]
    form: str | None
    force: bool


class PlanSettings(TypedDict):
    """The options of `plan`."""

    days: str | None
    add_mailboxes: int
    pauses: tuple[str, ...]
    contacts: tuple[str, ...]
    history: Path | None
    deadline: float | None


class ListSettings(TypedDict):
    """What a list shows, and where it goes."""

    columns: str | None
    form: Literal["table", "csv", "jsonl", "json"] | None
    output: Path | None
    force: bool
