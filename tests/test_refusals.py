"""Answers that are no success: what is said of them, how long they ask to wait, and that no error holds a secret."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import re
import subprocess
import sys
import traceback
from collections.abc import Callable
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support_wire import unhurried

from outreach_async.contacts import CreateAnswer
from outreach_async.converters import DecodeError, loads
from outreach_async.errors import BODY_LIMIT, OutreachError, RateLimited, StatusError, TransportError, UnexpectedResponse
from outreach_async.models import Mailbox, Page
from outreach_async.refusals import (
    MASK,
    is_secret_header,
    masked,
    masked_headers,
    reason,
    refused,
    retry_after,
    scrubbed,
    secret_parts,
    unexpected,
)
from outreach_async.transport.wire import Response

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT
PLAIN = "key_4f9a8b7c6d5e"


def refusal(status: int = 400, body: bytes = b"", headers: dict[str, str] | None = None, *secrets: str) -> StatusError:
    return refused("list_fields", Response(status, headers or {}, body), secrets, now=NOW)


def not_allowed(body: bytes, *secrets: str, kind: Any = CreateAnswer, status: int = 200) -> UnexpectedResponse:
    with pytest.raises(DecodeError) as caught:
        loads(kind, body)
    return unexpected("create_contact", Response(status, {}, body), secrets, caught.value)


# What a refusal says


@pytest.mark.parametrize(
    ("body", "said"),
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
        (b'{"errors": [{"field": "zip"}]}', '[{"field": "zip"}]'),
        (b'{"error": "", "message": null, "detail": "slow down"}', "slow down"),
        (b'{"error": {}, "other": 1}', '{"error": {}, "other": 1}'),
        (b"[1, 2]", "[1, 2]"),
        (b"null", "null"),
        (b"17", "17"),
        (b'""', "no words"),
        (b'{"error": " \\n"}', "no words"),
        (b"\x1c", "no words"),
        (b"x" * 200, "x" * 200),
        (b"x" * 201, "x" * 200 + "..."),
    ],
)
def test_what_a_body_tells_a_person(body: bytes, said: str) -> None:
    assert reason(body) == said


DEPTHS = [*range(900, 1000), 100_000]  # about what a reader of JSON can go down, and far beyond


@pytest.mark.parametrize(("opening", "closing"), [(b"[", b"]"), (b'{"error":', b"}"), (b'{"x":', b"}")])
def test_a_body_of_any_depth_is_told(opening: bytes, closing: bytes) -> None:
    for depth in DEPTHS:
        assert len(reason(opening * depth + b"1" + closing * depth)) <= 203


@given(st.binary())
def test_any_bytes_tell_at_most_a_line(body: bytes) -> None:
    told = reason(body)
    assert 0 < len(told) <= 203
    assert "\n" not in told


@pytest.mark.parametrize("status", [300, 301, 307, 400, 401, 404, 422, 500, 503])
def test_a_refusal_keeps_what_the_service_answered(status: int) -> None:
    error = refusal(status, b'{"error": "no"}', {"x-request-id": "req_1", "content-type": "application/json"})
    assert type(error) is StatusError
    assert str(error) == f"list_fields: the service answered {status}: no"
    assert (error.operation, error.status_code, error.body, error.request_id) == (
        "list_fields",
        status,
        b'{"error": "no"}',
        "req_1",
    )
    assert error.headers == {"x-request-id": "req_1", "content-type": "application/json"}
    assert (error.maybe_sent, error.attempts) == (True, 0)


@pytest.mark.parametrize(("fields", "seconds"), [({}, None), ({"retry-after": "3"}, 3.0), ({"retry-after": "soon"}, None)])
def test_a_429_is_a_rate_limit_that_knows_how_long_to_wait(fields: dict[str, str], seconds: float | None) -> None:
    error = refusal(429, b"slow down", fields)
    assert isinstance(error, RateLimited)
    assert (error.status_code, error.retry_after) == (429, seconds)


# What an answer that is not allowed says


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"status": "error", "error": "no such campaign"}', "status 'error': no such campaign"),
        (b'{"status": "", "message": "hm"}', "status '': hm"),
        (b'{"status": "added"}', "$.id: missing member 'id'; $.details: missing member 'details'"),
        (b'{"status": "ok", "id": 1, "details": null}', "$.id: expected str, got int"),
        (b'{"status": "overwriten", "id": 1, "details": null}', "$.id: expected str, got int"),
        (b'{"status": null, "id": null, "details": null}', "$.status: expected str, got None"),
        (b'{"status": ["x"], "id": null, "details": null}', "$.status: expected str, got list"),
        (b'{"status": {"x": 1}, "id": null, "details": null}', "$.status: expected str, got dict"),
        (b'{"status": 500, "id": null, "details": null}', "$.status: expected str, got int"),
        (b"[]", "$: expected object, got list"),
        (b"null", "$: expected object, got None"),
        (b"<html>", "$: expected JSON, got a page of HTML or XML"),
        (b"", "$: expected JSON, got an empty body"),
        (b'{"status": "ad', "$: expected JSON: Input data was truncated"),
    ],
)
def test_an_answer_that_is_not_allowed_is_told_by_its_own_word_or_by_its_faults(body: bytes, said: str) -> None:
    error = not_allowed(body)
    assert str(error) == f"create_contact: the service answered 200 with {said}"
    assert (error.status_code, error.body, error.maybe_sent) == (200, body, True)
    assert error.well_formed is body.endswith(b"}")


@pytest.mark.parametrize("name", [b"status", b"error"])
def test_an_answer_of_any_depth_is_told(name: bytes) -> None:
    for depth in DEPTHS:
        error = not_allowed(b'{"status": "error", "%b": %b}' % (name, b"[" * depth + b"]" * depth))
        assert len(str(error)) < 1100


def test_an_answer_with_more_faults_than_anyone_reads_is_told_in_short() -> None:
    page = {"status": "ok", "headers": [], "data": [{}] * 500, "total_found": 500, "current_page": 1, "total_pages": 1}
    error = not_allowed(json.dumps(page).encode(), kind=Page[Mailbox])
    assert len(str(error)) < 1100
    assert "$.data[0].id: missing member 'id'; $.data[0].status" in str(error)
    assert str(error).endswith("...")


def test_a_fault_found_by_the_caller_is_told_as_it_is() -> None:
    error = unexpected("list_fields", Response(200, {"x-request-id": "req_1"}, b"{}"), (), "status 'no' instead of 'ok'")
    assert str(error) == "list_fields: the service answered 200 with status 'no' instead of 'ok'"
    assert (error.well_formed, error.request_id) == (True, "req_1")


# How long to wait


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("3", 3.0),
        (" 120 ", 120.0),
        ("1.5", 1.5),
        ("007", 7.0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("+1", None),
        ("1e3", None),
        ("0x10", None),
        ("1_000", None),
        ("1,5", None),
        ("1 2", None),
        ("٣", None),
        ("²", None),
        (".", None),
        ("inf", None),
        ("nan", None),
        ("9" * 400, None),
        ("Sun, 06 Nov 1994 08:49:47 GMT", 10.0),  # the three forms of RFC 9110, section 5.6.7
        ("Sunday, 06-Nov-94 08:49:47 GMT", 10.0),
        ("Sun Nov  6 08:49:47 1994", 10.0),
        ("Sun, 06 Nov 1994 09:49:47 +0100", 10.0),
        ("Sun, 06 Nov 1994 08:49:47 -0000", 10.0),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0.0),
        ("Sun, 06 Nov 1994 08:00:00 GMT", 0.0),
        ("Sun, 06 Nov 1894 08:49:37 GMT", 0.0),
        ("Sun, 66 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 Foo 1994 08:49:37 GMT", None),
        ("Sun, 06 Nov 99999 08:49:37 GMT", None),
        ("Sun, 06 Nov 99999999999999999999 08:49:37 GMT", None),
        ("Sun, 06 Nov 1994 08:49:37 +999999999999", None),
    ],
)
def test_how_long_an_answer_asks_to_wait(value: str, seconds: float | None) -> None:
    assert retry_after({"retry-after": value}, now=NOW) == seconds


def test_an_answer_that_does_not_ask_asks_for_nothing() -> None:
    assert retry_after({}, now=NOW) is None
    assert retry_after({"date": "Sun, 06 Nov 1994 08:49:37 GMT"}, now=NOW) is None


@given(st.integers(0, 2**32), st.integers(0, 10**6), st.integers(-(10**6), 10**6))
def test_a_date_counts_from_the_answers_own_date_whatever_our_clock_says(sent: int, ahead: int, wrong: int) -> None:
    fields = {"retry-after": formatdate(sent + ahead, usegmt=True), "date": formatdate(sent, usegmt=True)}
    assert retry_after(fields, now=sent + wrong) == ahead
    assert retry_after({**fields, "date": "nonsense"}, now=sent + wrong) == max(0, ahead - wrong)
    assert retry_after({**fields, "retry-after": str(ahead)}, now=sent + wrong) == ahead


@given(st.text() | st.text("0123456789 ,:+-.GMTSunovJa"), st.text())
def test_any_text_asks_for_a_finite_wait_or_none(value: str, date: str) -> None:
    seconds = retry_after({"retry-after": value, "date": date}, now=NOW)
    assert seconds is None or 0 <= seconds < 10**18


def test_a_date_without_a_zone_is_gmt_wherever_the_program_runs() -> None:
    code = (
        "from outreach_async.refusals import retry_after\n"
        f"print(retry_after({{'retry-after': 'Sun Nov  6 08:49:47 1994'}}, now={NOW}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "TZ": "Asia/Tokyo"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "10.0"


# What may never be shown


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("authorization", True),
        ("proxy-authorization", True),
        ("WWW-Authenticate", True),
        ("cookie", True),
        ("set-cookie", True),
        ("x-api-key", True),
        ("X-Auth-Token", True),
        ("x-amz-signature", True),
        ("x-client-secret", True),
        ("x-password", True),
        ("x-session", True),
        ("content-type", False),
        ("x-request-id", False),
        ("retry-after", False),
        ("date", False),
        ("etag", False),
        ("keep-alive", False),
    ],
)
def test_which_header_fields_may_carry_a_secret(name: str, secret: bool) -> None:
    assert is_secret_header(name) is secret
    assert masked_headers({name: "value"}, ()) == {name: MASK if secret else "value"}


def test_a_secret_is_a_fields_whole_value_and_each_word_of_it() -> None:
    fields = {"authorization": "Bearer abcdef", "x-api-key": "xyz", "cookie": "a=1; b=22", "accept": "application/json"}
    assert set(secret_parts(fields)) == {"Bearer abcdef", "Bearer", "abcdef", "a=1; b=22", "b=22", "a=1;"}


def test_a_secret_that_begins_as_another_is_masked_to_its_end() -> None:
    for secrets in (("key_abc", "key_abcdef"), ("key_abcdef", "key_abc")):
        assert masked(b"x key_abcdef y key_abc", secrets) == b"x *** y ***"


def test_a_body_without_secrets_is_left_as_it_is() -> None:
    body = bytes(range(256)) * 3
    assert masked(body, (PLAIN,)) == body
    assert masked(body, ()) == body


@pytest.mark.parametrize(
    "spelling",
    [
        PLAIN.encode(),
        b"\\u006b\\u0065\\u0079\\u005f4f9a8b7c6d5e",
        b"key\\u005F4f9a8b7c6d5e",
        b"k\\x65y_4f9a8b7c6d5e",
        b"k\\U00000065y_4f9a8b7c6d5e",
        b"key\\\\\\u005f4f9a8b7c6d5e",
        b"key%5F4f9a8b7c6d5e",
        b"%6b%65%79%5f%34%66%39%61%38%62%37%63%36%64%35%65",
        b"%6Bey_4f9a8b7c6d5e",
        PLAIN.encode("utf-16-le"),
        PLAIN.encode("utf-16-be"),
    ],
)
def test_a_key_is_masked_in_every_spelling(spelling: bytes) -> None:
    assert masked(b"a" + spelling + b"z", (PLAIN,)) == b"a***z"


@pytest.mark.parametrize(
    ("secret", "spelling"),
    [
        ('a"b\\c/d', rb"a\"b\\c\/d"),
        ("a'b\tc\nd", rb"a\'b\tc\nd"),
        ("tr\xe8s secret", b"tr\xe8s secret"),
        ("tr\xe8s secret", "tr\xc3\xa8s secret".encode()),
        ("tr\xe8s secret", b"tr%C3%A8s+secret"),
        ("\U0001f600 smile", b"\\ud83d\\uDE00 smile"),
        ("\U0001f600 smile", b"\\U0001F600 smile"),
        ("tr\xe8s secret", rb"tr\xc3\xa8s secret"),
        ("50%off", b"50%25off"),
        ("50%off", b"50%off"),
        ("a\\b\\", b"a\\b\\"),
    ],
)
def test_a_secret_of_odd_characters_is_masked_in_every_spelling(secret: str, spelling: bytes) -> None:
    assert masked(b"[" + spelling + b"]", (secret,)) == b"[***]"


@pytest.mark.parametrize(
    ("secret", "body"), [("\\" * 40 + "x", b"\\" * 5_000), ("%25" * 20 + "x", b"%25" * 5_000), ("a" * 60, b"a" * 59)]
)
def test_looking_for_a_secret_of_any_shape_comes_to_an_end(secret: str, body: bytes) -> None:
    assert masked(body, (secret,)) == body


# `***` itself stands in for secrets, and U+FFFD for bytes that are no text: masking could put together a key that held them.
keys = st.text(st.characters(codec="utf-8", exclude_characters="*\ufffd"), min_size=4, max_size=24).map("key_{}".format)
plain_keys = st.text("0123456789abcdefABCDEF-._~", min_size=8, max_size=40).map("key_{}".format)


def as_json(key: str, choice: random.Random) -> bytes:
    """Write a text as it may stand in JSON, each character in any of its spellings."""
    return "".join(choice.choice(json_forms(character)) for character in key).encode()


def json_forms(character: str) -> list[str]:
    units = character.encode("utf-16-be").hex()
    escaped = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    upper = escaped.upper().replace("\\U", "\\u")
    return [escaped, upper, json.dumps(character)[1:-1], json.dumps(character, ensure_ascii=False)[1:-1]] + ["\\/"] * (
        character == "/"
    )


def as_url(key: str, choice: random.Random) -> bytes:
    """Write a text as it may stand in a URL, each byte in any of its spellings."""
    return b"".join(choice.choice(url_forms(byte)) for byte in key.encode())


def url_forms(byte: int) -> list[bytes]:
    return [b"%%%02x" % byte, b"%%%02X" % byte, bytes([byte]) if byte != ord("%") else b"%25"]


def as_it_is(key: str, _choice: random.Random) -> bytes:
    return key.encode()


def as_python(key: str, _choice: random.Random) -> bytes:
    return repr(key)[1:-1].encode()


SPELLINGS: list[Callable[[str, random.Random], bytes]] = [as_json, as_url, as_it_is, as_python]

BODIES = [
    b"%b",
    b"no such key: %b!",
    b"<html><p>%b</p></html>",
    b'"%b"',
    b'{"status": "error", "error": {"code": "unknown_key", "message": "no key %b here"}}',
    b'{"status": "%b", "id": null, "details": null}',
    b'{"status": "no %b", "message": "%b"}',
    b'{"status": "added", "id": "%b"}',
    b'{"status": "added", "id": null, "details": ["%b"]}',
    b'{"%b": 1}',
    b'{"errors": [{"%b": "%b"}]}',
    b'{"status": "truncated %b',
]


def shown(error: OutreachError) -> list[bytes]:
    """Return everything that an error can be seen as."""
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    texts = [str(error), repr(error), repr(error.args), repr(vars(error)), *traceback.format_exception(error)]
    texts += [str(again), repr(vars(again)), repr(vars(copy.deepcopy(error)))]
    texts += [*error.headers, *error.headers.values(), error.request_id or ""]
    raw = [*(text.encode(errors="replace") for text in texts), error.body, pickle.dumps(error), pickle.dumps(error, 0)]
    return [*raw, *map(unquote_to_bytes, raw), *map(unescaped, raw)]


def unescaped(data: bytes) -> bytes:
    """Undo JSON's `\\u` for the basic plane, where keys are."""
    return re.sub(rb"\\u00([0-7][0-9a-fA-F])", lambda found: bytes.fromhex(found[1].decode()), data)


def raised(error: OutreachError) -> OutreachError:
    """Give an error a traceback."""
    with pytest.raises(OutreachError) as caught:
        raise error
    return caught.value


def all_errors(body: bytes, headers: dict[str, str], key: str) -> list[OutreachError]:
    """Return every error that an answer can become."""
    fault: DecodeError | str = "status 'x', which is no outcome"
    try:
        answer = loads(CreateAnswer, body)
    except DecodeError as error:
        fault = error
    else:
        fault = f"status {answer.status.value!r}, which is no outcome"
    response = Response(200, headers, body)
    errors: list[OutreachError] = [unexpected("create_contact", response, (key,), fault)]
    errors += [refused("create_contact", Response(status, headers, body), (key,), now=NOW) for status in (401, 429, 500)]
    return [raised(error) for error in errors]


@settings(unhurried, max_examples=150)
@given(keys | plain_keys, st.sampled_from(SPELLINGS), st.sampled_from(BODIES), st.integers(0, 2**32))
@example("key_'\"\\", as_python, b'{"status": "no %b", "message": "%b"}', 0)
@example("key_a\\u0041b", as_it_is, b"%b", 0)
@example("key_50%25", as_url, b"%b", 0)
def test_a_key_that_the_body_echoes_is_nowhere_in_the_error(key: str, spell: Any, frame: bytes, seed: int) -> None:
    body = frame.replace(b"%b", spell(key, random.Random(seed)))  # noqa: S311 - nothing here is secret
    for error in all_errors(body, {}, key):
        for seen in shown(error):
            assert key.encode() not in seen
        assert repr(key)[1:-1] not in str(error)
        assert json.dumps(key)[1:-1] not in str(error)
        assert quote(key, safe="") not in str(error)


@settings(unhurried, max_examples=50)
@given(
    plain_keys,
    st.sampled_from(SPELLINGS),
    st.sampled_from(["x-request-id", "x-hint", "location", "authorization", "set-cookie", "retry-after", "date"]),
    st.integers(0, 2**32),
)
def test_a_key_that_header_fields_echo_is_nowhere_in_the_error(key: str, spell: Any, name: str, seed: int) -> None:
    value = f"https://a.example/?k={spell(key, random.Random(seed)).decode()}&x"  # noqa: S311 - nothing here is secret
    for error in all_errors(b"{}", {name: value, f"x-{key}": "1"}, key):
        assert list(error.headers) == [name, "x-***"]
        assert error.headers[name] == (MASK if is_secret_header(name) else "https://a.example/?k=***&x")
        assert all(key.encode() not in seen for seen in shown(error))


def test_a_field_of_bytes_that_were_read_as_latin_1_is_masked_too() -> None:
    key = "key_pass\xe9 \u4f60\u597d"
    fields = {"x-hint": f"no key {key.encode().decode('latin-1')}", "x-other": key, "x-odd": "\ud800"}
    assert masked_headers(fields, (key,)) == {"x-hint": "no key ***", "x-other": "***", "x-odd": "\ufffd" * 3}


@settings(unhurried, max_examples=50)
@given(keys | plain_keys, st.sampled_from(SPELLINGS), st.integers(0, 200), st.integers(0, 2**32))
def test_a_key_across_the_end_of_what_is_kept_leaves_no_part_behind(key: str, spell: Any, back: int, seed: int) -> None:
    spelling = spell(key, random.Random(seed))  # noqa: S311 - nothing here is secret
    before = max(0, BODY_LIMIT - back)
    body = b"x" * before + spelling + b"y" * BODY_LIMIT
    for error in all_errors(body, {}, key):
        assert error.body == (b"x" * before + MASK.encode() + b"y" * BODY_LIMIT)[:BODY_LIMIT]
        assert all(key.encode() not in seen for seen in shown(error))


@unhurried
@given(plain_keys, st.integers(0, 300))
def test_a_key_across_the_end_of_what_is_told_leaves_no_part_behind(key: str, before: int) -> None:
    error = refusal(400, b"x" * before + key.encode() + b"y" * 300, {}, key)
    assert "key_" not in str(error)


def test_a_secret_of_the_requests_header_is_masked_wherever_the_service_repeats_it() -> None:
    secrets = secret_parts({"authorization": "Bearer abcdef123456"})
    error = refusal(401, b'{"error": "bad token abcdef123456"}', {"x-echo": "bearer=abcdef123456"}, *secrets)
    assert str(error) == "list_fields: the service answered 401: bad token ***"
    assert error.headers == {"x-echo": "bearer=***"}


# What a backend quotes


def lost(text: str = "lost", *, cause: BaseException | None = None, context: BaseException | None = None) -> TransportError:
    error = TransportError(text, maybe_sent=True)
    error.__cause__, error.__context__ = cause, context
    return error


def noted(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


def own_cause() -> BaseException:
    error = ValueError("in circles")
    error.__cause__ = error
    return error


@pytest.mark.parametrize(
    "cause", [None, ValueError("bad status line"), lost(cause=KeyError("x"), context=OSError(5)), own_cause()]
)
def test_an_error_that_shows_no_secret_keeps_what_it_came_from(cause: BaseException | None) -> None:
    error = lost(cause=cause, context=cause)
    assert scrubbed(error, (PLAIN,)) is error
    assert (error.__cause__, error.__context__, str(error)) == (cause, cause, "lost")
    assert not hasattr(error, "__notes__")


QUOTING: list[Callable[[str], TransportError]] = [
    lost,
    lambda text: lost(cause=ValueError(text)),
    lambda text: lost(context=ValueError(text)),
    lambda text: lost(cause=KeyError(text.encode())),
    lambda text: lost(cause=OSError("x"), context=lost(cause=lost(context=ValueError(text)))),
    lambda text: lost(cause=ExceptionGroup("several", [OSError("x"), ExceptionGroup("more", [ValueError(text)])])),
    lambda text: lost(cause=noted(ValueError("x"), text)),
    lambda text: lost(cause=noted(own_cause(), text)),
]


@unhurried
@given(plain_keys, st.sampled_from(SPELLINGS), st.sampled_from(QUOTING), st.integers(0, 2**32))
def test_a_key_that_a_backend_quotes_is_nowhere_in_the_error(key: str, spell: Any, quoting: Any, seed: int) -> None:
    text = f"illegal status line: b'{spell(key, random.Random(seed)).decode()} 200'"  # noqa: S311 - nothing here is secret
    error = raised(scrubbed(quoting(text), (key,)))
    assert str(error) in {"lost", "illegal status line: b'*** 200'"}
    assert (error.__cause__, error.__context__) == (None, None)
    assert all(key.encode() not in seen for seen in shown(error))


def test_the_notes_of_an_error_stay_without_their_secrets() -> None:
    error = lost()
    error.add_note(f"sent {PLAIN}")
    error.add_note("row 7")
    assert scrubbed(error, (PLAIN,)).__notes__ == ["sent ***", "row 7"]
