"""A ledger in a shared folder, used by two processes: one of them stands still while the other takes over."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from support.cli import connection_options, save_contacts, serve_in_thread, start_command, wait_for_end
from tools.race_loop import loop

from outreach_async.fake import FakeService
from outreach_async.store import Store

pytestmark = [pytest.mark.thorough, pytest.mark.usefixtures("shell")]

ROWS = 40
STOPS_ITSELF = """
import signal, sys, threading

def stop(event, arguments):
    global writes
    if event == "os.link" and str(arguments[1]).startswith(prefix):
        writes -= 1
        if not writes:
            # To this thread: of a signal to the process, another thread may take notice, while this one goes on.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

prefix, writes = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
sys.addaudithook(stop)
from outreach_async.__main__ import main
sys.exit(main())
"""
"""The command, which stops before it gives an object its name, as counted among the names with a prefix."""


@pytest.mark.parametrize(
    ("prefix", "number", "code"),
    [
        ("0000-0000000001", 1, 3),  # before it marks its rows
        ("0000-0000000002", 1, 3),  # before it records their outcomes
        ("0000-0000000003", 1, 3),  # before it records that it has ended
        ("000001", 1, 0),  # before the next generation stores its first part
        ("000001", 2, 0),  # before the next generation stores the manifest, which makes the generation valid
    ],
)
def test_a_machine_that_wakes_after_another_has_taken_over_loses_nothing(
    prefix: str, number: int, code: int, service: FakeService, tmp_path: Path
) -> None:
    people = save_contacts(tmp_path, "email,city\n" + "".join(f"user{at}@x.example,Lyon\n" for at in range(ROWS)))
    ledger = (tmp_path / "shared").as_uri()
    with serve_in_thread(service) as url:
        command = ["import", str(people), *connection_options(url), "--ledger", ledger, "--duplicates", "overwrite"]
        slow = start_command(prefix, str(number), *command, command=[sys.executable, "-c", STOPS_ITSELF])
        _, status = os.waitpid(slow.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert Store(ledger).contacts().pending
        other = wait_for_end(start_command(*command))
        os.kill(slow.pid, signal.SIGCONT)
        woken = wait_for_end(slow)
        last = wait_for_end(start_command(*command))
    assert (other.code, last.code) == (0, 0), other.err + last.err
    assert woken.code == code, woken
    # The run that took over knows of requests without an answer only if the first one had marked its rows.
    uncertain = ROWS if prefix == "0000-0000000002" else 0
    assert f"{'overwritten' if uncertain else 'unchanged'}\t{ROWS}" in last.out
    assert len(service.contacts("space_1")) == ROWS
    found = Store(ledger).contacts()
    assert (found.contacts, found.uncertain, found.gone, found.pending) == (ROWS, uncertain, 0, False)


@pytest.mark.nightly
def test_a_run_that_goes_on_stops_or_dies_leaves_no_older_values() -> None:
    assert loop(10, 0).total() == 10
