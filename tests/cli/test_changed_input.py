"""Imports whose input file changes while they run."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from support.cli import Ended, Shell, Watched, connection_options, save_contacts, serve_in_thread

from outreach_async._cli.importing import ImportRun, RunEnd
from outreach_async._cli.output import Screen
from outreach_async.bulk import BulkReport, Outcomes
from outreach_async.errors import InvalidRequest
from outreach_async.fake import FakeService
from outreach_async.fake.faults import ok, status
from outreach_async.importer import FailedRows, ImportJob, open_file

ROWS = 40


def people(prefix: str) -> str:
    """Return a CSV file that is much longer than what a reader takes at once."""
    return "email,ignored\n" + "".join(f"{prefix}{at:02}@a.example,{'x' * 2000}\n" for at in range(ROWS))


def replace(path: str) -> None:
    Path(path + ".new").write_text(people("other"), encoding="utf-8")
    Path(path + ".new").replace(path)


def rewrite(path: str) -> None:
    """Write other rows into the input, which stays the same file of the same size."""
    with Path(path).open("r+", encoding="utf-8") as file:
        file.write(people("later"))


def append(path: str) -> None:
    """Add a row, as a program does that still writes the file."""
    with Path(path).open("a", encoding="utf-8") as file:
        file.write("new00@a.example\n")


def rewrite_unnoticed(path: str) -> None:
    """Write other rows into the input, and restore its modification time."""
    facts = Path(path).stat()
    rewrite(path)
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))


CHANGES = (replace, rewrite, rewrite_unnoticed)


@pytest.fixture
def run(shell: Shell, service: FakeService, tmp_path: Path) -> Callable[..., Ended]:
    """Return a function that imports 40 rows, of which every fourth fails, and changes the file at the tenth request."""

    def import_changed(change: Callable[[str], Any], *arguments: str, at: int = 10) -> Ended:
        path = save_contacts(tmp_path, people("first"))
        for _ in range(ROWS // 4):
            service.faults.script("create_contact", *[ok] * 3, status(422))
        with serve_in_thread(Watched(service, at, lambda: change(path))) as url:
            return shell("import", path, *connection_options(url), "--map", "ignored=ignore", "--concurrency", "1", *arguments)

    return import_changed


def emails(service: FakeService) -> set[str]:
    return {contact["email"] for contact in service.contacts("space_1")}


def asked(service: FakeService) -> list[str]:
    return [request.json["email"] for request in service.requests if request.json]


def rejected(path: Path) -> list[str]:
    """Return the e-mails in a rejects file, or in that beside it, which only an unfinished run leaves."""
    beside = path.with_suffix(".partial.csv")
    with (beside if beside.exists() else path).open(encoding="utf-8", newline="") as file:
        return [row["email"] for row in csv.DictReader(file)]


@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_and_rejects_come_from_the_file_that_was_opened(
    run: Callable[..., Ended], service: FakeService, tmp_path: Path, change: Callable[[str], Any], journal: bool
) -> None:
    rejects = tmp_path / "rejects.csv"
    ended = run(change, "--rejects", str(rejects), *(("--journal", str(tmp_path / "run.db")) if journal else ()))
    if change is not rewrite_unnoticed:  # no reader can notice this change before the content is compared at the end
        assert {email[:5] for email in asked(service)} == {"first"}
    assert rejected(rejects) == [email for email in asked(service) if email not in emails(service)] != []
    count = len(emails(service))
    assert (ended.code, f"have outcomes: {count} added, {len(rejected(rejects))} rejected; import" in ended.err) == (3, True)


def test_results_whose_kept_cells_are_unknown_are_written_beside(run: Callable[..., Ended], tmp_path: Path) -> None:
    results = tmp_path / "results.csv"
    options = ("--journal", str(tmp_path / "run.db"), "--results", str(results), "--keep", "ignored")
    ended = run(rewrite_unnoticed, *options, at=ROWS)
    beside = results.with_suffix(".partial.csv")
    assert (ended.code, results.exists(), f"it wrote {beside}" in ended.err) == (3, False, True)
    with beside.open(encoding="utf-8", newline="") as file:
        assert len([row for row in csv.DictReader(file) if row["id"]]) == ROWS * 3 // 4


@pytest.mark.nightly
@pytest.mark.parametrize("at", range(1, ROWS, 4))
@pytest.mark.parametrize("journal", [True, False])
@pytest.mark.parametrize("change", [*CHANGES, append, os.unlink])
def test_whenever_a_file_changes_no_added_row_is_a_reject(
    run: Callable[..., Ended], service: FakeService, tmp_path: Path, change: Callable[[str], Any], *, journal: bool, at: int
) -> None:
    options = ("--journal", str(tmp_path / "run.db")) if journal else ()
    run(change, "--rejects", str(tmp_path / "rejects.csv"), "--concurrency", "8", *options, at=at)
    if change is not rewrite_unnoticed:
        assert {email[:5] for email in asked(service)} <= {"first"}
    assert sorted(rejected(tmp_path / "rejects.csv")) == sorted({*asked(service)} - emails(service))


def test_a_file_that_replaces_the_input_does_not_end_the_run(run: Callable[..., Ended], service: FakeService) -> None:
    ended = run(replace)
    assert len(asked(service)) == ROWS
    assert ": another file has replaced the file that was opened; " in ended.err
    assert ended.err.endswith("; import the new file\n")


@pytest.mark.thorough
@pytest.mark.parametrize("change", [os.unlink, lambda path: Path(path).rename(path + ".done")])
def test_a_file_may_be_moved_or_deleted_while_it_is_imported(
    run: Callable[..., Ended], service: FakeService, tmp_path: Path, change: Callable[[str], Any]
) -> None:
    ended = run(change, "--journal", str(tmp_path / "run.db"), "--rejects", str(tmp_path / "rejects.csv"))
    assert (ended.code, ended.err, len(asked(service))) == (3, "", ROWS)
    assert len(rejected(tmp_path / "rejects.csv")) == ROWS // 4


def test_a_file_that_grows_is_not_imported_any_further(run: Callable[..., Ended], service: FakeService) -> None:
    size = len(people("first"))
    ended = run(append)
    assert len(asked(service)) < ROWS
    assert f": the file changed after it was opened: it had {size:,} bytes, and has {size + 16:,}; " in ended.err
    assert ended.err.endswith("; import a copy that no program changes\n")


@pytest.mark.thorough
def test_the_remedy_for_a_changed_file_loses_no_row_and_no_doubt(
    run: Callable[..., Ended], shell: Shell, service: FakeService, tmp_path: Path
) -> None:
    ended = run(append, "--journal", str(tmp_path / "run.db"))
    assert ended.err.endswith("; import a copy that no program changes with another --journal and --earlier unknown\n")
    added, copy = emails(service), str(tmp_path / "copy.csv")
    Path(copy).write_text(people("first"), encoding="utf-8")
    service.faults.clear()
    with serve_in_thread(service) as url:
        options = ("--map", "ignored=ignore", "--journal", str(tmp_path / "new.db"), "--earlier", "unknown")
        code, value = shell.json("import", copy, *connection_options(url), *options)
    assert (code, len(emails(service)), value["outcomes"]["skipped"], value["uncertain"]) == (0, ROWS, len(added), len(added))


@pytest.mark.thorough
@pytest.mark.parametrize("change", [append, lambda _path: None])
def test_rejects_of_a_resumed_run_include_the_rows_that_failed_before(
    shell: Shell, service: FakeService, tmp_path: Path, change: Callable[[str], Any]
) -> None:
    path, rejects = save_contacts(tmp_path, people("first")), tmp_path / "rejects.csv"
    service.faults.script("create_contact", status(422), ok, status(429, retry_after=7200), ok, status(422))
    with serve_in_thread(Watched(service, 6, lambda: change(path))) as url:
        options = (*connection_options(url), "--map", "ignored=ignore", "--concurrency", "1", "--rejects", str(rejects))
        journal = ("--journal", str(tmp_path / "run.db"), "--resume")
        assert shell("import", path, *options, *journal).code == 75
        assert rejected(rejects) == ["first00@a.example"]
        assert shell("import", path, *options, *journal).code == 3
    assert rejected(rejects) == ["first00@a.example", "first03@a.example"]


def test_a_file_that_changed_before_a_resumed_run_leaves_the_rejects_alone(
    shell: Shell, service: FakeService, tmp_path: Path
) -> None:
    path, rejects = save_contacts(tmp_path, people("first")), tmp_path / "rejects.csv"
    service.faults.script("create_contact", status(422), status(429, retry_after=7200))
    journal = ("--journal", str(tmp_path / "run.db"), "--rejects", str(rejects))
    with serve_in_thread(service) as url:
        options = (*connection_options(url), "--map", "ignored=ignore", "--concurrency", "1")
        assert shell("import", path, *options, *journal).code == 75
    (beside,) = tmp_path.glob("*.partial.csv")
    before = beside.read_bytes()
    given = {"journal": tmp_path / "run.db", "resume": True}
    resumed = ImportRun(job=ImportJob(file=open_file(path)), options=given, rejects=rejects)
    append(path)
    end = RunEnd(resumed, Screen.of(as_json=True), ROWS, "", FailedRows(), lambda *_told: None)
    with pytest.raises(InvalidRequest, match="the file changed after it was opened"), end.handled() as on_start:
        on_start(cast("Outcomes", SimpleNamespace(report=BulkReport(0, {}, 0, 0.0))))
    assert (beside.read_bytes(), rejects.exists()) == (before, False)


@pytest.mark.thorough
def test_rows_and_rejects_that_the_journal_stores_do_not_depend_on_the_file(
    run: Callable[..., Ended], service: FakeService, tmp_path: Path
) -> None:
    rejects = tmp_path / "rejects.csv"
    ended = run(rewrite, "--rejects", str(rejects), "--journal", str(tmp_path / "run.db"), "--repeats", "last")
    assert (ended.code, len(asked(service)), "the file changed" in ended.err) == (3, ROWS, True)
    assert rejected(rejects) == [email for email in asked(service) if email not in emails(service)] != []
