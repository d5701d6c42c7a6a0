"""No error contains a secret, whatever a response or a backend echoes, in any encoding."""

from __future__ import annotations

import copy
import json
import pickle
import random
import re
import traceback
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.wire import unhurried

from outreach_async._service.codec import DecodeError, decode_model
from outreach_async._service.contacts import CreateContactResponse
from outreach_async._service.responses import (
    MASK,
    build_status_error,
    build_unexpected_response,
    is_secret_header,
    mask_bytes,
    mask_headers,
    scrub_error,
    secret_parts,
)
from outreach_async.errors import BODY_LIMIT, OutreachError, TransportError
from outreach_async.transport._wire import Response

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT
PLAIN = "key_4f9a8b7c6d5e"


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
def test_header_fields_that_may_carry_a_secret_are_known(name: str, secret: bool) -> None:
    assert is_secret_header(name) is secret
    assert mask_headers({name: "value"}, ()) == {name: MASK if secret else "value"}


def test_the_whole_value_of_a_header_and_each_word_are_secrets() -> None:
    fields = {"authorization": "Bearer abcdef", "x-api-key": "xyz", "cookie": "a=1; b=22", "accept": "application/json"}
    assert set(secret_parts(fields)) == {"Bearer abcdef", "Bearer", "abcdef", "a=1; b=22", "b=22", "a=1;"}


def test_a_secret_that_begins_like_another_is_masked_to_its_end() -> None:
    for secrets in (("key_abc", "key_abcdef"), ("key_abcdef", "key_abc")):
        assert mask_bytes(b"x key_abcdef y key_abc", secrets) == b"x *** y ***"


def test_a_body_without_secrets_is_unchanged() -> None:
    body = bytes(range(256)) * 3
    assert mask_bytes(body, (PLAIN,)) == body
    assert mask_bytes(body, ()) == body


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
def test_a_key_is_masked_in_every_encoding(spelling: bytes) -> None:
    assert mask_bytes(b"a" + spelling + b"z", (PLAIN,)) == b"a***z"


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
def test_a_secret_of_unusual_characters_is_masked_in_every_encoding(secret: str, spelling: bytes) -> None:
    assert mask_bytes(b"[" + spelling + b"]", (secret,)) == b"[***]"


@pytest.mark.parametrize(
    ("secret", "body"), [("\\" * 40 + "x", b"\\" * 5_000), ("%25" * 20 + "x", b"%25" * 5_000), ("a" * 60, b"a" * 59)]
)
def test_searching_for_any_secret_terminates(secret: str, body: bytes) -> None:
    assert mask_bytes(body, (secret,)) == body


# Masking inserts `***` for secrets and U+FFFD for invalid bytes, so it could assemble a key that contains them.
keys = st.text(st.characters(codec="utf-8", exclude_characters="*\ufffd"), min_size=4, max_size=24).map("key_{}".format)
plain_keys = st.text("0123456789abcdefABCDEF-._~", min_size=8, max_size=40).map("key_{}".format)


def as_json(key: str, choice: random.Random) -> bytes:
    """Encode a string for JSON, each character in any of its spellings."""
    return "".join(choice.choice(json_forms(character)) for character in key).encode()


def json_forms(character: str) -> list[str]:
    units = character.encode("utf-16-be").hex()
    escaped = "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
    upper = escaped.upper().replace("\\U", "\\u")
    return [escaped, upper, json.dumps(character)[1:-1], json.dumps(character, ensure_ascii=False)[1:-1]] + ["\\/"] * (
        character == "/"
    )


def as_url(key: str, choice: random.Random) -> bytes:
    """Encode a string for a URL, each byte in any of its spellings."""
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
    """Return every representation of an error."""
    unpickled = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    texts = [str(error), repr(error), repr(error.args), repr(vars(error)), *traceback.format_exception(error)]
    texts += [str(unpickled), repr(vars(unpickled)), repr(vars(copy.deepcopy(error)))]
    texts += [*error.headers, *error.headers.values(), error.request_id or ""]
    raw = [*(text.encode(errors="replace") for text in texts), error.body, pickle.dumps(error), pickle.dumps(error, 0)]
    return [*raw, *map(unquote_to_bytes, raw), *map(unescape_json, raw)]


def unescape_json(data: bytes) -> bytes:
    """Undo JSON's `\\u` escapes in the basic plane, where keys are."""
    return re.sub(rb"\\u00([0-7][0-9a-fA-F])", lambda found: bytes.fromhex(found[1].decode()), data)


def with_traceback(error: OutreachError) -> OutreachError:
    """Give an error a traceback."""
    with pytest.raises(OutreachError) as caught:
        raise error
    return caught.value


def all_errors(body: bytes, headers: dict[str, str], key: str) -> list[OutreachError]:
    """Return every error that a response can become."""
    fault: DecodeError | str = "unknown status 'x' and no contact id"
    try:
        answer = decode_model(CreateContactResponse, body)
    except DecodeError as error:
        fault = error
    else:
        fault = f"unknown status {answer.status.value!r} and no contact id"
    response = Response(200, headers, body)
    errors: list[OutreachError] = [build_unexpected_response("create_contact", response, (key,), fault)]
    errors += [
        build_status_error("create_contact", Response(status, headers, body), (key,), now=NOW) for status in (401, 429, 500)
    ]
    return [with_traceback(error) for error in errors]


@pytest.mark.thorough
@settings(unhurried, max_examples=scaled(80))
@given(keys | plain_keys, st.sampled_from(SPELLINGS), st.sampled_from(BODIES), st.integers(0, 2**32))
@example("key_'\"\\", as_python, b'{"status": "no %b", "message": "%b"}', 0)
@example("key_a\\u0041b", as_it_is, b"%b", 0)
@example("key_50%25", as_url, b"%b", 0)
def test_a_key_echoed_in_the_body_is_nowhere_in_the_error(key: str, spell: Any, frame: bytes, seed: int) -> None:
    body = frame.replace(b"%b", spell(key, random.Random(seed)))  # noqa: S311 - reproducible, not secret
    for error in all_errors(body, {}, key):
        for seen in shown(error):
            assert key.encode() not in seen
        assert repr(key)[1:-1] not in str(error)
        assert json.dumps(key)[1:-1] not in str(error)
        assert quote(key, safe="") not in str(error)


@pytest.mark.thorough
@settings(unhurried, max_examples=scaled(50))
@given(
    plain_keys,
    st.sampled_from(SPELLINGS),
    st.sampled_from(["x-request-id", "x-hint", "location", "authorization", "set-cookie", "retry-after", "date"]),
    st.integers(0, 2**32),
)
def test_a_key_echoed_in_headers_is_nowhere_in_the_error(key: str, spell: Any, name: str, seed: int) -> None:
    value = f"https://a.example/?k={spell(key, random.Random(seed)).decode()}&x"  # noqa: S311 - reproducible, not secret
    for error in all_errors(b"{}", {name: value, f"x-{key}": "1"}, key):
        assert list(error.headers) == [name, "x-***"]
        assert error.headers[name] == (MASK if is_secret_header(name) else "https://a.example/?k=***&x")
        assert all(key.encode() not in seen for seen in shown(error))


def test_a_header_decoded_as_latin_1_is_masked_too() -> None:
    key = "key_pass\xe9 \u4f60\u597d"
    fields = {"x-hint": f"no key {key.encode().decode('latin-1')}", "x-other": key, "x-odd": "\ud800"}
    assert mask_headers(fields, (key,)) == {"x-hint": "no key ***", "x-other": "***", "x-odd": "\ufffd" * 3}


@settings(unhurried, max_examples=scaled(50))
@given(keys | plain_keys, st.sampled_from(SPELLINGS), st.integers(0, 200), st.integers(0, 2**32))
def test_a_key_across_the_end_of_the_kept_body_leaves_no_trace(key: str, spell: Any, back: int, seed: int) -> None:
    spelling = spell(key, random.Random(seed))  # noqa: S311 - reproducible, not secret
    before = max(0, BODY_LIMIT - back)
    body = b"x" * before + spelling + b"y" * BODY_LIMIT
    for error in all_errors(body, {}, key):
        assert error.body == (b"x" * before + MASK.encode() + b"y" * BODY_LIMIT)[:BODY_LIMIT]
        assert all(key.encode() not in seen for seen in shown(error))


@unhurried
@given(plain_keys, st.integers(0, 300))
def test_a_key_across_the_end_of_the_message_leaves_no_trace(key: str, before: int) -> None:
    error = build_status_error("list_fields", Response(400, {}, b"x" * before + key.encode() + b"y" * 300), (key,), now=NOW)
    assert "key_" not in str(error)


def test_a_secret_from_a_request_header_is_masked_wherever_it_is_echoed() -> None:
    secrets = secret_parts({"authorization": "Bearer abcdef123456"})
    response = Response(401, {"x-echo": "bearer=abcdef123456"}, b'{"error": "bad token abcdef123456"}')
    error = build_status_error("list_fields", response, secrets, now=NOW)
    assert str(error) == "list_fields: the service answered 401: bad token ***"
    assert error.headers == {"x-echo": "bearer=***"}


# Errors of backends


def lost(text: str = "lost", *, cause: BaseException | None = None, context: BaseException | None = None) -> TransportError:
    error = TransportError(text, maybe_sent=True)
    error.__cause__, error.__context__ = cause, context
    return error


def with_notes(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


def own_cause() -> BaseException:
    error = ValueError("in circles")
    error.__cause__ = error
    return error


@pytest.mark.parametrize(
    "cause", [None, ValueError("bad status line"), lost(cause=KeyError("x"), context=OSError(5)), own_cause()]
)
def test_an_error_without_secrets_keeps_its_cause(cause: BaseException | None) -> None:
    error = lost(cause=cause, context=cause)
    assert scrub_error(error, (PLAIN,)) is error
    assert (error.__cause__, error.__context__, str(error)) == (cause, cause, "lost")
    assert not hasattr(error, "__notes__")


QUOTING: list[Callable[[str], TransportError]] = [
    lost,
    lambda text: lost(cause=ValueError(text)),
    lambda text: lost(context=ValueError(text)),
    lambda text: lost(cause=KeyError(text.encode())),
    lambda text: lost(cause=OSError("x"), context=lost(cause=lost(context=ValueError(text)))),
    lambda text: lost(cause=ExceptionGroup("several", [OSError("x"), ExceptionGroup("more", [ValueError(text)])])),
    lambda text: lost(cause=with_notes(ValueError("x"), text)),
    lambda text: lost(cause=with_notes(own_cause(), text)),
]


@unhurried
@given(plain_keys, st.sampled_from(SPELLINGS), st.sampled_from(QUOTING), st.integers(0, 2**32))
def test_a_key_quoted_by_a_backend_is_nowhere_in_the_error(key: str, spell: Any, quoting: Any, seed: int) -> None:
    text = f"illegal status line: b'{spell(key, random.Random(seed)).decode()} 200'"  # noqa: S311 - reproducible, not secret
    error = with_traceback(scrub_error(quoting(text), (key,)))
    assert str(error) in {"lost", "illegal status line: b'*** 200'"}
    assert (error.__cause__, error.__context__) == (None, None)
    assert all(key.encode() not in seen for seen in shown(error))


def test_the_notes_of_an_error_stay_without_secrets() -> None:
    error = lost()
    error.add_note(f"sent {PLAIN}")
    error.add_note("row 7")
    assert scrub_error(error, (PLAIN,)).__notes__ == ["sent ***", "row 7"]
