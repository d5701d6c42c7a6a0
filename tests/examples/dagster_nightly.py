"""An asset of Dagster that runs the nightly job. Run it with `dagster asset materialize --select outreach_contacts -f FILE`.

A run that is killed or fails is started again, and continues; see `nightly.py`. The connection to the service comes from the
environment: OUTREACH_BASE_URL, OUTREACH_OWNER_KEY and OUTREACH_WORKSPACE.
"""

import os

import dagster as dg
from nightly import send_changes


# With a pool whose limit is 1, two runs never use one ledger at the same time.
@dg.asset(pool="outreach_ledger", retry_policy=dg.RetryPolicy(max_retries=4, delay=900))
def outreach_contacts() -> dg.MaterializeResult:
    """Send the changes of the night, and write the contact ids back."""
    report = send_changes(os.environ["PEOPLE_DATABASE"])
    # Dagster shows the counts of the ledger and of the outcomes beside the asset.
    return dg.MaterializeResult(metadata={**report.to_dict()["ledger"], "outcomes": dict(report.outcomes)})


night = dg.ScheduleDefinition(target=[outreach_contacts], cron_schedule="0 2 * * *", name="outreach_nightly")
defs = dg.Definitions(assets=[outreach_contacts], schedules=[night])
