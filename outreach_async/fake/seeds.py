"""Generate people, contacts and mailboxes from the seed.

Generated mailboxes have no problems by default. A value passed by the caller is used unchanged, even if invalid, because tests of
audits need invalid values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, Final

import attrs

from outreach_async.fake.arguments import check_known, read_table, require_count, require_time
from outreach_async.fake.clock import DAY
from outreach_async.fake.records import MAILBOX_FIELDS, Enrolment, Mailbox, Share
from outreach_async.fake.request import encode

_HEADS: Final = ("north", "bright", "clear", "blue", "swift", "stone", "green", "prime", "true", "west", "silver", "river")
_TAILS: Final = ("peak", "path", "works", "field", "labs", "bridge", "point", "signal", "harbor", "craft", "grove", "line")

TITLES: Final = (
    "Chief Executive", "Head of Sales", "Engineer", "Marketing Lead", "Operations Manager", "Founder", "Buyer", "Analyst",
)  # fmt: skip
CITIES: Final = (("Lyon", "FR"), ("Austin", "US"), ("Porto", "PT"), ("Osaka", "JP"), ("Leeds", "GB"), ("Krakow", "PL"))


def generate_domain(number: int) -> str:
    """Return the domain with this number. Each number has a different domain."""
    turn, place = divmod(number, len(_HEADS) * len(_TAILS))
    head, tail = _HEADS[place % len(_HEADS)], _TAILS[place // len(_HEADS)]
    return f"{head}{tail}{turn + 1 if turn else ''}.example"


def generate_name(first: int, last: int) -> tuple[str, str]:
    """Return the first name and the last name at these positions of the table of names, which repeats after its end."""
    names = read_table("names")
    return names[first % len(names)][0], names[last % len(names)][1]


@attrs.frozen
class ContactSeed:
    """The specification of a contact to store.

    Attributes:
        email: The e-mail, not yet validated. Storing the contact fails unless it is a non-blank string.
        fields: Values by code.
        enrolments: The contact's enrolments in campaigns.
        owner: Owner key of the contact.
        id: Id of the contact; `None` to generate one.
        created: Creation time in Unix seconds; `None` for now.
    """

    email: object
    fields: Mapping[str, str | None]
    enrolments: tuple[Enrolment, ...] = ()
    owner: str = attrs.field(default="", repr=False)
    id: str | None = None
    created: object = None

    @classmethod
    def from_row(
        cls, row: Mapping[str, str | None], codes: Mapping[str, str], enrolments: tuple[Enrolment, ...], owner: str
    ) -> ContactSeed:
        """Create a specification from a row with `email`, optionally `id`, and fields by code.

        Raises:
            TypeError: A key is not a field of the workspace, or a value is not a string.
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


def generate_people(count: int, start: int) -> Iterator[Mapping[str, str | None]]:
    """Generate people with consecutive numbers. The same number always gives the same person.

    Args:
        count: Number of people.
        start: The first number.

    Returns:
        Rows with `email` and fields by code. Each number has a different e-mail.
    """
    for number in range(start, start + count):
        first, last = generate_name(number, number * 7)
        domain = generate_domain(number // 3)
        city, country = CITIES[number % len(CITIES)]
        yield {
            "email": f"{first}.{last}.{number}@{domain}".lower(),
            "first_name": first,
            "last_name": last,
            "title": TITLES[number % len(TITLES)],
            "company_name": domain.removesuffix(".example").capitalize(),
            "city": city,
            "country": country,
        }


MAILBOXES_PER_DOMAIN: Final = 4
"""Number of generated mailboxes that share a domain."""

_RATE_FIELDS: Final = ("opened_14days", "avg_open_rate", "avg_click_rate")

_COUNT_FIELDS: Final = (
    "sent_today", "sent_30days", "opened_14days", "sent_90days", "bounced_30days", "avg_open_rate", "avg_click_rate",
)  # fmt: skip
_CHANGEABLE: Final = tuple(name for name in MAILBOX_FIELDS if name not in {"id", "created_at", "last_activity", *_COUNT_FIELDS})

_WINDOW_DAYS: Final = {"sent_today": 1, "sent_30days": 30, "sent_90days": 90, "life": math.inf}
"""Number of days that each statistic covers."""

_PROBLEMS: Final[tuple[Callable[[Mapping[str, Any]], dict[str, Any]], ...]] = (
    lambda _: {"spf": False},
    lambda _: {"dmarc": False},
    lambda _: {"spf": False, "dkim": False, "dmarc": False},
    lambda _: {"blacklists": 2},
    lambda values: {"bounced_30days": values["sent_30days"] // 8},
    lambda values: {"sent_today": _count_or_zero(values["daily_limit"]) + 15},
    lambda _: {"status": "error"},
)
"""The possible problems of a generated mailbox: functions from its values to the changed values. A mailbox gets at most one."""


@attrs.frozen
class MailboxSeed:
    """The specification of a mailbox to generate.

    Attributes:
        workspace: Id of the mailbox's workspace.
        number: Number of the mailbox among all mailboxes, counted from 0. Consecutive mailboxes share a domain.
        created: Default creation time in Unix seconds.
        trouble: Probability that the mailbox has a problem, from 0 to 1.
        fields: Values to use unchanged, by field; generated values are consistent with them. `domain` sets the domain of the
            e-mail address, and `as_of` sets the time of the statistics in Unix seconds.
    """

    workspace: str
    number: int
    created: int
    trouble: float
    fields: Mapping[str, Any]


def generate_mailbox(id_: str, seed: MailboxSeed, random: Random, now: float) -> Mailbox:
    """Generate a mailbox.

    Raises:
        TypeError: A name is not a field of a mailbox, or a value cannot be written as JSON.
    """
    fields = {name: _check_value(name, value) for name, value in seed.fields.items()}
    as_of = fields.pop("as_of", now)
    domain = str(fields.pop("domain", generate_domain(seed.number // MAILBOXES_PER_DOMAIN)))
    values = {**_generate_identity(random, seed.number, domain), "created_at": seed.created, **fields, "id": id_}
    values |= _generate_activity(random, values, now)
    if random.random() < seed.trouble:
        values |= random.choice(_PROBLEMS)(values)
    values |= fields
    return Mailbox(id_, seed.workspace, {name: values[name] for name in MAILBOX_FIELDS}, as_of)


def update_mailbox(mailbox: Mailbox, fields: Mapping[str, Any]) -> Mailbox:
    """Return a mailbox with changed fields.

    Raises:
        TypeError: A name is not a field of a mailbox, the field cannot be changed, or the value cannot be written as JSON.
    """
    for name, value in fields.items():
        if name in MAILBOX_FIELDS and name not in _CHANGEABLE:
            raise TypeError(f"field {name!r} of a mailbox cannot be changed; expected one of {', '.join(_CHANGEABLE)}")
        check_known(name, _CHANGEABLE, "a mailbox")
        encode(value)
    return attrs.evolve(mailbox, values={**mailbox.values, **fields})


def _check_value(name: str, value: Any) -> Any:
    check_known(name, (*MAILBOX_FIELDS, "domain", "as_of"), "a mailbox")
    encode(value)
    if name in {"created_at", "as_of"}:
        require_time(name, value)
    if name not in _RATE_FIELDS or not isinstance(value, list | tuple):
        return value
    if len(value) != 2:  # noqa: PLR2004 - a part and a whole
        raise TypeError(f"{name}: expected a number, or two integers [part, whole], got {value!r}")
    return Share(*(require_count(name, number) for number in value))


def _generate_identity(random: Random, number: int, domain: str) -> dict[str, Any]:
    count = len(read_table("names"))
    first, last = generate_name(number, number // count)
    again = number // count**2
    server = f"203.0.113.{random.randint(1, 254)}"
    return {
        "status": "active",
        "email": f"{first}.{last}{again or ''}@{domain}".lower(),
        "sender_name": f"{first} {last}",
        "campaigns": None,
        "daily_limit": 40,
        "spf": True,
        "dkim": True,
        "dmarc": True,
        "blacklists": 0,
        "age": None,
        "type": random.choice(("Google", "SMTP & IMAP")),
        "created": None,
        "domain_ip": random.choice((None, server, server, server)),
        "server_ip": server,
    }


def _generate_activity(random: Random, values: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Generate the counts of the e-mails that a mailbox has sent since its creation, and of the recipients' reactions."""
    days = max(0.0, (now - values["created_at"]) / DAY)
    daily = _count_or_zero(values["daily_limit"]) * random.uniform(0.5, 0.8)
    sent = {name: int(daily * min(window, days)) for name, window in _WINDOW_DAYS.items()}
    month = _count_or_zero(values.get("sent_30days", sent["sent_30days"]))
    life = max(sent["life"], month)
    fortnight = month * 14 // 30
    opens = random.uniform(0.45, 0.62)
    return {
        "sent_today": min(sent["sent_today"], month),
        "sent_30days": month,
        "sent_90days": max(sent["sent_90days"], month),
        "opened_14days": Share(int(fortnight * opens * random.uniform(0.92, 1.0)), fortnight),
        "bounced_30days": int(month * random.uniform(0.0, 0.012)),
        "avg_open_rate": Share(int(life * opens), life),
        "avg_click_rate": Share(int(life * opens * random.uniform(0.05, 0.12)), life),
        "last_activity": max(values["created_at"], now - random.uniform(0, DAY)) if month else None,
    }


def _count_or_zero(value: object) -> int:
    """Return a value as a non-negative integer. Negative numbers and values of other types give 0."""
    return max(0, int(value)) if isinstance(value, int | float) else 0
