"""Proof that tests notice what the fake, bulk runs and imports get wrong: each listed mutant must make a test of its own fail.

    python tests/mutants.py [--only NUMBER-OR-WORDS ...] [--list]

A mutant is one entry of `mutants_listed.MUTANTS`: a small wrong change of one file, and the tests that must notice it. It is made
in a copy of the package, never in the working tree. Exits with 1 if any survives, does not apply any more, or breaks more than it
means to: a mutant that cannot be imported proves nothing, and neither do tests that fail without it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Final

import attrs

ROOT: Final = Path(__file__).resolve().parent.parent
COPIES: Final = 2
TIMEOUT: Final = 120.0
"""Seconds for a mutant's tests; one that makes them hang counts as noticed."""

_PLUGINS: Final = ("anyio.pytest_plugin", "_hypothesis_pytestplugin", "xdist.plugin")
_ENVIRONMENT: Final = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Only the plugins named are loaded: others would take most of the time of a mutant."""

_OPTIONS: Final = (
    *("-x", "-q", "--tb=line", "--no-header", "-p", "no:cacheprovider", "-W", "error"),
    *("--hypothesis-seed=0", "--hypothesis-profile=mutants"),
    *(f"-p{name}" for name in _PLUGINS),
)
_KILLED: Final = 1
"""pytest's exit code for failed tests; others say that it could not run them."""


@attrs.frozen
class Mutant:
    """A small wrong change.

    Attributes:
        name: What goes wrong, in words.
        file: Where, from the package's root.
        old: Text that stands there once.
        new: What it becomes.
        tests: The tests that must notice, as pytest takes them, from the directory of the tests.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = attrs.field(converter=tuple[str, ...])

    def applied(self, text: str) -> str:
        """Make the change.

        Raises:
            ValueError: What is to be changed does not stand there once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"its old text stands {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


@attrs.frozen
class Verdict:
    """What became of a mutant.

    Attributes:
        mutant: The mutant.
        end: `killed`, or what is wrong.
        seconds: How long it took.
    """

    mutant: Mutant
    end: str
    seconds: float

    @property
    def good(self) -> bool:
        """Whether a test noticed it."""
        return self.end.startswith("killed")


class Copy:
    """A copy of the project in which a file can be changed for a while.

    Args:
        directory: Where to make it.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        # Compiled files come along and stay right: they are told by their source's time, which a copy keeps and a mutant lacks.
        ignored = shutil.ignore_patterns(".*", "*.pyc.*")
        for name in ("outreach_async", "tests"):
            shutil.copytree(ROOT / name, directory / name, ignore=ignored)
        for name in ("pyproject.toml", "README.md"):
            shutil.copy(ROOT / name, directory)
        where = self._run("-c", "import outreach_async; print(outreach_async.__file__)").stdout
        if not Path(where.strip()).is_relative_to(directory.resolve()):
            raise RuntimeError(f"the tests would import {where.strip()} and not the copy")

    def judge(self, mutant: Mutant) -> Verdict:
        """Try one mutant."""
        began = time.perf_counter()
        try:
            with self._changed(mutant):
                end = self._noticed(mutant)
        except ValueError as error:
            end = f"STALE: {error}"
        return Verdict(mutant, end, time.perf_counter() - began)

    def tested(self, tests: Iterable[str]) -> subprocess.CompletedProcess[str]:
        """Run tests by pytest."""
        return self._run("-m", "pytest", *_OPTIONS, *(f"tests/{test}" for test in tests))

    def _noticed(self, mutant: Mutant) -> str:
        try:
            code = self.tested(mutant.tests).returncode
        except subprocess.TimeoutExpired:
            return "killed, by hanging"
        return {0: "SURVIVED", _KILLED: "killed"}.get(code, f"BROKEN: pytest ended with {code}")

    @contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        path = self._directory / "outreach_async" / mutant.file
        text = path.read_text(encoding="utf-8")
        path.write_text(mutant.applied(text), encoding="utf-8")
        try:
            yield
        finally:
            path.write_text(text, encoding="utf-8")

    def _run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # -B: none are written, since two mutants of one second and one size could not be told apart. A copy's lines do not count.
        command = [sys.executable, "-B", *arguments]
        unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
        return subprocess.run(
            command,
            cwd=self._directory,
            env={**unmeasured, **_ENVIRONMENT, "PYTHONPATH": str(self._directory)},  # before what is installed
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )


def judged(mutants: Sequence[Mutant], copies: int = COPIES) -> Iterator[Verdict]:
    """Try mutants, several at once, each in a copy of its own; yields them in their order.

    Raises:
        RuntimeError: Their tests fail without any of them.
    """
    with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(copies) as pool:
        free: SimpleQueue[Copy] = SimpleQueue()
        for number in range(copies):
            free.put(Copy(Path(directory, str(number))))

        def judge(mutant: Mutant) -> Verdict:
            copy = free.get()
            try:
                return copy.judge(mutant)
            finally:
                free.put(copy)

        first = free.get()
        sound = first.tested(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        if sound.returncode:
            raise RuntimeError(f"the tests fail without any mutant:\n{sound.stdout[-3000:]}{sound.stderr[-3000:]}")
        free.put(first)
        yield from pool.map(judge, mutants)


def chosen(mutants: Sequence[Mutant], only: Sequence[str]) -> list[Mutant]:
    """Choose mutants by their number, from 1, or by words of their name; all of them if nothing is asked for."""
    return [
        mutant
        for number, mutant in enumerate(mutants, 1)
        if not only or any(wanted == str(number) or (not wanted.isdigit() and wanted in mutant.name) for wanted in only)
    ]


def report(mutants: Sequence[Mutant], everything: Sequence[Mutant], copies: int = COPIES) -> int:
    """Try mutants and print a table.

    Returns:
        The exit code: 0 if every one was noticed.
    """
    verdicts = []
    for verdict in judged(mutants, copies):
        verdicts.append(verdict)
        mutant = verdict.mutant
        number = everything.index(mutant) + 1
        sys.stdout.write(f"{number:3}  {verdict.end:10}  {verdict.seconds:5.1f} s  {mutant.file}: {mutant.name}\n")
        sys.stdout.flush()
    good = sum(verdict.good for verdict in verdicts)
    sys.stdout.write(f"{good} of {len(verdicts)} mutants killed\n")
    return 0 if verdicts and good == len(verdicts) else 1


def main() -> int:
    """Do as the command line says."""
    from mutants_listed import MUTANTS

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=[], metavar="WHICH", help="numbers from 1, or words of names")
    parser.add_argument("--list", action="store_true", help="show the mutants and try none")
    arguments = parser.parse_args()
    mutants = chosen(MUTANTS, arguments.only)
    if arguments.list:
        sys.stdout.writelines(f"{MUTANTS.index(mutant) + 1:3}  {mutant.file}: {mutant.name}\n" for mutant in mutants)
        return 0
    return report(mutants, MUTANTS)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    # As a module of its own name: the list imports it too, and its classes must be the same.
    from mutants import main as listed_main

    sys.exit(listed_main())
