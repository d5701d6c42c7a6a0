"""CSV files as programs write them: other delimiters, other quotes, and lines above the header."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import csv_text, read, refused

from outreach_async.importer import open_file

open_csv = partial(open_file, format="csv")
COLUMNS = ("email", "company_name")
ANN, BO = ("a@a.example", 'Acme "North", Ltd'), ("b@b.example", "Beta")


def cells_of(content: str, **options: Any) -> tuple[tuple[str, ...], list[tuple[str, ...]], tuple[str, ...]]:
    """Return the column names, the cells of each row and the notes of a CSV file."""
    file, rows = read(content.encode(), format="csv", **options)
    assert not [row.fault for row in rows if row.fault]
    return file.headers, [row.cells for row in rows], file.notes


@pytest.mark.parametrize(
    ("content", "note"),
    [
        ('email,company_name\na@a.example,"Acme \\"North\\", Ltd"\n"b@b.example",Beta\n', "backslashes escape quotes"),
        ('email;company_name\na@a.example;"Acme \\"North\\", Ltd"\n\\N;\\N\nb@b.example;Beta\n', "backslashes escape quotes"),
        ('email,company_name\na@a.example,Acme "North"\\, Ltd\nb@b.example,Beta\n', "backslashes escape quotes"),
        ('email, "company_name"\na@a.example, "Acme ""North"", Ltd"\nb@b.example, "Beta"\n', "blanks between quotes"),
        ('"email" , "company_name"\n"a@a.example" , "Acme ""North"", Ltd" \n"b@b.example" ,Beta\n', "blanks between quotes"),
        ('email; company_name\na@a.example;"Acme ""North"", Ltd" \nb@b.example;"Beta"\n', "blanks between quotes"),
        ('"email,company_name"\n"a@a.example,""Acme """"North"""", Ltd"""\n"b@b.example,Beta"\n', "each line is one quoted cell"),
        ('email,company_name\n"a@a.example,""Acme """"North"""", Ltd""";;\nb@b.example,Beta\n', "each line is one quoted cell"),
        ("'email','company_name'\n'a@a.example','Acme \"North\", Ltd'\n'b@b.example','Beta'\n".replace('"', "''"), "apostrophes"),
    ],
)
def test_cells_that_programs_quote_in_another_way_are_read_with_a_note(content: str, note: str) -> None:
    headers, rows, notes = cells_of(content)
    assert (tuple(map(str.strip, headers)), [row for row in rows if any(row)]) == (
        COLUMNS,
        [ANN if note != "apostrophes" else ("a@a.example", "Acme 'North', Ltd"), BO],
    )
    assert note in notes[-1]


@pytest.mark.parametrize(
    "value", ["C:\\dir\\", "'Ann'", ' "Ann"', "\\N", '"', '""', "x\\", 'Say "\\"', "'+44", 'a" , "b', "O'Neil"]
)
def test_a_plain_file_is_not_taken_for_one_with_other_quotes(value: str) -> None:
    content = csv_text([COLUMNS, ("a@a.example", value), BO])
    assert cells_of(content) == (COLUMNS, [("a@a.example", value), BO], ())


@given(table=st.lists(st.lists(st.text("\"'\\, ;\nx", max_size=5), min_size=2, max_size=2), min_size=1, max_size=4))
def test_a_file_that_python_writes_is_read_without_a_note(table: list[list[str]]) -> None:
    rows = [("a@a.example", *cells) for cells in table]
    file = open_csv(io.BytesIO(csv_text([("email", "city", "title"), *rows]).encode()))
    assert (file.notes, [cells for _, cells, _ in file.records()]) == ((), rows)


GIVEN = {";": ";", "Semicolon": ";", "tab": "\t", "\\t": "\t", "pipe": "|", "space": " ", "\\x1f": "\x1f", "colon": ":"}


@pytest.mark.parametrize(("given", "character"), GIVEN.items())
def test_the_delimiter_can_be_given_by_name_or_as_itself(given: str, character: str) -> None:
    content = character.join(COLUMNS) + "\n" + character.join(("a@a.example", '"Acme, Inc."')) + "\n"
    assert cells_of(content, delimiter=given) == (COLUMNS, [("a@a.example", "Acme, Inc.")], ())


@pytest.mark.parametrize("given", ["", "::", "x", "7", '"', "\n", "_", "\\x41", "comma "])
def test_a_delimiter_that_is_text_or_a_quote_is_refused(given: str) -> None:
    error = refused(open_csv, io.BytesIO(b"email\n"), delimiter=given)
    assert error.startswith("delimiter: expected one character that is not a letter, a digit or a quote, or comma, ")
    assert error.endswith(f"got {given!r}; pass, for example, --delimiter tab")


def test_a_delimiter_that_separates_no_columns_is_refused_if_another_does() -> None:
    error = refused(open_csv, io.BytesIO(b"email,city\na@a.example,Lyon\n"), delimiter=";")
    assert error == "delimiter: expected the delimiter of the stream, got ';', which separates no columns; omit --delimiter"
    assert open_csv(io.BytesIO(b"email\na@a.example\n"), delimiter=";").headers == ("email",)


@pytest.mark.parametrize("delimiter", [":", "^", "~", "，", "\x01", "\x1f"])  # noqa: RUF001 - as Chinese programs write it
def test_an_unusual_delimiter_is_named_with_the_option_that_reads_it(delimiter: str) -> None:
    content = f"email{delimiter}city\na@a.example{delimiter}Lyon\n"
    error = refused(open_csv, io.BytesIO(content.encode()))
    assert "expected columns separated by commas, semicolons, tabs or |, got one column, " in error
    option = error.rpartition("--delimiter ")[2].strip("'")
    assert cells_of(content, delimiter=option) == (("email", "city"), [("a@a.example", "Lyon")], ())


@pytest.mark.parametrize(
    ("title", "line"),
    [("Contacts\n", 2), ("Exported 2026\n\n", 3), ("# of our CRM\n# all\n", 3), ("Report;May\n", 2), ("\nContacts\n", 3)],
)
def test_a_title_above_the_header_is_named_with_the_option_that_skips_it(title: str, line: int) -> None:
    content = f"{title}email;city;title\na@a.example;Lyon;x\nb@b.example;Rome;\n"
    error = refused(open_csv, io.BytesIO(content.encode()))
    assert f"above a table of 3 columns; pass --header-row {line} if that line has the column names, otherwise" in error
    assert open_csv(io.BytesIO(content.encode()), header_row=line).headers == ("email", "city", "title")
    assert len(open_csv(io.BytesIO(content.encode()), header_row=1).headers) < 3


@pytest.mark.parametrize(
    "content",
    [
        "email\n",
        "email\na@a.example\nb@b.example, Bo\n",
        "Note: email\n",
        "Note: all\nx: y\nz\n",
        "email\na@a.example,x\nb@b.example,y\n",
        'email\n"a"b\n',
    ],
)
def test_a_column_without_a_table_below_it_is_read(content: str) -> None:
    assert len(open_csv(io.BytesIO(content.encode())).headers) == 1


def test_a_stated_delimiter_that_the_file_does_not_use_is_not_believed() -> None:
    assert cells_of("sep=,\nemail;city\na@a.example;Lyon\n") == (
        ("email", "city"),
        [("a@a.example", "Lyon")],
        ("columns are separated by semicolons",),
    )
    assert cells_of("sep=\\t\nemail\tcity\na@a.example\tLyon\n")[2] == (
        "columns are separated by '\\t', as stated in the first line",
    )


def test_short_rows_are_padded_if_requested_and_clear_no_field() -> None:
    content = 'email,city,zip\na@a.example\nb@b.example,\nc@c.example,,\nd@d.example,Lyon,1\n"d"d,x\n'
    rows = read(content.encode(), format="csv", short_rows="pad")[1]
    padded = [("a@a.example", "", ""), ("b@b.example", "", ""), ("c@c.example", "", ""), ("d@d.example", "Lyon", "1"), ()]
    assert [row.cells for row in rows] == padded
    assert [bool(row.fault) for row in rows] == [False] * 4 + [True]
    assert [row.blanks for row in rows] == [(), ("city",), ("city", "zip"), (), ()]
    assert dict(rows[1].clear_blanks()) == {"email": "b@b.example", "city": None}


def test_a_line_that_is_not_csv_is_told_with_the_remedy_for_its_quotes() -> None:
    _, rows = read(b'email,city\na@a.example,"x \\"y\\""\nb@b.example,"C:\\"\nc@c.example,"x" y\n')
    assert str(rows[0].fault).endswith('; write each quote within a cell as ""')
    assert rows[1].fault is None
    assert str(rows[2].fault).endswith("; check the quotes and the length of each cell")
