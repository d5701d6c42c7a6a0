"""The served fake and its OpenAPI document: every response is documented."""

from __future__ import annotations

import http.client
import json
import string
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import serve_in_thread
from support.examples import scaled
from support.fake import JSON, KEY, OTHER, SPACE, creation, small_world
from support.openapi import DOCUMENT, OPERATIONS, check_response, resolve_reference

from outreach_async.transport._wire import Response

KNOWN = [
    "",
    " ",
    SPACE,
    OTHER,
    "space_none",
    "space_",
    "camp_1",
    "camp_2",
    "camp_none",
    KEY,
    "key_none",
    "a@b.co",
    "A@b.co ",
    "skip",
]
NUMBERS = ["0", "1", "2", "07", "2000", "2001", "-1", "1.5", "1e3", "999999999", "9999999999", "٣"]
TEXTS = st.sampled_from(KNOWN) | st.text(max_size=8)
JSON_VALUES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS
VALUES = JSON_VALUES | st.lists(JSON_VALUES, max_size=2) | st.dictionaries(st.text(max_size=3), JSON_VALUES, max_size=2)
MEMBERS = [*DOCUMENT["components"]["schemas"]["CreateContact"]["properties"], "custom_1", "custom_9", "custom_", "other"]
OPTIONS = ["duplicates", "strict_validation", "campaign"]


class Asker:
    """Sends requests over one connection."""

    def __init__(self, connection: http.client.HTTPConnection) -> None:
        self._connection = connection

    def __call__(self, method: str, target: str, body: bytes = b"") -> Response:
        self._connection.request(method, target, body, JSON if body else {})
        answer = self._connection.getresponse()
        return Response(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())


@pytest.fixture(scope="module")
def ask() -> Iterator[Asker]:
    fake = small_world()
    with serve_in_thread(fake) as url, closing(http.client.HTTPConnection(urlsplit(url).netloc, timeout=600)) as connection:
        yield Asker(connection)


@st.composite
def lists(draw: st.DrawFn) -> tuple[str, str]:
    """Draw the target of one of the two lists: mostly valid, with any parameters."""
    operation = draw(st.sampled_from(["list_campaigns", "list_mailboxes"]))
    wild = st.fixed_dictionaries(
        {}, optional=dict.fromkeys(["workspace", "page", "display", "other"], TEXTS | st.sampled_from(NUMBERS))
    )
    wild_query = {"workspace": SPACE, "page": "1", "display": "3", **draw(wild)}
    for name in draw(st.sets(st.sampled_from(sorted(wild_query)), max_size=1)):
        del wild_query[name]
    return operation, "&".join(f"{name}={quote(value)}" for name, value in wild_query.items())


@settings(max_examples=scaled(80))
@given(lists())
def test_every_page_conforms_to_the_document(ask: Asker, wild_query: tuple[str, str]) -> None:
    operation, query = wild_query
    check_response(operation, ask("GET", f"{OPERATIONS[operation][1]}?{query}"))


@given(st.sampled_from(["list_steps", "list_fields"]), TEXTS.filter(bool))
def test_a_request_for_any_id_conforms_to_the_document(ask: Asker, operation: str, id_: str) -> None:
    _, path, documented = OPERATIONS[operation]
    (parameter,) = map(resolve_reference, documented["parameters"])
    check_response(operation, ask("GET", path.replace(f"{{{parameter['name']}}}", quote(id_, safe=""))))


CREATIONS = st.dictionaries(st.sampled_from(MEMBERS + OPTIONS), VALUES, max_size=3)


@settings(max_examples=scaled(80))
@given(CREATIONS, st.sampled_from(["skip", "overwrite", "update_missing_fields"]), st.booleans())
def test_every_creation_conforms_to_the_document(ask: Asker, members: dict[str, Any], duplicates: str, strict: bool) -> None:
    body = creation(**{"duplicates": duplicates, "strict_validation": strict, **members})
    answer = ask("POST", "/contacts", json.dumps(body).encode())
    assert (answer.status < 300) == (check_response("create_contact", answer)["status"] != "error")


@given(st.binary(min_size=1, max_size=30) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_an_invalid_creation_is_refused_as_documented(ask: Asker, body: bytes) -> None:
    answer = ask("POST", "/contacts", body)
    assert answer.status == 400
    check_response("create_contact", answer)


@given(st.sampled_from(sorted(OPERATIONS)), st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"]))
def test_another_method_is_refused_and_the_allowed_ones_are_listed(ask: Asker, operation: str, method: str) -> None:
    right, path, _ = OPERATIONS[operation]
    answer = ask(method, path.replace("{", "").replace("}", ""))
    assert (answer.status == 405) == (method != right)
    assert answer.headers.get("allow") == (None if method == right else right)


@given(st.lists(st.text(string.printable, max_size=6), max_size=4))
def test_another_path_is_not_found(ask: Asker, segments: list[str]) -> None:
    answer = ask("GET", "/x/" + "/".join(quote(segment, safe="") for segment in segments))
    assert (answer.status, json.loads(answer.body)["status"]) == (404, "error")
