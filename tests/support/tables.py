"""Check all rows of a table in one test. Every row that fails is reported, not only the first."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVarTuple

import attrs
import pytest

Row = TypeVarTuple("Row")


def check_rows(rows: Iterable[tuple[*Row]], check: Callable[[*Row], object]) -> None:
    """Call `check` with the values of each row. A table without rows fails."""
    table = _Table()
    for row in rows:
        with table.checking(row):
            check(*row)
    table.report()


async def check_rows_async(rows: Iterable[tuple[*Row]], check: Callable[[*Row], Awaitable[object]]) -> None:
    """Call the async `check` with the values of each row, one row after the other. A table without rows fails."""
    table = _Table()
    for row in rows:
        with table.checking(row):
            await check(*row)
    table.report()


@attrs.define
class _Table:
    count: int = 0
    failures: list[Exception] = attrs.Factory(list)
    failed: list[str] = attrs.Factory(list)

    @contextmanager
    def checking(self, row: object) -> Iterator[None]:
        self.count += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - it is reported; `pytest.raises` fails with the latter
            failure = error if isinstance(error, Exception) else AssertionError(str(error)).with_traceback(error.__traceback__)
            self.failed.append(f"row {self.count}: {row!r}")
            failure.add_note(self.failed[-1])
            self.failures.append(failure)

    def report(self) -> None:
        assert self.count, "the table has no rows"
        if self.failures:  # the rows are in the message because Python shows only 15 errors of a group
            lines = "\n".join([f"{len(self.failures)} of {self.count} rows failed", *self.failed])
            raise ExceptionGroup(lines, self.failures)
