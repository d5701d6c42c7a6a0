"""The files that a command may write: never one that it reads, and never one with other content."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from support.cli import COMMAND, COMMANDS, Shell, environment, save_contacts

from outreach_async.audit.reports import REPORT_FORMATS, SUFFIXES, has_format

PEOPLE = "email\na@a.example\nbad\n"
FAKE = ("--base-url", "fake:")


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in which `folder` creates its files."""
    return tmp_path_factory.mktemp("shared")


def fill(folder: Path) -> None:
    save_contacts(folder, PEOPLE)
    (folder / "people.csv").rename(folder / "k.csv")
    (folder / "link.csv").symlink_to("k.csv")
    (folder / "hard.csv").hardlink_to(folder / "k.csv")
    (folder / "inner").mkdir()
    (folder / "other").symlink_to(folder)
    (folder / "dangling.csv").symlink_to("new.csv")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "m.toml").write_text('[columns]\n"email" = "email"\n', encoding="utf-8")
    (folder / "p.toml").write_text('name = "ours"\n', encoding="utf-8")


@pytest.fixture
def folder(shared: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> Iterator[Path]:
    """Return the working folder of all tests: an input, links to it, a journal, a mapping and a policy."""
    # A test may add files, which are removed after it. It must leave the other files as they are.
    monkeypatch.chdir(shared)
    if not (shared / "k.csv").exists():
        fill(shared)
        assert shell("import", "k.csv", "--journal", "j.db", *FAKE).code == 3
    entries, before = set(shared.iterdir()), read_files(shared)
    yield shared
    for path in set(shared.iterdir()) - entries:
        path.unlink()
    assert read_files(shared) == before


IMPORT = ("import", "k.csv")


@pytest.mark.parametrize(
    ("arguments", "flags"),
    [
        *(((*IMPORT, "--rejects", name), ("FILE", "--rejects")) for name in ("k.csv", "inner/../k.csv", "hard.csv")),
        *(((*IMPORT, "--rejects", "link.csv", flag), ("FILE", "--rejects")) for flag in ("--dry-run", "--force")),
        ((*IMPORT, "--save-mapping", "k.csv"), ("FILE", "--save-mapping")),
        ((*IMPORT, "--journal", "k.csv", "--resume"), ("FILE", "--journal")),
        (("import", "j.db", "--journal", "j.db", "--resume"), ("FILE", "--journal")),
        ((*IMPORT, "--journal", "r.db", "--rejects", "r.db"), ("--journal", "--rejects")),
        ((*IMPORT, "--journal", "j.db", "--resume", "--rejects", "j.db"), ("--journal", "--rejects")),
        *(
            ((*IMPORT, "--journal", "r.db", "--rejects", f"r.db{ending}"), ("--journal", "--rejects"))
            for ending in ("-wal", "-shm", "-journal", "-lock")
        ),
        ((*IMPORT, "--mapping", "m.toml", "--rejects", "m.toml"), ("--mapping", "--rejects")),
        ((*IMPORT, "--gate", "--bounced", "m.csv", "--rejects", "m.csv"), ("--bounced", "--rejects")),
        ((*IMPORT, "--exclude", "m.toml", "--rejects", "m.toml"), ("--exclude", "--rejects")),
        ((*IMPORT, "--rejects", "new.csv", "--save-mapping", "dangling.csv"), ("--rejects", "--save-mapping")),
        (
            (*IMPORT, "--ledger", "l.db", "--changed", "ignore", "--hold", "1d", "--held-by", "j.db", "--rejects", "j.db"),
            ("--held-by", "--rejects"),
        ),
        (("report", "j.db", "--rejects", "k.csv"), ("the input of JOURNAL", "--rejects")),
        (("report", "j.db", "--rejects", "j.db"), ("JOURNAL", "--rejects")),
        (("report", "j.db", "--rejects", "j.db-wal"), ("JOURNAL", "--rejects")),
        (("audit", "--policy", "p.toml", "--output", "p.toml", "--format", "csv"), ("--policy", "--output")),
        *(
            (("audit", "--output", f"{one}.json", "--output", f"{other}.json"), ("--output", "--output"))
            for one, other in (("b", "other/b"), ("Straße", "STRASSE"), ("\u00e9", "E\u0301"), ("loop", "other/loop"))
        ),
    ],
    ids=" ".join,
)
def test_an_output_that_is_another_file_of_the_command_is_refused(
    shell: Shell, folder: Path, arguments: tuple[str, ...], flags: tuple[str, str]
) -> None:
    before = read_files(folder)
    (line,) = shell.refused(*arguments, *(() if arguments[0] == "report" else FAKE)).splitlines()
    assert all(flag in line for flag in flags)
    assert read_files(folder) == before


def run_redirected(redirection: str, *command: str) -> subprocess.CompletedProcess[str]:
    shell = ("sh", "-c", f'exec "$@" {redirection}', "sh", *command)
    return subprocess.run(shell, env=environment(), capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("redirection", "arguments"),
    [
        ("< k.csv", ("import", "-", "--rejects", "hard.csv")),
        ("< k.csv", ("import", "/dev/stdin", "--rejects", "link.csv")),
        (">> k.csv", ("import", "k.csv", "--rejects", "/dev/stdout")),
        (">> k.csv", ("import", "k.csv", "--rejects", "-")),
        ("3>> k.csv", ("import", "k.csv", "--rejects", "/dev/fd/3")),
    ],
)
def test_a_redirected_stream_is_recognised_as_its_file(folder: Path, redirection: str, arguments: tuple[str, ...]) -> None:
    before = read_files(folder)
    done = run_redirected(redirection, *COMMAND, *arguments, *FAKE)
    assert (done.returncode, "FILE" in done.stderr, "--rejects" in done.stderr) == (2, True, True)
    assert read_files(folder) == before


@pytest.mark.covers
@pytest.mark.thorough
def test_output_to_a_redirected_stdout_is_appended_in_order(folder: Path) -> None:
    (folder / "log.txt").write_text("earlier\n", encoding="utf-8")
    runs = [("import", "k.csv", "--rejects", output, *FAKE) for output in ("-", "/dev/stdout", "/proc/self/fd/1", "/dev/fd/1")]
    code = f"import sys; from outreach_async._cli.app import run; print(*map(run, {runs}), file=sys.stderr)"
    done = run_redirected(">> log.txt", sys.executable, "-W", "error", "-c", code)
    assert done.stderr == "3 3 3 3\n"
    parts = ("earlier\n", "warning: email: line 3: ", "email,_row,_code,_field,_message,_text\nbad,3,rejected,", "2 of 2 rows")
    found = re.findall("|".join(f"^{part}" for part in parts), (folder / "log.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert found == [parts[0], *parts[1:] * len(runs)]


@pytest.mark.parametrize("output", ["/dev/null", "pipe"])
def test_pipes_and_devices_never_need_force_and_may_be_shared(shell: Shell, folder: Path, output: str) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDWR)
    done = shell("import", "k.csv", "--rejects", output, "--save-mapping", output, *FAKE)
    os.close(reader)
    assert (done.code, done.err) == (3, "")
    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("import", "k.csv", "--rejects", "pipe"),
            "--rejects': pipe: no program reads this named pipe; start one first, or pass",
        ),
        (
            ("import", "k.csv", "--mapping", "pipe"),
            "--mapping': pipe: expected a file, got a named pipe; pass the path of a file",
        ),
        (
            ("import", "k.csv", "--journal", "pipe"),
            "--journal': pipe: expected a file, got a named pipe; pass the path of a file",
        ),
        (("serve", "--behaviour", "pipe"), "--behaviour': pipe: expected a file, got a named pipe; pass the path of a file"),
        (("history", "show", "pipe"), "FILE': pipe: expected a file, got a named pipe; pass the path of a file"),
    ],
)
def test_a_named_pipe_that_would_wait_is_refused(shell: Shell, folder: Path, arguments: tuple[str, ...], message: str) -> None:
    os.mkfifo(folder / "pipe")
    assert f"Invalid value for '{message}" in shell.refused(*arguments, *FAKE * (arguments[0] == "import"))


def test_a_ledger_that_holds_people_and_is_a_named_pipe_is_not_damaged(shell: Shell, folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    hold = ("--ledger", "a.ledger", "--duplicates", "overwrite", "--hold", "3d", "--held-by", "pipe")
    refused = shell("import", "k.csv", *hold, *FAKE)
    message = f"--held-by: {folder}/pipe is a named pipe, not a ledger; pass the path of a ledger"
    assert (refused.code, refused.err) == (2, f"outreach-async: {message}\n")


def test_a_pipe_named_in_the_environment_is_refused(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(folder / "pipe")
    monkeypatch.setenv("OUTREACH_CONFIG", "pipe")
    assert "pipe: expected a file, got a named pipe; pass the path of a file" in shell.refused("campaigns")


@pytest.mark.thorough
def test_an_audit_may_overwrite_the_file_it_is_compared_with(shell: Shell, folder: Path) -> None:
    compared = [shell("audit", *compare, "--output", "a.json", *FAKE).code for compare in ((), ("--compare", "a.json"))]
    assert compared == [1, 1]
    assert json.loads((folder / "a.json").read_bytes())["diff"] is not None


@pytest.mark.parametrize("text", ['[columns]\n"email" = "email"\n', 'columns = { email = "email" } # mine\n'])
def test_a_mapping_may_be_saved_over_the_one_that_was_read(shell: Shell, folder: Path, text: str) -> None:
    (folder / "own.toml").write_text(text, encoding="utf-8")
    assert shell("import", "k.csv", "--mapping", "own.toml", "--save-mapping", "own.toml", "--dry-run").code == 0
    assert tomllib.loads((folder / "own.toml").read_text())["columns"] == {"email": "email"}


OUTPUTS = {
    "rejects": ("import", "k.csv", "--dry-run", "--rejects"),
    "mapping": ("import", "k.csv", "--dry-run", "--save-mapping"),
    "report": ("report", "j.db", "--rejects"),
    "results": ("report", "j.db", "--results"),
    "audit": ("audit", "--format", "json", *FAKE, "--output"),
    "brief": ("brief", *FAKE, "--format", "html", "--output"),
}


@pytest.mark.parametrize("output", OUTPUTS)
def test_a_file_with_other_content_is_replaced_only_with_force(shell: Shell, folder: Path, output: str) -> None:
    target, arguments = folder / "target", OUTPUTS[output]
    target.write_bytes(b"My notes, which nobody else has.\n\xff\0")
    before = read_files(folder)
    refused = shell(*arguments, "target")
    assert (refused.code, read_files(folder)) == (2, before)
    assert f"{arguments[-1]} target" in refused.err
    assert "--force" in refused.err
    assert shell(*arguments, "target", "--force").code != 2
    assert read_files(folder)["target"] != before["target"]


@pytest.mark.thorough
@pytest.mark.parametrize("output", OUTPUTS)
def test_an_empty_file_or_an_earlier_output_is_replaced_without_force(shell: Shell, folder: Path, output: str) -> None:
    target, arguments = folder / "target", OUTPUTS[output]
    target.touch()
    codes = {shell(*arguments, "target").code for _ in range(2)}
    assert 2 not in codes
    assert target.stat().st_size > 0


@pytest.mark.parametrize("text", ["email,_row,_code,_field,_message\n", "\ufeffemail,_row,_code,_field,_message\r\nx,2,,,\r\n"])
def test_a_corrected_rejects_file_is_still_a_rejects_file(shell: Shell, folder: Path, text: str) -> None:
    (folder / "target").write_text(text, encoding="utf-8")
    assert shell(*OUTPUTS["rejects"], "target").code == 0


@pytest.mark.parametrize("text", ['"' + "x" * 200_000, "a\0b,_row\n", "x" * 200_000], ids=["quote", "nul", "line"])
def test_a_file_that_is_not_a_table_is_not_a_rejects_file(shell: Shell, folder: Path, text: str) -> None:
    (folder / "target").write_text(text, encoding="utf-8")
    assert shell(*OUTPUTS["rejects"], "target").code == 2


def test_a_file_too_large_for_a_mapping_is_not_read_as_one(shell: Shell, folder: Path) -> None:
    with (folder / "target").open("wb") as file:
        file.truncate(1 << 33)
    assert shell(*OUTPUTS["mapping"], "target").code == 2


LISTS = ("campaigns", "fields", "mailboxes", "steps")


def test_every_option_that_takes_a_path_is_classified() -> None:
    found = {
        (name, parameter.name): type(parameter.type).__name__ == "_OutputType"
        for name, command in COMMANDS.items()
        for parameter in command.params
        if isinstance(parameter.type, click.Path) and name and " " not in name
    }
    reads = [
        ("import", "file"),
        ("import", "mapping"),
        ("import", "bounced"),
        ("import", "exclude"),
        ("report", "source"),
        ("report", "mapping"),
        ("audit", "policy"),
        ("audit", "compares"),
    ]
    reads += [
        ("client-report", "file"),
        ("client-report", "logo"),
        ("brief", "policy"),
        ("serve", "world"),
        ("serve", "behaviour"),
    ]
    reads += [(command, "config") for command in ("audit", "brief", "client-report", "erase", "import", "mcp", "plan", *LISTS)]
    writes = [(command, output) for command in ("import", "report") for output in ("rejects", "results")]
    writes += [("import", "findings")]
    writes += [("import", "save_mapping"), ("audit", "outputs"), ("brief", "outputs")]
    writes += [(command, "output") for command in LISTS]
    journals = [("import", "journal"), ("import", "ledger"), ("report", "journal"), ("audit", "output_folder")]
    journals += [("client-report", "output_folder"), ("audit", "ledgers"), ("brief", "ledgers")]
    journals += [(command, "history") for command in ("audit", "brief", "mcp", "plan")]
    journals += [("erase", name) for name in ("source", "paths", "and_exclude")]  # it changes only files that it recognises
    assert found == dict.fromkeys([*reads, *journals], False) | dict.fromkeys(writes, True)


@pytest.mark.thorough
def test_a_report_is_recognised_by_its_beginning(shell: Shell, tmp_path: Path) -> None:
    suffixes = {form: suffix for suffix, form in SUFFIXES.items() if form in REPORT_FORMATS}
    paths = {form: tmp_path / f"report{suffix}" for form, suffix in suffixes.items()}
    shell("audit", *(part for path in paths.values() for part in ("--output", str(path))), *FAKE)
    (notes := tmp_path / "notes").write_bytes(b"My notes, which nobody else has.\n\xff\0")
    assert set(paths) == set(REPORT_FORMATS)
    for form, path in paths.items():
        assert [each for each in REPORT_FORMATS if has_format(each, path)] == [form]
        assert not has_format(form, notes)
