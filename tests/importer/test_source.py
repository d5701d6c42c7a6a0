"""Text files as sources: encodings are never guessed silently, and an error locates invalid bytes."""

from __future__ import annotations

import io
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.files import pack, read

from outreach_async.errors import InvalidRequest
from outreach_async.importer import CsvFile

PEOPLE = {
    "cp1252": "a@b.example,Jörg Müller,Köln\nb@b.example,Zoë Françoise Guérin,Orléans\n",
    "cp1251": "a@b.example,Иван Петров,Москва\nb@b.example,Анна Сидорова,Новосибирск\n",
    "cp932": "a@b.example,山田太郎,東京都\nb@b.example,鈴木花子,大阪府\n",
    "gb18030": "a@b.example,王小明,北京市\nb@b.example,李华,上海市浦东新区\n",
    "mac_roman": "a@b.example,Jörg Müller,Köln\nb@b.example,Zoë Françoise Guérin,Orléans\n",
}
WITHOUT = """
import io, sys
sys.modules["charset_normalizer"] = None
from outreach_async.importer import open_file
open_file(io.BytesIO("email,city\\na,\\u041c\\u043e\\u0441\\u043a\\u0432\\u0430".encode("cp1251") * 9))
"""


def refusal(content: bytes, encoding: str | None = None) -> str:
    with pytest.raises(InvalidRequest) as caught:
        read(content, encoding=encoding, format="csv")
    return str(caught.value)


@settings(max_examples=scaled(30))
@given(
    before=st.integers(0, 5000),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    byte=st.sampled_from([b"\xf6", b"\x81", b"\xff"]),
    gzipped=st.booleans(),
)
def test_bytes_that_are_not_utf_8_are_reported_with_line_and_remedy(before: int, ending: str, byte: bytes, gzipped: bool) -> None:
    content = ("email,city" + ending + f"a@b.example,Zuerich{ending}" * before + "b@b.example,K").encode() + byte + b"ln\n"
    message = refusal(pack(content, gzipped=gzipped))
    assert f"line {before + 2} is not UTF-8 text (byte 0x{byte.hex()}); save the file as UTF-8" in message
    assert message.endswith("probably --encoding cp1252")


@pytest.mark.parametrize("before", [1, 10_000])
def test_one_invalid_line_in_a_utf_8_file_suggests_no_other_encoding(before: int) -> None:
    message = refusal(("email,city\na@b.example,Köln\n" + "a@b.example,Koeln\n" * before).encode() + b"b@b.example,K\xf6ln\n")
    assert f"line {before + 3} is not UTF-8 text (byte 0xf6), but earlier lines are valid; correct the line" in message
    assert "--encoding" not in message


def test_a_file_that_ends_inside_a_character_is_not_utf_8() -> None:
    assert "line 2 is not UTF-8 text (byte 0xc3)" in refusal(b"email\nJos\xc3")


@pytest.mark.parametrize("encoding", PEOPLE)
def test_the_error_names_the_probable_encoding_which_reads_the_file(encoding: str) -> None:
    content = f"email,Name,City\n{PEOPLE[encoding] * 2}".encode(encoding)
    assert refusal(content).endswith(f", probably --encoding {encoding}")
    _, rows = read(content, {"Name": "full_name"}, encoding=encoding)
    assert [row.cells for row in rows] == [tuple(line.split(",")) for line in PEOPLE[encoding].splitlines() * 2]


def test_without_charset_normalizer_the_error_names_the_commonest_encoding() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert "probably --encoding cp1252" in done.stderr


@pytest.mark.parametrize(("encoding", "mark"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-8-sig", "UTF-8")])
def test_a_byte_order_mark_selects_the_encoding_and_is_not_in_the_header(encoding: str, mark: str) -> None:
    file = CsvFile.open(io.BytesIO("email,Köln\n".encode(encoding)))
    assert file.headers == ("email", "Köln")
    assert file.notes == (() if mark == "UTF-8" else (f"encoding {mark}, from the byte order mark",))
    assert f"expected 'cp1252', got the byte order mark of {mark}" in refusal("email\n".encode(encoding), "cp1252")
    assert CsvFile.open(io.BytesIO("email,Köln\n".encode(encoding)), encoding=mark).headers == ("email", "Köln")


def test_big_endian_marks_are_recognised() -> None:
    assert CsvFile.open(io.BytesIO(b"\xfe\xff" + "email".encode("utf-16-be"))).headers == ("email",)
    assert CsvFile.open(io.BytesIO(b"\0\0\xfe\xff" + "email".encode("utf-32-be"))).headers == ("email",)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognised_and_can_be_requested(encoding: str) -> None:
    content = "email,city\na@b.example,Köln\n".encode(encoding)
    assert refusal(content).endswith(f"pass its encoding: --encoding {encoding}")
    assert [row.cells for row in read(content, encoding=encoding)[1]] == [("a@b.example", "Köln")]
    assert "pass --encoding utf-16-le or utf-16-be" in refusal(content, "utf-16")


def test_utf_8_may_be_requested_and_causes_no_note() -> None:
    assert CsvFile.open(io.BytesIO(b"email\n"), encoding="UTF8").notes == ()


@pytest.mark.parametrize("encoding", ["latin-9000", "base64", "", "a\0b"])
def test_an_unknown_encoding_is_refused(encoding: str) -> None:
    assert re.match(r"encoding: expected a text encoding, got .*; use, for example, cp1252", refusal(b"email\n", encoding))


def test_an_invalid_byte_in_the_requested_encoding_is_reported_too() -> None:
    assert "line 2 is not cp1252 text (byte 0x81)" in refusal(b"email\n\x81\n", "cp1252")
