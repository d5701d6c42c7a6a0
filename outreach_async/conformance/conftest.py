"""Define the fixture of the conformance suite, and print messages before and after the run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from outreach_async.conformance._calibration import SuiteResult, build_access, describe_run, run_suite
from outreach_async.errors import OutreachError

_RESULT_KEY: pytest.StashKey[SuiteResult] = pytest.StashKey()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Before the first request, print a description of the run. If an option is invalid, exit with an error."""
    config = session.config
    if config.option.collectonly or hasattr(config, "workerinput"):
        return
    try:
        description = describe_run(build_access(config.option, os.environ))
    except OutreachError as error:
        pytest.exit(f"outreach_async.conformance: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    print(f"outreach conformance: {description}")  # noqa: T201 - shown before the first request


@pytest.fixture(scope="session")
def result(request: pytest.FixtureRequest) -> SuiteResult:
    """Measure the service once per run, and return the result. If the service never responds, exit with an error."""
    if hasattr(request.config, "workerinput"):
        message = "outreach_async.conformance: expected one process, got a pytest-xdist worker; run pytest without -n"
        pytest.fail(message, pytrace=False)
    options = request.config.option
    access = build_access(options, os.environ)
    return _keep_result(request.config, run_suite(options.outreach_live, Path(options.outreach_record), access))


def _keep_result(config: pytest.Config, measured: SuiteResult) -> SuiteResult:
    if measured.unreachable:
        pytest.exit(f"outreach_async.conformance: {measured.unreachable}", returncode=pytest.ExitCode.TESTS_FAILED)
    return config.stash.setdefault(_RESULT_KEY, measured)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print each knob with its measured value and an explanation. Then print the knobs that have changed since an earlier run."""
    result = config.stash.get(_RESULT_KEY, None)
    if result is None:
        return
    known = result.calibration
    terminalreporter.section("outreach conformance: rules that the API documentation leaves open")
    for knob, reason in known.reasons.items():
        value = known.observed.get(knob, " or ".join(map(repr, known.undecided.get(knob, ()))) or "not observed")
        terminalreporter.write_line(f"{knob}: {value}  ({reason})")
    for drift in result.drifts:
        terminalreporter.write_line(f"drift: {drift}", yellow=True)
