"""The exception hierarchy and the attributes of errors."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async import errors
from outreach_async.errors import BulkError, BulkStopped, BulkSuspended, Excluded, OutreachError, RateLimited, UnexpectedResponse

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, OutreachError)]
OWN: dict[type[OutreachError], tuple[str, list[Any]]] = {
    UnexpectedResponse: ("well_formed", [False, True]),
    RateLimited: ("retry_after", [None, 2.5]),
    Excluded: ("kind", ["consent", "list"]),
    BulkStopped: ("report", [None, {"rows": 3, "outcomes": {"added": 2}}]),
}

texts = st.text(max_size=8)
headers = st.dictionaries(texts | st.just("x-request-id"), texts, max_size=3)


@st.composite
def drawn_errors(draw: st.DrawFn) -> OutreachError:
    kind = draw(st.sampled_from(KINDS))
    error = kind(
        draw(texts),
        operation=draw(st.none() | texts),
        status_code=draw(st.none() | st.integers(300, 599)),
        headers=draw(st.none() | headers),
        body=draw(st.binary(max_size=20)),
        attempts=draw(st.integers(0, 9)),
        maybe_sent=draw(st.booleans()),
    )
    error.maybe_applied = draw(st.booleans())
    if kind in OWN:
        setattr(error, OWN[kind][0], draw(st.sampled_from(OWN[kind][1])))
    return error


def copies(error: OutreachError) -> Iterator[OutreachError]:
    yield from (pickle.loads(pickle.dumps(error, protocol)) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))  # noqa: S301 - our own bytes
    yield from (copy.copy(error), copy.deepcopy(error))


def test_the_docstring_shows_the_hierarchy() -> None:
    drawing = (errors.__doc__ or "").partition("\n\n")[2].partition("\n\n")[0]
    stack: list[tuple[int, str]] = []
    for line in drawing.splitlines():
        found = re.search(r"[A-Z]\w+", line)
        assert found
        stack = [(column, name) for column, name in stack if column < found.start()]
        kind = getattr(errors, found[0])
        assert [kind.__bases__[0].__name__] == ([stack[-1][1]] if stack else ["Exception"])
        also = re.search(r"\(also (\w+)\)", line)
        assert [base.__name__ for base in kind.__bases__[1:]] == ([also[1]] if also else [])
        stack.append((found.start(), found[0]))
    assert set(re.findall(r"\b[A-Z]\w+", drawing)) - {"ValueError", "TimeoutError"} == {kind.__name__ for kind in KINDS}


@given(drawn_errors())
def test_every_error_survives_pickling_and_copying_with_all_attributes(error: OutreachError) -> None:
    for copied in copies(error):
        assert copied is not error
        assert (type(copied), str(copied), copied.args, vars(copied)) == (type(error), str(error), error.args, vars(error))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_without_details_has_defaults(kind: type[OutreachError]) -> None:
    error = kind("the message")
    nothing = dict.fromkeys(("operation", "status_code", "request_id", "named_wait"))
    assert vars(error) == {**nothing, "headers": {}, "body": b"", "attempts": 0, "maybe_sent": False, "maybe_applied": False}
    assert (str(error), repr(error)) == ("the message", f"{kind.__name__}('the message')")
    assert kind not in OWN or getattr(error, OWN[kind][0]) == OWN[kind][1][0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_keeps_its_details(kind: type[OutreachError]) -> None:
    details = {"operation": "create_contact", "status_code": 418, "headers": {"x-request-id": "req_1"}, "attempts": 3}
    error = kind("x", body=b"teapot", maybe_sent=True, **details)  # type: ignore[arg-type]  # a dict of several types
    given = {"body": b"teapot", "request_id": "req_1", "maybe_sent": True, "maybe_applied": True, "named_wait": None}
    assert vars(error) == {**details, **given}


@pytest.mark.parametrize("size", [0, 1, errors.BODY_LIMIT - 1, errors.BODY_LIMIT, errors.BODY_LIMIT + 1, 1_000_000])
def test_an_error_keeps_the_beginning_of_a_body(size: int) -> None:
    body = bytes(index % 251 for index in range(size))
    assert OutreachError("x", body=body).body == body[: errors.BODY_LIMIT]


def test_an_error_has_its_own_copy_of_the_headers() -> None:
    fields = {"a": "1"}
    error = OutreachError("x", headers=fields)
    fields["a"] = "2"
    assert error.headers == {"a": "1"}


@given(drawn_errors(), st.sampled_from([BulkStopped, BulkSuspended]))
def test_a_run_stopped_by_an_error_has_the_details_of_that_error(cause: OutreachError, kind: type[BulkError]) -> None:
    error = kind.over(cause, "the run stopped")
    assert (type(error), str(error), error.__cause__) == (kind, f"the run stopped: {cause}", cause)
    for name in ("operation", "status_code", "headers", "body", "request_id", "attempts", "maybe_sent"):
        assert getattr(error, name) == getattr(cause, name)
