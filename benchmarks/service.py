"""Start the processes of servers: the one with prepared responses, and the fake."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from benchmarks.worker import ROOT


@attrs.frozen
class Service:
    """A running server.

    Attributes:
        url: Its base URL.
    """

    url: str


@contextmanager
def serving() -> Iterator[Service]:
    """Run a server while the block runs."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:  # noqa: S603 - this interpreter
        assert process.stdout is not None
        try:
            yield Service(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.terminate()


FAKE_WORKSPACE: Final = "space_demo"
FAKE_KEY: Final = "key_demo"


@contextmanager
def serving_fake() -> Iterator[str]:
    """Run the project's own fake service while the block runs, and yield its base URL."""
    command = [sys.executable, "-m", "outreach_async", "serve", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:  # noqa: S603 - this interpreter
        assert process.stdout is not None
        try:
            yield str(json.loads(process.stdout.readline())["base_url"])
        finally:
            process.terminate()
