"""A nightly job: send the new and the changed people of a DuckDB table to their campaigns, and write their contact ids back.

Run it with `python nightly.py people.duckdb`. The ledger beside the database knows what the service has. If the job is killed,
run it again. A scheduler needs nothing else: cron runs this command; a task of Airflow or an asset of Dagster calls
`send_changes`.
"""

import csv
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from outreach_async import BulkReport
from outreach_async.sync import SyncClient

# The column `campaign` has the name or the id of a campaign, or null for none. A person may be in several campaigns.
PEOPLE = """
    SELECT DISTINCT ON (email, campaign) email, first_name, city, campaign FROM people WHERE email IS NOT NULL
    ORDER BY email, campaign
"""
TABLE = """
    CREATE TABLE IF NOT EXISTS outreach_contacts
    (email VARCHAR, campaign VARCHAR, id VARCHAR, status VARCHAR, error VARCHAR, PRIMARY KEY (email, campaign))
"""
WRITE_BACK = """
    INSERT INTO outreach_contacts
    SELECT email, coalesce(campaign, ''), id, status, error FROM read_csv(?, header = true, all_varchar = true)
    ON CONFLICT (email, campaign) DO UPDATE SET id = coalesce(excluded.id, id), status = excluded.status, error = excluded.error
"""


def send_changes(database: str) -> BulkReport:
    """Send what has changed since the last run, and return the counts."""
    ledger = Path(database).with_suffix(".ledger")
    with duckdb.connect(database) as db, SyncClient() as client, TemporaryDirectory() as folder:
        results = Path(folder, "results.csv")
        people = db.sql(PEOPLE)
        run = client.contacts.create_many(people, ledger=ledger, duplicates="overwrite", max_outage=900)
        with results.open("w", encoding="utf-8", newline="") as file, run as outcomes:
            writer = csv.writer(file)
            writer.writerow(["email", "campaign", "id", "status", "error"])
            for outcome in outcomes:  # also those of unchanged people, whose ids an earlier, killed job may not have written
                person: Any = outcome.contact
                named = person.get("campaign")
                writer.writerow([person["email"], named, outcome.id, outcome.status, outcome.error])
        db.execute(TABLE)
        db.execute(WRITE_BACK, [str(results)])
        return outcomes.report


if __name__ == "__main__":
    sys.stdout.write(f"{send_changes(sys.argv[1]).ledger}\n")
