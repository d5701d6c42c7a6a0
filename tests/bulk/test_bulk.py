"""Creating many contacts: every row gets one correct outcome, memory is bounded, and a run can be left early."""

from __future__ import annotations

import gc
import json
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.runs import Counted, client, drain, outcomes_of, rows
from support.time import ALLOW_LOOP_FIXTURE, virtual_time
from support.transport import HANG, Script, added, lost, numbered, skipped, status, unsent

from outreach_async import (
    BulkReport,
    BulkStopped,
    BulkSuspended,
    ContactOutcome,
    InvalidRequest,
    NewContact,
    Outcome,
    Progress,
    Request,
    Response,
    RetryPolicy,
    StatusError,
    TransportError,
)
from outreach_async._plumbing import order_key
from outreach_async.testing import VirtualTime

pytestmark = virtual_time


class Answering:
    """A service whose response and delay both depend on the e-mail."""

    def __init__(self, answer: Callable[[str], Response | Exception], seconds: Callable[[str], float] = lambda _: 0.0) -> None:
        self.answer = answer
        self.seconds = seconds
        self.started: list[str] = []
        self.open: set[str] = set()
        self.overlaps: list[tuple[str, str]] = []
        self.most_open = 0

    async def send(self, request: Request, progress: Progress, /) -> Response:
        email = json.loads(request.body)["email"]
        progress.sent = True
        self.started.append(email)
        number = len(self.started)
        self.overlaps += [(other, email) for other in self.open if order_key(other) == order_key(email)]
        self.open.add(email)
        self.most_open = max(self.most_open, len(self.open))
        try:
            await anyio.sleep(self.seconds(email))
        finally:
            self.open.discard(email)
        answer = self.answer(email)
        if isinstance(answer, Exception):
            raise answer
        return numbered(answer, number)

    async def aclose(self) -> None: ...


async def test_awaiting_a_run_returns_its_report() -> None:
    run = client(Answering(lambda email: added() if email < "user5" else skipped())).contacts.create_many(rows(10))
    report = await run
    assert isinstance(report, BulkReport)
    assert report.to_dict() == {
        "rows": 10,
        "outcomes": dict.fromkeys(Outcome, 0) | {"added": 5, "skipped": 5},
        "uncertain": 0,
        "repeats": 0,
        "seconds": 0.0,
    }


async def test_an_invalid_row_is_rejected_with_its_input_and_the_run_continues() -> None:
    contacts: list[Any] = [
        {"email": "a@a.example"},
        {"email": " "},
        3,
        {"email": "b@a.example", "custom_x": "1"},
        NewContact("c@a.example"),
    ]
    script = Script(added())
    found = await outcomes_of(client(script).contacts.create_many(contacts, order="input"))
    assert [outcome.status.value for outcome in found] == ["added", "rejected", "rejected", "rejected", "added"]
    assert [outcome.contact for outcome in found] == contacts
    assert all(
        isinstance(found[bad].error, InvalidRequest) and found[bad].certain and not found[bad].attempts for bad in (1, 2, 3)
    )
    assert len(script.requests) == 2


@pytest.mark.parametrize(
    ("failure", "expected", "possible"),
    [
        (lost(), "unknown", "added skipped not_applied"),
        (status(500), "unknown", "added skipped not_applied"),
        (Response(200, {}, b"<html>"), "unknown", "added skipped not_applied"),
        (Response(200, {}, b'{"status":"error"}'), "unknown", "added skipped not_applied"),
        (status(425), "unknown", "added skipped not_applied"),
        (status(499), "unknown", "added skipped not_applied"),
        (status(422), "rejected", "rejected"),
        (status(400), "rejected", "rejected"),
        (status(409), "rejected", "rejected"),
        (status(413), "rejected", "rejected"),
    ],
    ids=repr,
)
async def test_the_outcome_of_a_failed_row_is_what_its_error_proves(failure: Any, expected: str, possible: str) -> None:
    bad, *others = rows(60)
    service = Answering(lambda email: failure if email == bad.email else added(), lambda email: float(email != bad.email))
    found = await outcomes_of(client(service).contacts.create_many([bad, *others], concurrency=4))
    (outcome,) = [outcome for outcome in found if outcome.index == 0]
    assert (outcome.status, set(outcome.possible), outcome.certain) == (expected, {*possible.split()}, " " not in possible)
    assert outcome.error is not None
    assert outcome.error.operation in {"create_contact", None}


async def test_a_run_that_never_reaches_the_service_is_suspended_with_no_row_applied() -> None:
    script, found, began = Script(unsent()), list[ContactOutcome](), anyio.current_time()
    async with client(script).contacts.create_many(rows(1000), concurrency=8) as outcomes:
        with pytest.raises(BulkSuspended, match=r"service unreachable after 4 attempts: .*no connection"):
            await drain(outcomes, found)
    assert {(outcome.status.value, outcome.certain) for outcome in found} == {("not_applied", True)}
    assert len(script.requests) <= 8 + 3
    assert anyio.current_time() - began < 5


@pytest.mark.parametrize("headers", [{}, {"retry_after": "7"}, {"retry_after": "600"}], ids=str)
async def test_a_run_answered_only_with_503_ends_at_max_outage(headers: dict[str, Any]) -> None:
    found, began = list[ContactOutcome](), anyio.current_time()
    async with client(Script(status(503, **headers))).contacts.create_many(rows(20), concurrency=4, max_outage=60) as outcomes:
        with pytest.raises(BulkSuspended, match="run suspended: no request has succeeded for 60 s"):
            await drain(outcomes, found)
    assert anyio.current_time() - began == pytest.approx(60, abs=0.1)
    assert {outcome.status.value for outcome in found} <= {"unknown", "not_applied"}


async def test_a_row_rejected_after_a_lost_response_may_have_been_applied() -> None:
    (outcome,) = await outcomes_of(client(Script(lost(), status(422))).contacts.create_many(rows(1), duplicates="overwrite"))
    assert outcome.status is Outcome.REJECTED
    assert outcome.possible == {Outcome.REJECTED, Outcome.ADDED, Outcome.OVERWRITTEN}


@pytest.mark.parametrize(
    ("code", "label"),
    [
        *((code, "not_applied") for code in (401, 403, 404, 405, 407)),
        *((code, "unknown") for code in (301, 302, 303, 308, 501, 505)),
    ],
)
async def test_a_refusal_of_the_whole_run_stops_it_with_an_outcome_for_each_row(code: int, label: str) -> None:
    script = Script(status(code, b'{"error":{"message":"unknown key"}}'))
    counted, found = Counted(rows(100_000)), list[ContactOutcome]()
    async with client(script).contacts.create_many(counted, concurrency=3) as outcomes:
        with pytest.raises(BulkStopped, match="unknown key") as caught:
            await drain(outcomes, found)
        with pytest.raises(StopAsyncIteration):
            await anext(outcomes)
    assert sorted(outcome.index for outcome in found) == list(range(counted.read))
    assert {outcome.status.value for outcome in found if outcome.attempts} == {label}
    assert all(outcome.certain is (outcome.status is Outcome.NOT_APPLIED) for outcome in found)
    assert (caught.value.status_code, caught.value.report) == (code, outcomes.report.to_dict())
    assert isinstance(caught.value.__cause__, StatusError)
    assert len(script.requests) <= 3
    assert counted.read <= 3 * 4


async def test_rows_queued_behind_the_same_email_when_a_run_stops_are_not_applied() -> None:
    contacts = [NewContact("a@a.example")] * 4
    script = Script(1.0, status(403))
    async with client(script).contacts.create_many(contacts, order="input") as outcomes:
        found = [await anext(outcomes) for _ in contacts]
        with pytest.raises(BulkStopped):
            await anext(outcomes)
    assert [(outcome.status.value, outcome.attempts) for outcome in found] == [("not_applied", 1), *[("not_applied", 0)] * 3]
    assert len(script.requests) == 1


async def test_a_row_whose_attempt_times_out_after_the_run_stopped_is_unknown() -> None:
    found: list[ContactOutcome] = []
    async with client(Script(HANG, 20.0, status(403))).contacts.create_many(rows(2), concurrency=2, order="input") as outcomes:
        with pytest.raises(BulkStopped):
            await drain(outcomes, found)
    sure, unsure = sorted(found, key=lambda outcome: outcome.status)
    assert (sure.status, sure.certain, unsure.status) == (Outcome.NOT_APPLIED, True, Outcome.UNKNOWN)
    assert Outcome.ADDED in unsure.possible
    assert (sure.attempts, unsure.attempts) == (1, 1)


async def test_a_rejection_that_arrives_after_the_run_stopped_is_the_outcome() -> None:
    script, found = Script(status(403), 5.0, status(422), together=2), list[ContactOutcome]()
    async with client(script).contacts.create_many(rows(2), concurrency=2) as outcomes:
        with pytest.raises(BulkStopped):
            await drain(outcomes, found)
    assert [outcome.status for outcome in found] == [Outcome.NOT_APPLIED, Outcome.REJECTED]


async def test_a_transport_that_refuses_a_valid_row_stops_the_run() -> None:
    script = Script(InvalidRequest("the transport is closed"))
    async with client(script).contacts.create_many(rows(1000), concurrency=2) as outcomes:
        found: list[ContactOutcome] = []
        with pytest.raises(BulkStopped, match="the transport is closed"):
            await drain(outcomes, found)
    assert {outcome.status for outcome in found} == {Outcome.NOT_APPLIED}
    assert len(script.requests) <= 2


async def test_rows_with_the_same_email_are_sent_one_at_a_time_in_input_order() -> None:
    emails = [f"{name}@a.example" for _ in range(20) for name in ("ann", "Ann", "änn", "ann+x", "bob", "eve")]
    answering = Answering(lambda _: added(), seconds=lambda email: len(email) / 10)
    await client(answering).contacts.create_many([NewContact(email) for email in emails])
    assert answering.overlaps == []
    assert answering.most_open == 3
    by_key: dict[str, list[str]] = defaultdict(list)
    for email in answering.started:
        by_key[order_key(email)].append(email)
    assert by_key[order_key("ann@a.example")] == [email for email in emails if email[0] in "aAä"]


@pytest.mark.thorough
@settings(suppress_health_check=ALLOW_LOOP_FIXTURE)
@given(st.lists(st.tuples(st.sampled_from("abcABC"), st.floats(0, 3)), max_size=40), st.integers(1, 9), st.booleans())
def test_every_row_has_one_outcome_and_order_input_keeps_the_order_of_rows(
    anyio_backend: Any, plan: list[tuple[str, float]], concurrency: int, in_order: bool
) -> None:
    emails = [f"{name}@{number % 3}.example" for number, (name, _) in enumerate(plan)]
    seconds = {email: wait for email, (_, wait) in zip(emails, plan, strict=True)}
    answering = Answering(lambda _: added(), seconds=seconds.__getitem__)

    async def run() -> list[ContactOutcome]:
        contacts = [NewContact(email) for email in emails]
        order: Any = "input" if in_order else "completion"
        return await outcomes_of(client(answering).contacts.create_many(contacts, concurrency=concurrency, order=order))

    found = anyio.run(run, backend=anyio_backend[0], backend_options=VirtualTime().options(anyio_backend[0]))
    indexes = [outcome.index for outcome in found]
    assert sorted(indexes) == list(range(len(emails)))
    assert not in_order or indexes == sorted(indexes)
    assert Counter(answering.started) == Counter(emails)
    assert answering.most_open <= concurrency
    assert answering.overlaps == []


@pytest.mark.parametrize(("concurrency", "bound"), [(5, 5), (64, 8)])
async def test_concurrency_and_the_limit_of_the_client_bound_rows_in_flight(concurrency: int, bound: int) -> None:
    answering = Answering(lambda _: added(), seconds=lambda _: 1.0)
    await client(answering, max_in_flight=8).contacts.create_many(rows(100), concurrency=concurrency)
    assert answering.most_open == bound


async def test_a_slow_consumer_stops_reading_rows_and_holds_no_response_open() -> None:
    counted, script = Counted(rows(10_000)), Script(added())
    async with client(script).contacts.create_many(counted, concurrency=4) as outcomes:
        await anext(outcomes)
        await anyio.sleep(3600)
        assert counted.read <= 4 * 4 + 1
        assert script.in_flight == 0


async def test_many_rows_with_one_email_do_not_grow_the_window() -> None:
    counted = Counted([NewContact("same@a.example")] * 10_000)
    async with client(Script(HANG), timeout=None, deadline=None).contacts.create_many(counted, concurrency=4):
        await anyio.sleep(60)
        assert counted.read == 4 * 4


@pytest.mark.parametrize("leave", ["return", "raise", "cancel"])
async def test_leaving_early_cancels_requests_and_the_client_stays_usable(leave: str) -> None:
    script = Script(added(), HANG)
    one = client(script, timeout=None, deadline=None)

    async def run() -> ContactOutcome:
        async with one.contacts.create_many(rows(1000)) as outcomes:
            first = await anext(outcomes)
            if leave == "raise":
                raise LookupError("mine")
            return first if leave == "return" else await anext(outcomes)

    raised = pytest.raises(LookupError, match="mine") if leave == "raise" else nullcontext()  # not wrapped in a group
    with anyio.move_on_after(5) as scope, raised:
        assert (await run()).status is Outcome.ADDED
    assert scope.cancelled_caught is (leave == "cancel")
    assert script.in_flight == 0
    script.entries = [added()]
    assert (await one.contacts.create_many(rows(200))).rows == 200


async def test_the_deadline_of_a_row_counts_its_attempts_and_not_its_waits() -> None:
    script = Script(status(429, retry_after="600"), 3.0, added())
    (outcome,) = await outcomes_of(client(script, deadline=5.0).contacts.create_many(rows(1)))
    assert (outcome.status, outcome.attempts, outcome.certain) == (Outcome.ADDED, 2, True)


async def test_a_row_that_has_used_up_its_deadline_is_unknown() -> None:
    bad, *others = rows(100)
    service = Answering(lambda _: added(), lambda email: 100.0 if email == bad.email else 0.5)
    contacts = client(service, timeout=2.0, deadline=5.0).contacts
    found = await outcomes_of(contacts.create_many([bad, *others], concurrency=4))
    (outcome,) = [outcome for outcome in found if outcome.index == 0]
    assert (outcome.status, outcome.attempts) == (Outcome.UNKNOWN, 4)  # nothing proves that the first failure is due to the row


@pytest.mark.parametrize("failure", [lost(), unsent(), status(503), status(503, retry_after="1"), HANG], ids=repr)
@pytest.mark.parametrize("count", [1, 2, 4])
async def test_a_small_run_waits_for_a_service_that_fails_for_five_minutes(failure: Any, count: int) -> None:
    began = anyio.current_time()

    def is_down(email: str) -> bool:
        return email != "user0@a.example" and anyio.current_time() < began + 300

    service = Answering(
        lambda email: failure if is_down(email) and failure != HANG else added(),
        lambda email: 1e9 if is_down(email) and failure == HANG else 0.1,
    )
    one = client(service, timeout=10.0, deadline=20.0)
    report = await one.contacts.create_many(rows(count + 1), concurrency=4, order="input")
    assert report.outcomes[Outcome.ADDED] == count + 1
    assert 300 <= anyio.current_time() - began <= 300 + 60 + 15


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"email": "a@a.example"}, "rows: expected an iterable of contacts, got a single dict"),
        (NewContact("a@a.example"), "rows: expected an iterable of contacts, got a single NewContact"),
        ("a@a.example", "rows: expected an iterable of contacts, got a single str"),
        (None, "rows: expected an iterable of contacts, got None"),
    ],
    ids=repr,
)
async def test_an_argument_that_is_not_many_rows_is_refused_at_once(bad: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        client(Script(added())).contacts.create_many(bad)


@pytest.mark.parametrize(
    "options",
    [
        *({"concurrency": 0}, {"concurrency": True}, {"order": "reverse"}, {"duplicates": "ignore"}, {"numbers": "drop"}),
        *({"repeats": "first"}, {"repeats": "twice"}, {"resume": True}, {"spool": True}, {"earlier": "unknown"}),
        *({"earlier": "lost", "journal": "run.db"}, {"journal": 3}, {"stop_after_rejects": 0}, {"total": -1}),
    ],
    ids=repr,
)
async def test_invalid_options_are_refused_at_once(options: Any) -> None:
    with pytest.raises(InvalidRequest, match=f"^{next(iter(options))}: "):
        client(Script(added())).contacts.create_many(rows(1), **options)


async def test_iterating_outside_a_block_says_how_to_iterate() -> None:
    run = client(Script(added())).contacts.create_many(rows(1))
    with pytest.raises(InvalidRequest, match="async with"):
        aiter(run)


async def test_a_run_can_be_started_only_once() -> None:
    run = client(Script(added())).contacts.create_many(rows(1))
    await run
    with pytest.raises(InvalidRequest, match="has already started"):
        await run


async def test_an_internal_error_is_raised_to_the_consumer() -> None:
    class Broken:
        """A transport that violates the transport protocol."""

        async def send(self, _request: Request, _progress: Progress, /) -> Response:
            await anyio.lowlevel.checkpoint()
            return None  # type: ignore[return-value]

        async def aclose(self) -> None: ...

    with pytest.raises(AttributeError):
        await client(Broken()).contacts.create_many(rows(3))


async def test_outcomes_contain_no_secret() -> None:
    async with client(Script(status(422, b'{"error":"key_secret is wrong"}'))).contacts.create_many(rows(3)) as outcomes:
        text = "".join([f"{outcome!r}{outcome.error}{outcome.error.body!r}" async for outcome in outcomes if outcome.error])
    assert text
    assert "key_secret" not in text


async def test_nothing_of_a_finished_run_is_kept_in_memory() -> None:
    # The e-mails are unique to this test, because outcomes of other tests may still be in memory.
    contacts = [NewContact(f"user{number}@kept.example") for number in range(500)]
    await client(Script(added())).contacts.create_many(contacts)
    gc.collect()
    kept = [thing.contact for thing in gc.get_objects() if type(thing) is ContactOutcome]  # not of what raises when it is asked
    assert not [contact for contact in kept if isinstance(contact, NewContact) and contact in contacts]


class Uninterruptible:
    """A transport that ignores cancellation until the response has arrived."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.answers = list(answers)

    async def send(self, _request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        with anyio.CancelScope(shield=True):
            await anyio.sleep(3.0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return numbered(answer, len(self.answers))

    async def aclose(self) -> None: ...


async def test_a_response_that_arrives_after_an_ignored_timeout_counts() -> None:
    transport = Uninterruptible(added(), added(), lost(), added())
    found = await outcomes_of(client(transport, timeout=1.0).contacts.create_many(rows(3), concurrency=1))
    assert [(outcome.status, outcome.attempts) for outcome in found] == [
        (Outcome.ADDED, 1),
        (Outcome.ADDED, 1),
        (Outcome.ADDED, 2),
    ]


async def test_an_attempt_with_an_earlier_deadline_than_those_before_it_ends_in_time() -> None:
    transport = Answering(lambda _: added(), seconds=lambda email: 2.0 if email.startswith("quick") else 100.0)
    emails = [*(f"user{number}@a.example" for number in range(3)), *(f"quick{number}@a.example" for number in range(40))]
    terms = {"timeout": 60.0, "deadline": 61.0, "retry": RetryPolicy(attempts=2, jitter=lambda: 1.0)}
    began = anyio.current_time()
    found = await outcomes_of(client(transport, **terms).contacts.create_many(map(NewContact, emails), concurrency=4))
    assert anyio.current_time() - began == pytest.approx(68, abs=2)  # 40 quick rows: one at a time until 61.5 s, then four
    assert Counter(str(outcome.status) for outcome in found) == {"added": 40, "unknown": 3}


async def test_an_attempt_of_a_row_that_times_out_is_retried() -> None:
    script = Script(HANG, added())
    (outcome,) = await outcomes_of(client(script, timeout=2.0).contacts.create_many(rows(1)))
    assert (outcome.status, outcome.attempts, outcome.possible) == (Outcome.ADDED, 2, frozenset({Outcome.ADDED}))
    assert TransportError not in map(type, [outcome.error])
