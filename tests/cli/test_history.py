"""The command `history`: daily figures as a table and as JSON, files for other programs, and pruning."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from support.cli import Shell
from support.histories import append_days

from outreach_async.audit.history import History

_QUERY = """
import duckdb, json, sys
found = duckdb.sql(f"SELECT date, sent FROM '{sys.argv[1]}/workspace_days.parquet' WHERE workspace = 'space_1' ORDER BY date")
print(json.dumps(found.fetchall()))
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    append_days(tmp_path / "history.db", 3)
    return str(tmp_path / "history.db")


def test_the_figures_of_each_day_are_a_table(shell: Shell, path: str) -> None:
    ended = shell("history", "show", path, "--by", "campaign")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "date\tname\tsent\topened\treplied\tinterested\tbounced\tadded\tnote",
        "2026-03-02\tSpring\t\t\t\t\t\t\t",
        "2026-03-03\tSpring\t10\t0\t0\t0\t0\t0\t",
        "2026-03-04\tSpring\t10\t0\t0\t0\t0\t0\t",
    ]


def test_a_difference_that_was_spread_is_marked(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    append_days(path, 2, gap=3)
    ended = shell("history", "show", str(path), "--workspace", "space_1", "--days", "2")
    assert [line.split("\t")[-1] for line in ended.out.splitlines()] == ["note", "spread over 3 days", "spread over 3 days"]
    assert "3.3" in ended.out


def test_the_figures_are_json_too(shell: Shell, path: str) -> None:
    code, value = shell.json("history", "show", path, "--by", "domain", "--id", "one.example", "--days", "1")
    assert code == 0
    (day,) = value["days"]
    assert (day["date"], day["id"], day["spread_over"]) == ("2026-03-04", "one.example", 1)
    assert shell("history", "show", path, "--id", "space_9").out.splitlines()[-1] == "The history has no such days."


@pytest.mark.thorough
@pytest.mark.covers
def test_duckdb_and_pandas_read_an_export(shell: Shell, path: str, tmp_path: Path) -> None:
    folder = tmp_path / "export" / "parquet"
    ended = shell("history", "export", path, str(folder))

    assert (ended.code, ended.err) == (0, "")
    with History(path).tables() as tables:
        assert {each.name for each in folder.iterdir()} == {f"{name}.parquet" for name in tables}
    found = subprocess.run([sys.executable, "-c", _QUERY, str(folder)], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == [["2026-03-02", None], ["2026-03-03", 10], ["2026-03-04", 10]]
    frames = {each.stem: pd.read_parquet(each) for each in folder.iterdir()}
    assert frames["campaign_days"]["sent"].tolist()[1:] == [10, 10]
    assert len(frames["findings"].columns) > 15


def test_an_export_as_csv_is_safe_in_a_spreadsheet_and_replaces_nothing(shell: Shell, tmp_path: Path) -> None:
    path, folder = tmp_path / "history.db", tmp_path / "export"
    append_days(path, 1, name="=1+1")
    command = ("history", "export", str(path), str(folder), "--format", "csv")
    codes = [shell(*command).code, shell(*command).code, shell(*command, "--force").code]

    with (folder / "campaigns.csv").open(encoding="utf-8", newline="") as file:
        (row,) = csv.DictReader(file)
    assert (codes, row["name"]) == ([0, 2, 0], "'=1+1")


def test_pruning_reports_what_it_deleted(shell: Shell, path: str) -> None:
    code, value = shell.json("history", "prune", path, "--keep", "1d")
    assert (code, value["deleted"]) == (0, 1)
    assert shell("history", "prune", path, "--keep", "1h").code == 2
    assert shell("history", "show", path, "--json").out.count('"date"') == 4


def test_pruning_refuses_an_empty_file_and_leaves_it_as_it_is(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    done = shell("history", "prune", str(tmp_path / "empty"), "--keep", "1d")
    assert (done.code, (tmp_path / "empty").stat().st_size) == (2, 0)
    assert "empty is empty; pass the path of a history" in done.err


@pytest.mark.parametrize(
    ("after", "deleted"), [("2026-03-04", 0), ("2026-03-03", 1), ("2026-03-03T07:59", 2), ("2026-03-03T09:00:00+01:00", 1)]
)
def test_snapshots_after_a_day_or_a_time_are_shown_and_deleted(shell: Shell, path: str, after: str, deleted: int) -> None:
    code, value = shell.json("history", "prune", path, "--after", after, "--dry-run")
    assert (code, value["deleted"]) == (0, 0)
    shown = shell("history", "prune", path, "--after", after).out
    assert shown.count("Deleting 2026-03-0") == deleted
    assert f"Deleted {deleted} snapshots" in shown
