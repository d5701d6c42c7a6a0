"""Workbooks: every cell is read as displayed, and changes made by a spreadsheet are reported."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import (
    DATE,
    DURATION,
    MOMENT,
    PERCENT,
    ZIP,
    at,
    boolean,
    error,
    formula,
    number,
    old_workbook,
    opendocument,
    read,
    read_sheet,
    refused,
    sheet_of,
    text,
    workbook,
)
from support.tables import check_rows

from outreach_async.importer import Row, open_file

HEADER = ("email", "City", "Zip")
NAMES = [text(name) for name in HEADER]
ADDRESS = text("a@b.example")
LOST = "is a number in the file, so leading zeros or a plus sign may be lost; format the cell as text"

SHUT = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "Root Entry EncryptionInfo EncryptedPackage".encode("utf-16-le")

# Text that XML can contain, without underscores: calamine reads _x000D_ as a character, as spreadsheets do.
cells = st.text(st.characters(min_codepoint=32, exclude_categories=["Cs", "Cn", "Co", "Cc"], exclude_characters="_"), max_size=12)


def seen(*row: str, code: str = "zip") -> Row:
    """Return a row of these cells, the last one in a column that maps to `code`."""
    content = workbook({"People": sheet_of([[text("email"), text("City"), text("x")], row])})
    return read_sheet(content, {"x": code})[1][0]


@pytest.mark.thorough
@given(table=st.lists(st.tuples(cells, cells, cells), max_size=8))
def test_a_table_of_strings_is_read_back_without_its_blank_rows(table: list[tuple[str, str, str]]) -> None:
    content = workbook({"People": sheet_of([NAMES, *([text(cell) for cell in row] for row in table)])})
    file, rows = read_sheet(content)
    assert file.headers == HEADER
    expected = [(line, row) for line, row in enumerate(table, 2) if any(map(str.strip, row))]
    assert [(row.line, row.cells) for row in rows] == expected


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (number(7), "7"),
        (number(-7.0), "-7"),
        (number("4.1E11"), "410000000000"),
        (number(0.1 + 0.2), "0.3"),
        (number(1.25), "1.25"),
        (number(0.5, PERCENT), "0.5"),
        (number(45000, DATE), "2023-03-15"),
        (number(45000.5, MOMENT), "2023-03-15T12:00:00"),
        (number(0.25, MOMENT), "06:00:00"),
        (number(1.5, DURATION), "36:00:00"),
        (boolean(1), "TRUE"),
        (boolean(0), "FALSE"),
        (formula("Köln"), "Köln"),
        (number(123, ZIP), "00123"),
        (number(123456, ZIP), "123456"),
        (number(1.5, ZIP), "1.5"),
        (text("007"), "007"),
        ("<c/>", ""),
    ],
)
def test_a_cell_is_shown_as_the_spreadsheet_displays_it(cell: str, shown: str) -> None:
    row = seen(ADDRESS, text("x"), cell, code="custom_1")
    assert (row.cells[-1], row.fault) == (shown, None)
    assert cell != number(123, ZIP) or seen(ADDRESS, text("x"), cell).warnings == ()


DIGITS = "is a number in the file, and only its first 15 digits are exact, so it is not sent; restore"
ERROR = "the cell's value is an error such as #N/A, so it is not sent; fix the formula, or clear the cell"
WARNED: list[tuple[str, str, str | None, str, str]] = [
    *((number(80013333), code, "80013333", "number", f"80013333 {LOST}") for code in ("zip", "mobile_phone", "work_phone")),
    (number(41791234567), "custom_1", "41791234567", "number", f"41791234567 {LOST}"),  # as long as a phone number
    (number(4179123456712345678), "custom_1", None, "digits", f"4179123456712345600 {DIGITS}"),
    (number("1e300"), "custom_1", None, "digits", "1000000000000000"),
    *((error(shown), "zip", None, "error", ERROR) for shown in ("#N/A", "#REF!", "#DIV/0!")),
]
"""A cell, the field of its column, what is sent, and the kind and the message of the warning."""


def test_a_cell_that_lost_something_has_a_warning_unless_its_column_is_ignored() -> None:
    def check(cell: str, code: str, sent: str | None, kind: str, message: str) -> None:
        row = seen(ADDRESS, text("x"), cell, code=code)
        (warning,) = row.warnings
        assert (row.get(code), warning.kind, warning.column, warning.code) == (sent, kind, "x", code)
        assert warning.message.startswith(f"{code}: {message}")
        assert seen(ADDRESS, text("x"), cell, code="ignore").warnings == ()

    check_rows(WARNED, check)
    assert seen(ADDRESS, text("x"), number(4179123), code="custom_1").warnings == ()


def test_a_cell_that_shows_an_error_never_clears_its_field() -> None:
    blank, shows_error = (seen(ADDRESS, text("x"), cell).clear_blanks() for cell in (text(""), error("")))
    assert (dict(blank).get("zip", "unset"), "zip" in shows_error) == (None, False)


def test_a_row_with_only_an_error_is_a_row_and_rejected_if_it_is_the_address() -> None:
    _, rows = read_sheet(workbook({"A": sheet_of([NAMES, [], [text(""), error()], [ADDRESS], [error(), text("Ann")]])}))
    assert [(row.line, [warning.kind for warning in row.warnings]) for row in rows] == [(3, ["error"]), (4, []), (5, ["error"])]
    assert str(rows[2].fault).startswith("email: the cell's value is an error such as #N/A")


def test_a_table_may_start_anywhere_and_cells_are_placed_by_reference() -> None:
    rows = [
        f'<row r="4">{at("C4", text("email"))}{at("D4", text("City"))}{at("E4", text("Zip"))}</row>',
        f'<row r="7">{at("C7", ADDRESS)}{at("E7", number(123, ZIP))}</row>',
        f'<row r="9">{at("C9", text("b@b.example"))}{at("D9", error())}{at("AB9", text("x"))}</row>',
    ]
    file, found = read_sheet(workbook({"A": "".join(rows)}))
    assert file.headers == HEADER
    assert [(row.line, row.cells[:3]) for row in found] == [(7, ("a@b.example", "", "00123")), (9, ("b@b.example", "", ""))]
    assert [row.fault and row.fault.partition(";")[0] for row in found] == [None, "expected 3 cells, as in the header, got 26"]


def test_the_first_visible_sheet_is_read_and_the_others_are_named() -> None:
    people = sheet_of([NAMES, [ADDRESS]])
    content = workbook({"Notes": sheet_of([[text("x")]]), "People": people, "Old & new": people}, hidden=["Notes"])
    file, _ = read_sheet(content)
    assert (file.headers, file.notes) == (
        HEADER,
        ("sheet 'People' was read; to read another, pass one of these as --sheet: 'Notes', 'Old & new'",),
    )
    assert read_sheet(content, sheet="Old & new")[0].notes == ()
    assert open_file(io.BytesIO(content), sheet="Notes").headers == ("x",)
    blank = workbook({"Cover": sheet_of([[text(" ")]]), "People": people})
    others = "pass one of these as --sheet: 'People'"
    assert refused(read_sheet, blank).endswith(f"; sheet 'Cover' was read; to read another, {others}")


def test_rows_above_the_given_header_are_skipped() -> None:
    content = workbook({"A": sheet_of([[text("People")], [], NAMES, [ADDRESS]])})
    file = open_file(io.BytesIO(content), header_row=2)
    assert (file.headers, [line for line, _, _ in file.records()]) == (("email", "City", "Zip"), [4])


@pytest.mark.parametrize(
    ("content", "sheet", "message"),
    [
        (workbook({"A": sheet_of([NAMES])}), "B", "no sheet 'B'; pass one of these as --sheet: 'A'"),
        (workbook({"A": sheet_of([NAMES])}, hidden=["A"]), None, "no visible sheet; pass one of these as --sheet: 'A'"),
        (workbook({"A": ""}), None, "no header"),
        (workbook({"A": sheet_of([[text(" ")]])}), None, "no header"),
        (b"PK\3\4 not really", None, "not a readable workbook ("),
        (workbook({"A": sheet_of([NAMES])})[:-40], None, "not a readable workbook ("),
        (b"email\n", None, "not a readable workbook ("),
        (SHUT, None, "protected by a password; save the workbook without a password"),
    ],
)
def test_an_unreadable_workbook_is_refused(content: bytes, sheet: str | None, message: str) -> None:
    assert message in refused(read_sheet, content, sheet=sheet)


def test_a_workbook_without_styles_or_with_absolute_paths_is_read() -> None:
    content = workbook({"A": sheet_of([NAMES, [ADDRESS, error()]])}, leave_out=["xl/styles.xml"], root="/xl/")
    assert [warning.kind for warning in read_sheet(content)[1][0].warnings] == ["error"]


@pytest.mark.parametrize("content", [old_workbook(), opendocument([["email", "zip"], ["ann@a.example", "41791234567"]])])
def test_other_kinds_of_workbooks_are_read_with_a_note_about_errors(content: bytes) -> None:
    file, rows = read_sheet(content)
    assert rows[0].cells == ("ann@a.example", "41791234567")
    assert file.notes[-1].startswith("cells with an error such as #N/A are read as blank in this kind of workbook")


def filtered(hidden: str = 'hidden="1"') -> bytes:
    people = [["a@a.example", "Rome"], ["b@a.example", "Lyon"], ["c@a.example", "Bonn"]]
    rows = [f"<row>{''.join(map(text, ['email', 'City']))}</row>"]
    rows += [f"<row {hidden if at else ''}>{''.join(map(text, row))}</row>" for at, row in enumerate(people)]
    return workbook({"A": "".join(rows) + f"<row {hidden}/>"})


@pytest.mark.parametrize("hidden", ['hidden="1"', 'hidden="true"'])
def test_hidden_rows_are_read_with_a_note_or_left_out_if_requested(hidden: str) -> None:
    file, rows = read_sheet(filtered(hidden))
    assert [row.email for row in rows] == ["a@a.example", "b@a.example", "c@a.example"]
    assert file.notes == (
        "2 of 3 rows are hidden, for example by a filter, and read like the others; to leave out hidden rows, pass --hidden skip",
    )
    file, rows = read_sheet(filtered(hidden), skips_hidden=True)
    assert ([(row.line, row.email) for row in rows], file.notes) == (
        [(2, "a@a.example")],
        ("hidden rows are left out, as specified: 2 of 3",),
    )
    assert read_sheet(filtered('hidden="0"'), skips_hidden=True)[0].notes == ()


def test_the_header_and_the_rows_above_it_may_be_hidden() -> None:
    rows = [f'<row hidden="1">{text(cell)}</row>' for cell in ("Title", "email", "a@a.example")]
    file, found = read_sheet(workbook({"A": "".join(rows)}), header_row=2, skips_hidden=True)
    assert (file.headers, found, file.notes) == (("email",), [], ("hidden rows are left out, as specified: 1 of 1",))
    assert read_sheet(workbook({"A": "".join(rows[1:])}))[0].notes[0].startswith("1 of 1 row is hidden")


@pytest.mark.parametrize("content", [old_workbook(), opendocument([["email"], ["ann@a.example"]])])
def test_hidden_rows_of_other_workbooks_are_not_known_and_cannot_be_left_out(content: bytes) -> None:
    file, _ = read_sheet(content)
    assert "hidden rows like the others; save it as XLSX" in file.notes[-1]
    error = refused(read_sheet, content, skips_hidden=True)
    assert error.startswith("hidden: expected XLSX or XLSM, which state the hidden rows, got the stream; save it as XLSX")


def test_hidden_columns_are_named_with_the_option_that_leaves_one_out() -> None:
    ranges = [(2, 3, 1), (4, 16_384, 1), (1, 1, 0)]
    columns = "".join(f'<col min="{first}" max="{last}" hidden="{is_hidden}"/>' for first, last, is_hidden in ranges)
    before = f"<cols>{columns}</cols>"
    rows = sheet_of([[text("email"), text("Zip"), text("City"), text(" "), text("My note")], [ADDRESS]])
    file, _ = read_sheet(workbook({"A": rows}, before=before), {"My note": "ignore", " ": "ignore"})
    assert file.notes == (
        "hidden columns are read like the others: 'Zip', 'City', 'My note'; to leave one out, pass --map 'My note=ignore'",
    )
    consent = sheet_of([[text("email"), text("Status"), text("Opted out")], [ADDRESS]])
    (note,) = read_sheet(workbook({"A": consent}, before=before), {"Status": "ignore", "Opted out": "ignore"})[0].notes
    assert note == "hidden columns are read like the others: 'Status', 'Opted out'"
    many = sheet_of([[text("email"), *[text(f"custom_{at}") for at in range(8)]]])
    (note,) = read_sheet(workbook({"A": many}, before=before))[0].notes
    assert note.startswith(
        f"hidden columns are read like the others: {', '.join(repr(f'custom_{at}') for at in range(5))}, ...; "
    )


@pytest.mark.parametrize("title", [[text("Our people")], ["<c/>", text("Our people")]], ids=["first", "second"])
def test_a_title_above_the_header_is_named_with_the_row_of_the_header(title: list[str]) -> None:
    content = workbook({"A": sheet_of([title, [], NAMES, [ADDRESS]])})
    what = "expected a header, got 'Our people' above a table of 3 columns"
    assert f"{what}; pass --header-row 3 if that line has" in refused(read_sheet, content)
    assert read_sheet(content, header_row=3)[0].headers == HEADER


ONE = [text("email")]


@pytest.mark.parametrize("rows", [[ONE], [ONE, [ADDRESS]], [ONE, [ADDRESS, text("x")], NAMES, [text("x")]], [ONE, NAMES]])
def test_a_sheet_with_one_column_has_no_title(rows: list[list[str]]) -> None:
    assert read_sheet(workbook({"A": sheet_of(rows)}))[0].headers == ("email",)


def test_each_row_of_merged_cells_gets_their_value() -> None:
    merged = "".join(f'<mergeCell ref="{ref}"/>' for ref in ("A1:C1", "A3:A5", "B3:C3", "C6:C8", "A8:A9", "A10:A12", "Z3:Z4"))
    rows = [
        [text("People")],
        [text(name) for name in ("Company", "email", "zip")],
        [text("Acme"), text("a@a.example"), text("1")],
        ["<c/>", text("b@a.example"), text("2")],
        [],
        [text("Beta"), text("c@a.example"), number(3)],
        ["<c/>", text("d@a.example"), text("7")],
        ["<c/>", text("e@a.example"), "<c/>"],
        [],
        [error(), text("f@a.example"), text("4")],
        ["<c/>", text("g@a.example"), text("5")],
    ]
    content = workbook({"A": sheet_of(rows)}, after=f"<mergeCells>{merged}</mergeCells>")
    file, found = read_sheet(content, header_row=2)
    assert [(row.line, *row.cells) for row in found] == [
        (3, "Acme", "a@a.example", "1"),
        (4, "Acme", "b@a.example", "2"),
        (6, "Beta", "c@a.example", "3"),
        (7, "", "d@a.example", "7"),
        (8, "", "e@a.example", "3"),
        (10, "", "f@a.example", "4"),
        (11, "", "g@a.example", "5"),
    ]
    kinds = [[warning.kind for warning in row.warnings] for row in found]
    assert kinds == [[], [], ["number"], [], ["number"], ["error"], ["error"]]
    assert file.notes == ("each row of merged cells gets their value; 3 merged cells",)


def test_corrected_rejects_saved_as_a_workbook_can_be_imported(tmp_path: Path) -> None:
    names = ["email", "City", "_row", "_code", "_field", "_message", "_text"]
    row = [ADDRESS, text("'=x"), number(7), text("rejected"), error(), text("bad"), text("")]
    (path := tmp_path / "rejects.xlsx").write_bytes(workbook({"rejects": sheet_of([[text(name) for name in names], row])}))
    file, rows = read(str(path))
    assert (file.rejects, rows[0].cells, rows[0].fault) == (True, ("a@b.example", "=x"), None)


def test_without_the_extra_the_error_says_what_to_install() -> None:
    code = "import io, sys; sys.modules['python_calamine'] = None; from outreach_async.importer import open_file; "
    code += "open_file(io.BytesIO(b''), format='xlsx')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "python_calamine is not installed; run: pip install 'outreach_async[xlsx]'" in done.stderr
