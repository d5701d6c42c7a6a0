r"""Check a live service against its API documentation, and measure the behaviour that the documentation leaves open.

Run it as a test suite, with pytest 8 or later:

    pytest --pyargs outreach_async.conformance --outreach-live https://... --outreach-workspace space_...

By default, the suite only reads. To let it create contacts, too, pass the workspace id again with `--allow-writes space_...`, and
set `OUTREACH_OWNER_KEY` to the owner key.

The suite has a test for each documented rule that can be tested. It reads up to 100 campaigns, the steps of ten of them, and up
to 8,000 mailboxes. To check `total_found` for lists of any length, it also reads the last page of each list, and requests one
page past the end. A percentage below 0 or above 100 counts as a violation, too.

For many questions that the documentation leaves open, `outreach_async.fake.Behaviour` has a setting, called a knob. The suite
finds out which value of each knob matches the service, and writes these values to `behaviour.toml`, with which
`outreach_async.fake.behaviour.load_behaviour` configures a fake. A later run fails if the measured value of a knob has changed.

From Python, `check` returns the violations of documented rules, and `calibrate` the values of the knobs. Here, the service is a
fake:

```python
import anyio
from outreach_async.conformance import Access, calibrate, check
from outreach_async.fake import Behaviour, FakeService, FakeTransport

fake = FakeService(behaviour=Behaviour(past_end="clamp"))
workspace = fake.add_workspace()
fake.add_mailboxes(workspace, 30)


async def main() -> None:
    transport = FakeTransport(fake)  # or HttpxTransport("https://api.example")
    print(await check(transport, Access(workspace)))  # -> []
    measured = await calibrate(transport, Access(workspace))
    print(measured.observed["past_end"], "-", measured.reasons["past_end"])
    # -> clamp - ...
    print(measured.to_toml().count("\n") > 20)  # -> True


anyio.run(main)
```

Limits of the measurement, by knob:

    overwrite_unsent, overwrite_blank   not measured: no operation reads a contact back
    unknown_custom, unknown_body        `ignore` and `store` look the same: no operation reads a contact back
    rate_limit                          not measured, to limit the load; the report shows whether a request was throttled
    over_max                            `clamp` and `serve` look the same if no list has more items than its maximum `display`
    campaign_max_display                not measured if `over_max` is `serve`, or if it is `clamp` and there are few campaigns
    email_key                           `lower` and `gmail` look the same: no contact at gmail.com is created
    numbers, list_date                  with few values, a single form looks the same as `mixed`
    percent_digits                      with fewer than 12 different values, 1 and 2 decimal places look the same
    order                               not measured with few rows, or with rows that fit two orders
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from outreach_async.conformance._calibration import Calibration, calibrate
    from outreach_async.conformance._interface_rules import Breach, check
    from outreach_async.conformance._target import Access

__all__ = ["Access", "Breach", "Calibration", "calibrate", "check"]


def __getattr__(name: str) -> Any:
    # Every run of pytest imports this package for `add_options`, so importing it must be cheap.
    if name in __all__:
        from importlib import import_module

        modules = map(import_module, (f"{__name__}.{module}" for module in ("_target", "_calibration", "_interface_rules")))
        return next(getattr(module, name) for module in modules if hasattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


def add_options(parser: pytest.Parser) -> None:
    # The pytest plugin calls this function, because pytest loads the suite's conftest too late to add options there.
    group = parser.getgroup(
        "outreach_async conformance", "outreach_async conformance: pytest --pyargs outreach_async.conformance"
    )
    group.addoption("--outreach-live", metavar="URL", help="base URL of the service to check")
    group.addoption("--outreach-workspace", metavar="ID", help="id of the workspace to read")
    allowing = (
        "create contacts with the owner key in OUTREACH_OWNER_KEY; pass the workspace id again to confirm; default: only read"
    )
    group.addoption("--allow-writes", metavar="ID", help=allowing)
    group.addoption(
        "--outreach-campaign",
        metavar="ID",
        help="id of a draft campaign, to which two of the created contacts are added",
    )
    header = "header to send; its value is read from an environment variable; example: authorization=API_TOKEN; repeatable"
    group.addoption("--outreach-header", action="append", default=[], metavar="NAME=VARIABLE", help=header)
    record = "file for the measured behaviour; if it exists, its values are first compared with the new ones; default %(default)s"
    group.addoption("--outreach-record", default="behaviour.toml", metavar="FILE", help=record)
    drift = "what to do if the measured behaviour differs from the file; accept rewrites the file; default %(default)s"
    group.addoption("--outreach-drift", choices=["fail", "warn", "accept"], default="fail", help=drift)
