"""Hypothesis strategies for requests of every kind to a small fake. Most requests refer to existing objects."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st
from support.fake import JSON, KEY, OTHER, SPACE, creation_request, small_world

from outreach_async.fake import Behaviour, FakeService
from outreach_async.fake.request_log import Recorded
from outreach_async.transport._wire import Request

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
    """Return the request that an entry of the request log records."""
    body: Any = b"" if recorded.json is None else json.dumps(recorded.json).encode()
    return Request(recorded.method, recorded.target, JSON, body)
