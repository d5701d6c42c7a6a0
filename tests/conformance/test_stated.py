"""The documented rules hold for the fake, and a broken rule is reported with the request and the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from support.calibration import KEY, MANY, READER, SPACE, WRITER, Altered, document_changed, measure, run_directly, service, world
from support.fake_transports import LEVELS, Connect

from outreach_async.conformance import Breach, check
from outreach_async.conformance._calibration import measure_knobs
from outreach_async.conformance._interface_rules import CREATION_RULES, RULES, find_breaches
from outreach_async.conformance._read_probes import HttpExchange
from outreach_async.transport._wire import Request, Response

BY_ID = {rule.id: rule for rule in RULES}


def broken(change: Callable[[Request, Response], Response], *rules: str) -> list[Breach]:
    found = run_directly(measure_knobs(WRITER), Altered(service(), change).handle)
    return [breach for rule in rules or BY_ID for breach in find_breaches(BY_ID[rule], found) or ()]


@pytest.mark.thorough
def test_every_documented_rule_holds_in_a_large_workspace() -> None:
    found = measure(snapshot=world(MANY, 120))
    assert {rule.id: find_breaches(rule, found) for rule in RULES} == {rule: [] for rule in BY_ID}


@pytest.mark.thorough
@pytest.mark.parametrize("connect", LEVELS)
async def test_every_documented_rule_holds_over_every_transport(connect: Connect) -> None:
    async with connect(service()) as transport:
        assert await check(transport, WRITER) == []


def test_a_rule_without_observations_is_not_judged() -> None:
    fake = service()
    fake.reset()
    fake.add_workspace(SPACE)
    found = measure(access=attrs.evolve(WRITER, owner_key="key_unknown"), snapshot=fake.snapshot())
    unjudged = {rule.id for rule in RULES if find_breaches(rule, found) is None}
    assert unjudged == {
        *("W4-status", "W4-fractions", "W4-sums", "W4-most", "W4-interested", "W4-date", "W4-email", "W4-steps"),
        *("T1", "T1-type", "T1-wait", "T1-templates", "T3", "T3-sent", "T6", "T6-thread", "T7-unique"),
        *("T13", "T13-days", "T14", "T14-finished", "T14-left", "C2", "C6", "C7", "C19"),
    }


def put(path: str, value: Any) -> Callable[[Any], None]:
    """Return a change that puts a value at a path; `*` stands for every item."""

    def descend(here: Any, names: list[str]) -> None:
        name, *rest = names
        if name == "*":
            for item in here if isinstance(here, list) else ():
                descend(item, rest)
        elif isinstance(here, dict) and name in here:
            if rest:
                descend(here[name], rest)
            elif value is KeyError:
                del here[name]
            else:
                here[name] = value

    return lambda document: descend(document, path.split("."))


def unnamed(document: Any) -> None:
    """Set the letter of every template to that of the personalized entry."""
    put("data.*.templates.*.test_letter", "PER")(document)


@pytest.mark.parametrize(
    ("rule", "change", "what"),
    [
        ("W2", put("status", "fine"), "the response has the status 'fine', not 'ok'"),
        ("W3", put("data.*.id", "x1"), "data[0] has the id 'x1', which does not start with camp_"),
        ("W3", put("data.*.id", 5), "has the id 5,"),
        ("W3", unnamed, "which does not start with personalized_step_"),
        ("W4", put("data.*.name", KeyError), "data[0] has no name"),
        ("W4", put("data.*.opens", "5"), "data[0] opens is a string, not a number"),
        ("W4", put("data.*.opens", True), "opens is a boolean, not a number"),
        ("W4", put("data.*.spf", None), "spf is null, not a boolean"),
        ("W4", put("data.*.searchable", [1]), "searchable is an array, not an array of strings"),
        ("W4", put("data.*.templates.*.sent", {}), "sent is an object, not a number"),
        ("W4", put("data", [1]), "data[0] is a number, not an object"),
        ("P1", put("total_found", KeyError), "the page has no total_found"),
        ("P1", put("data", [{}] * 2001), "contains 2001 items, more than display="),
        ("P14", put("headers", None), "headers is null, not an array of strings"),
        ("T1", put("data.*.order", 2), "the steps' order is [2"),
        ("T1", put("data.*.order", "1"), "the steps' order is ['1'"),
        ("T1-type", put("data.*.type", "call"), "type is 'call', not auto_email"),
        ("T3", put("data.*.out_of", -1), "more than out_of -1"),
        ("T6", unnamed, "has the new_thread True, not null"),
        ("T13", put("days_left", "soon"), "days_left is a string, not a number"),
        ("F1", put("data.*.code", "custom_x"), "has no code email, first_name, middle_name, last_name, full_name and 31 more"),
        ("F1", put("data.*.code", "custom_x"), "has 'custom_x', which is not of the form custom_<n>"),
        ("F1-searchable", put("data.*.searchable", ["X" * 99]), "has 'XXXXXXX"),
        ("C2", put("id", None), "has the id None and details None; expected an id contact_... and null details"),
        ("C2", put("details", "so"), "details 'so'; expected an id contact_... and null details"),
        ("C2", put("id", "contact_1"), "has the id 'contact_1' and details 'a contact with"),
    ],
)
def test_a_broken_rule_is_found(rule: str, change: Callable[[Any], None], what: str) -> None:
    messages = [str(breach) for breach in broken(document_changed(change), rule)]
    assert any(what in text for text in messages), messages


def test_undocumented_outcomes_are_found() -> None:
    def renamed(document: Any) -> None:
        document["status"] = {"skipped": "added", "added": "created"}.get(document["status"], document["status"])

    messages = [str(breach) for breach in broken(document_changed(renamed), "C1", "C2-added")]
    assert any("has the status 'added', not 'skipped'" in text for text in messages)
    assert any("has the status None, not 'added'" in text for text in messages)


def test_a_list_and_its_steps_must_agree_that_a_campaign_is_complete() -> None:
    (first, *_) = broken(document_changed(put("days_left_date", "Mar 1, 2026")), "T14")
    assert first.what == "the response has days_left_date 'Mar 1, 2026', although the campaign is listed with 'Complete'"


def refusing(status: int, body: bytes = b"no", *, path: str = "") -> Callable[[Request, Response], Response]:
    return lambda request, response: Response(status, {}, body) if path in request.target else response


@pytest.mark.parametrize(
    ("rule", "change", "what"),
    [
        ("W1", refusing(500), "has the status 500"),
        ("W1", refusing(200), "is not a JSON object"),
        ("P2", refusing(400, path="display=2000"), "has the status 400"),
        ("A1", refusing(403, path="/contacts"), "has the status 403"),
        ("E1", refusing(409, path="/contacts"), "has the status 409"),
    ],
)
def test_a_refusal_of_what_the_interface_allows_is_found(
    rule: str, change: Callable[[Request, Response], Response], what: str
) -> None:
    found = broken(change, rule)
    assert found
    assert all(breach.rule == rule and what in breach.what for breach in found)


def test_a_breach_is_short_and_complete_and_contains_no_secret() -> None:
    body = b'{"you sent": "' + KEY.encode() + b'", "pad": "' + b"x" * 5000 + b'"}'
    (first, *_) = broken(refusing(500, body), "W1")
    messages = str(first)
    assert messages.splitlines() == [
        "W1: the response has the status 500",
        "  interface: each list request is answered with 200 and a JSON object",
        f"  request: GET /campaigns?workspace={SPACE}&display=1&page=1",
        f"  response: {first.answered}",
    ]
    assert first.answered.startswith('500 {"you sent": "***", "pad": "xxx')
    assert len(first.answered) < 600
    assert KEY not in messages


def test_a_missing_value_breaks_only_the_rule_that_requires_it() -> None:
    def bare(document: Any) -> None:
        for step in document.get("data", ()) if isinstance(document, dict) else ():
            if isinstance(step, dict) and "templates" in step:
                step.update(out_of=None, templates=["none"])

    found = broken(document_changed(bare), "T3", "T6", "W4")
    assert {breach.rule for breach in found} == {"W4"}
    assert {breach.rule for breach in broken(refusing(500, path="/steps"), "W1", "T1", "T13", "T14")} == {"W1"}


def test_a_missing_response_is_a_breach_with_its_reason() -> None:
    found = run_directly(measure_knobs(READER), service().handle)
    lost = attrs.evolve(found, survey=attrs.evolve(found.survey, fields=HttpExchange(READER.fields(), error="no answer: gone")))
    found_now = find_breaches(BY_ID["W1"], lost) or []
    assert [(breach.what, breach.answered) for breach in found_now] == [("the response did not arrive", "no answer: gone")]


def test_rules_that_need_writes_are_not_judged_without_them() -> None:
    found = run_directly(measure_knobs(READER), service().handle)
    assert {rule.id for rule in CREATION_RULES} == {rule.id for rule in RULES if find_breaches(rule, found) is None}


def test_a_workspace_without_listed_fields_has_none_to_check_at_creation() -> None:
    found = broken(document_changed(put("data.*.code", 7)), "C19", "F1")
    assert {breach.rule for breach in found} == {"F1"}


def test_at_most_three_breaches_of_a_rule_are_shown() -> None:
    assert len(broken(document_changed(put("data.*.id", "x1")), "W3")) == 3


def test_every_rule_has_a_unique_name() -> None:
    assert len(BY_ID) == len(RULES)
