"""The README is true: its commands are two lines, and its recipes run unchanged against a service on a real port."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest
from support.cli import serve_in_process
from tools.api_pages import CHAPTERS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
LINK = re.compile(r"\](?:\(|: )([^)#\s]+)(?:#([\w-]+))?")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def environment() -> Iterator[dict[str, str]]:
    with serve_in_process() as (_, values):
        yield {**os.environ, **{f"OUTREACH_{name.upper()}": values[name] for name in ("base_url", "owner_key", "workspace")}}


def test_the_two_shell_blocks_are_one_line_commands_and_there_are_five_recipes() -> None:
    demo, tests = blocks("sh")  # the second is what `.ci/run` runs
    assert demo.count("\n") == tests.count("\n") == 1
    assert demo.startswith("python3 -m venv .venv && ")
    assert tests.startswith("python3 -m venv .venv && ")
    assert demo.rstrip().endswith("outreach-async demo")
    assert "pytest" in tests
    assert len(re.findall(r"^\*\*.*\*\*", TEXT.partition("## Python")[2].partition("\n## ")[0], re.MULTILINE)) == 5


@pytest.mark.thorough
@pytest.mark.parametrize(
    "recipe", [block for block in blocks("python") if "def test_" not in block], ids=lambda block: f"{len(block)}"
)
def test_a_recipe_runs_unchanged(recipe: str, environment: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    path.write_text(recipe, encoding="utf-8")
    command = [sys.executable, "-W", "error", str(path)]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert environment["OUTREACH_OWNER_KEY"] not in done.stdout + done.stderr


@pytest.mark.thorough
def test_the_command_of_every_morning_runs_unchanged_day_after_day(environment: dict[str, str], tmp_path: Path) -> None:
    (line,) = re.findall(r"^outreach-async (brief .*)$", "\n".join(blocks("bash")), re.MULTILINE)
    command = f"{sys.executable} -m outreach_async {line}"
    for found in ("There is no earlier brief", " 0 new, 0 resolved, "):
        done = subprocess.run(command, shell=True, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)  # noqa: S602 - the project's own line
        assert (done.returncode, done.stderr) == (1, "")
        assert found in " ".join(done.stdout.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["brief.html", "brief.md", "history.db"]


@pytest.mark.thorough
def test_the_recipe_for_tests_is_a_test_that_passes(tmp_path: Path) -> None:
    (recipe,) = [block for block in blocks("python") if "def test_" in block]
    path = tmp_path / "test_recipe.py"
    path.write_text(recipe, encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", path], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout  # asyncio and trio


@pytest.mark.parametrize(("path", "words"), [("README.md", 1000), (".github/CONTRIBUTING.md", 1500)])
def test_it_is_short_and_its_lines_fit_beside_other_text(path: str, words: int) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    outside = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    assert len(text.split()) <= words
    assert [line for line in outside.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def test_every_link_leads_to_a_file_of_the_checkout() -> None:
    for path in ("README.md", ".github/CONTRIBUTING.md"):
        for link in LINK.findall((ROOT / path).read_text(encoding="utf-8")):
            assert (ROOT / path).parent.joinpath(link[0]).exists(), f"{path}: {link[0]}"


def test_its_table_links_to_guides_and_to_sections_that_exist() -> None:
    links = LINK.findall(TEXT.partition("## Guides")[2].partition("\n## ")[0])
    assert len(links) >= 20
    for path, section in links:
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        assert name in CHAPTERS
        headings = re.findall(r"^(.+)\n-+$", importlib.import_module(name).__doc__ or "", re.MULTILINE)
        assert not section or section in {heading.lower().replace(" ", "-") for heading in headings}


def test_it_says_how_to_install_before_and_after_the_first_release() -> None:
    checkout, repository, index = re.findall(r"^pip install '(.*?)'", "\n".join(blocks("bash")), re.MULTILINE)
    assert (checkout, repository, index) == (".[cli]", "outreach_async[cli] @ git+ADDRESS", "outreach_async[cli]")
    listed = TEXT.partition("`all` is every extra:")[2].partition(".")[0]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(re.findall("`(.+?)`", listed)) == set(extras) - {"all"}


@pytest.mark.nightly
def test_the_shell_examples_use_existing_commands_and_options() -> None:
    lines = re.findall(r"^outreach-async (\S.*)$", "\n".join(blocks("bash")), re.MULTILINE)
    assert {line.split()[0] for line in lines} >= {"import", "audit", "brief"}
    for line in lines:
        words = takewhile(lambda word: not word.startswith(("-", "#")), line.split())
        done = subprocess.run([sys.executable, "-m", "outreach_async", *words, "-h"], capture_output=True, text=True, check=True)
        assert all(option in done.stdout for option in re.findall(r"--[a-z-]+", line))
