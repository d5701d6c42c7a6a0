"""Plan an import in parts: decide which rows of which files each part contains.

Rows whose e-mails the service may treat as equal must be sent in order, and therefore belong to the same part. Planning reads the
e-mail of every row, and moves the rows that share an e-mail to a separate part. All other rows can be sent in any order.
"""

from __future__ import annotations

import math
import os
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import Any, BinaryIO, Final, Literal, TypeAlias, TypeVar, cast

import attrs
import msgspec

from outreach_async import DuplicatePolicy, Outcome, Target
from outreach_async._plumbing import (
    RowIndex,
    Targets,
    find_suspects,
    open_place,
    order_key,
    read_value,
    require_fitting,
    require_id,
    require_number,
    require_types,
    show_name,
    translate_errors,
    unsent_outcome,
)
from outreach_async.bulk import Blank, ContactOutcome, Exclusions, Repeats
from outreach_async.errors import Excluded, InvalidRequest, OutreachError
from outreach_async.importer import (
    CheckPolicy,
    Columns,
    File,
    Gate,
    ImportJob,
    MappedFile,
    Preflight,
    Row,
    RowFinding,
    RowOutcome,
    Span,
    UnmappedColumns,
    open_file,
    results_of,
)
from outreach_async.models import Campaign, WorkspaceField
from outreach_async.parts._stored_files import (
    FileVersion,
    changed_error,
    open_location,
    parse_location,
    read_version,
    require_version,
)

T = TypeVar("T")

PLAN_NAME: Final = "plan.json"  # in the folder of the journals
REPEATS_ID: Final = "repeats"  # the part with the rows whose e-mail occurs more than once
_CHUNK_SIZE: Final = 1000  # e-mails that are compared at a time


@attrs.frozen(kw_only=True)
class PlanOptions:
    duplicates: DuplicatePolicy = "skip"
    strict_validation: bool = True
    campaign: str | None = None
    repeats: Repeats = "serial"
    workspaces: Mapping[str, str] = attrs.field(factory=dict)
    """Ids of the workspaces that rows may name, by name."""
    blank: Blank = "keep"
    checks: tuple[str, ...] = ()
    file_options: Mapping[str, str | int | None] = attrs.field(factory=dict)
    """As for `open_file`."""
    parts: int = 1
    """As for `plan`."""

    def open(self, location: str, version: FileVersion, keys: tuple[str, ...] = ()) -> File:
        options: Any = self.file_options
        return open_file(open_location(location, version), **options, keys=keys)


@attrs.frozen
class PlannedFile:
    location: str
    version: FileVersion
    headers: tuple[str, ...]
    codes: tuple[str | None, ...]
    fallbacks: tuple[tuple[int, ...], ...] = ()
    reasons: tuple[str, ...] = ()
    export: str | None = None
    keys: tuple[str, ...] = ()
    """Keys of a JSON Lines file, so that a part need not read the whole file to collect them."""

    @property
    def columns(self) -> Columns:
        return Columns(self.headers, self.codes, self.reasons, self.export, self.fallbacks)


@attrs.frozen
class Piece:
    """Rows that can be read without the rest of their file: a row group of a Parquet file, a span of a text, or a whole file."""

    file: int
    number: int
    rows: int
    repeated: int
    flags: bytes = attrs.field(repr=False)
    """A byte for each row, compressed: 1 if its e-mail occurs more than once. It is empty if there is no such row."""
    span: Span | None = None


@attrs.frozen
class Part:
    r"""The input of one task: rows of one piece, or all with repeated e-mails.

    Attributes:
        id: Name of the part, unique in its plan.
        files: The files that the part reads.
        pieces: The pieces that the part reads, in the order of the input.
        repeated: True if the part contains the rows whose e-mail occurs
            more than once; false if it contains the other rows.
        options: The options of the import.
        plan: Digest of the plan.
        of: Number of parts of the plan.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\nbo@acme.example\nANN@company.example\n")
        print([(part.id, part.rows) for part in plan(["people.csv"]).parts])  # -> [('00000', 1), ('repeats', 2)]
        ```
    """

    id: str
    files: tuple[PlannedFile, ...]
    pieces: tuple[Piece, ...]
    repeated: bool
    options: PlanOptions
    plan: str
    of: int

    @property
    def rows(self) -> int:
        """Number of rows of the part."""
        return sum(piece.repeated if self.repeated else piece.rows - piece.repeated for piece in self.pieces)

    def fingerprint(self) -> str:
        r"""Return a digest of everything that determines the part's requests.

        A journal is resumed only if it is unchanged.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            (part,) = plan(["people.csv"]).parts
            print(len(part.fingerprint()))  # -> 32
            ```
        """
        return blake2b(msgspec.json.encode(self), digest_size=16).hexdigest()

    def read(self) -> Iterator[tuple[str, Row]]:
        r"""Yield the rows in order, as sent, each with its file's location.

        Iterating raises an `InvalidRequest` if a file has changed since
        the import was planned, or cannot be read.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            (part,) = plan(["people.csv"]).parts
            print([(row.line, row.email) for _, row in part.read()])  # -> [(2, 'ann@company.example')]
            ```
        """
        return ((str(mapped.file.location), row) for mapped, row in planned_rows(self))

    def locate(self, outcomes: Iterable[ContactOutcome]) -> Iterator[RowOutcome]:
        r"""Yield the part's outcomes by index, each with its file and its row.

        Iterating raises an `InvalidRequest` if a file has changed since
        the import was planned, or cannot be read.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            (part,) = plan(["people.csv"]).parts
            await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
            print([found.place for found in part.locate(Store("run.db").outcomes())])  # -> ['line 2']
            ```
        """
        return results_of(planned_rows(self), outcomes)


def require_unchanged(part: Part) -> None:
    for file in part.files:
        require_version(file.location, file.version)


def find_people(part: Part) -> dict[int, str]:
    """Return the people whom a row excludes. All rows with one e-mail are in one part, so other parts need not be read."""
    people = dict[int, str]()
    for planned, file in (open_piece(part, piece) for piece in part.pieces if part.repeated):
        place = f"{planned.location}: " if len(part.files) > 1 else ""
        people = {**file.find_people(planned.columns, part.options.checks, place), **people}
    return people


def planned_rows(part: Part) -> Iterator[tuple[MappedFile, Row]]:
    """Yield the rows of a part in order, each with its file, unless a file has changed."""
    people, names, policy = find_people(part), part.options.workspaces, CheckPolicy.of(part.options.checks)
    for piece in part.pieces:
        planned, file = open_piece(part, piece)
        mapped = MappedFile(file, planned.columns, policy)
        rows = _read_piece(planned, file.rows(mapped.columns, checks=policy, people=people), piece.rows)
        for row, chosen in zip(rows, choose_rows(part, piece), strict=False):
            if chosen:
                # `members` is computed only if it is needed: without it, the row is encoded from its cells, which is faster.
                id_ = names.get(str(row.members.get("workspace", "")).strip()) if names else None
                named = row if id_ is None else attrs.evolve(row, members={**row.members, "workspace": id_})
                yield mapped, named.clear_blanks() if part.options.blank == "clear" else named


def choose_rows(part: Part, piece: Piece) -> bytes:
    """Return a byte for each row of a piece: 1 if the row is in the part."""
    # Without flags, no row is repeated. Then every part but the one with repeated rows reads the whole piece.
    flags = zlib.decompress(piece.flags) if piece.flags else bytes(piece.rows)
    return flags if part.repeated else flags.translate(bytes([1, 0, *range(2, 256)]))


def open_piece(part: Part, piece: Piece) -> tuple[PlannedFile, File]:
    planned = part.files[piece.file]
    file = part.options.open(planned.location, planned.version, planned.keys)
    if piece.span is not None and file.headers == planned.headers:
        return planned, attrs.evolve(file, span=piece.span)
    if file.headers != planned.headers or piece.number >= len(pieces := file.split()):
        raise changed_error(planned.location)
    return planned, pieces[piece.number]


def _read_piece(planned: PlannedFile, rows: Iterable[Row], expected: int) -> Iterator[Row]:
    count = 0
    for row in rows:
        count += 1
        if count > expected:
            break
        yield row
    require_version(planned.location, planned.version)
    if count != expected:
        raise changed_error(planned.location)


@attrs.frozen
class ImportPlan:
    r"""A plan of an import in parts.

    It contains no secrets, and can be pickled and stored as JSON.

    Attributes:
        files: The files, in the order of the input.
        pieces: The pieces of the files, in the order of the input.
        options: The options of the import.
        notes: Notes on how the files are read, to be shown to the user.

    Example:
        ```python
        Path("people.csv").write_text("E-mail\nann@company.example\n")
        print(plan(["people.csv"]).rows, plan(["people.csv"]).repeated)  # -> 1 0
        ```
    """

    files: tuple[PlannedFile, ...]
    pieces: tuple[Piece, ...]
    options: PlanOptions
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows of all files."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def repeated(self) -> int:
        """Number of rows whose e-mail another row of the plan has, too."""
        return sum(piece.repeated for piece in self.pieces)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts with rows; no two share an e-mail, so all can run at once."""
        pieces = [piece for piece in self.pieces if piece.repeated]
        single = [(at, piece) for at, piece in enumerate(self.pieces) if piece.rows > piece.repeated]
        files = tuple(attrs.evolve(file, reasons=(), export=None) for file in self.files)  # words of a version of this package
        common: dict[str, Any] = {
            "options": self.options,
            "plan": blake2b(attrs.evolve(self, files=files, notes=()).to_json(), digest_size=16).hexdigest(),
            "of": len(single) + bool(pieces),
        }
        parts = [
            Part(f"{at:05}", (files[piece.file],), (attrs.evolve(piece, file=0),), repeated=False, **common)
            for at, piece in single
        ]
        if pieces:
            used = {at: index for index, at in enumerate(dict.fromkeys(piece.file for piece in pieces))}
            own = tuple(attrs.evolve(piece, file=used[piece.file]) for piece in pieces)
            parts.append(Part(REPEATS_ID, tuple(files[at] for at in used), own, repeated=True, **common))
        return tuple(parts)

    @property
    def columns(self) -> tuple[Columns, ...]:
        """The columns of the files; files with the same columns count once."""
        return tuple({(file.headers, file.codes, file.fallbacks): file.columns for file in self.files}.values())

    def save_mapping(self, path: Path) -> None:
        r"""Write the mapping of all files to one file, as `plan` takes it.

        Raises:
            InvalidRequest: A column is mapped to one field in one file,
                and to another in another.
            OSError: The file cannot be written.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            plan(["people.csv"]).save_mapping(Path("mapping.toml"))
            print(Path("mapping.toml").read_text().splitlines()[-1])  # -> "E-mail" = "email" # by name
            ```
        """
        merged, order, reasons = dict[str, str | None](), defaultdict[str, dict[str, None]](dict), dict[str, str]()
        for columns in self.columns:
            for name, code, reason in zip(columns.headers, columns.codes, columns.reasons, strict=True):
                if merged.setdefault(name.strip(), code) != code:
                    what = f"expected one field for column {name.strip()!r}, got {merged[name.strip()]} and {code} in two files"
                    raise InvalidRequest(f"save_mapping: {what}; save the mapping of each file alone")
                reasons.setdefault(name.strip(), reason)
            for code, places in columns.sources.items():
                order[code] |= dict.fromkeys(columns.headers[at].strip() for at in places)
        names = [*merged]
        fallbacks = tuple(tuple(map(names.index, each)) for each in order.values() if len(each) > 1)
        columns = Columns(tuple(names), tuple(merged.values()), tuple(reasons.values()), fallbacks=fallbacks)
        MappedFile(open_file(self.files[0].location), columns, CheckPolicy.of()).save(path)

    def to_json(self) -> bytes:
        r"""Return the plan as JSON, which `from_json` parses.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            Path("plan.json").write_bytes(plan(["people.csv"]).to_json())
            ```
        """
        return msgspec.json.encode(_StoredPlan(self, 1))

    @classmethod
    def from_json(cls, data: bytes | str) -> ImportPlan:
        r"""Parse a plan from JSON, as returned by `to_json`.

        Raises:
            InvalidRequest: The data is not a plan, or was written by an
                incompatible version of this package.

        Example:
            ```python
            Path("people.csv").write_text("E-mail\nann@company.example\n")
            print(ImportPlan.from_json(plan(["people.csv"]).to_json()).rows)  # -> 1
            ```
        """
        try:
            return msgspec.json.decode(data, type=_StoredPlan).plan
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InvalidRequest(f"plan: expected a stored plan, got other data ({error}); plan the import again") from None


class PlanRecord(msgspec.Struct, omit_defaults=True):
    """What the folder of the journals says about the plan."""

    plan: str
    identity: dict[str, Any]
    version: Literal[1]
    parts: int = 1


class _StoredPlan(msgspec.Struct, forbid_unknown_fields=True):
    plan: ImportPlan
    version: Literal[1]


def plan(
    files: Iterable[str | os.PathLike[str]],
    *,
    overrides: Mapping[str, str] | None = None,
    fields: Iterable[WorkspaceField] = (),
    ignore_unknown: bool = False,
    duplicates: DuplicatePolicy = "skip",
    strict_validation: bool = True,
    campaign: str | None = None,
    repeats: Repeats = "serial",
    blank: Blank = "keep",
    mapping: Mapping[str, str] = MappingProxyType({}),
    checks: Iterable[str] = (),
    workspace: str | None = None,
    workspaces: Mapping[str, str] = MappingProxyType({}),
    list_campaigns: Callable[[str], Iterable[Campaign]] | None = None,
    parts: int = 1,
    journal: str | os.PathLike[str] | None = None,
    **file_options: str | int | None,
) -> ImportPlan:
    r"""Plan an import in parts that can be sent in any order and concurrently.

    Args:
        files: Paths, or URLs of objects, such as `s3://bucket/key`. The
            schemes `s3`, `gs` and `az` need the extra `lake`.
        overrides: Field codes by column name, as for `map_columns`. A
            column need not be in every file. With the codes `campaign` and
            `workspace`, each row names its target by id or name. Each part
            looks up the names of campaigns. A column with a name such as
            "Campaign" is recognised if every value is an id or a known
            name. Otherwise it is an error.
        fields, ignore_unknown: As for `map_columns`; `fields` are needed
            if a column is named after a label.
        mapping: More field codes by column name, of a mapping file. A
            column that a file lacks is told in `notes`.
        checks: Levels of the checks, as for `File.rows`. Workers need the
            extra `validate` for the checks that need it here.
        duplicates, strict_validation, campaign, repeats, blank: As for
            `create_many`.
        workspace: Id of the workspace of rows that name none; needed with
            `list_campaigns`.
        workspaces: Ids of workspaces by the names that rows may use.
        list_campaigns: Function that lists the campaigns of a workspace by
            its id, so that their names are known here. It is called only
            if a column may have names of campaigns.
        parts: Number of parts to make of CSV and JSON Lines files, if they
            have as many rows. All files together are divided into parts of
            about the same size; each file is at least one. A compressed
            file, and text in an encoding such as UTF-16, stays one part.
        journal: Folder or URL of the journals. If an import has begun
            there, its number of `parts` is used instead.
        file_options: As for `open_file`, such as `delimiter="tab"`.

    Raises:
        UnmappedColumns: A column is unknown or ambiguous.
        InvalidRequest: There is no file, a file is given twice or cannot
            be read, a column cannot be mapped, or an option is invalid.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,Firm\nbo@acme.example,Acme\n")
        print(plan(["people.csv"], overrides={"Firm": "company_name"}).rows)  # -> 1
        ```
    """
    require_types(plan, locals())
    if campaign is not None:
        campaign = require_id("campaign", campaign, "campaign", "pass a campaign id, or None for no campaign")
    require_fitting(blank=blank, duplicates=duplicates)
    require_number("parts", parts, least=1)
    options = PlanOptions(
        duplicates=duplicates,
        strict_validation=strict_validation,
        campaign=campaign,
        repeats=repeats,
        blank=blank,
        checks=tuple(checks),
        file_options={name: value for name, value in file_options.items() if value is not None},
        parts=parts if journal is None else _read_parts(os.fspath(journal), parts),
    )
    policy = CheckPolicy.of(options.checks)
    targets = create_targets(options, workspace, workspaces, list_campaigns)
    given, known = {column.strip(): code for column, code in (overrides or {}).items()}, tuple[WorkspaceField, ...]()
    saved = {column: code for column, code in mapping.items() if column not in given}
    unused, notes = {*given}, [policy.note] if policy.note else []
    planned, counted = list[PlannedFile](), list[tuple[int, int, int, Span | None]]()
    versions = {location: read_version(location) for location in _list_locations(files)}
    size = sum(version.size for version in versions.values()) / options.parts
    with open_temporary_file() as keys:
        index, rows = RowIndex(keys), 0
        for location, version in versions.items():
            file = options.open(location, version)
            job = ImportJob(file=file, mapping={**given, **saved}, ignore_unknown=ignore_unknown, checks=policy)
            if job.needs_client:  # the fields may have to be requested
                known = known or tuple(fields)
            columns = _map_columns(job, targets, known)
            unused &= {*job.lacking}
            notes += (f"{file.name}: {note}" for note in file.notes)
            notes += (
                f"{file.name}: --mapping: the file has no column {show_name(column)}" for column in job.lacking if column in saved
            )
            for number, piece in enumerate(file.split(math.ceil(version.size / size) if size else 1)):
                emails, before = _read_emails(piece, columns), rows
                while chunk := [*islice(emails, _CHUNK_SIZE)]:
                    # A row without an e-mail is never sent.
                    index.add((_hash_email(email), at) for at, email in enumerate(chunk, rows) if email)
                    rows += len(chunk)
                counted.append((len(planned), number, rows - before, piece.span))
            mapped = columns.headers, columns.codes, columns.fallbacks, columns.reasons, columns.export
            planned.append(PlannedFile(location, version, *mapped, file.keys))
            require_version(location, version)
        flags = bytearray(rows)
        for at, earlier in index.repeats():
            flags[at] = flags[earlier] = 1
    if unused:
        raise InvalidRequest(f"map: no file has the column {show_name(min(unused))}; use a name from a header")
    if any("workspace" in file.codes for file in planned):  # otherwise, the plan does not depend on the names
        options = attrs.evolve(options, workspaces=dict(workspaces))
    return ImportPlan(tuple(planned), tuple(_build_pieces(counted, flags)), options, tuple(notes))


def _read_parts(place: str, default: int) -> int:
    with translate_errors(place), suppress(FileNotFoundError, msgspec.MsgspecError, UnicodeDecodeError):
        return msgspec.json.decode(open_place(place).read(PLAN_NAME), type=PlanRecord).parts
    return default  # if another program wrote the file, an error follows when the first part is recorded


def create_targets(
    options: PlanOptions,
    workspace: str | None,
    workspaces: Mapping[str, str],
    list_campaigns: Callable[[str], Iterable[Campaign]] | None,
) -> Targets:
    """Return the targets that rows may name."""
    if list_campaigns is None:
        return Targets(Target(workspace, options.campaign), None, workspaces)
    remedy = "pass the id of the workspace of rows that name none"

    async def list_known(workspace: str) -> AsyncIterator[Campaign]:
        for each in list_campaigns(workspace):
            yield each

    return Targets(Target(require_id("workspace", workspace, "workspace", remedy), options.campaign), list_known, workspaces)


def _read_emails(piece: File, columns: Columns) -> Iterator[str]:
    """Yield the e-mail of each row as it is sent; an empty string if there is none. Other columns need not be read."""
    for cells in zip(*(_read_column(piece, at) for at in columns.sources["email"]), strict=True):
        yield next(filter(None, cells), "")


def _read_column(piece: File, at: int) -> Iterator[str]:
    cells = piece.column(at)
    while chunk := [*islice(cells, _CHUNK_SIZE)]:
        changed = {cell: read_value("email", cell)[0] for cell in find_suspects("email", {*chunk})}
        yield from (changed.get(cell, cell).strip() for cell in chunk)


def _hash_email(email: str) -> int:
    """Return a hash that is the same in every process, so that the same files always result in the same plan."""
    return int.from_bytes(blake2b(order_key(email).encode("utf-8", "surrogatepass"), digest_size=8).digest(), signed=True)


def open_temporary_file(folder: Path | None = None) -> BinaryIO:
    try:
        return cast("BinaryIO", TemporaryFile(buffering=0, dir=folder))
    except OSError as error:
        what = f"cannot store the keys of rows in a temporary file: {error.strerror}"
        raise InvalidRequest(f"files: {what}; set TMPDIR to a folder that you can write to") from None


def _build_pieces(counted: Iterable[tuple[int, int, int, Span | None]], flags: bytearray) -> Iterator[Piece]:
    end = 0
    for file, number, rows, span in counted:
        start, end = end, end + rows
        own = bytes(flags[start:end])
        yield Piece(file, number, rows, repeated := sum(own), zlib.compress(own) if repeated else b"", span)


def _map_columns(job: ImportJob, targets: Targets, fields: tuple[WorkspaceField, ...]) -> Columns:
    try:
        return _run_here(job.map(targets=targets, fields=fields)).columns
    except UnmappedColumns as error:
        error.args = (f"{job.file.name}: {error}",)
        raise
    except InvalidRequest as error:
        raise InvalidRequest(f"{job.file.name}: {error}") from None


def _list_locations(files: Iterable[str | os.PathLike[str]]) -> list[str]:
    locations = [parse_location(file) for file in files]
    if not locations:
        raise InvalidRequest("files: expected at least one file, got none; pass paths or URLs")
    if len(set(locations)) < len(locations):
        twice = next(location for location in locations if locations.count(location) > 1)
        raise InvalidRequest(f"files: expected each file once, got {twice} twice; remove one of them")
    return locations


def _run_here(waiting: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that waits for nothing, also in a thread that runs an event loop."""
    try:
        waiting.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise RuntimeError("the coroutine waits")  # pragma: no cover - it lists campaigns with a synchronous function


OnUnsent: TypeAlias = Callable[[MappedFile, RowOutcome], object]
OnFinding: TypeAlias = Callable[[MappedFile, int, RowFinding, Sequence[str]], object]


async def check(
    made: ImportPlan,
    *,
    workspace: str | None = None,
    list_campaigns: Callable[[str], Iterable[Campaign]] | None = None,
    exclude: Sequence[Exclusions] = (),
    gate: Gate | None = None,
    on_unsent: OnUnsent | None = None,
    on_progress: Callable[[int], object] | None = None,
    on_finding: OnFinding | None = None,
) -> Preflight:
    r"""Return what `import_part` would not send, and the findings.

    This process reads all files of the plan. Nothing is sent. The rows are
    read as the parts read them: each part judges its rows in the same way.

    Args:
        made: The plan.
        workspace, list_campaigns: As for `plan`. Without them, the names
            of campaigns are unknown, so that rows with one count as
            rejected.
        exclude: As for `import_part`.
        gate: What judges the addresses of the rows that can be sent, as
            for `Preflight`.
        on_unsent: Function that receives each row that is never sent, with
            its file.
        on_progress: Function that receives the number of rows so far.
        on_finding: Function that receives each finding, as for
            `Preflight`; `FindingsFile.add` is one.

    Raises:
        InvalidRequest: A file has changed since the import was planned, or
            cannot be read.
        OutreachError: The campaigns that rows name could not be listed.

    Example:
        ```python
        Path("may.csv").write_text("E-mail,Unsubscribed\nann@company.example,\n")
        Path("june.csv").write_text("E-mail,Unsubscribed\nann@company.example,yes\nbo@company.example,\n")
        found = await check(plan(["may.csv", "june.csv"]))
        print(found.rows, found.excluded, found.sent)  # -> 3 2 1
        ```
    """
    require_types(check, locals())
    options = made.options
    targets, policy = create_targets(options, workspace, options.workspaces, list_campaigns), CheckPolicy.of(options.checks)
    file: MappedFile

    def tell(row: Row, error: OutreachError) -> None:
        if on_unsent is not None:
            status = Outcome.EXCLUDED if isinstance(error, Excluded) else Outcome.REJECTED
            on_unsent(file, RowOutcome.of(file.file, unsent_outcome(0, row, status, error)))

    told: dict[str, Any] = {"on_unsent": tell, "on_progress": on_progress, "on_finding": on_finding}
    checked = Preflight(repeats=options.repeats, exclude=exclude, gate=gate, **told)
    for part in made.parts:
        people = find_people(part)
        for piece in part.pieces:
            planned, opened = open_piece(part, piece)
            file, name = MappedFile(opened, planned.columns, policy, targets, people), None
            if len(made.files) > 1:
                name = planned.location
            await checked.add(file, name=name, chosen=choose_rows(part, piece), distinct=not part.repeated)
            require_version(planned.location, planned.version)
    return await checked.finish()
