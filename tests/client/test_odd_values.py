"""Public callables with odd values: each is used, or refused by an error that names its argument, before anything is sent."""

from __future__ import annotations

import importlib
import inspect
import re
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from itertools import islice
from operator import attrgetter
from pathlib import Path
from traceback import walk_tb
from types import MappingProxyType
from typing import Any, Final, NoReturn

import anyio
import attrs
import pytest
from support.audit import mailbox
from support.cli import ENVIRONMENT, small_service
from support.docs import PACKAGES, Named, methods, public

import outreach_async as sdk
from outreach_async import InvalidRequest, NewContact, OutreachClient, OutreachError, Progress, Request, Response, RetryPolicy
from outreach_async.audit import Policy, audit
from outreach_async.audit.history import History, Readings
from outreach_async.bulk import Exclusions
from outreach_async.config import KeyReference, load_config
from outreach_async.conformance import Access
from outreach_async.converters import OutreachConverter
from outreach_async.errors import shorten
from outreach_async.fake import Behaviour, FakeService, FakeTransport, HeaderAuth, RateLimit
from outreach_async.fake.faults import commit_then, reset, status
from outreach_async.importer import CheckPolicy, FailedRows, Gate, ImportJob, Preflight, map_columns, open_file
from outreach_async.mcp_server import create_server
from outreach_async.parts import Connection, plan
from outreach_async.store import Identity, Store, erase, match_people
from outreach_async.sync import SyncClient
from outreach_async.testing import VirtualTime

SECRET: Final = "key_hunter2"
KEY: Final = "key_s3cr3t"


def nested(kind: type[list[Any] | tuple[Any, ...]] = list) -> Any:
    value: Any = kind()
    for _ in range(10**5):
        value = kind([value])
    return value


def generate() -> Iterator[object]:
    yield SECRET


async def coroutine() -> str:
    return SECRET


async def generate_async() -> AsyncIterator[str]:
    yield SECRET


def fixed(value: object) -> Callable[[], Any]:
    return lambda: value


ODD: Final[dict[str, Callable[[], Any]]] = {
    **{repr(each): fixed(each) for each in (None, True, False, 0, 1, -1, 2**31, 2**63, 0.0, 0.5, -0.5, 1e308, 1j)},
    **{str(each): fixed(each) for each in (float("nan"), float("inf"), -float("inf"))},
    "10**400": fixed(10**400),
    "-10**400": fixed(-(10**400)),
    **{repr(each): fixed(each) for each in (Decimal(1), Decimal(-1), Decimal("nan"), Fraction(1), Fraction(-1))},
    **{repr(each): fixed(each) for each in ("", " \t", "\ud800", "\0", "\n", "a", "-1", "nan", "../..", SECRET, "é😀")},
    **{repr(each): fixed(each) for each in ("http://[", "s3://", "{}", "%s", "\x1b[31m")},
    "10**6 characters": lambda: "x" * 10**6,
    "10**6 line breaks": lambda: "\n" * 10**6,
    **{repr(each): fixed(each) for each in (b"", b"\xff", bytearray(b"a"))},
    **{repr(each): fixed(each) for each in (tuple[Any, ...](), range(3))},
    "memoryview": lambda: memoryview(b"a"),
    "object": object,
    "[]": list,
    "{}": dict,
    "[None]": lambda: [None],
    "['']": lambda: [""],
    "[surrogate]": lambda: ["\ud800"],
    "{1: object}": lambda: {1: object()},
    "{'a': None}": lambda: {"a": None},
    "{secret: secret}": lambda: {SECRET: SECRET},
    "nested": nested,
    "nested tuple": lambda: nested(tuple),
    "coroutine": coroutine,
    "generator": generate,
    "async generator": generate_async,
    "class": lambda: NewContact,
    "lambda": lambda: lambda: None,
    "module": lambda: sys,
    "Path of a folder": Path,
    "Path of nothing": lambda: Path("nothing"),
    "date": lambda: date(2026, 1, 1),
    "datetime": lambda: datetime(1, 1, 1),  # noqa: DTZ001 - a naive one is odd
    "timedelta": lambda: timedelta(-1),
}


class Recorder:
    """A transport to a fake service. It counts what is sent."""

    def __init__(self, fake: FakeService) -> None:
        self._inner = FakeTransport(fake)
        self.sent = 0

    async def send(self, request: Request, progress: Progress) -> Response:
        self.sent += 1
        return await self._inner.send(request, progress)

    async def aclose(self) -> None:
        await self._inner.aclose()


class World:
    """Valid arguments, by their names, and objects whose methods are called. Each is made when it is first needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fake = small_service()
        self.fake.add_contacts("space_1", [{"email": "ann@a.example"}])
        self.transport = Recorder(self.fake)

    def __getattr__(self, name: str) -> Any:
        value = MADE[name](self)
        setattr(self, name, value)
        return value

    async def read(self) -> Any:
        readings = Readings()
        return await audit(self.client, ["space_1"], campaigns=True, readings=readings), readings

    def append(self) -> History:
        """Return a history with one audit."""
        (history := History("history.db")).append(*self.read_audit)
        return history


def made_client(world: World, **options: Any) -> OutreachClient:
    given = {"transport": world.transport, "owner_key": KEY, "workspace": "space_1", "retry": RetryPolicy(backoff=0.0), **options}
    return OutreachClient(**given)


def made_file(world: World, name: str = "people.csv", content: str = "email\nann@a.example\n") -> Path:
    path = world.folder / name
    path.touch(0o600)
    path.write_text(content, encoding="utf-8")
    return path


def made_plan(world: World) -> Any:
    return plan([made_file(world)], workspace="space_1")


MADE: Final[dict[str, Callable[[World], Any]]] = {
    "client": made_client,
    "read_audit": lambda world: anyio.run(world.read),
    "report": lambda world: world.read_audit[0],
    "readings": lambda world: world.read_audit[1],
    "history": lambda world: world.append(),
    "plan": made_plan,
    "part": lambda world: world.plan.parts[0],
    "connection": lambda _: Connection(base_url="https://api.example", workspace="space_1"),
    "file": lambda world: open_file(made_file(world)),
    "config": lambda world: load_config(made_file(world, "o.toml", 'base_url = "https://api.example"\n')),
    "server": lambda world: create_server(world.client, ["space_1"]),
    "mapped": lambda world: anyio.run(ImportJob(file=world.file).map),
    "sync": lambda world: SyncClient(transport=world.transport, owner_key=KEY, workspace="space_1"),
}

ROWS: Final = [{"email": "ann@a.example"}, {"email": "bo@a.example"}]
ARGUMENTS: Final[dict[str, Callable[[World], Any]]] = {
    **{name: attrgetter(name) for name in ("client", "report", "history", "readings", "part", "file")},
    **{name: attrgetter(name) for name in ("connection", "server", "transport")},
    **{name: lambda _: "https://api.example" for name in ("base_url", "service", "address")},
    **{name: lambda _: "camp_1" for name in ("campaign",)},
    **{name: lambda _: "space_1" for name in ("workspace",)},
    "workspaces": lambda _: ["space_1"],
    "FakeTransport.service": lambda world: world.fake,
    "inner": lambda world: world.transport,
    "*objects": lambda _: None,
    "method": lambda _: "GET",
    "target": lambda _: "/campaigns?workspace=space_1",
    "url": lambda _: "redis://127.0.0.1:1",
    "key": lambda _: "rate",
    "location": lambda _: "run.db",
    "mailbox": lambda _: mailbox(),
    "FakeService.add_mailboxes.count": lambda _: 2,
    "History.daily.kind": lambda _: "workspace",
    "History.opened.workspaces": lambda _: ["space_1"],
    "keep": lambda _: 1,
    "first": lambda _: date(2026, 1, 1),
    "last": lambda _: date(2026, 1, 2),
    "whole": lambda world: world.report,
    "view": lambda world: world.report,
    "earlier": lambda world: world.report,
    "form": lambda _: "json",
    "parts": lambda world: [world.report],
    "access": lambda _: Access(workspace="space_1", owner_key=KEY),
    "body": lambda _: b"{}",
    "kind": lambda _: NewContact,
    "malformed.kind": lambda _: "html",
    "rows": lambda _: ROWS,
    "FakeService.add_contacts.rows": lambda _: 1,
    "FakeService.load.source": lambda world: world.fake.dump(),
    "SimulationControl.script.contact": lambda _: "cy@a.example",
    "operation": lambda _: "create_contact",
    "fault": lambda _: status(503),
    "drift.path": lambda _: "status",
    "change": lambda _: "drop",
    "code": lambda _: 503,
    "since": lambda world: world.report.at,
    "rates": lambda _: {},
    "contact": lambda _: "contact_1",
    "columns": lambda world: world.mapped.columns,
    "load_config.path": lambda world: world.config.path,
    "History.path": lambda _: "new.db",
    "Preflight.add.file": lambda world: world.mapped,
    "read_clients.file": lambda world: world.config,
    "path": lambda world: str(made_file(world)),
    "headers": lambda _: ["email"],
    "files": lambda world: [made_file(world)],
    "made": lambda world: world.plan,
    "folder": lambda world: world.folder,
    "find_part.name": lambda world: world.part.id,
    "fingerprint": lambda world: world.part.fingerprint(),
    "journal": lambda _: "journal.db",
    "processes": lambda _: 1,
    "cluster": lambda _: None,
    "outcomes": lambda _: [],
    "email": lambda _: "ann@a.example",
    "names": lambda _: match_people(["ann@a.example"]),
    "emails": lambda _: ["ann@a.example"],
    "entry": lambda _: "ann@a.example",
    "locations": lambda _: [],
    "opened": lambda _: {},
    "results_of.outcomes": lambda _: [],
    **{name: lambda _: {} for name in ("levels", "Identity.options")},
    "results_of.rows": lambda world: world.file,
    "limit": lambda _: 5,
    "KeyReference.kind": lambda _: "env",
    "KeyReference.value": lambda _: "K",
}
CLASSES: Final = (
    *(sdk.NewContact, sdk.RetryPolicy, sdk.Target, Policy, Access, Connection, Behaviour, RateLimit, HeaderAuth),
    *(KeyReference, ImportJob, CheckPolicy, Preflight, Identity),
)
"""Public classes of values that users make, although their docstrings have attributes instead of arguments."""
OBJECTS: Final[dict[str, Callable[[World], Any]]] = {
    "BulkReport": lambda _: None,
    "OutreachClient": lambda world: world.client,
    "Report": lambda world: world.report,
    "History": lambda world: world.history,
    "Config": lambda world: world.config,
    "KeyReference": lambda _: KeyReference("env", "K"),
    "OutreachConverter": lambda _: OutreachConverter(),
    "FakeService": lambda world: world.fake,
    "SimulationControl": lambda world: world.fake.sim,
    "Faults": lambda world: world.fake.faults,
    "FailedRows": lambda _: FailedRows(),
    "Gate": lambda _: Gate(),
    "Exclusions": lambda _: Exclusions(),
    "CheckPolicy": lambda _: CheckPolicy,
    "File": lambda world: world.file,
    "ImportJob": lambda world: ImportJob(file=world.file),
    "Preflight": lambda _: Preflight(),
    "Campaigns": lambda world: world.client.campaigns,
    "Contacts": lambda world: world.client.contacts,
    "Mailboxes": lambda world: world.client.mailboxes,
    "Workspaces": lambda world: world.client.workspaces,
}
UNUSED: Final = {
    "to_frame": "needs a library",
    "DaskImport": "needs a cluster",
    "serve_stdio": "reads the standard input of the process",
}


READ_LATE: Final = {("results_of", "outcomes"), ("render_folder", "days")}
"""Arguments whose items are read one by one, and may come from an iterator."""


@attrs.frozen
class Entrance:
    """A public function, constructor or method, and the names of its arguments."""

    label: str
    value: Any
    arguments: tuple[str, ...]


def entrances(package: str) -> Iterator[Entrance]:
    """Yield the public callables of a package that document their arguments."""
    if package == RESOURCES:
        kinds = vars(importlib.import_module(package))
        names = [Named(name, kinds[name], package) for name in ("Campaigns", "Contacts", "Mailboxes", "Workspaces")]
    else:
        names = list(public(package))
    for name in names:
        for each in (name, *methods(name)):
            label = ".".join(each.id.split(".")[-1 if each is name else -2 :])
            is_entrance = "Args:" in each.doc or any(each.value is kind for kind in CLASSES)
            if is_entrance and callable(each.value) and label.rpartition(".")[2] not in UNUSED:
                arguments = tuple(name for name in inspect.signature(each.value).parameters if name not in {"self", "cls"})
                yield Entrance(label, each.value, arguments)


RESOURCES: Final = "outreach_async.resources"
VARIABLE: Final = {
    "audit": "deadline",
    "FakeService.add_campaign": "name",
    "FakeService.add_mailboxes": "email",
    "plan": "sheet",
    "Config.client": "timeout",
    "Config.clients": "timeout",
    "FakeService.advance": "days",
}
"""The option that stands for all, where an entrance takes any."""
CREATE: Final = ("fields", "duplicates", "strict_validation", "campaign", "owner_key", "workspace", "timeout", "deadline")
OTHERS: Final[list[tuple[str, tuple[str, ...], dict[str, Callable[[World], Any]]]]] = [
    ("Contacts.create_many", ("resume", "spool", "earlier"), {"journal": lambda _: "run.db"}),
    ("Contacts.create_many", ("max_age", "changed"), {"ledger": lambda _: "run.db", "duplicates": lambda _: "overwrite"}),
    ("Contacts.create", CREATE, {"email": lambda _: "ann@a.example"}),
    ("OutreachClient|SyncClient|Config.client", (), {"workspace": lambda _: "space_1"}),
    (
        "OutreachClient|SyncClient|Config.clients?",
        (),
        {"transport": lambda world: world.transport, "owner_key": lambda _: KEY},
    ),
    ("load_config", (), {"path": lambda world: world.config.path}),
]
"""What an argument needs to have an effect; no names are all arguments of the entrance."""


async def call(world: World, entrance: Entrance, odd: str, value: object) -> None:
    """Call an entrance with an odd value of an argument, and use the result."""
    owner, _, method = entrance.label.rpartition(".")
    function = getattr(OBJECTS[owner](world), method) if owner else entrance.value
    positional, named = list[Any](), dict[str, Any]()
    parameters = inspect.signature(function).parameters
    has_rest = any(each.kind is each.VAR_POSITIONAL and name == odd for name, each in parameters.items())
    for name, each in parameters.items():
        if each.kind is each.VAR_KEYWORD and name == odd:
            named[VARIABLE.get(entrance.label, "extra")] = value
        elif name == odd or (each.default is each.empty and each.kind not in {each.VAR_KEYWORD, each.VAR_POSITIONAL}):
            known = next((key for key in (f"{entrance.label}.{name}", name) if key in ARGUMENTS), None)
            given = value if name == odd else ARGUMENTS[known or ""](world)
            if has_rest or each.kind is each.POSITIONAL_ONLY:
                positional.append(given)
            else:
                named[name] = given
    for pattern, names, more in OTHERS:
        if re.fullmatch(pattern, entrance.label) and (not names or odd in names):
            named = {**{name: made(world) for name, made in more.items()}, **named}
    await use(world, entrance.label, odd, function(*positional, **named))


async def use(world: World, label: str, odd: str, result: Any) -> None:
    """Use what an entrance has returned, so that an odd value that was accepted has its effect."""
    match label:
        case "OutreachClient" | "Config.client" if odd != "base_url":
            await result.contacts.create(ROWS[0])
        case "RetryPolicy":
            world.fake.faults.script("create_contact", status(503))
            await made_client(world, retry=result).contacts.create(ROWS[0])
        case "Store":
            await world.client.contacts.create_many(ROWS, journal=result)
        case "Target":
            await world.client.contacts.create_many([(ROWS[0], result)])
        case "NewContact":
            await world.client.contacts.create(result)
        case _ if isinstance(result, Awaitable):
            await result
        case _ if hasattr(result, "__aiter__"):
            async for _ in result:
                break
        case _ if hasattr(result, "__next__"):
            list(islice(result, 5))


ALSO: Final = {
    "headers": ("column",),
    "overrides": ("map",),
    "fail_on": ("severity",),
    "folder": ("journal",),
    "allow_writes": ("workspaces",),
    "file_options": ("sheet",),
    "list_campaigns": ("workspace",),
    **dict.fromkeys(("checks", "texts"), ("check",)),
    **dict.fromkeys(("entries", "entry"), ("exclude",)),
    **dict.fromkeys(("journal", "rate", "on_start", "exclude"), ("owner_key",)),  # which the environment of a worker lacks
    **dict.fromkeys(("profile", "named", "strict"), ("file",)),
    "service": ("transport", "base_url"),
    "location": ("journal",),
    "path": ("history", "file", "header", "column"),
    "fields": ("email", "name"),
    **dict.fromkeys(("custom_fields", "extra_fields"), ("label", "code")),
    "mailboxes": ("mailbox",),
    "options": ("deadline", "timeout"),
    "address": ("base_url",),
}
"""What else the error of an argument may name: it may be found only when the value is used."""


PLACES: Final = {"path", "location", "files", "journal", "ledger", "folder", "source"}
"""Arguments that an error shows: a path is no secret."""


class Hang(BaseException):
    """A call did not end in time."""


def _raise(*_: object) -> NoReturn:
    raise Hang


def fault(world: World, entrance: Entrance, odd: str, make: Callable[[], Any]) -> str:
    """Call an entrance with an odd value, and return what is wrong with its error; empty if nothing is."""
    value, world.transport.sent = make(), 0
    before = signal.signal(signal.SIGALRM, _raise)
    signal.setitimer(signal.ITIMER_REAL, 10)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of runs that were never started
            anyio.run(call, world, entrance, odd, value, backend_options=VirtualTime().options("asyncio"))
    except (
        OutreachError,
        TypeError,
        ValueError,
        ArithmeticError,
        LookupError,
        AttributeError,
        RecursionError,
        OSError,
        Hang,
    ) as error:
        return judge(world, entrance, odd, value, error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if inspect.iscoroutine(value):
            value.close()
        for path in Path().glob("run.*"):
            path.unlink()
    return ""


def judge(world: World, entrance: Entrance, odd: str, value: object, error: BaseException) -> str:
    """Return what is wrong with the error of a call; empty if nothing is."""
    text, names = str(error), (odd, *ALSO.get(odd, ()))
    is_named = any(re.search(rf"\b{name.removesuffix('s')}s?\b", text) for name in names)
    last = list(walk_tb(error.__traceback__))[-1][0].f_code.co_filename
    is_fine = (
        (isinstance(error, InvalidRequest) and is_named and (not world.transport.sent or entrance.label == "RetryPolicy"))
        or (isinstance(error, OutreachError) and not isinstance(error, InvalidRequest))
        or (isinstance(error, TypeError) and (last == __file__ or callable(value)))  # the signature's, or the value's own
        or (isinstance(error, OSError) and error.filename is not None)  # the system's, with the file
        or (type(error) in {TypeError, ValueError} and is_named and re.search("[:;] ", text))  # of the fake
        or (type(error).__name__ in {"WorldError", "DecodeError"} and text.startswith("$"))  # the place in a document
    )
    if ("hunter2" in text and odd not in PLACES) or not is_fine:
        return f"{entrance.label}({odd}={shorten(ascii(type(value)), 40)}): {type(error).__name__}: {shorten(text, 200)} [{last}]"
    return ""


def faults(package: str, folder: Path) -> Iterator[str]:
    """Yield the faults of all entrances of a package."""
    for entrance in entrances(package):
        for odd in entrance.arguments:
            world = World(folder)
            _ = world.report, world.history, world.mapped  # made before the loop of a call runs
            for make in ODD.values():
                is_late = (entrance.label, odd) in READ_LATE and make is generate
                if not is_late and (found := fault(world, entrance, odd, make)):
                    yield found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("K", KEY)
    return tmp_path


SWEPT: Final = tuple(
    package for package in PACKAGES if package not in {"outreach_async.parts.dask", "outreach_async.parts.processes"}
)


@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("package", SWEPT)
def test_an_odd_value_is_used_or_refused_by_the_name_of_its_argument(package: str, folder: Path) -> None:
    assert list(faults(package, folder)) == []


@pytest.mark.parametrize(
    ("package", "label", "odd"),
    [
        *(("outreach_async", "Store", name) for name in ("linger", "source", "inline", "objects", "clock", "location")),
        ("outreach_async", "Store", "mapping"),
        *(("outreach_async.fake", "RateLimit", name) for name in ("limit", "per", "scope", "retry_after")),
        *(("outreach_async.fake.faults", "status", name) for name in ("code", "body", "headers", "retry_after")),
        *(("outreach_async.fake.faults", label, name) for label, name in (("drift", "path"), ("malformed", "kind"))),
        *(("outreach_async.fake", f"FakeService.{name}", odd) for name, odd in (("advance", "step"), ("add_contacts", "rows"))),
        *(("outreach_async.fake", "FakeService.add_workspace", name) for name in ("custom_fields", "extra_fields")),
        *(("outreach_async.fake", "FakeService.add_mailboxes", name) for name in ("count", "fields")),
        ("outreach_async.fake", "HeaderAuth", "header"),
        ("outreach_async.converters", "OutreachConverter.loads", "kind"),
        ("outreach_async.importer", "map_columns", "fields"),
        ("outreach_async.mcp_server", "build_app", "server"),
        ("outreach_async.parts", "RejectsTable", "files"),
        ("outreach_async.audit.reports", "render_clients", "first"),
        (RESOURCES, "Contacts.create_many", "max_age"),
        (RESOURCES, "Contacts.create_many", "resume"),
    ],
)
def test_an_odd_value_of_a_common_argument_is_refused_by_its_name(package: str, label: str, odd: str, folder: Path) -> None:
    entrance = next(each for each in entrances(package) if each.label == label)
    world = World(folder)
    _ = world.history if label == "render_clients" else None  # made before the loop of a call runs
    names = (
        "None",
        "nan",
        "10**400",
        "'\\x00'",
        "object",
        "{1: object}",
        "class",
        "'http://['",
        repr(SECRET),
        "datetime",
        "''",
        "nested",
    )
    assert [fault(world, entrance, odd, ODD[name]) for name in names] == [""] * len(names)


VALID: Final[dict[type, dict[str, Any]]] = {
    **{kind: {} for kind in (Policy, Gate, Preflight, RetryPolicy, Behaviour)},
    Access: {"workspace": "space_1"},
    CheckPolicy: {"levels": {}},
    ImportJob: {},
    KeyReference: {"kind": "env", "value": "K"},
    Identity: {"workspace": "space_1", "options": {}},
    Connection: {"base_url": "https://api.example", "workspace": "space_1"},
    RateLimit: {"limit": 5},
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, field.alias) for kind in VALID for field in attrs.fields(kind) if field.init and field.name[0] != "_"],
)
def test_a_class_of_options_refuses_an_attribute_of_another_type(kind: type, name: str, folder: Path) -> None:
    given = VALID[kind] | ({"file": World(folder).file} if kind is ImportJob else {})
    with pytest.raises((InvalidRequest, TypeError, ValueError), match=rf"\b{name}\b"):
        kind(**{**given, name: object()})


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: map_columns("email"), "headers"),
        (lambda: plan("people.csv"), "files"),
        (lambda: Policy(off="OA101"), "off"),  # type: ignore[arg-type]
        (lambda: Gate(bounced="bounced.csv"), "bounced"),  # type: ignore[arg-type]
        (lambda: erase("acme.ledger", ["ann@a.example"]), "locations"),
    ],
)
def test_a_string_is_no_list(make: Callable[[], Any], name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{name}: expected .*, got one string; pass a list"):
        make()


def numbers() -> Iterator[Any]:
    yield 5


class BytesPath:
    def __fspath__(self) -> Any:
        return b"run.db"


async def asked(**options: Any) -> Response:
    async with OutreachClient("https://api.example") as client:
        return await client.request("GET", "/", **options)


class Duplicates(str, Enum):  # noqa: UP042 - of these, `str` returns the name of a member
    REPLACE = "overwrite"


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize("duplicates", [Duplicates.REPLACE, Text("overwrite")])
@pytest.mark.parametrize("place", [None, "journal", "ledger"])
def test_a_string_of_another_class_is_that_string(folder: Path, place: str | None, duplicates: Any) -> None:
    world = World(folder)
    store = Store("run.db", source=Text("people.csv"), mapping=MappingProxyType({"E": "email"}))

    async def run(**options: Any) -> list[list[str]]:
        world.fake.faults.add(commit_then(reset()), operation="create_contact", match=lambda request: b"ann@" in request.body)
        client, rows = made_client(world, retry=RetryPolicy(attempts=1)), [ROWS[1], ROWS[0], {"email": "cy@a.example"}]
        async with client.contacts.create_many(rows, duplicates=duplicates, blank="clear", **options) as outcomes:
            return sorted([sorted(outcome.possible) async for outcome in outcomes])

    given = partial(run, **({place: store} if place else {}))
    assert anyio.run(given, backend_options=VirtualTime().options("asyncio")) == [
        ["added"],
        ["added"],
        ["added", "not_applied", "overwriten"],
    ]
    assert place != "journal" or store.report().source == "people.csv"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: OutreachClient("https://api.example", headers=ODD["0"]()),
            "headers: expected a mapping of strings to strings, got int",
        ),
        (lambda: load_config("o.toml").client("space_1", read_only=ODD["'a'"]()), "read_only: expected bool, got str"),
        (lambda: Store("run.db", mapping={"\ud800": "city"}), "mapping: expected valid Unicode, got a lone surrogate"),
        (lambda: match_people(numbers()), "emails: expected .*, got list with other items"),
        (lambda: match_people(["ann@a.example"], numbers()), "ids: expected .*, got list with other items"),
        (lambda: erase(["run.db"], numbers()), "emails: expected .*, got list with other items"),
        (lambda: create_server(OutreachClient("https://api.example"), numbers()), "workspaces: expected .*, got list with other"),
        (lambda: History("h.db").daily("workspace", days=-(10**5000)), "days: expected at least 1, got a number of 16610 bits"),
        (lambda: Store(BytesPath()), "location: expected a path, got one of bytes; pass the path of a file"),
        (
            lambda: anyio.run(lambda: asked(params={"a": 10**5000})),
            "params: expected .*, got a value of the type int; convert it",
        ),
        (lambda: anyio.run(lambda: asked(params=0)), "params: expected a mapping of names to values, got int"),
    ],
)
def test_a_value_that_would_fail_later_is_refused_by_its_name(folder: Path, make: Callable[[], Any], message: str) -> None:
    _ = World(folder).config
    with pytest.raises(InvalidRequest, match=f"^{message}"):
        make()


def test_one_id_of_a_workspace_is_a_list_of_one(folder: Path) -> None:
    world = World(folder)
    server = create_server(world.client, "space_1", allow_writes="space_1")
    assert "space_1" in str(anyio.run(server.call_tool, "list_mailboxes", {"workspace": "space_1"}))
    assert anyio.run(audit, world.client, "space_1").workspaces == ["space_1"]
    assert world.history.opened("space_1") == world.history.opened(["space_1"]) != {}
