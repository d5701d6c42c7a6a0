"""Shell completion: in real shells, through click's interface, and without importing the library."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from support.cli import PROGRAM, VARIABLE, Shell, complete

from outreach_async import DuplicatePolicy
from outreach_async.bulk import Repeats
from outreach_async.importer import FORMATS

NAMES = [
    *("audit", "brief", "campaigns", "completion", "config", "contacts", "demo", "fields", "history"),
    *("import", "mailboxes", "mcp", "report", "serve", "steps"),
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
        (["import", "--repeats", ""], list(get_args(Repeats))),
        (["import", "--format", ""], list(FORMATS)),
        (["audit", "--fail-on", "w"], ["warning"]),
        (["audit", "--format", "h"], ["html"]),
        (["--backend", "h"], ["httpx", "httpx2", "httptools"]),
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
