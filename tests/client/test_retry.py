"""Whether and when to retry, as tables."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
from support.tables import check_rows

from outreach_async import BulkStopped, DeadlineExceeded, InvalidRequest, OutreachError, RateLimited, RetryPolicy, StatusError
from outreach_async._core.retry import FailureKind, Idempotency, backoff_delay, classify, explain_status, is_retryable
from outreach_async._plumbing import is_denied
from outreach_async.errors import BulkSuspended, Forbidden, NotFound, TransportError, Unauthorized, UnexpectedResponse

FREELY, KNOWINGLY, UNSENT = Idempotency.SAFE, Idempotency.IDEMPOTENT, Idempotency.UNKNOWN
NOT_SENT, REFUSED, AMBIGUOUS, FINAL = FailureKind.NOT_SENT, FailureKind.REFUSED, FailureKind.AMBIGUOUS, FailureKind.FINAL
UNCLEAR = FailureKind.UNCLEAR


def answered(status: int | None, *, retry_after: str | None = None, named_wait: float | None = None) -> StatusError:
    kind = RateLimited if status == 429 else StatusError
    headers = {"retry-after": retry_after} if retry_after is not None else {}
    error = kind("x", status_code=status, headers=headers, maybe_sent=True)
    error.named_wait = named_wait
    return error


def unexpected(*, well_formed: bool, named_wait: float | None = None) -> UnexpectedResponse:
    error = UnexpectedResponse("x", status_code=200, maybe_sent=True)
    error.well_formed, error.named_wait = well_formed, named_wait
    return error


WEIGHED: list[tuple[str, OutreachError, FailureKind]] = [
    ("nothing left", TransportError("x", maybe_sent=False), NOT_SENT),
    ("an answer was lost", TransportError("x", maybe_sent=True), AMBIGUOUS),
    *((f"{status}", answered(status), FINAL) for status in [*range(300, 402), 403, 404, 405, 407, 422, 501, 505]),
    *((f"{status}", answered(status), UNCLEAR) for status in [402, 406, 409, 410, 413, 415, 416, 425, 431, 451, 499]),
    *((f"{status}", answered(status), AMBIGUOUS) for status in [408, 500, 502, 503, 504, 506, 507, 511, 520, 599, 600]),
    ("a 500 that asks to wait", answered(500, retry_after="1"), AMBIGUOUS),
    ("a 400 that asks to wait", answered(400, retry_after="1"), FINAL),
    ("a 301 that asks to wait", answered(301, retry_after="1"), FINAL),
    ("429", answered(429), REFUSED),
    ("a 429 that asks to wait", answered(429, retry_after="1"), REFUSED),
    ("a 503 that asks to wait", answered(503, retry_after="1"), REFUSED),
    ("a 503 that asks for nonsense", answered(503, retry_after="soon"), REFUSED),
    ("a 403 that asks to wait", answered(403, retry_after="1"), REFUSED),
    *((f"{status} with a rate limit", answered(status, named_wait=0.0), REFUSED) for status in [302, 400, 401, 402, 403, 500]),
    ("an answer with a rate limit", unexpected(well_formed=True, named_wait=60.0), REFUSED),
    ("a text with a rate limit", unexpected(well_formed=False, named_wait=0.0), REFUSED),
    ("a refusal without a status", answered(None), UNCLEAR),
    ("a deadline after a byte left", DeadlineExceeded("x", maybe_sent=True), AMBIGUOUS),
    ("a deadline before one did", DeadlineExceeded("x", maybe_sent=False), NOT_SENT),
    ("a wrong call", InvalidRequest("x"), FINAL),
    ("a stopped run", BulkStopped("x"), FINAL),
    ("an answer that makes sense but is not allowed", unexpected(well_formed=True), UNCLEAR),
]


def test_a_failure_is_classified_by_what_it_proves() -> None:
    def check(_name: str, error: OutreachError, evidence: FailureKind, repeat: Idempotency) -> None:
        expected = FINAL if evidence is UNCLEAR and repeat is not KNOWINGLY else evidence
        assert classify(error, repeat) is expected

    check_rows(((*row, repeat) for row in WEIGHED for repeat in Idempotency), check)


@pytest.mark.parametrize(("repeat", "evidence"), [(FREELY, FINAL), (KNOWINGLY, AMBIGUOUS), (UNSENT, FINAL)])
def test_a_damaged_response_to_a_creation_is_worth_a_retry(repeat: Idempotency, evidence: FailureKind) -> None:
    assert classify(unexpected(well_formed=False), repeat) is evidence


@pytest.mark.parametrize(
    ("evidence", "freely", "knowingly", "unsent"),
    [(NOT_SENT, True, True, True), (REFUSED, True, True, False), (AMBIGUOUS, True, True, False), (FINAL, False, False, False)],
)
def test_the_kind_of_failure_and_the_idempotency_decide_on_a_retry(
    evidence: FailureKind, freely: bool, knowingly: bool, unsent: bool
) -> None:
    assert [is_retryable(evidence, repeat) for repeat in (FREELY, KNOWINGLY, UNSENT)] == [freely, knowingly, unsent]


def test_each_column_of_the_status_table() -> None:
    every_row = {401, 403, 404, 405, 407, 429, 501, 505, *range(300, 400)}
    classes = {401: Unauthorized, 403: Forbidden, 404: NotFound, 429: RateLimited}
    for status in range(200, 1000):
        meaning = explain_status(status)
        maybe_applied = status in {408, 425, 499} or (status >= 300 and not 400 <= status < 500)
        assert status < 300 or meaning.maybe_applied is maybe_applied, status
        assert meaning.affects_every_row is (status in every_row), status
        assert meaning.is_denied is (status in {401, 403}), status
        assert meaning.rejects_data is (status in {400, 422}), status
        assert meaning.may_be_past_end is (status in {400, 404, 416, 422}), status
        assert meaning.error_class is classes.get(status, StatusError), status
    throttled = explain_status(503, {"retry-after": "1"})
    assert (throttled.affects_every_row, throttled.maybe_applied) == (False, True)  # one row alone may get it


@pytest.mark.parametrize(
    ("attempts", "longest"), [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 16.0), (7, 20.0), (8, 20.0), (10_000, 20.0)]
)
def test_each_wait_may_be_twice_as_long_as_the_last_up_to_the_cap(attempts: int, longest: float) -> None:
    assert backoff_delay(RetryPolicy(jitter=lambda: 1.0), attempts) == longest
    assert backoff_delay(RetryPolicy(jitter=lambda: 0.25), attempts) == longest / 4
    assert backoff_delay(RetryPolicy(jitter=lambda: 0.0), attempts) == 0


def test_waits_are_random_so_that_clients_do_not_retry_in_step() -> None:
    assert len({backoff_delay(RetryPolicy(), 3) for _ in range(20)}) > 1


def test_a_policy_shows_its_documented_defaults_but_not_its_jitter() -> None:
    text = "RetryPolicy(attempts=4, backoff=0.5, backoff_cap=20.0, retry_after_cap=900.0, budget=500, counts_refusals=False)"
    assert (repr(RetryPolicy()), RetryPolicy()) == (text, RetryPolicy(jitter=lambda: 0.0))


@pytest.mark.parametrize("name", ["backoff", "backoff_cap", "retry_after_cap"])
@pytest.mark.parametrize("value", [-1, -0.001, -math.inf, math.nan, "1", None, True, 10**400])
def test_a_policy_refuses_what_is_no_time_to_wait(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(f"{name}: expected seconds from 0, got ")):
        RetryPolicy(**{name: value})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"attempts": 0}, "attempts: expected at least 1, got 0"),
        ({"attempts": 2.5}, "attempts: expected a whole number, got float"),
        ({"budget": -1}, "budget: expected at least 0, got -1"),
        ({"budget": 1.5}, "budget: expected a whole number, got float"),
        ({"counts_refusals": "no"}, "counts_refusals: expected bool, got str; pass True or False"),
        ({"jitter": 5}, "jitter: expected a function that returns a random number, got int; pass, for example, random.random"),
    ],
)
def test_a_policy_refuses_what_would_fail_when_it_retries(values: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRequest, match=re.escape(message)):
        RetryPolicy(**values)


def test_only_a_denial_that_does_not_ask_to_wait_is_one() -> None:
    denials = [answered(401), answered(403), BulkStopped("x", status_code=403)]
    others = [answered(403, retry_after="1"), answered(403, named_wait=0.0), BulkSuspended("x", status_code=403), answered(404)]
    assert [is_denied(error) for error in (*denials, *others)] == [True, True, True, False, False, False, False]
