"""Send everybody to the outreach service. Run it again to go on where it ended."""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from outreach_async import BulkProgress, BulkReport, ContactOutcome, DuplicatePolicy, HttpxTransport, OutreachClient, Transport
from outreach_async.errors import BulkStopped, BulkSuspended, OutreachError

from crm_sync.metrics import Metrics
from crm_sync.people import code_of, count, people
from crm_sync.transport import Tagged

TRY_LATER = 75


def problem(outcome: ContactOutcome) -> str | None:
    """Say what a person should look at."""
    if outcome.error is not None:
        return f"row {outcome.index}: {outcome.status}: {outcome.error}"
    if not outcome.certain:
        return f"row {outcome.index}: one of {', '.join(sorted(outcome.possible))}"
    return None


async def sync(
    client: OutreachClient,
    database: Path,
    journal: Path,
    *,
    duplicates: DuplicatePolicy = "update_missing_fields",
    campaign: str | None = None,
    show: Callable[[BulkProgress], None] = print,
    complain: Callable[[str], None] = print,
) -> BulkReport:
    plan_code = code_of("Plan", await client.workspaces.fields())
    run = client.contacts.create_many(
        people(database, plan_code=plan_code),
        duplicates=duplicates,
        campaign=campaign,
        journal=journal,
        resume=True,
        total=count(database),
        max_outage=60.0,
    )
    async with run as outcomes:
        async for outcome in outcomes:
            if (text := problem(outcome)) is not None:
                complain(text)
            if (outcome.index + 1) % 100 == 0:
                show(outcomes.progress)
    return outcomes.report


def show(progress: BulkProgress) -> None:
    left = "?" if progress.eta is None else f"{progress.eta:.0f} s"
    print(
        f"{progress.rows} of {progress.total}, {progress.rate:.0f}/s, {progress.state}, {left} left", file=sys.stderr, flush=True
    )


async def main(arguments: argparse.Namespace, transport: Transport) -> int:
    metrics = Metrics()
    tagged = Tagged(transport, arguments.run)
    async with OutreachClient(transport=tagged, hooks=[metrics]) as client:
        try:
            report = await sync(client, arguments.database, arguments.journal, campaign=arguments.campaign, show=show)
        except BulkSuspended as error:
            wait = "later" if error.retry_after is None else f"in {error.retry_after:.0f} s"
            print(f"The service is not there: {error}. Try again {wait}.", file=sys.stderr)
            return TRY_LATER
        except BulkStopped as error:
            print(f"Mend this, then run it again: {error.__cause__}", file=sys.stderr)
            return 1
        except OutreachError as error:
            print(f"Nothing was done: {error}", file=sys.stderr)
            return 1
    print(json.dumps({**report.to_dict(), "metrics": metrics.counts, "states": metrics.states}))
    return 0 if not report.uncertain else 3


def command_line() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="crm_sync", description=__doc__)
    parser.add_argument("database", type=Path)
    parser.add_argument("--journal", type=Path, default=Path("sync.journal"))
    parser.add_argument("--campaign")
    parser.add_argument("--run", default="manual")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(command_line(), HttpxTransport(os.environ["OUTREACH_BASE_URL"]))))
