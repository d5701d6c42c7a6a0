"""The command `history`: show, export and prune the file that `audit --history` and `brief --history` write."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import click
from click import Choice

from outreach_async._cli.options import (
    ANY_ID,
    EXISTING,
    FOLDER,
    Command,
    SuggestingGroup,
    age,
    earlier,
    force,
    option,
    with_options,
)
from outreach_async._cli.options import date as time_of

if TYPE_CHECKING:
    from outreach_async._cli.values import Options

_DAY: Final = 86_400.0  # seconds
_ALL_DAYS: Final = 100_000
_COLUMNS: Final = (
    *("date", "name", "sent", "opened", "replied", "interested", "bounced", "added", "sent_30days", "bounced_30days", "score"),
    *("stop", "fix", "watch", "action", "note"),
)


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
) -> None:
    """Show the figures of each day, in UTC.

    A figure is empty if it is not known: on the first day, after a campaign was reset, or if a workspace could not be read. If
    days lack a snapshot, the difference is spread over them, and the note says so.
    """
    import attrs

    from outreach_async.audit.history import History

    screen = options.screen()
    found = History(file).daily(kind, subject, workspaces=options.workspaces or None, days=days)
    known = {name for day in found for name, value in attrs.asdict(day).items() if value is not None}
    columns = [name for name in _COLUMNS if name in known | {"note"}]
    rows = []
    for day in found:
        note = f"spread over {day.spread_over} days" if day.spread_over > 1 else ""
        values = {name: round(value, 1) if isinstance(value, float) else value for name, value in attrs.asdict(day).items()}
        rows.append([{**values, "note": note}[name] for name in columns])
    screen.print_table(columns, rows)
    if not found:
        screen.print_line("The history has no such days.")
    screen.print_result({"days": [attrs.asdict(day) for day in found]})


@history.command(cls=Command)
@click.argument("file", type=EXISTING)
@click.argument("folder", type=FOLDER)
@option("--format", "form", type=Choice(["parquet", "csv"]), default="parquet", help="Format of the files.")
@with_options("quiet")
@force
def export(options: Options, *, file: Path, folder: Path, form: Literal["parquet", "csv"], force: bool) -> None:
    """Write each table and each view of the history to a file in FOLDER, which is created if it does not exist."""
    from outreach_async._cli import files
    from outreach_async._cli.messages import note_applied
    from outreach_async._plumbing import open_table, require_module
    from outreach_async.audit.history import History

    if form == "parquet":
        require_module("pyarrow", "outreach_async[parquet]")
    source = History(file)
    with files.explain_write_errors("FOLDER", folder):
        folder.mkdir(parents=True, exist_ok=True)
    with source.tables() as tables:
        paths = {name: folder / f"{name}.{form}" for name in tables}
        if not force and (found := next((each for each in paths.values() if each.exists()), None)):
            remedy = "pass a new folder, or overwrite its files with --force"
            raise click.UsageError(f"FOLDER {folder}: {found.name} exists; {remedy}.")
        for name, (columns, rows) in tables.items():
            listed = list(rows)
            cells = dict(zip(columns, list(zip(*listed, strict=True)) or [()] * len(columns), strict=True))
            kinds = {column: _kind_of(column, values) for column, values in cells.items()}
            with files.explain_write_errors("FOLDER", paths[name]), open_table(paths[name], list(columns), kinds=kinds) as write:
                for row in listed:
                    write(dict(zip(columns, row, strict=True)))
            note_applied(f"Written: {folder}")
            options.screen().print_line(f"Written: {paths[name]}")


def _kind_of(column: str, cells: Sequence[Any]) -> type:
    from outreach_async.audit.history import TEXT_COLUMNS

    known = [cell for cell in cells if cell is not None]
    if any(isinstance(cell, str) for cell in known) or (column in TEXT_COLUMNS and not known):
        return str
    return int if known and all(isinstance(cell, int) for cell in known) else float


@history.command(cls=Command)
@click.argument("file", type=EXISTING)
@option("--keep", type=age, help="Age up to which snapshots are kept, such as 400d.")
@option(
    "--after", type=time_of, help="Day or time in UTC up to which snapshots are kept, such as 2026-03-31 or 2026-03-31T08:00:00Z."
)
@option("--dry-run", is_flag=True, help="Only show what --after would delete.")
@with_options("as_json")
def prune(options: Options, *, file: Path, keep: float | None, after: float | None, dry_run: bool) -> None:
    """Delete snapshots, and make the file smaller.

    With --keep, those that are older than AGE before the last snapshot are deleted, and with --after
    those after DATE, such as those of a clock that was ahead. The command prints each snapshot that it deletes.
    """
    from outreach_async._cli.messages import note_applied
    from outreach_async.audit.history import History
    from outreach_async.audit.reports import format_time
    from outreach_async.errors import format_count

    if (keep is None) == (after is None) or (dry_run and after is None):
        wanted = "--after DATE with --dry-run" if dry_run else "either --keep AGE or --after DATE"
        raise click.UsageError(f"history prune: expected {wanted}; pass, for example, --keep 400d or --after 2026-03-31.")
    if keep is not None and keep < _DAY:
        raise click.UsageError(f"--keep: expected at least a day, got {keep:g} s; pass, for example, 400d.")
    screen, history, before = options.screen(), History(file), file.stat().st_size
    if after is not None:
        with history.tables() as tables:
            columns, rows = tables["snapshots"]
            found = [row for row in (dict(zip(columns, row, strict=True)) for row in rows) if row["at"] > after]
        for row in found:
            counts = format_count(row["mailboxes"], "mailbox"), format_count(row["campaigns"] or 0, "campaign")
            screen.print_line(f"{'Would delete' if dry_run else 'Deleting'} {format_time(row['at'])}: {', '.join(counts)}")
    deleted = len(found) if dry_run else history.prune(keep, after=after)
    size = file.stat().st_size
    if not dry_run:
        text = f"Deleted {deleted:,} snapshots; the file has {size:,} bytes, and had {before:,}."
        note_applied(text)
        screen.print_line(text)
    screen.print_result({"deleted": 0 if dry_run else deleted, "bytes": size})


@click.command("client-report", cls=Command)
@click.argument("file", type=EXISTING, required=False)
@option("--output-folder", type=FOLDER, required=True, metavar="FOLDER", help="Folder of the pages, one for each workspace.")
@option("--since", type=earlier, metavar="WHEN", default="7d", help="Day before the period: 7d, last-monday, month or a date.")
@option("--until", type=earlier, metavar="WHEN", help="Last day of the period, in the same words.  [default: the last audit]")
@option("--title", default="", show_default=False, help="Title of the pages.  [default: the name of the workspace]")
@option("--note", default="", show_default=False, help="Comment on the pages; each line is a paragraph.")
@option("--logo", type=EXISTING, help="PNG, JPEG, SVG or WebP image of at most 200 kB, which becomes a part of the pages.")
@with_options("config", "profile", "workspaces", "as_json", needs_trust=False)  # it sends nothing
@force
def client_report(
    options: Options,
    /,
    *,
    file: Path | None,
    output_folder: Path,
    since: Callable[[float], float],
    until: Callable[[float], float] | None,
    logo: Path | None,
    force: bool,
    **texts: str,
) -> None:
    """Write a page for each client, from a history.

    A page has what was sent, replied and bounced in a period and in as many days before it, and nothing of other clients. It
    prints on one or two sheets. On the first day of a month, the following command reports on the month before:

        outreach-async client-report history.db --output-folder reports --until month --since month
    """
    from outreach_async._cli import auditing, files
    from outreach_async._cli.messages import note_applied
    from outreach_async._plumbing import atomic_write
    from outreach_async.audit.history import History
    from outreach_async.audit.reports import has_format, render_clients
    from outreach_async.errors import InvalidRequest

    screen, remedy = options.screen(), "run 'outreach-async brief --history history.db' each day, which writes it"
    if file is None:
        raise click.UsageError(f"FILE: missing; a client report needs a history: {remedy}.")
    history = History(file)
    if not (known := history.daily("campaign", days=_ALL_DAYS)):
        raise click.UsageError(f"FILE {file}: has no figures of campaigns; {remedy}.")
    oldest, newest = known[0].date, history.daily("workspace", days=1)[0].date
    at = int(time_of(newest))  # the last second of the day
    end = int(until(at)) if until else at
    if not int(time_of(oldest)) <= end <= at:
        raise click.UsageError(
            f"--until: expected a day from {oldest} to {newest}, which {file} has; pass one of them, or omit it."
        )
    if until is None and time.time() > at + _DAY:
        screen.warn(f"FILE {file}: the last audit is of {newest}, with which the pages end; {remedy}")
    begin = min(max(0, int(since(end)) + _DAY), end + _DAY)  # as far as calendars go
    first, last = (datetime.fromtimestamp(each, UTC).date() for each in (begin, end))
    with files.explain_read_errors("--logo", logo or ""):
        image = logo.read_bytes() if logo else b""
    try:
        pages = render_clients(history, options.workspaces or None, first=first, last=last, logo=image, **texts)
    except InvalidRequest as error:
        name, _, text = str(error).partition(": ")
        raise click.UsageError(f"--{ {'first': 'since', 'workspaces': 'workspace'}.get(name, name) }: {text}") from error
    auditing.make_folder(output_folder)
    paths = {output_folder / name: text for name, text in pages.items()}
    outputs = [use for path in paths for use in files.FileUse.of("--output-folder", path, partial(has_format, "client"))]
    files.require_writable(outputs, files.FileUse.of("FILE", file), files.FileUse.of("--logo", logo), force=force)
    for path, text in paths.items():
        with files.explain_write_errors("--output-folder", path):
            atomic_write(path, text)
        note_applied(f"Written: {path}")
        screen.print_line(f"Written: {path}")
    screen.print_result({"pages": list(map(str, paths))})
