"""No error contains a secret that a response or a backend echoes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.echoes import ENCODINGS
from support.examples import scaled
from support.wire import unhurried

from outreach_async import Response
from outreach_async._core.responses import (
    MASK,
    build_status_error,
    build_unexpected_response,
    is_secret_header,
    mask_bytes,
    mask_headers,
    scrub_error,
)
from outreach_async._plumbing import secret_parts
from outreach_async.errors import BODY_LIMIT, TransportError

NOW = 784111777.0  # Sun, 06 Nov 1994 08:49:37 GMT
PLAIN = "key_4f9a8b7c6d5e"

SECRET_NAMES = "authorization proxy-authorization WWW-Authenticate set-cookie x-api-key X-Auth-Token x-amz-signature x-session"
PLAIN_NAMES = "content-type x-request-id retry-after date etag keep-alive"


def test_header_fields_that_may_carry_a_secret_are_known() -> None:
    for names, is_secret in ((SECRET_NAMES, True), (PLAIN_NAMES, False)):
        for name in names.split():
            assert is_secret_header(name) is is_secret
            assert mask_headers({name: "value"}, ()) == {name: MASK if is_secret else "value"}


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
    ("secret", "spelling"),
    [
        (PLAIN, PLAIN.encode()),
        (PLAIN, b"\\u006b\\u0065\\u0079\\u005f4f9a8b7c6d5e"),
        (PLAIN, b"key\\u005F4f9a8b7c6d5e"),
        (PLAIN, b"k\\x65y_4f9a8b7c6d5e"),
        (PLAIN, b"k\\U00000065y_4f9a8b7c6d5e"),
        (PLAIN, b"key\\\\\\u005f4f9a8b7c6d5e"),
        (PLAIN, b"key%5F4f9a8b7c6d5e"),
        (PLAIN, b"%6b%65%79%5f%34%66%39%61%38%62%37%63%36%64%35%65"),
        (PLAIN, b"%6Bey_4f9a8b7c6d5e"),
        (PLAIN, PLAIN.encode("utf-16-le")),
        (PLAIN, PLAIN.encode("utf-16-be")),
        ('a"b\\c/d', rb"a\"b\\c\/d"),
        ("a'b\tc\nd", rb"a\'b\tc\nd"),
        ("tr\xe8s secret", b"tr\xe8s secret"),
        ("tr\xe8s secret", "tr\xc3\xa8s secret".encode()),
        ("tr\xe8s secret", b"tr%C3%A8s+secret"),
        ("\U0001f600 smile", b"\\ud83d\\uDE00 smile"),
        ("\U0001f600 smile", b"\\U0001F600 smile"),
        ("tr\xe8s secret", rb"tr\xc3\xa8s secret"),
        ("no signs", b"no+signs"),
        ("50%off", b"50%25off"),
        ("50%off", b"50%off"),
        ("a\\b\\", b"a\\b\\"),
        ("???>>>", b"Pz8/Pj4+"),
        ("???>>>", b"Pz8_Pj4-"),
        ("???>>>", rb"Pz8\/Pj4\u002b"),
        ("???>>>", b"Pz8%2FPj4%2b"),
        ('say "hi"!', b64encode(rb"say \"hi\"!")),
    ],
)
def test_a_secret_is_masked_in_every_encoding(secret: str, spelling: bytes) -> None:
    assert mask_bytes(b"[" + spelling + b"]", (secret,)) == b"[***]"


@pytest.mark.parametrize(
    ("secret", "body"), [("\\" * 40 + "x", b"\\" * 5_000), ("%25" * 20 + "x", b"%25" * 5_000), ("a" * 60, b"a" * 59)]
)
def test_searching_for_any_secret_terminates(secret: str, body: bytes) -> None:
    assert mask_bytes(body, (secret,)) == body


# Masking inserts `***` for secrets and U+FFFD for invalid bytes, so it could assemble a key that contains them.
keys = st.text(st.characters(codec="utf-8", exclude_characters="*\ufffd"), min_size=4, max_size=24).map("key_{}".format)
plain_keys = st.text("0123456789abcdefABCDEF-._~", min_size=8, max_size=40).map("key_{}".format)
# The mask of a base64 form may include letters that the key shares with its neighbours.
encodings = st.sampled_from([encode for name, encode in ENCODINGS.items() if "base64" not in name])


@settings(unhurried, max_examples=scaled(50))
@given(keys | plain_keys, encodings, st.sampled_from(["x-request-id", "location", "authorization", "set-cookie", "date"]))
def test_a_key_echoed_in_headers_is_masked(key: str, encode: Any, name: str) -> None:
    masked = mask_headers({name: f"https://a.example/?k={encode(key)}&x", f"x-{encode(key)}": "1"}, (key,))
    assert list(masked) == [name, "x-***"]
    assert masked[name] == (MASK if is_secret_header(name) else "https://a.example/?k=***&x")


def test_a_header_decoded_as_latin_1_is_masked_too() -> None:
    key = "key_pass\xe9 \u4f60\u597d"
    fields = {"x-hint": f"no key {key.encode().decode('latin-1')}", "x-other": key, "x-odd": "\ud800"}
    assert mask_headers(fields, (key,)) == {"x-hint": "no key ***", "x-other": "***", "x-odd": "\ufffd" * 3}


@settings(unhurried, max_examples=scaled(50))
@given(keys | plain_keys, encodings, st.integers(0, 200))
def test_a_key_across_the_end_of_the_kept_body_leaves_no_trace(key: str, encode: Any, back: int) -> None:
    before = BODY_LIMIT - back
    response = Response(500, {}, b"x" * before + encode(key).encode() + b"y" * BODY_LIMIT)
    expected = (b"x" * before + MASK.encode() + b"y" * BODY_LIMIT)[:BODY_LIMIT]
    assert build_status_error("create_contact", response, (key,), now=NOW).body == expected
    assert build_unexpected_response("create_contact", response, (key,), "no JSON").body == expected


@unhurried
@given(plain_keys, st.integers(0, 300))
def test_a_key_across_the_end_of_the_message_leaves_no_trace(key: str, before: int) -> None:
    error = build_status_error("list_fields", Response(400, {}, b"x" * before + key.encode() + b"y" * 300), (key,), now=NOW)
    assert "key_" not in str(error)


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
@given(plain_keys, encodings, st.sampled_from(QUOTING))
def test_a_key_quoted_by_a_backend_is_nowhere_in_the_error(key: str, encode: Any, quoting: Any) -> None:
    error = scrub_error(quoting(f"illegal status line: b'{encode(key)} 200'"), (key,))
    assert str(error) in {"lost", "illegal status line: b'*** 200'"}
    assert (error.__cause__, error.__context__) == (None, None)
    assert key not in repr(vars(error))


def test_the_notes_of_an_error_stay_without_secrets() -> None:
    error = lost()
    error.add_note(f"sent {PLAIN}")
    error.add_note("row 7")
    assert scrub_error(error, (PLAIN,)).__notes__ == ["sent ***", "row 7"]
