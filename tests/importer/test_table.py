"""Garbled cells: an error where they would be useless, a warning elsewhere."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.files import read, read_row

from outreach_async._plumbing import find_suspects, read_value
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


@pytest.mark.parametrize(
    ("meant", "found"),
    [("Иван", "Ð˜Ð²Ð°Ð½"), ("it’s", "â€™"), ("😀", "ðŸ˜€"), ("naïve", "Ã¯")],  # noqa: RUF001 - as displayed
)
def test_other_scripts_punctuation_and_emoji_are_detected_too(meant: str, found: str) -> None:
    remark = row(misread(meant), "city").warnings[0]
    assert (remark.kind, remark.column, remark.code) == ("mojibake", "Column", "city")
    assert f": {found!r} is probably " in remark.message


@given(st.lists(st.sampled_from(["", "Lyon", " NULL ", "4.1E+11", "Ã¯", "C#", "a ::: b", "1.0", "\0", "Müller"])))
def test_no_text_that_is_changed_escapes_the_search_for_suspects(texts: list[str]) -> None:
    for code in ("email", "zip", "city", "custom_1"):
        assert {text for text in texts if read_value(code, text)[1]} <= find_suspects(code, texts) <= {*texts}


@given(st.text(st.characters(max_codepoint=0xFF, categories=["L", "Nd"], exclude_characters="ªºµ"), max_size=20))
def test_correct_latin_words_cause_no_warning(text: str) -> None:
    assert read_value("city", text) == (text, ())


@pytest.mark.parametrize("text", ["„CAFÉ”", "»É«", "ESPAÑA", "IRMÃO", "Ñ’", "café…”", "Â", "E+", "1E+1", "12E+10", "â€", "ð€€€"])  # noqa: RUF001 - as people write it
def test_what_only_looks_garbled_causes_no_warning(text: str) -> None:
    assert row(text, "city").warnings == ()


@pytest.mark.parametrize("cell", ["4.1E+11", "4,1E+11", " 4E+10 ", "-4.17912E+10"])
def test_a_number_in_scientific_form_is_not_sent_as_a_phone_but_elsewhere(cell: str) -> None:
    (remark,) = row(cell, "work_phone").warnings
    assert (remark.kind, remark.value, "work_phone" in row(cell, "work_phone")) == ("scientific", "", False)
    assert remark.message.startswith(
        f"work_phone: {cell!r} is a long number that a spreadsheet shortened, and its digits are lost"
    )
    elsewhere = row(cell, "custom_1")
    assert (elsewhere.fault, elsewhere.warnings[-1].kind) == (None, "scientific")
    assert dict(elsewhere)["custom_1"] == cell.strip()
    assert row(cell, "ignore").warnings == ()


@pytest.mark.parametrize(("cell", "what"), [("a\0b", "a NUL character"), ("x\ud800", "a lone surrogate (half a character)")])
def test_a_cell_with_invalid_characters_is_not_sent_unless_it_is_ignored(cell: str, what: str) -> None:
    (remark,) = row(cell, "city").warnings
    message = f"city: {cell!r} contains {what}, so it is not sent; remove it"
    assert (remark.message, "city" in row(cell, "city")) == (message, False)
    assert row(cell, "ignore").warnings == ()


def seen(cell: str, code: str) -> tuple[list[str], object, str | None]:
    """Return the kinds of warnings, the value that is sent, and the fault of a row with a cell in the column `code`."""
    one = row(cell, code)
    return [remark.kind for remark in one.warnings], one.members.get(code), one.fault


@pytest.mark.parametrize("cell", ["#REF!", "#N/A", "#NAME?", "#VALUE!", "#DIV/0!", " #NV ", "#NOM?", "#¡REF!", "#NAZWA?"])
def test_an_error_of_a_spreadsheet_is_not_sent_and_causes_a_warning(cell: str) -> None:
    assert seen(cell, "first_name") == (["error"], None, None)
    (remark,) = row(cell, "first_name").warnings
    assert remark.message == (
        f"first_name: {cell!r} is an error of a program, so it is not sent; fix the formula, or clear the cell"
    )
    assert remark.value == ""


@pytest.mark.parametrize("cell", ["NULL", "nan", "NaN", "None", "NaT", "<NA>", " NULL "])
def test_a_text_for_a_missing_value_is_not_sent_and_causes_a_warning(cell: str) -> None:
    assert seen(cell, "city") == (["missing"], None, None)
    assert row(cell, "city").cells == ("a@b.example", cell)
    assert row(cell, "ignore").warnings == ()


@pytest.mark.parametrize("cell", ["Null", "Nan", "none", "#1", "Nonesuch", "C#", "1.0", "2,0", "a ::: b"])
def test_names_and_numbers_that_only_resemble_such_texts_are_sent(cell: str) -> None:
    assert seen(cell, "custom_1") == ([], cell, None)


@pytest.mark.parametrize(("cell", "sent"), [("75001.0", "75001"), ("75001,0", "75001"), (" 1234.00 ", "1234")])
def test_a_postal_code_with_a_decimal_point_is_sent_without_it(cell: str, sent: str) -> None:
    assert seen(cell, "zip") == (["decimal"], sent, None)
    assert "decimal" not in seen(cell, "custom_1")[0]


@pytest.mark.parametrize("cell", ["206.555.0101", "2065550101.5"])
def test_other_numbers_with_points_are_sent_unchanged(cell: str) -> None:
    assert seen(cell, "work_phone") == ([], cell, None)


@pytest.mark.parametrize("cell", ["a@b.example ::: c@d.example", "::: a@b.example :::c@d.example"])
def test_only_the_first_of_several_values_in_a_cell_is_sent(cell: str) -> None:
    columns = map_columns(["email", "Column"], {"Column": "ignore"})
    sent = read_row(columns, cell, "")
    (remark,) = sent.warnings
    assert (sent["email"], remark.kind) == ("a@b.example", "several")
    assert remark.message == f"email: {cell!r} has several values and is sent as 'a@b.example'; keep one value in a cell"
    assert seen("+1 206 555 0100 ::: 5", "work_phone") == (["several"], "+1 206 555 0100", None)
    assert seen("Lyon ::: Paris", "city") == (["several"], "Lyon", None)
    assert seen("Lyon ::: Paris", "personal_note") == ([], "Lyon ::: Paris", None)
    assert seen(":::", "website") == ([], ":::", None)


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
