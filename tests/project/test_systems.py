"""On a system without POSIX file locks, the demo runs without a ledger, and tests of journals are skipped with that reason."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.systems import REFUSAL

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
HIDE = """
import asyncio, subprocess, sys  # they import the module themselves
for name in "outreach_async", "fcntl":
    sys.modules.pop(name, None)
sys.modules["fcntl"] = None
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which the module `fcntl` cannot be imported."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", HIDE + code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


@pytest.mark.nightly
def test_the_demo_sends_every_row_again() -> None:
    done = run("from outreach_async._cli.app import run\nsys.exit(run(['demo']))")
    assert (done.returncode, done.stderr) == (0, "")
    assert "two imports without a ledger, which needs Linux or macOS, and an audit" in done.stdout
    assert re.search(r"^  next night: .* 2,\d+ overwritten", done.stdout, re.MULTILINE)


def test_tests_of_journals_are_skipped_and_any_other_runs() -> None:
    tests = (
        "tests/bulk/test_journal.py::test_only_the_owner_may_read_the_files_of_a_run_and_one_is_left",
        "tests/cli/test_ledger.py::test_a_stopped_import_names_the_command_that_continues_it",  # it reads what the command prints
        "tests/project/test_release.py::test_another_tag_writes_no_notes",
    )
    done = run("import pytest\nsys.exit(pytest.main(sys.argv[1:]))", "-q", "-n0", "-rs", "-p", "no:cacheprovider", *tests)
    assert (done.returncode, done.stdout.count(REFUSAL)) == (0, 2), done.stdout
    assert re.search(r"\b1 passed, \d skipped", done.stdout)
