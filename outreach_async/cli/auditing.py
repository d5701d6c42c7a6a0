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
from outreach_async.audit.outputs import SUFFIXES, WRITERS, begins_as, format_of, schema, write
from outreach_async.audit.outputs.overview import headline, verdict
from outreach_async.audit.outputs.terminal import report_renderable
from outreach_async.cli.completion import of_words
from outreach_async.cli.connection import open_client, workspaces_of
from outreach_async.cli.exits import OK
from outreach_async.cli.options import FAKE, Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen
from outreach_async.cli.writing import FileUse, OutputPath, force_option, require_folder, require_writable
from outreach_async.errors import InvalidRequest
from outreach_async.wholefiles import write_whole

_DIGITS: Final = 19


@attrs.frozen(kw_only=True)
class Job:
    """What to judge by, and what to write.

    Attributes:
        fail_on: The mildest severity that makes the exit code 1.
        policy: Which rules apply, with which thresholds.
        earlier: The report to compare with.
        files: The format of each file to write.
        form: The format of what is printed; `None` for what stdout is fit for.
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
    help="The mildest severity that makes the exit code 1.",
)
@click.option(
    "--policy", type=click.Path(path_type=Path), metavar="FILE", help="Policy (TOML): rules turned off, thresholds moved."
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path),
    metavar="EARLIER.json",
    help="Say what changed since an earlier audit, of which this is the JSON.",
)
@click.option(
    "--output",
    "outputs",
    type=OutputPath(),
    metavar="FILE",
    multiple=True,
    help=f"Write the report to a file; its suffix tells the format ({', '.join(SUFFIXES)}). May be given several times.",
)
@force_option
@click.option("--format", "form", type=click.Choice(list(WRITERS)), help="Format of the one --output, or of what is printed.")
@click.option(
    "--explain",
    metavar="RULE",
    shell_complete=of_words(lambda: {name: rule.title for name, rule in auditing.CATALOGUE.items()}),
    help="Print what a rule such as OA120 judges by and why; nothing is read.",
)
@click.option("--schema", "as_schema", is_flag=True, help="Print the JSON Schema of the report's JSON; nothing is read.")
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
    """Judge every mailbox of the workspaces, and say what is unsafe, why, what to do about it, and what changed.

    --workspace may be given several times; OUTREACH_WORKSPACE may hold several ids with blanks between them.

    Every morning but the first: outreach-async audit --compare audit.json --output audit.json --output audit.html
    """
    screen = Screen.of(as_json=options.as_json or (form == "json" and not outputs))
    if as_schema:
        return _print(screen, json.dumps(schema(), indent=2), schema())
    chosen = auditing.Policy.default() if policy is None else auditing.Policy.load(policy)
    if explain is not None:
        text = auditing.explain(explain, chosen)
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
    """Return the clock that ages are worked out from: the embedded service's stands at its own morning."""
    if options.base_url != FAKE:
        return time.time
    from outreach_async.cli.world import demo_world

    return lambda: demo_world().now


def show_audit(screen: Screen, report: auditing.Report) -> None:
    """Print a report for a person."""
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
    """Return the format to print, if it is another than stdout is fit for."""
    if form in {None, "json"}:
        return None
    if screen.as_json:
        raise click.UsageError(f"--json and --format {form} are two formats for one stdout; give one, or --output FILE.")
    return form


def _files(paths: Sequence[Path], form: str | None) -> list[tuple[Path, str]]:
    if form and len(paths) > 1:
        raise click.UsageError("--format goes with one --output; of several, the suffix of each tells.")
    for path in paths:
        require_folder(path)
    return [(path, form or format_of(path.name)) for path in paths]


def _earlier(path: Path) -> auditing.Report:
    try:
        text = path.read_bytes()
        return auditing.Report.from_dict(json.loads(text, parse_constant=_number, parse_float=_number, parse_int=_whole))
    except (ValueError, RecursionError, InvalidRequest) as error:
        raise click.UsageError(f"--compare {path}: {error}") from error


def _whole(text: str) -> int:
    if len(text) > _DIGITS:
        raise ValueError(f"a number of {len(text)} digits is none of an audit")
    return int(text)


def _number(text: str) -> float:
    """Read a number; neither JSON nor an audit has `NaN` and infinities, though Python writes and reads them."""
    if not math.isfinite(number := float(text)):
        raise ValueError(f"{text[:_DIGITS]} is no number of an audit")
    return number
