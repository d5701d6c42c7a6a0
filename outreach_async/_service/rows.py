"""The fields of a contact as typed dicts. Only type checkers need this module, so nothing else imports it."""

# No `from __future__ import annotations`: `ContactRow` would not know at run time that `email` is required.

from collections.abc import Mapping
from typing import Required, TypedDict


class ContactFields(TypedDict, total=False):
    """The optional fields of a contact, which `contacts.create(email=..., ...)` accepts as keywords.

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
    """A row of `create_many` as a typed dict: type checkers then find misspelled and missing fields.

    The keys are the field names of `NewContact`, and `campaign` and `workspace` for a row with a target of its own.

    Example:
        ```python
        rows: list[ContactRow] = [{"email": "ann@company.example", "first_name": "Ann", "campaign": "camp_1"}]
        print((await client.contacts.create_many(rows)).rows)  # -> 1
        ```
    """

    email: Required[str]
    campaign: str | None
    workspace: str | None
