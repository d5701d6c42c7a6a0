"""Change the code at random places, one at a time, and check that the tests fail.

Run: python -m tools.mutation [--mutants 300] [--seed 1] [--jobs 2] [--timeout 600] [--list] [MODULE ...]

Requires `cosmic-ray`, whose operators make the changes. Each changed version of a module is a mutant. A mutant that no test
notices is printed as a diff: either a test is missing, or the change has no effect. Mutants are made in a copy of the project.
For each mutant, the tests that execute the changed line run. If programs started by tests execute the line, too, and none of
these tests fails, all tests of the module run.
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
from collections.abc import Iterator, Sequence
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
_CLIENT: Final = ("client/test_engine.py", "client/test_client.py", "client/test_hooks.py", "client/test_logs.py")
_BULK: Final = (
    "bulk/test_parts.py",
    "bulk/test_bulk.py",
    "bulk/test_drain.py",
    "bulk/test_journalled_runs.py",
    "bulk/test_crashes.py",
)
_THROTTLE: Final = (
    "client/test_rate.py",
    "client/test_limiter.py",
    "bulk/test_breaker.py",
    "bulk/test_throttle.py",
    "bulk/test_throttle_client.py",
    *_BULK,
)
_JOURNAL: Final = (
    "bulk/test_journal_records.py",
    "bulk/test_journal_writers.py",
    "bulk/test_journal.py",
    "bulk/test_journal_machine.py",
    "bulk/test_journal_damage.py",
)
_OBJECTS: Final = ("bulk/test_journal_writers.py", "bulk/test_object_journal.py", "bulk/test_takeovers.py")

TESTS: Final = {
    "retry": ("client/test_retry.py", *_CLIENT, "bulk/test_labels.py"),
    "call": ("client/test_call.py", *_CLIENT, "client/test_retry.py", "bulk/test_labels.py", "bulk/test_bulk.py"),
    "engine": (*_CLIENT, "bulk/test_bulk.py"),
    "bulk/pipeline": _BULK,
    "bulk/recording": _BULK,
    "bulk/windows": _BULK,
    "bulk/outcomes": ("bulk/test_labels.py", *_BULK),
    "bulk/throttle": _THROTTLE,
    "rate": _THROTTLE,
    "limiter": _THROTTLE,
    "bulk/breaker": _THROTTLE,
    "bulk/journal/__init__": (*_JOURNAL, *_BULK),
    "bulk/journal/reader": (*_JOURNAL, *_BULK),
    "bulk/journal/writer": (*_JOURNAL, *_BULK),
    "bulk/journal/database": (*_JOURNAL, *_BULK),
    "bulk/journal/protocol": (*_JOURNAL, *_BULK),
    "bulk/journal/records": (*_JOURNAL, *_BULK),
    "bulk/journal/identity": (*_JOURNAL, *_BULK),
    "bulk/journal/opening": (*_JOURNAL, *_BULK),
    "bulk/journal/lock": (*_JOURNAL, *_BULK),
    "bulk/journal/objects": (*_OBJECTS, *_BULK),
    "bulk/journal/object_journal": (*_OBJECTS, *_BULK),
    "codec": ("client/test_codec.py", "client/test_models.py", "client/test_hostile_responses.py"),
}
"""The modules to change, and the tests that should fail, in the order in which they run."""


@attrs.frozen
class Mutant:
    """One change of a module.

    Attributes:
        module: Name of the module, as in `TESTS`.
        operator: Name of the operator that makes the change.
        occurrence: Index of the place among those that the operator can change, from 0.
        line: Line of the place, from 1.
    """

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
    """Return whether the operator can make its change, and the result is valid Python.

    Some operators mistake the star of `*args` for multiplication, or fail on a dotted name in an `except` clause.
    """
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
    ignored = shutil.ignore_patterns(".git", ".venv", "*cache*", "results")
    return Path(shutil.copytree(ROOT, folder / "project", ignore=ignored))


def run_tests(tests: Sequence[str], project: Path, timeout: float, *options: str) -> subprocess.CompletedProcess[str]:
    """Run test files or single tests in a copy of the project, until the first failure."""
    names = project / "tests.txt"
    names.write_text("\n".join(f"tests/{name}" for name in tests), encoding="utf-8")
    return subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--hypothesis-profile=mutants"),
            *("-o", f"faulthandler_timeout={_TEST_TIMEOUT}", "-o", "faulthandler_exit_on_timeout=true"),
            *(*options, f"@{names}"),
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


def find_tests(project: Path) -> dict[str, dict[int, list[str]]]:
    """Run the tests of all modules without a change, and return the names of the tests that execute each line of a module.

    An empty name stands for code that runs outside tests: imports, and programs that tests start.

    Raises:
        SystemExit: A test failed. It would fail for every mutant.
    """
    files = list(dict.fromkeys(name for names in TESTS.values() for name in names))
    done = run_tests(files, project, 3600, "-n", "auto", "--cov", "--cov-context=test", "--cov-report=", "--cov-fail-under=0")
    if done.returncode:
        sys.exit(f"tests fail without a change:\n{done.stdout}{done.stderr}")
    data = CoverageData(str(project / ".coverage"))
    data.read()
    measured = {Path(name).as_posix(): name for name in data.measured_files()}
    tests: dict[str, dict[int, list[str]]] = {}
    for module in TESTS:
        path = next(name for posix, name in measured.items() if posix.endswith(f"outreach_async/{module}.py"))
        tests[module] = {
            line: [context.partition("|")[0].removeprefix("tests/") for context in contexts]
            for line, contexts in data.contexts_by_lineno(path).items()
        }
    return tests


def statement_lines(source: str, line: int) -> range:
    """Return the lines of the innermost statement at a line, excluding the body of a compound statement."""
    found = range(line, line + 1)
    for node in ast.walk(ast.parse(source)):  # outer nodes come first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or line):
            body = getattr(node, "body", None)
            found = range(node.lineno, max(body[0].lineno if body else (node.end_lineno or line) + 1, node.lineno + 1))
    return found


def notice(mutant: Mutant, project: Path, tests: dict[int, list[str]], timeout: float) -> str:
    """Test a mutant, and return the result: `killed`, `survived`, or `killed by its timeout`."""
    path = project / mutant.path
    source = path.read_text(encoding="utf-8")
    lines = statement_lines(source, mutant.line)
    files = TESTS[mutant.module]
    places = {name: place for place, name in enumerate(files)}
    nearest = {test for line in lines for test in tests.get(line, [""])}
    named = sorted(nearest - {""}, key=lambda test: (places.get(test.partition("::")[0], len(files)), test))
    # Run one case of each test first. If it fails, the other cases need not run.
    first_cases = list({name.partition("[")[0]: name for name in reversed(named)}.values())[::-1]
    others = [name for name in named if name not in set(first_cases)]
    write_source(path, mutant.change(source))
    try:
        failed = any(
            run_tests(chosen, project, timeout).returncode
            for chosen in (first_cases, others, files if "" in nearest else ())
            if chosen
        )
    except subprocess.TimeoutExpired:
        return "killed by its timeout"
    finally:
        write_source(path, source)
    return "killed" if failed else "survived"


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
    """Test the mutants; return 1 if one survived."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help=f"one of {', '.join(TESTS)}; default: all")
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600, help="seconds for the tests of one mutant")
    parser.add_argument("--list", action="store_true", help="print the mutants without testing them")
    options = parser.parse_args(arguments)
    found = [mutant for module in options.modules or TESTS for mutant in find_mutants(module)]
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
            free.put(project := copy_project(Path(folder, str(job))))
        tests = find_tests(project)

        def judge(mutant: Mutant) -> tuple[Mutant, str]:
            project = free.get()
            try:
                return mutant, notice(mutant, project, tests[mutant.module], options.timeout)
            finally:
                free.put(project)

        futures = [pool.submit(judge, mutant) for mutant in chosen]
        for number, future in enumerate(as_completed(futures), 1):
            mutant, result = future.result()
            counts[result] += 1
            say(f"{number} {result}: {mutant.module} {mutant.operator} {mutant.occurrence}")
            if result == "survived":
                say(describe(mutant))
    say(", ".join(f"{result}: {count}" for result, count in sorted(counts.items())))
    return int(counts["survived"] > 0)


if __name__ == "__main__":
    sys.exit(main())
