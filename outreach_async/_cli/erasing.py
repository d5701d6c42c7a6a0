"""Find the files that name people, remove the people from those of this package, and print a record of it."""

from __future__ import annotations

import gzip
import os
import re
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import attrs
import click

from outreach_async import store
from outreach_async._cli.messages import note_applied
from outreach_async._cli.process import INCOMPLETE, OK
from outreach_async._plumbing import is_url
from outreach_async.audit.history import History
from outreach_async.errors import OutreachError, format_count
from outreach_async.importer import add_exclusions, erase_rows, open_file, read_people
from outreach_async.store import People

if TYPE_CHECKING:
    from outreach_async._cli.output import Screen
    from outreach_async._cli.values import Options

_HEAD: Final = 100
_KINDS: Final = {b"OABJ": "store", b"OABL": "store", b"OAHI": "history"}
"""The kind of a file by the application id of SQLite."""
_COPY: Final = re.compile(r"[0-9]{6,}(?:-\w+-\w+)?")  # of the entries of a ledger in objects
_REQUEST: Final = (
    "Please delete all data of these people from all workspaces, campaigns, exports and backups, and confirm it"
    " (GDPR, article 17; CCPA, section 1798.105)"
)
_CHUNK, _OVERLAP = 1 << 20, 1 << 10
_READ_ERRORS: Final = (OSError, EOFError, zipfile.BadZipFile, zlib.error, OutreachError)


def find_people(emails: Sequence[str], source: Path | None) -> People:
    given = [*emails]
    if str(source) == "-":
        lines = (line.strip("\ufeff\"',;<> \t\r\n") for line in sys.stdin)
        given += [line for line in lines if line and not line.startswith("#")]
    elif source is not None:
        given += read_people(source).emails
    if not given:
        raise click.UsageError("EMAIL: missing; pass addresses, or --from FILE with one a line.")
    return People(given)


@attrs.define
class _Record:
    """What was found of people, and what is left."""

    removed: list[dict[str, Any]] = attrs.field(factory=list)
    left: dict[str, str] = attrs.field(factory=dict)
    contacts: set[tuple[str, str]] = attrs.field(factory=set)

    def remove(self, path: Path | str, kind: str, counts: Mapping[str, int]) -> None:
        if any(counts.values()):
            self.removed.append({"path": str(path), "kind": kind, "counts": dict(counts)})

    def leave(self, path: Path | str, reason: object) -> None:
        self.left.setdefault(str(path), str(reason))


@attrs.define
class _Found:
    """The files under the given paths, by kind."""

    roots: Sequence[Path]
    record: _Record
    stores: dict[str, str] = attrs.field(factory=dict)
    """The path or URL of each store, by one that is the same for all spellings."""
    histories: list[Path] = attrs.field(factory=list)
    others: list[Path] = attrs.field(factory=list)

    def search(self, path: Path) -> None:
        try:
            if path.is_symlink():
                if not any(Path(os.path.realpath(path)).is_relative_to(root) for root in self.roots):
                    self.record.leave(path, "a link to another place; pass the path that it leads to")
            elif path.is_dir():
                for each in sorted(path.iterdir()):
                    self.search(each)
            elif path.is_file():
                self._add(path)
        except OSError as error:
            self.record.leave(path, f"cannot be read: {error.strerror}")

    def _add(self, path: Path) -> None:
        with path.open("rb") as file:
            head = file.read(_HEAD)
        folder = Path(os.path.realpath(path.parent))
        ledger = folder.parent
        kind = _KINDS.get(head[68:72]) if head.startswith(b"SQLite format 3\0") else None
        if folder.name == "entries" and _COPY.fullmatch(path.name):
            self.add_url(ledger.as_uri())
        elif head.startswith(b"OAOJ"):
            is_ledger = folder.name.startswith("run-") and (ledger / "entries").is_dir()
            self.add_url((ledger if is_ledger else folder).as_uri())
        elif kind == "store" or head.startswith(b"OALEDG"):
            self.stores.setdefault(str(folder / path.name), str(path))
        elif kind == "history":
            self.histories.append(path)
        else:
            self.others.append(path)

    def add_url(self, url: str) -> None:
        self.stores.setdefault(url.rstrip("/"), url)


def _find(paths: Iterable[Path | str]) -> _Found:
    places = [path for path in paths if isinstance(path, Path)]
    found = _Found([path.resolve() for path in places if not path.is_symlink()], _Record())
    for path in places:
        if not path.is_symlink() and not path.exists():
            raise click.UsageError(f"--path {path}: does not exist; pass a file, a folder or a URL.")
        found.search(path)
    for url in (path for path in paths if isinstance(path, str)):
        inner = {} if store.Store(url).is_ledger() else store.stores_in(url)
        for each in [str(each.location) for each in inner.values()] or [url]:
            found.add_url(each)
    return found


def _erase(found: _Found, people: People, *, dry_run: bool) -> _Record:
    record = _Record(left=dict(found.record.left))
    for each in store.erase(found.stores.values(), people.emails, dry_run=dry_run):
        record.remove(each.location, each.kind, each.counts)
        record.contacts |= each.contacts
        if each.problem:
            record.leave(each.location, each.problem)
    named = People(people.emails, [id_ for _, id_ in record.contacts])
    for path in (*found.histories, *found.others):
        if not (dry_run and path.name.endswith(("-wal", "-shm"))):  # they go with their stores
            with suppress(FileNotFoundError):  # they went with their stores
                _erase_file(path, named, record, is_history=path in found.histories, dry_run=dry_run)
    return record


def _erase_file(path: Path, people: People, record: _Record, *, is_history: bool, dry_run: bool) -> None:
    try:
        if is_history:
            record.remove(path, "history", {"rows": History(path).erase(people, dry_run=dry_run)})
        elif (rows := erase_rows(path, people, dry_run=dry_run)) is not None:
            record.remove(path, "rows", {"rows": rows})
        elif people.named_in(f"{path.stem} {path.name}") or _names(path, people):
            record.leave(path, "names a person, and is no file of this package; remove the person from it yourself")
    except FileNotFoundError:
        raise
    except _READ_ERRORS as error:
        record.leave(path, error)


def _names(path: Path, people: People) -> bool:
    """Return whether a file names people, also in what is packed in it."""
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"PAR1":
        return any(people.named_in("\n".join(cells)) for _, cells, _ in open_file(path, format="parquet").records())
    with ExitStack() as stack:
        if zipfile.is_zipfile(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            return any(_stream_names(stack.enter_context(archive.open(name)), people) for name in archive.namelist())
        opened: Any = (gzip.open if head[:2] == b"\x1f\x8b" else open)(path, "rb")
        return _stream_names(stack.enter_context(opened), people)


def _stream_names(stream: IO[bytes], people: People) -> bool:
    kept = b""
    while chunk := stream.read(_CHUNK):
        content = kept + chunk
        if people.named_in(content.decode(errors="replace")) or (
            b"\0" in content and any(people.named_in(content[at:].decode("utf-16-le", errors="replace")) for at in (0, 1))
        ):
            return True
        kept = content[-_OVERLAP:]
    return False


def erase(
    options: Options, people: People, paths: Sequence[Path | str], exclude: Path | None, *, dry_run: bool, confirmed: bool
) -> int:
    """Erase people, and print the record. Return the exit code."""
    chosen = [each.ledger for each in options.config.workspaces if not options.workspaces or each.id in options.workspaces]
    ledgers = [each if is_url(each) else Path(each) for each in chosen if each]
    if not (places := paths or [each for each in ledgers if not isinstance(each, Path) or each.exists()]):
        raise click.UsageError("--path: missing; pass the files, folders and URLs in which to look.")
    found, screen = _find(places), options.screen()
    if not dry_run and not confirmed:
        _print(screen, _erase(found, people, dry_run=True), people, is_done=False)
        sys.stderr.write("Remove this? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().casefold() not in {"y", "yes"}:
            raise click.ClickException("nothing was erased; answer y to erase")
    record = _erase(found, people, dry_run=dry_run)
    if exclude is not None and not dry_run:
        try:
            add_exclusions(exclude, people.emails)
            screen.print_line(f"Later imports exclude them with --exclude {exclude}")
        except (OutreachError, OSError) as error:
            record.leave(exclude, f"--and-exclude: {error}")
    if not dry_run:
        note_applied(f"erased from {format_count(len(record.removed), 'file')}")
    screen.print_result(_print(screen, record, people, is_done=not dry_run))
    return INCOMPLETE if record.left else OK


def _print(screen: Screen, record: _Record, people: People, *, is_done: bool) -> dict[str, Any]:
    """Print a record, and return it for `--json`. It shows no whole address, so that it can be kept."""

    def mask(text: str) -> str:
        for email in people.emails:
            local, _, domain = email.rpartition("@")
            text = re.sub(re.escape(email), lambda _, cut=f"{local[:1]}**@{domain}": cut, text, flags=re.IGNORECASE)  # type: ignore[misc]
        return text

    removed = [{**each, "path": mask(each["path"])} for each in record.removed]
    left = {mask(path): mask(reason) for path, reason in record.left.items()}
    names, contacts, at = [*map(mask, people.emails)], sorted(record.contacts), datetime.now(UTC)
    screen.print_line(f"{'Erased' if is_done else 'Would erase'}: {', '.join(names)} ({at:%Y-%m-%d %H:%M} UTC)")
    rows = [(each["path"], each["kind"], ", ".join(f"{what}: {n:,}" for what, n in each["counts"].items())) for each in removed]
    if rows:
        screen.print_table(["path", "kind", "removed"], rows)
    for path, reason in left.items():
        screen.print_line(f"Left: {path}: {reason}")
    listed = ", ".join(f"{id_} in {workspace}" for workspace, id_ in contacts)
    request = f"{_REQUEST}{f'; of the contacts, we know {listed}' if listed else ''}."
    screen.print_line(f"The service has no request to delete a contact. Write to its support, with the addresses: {request}")
    return {
        "people": names,
        "done": is_done,
        "at": at.isoformat(timespec="seconds"),
        "removed": removed,
        "left": [{"path": path, "reason": reason} for path, reason in left.items()],
        "contacts": [{"workspace": workspace, "id": id_} for workspace, id_ in contacts],
        "request": request,
    }
