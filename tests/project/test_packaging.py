"""Built packages install and run: the sdist builds the wheel, and the wheel works without any extra."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from support.environments import create_environment, install

import outreach_async

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parents[2]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command without access to the modules of the tests."""
    unwanted = {"PYTHONPATH", "PYTHONDONTWRITEBYTECODE"}  # later programs reuse the compiled files of the first one
    environment = {name: value for name, value in os.environ.items() if name not in unwanted}
    arguments = [str(part) for part in command]
    return subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the sdist, and from it the wheel."""
    out = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(list(out.glob("*.tar.gz"))) == 1
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel without extras in a separate environment; return its folder of programs."""
    programs = create_environment(tmp_path_factory.mktemp("bare") / "venv")
    install(programs, wheel)
    return programs


def python(bare: Path, code: str) -> subprocess.CompletedProcess[str]:
    return run(bare / "python", "-W", "error", "-c", code, cwd=bare)


def test_the_tested_package_is_the_installed_wheel_unless_editable() -> None:
    installed = distribution("outreach_async")
    editable = json.loads(installed.read_text("direct_url.json") or "{}").get("dir_info", {}).get("editable")
    where = ROOT if editable else Path(str(installed.locate_file(""))).resolve()
    tested = Path(outreach_async.__file__).resolve().parent.parent
    assert tested == where, "run pytest, not python -m pytest, which puts the source tree before what is installed"


@pytest.mark.parametrize(
    "command",
    [
        ("-c", "import outreach_async; print('Origin:', outreach_async.__file__)"),
        ("-m", "inspect", "--details", "outreach_async"),
    ],
    ids=["code", "module"],
)
def test_a_subprocess_in_the_source_tree_imports_the_same_package(command: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True)
    assert f"Origin: {outreach_async.__file__}\n" in done.stdout


def test_the_wheel_contains_only_the_package_its_types_and_its_data(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "outreach_async/py.typed" in names
    assert {f"outreach_async/fake/data/{table}.tsv" for table in ("countries", "names", "states", "timezones")} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"outreach_async"}


def test_the_links_of_the_published_readme_are_absolute(wheel: Path) -> None:
    text = (
        next(path for path in zipfile.Path(wheel).iterdir() if path.name.endswith(".dist-info"))
        .joinpath("METADATA")
        .read_text("utf-8")
    )
    links = re.findall(r"\](?:\(|: )([^)\s]+)", text.partition("\n\n")[2])
    assert [link for link in links if not link.startswith("https://")] == []
    for name, address in {
        "the client": "outreach-async.github.io/outreach_async/outreach_async.html",
        "resume after a kill": "outreach-async.github.io/outreach_async/outreach_async/bulk.html#journal-and-resume",
        "Examples": "github.com/outreach-async/outreach_async/blob/main/tests/examples",
        "CHANGELOG": "github.com/outreach-async/outreach_async/blob/main/CHANGELOG.md",
    }.items():
        assert f"[{name}](https://{address})" in text
    assert (
        "\n[figure]: https://raw.githubusercontent.com/outreach-async/outreach_async/main/benchmarks/results/results.svg" in text
    )


def test_the_wheel_stays_small(wheel: Path) -> None:
    # Data that can be generated, such as the contacts of the demo, is not shipped. Nearly all of the wheel is Python code.
    files = [each for each in zipfile.ZipFile(wheel).infolist() if not each.filename.endswith((".py", "RECORD"))]
    assert wheel.stat().st_size < 1_100_000
    assert sum(each.compress_size for each in files) < 90_000
    assert max(each.file_size for each in files) < 40_000


def test_the_wheel_registers_the_pytest_plugin_and_works_without_pytest(wheel: Path, bare: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (named,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert "[pytest11]\noutreach_async = outreach_async.pytest_plugin\n" in archive.read(named).decode()
    done = python(bare, "from outreach_async.testing import pairwise\nprint(len(pairwise()) > 20)\nimport pytest")
    assert (done.stdout.strip(), "No module named 'pytest'" in done.stderr) == ("True", True), done.stderr


def test_the_client_and_the_fake_work_without_any_extra(bare: Path) -> None:
    done = python(
        bare,
        """
import anyio
from outreach_async import NewContact, OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.server import serve
from outreach_async.audit import audit

async def main():
    fake = FakeService()
    space = fake.add_workspace()
    fake.add_mailboxes(space, 3, spf=False)
    async with OutreachClient(transport=FakeTransport(fake), owner_key=fake.add_owner_key(space), workspace=space) as client:
        print((await client.contacts.create(NewContact("a@b.example"))).status)
        print((await audit(client, [space])).to_dict()["mailboxes"])
    async with serve(fake) as url, OutreachClient(url, workspace=space) as client:
        print(len(await client.workspaces.fields()))

anyio.run(main)
""",
    )
    assert (done.returncode, done.stdout.split()) == (0, ["added", "3", "36"]), done.stderr


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        ("AiohttpTransport('http://127.0.0.1:9')", "aiohttp"),
        ("HttpxTransport('http://127.0.0.1:9', family='httpx2')", "httpx2"),
        ("RedisRate('redis://127.0.0.1', key='k')", "redis"),
        ("import_module('outreach_async.otel')", "otel"),
    ],
)
def test_whatever_needs_an_extra_says_which_one_to_install(bare: Path, make: str, extra: str) -> None:
    code = f"""
import anyio
from importlib import import_module
from outreach_async import *

async def main():
    async with OutreachClient(transport={make}, workspace="space_1") as client:
        await client.workspaces.fields()

anyio.run(main)
"""
    done = python(bare, code)
    assert done.returncode == 1
    assert f"outreach_async[{extra}]" in done.stderr.splitlines()[-1]


def test_the_command_without_its_extra_says_which_one_to_install(bare: Path) -> None:
    done = run(bare / "outreach-async", "demo", cwd=bare)
    assert done.returncode == 2
    assert "outreach_async[cli]" in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_command_runs_from_the_wheel_with_its_extra(bare: Path, wheel: Path) -> None:
    install(bare, f"{wheel}[cli]")
    done = run(bare / "outreach-async", "audit", "--base-url", "fake:", "--json", cwd=bare)
    assert done.returncode in {0, 1}, done.stderr
    assert '"version": 1' in done.stdout.splitlines()[-1]
