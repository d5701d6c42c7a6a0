"""What goes wrong on purpose: faults as values, and when each of them strikes.

A fault is made by a function of this module and handed to a fake's `faults`, in order (`script`) or by a rule (`add`):

```python
import anyio
from outreach_async import NewContact, OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import commit_then, latency, ok, reset, status

fake = FakeService()
space = fake.add_workspace()
fake.faults.script("create_contact", status(503), ok, commit_then(reset()))
fake.faults.add(latency(0.01), operation="list_fields", p=0.1)


async def main() -> None:
    async with OutreachClient(transport=FakeTransport(fake), workspace=space, owner_key=fake.add_owner_key(space)) as client:
        for name in ("ann", "bo"):
            made = await client.contacts.create(NewContact(f"{name}@company.example"))
            print(made.status, made.certain, made.attempts)
    # -> added True 2
    # -> skipped False 2
    fake.faults.assert_all_fired()


anyio.run(main)
```

A fault strikes *before* the service sees the request, unless the service's own answer is what it damages or delays; the table
says which. `commit_then(fault)` lets any of them strike after the service has done what was asked: stored, and the answer lost.

    strikes before                        the service acts, then
    status, html_502, empty               ok, drift, latency, slow_drip
    refuse, reset, close, hang            truncate, reset_mid_body, bad_chunk, no_final_chunk
    garbage, long_header                  wrong_encoding, wrong_length

Chance is drawn from the seed and the request's number, so a rerun of the same requests meets the same faults.
"""

from __future__ import annotations

import http.client
from typing import Any

import attrs

from outreach_async.fake.exchange import AnswerFault, DriftFault, Exchange, Fault, Kind, WireFault, ok
from outreach_async.fake.given import at_least
from outreach_async.fake.refusals import Refusal, nested
from outreach_async.fake.waiting import OPERATIONS, Faults, require_fault
from outreach_async.transport.wire import Response

__all__ = [
    "OPERATIONS",
    "Exchange",
    "Fault",
    "Faults",
    "bad_chunk",
    "close",
    "commit_then",
    "drift",
    "empty",
    "error_response",
    "garbage",
    "hang",
    "html_502",
    "latency",
    "long_header",
    "no_final_chunk",
    "ok",
    "refuse",
    "reset",
    "reset_mid_body",
    "slow_drip",
    "status",
    "truncate",
    "wrong_encoding",
    "wrong_length",
]

_HTML_502 = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>\r\n</html>\r\n"
_BODILESS = (204, 304)


def status(
    code: int,
    *,
    retry_after: float | str | None = None,
    body: str | bytes | None = None,
    headers: dict[str, str] | None = None,
) -> Fault:
    """Answer with a status in the service's place.

    Args:
        code: From 200 to 599.
        retry_after: Seconds, or the text of an HTTP date, for the `Retry-After` header.
        body: The body; by default JSON in the shape of the service's own errors, nothing for 204 and 304.
        headers: More header fields, by lower-case name.

    Raises:
        ValueError: The code is none, or its answers have no body and one is given.

    Example:
        ```python
        fake.faults.script("create_contact", status(429, retry_after=2), status(403, body="no"))
        ```
    """
    if not 200 <= code <= 599:  # noqa: PLR2004 - the range of final statuses
        raise ValueError(f"status({code}): a final status is from 200 to 599")
    if body and code in _BODILESS:
        raise ValueError(f"status({code}): answers with this status have no body: leave it out")
    plain = error_response(code)
    fields = {**plain.headers, **({} if retry_after is None else {"retry-after": _plain(retry_after)}), **(headers or {})}
    content = plain.body if body is None else body.encode() if isinstance(body, str) else body
    return AnswerFault(f"status({code})", commits=False, response=Response(code, fields, content))


def html_502() -> Fault:
    """Answer 502 with an HTML page, as a proxy in front of the service does.

    Example:
        ```python
        fake.faults.script("list_mailboxes", html_502(), html_502())
        ```
    """
    page = Response(502, {"content-type": "text/html"}, _HTML_502)
    return AnswerFault("html_502()", commits=False, response=page)


def empty() -> Fault:
    """Answer 200 with an empty body.

    Example:
        ```python
        fake.faults.script("list_steps", empty())
        ```
    """
    return AnswerFault("empty()", commits=False, response=Response(200, {"content-type": "application/json"}))


def drift(path: str, change: Any) -> Fault:
    """Change the service's answer, after it has acted: a new status, an extra field, a null, a number as text.

    Args:
        path: Member names from the answer's root, joined by dots; lists are walked through, so `data.status` is the status of
            every item.
        change: The new value, or a function from the old value (`None` if there is none) to the new one.

    Example:
        ```python
        fake.faults.script("list_campaigns", drift("data.status", "archived"))
        print((await client.campaigns.list()).data[0].status)  # -> archived
        ```
    """
    return DriftFault(f"drift({path!r})", commits=True, path=tuple(path.split(".")), change=change)


def latency(seconds: float) -> Fault:
    """Hold the answer back for some seconds. The service acts at once.

    Raises:
        ValueError: The seconds are negative or not finite.

    Example:
        ```python
        fake.faults.add(latency(0.2), operation="create_contact", p=0.05)
        ```
    """
    return _wire("latency", f"{seconds:g}", commits=True, seconds=at_least("seconds", 0, seconds))


def hang() -> Fault:
    """Never answer, and never let the connection end. The service does not see the request.

    Example:
        ```python
        fake.faults.script("create_contact", hang())  # the client's timeout ends it
        ```
    """
    return _wire("hang")


def refuse() -> Fault:
    """Refuse the connection: no byte of the request leaves the client.

    A server cannot refuse once it has read what is asked, so over a socket the connection is reset instead, unanswered and with
    the service none the wiser: that client must count the request as maybe sent.

    Example:
        ```python
        fake.faults.script("create_contact", refuse())
        made = await client.contacts.create(NewContact("ann@company.example"))
        print(made.attempts, made.certain)  # -> 2 True
        ```
    """
    return _wire("refuse")


def reset() -> Fault:
    """Reset the connection (RST) in the place of an answer. The service does not see the request.

    Example:
        ```python
        fake.faults.script("create_contact", reset(), commit_then(reset()))
        ```
    """
    return _wire("reset")


def close() -> Fault:
    """Close the connection (FIN) in the place of an answer. The service does not see the request.

    Example:
        ```python
        fake.faults.script("list_fields", close(), commit_then(close()))
        ```
    """
    return _wire("close")


def truncate(after_bytes: int) -> Fault:
    """Close the connection (FIN) after some bytes of the answer's body, short of its content-length. The service acts.

    Raises:
        ValueError: The count is negative.

    Example:
        ```python
        fake.faults.script("list_mailboxes", truncate(100))
        ```
    """
    return _wire("truncate", str(after_bytes), commits=True, size=at_least("after_bytes", 0, after_bytes))


def reset_mid_body(after: int) -> Fault:
    """Reset the connection (RST) after some bytes of the answer's body. The service acts.

    Raises:
        ValueError: The count is negative.

    Example:
        ```python
        fake.faults.script("list_mailboxes", reset_mid_body(100))
        ```
    """
    return _wire("reset_mid_body", str(after), commits=True, size=at_least("after", 0, after))


def bad_chunk() -> Fault:
    """Send the answer in chunks, the second of which has no size. The service acts.

    Example:
        ```python
        fake.faults.script("list_campaigns", bad_chunk())
        ```
    """
    return _wire("bad_chunk", commits=True)


def no_final_chunk() -> Fault:
    """Send the answer in chunks and close before the last, empty one. The service acts.

    Example:
        ```python
        fake.faults.script("list_mailboxes", no_final_chunk())
        ```
    """
    return _wire("no_final_chunk", commits=True)


def garbage() -> Fault:
    """Send random bytes for a status line. The service does not see the request.

    Example:
        ```python
        fake.faults.script("list_fields", garbage())
        ```
    """
    return _wire("garbage")


def long_header() -> Fault:
    """Send a header field longer than any client takes (256 KiB). The service does not see the request.

    Example:
        ```python
        fake.faults.script("list_fields", long_header())
        ```
    """
    return _wire("long_header")


def wrong_encoding() -> Fault:
    """Say `content-encoding: gzip` of a plain body. The service acts.

    Example:
        ```python
        fake.faults.script("list_campaigns", wrong_encoding())
        ```
    """
    return _wire("wrong_encoding", commits=True)


def wrong_length(short_by: int = 1) -> Fault:
    """Say a content-length too small, so that the body's end is lost. The service acts.

    Raises:
        ValueError: It is short by less than 1 byte.

    Example:
        ```python
        fake.faults.script("list_campaigns", wrong_length(short_by=3))
        ```
    """
    return _wire("wrong_length", str(short_by), commits=True, size=at_least("short_by", 1, short_by))


def slow_drip(bytes: int = 1, every: float = 0.02) -> Fault:  # noqa: A002 - named as it reads in a test
    """Send the answer's body piece by piece. The service acts at once.

    Args:
        bytes: Bytes a piece.
        every: Seconds before each piece.

    Raises:
        ValueError: A piece has no byte, or the seconds are negative or not finite.

    Example:
        ```python
        fake.faults.script("list_steps", slow_drip(bytes=64, every=0.01))
        ```
    """
    size, seconds = at_least("bytes", 1, bytes), at_least("every", 0, every)
    return _wire("slow_drip", f"{bytes}, {every:g}", commits=True, size=size, seconds=seconds)


def commit_then(fault: Fault) -> Fault:
    """Let the service act first, and the fault strike then: stored, and the answer lost.

    Raises:
        ValueError: The fault is `refuse()`: what never arrived cannot have been stored.

    Example:
        ```python
        fake.faults.script("create_contact", commit_then(reset()))
        made = await client.contacts.create(NewContact("ann@company.example"))
        print(made.status, made.certain, sorted(made.possible))
        # -> skipped False [<Outcome.ADDED: 'added'>, <Outcome.SKIPPED: 'skipped'>]
        ```
    """
    require_fault(fault)
    if isinstance(fault, WireFault) and fault.kind == "refuse":
        raise ValueError("commit_then(refuse()): a request that never arrived cannot have been stored; take reset()")
    return attrs.evolve(fault, label=f"commit_then({fault.label})", commits=True)


def error_response(code: int) -> Response:
    """Make an error answer of the service's usual shape, as whatever stands before the service gives it.

    Example:
        ```python
        print(error_response(503).status, error_response(503).body)
        # -> 503 b'{"status":"error","error":{"code":"service_unavailable","message":"Service Unavailable","field":null}}'
        ```
    """
    if code in _BODILESS:
        return Response(code)
    message = http.client.responses.get(code, "Error")
    code_name = message.lower().replace(" ", "_")
    return Response(*nested(Refusal(code, code_name, message)))


def _wire(kind: Kind, arguments: str = "", *, commits: bool = False, size: int = 0, seconds: float = 0.0) -> WireFault:
    return WireFault(f"{kind}({arguments})", commits, kind, size, seconds)


def _plain(seconds: float | str) -> str:
    # Whole seconds are written without a fraction: RFC 9110 knows no other.
    return str(int(seconds)) if isinstance(seconds, float) and seconds.is_integer() else str(seconds)
