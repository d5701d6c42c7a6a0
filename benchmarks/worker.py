"""Client processes. Each peer runs in its own process, on the client's core, and only one works at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.machine import pin_client
from benchmarks.measuring import Figures

ROOT = Path(__file__).parent.parent

GENERATED = "OUTREACH_BENCHMARKS_GENERATED"
"""Environment variable with the directory of the generated client."""


class Worker:
    """A process that runs functions of the benchmarks on request."""

    def __enter__(self) -> Self:
        paths = [str(ROOT), os.environ.get(GENERATED, ""), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        command = [sys.executable, "-m", "benchmarks.worker"]
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        return self

    def call(self, function: Callable[..., Figures], **arguments: Any) -> Figures:
        """Run a function in the process. Arguments and results are sent as JSON."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"module": function.__module__, "function": function.__name__, "arguments": arguments}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{function.__module__}.{function.__name__} failed with {arguments}; see the traceback above")
        figures: Figures = json.loads(line)
        return figures

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()  # closes its stdin, which ends the process


def main() -> None:
    """Run the requested functions until stdin is closed."""
    pin_client()
    for line in sys.stdin:
        order = json.loads(line)
        function = getattr(import_module(order["module"]), order["function"])
        sys.stdout.write(json.dumps(function(**order["arguments"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
