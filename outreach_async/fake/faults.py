"""Create faults, and assign them to requests.

Each function creates a fault. Pass it to a fake's `faults`, of the class
`Faults`, either in order (`script`) or by a rule (`add`):

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

A fault of the left column fires before execution: the service does not
execute the request. `commit_then(fault)` makes any fault except `refuse()`
fire after execution: for example, a contact is stored but the response is
lost.

    fires before execution                fires after execution
    status                                ok, drift, latency, slow_drip
    refuse, reset, close, hang            truncate, reset_mid_body,
                                          wrong_length
    malformed: garbage, long_header       malformed: bad_chunk,
                                          no_final_chunk, wrong_encoding

A rule with a probability `p` fires at random. The draw depends only on the
fake's seed, the rule and the position of the request among all requests:
the same requests in the same order get the same faults again.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import Any, Final, Literal, Protocol, TypeVar, get_args, runtime_checkable

import attrs

from outreach_async._types import require_types
from outreach_async.errors import InvalidRequest
from outreach_async.fake._arguments import draw, require_at_least, shown
from outreach_async.fake._messages import BODILESS, ROUTES, error_response
from outreach_async.transport._wire import Request, Response

__all__ = [
    "OPERATIONS", "Exchange", "Fault", "Faults", "close", "commit_then", "drift", "hang", "latency", "malformed", "ok", "refuse",
    "reset", "reset_mid_body", "slow_drip", "status", "truncate", "wrong_length",
]  # fmt: skip

MalformedKind = Literal["garbage", "long_header", "bad_chunk", "no_final_chunk", "wrong_encoding"]
WireFaultKind = Literal[
    MalformedKind, "latency", "hang", "refuse", "reset", "close", "truncate", "reset_mid_body", "wrong_length", "slow_drip"
]


@attrs.frozen
class Fault:
    """A fault to inject, created by a function of this module.

    The instance `ok` injects nothing.

    Attributes:
        label: The fault as it is written in code, such as `status(503)`.
        commits: Whether the service first executes the request.

    Example:
        ```python
        print(reset().label, reset().commits, commit_then(reset()).commits)  # -> reset() False True
        ```
    """

    label: str
    commits: bool


ok: Final = Fault("ok", commits=True)
"""No fault. In a script, the request at its position gets no fault, even if a rule matches.

Example:
    ```python
    fake.faults.script("create_contact", ok, status(503))  # the second creation fails
    ```
"""


@attrs.frozen
class ResponseFault(Fault):
    response: Response


@attrs.frozen
class DriftFault(Fault):
    path: tuple[str, ...]
    change: Any


@attrs.frozen
class WireFault(Fault):
    kind: WireFaultKind
    size: int = 0
    seconds: float = 0.0


@attrs.frozen
class Exchange:
    """The result of one request.

    Attributes:
        response: The response; `None` if a wire fault prevented the
            service from executing the request.
        fault: The wire fault to reproduce; `None` if there is none.
        struck: The label of the fault that fired; `ok` if no fault fired.

    Example:
        ```python
        exchange = fake.exchange(Request("GET", "/workspaces/space_1/all-fields"))
        print(exchange.response.status, exchange.fault, exchange.struck)  # -> 200 None ok
        ```
    """

    response: Response | None
    fault: WireFault | None
    struck: str = attrs.field(default="ok", eq=False)


class Service(Protocol):
    """The interface of an object that executes requests for the fake's transport and server."""

    def exchange(self, request: Request, /) -> Exchange: ...


@runtime_checkable
class SlicedService(Protocol):
    """A service that can execute a request in slices: it yields between them, so that a server can execute other requests."""

    def exchange_in_slices(self, request: Request, /) -> Generator[None, None, Exchange]: ...


def exchange_in_slices(service: Service | SlicedService, request: Request) -> Generator[None, None, Exchange]:
    """Execute a request in the slices of the service, or in one."""
    if isinstance(service, SlicedService):
        return (yield from service.exchange_in_slices(request))
    return service.exchange(request)


_Result = TypeVar("_Result")


def run_to_end(slices: Generator[None, None, _Result]) -> _Result:
    """Run all slices at once, and return the result."""
    while True:
        try:
            next(slices)
        except StopIteration as end:
            result: _Result = end.value
            return result


def status(
    code: int, *, retry_after: float | str | None = None, body: str | bytes | None = None, headers: dict[str, str] | None = None
) -> Fault:
    """Respond with an HTTP status.

    Args:
        code: Status from 200 to 599.
        retry_after: Value of the `Retry-After` header: seconds, or an HTTP
            date as a string.
        body: The body; by default JSON in the format of the service's own
            errors, and empty for 204 and 304.
        headers: Additional header fields, by lower-case name.

    Raises:
        InvalidRequest: The code is out of range, or a body is given for
            204 or 304.

    Example:
        ```python
        page_of_a_proxy = status(502, body="<h1>Bad Gateway</h1>", headers={"content-type": "text/html"})
        fake.faults.script("create_contact", status(429, retry_after=2), page_of_a_proxy, status(200, body=""))
        ```
    """
    require_types(status, locals())
    if not 200 <= code <= 599:  # noqa: PLR2004 - the range of final statuses
        raise InvalidRequest(f"code: expected a final status from 200 to 599, got {shown(code)}; pass a status such as 503")
    if body and code in BODILESS:
        raise InvalidRequest(f"body: expected none, because responses with status {code} have no body; omit body")
    plain = error_response(code)
    fields = dict(plain.headers)
    if retry_after is not None:
        # RFC 9110 allows only whole seconds: 2.0 is written as 2.
        whole = isinstance(retry_after, float) and retry_after.is_integer()
        fields["retry-after"] = f"{retry_after:.0f}" if whole else str(retry_after)
    fields |= headers or {}
    content = plain.body if body is None else body.encode() if isinstance(body, str) else body
    return ResponseFault(f"status({code})", commits=False, response=Response(code, fields, content))


def drift(path: str, change: Any) -> Fault:
    """Change a value in the service's response.

    For example, it becomes an unknown status, null or of another type.

    Args:
        path: Keys from the root of the response to the value, joined by
            dots. The keys after a list apply to every item of the list:
            `data.status` is the status of every item.
        change: The new value, or a function from the old value (`None` if
            the key is missing) to the new value.

    Raises:
        InvalidRequest: The path is not a string.

    Example:
        ```python
        fake.faults.script("list_campaigns", drift("data.status", "archived"))
        print((await client.campaigns.list()).data[0].status)  # -> archived
        ```
    """
    require_types(drift, locals())
    return DriftFault(f"drift({shown(path)})", commits=True, path=tuple(path.split(".")), change=change)


def latency(seconds: float) -> Fault:
    """Delay the response.

    Raises:
        InvalidRequest: `seconds` is negative or not finite.

    Example:
        ```python
        fake.faults.add(latency(0.2), operation="create_contact", p=0.05)
        ```
    """
    require_at_least("seconds", 0, seconds)
    return _wire_fault("latency", f"{seconds:g}", commits=True, seconds=seconds)


def hang() -> Fault:
    """Never respond, and keep the connection open.

    Example:
        ```python
        fake.faults.script("create_contact", hang())  # the timeout ends the attempt
        ```
    """
    return _wire_fault("hang", seconds=math.inf)


def refuse() -> Fault:
    """Refuse the connection.

    Over a socket, reset it instead: the server has already read the
    request, which is possibly sent.

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
        InvalidRequest: The number of bytes is negative.

    Example:
        ```python
        fake.faults.script("list_mailboxes", truncate(100))
        ```
    """
    return _wire_fault("truncate", str(after_bytes), commits=True, size=require_at_least("after_bytes", 0, after_bytes))


def reset_mid_body(after: int) -> Fault:
    """Reset the connection (RST) after some bytes of the response body.

    Raises:
        InvalidRequest: The number of bytes is negative.

    Example:
        ```python
        fake.faults.script("list_mailboxes", reset_mid_body(100))
        ```
    """
    return _wire_fault("reset_mid_body", str(after), commits=True, size=require_at_least("after", 0, after))


def malformed(kind: MalformedKind) -> Fault:
    """Send a response that is not valid HTTP.

    Args:
        kind: `garbage` sends random bytes instead of a status line, and
            `long_header` a header field of 256 KiB, which is longer than
            any client accepts. `bad_chunk` sends chunks, the second
            without a size; `no_final_chunk` closes the connection before
            the last, empty chunk. `wrong_encoding` sends
            `content-encoding: gzip` with an uncompressed body.

    Raises:
        InvalidRequest: The kind does not exist.

    Example:
        ```python
        fake.faults.script("list_fields", malformed("garbage"), malformed("bad_chunk"))
        ```
    """
    if kind not in get_args(MalformedKind):
        raise InvalidRequest(f"kind: expected one of {', '.join(get_args(MalformedKind))}, got {shown(kind)}; pass one of them")
    return WireFault(f"malformed({kind!r})", commits=kind not in {"garbage", "long_header"}, kind=kind)


def wrong_length(short_by: int = 1) -> Fault:
    """Send a content-length that is too small, which cuts off the body.

    Raises:
        InvalidRequest: `short_by` is less than 1 byte.

    Example:
        ```python
        fake.faults.script("list_campaigns", wrong_length(short_by=3))
        ```
    """
    return _wire_fault("wrong_length", str(short_by), commits=True, size=require_at_least("short_by", 1, short_by))


def slow_drip(bytes: int = 1, every: float = 0.02) -> Fault:  # noqa: A002 - reads best in a test
    """Send the body in pieces of `bytes` bytes, each after `every` seconds.

    Raises:
        InvalidRequest: `bytes` is less than 1, or `every` is negative or
            not finite.

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
        ValueError: The fault is `refuse()`. A refused connection delivers
            no request that the service could execute.

    Example:
        ```python
        # the contact is stored, but the response is lost
        fake.faults.script("create_contact", commit_then(reset()))
        ```
    """
    require_fault(fault)
    if isinstance(fault, WireFault) and fault.kind == "refuse":
        raise ValueError("fault: expected one that can fire after execution, got refuse(); use commit_then(reset())")
    return attrs.evolve(fault, label=f"commit_then({fault.label})", commits=True)


def _wire_fault(
    kind: WireFaultKind, arguments: str = "", *, commits: bool = False, size: int = 0, seconds: float = 0.0
) -> WireFault:
    return WireFault(f"{kind}({arguments})", commits, kind, size, seconds)


def require_fault(fault: object) -> None:
    """Check that a value is a fault. For example, `reset()` is a fault, but the function `reset` is not."""
    if not isinstance(fault, Fault):
        name = getattr(fault, "__name__", type(fault).__name__)
        raise TypeError(f"expected a fault, got {name}; pass a fault, such as {name if callable(fault) else 'status'}(...)")


# The assignment of faults to requests.

OPERATIONS: Final = (*(route.operation for route in ROUTES), "unknown")
"""The five operations of the API, and `unknown` for all other requests.

Example:
    ```python
    print(OPERATIONS[:3])  # -> ('list_campaigns', 'list_mailboxes', 'create_contact')
    ```
"""


def _require_operation(operation: object) -> None:
    if not isinstance(operation, str) or operation not in OPERATIONS:
        raise InvalidRequest(f"operation: expected one of {', '.join(OPERATIONS)}, got {shown(operation)}; pass one of them")


@attrs.define
class _FaultRule:
    fault: Fault
    operation: str | None
    match: Callable[[Request], bool] | None
    times: int | None
    p: float | None
    salt: str
    fired_count: int = 0

    def applies_to(self, operation: str, request: Request, number: int) -> bool:
        return (
            self.operation in {None, operation}
            and (self.times is None or self.fired_count < self.times)
            and (self.match is None or self.match(request))
            # The draw depends on the request's number, not on the state of a generator. Therefore, other rules and requests that
            # do not match do not change the draw.
            and (self.p is None or draw(self.salt, number) < self.p)
        )


class Faults:
    """Assigns faults to requests, by scripts and by rules.

    A request gets the next fault in the script of its operation, or else
    the fault of the first rule that matches.

    Args:
        seed: Seed of the random draws for rules with a probability.

    Example:
        ```python
        fake.faults.script("create_contact", status(503), ok, commit_then(reset()))
        fake.faults.add(latency(0.2), operation="list_mailboxes", p=0.1)
        print(fake.faults.unfired)  # -> ['create_contact: status(503)', 'create_contact: commit_then(reset())']
        ```
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._request_count = 0
        self._scripts: dict[str, deque[Fault]] = {}
        self._rules: list[_FaultRule] = []

    def script(self, operation: str, *faults: Fault) -> None:
        """Queue more faults for the next requests of an operation, one each.

        Args:
            operation: One of `OPERATIONS`.
            faults: Faults in order; `ok` is for a request without one.

        Raises:
            InvalidRequest: The operation does not exist.
            TypeError: A value is not a fault, such as `reset` instead of
                `reset()`.

        Example:
            ```python
            fake.faults.script("create_contact", status(429, retry_after=2), ok)
            ```
        """
        _require_operation(operation)
        for fault in faults:
            require_fault(fault)
        self._scripts.setdefault(operation, deque()).extend(faults)

    def add(
        self,
        fault: Fault,
        *,
        operation: str | None = None,
        match: Callable[[Request], bool] | None = None,
        times: int | None = None,
        p: float | None = None,
    ) -> None:
        """Inject a fault into every request that meets all given conditions.

        Args:
            fault: The fault.
            operation: One of `OPERATIONS`.
            match: A function that returns whether a request matches.
            times: Maximum number of times that the fault fires.
            p: Probability that the fault fires, from 0 to 1.

        Raises:
            InvalidRequest: The operation does not exist, or a number is
                out of range.
            TypeError: `fault` is not a fault.

        Example:
            ```python
            fake.faults.add(reset(), operation="create_contact", match=lambda request: b"bo@acme" in request.body, times=2)
            ```
        """
        require_fault(fault)
        require_types(Faults.add, {"match": match, "p": p, "times": times})
        if operation is not None:
            _require_operation(operation)
        if times is not None:
            require_at_least("times", 1, times)
        if p is not None and not 0 <= p <= 1:
            raise InvalidRequest(f"p: expected a probability from 0 to 1, got {shown(p)}; pass a number such as 0.1")
        self._rules.append(_FaultRule(fault, operation, match, times, p, salt=f"{self._seed}|{len(self._rules)}"))

    def clear(self) -> None:
        """Remove all faults, and restart the numbering of requests.

        Example:
            ```python
            fake.faults.clear()
            ```
        """
        self._request_count = 0
        self._scripts.clear()
        self._rules.clear()

    @property
    def unfired(self) -> list[str]:
        """The queued faults but `ok`, and the rules that should fire again.

        They have no `p`, and fired fewer than `times` (or one) times.
        """
        # Iterate over copies: requests from other threads may consume faults during the iteration.
        scripts = [(name, tuple(faults)) for name, faults in tuple(self._scripts.items())]
        scripted = [f"{name}: {fault.label}" for name, faults in scripts for fault in faults if fault is not ok]
        return scripted + [
            f"{rule.operation or 'any request'}: {rule.fault.label} ({rule.fired_count} of {rule.times or 1})"
            for rule in tuple(self._rules)
            if rule.fired_count < (rule.times or 1) and rule.p is None and rule.fault is not ok
        ]

    def _next_fault(self, operation: str, request: Request) -> Fault:
        self._request_count += 1
        if script := self._scripts.get(operation):
            return script.popleft()
        for rule in self._rules:
            if rule.applies_to(operation, request, self._request_count):
                rule.fired_count += 1
                return rule.fault
        return ok


def execute_with_faults(faults: Faults, operation: str, request: Request, serve: Callable[[], Response]) -> Exchange:
    return inject(faults._next_fault(operation, request), serve)  # noqa: SLF001 - the classes of this module


def inject(fault: Fault, serve: Callable[[], Response]) -> Exchange:
    """Return an exchange with a fault. `serve` executes the request and returns the response; it is called at most once."""
    response = serve() if fault.commits else None
    if isinstance(fault, ResponseFault):
        response = fault.response
    elif isinstance(fault, DriftFault) and response is not None:
        with suppress(ValueError):  # a response that is not JSON stays unchanged
            drifted = _apply_drift(json.loads(response.body), fault.path, fault.change)
            response = attrs.evolve(response, body=json.dumps(drifted, ensure_ascii=False).encode(errors="backslashreplace"))
    return Exchange(response, fault if isinstance(fault, WireFault) else None, struck=fault.label)


def _apply_drift(value: Any, path: tuple[str, ...], change: Any) -> Any:
    if isinstance(value, list):
        return [_apply_drift(item, path, change) for item in value]
    if not isinstance(value, dict):
        return value
    name, rest = path[0], path[1:]
    if not rest:
        return {**value, name: change(value.get(name)) if callable(change) else change}
    return {**value, name: _apply_drift(value[name], rest, change)} if name in value else value
