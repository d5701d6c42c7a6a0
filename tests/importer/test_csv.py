"""CSV files as people save them."""

from __future__ import annotations

import csv
import gzip
import io
import tracemalloc
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import csv_text, pack, read, refused

from outreach_async._plumbing import checked_contact, read_value
from outreach_async.errors import InvalidRequest
from outreach_async.importer import Row, map_columns, open_file

open_csv = partial(open_file, format="csv")
HEADER = ("E-mail", "first_name", "City")
SHORT_REMEDY = "quote a cell that contains a line break, or pass --short-rows pad if blank cells are missing at the end"
cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=12)
tables = st.lists(st.tuples(cells, cells, cells), max_size=8)


def rows_of(content: str | bytes) -> list[Row]:
    return read(content if isinstance(content, bytes) else content.encode(), format="csv")[1]


@given(
    table=tables,
    delimiter=st.sampled_from(",;\t|"),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL, csv.QUOTE_NONNUMERIC]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]),
    gzipped=st.booleans(),
)
def test_every_record_that_is_not_blank_becomes_one_row_with_its_line(
    *, table: list[tuple[str, str, str]], delimiter: str, ending: str, quoting: Literal[0, 1, 2], encoding: str, gzipped: bool
) -> None:
    if quoting == csv.QUOTE_MINIMAL:  # csv.writer leaves a bare CR or LF unquoted if it is not the ending
        ending = "\r\n"
    text, lines = csv_text([HEADER], delimiter=delimiter, ending=ending, quoting=quoting), []
    for record in table:
        lines.append(len(io.StringIO(text, newline="").readlines()) + 1)
        text += csv_text([record], delimiter=delimiter, ending=ending, quoting=quoting)
    file, rows = read(pack(text.encode(encoding), gzipped=gzipped), format="csv")
    expected = [(line, row) for line, row in zip(lines, table, strict=True) if any(map(str.strip, row))]
    assert file.headers == HEADER
    assert [(row.line, row.cells) for row in rows] == expected
    for row, (_, record) in zip(rows, expected, strict=True):
        assert row.fault or dict(row).get("city", "") == read_value("city", record[2])[0]


@pytest.mark.parametrize(
    ("content", "delimiter", "headers"),
    [
        ('email;"last_name, first_name";title\na@b.example;x,y;z\n', ";", ("email", "last_name, first_name", "title")),
        ("email\na@b.example\n", ",", ("email",)),
        ("email|title\na@b.example|x\n", "|", ("email", "title")),
        ("Name, in full, please;email\nA, B, C;x\nA;x\nB, C;x\n", ";", ("Name, in full, please", "email")),
        ("email\tNote, if any\na\tx\nb\tx, y, z\n", "\t", ("email", "Note, if any")),
        ("sep=^\nemail^x\n", "^", ("email", "x")),
        ("sep=|\r\nemail,title|city\r\n", "|", ("email,title", "city")),
        ('\ufeff"sep=;"\nemail;x\n', ";", ("email", "x")),
        (",,\n , ,\nemail,title,\n", ",", ("email", "title")),
        ("SEP=\t\nemail\tcity\n", "\t", ("email", "city")),
        ('email,title\n"a\nb;c', ",", ("email", "title")),
        ('email;Note, if any\na;x, y\nb;"begun\n', ";", ("email", "Note, if any")),
    ],
)
def test_the_delimiter_is_the_one_that_fits_the_header_and_most_rows(
    tmp_path: Path, content: str, delimiter: str, headers: tuple[str, ...]
) -> None:
    (path := tmp_path / "people.csv").write_text(content, encoding="utf-8", newline="")
    file = open_csv(path)
    assert file.headers == headers
    names = {",": [], ";": ["by semicolons"], "\t": ["by tabs"], "|": ["by |"]}
    stated = [f"by {delimiter!r}, as stated in the first line"]
    expected = stated if "sep=" in content.lower() else names[delimiter]
    assert file.notes == tuple(f"columns are separated {note}" for note in expected)


def test_the_line_that_states_the_delimiter_counts() -> None:
    rows = rows_of('sep=;\nemail;city\na@b.example;x\n"b"!;y\nc@b.example;z\n')
    assert [(row.line, bool(row.fault)) for row in rows] == [(3, False), (4, True), (5, False)]


LONG = ",".join(["x" * 131_072] * 8)
NAMES = ",".join(f"custom_{at}" for at in range(8))
FAULTS: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "too few cells": ("email,title\na@b.example\n", [(2, f"expected 2 cells, as in the header, got 1; {SHORT_REMEDY}")]),
    "too many cells": (
        "email,title\nb@b.example,x,y\nc@b.example,z\n",
        [
            (2, "expected 2 cells, as in the header, got 3; name every column, and quote cells that contain the delimiter"),
            (3, ""),
        ],
    ),
    "a longer row than in other formats": (
        f"email,{NAMES}\na@a.example,{LONG}\nb@b.example{',Lyon' * 8}\n",
        [(2, "the line is longer than 1,048,576 characters; check the quotes"), (3, "")],
    ),
    "more cells than a spreadsheet has": (
        "email,City\nann@a.example" + "," * 20_000 + "x\nbo@a.example,Lyon\n",
        [(2, "the line has 20,001 cells; check the quotes"), (3, "")],
    ),
    "stray quotes": (
        'email,title\n"a"@b.example,x\nb@b.example,"two\nlines"!\nc@b.example,z\n',
        [(2, "the line is not CSV: "), (3, "lines 3 to 4 are not CSV: "), (5, "")],
    ),
    "a long cell": (
        f"email,title\na@b.example,{'x' * 200_000}\nb@b.example,y\n",
        [(2, "the line is not CSV: field larger"), (3, "")],
    ),
}
"""Contents, and the line and the fault of each row: it begins so, and is none if that is empty."""


@pytest.mark.parametrize(("content", "expected"), FAULTS.values(), ids=FAULTS)
def test_a_line_that_is_not_a_row_affects_no_other(content: str, expected: list[tuple[int, str]]) -> None:
    rows = rows_of(content)
    assert [(row.line, row.fault is None) for row in rows] == [(line, not fault) for line, fault in expected]
    assert all(str(row.fault or "").startswith(fault) for row, (_, fault) in zip(rows, expected, strict=True))
    for row in rows:
        if row.fault:
            with pytest.raises(InvalidRequest) as caught:
                checked_contact(row)
            assert str(caught.value) == row.fault


def test_empty_columns_at_the_end_are_ignored() -> None:
    file, rows = read(b"email,title,,\na@b.example,x,,\nb@b.example,y\nc@b.example,z,,,\n")
    assert file.headers == ("email", "title")
    assert [row.cells for row in rows] == [("a@b.example", "x"), ("b@b.example", "y"), ("c@b.example", "z")]
    assert not any(row.fault for row in rows)


def test_duplicate_column_names_are_numbered_so_that_each_can_be_mapped() -> None:
    overrides = {"Phone": "work_phone", "Phone (3)": "ignore", "Phone (2)": "home_phone"}
    file, rows = read(b"email,Phone,Phone (2), Phone,,\na@b.example,1234567,7654321,3,,\n", overrides, format="csv")
    assert file.headers == ("email", "Phone", "Phone (2)", "Phone (3)")
    assert file.notes == ("column name 'Phone' occurs more than once; one of the columns is renamed 'Phone (3)'",)
    assert dict(rows[0]) == {"email": "a@b.example", "work_phone": "1234567", "home_phone": "7654321"}
    assert len(rows[0]) == 3
    *notes, last = open_csv(io.BytesIO(b"email" + b",a" * 31)).notes
    assert (len(notes), last) == (10, "... and 20 more columns are renamed in the same way")


def test_a_header_has_at_most_1000_columns_which_blank_cells_may_follow() -> None:
    columns = [f"c{at}" for at in range(1000)]
    assert open_csv(io.BytesIO(",".join([*columns, *[""] * 20_000]).encode())).headers == tuple(columns)
    error = refused(open_csv, io.BytesIO(",".join([*columns, "one more"]).encode()))
    assert "expected at most 1,000 columns, got more; check that the first line has column names" in error


@pytest.mark.covers
def test_millions_of_columns_in_a_small_file_take_little_memory() -> None:
    content = gzip.compress(b"a" + b",a" * 2_000_000, mtime=0)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidRequest, match="at most 1,000 columns"):
            open_csv(io.BytesIO(content))
        assert tracemalloc.get_traced_memory()[1] < 60e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("blank", ["", ",", ",,", " , ", " ", '"",""', "\u00a0,\t"], ids=repr)
def test_blank_lines_are_not_rows(blank: str) -> None:
    rows = rows_of(f"{blank}\nemail,title\n{blank}\na@b.example,x\n{blank}\n,y\n{blank}\n")
    assert [(row.line, row.cells) for row in rows] == [(4, ("a@b.example", "x")), (6, ("", "y"))]


def test_a_quoted_cell_that_is_too_long_rejects_the_file() -> None:
    for content in (
        f'email,title\na@b.example,"{"x" * 200_000}\nb@b.example,y"\n',
        'email,title\na,"x' + "\nb@b.example,y" * 20_000,
    ):
        error = refused(rows_of, content)
        assert "a cell in line 2 is longer than 131,072 characters; check its quotes: one is probably" in error


@pytest.mark.covers
@pytest.mark.thorough
def test_a_line_of_megabytes_is_read_and_an_endless_one_refused(tmp_path: Path) -> None:
    assert len(rows_of("email\n" + "," * 1_100_000 + "x\na@b.example\n")) == 2
    with (path := tmp_path / "endless.csv").open("w") as file:
        file.write("email\na@b.example\n")
        file.write("x" * (1 << 24))
    with pytest.raises(InvalidRequest, match="line 3 is longer than 16,777,216 characters"):
        open_csv(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no header"),
        ("\n\n", "no header"),
        (",,\n", "no header"),
        ('"a"b,c\n', "no header"),
        ('email,title\na@b.example,x\nb@b.example,"y\nc@b.example,z\n', "the quote opened in line 3 is never closed"),
    ],
)
def test_an_unreadable_file_is_refused_before_its_first_row(content: str, message: str) -> None:
    error = refused(rows_of, content)
    assert error.startswith("the stream: ")
    assert message in error


def test_the_rows_before_an_unreadable_part_are_read_first() -> None:
    file = open_csv(io.BytesIO(b'email,title\na@b.example,x\nb@b.example,"y\n'))
    columns = map_columns(file.headers)
    for rows in (file.rows(columns), file.rows(columns, checks=["error"])):
        assert next(rows).line == 2
        with pytest.raises(InvalidRequest, match="is never closed"):
            next(rows)


def test_a_missing_file_or_a_folder_is_refused(tmp_path: Path) -> None:
    assert "No such file" in refused(open_csv, tmp_path / "none.csv")
    assert "expected a file, got a folder" in refused(open_csv, tmp_path)


def test_a_long_file_is_read_only_as_far_as_needed(tmp_path: Path) -> None:
    (path := tmp_path / "people.csv").write_text("email\n" + "a@b.example\n" * 200_000 + '"never closed', encoding="utf-8")
    file = open_csv(str(path))
    assert [row.line for row in islice(file.rows(map_columns(file.headers)), 3)] == [2, 3, 4]


def test_rejects_are_read_back_without_reasons_and_unescaped() -> None:
    content = "email,City,_row,_code,_field,_message,_text\na@b.example,'=x,7,rejected,,bad,,\nb@b.example\n"
    file, rows = read(content.encode())
    assert (file.rejects, file.headers) == (True, ("email", "City"))
    assert [row.cells for row in rows] == [("a@b.example", "=x"), ("b@b.example",)]


@pytest.mark.parametrize(
    ("above", "header_row"), [("Contacts of May\n", 2), ('Contacts; "May\n\n,,\n', 4), ("\n", 1), ("x\n", 2)]
)
def test_lines_above_the_given_header_are_skipped_and_lines_keep_their_numbers(above: str, header_row: int) -> None:
    file = open_file(io.BytesIO(f"{above}E-mail;City\na@b.example;Lyon\n".encode()), format="csv", header_row=header_row)
    assert file.headers == ("E-mail", "City")
    assert list(file.records()) == [(above.count("\n") + 2, ("a@b.example", "Lyon"), None)]
    assert "no header" in refused(open_csv, io.BytesIO(b"email\n"), header_row=9)


def test_a_sample_is_the_first_cell_of_a_column_that_is_not_blank() -> None:
    file = open_csv(io.BytesIO(b"email,City,Zip,Plan\na@b.example, \nb@b.example,Lyon,,\n"))
    assert file.samples() == ("a@b.example", "Lyon", "", "")
    assert open_csv(io.BytesIO(b"email,City\n")).samples() == ("", "")
    assert open_csv(io.BytesIO(b"email,City\n" + b"a,\n" * 100 + b"a,Lyon\n")).samples() == ("a", "")
