"""Compute the contact that a creation stores (rules C1 to C5, C10 to C16 and C23), without storing it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.creation import Creation, Fields
from outreach_async.fake.records import Contact, Enrolment
from outreach_async.fake.refusals import refused

ADDED: Final = "added"

OUTCOMES: Final[Mapping[str, str]] = {
    "skip": "skipped",
    "overwrite": "overwriten",  # the interface's spelling
    "update_missing_fields": "updated_missing_fields",
}
"""The outcome for a duplicate, by value of the `duplicates` option (rule C2)."""

DUPLICATE: Final = "a contact with this email exists in the workspace"
"""`details` of a skipped contact."""


def email_key(behaviour: Behaviour) -> Callable[[str], str]:
    """Return the key function for e-mails: two e-mails are duplicates if their keys are equal (rule C4)."""
    reading = behaviour.email_key
    return _KEYS[reading] if isinstance(reading, str) else reading


def _domain_lower(email: str) -> str:
    local, at, domain = email.rpartition("@")
    return local + at + domain.lower()


def _gmail(email: str) -> str:
    """Remove what Gmail ignores: dots in the local part, and everything after a plus sign."""
    local, at, domain = email.lower().rpartition("@")
    if domain in {"gmail.com", "googlemail.com"}:
        return local.partition("+")[0].replace(".", "") + "@gmail.com"
    return local + at + domain


_KEYS: Final[Mapping[str, Callable[[str], str]]] = {
    "lower": str.lower,
    "exact": str,
    "domain_lower": _domain_lower,
    "gmail": _gmail,
}


def added(creation: Creation, fields: Fields, id_: str, now: float) -> Contact:
    """Return the new contact of a creation without a duplicate. A null field counts as not sent (rule C14)."""
    stored = fields if None not in fields.values() else {code: value for code, value in fields.items() if value is not None}
    enrolments = () if creation.campaign is None else (Enrolment(creation.campaign, now),)
    return Contact(id_, creation.email, creation.owner_key, stored, enrolments, int(now))


def merged(contact: Contact, creation: Creation, fields: Fields, behaviour: Behaviour, now: float) -> Contact:
    """Return the stored contact as a creation changes it; the same object if nothing changes.

    Raises:
        Refused: 409 if it is already in the campaign and `behaviour.reenrol` is `error`.
    """
    if creation.duplicates == "skip":
        return _enrolled(contact, creation.campaign, behaviour, now) if behaviour.skip_enrols else contact
    if creation.duplicates == "overwrite":
        contact = attrs.evolve(contact, email=creation.email, fields=_overwritten(contact.fields, fields, behaviour))
    else:
        contact = attrs.evolve(contact, fields=_filled(contact.fields, fields))
    return _enrolled(contact, creation.campaign, behaviour, now)


def _overwritten(stored: Mapping[str, str | None], sent: Fields, behaviour: Behaviour) -> Fields:
    fields = dict(stored) if behaviour.overwrite_unsent == "keep" else {code: stored[code] for code in sent if code in stored}
    for code, value in sent.items():
        if not _blank(value) or behaviour.overwrite_blank == "store":
            fields[code] = value
        elif behaviour.overwrite_blank == "clear":
            fields.pop(code, None)
    return fields


def _filled(stored: Mapping[str, str | None], sent: Fields) -> Fields:
    missing = {code: value for code, value in sent.items() if not _blank(value) and _blank(stored.get(code))}
    return {**stored, **missing}


def _blank(value: str | None) -> bool:
    return value is None or not value.strip()


def _enrolled(contact: Contact, campaign: str | None, behaviour: Behaviour, now: float) -> Contact:
    if campaign is None:
        return contact
    if campaign not in contact.campaigns:
        return attrs.evolve(contact, enrolments=(*contact.enrolments, Enrolment(campaign, now)))
    if behaviour.reenrol == "error":
        raise refused(
            409, "already_enrolled", "the contact is in this campaign already", "upload_options.campaign", knob="reenrol"
        )
    if behaviour.reenrol == "noop":
        return contact
    again = tuple(Enrolment(campaign, now) if place.campaign == campaign else place for place in contact.enrolments)
    return attrs.evolve(contact, enrolments=again)
