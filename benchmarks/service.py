"""Start the server's process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

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
