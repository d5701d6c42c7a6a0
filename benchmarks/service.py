"""The server's process, seen from the one that runs the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from benchmarks.worker import ROOT


@attrs.frozen
class Service:
    """A server under way."""

    url: str


@contextmanager
def serving() -> Iterator[Service]:
    """Run a server for as long as the context lasts."""
    command = [sys.executable, "-m", "benchmarks.server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:  # noqa: S603 - our own interpreter
        assert process.stdout is not None
        try:
            yield Service(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.terminate()
