"""The commands `audit`, `brief`, `history` and `mcp`: their options and help."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeAlias

import click

from outreach_async._cli import files
from outreach_async._cli.app import SuggestingGroup, create_completer
from outreach_async._cli.options import CONNECTION, READING, AgeType, WorkspaceType, shared_options

_Command: TypeAlias = Callable[..., Any]

# Options of both commands.
_fail_on_option: Final = click.option(
    "--fail-on",
    type=click.Choice(("critical", "error", "warning", "info")),
    default="error",
    help="Lowest severity that makes the exit code 1.",
)
_policy_option: Final = click.option(
    "--policy", type=files.PATH, metavar="FILE", help="TOML file that turns rules off or changes thresholds."
)
_deadline_option: Final = click.option(
    "--deadline",
    type=float,
    metavar="SECONDS",
    help="Time limit of the audit, which waits this long for a service that is down; workspaces not read by then are reported as "
    "unreadable.  [default: none]",
)

_history_option: Final = click.option(
    "--history",
    type=files.PATH,
    metavar="FILE",
    help="Compare with the last audit in this file, and append this one to it; see the command 'history'.",
)
_no_append_option: Final = click.option("--no-append", is_flag=True, help="Only read the --history file.")


def _output_option(what: str, suffixes: str) -> Callable[[_Command], _Command]:
    text = f"Write the {what} to a file, in the format of its suffix ({suffixes}); repeatable."
    return click.option("--output", "outputs", type=files.OutputPath(), metavar="FILE", multiple=True, help=text)


def list_rules() -> dict[str, str]:
    from outreach_async.audit import CATALOGUE

    return {name: rule.title for name, rule in CATALOGUE.items()}


def _parse_webhook(text: str) -> Any:
    from outreach_async._cli.posting import parse_webhook

    return parse_webhook(text)


class _HistoryFile(click.Path):
    """Parameter type of an existing history."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, exists=True, dir_okay=False)


@click.command()
@_fail_on_option
@click.option(
    "--campaigns",
    is_flag=True,
    help="Also check campaigns and their steps. This costs one more request for each campaign.",
)
@_policy_option
@click.option(
    "--compare",
    "earlier",
    type=files.PATH,
    metavar="EARLIER.json",
    multiple=True,
    help="JSON report of an earlier audit; repeatable. Show the changes since the latest of these reports, and trends over all "
    "reports.  [default: the last audit in --history]",
)
@_history_option
@_no_append_option
@_output_option("report", ".txt, .json, .csv, .md, .markdown, .html, .htm, .prom")
@click.option(
    "--prometheus",
    type=files.OutputPath(),
    metavar="FILE",
    help="Also write gauges to a *.prom file for the textfile collector of node_exporter.",
)
@click.option(
    "--output-folder",
    "folder",
    type=files.PATH,
    metavar="FOLDER",
    help="Write index.html, and for each workspace a page and a JSON report without anything of the others, to send to a client.",
)
@files.force_option
@_deadline_option
@click.option(
    "--format",
    "form",
    type=click.Choice(("terminal", "json", "csv", "markdown", "html", "prometheus")),
    help="Format of the --output file, or of the printed report.",
)
@click.option(
    "--explain",
    is_flag=False,
    flag_value="all",
    metavar="[RULE]",
    shell_complete=create_completer(list_rules),
    help="Explain a rule, such as OA120, and exit; without RULE, list all rules.",
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of the JSON report, and exit.")
@shared_options(*READING)
def audit(**arguments: Any) -> int:
    """Check every mailbox of the workspaces for problems. The report lists each problem with its cause and remedy.

    Pass --workspace several times, a group or "all" of the configuration file, or set OUTREACH_WORKSPACE to several, separated by
    blanks.

    For a daily audit, run the following command. It compares each audit with the one before:

    \b
    outreach-async audit --history history.db --output audit.html
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    from outreach_async._cli.commands.auditing import audit as run

    return run(**arguments)


@click.command()
@_history_option
@_no_append_option
@click.option(
    "--post",
    "webhook",
    type=_parse_webhook,
    metavar="URL",
    help="Post the brief to an incoming webhook of Slack (https only). The URL is a secret: env:NAME reads it from an "
    "environment variable.",
)
@_fail_on_option
@_policy_option
@_output_option("brief", ".txt, .json, .md, .markdown, .html, .htm")
@files.force_option
@_deadline_option
@click.option(
    "--format",
    "form",
    type=click.Choice(("terminal", "json", "markdown", "html", "slack")),
    help="Format of the --output file, or of the printed brief.",
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of the JSON brief, and exit.")
@shared_options(*READING)
def brief(**arguments: Any) -> int:
    """Show open tasks and the changes since the last brief.

    The brief is one page on mailboxes, campaigns and workspaces. Run this command every morning:

    \b
    outreach-async brief --history history.db

    The first run creates the --history file. Later runs append to it, but only after the brief has been written. If a workspace
    cannot be read, the next brief compares it with its last reading.

    The command reads mailboxes and campaigns, with one request for each campaign. The exit codes are the same as those of the
    command 'audit', and 69 if the brief was written, but could not be posted. The next brief then shows the same changes.
    """  # noqa: D301 - click keeps the lines of a paragraph after a backspace character
    from outreach_async._cli.commands.auditing import brief as run

    return run(**arguments)


@click.group(cls=SuggestingGroup)
def history() -> None:
    """Show, export or prune the figures of earlier audits.

    The options --history of the commands 'audit' and 'brief' write the file.
    """


@history.command()
@click.argument("path", metavar="FILE", type=_HistoryFile())
@click.option(
    "--by",
    "kind",
    type=click.Choice(("workspace", "campaign", "domain", "mailbox")),
    default="workspace",
    help="What to show figures of.",
)
@click.option("--id", "subject", metavar="ID", help="Id of one workspace, campaign or mailbox, or a domain.  [default: all]")
@click.option("--days", type=click.IntRange(1), default=14, help="Number of days.")
@shared_options("workspaces", "as_json")
def show(**arguments: Any) -> int:
    """Show the figures of each day, in UTC.

    A figure is empty if it is not known: on the first day, after a campaign was reset, or if a workspace could not be read. If
    days lack a snapshot, the difference is spread over them, and the note says so.
    """
    from outreach_async._cli.commands.history import show as run

    return run(**arguments)


@history.command()
@click.argument("path", metavar="FILE", type=_HistoryFile())
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path, file_okay=False))
@click.option("--format", "form", type=click.Choice(("parquet", "csv")), default="parquet", help="Format of the files.")
@files.force_option
@shared_options()
def export(**arguments: Any) -> int:
    """Write each table and each view of the history to a file in FOLDER, which is created if it does not exist."""
    from outreach_async._cli.commands.history import export as run

    return run(**arguments)


@history.command()
@click.argument("path", metavar="FILE", type=_HistoryFile())
@click.option("--keep", type=AgeType(), metavar="AGE", required=True, help="Age up to which snapshots are kept, such as 400d.")
@shared_options("as_json")
def prune(**arguments: Any) -> int:
    """Delete snapshots that are older than AGE before the last snapshot, and make the file smaller."""
    from outreach_async._cli.commands.history import prune as run

    return run(**arguments)


@click.command()
@click.option(
    "--allow-writes",
    metavar="NAME|ID",
    multiple=True,
    type=WorkspaceType(),
    help="Workspace in which contacts may be created, after a person has confirmed; repeatable.  [default: none]",
)
@click.option(
    "--deadline",
    type=float,
    metavar="SECONDS",
    help="Time limit of a call.  [default: 50, because many assistants give up after a minute]",
)
@click.option(
    "--history",
    type=files.PATH,
    metavar="FILE",
    help="File of 'brief --history', which is only read. The tool 'brief' shows the changes since its last audit, and the tool "
    "'history' its figures.",
)
@click.option("--http", is_flag=True, help="Serve over HTTP at /mcp, instead of stdin and stdout; see below.")
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="Address or name for --http, as in the URL of clients.")
@click.option("--port", type=click.IntRange(1, 65535), default=8000, metavar="PORT", help="Port to listen on with --http.")
@shared_options(*CONNECTION, "workspaces", "owner_key")
def mcp(**arguments: Any) -> int:
    """Run an MCP server for assistants over stdin and stdout.

    Assistants that support the Model Context Protocol start this command themselves: add it to their configuration. The tools
    list campaigns, steps, mailboxes and fields, run audits and briefs, explain rules, and check rows before an import. They read
    only the workspaces of --workspace and --allow-writes, but the steps of any campaign.

    With --allow-writes ID, an assistant can also create contacts in that workspace, at most 50 per call. A person must confirm
    every call, and fields are never overwritten. The option requires an owner key, and an assistant that supports elicitation.

    With --http, any number of assistants use one server. Set OUTREACH_MCP_TOKEN to a secret that they send as a bearer token.
    Without it, the server listens on loopback only, and does not accept --allow-writes.
    """
    from outreach_async._cli.commands.assisting import mcp as run

    return run(**arguments)
