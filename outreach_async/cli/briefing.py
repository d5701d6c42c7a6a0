"""The command `brief`."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import click

from outreach_async import audit as auditing
from outreach_async.atomic import atomic_write
from outreach_async.audit.reports import BRIEF_WRITERS, brief_schema, has_brief_format, has_format, write, write_brief
from outreach_async.audit.reports.brief import Brief, build_baseline, build_brief
from outreach_async.audit.reports.brief_view import format_brief_changes, format_brief_headline
from outreach_async.audit.reports.terminal import StyledReport
from outreach_async.cli import files
from outreach_async.cli.auditing import (
    choose_formats,
    choose_print_format,
    clock_of,
    deadline_option,
    fail_on_option,
    list_suffixes,
    load_policy,
    load_report,
    policy_option,
    run_with_progress,
)
from outreach_async.cli.connection import open_client, workspaces_of
from outreach_async.cli.options import READING, Options, shared_options
from outreach_async.cli.output import Screen
from outreach_async.cli.process import OK, run_async


@click.command()
@click.option(
    "--since",
    type=files.OutputPath(),
    metavar="FILE",
    help="JSON file with the audit of the last brief: show the changes since then, and replace the file.",
)
@click.option(
    "--no-replace", is_flag=True, help="Do not replace the --since file, so that the next brief shows the same changes."
)
@fail_on_option
@policy_option
@click.option(
    "--output",
    "outputs",
    type=files.OutputPath(),
    metavar="FILE",
    multiple=True,
    help=f"Write the brief to a file, in the format of its suffix ({list_suffixes(BRIEF_WRITERS)}); repeatable.",
)
@files.force_option
@deadline_option
@click.option(
    "--format", "form", type=click.Choice(list(BRIEF_WRITERS)), help="Format of the --output file, or of the printed brief."
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of the JSON brief, and exit.")
@shared_options(*READING)
def brief(
    *,
    options: Options,
    since: Path | None,
    no_replace: bool,
    fail_on: str,
    policy: Path | None,
    outputs: tuple[Path, ...],
    force: bool,
    deadline: float | None,
    form: str | None,
    as_schema: bool,
) -> int:
    """Show changes since the last brief, and open tasks.

    The brief is one page on mailboxes, campaigns and workspaces. Run this command every morning. The first run has no earlier
    brief, and creates the file:

    \b
    outreach-async brief --since last.json

    The command reads mailboxes and campaigns, with one request for each campaign.

    If a workspace cannot be read, the file keeps the earlier data about the workspace. The file is replaced after the brief was
    written. Exit codes are those of the command audit.
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    screen = Screen.of(as_json=options.as_json or (form == "json" and not outputs))
    if as_schema:
        screen.print_lines(json.dumps(brief_schema(), indent=2))
        screen.print_result(brief_schema())
        return OK
    chosen = load_policy(policy)
    formats = choose_formats(outputs, form, BRIEF_WRITERS)
    files.require_writable(
        files.FileUse.for_reading("--policy", policy),
        files.FileUse.for_reading("--since", since)
        if no_replace
        else files.FileUse.for_writing("--since", since, partial(has_format, "json")),
        *(files.FileUse.for_writing("--output", path, partial(has_brief_format, chosen_form)) for path, chosen_form in formats),
        force=force,
    )
    earlier = load_report("--since", since) if since and since.exists() else None
    print_format = None if outputs else choose_print_format(form, screen)

    async def run_brief() -> int:
        workspaces = workspaces_of(options)
        async with open_client(options, workspace=workspaces[0]) as client:
            run = auditing.stream(client, workspaces, policy=chosen, campaigns=True, deadline=deadline, clock=clock_of(options))
            report = await run_with_progress(run, len(workspaces), screen)
        _output_brief(screen, build_brief(report, earlier), dict(formats), print_format)
        baseline = build_baseline(report, earlier)
        if since and baseline and not no_replace:
            # Last: if the brief could not be shown, the next one must show these changes again.
            with files.explain_write_errors("--since", since):
                atomic_write(since, write(baseline, "json"))
        return (report.since(earlier) if earlier else report).exit_code(fail_on)

    return run_async(run_brief)


def _output_brief(screen: Screen, brief: Brief, formats: dict[Path, str], print_format: str | None) -> None:
    """Write a brief to files or, if `formats` is empty, print it. Without `print_format`, the format depends on the screen."""
    for path, form in formats.items():
        with files.explain_write_errors("--output", path):
            atomic_write(path, write_brief(brief, form))
    if formats:
        for line in (format_brief_headline(brief), brief.verdict, format_brief_changes(brief)):
            screen.print_line(line)
        for path in formats:
            screen.print_line(f"Written: {path}")
    elif print_format is not None:
        sys.stdout.write(write_brief(brief, print_format))
    else:
        show_brief(screen, brief)
    screen.print_result(brief.to_dict())
    sys.stdout.flush()  # a broken pipe must be noticed before the --since file is replaced


def show_brief(screen: Screen, brief: Brief) -> None:
    """Print a brief for people; with `--json`, print nothing."""
    if screen.console:
        screen.console.print(StyledReport(brief))
    elif not screen.as_json:
        screen.print_lines(write_brief(brief, "terminal"))
