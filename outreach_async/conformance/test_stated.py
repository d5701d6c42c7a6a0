"""One test per stated rule. A failure shows the rule, what the interface says, and the service's response."""

from __future__ import annotations

import pytest

from outreach_async.conformance.rule import Rule
from outreach_async.conformance.session import Result
from outreach_async.conformance.stated import RULES, breaches


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_service_keeps_the_rule(rule: Rule, result: Result) -> None:
    """Check one rule."""
    if rule.writes and not result.measured.site.writes:
        pytest.skip(f"{rule.id}: creating contacts was not allowed")
    found = breaches(rule, result.measured)
    if found is None:
        pytest.skip(f"{rule.id}: nothing to check was observed")
    if found:
        pytest.fail("\n".join(map(str, found)), pytrace=False)
