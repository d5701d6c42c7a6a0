"""The commands `audit`, `brief` and `history`: what they accept, and their help."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import click
from click import Choice

from outreach_async._cli.interface.kinds import ANY_ID, EXISTING, FILE, FOLDER, OUTPUT, age, date
from outreach_async._cli.interface.options import Command, all_of, force, option, reading, with_options
from outreach_async._cli.interface.root import SuggestingGroup

if TYPE_CHECKING:
    from typing import Unpack

    from outreach_async._cli.settings import AuditSettings
    from outreach_async._cli.values import Options


_audit_options: Final = all_of(
    option(
        "--history",
        type=FILE,
        help="Compare with the last audit in this file, and append this one to it; see the command 'history'.",
    ),
    option("--no-append", is_flag=True, help="Only read the --history file."),
    option(
        "--fail-on",
        type=Choice(["critical", "error", "warning", "info"]),
        default="error",
        help="Lowest severity that makes the exit code 1.",
    ),
    option("--policy", type=FILE, help="TOML file that turns rules off or changes thresholds."),
    option(
        "--deadline",
        type=float,
        metavar="SECONDS",
        help=(
            "Time limit of the audit, which waits this long for a service that is down; workspaces not read by then are "
            "reported as unreadable.  [default: none]"
        ),
    ),
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
        "Write index.html, and for each workspace a page and a JSON report without anything of the others, to send to a client."
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
    from outreach_async._cli.commands import auditing

    return auditing.audit(
        options,
        campaigns=campaigns,
        compares=compares,
        output_folder=output_folder,
        explain=explain,
        as_schema=as_schema,
        **shared,
    )


@click.command(cls=Command)
@option(
    "--post",
    metavar="URL",
    help=(
        "Post the brief to an incoming webhook of Slack (https only). The URL is a secret: env:NAME reads it from an "
        "environment variable."
    ),
)
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
def brief(options: Options, *, post: str | None, as_schema: bool, **shared: Unpack[AuditSettings]) -> int:
    """Show open tasks and the changes since the last brief.

    The brief is one page on mailboxes, campaigns and workspaces. Run this command every morning:

        outreach-async brief --history history.db

    The first run creates the --history file. Later runs append to it, but only after the brief has been written. If a workspace
    cannot be read, the next brief compares it with its last reading.

    The command reads mailboxes and campaigns, with one request for each campaign. The exit codes are the same as those of the
    command 'audit', and 69 if the brief was written, but could not be posted. The next brief then shows the same changes.
    """
    from outreach_async._cli.commands import auditing

    return auditing.brief(options, post=post, as_schema=as_schema, **shared)


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def history() -> None:
    """Show, export or prune the figures of earlier audits.

    The options --history of the commands 'audit' and 'brief' write the file.
    """


@history.command(cls=Command)
@click.argument("file", type=EXISTING)
@option(
    "--by",
    "kind",
    type=Choice(["workspace", "campaign", "domain", "mailbox"]),
    default="workspace",
    help="What to show figures of.",
)
@option(
    "--id", "subject", type=ANY_ID, metavar="ID", help="Id of one workspace, campaign or mailbox, or a domain.  [default: all]"
)
@option("--days", type=click.IntRange(1), metavar="DAYS", default=14, help="Number of days.")
@with_options("workspaces", "as_json")
def show(
    options: Options,
    *,
    file: Path,
    kind: Literal["workspace", "campaign", "domain", "mailbox"],
    subject: str | None,
    days: int,
) -> int:
    """Show the figures of each day, in UTC.

    A figure is empty if it is not known: on the first day, after a campaign was reset, or if a workspace could not be read. If
    days lack a snapshot, the difference is spread over them, and the note says so.
    """
    from outreach_async._cli.commands import history as histories

    return histories.show(options, file, kind, subject=subject, days=days)


@history.command(cls=Command)
@click.argument("file", type=EXISTING)
@click.argument("folder", type=FOLDER)
@option("--format", "form", type=Choice(["parquet", "csv"]), default="parquet", help="Format of the files.")
@with_options("quiet")
@force
def export(options: Options, *, file: Path, folder: Path, form: Literal["parquet", "csv"], force: bool) -> int:
    """Write each table and each view of the history to a file in FOLDER, which is created if it does not exist."""
    from outreach_async._cli.commands import history as histories

    return histories.export(options, file, folder, form, force=force)


@history.command(cls=Command)
@click.argument("file", type=EXISTING)
@option("--keep", type=age, help="Age up to which snapshots are kept, such as 400d.")
@option(
    "--after", type=date, help="Day or time in UTC up to which snapshots are kept, such as 2026-03-31 or 2026-03-31T08:00:00Z."
)
@option("--dry-run", is_flag=True, help="Only show what --after would delete.")
@with_options("as_json")
def prune(options: Options, *, file: Path, keep: float | None, after: float | None, dry_run: bool) -> int:
    """Delete snapshots, and make the file smaller.

    With --keep, those that are older than AGE before the last snapshot are deleted, and with --after
    those after DATE, such as those of a clock that was ahead. The command prints each snapshot that it deletes.
    """
    from outreach_async._cli.commands import history as histories

    return histories.prune(options, file, keep, after, dry_run=dry_run)
