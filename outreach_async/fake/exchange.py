"""One exchange with the service as the fake tells it: the answer, and what happens to it on its way.

Faults are values, made by the functions of `faults`: nothing at all, another answer, a changed answer, and trouble on the wire,
which the fake's transport and its server act out as `damage` tells them.
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
"""What can happen on the wire."""


def nothing() -> None:
    """Free no place: none was taken."""


@attrs.frozen
class Exchange:
    """What became of one request.

    Attributes:
        response: The answer; `None` if a fault kept the request from the service.
        fault: What happens on the wire; `None` for nothing.
        ended: Whoever carries the answer calls it once that has arrived or is lost, to free the exchange's place among those
            under way (rule E4). A second call does nothing.
        struck: The fault that struck, as it is written; `ok` for none.

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
    """What the fake's transport, its ASGI application and its server put their questions to."""

    def exchange(self, request: Request, /) -> Exchange:
        """Carry the request out, at once and whole."""
        ...


@attrs.frozen
class Fault:
    """One thing that goes wrong with one exchange; this class itself is for `ok`, nothing at all.

    Attributes:
        label: How the fault is written, such as `status(503)`.
        commits: Whether the service carries the request out before the fault strikes.

    Example:
        ```python
        print(reset().label, reset().commits, commit_then(reset()).commits)  # -> reset() False True
        ```
    """

    label: str
    commits: bool

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Say what becomes of the request; `serve` is the service's own act."""
        return Exchange(serve(), None)


ok: Final = Fault("ok", commits=True)
"""No fault: a placeholder in a script. That request goes well, whatever the rules say.

Example:
    ```python
    fake.faults.script("create_contact", ok, status(503))  # the second creation fails
    ```
"""


@attrs.frozen
class AnswerFault(Fault):
    """Another answer in the place of the service's.

    Attributes:
        response: That answer.
    """

    response: Response

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Answer in the service's place."""
        if self.commits:
            serve()
        return Exchange(self.response, None, struck=self.label)


@attrs.frozen
class DriftFault(Fault):
    """A change of the service's own answer, as when the service grows.

    Attributes:
        path: Names of members from the answer's root; lists are walked through.
        change: The new value, or a function of the old one.
    """

    path: tuple[str, ...]
    change: Any

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Change the answer; one that is not JSON stays as it is."""
        served = serve()
        try:
            drifted = _drifted(json.loads(served.body), self.path, self.change)
        except ValueError:
            return Exchange(served, None, struck=self.label)
        body = json.dumps(drifted, ensure_ascii=False).encode()
        return Exchange(attrs.evolve(served, body=body), None, struck=self.label)


@attrs.frozen
class WireFault(Fault):
    """Something that happens on the wire, to the answer or in its place.

    Attributes:
        kind: What happens.
        size: Bytes: of the body before the cut, by which the stated length is too small, or in a piece.
        seconds: How long the answer, or each piece of it, is held back.
    """

    kind: Kind
    size: int = 0
    seconds: float = 0.0

    def strike(self, serve: Callable[[], Response]) -> Exchange:
        """Hand the answer, if there is one, to whoever carries it."""
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
