"""Responses that are not a success: their messages and their Retry-After."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from email.utils import formatdate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import check_rows

from outreach_async import Response
from outreach_async._core.codec import DecodeError, decode_model
from outreach_async._core.responses import build_status_error, build_unexpected_response, extract_reason
from outreach_async._plumbing import parse_retry_after
from outreach_async.errors import ContactRejected, RateLimited, StatusError, UnexpectedResponse
from outreach_async.models import CreateContactResponse, Mailbox, Page

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT


def refusal(status: int = 400, body: bytes = b"", headers: dict[str, str] | None = None) -> StatusError:
    return build_status_error("list_fields", Response(status, headers or {}, body), (), now=NOW)


def not_allowed(body: bytes, kind: Any = CreateContactResponse) -> UnexpectedResponse:
    with pytest.raises(DecodeError) as caught:
        decode_model(kind, body)
    return build_unexpected_response("create_contact", Response(200, {}, body), (), caught.value)


INVISIBLE = "\x00\x1b\x7f\x9b\u061c\u200b\u202e\u2066\ufeff\U000e0041"


def test_no_text_of_an_error_has_invisible_characters() -> None:
    hidden = INVISIBLE.join(["", "slow\ndown", ""])
    body = json.dumps({"error": hidden}).encode()
    fields = {"x-request-id": hidden, f"x-{INVISIBLE}other": "visible"}
    error = refusal(400, body, fields)
    assert str(error) == "list_fields: the service answered 400: slow down"
    assert (error.request_id, error.headers) == ("slow down", {"x-request-id": "slow down", "x-other": "visible"})
    assert str(not_allowed(json.dumps({"status": "added", "id": "a", hidden: 1}).encode())).isprintable()
    unexpected = build_unexpected_response("create_contact", Response(200, fields, b"{}"), (), f"a {hidden} text")
    assert str(unexpected) == "create_contact: the service answered 200 with a slow down text"


def test_a_key_split_by_invisible_characters_or_with_some_in_it_is_masked() -> None:
    for key, echo in (("key_secret", INVISIBLE.join("key_secret")), ("key_\u200bsecret", "key_\u200bsecret")):
        body = json.dumps({"error": echo}).encode()
        error = build_status_error("op", Response(400, {"x-request-id": echo}, body), (key,), now=NOW)
        assert str(error) == "op: the service answered 400: ***"
        assert error.request_id == "***"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "no body"),
        (b" \r\n", "no body"),
        (b"upstream  timed\r\nout", "upstream timed out"),
        (b"<html><body>502 Bad Gateway</body></html>", "a page of HTML or XML"),
        (b"\n <?xml?>", "a page of HTML or XML"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b'"no such workspace"', "no such workspace"),
        (b'{"error": "no such workspace"}', "no such workspace"),
        (b'{"status": "error", "error": {"code": "x", "message": "no such workspace", "field": null}}', "no such workspace"),
        (b'{"message": "slow down"}', "slow down"),
        (b'{"detail": "slow down"}', "slow down"),
        (b'{"details": {"message": "slow\\ndown"}}', "slow down"),
        (b'{"error": "no campaign Sale \\ud83d"}', "no campaign Sale \ufffd"),
        (b'{"errors": [{"field": "zip"}]}', '[{"field": "zip"}]'),
        (b'{"error": "", "message": null, "detail": "slow down"}', "slow down"),
        (b'{"error": {}, "other": 1}', '{"error": {}, "other": 1}'),
        (b"[1, 2]", "[1, 2]"),
        (b"null", "null"),
        (b"17", "17"),
        (b'""', "no message"),
        (b'{"error": " \\n"}', "no message"),
        (b"\x1c", "no message"),
        (b"x" * 200, "x" * 200),
        (b"x" * 201, "x" * 200 + "..."),
    ],
)
def test_the_reason_is_extracted_from_a_body(body: bytes, message: str) -> None:
    assert extract_reason(body) == message


DEPTHS = [*range(900, 1000), 100_000]  # around the recursion limit of JSON parsers, and far beyond


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"error":', b"}"), (b'{"x":', b"}")])
def test_the_reason_of_a_deeply_nested_body_is_bounded(opening: bytes, closing: bytes) -> None:
    for depth in DEPTHS:
        assert len(extract_reason(opening * depth + b"1" + closing * depth)) <= 203


@given(st.binary())
def test_the_reason_of_any_bytes_is_at_most_one_line(body: bytes) -> None:
    reason = extract_reason(body)
    assert 0 < len(reason) <= 203
    assert "\n" not in reason


@pytest.mark.parametrize("status", [300, 301, 307, 400, 422, 500, 503])
def test_a_status_error_has_what_the_service_answered(status: int) -> None:
    error = refusal(status, b'{"error": "no"}', {"x-request-id": "req_1", "content-type": "application/json"})
    assert type(error) is StatusError
    assert str(error) == f"list_fields: the service answered {status}: no"
    assert (error.operation, error.status_code, error.request_id) == ("list_fields", status, "req_1")
    assert error.body == b'{"error": "no"}'
    assert error.headers == {"x-request-id": "req_1", "content-type": "application/json"}
    assert (error.maybe_sent, error.attempts) == (True, 0)


@pytest.mark.parametrize("status", [400, 422])
def test_data_that_the_service_refuses_has_a_class_of_its_own_for_contacts_only(status: int) -> None:
    response = Response(status, {}, b'{"message": "zip: too long"}')
    assert type(build_status_error("create_contact", response, (), now=NOW)) is ContactRejected
    assert type(build_status_error("list_campaigns", response, (), now=NOW)) is StatusError


@pytest.mark.parametrize(("fields", "seconds"), [({}, None), ({"retry-after": "3"}, 3.0), ({"retry-after": "soon"}, None)])
def test_a_429_is_a_rate_limit_with_its_retry_after(fields: dict[str, str], seconds: float | None) -> None:
    error = refusal(429, b"slow down", fields)
    assert isinstance(error, RateLimited)
    assert (error.status_code, error.retry_after) == (429, seconds)


@pytest.mark.parametrize(
    ("body", "states_error", "message"),
    [
        (b'{"status": "error", "error": {"message": "gone"}}', True, "status 'error': gone"),
        (b'{"status": "", "message": "hm"}', True, "status '': hm"),
        (b'{"message": "gone"}', True, "an error: gone"),
        (b'{"status": "error", "data": []}', False, 'status \'error\': {"status": "error", "data": []}'),
        (b'{"status": "ok", "message": "gone", "id": null}', False, "$.details: missing key 'details'"),
        (b'{"status": "added"}', False, "$.id: missing key 'id'; $.details: missing key 'details'"),
        (b'{"status": "overwriten", "id": 1, "details": null}', False, "$.id: expected str, got int"),
        (b'{"status": null, "id": null, "details": null}', False, "$.status: expected str, got None"),
        (b'{"status": {"x": 1}, "id": null, "details": null}', False, "$.status: expected str, got dict"),
        (b"[]", False, "$: expected object, got list"),
        (b"null", False, "$: expected object, got None"),
        (b"<html>", False, "$: expected JSON, got a page of HTML or XML"),
        (b"", False, "$: expected JSON, got an empty body"),
        (b'{"status": "ad', False, "$: expected JSON: Input data was truncated"),
    ],
)
def test_an_unexpected_response_is_described_by_its_status_or_its_faults(body: bytes, states_error: bool, message: str) -> None:
    error = not_allowed(body)
    assert str(error) == f"create_contact: the service answered 200 with {message}"
    assert (error.status_code, error.body, error.maybe_sent, error.states_error) == (200, body, True, states_error)
    assert error.well_formed is body.endswith(b"}")


@pytest.mark.parametrize("name", [b"status", b"error"])
def test_the_description_of_a_deeply_nested_response_is_bounded(name: bytes) -> None:
    for depth in DEPTHS:
        error = not_allowed(b'{"status": "error", "%b": %b}' % (name, b"[" * depth + b"]" * depth))
        assert len(str(error)) < 1100


def test_the_description_of_many_faults_is_shortened() -> None:
    page = {"status": "ok", "headers": [], "data": [{}] * 500, "total_found": 500, "current_page": 1, "total_pages": 1}
    error = not_allowed(json.dumps(page).encode(), kind=Page[Mailbox])
    assert len(str(error)) < 1100
    assert "$.data[0].id: missing key 'id'; $.data[0].status" in str(error)
    assert str(error).endswith("...")


def test_retry_after_is_parsed_in_all_its_forms() -> None:
    def check(value: str, seconds: float | None) -> None:
        assert parse_retry_after({"retry-after": value}, now=NOW) == seconds

    check_rows(
        [
            *[("0", 0.0), ("3", 3.0), (" 120 ", 120.0), ("1.5", 1.5), ("007", 7.0)],
            *((no_number, None) for no_number in ["", "soon", "-1", "+1", "1e3", "0x10", "1_000", "1,5", "1 2"]),
            *((no_number, None) for no_number in ["٣", "²", ".", "inf", "nan", "9" * 400]),
            ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),  # the three forms of RFC 9110, section 5.6.7
            ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
            ("Sun Nov  6 08:49:47 1994", 10.0),
            ("Sun, 06 Nov 1994 09:49:47 +0100", 10.0),
            ("Sun, 06 Nov 1994 08:49:47 -0000", 10.0),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
            ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
            ("Sun, 06 Nov 1894 08:49:37 GMT", 0.0),
            *((f"Sun, {date} 08:49:37 GMT", None) for date in ["66 Nov 1994", "06 Foo 1994", f"06 Nov {'9' * 20}"]),
            ("Sun, 06 Nov 1994 08:49:37 +999999999999", None),
        ],
        check,
    )


@given(st.integers(0, 2**32), st.integers(0, 10**6), st.integers(-(10**6), 10**6))
def test_a_date_counts_from_the_date_of_the_response_whatever_our_clock_says(sent: int, ahead: int, wrong: int) -> None:
    fields = {"retry-after": formatdate(sent + ahead, usegmt=True), "date": formatdate(sent, usegmt=True)}
    assert parse_retry_after(fields, now=sent + wrong) == ahead
    assert parse_retry_after({**fields, "date": "nonsense"}, now=sent + wrong) == max(0, ahead - wrong)
    assert parse_retry_after({**fields, "retry-after": str(ahead)}, now=sent + wrong) == ahead


@given(st.text() | st.text("0123456789 ,:+-.GMTSunovJa"), st.text())
def test_any_string_asks_for_a_finite_wait_or_none(value: str, date: str) -> None:
    seconds = parse_retry_after({"retry-after": value, "date": date}, now=NOW)
    assert seconds is None or 0 <= seconds < 10**18


def test_a_date_without_a_zone_is_gmt_wherever_the_program_runs() -> None:
    code = (
        "from outreach_async._core.responses import parse_retry_after\n"
        f"print(parse_retry_after({{'retry-after': 'Sun Nov  6 08:49:47 1994'}}, now={NOW}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TZ": "Asia/Tokyo"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "10.0"


WITHOUT_DESCRIPTORS = """
import errno, sys
import outreach_async
from outreach_async._cli.messages import to_printable
from outreach_async._core.codec import DecodeError, decode_model
from outreach_async.models import CreateContactResponse
from outreach_async._core.responses import build_status_error, parse_date
from outreach_async.bulk._contact_keys import order_key
from outreach_async.transport._wire import Response

class NoDescriptor:
    def find_spec(self, name, path=None, target=None):
        raise OSError(errno.EMFILE, name)

sys.meta_path.insert(0, NoDescriptor())
print(build_status_error("op", Response(401, {}, b"no key_1"), ("key_1",), now=0.0))
print(to_printable("a\\x1b"), order_key("a@xn--mnchen-3ya.example"), parse_date("Sun, 06 Nov 1994 08:49:37 GMT"))
try:
    decode_model(CreateContactResponse, b'{"status": "added", "id": 1}')
except DecodeError as error:
    print(error)
"""


@pytest.mark.thorough
@pytest.mark.covers
def test_no_error_needs_a_module_that_cannot_be_imported_without_descriptors() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DESCRIPTORS], capture_output=True, text=True, check=True)
    masked, texts, fault = done.stdout.splitlines()
    assert masked == "op: the service answered 401: no ***"
    assert texts in {f"a\\x1b a@munchen.example {when}" for when in ("784111777.0", "None")}
    assert fault in {"$.id: expected str, got int", "$.details: missing key 'details'"}
