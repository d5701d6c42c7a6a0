"""On systems that lack locks, links, processes or threads, everything that needs none of them works, and the rest says why."""

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


LACKING = """
import asyncio, importlib, os, pkgutil, select, signal, sys, threading

import anyio

for module, names in {
    os: "link fork forkpty register_at_fork getuid geteuid getegid posix_spawn sched_getaffinity mkfifo sendfile pipe2",
    select: "poll epoll", signal: "alarm setitimer pthread_kill SIGPROF", threading: "get_native_id",
}.items():
    for name in names.split():
        vars(module).pop(name, None)

def refuse(*_arguments):
    raise RuntimeError("can't start new thread")

threading.Thread.start = refuse
for name in [*sys.modules]:
    if name.startswith("outreach_async"):
        del sys.modules[name]
sys.modules |= dict.fromkeys(["fcntl", "resource", "pwd", "grp", "_multiprocessing", "readline", "curses"])
"""


def run(code: str, *arguments: str, hide: str = HIDE) -> subprocess.CompletedProcess[str]:
    """Run code in a process in which the module `fcntl` cannot be imported."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", hide + code, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_webassembly_without_links_processes_and_threads_runs_the_fake() -> None:
    done = run(
        """
import outreach_async
from outreach_async import InvalidRequest, OutreachClient
from outreach_async.audit import audit
from outreach_async.store import Identity, Store
from outreach_async.fake import FakeService, FakeTransport

ENDS = ("__main__", ".dask", "conftest", "test_conformance")
for found in pkgutil.walk_packages(outreach_async.__path__, "outreach_async."):
    if not found.name.endswith(ENDS) and "mcp_server" not in found.name:
        importlib.import_module(found.name)

async def main():
    fake = FakeService()
    space = fake.add_workspace()
    fake.add_mailboxes(space, 3, spf=False)
    async with OutreachClient(transport=FakeTransport(fake), workspace=space, owner_key=fake.add_owner_key(space)) as client:
        print((await client.contacts.create(email="ann@company.example")).status)
        rows = [{"email": f"user{number}@company.example"} for number in range(50)]
        print((await client.contacts.create_many(rows)).outcomes["added"])
        print((await audit(client, [space])).counts["error"])

anyio.run(main)
try:
    Store("run.db").writer(Identity("space_1", {}), resume=False)
except InvalidRequest as error:
    print(error)
""",
        hide=LACKING,
    )
    assert (done.returncode, done.stderr) == (0, "")
    *lines, refusal = done.stdout.splitlines()
    assert lines == ["added", "50", "3"]
    assert REFUSAL in refusal


@pytest.mark.nightly
def test_the_demo_sends_every_row_again() -> None:
    done = run("from outreach_async._cli.app import run\nsys.exit(run(['demo']))")
    assert (done.returncode, done.stderr) == (0, "")
    assert "two imports without a ledger, which needs Linux or macOS, and an audit" in done.stdout
    assert re.search(r"^  next night: .* 2,\d+ overwritten", done.stdout, re.MULTILINE)


def test_tests_of_journals_are_skipped_and_any_other_runs() -> None:
    tests = (
        "tests/store/test_journal.py::test_only_the_owner_may_read_the_files_of_a_run_and_one_is_left",
        "tests/cli/test_ledger.py::test_a_stopped_import_names_the_command_that_continues_it",  # it reads what the command prints
        "tests/project/test_release.py::test_another_tag_writes_no_notes",
    )
    done = run("import pytest\nsys.exit(pytest.main(sys.argv[1:]))", "-q", "-n0", "-rs", "-p", "no:cacheprovider", *tests)
    assert (done.returncode, done.stdout.count(REFUSAL)) == (0, 2), done.stdout
    assert re.search(r"\b1 passed, \d skipped", done.stdout)
