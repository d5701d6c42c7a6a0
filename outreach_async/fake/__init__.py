"""The whole service in memory: `FakeService` answers requests, `FakeTransport` plugs it into a client, `faults` break it."""

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
