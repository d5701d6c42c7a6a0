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
