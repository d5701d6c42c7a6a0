"""Convert error responses to errors, with the service's message and without the secrets that a response may echo."""

from __future__ import annotations

import codecs
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, Final, TypeAlias
from urllib.parse import urljoin

import attrs

from outreach_async import errors
from outreach_async._core.codec import DecodeError, decode_json
from outreach_async._core.retry import explain_status
from outreach_async._wire_words import ID_PREFIXES, SERVICE_OUTCOMES
from outreach_async.transport._secret import Secret, reveal
from outreach_async.transport._urls import hide_user, parse_base_url
from outreach_async.transport._wire import PROXY_AUTHENTICATION_REQUIRED, Response

Secrets: TypeAlias = tuple[str | Secret, ...]

MASK: Final = "***"
_MAX_REASON_LENGTH: Final = 200
_MAX_FAULTS_LENGTH: Final = 1000
# Only this many bytes of a body or string are inspected: masking a megabyte would block the event loop for up to a second.
_MAX_INSPECTED_BYTES: Final = 4 * errors.BODY_LIMIT
_MAX_BYTES_PER_CHARACTER: Final = 64  # of a secret; the longest encoding is base64 with escaped signs and padding
_SECONDS: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{0,18})?")
_RATE_LIMIT: Final = re.compile(r"rate[ _-]?limit|too[ _-]?many[ _-]?requests|quota|throttl", re.IGNORECASE)
_NAMED_WAIT: Final = re.compile(
    r"\b(?:in|after|wait|for) ([0-9]{1,6}) ?(s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?)\b", re.IGNORECASE
)
_SECONDS_PER_UNIT: Final = {"s": 1, "m": 60, "h": 3600}
_MAX_NAMED_WAIT: Final = 86_400.0
_MIN_CLIENT_ERROR: Final = 400
_SUCCESS_STATUSES: Final = SERVICE_OUTCOMES | {"ok"}
_ERROR_MEMBERS: Final = ("error", "message", "detail", "details", "errors")
_ESCAPE: Final = r"\\\\{0,7}"
_BASE64_VARIANTS: Final = {"+": "+-", "/": "/_"}  # the standard characters that have a URL-safe form
_CONTACT_PREFIX: Final = ID_PREFIXES["contact"]
_WORD: Final = re.compile(r"[0-9A-Za-z_.~-]+")
_SHORT_ESCAPES: Final = {'"': '"', "'": "'", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
_SECRET_HEADER_WORDS: Final = ("auth", "token", "secret", "key", "cookie", "signature", "password", "session")


for _codec in ("utf-16-le", "utf-16-be", "punycode", "unicode_escape"):
    # Python imports a codec on first use, which fails in a process that has used up its descriptors. Masking and messages use
    # these, and the keys of rows.
    codecs.lookup(_codec)


def is_secret_header(name: str) -> bool:
    return any(word in name.lower() for word in _SECRET_HEADER_WORDS)


def secret_parts(headers: Mapping[str, str]) -> tuple[str, ...]:
    """Return the strings to mask: the values of secret header fields, and each word of these values."""
    values = [value for name, value in headers.items() if is_secret_header(name)]
    words = [word for value in values for word in value.split()]
    return tuple({part for part in (*values, *words) if len(part) > 3})  # noqa: PLR2004 - shorter parts may be common words


def mask_bytes(body: bytes, secrets: Iterable[str | Secret]) -> bytes:
    """Mask every secret in a body, also its forms in JSON, Python, URLs and base64."""
    for secret in sorted(map(reveal, secrets), key=len, reverse=True):  # longest first: a secret may be a prefix of another
        if len(body) >= len(secret):  # no encoded form is shorter than the secret
            for sign, spelling in _secret_patterns(secret):
                if sign in body:
                    body = re.sub(spelling, MASK.encode(), body)  # compiled on first use: most patterns are never used
    return body


def make_secret_detector(*secrets: str | Secret) -> Callable[[str], bool]:
    detectors = [_make_detector(secret) for secret in set(map(reveal, secrets))]
    return detectors[0] if len(detectors) == 1 else lambda text: any(detect(text) for detect in detectors)


def _make_detector(secret: str) -> Callable[[str], bool]:
    if not _WORD.fullmatch(secret):
        return lambda text: len(text) >= len(secret)
    raw = secret.encode()
    encoded = {_base64_core(raw, before)[1] for before in range(3)}
    encoded |= {letters.replace("+", "-").replace("/", "_") for letters in encoded}
    min_encoded = min(map(len, encoded)) if not secret.isalnum() else 0
    needles = ("\\", "%", "\0", secret, *encoded)

    def detect(text: str) -> bool:
        if len(text) < len(secret):
            return False
        rest = text.removeprefix(_CONTACT_PREFIX)
        if len(rest) < min_encoded and rest.isalnum():  # true of nearly all contact ids
            return False
        for needle in needles:  # noqa: SIM110 - a generator takes longer than the search
            if needle in text:
                return True
        return False

    return detect


def mask_string(text: str, secrets: Iterable[str | Secret]) -> str:
    return mask_bytes(text.encode(errors="surrogatepass"), secrets).decode(errors="replace")


def clean_string(text: str, secrets: Iterable[str | Secret]) -> str:
    masked = mask_string(text, secrets)
    visible = errors.strip_invisible(masked)
    # A secret may contain invisible characters, and the service may insert some into its copy of a secret.
    return masked if visible == masked else mask_string(visible, secrets)


def _clean_beginning(text: str, secrets: Secrets) -> str:
    beginning = _mask_beginning(_cut_for_masking(text, secrets).encode(errors="surrogatepass"), secrets)
    return clean_string(beginning.decode(errors="replace"), secrets)


def _mask_beginning(body: bytes, secrets: Secrets) -> bytes:
    """Return the beginning of a body, or all of it if it has only a few kilobytes, with secrets masked."""
    # A cut through a secret leaves its first part, which is not recognized and not masked. Therefore, a long body is cut and
    # masked, and then shortened by the maximum length of an encoded secret.
    margin = _masking_margin(secrets)
    if len(body) <= _MAX_INSPECTED_BYTES + margin:
        return mask_bytes(body, secrets)
    masked = mask_bytes(body[: _MAX_INSPECTED_BYTES + margin], secrets)
    return masked[: max(0, len(masked) - margin)]


def _cut_for_masking(text: str, secrets: Secrets) -> str:
    """Return the part of a string that `_mask_beginning` reads, plus one character."""
    # From the additional character, `_mask_beginning` can tell that the string was cut.
    return text[: _MAX_INSPECTED_BYTES + _masking_margin(secrets) + 1]


def _masking_margin(secrets: Secrets) -> int:
    return _MAX_BYTES_PER_CHARACTER * max((len(reveal(secret)) for secret in secrets), default=0)


@lru_cache(maxsize=64)
def _secret_patterns(secret: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return patterns that match the secret and its encoded forms, each with a byte string that every match contains."""
    raw = secret.encode()
    encodings = {raw, raw.decode("latin-1").encode(), secret.encode("latin-1", "replace")}
    encodings |= {secret.encode("utf-16-le"), secret.encode("utf-16-be"), repr(raw)[2:-1].encode()}
    percent = "".join(map(_percent_pattern, raw)).encode()
    # A character or its escapes; of a backslash, only its escapes, such as two backslashes. No alternative may be a prefix of
    # another; otherwise, matching could take exponential time.
    escaped = [_one_of([*_escape_patterns(each), re.escape(each) if each != "\\" else r"\\\\"]) for each in secret]
    pairs = [(b"\\", "".join(escaped).encode()), (b"%", percent)]
    pairs += [(b"+", percent)] if " " in secret else []
    for text in {raw, secret.encode("latin-1", "replace"), json.dumps(secret, ensure_ascii=False)[1:-1].encode()}:
        pairs += [_base64_pattern(text, before) for before in range(3)]
    return (*pairs, *((text, re.escape(text)) for text in encodings))


def _one_of(forms: Iterable[str]) -> str:
    return f"(?:{'|'.join(forms)})"


def _escape_patterns(character: str) -> list[str]:
    """Return patterns that match the escapes of a character in JSON and Python, including nested escapes."""
    units = character.encode("utf-16-be").hex()
    forms = ["".join(rf"{_ESCAPE}(?i:u{units[at : at + 4]})" for at in range(0, len(units), 4))]
    forms += [rf"{_ESCAPE}(?i:u{ord(character):08x}|x{ord(character):02x})"]
    return forms + ([_ESCAPE + _SHORT_ESCAPES[character]] if character in _SHORT_ESCAPES else [])


def _percent_pattern(byte: int) -> str:
    """Return a pattern that matches a UTF-8 byte itself, or its encodings in URLs and forms."""
    forms = [f"%(?i:{byte:02x})"]
    forms += [rf"\x{byte:02x}"] if byte != ord("%") else []
    forms += [r"\+"] if byte == ord(" ") else []
    return _one_of(forms)


def _base64_core(text: bytes, before: int) -> tuple[bool, str, bool]:
    """Return the base64 characters that encode only the text, which follows `before` other bytes."""
    letters = b64encode(bytes(before) + text).decode()
    start, end = -(-8 * before // 6), 8 * (before + len(text)) // 6
    return before > 0, letters[start:end], 8 * (before + len(text)) % 6 > 0


def _base64_pattern(text: bytes, before: int) -> tuple[bytes, bytes]:
    shared_before, letters, shared_after = _base64_core(text, before)
    any_letter = f"(?:[0-9A-Za-z]|{_base64_character_pattern('+-/_')})?"
    variants = {letter: _base64_character_pattern(both) for letter, both in _BASE64_VARIANTS.items() if letter in letters}
    core = "".join(variants.get(letter, letter) for letter in letters)
    pattern = f"{any_letter * shared_before}{core}{any_letter * shared_after}(?:{_base64_character_pattern('=')}){{0,2}}"
    return max(re.split(r"[+/]", letters), key=len).encode(), pattern.encode()


def _base64_character_pattern(characters: str) -> str:
    """Return a pattern that matches any of these base64 characters, or its encoding in JSON or URLs."""
    forms = [f"[{re.escape(characters)}]"]
    for character in characters:
        forms += [*_escape_patterns(character), f"%(?i:{ord(character):02x})"]
    return _one_of(forms)


def mask_headers(headers: Mapping[str, str], secrets: Secrets) -> dict[str, str]:
    # The values of secret fields are masked entirely; in other values and in names, only the secrets are masked. Only the first
    # 256 fields are kept. Very long names and values are truncated.
    kept = islice(headers.items(), 256)  # twice as many as any backend accepts
    pairs = ((name, MASK if is_secret_header(name) else value) for name, value in kept)
    return {_clean_beginning(name, secrets): _clean_beginning(value, secrets) for name, value in pairs}


def scrub_error(error: errors.OutreachError, secrets: Secrets) -> errors.OutreachError:
    """Mask secrets in an error, which may quote a response, and return it."""
    links = errors.iterate_linked_errors(error)
    texts = [text for link in links for text in (str(link), *getattr(link, "__notes__", ()))]
    if any(mask_string(text, secrets) != text for text in texts):
        error.args = (mask_string(str(error), secrets),)
        error.__notes__ = [mask_string(note, secrets) for note in getattr(error, "__notes__", ())]
        error.__cause__ = error.__context__ = None
    return error


def _error_attributes(operation: str, response: Response, secrets: Secrets) -> dict[str, Any]:
    known: dict[str, Any] = {"operation": operation, "status_code": response.status, "maybe_sent": True}
    return {**known, "headers": mask_headers(response.headers, secrets), "body": _mask_beginning(response.body, secrets)}


@attrs.frozen
class Destination:
    """The way of a request: the base URL and the proxy, both without user and password, and the target."""

    base_url: str | None = None
    proxy: str | None = None
    target: str = ""


def build_status_error(
    operation: str, response: Response, secrets: Secrets, *, now: float, destination: Destination | None = None
) -> errors.StatusError:
    attributes = _error_attributes(operation, response, secrets)
    destination = destination or Destination()
    reason = f": {extract_reason(attributes['body'])}"
    if response.status < _MIN_CLIENT_ERROR:
        reason = _describe_redirect(response, destination, secrets) or f"{reason}; check base_url"
    text = f"{operation}: the service answered {response.status}{reason}"
    if response.status == PROXY_AUTHENTICATION_REQUIRED:
        who = "a proxy" if destination.proxy is None else f"the proxy {destination.proxy}"
        text = f"{operation}: {who} answered 407{reason}; check the user and password of the proxy"
    meaning = explain_status(response.status)
    rejected = meaning.rejects_data and operation == "create_contact"
    error = (errors.ContactRejected if rejected else meaning.error_class)(mask_string(text, secrets), **attributes)
    error.named_wait = read_named_wait(attributes["body"]) if meaning.may_name_limit else None
    if isinstance(error, errors.RateLimited):
        error.retry_after = parse_retry_after(response.headers, now=now)
    return error


def _describe_redirect(response: Response, destination: Destination, secrets: Secrets) -> str:
    """Return where a response redirects to, and the base URL that leads there; an empty string if the response says nothing."""
    location = response.headers.get("location", "").strip()
    if not location:
        return ""
    shown, remedy = "an invalid address", "check base_url"
    with suppress(ValueError):  # includes `InvalidRequest`
        address = hide_user(urljoin(f"{destination.base_url or ''}{destination.target}", location))
        shown = errors.shorten(_clean_beginning(address, secrets), _MAX_REASON_LENGTH)
        path = destination.target.partition("?")[0].rstrip("/")
        base_url = str(parse_base_url(address.rstrip("/").removesuffix(path)))
        if shown == address and address.rstrip("/").endswith(path) and base_url != destination.base_url:
            remedy = f"pass base_url={base_url!r}"
    return f", a redirect to {shown}, which is not followed; {remedy}"


def build_unexpected_response(
    operation: str, response: Response, secrets: Secrets, fault: DecodeError | str
) -> errors.UnexpectedResponse:
    attributes = _error_attributes(operation, response, secrets)
    value = fault.value if isinstance(fault, DecodeError) else {}
    members: Mapping[str, Any] = value or {}
    status, text = members.get("status"), str(fault)
    is_error = status not in _SUCCESS_STATUSES if isinstance(status, str) else any(map(members.get, _ERROR_MEMBERS))
    states_error = is_error and "data" not in members
    if isinstance(status, str) and is_error:
        text = f"status {_cut_for_masking(status, secrets)!r}: {extract_reason(attributes['body'])}"
    elif states_error:
        text = f"an error: {extract_reason(attributes['body'])}"
    text = errors.shorten(_clean_beginning(text, secrets), _MAX_FAULTS_LENGTH)
    error = errors.UnexpectedResponse(f"{operation}: the service answered {response.status} with {text}", **attributes)
    error.well_formed = value is not None
    error.states_error = states_error
    error.named_wait = read_named_wait(attributes["body"]) if is_error or value is None else None
    return error


def read_named_wait(body: bytes, quoted: bytes = b"") -> float | None:
    """Return the seconds to wait that a message about a rate limit names, 0 if it names none; `None` for any other message.

    `quoted` is the body of the request. Words of it say nothing about the service, which may quote a row in its message.
    """
    reason, row = extract_reason(body), quoted.decode(errors="replace").lower()
    if all(found[0].lower() in row for found in _RATE_LIMIT.finditer(reason)):
        return None
    found = next((found for found in _NAMED_WAIT.finditer(reason) if found[0].lower() not in row), None)
    return min(float(found[1]) * _SECONDS_PER_UNIT[found[2][0].lower()], _MAX_NAMED_WAIT) if found else 0.0


def extract_reason(body: bytes) -> str:
    """Return the readable message in a response body: at most 200 characters, followed by `...` if the message is longer."""
    if not body.strip():
        return "no body"
    try:
        message = _extract_message(decode_json(body))
    except (DecodeError, RecursionError):
        message = "a page of HTML or XML" if body.lstrip()[:1] == b"<" else body.decode(errors="replace")
    return errors.shorten(" ".join(errors.strip_invisible(message).split()), _MAX_REASON_LENGTH) or "no message"


def _extract_message(value: Any) -> str:
    if isinstance(value, dict):
        for name in _ERROR_MEMBERS:
            if value.get(name):
                return _extract_message(value[name])
    return value if isinstance(value, str) else json.dumps(value)


def parse_retry_after(headers: Mapping[str, str], *, now: float) -> float | None:
    """Return the wait that `Retry-After` states, in seconds (RFC 9110, section 10.2.3); `None` if it is absent or invalid."""
    # A date is compared with the response's own `Date`, because the clocks of the client and the service may differ.
    value = headers.get("retry-after", "").strip()
    if _SECONDS.fullmatch(value):
        return float(value)
    until, sent = parse_date(value), parse_date(headers.get("date", ""))
    return None if until is None else max(0.0, until - (now if sent is None else sent))


def parse_date(value: str) -> float | None:
    """Return a date of a header field in Unix seconds; `None` if it is invalid."""
    try:
        from datetime import UTC
        from email.utils import parsedate_to_datetime  # a slow import, needed only for dates

        date = parsedate_to_datetime(value)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()  # dates in HTTP are in GMT
    except (ValueError, OverflowError, OSError, ImportError):  # the last two: no descriptor is left for the import
        return None
