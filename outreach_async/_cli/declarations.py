"""Every command with its parameters and its help. Its module is imported when it runs, so that the help appears at once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any, Final

import click
from click.core import ParameterSource

from outreach_async._cli.parameters import TYPES, WordType, parse_parameters

_CHECKS: Final = ("email", "role", "typo", "phone", "country", "state", "timezone", "date", "website", "cells", "repeat")
_LEVELS: Final = ("error", "warn", "off")
_PRESETS: Final = ("documented", "strict", "lenient")


def list_rules() -> dict[str, str]:
    from outreach_async.audit import CATALOGUE

    return {name: rule.title for name, rule in CATALOGUE.items()}


_COMPLETED: Final = {
    "[RULE]": WordType(lambda _: list_rules()),
    "[CHECK=]error|warn|off": WordType(lambda _: [*_LEVELS, *(f"{check}={level}" for check in _CHECKS for level in _LEVELS)]),
    "PRESET|FILE": WordType(lambda _: _PRESETS, or_file=True),
}
TYPES.update(_COMPLETED)

SHARED: Final = {
    str(option.name): option
    for option in parse_parameters("""
        --config FILE
            Configuration file.  [OUTREACH_CONFIG; default: outreach.toml here or in the user's configuration folder]
        --profile PROFILE
            Profile of the configuration file. [OUTREACH_PROFILE]
        --base-url URL
            Base URL of the service; 'fake:' uses the embedded fake service. [OUTREACH_BASE_URL]
        --workspace NAME|ID|GROUP|all...
            Workspace: its id, or a name or group of the configuration file; repeatable, or separated by commas, with lists,
            audits and 'mcp'. [OUTREACH_WORKSPACE]
        --owner-key KEY
            API key for creating contacts; the environment variable is safer. [OUTREACH_OWNER_KEY]
        --json
            Print the result as one JSON object on the last line of stdout.
        --backend httpx|httpx2|aiohttp|httptools
            HTTP library to use.  [default: httpx]
        --timeout SECONDS
            Timeout of each request attempt.  [default: 30]
        --rate REQUESTS
            Maximum number of requests per second. [OUTREACH_RATE]
        --header 'NAME: VALUE'...
            Header for every request; repeatable.
        --quiet,-q
            Print no report, list or progress, but warnings, errors and what --json prints.
        --verbose,-v
            Log every request to stderr, as OUTREACH_LOG=debug does; 'demo' prints every report.
        """)
}
"""Maps each attribute of `Options` to its option, which is accepted before and after the name of the command."""
_CONNECTION: Final = ("config", "profile", "base_url", "backend", "timeout", "rate", "headers", "verbose")
_READING: Final = (*_CONNECTION, "workspaces", "as_json")
_WRITING: Final = (*_READING, "owner_key")

_FORCE: Final = """
--force
    Overwrite an existing file even if it does not look like an output of the same option."""
_LIST: Final = f"""
--columns NAMES|all
    Columns to print, separated by commas.  [default: a few in a table on a terminal, all otherwise]
--format table|csv|jsonl|json
    Format of the list. In pipes and files, tabs separate the columns of a table; json is the same as --json.  [default: by the
    suffix of --output, or table]
--output >FILE
    Write the list to a file, in the format of its suffix (.csv, .jsonl, .ndjson, .json, .tsv, .txt).{_FORCE}"""
_INPUT: Final = """
--encoding NAME
    Encoding of a CSV or JSON Lines file, such as cp1252.  [default: that of the byte order mark, or UTF-8]
--sheet NAME
    Sheet of a workbook.  [default: the first visible one]
--header-row LINE
    Line or row of the column names.  [default: the first]
--format csv|jsonl|parquet|xlsx
    File format.  [default: detected]"""
_MAPPING: Final = """
--map 'COLUMN=CODE'...
    Send a column as the field with this code; the code 'ignore' skips the column; repeatable.
--mapping FILE
    Read the column mapping from this TOML file; --map overrides it.
--ignore-unknown
    Skip columns that match no field. An ambiguous column is still an error."""
_RESULTS: Final = """
--rejects >FILE
    CSV file for rejected, not_applied and unknown rows.
--results >FILE
    File with the outcome of every row: its line, e-mail, workspace, campaign, status, certainty, possible outcomes, attempts,
    contact id, error and remedy. CSV, or JSON Lines or Parquet if the name ends in .jsonl or .parquet."""
_HISTORY: Final = """
--history FILE
    Compare with the last audit in this file, and append this one to it; see the command 'history'.
--no-append
    Only read the --history file.
--fail-on critical|error|warning|info = error
    Lowest severity that makes the exit code 1.
--policy FILE
    TOML file that turns rules off or changes thresholds.
--deadline SECONDS
    Time limit of the audit, which waits this long for a service that is down; workspaces not read by then are reported as
    unreadable.  [default: none]"""


class _SuggestingGroup(click.Group):
    """A group of commands that suggests similar names for an unknown command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the name of a sub-command, the sub-command itself, and the arguments after its name."""
        # During shell completion, the words of the line may be incomplete.
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            near = get_close_matches(args[0].lower(), names)
            meant = f"did you mean {' or '.join(map(repr, near))}?" if near else f"the commands are {', '.join(names)}."
            raise click.UsageError(f"unknown command {args[0]!r}; {meant}", ctx)
        return super().resolve_command(ctx, args)


outreach: Final = _SuggestingGroup(
    "outreach-async",
    params=[*SHARED.values()],
    context_settings={"show_default": True, "help_option_names": ["-h", "--help"]},
    help="""Import contacts, audit mailboxes and list the contents of a workspace.

    Exit codes: 0 success; 1 findings at or above --fail-on, or a request refused by the service; 2 wrong usage; 3 incomplete
    (rows rejected, unknown or not applied, or pages that could not be read); 69 a brief could not be posted; 75 suspended, can be
    resumed; 77 not allowed (the service answered 401 or 403); 130 interrupted.
    """,
)
click.version_option(package_name="outreach_async", message="%(package)s %(version)s")(outreach)
_GROUPS: Final = {
    "config": "Write, check and show the configuration file.",
    "contacts": "Create a contact.",
    "history": """Show, export or prune the figures of earlier audits.

    The options --history of the commands 'audit' and 'brief' write the file.
    """,
}
for _name, _text in _GROUPS.items():
    outreach.add_command(_SuggestingGroup(_name, help=_text, no_args_is_help=False))


def _declare(name: str, function: str, shared: Collection[str], text: str, parameters: str = "") -> None:
    """Add a command. It calls a function, which gets the values of the shared options, and its own."""
    names = [each for each in SHARED if each in shared or (shared and each == "quiet")]  # with --quiet, every command is quiet
    params = [*parse_parameters(parameters), *map(SHARED.__getitem__, names)]
    group, _, last = name.rpartition(" ")
    command = click.Command(last, params=params, help=text, callback=_create_callback(function, names))
    (outreach.commands[group] if group else outreach).add_command(command)  # type: ignore[attr-defined]  # the commands of a group


def _create_callback(function: str, shared: Collection[str]) -> Callable[..., Any]:
    def run(**arguments: Any) -> Any:
        before = _options_before(click.get_current_context(), shared)
        if shared:
            from outreach_async._cli.values import Options

            values = {name: _prefer_later(before.get(name), arguments.pop(name)) for name in shared}
            arguments["options"] = Options.of(values, os.environ)
        module, _, name = function.rpartition(".")
        return getattr(import_module(f"outreach_async._cli.{module}"), name)(**arguments)

    return run


def _options_before(context: click.Context, names: Collection[str]) -> Mapping[str, Any]:
    """Return the values of the shared options given before the command's name."""
    root = context.find_root()
    for parameter in root.command.params:
        given = root.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        if given and parameter.name not in names:
            command = context.command_path.partition(" ")[2]
            raise click.UsageError(f"{parameter.opts[0]}: the command {command!r} does not use this option; remove it.", context)
    return root.params


def _prefer_later(before: Any, after: Any) -> Any:
    """Return the value given after the command's name. If there is none, return the value given before the name."""
    return before if after is None or after is False or after == () else after


_declare(
    "audit",
    "commands.auditing.audit",
    _READING,
    """Check every mailbox of the workspaces for problems. The report lists each problem with its cause and remedy.

    Pass --workspace several times, a group or "all" of the configuration file, or set OUTREACH_WORKSPACE to several, separated by
    blanks.

    For a daily audit, run the following command. It compares each audit with the one before:

    \b
    outreach-async audit --history history.db --output audit.html
    """,
    f"""
--campaigns
    Also check campaigns and their steps. This costs one more request for each campaign.
--compare FILE...
    JSON report of an earlier audit; repeatable. Show the changes since the latest of these reports, and trends over all reports.
    [default: the last audit in --history]{_HISTORY}
--output >FILE...
    Write the report to a file, in the format of its suffix (.txt, .json, .csv, .md, .markdown, .html, .htm, .prom); repeatable.
--prometheus >FILE
    Also write gauges to a *.prom file for the textfile collector of node_exporter.
--output-folder FOLDER
    Write index.html, and for each workspace a page and a JSON report without anything of the others, to send to a
    client.{_FORCE}
--format terminal|json|csv|markdown|html|prometheus
    Format of the --output file, or of the printed report.
--explain [RULE]
    Explain a rule, such as OA120, and exit; without RULE, list all rules.
--schema
    Print the JSON Schema of the JSON report, and exit.""",
)
_declare(
    "brief",
    "commands.auditing.brief",
    _READING,
    """Show open tasks and the changes since the last brief.

    The brief is one page on mailboxes, campaigns and workspaces. Run this command every morning:

    \b
    outreach-async brief --history history.db

    The first run creates the --history file. Later runs append to it, but only after the brief has been written. If a workspace
    cannot be read, the next brief compares it with its last reading.

    The command reads mailboxes and campaigns, with one request for each campaign. The exit codes are the same as those of the
    command 'audit', and 69 if the brief was written, but could not be posted. The next brief then shows the same changes.
    """,
    f"""
--post URL
    Post the brief to an incoming webhook of Slack (https only). The URL is a secret: env:NAME reads it from an environment
    variable.{_HISTORY}
--output >FILE...
    Write the brief to a file, in the format of its suffix (.txt, .json, .md, .markdown, .html, .htm); repeatable.{_FORCE}
--format terminal|json|markdown|html|slack
    Format of the --output file, or of the printed brief.
--schema
    Print the JSON Schema of the JSON brief, and exit.""",
)
for _name in ("campaigns", "mailboxes"):
    _declare(_name, f"commands.lists.{_name}", _READING, f"List the {_name} of one or more workspaces.", _LIST)
_declare(
    "completion",
    "app.print_completion",
    (),
    """Print the completion script for a shell.

    \b
    bash 4.4 or newer: add this line to ~/.bashrc
      eval "$(outreach-async completion bash)"

    \b
    zsh: add this line to ~/.zshrc, after the line with compinit
      eval "$(outreach-async completion zsh)"

    \b
    fish: add this line to ~/.config/fish/config.fish
      outreach-async completion fish | source

    The line takes effect in new shells. The command must be on PATH under the name outreach-async.
    """,
    "SHELL bash|zsh|fish",
)
_declare(
    "config check",
    "commands.configuring.check",
    _READING,
    """Read one page of each workspace, and say what works. Owner keys are read, but not sent.

    Without --workspace, every workspace of the configuration file is checked.

    Exit codes: 0 everything works; 1 an owner key cannot be read; 2 wrong usage, or an error in the file; 3 a workspace cannot
    be read; 77 the service denies access to every workspace.
    """,
)
_declare(
    "config init",
    "commands.configuring.init",
    ("config",),
    """Write a commented configuration file to start with: outreach.toml, or the one of --config.

    An existing file is never overwritten. If OUTREACH_BASE_URL and OUTREACH_WORKSPACE are set, the new file has their values.
    """,
)
_declare(
    "config show",
    "commands.configuring.show",
    _WRITING,
    "Show each value, and where it comes from. Keys are never shown, only where they are stored.",
)
_declare(
    "contacts create",
    "commands.creating.create",
    _WRITING,
    """Create one contact, and print its outcome and id.

    \b
    outreach-async contacts create --email ann@x.example --set first_name=Ann

    Exit codes: 0 added, skipped, overwriten or updated_missing_fields; 2 wrong usage; 3 rejected, not_applied or unknown; 77 not
    allowed (the service answered 401 or 403).
    """,
    """
--email ADDRESS!
    E-mail address, by which the service detects duplicates.
--set FIELD=VALUE...
    Set a field by its code or label, such as first_name=Ann, custom_1=Gold or Plan=Gold; repeatable. The command 'fields' lists
    codes and labels.
--duplicates skip|overwrite|update_missing_fields = skip
    Policy if the workspace already has a contact with this e-mail.
--campaign CAMPAIGN
    Add the contact to this campaign.
--strict/--no-strict
    Let the service validate the standard fields.""",
)
_declare(
    "demo",
    "commands.demo.demo",
    ("as_json", "verbose"),
    """Import and audit on an embedded service, and show a brief.

    The demo needs no network and no setup. With --verbose, it also shows the whole brief, both imports and the first audit.
    """,
)
_declare("fields", "commands.lists.fields", _READING, "List the contact fields of one or more workspaces.", _LIST)
_declare(
    "history export",
    "commands.history.export",
    ("quiet",),
    "Write each table and each view of the history to a file in FOLDER, which is created if it does not exist.",
    f"""
FILE HISTORY
FOLDER FOLDER
--format parquet|csv = parquet
    Format of the files.{_FORCE}""",
)
_declare(
    "history prune",
    "commands.history.prune",
    ("as_json",),
    "Delete snapshots that are older than AGE before the last snapshot, and make the file smaller.",
    """
FILE HISTORY
--keep AGE!
    Age up to which snapshots are kept, such as 400d.""",
)
_declare(
    "history show",
    "commands.history.show",
    ("workspaces", "as_json"),
    """Show the figures of each day, in UTC.

    A figure is empty if it is not known: on the first day, after a campaign was reset, or if a workspace could not be read. If
    days lack a snapshot, the difference is spread over them, and the note says so.
    """,
    """
FILE HISTORY
--by workspace|campaign|domain|mailbox = workspace
    What to show figures of.
--id ID
    Id of one workspace, campaign or mailbox, or a domain.  [default: all]
--days DAYS = 14
    Number of days.""",
)
_declare(
    "import",
    "commands.importing.import_",
    _WRITING,
    """Create a contact for each row of a file. The file is CSV, JSON Lines, Parquet or a workbook; '-' is standard input.

    Columns are matched to fields by name, regardless of case, accents and punctuation ("First Name", "E-mail"). The name of
    a column can be the code of a field (such as first_name) or the label of a workspace field. Common names in English, German,
    French, Spanish, Portuguese, Dutch, Italian, Polish and Czech also match. Exports of Apollo, Google Contacts, HubSpot, Outlook
    and Salesforce are recognised. If a column matches no field, nothing is sent, and the error shows the --map options to add.
    With --ignore-unknown, such a column is skipped instead. A column name that may mean several fields is ambiguous, and always
    needs --map.

    The whole file is checked before the first row is sent. By default, the checks only print warnings: the rows are sent, and the
    service accepts or rejects them. With --check error, rows with invalid values are rejected instead of sent. With --check
    cells=off, texts such as NULL and #N/A are sent as they are.

    With --journal you can resume a run after a crash, Ctrl-C or exit code 75: run the same command with --resume to process the
    remaining rows. Every row gets exactly one outcome. After the first Ctrl-C, the import waits up to 30 seconds for requests in
    flight, or one second if the run is paused. The second Ctrl-C cancels these requests. Use one journal per file: resuming with
    a file that has other rows is an error. If the run in the journal is finished, --resume prints its results again.

    With --ledger, only new, changed and uncertain rows are sent. The ledger remembers every run, so run the same command every
    night, and after a crash. With --dry-run, the command only counts what it would send; --results then shows what the ledger
    knows about each row, such as its contact id.

    With --dask, the input is divided into parts, and the workers of a Dask cluster import them. Set OUTREACH_OWNER_KEY in the
    environment of the workers. To resume after a crash, run the same command again. Without --rate, the total rate of all workers
    starts at 10 requests per second, and adapts to the service's limit.

    \b
    outreach-async import 'lake/*.parquet' --journal s3://bucket/june \\
      --dask tcp://host:8786
    """,
    f"""
FILE PATH|URL
--duplicates skip|overwrite|update_missing_fields = skip
    Policy for e-mails that are already in the workspace.
--campaign ID
    Add the contacts to this campaign.
--strict/--no-strict
    Let the service validate the standard fields.
--concurrency INTEGER = 64
    Maximum number of concurrent requests.
--repeats serial|error|first|last|coalesce = serial
    Policy for duplicates within the file; first, last and coalesce need --journal.
--journal PATH|URL
    Record the run in this file, or at this URL of an object store (s3://bucket/prefix), so that it can be resumed.
--ledger PATH|URL
    Send only new, changed and uncertain rows, according to this file or object store, which remembers every run. Needs
    --duplicates overwrite or update_missing_fields, or --changed ignore.
--max-age AGE
    With --ledger, also send rows that were last sent this long ago, such as 30d.
--changed send|ignore = send
    With --ledger: send changed rows, or ignore them and send only new ones.
--resume
    Resume the run in --journal. If the journal does not exist, start a new run.
--earlier known|unknown = known
    With 'unknown', the run continues even if the journal was damaged or lost; every row without an outcome counts as possibly
    sent.{_RESULTS}
--dry-run
    Only check the file, without creating contacts. To map columns, the command may read the workspace's fields.{_MAPPING}
--save-mapping >FILE
    Write the column mapping to this TOML file.{_FORCE}
--check [CHECK=]error|warn|off...
    Level of all checks, or of a single check ({", ".join(_CHECKS)}); repeatable.  [default: warn]
--dask ADDRESS
    Import on a Dask cluster, or with 'local' on one of this machine. FILE may be a URL or a quoted pattern; --journal must be a
    URL. Workers need the owner key.{_INPUT}""",
)
_declare(
    "mcp",
    "commands.assisting.mcp",
    (*_CONNECTION, "workspaces", "owner_key"),
    """Run an MCP server for assistants over stdin and stdout.

    Assistants that support the Model Context Protocol start this command themselves: add it to their configuration. The tools
    list campaigns, steps, mailboxes and fields, run audits and briefs, explain rules, and check rows before an import. They read
    only the workspaces of --workspace and --allow-writes, but the steps of any campaign.

    With --allow-writes ID, an assistant can also create contacts in that workspace, at most 50 per call. A person must confirm
    every call, and fields are never overwritten. The option requires an owner key, and an assistant that supports elicitation.

    With --http, any number of assistants use one server. Set OUTREACH_MCP_TOKEN to a secret that they send as a bearer token.
    Without it, the server listens on loopback only, and does not accept --allow-writes.
    """,
    """
--allow-writes NAME|ID...
    Workspace in which contacts may be created, after a person has confirmed; repeatable.  [default: none]
--deadline SECONDS = 50
    Time limit of a call. Many assistants give up after a minute.
--history FILE
    File of 'brief --history', which is only read. The tool 'brief' shows the changes since its last audit, and the tool 'history'
    its figures.
--http
    Serve over HTTP at /mcp, instead of stdin and stdout; see below.
--host ADDRESS = 127.0.0.1
    Address or name for --http, as in the URL of clients.
--port PORT = 8000
    Port to listen on with --http.""",
)
_declare(
    "report",
    "commands.reporting.report",
    ("as_json",),
    """Show the progress and results of the run in JOURNAL. The run may still be in progress. Nothing is sent or changed.

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix. For an import in parts, pass the
    folder of the journals: the report adds up all parts that have started. --uncertain, --rejects and --results then read the
    files of the plan.

    JOURNAL may also be a ledger: the report then shows its contacts and its last runs. With --results and --input, it writes what
    the ledger knows about each row of a file, such as its contact id. Pass the options of the import that map its columns.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 not finished, can be
    resumed.
    """,
    f"""
JOURNAL PATH|URL
--uncertain
    List the rows whose outcome is uncertain.
--input FILE
    Input file of the run. With --uncertain, it provides line numbers and e-mails. Default for --rejects and --results: the path
    in the journal. An import in parts records its files, and a ledger does not.{_RESULTS}{_MAPPING}
--campaign ID
    With a ledger: campaign of the rows of --input, if they do not name theirs.
--workspace ID
    With a ledger: workspace of the rows of --input, if they do not name theirs.{_FORCE}{_INPUT}""",
)
_declare(
    "serve",
    "commands.serving.serve",
    ("as_json", "verbose"),
    """Serve the embedded service over HTTP until interrupted.

    The command prints shell commands that export the base URL, a workspace and an owner key as environment variables. Paste
    these commands into another shell to use the service. With --json, the command prints the values and a campaign id as one
    JSON object.

    The control plane under /_fake/ is an HTTP API that resets the service, seeds data, injects faults, changes the behaviour and
    moves the clock, and opens sandboxes for parallel tests. The OpenAPI 3.1 document of all this is at /_fake/openapi.json.
    """,
    f"""
--host ADDRESS = 127.0.0.1
    Address to listen on.
--port PORT|0 = 0
    Port to listen on; 0 picks a free port.
--world FILE
    JSON file with the initial data; by default, the sample data of the command 'demo'.
--seed INTEGER = 7
    Seed for generated data.
--behaviour PRESET|FILE = documented
    Preset ({", ".join(_PRESETS)}) or TOML file for behaviour that the API documentation does not specify.
--control-host NAME...
    Host name to accept in requests to the control plane, besides localhost and IP addresses; repeatable. If --host is not a
    loopback address, the control plane is available only with this option.""",
)
_declare(
    "steps",
    "commands.lists.steps",
    (*_CONNECTION, "as_json"),
    """List the steps of a campaign with their statistics.

    CAMPAIGN is the id of a campaign, as printed by the command 'campaigns'.
    """,
    f"CAMPAIGN CAMPAIGN{_LIST}",
)
