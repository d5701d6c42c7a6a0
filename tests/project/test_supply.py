"""Dependencies, build tools and checks are pinned, and builds are reproducible."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from support.tables import check_rows
from tools.supply import (
    GROUPS,
    HOOKS,
    LOCKED,
    LOCKED_RELEASE,
    LOCKED_USER,
    ROOT,
    find_differences,
    floors,
    locked_versions,
    update_hooks,
)

from outreach_async._plumbing import Backend
from outreach_async.transport._backends import BACKENDS
from outreach_async.transport._socket_reader import LEAST_HTTPTOOLS

CONFIGURATION: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT: dict[str, Any] = CONFIGURATION["project"]
LOCK = LOCKED.read_text(encoding="utf-8")
LOCK_OF_USER = LOCKED_USER.read_text(encoding="utf-8")
LOCK_OF_RELEASE = LOCKED_RELEASE.read_text(encoding="utf-8")
BACKEND = CONFIGURATION["build-system"]["requires"]
EXTRAS = [one for every in PROJECT["optional-dependencies"].values() for one in every if not one.startswith("outreach_async[")]
TOOLS = {group: [one for one in every if isinstance(one, str)] for group, every in CONFIGURATION["dependency-groups"].items()}
REQUIREMENTS = sorted({*BACKEND, *PROJECT["dependencies"], *EXTRAS, *(one for group in GROUPS for one in TOOLS[group])})
RELEASE = sorted({*BACKEND, *TOOLS["release"]})
NAMED = "Programming Language :: Python :: "
PYTHONS = [one.removeprefix(NAMED) for one in PROJECT["classifiers"] if re.fullmatch(rf"{NAMED}3\.\d+", one)]
LOCKS = {"all": (LOCK, REQUIREMENTS), "release": (LOCK_OF_RELEASE, RELEASE)}


def entries_of(lock: str) -> list[str]:
    return [line for line in lock.replace("\\\n", "").splitlines() if line.strip()]


@pytest.mark.parametrize(("lock", "requirements"), LOCKS.values(), ids=LOCKS)
def test_every_requirement_is_locked_at_an_allowed_version(lock: str, requirements: list[str]) -> None:
    entries = [Requirement(entry.partition(" --hash")[0]) for entry in entries_of(lock)]

    def check(requirement: str, python: str) -> None:
        required, environment = Requirement(requirement), {"python_version": python, "python_full_version": f"{python}.0"}
        if required.marker is None or required.marker.evaluate(environment):
            named = [one for one in entries if one.name == canonicalize_name(required.name)]
            (locked,) = [one for one in named if one.marker is None or one.marker.evaluate(environment)]
            assert required.specifier.contains(str(locked.specifier).removeprefix("=="))

    check_rows(((one, python) for one in requirements for python in PYTHONS), check)


def test_every_tool_of_the_project_is_locked() -> None:
    assert set(TOOLS) == {*GROUPS, "release"}


@pytest.mark.parametrize("lock", [LOCK, LOCK_OF_USER, LOCK_OF_RELEASE], ids=["all", "user", "release"])
def test_every_locked_version_has_hashes_and_no_index_url(lock: str) -> None:
    entries = entries_of(lock)
    assert len(entries) == len(re.findall(r"^[\w.-]+(?:\[[^]]*\])?==", lock, re.MULTILINE))
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry) for entry in entries)
    assert not re.search(r"://|@ |^ *-", re.sub(r"^ *--hash=.*$", "", lock, flags=re.MULTILINE), re.MULTILINE)


def test_a_project_of_a_user_installs_the_versions_of_the_other_tests() -> None:
    versions, everywhere = locked_versions(LOCK_OF_USER), locked_versions(LOCK)
    assert {name: everywhere.get(name) for name in versions} == {**versions, "pytest-asyncio": None}


def test_a_release_is_built_with_the_tools_that_the_tests_build_with() -> None:
    versions, everywhere = locked_versions(LOCK_OF_RELEASE), locked_versions(LOCK)
    assert {"build", "hatchling"} <= versions.keys()
    assert {name: everywhere.get(name, version) for name, version in versions.items()} == versions


def test_the_pre_commit_hooks_use_the_locked_versions() -> None:
    text = HOOKS.read_text(encoding="utf-8")
    listed = re.findall(r"additional_dependencies: \[(.*)\]", text)
    assert len(listed) == text.count("- id:")
    assert all(re.fullmatch(r"[\w-]+==[\w.]+", one) for several in listed for one in several.split(", "))
    assert update_hooks(text, locked_versions(LOCK)) == text
    assert text.count("repo:") == text.count("repo: local")


def test_every_action_is_pinned_by_commit_hash() -> None:
    lines = [
        line
        for path in (ROOT / ".github").rglob("*.y*ml")
        for line in path.read_text(encoding="utf-8").splitlines()
        if "uses:" in line and "uses: ./.github/workflows/" not in line
    ]
    assert lines
    assert [
        line for line in lines if not re.fullmatch(r" *(- )?uses: [\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    ] == []


def test_the_supported_systems_and_python_versions_are_the_tested_ones() -> None:
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    (matrix,) = re.findall(r"^ +python: \[(.*, .*, .*)\]$", text, re.MULTILINE)
    assert re.findall(r"\d+\.\d+", matrix) == PYTHONS
    assert PYTHONS[0] == PROJECT["requires-python"].removeprefix(">=")
    required = set(re.findall(r"system: \[?(\w+)-", text))  # of the jobs that must not fail
    systems = {one for one in PROJECT["classifiers"] if one.startswith("Operating System")}
    names = {"ubuntu": "Operating System :: POSIX :: Linux", "macos": "Operating System :: MacOS"}
    assert systems == {names[one] for one in required}


def test_the_table_of_backends_has_each_name_and_the_required_versions() -> None:
    libraries = {one.package or name: one for name, one in BACKENDS.items()}
    required = {one.name: one.specifier for one in map(Requirement, REQUIREMENTS) if one.name in libraries}
    assert required == {name: SpecifierSet(f">={one.least},<{one.below}") for name, one in libraries.items()}
    assert ("auto", *BACKENDS) == get_args(Backend)


def test_the_faster_parser_has_the_version_of_its_extra() -> None:
    assert f"httptools>={'.'.join(map(str, LEAST_HTTPTOOLS))}" in EXTRAS


def test_every_dependency_of_users_has_a_minimum_version() -> None:
    assert len(floors(PROJECT)) == len(PROJECT["dependencies"]) + 21
    with pytest.raises(ValueError, match="certifi has no lowest version"):
        floors({"dependencies": ["certifi"], "optional-dependencies": {}})


@pytest.mark.nightly
def test_wheel_and_sdist_builds_are_reproducible(tmp_path: Path) -> None:
    assert list(find_differences(Path(sys.executable), tmp_path)) == []
