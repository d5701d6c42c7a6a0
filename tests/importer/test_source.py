"""Text files as sources: encodings are never guessed silently, and an error locates invalid bytes."""

from __future__ import annotations

import io
import re
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.files import pack, read, refused

from outreach_async.importer import open_file
from outreach_async.importer._source import _choose_samples

open_csv = partial(open_file, format="csv")
GERMAN, POLISH = "Jörg Müller,Köln\nZoë Weiß,Zürich\n", "Łukasz Wójcik,Łódź\nŚwiętosława Żak,Gdańsk\n"
PEOPLE = [
    ("cp1252", GERMAN),
    ("cp1252", "Zoë Françoise Guérin,Orléans\nIñigo Núñez,A Coruña\nAnn O’Neill,“Cork”\n"),  # noqa: RUF001 - names
    ("mac_roman", GERMAN),
    ("cp850", GERMAN),
    ("cp1250", POLISH),
    ("iso8859_2", POLISH),
    ("cp852", POLISH),
    ("cp1250", "Jiří Dvořák,Plzeň\nŽaneta Černá,Ústí nad Labem\n"),
    ("cp1254", "Ayşe Yıldız,İstanbul\nOğuz Çelik,Muğla\n"),  # noqa: RUF001 - names
    ("cp1257", "Jānis Bērziņš,Rīga\nRūta Žukauskaitė,Šiauliai\n"),
    ("cp1251", "Иван Петров,Москва\nАнна Сидорова,Новосибирск\n"),  # noqa: RUF001 - names
    ("cp1253", "Γιώργος Παπαδόπουλος,Αθήνα\nΕλένη Νικολάου,Θεσσαλονίκη\n"),  # noqa: RUF001 - names
    ("cp1255", "דוד לוי,ירושלים\nנועה כהן,חיפה\n"),  # noqa: RUF001 - names
    ("cp1256", "محمد علي,القاهرة\nفاطمة حسن,عمان\n"),  # noqa: RUF001 - names
    ("cp932", "山田太郎,東京都\n鈴木ハナコ,大阪府\n"),
    ("gb18030", "王小明,北京市\n李华,上海市浦东新区\n"),
    ("euc_kr", "김민수,서울\n이영희,부산\n"),
    ("big5", "陳大文,臺北市\n林美玲,高雄市\n"),
]
"""Encodings, each with names and cities of people that programs write in this encoding."""


def refusal(content: bytes, encoding: str | None = None) -> str:
    return refused(read, content, encoding=encoding, format="csv")


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
    assert " or pass the encoding that reads its cells correctly: --encoding " in message


@pytest.mark.parametrize("before", [1, 10_000])
def test_one_invalid_line_in_a_utf_8_file_suggests_no_other_encoding(before: int) -> None:
    message = refusal(("email,city\na@b.example,Köln\n" + "a@b.example,Koeln\n" * before).encode() + b"b@b.example,K\xf6ln\n")
    assert (
        f"line {before + 3} is not UTF-8 text (byte 0xf6), but earlier lines with non-ASCII characters are; correct the line"
        in message
    )
    assert "--encoding" not in message


@pytest.mark.parametrize(("encoding", "people"), PEOPLE)
def test_the_error_shows_a_cell_in_the_right_encoding_which_reads_the_file(encoding: str, people: str) -> None:
    content = f"Name,City,email\n{people.replace(chr(10), ',a@b.example' + chr(10))}"
    message = refusal(content.encode(encoding))
    cells = [cell for line in people.splitlines() for cell in line.split(",")]
    right = [(name, cell) for name, cell in re.findall(r"--encoding (\w+) reads '([^']+)'", message) if cell in cells]
    assert "probabl" not in message
    assert message.count("--encoding") <= 6
    assert len(right) == 1
    _, rows = read(content.encode(encoding), {"Name": "full_name"}, encoding=right[0][0])
    assert [cell for row in rows for cell in row.cells[:2]] == cells


def test_encodings_never_show_the_same_cells() -> None:
    message = refusal("email,first_name\na@b.example,Jiří\nb@b.example,Šárka\n".encode("cp1250"))
    assert "--encoding cp1252 reads 'Šárka' and 'Jiøí'; --encoding cp1250 reads 'Šárka' and 'Jiří'; " in message
    shown = re.findall(r"--encoding \w+ reads ('[^;]+)", message)
    assert len(set(shown)) == len(shown)


def test_at_most_three_cells_are_shown_even_if_more_would_tell_encodings_apart() -> None:
    readings = ["".join(f"{word}{'!' * (word == changed)}," for word in "abcd") for changed in "abcd"] + ["a,b,c,d,"]
    assert [len(cells) for cells in _choose_samples(readings)] == [3] * 5


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        (f"email,note\na@b.example,ö {'x' * 60}\n".encode("cp1252"), None, f"reads 'ö {'x' * 38}...'"),
        ("email,note\na@b.example,ö key_secret\n".encode("cp1252"), None, "reads 'ö key_...'"),
        (b"email\nJos\xc3", None, "line 2 is not UTF-8 text (byte 0xc3)"),
        (b"email\n\xff\0\n", None, "is not UTF-8 text (byte 0xff); save the file as UTF-8"),  # binary: it has no encoding
        ("email\nJosé\nÁngel\n".encode(), "cp1252", "line 3 is not cp1252 text (byte 0x81); save the file as UTF-8, or pass"),
        ("email\nJosé\nÁngel\n".encode(), "cp1252", "--encoding utf-8 reads 'Ángel'"),
        *((b"email\n", name, "encoding: expected a text encoding, got ") for name in ("latin-9000", "base64", "", "a\0b")),
    ],
)
def test_text_that_cannot_be_decoded_is_refused(content: bytes, encoding: str | None, message: str) -> None:
    error = refusal(content, encoding)
    assert message in error
    assert "secret" not in error
    assert ("\xff" in str(content, "latin-1")) <= error.endswith("save the file as UTF-8")


@pytest.mark.parametrize(("encoding", "mark"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-8-sig", "UTF-8")])
def test_a_byte_order_mark_selects_the_encoding_and_is_not_in_the_header(encoding: str, mark: str) -> None:
    file = open_csv(io.BytesIO("email,Köln\n".encode(encoding)))
    assert file.headers == ("email", "Köln")
    assert file.notes == (() if mark == "UTF-8" else (f"encoding {mark}, from the byte order mark",))
    assert f"expected 'cp1252', got the byte order mark of {mark}" in refusal("email\n".encode(encoding), "cp1252")
    assert open_csv(io.BytesIO("email,Köln\n".encode(encoding)), encoding=mark).headers == ("email", "Köln")
    assert open_csv(io.BytesIO(b"\xfe\xff" + "email".encode("utf-16-be"))).headers == ("email",)
    assert open_csv(io.BytesIO(b"\0\0\xfe\xff" + "email".encode("utf-32-be"))).headers == ("email",)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark_is_recognised_and_can_be_requested(encoding: str) -> None:
    content = "email,city\na@b.example,Köln\n".encode(encoding)
    assert refusal(content).endswith(f"pass its encoding: --encoding {encoding}")
    assert [row.cells for row in read(content, encoding=encoding)[1]] == [("a@b.example", "Köln")]
    assert "pass --encoding utf-16-le or utf-16-be" in refusal(content, "utf-16")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "utf-16-le", "utf-32", "cp1252"])
@pytest.mark.parametrize("tail", ["\0" * 64, "\0" * 300_000, "\x1a", "\x1a\0\0"], ids=["short", "long", "Ctrl-Z", "both"])
def test_bytes_behind_the_text_are_ignored_with_a_note(encoding: str, tail: str) -> None:
    content = "email,city\na@a.example,Köln\n"
    options: dict[str, Any] = {} if encoding in {"utf-8", "utf-16", "utf-32"} else {"encoding": encoding}
    file = open_csv(io.BytesIO((content + tail).encode(encoding)), **options)
    assert list(file.records()) == [(2, ("a@a.example", "Köln"), None)]
    assert " after the text, such as NUL, ignored; check that the last line is complete" in file.notes[-1]
    assert not any("behind" in note for note in open_csv(io.BytesIO(content.encode(encoding)), **options).notes)


def test_a_file_of_nothing_but_nul_bytes_is_not_a_table() -> None:
    assert "no header" not in refused(open_file, io.BytesIO(b"\0" * 99))
    assert open_file(io.BytesIO(b'{"email": "a@a.example"}\n' + b"\0" * 99)).count() == 1


@pytest.mark.parametrize("header", ["email,city\n", '"email",city\n'])
def test_a_second_byte_order_mark_is_ignored(header: str) -> None:
    assert open_csv(io.BytesIO(f"\ufeff\ufeff{header}".encode())).headers == ("email", "city")
