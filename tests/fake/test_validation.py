from __future__ import annotations

import datetime as dt
import re
import string
import zoneinfo
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake import SPACE, create, creation, post, refusal, small_world
from support.tables import check_rows

from outreach_async.models import STANDARD_FIELDS

FAKE = small_world(strict_fields="all")


def refused(email: Any = "a@b.co", **fields: str | None) -> list[str]:
    """Return the fields that strict validation refuses."""
    response = post(FAKE, creation(email, **fields, strict_validation=True))
    if response.status < 300:
        return []
    return [text.split()[0] for text in refusal(response, 422, "validation_failed")["message"].split("; ")]


def table(name: str) -> list[list[str]]:
    """Return the rows of a table of the fake."""
    text = files("outreach_async.fake").joinpath("data", f"{name}.tsv").read_text(encoding="utf-8")
    return [line.split("\t") for line in text.splitlines() if line and not line.startswith("#")]


PHONES = ["mobile_phone", "work_phone", "home_phone", "voip_phone", "other_phone"]
WEBSITES = ["website", "website_2", "website_3"]
DATES = ["job_start_date", "graduation_date"]

GOOD: list[tuple[list[str], list[str]]] = [
    (["email"], ["ada@acme.example", "a.b+c_d@x.co", "x" * 64 + "@a.co", "ü@müller.de", "a@" + "b" * 63 + ".co"]),
    (["email"], ["é@ตัวอย่าง.ไทย", "a@b-c.d1.co"]),
    (PHONES, ["+44 20 7946 0958", "(555) 123-4567", "555.123.4567", "1234567", "1" * 15, "5551234567 ext. 12"]),
    (PHONES, ["5551234567x9", "5551234567 #3"]),
    (["country"], ["FR", "fr", "France", "united states", "The Gambia", "Cote d'Ivoire", "CÔTE D\u2019IVOIRE", "St Lucia"]),
    (["country"], ["Bosnia & Herzegovina"]),
    (["country"], ["United States of America", "Great Britain", "Türkiye", "Turkey", " Japan "]),
    (["state"], ["CA", "ca", "California", "new  york", "PR", "District of Columbia"]),
    (["timezone"], ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "UTC+05:30", "UTC-03:00", "UTC+14:00"]),
    (DATES, ["2024-02-29", "2024-12", "2024", "02/29/2024", "0001"]),
    (WEBSITES, ["https://acme.example", "HTTP://acme.example:8080/a?b#c", "acme.example", "münchen.example"]),
    (WEBSITES, ["http://[::1]/", "http://u:p@h/"]),
    (["stack_overflow"], ["https://stackoverflow.com/users/1", "https://ES.stackoverflow.com", "ada", "users/1/ada"]),
    (["zip"], ["75001", "SW1A 1AA", "A-1", "123456789012"]),
    (["first_name", "personal_note", "school", "company_name"], ["Ada", "É ü 漢字 😀", "x" * 1000, " padded "]),
]
BAD: list[tuple[list[str], list[str]]] = [
    (["email"], ["ada", "@acme.example", "ada@", "ada@acme", "a@b@c.co", "a b@c.co", "a\x07@c.co", "a@ü", "x" * 65 + "@a.co"]),
    (["email"], ["a@-b.co", "a@b-.co", "a@ü-.co", "a@b..co", "a@.co", "a@b_c.co", "a@ü_c.co", "a@" + "b" * 64 + ".co"]),
    (["email"], ["a@" + "ü" * 64 + ".co", "a@" + ".".join(["b" * 60] * 5)]),
    (PHONES, ["123456", "1" * 16, "555-CALL-NOW", "phone", "5551234567 ext", "555_123_4567", "٣٣٣٣٣٣٣٣", "+"]),
    (["country"], ["XX", "USA", "Nowhere", "F", "Fr ance"]),
    (["state"], ["ZZ", "Bavaria", "C A", "12"]),
    (["timezone"], ["Paris", "europe/paris", "UTC+5", "UTC+15:00", "UTC+05:60", "GMT+5:30", "Europe/Nowhere"]),
    (DATES, ["2023-02-29", "2024-13", "0000", "24", "2024-2-9", "29/02/2024", "2/9/2024", "2024-02-29T00:00", "٢٠٢٤", "today"]),
    (WEBSITES, ["acme", "ftp://acme.example", "https://", "http://a b.example", "-a.example", "a..example"]),
    (WEBSITES, ["https://[bad/", "a.example/x y"]),
    (
        ["stack_overflow"],
        ["https://example.com", "https://notstackoverflow.com", "ada lovelace", "ftp://stackoverflow.com", "http://"],
    ),
    (["zip"], ["1234567890123", "750/01", "\uff17\uff15\uff10\uff10\uff11"]),
    (["first_name", "personal_note", "school", "company_name"], ["a\nb", "\x00", "tab\there", "\x9f", "x" * 1001]),
]


def cases(table: list[tuple[list[str], list[str]]]) -> list[tuple[str, str]]:
    return [(code, value) for codes, values in table for code in codes for value in values]


def test_c27_a_valid_value_is_accepted() -> None:
    def check(code: str, value: str) -> None:
        assert refused(**{code: value}) == []

    check_rows(cases(GOOD), check)


def test_c27_an_invalid_value_is_refused_with_its_field() -> None:
    def check(code: str, value: str) -> None:
        assert refused(**{code: value}) == [code]

    check_rows(cases(BAD), check)


@given(st.from_regex(r"[a-z0-9.+_-]{1,64}@([a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?\.){1,3}[a-z]{2,8}", fullmatch=True))
def test_c27_plain_emails_are_accepted(email: str) -> None:
    assert refused(email) == []


@pytest.mark.parametrize(
    ("state", "country", "passes"),
    [
        ("CA", None, True),
        ("CA", "US", True),
        ("CA", "united states", True),
        ("Bavaria", "US", False),
        ("Bavaria", "united states", False),
        ("Bavaria", "", False),
        ("Bavaria", "  ", False),
        ("Bavaria", "Germany", True),
        ("BY", "DE", True),
        ("NSW", "AU", True),
        ("75", "FR", False),
        ("Haute-Garonne", "FR", True),
        ("--", "FR", False),
        ("a\nb", "FR", False),
    ],
)
def test_c27_a_state_is_validated_by_the_country_beside_it(state: str, country: str | None, passes: bool) -> None:
    assert ("state" not in refused(state=state, country=country)) == passes


def test_c27_null_and_blank_values_are_not_validated() -> None:
    def check(code: str, value: str | None) -> None:
        assert refused(**{code: value}) == []

    check_rows(((code, value) for code in STANDARD_FIELDS for value in [None, "", " ", "\t\n"]), check)


def test_c27_custom_and_unknown_fields_are_not_validated() -> None:
    assert refused(custom_1="\x00", custom_2="x" * 5000) == []


@pytest.mark.parametrize(("strict_fields", "refused"), [("all", ["email", "zip", "city"]), ({"zip"}, ["zip"]), ([], [])])
def test_c27_the_validated_fields_are_a_knob(strict_fields: Any, refused: list[str]) -> None:
    fake = small_world(strict_fields=strict_fields)
    response = post(fake, creation("nobody", zip="?", city="\x00", strict_validation=True))
    named = [text.split()[0] for text in refusal(response, 422, "validation_failed")["message"].split("; ")] if refused else []
    assert named == refused


def test_clearing_a_field_is_accepted_by_strict_validation() -> None:
    fake = small_world()
    create(fake, country="FR", strict_validation=True)
    create(fake, country="", strict_validation=True, duplicates="overwrite")
    assert fake.contacts(SPACE)[-1]["fields"] == {}


@given(st.dates())
def test_c27_every_real_date_is_accepted_in_every_form(day: dt.date) -> None:
    year = f"{day.year:04}"
    for text in (day.isoformat(), f"{year}-{day.month:02}", year, f"{day.month:02}/{day.day:02}/{year}"):
        assert refused(graduation_date=text) == []


def test_c27_countries_are_the_249_of_iso_3166_and_can_be_found_by_name() -> None:
    countries = table("countries")
    codes = {code for code, *_ in countries}
    assert len(countries) == len(codes) == 249
    assert all(len(code) == 2 and set(code) <= set(string.ascii_uppercase) for code in codes)
    assert [name for code, *names in countries for name in (code, *names) if refused(country=name)] == []


def test_c27_states_are_the_50_the_district_territories_and_military_posts() -> None:
    assert len({code for code, *_ in table("states")}) == 50 + 1 + 5 + 3 + 3


def test_c27_timezones_include_all_of_this_machine() -> None:
    here = {name for name in zoneinfo.available_timezones() if name not in {"localtime", "Factory"}}
    known = {name for name, *_ in table("timezones")}
    # A newer database on this machine may have a few more zones.
    assert len(here - known) < 10
    assert len(known) > 590


@pytest.mark.parametrize("table", ["countries", "names", "states", "timezones"])
def test_every_table_names_its_source_and_licence(table: str) -> None:
    text = files("outreach_async.fake").joinpath("data", f"{table}.tsv").read_text(encoding="utf-8")
    comment = " ".join(line for line in text.splitlines() if line.startswith("#"))
    assert re.search(r"Source: .*(Unicode-3\.0|public domain|MIT)", comment)
    assert text.startswith("#")
