"""The commands `audit` and `brief`: audit workspaces, and print a full report or the changes since the last brief."""

from __future__ import annotations

import json
import sqlite3
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from difflib import get_close_matches
from functools import partial
from operator import ne
from pathlib import Path
from secrets import token_hex
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any, Final, TypeVar

import anyio
import attrs
import click
import msgspec

from outreach_async import audit as auditing
from outreach_async._cli import files
from outreach_async._cli.connection import open_client, workspaces_of
from outreach_async._cli.output import Screen, follow_progress, show_current, show_progress
from outreach_async._cli.posting import PostError, post
from outreach_async._cli.process import NOT_DELIVERED, OK, run_async
from outreach_async._cli.values import FAKE, Options
from outreach_async._files.atomic import atomic_write
from outreach_async._service.responses import parse_date
from outreach_async._service.validation import require_seconds
from outreach_async.audit._prometheus import require_client, write_prometheus
from outreach_async.audit._run import MAX_CLOCK_DIFFERENCE
from outreach_async.audit.history import History, Readings
from outreach_async.audit.reports import (
    BRIEF_WRITERS,
    SUFFIXES,
    WRITERS,
    brief_schema,
    format_of,
    has_brief_format,
    has_format,
    iterate,
    schema,
    write_brief,
)
from outreach_async.audit.reports._document import AUDIT_TITLE, BRIEF_TITLE
from outreach_async.audit.reports._html_page import load_templates
from outreach_async.audit.reports._summary import format_changes, format_counts, format_headline, summarize
from outreach_async.audit.reports._text import StyledReport
from outreach_async.audit.reports._wording import format_count
from outreach_async.audit.reports.brief import Brief, build_brief
from outreach_async.audit.reports.folder import name_pages, render_folder
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport._secret import Secret

T = TypeVar("T", bound=Callable[..., Any])

_MAX_SUGGESTED: Final = 3
_TIME_DEADLINE: Final = 10.0  # seconds to ask for the time of a service
_ALL_RULES: Final = "all"
"""Value of `--explain` if no rule is given."""


def _list_suffixes(known: Collection[str]) -> str:
    """Return the file suffixes of the given formats, separated by commas."""
    return ", ".join(suffix for suffix, form in SUFFIXES.items() if form in known)


def audit(
    *,
    options: Options,
    fail_on: str,
    campaigns: bool,
    policy: Path | None,
    earlier: tuple[Path, ...],
    history: Path | None,
    no_append: bool,
    outputs: tuple[Path, ...],
    prometheus: Path | None,
    folder: Path | None,
    force: bool,
    deadline: float | None,
    form: str | None,
    explain: str | None,
    as_schema: bool,
) -> int:
    """Check every mailbox of the workspaces for problems. The report lists each problem with its cause and remedy."""
    screen = Screen.of(as_json=options.as_json or (form == "json" and not outputs), quiet=options.quiet)
    if as_schema:
        return _print_result(screen, json.dumps(schema(), indent=2), schema())
    chosen = _load_policy(policy)
    if explain is not None:
        return _explain(screen, explain, chosen)
    formats = _choose_formats(outputs, form, WRITERS)
    existing = [path for path in earlier if path.exists()]
    files.require_writable(
        files.FileUse.for_reading("--policy", policy),
        *(files.FileUse.for_reading("--compare", path) for path in existing),
        files.FileUse.for_journal("--history", history, written=not no_append),
        *(files.FileUse.for_writing("--output", path, partial(has_format, chosen_form)) for path, chosen_form in formats),
        files.FileUse.for_writing("--prometheus", prometheus, partial(has_format, "prometheus")),
        *_folder_uses(folder, options),
        force=force,
    )
    if prometheus or "prometheus" in {form, *dict(formats).values()}:
        require_client()
    reports = [load_report("--compare", path) for path in existing]
    for path in earlier:
        if path not in existing:
            screen.warn(f"--compare: {path} does not exist; skipping it (expected on the first run of a daily audit)")
    print_format = None if outputs else _choose_print_format(form, screen)
    store = open_history(options, history)

    async def run_audit() -> int:
        readings = Readings() if store else None  # takes 600 bytes for each mailbox
        parts: list[auditing.Report] = []
        about = {"policy": chosen, "campaigns": campaigns, "deadline": deadline, "readings": readings}
        read = await _audit(options, screen, parts if folder else None, **about)
        baseline = store.baseline(read.workspaces) if store and not reports else None
        before = [baseline] if baseline else reports
        report = read.since(*before) if before else read
        if prometheus:
            with files.explain_write_errors("--prometheus", prometheus):
                write_prometheus(report, prometheus)
        shows_past = folder or "html" in {print_format, *dict(formats).values()}
        past = _read_past(store, read, readings) if store and readings and shows_past else {}
        pages = _render_folder(folder, report, parts, past) if folder else {}
        _output(screen, report, dict(formats), print_format, folder=pages, past=past)
        if readings and not no_append:
            _append(screen, store, read, readings)
        return report.exit_code(fail_on)

    return run_async(run_audit)


def open_history(options: Options, path: Path | None) -> History | None:
    """Check the file of `--history`, before anything is sent."""
    if path is None:
        return None
    try:
        return History(path, address=options.base_url)
    except InvalidRequest as error:
        raise click.UsageError(f"--{error}") from error


def _read_past(store: History, report: auditing.Report, readings: Readings) -> dict[str, Any]:
    """Return what pages show of the history, as it will be when this audit is appended, which happens after the output."""
    with TemporaryDirectory() as folder:
        copy = History(Path(folder) / "history.db")
        if store.exists:
            with closing(sqlite3.connect(store.path)) as source, closing(sqlite3.connect(copy.path)) as target:
                source.backup(target)
        copy.append(report, readings)
        days = [day for kind in ("workspace", "campaign") for day in copy.daily(kind, workspaces=report.workspaces)]
        return {"days": days, "opened": copy.opened(report.workspaces)}


def _append(screen: Screen, store: History | None, report: auditing.Report, readings: Readings) -> None:
    # The history is written last: if the report could not be printed, the next one must show these changes again.
    if store is not None and not store.append(report, readings):
        text = "has a later audit of these workspaces; nothing was appended: check the clock, or run the command again"
        screen.warn(f"--history: {store.path} {text}")


def _folder_uses(folder: Path | None, options: Options) -> Iterator[Iterator[files.FileUse]]:
    """Create the folder of `--output-folder`, and yield the files to write into it."""
    if folder is None:
        return
    load_templates()  # raises an error if the extra is missing
    if not folder.parent.is_dir():
        raise click.UsageError(f"--output-folder {folder}: the folder {str(folder.parent)!r} does not exist; create it first.")
    with files.explain_write_errors("--output-folder", folder):
        folder.mkdir(exist_ok=True)
    yield files.FileUse.for_writing("--output-folder", folder / "index.html", partial(has_format, "html"))
    for stem in name_pages(workspaces_of(options), options.config.names).values():
        for suffix, form in ((".html", "html"), (".json", "json")):
            yield files.FileUse.for_writing("--output-folder", folder / f"{stem}{suffix}", partial(has_format, form))


def _render_folder(
    folder: Path, whole: auditing.Report, parts: Sequence[auditing.Report], past: Mapping[str, Any]
) -> dict[Path, str]:
    """Return the files of `--output-folder`. Each workspace is compared with the JSON report that its new one replaces."""
    stems = name_pages(whole.workspaces, whole.names)
    compared = []
    for part in parts:
        path = folder / f"{stems[part.workspaces[0]]}.json"
        earlier = load_report("--output-folder", path) if path.exists() else None
        # A report that covers other workspaces too would add their figures to the page.
        compared.append(part.since(earlier) if earlier and earlier.workspaces == part.workspaces else part)
    return {folder / name: text for name, text in render_folder(whole, compared, **past).items()}


def _output(
    screen: Screen,
    view: auditing.Report | Brief,
    formats: dict[Path, str],
    print_format: str | None,
    *,
    folder: Mapping[Path, str] = MappingProxyType({}),
    past: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Write a report or a brief to files, or print it if there are no files. `folder` has the files of `--output-folder`."""
    for path, form in formats.items():
        with files.explain_write_errors("--output", path):
            atomic_write(path, _render(view, form, past))
    for path, text in folder.items():
        with files.explain_write_errors("--output-folder", path):
            atomic_write(path, text)
    if formats or folder:
        title, summary = (BRIEF_TITLE, view) if isinstance(view, Brief) else (AUDIT_TITLE, summarize(view))
        screen.print_line(format_headline(title, summary), "bold")
        changes = [format_changes(summary)] if summary.changes or isinstance(view, Brief) else []
        for line in (summary.verdict, f"Findings: {format_counts(summary.counts)}.", *changes):
            screen.print_line(line)
        for path in formats:
            screen.print_line(f"Written: {path}")
        for path in list(folder)[:1]:
            screen.print_line(f"Written: {path} and {format_count(len(folder) // 2, 'page')} of workspaces")
    elif print_format is not None:
        sys.stdout.writelines(_render(view, print_format, past))
    else:
        show(screen, view)
    if screen.as_json:
        screen.print_result(view.to_dict())
    sys.stdout.flush()  # raises an error for a broken pipe before the --history file is changed


def _render(view: auditing.Report | Brief, form: str, past: Mapping[str, Any] = MappingProxyType({})) -> Iterable[str]:
    return [write_brief(view, form, **past)] if isinstance(view, Brief) else iterate(view, form, **past)


def show(screen: Screen, view: auditing.Report | Brief) -> None:
    """Print a report or a brief in human-readable form; with `--json`, print nothing."""
    if screen.console:
        screen.console.print(StyledReport(view))
    elif not screen.as_json:
        screen.print_lines("".join(_render(view, "terminal")))


def _explain(screen: Screen, name: str, policy: auditing.Policy) -> int:
    """Print the description of a rule, or a table of all rules."""
    if name == _ALL_RULES:
        return _list_rules(screen, policy)
    rule = name.strip().upper()
    if rule not in auditing.CATALOGUE:
        near = get_close_matches(rule, auditing.CATALOGUE, n=len(auditing.CATALOGUE))
        near.sort(key=lambda id_: ([*map(ne, rule, id_)], id_))  # ids that differ only in the last digit are about the same topic
        meant = f"did you mean {', '.join(near[:_MAX_SUGGESTED])}? " if near else ""
        raise InvalidRequest(f"--explain: unknown rule {name!r}; {meant}'audit --explain' lists all rules")
    text = auditing.explain(rule, policy)
    return _print_result(screen, text, {"rule": rule, "explanation": text})


def _list_rules(screen: Screen, policy: auditing.Policy) -> int:
    rules = [policy.rule(name) for name in sorted(auditing.CATALOGUE)]
    off = set(policy.used.off)
    screen.print_table(
        ("rule", "severity", "title"),
        [(rule.id, "off" if rule.id in off else rule.severity_range, rule.title) for rule in rules],
    )
    screen.print_footer("audit --explain RULE describes a rule.")
    screen.print_result(
        {
            "rules": [
                {
                    "rule": rule.id,
                    "severities": [each.value for each in rule.severities],
                    "title": rule.title,
                    "off": rule.id in off,
                }
                for rule in rules
            ]
        }
    )
    return OK


def _print_result(screen: Screen, text: str, value: dict[str, Any]) -> int:
    screen.print_lines(text)
    screen.print_result(value)
    return OK


def _load_policy(path: Path | None) -> auditing.Policy:
    """Read the policy of `--policy`, or return the default policy if `path` is `None`."""
    if path is None:
        return auditing.Policy.default()
    with files.explain_read_errors("--policy", path):
        return auditing.Policy.load(path)


def load_report(flag: str, path: Path) -> auditing.Report:
    """Read the JSON report of an earlier audit."""
    with files.explain_read_errors(flag, path):
        text = path.read_bytes()
    try:
        return auditing.Report.from_dict(msgspec.json.decode(text))
    except InvalidRequest as error:
        raise click.UsageError(f"{flag} {path}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"{flag} {path}: not a JSON report; pass one written by 'audit --json'.") from error


def _choose_formats(paths: Sequence[Path], form: str | None, known: Collection[str]) -> list[tuple[Path, str]]:
    """Return each `--output` file with its format, which `--format` or the suffix of the file determines."""
    if form and len(paths) > 1:
        raise click.UsageError("--format: expected one --output, got several; omit --format, because each suffix sets a format.")
    for path in paths:
        files.require_folder("--output", path)
        suffix = path.suffix.lower()
        if form and suffix in SUFFIXES and form != format_of(path.name) and (form, suffix) != ("slack", ".json"):
            text = f"--output {path} and --format {form} name different formats"
            raise click.UsageError(f"{text}; omit --format, or pass another --output.")
        if form is None and SUFFIXES.get(suffix) not in known:
            suffixes = _list_suffixes(known)
            raise click.UsageError(f"--output {path}: expected a name ending in one of {suffixes}; rename it, or pass --format.")
    return [(path, form or format_of(path.name)) for path in paths]


def _choose_print_format(form: str | None, screen: Screen) -> str | None:
    """Return the requested format for stdout; `None` for the default format."""
    if form in {None, "json"}:
        return None
    if screen.as_json:
        raise click.UsageError(f"--format {form}: conflicts with --json; remove one of them, or add --output FILE.")
    return form


async def _audit(options: Options, screen: Screen, parts: list[auditing.Report] | None = None, **about: Any) -> auditing.Report:
    """Audit the workspaces of the options, show the progress on stderr, and return the report.

    `parts` receives a report for each workspace.
    """
    workspaces = workspaces_of(options)
    shared = [workspace for workspace in workspaces if workspace not in options.own_rates]
    if len(workspaces) > 1 and len(shared) < len(workspaces):
        merged, separate = await _audit_apart(
            options, screen, [shared, *([each] for each in workspaces if each not in shared)], **about
        )
        if parts is not None:
            parts += separate
        return merged
    async with open_client(options, workspace=workspaces[0]) as client:
        run = auditing.stream(client, workspaces, clock=clock_of(options), names=options.config.names, **about)
        with show_progress(screen, "Auditing", len(workspaces), "workspaces") as show_bar:
            # Reading errors become findings, so the iteration raises no error that the group could wrap.
            async with anyio.create_task_group() as group, run as findings:
                group.start_soon(follow_progress, lambda: findings.progress, show_bar, screen.warn)
                async for _ in findings:
                    pass
                show_current(findings.progress, show_bar)
                group.cancel_scope.cancel()
    if parts is not None:
        parts += run.separate()
    return findings.report


async def _audit_apart(
    options: Options, screen: Screen, groups: Iterable[Sequence[str]], *, policy: auditing.Policy, **about: Any
) -> tuple[auditing.Report, list[auditing.Report]]:
    """Audit groups of workspaces, each with a client and a rate of its own. Return one report, and one for each workspace."""
    require_seconds("deadline", about["deadline"])
    workspaces, salt = workspaces_of(options), token_hex()
    at, service_clock = await _find_time(options, workspaces[0])
    found: dict[str, auditing.AuditPart] = {}
    with show_progress(screen, "Auditing", len(workspaces), "workspaces") as show_bar:

        async def audit_group(group: Sequence[str]) -> None:
            async with open_client(options, workspace=group[0]) as client:
                part = await auditing.audit_part(client, group, at=at, salt=salt, policy=policy, **about)
            found.update({each.workspace: attrs.evolve(part, workspaces=(each,)) for each in part.workspaces})
            show_bar(len(found), "")

        async with anyio.create_task_group() as tasks:
            for group in filter(None, groups):
                tasks.start_soon(audit_group, group)

    def merge(parts: Iterable[auditing.AuditPart], spaces: Sequence[str]) -> auditing.Report:
        report = auditing.merge(parts, workspaces=spaces, policy=policy, names=options.config.names)
        return attrs.evolve(report, service_clock=service_clock)

    return merge(found.values(), workspaces), [merge([found[each]], [each]) for each in workspaces]


async def _find_time(options: Options, workspace: str) -> tuple[float, bool]:
    """Return the time of an audit, and whether it is the service's, as one audit with one client would find it."""
    # Only a configuration file sets rates of workspaces, and the embedded service, with a clock of its own, reads none.
    async with open_client(options, workspace=workspace) as client:
        with suppress(OutreachError):  # the audit reports what cannot be read
            response = await client.request("GET", f"/workspaces/{workspace}/all-fields", deadline=_TIME_DEADLINE)
            date = parse_date(response.headers.get("date", ""))
            if date is not None and abs(date - time.time()) > MAX_CLOCK_DIFFERENCE:
                return date, True
    return time.time(), False


def clock_of(options: Options) -> Callable[[], float] | None:
    """Return the clock of an audit of the embedded service, which has a fixed time; `None` for any other service."""
    if options.base_url != FAKE:
        return None
    from outreach_async._cli._demo_world import create_demo_world

    return lambda: create_demo_world().now


def brief(
    *,
    options: Options,
    history: Path | None,
    no_append: bool,
    webhook: Secret | None,
    fail_on: str,
    policy: Path | None,
    outputs: tuple[Path, ...],
    force: bool,
    deadline: float | None,
    form: str | None,
    as_schema: bool,
) -> int:
    """Show open tasks and the changes since the last brief."""
    screen = Screen.of(as_json=options.as_json or (form == "json" and not outputs), quiet=options.quiet)
    if as_schema:
        return _print_result(screen, json.dumps(brief_schema(), indent=2), brief_schema())
    chosen = _load_policy(policy)
    formats = _choose_formats(outputs, form, BRIEF_WRITERS)
    files.require_writable(
        files.FileUse.for_reading("--policy", policy),
        files.FileUse.for_journal("--history", history, written=not no_append),
        *(files.FileUse.for_writing("--output", path, partial(has_brief_format, chosen_form)) for path, chosen_form in formats),
        force=force,
    )
    print_format = None if outputs else _choose_print_format(form, screen)
    store = open_history(options, history)

    async def run_brief() -> int:
        readings = Readings() if store else None
        report = await _audit(options, screen, policy=chosen, campaigns=True, deadline=deadline, readings=readings)
        earlier = store.baseline(report.workspaces) if store else None
        view = build_brief(report, earlier)
        shows_past = "html" in {print_format, *dict(formats).values()}
        past = _read_past(store, report, readings) if store and readings and shows_past else {}
        _output(screen, view, dict(formats), print_format, past=past)
        if webhook and not await _post(screen, webhook, view):
            return NOT_DELIVERED
        if readings and not no_append:
            _append(screen, store, report, readings)
        return (report.since(earlier) if earlier else report).exit_code(fail_on)

    return run_async(run_brief)


async def _post(screen: Screen, webhook: Secret, view: Brief) -> bool:
    """Post a brief, and return whether it was delivered."""
    try:
        await post(webhook, write_brief(view, "slack"))
    except PostError as error:
        screen.warn(f"--post: the brief was not delivered: {error}. It is complete here; run the command again to post it.")
        return False
    screen.print_line("Posted.")
    return True
