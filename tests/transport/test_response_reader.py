"""Responses are read within a limit and decoded alike for every backend."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.errors import TransportError
from outreach_async.transport._response_reader import MAX_ANSWER, BodyReader, decode_headers


def raw_deflate(body: bytes) -> bytes:
    stream = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return stream.compress(body) + stream.flush()


ENCODERS: dict[tuple[str, str], Callable[[bytes], bytes]] = {
    ("", "none"): bytes,
    ("identity", "identity"): bytes,
    ("gzip", "gzip"): gzip.compress,
    (" X-GZip ", "gzip by another name"): gzip.compress,
    ("gzip", "gzip in two members"): lambda body: gzip.compress(body[: len(body) // 2]) + gzip.compress(body[len(body) // 2 :]),
    ("deflate", "deflate"): zlib.compress,
    ("deflate", "deflate without its header"): raw_deflate,
}


def test_a_header_is_decoded_as_utf_8_or_else_as_latin_1() -> None:
    assert decode_headers([(b"X-Place", b"K\xc3\xb6ln"), (b"x-place", b"K\xf6ln")]) == {"x-place": "Köln, Köln"}


def cut(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    pieces = []
    for size in sizes:
        pieces.append(data[:size])
        data = data[size:]
    return [*pieces, data]


def take(intake: BodyReader, pieces: Iterable[bytes]) -> bytes:
    for piece in pieces:
        intake.feed(piece)
    return intake.finish()


@pytest.mark.parametrize(("coding", "kind"), ENCODERS, ids=lambda value: value)
@given(body=st.binary(max_size=300), sizes=st.lists(st.integers(0, 40), max_size=8))
def test_a_body_is_decoded_in_any_pieces_up_to_the_limit(coding: str, kind: str, body: bytes, sizes: list[int]) -> None:
    pieces = cut(ENCODERS[coding, kind](body), sizes)
    assert take(BodyReader({"content-encoding": coding}, len(body) or 1), pieces) == body
    if len(body) > 1:
        with pytest.raises(TransportError, match=f"too large.*max_answer={len(body) - 1} bytes") as caught:
            take(BodyReader({"content-encoding": coding}, len(body) - 1), pieces)
        assert caught.value.maybe_sent


@pytest.mark.parametrize(
    ("size", "rest"),
    [(1001, b"no gzip"), (1000, gzip.compress(b"x" * 10, mtime=0)[:-8] + b"no check")],
    ids=["after a member", "within a member"],
)
def test_nothing_is_decoded_after_the_byte_that_is_too_many(size: int, rest: bytes) -> None:
    intake = BodyReader({"content-encoding": "gzip"}, 1000)
    with pytest.raises(TransportError, match="too large"):
        intake.feed(gzip.compress(b"x" * size) + rest)


@pytest.mark.parametrize("stated", ["1001", "999999999999999999", "9" * 30])
def test_a_content_length_beyond_the_limit_is_refused_unread(stated: str) -> None:
    with pytest.raises(TransportError, match="its content-length is") as caught:
        BodyReader({"content-length": stated}, 1000)
    assert caught.value.maybe_sent


@pytest.mark.parametrize("stated", ["-1", "1, 1", "", "٣"])
def test_an_invalid_content_length_is_refused(stated: str) -> None:
    with pytest.raises(TransportError, match="invalid content-length: expected a whole number, got ") as caught:
        BodyReader({"content-length": stated}, 1000)
    assert caught.value.maybe_sent


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "zstd"])
def test_an_encoding_that_was_not_requested_is_refused(coding: str) -> None:
    with pytest.raises(TransportError, match=f"expected one of gzip, deflate, got .{coding}"):
        BodyReader({"content-encoding": coding}, MAX_ANSWER)


def test_an_empty_body_is_in_any_encoding() -> None:
    assert take(BodyReader({"content-encoding": "gzip"}, 10), []) == b""


def test_encoded_bytes_have_a_limit_too_even_if_few_are_decoded() -> None:
    body = gzip.compress(b"ok")
    name = b"n" * (2 * 1000 + 65_536 - len(body) - 1) + b"\0"
    largest = body[:3] + b"\x08" + body[4:10] + name + body[10:]  # flag 8: the header contains a file name
    assert take(BodyReader({"content-encoding": "gzip"}, 1000), [largest]) == b"ok"
    with pytest.raises(TransportError, match="too large: its body has more"):
        take(BodyReader({"content-encoding": "gzip"}, 1000), [body[:3] + b"\x08" + body[4:10] + b"n" + name + body[10:]])


def test_a_decoded_body_is_accepted_unchanged() -> None:
    assert take(BodyReader({"content-encoding": "br"}, MAX_ANSWER, decoded=True), [b"plain"]) == b"plain"
