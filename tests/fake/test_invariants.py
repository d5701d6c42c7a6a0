"""Invariants of the fake under any requests, from any callers, over any transport."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fake import JSON, KEY, OTHER, SPACE, creation_request, small_world

from outreach_async import Request, Response
from outreach_async.converters import OutreachConverter
from outreach_async.fake import Behaviour, FakeService
from outreach_async.fake.request_log import Recorded
from outreach_async.models import Campaign, CampaignSteps, CreateContactResponse, Mailbox, Page, WorkspaceFields

EMAILS = ["ada@acme.example", "ADA@acme.example", "bo@acme.example", "Zoë@acme.example", "no address"]

BEHAVIOURS = st.builds(
    Behaviour,
    email_key=st.sampled_from(["lower", "exact"]),
    skip_enrols=st.booleans(),
    unknown_custom=st.sampled_from(["reject", "ignore", "store"]),
    overwrite_unsent=st.sampled_from(["keep", "clear"]),
    reenrol=st.sampled_from(["noop", "error"]),
    numbers=st.sampled_from(["int_when_whole", "float", "mixed"]),
    list_date=st.sampled_from(["timestamp", "text", "mixed"]),
    order=st.sampled_from(["oldest", "newest", "last_activity"]),
    past_end=st.sampled_from(["empty", "clamp", "error"]),
)

_creations = st.builds(
    creation_request,
    st.sampled_from(EMAILS),
    owner_key=st.sampled_from([KEY, KEY, KEY, "key_2", "key_9"]),
    workspace=st.sampled_from([SPACE, SPACE, SPACE, OTHER]),
    duplicates=st.sampled_from(["skip", "overwrite", "update_missing_fields"]),
    strict_validation=st.booleans(),
    campaign=st.sampled_from([None, "camp_1", "camp_2", "camp_3"]),
    first_name=st.sampled_from(["Ada", "Ådä", "", None]),
    country=st.sampled_from(["SE", "Sweden", "Nowhere"]),
    custom_1=st.sampled_from(["gold", " ", "\U0001f600"]),
    custom_9=st.just("unknown"),
) | st.builds(
    creation_request,
    st.sampled_from(EMAILS),
    duplicates=st.sampled_from(["skip", "overwrite", "update_missing_fields"]),
    campaign=st.sampled_from([None, "camp_1"]),
    city=st.sampled_from(["Lund", "", None]),
)
_lists = st.builds(
    lambda path, workspace, display, page: Request("GET", f"{path}?workspace={workspace}&display={display}&page={page}"),
    st.sampled_from(["/campaigns", "/mailboxes"]),
    st.sampled_from([SPACE, SPACE, OTHER, "space_9", "camp_1"]),
    st.integers(0, 4),
    st.integers(0, 3),
)
_others = st.sampled_from(
    [
        Request("GET", "/campaigns/camp_1/steps"),
        Request("GET", "/campaigns/camp_9/steps"),
        Request("GET", f"/workspaces/{SPACE}/all-fields"),
        Request("GET", f"/workspaces/{SPACE}/all-fields/?unknown=1"),
        Request("PUT", "/contacts", JSON),
        Request("GET", "/nothing"),
    ]
)

REQUESTS = st.one_of(_creations, _creations, _lists, _others)
"""Draws one request. A creation is twice as likely as a list request."""


def world(behaviour: Behaviour) -> FakeService:
    """Return a fake with the objects that the requests refer to; some e-mails have been sent."""
    fake = small_world(behaviour)
    fake.add_campaign(OTHER, id="camp_9x", status="live", steps=[{"sent": 40, "templates": "A|B|PER"}, {"sent": 12}])
    fake.add_mailboxes(SPACE, 3, trouble=0.9)
    return fake


def sent_request(recorded: Recorded) -> Request:
    body: Any = b"" if recorded.json is None else json.dumps(recorded.json).encode()
    return Request(recorded.method, recorded.target, JSON, body)


conversations = st.lists(REQUESTS, min_size=1, max_size=12)


# 15. Refusals and skips change nothing.


@pytest.mark.thorough
@settings(max_examples=scaled(60), deadline=None)
@given(BEHAVIOURS, conversations)
def test_c23_refused_and_skipped_requests_leave_the_state_unchanged(behaviour: Behaviour, requests: list[Request]) -> None:
    fake = world(behaviour)
    for request in requests:
        before = fake.dump()
        response = fake.handle(request)
        skipped = b'"status":"skipped"' in response.body and not behaviour.skip_enrols
        if response.status >= 300 or skipped or request.method != "POST":
            assert fake.dump() == before
        elif behaviour.skip_enrols is False:
            assert json.loads(response.body)["id"] is not None


# 18. The request log is the order in which everything happened.


def at_once(fake: FakeService, conversations: list[list[Request]]) -> dict[str, Response]:
    answers: dict[str, Response] = {}
    ready = threading.Barrier(len(conversations))

    def ask(requests: list[Request]) -> None:
        ready.wait()
        for request in requests:
            response = fake.handle(request)
            answers[response.headers["x-request-id"]] = response

    threads = [threading.Thread(target=ask, args=(requests,)) for requests in conversations]
    with by_turns():
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return answers


@contextmanager
def by_turns() -> Iterator[None]:
    """Switch threads every few instructions; by default, one thread would finish before the next starts."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


@pytest.mark.thorough
@settings(max_examples=scaled(30), deadline=None)
@given(BEHAVIOURS, st.lists(conversations, min_size=2, max_size=4))
def test_replaying_the_request_log_gives_the_same_responses_and_state(
    behaviour: Behaviour, conversations: list[list[Request]]
) -> None:
    fake, fresh = world(behaviour), world(behaviour)
    answers = at_once(fake, conversations)
    assert len(fake.requests) == sum(map(len, conversations)) == len(answers)
    for recorded in fake.requests:
        answer = answers[str(recorded.request_id)]
        replayed = fresh.handle(sent_request(recorded))
        assert (replayed.status, replayed.body) == (answer.status, answer.body)
        assert recorded.status == answer.status
    assert fresh.dump() == fake.dump()


# 20. The client's decoders understand every response.


KINDS: dict[str, Any] = {
    "list_campaigns": Page[Campaign],
    "list_mailboxes": Page[Mailbox],
    "create_contact": CreateContactResponse,
    "list_steps": CampaignSteps,
    "list_fields": WorkspaceFields,
}


@pytest.mark.thorough
@settings(max_examples=scaled(60), deadline=None)
@given(BEHAVIOURS, conversations)
def test_every_successful_response_survives_decoding_and_encoding(behaviour: Behaviour, requests: list[Request]) -> None:
    fake = world(behaviour)
    for request in requests:
        response = fake.handle(request)
        if response.status < 300:
            model = OutreachConverter().loads(response.body, KINDS[fake.requests[-1].operation])
            assert same(json.loads(model.to_json()), json.loads(response.body))


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and have equal types: 1 is not 1.0."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other
