"""Measure what the interface leaves open, compare it with an earlier run, and write the behaviour file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from outreach_async.atomic import write_whole
from outreach_async.conformance import read_probes, write_probes
from outreach_async.conformance.read_probes import Asked, Survey, survey_of
from outreach_async.conformance.target import DOMAIN, Carrier, Dialogue, Finding, Patience, Site, attempt, unseen
from outreach_async.conformance.write_probes import Membership, Trial, trial_of
from outreach_async.errors import InvalidRequest
from outreach_async.fake.behaviour import KNOBS, Behaviour, HeaderAuth, dump_behaviour, load_readings
from outreach_async.responses import masked_text
from outreach_async.transport.urls import parse_base_url
from outreach_async.transport.wire import Transport

CONTACTS: Final = 64
"""Most contacts created by a run with writes."""


def plan(site: Site) -> str:
    """Return a description of what a run will do."""
    if not site.writes:
        return f"It is read-only, in workspace {site.workspace}. It creates no contacts."
    parts = [f"It creates up to {CONTACTS} contacts in workspace {site.workspace}, with addresses at {DOMAIN}."]
    parts.append("They are permanent: the interface has no operation that deletes a contact.")
    parts.append(f"Two join the campaign {site.campaign} if it is a draft." if site.campaign else "None joins a campaign.")
    if site.gmail:
        parts.append("Two have addresses at gmail.com with a hyphen, which Gmail never assigns.")
    return " ".join(parts)


Readings = Mapping[str, tuple[Any, ...]]
"""Possible values by knob, as loaded from a behaviour file."""


@attrs.frozen
class Drift:
    """A knob whose value has changed.

    Attributes:
        knob: Its name.
        was: The values that were possible.
        now: The values that are possible now.
        how: How this was observed.
    """

    knob: str
    was: tuple[Any, ...]
    now: tuple[Any, ...]
    how: str

    def __str__(self) -> str:
        return f"{self.knob} was {_either(self.was)}, is now {_either(self.now)}: {self.how}"


def _either(readings: tuple[Any, ...]) -> str:
    return " or ".join(repr(sorted(reading) if isinstance(reading, frozenset) else reading) for reading in readings)


def drifts(before: Readings, findings: Mapping[str, Finding]) -> list[Drift]:
    """Return the knobs whose value has changed. A knob that is not observed now has not drifted."""
    found = []
    for knob, finding in findings.items():
        was = before.get(knob, ())
        if was and finding.possible and not any(_same(old, new) for old in was for new in finding.possible):
            found.append(Drift(knob, was, finding.possible, finding.how))
    return found


def _same(old: Any, new: Any) -> bool:
    # Ignore tokens: they are secrets and never measured.
    if isinstance(old, HeaderAuth) and isinstance(new, HeaderAuth):
        return (old.header, old.scheme) == (new.header, new.scheme)
    return bool(old == new)


def together(before: Readings, findings: Mapping[str, Finding]) -> dict[str, Finding]:
    """Merge in what the earlier run observed more precisely, so that a read-only run forgets nothing of one with writes."""
    return {knob: _better(before.get(knob, ()), finding) for knob, finding in findings.items()}


def _better(was: tuple[Any, ...], finding: Finding) -> Finding:
    if not was or finding.seen:
        return finding
    if not finding.possible:
        return Finding(was, f"observed by an earlier run, but not now: {finding.how}")
    left = tuple(new for new in finding.possible if any(_same(old, new) for old in was))
    return Finding(left, f"{finding.how}; an earlier run was more precise") if left and left != finding.possible else finding


_USE: Final = "Load it with outreach_async.fake.behaviour.load_behaviour, for a fake that behaves the same."


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


HIDDEN: Final[Mapping[str, str]] = {
    "overwrite_unsent": "no operation reads a contact back",
    "overwrite_blank": "no operation reads a contact back",
    "max_in_flight": "not provoked: requests are sent one at a time",
}
"""Knobs that cannot be observed, or not without harm, with the reason."""

_NO_WRITES: Final = "creating contacts was not allowed"
_CAMPAIGNS: Final = 100
_FIGURES: Final[Mapping[str, Callable[[Survey], Finding]]] = {
    "order": read_probes.order,
    "numbers": read_probes.numbers,
    "percent_digits": read_probes.percent_digits,
    "list_date": read_probes.list_date,
}
_WRITES: Final[Mapping[str, Callable[[Site], Dialogue[Finding]]]] = {
    "email_key": write_probes.email_key,
    "owner_key": write_probes.owner_key,
    "unknown_body": write_probes.unknown_body,
    "missing_campaign": write_probes.missing_campaign,
    "strict_fields": write_probes.strict_fields,
}


@attrs.frozen
class Calibration:
    """The measured behaviour of a service.

    Attributes:
        behaviour: A behaviour for a fake: the observed values, the first value where several cannot be distinguished, and the
            default where nothing was observed.
        observed: Observed values by knob.
        undecided: Values that cannot be distinguished, by knob.
        reasons: How each knob was observed, or why it was not.

    Example:
        ```python
        measured = await calibrate(FakeTransport(fake), workspace="space_1")
        print(measured.observed["past_end"], "-", measured.reasons["overwrite_blank"])
        # -> empty - no operation reads a contact back
        ```
    """

    behaviour: Behaviour
    observed: Mapping[str, Any]
    undecided: Mapping[str, tuple[Any, ...]]
    reasons: Mapping[str, str]

    @classmethod
    def of(cls, findings: Mapping[str, Finding]) -> Calibration:
        """Make a calibration from findings by knob."""
        observed = {knob: found.possible[0] for knob, found in findings.items() if found.seen}
        undecided = {knob: found.possible for knob, found in findings.items() if len(found.possible) > 1}
        readings = observed | {knob: possible[0] for knob, possible in undecided.items()}
        return cls(Behaviour(**readings), observed, undecided, {knob: found.how for knob, found in findings.items()})

    @property
    def unseen(self) -> dict[str, str]:
        """The knobs that were not observed, with the reason."""
        return {knob: why for knob, why in self.reasons.items() if knob not in self.observed and knob not in self.undecided}

    def to_toml(self, about: str = "") -> str:
        """Return the content of a file for `load_behaviour`, with a comment for each knob.

        Args:
            about: Description of the file, for its first lines.

        Example:
            ```python
            measured = await calibrate(FakeTransport(fake), workspace="space_1")
            Path("behaviour.toml").write_text(measured.to_toml("measured in May"))
            ```
        """
        return dump_behaviour(self.behaviour, about=about, notes=self.reasons, undecided=self.undecided, unseen=self.unseen)


@attrs.frozen
class Measured:
    """Everything that a run observed.

    Attributes:
        site: The workspace and credentials.
        survey: What was read.
        trial: The first creations; `None` without writes.
        findings: Findings by knob.
        membership: The counts of the campaign that contacts may join; `None` if none joined.
    """

    site: Site
    survey: Survey
    trial: Trial | None
    findings: Mapping[str, Finding]
    membership: Membership | None = None


async def calibrate(
    transport: Transport,
    *,
    workspace: str,
    owner_key: str | None = None,
    writes: bool = False,
    campaign: str | None = None,
    gmail: bool = False,
    headers: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> Calibration:
    """Measure the behaviour of a service where the interface leaves it open.

    By default, this sends about 30 read-only requests, one at a time. With `writes`, it creates at most `plan.CONTACTS` contacts,
    which are permanent.

    Args:
        transport: The transport; it stays open.
        workspace: Workspace id.
        owner_key: API key of a user of the workspace; required for `writes`.
        writes: Whether contacts may be created in the workspace.
        campaign: Id of a draft campaign that two contacts may join; `None` for none.
        gmail: Whether two contacts may have an address at gmail.com, in a form that Gmail never assigns.
        headers: Header fields to send, such as a credential.
        patience: How long to wait.

    Raises:
        InvalidRequest: The arguments contradict each other.

    Example:
        ```python
        measured = await calibrate(FakeTransport(fake), workspace="space_1", owner_key="key_1", writes=True)
        print(measured.observed["created_status"], measured.undecided["email_key"])  # -> 201 ('lower', 'gmail')
        ```
    """
    named = {name.lower(): value for name, value in (headers or {}).items()}
    site = Site(workspace, owner_key, writes=writes, campaign=campaign, gmail=gmail, headers=named)
    return Calibration.of((await run(transport, site, patience or Patience())).findings)


async def run(transport: Transport, site: Site, patience: Patience) -> Measured:
    """Measure a service and return everything that was observed."""
    site = attrs.evolve(site, hidden=tuple(getattr(transport, "secrets", ())))
    carrier = Carrier(transport, patience, site.secrets)
    measured = await carrier.carry(measure(site))
    return attrs.evolve(measured, findings={**measured.findings, "rate_limit": rate_limit(carrier.asked, carrier.waits)})


def rate_limit(asked: int, waits: list[str]) -> Finding:
    """Return what was observed of a rate limit (rule E4), which is never provoked."""
    if not waits:
        return unseen(f"not provoked: {asked} requests one at a time, none throttled")
    met = f"{len(waits)} of {asked} requests were throttled, with Retry-After {waits[0]!r}"
    return unseen(f"there is one, with an unknown limit: {met}")


def measure(site: Site) -> Dialogue[Measured]:
    """Measure every knob except `rate_limit`, which only the carrier of the requests observes."""
    survey = yield from survey_of(site)
    findings = dict.fromkeys(KNOBS, unseen("no probe measures it")) | {knob: unseen(why) for knob, why in HIDDEN.items()}
    findings["first_page"] = survey.first_page
    findings |= {knob: look(survey) for knob, look in _FIGURES.items()}
    findings |= yield from _read(site, survey)
    trial = (yield from trial_of(site, survey)) if site.writes else None
    trouble = trial.trouble if trial else _NO_WRITES
    membership = None
    findings |= dict.fromkeys((*_WRITES, "created_status", "unknown_custom", "skip_enrols", "reenrol"), unseen(trouble))
    if trial and not trouble:
        findings["created_status"] = write_probes.created_status(trial)
        findings |= yield from _write(site, survey)
        most = min([_CAMPAIGNS, *(maximum for maximum in findings["campaign_max_display"].possible if maximum)])
        joined, membership = yield from write_probes.enrolment(site, survey.first, most)
        findings |= joined
    masked = {knob: _masked(found, site.secrets) for knob, found in findings.items()}
    return Measured(site, survey, trial, masked, membership)


def _masked(found: Finding, secrets: tuple[str, ...]) -> Finding:
    return attrs.evolve(found, how=masked_text(found.how, secrets))


def _read(site: Site, survey: Survey) -> Dialogue[dict[str, Finding]]:
    boxes, campaigns, first = survey.mailboxes, survey.campaigns, survey.first
    over = yield from _where(boxes, read_probes.over_max(site, first))
    maximum = yield from _where(campaigns, read_probes.campaign_max_display(site, first, over))
    return {
        "auth": (yield from attempt(read_probes.auth(site))),
        "error_renderer": (yield from attempt(read_probes.error_renderer(site))),
        "past_end": (yield from _where(boxes, read_probes.past_end(site, first))),
        "bad_number": (yield from _where(boxes, read_probes.bad_number(site, first))),
        "over_max": read_probes.over_by_campaigns(over, maximum),
        "campaign_max_display": maximum,
    }


def _where(asked: Asked, probe: Dialogue[Finding]) -> Dialogue[Finding]:
    """Run a probe if a plain request succeeds. Otherwise a refusal proves nothing."""
    if asked.said is None:
        return unseen("the list could not be read")
    return (yield from attempt(probe))


def _write(site: Site, survey: Survey) -> Dialogue[dict[str, Finding]]:
    findings = {"unknown_custom": (yield from attempt(write_probes.unknown_custom(site, survey)))}
    for knob, probe in _WRITES.items():
        findings[knob] = yield from attempt(probe(site))
    return findings
