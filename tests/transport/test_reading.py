"""Responses are read within limits and decoded alike for every backend, without I/O."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fuzz import grows_by_at_most, mutated
from support.tables import check_rows

from outreach_async.errors import TransportError
from outreach_async.transport._response_reader import MAX_ANSWER, BodyReader, decode_headers
from outreach_async.transport._socket_llhttp import parse_by_llhttp
from outreach_async.transport._socket_reader import MAX_HEAD, HeadParser, ResponseReader, choose_parser, parse_by_h11

# Responses are read within a limit and decoded alike for every backend.


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


@pytest.mark.thorough
def test_many_small_chunks_take_little_more_memory_than_their_sum() -> None:
    intake = BodyReader({}, 500_000)
    with grows_by_at_most(1):
        for number in range(50_000):
            intake.feed(b"%02d" % (number % 100))
        whole = intake.finish()
    assert whole == b"".join(b"%02d" % number for number in range(100)) * 500


def test_a_limited_number_of_nonempty_chunks_is_accepted() -> None:
    part = gzip.compress(b"x", mtime=0)
    intake = BodyReader({"content-encoding": "gzip"}, 500_000)
    intake.feed(part * 1_024)
    assert intake.finish() == b"x" * 1_024
    with pytest.raises(TransportError, match="more than 1024 gzip members"):
        intake.feed(part)


# Reading responses: independent of segments and of the parser, consistent with h11, and stricter.


LIMIT: Final = 10_000
OK: Final = b"HTTP/1.1 200 OK\r\n"
CHUNKED: Final = OK + b"transfer-encoding: chunked\r\n\r\n"


PARSERS: Final[Mapping[str, HeadParser]] = {"h11": parse_by_h11, "llhttp": parse_by_llhttp}
with_each_parser = pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)


@attrs.frozen
class Read:
    """What was read from a connection. The status is `None` if the response is invalid or incomplete."""

    status: int | None
    error: str = ""
    headers: dict[str, str] = attrs.field(factory=dict)
    body: bytes = b""
    keeps_alive: bool = False
    has_leftovers: bool = False


def read(*pieces: bytes, method: str = "POST") -> Read:
    """Read these pieces and then the end of the connection with a `ResponseReader`, alike with each parser."""
    by_h11, by_llhttp = (read_by(parse, *pieces, method=method) for parse in PARSERS.values())
    assert by_h11 == by_llhttp
    return by_h11


def read_by(parse: HeadParser, *pieces: bytes, method: str) -> Read:
    reader = ResponseReader(method, LIMIT, parse)
    left = list(pieces)
    response = None
    try:
        while response is None and left:
            response = reader.feed(left.pop(0))
        if response is None:
            response = reader.finish()
    except TransportError as error:
        return Read(None, str(error))
    if response is None:
        return Read(None)
    leftovers = reader.has_leftovers or any(left)
    return Read(response.status, "", dict(response.headers), response.body, reader.keeps_alive, leftovers)


def read_by_h11(raw: bytes, method: str) -> Read:
    """Read these bytes and then the end of the connection with h11."""
    machine = h11.Connection(h11.CLIENT)
    machine.send(h11.Request(method=method, target="/", headers=[("host", "localhost")]))
    machine.send(h11.EndOfMessage())
    machine.receive_data(raw)
    head, body, has_ended = None, b"", False
    try:
        while not isinstance(event := machine.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif event is h11.NEED_DATA and not has_ended:
                has_ended = True
                machine.receive_data(b"")
            elif not isinstance(event, h11.InformationalResponse):
                return Read(None)
    except h11.RemoteProtocolError:
        return Read(None)
    if head is None or len(body) > LIMIT:
        return Read(None)
    keeps_alive = machine.their_state is h11.DONE
    return Read(head.status_code, "", decode_headers(head.headers), body, keeps_alive, bool(machine.trailing_data[0]))


RESPONSES: Final = (
    OK + b"content-length: 5\r\n\r\nhello",
    OK + b"Content-Type: application/json\r\nX-A:  b \t\r\nx-a: c\r\nconnection: close\r\ncontent-length: 5\r\n\r\nhello",
    OK + b"\r\nhello",
    b"HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nhello",
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404\r\ncontent-length: 0\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n6;a=b\r\n world\r\n0\r\n\r\n",
    CHUNKED + b"5\r\nhello\r\n000\r\nx-trailer: y\r\nz:\r\n\r\n",
    CHUNKED + b"4\r\n\r\n\r\n\r\n0\r\n\r\n",
    OK + b"content-encoding: gzip\r\ncontent-length: 25\r\n\r\n" + gzip.compress(b"hello", mtime=0),
    CHUNKED[:-2] + b"content-encoding: gzip\r\n\r\n19\r\n" + gzip.compress(b"hello", mtime=0) + b"\r\n0\r\n\r\n",
    CHUNKED[:-2] + b"connection: close\r\n\r\n0\r\n\r\n",
    CHUNKED[:-4] + b" \t\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
)
AFTER: Final = (b"", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"H", b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nx", b"\0")

streams = st.builds(bytes.__add__, st.sampled_from(RESPONSES) | mutated(RESPONSES), st.sampled_from(AFTER))
methods = st.sampled_from(["POST", "GET", "HEAD"])


@pytest.mark.thorough
@settings(max_examples=scaled(400))
@given(streams, methods, st.data())
def test_a_response_is_the_same_in_any_pieces(raw: bytes, method: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    pieces = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    assert read(*pieces, method=method) == read(raw, method=method)


def test_a_response_is_the_same_byte_by_byte() -> None:
    def check(raw: bytes, after: bytes) -> None:
        assert read(*(bytes([byte]) for byte in raw + after)) == read(raw + after)

    check_rows(((raw, after) for raw in RESPONSES for after in AFTER), check)


@pytest.mark.thorough
@settings(max_examples=scaled(400))
@given(streams, methods)
def test_a_response_that_h11_accepts_as_well_is_the_same(raw: bytes, method: str) -> None:
    ours, theirs = read(raw, method=method), read_by_h11(raw, method)
    if None in {ours.status, theirs.status}:
        return
    # h11 does not decompress, and does not report that a body ended with the connection.
    body = theirs.body if "content-encoding" in ours.headers else ours.body
    assert attrs.evolve(ours, body=body) == attrs.evolve(theirs, keeps_alive=ours.keeps_alive and theirs.keeps_alive)


ODD_LINES: Final = (
    *(
        b"x: a",
        b"x:",
        b"x",
        b": a",
        b" x: a",
        b"x : a",
        b"x: a\x7fb",
        b"x: a\x0bb",
        b"x: a\0b",
        b"x: a\rb",
        b"x: a\nb",
        b"x: \xc3\xbc\xff",
    ),
    *(
        b"\tfolded",
        b"x\xfc: a",
        b"x@y: a",
        b"x: a \t ",
        b"connection: close",
        b"Connection: Keep-Alive,\tClose",
        b"connection: closed",
    ),
    *(b"content-length: 5", b"Content-Length:\t5 ", b"content-length: +5", b"content-length: 5,5", b"content-length: 5 5"),
    *(
        b"content-length: 00",
        b"content-length: 9" + b"0" * 17,
        b"content-length: 1" + b"0" * 20,
        b"content-length",
        b"content-length : 5",
    ),
    *(
        b"transfer-encoding: chunked",
        b"Transfer-Encoding: Chunked\t",
        b"transfer-encoding:",
        b"transfer-encoding: chunked, chunked",
    ),
    *(
        b"transfer-encoding: identity",
        b"upgrade: x",
        b"connection: upgrade",
        b"content-encoding: gzip",
        b"trailer: x",
        b"proxy-connection: close",
    ),
)
STATUS_LINES: Final = (
    *(
        b"HTTP/1.1 200 OK",
        b"HTTP/1.0 200 OK",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 204 x",
        b"HTTP/1.1 304 x",
        b"HTTP/1.1 103 x",
    ),
    *(
        b"HTTP/1.1 101 x",
        b"HTTP/1.1 999 \xff\t ",
        b"HTTP/1.1 200 a\x01",
        b"HTTP/1.1 200 a\0b",
        b"HTTP/1.1 200 a\x7f",
        b"HTTP/1.1 200 a\rb",
        b"HTTP/1.1 20 x",
    ),
    *(b"HTTP/1.1 200\tx", b"HTTP/1.1  200 x", b"HTTP/1.1 200x", b"HTTP/1.2 200 x", b"http/1.1 200 x", b"HTTP/1.1 \xb2\xb2\xb2 x"),
)
heads = st.builds(
    lambda status, lines: b"\r\n".join([status, *lines]) + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    st.sampled_from(STATUS_LINES[:2]) | st.sampled_from(STATUS_LINES),
    st.lists(st.sampled_from(ODD_LINES), max_size=4),
)


def test_each_odd_line_is_the_same_with_each_parser() -> None:
    def check(status: bytes, line: bytes) -> None:
        read(status + b"\r\n" + line + b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n")

    check_rows(((status, line) for status in STATUS_LINES for line in ODD_LINES), check)


@settings(max_examples=scaled(400))
@given(heads, methods)
def test_odd_lines_together_are_the_same_with_each_parser(raw: bytes, method: str) -> None:
    read(raw, method=method)


STRICTER: Final = {
    "a bare line feed": b"HTTP/1.1 200 OK\ncontent-length: 0\n\n",
    "a field on two lines": OK + b"x: a\r\n b\r\ncontent-length: 0\r\n\r\n",
    "a control character": OK + b"x: a\x01b\r\ncontent-length: 0\r\n\r\n",
    "a control character in the reason": b"HTTP/1.1 200 a\x01\r\ncontent-length: 0\r\n\r\n",
    "a line feed after the status": b"HTTP/1.1 200\n\r\n\r\n",
    "an equal length stated twice": OK + b"content-length: 0\r\ncontent-length: 0\r\n\r\n",
    "a length that is a list": OK + b"content-length: 5, 5\r\n\r\nhello",
    "another version of HTTP": b"HTTP/0.0 200 OK\r\ncontent-length: 0\r\n\r\n",
}
"""Responses that h11 accepts and this package rejects. No case of the reverse is known."""


@pytest.mark.parametrize("raw", STRICTER.values(), ids=STRICTER)
def test_some_responses_that_h11_accepts_are_refused(raw: bytes) -> None:
    assert read_by_h11(raw, "POST").status is not None
    assert read(raw).status is None


FIELDS: Final = "expected header fields, with at most one content-length or one transfer-encoding: chunked"
REFUSED: Final = {
    "HTTP/0.9": (b"HTTP/0.9 200 OK\r\n\r\nhello", "expected a status line of HTTP/1.0 or HTTP/1.1"),
    "another protocol": (b"SSH-2.0", "expected a status line of HTTP/1.0 or HTTP/1.1"),
    "a line break before it": (b"\r\n" + OK, "expected a status line of HTTP/1.0 or HTTP/1.1"),
    "a line break after an interim": (b"HTTP/1.1 100 Go on\r\n\r\n\r\n" + OK, "expected a status line of HTTP/1.0 or HTTP/1.1"),
    "status 099": (b"HTTP/1.1 099 No\r\n\r\n", "has an invalid status: expected 200 or more, got 099"),
    "status 2000": (b"HTTP/1.1 2000 No\r\n\r\n", "expected a status line of HTTP/1.0 or HTTP/1.1"),
    "another protocol that is switched to": (
        b"HTTP/1.1 101 Go\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
        "switches to a protocol that was not requested",
    ),
    "status 101": (b"HTTP/1.1 101 Go\r\n\r\n", "switches to a protocol that was not requested"),
    "another transfer-encoding": (
        OK + b"transfer-encoding: gzip, chunked\r\n\r\n",
        FIELDS,
    ),
    "chunks and a length": (CHUNKED[:-2] + b"content-length: 5\r\n\r\nhello", FIELDS),
    "a length in words": (OK + b"content-length: five\r\n\r\nhello", FIELDS),
    "an empty length": (OK + b"content-length:\r\n\r\nhello", FIELDS),
    "a chunk without a size": (CHUNKED + b"2\r\nok\r\nno\r\n", "expected chunks, as its transfer-encoding states"),
    "a head without end": (OK + b"x: " + b"y" * MAX_HEAD, "its head has more than 65536 bytes"),
    "interim responses without end": (b"HTTP/1.1 103 Hints\r\n\r\n" * 4_000, "its head has more than 65536 bytes"),
    "trailers without end": (
        CHUNKED + b"0\r\n" + b"x: y\r\n" * 11_000,
        "its trailer or chunk extension has more than 65536 bytes",
    ),
    "a length of many zeros": (OK + b"content-length: " + b"0" * 5_000 + b"\r\n\r\n", FIELDS),
    "a length of some zeros": (OK + b"content-length: " + b"0" * 18 + b"2\r\n\r\nok", FIELDS),
    "a body that is too large": (OK + b"content-length: 10001\r\n\r\n", "content-length is 10001, more than max_answer=10000"),
    "gzip that is invalid": (OK + b"content-encoding: gzip\r\ncontent-length: 5\r\n\r\nhello", "encoding 'gzip' is not valid"),
}


@with_each_parser
@pytest.mark.parametrize(("raw", "reason"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_response_is_refused_with_a_reason(raw: bytes, reason: str, parse: HeadParser) -> None:
    with pytest.raises(TransportError, match=r"^the response ") as caught:
        ResponseReader("POST", LIMIT, parse).feed(raw)
    assert reason in str(caught.value)
    assert caught.value.maybe_sent
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def test_trailers_that_arrive_slowly_are_limited() -> None:
    pieces = [CHUNKED + b"5\r\nhello\r\n0\r\n", *[b"x: " + b"y" * 95 + b"\r\n"] * 2_000, b"\r\n"]
    with grows_by_at_most(3):
        assert read(*pieces[:500], b"\r\n").body == b"hello"
        assert read(*pieces).status is None


@pytest.mark.parametrize("connection", [b"keep-alive", b"keep-alive, close"])
def test_a_connection_of_http_1_0_is_not_reused(connection: bytes) -> None:
    ours = read(b"HTTP/1.0 200 OK\r\nconnection: " + connection + b"\r\ncontent-length: 5\r\n\r\nhello")
    assert (ours.body, ours.keeps_alive) == (b"hello", False)


def test_many_small_chunks_have_no_limit_of_their_own() -> None:
    reader = ResponseReader("POST", 100_000, parse_by_h11)
    assert reader.feed(CHUNKED) is None
    for _ in range(30_000):
        reader.feed(b"1\r\nx\r\n")
    response = reader.feed(b"0\r\n\r\n")
    assert response is not None
    assert response.body == b"x" * 30_000


def test_a_truncated_gzip_body_that_ends_with_the_connection_is_refused() -> None:
    reader = ResponseReader("POST", LIMIT, parse_by_h11)
    reader.feed(OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"hello")[:-3])
    with pytest.raises(TransportError, match="is truncated"):
        reader.finish()


@pytest.mark.parametrize("raw", [b"", OK, OK + b"content-length: 5\r\n\r\nhell", CHUNKED + b"5\r\nhello\r\n"])
def test_a_response_that_ends_too_early_is_none(raw: bytes) -> None:
    reader = ResponseReader("POST", LIMIT, parse_by_h11)
    assert reader.feed(raw) is None
    assert reader.finish() is None


def test_llhttp_parses_if_a_supported_version_of_httptools_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert choose_parser() is parse_by_llhttp
    monkeypatch.setattr("outreach_async.transport._socket_llhttp.VERSION", "0.6.4")
    assert choose_parser() is parse_by_h11
    monkeypatch.setitem(sys.modules, "outreach_async.transport._socket_llhttp", None)  # as if its import failed
    assert choose_parser() is parse_by_h11
