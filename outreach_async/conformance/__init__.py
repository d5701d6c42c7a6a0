r"""Check a live service against the interface, and measure the rules that the interface leaves open.

Run it as a test suite, with pytest 8 or later:

    pytest --pyargs outreach_async.conformance --outreach-live https://... --outreach-workspace space_...

The suite is read-only unless `--allow-writes space_...` repeats the workspace id. It then reads the owner key from
`OUTREACH_OWNER_KEY`. Each rule that the interface states and that can be observed is a test. The suite reads up to 100 campaigns,
the steps of ten of them, and up to 8,000 mailboxes. It also reads the last page of each list and the page after it, to check
`total_found` for lists of any length. Percentages must be between 0 and 100. The suite measures the open rules,
and writes them to `behaviour.toml`, which `outreach_async.fake.behaviour.load_behaviour` loads for a fake. A later run fails if
the measured value of a knob has changed.

Or call it from Python: `check` returns the violations of stated rules, `calibrate` measures the open rules. In
this example, the service is a fake:

```python
import anyio
from outreach_async.conformance import Site, calibrate, check
from outreach_async.fake import Behaviour, FakeService, FakeTransport

fake = FakeService(behaviour=Behaviour(past_end="clamp"))
workspace = fake.add_workspace()
fake.add_mailboxes(workspace, 30)


async def main() -> None:
    transport = FakeTransport(fake)  # or HttpxTransport("https://api.example")
    print(await check(transport, Site(workspace)))  # -> []
    measured = await calibrate(transport, workspace=workspace)
    print(measured.observed["past_end"], "-", measured.reasons["past_end"])
    # -> clamp - ...
    print(measured.to_toml().count("\n") > 20)  # -> True


anyio.run(main)
```

What cannot be observed:

    overwrite_unsent, overwrite_blank   not at all: no operation reads a contact back
    unknown_custom, unknown_body        `ignore` or `store`, for the same reason; `reject` is observed
    reenrol                             `noop` or `restart`, because contacts only join a draft; `error` is observed
    rate_limit, max_in_flight           never provoked; the report says if a rate limit was met
    over_max                            `clamp` or `serve`, with 2,000 mailboxes or fewer, unless campaigns are cut
    campaign_max_display                if more than the maximum is served, or clamped and there are too few campaigns
    email_key                           `lower` or `gmail`, without an address at gmail.com
    numbers, list_date, percent_digits  one form or `mixed`, 1 decimal place or 2, with few values
    order                               with few rows, or rows that fit two orders at once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from outreach_async.conformance.calibration import Calibration, calibrate
    from outreach_async.conformance.rules import Breach, check
    from outreach_async.conformance.target import Patience, Site

__all__ = ["Breach", "Calibration", "Patience", "Site", "calibrate", "check"]

_MODULES = {
    "Breach": "rules",
    "Calibration": "calibration",
    "Patience": "target",
    "Site": "target",
    "calibrate": "calibration",
    "check": "rules",
}


def __getattr__(name: str) -> Any:
    # Every run of pytest imports this package for `add_options`, so importing it must be cheap.
    if name in _MODULES:
        from importlib import import_module

        return getattr(import_module(f"outreach_async.conformance.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def add_options(parser: pytest.Parser) -> None:
    """Add the options of the suite. The plugin calls this: pytest reads the conftest of a package too late for options."""
    group = parser.getgroup(
        "outreach_async conformance", "outreach_async conformance: pytest --pyargs outreach_async.conformance"
    )
    group.addoption("--outreach-live", metavar="URL", help="base URL of the service to check")
    group.addoption("--outreach-workspace", metavar="ID", help="id of the workspace to read")
    allowing = "create contacts; repeat the workspace id to confirm. The owner key is OUTREACH_OWNER_KEY. Default: read-only"
    group.addoption("--allow-writes", metavar="ID", help=allowing)
    group.addoption("--outreach-campaign", metavar="ID", help="id of a draft campaign that two created contacts join")
    gmail = "create two contacts with addresses at gmail.com, in a form that Gmail never assigns"
    group.addoption("--outreach-gmail", action="store_true", help=gmail)
    header = "header to send, with its value from an environment variable, such as authorization=API_TOKEN; repeatable"
    group.addoption("--outreach-header", action="append", default=[], metavar="NAME=VARIABLE", help=header)
    record = "file for the measured behaviour, compared with that of an earlier run; default %(default)s"
    group.addoption("--outreach-record", default="behaviour.toml", metavar="FILE", help=record)
    drift = "if the file differs: fail or warn, and keep the file; or accept, and rewrite it; default %(default)s"
    group.addoption("--outreach-drift", choices=["fail", "warn", "accept"], default="fail", help=drift)
