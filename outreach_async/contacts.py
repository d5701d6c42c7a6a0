"""A contact as it is sent, and what became of it (section "Create contact" of the interface)."""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, TypeAlias

import attrs

from outreach_async.models import Answered
from outreach_async.vocabulary import STANDARD_FIELDS, UNSET, Outcome, Unset

Text: TypeAlias = str | Unset | None


@attrs.frozen(kw_only=True)
class CreateAnswer(Answered):
    """The service's own answer to a creation (section "Create contact"); `CreatedContact` adds what the client knows.

    Attributes:
        status: The outcome.
        id: The contact's id, or `None`.
        details: A short text, or `None`.
        extra: Fields of the answer that this class does not know.
    """

    status: Outcome
    id: str | None
    details: str | None
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class CreatedContact(Answered):
    """What became of a creation (section "Create contact").

    Attributes:
        status: The service's last word: `added`, `skipped`, `overwriten`, `updated_missing_fields`, or a text not seen before.
        id: Starts with `contact_`; `None` when skipped, and when the service put the owner key into it.
        details: `None` on success; a short text when skipped for a duplicate.
        possible: Every outcome that agrees with the evidence. More than one only after an answer was lost: a repeat that finds
            the contact cannot tell whether an earlier attempt of this very call had added it.
        request_id: The answer's `x-request-id`, if it had one.
        attempts: How often the request was tried.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        made = await client.contacts.create(NewContact("bo@acme.example"))
        print(made.status, made.id, made.certain)  # -> skipped None True
        print(made.details)  # -> a contact with this email exists in the workspace
        ```
    """

    status: Outcome
    id: str | None
    details: str | None
    possible: frozenset[Outcome]
    request_id: str | None = None
    attempts: int = 1
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)

    @property
    def certain(self) -> bool:
        """Whether `status` is known to be what this call did."""
        return len(self.possible) == 1


def possible_outcomes(status: Outcome, *, tainted: bool) -> frozenset[Outcome]:
    """Return every outcome of a call that agrees with its last answer.

    Args:
        status: The service's last word.
        tainted: Whether an earlier attempt of the call may have been carried out: if it was, it may have added the contact that
            this answer calls a duplicate. `added` itself stays exact, for nothing can have been there before.
    """
    return frozenset({status, Outcome.ADDED}) if tainted else _ONLY.get(status) or frozenset({status})


_ONLY: Final = {outcome: frozenset({outcome}) for outcome in Outcome}


standard_values: Final = attrgetter(*STANDARD_FIELDS)
"""Returns the 35 standard fields of a contact, in the interface's order."""


def _own(value: Any) -> Any:
    """Copy a mapping, so that a caller who reuses one does not change a contact made earlier; the checks refuse the rest."""
    return dict(value) if isinstance(value, Mapping) else value


@attrs.frozen(repr=False)
class NewContact:
    """A contact to create (section "Create contact"): only what is set is sent, and `None` is sent as null.

    Nothing is checked here: the client checks before it sends, so that one bad row among a million is an outcome of its own.

    Attributes:
        email: E-mail address; together with the workspace it decides what is a duplicate.
        first_name: And all that follow: texts, sent under their own name.
        state: Two-letter prefix or full name.
        country: Two-letter prefix or full name.
        timezone: A valid timezone input; the interface does not list them.
        stack_overflow: Profile URL or handle.
        job_start_date: A date; the interface does not list the formats.
        graduation_date: Likewise.
        custom: Custom variables by code, `{"custom_1": "x"}`; `client.workspaces.fields()` lists the codes.
        extra: Any further code that `client.workspaces.fields()` reveals.

    Example:
        ```python
        ann = NewContact("ann@company.example", first_name="Ann", custom={"custom_1": "gold"})
        print((await client.contacts.create(ann)).status)  # -> added
        ```
    """

    email: str
    first_name: Text = attrs.field(default=UNSET, kw_only=True)
    middle_name: Text = attrs.field(default=UNSET, kw_only=True)
    last_name: Text = attrs.field(default=UNSET, kw_only=True)
    full_name: Text = attrs.field(default=UNSET, kw_only=True)
    nickname: Text = attrs.field(default=UNSET, kw_only=True)
    title: Text = attrs.field(default=UNSET, kw_only=True)
    mobile_phone: Text = attrs.field(default=UNSET, kw_only=True)
    work_phone: Text = attrs.field(default=UNSET, kw_only=True)
    home_phone: Text = attrs.field(default=UNSET, kw_only=True)
    voip_phone: Text = attrs.field(default=UNSET, kw_only=True)
    other_phone: Text = attrs.field(default=UNSET, kw_only=True)
    company_name: Text = attrs.field(default=UNSET, kw_only=True)
    company_formal_name: Text = attrs.field(default=UNSET, kw_only=True)
    company_industry: Text = attrs.field(default=UNSET, kw_only=True)
    address_1: Text = attrs.field(default=UNSET, kw_only=True)
    address_2: Text = attrs.field(default=UNSET, kw_only=True)
    city: Text = attrs.field(default=UNSET, kw_only=True)
    zip: Text = attrs.field(default=UNSET, kw_only=True)
    region: Text = attrs.field(default=UNSET, kw_only=True)
    state: Text = attrs.field(default=UNSET, kw_only=True)
    country: Text = attrs.field(default=UNSET, kw_only=True)
    timezone: Text = attrs.field(default=UNSET, kw_only=True)
    gender: Text = attrs.field(default=UNSET, kw_only=True)
    occupation: Text = attrs.field(default=UNSET, kw_only=True)
    stack_overflow: Text = attrs.field(default=UNSET, kw_only=True)
    website: Text = attrs.field(default=UNSET, kw_only=True)
    website_2: Text = attrs.field(default=UNSET, kw_only=True)
    website_3: Text = attrs.field(default=UNSET, kw_only=True)
    personal_note: Text = attrs.field(default=UNSET, kw_only=True)
    personal_note_2: Text = attrs.field(default=UNSET, kw_only=True)
    personal_note_3: Text = attrs.field(default=UNSET, kw_only=True)
    job_start_date: Text = attrs.field(default=UNSET, kw_only=True)
    graduation_date: Text = attrs.field(default=UNSET, kw_only=True)
    school: Text = attrs.field(default=UNSET, kw_only=True)
    degree: Text = attrs.field(default=UNSET, kw_only=True)
    _custom: Mapping[str, str | None] = attrs.field(factory=dict, alias="custom", converter=_own, hash=False, kw_only=True)
    _extra: Mapping[str, str | None] = attrs.field(factory=dict, alias="extra", converter=_own, hash=False, kw_only=True)

    @property
    def custom(self) -> Mapping[str, str | None]:
        """Custom variables by code."""
        return self._custom

    @property
    def extra(self) -> Mapping[str, str | None]:
        """Further codes."""
        return self._extra

    def standard(self) -> dict[str, str | None]:
        """Return the standard fields that were set, by wire name.

        Example:
            ```python
            print(NewContact("ann@company.example", city="Lyon", custom={"custom_1": "gold"}).standard())  # -> {'city': 'Lyon'}
            ```
        """
        return {name: value for name, value in zip(STANDARD_FIELDS, standard_values(self), strict=True) if value is not UNSET}

    def members(self) -> dict[str, str | None]:
        """Return the members of the create-contact body that describe the contact: its e-mail and what was set.

        Example:
            ```python
            print(NewContact("ann@company.example", city="Lyon", custom={"custom_1": "gold"}).members())
            # -> {'email': 'ann@company.example', 'city': 'Lyon', 'custom_1': 'gold'}
            ```
        """
        return {"email": self.email, **self.standard(), **self.custom, **self.extra}

    def __repr__(self) -> str:
        """Show what was set, not the thirty fields that were not."""
        pairs: dict[str, Any] = dict(self.standard())
        pairs |= {name: value for name, value in (("custom", self.custom), ("extra", self.extra)) if value}
        return f"NewContact({', '.join([repr(self.email), *(f'{name}={value!r}' for name, value in pairs.items())])})"
