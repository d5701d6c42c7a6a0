"""Hooks: callables that receive the events of a client as frozen values.

    a call      CallStarted, AttemptStarted, AttemptEnded, Repeating, AttemptStarted, AttemptEnded, ..., CallEnded
    a bulk run  BulkStateChanged, its calls, RowEnded for each row, BulkPaced while it is throttled, ..., BulkStateChanged

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.hooks import CallEnded, Event, Repeating


def watch(event: Event) -> None:
    match event:
        case Repeating():
            print(f"{event.operation} failed with {event.status_code}; retrying after {event.wait:.0f} s")
        case CallEnded():
            print(event.operation, "took", event.attempts, "attempts and ended with", event.status_code)


async def main() -> None:
    fake = FakeService()
    fake.faults.script("list_fields", faults.status(503))
    async with OutreachClient(transport=FakeTransport(fake), workspace=fake.add_workspace(), hooks=[watch]) as client:
        await client.workspaces.fields()
    # -> list_fields failed with 503; retrying after ... s
    # -> list_fields took 2 attempts and ended with 200


anyio.run(main)
```

Every start event is followed by its end event: a response, an error or a cancellation. Events hold no body, no header except the
request id, no contact and no secret. Later versions may add more events: ignore those you do not know, as `match` does.

Hooks run inside the call. Keep them fast and synchronous: an async function is rejected. An exception in a hook does not affect
the call; the first one of each hook is logged. A client's copies made by `with_options` use the same hooks.

Logs need no hook: `OUTREACH_LOG=info` writes retries and the states of bulk runs to stderr, `debug` every attempt. For
OpenTelemetry see `outreach_async.otel`.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any, Protocol

from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.events import (
    CANCELLED,
    TIMEOUT,
    AttemptEnded,
    AttemptStarted,
    BulkPaced,
    BulkState,
    BulkStateChanged,
    CallEnded,
    CallStarted,
    Event,
    Repeating,
    RowEnded,
)
from outreach_async.logs import LOGGER

__all__ = [
    "CANCELLED",
    "TIMEOUT",
    "AttemptEnded",
    "AttemptStarted",
    "BulkPaced",
    "BulkState",
    "BulkStateChanged",
    "CallEnded",
    "CallStarted",
    "Event",
    "Hook",
    "Repeating",
    "RowEnded",
]


def facts_of(error: BaseException | None) -> dict[str, Any]:
    """Return the event fields of an error. The message is left out, because it may quote the service or a row."""
    if isinstance(error, OutreachError):
        return {"error": type(error).__name__, "status_code": error.status_code, "request_id": error.request_id}
    return {"error": None if error is None else type(error).__name__}


class Hook(Protocol):
    """A callable that receives the events of a client. It runs inside the call and must not block.

    An exception in a hook does not affect the call. The first one is logged, later ones are ignored.

    Example:
        ```python
        class Counter:
            def __init__(self) -> None:
                self.events = 0

            def __call__(self, event: Event, /) -> None:
                self.events += 1


        counter = Counter()
        await OutreachClient(transport=FakeTransport(fake), workspace="space_1", hooks=[counter]).workspaces.fields()
        print(counter.events)  # -> 4
        ```
    """

    def __call__(self, event: Event, /) -> None:
        """Handle an event."""
        ...


class Hooks:
    """Invokes several hooks in order.

    Args:
        hooks: The hooks.

    Raises:
        InvalidRequest: They are not an iterable of synchronous callables.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        if not isinstance(hooks, Iterable):
            raise InvalidRequest(f"hooks: expected a list of callables, got {type(hooks).__name__}; pass hooks=[hook]")
        self._hooks = tuple(hooks)
        self._failed: set[int] = set()
        for hook in self._hooks:
            _require_plain(hook)

    def __call__(self, event: Event, /) -> None:
        """Pass an event to every hook."""
        for place, hook in enumerate(self._hooks):
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001 - an observer must not break what it observes
                self._excuse(place, hook, error)

    def _excuse(self, place: int, hook: Hook, error: Exception) -> None:
        if place not in self._failed:
            self._failed.add(place)
            error.__suppress_context__ = True  # the context may be a call's own error, which quotes the service
            name = getattr(hook, "__qualname__", type(hook).__qualname__)
            LOGGER.error("hook %s raised; further errors are suppressed", name, exc_info=error)


def _require_plain(hook: object) -> None:
    if not callable(hook):
        raise InvalidRequest(f"hooks: expected callables, got {type(hook).__name__}; pass hooks=[hook]")
    if iscoroutinefunction(hook) or iscoroutinefunction(type(hook).__call__):
        raise InvalidRequest(
            "hooks: expected synchronous functions, got an async one; hooks run inside the call: "
            "pass events on, for example with a queue's put_nowait"
        )
