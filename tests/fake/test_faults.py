from __future__ import annotations

import json
from collections.abc import Callable

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


def test_an_unknown_kind_of_malformed_response_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"kind: expected one of garbage, .*, got 'rubbish'"):
        f.malformed(json.loads('"rubbish"'))


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


def test_a_refused_connection_cannot_follow_a_commit() -> None:
    with pytest.raises(ValueError, match="fire after execution"):
        f.commit_then(f.refuse())


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
def test_a_status_that_has_no_body_accepts_none(code: int) -> None:
    assert strike(f.status(code))[0].response == Response(code)
    with pytest.raises(ValueError, match="no body"):
        f.status(code, body="x")


@pytest.mark.parametrize(
    "make",
    [
        lambda: f.latency(-1),
        lambda: f.latency(float("inf")),
        lambda: f.latency(float("nan")),
        lambda: f.truncate(-1),
        lambda: f.reset_mid_body(-1),
        lambda: f.wrong_length(0),
        lambda: f.slow_drip(bytes=0),
        lambda: f.slow_drip(every=-0.1),
        lambda: f.status(100),
        lambda: f.status(600),
        lambda: Faults(seed=0).add(f.ok, times=0),
        *(lambda p=p: Faults(seed=0).add(f.ok, p=p) for p in (1.1, -0.1, float("nan"))),
    ],
)
def test_a_number_out_of_range_is_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ValueError, match=r"expected a (finite number of at least|final status from 200|probability from 0 to 1)"):
        make()


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


def test_a_script_applies_only_to_its_operation_and_can_be_extended() -> None:
    faults = Faults(seed=0)
    faults.script("create_contact", f.status(500))
    faults.script("create_contact", f.status(503))
    assert [ask(faults, "list_fields"), ask(faults), ask(faults)] == [200, 500, 503]


def test_ok_in_a_script_protects_its_request_from_the_rules() -> None:
    faults = Faults(seed=0)
    faults.add(f.status(500))
    faults.script("create_contact", f.ok)
    assert [ask(faults), ask(faults)] == [200, 500]


def test_a_rule_applies_to_every_request_that_meets_its_conditions() -> None:
    faults = Faults(seed=0)
    faults.add(f.status(500), operation="create_contact", match=lambda request: b"key" in request.body)
    assert [ask(faults, "create_contact", LIST), ask(faults, "list_steps", CREATE)] == [200, 200]
    assert [ask(faults), ask(faults)] == [500, 500]


def test_a_rule_fires_at_most_times_and_the_first_matching_rule_wins() -> None:
    faults = Faults(seed=0)
    faults.add(f.status(500), times=2)
    faults.add(f.status(503))
    assert [ask(faults) for _ in range(4)] == [500, 500, 503, 503]


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


@pytest.mark.parametrize(
    "use", [lambda faults: faults.script("create_contcat", f.ok), lambda faults: faults.add(f.ok, operation="create_contcat")]
)
def test_an_unknown_operation_is_refused_by_name(use: Callable[[Faults], None]) -> None:
    with pytest.raises(ValueError, match=r"operation: expected one of list_campaigns, .*, got 'create_contcat'"):
        use(Faults(seed=0))


@pytest.mark.parametrize(
    "use",
    [
        lambda faults, wrong: faults.script("create_contact", wrong),
        lambda faults, wrong: faults.add(wrong),
        lambda _, wrong: f.commit_then(wrong),
    ],
)
@pytest.mark.parametrize(("wrong", "advice"), [(f.reset, r"reset\(\.\.\.\)"), (503, r"status\(\.\.\.\)")])
def test_what_is_not_a_fault_is_refused_with_advice(use: Callable[[Faults, object], None], wrong: object, advice: str) -> None:
    faults = Faults(seed=0)
    with pytest.raises(TypeError, match=advice):
        use(faults, wrong)
    assert faults.unfired == []
