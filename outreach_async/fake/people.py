"""Names for generated people and domains. The domains end in `.example`, which is reserved: no e-mail can reach anyone."""

from __future__ import annotations

from typing import Final

FIRST_NAMES: Final = (
    "Ada", "Amir", "Anna", "Bruno", "Carla", "Chen", "Daria", "David", "Elena", "Emeka", "Fatima", "Felix", "Grace", "Hana",
    "Hugo", "Ines", "Ivan", "Jonas", "Julia", "Kenji", "Lara", "Leo", "Lucia", "Maya", "Miguel", "Nadia", "Noah", "Olga",
    "Omar", "Priya", "Rosa", "Samir", "Sofia", "Tariq", "Tomas", "Uma", "Vera", "Wei", "Yara", "Zoe",
)  # fmt: skip

LAST_NAMES: Final = (
    "Abara", "Adler", "Almeida", "Bauer", "Bianchi", "Brandt", "Castro", "Cohen", "Costa", "Dubois", "Eriksen", "Farah",
    "Ferrari", "Garcia", "Haddad", "Hansen", "Horvat", "Ito", "Jansen", "Kaya", "Khan", "Kowalski", "Larsen", "Lopez",
    "Marin", "Meyer", "Moreau", "Novak", "Okafor", "Olsen", "Patel", "Petrov", "Rossi", "Sato", "Silva", "Singh", "Tanaka",
    "Varga", "Weber", "Zhang",
)  # fmt: skip

_HEADS: Final = ("north", "bright", "clear", "blue", "swift", "stone", "green", "prime", "true", "west", "silver", "river")
_TAILS: Final = ("peak", "path", "works", "field", "labs", "bridge", "point", "signal", "harbor", "craft", "grove", "line")

TITLES: Final = (
    "Chief Executive",
    "Head of Sales",
    "Engineer",
    "Marketing Lead",
    "Operations Manager",
    "Founder",
    "Buyer",
    "Analyst",
)
CITIES: Final = (("Lyon", "FR"), ("Austin", "US"), ("Porto", "PT"), ("Osaka", "JP"), ("Leeds", "GB"), ("Krakow", "PL"))


def domain(number: int) -> str:
    """Return a domain, a different one for each number."""
    turn, place = divmod(number, len(_HEADS) * len(_TAILS))
    head, tail = _HEADS[place % len(_HEADS)], _TAILS[place // len(_HEADS)]
    return f"{head}{tail}{turn + 1 if turn else ''}.example"


def company(number: int) -> str:
    """Return the company name that matches the domain of a number."""
    return domain(number).removesuffix(".example").capitalize()
