"""Conformance checks for transports.

A check accepts an `Open`: a function that returns an async context manager with a transport to a service.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol
from urllib.parse import quote, urlencode

import anyio
import pytest

from outreach_async.errors import InvalidRequest, OutreachError, TransportError
from outreach_async.fake.faults import Exchange
from outreach_async.transport._wire import Progress, Request, Response, Transport

ODD_ID: Final = "camp_é ü/%2F?#"
ODD_QUERY: Final = {"workspace": "a&b=ç+ /", "page": "", "~tilde": "%7E"}


class Echo:
    """A service that returns the body of each request."""

    # The request header `x-status` sets the status of the response. `x-size` replaces the body by one of that size in bytes.

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def exchange(self, request: Request, /) -> Exchange:
        return Exchange(self.handle(request), None)

    def handle(self, request: Request, /) -> Response:
        self.requests.append(request)
        size = request.headers.get("x-size")
        body = request.body if size is None else b"x" * int(size)
        fields = {"content-type": "application/octet-stream", "set-cookie": "session=1; Path=/", "location": "/elsewhere"}
        return Response(int(request.headers.get("x-status", "200")), fields, body)


class Service(Protocol):
    """A service that a transport can connect to."""

    def exchange(self, request: Request, /) -> Exchange: ...

    def handle(self, request: Request, /) -> Response: ...


Open = Callable[[Service], AbstractAsyncContextManager[Transport]]
Check = Callable[[Open], Awaitable[None]]


async def exchange(transport: Transport, request: Request) -> Response:
    """Send a request, require that its progress is marked as sent, and return the response."""
    progress = Progress()
    response = await transport.send(request, progress)
    assert progress.sent is True
    return response


async def odd_ids_and_query_values_arrive_byte_for_byte(connect: Open) -> None:
    echo = Echo()
    target = f"/campaigns/{quote(ODD_ID, safe='')}/steps?{urlencode(ODD_QUERY)}"
    async with connect(echo) as transport:
        await exchange(transport, Request("GET", target))
    assert [request.target for request in echo.requests] == [target]


async def percent_encodings_keep_their_case_and_their_needless_ones(connect: Open) -> None:
    echo = Echo()
    targets = ["/a%2fb%7Ec/%41?x=%7e&y=%2F/?:@", "/", "/a//b", "/a:b/c;d=1,2", "/x?a=b?c=d&&"]
    async with connect(echo) as transport:
        for target in targets:
            await exchange(transport, Request("GET", target))
    assert [request.target for request in echo.requests] == targets


async def a_request_arrives_as_it_was_sent(connect: Open) -> None:
    echo = Echo()
    fields = {"content-type": "application/json", "x-mixed-case": "VaLue, with = signs", "x-empty": ""}
    async with connect(echo) as transport:
        for method, body in (("POST", b'{"a":"\xc3\xa9\\u0000"}'), ("PUT", b"\x00\xff\r\n\r\n"), ("DELETE", b""), ("GET", b"")):
            await exchange(transport, Request(method, "/contacts", fields, body))
            seen = echo.requests[-1]
            assert (seen.method, seen.body) == (method, body)
            assert {name: seen.headers[name] for name in fields} == fields
            assert all(name == name.lower() for name in seen.headers)


async def an_answer_comes_back_as_it_was_given(connect: Open) -> None:
    async with connect(Echo()) as transport:
        for body in (b"", b"x", b"\x00\xff\r\n\r\n", "é".encode() * 1000):
            response = await exchange(transport, Request("POST", "/contacts", body=body))
            assert (response.status, response.body) == (200, body)
            assert response.headers["content-type"] == "application/octet-stream"
            assert all(name == name.lower() for name in response.headers)


async def every_status_is_a_value(connect: Open) -> None:
    async with connect(Echo()) as transport:
        for status in (200, 201, 299, 301, 302, 303, 307, 308, 400, 401, 404, 409, 418, 429, 500, 502, 503, 599):
            response = await exchange(transport, Request("POST", "/contacts", {"x-status": str(status)}, b"body"))
            assert (response.status, response.body) == (status, b"body")


async def no_redirect_is_followed_and_no_cookie_kept(connect: Open) -> None:
    echo = Echo()
    async with connect(echo) as transport:
        for status in ("301", "302", "303", "307", "308"):
            response = await exchange(transport, Request("POST", "/contacts", {"x-status": status}, b"secret"))
            assert response.headers["location"] == "/elsewhere"
            assert response.headers["set-cookie"] == "session=1; Path=/"
    assert [request.target for request in echo.requests] == ["/contacts"] * 5
    assert not any("cookie" in request.headers for request in echo.requests)


async def large_bodies_pass_whole(connect: Open) -> None:
    body = bytes(range(256)) * 8192
    async with connect(Echo()) as transport:
        response = await exchange(transport, Request("POST", "/contacts", body=body))
        assert response.body == body
        response = await exchange(transport, Request("GET", "/mailboxes", {"x-size": "2000000"}))
        assert len(response.body) == 2_000_000


async def many_at_once_get_their_own_answers(connect: Open) -> None:
    answers: dict[int, bytes] = {}
    async with connect(Echo()) as transport:

        async def send(number: int) -> None:
            response = await exchange(transport, Request("POST", f"/contacts?n={number}", body=b"%d" % number))
            answers[number] = response.body

        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(send, number)
    assert answers == {number: b"%d" % number for number in range(40)}


async def a_request_that_is_cancelled_before_it_starts_is_not_sent(connect: Open) -> None:
    echo = Echo()
    progress = Progress()
    async with connect(echo) as transport:
        with anyio.CancelScope() as scope:
            scope.cancel()
            await transport.send(Request("POST", "/contacts", body=b"x"), progress)
    assert scope.cancelled_caught
    assert progress.sent is not True
    assert echo.requests == []


async def after_closing_nothing_is_sent(connect: Open) -> None:
    echo = Echo()
    async with connect(echo) as transport:
        await exchange(transport, Request("GET", "/campaigns"))
        await transport.aclose()
        await transport.aclose()
        with pytest.raises((InvalidRequest, TransportError)) as caught:
            await transport.send(Request("POST", "/contacts", body=b"x"), Progress())
    assert isinstance(caught.value, OutreachError)
    assert caught.value.maybe_sent is False
    assert "closed" in str(caught.value)
    assert len(echo.requests) == 1


CHECKS: Final[tuple[Check, ...]] = (
    odd_ids_and_query_values_arrive_byte_for_byte,
    percent_encodings_keep_their_case_and_their_needless_ones,
    a_request_arrives_as_it_was_sent,
    an_answer_comes_back_as_it_was_given,
    every_status_is_a_value,
    no_redirect_is_followed_and_no_cookie_kept,
    large_bodies_pass_whole,
    many_at_once_get_their_own_answers,
    a_request_that_is_cancelled_before_it_starts_is_not_sent,
    after_closing_nothing_is_sent,
)
