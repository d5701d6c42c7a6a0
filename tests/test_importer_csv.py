"""CSV files as people save them."""

from __future__ import annotations

import csv
import io
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.checks import contact_of
from outreach_async.errors import InvalidRequest
from outreach_async.importer import CsvFile, Row, map_columns

cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
tables = st.lists(st.tuples(cells, cells, cells), max_size=8)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("csv")


def saved(folder: Path, content: str | bytes) -> Path:
    path = folder / "people.csv"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path: Path) -> list[Row]:
    file = CsvFile.open(path)
    rows = list(file.rows(map_columns(file.headers)))
    assert file.count() == len(rows)
    return rows


@given(
    table=tables,
    delimiter=st.sampled_from(",;\t"),
    ending=st.sampled_from(["\n", "\r\n"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig"]),
)
def test_every_record_becomes_one_row_with_its_cells_and_its_line(
    folder: Path, table: list[tuple[str, str, str]], delimiter: str, ending: str, encoding: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator=ending, quoting=csv.QUOTE_ALL)
    writer.writerow(["E-mail", "first_name", "City"])
    lines = []
    for record in table:
        lines.append(len(io.StringIO(text.getvalue(), newline="").readlines()) + 1)
        writer.writerow(record)
    path = saved(folder, text.getvalue().encode(encoding))
    assert CsvFile.open(path).headers == ("E-mail", "first_name", "City")
    rows = read(path)
    assert [row.cells for row in rows] == table
    assert [row.line for row in rows] == lines
    assert [dict(row).get("city", "") for row in rows] == [city if city.strip() else "" for _, _, city in table]


def test_the_delimiter_is_the_one_that_parts_the_header_into_most_names(tmp_path: Path) -> None:
    file = CsvFile.open(saved(tmp_path, 'email;"last_name, first_name";title\na@b.example;x,y;z\n'))
    assert (file.delimiter, file.headers) == (";", ("email", "last_name, first_name", "title"))
    assert CsvFile.open(saved(tmp_path, "email\na@b.example\n")).delimiter == ","


def test_a_row_too_long_or_too_short_is_a_row_with_its_reason(tmp_path: Path) -> None:
    rows = read(saved(tmp_path, "email,title\na@b.example\nb@b.example,x,y\nc@b.example,z\n"))
    assert [row.line for row in rows] == [2, 3, 4]
    assert [row.fault and row.fault.partition(";")[0] for row in rows] == [
        "the row has 1 cells, the header 2",
        "the row has 3 cells, the header 2",
        None,
    ]
    with pytest.raises(InvalidRequest, match="the row has 1 cells"):
        contact_of(rows[0])


def test_lines_without_a_character_are_no_rows_but_lines_of_empty_cells_are(tmp_path: Path) -> None:
    rows = read(saved(tmp_path, "\nemail,title\n\na@b.example,x\n,\n\n"))
    assert [(row.line, row.cells) for row in rows] == [(4, ("a@b.example", "x")), (5, ("", ""))]
    assert [str(row.refusal() or "") for row in rows] == [
        "",
        "email: expected an address, got a blank text; give the contact an e-mail address",
    ]


def test_a_stray_quote_costs_its_own_lines_only(tmp_path: Path) -> None:
    rows = read(saved(tmp_path, 'email,title\n"a"@b.example,x\nb@b.example,"two\nlines"!\nc@b.example,z\n'))
    assert [(row.line, row.cells) for row in rows] == [(2, ()), (3, ()), (5, ("c@b.example", "z"))]
    assert rows[0].fault is not None
    assert rows[0].fault.startswith("the line is no CSV: ")
    assert rows[1].fault is not None
    assert rows[1].fault.startswith("lines 3 to 4 are no CSV: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no header"),
        ("\n\n", "no header"),
        ('"a"b,c\n', "no header"),
        (b"email,city\na@b.example,K\xf6ln\n", "not UTF-8 text (byte 0xf6); save it as CSV in UTF-8"),
        ("email\n".encode("utf-16"), "not UTF-8 text (byte 0xff)"),
        ('email,title\na@b.example,x\nb@b.example,"y\nc@b.example,z\n', "the quote that line 3 opens is never closed"),
    ],
)
def test_a_file_that_cannot_be_read_is_refused_before_its_first_row(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        CsvFile.open(path := saved(tmp_path, content)).count()
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="No such file"):
        CsvFile.open(tmp_path / "none.csv")
    with pytest.raises(InvalidRequest, match="not a regular file"):
        CsvFile.open(tmp_path)


def test_a_long_file_is_read_no_further_than_asked(tmp_path: Path) -> None:
    path = saved(tmp_path, "email\n" + "a@b.example\n" * 200_000 + '"never closed')
    file = CsvFile.open(str(path))
    assert [row.line for row in islice(file.rows(map_columns(file.headers)), 3)] == [2, 3, 4]
