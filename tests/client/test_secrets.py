"""A scan for keys and header credentials in everything the library logs, shows, raises or pickles when a call fails."""

from __future__ import annotations

import copy
import io
import json
import logging
import pickle
import traceback
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any
from urllib.parse import quote, quote_plus

import anyio
import attrs
import pytest
from support.tables import check_rows_async
from support.time import virtual_time

from outreach_async import (
    InvalidRequest,
    NewContact,
    OutreachClient,
    OutreachError,
    Progress,
    Request,
    Response,
    RetryPolicy,
    TransportError,
)

CONTACT = NewContact("a@b.example")


@attrs.frozen
class Secrets:
    """Secrets that must not be shown: keys and headers of the client and of a call."""

    key: str
    call_key: str
    token: str
    cookie: str

    def all(self) -> list[str]:
        return [self.key, self.call_key, self.token, self.cookie]

    def client(self, transport: Any, **options: Any) -> OutreachClient:
        headers = {"Authorization": f"Bearer {self.token}", "x-plain": "plain"}
        return OutreachClient(transport=transport, owner_key=self.key, workspace="space_1", headers=headers, **options)


PLAIN = Secrets("key_5f1c0b9ad7e24c63", "key_8e7d6c5b4a392817", "eyJhbGciOi.J9-Zm9v_YmFy", "sid=7c9e6679f3")
ODD = Secrets('key_5f"1c/0b 9a\\d7+é%2F', "key_\u2603'8e\t7d&6c", "eyJh+bGci/Oi~J9==", 'sid="7c 9e"; id=6679')
each_kind = pytest.mark.parametrize("secrets", [PLAIN, ODD], ids=["plain", "odd"])


@cache
def spellings(secret: str) -> set[bytes]:
    """Encode a secret as JSON, Python, a URL, a form and a pickle would."""
    texts = {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        ascii(secret)[1:-1],
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
    }
    return {text.encode() for text in texts} | {secret.encode("raw_unicode_escape"), secret.encode("utf-16-le")}


def assert_hidden(secrets: Secrets, shown: bytes, where: object) -> None:
    for secret in secrets.all():
        for spelling in spellings(secret):
            at = shown.find(spelling)
            assert at < 0, f"{type(where).__name__}: {shown[max(0, at - 80) : at + 80]!r}"


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """Return an error with the errors that a traceback shows with it."""
    if error is not None:
        yield error
        yield from chain(error.__cause__ if error.__suppress_context__ else error.__context__)


def views(thing: Any) -> Iterator[bytes]:
    """Return every representation of an object."""
    yield repr(thing).encode()
    yield str(thing).encode()
    for each in chain(thing if isinstance(thing, BaseException) else getattr(thing, "error", None)):
        yield "".join(traceback.format_exception(each, limit=0)).encode()  # omits the source lines of the tests
        yield repr(vars(each)).encode()
        if isinstance(each, OutreachError):
            yield from pickles(each)
            yield repr(vars(copy.copy(each))).encode()


def pickles(thing: Any) -> Iterator[bytes]:
    for protocol in (0, 2, pickle.HIGHEST_PROTOCOL):
        buffer = io.BytesIO()
        pickler = pickle.Pickler(buffer, protocol)
        # Ignore the reducers of other libraries: tblib, which Dask uses, also pickles the causes of errors.
        pickler.dispatch_table = {}
        pickler.dump(thing)
        yield buffer.getvalue()


def log_views(records: list[logging.LogRecord]) -> Iterator[bytes]:
    formatter = logging.Formatter("%(name)s %(message)s")
    for record in records:
        yield formatter.format(record).encode()
        yield repr(vars(record)).encode()


def sent_in(request: Request) -> str:
    members: dict[str, Any] = json.loads(request.body or b"{}")
    return " ".join([*request.headers.values(), *(value for value in members.values() if isinstance(value, str))])


# Actions of a program


async def listed(client: OutreachClient, _secrets: Secrets) -> Any:
    return [item async for item in client.campaigns.list()]


async def paged(client: OutreachClient, _secrets: Secrets) -> Any:
    return [page async for page in client.mailboxes.list().pages()]


async def collected(client: OutreachClient, _secrets: Secrets) -> Any:
    return await client.campaigns.list().collect()


async def keep_undecodable(client: OutreachClient, _secrets: Secrets) -> Any:
    page = await client.mailboxes.list(undecodable="keep")
    return [page, *page.undecodable]


async def many(client: OutreachClient, secrets: Secrets) -> Any:
    run = client.contacts.create_many([CONTACT, {"email": ""}, CONTACT], owner_key=secrets.call_key)
    seen: list[Any] = [run]
    try:
        async with run as outcomes:
            seen += [outcomes, outcomes._pipeline._plan.source]
            async for outcome in outcomes:
                seen.append(outcome)
    except OutreachError as error:
        seen.append(error)
    return [*seen, outcomes.report, outcomes.report.to_dict()]


async def raw(client: OutreachClient, secrets: Secrets) -> Any:
    body = json.dumps({"owner_key": secrets.key}).encode()
    return [await client.request("POST", "/contacts", body=body, headers={"Cookie": secrets.cookie})]


ACTS: dict[str, Callable[[OutreachClient, Secrets], Awaitable[Any]]] = {
    "create": lambda client, _: client.contacts.create(CONTACT),
    "create, key of the call": lambda client, secrets: client.contacts.create(CONTACT, owner_key=secrets.call_key),
    "create_many": many,
    "request": raw,
    "page": lambda client, _: client.campaigns.list(),
    "items": listed,
    "pages": paged,
    "collect": collected,
    "keep": keep_undecodable,
    "steps": lambda client, _: client.campaigns.steps("camp_1"),
    "fields": lambda client, _: client.workspaces.fields(),
    "copy": lambda client, _: client.with_options(workspace="space_2").mailboxes.list(),
}
each_act = pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)


@attrs.frozen
class Scan:
    """Performs actions under full logging and searches everything they produce."""

    log: pytest.LogCaptureFixture
    capture: pytest.CaptureFixture[bytes]

    async def __call__(self, secrets: Secrets, transport: Any, act: Any, **options: Any) -> list[Any]:
        client = secrets.client(transport, retry=RetryPolicy(attempts=2), deadline=5.0, **options)
        self.log.clear()
        with self.log.at_level(logging.DEBUG):
            try:
                result = await act(client, secrets)
            except OutreachError as error:
                result = error
        things = result if isinstance(result, list) else [result]
        for thing in [*things, client, client.contacts, client._settings, client._settings.request_defaults]:
            assert_hidden(secrets, b"\n".join(views(thing)), thing)
        assert self.log.records or isinstance(result, InvalidRequest)
        assert_hidden(secrets, b"\n".join([*log_views(self.log.records), *self.capture.readouterr()]), "log")
        return things


@pytest.fixture
def scan(caplog: pytest.LogCaptureFixture, capfdbinary: pytest.CaptureFixture[bytes]) -> Scan:
    return Scan(caplog, capfdbinary)


async def no_answer(request: Request, _progress: Progress) -> Response:
    raise TransportError(f"lost: {sent_in(request)}", maybe_sent=True)


async def chained(request: Request, _progress: Progress) -> Response:
    try:
        raise KeyError(sent_in(request))  # noqa: TRY301 - an error of the HTTP library, which the adapter converts
    except KeyError as error:
        raise TransportError("lost", maybe_sent=False) from error


async def foreign(request: Request, _progress: Progress) -> Response:
    raise RuntimeError(sent_in(request), request.body)


async def foreign_and_chained(request: Request, _progress: Progress) -> Response:
    try:
        raise OSError(7, sent_in(request))  # noqa: TRY301 - the same
    except OSError:
        raise ValueError(request.headers) from ConnectionResetError(request.body)


async def silent(_request: Request, _progress: Progress) -> Response:
    await anyio.sleep_forever()
    raise AssertionError("for ever is over")


async def stuck(request: Request, progress: Progress) -> Response:
    progress.sent = False
    return await silent(request, progress)


async def refused_connection(request: Request, _progress: Progress) -> Response:
    raise ConnectionRefusedError(111, sent_in(request))


class Fails:
    """A transport that always fails in the same way."""

    def __init__(self, way: Callable[[Request, Progress], Awaitable[Response]]) -> None:
        self.way = way

    async def send(self, request: Request, progress: Progress, /) -> Response:
        await anyio.sleep(1.0)
        return await self.way(request, progress)

    async def aclose(self) -> None: ...


@virtual_time
@each_kind
@each_act
async def test_a_transport_error_that_quotes_the_request_shows_no_secret(
    act: Any, secrets: Secrets, scan: Scan, anyio_backend_name: str
) -> None:
    ways = (no_answer, chained, foreign, foreign_and_chained, silent, stuck, refused_connection)
    for turn, way in enumerate(ways, anyio_backend_name == "trio"):
        await scan(secrets, Fails(way), act, **({"timeout": None} if turn % 2 else {}))  # swapped on the other event loop


async def never(_request: Request, _progress: Progress) -> Response:
    raise AssertionError("something was sent")


def misplaced(key: Any) -> dict[str, Callable[[OutreachClient], Any]]:
    """Return calls that pass a key where none belongs, or an invalid key."""
    return {
        "as workspace": lambda c: c.contacts.create(CONTACT, workspace=key),
        "as the client's workspace": lambda c: c.with_options(workspace=key).campaigns.list(),
        "as workspace of many": lambda c: c.contacts.create_many([CONTACT], workspace=key),
        "as workspace of fields": lambda c: c.workspaces.fields(workspace=key),
        "as campaign": lambda c: c.campaigns.steps(key),
        "as campaign of a creation": lambda c: c.contacts.create(CONTACT, campaign=key),
        "as duplicates": lambda c: c.contacts.create(CONTACT, duplicates=key),
        "as strict_validation": lambda c: c.contacts.create(CONTACT, strict_validation=key),
        "as code": lambda c: c.contacts.create(NewContact("a@b.co", custom={key: "x"})),
        "as member": lambda c: c.contacts.create({"email": "a@b.co", key: "x"}),
        "as contact": lambda c: c.contacts.create(key),
        "as rows": lambda c: c.contacts.create_many(key),
        "as concurrency": lambda c: c.contacts.create_many([], concurrency=key),
        "as order": lambda c: c.contacts.create_many([], order=key),
        "as page": lambda c: c.campaigns.list(page=key),
        "as display": lambda c: c.campaigns.list(display=key),
        "as undecodable": lambda c: c.campaigns.list(undecodable=key),
        "as prefetch": lambda c: c.campaigns.list().collect(prefetch=key),
        "as timeout": lambda c: c.campaigns.list(timeout=key),
        "as method": lambda c: c.request(key, "/"),
        "as target": lambda c: c.request("GET", key),
        "as body": lambda c: c.request("GET", "/", body=key),
        "as headers": lambda c: c.request("GET", "/", headers=key),
        "as header, with a line break": lambda c: c.request("GET", "/", headers={"authorization": f"{key}\n"}),
        "as the client's header": lambda c: c.with_options(headers={"authorization": f"{key}\n"}),
        "with a blank before it": lambda c: c.contacts.create(CONTACT, owner_key=f" {key}"),
        "with a scheme before it": lambda c: c.contacts.create(CONTACT, owner_key=f"Bearer {key}"),
        "with a lone surrogate": lambda c: c.contacts.create(CONTACT, owner_key=f"{key}\ud800"),
    }


@each_kind
async def test_a_key_in_the_wrong_place_is_refused_without_being_shown(secrets: Secrets, scan: Scan) -> None:
    async def check(place: str) -> None:
        async def act(client: OutreachClient, secrets: Secrets) -> Any:
            try:
                await misplaced(secrets.key)[place](client)
            except InvalidRequest as error:
                return error
            raise AssertionError("it was not refused")

        (error,) = await scan(secrets, Fails(never), act)
        assert isinstance(error, InvalidRequest)

    await check_rows_async(((place,) for place in misplaced("")), check)
