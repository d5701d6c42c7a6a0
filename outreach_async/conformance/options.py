"""The options of the conformance suite.

The plugin adds them, because pytest reads the conftest of a package too late for options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

# Every run of pytest imports this module, so it must stay light.
if TYPE_CHECKING:
    import pytest

    from outreach_async.conformance.calibration import SuiteOptions


def add_options(parser: pytest.Parser) -> None:
    """Add the options to the parser of pytest."""
    group = parser.getgroup(
        "outreach_async conformance", "outreach_async conformance: pytest --pyargs outreach_async.conformance"
    )
    group.addoption("--outreach-live", metavar="URL", help="base URL of the service to check")
    group.addoption("--outreach-workspace", metavar="ID", help="id of the workspace to read")
    group.addoption(
        "--allow-writes",
        metavar="ID",
        help="create contacts; repeat the workspace id to confirm. The owner key is OUTREACH_OWNER_KEY. Default: read-only",
    )
    group.addoption("--outreach-campaign", metavar="ID", help="id of a draft campaign that two created contacts join")
    group.addoption(
        "--outreach-gmail",
        action="store_true",
        help="create two contacts with addresses at gmail.com, in a form that Gmail never assigns",
    )
    group.addoption(
        "--outreach-header",
        action="append",
        default=[],
        metavar="NAME=VARIABLE",
        help="header to send, with its value from an environment variable, such as authorization=API_TOKEN; repeatable",
    )
    group.addoption(
        "--outreach-record",
        default="behaviour.toml",
        metavar="FILE",
        help="file for the measured behaviour, compared with that of an earlier run; default %(default)s",
    )
    group.addoption(
        "--outreach-drift",
        choices=["fail", "warn", "accept"],
        default="fail",
        help="if the file differs: fail or warn, and keep the file; or accept, and rewrite it; default %(default)s",
    )


def read_options(config: pytest.Config) -> SuiteOptions:
    """Return the options of a run."""
    from pathlib import Path

    from outreach_async.conformance.calibration import SuiteOptions

    return SuiteOptions(
        config.getoption("--outreach-live") or "",
        config.getoption("--outreach-workspace") or "",
        config.getoption("--allow-writes"),
        config.getoption("--outreach-campaign"),
        config.getoption("--outreach-gmail"),
        config.getoption("--outreach-header"),
        Path(config.getoption("--outreach-record")),
    )
