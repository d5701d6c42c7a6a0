"""An in-memory fake of the service.

`FakeService` executes requests, `FakeTransport` connects a client, and
`faults` inject failures. This minimal program opens no socket and sends
nothing to a network. The same calls always produce the same bytes:

```python
import anyio
from outreach_async import NewContact, OutreachClient
from outreach_async.fake import FakeService, FakeTransport

fake = FakeService(seed=3)
workspace = fake.add_workspace(custom_fields=["Plan"])
key = fake.add_owner_key(workspace)


async def main() -> None:
    async with OutreachClient(transport=FakeTransport(fake), workspace=workspace, owner_key=key) as client:
        made = await client.contacts.create(NewContact("ann@company.example", custom={"custom_1": "gold"}))
    print(made.status, fake.contact(workspace, "ann@company.example")["fields"])  # -> added {'custom_1': 'gold'}


anyio.run(main)
```

With pytest, `outreach_async.pytest_plugin` provides all of this as
fixtures. The fake is synchronous, independent of any event loop, and safe
to share between threads and tasks.

Worlds
------
`add_workspace`, `add_owner_key`, `add_mailboxes`, `add_campaign` and
`add_contacts` fill a fake; `set_campaign` and `set_mailbox` change it.
Values you do not pass are generated from the seed, and generated numbers
are consistent with each other. `fake.requests` is the log of requests,
with hints about likely mistakes. A world file holds the same data as JSON:
`load` takes a path, a JSON string or the parsed document; `dump` returns
all data as a JSON string. Equal worlds give equal strings.

```python
from outreach_async.fake import FakeService

fake = FakeService()
mailboxes = [{"email": "ada@north.example", "spf": False}]
fake.load({"workspaces": [{"id": "space_1", "mailboxes": mailboxes}], "owner_keys": {"key_1": ["space_1"]}})
print(fake)  # -> <FakeService seed=0: 1 workspaces, 1 mailboxes, 0 campaigns, 0 contacts>
before = fake.snapshot()
fake.add_contacts("space_1", 100)
fake.restore(before)  # a snapshot can be restored any number of times
print(len(fake.contacts("space_1")))  # -> 0
```

`reset` empties a fake. A snapshot contains the stored data and the time,
but neither faults nor the request log.

Behaviours
----------
The API documentation of the service leaves many questions open: error
bodies, pages past the end, the comparison of e-mails. `Behaviour` makes
some of the fake's answers configurable. Its attributes are called knobs,
and `help(Behaviour)` lists them; `help(outreach_async.fake.behaviour)`
lists the fixed answers. Test your code with `Behaviour.strict()`,
`Behaviour.lenient()` and the behaviours that
`outreach_async.testing.pairwise()` returns, which together cover every
pair of knob values. `outreach_async.conformance` measures the behaviour of
a live service and writes it to a file, which `load_behaviour` reads.

```python
from outreach_async import Request
from outreach_async.fake import Behaviour, FakeService, RateLimit

fake = FakeService(behaviour=Behaviour(rate_limit=RateLimit(limit=2, per=60), error_renderer="flat"))
target = f"/workspaces/{fake.add_workspace()}/all-fields"
answers = [fake.handle(Request("GET", target)) for _ in range(3)]
print([answer.status for answer in answers], answers[2].headers["retry-after"])  # -> [200, 200, 429] 60
```

Faults
------
`faults.script` queues faults for the next requests of an operation;
`faults.add` injects a fault into every matching request. Faults range from
an error status to a truncated body, and have the same effect in memory as
over a socket. `help(outreach_async.fake.faults)` lists all faults, with an
example.

Time
----
By default, the time stands still until `advance` is called.
`FakeService(clock=...)` also accepts a callable that returns Unix seconds.
As time passes, live campaigns send through their mailboxes within daily
limits. Recipients open, click, reply, bounce and unsubscribe at random;
the same seed gives the same reactions. Every count, percentage and
relative time in the responses changes accordingly. `sim.script` sets how
one recipient reacts; `sim.watch` calls a function with every event.

```python
from outreach_async.fake import FakeService

fake = FakeService()
space = fake.add_workspace("space_1")
camp = fake.add_campaign(space, status="live", mailboxes=fake.add_mailboxes(space, 1, daily_limit=30), steps=["A"])
log = []
fake.sim.watch(log.append)
fake.sim.script("ann@company.example", replies_after="2h", interested=True)
fake.add_contacts(space, [{"email": "ann@company.example"}], campaign=camp)
fake.advance(days=1)
print([activity.kind for activity in log])  # -> ['sent', 'opened', 'interested']
```

The client's own waits (retries, `Retry-After`) take no real time under
`outreach_async.testing.VirtualTime`.

Servers
-------
`outreach_async.fake.server.serve` serves a fake on a real port and
reproduces faults byte by byte. The command `outreach-async serve` serves
clients in any language. It adds the control plane, an HTTP API under
`/_fake/` that inspects and changes the fake: see
`help(outreach_async.fake.control)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outreach_async.fake import faults
from outreach_async.fake._fake_service import FakeService, Snapshot
from outreach_async.fake._messages import Refusal
from outreach_async.fake._simulation import Activity, SimulationControl
from outreach_async.fake.behaviour import Behaviour, HeaderAuth, RateLimit
from outreach_async.fake.request_log import Recorded
from outreach_async.fake.world_file import WorldError

if TYPE_CHECKING:
    from outreach_async.fake._transport import FakeTransport

__all__ = [
    "Activity",
    "Behaviour",
    "FakeService",
    "FakeTransport",
    "HeaderAuth",
    "RateLimit",
    "Recorded",
    "Refusal",
    "SimulationControl",
    "Snapshot",
    "WorldError",
    "faults",
]


def __getattr__(name: str) -> Any:
    # Imported on first use: only the transport needs anyio, and importing anyio takes time.
    if name == "FakeTransport":
        from outreach_async.fake._transport import FakeTransport

        return FakeTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
