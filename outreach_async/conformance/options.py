"""The options of the conformance suite. They are the plugin's, as pytest reads no conftest of a package before its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

# Every run of pytest imports this module: nothing heavy may stand here.
if TYPE_CHECKING:
    import pytest

    from outreach_async.conformance.session import Order


def add_options(parser: pytest.Parser) -> None:
    """Add the options to pytest's."""
    group = parser.getgroup(
        "outreach_async conformance", "outreach_async conformance: pytest --pyargs outreach_async.conformance"
    )
    group.addoption("--outreach-live", metavar="URL", help="base URL of the service to check")
    group.addoption("--outreach-workspace", metavar="ID", help="workspace to read in")
    group.addoption(
        "--allow-writes",
        metavar="ID",
        help="workspace to create contacts in, the same again; the owner key is OUTREACH_OWNER_KEY. Without it, all is only read",
    )
    group.addoption("--outreach-campaign", metavar="ID", help="draft campaign that two created contacts may join")
    group.addoption(
        "--outreach-gmail",
        action="store_true",
        help="two contacts may have addresses at gmail.com, of a form that Gmail gives nobody",
    )
    group.addoption(
        "--outreach-header",
        action="append",
        default=[],
        metavar="NAME=VARIABLE",
        help="header to send, its value from an environment variable: authorization=API_TOKEN; may be repeated",
    )
    group.addoption(
        "--outreach-record",
        default="behaviour.toml",
        metavar="FILE",
        help="where the measured behaviour is written, and compared with that of an earlier run; default %(default)s",
    )
    group.addoption(
        "--outreach-drift",
        choices=["fail", "warn", "accept"],
        default="fail",
        help="if the file says otherwise: fail, or only tell (warn), and leave it; or accept and rewrite it; default %(default)s",
    )


def order_of(config: pytest.Config) -> Order:
    """Read the options."""
    from pathlib import Path

    from outreach_async.conformance.session import Order

    return Order(
        config.getoption("--outreach-live") or "",
        config.getoption("--outreach-workspace") or "",
        config.getoption("--allow-writes"),
        config.getoption("--outreach-campaign"),
        config.getoption("--outreach-gmail"),
        config.getoption("--outreach-header"),
        Path(config.getoption("--outreach-record")),
    )
