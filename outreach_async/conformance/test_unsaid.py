"""What the interface leaves unsaid: measured, written to the behaviour file, and compared with what an earlier run wrote."""

from __future__ import annotations

import pytest

from outreach_async.conformance.options import order_of
from outreach_async.conformance.session import Result


def test_the_service_behaves_as_it_did_before(result: Result, pytestconfig: pytest.Config) -> None:
    """Compare with the file, and write it unless it says otherwise."""
    order, mode = order_of(pytestconfig), pytestconfig.getoption("--outreach-drift")
    if not result.measured.survey.readable:
        pytest.fail("nothing of the workspace could be read, so nothing was measured", pytrace=False)
    drifted = "\n".join(map(str, result.drifts))
    if not drifted or mode == "accept":
        result.save(order.record, order.url)
    elif mode == "fail":
        pytest.fail(f"the service has drifted from {order.record}; --outreach-drift=accept takes it:\n{drifted}", pytrace=False)
