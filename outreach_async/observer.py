"""An engine that emits events to hooks. A client without hooks uses the plain engine and pays nothing for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import Any, Final, TypeVar

import attrs

from outreach_async.call import Call
from outreach_async.engine import Engine, Expiring
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.hooks import (
    CANCELLED,
    TIMEOUT,
    AttemptEnded,
    AttemptStarted,
    CallEnded,
    CallStarted,
    Event,
    Repeating,
    facts_of,
)
from outreach_async.logs import request_id
from outreach_async.operations import Operation
from outreach_async.responses import masked_text
from outreach_async.retry import weigh
from outreach_async.transport.urls import parse_base_url
from outreach_async.transport.wire import Response, Transport

T = TypeVar("T")

_next_call: Final = count(1).__next__


@attrs.define
class _Sight:
    """A call in progress: its number, its start, and its last response."""

    number: int
    began: float
    answer: dict[str, Any] = attrs.field(factory=dict)


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
        self._tell = hooks
        self._base_url = _place(getattr(transport, "base_url", None) or base_url)
        self._seen: dict[Call[Any], _Sight] = {}

    async def drive(self, call: Call[T], scope: Expiring) -> T:
        """Drive a call; see `Engine.drive`."""
        if call not in self._seen:
            self._begin(call)
        try:
            answer = await super().drive(call, scope)
        # A cancellation does not end the call: an attempt that timed out leaves its scope this way and may be retried. `abandon`
        # ends calls that are really cancelled.
        except Exception as error:
            self._end(call, facts_of(error))
            raise
        self._end(call, self._seen[call].answer)
        return answer

    def abandon(self, call: Call[Any]) -> None:
        """Take in that a call is driven no further."""
        if call in self._seen:
            self._end(call, {"error": CANCELLED})

    async def _attempt(self, call: Call[Any], scope: Expiring) -> Response:
        number, attempt = self._seen[call].number, call.attempts + 1
        self._tell(AttemptStarted(call=number, operation=call.operation.name, attempt=attempt))
        ended: dict[str, Any] | None = None
        try:
            response = await super()._attempt(call, scope)
            ended = self._seen[call].answer = {"status_code": response.status, "request_id": request_id(call, response)}
        except OutreachError as error:
            ended = facts_of(error)
            raise
        finally:
            now = call.now()
            # Neither a response nor an error: the attempt was cancelled, by its own time limit or from outside.
            ended = ended or {"error": TIMEOUT if call.attempt_ends(call.started) <= now else CANCELLED}
            seconds = now - call.started
            self._tell(AttemptEnded(call=number, operation=call.operation.name, attempt=attempt, seconds=seconds, **ended))
        return response

    def _recover(self, call: Call[Any], error: OutreachError) -> None:
        super()._recover(call, error)
        wait = max(call.resumes, self._gate.opens_at) - call.now()
        self._tell(
            Repeating(
                call=self._seen[call].number,
                operation=call.operation.name,
                attempt=call.attempts,
                error=type(error).__name__,
                status_code=error.status_code,
                evidence=weigh(error, call.operation.repeat).name.lower(),
                wait=max(0.0, wait),
            )
        )

    def _begin(self, call: Call[Any]) -> None:
        operation, number = call.operation, _next_call()
        self._seen[call] = _Sight(number, call.now())
        self._tell(
            CallStarted(
                call=number,
                operation=operation.name,
                method=operation.request.method,
                target=_shown(operation),
                base_url=self._base_url,
                run=getattr(call.terms.flow, "run", None),
            )
        )

    def _end(self, call: Call[Any], how: dict[str, Any]) -> None:
        sight = self._seen.pop(call)
        self._tell(
            CallEnded(
                call=sight.number,
                operation=call.operation.name,
                attempts=call.begun,
                seconds=call.now() - sight.began,
                **how,
            )
        )


def _place(base_url: object) -> str | None:
    """Return a base URL without user and password; `None` if it is not a valid base URL."""
    try:
        return None if base_url is None else str(parse_base_url(str(base_url)))
    except InvalidRequest:
        return None


def _shown(operation: Operation[Any]) -> str:
    target = operation.request.target
    return _masked(target.partition("?")[0] if operation.any_status else target, operation.secrets)


@lru_cache(maxsize=256)
def _masked(target: str, secrets: tuple[str, ...]) -> str:
    """Return the target without secrets. It is cached, because every row of a run has the same one."""
    return masked_text(target, secrets)
