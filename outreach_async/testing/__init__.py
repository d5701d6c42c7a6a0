"""What test suites need beside the fake: virtual time, and every reading of what the interface leaves unsaid.

In virtual time ten minutes of waiting take milliseconds, and the order of events stays as it was. Hand one clock to the event
loop and to the fake, and what a client waits for agrees with what the service says:

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

Time jumps as soon as every task waits, so it is for clients in memory only: a socket or a thread would not be waited for.

Code that depends on how the service takes what its interface leaves unsaid mostly depends on one or two such readings.
`pairwise()` has about thirty behaviours in which any two readings of two knobs meet; `differing` says what is special about
one:

```python
from outreach_async.fake import FakeService
from outreach_async.testing import differing, pairwise

for behaviour in pairwise():
    fake = FakeService(behaviour=behaviour)  # and here what should hold under all of them
print(len(pairwise()), differing(pairwise()[0]))  # -> 28 {}
```

With pytest, the fixtures and the marker of `outreach_async.pytest_plugin` do this for you. Nothing here needs pytest.
"""

from outreach_async.testing.pairwise import differing, pairwise
from outreach_async.testing.virtual_time import VirtualTime, VirtualTimeLoop

__all__ = ["VirtualTime", "VirtualTimeLoop", "differing", "pairwise"]
