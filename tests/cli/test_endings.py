"""Options, usage errors, messages and exit codes of the command, and output that is lost."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any, Final, TextIO

import pytest
from support.certificates import certificates
from support.cli import COMMAND, KEY, Served, Shell, run, save_contacts, start_command, wait_for_end
from support.listener import Listener, refused_port, serve

FAKE = ("--base-url", "fake:")
HAS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
BACKENDS = ("auto", "sockets", "httpx", "httpx2", "aiohttp")


# Options.


def test_shared_options_may_be_on_either_side_and_the_later_wins(served: Served) -> None:
    before = served(*served.options[:2], "--workspace", "space_none", "--json", "campaigns", "--workspace", "space_1")
    assert before.code == 0
    assert json.loads(before.out)["count"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_reaches_the_service(served: Served, backend: str) -> None:
    assert served.json("fields", "--backend", backend, *served.options)[1]["count"] == 37


@pytest.mark.parametrize(
    ("proxied", "transport"), [(False, "<SocketTransport to {url}>"), (True, "<HttpxTransport to {url} by httpx>")]
)
def test_the_automatic_backend_is_logged_with_its_reason(
    served: Served, proxied: bool, transport: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = "http://service.example" if proxied else served.options[1]
    if proxied:
        monkeypatch.setenv("http_proxy", served.options[1])
    with caplog.at_level("DEBUG", "outreach_async"):  # as with --verbose
        served("fields", "--base-url", url, *served.options[2:])
    reason = f"because the environment sets {'a' if proxied else 'no'} proxy for this address"
    assert f"backend: {transport.format(url=url)}, {reason}" in caplog.messages


def test_a_backend_of_an_option_is_logged_with_the_option(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", "outreach_async"):
        served("fields", "--backend", "aiohttp", *served.options)
    assert f"backend: <AiohttpTransport to {served.options[1]}>, from --backend" in caplog.messages


def test_a_backend_without_proxies_names_one_with_proxies(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example")
    done = shell("fields", "--backend", "sockets", "--base-url", "https://api.example", "--workspace", "space_1")
    remedy = "pass --backend httpx or --backend aiohttp, or name the host in NO_PROXY"
    assert f"got a proxy, which SocketTransport does not support; {remedy}" in " ".join(done.err.split())
    assert "secret" not in done.err


def test_a_redirect_names_the_option_that_follows_it(shell: Shell) -> None:
    answer = b"HTTP/1.1 301 Moved\r\nlocation: https://api.example/v1%b\r\ncontent-length: 0\r\n\r\n"
    target = b"/workspaces/space_1/all-fields"
    for location, remedy in ((target, "pass --base-url https://api.example/v1"), (b"/", "check --base-url or OUTREACH_BASE_URL")):
        with Listener(serve(answer % location)) as service:
            done = shell("fields", "--base-url", service.url, "--workspace", "space_1")
        assert done.err.endswith(f", which is not followed; {remedy}\n")


def test_a_proxy_and_an_unknown_issuer_have_remedies_of_their_own(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", f"http://user:secret@localhost:{refused_port()}")
    arguments = ("--timeout", "5", "fields", "--workspace", "space_1")
    assert shell(*arguments, "--base-url", "https://api.example").err.endswith(
        "; check this proxy, or name the host in NO_PROXY to use none\n"
    )
    with Listener(serve(), tls=certificates().server) as service:
        done = shell(*arguments, "--base-url", f"https://localhost:{service.port}")
    assert "the certificate is not trusted (unable to get local issuer certificate); to trust its issuer, set SSL" in done.err
    assert done.err.endswith("with the certificate of the issuer\n")


def test_the_embedded_service_ignores_the_environment(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    around = {"BASE_URL": "https://a.example", "WORKSPACE": "space_9", "OWNER_KEY": KEY, "RATE": "5"}
    for name, value in around.items():
        monkeypatch.setenv(f"OUTREACH_{name}", value)
    names = ("base_url", "workspace", "owner_key", "rate")
    real, fake = ([shell.json("config", "show", *each)[1]["values"][name]["value"] for name in names] for each in ((), FAKE))
    assert real == ["https://a.example", "space_9", "***", 5.0]
    assert fake == ["fake:", None, None, 5.0]  # a rate applies to any service


def test_the_key_of_the_embedded_service_is_never_sent_to_a_real_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTREACH_OWNER_KEY")
    err = served.refused("import", served.save("email\na@a.example\n"), *served.options)
    assert "--owner-key: expected a string starting with 'key_', got nothing; pass --owner-key or set OUTREACH_OWNER_KEY" in err


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


@HAS_FULL
def test_a_full_disk_is_reported_with_the_option(shell: Shell, tmp_path: Path) -> None:
    ended = shell("import", save_contacts(tmp_path, "email\na@a.example\n"), *FAKE, "--rejects", "/dev/full", "--dry-run")
    message = "--rejects /dev/full: No space left on device; free disk space, or pass another path that can be written"
    assert (ended.code, ended.err) == (2, f"outreach-async: {message}\n")


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


# Output that is lost: a full, a closed or an unread stdout, and a process with few descriptors.

AT_DEMO: Final = (*FAKE, "--workspace", "space_demo")


def unread() -> TextIO:
    reader, writer = os.pipe()
    os.close(reader)
    return os.fdopen(writer, "w", encoding="utf-8")


STREAMS: dict[str, tuple[Callable[[], TextIO | None], str]] = {
    "full": (lambda: os.fdopen(os.open("/dev/full", os.O_WRONLY), "w", encoding="utf-8"), "No space left on device"),
    "unread": (unread, "Broken pipe"),
    "closed": (lambda: None, "Bad file descriptor"),
}
SLOW: Final = (pytest.mark.thorough, pytest.mark.covers)
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "contact": (
        ("contacts", "create", *AT_DEMO, "--owner-key", "key_demo", "--email", "a@a.example"),
        "; the contact: added contact_",
    ),
    "import": (("import", "{people}", *AT_DEMO, "--owner-key", "key_demo", "--json"), "; the rows of the run: 1 added"),
    "file": (("config", "init", "--config", "{folder}/new.toml"), "; Written: "),
    "audit": (("audit", *AT_DEMO, "--output", "{folder}/audit.json"), "; Written: "),
    "nothing": (("mailboxes", *AT_DEMO), ""),
    "report": (("audit", *AT_DEMO, "--format", "csv"), ""),
    "version": (("--version",), ""),
    "completion": (("completion", "bash"), ""),
}


@HAS_FULL
@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize(
    "command", [pytest.param(name, marks=SLOW if each[0][0] == "audit" else ()) for name, each in COMMANDS.items()]
)
def test_a_command_without_stdout_says_on_stderr_what_it_has_changed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, command: str, stream: str
) -> None:
    arguments, applied = COMMANDS[command]
    people = save_contacts(tmp_path, "email\na@a.example\n")
    make, reason = STREAMS[stream]
    with redirect_stdout(make()):
        code = run([argument.format(people=people, folder=tmp_path) for argument in arguments])
        sys.stdout.close()
    if stream == "unread" and not applied:  # such as `mailboxes | head`
        assert (code, capsys.readouterr().err) == (141, "")
        return
    assert code == 3
    assert capsys.readouterr().err.startswith(f"outreach-async: standard output: cannot be written ({reason}){applied}")


@HAS_FULL
@pytest.mark.parametrize("flag", ["--results", "--rejects"])
@pytest.mark.parametrize("way", [(), ("--journal", "{folder}/run.db"), ("--ledger", "{folder}/ledger", "--changed", "ignore")])
def test_a_file_that_cannot_be_written_after_rows_were_sent_is_no_wrong_usage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, flag: str, way: tuple[str, ...]
) -> None:
    people = save_contacts(tmp_path, "email\na@a.example\n")
    options = ("--owner-key", "key_demo", *(each.format(folder=tmp_path) for each in way), flag, "/dev/full")
    assert run(["import", str(people), *AT_DEMO, *options]) == 3
    error = capsys.readouterr().err
    assert error.startswith(f"outreach-async: {flag} /dev/full: No space left on device; ")
    assert error.endswith("; the rows of the run: 1 added\n")


@HAS_FULL
@pytest.mark.parametrize(("file", "code"), [("people.csv", 3), ("missing.csv", 2)])
def test_the_exit_code_is_the_same_if_stderr_is_full(tmp_path: Path, file: str, code: int) -> None:
    save_contacts(tmp_path, "email\na@a.example\n")
    full = STREAMS["full"][0]
    with redirect_stdout(full()), redirect_stderr(full()):
        assert run(["import", str(tmp_path / file), *AT_DEMO, "--owner-key", "key_demo"]) == code
        sys.stdout.close()
        sys.stderr.close()


@pytest.mark.nightly
def test_an_import_with_few_descriptors_sends_every_row(served: Served, tmp_path: Path) -> None:
    people = save_contacts(tmp_path, "\n".join(["email", *(f"user{number}@a.example" for number in range(200))]))
    limited = ["sh", "-c", 'ulimit -n 40; exec "$@"', "sh", *COMMAND]
    done = wait_for_end(start_command("import", str(people), *served.options, "--owner-key", KEY, "--no-strict", command=limited))
    assert (done.code, [line for line in done.err.splitlines() if "too many open files" not in line]) == (0, [])
    assert "200 of 200 rows" in done.out
