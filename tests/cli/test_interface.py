"""What commands accept and show before they run: options, help, which imports nothing that only a run needs, and completion."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import click
import pytest
from support.cli import COMMANDS, LOGGER, PROGRAM, SHARED, VARIABLE, Ended, Shell, complete, save_contacts

from outreach_async import DuplicatePolicy
from outreach_async._cli.options import earlier
from outreach_async._plumbing import Backend
from outreach_async.audit import Severity
from outreach_async.audit.history import Kind
from outreach_async.audit.reports import BRIEF_FORMATS, REPORT_FORMATS, SUFFIXES
from outreach_async.bulk import Repeats
from outreach_async.fake import FakeService
from outreach_async.fake.behaviour import PRESETS
from outreach_async.importer import FORMATS, CheckPolicy
from outreach_async.store import Changed, Earlier

# A command has exactly the options that it uses.

SINGLE = {name: command for name, command in COMMANDS.items() if not isinstance(command, click.Group)}

ARGUMENTS = {
    "audit": (),
    "brief": (),
    "campaigns": (),
    "client-report": ("{history}", "--output-folder", "{folder}", "--force"),
    "config check": (),
    "config show": (),
    "contacts create": ("--email", "ann@a.example"),
    "demo": (),
    "erase": ("ann@a.example", "--path", "{journal}", "--dry-run"),
    "fields": (),
    "history export": ("{history}", "{folder}", "--force"),
    "history prune": ("{history}", "--keep", "1d"),
    "history show": ("{history}",),
    "import": ("{file}",),
    "mailboxes": (),
    "plan": (),
    "report": ("{journal}",),
    "steps": ("camp_1",),
}
"""The arguments with which each command succeeds. `completion` has no shared option; other tests run `serve` and `mcp`."""

PROBES = {
    "config": ("--config", "missing.toml"),
    "profile": ("--profile", "none"),
    "base_url": ("--base-url", "http://127.0.0.1:1"),
    "workspaces": ("--workspace", "space_none"),
    "owner_key": ("--owner-key", "key_other"),
    "as_json": ("--json",),
    "backend": ("--backend", "aiohttp"),
    "timeout": ("--timeout", "0"),
    "rate": ("--rate", "0"),
    "headers": ("--header", "X-Probe: 1"),
    "quiet": ("--quiet",),
    "verbose": ("--verbose",),
}
"""A value of each shared option that changes what a command does."""

UNSEEN = {("config show", "verbose"), ("config show", "headers")}
"""Options of a connection that change nothing, because the command sends no request."""


def shared_by(name: str) -> list[str]:
    return [str(parameter.name) for parameter in SINGLE[name].params if parameter.name in SHARED]


def test_the_walk_knows_every_command_and_shared_option() -> None:
    assert set(ARGUMENTS) == set(SINGLE) - {"completion", "config init", "config trust", "mcp", "serve"}
    assert set(PROBES) == set(SHARED)
    assert shared_by("completion") == []
    assert shared_by("serve") == ["as_json", "quiet", "verbose"]


@pytest.fixture
def attempt(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., object]]:
    """Yield a function that runs a command and returns everything that it did, without durations."""
    monkeypatch.setenv("OUTREACH_BASE_URL", server_options[1])
    monkeypatch.setenv("OUTREACH_WORKSPACE", server_options[3])
    path, journal = save_contacts(tmp_path, "email\nann@a.example\n"), str(tmp_path / "run.db")
    assert shell("import", path, "--journal", journal).code == 0
    paths = {"file": path, "journal": journal, "history": str(tmp_path / "history.db"), "folder": str(tmp_path / "tables")}
    assert shell("audit", "--campaigns", "--history", paths["history"]).code in {0, 1}
    world, handlers, level = service.dump(), LOGGER.handlers, LOGGER.level

    def run(name: str, *options: str) -> object:
        service.load(world)
        before = len(service.requests)
        LOGGER.handlers = handlers[:1]  # without that of an earlier --verbose
        arguments = (part.format(**paths) for part in ARGUMENTS[name])
        ended: Ended = shell(*name.split(), *arguments, *options)
        requests = [
            (each.operation, {name: value for name, value in each.headers.items() if name != "host"})
            for each in list(service.requests)[before:]
        ]
        return ended.code, re.sub(r"\d+\.\d+ s.*|\d{4}-\d\d.*", "", ended.out), ended.err, requests

    yield run
    LOGGER.handlers = handlers
    LOGGER.setLevel(level)


# `backend` is left out, because every backend sends the same bytes; another test runs each of them.
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "option"),
    [(name, option) for name in ARGUMENTS for option in shared_by(name) if (name, option) not in UNSEEN and option != "backend"],
)
def test_every_shared_option_of_a_command_changes_what_it_does(attempt: Callable[..., object], name: str, option: str) -> None:
    usual = attempt(name)
    assert usual == attempt(name)
    assert attempt(name, *PROBES[option]) != usual


@pytest.mark.parametrize("name", SINGLE)
def test_a_shared_option_that_the_command_lacks_is_refused_before_its_name(shell: Shell, name: str) -> None:
    given = {**ARGUMENTS, "completion": ("bash",), "config init": (), "config trust": (), "mcp": (), "serve": ()}[name]
    arguments = [__file__ if part.startswith("{") and part != "{folder}" else part for part in given]  # files that exist
    for option in SHARED.keys() - shared_by(name):
        value = {"timeout": ("--timeout", "0"), "workspaces": ("--workspace", "space_1")}.get(option, PROBES[option])
        err = shell.refused(*value, *name.split(), *arguments)
        assert f"{value[0]}: the command {name!r} does not use this option; remove it. Try" in err


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("name", ["", "contacts", *SINGLE])
def test_every_command_has_help(shell: Shell, name: str, flag: str) -> None:
    ended = shell(*name.split(), flag)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"Usage: {' '.join(('outreach-async', *name.split()))} [OPTIONS]")
    assert "-h, --help" in ended.out


def test_the_help_of_import_groups_its_options_and_ends_with_examples(shell: Shell) -> None:
    out = shell("import", "--help").out
    before = ["Input", "Mapping", "Values and checks", "Which rows", "Sending", "Recording and results"]
    assert re.findall(r"^([A-Z][a-z ]+):$", out, re.MULTILINE) == [*before, "Connection", "Output", "Options", "Examples"]
    assert re.findall(r"\nOptions:\n(.*)\n", out) == ["  -h, --help  Show this message and exit."]
    assert "\n  outreach-async import people.csv --dry-run\n" in out.partition("\nExamples:\n")[2].join("\n\n")
    assert "\n      outreach-async audit --history history.db --output audit.html\n" in shell("audit", "-h").out


# The command starts fast.

HEAVY = {"anyio", "asyncio", "cattrs", "httpx", "importlib.metadata", "jinja2", "msgspec", "rich", "sqlite3", "ssl"}
"""Modules that take more than 10 ms."""
HELPS = """
import json, sys
before = set(sys.modules)  # what measures the coverage of this process
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from outreach_async._cli.app import outreach, run
def names(command, *before):
    with command.make_context("outreach-async", [], resilient_parsing=True) as context:
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            yield from names(found, *before, name) if hasattr(found, "list_commands") else [(*before, name)]
lines = [[*found, "--help"] for found in names(outreach)]
for line in [["--help"], *lines]:
    with redirect_stdout(TextIOWrapper(BytesIO())):
        assert run(line) == 0
print(json.dumps([len(lines), sorted(set(sys.modules) - before)]))
"""


def test_no_help_imports_what_only_a_run_needs() -> None:
    done = subprocess.run([sys.executable, "-c", HELPS], capture_output=True, text=True, check=True)
    count, modules = json.loads(done.stdout)
    assert count == 23
    assert HEAVY & set(modules) == set()
    assert {name for name in modules if name.startswith("outreach_async.")} <= {
        "outreach_async.errors",
        "outreach_async._cli",
        *(f"outreach_async._cli.{name}" for name in ("app", "commands", "messages", "options", "root")),
        *(f"outreach_async._cli.commands.{name}" for name in ("audits", "configs", "contacts", "history", "imports", "lists")),
        *(f"outreach_async._cli.commands.{name}" for name in ("erasing", "services")),
        "outreach_async._files",
        "outreach_async._files.objects",
        "outreach_async._lazy",
        "outreach_async._plumbing",
    }


ONE_HELP = """
import sys
from outreach_async._cli.app import run
assert run(sys.argv[1:]) == 0
print(*(name.rpartition(".")[2] for name in sys.modules if name.startswith("outreach_async._cli.commands.")), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [(("--help",), set()), (("import", "--help"), {"imports"}), (("config", "-h"), {"configs"})],
)
def test_a_help_imports_only_the_module_of_its_command(arguments: tuple[str, ...], imported: set[str]) -> None:
    done = subprocess.run([sys.executable, "-c", ONE_HELP, *arguments], capture_output=True, text=True, check=True)
    assert set(done.stderr.split()) == imported


def test_a_help_without_docstrings_still_lists_options() -> None:
    command = [sys.executable, "-OO", "-m", "outreach_async", "import", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "\nRecording and results:\n" in done.stdout


def test_the_list_of_commands_has_the_beginning_of_the_help_of_each(shell: Shell) -> None:
    listed = dict(re.findall(r"^  ([a-z-]+) +([A-Z].*)$", shell("--help").out.partition("\nCommands:\n")[2], re.MULTILINE))
    assert listed.keys() == {name.partition(" ")[0] for name in COMMANDS} - {""}
    for name, text in listed.items():
        assert " ".join((COMMANDS[name].help or "").split()).startswith(text)


def test_the_version_needs_no_command() -> None:
    command = [sys.executable, "-X", "importtime", "-m", "outreach_async", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("outreach_async 0.")
    assert "click" not in done.stderr


def choices(name: str, option: str) -> tuple[str, ...]:
    (found,) = (each for each in COMMANDS[name].params if option in each.opts)
    if isinstance(found.type, click.Choice):
        return tuple(map(str, found.type.choices))
    assert isinstance(found, click.Option)
    return (found.help or "",)


@pytest.mark.parametrize(
    ("name", "option", "expected"),
    [
        ("import", "--duplicates", get_args(DuplicatePolicy)),
        ("contacts create", "--duplicates", get_args(DuplicatePolicy)),
        ("import", "--repeats", get_args(Repeats)),
        ("import", "--changed", get_args(Changed)),
        ("import", "--earlier", get_args(Earlier)),
        ("import", "--format", FORMATS),
        ("import", "--backend", get_args(Backend)),
        ("audit", "--fail-on", tuple(Severity)),
        ("audit", "--format", REPORT_FORMATS),
        ("brief", "--format", BRIEF_FORMATS),
        ("history show", "--by", get_args(Kind)),
        ("import", "--check", tuple(CheckPolicy.of().levels)),
        ("serve", "--behaviour", tuple(PRESETS)),
        ("audit", "--output", tuple(SUFFIXES)),
        ("brief", "--output", tuple(suffix for suffix, form in SUFFIXES.items() if form in BRIEF_FORMATS)),
    ],
)
def test_the_choices_of_an_option_or_its_help_are_those_of_the_library(name: str, option: str, expected: tuple[str, ...]) -> None:
    shown = choices(name, option)
    assert shown == expected or f"({', '.join(expected)})" in shown[0]


# Shell completion: in real shells, through click's interface, and without importing the library.

NAMES = [
    *("audit", "brief", "campaigns", "client-report", "completion", "config", "contacts", "demo", "erase", "fields", "history"),
    *("import", "mailboxes", "mcp", "plan", "report", "serve", "steps"),
]

BASH = """
compopt() { printf 'compopt %s %s\\n' "$@"; }
eval "$(outreach-async completion bash)"
complete -p outreach-async
for line; do
    COMP_WORDS=($line)
    [[ $line == *" " ]] && COMP_WORDS+=("")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
    echo "$line:"
    _outreach_async_completion outreach-async
    printf '%s\\n' "${COMPREPLY[@]}"
done
"""


def printed(*command: str) -> list[str]:
    """Return the lines that a shell prints, run without the user's start-up files."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def completed(*words: str) -> list[str]:
    return [item.value for item in complete(*words)]


@pytest.mark.thorough
def test_bash_completes_commands_options_values_and_files() -> None:
    lines = [f"{PROGRAM} {line}" for line in ("im", "import --dup", "import --duplicates s", "import ", "nothing of this")]
    registered, *answers = printed("bash", "--norc", "-c", BASH, "bash", *lines)
    assert registered.startswith("complete")
    assert answers == [
        *(f"{lines[0]}:", "import"),
        *(f"{lines[1]}:", "--duplicates"),
        *(f"{lines[2]}:", "skip"),
        *(f"{lines[3]}:", "compopt -o default", ""),
        *(f"{lines[4]}:", ""),
    ]


NAMED = ["bolt & co", "$HOME", "`touch x`", 'say "hi"', "it's", "*", "a;b", "back\\\\slash", "a, b", "(x)", "#1", "~"]
ROUND_TRIP = """
eval "$(outreach-async completion bash)"
for quote in '' '"' "'"; do
    COMP_WORDS=(outreach-async audit --workspace "$quote") COMP_CWORD=3 COMPREPLY=()
    _outreach_async_completion outreach-async
    for reply in "${COMPREPLY[@]}"; do eval "printf '%s\\n' $quote$reply$quote"; done
done
"""


@pytest.mark.thorough
def test_bash_inserts_a_name_as_one_word_in_any_quotes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = (f"{json.dumps(name)} = {{ id = 'space_{place}' }}\n" for place, name in enumerate(NAMED))
    (tmp_path / "outreach.toml").write_text(f"[workspaces]\n{''.join(lines)}")
    (tmp_path / "outreach.toml").chmod(0o600)
    assert printed("bash", "--norc", "-c", ROUND_TRIP) == [*NAMED, "all"] * 3
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        ([""], NAMES),
        (["--b"], ["--base-url", "--backend"]),
        (["contacts", ""], ["create"]),
        (["contacts", "create", "--dup"], ["--duplicates"]),
        (["import", "--duplicates", ""], list(get_args(DuplicatePolicy))),
        (["audit", "--fail-on", "w"], ["warning"]),
        (["audit", "--format", "h"], ["html"]),
        (["--backend", "h"], ["httpx", "httpx2"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
    ids=" ".join,
)
def test_commands_options_and_values_are_completed(words: list[str], answers: list[str]) -> None:
    assert completed(*words) == answers


FILES = ["import", "import --mapping", "import --journal", "import --rejects", "report", "audit --policy", "serve --behaviour"]


@pytest.mark.parametrize("words", FILES)
def test_file_names_are_left_to_the_shell(words: str) -> None:
    (item,) = complete(*words.split(), "with")
    assert item.type == "file"


def test_a_completion_imports_no_command_and_no_backend() -> None:
    code = (
        "import sys\nfrom outreach_async._cli.app import run\nassert run([]) == 0\n"
        "print(*(name for name in ('anyio', 'httpx', 'outreach_async.client', 'rich', 'ssl') if name in sys.modules))"
    )
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": f"{PROGRAM} ca", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["plain,campaigns", ""]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_this_command(name: str, shell: Shell) -> None:
    ended = shell("completion", name)
    assert ended.code == 0
    assert f"{VARIABLE}={name}_complete" in ended.out


def test_an_unknown_completion_request_prints_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tcsh_complete")
    ended = shell()
    assert (ended.code, ended.out, ended.err) == (1, "", "")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("7d", "2026-03-09T23:59:59"),
        ("1w", "2026-03-09T23:59:59"),
        ("12h", "2026-03-15T19:30:00"),
        ("Yesterday", "2026-03-15T23:59:59"),
        ("last-monday", "2026-03-09T23:59:59"),
        ("last-sunday", "2026-03-15T23:59:59"),
        ("last-tuesday", "2026-03-10T23:59:59"),
        ("month", "2026-02-28T23:59:59"),
        ("2026-03-01", "2026-03-01T23:59:59"),
        ("2026-03-01T08:00:00Z", "2026-03-01T08:00:00"),
    ],
)
def test_an_earlier_day_is_its_end_in_utc(text: str, found: str) -> None:
    monday = datetime(2026, 3, 16, 7, 30, tzinfo=UTC).timestamp()
    assert f"{datetime.fromtimestamp(int(earlier(text)(monday)), UTC):%Y-%m-%dT%H:%M:%S}" == found


@pytest.mark.parametrize("text", ["monday", "last-", "7", "tomorrow", ""])
def test_a_word_that_names_no_earlier_day_is_refused(shell: Shell, text: str) -> None:
    assert "Invalid value for '--since': expected an age such as 7d or 12h, a day" in shell.refused("brief", "--since", text)


def test_an_earlier_day_needs_a_history(shell: Shell) -> None:
    assert "--since: needs the audits of a history; pass --history FILE" in shell.refused(
        "brief", "--base-url", "fake:", "--since", "7d"
    )
    options = ("--since", "7d", "--history", "history.db", "--compare", "a.json")
    assert "--since: conflicts with --compare" in shell.refused("audit", "--base-url", "fake:", *options)
