"""For any response, a call returns or raises an error of this package, in bounded memory and time."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import re
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import anyio.lowlevel
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fuzz import KEY, ODD_BODIES, OPERATIONS, answers, client_of, ending, grows_by_at_most, operations
from support.paging import mailbox
from support.time import virtual_time
from support.transport import Script
from support.wire import KINDS, OF_EVERY_KIND, TABLES, faults_of, load, places, unhurried, wire, with_value, without_member

from outreach_async import OutreachClient, Progress, Request, Response
from outreach_async._core.responses import (
    MASK,
    _secret_patterns,
    build_status_error,
    mask_bytes,
)
from outreach_async.converters import OutreachConverter
from outreach_async.errors import BODY_LIMIT, OutreachError, TransportError, UnexpectedResponse, strip_invisible
from outreach_async.models import CampaignSteps, Mailbox, Page

MEGABYTE = 1_000_000
LIST = b'{"status":"ok","headers":[],"total_found":1,"current_page":1,"total_pages":1,"data":[%b]}'


@settings(unhurried, max_examples=scaled(60))
@given(operations, answers)
async def test_any_response_ends_in_a_result_or_an_error_of_ours(operation: str, answer: Response) -> None:
    async with client_of(Script(answer)) as client:
        try:
            result = await OPERATIONS[operation](client)
        except OutreachError as error:
            assert len(error.body) <= BODY_LIMIT  # noqa: PT017 - there may be none
            assert len(str(error)) <= 1_500  # noqa: PT017 - there may be none
            for seen in (str(error), repr(vars(error)), repr(pickle.loads(pickle.dumps(error))), repr(copy.copy(error))):  # noqa: S301 - our own bytes
                assert KEY not in seen
        else:
            assert operation == "request" or answer.status < 300
            repr(result)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_the_strangest_bodies_end_in_a_result_or_an_error_of_ours(operation: str, anyio_backend_name: str) -> None:
    for status in (200, 400):
        for body in ODD_BODIES[anyio_backend_name == "trio" :: 2]:  # half of the bodies on each event loop
            async with client_of(Script(Response(status, {}, body))) as client:
                assert (await ending(client, operation)).kind in {
                    *("Response", "Page", "list", "FieldList", "CampaignSteps", "CreatedContact"),
                    *("UnexpectedResponse", "StatusError", "ContactRejected"),
                }


FLOODS: dict[str, bytes] = {
    "items without members": LIST % b",".join([b"{}"] * 20_000),
    "items of the wrong kind": LIST % b",".join([b"1"] * 30_000),
    "steps of templates without members": b'{"status":"ok","days_left":1,"days_left_date":"","days_left_display":"","data":[%b]}'
    % b",".join([b'{"templates":[%b]}' % b",".join([b"{}"] * 500)] * 60),
    "headers that are no texts": b'{"status":"ok","headers":[%b]}' % b",".join([b"1"] * 30_000),
    "empty lists": b'{"status":"ok","data":[%b]}' % b",".join([b"[]"] * 20_000),
    "members that nobody knows": b'{%b"status":"ok"}' % b"".join(b'"%x":{},' % number for number in range(4_000)),
    "one long text": b'{"status":"%b"}' % (b"x" * 200_000),
    "one long error": b'{"error":"%b"}' % (b"x" * 200_000),
    "keys": (KEY.encode() + b" ") * 12_000,
}


@pytest.mark.nightly
@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("kind", [Page[Mailbox], CampaignSteps], ids=["page", "steps"])
def test_decoding_nonsense_takes_a_bounded_multiple_of_its_size(kind: Any, flood: str) -> None:
    for keep in (False, True):
        with grows_by_at_most(16):
            fault = faults_of(kind, FLOODS[flood], keep=keep)
        assert len(fault) < 500_000


def test_a_large_body_that_is_not_json_is_one_fault() -> None:
    assert faults_of(Page[Mailbox], b"<html>" + b" " * 2**21) == "$: expected JSON, got a page of HTML or XML"


def test_only_the_first_faults_of_a_list_of_nonsense_are_reported() -> None:
    page = LIST % b",".join([b"1"] * 100)
    expected = [f"$.data[{index}]: expected object, got int" for index in range(20)]
    assert faults_of(Page[Mailbox], page) == "; ".join(expected)
    assert [item.index for item in load(Page[Mailbox], page, keep=True).undecodable] == [*range(100)]


@pytest.mark.thorough
def test_a_page_with_too_many_faults_is_itself_a_fault() -> None:
    assert len(load(Page[Mailbox], LIST % b",".join([b"1"] * 10_000), keep=True).undecodable) == 10_000
    assert faults_of(Page[Mailbox], LIST % b",".join([b"1"] * 10_001), keep=True).startswith(
        "$.data[0]: expected object, got int; "
    )


@pytest.mark.parametrize("status", [200, 400])
@pytest.mark.parametrize("body", [b'{"status":"%b' % FLOODS["keys"], b'{"error":"%b"}' % FLOODS["keys"], b"\\" * MEGABYTE])
async def test_an_error_is_built_from_the_beginning_of_a_large_response(status: int, body: bytes) -> None:
    response = Response(status, {f"x-{number}": "y" * MEGABYTE for number in range(3)}, body)
    async with client_of(Script(response)) as client:
        await ending(client, "create_contact")  # imports what it needs
        with grows_by_at_most(1), pytest.raises(OutreachError) as caught:  # its parts have about 20 KB each
            await OPERATIONS["create_contact"](client)
    error = caught.value
    assert len(error.body) <= BODY_LIMIT
    assert len(pickle.dumps(error)) < 100_000
    assert KEY not in repr(vars(error)) + str(error)


async def test_headers_beyond_what_any_backend_accepts_are_left_out() -> None:
    async with client_of(Script(Response(400, {f"x-{number}": "y" for number in range(1_000)}, b""))) as client:
        with pytest.raises(OutreachError) as caught:
            await client.workspaces.fields()
    assert len(caught.value.headers) == 256


# Large responses, of which nothing is decoded that msgspec refuses

_LARGE = 2**21
_ITEMS = {"objects": b"{}", "lists": b"[]", "numbers": b"1", "nested lists": b"[" * 40 + b"]" * 40}


def _filled(form: bytes, item: bytes) -> bytes:
    return form % b",".join([item] * (_LARGE // (len(item) + 1)))


LARGE: dict[str, Callable[[], bytes]] = {
    **{f"items that are {name}": partial(_filled, LIST, item) for name, item in _ITEMS.items()},
    **{f"no object but {name}": partial(_filled, b"[%b]", item) for name, item in _ITEMS.items()},
    **{f"an unknown member of {name} and no status": partial(_filled, b'{"x":[%b]}', item) for name, item in _ITEMS.items()},
    "deep nesting": lambda: b'{"data":' + b"[" * _LARGE,
    "one long text": lambda: b'{"status":"%b"}' % (b"x" * _LARGE),
    "what is cut": lambda: (LIST % (b"[]," * (_LARGE // 3)))[:-9],
}


class Marked(bytes):
    """A body that records its deletion, which `bytes` does not."""

    gone: list[bool]

    def __del__(self) -> None:
        self.gone.append(True)


class Foreign(KeyError):
    """A foreign transport error that can be weakly referenced."""


class Turns:
    """Plays its answers in order and repeats the last one. Responses are created each time; exceptions are raised."""

    def __init__(self, *answers: Response | type[Exception]) -> None:
        self._answers = [*answers]
        self.acquired: list[bool] = []
        self.gone: list[bool] = []

    async def send(self, _request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        async with anyio.create_task_group() as group:
            # In a separate task: on Python 3.13, trio's sleep leaves a cycle with the frames of the sleeping task.
            group.start_soon(anyio.sleep, 1.0)
        self.acquired.append(True)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Response):
            body = Marked(answer.body)
            body.gone = self.gone
            return Response(answer.status, {}, body)
        error = answer("lost")
        weakref.finalize(error, self.gone.append, True)
        raise error

    async def aclose(self) -> None: ...


@contextmanager
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@virtual_time
@pytest.mark.nightly
@pytest.mark.parametrize("flood", LARGE)
@pytest.mark.parametrize("operation", ["list_mailboxes", "list_mailboxes, kept", "create_contact"])
async def test_a_large_invalid_response_takes_little_memory_and_leaves_none(operation: str, flood: str) -> None:
    says = Turns(Response(200, {}, LARGE[flood]()))
    client = client_of(says)
    await ending(client, operation)
    with without_collector(), grows_by_at_most(10 * _LARGE / 1e6):
        ended = await ending(client, operation)
        assert says.gone == [True, True]
        assert tracemalloc.get_traced_memory()[0] < 200_000
    assert ended.kind == "UnexpectedResponse"


NO, YES = Response(503, {}, b"x" * MEGABYTE), Response(200, {}, b'{"status":"added","id":"contact_1","details":null}')
TURNS: dict[str, tuple[Response | type[Exception], ...]] = {
    "refused": (NO,),
    "faults": (Response(200, {}, b"{}"),),
    "no JSON": (Response(200, {}, b"[" * 200),),
    "foreign": (Foreign,),
    "lost": (TransportError,),
    "lost, then refused": (Foreign, NO),
    "refused, then answered": (NO, YES),
    "lost, then answered": (TransportError, Foreign, YES),
}


@virtual_time
@pytest.mark.parametrize("deadline", [None, 1.5])
@pytest.mark.parametrize("turns", TURNS)
async def test_a_failed_call_leaves_no_reference_cycles(turns: str, deadline: float | None) -> None:
    transport = Turns(*TURNS[turns])
    client = OutreachClient(transport=transport, owner_key=KEY, workspace="space_1", deadline=deadline)
    with without_collector():
        with suppress(OutreachError):
            await client.contacts.create({"email": "ann@company.example"})
        assert transport.gone == transport.acquired


@unhurried
@given(st.sampled_from(sorted(TABLES)).flatmap(lambda name: st.tuples(st.just(name), wire(name, unknown=False))), st.data())
def test_the_fault_of_a_large_response_is_one_of_those_of_a_small_one(
    answer: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    name, value = answer
    place = data.draw(st.sampled_from(places(name, value)))
    if place.way and isinstance(place.way[-1], str) and data.draw(st.booleans()):
        value = without_member(value, place.way)
    else:
        value = with_value(value, place.way, data.draw(st.sampled_from([o for o in OF_EVERY_KIND if type(o) not in place.takes])))
    body = json.dumps(value).encode()
    fault = faults_of(KINDS[name], body + b" " * 2**20)
    assert "; " not in fault
    assert fault in faults_of(KINDS[name], body).split("; ")


async def test_the_status_of_a_large_object_is_read_whatever_else_is_wrong() -> None:
    for body, states_error, well_formed in (
        (b'{"id":1,"status":"error"}', True, True),
        (b'{"id":1,"status":"error","data":[1]}', True, True),
        (b'{"id":"contact_1","status":[1]}', False, True),
        (b'{"id":"contact_1","status":1', False, False),
        (b'{"status":"ok","days_left":1e400}', False, False),
        (b'["status"]', False, False),
        (b"", False, False),
    ):
        async with client_of(Script(Response(200, {}, body + b" " * 2**20))) as client:
            with pytest.raises(UnexpectedResponse) as caught:
                await client.campaigns.steps("camp_1")
        assert (caught.value.states_error, caught.value.well_formed) == (states_error, well_formed)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("place", ["page", "item"])
@pytest.mark.parametrize(("value", "count"), [(b"[]", 600_000), (b"[[[[[[[{}]]]]]]]", 150_000), (b"0", 1_100_000)])
def test_too_many_values_in_unknown_members_are_refused_undecoded(keep: bool, place: str, value: bytes, count: int) -> None:
    unknown = b',"new":[%b]}' % b",".join([value] * count)
    item = json.dumps(mailbox("mailbox_1")).encode()
    body = LIST % (item[:-1] + unknown) if place == "item" else (LIST % item)[:-1] + unknown
    assert (
        faults_of(Page[Mailbox], body, keep=keep)
        == "$: expected at most 1,048,576 values in a body with unknown fields, got more"
    )
    hooked = OutreachConverter()
    hooked.register_structure_hook(bool, lambda value, _: value)
    with pytest.raises(ValueError, match="expected at most 1,048,576 values"):
        hooked.loads(body, Page[Mailbox], keep=keep)


def large_page(*items: Any, count: int = 2_600, **members: Any) -> bytes:
    """Encode a page of more than 1 MiB: valid mailboxes, then others."""
    page = {"status": "ok", "headers": [], "total_found": 1, "current_page": 1, "total_pages": 1}
    body = json.dumps({**page, "data": [*[mailbox("mailbox_1")] * count, *items], **members}).encode()
    assert len(body) > 2**20
    return body


def test_a_large_page_keeps_its_good_items_and_reports_the_others() -> None:
    odd = {**mailbox("mailbox_2"), "spf": "yes", "dkim": 1}
    page = load(Page[Mailbox], large_page(odd, {**mailbox("mailbox_3"), "new": "x: y"}, {"id": 7}, more={"a": [1]}), keep=True)
    assert (len(page.data), page.data[-1].extra, page.extra) == (2_601, {"new": "x: y"}, {"more": {"a": [1]}})
    first, second = page.undecodable
    assert (first.index, first.id, first.fields) == (2_600, "mailbox_2", odd)
    assert first.error == "$.data[2600].spf: expected bool, got str; $.data[2600].dkim: expected bool, got int"
    assert (second.id, second.fields) == (None, {"id": 7})


@pytest.mark.thorough
def test_bad_items_beyond_the_first_mebibyte_keep_only_one_fault_and_the_id() -> None:
    odd = {**mailbox("mailbox_2"), "spf": "yes", "dkim": 1}
    page = load(Page[Mailbox], large_page(*[odd] * 2_600, count=0, headers=["a"]), keep=True)
    assert len(page.undecodable) == 2_600
    assert page.undecodable[0].fields == odd
    assert page.undecodable[-1].fields == {"status": "active", "id": "mailbox_2"}
    assert page.undecodable[-1].error == "$.data[2599].spf: expected bool, got str"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (large_page(1, total_found="x"), r"\$\.total_found: expected number, got str"),
        (large_page(1, more=0).replace(b'"more"', b'"\xff"'), r"\$\.data\[2600\]: expected object, got int"),
        (large_page(1, more="?").replace(b"?", b"\xff"), r"\$: expected JSON: ('utf-8' codec can't|Invalid UTF-8) .*"),
        (LIST % b",".join([b"1"] * 600_000), r"\$\.data\[0\]: expected object, got int"),
        (LIST % b",".join([b'"%b"' % (b"x" * 120)] * 10_001), r"\$\.data\[0\]: expected object, got str"),
    ],
    ids=["wrong itself", "unknown member without a name", "unknown member that is no text", "too many items", "too many faults"],
)
def test_a_large_page_that_is_invalid_or_has_too_many_faults_is_refused(body: bytes, message: str) -> None:
    assert re.fullmatch(message, faults_of(Page[Mailbox], body, keep=True))


secrets = st.text(st.characters(codec="utf-8"), min_size=5, max_size=12)


@pytest.mark.thorough
@unhurried
@given(st.data(), secrets)
def test_no_spelling_of_a_secret_is_longer_than_the_margin_left_for_it(data: st.DataObject, secret: str) -> None:
    _, pattern = data.draw(st.sampled_from(_secret_patterns(secret)))
    assert len(data.draw(st.from_regex(pattern, fullmatch=True))) <= 64 * len(secret)


SPELLED = [
    KEY.encode(),
    b"".join(b"\\u%04x" % ord(each) for each in KEY),
    b"".join(b"\\\\\\\\\\\\\\\\U%08x" % ord(each) for each in KEY),
    b"".join(b"%%%02x" % ord(each) for each in KEY),
    KEY.encode("utf-16-le"),
]


@settings(unhurried, max_examples=scaled(60))
@given(st.sampled_from(SPELLED), st.integers(0, 1_600), st.booleans())
@example(SPELLED[2], 350, True)
def test_a_key_across_the_end_of_the_searched_part_leaves_no_trace(spelling: bytes, back: int, keys: bool) -> None:
    reach = 4 * BODY_LIMIT + 64 * len(KEY)
    lead = spelling * (reach // len(spelling)) if keys else b"x" * (reach - back)
    body = lead[: reach - back] if not keys else lead[back % len(spelling) :]
    whole = body + spelling + b"y" * reach
    error = build_status_error("op", Response(500, {"x": whole.decode("latin-1")}, whole), (KEY,), now=0.0)
    expected = mask_bytes(whole, (KEY,))
    assert expected.startswith(error.body)
    assert strip_invisible(expected.decode("latin-1")).startswith(error.headers["x"])
    assert len(error.body) > 0 or keys


def test_a_key_too_long_for_the_margin_leaves_no_trace() -> None:
    key = "key_" + "x" * 1_500
    error = build_status_error("op", Response(500, {}, key.encode() * 100), (key,), now=0.0)
    assert error.body == MASK.encode() * (len(error.body) // 3)
    assert "key_" not in str(error)
