"""The option `--keep` of `import` and `report`: columns of the input in the results file."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.cli import Served
from support.results import read_results

PEOPLE = 'Lead Key,email,id,Note\n007,ann@x.example,c1,"a, b"\n008,bad,c2\n=9,bo@x.example,c3, x \n'
MAP = ("--map", "Lead Key=ignore", "--map", "id=ignore", "--map", "Note=ignore")
JOURNAL, LEDGER = ("--journal", "run.db"), ("--ledger", "c.ledger", "--duplicates", "overwrite")
EXPECTED = [(2, "007", "c1", "a, b"), (3, "008", "c2", None), (4, "=9", "c3", " x ")]


def kept(path: Path) -> list[tuple[int | str | None, ...]]:
    names = ("Lead Key", "input_id", "Note")
    return [(row["line"] or row["record"] + 1, *map(row.get, names)) for row in read_results(path)]


def place(served: Served, *options: str) -> tuple[str, ...]:
    return tuple(str(served.folder / each) if "." in each and "/" not in each else each for each in options)


@pytest.mark.parametrize("options", [(), JOURNAL, LEDGER], ids=["alone", "journal", "ledger"])
@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_the_kept_cells_stand_beside_the_outcome_of_their_row(served: Served, options: tuple[str, ...], name: str) -> None:
    people, path, options = served.save(PEOPLE), served.folder / name, place(served, *options)
    wanted = ("--keep", "Lead Key", "--keep", "id", "--keep", "Note", "--results", str(path))
    assert served("import", people, *MAP, *served.options, *options, *wanted).code == 3
    assert kept(path) == EXPECTED
    assert list(read_results(path)[0])[-3:] == ["Lead Key", "input_id", "Note"]


def test_every_column_is_kept_under_a_name_that_clashes_with_none(served: Served) -> None:
    people, path = served.save("Email,Input_Email,,-x\nann@x.example,a,b,=1\n"), served.folder / "out.csv"
    options = ("--ignore-unknown", "--map", "=ignore", *served.options)
    assert served("import", people, *options, "--results", str(path), "--keep", "all").code == 0
    with path.open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert list(row.items())[13:] == [
        ("input_input_Email", "ann@x.example"), ("Input_Email", "a"), ("column 3", "b"), ("'-x", "'=1"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--keep", "lead key", "--results", "o.csv"), "--keep: the file has no column 'lead key' (similar: 'Lead Key')"),
        (("--keep", "zzz", "--results", "o.csv"), "--keep: the file has no column 'zzz'; use a name from its header"),
        (("--keep", "id"), "--keep: copies columns into a results file; pass --results FILE, too."),
    ],
)
def test_a_column_that_cannot_be_kept_is_an_error(served: Served, options: tuple[str, ...], message: str) -> None:
    people, journal = served.save(PEOPLE), str(served.folder / "run.db")
    assert message in served.refused("import", people, *MAP, *served.options, *place(served, *options))
    assert not served.service.contacts("space_1")
    assert served("import", people, *MAP, *served.options, "--journal", journal).code == 3
    assert message in served.refused("report", journal, *place(served, *options))


def test_a_report_keeps_the_columns_of_the_input(served: Served) -> None:
    people, path, journal = served.save(PEOPLE), served.folder / "out.jsonl", str(served.folder / "run.db")
    served("import", people, *MAP, *served.options, "--journal", journal)
    assert served("report", journal, "--keep", "all", "--results", str(path)).code == 3
    assert [(row["Lead Key"], row["input_id"]) for row in read_results(path)] == [("007", "c1"), ("008", "c2"), ("=9", "c3")]


@pytest.mark.parametrize("dry", [("--dry-run",), ()], ids=["dry run", "report"])
def test_the_rows_of_a_ledger_keep_their_columns(served: Served, dry: tuple[str, ...]) -> None:
    people, path, ledger = served.save(PEOPLE), served.folder / "out.jsonl", place(served, *LEDGER)
    served("import", people, *MAP, *served.options, *ledger)
    wanted = (*MAP, "--keep", "all", "--results", str(path))
    if dry:
        served("import", people, *served.options, *ledger, *wanted, *dry)
    else:
        assert served("report", ledger[1], "--input", people, *wanted).code == 0
    assert kept(path) == EXPECTED


def test_the_columns_of_standard_input_are_kept_while_it_can_be_read(served: Served) -> None:
    path, journal = served.folder / "out.jsonl", str(served.folder / "run.db")
    wanted = (*MAP, *served.options, "--keep", "all", "--results", str(path))
    served.piped(PEOPLE, "import", "-", *wanted)
    assert kept(path) == EXPECTED
    for resume in ((), ("--resume",)):
        path.unlink()
        assert served.piped(PEOPLE, "import", "-", *wanted, "--journal", journal, *resume).code == 3
        assert kept(path) == EXPECTED
        assert [row["record"] for row in read_results(path)] == [1, 2, 3]
    refused = served.piped("", "import", "-", *wanted, "--journal", journal, "--resume")
    assert (refused.code, "--keep: " in refused.err, "pass the same rows to standard input again" in refused.err) == (
        2,
        True,
        True,
    )
    message = served("report", journal, "--keep", "all", "--results", str(path)).err
    assert "--keep: the journal records no input file, whose columns it could copy; omit --keep" in message
