"""The `brief` command: its arguments, output, exit codes, and its history."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from rich.console import Console
from support.audit_reports import finding, make_report
from support.campaigns import DAY
from support.cli import COMMAND, Shell, environment
from support.histories import START, append_days

from outreach_async._cli.auditing import show
from outreach_async._cli.output import Screen
from outreach_async.audit import Report
from outreach_async.audit.reports.brief import Brief, build_brief
from outreach_async.fake import FakeService

FAKE = ("--base-url", "fake:")


@pytest.mark.thorough
def test_the_first_brief_creates_the_file_and_the_next_one_compares(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "history.db"
    first = shell("brief", *server_options, "--history", str(path))
    service.add_mailbox("space_1", id="mailbox_9", email="a@new.example", spf=False)
    second = shell("brief", *server_options, "--history", str(path))
    service.set_mailbox("mailbox_9", spf=True)
    _, third = shell.json("brief", *server_options, "--history", str(path))

    assert (first.code, first.err, second.code, second.err) == (0, "", 1, "")
    assert "There is no earlier brief to compare with." in first.out
    assert "No SPF: 1 mailbox on new.example (new)" in second.out
    assert [task["title"] for task in third["resolved"]] == ["No SPF"]
    assert [each.name for each in tmp_path.iterdir()] == ["history.db"]


def test_a_history_that_is_ahead_of_the_clock_stays_as_it_is(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    append_days(path := tmp_path / "history.db", 2, spaces=["space_1"], start=START + 40_000 * DAY)
    before = path.read_bytes()
    ended = shell("brief", *server_options, "--history", str(path), "--output", str(tmp_path / "brief.html"))
    assert (ended.code, path.read_bytes()) == (3, before)
    (remedy,) = re.findall(r"is later than now; nothing was appended: .*: outreach-async (history prune .*)", ended.err)
    assert "Would delete 2" in shell(*shlex.split(remedy), "--dry-run").out
    assert path.read_bytes() == before


def test_the_brief_counts_whom_the_last_import_did_not_write_to(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    ledger, people = str(tmp_path / "acme.ledger"), tmp_path / "people.csv"
    people.write_text("E-mail,Unsubscribed\nann@x.example,\nbo@x.example,yes\n", encoding="utf-8")
    assert shell("import", str(people), *server_options, "--ledger", ledger, "--changed", "ignore").code == 0
    ended = shell("brief", *server_options, "--ledger", ledger)
    _, value = shell.json("brief", *server_options, "--ledger", ledger)

    (last,) = value["imports"]
    assert (last["workspaces"], last["excluded"], last["held"], last["gated"]) == (["space_1"], 1, 0, 0)
    assert "space_1: 1 excluded, 0 held, 0 gated (" in " ".join(ended.out.split())
    missing = shell("brief", *server_options, "--ledger", f"{ledger}.old")
    assert (missing.code, "--ledger: " in missing.err, "does not exist" in missing.err) == (2, True, True)


def test_a_brief_finds_ledgers_in_the_configuration_and_survives_a_damaged_one(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    people, config = tmp_path / "people.csv", tmp_path / "outreach.toml"
    people.write_text("E-mail\nann@x.example\n", encoding="utf-8")
    spaces = {"acme": "space_1", "bolt": "space_2", "cord": "space_3"}
    lines = (f'{name} = {{ id = "{id_}", ledger = "{name}.ledger" }}' for name, id_ in spaces.items())
    config.write_text("\n".join(("[workspaces]", *lines, "")), encoding="utf-8")
    config.chmod(0o600)
    (tmp_path / "bolt.ledger").write_bytes(b"SQLite format 3\0" + bytes(4096))
    acme = str(tmp_path / "acme.ledger")
    assert shell("import", str(people), *server_options, "--ledger", acme, "--changed", "ignore").code == 0
    address = server_options[: server_options.index("--workspace")] if "--workspace" in server_options else server_options
    _, value = shell.json("brief", *address, "--config", str(config), "--workspace", "all")

    assert [(each["ledger"], each["excluded"]) for each in value["imports"]] == [(acme, 0)]


@pytest.mark.thorough
def test_audits_and_briefs_share_a_history(shell: Shell, tmp_path: Path) -> None:
    path = str(tmp_path / "history.db")
    assert shell("audit", *FAKE, "--campaigns", "--history", path).code == 1
    _, value = shell.json("brief", *FAKE, "--history", path)

    assert (value["changes"]["new"], value["changes"]["unchanged"] > 90) == (0, True)
    again = shell("audit", *FAKE, "--campaigns", "--history", path, "--no-append")
    assert " 0 new, 0 resolved, " in " ".join(again.out.split())


@pytest.mark.thorough
def test_no_append_shows_the_same_changes_again(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path = tmp_path / "history.db"
    shell("brief", *server_options, "--history", str(path), "--no-append")
    assert not path.exists()
    shell("brief", *server_options, "--history", str(path))
    before = path.read_bytes()
    service.add_mailbox("space_1", email="a@new.example", spf=False)

    for _ in range(2):
        assert "(new)" in shell("brief", *server_options, "--history", str(path), "--no-append").out
    assert path.read_bytes() == before


@pytest.mark.thorough
def test_a_brief_that_nobody_saw_leaves_the_file_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    read, write = os.pipe()
    os.close(read)
    command = [*COMMAND, "brief", *FAKE, "--history", str(path)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment(), check=False)
    os.close(write)

    assert (done.returncode != 0, done.stderr, path.exists()) == (True, "", False)


@pytest.mark.thorough
def test_an_output_does_not_replace_the_history(shell: Shell, tmp_path: Path) -> None:
    path = str(tmp_path / "history.db")
    shell("brief", *FAKE, "--history", path)
    same = shell("brief", *FAKE, "--history", path, "--output", path, "--format", "json")
    other = shell("brief", *FAKE, "--output", path, "--format", "json")

    assert (same.code, other.code) == (2, 2)
    assert "are the same file" in same.err
    assert "does not look like an output of this option" in other.err


@pytest.mark.parametrize("view", [make_report([finding()]), build_brief(make_report([finding()]))], ids=["audit", "brief"])
def test_a_terminal_gets_the_styled_report(tmp_path: Path, view: Report | Brief) -> None:
    with (tmp_path / "screen").open("w+", encoding="utf-8") as page:
        show(Screen(as_json=False, console=Console(file=page, width=80, force_terminal=True)), view)
        page.seek(0)
        shown = page.read()

    assert "\x1b[" in shown
    assert "What to do, most urgent first" in shown
