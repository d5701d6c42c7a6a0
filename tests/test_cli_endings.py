"""Options, usage, errors and exit codes of the command; run in this process."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from io import StringIO
from pathlib import Path

import anyio
import click
import pytest
from rich.console import Console
from support_cli import KEY, Shell, saved

from outreach_async.cli.exits import code_of, line_of
from outreach_async.cli.options import Options
from outreach_async.cli.running import run_async
from outreach_async.cli.screen import Screen
from outreach_async.cli.text import printable, without_keys
from outreach_async.errors import (
    BulkStopped,
    DeadlineExceeded,
    InvalidRequest,
    RateLimited,
    StatusError,
    TransportError,
    UnexpectedResponse,
)
from outreach_async.fake import FakeService

FAKE = ("--base-url", "fake:")


# Options.


def test_shared_options_may_stand_on_either_side_and_the_later_wins(shell: Shell, there: tuple[str, ...]) -> None:
    before = shell(*there[:2], "--workspace", "space_none", "--json", "campaigns", "--workspace", "space_1")
    assert before.code == 0
    assert json.loads(before.out)["count"] == 1


@pytest.mark.parametrize("backend", ["httpx", "httpx2", "aiohttp"])
def test_every_backend_reaches_the_service(shell: Shell, there: tuple[str, ...], backend: str) -> None:
    assert shell.json("fields", "--backend", backend, *there)[1]["count"] == 37


def test_the_embedded_service_takes_nothing_from_the_environment() -> None:
    given = dict.fromkeys(("base_url", "owner_key", "as_json", "backend", "timeout")) | {"workspaces": (), "headers": ()}
    around = {"OUTREACH_BASE_URL": "https://a.example", "OUTREACH_WORKSPACE": "space_9", "OUTREACH_OWNER_KEY": KEY}
    real, fake = Options.of(given, around), Options.of({**given, "base_url": "fake:"}, around)
    assert (real.base_url, real.workspaces, real.owner_key) == ("https://a.example", ("space_9",), KEY)
    assert (fake.base_url, fake.workspaces, fake.owner_key) == ("fake:", (), None)
    assert KEY not in repr(real)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("frobnicate",), "No such command 'frobnicate'"),
        (("campaigns",), "No base URL: give --base-url URL"),
        (("campaigns", "--base-url", "nonsense"), "base_url"),
        (("campaigns", "--base-url", "http://a.example"), "workspace: expected a string starting with 'space_', got None"),
        (("campaigns", *FAKE, "--workspace", "camp_1"), "workspace: expected"),
        (("campaigns", *FAKE, "--workspace", "space_1", "--workspace", "space_2"), "give --workspace once"),
        (("campaigns", *FAKE, "--timeout", "0"), "timeout: expected more than 0 seconds"),
        (("campaigns", *FAKE, "--header", "X"), "--header: expected 'Name: value'"),
        (("campaigns", *FAKE, "--header", ": X"), "--header: expected 'Name: value'"),
        (("campaigns", *FAKE, "--backend", "urllib"), "Invalid value for '--backend'"),
        (("campaigns", *FAKE, KEY), "Got unexpected extra argument (key_***)"),
        (("steps", *FAKE), "Missing argument 'CAMPAIGN'"),
        (("steps", *FAKE, "mailbox_1"), "campaign: expected"),
        (("audit", "--base-url", "http://a.example"), "No workspace: give --workspace ID"),
        (("audit", *FAKE, "--fail-on", "doom"), "Invalid value for '--fail-on'"),
        (("import", "no-such-file.csv", *FAKE), "no-such-file.csv: No such file"),
        (("import", __file__, *FAKE), "unknown column "),
        (("import", "x.csv", *FAKE, "--campaign", "space_1"), "campaign: expected"),
        (("import", "x.csv", *FAKE, "--duplicates", "merge"), "Invalid value for '--duplicates'"),
        (("serve", "--port", "70000"), "Invalid value for '--port'"),
        (("serve", "--world", "no-such-file.json"), "no-such-file.json: No such file"),
        (("serve", "--world", __file__), "--world "),
        (("serve", "--behaviour", "lax"), "--behaviour lax: no file, and no preset; those are documented, strict, lenient."),
        (("serve", "--behaviour", __file__), "not TOML"),
        (("serve", "--seed", "x"), "Invalid value for '--seed'"),
        (("serve", "--host", "192.0.2.1"), ""),
    ],
)
def test_wrong_usage_is_one_clear_line_and_exits_2(shell: Shell, arguments: tuple[str, ...], message: str) -> None:
    ended = shell(*arguments)
    assert (ended.code, ended.out) == (2, "")
    (line,) = ended.err.splitlines()
    assert line.startswith("outreach-async: ")
    assert message in line
    assert KEY not in line


def test_a_real_service_is_never_given_the_embedded_ones_key(shell: Shell, there: tuple[str, ...], tmp_path: Path) -> None:
    ended = shell("import", saved(tmp_path, "email\na@a.example\n"), *there[:4])
    assert (ended.code, ended.out) == (2, "")
    assert "owner_key: expected a string starting with 'key_', got None" in ended.err


def test_a_wrong_row_map_is_refused_before_anything_is_sent(
    shell: Shell, service: FakeService, there: tuple[str, ...], tmp_path: Path
) -> None:
    path = saved(tmp_path, "email,Titel\na@a.example,x\n")
    for options, message in (
        ((), "unknown column 'Titel' (similar: 'title'"),
        (("--map", "Titel"), "expected Column=code"),
        (("--map", "Titel=titel"), "has the unknown code 'titel'"),
    ):
        ended = shell("import", path, *options, *there)
        assert (ended.code, len(ended.err.splitlines())) == (2, 1)
        assert message in ended.err
    assert all(request.operation == "list_fields" for request in service.requests)


def test_help_and_version_exit_0(shell: Shell) -> None:
    assert shell().out == shell("--help").out
    assert "Exit codes: 0 clean" in shell("--help").out
    assert shell("import", "--help").code == 0
    assert shell("--version").out.startswith("outreach_async 0.")


# Endings.


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (click.UsageError("x"), 2),
        (KeyboardInterrupt(), 130),
        (InvalidRequest("x"), 2),
        (StatusError("x", status_code=401), 77),
        (StatusError("x", status_code=403), 77),
        (StatusError("x", status_code=404), 1),
        (StatusError("x", status_code=307), 1),
        (StatusError("x", status_code=503), 3),
        (StatusError("x", status_code=408), 3),
        (StatusError("x", status_code=501), 1),
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
    assert code_of(error) == code


def test_an_error_is_one_line_without_control_characters_or_keys() -> None:
    assert line_of(StatusError(f"a\nb\x1b[31m {KEY} \u202e")) == "outreach-async: a\\nb\\x1b[31m key_*** \\u202e"
    assert line_of(OSError(98, "Address already in use")) == "outreach-async: Address already in use"
    assert line_of(OSError(2, "No such file", "x.csv")) == "outreach-async: x.csv: No such file"
    assert line_of(KeyboardInterrupt()) == "outreach-async: interrupted"
    assert line_of(OSError("odd")) == "outreach-async: odd"
    assert line_of(click.ClickException("odd")) == "outreach-async: odd"


def test_values_are_shown_as_people_write_them() -> None:
    assert [printable(value) for value in (None, True, False, 3, 51.130000000000003, "a\tb")] == [
        *("", "yes", "no", "3", "51.13", "a\\tb")
    ]
    assert without_keys(f"('{KEY}') owner_key_x") == "('key_***') owner_key_x"


def test_what_the_service_refuses_exits_1(shell: Shell, there: tuple[str, ...]) -> None:
    ended = shell("steps", "camp_none", *there)
    assert (ended.code, ended.err) == (1, "outreach-async: list_steps: the service answered 404: there is no such campaign\n")


async def signalled(number: signal.Signals) -> None:
    os.kill(os.getpid(), number)
    await anyio.sleep_forever()


def test_ctrl_c_and_sigterm_cancel_what_runs() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
        run_async(partial(signalled, signal.SIGINT))
    assert run_async(partial(signalled, signal.SIGTERM)) == 130
    assert run_async(partial(signalled, signal.SIGTERM), terminated=0) == 0
    assert signal.getsignal(signal.SIGTERM) is before


# A terminal.


def test_a_terminal_shows_what_is_said_and_never_obeys_it() -> None:
    shown = StringIO()
    screen = Screen(as_json=False, console=Console(file=shown, force_terminal=True, width=60, color_system=None))
    screen.table(("name", "sent"), [["[red]\x1b[2J", 3], ["b", 14]])
    screen.say("[bold]x")
    screen.footer("2 things")
    screen.result({})
    lines = [line.split() for line in shown.getvalue().splitlines() if line.strip()]
    assert lines[0] == ["name", "sent"]
    assert lines[2:] == [["[red]\\x1b[2J", "3"], ["b", "14"], ["[bold]x"], ["2", "things"]]
