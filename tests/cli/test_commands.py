"""The output and exit codes of the commands, run in this process."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest
from support.cli import KEY, Shell, save_contacts

from outreach_async.fake import Behaviour, FakeService, HeaderAuth
from outreach_async.fake.faults import commit_then, drift, reset

FAKE = ("--base-url", "fake:")


# Lists.


def test_a_list_in_a_pipe_is_tab_separated(shell: Shell) -> None:
    ended = shell("campaigns", *FAKE)
    assert ended.code == 0
    assert ended.err == ""
    lines = [line.split("\t") for line in ended.out.splitlines()]
    assert lines[0][:3] == ["id", "status", "name"]
    assert {len(line) for line in lines} == {len(lines[0])}
    assert ["camp_spring", "live", "Spring launch"] in [line[:3] for line in lines]


@pytest.mark.parametrize(("command", "prefix", "count"), [("campaigns", "camp_", 5), ("mailboxes", "mailbox_", 214)])
def test_a_list_as_json_contains_the_wire_items_and_their_counts(shell: Shell, command: str, prefix: str, count: int) -> None:
    code, value = shell.json(command, *FAKE)
    assert code == 0
    assert all(item["id"].startswith(prefix) for item in value.pop("data"))
    assert value == {"count": count, "total_found": count, "repeats": 0, "missing": 0, "undecodable": 0}


def test_steps_has_a_line_for_each_template_and_for_a_step_without_one(
    shell: Shell, service: FakeService, server_options: tuple[str, ...]
) -> None:
    def lines() -> list[str]:
        ended = shell("steps", "camp_1", "--columns", "order,test_letter", *server_options[:2])
        return ended.out.replace("\t", "").splitlines()

    assert lines() == ["ordertest_letter", "1A", "2A", "2B"]
    service.faults.script("list_steps", drift("data.templates", []))
    assert lines() == ["ordertest_letter", "1", "2"]
    code, value = shell.json("steps", "camp_1", *server_options[:2])
    assert code == 0
    assert value["count"] == 2
    assert value["data"][1]["templates"][0]["test_letter"] == "A"
    assert {"days_left", "days_left_date", "days_left_display"} <= value.keys()


def test_fields_lists_the_fields_of_the_workspace(shell: Shell, server_options: tuple[str, ...]) -> None:
    assert "custom_1\tPlan\t" in shell("fields", *server_options).out
    code, value = shell.json("fields", *server_options)
    assert code == 0
    assert value["count"] == len(value["data"]) == 37


def test_an_unreadable_item_makes_a_list_incomplete(shell: Shell, service: FakeService, server_options: tuple[str, ...]) -> None:
    service.faults.script("list_campaigns", drift("data.name", None), drift("data.id", 7))
    ended = shell("campaigns", *server_options, "--json")
    assert ended.code == 3
    assert json.loads(ended.out)["undecodable"] == 1
    assert ended.err.startswith("outreach-async: campaigns: cannot read camp_1: $.data[0].name")
    assert "cannot read an item without an id: " in shell("campaigns", *server_options).err


def test_items_that_no_page_shows_make_a_list_incomplete(
    shell: Shell, service: FakeService, server_options: tuple[str, ...]
) -> None:
    service.faults.add(drift("total_found", 5), operation="list_mailboxes")
    ended = shell("mailboxes", *server_options)
    assert ended.code == 3
    assert ended.err == "outreach-async: the service reports 2 more mailboxes than it listed\n"


# Import.


def test_json_lists_the_first_100_failed_rows(shell: Shell, server_options: tuple[str, ...], tmp_path: Path) -> None:
    path = save_contacts(tmp_path, "E-mail\nann@a.example\n" + "@\n" * 110 + "bo@a.example\n")
    code, report = shell.json("import", path, *server_options)
    assert (code, report["outcomes"]["rejected"], len(report["failures"])) == (3, 110, 100)


PEOPLE = "E-mail,First Name,plan\nann@a.example,Ann,Gold\nANN@a.example,Ann,\nbo@a.example,Bo,\n,Cy,\ndi@@a.example,Di,\nx\n"


def test_import_reports_the_outcome_of_every_row(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    ended = shell("import", save_contacts(tmp_path, PEOPLE), "--campaign", "camp_1", *server_options, "--json")
    assert ended.code == 3
    report = json.loads(ended.out)
    assert list(report) == ["rows", "outcomes", "uncertain", "repeats", "seconds", "failures"]
    assert report["rows"] == sum(report["outcomes"].values()) == 6
    assert report["outcomes"] == {
        "added": 2,
        "skipped": 1,
        "overwriten": 0,
        "updated_missing_fields": 0,
        "rejected": 3,
        "not_applied": 0,
        "unknown": 0,
        "unchanged": 0,
    }
    assert sorted(line.split(":")[1] for line in ended.err.splitlines()) == [" line 5", " line 6", " line 7"]
    ann = service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert ann["fields"] == {"first_name": "Ann", "custom_1": "Gold"}
    assert ann["campaigns"] == ["camp_1"]


def test_import_in_a_pipe_lists_every_failed_row_with_its_reason(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    ended = shell("import", save_contacts(tmp_path, "email\n" + "bad\n" * 30), *server_options)
    assert ended.out.count(": bad: rejected: create_contact: the service answered 422: email") == 30
    assert "rejected\t30\n" in ended.out
    assert "30 of 30 rows in " in ended.out


def test_import_passes_its_options_to_the_service(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    service.add_contacts("space_1", [{"email": "ann@a.example", "first_name": "Old"}])
    path = save_contacts(tmp_path, "Mail;Vorname;Rest\nann@a.example;Ann;z\nb@nowhere;Bo;z\n")
    arguments = ("--duplicates", "overwrite", "--no-strict", "--concurrency", "2")
    maps = ("--map", "Mail=email", "--map", "Vorname=first_name", "--map", "Rest=ignore")
    code, report = shell.json("import", path, *arguments, *maps, *server_options)
    assert code == 0
    assert (report["outcomes"]["added"], report["outcomes"]["overwriten"]) == (1, 1)
    ann = service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert ann["fields"] == {"first_name": "Ann"}


def test_import_says_that_lost_responses_leave_outcomes_uncertain(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    service.faults.script("create_contact", commit_then(reset()))
    ended = shell("import", save_contacts(tmp_path, "email\na@a.example\n"), *server_options)
    assert ended.code == 0
    assert "uncertain outcomes: 1 (a response was lost or inconclusive)" in ended.out


@pytest.mark.parametrize(
    ("options", "code"),
    [(("--campaign", "camp_none"), 3), (("--workspace", "space_2"), 3), (("--owner-key", "key_other"), 77)],
)
def test_import_stops_at_a_refusal_of_the_whole_run(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    path = save_contacts(tmp_path, "email\na@a.example\nb@a.example\nc@a.example\n")
    ended = shell(
        "import", path, *server_options[:2], *_without(server_options[2:], options[0]), *options, "--concurrency", "1", "--json"
    )
    assert ended.code == code
    assert json.loads(ended.out)["rows"] == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("outreach-async: run stopped: this error affects every row: ")


def _without(options: tuple[str, ...], name: str) -> tuple[str, ...]:
    pairs = zip(options[::2], options[1::2], strict=True)
    return tuple(part for pair in pairs if pair[0] != name for part in pair)


def test_rows_queued_behind_a_refused_one_are_counted_and_the_error_shown_once(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path = save_contacts(tmp_path, "email\n" + "a@a.example\n" * 100)
    ended = shell("import", path, *server_options, "--campaign", "camp_none", "--concurrency", "2")
    assert ended.code == 3
    assert "rejected\t0\n" in ended.out
    assert "not_applied\t0\n" not in ended.out
    assert ": a@a.example: not_applied" not in ended.out
    assert ended.out.endswith("Importing the file again is safe: the service detects duplicates.\n")
    assert ended.err.count("\n") == 1


def test_a_dry_run_checks_every_row_and_sends_no_request(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path = save_contacts(tmp_path, "email,title\na@a.example,x\n,y\nb@a.example\n")
    for connection in ((), server_options):
        ended = shell("import", path, "--dry-run", *connection, "--json")
        assert ended.code == 3
        report = json.loads(ended.out)
        assert report["dry_run"] is True
        assert report["rows"] == sum(report["outcomes"].values()) == 3
        assert (report["outcomes"]["not_applied"], report["outcomes"]["rejected"]) == (1, 2)
        assert [line.split(":")[1] for line in ended.err.splitlines()] == [" line 3", " line 4"]
    assert len(service.requests) == 0
    clean = shell("import", save_contacts(tmp_path, "email\na@a.example\n"), "--dry-run")
    assert (clean.code, clean.out) == (0, "1 of 1 rows can be sent; nothing was created\n")


def test_a_dry_run_reads_the_fields_of_the_workspace_if_a_column_needs_them(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path
) -> None:
    path = save_contacts(tmp_path, "email,Plan\na@a.example,x\n")
    assert shell("import", path, "--dry-run", *server_options).code == 0
    assert [request.operation for request in service.requests] == ["list_fields"]
    assert "--map Plan=CODE  # such as 'x'; or ignore\n" in shell("import", path, "--dry-run").err


# Audit.


def test_audit_exits_by_the_worst_finding(shell: Shell, service: FakeService, server_options: tuple[str, ...]) -> None:
    assert shell("audit", *server_options).code == 0
    service.add_mailbox("space_1", spf=False)
    ended = shell("audit", *server_options)
    assert ended.code == 1
    assert "OA101" in ended.out
    assert shell("audit", "--fail-on", "critical", *server_options).code == 0


def test_audit_as_json_is_the_report(shell: Shell, service: FakeService, server_options: tuple[str, ...]) -> None:
    service.add_mailbox("space_1", email="a@b.example", spf=False)
    code, value = shell.json("audit", *server_options)
    assert code == 1
    assert list(value)[:5] == ["version", "mailboxes", "unreadable", "findings", "scores"]
    assert (value["version"], value["mailboxes"], value["unreadable"]) == (1, 4, [])
    finding = next(each for each in value["findings"] if each["rule"] == "OA101")
    assert (finding["rule"], finding["severity"], finding["workspace"], finding["email"], finding["domain"]) == (
        "OA101",
        "error",
        "space_1",
        "a@b.example",
        "b.example",
    )


def test_an_unread_workspace_decides_the_exit_code_over_findings(shell: Shell, server_options: tuple[str, ...]) -> None:
    code, value = shell.json("audit", *server_options, "--workspace", "space_none")
    assert code == 3
    assert (value["mailboxes"], value["unreadable"]) == (3, ["space_none"])


def test_audit_reads_workspaces_from_the_environment(
    shell: Shell, server_options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTREACH_WORKSPACE", "space_1 space_2")
    monkeypatch.setenv("OUTREACH_BASE_URL", server_options[1])
    assert shell.json("audit")[1]["unreadable"] == ["space_2"]


def test_a_service_that_denies_everything_exits_77(shell: Shell, service: FakeService, server_options: tuple[str, ...]) -> None:
    service.behaviour = attrs.evolve(Behaviour(), auth=HeaderAuth())
    assert shell("audit", *server_options).code == 77
    refused = shell("campaigns", *server_options)
    assert (refused.code, len(refused.err.splitlines())) == (77, 1)
    assert shell("campaigns", *server_options, "--header", f"Authorization: Bearer {KEY}").code == 0


def test_the_embedded_service_shows_every_kind_of_problem(shell: Shell) -> None:
    code, value = shell.json("audit", *FAKE)
    assert code == 1
    assert {finding["rule"] for finding in value["findings"]} == {
        *(
            "OA101",
            "OA102",
            "OA103",
            "OA104",
            "OA110",
            "OA120",
            "OA130",
            "OA132",
            "OA141",
            "OA150",
            "OA160",
            "OA170",
            "OA172",
            "OA190",
        ),
    }
    assert {finding["workspace"] for finding in value["findings"]} == {"space_demo", "space_demo_eu"}
    assert value["mailboxes"] == 340
    assert max(score["score"] for score in value["scores"]["domains"].values()) == 100


# Demo.


@pytest.mark.covers
@pytest.mark.thorough
def test_demo_as_json_contains_its_parts_and_exits_0(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTREACH_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    ended = shell("demo", "--json")
    assert (ended.code, ended.err) == (0, "")
    value = json.loads(ended.out)
    assert list(value) == ["import", "second_import", "audit", "brief"]
    assert value["import"]["rows"] == sum(value["import"]["outcomes"].values()) == 3044
    assert value["import"]["outcomes"]["rejected"] == 86
    assert value["import"]["outcomes"]["overwriten"] >= 150
    assert value["second_import"]["outcomes"]["unchanged"] > 2500
    assert value["audit"]["mailboxes"] == value["brief"]["mailboxes"] == 340
    assert value["audit"]["findings"]
