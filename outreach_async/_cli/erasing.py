"""Find the files that name people, remove the people from those of this package, and print a record of it."""

from __future__ import annotations

import gzip
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from itertools import chain
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
from outreach_async.importer import add_exclusions, erase_rows, open_file

if TYPE_CHECKING:
    from outreach_async._cli.output import Screen
    from outreach_async._cli.values import Options

_COPY: Final = re.compile(r"[0-9]{6,}(?:-\w+-\w+)?")  # of the entries of a ledger in objects
_DRAFT: Final = re.compile(r"\.outreach-[0-9a-f]{16}\.tmp")  # of the results of a run, for example
_REQUEST: Final = (
    "Please delete all data of these people from all workspaces, campaigns, exports and backups, and confirm it"
    " (GDPR, article 17; CCPA, section 1798.105)"
)
_CHUNK, _OVERLAP = 1 << 20, 1 << 10


@attrs.define
class _Record:
    """The files that may name people, what was removed from them, and what is left."""

    stores: dict[str, str] = attrs.field(factory=dict)
    """The path or URL of each store, by one that is the same for all spellings."""
    files: dict[Path, bool] = attrs.field(factory=dict)
    """The other files, and whether each is a history."""
    removed: list[tuple[str, Mapping[str, int]]] = attrs.field(factory=list)
    left: dict[str, str] = attrs.field(factory=dict)
    contacts: set[tuple[str, str]] = attrs.field(factory=set)

    def search(self, path: Path, roots: Sequence[Path]) -> None:
        try:
            if path.is_symlink():
                if not any(Path(os.path.realpath(path)).is_relative_to(root) for root in roots):
                    self.left[str(path)] = "a link to another place; pass the path that it leads to"
            elif path.is_dir():
                for each in sorted(path.iterdir()):
                    self.search(each, roots)
            elif path.is_file():
                self._add(path)
        except OSError as error:
            self.left[str(path)] = f"cannot be read: {error.strerror}"

    def _add(self, path: Path) -> None:
        if _DRAFT.fullmatch(path.name):  # what the process writes would be lost
            self.left[str(path)] = "a process is writing it, or was killed; wait until it ends, or delete it, and erase again"
            return
        with path.open("rb") as file:
            head = file.read(72)
        folder = Path(os.path.realpath(path.parent))
        kind = head[68:] if head.startswith(b"SQLite format 3\0") else head[:4]  # the application id
        if folder.name == "entries" and _COPY.fullmatch(path.name):
            self.add_url(folder.parent.as_uri())
        elif kind == b"OAOJ":
            is_ledger = folder.name.startswith("run-") and (folder.parent / "entries").is_dir()
            self.add_url((folder.parent if is_ledger else folder).as_uri())
        elif kind in {b"OABJ", b"OABL"} or head.startswith(b"OALEDG"):
            self.stores.setdefault(str(folder / path.name), str(path))
        else:
            self.files[path] = kind == b"OAHI"

    def add_url(self, url: str) -> None:
        self.stores.setdefault(url.rstrip("/"), url)

    def remove(self, place: Path | str, counts: Mapping[str, int]) -> None:
        if any(counts.values()):
            self.removed.append((str(place), counts))


def _find(paths: Iterable[Path | str]) -> _Record:
    record, places = _Record(), [path for path in paths if isinstance(path, Path)]
    for path in places:
        if not path.is_symlink() and not path.exists():
            raise click.UsageError(f"--path {path}: does not exist; pass a file, a folder or a URL.")
        record.search(path, [place.resolve() for place in places if not place.is_symlink()])
    for url in (path for path in paths if isinstance(path, str)):
        inner = {} if store.Store(url).is_ledger() else store.stores_in(url)
        for each in [str(each.location) for each in inner.values()] or [url]:
            record.add_url(each)
    return record


def _erase(record: _Record, emails: Sequence[str], *, dry_run: bool) -> _Record:
    for found in store.erase(record.stores.values(), emails, dry_run=dry_run):
        record.remove(found.location, found.counts)
        record.contacts |= found.contacts
        if found.problem:
            record.left[found.location] = found.problem
    names = store.match_people(emails, ids := [id_ for _, id_ in record.contacts])
    part = re.compile("|".join(map(re.escape, {text.strip().lower() for text in (*emails, *ids)})))

    def is_in(text: str) -> bool:  # in a database, no blank is between two texts
        return names(text) or ("\0" in text and part.search(text.lower()) is not None)

    ours = {*record.stores, *(os.path.realpath(path) for path, is_history in record.files.items() if is_history)}
    for path, is_history in record.files.items():
        if re.sub("-(wal|shm|journal)$", "", os.path.realpath(path)) in ours and not is_history:
            continue  # it goes with its database
        try:
            rows = History(path).erase(names, dry_run=dry_run) if is_history else erase_rows(path, names, dry_run=dry_run)
            record.remove(path, {"rows": rows or 0})
            if rows is None and (names(f"{path.stem} {path.name}") or _is_named_in(path, is_in)):
                record.left[str(path)] = "names a person, and is no file of this package; remove the person from it yourself"
        except Exception as error:  # noqa: BLE001 - files of others are damaged, or encrypted, in many ways
            record.left[str(path)] = str(error) or type(error).__name__
    return record


def _is_named_in(path: Path, names: Callable[[str], bool]) -> bool:
    """Return whether a file names people, also in what is packed in it."""
    with path.open("rb") as file:
        head = file.read(4)
    if head == b"PAR1":
        return any(names("\n".join(cells)) for _, cells, _ in open_file(path, format="parquet").records())
    with ExitStack() as stack:
        streams: Iterable[IO[bytes]]
        if zipfile.is_zipfile(path):
            archive = stack.enter_context(zipfile.ZipFile(path))
            streams = map(archive.open, archive.namelist())
        else:
            opened: Any = (gzip.open if head[:2] == b"\x1f\x8b" else open)(path, "rb")
            streams = [stack.enter_context(opened)]
        return any(map(names, chain.from_iterable(map(_read_texts, streams))))


def _read_texts(stream: IO[bytes]) -> Iterable[str]:
    kept = b""
    while chunk := stream.read(_CHUNK):
        content = kept + chunk
        yield content.decode(errors="replace")
        if b"\0" in content:
            yield from ((content[at:] + bytes(at)).decode("utf-16-le", errors="replace") for at in (0, 1))  # also big-endian
        kept = content[-_OVERLAP:]


def erase(
    options: Options, emails: Sequence[str], paths: Sequence[Path | str], exclude: Path | None, *, dry_run: bool, confirmed: bool
) -> int:
    """Erase people, and print the record. Return the exit code."""
    chosen = [each.ledger for each in options.config.workspaces if not options.workspaces or each.id in options.workspaces]
    ledgers = [each if is_url(each) else Path(each) for each in chosen if each]
    if not (places := paths or [each for each in ledgers if not isinstance(each, Path) or each.exists()]):
        raise click.UsageError("--path: missing; pass the files, folders and URLs in which to look.")
    store.match_people(emails)  # refuses what is no address, before files are searched
    screen = options.screen()
    if not dry_run and not confirmed:
        _print(screen, _erase(_find(places), emails, dry_run=True), emails, is_done=False)
        sys.stderr.write("Remove this? [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().casefold() not in {"y", "yes"}:
            raise click.ClickException("nothing was erased; answer y to erase")
    if exclude is not None and not dry_run:  # first, because an import may write to people whom no ledger knows any more
        try:
            add_exclusions(exclude, emails)
        except (OutreachError, OSError) as error:
            raise click.ClickException(f"--and-exclude: {error}: nothing was erased") from error
    record = _erase(_find(places), emails, dry_run=dry_run)
    if not dry_run:
        note_applied(f"erased from {format_count(len(record.removed), 'file')}")
    screen.print_result(_print(screen, record, emails, is_done=not dry_run))
    if exclude is not None and not dry_run:
        screen.print_line(f"Later imports exclude them with --exclude {exclude}")
    return INCOMPLETE if record.left else OK


def _print(screen: Screen, record: _Record, emails: Sequence[str], *, is_done: bool) -> dict[str, Any]:
    """Print a record, and return it for `--json`. It shows no whole address, so that it can be kept."""
    masks = {email.lower(): f"{email[0]}**{email[email.rindex('@') :]}" for email in map(str.strip, emails)}
    either = re.compile("|".join(re.escape(each).replace("@", "(?:@|%40)") for each in masks), re.IGNORECASE)

    def mask(text: str) -> str:
        return either.sub(lambda found: masks.get(found[0].lower().replace("%40", "@"), "**"), text)

    names, contacts, at = [*masks.values()], sorted(record.contacts), datetime.now(UTC)
    removed = [{"path": mask(path), "counts": dict(counts)} for path, counts in record.removed]
    left = [{"path": mask(path), "reason": mask(reason)} for path, reason in record.left.items()]
    screen.print_line(f"{'Erased' if is_done else 'Would erase'}: {', '.join(names)} ({at:%Y-%m-%d %H:%M} UTC)")
    rows = [(mask(path), ", ".join(f"{what}: {n:,}" for what, n in counts.items())) for path, counts in record.removed]
    if rows:
        screen.print_table(["path", "removed"], rows)
    for each in left:
        screen.print_line(f"Left: {each['path']}: {each['reason']}")
    listed = ", ".join(f"{id_} in {workspace}" for workspace, id_ in contacts)
    request = f"{_REQUEST}{f'; of the contacts, we know {listed}' if listed else ''}."
    screen.print_line(f"The service has no request to delete a contact. Write to its support, with the addresses: {request}")
    return {
        "people": names,
        "done": is_done,
        "at": at.isoformat(timespec="seconds"),
        "removed": removed,
        "left": left,
        "contacts": [{"workspace": workspace, "id": id_} for workspace, id_ in contacts],
        "request": request,
    }
