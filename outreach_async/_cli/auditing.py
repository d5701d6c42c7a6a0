"""What the commands `audit` and `brief` do: audit workspaces, and print, write or post a report."""

from __future__ import annotations

import json
import sqlite3
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import anyio
import attrs
import click
import msgspec

from outreach_async import audit as auditing
from outreach_async._cli import files
from outreach_async._cli.connection import open_each, workspaces_of
from outreach_async._cli.messages import note_applied
from outreach_async._cli.output import Screen, follow_progress, show_current, show_progress
from outreach_async._cli.process import NOT_DELIVERED, OK
from outreach_async._cli.values import FAKE, Options
from outreach_async._plumbing import Secret, atomic_write
from outreach_async.audit.history import History, HistoryError, Readings
from outreach_async.audit.plan import WorkspacePlan, build_plan
from outreach_async.audit.policy import require_rule
from outreach_async.audit.reports import (
    BRIEF_FORMATS,
    REPORT_FORMATS,
    SUFFIXES,
    StyledReport,
    format_of,
    format_time,
    has_format,
    iterate,
    name_pages,
    render_folder,
    require_extra,
    summarize,
)
from outreach_async.audit.reports.brief import Brief, ImportBrief, build_brief, read_imports
from outreach_async.errors import InvalidRequest, OutreachError, format_count
from outreach_async.store import Store

if TYPE_CHECKING:
    from outreach_async._cli.settings import AuditSettings

_ALL_RULES: Final = "all"
"""Value of `--explain` if no rule is given."""


@attrs.define
class AuditTask:
    """An audit or a brief: its options, and what both do with a report."""

    options: Options
    settings: AuditSettings
    is_brief: bool = attrs.field(kw_only=True)
    link: str | None = attrs.field(kw_only=True, default=None)
    screen: Screen = attrs.field(init=False)
    policy: auditing.Policy = attrs.field(init=False)
    store: History | None = attrs.field(init=False, default=None)
    readings: Readings | None = attrs.field(init=False, default=None)  # they take 600 bytes for each mailbox
    imports: list[ImportBrief] = attrs.field(init=False, factory=list)
    print_format: str | None = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        path = self.settings["policy"]
        self.screen = self.options.screen(as_json=self.form == "json" and not self.outputs)
        self.policy = auditing.Policy.default()
        if path is not None:
            with files.explain_read_errors("--policy", path):
                self.policy = auditing.Policy.load(path)

    @property
    def form(self) -> str | None:
        return self.settings["form"]

    @property
    def outputs(self) -> tuple[Path, ...]:
        return self.settings["outputs"]

    @property
    def formats(self) -> set[str | None]:
        return {self.print_format, *map(self._format_of, self.outputs)}

    def require_writable(self, *uses: Sequence[files.FileUse]) -> None:
        """Check the options before anything is sent."""
        known, looks_like = (BRIEF_FORMATS, partial(has_format, model=Brief)) if self.is_brief else (REPORT_FORMATS, has_format)
        _require_formats(self.outputs, self.form, known)
        files.require_writable(
            files.FileUse.of("--policy", self.settings["policy"]),
            *uses,
            files.FileUse.of_journal("--history", self.settings["history"], written=not self.settings["no_append"]),
            *(files.FileUse.of("--output", path, partial(looks_like, self._format_of(path))) for path in self.outputs),
            force=self.settings["force"],
        )
        if not self.outputs and self.form not in {None, "json"}:
            if self.screen.as_json:
                text = f"--format {self.form}: conflicts with --json; remove one of them, or add --output FILE."
                raise click.UsageError(text)
            self.print_format = self.form
        if self.settings["since"] and self.settings["history"] is None:
            raise click.UsageError("--since: needs the audits of a history; pass --history FILE.")
        self.store = open_history(self.options, self.settings["history"])
        self.imports = self._read_imports()
        self.readings = Readings() if self.store or self.is_brief else None

    def _read_imports(self) -> list[ImportBrief]:
        given, found = self.settings["ledgers"], list[ImportBrief]()
        for each in given:
            if not Store(each).exists():
                raise click.UsageError(f"--ledger: {each} does not exist; pass the path or URL of a ledger.")
        chosen = {*workspaces_of(self.options)} if self.options.config.workspaces else ()
        for each in given or [own.ledger for own in self.options.config.workspaces if own.ledger and own.id in chosen]:
            try:
                found += read_imports([Store(each)])
            except OutreachError as error:  # the ledger of one client must not stop the brief of all
                self.screen.warn(f"--ledger: {error}")
        return found

    def print_schema(self, schema: dict[str, Any]) -> int:
        self.screen.print_lines(json.dumps(schema, indent=2))
        self.screen.print_result(schema)
        return OK

    def explain(self, name: str) -> int:
        """Explain a rule, or list all rules."""
        screen, policy = self.screen, self.policy
        if name != _ALL_RULES:
            rule = require_rule(name, "'audit --explain' lists all rules", "--explain").id
            text = auditing.explain(rule, policy)
            screen.print_lines(text)
            screen.print_result({"rule": rule, "explanation": text})
            return OK
        rules = [(rule, rule.id in policy.off) for rule in map(policy.rule, sorted(auditing.CATALOGUE))]
        rows = [(rule.id, "off" if off else rule.severity_range, rule.title) for rule, off in rules]
        screen.print_table(("rule", "severity", "title"), rows)
        screen.print_footer("audit --explain RULE describes a rule.")
        described = [
            {"rule": rule.id, "severities": [each.value for each in rule.severities], "title": rule.title, "off": off}
            for rule, off in rules
        ]
        screen.print_result({"rules": described})
        return OK

    def _format_of(self, path: Path) -> str:
        return self.form or format_of(path.name)

    async def run(
        self,
        *,
        campaigns: bool = True,
        earlier: Sequence[auditing.Report] = (),
        folder: Path | None = None,
        webhook: Secret | None = None,
    ) -> int:
        predicted = {
            campaign: each.predicted for each in self.imports for campaign in each.campaigns if each.predicted is not None
        }
        about = {"campaigns": campaigns, "deadline": self.settings["deadline"], "readings": self.readings, "predicted": predicted}
        parts: list[auditing.Report] = []
        read = await run_audit(self.options, self.screen, parts if folder else None, policy=self.policy, **about)
        baseline = None if earlier else self._read_baseline(read)
        before = [baseline] if baseline else earlier
        report = read.since(*before) if before else read
        view = build_brief(read, baseline, self._plan(read), self.imports) if self.is_brief else report
        past = self._read_past(read, shown=bool(folder))
        self._output(view, past, _render_folder(folder, report, parts, past) if folder else {})
        if webhook:
            from outreach_async._cli.posting import PostError, post

            try:
                await post(webhook, "".join(iterate(view, "slack", link=self.link)))
            except PostError as error:
                text = f"the brief was not delivered: {error}. It is complete here; run the command again to post it."
                self.screen.warn(f"--post: {text}")
                return NOT_DELIVERED
            self.screen.print_line("Posted.")
        # The history is written last: if the report could not be printed, the next one must show these changes again. An audit
        # that has read nothing adds nothing, and has only the time of this computer, which may be ahead of that of other audits.
        has_read = len(read.unreadable) < len(read.workspaces)
        if self.store and self.readings and has_read and not self.settings["no_append"]:
            with warnings.catch_warnings(action="ignore"):
                appended = self.store.append(read, self.readings)
            if not appended:
                raise HistoryError(f"--history: {self.store.refusal(read)}")
        return report.exit_code(self.settings["fail_on"])

    def _read_baseline(self, report: auditing.Report) -> auditing.Report | None:
        """Return the audit of the history with which this one is compared."""
        if self.store is None:
            return None
        since = self.settings["since"]
        until = since and since(report.at)
        found = self.store.baseline(report.workspaces, until=until)
        if found is None and until is not None:
            text = f"{self.store.path} has no audit of these workspaces up to {format_time(until)}; nothing is compared"
            self.screen.warn(f"--since: {text}")
        return found

    def _plan(self, report: auditing.Report) -> list[WorkspacePlan]:
        past, readings = past_readings(self.store, report), self.readings or Readings()
        spaces = (space for space in report.workspaces if space not in report.unreadable)
        return [build_plan(readings, space, at=report.at, past=past) for space in spaces]

    def _read_past(self, report: auditing.Report, *, shown: bool = False) -> dict[str, Any]:
        """Return what pages show of the history, as it will be when this audit is appended, which happens after the output."""
        if self.store is None or self.readings is None or not (shown or "html" in self.formats):
            return {}
        with TemporaryDirectory() as folder:
            copy = History(Path(folder) / "history.db")
            if self.store.exists:
                with closing(sqlite3.connect(self.store.path)) as source, closing(sqlite3.connect(copy.path)) as target:
                    source.backup(target)
            if copy.refusal(report) is None:
                copy.append(report, self.readings)
            days = [day for kind in ("workspace", "campaign") for day in copy.daily(kind, workspaces=report.workspaces)]
            return {"days": days, "opened": copy.opened(report.workspaces)}

    def _output(self, view: auditing.Report | Brief, past: Mapping[str, Any], folder: Mapping[Path, str]) -> None:
        """Write a report or a brief to files, or print it if there are no files. `folder` has the files of `--output-folder`."""
        screen = self.screen
        for path in self.outputs:
            with files.explain_write_errors("--output", path):
                atomic_write(path, iterate(view, self._format_of(path), link=self.link, **past))
        for path, text in folder.items():
            with files.explain_write_errors("--output-folder", path):
                atomic_write(path, text)
        if self.outputs or folder:
            note_applied(f"Written: {', '.join(map(str, [*self.outputs, *list(folder)[:1]]))}")
            summary = view if isinstance(view, Brief) else summarize(view)
            screen.print_line(summary.headline, "bold")
            changes = [summary.changed] if summary.changes or isinstance(view, Brief) else []
            for line in (summary.verdict, summary.to_do, f"Findings: {summary.counted}.", *changes):
                screen.print_line(line)
            for path in self.outputs:
                screen.print_line(f"Written: {path}")
            for path in list(folder)[:1]:
                screen.print_line(f"Written: {path} and {format_count(len(folder) // 2, 'page')} of workspaces")
        elif self.print_format is not None:
            sys.stdout.writelines(iterate(view, self.print_format, link=self.link, **past))
        else:
            show(screen, view)
        if screen.as_json:
            screen.print_result(view.to_dict())
        sys.stdout.flush()  # raises an error for a broken pipe before the --history file is changed


def open_history(options: Options, path: Path | None) -> History | None:
    if path is None:
        return None
    try:
        return History(path, address=options.base_url)
    except InvalidRequest as error:
        raise click.UsageError(f"--{error}") from error


def past_readings(store: History | None, report: auditing.Report) -> list[tuple[float, Readings]]:
    """Return what the audits of the last week have read, and of the day before, whose plan is scored."""
    return store.readings(report.at - 8 * 86_400) if store and store.exists else []


def make_folder(folder: Path) -> None:
    require_extra("html")
    if not folder.parent.is_dir():
        raise click.UsageError(f"--output-folder {folder}: the folder {str(folder.parent)!r} does not exist; create it first.")
    with files.explain_write_errors("--output-folder", folder):
        folder.mkdir(exist_ok=True)


def create_folder(folder: Path | None, options: Options) -> list[files.FileUse]:
    """Create the folder of `--output-folder`, and return the files to write into it."""
    if folder is None:
        return []
    make_folder(folder)
    stems = name_pages(workspaces_of(options), options.config.names).values()
    names = [("index.html", "html"), *((f"{stem}.{form}", form) for stem in stems for form in ("html", "json"))]
    return [use for name, form in names for use in files.FileUse.of("--output-folder", folder / name, partial(has_format, form))]


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


def show(screen: Screen, view: auditing.Report | Brief) -> None:
    """Print a report or a brief in human-readable form; with `--json`, print nothing."""
    if screen.console:
        screen.console.print(StyledReport(view))
    elif not screen.as_json:
        screen.print_lines("".join(iterate(view, "terminal")))


def load_report(flag: str, path: Path) -> auditing.Report:
    with files.explain_read_errors(flag, path):
        text = path.read_bytes()
    try:
        return auditing.Report.from_dict(msgspec.json.decode(text))
    except InvalidRequest as error:
        raise click.UsageError(f"{flag} {path}: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise click.UsageError(f"{flag} {path}: not a JSON report; pass one written by 'audit --json'.") from error


def _require_formats(paths: Sequence[Path], form: str | None, known: Collection[str]) -> None:
    """Check that `--format` or the suffix of each `--output` file determines its format."""
    if form and len(paths) > 1:
        raise click.UsageError("--format: expected one --output, got several; omit --format, because each suffix sets a format.")
    for path in paths:
        files.require_folder("--output", path)
        suffix = path.suffix.lower()
        if form and suffix in SUFFIXES and form != format_of(path.name) and (form, suffix) != ("slack", ".json"):
            text = f"--output {path} and --format {form} name different formats"
            raise click.UsageError(f"{text}; omit --format, or pass another --output.")
        if form is None and SUFFIXES.get(suffix) not in known:
            suffixes = ", ".join(suffix for suffix, form in SUFFIXES.items() if form in known)
            raise click.UsageError(f"--output {path}: expected a name ending in one of {suffixes}; rename it, or pass --format.")


async def run_audit(options: Options, screen: Screen, parts: list[auditing.Report] | None, **about: Any) -> auditing.Report:
    """Audit the workspaces, show the progress on stderr, and return the report. `parts` receives one for each workspace."""
    workspaces = workspaces_of(options)
    async with open_each(options) as clients:
        own = {workspace: client for workspace, client in clients.items() if workspace in options.own_rates}
        client = next((client for workspace, client in clients.items() if workspace not in own), clients[workspaces[0]])
        run = auditing.stream(client, workspaces, clients=own, clock=clock_of(options), names=options.config.names, **about)
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


def clock_of(options: Options) -> Callable[[], float] | None:
    """Return the clock of an audit of the embedded service, which has a fixed time; `None` for any other service."""
    if options.base_url != FAKE:
        return None
    from outreach_async._cli.demo_data import create_demo_world

    return lambda: create_demo_world().now
