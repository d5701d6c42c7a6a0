"""Check the supply chain: the oldest and newest versions of libraries, known vulnerabilities, and reproducible builds.

Run: python -m tools.supply floors|newest [--whole] | audit | wheel | lock

floors  Run the tests that depend on other libraries (--whole: all tests) against the wheel, with every requirement of the package
        and its users' extras at the lowest allowed version.
newest  Run the same tests with the newest version of every library.
audit   Print the known vulnerabilities of the versions in .ci/locked.txt. Exits with 3 if a version was checked by no service.
wheel   Check that wheel and sdist are the same, byte for byte, if built in different folders, at different times and with
        different umasks, and that the wheel built from the sdist is the same, too.
lock    Update .ci/locked.txt to the newest version of every library, with hashes, and .ci/locked-user.txt, .ci/locked-release.txt
        and the versions of the pre-commit hooks to match.

Requires only Python and the package index. Environments are created in a temporary directory. Exits with 1 if a check fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
LOCKED: Final = ROOT / ".ci" / "locked.txt"
LOCKED_USER: Final = ROOT / ".ci" / "locked-user.txt"
"""What the project in tests/user_project installs."""
LOCKED_RELEASE: Final = ROOT / ".ci" / "locked-release.txt"
"""What builds and checks a release: few packages, because they could change what is published."""
HOOKS: Final = ROOT / ".pre-commit-config.yaml"
GROUPS: Final = ("dev", "docs", "bench")
"""The dependency groups whose versions are in .ci/locked.txt, beside all extras."""
INSTALLER: Final = "uv==0.13.9"
AUDITOR: Final = "pip-audit==2.10.1"
OF_USER: Final = ("pytest", "pytest-asyncio", "pytest-xdist", "trio")
"""What the project in tests/user_project needs beside this package with its command."""
SERVICES: Final = ("pypi", "osv")
UNKNOWN: Final = 3
"""The exit code if some versions could not be checked."""

DEPENDENT: Final = (
    *("audit/test_html", "audit/test_run", "audit/test_service", "cli/test_*", "client/test_client*", "client/test_converters"),
    *("client/test_errors", "client/test_hooks", "client/test_hostile_*", "client/test_logs", "client/test_models"),
    *("client/test_operations", "client/test_otel", "client/test_pagination", "client/test_responses", "client/test_retry"),
    *("store/test_journal", "conformance/test_suite", "fake/test_plugin", "fake/test_server*"),
    *("fake/test_transport", "importer/test_*", "project/test_packaging", "project/test_public_names", "project/test_readme"),
    "transport/test_*",
)
"""The tests that depend on other libraries."""


PYPROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def floors(project: Mapping[str, Any]) -> dict[str, str]:
    """Return the lowest version that the package and its users' extras allow, by name."""
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *(one for extra, every in extras.items() if extra != "all" for one in every)]
    lowest = {}
    for requirement in listed:
        found = re.fullmatch(r"([\w-]+)>=([\w.]+)(?:,<[\d.]+)?", requirement)
        if found is None:
            raise ValueError(f"{requirement} has no lowest version")
        lowest[found[1]] = found[2]
    return lowest


def locked_versions(text: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)(?:\[[^]]*\])?==([^\s;]+)", text, re.MULTILINE))


def update_hooks(text: str, versions: Mapping[str, str]) -> str:
    return re.sub(r"\b([\w-]+)==[\w.]+", lambda found: f"{found[1]}=={versions[found[1]]}", text)


def find_unchecked(audits: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the packages that every service skipped. An audit lists no vulnerabilities for them, but has not checked them."""
    skipped = [{one["name"] for one in audit["dependencies"] if "skip_reason" in one} for audit in audits]
    return set.intersection(*skipped) if skipped else {"everything"}


def say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()


def run(*command: str | Path, cwd: Path = ROOT, **environment: str) -> None:
    arguments = [str(part) for part in command]
    say("+ " + " ".join(arguments))
    done = subprocess.run(arguments, cwd=cwd, env={**os.environ, **environment}, check=False)
    if done.returncode:
        raise SystemExit(1)


def programs(directory: Path, *needed: str) -> Path:
    """Create an environment with the given packages; return its folder of programs."""
    run(sys.executable, "-m", "venv", directory)
    run(directory / "bin" / "python", "-m", "pip", "install", "--quiet", *needed)
    return directory / "bin"


def run_tests_against(directory: Path, lowest: Mapping[str, str] | None, *, whole: bool) -> None:
    """Run the tests against the wheel, with the given lowest versions, or with the newest version of every library if `None`."""
    tools = programs(directory / "tools", INSTALLER)
    run(tools / "uv", "build", "--quiet", "--wheel", "--out-dir", directory, ROOT)
    (wheel,) = directory.glob("*.whl")
    constraints = directory / "constraints.txt"
    constraints.write_text("".join(f"{name}=={version}\n" for name, version in (lowest or {}).items()), encoding="utf-8")
    place = directory / "tested"
    run(sys.executable, "-m", "venv", place)
    install = ("uv", "pip", "install", "--quiet", "--upgrade", "--python", place / "bin" / "python")
    run(tools / install[0], *install[1:], "--constraints", constraints, "--group", "dev", f"{wheel}[all]")
    listed = subprocess.run(
        [tools / "uv", "pip", "freeze", "--python", place / "bin" / "python"], capture_output=True, text=True, check=True
    )
    say(*(f"  {line}" for line in listed.stdout.splitlines() if lowest is None or line.partition("==")[0] in lowest))
    files = ["-m", ""] if whole else sorted(path for name in DEPENDENT for path in (ROOT / "tests").glob(f"{name}.py"))
    run(place / "bin" / "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", *files)


def audit_locked(directory: Path) -> int:
    """Check the locked versions with every service; return the exit code."""
    tools = programs(directory / "tools", AUDITOR)
    audits = []
    for service in SERVICES:
        command = [str(tools / "pip-audit"), "-s", service, "-r", str(LOCKED), "--require-hashes", "--disable-pip", "-f", "json"]
        done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True, check=False)
        if done.stdout.startswith("{"):
            audits.append(json.loads(done.stdout))
            skipped = len(find_unchecked(audits[-1:]))
            say(f"{service} checked {len(audits[-1]['dependencies']) - skipped} packages and skipped {skipped}")
        else:
            say(f"{service} failed: {done.stderr.strip().rpartition(chr(10))[2]}")
    known = {
        f"{one['name']} {one['version']}: {known['id']}, fixed in {', '.join(known['fix_versions']) or 'no version'}"
        for audit in audits
        for one in audit["dependencies"]
        for known in one.get("vulns", ())
    }
    unasked = find_unchecked(audits)
    say(*sorted(known))
    if unasked:
        say(f"NOT AUDITED: no service checked {len(unasked)}: {', '.join(sorted(unasked))}")
    elif not known:
        say("no known vulnerabilities")
    return 1 if known else UNKNOWN if unasked else 0


class Way(NamedTuple):
    """The conditions of a build."""

    place: Path
    moment: int
    umask: int
    of_tree: bool


def build_copy(python: Path, source: Path, way: Way, epoch: str | None) -> dict[str, str]:
    """Build a copy of the source tree; return the hash of each built file."""
    tree, out = way.place / "tree", way.place / "out"
    shutil.copytree(source, tree)
    for path in tree.rglob("*"):
        path.chmod(path.stat().st_mode & ~way.umask)
        os.utime(path, (way.moment, way.moment))
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    environment |= {} if epoch is None else {"SOURCE_DATE_EPOCH": epoch}
    command = [str(python), "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)]
    command += ["--wheel", "--sdist"] if way.of_tree else []
    done = subprocess.run(command, env=environment, umask=way.umask, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


def find_differences(python: Path, directory: Path) -> Iterator[str]:
    """Build under different conditions, with and without SOURCE_DATE_EPOCH; yield a line for each file that differs."""
    source = directory / "source"
    source.mkdir()
    for name in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:  # the files that a build uses
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", ".?*_cache", ".hypothesis"))
        else:
            shutil.copy(ROOT / name, source / name)
    for epoch in (None, "1600000000"):
        one = Way(directory / f"one-{epoch}", 1_500_000_000, umask=0o022, of_tree=True)
        other = Way(directory / f"some-{epoch}" / "where else", 1_700_000_001, umask=0o077, of_tree=False)
        first_build, second_build = build_copy(python, source, one, epoch), build_copy(python, source, other, epoch)
        yield from (
            f"{name}, SOURCE_DATE_EPOCH {epoch}: {first_build.get(name)} and {second_build.get(name)}"
            for name in first_build | second_build
            if first_build.get(name) != second_build.get(name)
        )


def write_lock(directory: Path) -> None:
    """Update the list of locked versions, and the versions in the pre-commit hooks."""
    tools = programs(directory / "tools", INSTALLER)
    options = ("--quiet", "--universal", "--python-version=3.11", "--generate-hashes", "--upgrade")
    # If only a package is pinned and not its extras, pip looks for the newest version with the extra, and has no hash of it.
    bare = ("--no-strip-extras", "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links")
    compiler = (tools / "uv", "pip", "compile", *options, *bare)
    groups = [option for group in GROUPS for option in ("--group", group)]
    run(*compiler, "--all-extras", *groups, "--output-file", LOCKED, "pyproject.toml")
    needed = directory / "needed.in"
    needed.write_text("".join(f"{name}\n" for name in OF_USER), encoding="utf-8")
    run(*compiler, "--extra", "cli", "--constraint", LOCKED, "--output-file", LOCKED_USER, "pyproject.toml", needed)
    run(*compiler, "--constraint", LOCKED, "--output-file", LOCKED_RELEASE, "--group", "release")
    versions = locked_versions(LOCKED.read_text(encoding="utf-8"))
    HOOKS.write_text(update_hooks(HOOKS.read_text(encoding="utf-8"), versions), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=["floors", "newest", "audit", "wheel", "lock"])
    parser.add_argument("--whole", action="store_true", help="run all tests (floors, newest)")
    command_options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        match command_options.what:
            case "floors" | "newest":
                lowest = floors(PYPROJECT["project"]) if command_options.what == "floors" else None
                run_tests_against(directory, lowest, whole=command_options.whole)
            case "audit":
                return audit_locked(directory)
            case "wheel":
                tools = programs(directory / "tools", INSTALLER)
                run(tools / "uv", "pip", "install", "--quiet", "--python", tools / "python", "--require-hashes", "-r", LOCKED)
                found = list(find_differences(tools / "python", directory))
                say(*found or ["wheel and sdist are the same in all builds"])
                return 1 if found else 0
            case _:
                write_lock(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
