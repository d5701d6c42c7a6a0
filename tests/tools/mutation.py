"""Change the code at random places, one at a time, and check that the tests fail.

Run: cd .. && pytest -n auto -m '' --cov --cov-context=test; cd tests
     python -m tools.mutation [--mutants 100] [--seed 1] [--jobs 2] [--timeout 900] [--list] [MODULE ...]

Requires `cosmic-ray`, whose operators make the changes. Each changed version of a module is a mutant. Mutants are made in a copy
of the project. The first command records the tests that execute each line. For each mutant, the tests of the default tier that
execute the changed line run, and if none of them fails, the others. If programs started by tests execute the line, too, the tests
in the folder of the module follow. A mutant that the default tier does not notice is printed as a diff: either a test is missing,
or the change has no effect.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from difflib import unified_diff
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import attrs
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData

ROOT: Final = Path(__file__).resolve().parents[2]
_TEST_TIMEOUT: Final = 90
"""Seconds after which a test counts as failed. Many mutants make a test wait forever."""
PACKAGE: Final = ROOT / "outreach_async"


@attrs.frozen
class Tests:
    """The tests that execute the package."""

    default: frozenset[str]
    by_line: dict[str, dict[int, list[str]]]


@attrs.frozen
class Mutant:
    """One change of a module."""

    module: str
    operator: str
    occurrence: int
    line: int

    @property
    def path(self) -> Path:
        """The path of the module, relative to the project."""
        return Path("outreach_async", f"{self.module}.py")

    def change(self, source: str) -> str:
        """Return the changed source."""
        changed: str = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        return changed


def find_mutants(module: str) -> Iterator[Mutant]:
    """Yield every mutant of a module. Annotations are left out, because they are never evaluated."""
    source = (ROOT / "outreach_async" / f"{module}.py").read_text(encoding="utf-8")
    ignored = set(_annotation_places(source))
    nodes = list(ast_nodes(get_ast(source)))
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        places = (place for node in nodes for place in operator.mutation_positions(node))
        for occurrence, ((line, column), _) in enumerate(places):
            if (line, column) not in ignored:
                yield Mutant(module, name, occurrence, line)


def is_valid(mutant: Mutant) -> bool:
    """Return whether the operator can make its change, and the result is valid Python."""
    # Some operators mistake the star of `*args` for multiplication, or fail on a dotted name in an `except` clause.
    source = (ROOT / mutant.path).read_text(encoding="utf-8")
    try:
        compile(mutant.change(source), mutant.path.name, "exec")
    except (SyntaxError, AttributeError):
        return False
    return True


def _annotation_places(source: str) -> Iterator[tuple[int, int]]:
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is None:
                continue
            for line in range(annotation.lineno, annotation.end_lineno + 1):
                first = annotation.col_offset if line == annotation.lineno else 0
                last = annotation.end_col_offset if line == annotation.end_lineno else len(lines[line - 1])
                yield from ((line, column) for column in range(first, last))


def copy_project(folder: Path) -> Path:
    """Copy the files that the tests need, and return the path of the copy."""
    ignored = shutil.ignore_patterns(".git", ".venv", "*cache*", ".coverage*", ".wheelhouse", "results")
    return Path(shutil.copytree(ROOT, folder / "project", ignore=ignored))


def run_tests(project: Path, timeout: float, *options: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a copy of the project, until the first failure."""
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
            *("-o", f"faulthandler_timeout={_TEST_TIMEOUT}", *options),
        ],
        cwd=project,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(project), str(project / "tests"))),
            "PYTHONDONTWRITEBYTECODE": "",  # the tests of the next mutant reuse the compiled files
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def find_tests() -> Tests:
    """Return the tests that executed each line when coverage was measured."""
    data = CoverageData(str(ROOT / ".coverage"))
    data.read()
    by_line: dict[str, dict[int, list[str]]] = {}
    for name in data.measured_files():
        module = Path(name).as_posix().rpartition("outreach_async/")[2].removesuffix(".py")
        by_line[module] = {
            line: [context.partition("|")[0] for context in contexts] for line, contexts in data.contexts_by_lineno(name).items()
        }
    if not any(filter(None, (test for lines in by_line.values() for tests in lines.values() for test in tests))):
        sys.exit(f"no test is recorded in {ROOT / '.coverage'}; run: cd {ROOT} && pytest -n auto -m '' --cov --cov-context=test")
    return Tests(frozenset(line for line in run_tests(ROOT, 600, "--collect-only").stdout.splitlines() if "::" in line), by_line)


def statement_lines(source: str, line: int) -> range:
    """Return the lines of the innermost statement at a line, excluding the body of a compound statement."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # outer nodes come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", None)
            found = range(node.lineno, max(body[0].lineno if body else (node.end_lineno or line) + 1, node.lineno + 1))
    return found


def notice(mutant: Mutant, project: Path, tests: Tests, timeout: float) -> str:
    """Test a mutant, and return what noticed it: `default tier`, `other tests` or `nothing`."""
    path = project / mutant.path
    source = path.read_text(encoding="utf-8")
    by_line = tests.by_line.get(mutant.module, {})
    near = {test for line in statement_lines(source, mutant.line) for test in by_line.get(line, [""])}
    folder = mutant.module.partition("/")[0] if "/" in mutant.module else "client"
    others = (f"tests/{folder}",), ("-m", "thorough or nightly", f"tests/{folder}")
    tiers = (
        ("default tier", "mutants", near & tests.default, others[0]),
        ("other tests", "thorough", near - tests.default, others[1]),
    )
    write_source(path, mutant.change(source))
    try:
        for tier, profile, chosen, other in tiers:
            selections = (*batches(chosen - {""}), other if "" in near else ())
            if any(fails(project, selection, timeout, profile) for selection in selections if selection):
                return tier
    finally:
        write_source(path, source)
    return "nothing"


def batches(tests: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return one case of each test, and the other cases, which need not run if one of the first fails."""
    ordered = sorted(tests)
    first = list({name.partition("[")[0]: name for name in reversed(ordered)}.values())[::-1]
    return first, [name for name in ordered if name not in set(first)]


def fails(project: Path, options: Sequence[str], timeout: float, profile: str) -> bool:
    """Return whether a test fails, or does not end in time."""
    names = project / "tests.txt"
    names.write_text("\n".join(options), encoding="utf-8")
    try:
        done = run_tests(project, timeout, f"--hypothesis-profile={profile}", f"@{names}")
    except subprocess.TimeoutExpired:
        return True
    return done.returncode not in {0, 5}  # 5: a folder without such tests


def write_source(path: Path, source: str) -> None:
    """Write a module, and remove its compiled files: Python may not notice a change of equal size within the same second."""
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()
    path.write_text(source, encoding="utf-8")


def describe(mutant: Mutant) -> str:
    """Return a mutant as a diff."""
    before = (ROOT / mutant.path).read_text(encoding="utf-8")
    lines = unified_diff(
        before.splitlines(), mutant.change(before).splitlines(), mutant.path.as_posix(), mutant.operator, n=1, lineterm=""
    )
    return "\n".join(lines)


def say(text: str) -> None:
    """Print a line, and flush it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Test the mutants; return 1 if the default tier did not notice one."""
    modules = sorted(path.relative_to(PACKAGE).with_suffix("").as_posix() for path in PACKAGE.rglob("*.py"))
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="such as bulk/pipeline; default: all")
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=900, help="seconds for the tests of one mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants without testing them")
    options = parser.parse_args(arguments)
    found = [mutant for module in options.modules or modules for mutant in find_mutants(module)]
    random.Random(options.seed).shuffle(found)  # noqa: S311 - not for security
    chosen = list(islice(filter(is_valid, found), options.mutants))
    say(f"{len(chosen)} of {len(found)} mutants, seed {options.seed}")
    if options.list:
        say("\n\n".join(map(describe, chosen)))
        return 0
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        free: SimpleQueue[Path] = SimpleQueue()
        for job in range(options.jobs):
            free.put(copy_project(Path(folder, str(job))))
        tests = find_tests()

        def judge(mutant: Mutant) -> tuple[Mutant, str]:
            project = free.get()
            try:
                return mutant, notice(mutant, project, tests, options.timeout)
            finally:
                free.put(project)

        futures = [pool.submit(judge, mutant) for mutant in chosen]
        for number, future in enumerate(as_completed(futures), 1):
            mutant, noticed_by = future.result()
            counts[noticed_by] += 1
            say(f"{number} noticed by {noticed_by}: {mutant.module} {mutant.operator} {mutant.occurrence}")
            if noticed_by != "default tier":
                say(describe(mutant))
    say(", ".join(f"{noticed_by}: {count}" for noticed_by, count in sorted(counts.items())))
    return int(counts["default tier"] < len(chosen))


if __name__ == "__main__":
    sys.exit(main())
