"""Skip tests that need a journal where the library refuses it, with its reason: Windows has no such locks. A pytest plugin."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import pytest

from outreach_async.store._sqlite import CAN_LOCK

REFUSAL: Final = "this system lacks POSIX file locks or hard links"


def skip_if_refused(text: str) -> None:
    """Skip the test if the text has the refusal of a journal."""
    if not CAN_LOCK and REFUSAL in text:
        pytest.skip(REFUSAL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not CAN_LOCK and report.failed and REFUSAL in f"{report.longreprtext}{report.capstdout}{report.capstderr}":
        report.outcome = "skipped"
        report.longrepr = (str(item.path), (item.location[1] or 0) + 1, f"Skipped: {REFUSAL}")
    return report
