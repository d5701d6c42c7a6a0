"""A user's project in a separate environment: it has the wheel and its dependencies, and nothing of this source tree."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import attrs
import pytest
from support.environments import create_environment, install
from tools.supply import OF_USER

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]
TOOLS = Path(sys.executable).parent
PROJECT = ROOT / "tests" / "user_project"
PEOPLE = 2000
KILLED = -signal.SIGKILL if sys.platform != "win32" else 1


@attrs.frozen
class User:
    """A user's copy of the project and the programs of its environment."""

    project: Path
    programs: Path

    def started(self, *command: str, **variables: str) -> subprocess.Popen[str]:
        """Start a program with only this environment."""
        path = os.pathsep.join((str(self.programs), os.defpath))
        system = {name: os.environ[name] for name in ("HOME", "SYSTEMROOT", "TMPDIR") if name in os.environ}
        return subprocess.Popen(
            [str(self.programs / command[0]), *command[1:]],
            cwd=self.project,
            env={**system, "PATH": path, "PYTHONWARNINGS": "error", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, **variables: str) -> tuple[int, str, str]:
        """Run a program to its end."""
        with self.started(*command, **variables) as process:
            out, err = process.communicate(timeout=600)
        return process.returncode, out, err


@attrs.frozen
class Served:
    """The in-memory service, served from the user's environment."""

    url: str
    variables: dict[str, str]
    campaign: str

    def contacts(self) -> list[dict[str, Any]]:
        with closing(urlopen(f"{self.url}/_fake/world")) as answer:  # noqa: S310 - a service of this test
            workspaces = {space["id"]: space for space in json.load(answer)["workspaces"]}
        found: list[dict[str, Any]] = workspaces[self.variables["OUTREACH_WORKSPACE"]]["contacts"]
        return found


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> User:
    """Build the wheel and install it with the dependencies of the project."""
    home = tmp_path_factory.mktemp("user")
    build = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(home), str(ROOT))
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = home.glob("*.whl")
    programs = create_environment(home / "venv")
    install(programs, f"{wheel}[cli]", *OF_USER)
    shutil.copytree(PROJECT, home / "project", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    return User(home / "project", programs)


@pytest.fixture
def served(user: User) -> Iterator[Served]:
    with user.started("outreach-async", "serve", "--json") as process:
        assert process.stdout is not None
        ids = json.loads(process.stdout.readline())
        variables = {f"OUTREACH_{name.upper()}": ids[name] for name in ("base_url", "owner_key", "workspace")}
        yield Served(ids["base_url"], variables, ids["campaign"])
        process.terminate()
        process.communicate()


@pytest.fixture
def crm(tmp_path: Path) -> Path:
    rows = ((number, f"person{number}@company.example", "First", "Last", "Company", "gold") for number in range(PEOPLE))
    with closing(sqlite3.connect(tmp_path / "crm.db")) as connection, connection:
        connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, email, first, last, company, plan)")
        connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)", rows)
    return tmp_path / "crm.db"


def test_nothing_can_be_imported_from_the_source_tree(user: User) -> None:
    code = "import outreach_async, importlib.util\nprint(outreach_async.__file__)\nprint(importlib.util.find_spec('benchmarks'))"
    status, out, err = user.run("python", "-c", code)
    home, benchmarks = out.splitlines()
    assert (status, err, benchmarks) == (0, "", "None")
    assert user.programs.parent in Path(home).parents


@pytest.mark.nightly
def test_the_bulk_app_survives_a_kill_and_creates_every_contact_once(
    user: User, served: Served, crm: Path, tmp_path: Path
) -> None:
    command = ("python", "-m", "crm_sync.sync", str(crm), "--journal", str(tmp_path / "run.db"), "--campaign", served.campaign)
    before = len(served.contacts())
    with user.started(*command, **served.variables) as process:
        assert process.stderr is not None
        assert re.match(rf"\d+ of {PEOPLE}, \d+/s, running, \d+ s left\n", process.stderr.readline())
        process.kill()
        process.communicate()
    assert process.returncode == KILLED
    started_count = len(served.contacts()) - before
    assert 0 < started_count < PEOPLE
    status, out, err = user.run(*command, **served.variables)
    assert out, err
    *doubts, last = out.splitlines()
    report = json.loads(last)
    assert len(doubts) == report["uncertain"] < PEOPLE
    assert (status, report["rows"], sum(report["outcomes"].values())) == (3 if report["uncertain"] else 0, PEOPLE, PEOPLE), err
    assert report["outcomes"]["added"] + report["outcomes"]["updated_missing_fields"] == PEOPLE
    assert 0 < report["metrics"]["status 201"] <= PEOPLE - started_count
    assert report["states"] == ["running", "finished"]
    emails = [contact["email"] for contact in served.contacts()[before:]]
    assert sorted(emails) == sorted(f"person{number}@company.example" for number in range(PEOPLE))


def test_the_bulk_app_says_what_to_fix(user: User, served: Served, crm: Path, tmp_path: Path) -> None:
    command = ("python", "-m", "crm_sync.sync", str(crm), "--journal", str(tmp_path / "run.db"))
    status, _, err = user.run(*command, "--campaign", "camp_gone", **served.variables)
    assert status == 1
    assert "Mend this, then run it again: create_contact: the service answered 404" in err
    status, _, err = user.run(*command, **{**served.variables, "OUTREACH_WORKSPACE": "camp_1"})
    assert status == 1
    assert err.startswith("Nothing was done: workspace: expected a string starting with 'space_'")
    assert err.count("\n") == 1


@pytest.mark.nightly
def test_the_audit_script_writes_its_reports_and_compares_with_the_last(user: User, served: Served, tmp_path: Path) -> None:
    options = ("--folder", str(tmp_path), "--policy", "policy.toml", "space_demo", "space_demo_eu")
    command = ("python", "-m", "crm_sync.health", *options)
    status, out, err = user.run(*command, **served.variables)
    *urgent, summary = out.splitlines()
    assert (status, err) == (1, "")
    assert summary.endswith("unreadable: none")
    assert all(re.fullmatch(r"space_demo(_eu)?\t\S*\tOA\d+\t.+", line) for line in urgent)
    assert len(json.loads((tmp_path / "health.json").read_text(encoding="utf-8"))["workspaces"]) == 2
    assert "</html>" in (tmp_path / "health.html").read_text(encoding="utf-8")
    status, out, err = user.run(*command, "space_gone", **served.variables)
    assert (status, err) == (3, "")
    assert "unreadable: space_gone" in out
    assert "1 new, " in out


@pytest.mark.nightly
def test_the_test_suite_of_the_project_passes(user: User) -> None:
    status, out, err = user.run("python", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider")
    assert (status, err) == (0, ""), out
    assert int(re.findall(r"(\d+) passed", out)[0]) > 60


@pytest.mark.nightly
def test_the_test_suite_of_the_project_fails_if_contacts_are_lost(user: User) -> None:
    skipping = user.project / "crm_sync" / "people.py"
    text = skipping.read_text(encoding="utf-8")
    try:
        skipping.write_text(text.replace("ORDER BY id", "WHERE id <> 1 ORDER BY id"), encoding="utf-8")
        status, out, _ = user.run("python", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "nobody_is_lost")
    finally:
        skipping.write_text(text, encoding="utf-8")
    assert status == 1
    assert "row00" in out


@pytest.mark.nightly
@pytest.mark.parametrize(
    "command",
    [["mypy", "--strict", "--cache-dir", "../mypy_cache", "--python-executable"], ["pyright", "--pythonpath"]],
    ids=["mypy", "pyright"],
)
def test_the_type_checkers_accept_the_project(user: User, command: list[str]) -> None:
    environment = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    whole = [str(TOOLS / command[0]), *command[1:], str(user.programs / "python")]
    done = subprocess.run(whole, cwd=user.project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.nightly
def test_type_checking_a_user_reads_no_backend_and_no_event_loop(user: User, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import outreach_async\nfrom outreach_async import OutreachClient\n", encoding="utf-8")
    environment = ("--python-executable", str(user.programs / "python"), "--cache-dir", os.devnull)
    command = [str(TOOLS / "mypy"), "--strict", "--verbose", *environment, str(program)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    read = re.findall(r"^LOG:  Parsing .* \((\S+)\)$", done.stderr, re.MULTILINE)
    assert "outreach_async.client" in read
    assert not {"aiohttp", "asyncio", "httpcore", "httpx", "httpx2", "rich", "trio"}.intersection(read)
    assert len(read) < 350  # both are slow without a cache
