"""Contacts made of what a test or a world file says of them, and people made up by number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import attrs

from outreach_async.fake.given import check_known
from outreach_async.fake.people import CITIES, FIRST_NAMES, LAST_NAMES, TITLES, company, domain
from outreach_async.fake.records import Enrolment


@attrs.frozen
class ContactSeed:
    """What is said of a contact before it is stored.

    Attributes:
        email: The e-mail; anything else is refused.
        fields: Values by code.
        enrolments: Its campaigns.
        owner: Its owner key.
        id: Its id, if it is given.
        created: Unix seconds, if given.
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
        """Read a row: the e-mail, perhaps an id, and fields by their codes.

        Raises:
            TypeError: There is no such field, or a value is no text.
        """
        fields = {}
        for code, value in row.items():
            if code in {"id", "email"} or value is None:
                continue
            check_known(code, codes, "a contact")
            if not isinstance(value, str):
                raise TypeError(f"{code} must be a text, not {type(value).__name__}")
            fields[codes[code]] = value
        return cls(row.get("email"), fields, enrolments, owner, row.get("id"))


def people(count: int, start: int) -> Iterator[Mapping[str, str | None]]:
    """Make up people, each by a number.

    Args:
        count: How many.
        start: The first number.

    Returns:
        Rows of e-mail and fields; other numbers have other e-mails.
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
