"""What becomes of a cell, and the warnings of its row; the rules themselves have tests of their own."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import read, read_row
from support.tables import check_rows

from outreach_async._plumbing import read_value
from outreach_async.importer import Row, map_columns

LATIN = st.text(st.characters(min_codepoint=0xC0, max_codepoint=0x17F, categories=["L"]), min_size=1, max_size=8)


def row(cell: str, code: str) -> Row:
    columns = map_columns(["email", "Column"], {"Column": code})
    return read_row(columns, "a@b.example", cell)


def misread(text: str) -> str:
    """Decode UTF-8 as Windows-1252 and keep its undefined bytes, as some programs do."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())


@given(before=st.text(st.characters(categories=["L"], max_codepoint=0x7F), max_size=5), text=LATIN)
def test_latin_letters_read_in_the_wrong_encoding_cause_a_warning(before: str, text: str) -> None:
    (flaw,) = read_value("city", before + misread(text))[1]
    assert (flaw.kind, flaw.value, flaw.damaged) == ("mojibake", None, False)
    assert f"is probably {text[0]!r}" in flaw.message


@given(st.text(st.characters(max_codepoint=0xFF, categories=["L", "Nd"], exclude_characters="ªºµ"), max_size=20))
def test_correct_latin_words_cause_no_warning(text: str) -> None:
    assert read_value("city", text) == (text, ())


SENT_AS_THEY_ARE = ["„CAFÉ”", "»É«", "ESPAÑA", "IRMÃO", "Ñ’", "café…”", "Â", "E+", "1E+1", "12E+10", "â€", "ð€€€"]  # noqa: RUF001 - as people write it
GARBLED = {"Иван": "Ð˜Ð²Ð°Ð½", "it’s": "â€™", "😀": "ðŸ˜€", "naïve": "Ã¯"}  # noqa: RUF001 - as displayed
CELLS = [
    *(("city", text, [], text) for text in SENT_AS_THEY_ARE),
    *(("custom_1", text, [], text) for text in ("Null", "Nan", "none", "#1", "C#", "1.0", "2,0", "a ::: b", "NULLIF")),
    *(("work_phone", text, [], text) for text in ("206.555.0101", "2065550101.5")),
    ("work_phone", "4.1E+11", ["scientific"], None),
    ("custom_1", "4.1E+11", ["scientific"], "4.1E+11"),
    ("work_phone", "+1 206 555 0100 ::: 5", ["several"], "+1 206 555 0100"),
    ("city", "a\0b", ["unsendable"], None),
    ("first_name", "#REF!", ["error"], None),
    ("city", " NULL ", ["missing"], None),
    ("zip", "75001.0", ["decimal"], "75001"),
]
"""The code of a field, a cell, the kinds of findings, and what is sent."""


def test_a_cell_is_sent_as_its_value_and_a_warning_names_each_change() -> None:
    def check(code: str, cell: str, kinds: list[str], value: str | None) -> None:
        one = row(cell, code)
        assert ([found.kind for found in one.warnings], one.members.get(code), one.fault) == (kinds, value, None)
        assert one.cells == ("a@b.example", cell)
        for found in one.warnings:
            assert found.message.startswith(f"{code}: {cell!r} ")
            assert (found.column, found.code, found.damaged) == ("Column", code, value is None and found.kind != "missing")
        assert row(cell, "ignore").warnings == ()

    check_rows(CELLS, check)


def test_other_scripts_punctuation_and_emoji_are_detected_too() -> None:
    def check(meant: str, found: str) -> None:
        remark = row(misread(meant), "city").warnings[0]
        assert (remark.kind, remark.value) == ("mojibake", None)
        assert f": {found!r} is probably " in remark.message

    check_rows(GARBLED.items(), check)


@pytest.mark.parametrize("name", ["line", "cells", "fault", "warnings", "sent"])
def test_a_row_cannot_be_changed_before_it_is_sent(name: str) -> None:
    one = row("Lyon", "city")
    with pytest.raises(AttributeError):
        setattr(one, name, None)
    assert dict(one) == {"email": "a@b.example", "city": "Lyon"}


def test_every_text_format_has_the_same_findings() -> None:
    for cell in ("#N/A", "NULL"):
        assert str(read_row(map_columns(["email"]), cell).fault).startswith(f"email: '{cell}' ")
    assert "city" not in read(json.dumps({"email": "a@b.example", "city": "\ud83d"}).encode())[1][0]
    cells = {"email": "a@b.example", "city": "NULL", "company_name": "#N/A", "zip": "75001.0"}
    _, from_csv = read(f"{','.join(cells)}\n{','.join(cells.values())}\n".encode(), format="csv")
    _, from_jsonl = read(json.dumps({**cells, "zip": 75001.0}).encode())
    for (one,) in (from_csv, from_jsonl):
        assert [(remark.kind, remark.code) for remark in one.warnings] == [
            ("missing", "city"),
            ("error", "company_name"),
            ("decimal", "zip"),
        ]
        assert dict(one) == {"email": "a@b.example", "zip": "75001"}
    _, (absent,) = read(b'{"email": "a@b.example", "zip": NaN}')
    assert ([remark.kind for remark in absent.warnings], dict(absent)) == (["missing"], {"email": "a@b.example"})
