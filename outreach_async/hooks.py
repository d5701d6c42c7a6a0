"""Hooks: callables that receive a client's events.

Events are frozen values, and occur in this order:

    a call      CallStarted, AttemptStarted, AttemptEnded, RetryScheduled,
                AttemptStarted, AttemptEnded, ..., CallEnded
    a bulk run  BulkStateChanged, the events of its calls, RowEnded for
                each row, BulkRateChanged while the run is throttled, ...,
                BulkStateChanged

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.hooks import CallEnded, Event, RetryScheduled


def watch(event: Event) -> None:
    match event:
        case RetryScheduled():
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

Events of a call have the `call`, a number that is unique in this process,
and the name of its `operation`, such as `create_contact`; events of a bulk
run have the number of the `run`. Events with a result have a `status_code`
and a `request_id`, which are `None` without a response, and an `error`:
the class name of the error, `cancelled`, `timeout` for an attempt that
exceeded its timeout or the deadline of its call, or `None`.

Every start event is followed by its end event, even after an error or a
cancellation. Events contain no body, no header except the request id, no
contact and no secret. Later versions may add more events: ignore unknown
events, as `match` does. In the short examples, `events` is a list of
events, which the hook `events.append` fills.

Hooks run inside the call. Keep them fast and synchronous: an async
function is rejected. An exception in a hook does not affect the call; the
first exception of each hook is logged. A client's copies made by
`with_options` use the same hooks, unless it is passed `hooks`, which
replace them.

Logs need no hook: see `outreach_async.guides.operating`. For
OpenTelemetry, see `outreach_async.otel`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs

from outreach_async._wire_words import Outcome

BulkState: TypeAlias = Literal["running", "throttled", "paused", "finished", "interrupted", "stopped", "suspended"]
"""The states of a bulk run. The last four are those of a run that has ended.

Example:
    ```python
    over: set[BulkState] = {"finished", "interrupted", "stopped", "suspended"}
    ```
"""


@attrs.frozen(kw_only=True)
class _CallEvent:
    call: int
    operation: str


@attrs.frozen(kw_only=True)
class _CallResult(_CallEvent):
    status_code: int | None = None
    request_id: str | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class _RunResult:
    run: int
    status_code: int | None = None
    request_id: str | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class CallStarted(_CallEvent):
    """A call started, such as for a page of a list or a row of a bulk run.

    Its first attempt may start later.

    Attributes:
        method: The HTTP method.
        target: Path and query, with secrets masked; for `client.request()`
            only the path, because the query may contain any data.
        base_url: Base URL of the service, without user and password;
            `None` if the transport does not state one.
        run: Number of the bulk run or audit that the call belongs to;
            `None` outside both.

    Example:
        ```python
        starts = [event for event in events if isinstance(event, CallStarted)]
        writes = [event for event in starts if event.method == "POST"]
        ```
    """

    method: str
    target: str
    base_url: str | None
    run: int | None


@attrs.frozen(kw_only=True)
class AttemptStarted(_CallEvent):
    """An attempt started: its request is about to be passed to the transport.

    Hooks receive `AttemptStarted` and `AttemptEnded` in the task that
    sends the request. Attempts are numbered from 1.

    Attributes:
        attempt: Number of the attempt.

    Example:
        ```python
        attempts = [event for event in events if isinstance(event, AttemptStarted)]
        retries = [event for event in attempts if event.attempt > 1]
        ```
    """

    attempt: int


@attrs.frozen(kw_only=True)
class AttemptEnded(_CallResult):
    """An attempt received a response, failed or was cancelled.

    `error` can be `timeout` or `cancelled`.

    Attributes:
        attempt: Number of the attempt.
        seconds: Duration of the attempt.

    Example:
        ```python
        slow = [event for event in events if isinstance(event, AttemptEnded) and event.seconds > 5]
        ```
    """

    attempt: int
    seconds: float


@attrs.frozen(kw_only=True)
class RetryScheduled(_CallEvent):
    """A failed attempt will be retried.

    Attributes:
        attempt, error, status_code: Those of the attempt that failed.
        evidence: Kind of failure: `not_sent`, `refused` (throttled) or
            `ambiguous` (the request may have been applied).
        wait: Minimum number of seconds until the next attempt.

    Example:
        ```python
        retries = [event for event in events if isinstance(event, RetryScheduled)]
        throttled = [event for event in retries if event.evidence == "refused"]
        ```
    """

    attempt: int
    error: str
    status_code: int | None
    evidence: str
    wait: float


@attrs.frozen(kw_only=True)
class CallEnded(_CallResult):
    """A call returned, raised or was cancelled.

    `status_code` and `request_id` are those of the last response.

    Attributes:
        attempts: Number of attempts.
        seconds: Duration of the call, including waits.

    Example:
        ```python
        await client.with_options(hooks=[events.append]).workspaces.fields()
        print(events[-1].attempts, events[-1].error)  # -> 1 None
        ```
    """

    attempts: int
    seconds: float


@attrs.frozen(kw_only=True)
class BulkStateChanged(_RunResult):
    """A bulk run started, slowed, paused, recovered its speed, or ended.

    One that ended early has an `error`.

    Attributes:
        state: The new state.
        before: The previous state; `None` at the start.
        rows: Number of rows with an outcome, including rows that earlier
            processes finished.
        limit: The client's rate limit in requests per second, configured
            or learned; `None` if there is none.
        wait: Expected duration of a pause, in seconds; otherwise 0.

    Example:
        ```python
        changes = [event for event in events if isinstance(event, BulkStateChanged)]
        pauses = [event for event in changes if event.state == "paused"]
        ```
    """

    state: BulkState
    before: BulkState | None
    rows: int
    limit: float | None = None
    wait: float = 0.0


@attrs.frozen(kw_only=True)
class BulkRateChanged:
    """The current rate limit of a throttled bulk run.

    It is reported about once a second, and after each pause.

    Attributes:
        run: Number of the run.
        limit: The client's rate limit in requests per second.

    Example:
        ```python
        rates = [event for event in events if isinstance(event, BulkRateChanged)]
        slow = [event for event in rates if event.limit < 10]
        ```
    """

    run: int
    limit: float


@attrs.frozen(kw_only=True)
class RowEnded(_RunResult):
    """A row of a bulk run received its outcome.

    With a journal, the outcome is already saved. A row that is excluded,
    which is no failure, has the `error` `Excluded`.

    Attributes:
        index: The row's index in the input, from 0.
        status: The outcome.
        certain: Whether `status` is known to be the actual outcome.
        attempts: Number of attempts to send the row.

    Example:
        ```python
        watched = client.with_options(hooks=[events.append])
        await watched.contacts.create_many([{"email": "ann@company.example"}])
        print([(event.index, event.status.value) for event in events if isinstance(event, RowEnded)])  # -> [(0, 'added')]
        ```
    """

    index: int
    status: Outcome
    certain: bool
    attempts: int


Event: TypeAlias = (
    CallStarted | AttemptStarted | AttemptEnded | RetryScheduled | CallEnded | BulkStateChanged | BulkRateChanged | RowEnded
)
"""The events that hooks receive. Later versions may add more.

Example:
    ```python
    await client.with_options(hooks=[events.append]).workspaces.fields()
    print([type(event).__name__ for event in events])  # -> ['CallStarted', 'AttemptStarted', 'AttemptEnded', 'CallEnded']
    ```
"""


__all__ = [
    "AttemptEnded",
    "AttemptStarted",
    "BulkRateChanged",
    "BulkState",
    "BulkStateChanged",
    "CallEnded",
    "CallStarted",
    "Event",
    "Hook",
    "RetryScheduled",
    "RowEnded",
]


Hook: TypeAlias = Callable[[Event], None]
"""A callable that receives the events of a client. It runs inside the call and must not block.

Example:
    ```python
    hook: Hook = [].append
    ```
"""
