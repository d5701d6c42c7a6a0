"""The files that an import writes while it runs: each is complete or absent, or beside its path for an unfinished run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import attrs

from outreach_async._cli import files
from outreach_async._cli.output import Screen
from outreach_async._plumbing import partial_path
from outreach_async.bulk import ContactOutcome
from outreach_async.importer import FindingsFile, RejectsFile, ResultsFile

WriteOutcome: TypeAlias = Callable[[ContactOutcome], object]
_Output: TypeAlias = FindingsFile | RejectsFile | ResultsFile


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
def open_output(
    flag: str, file: _Output | None, state: RunState, complete: Callable[[Any], object] = lambda _file: None
) -> Iterator[Callable[..., object]]:
    """Yield what adds to a file, or does nothing if there is none. The file appears even if the block raises.

    `complete` may change the file before and after the block.
    """
    if file is None:
        yield lambda *_values: None
        return

    def add(*values: Any) -> None:
        with files.explain_write_errors(flag, file.path):
            file.add(*values)

    with files.explain_write_errors(flag, file.path):
        file.__enter__()
    try:
        complete(file)
        yield add
    finally:
        with files.explain_write_errors(flag, file.path), ExitStack() as stack:  # not an error of the block
            stack.push(file)
            file.is_finished = state.is_finished
            complete(file)
