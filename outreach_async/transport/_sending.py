"""Track whether a request was sent, and build errors that state whether it was sent.

The body that the HTTP library receives is an object that records when it is first read. If it was never read, nothing was sent.
This conclusion requires that the body is not empty, and that the head (request line and header fields) fits in a single write. A
longer head needs several writes. If the request fails between two writes, part of the head was sent, but the body was not read.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from outreach_async.errors import InvalidRequest, TransportError, strip_invisible
from outreach_async.transport._response_reader import ACCEPT_ENCODING
from outreach_async.transport._secret import OWNER_KEY
from outreach_async.transport._wire import (
    HEADER_NAME,
    HEADER_VALUE,
    METHOD,
    PATH_CHARACTERS,
    PROXY_AUTHENTICATION_REQUIRED,
    Progress,
    Request,
    Response,
    has_dot_segments,
)

_MAX_PROVABLE_HEAD: Final = 8 * 1024
_TARGET: Final = re.compile(rf"/[{PATH_CHARACTERS}\[\]]*(?:\?[{PATH_CHARACTERS}?\[\]]+)?")
_MAX_MESSAGE_LENGTH: Final = 200
_FRAMING_HEADERS: Final = frozenset({"content-length", "expect", "transfer-encoding"})
METHODS_WITH_BODY: Final = frozenset({"PATCH", "POST", "PUT"})
"""Methods whose requests have a `content-length` header even if the body is empty."""


def mark_unsent(progress: Progress) -> None:
    """Record that the request was not sent, unless `progress` already states that it was."""
    if progress.sent is not True:  # a transport that wraps this one may have sent the request before
        progress.sent = False


def mark_handed_over(progress: Progress, request: Request, *, proof: bool) -> None:
    """Record that the request may have been sent, unless the request body itself records this."""
    # Transports call this function before they pass a request to the HTTP library. The body records whether the request was sent
    # if `proof` is true, the body is not empty, and the request line and header fields fit in a single write.
    head_size = len(request.target) + sum(map(len, request.headers)) + sum(map(len, request.headers.values()))
    if progress.sent is False and not (proof and request.body and head_size <= _MAX_PROVABLE_HEAD):
        progress.sent = None


def build_transport_error(reason: str, progress: Progress) -> TransportError:
    return TransportError(reason, maybe_sent=progress.sent is not False)


def build_closed_error(transport: object) -> InvalidRequest:
    name = type(transport).__name__
    return InvalidRequest(f"the {name} is closed; make a new {name}")


def merge_headers(request: Request, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return the request's header fields, plus missing defaults. Set `accept-encoding` and, if needed, `content-length`."""
    if not METHOD.fullmatch(request.method):
        raise InvalidRequest("method: expected an upper-case HTTP method; pass a method such as 'GET'")
    merged = {**defaults, **_validate_headers(tuple(request.headers.items())), "accept-encoding": ACCEPT_ENCODING}
    if request.body or request.method in METHODS_WITH_BODY:
        merged["content-length"] = str(len(request.body))
    return merged


def check_headers(items: Iterable[tuple[object, object]]) -> dict[str, str]:
    """Return header fields by lower-case name, after checking that all HTTP libraries send them unchanged."""
    checked: dict[str, str] = {}
    for name, value in items:
        if not isinstance(name, str) or not HEADER_NAME.fullmatch(name):
            raise InvalidRequest("headers: expected field names of letters, digits and hyphens; remove spaces and line breaks")
        if not isinstance(value, str) or not HEADER_VALUE.fullmatch(value):
            kind = "None" if value is None else type(value).__name__
            fault = "other characters; encode or remove them" if isinstance(value, str) else f"{kind}; pass a string"
            expected = "expected printable ASCII without spaces at the ends"
            raise InvalidRequest(f"headers[{OWNER_KEY.sub('key_...', name)!r}]: {expected}, got {fault}")
        checked[name.lower()] = value
    return checked


@lru_cache(32)
def _validate_headers(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    # The results are cached, because most requests have the same header fields.
    checked = check_headers(items)
    if not _FRAMING_HEADERS.isdisjoint(checked):
        raise InvalidRequest(
            f"headers: got {', '.join(sorted(_FRAMING_HEADERS & checked.keys()))}, "
            "but the transport determines how the body is sent; remove these headers"
        )
    return checked


def require_origin_form(target: str) -> str:
    """Validate a request target, and return it. Every HTTP library sends a valid target unchanged."""
    if not target.startswith("/") or target.startswith("//"):
        raise InvalidRequest(
            "target: expected a path that starts with exactly one '/'; pass a target such as '/campaigns?page=1'"
        )
    if not _TARGET.fullmatch(target):
        got = "other characters, or a '?' without a query; use urllib.parse.quote, or remove the '?'"
        raise InvalidRequest(f"target: expected a percent-encoded path and query, got {got}")
    if has_dot_segments(target):
        raise InvalidRequest("target: expected no '.' or '..' segments, which HTTP libraries treat differently; remove them")
    return target


def is_recorded_by_vcrpy() -> bool:
    """Return whether a cassette of vcrpy is active, which replaces the classes of HTTP libraries while it is."""
    connection = getattr(sys.modules.get("http.client"), "HTTPConnection", None) if "vcr" in sys.modules else None
    return str(getattr(connection, "__module__", "")).startswith("vcr.")


def refuse_credentials(answer: str) -> Response | None:
    """Return a 407 if an answer to CONNECT, a status and a reason, refuses the user and password of the proxy."""
    # tinyproxy answers 401 to wrong ones. The service has not seen the request, so this 401 is not about the owner key.
    if answer[:4] not in {"401 ", "407 "}:
        return None
    return Response(PROXY_AUTHENTICATION_REQUIRED, body=b"" if answer.startswith("407") else answer.encode())


def describe_cause(error: BaseException) -> str:
    """Return the class and message of an error on one short line. If the message is empty, the cause's message is used."""
    cause: BaseException | None = error
    text = ""
    while cause is not None and not text:
        text = to_one_line(str(cause))
        cause = cause.__cause__ or cause.__context__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def to_one_line(text: str) -> str:
    """Return at most 200 visible characters of a string, with every run of white space replaced by one space."""
    return " ".join(strip_invisible(text).split())[:_MAX_MESSAGE_LENGTH]
