"""The commands `audit`, `brief` and `plan`: a full report, the changes since the last brief, and when campaigns end."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click import Choice

from outreach_async._cli.options import (
    ANY_ID,
    EXISTING,
    FILE,
    FOLDER,
    LOCATION,
    OUTPUT,
    Command,
    all_of,
    earlier,
    force,
    option,
    reading,
)

if TYPE_CHECKING:
    from typing import Unpack

    from outreach_async._cli.settings import AuditSettings, PlanSettings
    from outreach_async._cli.values import Options


_deadline: Final = option(
    "--deadline",
    type=float,
    metavar="SECONDS",
    help=(
        "Time limit of the audit, which waits this long for a service that is down; workspaces not read by then are "
        "reported as unreadable.  [default: none]"
    ),
)
_audit_options: Final = all_of(
    option(
        "--history",
        type=FILE,
        help="Compare with the last audit in this file, and append this one to it; see the command 'history'.",
    ),
    option(
        "--ledger",
        "ledgers",
        type=LOCATION,
        multiple=True,
        help=(
            "Ledger of imports; repeatable. The brief shows how many people its last import did not write to, and bounces "
            "are compared with what the gate predicted.  [default: the ledgers in the configuration file]"
        ),
    ),
    option("--no-append", is_flag=True, help="Only read the --history file."),
    option(
        "--since",
        type=earlier,
        metavar="WHEN",
        help=(
            "Compare with the last audit in --history of this day or before it: 7d, yesterday, last-monday, a day such as "
            "2026-03-31, or month for the end of the month before, in UTC.  [default: the last audit]"
        ),
    ),
    option(
        "--fail-on",
        type=Choice(["critical", "error", "warning", "info"]),
        default="error",
        help="Lowest severity that makes the exit code 1.",
    ),
    option("--policy", type=FILE, help="TOML file that turns rules off or changes thresholds."),
    _deadline,
)


@click.command(cls=Command)
@option("--campaigns", is_flag=True, help="Also check campaigns and their steps. This costs one more request for each campaign.")
@option(
    "--compare",
    "compares",
    type=FILE,
    multiple=True,
    help=(
        "JSON report of an earlier audit; repeatable. Show the changes since the latest of these reports, and trends "
        "over all reports. [default: the last audit in --history]"
    ),
)
@option(
    "--output",
    "outputs",
    type=OUTPUT,
    multiple=True,
    help=(
        "Write the report to a file, in the format of its suffix (.txt, .json, .csv, .md, .markdown, .html, .htm, "
        ".prom); repeatable. The textfile collector of node_exporter reads *.prom files."
    ),
)
@option(
    "--output-folder",
    type=FOLDER,
    metavar="FOLDER",
    help=(
        "Write index.html, and for each workspace a page and a JSON report to send to a client, without names and addresses of "
        "the others."
    ),
)
@option(
    "--format",
    "form",
    type=Choice(["terminal", "json", "csv", "markdown", "html", "prometheus"]),
    help="Format of the --output file, or of the printed report.",
)
@option(
    "--explain",
    metavar="[RULE]",
    is_flag=False,
    flag_value="all",
    help="Explain a rule, such as OA120, and exit; without RULE, list all rules.",
)
@option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of the JSON report, and exit.")
@_audit_options
@reading
@force
def audit(
    options: Options,
    *,
    campaigns: bool,
    compares: tuple[Path, ...],
    output_folder: Path | None,
    explain: str | None,
    as_schema: bool,
    **shared: Unpack[AuditSettings],
) -> int:
    """Check every mailbox of the workspaces for problems. The report lists each problem with its cause and remedy.

    Pass --workspace several times, a group or "all" of the configuration file, or set OUTREACH_WORKSPACE to several, separated by
    blanks.

    For a daily audit, run the following command. It compares each audit with the one before:

        outreach-async audit --history history.db --output audit.html
    """
    from outreach_async._cli import auditing
    from outreach_async._cli.files import FileUse
    from outreach_async._cli.process import run_async
    from outreach_async.audit.reports import require_extra, schema

    task = auditing.AuditTask(options, shared, is_brief=False)
    if as_schema:
        return task.print_schema(schema())
    if explain is not None:
        return task.explain(explain)
    if compares and shared["since"]:
        raise click.UsageError("--since: conflicts with --compare, which names the earlier reports; remove one of the options.")
    existing = [path for path in compares if path.exists()]
    task.require_writable(*(FileUse.of("--compare", path) for path in existing), auditing.create_folder(output_folder, options))
    for form in task.formats:
        require_extra(form or "terminal")
    earlier = [auditing.load_report("--compare", path) for path in existing]
    for path in compares:
        if path not in existing:
            task.screen.warn(f"--compare: {path} does not exist; skipping it (expected on the first run of a daily audit)")
    return run_async(partial(task.run, campaigns=campaigns, earlier=earlier, folder=output_folder))


@click.command(cls=Command)
@option(
    "--post",
    metavar="URL",
    help=(
        "Post the brief to an incoming webhook of Slack (https only). The URL is a secret: env:NAME reads it from an "
        "environment variable."
    ),
)
@option("--link", metavar="URL", help="Where the whole report is, for the message of Slack to link to.")
@option(
    "--output",
    "outputs",
    type=OUTPUT,
    multiple=True,
    help="Write the brief to a file, in the format of its suffix (.txt, .json, .md, .markdown, .html, .htm); repeatable.",
)
@option(
    "--format",
    "form",
    type=Choice(["terminal", "json", "markdown", "html", "slack"]),
    help="Format of the --output file, or of the printed brief.",
)
@option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of the JSON brief, and exit.")
@_audit_options
@reading
@force
def brief(options: Options, *, post: str | None, link: str | None, as_schema: bool, **shared: Unpack[AuditSettings]) -> int:
    """Show open tasks and the changes since the last brief.

    The brief is one page on mailboxes, campaigns and workspaces. Run this command every morning:

        outreach-async brief --history history.db

    The first run creates the --history file. Later runs append to it, but only after the brief has been written. If a workspace
    cannot be read, the next brief compares it with its last reading.

    The command reads mailboxes and campaigns, with one request for each campaign. The exit codes are the same as those of the
    command 'audit', and 69 if the brief was written, but could not be posted. The next brief then shows the same changes.
    """
    from outreach_async._cli import auditing
    from outreach_async._cli.posting import parse_webhook
    from outreach_async._cli.process import run_async
    from outreach_async.audit.reports import require_link, schema
    from outreach_async.audit.reports.brief import Brief
    from outreach_async.errors import InvalidRequest

    if link is not None and post is None and shared["form"] != "slack":
        raise click.UsageError("--link: only the message of Slack has it; pass --post, or --format slack.")
    try:
        require_link(link)
    except InvalidRequest as error:
        raise click.UsageError(f"--{error}.") from None
    webhook = None if post is None else parse_webhook(post)
    task = auditing.AuditTask(options, shared, is_brief=True, link=link)
    if as_schema:
        return task.print_schema(schema(Brief))
    task.require_writable()
    return run_async(partial(task.run, webhook=webhook))


@click.command(cls=Command)
@option("--days", metavar="DAYS", help="Days on which the service sends, such as mon-fri.  [default: 5 to 7 days a week]")
@option(
    "--add-mailboxes", type=click.IntRange(0), metavar="N", default=0, help="What if N more mailboxes sent for all campaigns?"
)
@option(
    "--pause", "pauses", type=ANY_ID, metavar="ID", multiple=True, help="What if this campaign or mailbox paused? Repeatable."
)
@option("--contacts", metavar="[ID=]+N", multiple=True, help="What if a campaign got N more contacts? Repeatable.")
@option("--history", type=EXISTING, help="Say how the plan of last week has held, by the audits in this file.")
@_deadline
@reading
def plan(options: Options, **settings: Unpack[PlanSettings]) -> int:
    """Show when campaigns end, and what of the daily limits stays unused.

    The command reads mailboxes and campaigns, and sends nothing. Ends are ranges of days, because the service does not show which
    mailbox serves which campaign. The options --add-mailboxes, --pause and --contacts show both ends, with and without a change:

        outreach-async plan --workspace acme --add-mailboxes 3
    """
    from outreach_async._cli import planning
    from outreach_async._cli.process import run_async

    return run_async(partial(planning.plan, options, settings))
