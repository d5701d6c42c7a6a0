"""The configuration file: what it may contain, who may write it, and the clients that it describes."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
import tomlkit
from hypothesis import given
from hypothesis import strategies as st
from support.cli import serve_in_thread

from outreach_async import HttpxTransport, InvalidRequest, OutreachClient, OutreachError
from outreach_async.config import Config, ConfiguredWorkspace, FoundFile, KeyReference, load_config
from outreach_async.config._file import _require_safe
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.sync import SyncClient
from outreach_async.transport._secret import reveal

BASE = 'base_url = "https://api.example"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    for name in ("BASE_URL", "WORKSPACE", "OWNER_KEY", "RATE", "CONFIG"):
        monkeypatch.delenv(f"OUTREACH_{name}", raising=False)
    return tmp_path


def write(text: str, path: str = "outreach.toml") -> Path:
    Path(path).write_text(text, encoding="utf-8")
    Path(path).chmod(0o600)
    FoundFile(Path(path), Path(path).read_bytes()).trust()
    return Path(path)


def refusal(text: str) -> str:
    with pytest.raises(InvalidRequest) as caught:
        load_config(write(text))
    return str(caught.value)


NAMES = st.text(st.characters(categories=("L", "N", "P", "Zs")), min_size=1, max_size=12).filter(
    lambda name: name == name.strip() and name.isprintable() and name != "all" and not name.startswith(("space_", "key_"))
)
REFERENCES = st.one_of(
    st.builds(lambda name: {"env": name}, st.from_regex(r"[A-Z_]{1,20}", fullmatch=True)),
    st.builds(lambda name: {"file": f"/run/{name}"}, st.from_regex(r"[a-z]{1,20}", fullmatch=True)),
    st.builds(lambda parts: {"command": parts}, st.lists(st.text("ab-/ \"'\\é", min_size=1), min_size=1, max_size=3)),
)
RATES = st.floats(0.001, 1e6)
OWN = st.fixed_dictionaries({}, optional={"owner_key": REFERENCES, "rate": RATES})


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    groups = draw(st.lists(NAMES.filter(lambda name: name not in names), unique=True, max_size=3))
    spaces = {
        name: {
            "id": f"space_{place}",
            "groups": draw(st.lists(st.sampled_from(groups), unique=True)) if groups else [],
            **draw(OWN),
        }
        for place, name in enumerate(names)
    }
    optional = {"backend": st.sampled_from(["auto", "sockets", "httpx", "httpx2", "aiohttp"]), "timeout": RATES}
    optional |= {"workspace": st.lists(st.sampled_from([*names, "space_other"]), unique=True)} if names else {}
    values = draw(st.fixed_dictionaries({}, optional=optional))
    return {"base_url": "https://api.example", **values, **draw(OWN), "workspaces": spaces}


def reference(value: Mapping[str, Any] | None) -> KeyReference | None:
    match value:
        case {"command": [program, *arguments]}:
            is_beside = "/" in program and not program.startswith("/")
            return KeyReference("command", (f"./{program}" if is_beside else program, *arguments))
        case {"env": name}:
            return KeyReference("env", name)
        case {"file": path}:
            return KeyReference("file", path)
        case _:
            return None


def require_values(config: Config, values: Mapping[str, Any]) -> None:
    assert [config.base_url, config.backend, config.timeout, config.rate] == [
        values.get(name) for name in ("base_url", "backend", "timeout", "rate")
    ]
    assert config.workspace == tuple(values.get("workspace", ()))
    assert config.owner_key == reference(values.get("owner_key"))
    for found, (name, each) in zip(config.workspaces, values["workspaces"].items(), strict=True):
        assert (found.name, found.id, list(found.groups), found.rate) == (name, each["id"], each["groups"], each.get("rate"))
        assert found.owner_key == reference(each.get("owner_key"))


@given(tables(), tables())
def test_what_is_written_is_what_is_read(values: dict[str, Any], profile: dict[str, Any]) -> None:
    path = write(tomlkit.dumps({**values, "profile": {"own": profile}}))
    require_values(load_config(path), values)
    own = load_config(path, "own")
    inherited: dict[str, Any] = {name: values[name] for name in ("backend", "timeout") if name in values}
    require_values(own, {**inherited, **profile})
    for each in own.workspaces:
        assert own.find(each.name) == own.find(each.id) == [each]
        assert all(each in own.find(group) for group in each.groups)
    assert own.find("all" if own.workspaces else "space_x")


def test_a_profile_of_the_same_service_inherits_what_it_does_not_replace() -> None:
    write(
        BASE
        + 'rate = 5\nowner_key = { env = "K" }\nworkspace = "acme"\nworkspaces.acme = { id = "space_1" }\n'
        + "[profile.slow]\nrate = 1\n[profile.other]\nworkspaces.bolt = { id = 'space_2' }"
    )
    assert load_config(profile="slow") == attrs.evolve(load_config(), profile="slow", rate=1)
    other = load_config(profile="other")
    assert (other.names, other.workspace, other.rate) == ({"space_2": "bolt"}, (), 5)
    assert str(other.owner_key) == "environment variable K"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\nbase_ur = 'x'", "base_ur: unknown key; did you mean 'base_url'?"),
        ("x = 1", "x: unknown key; the keys are 'base_url', 'backend', 'timeout', 'owner_key', 'rate', 'workspace', "),
        ("[workspaces.acme]\nid = 'space_1'\nrat = 3", "workspaces.acme.rat: unknown key; did you mean 'rate'?"),
        ("[workspaces]\nacme = { id = 'space_1', rat = 3 }", "workspaces.acme.rat: unknown key"),
        ("[profile.a]\nx = 1\n[profile.'b.c']\nrat = 1", "profile.a.x: unknown key"),
        ("[profile.'b.c']\n'a=b' = 1", "profile.'b.c'.'a=b': unknown key"),
        ("base_url = 3", 'base_url: expected a string, got int; write base_url = "https://api.example"'),
        ("base_url = 'ftp://x'", "base_url: expected a URL with a host and one of the schemes http, https"),
        ("base_url = 'https://u:hunter2@x.example'", "expected a URL without user and password, got one with them"),
        ("backend = 'http'", "backend: expected one of auto, sockets, httpx, httpx2, aiohttp, got 'http'; write one of them"),
        ("rate = 0", "rate: expected a finite number of requests per second greater than 0, got 0"),
        ("timeout = -1", "timeout: expected more than 0 seconds"),
        ("owner_key = 'key_hunter2'", "expected a reference to a key, got a key; remove it from the file, and write {"),
        ("owner_key = 'hunter2'", "owner_key: expected a reference to a key, got a key"),
        ("owner_key = { key = 'hunter2' }", "owner_key: expected one of the keys env, file, command, got 'key'; write { env ="),
        ("owner_key = { env = 'A', file = 'b' }", "expected one of the keys env, file, command, got 'env', 'file'; write {"),
        ("owner_key = {}", "owner_key: expected one of the keys env, file, command, got none; write {"),
        ("owner_key = 3", "owner_key: expected a table, got int; write { env"),
        ("owner_key = { env = 'key_hunter2' }", "owner_key.env: expected the name of a variable, got a key; write {"),
        ("owner_key = { file = ' ' }", "owner_key.file: expected a path, got a blank string; write {"),
        ("owner_key = { command = 'op read' }", "owner_key.command: expected a list of strings, got str; write {"),
        ("owner_key = { command = [] }", "owner_key.command: expected a list of strings, got list; write {"),
        ("key_hunter2 = 1", "key_***"),
        ("[workspaces]\nkey_hunter2 = { id = 'space_1' }", "which looks like an id; choose another name"),
        ("workspaces = 3", 'expected a table, got int; write [workspaces] and, below it, acme = { id = "space_..." }'),
        ("[workspaces]\nacme = 'space_1'", 'workspaces.acme: expected a table, got str; write acme = { id = "space_..." }'),
        ("[workspaces]\nacme = {}", 'workspaces.acme: expected the id of the workspace, got none; add id = "space_..."'),
        ("[workspaces]\na = { id = 'camp_1' }", "workspaces.a.id: expected a string starting with 'space_', got what looks"),
        ("[workspaces]\nall = { id = 'space_1' }", "expected a name for the workspace, got 'all', which selects every workspace"),
        ("[workspaces]\n'a ' = { id = 'space_1' }", "expected a name without leading or trailing blanks, got 'a '"),
        ("[workspaces]\na = { id = 'space_1', groups = 3 }", 'groups: expected a list of names, got int; write groups = ["'),
        ("[workspaces]\na = { id = 'space_1', groups = [3] }", "expected a name without leading or trailing blanks, got int"),
        ("[workspaces]\na = { id = 'space_1', groups = 'all' }", "expected a name for the group, got 'all'"),
        ("[workspaces]\na = { id = 'space_1' }\nb = { id = 'space_1' }", "workspaces.b.id: expected one name for each id, got"),
        ("[workspaces]\na = { id = 'space_1', groups = ['b'] }\nb = { id = 'space_2' }", "workspaces.b: expected a name"),
        ("workspace = 'acm'\n[workspaces]\nacme = { id = 'space_1' }", "workspace: expected a name, an id or a group"),
        ("profile = 1", "profile: expected a table, got int; write [profile.staging]"),
        ("x = ", "outreach.toml: expected TOML, got invalid content: Invalid value (at end of document); correct the file"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_a_remedy(text: str, message: str) -> None:
    told = refusal(text)
    assert message in told
    assert told.startswith("outreach.toml")
    assert "hunter2" not in told


def test_unknown_names_and_profiles_are_refused_with_the_closest() -> None:
    names = "".join(f"client{number} = {{ id = 'space_{number}' }}\n" for number in range(12))
    write(f"{BASE}[profile.staging]\n[workspaces]\n{names}")
    config = load_config()
    wrong: Any = 3
    long = ConfiguredWorkspace(name="x" * 100 + "y" * 999, id="space_1")
    calls: list[tuple[Callable[[], object], str]] = [
        (lambda: config.find("klient3"), "got 'klient3'; did you mean 'client3' or 'client9' or 'client8'?"),
        (lambda: config.find("zz"), "the names are 'client0', 'client1', 'client2', 'client3', 'client4', 'client5', "),
        (lambda: Config(workspaces=(long,)).find("x" * 100 + "z" * 999), "did you mean 'xxxx"),  # only beginnings are compared
        (lambda: load_config(profile="stagin"), "expected a profile of the file, got 'stagin'; did you mean 'staging'?"),
        (lambda: config.client("all"), "workspace: expected one workspace, got 12 (client0, client1, client2, "),
        (lambda: config.find(wrong), "expected a name, an id or a group of workspaces in outreach.toml, got int"),
        (lambda: Config().find("acme"), "expected an id (space_...), got 'acme', and no configuration file was found"),
        (lambda: load_config("/dev/null").find("acme"), "and /dev/null names no workspaces; pass the id, or write outreach.toml"),
    ]
    for call, message in calls:
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert message in str(caught.value)
    assert config.find("space_99")[0].name == "space_99"


def test_a_missing_or_unreadable_file_is_refused(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"^path: expected a configuration file at outreach.toml.*, found none; write one"):
        load_config()
    write("")
    Path("latin.toml").write_bytes(b"# \xe9")
    Path("large.toml").write_bytes(b"#" * 4_000_001)
    for path, reason in ("none.toml", "No such"), (folder, "Is a directory"), ("latin.toml", "byte 3 is not UTF-8"):
        with pytest.raises(InvalidRequest, match=f"the configuration file cannot be read.*{reason}.*; pass the path of another"):
            load_config(path)
    with pytest.raises(InvalidRequest, match=r"^large.toml: expected at most 4 MB, got more"):
        load_config("large.toml")


def test_the_users_folder_is_searched_only_with_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("platformdirs")  # of the extra `cli`
    with pytest.raises(InvalidRequest, match=r"at outreach\.toml or .*outreach-async/outreach\.toml, found none"):
        load_config()
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(InvalidRequest, match=r"at outreach\.toml, found none"):
        load_config()


def raise_without_home(name: str, **_: object) -> Path:
    raise RuntimeError(name)


@pytest.mark.parametrize("find", [raise_without_home, lambda name, **_: Path("~", ".config", name)], ids=["newer", "older"])
def test_a_user_without_a_home_has_no_folder(monkeypatch: pytest.MonkeyPatch, find: Callable[..., Path]) -> None:
    monkeypatch.setitem(sys.modules, "platformdirs", SimpleNamespace(user_config_path=find))
    (Path("~") / ".config" / "outreach-async").mkdir(parents=True)
    (Path("~") / ".config" / "outreach-async" / "outreach.toml").write_text(BASE)
    with pytest.raises(InvalidRequest, match=r"expected a configuration file at outreach\.toml, found none"):
        load_config()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused_and_the_remedy_works(mode: int) -> None:
    path = write(BASE, "my file.toml")
    path.chmod(mode)
    with pytest.raises(InvalidRequest, match="but others can write it; check its content, then run: ") as caught:
        load_config(path)
    assert os.system(str(caught.value).partition("then run: ")[2]) == 0  # noqa: S605 - the remedy, pasted
    assert load_config(path).base_url == "https://api.example"


@pytest.mark.parametrize(("owner", "accepted"), [(0, True), (1000, True), (1001, False)])
def test_a_file_of_another_user_than_root_is_refused(owner: int, accepted: bool) -> None:
    if accepted:
        _require_safe(Path("a.toml"), 0o600, owner, 1000)
        return
    with pytest.raises(InvalidRequest, match=r"got one of user 1001; check its content, then run: sudo chown 1000 a.toml$"):
        _require_safe(Path("a.toml"), 0o600, owner, 1000)


def test_keys_are_read_from_variables_files_and_commands(folder: Path) -> None:
    (folder / "keys").mkdir()
    (folder / "keys" / "acme").write_text("key_file\n")
    write("owner_key = { file = 'acme' }", "keys/outreach.toml")
    command = KeyReference("command", (sys.executable, "-c", "print('key_command')"))
    found = load_config("keys/outreach.toml").owner_key
    assert found is not None
    assert found.read().reveal() == "key_file"
    program = write("#!/bin/sh\necho key_$1\n", "keys/program")
    program.chmod(0o700)
    for name, path in ("./program", "keys/outreach.toml"), ("keys/program", "outreach.toml"), (f"{program.resolve()}", "o.toml"):
        found = load_config(write(f"owner_key = {{ command = ['{name}', 'beside'] }}", path)).owner_key
        assert found is not None
        assert found.read().reveal() == "key_beside"
    assert command.read().reveal() == "key_command"
    assert KeyReference("env", "A").read({"A": " key_env\n"}).reveal() == "key_env"
    assert str(command) == f"command {sys.executable}"
    assert "key_command" not in repr(command)


SHOWS = "import sys; print('key_hunter2'); print('key_hunter2', file=sys.stderr); "


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (KeyReference("env", "NONE"), "the environment variable NONE is not set; set it, or correct its name"),
        (KeyReference("env", "WRONG"), "expected a string starting with 'key_', got a string of 7 characters"),
        (KeyReference("env", "BYTES"), "expected valid Unicode, got a lone surrogate at character 11; decode"),
        (KeyReference("file", "bytes"), "expected valid Unicode, got a lone surrogate at character 11; decode"),
        (KeyReference("file", "none"), "the file none cannot be read (No such file or directory); correct its path"),
        (KeyReference("file", "wrong"), "correct what the file wrong contains"),
        (KeyReference("command", ("no-such-program",)), "the command no-such-program cannot be run (No such file"),
        (KeyReference("command", (sys.executable, "-c", SHOWS + "sys.exit(3)", "hunter2")), "failed with exit code 3; run"),
        (KeyReference("command", (sys.executable, "-c", "print('hunter2')")), "correct what the command "),
    ],
)  # fmt: skip
def test_a_key_that_cannot_be_read_is_an_error_without_secrets(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, found: KeyReference, message: str
) -> None:
    monkeypatch.setenv("WRONG", "hunter2")
    monkeypatch.setenv("BYTES", "key_hunter2\udcff")
    Path("wrong").write_text("hunter2")
    Path("bytes").write_bytes(b"key_hunter2\xff")
    with pytest.raises(InvalidRequest) as caught:
        found.read()
    assert message in str(caught.value)
    shown = "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    assert "hunter2" not in shown
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("kind", "value"), [("command", "pass show key"), ("env", ("KEY",)), ("file", ("key",))])
def test_only_a_command_has_arguments(kind: Any, value: Any) -> None:
    with pytest.raises(
        InvalidRequest, match=r"value: expected a (tuple of a program and its arguments|string), got (str|tuple); pass"
    ):
        KeyReference(kind, value)


def test_a_command_that_does_not_end_is_an_error() -> None:
    command = KeyReference("command", (sys.executable, "-c", "import time; time.sleep(60)"))
    with pytest.raises(InvalidRequest, match=r"did not end within 0.01 s; run the whole command in a shell to see why$"):
        command.read(timeout=0.01)


def test_the_key_of_a_named_pipe_is_read_if_a_program_writes_it(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    found = KeyReference("file", str(pipe))
    with pytest.raises(InvalidRequest, match=r"pipe is a named pipe to which no program writes; correct its path"):
        found.read()
    writer = os.open(pipe, os.O_RDWR)  # which opens a pipe that nobody reads
    with pytest.raises(InvalidRequest, match="to which no program writes"):
        found.read(timeout=0.0)
    os.close(writer)

    def write(seconds: float) -> None:
        with pipe.open("wb") as file:
            Event().wait(seconds)  # as a program that asks a person for a password
            file.write(b"key_1\n")

    for seconds in 0.0, 1.1:
        (thread := Thread(target=write, args=(seconds,))).start()
        assert reveal(found.read()) == "key_1"
        thread.join()


def agency() -> FakeService:
    service = FakeService()
    for number in (1, 2, 3):
        service.add_workspace(f"space_{number}")
        service.add_owner_key(f"space_{number}", key=f"key_{number}")
    return service


CLIENTS = """
owner_key = { env = "KEY_1" }
timeout = 7
[workspaces]
one = { id = "space_1", groups = ["some"] }
two = { id = "space_2", groups = ["some"], owner_key = { env = "KEY_2" } }
three = { id = "space_3", owner_key = { env = "KEY_3" }, rate = 1000 }
"""


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2, 3):
        monkeypatch.setenv(f"KEY_{number}", f"key_{number}")


@pytest.mark.usefixtures("keys")
async def test_clients_have_the_keys_of_their_workspaces_and_share_connections() -> None:
    service = agency()
    write(CLIENTS)
    contact = {"email": "ann@a.example"}
    async with load_config().clients("some", transport=FakeTransport(service)) as clients:
        assert [*clients] == ["one", "two"]
        assert [(await client.contacts.create(contact)).status for client in clients.values()] == ["added", "added"]
        assert clients["one"]._engine is clients["two"]._engine
    async with load_config().clients("three", "one", transport=FakeTransport(service)) as clients:
        assert clients["one"]._engine is not clients["three"]._engine
        assert (await clients["three"].contacts.create(contact)).status == "added"


@pytest.mark.usefixtures("keys")
async def test_a_workspace_without_a_key_never_gets_the_key_of_another() -> None:
    write(CLIENTS.replace('owner_key = { env = "KEY_1" }', "", 1))
    async with load_config().clients("two", "one", transport=FakeTransport(agency())) as clients:
        with pytest.raises(InvalidRequest, match="owner_key: expected a string starting with 'key_', got None"):
            await clients["one"].contacts.create({"email": "ann@a.example"})


async def test_a_client_that_only_reads_needs_no_key() -> None:
    service = agency()
    write(CLIENTS)
    with pytest.raises(InvalidRequest, match="environment variable KEY_1 is not set"):
        load_config().client("one", transport=FakeTransport(service))
    async with load_config().client("one", read_only=True, transport=FakeTransport(service)) as client:
        assert len(await client.workspaces.fields()) > 30
        assert client._settings.limits.timeout == 7


@pytest.mark.usefixtures("keys")
async def test_arguments_beat_the_environment_which_beats_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    write(BASE + CLIENTS.replace("timeout", 'backend = "sockets"\nworkspace = "two"\nrate = 4\ntimeout'))
    config = load_config()
    assert repr(config.client()) == "<OutreachClient <SocketTransport to https://api.example> workspace='space_2'>"
    monkeypatch.setenv("OUTREACH_BASE_URL", "https://env.example")
    monkeypatch.setenv("OUTREACH_WORKSPACE", "three")
    assert "to https://env.example> workspace='space_3'" in repr(config.client(read_only=True))
    assert "to https://arg.example by httpx> workspace='space_1'" in repr(
        config.client("one", base_url="https://arg.example", read_only=True)
    )
    limits = [config.client(name, read_only=True)._engine.limiter for name in ("one", "three")]
    monkeypatch.setenv("OUTREACH_RATE", "9")
    limits += [
        config.client("three", read_only=True)._engine.limiter,
        config.client("three", rate=8, read_only=True)._engine.limiter,
    ]
    assert [each.limit for each in limits] == [4, 1000, 9, 8]


@pytest.mark.usefixtures("keys")
def test_a_key_of_the_file_is_for_the_address_of_the_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    write(BASE + CLIENTS + '[profile.other]\nbase_url = "https://other.example"\nowner_key = { env = "KEY_2" }\n')
    config, own = load_config(), "https://API.example:443/"
    message = r"^owner_key: expected the key for https://u.example, got only that of outreach.toml for https://api.example; pass"
    elsewhere: list[dict[str, Any]] = [
        {"base_url": "https://u.example"},
        {"transport": HttpxTransport("https://u.example")},
        {"base_url": "https://u.example", "owner_key": None},
    ]
    for options in elsewhere:
        for name in ("one", "two"):
            with pytest.raises(InvalidRequest, match=message):
                config.client(name, **options)
        config.client("one", **{**options, "owner_key": "key_given"})
    for options in {"base_url": own}, {"transport": HttpxTransport(own)}, {"transport": FakeTransport(agency())}:
        assert reveal(config.client("one", **options)._settings.owner_key) == "key_1"
    monkeypatch.setenv("OUTREACH_BASE_URL", "https://u.example")
    with pytest.raises(InvalidRequest, match=message):
        config.client("one")
    monkeypatch.setenv("OUTREACH_BASE_URL", "https://other.example")
    assert reveal(load_config(profile="other").client("space_1")._settings.owner_key) == "key_2"
    monkeypatch.setenv("OUTREACH_OWNER_KEY", "key_env")
    assert reveal(config.client("one")._settings.owner_key) == "key_env"
    monkeypatch.delenv("OUTREACH_OWNER_KEY")
    write(CLIENTS)  # a file without an address has no other one
    assert reveal(load_config().client("one")._settings.owner_key) == "key_1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".".join("a" * 200_000) + " = 1", r"a key has more than 10 parts \(at line 1\)"),
        ("\n[" + " . ".join(['"a\\"b"'] * 40) + "]", r"a key has more than 10 parts \(at line 2\)"),
        ("rate = " + "[" * 100_000, "a value is nested too deeply"),
        ("rate = " + "{a = " * 100_000, "a value is nested too deeply"),
        ("rate = " + "1" * 5_000, "a number has too many digits"),
    ],
    ids=["dotted", "header", "arrays", "tables", "digits"],
)
def test_toml_that_takes_too_long_is_refused_at_once(text: str, message: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"expected TOML, got invalid content: {message}; correct the file"):
        load_config(write(text))


class Counted(str):
    """A name that counts its comparisons."""

    comparisons = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return str.__eq__(self, other)


def test_many_workspaces_are_found_without_comparing_each_with_each() -> None:
    names = [f"client{number}" for number in range(300)]
    spaces = [ConfiguredWorkspace(name=Counted(name), id=Counted(f"space_{name}")) for name in names]
    config = Config(workspaces=tuple(spaces))
    assert config.find(*names) == config.select(*names) == spaces
    assert Counted.comparisons < 10_000


def test_clients_are_created_from_a_file_in_one_call() -> None:
    write(BASE + CLIENTS)
    client = OutreachClient.from_config(workspace="two", read_only=True)
    assert repr(client) == "<OutreachClient <HttpxTransport to https://api.example by httpx> workspace='space_2'>"
    service = agency()
    with serve_in_thread(service) as url, SyncClient.from_config(workspace="one", read_only=True, base_url=url) as sync:
        assert len(sync.workspaces.fields()) > 30


def test_a_file_without_an_address_is_an_error_that_names_it() -> None:
    write("")
    with pytest.raises(OutreachError, match="base_url: missing"):
        load_config().client("space_1")
