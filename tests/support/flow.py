"""A simulated service, and workers that send requests to it through a throttle, timed by the clock of the event loop."""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, Literal

import anyio
import attrs

from outreach_async import (
    OutreachError,
    RateLimited,
    RetryPolicy,
    StatusError,
    TransportError,
)
from outreach_async._core.limits import RateLimiter
from outreach_async._core.retry import (
    FailedAttempt,
    FailureKind,
    Idempotency,
    RetryDecision,
    backoff_delay,
    classify,
    retry_cost,
)
from outreach_async._plumbing import RunThrottle, parse_retry_after
from outreach_async.bulk._throttle import MAX_PAUSE
from outreach_async.errors import BulkError
from outreach_async.testing import VirtualTime

Trouble = Literal["refused", "503", "hanging", "429"]
HANG: Final = 30.0
"""Timeout of an attempt, in seconds."""
SPAN: Final = 5.0
"""Window of a rate, in seconds."""
RECOVERY: Final = 30.0
"""Maximum seconds until `RECOVERED` rows have succeeded, after a service that refused all requests accepts requests again."""
RECOVERED: Final = 300
"""Number of successful rows after which a run counts as recovered."""


@attrs.frozen(kw_only=True)
class Scenario:
    """Limits and outages of a simulated service, and the workers that use it."""

    seconds: float
    limits: Sequence[tuple[float, float]]
    burst: float = 0.1
    latency: float = 0.05
    outages: Sequence[tuple[float, float, Trouble]] = ()
    asks: float | None = None
    random_refusals: float = 0.0
    workers: int = 64
    seed: int = 0

    def limit(self, at: float) -> float:
        return next(limit for since, limit in reversed(self.limits) if since <= at)

    def trouble(self, at: float) -> Trouble | None:
        return next((kind for begins, ends, kind in self.outages if begins <= at < ends), None)

    def counts(self, at: float) -> bool:
        """Return whether this time counts for goodput; outages and the wait for a probe that detects their end do not."""
        waits = {"hanging": MAX_PAUSE + HANG, "429": RECOVERY}
        return not any(begins <= at < ends + waits.get(kind, MAX_PAUSE) for begins, ends, kind in self.outages)

    def ideal(self, begins: float, ends: float) -> float:
        """Return the maximum number of requests that can succeed between two times, excluding times that do not count."""
        marks = sorted({begins, ends, *(at for at, _ in self.limits), *map(float, range(int(begins) + 1, int(ends)))})
        spans = [(a, b) for a, b in pairwise(marks) if begins <= a < b <= ends and self.counts(a)]
        return sum((b - a) * min(self.limit(a), self.workers / self.latency) for a, b in spans)


class Service:
    """A simulated service with a token bucket, latency and outages."""

    def __init__(self, scene: Scenario) -> None:
        self.scene = scene
        self.random = random.Random(scene.seed)  # noqa: S311 - a simulation that can be repeated
        self.started: list[float] = []
        self.refused: list[tuple[float, float]] = []
        """For each 429, the time of the response and the time at which its `Retry-After` ends."""
        self.succeeded: list[float] = []
        self._began = anyio.current_time()
        self._tokens = self.most(0.0)
        self._at = 0.0

    def most(self, at: float) -> float:
        return max(1.0, self.scene.burst * self.scene.limit(at))

    def now(self) -> float:
        return anyio.current_time() - self._began

    async def answer(self) -> dict[str, str]:
        at = self.now()
        self.started.append(at)
        trouble = self.scene.trouble(at)
        if trouble == "refused":
            raise TransportError("nobody listens", maybe_sent=False)
        if trouble == "hanging":
            await anyio.sleep(HANG)
            raise TransportError("no answer within 30 s", maybe_sent=True)
        allowed = trouble is None and self._take(at) and self.random.random() >= self.scene.random_refusals
        await anyio.sleep(self.scene.latency * self.random.uniform(0.5, 1.5))
        if trouble == "503":
            raise StatusError("503", status_code=503, maybe_sent=True)
        if not allowed:
            raise self._refuse()
        self.succeeded.append(self.now())
        return {}

    def _refuse(self) -> OutreachError:
        asks = self.scene.asks
        self.refused.append((self.now(), self.now() + (asks or 0.0)))
        return RateLimited("429", status_code=429, headers={} if asks is None else {"retry-after": str(asks)})

    def _take(self, at: float) -> bool:
        limit = self.scene.limit(at)
        self._tokens = min(self.most(at), self._tokens + (at - self._at) * limit)
        self._at = at
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@attrs.define
class Run:
    """The results of a run."""

    scene: Scenario
    service: Service
    flow: RunThrottle
    repeats: Counter[FailureKind] = attrs.field(factory=Counter)
    fates: Counter[RetryDecision] = attrs.field(factory=Counter)
    failed: int = 0
    pauses: int = 0
    ended: float = 0.0

    @property
    def refusals(self) -> float:
        """Fraction of 429 responses among all successful and 429 responses."""
        answers = len(self.service.refused) + len(self.service.succeeded)
        return len(self.service.refused) / max(1, answers)

    def goodput(self, begins: float = 0.0, ends: float | None = None) -> float:
        """Return the successes between two times, as a fraction of the ideal."""
        ends = self.scene.seconds if ends is None else ends
        succeeded = sum(begins <= at < ends and self.scene.counts(at) for at in self.service.succeeded)
        return succeeded / self.scene.ideal(begins, ends)

    def first_good(self, begins: float = 0.0) -> float:
        """Return the seconds from `begins` until goodput first reaches 85 % of the ideal; infinity if it never does."""
        counts = Counter(int(at - begins) for at in self.service.succeeded if at >= begins)
        width = max(1, round(5 / self.scene.limit(begins)))  # seconds in which at least five requests are allowed
        for second in range(int(self.scene.seconds - begins) - width):
            got = sum(counts[second + further] for further in range(width))
            if got >= 0.85 * self.scene.ideal(begins + second, begins + second + width):
                return second + width
        return float("inf")

    def recovery(self) -> float:
        """Return the maximum seconds from the end of a 429 outage until `RECOVERED` requests have succeeded."""
        ends = [ends for _, ends, kind in self.scene.outages if kind == "429"]
        later = [[at - end for at in self.service.succeeded if at >= end] for end in ends]
        return max((times[RECOVERED - 1] if len(times) >= RECOVERED else math.inf for times in later), default=0.0)

    def busiest(self) -> float:
        """Return the maximum rate of starts within five seconds, as a multiple of the limit and burst."""
        # Measured from five seconds after the first 429, except during outages and within five seconds of a change of the limit.
        starts, scene, most = self.service.started, self.scene, 0.0
        since = min((at for at, _ in self.service.refused), default=math.inf) + SPAN
        for number, at in enumerate(starts):
            quiet = all(not at - SPAN < change < at + SPAN for change, _ in scene.limits[1:])
            if at >= since and quiet and scene.trouble(at) is None:
                many = bisect_left(starts, at + SPAN) - number
                most = max(most, many / (SPAN * scene.limit(at) + self.service.most(at)))
        return most

    def early(self) -> int:
        """Return the number of attempts that started before the `Retry-After` of an earlier response had ended."""
        starts = self.service.started
        return sum(bisect_left(starts, until) - bisect_right(starts, at) for at, until in self.service.refused if until > at)

    def overspent(self) -> float:
        """Return by how much the cost of retries exceeds the budget; successes and pauses add to the budget."""
        spent = sum(retry_cost(evidence) * times for evidence, times in self.repeats.items())
        budget = self.flow._policy.budget
        granted = budget + len(self.service.succeeded) + self.pauses * (budget // 2 + 14 * (self.scene.workers + 1))
        return spent - granted

    def shortfalls(self, *, good: float = 0.85, refusals: float = 0.01) -> list[str]:
        """Return a description of every requirement that the run did not meet."""
        wrong = {
            f"goodput {self.goodput():.3f}": self.goodput() < good,
            f"refusals {self.refusals:.4f}": self.refusals > refusals,
            f"rows failed: {self.failed or dict(self.fates)}": bool(self.failed or self.fates),
            f"{self.early()} attempts started before the end of a Retry-After": self.early() > 0,
            f"rate {self.busiest():.2f} of the limit": self.busiest() > 1.25,
            f"{self.recovery():.0f} s until {RECOVERED} rows succeeded after an outage": self.recovery() > RECOVERY,
            f"retry budget exceeded by {self.overspent():.0f}": self.overspent() > 0,
        }
        return [text for text, is_wrong in wrong.items() if is_wrong]


async def drive(run: Run, policy: RetryPolicy) -> None:
    """Run one worker: process rows one after the other until the run is halted, like the engine."""
    while run.flow.halted is None:
        blamed = attempts = 0
        first_failed_at = math.inf
        resumes = anyio.current_time()
        while True:
            now = anyio.current_time()
            if resumes > now or not run.flow.try_start(now):
                await run.flow.wait_and_start(resumes)
            started = anyio.current_time()
            try:
                headers = await run.service.answer()
            except OutreachError as error:
                first_failed_at = min(first_failed_at, anyio.current_time())
                known = {"counted_failures": blamed, "earlier_failures": attempts, "first_failed_at": first_failed_at}
                verdict, evidence = judged(run.flow, error, started, **known)
            else:
                run.flow.on_success(anyio.current_time(), started, headers)
                break
            attempts += 1
            blamed += verdict is RetryDecision.RETRY_COUNTED
            if verdict in {RetryDecision.GIVE_UP, RetryDecision.STOP_RUN}:
                run.fates[verdict] += 1
                break
            run.repeats[evidence] += 1
            resumes = anyio.current_time() + backoff_delay(policy, attempts)


def judged(flow: RunThrottle, error: OutreachError, started: float, **known: Any) -> tuple[RetryDecision, FailureKind]:
    evidence = classify(error, Idempotency.IDEMPOTENT)
    retry_after = parse_retry_after(error.headers, now=0.0) if evidence is FailureKind.REFUSED else None
    attempt = FailedAttempt(
        error=error, kind=evidence, retry_after=retry_after, started=started, ended=anyio.current_time(), **known
    )
    return flow.on_failure(attempt), evidence


async def play(scene: Scenario, max_outage: float | None = None) -> Run:
    """Run a scenario until its duration is over or the run stops."""
    jitter: Callable[[], float] = random.Random(scene.seed + 1).random  # noqa: S311 - a simulation that can be repeated
    policy = RetryPolicy(jitter=jitter)
    limiter = RateLimiter(policy, max_in_flight=scene.workers)
    run = Run(scene, Service(scene), RunThrottle(limiter, policy, max_outage=max_outage))

    async def work() -> None:
        try:
            await drive(run, policy)
        except BulkError:
            run.fates[RetryDecision.STOP_RUN] += 1

    async def look() -> None:
        before = False
        while True:
            paused = run.flow.state(anyio.current_time()) == "paused"
            run.pauses += paused and not before
            before = paused
            await anyio.sleep(0.25)

    with anyio.move_on_after(scene.seconds) as scope:
        async with anyio.create_task_group() as everything:
            everything.start_soon(look)
            async with anyio.create_task_group() as workers:
                for _ in range(scene.workers):
                    workers.start_soon(work)
            everything.cancel_scope.cancel()
    run.ended = run.service.now()
    assert scope.cancelled_caught is (run.flow.halted is None)
    return run


def simulate(scene: Scenario, backend: str, max_outage: float | None = None) -> Run:
    """Run a scenario in virtual time."""
    return anyio.run(partial(play, scene, max_outage), backend=backend, backend_options=VirtualTime().options(backend))
