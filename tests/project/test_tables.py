"""A test of a table reports every row that fails."""

from __future__ import annotations

import pytest
from support.tables import check_rows, check_rows_async

ROWS = [(dividend, divisor) for dividend in range(20) for divisor in (2, 0)]
NO_ROWS: list[tuple[int, int]] = []


def has_no_remainder(dividend: int, divisor: int) -> None:
    if dividend == 6 and divisor:
        with pytest.raises(ZeroDivisionError):
            assert dividend % divisor == 0
    assert dividend % divisor == 0


async def has_no_remainder_async(dividend: int, divisor: int) -> None:
    has_no_remainder(dividend, divisor)


def assert_every_failure_is_reported(group: ExceptionGroup[Exception]) -> None:
    failed = [row for row in ROWS if row[1] == 0 or row[0] % 2 or row == (6, 2)]
    expected = [f"row {number}: {row!r}" for number, row in enumerate(ROWS, 1) if row in failed]
    assert group.message.splitlines() == [f"{len(failed)} of 40 rows failed", *expected]
    assert [error.__notes__ for error in group.exceptions] == [[line] for line in expected]
    assert {type(error) for error in group.exceptions} == {AssertionError, ZeroDivisionError}
    assert all(error.__traceback__ for error in group.exceptions)


def test_every_failing_row_of_a_table_is_reported() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        check_rows(ROWS, has_no_remainder)
    assert_every_failure_is_reported(caught.value)


async def test_every_failing_row_of_an_async_table_is_reported() -> None:
    with pytest.raises(ExceptionGroup) as caught:
        await check_rows_async(ROWS, has_no_remainder_async)
    assert_every_failure_is_reported(caught.value)


async def test_a_table_without_rows_fails() -> None:
    with pytest.raises(AssertionError, match="the table has no rows"):
        check_rows(NO_ROWS, has_no_remainder)
    with pytest.raises(AssertionError, match="the table has no rows"):
        await check_rows_async(NO_ROWS, has_no_remainder_async)


async def test_a_table_whose_rows_are_as_they_should_be_passes() -> None:
    check_rows([(4, 2), (9, 3)], has_no_remainder)
    await check_rows_async([(4, 2), (9, 3)], has_no_remainder_async)
