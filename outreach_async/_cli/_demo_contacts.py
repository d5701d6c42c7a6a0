"""The contacts of the demo: invented people at reserved domains, with the errors of real lists, always the same."""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

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

# City, state, country, time zone, and telephone numbers that the regulator reserves for fiction; `#` stands for any digit.
_PLACES: Final = (
    ("New York", "NY", "US", "America/New_York", "+1 212 555 01##"),
    ("Chicago", "Illinois", "United States", "America/Chicago", "(312) 555-01##"),
    ("Toronto", "ON", "CA", "America/Toronto", "+1 416 555 01##"),
    ("London", "", "GB", "Europe/London", "+44 20 7946 0###"),
    ("Manchester", "", "United Kingdom", "Europe/London", "+44 161 496 0###"),
    ("Berlin", "", "DE", "Europe/Berlin", "+49 30 23125 ###"),
    ("München", "Bayern", "Germany", "Europe/Berlin", "+49 89 99998 ###"),
    ("Lyon", "", "France", "Europe/Paris", "+33 1 99 00 ## ##"),
    ("Sydney", "NSW", "AU", "Australia/Sydney", "+61 2 5550 ####"),
    ("Dublin", "", "Ireland", "Europe/Dublin", "+353 20 91# ####"),
)
_FIRST: Final = (
    "Ada Aisha Alejandro Amélie Anders Anjali Ben Björn Camille Chloé Clara Daniel Divya Elena Emeka Fatima Felix Freya Grace "
    "Hannah Hiroshi Ingrid Jack Jürgen Kofi Leila Lucía Maja Marco Mei Mohamed Nadia Noah Olga Omar Priya Rosa Sofía Tariq Zoë"
)
_LAST: Final = (
    "Abara Adler Almeida Andersson Bakker Banerjee Byrne Castillo Chen Clarke Costa Dubois Eriksen Fischer García Gupta Haddad "
    "Hansen Ibrahim Ivanova Jansen Kaya Kimura Kowalski Lefèvre López Mäkinen Mensah Moreau Müller Nguyen O'Brien Okafor Patel "
    "Reyes Rossi Santos Schäfer Singh Sørensen Tanaka Vega Walsh Yilmaz Zhang"
)
_COMPANIES: Final = (
    "Alpine Bluebird Cedar Copper Delta Ember Falcon Granite Harbor Horizon Lantern Maple Nimbus Pioneer Quartz Zephyr"
)
_TRADES: Final = {
    "Analytics": "Software",
    "Dental": "Healthcare",
    "Foods": "Food and Beverage",
    "Freight": "Logistics",
    "Insurance": "Insurance",
    "Robotics": "Manufacturing",
    "Solar": "Energy",
}
_TITLES: Final = (
    "CFO|Chief of Staff|CTO|Founder|Growth Lead|Head of Marketing|Head of Sales|Office Manager|Product Manager|VP Sales"
)
_PLANS: Final = ("", "", "Free", "Starter", "Team", "Business, annual")
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


def _people(rng: Random) -> Iterator[_Record]:
    """Yield random people with unique e-mail addresses, without end."""
    used: set[str] = set()
    while True:
        place, trade = rng.choice(_PLACES), rng.choice(list(_TRADES))
        first, last, company = rng.choice(_FIRST.split()), rng.choice(_LAST.split()), f"{rng.choice(_COMPANIES.split())} {trade}"
        domain = f"{company.lower().replace(' ', '-')}.example"
        email = f"{_plain(first)}.{_plain(last)}@{domain}"
        if email not in used:
            used.add(email)
            phone = "".join(str(rng.randrange(10)) if sign == "#" else sign for sign in place[4])
            known = (email, first, last, rng.choice(_TITLES.split("|")), company, _TRADES[trade], phone)
            record = zip(_HEADER, (*known, f"https://www.{domain}", *place[:4], rng.choice(_PLANS)), strict=True)
            yield {name: "" if name in _MAY_MISS and rng.random() < _MISSING else text for name, text in record}


def _plain(name: str) -> str:
    spelled = name.lower().replace("ø", "o")
    return "".join(letter for letter in unicodedata.normalize("NFKD", spelled) if letter.isascii() and letter.isalpha())


def demo_contacts() -> str:
    """Return a CSV file of people, duplicates and errors in random order. One row has too few cells, one has too many."""
    rng = Random(7)  # noqa: S311 - reproducible, not secret
    source = _people(rng)
    known = [next(source) for _ in range(_PEOPLE)]
    respellings: list[Callable[[str], str]] = [str, str.upper, str.title, " {}".format]
    twice = [
        person | {"E-mail": rng.choice(respellings)(person["E-mail"]), "Title": rng.choice(_TITLES.split("|"))}
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
    """Return the CSV file of the next night: some people have a new title, and three people are new."""
    header, *records = text.splitlines(keepends=True)
    changed = [record.replace("Head of", "Director of") if number % 20 == 0 else record for number, record in enumerate(records)]
    blank = "," * (len(_HEADER) - 3)
    new = [f"{name}@new-customer.example,{name.title()},Example{blank}\n" for name in ("ada", "grace", "alan")]
    return "".join([header, *changed, *new])
