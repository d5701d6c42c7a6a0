"""No id, header, target, method or base URL can cause an unintended request: each is refused or sent unchanged."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fuzz import KEY, client_of
from support.listener import Listener, serve
from support.tables import check_rows
from support.transport import Script
from support.transports import GET, LOOPS, MAKERS, OWN, Make
from support.wire import unhurried

from outreach_async import HttpxTransport, InvalidRequest, NewContact, OutreachClient, OutreachError, Progress, Request, Response


def places(*places: tuple[str, str]) -> pytest.MarkDecorator:
    cells = [pytest.param(MAKERS[name], LOOPS[loop], id=f"{name}-{loop}") for name, loop in places]
    return pytest.mark.parametrize(("make", "anyio_backend"), cells, indirect=["anyio_backend"])


on_asyncio = places(*((name, "asyncio") for name in OWN))
over_all = places(*((name, "asyncio") for name in OWN), ("httpx", "trio"))

TRICKS: Final = (
    *'\r\n\0 \t\x7f\x85\u2028\uff0f\ud800\U0001f600\\"./%?#&=;@:a[]<|^`+é',
    *("\r\n", "..", "//", "/../", "/./", "%2e%2e", "%2E%2e/", "%2f", "%0d%0a", "%00", "%%", "%zz", "camp_1", "{}"),
    *("http://evil.example/", "//evil.example", "@evil.example", " HTTP/1.1\r\nx-evil: 1\r\n\r\n", "\r\nx-evil: 1"),
    "\r\n\r\nGET /evil HTTP/1.1\r\n\r\n",
)
texts = st.lists(st.sampled_from(TRICKS) | st.characters(), max_size=5).map("".join)
ANSWER: Final = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"

TARGET: Final = r"/(?!/)[!$%&-;=@A-Z\[\]_a-z~]*(?:\?[!$%&-;=?@A-Z\[\]_a-z~]+)?"
"""Characters that are sent unchanged, except for `.` and `..` segments."""


async def sent(call: Any) -> Request | None:
    """Return the one request that a call sent, or `None` if the call was refused before anything was sent."""
    transport = Script(Response(404))
    async with client_of(transport) as client:
        try:
            await call(client)
        except InvalidRequest:
            assert not transport.requests
            return None
        except OutreachError:
            pass
    (request,) = transport.requests
    return request


def head(request: bytes) -> tuple[str, str, dict[str, str]]:
    """Parse what a listener received: exactly one request."""
    lines, _, body = request.partition(b"\r\n\r\n")
    first, *fields = lines.decode("latin-1").split("\r\n")
    method, target, version = first.split(" ")
    assert version == "HTTP/1.1"
    named = dict(field.split(": ", 1) for field in fields)
    assert len(named) == len(fields)
    assert len(body) == int({name.lower(): value for name, value in named.items()}.get("content-length", "0"))
    return method, target, {name.lower(): value for name, value in named.items()}


async def arrives(make: Make, request: Request, path: str = "") -> bool:
    """Send a request and check that it arrived unchanged or not at all. Return whether it arrived."""
    with Listener(serve(ANSWER)) as listener, anyio.fail_after(60):
        transport = make(f"{listener.url}{path}")
        try:
            await transport.send(request, Progress())
        except InvalidRequest:
            assert listener.received == b""
            return False
        finally:
            await transport.aclose()
        (whole,) = listener.requests
        assert listener.received == whole
        method, target, fields = head(whole)
        assert (method, target) == (request.method, f"{path}{request.target}")
        assert {name.lower(): value for name, value in request.headers.items()}.items() <= fields.items()
        ours = ["host", "accept-encoding", "content-length", "accept", "user-agent", "connection"]
        assert set(fields) <= {*ours, *map(str.lower, request.headers)}
        return True


@settings(unhurried, max_examples=scaled(40))
@given(texts)
async def test_an_id_in_a_path_is_one_segment(text: str) -> None:
    for call, prefix, path in (
        (lambda client: client.campaigns.steps(f"camp_{text}"), "camp_", "/campaigns/{}/steps"),
        (lambda client: client.workspaces.fields(workspace=f"space_{text}"), "space_", "/workspaces/{}/all-fields"),
    ):
        if (request := await sent(call)) is not None:
            before, after = path.split("{}")
            assert re.fullmatch(re.escape(before) + r"(?:[A-Za-z0-9\-._~]|%[0-9A-F]{2})+" + re.escape(after), request.target)
            assert unquote(request.target[len(before) : -len(after)]) == prefix + text
        else:
            assert not text.isprintable() or " " in text or not text


@settings(unhurried, max_examples=scaled(40))
@given(texts)
async def test_an_id_in_a_query_is_one_value(text: str) -> None:
    for resource in ("campaigns", "mailboxes"):
        request = await sent(
            lambda client, resource=resource: getattr(client, resource).list(workspace=f"space_{text}", page=2, display=9)
        )
        if request is not None:
            parts = urlsplit(request.target)
            assert (parts.path, parts.fragment) == (f"/{resource}", "")
            assert re.fullmatch(r"[A-Za-z0-9\-._~%=&]*", parts.query)
            query = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True)
            assert query == [("workspace", f"space_{text}"), ("page", "2"), ("display", "9")]
        else:
            assert not text.isprintable() or " " in text or not text


@settings(unhurried, max_examples=scaled(40))
@given(texts, texts, texts)
async def test_the_values_of_a_contact_stay_in_the_body(text: str, email: str, value: str) -> None:
    contact = NewContact(email, first_name=value, extra={f"x{text}": value})
    request = await sent(lambda client: client.contacts.create(contact, workspace=f"space_{text}", owner_key=f"key_{text}"))
    if request is not None:
        assert (request.method, request.target) == ("POST", "/contacts")
        assert set(request.headers) == {"content-type", "accept", "accept-encoding", "user-agent"}
        assert b"\r" not in request.body
        assert b"\n" not in request.body


def encodable(text: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def plain(text: str, allowed: str) -> bool:
    return re.fullmatch(allowed, text) is not None


@settings(unhurried, max_examples=scaled(60))
@given(texts, texts, texts, texts)
async def test_a_raw_request_is_refused_or_sent_unchanged(method: str, target: str, name: str, value: str) -> None:
    for call, fine in (
        (lambda client: client.request(method, "/a"), plain(method, "[A-Z]+(-[A-Z]+)*")),
        (lambda client: client.request("GET", target), whole(target.removesuffix("?")) or whole(target)),
        (lambda client: client.request("GET", "/a", headers={name: value}), field(name, value)),
    ):
        request = await sent(call)
        assert (request is not None) is fine
        if request is not None:
            assert request.method in {method, "GET"}
            assert request.target in {target, "/a"}
            assert set(request.headers) <= {name.lower(), "accept", "accept-encoding", "user-agent"}
    try:
        OutreachClient(transport=Script(Response(404)), headers={name: value})
    except InvalidRequest:
        assert not field(name, value)
    else:
        assert field(name, value)


def whole(target: str) -> bool:
    return plain(target, TARGET) and not dotted(target)


def dotted(target: str) -> bool:
    path = re.sub("%2e", ".", target.partition("?")[0], flags=re.IGNORECASE)
    return bool({".", ".."} & set(path.split("/")))


def field(name: str, value: str) -> bool:
    return plain(name, r"[!#$%&'*+.^_`|~0-9A-Za-z-]+") and plain(value, r"(?:[!-~](?:[\t -~]*[!-~])?)?")


@over_all
@settings(unhurried, max_examples=scaled(12))
@given(texts, st.sampled_from(["", "/", "/a", "/a?b="]))
async def test_a_target_arrives_unchanged_or_not_at_all(make: Make, text: str, start: str) -> None:
    await arrives(make, Request("GET", start + text, {"x-a": "b"}))


@on_asyncio
@pytest.mark.parametrize("trick", TRICKS)
async def test_no_target_method_or_header_can_smuggle_another_request(make: Make, trick: str) -> None:
    for target in (trick, f"/a{trick}b", f"/{trick}"):
        came = await arrives(make, Request("GET", target))
        assert came is whole(target)
    for request in (
        Request(f"GET{trick}", "/a"),
        Request("GET", "/a", {f"x-a{trick}": "b"}),
        Request("GET", "/a", {"x-a": f"b{trick}c"}),
        Request("POST", "/a", {"x-a": trick}, b"{}"),
    ):
        await arrives(make, request)


@over_all
@pytest.mark.parametrize("path", ["", "/v1", "//v1", "/v1//x", "/v1/%2F/x", "/;a=b/%0D%0A", "/a:80@b", "/%25"])
async def test_a_path_in_the_base_url_precedes_every_target(make: Make, path: str) -> None:
    assert await arrives(make, GET, path)


AMBIGUOUS: Final = (
    *(f"http://localhost/{trick}x" for trick in "\n\0 \\é\u2028|"),
    *(f"http://localhost/{trick}" for trick in ("\r\n", "../", "./", "a/../", "%2e%2e/", "%2E./", "?a", "#a", "{}")),
    *(f"http://local{trick}host" for trick in "\r\n\0 \\\x7f?#"),
    *("localhost", "//localhost", "http:localhost", "http://", "ftp://localhost", "http://localhost:x", "http://localhost:0"),
    *("http://localhost:99999", "http://[::1", "http://:80", "javascript:alert(1)", "file:///etc/passwd", ""),
)


@pytest.mark.thorough
def test_an_ambiguous_base_url_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(text: str) -> None:
        with pytest.raises(InvalidRequest):
            OutreachClient(text, owner_key=KEY)
        for name in ("httpx", "httpx2", "aiohttp", "sockets"):
            with pytest.raises(InvalidRequest):
                MAKERS[name](text)

    monkeypatch.delenv("OUTREACH_BASE_URL", raising=False)
    check_rows(((text,) for text in AMBIGUOUS), check)


@settings(unhurried, max_examples=scaled(100))
@given(
    st.lists(st.sampled_from([*TRICKS, "http://", "localhost", "[::1]", ":80", "user:pw@"]) | st.characters(), max_size=6).map(
        "".join
    )
)
async def test_any_base_url_is_refused_or_leads_to_its_own_host(text: str) -> None:
    for family in ("httpx", "httpx2"):
        try:
            transport = HttpxTransport(f"http://{text}", family=family)
            pool: Any = transport._senders.get()
        except InvalidRequest:
            continue
        parts = urlsplit(f"http://{text}")
        assert parts.hostname
        assert transport.base_url == f"http://{place(parts)}"
        assert re.fullmatch(r"[!-~]+", pool.default_headers["host"])
        assert pool.root.raw_path.decode().rstrip("/") == parts.path.rstrip("/")
        await transport.aclose()


def place(parts: Any) -> str:
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{host}{f':{parts.port}' if parts.port not in {None, 80} else ''}{parts.path.rstrip('/')}"
