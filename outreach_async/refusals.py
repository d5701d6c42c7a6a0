"""Turn an answer that is no success into an error: what the service said, without the secrets it may have echoed."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from itertools import islice
from typing import Any, Final, TypeAlias

from outreach_async.converters import DecodeError, read_json
from outreach_async.errors import BODY_LIMIT, OutreachError, RateLimited, StatusError, UnexpectedResponse, linked
from outreach_async.secret import Secret
from outreach_async.transport.wire import Response
from outreach_async.vocabulary import ID_PREFIXES, SERVICE_OUTCOMES

Secrets: TypeAlias = tuple[str | Secret, ...]

MASK: Final = "***"
_REASON_LIMIT: Final = 200
_FAULTS_LIMIT: Final = 1000
_FIELDS_LIMIT: Final = 256  # twice as many as any backend takes
_LOOKED_AT: Final = 4 * BODY_LIMIT
"""Bytes of an answer that an error is made from: to mask a megabyte takes the event loop up to a second."""
_WIDEST: Final = 64
"""Bytes at most of one character of a secret: the longest named entity, its ampersand escaped four times."""
_SECONDS: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{0,18})?")
_NO_FAULT: Final = SERVICE_OUTCOMES | {"ok"}
_ESCAPE: Final = r"\\\\{0,7}"
_AMPERSAND: Final = r"(?:&|\\\\{0,7}(?i:u0026))(?:amp;){0,3}"
_PERCENT: Final = "%(?:25){0,3}"
_ALPHABET: Final = {"+": "+-", "/": "/_"}
"""The two letters in which the alphabets of base64 differ, the standard one and that for URLs."""
_PREFIX: Final = ID_PREFIXES["contact"]
_WORD: Final = re.compile(r"[0-9A-Za-z_.~-]+")
_SHORT: Final = {'"': '"', "'": "'", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_SECRET_HEADERS: Final = ("auth", "token", "secret", "key", "cookie", "signature", "password", "session")
_TOO_MANY_REQUESTS: Final = 429


def is_secret_header(name: str) -> bool:
    """Whether a header field of this name may carry a secret."""
    return any(word in name.lower() for word in _SECRET_HEADERS)


def secret_parts(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values, and their words, that must not appear anywhere."""
    values = [value for name, value in headers.items() if is_secret_header(name)]
    words = [word for value in values for word in value.split()]
    return tuple({part for part in (*values, *words) if len(part) > 3})  # noqa: PLR2004 - shorter ones would mask common words


def masked(body: bytes, secrets: Iterable[str | Secret]) -> bytes:
    """Return the body with every secret replaced, in each spelling that JSON, Python, HTML, a URL, base64 or hex gives it."""
    for secret in sorted(map(str_of, secrets), key=len, reverse=True):  # one may be the beginning of another
        if len(body) >= len(secret):  # no spelling is shorter
            for sign, spelling in _spellings(secret):
                if sign in body:
                    body = spelling.sub(MASK.encode(), body)
    return body


def str_of(secret: str | Secret) -> str:
    """Return a secret's string."""
    return secret.reveal() if isinstance(secret, Secret) else secret


def spotter(*secrets: str | Secret) -> Callable[[str], bool]:
    """Return a quick test, for each answer of a run: whether a text may hold one of the secrets in any spelling."""
    spotters = [_spotter(secret) for secret in set(map(str_of, secrets))]
    return spotters[0] if len(spotters) == 1 else lambda text: any(spotted(text) for spotted in spotters)


def _spotter(secret: str) -> Callable[[str], bool]:
    if not _WORD.fullmatch(secret):
        return lambda text: len(text) >= len(secret)
    raw = secret.encode()
    letters = {each for before in range(3) for each in _either_alphabet(_base64(raw, before)[1])}
    letters |= {raw.hex(), raw.hex().upper()}
    shortest = len(secret)
    least = min(map(len, letters)) if not secret.isalnum() else 0
    needles = ("\\", "%", "&", "\0", secret, *letters)

    def spotted(text: str) -> bool:
        if len(text) < shortest:
            return False
        rest = text.removeprefix(_PREFIX)
        if len(rest) < least and rest.isalnum():  # nearly every id of a contact
            return False
        return any(needle in text for needle in needles)

    return spotted


def _either_alphabet(letters: str) -> tuple[str, str]:
    return letters, letters.replace("+", "-").replace("/", "_")


def masked_text(text: str, secrets: Iterable[str | Secret]) -> str:
    """Return a text with every secret replaced."""
    return masked(text.encode(errors="surrogatepass"), secrets).decode(errors="replace")


def _beginning(body: bytes, secrets: Secrets) -> bytes:
    """Return the masked beginning of a body, of one of some kilobytes all of it.

    What is cut off may cut a secret in two, whose first part nothing recognizes; so as much is left out as it can be.
    """
    margin = _margin(secrets)
    if len(body) <= _LOOKED_AT + margin:
        return masked(body, secrets)
    seen = masked(body[: _LOOKED_AT + margin], secrets)
    return seen[: max(0, len(seen) - margin)]


def _beginning_of_text(text: str, secrets: Secrets) -> str:
    return _beginning(_start(text, secrets).encode(errors="surrogatepass"), secrets).decode(errors="replace")


def _start(text: str, secrets: Secrets) -> str:
    """Return as much of a text, unmasked, as `_beginning` looks at, and one character more to tell that it was cut."""
    return text[: _LOOKED_AT + _margin(secrets) + 1]


def _margin(secrets: Secrets) -> int:
    return _WIDEST * max((len(str_of(secret)) for secret in secrets), default=0)


@lru_cache(maxsize=64)
def _spellings(secret: str) -> tuple[tuple[bytes, re.Pattern[bytes]], ...]:
    """Match a secret with any of its characters escaped, percent-encoded, or the whole of it in another encoding.

    With each pattern comes what a body must hold for it to match: most bodies do not, and need no search.
    """
    raw = secret.encode()
    whole = {raw, raw.decode("latin-1").encode(), secret.encode("latin-1", "replace")}
    whole |= {secret.encode("utf-16-le"), secret.encode("utf-16-be"), repr(raw)[2:-1].encode()}
    each = {b"\\": "".join(map(_escaped, secret)), b"%": "".join(map(_percent, raw)), b"&": "".join(map(_entity, secret))}
    each |= {b"+": each[b"%"]} if " " in secret else {}
    within = "".join(map(_entity_in_json, secret))
    pairs = [(sign, pattern.encode()) for sign, pattern in (*each.items(), (b"&", within), (b"u0026", within))]
    for text in {raw, secret.encode("latin-1", "replace"), json.dumps(secret, ensure_ascii=False)[1:-1].encode()}:
        start = text.hex()[:2]
        pairs += [(sign.encode(), f"(?i:{text.hex()})".encode()) for sign in {start, start.upper()}]
        pairs += [_in_base64(text, before) for before in range(3)]
    return tuple((sign, re.compile(pattern)) for sign, pattern in (*pairs, *((text, re.escape(text)) for text in whole)))


def _one_of(forms: Iterable[str]) -> str:
    return f"(?:{'|'.join(forms)})"


def _escaped(character: str) -> str:
    """Match a character as it is, or behind backslashes as JSON and Python write it; where one quotes the other, behind several.

    A backslash itself is never matched as it is: no spelling may be the beginning of another, or matching could take for ever.
    """
    return _one_of([*_escapes(character), re.escape(character) if character != "\\" else r"\\\\"])


def _escapes(character: str) -> list[str]:
    units = character.encode("utf-16-be").hex()
    forms = ["".join(rf"{_ESCAPE}(?i:u{units[at : at + 4]})" for at in range(0, len(units), 4))]
    forms += [rf"{_ESCAPE}(?i:u{ord(character):08x}|x{ord(character):02x})"]
    return forms + ([_ESCAPE + _SHORT[character]] if character in _SHORT else [])


def _percent(byte: int) -> str:
    """Match a byte of UTF-8 as it is, or as URLs and forms write it, one within the other or not."""
    forms = [f"{_PERCENT}(?i:{byte:02x})"]
    forms += [rf"\x{byte:02x}"] if byte != ord("%") else []
    forms += [r"\+", f"{_PERCENT}2[Bb]"] if byte == ord(" ") else []
    return _one_of(forms)


def _entity(character: str) -> str:
    """Match a character as it is, or as HTML and XML write it; an ampersand never as it is, for it begins the others."""
    return _one_of([*_references(character), *([re.escape(character)] if character != "&" else [])])


def _entity_in_json(character: str) -> str:
    return _one_of([*_references(character), *_escapes(character), *([re.escape(character)] if character not in "&\\" else [])])


def _references(character: str) -> list[str]:
    code = ord(character)
    forms = [f"{_AMPERSAND}#(?:0{{0,7}}{code}|(?i:x0{{0,7}}{code:x}));?"]
    return [*forms, *(f"{_AMPERSAND}{name}" for name in _entities().get(character, ()))]


@cache
def _entities() -> Mapping[str, tuple[str, ...]]:
    """Return the names of each character that HTML has one for."""
    from html.entities import html5  # heavy, and needed only for an error

    names: dict[str, tuple[str, ...]] = {}
    for name, character in html5.items():
        if name.endswith(";"):
            names[character] = (*names.get(character, ()), name)
    return names


def _base64(text: bytes, before: int) -> tuple[bool, str, bool]:
    """Return the letters of base64 that a text alone decides, with so many bytes before it, and whether it shares one beside."""
    letters = b64encode(bytes(before) + text).decode()
    start, end = -(-8 * before // 6), 8 * (before + len(text)) // 6
    return before > 0, letters[start:end], 8 * (before + len(text)) % 6 > 0


def _in_base64(text: bytes, before: int) -> tuple[bytes, bytes]:
    shared_before, letters, shared_after = _base64(text, before)
    any_letter = f"(?:[0-9A-Za-z]|{_sign('+-/_')})?"
    core = "".join(_sign(_ALPHABET[each]) if each in _ALPHABET else each for each in letters)
    pattern = f"{any_letter * shared_before}{core}{any_letter * shared_after}(?:{_sign('=')}){{0,2}}"
    return max(re.split(r"[+/]", letters), key=len).encode(), pattern.encode()


def _sign(characters: str) -> str:
    """Match one of these signs of base64 as it is, or as JSON, a URL or HTML write it."""
    written = ((*_escapes(each), f"{_PERCENT}(?i:{ord(each):02x})", *_references(each)) for each in characters)
    return _one_of([f"[{re.escape(characters)}]", *(form for forms in written for form in forms)])


def masked_headers(headers: Mapping[str, str], secrets: Secrets) -> dict[str, str]:
    """Return header fields fit for an error: secret fields masked, and secrets masked in the others and in every name.

    Any backend's answer is kept whole; of what is larger, the beginning.
    """
    pairs = ((name, MASK if is_secret_header(name) else value) for name, value in islice(headers.items(), _FIELDS_LIMIT))
    return {_beginning_of_text(name, secrets): _beginning_of_text(value, secrets) for name, value in pairs}


def scrubbed(error: OutreachError, secrets: Secrets) -> OutreachError:
    """Return the error, without secrets: where a backend quotes an answer that echoes one, so do the errors it was made from."""
    shown = [text for link in linked(error) for text in (str(link), *_notes(link))]
    if any(masked_text(text, secrets) != text for text in shown):
        error.args = (masked_text(str(error), secrets),)
        error.__notes__ = [masked_text(note, secrets) for note in _notes(error)]
        error.__cause__ = error.__context__ = None
    return error


def _notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


def refused(operation: str, response: Response, secrets: Secrets, *, now: float) -> StatusError:
    """Return the error for an answer with a status of 300 or more.

    Args:
        operation: The operation's name.
        response: The answer.
        secrets: What to mask.
        now: Unix time in seconds, for a Retry-After given as a date.
    """
    body = _beginning(response.body, secrets)
    error = (RateLimited if response.status == _TOO_MANY_REQUESTS else StatusError)(
        masked_text(f"{operation}: the service answered {response.status}: {reason(body)}", secrets),
        operation=operation,
        status_code=response.status,
        headers=masked_headers(response.headers, secrets),
        body=body,
        maybe_sent=True,
    )
    if isinstance(error, RateLimited):
        error.retry_after = retry_after(response.headers, now=now)
    return error


def unexpected(operation: str, response: Response, secrets: Secrets, fault: DecodeError | str) -> UnexpectedResponse:
    """Return the error for an answer of 2xx that is not what the interface says."""
    body = _beginning(response.body, secrets)
    value = fault.value if isinstance(fault, DecodeError) else {}
    status = (value or {}).get("status")
    told = (
        f"status {_start(status, secrets)!r}: {reason(body)}"
        if isinstance(status, str) and status not in _NO_FAULT
        else str(fault)
    )
    error = UnexpectedResponse(
        f"{operation}: the service answered {response.status} with {_cut(_beginning_of_text(told, secrets), _FAULTS_LIMIT)}",
        operation=operation,
        status_code=response.status,
        headers=masked_headers(response.headers, secrets),
        body=body,
        maybe_sent=True,
    )
    error.well_formed = value is not None
    return error


def reason(body: bytes) -> str:
    """Say in at most 200 characters what an answer's body tells a person."""
    if not body.strip():
        return "no body"
    try:
        told = _told(read_json(body))
    except (DecodeError, RecursionError):
        told = "a page of HTML or XML" if body.lstrip()[:1] == b"<" else body.decode(errors="replace")
    return _cut(" ".join(told.split()), _REASON_LIMIT) or "no words"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


def _told(value: Any) -> str:
    if isinstance(value, dict):
        for name in ("error", "message", "detail", "details", "errors"):
            if value.get(name):
                return _told(value[name])
    return value if isinstance(value, str) else json.dumps(value)


def retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the seconds that `Retry-After` asks for (RFC 9110, section 10.2.3); `None` if it is absent or no such value.

    A date is counted from the answer's own `Date`, so that a clock that is wrong on one side does not matter.
    """
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    wanted, sent = _date(value), _date(headers.get("date", ""))
    if wanted is None:
        return None
    return max(0.0, wanted - (now if sent is None else sent))


def _date(value: str) -> float | None:
    from datetime import UTC
    from email.utils import parsedate_to_datetime  # heavy, and needed only for a date

    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()  # a date without a zone is GMT, as all of HTTP's
    except (ValueError, OverflowError):
        return None
