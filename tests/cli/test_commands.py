"""The output and exit codes of the commands, run in this process."""

from __future__ import annotations

import json

import attrs
import pytest
from support.cli import KEY, LOGGER, Served, Shell

from outreach_async.fake import Behaviour, HeaderAuth
from outreach_async.fake.faults import Fault, commit_then, drift, reset, status

FAKE = ("--base-url", "fake:")


def test_steps_has_a_line_for_each_template_and_for_a_step_without_one(served: Served) -> None:
    def lines() -> list[str]:
        ended = served("steps", "camp_1", "--columns", "order,test_letter", *served.options[:2])
        return ended.out.replace("\t", "").splitlines()

    assert lines() == ["ordertest_letter", "1A", "2A", "2B"]
    served.service.faults.script("list_steps", drift("data.templates", []))
    assert lines() == ["ordertest_letter", "1", "2"]
    code, value = served.json("steps", "camp_1", *served.options[:2])
    assert code == 0
    assert value["count"] == 2
    assert value["data"][1]["templates"][0]["test_letter"] == "A"
    assert {"days_left", "days_left_date", "days_left_display"} <= value.keys()


def test_an_unreadable_item_makes_a_list_incomplete(served: Served) -> None:
    served.service.faults.script("list_campaigns", drift("data.name", None), drift("data.id", 7))
    ended = served("campaigns", *served.options, "--json")
    assert ended.code == 3
    assert json.loads(ended.out)["undecodable"] == 1
    assert ended.err.startswith("outreach-async: campaigns: cannot read camp_1: $.data[0].name")
    assert "cannot read an item without an id: " in served("campaigns", *served.options).err


def test_items_that_no_page_shows_make_a_list_incomplete(served: Served) -> None:
    served.service.faults.add(drift("total_found", 5), operation="list_mailboxes")
    ended = served("mailboxes", *served.options)
    assert ended.code == 3
    assert ended.err == "outreach-async: the service reports 2 more mailboxes than it listed\n"


@pytest.mark.covers
@pytest.mark.thorough
def test_rows_that_fail_for_one_reason_are_one_line_with_a_count(served: Served) -> None:
    path = served.save("E-mail\nann@a.example\n" + "".join(f"bad{at}@\n" for at in range(110)) + "bo@a.example\n")
    out = served("import", path, *served.options).out
    assert "\nrejected: 110 rows: email must be an e-mail address (the service answered 422)\n  line 3: bad0@; line " in out
    assert out.count("bad") == out.count(" finding") * 3 + 3
    code, report = served.json("import", path, *served.options)
    (group,) = report["failures"]
    assert (code, group["count"], len(group["examples"])) == (3, 110, 3)
    assert (group["status"], group["status_code"], group["field"]) == ("rejected", 422, "email")
    assert group["reason"] == "email must be an e-mail address"
    assert group["examples"][0]["email"] == "bad0@"


PEOPLE = "E-mail,First Name,plan\nann@a.example,Ann,Gold\nANN@a.example,Ann,\nbo@a.example,Bo,\n,Cy,\ndi@@a.example,Di,\nx\n"


def test_import_reports_the_outcome_of_every_row(served: Served) -> None:
    ended = served("import", served.save(PEOPLE), "--campaign", "camp_1", *served.options, "--json")
    assert ended.code == 3
    report = json.loads(ended.out)
    assert list(report) == [
        "rows",
        "outcomes",
        "uncertain",
        "repeats",
        "seconds",
        "findings",
        "failures",
        "exclusions",
        "remedies",
    ]
    assert report["rows"] == sum(report["outcomes"].values()) == 6
    assert {outcome: count for outcome, count in report["outcomes"].items() if count} == {"added": 2, "skipped": 1, "rejected": 3}
    assert sorted(line.split(":")[1] for line in ended.err.splitlines()) == [" line 5", " line 6", " line 7"]
    ann = served.service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert ann["fields"] == {"first_name": "Ann", "custom_1": "Gold"}
    assert ann["campaigns"] == ["camp_1"]


def test_import_passes_its_options_to_the_service(served: Served) -> None:
    served.service.add_contacts("space_1", [{"email": "ann@a.example", "first_name": "Old"}])
    path = served.save("Mail;Vorname;Rest\nann@a.example;Ann;z\nb@nowhere;Bo;z\n")
    arguments = ("--duplicates", "overwrite", "--no-strict", "--concurrency", "2")
    maps = ("--map", "Mail=email", "--map", "Vorname=first_name", "--map", "Rest=ignore")
    code, report = served.json("import", path, *arguments, *maps, *served.options)
    assert code == 0
    assert (report["outcomes"]["added"], report["outcomes"]["overwriten"]) == (1, 1)
    ann = served.service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert ann["fields"] == {"first_name": "Ann"}


def test_the_table_of_outcomes_has_those_that_occurred_in_correct_spelling(served: Served) -> None:
    served.service.add_contacts("space_1", [{"email": "ann@a.example", "first_name": "Old"}])
    path, journal = served.save("email,first_name\nann@a.example,Ann\nbo@a.example,Bo\n"), str(served.folder / "run.db")
    imported = served("import", path, *served.options, "--duplicates", "overwrite", "--journal", journal)
    for shown in (imported.out, served("report", journal).out):
        assert "outcome\trows\nadded\t1\noverwritten\t1\n2" in shown.replace("finished: ", "")


@pytest.mark.parametrize(
    ("options", "code"), [(("--campaign", "camp_none"), 3), (("--workspace", "space_2"), 3), (("--owner-key", "key_other"), 77)]
)
def test_import_stops_at_a_refusal_of_the_whole_run(served: Served, options: tuple[str, ...], code: int) -> None:
    path = served.save("email\na@a.example\nb@a.example\nc@a.example\n")
    ended = served(
        "import", path, *served.options[:2], *_without(served.options[2:], options[0]), *options, "--concurrency", "1", "--json"
    )
    assert ended.code == code
    assert json.loads(ended.out)["rows"] == 1
    (line,) = ended.err.splitlines()
    assert line.startswith("outreach-async: run stopped: this error affects every row: ")


def _without(options: tuple[str, ...], name: str) -> tuple[str, ...]:
    pairs = zip(options[::2], options[1::2], strict=True)
    return tuple(part for pair in pairs if pair[0] != name for part in pair)


def test_rows_queued_behind_a_refused_one_are_counted_and_the_error_shown_once(served: Served) -> None:
    path = served.save("email\n" + "a@a.example\n" * 100)
    ended = served("import", path, *served.options, "--campaign", "camp_none", "--concurrency", "2")
    assert ended.code == 3
    assert "\nnot_applied\t" in ended.out
    assert ": a@a.example: not_applied" not in ended.out
    assert ended.out.endswith("Importing the file again is safe: the service detects duplicates.\n")
    assert ended.err.count("\n") == 1


def test_a_dry_run_checks_every_row_and_sends_no_request(served: Served) -> None:
    path = served.save("email,title\na@a.example,x\n,y\nb@a.example\n")
    for connection in ((), served.options):
        ended = served("import", path, "--dry-run", *connection, "--json")
        assert ended.code == 3
        report = json.loads(ended.out)
        assert report["dry_run"] is True
        assert report["rows"] == sum(report["outcomes"].values()) == 3
        assert (report["outcomes"]["not_applied"], report["outcomes"]["rejected"]) == (1, 2)
        assert [line.split(":")[1] for line in ended.err.splitlines()] == [" line 3", " line 4"]
    assert len(served.service.requests) == 0
    clean = served("import", served.save("email\na@a.example\n"), "--dry-run")
    assert (clean.code, clean.out) == (0, "1 of 1 rows can be sent; nothing was created\n")


def test_a_dry_run_reads_the_fields_of_the_workspace_if_a_column_needs_them(served: Served) -> None:
    path = served.save("email,Plan\na@a.example,x\n")
    assert served("import", path, "--dry-run", *served.options).code == 0
    assert [request.operation for request in served.service.requests] == ["list_fields"]
    assert "--map Plan=CODE  # such as 'x'; or ignore\n" in served("import", path, "--dry-run").err


def test_audit_exits_by_the_worst_finding(served: Served) -> None:
    assert served("audit", *served.options).code == 0
    served.service.add_mailbox("space_1", spf=False)
    ended = served("audit", *served.options)
    assert ended.code == 1
    assert "OA101" in ended.out
    assert served("audit", "--fail-on", "critical", *served.options).code == 0


def test_a_service_that_denies_everything_exits_77(served: Served) -> None:
    served.service.behaviour = attrs.evolve(Behaviour(), auth=HeaderAuth())
    assert served("audit", *served.options).code == 77
    refused = served("campaigns", *served.options)
    assert (refused.code, len(refused.err.splitlines())) == (77, 1)
    assert served("campaigns", *served.options, "--header", f"Authorization: Bearer {KEY}").code == 0


@pytest.mark.thorough
def test_the_embedded_service_shows_every_kind_of_problem(shell: Shell) -> None:
    code, value = shell.json("audit", *FAKE)
    assert code == 1
    rules = {finding["rule"] for finding in value["findings"]}
    numbers = "101 102 103 104 110 120 130 132 141 150 160 170 172 190"
    assert rules == {f"OA{number}" for number in numbers.split()}
    assert {finding["workspace"] for finding in value["findings"]} == {"space_demo", "space_demo_eu"}
    assert value["mailboxes"] == 340
    assert max(score["score"] for score in value["scores"]["domains"].values()) == 100


@pytest.mark.covers
@pytest.mark.thorough
def test_demo_as_json_contains_its_parts_and_exits_0(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTREACH_BASE_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    ended = shell("demo", "--json", "--verbose")
    assert (ended.code, ended.err) == (0, "")
    value = json.loads(ended.out)
    assert list(value) == ["import", "second_import", "audit", "brief"]
    assert value["import"]["rows"] == sum(value["import"]["outcomes"].values()) == 3044
    assert value["import"]["outcomes"]["rejected"] == 65
    assert value["import"]["outcomes"]["overwriten"] >= 150
    assert value["second_import"]["outcomes"]["unchanged"] > 2500
    assert value["audit"]["mailboxes"] == value["brief"]["mailboxes"] == 340
    assert value["audit"]["findings"]


def test_verbose_logs_every_attempt_without_the_key(served: Served) -> None:
    handlers, level = LOGGER.handlers, LOGGER.level
    LOGGER.handlers = handlers[:1]
    try:
        ended = served("fields", *served.options, "--verbose")
    finally:
        LOGGER.handlers = handlers
        LOGGER.setLevel(level)
    assert (ended.code, "DEBUG outreach_async: list_fields: 200 on attempt 1\n" in ended.err, KEY in ended.err) == (
        0,
        True,
        False,
    )


# The command `contacts create`.

CREATE = ("contacts", "create", "--email", "ann@a.example")


def test_a_contact_is_created_and_its_id_printed(served: Served) -> None:
    ended = served(*CREATE, "--set", "first_name=Ann=A", "--set", "plan=Gold", "--campaign", "camp_1", *served.options)
    ann = served.service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert (ended.code, ended.out, ended.err) == (0, f"added {ann['id']}\n", "")
    assert ann["fields"] == {"first_name": "Ann=A", "custom_1": "Gold"}
    assert ann["campaigns"] == ["camp_1"]


def test_fields_are_requested_only_for_names_that_are_no_codes(served: Served) -> None:
    assert served(*CREATE, "--set", "title=Dr", "--set", "custom_1=Gold", *served.options).code == 0
    assert [request.operation for request in served.service.requests] == ["create_contact"]


def drifted(**labels: str) -> Fault:
    return drift("data", [{"code": code, "label": label, "searchable": []} for code, label in labels.items()])


def test_a_field_that_is_neither_standard_nor_custom_is_sent_by_its_code(served: Served) -> None:
    served.service.faults.script("list_fields", drifted(linkedin="LinkedIn", x_handle="X"))
    served(*CREATE, "--set", "linkedin=ann", "--set", "x=@ann", "--set", "title=Dr", *served.options)
    body = served.service.requests[-1].json
    assert body is not None
    assert (body["title"], body["linkedin"], body["x_handle"]) == ("Dr", "ann", "@ann")


def test_a_label_of_several_fields_is_ambiguous(served: Served) -> None:
    served.service.faults.script("list_fields", drifted(custom_1="Plan", custom_2="Plan"))
    message = "--set: several fields have the label 'plan'; pass one of their codes: custom_1, custom_2."
    assert message in served.refused(*CREATE, "--set", "plan=Gold", *served.options)


@pytest.mark.parametrize(("policy", "expected"), [("skip", ("skipped", "Old")), ("overwrite", ("overwriten", "Ann"))])
def test_a_duplicate_is_treated_by_the_policy(served: Served, policy: str, expected: tuple[str, str]) -> None:
    served.service.add_contacts("space_1", [{"email": "ann@a.example", "first_name": "Old"}])
    code, value = served.json(*CREATE, "--set", "first_name=Ann", "--duplicates", policy, *served.options)
    ann = served.service.contact("space_1", "ann@a.example")
    assert ann is not None
    assert (code, value["status"], ann["fields"]["first_name"]) == (0, *expected)


def test_the_json_has_the_outcome_and_everything_known_about_it(served: Served) -> None:
    code, value = served.json(*CREATE, *served.options)
    assert code == 0
    assert value.pop("id").startswith("contact_")
    assert value == {
        "email": "ann@a.example",
        "status": "added",
        "details": None,
        "possible": ["added"],
        "certain": True,
        "attempts": 1,
        "error": None,
    }


def test_an_uncertain_outcome_says_what_is_possible(served: Served) -> None:
    served.service.faults.script("create_contact", commit_then(reset()))
    ended = served(*CREATE, *served.options)
    assert ended.code == 0
    assert ended.out.startswith("skipped (uncertain: added or skipped): ")


def test_a_refused_contact_is_rejected_and_exits_3(served: Served) -> None:
    ended = served("contacts", "create", "--email", "bad", *served.options)
    assert (ended.code, ended.out) == (3, "rejected\n")
    assert ended.err == "outreach-async: create_contact: the service answered 422: email must be an e-mail address\n"
    code, value = served.json("contacts", "create", "--email", "bad", *served.options)
    assert (code, value["status"], value["error"]) == (3, "rejected", ended.err.removeprefix("outreach-async: ").strip())


@pytest.mark.covers
@pytest.mark.thorough
def test_a_service_that_cannot_be_reached_did_not_apply_the_contact(shell: Shell) -> None:
    ended = shell(*CREATE, "--base-url", "http://127.0.0.1:1", "--workspace", "space_1", "--owner-key", KEY)
    assert (ended.code, ended.out) == (3, "not_applied\n")
    assert ended.err.startswith("outreach-async: no connection to http://127.0.0.1:1")


def test_a_refused_key_exits_77(served: Served) -> None:
    served.service.faults.script("create_contact", status(401))
    ended = served(*CREATE, *served.options)
    assert (ended.code, ended.out) == (77, "")
