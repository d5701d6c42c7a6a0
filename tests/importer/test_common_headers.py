"""The table of common column names: complete, sourced and without contradictions; every name maps, or is reported."""

from __future__ import annotations

import shlex
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import check_rows

from outreach_async._plumbing import TARGET_FIELDS
from outreach_async.errors import InvalidRequest
from outreach_async.importer import CODE, UnmappedColumns, map_columns, parse_overrides
from outreach_async.importer._consent import CONSENT_CODES
from outreach_async.importer._known_exports import (
    find_ambiguous,
    fold_name,
    load_ambiguous_headers,
    load_common_fields,
    read_common_headers,
)
from outreach_async.models import STANDARD_FIELDS, WorkspaceField

CODES = {"email", *STANDARD_FIELDS}
LANGUAGES = read_common_headers()["languages"]
NAMED = [(name, code) for language in LANGUAGES.values() for code, names in language["fields"].items() for name in names]
MEANINGS = {id(header): header for header in load_ambiguous_headers().values()}.values()
AMBIGUOUS = [name for header in MEANINGS for name in header.names]
EVERY_NAME = [*(name for name, _ in NAMED), *AMBIGUOUS]


def map_header(*names: str) -> tuple[str | None, ...]:
    """Return the codes of columns. Add a column for the e-mail if there is none."""
    if any(load_common_fields().get(fold_name(name)) == "email" for name in names):
        return map_columns(names).codes
    return map_columns(["email", *names]).codes[1:]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_language_has_a_source_for_fifteen_names_and_says_which_have_none(language: str) -> None:
    table = LANGUAGES[language]
    names = {name for group in table["fields"].values() for name in group}
    assert table["source"]
    assert set(table["unsourced"]) <= names
    assert len({fold_name(name) for name in names - set(table["unsourced"])}) >= 15


@pytest.mark.thorough
def test_no_two_rows_of_the_table_contradict_each_other() -> None:
    for (one, code), (other, other_code) in combinations(NAMED, 2):
        assert fold_name(one) != fold_name(other) or code == other_code, (one, other)
    assert not {fold_name(name) for name, _ in NAMED} & {fold_name(name) for name in AMBIGUOUS}
    for one_header, other_header in combinations(MEANINGS, 2):
        assert not set(map(fold_name, one_header.names)) & set(map(fold_name, other_header.names))


def test_no_name_of_the_table_hides_a_field_of_that_name() -> None:
    by_code = {fold_name(code): code for code in CODES}
    for name, code in NAMED:
        assert by_code.get(fold_name(name), code) == code
    assert not by_code.keys() & {fold_name(name) for name in AMBIGUOUS}


def test_the_table_maps_to_existing_fields() -> None:
    assert {code for _, code in NAMED} <= CODES
    for header in MEANINGS:
        assert set(header.may_be) <= {*CODES, *TARGET_FIELDS, *CONSENT_CODES, "ignore"}
        assert len(set(header.may_be)) == len(header.may_be) >= 2
        for rule in header.rules:
            assert rule["field"] in header.may_be
            assert rule["reason"]
            assert {*rule.get("present", ()), *rule["absent"]} <= CODES
            assert rule.keys() <= {"field", "reason", "beside", "present", "absent"}
            assert rule["field"] in rule["absent"]  # otherwise two columns would map to one field


def test_a_name_with_one_meaning_maps_alone() -> None:
    def check(name: str, code: str) -> None:
        assert map_header(name) == (code,)

    check_rows(sorted(set(NAMED)), check)


def test_an_ambiguous_name_alone_is_decided_by_a_rule_or_reported() -> None:
    def check(name: str) -> None:
        header = find_ambiguous(name)
        assert header is not None
        decided = header.decide({fold_name(name), "email"}, {"email"})
        if decided is not None:
            assert map_header(name) == (decided[0],)
            return
        with pytest.raises(UnmappedColumns) as caught:
            map_header(name)
        (column,) = caught.value.columns
        assert (column.ambiguous, column.proposals) == (True, header.may_be)

    check_rows(((name,) for name in AMBIGUOUS), check)


@given(st.sampled_from(NAMED), st.sampled_from([str.upper, str.lower, str.title]), st.sampled_from(["", " ", "-", "."]))
def test_case_and_punctuation_make_no_difference(named: tuple[str, str], respell: type[str], end: str) -> None:
    name, code = named
    assert map_header(respell(name) + end) == (code,)


@given(st.lists(st.sampled_from(EVERY_NAME), min_size=1, max_size=6, unique_by=fold_name))
def test_every_option_of_an_error_can_be_pasted_and_settles_its_column(names: list[str]) -> None:
    headers = ["email", *(name for name in names if load_common_fields().get(fold_name(name)) != "email")]
    error = find_error(headers, {})
    if isinstance(error, UnmappedColumns):
        options = [shlex.split(column.option()) for column in error.columns]
        assert options == [["--map", f"{column.header}={column.proposals[0]}"] for column in error.columns]
        error = find_error(headers, parse_overrides([text.replace(f"={CODE}", "=ignore") for _, text in options]))
    assert error is None or "both map to" in str(error)


def find_error(headers: list[str], overrides: dict[str, str]) -> Exception | None:
    try:
        map_columns(headers, overrides)
    except InvalidRequest as error:
        return error
    return None


@given(st.permutations(["Name", "Vorname", "Titel", "Position", "Telefon", "Ort", "Estado", "Nombre"]))
def test_the_order_of_the_columns_makes_no_difference(headers: list[str]) -> None:
    codes = map_columns(["email", *headers], {"Titel": "ignore", "Nombre": "ignore"}).codes
    assert dict(zip(headers, codes[1:], strict=True)) == {
        "Name": "last_name",
        "Vorname": "first_name",
        "Titel": None,
        "Position": "title",
        "Telefon": "work_phone",
        "Ort": "city",
        "Estado": "state",
        "Nombre": None,
    }


@pytest.mark.parametrize(
    ("headers", "codes"),
    [
        (("Vorname", "Name"), ("first_name", "last_name")),
        (("Naam", "Voornaam"), ("last_name", "first_name")),
        (("Name",), ("full_name",)),
        (("Name", "Last Name"), ("first_name", "last_name")),
        (("Surname", "NAME"), ("last_name", "first_name")),
        (("Jméno", "Příjmení"), ("first_name", "last_name")),
        (("Imię", "Nazwisko", "Nazwa"), ("first_name", "last_name", "company_name")),
        (("Imie", "Plec", "Kraj"), ("first_name", "gender", "country")),
        (("Příjmení", "Kraj", "Stát"), ("last_name", "region", "country")),
        (("First Name", "Name", "Last Name"), ("first_name", "full_name", "last_name")),
        (("Nom", "Prénom"), ("last_name", "first_name")),
        (("Nombre", "Apellidos"), ("first_name", "last_name")),
        (("Nome", "Cognome"), ("first_name", "last_name")),
        (("Nome", "Sobrenome"), ("first_name", "last_name")),
        (("Sobrenome", "Apelido"), ("last_name", "nickname")),
        (("Nome próprio", "Apelido"), ("first_name", "last_name")),
        (("Phone",), ("work_phone",)),
        (("Cidade", "Estado"), ("city", "state")),
        (("Staat", "Land"), ("state", "country")),
        (("Profession", "Job Title"), ("occupation", "title")),
    ],
)
def test_the_neighbours_decide_a_name_with_several_meanings(headers: tuple[str, ...], codes: tuple[str, ...]) -> None:
    assert map_header(*headers) == codes


@pytest.mark.parametrize(
    ("headers", "option"),
    [
        (("First Name", "Name"), "--map Name=last_name"),  # "Name" may be the full name
        (("Nom",), "--map Nom=last_name"),
        (("Titel",), "--map Titel=title"),
        (("Titel", "Position"), "--map Titel=CODE"),  # another column already has the job title
        (("Phone", "Business Phone"), "--map Phone=other_phone"),
        (("Estado",), "--map Estado=state"),
    ],
)
def test_a_name_that_the_neighbours_do_not_decide_is_reported(headers: tuple[str, ...], option: str) -> None:
    with pytest.raises(UnmappedColumns) as caught:
        map_header(*headers)
    assert [column.option() for column in caught.value.columns] == [option]
    assert f"ambiguous column {caught.value.columns[0].header!r}: {option}" in str(caught.value)


def test_ignoring_unknown_columns_does_not_ignore_ambiguous_ones() -> None:
    with pytest.raises(UnmappedColumns) as caught:
        map_columns(["email", "qqqq", "Titel"], ignore_unknown=True)
    assert str(caught.value) == "ambiguous column 'Titel': --map Titel=title (or ignore)"
    with pytest.raises(UnmappedColumns, match=r"; or ignore the unknown ones with --ignore-unknown$"):
        map_columns(["email", "qqqq", "Titel"])
    assert map_columns(["email", "qqqq", "Titel"], {"Titel": "ignore"}, ignore_unknown=True).codes == ("email", None, None)


def test_an_overridden_neighbour_counts_as_what_it_is_sent_as() -> None:
    assert map_columns(["email", "Nom", "Usage"], {"Usage": "first_name"}).codes == ("email", "last_name", "first_name")


def test_a_workspace_field_of_the_same_name_takes_precedence() -> None:
    notes = WorkspaceField(label="Notes", code="custom_4", searchable=[])
    name = WorkspaceField(label="Name", code="custom_5", searchable=[])
    assert map_columns(["email", "Notes", "Name"], fields=[notes, name]).codes == ("email", "custom_4", "custom_5")
    assert map_columns(["email", "Notes", "Name"]).codes == ("email", "personal_note", "full_name")
