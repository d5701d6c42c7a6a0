"""Strict parsing of request bodies (rules W7 and W8), and compact JSON in UTF-8 for responses.

Duplicate members, NaN and lone surrogates are refused: JSON libraries read them differently, and a fake that accepted them would
hide that a client sends them.
"""

from __future__ import annotations

import json
from typing import Any, Final

from outreach_async.fake.refusals import refused

MAX_BODY: Final = 1024 * 1024
"""Maximum bytes of a request body."""

encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode
"""Encode a document as compact JSON."""


class _NotStrictError(ValueError):
    """JSON that Python's decoder accepts and this module refuses."""


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _NotStrictError("a member is named twice in one object")
    return members


def _constant(name: str) -> Any:
    raise _NotStrictError(f"{name} is not JSON")


_decoder = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_constant)


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse a request body strictly.

    Raises:
        Refused: 413 for a body that is too large; 400 for one that is not a JSON object, or contains a duplicate member, NaN,
            infinity or a lone surrogate.
    """
    if len(body) > MAX_BODY:
        raise refused(413, "body_too_large", f"the body is longer than {MAX_BODY} bytes")
    document = _parse(body)
    if not isinstance(document, dict):
        raise refused(400, "body_not_object", "the body must be a JSON object")
    return document


def _parse(body: bytes) -> Any:
    try:
        text = body.decode()
        document = _decoded(text)
        if "\\u" in text:
            # An escape is the only way for a lone surrogate to get in, and UTF-8 cannot encode one: this raises.
            encode(document).encode()
    except _NotStrictError as error:
        raise refused(400, "invalid_json", f"the body is not strict JSON: {error}") from None
    except (ValueError, RecursionError) as error:
        # The decoder's own message may quote the body, which can hold an owner key.
        raise refused(400, "invalid_json", f"the body is not JSON in UTF-8 ({_kind(error)})") from None
    return document


def _decoded(text: str) -> Any:
    if text.startswith("{"):
        document, end = _decoder.raw_decode(text)
        if end == len(text):
            return document
    return _decoder.decode(text)  # also strips whitespace around the document, at the cost of two regex searches


def _kind(error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError):
        return f"{error.msg}, at character {error.pos}"
    if isinstance(error, UnicodeEncodeError):
        return "a lone surrogate"
    return {UnicodeDecodeError: "not UTF-8", RecursionError: "nested too deeply"}.get(type(error), "a number too long")
