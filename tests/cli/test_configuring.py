"""The configuration file on the command line: precedence, names in lists and errors, and the commands `config`."""

from __future__ import annotations

import csv
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import KEY, Shell, complete, serve_in_thread, small_service
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async import Request
from outreach_async.config import FoundFile, KeyReference, load_config, read_clients
from outreach_async.fake import FakeService
from outreach_async.fake.faults import Exchange
from outreach_async.importer import open_file

WORKSPACES = 24  # more than the targets that a table of outcomes lists


def agency() -> FakeService:
    service = FakeService()
    for number in range(WORKSPACES):
        space = f"space_{number:02}"
        service.add_workspace(space)
        boxes = service.add_mailboxes(space, 1, domain=f"client{number}.example", spf=number % 7 != 0)
        service.add_campaign(space, id=f"camp_{number:02}", name="Spring", status="live", mailboxes=boxes, steps=["A"])
        service.add_contacts(space, 1, campaign=f"camp_{number:02}")
        service.add_owner_key(space, key=f"key_{number:02}")
    return service


@pytest.fixture(scope="module")
def agency_service() -> FakeService:
    return agency()


@pytest.fixture(scope="module")
def agency_url(agency_service: FakeService) -> Iterator[str]:
    with serve_in_thread(agency_service) as url:
        yield url


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    FoundFile(path, path.read_bytes()).trust()
    return path


@pytest.fixture
def config(folder: Path, agency_url: str) -> Path:
    lines = [f'base_url = "{agency_url}"', 'owner_key = { env = "OUR_KEY" }', "[workspaces]"]
    for number in range(WORKSPACES):
        own = f', owner_key = {{ command = ["echo", "key_{number:02}"] }}, rate = 50' if number == 5 else ""
        group = "retail" if number % 2 else "b2b"
        lines.append(f'client-{number:02} = {{ id = "space_{number:02}", groups = ["{group}"]{own} }}')
    return write(folder / "outreach.toml", "\n".join(lines))


@pytest.mark.parametrize("name", ["base_url", "owner_key", "rate", "workspace", "backend", "timeout"])
def test_a_flag_beats_the_environment_which_beats_profile_and_file(shell: Shell, folder: Path, name: str) -> None:
    write(
        folder / "outreach.toml",
        """
        base_url = "https://file.example"
        owner_key = { env = "FILE_KEY" }
        rate = 1
        workspace = "file"
        backend = "httpx2"
        timeout = 11
        workspaces = { file = { id = "space_file" }, own = { id = "space_profile" } }
        [profile.own]
        rate = 2
        workspace = "own"
        backend = "aiohttp"
        timeout = 12
        """,
    )
    flags = ["--base-url", "https://flag.example", "--owner-key", "key_flag", "--rate", "4", "--workspace", "space_flag"]
    flags += ["--backend", "sockets", "--timeout", "14"]
    variables = {"OUTREACH_BASE_URL": "https://env.example", "OUTREACH_OWNER_KEY": "key_env", "OUTREACH_RATE": "3"}
    variables |= {"OUTREACH_WORKSPACE": "space_env"}
    expected: dict[str, list[object]] = {
        "base_url": ["https://flag.example", "https://env.example", "https://file.example", "https://file.example"],
        "owner_key": ["***", "***", *["environment variable FILE_KEY"] * 2],  # the file only refers to a key
        "rate": [4, 3, 2, 1],
        "workspace": ["space_flag", "space_env", "own", "file"],
        "backend": ["sockets", "aiohttp", "aiohttp", "httpx2"],
        "timeout": [14, 12, 12, 11],
    }
    sources = [f"--{name.replace('_', '-')}", f"OUTREACH_{name.upper()}", "profile own in outreach.toml", "outreach.toml"]
    if name in {"backend", "timeout"}:
        sources[1] = sources[2]  # they have no variable
    if name in {"base_url", "owner_key"}:
        sources[2] = sources[3]  # the profile does not set them
    for place in range(4):
        with pytest.MonkeyPatch.context() as patch:
            for variable, value in {
                **(variables if place < 2 else {}),
                "OUTREACH_PROFILE": " own\n" if place < 3 else "",
            }.items():
                patch.setenv(variable, value)
            _, shown = shell.json("config", "show", *(flags if place == 0 else []))
        assert shown["values"][name] == {"value": expected[name][place], "from": sources[place]}


def test_the_first_file_is_used_and_a_given_one_must_exist(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "flag": write(folder / "flag.toml", "timeout = 1"),
        "variable": write(folder / "variable.toml", "timeout = 2"),
        "here": write(folder / "outreach.toml", "timeout = 3"),
        "user": write(folder / "home" / "outreach-async" / "outreach.toml", "timeout = 4"),
    }

    def timeout(*options: str) -> object:
        return shell.json("config", "show", *options)[1]["values"]["timeout"]["value"]

    monkeypatch.setenv("OUTREACH_CONFIG", str(found["variable"]))
    assert (timeout("--config", str(found["flag"])), timeout()) == (1, 2)
    monkeypatch.delenv("OUTREACH_CONFIG")
    assert timeout() == 3
    found["here"].unlink()
    assert timeout() == 4
    found["user"].unlink()
    assert shell.json("config", "show")[1]["path"] is None


def test_the_embedded_service_ignores_the_file(shell: Shell, folder: Path) -> None:
    write(folder / "outreach.toml", "broken")
    assert shell("fields", "--base-url", "fake:").code == 0
    assert shell("fields").code == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("campaigns", "--workspace", "retial"),
            "--workspace: expected a name, an id or a group of workspaces in outreach.toml, got 'retial'; did you mean 'retail'?",
        ),
        (("campaigns", "--workspace", "client-1"), "did you mean 'client-21' or 'client-19' or 'client-18'?"),
        (("campaigns",), "--workspace: missing; pass --workspace NAME, --workspace GROUP or --workspace all, or set OUTREACH_"),
        (
            ("contacts", "create", "--email", "a@b.example", "--workspace", "retail"),
            "expected one workspace, got 12 (client-01, client-03, client-05, client-07, client-09, ...) from --workspace or",
        ),
        (("fields", "--profile", "stagin"), "expected a profile of the file, got 'stagin'; add a table [profile.stagin]"),
        (("fields", "--config", "none.toml"), "none.toml: the configuration file cannot be read (No such file or directory)"),
    ],
)
def test_unknown_and_ambiguous_names_are_refused_with_a_remedy(
    shell: Shell, config: Path, arguments: tuple[str, ...], message: str
) -> None:
    del config
    assert message in shell.refused(*arguments)


def test_a_wrong_name_in_the_environment_is_named_by_its_variable(
    shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del config
    monkeypatch.setenv("OUTREACH_WORKSPACE", "client-01 nobody")
    assert "outreach-async: OUTREACH_WORKSPACE: expected a name" in shell("fields").err
    monkeypatch.setenv("OUTREACH_WORKSPACE", f"space_01 {KEY}")
    ended = shell("fields")
    assert ended.err.startswith("outreach-async: OUTREACH_WORKSPACE: expected ")
    assert KEY not in ended.err


def test_lists_over_several_workspaces_have_a_column_with_names(shell: Shell, config: Path) -> None:
    del config
    rows = [line.split("\t") for line in shell("campaigns", "--workspace", "retail", "--columns", "id").out.splitlines()]
    assert rows[0] == ["workspace", "id"]
    assert rows[1:] == [[f"client-{number:02}", f"camp_{number:02}"] for number in range(1, WORKSPACES, 2)]
    code, value = shell.json("mailboxes", "--workspace", "client-01 space_02", "--workspace", "client-01")
    assert (code, value["count"]) == (0, 2)
    assert [(item["workspace"], item["workspace_name"]) for item in value["data"]] == [
        ("space_01", "client-01"),
        ("space_02", "client-02"),
    ]
    assert shell("fields", "--workspace", "client-01").out.startswith("code\t")


def test_a_workspace_that_cannot_be_read_does_not_hide_the_others(shell: Shell, config: Path) -> None:
    write(config, config.read_text() + '\ngone = { id = "space_gone" }')
    ended = shell("campaigns", "--columns", "id", "--workspace", "gone", "--workspace", "client-02")
    assert (ended.code, ended.out) == (3, "workspace\tid\nclient-02\tcamp_02\n")
    assert ended.err.startswith("outreach-async: gone: ")
    assert shell("fields", "--workspace", "gone", "--workspace", "client-02").code == 3
    alone = shell("campaigns", "--workspace", "gone")
    assert (alone.code, alone.out) == (1, "")
    assert "Traceback" not in alone.err


def test_a_contact_is_created_with_the_key_of_its_workspace(
    shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch, agency_service: FakeService
) -> None:
    del config
    create = ("contacts", "create", "--email", "ann@a.example", "--workspace")
    assert "--owner-key: the environment variable OUR_KEY is not set; set it" in shell.refused(*create, "client-00")
    monkeypatch.setenv("OUR_KEY", "key_00")
    assert [shell(*create, name).code for name in ("client-00", "client-05", "client-06")] == [0, 0, 77]
    assert [len(agency_service.contacts(f"space_{number:02}")) for number in (0, 5, 6)] == [2, 2, 1]


@pytest.mark.thorough
def test_reports_over_all_workspaces_have_their_names(shell: Shell, config: Path) -> None:
    del config
    code, report = shell.json("audit", "--workspace", "all")
    assert (code, len(report["names"]), report["names"]["space_05"]) == (1, WORKSPACES, "client-05")
    ended = shell("brief", "--workspace", "all", "--format", "markdown")
    assert (ended.code, "`client-00 (space_00)`" in ended.out) == (1, True)


@pytest.mark.parametrize(
    "names", [pytest.param(("all",), marks=[pytest.mark.thorough, pytest.mark.covers]), ("client-01", "client-05", "client-07")]
)
def test_an_audit_with_several_rates_is_one_report(shell: Shell, config: Path, names: tuple[str, ...]) -> None:
    options = tuple(part for name in names for part in ("--workspace", name))
    del config
    shared = shell.json("audit", *options, "--campaigns", "--rate", "1000")[1]
    code, apart = shell.json("audit", *options, "--campaigns")
    assert code == 1
    assert {**apart, "at": 0} == {**shared, "at": 0}
    assert "--deadline: expected more than 0 seconds" in shell.refused("audit", *options, "--deadline", "-1")


def test_an_audit_with_several_rates_has_a_page_for_each_workspace(shell: Shell, config: Path) -> None:
    ended = shell(
        "audit", "--workspace", "client-01", "--workspace", "client-05", "--output-folder", str(config.parent / "pages")
    )
    assert ended.code == 0, ended.err
    for name in ("client-01", "client-05"):
        report = json.loads((config.parent / "pages" / f"{name}.json").read_text(encoding="utf-8"))
        assert list(report["names"].values()) == [name]


@pytest.mark.parametrize("ahead", [0, 3600])
def test_an_audit_with_several_rates_follows_the_clock_of_the_service(shell: Shell, config: Path, ahead: float) -> None:
    service = FakeService(clock=lambda: time.time() + ahead)
    service.add_workspace("space_1")
    service.add_workspace("space_2")
    with serve_in_thread(service) as url:
        write(
            config, f'base_url = "{url}"\n[workspaces]\na = {{ id = "space_1", rate = 50 }}\nb = {{ id = "space_2", rate = 50 }}'
        )
        report = shell.json("audit", "--workspace", "all")[1]
    assert report["at"] == pytest.approx(time.time() + ahead, abs=30)


def test_a_workspace_with_a_low_rate_does_not_slow_the_others_down(shell: Shell, config: Path) -> None:
    write(config, config.read_text().replace("rate = 50", "rate = 0.001"))
    options = ("--workspace", "client-01", "--workspace", "client-05", "--deadline", "2", "--campaigns")
    code, report = shell.json("audit", *options)
    assert (code, report["unreadable"]) == (3, ["space_05"])


@pytest.mark.thorough
@pytest.mark.covers
def test_an_import_finds_workspaces_by_name_and_refuses_other_keys(
    shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch, agency_service: FakeService
) -> None:
    monkeypatch.setenv("OUR_KEY", "key_00")
    agency_service.add_owner_key(*(f"space_{number:02}" for number in range(WORKSPACES)), key="key_all")
    rows = [f"new{number}@a.example,client-{number:02},Spring" for number in range(WORKSPACES)]
    people = write(config.with_name("people.csv"), "\n".join(["email,workspace,campaign", *rows, "x@a.example,space_07,camp_07"]))
    before = len(agency_service.contacts("space_05"))
    run = ("import", str(people), "--workspace", "client-00")
    assert shell.json(*run, "--dry-run")[1]["outcomes"]["rejected"] == 1
    monkeypatch.setenv("OUR_KEY", "key_all")
    code, value = shell.json(*run)
    assert (code, value["outcomes"]["added"], value["outcomes"]["rejected"]) == (3, WORKSPACES, 1)
    told = str(value["failures"])
    assert "workspace: expected a workspace with the owner key of client-00, got client-05, which has another key" in told
    assert "import its rows with --workspace client-05" in told
    assert len(agency_service.contacts("space_05")) == before
    assert {contact["email"] for contact in agency_service.contacts("space_07")[-2:]} == {"new7@a.example", "x@a.example"}
    monkeypatch.setenv("OUTREACH_OWNER_KEY", "key_all")  # one key for all workspaces
    assert shell.json(*run)[1]["outcomes"]["added"] == 1
    write(people, "email,workspace\ny@a.example,klient-07")
    ended = shell(*run, "--map", "workspace=workspace")
    assert (ended.code, "did you mean 'client-07'" in ended.out) == (3, True)


def test_config_check_says_what_works_in_each_workspace(shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "key_00")
    code, value = shell.json("config", "check")
    assert (code, value["readable"], len(value["workspaces"])) == (0, WORKSPACES, WORKSPACES)
    assert value["workspaces"][5] == {
        "workspace": "space_05",
        "name": "client-05",
        "readable": True,
        "campaigns": 1,
        "owner_key": "works",
        "errors": [],
    }
    assert (value["path"], value["readable"], value["creating"]) == ("outreach.toml", WORKSPACES, WORKSPACES)
    write(config, config.read_text() + '\ngone = { id = "space_gone" }')
    monkeypatch.setenv("OUTREACH_OWNER_KEY", "key_00")
    ended = shell("config", "check", "--workspace", "gone", "--workspace", "client-05")
    assert (ended.code, "outreach-async: gone: " in ended.err) == (3, True)
    assert "Configuration: outreach.toml\n" in ended.out
    assert ended.out.endswith(
        "Reading works for 1 of 2 workspaces.\n"
        "Creating contacts: 2 of 2 workspaces have an owner key. Audits, briefs and lists need none.\n"
    )


def test_config_check_names_a_cause_once_and_tells_reading_from_creating(
    shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OUR_KEY", raising=False)
    ended = shell("config", "check")
    assert ended.code == 1
    assert ended.err == (
        "outreach-async: 23 workspaces (client-00, client-01, client-02 and 20 more): --owner-key: the environment variable "
        "OUR_KEY is not set; set it, or correct its name in the configuration file\n"
    )
    assert ended.out.endswith(
        "Reading works for 24 of 24 workspaces.\n"
        "Creating contacts: 1 of 24 workspaces have an owner key. Audits, briefs and lists need none.\n"
    )
    write(config, "\n".join(line for line in config.read_text().splitlines() if "key" not in line))
    ended = shell("config", "check")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.endswith("Creating contacts: no owner key is configured. Audits, briefs and lists need none.\n")


@pytest.mark.parametrize(("count", "code"), [(1, 3), (2, 77)])
def test_config_check_tells_denied_workspaces_from_unreadable_ones(shell: Shell, folder: Path, count: int, code: int) -> None:
    service = small_service()
    service.add_workspace("space_2")
    with serve_in_thread(service) as url:
        write(
            folder / "outreach.toml",
            f'base_url = "{url}"\nworkspaces = {{ one = {{ id = "space_1" }}, two = {{ id = "space_2" }} }}',
        )
        from outreach_async.fake import faults

        service.faults.script("list_campaigns", *[faults.status(403)] * count)
        assert shell("config", "check").code == code


def test_config_show_names_sources_and_shows_no_secret(shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUR_KEY", "key_secret")
    write(config, config.read_text().replace('["echo", "key_05"]', '["vault", "--token=tok_5", "key_05"]'))
    assert "client-05\tspace_05\tretail\tcommand vault\t50" in shell("config", "show").out
    own = load_config(config).base_url
    elsewhere = shell("config", "show", "--base-url", "https://other.example").out
    assert f"client-05\tspace_05\tretail\tcommand vault (only for {own})\t50" in elsewhere
    monkeypatch.setenv("OUTREACH_OWNER_KEY", "key_s3cr3t")
    monkeypatch.setenv("OUTREACH_BASE_URL", "https://user:hunter2@api.example")
    shown, (code, value) = shell("config", "show", "--rate", "3"), shell.json("config", "show", "--rate", "3")
    assert code == 0
    assert "client-05\tspace_05\tretail\t\t\n" in shown.out  # neither its key nor its rate is used
    assert [(each["owner_key"], each["rate"]) for each in value["workspaces"]] == [(None, None)] * WORKSPACES
    assert value["values"]["base_url"] == {"value": "https://api.example", "from": "OUTREACH_BASE_URL"}
    assert value["values"]["owner_key"] == {"value": "***", "from": "OUTREACH_OWNER_KEY"}
    assert value["values"]["rate"] == {"value": 3, "from": "--rate"}
    assert value["values"]["timeout"] == {"value": 30, "from": "default"}
    for secret in ("key_secret", "key_s3cr3t", "hunter2", "tok_5", "key_05"):
        assert secret not in shown.out + shown.err + json.dumps(value)


def test_config_init_writes_a_private_file_once(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    previous = os.umask(0)
    try:
        ended = shell("config", "init")
    finally:
        os.umask(previous)
    assert (ended.code, (folder / "outreach.toml").stat().st_mode & 0o777) == (0, 0o600)
    assert "Next, edit it, and run: outreach-async config trust && outreach-async config check\n" in ended.out
    again = shell("config", "init")
    assert (again.code, "--config outreach.toml: the file exists, and is not overwritten; pass another path" in again.err) == (
        2,
        True,
    )
    assert shell("config", "show").code == 0
    assert "--config no/folder.toml: cannot be written (No such file or directory)" in shell.refused(
        "--config", "no/folder.toml", "config", "init"
    )
    monkeypatch.setenv("OUTREACH_BASE_URL", "fake:")
    assert shell("config", "init", "--config", "fake.toml").out.startswith("Written: fake.toml\n")
    monkeypatch.setenv("OUTREACH_BASE_URL", "https://api.example\r\n")
    monkeypatch.setenv("OUTREACH_WORKSPACE", "space_acme,space_bolt unknown\n")
    assert shell("config", "init", "--config", "my file.toml").out.endswith("config check --config 'my file.toml'\n")
    monkeypatch.delenv("OUTREACH_BASE_URL")
    monkeypatch.delenv("OUTREACH_WORKSPACE")
    _, value = shell.json("config", "show", "--config", "my file.toml")
    assert value["values"]["base_url"]["value"] == "https://api.example"
    assert [(each["name"], each["id"]) for each in value["workspaces"]] == [("acme", "space_acme"), ("bolt", "space_bolt")]


GROUPS = st.lists(st.text("aZ9 ßé&'\"", min_size=1, max_size=9).map("g{}g".format), max_size=3, unique=True)
NAMES = st.text("aZ9_- äßé&'\"\\.=#[]", min_size=1, max_size=12).map(str.strip).filter(bool)
KEYS = st.sampled_from(
    [
        ("", None),
        ("env: ACME_KEY ", KeyReference("env", "ACME_KEY")),
        ('command:vault read "my key"', KeyReference("command", ("vault", "read", "my key"))),
        ("op://vault/acme/key", KeyReference("command", ("op", "read", "op://vault/acme/key"))),
    ]
)


@given(st.dictionaries(NAMES, st.tuples(GROUPS, KEYS), min_size=1, max_size=5))
@settings(max_examples=scaled(10), phases=WITHOUT_SHRINKING)
def test_config_init_writes_the_workspaces_of_any_table(
    rows: dict[str, tuple[list[str], tuple[str, KeyReference | None]]],
) -> None:
    with TemporaryDirectory() as folder:
        table, path = Path(folder) / "clients.csv", Path(folder) / "outreach.toml"
        with table.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["Contact", "API key", "Client", "Workspace ID", "Groups"])
            for at, (name, (groups, (key, _))) in enumerate(rows.items()):
                writer.writerow(["Bo", key, f" {name} ", f"space_{at}", "; ".join(groups)])
                writer.writerow([""] * 5)  # as sheets have them
        lines, unused = read_clients(open_file(table))
        path.write_text("\n".join(["[workspaces]", *lines]), encoding="utf-8")
        found = load_config(path).workspaces

    assert unused == ["'Contact'"]
    assert [(each.name, each.id, each.groups, each.owner_key) for each in found] == [
        (name, f"space_{at}", tuple(groups), key) for at, (name, (groups, (_, key))) in enumerate(rows.items())
    ]


def test_config_init_writes_a_file_from_a_sheet_of_clients(shell: Shell, folder: Path, agency_url: str) -> None:
    sheet = folder / "clients.csv"
    rows = ["workspace,id,Since,key", "Müller GmbH,space_01,May,env:ACME_KEY", ",,,", ",space_02,June,op://vault/acme/key", ""]
    sheet.write_text("\n".join(rows), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OUTREACH_BASE_URL", agency_url)
        ended = shell("config", "init", "--from", str(sheet))
    assert ended.err == "outreach-async: --from: columns that say nothing of workspaces are not used: 'Since'\n"
    assert shell.json("config", "check")[1]["readable"] == 2
    assert [(each.name, str(each.owner_key)) for each in load_config(folder / "outreach.toml").workspaces] == [
        ("Müller GmbH", "environment variable ACME_KEY"),
        ("02", "command op"),
    ]


def test_a_table_of_clients_may_have_blank_rows_and_be_of_any_format(folder: Path) -> None:
    table = folder / "clients.jsonl"
    table.write_text('{"id": "space_1"}\n{"id": " "}\n{"id": "space_2"}\n', encoding="utf-8")
    assert read_clients(open_file(table)) == (['1 = { id = "space_1" }', '2 = { id = "space_2" }'], [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("client,groups\nacme,retail", "expected a column with the ids of the workspaces, got 'client', 'groups'; name one"),
        ("client,id\n,", "expected a row for each client, got none; add them below the header"),
        ("client,id\nacme,space_1\nacme,space_2", "line 3, client: expected a name of its own, got 'acme', as in line 2; rename"),
        ("client,id\nacme,camp_1", "line 2, id: expected a string starting with 'space_', got what looks like a campaign id"),
        ("client,id\na,space_1\nb,space_1", "line 3, id: expected one name for each id, got space_1 also for 'a'; remove one"),
        ("client,id\nall,space_1", "line 2, client: expected a name for the workspace, got 'all', which selects every workspace"),
        ("client,id,groups\nacme,space_1,all", "line 2, groups: expected a name for the group, got 'all', which selects every"),
        ("client,id\nacme", "line 2: expected 2 cells, got 1"),
        ("id,key\nspace_1,key_s3cr3t", "line 2, key: expected env:NAME, file:PATH, command:PROGRAM ARGUMENTS or op://"),
        ("id,key\nspace_1,env:key_s3cr3t", "which may be a key; keep keys out of the table, and write where each one is stored"),
        ("id,key\nspace_1,s3cr3t:x", "line 2, key: expected env:NAME"),
        ("id,key\nspace_1,command:op 'read", "line 2, key: expected a command with closed quotes, got an open one; close it"),
    ],
)
def test_config_init_refuses_a_table_that_it_cannot_use(shell: Shell, folder: Path, text: str, message: str) -> None:
    (folder / "clients.csv").write_text(text)
    refused = shell.refused("config", "init", "--from", "clients.csv")
    assert f"--from: clients.csv, {message}" in refused or message in refused
    assert "s3cr3t" not in refused
    assert not (folder / "outreach.toml").exists()


@pytest.mark.parametrize("url", ["https://user:hunter2@api.example", "not a url", "fake:"])
def test_config_init_leaves_out_an_address_that_no_file_may_have(
    shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    monkeypatch.setenv("OUTREACH_BASE_URL", url)
    assert shell("config", "init").code == 0
    assert '\n# base_url = "https://api.example"' in (folder / "outreach.toml").read_text()


def completed(*words: str) -> list[str]:
    return [item.value for item in complete(*words)]


def test_the_shell_completes_names_and_groups_of_workspaces(config: Path) -> None:
    write(config, config.read_text() + "\n[profile.staging]\nworkspaces.test = { id = 'space_t' }\n[profile.slow]\nrate = 1")
    assert completed("campaigns", "--workspace", "client-0") == [f"client-{number:02}" for number in range(10)]
    assert completed("campaigns", "--workspace", "RE") == ["retail"]
    assert completed("campaigns", "--profile", "staging", "--workspace", "") == ["test", "all"]
    config.rename(other := config.with_name("other.toml"))
    assert completed("campaigns", "--workspace", "") == []
    assert completed("--config", str(other), "campaigns", "--workspace", "RE") == ["retail"]
    other.chmod(0o666)
    assert completed("--config", str(other), "campaigns", "--workspace", "") == []


@pytest.mark.parametrize("named", ["--base-url", "OUTREACH_BASE_URL"])
def test_a_key_of_the_file_is_never_sent_to_another_address(
    shell: Shell, config: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("OUR_KEY", "key_00")
    people = write(config.with_name("people.csv"), "email\nnew@a.example\n")
    other = agency()
    received: list[bytes] = []

    class Watched:
        def exchange(self, request: Request, /) -> Exchange:
            received.append(request.body)
            return other.exchange(request)

    with serve_in_thread(Watched()) as url:
        if named == "OUTREACH_BASE_URL":
            monkeypatch.setenv(named, url)
        options = ("--workspace", "client-00", *((named, url) if named == "--base-url" else ()))
        create = ("contacts", "create", "--email", "ann@a.example", *options)
        for command in create, ("import", str(people), *options), ("mcp", "--allow-writes", "client-00", *options):
            err = shell.refused(*command)
            assert f"expected the key for {url}, got only that of outreach.toml for http://127.0.0.1:" in err
            assert (
                f'pass --owner-key or set OUTREACH_OWNER_KEY, or add a profile with base_url = "{url}", its owner_key and ' in err
            )
        code, checked = shell.json("config", "check", *options)
        assert (code, checked["workspaces"][0]["readable"], checked["workspaces"][0]["owner_key"]) == (1, True, "fails")
        own = load_config("outreach.toml").base_url
        assert f"environment variable OUR_KEY (only for {own})" in shell("config", "show", *options).out
        assert shell("import", str(people), "--dry-run", *options).code == 0
        assert not any(b"key_00" in body for body in received)
        assert shell(*create, "--owner-key", "key_00").code == 0
        assert any(b"key_00" in body for body in received)
