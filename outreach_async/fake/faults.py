"""Functions that create faults, and the class `Faults`, which assigns faults to requests.

Pass a fault to a fake's `faults`, either in order (`script`) or by a rule (`add`):

```python
import anyio
from outreach_async import NewContact, OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import commit_then, reset

fake = FakeService()
space = fake.add_workspace()
fake.faults.script("create_contact", commit_then(reset()))


async def main() -> None:
    async with OutreachClient(transport=FakeTransport(fake), workspace=space, owner_key=fake.add_owner_key(space)) as client:
        made = await client.contacts.create(NewContact("ann@company.example"))
        print(made.status, made.certain, made.attempts)  # -> skipped False 2


anyio.run(main)
```

A fault of the left column fires before execution: the service does not execute the request. `commit_then(fault)` makes any fault
except `refuse()` fire after execution: for example, a contact is stored but the response is lost.

    fires before execution                fires after execution
    status, html_502, empty               ok, drift, latency, slow_drip
    refuse, reset, close, hang            truncate, reset_mid_body, bad_chunk, no_final_chunk
    garbage, long_header                  wrong_encoding, wrong_length

A rule with a probability `p` fires at random. The draw depends only on the fake's seed, the rule and the position of the request
among all requests: the same requests in the same order get the same faults again.
"""

from __future__ import annotations

import http.client
from typing import Any

import attrs

from outreach_async.fake._arguments import require_at_least
from outreach_async.fake._error_responses import Refusal, render_nested
from outreach_async.fake._fault_plan import (
    OPERATIONS,
    DriftFault,
    Exchange,
    Fault,
    Faults,
    ResponseFault,
    WireFault,
    WireFaultKind,
    ok,
    require_fault,
)
from outreach_async.transport._wire import Response

__all__ = [
    "OPERATIONS", "Exchange", "Fault", "Faults", "bad_chunk", "close", "commit_then", "drift", "empty", "error_response",
    "garbage", "hang", "html_502", "latency", "long_header", "no_final_chunk", "ok", "refuse", "reset", "reset_mid_body",
    "slow_drip", "status", "truncate", "wrong_encoding", "wrong_length",
]  # fmt: skip

_HTML_502 = b"<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n<body><h1>502 Bad Gateway</h1></body>\r\n</html>\r\n"
_BODILESS = (204, 304)


def status(
    code: int, *, retry_after: float | str | None = None, body: str | bytes | None = None, headers: dict[str, str] | None = None
) -> Fault:
    """Respond with an HTTP status.

    Args:
        code: Status from 200 to 599.
        retry_after: Value of the `Retry-After` header: seconds, or an HTTP date as a string.
        body: The body; by default JSON in the format of the service's own errors, and empty for 204 and 304.
        headers: Additional header fields, by lower-case name.

    Raises:
        ValueError: The code is out of range, or a body is given for 204 or 304.

    Example:
        ```python
        fake.faults.script("create_contact", status(429, retry_after=2), status(403, body="no"))
        ```
    """
    if not 200 <= code <= 599:  # noqa: PLR2004 - the range of final statuses
        raise ValueError(f"code: expected a final status from 200 to 599, got {code}; pass a status such as 503")
    if body and code in _BODILESS:
        raise ValueError(f"body: expected none, because responses with status {code} have no body; omit body")
    plain = error_response(code)
    fields = dict(plain.headers)
    if retry_after is not None:
        # RFC 9110 allows only whole seconds: 2.0 is written as 2.
        whole = isinstance(retry_after, float) and retry_after.is_integer()
        fields["retry-after"] = f"{retry_after:.0f}" if whole else str(retry_after)
    fields |= headers or {}
    content = plain.body if body is None else body.encode() if isinstance(body, str) else body
    return ResponseFault(f"status({code})", commits=False, response=Response(code, fields, content))


def html_502() -> Fault:
    """Respond with 502 and an HTML page, as a proxy in front of the service does.

    Example:
        ```python
        fake.faults.script("list_mailboxes", html_502(), html_502())
        ```
    """
    return ResponseFault("html_502()", commits=False, response=Response(502, {"content-type": "text/html"}, _HTML_502))


def empty() -> Fault:
    """Respond with 200 and an empty body.

    Example:
        ```python
        fake.faults.script("list_steps", empty())
        ```
    """
    return ResponseFault("empty()", commits=False, response=Response(200, {"content-type": "application/json"}))


def drift(path: str, change: Any) -> Fault:
    """Change a value in the service's response, for example to an unknown status, to null or to a value of another type.

    Args:
        path: Keys from the root of the response to the value, joined by dots. The keys after a list apply to every item of the
            list: `data.status` is the status of every item.
        change: The new value, or a function from the old value (`None` if the key is missing) to the new value.

    Example:
        ```python
        fake.faults.script("list_campaigns", drift("data.status", "archived"))
        print((await client.campaigns.list()).data[0].status)  # -> archived
        ```
    """
    return DriftFault(f"drift({path!r})", commits=True, path=tuple(path.split(".")), change=change)


def latency(seconds: float) -> Fault:
    """Delay the response.

    Raises:
        ValueError: `seconds` is negative or not finite.

    Example:
        ```python
        fake.faults.add(latency(0.2), operation="create_contact", p=0.05)
        ```
    """
    return _wire_fault("latency", f"{seconds:g}", commits=True, seconds=require_at_least("seconds", 0, seconds))


def hang() -> Fault:
    """Never respond, and keep the connection open.

    Example:
        ```python
        fake.faults.script("create_contact", hang())  # the client's timeout ends the attempt
        ```
    """
    return _wire_fault("hang")


def refuse() -> Fault:
    """Refuse the connection. Over a socket, reset it instead: the server has already read the request, which is possibly sent.

    Example:
        ```python
        fake.faults.script("create_contact", refuse())
        ```
    """
    return _wire_fault("refuse")


def reset() -> Fault:
    """Reset the connection (RST) instead of responding.

    Example:
        ```python
        fake.faults.script("create_contact", reset(), commit_then(reset()))
        ```
    """
    return _wire_fault("reset")


def close() -> Fault:
    """Close the connection (FIN) instead of responding.

    Example:
        ```python
        fake.faults.script("list_fields", close(), commit_then(close()))
        ```
    """
    return _wire_fault("close")


def truncate(after_bytes: int) -> Fault:
    """Close the connection (FIN) after some bytes of the response body.

    Raises:
        ValueError: The number of bytes is negative.

    Example:
        ```python
        fake.faults.script("list_mailboxes", truncate(100))
        ```
    """
    return _wire_fault("truncate", str(after_bytes), commits=True, size=require_at_least("after_bytes", 0, after_bytes))


def reset_mid_body(after: int) -> Fault:
    """Reset the connection (RST) after some bytes of the response body.

    Raises:
        ValueError: The number of bytes is negative.

    Example:
        ```python
        fake.faults.script("list_mailboxes", reset_mid_body(100))
        ```
    """
    return _wire_fault("reset_mid_body", str(after), commits=True, size=require_at_least("after", 0, after))


def bad_chunk() -> Fault:
    """Send the response in chunks. The second chunk has no size.

    Example:
        ```python
        fake.faults.script("list_campaigns", bad_chunk())
        ```
    """
    return _wire_fault("bad_chunk", commits=True)


def no_final_chunk() -> Fault:
    """Send the response in chunks, and close the connection before the last, empty chunk.

    Example:
        ```python
        fake.faults.script("list_mailboxes", no_final_chunk())
        ```
    """
    return _wire_fault("no_final_chunk", commits=True)


def garbage() -> Fault:
    """Send random bytes instead of a status line.

    Example:
        ```python
        fake.faults.script("list_fields", garbage())
        ```
    """
    return _wire_fault("garbage")


def long_header() -> Fault:
    """Send a header field of 256 KiB, which is longer than any client accepts.

    Example:
        ```python
        fake.faults.script("list_fields", long_header())
        ```
    """
    return _wire_fault("long_header")


def wrong_encoding() -> Fault:
    """Send `content-encoding: gzip` with an uncompressed body.

    Example:
        ```python
        fake.faults.script("list_campaigns", wrong_encoding())
        ```
    """
    return _wire_fault("wrong_encoding", commits=True)


def wrong_length(short_by: int = 1) -> Fault:
    """Send a content-length that is too small, which cuts off the end of the body.

    Raises:
        ValueError: `short_by` is less than 1 byte.

    Example:
        ```python
        fake.faults.script("list_campaigns", wrong_length(short_by=3))
        ```
    """
    return _wire_fault("wrong_length", str(short_by), commits=True, size=require_at_least("short_by", 1, short_by))


def slow_drip(bytes: int = 1, every: float = 0.02) -> Fault:  # noqa: A002 - reads best in a test
    """Send the response body in small pieces.

    Args:
        bytes: Number of bytes per piece.
        every: Delay before each piece, in seconds.

    Raises:
        ValueError: `bytes` is less than 1, or `every` is negative or not finite.

    Example:
        ```python
        fake.faults.script("list_steps", slow_drip(bytes=64, every=0.01))
        ```
    """
    size, seconds = require_at_least("bytes", 1, bytes), require_at_least("every", 0, every)
    return _wire_fault("slow_drip", f"{bytes}, {every:g}", commits=True, size=size, seconds=seconds)


def commit_then(fault: Fault) -> Fault:
    """Make a fault fire after the service has executed the request.

    Raises:
        ValueError: The fault is `refuse()`. A refused connection delivers no request that the service could execute.

    Example:
        ```python
        fake.faults.script("create_contact", commit_then(reset()))
        made = await client.contacts.create(NewContact("ann@company.example"))
        print(made.status, made.certain)  # -> skipped False
        ```
    """
    require_fault(fault)
    if isinstance(fault, WireFault) and fault.kind == "refuse":
        raise ValueError("commit_then(refuse()): a refused connection delivers no request to execute; use commit_then(reset())")
    return attrs.evolve(fault, label=f"commit_then({fault.label})", commits=True)


def error_response(code: int) -> Response:
    """Return an error response in the service's default format.

    Example:
        ```python
        print(error_response(503).status, error_response(503).body[:33])  # -> 503 b'{"status":"error","error":{"code"'
        ```
    """
    if code in _BODILESS:
        return Response(code)
    message = http.client.responses.get(code, "Error")
    return Response(*render_nested(Refusal(code, message.lower().replace(" ", "_"), message)))


def _wire_fault(
    kind: WireFaultKind, arguments: str = "", *, commits: bool = False, size: int = 0, seconds: float = 0.0
) -> WireFault:
    return WireFault(f"{kind}({arguments})", commits, kind, size, seconds)
