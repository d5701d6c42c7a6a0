"""Generate the demo contacts: synthetic people at reserved domains, with the errors of real lists.

Run as a script, this module writes the contacts file of the package.
"""

from __future__ import annotations

import csv
import io
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

HEADER: Final = (
    *("E-mail", "First Name", "Last Name", "Title", "Company Name", "Company Industry", "Work Phone", "Website"),
    *("City", "State", "Country", "Timezone", "Plan"),
)
PEOPLE: Final = 2_800
REPEATS: Final = 160
FAULTS_EACH: Final = 7

Record = dict[str, str]


class Place(NamedTuple):
    """A city and a range of telephone numbers that the regulator reserves for fiction; `#` stands for any digit."""

    city: str
    state: str
    country: str
    timezone: str
    phone: str


PLACES: Final = (
    Place("New York", "NY", "US", "America/New_York", "+1 212 555 01##"),
    Place("Chicago", "Illinois", "United States", "America/Chicago", "(312) 555-01##"),
    Place("Austin", "TX", "US", "America/Chicago", "+1-512-555-01##"),
    Place("Seattle", "WA", "US", "America/Los_Angeles", "206.555.01##"),
    Place("Toronto", "ON", "CA", "America/Toronto", "+1 416 555 01##"),
    Place("London", "", "GB", "Europe/London", "+44 20 7946 0###"),
    Place("Manchester", "", "United Kingdom", "Europe/London", "+44 161 496 0###"),
    Place("Berlin", "", "DE", "Europe/Berlin", "+49 30 23125 ###"),
    Place("München", "Bayern", "Germany", "Europe/Berlin", "+49 89 99998 ###"),
    Place("Lyon", "", "France", "Europe/Paris", "+33 1 99 00 ## ##"),
    Place("Sydney", "NSW", "AU", "Australia/Sydney", "+61 2 5550 ####"),
    Place("Dublin", "", "Ireland", "Europe/Dublin", "+353 20 91# ####"),
)
FIRST: Final = (
    "Ada Aisha Alejandro Amélie Anders Anjali Ben Björn Camille Carlos Chloé Clara Daniel Divya Elena Emeka Emma Fatima Felix "
    "Freya Grace Hannah Hiroshi Ingrid Isabel Jack Jürgen Kofi Lars Leila Liam Lucía Maja Marco Mei Mohamed Nadia Noah Olga "
    "Omar Priya Quentin Rania Rosa Sanjay Sofía Tariq Thomas Uma Valentina Viktor Wei Yara Zoë"
)
LAST: Final = (
    "Abara Adler Almeida Andersson Bakker Banerjee Becker Bennett Byrne Castillo Chen Clarke Costa Dubois Eriksen Fischer "
    "García Gupta Haddad Hansen Hoffmann Ibrahim Ivanova Jansen Johansson Kaya Kimura Kowalski Larsen Lefèvre López Mäkinen "
    "Martin Mensah Moreau Müller Murphy Nakamura Nguyen Novak O'Brien Okafor Osei Patel Petrov Reyes Rossi Santos Schäfer "
    "Silva Singh Sørensen Tanaka Turner Vega Walsh Weber Williams Yilmaz Zhang"
)
COMPANIES: Final = (
    "Alpine Harbor Bluebird Cedar Copper Crescent Delta Ember Falcon Granite Horizon Juniper Lantern Maple Meridian Nimbus "
    "Northwind Orchard Pioneer Quartz Redwood Sable Summit Tidal Umber Vertex Willow Zephyr"
)
TRADES: Final = {
    "Analytics": "Software",
    "Dental": "Healthcare",
    "Foods": "Food and Beverage",
    "Freight": "Logistics",
    "Insurance": "Insurance",
    "Robotics": "Manufacturing",
    "Solar": "Energy",
    "Studio": "Design",
}
TITLES: Final = (
    "Account Executive|CFO|Chief Executive|Chief of Staff|CTO|Founder|Growth Lead|Head of Marketing|Head of Sales|Office Manager|"
    "Operations Manager|Product Manager|Revenue Operations Lead|Sales Development Representative|VP Sales"
)
PLANS: Final = ("", "", "Free", "Starter", "Team", "Business, annual")
FAULTS: Final[dict[str, Callable[[Record], Record]]] = {
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


def people(rng: Random) -> Iterator[Record]:
    """Yield random people with unique e-mail addresses, without end."""
    used: set[str] = set()
    while True:
        place, trade = rng.choice(PLACES), rng.choice(list(TRADES))
        first, last, company = rng.choice(FIRST.split()), rng.choice(LAST.split()), f"{rng.choice(COMPANIES.split())} {trade}"
        domain = f"{company.lower().replace(' ', '-')}.example"
        email = f"{plain(first)}.{plain(last)}@{domain}"
        if email not in used:
            used.add(email)
            known = (email, first, last, rng.choice(TITLES.split("|")), company, TRADES[trade], fill_in_digits(place.phone, rng))
            record = (*known, f"https://www.{domain}", *place[:4], rng.choice(PLANS))
            yield {
                name: "" if name in MAY_MISS and rng.random() < 0.15 else text for name, text in zip(HEADER, record, strict=True)
            }


MAY_MISS: Final = frozenset({*HEADER[3:]} - {"Country"})  # the country is needed to validate the state


def plain(name: str) -> str:
    """Return a name as lowercase ASCII letters, for an e-mail address."""
    spelled = name.lower().replace("ø", "o")
    return "".join(letter for letter in unicodedata.normalize("NFKD", spelled) if letter.isascii() and letter.isalpha())


def fill_in_digits(phone: str, rng: Random) -> str:
    """Replace each `#` in a telephone number by a random digit."""
    return "".join(str(rng.randrange(10)) if sign == "#" else sign for sign in phone)


def retyped(person: Record, rng: Random) -> Record:
    """Return a duplicate of a person, with a new title and possibly another spelling of the e-mail address."""
    respellings: list[Callable[[str], str]] = [str, str.upper, str.title, " {}".format]
    respell = rng.choice(respellings)
    return person | {"E-mail": respell(person["E-mail"]), "Title": rng.choice(TITLES.split("|"))}


def records(seed: int = 7) -> list[list[str]]:
    """Return the rows of the file in random order: people, duplicates and errors. One row has too few cells, one has too many."""
    rng = Random(seed)  # noqa: S311 - reproducible, not secret
    source = people(rng)
    known = [next(source) for _ in range(PEOPLE)]
    twice = [retyped(person, rng) for person in rng.sample(known, REPEATS)]
    wrong = [damage(next(source)) for damage in FAULTS.values() for _ in range(FAULTS_EACH)]
    rows = [list(person.values()) for person in [*known, *twice, *wrong]]
    rng.shuffle(rows)
    rows[1_234] = rows[1_234][:-3]
    rows[2_345] = [*rows[2_345], "see notes"]
    return rows


def content() -> str:
    """Return the content of the contacts file as CSV."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(records())
    return text.getvalue()


if __name__ == "__main__":
    root = Path(__file__).parents[2]
    (root / "outreach_async" / "cli" / "data" / "contacts.csv").write_text(content(), encoding="utf-8", newline="")
