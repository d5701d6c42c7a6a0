"""A destination of dlt that creates the rows of a table as contacts.

`dlt.pipeline("people", destination=outreach(ledger="people.ledger", results="results.jsonl")).run(rows, table_name="people")`
sends them. The columns are named as the fields of a contact. The ledger knows what the service has, so dlt may load a package
again: only what is new, changed or uncertain is sent. A row that the service refused has its reason in the results.
"""

import json
from pathlib import Path
from typing import Any

import dlt

from outreach_async import Outcome
from outreach_async.sync import SyncClient


# Two runs never use one ledger at the same time, so jobs are loaded one after another.
@dlt.destination(name="outreach", batch_size=10_000, loader_parallelism_strategy="sequential", max_table_nesting=0)
def outreach(
    items: list[dict[str, Any]], table: dict[str, Any], ledger: str = dlt.config.value, results: str = dlt.config.value
) -> None:
    """Create the contacts of a batch, and add a line for each row to the results."""
    retried = 0
    with SyncClient() as client, Path(results).open("a", encoding="utf-8") as file:
        run = client.contacts.create_many(items, ledger=ledger, duplicates="overwrite", stop_after_rejects=None)
        with run as outcomes:
            for outcome in outcomes:
                row: Any = outcome.contact
                found = {"email": row.get("email"), "id": outcome.id, "status": outcome.status}
                file.write(f"{json.dumps(found | {'error': outcome.error and str(outcome.error)})}\n")
                retried += outcome.status in {Outcome.UNKNOWN, Outcome.NOT_APPLIED}
    if retried:
        raise RuntimeError(f"{table['name']}: {retried} rows must be sent again")  # dlt then loads the batch again
