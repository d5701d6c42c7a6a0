"""Validate arguments and the values in world files, generate and check ids (rules W3 and W5), and read tables from `fake/data`.

Generated ids increase. Lists are sorted by creation time and then by id, so items created at the same time keep their order.
"""

from __future__ import annotations

import difflib
import hashlib
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache
from typing import Any, Final, TypeVar

import msgspec

from outreach_async._types import MAX_INTEGER, show_number, type_name
from outreach_async.errors import InvalidRequest
from outreach_async.fake._messages import Refusal, sanitize_name

_Number = TypeVar("_Number", int, float)
_T = TypeVar("_T")


MOST_ADDED: Final = 10_000_000  # records that one call generates


def shown(value: object) -> str:
    """Return a value as messages may show it: a short text without keys, a number, or the name of a type."""
    if isinstance(value, str):
        return f"'{sanitize_name(value)}'"
    return show_number(value) if type(value) in {int, float, bool} else type_name(value)


def check_known(names: Iterable[str], known: Iterable[str], what: str) -> None:
    accepted = list(known)
    for name in names:
        if name not in accepted:
            remedy = suggest_similar(str(name), accepted) or f"expected one of {', '.join(accepted)}"
            raise TypeError(f"{what} has no field {shown(name)}; {remedy}")


def require_count(name: str, value: object, *, most: int = MAX_INTEGER) -> int:
    if type(value) is not int:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}; use an integer of at least 0")
    if value < 0:
        raise ValueError(f"{name}: expected an integer of at least 0, got {shown(value)}; use 0 or a larger number")
    if value > most:
        raise ValueError(f"{name}: expected an integer of at most {most:,}, got {shown(value)}; use a smaller number")
    return value


def require_string(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name}: expected a string, got {type(value).__name__}; use a non-blank string")
    if not value.strip():
        raise ValueError(f"{name}: expected a non-blank string, got {shown(value)}; use a string that is not only whitespace")
    return value


def require_field(code: str, value: object) -> str | None:
    if not isinstance(value, str | None):
        raise TypeError(f"{code}: expected a string or null, got {type(value).__name__}; pass a string, or None for no value")
    return value


def require_mapping(what: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{what}: expected a mapping, got {type(value).__name__}; use a mapping of field names to values")
    return value


def require_time(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}: expected Unix seconds, got {type(value).__name__}; use a number such as 1767225600")
    return require_at_least(name, 0, value)


def require_at_least(name: str, low: int, value: _Number) -> _Number:
    given: object = value
    is_huge = isinstance(given, int) and given > MAX_INTEGER
    if not isinstance(given, int | float) or not low <= value < math.inf or is_huge:
        raise InvalidRequest(
            f"{name}: expected a finite number of at least {low}, got {shown(value)}; use a number in this range"
        )
    return value


def convert(name: str, value: object, kind: type[_T], dec_hook: Callable[[Any, Any], Any] | None = None) -> _T:
    """Convert a value from a parsed document to the type `kind`. Types must match: a string is not converted to a number."""
    try:
        return msgspec.convert(value, kind, str_keys=True, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        message, _, place = str(error).partition(" - at `$")
        raise ValueError(f"{name}{place.removesuffix('`')}: {message[0].lower()}{message[1:]}") from None


def draw(*names: object) -> float:
    """Return a pseudorandom number in [0, 1), derived from a hash of the arguments: equal arguments give equal numbers."""
    text = "|".join(map(str, names)).encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
    return (number >> 11) / 2**53  # use 53 of the 64 bits, the precision of a float


# The prefix of the ids of each kind, and the name of the kind in messages.
ID_KINDS: Final[dict[str, str]] = {
    "space_": "a workspace's id",
    "camp_": "a campaign's id",
    "mailbox_": "a mailbox's id",
    "step_": "a step's id",
    "temp_": "a template's id",
    "personalized_step_": "a personalized template's id",
    "contact_": "a contact's id",
    "key_": "an owner key",
}


def generate_id(seed: int, prefix: str, number: int) -> str:
    """Generate an id from a seed, a prefix and a number. The same arguments give the same id."""
    # An id consists of the prefix and 16 hexadecimal digits. The first ten digits are the sum of the number and an offset, which
    # depends on the seed and the prefix. The last six digits are a hash of the arguments.
    drawn = hashlib.blake2b(f"{seed}|{prefix}|{number}".encode(), digest_size=3).hexdigest()
    return f"{prefix}{_first_number(seed, prefix) + number:010x}{drawn}"


@lru_cache(maxsize=256)
def _first_number(seed: int, prefix: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}|{prefix}".encode(), digest_size=4).digest(), "big") << 7


def check_id(text: str, prefix: str, field: str) -> None:
    if text.startswith(prefix) and len(text) > len(prefix):
        return
    hints = tuple(f"this looks like {kind}" for known, kind in ID_KINDS.items() if text.startswith(known) and text != known)
    raise Refusal(400, "invalid_id", f"{field} must be an id that starts with {prefix}", field, hints=hints)


def suggest_similar(name: str, known: list[str]) -> str:
    """Return a suggestion such as `did you mean email?`; empty if no known name is similar to `name`."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else ""


@cache
def read_table(name: str) -> list[list[str]]:
    """Return the rows of the file `data/<name>.tsv` as lists of cells, without its comment lines."""
    from importlib.resources import files  # slow to import, and rarely needed

    lines = files("outreach_async.fake").joinpath("data", f"{name}.tsv").read_text(encoding="utf-8").splitlines()
    return [line.split("\t") for line in lines if not line.startswith("#")]
