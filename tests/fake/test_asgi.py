from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

import anyio
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.echo_service import TinyService

from outreach_async.fake import faults as f
from outreach_async.fake._transport import MAX_REQUEST_BYTES, Message, Scope, asgi_app, join_headers, rebuild_target
from outreach_async.transport._wire import Request

ODD = "/campaigns/camp_%C3%A9%20%C3%BC%2F%3F%23/steps?a%26b=%C3%A7%2B%20%2f&empty="


def client_of(app: Any, root_path: str = "") -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app=app, root_path=root_path), base_url="http://fake")


async def call(service: TinyService, messages: Iterable[Message], **scope: Any) -> list[Message]:
    """Call the application as a server does, with these messages from the client."""
    sent: list[Message] = []
    waiting = iter(messages)

    async def receive() -> Message:
        await anyio.lowlevel.checkpoint()
        return next(waiting)

    async def send(message: Message) -> None:
        await anyio.lowlevel.checkpoint()
        sent.append(message)

    whole: Scope = {"type": "http", "method": "POST", "path": "/contacts", "query_string": b"", "headers": [], **scope}
    await asgi_app(service)(whole, receive, send)
    return sent


@pytest.mark.parametrize("root_path", ["", "/mounted", "/two/deep/"])
async def test_the_target_arrives_unchanged_under_any_prefix(root_path: str) -> None:
    service = TinyService()
    async with client_of(asgi_app(service), root_path) as client:
        await client.get(root_path.rstrip("/") + ODD)
        await client.get(ODD)  # some servers remove the prefix
    assert [request.target for request in service.requests] == [ODD, ODD]


SEGMENTS = st.lists(st.text("ab/é?%. ", max_size=4), min_size=1, max_size=4)


@given(SEGMENTS, st.sampled_from(["", "/root", "/ro/ot é"]), st.booleans())
def test_only_the_prefix_is_removed(segments: list[str], root: str, upper: bool) -> None:
    quoted = "".join("/" + "".join(f"%{byte:{'02X' if upper else '02x'}}" for byte in segment.encode()) for segment in segments)
    raw = (root.replace(" ", "%20").replace("é", "%c3%a9") + quoted).encode()
    scope: Scope = {"path": unquote(raw.decode()), "raw_path": raw, "root_path": root, "query_string": b"a=%2F"}
    assert rebuild_target(scope) == quoted + "?a=%2F"


def test_the_prefix_alone_is_the_root() -> None:
    assert rebuild_target({"raw_path": b"/root", "root_path": "/root", "path": "/root", "query_string": b""}) == "/"


@pytest.mark.parametrize("scope", [{}, {"raw_path": None}])
def test_without_a_raw_path_the_decoded_path_is_encoded_again(scope: Scope) -> None:
    assert rebuild_target({"path": "/campaigns/camp_é ?", "query_string": b"", **scope}) == "/campaigns/camp_%C3%A9%20%3F"


def test_a_query_in_the_raw_path_is_not_duplicated() -> None:
    assert rebuild_target({"path": "/a", "raw_path": b"/a?b=1", "query_string": b"b=1"}) == "/a?b=1"


def test_repeated_headers_are_joined_under_lower_case_names() -> None:
    assert join_headers([(b"X-A", b"1"), (b"x-b", b"\xe9"), (b"x-a", b"2")]) == {"x-a": "1, 2", "x-b": "é"}


async def test_a_body_in_parts_is_read_completely() -> None:
    service = TinyService()
    parts: list[Message] = [{"body": b"ab", "more_body": True}, {"more_body": True}, {"body": b"c"}]
    await call(service, [{"type": "http.request", **part} for part in parts])
    assert service.requests == [Request("POST", "/contacts", {}, b"abc")]


async def test_a_client_that_disconnects_during_its_body_sends_no_request() -> None:
    service = TinyService()
    assert await call(service, [{"type": "http.request", "more_body": True}, {"type": "http.disconnect"}]) == []
    assert service.requests == []


async def test_a_body_over_the_limit_is_refused_without_reading_on() -> None:
    service, read = TinyService(), 0

    def parts() -> Iterator[Message]:
        nonlocal read
        while True:
            read += 1
            yield {"type": "http.request", "body": bytes(2**20), "more_body": True}

    start, body = await call(service, parts())
    assert (start["status"], json.loads(body["body"])["status"], service.requests) == (413, "error", [])
    assert read == MAX_REQUEST_BYTES // 2**20 + 1


@pytest.mark.parametrize("fault", [f.reset(), f.refuse(), f.truncate(3)], ids=lambda fault: fault.label)
async def test_a_response_lost_on_the_wire_is_a_connection_error_for_the_server(fault: f.Fault) -> None:
    service = TinyService()
    service.faults.script("create_contact", fault)
    async with client_of(asgi_app(service)) as client:
        with pytest.raises(ConnectionError, match="injected wire fault"):
            await client.post("/contacts")


async def test_lifespan_events_are_acknowledged() -> None:
    sent = await call(TinyService(), [{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}], type="lifespan")
    assert sent == [{"type": "lifespan.startup.complete"}, {"type": "lifespan.shutdown.complete"}]


async def test_only_http_is_supported() -> None:
    with pytest.raises(ValueError, match="expected http or lifespan, got websocket"):
        await call(TinyService(), [], type="websocket")
