"""Run the suite: from its options to the measurement and the behaviour file. Independent of pytest."""

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

_USE: Final = "Load it with outreach_async.fake.behaviourfile.load_behaviour, for a fake that behaves the same."


@attrs.frozen
class Order:
    """The options of a run.

    Attributes:
        url: Base URL of the service.
        workspace: Workspace to read.
        writes: Workspace to create contacts in; `None` to create none.
        campaign: Draft campaign that contacts may join.
        gmail: Whether contacts may have addresses at gmail.com.
        headers: Headers, each as `NAME=VARIABLE`.
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
        """Return the workspace and credentials to use.

        Raises:
            InvalidRequest: The options contradict each other, or an environment variable is not set.
        """
        if not self.url or not self.workspace:
            raise InvalidRequest(
                "--outreach-live, --outreach-workspace: expected the URL of a service and a workspace id; pass both"
            )
        parse_base_url(self.url)
        if self.writes not in {None, self.workspace}:
            raise InvalidRequest(
                "--allow-writes: expected the workspace of --outreach-workspace, got another one; pass the same id"
            )
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
        raise InvalidRequest(
            "--outreach-header: expected NAME=VARIABLE with an environment variable that is set; set it to the header's value"
        )
    return name.strip().lower(), environment[variable]


@attrs.frozen
class Result:
    """The result of a run.

    Attributes:
        measured: What this run observed.
        before: What an earlier run observed.
    """

    measured: Measured
    before: Readings

    @property
    def drifts(self) -> list[Drift]:
        """Knobs whose value differs from that of the earlier run."""
        return drifts(self.before, self.measured.findings)

    @property
    def calibration(self) -> Calibration:
        """What is known now, combined with what the earlier run observed more precisely."""
        return Calibration.of(together(self.before, self.measured.findings))

    def save(self, record: Path, url: str) -> None:
        """Write the behaviour file atomically.

        Raises:
            OSError: The file cannot be written.
        """
        about = f"What the interface leaves open, measured by outreach_async.conformance at {parse_base_url(url)}.\n{_USE}"
        write_whole(record, self.calibration.to_toml(about))


def carry_out(order: Order, site: Site) -> Result:
    """Measure a service.

    Raises:
        BehaviourFileError: The file of an earlier run is invalid. No request was sent.
        OutreachError: The base URL is invalid.
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
