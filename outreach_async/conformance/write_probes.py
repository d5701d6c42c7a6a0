"""Measure the knobs that only creating contacts reveals (rules A2, C3, C4, C7, C10, C16, C20, C21 and C27).

Every contact has an address that nobody has. The contacts are permanent: the interface has no operation that deletes one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance.read_probes import Asked, Survey, ask
from outreach_async.conformance.target import (
    LEFT_OUT,
    OUTCOMES,
    Dialogue,
    Finding,
    Site,
    Unclear,
    accepted,
    among,
    number,
    rows,
    seen,
    served,
    unseen,
)
from outreach_async.fake.records import CUSTOM, RESERVED, STANDARD, custom_number
from outreach_async.transport.wire import Request

PAGES: Final = 300
"""Most pages of campaigns searched for the one that contacts may join."""

_BEYOND: Final = 1000
_OK: Final = 200
_CREATED: Final = 201

BAD: Final[Mapping[str, str]] = {
    **dict.fromkeys(STANDARD, "not \x07 valid"),
    **dict.fromkeys((code for code in STANDARD if code.endswith("_phone")), "not a phone number"),
    **dict.fromkeys((code for code in STANDARD if code.startswith("website")), "not a website"),
    **dict.fromkeys((code for code in STANDARD if code.endswith("_date")), "not a date"),
    "country": "Not a country",
    "timezone": "Not a timezone",
    "zip": "not \x07 a postal code",
    "stack_overflow": "not \x07 a handle",
}
"""For each standard field, a value that strict validation may be expected to refuse."""


REQUIRED: Final = ("owner_key", "workspace", "email", "upload_options", "duplicates", "strict_validation")
"""Members of a creation that the interface requires. `campaign` is also required, but a knob measures it (rule C7)."""


@attrs.frozen
class Trial:
    """The first creations: one contact with each duplicates option, one with every field, and one without each required member.

    Attributes:
        outcomes: Requests and responses, by the outcome that the interface states.
        fields: A creation with every field that all-fields lists; `None` if it lists none.
        lacking: Creations without a required member, by that member.
    """

    outcomes: Mapping[str, Asked]
    fields: Asked | None = None
    lacking: Mapping[str, Asked] = attrs.field(factory=dict)

    @property
    def trouble(self) -> str:
        """Why creations prove nothing; empty if the first one succeeded."""
        first = self.outcomes["added"]
        if first.answer is None:
            return first.trouble
        return "" if first.said else f"a plain creation was refused with {first.answer.status}"


@attrs.frozen
class Membership:
    """The number of contacts in a campaign's first step, as contacts are created.

    Attributes:
        asked: The last list of steps.
        before: The number before anything was created.
        joined: The number after a contact was created with the campaign.
        alone: The number after another was created without a campaign.
    """

    asked: Asked
    before: int
    joined: int
    alone: int


def trial_of(site: Site, survey: Survey) -> Dialogue[Trial]:
    """Create a contact, create it again with each duplicates option, and try creations that must be accepted or refused."""
    email = site.address("trial")
    outcomes = {}
    policies = ("skip", "skip", "overwrite", "update_missing_fields")
    for outcome, policy in zip(OUTCOMES, policies, strict=True):
        outcomes[outcome] = yield from ask(site.creation(email, policy, {"first_name": "Conformance"}))
    if outcomes["added"].said is None:
        return Trial(outcomes)
    codes = [row.get("code") for row in survey.fields.rows]
    given = {code: "Conformance" for code in codes if isinstance(code, str) and code not in RESERVED}
    fields = (yield from ask(site.creation(site.address("fields"), fields=given))) if given else None
    lacking = {}
    for member in REQUIRED:
        lacking[member] = yield from ask(_without(member, site.creation(site.address(f"without-{member}"))))
    return Trial(outcomes, fields, lacking)


def _without(member: str, creation: Request) -> Request:
    body = json.loads(creation.body)
    del (body if member in body else body["upload_options"])[member]
    return attrs.evolve(creation, body=json.dumps(body).encode())


def _custom_codes(survey: Survey) -> list[str]:
    codes = [row.get("code") for row in survey.fields.rows]
    return sorted((code for code in codes if isinstance(code, str) and CUSTOM.fullmatch(code)), key=custom_number)


def created_status(trial: Trial) -> Finding:
    """Find out the status of each outcome (rule C3)."""
    said = {name: asked for name, asked in trial.outcomes.items() if (asked.said or {}).get("status") == name}
    statuses = {name: asked.answer.status for name, asked in said.items() if asked.answer is not None}
    how = ", ".join(f"{name} {status}" for name, status in statuses.items())
    if "added" not in statuses or not set(statuses.values()) <= {_OK, _CREATED}:
        return unseen(f"statuses: {how or 'none'}")
    rest = {name: status for name, status in statuses.items() if name != "added" and status != _OK}
    if not rest:
        return seen(statuses["added"], how)
    return seen({"added": statuses["added"], **rest}, how)


def email_key(site: Site) -> Dialogue[Finding]:
    """Create a contact, then others with the same e-mail address spelled differently (rule C4)."""
    email = site.address("spelling")
    local, _, domain = email.partition("@")
    yield from _created(site.creation(email))
    same_domain = yield from _is_duplicate(site.creation(f"{local}@{domain.upper()}"))
    same_local = yield from _is_duplicate(site.creation(f"{local.upper()}@{domain}"))
    how = f"another letter case is {_same(same_local)} before the @ and {_same(same_domain)} after it"
    if not same_local:
        return seen("domain_lower" if same_domain else "exact", how)
    if not same_domain:
        return unseen(f"{how}, which matches no value of the knob")
    if not site.gmail:
        return among(("lower", "gmail"), f"{how}; no address at gmail.com was allowed, so Gmail's rules cannot be observed")
    return seen("gmail" if (yield from _ignores_dots(site)) else "lower", how)


def _same(same: bool) -> str:  # noqa: FBT001 - the only argument that matters
    return "the same contact" if same else "another contact"


def _ignores_dots(site: Site) -> Dialogue[bool]:
    # Gmail never assigns an address with a hyphen.
    yield from _created(site.creation(f"outreach-conformance-{site.nonce}@gmail.com"))
    return (yield from _is_duplicate(site.creation(f"outreach-conformance.-{site.nonce}+tag@gmail.com")))


def _created(request: Request) -> Dialogue[None]:
    if served((yield request)).get("status") != "added":
        raise Unclear("a new address was not added")


def _is_duplicate(request: Request) -> Dialogue[bool]:
    return bool(served((yield request)).get("status") != "added")


def owner_key(site: Site) -> Dialogue[Finding]:
    """Create contacts with owner keys that do not exist (rule A2)."""
    if not accepted((yield site.creation(site.address("unknown-key"), key=f"key_conformance{site.nonce}"))):
        return seen("check", "an unknown key was refused")
    if not accepted((yield site.creation(site.address("no-key"), key=f"conformance{site.nonce}"))):
        return seen("prefix_only", "an unknown key was accepted, one without key_ refused")
    return seen("off", "an unknown key without key_ was accepted")


def unknown_custom(site: Site, survey: Survey) -> Dialogue[Finding]:
    """Send a custom field that the workspace does not have (rule C20)."""
    if survey.fields.said is None:
        return unseen("the fields of the workspace could not be read, so no unknown field is known")
    known = _custom_codes(survey)
    code = f"custom_{(custom_number(known[-1]) if known else 0) + _BEYOND}"
    if not accepted((yield site.creation(site.address("unknown-custom"), fields={code: "x"}))):
        return seen("reject", f"{code} was refused")
    return among(("ignore", "store"), f"{code} was accepted; no operation shows whether it was stored")


def unknown_body(site: Site) -> Dialogue[Finding]:
    """Send a field that is not in the interface (rule C21)."""
    if not accepted((yield site.creation(site.address("unknown-field"), fields={"outreach_conformance": "x"}))):
        return seen("reject", "an unknown field was refused")
    return among(("ignore", "store"), "an unknown field was accepted; no operation shows whether it was stored")


def missing_campaign(site: Site) -> Dialogue[Finding]:
    """Omit `upload_options.campaign`, then send it empty (rule C7)."""
    left_out = accepted((yield site.creation(site.address("no-campaign"), options={"campaign": LEFT_OUT})))
    empty = accepted((yield site.creation(site.address("empty-campaign"), options={"campaign": ""})))
    if left_out != empty:
        return unseen(
            f"{'an omitted' if left_out else 'an empty'} campaign was accepted, the other refused: matches no value of the knob"
        )
    return seen("null", "accepted without a campaign") if left_out else seen("reject", "refused without a campaign")


def strict_fields(site: Site) -> Dialogue[Finding]:
    """Send invalid values with strict validation (rule C27)."""
    strict = {"strict_validation": True}
    if not accepted((yield site.creation(site.address("lax"), fields=BAD))):
        return unseen("invalid values are refused without strict validation, too")
    refused = []
    if not accepted((yield site.creation(site.address("strict"), fields=BAD, options=strict))):
        for code, value in BAD.items():
            if not accepted((yield site.creation(site.address(f"strict-{code}"), fields={code: value}, options=strict))):
                refused.append(code)
    if not accepted((yield site.creation(f"not an e-mail {site.address('strict')}", options=strict))):
        refused.append("email")
    how = f"invalid values are refused in {len(refused)} of {len(BAD) + 1} fields"
    return seen("all" if len(refused) > len(BAD) else frozenset(refused), how)


def enrolment(site: Site, first: int, display: int) -> Dialogue[tuple[dict[str, Finding], Membership | None]]:
    """Let two contacts join the campaign, and find out which did (rules C7, C10 and C16).

    Args:
        site: The workspace and credentials.
        first: The number of the first page.
        display: Campaigns per page that may be requested.

    Returns:
        The findings, and the counts of the campaign; `None` if it is not confirmed to be the draft that contacts may join.
    """
    if site.campaign is None:
        return _no_enrolment("no campaign was given that contacts may join"), None
    try:
        yield from _check_draft(site, first, display)
        member, guest, options = site.address("member"), site.address("guest"), {"campaign": site.campaign}
        before, _ = yield from _queue(site)
        yield from _created(site.creation(member, options=options))
        joined, _ = yield from _queue(site)
        yield from _created(site.creation(guest))
        alone, asked = yield from _queue(site)
    except Unclear as unclear:
        return _no_enrolment(str(unclear)), None
    counted = Membership(asked, before, joined, alone)
    if (joined, alone) != (before + 1, joined):
        why = f"with a campaign, {before} contacts became {joined}, and then without one {alone}"
        return _no_enrolment(f"the campaign does not count the contacts that joined: {why}"), counted
    try:
        return (yield from _enrolled_again(site, member, guest, joined)), counted
    except Unclear as unclear:
        return _no_enrolment(str(unclear)), counted


def _enrolled_again(site: Site, member: str, guest: str, joined: int) -> Dialogue[dict[str, Finding]]:
    """Create contacts again, of which one is in the campaign and one is not."""
    options = {"campaign": site.campaign}
    served((yield site.creation(guest, options=options)))
    after, _ = yield from _queue(site)
    how = f"skipped with a campaign: {joined} contacts became {after}"
    skip = seen(after == joined + 1, how) if after in {joined, joined + 1} else unseen(how)
    again = accepted((yield site.creation(member, "overwrite", options=options)))
    return {"skip_enrols": skip, "reenrol": _reenrol(again)}


def _no_enrolment(why: str) -> dict[str, Finding]:
    return dict.fromkeys(("skip_enrols", "reenrol"), unseen(why))


def _reenrol(again: bool) -> Finding:  # noqa: FBT001 - the only argument that matters
    if not again:
        return seen("error", "joining a campaign again was refused")
    return among(
        ("noop", "restart"), "joining a campaign again was accepted; a draft does not show whether it restarts the contact"
    )


def _check_draft(site: Site, first: int, display: int) -> Dialogue[None]:
    for page in range(first, first + PAGES):
        said = served((yield site.page("campaigns", page, display)))
        for row in rows(said):
            if row.get("id") == site.campaign:
                if row.get("status") != "draft":
                    raise Unclear("the campaign is not a draft: its contacts might be sent e-mail")
                return
        if page - first + 1 >= number(said, "total_pages"):
            break
    raise Unclear("the campaign is not listed in the workspace")


def _queue(site: Site) -> Dialogue[tuple[int, Asked]]:
    """Return the number of contacts in the campaign's first step, and the request and response."""
    asked = Asked(request := site.steps(str(site.campaign)), (yield request))
    steps: list[dict[str, Any]] = asked.rows
    if not steps or not isinstance(steps[0].get("out_of"), int):
        raise Unclear("the campaign has no step with a count of its contacts")
    return int(steps[0]["out_of"]), asked
