"""The embedded service and the contacts of the demo, from data files, the same each time."""

from __future__ import annotations

import csv
import io
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from datetime import datetime
from importlib.resources import files
from random import Random
from typing import Any, Final

from outreach_async.fake import Behaviour, FakeService

WORKSPACES: Final = ("space_demo", "space_demo_eu")
OWNER_KEY: Final = "key_demo"
CAMPAIGN: Final = "camp_spring"

SEED: Final = 7
NOW: Final = "2026-03-02T09:00:00Z"
_WEBSITE_IP: Final = "198.51.100.20"


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((files("outreach_async._cli") / "data" / name).read_text(encoding="utf-8"))


def create_demo_world(seed: int = SEED, behaviour: Behaviour | None = None) -> FakeService:
    """Return the service of the demo and of `--base-url fake:`."""
    service, world = FakeService(seed, behaviour, NOW), _read("world.toml")
    for workspace in world["workspaces"]:
        service.add_workspace(workspace["id"], custom_fields=["Plan", "Account manager"])
        boxes: list[str] = []
        for group in workspace["mailboxes"]:
            domain, count, size = group.pop("domain"), group.pop("count"), group.pop("per_domain", 4)
            fields = {"domain_ip": _WEBSITE_IP, **{name: _to_json(value) for name, value in group.items()}}
            for number, first in enumerate(range(0, count, size), 1):
                fields["domain"] = f"{domain}{number if number > 1 else ''}.example"
                boxes += service.add_mailboxes(workspace["id"], min(size, count - first), **fields)
        for campaign in workspace["campaigns"]:
            service.add_campaign(workspace["id"], mailboxes=boxes, **{name: _to_json(value) for name, value in campaign.items()})
    service.add_owner_key(*WORKSPACES, key=OWNER_KEY)
    service.add_contacts(WORKSPACES[0], 120, campaign="camp_renewals")
    return service


def _to_json(value: Any) -> Any:
    """Convert a TOML value to JSON: a time becomes Unix seconds, and an empty string becomes `None`, because TOML has no null."""
    if isinstance(value, datetime):
        return int(value.timestamp())
    return None if value == "" else value


_HEADER: Final = (
    *("E-mail", "First Name", "Last Name", "Title", "Company Name", "Company Industry", "Work Phone", "Website"),
    *("City", "State", "Country", "Timezone", "Plan"),
)
_MAY_MISS: Final = frozenset({*_HEADER[3:]} - {"Country"})  # the country is needed to validate the state
_MISSING: Final = 0.15  # the share of optional cells that are blank
_PEOPLE: Final = 2_800
_REPEATS: Final = 160
_FAULTS_EACH: Final = 7

_Record = dict[str, str]
_FAULTS: Final[dict[str, tuple[str, Callable[[_Record], str]]]] = {
    "no e-mail": ("E-mail", lambda _: ""),
    "blank e-mail": ("E-mail", lambda _: "   "),
    "no at sign": ("E-mail", lambda person: person["E-mail"].replace("@", ".")),
    "two at signs": ("E-mail", lambda person: person["E-mail"].replace("@", "@@")),
    "name and address": ("E-mail", lambda person: f"{person['First Name']} <{person['E-mail']}>"),
    "no e-mail known": ("E-mail", lambda _: "n/a"),
    "cut-off domain": ("E-mail", lambda person: person["E-mail"].removesuffix(".example")),
    "phone as a number of a spreadsheet": ("Work Phone", lambda _: "4.92E+11"),
    "extension only": ("Work Phone", lambda _: "ext. 214"),
    "country nobody knows": ("Country", lambda _: "Unknown"),
    "time zone nobody knows": ("Timezone", lambda _: "Central-ish"),
    "website with a blank": ("Website", lambda _: "ask them"),
}


def _people(rng: Random, words: dict[str, Any]) -> Iterator[_Record]:
    """Yield random people with unique e-mail addresses, without end."""
    used: set[str] = set()
    firsts, lasts, companies = (words[name].split() for name in ("first_names", "last_names", "companies"))
    while True:
        place, trade = rng.choice(words["places"]), rng.choice(list(words["trades"]))
        first, last, company = rng.choice(firsts), rng.choice(lasts), f"{rng.choice(companies)} {trade}"
        domain = f"{company.lower().replace(' ', '-')}.example"
        email = f"{_plain(first)}.{_plain(last)}@{domain}"
        if email not in used:
            used.add(email)
            phone = "".join(str(rng.randrange(10)) if sign == "#" else sign for sign in place[4])
            known = (email, first, last, rng.choice(words["titles"]), company, words["trades"][trade], phone)
            record = zip(_HEADER, (*known, f"https://www.{domain}", *place[:4], rng.choice(words["plans"])), strict=True)
            yield {name: "" if name in _MAY_MISS and rng.random() < _MISSING else text for name, text in record}


def _plain(name: str) -> str:
    spelled = name.lower().replace("ø", "o")
    return "".join(letter for letter in unicodedata.normalize("NFKD", spelled) if letter.isascii() and letter.isalpha())


def demo_contacts() -> str:
    """Return a CSV file of people, duplicates and errors in random order. One row has too few cells, one has too many."""
    rng, words = Random(7), _read("people.toml")  # noqa: S311 - reproducible, not secret
    source = _people(rng, words)
    known = [next(source) for _ in range(_PEOPLE)]
    respellings: list[Callable[[str], str]] = [str, str.upper, str.title, " {}".format]
    twice = [
        person | {"E-mail": rng.choice(respellings)(person["E-mail"]), "Title": rng.choice(words["titles"])}
        for person in rng.sample(known, _REPEATS)
    ]
    damaged = [(next(source), fault) for fault in _FAULTS.values() for _ in range(_FAULTS_EACH)]
    wrong = [person | {column: damage(person)} for person, (column, damage) in damaged]
    rows = [list(person.values()) for person in [*known, *twice, *wrong]]
    rng.shuffle(rows)
    rows[1_234] = rows[1_234][:-3]
    rows[2_345] = [*rows[2_345], "see notes"]
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows([_HEADER, *rows])
    return text.getvalue()


def change_contacts(text: str) -> str:
    """Return the CSV file of the next night: some people have a new title, and ada, grace and alan are new."""
    header, *records = text.splitlines(keepends=True)
    changed = [record.replace("Head of", "Director of") if number % 20 == 0 else record for number, record in enumerate(records)]
    blank = "," * (len(_HEADER) - 3)
    new = [f"{name}@new-customer.example,{name.title()},Example{blank}\n" for name in ("ada", "grace", "alan")]
    return "".join([header, *changed, *new])
