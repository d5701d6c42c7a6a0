"""Which tests run, how long a test may run, and how much CPU it may use. A pytest plugin of these tests.

The default tier is every test without the mark `thorough` or `nightly`. If a test has several parameter sets and runs on several
event loops, each set runs on one loop, in turn; its other runs are nightly. Every test runs if the command line names files or
tests, or has `-m ''`, and then with more Hypothesis examples.
"""

from __future__ import annotations

import os
import pkgutil
import re
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator
from importlib import import_module
from typing import Final

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import given, settings
from hypothesis import strategies as st

DEFAULT_TIER: Final = "not thorough and not nightly"
LONG_TIMEOUT: Final = 300
"""Time limit of thorough and nightly tests in seconds. `timeout` in pyproject.toml is the limit of other tests."""
YARDSTICK: Final = 0.014
"""CPU seconds of `yardstick` on the machine for which `--cpu-limit` is given, which collects all tests in 8.5 CPU seconds."""
_LOOP: Final = re.compile(r"(?:^|-)(asyncio|trio|uvloop)(?=-|$)")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cpu-limit", type=float, metavar="SECONDS", help="fail tests of the default tier that use more CPU")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.markexpr == DEFAULT_TIER and names_tests(config.args, config.option.keyword):
        config.option.markexpr = ""
    if config.option.markexpr != DEFAULT_TIER and not config.getoption("--hypothesis-profile"):
        settings.load_profile("thorough")
    if limit := config.getoption("--cpu-limit"):
        config.pluginmanager.register(CpuLimit(limit))


def names_tests(arguments: Iterable[str], keyword: str) -> bool:
    """Return whether a command line selects files or tests, and not only folders."""
    return bool(keyword) or any("::" in argument or argument.endswith(".py") for argument in arguments)


@pytest.hookimpl(tryfirst=True)  # before pytest selects by mark
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    by_id = {item.nodeid: item for item in items}
    for nodeid in repeated_on_other_loops(by_id):
        by_id[nodeid].add_marker(pytest.mark.nightly)
    for item in items:
        if is_long(item) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))


def is_long(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in ("thorough", "nightly"))


def repeated_on_other_loops(nodeids: Iterable[str]) -> Iterator[str]:
    """Yield the tests to leave out so that each function runs on every loop, and each of its parameter sets on one, in turn."""
    # A function with fewer parameter sets than event loops runs each set on every loop.
    functions: dict[str, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for nodeid in nodeids:
        function, _, parameters = nodeid.removesuffix("]").partition("[")
        if loop := _LOOP.search(parameters):
            functions[function][_LOOP.sub("", parameters, count=1)][loop[1]] = nodeid
    for sets in functions.values():
        loops = sorted({loop for found in sets.values() for loop in found})
        for number, found in enumerate(sets.values() if len(sets) >= len(loops) else ()):
            turn = number % len(loops)
            kept = next(loop for loop in loops[turn:] + loops[:turn] if loop in found)
            yield from (nodeid for loop, nodeid in found.items() if loop != kept)


class CpuLimit:
    """Fails tests that use more CPU than the limit, which is scaled to the speed of the machine."""

    # The CPU of a test includes its fixtures and its child processes, but not fixtures of a wider scope. A test over the limit
    # runs again, and the lower figure counts: the first run may have paid for an import, for a child process that an earlier test
    # left behind, or for the slowest moment of a shared machine.

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._started = 0.0

    def pytest_collection_finish(self) -> None:
        # The first test that needs a module would otherwise pay for its import, and the first one with a text for its characters.
        import outreach_async

        for module in pkgutil.walk_packages(outreach_async.__path__, "outreach_async."):
            if not module.name.endswith(("__main__", "test_conformance")):
                import_module(module.name)
        given(st.text())(lambda _text: None)()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Function, nextitem: pytest.Item | None) -> Generator[None, object, object]:
        self._started = used_cpu()
        result = yield
        if not is_long(item) and self._excess():
            item._initrequest()
            self._started = used_cpu()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            if excess := self._excess():
                reports[-1].outcome = "failed"
                reports[-1].longrepr = f"{item.nodeid} {excess}; make it cheaper, or mark it `thorough`"
            for report in reports:
                if report.failed:
                    item.ihook.pytest_runtest_logreport(report=report)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        before = used_cpu()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._started += used_cpu() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, object, object]:
        before = used_cpu()
        try:
            return (yield)
        finally:
            if nextitem is None or nextitem.path != item.path:  # this also ends the fixtures of the module
                self._started += used_cpu() - before

    def _excess(self) -> str:
        """Return by how much the last run was over the limit, or nothing."""
        used = used_cpu() - self._started
        if used <= self._limit:
            return ""
        # The speed of a shared machine changes within milliseconds. The test may have run in the slowest of these moments.
        allowed = self._limit * max(1.0, *(yardstick() / YARDSTICK for _ in range(5)))
        return f"used {used:.2f} s of CPU, and {allowed:.2f} s are allowed on this machine" if used > allowed else ""


def used_cpu() -> float:
    """Return the CPU seconds that this process and its ended child processes have used."""
    return time.process_time() + sum(os.times()[2:4])


def yardstick() -> float:
    """Return the CPU seconds of a fixed piece of work, which depend on the machine, its load and the coverage tracer."""
    from outreach_async._plumbing import order_key

    before = used_cpu()
    for number in range(2_000):
        order_key(f'"User {number}"+tag@Exämple.example')
    return used_cpu() - before
