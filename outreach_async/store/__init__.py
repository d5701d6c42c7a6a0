"""What a run records, to be resumed and to be compared with: `journal` is of one run, `ledger` of all runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if not TYPE_CHECKING:  # pragma: no branch

    def __getattr__(name: str) -> Any:
        """Import a part of this package when it is first used, so that a client starts fast."""
        if name not in {"journal", "ledger"}:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")
