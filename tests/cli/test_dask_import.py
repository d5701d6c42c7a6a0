"""The command `import --dask`: what it needs, and an import on workers of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from distributed import LocalCluster
from support.cli import Shell
from support.parts import KEY, SPACE, PlainService, served
from support.results import read_results

from outreach_async._plumbing import open_store
from outreach_async.errors import InvalidRequest
from outreach_async.parts import find_files


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "outreach_async", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)


@pytest.mark.thorough
@pytest.mark.covers
def test_a_pattern_is_imported_on_workers_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.csv").write_text("E-mail,City\nann@x.example,Lyon\n,Rome\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("E-mail\nbo@x.example\n", encoding="utf-8")
    service = PlainService()
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    with served(service) as connection:
        place = ["--base-url", connection.base_url, "--workspace", SPACE, "--journal", f"file://{tmp_path}/journals"]
        result = run("import", "*.csv", *place, "--dask", "local", "--json", cwd=tmp_path)
        assert result.returncode == 3, result.stderr
    report = json.loads(result.stdout)
    assert (report["rows"], [failure["examples"][0]["line"] for failure in report["failures"]]) == (3, [3])
    assert KEY not in result.stdout + result.stderr
    assert {contact["email"] for contact in service.fake.contacts(SPACE)} == {"ann@x.example", "bo@x.example"}


@pytest.mark.covers
@pytest.mark.thorough
def test_a_pattern_is_imported_on_workers_of_a_scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: Shell) -> None:
    (tmp_path / "a.csv").write_text("E-mail;City\nann@x.example;#REF!\n" + ";Rome\n" * 120, encoding="utf-8")
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    service = PlainService()
    campaign = service.fake.add_campaign(SPACE, name="Spring launch")
    with (
        served(service) as connection,
        LocalCluster(n_workers=1, processes=False, protocol="tcp", dashboard_address="127.0.0.1:0") as cluster,
    ):
        place = ["--base-url", connection.base_url, "--workspace", SPACE, "--journal", f"file://{tmp_path}/journals"]
        place += ["--results", str(tmp_path / "results.parquet"), "--keep", "City", "--dask", cluster.scheduler_address]
        done = shell("import", f"{tmp_path}/*.csv", *place, "--campaign", "Spring launch")
        rejects = tmp_path / "rejects.txt"
        assert shell("import", f"{tmp_path}/*.csv", *place, "--campaign", campaign, "--rejects", str(rejects)).code == done.code
        error = shell.refused("import", f"{tmp_path}/*.csv", *place, "--campaign", "Sprin launch")
    assert f"--campaign: expected the name of a campaign in {SPACE}, got 'Sprin launch'; did you mean 'Spring launch'?" in error
    assert [contact["campaigns"] for contact in service.fake.contacts(SPACE)] == [[campaign]]
    assert "are the same file" in shell.refused("import", f"{tmp_path}/*.csv", *place, "--results", f"{tmp_path}/a.csv")
    assert len(rejects.read_text(encoding="utf-8").splitlines()) == 121
    rows = [(row["line"], row["email"], row["status"], row["City"]) for row in read_results(tmp_path / "results.parquet")]
    assert rows[:2] == [(2, "ann@x.example", "added", "#REF!"), (3, "", "rejected", "Rome")]
    note = f"note: {tmp_path}/a.csv: columns are separated by semicolons"
    assert (done.code, done.out.splitlines()[0]) == (3, note), done.err
    assert "\n121 rows in 1 part\nleft out: cells: line 2: city: " in done.out
    assert "\nrejected: 120 rows: email: expected an address, got a blank string; " in done.out
    assert "\n  line 3; line 4; line 5\n" in done.out
    remedy = (
        f"outreach-async report file://{tmp_path}/journals --rejects rejects.csv writes them to a file; correct the email there"
    )
    assert f"\n  120 rows: {remedy}" in done.out


PEOPLE = (
    "E-mail,City,Work phone,Unsubscribed,Firma,Extra\n"
    "ann@x.example,NULL,4.4E+11,,Acme,1\nbo@x.example,Rome,,yes,,2\n,Rome,,,,3\ncy@x.example,Bern\n"
    "BO@x.example,Oslo,,,,4\ndee@x.example,Lyon,,,,5\ndee@x.example,Paris,,,,6\n"
)
DRY_RUNS: list[list[str]] = [
    [],
    ["--check", "phone=error", "--check", "consent=warn"],
    ["--check", "cells=off", "--repeats", "error"],
    ["--repeats", "last", "--short-rows", "pad"],
]


@pytest.mark.parametrize("options", DRY_RUNS, ids=" ".join)
def test_a_dry_run_in_parts_says_what_one_machine_says(shell: Shell, tmp_path: Path, options: list[str]) -> None:
    people, mapping = tmp_path / "people.csv", tmp_path / "mapping.toml"
    people.write_text(PEOPLE, encoding="utf-8")
    mapping.write_text('[columns]\nExtra = "custom_1"\nGone = "title"\n', encoding="utf-8")
    said: list[Any] = []
    for way in [], ["--dask", "local"]:
        written = [f"--{name}={tmp_path / f'{name}{len(way)}'}" for name in ("rejects", "findings", "save-mapping")]
        done = shell("import", str(people), *way, "--dry-run", "--json", "--mapping", str(mapping), *options, *written)
        told = json.loads(done.out)
        del told["seconds"], told["remedies"]  # which name the rejects file
        said.append((done.code, told, *(Path(each.partition("=")[2]).read_text(encoding="utf-8") for each in written)))
    one, parts = said
    assert parts[:2] == one[:2]
    assert (sorted(parts[3].splitlines()), parts[4]) == (sorted(one[3].splitlines()), one[4])
    assert sorted(parts[2].replace("_file,", "").replace(f"{people},", "").splitlines()) == sorted(one[2].splitlines())


def test_unknown_columns_of_files_become_a_draft_with_which_they_are_imported(shell: Shell, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.csv").write_text(f"E-mail,Odd\n{name}@x.example,1\n", encoding="utf-8")
    draft, dry_run = tmp_path / "draft.toml", ["import", f"{tmp_path}/*.csv", "--dask", "local", "--dry-run"]
    assert "--map Odd=CODE" in shell.refused(*dry_run)
    assert "--map Odd=CODE" in shell.refused(*dry_run, "--save-mapping", str(draft))
    draft.write_text(draft.read_text(encoding="utf-8").replace("CODE", "custom_7"), encoding="utf-8")
    assert "2 of 2 rows can be sent" in shell(*dry_run, "--mapping", str(draft)).out


def test_workers_of_this_machine_need_a_key(shell: Shell) -> None:
    way = ("--base-url", "https://api.example", "--workspace", "space_1", "--journal", "file:///data/journals")
    assert "--owner-key: missing" in shell.refused("import", "a.csv", *way, "--dask", "local")


def test_patterns_match_files_and_objects(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    assert find_files(f"{tmp_path}/*.csv") == [f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"]
    assert find_files("none.csv") == [str(Path("none.csv").absolute())]
    store, root = open_store("memory://patterns", "files")
    for key in ("may/1.csv", "may/2.csv", "june/1.csv"):
        store.put(f"{root}/{key}", b"x")
    assert find_files("memory://patterns/may/*.csv") == ["memory://patterns/may/1.csv", "memory://patterns/may/2.csv"]
    assert find_files("memory://patterns/*/1.csv") == ["memory://patterns/june/1.csv", "memory://patterns/may/1.csv"]
    with pytest.raises(InvalidRequest, match="expected a pattern that matches a file"):
        find_files("memory://patterns/none/*.csv")
