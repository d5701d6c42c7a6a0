"""Run a command on an event loop, handle Ctrl-C, and translate errors into a message and an exit code."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from functools import partial
from json import JSONDecodeError
from threading import Timer
from tomllib import TOMLDecodeError
from typing import TYPE_CHECKING, Final

import anyio
import click
from anyio.abc import TaskGroup

from outreach_async import Outcome
from outreach_async._cli.messages import find_remedy, to_printable, translate_arguments
from outreach_async._plumbing import is_denied, is_permanent_rejection, mask_keys
from outreach_async.errors import (
    BulkError,
    BulkSuspended,
    InvalidRequest,
    JournalError,
    OutreachError,
    iterate_linked_errors,
)
from outreach_async.models import FAILED_OUTCOMES

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from outreach_async._cli.output import Screen

OK: Final = 0
REFUSED: Final = 1
"""Exit code for findings at or above `--fail-on`, or for a request that the service refused."""
USAGE: Final = 2
INCOMPLETE: Final = 3
"""Exit code if the outcome of a row is `rejected`, `unknown` or `not_applied`, or if a page could not be read."""
NOT_DELIVERED: Final = 69
"""Exit code if a brief was written, but could not be posted."""
SUSPENDED: Final = 75
"""Exit code for an unfinished run that can be resumed. A run is suspended if the service is down or requires a long wait."""
NOT_ALLOWED: Final = 77
INTERRUPTED: Final = 130

DRAIN_TIMEOUT: Final = 30.0  # seconds to wait for requests in flight after the first Ctrl-C
TERMINATION_TIMEOUT: Final = 20.0  # seconds that a command has after SIGTERM
PAUSED_DRAIN_TIMEOUT: Final = 1.0  # the same in a paused run, in which requests rarely succeed

EXPECTED_ERRORS: Final = (OutreachError, click.ClickException, OSError, KeyboardInterrupt)
"""Exceptions that are printed as one line. Any other exception is a bug, and has a traceback."""

_SQLITE_REASONS: Final = {
    "SQLITE_BUSY": "another process is using it",
    "SQLITE_CANTOPEN": "it cannot be opened",
    "SQLITE_FULL": "the disk is full",
    "SQLITE_IOERR": "input/output error",
    "SQLITE_LOCKED": "another process is using it",
    "SQLITE_PERM": "permission denied",
    "SQLITE_READONLY": "it is read-only",
}
"""Maps the start of an SQLite error name to the reason to print. Errors caused by the content of the file are not listed."""
_REDIRECTS: Final = range(300, 400)
_TOML_POSITION: Final = re.compile(r"\(at (line \d+, column \d+|end of document)\)")


class InterruptHandler:
    """Handles Ctrl-C: the first one waits for requests in flight, the second cancels them, and the third exits the process."""

    def __init__(self, screen: Screen, group: TaskGroup, leave: Callable[[int], object] = os._exit) -> None:
        self.scope = anyio.CancelScope()
        self.drain: Callable[[], float] = lambda: DRAIN_TIMEOUT
        self.count = 0
        self._screen = screen
        self.group = group
        self._exit = leave

    def handle(self) -> None:
        self.count += 1
        if self.count == 1:
            seconds = self.drain()
            self._screen.warn(f"waiting up to {seconds:.0f} s for requests in flight; press Ctrl-C again to cancel them")
            self.scope.deadline = anyio.current_time() + seconds
        elif self.count == 2:  # noqa: PLR2004 - the second
            self.scope.cancel()
        else:  # the cancelled run has not ended: do not wait for it
            self._exit(INTERRUPTED)

    async def receive(self, signals: AsyncIterable[object]) -> None:
        async for _ in signals:
            self.handle()


@asynccontextmanager
async def handle_interrupts(screen: Screen) -> AsyncIterator[InterruptHandler]:
    """Pass each Ctrl-C in the block to an `InterruptHandler`. On Windows, Ctrl-C raises `KeyboardInterrupt` instead."""
    # Exceptions of the block are raised unchanged, not in an exception group.
    failure: Exception | None = None
    with ExitStack() as stack:
        async with anyio.create_task_group() as group:
            interrupts = InterruptHandler(screen, group)
            with suppress(NotImplementedError):  # Windows has no signal handlers on event loops
                signals = stack.enter_context(anyio.open_signal_receiver(signal.SIGINT))
                group.start_soon(interrupts.receive, signals)
            try:
                with interrupts.scope:
                    yield interrupts
            except Exception as error:  # noqa: BLE001 - raised below, because the group would wrap it
                failure = error
            # The signal receiver and the tasks of the block, such as the progress display, run until they are cancelled.
            group.cancel_scope.cancel()
    if failure is not None:
        raise failure


def run_async(main: Callable[[], Awaitable[int | None]], *, terminated: int = INTERRUPTED) -> int:
    """Run a command and return its exit code. Ctrl-C and SIGTERM cancel it, so that it can still print its progress."""

    async def run() -> int:
        import asyncio  # imported on demand: the command `report` and wrong usage need no event loop

        leave = partial(os._exit, terminated)
        with anyio.CancelScope() as scope, handle_termination(asyncio.get_running_loop(), scope, leave):
            return await main() or OK
        return terminated

    return anyio.run(run)


@contextmanager
def handle_termination(
    loop: AbstractEventLoop, scope: anyio.CancelScope, leave: Callable[[], object], timeout: float = TERMINATION_TIMEOUT
) -> Iterator[None]:
    """Let SIGTERM cancel a scope. By default, it ends the process at once, and leaves journal and rejects file incomplete."""
    timer = Timer(timeout, leave)
    timer.daemon = True

    def end(*_: object) -> None:
        # The event loop may be waiting for a pipe that nobody reads. Python calls this function also then.
        loop.call_soon_threadsafe(scope.cancel)
        with suppress(RuntimeError):  # the second signal
            timer.start()

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
        timer.cancel()


def exit_code(error: BaseException) -> int:
    match error:
        case KeyboardInterrupt():
            return INTERRUPTED
        case BulkSuspended(resumable=True):
            return SUSPENDED
        case OutreachError() if is_denied(error):
            return NOT_ALLOWED
        case OutreachError() if is_permanent_rejection(error):
            return REFUSED
        # No wrong usage: rows may be missing, or the cause is not a file of the user.
        case OutreachError() | ConnectionError() | OSError(errno=errno.EMFILE | errno.ENFILE) if (
            not isinstance(error, InvalidRequest) or error.maybe_sent
        ):
            return INCOMPLETE
        case _:  # click's own errors, an address that cannot be bound, a file that cannot be read
            return USAGE


def exit_code_of_rows(outcomes: Mapping[Outcome, int], repeats: int = 0) -> int:
    return INCOMPLETE if sum(outcomes[outcome] for outcome in FAILED_OUTCOMES) > repeats else OK


def format_error(error: BaseException) -> str:
    """Return the lines to print for an error, usually a single line. Owner keys are masked."""
    lines = [f"outreach-async: {_format_message(error)}"]
    if isinstance(error, InvalidRequest):
        from outreach_async.importer import UnmappedColumns  # imported on demand: few errors need it

        if isinstance(error, UnmappedColumns):
            first, *more = error.lines()
            lines = [f"outreach-async: {first}", *more]
    return "\n".join(to_printable(mask_keys(line)) for line in lines)


def format_message(error: BaseException) -> str:
    """Return the message of an error and, if known, a remedy; the name of the program is omitted. Owner keys are masked."""
    return mask_keys(_format_message(error))


def _format_message(error: BaseException) -> str:
    match error:
        case click.UsageError(ctx=click.Context() as context):
            text = " ".join(_remove_foreign_text(error, error.format_message()).split()).removesuffix(".")
            text = text.replace("not a valid float", "not a number").replace("not a valid integer", "not a whole number")
            return f"{text}{'' if text.endswith('?') else '.'} Try '{context.command_path} --help'."
        case click.ClickException():
            return _remove_foreign_text(error, error.format_message())
        case KeyboardInterrupt():
            return "interrupted"
        case OutreachError():
            text = _remove_foreign_text(error, str(error))
            if error.status_code in _REDIRECTS or isinstance(
                error, InvalidRequest | JournalError | BulkError
            ):  # others may quote the service
                text = translate_arguments(text)
            return "; ".join(filter(None, (text, find_remedy(error))))
        case OSError(strerror=str(reason)):
            return f"{error.filename}: {reason}" if error.filename else reason
        case _:
            return _remove_foreign_text(error, str(error))


def _remove_foreign_text(error: BaseException, message: str) -> str:
    """Replace another library's text in a message, which users would not understand, by its reason, or remove it."""
    in_journal = isinstance(error, JournalError)
    for link in iterate_linked_errors(error):
        # Most built-in exceptions, such as `ValueError`, count as written by this library, because its checks raise them.
        # A damaged journal makes Python itself raise built-in exceptions, but none of them is an `OSError` without a code.
        package = type(link).__module__.partition(".")[0]
        is_foreign = in_journal or isinstance(link, OSError | EOFError | UnicodeError)
        is_own = in_journal and type(link) is OSError and link.errno is None
        if is_own or package in {"outreach_async", "click"} or (package == "builtins" and not is_foreign):
            continue
        # The message may quote the class and the text, or only the text, whose `strerror` a library may have changed:
        # asyncio adds the address to the operating system's message.
        texts = dict.fromkeys((str(link), str(link).partition("\n")[0], getattr(link, "strerror", None)))
        quoted = [re.escape(text) for text in texts if text and text != os.strerror(getattr(link, "errno", None) or 0)]
        patterns = [rf"(: ){type(link).__name__}(?:: [^;]*)?()(?=;|\Z)"]
        patterns += [pattern for text in quoted for pattern in (rf"(: ){text}()(?=;|\Z)", rf"( \(){text}(\))")]
        for match in filter(None, (re.search(pattern, message) for pattern in patterns)):
            reason = _find_reason(link)
            replacement = f"{match[1]}{reason}{match[2]}" if reason else ""
            return message[: match.start()] + replacement + message[match.end() :]
    return message


def _find_reason(error: BaseException) -> str | None:
    """Return the reason that a parser, TLS, SQLite or the operating system provides for an error; `None` if there is none."""
    import sqlite3  # imported on demand: few commands need these modules
    from ssl import SSLCertVerificationError, SSLError

    reason = None
    for link in iterate_linked_errors(error):
        match link:
            case JSONDecodeError():
                return f"invalid JSON at line {link.lineno}, column {link.colno}"
            case TOMLDecodeError():
                position = _TOML_POSITION.search(str(link))
                return f"invalid TOML at {position[1]}" if position else "invalid TOML"
            case UnicodeDecodeError():
                return f"byte {link.start + 1} is not valid {link.encoding.upper()}"
            case SSLCertVerificationError():
                return f"the certificate is not trusted ({link.verify_message})"
            case SSLError():
                return f"TLS failed ({(getattr(link, 'reason', None) or 'unknown error').replace('_', ' ').lower()})"
            case sqlite3.Error():
                name = getattr(link, "sqlite_errorname", "")  # errors that the `sqlite3` module itself raises have no name
                reason = next((text for code, text in _SQLITE_REASONS.items() if name.startswith(code)), None)
            case OSError(errno=int(code), strerror=str(text)):
                # Codes below 0 are errors of the DNS resolver, which has its own messages.
                reason = os.strerror(code) if code > 0 else text
    return reason
