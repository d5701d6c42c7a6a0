"""What no command shows briefly: how errors, durations and lines of a terminal are worded, and what each Ctrl-C does."""

from __future__ import annotations

import errno
import json
import os
import signal
import sqlite3
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr
from errno import ECONNREFUSED
from functools import partial
from io import StringIO
from pathlib import Path
from ssl import SSLCertVerificationError, SSLError
from typing import Any

import anyio
import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.cli import KEY
from support.time import virtual_time

from outreach_async import Progress
from outreach_async._cli.connection import _client_arguments
from outreach_async._cli.demo import program_name
from outreach_async._cli.files import RunState, explain_write_errors, open_output
from outreach_async._cli.messages import format_moment, format_period, format_seconds, translate_arguments, wrap_error, wrap_line
from outreach_async._cli.output import Screen
from outreach_async._cli.process import DRAIN_TIMEOUT, InterruptHandler, exit_code, format_error, handle_interrupts, run_async
from outreach_async._cli.values import Options
from outreach_async.errors import (
    BulkStopped,
    BulkSuspended,
    DeadlineExceeded,
    InvalidRequest,
    OutreachError,
    RateLimited,
    StatusError,
    TransportError,
    UnexpectedResponse,
)
from outreach_async.importer import ResultsFile
from outreach_async.transport._base import build_failure

BACKENDS = ("auto", "sockets", "httpx", "httpx2", "aiohttp")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_backend_allows_the_concurrency_of_the_command(backend: str) -> None:
    values = dict.fromkeys(("owner_key", "as_json", "timeout", "rate")) | {"workspaces": (), "headers": ()}
    options = Options.of({**values, "base_url": "http://127.0.0.1:1", "backend": backend})
    transport: Any = _client_arguments(options, None, 200, writes=False)["transport"]
    await transport.aclose()
    assert transport.max_in_flight == 200


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("x"), 2),
        (KeyboardInterrupt(), 130),
        (InvalidRequest("x"), 2),
        *((StatusError("x", status_code=number), 77) for number in (401, 403)),
        *((StatusError("x", status_code=number), 1) for number in (307, 404, 501)),
        *((StatusError("x", status_code=number), 3) for number in (408, 503)),
        (RateLimited("x", status_code=429), 3),
        (BulkStopped("x", status_code=404), 3),
        (BulkStopped("x", status_code=401), 77),
        (TransportError("x"), 3),
        (DeadlineExceeded("x"), 3),
        (UnexpectedResponse("x", status_code=200), 3),
        (OSError(98, "Address already in use"), 2),
    ],
)
def test_every_expected_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_an_error_is_one_line_without_control_characters_or_keys() -> None:
    assert format_error(StatusError(f"a\nb\x1b[31m {KEY} \u202e")) == "outreach-async: a\\nb\\x1b[31m key_*** \\u202e"
    assert format_error(OSError(98, "Address already in use")) == "outreach-async: Address already in use"
    assert format_error(OSError(2, "No such file", "x.csv")) == "outreach-async: x.csv: No such file"
    assert format_error(KeyboardInterrupt()) == "outreach-async: interrupted"
    assert format_error(OSError("odd")) == "outreach-async: odd"
    assert format_error(click.ClickException("odd")) == "outreach-async: odd"


@pytest.mark.parametrize(
    ("library", "command"),
    [
        ("base_url: a query; encode it with urllib.parse.quote", "--base-url: a query; percent-encode it"),
        ("headers['x']: expected ASCII", "--header['x']: expected ASCII"),
        ("max_in_flight: expected at most 1", "--concurrency: expected at most 1"),
        ("policy p.toml: expected TOML", "--policy p.toml: expected TOML"),
        ("journal run.db is damaged", "journal run.db is damaged"),
        ("workspace: got None; pass workspace= or set X", "--workspace: got nothing; pass --workspace or set X"),
        (
            'earlier: needs a journal, got None; pass journal="run.db"',
            "--earlier: needs a journal, got nothing; pass --journal run.db",
        ),
        ("fix the cause and rerun with resume=True", "fix the cause and rerun with --resume"),
        (
            'restore it, or resume with earlier="unknown" (on the command line: --resume --earlier unknown), which helps',
            "restore it, or run the import with --resume --earlier unknown, which helps",
        ),
        ("warn or off (repeats='error')", "warn or off (--repeats error)"),
        ("journal: strict_validation was true", "--journal: --strict was true"),
        ("a.xlsx: not a readable workbook (Cannot detect it): save it", "a.xlsx: not a readable workbook: save it"),
        ("mend that, or pass stop_after_rejects=None to go on", "mend that, or pass --stop-after-rejects never to go on"),
        ("stop_after_rejects: expected 1", "--stop-after-rejects: expected 1"),
    ],
)
def test_a_message_of_the_library_names_options_instead_of_arguments(library: str, command: str) -> None:
    assert translate_arguments(library) == command
    assert format_error(InvalidRequest(library)) == f"outreach-async: {command}"


def caused(message: str, *causes: Exception) -> OutreachError:
    error = OutreachError(message)
    link: Exception = error
    for cause in causes:
        link.__cause__ = cause
        link = cause
    return error


def refused_by(parse: Callable[[str], object], text: str) -> Exception:
    try:
        parse(text)
    except ValueError as error:
        return error
    pytest.fail("it was parsed")


def certificate_error() -> SSLCertVerificationError:
    error = SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed (_ssl.c:1006)")
    error.verify_message = "self-signed certificate"
    return error


def sqlite_error(text: str, name: str) -> sqlite3.Error:
    error = sqlite3.OperationalError(text)
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("message", "causes", "line"),
    [
        ("no way: OSError: all failed", [OSError("all failed"), OSError(ECONNREFUSED, "odd")], "no way: Connection refused"),
        ("no answer from x: EOFError: gone; no more", [EOFError("gone")], "no answer from x; no more"),
        ("no answer from x: EOFError", [EOFError()], "no answer from x"),
        ("no way: OSError: [Errno -2] unknown", [OSError(-2, "Name not known")], "no way: Name not known"),
        ("no way: x", [OSError("x"), certificate_error()], "no way: the certificate is not trusted (self-signed certificate)"),
        ("no way: x", [OSError("x"), SSLError(1, "y")], "no way: TLS failed (unknown error)"),
        ("damaged gzip (cut off); fetch it", [EOFError("cut off")], "damaged gzip; fetch it"),
        ("run.db: disk I/O error", [OSError(5, "disk I/O error")], "run.db: Input/output error"),
        ("run.db: locked; wait", [sqlite_error("locked", "SQLITE_BUSY_SNAPSHOT")], "run.db: another process is using it; wait"),
        ("run.db: malformed; restore it", [sqlite_error("malformed", "SQLITE_CORRUPT")], "run.db; restore it"),
        ("run.db: malformed", [sqlite3.Error("malformed")], "run.db"),
        ("a: No such file or directory; b", [OSError(2, "No such file or directory")], "a: No such file or directory; b"),
        ("a: it says so", [ValueError("something else")], "a: it says so"),
        ("a: expected b", [ValueError("expected b")], "a: expected b")
    ]
)  # fmt: skip
def test_messages_of_other_libraries_are_not_printed(message: str, causes: list[Exception], line: str) -> None:
    assert format_error(caused(message, *causes)) == f"outreach-async: {line}"


@pytest.mark.parametrize(
    ("parse", "text", "reason"),
    [
        (json.loads, "[\n [", "invalid JSON at line 2, column 3"),
        (tomllib.loads, "a = 1\nb c", "invalid TOML at line 2, column 3"),
        (tomllib.loads, "a = ", "invalid TOML at end of document"),
        (lambda text: text.encode("latin-1").decode(), "a\xff", "byte 2 is not valid UTF-8"),
    ],
)
def test_a_parse_error_is_reported_by_its_position(parse: Callable[[str], object], text: str, reason: str) -> None:
    error = refused_by(parse, text)
    assert format_error(caused(f"x.json: {error}; mend it", error)) == f"outreach-async: x.json: {reason}; mend it"


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pseudo-terminals")
def test_a_long_error_is_wrapped_on_a_terminal_but_not_an_option_to_copy() -> None:
    option = f"  --map '{'x' * 90}=email'"
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "w") as terminal, redirect_stderr(terminal):
        lines = wrap_error(f"outreach-async: {'word ' * 25}\n{option}").splitlines()
    os.close(ours)
    assert (len(lines), lines[-1]) == (3, option)
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[1].startswith("  word")


def test_a_row_that_cannot_be_written_names_the_option_and_the_file(tmp_path: Path) -> None:
    class FullDisk(ResultsFile):
        def add(self, *_values: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "results.csv"
    with (
        pytest.raises(click.ClickException, match=r"--results .*results.csv: No space left"),
        open_output("--results", FullDisk(path), RunState()) as add,
    ):
        add("row")


def test_a_closed_stdout_is_not_an_error_of_an_output_file() -> None:
    with pytest.raises(BrokenPipeError), explain_write_errors("--output", Path("/dev/stdout")):
        raise BrokenPipeError


@pytest.mark.parametrize(
    ("status", "operation", "remedy"),
    [
        (401, "create_contact", "check --owner-key or OUTREACH_OWNER_KEY"),
        (403, "create_contact", "check --owner-key or OUTREACH_OWNER_KEY: the key must"),
        (404, "create_contact", "check --workspace, --campaign and --base-url"),
        (404, "list_steps", "check the campaign id (the command 'campaigns' lists the ids) and --base-url"),
        (401, "list_fields", "if the service needs an authorization header, pass --header"),
        (403, "list_mailboxes", "check --workspace or OUTREACH_WORKSPACE; if the service"),
        (404, "list_campaigns", "check --workspace or OUTREACH_WORKSPACE, and --base-url"),
    ],
)
def test_an_error_of_the_service_names_a_remedy(status: int, operation: str, remedy: str) -> None:
    assert f"; {remedy}" in format_error(StatusError("x", status_code=status, operation=operation))


@pytest.mark.parametrize("error", [TransportError("x"), BulkSuspended.over(TransportError("y"), "x")])
def test_a_failed_connection_names_a_remedy(error: OutreachError) -> None:
    assert "; check --base-url or OUTREACH_BASE_URL, and check that the service is running" in format_error(error)


@pytest.mark.parametrize(
    "error", [TransportError("x", maybe_sent=True), StatusError("x", status_code=500), BulkStopped("x"), DeadlineExceeded("x")]
)
def test_an_error_that_no_option_causes_names_no_option(error: OutreachError) -> None:
    assert format_error(error) == "outreach-async: x"


async def signalled(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await anyio.sleep_forever()


def test_ctrl_c_and_sigterm_cancel_the_running_command() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_async(partial(signalled, signal.SIGINT))
    assert run_async(partial(signalled, signal.SIGTERM)) == 130
    assert run_async(partial(signalled, signal.SIGTERM), terminated=0) == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_terminal_shows_escape_sequences_instead_of_executing_them() -> None:
    shown = StringIO()
    screen = Screen(as_json=False, console=Console(file=shown, force_terminal=True, width=60, color_system=None))
    screen.print_table(("name", "sent"), [["[red]\x1b[2J", 3], ["b", 14]])
    screen.print_line("[bold]x")
    screen.print_footer("2 things")
    screen.print_result({})
    lines = [line.split() for line in shown.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["name", "sent"]
    assert lines[2:] == [["[red]\\x1b[2J", "3"], ["b", "14"], ["[bold]x"], ["2", "things"]]


def on_screen(width: int, show: Callable[[Screen], object]) -> list[str]:
    """Return the lines that a terminal of this width shows."""
    shown = StringIO()
    show(Screen(as_json=False, console=Console(file=shown, force_terminal=True, width=width, color_system=None)))
    return [line.rstrip() for line in shown.getvalue().splitlines() if line.strip()]


def printed(width: int, row: dict[str, Any]) -> list[str]:
    return on_screen(width, lambda screen: screen.print_table(tuple(row), [tuple(row.values())]))


def test_a_table_wider_than_the_terminal_is_printed_as_blocks() -> None:
    row = {"name": "x" * 20, "sent": 10**9, "note": None}
    assert printed(30, row) == [f"name  {'x' * 20}", "sent  1,000,000,000", "note"]
    assert printed(40, row)[0].split() == ["name", "sent", "note"]


def test_numbers_have_thousands_separators_on_a_terminal() -> None:
    row = {"contacts": 12345, "opens": 1234.5, "created": 1772442000, "name": "2000"}
    assert printed(80, row)[3].split() == ["12,345", "1,234.5", "1772442000", "2000"]


def test_a_heading_on_a_terminal_has_the_unit_of_a_percentage() -> None:
    lines = on_screen(80, lambda screen: screen.print_table(("name", "opens"), [("Spring", 50.9)]))
    assert [line.split() for line in lines[:2]] == [["opens"], ["name", "%"]]


@given(st.text("ab -", min_size=1).filter(str.strip), st.integers(10, 30))
def test_a_wrapped_line_has_the_same_words_and_fits(text: str, width: int) -> None:
    lines = wrap_line(text, width).splitlines()
    assert " ".join(lines).split() == text.split()
    assert all(len(line) <= width or len(line.split()) == 1 for line in lines)


def test_a_line_to_copy_is_never_wrapped() -> None:
    assert on_screen(12, lambda screen: screen.print_line("  some words to read")) == ["  some words", "    to read"]
    assert on_screen(12, lambda screen: screen.print_line("a command to copy", wrap=False)) == ["a command to copy"]


@given(st.integers(-(10**12), 10**12))
def test_a_moment_is_the_unix_time_in_utc(seconds: int) -> None:
    text = format_moment(seconds)
    assert not text or (len(text), text[-1]) == (20, "Z")


@pytest.mark.parametrize("value", [True, "Complete", None, 10**30, float("nan"), float("inf")])
def test_what_is_no_unix_time_has_no_date(value: object) -> None:
    assert format_moment(value) == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 seconds"),
        (0.25, "0.25 seconds"),
        (90, "1 minute 30 seconds"),
        (3601, "1 hour"),
        (86_400 * 3, "3 days"),
        (86_400 + 7200, "1 day 2 hours"),
        (86_400 * 1234, "1,234 days"),
        (-5, "-5 seconds"),
        (1e300, ""),
        (float("nan"), ""),
    ],
)
def test_a_duration_is_shown_in_its_two_largest_units(seconds: float, text: str) -> None:
    assert format_period(seconds) == text


def test_seconds_get_larger_units_from_a_minute_on() -> None:
    assert [format_seconds(seconds) for seconds in (12.34, 4321)] == ["12.3 s", "4,321.0 s (1 hour 12 minutes)"]


def test_too_many_open_files_are_named_and_are_no_fault_of_a_file() -> None:
    progress = Progress()
    progress.sent = False
    failure = build_failure(
        "https://api.example", "all attempts failed", progress, ExceptionGroup("", [OSError(errno.EMFILE, "x")])
    )
    remedy = "too many open files; raise the limit (ulimit -n), or send fewer requests at once"
    assert format_error(failure) == f"outreach-async: no connection to https://api.example: {remedy}"
    suspended = BulkSuspended(f"run suspended: {failure}")
    suspended.__cause__ = failure
    suspended.resumable = True
    assert format_error(suspended).endswith(f"{remedy}; pass a smaller --concurrency")
    assert isinstance(failure, TransportError)
    codes = [exit_code(error) for error in (failure, suspended, OSError(errno.EMFILE, "x"), ConnectionResetError(), OSError("x"))]
    assert codes == [3, 75, 3, 3, 2]


def test_suggested_commands_use_the_name_the_program_was_called_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / "outreach-async"
    installed.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert program_name(str(installed)) == "outreach-async"
    assert program_name(".venv/bin/outreach-async") == ".venv/bin/outreach-async"
    assert program_name("/somewhere/outreach_async/__main__.py") == "python -m outreach_async"


# The effect of the first, second and third Ctrl-C on a run, in virtual time.

SCREEN = Screen(as_json=True, console=None)


@virtual_time
async def test_the_first_signal_drains_and_gives_rows_in_flight_30_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    drained: list[float] = []
    began = anyio.current_time()

    def drain() -> float:
        drained.append(anyio.current_time() - began)
        return DRAIN_TIMEOUT

    async with handle_interrupts(SCREEN) as interrupts:
        interrupts.drain = drain
        interrupts.handle()
        await anyio.sleep_forever()
    assert (drained, anyio.current_time() - began, interrupts.count) == ([0.0], 30.0, 1)
    assert "waiting up to 30 s for requests in flight" in capsys.readouterr().err


@virtual_time
async def test_the_second_signal_cancels_at_once() -> None:
    began = anyio.current_time()
    async with handle_interrupts(SCREEN) as interrupts:
        interrupts.handle()
        interrupts.handle()
        await anyio.sleep_forever()
    assert anyio.current_time() == began


@virtual_time
async def test_the_third_signal_ends_the_process() -> None:
    codes: list[int] = []
    async with anyio.create_task_group() as group:
        interrupts = InterruptHandler(SCREEN, group, leave=codes.append)
        for _ in range(3):
            interrupts.handle()
        group.cancel_scope.cancel()
    assert codes == [130]


@virtual_time
async def test_a_block_that_ends_by_itself_returns_at_once_with_its_own_error() -> None:
    async with handle_interrupts(SCREEN) as interrupts:
        interrupts.group.start_soon(anyio.sleep_forever)
    with pytest.raises(LookupError, match="mine"):
        async with handle_interrupts(SCREEN):
            raise LookupError("mine")
