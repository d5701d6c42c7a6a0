"""One test per stated rule, and one that compares what was measured with an earlier run."""

from __future__ import annotations

import pytest

from outreach_async.conformance.calibration import SuiteResult
from outreach_async.conformance.options import read_options
from outreach_async.conformance.rule import StatedRule
from outreach_async.conformance.rules import RULES, find_breaches


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_service_keeps_the_rule(rule: StatedRule, result: SuiteResult) -> None:
    """Check one rule."""
    if rule.writes and not result.measurement.site.writes:
        pytest.skip(f"{rule.id}: creating contacts was not allowed")
    found = find_breaches(rule, result.measurement)
    if found is None:
        pytest.skip(f"{rule.id}: nothing to check was observed")
    if found:
        pytest.fail("\n".join(map(str, found)), pytrace=False)


def test_the_service_behaves_as_it_did_before(result: SuiteResult, pytestconfig: pytest.Config) -> None:
    """Compare with the file, and write it unless it differs."""
    order, mode = read_options(pytestconfig), pytestconfig.getoption("--outreach-drift")
    if not result.measurement.survey.is_readable:
        pytest.fail("nothing in the workspace could be read, so nothing was measured", pytrace=False)
    drifted = "\n".join(map(str, result.drifts))
    if not drifted or mode == "accept":
        result.save(order.record, order.url)
    elif mode == "fail":
        pytest.fail(
            f"the service no longer matches {order.record}; to accept this, pass --outreach-drift=accept:\n{drifted}",
            pytrace=False,
        )
