"""What a client reports of its work: to the library's only logger, `outreach_async`, and to hooks.

The logger never gets a body or a key, and no header except `x-request-id`. Nothing is printed unless the program configures
logging or the environment sets `OUTREACH_LOG`. The levels are:

- debug: every attempt, and the retries of bulk runs and audits;
- info: other retries, and the states of bulk runs;
- warning: a bulk run pauses or ends early, or sends numbers of a data frame as text; an owner key is sent over plain HTTP;
  `None` has cleared fields of a contact.

Records have additional fields, set through `extra=`:

- attempts and retries: `operation`, `attempt`, `seconds`, `status_code`, `request_id`, `error`, `evidence` and `wait`;
- bulk runs: `run`, `state`, `before`, `rows`, `limit`, `wait` and `error`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from inspect import iscoroutinefunction
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import attrs

from outreach_async import hooks as events
from outreach_async._core.arguments import masked_repr
from outreach_async._core.responses import clean_string, mask_string
from outreach_async._core.retry import FailureKind
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.transport._urls import is_loopback
from outreach_async.transport._wire import Response

if TYPE_CHECKING:
    from outreach_async._core.attempts import Call

LOGGER: Final = logging.getLogger("outreach_async")
LOGGER.addHandler(logging.NullHandler())  # without a handler, Python prints warnings to stderr

_MAX_ID_LENGTH: Final = 256


def configure_logging(level_name: str | None = None) -> None:
    """Enable logging to stderr at a level such as `debug` or `info`; by default, at the level of `OUTREACH_LOG`."""
    # An unknown level is ignored. If the program has already added a handler to the logger, nothing changes.
    level = logging.getLevelNamesMapping().get((level_name or os.environ.get("OUTREACH_LOG", "")).upper())
    if level is None or any(not isinstance(handler, logging.NullHandler) for handler in LOGGER.handlers):
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)


def log_response(call: Call[Any], response: Response) -> None:
    """Log an attempt that received a response with any status code. The caller must check that debug logging is enabled."""
    extra = _attempt_fields(call, response.status, masked_request_id(call, response))
    LOGGER.debug("%s: %d on attempt %d", call.operation.name, response.status, call.attempts + 1, extra=extra)


def log_failure(call: Call[Any], error: OutreachError, failure_kind: FailureKind) -> None:
    if LOGGER.isEnabledFor(logging.DEBUG):
        extra = _failure_fields(call, error, failure_kind)
        LOGGER.debug("%s: attempt %d failed: %s", call.operation.name, call.attempts, describe_error(error), extra=extra)


def log_retry(call: Call[Any], error: OutreachError, failure_kind: FailureKind, wait: float) -> None:
    """Log that a failed call is retried. In a bulk run or audit, log at debug only, because a run can have millions of rows."""
    level = logging.INFO if call.throttle.run is None else logging.DEBUG
    if LOGGER.isEnabledFor(level):
        extra = {**_failure_fields(call, error, failure_kind), "wait": wait}
        text = "%s: retrying in %.3g s after attempt %d: %s"
        LOGGER.log(level, text, call.operation.name, wait, call.attempts, describe_error(error), extra=extra)


def log_run_state(fields: Mapping[str, Any], why: str | None) -> None:
    details = [f"{fields['rows']} rows so far"]
    details += [] if fields["limit"] is None else [f"at most {fields['limit']:.3g} requests/s"]
    details += [f"for {fields['wait']:.3g} s"] if fields["wait"] else []
    details += [why] if why else []
    level = logging.WARNING if fields["state"] in {"paused", "suspended", "stopped"} else logging.INFO
    verb = "resumed" if fields["state"] == "running" and fields["before"] is not None else fields["state"]
    text = "create_many: run %d %s: %s"
    LOGGER.log(level, text, fields["run"], verb, ", ".join(details), extra={**fields, "error": why})


@cache
def warn_of_plain_http(base_url: str) -> None:
    """Log a warning, once for each URL, if requests to it are not encrypted and leave this machine."""
    parts = urlsplit(base_url)
    if parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        LOGGER.warning("base_url: expected https, got %s, where anyone on the way can read the owner key; use https", base_url)


@lru_cache(maxsize=256)
def warn_of_cleared(fields: tuple[str, ...]) -> None:
    """Log a warning, once for each set of fields, that an existing contact was overwritten with null."""
    if fields:
        names = ", ".join(map(masked_repr, fields))
        remedy = "leave out a field to keep its value"
        LOGGER.warning("create: None was sent as null for %s, which clears the fields of an existing contact; %s", names, remedy)


def describe_error(error: OutreachError) -> str:
    """Return a description of an error without the service's message, which comes from the body and may name a contact."""
    return str(error) if error.status_code is None else f"{type(error).__name__} {error.status_code}"


def masked_request_id(call: Call[Any], response: Response) -> str | None:
    """Return the response's `x-request-id` with secrets masked; `None` if it is missing or longer than 256 characters."""
    request_id = response.headers.get("x-request-id", "")
    return clean_string(request_id, call.operation.secrets) if 0 < len(request_id) <= _MAX_ID_LENGTH else None


def _attempt_fields(call: Call[Any], status_code: int | None, request_id: str | None) -> dict[str, Any]:
    fields = {"operation": call.operation.name, "attempt": call.started_attempts, "seconds": call.now() - call.started}
    return {**fields, "status_code": status_code, "request_id": request_id}


def _failure_fields(call: Call[Any], error: OutreachError, failure_kind: FailureKind) -> dict[str, Any]:
    fields = _attempt_fields(call, error.status_code, error.request_id)
    return {**fields, "error": type(error).__name__, "evidence": failure_kind.name.lower()}


# Hooks.

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

    def __init__(self, hooks: Iterable[events.Hook], base_url: str | None) -> None:
        if not isinstance(hooks, Iterable):
            raise InvalidRequest(f"hooks: expected a list of callables, got {type(hooks).__name__}; pass hooks=[hook]")
        self._hooks = tuple(hooks)
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
            except Exception as error:
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
