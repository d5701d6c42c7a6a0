"""Parquet files as data programs write them."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet
from support.files import read, refused

from outreach_async.errors import InvalidRequest
from outreach_async.importer import map_columns, open_file

HEADER = ("email", "City", "custom_1")
MOMENT = datetime(2026, 3, 4, 5, 6, 7, 80_000)  # noqa: DTZ001 - the test needs a time without a zone
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12) | st.none()


def saved(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, **options)
    return file.getvalue()


@given(
    table=st.lists(st.tuples(texts, texts, texts), max_size=8),
    kind=st.sampled_from([pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())]),
    group=st.integers(1, 9),
)
@example(table=[("a", None, "b")], kind=pa.dictionary(pa.int32(), pa.string()), group=1)
def test_a_table_of_strings_is_read_back_and_nulls_are_blank(table: list[tuple[str | None, ...]], kind: Any, group: int) -> None:
    columns = {name: pa.array([row[at] for row in table], pa.string()).cast(kind) for at, name in enumerate(HEADER)}
    file, rows = read(saved(pa.table(columns), row_group_size=group))
    assert file.headers == HEADER
    assert [row.cells for row in rows] == [tuple(cell or "" for cell in row) for row in table]
    assert [row.line for row in rows] == list(range(2, len(table) + 2))


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, -2, None], pa.int64(), ["1", "-2", ""]),
        ([2**64 - 1], pa.uint64(), ["18446744073709551615"]),
        ([41791234567.0, 0.1, float("nan"), None], pa.float64(), ["41791234567", "0.1", "", ""]),
        ([0.1], pa.float32(), ["0.1"]),
        ([True, False, None], pa.bool_(), ["TRUE", "FALSE", ""]),
        ([Decimal("1.50")], pa.decimal128(8, 2), ["1.50"]),
        ([None], pa.null(), [""]),
        ([date(2026, 3, 4)], pa.date32(), ["2026-03-04"]),
        ([date(2026, 3, 4)], pa.date64(), ["2026-03-04"]),
        ([time(5, 6, 7)], pa.time64("ns"), ["05:06:07"]),
        ([MOMENT, None], pa.timestamp("ns"), ["2026-03-04T05:06:07.08", ""]),
        ([MOMENT.replace(microsecond=0)], pa.timestamp("us"), ["2026-03-04T05:06:07"]),
        ([MOMENT.replace(tzinfo=UTC)], pa.timestamp("us", "UTC"), ["2026-03-04T05:06:07.08Z"]),
        ([MOMENT.replace(tzinfo=UTC)], pa.timestamp("ms", "Asia/Kolkata"), ["2026-03-04T10:36:07.08+05:30"]),
        (["x", None], pa.string_view(), ["x", ""]),
        ([b"K\xc3\xb6ln", None], pa.large_binary(), ["Köln", ""]),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_a_cell_is_shown_as_a_person_would_write_it(values: list[Any], kind: Any, expected: list[str]) -> None:
    content = saved(pa.table({"email": ["a@b.example"] * len(values), "custom_1": pa.array(values, kind)}))
    assert [row.cells[1] for row in read(content)[1]] == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()], ids=str)
def test_a_number_as_a_phone_is_sent_with_a_warning_and_a_long_float_is_not(kind: Any) -> None:
    content = saved(pa.table({"email": ["a@b.example"] * 2, "work_phone": pa.array([41791234567, None], kind)}))
    _, rows = read(content)
    assert [[warning.kind for warning in row.warnings] for row in rows] == [["number"], []]
    assert rows[0]["work_phone"] == "41791234567"
    long = saved(pa.table({"email": ["a@b.example"], "custom_1": pa.array([4179123456712345], kind)}))
    assert ("custom_1" in read(long)[1][0]) is (kind != pa.float64())


def test_bytes_that_are_not_text_are_not_sent() -> None:
    _, rows = read(saved(pa.table({"email": ["a@b.example"] * 3, "City": pa.array([b"x", b"\xff", None], pa.binary())})))
    assert [row.get("city") for row in rows] == ["x", None, None]
    (remark,) = rows[1].warnings
    assert remark.message == "city: the cell contains bytes that are not UTF-8, so it is not sent; store it as text"


@pytest.mark.parametrize(
    "column",
    [
        pa.array([["a"]]),
        pa.array([{"a": 1}]),
        pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
        pa.array([1], pa.duration("s")),
    ],
    ids=lambda column: str(column.type),
)
def test_a_nested_column_is_refused_by_name_unless_ignored(column: Any) -> None:
    content = saved(pa.table({"email": ["a@b.example"], "City": column}))
    file = open_file(io.BytesIO(content))
    error = refused(file.rows, map_columns(file.headers))
    assert "expected simple values in column 'City', got " in error
    assert "; export it as text, or leave it out with --map City=ignore" in error
    error = refused(file.rows, map_columns(file.headers, {"City": "opt_out"}))
    assert error.endswith("; export it as text")
    assert [row.cells for row in read(content, {"City": "ignore"})[1]] == [("a@b.example", "")]


@pytest.mark.parametrize(
    ("names", "at"),
    [(["email", "City"], 0), (["a.b", "email"], 0), (["email", "email"], 1), ([" email ", "City"], 0), (["a.b", "a"], 1)],
    ids=["one", "dotted", "twice", "blanks", "prefix"],
)
def test_a_column_has_the_cells_of_its_rows(names: list[str], at: int) -> None:
    columns = [pa.array(["1", None, "3"]), pa.array(["4", "5", "6"])]
    file = open_file(io.BytesIO(saved(pa.Table.from_arrays(columns, names=names))))
    assert list(file.column(at)) == [cells[at] for _, cells, _ in file.records()]
    names = ["email", "_row", "_code", "_field", "_message"]  # of a rejects file, whose cells are unescaped
    table = pa.Table.from_arrays([pa.array(["'=a@x.example"]), *[pa.array(["x"])] * 4], names=names)
    assert list(open_file(io.BytesIO(saved(table))).column(0)) == ["=a@x.example"]


@pytest.mark.parametrize("size", [1, 3, 10])
def test_the_row_groups_together_have_all_rows(size: int) -> None:
    table = pa.table({"email": [f"p{at}@a.example" for at in range(7)], "City": ["x"] * 7})
    file = open_file(io.BytesIO(saved(table, row_group_size=size)))
    groups = file.split()
    assert [record for group in groups for record in group.records()] == list(file.records())
    assert [cell for group in groups for cell in group.column(0)] == list(file.column(0))
    assert [group.count() for group in groups] == [min(size, 7 - first) for first in range(0, 7, size)]


@pytest.mark.parametrize("content", [b"PAR1", b"PAR1 and nothing of the kind PAR1", saved(pa.table({"email": ["x"]}))[:-9]])
def test_an_unreadable_file_is_refused(content: bytes) -> None:
    assert refused(open_file, io.BytesIO(content)).startswith("the stream: not a readable Parquet file (")


def test_a_column_that_cannot_become_text_is_refused_with_its_type() -> None:
    content = saved(pa.table({"when": pa.array([1], pa.timestamp("us", tz="Europe/Nowhere"))}))
    with pytest.raises(
        InvalidRequest, match=r"^file: expected columns .* got timestamp\[us, tz=Europe/Nowhere\]; store the column"
    ):
        [*open_file(io.BytesIO(content)).records()]


def test_a_nested_column_is_not_read() -> None:
    nested = {"a.b": pa.array([["x"], ["y"]]), "c": pa.array([["x"], ["y"]])}
    content = saved(pa.table({"a": ["1", "2"], "email": ["ann@a.example", "bo@a.example"], **nested}))
    damaged = bytearray(content)
    metadata = parquet.read_metadata(io.BytesIO(content)).row_group(0).column(3)
    damaged[metadata.data_page_offset : metadata.data_page_offset + 40] = bytes(40)
    rows = read(bytes(damaged), {"a": "ignore", "a.b": "ignore", "c": "ignore"})[1]
    assert [row.cells for row in rows] == [("1", "ann@a.example", "", ""), ("2", "bo@a.example", "", "")]


CELL = "x" * 131_072


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary(), pa.dictionary(pa.int32(), pa.string())])
@pytest.mark.parametrize("cell", [CELL, "é" * 131_072])
def test_a_cell_has_the_same_maximum_length_as_in_csv(cell: str, kind: Any) -> None:
    def cells(longest: str) -> list[str]:
        column = pa.array(["a", longest, None]).cast(kind)
        return list(open_file(io.BytesIO(saved(pa.table({"email": column})))).column(0))

    assert cells(cell) == ["a", cell, ""]
    with pytest.raises(InvalidRequest, match="column 'email' has a cell of more than 131,072 characters; shorten the cell"):
        cells(cell + "x")


def test_a_row_with_too_many_characters_is_refused() -> None:
    columns = {"email": ["a@a.example"] * 2, **{f"c{at}": ["", CELL] for at in range(8)}}
    file = open_file(io.BytesIO(saved(pa.table(columns))))
    with pytest.raises(InvalidRequest, match="row 3 is longer than 1,048,576 characters; check that the file is a table"):
        file.count()
    assert open_file(io.BytesIO(saved(pa.table({name: columns[name][1:] for name in list(columns)[:8]})))).count() == 1


LONG_CELLS = [CELL[:100_000] + str(at % 2) for at in range(1000)]


@pytest.mark.covers
@pytest.mark.parametrize(
    "options",
    [{"row_group_size": 400}, {"use_dictionary": False, "column_encoding": {"email": "DELTA_BYTE_ARRAY"}}],
    ids=["dictionary", "deltas"],
)
def test_few_bytes_that_describe_many_long_cells_are_decoded_in_small_batches(options: dict[str, Any]) -> None:
    content = saved(pa.table({"email": LONG_CELLS}), compression="zstd", **options)
    file = open_file(io.BytesIO(content))
    before = pa.total_allocated_bytes()
    for at, cell in enumerate(file.column(0)):
        assert cell == LONG_CELLS[at]
        assert pa.total_allocated_bytes() - before < 40e6


@pytest.mark.covers
@pytest.mark.parametrize("rows", [1, 400])
def test_a_file_that_unpacks_to_hundreds_of_times_its_size_is_refused(rows: int) -> None:
    def opened(size: int) -> int:
        table = pa.table({"email": [CELL] * size})
        return open_file(io.BytesIO(saved(table, use_dictionary=False, compression="zstd", row_group_size=rows))).count()

    assert opened(500) == 500
    with pytest.raises(
        InvalidRequest, match=r"bytes unpack to [0-9,]{10,} bytes and rows; check that the file is a table of people"
    ):
        opened(520)
