"""Shelves, which are the packages above the core, import documented names, their own modules, and `_plumbing`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import outreach_async._plumbing as plumbing

pytestmark = pytest.mark.thorough

PACKAGE = Path(__file__).parents[2] / "outreach_async"
SHELVES = (
    *("__main__", "_cli", "audit", "config", "conformance", "guides", "importer", "mcp_server", "otel", "parts"),
    *("pytest_plugin", "rates", "sync", "testing"),
)
MOST_NAMES = 80


def imports() -> Iterator[tuple[str, str, str]]:
    """Yield the shelf, the module and the full name of each import of a shelf, also inside functions and for type checkers."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        if (shelf := module.partition(".")[0]) in SHELVES:
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom):
                    yield from ((shelf, module, f"{node.module}.{alias.name}") for alias in node.names)
                elif isinstance(node, ast.Import):
                    yield from ((shelf, module, alias.name) for alias in node.names)


def test_a_shelf_imports_no_private_name_of_another_package() -> None:
    found = []
    for shelf, module, name in imports():
        package, _, inner = name.partition(".")
        home = "_cli" if shelf == "__main__" else shelf
        if (
            package == "outreach_async"
            and inner.partition(".")[0] not in {home, "_plumbing"}
            and re.search(r"(^|\.)_[a-z]", inner)
        ):
            found.append(f"{module} imports {name}")
    assert found == []


def test_a_name_of_the_plumbing_is_used_by_a_shelf_and_says_what_for() -> None:
    source = Path(str(plumbing.__file__)).read_text(encoding="utf-8")
    described = dict(re.findall(r"^        (\w+),  # (.+)$", source, re.MULTILINE))
    used = {name.rpartition(".")[2] for _, _, name in imports() if name.startswith("outreach_async._plumbing.")}
    assert used == described.keys() == set(" ".join(plumbing._HOMES.values()).split())
    assert all(getattr(plumbing, name) is not None for name in used)
    assert len(used) <= MOST_NAMES
