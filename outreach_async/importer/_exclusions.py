"""Read lists of people who must not be written to, and add people to lists that keep no addresses."""

from __future__ import annotations

import hmac
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from secrets import token_hex
from types import SimpleNamespace
from typing import Any, Final

from outreach_async._plumbing import contact_key, is_blank, show_name
from outreach_async.bulk import Exclusions
from outreach_async.errors import InvalidRequest
from outreach_async.importer._columns import ColumnMapper
from outreach_async.importer._formats import detect_by_content, open_file
from outreach_async.importer._known_exports import fold_name
from outreach_async.importer._mapping import is_address
from outreach_async.importer._rows import PLAIN, Oddity
from outreach_async.importer._source import ByteSource, open_text, read_lines, translate_read_errors
from outreach_async.importer._table import read_records

_ADDRESSES: Final = re.compile(r"""[^\s<>()\[\],;:|"]+@[^\s<>()\[\],;:|"=']+""")
_DOMAINS: Final = frozenset({"domain", "domains", "emaildomain", "companydomain", "domaine", "dominio", "domane", "domein"})
_COMMENT: Final = re.compile(r"\s*#(?!(?:N/A|[A-Z/0]+[!?])$)")  # no error of a spreadsheet
_MADE: Final = "# made with the key "
_NUMBER: Final = re.compile(r" \(\d+\)$")  # of a column whose name occurs more than once


def read_exclusions(path: str | Path) -> Exclusions:
    r"""Read a list of people who must not be written to.

    It is a file as `open_file` reads it, with columns of e-mails, or of
    domains for rows without an e-mail; or text with an e-mail, a domain or
    a mark a line. Blank lines and lines that begin with `#` are skipped.
    Each row excludes its person, with the addresses of columns such as
    Secondary Email, whatever its other columns say. `*@` and `www.` before
    a domain do not count. The key of marks is in the file `PATH.key`; see
    `add_exclusions`.

    Raises:
        InvalidRequest: The list or its key cannot be read, the key is that
            of another list, a line is none of these, a cell has several
            values or an error, or a workbook has several sheets. A list
            without any entry is refused, too.

    Example:
        ```python
        Path("blocked.csv").write_text("E-mail,Domain\nann@company.example,\n,acme.example\n")
        report = await client.contacts.create_many([{"email": "bo@acme.example"}], exclude=read_exclusions("blocked.csv"))
        print(report.outcomes["excluded"])  # -> 1
        ```
    """
    found = Exclusions(name=Path(path).name, key=_read_key(path))
    for place, text in read_entries(Path(path), every_address=True):
        try:
            found.add(text)
        except InvalidRequest as error:
            what = str(error).removeprefix(f"{found.name}: ").rpartition("; ")[0]
            remedy = f"restore its key {path}.key" if what.endswith("got a mark") else "correct or remove it"
            raise InvalidRequest(f"{path}, {place}: {what}; {remedy}") from None
    if not found:
        raise InvalidRequest(f"{path}: expected e-mails and domains, got none; add them, or do not pass the list")
    return found


def add_exclusions(path: str | Path, emails: Iterable[str]) -> int:
    r"""Add marks of e-mails to a list, and return how many were new.

    Marks are those of `Exclusions.mark`. Their key is in the file
    `PATH.key`, which only this user can read. Both files are created if
    there is none. Keep the key: without it, the list is of no use.

    Raises:
        InvalidRequest: A value is no e-mail, or the list has no key.
        OSError: A file cannot be written.

    Example:
        ```python
        print(add_exclusions("forgotten.txt", ["ann@company.example"]), add_exclusions("forgotten.txt", ["Ann@Company.example"]))
        # -> 1 0
        ```
    """
    place, given = Path(path), [*emails]
    if not all(is_address(contact_key(email)) for email in given):
        raise InvalidRequest(f"{path}: expected e-mails, got a text that is none; correct it")
    has_marks = place.exists() and place.stat().st_size > 0
    if (key := _read_key(path)) is None:
        if has_marks:
            raise InvalidRequest(f"{path}: expected a list of marks, whose key is in {path}.key, got none; pass another file")
        with open(f"{path}.key", "x", encoding="ascii", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(f"{token_hex(32)}\n")
        key = _read_key(path) or b""
    listed = read_exclusions(path) if has_marks else Exclusions(key=key)
    known = listed.find(given)
    new = dict.fromkeys(listed.mark(email) for at, email in enumerate(given) if at not in known)
    marks = "" if has_marks else f"{_MADE}{_prove(key)}\n"
    marks += "".join(f"{mark}\n" for mark in new)
    with place.open("a+b") as stream:  # others may add marks at the same time
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - 1))
        stream.write((b"" if stream.read(1) in {b"", b"\n"} else b"\n") + marks.encode())
        stream.flush()
        os.fsync(stream.fileno())
    return len(new)


def _read_key(path: str | Path) -> bytes | None:
    place = Path(f"{path}.key")
    with translate_read_errors(str(place)):
        key = place.read_bytes().strip() if place.exists() else None
    if key == b"":
        has_marks = Path(path).exists() and Path(path).stat().st_size > 0
        remedy = "restore it" if has_marks else "delete it, because the list has no marks yet"
        raise InvalidRequest(f"{place}: expected the key of the list, got a blank file; {remedy}")
    if key is not None and Path(path).exists():  # with another key, the list would exclude nobody
        with translate_read_errors(str(path)), Path(path).open("rb") as file:
            line = file.readline().decode(errors="replace").strip()
        if line.startswith(_MADE) and line != f"{_MADE}{_prove(key)}":
            raise InvalidRequest(f"{path}: expected the key with which the list was made, got another one in {place}; restore it")
    return key


def _prove(key: bytes) -> str:
    return hmac.digest(key, b"", "sha256").hex()[:16]


def read_entries(path: Path, *, every_address: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the entries, each with its place; with `every_address`, also the addresses of columns such as Secondary Email."""
    try:
        yield from _read_entries(ByteSource.of(path), every_address=every_address)
    except InvalidRequest as error:
        what, _, remedy = str(error).partition("; ")
        if " --" not in remedy:
            raise
        # The options of the command say how its input is read, and not a list.
        raise InvalidRequest(f"{what}; save the list in UTF-8, as CSV with the column names in the first line") from None


def _read_entries(source: ByteSource, *, every_address: bool) -> Iterator[tuple[str, str]]:
    header_row = None
    with source.open_unpacked() as file:
        is_text = detect_by_content(file.read(512)) == "csv"
    if is_text:
        text, codec, _ = open_text(source, None)
        numbered = ((number, line.strip()) for number, line in enumerate(read_lines(text, codec), 1))
        lines = ((number, line) for number, line in numbered if line and not _COMMENT.match(line))
        if (first := next(lines, None)) is None:
            return
        if _is_entry(first[1]):
            yield from ((f"line {number}", each) for number, line in chain([first], lines) for each in _split(line))
            return
        header_row = first[0] if first[0] > 1 else None
    yield from _read_table(source, header_row, every_address=every_address)


def _read_table(source: ByteSource, header_row: int | None, *, every_address: bool) -> Iterator[tuple[str, str]]:
    opened: Any = SimpleNamespace(name=source.name, open=source.stored.open)  # a pipe can be read only once
    table = open_file(opened, header_row=header_row)
    if sheets := next((note.rpartition(": ")[2] for note in table.notes if "pass one of these as --sheet" in note), ""):
        raise InvalidRequest(f"{source.name}: expected one sheet, got others: {sheets}; save each sheet as a list of its own")
    names = [_NUMBER.sub("", header) for header in table.headers]
    decisions = ColumnMapper.of(names, {}, ()).decide_all(names)
    emails = [at for at, decision in enumerate(decisions) if decision and decision[0] == "email"]
    domains = [at for at, name in enumerate(names) if fold_name(name) in _DOMAINS]
    others = [at for at, name in enumerate(names) if every_address and "mail" in fold_name(name) and at not in emails]
    if not emails and not domains:
        got = f"got {', '.join(map(show_name, filter(None, table.headers[:5])))}"
        raise InvalidRequest(
            f"{source.name}: expected an e-mail or a domain, or a column named E-mail or Domain, {got}; correct it"
        )
    read, kinds = {*emails, *domains, *others}, getattr(table, "nested", {})  # of columns of Parquet that are not read
    if lost := sorted(read & {*kinds}):
        what = f"expected simple values in column {names[lost[0]]!r}, got {kinds[lost[0]]}"
        raise InvalidRequest(f"{source.name}: {what}; export it as text")
    for line, cells, odd in read_records(table):
        if cells and _COMMENT.match(cells[0]) and not any(map(str.strip, cells[1:])):
            continue
        if odd is not PLAIN and (fault := _find_fault(odd, cells, emails, read)) is not None:  # the person would be written to
            raise InvalidRequest(f"{source.name}, {table.unit} {line}: {fault}")
        for text in (cells[at] for at in others if at < len(cells)):
            yield from ((f"{table.unit} {line}", each) for each in _ADDRESSES.findall(text))
        for columns in emails, domains:
            given = [cells[at] for at in columns if at < len(cells)]
            if filled := [cell for cell in given if "@" in cell or not is_blank("email", cell)]:  # the first check is fast
                yield from ((f"{table.unit} {line}", each) for cell in filled for each in _split(cell))
                break


def _find_fault(odd: Oddity, cells: Sequence[str], emails: Sequence[int], read: Collection[int]) -> str | None:
    """Return why the entries of a row are unknown."""
    has_email = any("@" in cells[at] for at in emails if at < len(cells))
    for at, change in odd.issues:
        # In a workbook, an error is a blank cell. Beside an address, it says as little as in a CSV file.
        if change.damaged and at in read and (change.kind != "error" or at in emails or not has_email):
            return change.message
    return odd.fault


def _split(text: str) -> list[str]:
    """Return the addresses in a text; the text itself if it is another kind of entry, or has a damaged address."""
    found = [each.lstrip("'").rstrip(".") for each in _ADDRESSES.findall(text)]
    return found if found and len(found) == text.count("@") else [text]


def _is_entry(text: str) -> bool:
    try:
        return len(Exclusions(_split(text), key=b"")) > 0
    except InvalidRequest:
        return False
