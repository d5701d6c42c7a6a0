"""The command `import --dask`: what it needs, and an import on workers of this machine."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from distributed import LocalCluster
from support.cli import Shell
from support.parts import KEY, SPACE, PlainService, served
from support.results import read_results

from outreach_async._plumbing import open_store
from outreach_async.errors import InvalidRequest
from outreach_async.parts._stored_files import expand_pattern

WAY = ["--base-url", "https://api.example", "--workspace", "space_1", "--journal", "file:///data/journals", "--dask", "tcp://x:1"]


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
    assert (report["rows"], [failure["line"] for failure in report["failures"]]) == (3, [3])
    assert KEY not in result.stdout + result.stderr
    assert {contact["email"] for contact in service.fake.contacts(SPACE)} == {"ann@x.example", "bo@x.example"}


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
        assert shell("import", f"{tmp_path}/*.csv", *place, "--campaign", campaign).code == done.code
        error = shell.refused("import", f"{tmp_path}/*.csv", *place, "--campaign", "Sprin launch")
    assert f"--campaign: expected the name of a campaign in {SPACE}, got 'Sprin launch'; did you mean 'Spring launch'?" in error
    assert [contact["campaigns"] for contact in service.fake.contacts(SPACE)] == [[campaign]]
    assert "are the same file" in shell.refused("import", f"{tmp_path}/*.csv", *place, "--results", f"{tmp_path}/a.csv")
    rows = [(row["line"], row["email"], row["status"], row["City"]) for row in read_results(tmp_path / "results.parquet")]
    assert rows[:2] == [(2, "ann@x.example", "added", "#REF!"), (3, "", "rejected", "Rome")]
    note = f"note: {tmp_path}/a.csv: columns are separated by semicolons"
    assert (done.code, done.out.splitlines()[:2]) == (3, [note, "121 rows in 1 part"]), done.err
    assert "\nrejected: 100 rows: email: expected an address, got a blank string; " in done.out
    assert f"\n  {tmp_path}/a.csv: line 3; {tmp_path}/a.csv: line 4; " in done.out
    assert (
        f"\n... and 20 more failed rows; list all: outreach-async report file://{tmp_path}/journals --rejects FILE\n" in done.out
    )
    assert (
        f"warning: cells: 1 finding; these values were left out or may be wrong\n  {tmp_path}/a.csv: line 2: city: " in done.out
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a.csv", *WAY, "--journal", "run.db"], "--journal: with --dask, expected a URL that all workers can reach"),
        (["a.csv", *WAY, "--dry-run"], "--dry-run: conflicts with --dask"),
        (["a.csv", *WAY, "--keep", "all"], "--keep: copies columns into a results file; pass --results FILE, too"),
        (["a.csv", *WAY, "--check", "error"], "--check: conflicts with --dask"),
        (["a.csv", *WAY, "--header", "X: y"], "--header: conflicts with --dask"),
        (["a.csv", *WAY, "--base-url", "fake:"], "--base-url: with --dask, expected a URL that all workers can reach"),
        (["a.csv", *WAY[:2], *WAY[4:]], "--workspace: missing"),
        (["a.csv", *WAY, "--dask", "local"], "--owner-key: missing"),
        (["*.parquet", *WAY], "expected a pattern that matches a file"),
        (["s3://bucket/a.csv"], "FILE: a URL requires --dask"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    shell: Shell, arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in shell.refused("import", *arguments)


def test_patterns_match_files_and_objects(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    assert expand_pattern(f"{tmp_path}/*.csv") == [f"{tmp_path}/a.csv", f"{tmp_path}/b.csv"]
    assert expand_pattern("none.csv") == [str(Path("none.csv").absolute())]
    store, root = open_store("memory://patterns", "files")
    for key in ("may/1.csv", "may/2.csv", "june/1.csv"):
        store.put(f"{root}/{key}", b"x")
    assert expand_pattern("memory://patterns/may/*.csv") == ["memory://patterns/may/1.csv", "memory://patterns/may/2.csv"]
    assert expand_pattern("memory://patterns/*/1.csv") == ["memory://patterns/june/1.csv", "memory://patterns/may/1.csv"]
    with pytest.raises(InvalidRequest, match="expected a pattern that matches a file"):
        expand_pattern("memory://patterns/none/*.csv")
