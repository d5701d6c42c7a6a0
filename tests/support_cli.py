"""Running the command: in this process for its outcomes, in another for what only a process has."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from anyio.from_thread import start_blocking_portal

from outreach_async.fake.exchange import Exchange, Service
from outreach_async.fake.server import serve
from outreach_async.transport.wire import Request

COMMAND = (sys.executable, "-W", "error", "-m", "outreach_async")


@attrs.frozen
class Ended:
    """How a process ended."""

    code: int
    out: str
    err: str


class Watched:
    """A service that tells when it is asked for the `number`th time."""

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


@contextmanager
def served(service: Service) -> Iterator[str]:
    """Serve a service on a real port, in another thread."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(service)) as url:
        yield url


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment without what the command would read."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OUTREACH_")}
    return {**kept, **more}


def started(*arguments: str, env: Mapping[str, str] | None = None, **options: Any) -> subprocess.Popen[str]:
    """Start the command in a process of its own."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.Popen([*COMMAND, *arguments], text=True, env=environment(**(env or {})), **pipes)


def ended(process: subprocess.Popen[str]) -> Ended:
    """Wait for a process, and return how it ended."""
    out, err = process.communicate(timeout=60)
    return Ended(process.returncode, out or "", err or "")


def on_terminal(*arguments: str, piped_stdout: bool = False) -> Ended:
    """Run the command on a terminal; with `piped_stdout` only its stderr is one. `err` is what the terminal showed."""
    ours, theirs = pty.openpty()
    env = {"TERM": "xterm-256color", "COLUMNS": "120", "NO_COLOR": ""}
    with started(*arguments, env=env, stdin=theirs, stdout=subprocess.PIPE if piped_stdout else theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b"".join(_read(ours))
        out = process.stdout.read() if process.stdout else ""
    os.close(ours)
    return Ended(process.returncode, out, shown.decode())


def _read(terminal: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return
