"""The command `import --processes`: what it refuses, and imports with real processes that are interrupted and killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from support.cli import Shell
from support.parts import KEY, ROW, SPACE, KillingService, find_wrong_effects, served, write_people
from support.results import read_results

from outreach_async._cli.values import FAKE
from outreach_async.parts import Connection, plan
from outreach_async.store import Store


def command(connection: Connection, folder: Path, *options: str) -> list[str]:
    place = ["--base-url", connection.base_url, "--workspace", SPACE, "--journal", str(folder / "journals")]
    return ["import", str(folder / "people.csv"), "--map", f"Note={ROW}", *place, *options]


def start(arguments: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OUTREACH_OWNER_KEY": KEY}
    whole = [sys.executable, "-m", "outreach_async", *arguments]
    return subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def people(rows: int) -> list[str]:
    return [f"u{row}@x.example" for row in range(rows)]


@pytest.mark.thorough
@pytest.mark.covers
def test_processes_say_what_one_process_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    emails = [*people(60), "", "U7@x.example", "no address", *(f"v{row}@x.example" for row in range(20))]
    write_people(tmp_path / "people.csv", emails, 0)
    said: list[Any] = []
    for name, options in ("one", []), ("two", ["--processes", "2"]), ("many", ["--processes", "5", "--rate", "2000"]):
        with served(KillingService(before=["u1@x.example"])) as connection:
            written = [f"--{output}={tmp_path / f'{name}.{output}'}" for output in ("results", "rejects")]
            own = ["--journal", str(tmp_path / name), *written, "--json"]
            done = shell(*command(connection, tmp_path, *options, *own))
        report = json.loads(done.out)
        results = sorted((row["line"], row["email"], row["status"]) for row in read_results(tmp_path / f"{name}.results"))
        counts = {key: report[key] for key in ("rows", "outcomes", "uncertain", "repeats", "targets") if key in report}
        said.append((done.code, counts, results, len((tmp_path / f"{name}.rejects").read_text().splitlines())))
    assert said[0] == said[1] == said[2]
    assert said[0][0] == 3


@pytest.mark.thorough
@pytest.mark.covers
def test_processes_withhold_what_one_process_withholds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    write_people(tmp_path / "people.csv", [*people(40), "@x.example", "info@x.example"], 0)
    said: list[Any] = []
    for options in ["--dry-run"], [], ["--processes", "2", "--dry-run"], ["--processes", "2"]:
        with served(KillingService()) as connection:
            own = [
                *options,
                "--journal",
                str(tmp_path / options[0] if options else tmp_path / "one"),
                "--json",
                "--gate",
                "--max-risk",
            ]
            stopped = shell(*command(connection, tmp_path, *own, "4%"))
            assert "expected at most 4% risky rows, got 2 of 42 (4.76%: 1 invalid, 1 role); nothing is sent" in stopped.err
            done = shell(*command(connection, tmp_path, *own, "5%"))
        report = json.loads(done.out.splitlines()[-1])
        said.append((stopped.code, done.code, report["gate"], report["outcomes"]["excluded"], report["outcomes"]["added"]))
    assert said[::2] == said[:1] * 2
    assert said[1::2] == said[1:2] * 2
    assert (said[1][:2], said[1][3:]) == ((3, 0), (1, 41))


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_drains_the_processes_and_the_command_resumes(tmp_path: Path, number: int) -> None:
    write_people(tmp_path / "people.csv", people(300), 0)
    service = KillingService()
    with served(service) as connection:
        arguments = command(connection, tmp_path, "--processes", "2")
        running = start([*arguments, "--rate", "100"])
        service.call_at(40, lambda: running.send_signal(number))
        _, err = running.communicate(timeout=60)
        assert (running.returncode, service.requests < 300) == (130, True), err
        assert "waiting up to 30 s for requests in flight" in err
        again = start([*arguments, "--json"])
        out, err = again.communicate(timeout=60)
    report = json.loads(out)
    assert (again.returncode, report["rows"], report["uncertain"], service.requests) == (0, 300, 0, 300), err
    assert KEY not in out + err


@pytest.mark.thorough
@pytest.mark.covers
def test_a_terminated_command_says_how_to_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    write_people(tmp_path / "people.csv", people(200), 0)
    service, results = KillingService(), tmp_path / "results.csv"
    service.call_at(30, lambda: os.kill(os.getpid(), signal.SIGTERM))
    with served(service) as connection:
        arguments = command(connection, tmp_path, "--processes", "2", "--results", str(results))
        done = shell(*arguments, "--rate", "100")
    assert (done.code, results.exists(), 0 < service.requests < 200) == (130, False, True)
    assert "press Ctrl-C again to cancel them; run the same command again to resume" in done.err


def kill_parent(running: subprocess.Popen[str]) -> None:
    running.kill()


def kill_child(running: subprocess.Popen[str]) -> None:
    """Kill a process that imports parts. The other child is the resource tracker of `multiprocessing`."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    started = {child: Path(f"/proc/{child}/cmdline").read_text() for child in children}
    os.kill(int(next(child for child, line in started.items() if "spawn_main" in line)), signal.SIGKILL)


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize(("kill", "code"), [(kill_parent, -signal.SIGKILL), (kill_child, 75)])
def test_after_a_kill_the_same_command_imports_every_row(
    tmp_path: Path, kill: Callable[[subprocess.Popen[str]], None], code: int
) -> None:
    write_people(tmp_path / "people.csv", [*people(200), *(f"U{row}@x.example" for row in range(0, 40, 3))], 0)
    service = KillingService()
    with served(service) as connection:
        arguments = command(connection, tmp_path, "--processes", "2")
        running = start([*arguments, "--rate", "100"])
        service.call_at(60, lambda: kill(running))
        _, err = running.communicate(timeout=60)
        assert running.returncode == code, err
        assert "Traceback" not in err
        again = start([*arguments, "--json"])
        out, err = again.communicate(timeout=60)
        assert again.returncode == 0, err
    folder, made = tmp_path / "journals", plan([tmp_path / "people.csv"], overrides={"Note": ROW}, parts=8)
    assert list(find_wrong_effects(service, made, lambda part: Store(folder / f"{part.id}.db").outcomes())) == []
    assert json.loads(out)["rows"] == 214
    assert service.requests - 214 <= json.loads(out)["uncertain"]


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_the_key_is_in_no_argument_of_a_process(tmp_path: Path) -> None:
    write_people(tmp_path / "people.csv", people(30), 0)
    (tmp_path / "key").write_text(KEY)
    config = tmp_path / "outreach.toml"
    seen: list[bytes] = []

    def look() -> None:
        for child in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split():
            with suppress(OSError):
                seen.extend(Path(f"/proc/{child}/{name}").read_bytes() for name in ("cmdline", "environ"))

    service = KillingService()
    with served(service) as connection:
        config.write_text(f'base_url = "{connection.base_url}"\n[owner_key]\nfile = "{tmp_path}/key"\n')
        arguments = [*command(connection, tmp_path, "--processes", "2"), "--config", str(config)]
        environment = {name: value for name, value in os.environ.items() if name != "OUTREACH_OWNER_KEY"}
        whole = [sys.executable, "-m", "outreach_async", *arguments]
        service.call_at(10, look)
        running = subprocess.Popen(whole, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        _, err = running.communicate(timeout=60)
    assert running.returncode == 0, err
    assert len(seen) >= 4
    assert not [text for text in seen if KEY.encode() in text]


WAY = ("--base-url", "https://api.example", "--workspace", "space_1", "--owner-key", "key_1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--processes", "0"], "--processes"),
        (["--processes", "2", "--dask", "local"], "--processes: conflicts with --dask"),
        (["--processes", "2", "--ledger", "crm.ledger"], "--ledger: conflicts with --processes; one process compares"),
        (["--processes", "2", "--header", "A: b"], "--header: conflicts with --processes"),
        (["--processes", "2"], "--journal: with --processes, expected a folder"),
        (["--processes", "2", "--journal", "people.csv"], "--journal: with --processes, expected a folder"),
        (
            ["--processes", "9", "--concurrency", "8", "--journal", "j"],
            "--concurrency: expected at least one request for each process",
        ),
        (["--processes", "2", "--base-url", FAKE, "--journal", "j"], "--base-url: with --processes, expected a URL"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write_people(tmp_path / "people.csv", people(3), 0)
    assert message in shell.refused("import", "people.csv", *WAY, *options)


def test_standard_input_is_refused(shell: Shell) -> None:
    assert "standard input" in shell.refused("import", "-", *WAY, "--processes", "2", "--journal", "journals")


def test_a_file_that_is_one_part_is_refused(shell: Shell, tmp_path: Path) -> None:
    table = pa.table({"email": ["a@x.example", "b@x.example"]})
    parquet.write_table(table, tmp_path / "people.parquet")
    options = (*WAY, "--journal", str(tmp_path / "journals"), "--dry-run", "--processes")
    error = shell.refused("import", str(tmp_path / "people.parquet"), *options, "2")
    assert "is one part for one process (a workbook, a compressed file" in error
    assert "save it as CSV in UTF-8, or omit --processes" in error
    assert shell("import", str(tmp_path / "people.parquet"), *options, "1").code == 0
