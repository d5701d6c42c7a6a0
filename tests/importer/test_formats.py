"""Opening files: the format is detected or given, and streams are copied privately and no longer than needed."""

from __future__ import annotations

import gc
import gzip
import io
import os
import re
import struct
import subprocess
import sys
import threading
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.files import opendocument, read, refused, sheet_of, text, workbook
from support.tables import check_rows

from outreach_async.errors import InvalidRequest
from outreach_async.importer import FORMATS, open_file

CSV = b"email,city\na@b.example,x\n"
JSONL = b'{"email": "a@b.example"}\n'
XLSX = workbook({"A": sheet_of([[text("email")], [text("a@b.example")]])})
ODS = opendocument([["email"], ["a@b.example"]])
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


parquet.write_table(pa.table({"email": ["a@b.example"]}), written := io.BytesIO())
PARQUET = written.getvalue()
CONTENTS = {"csv": CSV, "jsonl": JSONL, "xlsx": XLSX, "parquet": PARQUET}
KINDS = {"csv": "CsvFile", "jsonl": "JsonLinesFile", "xlsx": "WorkbookFile", "parquet": "ParquetFile"}
"""The classes of files, which nothing else tells apart."""


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def refusal(content: bytes | Path, **options: Any) -> str:
    return refused(open_file, content if isinstance(content, Path) else io.BytesIO(content), **options)


SUFFIXES = {"csv": ".csv .TSV .tab .txt", "jsonl": ".jsonl .ndjson .json", "xlsx": ".xlsx .xlsm", "parquet": ".parquet .pq"}


@pytest.mark.parametrize("kind", FORMATS)
def test_the_suffix_selects_the_format(tmp_path: Path, kind: str) -> None:
    for suffix in SUFFIXES[kind].split():
        file = open_file(saved(tmp_path / f"people{suffix}", CONTENTS[kind]))
        assert type(file).__name__ == KINDS[kind]
        assert (file.count(), file.notes) == (1, ())


@pytest.mark.parametrize("kind", FORMATS)
def test_without_a_known_suffix_the_first_bytes_select_the_format(tmp_path: Path, kind: str) -> None:
    for name in ("people", "people.export"):
        file = open_file(saved(tmp_path / name, CONTENTS[kind]))
        assert type(file).__name__ == KINDS[kind]
        assert file.notes == (f"format {kind}, detected from the content",)
    assert open_file(tmp_path / "people", format=kind).notes == ()


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\xef\xbb\xbf" + JSONL, "jsonl"),
        (b"\n " + JSONL, "jsonl"),
        ("email,city".encode("utf-16"), "csv"),
        (b"{email},city\n", "csv"),
        (ODS, "xlsx"),
        (gzip.compress(JSONL, mtime=0), "jsonl"),
    ],
)
def test_the_format_is_detected_behind_byte_order_marks_spaces_and_gzip(content: bytes, kind: str) -> None:
    assert type(open_file(io.BytesIO(content))).__name__ == KINDS[kind]


@pytest.mark.parametrize("content", [b"\0\1\2\3", b"\0" * 600])
def test_a_file_of_unknown_format_is_refused_and_the_known_ones_are_listed(content: bytes) -> None:
    assert refusal(content) == (
        "the stream: unknown format; expected csv (.csv .tsv .tab .txt), jsonl (.jsonl .ndjson .json), "
        "parquet (.parquet .pq) or xlsx (.xlsx .xlsm .xlsb .xls .ods), the first two also as gzip (.gz); "
        "convert the file, or pass --format"
    )


def test_a_document_or_an_image_is_named_as_such(tmp_path: Path) -> None:
    def check(content: bytes, kind: str, name: str) -> None:
        path = saved(tmp_path / name, content)
        assert refusal(path).startswith(f"{path}: expected a table, got {kind}; ")

    check_rows(
        (
            (content, kind, name)
            for content, kind in [
                (b"%PDF-1.7\n%\xe2\xe3", "a PDF document"),
                (b"\x89PNG\r\n\x1a\n\0\0\0", "an image"),
                (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image"),
                (b"GIF89a\1\0", "an image"),
                (b"RIFF\1\2\3\4WEBPVP8 ", "an image"),
                (b"\0\0\0\x18ftypheic", "an image"),
                (b"<!DOCTYPE html>\n<html>", "an HTML page"),
                (b"\xef\xbb\xbf <table border=1>", "an HTML page"),
                (b"BEGIN:VCARD\r\nVERSION:3.0\r\n", "a vCard file"),
                (b"{\\rtf1\\ansi", "an RTF document"),
                (b"<!-- x --><table>", "an HTML page"),
                (b'<?xml version="1.0"?>\n<?mso-application progid="Excel.Sheet"?>', "an XML spreadsheet"),
                ('<?xml version="1.0"?><ss:Workbook xmlns="x">'.encode("utf-16"), "an XML spreadsheet"),
                (b'<?xml version="1.0"?><contacts>', "an XML document"),
                (b"MIME-Version: 1.0\r\nX-Document-Type: Workbook", "a MIME message"),
                (b"ID;PWXL;N;E\r\nC;Y1;X1", "a symbolic link file (SYLK)"),
                (b"dn: cn=Ann\nmail: a@a.example", "an LDIF file"),
                (b"SQLite format 3\0", "a SQLite database"),
                (b"7z\xbc\xaf\x27\x1c\0", "a 7-Zip archive"),
                (b"Rar!\x1a\x07\1", "a RAR archive"),
                (b"x" * 257 + b"ustar\0", "a tar archive"),
            ]
            for name in ["people.csv", "people.xlsx", "people"]
        ),
        check,
    )


@pytest.mark.parametrize("text", ["ann@a.example,Ann\nbo@a.example,Bo\n", "Ann; ann@a.example \n"])
def test_a_file_without_a_header_is_named_as_such(text: str) -> None:
    assert "expected a header, got the e-mail address 'ann@a.example' in the first line; insert a first line" in refusal(
        text.encode()
    )


def test_a_csv_file_may_begin_like_a_symbolic_link_file() -> None:
    assert open_file(io.BytesIO(b"ID;Phone;email\nC;1;a@a.example\n")).headers == ("ID", "Phone", "email")


def archive(*names: str, method: int = zipfile.ZIP_STORED) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as file:
        for name in names:
            file.writestr(name, b"xl/workbook.xml,is,a,text\n")
    return content.getvalue()


LONG = "y" * 99


def listing(count: int) -> bytes:
    """Return an archive that lists one file many times."""
    content = archive("a.csv").replace(b"workbook", b"workshop")
    start, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
    numbers = struct.pack("<HHL", count, count, count * (end - start))
    return content[:start] + content[start:end] * count + content[end : end + 8] + numbers + content[end + 16 :]


@pytest.mark.parametrize("name", ["people.csv", "people.xlsx", "people", "people.zip"])
@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (
            archive("subscribed.csv", "un.csv"),
            "a ZIP archive with 'subscribed.csv', 'un.csv'; unpack it, and import the table in it",
        ),
        (archive("a/", "a/é.csv", "__MACOSX/a/é.csv"), "a ZIP archive with 'a/é.csv'; unpack it"),
        (archive(*"abcdefg"), "a ZIP archive with 'a', 'b', 'c', 'd', 'e', 2 more files; unpack it"),
        (archive("\x1b[2J\u202e"), "a ZIP archive with '\\x1b[2J\\u202e'; unpack it"),
        (archive(LONG), f"a ZIP archive with '{'y' * 60}...'; unpack it"),
        (archive(), "a ZIP archive; unpack it"),
        (archive("a.csv")[:-9].replace(b"workbook", b"workshop"), "a ZIP archive; unpack it"),
        (archive("a.csv").replace(b"PK\1\2", b"PK\1\0").replace(b"workbook", b"workshop"), "a ZIP archive; unpack it"),
        (listing(1_000), "a ZIP archive with 'a.csv', 'a.csv', 'a.csv', 'a.csv', 'a.csv', 995 more files; unpack it"),
        (listing(21_000), "a ZIP archive; unpack it"),  # more than 1 MiB of names, which are not read
        (archive("Index/Document.iwa", "Index/Tables/x.iwa"), "a document of Apple Numbers; export it as CSV or XLSX"),
        (archive("word/document.xml"), "a Word document; copy its table into a spreadsheet"),
    ],
)
def test_an_archive_is_named_with_the_files_in_it(tmp_path: Path, name: str, content: bytes, kind: str) -> None:
    path = saved(tmp_path / name, content)
    assert refusal(path).startswith(f"{path}: expected a table, got {kind}")


@pytest.mark.parametrize("before", [1, 8, 15])
def test_the_parts_of_a_workbook_are_found_wherever_their_names_are(before: int) -> None:
    archive = b"PK\3\4" + b"-" * ((1 << 18) - 4 - before) + b"xl/workbook.xml"
    assert "not a readable workbook" in refusal(archive)


@pytest.mark.parametrize(
    ("name", "content", "looks"),
    [("people.xls", CSV, "csv"), ("people.csv", XLSX, "xlsx"), ("p.csv", OLE, "xlsx"), ("p.jsonl", PARQUET, "parquet")],
)
def test_a_suffix_that_contradicts_the_content_is_refused_without_a_format(
    tmp_path: Path, name: str, content: bytes, looks: str
) -> None:
    path = saved(tmp_path / name, content)
    assert f"by its content; pass --format {looks}" in refusal(path)
    if content != OLE:
        assert type(open_file(path, format=looks)).__name__ == KINDS[looks]


def test_options_that_a_format_does_not_support_are_refused() -> None:
    assert "sheet: expected xlsx, got the stream, which is read as csv" in refusal(CSV, sheet="A")
    assert "header_row: expected csv or xlsx, got the stream, which is read as jsonl; omit" in refusal(JSONL, header_row=2)
    assert refusal(CSV, header_row=0).startswith("header_row: expected")
    assert "encoding: the stream is read as xlsx" in refusal(XLSX, encoding="cp1252")
    assert refusal(CSV, format="tsv") == "format: expected one of csv, jsonl, parquet, xlsx, got 'tsv'; pass one of them"


@pytest.mark.parametrize(("name", "content"), [("people.csv.gz", CSV), ("people.jsonl.GZ", JSONL), ("people.csv", CSV)])
def test_gzip_is_recognised_by_its_bytes_whatever_the_name(tmp_path: Path, name: str, content: bytes) -> None:
    assert open_file(saved(tmp_path / name, gzip.compress(content, mtime=0))).count() == 1
    assert open_file(saved(tmp_path / name, content)).count() == 1


def test_damaged_gzip_and_gzip_of_a_binary_format_are_refused() -> None:
    damaged = bytearray(gzip.compress(CSV * 99, mtime=0))
    damaged[20] ^= 0xFF
    for content in (gzip.compress(CSV, mtime=0)[:-9], gzip.compress(CSV, mtime=0)[:14], bytes(damaged)):
        assert "damaged gzip" in refusal(content)
    for content in XLSX, PARQUET:
        assert "expected csv or jsonl in a gzip file, got " in refusal(gzip.compress(content, mtime=0))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_was_replaced_or_deleted_is_read_as_it_was_opened(tmp_path: Path, kind: str) -> None:
    file = open_file(path := saved(tmp_path / f"people.{kind}", CONTENTS[kind]))
    before = (list(file.records()), file.fingerprint())
    saved(tmp_path / "other", CONTENTS["csv"] * 2).replace(path)
    assert (list(file.records()), file.fingerprint()) == before
    path.unlink()
    assert (list(file.records()), file.fingerprint()) == before


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_file_that_changed_is_not_read_any_further(tmp_path: Path, kind: str) -> None:
    file = open_file(path := saved(tmp_path / f"people.{kind}", CONTENTS[kind]))
    with path.open("ab") as writer:
        writer.write(b"x")
    for read_again in (file.count, file.fingerprint):
        assert f"people.{kind}: the file changed after it was opened: it had " in refused(read_again)


def test_a_file_that_changes_while_another_process_reads_it_is_refused(tmp_path: Path) -> None:
    source = open_file(path := saved(tmp_path / "people.xlsx", XLSX)).source

    def change() -> None:
        with source.lend_descriptor():
            os.utime(path, (0, 0))

    with pytest.raises(InvalidRequest, match="the file changed"):
        change()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_stream_can_be_read_repeatedly_and_is_identified_by_its_content(tmp_path: Path, kind: str) -> None:
    file, rows = read(CONTENTS[kind])
    assert (file.path, file.name, len(rows)) == (None, "the stream", 1)
    assert file.fingerprint() == open_file(saved(tmp_path / f"people.{kind}", CONTENTS[kind])).fingerprint()
    assert file.fingerprint() != read(CONTENTS["csv" if kind == "jsonl" else "jsonl"])[0].fingerprint()


@pytest.mark.thorough
def test_readers_of_one_stream_are_independent() -> None:
    file = open_file(io.BytesIO(b"email\n" + b"".join(b"p%d@b.example\n" % at for at in range(20_000))))
    pairs = list(zip(file.records(), file.records(), strict=True))
    assert len(pairs) == 20_000
    assert all(one == other for one, other in pairs)


def test_a_stream_is_copied_to_an_unnamed_file_that_is_removed_with_it() -> None:
    file = open_file(io.BytesIO(CSV), format="csv")
    with file.source.lend_descriptor() as number:
        status = os.fstat(number)
    assert (status.st_mode & 0o777, status.st_nlink) == (0o600, 0)
    with file.source.open_raw() as raw:
        assert (raw.seek(-2, io.SEEK_END), raw.tell(), raw.read()) == (len(CSV) - 2, len(CSV) - 2, CSV[-2:])
    del file, raw
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


def test_a_named_pipe_is_copied_like_standard_input(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "people.csv")
    writer = threading.Thread(target=path.write_bytes, args=(CSV,))
    writer.start()
    file = open_file(path)
    writer.join()
    assert (file.path, file.name, file.count(), file.count()) == (None, str(path), 1, 1)


def test_a_device_is_copied_like_standard_input() -> None:
    with pytest.raises(InvalidRequest, match="/dev/null: no header"):
        open_file("/dev/null")


def test_a_named_pipe_to_which_nobody_writes_is_refused(tmp_path: Path) -> None:
    os.mkfifo(path := tmp_path / "people.csv")
    with pytest.raises(
        InvalidRequest, match=r"people.csv: no program writes to this named pipe; start one first, or pass a file"
    ):
        open_file(path)


def test_a_stream_that_fails_is_an_error_of_the_caller() -> None:
    class Broken:
        def read(self, _size: int, /) -> bytes:
            raise OSError(5, "Input/output error")

    with pytest.raises(InvalidRequest, match="the stream: Input/output error"):
        open_file(Broken())


def test_a_column_of_a_text_file_has_a_cell_for_each_row(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("E-mail,City\na@b.example,Lyon\nc@d.example\n", encoding="utf-8")
    file = open_file(path)
    assert list(file.column(1)) == ["Lyon", ""]
    assert file.split() == (file,)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("kind", "rows"), [("csv", ("500", "10000")), ("jsonl", ("500", "10000")), ("parquet", ("20000", "60000"))]
)
def test_many_times_the_rows_take_at_most_ten_percent_more_memory(kind: str, rows: tuple[str, str]) -> None:
    # A short version of tools/import_memory.py, with a process for each file.
    done = subprocess.run(
        [sys.executable, "-m", "tools.import_memory", "read", kind, *rows], capture_output=True, text=True, check=True
    )
    ratio = re.search(r"ratio ([0-9.]+)", done.stdout)
    assert ratio is not None
    assert float(ratio[1]) <= 1.1, done.stdout
