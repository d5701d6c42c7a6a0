"""Share one rate among several clients.

`Rate` is the protocol, `RateCoordinator` divides the rate, and
`SharedRate` is for one process. A service limits all clients of a key
together. Clients that learn the limit independently starve one another.
With a `Rate`, clients report their usage and get shares of one rate:

1. A client reports its usage about four times a second, or twice a second
   while it is idle. Requests never wait for a report.
2. The reply is a share that is valid for a short time. A client whose
   share has expired sends nothing until its next share. As a result,
   outdated shares can together exceed the rate, but only until they
   expire.
3. `RateCoordinator` calculates the shares. It learns one limit from the
   reports of all clients, and forgets a client when the client's share
   expires. Rare refusals at random hardly lower this limit. A
   `Retry-After` that is over before the next report pauses only the client
   that received it.

`OutreachClient(rate=SharedRate())` runs a coordinator within one process.
Among several processes and hosts, all clients get an
`outreach_async.RedisRate` (extra `redis`) with the same Redis server and
the same Redis key: `OutreachClient(rate=RedisRate("redis://host:6379",
key="outreach:rate"))`. A client with a shared rate works inside
`async with`. One that starts while the Redis server cannot be reached
sends nothing until it can. Commands have no such option: divide the rate
among them with `--rate`. Any object with a method like `Rate.renew` can be
used instead:

```python
import anyio
from outreach_async import OutreachClient, RateShare, RateUsage
from outreach_async.fake import FakeService, FakeTransport


class HalfTheLimit:
    async def renew(self, usage: RateUsage) -> RateShare:
        return RateShare(rate=25.0, expires_in=1.5, hold=usage.retry_after)


async def main() -> None:
    fake = FakeService()
    space = fake.add_workspace()
    async with OutreachClient(transport=FakeTransport(fake), workspace=space, rate=HalfTheLimit()) as client:
        print(len(await client.workspaces.fields()))  # -> 36


anyio.run(main)
```
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar, Final

import anyio
import attrs

from outreach_async._plumbing import CubicLimit, Rate, RateShare, RateUsage, require_rate

__all__ = ["Rate", "RateCoordinator", "RateShare", "RateUsage", "SharedRate"]

_INITIAL_RATE: Final = 10.0  # initial rate of all clients together, in requests per second, if no limit is configured
# Ratio of the allowed rate to the achieved rate while the limit is unknown: the rate can grow tenfold in about five seconds.
_SEARCH_FACTOR: Final = 1.5
# After a refusal, the limit is lowered to this fraction of the achieved rate. In simulations with 2 to 8 clients, the value 0.7
# (`BETA` of a single client) left more of the rate unused, and caused as many refusals.
_BETA: Final = 0.8
_SMOOTHING: Final = 0.5  # time constant in seconds for smoothing the rate of a client's successes
_DEMAND_DECAY: Final = 1.0  # time constant in seconds with which a client's demand falls; a higher demand applies at once
_MIN_PERIOD: Final = 0.1  # minimum length in seconds of the period from which a rate is calculated
# Ratio of share to demand for a client whose demand is less than the maximum share (see `water_level`). The client can thus send
# more requests than before, so its next report shows whether its demand has risen.
_HEADROOM: Final = 1.25
_IDLE_SHARE: Final = 1.0  # minimum share of an idle client in requests per second, if the rate allows it, for its next request


@attrs.define(kw_only=True)
class _ClientState:
    seen: float
    demand: float
    achieved: float
    share: RateShare | None = None
    report: str = ""  # id of the last report, which `RedisRate` sets


@attrs.define(eq=False)
class RateCoordinator:
    """Divides a rate among clients, without I/O or waits, for your `Rate`.

    Attributes:
        limit: Maximum rate of all clients together, in requests per
            second; `None` for no maximum.

    Example:
        ```python
        coordinator = RateCoordinator(limit=50.0)
        usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=0)
        print(coordinator.step(usage, clock=0.0))  # -> RateShare(rate=50.0, expires_in=1.5, hold=0.0)
        ```
    """

    # The rate is the smaller of `limit` and a limit that the coordinator learns from the reports of all clients. It learns this
    # limit with `CubicLimit`, like a client that does not share its rate. Until the first refusal, the rate is `limit`, or a
    # multiple of the achieved rate if there is no `limit`. `RedisRate` stores the fields.

    LIFETIME: ClassVar = 1.5  # seconds; a client renews its share at least every 0.5 seconds
    """Seconds until a share expires and its client is forgotten."""

    limit: float | None = None
    learned: CubicLimit = attrs.field(factory=lambda: CubicLimit(_BETA))
    search_rate: float = _INITIAL_RATE
    clients: dict[str, _ClientState] = attrs.field(factory=dict)
    time: float = 0.0
    clock: float | None = None
    hold_until: float = -math.inf

    @property
    def rate(self) -> float:
        """The rate of all clients together, in requests per second."""
        if self.learned.limit is None:
            return self.search_rate if self.limit is None else self.limit
        return min(math.inf if self.limit is None else self.limit, self.learned.limit)

    def step(self, usage: RateUsage, clock: float) -> RateShare:
        """Record a report at `clock` seconds; return the client's next share.

        Example:
            ```python
            usage = RateUsage(client="host-1", seconds=0.25, wanted=40, completed=12, refused=0)
            print(RateCoordinator(limit=50.0).step(usage, clock=0.0).expires_in)  # -> 1.5
            ```
        """
        # The time of the rule is the sum of the clock's steps forward, because a clock may be set back.
        elapsed = 0.0 if self.clock is None else max(0.0, clock - self.clock)
        self.clock = clock
        self.time += elapsed
        for name in [name for name, client in self.clients.items() if self.time - client.seen >= self.LIFETIME]:
            del self.clients[name]
        held = min(elapsed, max(0.0, self.hold_until - (self.time - elapsed)))
        told_at = self._observe(usage)
        self._learn(usage, told_at, unused=elapsed if self._demand() < self.rate else held)
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
        client.achieved += (achieved - client.achieved) * usage.seconds / (usage.seconds + _SMOOTHING)
        return told_at

    def _demand(self) -> float:
        return sum(client.demand for client in self.clients.values())

    def _learn(self, usage: RateUsage, told_at: float, unused: float) -> None:
        achieved = sum(client.achieved for client in self.clients.values())
        # A limit that no client reaches must not grow, because there is no evidence that the service allows more.
        self.learned.exclude_time(unused)
        self.search_rate = max(self.search_rate, _SEARCH_FACTOR * achieved)
        self.learned.record_refusals(told_at, usage.refused)
        if usage.completed:
            self.learned.grow(self.time, achieved, usage.completed)
        if usage.refused and self.learned.is_exceeded(self.time, achieved):
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
        return RateShare(rate=rate, expires_in=self.LIFETIME, hold=hold)


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
        limit: Maximum rate of all clients together, in requests per
            second; `None` for no maximum. With or without a maximum, the
            service's own limit is learned from its refusals.

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
