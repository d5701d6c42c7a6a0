"""A tag is released only with the version and the changelog that belong to it, and every workflow has few permissions."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from tools.release import ROOT, find_notes, main

import outreach_async

CHANGELOG = """# Changelog

## [0.2.0] - 2027-01-31

### Added

- A thing.

## [0.1.0] - 2026-12-01

- The first.

## [0.0.2] - unreleased

- A draft.

## [0.0.1] - 2026-11-01
"""
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize(
    ("version", "notes"), [("0.2.0", "### Added\n\n- A thing.\n"), ("0.1.0", "- The first.\n")], ids=["first", "later"]
)
def test_the_notes_of_a_version_are_its_section_of_the_changelog(version: str, notes: str) -> None:
    assert find_notes(f"v{version}", version, CHANGELOG) == notes


@pytest.mark.parametrize(
    ("tag", "version", "reason"),
    [
        ("v0.2.1", "0.2.0", r"tag: expected v0\.2\.0, as in pyproject\.toml, got v0\.2\.1; change one of them"),
        ("v0.3.0", "0.3.0", r"CHANGELOG\.md: expected a section '## \[0\.3\.0\] - YYYY-MM-DD', got none; add it"),
        ("v0.0.2", "0.0.2", r"CHANGELOG\.md: expected the date of 0\.0\.2 as YYYY-MM-DD, got unreleased; set it"),
        ("v0.0.1", "0.0.1", r"CHANGELOG\.md: expected what changed in 0\.0\.1, got nothing; add it"),
    ],
    ids=["tag", "section", "date", "text"],
)
def test_a_tag_that_cannot_be_released_says_what_to_change(tag: str, version: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"^{reason}$"):
        find_notes(tag, version, CHANGELOG)


def test_another_tag_writes_no_notes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["v0.0.0", str(tmp_path / "notes.md")]) == 1
    assert capsys.readouterr().err.startswith(f"tag: expected v{outreach_async.__version__}, ")
    assert not list(tmp_path.iterdir())


def test_the_changelog_has_a_section_for_the_version_and_says_what_is_stable() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.sub(r"^(## \[[\d.]+\] - )Unreleased$", r"\g<1>2026-12-01", text, flags=re.MULTILINE)
    assert "### Added" in find_notes(f"v{version}", version, dated)
    assert "## What is stable" in text


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_grants_no_permission_to_all_its_jobs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert re.search(r"^permissions: \{\}$", text, re.MULTILINE)
    jobs = re.findall(r"^  (\w+):\n(.*?)(?=^  \w|\Z)", text.partition("\njobs:\n")[2], re.MULTILINE | re.DOTALL)
    assert jobs
    assert [name for name, job in jobs if "    permissions:" not in job or "write-all" in job] == []
    written = {name for name, job in jobs if re.search(r"^      [\w-]+: write\b", job, re.MULTILINE)}
    assert [name for name, job in jobs if name in written and "actions/checkout" in job] == []  # nor to code of the repository
