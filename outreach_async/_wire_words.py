"""Constants and enumerations of the service, as spelled on the wire (sections "Resources" and "Endpoints")."""

# No `from __future__ import annotations`: `ContactRow` would not know at run time that `email` is required.

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, Literal, Required, Self, TypeAlias, TypedDict

import msgspec

DuplicatePolicy = Literal["skip", "overwrite", "update_missing_fields"]
"""What the service does if the workspace already has a contact with the same e-mail: values of `upload_options.duplicates`.

Example:
    ```python
    policy: DuplicatePolicy = "update_missing_fields"
    created = await client.contacts.create(email="bo@acme.example", duplicates=policy)
    print(created.status)  # -> updated_missing_fields
    ```
"""

DUPLICATE_POLICIES: Final[tuple[DuplicatePolicy, ...]] = ("skip", "overwrite", "update_missing_fields")

MAX_MAILBOX_DISPLAY: Final = 2000
"""Mailboxes of the largest page. The API documentation states no other limit of a page.

Example:
    ```python
    page = await client.mailboxes.list(display=MAX_MAILBOX_DISPLAY)
    print(page.total_pages)  # -> 1
    ```
"""

Unset = msgspec.UnsetType
Seconds: TypeAlias = float | Unset | None
"""A time limit of a call: `None` for no limit, and `UNSET` for the client's."""

UNSET: Final = msgspec.UNSET
"""The value of a field that was not set. Unlike `None`, which is sent as null, `UNSET` is not sent.

Example:
    ```python
    contact = NewContact("ann@company.example", title=None)
    print(contact.title, contact.city is UNSET)  # -> None True
    ```
"""


class OpenEnum(StrEnum):
    """An enumeration that the service may extend. An unknown string becomes a new member, equal to that string.

    Compare members with `==`, not `is`. Each conversion of an unknown string creates a new member.
    """

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        return member

    def __reduce_ex__(self, _protocol: object, /) -> tuple[type[Self], tuple[str]]:
        # Python 3.11.0 to 3.11.2 pickle a member by its name. Unpickling then looks up the name in the class, which does not
        # contain unknown members.
        return self.__class__, (self._value_,)


class CampaignStatus(OpenEnum):
    """The status of a campaign.

    The service may add values, which become members too.

    Example:
        ```python
        campaign = (await client.campaigns.list()).data[0]
        print(campaign.status == CampaignStatus.LIVE, campaign.status == "live")  # -> True True
        ```
    """

    DRAFT = "draft"
    LIVE = "live"
    PAUSED = "paused"


class MailboxStatus(OpenEnum):
    """The status of a mailbox.

    The service may add values, which become members too.

    Example:
        ```python
        mailbox = (await client.mailboxes.list()).data[0]
        print(mailbox.status == MailboxStatus.ACTIVE)  # -> True
        ```
    """

    ACTIVE = "active"  # the only value in the API documentation


class MailboxType(OpenEnum):
    """The kind of a mailbox.

    The service may add values, which become members too.

    Example:
        ```python
        mailbox = (await client.mailboxes.list()).data[0]
        print(mailbox.type == MailboxType.GOOGLE)  # -> True
        ```
    """

    GOOGLE = "Google"
    SMTP_IMAP = "SMTP & IMAP"


class StepStatus(OpenEnum):
    """The status of a step.

    The service may add values, which become members too.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        print(steps.data[0].status == StepStatus.LIVE)  # -> True
        ```
    """

    LIVE = "live"


class StepType(OpenEnum):
    """The kind of a step.

    The service may add values, which become members too.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        print(steps.data[0].type == StepType.AUTO_EMAIL)  # -> True
        ```
    """

    AUTO_EMAIL = "auto_email"


class TemplateStatus(OpenEnum):
    """The status of a template of a step.

    The service may add values, which become members too.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        print(steps.data[0].templates[0].status == TemplateStatus.LIVE)  # -> True
        ```
    """

    LIVE = "live"


class Outcome(OpenEnum):
    """The outcome of creating a contact.

    The service reports the first four values; a bulk run determines the
    others.

    Example:
        ```python
        created = await client.contacts.create(NewContact("bo@acme.example"))
        print(created.status == Outcome.SKIPPED, created.status == "skipped")  # -> True True
        ```
    """

    # Journals store the place of a value in this list, so further values are added at its end.
    ADDED = "added"
    SKIPPED = "skipped"
    OVERWRITTEN = "overwriten"  # the service's spelling
    UPDATED_MISSING_FIELDS = "updated_missing_fields"

    REJECTED = "rejected"
    """The row itself is invalid: it was rejected by a check before sending, or by the service."""
    NOT_APPLIED = "not_applied"
    """The contact was neither created nor changed. No byte was sent, or the service rejected every attempt for a reason that is
    unrelated to the row, such as throttling."""
    UNKNOWN = "unknown"
    """It is unknown whether the contact was created or changed. The last attempt failed, but an attempt may have been applied."""
    UNCHANGED = "unchanged"
    """The row was not sent, because the run's ledger shows that the contact already has its values."""
    EXCLUDED = "excluded"
    """The row was not sent, because it says that the person must not be written to. Unlike a rejected row, it is no failure."""


DUPLICATE_OUTCOMES: Final[dict[str, Outcome]] = {
    "skip": Outcome.SKIPPED,
    "overwrite": Outcome.OVERWRITTEN,
    "update_missing_fields": Outcome.UPDATED_MISSING_FIELDS,
}
"""The outcome that the service reports for a duplicate, by `duplicates` option."""

SERVICE_OUTCOMES: Final[frozenset[str]] = frozenset({Outcome.ADDED.value, *(each.value for each in DUPLICATE_OUTCOMES.values())})
FAILED_OUTCOMES: Final = (Outcome.REJECTED, Outcome.NOT_APPLIED, Outcome.UNKNOWN)
"""The outcomes of rows that failed.

Example:
    ```python
    report = await client.contacts.create_many([{"email": "no address"}], strict_validation=True)
    print(sum(report.outcomes[outcome] for outcome in FAILED_OUTCOMES))  # -> 1
    ```
"""
UNAPPLIED_OUTCOMES: Final = frozenset(Outcome) - SERVICE_OUTCOMES - {Outcome.UNKNOWN}
"""The outcomes that say, if they are certain, that the service has done nothing for the row."""

ID_PREFIXES: Final[dict[str, str]] = {
    "workspace": "space_",
    "campaign": "camp_",
    "mailbox": "mailbox_",
    "step": "step_",
    "template": "temp_",
    "personalized template": "personalized_step_",
    "contact": "contact_",
    "owner_key": "key_",
}
"""How ids of each kind begin.

Example:
    ```python
    print(ID_PREFIXES["campaign"])  # -> camp_
    ```
"""

CUSTOM_PREFIX: Final = "custom_"
CUSTOM_CODE: Final = re.compile(r"custom_[0-9]+")


class ContactFields(TypedDict, total=False):
    """The optional fields of a contact, as keywords of `contacts.create`.

    A field that is left out stays as it is. `None` is sent as null: with
    `duplicates="overwrite"`, it clears the field of an existing contact.

    Example:
        ```python
        fields: ContactFields = {"first_name": "Ann", "city": "Lyon"}
        print((await client.contacts.create(email="ann@company.example", **fields)).status)  # -> added
        ```
    """

    first_name: str | None
    middle_name: str | None
    last_name: str | None
    full_name: str | None
    nickname: str | None
    title: str | None
    mobile_phone: str | None
    work_phone: str | None
    home_phone: str | None
    voip_phone: str | None
    other_phone: str | None
    company_name: str | None
    company_formal_name: str | None
    company_industry: str | None
    address_1: str | None
    address_2: str | None
    city: str | None
    zip: str | None
    region: str | None
    state: str | None
    country: str | None
    timezone: str | None
    gender: str | None
    occupation: str | None
    stack_overflow: str | None
    website: str | None
    website_2: str | None
    website_3: str | None
    personal_note: str | None
    personal_note_2: str | None
    personal_note_3: str | None
    job_start_date: str | None
    graduation_date: str | None
    school: str | None
    degree: str | None
    custom: Mapping[str, str | None]
    extra: Mapping[str, str | None]


class ContactRow(ContactFields, total=False):
    """A row of `create_many` as a typed dict.

    Type checkers find misspelled and missing fields in it. The keys are
    the field names of `NewContact`, and `campaign` and `workspace` for a
    row with a target of its own.

    Example:
        ```python
        rows: list[ContactRow] = [{"email": "ann@company.example", "first_name": "Ann", "campaign": "camp_1"}]
        print((await client.contacts.create_many(rows)).rows)  # -> 1
        ```
    """

    email: Required[str]
    campaign: str | None
    workspace: str | None


STANDARD_FIELDS: Final = tuple(name for name in ContactFields.__annotations__ if name not in {"custom", "extra"})
"""The 35 optional fields of a new contact, in the order of the service's API documentation.

Example:
    ```python
    print(len(STANDARD_FIELDS), STANDARD_FIELDS[0])  # -> 35 first_name
    ```
"""

RESERVED_FIELDS: Final[frozenset[str]] = frozenset({"owner_key", "workspace", "email", "upload_options", *STANDARD_FIELDS})
"""Keys of a create request's body that `extra` may not contain.

Example:
    ```python
    print("email" in RESERVED_FIELDS, "linkedin" in RESERVED_FIELDS)  # -> True False
    ```
"""
