"""Shell completion: in real shells, through click's interface, and without importing the library."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import click
import pytest
from click.shell_completion import ShellComplete
from support.cli import Shell

from outreach_async._cli.app import PROGRAM, VARIABLE, outreach
from outreach_async._vocabulary import DUPLICATE_POLICIES
from outreach_async.audit import CATALOGUE
from outreach_async.bulk import Repeats
from outreach_async.importer import FORMATS
from outreach_async.importer._checks import CHECKS

NAMES = [
    *(
        "audit",
        "brief",
        "campaigns",
        "completion",
        "contacts",
        "demo",
        "fields",
        "import",
        "mailboxes",
        "mcp",
        "report",
        "serve",
        "steps",
    ),
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

ZSH = """
compdef() { print -r "compdef $*" }
compadd() { print -rl -- ${(P)@[-1]} }
_describe() { print -rl -- "${(@P)3}" }
_path_files() { print -r "files $*" }
eval "$(outreach-async completion zsh)"
for line; do
    words=(${=line}) CURRENT=$#words
    _outreach_async_completion
done
"""

FISH = """
outreach-async completion fish | source
for line in $argv
    complete --do-complete $line
end
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
    """Return the values that click suggests for the last word."""
    *before, incomplete = words
    return [item.value for item in ShellComplete(outreach, {}, PROGRAM, VARIABLE).get_completions(before, incomplete)]


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


def test_zsh_completes_with_help_for_each_value() -> None:
    lines = (f"{PROGRAM} {line}" for line in ("fi", "audit --explain OA101", "import --duplicates o", "import con"))
    assert printed("zsh", "-f", "-c", ZSH, "zsh", *lines) == [
        "compdef _outreach_async_completion outreach-async",
        "fields:List the contact fields of a workspace.",
        "OA101:No SPF",
        "overwrite",
        "files -f",
    ]


def test_fish_completes_with_help_for_each_value() -> None:
    lines = (f"{PROGRAM} {line}" for line in ("fi", "import --duplicates o"))
    assert printed("fish", "--no-config", "-c", FISH, *lines) == [
        "fields\tList the contact fields of a workspace.",
        "overwrite",
    ]


def test_commands_and_the_options_before_them_are_completed() -> None:
    assert completed("") == NAMES
    assert completed("--b") == ["--base-url", "--backend"]


@pytest.mark.parametrize("name", NAMES)
def test_the_short_help_of_a_command_is_known_without_importing_it(name: str) -> None:
    context = click.Context(outreach)
    command = outreach.get_command(context, name)
    (item,) = outreach.shell_complete(context, name)
    assert command is not None
    assert command.name == name
    assert item.help == command.get_short_help_str(limit=100)


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["import", "--duplicates", ""], list(DUPLICATE_POLICIES)),
        (["import", "--repeats", ""], list(get_args(Repeats))),
        (["import", "--format", ""], list(FORMATS)),
        (["import", "--check", "e"], ["error", *(f"email={level}" for level in ("error", "warn", "off"))]),
        (["audit", "--fail-on", "w"], ["warning"]),
        (["audit", "--format", "h"], ["html"]),
        (["audit", "--explain", "oa"], list(CATALOGUE)),
        (["serve", "--behaviour", "s"], ["strict"]),
        (["--backend", "h"], ["httpx", "httpx2", "httptools"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
    ids=" ".join,
)
def test_option_values_are_completed_by_their_type(words: list[str], answers: list[str]) -> None:
    assert completed(*words) == answers


def test_every_check_can_be_completed() -> None:
    assert len(completed("import", "--check", "")) == 3 + 3 * len(CHECKS)


@pytest.mark.parametrize(
    "words",
    [
        ["import"],
        ["import", "--mapping"],
        ["import", "--journal"],
        ["import", "--rejects"],
        ["report"],
        ["audit", "--policy"],
        ["audit", "--compare"],
        ["audit", "--output"],
        ["serve", "--world"],
        ["serve", "--behaviour"],
    ],
    ids=" ".join,
)
def test_file_names_are_left_to_the_shell(words: list[str]) -> None:
    (item,) = ShellComplete(outreach, {}, PROGRAM, VARIABLE).get_completions(words, "with")
    assert item.type == "file"


def test_the_help_lists_the_commands_without_importing_them() -> None:
    code = (
        "import sys\nfrom outreach_async._cli.app import run\nbefore = set(sys.modules)\nassert run(['--help']) == 0\n"
        "print([name for name in set(sys.modules) - before if name.startswith('outreach_async')])"
    )
    *lines, imported = printed(sys.executable, "-c", code)
    assert [line.split()[0] for line in lines[lines.index("Commands:") + 1 :]] == NAMES
    assert imported == "[]"


def complete(words: str) -> list[str]:
    """Return the completions that a new process prints for bash, and which modules it has imported by then."""
    code = (
        "import sys\nfrom outreach_async._cli.app import run\nassert run([]) == 0\n"
        "print(*(name for name in ('anyio', 'httpx', 'outreach_async.client', 'rich', 'ssl') if name in sys.modules))"
    )
    line = f"{PROGRAM} {words}"
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_command_names_are_completed_without_importing_the_commands() -> None:
    assert complete("ca") == ["plain,campaigns", ""]


@pytest.mark.thorough
def test_option_values_are_completed_without_importing_a_backend() -> None:
    answer, imported = complete("import --repeats f")
    assert answer == "plain,first"
    assert "httpx" not in imported


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_this_command(name: str, shell: Shell) -> None:
    ended = shell("completion", name)
    assert ended.code == 0
    assert f"{VARIABLE}={name}_complete" in ended.out


def test_an_unknown_shell_is_refused(shell: Shell) -> None:
    ended = shell("completion", "tcsh")
    assert (ended.code, ended.out) == (2, "")
    assert "'bash', 'zsh', 'fish'" in ended.err


def test_an_unknown_completion_request_prints_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tcsh_complete")
    ended = shell()
    assert (ended.code, ended.out, ended.err) == (1, "", "")


def test_the_commands_of_a_group_are_completed_with_their_options() -> None:
    assert completed("contacts", "") == ["create"]
    assert completed("contacts", "create", "--dup") == ["--duplicates"]
