"""An engine that emits events to hooks. A client without hooks uses the plain engine and pays nothing for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeVar

import attrs

from outreach_async.call import Call
from outreach_async.engine import DeadlineScope, Engine
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.hooks import (
    CANCELLED,
    TIMEOUT,
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    CallStarted,
    Event,
    RetryScheduled,
    build_error_fields,
)
from outreach_async.logs import masked_request_id
from outreach_async.operations import Operation
from outreach_async.responses import mask_string
from outreach_async.retry import classify
from outreach_async.transport.urls import parse_base_url
from outreach_async.transport.wire import Response, Transport

T = TypeVar("T")

_next_call: Final = count(1).__next__


@attrs.define
class _ObservedCall:
    """A call in progress: its number, its start, and its last response."""

    number: int
    started_at: float
    response_fields: dict[str, Any] = attrs.field(factory=dict)


class ObservedEngine(Engine):
    """An engine that emits events of calls and attempts.

    Args:
        transport: Carries the requests.
        hooks: Invoked with each event.
        base_url: Address that the transport sends to, if the transport has no `base_url` of its own.
        options: Other options of `Engine`.
    """

    def __init__(self, transport: Transport, *, hooks: Callable[[Event], None], base_url: str | None, **options: Any) -> None:
        super().__init__(transport, hooks=hooks, **options)
        self._emit = hooks
        self._base_url = _strip_credentials(getattr(transport, "base_url", None) or base_url)
        self._calls: dict[Call[Any], _ObservedCall] = {}

    async def execute(self, call: Call[T], scope: DeadlineScope) -> T:
        """Drive a call; see `Engine.execute`."""
        if call not in self._calls:
            self._start_call(call)
        try:
            answer = await super().execute(call, scope)
        # A cancellation does not end the call: an attempt that timed out leaves its scope this way and may be retried. `discard`
        # ends calls that are really cancelled.
        except Exception as error:
            self._end_call(call, build_error_fields(error))
            raise
        self._end_call(call, self._calls[call].response_fields)
        return answer

    def discard(self, call: Call[Any]) -> None:
        """Take in that a call is driven no further."""
        if call in self._calls:
            self._end_call(call, {"error": CANCELLED})

    async def _send_attempt(self, call: Call[Any], scope: DeadlineScope) -> Response:
        number, attempt = self._calls[call].number, call.attempts + 1
        self._emit(AttemptStarted(call=number, operation=call.operation.name, attempt=attempt))
        ended: dict[str, Any] | None = None
        try:
            response = await super()._send_attempt(call, scope)
            ended = self._calls[call].response_fields = {
                "status_code": response.status,
                "request_id": masked_request_id(call, response),
            }
        except OutreachError as error:
            ended = build_error_fields(error)
            raise
        finally:
            now = call.now()
            # Neither a response nor an error: the attempt was cancelled, by its own time limit or from outside.
            ended = ended or {"error": TIMEOUT if call.attempt_deadline(call.started) <= now else CANCELLED}
            seconds = now - call.started
            self._emit(AttemptEnded(call=number, operation=call.operation.name, attempt=attempt, seconds=seconds, **ended))
        return response

    def _on_failure(self, call: Call[Any], error: OutreachError) -> None:
        super()._on_failure(call, error)
        wait = max(call.not_before, self._gate.opens_at) - call.now()
        self._emit(
            RetryScheduled(
                call=self._calls[call].number,
                operation=call.operation.name,
                attempt=call.attempts,
                error=type(error).__name__,
                status_code=error.status_code,
                evidence=classify(error, call.operation.idempotency).name.lower(),
                wait=max(0.0, wait),
            )
        )

    def _start_call(self, call: Call[Any]) -> None:
        operation, number = call.operation, _next_call()
        self._calls[call] = _ObservedCall(number, call.now())
        self._emit(
            CallStarted(
                call=number,
                operation=operation.name,
                method=operation.request.method,
                target=_describe_target(operation),
                base_url=self._base_url,
                run=getattr(call.options.throttle, "run", None),
            )
        )

    def _end_call(self, call: Call[Any], how: dict[str, Any]) -> None:
        sight = self._calls.pop(call)
        self._emit(
            CallEnded(
                call=sight.number,
                operation=call.operation.name,
                attempts=call.started_attempts,
                seconds=call.now() - sight.started_at,
                **how,
            )
        )


def _strip_credentials(base_url: object) -> str | None:
    """Return a base URL without user and password; `None` if it is not a valid base URL."""
    try:
        return None if base_url is None else str(parse_base_url(str(base_url)))
    except InvalidRequest:
        return None


def _describe_target(operation: Operation[Any]) -> str:
    target = operation.request.target
    return _mask_target(target.partition("?")[0] if operation.any_status else target, operation.secrets)


@lru_cache(maxsize=256)
def _mask_target(target: str, secrets: tuple[str, ...]) -> str:
    """Return the target without secrets. It is cached, because every row of a run has the same one."""
    return mask_string(target, secrets)
