"""What a transport may say of a request's fate: `Progress` moves only on proof, and an error repeats what it says.

The proof is the body's: it is handed over as an object that notes when its bytes are first asked for. If they never were, the
request has not left. That needs a body, and a head that one write takes whole: between the parts of a longer one a request can
be cut off with bytes on the wire and the body unasked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.transport.answers import ACCEPTED
from outreach_async.transport.wire import Progress, Request

_PROVABLE_HEAD: Final = 8 * 1024
_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_METHOD: Final = re.compile(r"[A-Z]+(?:-[A-Z]+)*")
_TARGET: Final = re.compile(r"/(?!/)[A-Za-z0-9\-._~!$&'()*+,;=:@/%\[\]]*(?:\?[A-Za-z0-9\-._~!$&'()*+,;=:@/?%\[\]]+)?")
_DOTS: Final = re.compile(r"/(?:\.|%2e){1,2}(?:[/?]|\Z)", re.IGNORECASE)
_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_TEXT_LIMIT: Final = 200
_KEPT: Final = 32
_FRAMING: Final = frozenset({"content-length", "expect", "transfer-encoding"})
_WITH_BODY: Final = frozenset({"PATCH", "POST", "PUT"})


def hold(progress: Progress) -> None:
    """Note that the request still waits in this process."""
    if progress.sent is not True:  # a wrapper may have sent it once before
        progress.sent = False


def release(progress: Progress, request: Request, *, proof: bool) -> None:
    """Note that the request goes to the library now; with `proof`, its body will tell when it leaves."""
    if progress.sent is False and not (proof and request.body and _head_size(request) <= _PROVABLE_HEAD):
        progress.sent = None


def lost(reason: str, progress: Progress) -> TransportError:
    """Make the error for an exchange without an answer."""
    return TransportError(reason, maybe_sent=progress.sent is not False)


def closed(transport: object) -> InvalidRequest:
    """Make the error for the use of a closed transport."""
    return InvalidRequest(f"the {type(transport).__name__} is closed; make a new one")


def fields(request: Request, defaults: Mapping[str, str]) -> dict[str, str]:
    """Join a transport's own header fields with the request's, which win, and with those that say how bodies are sent.

    Raises:
        InvalidRequest: A method or field that the libraries would send in different ways, or refuse in an error that shows it.
    """
    if not _METHOD.fullmatch(request.method):
        raise InvalidRequest("method: expected an HTTP method in capitals, such as 'GET'; pass one")
    joined = {**defaults, **_checked(tuple(request.headers.items())), "accept-encoding": ACCEPTED}
    if request.body or request.method in _WITH_BODY:
        joined["content-length"] = str(len(request.body))
    return joined


@lru_cache(_KEPT)
def _checked(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    """Return header fields by lower-case name; a client sends the same ones with every request, and checking them is dear."""
    checked = {}
    for name, value in items:
        if not _NAME.fullmatch(name):
            raise InvalidRequest("headers: expected field names of letters, digits and hyphens; remove blanks and line breaks")
        if not _VALUE.fullmatch(value):
            raise InvalidRequest(f"headers[{name!r}]: expected ASCII text without outer blanks and control characters; encode it")
        checked[name.lower()] = value
    if not _FRAMING.isdisjoint(checked):
        raise InvalidRequest(f"headers: leave out {', '.join(sorted(_FRAMING))}; how bodies are sent is the transport's to say")
    return checked


def origin_form(target: str) -> str:
    """Return a request target, which is put behind the origin: anything but a path would make it another one.

    Raises:
        InvalidRequest: It is none, or one that a library would change.
    """
    if not _TARGET.fullmatch(target) or _DOTS.search(target.partition("?")[0]):
        raise InvalidRequest(
            "target: expected a percent-encoded path and query starting with one '/', "
            "without '.' and '..'; encode with urllib.parse.quote"
        )
    return target


def said(error: BaseException) -> str:
    """Return a library's error as one short line; where it has no text of its own, with that of what lies beneath."""
    beneath: BaseException | None = error
    text = ""
    while beneath is not None and not text:
        text = one_line(str(beneath))
        beneath = beneath.__cause__ or beneath.__context__
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def one_line(text: str) -> str:
    """Return the beginning of a text as one line."""
    return " ".join(text.split())[:_TEXT_LIMIT]


def _head_size(request: Request) -> int:
    return len(request.target) + sum(map(len, request.headers)) + sum(map(len, request.headers.values()))
