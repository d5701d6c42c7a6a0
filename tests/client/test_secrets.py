"""No key is shown, wherever a response echoes it or an error of a transport quotes it."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, Final

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.echoes import ENCODINGS, Held, assert_hidden, logged, representations
from support.examples import scaled
from support.listener import Listener, Peer
from support.tables import check_rows_async
from support.time import virtual_time
from support.transports import ALL, PROXYING, Make, over
from support.wire import unhurried

from outreach_async import HttpxTransport, NewContact, OutreachClient, OutreachError, Progress, Request, Response, RetryPolicy
from outreach_async._plumbing import Secret, parse_base_url
from outreach_async.config import load_config
from outreach_async.errors import InvalidRequest, TransportError, iterate_linked_errors
from outreach_async.otel import OtelHook
from outreach_async.store import Store
from outreach_async.sync import SyncClient

PLAIN: Final = "key_5f1c0b9ad7e24c63"
CONTACT: Final = NewContact("ann@company.example")


def inside(text: str) -> bytes:
    return json.dumps(text)[1:-1].encode()


def as_field(text: str) -> dict[str, str]:
    return {"x-echo": text, "x-request-id": text}


PAGE: Final = b'{"status":"ok","headers":[],"data":[],"total_found":0,"current_page":1,"total_pages":1,"echo":"%b"}'
PLACES: Final[dict[str, Callable[[str], Response]]] = {
    "message of a refusal": lambda echo: Response(500, {}, b'{"error":"no %b"}' % inside(echo)),
    "page of HTML": lambda echo: Response(400, {}, b"<p>%b</p>" % echo.encode()),
    "header fields": lambda echo: Response(429, {**as_field(echo), "retry-after": "9000"}, b"{}"),
    "status": lambda echo: Response(200, {}, b'{"status":"%b","id":null,"details":null}' % inside(echo)),
    "status beside an id": lambda echo: Response(200, {}, b'{"status":"%b","id":"contact_1","details":null}' % inside(echo)),
    "id": lambda echo: Response(200, {}, b'{"status":"added","id":"contact_%b","details":null}' % inside(echo)),
    "whole id": lambda echo: Response(200, {}, b'{"status":"skipped","id":"%b","details":null}' % inside(echo)),
    "details": lambda echo: Response(200, as_field(echo), b'{"status":"skipped","id":null,"details":"%b"}' % inside(echo)),
    "unknown member": lambda echo: Response(200, {}, b'{"status":"added","id":3,"%b":{}}' % inside(echo)),
    "unknown member of a page": lambda echo: Response(200, as_field(echo), PAGE % inside(echo)),
    "what is no JSON": lambda echo: Response(200, {}, b'{"status":"added",%b' % echo.encode()),
}


class Acts:
    """A transport that performs a function for every request, after a delay."""

    def __init__(self, act: Callable[[Request, Progress], Response | Exception]) -> None:
        self._act = act

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        await anyio.sleep(1.0)
        result = self._act(request, progress)
        if isinstance(result, Exception):
            raise result
        return result

    async def aclose(self) -> None: ...


def one_response(answer: Response) -> Acts:
    return Acts(lambda _request, _progress: answer)


def sorted_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def bulk(client: OutreachClient, folder: Path) -> list[Any]:
    seen: list[Any] = []
    run = client.contacts.create_many([CONTACT], journal=folder / "run.db")
    try:
        async with run as outcomes:
            async for outcome in outcomes:
                seen += [outcome, outcome.error]
    except OutreachError as error:
        seen += [error, error.__cause__]
    files = [path.read_bytes().decode("latin-1") for path in sorted_files(folder)]
    return [*seen, json.dumps(outcomes.report.to_dict()), *Store(folder / "run.db").outcomes(), *files]


ACTS: Final[dict[str, Callable[[OutreachClient, Path], Any]]] = {
    "create": lambda client, _: client.contacts.create(CONTACT),
    "create_many": bulk,
    "list": lambda client, _: client.mailboxes.list(),
    "keep": lambda client, _: client.campaigns.list(undecodable="keep"),
    "steps": lambda client, _: client.campaigns.steps("camp_1"),
    "fields": lambda client, _: client.workspaces.fields(),
    "pages": lambda client, _: client.mailboxes.list().collect(),
    "request": lambda client, _: client.request("POST", "/contacts", body=b"{}"),
}
plain = st.text("0123456789abcdefABCDEF-._~", min_size=6, max_size=30)
odd = st.text(
    st.characters(min_codepoint=33, max_codepoint=0x2FF, exclude_characters="*", exclude_categories=["C", "Z"]),
    min_size=8,
    max_size=16,
)


def quote(request: Request) -> str:
    return f"{request.body.decode()} {request.headers['authorization']}"


def chained(request: Request, progress: Progress) -> Exception:
    progress.sent = False
    error = TransportError("lost", maybe_sent=False)
    error.__cause__ = KeyError(quote(request))
    return error


def foreign_and_chained(request: Request, _progress: Progress) -> Exception:
    error = ValueError(request.headers)
    error.__cause__, error.__context__ = ConnectionResetError(request.body), OSError(7, quote(request))
    return error


QUOTING: Final[dict[str, Callable[[Request, Progress], Exception]]] = {
    "lost": lambda request, _: TransportError(f"lost: {quote(request)}", maybe_sent=True),
    "chained": chained,
    "foreign": lambda request, _: RuntimeError(quote(request), request.body),
    "foreign and chained": foreign_and_chained,
    "refused connection": lambda request, _: ConnectionRefusedError(111, quote(request)),
}


@pytest.mark.thorough
@virtual_time
@settings(unhurried, max_examples=scaled(40))
@given(
    (plain | odd).map("key_{}".format).map(Held),
    st.sampled_from(sorted(ENCODINGS)),
    st.sampled_from([*PLACES, *QUOTING]),
    st.sampled_from(sorted(ACTS)),
)
async def test_a_key_echoed_or_quoted_is_shown_nowhere(held_key: Held, encoding: str, place: str, act: str) -> None:
    held_token = Held("eyJhbGciOi.J9-Zm9v_YmFy")
    if place in QUOTING:
        transport = Acts(QUOTING[place])
    else:
        transport = one_response(PLACES[place](".".join(map(ENCODINGS[encoding], (held_key.key, held_token.key)))))
    handler, logger = BufferingHandler(10**6), logging.getLogger("outreach_async")
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    client = OutreachClient(  # the key in no local variable, because tracebacks show those of this test
        transport=transport,
        owner_key=held_key.key,
        headers={"authorization": f"Bearer {held_token.key}"},
        workspace="space_1",
        retry=RetryPolicy(attempts=2),
        deadline=5.0,
        hooks=[OtelHook(tracer_provider=provider)],
    )
    with tempfile.TemporaryDirectory() as folder:
        try:
            result = await ACTS[act](client, Path(folder))
        except OutreachError as error:
            result = error
    logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET)
    things = [*(result if isinstance(result, list) else [result]), client._settings, client._settings.request_defaults]
    shown = [found for thing in things for found in representations(thing)]
    shown += [("spans", "".join(span.to_json() for span in spans.get_finished_spans())), ("log", logged(handler.buffer))]
    for where, seen in shown:
        assert_hidden(held_key.key, seen, where)
        assert_hidden(held_token.key, seen, where)
    assert handler.buffer


@virtual_time
async def test_an_id_that_contains_the_key_is_dropped_and_the_contact_uncertain() -> None:
    async def check(key: str, encoding: str) -> None:
        answer = PLACES["id"](ENCODINGS[encoding](key))
        client = OutreachClient(transport=one_response(answer), owner_key=key, workspace="space_1")
        created = await client.contacts.create(CONTACT)
        assert (created.status, created.id, created.certain) == ("added", None, False)
        assert created.possible == {"added", "skipped", "not_applied"}

    await check_rows_async(
        ((key, encoding) for key in [PLAIN, "key_~~~~~~~~", 'key_5f"1c/0b9a\\d7+'] for encoding in ENCODINGS), check
    )


@virtual_time
async def test_a_row_whose_id_contains_the_key_is_uncertain_in_the_journal_too(tmp_path: Path) -> None:
    client = OutreachClient(transport=one_response(PLACES["id"](PLAIN)), owner_key=PLAIN, workspace="space_1")
    report = await client.contacts.create_many([CONTACT], duplicates="overwrite", journal=tmp_path / "run.db")
    (outcome,) = Store(tmp_path / "run.db").outcomes()
    assert report.to_dict()["uncertain"] == 1
    assert (outcome.status, outcome.id, outcome.certain) == ("added", None, False)
    assert {"added", "overwriten", "not_applied"} <= outcome.possible


@pytest.mark.parametrize("name", ["contact_64f1c0a2b3d4e5f6a7b8c9d0", f"contact_{'5f1c0b9a-' * 6}", "contact_&%\\\\"])
@virtual_time
async def test_an_id_without_the_key_is_kept(name: str) -> None:
    answer = Response(200, {"x-request-id": "r" * 60}, b'{"status":"added","id":"%b","details":null}' % name.encode())
    created = await OutreachClient(transport=one_response(answer), owner_key=PLAIN, workspace="space_1").contacts.create(CONTACT)
    assert (created.id, created.certain, created.request_id) == (name.replace("\\\\", "\\"), True, "r" * 60)


def hang_up(peer: Peer) -> None:
    peer.request()


def refuse(peer: Peer) -> None:
    peer.request()
    peer.send(b"HTTP/1.1 502 down\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.thorough
@over(*PROXYING)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_behind_a_proxy_no_traceback_shows_key_or_authorization(make: Make, scheme: str) -> None:
    key, token = Held(PLAIN), Held("tok_77aa88bb99cc")
    for way in (hang_up, refuse):
        with Listener(way) as proxy:
            transport = make(f"{scheme}://user:{token.key}@service.example", proxy=f"http://localhost:{proxy.port}")
            client = OutreachClient(  # the key in no local variable, because tracebacks show those of this test
                transport=transport,
                owner_key=key.key,
                headers={"x-api-key": token.key},
                workspace="space_1",
                retry=RetryPolicy(attempts=1),
            )
            with pytest.raises(OutreachError) as caught:
                await client.contacts.create(CONTACT)
            await client.aclose()
        for where, seen in representations(caught.value):
            assert_hidden(key.key, seen, where)
            assert_hidden(token.key, seen, where)


@over(*ALL)
async def test_a_transport_removes_the_tracebacks_of_the_causes_of_an_error(make: Make) -> None:
    with Listener(hang_up) as listener:
        transport = make(f"http://localhost:{listener.port}")
        with pytest.raises(TransportError) as caught:
            await transport.send(Request("POST", "/contacts", {}, b"{}"), Progress())
        await transport.aclose()
    causes = [link for link in iterate_linked_errors(caught.value) if link is not caught.value]
    assert causes
    assert all(cause.__traceback__ is None for cause in causes)


class Broken:
    """Fails like a foreign transport, with the request in its locals."""

    async def send(self, request: Request, _progress: Progress, /) -> Response:
        unmasked = bytes(request.body)
        raise KeyError(len(unmasked))

    async def aclose(self) -> None: ...


async def test_a_foreign_transport_error_has_its_place_but_no_locals() -> None:
    held_key = Held(PLAIN)
    client = OutreachClient(transport=Broken(), owner_key=held_key.key, workspace="space_1", retry=RetryPolicy(attempts=1))
    with pytest.raises(TransportError) as caught:
        await client.contacts.create(CONTACT)
    assert "test_secrets.py" in caught.value.__notes__[0]
    assert "in send" in caught.value.__notes__[0]
    assert isinstance(caught.value.__cause__, KeyError)
    for where, seen in representations(caught.value):
        assert_hidden(held_key.key, seen, where)


class Waits:
    """Never responds and holds the request."""

    async def send(self, request: Request, _progress: Progress, /) -> Response:
        unmasked = bytes(request.body), dict(request.headers)
        await anyio.sleep_forever()
        raise AssertionError(unmasked)

    async def aclose(self) -> None: ...


@pytest.mark.thorough
@pytest.mark.parametrize("act", ["create", "request"])
async def test_the_traceback_of_a_cancelled_call_shows_no_key(act: str) -> None:
    held_key, ended = Held(PLAIN), []
    client = OutreachClient(transport=Waits(), workspace="space_1")

    async def call() -> None:
        try:
            if act == "create":
                await client.contacts.create(CONTACT, owner_key=held_key.key)
            else:
                await client.request("POST", "/contacts", body=held_key.key.encode(), headers={"authorization": held_key.key})
        except BaseException as error:
            ended.append(error)
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    for where, seen in representations(ended[0]):
        assert_hidden(held_key.key, seen, where)


async def opened(**options: Any) -> None:
    async with load_config(os.devnull).clients("space_1", base_url="https://a.example", **options):
        pass


def written(text: str) -> Path:
    Path("outreach.toml").write_text(text, encoding="utf-8")
    Path("outreach.toml").chmod(0o600)
    return Path("outreach.toml")


WRONG: Final[dict[str, Callable[[OutreachClient, str], Any]]] = {
    "two keys": lambda client, key: client.contacts.create(CONTACT, owner_key=f"{key} {key}"),
    "key as workspace": lambda client, key: client.contacts.create(CONTACT, workspace=key),
    "wrong option beside a key": lambda client, key: client.contacts.create(CONTACT, owner_key=key, duplicates="no"),  # type: ignore[arg-type]
    "wrong option of many": lambda client, key: client.contacts.create_many([], owner_key=key, concurrency=0),
    "wrong option of a copy": lambda client, key: client.with_options(owner_key=key, headers={"a": key}, timeout=0),
    "wrong header of a request": lambda client, key: client.request("GET", "/", headers={"authorization": f"{key}\n"}),
    "wrong method beside a body": lambda client, key: client.request("get", "/", body=key.encode()),
    "key as campaign": lambda client, key: client.campaigns.steps(key),
    "key as workspace of fields": lambda client, key: client.workspaces.fields(workspace=key),
    "key as workspace of a list": lambda client, key: client.mailboxes.list(workspace=key),
    "wrong option of a client": lambda _, key: OutreachClient("https://a.example", owner_key=key, headers={"a": key}, timeout=0),
    "wrong option of a sync client": lambda _, key: SyncClient("https://a.example", owner_key=key, timeout=0),
    "key as workspace of a sync list": lambda _, key: SyncClient("https://a.example").mailboxes.list(workspace=key),
    "wrong file of a sync client": lambda _, key: SyncClient.from_config(os.devnull, owner_key=key, timeout=0),
    "wrong option of a sync copy": lambda _, key: SyncClient("https://a.example").with_options(owner_key=key, timeout=0),
    "wrong option of a file's client": lambda _, key: load_config(os.devnull).client(owner_key=key, timeout=0),
    "wrong option of a file's clients": lambda _, key: opened(owner_key=key, timeout=0),
    "key as workspace of a file": lambda _, key: load_config(os.devnull).client(key),
    "key as selector": lambda _, key: load_config(os.devnull).find(key),
    "key in a file": lambda _, key: load_config(written(f"owner_key = '{key}'")),
    "password in a wrong URL": lambda _, key: HttpxTransport(f"https://user:{key}@a.example/?"),
    "password in a wrong proxy": lambda _, key: HttpxTransport("https://a.example", proxy=f"ftp://user:{key}@a.example"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_the_traceback_of_a_refused_argument_shows_no_key(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    held_key = Held(PLAIN)

    async def call() -> InvalidRequest:
        client = OutreachClient(transport=Waits(), workspace="space_1", owner_key=held_key.key)
        try:
            await WRONG[wrong](client, held_key.key)
        except InvalidRequest as error:
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next and error.__traceback__.tb_next.tb_next
            return error
        raise AssertionError("it was not refused")

    for where, seen in representations(await call()):  # without the frames of this test, which contain the key
        assert_hidden(held_key.key, seen, where)


def test_tools_that_expand_attributes_find_no_key_in_an_operation() -> None:
    held_key = Held(PLAIN)
    client = OutreachClient(
        transport=Waits(), owner_key=held_key.key, headers={"authorization": held_key.key}, workspace="space_1"
    )
    creation = client.contacts._contact_requests(None, None, duplicates="skip", strict_validation=True, campaign=None)
    operation = creation.build(CONTACT)
    response = Response(200, {"x-echo": held_key.key}, held_key.key.encode())
    url = parse_base_url(f"https://user:{held_key.key}@a.example")
    for thing in (creation, operation, operation.request, response, url, client._settings, client.contacts):
        for where, seen in representations(thing):
            assert_hidden(held_key.key, seen, where)
    assert held_key.key.encode() in operation.request.body


@virtual_time
async def test_the_error_of_a_row_has_no_frames() -> None:
    for transport in (one_response(Response(422, {}, b"{}")), Broken()):
        client = OutreachClient(transport=transport, owner_key=PLAIN, workspace="space_1", retry=RetryPolicy(attempts=1))
        async with client.contacts.create_many([CONTACT]) as outcomes:
            (error,) = [outcome.error async for outcome in outcomes]
        assert isinstance(error, OutreachError)
        assert [link.__traceback__ for link in iterate_linked_errors(error)] == [None] * len([*iterate_linked_errors(error)])


def test_a_secret_is_only_shown_by_reveal() -> None:
    secret = Secret(PLAIN)
    assert (repr(secret), str(secret), f"{secret}", secret.reveal()) == ("Secret('***')", "***", "***", PLAIN)
    assert {secret} == {Secret(PLAIN)}
    assert secret not in {PLAIN, Secret("other")}
    assert not hasattr(secret, "__dict__")
