"""The command itself: its sub-commands, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from outreach_async.cli.commands import Commands
from outreach_async.cli.completion import PROGRAM, VARIABLE, answer
from outreach_async.cli.exits import BROKEN_PIPE, EXPECTED, code_of, line_of
from outreach_async.cli.options import declared


@click.group(cls=Commands)
@click.version_option(package_name="outreach_async", message="%(package)s %(version)s")
@declared
def outreach(**_shared: Any) -> None:
    """Work with the outreach service: import contacts, audit mailboxes, list what a workspace holds.

    Exit codes: 0 clean; 1 findings at or above --fail-on, or refused by the service; 2 usage; 3 incomplete (rows rejected,
    unknown or not applied, pages unread); 75 suspended, to be resumed; 77 not allowed; 130 interrupted.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. What is expected to go wrong is one line on stderr, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a name that the terminal cannot show is no failure
    asked = os.environ.get(VARIABLE)
    try:
        code = answer(outreach, asked) if asked else _invoke(list(arguments) or ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter's own flush at exit fails again
        return BROKEN_PIPE
    except EXPECTED as error:
        sys.stderr.write(f"{line_of(error)}\n")
        return code_of(error)
    return code


def _invoke(arguments: list[str]) -> int:
    """Run the command without click's own endings, which know neither our exit codes nor our one line."""
    try:
        with outreach.make_context(PROGRAM, arguments) as context:
            code: int = outreach.invoke(context)
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    return code
