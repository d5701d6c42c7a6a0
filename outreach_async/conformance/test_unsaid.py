"""Write what was measured to the behaviour file, and compare it with an earlier run."""

from __future__ import annotations

import pytest

from outreach_async.conformance.options import order_of
from outreach_async.conformance.session import Result


def test_the_service_behaves_as_it_did_before(result: Result, pytestconfig: pytest.Config) -> None:
    """Compare with the file, and write it unless it differs."""
    order, mode = order_of(pytestconfig), pytestconfig.getoption("--outreach-drift")
    if not result.measured.survey.readable:
        pytest.fail("nothing in the workspace could be read, so nothing was measured", pytrace=False)
    drifted = "\n".join(map(str, result.drifts))
    if not drifted or mode == "accept":
        result.save(order.record, order.url)
    elif mode == "fail":
        pytest.fail(
            f"the service no longer matches {order.record}; to accept this, pass --outreach-drift=accept:\n{drifted}",
            pytrace=False,
        )
