"""The command `report` for the journals of an import in parts: failed and uncertain rows by file, line and e-mail."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from support.cli import Served, Shell
from support.parts import KEY, SPACE, PlainService, served
from support.results import UNCERTAIN

from outreach_async.fake.faults import commit_then, reset
from outreach_async.parts import import_part, plan


@pytest.fixture(params=["folder", pytest.param("url", marks=[pytest.mark.thorough, pytest.mark.covers])])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Import two files with different columns in three parts. Every part has failed rows, and one has an uncertain row."""
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    (tmp_path / "a.csv").write_text("E-mail,,City\nann@x.example,,Lyon\n,=1,Rome\nbo@x.example,,Bern\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text(
        "Firm,E-mail\nAcme,\nAcme,cy@x.example\nAcme,bo@x.example\n,ann@x.example\n", encoding="utf-8"
    )
    (tmp_path / "c.csv").write_text("Email\nann@x.example\nANN@x.example\n,Oslo\n", encoding="utf-8")
    made = plan(
        [tmp_path / name for name in ("a.csv", "b.csv", "c.csv")],
        overrides={"Firm": "company_name"},
        ignore_unknown=True,
        repeats="error",
    )
    journals = str(tmp_path / "journals") if request.param == "folder" else f"file://{tmp_path}/journals"
    service = PlainService()
    with served(service) as connection:
        for part in made.parts:
            if part.id == "00001":
                service.fake.faults.script("create_contact", commit_then(reset()))
            import_part(part, journals, connection)
    return journals


def rejects_in(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_an_import_whose_parts_have_not_all_started_is_not_finished(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"email\n{name}@x.example\n", encoding="utf-8")
    journals = str(tmp_path / "journals")
    with served(PlainService()) as connection:
        for part, (code, state) in zip(
            plan([tmp_path / "a.csv", tmp_path / "b.csv"]).parts, [(3, "running"), (0, "finished")], strict=True
        ):
            import_part(part, journals, connection)
            done = shell("report", journals)
            assert (done.code, f"\n{state}: " in done.out, "1 of 2 parts have not started" in done.out) == (
                code,
                True,
                code == 3,
            )


def test_the_failed_rows_of_all_parts_are_written_with_file_line_and_cells(shell: Shell, folder: str, tmp_path: Path) -> None:
    done = shell("report", folder, "--rejects", str(tmp_path / "rejects.csv"))
    assert (done.code, "7 rows written to" in done.out) == (3, True), done.err
    found = rejects_in(tmp_path / "rejects.csv")
    assert list(found[0]) == ["E-mail", "", "City", "Firm", "_file", "_row", "_code", "_field", "_message", "_text"]
    places = [(Path(row["_file"]).name, row["_row"], row["E-mail"], row["City"], row["Firm"]) for row in found]
    assert places == [
        ("a.csv", "3", "", "Rome", ""),
        ("b.csv", "2", "", "", "Acme"),
        ("c.csv", "4", "", "", ""),
        ("b.csv", "4", "bo@x.example", "", "Acme"),
        ("b.csv", "5", "ann@x.example", "", ""),
        ("c.csv", "2", "ann@x.example", "", ""),
        ("c.csv", "3", "ANN@x.example", "", ""),
    ]
    assert found[0][""] == "'=1"
    assert [row["_text"] for row in found] == [
        "",
        "",
        ",Oslo",
        "Acme,bo@x.example",
        ",ann@x.example",
        "ann@x.example",
        "ANN@x.example",
    ]
    assert found[3]["_message"].startswith(f"email: same address as {tmp_path}/a.csv: line 4; ")
    assert found[5]["_message"].startswith(f"email: same address as {tmp_path}/a.csv: line 2; ")


def test_the_rejects_of_several_files_can_be_imported(folder: str, served: Served) -> None:
    path = served.folder / "rejects.csv"
    served("report", folder, "--rejects", str(path))
    path.write_text(path.read_text(encoding="utf-8").replace(",'=1,Rome", "rae@x.example,,Rome"), encoding="utf-8")
    options = ["--map", "Firm=company_name", "--ignore-unknown", "--journal", str(served.folder / "again.db")]
    code, value = served.json("import", str(path), *served.options, *options)
    assert (code, value["outcomes"]["added"]) == (3, 1)  # alone, a repeated row would replace the one that counts
    assert served.service.contact("space_1", "rae@x.example") is not None


def test_the_results_have_every_row_once_with_file_line_email_and_outcome(shell: Shell, folder: str, tmp_path: Path) -> None:
    path = tmp_path / "results.csv"
    assert "10 rows written to" in shell("report", folder, "--results", str(path), "--keep", "all").out
    found = rejects_in(path)
    kept = list(found[0])[13:]
    assert kept == ["E-mail", "column 2", "City", "Firm", "input_Email"]
    assert {row["City"] for row in found} == {"Lyon", "Rome", "Bern", ""}
    firms = {(Path(row["file"]).name, row["line"]): row["Firm"] for row in found}
    assert (firms["b.csv", "3"], firms["b.csv", "5"], firms["c.csv", "2"]) == ("Acme", "", "")
    assert sorted((Path(row["file"]).name, row["line"], row["email"], row["status"]) for row in found) == [
        ("a.csv", "2", "ann@x.example", "added"),
        ("a.csv", "3", "", "rejected"),
        ("a.csv", "4", "bo@x.example", "added"),
        ("b.csv", "2", "", "rejected"),
        ("b.csv", "3", "cy@x.example", "skipped"),
        ("b.csv", "4", "bo@x.example", "rejected"),
        ("b.csv", "5", "ann@x.example", "rejected"),
        ("c.csv", "2", "ann@x.example", "rejected"),
        ("c.csv", "3", "ANN@x.example", "rejected"),
        ("c.csv", "4", "", "rejected"),
    ]
    assert [(row["line"], row["possible"]) for row in found if row["status"] == "skipped"] == [("3", "added, skipped")]
    assert all(row["id"].startswith("contact_") for row in found if row["status"] == "added")


def test_uncertain_rows_are_listed_by_part_file_line_and_email(shell: Shell, folder: str, tmp_path: Path) -> None:
    _, value = shell.json("report", folder, "--uncertain")
    place = {"part": "00001", "file": str(tmp_path / "b.csv"), "line": 3, "email": "cy@x.example"}
    assert value["uncertain_rows"] == [{**place, **UNCERTAIN, "workspace": SPACE}]
    assert "list these rows with --uncertain\n" in shell("report", folder).out


def test_a_single_part_is_reported_like_a_run(shell: Shell, folder: str, tmp_path: Path) -> None:
    location = f"{folder}/00001" if "://" in folder else f"{folder}/00001.db"
    path = tmp_path / "rejects.csv"
    code, value = shell.json("report", location, "--uncertain", "--rejects", str(path))
    assert (code, value["source"]) == (3, f"{tmp_path}/b.csv, piece 0")
    assert [row["line"] for row in value["uncertain_rows"]] == [3]
    assert [(row["Firm"], row["_row"]) for row in rejects_in(path)] == [("Acme", "2")]
    assert "list these rows with --uncertain\n" in shell("report", location).out
    refused = shell("report", location, "--uncertain", "--input", str(tmp_path / "b.csv"))
    assert (refused.code, "--input: the journal is a part of an import, which records its files; omit" in refused.err) == (
        2,
        True,
    )


def test_a_report_of_parts_refuses_what_it_cannot_do(folder: str, served: Served) -> None:
    refused = served("report", folder, "--uncertain", "--input", str(served.folder / "b.csv"))
    assert (refused.code, "--input: JOURNAL is a folder of journals, which record their files; omit" in refused.err) == (2, True)
    assert "are the same file" in served.refused("report", folder, "--rejects", str(served.folder / "b.csv"), "--force")
    other = f"{folder}/other" if "://" in folder else f"{folder}/other.db"
    (served.folder / "d.csv").write_text("email\ndi@x.example\n", encoding="utf-8")
    assert served("import", str(served.folder / "d.csv"), *served.options, "--journal", other).code == 0
    assert f"--rejects: {other} is not a part of an import; pass this location" in served.refused(
        "report", folder, "--rejects", str(served.folder / "rejects.csv")
    )
    (served.folder / "b.csv").write_text("Firm,E-mail\n", encoding="utf-8")
    changed = served("report", folder, "--uncertain")
    assert (changed.code, "b.csv: the file has changed since the import was planned; restore the file" in changed.err) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    ("files", "overrides", "expected"),
    [
        (  # a column for each field
            ["Name,Surname,E-mail\nAnn,Lee,\n", "Name,Mail\nBo Li,\n"],
            {},
            [
                {"Name": "Ann", "Surname": "Lee", "E-mail": "", "full_name": ""},
                {"Name": "", "Surname": "", "E-mail": "", "full_name": "Bo Li"},
            ],
        ),
        (  # each of several columns of a field
            [
                "Home,Work,City\n,ann@x.example,Lyon\nbo@x.example,ann@x.example,Rome\n",
                "Work,Home,Town\nbo@x.example,ann@x.example,Bern\n",
            ],
            {"Work": "email", "Home": "email", "Town": "nickname"},
            [{"Home": "bo@x.example", "Work": "ann@x.example", "City": "Rome", "Town": ""}],
        ),
    ],
)
def test_rejects_of_several_files_have_the_columns_of_all_files(
    *,
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: list[str],
    overrides: dict[str, str],
    expected: list[dict[str, str]],
) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    for name, text in zip("ab", files, strict=True):
        (tmp_path / f"{name}.csv").write_text(text, encoding="utf-8")
    made = plan([tmp_path / "a.csv", tmp_path / "b.csv"], overrides=overrides, repeats="error")
    with served(PlainService()) as connection:
        for part in made.parts:
            import_part(part, (tmp_path / "journals").as_uri(), connection)
    assert shell("report", str(tmp_path / "journals"), "--rejects", str(tmp_path / "rejects.csv")).code == 3
    assert [dict([*row.items()][:4]) for row in rejects_in(tmp_path / "rejects.csv")] == expected
