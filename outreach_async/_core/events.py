"""The events of calls, attempts and bulk runs. Only a client with hooks imports this module."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from inspect import iscoroutinefunction
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import attrs

from outreach_async import hooks as events
from outreach_async._core.logs import LOGGER, masked_request_id
from outreach_async._core.responses import mask_string
from outreach_async._core.retry import FailureKind
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport._wire import Response

if TYPE_CHECKING:
    from outreach_async._core.attempts import Call

_next_call: Final = count(1).__next__
_mask_target: Final = lru_cache(256)(mask_string)  # cached, because every row of a run has the same target


@attrs.define
class _ObservedCall:
    """A call in progress: its number, its start, and the event fields of its last response."""

    number: int
    started_at: float
    response_fields: dict[str, Any] = attrs.field(factory=dict)


class Observer:
    """Emits the events of calls, attempts and bulk runs. A client and its copies share one observer."""

    def __init__(self, hooks: object, base_url: str | None) -> None:
        if not isinstance(hooks, Iterable) or isinstance(hooks, str | bytes):
            raise InvalidRequest(f"hooks: expected a list of callables, got {type(hooks).__name__}; pass hooks=[hook]")
        self._hooks: tuple[events.Hook, ...] = tuple(hooks)
        self._failed: set[int] = set()
        for hook in self._hooks:
            if not callable(hook):
                raise InvalidRequest(f"hooks: expected callables, got {type(hook).__name__}; pass hooks=[hook]")
            if iscoroutinefunction(hook) or iscoroutinefunction(type(hook).__call__):
                raise InvalidRequest(
                    "hooks: expected synchronous functions, got an async function; hooks run inside the call, "
                    "so pass a synchronous function, such as the put_nowait of a queue"
                )
        self._base_url = base_url
        self._calls: dict[Call[Any], _ObservedCall] = {}

    def _emit(self, event: events.Event) -> None:
        for position, hook in enumerate(self._hooks):
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001 - a hook may raise anything; it is logged
                if position not in self._failed:
                    self._failed.add(position)
                    error.__suppress_context__ = True  # the context may be a call's own error, which quotes the service
                    name = getattr(hook, "__qualname__", type(hook).__qualname__)
                    LOGGER.exception("hook %s raised an exception; later exceptions of the hook are not logged", name)

    def _emit_of(self, call: Call[Any], event: Callable[..., events.Event], **fields: Any) -> None:
        self._emit(event(call=self._calls[call].number, operation=call.operation.name, **fields))

    def on_call_executed(self, call: Call[Any]) -> None:
        # A call is executed again after each attempt that times out.
        if call not in self._calls:
            self._calls[call] = _ObservedCall(_next_call(), call.now())
            request, secrets = call.operation.request, call.operation.secrets
            target = _mask_target(request.target.partition("?")[0] if call.operation.any_status else request.target, secrets)
            fields = {"method": request.method, "target": target, "base_url": self._base_url, "run": call.throttle.run}
            self._emit_of(call, events.CallStarted, **fields)

    def on_attempt_started(self, call: Call[Any]) -> None:
        self._emit_of(call, events.AttemptStarted, attempt=call.attempts + 1)

    def on_attempt_ended(self, call: Call[Any], result: Response | OutreachError | None) -> None:
        """Emit an `AttemptEnded` event. `result` is the attempt's response or error, or `None` if the attempt was cancelled."""
        now = call.now()
        if result is None:  # cancelled by its own time limit or from outside
            fields: dict[str, Any] = {"error": "timeout" if call.attempt_deadline(call.started) <= now else "cancelled"}
        elif isinstance(result, OutreachError):
            fields = _build_error_fields(result)
        else:
            fields = {"status_code": result.status, "request_id": masked_request_id(call, result)}
            self._calls[call].response_fields = fields
        self._emit_of(call, events.AttemptEnded, attempt=call.attempts + 1, seconds=now - call.started, **fields)

    def on_retry(self, call: Call[Any], error: OutreachError, failure_kind: FailureKind) -> None:
        now = call.now()
        wait = max(0.0, call.not_before - now, call.throttle.gate.opens_at - now)
        fields = {"error": type(error).__name__, "status_code": error.status_code, "evidence": failure_kind.name.lower()}
        self._emit_of(call, events.RetryScheduled, attempt=call.attempts, wait=wait, **fields)

    def on_call_ended(self, call: Call[Any], error: Exception | None = None) -> None:
        self._end_call(call, self._calls[call].response_fields if error is None else _build_error_fields(error))

    def on_call_discarded(self, call: Call[Any]) -> None:
        """Emit a `CallEnded` event for a call that will not be continued, unless the event was already emitted."""
        if call in self._calls:
            self._end_call(call, {"error": "cancelled"})

    def _end_call(self, call: Call[Any], fields: dict[str, Any]) -> None:
        seconds = call.now() - self._calls[call].started_at
        self._emit_of(call, events.CallEnded, attempts=call.started_attempts, seconds=seconds, **fields)
        del self._calls[call]

    def on_row(self, error: Exception | None, **fields: Any) -> None:
        self._emit(events.RowEnded(**fields, **_build_error_fields(error)))

    def on_run_state(self, fields: dict[str, Any], failure: Exception | None) -> None:
        self._emit(events.BulkStateChanged(**fields, **_build_error_fields(failure)))

    def on_rate(self, run: int, limit: float) -> None:
        self._emit(events.BulkRateChanged(run=run, limit=limit))


def _build_error_fields(error: Exception | None) -> dict[str, Any]:
    """Return the event fields of an error. The message is left out, because it may contain text from the service or a row."""
    if isinstance(error, OutreachError):
        return {"error": type(error).__name__, "status_code": error.status_code, "request_id": error.request_id}
    return {"error": None if error is None else type(error).__name__}
