"""What a transport may report about a request, and its headers."""

from __future__ import annotations

import pytest

from outreach_async import Progress, Request, Response
from outreach_async.errors import InvalidRequest
from outreach_async.transport._sending import describe_cause, mark_handed_over, mark_unsent, merge_headers
from outreach_async.transport._urls import require_positive

POST = Request("POST", "/contacts", {"Content-Type": "application/json"}, b"{}")


@pytest.mark.parametrize(
    ("request_", "proof", "sent"),
    [
        pytest.param(POST, True, False, id="a body that tells"),
        pytest.param(POST, False, None, id="a body that a foreign transport may ignore"),
        pytest.param(Request("GET", "/campaigns"), True, None, id="no body"),
        pytest.param(Request("POST", "/" + "a" * 9000, {}, b"{}"), True, None, id="a long target"),
        pytest.param(Request("POST", "/", {"x": "a" * 9000}, b"{}"), True, None, id="a long header field"),
    ],
)
def test_only_a_body_behind_a_short_head_proves_that_nothing_was_sent(request_: Request, proof: bool, sent: bool | None) -> None:
    progress = Progress()
    mark_unsent(progress)
    assert progress.sent is False
    mark_handed_over(progress, request_, proof=proof)
    assert progress.sent is sent


def test_what_was_sent_once_stays_sent() -> None:
    progress = Progress()
    progress.sent = True
    mark_unsent(progress)
    mark_handed_over(progress, POST, proof=True)
    assert progress.sent is True


def test_headers_are_joined_under_lower_case_names_and_a_requests_own_win() -> None:
    assert merge_headers(POST, {"host": "api.example", "content-type": "text/plain"}) == {
        "host": "api.example",
        "content-type": "application/json",
        "accept-encoding": "gzip, deflate",
        "content-length": "2",
    }


@pytest.mark.parametrize(("method", "length"), [("POST", "0"), ("PUT", "0"), ("PATCH", "0"), ("GET", None), ("DELETE", None)])
def test_an_empty_body_has_a_length_where_one_is_expected(method: str, length: str | None) -> None:
    assert merge_headers(Request(method, "/"), {}).get("content-length") == length


@pytest.mark.parametrize("value", ["secret\r\nx: y", "secret\n", "sécret", " secret", "secret ", "sec\x00ret", "sec\x7fret"])
def test_an_ambiguous_header_is_refused_by_name_and_never_shown(value: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^headers\['x-key'\]: ") as caught:
        merge_headers(Request("GET", "/", {"x-key": value}), {})
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize("name", ["Content-Length", "transfer-encoding", "EXPECT"])
def test_a_request_may_not_set_the_headers_that_frame_its_body(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"headers: got {name.lower()}, .*; remove these headers"):
        merge_headers(Request("POST", "/", {name: "1"}, b"{}"), {})


def test_the_error_of_a_library_becomes_one_short_line() -> None:
    assert describe_cause(OSError("two\n  lines")) == "OSError: two lines"
    assert describe_cause(RuntimeError()) == "RuntimeError"
    assert len(describe_cause(ValueError("x" * 10_000))) < 250
    silent = RuntimeError()
    silent.__context__ = KeyError()
    silent.__context__.__cause__ = OSError("the reason")
    assert describe_cause(silent) == "RuntimeError: the reason"


@pytest.mark.parametrize("value", [0, -1, True, 1.0, "4", None])
def test_a_count_is_a_positive_integer(value: object) -> None:
    assert require_positive("max_in_flight", 1) == 1
    with pytest.raises(InvalidRequest, match=r"^max_in_flight: expected a whole number of 1 or more"):
        require_positive("max_in_flight", value)


def test_the_repr_of_a_request_or_response_shows_no_header_values_or_bodies() -> None:
    assert repr(Request("POST", "/contacts", {"authorization": "secret"}, b"secret")) == "<Request POST /contacts (6 bytes)>"
    assert repr(Response(200, {"set-cookie": "secret"}, b"secret")) == "<Response 200 (6 bytes)>"
