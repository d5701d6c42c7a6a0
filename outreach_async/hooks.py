"""Hooks: callables that are told what a client does, one frozen value at a time.

    a call      CallStarted, AttemptStarted, AttemptEnded, Repeating, AttemptStarted, AttemptEnded, ..., CallEnded
    a bulk run  BulkStateChanged, its calls, RowEnded for each row, BulkPaced while it is held up, ..., BulkStateChanged

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.hooks import CallEnded, Event, Repeating


def watch(event: Event) -> None:
    match event:
        case Repeating():
            print(f"{event.operation} failed with {event.status_code}; it is sent again after {event.wait:.0f} s")
        case CallEnded():
            print(event.operation, "took", event.attempts, "attempts and ended with", event.status_code)


async def main() -> None:
    fake = FakeService()
    fake.faults.script("list_fields", faults.status(503))
    async with OutreachClient(transport=FakeTransport(fake), workspace=fake.add_workspace(), hooks=[watch]) as client:
        await client.workspaces.fields()
    # -> list_fields failed with 503; it is sent again after ... s
    # -> list_fields took 2 attempts and ended with 200


anyio.run(main)
```

Every start is followed by its end: an answer, an error or a cancellation. Values hold no body, no header but the request id, no
contact and no secret. More kinds of values may come: a hook ignores those it does not know, as `match` does.

A hook is called in the midst of a call, so it must be quick and plain: an async function is refused. What it raises ends no
call; it is logged once for each hook. A client's copies made by `with_options` tell the same hooks.

For logs no hook is needed: `OUTREACH_LOG=info` writes retries and the states of bulk runs to stderr, `debug` every attempt. For
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
    """Return what hooks are told of an error; not what it says, for it quotes the service, or of rows' own code the row."""
    if isinstance(error, OutreachError):
        return {"error": type(error).__name__, "status_code": error.status_code, "request_id": error.request_id}
    return {"error": None if error is None else type(error).__name__}


class Hook(Protocol):
    """Is told what a client does; it is called in the midst of it, so it must not block.

    What it raises ends no call: it is logged once, and from then on ignored.

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
        """Take in what happened."""
        ...


class Hooks:
    """Tells several hooks, one after the other.

    Args:
        hooks: The hooks.

    Raises:
        InvalidRequest: They are no iterable of plain callables.
    """

    def __init__(self, hooks: Iterable[Hook]) -> None:
        if not isinstance(hooks, Iterable):
            raise InvalidRequest(f"hooks: expected a list of callables, got {type(hooks).__name__}; pass hooks=[hook]")
        self._hooks = tuple(hooks)
        self._failed: set[int] = set()
        for hook in self._hooks:
            _require_plain(hook)

    def __call__(self, event: Event, /) -> None:
        """Tell every hook."""
        for place, hook in enumerate(self._hooks):
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001 - who looks on must not break what is looked at
                self._excuse(place, hook, error)

    def _excuse(self, place: int, hook: Hook, error: Exception) -> None:
        if place not in self._failed:
            self._failed.add(place)
            error.__suppress_context__ = True  # a call's own error may be under way, and it quotes the service
            name = getattr(hook, "__qualname__", type(hook).__qualname__)
            LOGGER.error("the hook %s failed; this is said once", name, exc_info=error)


def _require_plain(hook: object) -> None:
    if not callable(hook):
        raise InvalidRequest(f"hooks: expected callables, got {type(hook).__name__}; pass hooks=[hook]")
    if iscoroutinefunction(hook) or iscoroutinefunction(type(hook).__call__):
        raise InvalidRequest(
            "hooks: expected plain functions, got an async one; a hook is called in the midst of a call; "
            "hand events over, as by a queue's put_nowait"
        )
