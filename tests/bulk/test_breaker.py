"""When a run pauses, and when a failure counts against its row: failure counting, and the breaker."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.examples import scaled

from outreach_async.bulk import _throttle as run_throttle
from outreach_async.bulk._throttle import Breaker, FailureWindow

seconds = st.floats(0.001, 30)
rates = st.floats(0.5, 2000)


# Failure counting


@given(st.lists(st.booleans(), max_size=300))
@example([False, *[True] * 100])
def test_the_service_is_failing_when_half_of_the_last_100_results_are_faults(results: list[bool]) -> None:
    health = FailureWindow()
    for number, good in enumerate(results, 1):
        health.record_success() if good else health.record_fault(0)
        window = results[max(0, number - 100) : number]
        assert health.size == len(window)
        assert health.is_failing is (len(window) >= 20 and window.count(False) * 2 >= len(window))


@given(st.lists(st.booleans(), max_size=150))
def test_a_row_is_at_fault_if_nearly_all_of_many_neighbours_succeed(results: list[bool]) -> None:
    health = FailureWindow()
    for good in results:
        health.record_success() if good else health.record_fault(0)
    window = results[-100:]
    assert health.is_row_at_fault(0) is (None if len(window) < 20 else window.count(True) >= 0.9 * len(window))


def test_earlier_failures_of_a_row_do_not_excuse_it() -> None:
    health = FailureWindow()
    for _ in range(20):
        health.record_success()
    for earlier in (0, 1, 2):
        health.record_fault(earlier)
    assert health.is_row_at_fault(3)
    assert not health.is_row_at_fault(0)


def test_refusals_excuse_a_row_but_the_service_does_not_count_as_failing() -> None:
    health = FailureWindow()
    for _ in range(40):
        health.record_success()
        health.record_fault(0, proves_outage=False)
    assert (health.is_failing, health.is_row_at_fault(0)) == (False, False)


def test_clearing_forgets_earlier_results() -> None:
    health = FailureWindow()
    for _ in range(50):
        health.record_fault(0)
    assert health.is_failing
    health.clear()
    assert health.size == 0
    assert not health.is_failing


# The breaker


class Breakers(RuleBasedStateMachine):
    """Invariants of the breaker under any sequence of events."""

    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.now = 0.0
        self.probe: float | None = None

    @rule(gap=st.floats(0.01, 100))
    def wait(self, gap: float) -> None:
        self.now += gap

    @precondition(lambda self: self.breaker.closed)
    @rule(pause=st.floats(0, 5))
    def trip(self, pause: float) -> None:
        self.breaker.trip(self.now, pause)
        assert self.breaker.opens_at == self.now + pause

    @precondition(lambda self: self.breaker.opens_at <= self.now)
    @rule()
    def start(self) -> None:
        self.breaker.record_start(self.now)
        self.probe = None if self.breaker.closed else self.now
        assert self.breaker.closed or self.breaker.opens_at > self.now  # a second probe has to wait

    @precondition(lambda self: self.probe is not None)
    @rule(end=st.sampled_from(["failed", "refused", "close"]))
    def hear(self, end: str) -> None:
        assert self.probe is not None
        assert self.breaker.is_probe(self.probe)
        if end == "close":
            self.breaker.close()
        else:
            self.breaker.on_probe_failure(self.now, is_refusal=end == "refused")
        self.probe = None
        assert self.breaker.closed is (end == "close")

    @rule(latest=st.floats(-10, 100))
    def shorten(self, latest: float) -> None:
        before, latest = self.breaker.opens_at, self.now + latest
        self.breaker.shorten_pause(self.now, latest)
        is_due = not self.breaker.closed and self.probe is None and latest > self.now
        assert self.breaker.opens_at == (min(before, latest) if is_due else before)

    @invariant()
    def a_pause_has_an_end_and_what_began_before_the_probe_is_not_it(self) -> None:
        assert self.breaker.opens_at <= self.now + max(run_throttle.MAX_PAUSE, run_throttle.PROBE_LEASE)
        assert not self.breaker.closed or self.breaker.opens_at <= self.now
        assert not self.breaker.is_probe(-1.0)
        assert self.breaker.is_probe(self.now) is (self.probe is not None)


TestBreakers = Breakers.TestCase
TestBreakers.settings = settings(max_examples=scaled(40), stateful_step_count=30)


def test_pauses_double_up_to_the_maximum_and_restart_after_a_success() -> None:
    opened, now, pauses = Breaker(), 0.0, []
    opened.trip(now)
    for _ in range(6):
        pauses.append(opened.opens_at - now)
        now = opened.opens_at
        opened.record_start(now)
        opened.on_probe_failure(now)
    assert pauses == [5, 10, 20, 40, 60, 60]
    opened.close()
    opened.trip(now)
    assert opened.opens_at == now + 5
