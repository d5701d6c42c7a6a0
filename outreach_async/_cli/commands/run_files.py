"""The files that an import writes while it runs: each is complete or absent, or beside its path for an unfinished run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias, cast

import attrs

from outreach_async._cli import files
from outreach_async._cli.commands.results import FINDING_COLUMNS, completed, open_outcomes, open_table
from outreach_async._cli.output import Screen
from outreach_async._plumbing import mask_keys, partial_path
from outreach_async.bulk import ContactOutcome
from outreach_async.importer import Columns, File, RejectsFile, Row, is_reject, reject
from outreach_async.importer._preflight import NoteFinding
from outreach_async.importer._rejects import FindNumber, KeptColumns
from outreach_async.importer._rows import RowFinding, RowNumber

WriteOutcome: TypeAlias = Callable[[ContactOutcome], object]


@attrs.define
class RunState:
    """Whether every row of a run has its outcome, as far as it is known."""

    is_finished: bool = False


def settle_partial_files(screen: Screen, paths: Mapping[str, Path | None], *, is_finished: bool) -> None:
    """Name the files of an unfinished run, which are written beside those of a finished one. A finished run removes them."""
    for flag, path in paths.items():
        if path is None or (beside := partial_path(path)) is None:
            continue
        if is_finished:
            beside.unlink(missing_ok=True)
        else:
            kept = f", and left {path} as it was" if path.exists() else ""
            screen.warn(f"{flag} is not complete: it wrote {beside}{kept}")


@contextmanager
def settled(screen: Screen, paths: Mapping[str, Path | None]) -> Iterator[RunState]:
    """Yield the state of what files are written for, and name those of a state that is unfinished when the block ends."""
    state = RunState()
    try:
        yield state
    finally:
        settle_partial_files(screen, paths, is_finished=state.is_finished)


@contextmanager
def open_run_results(path: Path | None, file: File, state: RunState, kept: KeptColumns) -> Iterator[WriteOutcome]:
    """Yield a function that writes an outcome to the results file."""
    if path is None:
        yield lambda _outcome: None
        return
    with (
        files.explain_write_errors("--results", path),
        open_outcomes(path, file, lambda: state.is_finished, kept) as write,
    ):

        def write_result(outcome: ContactOutcome) -> None:
            with files.explain_write_errors("--results", path):
                write(outcome)

        yield write_result


@contextmanager
def open_findings(path: Path | None, file: File, columns: Columns, state: RunState) -> Iterator[NoteFinding | None]:
    """Yield a function that writes a finding to its file, which appears even if the block raises; `None` without a file."""
    if path is None:
        yield None
        return
    place = {"file": str(file.path)} if file.path else {}

    def note(number: RowNumber, finding: RowFinding, cells: Sequence[str]) -> None:
        column, value = find_cell(columns, finding.code, cells)
        found = {number.unit: number.value, "check": finding.check, "level": finding.level, "field": finding.code}
        texts = {"column": column, "value": mask_keys(value), "message": mask_keys(finding.message)}
        with files.explain_write_errors("--findings", path):
            write({**place, **found, **texts})

    opened = completed(open_table(path, FINDING_COLUMNS, lambda: state.is_finished))
    with files.explain_write_errors("--findings", path), opened as write:
        yield note


def find_cell(columns: Columns, code: str, cells: Sequence[str]) -> tuple[str, str]:
    """Return the name and the cell of the column that a value of a field comes from; blank ones if it has none."""
    places = columns.sources.get(code) or [at for at, kind in columns.consent if kind == code]
    found = [at for at in places if at < len(cells) and cells[at].strip()] or [*places]
    return (columns.headers[found[0]].strip(), cells[found[0]] if found[0] < len(cells) else "") if found else ("", "")


@contextmanager
def open_rejects(
    path: Path | None,
    file: File,
    state: RunState,
    find_number: FindNumber = lambda _index: None,
    complete: Callable[[RejectsFile], None] = lambda _rejects: None,
) -> Iterator[WriteOutcome]:
    """Yield a function that writes failed rows to the rejects file. The file appears even if the block raises."""
    if path is None:
        yield lambda _outcome: None
        return
    rejects = RejectsFile(path, file.headers)

    def write_reject(outcome: ContactOutcome) -> None:
        row = cast("Row", outcome.contact)
        if is_reject(outcome):
            with files.explain_write_errors("--rejects", path):
                rejects.add(reject(row.line, row.cells, outcome, find_number, row.text))

    with files.explain_write_errors("--rejects", path):
        rejects.__enter__()
    try:
        complete(rejects)
        yield write_reject
    finally:
        with files.explain_write_errors("--rejects", path), ExitStack() as stack:  # an error of the block is none of this file
            stack.push(rejects)
            rejects.is_finished = state.is_finished
            complete(rejects)
