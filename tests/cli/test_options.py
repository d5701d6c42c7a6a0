"""A command has exactly the options that it uses; ids are checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from support.cli import COMMANDS as EVERY
from support.cli import LOGGER, SHARED, Ended, Shell, save_contacts

from outreach_async.fake import FakeService

COMMANDS = {name: command for name, command in EVERY.items() if not isinstance(command, click.Group)}

ARGUMENTS = {
    "audit": (),
    "brief": (),
    "campaigns": (),
    "config check": (),
    "config show": (),
    "contacts create": ("--email", "ann@a.example"),
    "demo": (),
    "fields": (),
    "history export": ("{history}", "{folder}", "--force"),
    "history prune": ("{history}", "--keep", "1d"),
    "history show": ("{history}",),
    "import": ("{file}",),
    "mailboxes": (),
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
    return [str(parameter.name) for parameter in COMMANDS[name].params if parameter.name in SHARED]


def test_the_walk_knows_every_command_and_shared_option() -> None:
    assert set(ARGUMENTS) == set(COMMANDS) - {"completion", "config init", "config trust", "mcp", "serve"}
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
    assert shell("audit", "--history", paths["history"]).code == 0
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


@pytest.mark.parametrize("name", COMMANDS)
def test_a_shared_option_that_the_command_lacks_is_refused_before_its_name(shell: Shell, name: str) -> None:
    given = {**ARGUMENTS, "completion": ("bash",), "config init": (), "config trust": (), "mcp": (), "serve": ()}[name]
    arguments = [__file__ if part.startswith("{") and part != "{folder}" else part for part in given]  # files that exist
    for option in SHARED.keys() - shared_by(name):
        value = {"timeout": ("--timeout", "0"), "workspaces": ("--workspace", "space_1")}.get(option, PROBES[option])
        err = shell.refused(*value, *name.split(), *arguments)
        assert f"{value[0]}: the command {name!r} does not use this option; remove it. Try" in err


@pytest.mark.parametrize("flag", ["-h", "--help"])
@pytest.mark.parametrize("name", ["", "contacts", *COMMANDS])
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
