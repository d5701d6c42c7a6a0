"""The command as a process: signals, pipes, terminals, ports and missing libraries."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from threading import Event
from time import monotonic

import anyio
import attrs
import pytest
from support.cli import (
    COMMAND,
    LOGGER,
    Ended,
    Shell,
    Watched,
    connection_options,
    environment,
    on_terminal,
    save_contacts,
    serve_in_process,
    serve_in_thread,
    small_service,
    start_command,
    wait_for_end,
)

from outreach_async import Store
from outreach_async._cli.process import handle_termination
from outreach_async.fake import FakeService
from outreach_async.fake.faults import hang, ok, status


@pytest.mark.nightly
def test_demo_in_a_pipe_is_plain_text_that_ends_with_the_next_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = wait_for_end(start_command("demo"))
    assert (done.code, done.err) == (0, "")
    assert "\x1b" not in done.out
    assert done.out.startswith("\nThe brief of a morning, ")
    assert "\nOutreach brief: 340 mailboxes, 85 domains, 2 workspaces, 7 campaigns. " in done.out
    assert "On blacklists: 9 mailboxes on 2 domains (4 new)" in done.out
    assert "Renewals, first quarter (paused, was live): " in done.out
    assert " 400 new contacts. " in " ".join(done.out.split())
    assert "No DKIM: 4 mailboxes on northwind-team.example\n" in done.out
    assert "\n  first night: 2,819 added, 160 overwritten, 65 rejected\n" in done.out
    assert "\n  next night:  1 added, 20 overwritten, 65 rejected, 2,959 unchanged, 2 excluded, 1 of them held\n" in done.out
    begin = "  python -m outreach_async "
    suggested = [line.removeprefix(begin).split() for line in done.out.splitlines() if line.startswith(begin)]
    assert [words[0] for words in suggested] == ["brief", "audit", "campaigns", "import", "serve"]
    monkeypatch.chdir(tmp_path)
    people = save_contacts(tmp_path, "email\na@a.example\n")
    for words in suggested[:-1]:
        assert Shell(capsys)(*(people if word == "your.csv" else word for word in words)).err == ""


@pytest.mark.covers
@pytest.mark.thorough
def test_a_verbose_demo_shows_the_whole_brief_both_imports_and_the_audit(shell: Shell) -> None:
    done = shell("demo", "--verbose")
    assert (done.code, done.err) == (0, "")
    titles = (
        "The brief of a morning",
        "Outreach brief: ",
        "LESS URGENT",
        "The import of a list",
        "The next night",
        "Mailbox audit: ",
    )
    assert sorted(titles, key=done.out.index) == list(titles)
    assert "\nadded\t2819\noverwritten\t160\nrejected\t65\n3,044 rows" in done.out
    assert "\nledger: 43 new, 20 changed, 2,959 unchanged, 2 excluded, 1 held\n" in done.out
    assert "space_demo: 1 excluded, 1 held, 0 gated (2026-03-02" in done.out
    assert ": ada@new-customer.example: excluded: the list blocked has the address\n" in done.out
    assert ": grace@new-customer.example: excluded: held by space_demo_eu since 2026-03-02 until 2026-05-31\n" in done.out
    assert done.out.count("\nrejected: 21 rows: email must be an e-mail address (the service answered 422)\n") == 2


@pytest.mark.nightly
def test_demo_on_a_terminal_shows_colour_and_progress_with_rate_and_eta() -> None:
    done = on_terminal("demo")
    assert done.code == 0
    assert "\x1b[" in done.err
    assert "3,044 of 3,044 rows, " in done.err
    assert "rows/s, ETA" in done.err
    assert "CRITICAL" in done.err
    assert "Traceback" not in done.err
    assert done.err.count("\n") <= 60


@pytest.mark.thorough
@pytest.mark.covers
def test_progress_on_the_terminal_does_not_affect_a_piped_stdout(tmp_path: Path) -> None:
    done = on_terminal("import", save_contacts(tmp_path, "email\na@a.example\nbad\n"), "--base-url", "fake:", piped_stdout=True)
    assert done.code == 3
    assert "2 of 2 rows" in done.err
    assert re.search(r"Checking [^\n]* 2 rows", done.err)  # the number of rows is unknown until the end
    assert "\nline 3: bad: rejected: " in done.out
    assert "\nadded\t1\n" in done.out
    assert "\x1b" not in done.out


@pytest.mark.thorough
@pytest.mark.covers
def test_an_audit_on_a_terminal_shows_its_progress() -> None:
    done = on_terminal("audit", "--base-url", "fake:")
    assert "Auditing" in done.err
    assert "2 of 2 workspaces" in done.err
    assert re.search(r"\d+ mailboxes, [\d.,]+/s, ETA 0:00:00", done.err)


@pytest.mark.thorough
def test_json_on_a_terminal_contains_only_json() -> None:
    done = on_terminal("fields", "--base-url", "fake:", "--json")
    assert done.code == 0
    assert json.loads(done.err)["count"] == 38


@pytest.mark.thorough
@pytest.mark.covers
def test_the_output_of_serve_suffices_to_import_and_sigterm_ends_it(tmp_path: Path) -> None:
    path = save_contacts(tmp_path, "email,Plan\nann@a.example,Gold\nbo@a.example,\nANN@a.example,\n")
    with serve_in_process("--verbose") as (server, entrance):
        env = {f"OUTREACH_{name.upper()}": entrance[name] for name in ("base_url", "workspace", "owner_key")}
        done = wait_for_end(start_command("import", path, "--campaign", entrance["campaign"], "--json", env=env))
        assert (done.code, done.err) == (0, "")
        report = json.loads(done.out)
        assert (report["rows"], report["outcomes"]["added"], report["outcomes"]["skipped"]) == (3, 2, 1)
        server.send_signal(signal.SIGTERM)
        assert re.fullmatch(r"POST /contacts 20[01] \d+\.\d ms", wait_for_end(server).err.splitlines()[-1])
        assert server.returncode == 0


@pytest.mark.thorough
def test_serve_ends_on_sigterm_where_ctrl_c_is_ignored(tmp_path: Path) -> None:
    world = tmp_path / "world.json"
    world.write_text('{"workspaces": [{"id": "space_1"}]}', encoding="utf-8")
    command = ("sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMAND)
    with serve_in_process("--world", str(world), command=command) as (server, entrance):
        assert {**entrance, "base_url": None} == dict.fromkeys(entrance) | {"workspace": "space_1"}
        server.send_signal(signal.SIGTERM)
        assert wait_for_end(server).err == ""
        assert server.returncode == 0


async def end_by_sigterm() -> bool:
    left = Event()
    with anyio.CancelScope() as scope, handle_termination(asyncio.get_running_loop(), scope, left.set, timeout=0):
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
        assert left.wait(10)  # the event loop does not run
        await anyio.sleep_forever()
    return scope.cancelled_caught


def test_sigterm_ends_a_command_also_while_its_event_loop_is_blocked() -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert anyio.run(end_by_sigterm)
    assert signal.getsignal(signal.SIGTERM) is before


WAITING = "outreach-async: waiting up to 30 s for requests in flight; press Ctrl-C again to cancel them"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("signals", "lines"),
    [([signal.SIGTERM], []), ([signal.SIGINT, signal.SIGINT], [WAITING, "outreach-async: interrupted"])],
    ids=["SIGTERM", "Ctrl-C"],
)
def test_an_import_that_is_stopped_reports_how_far_it_got(
    tmp_path: Path, signals: list[signal.Signals], lines: list[str]
) -> None:
    done = _stopped(tmp_path, *signals)
    assert (done.code, done.err.splitlines()) == (130, lines)
    report = json.loads(done.out)
    assert (report["rows"], report["outcomes"]["added"]) == (3, 3)


class CtrlC(logging.Handler):
    """Sends SIGINT to this process when a bulk run begins."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.__dict__.get("state") == "running":
            os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_during_the_import_of_the_demo_ends_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    handler, before = CtrlC(), LOGGER.level
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.INFO)
    try:
        done = Shell(capsys)("demo", "--json")
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(before)
    assert (done.code, done.err.splitlines()[-1]) == (130, "outreach-async: interrupted")
    shown = json.loads(done.out)
    assert (list(shown), shown["import"]["rows"] < 3044) == (["import"], True)


@pytest.mark.thorough
@pytest.mark.covers
def test_the_first_ctrl_c_ends_a_paused_import_and_the_report_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service, journal = small_service(), str(tmp_path / "run.db")
    service.faults.script("create_contact", ok, ok, ok, status(429, retry_after=600), ok)
    path = save_contacts(tmp_path, "email\n" + "".join(f"p{at}@a.example\n" for at in range(100)))
    with serve_in_thread(service) as url:
        options = (path, *connection_options(url), "--concurrency", "1", "--journal", journal)
        process = start_command("import", *options)
        assert process.stderr is not None
        shown = process.stderr.readline()
        assert "paused for 0:" in shown
        assert "(the service answered 429 and asked to wait 600 s)" in shown
        process.send_signal(signal.SIGINT)
        began = monotonic()
        done = wait_for_end(process)
        assert done.code == 130
        assert monotonic() - began < 20  # draining would take 30 s; ending takes less than 2 s on an idle machine
        assert done.err.splitlines()[-1] == "outreach-async: interrupted"
        journal_report = Store(journal).report()
        assert journal_report.state == "interrupted"
        code, value = Shell(capsys).json("import", *options, "--resume")
    assert (code, value["rows"], value["outcomes"]["added"], value["uncertain"]) == (0, 100, 100, 0)


def _stopped(tmp_path: Path, first: signal.Signals, *others: signal.Signals) -> Ended:
    """Start an import that hangs at its fourth row, and send it signals."""
    service, reached = small_service(), Event()
    service.faults.script("create_contact", ok, ok, ok, hang())
    path = save_contacts(tmp_path, "email\n" + "".join(f"p{at}@a.example\n" for at in range(100)))
    with serve_in_thread(Watched(service, 4, reached.set)) as url:
        process = start_command("import", path, *connection_options(url), "--concurrency", "1", "--json")
        assert reached.wait(600)
        process.send_signal(first)
        message = ""
        for number in others:
            assert process.stderr is not None
            message += process.stderr.readline()
            process.send_signal(number)
        done = wait_for_end(process)
    return attrs.evolve(done, err=message + done.err)


@pytest.mark.thorough
@pytest.mark.covers
def test_a_reader_that_closes_the_pipe_is_not_an_error() -> None:
    script = "import sys; from outreach_async.__main__ import main; sys.exit(main())"  # like the installed command
    process = start_command("mailboxes", "--base-url", "fake:", command=[sys.executable, "-W", "error", "-c", script])
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    done = wait_for_end(process)
    assert (done.code, done.err) == (141, "")


@pytest.mark.parametrize(
    ("library", "code", "message"),
    [
        (
            "raise ModuleNotFoundError('no click', name='click')",
            2,
            "install the command with: pip install 'outreach_async[cli]'\n",
        ),
        ("import nothing_of_this_name", 1, "No module named 'nothing_of_this_name'\n"),
        ("raise KeyboardInterrupt", 130, ""),
    ],
)
def test_a_command_whose_libraries_cannot_be_imported_says_why(tmp_path: Path, library: str, code: int, message: str) -> None:
    (tmp_path / "click.py").write_text(library, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "outreach_async", "demo"],
        env=environment(PYTHONPATH=str(tmp_path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == code
    assert done.stderr.endswith(message)
    assert ("Traceback" in done.stderr) == (code == 1)


@pytest.mark.thorough
def test_serve_prints_lines_that_a_shell_can_execute() -> None:
    with start_command("serve") as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        script = "".join(lines) + "outreach=$1; shift; exec $outreach campaigns --columns id"
        done = subprocess.run(
            ["/bin/sh", "-c", script, "sh", " ".join(COMMAND)], env=environment(), capture_output=True, text=True, check=False
        )
        process.send_signal(signal.SIGTERM)
        assert wait_for_end(process).err == ""
    assert [line.partition("=")[0] for line in lines[:3]] == [
        f"export OUTREACH_{name}" for name in ("BASE_URL", "WORKSPACE", "OWNER_KEY")
    ]
    assert lines[3] == "# try: outreach-async steps camp_spring\n"
    assert "camp_spring" in done.stdout.splitlines()


@pytest.mark.thorough
@pytest.mark.covers
def test_serve_exports_only_what_the_world_has(tmp_path: Path) -> None:
    (world := tmp_path / "world.json").write_text(FakeService().dump(), encoding="utf-8")
    with start_command("serve", "--world", str(world)) as process:
        assert process.stdout is not None
        assert re.fullmatch(r"export OUTREACH_BASE_URL=http://127\.0\.0\.1:\d+\n", process.stdout.readline())
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == ""
