"""The checks of values: what they report and what they leave to the service."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import BytesIO
from typing import Any

import phonenumbers
import pytest
from email_validator import EmailNotValidError, validate_email
from hypothesis import example, given
from hypothesis import strategies as st
from support import files
from support.files import read_cells, refused
from support.tables import check_rows

from outreach_async._plumbing import find_odd
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.fake._handlers import find_country_code, is_state
from outreach_async.importer import CheckPolicy, Columns, RowFinding, map_columns, open_file
from outreach_async.importer import _checks as checks
from outreach_async.importer._checks import CHECKS, LINTS, ValueCheck
from outreach_async.importer._known_exports import fold_name

# Policy.


def test_a_setting_is_for_one_check_or_all_and_the_later_wins() -> None:
    default = {**dict.fromkeys(CHECKS, "warn"), "consent": "error"}
    assert CheckPolicy.of().levels == default
    assert {check for check, level in CheckPolicy.of(["error"]).levels.items() if level == "warn"} == LINTS
    assert CheckPolicy.of(["error", "date=error"]).levels["date"] == "error"
    assert CheckPolicy.of(["off", "email=error"]).levels == {
        **dict.fromkeys(default, "off"),
        "email": "error",
        "consent": "error",
    }
    dropped = {check for check, level in CheckPolicy.of(["drop"]).levels.items() if level == "drop"}
    assert dropped == {*CHECKS} - {"email", "role", "typo", "cells", "repeat", "consent"}
    assert set(CheckPolicy.of(["email=error", "off", "consent=off"]).levels.values()) == {"off"}
    # Who may be written to is only a setting of its own check.
    assert {CheckPolicy.of([level]).levels["consent"] for level in ("error", "drop", "warn", "off")} == {"error"}
    assert CheckPolicy.of(["consent=warn"]).levels["consent"] == "warn"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maybe", "expected error, drop, warn or off"),
        ("email=maybe", "expected error, drop, warn or off"),
        ("e-mail=warn", "unknown check in 'e-mail=warn'; use one of email, role,"),
        ("=warn", "unknown check in '=warn'"),
        ("repeat=error", "expected repeat=warn or repeat=off"),
        ("consent=drop", "expected error, warn or off for consent"),
    ],
)
def test_an_unknown_level_or_check_is_refused(text: str, message: str) -> None:
    assert message in refused(CheckPolicy.of, [text])


def test_a_check_whose_library_is_missing_is_off_and_says_so() -> None:
    policy = CheckPolicy.of(has=lambda module: module != "phonenumbers")
    assert (policy.levels["phone"], policy.levels["email"]) == ("off", "warn")
    assert policy.note == "not checked: phone; to enable, run pip install 'outreach_async[validate]'"
    assert CheckPolicy.of().note is None
    assert CheckPolicy.of(["off"], has=lambda _module: None).note is None


def test_a_requested_check_whose_library_is_missing_is_refused() -> None:
    with pytest.raises(
        InvalidRequest, match=r"extra 'validate' is required for email and phone; run pip install 'outreach_async\[validate\]'"
    ):
        CheckPolicy.of(["warn"], has=lambda _module: None)
    assert CheckPolicy.of(["warn", "email=off", "phone=off"], has=lambda _module: None).note is None


# Single values.

MEANT = "; did you mean "
ZONE = "expected a name in the time zone database, such as 'Europe/Berlin'"
OFFSET = f"{ZONE}, or an offset, such as UTC+05:30"
VALUES: Sequence[tuple[ValueCheck, Iterable[Any], str | None]] = [
    (checks.check_email, ["a@@b.example", "a b@c.example", "a@b", "a.@b.example", "a@b..example"], "not a valid address: ..."),
    (checks.check_email, ["a" * 65 + "@a.example", "a@x.test", "a@b.example\nc@d.example"], "not a valid address: ..."),
    (checks.check_typo, ["a@gamil.com"], "the domain is probably a mistyped gmail.com; correct the domain"),
    (checks.check_typo, ["a@Hotmial.com"], "the domain is probably a mistyped hotmail.com; correct the domain"),
    (checks.check_typo, ["a@yaho.com"], "the domain is probably a mistyped yahoo.com; correct the domain"),
    (checks.check_typo, ["a@gmail.com", "a@ymail.com", "a@gmx.at", "a@mail.com", "a@works.example"], None),
    (checks.check_role, ["Info@a.example"], "the address of a role; use the address of a person"),
    (checks.check_role, ["inform@a.example"], None),
    (checks.check_phone, [("(206) 555-0100 ext. 12", "US")], None),
    (checks.check_phone, [("206 555 0100", None)], "the country is unknown; add the calling code, as in +1 206 555 0100"),
    (checks.check_phone, [("call me", "US"), ("+999 1234 5678", None)], "not a phone number: ..."),
    (checks.check_phone, [("+1 000 000 0000", None)], "not a valid number for calling code +1; check the digits"),
    (checks.check_phone, [("12", "DE")], "not a valid number for calling code +49; check the digits"),
    (checks.check_phone, [("+1 206/555/0100", None)], "expected only digits, blanks and + ( ) - . in the number; remove..."),
    (checks.check_country, ["US", "de", "United States", "The Netherlands", "Côte d'Ivoire", "south korea", "Türkiye"], None),
    (checks.check_country, ["USA", "U.S."], f"expected a two-letter code or a name{MEANT}'US'?"),
    (checks.check_country, ["UK"], f"expected a two-letter code or a name{MEANT}'GB'?"),
    (checks.check_country, ["Germny"], f"expected a country's two-letter code or name{MEANT}'DE'?"),
    (checks.check_country, ["Nigeri"], f"expected a country's two-letter code or name{MEANT}'NG' or 'NE'?"),
    (checks.check_country, ["Atlantis"], "expected a country's two-letter code or name"),
    (checks.check_state, [("WA", "US"), ("Ontario", "CA"), ("nsw", "AU"), ("Québec", "CA"), ("Bayern", "DE")], None),
    (checks.check_state, [("XX", None), ("12", None), ("WA", ""), ("Texas", "")], None),
    (checks.check_state, [("Washingtn", "US")], f"not a state of US{MEANT}'WA' or 'DC'?"),
    (checks.check_state, [("W Virginia", "US")], f"not a state of US{MEANT}'VA' or 'WV'?"),
    (checks.check_state, [("Bayern", "US")], "not a state of US"),
    (checks.check_state, [("CA%", "US")], "not a state of US..."),
    (checks.check_state, [("Bayern", "")], "not a state of the US, and the row has no country; add the country"),
    (checks.check_state, [(text, "DE") for text in ("12", "Bayern 12", "-")], "expected a name without digits in DE"),
    (checks.check_date, ["2024-02-29", "2024-02", "2024"], None),
    (checks.check_date, ["2023-02-29"], "the date does not exist; correct the day or the month"),
    (checks.check_date, ["02/03/2024"], "expected YYYY-MM-DD, which is unambiguous; ..."),
    (checks.check_timezone, ["Europe/Berlin", "UTC", "UTC+05:30"], None),
    (checks.check_timezone, ["europe/berlin", "Europe/Berln"], f"{ZONE}{MEANT}'Europe/Berlin'?"),
    (checks.check_timezone, ["Mars", "CEST"], ZONE),  # CEST is similar to EST
    (checks.check_timezone, ["GMT+2", "+0200", "GMT+2:00"], f"{OFFSET}{MEANT}'UTC+02:00'?"),  # Etc/GMT+2 is behind UTC
    (checks.check_timezone, ["GMT+12"], f"{OFFSET}{MEANT}'UTC+12:00'?"),
    (checks.check_timezone, ["UTC-5"], f"{OFFSET}{MEANT}'UTC-05:00'?"),
    (checks.check_timezone, ["utc +5:30"], f"{OFFSET}{MEANT}'UTC+05:30'?"),
    (checks.check_timezone, ["\u22123"], f"{OFFSET}{MEANT}'UTC-03:00'?"),
    (checks.check_timezone, ["+15"], OFFSET),
    (checks.check_timezone, ["EST"], f"EST has no summer time{MEANT}'America/New_York'?"),
    (checks.check_timezone, ["MST"], f"MST has no summer time{MEANT}'America/Denver'?"),
    (checks.check_timezone, ["etc/gmt+2"], f"{ZONE}{MEANT}'Etc/GMT+2'?"),
    (checks.check_timezone, ["america/new york"], f"{ZONE}{MEANT}'America/New_York'?"),
    (checks.check_website, ["example.com", "https://www.example.com/a?b#c", "http://bücher.example:8080", "a-b.example"], None),
    (
        checks.check_website,
        ["none", "http://", "ftp://example.com", "a b.example", "-a.example", "10.0.0.1", "a.example/b", "see https://a.ex"],
        "expected an http or https URL, or a host such as www.example.com",
    ),
    (checks.check_stack_overflow, ["https://stackoverflow.com/users/1", "http://de.stackoverflow.com", "annlee", "@ann"], None),
    (
        checks.check_stack_overflow,
        ["ann lee", "https://so.example/1", "https://stackoverflow.com.example"],
        "expected a URL on stackoverflow.com, or a handle without blanks",
    ),
    (checks.check_zip, ["SW1A 1AA"], None),
    (checks.check_zip, ["123456789 1234", "75001\n", "75.001"], "expected at most 12 letters, digits, blanks and hyphens"),
    (checks.check_text, ["x" * 1000], None),
    (checks.check_text, ["x" * 1001], "expected at most 1,000 characters; shorten the text"),
    (checks.check_text, ["a\tb"], "the text has a line break, a tab or another control character; remove it"),
]
"""Checks, values, and what is said of each; `...` stands for any text at the end."""


def test_a_check_says_what_is_wrong_with_a_value_and_what_may_be_meant() -> None:
    def check(judge: ValueCheck, value: Any, said: str | None) -> None:
        found = judge(value)
        assert found == said or (said and said.endswith("...") and (found or "").startswith(said[:-3])), found

    check_rows(((judge, value, said) for judge, values, said in VALUES for value in values), check)


def test_a_country_and_a_state_have_codes() -> None:
    codes = {"United States": "US", "USA": "US", "UK": "GB", "Türkiye": "TR", "Germny": None}
    assert {text: checks.find_country_code(text) for text in codes} == codes
    counts = {country: len(set(states.values())) for country, states in checks._load_states().items()}
    assert counts == {"US": 59, "CA": 13, "AU": 8}


# E-mail addresses.


@given(st.from_regex(r"\A[A-Za-z0-9_+.-]{1,20}@[A-Za-z0-9.-]{1,20}\.[A-Za-z]{2,8}\Z"))
def test_an_address_accepted_without_the_library_is_accepted_by_the_library(address: str) -> None:
    try:
        validate_email(address, check_deliverability=False, strict=True)
        accepted = True
    except EmailNotValidError:
        accepted = False
    assert (checks.check_email(address) is None) == accepted


# Phones.


def examples() -> list[tuple[str, str]]:
    """Return a fixed-line and a mobile number of each country, as dialled from abroad."""
    kinds = (phonenumbers.PhoneNumberType.FIXED_LINE, phonenumbers.PhoneNumberType.MOBILE)
    found = [
        (region, phonenumbers.example_number_for_type(region, kind))
        for region in sorted(phonenumbers.SUPPORTED_REGIONS)
        for kind in kinds
    ]
    return [(region, f"+{number.country_code} {number.national_number}") for region, number in found if number]


def dialled(text: str, region: str | None) -> bool:
    try:
        return bool(phonenumbers.is_valid_number(phonenumbers.parse(text, region)))
    except phonenumbers.NumberParseException:
        return False


@pytest.mark.covers
@pytest.mark.thorough
def test_a_number_accepted_without_the_library_is_accepted_by_the_library() -> None:
    quick = 0
    for region, text in examples():
        national = text.partition(" ")[2]
        abroad, at_home = (text, text[:-1] + "7", text + "0"), (national, f"0{national}")
        for number, country in (*((each, None) for each in abroad), *((each, region) for each in at_home)):
            if checks._is_plainly_valid(number, country):
                quick += 1
                assert dialled(number, country), (number, country)
    assert quick > len(examples())


@given(st.from_regex(r"\A\+?[0-9 ().-]{0,16}\Z"), st.sampled_from([None, "US", "DE", "GB", "IT", "AU", "CO", "AR", "ZZ"]))
@example("+", None)
def test_every_number_is_judged_as_the_library_judges_it(text: str, country: str | None) -> None:
    text = text.strip()
    assert (checks.check_phone((text, country)) is None) == (not text or dialled(text, country))


def test_plain_numbers_are_accepted_without_the_library() -> None:
    before = checks._validate_phone.cache_info().misses
    for at in range(100):
        assert checks.check_phone((f"+1 206 555 01{at:02}", None)) is None
        for country, number in {"CA": "+1 (416) 555-01", "DE": "030 1234", "AU": "02 9374 40"}.items():
            assert checks.check_phone((f"{number}{at:02}", country)) is None
    assert checks._validate_phone.cache_info().misses == before


def test_all_countries_are_known_and_their_names_are_unique() -> None:
    codes, names, longer = checks._load_countries()
    assert len(codes) == len(longer) == 249
    assert set(names.values()) == set(codes.values())
    assert len(names) == sum(
        len({fold_name(name) for name in line.split("\t")[2:]}) for line in checks._read_table("countries.tsv").splitlines()
    )


def test_every_name_that_passes_a_check_is_accepted_by_a_strict_service() -> None:
    countries = [line.split("\t") for line in checks._read_table("countries.tsv").splitlines()]
    names = {name for code, _, *names in countries for name in (code, *names)}
    assert [name for name in names if not checks.check_country(name) and not find_country_code(name)] == []
    for country, *texts in (line.split("\t") for line in checks._read_table("states.tsv").splitlines()):
        assert [text for text in texts if not is_state(text, country)] == []


def test_every_proposed_offset_is_accepted() -> None:
    for minutes in range(-14 * 60, 15 * 60, 15):
        text = f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60}:{abs(minutes) % 60:02}"
        found = checks.check_timezone(text) or ""
        if proposed := found.partition("; did you mean ")[2].strip("'?"):
            assert checks.check_timezone(proposed) is None
            assert proposed.startswith(f"UTC{text[0]}")


# Rows.

COLUMNS = map_columns(("email", "work_phone", "country", "state", "website", "Plan"), {"Plan": "ignore"})


def full(*cells: str) -> tuple[str, ...]:
    return (*cells, *[""] * (len(COLUMNS.headers) - len(cells)))


def find(*rows: Sequence[str], checks: Iterable[str] = (), columns: Columns = COLUMNS) -> dict[int, list[RowFinding]]:
    found = read_cells(columns, *(full(*row) if columns is COLUMNS else row for row in rows), checks=checks).findings
    return {at: [*findings] for at, findings in found.items() if findings}


def test_a_finding_names_the_field_the_value_and_the_problem_in_its_row() -> None:
    found = find(("a@a.example",), ("Info@Gamil.com", "12345678", "Germny"))
    assert list(found) == [1]
    assert [(each.check, each.level, each.code) for each in found[1]] == [
        ("role", "warn", "email"),
        ("typo", "warn", "email"),
        ("country", "warn", "country"),
        ("phone", "warn", "work_phone"),
    ]
    (country,) = [each for each in found[1] if each.check == "country"]
    assert country.message == "country: 'Germny': expected a country's two-letter code or name; did you mean 'DE'?"
    assert country.reason == "expected a country's two-letter code or name"
    # Texts of a column are judged together: one with a control character must not hide among others.
    city = map_columns(["email", "city"])
    odd = find(("a@a.example", "Lyon"), ("b@b.example", "a\tb"), columns=city, checks=["cells=off"])
    assert [(at, each.check) for at, findings in odd.items() for each in findings] == [(1, "text")]


def test_one_bad_address_among_many_costs_no_check_of_all_others() -> None:
    addresses = [f"p{at}@a.example" for at in range(500)]
    addresses[123] = "a@@a.example"
    assert find_odd(addresses, checks._are_plain) == ["a@@a.example"]
    assert list(find(*((address,) for address in addresses))) == [123]


def test_the_country_of_a_row_applies_to_its_phone_and_state() -> None:
    assert find(("a@a.example", "0161 496 0000", "UK"), ("a@a.example", "", "USA", "WA")).keys() == {0, 1}
    assert find(("a@a.example", "0161 496 0000", "GB", "")) == {}
    assert [each.check for each in find(("a@a.example", "0161 496 0000", "US", "Kent"))[0]] == ["phone", "state"]


def test_a_long_value_is_shortened_and_a_key_is_masked() -> None:
    (found,) = find(("a@a.example", "", "", "", "x" * 100), checks=["off", "website=warn"])[0]
    assert found.message.startswith(f"website: '{'x' * 60}...': ")
    (found,) = find(("a@a.example", "", "", "", "key_secret"), checks=["off", "website=warn"])[0]
    assert "secret" not in found.message


def test_rows_with_an_error_are_not_sent_and_others_are_unchanged() -> None:
    rows = [full("a@a.example"), full("a@@a"), full("b@b.example", "", "Germny"), ("torn",)]
    first, second, third, torn = read_cells(COLUMNS, *rows, checks=["off", "email=error", "country=warn"]).rows()
    assert (first.fault, third.fault, third.warnings) == (None, None, ())
    assert (second.fault or "").startswith("email: 'a@@a': not a valid address")
    assert (torn.fault or "").startswith("expected 6 cells, as in the header, got 1")


def test_what_is_wrong_in_a_cell_has_the_level_of_the_check_of_cells() -> None:
    columns = map_columns(["email", "custom_1"])
    odd = ("a@a.example", "OrlÃ©ans")
    (found,) = find(odd, columns=columns)[0]
    assert found[:4] == ("cells", "warn", "custom_1", "was read in the wrong encoding; export the file again as UTF-8")
    assert find(odd, columns=columns, checks=["off"]) == {}
    guarded, plain = read_cells(columns, odd, ("a@a.example", ""), checks=["off", "cells=error"]).rows()
    assert (guarded.fault, plain.fault) == (found.message, None)


def test_the_checks_of_values_check_what_is_sent() -> None:
    read = read_cells(COLUMNS, full("a@a.example", "NULL"), checks=["off", "phone=error", "cells=warn"])
    assert [found.check for found in read.findings[0]] == ["cells"]
    assert read.row(0).fault is None


def test_without_the_cells_check_every_cell_is_sent_and_checked_as_it_is() -> None:
    columns = map_columns(["email", "last_name", "work_phone", "zip"])
    rows = [("a@a.example", "NULL", "nan", "1.0"), ("b@b.example", "Li", "4.1E+11", "a\0"), ("#N/A", "", "", "")]
    read = read_cells(columns, *rows, checks=["cells=off"])
    assert [dict(row) for row in read.rows()] == [
        {code: cell for code, cell in zip(columns.headers, cells, strict=True) if cell} for cells in rows
    ]
    assert [[found.check for found in read.findings[at]] for at in range(3)] == [["phone", "zip"], ["phone", "zip"], ["email"]]
    (half,) = read_cells(columns, ("a@a.example", "x\ud800", "", ""), checks=["cells=off"]).rows()
    assert (half.fault or "").startswith("last_name: expected valid Unicode")


def test_a_lost_optional_value_is_left_out_and_rejects_its_row_only_on_request() -> None:
    lost = ("a@a.example", "call me")
    read = read_cells(COLUMNS, full(*lost))
    (found,) = read.findings[0]
    assert (found.check, found.level, found.code) == ("phone", "drop", "work_phone")
    assert dict(read.row(0)) == {"email": "a@a.example"}
    assert [(remark.kind, remark.value) for remark in read.row(0).warnings] == [("phone", "")]
    for setting in "phone=error", "cells=error":
        assert (read_cells(COLUMNS, full(*lost), checks=[setting]).row(0).fault or "").startswith("work_phone: 'call me' ")
    assert read_cells(COLUMNS, full(*lost), checks=["phone=off"]).row(0)["work_phone"] == "call me"


def test_a_value_that_a_check_drops_is_not_sent_and_the_next_checks_know() -> None:
    cells = full("a@a.example", "0161 496 0000", "Brittain", "Kent", "ask them")
    read = read_cells(COLUMNS, cells, checks=["drop"])
    assert dict(read.row(0)) == {"email": "a@a.example"}
    assert [(found.check, found.level) for found in read.findings[0]] == [
        *(("country", "drop"), ("phone", "drop"), ("state", "drop"), ("website", "drop"))
    ]
    assert [remark.kind for remark in read.row(0).warnings] == ["country", "phone", "state", "website"]


def test_a_row_of_a_person_who_opted_out_is_excluded_and_has_no_other_finding() -> None:
    columns = map_columns(["email", "Unsubscribed", "country"])
    rows = [("a@a.example", "true", "Germny"), ("b@b.example", "no", "DE")]
    read = read_cells(columns, *rows, checks=["error"])
    out, sent = read.rows()
    assert (out.excluded, out.fault, sent.excluded) == ("column 'Unsubscribed' says 'true'", None, None)
    assert [(at, *found[:5]) for at, findings in read.findings.items() for found in findings] == [
        (0, "consent", "error", "opt_out", "column 'Unsubscribed'", out.excluded)
    ]
    with pytest.raises(Excluded, match="Unsubscribed"):
        out.items()
    assert out.plain is None
    for level, found in ("warn", ["consent"]), ("off", []):
        read = read_cells(columns, *rows, checks=["off", f"consent={level}"])
        assert [dict(row)["email"] for row in read.rows()] == ["a@a.example", "b@b.example"]
        assert [each.check for each in read.findings.get(0, ())] == found


def test_an_error_excludes_in_a_column_of_consent_of_any_format() -> None:
    # In another column, such as that of a formula beside it, an error says nothing.
    header = [files.text(name) for name in ("email", "Unsubscribed", "city")]
    sheet = files.sheet_of([header, [files.text("a@a.example"), files.error("#REF!"), files.error()]])
    for content, kind in (b"email,Unsubscribed,city\na@a.example,#REF!,#N/A\n", "csv"), (files.workbook({"A": sheet}), "xlsx"):
        file = open_file(BytesIO(content), format=kind)
        (row,) = file.rows(columns := map_columns(file.headers))
        assert (row.excluded or "").startswith("column 'Unsubscribed'")
        assert [*file.find_people(columns).values()] == ["line 2"]


def test_columns_without_an_email_are_refused_when_rows_are_read() -> None:
    file = open_file(BytesIO(b"City\nLyon\n"), format="csv")
    columns = Columns(("City",), ("city",))
    assert refused(lambda: [*file.rows(columns)]) == (
        "columns: expected a column that maps to 'email', which every contact needs, got none; map one"
    )


def test_the_first_column_of_a_field_that_has_a_value_counts() -> None:
    columns = map_columns(["Work", "Home", "city"], {"Work": "email", "Home": "email"})
    rows = [("", "b@b.example", ""), ("#N/A", "c@c.example", "x"), ("d@d.example", "NULL", ""), ("NULL", "NULL", "")]
    read = read_cells(columns, *rows)
    assert [(row.email, len(row.warnings)) for row in read.rows()][:3] == [
        *(("b@b.example", 0), ("c@c.example", 1), ("d@d.example", 0))
    ]
    assert [row.fault is None for row in read.rows()] == [True, True, True, False]
    assert [dict(row).get("email") for row in [*read.rows()][:3]] == ["b@b.example", "c@c.example", "d@d.example"]


@given(st.lists(st.tuples(*[st.text(max_size=8)] * len(COLUMNS.headers)), min_size=1, max_size=8))
def test_checking_rows_together_equals_checking_each(cells: list[tuple[str, ...]]) -> None:
    alone = {at: find(each).get(0, []) for at, each in enumerate(cells)}
    assert find(*cells) == {at: found for at, found in alone.items() if found}


def test_a_number_in_a_column_of_consent_is_read_as_its_text() -> None:
    lines = b'{"email": "a@a.example", "Unsubscribed": 1}\n{"email": "b@b.example", "Unsubscribed": 0}\n'
    file = open_file(BytesIO(lines), format="jsonl")
    out, sent = file.rows(map_columns(file.headers))
    assert (out.excluded, sent.excluded) == ("column 'Unsubscribed' says '1'", None)
