"""Knobs that show only when contacts are created (rules A2, C3, C4, C7, C10, C16, C20, C21 and C27).

Every contact has an address that nobody has. They stay: the interface has no operation that removes one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import attrs

from outreach_async.conformance.findings import Finding, among, seen, unseen
from outreach_async.conformance.site import LEFT_OUT, OUTCOMES, Dialogue, Site, Unclear, accepted, number, rows, served
from outreach_async.conformance.survey import Asked, Survey, ask
from outreach_async.fake.fields import CUSTOM, RESERVED, STANDARD, custom_number
from outreach_async.transport.wire import Request

PAGES: Final = 300
"""Pages of campaigns that are looked through for the one that contacts may join."""

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
"""A value for each standard field that strict validation may be expected to refuse."""


REQUIRED: Final = ("owner_key", "workspace", "email", "upload_options", "duplicates", "strict_validation")
"""Members of a creation that the interface requires. `campaign` is another one; a knob says what becomes of it (rule C7)."""


@attrs.frozen
class Trial:
    """One contact created with each duplicates option, once with every field, and once without each required member.

    Attributes:
        outcomes: What was asked, by the outcome that the interface states for it.
        fields: A creation with every field that all-fields lists; `None` if it lists none.
        lacking: Creations without a required member, by the member.
    """

    outcomes: Mapping[str, Asked]
    fields: Asked | None = None
    lacking: Mapping[str, Asked] = attrs.field(factory=dict)

    @property
    def trouble(self) -> str:
        """Why creations say nothing; empty if the first one was carried out."""
        first = self.outcomes["added"]
        if first.answer is None:
            return first.trouble
        return "" if first.said else f"a plain creation was refused with {first.answer.status}"


@attrs.frozen
class Membership:
    """Contacts that go through a campaign's first step, as contacts are created.

    Attributes:
        asked: The last list of steps.
        before: Before anything was created.
        joined: After a contact was created with the campaign.
        alone: After another was created without one.
    """

    asked: Asked
    before: int
    joined: int
    alone: int


def trial_of(site: Site, survey: Survey) -> Dialogue[Trial]:
    """Create a contact, create it again with each duplicates option, and try what must be taken and what must be refused."""
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
    """Read the statuses of the outcomes (rule C3)."""
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
    """Create a contact, then others with an e-mail that is spelled another way (rule C4)."""
    email = site.address("spelling")
    local, _, domain = email.partition("@")
    yield from _created(site.creation(email))
    same_domain = yield from _is_duplicate(site.creation(f"{local}@{domain.upper()}"))
    same_local = yield from _is_duplicate(site.creation(f"{local.upper()}@{domain}"))
    how = f"another letter case is {_same(same_local)} before the @ and {_same(same_domain)} behind it"
    if not same_local:
        return seen("domain_lower" if same_domain else "exact", how)
    if not same_domain:
        return unseen(f"{how}, which is no reading")
    if not site.gmail:
        return among(("lower", "gmail"), f"{how}; no address at gmail.com was allowed, so Gmail's rules would not show")
    return seen("gmail" if (yield from _ignores_dots(site)) else "lower", how)


def _same(same: bool) -> str:  # noqa: FBT001 - the one thing it is about
    return "the same" if same else "another contact"


def _ignores_dots(site: Site) -> Dialogue[bool]:
    # Gmail gives nobody an address with a hyphen.
    yield from _created(site.creation(f"outreach-conformance-{site.nonce}@gmail.com"))
    return (yield from _is_duplicate(site.creation(f"outreach-conformance.-{site.nonce}+tag@gmail.com")))


def _created(request: Request) -> Dialogue[None]:
    if served((yield request)).get("status") != "added":
        raise Unclear("a new address was not added")


def _is_duplicate(request: Request) -> Dialogue[bool]:
    return bool(served((yield request)).get("status") != "added")


def owner_key(site: Site) -> Dialogue[Finding]:
    """Create with keys that nobody has (rule A2)."""
    if not accepted((yield site.creation(site.address("unknown-key"), key=f"key_conformance{site.nonce}"))):
        return seen("check", "an unknown key was refused")
    if not accepted((yield site.creation(site.address("no-key"), key=f"conformance{site.nonce}"))):
        return seen("prefix_only", "an unknown key was taken, one without key_ refused")
    return seen("off", "an unknown key without key_ was taken")


def unknown_custom(site: Site, survey: Survey) -> Dialogue[Finding]:
    """Send a custom field that the workspace has not (rule C20)."""
    if survey.fields.said is None:
        return unseen("the fields of the workspace could not be read, so none is known to be unknown")
    known = _custom_codes(survey)
    code = f"custom_{(custom_number(known[-1]) if known else 0) + _BEYOND}"
    if not accepted((yield site.creation(site.address("unknown-custom"), fields={code: "x"}))):
        return seen("reject", f"{code} was refused")
    return among(("ignore", "store"), f"{code} was taken; no operation shows whether it was stored")


def unknown_body(site: Site) -> Dialogue[Finding]:
    """Send a field that the interface does not name (rule C21)."""
    if not accepted((yield site.creation(site.address("unknown-field"), fields={"outreach_conformance": "x"}))):
        return seen("reject", "an unknown field was refused")
    return among(("ignore", "store"), "an unknown field was taken; no operation shows whether it was stored")


def missing_campaign(site: Site) -> Dialogue[Finding]:
    """Leave `upload_options.campaign` out, then send it empty (rule C7)."""
    left_out = accepted((yield site.creation(site.address("no-campaign"), options={"campaign": LEFT_OUT})))
    empty = accepted((yield site.creation(site.address("empty-campaign"), options={"campaign": ""})))
    if left_out != empty:
        return unseen(f"a campaign {'left out' if left_out else 'that is empty'} was taken, the other refused: neither reading")
    return seen("null", "taken without a campaign") if left_out else seen("reject", "refused without a campaign")


def strict_fields(site: Site) -> Dialogue[Finding]:
    """Send values that are wrong, with strict validation (rule C27)."""
    strict = {"strict_validation": True}
    if not accepted((yield site.creation(site.address("lax"), fields=BAD))):
        return unseen("wrong values are refused without strict validation, too")
    refused = []
    if not accepted((yield site.creation(site.address("strict"), fields=BAD, options=strict))):
        for code, value in BAD.items():
            if not accepted((yield site.creation(site.address(f"strict-{code}"), fields={code: value}, options=strict))):
                refused.append(code)
    if not accepted((yield site.creation(f"not an e-mail {site.address('strict')}", options=strict))):
        refused.append("email")
    how = f"wrong values are refused in {len(refused)} of {len(BAD) + 1} fields"
    return seen("all" if len(refused) > len(BAD) else frozenset(refused), how)


def enrolment(site: Site, first: int, display: int) -> Dialogue[tuple[dict[str, Finding], Membership | None]]:
    """Let two contacts join the campaign, and see who did (rules C7, C10 and C16).

    Args:
        site: Whom to ask.
        first: The number of the first page.
        display: Campaigns a page that may be asked for.

    Returns:
        What was found, and what the campaign counted; `None` if it is not known to be the draft that contacts may join.
    """
    if site.campaign is None:
        return _no_enrolment("no campaign was named that contacts may join"), None
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
        why = f"with a campaign {before} contacts became {joined}, and then without one {alone}"
        return _no_enrolment(f"new contacts were not counted where they joined: {why}"), counted
    try:
        return (yield from _enrolled_again(site, member, guest, joined)), counted
    except Unclear as unclear:
        return _no_enrolment(str(unclear)), counted


def _enrolled_again(site: Site, member: str, guest: str, joined: int) -> Dialogue[dict[str, Finding]]:
    """Create contacts again that are in the campaign, and that are not."""
    options = {"campaign": site.campaign}
    served((yield site.creation(guest, options=options)))
    after, _ = yield from _queue(site)
    how = f"skipped with a campaign: {joined} contacts became {after}"
    skip = seen(after == joined + 1, how) if after in {joined, joined + 1} else unseen(how)
    again = accepted((yield site.creation(member, "overwrite", options=options)))
    return {"skip_enrols": skip, "reenrol": _reenrol(again)}


def _no_enrolment(why: str) -> dict[str, Finding]:
    return dict.fromkeys(("skip_enrols", "reenrol"), unseen(why))


def _reenrol(again: bool) -> Finding:  # noqa: FBT001 - the one thing it is about
    if not again:
        return seen("error", "joining a campaign again was refused")
    return among(("noop", "restart"), "joining a campaign again was taken; in a draft nothing shows whether it starts anew")


def _check_draft(site: Site, first: int, display: int) -> Dialogue[None]:
    for page in range(first, first + PAGES):
        said = served((yield site.page("campaigns", page, display)))
        for row in rows(said):
            if row.get("id") == site.campaign:
                if row.get("status") != "draft":
                    raise Unclear("the campaign is no draft: contacts in it might be sent e-mail")
                return
        if page - first + 1 >= number(said, "total_pages"):
            break
    raise Unclear("the campaign is not listed in the workspace")


def _queue(site: Site) -> Dialogue[tuple[int, Asked]]:
    """Count the contacts that go through the campaign's first step."""
    asked = Asked(request := site.steps(str(site.campaign)), (yield request))
    steps: list[dict[str, Any]] = asked.rows
    if not steps or not isinstance(steps[0].get("out_of"), int):
        raise Unclear("the campaign has no step that counts its contacts")
    return int(steps[0]["out_of"]), asked
