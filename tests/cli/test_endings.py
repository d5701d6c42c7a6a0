"""Options, usage errors, messages and exit codes of the command, run in this process."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import tomllib
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from errno import ECONNREFUSED
from functools import partial
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path
from ssl import SSLCertVerificationError, SSLError
from typing import Any

import anyio
import click
import pytest
from rich.console import Console
from support.cli import KEY, Served, Shell, run, save_contacts

from outreach_async._cli.connection import _client_arguments
from outreach_async._cli.files import explain_write_errors
from outreach_async._cli.messages import translate_arguments, wrap_error
from outreach_async._cli.output import Screen
from outreach_async._cli.process import exit_code, format_error, run_async
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

FAKE = ("--base-url", "fake:")
BACKENDS = ("httpx", "httpx2", "aiohttp", "httptools")
LONG = "x" * 260
"""A file name too long for the temporary file next to it."""


# Options.


def test_shared_options_may_be_on_either_side_and_the_later_wins(served: Served) -> None:
    before = served(*served.options[:2], "--workspace", "space_none", "--json", "campaigns", "--workspace", "space_1")
    assert before.code == 0
    assert json.loads(before.out)["count"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_reaches_the_service(served: Served, backend: str) -> None:
    assert served.json("fields", "--backend", backend, *served.options)[1]["count"] == 37


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_backend_allows_the_concurrency_of_the_command(backend: str) -> None:
    values = dict.fromkeys(("owner_key", "as_json", "timeout", "rate")) | {"workspaces": (), "headers": ()}
    options = Options.of({**values, "base_url": "http://127.0.0.1:1", "backend": backend}, {})
    transport: Any = _client_arguments(options, None, 200, writes=False)["transport"]
    await transport.aclose()
    assert transport.max_in_flight == 200


def test_a_backend_without_proxies_names_one_with_proxies(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example")
    done = shell("fields", "--backend", "httptools", "--base-url", "https://api.example", "--workspace", "space_1")
    assert (
        "got a proxy, which httptools does not support; pass --backend httpx or --backend aiohttp, or name the host in NO_PROXY"
        in " ".join(done.err.split())
    )
    assert "secret" not in done.err


def test_the_embedded_service_ignores_the_environment() -> None:
    defaults = dict.fromkeys(("base_url", "owner_key", "as_json", "backend", "timeout", "rate")) | {
        "workspaces": (),
        "headers": (),
    }
    around = {"OUTREACH_BASE_URL": "https://a.example", "OUTREACH_WORKSPACE": "space_9", "OUTREACH_OWNER_KEY": KEY}
    around["OUTREACH_RATE"] = "5"
    real, fake = Options.of(defaults, around), Options.of({**defaults, "base_url": "fake:"}, around)
    assert (real.base_url, real.workspaces, real.owner_key) == ("https://a.example", ("space_9",), KEY)
    assert (fake.base_url, fake.workspaces, fake.owner_key) == ("fake:", (), None)
    assert (real.rate, fake.rate) == (5.0, 5.0)  # a rate applies to any service
    assert KEY not in repr(real)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frobnicate",), "unknown command 'frobnicate'; the commands are audit, brief, campaigns, "),
        (("mailbox",), "unknown command 'mailbox'; did you mean 'mailboxes'? Try 'outreach-async --help'."),
        (("contacts", "creat"), "unknown command 'creat'; did you mean 'create'? Try 'outreach-async contacts --help'."),
        (("contacts",), "Missing command. Try 'outreach-async contacts --help'."),
        (("campaigns", "--colums", "all"), "--columns"),
        (("campaigns", "--workspace", "space_1"), "--base-url: missing; pass --base-url URL"),
        (("campaigns", "--workspace", "space_1", "--base-url", "nonsense"), "--base-url: expected a URL"),
        (("campaigns", "--base-url", "http://a.example"), "--workspace: missing; pass --workspace ID"),
        (("campaigns", *FAKE, "--timeout", "0"), "--timeout: expected more than 0 seconds, got 0; pass"),
        (("campaigns", *FAKE, "--header", "X"), "--header: expected 'Name: value'"),
        (("campaigns", *FAKE, "--header", ": X"), "--header: expected 'Name: value'"),
        (("campaigns", *FAKE, "--backend", "urllib"), "Invalid value for '--backend'"),
        (("campaigns", *FAKE, KEY), "Got unexpected extra argument (key_***)"),
        (("steps", *FAKE), "Missing argument 'CAMPAIGN'"),
        (("audit", "--base-url", "http://a.example"), "--workspace: missing; pass --workspace ID"),
        (("audit", *FAKE, "--fail-on", "doom"), "Invalid value for '--fail-on'"),
        (("import", "no-such-file.csv", *FAKE), "no-such-file.csv: No such file"),
        (("import", "x.csv", *FAKE, "--campaign", "space_1"), "--campaign: expected"),
        (("import", "x.csv", *FAKE, "--duplicates", "merge"), "Invalid value for '--duplicates'"),
        (("import", "x.csv", *FAKE, "--repeats", "first"), "--repeats first: needs a journal to store all rows before sending"),
        (("import", "x.csv", *FAKE, "--dry-run", "--results", "a"), "--results: with --dry-run, the only results are those of a"),
        (("import", "x.csv", *FAKE, "--resume"), "--resume: needs the journal of the run; pass --journal PATH"),
        (("import", "x.csv", *FAKE, "--earlier", "unknown"), "needs --journal; pass the path of the damaged or lost journal"),
        (("serve", "--port", "70000"), "Invalid value for '--port'"),
        (("serve", "--world", "no-such-file.json"), "--world no-such-file.json: No such file"),
        (("serve", "--world", __file__), "--world "),
        (("serve", "--behaviour", "lax"), "--behaviour: expected a file or one of documented, strict, lenient, got lax;"),
        (("serve", "--behaviour", __file__), "not TOML"),
        (("serve", "--seed", "x"), "Invalid value for '--seed'"),
        (("serve", "--host", "192.0.2.1"), "--host 192.0.2.1 --port 0: "),
    ],
)
def test_wrong_usage_is_one_line_and_exits_2(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    (line,) = shell.refused(*arguments).splitlines()
    assert line.startswith("outreach-async: ")
    assert message in line
    assert KEY not in line


def test_the_key_of_the_embedded_service_is_never_sent_to_a_real_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTREACH_OWNER_KEY")
    err = served.refused("import", served.save("email\na@a.example\n"), *served.options)
    assert "--owner-key: expected a string starting with 'key_', got nothing; pass --owner-key or set OUTREACH_OWNER_KEY" in err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--base-url: missing; pass --base-url URL"),
        (("--base-url", "http://a.example"), "--owner-key: expected a string starting with 'key_', got nothing"),
        (("--base-url", "http://a.example", "--owner-key", KEY), "--workspace: expected a string starting with 'space_', "),
        ((*FAKE, "--rejects", f"{LONG}.csv"), f"--rejects {LONG}.csv: File name too long; "),
        ((*FAKE, "--rejects", "link.csv"), "--rejects link.csv: No such file or directory; "),
        ((*FAKE, "--save-mapping", "link.csv"), "--save-mapping link.csv: No such file or directory; "),
        ((*FAKE, "--journal", "link.csv"), "--journal link.csv: No such file or directory; "),
        ((*FAKE, "--journal", "run.db"), "--journal run.db: the journal exists; resume its run with --resume"),
    ],
)
def test_what_a_run_lacks_is_reported_before_the_file_is_read(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("link.csv").symlink_to("no-such-folder/new.csv")
    Path("run.db").write_bytes(b"SQLite format 3\0")
    before = sorted(tmp_path.iterdir())
    ended = shell("import", "no-such-file.csv", *options)
    assert (ended.code, ended.out, "no-such-file" in ended.err) == (2, "", False)
    assert message in ended.err
    assert sorted(tmp_path.iterdir()) == before


def test_an_invalid_row_map_is_refused_before_anything_is_sent(served: Served) -> None:
    path = served.save("email,Titel\na@a.example,x\n")
    for options, message in (
        ((), "--map Titel=title  # ambiguous; such as 'x'; or ignore"),
        (("--map", "Titel"), "expected Column=code"),
        (("--map", "Titel=titel"), "has the unknown code 'titel'"),
    ):
        assert message in served.refused("import", path, *options, *served.options)
    assert all(request.operation == "list_fields" for request in served.service.requests)


def test_no_arguments_print_the_help(shell: Shell) -> None:
    assert shell() == shell("--help")


# Errors and exit codes.


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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("audit", *FAKE, "--output", f"{LONG}.json"), ".json: File name too long; "),
        (("import", "{people}", *FAKE, "--rejects", f"{LONG}.json"), ".json: File name too long; "),
        (("import", "{people}", *FAKE, "--save-mapping", f"{LONG}.toml"), ".toml: File name too long; "),
        (("audit", *FAKE, "--policy", "/no/p.toml"), "--policy /no/p.toml: No such file or directory; "),
        (("audit", *FAKE, "--compare", "{people}"), "people.csv: not a JSON report; pass one "),
        (("audit", *FAKE, "--compare", "{nan}"), "nan.json: not a JSON report; pass one written by 'audit --json'."),
        (("audit", *FAKE, "--compare", "{other}"), "--compare other.json: report: expected audit JSON of version 1"),
        (("audit", *FAKE, "--compare", "{long}"), "long.json: not a JSON report; pass one written by 'audit --json'."),
        (("audit", *FAKE, "--output", "a.pdf"), "--output a.pdf: expected a name ending in one of .txt, .json, "),
        (("audit", "--explain", "OA999"), "--explain: expected the id of a rule, such as OA120, got 'OA999'; did you mean '"),
        (("serve", "--behaviour", "/"), "--behaviour /: Is a directory; "),
        (("serve", "--behaviour", "{knob}"), "knob.toml: a behaviour has no field 'nope'"),
        (("report", "/no/run.db"), "JOURNAL: "),
        (("import", "{people}", *FAKE, "--rejects", "."), "--rejects .: expected a file, got a folder"),
        (("import", "{people}", *FAKE, "--rejects", "no/r.csv"), "the folder 'no' does not exist; create it first")
    ]
)  # fmt: skip
def test_an_error_names_the_option_and_never_a_temporary_file(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], message: str
) -> None:
    people = save_contacts(tmp_path, "email\na@a.example\nbad\n")
    names = {"knob": "knob.toml", "nan": "nan.json", "long": "long.json", "other": "other.json"}
    (tmp_path / "other.json").write_text('{"rows": 1}', encoding="utf-8")
    for name, text in (("knob", "nope = 1\n"), ("nan", '{"mailboxes": NaN}'), ("long", f'{{"mailboxes": {"1" * 5000}}}')):
        (tmp_path / names[name]).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    ended = shell(*(argument.format(people=people, **names) for argument in arguments))
    assert (ended.code, ".tmp" in ended.err, "[Errno" in ended.err) == (2, False, False)
    assert message in ended.err.splitlines()[-1]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
def test_a_full_disk_is_reported_with_the_option(shell: Shell, tmp_path: Path) -> None:
    ended = shell("import", save_contacts(tmp_path, "email\na@a.example\n"), *FAKE, "--rejects", "/dev/full", "--dry-run")
    message = "--rejects /dev/full: No space left on device; free disk space, or pass another path that can be written"
    assert (ended.code, ended.err) == (2, f"outreach-async: {message}\n")


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


class DefectiveOutput(TextIOWrapper):
    """A stream that raises an exception that no command expects, once, when it is flushed after its reconfiguration."""

    is_defective = False

    def reconfigure(self, **options: Any) -> None:
        super().reconfigure(**options)
        self.is_defective = True

    def flush(self) -> None:
        if self.is_defective:
            self.is_defective = False
            raise RuntimeError("a defect")
        super().flush()


def test_an_unexpected_exception_keeps_its_traceback() -> None:
    with redirect_stdout(DefectiveOutput(BytesIO())), pytest.raises(RuntimeError, match="a defect"):
        run(["--help"])
