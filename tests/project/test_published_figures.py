"""The figures in README and in the guide to performance are those of the stored runs of the benchmarks."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Final

import outreach_async.guides.performance as guide

ROOT: Final = Path(__file__).parents[2]


@cache
def published() -> list[str]:
    """Return the lines of the guide's table, and those of README's figures, as `name: at most figure`."""
    # A process, because tests do not have benchmarks on their path. They set PYTHONSAFEPATH, which keeps the folder from it, too.
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); import benchmarks.published as p; p.main()"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_the_guide_shows_the_range_of_all_runs() -> None:
    assert guide.__doc__ is not None
    shown = [line.strip() for line in guide.__doc__.splitlines() if line.strip().startswith("|")]
    assert shown == [line for line in published() if line.startswith("|")]


def test_the_readme_gives_the_weaker_end_of_each_range() -> None:
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Performance")[2].partition("\n## ")[0]
    figures = [line.rpartition("at most ")[2] for line in published() if not line.startswith("|")]
    assert [figure for figure in figures if f" {figure} " not in " ".join(section.split())] == []
