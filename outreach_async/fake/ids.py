"""Ids (rules W3 and W5): a prefix and 16 hex digits, from the seed and a counter.

They grow in the order of creation, so that lists ordered by creation, with ties broken by id, come in the order things were made.
"""

from __future__ import annotations

import difflib
import hashlib
from typing import Final

from outreach_async.fake.refusals import refuse

KINDS: Final[dict[str, str]] = {
    "space_": "workspace",
    "camp_": "campaign",
    "mailbox_": "mailbox",
    "step_": "step",
    "temp_": "template",
    "personalized_step_": "personalized template",
    "contact_": "contact",
    "key_": "owner key",
}
"""Kinds of resources by id prefix."""


def made_up_id(seed: int, prefix: str, number: int) -> str:
    """Make the `number`th id of a kind.

    The first ten digits count from a seeded start, the last six are drawn.
    """
    start = int.from_bytes(_digest(f"{seed}|{prefix}")[:4], "big") << 7
    return f"{prefix}{start + number:010x}{_digest(f'{seed}|{prefix}|{number}')[:3].hex()}"


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def check_id(text: str, prefix: str, field: str) -> None:
    """Check an id's shape.

    Raises:
        Refused: 400 if it has not the prefix, or nothing behind it.
    """
    if text.startswith(prefix) and len(text) > len(prefix):
        return
    refuse(400, "invalid_id", f"{field} must be an id that starts with {prefix}", field, hints=_likeness(text))


def _likeness(text: str) -> tuple[str, ...]:
    return tuple(f"this looks like the id of a {kind}" for prefix, kind in KINDS.items() if text.startswith(prefix) and text != prefix)


def suggestion(name: str, known: list[str]) -> str:
    """Word a guess at what was meant; empty if nothing comes near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]}?" if near else ""
