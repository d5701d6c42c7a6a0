"""Output that is lost: a full, a closed or an unread stdout, and a process with few descriptors."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final, TextIO

import pytest
from support.cli import COMMAND, KEY, Served, run, save_contacts, start_command, wait_for_end

FAKE: Final = ("--base-url", "fake:", "--workspace", "space_demo")
pytestmark = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")


def unread() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", encoding="utf-8")


STREAMS: dict[str, tuple[Callable[[], TextIO | None], str]] = {
    "full": (lambda: os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8"), "No space left on device"),
    "unread": (unread, "Broken pipe"),
    "closed": (lambda: None, "Bad file descriptor"),
}
SLOW: Final = (pytest.mark.thorough, pytest.mark.covers)
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "contact": (
        ("contacts", "create", *FAKE, "--owner-key", "key_demo", "--email", "a@a.example"),
        "; the contact: added contact_",
    ),
    "import": (("import", "{people}", *FAKE, "--owner-key", "key_demo", "--json"), "; the rows of the run: 1 added"),
    "file": (("config", "init", "--config", "{folder}/new.toml"), "; Written: "),
    "audit": (("audit", *FAKE, "--output", "{folder}/audit.json"), "; Written: "),
    "nothing": (("mailboxes", *FAKE), ""),
    "report": (("audit", *FAKE, "--format", "csv"), ""),
    "version": (("--version",), ""),
}


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=SLOW if each[0][0] == "audit" else ()) for name, each in COMMANDS.items()]
)
def test_a_command_without_stdout_says_on_stderr_what_it_has_changed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, stream: str
) -> None:
    arguments, applied = COMMANDS[command]
    people = save_contacts(tmp_path, "email\na@a.example\n")
    make, reason = STREAMS[stream]
    with redirect_stdout(make()):
        code = run([argument.format(people=people, folder=tmp_path) for argument in arguments])
        sys.stdout.close()
    if stream == "unread" and not applied:  # such as `mailboxes | head`
        assert (code, capsys.readouterr().err) == (141, "")
        return
    assert code == 3
    assert capsys.readouterr().err.startswith(f"outreach-async: standard output: cannot be written ({reason}){applied}")


@pytest.mark.parametrize("flag", ["--results", "--rejects"])
@pytest.mark.parametrize("way", [(), ("--journal", "{folder}/run.db"), ("--ledger", "{folder}/ledger", "--changed", "ignore")])
def test_a_file_that_cannot_be_written_after_rows_were_sent_is_no_wrong_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, way: tuple[str, ...]
) -> None:
    people = save_contacts(tmp_path, "email\na@a.example\n")
    options = ("--owner-key", "key_demo", *(each.format(folder=tmp_path) for each in way), flag, "/dev/full")
    assert run(["import", str(people), *FAKE, *options]) == 3
    error = capsys.readouterr().err
    assert error.startswith(f"outreach-async: {flag} /dev/full: No space left on device; ")
    assert error.endswith("; the rows of the run: 1 added\n")


@pytest.mark.parametrize(("file", "code"), [("people.csv", 3), ("missing.csv", 2)])
def test_the_exit_code_is_the_same_if_stderr_is_full(tmp_path: Path, file: str, code: int) -> None:
    save_contacts(tmp_path, "email\na@a.example\n")
    full = STREAMS["full"][0]
    with redirect_stdout(full()), redirect_stderr(full()):
        assert run(["import", str(tmp_path / file), *FAKE, "--owner-key", "key_demo"]) == code
        sys.stdout.close()
        sys.stderr.close()


@pytest.mark.nightly
def test_an_import_with_few_descriptors_sends_every_row(served: Served, tmp_path: Path) -> None:
    people = save_contacts(tmp_path, "\n".join(["email", *(f"user{number}@a.example" for number in range(200))]))
    limited = ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *COMMAND]
    done = wait_for_end(start_command("import", str(people), *served.options, "--owner-key", KEY, "--no-strict", command=limited))
    assert (done.code, [line for line in done.err.splitlines() if "too many open files" not in line]) == (0, [])
    assert "200 of 200 rows" in done.out
