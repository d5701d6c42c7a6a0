"""Run the command: `run` returns its exit code, and prints expected errors without a traceback."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

import click
from click.shell_completion import shell_complete

from outreach_async._cli.messages import APPLIED, wrap_error
from outreach_async._cli.root import PROGRAM, VARIABLE, outreach

_EXIT_BROKEN_PIPE: Final = 141
"""Exit code if the program that reads the output has exited, as `head` does, and the command has changed nothing."""


def run(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code. Expected errors are printed as one line on stderr, without a traceback."""
    _open_closed_streams()
    stdout, stderr, noted = sys.stdout, sys.stderr, dict[str, Any]()
    sys.stdout, sys.stderr = output, errors = _Output(stdout), _Errors(stderr)
    try:
        for stream in output, errors:
            stream.call("reconfigure", errors="backslashreplace")  # output to a terminal without UTF-8 must not raise
        code = _invoke(arguments, noted)
        output.flush()
    except BaseException as error:
        if output.failure is not None:
            output.discard()
            return _end_without_output(output.failure, noted.get(APPLIED))
        # Imported only here, because it imports anyio, which would slow down `--help` and shell completion.
        from outreach_async._cli.process import EXPECTED_ERRORS, INCOMPLETE, exit_code, format_error

        if not isinstance(error, EXPECTED_ERRORS):
            raise
        # A file that cannot be written is no wrong usage if rows have been sent.
        applied = noted.get(APPLIED) if isinstance(error, click.ClickException) else None
        sys.stderr.write(f"{wrap_error(format_error(error) + (f'; {applied}' if applied else ''))}\n")
        return INCOMPLETE if applied else exit_code(error)
    finally:
        errors.flush()
        sys.stdout, sys.stderr = stdout, stderr
    return code


def _invoke(arguments: Sequence[str], noted: dict[str, Any]) -> int:
    """Run the command, and store in `noted` what it has noted in its context."""
    # click's `main` is not used: even with `standalone_mode=False` it exits with 1 after a broken pipe, and turns Ctrl-C into an
    # empty line on stderr and `Abort`. It also calls `shell_complete` for completion scripts, but then exits the process.
    if instruction := os.environ.get(VARIABLE):
        return shell_complete(outreach, {}, PROGRAM, VARIABLE, instruction)
    try:
        with outreach.make_context(PROGRAM, list(arguments) or ["--help"]) as context:
            try:
                code: int | None = outreach.invoke(context)
                return code or 0
            finally:
                noted |= context.meta
    except click.exceptions.Exit as end:  # --help and --version
        return end.exit_code


def _open_closed_streams() -> None:
    """Open the null device in place of each closed standard stream, so that no file of the command gets its descriptor."""
    # Input is then empty, and errors are lost. Output fails, as on a full disk: the device is opened for reading.
    for name, flags, mode in ("stdin", os.O_RDONLY, "r"), ("stdout", os.O_RDONLY, "w"), ("stderr", os.O_WRONLY, "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


class _Output:
    """Standard output that keeps its error, so that an `OSError` of stdout is not taken for that of a file."""

    def __init__(self, stream: TextIO) -> None:
        self.failure: OSError | None = None
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> Any:
        return self.call("write", text)

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self.call("flush")

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self._stream, method)(*arguments, **options)
        except OSError as error:
            self.failure = error
            raise

    def discard(self) -> None:
        """Write what is left to the null device: the interpreter flushes the stream at exit, which would fail again."""
        os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


class _Errors(_Output):
    """Standard error, whose lines are lost if they cannot be written, as if it was closed."""

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return super().call(method, *arguments, **options)
        except OSError:
            self.discard()


def _end_without_output(failure: OSError, applied: str | None) -> int:
    """Print what the command has changed, which stdout does not show, and return the exit code."""
    if applied is None and isinstance(failure, BrokenPipeError):
        return _EXIT_BROKEN_PIPE
    from outreach_async._cli.process import INCOMPLETE  # as in `run`

    sys.stderr.write(f"{PROGRAM}: standard output: cannot be written ({failure.strerror}){f'; {applied}' if applied else ''}\n")
    return INCOMPLETE
