"""Specifications of contacts from tests and world files, and generated people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from outreach_async.fake.given import check_known
from outreach_async.fake.people import CITIES, FIRST_NAMES, LAST_NAMES, TITLES, company, domain
from outreach_async.fake.records import Enrolment


@attrs.frozen
class ContactSeed:
    """The specification of a contact to store.

    Attributes:
        email: The e-mail. Unchecked: it is refused later unless it is a non-blank string.
        fields: Values by code.
        enrolments: Its campaigns.
        owner: Its owner key.
        id: Its id; `None` to generate one.
        created: Creation time in Unix seconds; `None` for now.
    """

    email: object
    fields: Mapping[str, str | None]
    enrolments: tuple[Enrolment, ...] = ()
    owner: str = attrs.field(default="", repr=False)
    id: str | None = None
    created: object = None

    @classmethod
    def of(
        cls, row: Mapping[str, str | None], codes: Mapping[str, str], enrolments: tuple[Enrolment, ...], owner: str
    ) -> ContactSeed:
        """Read a row with `email`, optionally `id`, and fields by code.

        Raises:
            TypeError: The workspace has no such field, or a value is not a string.
        """
        fields = {}
        for code, value in row.items():
            if code in {"id", "email"} or value is None:
                continue
            check_known(code, codes, "a contact")
            if not isinstance(value, str):
                raise TypeError(f"{code}: expected a string, got {type(value).__name__}")
            fields[codes[code]] = value
        return cls(row.get("email"), fields, enrolments, owner, row.get("id"))


def people(count: int, start: int) -> Iterator[Mapping[str, str | None]]:
    """Generate people from consecutive numbers.

    Args:
        count: Number of people.
        start: The first number.

    Returns:
        Rows of e-mail and fields. Each number has its own e-mail.
    """
    return map(_person, range(start, start + count))


def _email(number: int) -> str:
    first, last = FIRST_NAMES[number % len(FIRST_NAMES)], LAST_NAMES[number * 7 % len(LAST_NAMES)]
    return f"{first}.{last}.{number}@{domain(number // 3)}".lower()


def _person(number: int) -> Mapping[str, str | None]:
    city, country = CITIES[number % len(CITIES)]
    return {
        "email": _email(number),
        "first_name": FIRST_NAMES[number % len(FIRST_NAMES)],
        "last_name": LAST_NAMES[number * 7 % len(LAST_NAMES)],
        "title": TITLES[number % len(TITLES)],
        "company_name": company(number // 3),
        "city": city,
        "country": country,
    }
