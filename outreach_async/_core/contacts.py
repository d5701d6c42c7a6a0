"""New contacts and the results of creating them (section "Create contact" of the service's API documentation)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

from outreach_async._vocabulary import STANDARD_FIELDS, UNSET, Outcome, Unset
from outreach_async.models import ResponseInfo, ResponseWithInfo  # noqa: F401 - part of an inherited annotation

OptionalString: TypeAlias = str | Unset | None


@attrs.frozen(kw_only=True)
class CreateContactResponse(ResponseWithInfo):
    status: Outcome
    id: str | None
    details: str | None


@attrs.frozen(kw_only=True)
class CreatedContact(CreateContactResponse):
    """The result of creating a contact (section "Create contact" of the service's API documentation).

    Attributes:
        status: The status in the last response: `added`, `skipped`, `overwriten`, `updated_missing_fields` or an unknown string.
        id: Id of the contact; starts with `contact_`. `None` if the contact was skipped, or if the id contained the owner
            key or came from an earlier response.
        details: `None` on success; a short string if the contact was skipped as a duplicate.
        possible: Every outcome that is consistent with the responses. There can be more than one after a lost response: if a
            retry finds the contact, an earlier attempt of the same call may have added it. Nor is `added` certain if a server or
            proxy has sent an earlier response again, as its id shows.
        request_id: The response's `x-request-id`; `None` if the response has none.
        attempts: Number of attempts.

    Example:
        ```python
        created = await client.contacts.create(NewContact("bo@acme.example"))
        print(created.status, created.certain)  # -> skipped True
        ```
    """

    possible: frozenset[Outcome]
    request_id: str | None = None
    attempts: int = 1

    @property
    def certain(self) -> bool:
        """True if `status` is known to be the effect of this call."""
        return len(self.possible) == 1


def possible_outcomes(status: Outcome, *, maybe_applied: bool) -> frozenset[Outcome]:
    return frozenset({status, Outcome.ADDED}) if maybe_applied else CERTAIN_OUTCOMES.get(status) or frozenset({status})


CERTAIN_OUTCOMES: Final = {outcome: frozenset({outcome}) for outcome in Outcome}  # shared, because nearly every outcome needs one


class Target(NamedTuple):
    """Where a contact goes: its workspace, and the campaign that it is added to.

    See `create_many` for how a row names its target. If the service does not know the target of a row (403 or 404), the rows that
    name it are `rejected`, and the others are sent; an unknown target of the run itself stops the run.

    Rates and pauses are those of the client, whatever the targets. Rows with one e-mail are sent one after the other, also to
    different campaigns. With `duplicates="skip"`, the service leaves an existing contact as it is: pass another policy to add
    it to further campaigns. A journal is not resumed with rows of other targets; a ledger has an entry for each.

    Attributes:
        workspace: Id of the workspace.
        campaign: Id of the campaign; in a row, also its name. `None` in an outcome means no campaign.

    Example:
        ```python
        rows = [{"email": "ann@company.example", "campaign": "Spring"}, (NewContact("cy@company.example"), Target())]
        async with client.contacts.create_many(rows, order="input") as outcomes:
            print([outcome.target.campaign async for outcome in outcomes])  # -> ['camp_1', None]
        ```
    """

    workspace: str | None = None
    campaign: str | None = None


RUN_TARGET: Final = Target()  # the target of a row that names none
standard_values: Final = attrgetter(*STANDARD_FIELDS)


def _copy_mapping(value: Any) -> Any:  # later changes by the caller do not affect the contact
    return dict(value) if isinstance(value, Mapping) else value


@attrs.frozen(repr=False)
class NewContact:
    """A contact to create (section "Create contact" of the service's API documentation).

    Only the fields that you set are sent, under the same names; `None` is sent as null. The constructor checks nothing: a client
    checks each contact before sending it. In a bulk run, an invalid contact does not affect other rows.

    Attributes:
        email: E-mail address. The service detects duplicates by e-mail and workspace.
        first_name: First name. The others are named likewise; a `state` or `country` may be abbreviated.
        custom: Custom variables by code, such as `{"custom_1": "x"}`; `client.workspaces.fields()` lists the codes.
        extra: Values of fields that are neither standard nor custom, by code; `client.workspaces.fields()` lists the codes.

    Example:
        ```python
        ann = NewContact("ann@company.example", first_name="Ann", custom={"custom_1": "gold"})
        print((await client.contacts.create(ann)).status)  # -> added
        ```
    """

    email: str
    first_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    middle_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    last_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    full_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    nickname: OptionalString = attrs.field(default=UNSET, kw_only=True)
    title: OptionalString = attrs.field(default=UNSET, kw_only=True)
    mobile_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    work_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    home_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    voip_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    other_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    company_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    company_formal_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    company_industry: OptionalString = attrs.field(default=UNSET, kw_only=True)
    address_1: OptionalString = attrs.field(default=UNSET, kw_only=True)
    address_2: OptionalString = attrs.field(default=UNSET, kw_only=True)
    city: OptionalString = attrs.field(default=UNSET, kw_only=True)
    zip: OptionalString = attrs.field(default=UNSET, kw_only=True)
    region: OptionalString = attrs.field(default=UNSET, kw_only=True)
    state: OptionalString = attrs.field(default=UNSET, kw_only=True)
    country: OptionalString = attrs.field(default=UNSET, kw_only=True)
    timezone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    gender: OptionalString = attrs.field(default=UNSET, kw_only=True)
    occupation: OptionalString = attrs.field(default=UNSET, kw_only=True)
    stack_overflow: OptionalString = attrs.field(default=UNSET, kw_only=True)
    website: OptionalString = attrs.field(default=UNSET, kw_only=True)
    website_2: OptionalString = attrs.field(default=UNSET, kw_only=True)
    website_3: OptionalString = attrs.field(default=UNSET, kw_only=True)
    personal_note: OptionalString = attrs.field(default=UNSET, kw_only=True)
    personal_note_2: OptionalString = attrs.field(default=UNSET, kw_only=True)
    personal_note_3: OptionalString = attrs.field(default=UNSET, kw_only=True)
    job_start_date: OptionalString = attrs.field(default=UNSET, kw_only=True)
    graduation_date: OptionalString = attrs.field(default=UNSET, kw_only=True)
    school: OptionalString = attrs.field(default=UNSET, kw_only=True)
    degree: OptionalString = attrs.field(default=UNSET, kw_only=True)
    _custom: Mapping[str, str | None] = attrs.field(
        factory=dict, alias="custom", converter=_copy_mapping, hash=False, kw_only=True
    )
    _extra: Mapping[str, str | None] = attrs.field(factory=dict, alias="extra", converter=_copy_mapping, hash=False, kw_only=True)

    @property
    def custom(self) -> Mapping[str, str | None]:
        """Custom variables by code."""
        return self._custom

    @property
    def extra(self) -> Mapping[str, str | None]:
        """Values of other fields by code."""
        return self._extra

    def standard(self) -> dict[str, str | None]:
        """Return the values of the standard fields that are set, by wire name.

        Example:
            ```python
            print(NewContact("ann@company.example", city="Lyon").standard())  # -> {'city': 'Lyon'}
            ```
        """
        return {name: value for name, value in zip(STANDARD_FIELDS, standard_values(self), strict=True) if value is not UNSET}

    def to_dict(self) -> dict[str, str | None]:
        """Return the contact's fields in the body of a create request: the e-mail and all fields that are set.

        Example:
            ```python
            print(NewContact("ann@company.example", custom={"custom_1": "gold"}).to_dict())
            # -> {'email': 'ann@company.example', 'custom_1': 'gold'}
            ```
        """
        return {"email": self.email, **self.standard(), **self.custom, **self.extra}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict()` as a JSON string.

        Example:
            ```python
            print(NewContact("ann@company.example").to_json())  # -> {"email": "ann@company.example"}
            ```
        """
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def __repr__(self) -> str:
        pairs: dict[str, Any] = dict(self.standard())
        pairs |= {name: value for name, value in (("custom", self.custom), ("extra", self.extra)) if value}
        return f"NewContact({', '.join([repr(self.email), *(f'{name}={value!r}' for name, value in pairs.items())])})"
