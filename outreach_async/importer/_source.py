"""Read a file from a path or a stream, as bytes or as lines of text.

The encoding of text is detected if the caller does not specify it. A stream is copied to a temporary file, because the bytes are
read more than once.
"""

from __future__ import annotations

import codecs
import gzip
import io
import os
import re
import sys
import tempfile
import time
import unicodedata
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partial
from hashlib import blake2b, file_digest
from io import TextIOWrapper
from itertools import pairwise
from pathlib import Path
from stat import S_ISREG
from threading import Lock
from typing import BinaryIO, Final, Protocol, TypeAlias, cast, runtime_checkable
from weakref import finalize

import attrs

from outreach_async._plumbing import show_name
from outreach_async.errors import InvalidRequest, format_count

# Bytes.

STDIN: Final = "-"  # the path that means standard input

_BLOCK_SIZE: Final = 1 << 18
_PIPE_WAIT: Final = 1.0  # seconds for which a named pipe waits for a program that writes to it
_GZIP_MAGIC: Final = b"\x1f\x8b"


class BinaryStream(Protocol):
    """A stream from which bytes can be read."""

    def read(self, size: int, /) -> bytes: ...


@runtime_checkable
class StoredFile(Protocol):
    r"""A file that is not on a disk, such as an object of a store.

    It can be read any number of times. `open_file` takes one. Its `name`
    is for messages, and `open` returns a stream that can seek.

    Example:
        ```python
        from io import BytesIO


        class People:
            name = "the people"

            def open(self):
                return BytesIO(b"E-mail\nann@company.example\n")


        print(open_file(People(), format="csv").count())  # -> 1
        ```
    """

    name: str

    def open(self) -> BinaryIO:
        """Open the file at its first byte."""


class InputChanged(InvalidRequest):
    r"""An input file has changed, or been replaced, since it was opened.

    Attributes:
        what: What has changed, without a remedy.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        file = open_file("people.csv")
        Path("people.csv").write_text("E-mail\n")
        try:
            file.count()
        except InputChanged as error:
            print(error.what.partition(": it")[0])  # -> people.csv: the file changed after it was opened
        ```
    """

    def __init__(self, what: str, remedy: str = "read a copy that no program changes") -> None:
        super().__init__(f"{what}; {remedy}")
        self.what = what


class SharedFile:
    """An open file that can be read any number of times. It is closed when this object is deleted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        finalize(self, file.close)
        self._lock = Lock()  # readers share the file position, so each seeks and reads under the lock

    @contextmanager
    def lend_descriptor(self) -> Iterator[int]:
        # The other process can move the position of the descriptor, so reads by this process wait for the `with` block to end.
        with self._lock:
            self._file.flush()  # empties the buffer, so that the next seek calls the operating system
            yield self._file.fileno()

    def open(self) -> BinaryIO:
        return io.BufferedReader(_SharedFileReader(self))

    def read_at(self, position: int, buffer: memoryview) -> int:
        with self._lock:
            self._file.seek(position)
            return self._file.readinto(buffer)  # type: ignore[attr-defined,no-any-return]  # typeshed's BinaryIO lacks it

    def size(self) -> int:
        with self._lock:
            return self._file.seek(0, io.SEEK_END)


class StreamCopy(SharedFile):
    """A copy of a stream in an unnamed temporary file, which is removed when the process exits, even after a crash."""

    def __init__(self, stream: BinaryStream | None = None, start: bytes = b"") -> None:
        super().__init__(cast("BinaryIO", tempfile.TemporaryFile()))  # noqa: SIM115 - it lives as long as this object
        self._file.write(start)
        while stream is not None and (block := stream.read(_BLOCK_SIZE)):
            self._file.write(block)


class _InputFile(SharedFile):
    """A file of the caller. Every read fails after the file has changed, so that rows of two versions are never mixed."""

    def __init__(self, name: str, file: BinaryIO) -> None:
        super().__init__(file)
        self._name = name
        self._opened = os.fstat(file.fileno())

    @contextmanager
    def lend_descriptor(self) -> Iterator[int]:
        with super().lend_descriptor() as descriptor:
            yield descriptor
        self._require_unchanged()

    def read_at(self, position: int, buffer: memoryview) -> int:
        count = super().read_at(position, buffer)
        self._require_unchanged()  # after the read: a write updates the time of the file before its bytes can be read
        return count

    def _require_unchanged(self) -> None:
        before, now = self._opened, os.fstat(self._file.fileno())
        changed = f"{self._name}: the file changed after it was opened"
        if before.st_size != now.st_size:
            raise InputChanged(f"{changed}: it had {before.st_size:,} bytes, and has {now.st_size:,}")
        if before.st_mtime_ns != now.st_mtime_ns:
            raise InputChanged(f"{changed}: its modification time has changed")


class _SharedFileReader(io.RawIOBase):
    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a BufferedReader passes no other buffer
        count = self._file.read_at(self._position, buffer)
        self._position += count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size()}[whence]
        return self._position


class _FileStart(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._rest = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]  # a BufferedReader passes no other buffer
        block = self._file.read(min(len(buffer), self._rest))
        buffer[: len(block)] = block
        self._rest -= len(block)
        return len(block)


@attrs.frozen
class ByteSource:
    """The bytes of an input, which can be read any number of times. A file is opened once, so all reads see the same file."""

    name: str
    path: Path | None
    is_gzip: bool
    stored: StoredFile | SharedFile
    _end: int | None = None
    """The number of bytes of text, if others follow."""

    @classmethod
    def of(cls, file: FileInput) -> ByteSource:
        """Open an input. Standard input, pipes and streams can be read only once, so they are copied to a temporary file."""
        if not isinstance(file, Path) and isinstance(file, StoredFile):
            return cls._of_stored(file.name, file)
        if not isinstance(file, str | Path):
            return cls._from_stream(file, "the stream")
        if str(file) == STDIN:
            return cls._from_stream(sys.stdin.buffer, "standard input")
        path = Path(file)
        if path.is_dir():
            raise InvalidRequest(f"{path}: expected a file, got a folder; pass the path of a file")
        with translate_read_errors(str(path)):
            if path.is_fifo():
                return cls._from_pipe(path)
            opened = path.open("rb", buffering=0)  # the readers have buffers
            if S_ISREG(os.fstat(opened.fileno()).st_mode):
                return cls._of_stored(str(path), _InputFile(str(path), cast("BinaryIO", opened)), path)
            with opened:
                return cls._from_stream(cast("BinaryStream", opened), str(path))

    @classmethod
    def _from_stream(cls, stream: BinaryStream, name: str, start: bytes = b"") -> ByteSource:
        with translate_read_errors(name):
            return cls._of_stored(name, StreamCopy(stream, start))

    @classmethod
    def _from_pipe(cls, path: Path) -> ByteSource:
        # Opening a pipe to which no program writes would wait, and no signal would end the process.
        until = time.monotonic() + _PIPE_WAIT
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as pipe:
            # `None` if a program has the pipe open, but has not written yet.
            while (start := pipe.read(_BLOCK_SIZE)) == b"" and time.monotonic() < until:
                time.sleep(_PIPE_WAIT / 100)
            if start == b"":
                raise InvalidRequest(f"{path}: no program writes to this named pipe; start one first, or pass a file")
            os.set_blocking(pipe.fileno(), True)
            return cls._from_stream(cast("BinaryStream", pipe), str(path), start or b"")

    @classmethod
    def _of_stored(cls, name: str, stored: StoredFile | SharedFile, path: Path | None = None) -> ByteSource:
        with translate_read_errors(name), stored.open() as file:
            return cls(name, path, file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC, stored)

    @contextmanager
    def open_raw(self) -> Iterator[BinaryIO]:
        with translate_read_errors(self.name), self.stored.open() as file:
            yield file

    @contextmanager
    def open_unpacked(self, offset: int = 0) -> Iterator[BinaryIO]:
        with self.open_raw() as file, gzip.GzipFile(fileobj=file) if self.is_gzip else nullcontext(file) as unpacked:
            whole = cast("BinaryIO", unpacked)
            whole.seek(offset)
            yield whole if self._end is None else cast("BinaryIO", io.BufferedReader(_FileStart(whole, self._end - offset)))

    @contextmanager
    def lend_descriptor(self) -> Iterator[int]:
        """Yield a file descriptor with which another process can read the stored bytes, after a seek to the start."""
        with translate_read_errors(self.name), ExitStack() as stack:
            stored = self.stored
            if not isinstance(stored, SharedFile):  # another process can read a copy
                stored = StreamCopy(stack.enter_context(stored.open()))
            yield stack.enter_context(stored.lend_descriptor())

    def fingerprint(self) -> str:
        """Return a digest of the bytes as stored, without decompressing them."""
        with self.open_raw() as file:
            return file_digest(cast("io.BufferedReader", file), partial(blake2b, digest_size=16)).hexdigest()

    def require_path(self) -> None:
        """Check that no other file has replaced the file. A file that was only moved or deleted is not replaced."""
        with self.lend_descriptor() as descriptor:
            opened = os.fstat(descriptor)
        with suppress(OSError):
            if self.path is not None and not os.path.samestat(self.path.stat(), opened):
                raise InputChanged(f"{self.name}: another file has replaced the file that was opened")


FileInput: TypeAlias = str | Path | BinaryStream | StoredFile
"""An input to open: a path, `"-"` for standard input, a stream, a stored file, or a source."""


@contextmanager
def translate_read_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidRequest(f"{name}: damaged gzip file ({error}); download or create it again") from error
    except OSError as error:
        raise InvalidRequest(f"{name}: {error.strerror or error}; pass a readable file") from error


# Text.

UTF_8: Final = "utf-8-sig"

# UTF-32 comes before UTF-16, because the UTF-32 mark begins with the UTF-16 mark.
_BYTE_ORDER_MARKS: Final = (
    (codecs.BOM_UTF8, UTF_8, "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
_HEAD_SIZE: Final = 512
MAX_LINE_LENGTH: Final = 1 << 24  # characters: a file without line breaks must not fill the memory


def open_text(source: ByteSource, requested: str | None) -> tuple[ByteSource, str, tuple[str, ...]]:
    """Return a source without the bytes behind its text, Python's name for its encoding, and notes for the user."""
    codec, notes = _detect_encoding(source, requested)
    if source.is_gzip:
        return source, codec, notes
    unit = 4 if "32" in codec else 2 if "16" in codec else 1  # bytes of a character
    with source.open_raw() as file:
        size, end = file.seek(0, io.SEEK_END), _find_end(file)
    end = min(size, -(-end // unit) * unit)
    if size - end < unit or not end:
        return source, codec, notes
    note = f"{format_count(size - end, 'byte')} after the text, such as NUL, ignored; check that the last line is complete"
    return attrs.evolve(source, end=end), codec, (*notes, note)


def _find_end(file: BinaryIO) -> int:
    """Return the position behind the last byte of text. NUL may follow after a crash, and Ctrl-Z in files of DOS programs."""
    end = file.seek(0, io.SEEK_END)
    while end:
        start = max(end - _BLOCK_SIZE, 0)
        file.seek(start)
        if block := file.read(end - start).rstrip(b"\0\x1a"):
            return start + len(block)
        end = start
    return 0


def _detect_encoding(source: ByteSource, requested: str | None) -> tuple[str, tuple[str, ...]]:
    """Return Python's name for the encoding of a file, and notes on how the encoding was determined."""
    codec = None
    try:
        if requested is not None:
            "".encode(requested)  # fails for codecs that are not text encodings, such as base64, which codecs.lookup accepts
            codec = codecs.lookup(requested).name
    except (LookupError, ValueError):
        remedy = "use, for example, cp1252, latin-1 or utf-16"
        raise InvalidRequest(f"encoding: expected a text encoding, got {show_name(requested)}; {remedy}") from None
    with source.open_unpacked() as file:
        head = file.read(_HEAD_SIZE)
    for mark, own, name in _BYTE_ORDER_MARKS:
        if head.startswith(mark):
            if codec is not None and not codec.startswith(name.lower()):
                raise InvalidRequest(f"{source.name}: expected {requested!r}, got the byte order mark of {name}; omit --encoding")
            return own, () if own == UTF_8 else (f"encoding {name}, from the byte order mark",)
    if codec is None and is_utf16_like(head):  # no byte order mark: decoded as UTF-8, each letter would be next to a NUL
        guess = "utf-16-be" if head.startswith(b"\0") else "utf-16-le"
        raise InvalidRequest(f"{source.name}: every other byte is zero, as in UTF-16; pass its encoding: --encoding {guess}")
    if codec is None or codec == "utf-8":
        return UTF_8, ()
    return codec, (f"encoding {requested}, as specified",)


def is_utf16_like(head: bytes) -> bool:
    """Return whether about every other byte is zero, as in UTF-16 without a byte order mark."""
    return head.count(b"\0") * 3 > len(head) and b"\0\0" not in head


def undecodable_error(source: ByteSource, codec: str) -> InvalidRequest:
    """Return an error that locates the first undecodable byte, and shows the encodings that can decode the file."""
    if (fault := _find_fault(source, codec)) is None:  # the codec expects a byte order mark and finds none
        return InvalidRequest(f"{source.name}: expected a byte order mark, got none; pass --encoding {codec}-le or {codec}-be")
    line, byte, mixed = fault
    what = f"{source.name}: line {line} is not {'UTF-8' if codec == UTF_8 else codec} text (byte 0x{byte:02x})"
    if mixed and codec == UTF_8:  # in other encodings, nearly every byte is valid
        return InvalidRequest(f"{what}, but earlier lines with non-ASCII characters are; correct the line in a text editor")
    with source.open_unpacked() as file:
        candidates = _describe_candidates(file)
    choice = f", or pass the encoding that reads its cells correctly: {candidates}" if candidates else ""
    return InvalidRequest(f"{what}; save the file as UTF-8{choice}")


def _find_fault(source: ByteSource, codec: str) -> tuple[int, int, bool] | None:
    """Return the line and the value of the first undecodable byte, and whether earlier lines are not ASCII."""
    is_mixed = False
    # A missing byte order mark raises an error, which is not passed to the error handler.
    with suppress(UnicodeError), source.open_unpacked() as file, TextIOWrapper(file, codec, _MARK_FAULTS, newline="") as text:
        for number, line in enumerate(iter(partial(text.readline, MAX_LINE_LENGTH), ""), 1):
            if fault := _FAULT.search(line):
                return number, ord(fault[0]) - 0xDC00, is_mixed
            is_mixed = is_mixed or not line.isascii()
    return None


_MARK_FAULTS: Final = "outreach_async.mark"  # the name of an error handler: like surrogateescape, but for every encoding
_FAULT: Final = re.compile("[\udc00-\udcff]")
codecs.register_error(_MARK_FAULTS, lambda error: (chr(0xDC00 + error.object[error.start]), error.end))  # type: ignore[attr-defined]  # of decoding


def read_lines(source: ByteSource, codec: str, span: Span | None = None) -> Generator[str]:
    """Yield the lines with their line endings, which may be LF, CR LF, or CR (classic Mac OS)."""
    number, offset = (0, 0) if span is None else (span.lines, span.offset)
    codec = codec.removesuffix("-sig") if offset else codec  # a mark within the text belongs to it
    try:
        with source.open_unpacked(offset) as file, TextIOWrapper(file, encoding=codec, newline="") as text:
            while line := text.readline(MAX_LINE_LENGTH):
                number += 1
                if number == 1:
                    line = line.lstrip("\ufeff")
                if len(line) == MAX_LINE_LENGTH:
                    limit = f"{MAX_LINE_LENGTH:,} characters"
                    raise InvalidRequest(f"{source.name}: line {number} is longer than {limit}; check that the file is a table")
                yield line
    except UnicodeError:
        raise undecodable_error(source, codec) from None


# Spans: a text is divided where a row begins.


@attrs.frozen
class Span:
    r"""Consecutive rows of a text file, readable without those before them.

    Attributes:
        offset: Number of bytes before the first row.
        lines: Number of lines before the first row.
        rows: Number of rows.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\nbo@acme.example\n")
        print([part.span for part in open_file("people.csv").split(2)][1])  # -> Span(offset=27, lines=2, rows=1)
        ```
    """

    offset: int
    lines: int
    rows: int


class CountedLines(Iterator[str]):
    """The lines of a text. It counts the lines that were read, and their bytes."""

    def __init__(self, source: ByteSource, codec: str) -> None:
        self.count, self.offset = 0, 0
        with source.open_unpacked() as file:
            while codec == UTF_8 and file.read(len(codecs.BOM_UTF8)) == codecs.BOM_UTF8:  # which `read_lines` removes
                self.offset += len(codecs.BOM_UTF8)
        self._lines = read_lines(source, codec)
        self._is_utf_8 = codec == UTF_8

    def __next__(self) -> str:
        line = next(self._lines)
        self.count += 1
        self.offset += len(line.encode()) if self._is_utf_8 and not line.isascii() else len(line)
        return line

    def close(self) -> None:
        self._lines.close()


def can_divide(source: ByteSource, codec: str) -> bool:
    """Return whether a text can be read from the begin of any line, because a character is always the same bytes."""
    if source.is_gzip:
        return False
    every = bytes(range(1 << 8)).decode(codec, "replace")  # UTF-8, or an encoding with one byte per character
    return len(every) == 1 << 8 and every.startswith(_ASCII.decode())


# Encodings.

# Nearly every encoding with one byte per character can decode nearly every file, and statistics cannot tell two of them apart:
# the Polish `Łukasz` in Windows-1250 is `£ukasz` in Windows-1252. Only a person who knows the names can choose, so no encoding is
# guessed: impossible ones are left out, and implausible ones come last.
_ENCODINGS: Final = (
    *("utf-8", "cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "iso8859_2"),
    *("cp932", "gb18030", "euc_kr", "big5", "mac_roman", "cp852", "cp850"),
)
"""Encodings of spreadsheet programs and CRMs, the most common ones first. cp850 and cp852 are those of `CSV (MS-DOS)`."""
_ASCII: Final = bytes(range(0x80))
_MAX_SHOWN: Final = 6
_MAX_LENGTH: Final = 40  # characters of a sample cell that are shown
_MAX_SAMPLES: Final = 3  # cells that are shown for each encoding
_MAX_EVIDENCE_LINE, _MAX_EVIDENCE = 1 << 14, 1 << 17  # bytes of a line, and of all lines, that are decoded: the search is fast
_IMPOSSIBLE: Final = frozenset({"Cc", "Cn", "Co"})  # no text has control characters, or characters without a meaning
_TYPOGRAPHIC: Final = frozenset("\xa0€°«»‘’‚“”„•–—…ºª")  # noqa: RUF001 - as programs write them
_CELL: Final = re.compile(r'[^,;|"\t\r\n]+')
_WORD: Final = re.compile(r"[^\W\d_]+")
_MAX_ACCENTED: Final = 2  # letters of a Latin word that may have mostly accents, such as `où`


def _describe_candidates(file: BinaryIO) -> str:
    """Return an option for each encoding that can decode a file, with cells that it reads. The most plausible six are listed."""
    # Encodings that decode the file to the same text are listed once. The file is read to its end.
    evidence = _collect_evidence(file)
    texts: dict[str, str] = {}
    for encoding in _ENCODINGS if b"\0" not in evidence else ():
        try:
            text = evidence.decode(encoding)
        except UnicodeDecodeError:
            continue
        if not any(unicodedata.category(char) in _IMPOSSIBLE for char in set(text) if not char.isascii()):
            texts.setdefault(text, encoding)

    def count_oddities(text: str) -> int:
        symbols = sum(not char.isascii() and not char.isalpha() and char not in _TYPOGRAPHIC for char in text)
        return symbols + sum(map(_is_odd, _WORD.findall(text)))

    best = sorted(texts, key=count_oddities)[:_MAX_SHOWN]
    samples = _choose_samples(best) if best else ()
    return "; ".join(
        f"--encoding {texts[text]} reads {' and '.join(show_name(cell.strip(), _MAX_LENGTH) for cell in cells)}"
        for text, cells in zip(best, samples, strict=True)
    )


def _collect_evidence(file: BinaryIO) -> bytes:
    """Return the lines that contain a non-ASCII byte that no earlier line contains."""
    # Two encodings with one byte per character that decode these lines equally also decode the whole file equally.
    seen: set[int] = set()
    lines: list[bytes] = []
    while sum(map(len, lines)) < _MAX_EVIDENCE and (line := file.readline(_MAX_EVIDENCE_LINE)):
        if not line.isascii() and not seen.issuperset(new := line.translate(None, _ASCII)):
            seen.update(new)
            lines.append(line)
    return b"".join(lines)


def _is_odd(word: str) -> bool:
    """Return whether a word mixes scripts, has an unusual capital letter, or consists mostly of letters with accents."""
    if word.isascii():
        return False
    scripts = {unicodedata.name(char, "").partition(" ")[0] for char in word}
    scripts -= {"COMBINING", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}
    if len(scripts) > 1 or "HALFWIDTH" in scripts:
        return True
    if scripts == {"LATIN"} and sum(map(str.isascii, word)) * 2 < len(word) > _MAX_ACCENTED:
        return True
    return any(before.islower() and after.isupper() for before, after in pairwise(word))


def _choose_samples(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the same few cells of each text: short ones, chosen so that no two texts have the same cells."""
    cells = list(zip(*map(_CELL.findall, texts), strict=False))  # multi-byte encodings may have other cells near the end
    samples: list[tuple[str, ...]] = [()] * len(texts)

    def rate(cell: Sequence[str]) -> tuple[bool, bool, int, int]:
        readings = len(set(zip(samples, cell, strict=True)))
        return readings > len(set(samples)), max(map(len, cell)) <= _MAX_LENGTH, readings, len(set("".join(cell)))

    for _ in range(_MAX_SAMPLES):
        cell = max(cells, key=rate)
        samples = [(*chosen, reading) for chosen, reading in zip(samples, cell, strict=True)]
        if len(set(samples)) == len(texts):
            break
    return samples
