"""The library's only logger, `outreach_async`. It logs requests and their results.

It never logs a body or a key, and no header except `x-request-id`. Nothing is printed unless the program configures logging or
the environment sets `OUTREACH_LOG`. The levels are:

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
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from outreach_async._core.arguments import masked_repr
from outreach_async._core.responses import clean_string
from outreach_async._core.retry import FailureKind
from outreach_async.errors import OutreachError
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
