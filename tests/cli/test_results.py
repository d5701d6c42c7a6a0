"""The option `--results` of `import` and `report`: the outcome of every row, in a file."""

from __future__ import annotations

import csv
import signal
import subprocess
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from support.cli import COMMAND, KEY, Served, start_command, wait_for_end
from support.results import read_results
from tools.journal_child import outcome

from outreach_async import Excluded, InvalidRequest, NotFound, Outcome, OutreachError, StatusError, TransportError
from outreach_async.fake import faults
from outreach_async.fake.faults import Fault
from outreach_async.importer import RejectsFile, ResultsFile, RowOutcome, results_of

PEOPLE = "email,city\nann@x.example,Lyon\nbad,Bern\nbo@x.example,=1+1\n"
EXPECTED = [(2, "ann@x.example", "added", True), (3, "bad", "rejected", True), (4, "bo@x.example", "added", True)]


def facts(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["line"], row["email"], row["status"], row["certain"]) for row in rows]


LEDGER = ("--ledger", "c.ledger", "--duplicates", "overwrite")


def within(served: Served, *options: str) -> tuple[str, ...]:
    """Return options whose files are in the folder of the command."""
    return tuple(str(served.folder / each) if "." in each and "/" not in each else each for each in options)


@pytest.mark.parametrize(
    ("place", "name"),
    [((), "out.csv"), ((), "out.parquet"), (("--journal", "run.db"), "out.jsonl"), (LEDGER, "out.csv"), (LEDGER, "out.parquet")],
)
def test_an_import_writes_the_outcome_of_every_row(served: Served, place: tuple[str, ...], name: str) -> None:
    place = within(served, *place)
    path, people = served.folder / name, served.save(PEOPLE)
    done = served("import", people, *served.options, *place, "--results", str(path))
    assert (done.code, done.err) == (3, "")
    rows = read_results(path)
    assert facts(rows) == EXPECTED
    assert rows[0]["file"] == people
    assert rows[0]["possible"] == ["added"]
    assert rows[0]["id"].startswith("contact_")
    assert "email must be an e-mail address" in rows[1]["error"]


@pytest.mark.thorough
def test_a_resumed_import_writes_each_row_once(served: Served) -> None:
    people, path = served.save(PEOPLE), served.folder / "out.jsonl"
    options = (*served.options, "--journal", str(served.folder / "run.db"), "--results", str(path))
    for resume in ((), ("--resume",)):
        served("import", people, *options, *resume)
        assert facts(read_results(path)) == EXPECTED


def start_import(served: Served, *options: str) -> tuple[list[str], subprocess.Popen[str]]:
    """Start an import of 30 people in a process, and return its options, too."""
    people = served.save("email\n" + "".join(f"u{number:02}@x.example\n" for number in range(30)))
    shared = [people, *served.options, "--concurrency", "1", *options]
    return shared, start_command("import", *shared, env={"OUTREACH_OWNER_KEY": KEY})


UNFINISHED: dict[str, tuple[Fault, int]] = {
    "stopped by an error": (faults.status(401), 77),
    "stopped by rejections": (faults.status(422), 3),
    "suspended": (faults.status(429, retry_after=7200), 75),
}


@pytest.mark.parametrize("ending", UNFINISHED)
@pytest.mark.parametrize("place", [(), ("--journal", "run.db"), LEDGER], ids=["nothing", "journal", "ledger"])
def test_an_unfinished_import_writes_beside_the_files_of_a_finished_one(
    served: Served, place: tuple[str, ...], ending: str
) -> None:
    fault, code = UNFINISHED[ending]
    place = within(served, *place)
    people = served.save("email,city\nann@x.example,Bern\n,Rome\nbo@x.example,Oslo\ncy@x.example,Lyon\n")
    results, rejects = served.folder / "out.jsonl", served.folder / "rejects.csv"
    options = (*served.options, *place, "--concurrency", "1", "--results", str(results), "--rejects", str(rejects))
    beside = [served.folder / "out.partial.jsonl", served.folder / "rejects.partial.csv"]
    before = {results: b'{"file": "earlier"}\n', rejects: b"email,_row,_code,_field,_message\n"}
    for path, content in before.items():
        path.write_bytes(content)
    accepted = [] if ending == "stopped by rejections" else [faults.ok]
    served.service.faults.script("create_contact", *accepted, *[fault] * 3)
    done = served("import", people, *options, "--stop-after-rejects", "2")
    assert done.code == (code if place != () or code != 75 else 3)
    for path, content in before.items():
        assert path.read_bytes() == content
    assert all(f"wrote {path}, and left {kept} as it was" in done.err for path, kept in zip(beside, before, strict=True))
    assert facts(read_results(beside[0]))[0][:2] == (2, "ann@x.example")
    assert RejectsFile.recognises(beside[1])
    served.service.faults.clear()
    resume = ("--resume",) if "--journal" in place else ()
    assert served("import", people, *options, *resume).code == 3  # the row without an e-mail
    assert [row["line"] for row in read_results(results)] == [2, 3, 4, 5]
    assert not any(path.exists() for path in beside)


@pytest.mark.thorough
@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_an_import_that_a_signal_ends_keeps_the_files_of_a_finished_one(served: Served, signal_number: int) -> None:
    results = served.folder / "out.jsonl"
    results.write_bytes(earlier := b'{"file": "earlier"}\n')
    served.service.faults.add(faults.latency(0.1), operation="create_contact")
    ledger = ("--ledger", str(served.folder / "c.ledger"), "--duplicates", "overwrite", "--results", str(results))
    options, process = start_import(served, *ledger)
    for _ in range(3000):
        if len(served.service.contacts("space_1")) >= 5:
            break
        sleep(0.01)
    process.send_signal(signal_number)
    done = wait_for_end(process)
    assert results.read_bytes() == earlier
    beside = served.folder / "out.partial.jsonl"
    if signal_number == signal.SIGKILL:
        assert not beside.exists()
    else:
        assert f"wrote {beside}, and left {results} as it was" in done.err
        assert 0 < len(read_results(beside)) < 30
    served.service.faults.clear()
    assert served("import", *options).code == 0
    assert (len(read_results(results)), beside.exists()) == (30, False)


@pytest.mark.parametrize("flag", ["--results", "--rejects"])
def test_a_foreign_file_beside_the_results_is_not_overwritten(served: Served, flag: str) -> None:
    (served.folder / "mine.partial.csv").write_text("not yours", encoding="utf-8")
    people, path = served.save("email\nann@x.example\n"), str(served.folder / "mine.csv")
    message = served.refused("import", people, *served.options, flag, path)
    assert "mine.partial.csv: the file exists and does not look like an output of this option" in message


@pytest.mark.parametrize("place", ["/dev/stdout", "link.csv"])
def test_an_unfinished_import_writes_to_streams_and_beside_the_targets_of_links(served: Served, place: str) -> None:
    served.service.faults.script("create_contact", faults.ok, faults.status(401))
    (served.folder / "inner").mkdir()
    (served.folder / "link.csv").symlink_to(served.folder / "inner" / "out.csv")
    people = served.save("email\nann@x.example\nbo@x.example\n")
    path = place if place.startswith("/") else str(served.folder / place)
    done = served("import", people, *served.options, "--concurrency", "1", "--results", path)
    assert done.code == 77
    if place.startswith("/"):
        assert "wrote" not in done.err
    else:
        assert [path.name for path in (served.folder / "inner").iterdir()] == ["out.partial.csv"]


@pytest.mark.thorough
def test_a_dry_run_writes_what_the_ledger_knows_about_each_row(served: Served) -> None:
    path = served.folder / "out.jsonl"
    options = (*served.options, "--ledger", str(served.folder / "c.ledger"), "--duplicates", "overwrite", "--results", str(path))
    served.service.faults.script("create_contact", faults.commit_then(faults.reset()))
    served("import", served.save("email,city\nlost@x.example,Oslo\n"), *options)
    served("import", served.save(PEOPLE), *options)
    ids = [row["id"] for row in read_results(path)]
    changed = PEOPLE.replace("=1+1", "Rome") + "new@x.example,Oslo\nlost@x.example,Oslo\n"
    assert served("import", served.save(changed), *options, "--dry-run").code == 0
    ann, bad, bo, new, lost = read_results(path)
    assert [ann["id"], bo["id"]] == [ids[0], ids[2]]
    assert [(row["status"], row["certain"]) for row in (ann, bad, bo, new, lost)] == [
        ("unchanged", True),
        ("not_applied", True),
        ("not_applied", True),
        ("not_applied", True),
        ("unknown", False),
    ]
    assert (bo["error"], bo["remedy"]) == (
        "ledger: the row differs from the last row of the contact",
        "import the file to send the row",
    )
    assert [row["error"].removeprefix("ledger: ") for row in (new, lost)] == [
        "the ledger does not have the contact",
        "an earlier attempt was not answered",
    ]
    assert lost["possible"] == ["added", "not_applied", "overwriten"]


CHECK_TARGET = "check the workspace and the campaign of the row, and import it again"
INVALID, REFUSED = (
    InvalidRequest("email: missing; give it"),
    StatusError("list: 422; b", operation="create_contact", status_code=422),
)


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        ("added", None, (None, None)),
        ("excluded", Excluded("a; b"), ("a; b", None)),
        ("rejected", INVALID, ("email: missing", "give it")),
        ("rejected", InvalidRequest("email: missing"), ("email: missing", "correct the row, and import it again")),
        ("rejected", REFUSED, ("list: 422; b", "correct the row, and import it again")),
        ("not_applied", NotFound("gone", operation="create_contact", status_code=404), ("gone", CHECK_TARGET)),
        ("not_applied", TransportError("lost"), ("lost", "import the row again")),
        ("unknown", None, (None, "import the row again; the service detects a contact that exists")),
    ],
)
def test_each_failed_row_has_a_remedy(status: str, error: OutreachError | None, expected: tuple[str | None, ...]) -> None:
    (found,) = results_of(None, [outcome(0, Outcome(status), error=error)])
    row = found.to_dict()
    assert (row["error"], row["remedy"]) == expected


def test_a_report_writes_the_same_file(served: Served) -> None:
    people, journal = served.save(PEOPLE), str(served.folder / "run.db")
    served("import", people, *served.options, "--journal", journal, "--results", str(served.folder / "a.parquet"))
    served("report", journal, "--results", str(served.folder / "b.parquet"))
    assert read_results(served.folder / "a.parquet") == read_results(served.folder / "b.parquet")


@pytest.mark.thorough
def test_rows_from_a_pipe_have_record_numbers_or_lines(served: Served) -> None:
    served.piped(PEOPLE, "import", "-", *served.options, "--results", str(served.folder / "a.jsonl"))
    assert facts(read_results(served.folder / "a.jsonl")) == EXPECTED
    journal = ("--journal", str(served.folder / "run.db"))
    served.piped(PEOPLE, "import", "-", *served.options, *journal, "--results", str(served.folder / "b.jsonl"))
    rows = read_results(served.folder / "b.jsonl")
    assert [(row["record"], row["email"], row["file"]) for row in rows] == [
        (1, "ann@x.example", None),
        (2, "bad", None),
        (3, "bo@x.example", None),
    ]


def test_a_parquet_file_has_any_number_of_rows(tmp_path: Path) -> None:
    found = outcome(0, Outcome.UNKNOWN)
    with ResultsFile(tmp_path / "a.parquet") as results:
        for number in range(10_001):
            results.add(RowOutcome(found, number, "\ud800", unit="record"))
    assert [row["record"] for row in read_results(tmp_path / "a.parquet")] == [*range(10_001)]


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.parquet"])
def test_only_a_results_file_is_replaced(served: Served, name: str) -> None:
    people, path = served.save(PEOPLE), served.folder / name
    path.write_text("something else", encoding="utf-8")
    assert served("import", people, *served.options, "--results", str(path)).code == 2
    for force in (("--force",), ()):
        assert served("import", people, *served.options, "--results", str(path), *force).code == 3
    assert len(read_results(path)) == 3


@pytest.mark.thorough
def test_results_that_no_longer_fit_on_the_disk_name_their_option(served: Served) -> None:
    results = served.folder / "out.csv"
    results.write_bytes(earlier := b"file,line\n")
    people = served.save("email\n" + "".join(f"u{number:04}@x.example\n" for number in range(2000)))
    limited = ("sh", "-c", 'ulimit -f 100; exec "$0" "$@"', *COMMAND)  # blocks of 512 bytes or of a kilobyte
    command = ("import", people, *served.options, "--results", str(results), "--force")
    done = wait_for_end(start_command(*command, command=limited, env={"OUTREACH_OWNER_KEY": KEY}))
    assert f"--results {results}: File too large; free disk space, or pass another path" in done.err
    assert "; the rows of the run: " in done.err
    assert (results.read_bytes(), done.code) == (earlier, 3)


# The option `--keep`: columns of the input in the results.

LEADS = 'Lead Key,email,id,Note\n007,ann@x.example,c1,"a, b"\n008,bad,c2\n=9,bo@x.example,c3, x \n'
UNSENT = ("--map", "Lead Key=ignore", "--map", "id=ignore", "--map", "Note=ignore")
JOURNAL = ("--journal", "run.db")
KEPT = [(2, "007", "c1", "a, b"), (3, "008", "c2", None), (4, "=9", "c3", " x ")]


def kept(path: Path) -> list[tuple[int | str | None, ...]]:
    names = ("Lead Key", "input_id", "Note")
    return [(row["line"] or row["record"] + 1, *map(row.get, names)) for row in read_results(path)]


@pytest.mark.parametrize("options", [(), JOURNAL, LEDGER], ids=["alone", "journal", "ledger"])
@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_the_kept_cells_stand_beside_the_outcome_of_their_row(served: Served, options: tuple[str, ...], name: str) -> None:
    people, path, options = served.save(LEADS), served.folder / name, within(served, *options)
    wanted = ("--keep", "Lead Key", "--keep", "id", "--keep", "Note", "--results", str(path))
    assert served("import", people, *UNSENT, *served.options, *options, *wanted).code == 3
    assert kept(path) == KEPT
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
    people, journal = served.save(LEADS), str(served.folder / "run.db")
    assert message in served.refused("import", people, *UNSENT, *served.options, *within(served, *options))
    assert not served.service.contacts("space_1")
    assert served("import", people, *UNSENT, *served.options, "--journal", journal).code == 3
    assert message in served.refused("report", journal, *within(served, *options))


def test_a_report_keeps_the_columns_of_the_input(served: Served) -> None:
    people, path, journal = served.save(LEADS), served.folder / "out.jsonl", str(served.folder / "run.db")
    served("import", people, *UNSENT, *served.options, "--journal", journal)
    assert served("report", journal, "--keep", "all", "--results", str(path)).code == 3
    assert [(row["Lead Key"], row["input_id"]) for row in read_results(path)] == [("007", "c1"), ("008", "c2"), ("=9", "c3")]


@pytest.mark.parametrize("dry", [("--dry-run",), ()], ids=["dry run", "report"])
def test_the_rows_of_a_ledger_keep_their_columns(served: Served, dry: tuple[str, ...]) -> None:
    people, path, ledger = served.save(LEADS), served.folder / "out.jsonl", within(served, *LEDGER)
    served("import", people, *UNSENT, *served.options, *ledger)
    wanted = (*UNSENT, "--keep", "all", "--results", str(path))
    if dry:
        served("import", people, *served.options, *ledger, *wanted, *dry)
    else:
        assert served("report", ledger[1], "--input", people, *wanted).code == 0
    assert kept(path) == KEPT


def test_the_columns_of_standard_input_are_kept_while_it_can_be_read(served: Served) -> None:
    path, journal = served.folder / "out.jsonl", str(served.folder / "run.db")
    wanted = (*UNSENT, *served.options, "--keep", "all", "--results", str(path))
    served.piped(LEADS, "import", "-", *wanted)
    assert kept(path) == KEPT
    for resume in ((), ("--resume",)):
        path.unlink()
        assert served.piped(LEADS, "import", "-", *wanted, "--journal", journal, *resume).code == 3
        assert kept(path) == KEPT
        assert [row["record"] for row in read_results(path)] == [1, 2, 3]
    refused = served.piped("", "import", "-", *wanted, "--journal", journal, "--resume")
    assert (refused.code, "--keep: " in refused.err, "pass the same rows to standard input again" in refused.err) == (
        2,
        True,
        True,
    )
    message = served("report", journal, "--keep", "all", "--results", str(path)).err
    assert "--keep: the journal records no input file, whose columns it could copy; omit --keep" in message
