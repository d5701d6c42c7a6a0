"""The top-level command, and the end of the process."""

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
    """Import contacts, audit mailboxes and list the contents of a workspace.

    Exit codes: 0 success; 1 findings at or above --fail-on, or a request refused by the service; 2 wrong usage; 3 incomplete
    (rows rejected, unknown or not applied, or pages that could not be read); 75 suspended, can be resumed; 77 not allowed (the
    service answered 401 or 403); 130 interrupted.
    """


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Expected errors are one line on stderr, never a traceback."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a terminal without UTF-8 must not fail the command
    asked = os.environ.get(VARIABLE)
    try:
        code = answer(outreach, asked) if asked else _invoke(list(arguments) or ["--help"])
        sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter flushes stdout at exit: on the broken pipe, that would fail again and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except EXPECTED as error:
        sys.stderr.write(f"{line_of(error)}\n")
        return code_of(error)
    return code


def _invoke(arguments: list[str]) -> int:
    """Run the command without click's own error handling, which has other exit codes and prints several lines."""
    try:
        with outreach.make_context(PROGRAM, arguments) as context:
            code: int = outreach.invoke(context)
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    return code
