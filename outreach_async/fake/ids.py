"""Ids (rules W3 and W5): a prefix and 16 hexadecimal digits, derived from the seed and a counter.

Ids increase in the order of creation. Lists are sorted by creation time and then by id: items with equal times keep their order.
"""

from __future__ import annotations

import difflib
import hashlib
from functools import lru_cache
from typing import Final

from outreach_async.fake.refusals import refused

KINDS: Final[dict[str, str]] = {
    "space_": "a workspace's id",
    "camp_": "a campaign's id",
    "mailbox_": "a mailbox's id",
    "step_": "a step's id",
    "temp_": "a template's id",
    "personalized_step_": "a personalized template's id",
    "contact_": "a contact's id",
    "key_": "an owner key",
}
"""The kind of an id, by prefix."""


def made_up_id(seed: int, prefix: str, number: int) -> str:
    """Return id number `number` of a prefix.

    The first ten digits count up from a start derived from the seed; the last six are a hash.
    """
    drawn = hashlib.blake2b(f"{seed}|{prefix}|{number}".encode(), digest_size=3).hexdigest()
    return f"{prefix}{_start(seed, prefix) + number:010x}{drawn}"


@lru_cache(maxsize=256)
def _start(seed: int, prefix: str) -> int:
    return int.from_bytes(hashlib.blake2b(f"{seed}|{prefix}".encode(), digest_size=4).digest(), "big") << 7


def check_id(text: str, prefix: str, field: str) -> None:
    """Check the format of an id.

    Raises:
        Refused: 400 if the prefix is missing, or nothing follows it.
    """
    if text.startswith(prefix) and len(text) > len(prefix):
        return
    raise refused(400, "invalid_id", f"{field} must be an id that starts with {prefix}", field, hints=_likeness(text))


def _likeness(text: str) -> tuple[str, ...]:
    return tuple(f"this looks like {kind}" for prefix, kind in KINDS.items() if text.startswith(prefix) and text != prefix)


def suggestion(name: str, known: list[str]) -> str:
    """Return a suggestion of the most similar known name; empty if none is similar."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else ""
