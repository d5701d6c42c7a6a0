"""The results of a part: what became of each row. Workers record them beside the part's journal, and `results_of` reads them."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, islice
from typing import Any, Final

import msgspec

from outreach_async._files.objects import create_or_read
from outreach_async.bulk.journal._object_journal import translate_errors
from outreach_async.importer._results import describe_outcome
from outreach_async.spread._folder import PLAN_NAME, journal_of, locate, open_folder, read_part
from outreach_async.spread._planning import Part

_CHUNK_SIZE: Final = 50_000
"""Number of rows of an object, so that the memory of a worker does not depend on the rows of its part."""


def record_results(part: Part, folder: str | os.PathLike[str], chunk: int = _CHUNK_SIZE) -> None:
    """Record the results of a finished part, unless they are recorded."""
    objects, last = open_folder(folder), (part.rows - 1) // chunk
    with translate_errors(os.fspath(folder)):
        with suppress(FileNotFoundError):
            objects.read(_name(part, last))
            return
        # The outcomes of a finished part do not change: if two workers record them, both write the same objects.
        rows = _describe(part, folder)
        for number in range(last + 1):
            lines = b"".join(msgspec.json.encode(row) + b"\n" for row in islice(rows, chunk))
            create_or_read(objects, _name(part, number), gzip.compress(lines, 1, mtime=0), after=PLAN_NAME)


def results_of(part: Part, journal: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    r"""Yield what became of each row of a part, in order; for a part that is not finished, of the rows with an outcome.

    Each result is a dict with the columns of the command's `--results`: `file`, `line`, `email`, `workspace`, `campaign`,
    `status`, `certain`, `possible`, `attempts`, `id`, `error` and `remedy`.

    Args:
        part: The part.
        journal: Folder or URL of the journals, as for `import_part`.

    Raises:
        InvalidRequest: When iterated: a file cannot be read, or has changed since the import was planned.
        JournalError: When iterated: the journal is damaged or cannot be read.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        made = plan(["people.csv"])
        print([row["id"] for part in made.parts for row in results_of(part, "journals")])  # -> []
        ```
    """
    if read_part(journal, part.id, part.fingerprint()) is None or not journal_of(part, journal).exists():
        return
    objects, found = open_folder(journal), 0
    with translate_errors(os.fspath(journal)), suppress(FileNotFoundError):
        numbers = count()
        while True:  # until there is no such object
            for line in gzip.decompress(objects.read(_name(part, next(numbers)))).splitlines():
                yield msgspec.json.decode(line)
                found += 1
    if found < part.rows:
        yield from islice(_describe(part, journal), found, None)


def _describe(part: Part, folder: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    for each in locate(part, journal_of(part, folder).outcomes()):
        place = {"file": each.file.location, "line": each.row.line, "email": each.email}
        yield {**place, **describe_outcome(each.outcome, each.message), "certain": each.outcome.certain}


def _name(part: Part, number: int) -> str:
    return f"{part.id}.results.{number}.jsonl.gz"
