"""Exchanges and faults as values: the service's response, and what happens to it on the wire.

The functions of `faults` create faults: no fault, a different response, a changed response, or a wire fault. The fake's transport
and server reproduce wire faults according to the tables of `damage`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Literal, Protocol

import attrs

from outreach_async.transport.wire import Request, Response

Kind = Literal[
    "latency",
    "hang",
    "refuse",
    "reset",
    "close",
    "truncate",
    "reset_mid_body",
    "bad_chunk",
    "no_final_chunk",
    "garbage",
    "long_header",
    "wrong_encoding",
    "wrong_length",
    "slow_drip",
]
"""The kinds of wire faults."""


def nothing() -> None:
    """Do nothing. The default of `Exchange.ended`, for an exchange that holds no place."""


@attrs.frozen
class Exchange:
    """The result of one request.

    Attributes:
        response: The response; `None` if a fault kept the request from the service.
        fault: The wire fault; `None` for none.
        ended: Call it once the response has been delivered or lost: it frees the exchange's place under `max_in_flight` (rule
            E4). Further calls do nothing.
        struck: The label of the fault that fired; `ok` for none.

    Example:
        ```python
        exchange = fake.exchange(Request("GET", "/workspaces/space_1/all-fields"))
        print(exchange.response.status, exchange.fault, exchange.struck)  # -> 200 None ok
        exchange.ended()
        ```
    """

    response: Response | None
    fault: WireFault | None
    ended: Callable[[], object] = attrs.field(default=nothing, eq=False, repr=False)
    struck: str = attrs.field(default="ok", eq=False)


class Service(Protocol):
    """The interface that the fake's transport, ASGI application and server call."""

    def exchange(self, request: Request, /) -> Exchange:
        """Execute the request completely, without waiting."""
        ...


@attrs.frozen
class Fault:
    """A fault in one exchange. Instances of this class itself inject nothing, as `ok` does.

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

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Return the exchange with this fault; calling `serve` executes the request."""
        return Exchange(serve(), None)


ok: Final = Fault("ok", commits=True)
"""No fault: a placeholder in a script. That request gets no fault, even if a rule of `Faults.add` matches it.

Example:
    ```python
    fake.faults.script("create_contact", ok, status(503))  # the second creation fails
    ```
"""


@attrs.frozen
class AnswerFault(Fault):
    """A different response in place of the service's own.

    Attributes:
        response: The response.
    """

    response: Response

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Return the different response."""
        if self.commits:
            serve()
        return Exchange(self.response, None, struck=self.label)


@attrs.frozen
class DriftFault(Fault):
    """A change to the service's own response, as when the service evolves.

    Attributes:
        path: Member names from the root of the response; in a list, the rest applies to every item.
        change: The new value, or a function from the old value to the new one.
    """

    path: tuple[str, ...]
    change: Any

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Return the service's response with the change; a response that is not JSON stays unchanged."""
        served = serve()
        try:
            drifted = _drifted(json.loads(served.body), self.path, self.change)
        except ValueError:
            return Exchange(served, None, struck=self.label)
        body = json.dumps(drifted, ensure_ascii=False).encode()
        return Exchange(attrs.evolve(served, body=body), None, struck=self.label)


@attrs.frozen
class WireFault(Fault):
    """A fault on the wire, which damages, delays or replaces the response.

    Attributes:
        kind: The kind of fault.
        size: Number of bytes: sent before the cut, missing from the stated length, or in each piece, depending on the kind.
        seconds: Delay of the response, or of each piece of it, in seconds.
    """

    kind: Kind
    size: int = 0
    seconds: float = 0.0

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Return the response, if the service acts, with this fault for the transport or server to reproduce."""
        return Exchange(serve() if self.commits else None, self, struck=self.label)


def _drifted(value: Any, path: tuple[str, ...], change: Any) -> Any:
    if isinstance(value, list):
        return [_drifted(item, path, change) for item in value]
    if not isinstance(value, dict):
        return value
    name, rest = path[0], path[1:]
    if not rest:
        return {**value, name: change(value.get(name)) if callable(change) else change}
    return {**value, name: _drifted(value[name], rest, change)} if name in value else value
