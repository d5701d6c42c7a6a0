"""A saved mapping is read back unchanged."""

from __future__ import annotations

import io
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.exports import EXPORTS
from support.files import refused

from outreach_async.importer import CheckPolicy, Columns, ImportJob, MappedFile, map_columns, open_file, read_mapping

NAMES = st.text(st.characters(codec="utf-8"), max_size=12)


def saved(folder: Path, columns: Columns) -> Path:
    path = folder / "mapping.toml"
    file = open_file(io.BytesIO(b"email\n"), format="csv")
    MappedFile(file, columns, CheckPolicy.of()).save(path)
    return path


@given(st.lists(NAMES, min_size=1, max_size=6, unique=True))
def test_a_saved_mapping_of_any_column_names_is_read_back_unchanged(names: list[str]) -> None:
    codes = tuple(f"custom_{at}" if at % 2 else None for at in range(len(names)))
    columns = Columns(tuple(names), codes, tuple(f"because {name}" for name in names))
    with tempfile.TemporaryDirectory() as folder:
        known = read_mapping(saved(Path(folder), columns))
    assert known == {name: code for name, code, _ in reversed(columns.decisions())}  # of a repeated name, the first counts


@pytest.mark.parametrize("key", EXPORTS)
def test_a_saved_mapping_of_an_export_maps_the_same(key: str, tmp_path: Path) -> None:
    headers = EXPORTS[key][1].split(",")
    columns = map_columns(headers)
    assert map_columns(headers, read_mapping(saved(tmp_path, columns))) == columns


def test_a_saved_mapping_describes_itself_and_the_reason_for_each_column(tmp_path: Path) -> None:
    lines = saved(tmp_path, map_columns(EXPORTS["hubspot"][1].split(","))).read_text(encoding="utf-8")
    assert "columns of the stream; read" in lines
    assert "# The file was recognised as an export from HubSpot." in lines
    assert '"Record ID" = "ignore" # HubSpot: a HubSpot ID' in lines
    assert '"First Name" = "first_name" # HubSpot column' in lines
    plain = saved(tmp_path, map_columns(["email", "", " "], ignore_unknown=True)).read_text(encoding="utf-8")
    assert "export from" not in plain
    assert plain.count('"" = "ignore"') == 1  # unnamed columns are saved once


async def test_overrides_precede_a_mapping_and_its_order_is_that_of_preference(tmp_path: Path) -> None:
    file = open_file(io.BytesIO(b"Home,Rest,Work\n"), format="csv")
    job = ImportJob(file=file, overrides={"Rest": "email"}, mapping={"Work": "email", "Home": "email", "Town": "city", "Old": ""})
    mapped = await job.map()
    assert (mapped.columns.sources["email"], job.lacking) == ((1, 2, 0), ["Town"])
    assert [*mapped.mapping] == ["Rest", "Work", "Home"]
    assert job.notes == ["--mapping: the input file has no column 'Town'"]
    mapped.save(tmp_path / "mapping.toml")
    assert map_columns(file.headers, read_mapping(tmp_path / "mapping.toml")).sources["email"] == (1, 2, 0)


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
    (path := tmp_path / "mapping.toml").write_text(text, encoding="utf-8")
    error = refused(read_mapping, path)
    assert message in error
    assert "No such file" in refused(read_mapping, tmp_path / "none.toml")
    (large := tmp_path / "large.toml").touch()
    os.truncate(large, (1 << 24) + 1)
    assert "has more than 16,777,216 bytes; write, for example" in refused(read_mapping, large)
    assert 'write, for example, [columns] and below it "Company" = "company_name"' in error
