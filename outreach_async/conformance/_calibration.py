"""Measure behaviour that the service's API documentation leaves open, compare it with an earlier run, and save it to a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import attrs

from outreach_async._files.atomic import atomic_write
from outreach_async._service.responses import mask_string
from outreach_async.conformance import _read_probes as read_probes
from outreach_async.conformance import _write_probes as write_probes
from outreach_async.conformance._read_probes import PageSequence, WorkspaceSurvey, survey_workspace
from outreach_async.conformance._target import (
    DOMAIN,
    Access,
    Dialogue,
    DialogueRunner,
    KnobFinding,
    Patience,
    Requests,
    run_probe,
    unobserved,
)
from outreach_async.conformance._write_probes import MembershipCounts, TrialCreations, create_trial
from outreach_async.errors import InvalidRequest
from outreach_async.fake.behaviour import KNOB_NAMES, Behaviour, HeaderAuth, dump_behaviour, load_knob_values
from outreach_async.transport._urls import parse_base_url
from outreach_async.transport._wire import Transport

MAX_CONTACTS: Final = 64
"""Maximum number of contacts that a run creates if writes are allowed."""


def describe_run(access: Access) -> str:
    if not access.writes:
        return f"The run only reads workspace {access.workspace}. It creates no contacts."
    joining = (
        f"Two of them join the campaign {access.campaign} if it is a draft." if access.campaign else "None joins a campaign."
    )
    return (
        f"The run creates up to {MAX_CONTACTS} contacts in workspace {access.workspace}, with addresses at {DOMAIN}. "
        f"They are permanent: the API has no operation that deletes a contact. {joining}"
    )


KnobValues = Mapping[str, tuple[Any, ...]]
"""Possible values by knob, as loaded from a behaviour file."""


@attrs.frozen
class KnobDrift:
    knob: str
    before: tuple[Any, ...]
    now: tuple[Any, ...]
    explanation: str

    def __str__(self) -> str:
        return f"{self.knob} was {_format_values(self.before)}, is now {_format_values(self.now)}: {self.explanation}"


def _format_values(values: tuple[Any, ...]) -> str:
    return " or ".join(repr(sorted(value) if isinstance(value, frozenset) else value) for value in values)


def find_drifts(before: KnobValues, findings: Mapping[str, KnobFinding]) -> list[KnobDrift]:
    """Return the knobs whose value has changed since an earlier run. Only knobs that both runs observed are compared."""
    return [
        KnobDrift(knob, before[knob], now.possible, now.explanation)
        for knob, now in findings.items()
        if before.get(knob) and now.possible and not _find_shared(before[knob], now.possible)
    ]


def _find_shared(before: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(new for new in now if any(_is_same(old, new) for old in before))


def _is_same(old: Any, new: Any) -> bool:
    # Ignore tokens, which are secrets and are never measured.
    if isinstance(old, HeaderAuth) and isinstance(new, HeaderAuth):
        return (old.header, old.scheme) == (new.header, new.scheme)
    return bool(old == new)


def merge_earlier(before: KnobValues, findings: Mapping[str, KnobFinding]) -> dict[str, KnobFinding]:
    """Combine the findings of this run with the values that an earlier run observed."""
    # If only the earlier run observed values of a knob, these values are returned. If both runs observed values and have some in
    # common, only the common values are returned. Otherwise, the finding of this run is returned.
    merged = dict(findings)
    for knob, finding in findings.items():
        was = before.get(knob, ())
        shared = _find_shared(was, finding.possible)
        if was and not finding.possible:
            merged[knob] = KnobFinding(was, f"observed by an earlier run, but not now: {finding.explanation}")
        elif shared and shared != finding.possible:
            merged[knob] = KnobFinding(shared, f"{finding.explanation}; an earlier run was more precise")
    return merged


@attrs.frozen
class SuiteOptions:
    url: str
    workspace: str
    writes: str | None = None
    campaign: str | None = None
    headers: Sequence[str] = ()
    record: Path = Path("behaviour.toml")

    def build_access(self, environment: Mapping[str, str]) -> Access:
        if not self.url or not self.workspace:
            given = {"--outreach-live": self.url, "--outreach-workspace": self.workspace}
            missing = ", ".join(option for option, value in given.items() if not value)
            raise InvalidRequest(f"{missing}: expected a value, got none; pass both --outreach-live and --outreach-workspace")
        parse_base_url(self.url)
        owner_key = environment.get("OUTREACH_OWNER_KEY") or None
        if self.writes is None and self.campaign:
            raise InvalidRequest("--outreach-campaign: needs --allow-writes; pass --allow-writes, or omit --outreach-campaign")
        if self.writes not in {None, self.workspace}:
            raise InvalidRequest("--allow-writes: expected the id in --outreach-workspace, got a different id; pass the same id")
        if self.writes is not None and owner_key is None:
            raise InvalidRequest("--allow-writes: expected an owner key in OUTREACH_OWNER_KEY, got none; set the variable")
        return Access(
            self.workspace,
            owner_key,
            writes=self.writes is not None,
            campaign=self.campaign,
            headers=dict(_parse_header(header, environment) for header in self.headers),
        )


def _parse_header(header: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, equals, variable = header.partition("=")
    if not equals:
        remedy = "pass the name of an environment variable"
        raise InvalidRequest(f"--outreach-header: expected NAME=VARIABLE, got a value without '='; {remedy}")
    if variable not in environment:  # not shown, because it may be a secret that was passed by mistake
        raise InvalidRequest(
            "--outreach-header: expected the name of an environment variable in NAME=VARIABLE, got a variable that is not set; "
            "set it to the value of the header"
        )
    return name.strip().lower(), environment[variable]


@attrs.frozen
class SuiteResult:
    options: SuiteOptions
    measurement: Measurement
    before: KnobValues

    @property
    def unreachable(self) -> str:
        """Error message if the service is not reachable; empty if the service responded to a request."""
        exchanges = [self.measurement.survey.fields, *self.measurement.survey.list_exchanges]
        if any(exchange.response for exchange in exchanges):
            return ""
        reason = exchanges[0].error.removeprefix("no response: ")
        return f"{parse_base_url(self.options.url)} is not reachable: {reason}; check --outreach-live"

    @property
    def drifts(self) -> list[KnobDrift]:
        return find_drifts(self.before, self.measurement.findings)

    @property
    def calibration(self) -> Calibration:
        """The behaviour measured in this run. A knob that was not observed keeps the values of the earlier run."""
        return build_calibration(merge_earlier(self.before, self.measurement.findings))

    def save(self) -> None:
        about = (
            "Behaviour that the service's API documentation leaves open, as measured by outreach_async.conformance "
            f"at {parse_base_url(self.options.url)}.\n"
            "To configure a fake with this behaviour, load this file with outreach_async.fake.behaviour.load_behaviour."
        )
        atomic_write(self.options.record, self.calibration.to_toml(about))


async def run_suite(options: SuiteOptions, access: Access) -> SuiteResult:
    """Measure the service at the URL in the options, and load the values that an earlier run observed."""
    from outreach_async.transport._httpx import HttpxTransport

    before = load_knob_values(options.record) if options.record.exists() else {}
    async with aclosing(HttpxTransport(options.url)) as transport:
        return SuiteResult(options, await measure_service(transport, access, Patience()), before)


UNOBSERVABLE_KNOBS: Final[Mapping[str, str]] = {
    "overwrite_unsent": "no operation reads a contact back",
    "overwrite_blank": "no operation reads a contact back",
}
"""Knobs that no run measures, with the reason for each knob."""

_MAX_CAMPAIGNS_DISPLAY: Final = 100
_LIST_MEASURES: Final[Mapping[str, Callable[[WorkspaceSurvey], KnobFinding]]] = {
    "order": read_probes.measure_order,
    "numbers": read_probes.measure_numbers,
    "percent_digits": read_probes.measure_percent_digits,
    "list_date": read_probes.measure_list_date,
}
_WRITE_PROBES: Final[Mapping[str, Callable[[Requests], Dialogue[KnobFinding]]]] = {
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
        behaviour: A behaviour for a fake. A knob has its value in `observed`, or else the first of its values in `undecided`, or
            else its default value.
        observed: Observed value by knob. Contains the knobs for which exactly one value matches the service.
        undecided: Possible values by knob. Contains the knobs for which several values match the service.
        reasons: For each knob, how the value was observed, or why it was not observed.

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

    @property
    def unseen(self) -> dict[str, str]:
        """The knobs whose value was not observed, with the reason for each knob."""
        return {knob: why for knob, why in self.reasons.items() if knob not in self.observed and knob not in self.undecided}

    def to_toml(self, about: str = "") -> str:
        """Return the content of a file for `load_behaviour`, with a comment for each knob.

        Args:
            about: Description of the file, written to its first lines.

        Example:
            ```python
            measured = await calibrate(FakeTransport(fake), workspace="space_1")
            Path("behaviour.toml").write_text(measured.to_toml("measured in May"))
            ```
        """
        return dump_behaviour(self.behaviour, about=about, notes=self.reasons, undecided=self.undecided, unseen=self.unseen)


def build_calibration(findings: Mapping[str, KnobFinding]) -> Calibration:
    observed = {knob: found.possible[0] for knob, found in findings.items() if found.is_observed}
    undecided = {knob: found.possible for knob, found in findings.items() if len(found.possible) > 1}
    chosen = observed | {knob: possible[0] for knob, possible in undecided.items()}
    reasons = {knob: found.explanation for knob, found in findings.items()}
    return Calibration(Behaviour(**chosen), observed, undecided, reasons)


@attrs.frozen
class Measurement:
    access: Requests
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
    headers: Mapping[str, str] | None = None,
    patience: Patience | None = None,
) -> Calibration:
    """Measure the behaviour that the service's API documentation leaves open.

    By default, the function sends about 30 read-only requests, one at a time. With `writes`, it also creates at most 64 contacts,
    which are permanent.

    Args:
        transport: The transport to the service. It is not closed.
        workspace: Workspace id.
        owner_key: API key of a user of the workspace; required for `writes`.
        writes: Whether contacts may be created in the workspace.
        campaign: Id of a draft campaign that two contacts may join; `None` for no campaign.
        headers: Header fields to send, such as `authorization`.
        patience: Time limits of the requests; the default is `Patience()`.

    Raises:
        InvalidRequest: The arguments contradict each other.

    Example:
        ```python
        measured = await calibrate(FakeTransport(fake), workspace="space_1", owner_key="key_1", writes=True)
        print(measured.observed["created_status"], measured.undecided["email_key"])  # -> 201 ('lower', 'gmail')
        ```
    """
    fields = {name.lower(): value for name, value in (headers or {}).items()}
    access = Access(workspace, owner_key, writes=writes, campaign=campaign, headers=fields)
    return build_calibration((await measure_service(transport, access, patience or Patience())).findings)


async def measure_service(transport: Transport, access: Access, patience: Patience) -> Measurement:
    values = attrs.asdict(access, recurse=False) | {"hidden": tuple(getattr(transport, "secrets", ()))}
    requests = Requests(**values)
    runner = DialogueRunner(transport, patience, requests.secrets)
    measured = await runner.run(measure_knobs(requests))
    rate_limit = describe_rate_limit(runner.request_count, runner.retry_after_values)
    return attrs.evolve(measured, findings={**measured.findings, "rate_limit": rate_limit})


def describe_rate_limit(count: int, waits: list[str]) -> KnobFinding:
    """Return the finding about the rate limit (rule E4). No run tries to exceed the limit, so its value remains unknown."""
    if not waits:
        return unobserved(f"not tested: {count} requests were sent one at a time, and none was throttled")
    how = f"{len(waits)} of {count} requests were throttled, the first with Retry-After {waits[0]!r}"
    return unobserved(f"there is a rate limit, but its value is unknown: {how}")


def measure_knobs(access: Requests) -> Dialogue[Measurement]:
    # The finding for `rate_limit` is a placeholder. `measure_service` replaces it after all requests have been sent.
    survey = yield from survey_workspace(access)
    findings = dict.fromkeys(KNOB_NAMES, unobserved("no probe determines the value of this knob"))
    findings |= {knob: unobserved(why) for knob, why in UNOBSERVABLE_KNOBS.items()}
    findings["first_page"] = survey.first_page
    findings |= {knob: measure(survey) for knob, measure in _LIST_MEASURES.items()}
    findings |= yield from _run_read_probes(access, survey)
    trial = (yield from create_trial(access, survey)) if access.writes else None
    failure = trial.failure if trial else "creating contacts was not allowed"
    membership = None
    findings |= dict.fromkeys((*_WRITE_PROBES, "created_status", "unknown_custom", "skip_enrols", "reenrol"), unobserved(failure))
    if trial and not failure:
        findings["created_status"] = write_probes.measure_created_status(trial)
        findings["unknown_custom"] = yield from run_probe(write_probes.probe_unknown_custom(access, survey))
        for knob, probe in _WRITE_PROBES.items():
            findings[knob] = yield from run_probe(probe(access))
        most = min([_MAX_CAMPAIGNS_DISPLAY, *(maximum for maximum in findings["campaign_max_display"].possible if maximum)])
        enrolment, membership = yield from write_probes.probe_enrolment(access, survey.first_page_number, most)
        findings |= enrolment
    for knob, finding in findings.items():
        findings[knob] = attrs.evolve(finding, explanation=mask_string(finding.explanation, access.secrets))
    return Measurement(access, survey, trial, findings, membership)


def _run_read_probes(access: Requests, survey: WorkspaceSurvey) -> Dialogue[dict[str, KnobFinding]]:
    first, mailboxes, campaigns = survey.first_page_number, survey.mailbox_pages, survey.campaign_pages
    over = yield from _run_if_readable(mailboxes, read_probes.probe_over_max(access, first))
    maximum = yield from _run_if_readable(campaigns, read_probes.probe_campaign_max_display(access, first, over))
    return {
        "auth": (yield from run_probe(read_probes.probe_auth(access))),
        "error_renderer": (yield from run_probe(read_probes.probe_error_renderer(access))),
        "past_end": (yield from _run_if_readable(mailboxes, read_probes.probe_past_end(access, first))),
        "bad_number": (yield from _run_if_readable(mailboxes, read_probes.probe_bad_number(access, first))),
        "over_max": read_probes.refine_over_max(over, maximum),
        "campaign_max_display": maximum,
    }


def _run_if_readable(listed: PageSequence, probe: Dialogue[KnobFinding]) -> Dialogue[KnobFinding]:
    """Run a probe of a list, but only if the survey could read the list. Otherwise, return a finding without a value."""
    if listed.pages[0].exchange.payload is None:
        return unobserved("the list could not be read")
    return (yield from run_probe(probe))
