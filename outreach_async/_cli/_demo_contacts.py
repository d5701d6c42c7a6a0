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
_PEOPLE: Final = 2_800
_MISSING: Final = 0.15  # the share of optional cells that are blank
_REPEATS: Final = 160
_FAULTS_EACH: Final = 7

_Record = dict[str, str]


# City, state, country, time zone, and telephone numbers that the regulator reserves for fiction; `#` stands for any digit.
_PLACES: Final = (
    ("New York", "NY", "US", "America/New_York", "+1 212 555 01##"),
    ("Chicago", "Illinois", "United States", "America/Chicago", "(312) 555-01##"),
    ("Austin", "TX", "US", "America/Chicago", "+1-512-555-01##"),
    ("Seattle", "WA", "US", "America/Los_Angeles", "206.555.01##"),
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
    "Ada Aisha Alejandro Amélie Anders Anjali Ben Björn Camille Carlos Chloé Clara Daniel Divya Elena Emeka Emma Fatima Felix "
    "Freya Grace Hannah Hiroshi Ingrid Isabel Jack Jürgen Kofi Lars Leila Liam Lucía Maja Marco Mei Mohamed Nadia Noah Olga "
    "Omar Priya Quentin Rania Rosa Sanjay Sofía Tariq Thomas Uma Valentina Viktor Wei Yara Zoë"
)
_LAST: Final = (
    "Abara Adler Almeida Andersson Bakker Banerjee Becker Bennett Byrne Castillo Chen Clarke Costa Dubois Eriksen Fischer "
    "García Gupta Haddad Hansen Hoffmann Ibrahim Ivanova Jansen Johansson Kaya Kimura Kowalski Larsen Lefèvre López Mäkinen "
    "Martin Mensah Moreau Müller Murphy Nakamura Nguyen Novak O'Brien Okafor Osei Patel Petrov Reyes Rossi Santos Schäfer "
    "Silva Singh Sørensen Tanaka Turner Vega Walsh Weber Williams Yilmaz Zhang"
)
_COMPANIES: Final = (
    "Alpine Harbor Bluebird Cedar Copper Crescent Delta Ember Falcon Granite Horizon Juniper Lantern Maple Meridian Nimbus "
    "Northwind Orchard Pioneer Quartz Redwood Sable Summit Tidal Umber Vertex Willow Zephyr"
)
_TRADES: Final = {
    "Analytics": "Software",
    "Dental": "Healthcare",
    "Foods": "Food and Beverage",
    "Freight": "Logistics",
    "Insurance": "Insurance",
    "Robotics": "Manufacturing",
    "Solar": "Energy",
    "Studio": "Design",
}
_TITLES: Final = (
    "Account Executive|CFO|Chief Executive|Chief of Staff|CTO|Founder|Growth Lead|Head of Marketing|Head of Sales|Office Manager|"
    "Operations Manager|Product Manager|Revenue Operations Lead|Sales Development Representative|VP Sales"
)
_PLANS: Final = ("", "", "Free", "Starter", "Team", "Business, annual")
_FAULTS: Final[dict[str, Callable[[_Record], _Record]]] = {
    "no e-mail": lambda person: person | {"E-mail": ""},
    "blank e-mail": lambda person: person | {"E-mail": "   "},
    "no at sign": lambda person: person | {"E-mail": person["E-mail"].replace("@", ".")},
    "two at signs": lambda person: person | {"E-mail": person["E-mail"].replace("@", "@@")},
    "name and address": lambda person: person | {"E-mail": f"{person['First Name']} <{person['E-mail']}>"},
    "no e-mail known": lambda person: person | {"E-mail": "n/a"},
    "cut-off domain": lambda person: person | {"E-mail": person["E-mail"].removesuffix(".example")},
    "phone as a number of a spreadsheet": lambda person: person | {"Work Phone": "4.92E+11"},
    "extension only": lambda person: person | {"Work Phone": "ext. 214"},
    "country nobody knows": lambda person: person | {"Country": "Unknown"},
    "time zone nobody knows": lambda person: person | {"Timezone": "Central-ish"},
    "website with a blank": lambda person: person | {"Website": "ask them"},
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
            known = (email, first, last, rng.choice(_TITLES.split("|")), company, _TRADES[trade], _fill_in_digits(place[4], rng))
            record = (*known, f"https://www.{domain}", *place[:4], rng.choice(_PLANS))
            yield {
                name: "" if name in _MAY_MISS and rng.random() < _MISSING else text
                for name, text in zip(_HEADER, record, strict=True)
            }


_MAY_MISS: Final = frozenset({*_HEADER[3:]} - {"Country"})  # the country is needed to validate the state


def _plain(name: str) -> str:
    """Return a name as lowercase ASCII letters, for an e-mail address."""
    spelled = name.lower().replace("ø", "o")
    return "".join(letter for letter in unicodedata.normalize("NFKD", spelled) if letter.isascii() and letter.isalpha())


def _fill_in_digits(phone: str, rng: Random) -> str:
    return "".join(str(rng.randrange(10)) if sign == "#" else sign for sign in phone)


def _retyped(person: _Record, rng: Random) -> _Record:
    respellings: list[Callable[[str], str]] = [str, str.upper, str.title, " {}".format]
    respell = rng.choice(respellings)
    return person | {"E-mail": respell(person["E-mail"]), "Title": rng.choice(_TITLES.split("|"))}


def _records() -> list[list[str]]:
    """Return the rows of the file in random order: people, duplicates and errors. One row has too few cells, one has too many."""
    rng = Random(7)  # noqa: S311 - reproducible, not secret
    source = _people(rng)
    known = [next(source) for _ in range(_PEOPLE)]
    twice = [_retyped(person, rng) for person in rng.sample(known, _REPEATS)]
    wrong = [damage(next(source)) for damage in _FAULTS.values() for _ in range(_FAULTS_EACH)]
    rows = [list(person.values()) for person in [*known, *twice, *wrong]]
    rng.shuffle(rows)
    rows[1_234] = rows[1_234][:-3]
    rows[2_345] = [*rows[2_345], "see notes"]
    return rows


def demo_contacts() -> str:
    """Return a CSV file with the contacts."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_HEADER)
    writer.writerows(_records())
    return text.getvalue()


def change_contacts(text: str) -> str:
    """Return the CSV file of the next night: some people have a new title, and three people are new."""
    header, *records = text.splitlines(keepends=True)
    changed = [record.replace("Head of", "Director of") if number % 20 == 0 else record for number, record in enumerate(records)]
    blank = "," * (len(_HEADER) - 3)
    new = [f"{name}@new-customer.example,{name.title()},Example{blank}\n" for name in ("ada", "grace", "alan")]
    return "".join([header, *changed, *new])
