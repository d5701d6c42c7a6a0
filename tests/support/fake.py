"""Requests to a fake service, and a fake with sample data."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlencode

import attrs
import pytest

from outreach_async import Request, Response
from outreach_async.fake import Behaviour, FakeService

SPACE = "space_1"
OTHER = "space_2"
KEY = "key_1"
FIELDS = f"/workspaces/{SPACE}/all-fields"
START = 1767225600  # 2026-01-01T00:00:00Z

JSON = {"content-type": "application/json"}
OPTIONS = {"duplicates": "skip", "strict_validation": False, "campaign": None}

MISSING = object()
"""Value of a member that `creation` omits."""


def get(fake: FakeService, path: str, headers: dict[str, str] | None = None, **query: Any) -> Response:
    """GET a path with query parameters."""
    target = f"{path}?{urlencode(query)}" if query else path
    return fake.handle(Request("GET", target, headers or {}))


def page(fake: FakeService, path: str, **query: Any) -> Response:
    """GET a page of a list; by default 10 items of page 1 of `SPACE`."""
    merged: dict[str, Any] = {"workspace": SPACE, "display": 10, "page": 1} | query
    return get(fake, path, **merged)


def steps(fake: FakeService, campaign: str) -> Any:
    """GET the steps of a campaign."""
    return document(get(fake, f"/campaigns/{quote(campaign, safe='')}/steps"))


def post(fake: FakeService, body: Any, headers: dict[str, str] | None = None) -> Response:
    """POST a body to `/contacts`; a body that is not bytes is encoded as JSON."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return fake.handle(Request("POST", "/contacts", JSON if headers is None else headers, raw))


def creation(email: Any = "ada@acme.example", **members: Any) -> dict[str, Any]:
    """Return the body of a request that creates a contact."""
    options = {name: members.pop(name, value) for name, value in OPTIONS.items()}
    body = {"owner_key": KEY, "workspace": SPACE, "email": email, "upload_options": options} | members
    return {name: _left(value) for name, value in body.items() if value is not MISSING}


def creation_request(email: Any = "ada@acme.example", **members: Any) -> Request:
    """Return a request that creates a contact; the arguments are those of `creation`."""
    return Request("POST", "/contacts", JSON, json.dumps(creation(email, **members)).encode())


def _left(value: Any) -> Any:
    return {name: item for name, item in value.items() if item is not MISSING} if isinstance(value, dict) else value


def create(fake: FakeService, email: Any = "ada@acme.example", **members: Any) -> Any:
    """Create a contact, require success, and return the response as JSON; the arguments are those of `creation`."""
    return document(post(fake, creation(email, **members)))


def document(response: Response) -> Any:
    """Require that a response is a success, and return it as JSON."""
    assert response.status in {200, 201}, response.body
    return json.loads(response.body)


def refusal(response: Response, status: int, code: str) -> dict[str, Any]:
    """Require that a response is an error with this status and code, and return the error."""
    answered = json.loads(response.body)
    assert answered["status"] == "error"
    error: dict[str, Any] = answered["error"]
    assert (response.status, error["code"]) == (status, code), error
    assert set(error) == {"code", "message", "field"}
    return error


@contextmanager
def refusing(fake: FakeService, error: type[Exception] | tuple[type[Exception], ...], message: str) -> Iterator[None]:
    """Require that the block raises this error and leaves the fake as it was."""
    before = fake.dump()
    with pytest.raises(error, match=message):
        yield
    assert fake.dump() == before


def small_world(behaviour: Behaviour | None = None, **readings: Any) -> FakeService:
    """Return a fake with two workspaces. `SPACE` has two custom fields, five mailboxes, two campaigns and three contacts."""
    fake = FakeService(behaviour=attrs.evolve(behaviour or Behaviour(), **readings))
    fake.add_workspace(SPACE, custom_fields=["Plan", "Region"])
    fake.add_workspace(OTHER)
    fake.add_owner_key(SPACE, key=KEY)
    fake.add_owner_key(OTHER, key="key_2")
    boxes = fake.add_mailboxes(SPACE, 5)
    fake.add_campaign(SPACE, id="camp_1", name="Spring", status="live", mailboxes=boxes, steps=["A|B", "A|PER"])
    fake.add_campaign(SPACE, id="camp_2", name="Summer", steps=["A"])
    fake.add_campaign(OTHER, id="camp_3", name="Elsewhere")
    fake.add_contacts(SPACE, 3)
    return fake
