"""A Singer target that creates the records of a tap as contacts: `tap-csv -c tap.json | python singer_target.py target.json`.

`target.json` has the names of three things: `{"stream": "people", "ledger": "people.ledger", "results": "results.csv"}`. The
columns of the stream are named as the fields of a contact. The ledger knows what the service has, so a tap may send everything
again. A state is printed when every record before it has its outcome, so nothing is lost if the target is killed; a record that
the service refused has its reason in the results.
"""

import csv
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from outreach_async import Outcome
from outreach_async.sync import SyncClient

RETRIED = {Outcome.UNKNOWN, Outcome.NOT_APPLIED}
"""Outcomes after which a record must be sent again, so that no later state is printed."""


class Messages:
    """The records of a stream, and the states that wait for the outcomes of the records before them."""

    def __init__(self, lines: Iterable[str], stream: str) -> None:
        self._lines = lines
        self._stream = stream
        self._read = 0
        self._states: deque[tuple[int, Any]] = deque()

    def records(self) -> Iterator[dict[str, Any]]:
        for line in self._lines:
            message = json.loads(line)
            if message["type"] == "RECORD" and message["stream"] == self._stream:
                self._read += 1
                yield message["record"]
            elif message["type"] == "STATE":
                self._states.append((self._read, message["value"]))

    def states(self, done: int) -> Iterator[Any]:
        """Yield each state with at most `done` records before it, once."""
        while self._states and self._states[0][0] <= done:
            yield self._states.popleft()[1]


def send(lines: Iterable[str], output: TextIO, *, stream: str, ledger: str, results: str) -> int:
    """Create the contacts, write states to the output and outcomes to the results, and return how many must be sent again."""
    messages, retried = Messages(lines, stream), 0

    def write_states(done: int) -> None:
        for state in messages.states(done):
            output.write(f"{json.dumps(state)}\n")
            output.flush()

    with SyncClient() as client, Path(results).open("w", 1, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["email", "id", "status", "error"])
        done = 0
        with client.contacts.create_many(
            messages.records(), ledger=ledger, duplicates="overwrite", order="input", stop_after_rejects=None
        ) as outcomes:
            for outcome in outcomes:
                record: Any = outcome.contact
                writer.writerow([record.get("email"), outcome.id, outcome.status, outcome.error])
                retried += outcome.status in RETRIED
                if not retried:
                    done = outcome.index + 1
                    write_states(done)
        write_states(done)  # those after the last record
    return retried


if __name__ == "__main__":
    if left := send(sys.stdin, sys.stdout, **json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))):
        sys.exit(f"{left} records must be sent again: run the tap from the last state")
