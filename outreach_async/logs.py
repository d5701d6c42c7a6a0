"""The one logger, `outreach_async`: what was asked and how it went, never a body, a header or a key."""

from __future__ import annotations

import logging
import os
from typing import Final

LOGGER: Final = logging.getLogger("outreach_async")


def log_as_asked() -> None:
    """Switch logging to stderr on if the environment says so: `OUTREACH_LOG=debug`, `info`, ...; an unknown level is ignored."""
    level = logging.getLevelNamesMapping().get(os.environ.get("OUTREACH_LOG", "").upper())
    if level is None or LOGGER.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(level)
