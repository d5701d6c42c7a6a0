"""Options of a command that decide how a file is read, and rejects that are imported again."""

from __future__ import annotations

import csv

import pytest
from support.cli import Served
from support.files import sheet_of, text, workbook

PEOPLE = [[text("email"), text("City")], [text("a@a.example"), text("Rome")], [text("b@a.example"), text("Lyon")]]


def stored(served: Served) -> list[str]:
    return sorted(str(contact["email"]) for contact in served.service.contacts("space_1"))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("surplus.csv", "email,City,Zip\na@a.example,Acme, Inc.,Lyon\nb@a.example,Bonn,1\n"),
        ("short.csv", "email,City,Zip\na@a.example,Lyon\nb@a.example,Bonn,1\n"),
        ("quotes.csv", 'email,City,Zip\na@a.example,"Acme" Inc,1\nb@a.example,Bonn,1\n'),
        ("people.jsonl", '{"email": "b@a.example", "city": "Bonn"}\n{"email": "a@a.example", "city": "Lyon"\n'),
        ("people.jsonl", '{"email": "b@a.example"}\n{"email": "a@a.example", "email": "c@a.example"}\n'),
    ],
)
@pytest.mark.parametrize("journal", [True, False])
def test_rejects_imported_unchanged_store_nothing_and_keep_their_text(
    served: Served, name: str, content: str, *, journal: bool
) -> None:
    path, rejects, again = served.folder / name, served.folder / "rejects.csv", served.folder / "again.csv"
    path.write_text(content, encoding="utf-8")
    record = ("--journal", str(served.folder / "run.db")) if journal else ()
    assert served("import", str(path), *served.options, *record, "--rejects", str(rejects)).code == 3
    assert stored(served) == ["b@a.example"]
    assert served("import", str(rejects), *served.options, "--rejects", str(again)).code == 3
    assert stored(served) == ["b@a.example"]
    (first,), (second,) = (list(csv.DictReader(file.read_text(encoding="utf-8").splitlines())) for file in (rejects, again))
    (line,) = (line for line in content.splitlines() if "a@a.example" in line and "b@a.example" not in line)
    assert (first["_text"], second["_text"]) == (line, line)
    assert second["_message"].startswith("_text: expected a blank cell, got the text of a rejected row")


@pytest.mark.parametrize("journal", [True, False])
def test_a_rejected_repeat_replaces_no_values_until_its_text_is_cleared(served: Served, *, journal: bool) -> None:
    path, rejects = served.save("email,City\nb@a.example,Bonn\nB@a.example,Lyon\n"), served.folder / "rejects.csv"
    options = (*served.options, "--duplicates", "overwrite")
    record = ("--journal", str(served.folder / "run.db")) if journal else ()
    cities = []
    assert served("import", path, *options, "--repeats", "error", "--rejects", str(rejects), *record).code == 3
    for told in ("", '"B@a.example,Lyon"'):
        rejects.write_text(rejects.read_text(encoding="utf-8").replace(told, ""), encoding="utf-8")
        served("import", str(rejects), *options)
        (contact,) = served.service.contacts("space_1")
        cities.append(contact["fields"]["city"])
    assert cities == ["Bonn", "Lyon"]


def test_the_option_that_the_error_of_a_short_row_names_imports_it(served: Served) -> None:
    path = served.save("email,City,Zip\na@a.example,Lyon\n")
    done = served("import", path, *served.options)
    assert (done.code, "or pass --short-rows pad if blank cells are missing at the end" in done.out) == (3, True)
    assert served("import", path, *served.options, "--short-rows", "pad").code == 0
    assert stored(served) == ["a@a.example"]


def test_the_option_that_the_error_of_an_unusual_delimiter_names_imports_it(served: Served) -> None:
    path = served.save("email:City\na@a.example:Lyon\n")
    error = served.refused("import", path, *served.options)
    assert "; pass the delimiter, as in --delimiter ':'" in error
    assert served("import", path, *served.options, "--delimiter", ":").code == 0
    assert "--delimiter: expected one character" in served.refused("import", path, *served.options, "--delimiter", "::")


@pytest.mark.thorough
@pytest.mark.parametrize("options", [["--hidden", "skip"], ["--sheet", "Old"]], ids=" ".join)
def test_a_run_is_not_resumed_or_reported_with_other_rows_of_its_file(served: Served, options: list[str]) -> None:
    rows = sheet_of(PEOPLE)
    (path := served.folder / "people.xlsx").write_bytes(workbook({"A": rows, "Old": rows}))
    journal, rejects = str(served.folder / "run.db"), str(served.folder / "rejects.csv")
    again = ("import", str(path), *served.options, "--journal", journal)
    assert served(*again).code == 0
    assert "the input has changed since the run began" in served.refused(*again, "--resume", *options)
    assert served("report", journal, "--rejects", rejects).code == 0
    error = served.refused("report", journal, "--rejects", rejects, *options)
    assert "or is read with other options" in error
    assert "pass the original file, and --sheet, --header-row and --hidden of the run" in error
