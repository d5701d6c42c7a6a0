"""What the commands print and answer; run in this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import click
import pytest
from support_cli import Ended, served

from outreach_async.cli.app import run
from outreach_async.cli.exits import code_of, line_of
from outreach_async.cli.options import Options
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
from outreach_async.fake import Behaviour, FakeService, HeaderAuth
from outreach_async.fake.faults import commit_then, drift, reset

KEY = "key_s3cr3t"
FAKE = ("--base-url", "fake:")


class Shell:
    """Runs the command in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ended:
        code = run(arguments)
        out, err = self._capsys.readouterr()
        return Ended(code, out, err)

    def json(self, *arguments: str) -> tuple[int, Any]:
        ended = self(*arguments, "--json")
        return ended.code, json.loads(ended.out.splitlines()[-1])


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    for name in ("OUTREACH_BASE_URL", "OUTREACH_WORKSPACE", "OUTREACH_OWNER_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Shell(capsys)


@pytest.fixture
def service() -> FakeService:
    service = FakeService()
    service.add_workspace("space_1", custom_fields=["Plan"])
    boxes = service.add_mailboxes("space_1", 3)
    service.add_campaign("space_1", id="camp_1", name="Spring", status="live", mailboxes=boxes, steps=[{"templates": []}, "A|B"])
    service.add_owner_key("space_1", key=KEY)
    return service


@pytest.fixture
def url(service: FakeService) -> Iterator[str]:
    with served(service) as url:
        yield url


@pytest.fixture
def there(url: str) -> tuple[str, ...]:
    return ("--base-url", url, "--workspace", "space_1", "--owner-key", KEY)


def saved(folder: Path, content: str) -> str:
    path = folder / "people.csv"
    path.write_text(content, encoding="utf-8")
    return str(path)


# Lists.


def test_a_list_is_tab_separated_lines_in_a_pipe(shell: Shell) -> None:
    ended = shell("campaigns", *FAKE)
    assert ended.code == 0
    assert ended.err == ""
    lines = [line.split("\t") for line in ended.out.splitlines()]
    assert lines[0][:3] == ["id", "status", "name"]
    assert {len(line) for line in lines} == {len(lines[0])}
    assert ["camp_spring", "live", "Spring launch"] in [line[:3] for line in lines]


@pytest.mark.parametrize(("command", "prefix", "count"), [("campaigns", "camp_", 5), ("mailboxes", "mailbox_", 214)])
def test_a_list_as_json_holds_the_wire_items_and_their_counts(shell: Shell, command: str, prefix: str, count: int) -> None:
    code, value = shell.json(command, *FAKE)
    assert code == 0
    assert all(item["id"].startswith(prefix) for item in value.pop("data"))
    assert value == {"count": count, "total_found": count, "repeats": 0, "missing": 0, "undecodable": 0}


def test_steps_show_a_line_for_each_template_and_for_a_step_without(shell: Shell, there: tuple[str, ...]) -> None:
    ended = shell("steps", "camp_1", *there)
    assert [line.split("\t")[0] + line.split("\t")[6] for line in ended.out.splitlines()] == ["ordertest_letter", "1", "2A", "2B"]
    code, value = shell.json("steps", "camp_1", *there)
    assert code == 0
    assert value["count"] == 2
    assert value["data"][1]["templates"][0]["test_letter"] == "A"
    assert {"days_left", "days_left_date", "days_left_display"} <= value.keys()


def test_fields_show_the_workspaces_own(shell: Shell, there: tuple[str, ...]) -> None:
    assert "custom_1\tPlan\t" in shell("fields", *there).out
    code, value = shell.json("fields", *there)
    assert code == 0
    assert value["count"] == len(value["data"]) == 37


def test_an_item_that_cannot_be_read_makes_a_list_incomplete(shell: Shell, service: FakeService, there: tuple[str, ...]) -> None:
    service.faults.script("list_campaigns", drift("data.name", None), drift("data.id", 7))
    ended = shell("campaigns", *there, "--json")
    assert ended.code == 3
    assert json.loads(ended.out)["undecodable"] == 1
    assert ended.err.startswith("outreach-async: campaigns: camp_1 cannot be read: $.data[0].name")
    assert "an item without id cannot be read" in shell("campaigns", *there).err


def test_items_that_no_page_shows_make_a_list_incomplete(shell: Shell, service: FakeService, there: tuple[str, ...]) -> None:
    service.faults.add(drift("total_found", 5), operation="list_mailboxes")
    ended = shell("mailboxes", *there)
    assert ended.code == 3
    assert ended.err == "outreach-async: mailboxes: the service counts 5, 2 of them are on no page\n"


# Import.

PEOPLE = "E-mail,First Name,plan\nann@a.example,Ann,Gold\nANN@a.example,Ann,\nbo@a.example,Bo,\n,Cy,\ndi@@a.example,Di,\nx\n"


def test_import_reports_every_row_in_the_outcome_it_had(
    shell: Shell, service: FakeService, there: tuple[str, ...], tmp_path: Path
) -> None:
    ended = shell("import", saved(tmp_path, PEOPLE), "--campaign", "camp_1", *there, "--json")
    assert ended.code == 3
    report = json.loads(ended.out)
    assert list(report) == ["rows", "outcomes", "uncertain", "seconds"]
    assert report["rows"] == sum(report["outcomes"].values()) == 6
    assert report["outcomes"] == {
        "added": 2,
        "skipped": 1,
        "overwriten": 0,
        "updated_missing_fields": 0,
        "rejected": 3,
        "not_applied": 0,
        "unknown": 0,
    }
    assert sorted(line.split(":")[1] for line in ended.err.splitlines()) == [" line 5", " line 6", " line 7"]
    ann = service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert ann["fields"] == {"first_name": "Ann", "custom_1": "Gold"}
    assert ann["campaigns"] == ["camp_1"]


def test_import_in_a_pipe_lists_every_undone_row_with_its_reason(shell: Shell, there: tuple[str, ...], tmp_path: Path) -> None:
    ended = shell("import", saved(tmp_path, "email\n" + "bad\n" * 30), *there)
    assert ended.out.count(": bad: rejected: create_contact: the service answered 422: email") == 30
    assert "rejected\t30\n" in ended.out
    assert "30 of 30 rows in " in ended.out


def test_import_takes_its_options_to_the_service(
    shell: Shell, service: FakeService, there: tuple[str, ...], tmp_path: Path
) -> None:
    service.add_contacts("space_1", [{"email": "ann@a.example", "first_name": "Old"}])
    path = saved(tmp_path, "Mail;Vorname;Rest\nann@a.example;Ann;z\nb@nowhere;Bo;z\n")
    arguments = ("--duplicates", "overwrite", "--no-strict", "--concurrency", "2")
    maps = ("--map", "Mail=email", "--map", "Vorname=first_name", "--map", "Rest=ignore")
    code, report = shell.json("import", path, *arguments, *maps, *there)
    assert code == 0
    assert (report["outcomes"]["added"], report["outcomes"]["overwriten"]) == (1, 1)
    ann = service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert ann["fields"] == {"first_name": "Ann"}


def test_import_says_that_lost_answers_leave_outcomes_uncertain(
    shell: Shell, service: FakeService, there: tuple[str, ...], tmp_path: Path
) -> None:
    service.faults.script("create_contact", commit_then(reset()))
    ended = shell("import", saved(tmp_path, "email\na@a.example\n"), *there)
    assert ended.code == 0
    assert "1 rows have an outcome that is not certain" in ended.out


@pytest.mark.parametrize(
    ("options", "code"),
    [(("--campaign", "camp_none"), 3), (("--workspace", "space_2"), 3), (("--owner-key", "key_other"), 77)],
)
def test_import_stops_at_a_refusal_that_concerns_every_row(
    shell: Shell, there: tuple[str, ...], tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    path = saved(tmp_path, "email\na@a.example\nb@a.example\nc@a.example\n")
    ended = shell("import", path, *there[:2], *_without(there[2:], options[0]), *options, "--concurrency", "1", "--json")
    assert ended.code == code
    assert json.loads(ended.out)["rows"] == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("outreach-async: the run stopped, for this concerns every row: ")


def _without(options: tuple[str, ...], name: str) -> tuple[str, ...]:
    pairs = zip(options[::2], options[1::2], strict=True)
    return tuple(part for pair in pairs if pair[0] != name for part in pair)


def test_a_dry_run_checks_every_row_and_asks_the_service_nothing(
    shell: Shell, service: FakeService, there: tuple[str, ...], tmp_path: Path
) -> None:
    path = saved(tmp_path, "email,title\na@a.example,x\n,y\nb@a.example\n")
    for connection in ((), there):
        ended = shell("import", path, "--dry-run", *connection, "--json")
        assert ended.code == 3
        report = json.loads(ended.out)
        assert report["dry_run"] is True
        assert report["rows"] == sum(report["outcomes"].values()) == 3
        assert (report["outcomes"]["not_applied"], report["outcomes"]["rejected"]) == (1, 2)
        assert [line.split(":")[1] for line in ended.err.splitlines()] == [" line 3", " line 4"]
    assert len(service.requests) == 0
    clean = shell("import", saved(tmp_path, "email\na@a.example\n"), "--dry-run")
    assert (clean.code, clean.out) == (0, "1 of 1 rows can be sent; nothing was created\n")


def test_a_dry_run_reads_the_workspaces_fields_if_a_column_needs_them(
    shell: Shell, service: FakeService, there: tuple[str, ...], tmp_path: Path
) -> None:
    path = saved(tmp_path, "email,Plan\na@a.example,x\n")
    assert shell("import", path, "--dry-run", *there).code == 0
    assert [request.operation for request in service.requests] == ["list_fields"]
    assert "unknown column 'Plan'" in shell("import", path, "--dry-run").err


# Audit.


def test_audit_exits_by_the_worst_finding(shell: Shell, service: FakeService, there: tuple[str, ...]) -> None:
    assert shell("audit", *there).code == 0
    service.add_mailbox("space_1", spf=False)
    ended = shell("audit", *there)
    assert ended.code == 1
    assert "OA101" in ended.out
    assert shell("audit", "--fail-on", "critical", *there).code == 0


def test_audit_as_json_is_the_report(shell: Shell, service: FakeService, there: tuple[str, ...]) -> None:
    service.add_mailbox("space_1", email="a@b.example", spf=False)
    code, value = shell.json("audit", *there)
    assert code == 1
    assert list(value) == ["version", "mailboxes", "unreadable", "findings", "scores"]
    assert (value["version"], value["mailboxes"], value["unreadable"]) == (1, 4, [])
    (finding,) = value["findings"]
    assert (finding["rule"], finding["severity"], finding["workspace"], finding["email"], finding["domain"]) == (
        "OA101",
        "error",
        "space_1",
        "a@b.example",
        "b.example",
    )


def test_an_unread_workspace_beats_findings(shell: Shell, there: tuple[str, ...]) -> None:
    code, value = shell.json("audit", *there, "--workspace", "space_none")
    assert code == 3
    assert (value["mailboxes"], value["unreadable"]) == (3, ["space_none"])


def test_audit_takes_workspaces_from_the_environment(shell: Shell, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTREACH_WORKSPACE", "space_1 space_2")
    monkeypatch.setenv("OUTREACH_BASE_URL", url)
    assert shell.json("audit")[1]["unreadable"] == ["space_2"]


def test_a_service_that_allows_nothing_exits_77(shell: Shell, service: FakeService, there: tuple[str, ...]) -> None:
    service.behaviour = attrs.evolve(Behaviour(), auth=HeaderAuth())
    assert shell("audit", *there).code == 77
    refused = shell("campaigns", *there)
    assert (refused.code, len(refused.err.splitlines())) == (77, 1)
    assert shell("campaigns", *there, "--header", f"Authorization: Bearer {KEY}").code == 0


def test_the_embedded_service_has_every_trouble_that_the_audit_knows(shell: Shell) -> None:
    code, value = shell.json("audit", *FAKE)
    assert code == 1
    assert {finding["rule"] for finding in value["findings"]} == {
        *("OA101", "OA102", "OA103", "OA104", "OA110", "OA120", "OA130", "OA141"),
    }
    assert {finding["workspace"] for finding in value["findings"]} == {"space_demo", "space_demo_eu"}
    assert value["mailboxes"] == 340
    assert max(score["score"] for score in value["scores"]["domains"].values()) == 100


# Demo.


def test_demo_as_json_holds_both_parts_and_exits_0(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTREACH_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    ended = shell("demo", "--json")
    assert (ended.code, ended.err) == (0, "")
    value = json.loads(ended.out)
    assert list(value) == ["import", "audit"]
    assert value["import"]["rows"] == sum(value["import"]["outcomes"].values()) == 3044
    assert value["import"]["outcomes"]["rejected"] == 86
    assert value["import"]["outcomes"]["skipped"] >= 150
    assert value["audit"]["mailboxes"] == 340
    assert value["audit"]["findings"]


# Options.


def test_shared_options_may_stand_on_either_side_and_the_later_wins(shell: Shell, url: str) -> None:
    before = shell("--base-url", url, "--workspace", "space_none", "--json", "campaigns", "--workspace", "space_1")
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
        (("campaigns", "--base-url", "http://a.example"), "workspace: expected a text starting with 'space_', got None"),
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


def test_a_wrong_row_map_is_refused_before_anything_is_sent(
    shell: Shell, service: FakeService, there: tuple[str, ...], tmp_path: Path
) -> None:
    path = saved(tmp_path, "email,Titel\na@a.example,x\n")
    for options, message in (
        ((), "unknown column 'Titel' (near: 'title'"),
        (("--map", "Titel"), "expected Column=code"),
        (("--map", "Titel=titel"), "no field of a contact"),
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
        (InvalidRequest("x"), 2),
        (StatusError("x", status_code=401), 77),
        (StatusError("x", status_code=403), 77),
        (StatusError("x", status_code=404), 1),
        (StatusError("x", status_code=307), 1),
        (StatusError("x", status_code=503), 3),
        (RateLimited("x", status_code=429), 3),
        (BulkStopped("x", status_code=404), 3),
        (BulkStopped("x", status_code=401), 77),
        (TransportError("x"), 3),
        (DeadlineExceeded("x"), 3),
        (UnexpectedResponse("x", status_code=200), 3),
        (OSError(98, "Address already in use"), 2),
    ],
)
def test_every_expected_error_has_its_exit_code(error: Exception, code: int) -> None:
    assert code_of(error) == code


def test_an_error_is_one_line_without_control_characters_or_keys() -> None:
    assert line_of(StatusError(f"a\nb\x1b[31m {KEY} \u202e")) == "outreach-async: a\\nb\\x1b[31m key_*** \\u202e"
    assert line_of(OSError(98, "Address already in use")) == "outreach-async: Address already in use"
    assert line_of(OSError(2, "No such file", "x.csv")) == "outreach-async: x.csv: No such file"
    assert line_of(OSError("odd")) == "outreach-async: odd"
    assert line_of(click.ClickException("odd")) == "outreach-async: odd"


def test_values_are_shown_as_people_write_them() -> None:
    assert [printable(value) for value in (None, True, False, 3, 51.130000000000003, "a\tb")] == [
        *("", "yes", "no", "3", "51.13", "a\\tb")
    ]
    assert without_keys(f"('{KEY}') owner_key_x") == "('key_***') owner_key_x"


def test_a_refusal_and_an_unreachable_service_are_told_apart(shell: Shell, service: FakeService, there: tuple[str, ...]) -> None:
    assert shell("steps", "camp_none", *there).code == 1
    assert shell("campaigns", "--base-url", "http://127.0.0.1:1", "--workspace", "space_1").code == 3
