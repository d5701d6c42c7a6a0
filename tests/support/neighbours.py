"""Programs and packages of others, which run beside the library.

A server program such as nginx is found on the path. Packages that are not in the project's lock, such as Celery, are those of the
Python that `OUTREACH_TEST_NEIGHBOURS` names. Without them, a test is skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from support.cli import environment
from support.listener import PATIENCE

PYTHON: Final = os.environ.get("OUTREACH_TEST_NEIGHBOURS")
_PATH: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/local/sbin"))


def find_program(name: str) -> str:
    """Return the path of a server program, or skip the test."""
    if (path := shutil.which(name, path=_PATH)) is None:
        pytest.skip(f"needs {name}: apt-get install {name}")
    return path


def needs(*modules: str) -> pytest.MarkDecorator:
    """Skip a test, unless the neighbours' Python has these modules."""
    if PYTHON is None:
        reason = "name a Python with tests/neighbours/requirements.txt in OUTREACH_TEST_NEIGHBOURS"
    else:
        code = f"from importlib.util import find_spec; print(*(name for name in {modules} if not find_spec(name)))"
        missing = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
        reason = missing and f"the Python in OUTREACH_TEST_NEIGHBOURS lacks {missing}"
    return pytest.mark.skipif(bool(reason), reason=reason)


@contextmanager
def running(*command: str, port: int, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a server program until the block ends. The block starts when its port accepts connections."""
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        try:
            _wait_for(process, port)
            yield process
        finally:
            process.terminate()


def _wait_for(process: subprocess.Popen[str], port: int) -> None:
    ends = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=PATIENCE).close()
        except OSError:
            assert process.stdout is not None
            assert process.poll() is None, process.stdout.read()
            assert time.monotonic() < ends, "the server did not start in time"
            time.sleep(0.02)
        else:
            return


def write(path: Path, text: str) -> str:
    """Write a text without its common indentation, and return the path."""
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return str(path)


def run_beside(*arguments: str, folder: Path, **variables: str) -> str:
    """Run the neighbours' Python in a folder until it ends, require success, and return its output."""
    assert PYTHON is not None
    done = subprocess.run(
        [PYTHON, *arguments],
        cwd=folder,
        env=environment(PYTHONSAFEPATH="", **variables),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return f"{done.stdout}{done.stderr}"
