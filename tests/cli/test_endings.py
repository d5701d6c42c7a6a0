"""Options, usage errors, messages and exit codes of the command, run in this process."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest
from support.cli import KEY, Served, Shell, run, save_contacts

FAKE = ("--base-url", "fake:")
BACKENDS = ("httpx", "httpx2", "aiohttp", "httptools")


# Options.


def test_shared_options_may_be_on_either_side_and_the_later_wins(served: Served) -> None:
    before = served(*served.options[:2], "--workspace", "space_none", "--json", "campaigns", "--workspace", "space_1")
    assert before.code == 0
    assert json.loads(before.out)["count"] == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_backend_reaches_the_service(served: Served, backend: str) -> None:
    assert served.json("fields", "--backend", backend, *served.options)[1]["count"] == 37


def test_a_backend_without_proxies_names_one_with_proxies(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://user:secret@proxy.example")
    done = shell("fields", "--backend", "httptools", "--base-url", "https://api.example", "--workspace", "space_1")
    assert (
        "got a proxy, which httptools does not support; pass --backend httpx or --backend aiohttp, or name the host in NO_PROXY"
        in " ".join(done.err.split())
    )
    assert "secret" not in done.err


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


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no device that is full")
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
