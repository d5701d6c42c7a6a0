"""Garbled cells: an error where they would be useless, a warning elsewhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import read

from outreach_async.importer import Row, map_columns
from outreach_async.importer.table import Record, build_row, find_issues

LATIN = st.text(st.characters(min_codepoint=0xC0, max_codepoint=0x17F, categories=["L"]), min_size=1, max_size=8)


def row(cell: str, code: str) -> Row:
    columns = map_columns(["email", "Column"], {"Column": code})
    return build_row(Record(2, ("a@b.example", cell)), columns)


def misread(text: str) -> str:
    """Decode UTF-8 as Windows-1252 and keep its undefined bytes, as some programs do."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())


@given(before=st.text(st.characters(codec="ascii", exclude_characters="\0+"), max_size=5), text=LATIN)
def test_latin_letters_read_in_the_wrong_encoding_cause_a_warning(before: str, text: str) -> None:
    (flaw,) = find_issues(["plain", before + misread(text)])
    assert (flaw.column, flaw.kind, flaw.fatal) == (1, "mojibake", False)
    assert f"is probably {text[0]!r}" in flaw.message


@pytest.mark.parametrize(
    ("meant", "found"),
    [("Иван", "Ð˜Ð²Ð°Ð½"), ("it’s", "â€™"), ("😀", "ðŸ˜€"), ("naïve", "Ã¯")],  # noqa: RUF001 - as displayed
)
def test_other_scripts_punctuation_and_emoji_are_detected_too(meant: str, found: str) -> None:
    remark = row(misread(meant), "city").warnings[0]
    assert (remark.kind, remark.column, remark.code) == ("mojibake", "Column", "city")
    assert remark.message.startswith(f"{found!r} is probably ")


@given(st.text(st.characters(max_codepoint=0xFF, categories=["L", "Nd"], exclude_characters="ªºµ"), max_size=20))
def test_correct_latin_words_cause_no_warning(text: str) -> None:
    assert find_issues([text]) == ()


@pytest.mark.parametrize("text", ["„CAFÉ”", "»É«", "ESPAÑA", "IRMÃO", "Ñ’", "café…”", "Â", "E+", "1E+1", "12E+10", "â€", "ð€€€"])  # noqa: RUF001 - as people write it
def test_what_only_looks_garbled_causes_no_warning(text: str) -> None:
    assert row(text, "city").warnings == ()


@pytest.mark.parametrize("cell", ["4.1E+11", "4,1E+11", " 4E+10 ", "-4.17912E+10"])
def test_a_number_in_scientific_form_is_an_error_in_phones_and_else_a_warning(cell: str) -> None:
    assert str(row(cell, "work_phone").fault).startswith(
        f"work_phone: '{cell.strip()}' is a long number that a spreadsheet shortened, and its digits are lost"
    )
    elsewhere = row(cell, "custom_1")
    assert (elsewhere.fault, [remark.kind for remark in elsewhere.warnings]) == (None, ["scientific"])
    assert dict(elsewhere)["custom_1"] == cell
    assert row(cell, "ignore").warnings == ()


@pytest.mark.parametrize(("cell", "what"), [("a\0b", "a NUL character"), ("x\ud800", "a lone surrogate (half a character)")])
def test_invalid_characters_reject_a_row_unless_their_column_is_ignored(cell: str, what: str) -> None:
    assert str(row(cell, "city").fault).startswith(f"city: the cell contains {what}")
    assert row(cell, "ignore").fault is None


def test_they_are_found_in_every_text_format() -> None:
    _, rows = read(
        "email,mobile_phone,city\na@b.example,4.1E+11,x\nb@b.example,1,KÃ¶ln\nc@b.example,2,a\0b\n".encode(), format="csv"
    )
    assert [bool(row.fault) for row in rows] == [True, False, True]
    assert [[remark.kind for remark in row.warnings] for row in rows] == [[], ["mojibake"], []]
    lines = [json.dumps({"email": "a@b.example", "city": city}) for city in ("\ud83d", "KÃ¶ln")]
    _, rows = read("\n".join(lines).encode())
    assert [bool(row.fault) for row in rows] == [True, False]
    assert rows[1].warnings[0].kind == "mojibake"
