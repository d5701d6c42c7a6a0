"""Check websites: an http or https URL, or a host alone."""

from __future__ import annotations

import re
from typing import Final

_LABEL: Final = r"(?!-)[\w-]{1,63}(?<!-)"
_HOST: Final = rf"(?:{_LABEL}\.)+(?!\d+(?:[:/?\#]|\Z)){_LABEL}\.?"
_SITE: Final = re.compile(rf"(?:https?://)?{_HOST}(?::\d{{1,5}})?(?:[/?\#]\S*)?", re.IGNORECASE)


def complaint(text: str) -> str | None:
    """Return the problem of a website; `None` if it is valid."""
    return None if _SITE.fullmatch(text) else "expected an http or https URL, or a host such as www.example.com"
