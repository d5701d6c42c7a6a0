"""The documented rules hold for the fake, and a broken rule is reported with the request and the response."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from support.calibration import KEY, MANY, READER, SPACE, WRITER, Altered, measure, run_directly, service, world

from outreach_async import Request, Response
from outreach_async.conformance import Breach
from outreach_async.conformance._calibration import measure_knobs
from outreach_async.conformance._interface_rules import RULES, find_breaches
from outreach_async.conformance._read_probes import HttpExchange

BY_ID = {rule.id: rule for rule in RULES}


def broken(change: Callable[[Request, Response], Response], *rules: str) -> list[Breach]:
    found = run_directly(measure_knobs(WRITER), Altered(service(), change).handle)
    return [breach for rule in rules or BY_ID for breach in find_breaches(BY_ID[rule], found) or ()]


@pytest.mark.thorough
def test_every_documented_rule_holds_in_a_large_workspace() -> None:
    found = measure(snapshot=world(MANY, 120))
    assert {rule.id: find_breaches(rule, found) for rule in RULES} == {rule: [] for rule in BY_ID}


def test_a_rule_without_observations_is_not_judged() -> None:
    fake = service()
    fake.reset()
    fake.add_workspace(SPACE)
    found = measure(access=attrs.evolve(WRITER, owner_key="key_unknown"), snapshot=fake.snapshot())
    unjudged = {rule.id for rule in RULES if find_breaches(rule, found) is None}
    assert unjudged == {
        *("W4-status", "W4-counts", "W4-percentages", "W4-fractions", "W4-sums", "W4-most", "W4-interested", "W4-created"),
        *("W4-date", "W4-relative", "W4-email", "W4-steps"),
        *("T1", "T1-type", "T1-wait", "T1-templates", "T3", "T3-sent", "T6", "T6-thread", "T7", "T7-unique"),
        *("T13", "T13-days", "T14", "T14-finished", "T14-left", "C2", "C6", "C7", "C19"),
    }


def refusing(status: int, body: bytes = b"no", *, path: str = "") -> Callable[[Request, Response], Response]:
    return lambda request, response: Response(status, {}, body) if path in request.target else response


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


def test_a_missing_response_is_a_breach_with_its_reason() -> None:
    found = run_directly(measure_knobs(READER), service().handle)
    lost = attrs.evolve(found, survey=attrs.evolve(found.survey, fields=HttpExchange(READER.fields(), error="no answer: gone")))
    found_now = find_breaches(BY_ID["W1"], lost) or []
    assert [(breach.what, breach.answered) for breach in found_now] == [("the response did not arrive", "no answer: gone")]


def test_rules_that_need_writes_are_not_judged_without_them() -> None:
    found = run_directly(measure_knobs(READER), service().handle)
    assert {rule.id for rule in RULES if rule.writes} == {rule.id for rule in RULES if find_breaches(rule, found) is None}
