"""The fields of a contact (rules C19, F1 and F2): codes, labels, and the items of all-fields."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

STANDARD: Final[dict[str, str]] = {
    "first_name": "First name",
    "middle_name": "Middle name",
    "last_name": "Last name",
    "full_name": "Full name",
    "nickname": "Nickname",
    "title": "Title",
    "mobile_phone": "Mobile phone",
    "work_phone": "Work phone",
    "home_phone": "Home phone",
    "voip_phone": "VoIP phone",
    "other_phone": "Other phone",
    "company_name": "Company name",
    "company_formal_name": "Company formal name",
    "company_industry": "Company industry",
    "address_1": "Address 1",
    "address_2": "Address 2",
    "city": "City",
    "zip": "Zip",
    "region": "Region",
    "state": "State",
    "country": "Country",
    "timezone": "Timezone",
    "gender": "Gender",
    "occupation": "Occupation",
    "stack_overflow": "Stack Overflow",
    "website": "Website",
    "website_2": "Website 2",
    "website_3": "Website 3",
    "personal_note": "Personal note",
    "personal_note_2": "Personal note 2",
    "personal_note_3": "Personal note 3",
    "job_start_date": "Job start date",
    "graduation_date": "Graduation date",
    "school": "School",
    "degree": "Degree",
}
"""Labels of the optional standard fields by code, in the interface's order."""

CUSTOM: Final = re.compile(r"custom_[1-9][0-9]{0,8}", re.ASCII)
"""Pattern of a custom field's code (rule C20)."""

RESERVED: Final = frozenset({"owner_key", "workspace", "email", "upload_options"})
"""Members of a creation's body that are not optional fields."""


def custom_number(code: str) -> int:
    """Return the number in a well-formed custom code."""
    return int(code.removeprefix("custom_"))


def field_items(extra: Mapping[str, str], custom: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the items of all-fields: `email`, the standard fields, extra fields, and the custom fields by number.

    Args:
        extra: Labels of extra standard fields by code.
        custom: Labels of the custom fields by code.
    """
    by_number = dict(sorted(custom.items(), key=lambda field: custom_number(field[0])))
    labels = {"email": "Email", **STANDARD, **extra, **by_number}
    return [{"label": label, "code": code, "searchable": _searchable(label, code)} for code, label in labels.items()]


def _searchable(label: str, code: str) -> list[str]:
    names = (label.lower(), code.lower(), label.lower().replace(" ", ""))
    return list(dict.fromkeys(names))
