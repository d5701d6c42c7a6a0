"""The command `contacts create`."""

from __future__ import annotations

import pytest
from support.cli import KEY, Served, Shell

from outreach_async.fake.faults import Fault, commit_then, drift, reset, status

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


def fields(**labels: str) -> Fault:
    return drift("data", [{"code": code, "label": label, "searchable": []} for code, label in labels.items()])


def test_a_field_that_is_neither_standard_nor_custom_is_sent_by_its_code(served: Served) -> None:
    served.service.faults.script("list_fields", fields(linkedin="LinkedIn", x_handle="X"))
    served(*CREATE, "--set", "linkedin=ann", "--set", "x=@ann", "--set", "title=Dr", *served.options)
    body = served.service.requests[-1].json
    assert body is not None
    assert (body["title"], body["linkedin"], body["x_handle"]) == ("Dr", "ann", "@ann")


def test_a_label_of_several_fields_is_ambiguous(served: Served) -> None:
    served.service.faults.script("list_fields", fields(custom_1="Plan", custom_2="Plan"))
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
