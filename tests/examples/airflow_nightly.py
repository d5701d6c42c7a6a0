"""A DAG of Airflow that runs the nightly job. Put it beside `nightly.py` in the folder of the DAGs.

A task that is killed or fails is started again, and continues; see `nightly.py`. The connection to the service comes from the
environment of the worker: OUTREACH_BASE_URL, OUTREACH_OWNER_KEY and OUTREACH_WORKSPACE.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from airflow.sdk import dag, task
from nightly import send_changes


# Two runs must not use one ledger at the same time: the second would fail.
@dag(schedule="0 2 * * *", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def outreach_nightly() -> None:
    """Send the changes of the night, and write the contact ids back."""

    @task(retries=4, retry_delay=timedelta(minutes=15))
    def send() -> dict[str, int | None]:
        """Return the counts of the ledger, which Airflow shows as the result of the task."""
        report = send_changes(os.environ["PEOPLE_DATABASE"])
        return report.to_dict()["ledger"]

    send()


outreach_nightly()
