"""Reading what the control plane is asked, strictly; what is wrong is said with its place and what to do about it."""

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
    """What the control plane will not do.

    Attributes:
        status: HTTP status code.
        message: What is wrong, without any key.
        field: The member or parameter at fault, with dots; `None` if there is none.
        remedy: What to do about it.
        headers: Header fields of the answer.
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
    """Read a body.

    Raises:
        Problem: It is not what is wanted here.
    """
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _misfit(error, kind) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        reason = str(error) if isinstance(error, msgspec.DecodeError) else type(error).__name__
        raise Problem(400, f"the body cannot be read: {reason}", None, "send one JSON object in UTF-8") from None


def read_query(query: str, kind: Any) -> Any:
    """Read query parameters.

    Raises:
        Problem: They are not what is wanted here.
    """
    given: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name in given:
            raise Problem(400, f"the parameter {name} is given twice", name, "give it once")
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
        return f"faults are: {TAKES}"
    if first in READINGS:
        return f"its readings are {', '.join(map(str, READINGS[first]))}"
    guess = suggestion(first, list(known)) if first not in known else ""
    return guess or (f"this takes {', '.join(known)}" if known else "send an object with no other member")
