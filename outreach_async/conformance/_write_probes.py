"""Measure the service behaviours that can be observed only by creating contacts.

Every created contact has an e-mail address that does not exist. Contacts are permanent: no operation deletes a contact.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from outreach_async import Request
from outreach_async.conformance._read_probes import HttpExchange, WorkspaceSurvey, send_once
from outreach_async.conformance._target import (
    CUSTOM_CODE,
    NO_MATCH,
    OUTCOMES,
    Dialogue,
    InconclusiveError,
    KnobFinding,
    Requests,
    ambiguous,
    extract_rows,
    is_accepted,
    observed,
    require_integer,
    require_success,
    unobserved,
)
from outreach_async.models import STANDARD_FIELDS

_MAX_CAMPAIGN_PAGES: Final = 300  # maximum number of pages of the campaign list that are searched for `access.campaign`
_CODE_OFFSET: Final = 1000
_RESERVED: Final = frozenset({"owner_key", "workspace", "email", "upload_options"})  # keys of a create request that are no field
_OK: Final = 200
_CREATED: Final = 201

INVALID_VALUES: Final[Mapping[str, str]] = {
    **dict.fromkeys(STANDARD_FIELDS, "not \x07 valid"),
    **dict.fromkeys((code for code in STANDARD_FIELDS if code.endswith("_phone")), "not a phone number"),
    **dict.fromkeys((code for code in STANDARD_FIELDS if code.startswith("website")), "not a website"),
    **dict.fromkeys((code for code in STANDARD_FIELDS if code.endswith("_date")), "not a date"),
    "country": "Not a country",
    "timezone": "Not a timezone",
    "zip": "not \x07 a postal code",
    "stack_overflow": "not \x07 a handle",
}
"""For each standard field, an invalid value that strict validation is likely to refuse."""

# A knob determines whether `campaign` is required too (rule C7).
_REQUIRED_MEMBERS: Final = ("owner_key", "workspace", "email", "upload_options", "duplicates", "strict_validation")


@attrs.frozen
class TrialCreations:
    """The first creations: with each `duplicates` option, with every field, and without each required key."""

    outcomes: Mapping[str, HttpExchange]
    other_new: Mapping[str, HttpExchange] = attrs.field(factory=dict)
    fields: HttpExchange | None = None
    incomplete: Mapping[str, HttpExchange] = attrs.field(factory=dict)

    @property
    def failure(self) -> str:
        """The reason why the first create request failed, so that nothing can be measured; empty if it succeeded."""
        first = self.outcomes["added"]
        if first.response is None:
            return first.error
        return "" if first.payload else f"a plain create request was refused with {first.response.status}"


@attrs.frozen
class MembershipCounts:
    exchange: HttpExchange
    before: int
    after_joining: int
    after_other: int


def create_trial(access: Requests, survey: WorkspaceSurvey) -> Dialogue[TrialCreations]:
    email = access.address("trial")
    outcomes = {}
    for outcome, policy in zip(OUTCOMES, ("skip", "skip", "overwrite", "update_missing_fields"), strict=True):
        outcomes[outcome] = yield from send_once(access.creation(email, policy, {"first_name": "Conformance"}))
    if outcomes["added"].payload is None:
        return TrialCreations(outcomes)
    other_new = {}
    for policy in ("overwrite", "update_missing_fields"):
        other_new[policy] = yield from send_once(access.creation(access.address(f"new-{policy}"), policy))
    codes = [row.get("code") for row in survey.fields.rows]
    given = {code: "Conformance" for code in codes if isinstance(code, str) and code not in _RESERVED}
    fields = (yield from send_once(access.creation(access.address("fields"), fields=given))) if given else None
    incomplete = {}
    for member in _REQUIRED_MEMBERS:
        incomplete[member] = yield from send_once(access.creation(access.address(f"without-{member}"), omit=member))
    return TrialCreations(outcomes, other_new, fields, incomplete)


def measure_created_status(trial: TrialCreations) -> KnobFinding:
    """Find out the HTTP status of the response for each outcome of a create request (rule C3)."""
    document = {name: exchange for name, exchange in trial.outcomes.items() if (exchange.payload or {}).get("status") == name}
    statuses = {name: exchange.response.status for name, exchange in document.items() if exchange.response is not None}
    how = ", ".join(f"{name} {status}" for name, status in statuses.items())
    if "added" not in statuses or not set(statuses.values()) <= {_OK, _CREATED}:
        return unobserved(f"no value of this knob matches the observed HTTP statuses ({how or 'none'})")
    rest = {name: status for name, status in statuses.items() if name != "added" and status != _OK}
    return observed({"added": statuses["added"], **rest} if rest else statuses["added"], how)


def probe_email_key(access: Requests) -> Dialogue[KnobFinding]:
    """Find out which spellings of an e-mail address the service treats as the same contact (rule C4)."""
    email = access.address("spelling")
    local, _, domain = email.partition("@")
    yield from _require_added(access.creation(email))
    same = {}
    for part, spelling in (("before", f"{local.upper()}@{domain}"), ("after", f"{local}@{domain.upper()}")):
        same[part] = require_success((yield access.creation(spelling))).get("status") != "added"
    found = (f"{part} the @, a different letter case means {'the same' if same[part] else 'another'} contact" for part in same)
    how = "; ".join(found)
    if not same["before"]:
        return observed("domain_lower" if same["after"] else "exact", how)
    if not same["after"]:
        return unobserved(f"{how}; {NO_MATCH}")
    return ambiguous(("lower", "gmail"), f"{how}; no contact at gmail.com is created, because its address could be a real one")


def _require_added(request: Request) -> Dialogue[None]:
    if require_success((yield request)).get("status") != "added":
        raise InconclusiveError("a contact with a new address was not added")


def probe_owner_key(access: Requests) -> Dialogue[KnobFinding]:
    """Find out whether the service accepts owner keys that do not exist (rule A2)."""
    if not is_accepted((yield access.creation(access.address("unknown-key"), key=f"key_conformance{access.nonce}"))):
        return observed("check", "an unknown key was refused")
    if not is_accepted((yield access.creation(access.address("no-key"), key=f"conformance{access.nonce}"))):
        return observed("prefix_only", "an unknown key was accepted, but a key without the prefix key_ was refused")
    return observed("off", "an unknown key without the prefix key_ was accepted")


def probe_unknown_custom(access: Requests, survey: WorkspaceSurvey) -> Dialogue[KnobFinding]:
    """Find out how the service handles a custom field that the workspace does not have (rule C20)."""
    if survey.fields.payload is None:
        return unobserved("the fields of the workspace could not be read, so no custom field is known to be unknown")
    codes = [row.get("code") for row in survey.fields.rows]
    numbers = [int(code[len("custom_") :]) for code in codes if isinstance(code, str) and CUSTOM_CODE.fullmatch(code)]
    code = f"custom_{max(numbers, default=0) + _CODE_OFFSET}"
    return (yield from _probe_unknown(access.creation(access.address("unknown-custom"), fields={code: "x"}), code))


def probe_unknown_body(access: Requests) -> Dialogue[KnobFinding]:
    """Find out how the service handles a field that is not in the API documentation (rule C21)."""
    creation = access.creation(access.address("unknown-field"), fields={"outreach_conformance": "x"})
    return (yield from _probe_unknown(creation, "an unknown field"))


def _probe_unknown(creation: Request, name: str) -> Dialogue[KnobFinding]:
    if not is_accepted((yield creation)):
        return observed("reject", f"{name} was refused")
    return ambiguous(("ignore", "store"), f"{name} was accepted; no operation shows whether it was stored")


def probe_missing_campaign(access: Requests) -> Dialogue[KnobFinding]:
    """Find out whether the service accepts an omitted or empty `upload_options.campaign` (rule C7)."""
    left_out = is_accepted((yield access.creation(access.address("no-campaign"), omit="campaign")))
    empty = is_accepted((yield access.creation(access.address("empty-campaign"), options={"campaign": ""})))
    forms = {"without the key campaign": left_out, "with an empty campaign": empty}
    how = "; ".join(f"a create request {form} was {'accepted' if fits else 'refused'}" for form, fits in forms.items())
    if left_out != empty:
        return unobserved(f"{how}; {NO_MATCH}")
    return observed("null" if left_out else "reject", how)


def probe_strict_fields(access: Requests) -> Dialogue[KnobFinding]:
    """Find out in which fields strict validation refuses invalid values (rule C27)."""
    strict = {"strict_validation": True}
    if not is_accepted((yield access.creation(access.address("lax"), fields=INVALID_VALUES))):
        return unobserved("invalid values are refused even without strict validation")
    refused = []
    if not is_accepted((yield access.creation(access.address("strict"), fields=INVALID_VALUES, options=strict))):
        for code, value in INVALID_VALUES.items():
            if not is_accepted((yield access.creation(access.address(f"strict-{code}"), fields={code: value}, options=strict))):
                refused.append(code)
    if not is_accepted((yield access.creation(f"not an e-mail {access.address('strict')}", options=strict))):
        refused.append("email")
    how = f"invalid values are refused in {len(refused)} of {len(INVALID_VALUES) + 1} fields"
    return observed("all" if len(refused) > len(INVALID_VALUES) else frozenset(refused), how)


def probe_enrolment(
    access: Requests, first: int, display: int
) -> Dialogue[tuple[dict[str, KnobFinding], MembershipCounts | None]]:
    """Create contacts with and without `access.campaign`, and count the campaign's contacts (rules C7, C10 and C16)."""
    counts = None
    try:
        yield from _require_draft(access, first, display)
        member, guest, options = access.address("member"), access.address("guest"), {"campaign": access.campaign}
        before, _ = yield from _read_first_step(access)
        yield from _require_added(access.creation(member, options=options))
        joined, _ = yield from _read_first_step(access)
        yield from _require_added(access.creation(guest))
        alone, exchange = yield from _read_first_step(access)
        counts = MembershipCounts(exchange, before, joined, alone)
        return (yield from _probe_reenrolment(access, member, guest, counts)), counts
    except InconclusiveError as error:
        return dict.fromkeys(("skip_enrols", "reenrol"), unobserved(str(error))), counts


def _probe_reenrolment(access: Requests, member: str, guest: str, counts: MembershipCounts) -> Dialogue[dict[str, KnobFinding]]:
    """Send create requests with the campaign for two existing contacts. `member` is already in the campaign; `guest` is not."""
    joined, options = counts.after_joining, {"campaign": access.campaign}
    if (joined, counts.after_other) != (counts.before + 1, joined):
        why = f"{counts.before} contacts at first, {joined} after a create request with the campaign"
        why += f", {counts.after_other} after a create request without a campaign"
        raise InconclusiveError(f"the counts of the campaign do not show which contacts joined: {why}")
    require_success((yield access.creation(guest, options=options)))
    after, _ = yield from _read_first_step(access)
    how = f"a create request with the campaign was skipped; the campaign had {joined} contacts before it, and {after} after it"
    skip = observed(after == joined + 1, how) if after in {joined, joined + 1} else unobserved(how)
    again = is_accepted((yield access.creation(member, "overwrite", options=options)))
    how = f"adding a contact to its campaign again was {'accepted' if again else 'refused'}"
    return {"skip_enrols": skip, "reenrol": observed("noop" if again else "error", how)}


def _require_draft(access: Requests, first: int, display: int) -> Dialogue[None]:
    if access.campaign is None:
        raise InconclusiveError("no campaign was given for contacts to join")
    for page in range(first, first + _MAX_CAMPAIGN_PAGES):
        document = require_success((yield access.page("campaigns", page, display)))
        for row in extract_rows(document):
            if row.get("id") == access.campaign:
                if row.get("status") != "draft":
                    raise InconclusiveError("the campaign is not a draft, so it might send e-mail to new contacts")
                return
        if page - first + 1 >= require_integer(document, "total_pages"):
            break
    raise InconclusiveError("the campaign was not found in the workspace's list of campaigns")


def _read_first_step(access: Requests) -> Dialogue[tuple[int, HttpExchange]]:
    """Return the number of contacts in the campaign's first step, and the request and response."""
    exchange = HttpExchange(request := access.steps(str(access.campaign)), (yield request))
    steps: list[dict[str, Any]] = exchange.rows
    if not steps or not isinstance(steps[0].get("out_of"), int):
        raise InconclusiveError("the campaign has no steps, or its first step has no contact count")
    return int(steps[0]["out_of"]), exchange
