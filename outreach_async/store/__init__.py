"""What a run records, to be resumed and to be compared with: `journal` is of one run, `ledger` of all runs."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outreach_async.store import journal, ledger

__all__ = ["journal", "ledger"]


def __getattr__(name: str) -> Any:
    """Import a part of this package when it is first used, so that a client starts fast."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module(f"{__name__}.{name}")
