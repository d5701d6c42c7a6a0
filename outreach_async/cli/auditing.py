"""The command `audit`."""

from __future__ import annotations

from functools import partial

import click

from outreach_async import audit as auditing
from outreach_async.audit.terminal import report_renderable
from outreach_async.audit.text import report_text
from outreach_async.cli.connection import open_client, workspaces_of
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen


@click.command()
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in auditing.Severity]),
    default="error",
    show_default=True,
    help="The mildest severity that makes the exit code 1.",
)
@shared_options
def audit(options: Options, fail_on: str) -> int:
    """Judge every mailbox of the workspaces, and say what is unsafe and what to do about it.

    --workspace may be given several times; OUTREACH_WORKSPACE may hold several ids with blanks between them.
    """
    return run_async(partial(_audit, options, fail_on))


async def _audit(options: Options, fail_on: str) -> int:
    screen = Screen.of(as_json=options.as_json)
    workspaces = workspaces_of(options)
    async with open_client(options, workspace=workspaces[0]) as client:
        report = await auditing.audit(client, workspaces)
    show_audit(screen, report)
    screen.result(report.to_dict())
    return report.exit_code(fail_on)


def show_audit(screen: Screen, report: auditing.Report) -> None:
    """Print a report for a person."""
    if screen.console:
        screen.console.print(report_renderable(report))
    elif not screen.as_json:
        screen.say_lines(report_text(report))
