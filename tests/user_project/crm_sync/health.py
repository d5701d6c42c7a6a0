"""Audit the mailboxes of all our workspaces: one JSON for tomorrow, one page for people."""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from outreach_async import OutreachClient, OutreachError
from outreach_async.audit import Finding, Policy, Report, Severity, audit
from outreach_async.audit.reports import write


def load(path: Path) -> Report | None:
    return Report.from_dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


def urgent(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.severity.reaches(Severity.ERROR)]


async def check_workspaces(client: OutreachClient, workspaces: Sequence[str], policy: Policy, folder: Path) -> Report:
    report = await audit(client, workspaces, policy=policy)
    earlier = load(folder / "health.json")
    if earlier is not None:
        report = report.since(earlier)
    for name, form in (("health.json", "json"), ("health.html", "html")):
        (folder / name).write_text(write(report, form), encoding="utf-8")
    return report


async def main(workspaces: Sequence[str], policy: Policy, folder: Path) -> int:
    async with OutreachClient() as client:
        try:
            report = await check_workspaces(client, workspaces, policy, folder)
        except OutreachError as error:
            print(f"No audit: {error}", file=sys.stderr)
            return 2
    for finding in urgent(report):
        print(finding.workspace, finding.email, finding.rule, finding.message, sep="\t")
    if report.diff is not None:
        print(f"{len(report.diff.new)} new, {len(report.diff.resolved)} resolved")
    print(f"score {report.scores.overall}, unreadable: {', '.join(report.unreadable) or 'none'}")
    return report.exit_code("error")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="crm_health", description=__doc__)
    parser.add_argument("workspaces", nargs="+")
    parser.add_argument("--policy", type=Path)
    parser.add_argument("--folder", type=Path, default=Path())
    arguments = parser.parse_args()
    chosen = Policy.load(arguments.policy) if arguments.policy else Policy.default()
    sys.exit(asyncio.run(main(arguments.workspaces, chosen, arguments.folder)))
