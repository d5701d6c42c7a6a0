"""Startup: type checking a program, importing the library, and creating clients."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx

import outreach_async.resources  # noqa: F401 - otherwise, the first client would import it
from benchmarks.groups.rounds import Bench, present
from benchmarks.measuring import Figures, run, spending
from benchmarks.results import Table
from benchmarks.worker import Worker
from outreach_async import OutreachClient, RetryPolicy, TransportError

_EMPTY: Final = "an empty interpreter"
_IMPORTS: Final = {
    _EMPTY: ("", "pass"),
    "import httpx": ("", "import httpx"),
    "import httpx2": ("httpx2", "import httpx2"),
    "import aiohttp": ("aiohttp", "import aiohttp"),
    "import outreach_async": ("", "import outreach_async"),
    "from outreach_async import OutreachClient": ("", "from outreach_async import OutreachClient"),
    "from outreach_async.fake import FakeService": ("", "from outreach_async.fake import FakeService"),
}
_BLANK: Final = "an empty file"
_CHECKED: Final = {
    _BLANK: "",
    "import httpx": "import httpx",
    "import outreach_async": "import outreach_async",
    "from outreach_async import OutreachClient": "from outreach_async import OutreachClient",
    "from outreach_async.fake import FakeService": "from outreach_async.fake import FakeService",
}
DRY_RUN: Final = "outreach-async import --dry-run, ten rows"
_ROUNDS: Final = 3
"""Factor for the number of rounds: imports are short."""

_URL: Final = "https://127.0.0.1:9"
"""A URL where nothing listens."""


def _cpu_of(*arguments: str) -> float:
    """Return the CPU time of a new interpreter with these arguments, in milliseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - this interpreter
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


_NO_FIXTURE: Final = "no fixture"
RESPX: Final = "respx_mock, and a client of httpx without certificates, which take 20 ms"
FIXTURE: Final = "outreach_client"
_TESTS: Final = {
    _NO_FIXTURE: "async def test(n):\n    pass",
    RESPX: """async def test(n, respx_mock):
    respx_mock.post("https://api.example/contacts").respond(201, json={"status": "added", "contact_id": "contact_1"})
    async with httpx.AsyncClient(verify=False) as client:
        assert (await client.post("https://api.example/contacts", json={"email": "ann@a.example"})).json()["status"] == "added"
""",
    FIXTURE: """async def test(n, outreach_client):
    assert (await outreach_client.contacts.create(email="ann@a.example")).status == "added"
""",
}
_TEST_COUNT: Final = 500


def fixtures(bench: Bench) -> list[Table]:
    """Measure tests of pytest that each create a contact, in a new process of pytest."""
    table = Table("A test that creates a contact, with pytest", "CPU, ms a test over an empty one", (RESPX,))
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(bench.rounds):
            found = {}
            for row, test in _TESTS.items():
                path = Path(folder, "test_it.py")
                head = f'import httpx, pytest\n\n@pytest.mark.anyio\n@pytest.mark.parametrize("n", range({_TEST_COUNT}))\n'
                path.write_text(head + test, encoding="utf-8")
                options = ("-q", "-p", "no:cacheprovider", "--rootdir", folder, "-c", os.devnull)
                found[row] = _cpu_of("-m", "pytest", *options, str(path)) / _TEST_COUNT
            for row in (RESPX, FIXTURE):
                table.add(row, "CPU", found[row] - found[_NO_FIXTURE])
    return [table]


def imports(bench: Bench) -> list[Table]:
    """Measure imports, each in a new interpreter."""
    table = Table("Importing", "CPU, ms over an empty interpreter", ("import httpx",))
    rows = present({row: needs for row, (needs, _) in _IMPORTS.items()})
    for _ in range(_ROUNDS * bench.rounds):
        found = {row: _cpu_of("-c", _IMPORTS[row][1]) for row in rows}
        for row in rows[1:]:
            table.add(row, "CPU", found[row] - found[_EMPTY])
    return [table]


def commands(bench: Bench) -> list[Table]:
    """Measure the start of the command, each time in a new interpreter."""
    table = Table("Starting the command", "CPU, ms", ("import httpx",))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ten.csv"
        path.write_text("email,city\n" + "".join(f"user{number}@company.example,Lyon\n" for number in range(10)))
        lines = ["--version", "--help", *(f"{name} --help" for name in ("import", "audit", "campaigns", "config show", "mcp"))]
        runs = {f"outreach-async {line}": ("-m", "outreach_async", *line.split()) for line in lines}
        runs |= {"import httpx": ("-c", "import httpx"), DRY_RUN: ("-m", "outreach_async", "import", str(path), "--dry-run")}
        for _ in range(_ROUNDS * bench.rounds):
            for row, arguments in runs.items():
                table.add(row, "CPU", _cpu_of(*arguments))
    return [table]


def checks(bench: Bench) -> list[Table]:
    """Measure `mypy --strict` without a cache on programs of one line."""
    table = Table("Checking types by mypy, without a cache", "CPU, ms over an empty file", ("import httpx",))
    rows = present(dict.fromkeys(_CHECKED, "mypy"))
    with tempfile.TemporaryDirectory() as directory:
        program = Path(directory) / "program.py"
        for _ in range(bench.rounds if rows else 0):
            found = {row: _checked(program, _CHECKED[row]) for row in rows}
            for row in rows[1:]:
                table.add(row, "CPU", found[row] - found[_BLANK])
    return [table]


def _checked(program: Path, line: str) -> float:
    program.write_text(f"{line}\n", encoding="utf-8")
    return _cpu_of("-m", "mypy", "--strict", "--config-file=", f"--cache-dir={os.devnull}", str(program))


async def _refused(client: OutreachClient) -> None:
    with suppress(TransportError):
        await client.request("GET", "/")


async def _ours() -> Figures:
    took: Figures = {}
    with _noted(took, "first"):
        client = OutreachClient(_URL, owner_key="key_1", workspace="space_1", retry=RetryPolicy(attempts=1))
    with _noted(took, "second"):
        OutreachClient(_URL, owner_key="key_1", workspace="space_1")
    with _noted(took, "with_options"):
        client.with_options(workspace="space_2")
    async with client:
        with _noted(took, "first request"):
            await _refused(client)
        with _noted(took, "64 requests at once"):
            await asyncio.gather(*(_refused(client) for _ in range(64)))
        took["SSL contexts"] = _contexts()
    return took


async def _theirs() -> Figures:
    took: Figures = {}
    with _noted(took, "first"):
        client = httpx.AsyncClient(base_url=_URL)
    with _noted(took, "second"):
        httpx.AsyncClient(base_url=_URL)
    async with client:
        with _noted(took, "first request"), suppress(httpx.ConnectError):
            await client.get("/")
        took["SSL contexts"] = _contexts()
    return took


@contextmanager
def _noted(took: Figures, what: str) -> Iterator[None]:
    with spending() as spent:
        yield
    took[what] = 1000 * spent.cpu


def _contexts() -> int:
    return sum(isinstance(kept, ssl.SSLContext) for kept in gc.get_objects())


def measure_clients(row: str) -> Figures:
    """Create clients in a new process, and send requests to a port where nothing listens."""
    return run(_ours() if row == "OutreachClient" else _theirs())


def clients(bench: Bench) -> list[Table]:
    """Measure the creation of clients, each time in a new process with the modules imported."""
    table = Table("Making clients of an https URL", "CPU, ms")
    for _ in range(bench.rounds):
        for row in ("httpx.AsyncClient", "OutreachClient"):
            with Worker() as worker:
                for column, figure in worker.call(measure_clients, row=row).items():
                    table.add(row, column, figure)
    table.notes.append(
        "Connections are refused before TLS starts, so the times show when certificates are loaded. Contexts are counted."
    )
    return [table]
