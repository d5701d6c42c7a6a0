"""Turn an answer that is no success into an error: what the service said, without the secrets it may have echoed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote

from outreach_async.converters import DecodeError, read_json
from outreach_async.errors import RateLimited, StatusError, UnexpectedResponse
from outreach_async.transport.wire import Response

MASK: Final = "***"
_REASON_LIMIT: Final = 200
_SECRET_HEADERS: Final = ("auth", "token", "secret", "key", "cookie", "signature", "password", "session")
_TOO_MANY_REQUESTS: Final = 429


def is_secret_header(name: str) -> bool:
    """Whether a header field of this name may carry a secret."""
    return any(word in name.lower() for word in _SECRET_HEADERS)


def secret_parts(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values, and their words, that must not appear anywhere."""
    values = [value for name, value in headers.items() if is_secret_header(name)]
    words = [word for value in values for word in value.split()]
    return tuple({part for part in (*values, *words) if len(part) > 3})  # noqa: PLR2004 - shorter ones would mask common words


def masked(body: bytes, secrets: Iterable[str]) -> bytes:
    """Return the body with every secret replaced, in each spelling that JSON or a URL gives it."""
    for secret in secrets:
        for spelling in {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}:
            body = body.replace(spelling.encode(errors="surrogatepass"), MASK.encode())
    return body


def masked_headers(headers: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """Return header fields fit for an error: secret fields masked, and secrets masked in the others."""
    pairs = ((name, MASK if is_secret_header(name) else value) for name, value in headers.items())
    return {name: masked(value.encode(errors="surrogatepass"), secrets).decode(errors="replace") for name, value in pairs}


def refused(operation: str, response: Response, secrets: tuple[str, ...], *, now: float) -> StatusError:
    """Return the error for an answer with a status of 300 or more.

    Args:
        operation: The operation's name.
        response: The answer.
        secrets: What to mask.
        now: Unix time in seconds, for a Retry-After given as a date.
    """
    body = masked(response.body, secrets)
    error = (RateLimited if response.status == _TOO_MANY_REQUESTS else StatusError)(
        f"{operation}: the service answered {response.status}: {reason(body)}",
        operation=operation,
        status_code=response.status,
        headers=masked_headers(response.headers, secrets),
        body=body,
        maybe_sent=True,
    )
    if isinstance(error, RateLimited):
        error.retry_after = retry_after(response.headers, now=now)
    return error


def unexpected(operation: str, response: Response, secrets: tuple[str, ...], fault: DecodeError | str) -> UnexpectedResponse:
    """Return the error for an answer of 2xx that is not what the interface says."""
    body = masked(response.body, secrets)
    value = fault.value if isinstance(fault, DecodeError) else {}
    told = f"status {value['status']!r}: {reason(body)}" if value and value.get("status") not in {"ok", None} else str(fault)
    error = UnexpectedResponse(
        masked(f"{operation}: the service answered {response.status} with {told}".encode(), secrets).decode(),
        operation=operation,
        status_code=response.status,
        headers=masked_headers(response.headers, secrets),
        body=body,
        maybe_sent=True,
    )
    error.well_formed = value is not None
    return error


def reason(body: bytes) -> str:
    """Say in at most 200 characters what an answer's body tells a person."""
    if not body.strip():
        return "no body"
    try:
        told = _told(read_json(body))
    except DecodeError:
        told = "a page of HTML or XML" if body.lstrip()[:1] == b"<" else body.decode(errors="replace")
    told = " ".join(told.split())
    return told if len(told) <= _REASON_LIMIT else f"{told[:_REASON_LIMIT]}..."


def _told(value: Any) -> str:
    if isinstance(value, dict):
        for name in ("error", "message", "detail", "details", "errors"):
            if value.get(name):
                return _told(value[name])
    return value if isinstance(value, str) else json.dumps(value)


def retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the seconds that `Retry-After` asks for (RFC 9110, section 10.2.3); `None` if it is absent or no such value.

    A date is counted from the answer's own `Date`, so that a clock that is wrong on one side does not matter.
    """
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.replace(".", "", 1).isdigit():
        return float(value)
    wanted, sent = _date(value), _date(headers.get("date", ""))
    if wanted is None:
        return None
    return max(0.0, wanted - (now if sent is None else sent))


def _date(value: str) -> float | None:
    from email.utils import parsedate_to_datetime  # heavy, and needed only for a date

    try:
        return parsedate_to_datetime(value).timestamp()
    except (ValueError, OverflowError):
        return None
