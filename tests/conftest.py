"""Settings and fixtures of all tests: both event loops, the installed package, and the command with a service."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from support.cli import Served, Shell

    from outreach_async.fake import FakeService

pytest_plugins = ["outreach_async.pytest_plugin", "support.tiers", "support.systems"]
collect_ignore = ["user_project"]  # its suite runs in a separate environment

# Processes started by tests import the installed package, as the tests do, even if their working directory is the source tree.
# `PYTHONPATH` makes the modules of the tests available to their scripts.
os.environ["PYTHONSAFEPATH"] = "1"
TESTS = Path(__file__).parent
os.environ["PYTHONPATH"] = os.pathsep.join(
    dict.fromkeys([str(TESTS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))])
)

# Some tests send SIGINT. Processes that a shell starts in the background ignore it by default.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tests start hundreds of programs. Cached bytecode saves all but the first from compiling modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Results do not depend on chance or on the load of the machine: every run tries the same examples.
settings.register_profile(
    "outreach_async", deadline=None, max_examples=8, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("outreach_async")
settings.register_profile("thorough", settings.get_profile("outreach_async"), max_examples=20)  # loaded by support/tiers.py
# For finding new failures: `pytest -n auto --hypothesis-profile=search`.
settings.register_profile("search", settings.get_profile("outreach_async"), max_examples=300, derandomize=False)


LONG = (
    "project/test_docs.py",
    "parts/test_dask.py",
    "project/test_api_pages.py",
    "store/test_object_journal.py",
    "parts/test_dask_faults.py",
    "project/test_user_project.py",
    "store/test_crashes.py",
    "parts/test_worker_kills.py",
)
"""The files with the slowest tests. Parallel workers start with them, so that none is left with a slow file at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the slowest files to the front."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.relative_to(TESTS).as_posix(), len(places)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use one worker for each processor of this process. The default of pytest-xdist is the number of physical cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Disable the garbage collector during collection. It would find little to free, and take a quarter of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Exclude the thousands of collected tests from garbage collection."""
    # Also remove the options of this run, such as `--cov`, from the environment, so that pytest runs started by tests do not use
    # them. Workers have already read them.
    os.environ.pop("PYTEST_ADDOPTS", None)
    # At its first property, Hypothesis registers its random generator, and warns if nothing seems to refer to it. Frozen objects
    # are not found as referrers, so on Python 3.14, the first property of each process would fail after `gc.freeze`.
    given(st.none())(lambda _: None)()
    gc.collect()
    gc.freeze()


@pytest.fixture(params=[pytest.param(("asyncio", {"debug": False}), id="asyncio"), pytest.param(("trio", {}), id="trio")])
def anyio_backend(request: pytest.FixtureRequest) -> Any:
    """Run each async test on asyncio and on trio."""
    # A shared virtual clock would make results depend on the tests before: sums of times differ in their last digit.
    return request.param() if callable(request.param) else request.param


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    """Return the command, in an environment in which its variables are not set."""
    from support.cli import ENVIRONMENT, Shell  # imported here because most tests do not need it

    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    return Shell(capsys)


@pytest.fixture
def service() -> FakeService:
    """Return a small service."""
    from support.cli import small_service

    return small_service()


@pytest.fixture
def server_options(service: FakeService, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, ...]]:
    """Serve the small service, and yield the command-line options that connect to it. The key is in the environment."""
    from support.cli import KEY, connection_options, serve_in_thread

    del shell  # the fixture clears the environment
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    with serve_in_thread(service) as url:
        yield connection_options(url)[:4]


@pytest.fixture
def served(capsys: pytest.CaptureFixture[str], service: FakeService, server_options: tuple[str, ...], tmp_path: Path) -> Served:
    """Return the command with the small service, which is served."""
    from support.cli import Served

    return Served(capsys, service, server_options, tmp_path)
