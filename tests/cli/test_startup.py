"""The command starts fast: its help imports nothing that only a run needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import get_args

import click
import pytest
from support.cli import COMMANDS, Shell

from outreach_async import DuplicatePolicy
from outreach_async._plumbing import Backend, Earlier
from outreach_async.audit import Severity
from outreach_async.audit.history import Kind
from outreach_async.audit.reports import BRIEF_FORMATS, REPORT_FORMATS, SUFFIXES
from outreach_async.bulk import Repeats
from outreach_async.fake.behaviour import PRESETS
from outreach_async.importer import FORMATS, CheckPolicy
from outreach_async.store.ledger import Changed

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
    assert count == 20
    assert HEAVY & set(modules) == set()
    assert {name for name in modules if name.startswith("outreach_async.")} <= {
        "outreach_async.errors",
        "outreach_async._cli",
        *(f"outreach_async._cli.{name}" for name in ("app", "commands", "messages", "options", "root")),
        *(f"outreach_async._cli.commands.{name}" for name in ("audits", "configs", "contacts", "history", "imports", "lists")),
        "outreach_async._cli.commands.services",
        "outreach_async._files",
        "outreach_async._files.objects",
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
    listed = dict(re.findall(r"^  ([a-z]+) +([A-Z].*)$", shell("--help").out.partition("\nCommands:\n")[2], re.MULTILINE))
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
