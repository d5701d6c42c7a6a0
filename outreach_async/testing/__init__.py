"""Tools for tests: virtual time, and pairwise coverage of the rules that the service's API documentation does not specify.

In virtual time, ten minutes of waiting take milliseconds, and events occur in the same order as in real time. Use the same clock
for the event loop and the fake, so that the client's waits match the times that the fake sends:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.testing import VirtualTime

time = VirtualTime()
fake = FakeService(clock=time)
fake.faults.script("list_fields", faults.status(429, retry_after=600))


async def main() -> None:
    async with OutreachClient(transport=FakeTransport(fake), workspace=fake.add_workspace(), deadline=None) as client:
        await client.workspaces.fields()


anyio.run(main, backend="trio", backend_options=time.options("trio"))
print(time.elapsed >= 600)  # -> True
```

Virtual time jumps to the next timer as soon as all tasks are waiting. Use it only with in-memory clients, because it does not
wait for sockets or threads.

The knobs of `outreach_async.fake.Behaviour` have billions of combinations, but most code depends on one or two of them.
`pairwise()` returns about thirty behaviours, which cover every pair of values of any two knobs. Test your code against
`FakeService(behaviour=...)` with each of them; `differing` returns the knobs of one that do not have their defaults.

With pytest, use the fixtures and the marker of `outreach_async.pytest_plugin` instead. This package itself does not need pytest.
"""

from outreach_async.testing._marker import differing, pairwise
from outreach_async.testing._virtual_time import VirtualTime, VirtualTimeLoop

__all__ = ["VirtualTime", "VirtualTimeLoop", "differing", "pairwise"]
