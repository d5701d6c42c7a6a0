"""Random invocations of every command: each ends, with a documented exit code, and in words of the command line."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NoReturn

import click
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cli import COMMANDS, KEY, LOGGER, Shell

NAMES: Final = sorted(name for name, command in COMMANDS.items() if not isinstance(command, click.Group) and name != "serve")
"""All commands but `serve`, which runs until it is interrupted, as `mcp --http` does."""
NUMBERS: Final = (
    *("0", "1", "-1", "2", "1e3", "nan", "inf", "1" * 400, "0x10", "\u0663"),
    *("3d", "-3d", "1" * 30 + "d", "2026-01-01", "never"),
)
TEXTS: Final = (
    *("", " ", "a", "\udcff", "\x1b[31m", "\n", "\u200b", "é😀", "a=b", "=", "a:b", "%s", "{}", "[", "--", "-"),
    *("x" * 300, "x" * 10_000),
)
FILES: Final = (
    *("people.csv", "people.txt", "empty.csv", "bad.toml", "bad.json", "binary.db"),
    *("none", ".", "..", "/dev/null", "no/such/file"),
)
PLACES: Final = ("fake:", "http://[", "https://", "nonsense", "s3://", "memory://x", "file:///nowhere/at/all")
IDS: Final = ("space_1", "camp_1", "space_1,camp_1", "space_", "all", "ann@a.example", "Spring", KEY)
VALUES: Final = st.sampled_from([*NUMBERS, *TEXTS, *FILES, *PLACES, *IDS])
CODES: Final = {0, 1, 2, 3, 69, 75, 77, 130}
"""The exit codes that `--help` documents."""
SECONDS: Final = 20


def value_of(parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Return values of a parameter, of which about half are valid."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return st.one_of(st.sampled_from([str(each) for each in kind.choices]), VALUES)
    return st.one_of(st.sampled_from([*FILES, *IDS, "1", "2"]), VALUES)


@st.composite
def invocations(draw: st.DrawFn, name: str) -> list[str]:
    """Draw the words of an invocation: arguments, and up to five of the command's options, each with or without a value."""
    parameters = COMMANDS[name].params
    words = name.split()
    if draw(st.integers(0, 3)):
        words += ["--base-url", "fake:"] if any("--base-url" in each.opts for each in parameters) else []
    options = [each for each in parameters if isinstance(each, click.Option) and not {"--help", "--http"} & {*each.opts}]
    for option in draw(st.lists(st.sampled_from(options), max_size=5)) if options else []:
        words.append(draw(st.sampled_from([*option.opts, *option.secondary_opts])))
        if not option.is_flag and not option.count:
            words.append(draw(value_of(option)))
    for argument in parameters:
        if isinstance(argument, click.Argument):
            words += draw(st.lists(value_of(argument), min_size=int(argument.required), max_size=1 if argument.nargs == 1 else 3))
    return words


class Hang(BaseException):
    """A command did not end in time."""


def _raise(*_: Any) -> NoReturn:
    raise Hang


@contextmanager
def in_time() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, _raise)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


PRIVATE: Final = re.compile(
    r"Traceback|outreach_async[./]_|\bNoneType\b|\bgot None\b|\b(?:InvalidRequest|JournalError|HistoryError)\b|\b\w+Error:"
    r"|outreach-async: (?!create_contact|list_)[a-z]+(?:_[a-z]+)+:|(?<![-\w])[a-z]+(?:_[a-z]+)+=(?!b\b)"
)
"""What belongs to Python: exceptions, private modules, names of arguments; those of operations are the service's."""


def check(shell: Shell, words: list[str]) -> None:
    handlers, level = LOGGER.handlers[:], LOGGER.level  # --verbose adds one
    try:
        with in_time():
            done = shell.piped("email\nann@a.example\n", *words)
    finally:
        LOGGER.handlers[:] = handlers
        LOGGER.setLevel(level)
    assert done.code in CODES, (words, done)
    assert not PRIVATE.search(done.err), (words, done.err)
    assert KEY not in done.err, words


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory of the commands, with files of several kinds, and no other configuration."""
    monkeypatch.chdir(tmp_path)
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    for name, content in {
        "people.csv": b"email,first_name\nann@a.example,Ann\nbo@a.example,Bo\n",
        "people.txt": b"email\nann@a.example\n",
        "empty.csv": b"",
        "bad.toml": b"[",
        "bad.json": b'{"version": 1}',
        "binary.db": b"SQLite format 3\0",
    }.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.usefixtures("folder")
def test_any_invocation_ends_with_a_documented_code_and_no_word_of_python(name: str, shell: Shell) -> None:
    @settings(
        max_examples=10 if name == "demo" else 200,  # a demo takes seconds
        suppress_health_check=list(HealthCheck),
    )
    @given(invocations(name))
    def attempt(words: list[str]) -> None:
        check(shell, words)

    attempt()
