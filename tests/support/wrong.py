"""Services with exactly one defect: the fake, with one response or one request changed in transit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

import attrs

from outreach_async.fake import FakeTransport
from outreach_async.transport._wire import Progress, Request, Response, Transport

KINDS: Final = {
    "campaigns": "/campaigns?",
    "mailboxes": "/mailboxes?",
    "steps": "/steps",
    "fields": "/all-fields",
    "contacts": "/contacts",
}
"""The part of the target that identifies each operation."""

OK: Final = 200

Answered = Callable[[Request, Response], Response]
Asked = Callable[[Any], None]
Changed = Callable[[Any], object]


def _unchanged(_: Request, response: Response) -> Response:
    return response


def _as_asked(_: Any) -> None:
    """Leave a creation unchanged."""


@attrs.frozen
class Wrong:
    """A defect of a service."""

    answered: Answered = _unchanged
    change_request: Asked = _as_asked


class WrongTransport:
    """A transport to the fake, with one defect."""

    def __init__(self, transport: FakeTransport, wrong: Wrong) -> None:
        self._transport: Transport = transport
        self._wrong = wrong

    async def send(self, request: Request, progress: Progress, /) -> Response:
        if request.body and self._wrong.change_request is not _as_asked:
            body = json.loads(request.body)
            self._wrong.change_request(body)
            request = attrs.evolve(request, body=json.dumps(body).encode())
        return self._wrong.answered(request, await self._transport.send(request, progress))

    async def aclose(self) -> None:
        await self._transport.aclose()


def document(kind: str, change: Changed, *, containing: str = "") -> Wrong:
    """Return a defect that changes the documents of successful responses of an operation."""

    def answered(request: Request, response: Response) -> Response:
        if not _is(kind, request, containing) or response.status > OK + 1:
            return response
        payload = json.loads(response.body)
        change(payload)
        return attrs.evolve(response, body=json.dumps(payload).encode())

    return Wrong(answered)


def _is(kind: str, request: Request, containing: str) -> bool:
    return KINDS[kind] in request.target and (containing in request.target or containing in request.body.decode())


def put(kind: str, path: str, value: Any, *, containing: str = "") -> Wrong:
    """Return a defect that sets the value at a path. A function computes it from the old value; `KeyError` removes it."""

    def change(payload: Any) -> None:
        *way, last = path.split(".")
        for name in way:
            payload = _part(payload, name)
        if payload is not None and _part(payload, last, KeyError) is not KeyError:
            key = int(last) if isinstance(payload, list) else last
            if value is KeyError:
                del payload[key]
            else:
                payload[key] = value(payload[key]) if callable(value) else value

    return document(kind, change, containing=containing)


def _part(payload: Any, name: str, default: Any = None) -> Any:
    if isinstance(payload, dict):
        return payload.get(name, default)
    return payload[int(name)] if isinstance(payload, list) and int(name) < len(payload) else default


def refused(kind: str, status: int, *, containing: str = "", body: bytes | None = None) -> Wrong:
    """Return a defect that responds with another status, and with another body if one is passed."""
    return Wrong(
        lambda request, response: (
            attrs.evolve(response, status=status, body=response.body if body is None else body)
            if _is(kind, request, containing)
            else response
        )
    )
