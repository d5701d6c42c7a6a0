"""The client: construction, the precedence of options, copies, and raw requests."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from support.time import virtual_time
from support.transport import HANG, Script, added, lost, page, status

from outreach_async import HttpxTransport, NewContact, OutreachClient, Response, RetryPolicy, Transport
from outreach_async.errors import DeadlineExceeded, InvalidRequest, OutreachError, TransportError
from outreach_async.hooks import Event

CONTACT = NewContact("a@b.example")
ONCE = RetryPolicy(attempts=1)


def client(transport: Transport, **options: Any) -> OutreachClient:
    return OutreachClient(transport=transport, **{"owner_key": "key_secret", "workspace": "space_1", **options})


def sent(script: Script) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(script.requests[-1].body)
    return body


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "base_url: missing; pass base_url= or transport=, or set OUTREACH_BASE_URL"),
        ({"base_url": ""}, "base_url: missing; pass base_url= or transport=, or set OUTREACH_BASE_URL"),
        ({"base_url": "https://api.example", "transport": Script()}, "base_url: expected either .*, got both; .*"),
        ({"base_url": "api.example"}, "base_url: expected a URL .+; pass a URL such as .+"),
        (
            {"base_url": httpx.AsyncClient(), "timeout": 0},
            "base_url: expected a URL, got AsyncClient; .+",
        ),
        ({"transport": object()}, "transport: expected a transport, got object; wrap a client, .+"),
        ({"transport": Script}, "transport: expected a transport, got type; wrap a client, .+"),
        ({"transport": httpx.AsyncClient()}, r"transport: expected a .+, got AsyncClient; .* HttpxTransport\(client\)"),
        ({"transport": httpx2.AsyncClient()}, r"transport: expected a .+, got AsyncClient; .* HttpxTransport\(client\)"),
        ({"transport": Script(), "headers": ["a"]}, "headers: expected a mapping .+, got list; .+"),
        ({"transport": Script(), "headers": {"a": "x\r\ny: z"}}, r"headers\['a'\]: expected .+"),
        ({"transport": Script(), "timeout": 0}, "timeout: expected more than 0 seconds, got 0; .+"),
        ({"transport": Script(), "deadline": float("nan")}, "deadline: expected more than 0 seconds, got nan; .+"),
        ({"transport": Script(), "max_in_flight": 0}, "max_in_flight: expected at least 1, got 0; .+"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_options_are_refused(options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTREACH_BASE_URL", raising=False)
    with pytest.raises(InvalidRequest, match=rf"^{message}$"):
        OutreachClient(**options)


async def test_a_base_url_uses_httpx_with_a_connection_for_each_request_in_flight() -> None:
    async with OutreachClient("https://api.example/v1", max_in_flight=7) as api_client:
        assert repr(api_client) == "<OutreachClient <HttpxTransport to https://api.example/v1 by httpx> workspace=None>"
        transport = api_client._engine.transport
    assert isinstance(transport, HttpxTransport)
    assert transport.max_in_flight == 7


async def test_missing_options_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTREACH_BASE_URL", "https://env.example")
    monkeypatch.setenv("OUTREACH_OWNER_KEY", "key_env")
    monkeypatch.setenv("OUTREACH_WORKSPACE", "space_env")
    async with OutreachClient() as from_env:
        assert repr(from_env) == "<OutreachClient <HttpxTransport to https://env.example by httpx> workspace='space_env'>"
    script = Script(added())
    await OutreachClient(transport=script).contacts.create(CONTACT)
    assert (sent(script)["owner_key"], sent(script)["workspace"]) == ("key_env", "space_env")
    await OutreachClient(transport=script, owner_key="key_own", workspace="space_own").contacts.create(CONTACT)
    assert (sent(script)["owner_key"], sent(script)["workspace"]) == ("key_own", "space_own")


async def test_a_missing_key_or_workspace_is_refused_and_reads_need_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OUTREACH_OWNER_KEY", raising=False)
    monkeypatch.delenv("OUTREACH_WORKSPACE", raising=False)
    script = Script(page())
    with pytest.raises(InvalidRequest, match=r"^owner_key: expected .* 'key_', got None; .* OUTREACH_OWNER_KEY$"):
        await OutreachClient(transport=script, workspace="space_1").contacts.create(CONTACT)
    with pytest.raises(InvalidRequest, match=r"^workspace: expected .* 'space_', got None; .* OUTREACH_WORKSPACE$"):
        await OutreachClient(transport=script, owner_key="key_1").contacts.create(CONTACT)
    assert script.requests == []
    await OutreachClient(transport=script, workspace="space_1").campaigns.list()


@pytest.mark.parametrize("workspace", ["key_secret", 7, "camp_1"])
def test_no_repr_shows_a_key_even_if_it_was_passed_as_the_workspace(workspace: Any) -> None:
    api_client = client(Script(), workspace=workspace, headers={"authorization": "Bearer secret"})
    resources = (api_client.campaigns, api_client.mailboxes, api_client.contacts, api_client.workspaces)
    everything = (api_client, *resources, api_client._settings, api_client._settings.request_defaults)
    assert "secret" not in "".join(map(repr, everything))
    assert repr(api_client).endswith("workspace=?>")


async def test_leaving_the_block_closes_the_transport_and_raises_its_error() -> None:
    script = Script(page())

    async def work() -> None:
        async with client(script) as entered:
            assert script.closed == 0
            await entered.campaigns.list()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await work()
    assert script.closed == 1


CALLS: dict[str, Callable[..., Awaitable[Any]]] = {
    "campaigns.list": lambda api_client, **options: api_client.campaigns.list(**options),
    "campaigns.steps": lambda api_client, **options: api_client.campaigns.steps("camp_1", **options),
    "mailboxes.list": lambda api_client, **options: api_client.mailboxes.list(**options),
    "workspaces.fields": lambda api_client, **options: api_client.workspaces.fields(**options),
    "contacts.create": lambda api_client, **options: api_client.contacts.create(CONTACT, **options),
    "request": lambda api_client, **options: api_client.request("GET", "/", **options),
}
each_call = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


async def seconds_until(error: type[Exception], call: Awaitable[Any]) -> float:
    started = anyio.current_time()
    with pytest.raises(error):
        await call
    return anyio.current_time() - started


@virtual_time
@each_call
async def test_timeouts_of_a_call_or_a_copy_override_those_of_the_client(call: Callable[..., Awaitable[Any]]) -> None:
    api_client = client(Script(HANG), timeout=30.0, deadline=120.0, retry=ONCE)
    assert await seconds_until(TransportError, call(api_client)) == pytest.approx(30.0)
    assert await seconds_until(TransportError, call(api_client, timeout=5.0)) == pytest.approx(5.0)
    assert await seconds_until(DeadlineExceeded, call(api_client, deadline=7.0)) == pytest.approx(7.0)
    assert await seconds_until(DeadlineExceeded, call(api_client, timeout=None)) == pytest.approx(120.0)
    assert await seconds_until(TransportError, call(api_client, timeout=500, deadline=None)) == pytest.approx(500.0)
    assert await seconds_until(TransportError, call(api_client.with_options(timeout=5.0))) == pytest.approx(5.0)
    assert await seconds_until(DeadlineExceeded, call(api_client.with_options(deadline=7.0))) == pytest.approx(7.0)
    assert await seconds_until(DeadlineExceeded, call(api_client.with_options(timeout=None))) == pytest.approx(120.0)


@each_call
@pytest.mark.parametrize("clock", ["timeout", "deadline"])
async def test_an_invalid_timeout_is_refused_by_every_call(call: Callable[..., Awaitable[Any]], clock: str) -> None:
    script = Script(page())
    with pytest.raises(InvalidRequest, match=rf"^{clock}: expected seconds .+, got str; .+"):
        await call(client(script), **{clock: "5"})
    assert script.requests == []


class Mine(OutreachClient):
    """A client of a user's own class."""


async def test_a_copy_has_its_own_options_and_does_not_change_the_client() -> None:
    script = Script(added())
    api_client = Mine(transport=script, owner_key="key_secret", workspace="space_1", headers={"X-One": "1", "X-Two": "1"})
    copy = api_client.with_options(owner_key="key_2", workspace="space_2").with_options(headers={"x-TWO": "2"})
    assert type(copy) is Mine
    await copy.contacts.create(CONTACT)
    assert (sent(script)["owner_key"], sent(script)["workspace"]) == ("key_2", "space_2")
    assert {name: value for name, value in script.requests[-1].headers.items() if name[0] == "x"} == {"x-one": "1", "x-two": "2"}
    await api_client.contacts.create(CONTACT)
    assert (sent(script)["owner_key"], sent(script)["workspace"]) == ("key_secret", "space_1")
    assert {name: value for name, value in script.requests[-1].headers.items() if name[0] == "x"} == {"x-one": "1", "x-two": "1"}


@virtual_time
async def test_a_copy_shares_the_retry_budget() -> None:
    script = Script(lost())
    api_client = client(script, retry=RetryPolicy(attempts=2, budget=14))
    for each in api_client, api_client.with_options(workspace="space_2"), api_client.with_options(max_retries=1):
        with pytest.raises(TransportError):
            await each.campaigns.list()
    assert len(script.requests) == 4


@virtual_time
@pytest.mark.parametrize(
    ("retries", "attempts"), [({"max_retries": 0}, 1), ({"max_retries": 2}, 3), ({"retry": ONCE}, 1), ({}, 4)]
)
async def test_a_client_and_a_copy_make_as_many_retries_as_they_are_told(retries: dict[str, Any], attempts: int) -> None:
    for other in client(Script(lost()), **retries), client(Script(lost())).with_options(**retries):
        with pytest.raises(TransportError) as caught:
            await other.campaigns.list()
        assert caught.value.attempts == attempts
    with pytest.raises(OutreachError) as refused:
        await client(Script(status(429)), **retries).campaigns.list()
    assert (refused.value.attempts == attempts) is bool(retries)  # without the argument, until the deadline


async def test_the_hooks_of_a_copy_replace_those_of_the_client() -> None:
    ours: list[Event] = []
    theirs: list[Event] = []
    api_client = client(Script(page()), hooks=[ours.append])
    for hooks, heard in (None, ours), ([theirs.append], theirs), ([], []), (None, ours):
        before = len(ours), len(theirs)
        await api_client.with_options(hooks=hooks).campaigns.list()
        assert (len(ours) > before[0], len(theirs) > before[1]) == (heard is ours, heard is theirs)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": -1},
        {"deadline": "5"},
        {"headers": {"a": "\n"}},
        {"max_retries": -1},
        {"max_retries": 1.5},
        {"retry": 3},
        {"max_retries": 1, "retry": ONCE},
        {"hooks": print},
    ],
    ids=repr,
)
def test_a_copy_with_invalid_options_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{next(iter(wrong))}.*: expected .+"):
        client(Script()).with_options(**wrong)


async def test_closing_a_copy_does_not_close_the_transport() -> None:
    script = Script(page())
    api_client = client(script)
    async with api_client.with_options(workspace="space_2") as copy:
        await copy.campaigns.list()
    await copy.aclose()
    assert script.closed == 0
    await api_client.campaigns.list()
    await api_client.aclose()
    assert script.closed == 1


@pytest.mark.parametrize("code", [200, 204, 301, 307, 400, 404, 408, 429, 500, 503, 599])
async def test_a_raw_request_returns_any_response_unchanged(code: int) -> None:
    answer = status(code, b"<html>", retry_after="1", location="https://other.example")
    script = Script(answer)
    assert await client(script).request("GET", "/anything") is answer
    assert len(script.requests) == 1


async def test_a_secret_header_of_a_raw_request_is_masked_in_its_error() -> None:
    script = Script(TransportError("lost: hunter2", maybe_sent=True))
    with pytest.raises(TransportError, match=r"^lost: \*\*\*$"):
        await client(script).request("GET", "/", headers={"x-api-key": "hunter2"})


BASIC = {"accept": "application/json", "accept-encoding": "gzip, deflate"}


async def test_headers_of_the_call_override_those_of_the_client_and_the_library() -> None:
    script = Script(Response(200))
    api_client = client(script, headers={"X-Client": "1", "User-Agent": "mine"})
    await api_client.request("GET", "/", headers={"X-CALL": "2", "x-client": "3"})
    await api_client.request("PUT", "/", body=b"{}")
    await api_client.request("PUT", "/", body=b"a", headers={"Content-Type": "text/plain", "Accept": "*/*"})
    first, second, third = [request.headers for request in script.requests]
    assert first == {**BASIC, "user-agent": "mine", "x-client": "3", "x-call": "2"}
    assert second == {**BASIC, "user-agent": "mine", "x-client": "1", "content-type": "application/json"}
    assert third == {**second, "content-type": "text/plain", "accept": "*/*"}
    assert [request.body for request in script.requests] == [b"", b"{}", b"a"]
