"""A saved mapping is read back unchanged."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exports import EXPORTS
from support.files import refused

from outreach_async.importer import Columns, map_columns
from outreach_async.importer._known_exports import clean_name
from outreach_async.importer._mapping_file import apply_mapping, mapping_text, merge_mappings, read_mapping

NAMES = st.text(st.characters(codec="utf-8"), max_size=12)


def saved(folder: Path, text: str) -> Path:
    path = folder / "mapping.toml"
    path.write_text(text, encoding="utf-8")
    return path


@given(st.lists(NAMES, min_size=1, max_size=6, unique_by=clean_name), NAMES)
def test_a_saved_mapping_of_any_column_names_is_read_back_unchanged(names: list[str], file: str) -> None:
    codes = tuple(f"custom_{at}" if at % 2 else None for at in range(len(names)))
    columns = Columns(tuple(names), codes, tuple(f"because {name}" for name in names))
    known = tomllib.loads(mapping_text(columns, file))["columns"]
    assert known == {clean_name(name): code or "ignore" for name, code in zip(names, codes, strict=True)}


@pytest.mark.parametrize("key", EXPORTS)
def test_a_saved_mapping_of_an_export_maps_the_same(key: str, tmp_path: Path) -> None:
    headers = EXPORTS[key][1].split(",")
    columns = map_columns(headers)
    path = saved(tmp_path, mapping_text(columns, "people.csv"))
    assert map_columns(headers, read_mapping(path)) == columns


def test_a_saved_mapping_describes_itself_and_the_reason_for_each_column() -> None:
    text = mapping_text(map_columns(EXPORTS["hubspot"][1].split(",")), "peo\nple.csv")
    assert "columns of peo ple.csv; read" in text
    assert "# The file was recognised as an export from HubSpot." in text
    assert '"Record ID" = "ignore" # HubSpot: a HubSpot ID' in text
    assert '"First Name" = "first_name" # HubSpot column' in text
    assert "export from" not in mapping_text(map_columns(["email"]), "x")


def test_unnamed_columns_are_saved_once() -> None:
    columns = map_columns(["email", "", " "], ignore_unknown=True)
    assert mapping_text(columns, "x").count('"" = "ignore"') == 1


def test_the_order_of_a_mapping_is_that_of_preference_and_options_come_first(tmp_path: Path) -> None:
    path = saved(tmp_path, '[columns]\n"Work" = "email"\n"Home" = "email"\n"Rest" = "city"\n')
    known = read_mapping(path)
    assert map_columns(["Home", "Work", "Rest"], known).sources["email"] == (1, 0)
    assert list(merge_mappings({"Rest": "email"}, known).items()) == [("Rest", "email"), ("Work", "email"), ("Home", "email")]
    path = saved(tmp_path, mapping_text(map_columns(["Home", "Rest", "Work"], known), "x"))
    assert map_columns(["Home", "Rest", "Work"], read_mapping(path)).sources["email"] == (2, 0)


def test_a_mapping_ignores_columns_that_the_file_lacks() -> None:
    known = {"Email": "email", "Town": "city", "Old": "ignore", "Older": ""}
    assert apply_mapping(known, [" Email ", "Name"]) == ({"Email": "email"}, ["Town"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[columns", "is not TOML"),
        ("", "expected one table, [columns], got none"),
        ("[columns]\n[other]", "got 'columns', 'other'"),
        ("columns = 1", "expected one table"),
        ("[columns]\nCompany = 1", "column 'Company': expected a field code in quotes, got 1"),
    ],
)
def test_a_file_that_is_not_a_mapping_is_refused_with_the_expected_form(tmp_path: Path, text: str, message: str) -> None:
    error = refused(read_mapping, saved(tmp_path, text))
    assert message in error
    assert "No such file" in refused(read_mapping, tmp_path / "none.toml")
    assert 'write, for example, [columns] and below it "Company" = "company_name"' in error
