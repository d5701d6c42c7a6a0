"""Measure what the interface leaves open, compare it with an earlier run, and write the behaviour file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from outreach_async.atomic import atomic_write
from outreach_async.conformance import read_probes, write_probes
from outreach_async.conformance.survey import HttpExchange, WorkspaceSurvey, survey_workspace
from outreach_async.conformance.target import DOMAIN, Dialogue, DialogueRunner, KnobFinding, Patience, Site, run_probe, unobserved
from outreach_async.conformance.write_probes import MembershipCounts, TrialCreations, create_trial
from outreach_async.errors import InvalidRequest
from outreach_async.fake.behaviour import KNOB_NAMES, Behaviour, HeaderAuth, dump_behaviour, load_knob_values
from outreach_async.responses import mask_string
from outreach_async.transport.urls import parse_base_url
from outreach_async.transport.wire import Transport

MAX_CONTACTS: Final = 64
"""Most contacts created by a run with writes."""


def describe_run(site: Site) -> str:
    """Return a description of what a run will do."""
    if not site.writes:
        return f"It is read-only, in workspace {site.workspace}. It creates no contacts."
    parts = [f"It creates up to {MAX_CONTACTS} contacts in workspace {site.workspace}, with addresses at {DOMAIN}."]
    parts.append("They are permanent: the interface has no operation that deletes a contact.")
    parts.append(f"Two join the campaign {site.campaign} if it is a draft." if site.campaign else "None joins a campaign.")
    if site.gmail:
        parts.append("Two have addresses at gmail.com with a hyphen, which Gmail never assigns.")
    return " ".join(parts)


KnobValues = Mapping[str, tuple[Any, ...]]
"""Possible values by knob, as loaded from a behaviour file."""


@attrs.frozen
class KnobDrift:
    """A knob whose value has changed.

    Attributes:
        knob: Its name.
        before: The values that were possible.
        now: The values that are possible now.
        explanation: How this was observed.
    """

    knob: str
    before: tuple[Any, ...]
    now: tuple[Any, ...]
    explanation: str

    def __str__(self) -> str:
        return f"{self.knob} was {_format_values(self.before)}, is now {_format_values(self.now)}: {self.explanation}"


def _format_values(readings: tuple[Any, ...]) -> str:
    return " or ".join(repr(sorted(reading) if isinstance(reading, frozenset) else reading) for reading in readings)


def find_drifts(before: KnobValues, findings: Mapping[str, KnobFinding]) -> list[KnobDrift]:
    """Return the knobs whose value has changed. A knob that is not observed now has not drifted."""
    found = []
    for knob, finding in findings.items():
        was = before.get(knob, ())
        if was and finding.possible and not any(_is_same(old, new) for old in was for new in finding.possible):
            found.append(KnobDrift(knob, was, finding.possible, finding.explanation))
    return found


def _is_same(old: Any, new: Any) -> bool:
    # Ignore tokens: they are secrets and never measured.
    if isinstance(old, HeaderAuth) and isinstance(new, HeaderAuth):
        return (old.header, old.scheme) == (new.header, new.scheme)
    return bool(old == new)


def merge_earlier(before: KnobValues, findings: Mapping[str, KnobFinding]) -> dict[str, KnobFinding]:
    """Merge in what the earlier run observed more precisely, so that a read-only run forgets nothing of one with writes."""
    return {knob: _merge_finding(before.get(knob, ()), finding) for knob, finding in findings.items()}


def _merge_finding(was: tuple[Any, ...], finding: KnobFinding) -> KnobFinding:
    if not was or finding.is_observed:
        return finding
    if not finding.possible:
        return KnobFinding(was, f"observed by an earlier run, but not now: {finding.explanation}")
    left = tuple(new for new in finding.possible if any(_is_same(old, new) for old in was))
    return (
        KnobFinding(left, f"{finding.explanation}; an earlier run was more precise")
        if left and left != finding.possible
        else finding
    )


_USAGE: Final = "Load it with outreach_async.fake.behaviour.load_behaviour, for a fake that behaves the same."


@attrs.frozen
class SuiteOptions:
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

    def build_site(self, environment: Mapping[str, str]) -> Site:
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
            headers=dict(_parse_header(text, environment) for text in self.headers),
        )


def _parse_header(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, equals, variable = text.partition("=")
    if not equals or variable not in environment:
        raise InvalidRequest(
            "--outreach-header: expected NAME=VARIABLE with an environment variable that is set; set it to the header's value"
        )
    return name.strip().lower(), environment[variable]


@attrs.frozen
class SuiteResult:
    """The result of a run.

    Attributes:
        measurement: What this run observed.
        before: What an earlier run observed.
    """

    measurement: Measurement
    before: KnobValues

    @property
    def drifts(self) -> list[KnobDrift]:
        """Knobs whose value differs from that of the earlier run."""
        return find_drifts(self.before, self.measurement.findings)

    @property
    def calibration(self) -> Calibration:
        """What is known now, combined with what the earlier run observed more precisely."""
        return Calibration.of(merge_earlier(self.before, self.measurement.findings))

    def save(self, record: Path, url: str) -> None:
        """Write the behaviour file atomically.

        Raises:
            OSError: The file cannot be written.
        """
        about = f"What the interface leaves open, measured by outreach_async.conformance at {parse_base_url(url)}.\n{_USAGE}"
        atomic_write(record, self.calibration.to_toml(about))


def run_suite(order: SuiteOptions, site: Site) -> SuiteResult:
    """Measure a service.

    Raises:
        BehaviourFileError: The file of an earlier run is invalid. No request was sent.
        OutreachError: The base URL is invalid.
    """
    before = load_knob_values(order.record) if order.record.exists() else {}
    return SuiteResult(anyio.run(_run_measurement, order.url, site), before)


async def _run_measurement(url: str, site: Site) -> Measurement:
    from outreach_async.transport.httpx import HttpxTransport

    transport = HttpxTransport(url)
    try:
        return await measure_service(transport, site, Patience())
    finally:
        await transport.aclose()


UNOBSERVABLE_KNOBS: Final[Mapping[str, str]] = {
    "overwrite_unsent": "no operation reads a contact back",
    "overwrite_blank": "no operation reads a contact back",
    "max_in_flight": "not provoked: requests are sent one at a time",
}
"""Knobs that cannot be observed, or not without harm, with the reason."""

_NO_WRITES: Final = "creating contacts was not allowed"
_MAX_CAMPAIGNS_DISPLAY: Final = 100
_LIST_MEASURES: Final[Mapping[str, Callable[[WorkspaceSurvey], KnobFinding]]] = {
    "order": read_probes.measure_order,
    "numbers": read_probes.measure_numbers,
    "percent_digits": read_probes.measure_percent_digits,
    "list_date": read_probes.measure_list_date,
}
_WRITE_PROBES: Final[Mapping[str, Callable[[Site], Dialogue[KnobFinding]]]] = {
    "email_key": write_probes.probe_email_key,
    "owner_key": write_probes.probe_owner_key,
    "unknown_body": write_probes.probe_unknown_body,
    "missing_campaign": write_probes.probe_missing_campaign,
    "strict_fields": write_probes.probe_strict_fields,
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
    def of(cls, findings: Mapping[str, KnobFinding]) -> Calibration:
        """Make a calibration from findings by knob."""
        observed = {knob: found.possible[0] for knob, found in findings.items() if found.is_observed}
        undecided = {knob: found.possible for knob, found in findings.items() if len(found.possible) > 1}
        readings = observed | {knob: possible[0] for knob, possible in undecided.items()}
        return cls(Behaviour(**readings), observed, undecided, {knob: found.explanation for knob, found in findings.items()})

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
class Measurement:
    """Everything that a run observed.

    Attributes:
        site: The workspace and credentials.
        survey: What was read.
        trial: The first creations; `None` without writes.
        findings: Findings by knob.
        membership: The counts of the campaign that contacts may join; `None` if none joined.
    """

    site: Site
    survey: WorkspaceSurvey
    trial: TrialCreations | None
    findings: Mapping[str, KnobFinding]
    membership: MembershipCounts | None = None


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
    return Calibration.of((await measure_service(transport, site, patience or Patience())).findings)


async def measure_service(transport: Transport, site: Site, patience: Patience) -> Measurement:
    """Measure a service and return everything that was observed."""
    site = attrs.evolve(site, hidden=tuple(getattr(transport, "secrets", ())))
    carrier = DialogueRunner(transport, patience, site.secrets)
    measured = await carrier.run(measure_knobs(site))
    return attrs.evolve(
        measured,
        findings={**measured.findings, "rate_limit": describe_rate_limit(carrier.request_count, carrier.retry_after_values)},
    )


def describe_rate_limit(asked: int, waits: list[str]) -> KnobFinding:
    """Return what was observed of a rate limit (rule E4), which is never provoked."""
    if not waits:
        return unobserved(f"not provoked: {asked} requests one at a time, none throttled")
    met = f"{len(waits)} of {asked} requests were throttled, with Retry-After {waits[0]!r}"
    return unobserved(f"there is one, with an unknown limit: {met}")


def measure_knobs(site: Site) -> Dialogue[Measurement]:
    """Measure every knob except `rate_limit`, which only the carrier of the requests observes."""
    survey = yield from survey_workspace(site)
    findings = dict.fromkeys(KNOB_NAMES, unobserved("no probe measures it")) | {
        knob: unobserved(why) for knob, why in UNOBSERVABLE_KNOBS.items()
    }
    findings["first_page"] = survey.first_page
    findings |= {knob: look(survey) for knob, look in _LIST_MEASURES.items()}
    findings |= yield from _run_read_probes(site, survey)
    trial = (yield from create_trial(site, survey)) if site.writes else None
    trouble = trial.failure if trial else _NO_WRITES
    membership = None
    findings |= dict.fromkeys((*_WRITE_PROBES, "created_status", "unknown_custom", "skip_enrols", "reenrol"), unobserved(trouble))
    if trial and not trouble:
        findings["created_status"] = write_probes.measure_created_status(trial)
        findings |= yield from _run_write_probes(site, survey)
        most = min([_MAX_CAMPAIGNS_DISPLAY, *(maximum for maximum in findings["campaign_max_display"].possible if maximum)])
        joined, membership = yield from write_probes.probe_enrolment(site, survey.first_page_number, most)
        findings |= joined
    masked = {knob: _mask_finding(found, site.secrets) for knob, found in findings.items()}
    return Measurement(site, survey, trial, masked, membership)


def _mask_finding(found: KnobFinding, secrets: tuple[str, ...]) -> KnobFinding:
    return attrs.evolve(found, explanation=mask_string(found.explanation, secrets))


def _run_read_probes(site: Site, survey: WorkspaceSurvey) -> Dialogue[dict[str, KnobFinding]]:
    boxes, campaigns, first = survey.mailboxes, survey.campaigns, survey.first_page_number
    over = yield from _run_if_readable(boxes, read_probes.probe_over_max(site, first))
    maximum = yield from _run_if_readable(campaigns, read_probes.probe_campaign_max_display(site, first, over))
    return {
        "auth": (yield from run_probe(read_probes.probe_auth(site))),
        "error_renderer": (yield from run_probe(read_probes.probe_error_renderer(site))),
        "past_end": (yield from _run_if_readable(boxes, read_probes.probe_past_end(site, first))),
        "bad_number": (yield from _run_if_readable(boxes, read_probes.probe_bad_number(site, first))),
        "over_max": read_probes.refine_over_max(over, maximum),
        "campaign_max_display": maximum,
    }


def _run_if_readable(asked: HttpExchange, probe: Dialogue[KnobFinding]) -> Dialogue[KnobFinding]:
    """Run a probe if a plain request succeeds. Otherwise a refusal proves nothing."""
    if asked.payload is None:
        return unobserved("the list could not be read")
    return (yield from run_probe(probe))


def _run_write_probes(site: Site, survey: WorkspaceSurvey) -> Dialogue[dict[str, KnobFinding]]:
    findings = {"unknown_custom": (yield from run_probe(write_probes.probe_unknown_custom(site, survey)))}
    for knob, probe in _WRITE_PROBES.items():
        findings[knob] = yield from run_probe(probe(site))
    return findings
