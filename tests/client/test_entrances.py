"""Every way in which an id or a key reaches the library: whitespace around it is no part of it, and within it is refused."""

from __future__ import annotations

import importlib
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Final

import anyio
import attrs
import pytest
from support.campaigns import campaign
from support.cli import COMMANDS, ENVIRONMENT
from support.docs import PACKAGES, Named, methods

from outreach_async import InvalidRequest, OutreachClient, OutreachError, Progress, Request, Response, Target
from outreach_async._cli.values import Options
from outreach_async._plumbing import Targets
from outreach_async.audit import audit, stream
from outreach_async.audit.history import History, Readings
from outreach_async.audit.reports import render_clients
from outreach_async.config import KeyReference, load_config
from outreach_async.conformance import Access
from outreach_async.conformance._calibration import build_access
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.mcp_server import create_server
from outreach_async.mcp_server._answers import NamedWorkspaces
from outreach_async.models import Campaign
from outreach_async.parts import Connection, plan
from outreach_async.parts.processes import ProcessImport
from outreach_async.sync import SyncClient

KEY: Final = "key_4f9a8b7c6d"
CLEAN: Final = {"owner_key": KEY, "workspace": "space_1", "campaign": "camp_1"}
ROW: Final = {"email": "ann@a.example"}
AROUND: Final = ["{}\n", " {}", "{}\r\n", "\ufeff{}", "\u00a0{}\t", "\u200b{}\u2028"]


class Recorder:
    """A transport to a fake service. It records what is sent."""

    def __init__(self) -> None:
        fake = FakeService()
        fake.add_workspace("space_1")
        fake.add_campaign("space_1", id="camp_1", name="Spring", status="draft", steps=["A"])
        fake.add_mailbox("space_1", bounced_30days=99, sent_30days=100)
        fake.add_owner_key("space_1", key=KEY)
        self._inner = FakeTransport(fake)
        self.sent: list[tuple[str, bytes]] = []

    async def send(self, request: Request, progress: Progress) -> Response:
        self.sent.append((request.target, request.body))
        return await self._inner.send(request, progress)

    async def aclose(self) -> None:
        await self._inner.aclose()


def over_client(act: Callable[[OutreachClient, str], Any], **options: Any) -> Callable[[str], object]:
    """Return what a client sends. A name among the options that is set to `...` gets the value."""

    def call(value: str) -> object:
        transport = Recorder()
        given: dict[str, Any] = {
            name: value if each is ... else each for name, each in {**CLEAN, **options}.items() if name != "campaign"
        }

        async def main() -> None:
            async with OutreachClient(transport=transport, max_retries=0, **given) as client:
                await act(client, value)

        anyio.run(main)
        return transport.sent

    return call


def over_sync(value: str) -> object:
    transport = Recorder()
    with SyncClient(transport=transport, owner_key=value, workspace="space_1") as client:
        client.contacts.create(ROW)
    return transport.sent


def over_config(act: Callable[[Any, str, Any], Any]) -> Callable[[str], object]:
    def call(value: str) -> object:
        Path("o.toml").write_text('[workspaces]\nacme = { id = "space_1" }\n', encoding="utf-8")
        Path("o.toml").chmod(0o600)
        transport = Recorder()
        anyio.run(act, load_config("o.toml"), value, transport)
        return transport.sent

    return call


async def create_alone(config: Any, value: str, transport: Any) -> None:
    await config.client(value, transport=transport, owner_key=KEY).contacts.create(ROW)


async def create_each(config: Any, value: str, transport: Any) -> None:
    async with config.clients(value, transport=transport, owner_key=KEY) as clients:
        await clients["acme"].contacts.create(ROW)


def from_config(value: str) -> object:
    Path("o.toml").touch(0o600)
    return repr(OutreachClient.from_config("o.toml", workspace=value, base_url="https://api.example"))


def in_audit(read: Callable[..., Any]) -> Callable[[str], object]:
    return over_client(lambda client, value: read(client, [value]))


async def read_stream(client: OutreachClient, workspaces: list[str]) -> None:
    await stream(client, workspaces)


def in_history(read: Callable[[History, str], Any]) -> Callable[[str], object]:
    async def append(history: History) -> None:
        async with OutreachClient(transport=Recorder()) as client:
            history.append(await audit(client, ["space_1"], readings=(readings := Readings())), readings)

    def call(value: str) -> object:
        history = History("h.db")
        if not history.exists:
            anyio.run(append, history)
        found = read(history, value)
        return found if not hasattr(found, "workspaces") else found.workspaces

    return call


def in_server(workspaces: list[str], allowed: list[str]) -> object:
    async def main() -> object:
        async with OutreachClient(transport=Recorder()) as client:
            return create_server(client, workspaces, allow_writes=allowed).instructions

    return anyio.run(main)


def as_variable(name: str, read: Callable[[], object]) -> Callable[[str], object]:
    def call(value: str) -> object:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(name, value)
            return read()

    return call


def made_without(kind: str) -> object:
    return over_client(lambda client, _: client.contacts.create(ROW), **{kind: None})("")


def of_options() -> object:
    options = Options.of({"config": None, "profile": None, "workspaces": (), "owner_key": None})
    return options.workspaces, options.owner_key


def in_target(kind: str) -> Callable[[str], object]:
    run = Target("space_0", "camp_0")
    return lambda value: Targets(run).find(run._replace(campaign="camp_2")._replace(**{kind: value}))


def planned(**given: Any) -> object:
    Path("people.csv").write_text("email,campaign\nann@a.example,Spring\n", encoding="utf-8")
    listed: list[str] = []

    def list_campaigns(workspace: str) -> list[Campaign]:
        listed.append(workspace)
        return [campaign(name="Spring")]

    # The plan asks for the names of campaigns to find out what the column means.
    made = plan(["people.csv"], list_campaigns=list_campaigns, **{"workspace": "space_1", **given})
    return [part.options.campaign for part in made.parts], listed


def printed(value: str) -> object:
    text = value.encode("utf-8", "surrogatepass")
    return (
        KeyReference("command", (sys.executable, "-I", "-S", "-c", f"import sys; sys.stdout.buffer.write({text!r})"))
        .read()
        .reveal()
    )


def in_file(value: str) -> object:
    Path("key").write_text(value, encoding="utf-8")
    return KeyReference("file", "key").read().reveal()


def divided(value: str) -> str:
    Path("people.csv").write_text("E-mail\nann@a.example\n")
    connection = Connection(base_url="https://api.example", workspace="space_1")
    return ProcessImport(plan(["people.csv"]), connection, processes=1, journal="journals", owner_key=value)._key


def measured(**given: str | None) -> Access:
    options = {"outreach_live": "https://api.example", "outreach_workspace": "space_1", "allow_writes": None}
    options |= {"outreach_campaign": None, **given}
    key = os.environ.get("OUTREACH_OWNER_KEY", KEY)
    return build_access(Namespace(outreach_header=[], **options), {"OUTREACH_OWNER_KEY": key})


def accessed(kind: str, value: str) -> object:
    given: dict[str, Any] = {**CLEAN, kind: value}
    return getattr(Access(**given, writes=True), kind)


async def create_contacts(method: str, kind: str, client: OutreachClient, value: str) -> None:
    await getattr(client.contacts, method)(ROW if method == "create" else [ROW], **{kind: value})


C: Final = "OutreachClient"
PYTHON: Final[dict[str, Callable[[str], object]]] = {
    f"{C}.owner_key": over_client(lambda client, _: client.contacts.create(ROW), owner_key=...),
    f"{C}.workspace": over_client(lambda client, _: client.contacts.create(ROW), workspace=...),
    f"{C}.with_options.owner_key": over_client(lambda c, value: c.with_options(owner_key=value).contacts.create(ROW)),
    f"{C}.with_options.workspace": over_client(lambda c, value: c.with_options(workspace=value).contacts.create(ROW)),
    f"{C}.from_config.workspace": from_config,
    "SyncClient.from_config.workspace": from_config,
    "SyncClient.owner_key": over_sync,
    "Config.client.workspace": over_config(create_alone),
    "Config.clients.workspaces": over_config(create_each),
    "Campaigns.list.workspace": over_client(lambda client, value: client.campaigns.list(workspace=value)),
    "Campaigns.steps.campaign": over_client(lambda client, value: client.campaigns.steps(value)),
    "Mailboxes.list.workspace": over_client(lambda client, value: client.mailboxes.list(workspace=value)),
    "Workspaces.fields.workspace": over_client(lambda client, value: client.workspaces.fields(workspace=value)),
    **{
        f"Contacts.{name}.{kind}": over_client(partial(create_contacts, name, kind))
        for name in ("create", "create_many")
        for kind in CLEAN
    },
    "audit.workspaces": in_audit(audit),
    "stream.workspaces": in_audit(read_stream),
    "History.baseline.workspaces": in_history(lambda history, value: history.baseline([value])),
    "History.daily.workspaces": in_history(lambda history, value: history.daily("workspace", workspaces=[value])),
    "History.opened.workspaces": in_history(lambda history, value: history.opened([value])),
    "render_clients.workspaces": in_history(
        lambda history, value: render_clients(history, [value], first=date(2026, 1, 1), last=date(2026, 1, 2))
    ),
    "create_server.workspaces": lambda value: in_server([value], []),
    "create_server.allow_writes": lambda value: in_server(["space_2"], [value]),
    "plan.campaign": lambda value: planned(campaign=value),
    "plan.workspaces": lambda value: Targets(workspaces={"acme": value}).find(Target("acme")),
    "plan.workspace": lambda value: planned(workspace=value),
    "Connection.workspace": lambda value: Connection(base_url="https://api.example", workspace=value).workspace,
    "ProcessImport.owner_key": divided,
    **{f"Access.{kind}": partial(accessed, kind) for kind in CLEAN},
}
OTHERS: Final[dict[str, Callable[[str], object]]] = {
    "variable owner_key": as_variable("OUTREACH_OWNER_KEY", partial(made_without, "owner_key")),
    "variable workspace": as_variable("OUTREACH_WORKSPACE", partial(made_without, "workspace")),
    "command's variable owner_key": as_variable("OUTREACH_OWNER_KEY", of_options),
    "command's variable workspace": as_variable("OUTREACH_WORKSPACE", of_options),
    "file's variable owner_key": as_variable("K", lambda: KeyReference("env", "K").read().reveal()),
    "file's command owner_key": printed,
    "file's file owner_key": in_file,
    "tool's workspace": NamedWorkspaces(["space_1"], {}).require,
    "suite's owner_key": as_variable("OUTREACH_OWNER_KEY", lambda: measured().owner_key),
    "suite's workspace": lambda value: measured(outreach_workspace=value, allow_writes=value).workspace,
    "suite's campaign": lambda value: measured(allow_writes="space_1", outreach_campaign=value).campaign,
    "row's workspace": in_target("workspace"),
    "row's campaign": in_target("campaign"),
}
METAVARS: Final = {"KEY": "owner_key", "CAMPAIGN": "campaign", "ID": "campaign"} | dict.fromkeys(
    ("NAME|ID", "NAME|ID|GROUP|all"), "workspace"
)


def flags() -> Iterator[tuple[str, tuple[Callable[[str], object], str]]]:
    """Yield each parameter of a command that is an id or a key, with the conversion of its value and the kind of the id."""
    for name, command in COMMANDS.items():
        for parameter in command.params:
            if kind := METAVARS.get(str(parameter.metavar)):
                kind = "workspace" if "--workspace" in parameter.opts else kind
                yield f"{name} {parameter.opts[0]}", (partial(parameter.type.convert, param=parameter, ctx=None), kind)


NAMES: Final = {*CLEAN, "workspaces", "allow_writes"}


def kind_of(name: str) -> str:
    kind = re.split(r"[. ]", name)[-1]
    return "workspace" if kind in {"workspaces", "allow_writes"} else kind


ENTRANCES: Final[dict[str, tuple[Callable[[str], object], str]]] = {
    **{name: (call, kind_of(name)) for name, call in {**PYTHON, **OTHERS}.items()},
    **dict(flags()),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("name", ENTRANCES)
def test_whitespace_around_an_id_or_a_key_is_no_part_of_it(name: str) -> None:
    call, kind = ENTRANCES[name]
    expected = call(CLEAN[kind])
    assert expected, name
    for around in AROUND if kind == "owner_key" else AROUND[:3]:
        assert call(around.format(CLEAN[kind])) == expected, around


@pytest.mark.parametrize("name", [name for name in ENTRANCES if not name.startswith("History")])
def test_whitespace_within_an_id_or_a_key_is_refused_without_showing_it(name: str) -> None:
    call, kind = ENTRANCES[name]
    text = CLEAN[kind]
    for inside in ("{0}\nhunter2", "{0}\x85hunter2", "{0}\u200bhunter2", "{0}\n{0}"):
        if inside == "{0}\n{0}" and kind == "workspace":
            continue  # a variable and an option may have several
        with pytest.raises(OutreachError) as caught:
            call(inside.format(text))
        assert isinstance(caught.value, InvalidRequest), inside
        assert "hunter2" not in str(caught.value)
        assert kind != "owner_key" or text not in str(caught.value)


ELSEWHERE: Final = {
    *("AuditRun.workspaces", "Target.workspace", "Target.campaign", "Report.name_of.workspace", "check.workspace"),
    *("Config.key_of.workspace", "name_pages.workspaces"),
}
"""`stream` and rows make the first three, and the others do not send the id."""
RESOURCES: Final = ("Campaigns", "Contacts", "Mailboxes", "Workspaces")


def public_parameters() -> Iterator[str]:
    """Yield the parameters for ids and keys of every public function and method, without those of results."""
    for module in (*PACKAGES, "outreach_async.resources"):
        if module.startswith(("outreach_async.fake", "outreach_async.testing")):
            continue
        for name in getattr(importlib.import_module(module), "__all__", RESOURCES if module.endswith(".resources") else ()):
            value = getattr(importlib.import_module(module), name)
            for each in (Named(name, value, module), *methods(Named(name, value, module))):
                is_result = attrs.has(each.value) and each.id not in {"Access", "Connection"}
                if callable(each.value) and not is_result:
                    with suppress(TypeError, ValueError):
                        yield from (f"{each.id}.{given}" for given in signature(each.value).parameters if given in NAMES)


@pytest.mark.thorough  # it imports every package
def test_every_parameter_for_an_id_or_a_key_is_an_entrance() -> None:
    found = set(public_parameters()) - ELSEWHERE
    mirrors = {name for name in found if name.startswith("Sync")}
    assert {re.sub("^SyncClient", "OutreachClient", name) for name in mirrors} <= set(PYTHON)
    assert found - mirrors == {name for name in PYTHON if not name.startswith("Sync")}


@pytest.mark.parametrize("blank", ["", "\n", " \t", "\ufeff"])
async def test_a_blank_key_or_workspace_is_the_same_as_none(blank: str) -> None:
    texts, given = [], dict[str, Any](owner_key=blank, workspace=blank)
    for options in {}, given:
        async with OutreachClient(transport=Recorder(), **options) as client:
            for call in (client.contacts.create, client.with_options(workspace="space_1").contacts.create):
                with pytest.raises(InvalidRequest) as caught:
                    await call(ROW)
                texts.append(str(caught.value))
            with pytest.raises(InvalidRequest) as caught:
                await client.workspaces.fields()
            texts.append(str(caught.value))
    assert texts[:3] == texts[3:]


@pytest.mark.parametrize(("size", "refused"), [(4_096, False), (4_097, True)])
def test_a_key_is_never_cut(size: int, refused: bool) -> None:
    Path("key").write_text("key_".ljust(size, "a"), encoding="utf-8")
    if refused:
        with pytest.raises(InvalidRequest, match="owner_key: the file key has more than 4,096 bytes; correct"):
            KeyReference("file", "key").read()
    else:
        assert len(KeyReference("file", "key").read().reveal()) == size


@pytest.mark.parametrize("text", ["key_hunter2\n", "key_hunter2 x", "key_\u200bhunter2"])
def test_the_fake_refuses_a_key_that_no_client_can_send(text: str) -> None:
    fake = FakeService()
    fake.add_workspace("space_1")
    with pytest.raises(ValueError, match="without whitespace and invisible characters") as caught:
        fake.add_owner_key("space_1", key=text)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("around", AROUND)
def test_a_line_break_around_the_address_in_a_variable_is_no_part_of_it(monkeypatch: pytest.MonkeyPatch, around: str) -> None:
    monkeypatch.setenv("OUTREACH_BASE_URL", around.format("https://api.example"))
    assert repr(OutreachClient()) == "<OutreachClient <HttpxTransport to https://api.example by httpx> workspace=None>"
    assert Options.of({}).base_url == "https://api.example"
    Path("o.toml").touch(0o600)
    assert "to https://api.example by httpx" in repr(load_config("o.toml").client())


@pytest.mark.parametrize("around", AROUND)
def test_a_blank_variable_leaves_the_workspace_of_the_file(monkeypatch: pytest.MonkeyPatch, around: str) -> None:
    monkeypatch.setenv("OUTREACH_WORKSPACE", around.format(""))
    Path("o.toml").touch(0o600)
    Path("o.toml").write_text('base_url = "https://api.example"\nworkspace = "space_1"\n', encoding="utf-8")
    assert load_config("o.toml").client()._settings.workspace == "space_1"
    assert Options.of({"config": "o.toml", "profile": None, "workspaces": ()}).workspaces == ("space_1",)
