"""The commands `import` and `report`, which share the options that say how a file is read."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click import Choice

from outreach_async._cli.options import (
    ANY_ID,
    FILE,
    INPUT,
    LOCATION,
    OUTPUT,
    Command,
    age,
    all_of,
    force,
    gate,
    limit,
    option,
    share,
    with_options,
    writing,
)

if TYPE_CHECKING:
    from typing import Unpack

    from outreach_async._cli.settings import ImportSettings, ReportSettings
    from outreach_async._cli.values import Options


_reading: Final = partial(option, section="Input")
_mapping: Final = partial(option, section="Mapping")
_checking: Final = partial(option, section="Values and checks")
_choosing: Final = partial(option, section="Which rows")
_sending: Final = partial(option, section="Sending")
_recording: Final = partial(option, section="Recording and results")

_input_options: Final = all_of(
    _reading("--format", "form", type=Choice(["csv", "jsonl", "parquet", "xlsx"]), help="File format.  [default: detected]"),
    _reading(
        "--encoding",
        metavar="NAME",
        help="Encoding of a CSV or JSON Lines file, such as cp1252.  [default: that of the byte order mark, or UTF-8]",
    ),
    _reading("--sheet", metavar="NAME", help="Sheet of a workbook.  [default: the first visible one]"),
    _reading(
        "--header-row", type=click.IntRange(1), metavar="LINE", help="Line or row of the column names.  [default: the first]"
    ),
    _reading(
        "--delimiter",
        metavar="CHAR",
        help="Character between the cells of a CSV file, or comma, semicolon, tab, pipe, colon or space.  [default: detected]",
    ),
    _reading(
        "--short-rows",
        type=Choice(["reject", "pad"]),
        help=(
            "What to do with a row of a CSV file that has fewer cells than the header: pad adds empty cells, which clear "
            "no field.  [default: reject]"
        ),
    ),
    _reading(
        "--hidden",
        type=Choice(["send", "skip"]),
        help="What to do with rows of an XLSX workbook that are hidden, for example by a filter.  [default: send, with a note]",
    ),
)
_mapping_options: Final = all_of(
    _mapping(
        "--map",
        "maps",
        metavar="'COLUMN=CODE'",
        multiple=True,
        help=(
            "Send a column as the field with this code; the code 'ignore' skips the column, and opt_out, opt_in and "
            "email_status tell who must not be written to; repeatable."
        ),
    ),
    _mapping("--mapping", type=FILE, help="Read the column mapping from this TOML file; --map overrides it."),
    _checking(
        "--blank",
        type=Choice(["keep", "clear"]),
        help=(
            "What a blank cell means: keep what the contact has in the service, or clear the field, which needs "
            "--duplicates overwrite.  [default: keep]"
        ),
    ),
    _mapping(
        "--ignore-unknown",
        is_flag=True,
        help="Skip columns that match no field. An ambiguous column, or one that may tell who opted out, is still an error.",
    ),
    _checking(
        "--check",
        "checks",
        metavar="[CHECK=]error|drop|warn|off",
        multiple=True,
        help=(
            "Level of all checks but consent, or of a single check (email, role, typo, country, phone, state, timezone, "
            "date, website, stack_overflow, zip, text, cells, repeat, consent); repeatable. With drop, an invalid value "
            "of an optional field is left out.  [default: warn, consent=error]"
        ),
    ),
)
_result_options: Final = all_of(
    _recording("--rejects", type=OUTPUT, help="CSV file for rejected, not_applied and unknown rows."),
    _recording(
        "--results",
        type=OUTPUT,
        help=(
            "File with the outcome of every row: its line, e-mail, workspace, campaign, status, certainty, possible "
            "outcomes, attempts, contact id, error and remedy. CSV, or JSON Lines or Parquet if the name ends in .jsonl "
            "or .parquet."
        ),
    ),
    _recording(
        "--keep",
        "keeps",
        metavar="COLUMN|all",
        multiple=True,
        help=(
            "Column of the input to copy into --results, after its own columns, so that you can join on it; repeatable. "
            "'all' copies every column. A column with the name of a result, such as id, is called input_id."
        ),
    ),
)


@click.command(
    "import",
    cls=Command,
    examples=(
        "outreach-async import people.csv --dry-run",
        "outreach-async import people.csv --journal run.db --rejects rejects.csv",
        "outreach-async import crm.csv --ledger crm.ledger --duplicates overwrite",
        "outreach-async import people.csv --processes 4 --journal journals",
        "outreach-async import 'lake/*.parquet' --journal s3://bucket/june \\",
        "  --dask tcp://host:8786",
    ),
)
@click.argument("file", type=INPUT)
@_input_options
@_mapping_options
@_mapping(
    "--save-mapping",
    type=OUTPUT,
    help="Write the column mapping to this TOML file. If columns are unknown, a new file has proposals to complete.",
)
@_checking(
    "--findings",
    type=OUTPUT,
    help=(
        "File with every finding of the checks: its line, check, level, field, column, value and message. CSV, or "
        "JSON Lines or Parquet if the name ends in .jsonl or .parquet. With --dry-run, too."
    ),
)
@_checking(
    "--gate",
    is_flag=False,
    flag_value="local",
    type=gate,
    metavar="[=mx|=mx@ADDRESS]",
    help=(
        "Judge all addresses first, and exclude bad ones, which are invalid, have bounced, or are invalid for the verifier of a "
        "column mapped to email_status. With =mx, also those of domains without a mail server: the look-ups show the "
        "domains to the DNS resolver of the system, or to the one at ADDRESS."
    ),
)
@_checking("--bounced", type=FILE, multiple=True, help="With --gate: a file of addresses that have bounced; repeatable.")
@_checking(
    "--max-risk",
    type=share,
    metavar="SHARE",
    help=(
        "With --gate: send nothing, with exit code 3, if more of the rows are risky, such as 3%: bad, disposable or of a "
        "role; --findings lists them."
    ),
)
@_choosing(
    "--duplicates",
    type=Choice(["skip", "overwrite", "update_missing_fields"]),
    default="skip",
    help="Policy for e-mails that are already in the workspace.",
)
@_choosing(
    "--repeats",
    type=Choice(["serial", "error", "first", "last", "coalesce"]),
    default="serial",
    help="Policy for duplicates within the file; first and last need --ledger or --journal, and coalesce needs --journal.",
)
@_choosing(
    "--ledger",
    type=LOCATION,
    help=(
        "Send only new, changed and uncertain rows, according to this file or object store, which remembers every "
        "run. Needs --duplicates overwrite or update_missing_fields, or --changed ignore."
    ),
)
@_choosing("--max-age", type=age, help="With --ledger, also send rows that were last sent this long ago, such as 30d.")
@_choosing(
    "--changed",
    type=Choice(["send", "ignore"]),
    default="send",
    help="With --ledger: send changed rows, or ignore them and send only new ones.",
)
@_choosing(
    "--hold",
    type=age,
    help="With --ledger: exclude people to whom the ledger has sent within this time, such as 90d, for another campaign.",
)
@_choosing(
    "--held-by",
    metavar="LEDGER|WORKSPACE|GROUP",
    multiple=True,
    help=(
        "With --hold: also exclude the people to whom this ledger has sent, or the ledgers of these workspaces of the "
        "configuration file, or of 'all'; repeatable."
    ),
)
@_choosing(
    "--hold-domains",
    is_flag=True,
    help="With --hold: a person holds everybody with the domain, unless it is one of a provider, such as gmail.com.",
)
@_choosing(
    "--exclude",
    type=FILE,
    multiple=True,
    help=(
        "Exclude the people of a list: a table with e-mails or domains, or text with one of them a line; repeatable. The "
        "configuration file can name lists for all imports."
    ),
)
@_sending("--campaign", metavar="ID|NAME", help="Add the contacts to this campaign. The id or the exact name of a campaign.")
@_sending("--strict/--no-strict", default=True, help="Let the service validate the standard fields.")
@_sending("--concurrency", type=int, default=64, help="Maximum number of concurrent requests.")
@_sending(
    "--stop-after-rejects",
    type=limit,
    metavar="N|never",
    default=50,
    help=(
        "Stop if the service rejects the first N rows that it answers. Rows that are not sent do not count; nor, with"
        " --ledger, do rows that the service has rejected before with the same values."
    ),
)
@_sending(
    "--dry-run",
    is_flag=True,
    help="Only check the file, without creating contacts. To map columns, the command may read the workspace's fields.",
)
@_sending(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help=(
        "Import with N processes of this machine, if one CPU is not enough. FILE may be a quoted pattern; --journal must be "
        "a folder. Not with --ledger."
    ),
)
@_sending(
    "--dask",
    metavar="ADDRESS",
    help=(
        "Import on a Dask cluster, or with 'local' on one of this machine. FILE may be a URL or a quoted pattern; "
        "--journal must be a URL. Workers need the owner key."
    ),
)
@_recording(
    "--journal",
    type=LOCATION,
    help="Record the run in this file, or at this URL of an object store (s3://bucket/prefix), so that it can be resumed.",
)
@_recording("--resume", is_flag=True, help="Accept a finished run in --journal, too, and print its results again.")
@_recording(
    "--earlier",
    type=Choice(["known", "unknown"]),
    default="known",
    help=(
        "With 'unknown', the run continues even if the journal was damaged or lost; every row without an outcome "
        "counts as possibly sent."
    ),
)
@_result_options
@writing
@force
def import_(options: Options, *, file: Path | str, **settings: Unpack[ImportSettings]) -> int:
    """Create a contact for each row of a file. The file is CSV, JSON Lines, Parquet or a workbook; '-' is standard input.

    Columns are matched by name to the codes and labels of fields, regardless of case, accents and punctuation. Common names
    in English, German, French, Spanish, Portuguese, Dutch, Italian, Polish and Czech match, too, and so do exports of Apollo,
    Evaboot, Google Contacts, HubSpot, Klaviyo, LinkedIn, Mailchimp, Meta lead forms, Outlook, PhantomBuster, Pipedrive,
    Salesforce, Shopify, SuiteCRM and ZoomInfo. If a column matches no field, nothing is sent, and the error shows the --map
    options to add. With --ignore-unknown, such a column is skipped. An ambiguous name always needs --map. If several columns
    map to one field, the first that has a value counts in each row, in the order of the options.

    The whole file is checked before the first row is sent. By default, the checks only print warnings, and the service decides.
    Findings and failed rows are counted by reason, with three examples, and fit on a screen; --findings and --rejects have all.
    At the end, the command names the changes of options or of the file with which most of the failed rows are imported.

    With --check error, rows with invalid values are rejected instead of sent; with --check drop, invalid values of optional
    fields are left out. A value that is lost, such as a phone number 4.4E+11, is always left out, unless --check phone=error
    rejects its row. With --check cells=off, every cell is sent as it is.

    A column such as Unsubscribed, Accepts Marketing or Email Status says who must not be written to. The rows of these people are
    excluded, and so are all other rows with their e-mails. To name such a column, map it to opt_out, opt_in or email_status. Only
    --check consent=warn or --check consent=off sends these rows. With --exclude, the people of a list are excluded, too: those
    with an e-mail of the list as the service compares it, regardless of case, or with a domain of the list.

    A blank cell is not sent, so the contact keeps what it has in the service, also if the cell had a value in an earlier
    import. With --blank clear, blank cells clear their fields. A blank cell is empty, has only blanks, or has a text that
    stands for a missing value, such as NULL; in a Parquet file and in JSON Lines also null. A damaged value, such as #REF!,
    is left out, and never clears a field; nor does a key that an object of JSON Lines does not have.

    With --journal, the same command continues after a crash, Ctrl-C or exit code 75, and processes the remaining rows. Every row
    gets exactly one outcome. After the first Ctrl-C, the import waits up to 30 seconds for requests in flight, or one second if
    the run is paused. The second Ctrl-C cancels these requests. Use one journal per file: continuing with a file that has other
    rows is an error. A finished run is refused, unless --resume is given, which prints its results again.

    With --ledger, only new, changed and uncertain rows are sent. The ledger remembers every run, so run the same command every
    night, and after a crash. With --dry-run, the command only counts what it would send; --results then shows what the ledger
    knows about each row, such as its contact id.

    With --processes, CSV and JSON Lines files are divided into parts, and each process imports one part at a time. --rate and
    --concurrency apply to all processes together. To resume after a crash, Ctrl-C or exit code 75, run the same command again,
    also with another number of processes. Parquet files are divided into their row groups. A workbook, a compressed file and
    UTF-16 text are not divided: with a single file of this kind, the command is refused.

    With --dask, the input is divided into parts, and the workers of a Dask cluster import them. Set OUTREACH_OWNER_KEY in the
    environment of the workers. To resume after a crash, run the same command again. Without --rate, the total rate of all
    workers adapts to the service's limit; on a cluster of other machines, it starts at 10 requests per second. All files are
    read and checked on this machine before anything is sent, so --dry-run needs no workers. A row of any file excludes all
    rows of its person. All options mean what they mean on one machine, but --concurrency applies to each worker, and
    --ledger, --max-age, --changed and --hold are refused.
    """
    if settings["dask"] is not None or settings["processes"] is not None:
        from outreach_async._cli import import_parts

        return import_parts.import_in_parts(options, file, settings)
    from outreach_async._cli import importing

    return importing.import_(options, file, settings)


@click.command(cls=Command)
@click.argument("journal", type=LOCATION)
@option("--uncertain", is_flag=True, help="List the rows whose outcome is uncertain.")
@option(
    "--input",
    "source",
    type=FILE,
    help=(
        "Input file of the run. With --uncertain, it provides line numbers and e-mails. Default for --rejects and "
        "--results: the path in the journal. An import in parts records its files, and a ledger does not."
    ),
)
@option(
    "--campaign", type=ANY_ID, metavar="ID", help="With a ledger: campaign of the rows of --input, if they do not name theirs."
)
@option(
    "--workspace", type=ANY_ID, metavar="ID", help="With a ledger: workspace of the rows of --input, if they do not name theirs."
)
@_result_options
@_mapping_options
@_input_options
@with_options("as_json")
@force
def report(options: Options, *, journal: Path | str, **settings: Unpack[ReportSettings]) -> int:
    """Show the progress and results of the run in JOURNAL. The run may still be in progress. Nothing is sent or changed.

    JOURNAL is the path of a file, or the URL of an object journal, such as s3://bucket/prefix. For an import in parts, pass the
    folder of the journals: the report adds up all parts that have started. --uncertain, --rejects and --results then read the
    files of the plan.

    JOURNAL may also be a ledger: the report then shows its contacts and its last runs. With --results and --input, it writes
    what the ledger knows about each row of a file, such as its contact id. Pass the options of the import that map its
    columns, --blank and --check.

    Exit codes: 0 finished, every row succeeded; 3 finished with rejected, not_applied or unknown rows; 75 suspended, so that
    the same import continues later. Any other unfinished run is 3.
    """
    from outreach_async._cli import reporting

    return reporting.report(options, journal, settings)
