"""One rate for several clients: the protocol, the rule that divides it, `SharedRate`, and the renewal of a client's share."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Final, Protocol, runtime_checkable
from uuid import uuid4

import anyio
import attrs
from anyio.abc import TaskGroup

from outreach_async._core.arguments import require_rate
from outreach_async._core.limiter import RateLimiter
from outreach_async._core.logs import LOGGER
from outreach_async._core.rate import CubicLimit
from outreach_async.errors import InvalidRequest, OutreachError

LIFETIME: Final = 1.5
"""Seconds until a share expires and its client is forgotten. A client renews its share at least every 0.5 seconds."""

_INITIAL_RATE: Final = 10.0  # initial rate of all clients together, in requests per second, if no limit is configured
# Ratio of the allowed rate to the achieved rate while the limit is unknown: the rate can grow tenfold in about five seconds.
_SEARCH_FACTOR: Final = 1.5
# After a refusal, the limit is lowered to this fraction of the achieved rate. In simulations with 2 to 8 clients, the value 0.7
# (`rate.BETA`) left more of the rate unused, and caused as many refusals.
_BETA: Final = 0.8
_SMOOTHING: Final = 0.5  # time constant in seconds for smoothing the rate of a client's successes
_DEMAND_DECAY: Final = 1.0  # time constant in seconds with which a client's demand falls; a higher demand applies at once
_MIN_PERIOD: Final = 0.1  # minimum length in seconds of the period from which a rate is calculated
# Ratio of share to demand for a client whose demand is less than the maximum share (see `water_level`). The client can thus send
# more requests than before, so its next report shows whether its demand has risen.
_HEADROOM: Final = 1.25
_IDLE_SHARE: Final = 1.0  # minimum share of an idle client in requests per second, if the rate allows it, for its next request


def _require(*, positive: bool) -> Any:
    def check(_owner: object, attribute: attrs.Attribute[float], value: Any) -> None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and (value > 0 if positive else value >= 0) and value < math.inf):
            bound = "greater than 0" if positive else "of at least 0"
            raise InvalidRequest(f"{attribute.name}: expected a finite number {bound}, got {value!r}; pass a number such as 1.0")

    return check


@attrs.frozen(kw_only=True)
class RateUsage:
    """A client's report of its attempts since its previous report.

    Attributes:
        client: Id of the client, unique among all clients that share the rate.
        seconds: Length of the reported period, in seconds; 0 in a client's first report.
        wanted: Number of attempts that started in the period or are waiting at its end.
        completed: Number of attempts that the service accepted.
        refused: Number of attempts that the service refused with status 429. Attempts that started before the client's share was
            last lowered do not count, because they were sent at a higher rate.
        retry_after: Longest wait that the service asked for, in seconds; 0 if it asked for none.

    Raises:
        InvalidRequest: A number is negative or not finite.

    Example:
        ```python
        usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=1)
        print(usage.wanted / usage.seconds)  # -> 160.0
        ```
    """

    client: str
    seconds: float = attrs.field(validator=_require(positive=False))
    wanted: int = attrs.field(validator=_require(positive=False))
    completed: int = attrs.field(validator=_require(positive=False))
    refused: int = attrs.field(validator=_require(positive=False))
    retry_after: float = attrs.field(default=0.0, validator=_require(positive=False))


@attrs.frozen(kw_only=True)
class RateShare:
    """A client's share of a common rate, valid for a limited time.

    Attributes:
        rate: Requests per second that the client may send.
        expires_in: Seconds from the client's report until the share expires. The client then sends nothing until it receives a
            new share.
        hold: Number of seconds for which the client sends nothing after it receives the share.

    Raises:
        InvalidRequest: `rate` or `expires_in` is not positive, `hold` is negative, or one of them is not finite.

    Example:
        ```python
        print(RateShare(rate=12.5, expires_in=1.5))  # -> RateShare(rate=12.5, expires_in=1.5, hold=0.0)
        ```
    """

    rate: float = attrs.field(validator=_require(positive=True))
    expires_in: float = attrs.field(validator=_require(positive=True))
    hold: float = attrs.field(default=0.0, validator=_require(positive=False))


@runtime_checkable
class Rate(Protocol):
    """A rate that several clients share: `SharedRate`, `RedisRate`, or an object of your own.

    Example:
        ```python
        class Fixed:
            async def renew(self, usage: RateUsage) -> RateShare:
                return RateShare(rate=5.0, expires_in=2.0, hold=usage.retry_after)


        async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", rate=Fixed()) as limited:
            print(len(await limited.workspaces.fields()))  # -> 37
        ```
    """

    async def renew(self, usage: RateUsage, /) -> RateShare:
        """Record a client's usage and return its next share.

        Each client calls this method two to four times a second, never concurrently. Requests do not wait for the result. If
        this method raises an exception, the client logs it, and keeps its last share until that share expires.

        Example:
            ```python
            usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=0)
            print((await SharedRate(limit=50.0).renew(usage)).rate)  # -> 50.0
            ```
        """


@attrs.define(kw_only=True)
class _ClientState:
    seen: float
    demand: float
    achieved: float
    share: RateShare | None = None
    report: str = ""  # id of the last report, which `RedisRate` sets


@attrs.define(eq=False)
class RateCoordinator:
    """Divides one rate among clients, without waiting or I/O. `RedisRate` stores it."""

    # The rate is the smaller of `limit` and a limit that the coordinator learns from the reports of all clients. It learns this
    # limit with `CubicLimit`, like a client that does not share its rate. Until the first refusal, the rate is `limit`, or a
    # multiple of the achieved rate if there is no `limit`.

    limit: float | None = None
    learned: CubicLimit = attrs.field(factory=lambda: CubicLimit(_BETA))
    search_rate: float = _INITIAL_RATE
    clients: dict[str, _ClientState] = attrs.field(factory=dict)
    time: float = 0.0
    clock: float | None = None
    hold_until: float = -math.inf

    @property
    def rate(self) -> float:
        if self.learned.limit is None:
            return self.search_rate if self.limit is None else self.limit
        return min(math.inf if self.limit is None else self.limit, self.learned.limit)

    def step(self, usage: RateUsage, clock: float) -> RateShare:
        """Record a report received at `clock`, a time in seconds, and return the client's next share."""
        # The time of the rule is the sum of the clock's steps forward, because a clock may be set back.
        elapsed = 0.0 if self.clock is None else max(0.0, clock - self.clock)
        self.clock = clock
        self.time += elapsed
        for name in [name for name, client in self.clients.items() if self.time - client.seen >= LIFETIME]:
            del self.clients[name]
        is_held = self.time < self.hold_until
        told_at = self._observe(usage)
        self._learn(usage, told_at, unused=elapsed if is_held or self._demand() < self.rate else 0.0)
        share = self.clients[usage.client].share = self._share(usage.client)
        return share

    def _observe(self, usage: RateUsage) -> float:
        """Update what is known about the reporting client, and return the time at which it received its last share."""
        self.hold_until = max(self.hold_until, self.time + usage.retry_after if usage.retry_after else -math.inf)
        demand = usage.wanted / max(usage.seconds, _MIN_PERIOD)
        achieved = usage.completed / max(usage.seconds, _MIN_PERIOD)
        client = self.clients.get(usage.client)
        if client is None:
            self.clients[usage.client] = _ClientState(seen=self.time, demand=demand, achieved=achieved)
            return self.time
        told_at = client.seen
        client.seen = self.time
        decay = usage.seconds / (usage.seconds + _DEMAND_DECAY)
        client.demand = max(demand, client.demand + (demand - client.demand) * decay)
        # A period that overlaps a hold is left out: nothing was sent for a part of it.
        if self.time - usage.seconds >= self.hold_until:
            client.achieved += (achieved - client.achieved) * usage.seconds / (usage.seconds + _SMOOTHING)
        return told_at

    def _demand(self) -> float:
        return sum(client.demand for client in self.clients.values())

    def _learn(self, usage: RateUsage, told_at: float, unused: float) -> None:
        achieved = sum(client.achieved for client in self.clients.values())
        # A limit that no client reaches must not grow, because there is no evidence that the service allows more.
        self.learned.exclude_time(unused)
        self.search_rate = max(self.search_rate, _SEARCH_FACTOR * achieved)
        if usage.completed:
            self.learned.grow(self.time, achieved)
        if usage.refused and self.learned.is_about_current_rate(self.time, told_at):
            self.learned.cut(self.time, achieved, usage.retry_after)

    def _share(self, name: str) -> RateShare:
        demand = self.clients[name].demand
        level = water_level(self.rate, [client.demand for client in self.clients.values()])
        if demand >= level:
            rate = level
        else:
            unused = max(0.0, self.rate - self._demand())  # nothing, unless the rate covers all demands
            headroom = min(level, self.rate, max(_IDLE_SHARE, _HEADROOM * demand))
            rate = max(headroom, demand + unused / len(self.clients))
        # After a hold, the clients start one after the other. Starting at the same time, they would exceed the service's burst,
        # again and again, because they all send at the same intervals.
        place = sum(other < name for other in self.clients)
        hold = max(0.0, self.hold_until + place / self.rate - self.time)
        return RateShare(rate=rate, expires_in=LIFETIME, hold=hold)


def water_level(rate: float, demands: Iterable[float]) -> float:
    """Return the maximum share when `rate` is divided with max-min fairness; infinite if `rate` covers all demands."""
    # Each client receives its demand or this level, whichever is smaller.
    remaining = rate
    by_demand = sorted(demands)
    for index, demand in enumerate(by_demand):
        level = remaining / (len(by_demand) - index)
        if demand > level:
            return level
        remaining -= demand
    return math.inf


class SharedRate:
    """A rate shared by clients of one process that run in one event loop.

    Args:
        limit: Maximum rate of all clients together, in requests per second; `None` for no maximum. With or
            without a maximum, the service's own limit is learned from its refusals.

    Raises:
        InvalidRequest: `limit` is not a finite number greater than 0.

    Example:
        ```python
        rate = SharedRate(limit=50.0)
        async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", rate=rate) as one:
            async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", rate=rate) as other:
                print(len(await one.workspaces.fields()), len(await other.workspaces.fields()))  # -> 37 37
        ```
    """

    def __init__(self, limit: float | None = None) -> None:
        self._coordinator = RateCoordinator(None if limit is None else require_rate("limit", limit))

    async def renew(self, usage: RateUsage, /) -> RateShare:
        """Record a client's usage and return its next share; see `Rate`.

        Example:
            ```python
            usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=0)
            print((await SharedRate(limit=50.0).renew(usage)).rate)  # -> 50.0
            ```
        """
        return self._coordinator.step(usage, anyio.current_time())


# Renewal of a client's share.

_INTERVAL: Final = 0.25  # seconds between two usage reports from a client that sends requests
_IDLE_INTERVAL: Final = 0.5  # the same for an idle client, whose next request then need not wait for a share


class RatePoller:
    """Renews a client's share in a background task: reports the client's usage to a `Rate`, and applies the returned share."""

    # Requests never wait for a report. If reports fail or hang, the client's last share expires, and the client sends nothing
    # until a report succeeds.

    def __init__(self, rate: Rate, limiter: RateLimiter) -> None:
        self._rate = rate
        self._limiter = limiter
        self._tasks: TaskGroup | None = None
        self.failure: str | None = None

    def require_running(self) -> None:
        if self._tasks is None:
            raise InvalidRequest("rate: a client with a shared rate works only while it is open; use `async with` on the client")

    async def start(self) -> None:
        if self._tasks is not None:
            raise InvalidRequest("rate: the client is already open; use a client with a shared rate in only one `async with`")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)

    async def stop(self) -> None:
        if self._tasks is None:  # the client was not opened, or has been closed already
            return
        tasks, self._tasks = self._tasks, None
        tasks.cancel_scope.cancel()
        # The error of the caller's block, if any, is not passed on: the task group would wrap it in an exception group.
        await tasks.__aexit__(None, None, None)

    async def _run(self) -> None:
        client = uuid4().hex  # made here, because a forked process must not report as its parent
        reported_at = anyio.current_time()
        while True:
            now = anyio.current_time()
            counts = attrs.asdict(self._limiter.take_usage())
            usage = RateUsage(client=client, seconds=now - reported_at, **counts)
            reported_at = now
            await self._report(usage, now)
            await anyio.sleep(_INTERVAL if usage.wanted else _IDLE_INTERVAL)

    async def _report(self, usage: RateUsage, now: float) -> None:
        """Report the usage up to the time `now`, and apply the share that the rate returns."""
        # A failure is logged, and the last share stays valid until it expires.
        try:
            share = await self._rate.renew(usage)
            if not isinstance(share, RateShare):
                raise TypeError(f"renew() returned {type(share).__name__} instead of RateShare")  # noqa: TRY301 - logged below
        except Exception as error:  # noqa: BLE001 - a failing rate must not end the caller's tasks
            # The message of another library's error may quote a password.
            text = f"{type(error).__name__}: {error}" if isinstance(error, OutreachError | TypeError) else type(error).__name__
            if self.failure is None:
                LOGGER.warning("rate: renewing the share failed (%s); nothing is sent after the last share expires", text)
            self.failure = text
            return
        if self.failure is not None:
            self.failure = None
            LOGGER.info("rate: renewing the share works again")
        # The expiry counts from the report, and the hold from the reply: both choices are the cautious ones.
        self._limiter.apply_share(share.rate, now + share.expires_in, anyio.current_time() + share.hold)
