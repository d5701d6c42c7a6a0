"""The rules of the project that no linter checks: sizes, names, cycles of imports, and which modules send."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "outreach_async"

REPEATED_CLASS_NAMES = dict.fromkeys(
    ("Campaign", "Mailbox", "Step", "Template"), "the fake's records are named as the wire's resources"
) | {"Row": "public in two packages that never import each other", "_Body": "private in adapters that never import each other"}


def functions() -> Iterator[tuple[str, int]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 1
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines


@functools.cache
def import_graph() -> grimp.ImportGraph:
    """Return every import of the package, including those inside functions and those for type checkers."""
    return grimp.build_graph("outreach_async", cache_dir=None)


def test_every_ignore_comment_has_a_reason() -> None:
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]:
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            found = re.search(r"# (noqa|pragma: no cover)\b(.*)", line)
            assert not found or re.search(r" - \w", found[2]), f"{path.name}:{number}: {line.strip()}"


def test_functions_stay_within_their_limits() -> None:
    sizes = sorted(functions(), key=lambda pair: pair[1])
    counts = [count for _, count in sizes]
    assert statistics.median(counts) <= 8
    assert counts[int(len(counts) * 0.9)] <= 25
    assert counts[-1] <= 60, sizes[-1]


def test_a_class_name_is_used_once() -> None:
    homes: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert {name for name, paths in homes.items() if len(paths) > 1} == REPEATED_CLASS_NAMES.keys()


def test_no_import_is_part_of_a_cycle_even_inside_a_function_or_for_types() -> None:
    graph = import_graph()
    order = graphlib.TopologicalSorter({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})
    order.prepare()  # raises CycleError, which names the modules


def test_only_the_engine_and_the_conformance_suite_await_send() -> None:
    awaiting = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Await) and re.search(r"transport\.send\(", ast.unparse(node))
    }
    assert awaiting == {"_core/engine.py", "conformance/_probes.py"}


def test_no_test_name_is_longer_than_75_characters() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                assert len(node.name) <= 75, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def test_no_sql_statement_has_a_numbered_placeholder() -> None:
    # Python 3.12.0 to 3.12.3 warn about them, unless the values are a mapping.
    for path in PACKAGE.rglob("*.py"):
        assert not re.search(r"\?\d\b", path.read_text(encoding="utf-8")), path.name


def test_no_module_is_named_utils_or_helpers() -> None:
    assert not {"utils", "helpers", "common", "misc"} & {path.stem for path in PACKAGE.rglob("*.py")}


def test_the_fake_defines_the_words_of_the_wire_itself() -> None:
    assert any("overwriten" in path.read_text(encoding="utf-8") for path in (PACKAGE / "fake").rglob("*.py"))
