"""The rate limiter of a client: the configured rate, one queue, slots, shares, and what is kept between runs."""

from __future__ import annotations

import itertools
import math
import os
import subprocess
import sys
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.time import virtual_time

from outreach_async import RateLimited, RetryPolicy, StatusError
from outreach_async._core.limits import RateLimiter, RetryAfterGate, Usage, WaitingLine, reset_all_after_fork
from outreach_async._core.retry import FailedAttempt, FailureKind
from outreach_async.errors import OutreachError
from outreach_async.testing import VirtualTime

REFUSED = RateLimited("429", status_code=429)


def limiter(rate: float | None = None, **options: Any) -> RateLimiter:
    return RateLimiter(RetryPolicy(jitter=lambda: 0.0), max_in_flight=options.pop("max_in_flight", 100), rate=rate, **options)


def refused(at: float, retry_after: float | None = None, error: OutreachError = REFUSED) -> FailedAttempt:
    return FailedAttempt(error=error, kind=FailureKind.REFUSED, retry_after=retry_after, started=at, ended=at)


def test_a_refusal_lowers_the_limit_below_the_configured_rate() -> None:
    limits = limiter(50.0)
    assert limits.try_start(0.0)
    limits.on_failure(refused(0.0))
    assert limits.limit == pytest.approx(0.7)
    assert limiter(0.5).limit == 0.5


def learned() -> RateLimiter:
    """Return a limiter that has learned a limit from a refusal at the second 1."""
    limits = limiter()
    for at in range(100):
        limits.on_success(at / 100, at / 100)
    limits.on_failure(refused(1.0))
    return limits


def test_attempts_that_started_before_the_limit_was_cut_do_not_cut_it_again() -> None:
    limits = learned()
    cut = limits.limit
    for _ in range(20):
        limits.on_failure(FailedAttempt(REFUSED, FailureKind.REFUSED, started=0.5, ended=1.6))
    assert limits.limit == cut
    limits.on_failure(refused(1.6))
    assert limits.limit != cut


@pytest.mark.parametrize(
    ("code", "named_wait", "cuts"), [(503, None, False), (503, 0.0, True), (403, None, True), (400, 5.0, True)]
)
def test_a_refusal_cuts_the_limit_unless_the_service_is_only_unavailable(code: int, named_wait: float | None, cuts: bool) -> None:
    limits, error = learned(), StatusError(str(code), status_code=code)
    cut, error.named_wait = limits.limit, named_wait
    limits.on_failure(refused(1.6, 5.0, error))
    assert (limits.limit != cut) is cuts


@virtual_time
@pytest.mark.parametrize(
    "end",
    [
        lambda limits, now: limits.on_success(now, now),
        lambda limits, now: limits.on_failure(refused(now)),
        RateLimiter.on_cancelled,
    ],
    ids=["success", "failure", "cancelled"],
)
async def test_an_attempt_that_ends_passes_its_slot_to_the_first_waiter(end: Any) -> None:
    limits, now = limiter(max_in_flight=1), anyio.current_time()
    assert limits.try_start(now)
    async with anyio.create_task_group() as group:
        group.start_soon(limits.waiters.wait, limits.start_if_due)
        await anyio.wait_all_tasks_blocked()
        end(limits, now)
        assert limits.in_flight == 0
    assert limits.in_flight == 1


async def stand(line: WaitingLine, doomed: set[int], count: int) -> list[int]:
    """Queue many tasks for one start per second, cancel some of them, and return those that were served."""
    served: list[int] = []
    opens = [anyio.current_time() + 0.5]
    scopes = [anyio.CancelScope() for _ in range(count)]

    def take(now: float) -> float:
        opened = opens[0]
        if opened <= now:
            opens[0] = now + 1
        return opened

    async def ask(number: int) -> None:
        with scopes[number]:
            await line.wait(take)
            served.append(number)

    async with anyio.create_task_group() as group:
        for number in range(count):
            group.start_soon(ask, number)
            await anyio.lowlevel.checkpoint()
        await anyio.sleep(0.25)
        for number in doomed:
            scopes[number].cancel()
    assert not served or anyio.current_time() == pytest.approx(opens[0] - 1)
    return served


@settings(max_examples=scaled(30))
@given(st.integers(1, 12), st.sets(st.integers(0, 11)), st.sampled_from(["asyncio", "trio"]))
def test_turns_are_first_come_first_served_and_cancelling_loses_none(count: int, doomed: set[int], backend: str) -> None:
    line, doomed = WaitingLine(), {number for number in doomed if number < count}  # cancelled before any start
    served = anyio.run(partial(stand, line, doomed, count), backend=backend, backend_options=VirtualTime().options(backend))
    assert served == [number for number in range(count) if number not in doomed]
    assert not line.queue


@virtual_time
async def test_the_first_waiter_wakes_for_a_turn_sooner_by_a_millisecond_or_more() -> None:
    line = WaitingLine()
    opens, looks = [anyio.current_time() + 1000], itertools.count()

    def take(_: float) -> float:
        next(looks)
        return opens[0]

    line.wake_first(0.0)  # the queue is empty
    async with anyio.create_task_group() as group:
        group.start_soon(line.wait, take)
        await anyio.wait_all_tasks_blocked()
        line.wake_first(opens[0] - 0.0005)
        await anyio.wait_all_tasks_blocked()
        assert next(looks) == 1
        opens[0] = anyio.current_time()
        line.wake_first(opens[0])
    assert not line.queue


def test_a_gate_closed_again_opens_at_the_later_time() -> None:
    gate = RetryAfterGate()
    for seconds in (5.0, 20.0, 10.0):
        gate.close(refused(100.0, seconds), seconds)
    assert (gate.opens_at, gate.reason) == (120.0, "the service answered 429 and asked to wait 20 s")


def test_nothing_starts_before_a_retry_after_ends_and_then_slowly() -> None:
    limits = limiter()
    assert limits.try_start(0.0)
    limits.on_failure(refused(0.0, 10.0, StatusError("503", status_code=503)))
    assert not limits.try_start(9.9)
    assert limits.is_throttled(9.9)
    assert limits.try_start(10.0)
    assert not limits.try_start(10.5)


@pytest.mark.parametrize("rate", [None, 10.0])
def test_what_was_learned_in_one_event_loop_is_forgotten_in_the_next(
    anyio_backend: tuple[str, dict[str, Any]], rate: float | None
) -> None:
    limits = limiter(rate)

    async def learn() -> None:
        now = anyio.current_time()
        limits.use_loop(anyio.lowlevel.current_token().native_token, lambda: now)
        assert limits.try_start(now)
        limits.on_failure(refused(now, 1e9))
        limits.use_loop(anyio.lowlevel.current_token().native_token, lambda: now)
        assert limits.gate.opens_at > now

    async def start_again() -> None:
        now = anyio.current_time()
        limits.use_loop(anyio.lowlevel.current_token().native_token, lambda: now)
        assert (limits.gate.opens_at, limits.limit) == (-math.inf, rate)
        assert limits.try_start(now) is (rate is None)  # with a rate, the number of recent attempts is unknown
        assert limits.try_start(now + 0.1)

    anyio.run(learn, backend=anyio_backend[0])
    anyio.run(start_again, backend=anyio_backend[0])


def test_an_idle_time_changes_neither_the_limit_nor_the_measured_rate() -> None:
    limits = limiter()
    now = 0.0
    while now < 30:
        if limits.try_start(now):
            started, now = now, now + 0.01
            if 10 < now < 10.02:
                limits.on_failure(refused(started))
            else:
                limits.on_success(now, started)
        now += 0.01
    before = limits.limit
    assert before is not None
    now += 3600
    assert limits.try_start(now)
    limits.on_failure(refused(now))
    assert limits.limit is not None
    assert 40 < limits.limit < before  # 0.7 * 1.25 times the achieved rate


@virtual_time
async def test_nothing_starts_without_a_share_nor_after_it_has_expired() -> None:
    limits, began = limiter(needs_share=True), anyio.current_time()
    started: list[float] = []

    async def attempt() -> None:
        await limits.waiters.wait(limits.start_if_due)
        started.append(anyio.current_time() - began)

    async with anyio.create_task_group() as group:
        for _ in range(6):
            group.start_soon(attempt)
        await anyio.sleep(5)
        assert started == []
        limits.apply_share(1.0, began + 7.5)
        await anyio.sleep(5)
        assert started == pytest.approx([5, 6, 7])
        assert limits.is_throttled(anyio.current_time())
        limits.apply_share(2.0, math.inf, hold_until=began + 20)
    assert started == pytest.approx([5, 6, 7, 20, 20.5, 21])


@virtual_time
async def test_usage_counts_what_was_wanted_answered_and_refused() -> None:
    limits, now = limiter(needs_share=True), anyio.current_time()
    limits.apply_share(1000.0, math.inf)
    for _ in range(5):
        assert limits.try_start(now)
    limits.on_success(now, now)
    limits.on_failure(FailedAttempt(StatusError("422", status_code=422), FailureKind.FINAL, now, now))
    limits.on_failure(refused(now, 2.0))
    limits.on_failure(refused(now, 1.0, StatusError("503", status_code=503)))
    async with anyio.create_task_group() as group:
        group.start_soon(limits.waiters.wait, limits.start_if_due)
        await anyio.wait_all_tasks_blocked()
        assert limits.take_usage() == Usage(wanted=6, completed=2, refused=1, retry_after=2.0)
        group.cancel_scope.cancel()
    assert limits.take_usage() == Usage(wanted=0, completed=0, refused=0, retry_after=0.0)
    assert limits.limit == 1000.0  # the coordinator of the shares learns the limit


@virtual_time
async def test_a_refusal_of_an_attempt_older_than_a_lower_share_is_not_counted() -> None:
    limits, started = limiter(needs_share=True), anyio.current_time()
    limits.apply_share(1000.0, math.inf)
    assert limits.try_start(started)
    await anyio.sleep(0.5)
    limits.apply_share(100.0, math.inf)
    limits.on_failure(refused(started))
    assert limits.take_usage().refused == 0


def test_a_client_that_needs_no_share_counts_no_usage() -> None:
    limits = limiter()
    assert limits.take_usage() == Usage()
    assert limits.try_start(0.0)
    assert limits.take_usage() == Usage()


FORKING = """
import os
from outreach_async._core.limits import RateLimiter
from outreach_async._core.retry import RetryPolicy
limiter = RateLimiter(RetryPolicy(), max_in_flight=2)
assert limiter.try_start(0.0) and limiter.try_start(0.0)
child = os.fork()
if child == 0:
    os._exit(limiter.in_flight)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert limiter.in_flight == 2
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="on Windows no process is forked")
def test_in_a_forked_child_nothing_is_in_flight() -> None:
    subprocess.run([sys.executable, "-c", FORKING], check=True)


def test_attempts_started_before_a_fork_are_not_in_flight_after_it() -> None:
    limits = limiter(max_in_flight=1)
    assert limits.try_start(0.0)
    reset_all_after_fork()
    assert limits.try_start(0.0)
