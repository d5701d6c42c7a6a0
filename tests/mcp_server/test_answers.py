"""Answers and errors: one clean line or JSON object, whatever the service sends."""

from __future__ import annotations

import json
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp.server.request_state import InvalidRequestState

from outreach_async import (
    DeadlineExceeded,
    OutreachClient,
    OutreachError,
    RateLimited,
    StatusError,
    TransportError,
    UnexpectedResponse,
)
from outreach_async.errors import BulkStopped, Forbidden, NotFound, Unauthorized
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.mcp_server._answers import (
    MAX_TEXT,
    NOTICE,
    QUOTED,
    AnswerWriter,
    clean_text,
    clean_value,
    cut_page,
    find_remedy,
)
from outreach_async.mcp_server._tool_server import slim_schema
from outreach_async.mcp_server._write_tool import OpenQuestions

KEY = "key_s3cr3t"
WRITER = AnswerWriter((KEY,))
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_of_visible_characters(text: str) -> None:
    cleaned = clean_text(text, 50)
    assert cleaned.isprintable()
    assert len(cleaned) <= 50 * len("\\U0001f600") + len("... (1,000 characters)")


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=MAX_TEXT))
def test_plain_text_is_unchanged(text: str) -> None:
    assert clean_text(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("Frühling, 春, Весна 🌱", "Frühling, 春, Весна 🌱"),
        ("one\ntwo\tthree\xa0four", "one two three four"),
        ("a\x1b[2Jb\x00", "a\\x1b[2Jb\\x00"),
        ("\u202eabc", "\\u202eabc"),
        ("a\u200bb", "a\\u200bb"),
        ("\U000e0041", "\\U000e0041"),
        ("a\U000e0101", "a\\U000e0101"),
        *(
            (f"a{blank}b", f"a{blank.encode('unicode_escape').decode()}b")
            for blank in ("\ufe00", "\ufe0f", "\u115f", "\u3164", "\u2800")
        ),
        ("\ud800", "\\ud800"),
        ("x" * 200, "x" * 160 + "... (200 characters)"),
    ],
)
def test_what_is_hidden_is_shown_and_what_is_long_is_cut(text: str, cleaned: str) -> None:
    assert clean_text(text) == cleaned


@given(JSON_VALUES)
def test_an_answer_is_a_json_object_that_begins_with_the_notice(value: Any) -> None:
    text = WRITER.write(value=value)
    assert text.isprintable()
    assert text.startswith(json.dumps({"notice": NOTICE})[:-1])
    assert list(json.loads(text, parse_constant=pytest.fail)) == ["notice", "value"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 10**400, -(2**60)])
def test_a_number_that_not_every_parser_can_read_becomes_null(number: float) -> None:
    assert clean_value({"a": [number]}) == {"a": [None]}


@pytest.mark.parametrize("form", [KEY, b64encode(KEY.encode()).decode(), KEY.replace("_", "%5F")])
def test_an_answer_and_an_error_do_not_show_the_key(form: str) -> None:
    assert form not in WRITER.write(name=f"a {form} b")
    assert form not in WRITER.write_error(f"a {form} b")


@pytest.mark.parametrize("before", range(MAX_TEXT - len(KEY), MAX_TEXT + 1))
def test_a_cut_leaves_no_part_of_the_key(before: int) -> None:
    text = "x" * before + KEY + "y" * MAX_TEXT
    assert "key_" not in WRITER.write(name=text)
    assert "key_" not in WRITER.write(names={text: 1})


def test_a_cut_leaves_no_part_of_a_long_token() -> None:
    token = "".join(chr(ord("a") + at % 26) for at in range(5 * MAX_TEXT))
    answer = json.loads(AnswerWriter((token,)).write(name=f"hi {token}"))
    assert answer["name"] == "hi ***"


def test_the_secrets_are_those_of_the_client() -> None:
    headers = {"authorization": "Bearer t0ken-abc"}
    writer = AnswerWriter.of(OutreachClient(transport=FakeTransport(FakeService()), owner_key=KEY, headers=headers))
    text = f"{KEY} t0ken-abc"
    assert json.loads(writer.write(name=text))["name"] == writer.write_error(text) == "*** ***"


def test_an_error_masks_keys_that_are_not_the_clients_own() -> None:
    assert WRITER.write_error("workspace: got key_other") == "workspace: got key_***"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Unauthorized("a", status_code=401), "ask the person who runs this server to check its key"),
        (Forbidden("a", status_code=403), "ask the person who runs this server to check its key"),
        (NotFound("a", status_code=404), "check the id; list_campaigns lists"),
        (RateLimited("a", status_code=429), "call the tool again later"),
        (TransportError("a"), "call the tool again later"),
        (DeadlineExceeded("a"), "call the tool again later"),
        (StatusError("a", status_code=500), "ask the person"),
        (UnexpectedResponse("a"), "do not retry"),
        (BulkStopped("a"), "ask the person"),
    ],
)
def test_an_error_of_the_service_has_a_remedy_and_a_warning(error: OutreachError, remedy: str) -> None:
    text = WRITER.describe(error)
    assert text.startswith("a; ")
    assert remedy in text
    assert text.endswith(QUOTED)


def test_the_remedy_for_a_rate_limit_has_the_wait() -> None:
    error = RateLimited("a", status_code=429)
    error.retry_after = 90.0
    assert find_remedy(error) == "wait 90 seconds, then call the tool again"


@given(st.integers(0, 100))
def test_the_pages_have_every_item_once(count: int) -> None:
    last = cut_page("items", range(count), 1, int)["pages"]
    shown = [item for page in range(1, last + 1) for item in cut_page("items", range(count), page, int)["items"]]
    assert shown == list(range(count))
    assert cut_page("items", range(count), last + 1, int) == {"page": last + 1, "pages": last, "total": count, "items": []}


def test_the_repr_of_a_writer_shows_no_secret() -> None:
    assert KEY not in repr(WRITER)


def test_a_schema_loses_titles_and_null_and_nothing_else() -> None:
    schema = {
        "title": "Arguments",
        "properties": {
            "title": {"title": "Title", "anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
            "both": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        },
        "required": ["title"],
    }
    assert slim_schema(schema) == {
        "properties": {"title": {"type": "string"}, "both": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
        "required": ["title"],
    }


def test_only_the_latest_questions_can_be_answered() -> None:
    questions = OpenQuestions()
    tokens = [questions.seal(b"%d" % number) for number in range(1_001)]
    assert [questions.unseal(token) for token in tokens[1:]] == [b"%d" % number for number in range(1, 1_001)]
    for token in tokens:
        with pytest.raises(InvalidRequestState):
            questions.unseal(token)
