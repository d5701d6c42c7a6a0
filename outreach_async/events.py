"""What hooks are told, as frozen values. Durations are seconds; a number of a call or run is unique in its process."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from outreach_async.vocabulary import Outcome

CANCELLED: Final = "cancelled"
"""What `error` says where a task was cancelled.

Example:
    ```python
    def cancelled(event):
        return isinstance(event, CallEnded) and event.error == CANCELLED
    ```
"""
TIMEOUT: Final = "timeout"
"""What `error` says where an attempt's time ran out, its own or the call's.

Example:
    ```python
    def timed_out(event):
        return isinstance(event, AttemptEnded) and event.error == TIMEOUT
    ```
"""

BulkState: TypeAlias = Literal["running", "throttled", "paused", "finished", "interrupted", "stopped", "suspended"]
"""The states of a bulk run: three while it is under way, then how it ended.

Example:
    ```python
    over: set[BulkState] = {"finished", "interrupted", "stopped", "suspended"}
    ```
"""


@attrs.frozen(kw_only=True)
class CallStarted:
    """A call begins, such as one page of a list or one row of a bulk run; its first attempt may have to wait.

    Attributes:
        call: Number of the call, unique in this process.
        operation: What is called, such as `create_contact`.
        method: The HTTP method.
        target: Path and query, secrets masked; of `request()` the path alone, for its query may be anything.
        base_url: What stands before the target, without user and password; `None` if the transport does not tell.
        run: Number of the bulk run that it belongs to.

    Example:
        ```python
        def starts(event):
            if isinstance(event, CallStarted):
                print(event.operation, event.method, event.target)  # -> list_fields GET /workspaces/space_1/all-fields


        await OutreachClient(transport=FakeTransport(fake), workspace="space_1", hooks=[starts]).workspaces.fields()
        ```
    """

    call: int
    operation: str
    method: str
    target: str
    base_url: str | None
    run: int | None


@attrs.frozen(kw_only=True)
class AttemptStarted:
    """A request is handed to the transport. A hook runs in the task that sends it, here and at the end of the attempt.

    Attributes:
        call: Number of the call.
        operation: What is called.
        attempt: Number of the attempt, from 1.

    Example:
        ```python
        def attempts(event):
            if isinstance(event, AttemptStarted):
                print(event.operation, event.attempt)  # -> list_fields 1


        await OutreachClient(transport=FakeTransport(fake), workspace="space_1", hooks=[attempts]).workspaces.fields()
        ```
    """

    call: int
    operation: str
    attempt: int


@attrs.frozen(kw_only=True)
class AttemptEnded:
    """An attempt was answered, failed or was cancelled.

    Attributes:
        call: Number of the call.
        operation: What is called.
        attempt: Number of the attempt, from 1.
        seconds: Duration.
        status_code: The HTTP status of the answer; `None` when there was none.
        request_id: The answer's `x-request-id`.
        error: Name of the error's class if there was no answer, or `timeout` or `cancelled`.

    Example:
        ```python
        def answers(event):
            if isinstance(event, AttemptEnded):
                print(event.status_code, event.error, event.seconds < 60)  # -> 200 None True


        await OutreachClient(transport=FakeTransport(fake), workspace="space_1", hooks=[answers]).workspaces.fields()
        ```
    """

    call: int
    operation: str
    attempt: int
    seconds: float
    status_code: int | None = None
    request_id: str | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class Repeating:
    """A failed attempt will be followed by another.

    Attributes:
        call: Number of the call.
        operation: What is called.
        attempt: Number of the attempt that failed.
        error: Name of the error's class.
        status_code: The HTTP status of the answer; `None` when there was none.
        evidence: What the failure proves: `not_sent`, `refused` or `ambiguous`.
        wait: Seconds until the next attempt at the soonest.

    Example:
        ```python
        def repeats(event):
            if isinstance(event, Repeating):
                print(event.attempt, event.status_code, event.evidence)  # -> 1 503 ambiguous


        fake.faults.script("list_fields", faults.status(503))
        await OutreachClient(
            transport=FakeTransport(fake), workspace="space_1", hooks=[repeats], retry=RetryPolicy(backoff=0.0)
        ).workspaces.fields()
        ```
    """

    call: int
    operation: str
    attempt: int
    error: str
    status_code: int | None
    evidence: str
    wait: float


@attrs.frozen(kw_only=True)
class CallEnded:
    """A call returned, raised or was cancelled.

    Attributes:
        call: Number of the call.
        operation: What is called.
        attempts: How often it was tried.
        seconds: Duration, waits included.
        status_code: The HTTP status of the answer that settled it; `None` when there was none.
        request_id: That answer's `x-request-id`.
        error: Name of the error's class, or `cancelled`; `None` for a success.

    Example:
        ```python
        def ends(event):
            if isinstance(event, CallEnded):
                print(event.operation, event.attempts, event.error)  # -> list_fields 1 None


        await OutreachClient(transport=FakeTransport(fake), workspace="space_1", hooks=[ends]).workspaces.fields()
        ```
    """

    call: int
    operation: str
    attempts: int
    seconds: float
    status_code: int | None = None
    request_id: str | None = None
    error: str | None = None


@attrs.frozen(kw_only=True)
class BulkStateChanged:
    """A bulk run began, is held up, goes on, or is over.

    Attributes:
        run: Number of the run, unique in this process.
        state: `running`, `throttled` or `paused`; in the end `finished`, `interrupted`, `stopped` or `suspended`.
        before: The state before; `None` at the beginning.
        rows: Rows with an outcome, those of earlier processes with them.
        limit: Requests a second that the run allows itself; `None` while nothing has taught it a limit.
        wait: Seconds that a pause will last, as far as is known.
        error: Name of the class of the error that ended the run early.
        status_code: The HTTP status behind that error.
        request_id: The `x-request-id` behind it.

    Example:
        ```python
        def states(event):
            if isinstance(event, BulkStateChanged):
                print(event.before, "->", event.state, event.rows)


        # -> None -> running 0
        # -> running -> finished 1


        told = OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1", hooks=[states])
        await told.contacts.create_many([{"email": "ann@company.example"}])
        ```
    """

    run: int
    state: BulkState
    before: BulkState | None
    rows: int
    limit: float | None = None
    wait: float = 0.0
    error: str | None = None
    status_code: int | None = None
    request_id: str | None = None


@attrs.frozen(kw_only=True)
class BulkPaced:
    """How fast a run that is held up allows itself to go; told about once a second until it is held up no more.

    Attributes:
        run: Number of the run.
        limit: Requests a second.

    Example:
        ```python
        def limits(event):
            if isinstance(event, BulkPaced):
                print(f"{event.limit:g} requests a second")


        told = OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1", hooks=[limits])
        await told.contacts.create_many([{"email": "ann@company.example"}])  # nothing holds it up, so nothing is told
        ```
    """

    run: int
    limit: float


@attrs.frozen(kw_only=True)
class RowEnded:
    """A row of a bulk run has its outcome; with a journal, it is kept.

    Attributes:
        run: Number of the run.
        index: The row's place in the input, from 0.
        status: The outcome.
        certain: Whether that is known to be what happened.
        attempts: How often the row was tried to be sent.
        error: Name of the error's class; `None` for an answer of the service.
        status_code: The error's HTTP status.
        request_id: The error's `x-request-id`.

    Example:
        ```python
        def rows(event):
            if isinstance(event, RowEnded):
                print(event.index, event.status, event.certain)  # -> 0 added True


        told = OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1", hooks=[rows])
        await told.contacts.create_many([{"email": "ann@company.example"}])
        ```
    """

    run: int
    index: int
    status: Outcome
    certain: bool
    attempts: int
    error: str | None = None
    status_code: int | None = None
    request_id: str | None = None


Event: TypeAlias = CallStarted | AttemptStarted | AttemptEnded | Repeating | CallEnded | BulkStateChanged | BulkPaced | RowEnded
"""What a hook is told; more kinds may come.

Example:
    ```python
    def name(event: Event) -> None:
        print(type(event).__name__)
    # -> CallStarted
    # -> AttemptStarted
    # -> AttemptEnded
    # -> CallEnded


    await OutreachClient(transport=FakeTransport(fake), workspace="space_1", hooks=[name]).workspaces.fields()
    ```
"""
