"""Read a workbook in a separate process, with limits on memory and processor time.

`workbook.py` runs this file as a script. python-calamine holds a whole sheet in memory, and a workbook of a few kilobytes can
describe a sheet of hundreds of gigabytes. A failed allocation aborts the process, and signals are not handled until a
sheet is loaded. In a separate process, an abort does not harm the caller, and the caller can end the process at any time.

Standard input is the workbook. Standard output receives the rows, one JSON array per line. Standard error receives the result,
one JSON object. Only the standard library and python-calamine are imported, so that the process starts fast.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import IO, Any, BinaryIO, Final, NamedTuple
from xml.parsers import expat

with suppress(ImportError):  # Windows and WebAssembly have no such limits
    import resource

MAX_MEMORY: Final = 384 * 2**20  # bytes; together with the caller's memory, less than 500 MB
MAX_ROW_SIZE: Final = 1 << 20  # bytes of an encoded row; the caller holds one row at a time
MAX_CELL_LENGTH: Final = 1 << 17  # characters of a cell, as in a CSV file; Excel allows 32,767
_MAX_OUTPUT_SIZE: Final = 1 << 30  # bytes of all rows, which go to a temporary file
_MAX_RATIO: Final = 200  # largest ratio of unpacked to packed size; sheets of people unpack to 5 to 40 times their size
_ALLOWED_SIZE: Final = 64 * 2**20  # bytes that any archive may unpack to, whatever its ratio
_MAX_MESSAGE_LENGTH: Final = 1000  # characters of a message, which may quote the file
_CHECK_INTERVAL: Final = 0.01  # seconds between two checks of the process

TOO_LARGE: Final = f"the sheet needs more than {MAX_MEMORY // 2**20} MiB of memory to read; save the sheet as CSV"
TOO_LONG: Final = "reading the sheet takes too long for a file of this size; save the sheet as CSV"
PARENT_ENDED: Final = "the process that requested the rows has exited"

_WORKBOOK: Final = "xl/workbook.xml"
_RELATIONS: Final = "xl/_rels/workbook.xml.rels"
_STYLES: Final = "xl/styles.xml"
_RELATION: Final = "http://schemas.openxmlformats.org/officeDocument/2006/relationships id"
_STRICT_RELATION: Final = "http://purl.oclc.org/ooxml/officeDocument/relationships id"
_ENCRYPTED: Final = "EncryptedPackage".encode("utf-16-le")

_BLOCK_SIZE: Final = 1 << 16
_MAX_COLUMNS: Final = 1 << 14  # of a sheet
_WHOLE_ROW: Final = -1  # the column of a mark that hides a row
_ZEROS_FORMAT: Final = re.compile(r"0{2,255}")  # a format code has at most 255 characters


class UnreadableWorkbook(Exception):
    """The workbook cannot be read."""


def limit_resources(size: int) -> None:  # pragma: no cover - it runs in a separate process
    """Make the operating system end this process if loading a sheet takes too much memory, disk space or processor time."""
    # macOS ignores the memory limit; there, only `watch_process` limits memory.
    if sys.platform == "win32":
        return
    for kind, most in (resource.RLIMIT_DATA, MAX_MEMORY), (resource.RLIMIT_FSIZE, _MAX_OUTPUT_SIZE), (resource.RLIMIT_CORE, 0):
        _, hard = resource.getrlimit(kind)
        with suppress(OSError, ValueError):  # some systems refuse to set a limit
            resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))
    # python-calamine may hold the GIL while it loads a sheet. No handler and no thread can run then, so the signal itself must
    # end the process.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    limit_processor_time(processor_seconds(size))


def limit_processor_time(seconds: float) -> None:  # pragma: no cover - it runs in a separate process
    if sys.platform != "win32":
        signal.setitimer(signal.ITIMER_PROF, seconds)


def processor_seconds(size: int) -> float:
    return 1 + size / 1e6  # generous: a file of 100,000 contacts has 8 MB, and loads in 1.2 s


def peak_memory() -> int:
    """Return the peak memory of the process so far, in bytes; 0 if it is unknown."""
    if sys.platform == "win32":  # pragma: no cover - Windows does not report it
        return 0
    if sys.platform == "linux":  # getrusage would include the peak of the parent process
        with open("/proc/self/status", encoding="ascii", errors="replace") as status:  # noqa: PTH123 - pathlib slows the start
            return int(status.read().partition("VmHWM:")[2].split()[0]) * 1024
    else:  # pragma: no cover - coverage is measured on Linux
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def watch_process(parent: int, most: int, leave: Callable[[str], object], wait: Callable[[float], object] = time.sleep) -> None:
    """Call `leave` with a reason when the parent process has exited, or the peak memory exceeds `most` bytes."""
    while os.getppid() == parent:  # an orphaned process gets another parent
        if peak_memory() > most:
            leave(TOO_LARGE)
            return
        wait(_CHECK_INTERVAL)
    leave(PARENT_ENDED)


# Rows


def read_workbook(
    file: BinaryIO,
    options: SheetOptions,
    write: Callable[[bytes], object],
    loaded: Callable[[], object],
) -> dict[str, Any]:
    """Write the header and the non-blank rows of a sheet, each as a JSON array `[line, cells, errors, numbers]`."""
    # `line` counts from 1. `errors` has the indexes of cells with an error, and `numbers` those of whole numbers, except those
    # with a number format such as `00000`, which adds leading zeros.
    import python_calamine

    archive = _open_archive(file)
    file.seek(0)
    try:
        with python_calamine.CalamineWorkbook.from_filelike(file) as book:
            name, note = _choose_sheet(book, options.sheet)
            table = book.get_sheet_by_name(name)
    except python_calamine.CalamineError as error:
        file.seek(0)
        if _ENCRYPTED in file.read():  # python-calamine does not recognise an encrypted workbook
            raise UnreadableWorkbook("protected by a password; save the workbook without a password") from error
        what = f"not a readable workbook ({error}): it may be damaged, or have too many cells"
        raise UnreadableWorkbook(f"{what}; save it again, or as CSV") from error
    loaded()
    marked = archive is not None and _WORKBOOK in archive.namelist()
    marks = read_marks(archive, name) if archive is not None and marked else iter(())
    left = table.start[1] if table.start else 0  # python-calamine omits unused columns on the left
    sheet = SheetReader(options, left, marks, table.merged_cell_ranges or ())
    for row, values in enumerate(table.iter_rows()):
        if (line := sheet.read(row, values)) is not None:
            write(line)
    counts = {"rows": sheet.rows, "hidden_rows": sheet.hidden_rows, "merged": sheet.merged}
    return {"sheet": name, "note": note, "marked": marked, "hidden_columns": sheet.hidden_columns, **counts}


class SheetOptions(NamedTuple):
    sheet: str | None = None
    header_row: int | None = None
    skips_hidden: bool = False


class SheetReader:
    """Reads the rows of a sheet in order, and counts those that people may not see."""

    def __init__(self, options: SheetOptions, left: int, marks: Iterator[CellMark], merged: Sequence[Any]) -> None:
        self.rows = 0  # below the header
        self.hidden_rows = 0
        self.hidden_columns: list[int] = []
        self.merged = 0
        self._options = options
        self._left = left
        self._marks = marks
        self._mark = next(marks, None)
        self._merged = merged
        self._starts: dict[int, list[tuple[int, int]]] = {}  # by row, the last row and the column of merged cells
        self._open: dict[int, tuple[int, str, bool, bool]] = {}  # by column, the last row, the cell, and whether it has a mark
        self._has_header = False

    def read(self, row: int, values: Sequence[Any]) -> bytes | None:
        """Return a row as a line of JSON; `None` if it is blank, above the header, or left out."""
        widths = self._take_widths(row)
        cells, errors, numbers = _convert_row(values, self._left, widths)
        if row + 1 < (self._options.header_row or 1) or not (errors or any(map(str.strip, cells))):
            return None
        if self._has_header:
            self.rows += 1
            self._fill(row, cells, errors, numbers)
            if _WHOLE_ROW in widths:
                self.hidden_rows += 1
                if self._options.skips_hidden:
                    return None
        else:
            self._has_header = True
            self.hidden_columns = [at for at in self.hidden_columns if 0 <= at < len(cells) and cells[at].strip()]
            for (first, column), (last, _) in self._merged:
                if row < first < last:  # below the header, and over several rows
                    self._starts.setdefault(first, []).append((last, column - self._left))
        if max(map(len, cells), default=0) > MAX_CELL_LENGTH:
            what = f"row {row + 1} has a cell of more than {MAX_CELL_LENGTH:,} characters"
            raise UnreadableWorkbook(f"{what}; shorten or clear the cell")
        line = _ENCODER.encode((row + 1, cells, errors, numbers)).encode()
        if len(line) >= MAX_ROW_SIZE:
            raise UnreadableWorkbook(f"row {row + 1} is longer than {MAX_ROW_SIZE:,} bytes; check that the sheet is a table")
        return line + b"\n"

    def _take_widths(self, row: int) -> dict[int, int]:
        """Return the widths of the marked cells of a row, by column."""
        widths: dict[int, int] = {}
        while self._mark is not None and self._mark.row <= row:
            if self._mark.row < 0:
                self.hidden_columns.append(self._mark.column - self._left)
            else:
                widths[self._mark.column] = self._mark.width
            self._mark = next(self._marks, None)
        return widths

    def _fill(self, row: int, cells: list[str], errors: list[int], numbers: list[int]) -> None:
        """Give each row of merged cells their value, which a workbook stores in the first of these rows."""
        for column, (last, cell, is_error, is_number) in [*self._open.items()]:
            if row > last:
                del self._open[column]
            elif not cells[column].strip() and column not in errors:  # some programs keep the cells that others cover
                cells[column] = cell
                errors += [column] * is_error
                numbers += [column] * is_number
        for last, column in self._starts.get(row, ()):
            if column < len(cells) and (cells[column] or column in errors):
                self._open[column] = (last, cells[column], column in errors, column in numbers)
                self.merged += 1


def _open_archive(file: BinaryIO) -> zipfile.ZipFile | None:
    try:
        archive = zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        return None
    unpacked, size = sum(part.file_size for part in archive.infolist()), file.seek(0, os.SEEK_END)
    if unpacked > max(_ALLOWED_SIZE, _MAX_RATIO * size):
        growth = f"{unpacked:,} bytes, {unpacked // size:,} times its size"
        raise UnreadableWorkbook(f"the archive unpacks to {growth}; save the sheet as CSV")
    return archive


def _choose_sheet(book: Any, requested: str | None) -> tuple[str, str]:
    from python_calamine import SheetTypeEnum, SheetVisibleEnum

    names = [sheet.name for sheet in book.sheets_metadata if sheet.typ == SheetTypeEnum.WorkSheet]
    if requested is not None:
        if requested not in names:
            raise UnreadableWorkbook(f"no sheet {requested!r}; {_suggest_sheets(names)}")
        return requested, ""
    hidden = [sheet.name for sheet in book.sheets_metadata if sheet.visible != SheetVisibleEnum.Visible]
    name = next((name for name in names if name not in hidden), None)
    if name is None:
        raise UnreadableWorkbook(f"no visible sheet; {_suggest_sheets(names)}")
    others = [_quote(other) for other in names if other != name]
    return name, f"sheet {name!r} was read; to read another, pass one of these as --sheet: {', '.join(others)}" if others else ""


def _quote(name: str) -> str:
    """Quote a name for a shell, also if that is not necessary, so that it ends where the list goes on."""
    return "'" + name.replace("'", "'\"'\"'") + "'"


def _suggest_sheets(names: Sequence[str]) -> str:
    return f"pass one of these as --sheet: {', '.join(map(_quote, names))}" if names else "add a sheet with a table"


def _convert_row(values: Sequence[Any], left: int, widths: dict[int, int]) -> tuple[list[str], list[int], list[int]]:
    """Return the `cells`, `errors` and `numbers` of a row; see `read_workbook`."""
    cells = [value if isinstance(value, str) else to_string(value) for value in values]
    errors, numbers = [], []
    for at, value in enumerate(values):
        width = widths.get(at + left)
        if width == 0:
            errors.append(at)
        if width and cells[at].isdigit():
            cells[at] = cells[at].zfill(width)
        if width is None and isinstance(value, int | float) and cells[at].lstrip("-").isdigit():
            numbers.append(at)
    return cells, errors, numbers


_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def to_string(value: Any) -> str:
    """Convert a value to a string, as a spreadsheet shows it; a date or time in ISO 8601."""
    match value:
        case bool():  # before numbers: a bool is an int
            return str(value).upper()
        case int() | float():  # at most 15 digits, a whole number without `.0` and without an exponent
            return str(int(value)) if float(value).is_integer() else format(value, ".15g")
        case timedelta():  # hours may exceed 24
            seconds = round(value.total_seconds())
            sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
            return f"{sign}{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        case _:
            return str(value.isoformat())


# An XLSX file also states which cells are errors, and which cells show leading zeros. python-calamine ignores this: it reads an
# error as blank, and 00123 as 123.


class CellMark(NamedTuple):
    """A cell that contains an error, or whose number format consists only of zeros; or a hidden row or column."""

    row: int  # from 0; less for a hidden column
    column: int  # from 0; less for a hidden row
    width: int  # minimum number of digits that the cell shows; 0 for a cell that contains an error


def read_marks(archive: zipfile.ZipFile, sheet: str) -> Iterator[CellMark]:
    try:
        widths = _read_widths(archive)
        with archive.open(_find_part(archive, sheet)) as part:
            yield from _parse_marks(part, widths)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, RuntimeError, expat.ExpatError) as error:
        raise UnreadableWorkbook(f"cannot read sheet {sheet!r} ({error}); save the workbook again") from error


def _find_part(archive: zipfile.ZipFile, sheet: str) -> str:
    with archive.open(_WORKBOOK) as file:
        sheets = [attributes for _, attributes in _parse_elements(file, "sheet") if attributes.get("name") == sheet]
    relation = sheets[0].get(_RELATION) or sheets[0][_STRICT_RELATION] if sheets else ""
    with archive.open(_RELATIONS) as file:
        targets = {attributes.get("Id"): attributes.get("Target", "") for _, attributes in _parse_elements(file, "Relationship")}
    target = targets[relation]
    return target.removeprefix("/") if target.startswith("/") else f"xl/{target}"


def _read_widths(archive: zipfile.ZipFile) -> dict[str, int]:
    """Return the minimum number of digits for each style whose number format consists only of zeros."""
    if _STYLES not in archive.namelist():
        return {}
    formats: dict[str | None, int] = {}
    widths: dict[str, int] = {}
    kind, style = "", 0
    with archive.open(_STYLES) as file:
        for name, attributes in _parse_elements(file, "numFmt", "cellXfs", "cellStyleXfs", "dxfs", "xf"):
            if name == "numFmt":
                code = attributes.get("formatCode", "")
                formats[attributes.get("numFmtId")] = len(code) if _ZEROS_FORMAT.fullmatch(code) else 0
            elif name != "xf":
                kind = name
            elif kind == "cellXfs":
                if width := formats.get(attributes.get("numFmtId")):
                    widths[str(style)] = width
                style += 1
    return widths


def _parse_marks(file: IO[bytes], widths: dict[str, int]) -> Iterator[CellMark]:
    row, column = -1, -1
    for name, attributes in _parse_elements(file, "col", "row", "c"):
        is_hidden = name != "c" and attributes.get("hidden") in {"1", "true"}
        if name == "col":
            columns = range(int(attributes["min"]) - 1, min(int(attributes["max"]), _MAX_COLUMNS)) if is_hidden else ()
            yield from (CellMark(-1, each, 0) for each in columns)
            continue
        if name == "row":
            row, column = int(attributes.get("r", row + 2)) - 1, -1
            if is_hidden:
                yield CellMark(row, _WHOLE_ROW, 0)
            continue
        letters = attributes.get("r", "").rstrip("0123456789")  # of a reference such as `B3`
        column = column + 1 if "r" not in attributes else -1
        for letter in letters:
            column = (column + 1) * 26 + ord(letter) - ord("A")
        if attributes.get("t") == "e":
            yield CellMark(row, column, 0)
        elif width := widths.get(attributes.get("s", "")):
            yield CellMark(row, column, width)


def _parse_elements(file: IO[bytes], *wanted: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Parse XML, and yield the local name and attributes of each element whose local name is in `wanted`."""
    elements: list[tuple[str, dict[str, str]]] = []
    parser = expat.ParserCreate(namespace_separator=" ")

    def begin(name: str, attributes: dict[str, str]) -> None:
        if (local := name.rpartition(" ")[2]) in wanted:
            elements.append((local, attributes))

    parser.StartElementHandler = begin
    while block := file.read(_BLOCK_SIZE):
        parser.Parse(block, False)
        yield from elements
        elements.clear()


# The process


def run_reporting_errors(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of `work`. If `work` raises an exception, return `{"refused": reason}` instead."""
    try:
        return work()
    except UnreadableWorkbook as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": TOO_LARGE}
    except OSError as error:
        remedy = "free disk space, or save the sheet as CSV"
        return {"refused": f"cannot store the rows in a temporary file ({error.strerror}); {remedy}"}
    except BaseException as error:  # noqa: BLE001 - a panic of python-calamine is not an Exception
        return {"refused": f"not a readable workbook ({type(error).__name__}: {error}); save it again, or as CSV"}


def encode_result(result: dict[str, Any]) -> bytes:
    """Return a result as a line of JSON. Long strings are truncated."""
    short = {name: value[:_MAX_MESSAGE_LENGTH] if isinstance(value, str) else value for name, value in result.items()}
    return json.dumps(short).encode() + b"\n"


def main() -> None:  # pragma: no cover - it runs in a separate process
    parameters = json.loads(sys.argv[1])
    sys.path[:] = parameters["path"]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller handles Ctrl-C, and ends this process
    answer = os.dup(2)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # python-calamine prints panics to standard error

    def leave(reason: str) -> None:
        try:
            os.write(answer, encode_result({"refused": reason}))
        finally:  # the write fails if the caller has exited
            os._exit(1)  # this is a thread: SystemExit would end only the thread

    with open(0, "rb", closefd=False) as file, open(1, "wb", closefd=False) as rows:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        limit_resources(size)
        most = max(MAX_MEMORY, peak_memory())  # on Linux the peak includes the caller's, because this process began as its copy
        threading.Thread(target=watch_process, args=(parameters["parent"], most, leave), daemon=True).start()

        def work() -> dict[str, Any]:
            more_time = 10 * processor_seconds(size)
            options = SheetOptions(*parameters["options"])
            result = read_workbook(file, options, rows.write, lambda: limit_processor_time(more_time))
            rows.flush()
            return result

        os.write(answer, encode_result(run_reporting_errors(work)))


if __name__ == "__main__":  # pragma: no cover - it runs in a separate process
    main()
