"""Measure what the interface leaves open: from findings to a `Behaviour` for a fake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance import figures, reading, writing
from outreach_async.conformance.carrying import Carrier, Patience
from outreach_async.conformance.findings import Finding, attempt, unseen
from outreach_async.conformance.site import Dialogue, Site
from outreach_async.conformance.survey import Asked, Survey, survey_of
from outreach_async.conformance.writing import Membership, Trial, trial_of
from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.behaviourfile import KNOBS, dump_behaviour
from outreach_async.refusals import masked_text
from outreach_async.transport.wire import Transport

HIDDEN: Final[Mapping[str, str]] = {
    "overwrite_unsent": "no operation reads a contact back",
    "overwrite_blank": "no operation reads a contact back",
    "max_in_flight": "not provoked: requests are sent one at a time",
}
"""Knobs that cannot be observed, or not without harm, with the reason."""

_NO_WRITES: Final = "creating contacts was not allowed"
_CAMPAIGNS: Final = 100
_FIGURES: Final[Mapping[str, Callable[[Survey], Finding]]] = {
    "order": figures.order,
    "numbers": figures.numbers,
    "percent_digits": figures.percent_digits,
    "list_date": figures.list_date,
}
_WRITES: Final[Mapping[str, Callable[[Site], Dialogue[Finding]]]] = {
    "email_key": writing.email_key,
    "owner_key": writing.owner_key,
    "unknown_body": writing.unknown_body,
    "missing_campaign": writing.missing_campaign,
    "strict_fields": writing.strict_fields,
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
        findings["created_status"] = writing.created_status(trial)
        findings |= yield from _write(site, survey)
        most = min([_CAMPAIGNS, *(maximum for maximum in findings["campaign_max_display"].possible if maximum)])
        joined, membership = yield from writing.enrolment(site, survey.first, most)
        findings |= joined
    masked = {knob: _masked(found, site.secrets) for knob, found in findings.items()}
    return Measured(site, survey, trial, masked, membership)


def _masked(found: Finding, secrets: tuple[str, ...]) -> Finding:
    return attrs.evolve(found, how=masked_text(found.how, secrets))


def _read(site: Site, survey: Survey) -> Dialogue[dict[str, Finding]]:
    boxes, campaigns, first = survey.mailboxes, survey.campaigns, survey.first
    over = yield from _where(boxes, reading.over_max(site, first))
    maximum = yield from _where(campaigns, reading.campaign_max_display(site, first, over))
    return {
        "auth": (yield from attempt(reading.auth(site))),
        "error_renderer": (yield from attempt(reading.error_renderer(site))),
        "past_end": (yield from _where(boxes, reading.past_end(site, first))),
        "bad_number": (yield from _where(boxes, reading.bad_number(site, first))),
        "over_max": reading.over_by_campaigns(over, maximum),
        "campaign_max_display": maximum,
    }


def _where(asked: Asked, probe: Dialogue[Finding]) -> Dialogue[Finding]:
    """Run a probe if a plain request succeeds. Otherwise a refusal proves nothing."""
    if asked.said is None:
        return unseen("the list could not be read")
    return (yield from attempt(probe))


def _write(site: Site, survey: Survey) -> Dialogue[dict[str, Finding]]:
    findings = {"unknown_custom": (yield from attempt(writing.unknown_custom(site, survey)))}
    for knob, probe in _WRITES.items():
        findings[knob] = yield from attempt(probe(site))
    return findings
