from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.echo_service import CREATE, LIST

from outreach_async import Request, Response
from outreach_async.fake import faults as f
from outreach_async.fake.faults import Exchange, Fault, Faults, execute_with_faults, inject

SERVED = Response(200, {"content-type": "application/json"}, b'{"status": "ok", "data": [{"opens": 3}, {"opens": 4}]}')


class Act:
    """The action of the service; counts its calls."""

    def __init__(self, answer: Response = SERVED) -> None:
        self.answer = answer
        self.times = 0

    def __call__(self) -> Response:
        self.times += 1
        return self.answer


def strike(fault: Fault, answer: Response = SERVED) -> tuple[Exchange, int]:
    act = Act(answer)
    return inject(fault, act), act.times


def ask(faults: Faults, operation: str = "create_contact", request: Request = CREATE) -> int:
    """Return the status of the response; 200 comes from the service itself."""
    response = execute_with_faults(faults, operation, request, Act()).response
    return response.status if response else 0


BEFORE = [f.status(503), f.hang(), f.refuse(), f.reset(), f.close(), f.malformed("garbage"), f.malformed("long_header")]
AFTER = [
    f.ok,
    f.drift("status", "new"),
    f.latency(1),
    f.truncate(3),
    f.reset_mid_body(3),
    f.malformed("bad_chunk"),
    f.malformed("no_final_chunk"),
    f.malformed("wrong_encoding"),
    f.wrong_length(),
    f.slow_drip(),
]


@pytest.mark.parametrize("fault", BEFORE + AFTER, ids=lambda fault: fault.label)
def test_the_service_acts_before_a_fault_of_its_response_and_before_commit_then(fault: Fault) -> None:
    exchange, times = strike(fault)
    assert times == (fault in AFTER)
    assert (exchange.response is None or exchange.response is not SERVED) if fault in BEFORE else exchange.response is not None
    assert fault == f.refuse() or strike(f.commit_then(fault))[1] == 1


def test_commit_then_changes_only_the_commit_and_the_label() -> None:
    stored = f.commit_then(f.status(503))
    assert stored.label == "commit_then(status(503))"
    assert strike(stored)[0] == strike(f.status(503))[0]


@pytest.mark.parametrize("fault", BEFORE + AFTER, ids=lambda fault: fault.label)
def test_the_label_of_a_fault_is_the_expression_that_creates_it(fault: Fault) -> None:
    evaluated = fault if fault is f.ok or fault.label.startswith("drift") else eval(f"f.{fault.label}")  # noqa: S307 - our own labels
    assert evaluated == fault


JSON, PLAIN = {"content-type": "application/json"}, {"content-type": "text/plain", "x-a": "b"}
ERROR = b'{"status":"error","error":{"code":"%s",'
LIMITED = ERROR % b"too_many_requests"
DATE = "Fri, 31 Dec 2027 23:59:59 GMT"


@pytest.mark.parametrize(
    ("fault", "status", "headers", "body"),
    [
        (f.status(503), 503, JSON, ERROR % b"service_unavailable" + b'"message":"Service Unavailable","field":null}}'),
        (f.status(429, retry_after=2), 429, JSON | {"retry-after": "2"}, LIMITED),
        (f.status(429, retry_after=2.0), 429, JSON | {"retry-after": "2"}, LIMITED),
        (f.status(429, retry_after=0.5), 429, JSON | {"retry-after": "0.5"}, LIMITED),
        (f.status(429, retry_after=1_000_000), 429, JSON | {"retry-after": "1000000"}, LIMITED),
        (f.status(429, retry_after=DATE), 429, JSON | {"retry-after": DATE}, LIMITED),
        (f.status(500, body="né", headers=PLAIN), 500, PLAIN, "né".encode()),
        (f.status(500, body="né".encode(), headers=PLAIN), 500, PLAIN, "né".encode()),
        (f.status(200, body=""), 200, JSON, b""),
    ],
)
def test_a_status_or_page_has_the_headers_and_body_of_its_fault(
    fault: Fault, status: int, headers: dict[str, str], body: bytes
) -> None:
    response = strike(fault)[0].response
    assert response is not None
    assert (response.status, response.headers, response.body[: len(body) or 1]) == (status, headers, body)


@pytest.mark.parametrize("code", [204, 304])
def test_a_status_that_has_no_body_has_no_headers_either(code: int) -> None:
    assert strike(f.status(code))[0].response == Response(code)


LEAST = r"expected a finite number of at least"
OPERATION = r"operation: expected one of list_campaigns, .*, got 'create_contcat'"
REFUSED: list[tuple[Callable[[Faults], object], type[Exception], str]] = [
    *((lambda _, n=n: f.latency(n), ValueError, f"seconds: {LEAST} 0") for n in (-1, float("inf"), float("nan"))),
    (lambda _: f.truncate(-1), ValueError, f"after_bytes: {LEAST} 0"),
    (lambda _: f.reset_mid_body(-1), ValueError, f"after: {LEAST} 0"),
    (lambda _: f.wrong_length(0), ValueError, f"short_by: {LEAST} 1"),
    (lambda _: f.slow_drip(bytes=0), ValueError, f"bytes: {LEAST} 1"),
    (lambda _: f.slow_drip(every=-0.1), ValueError, f"every: {LEAST} 0"),
    *((lambda _, n=n: f.status(n), ValueError, "code: expected a final status from 200") for n in (100, 199, 600)),
    *((lambda _, n=n: f.status(n, body="x"), ValueError, "no body") for n in (204, 304)),
    (lambda _: f.malformed(json.loads('"rubbish"')), ValueError, r"kind: expected one of garbage, .*, got 'rubbish'"),
    (lambda _: f.commit_then(f.refuse()), ValueError, "fire after execution"),
    (lambda faults: faults.add(f.ok, times=0), ValueError, f"times: {LEAST} 1"),
    *(
        (lambda faults, p=p: faults.add(f.ok, p=p), ValueError, "p: expected a probability from 0 to 1")
        for p in (1.1, -0.1, float("nan"))
    ),
    (lambda faults: faults.script("create_contcat", f.ok), ValueError, OPERATION),
    (lambda faults: faults.add(f.ok, operation="create_contcat"), ValueError, OPERATION),
    *(
        row
        for wrong, advice in ((f.reset, r"reset\(\.\.\.\)"), (503, r"status\(\.\.\.\)"))
        for row in (
            (lambda faults, wrong=wrong: faults.script("create_contact", wrong), TypeError, advice),
            (lambda faults, wrong=wrong: faults.add(wrong), TypeError, advice),
            (lambda _, wrong=wrong: f.commit_then(wrong), TypeError, advice),
        )
    ),
]


@pytest.mark.parametrize(("use", "error", "message"), REFUSED)
def test_an_invalid_value_is_refused_with_what_is_expected(
    use: Callable[[Faults], object], error: type[Exception], message: str
) -> None:
    faults = Faults(seed=0)
    with pytest.raises(error, match=message):
        use(faults)
    assert faults.unfired == []


@pytest.mark.parametrize(
    ("path", "change", "drifted"),
    [
        ("status", "new", {"status": "new", "data": [{"opens": 3}, {"opens": 4}]}),
        ("data.score", 1, {"status": "ok", "data": [{"opens": 3, "score": 1}, {"opens": 4, "score": 1}]}),
        ("data.opens", None, {"status": "ok", "data": [{"opens": None}, {"opens": None}]}),
        ("data.opens", str, {"status": "ok", "data": [{"opens": "3"}, {"opens": "4"}]}),
        ("data", [], {"status": "ok", "data": []}),
        ("data.opens.deeper", 1, {"status": "ok", "data": [{"opens": 3}, {"opens": 4}]}),
        ("absent.deeper", 1, {"status": "ok", "data": [{"opens": 3}, {"opens": 4}]}),
    ],
)
def test_drift_changes_only_the_named_member_of_the_response(path: str, change: object, drifted: object) -> None:
    response = strike(f.drift(path, change))[0].response
    assert response is not None
    assert json.loads(response.body) == drifted
    assert (response.status, response.headers) == (SERVED.status, SERVED.headers)


def test_drift_leaves_a_response_that_is_not_json_unchanged() -> None:
    page = Response(500, {}, b"<html>")
    assert strike(f.drift("status", "new"), page)[0].response == page


@given(st.lists(st.sampled_from([200, 429, 500, 502, 503]), max_size=8))
def test_a_script_is_followed_in_order_and_then_all_requests_succeed(codes: list[int]) -> None:
    faults = Faults(seed=0)
    faults.script("create_contact", *(f.ok if code == 200 else f.status(code) for code in codes))
    assert [ask(faults) for _ in range(len(codes) + 2)] == [*codes, 200, 200]


ASKED = ("create_contact", CREATE)
Rules = list[tuple[Fault, dict[str, Any]]]
ASSIGNED: dict[str, tuple[list[Fault], Rules, list[tuple[str, Request]], list[int]]] = {
    "a script applies only to its operation": (
        *([f.status(500), f.status(503)], []),
        *([("list_fields", CREATE), ASKED, ASKED], [200, 500, 503]),
    ),
    "ok in a script protects its request from the rules": ([f.ok], [(f.status(500), {})], [ASKED] * 2, [200, 500]),
    "a rule applies to every request that meets its conditions": (
        *([], [(f.status(500), {"operation": "create_contact", "match": lambda request: b"key" in request.body})]),
        *([("create_contact", LIST), ("list_steps", CREATE), ASKED, ASKED], [200, 200, 500, 500]),
    ),
    "a rule fires at most so many times, and the first matching rule wins": (
        *([], [(f.status(500), {"times": 2}), (f.status(503), {})]),
        [ASKED] * 4,
        [500, 500, 503, 503],
    ),
}


@pytest.mark.parametrize(("script", "rules", "requests", "statuses"), ASSIGNED.values(), ids=ASSIGNED)
def test_a_request_gets_the_next_fault_of_its_script_or_that_of_the_first_rule(
    script: list[Fault], rules: Rules, requests: list[tuple[str, Request]], statuses: list[int]
) -> None:
    faults = Faults(seed=0)
    for fault in script:  # one after the other extends it
        faults.script("create_contact", fault)
    for fault, conditions in rules:
        faults.add(fault, **conditions)
    assert [ask(faults, *request) for request in requests] == statuses


def draws(seed: int, p: float, count: int = 200) -> list[int]:
    faults = Faults(seed)
    faults.add(f.status(500), p=p)
    return [ask(faults) for _ in range(count)]


def test_random_faults_follow_the_probability_and_the_seed() -> None:
    assert 70 <= draws(0, 0.5).count(500) <= 130
    assert draws(0, 0.5) != draws(1, 0.5)
    assert draws(0, 1.0).count(500) == 200
    assert draws(0, 0.0).count(500) == 0


def test_two_rules_draw_independently() -> None:
    faults = Faults(seed=0)
    faults.add(f.status(500), p=0.5)
    faults.add(f.status(503), p=0.5)
    assert {ask(faults) for _ in range(50)} == {200, 500, 503}


def test_faults_that_did_not_fire_are_named() -> None:
    faults = Faults(seed=0)
    faults.script("create_contact", f.status(503), f.ok, f.commit_then(f.reset()))
    faults.add(f.truncate(10), operation="list_mailboxes", times=2)
    faults.add(f.hang(), match=lambda request: request is LIST)
    ask(faults)
    ask(faults, "list_mailboxes")
    assert faults.unfired == [
        "create_contact: commit_then(reset())",
        "list_mailboxes: truncate(10) (1 of 2)",
        "any request: hang() (0 of 1)",
    ]


def test_ok_and_random_faults_are_never_unfired() -> None:
    faults = Faults(seed=0)
    faults.add(f.status(500), p=0.1)
    faults.add(f.ok, operation="list_fields")
    assert faults.unfired == []


def test_clear_restores_the_initial_state() -> None:
    faults = Faults(seed=3)
    faults.script("create_contact", f.reset())
    faults.add(f.hang())
    faults.clear()
    assert faults.unfired == []
    assert ask(faults) == 200
    faults.clear()
    faults.add(f.status(500), p=0.5)
    assert [ask(faults) for _ in range(200)] == draws(3, 0.5)
