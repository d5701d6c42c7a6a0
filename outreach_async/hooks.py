"""Hooks: callables that are told what a client does, one frozen value at a time.

    a call      CallStarted, AttemptStarted, AttemptEnded, Repeating, AttemptStarted, AttemptEnded, ..., CallEnded
    a bulk run  BulkStateChanged, its calls, RowEnded for each row, BulkPaced while it is held up, ..., BulkStateChanged

Every start is followed by its end: an answer, an error or a cancellation. Values hold no body, no header but the request id, no
contact and no secret. More kinds of values may come: a hook ignores those it does not know.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import iscoroutinefunction
from typing import Any, Final, Literal, Protocol, TypeAlias

import attrs

from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.logs import LOGGER
from outreach_async.vocabulary import Outcome

CANCELLED: Final = "cancelled"
"""What `error` says where a task was cancelled."""
TIMEOUT: Final = "timeout"
"""What `error` says where an attempt's time ran out, its own or the call's."""

BulkState: TypeAlias = Literal["running", "throttled", "paused", "finished", "interrupted", "stopped", "suspended"]


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
        seconds: How long it took.
        status_code: The HTTP status of the answer; `None` when there was none.
        request_id: The answer's `x-request-id`.
        error: Name of the error's class if there was no answer, or `timeout` or `cancelled`.
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
        seconds: How long it took, waits included.
        status_code: The HTTP status of the answer that settled it; `None` when there was none.
        request_id: That answer's `x-request-id`.
        error: Name of the error's class, or `cancelled`; `None` for a success.
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
    """

    run: int
    index: int
    status: Outcome
    certain: bool
    attempts: int
    error: str | None = None
    status_code: int | None = None
    request_id: str | None = None


def facts_of(error: BaseException | None) -> dict[str, Any]:
    """Return what hooks are told of an error; not what it says, for it quotes the service, or of rows' own code the row."""
    if isinstance(error, OutreachError):
        return {"error": type(error).__name__, "status_code": error.status_code, "request_id": error.request_id}
    return {"error": None if error is None else type(error).__name__}


Event: TypeAlias = CallStarted | AttemptStarted | AttemptEnded | Repeating | CallEnded | BulkStateChanged | BulkPaced | RowEnded


class Hook(Protocol):
    """Is told what a client does; it is called in the midst of it, so it must not block.

    What it raises ends no call: it is logged once, and from then on ignored.
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
        raise InvalidRequest("hooks: expected plain functions, got an async one; a hook is called in the midst of a call")
