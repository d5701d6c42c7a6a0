"""Share one rate among several clients: the protocol `Rate`, the rule that divides the rate, and `SharedRate` for one process.

A service limits all clients of a key together. Clients that learn the limit independently starve one another. With a `Rate`,
clients report their usage and receive shares of one common rate:

1. A client reports its usage about four times a second, or twice a second while it is idle. Requests never wait for a report.
2. The reply is a share that is valid for a short time. A client whose share has expired sends nothing until its next share.
   As a result, outdated shares can together exceed the rate, but only until they expire.
3. `RateCoordinator` calculates the shares. It learns one limit from the reports of all clients, and forgets a client when the
   client's share expires.

`OutreachClient(rate=SharedRate())` runs a coordinator within one process. Among several processes and hosts, all clients get an
`outreach_async.RedisRate` (extra `redis`) with the same Redis server and the same Redis key:
`OutreachClient(rate=RedisRate("redis://host:6379", key="outreach:rate"))`. A client with a shared rate works inside `async with`.
Commands have no such option: divide the rate among them with `--rate`. Any object with a method like `Rate.renew` can be used
instead:

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

from outreach_async._plumbing import Rate, RateShare, RateUsage, SharedRate

__all__ = ["Rate", "RateShare", "RateUsage", "SharedRate"]
