"""Run the command, either in this process or in a separate process."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, cast
from unicodedata import east_asian_width

import attrs
import click
import pytest
from anyio.from_thread import start_blocking_portal
from click.shell_completion import CompletionItem, ShellComplete
from support.systems import skip_if_refused

from outreach_async import Request
from outreach_async.__main__ import main
from outreach_async._cli.root import outreach
from outreach_async.fake import FakeService
from outreach_async.fake.faults import Exchange, Service
from outreach_async.fake.server import serve

PROGRAM = "outreach-async"
VARIABLE = "_OUTREACH_ASYNC_COMPLETE"
"""The environment variable that a completion script sets, by the rules of click."""
KEY = "key_s3cr3t"
ENVIRONMENT = (
    *("OUTREACH_BASE_URL", "OUTREACH_WORKSPACE", "OUTREACH_OWNER_KEY", "OUTREACH_LOG", "OUTREACH_RATE"),
    *("OUTREACH_CONFIG", "OUTREACH_PROFILE"),
)
COMMAND = (sys.executable, "-W", "error", "-m", "outreach_async")
LOGGER = logging.getLogger("outreach_async")


def run(arguments: Sequence[str]) -> int:
    """Run the command in this process, with the streams of this process, and return its exit code."""
    before, sys.argv = sys.argv, [PROGRAM, *arguments]
    try:
        return main()
    finally:
        sys.argv = before


def _walk(command: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(names), command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _walk(found, *names, name)


COMMANDS = dict(_walk(outreach))
"""Every command and every group of commands, by its name; that of the program is blank."""
SHARED = {str(parameter.name): parameter for parameter in outreach.params if parameter.name != "version"}
"""The options that are accepted before the name of a command, too."""


def complete(*words: str) -> list[CompletionItem]:
    """Return what a shell offers for the last word of a line."""
    return ShellComplete(outreach, {}, PROGRAM, VARIABLE).get_completions([*words[:-1]], words[-1])


@attrs.frozen
class Ended:
    """The result of a process."""

    code: int
    out: str
    err: str

    def __attrs_post_init__(self) -> None:
        skip_if_refused(self.err)


class Shell:
    """A callable that runs the command in this process and returns its exit code and output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        code = run(arguments)
        out, err = self._capsys.readouterr()
        return Ended(code, out, err)

    def refused(self, *arguments: str) -> str:
        """Run a command that must exit with 2 and print nothing, and return its error."""
        done = self(*arguments)
        assert (done.code, done.out) == (2, ""), done
        return done.err

    def json(self, *arguments: str) -> tuple[int, Any]:
        wait_for_end = self(*arguments, "--json")
        return wait_for_end.code, json.loads(wait_for_end.out.splitlines()[-1])

    def piped(self, text: str, *arguments: str) -> Ended:
        """Run the command with a pipe as its standard input. The pipe contains `text` and is closed at its other end."""
        # Nothing reads before all is written, so a text larger than a pipe is a `BlockingIOError`.
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with os.fdopen(reader, encoding="utf-8") as stdin:
            with os.fdopen(writer, "w", encoding="utf-8") as sent:
                sent.write(text)
            # The standard library redirects only stdout and stderr, and the command reads `sys.stdin` as every program does.
            before, sys.stdin = sys.stdin, stdin
            try:
                return self(*arguments)
            finally:
                sys.stdin = before

    def shown(self, *arguments: str) -> list[str]:
        """Run the command on a terminal of 80 columns, and return the lines that it shows. Progress bars take two more."""
        handlers, level = LOGGER.handlers, LOGGER.level
        LOGGER.handlers = handlers[:1]  # --verbose adds one for the stderr of the command
        with redirect_stdout(_Terminal(BytesIO(), encoding="utf-8")) as terminal:
            with redirect_stderr(TextIOWrapper(terminal.buffer, encoding="utf-8", write_through=True)) as errors:
                run(arguments)
            errors.detach()
            LOGGER.handlers = handlers
            LOGGER.setLevel(level)
            terminal.flush()
        shown = _ESCAPE.sub("", cast("BytesIO", terminal.buffer).getvalue().decode())
        return [part for line in shown.splitlines() for part in _wrap(line)]


def _wrap(line: str) -> Iterator[str]:
    """Yield the lines of a terminal for a line, which may be too long."""
    part, width = "", 0
    for each in line:
        size = 2 if east_asian_width(each) in "WF" else 1
        if width + size > _WIDTH:
            yield part
            part, width = "", 0
        part, width = part + each, width + size
    yield part


_WIDTH = 80


class _Terminal(TextIOWrapper):
    def isatty(self) -> bool:
        return True


_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Served(Shell):
    """The command, with a small service, the options that connect to it, and a folder for files."""

    def __init__(self, capsys: pytest.CaptureFixture[str], service: FakeService, options: tuple[str, ...], folder: Path) -> None:
        super().__init__(capsys)
        self.service = service
        self.options = options
        self.folder = folder

    def save(self, content: str) -> str:
        """Write a file of contacts, and return its path."""
        return save_contacts(self.folder, content)


class Watched:
    """A service that calls `tell` at request number `number`, counted from 1."""

    def __init__(self, service: Service, number: int, tell: Callable[[], object]) -> None:
        self._service = service
        self._number = number
        self._tell = tell
        self._asked = 0

    def exchange(self, request: Request, /) -> Exchange:
        self._asked += 1
        if self._asked == self._number:
            self._tell()
        return self._service.exchange(request)


def small_service() -> FakeService:
    """Return the service that `connection_options` refers to."""
    service = FakeService()
    service.add_workspace("space_1", custom_fields=["Plan"])
    boxes = service.add_mailboxes("space_1", 3)
    service.add_campaign("space_1", id="camp_1", name="Spring", status="live", mailboxes=boxes, steps=["A", "A|B"])
    service.add_owner_key("space_1", key=KEY)
    return service


def connection_options(url: str) -> tuple[str, ...]:
    """Return the options that connect to the small service."""
    return ("--base-url", url, "--workspace", "space_1", "--owner-key", KEY)


def save_contacts(folder: Path, content: str) -> str:
    """Write a file of contacts, and return its path."""
    path = folder / "people.csv"
    path.write_text(content, encoding="utf-8")
    return str(path)


@contextmanager
def serve_in_thread(service: Service) -> Iterator[str]:
    """Serve a service on a real port, in another thread."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(service)) as url:
        yield url


def environment(**more: str) -> dict[str, str]:
    """Return the environment of this process without the variables that the command reads; `more` adds variables."""
    inherited = {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}
    return {**inherited, **more}


def start_command(
    *arguments: str, env: Mapping[str, str] | None = None, command: Sequence[str] = COMMAND, **options: Any
) -> subprocess.Popen[str]:
    """Start the command in a separate process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*command, *arguments], text=True, env=environment(**(env or {})), **pipes)


@contextmanager
def serve_in_process(*arguments: str, **options: Any) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """Run `serve --json` in a separate process until the block ends, and yield the process and what it printed."""
    with start_command("serve", "--json", *arguments, **options) as process:
        assert process.stdout is not None
        try:
            yield process, json.loads(process.stdout.readline())
        finally:
            process.terminate()


def wait_for_end(process: subprocess.Popen[str]) -> Ended:
    """Wait for a process and return its result."""
    out, err = process.communicate(timeout=600)
    return Ended(process.returncode, out or "", err or "")


def on_terminal(*arguments: str, piped_stdout: bool = False) -> Ended:
    """Run the command on a terminal. The `err` of the result is the output of the terminal."""
    import pty  # Windows has none

    ours, theirs = pty.openpty()
    env = {"TERM": "xterm-256color", "COLUMNS": "120", "NO_COLOR": ""}
    with start_command(
        *arguments, env=env, stdin=theirs, stdout=subprocess.PIPE if piped_stdout else theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        for part in _read(ours):
            shown += part
        out = process.stdout.read() if process.stdout else ""
    os.close(ours)
    return Ended(process.returncode, out, shown.decode())


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:  # the other end was closed
            return
