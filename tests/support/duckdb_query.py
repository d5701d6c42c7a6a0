"""Read a query of DuckDB as a data frame, and print what was read and created as JSON.

Run: python -m support.duckdb_query ROWS_AS_JSON

It is a process of its own because a process that has imported DuckDB prints the objects that DuckDB leaks when it exits.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from itertools import chain
from typing import Any

import anyio
import duckdb
import pyarrow as pa

from outreach_async import OutreachClient
from outreach_async.bulk import ArrowStream
from outreach_async.bulk._frames import read_frame
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.testing import VirtualTime


def query(rows: list[dict[str, str | None]]) -> Any:
    """Return a query whose result is these rows."""
    connection = duckdb.connect()
    connection.register("source", pa.Table.from_pylist(rows))
    return connection.sql("SELECT * FROM source")


async def create(rows: list[dict[str, str | None]]) -> dict[str, Any]:
    """Create a contact for each row of a query, and return the total, the statuses of the outcomes, and the bodies sent."""
    fake = FakeService()
    fake.add_workspace("space_1", custom_fields=["Plan"])
    fake.add_owner_key("space_1", key="key_1")
    client = OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1")
    async with client.contacts.create_many(query(rows)) as outcomes:
        total = outcomes.progress.total
        statuses = [outcome.status async for outcome in outcomes]
    bodies = [request.json or {} for request in fake.requests.of("create_contact")]
    sent = [{field: body[field] for field in rows[0] if field in body} for body in bodies]
    return {"total": total, "statuses": statuses, "sent": sorted(sent, key=lambda row: str(row["email"]))}


def main() -> None:
    """Print the rows of the query, whether it is a stream, and what a run on each event loop creates."""
    rows = json.loads(sys.argv[1])
    created = {
        loop: anyio.run(partial(create, rows), backend=loop, backend_options=VirtualTime().options(loop))
        for loop in ("asyncio", "trio")
    }
    found = {"rows": [*chain(*read_frame(query(rows))[0])], "stream": isinstance(query(rows), ArrowStream), **created}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
