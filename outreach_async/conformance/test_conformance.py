"""Test each testable rule in the service's API documentation, and compare the measured behaviour with an earlier run."""

from __future__ import annotations

import pytest

from outreach_async.conformance._calibration import SuiteResult
from outreach_async.conformance._rules import RULES, StatedRule, find_breaches


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_service_keeps_the_rule(rule: StatedRule, result: SuiteResult) -> None:
    """Check that the service follows a rule in its API documentation."""
    if rule.writes and not result.measurement.access.writes:
        pytest.skip(f"{rule.id}: creating contacts was not allowed")
    breaches = find_breaches(rule, result.measurement)
    if breaches is None:
        pytest.skip(f"{rule.id}: the responses contain nothing to check")
    if breaches:
        pytest.fail("\n".join(map(str, breaches)), pytrace=False)


def test_the_service_behaves_as_it_did_before(result: SuiteResult, pytestconfig: pytest.Config) -> None:
    """Compare the measured behaviour with the behaviour file."""
    # If they agree, new findings are added to the file. If they differ, the file is updated only with `--outreach-drift=accept`.
    mode = pytestconfig.getoption("--outreach-drift")
    if not any(exchange.payload for exchange in result.measurement.survey.list_exchanges):
        message = "nothing in the workspace could be read, so nothing was measured; check the URL, workspace id and headers"
        pytest.fail(message, pytrace=False)
    drifts = "\n".join(result.drifts)
    if not drifts or mode == "accept":
        result.save()
    elif mode == "fail":
        message = f"the service no longer matches {result.record}; to accept the changes, pass --outreach-drift=accept:\n{drifts}"
        pytest.fail(message, pytrace=False)
