"""Parse the control plane's requests strictly. An error names the place and the remedy."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from outreach_async.fake.behaviour import READINGS
from outreach_async.fake.control.fault_bodies import TAKES
from outreach_async.fake.ids import suggestion
from outreach_async.fake.refusals import masked


class Problem(Exception):
    """A request that the control plane refuses.

    Attributes:
        status: HTTP status code.
        message: What is wrong, with keys masked.
        field: The member or parameter at fault, with dots; `None` if there is none.
        remedy: How to correct the request.
        headers: Header fields of the response.
    """

    def __init__(
        self, status: int, message: str, field: str | None, remedy: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self.status = status
        self.message = masked(message)
        self.field = field
        self.remedy = remedy
        self.headers = headers or {}
        super().__init__(self.message)


def read_body(raw: bytes, kind: Any) -> Any:
    """Parse a body.

    Raises:
        Problem: The body is not valid for this operation.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(error, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
        raise Problem(400, f"cannot parse the body: {reason}", None, "send one JSON object in UTF-8") from None


def read_query(query: str, kind: Any) -> Any:
    """Parse query parameters.

    Raises:
        Problem: The parameters are not valid for this operation.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in given:
            raise Problem(400, f"the parameter {name} is given twice", name, "pass it once")
        given[name] = value
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _misfit(error, kind) from None


def _misfit(error: msgspec.ValidationError, kind: Any) -> Problem:
    message, _, place = str(error).partition(" - at `")
    named = re.search(r"(?:required|unknown) field `(.*)`", message)
    path = place.removeprefix("key` in `").removeprefix("$").removesuffix("`").lstrip(".")
    field = ".".join(filter(None, (path, named and named[1]))) or None
    return Problem(400, f"{field or 'the body'}: {message}", field, _remedy(field or "", getattr(kind, "__struct_fields__", ())))


def _remedy(field: str, known: tuple[str, ...]) -> str:
    first = re.split(r"[.\[]", field)[0]
    if first in {"fault", "faults"}:
        return f"available faults: {TAKES}"
    if first in READINGS:
        return f"use one of {', '.join(map(str, READINGS[first]))}"
    guess = suggestion(first, list(known)) if first not in known else ""
    return guess or (f"accepted: {', '.join(known)}" if known else "send an object without other members")
