r"""Checks a live service against the interface, and measures what the interface leaves unsaid.

As a test suite, with pytest 8 or later installed:

    pytest --pyargs outreach_async.conformance --outreach-live https://... --outreach-workspace space_...

It only reads, unless `--allow-writes space_...` names the workspace once more; the owner key is then `OUTREACH_OWNER_KEY`.
Every rule that the interface states and that shows from outside is a test. It reads up to 100 campaigns, the steps of ten of
them, and up to 8,000 mailboxes, with the last page of each list and the one behind it, so that `total_found` is checked however
many items there are. Values called percentages must lie between 0 and 100. What the interface leaves unsaid is measured and
written to `behaviour.toml`, which `outreach_async.fake.behaviourfile.load_behaviour` reads for a fake; the next run fails where
the service reads a knob another way.

As library calls: `check` returns what breaks a stated rule, `calibrate` measures what is unsaid. Here the service is a fake:

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

What cannot be told from outside:

    overwrite_unsent, overwrite_blank   no operation reads a contact back
    unknown_custom, unknown_body        `ignore` from `store`, for the same reason; `reject` shows
    reenrol                             `noop` from `restart`, as contacts join nothing but a draft; `error` shows
    rate_limit, max_in_flight           never provoked; that there is a limit is told when one is met
    over_max                            `clamp` from `serve` with 2,000 mailboxes or fewer, unless campaigns are cut
    campaign_max_display                where more is served anyway, or clamped and there are too few campaigns
    email_key                           `lower` from `gmail` without an address at gmail.com
    numbers, list_date, percent_digits  one form from `mixed`, or 2 places from 1, with few values
    order                               with few rows, or rows that stand in two orders at once
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outreach_async.conformance.calibration import Calibration, calibrate
    from outreach_async.conformance.carrying import Patience
    from outreach_async.conformance.site import Site
    from outreach_async.conformance.stated import Breach, check

__all__ = ["Breach", "Calibration", "Patience", "Site", "calibrate", "check"]

_HOMES = {
    "Breach": "stated",
    "Calibration": "calibration",
    "Patience": "carrying",
    "Site": "site",
    "calibrate": "calibration",
    "check": "stated",
}


def __getattr__(name: str) -> Any:
    # Every run of pytest imports this package for its options; it must cost nothing then.
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"outreach_async.conformance.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
