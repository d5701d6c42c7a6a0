"""`Faults` assigns faults to requests. The transport and the server reproduce wire faults by the tables in `_transport`."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Literal, Protocol

import attrs

from outreach_async.fake._arguments import draw, require_at_least
from outreach_async.fake._request import ROUTES
from outreach_async.transport._wire import Request, Response

WireFaultKind = Literal[
    "latency", "hang", "refuse", "reset", "close", "truncate", "reset_mid_body", "bad_chunk", "no_final_chunk", "garbage",
    "long_header", "wrong_encoding", "wrong_length", "slow_drip",
]  # fmt: skip


@attrs.frozen
class Exchange:
    """The result of one request: the response, and the wire fault to reproduce.

    Attributes:
        response: The response; `None` if a wire fault prevented the service from executing the request.
        fault: The wire fault; `None` if there is none.
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


@attrs.frozen
class Fault:
    """The base class of faults. A direct instance of it, such as `ok`, injects nothing.

    Attributes:
        label: The fault as it is written in code, such as `status(503)`.
        commits: Whether the service executes the request before the fault fires.

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


def inject(fault: Fault, serve: Callable[[], Response]) -> Exchange:
    """Return an exchange with a fault. `serve` executes the request and returns the response; it is called at most once."""
    response = serve() if fault.commits else None
    if isinstance(fault, ResponseFault):
        response = fault.response
    elif isinstance(fault, DriftFault) and response is not None:
        with suppress(ValueError):  # a response that is not JSON stays unchanged
            drifted = _apply_drift(json.loads(response.body), fault.path, fault.change)
            response = attrs.evolve(response, body=json.dumps(drifted, ensure_ascii=False).encode())
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


OPERATIONS: Final = (*(route.operation for route in ROUTES), "unknown")
"""The operations that faults can apply to: the five operations of the API, and `unknown` for all other requests.

Example:
    ```python
    print(OPERATIONS[:3])  # -> ('list_campaigns', 'list_mailboxes', 'create_contact')
    ```
"""


class Faults:
    """Assigns faults to requests, by scripts and by rules.

    A request gets the next fault in the script of its operation, or else the fault of the first rule that matches.

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
        """Queue faults for the operation's next requests, one per request, after the faults already queued.

        Args:
            operation: One of `OPERATIONS`.
            faults: Faults in order, with `ok` for a request without a fault.

        Raises:
            ValueError: The operation does not exist.
            TypeError: A value is not a fault; for example, `reset` was passed instead of `reset()`.

        Example:
            ```python
            fake.faults.script("create_contact", status(429, retry_after=2), ok)
            ```
        """
        _check_operation(operation)
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
        """Inject a fault into every request that meets all conditions.

        Args:
            fault: The fault.
            operation: One of `OPERATIONS`; every operation if not given.
            match: A function that returns whether a request matches; every request matches if not given.
            times: Maximum number of times that the fault fires; no limit if not given.
            p: Probability that the fault fires, from 0 to 1; it always fires if not given.

        Raises:
            ValueError: The operation does not exist, or a number is out of range.
            TypeError: `fault` is not a fault; for example, `reset` was passed instead of `reset()`.

        Example:
            ```python
            fake.faults.add(reset(), operation="create_contact", match=lambda request: b"bo@acme" in request.body, times=2)
            ```
        """
        require_fault(fault)
        if operation is not None:
            _check_operation(operation)
        if times is not None:
            require_at_least("times", 1, times)
        if p is not None and not 0 <= p <= 1:
            raise ValueError(f"p: expected a probability from 0 to 1, got {p}; pass a number such as 0.1")
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
        """Descriptions of the queued faults, and of the rules that have fired fewer than `times` times.

        A rule without `times` is listed until it has fired once. `ok` and rules with a probability are never listed.
        """
        # Iterate over copies: requests from other threads may consume faults during the iteration.
        scripts = [(name, tuple(faults)) for name, faults in tuple(self._scripts.items())]
        scripted = [f"{name}: {fault.label}" for name, faults in scripts for fault in faults if fault is not ok]
        return scripted + [rule.shortfall for rule in tuple(self._rules) if rule.shortfall]

    def assert_all_fired(self) -> None:
        """Check that every fault has fired.

        Raises:
            AssertionError: Some faults have not fired; the message lists them.

        Example:
            ```python
            fake.faults.assert_all_fired()
            ```
        """
        if unfired := self.unfired:
            raise AssertionError(f"faults that never fired: {'; '.join(unfired)}")

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

    @property
    def shortfall(self) -> str:
        times = self.times or 1
        if self.fired_count >= times or self.p is not None or self.fault is ok:
            return ""
        return f"{self.operation or 'any request'}: {self.fault.label} ({self.fired_count} of {times})"


def require_fault(fault: object) -> None:
    """Check that a value is a fault. For example, `reset()` is a fault, but the function `reset` is not."""
    if not isinstance(fault, Fault):
        name = getattr(fault, "__name__", type(fault).__name__)
        raise TypeError(f"expected a fault, got {name}; pass a fault, such as {name if callable(fault) else 'status'}(...)")


def _check_operation(operation: str) -> None:
    if operation not in OPERATIONS:
        raise ValueError(f"operation: expected one of {', '.join(OPERATIONS)}, got {operation!r}")
