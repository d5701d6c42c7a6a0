"""One run of the suite: from options to a site, the measuring, and the file. It knows nothing of pytest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import anyio
import attrs

from outreach_async.conformance.calibration import Calibration, Measured, run
from outreach_async.conformance.carrying import Patience
from outreach_async.conformance.drift import Drift, Readings, drifts, together
from outreach_async.conformance.site import Site
from outreach_async.errors import InvalidRequest
from outreach_async.fake.behaviourfile import load_readings
from outreach_async.transport.origin import parse_base_url
from outreach_async.wholefiles import write_whole

_USE: Final = "outreach_async.fake.behaviourfile.load_behaviour reads it, for a fake that behaves alike."


@attrs.frozen
class Order:
    """What the options say.

    Attributes:
        url: Base URL of the service.
        workspace: Workspace to read in.
        writes: Workspace to create contacts in; `None` to create none.
        campaign: Draft campaign that contacts may join.
        gmail: Whether contacts may have addresses at gmail.com.
        headers: `NAME=VARIABLE` each.
        record: The behaviour file.
    """

    url: str
    workspace: str
    writes: str | None = None
    campaign: str | None = None
    gmail: bool = False
    headers: Sequence[str] = ()
    record: Path = Path("behaviour.toml")

    def site(self, environment: Mapping[str, str]) -> Site:
        """Say whom to ask, and as whom.

        Raises:
            InvalidRequest: The options cannot go together, or an environment variable lacks.
        """
        if not self.url or not self.workspace:
            raise InvalidRequest("give --outreach-live URL and --outreach-workspace ID: which service, and where to read in it")
        parse_base_url(self.url)
        if self.writes not in {None, self.workspace}:
            raise InvalidRequest("--allow-writes must name the same workspace as --outreach-workspace")
        return Site(
            self.workspace,
            environment.get("OUTREACH_OWNER_KEY") or None,
            writes=self.writes is not None,
            campaign=self.campaign,
            gmail=self.gmail,
            headers=dict(_header(text, environment) for text in self.headers),
        )


def _header(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, equals, variable = text.partition("=")
    if not equals or variable not in environment:
        raise InvalidRequest("--outreach-header: expected NAME=VARIABLE, and the variable in the environment holding the value")
    return name.strip().lower(), environment[variable]


@attrs.frozen
class Result:
    """What came of a run.

    Attributes:
        measured: What was seen.
        before: What an earlier run had seen.
    """

    measured: Measured
    before: Readings

    @property
    def drifts(self) -> list[Drift]:
        """Knobs that are read another way than before."""
        return drifts(self.before, self.measured.findings)

    @property
    def calibration(self) -> Calibration:
        """What is known now, with what an earlier run knew better."""
        return Calibration.of(together(self.before, self.measured.findings))

    def save(self, record: Path, url: str) -> None:
        """Write the file, as a whole or not at all.

        Raises:
            OSError: It cannot be written.
        """
        about = (
            f"How {parse_base_url(url)} behaves where the interface is silent, measured by outreach_async.conformance.\n{_USE}"
        )
        write_whole(record, self.calibration.to_toml(about))


def carry_out(order: Order, site: Site) -> Result:
    """Measure a service.

    Raises:
        BehaviourFileError: The file of an earlier run cannot be understood; nothing was asked.
        OutreachError: The base URL is none.
    """
    before = load_readings(order.record) if order.record.exists() else {}
    return Result(anyio.run(_measure, order.url, site), before)


async def _measure(url: str, site: Site) -> Measured:
    from outreach_async.transport.httpx import HttpxTransport

    transport = HttpxTransport(url)
    try:
        return await run(transport, site, Patience())
    finally:
        await transport.aclose()
