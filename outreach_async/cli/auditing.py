"""The command `audit`."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import click

from outreach_async import audit as auditing
from outreach_async.atomic import write_whole
from outreach_async.audit.reports import SUFFIXES, WRITERS, begins_as, format_of, schema, write
from outreach_async.audit.reports.terminal import report_renderable
from outreach_async.audit.reports.view import headline, verdict
from outreach_async.cli.app import of_words
from outreach_async.cli.connection import open_client, workspaces_of
from outreach_async.cli.exits import OK
from outreach_async.cli.options import FAKE, Options, shared_options
from outreach_async.cli.output import Screen
from outreach_async.cli.process import run_async
from outreach_async.cli.writing import FileUse, OutputPath, force_option, readable, require_folder, require_writable, writable
from outreach_async.errors import InvalidRequest

_DIGITS: Final = 19


@attrs.frozen(kw_only=True)
class Job:
    """What an audit compares with and writes.

    Attributes:
        fail_on: Lowest severity that makes the exit code 1.
        policy: Rules that apply, and their thresholds.
        earlier: Report to compare with; `None` for no comparison.
        files: Format of each file to write.
        form: Format to print; `None` to choose it by what stdout is.
    """

    fail_on: str
    policy: auditing.Policy
    earlier: auditing.Report | None
    files: dict[Path, str]
    form: str | None


@click.command()
@click.option(
    "--fail-on",
    type=click.Choice([severity.value for severity in auditing.Severity]),
    default="error",
    show_default=True,
    help="Lowest severity that makes the exit code 1.",
)
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="TOML file that turns rules off or changes thresholds.",
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path),
    metavar="EARLIER.json",
    help="Show the changes since an earlier audit, given as its JSON file.",
)
@click.option(
    "--output",
    "outputs",
    type=OutputPath(),
    metavar="FILE",
    multiple=True,
    help=f"Write the report to a file, in the format of its suffix ({', '.join(SUFFIXES)}); repeatable.",
)
@force_option
@click.option("--format", "form", type=click.Choice(list(WRITERS)), help="Format of the --output file, or of what is printed.")
@click.option(
    "--explain",
    metavar="RULE",
    shell_complete=of_words(lambda: {name: rule.title for name, rule in auditing.CATALOGUE.items()}),
    help="Explain a rule, such as OA120, and exit.",
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of the JSON report, and exit.")
@shared_options
def audit(
    *,
    options: Options,
    fail_on: str,
    policy: Path | None,
    compare: Path | None,
    outputs: tuple[Path, ...],
    force: bool,
    form: str | None,
    explain: str | None,
    as_schema: bool,
) -> int:
    """Check every mailbox of the workspaces for problems. The report says what is wrong, why, what to do and what has changed.

    Pass --workspace several times to audit several workspaces, or set OUTREACH_WORKSPACE to ids separated by spaces.

    Daily (without --compare the first time): outreach-async audit --compare audit.json --output audit.json --output audit.html
    """
    screen = Screen.of(as_json=options.as_json or (form == "json" and not outputs))
    if as_schema:
        return _print(screen, json.dumps(schema(), indent=2), schema())
    chosen = auditing.Policy.default() if policy is None else _policy(policy)
    if explain is not None:
        text = _explained(explain, chosen)
        return _print(screen, text, {"rule": explain.upper(), "explanation": text})
    files = _files(outputs, form)
    require_writable(
        FileUse.read("--policy", policy),
        FileUse.read("--compare", compare),
        *(FileUse.write("--output", path, partial(begins_as, chosen_form)) for path, chosen_form in files),
        force=force,
    )
    job = Job(
        fail_on=fail_on,
        policy=chosen,
        earlier=_earlier(compare) if compare else None,
        files=dict(files),
        form=None if outputs else _printed(form, screen),
    )
    return run_async(partial(_audit, options, screen, job))


async def _audit(options: Options, screen: Screen, job: Job) -> int:
    workspaces = workspaces_of(options)
    async with open_client(options, workspace=workspaces[0]) as client:
        report = await auditing.audit(client, workspaces, policy=job.policy, clock=clock_of(options))
    if job.earlier is not None:
        report = report.since(job.earlier)
    for path, form in job.files.items():
        with writable("--output", path):
            write_whole(path, write(report, form))
    if job.files:
        _say_written(screen, report, job.files)
    elif job.form is not None:
        sys.stdout.write(write(report, job.form))
    else:
        show_audit(screen, report)
    screen.result(report.to_dict())
    return report.exit_code(job.fail_on)


def clock_of(options: Options) -> Callable[[], float]:
    """Return the clock for the ages of mailboxes. The embedded service has a fixed clock, so that its audit never changes."""
    if options.base_url != FAKE:
        return time.time
    from outreach_async.cli.serving import demo_world

    return lambda: demo_world().now


def show_audit(screen: Screen, report: auditing.Report) -> None:
    """Print a report for people."""
    if screen.console:
        screen.console.print(report_renderable(report))
    elif not screen.as_json:
        screen.say_lines(write(report, "terminal"))


def _say_written(screen: Screen, report: auditing.Report, paths: Iterable[Path]) -> None:
    screen.say(headline(report), "bold")
    screen.say(verdict(report))
    for path in paths:
        screen.say(f"Written: {path}")


def _print(screen: Screen, text: str, value: dict[str, Any]) -> int:
    screen.say_lines(text)
    screen.result(value)
    return OK


def _printed(form: str | None, screen: Screen) -> str | None:
    """Return the format to print, if another one was requested than stdout has by default."""
    if form in {None, "json"}:
        return None
    if screen.as_json:
        raise click.UsageError(f"--format {form}: conflicts with --json; pass one of them, or --output FILE.")
    return form


def _files(paths: Sequence[Path], form: str | None) -> list[tuple[Path, str]]:
    if form and len(paths) > 1:
        raise click.UsageError("--format: expected one --output, got several; omit it, as each suffix sets a format.")
    for path in paths:
        require_folder("--output", path)
        if form is None and path.suffix.lower() not in SUFFIXES:
            suffixes = ", ".join(SUFFIXES)
            raise click.UsageError(f"--output {path}: expected a name ending in one of {suffixes}; rename it, or pass --format.")
    return [(path, form or format_of(path.name)) for path in paths]


def _policy(path: Path) -> auditing.Policy:
    with readable("--policy", path):
        return auditing.Policy.load(path)


def _explained(rule: str, policy: auditing.Policy) -> str:
    try:
        return auditing.explain(rule, policy)
    except InvalidRequest as error:
        raise InvalidRequest(f"--explain: {str(error).removeprefix('rule: ')}") from error


def _earlier(path: Path) -> auditing.Report:
    with readable("--compare", path):
        text = path.read_bytes()
    try:
        return auditing.Report.from_dict(json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole))
    except InvalidRequest as error:
        raise click.UsageError(f"--compare {path}: {error}") from error
    except (ValueError, RecursionError) as error:
        at = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise click.UsageError(f"--compare {path}: expected JSON written by 'audit --json', got something else{at}.") from error


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"expected a number of at most {_DIGITS} digits, got {len(text)}")
    return int(text)


def _number(text: str) -> float:
    """Read a finite number. Python also reads `NaN` and infinities, which are not JSON."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"expected a finite number, got {text[:_DIGITS]}")
    return number
