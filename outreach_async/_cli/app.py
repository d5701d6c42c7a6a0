"""Run the command: `run` returns its exit code, and prints expected errors without a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Final

import click
from click.shell_completion import shell_complete

from outreach_async._cli.declarations import outreach
from outreach_async._cli.messages import wrap_error

PROGRAM: Final = "outreach-async"
VARIABLE: Final = "_OUTREACH_ASYNC_COMPLETE"
"""Environment variable that a completion script sets. click derives the variable's name from the program's name."""
_EXIT_BROKEN_PIPE: Final = 141
"""Exit code if the program that reads the output has exited, as `head` does."""


def print_completion(shell: str) -> int:
    from outreach_async._cli import completion  # noqa: F401 - it registers the scripts, which no other command needs

    return shell_complete(outreach, {}, PROGRAM, VARIABLE, f"{shell}_source")


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Expected errors are printed as one line on stderr, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # output to a terminal without UTF-8 must not raise
    # click's `main` is not used: even with `standalone_mode=False` it exits with 1 after a broken pipe, and turns Ctrl-C into an
    # empty line on stderr and `Abort`. It also calls `shell_complete` for completion scripts, but then exits the process.
    try:
        if instruction := os.environ.get(VARIABLE):
            code: int = shell_complete(outreach, {}, PROGRAM, VARIABLE, instruction)
        else:
            with outreach.make_context(PROGRAM, list(arguments) or ["--help"]) as context:
                code = outreach.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code
    except BrokenPipeError:
        # The interpreter flushes stdout at exit. On the broken pipe, this would fail again and print a traceback.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _EXIT_BROKEN_PIPE
    except BaseException as error:
        # Imported only here, because it imports anyio, which would slow down `--help` and shell completion.
        from outreach_async._cli.process import EXPECTED_ERRORS, exit_code, format_error

        if not isinstance(error, EXPECTED_ERRORS):
            raise
        sys.stderr.write(f"{wrap_error(format_error(error))}\n")
        return exit_code(error)
    return code
