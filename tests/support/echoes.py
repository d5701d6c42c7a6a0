"""Owner keys in many encodings, and checks that no output shows a key."""

from __future__ import annotations

import io
import json
import logging
import pickle
import re
import traceback
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote

from rich.console import Console
from rich.pretty import Pretty
from rich.traceback import Traceback

from outreach_async.errors import OutreachError, iterate_linked_errors


class Held:
    """A key in an object whose repr does not show the key, so that tracebacks of a test cannot show it."""

    def __init__(self, key: str) -> None:
        self.key = key


def percent(text: str) -> str:
    """Percent-encode every byte of a string."""
    return "".join(f"%{byte:02X}" for byte in text.encode())


def escape(text: str) -> str:
    """Write every character of a string as Unicode escapes of JSON."""
    units = text.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def base64(encode: Callable[[bytes], bytes], before: int, text: str) -> str:
    """Encode a string in base64, after `before` other bytes."""
    return encode(b"?" * before + text.encode()).decode()


def bare_base64(before: int, text: str) -> str:
    """Encode a string in base64 without padding, after `before` other bytes."""
    return base64(b64encode, before, text).rstrip("=")


ENCODINGS: Final[dict[str, Callable[[str], str]]] = {
    "as it is": str,
    **{f"base64, {before} bytes in front": partial(base64, b64encode, before) for before in range(3)},
    **{f"base64 for URLs, {before} bytes in front": partial(base64, urlsafe_b64encode, before) for before in range(3)},
    **{f"base64, {before} bytes in front, not padded": partial(bare_base64, before) for before in range(3)},
    "base64 within more": lambda text: b64encode(f'{{"owner_key":"{text}","a":1}}'.encode()).decode(),
    "percent": percent,
    "percent, as needed": lambda text: quote(text, safe=""),
    "percent, mixed": lambda text: "".join(
        quote(each, safe="") if at % 2 else percent(each).lower() for at, each in enumerate(text)
    ),
    "JSON": escape,
    "JSON, as needed": lambda text: json.dumps(text)[1:-1],
    "JSON, mixed": lambda text: "".join(json.dumps(each)[1:-1] if at % 2 else escape(each) for at, each in enumerate(text)),
    "JSON in JSON": lambda text: json.dumps(escape(text))[1:-1],
    "Python": lambda text: repr(text)[1:-1],
}
"""Functions that encode a key, by the name of the encoding."""


def assert_hidden(key: str, seen: str, where: str) -> None:
    """Fail if a string contains the key in any encoding. The search is independent of the code of the library."""
    forms = [key]
    for before in range(3):
        letters = b64encode(bytes(before) + key.encode()).decode().rstrip("=")
        forms.append(letters[-(-8 * before // 6) : 8 * (before + len(key.encode())) // 6])
    for text in decode_repeatedly(seen):
        for form in forms:
            for searched in (text, text.replace("-", "+").replace("_", "/")):
                at = searched.find(form)
                assert at < 0, f"{where}: ...{searched[max(0, at - 200) : at + 80]}..."


def decode_repeatedly(text: str) -> set[str]:
    """Return a string, and the results of decoding it up to three times."""
    found = {text}
    for _ in range(3):
        found |= {decode(each) for each in found for decode in (unquote, unescape_json)}
    return found


def unescape_json(text: str) -> str:
    """Decode the Unicode escapes and the escaped quotes, slashes and backslashes of a JSON string."""
    return re.sub(r"\\(?:u([0-9a-fA-F]{4})|([\"/\\]))", lambda found: chr(int(found[1], 16)) if found[1] else found[2], text)


def representations(thing: Any) -> Iterator[tuple[str, str]]:
    """Yield every representation of an object, each with its name."""
    yield "repr", repr(thing)
    yield "str", str(thing)
    yield "rich", render_with_rich(Pretty(thing, expand_all=True))
    if isinstance(thing, BaseException):
        yield "vars", repr(vars(thing))
        yield "linked errors", "".join(map(repr, iterate_linked_errors(thing)))  # tblib, which Dask installs, pickles them, too
        yield "pickle", pickle.dumps(thing).decode(errors="replace") if isinstance(thing, OutreachError) else ""
        yield "traceback", "".join(traceback.TracebackException.from_exception(thing, capture_locals=True).format())
        yield "rich traceback", render_with_rich(traceback_of(thing))


def traceback_of(error: BaseException) -> Traceback:
    """Return the rich traceback of an error, with all local variables."""
    everything = 10**9
    return Traceback.from_exception(
        type(error),
        error,
        error.__traceback__,
        show_locals=True,
        locals_max_length=everything,
        locals_max_string=everything,
        locals_hide_dunder=False,
    )


def render_with_rich(thing: Any) -> str:
    """Return an object as rich prints it, without wrapped lines."""
    page = io.StringIO()
    Console(file=page, width=10_000, color_system=None).print(thing)
    return page.getvalue()


def logged(records: list[logging.LogRecord]) -> str:
    """Return the messages and all attributes of log records."""
    return "\n".join(f"{record.getMessage()} {vars(record)!r}" for record in records)
