"""Hostile responses, and all operations that may receive them. Used by Hypothesis tests and by tools/fuzz.py."""

from __future__ import annotations

import json
import tempfile
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import attrs
from hypothesis import strategies as st
from tools.journal_child import open_journal, steps

from outreach_async import NewContact, OutreachClient, OutreachError, Request, Response, RetryPolicy
from outreach_async._core import operations as made
from outreach_async._core.operations import ContactRequests, CopyDetector, Operation, RequestDefaults
from outreach_async.audit import Report, audit
from outreach_async.converters import OutreachConverter
from outreach_async.fake import Behaviour, FakeService, FakeTransport
from outreach_async.fake.behaviour import dump_behaviour

KEY: Final = "key_4f9a8b7c6d5e"
CONTACT: Final = NewContact("ann@company.example")


async def _walked(client: OutreachClient) -> object:
    """Read at most 50 campaigns, because a hostile service may list campaigns without end."""
    return [item async for item in client.campaigns.list(max_items=50)]


OPERATIONS: Final[dict[str, Callable[[OutreachClient], Awaitable[object]]]] = {
    "list_campaigns": lambda client: client.campaigns.list(),
    "list_mailboxes": lambda client: client.mailboxes.list(),
    "list_mailboxes, kept": lambda client: client.mailboxes.list(undecodable="keep"),
    "every campaign": _walked,
    "list_steps": lambda client: client.campaigns.steps("camp_1"),
    "list_fields": lambda client: client.workspaces.fields(),
    "create_contact": lambda client: client.contacts.create(CONTACT),
    "request": lambda client: client.request("POST", "/contacts", body=b'{"owner_key":"%b"}' % KEY.encode()),
}
"""Every operation, by name."""

operations = st.sampled_from(sorted(OPERATIONS))


def client_of(transport: Any, **options: Any) -> OutreachClient:
    """Return a client without retries."""
    return OutreachClient(transport=transport, owner_key=KEY, workspace="space_1", retry=RetryPolicy(attempts=1), **options)


@attrs.frozen
class Ending:
    """The result of a call, reduced to what must not depend on the transport."""

    kind: str
    message: str
    facts: str = ""


async def ending(client: OutreachClient, operation: str) -> Ending:
    """Call an operation and return its result. Errors that do not come from the library are raised."""
    try:
        result = await OPERATIONS[operation](client)
    except OutreachError as error:
        return Ending(type(error).__name__, str(error), repr(sorted(vars(error).items())))
    shown = repr((result.status, result.body, sorted(result.headers.items()))) if isinstance(result, Response) else repr(result)
    return Ending(type(result).__name__, shown)


@contextmanager
def grows_by_at_most(megabytes: float) -> Iterator[None]:
    """Fail if the memory of Python objects grows by more than this within the block."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()
    assert peak <= megabytes, f"peak memory grew by {peak:.1f} MB, expected at most {megabytes} MB"


# Answers


@cache
def good_answers() -> tuple[bytes, ...]:
    """Return the bodies of valid responses to each operation, including a duplicate and an error."""
    fake = FakeService(seed=5)
    space = fake.add_workspace("space_1", custom_fields=["Plan"])
    fake.add_owner_key(space, key=KEY)
    boxes = fake.add_mailboxes(space, 2)
    fake.add_campaign(space, id="camp_1", name="Spring", status="live", mailboxes=boxes, steps=["A|PER"])
    options = {"duplicates": "skip", "strict_validation": True, "campaign": None}
    member = {"owner_key": KEY, "workspace": space, "email": "a@b.example", "upload_options": options}
    create = Request("POST", "/contacts", {"content-type": "application/json"}, json.dumps(member).encode())
    reads = [
        "/campaigns?workspace=space_1&page=1&display=5",
        "/mailboxes?workspace=space_1&page=1&display=5",
        "/campaigns/camp_1/steps",
        "/workspaces/space_1/all-fields",
        "/nowhere",
    ]
    requests = [create, create, *(Request("GET", target) for target in reads)]
    return tuple(fake.handle(request).body for request in requests)


ODD_VALUES: Final = (
    b"null", b"true", b"-0", b"1e308", b"1e999", b"-1e-999", b"9" * 400, b"9" * 5_000, b"NaN", b"-Infinity", b'""', b'"\\ud800"',
    b'"\\udfff\\ud800"', b'"\xff\xfe"', b'"\xed\xa0\x80"', b'"\\u0000"', b"[]", b"{}", b"[" * 100_000, b"[" * 500 + b"]" * 500,
    b'{"a":' * 20_000, b'{"error":' * 300 + b"1" + b"}" * 300, b'{"id":"a","id":1,"id":null}', b'"key_4f9a8b7c6d5e"',
    b"[{},{},{}]", b"//",
)  # fmt: skip
"""Values that may break a JSON parser."""

ODD_BODIES: Final = (
    b"",
    b" ",
    b"\x00",
    b"\xef\xbb\xbf{}",
    b"<html>" + b"<" * 10_000,
    b"\\" * 20_000,
    b"{" * 100_000,
    *ODD_VALUES,
    *(b'{"error":%b}' % value for value in ODD_VALUES),
    *(
        b'{"status":"ok","headers":[],"data":[%b],"total_found":1,"current_page":1,"total_pages":9}' % value
        for value in ODD_VALUES
    ),
    *(b'{"status":"ok","headers":[],"data":[],"total_found":%b,"current_page":1,"total_pages":%b}' % (v, v) for v in ODD_VALUES),
    *(b'{"status":%b,"id":"contact_1","details":null,"new":%b}' % (value, value) for value in ODD_VALUES),
    *(b'{"status":"ok","data":%b}' % value for value in ODD_VALUES),
)


@st.composite
def mutated(draw: st.DrawFn, sources: tuple[bytes, ...]) -> bytes:
    """Draw one of the sources, with sections replaced, removed or repeated."""
    data = draw(st.sampled_from(sources))
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(data)))
        end = draw(st.integers(start, min(len(data), start + 40)))
        data = data[:start] + draw(st.sampled_from([b"", data[start:end] * 2, *ODD_VALUES]) | st.binary(max_size=8)) + data[end:]
    return data


def _member_swapped(source: bytes, place: int, value: bytes) -> bytes:
    """Replace the value of one member of a JSON document."""
    colons = [at for at, byte in enumerate(source) if byte == ord(":")]
    start = colons[place % len(colons)] + 1 if colons else 0
    end = next((at for at in range(start, len(source)) if source[at] in b",}]"), len(source))
    return source[:start] + value + source[end:]


bodies = st.deferred(
    lambda: st.one_of(
        st.binary(max_size=100),
        st.sampled_from(ODD_BODIES),
        mutated(good_answers()),
        st.builds(_member_swapped, st.sampled_from(good_answers()), st.integers(0, 99), st.sampled_from(ODD_VALUES)),
    )
)
"""Draws a response body, valid or hostile."""

statuses = st.sampled_from([200, 200, 200, 201, 299, 300, 302, 400, 401, 404, 429, 500, 503, 599, 100, 999, 0])

_TEXTS: Final = (
    "",
    "0",
    "1e9",
    "9" * 30,
    "9" * 5_000,
    "Sun, 06 Nov 1994 08:49:37 GMT",
    "Sun, , 1 2 3 4",
    "\x1b[2J",
    "\udcff",
    KEY,
)
fields = st.dictionaries(
    st.sampled_from(["retry-after", "date", "x-request-id", "content-type", "set-cookie", "location", f"x-{KEY}"])
    | st.text(max_size=8),
    st.sampled_from(_TEXTS) | st.text(max_size=30) | st.text("0123456789:+-, GMTSunNov", max_size=30),
    max_size=4,
)
"""Draws response headers as a transport returns them."""

answers = st.builds(Response, statuses, fields, bodies)
"""Draws a response as a transport returns it."""


# Files written by the library


@cache
def every_operation() -> tuple[Operation[Any], ...]:
    """Return all operations as a client creates them."""
    dialect = attrs.evolve(RequestDefaults.from_headers({}, OutreachConverter), secrets=(KEY,))
    options = {"duplicates": "skip", "strict_validation": True, "campaign": None}
    creation = ContactRequests.from_options(KEY, "space_1", dialect, copy_detector=CopyDetector(), **options)
    return (
        made.list_campaigns("space_1", 5, dialect, keep=False)(1),
        made.list_campaigns("space_1", 5, dialect, keep=True)(1),
        made.list_mailboxes("space_1", 5, dialect, keep=True)(1),
        made.list_steps("camp_1", dialect),
        made.list_fields("space_1", dialect),
        creation.build(CONTACT),
        creation.row_operation,
    )


@cache
def a_journal() -> bytes:
    """Return the content of the journal of a finished run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.db")
        writer = open_journal(path)
        for _ in steps(writer):
            pass
        writer.close()
        return path.read_bytes()


@cache
def an_audit() -> Report:
    """Return the report of an audit of two mailboxes with findings."""
    fake = FakeService(seed=1, clock="2026-01-01T00:00:00Z")
    space = fake.add_workspace("space_1")
    fake.add_mailboxes(space, 2, domain="b.example", spf=False, blacklists=2)
    client = OutreachClient(transport=FakeTransport(fake), workspace=space)
    return anyio.run(partial(audit, client, [space], clock=lambda: 1_767_225_600.0))


@cache
def a_world() -> str:
    """Return the dump of a fake with a live campaign."""
    fake = FakeService(seed=1)
    space = fake.add_workspace("space_1", custom_fields=["Plan"])
    fake.add_owner_key(space, key=KEY)
    campaign = fake.add_campaign(space, name="S", status="live", mailboxes=fake.add_mailboxes(space, 2), steps=["A|B", "A"])
    fake.add_contacts(space, 3, campaign=campaign)
    fake.advance(days=1)
    return fake.dump()


@cache
def a_behaviour() -> str:
    """Return the dump of the documented behaviour."""
    return dump_behaviour(Behaviour())
