"""Measure behaviour that the service's API documentation leaves open, compare it with an earlier run, and save it to a file."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import anyio
import attrs

from outreach_async import Transport
from outreach_async._plumbing import atomic_write, mask_string, parse_base_url, require_headers, trim
from outreach_async.conformance import _probes as probes
from outreach_async.conformance._probes import Access, KnobFinding, run_probe, unobserved
from outreach_async.errors import InvalidRequest
from outreach_async.fake.behaviour import KNOB_NAMES, Behaviour, HeaderAuth, dump_behaviour, load_knob_values

MAX_CONTACTS: Final = 64  # maximum number of contacts that a run creates if writes are allowed


def describe_run(access: Access) -> str:
    if not access.writes:
        return f"The run only reads workspace {access.workspace}. It creates no contacts."
    joining = (
        f"Two of them join the campaign {access.campaign} if it is a draft." if access.campaign else "None joins a campaign."
    )
    return (
        f"The run creates up to {MAX_CONTACTS} contacts in workspace {access.workspace}, with addresses at {probes.DOMAIN}. "
        f"They are permanent: the API has no operation that deletes a contact. {joining}"
    )


KnobValues = Mapping[str, tuple[Any, ...]]  # possible values by knob, as loaded from a behaviour file


def find_drifts(before: KnobValues, findings: Mapping[str, KnobFinding]) -> list[str]:
    """Describe each knob whose value has changed since an earlier run. Only knobs that both runs observed are compared."""
    return [
        f"{knob} was {_format_values(before[knob])}, is now {_format_values(now.possible)}: {now.explanation}"
        for knob, now in findings.items()
        if before.get(knob) and now.possible and not _find_shared(before[knob], now.possible)
    ]


def _format_values(values: tuple[Any, ...]) -> str:
    return " or ".join(repr(sorted(value) if isinstance(value, frozenset) else value) for value in values)


def _find_shared(before: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[Any, ...]:
    # Without tokens, which are secrets and are never measured.
    known = [attrs.evolve(old, tokens=()) if isinstance(old, HeaderAuth) else old for old in before]
    return tuple(new for new in now if new in known)


def merge_earlier(before: KnobValues, findings: Mapping[str, KnobFinding]) -> dict[str, KnobFinding]:
    """Combine the findings of this run with the values that an earlier run observed."""
    # If both runs observed values of a knob and have some in common, only these remain.
    merged = dict(findings)
    for knob, finding in findings.items():
        was = before.get(knob, ())
        shared = _find_shared(was, finding.possible)
        if was and not finding.possible:
            merged[knob] = KnobFinding(was, f"observed by an earlier run, but not now: {finding.explanation}")
        elif shared and shared != finding.possible:
            merged[knob] = KnobFinding(shared, f"{finding.explanation}; an earlier run was more precise")
    return merged


def build_access(options: Namespace, environment: Mapping[str, str]) -> Access:
    live, workspace, writes = options.outreach_live, trim(options.outreach_workspace), trim(options.allow_writes)
    if not live or not workspace:
        missing = ", ".join(["--outreach-live"] * (not live) + ["--outreach-workspace"] * (not workspace))
        raise InvalidRequest(f"{missing}: expected a value, got none; pass both --outreach-live and --outreach-workspace")
    parse_base_url(live)
    owner_key = trim(environment.get("OUTREACH_OWNER_KEY"))
    if writes is None and options.outreach_campaign:
        raise InvalidRequest("--outreach-campaign: needs --allow-writes; pass --allow-writes, or omit --outreach-campaign")
    if writes not in {None, workspace}:
        raise InvalidRequest("--allow-writes: expected the id in --outreach-workspace, got a different id; pass the same id")
    if writes is not None and owner_key is None:
        raise InvalidRequest("--allow-writes: expected an owner key in OUTREACH_OWNER_KEY, got none; set the variable")
    headers = dict(_parse_header(header, environment) for header in options.outreach_header)
    return Access(workspace, owner_key, writes=writes is not None, campaign=options.outreach_campaign, headers=headers)


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
    value = environment[variable].strip()
    require_headers({name.strip(): value})
    return name.strip(), value


@attrs.frozen
class SuiteResult:
    url: str
    record: Path
    measurement: Measurement
    before: KnobValues

    @property
    def unreachable(self) -> str:
        """Error message if the service responded to no request; otherwise empty."""
        exchanges = [self.measurement.survey.fields, *self.measurement.survey.list_exchanges]
        if any(exchange.response for exchange in exchanges):
            return ""
        reason = exchanges[0].error.removeprefix("no response: ")
        return f"{parse_base_url(self.url)} is not reachable: {reason}; check --outreach-live"

    @property
    def drifts(self) -> list[str]:
        return find_drifts(self.before, self.measurement.findings)

    @property
    def calibration(self) -> Calibration:
        return build_calibration(merge_earlier(self.before, self.measurement.findings))

    def save(self) -> None:
        about = (
            "Behaviour that the service's API documentation leaves open, as measured by outreach_async.conformance "
            f"at {parse_base_url(self.url)}.\n"
            "To configure a fake with this behaviour, load this file with outreach_async.fake.behaviour.load_behaviour."
        )
        atomic_write(self.record, self.calibration.to_toml(about))


def run_suite(url: str, record: Path, access: Access) -> SuiteResult:
    from outreach_async import HttpxTransport

    async def measure() -> Measurement:
        async with aclosing(HttpxTransport(url)) as transport:
            return await measure_service(transport, access)

    before = load_knob_values(record) if record.exists() else {}
    return SuiteResult(url, record, anyio.run(measure), before)


_WRITE_PROBES: Final[Mapping[str, probes.Probe]] = {
    "email_key": probes.probe_email_key,
    "owner_key": probes.probe_owner_key,
    "unknown_body": probes.probe_unknown_body,
    "missing_campaign": probes.probe_missing_campaign,
    "strict_fields": probes.probe_strict_fields,
}


@attrs.frozen
class Calibration:
    """The measured behaviour of a service.

    Attributes:
        behaviour: A behaviour for a fake. A knob has its observed value,
            or the first undecided one, or its default.
        observed: Value by knob, of the knobs for which exactly one value
            matches the service.
        undecided: Possible values by knob, of the knobs for which several
            values match the service.
        reasons: For each knob, how the value was observed, or why it was
            not observed.

    Example:
        ```python
        measured = await calibrate(FakeTransport(fake), Access("space_1"))
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
        """The knobs whose value was not observed, each with the reason."""
        return {knob: why for knob, why in self.reasons.items() if knob not in self.observed and knob not in self.undecided}

    def to_toml(self, about: str = "") -> str:
        """Return a file for `load_behaviour`: `about`, then commented knobs.

        Example:
            ```python
            measured = await calibrate(FakeTransport(fake), Access("space_1"))
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
    access: probes.Requests
    survey: probes.WorkspaceSurvey
    trial: probes.TrialCreations | None
    findings: Mapping[str, KnobFinding]
    membership: probes.MembershipCounts | None = None


async def calibrate(transport: Transport, access: Access) -> Calibration:
    """Measure the behaviour that the service's API documentation leaves open.

    It sends about 30 read-only requests, one at a time. With
    `access.writes`, it also creates at most 64 contacts, which are
    permanent. The arguments are those of `check`.

    Example:
        ```python
        measured = await calibrate(FakeTransport(fake), Access("space_1", owner_key="key_1", writes=True))
        print(measured.observed["created_status"], measured.undecided["email_key"])  # -> 201 ('lower', 'gmail')
        ```
    """
    return build_calibration((await measure_service(transport, access)).findings)


async def measure_service(transport: Transport, access: Access, max_throttled: float = probes.MAX_THROTTLED) -> Measurement:
    secrets = probes.secrets_of(access, transport)
    sender = probes.Sender(transport, secrets, max_throttled)
    requests = probes.Requests(**attrs.asdict(access, recurse=False), send=sender.send, secrets=secrets)
    survey = await probes.survey_workspace(requests)
    findings = dict.fromkeys(KNOB_NAMES, unobserved("no probe determines the value of this knob"))
    findings |= dict.fromkeys(("overwrite_unsent", "overwrite_blank"), unobserved("no operation reads a contact back"))
    findings |= await probes.run_read_probes(requests, survey)
    trial = await probes.create_trial(requests, survey) if access.writes else None
    failure = trial.failure if trial else "creating contacts was not allowed"
    membership = None
    findings |= dict.fromkeys((*_WRITE_PROBES, "created_status", "unknown_custom", "skip_enrols", "reenrol"), unobserved(failure))
    if trial and not failure:
        findings["created_status"] = probes.measure_created_status(trial)
        findings["unknown_custom"] = await run_probe(probes.probe_unknown_custom, requests, survey)
        for knob, probe in _WRITE_PROBES.items():
            findings[knob] = await run_probe(probe, requests)
        most = min([100, *(maximum for maximum in findings["campaign_max_display"].possible if maximum)])
        enrolment, membership = await probes.probe_enrolment(requests, survey.first_page_number, most)
        findings |= enrolment
    # No run tries to exceed the rate limit (rule E4), so its value remains unknown.
    count, waits = sender.request_count, sender.retry_after_values
    how = f"not tested: {count} requests were sent one at a time, and none was throttled"
    if waits:
        how = "there is a rate limit, but its value is unknown: "
        how += f"{len(waits)} of {count} requests were throttled, the first with Retry-After {waits[0]!r}"
    findings["rate_limit"] = unobserved(how)
    for knob, finding in findings.items():
        findings[knob] = attrs.evolve(finding, explanation=mask_string(finding.explanation, secrets))
    return Measurement(requests, survey, trial, findings, membership)
