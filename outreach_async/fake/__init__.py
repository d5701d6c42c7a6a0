"""The whole service in memory: `FakeService` answers requests, `FakeTransport` plugs it into a client, `faults` break it.

The smallest program. Nothing leaves the process, there is no socket, and the same calls give the same bytes:

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

With pytest, `outreach_async.pytest_plugin` gives all of this as fixtures. The fake is synchronous and belongs to no event loop;
threads and tasks may use one at the same time.

Worlds
------
`add_workspace`, `add_owner_key`, `add_mailboxes`, `add_campaign` and `add_contacts` fill a fake; `set_campaign` and
`set_mailbox` change it. What is not given is made up from the seed, and figures agree with each other. `fake.requests` is the
journal of what was asked, with hints at what may have been meant. A world file is the same as JSON: `load` takes a path, a text
or the document, `dump` writes everything, byte for byte the same for the same world.

```python
from outreach_async.fake import FakeService

fake = FakeService()
fake.load(
    {
        "version": 1,
        "workspaces": [
            {
                "id": "space_1",
                "mailboxes": [{"email": "ada@north.example", "spf": False}],
                "contacts": [{"email": "bo@acme.example", "fields": {"city": "Lyon"}}],
            }
        ],
        "owner_keys": {"key_1": ["space_1"]},
    }
)
print(fake)  # -> <FakeService seed=0: 1 workspaces, 1 mailboxes, 0 campaigns, 1 contacts>
before = fake.snapshot()
fake.add_contacts("space_1", 100)
fake.restore(before)  # any number of times
print(len(fake.contacts("space_1")))  # -> 1
```

`reset` empties a fake; a snapshot holds what is stored and the time, but neither faults nor the journal.

Behaviours
----------
The interface is silent on much: error bodies, pages past the end, how e-mails are compared. Each such question is a knob of
`Behaviour`, whose default is the reading that is easiest to defend; `help(Behaviour)` lists them, and the table in
`help(outreach_async.fake.behaviour)` has the readings that no knob turns. Code that is right under every
reading is right: try `Behaviour.strict()`, `Behaviour.lenient()`, and `outreach_async.testing.pairwise()`, about thirty values in
which any two readings meet. `load_behaviour` of `outreach_async.fake.behaviourfile` reads what `outreach_async.conformance` has
measured of a live service.

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
`faults.script` lets the next requests of an operation meet faults in order; `faults.add` strikes whatever meets a condition.
They range from a status to a truncated body, and show in memory as they do over a socket. `commit_then(fault)` strikes after
the service has acted: stored, and the answer lost. `help(outreach_async.fake.faults)` has them all.

```python
import anyio
from outreach_async import NewContact, OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults

fake = FakeService()
workspace = fake.add_workspace()
fake.faults.script("create_contact", faults.commit_then(faults.truncate(10)))


async def main() -> None:
    async with OutreachClient(
        transport=FakeTransport(fake), workspace=workspace, owner_key=fake.add_owner_key(workspace)
    ) as client:
        made = await client.contacts.create(NewContact("ann@company.example"))
    print(made.status, made.certain, made.attempts)  # -> skipped False 2
    fake.faults.assert_all_fired()


anyio.run(main)
```

Time
----
Time stands still until `advance`, or follows a callable that returns Unix seconds. As it moves, live campaigns send through their
mailboxes, under daily limits; people open, click, reply, bounce and unsubscribe, drawn from the seed; every count, percentage and
relative text follows. `sim.script` settles what one person does, `sim.watch` is told everything that happens.

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

Waiting of the client itself (retries, `Retry-After`) takes no time under `outreach_async.testing.VirtualTime`.

Servers
-------
`outreach_async.fake.server.serve` puts a fake on a real port, with faults byte by byte; `fake.asgi()` is an application for
another server. The command `outreach-async serve` is the same for any language, with the control plane under `/_fake/`: see
`help(outreach_async.fake.control)`.

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService
from outreach_async.fake.server import serve


async def main() -> None:
    fake = FakeService()
    async with serve(fake) as url, OutreachClient(url, workspace=fake.add_workspace()) as client:
        print(len(await client.workspaces.fields()), "fields")  # -> 36 fields


anyio.run(main)
```
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outreach_async.fake import faults
from outreach_async.fake.behaviour import Behaviour, HeaderAuth, RateLimit
from outreach_async.fake.journal import JournalOverflow, Recorded
from outreach_async.fake.refusals import Refusal
from outreach_async.fake.service import FakeService, Snapshot
from outreach_async.fake.simulation.engine import Activity
from outreach_async.fake.worldfile import WorldError

if TYPE_CHECKING:
    from outreach_async.fake.transport import FakeTransport

__all__ = [
    "Activity",
    "Behaviour",
    "FakeService",
    "FakeTransport",
    "HeaderAuth",
    "JournalOverflow",
    "RateLimit",
    "Recorded",
    "Refusal",
    "Snapshot",
    "WorldError",
    "faults",
]


def __getattr__(name: str) -> Any:
    # The service itself runs without an event loop, and so without anyio; its transport does not.
    if name == "FakeTransport":
        from outreach_async.fake.transport import FakeTransport

        return FakeTransport
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
