"""The fixture of the conformance suite, and its messages before and after the run."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from outreach_async.conformance.options import read_options
from outreach_async.errors import OutreachError

if TYPE_CHECKING:
    from outreach_async.conformance.calibration import SuiteResult

_RESULT_KEY: pytest.StashKey[SuiteResult] = pytest.StashKey()
_XDIST_MESSAGE = "outreach_async.conformance: run without -n; the service is measured once, in one process"


def pytest_collection_finish(session: pytest.Session) -> None:
    """Print what the run will do, or why it cannot start, before the first request."""
    config = session.config
    if config.option.collectonly or hasattr(config, "workerinput"):
        return
    from outreach_async.conformance.calibration import describe_run

    try:
        said = describe_run(read_options(config).build_site(os.environ))
    except OutreachError as error:
        pytest.exit(f"outreach_async.conformance: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    print(f"outreach conformance: {said}")  # noqa: T201 - shown before the first request


@pytest.fixture(scope="session")
def result(request: pytest.FixtureRequest) -> SuiteResult:
    """Measure the service once per run."""
    if hasattr(request.config, "workerinput"):
        pytest.fail(_XDIST_MESSAGE, pytrace=False)
    from outreach_async.conformance.calibration import run_suite

    order = read_options(request.config)
    return request.config.stash.setdefault(_RESULT_KEY, run_suite(order, order.build_site(os.environ)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print how each knob was observed, or why not, and which knobs have changed."""
    found = config.stash.get(_RESULT_KEY, None)
    if found is None:
        return
    known = found.calibration
    terminalreporter.section("outreach conformance: what the interface leaves open")
    for knob, reason in known.reasons.items():
        reading = known.observed.get(knob, " or ".join(map(repr, known.undecided.get(knob, ()))) or "not observed")
        terminalreporter.write_line(f"{knob}: {reading}  ({reason})")
    for drift in found.drifts:
        terminalreporter.write_line(f"drift: {drift}", yellow=True)
