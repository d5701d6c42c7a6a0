"""Escaped strings: no spreadsheet evaluates them, and they can be restored."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outreach_async._plumbing import escape_formula, open_table, unescape_formula

SIGNS = "=+-@\t\n\uff1d\uff0b\uff0d\uff20"
DELIMITERS = ",;|\t\n"
TEXTS = st.one_of(
    st.text(max_size=20),
    st.text(f"'\"{SIGNS}{DELIMITERS}ab", max_size=8),
    st.text("\\x0u1b789f\x1b\x00\r\x7f\x85'=;", max_size=12),
)


@given(TEXTS)
def test_an_escaped_string_can_be_restored(text: str) -> None:
    assert unescape_formula(escape_formula(text)) == text


@given(TEXTS, st.sampled_from(DELIMITERS))
def test_no_part_of_an_escaped_string_is_a_formula_however_it_is_split(text: str, delimiter: str) -> None:
    assert not [part for part in escape_formula(text).split(delimiter) if part.lstrip('"').startswith(tuple(SIGNS))]


@given(st.lists(TEXTS, min_size=1, max_size=4), st.sampled_from(DELIMITERS[:-1]))
def test_a_reader_with_another_delimiter_finds_no_formula(cells: list[str], delimiter: str) -> None:
    page = io.StringIO()
    csv.writer(page).writerow(map(escape_formula, cells))
    read = csv.reader(io.StringIO(page.getvalue(), newline=""), delimiter=delimiter)
    assert not [cell for row in read for cell in row if cell.startswith(tuple(SIGNS))]


@given(TEXTS)
def test_an_escaped_string_has_no_control_characters_but_newlines_and_tabs(text: str) -> None:
    control_characters = [character for character in escape_formula(text) if character < " " or "\x7f" <= character < "\xa0"]
    assert set(control_characters) <= {"\n", "\t"}


@given(st.lists(st.lists(TEXTS | st.text("a\ud800,=", max_size=4), min_size=3, max_size=3), max_size=4))
@example([["\\x1b", "", ""]])
@example([["a", "\x1b", "a"]])
@example([["a", "b;=1", "a"]])
@example([['"=1', "", ""]])
def test_a_table_has_each_cell_as_it_is_escaped_alone(rows: list[list[str]]) -> None:
    page = io.StringIO()
    csv.writer(page).writerows(map(escape_formula, row) for row in [["a", "=b", "c"], *rows])
    with TemporaryDirectory() as folder:
        with open_table(Path(folder, "table.csv"), ["a", "=b", "c"]) as write:
            for row in rows:
                write(dict(zip(["a", "=b", "c"], row, strict=True)))
        assert Path(folder, "table.csv").read_bytes() == page.getvalue().encode(errors="backslashreplace")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        *[
            ("b;=1+1", "b;'=1+1"),
            ("=1|'=1", "'=1|''=1"),
            ('"=1;\'"\uff1d1', "'\"=1;''\"\uff1d1"),
            ("a\x1b[2J", r"a\x1b[2J"),
            ("a\r\nb", "a\\x0d\nb"),
        ],
        *[(r"a\x1b", r"a\\x1b"), ("a\\\x85", r"a\\\x85")],
    ],
)
def test_formulas_get_an_apostrophe_and_control_characters_become_escapes(text: str, shown: str) -> None:
    assert escape_formula(text) == shown


@pytest.mark.parametrize("text", ["", "ann@a.example", "'tis", " =1", "1+1", "a; =1", r"C:\xyz", "a\nb", '"a"'])
def test_other_strings_are_unchanged(text: str) -> None:
    assert (escape_formula(text), unescape_formula(text)) == (text, text)
