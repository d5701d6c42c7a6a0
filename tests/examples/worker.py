"""A worker that creates the contacts of an outbox table, batch after batch, until it is stopped with SIGTERM.

Run it with `python worker.py outbox.db`. The table has the columns `id`, `email`, `first_name` and `status`; a row without a
status is new. If the worker is killed, the next one sends the rows without a status again: the service detects duplicates.
"""

import signal
import sqlite3
import sys

import anyio

from outreach_async import BulkSuspended, Outcome, OutreachClient

BATCH_SIZE = 1000
POLL_SECONDS = 1.0
RETRIED = {Outcome.UNKNOWN, Outcome.NOT_APPLIED}
"""Outcomes after which a row is sent again."""


async def send_batch(client: OutreachClient, outbox: sqlite3.Connection) -> int:
    """Create the contacts of the next rows, and store their outcomes. Return the number of rows."""
    query = "SELECT id, email, first_name FROM outbox WHERE status IS NULL ORDER BY id LIMIT ?"
    people = outbox.execute(query, (BATCH_SIZE,)).fetchall()
    rows = [{"email": email, "first_name": first_name} for _, email, first_name in people]
    try:
        async with client.contacts.create_many(rows, duplicates="update_missing_fields", stop_after_rejects=None) as outcomes:
            async for outcome in outcomes:
                if outcome.status not in RETRIED:
                    outbox.execute("UPDATE outbox SET status = ? WHERE id = ?", (outcome.status, people[outcome.index][0]))
    except BulkSuspended as error:
        sys.stderr.write(f"suspended: {error}\n")
        await anyio.sleep(error.retry_after or 60.0)
    finally:
        outbox.commit()  # also when the worker is stopped
    return len(rows)


async def cancel_on_sigterm(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            scope.cancel()


async def main(path: str) -> None:
    outbox = sqlite3.connect(path)
    async with OutreachClient() as client, anyio.create_task_group() as group:
        group.start_soon(cancel_on_sigterm, group.cancel_scope)
        while True:
            if not await send_batch(client, outbox):
                await anyio.sleep(POLL_SECONDS)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1])
