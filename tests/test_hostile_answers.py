"""Whatever a service answers, a call returns or raises an error of the tree, in bounded memory and time."""

from __future__ import annotations

import copy
import json
import pickle
import random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support_fuzz import KEY, ODD_BODIES, OPERATIONS, Says, answers, client_of, ending, grows_by_at_most, operations
from support_wire import unhurried

from outreach_async.converters import DecodeError, loads, loads_each
from outreach_async.errors import BODY_LIMIT, OutreachError
from outreach_async.models import CampaignSteps, Mailbox, Page
from outreach_async.refusals import MASK, _spellings, masked, masked_headers, refused, unexpected
from outreach_async.transport.wire import Response

MEGABYTE = 1_000_000
LIST = b'{"status":"ok","headers":[],"total_found":1,"current_page":1,"total_pages":1,"data":[%b]}'


@settings(unhurried, max_examples=60)
@given(operations, answers)
async def test_any_answer_ends_a_call_with_a_result_or_an_error_of_the_tree(operation: str, answer: Response) -> None:
    async with client_of(Says(answer)) as client:
        try:
            given = await OPERATIONS[operation](client)
        except OutreachError as error:
            assert len(error.body) <= BODY_LIMIT  # noqa: PT017 - there may be none
            assert len(str(error)) <= 1_500  # noqa: PT017 - there may be none
            for seen in (str(error), repr(vars(error)), repr(pickle.loads(pickle.dumps(error))), repr(copy.copy(error))):  # noqa: S301 - our own bytes
                assert KEY not in seen
        else:
            assert operation == "request" or answer.status < 300
            repr(given)


@pytest.mark.parametrize("operation", OPERATIONS)
async def test_the_oddest_bodies_end_a_call_with_a_result_or_an_error_of_the_tree(
    operation: str, anyio_backend_name: str
) -> None:
    for status in (200, 400):
        for body in ODD_BODIES[anyio_backend_name == "trio" :: 2]:  # half of them on either loop
            async with client_of(Says(Response(status, {}, body))) as client:
                assert (await ending(client, operation)).kind in {
                    *("Response", "Page", "list", "CampaignSteps", "CreatedContact"),
                    *("UnexpectedResponse", "StatusError"),
                }


# Memory


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


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("kind", [Page[Mailbox], CampaignSteps], ids=["page", "steps"])
def test_nonsense_takes_a_bounded_multiple_of_its_size_to_read(kind: Any, flood: str) -> None:
    for load in (loads, loads_each) if kind is Page[Mailbox] else (loads,):
        with grows_by_at_most(16), pytest.raises(DecodeError) as caught:
            load(kind, FLOODS[flood])
        assert len(str(caught.value)) < 500_000


def test_of_a_list_of_nonsense_the_first_faults_are_told_and_all_is_kept_of_a_page_with_few() -> None:
    page = LIST % b",".join([b"1"] * 100)
    with pytest.raises(DecodeError) as caught:
        loads(Page[Mailbox], page)
    assert caught.value.faults == [f"$.data[{index}]: expected object, got int" for index in range(20)]
    assert [item.index for item in loads_each(Page[Mailbox], page).undecodable] == [*range(100)]


def test_a_page_of_more_faults_than_anyone_reads_is_itself_a_fault() -> None:
    assert len(loads_each(Page[Mailbox], LIST % b",".join([b"1"] * 10_000)).undecodable) == 10_000
    with pytest.raises(DecodeError, match=r"^\$\.data\[0\]: expected object, got int; "):
        loads_each(Page[Mailbox], LIST % b",".join([b"1"] * 10_001))


@pytest.mark.parametrize("make", ["refused", "unexpected"])
@pytest.mark.parametrize("body", [b'{"status":"%b' % FLOODS["keys"], b'{"error":"%b"}' % FLOODS["keys"], b"\\" * MEGABYTE])
def test_an_error_is_made_from_the_beginning_of_a_large_answer_alone(make: str, body: bytes) -> None:
    response = Response(200, {f"x-{number}": "y" * MEGABYTE for number in range(3)}, body)
    fault = DecodeError(["$: x"], {"status": body.decode()})
    with grows_by_at_most(1):  # its parts are some 20 KB each
        error = refused("op", response, (KEY,), now=0.0) if make == "refused" else unexpected("op", response, (KEY,), fault)
    assert len(error.body) <= BODY_LIMIT
    assert len(pickle.dumps(error)) < 100_000
    assert KEY not in repr(vars(error)) + str(error)


def test_header_fields_beyond_what_any_backend_takes_are_left_out() -> None:
    assert len(masked_headers({f"x-{number}": "y" for number in range(1_000)}, (KEY,))) == 256


# What is cut off must not show a part of a key

secrets = st.text(st.characters(codec="utf-8"), min_size=5, max_size=12)


@unhurried
@given(st.data(), secrets)
def test_no_spelling_of_a_secret_is_wider_than_what_is_left_out_for_it(data: st.DataObject, secret: str) -> None:
    pattern = data.draw(st.sampled_from(_spellings(secret)))
    assert len(data.draw(st.from_regex(pattern, fullmatch=True))) <= 26 * len(secret)


SPELLED = [
    KEY.encode(),
    b"".join(b"\\u%04x" % ord(each) for each in KEY),
    b"".join(b"\\\\\\\\\\\\\\\\U%08x" % ord(each) for each in KEY),
    b"".join(b"%%%02x" % ord(each) for each in KEY),
    KEY.encode("utf-16-le"),
]


@settings(unhurried, max_examples=60)
@given(st.sampled_from(SPELLED), st.integers(0, 700), st.booleans())
@example(SPELLED[2], 350, True)
def test_a_key_across_the_end_of_what_is_looked_at_leaves_no_part_behind(spelling: bytes, back: int, keys: bool) -> None:
    reach = 4 * BODY_LIMIT + 26 * len(KEY)
    lead = spelling * (reach // len(spelling)) if keys else b"x" * (reach - back)
    body = lead[: reach - back] if not keys else lead[back % len(spelling) :]
    whole = body + spelling + b"y" * reach
    error = refused("op", Response(500, {"x": whole.decode("latin-1")}, whole), (KEY,), now=0.0)
    expected = masked(whole, (KEY,))
    assert expected.startswith(error.body)
    assert expected.decode("latin-1").startswith(error.headers["x"])
    assert len(error.body) > 0 or keys


def test_a_key_too_long_to_be_told_from_what_follows_leaves_nothing_behind() -> None:
    key = "key_" + "x" * 1_500
    error = refused("op", Response(500, {}, key.encode() * 100), (key,), now=0.0)
    assert error.body == MASK.encode() * (len(error.body) // 3)
    assert "key_" not in str(error)


@unhurried
@given(st.integers(0, 2**32))
def test_a_body_within_what_is_looked_at_is_masked_as_a_whole(seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311 - nothing here is secret
    words = [choice.choice([KEY, "x" * 50, json.dumps(KEY)]) for _ in range(100)]
    body = json.dumps({"error": " ".join(words)}).encode()
    error = refused("op", Response(500, {}, body), (KEY,), now=0.0)
    assert error.body == masked(body, (KEY,))[:BODY_LIMIT]
