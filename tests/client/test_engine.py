"""One call, from its slot to its response: attempts, waits, the deadline and errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from email.utils import formatdate
from itertools import pairwise
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables import check_rows_async
from support.time import ALLOW_LOOP_FIXTURE, jump, virtual_time
from support.transport import FAULTS, HANG, STUCK, Script, added, lost, page, skipped, status, unsent

from outreach_async import NewContact, Outcome, OutreachClient, Progress, Request, Response, RetryPolicy
from outreach_async._core.attempts import CallOptions
from outreach_async._core.engine import Engine
from outreach_async._core.limits import RetryAfterGate
from outreach_async._core.operations import Operation
from outreach_async._core.retry import FailedAttempt, FailureKind, Idempotency, RetryDecision
from outreach_async.errors import DeadlineExceeded, OutreachError, RateLimited, StatusError, TransportError, UnexpectedResponse
from outreach_async.hooks import CallEnded, Event
from outreach_async.testing import VirtualTime

pytestmark = virtual_time

FULL: Callable[[], float] = lambda: 1.0  # noqa: E731 - maximum jitter
CONTACT = NewContact("a@b.example")


def client(transport: Any, **options: Any) -> OutreachClient:
    options = {"retry": RetryPolicy(jitter=FULL), **options}
    return OutreachClient(transport=transport, owner_key="key_secret", workspace="space_1", **options)


async def test_a_permanent_failure_is_raised_at_once() -> None:
    async def check(code: int) -> None:
        script = Script(status(code, b'{"error":{"message":"no such thing"}}', x_request_id="req_9"))
        with pytest.raises(StatusError, match=f"list_campaigns: the service answered {code}: no such thing") as caught:
            await client(script).campaigns.list()
        error = caught.value
        assert (error.operation, error.status_code, error.request_id, error.attempts) == ("list_campaigns", code, "req_9", 1)
        assert (error.maybe_sent, error.maybe_applied) == (True, not 400 <= code < 500)

    await check_rows_async(((code,) for code in [300, 301, 307, 400, 401, 403, 404, 405, 409, 413, 415, 422, 501, 505]), check)


async def test_an_attempt_that_hangs_is_ended_by_its_timeout_and_retried() -> None:
    script = Script(HANG, page())
    await client(script, timeout=3.0).campaigns.list()
    assert script.times[1] - script.times[0] == pytest.approx(3.5)
    with pytest.raises(TransportError, match="no response within the timeout of 3 s"):
        await client(Script(HANG), timeout=3.0).campaigns.list()


async def test_the_deadline_bounds_attempts_and_waits_together() -> None:
    script = Script(HANG)
    began = anyio.current_time()
    with pytest.raises(DeadlineExceeded) as caught:
        await client(script, timeout=4.0, deadline=10.0).campaigns.list()
    assert anyio.current_time() - began == pytest.approx(10.0)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value.__cause__, TransportError)
    assert (caught.value.attempts, caught.value.maybe_sent, caught.value.maybe_applied) == (3, True, True)


@pytest.mark.parametrize(
    ("entries", "maybe_sent"), [([HANG], True), ([STUCK], False), ([lost(), STUCK], True), ([unsent(), HANG], True)], ids=repr
)
async def test_a_deadline_during_an_attempt_says_what_any_attempt_may_have_done(entries: list[Any], maybe_sent: bool) -> None:
    with pytest.raises(DeadlineExceeded, match="no response within the deadline of 9 s") as caught:
        await client(Script(*entries), timeout=None, deadline=9.0).contacts.create(CONTACT)
    assert (caught.value.maybe_sent, caught.value.maybe_applied, caught.value.attempts) == (maybe_sent, maybe_sent, len(entries))


async def test_a_wait_beyond_the_deadline_is_not_started() -> None:
    began = anyio.current_time()
    with pytest.raises(DeadlineExceeded, match="no further attempt fits within the deadline of 2 s") as caught:
        await client(Script(status(500)), deadline=2.0).campaigns.list()
    assert anyio.current_time() - began == pytest.approx(1.5)
    assert isinstance(caught.value.__cause__, StatusError)


async def test_the_deadline_bounds_the_wait_for_a_slot_and_nothing_is_sent() -> None:
    script = Script(HANG)
    one = client(script, max_in_flight=1, timeout=None, deadline=None)
    async with anyio.create_task_group() as group:
        group.start_soon(one.request, "GET", "/held")
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(DeadlineExceeded, match="no attempt could start within the deadline of 5 s") as caught:
            await one.contacts.create(CONTACT, deadline=5.0)
        group.cancel_scope.cancel()
    assert (caught.value.maybe_sent, caught.value.attempts, len(script.requests)) == (False, 0, 1)


async def test_without_timeout_and_deadline_a_call_waits_indefinitely() -> None:
    contact = await client(Script(86_400.0, added()), timeout=None, deadline=None).contacts.create(CONTACT)
    assert contact.status is Outcome.ADDED


async def test_a_retry_after_date_counts_from_our_clock_if_the_response_has_no_date() -> None:
    script = Script(status(503, retry_after=formatdate(1_000_007, usegmt=True)), status(200))
    engine = Engine(script, max_in_flight=1, policy=RetryPolicy(jitter=lambda: 0.0), wall_clock=lambda: 1_000_000.0)
    operation = Operation("read", Request("GET", "/"), lambda response, _: response, Idempotency.SAFE)
    await engine.run(operation, CallOptions(None, None))
    assert script.times[1] - script.times[0] == pytest.approx(7.0)


async def test_a_retry_after_of_zero_still_waits_for_the_backoff() -> None:
    script = Script(*[status(429, retry_after="0")] * 2, page())
    await client(script).campaigns.list()
    waits = [after - before for before, after in pairwise(script.times)]
    assert waits[0] == pytest.approx(0.5)
    assert waits[1] >= 1.0


async def test_retry_after_is_capped() -> None:
    script = Script(status(429, retry_after="31536000"), page())
    await client(script, deadline=None, retry=RetryPolicy(retry_after_cap=60.0, jitter=lambda: 0.0)).campaigns.list()
    assert script.times[1] - script.times[0] == pytest.approx(60.0)


@pytest.mark.parametrize("seconds", [120, 300])
async def test_a_retry_after_up_to_the_deadline_or_beyond_raises_at_once(seconds: int) -> None:
    began = anyio.current_time()
    with pytest.raises(RateLimited) as caught:
        await client(Script(status(429, retry_after=str(seconds))), deadline=120.0).campaigns.list()
    assert anyio.current_time() == began
    assert (caught.value.retry_after, caught.value.status_code, caught.value.attempts) == (seconds, 429, 1)


async def test_retry_after_pauses_every_task_of_the_client_and_its_copies() -> None:
    script = Script(status(429, retry_after="10"), page())
    first = client(script)
    async with anyio.create_task_group() as group:
        group.start_soon(first.campaigns.list().collect)
        await anyio.wait_all_tasks_blocked()
        for _ in range(3):
            group.start_soon(first.with_options(workspace="space_2").campaigns.list().collect)
    assert script.times[1] - script.times[0] == pytest.approx(11.0)  # with jitter
    assert len(script.times) == 5


async def test_a_call_waits_for_a_paused_run_within_its_deadline_or_names_the_run() -> None:
    class Paused(Script):
        async def _play(self, progress: Progress, number: int) -> Response:
            response = await super()._play(progress, number)
            return page() if self.requests[number - 1].method == "GET" else response

    script = Paused(0.5, status(429, retry_after="300"), added())
    one, began = client(script, max_in_flight=1, retry=RetryPolicy(jitter=lambda: 0.0)), anyio.current_time()

    async def create() -> None:
        await one.contacts.create_many([CONTACT])

    async with anyio.create_task_group() as group:
        group.start_soon(create)
        await anyio.sleep(0.1)
        with pytest.raises(DeadlineExceeded, match=r"within the deadline of 20 s; the service asked run \d+ to wait 280 s more"):
            await one.campaigns.list(deadline=20.0)  # it has waited for a slot since before the refusal
        with pytest.raises(RateLimited, match=r"asked run \d+ to wait 280 s more, which exceeds the deadline") as caught:
            await one.campaigns.list()
        await one.campaigns.list(deadline=400.0)
    assert (caught.value.maybe_sent, caught.value.attempts, 300.0 < anyio.current_time() - began < 310.0) == (False, 0, True)


async def test_a_task_waiting_for_a_slot_respects_a_gate_closed_meanwhile() -> None:
    script = Script(1.0, status(429, retry_after="10"), page())
    one = client(script, max_in_flight=1)
    async with anyio.create_task_group() as group:
        group.start_soon(one.campaigns.list().collect)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(one.campaigns.list().collect)
    assert script.times[1] - script.times[0] == pytest.approx(12.0)  # with jitter
    assert len(script.times) == 3


async def test_a_slot_freed_after_the_deadline_starts_no_attempt() -> None:
    class Busy(Script):
        """Blocks the event loop beyond the deadline of the other call, and only then responds."""

        async def _play(self, progress: Progress, number: int) -> Response:
            await anyio.sleep(1.0)
            jump(200.0)
            return await super()._play(progress, number)

    script = Busy(page())
    one = client(script, max_in_flight=1)
    async with anyio.create_task_group() as group:
        group.start_soon(one.campaigns.list(timeout=None, deadline=None).collect)
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(DeadlineExceeded, match="no attempt could start within the deadline of 120 s") as caught:
            await one.campaigns.list()
    assert (caught.value.attempts, caught.value.maybe_sent, len(script.requests)) == (0, False, 1)
    assert one._engine.limiter.in_flight == 0


@pytest.mark.parametrize(("entry", "error"), [(status(429), RateLimited), (status(500), DeadlineExceeded)], ids=repr)
async def test_a_refusal_that_arrives_when_no_time_is_left_stays_one(entry: Any, error: type[OutreachError]) -> None:
    class Late(Script):
        """Blocks the event loop beyond the deadline, so that the response arrives before the cancellation."""

        async def _play(self, progress: Progress, number: int) -> Response:
            response = await super()._play(progress, number)
            jump(200.0)
            return response

    with pytest.raises(error) as caught:
        await client(Late(entry), timeout=None).campaigns.list()
    assert caught.value.attempts == 1
    assert "used up" not in str(caught.value)


async def test_a_call_whose_deadline_is_before_the_gate_opens_is_refused_unsent() -> None:
    script = Script(status(429, retry_after="300"), page())
    one = client(script)
    with pytest.raises(RateLimited):
        await one.campaigns.list()
    began = anyio.current_time()
    with pytest.raises(RateLimited, match="asked to wait 301 s more") as caught:
        await one.campaigns.list()
    assert anyio.current_time() == began
    assert (caught.value.maybe_sent, caught.value.attempts, len(script.requests)) == (False, 0, 1)
    await one.campaigns.list(deadline=None)


class Judge:
    """A run's throttle that makes scripted decisions and records what the engine reports."""

    def __init__(self, *verdicts: RetryDecision) -> None:
        self.gate = RetryAfterGate()
        self.run: int | None = 1
        self.verdicts = list(verdicts)
        self.events: list[str] = []
        self.blamed: list[int] = []
        self.earlier_failures: list[int] = []
        self.retry_after_values: list[float | None] = []
        self.waits: list[float] = []
        self.budget_spent = 0

    def create_progress(self) -> Progress:
        return Progress()

    def try_start(self, _now: float) -> bool:
        self.events.append("admitted")
        return True

    async def wait_and_start(self, not_before: float) -> None:
        self.waits.append(max(0.0, not_before - anyio.current_time()))
        await anyio.sleep_until(not_before)
        self.events.append("admitted")

    def on_cancelled(self, _now: float, _started: float) -> None:
        self.events.append("cancelled")

    def on_success(self, _now: float, _started: float, _headers: Mapping[str, str], budget_spent: int) -> None:
        self.events.append("answered")
        self.budget_spent = budget_spent

    def on_failure(self, attempt: FailedAttempt) -> RetryDecision:
        assert attempt.started <= attempt.ended == anyio.current_time()
        assert attempt.can_retry is (attempt.kind is not FailureKind.FINAL)
        self.events.append(attempt.kind.name)
        self.blamed.append(attempt.counted_failures)
        self.earlier_failures.append(attempt.earlier_failures)
        self.retry_after_values.append(attempt.retry_after)
        return self.verdicts.pop(0) if len(self.verdicts) > 1 else self.verdicts[0]


async def within(judge: Judge, *entries: Any, timeout: float | None = 30.0, deadline: float | None = 120.0) -> Response:
    engine = Engine(Script(*entries), max_in_flight=1, policy=RetryPolicy(jitter=FULL))
    engine.throttle = judge  # type: ignore[assignment]  # it records what the engine asks
    operation = Operation("read", Request("GET", "/"), lambda response, _: response, Idempotency.IDEMPOTENT)
    return await engine.run(operation, CallOptions(timeout, deadline))


async def test_a_throttle_is_informed_of_every_attempt_that_it_started() -> None:
    judge = Judge(RetryDecision.RETRY)
    await within(judge, lost(), unsent(), status(500), HANG, status(429, retry_after="40"), page())
    evidence = ["AMBIGUOUS", "NOT_SENT", "AMBIGUOUS", "AMBIGUOUS", "REFUSED", "answered"]
    assert judge.events == [word for each in evidence for word in ("admitted", each)]
    assert judge.retry_after_values == [None, None, None, None, 40.0]
    assert judge.waits == [0.5, 1.0, 2.0, 4.0, 40.0]


@pytest.mark.parametrize(("verdict", "spent"), [(RetryDecision.RETRY, 0), (RetryDecision.RETRY_COUNTED, 14 + 5)])
async def test_only_counted_failures_cost_retry_budget(verdict: RetryDecision, spent: int) -> None:
    judge = Judge(verdict)
    await within(judge, lost(), status(429), page())
    assert judge.budget_spent == spent


async def test_a_failure_not_counted_uses_up_neither_attempts_nor_deadline() -> None:
    judge = Judge(RetryDecision.RETRY)
    await within(judge, *[HANG] * 9, page())
    assert (judge.blamed, judge.earlier_failures) == ([0] * 9, list(range(9)))


async def test_counted_failures_use_up_the_deadline_of_the_call() -> None:
    judge = Judge(RetryDecision.RETRY_COUNTED)
    with pytest.raises(DeadlineExceeded, match="failed attempts used up the deadline of 70 s") as caught:
        await within(judge, HANG, deadline=70.0)
    assert (judge.blamed, caught.value.attempts, caught.value.maybe_applied) == ([0, 1, 2], 3, True)
    assert anyio.current_time() >= 70


async def test_a_counted_failure_after_the_deadline_is_the_last() -> None:
    with pytest.raises(DeadlineExceeded, match="failed attempts used up the deadline of 5 s") as caught:
        await within(Judge(RetryDecision.RETRY_COUNTED), 5.0, lost(), timeout=None, deadline=5.0)
    assert caught.value.maybe_applied


@pytest.mark.parametrize("verdict", [RetryDecision.GIVE_UP, RetryDecision.STOP_RUN])
async def test_a_throttle_ends_a_call_with_the_error_of_its_last_attempt(verdict: RetryDecision) -> None:
    with pytest.raises(TransportError, match="the answer was lost") as caught:
        await within(Judge(RetryDecision.RETRY, verdict), lost())
    assert caught.value.attempts == 2


async def test_a_throttle_cannot_force_a_retry_of_a_permanent_failure() -> None:
    judge = Judge(RetryDecision.RETRY)
    with pytest.raises(StatusError):
        await within(judge, status(422))
    assert judge.events == ["admitted", "FINAL"]


async def test_the_retry_budget_bounds_the_retries_of_all_calls_together() -> None:
    script = Script(status(500))
    one = client(script, retry=RetryPolicy(attempts=10, budget=30, jitter=FULL))
    for _ in range(5):
        with pytest.raises(StatusError):
            await one.campaigns.list()
    assert len(script.requests) == 5 + 2  # a budget of 30 pays for two retries at 14 each


async def test_a_success_refunds_what_its_retries_cost() -> None:
    script = Script(*[status(500), page()] * 10)
    one = client(script, retry=RetryPolicy(budget=14, jitter=FULL))
    for _ in range(10):
        await one.campaigns.list()
    assert len(script.requests) == 20


async def test_every_success_without_a_retry_refunds_one() -> None:
    script = Script(status(500), status(500), *[page()] * 15, status(500), page())
    one = client(script, retry=RetryPolicy(attempts=2, budget=14, jitter=FULL))
    with pytest.raises(StatusError):
        await one.campaigns.list()
    for _ in range(16):
        await one.campaigns.list()
    assert len(script.requests) == 19


async def test_a_200_whose_status_is_not_ok_is_an_error_and_not_retried() -> None:
    script = Script(Response(200, {}, b'{"status":"error","error":{"message":"no such workspace"}}'))
    with pytest.raises(UnexpectedResponse, match="answered 200 with status 'error': no such workspace") as caught:
        await client(script).campaigns.list()
    assert (len(script.requests), caught.value.maybe_applied) == (1, True)


@pytest.mark.parametrize("error", [OSError("reset"), RuntimeError("loop"), ConnectionRefusedError()], ids=repr)
async def test_a_foreign_error_becomes_a_transport_error_with_its_cause(error: Exception) -> None:
    with pytest.raises(TransportError, match=type(error).__name__) as caught:
        await client(Script(error), retry=RetryPolicy(attempts=1)).contacts.create(CONTACT)
    assert caught.value.maybe_sent  # the script had recorded that a byte was sent
    assert caught.value.__cause__ is error


class Silent(Script):
    """Plays its entries without recording progress."""

    async def _play(self, _progress: Progress, number: int) -> Response:
        return await super()._play(Progress(), number)


@pytest.mark.parametrize(("error", "maybe_sent"), [(OSError("reset"), True), (ConnectionRefusedError(), False)], ids=repr)
async def test_without_progress_only_a_refused_connection_proves_nothing_was_sent(error: Exception, maybe_sent: bool) -> None:
    with pytest.raises(TransportError) as caught:
        await client(Silent(error), retry=RetryPolicy(attempts=1)).contacts.create(CONTACT)
    assert caught.value.maybe_sent is maybe_sent


async def test_request_is_retried_only_while_no_byte_was_sent() -> None:
    script = Script(unsent(), lost(), status(200))
    with pytest.raises(TransportError) as caught:
        await client(script).request("POST", "/contacts", body=b"{}")
    assert (len(script.requests), caught.value.attempts) == (2, 2)


@pytest.mark.parametrize(("mine", "its", "bound"), [(8, 3, 3), (3, 8, 3), (5, None, 5)])
async def test_the_limiter_is_never_above_the_limit_of_the_transport(mine: int, its: int | None, bound: int) -> None:
    script = Script(1.0, page(), max_in_flight=its)
    script.entries = [1.0, page()] * 40
    one = client(script, max_in_flight=mine)
    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(one.campaigns.list().collect)
    assert script.most_in_flight == bound


async def test_bursts_of_cancelled_calls_leave_the_client_usable() -> None:
    script = Script(HANG)
    one = client(script, max_in_flight=4, timeout=None, deadline=None)
    for burst in range(30):
        async with anyio.create_task_group() as group:
            for _ in range(12):
                group.start_soon(one.request, "GET", "/")
            if burst % 2:
                await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert script.in_flight == 0
    script.entries = [page()]
    async with anyio.create_task_group() as group:
        for _ in range(12):
            group.start_soon(one.campaigns.list().collect)
    assert script.most_in_flight == 4


class Interrupted(BaseException):
    """An exception that a hook raises to end the task, as a signal handler may."""


async def test_a_call_interrupted_after_its_response_frees_its_slot_once() -> None:
    def interrupt(event: Event) -> None:
        if isinstance(event, CallEnded) and len(script.requests) == 1:
            raise Interrupted

    script = Script(1.0, page(), 1.0, page(), 1.0, page(), 1.0, page())
    one = client(script, max_in_flight=1, hooks=[interrupt])
    with pytest.raises(Interrupted):
        await one.request("GET", "/")
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(one.request, "GET", "/")
    assert (script.most_in_flight, len(script.requests)) == (1, 4)


@settings(suppress_health_check=ALLOW_LOOP_FIXTURE)
@given(st.lists(st.sampled_from(list(FAULTS)), max_size=4), st.sampled_from([added(), skipped()]))
def test_a_creation_says_what_any_of_its_attempts_may_have_done(anyio_backend: Any, faults: list[str], last: Response) -> None:
    script = Script(*(FAULTS[fault]() for fault in faults), last)

    async def run() -> Any:
        try:
            return await client(script).contacts.create(CONTACT)
        except OutreachError as error:
            return error

    result = anyio.run(run, backend=anyio_backend[0], backend_options=VirtualTime().options(anyio_backend[0]))
    maybe_applied = not {"lost", "503", "500", "garbled", "hang"}.isdisjoint(faults)
    if len(faults) < 4:
        assert result.possible == ({Outcome.ADDED, result.status} if maybe_applied else {result.status})
        assert result.attempts == len(faults) + 1
    else:
        assert (result.attempts, result.maybe_applied) == (4, maybe_applied or faults[-1] == "garbled")
        assert result.maybe_sent is not {"unsent", "stuck"}.issuperset(faults)
        assert result.status_code == {"429": 429, "503": 503, "500": 500, "garbled": 201}.get(faults[-1])
