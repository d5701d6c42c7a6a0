"""Import names when they are first used, which keeps `import outreach_async` fast, and a command's start."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def import_on_use(module: str, package: str, table: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a module. The table has the names of each module below the package, separated by spaces."""
    homes = {name: home for home, names in table.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value: Any = getattr(import_module(f"{package}.{homes[name]}"), name)
        setattr(sys.modules[module], name, value)
        return value

    return get
