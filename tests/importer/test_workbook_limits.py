"""Workbooks are read in a separate process: its limits, how it ends, and what it does not touch."""

from __future__ import annotations

import io
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.files import (
    MAIN,
    STYLES,
    ZIP,
    at,
    number,
    old_workbook,
    opendocument,
    opendocument_of,
    read,
    read_here,
    read_sheet,
    refused,
    sheet_of,
    text,
    workbook,
)
from support.fuzz import mutated

from outreach_async.errors import InvalidRequest
from outreach_async.importer._source import ByteSource, StreamCopy
from outreach_async.importer._workbook import READER_COMMAND, WorkbookFile, read_in_subprocess
from outreach_async.importer._workbook_reader import (
    MAX_CELL_LENGTH,
    MAX_MEMORY,
    PARENT_ENDED,
    TOO_LARGE,
    TOO_LONG,
    SheetOptions,
    UnreadableWorkbook,
    encode_result,
    processor_seconds,
    read_marks,
    run_reporting_errors,
    watch_process,
)

SHEET: Final = "xl/worksheets/sheet1.xml"
HEADER: Final = f'<row r="1">{at("A1", text("email"))}</row>'


def pack_archive(content: bytes, extra: bytes = b"") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as plain, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in plain.namelist():
            archive.writestr(name, plain.read(name))
        archive.writestr("xl/media/image.bin", extra)
    return file.getvalue()


def xlsx_with(sheet: Callable[[], Iterator[bytes]], extra: bytes = b"") -> bytes:
    """Return an XLSX file whose sheet is generated piece by piece, because it may not fit in memory."""
    file = io.BytesIO(pack_archive(workbook({"A": ""}, leave_out=[SHEET]), extra))
    with zipfile.ZipFile(file, "a", zipfile.ZIP_DEFLATED) as archive, archive.open(SHEET, "w", force_zip64=True) as part:
        part.write(f'<worksheet xmlns="{MAIN}"><sheetData>{HEADER}'.encode())
        for piece in sheet():
            part.write(piece)
        part.write(b"</sheetData></worksheet>")
    return file.getvalue()


def a_cell_of(megabytes: int, extra: bytes = b"") -> bytes:
    """Return an XLSX file with one cell of `megabytes` million characters."""

    def sheet() -> Iterator[bytes]:
        yield b'<row r="2"><c r="A2" t="inlineStr"><is><t>'
        for _ in range(megabytes):
            yield b"a" * 1_000_000
        yield b"</t></is></c></row>"

    return xlsx_with(sheet, extra)


def a_cell_at(row: int, column: int) -> bytes:
    """Return an XLS file whose number is in another cell; `row` and `column` start at 0."""
    content = bytearray(old_workbook())
    struct.pack_into("<HH", content, content.index(struct.pack("<d", 41791234567.0)) - 6, row, column)
    return bytes(content)


def repeated_cell(rows: int, columns: int) -> bytes:
    """Return an ODS file with one cell that is repeated over `rows` rows and `columns` columns."""
    cell = f'<table:table-cell table:number-columns-repeated="{columns}" office:value-type="string"><text:p>x</text:p>'
    return opendocument_of(f'<table:table-row table:number-rows-repeated="{rows}">{cell}</table:table-cell></table:table-row>')


LAST_CELL: Final = pack_archive(workbook({"A": f'{HEADER}<row r="1048576">{at("XFD1048576", text("x"))}</row>'}))
"""An XLSX file with two cells, in the first and the last cell of the largest sheet: 16,384 columns and 1,048,576 rows."""

FAR_ROWS: Final = pack_archive(workbook({"A": f'{HEADER}<row r="1048576">{at("A1048576", text("x"))}</row>'}))
"""An XLSX file with one column and about a million blank rows between two cells."""

BOMBS: Final[dict[str, Callable[[], bytes]]] = {
    "xlsx, last cell": lambda: LAST_CELL,
    "xlsx, long cell": lambda: a_cell_of(100),
    "xlsx, long cell beside an image": lambda: a_cell_of(200, random.Random(1).randbytes(1_200_000)),  # noqa: S311 - not for secrets
    "xls, last cell": lambda: a_cell_at(65535, 255),
    "xls, a column beyond": lambda: a_cell_at(65535, 65535),
    "ods, repeated cells": lambda: repeated_cell(65536, 256),
    "ods, repeated columns": lambda: repeated_cell(1000, 16384),
    "ods, as many as there can be": lambda: repeated_cell(1048576, 16384),
}
"""Functions that create files of at most 2 MB whose content needs at least 0.4 GB of memory."""


PEOPLE: Final = workbook({"People": sheet_of([[text("email")], [text("ann@a.example")]])})
SAMPLES: Final = (pack_archive(PEOPLE), old_workbook(), pack_archive(opendocument([["email"], ["ann@a.example"]])))
LINUX_ONLY: Final = pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit memory")

OPEN_ALL = """
import json, resource, sys
from outreach_async.errors import InvalidRequest
from outreach_async.importer import open_file
refusals = []
for path in sys.argv[1:]:
    try:
        open_file(path, format="xlsx").count()
    except InvalidRequest as error:
        refusals.append(str(error))
own = int(open("/proc/self/status").read().partition("VmHWM:")[2].split()[0])
children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
print(json.dumps({"refusals": refusals, "kilobytes": own + children}))
"""
INTERRUPTED = """
import io, os, sys
from outreach_async.importer._workbook import read_in_subprocess
from outreach_async.importer._source import ByteSource
from outreach_async.importer._workbook_reader import SheetOptions
stuck = "import os, signal; os.kill(os.getppid(), signal.SIGINT); signal.pause()"
try:
    read_in_subprocess(ByteSource.of(io.BytesIO(b"")), SheetOptions(), (sys.executable, "-c", stuck))
except KeyboardInterrupt:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("interrupted, and nobody is left")
"""


def python(code: str, *arguments: str | Path, sent: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run Python code without measuring coverage, which takes memory too."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    return subprocess.run([sys.executable, "-c", code, *arguments], input=sent, capture_output=True, check=False, env=plain)


def refusal(content: bytes, *reader: str) -> str:
    return refused(read_in_subprocess, ByteSource.of(io.BytesIO(content)), SheetOptions(), reader or READER_COMMAND)


# Limits


@pytest.mark.nightly
@LINUX_ONLY
def test_workbooks_that_would_fill_the_memory_are_refused_within_500_mb(tmp_path: Path) -> None:
    paths = [tmp_path / f"{at}.bin" for at in range(len(BOMBS))]
    for path, bomb in zip(paths, BOMBS.values(), strict=True):
        path.write_bytes(bomb())
    done = python(OPEN_ALL, *paths)
    found = json.loads(done.stdout)
    assert (len(found["refusals"]), done.returncode) == (len(BOMBS), 0)
    # The speed of the CPU decides which limit is reached first.
    refusals = dict(zip(BOMBS, found["refusals"], strict=True))
    for name in "xlsx, last cell", "xls, last cell", "ods, repeated cells":
        assert refusals[name].endswith((f": {TOO_LARGE}", f": {TOO_LONG}"))
    assert found["kilobytes"] * 1024 < 500e6


@pytest.mark.covers
@pytest.mark.thorough
def test_an_archive_that_unpacks_to_hundreds_of_times_its_size_is_refused() -> None:
    message = refused(read_sheet, a_cell_of(100))
    assert message.startswith("the stream: the archive unpacks to 100,00")
    assert message.endswith(" times its size; save the sheet as CSV")


@pytest.mark.thorough
def test_an_archive_that_unpacks_to_more_than_it_declares_is_refused() -> None:
    content = bytearray(a_cell_of(100))
    struct.pack_into("<I", content, content.rindex(b"PK\1\2") + 24, 1000)  # the declared size of the last part
    # python-calamine 0.9.0 unpacks the archive, but zipfile finds a wrong checksum; later versions refuse it.
    assert re.search("declared uncompressed size|Bad CRC-32", refused(read_sheet, bytes(content)))


@pytest.mark.parametrize(("length", "is_read"), [(MAX_CELL_LENGTH, True), (MAX_CELL_LENGTH + 1, False)])
def test_a_cell_has_the_same_maximum_length_as_in_csv(length: int, is_read: bool) -> None:
    content = workbook({"A": sheet_of([[text("email")], [text("a" * length)]])})
    if is_read:
        assert len(read_sheet(content)[1][0].cells[0]) == length
    else:
        assert "row 2 has a cell of more than 131,072 characters; shorten or clear the cell" in refused(read_sheet, content)


def test_a_row_with_too_many_cells_is_refused() -> None:
    cells = [text(letter * (MAX_CELL_LENGTH - 10)) for letter in "abcdefgh"]
    file = WorkbookFile.of(ByteSource.of(io.BytesIO(workbook({"A": sheet_of([cells])}))), SheetOptions(), read=read_here)
    assert len(file.headers) == 8
    assert "row 1 is longer than 1,048,576 bytes; check that the sheet is a table" in refused(
        read_sheet, workbook({"A": sheet_of([[*cells, *cells]])})
    )


@pytest.mark.parametrize(("zeros", "shown"), [(255, "7".zfill(255)), (256, "7")])
def test_a_number_format_adds_at_most_255_zeros(zeros: int, shown: str) -> None:
    styles = STYLES.replace('formatCode="00000"', f'formatCode="{"0" * zeros}"')
    content = workbook({"A": sheet_of([[text("email")], [number(7, ZIP)]])}, styles=styles)
    assert read_sheet(content)[1][0].cells == (shown,)


def loading(folder: Path, code: str) -> subprocess.CompletedProcess[bytes]:
    """Run the reader process with a fake python-calamine that runs `code` to load a workbook."""
    lines = ("import os", "class CalamineError(Exception): ...", "class CalamineWorkbook:", f"  def from_filelike(file): {code}")
    (folder / "python_calamine.py").write_text("\n".join(lines))
    request = json.dumps({"parent": os.getpid(), "options": [], "path": [str(folder), *sys.path]})
    with tempfile.TemporaryFile() as file:
        return subprocess.run([*READER_COMMAND, request], stdin=file, stdout=file, stderr=subprocess.PIPE, check=False)


@LINUX_ONLY
def test_the_memory_of_the_process_is_limited(tmp_path: Path) -> None:
    assert json.loads(loading(tmp_path, f"bytearray({MAX_MEMORY})").stderr) == {"refused": TOO_LARGE}


def test_the_output_of_the_process_is_limited(tmp_path: Path) -> None:
    assert (
        b"cannot store the rows in a temporary file (File too large)" in loading(tmp_path, "os.pwrite(1, b'x', 1 << 30)").stderr
    )


def test_a_larger_file_has_more_time() -> None:
    assert processor_seconds(8_000_000) == 9


@pytest.mark.thorough
def test_the_process_is_killed_when_loading_takes_too_long(tmp_path: Path) -> None:
    assert loading(tmp_path, "[0 for _ in iter(int, 1)]").returncode == -signal.SIGPROF


def test_the_process_exits_without_its_parent_or_with_too_much_memory(tmp_path: Path) -> None:
    def wait(seconds: float) -> None:
        raise TimeoutError(seconds)

    left: list[str] = []
    watch_process(os.getppid(), 0, left.append)
    watch_process(0, sys.maxsize, left.append)
    assert left == [TOO_LARGE, PARENT_ENDED]
    with pytest.raises(TimeoutError, match=r"0\.01"):
        watch_process(os.getppid(), sys.maxsize, left.append, wait)
    (path := tmp_path / "people.xlsx").write_bytes(FAR_ROWS)  # reading takes seconds
    request = json.dumps({"parent": 0, "options": [], "path": sys.path})
    nobody, stderr = os.pipe()
    os.close(nobody)
    with path.open("rb") as file, os.fdopen(stderr, "wb") as gone:
        done = subprocess.run([*READER_COMMAND, request], stdin=file, stdout=subprocess.PIPE, stderr=gone, check=False)
    assert (done.stdout, done.returncode) == (b"", 1)


# Endings


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os; os.abort()", TOO_LARGE),
        ("", TOO_LARGE),
        ("import os, signal; os.kill(os.getpid(), signal.SIGPROF)", TOO_LONG),
        ("import sys; sys.exit('first\\nno module')", "the workbook reader failed (no module); save the sheet as CSV"),
        ('import sys; sys.stderr.write(\'{"refused": "it is blue"}\\nand more\')', "it is blue"),
    ],
)
def test_every_way_the_process_ends_is_a_refusal_with_its_reason(code: str, reason: str) -> None:
    assert refusal(b"", sys.executable, "-c", code) == f"the stream: {reason}"


def test_a_process_that_cannot_start_is_a_refusal() -> None:
    assert "cannot start the workbook reader ([Errno 2]" in refusal(b"", "/no/such/python")


@pytest.mark.thorough
def test_ctrl_c_ends_the_process_too() -> None:
    assert python(INTERRUPTED).stdout == b"interrupted, and nobody is left\n"


class Panic(BaseException):
    """An error like those of python-calamine."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), TOO_LARGE),
        (
            OSError(28, "No space left"),
            "cannot store the rows in a temporary file (No space left); free disk space, or save the sheet as CSV",
        ),
        (Panic("overflow"), "not a readable workbook (Panic: overflow); save it again, or as CSV"),
    ],
)
def test_every_failure_to_read_is_reported_as_a_refusal(error: BaseException, reason: str) -> None:
    def fail() -> dict[str, object]:
        raise error

    assert run_reporting_errors(fail) == {"refused": reason}
    assert json.loads(encode_result({"refused": "a" * 5000, "marked": True})) == {"refused": "a" * 1000, "marked": True}


# Its environment


@pytest.mark.thorough
def test_standard_input_is_read_and_standard_output_not_touched() -> None:
    code = "from outreach_async.importer import open_file; file = open_file('-'); print(file.count(), [*file.records()])"
    done = python(code, sent=PEOPLE)
    assert (done.stdout, done.stderr) == (b"1 [(2, ('ann@a.example',), None)]\n", b"")


def test_reads_of_another_process_do_not_move_the_position_of_a_stream() -> None:
    content = random.Random(1).randbytes(80_000)  # noqa: S311 - the same each time
    spool, few, many = StreamCopy(io.BytesIO(content)), bytearray(10), bytearray(20_000)
    spool.read_at(0, memoryview(few))
    with spool.lend_descriptor() as descriptor:
        os.lseek(descriptor, 40_000, os.SEEK_SET)
    spool.read_at(5, memoryview(many))
    assert many == content[5:20_005]


@pytest.mark.thorough
@pytest.mark.parametrize("sample", SAMPLES, ids=["xlsx", "xls", "ods"])
@settings(max_examples=scaled(8), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_damaged_workbook_is_read_or_refused(sample: bytes, data: st.DataObject) -> None:
    with suppress(InvalidRequest):
        read(data.draw(st.integers(0, len(sample)).map(lambda end: sample[:end]) | mutated((sample,))), format="xlsx")


@pytest.mark.thorough
@LINUX_ONLY
def test_peak_memory_is_that_of_the_process_and_not_of_its_parent() -> None:
    """On Linux, the peak that getrusage reports starts at the peak of the parent process."""
    grown = "import subprocess, sys; held = b'1' * 300_000_000; print(subprocess.check_output(sys.argv[1:], text=True))"
    peak_code = "from outreach_async.importer._workbook_reader import peak_memory; print(peak_memory())"
    assert int(python(grown, sys.executable, "-c", peak_code).stdout) < 150e6


@pytest.mark.parametrize(
    "content",
    [
        workbook({"A": ""}, leave_out=["xl/_rels/workbook.xml.rels"]),
        workbook({"A": ""}, leave_out=["xl/worksheets/sheet1.xml"]),
        workbook({"B": ""}),
        workbook({"A": "<row"}),
        workbook({"A": '<row r="first"/>'}),
    ],
)
def test_a_workbook_with_missing_or_broken_parts_is_refused(content: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(content)) as archive, pytest.raises(UnreadableWorkbook, match="cannot read sheet 'A'"):
        list(read_marks(archive, "A"))
