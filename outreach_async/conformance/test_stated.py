"""The stated rules, one test each: a failure names the rule, what the interface says, and what the service answered."""

from __future__ import annotations

import pytest

from outreach_async.conformance.rule import Rule
from outreach_async.conformance.session import Result
from outreach_async.conformance.stated import RULES, breaches


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_service_keeps_the_rule(rule: Rule, result: Result) -> None:
    """Judge one rule."""
    if rule.writes and not result.measured.site.writes:
        pytest.skip(f"{rule.id}: creating contacts was not allowed")
    found = breaches(rule, result.measured)
    if found is None:
        pytest.skip(f"{rule.id}: nothing was seen that it is about")
    if found:
        pytest.fail("\n".join(map(str, found)), pytrace=False)
