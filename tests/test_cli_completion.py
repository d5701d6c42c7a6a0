"""The shell completes the command: in real shells, by click's own interface, and without waiting for the library."""

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
from support_cli import Shell

from outreach_async.audit import CATALOGUE
from outreach_async.bulk import Repeats
from outreach_async.cli.app import outreach
from outreach_async.cli.completion import PROGRAM, VARIABLE
from outreach_async.importer import FORMATS
from outreach_async.importer.checks import CHECKS
from outreach_async.vocabulary import DUPLICATE_POLICIES

NAMES = ["audit", "campaigns", "completion", "demo", "fields", "import", "mailboxes", "report", "serve", "steps"]

BASH = """
compopt() { printf 'compopt %s %s\\n' "$@"; }
eval "$(outreach-async completion bash)"
complete -p outreach-async
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_outreach_async_completion outreach-async
printf '%s\\n' "${COMPREPLY[@]}"
"""

ZSH = """
compdef() { print -r "compdef $*" }
compadd() { print -rl -- ${(P)@[-1]} }
_describe() { print -rl -- "${(@P)3}" }
_path_files() { print -r "files $*" }
eval "$(outreach-async completion zsh)"
words=("$@") CURRENT=$#
_outreach_async_completion
"""

FISH = """
outreach-async completion fish | source
complete --do-complete "$argv"
"""


def printed(*command: str) -> list[str]:
    """Return the lines that a shell prints, without what a user's own start-up files would add."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(command, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def bash(*words: str) -> list[str]:
    registered, *answers = printed("bash", "--norc", "-c", BASH, "bash", *words)
    assert registered.startswith("complete")
    return answers


def zsh(*words: str) -> list[str]:
    registered, *answers = printed("zsh", "-f", "-c", ZSH, "zsh", *words)
    assert registered == "compdef _outreach_async_completion outreach-async"
    return answers


def fish(line: str) -> list[str]:
    return printed("fish", "--no-config", "-c", FISH, line)


def completed(*words: str) -> list[str]:
    """Return the values that click finds for the last word."""
    *before, incomplete = words
    return [item.value for item in ShellComplete(outreach, {}, PROGRAM, VARIABLE).get_completions(before, incomplete)]


@pytest.mark.parametrize(
    ("words", "answers"),
    [
        (["im"], ["import"]),
        (["import", "--dup"], ["--duplicates"]),
        (["import", "--duplicates", "s"], ["skip"]),
        (["--backend", "h"], ["httpx", "httpx2"]),
        (["audit", "--explain", "OA10"], [name for name in CATALOGUE if name.startswith("OA10")]),
        (["import", ""], ["compopt -o default", ""]),
        (["audit", "--policy", "pol"], ["compopt -o default", ""]),
        (["nothing", "of", "this"], [""]),
    ],
    ids=" ".join,
)
def test_bash_completes_commands_options_values_and_files(words: list[str], answers: list[str]) -> None:
    assert bash(PROGRAM, *words) == answers


def test_zsh_completes_with_a_line_of_help() -> None:
    assert zsh(PROGRAM, "fi") == ["fields:List the fields that contacts of a workspace can have."]
    assert zsh(PROGRAM, "audit", "--explain", "OA101") == ["OA101:No SPF"]
    assert zsh(PROGRAM, "import", "--duplicates", "o") == ["overwrite"]
    assert zsh(PROGRAM, "import", "con") == ["files -f"]


def test_fish_completes_with_a_line_of_help() -> None:
    assert fish("outreach-async fi") == ["fields\tList the fields that contacts of a workspace can have."]
    assert fish("outreach-async import --duplicates o") == ["overwrite"]


def test_every_command_is_completed_and_so_are_the_options_before_it() -> None:
    assert completed("") == NAMES
    assert completed("--b") == ["--base-url", "--backend"]


@pytest.mark.parametrize("name", NAMES)
def test_a_command_says_of_itself_what_is_said_before_it_is_imported(name: str) -> None:
    context = click.Context(outreach)
    command = outreach.get_command(context, name)
    (item,) = outreach.shell_complete(context, name)
    assert command is not None
    assert command.name == name
    assert command.help is not None
    assert " ".join(command.help.split()).startswith(str(item.help))


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
        (["completion", ""], ["bash", "zsh", "fish"]),
    ],
    ids=" ".join,
)
def test_a_value_is_completed_by_what_the_option_takes(words: list[str], answers: list[str]) -> None:
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
def test_the_name_of_a_file_is_left_to_the_shell(words: list[str]) -> None:
    (item,) = ShellComplete(outreach, {}, PROGRAM, VARIABLE).get_completions(words, "with")
    assert item.type == "file"


def test_names_of_commands_are_completed_without_importing_what_they_do() -> None:
    code = (
        "import sys\nfrom outreach_async.cli.app import run\nassert run([]) == 0\n"
        "print([name for name in ('anyio', 'httpx', 'outreach_async.client', 'rich', 'ssl') if name in sys.modules])"
    )
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": f"{PROGRAM} ca", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["plain,campaigns", "[]"]


def test_values_of_options_are_completed_without_importing_a_backend() -> None:
    code = "import sys\nfrom outreach_async.cli.app import run\nassert run([]) == 0\nprint('httpx' in sys.modules)"
    environment = {**os.environ, VARIABLE: "bash_complete", "COMP_WORDS": f"{PROGRAM} import --repeats f", "COMP_CWORD": "3"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["plain,first", "False"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_asks_this_command(name: str, shell: Shell) -> None:
    ended = shell("completion", name)
    assert ended.code == 0
    assert f"{VARIABLE}={name}_complete" in ended.out


def test_a_shell_that_nobody_knows_is_refused(shell: Shell) -> None:
    ended = shell("completion", "tcsh")
    assert (ended.code, ended.out) == (2, "")
    assert "'bash', 'zsh', 'fish'" in ended.err


def test_a_script_that_asks_for_what_is_not_known_gets_nothing(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "tcsh_complete")
    ended = shell()
    assert (ended.code, ended.out, ended.err) == (1, "", "")
