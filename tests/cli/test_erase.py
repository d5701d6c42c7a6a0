"""The command `erase`: what it removes, what it leaves, what it refuses, and its record."""

from __future__ import annotations

import gzip
import json
import os
import pty
import re
import shutil
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import anyio
import pytest
from support.cli import Ended, Shell
from support.erasures import ANN, QuotingService, find_traces
from support.histories import append_days
from support.journal import content_of
from support.runs import client

from outreach_async import InvalidRequest, Outcome, Store
from outreach_async.audit.history import History
from outreach_async.importer import RejectsFile, ResultsFile, erase_rows, map_columns, open_file, read_exclusions, results_of
from outreach_async.store import Identity, match_people

BOX, BO = "a0@one.example", "bo@acme.example"
PEOPLE = f'E-mail,City\n{ANN},"Lyon, 7"\n{BO},Bern\n'
WRITTEN = ("a.ledger", "history.db", "rejects.partial.csv", "results.csv", "results.jsonl", "results.parquet", "run.db")


async def write_files(folder: Path) -> None:
    """Write files of every kind that name Ann or a mailbox: those of imports and audits, and their input."""
    (folder / "people.csv").write_text(PEOPLE, encoding="utf-8")
    file = open_file(folder / "people.csv")
    rows = [dict(row) for row in file.rows(map_columns(file.headers))]
    for ledger in (folder / "a.ledger", f"{folder.as_uri()}/ledger"):
        await client(QuotingService([ANN])).contacts.create_many(rows, ledger=ledger, duplicates="overwrite")
        await client(QuotingService()).contacts.create_many(rows, ledger=ledger, duplicates="overwrite")
    for journal in (folder / "run.db", f"{folder.as_uri()}/run"):
        await client(QuotingService([ANN])).contacts.create_many(rows, journal=journal, spool=True)
    found = [*results_of(file, Store(folder / "run.db").outcomes())]
    for suffix in ("csv", "jsonl", "parquet"):
        with ResultsFile(folder / f"results.{suffix}", ["all"], [file.headers]) as results:
            for each in found:
                results.add(each)
    with RejectsFile(folder / "rejects.partial.csv", file.headers) as rejects:
        for each in found:
            rejects.add(each)
    append_days(folder / "history.db", 3)
    with closing(sqlite3.connect(folder / "history.db")) as db:  # free pages keep what was deleted
        db.execute("PRAGMA secure_delete = OFF")
        db.execute("CREATE TABLE deleted (text)")
        db.execute("INSERT INTO deleted VALUES (?)", (BOX * 900,))
        db.execute("DROP TABLE deleted")
        db.commit()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files") / "imports"
    folder.mkdir()
    anyio.run(write_files, folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "imports"))


def answered(shell: Shell, answer: str, *arguments: str) -> Ended:
    """Run the command with a terminal as its standard input, which has an answer."""
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    before = sys.stdin
    with os.fdopen(theirs) as terminal:
        sys.stdin = terminal
        try:
            return shell(*arguments)
        finally:
            sys.stdin = before
            os.close(ours)


def test_nothing_is_left_but_in_files_of_others(shell: Shell, folder: Path) -> None:
    code, record = shell.json("erase", ANN.upper(), BOX, "--path", str(folder), "--yes")
    assert find_traces(folder, ANN) == [*find_traces(folder, BOX), "people.csv"] == ["people.csv"]
    assert (code, [Path(each["path"]).name for each in record["left"]]) == (3, ["people.csv"])
    assert sorted({Path(each["path"]).name for each in record["removed"]}) == sorted([*WRITTEN, "ledger", "run"])
    assert {each["workspace"] for each in record["contacts"]} == {"space_1"}
    assert ANN.lower() not in json.dumps(record, ensure_ascii=False).lower()
    assert record["people"] == ["A**@COMPANY.EXAMPLE", "a**@one.example"]
    assert datetime.fromisoformat(record["at"]) <= datetime.now(UTC)
    (folder / "people.csv").unlink()
    code, record = shell.json("erase", ANN, BOX, "--path", str(folder), "--yes")
    assert (code, record["removed"], record["left"]) == (0, [], [])


def test_everything_else_is_as_it_was(shell: Shell, folder: Path) -> None:
    figures = [(day.date, day.sent_30days) for day in History(folder / "history.db").daily("mailbox")]
    shell("erase", ANN, BOX, "--path", str(folder), "--yes")
    assert [each.outcome.index for each in results_of(None, Store(folder / "run.db").outcomes())] == [0, 1]
    assert Store(f"{folder.as_uri()}/run").report().outcomes[Outcome.REJECTED] == 1
    assert [Store(each).contacts().contacts for each in (folder / "a.ledger", f"{folder.as_uri()}/ledger")] == [1, 1]
    history = History(folder / "history.db")
    assert [(day.date, day.sent_30days) for day in history.daily("mailbox")] == figures
    assert {day.name for day in history.daily("mailbox")} == {"erased", "a1@one.example"}
    assert "mailbox_0" not in {day.id for day in history.daily("mailbox")}
    for suffix in ("csv", "jsonl", "parquet"):
        kept = open_file(folder / f"results.{suffix}")
        assert [cells[kept.headers.index("email")] for _, cells, _ in kept.records()] == [BO]


def test_a_dry_run_shows_the_same_and_changes_nothing(shell: Shell, folder: Path) -> None:
    before = content_of(folder)
    code, planned = shell.json("erase", ANN, BOX, "--path", str(folder), "--dry-run", "--and-exclude", str(folder / "new"))
    assert (code, content_of(folder), planned["done"]) == (3, before, False)
    _, record = shell.json("erase", ANN, BOX, "--path", str(folder), "--yes")
    places = [[each["path"] for each in found["removed"]] for found in (planned, record)]
    assert (places[0], planned["contacts"], planned["left"]) == (places[1], record["contacts"], record["left"])


def test_a_run_that_holds_a_file_is_refused_before_anything_changes(shell: Shell, folder: Path) -> None:
    writer = Store(folder / "z.db").writer(Identity("space_1", {}), resume=False)
    before = content_of(folder)
    error = shell.refused("erase", ANN, "--path", str(folder), "--yes")
    assert f"a run is using {folder / 'z.db'}; wait until it ends: nothing was erased" in error
    assert content_of(folder) == before
    writer.close()


def test_results_that_a_run_is_writing_are_left_and_complete(shell: Shell, folder: Path, tmp_path: Path) -> None:
    file = open_file(folder / "people.csv")
    (path := tmp_path / "new").mkdir()
    with ResultsFile(path / "results.csv", (), [file.headers]) as results:
        for each in results_of(file, Store(folder / "run.db").outcomes()):
            results.add(each)
        code, record = shell.json("erase", ANN, "--path", str(path), "--yes")
    assert (code, record["removed"], [each["reason"].partition(",")[0] for each in record["left"]]) == (
        3,
        [],
        ["a process is writing it"],
    )
    assert len((path / "results.csv").read_text(encoding="utf-8").splitlines()) == 3


def test_addresses_come_from_standard_input_or_a_file(shell: Shell, folder: Path, tmp_path: Path) -> None:
    text = f"\ufeff# asked on Monday\n\n<{ANN}>\n"
    (tmp_path / "asked.csv").write_text(f"Name;E-mail\nAnn;{ANN}\n", encoding="utf-8")
    assert shell("erase", "--from", str(tmp_path / "asked.csv"), "--path", str(folder), "--dry-run").out.startswith(
        "Would erase: A**@"
    )
    assert shell.piped(text, "erase", "--from", "-", "--path", str(folder), "--yes").code == 3
    assert find_traces(folder, ANN) == ["people.csv"]


@pytest.mark.parametrize(("answer", "code", "left"), [("y", 3, ["people.csv"]), ("", 2, [*WRITTEN, "people.csv"])])
def test_a_person_at_a_terminal_is_asked(shell: Shell, folder: Path, answer: str, code: int, left: list[str]) -> None:
    done = answered(shell, answer, "erase", ANN, "--path", str(folder))
    assert (done.code, done.out.startswith("Would erase: A**@"), "Remove this? [y/N]" in done.err) == (code, True, True)
    assert {*left} - {"history.db"} <= {*find_traces(folder, ANN)} | {"a.ledger"}
    assert (find_traces(folder, ANN) == left) == (answer == "y")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ([], "EMAIL: missing; pass addresses, or --from FILE with one a line."),
        (["ann", "--path", "."], "emails: expected an e-mail address, got another text as number 1; pass only addresses"),
        ([ANN], "--path: missing; pass the files, folders and URLs in which to look."),
        ([ANN, "--path", "missing"], "--path missing: does not exist; pass a file, a folder or a URL."),
        (["--from", "missing", "--path", "."], "missing: No such file or directory; pass a readable file"),
    ],
)
def test_what_is_missing_is_named(shell: Shell, arguments: list[str], error: str) -> None:
    assert error in shell.refused("erase", *arguments, "--yes")


def test_without_a_terminal_the_consent_is_an_option(shell: Shell, folder: Path) -> None:
    assert "--yes: needed without a terminal" in shell.piped("", "erase", ANN, "--path", str(folder)).err
    for hidden in (["--from", "-"], [ANN, "--json"], [ANN, "--quiet"]):
        assert "--yes: needed without a terminal" in answered(shell, "y", "erase", *hidden, "--path", str(folder)).err


def test_the_people_are_excluded_from_later_imports(shell: Shell, folder: Path, tmp_path: Path) -> None:
    marks = tmp_path / "forgotten.txt"
    out = shell("erase", ANN, "--path", str(folder), "--yes", "--and-exclude", str(marks)).out
    assert out.index("Erased: ") < out.index(f"--exclude {marks}")
    assert [*read_exclusions(marks).find([ANN, BO])] == [0]
    assert find_traces(tmp_path, ANN) == ["imports/people.csv"]


def test_nothing_is_erased_of_people_who_cannot_be_excluded(shell: Shell, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{BO}\n", encoding="utf-8")
    before = content_of(folder)
    error = shell.refused("erase", ANN, "--path", str(folder), "--yes", "--and-exclude", str(tmp_path / "list.txt"))
    assert "--and-exclude: " in error
    assert "got none; pass another file: nothing was erased" in error
    assert content_of(folder) == before


def write_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/sharedStrings.xml", f"<t>{ANN}</t>")


def write_damaged_zip(path: Path) -> None:
    write_zip(path)
    content = path.read_bytes()
    path.write_bytes(content[:40] + b"\xff" * 40 + content[80:])


def write_encrypted_zip(path: Path) -> None:
    write_zip(path)
    content = bytearray(path.read_bytes())
    for magic, flags in (b"PK\3\4", 6), (b"PK\1\2", 8):
        content[content.index(magic) + flags] |= 1
    path.write_bytes(content)


def write_parquet(path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"E-mail": [ANN] * 3}), path, compression="gzip", write_statistics=False)


def write_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE person (city TEXT, email TEXT, name TEXT)")
        db.execute("INSERT INTO person VALUES ('Lyon', ?, 'Ann')", (ANN,))
        db.commit()


OTHERS: dict[str, Callable[[Path], object]] = {
    "people.xlsx": write_zip,
    "damaged.xlsx": write_damaged_zip,
    "encrypted.zip": write_encrypted_zip,
    "people.csv.gz": lambda path: path.write_bytes(gzip.compress(PEOPLE.encode())),
    "people.parquet": write_parquet,
    "people.db": write_database,
    "people.txt": lambda path: path.write_bytes(b"\xff\xfe" + PEOPLE.encode("utf-16-le")),
    "other-order.txt": lambda path: path.write_bytes(b"\xfe\xff" + PEOPLE.encode("utf-16-be")),
    "no-line-end.txt": lambda path: path.write_bytes(ANN.encode("utf-16-be")),
    "large.txt": lambda path: path.write_text("x " * 524_283 + ANN, encoding="utf-8"),
    f"{ANN}.txt": Path.touch,
    f"{ANN.replace('@', '%40')}.txt": Path.touch,
    "damaged.db": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 52 + b"OABJ" + b"\0" * 28),
    "damaged-history.db": lambda path: path.write_bytes(b"SQLite format 3\0" + b"\0" * 52 + b"OAHI" + b"\0" * 28),
    "old.ledger": lambda path: path.write_bytes(b"OALEDG" + b"\0" * 99),
    "link.csv": lambda path: path.symlink_to(__file__),
    "results.parquet": lambda path: path.write_bytes(b"PAR1 damaged PAR1"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_cannot_be_changed_is_left_and_named(shell: Shell, folder: Path, tmp_path: Path, name: str) -> None:
    OTHERS[name](place := tmp_path / name)
    code, record = shell.json("erase", ANN, "--path", str(place), "--path", str(folder / "a.ledger"), "--yes")
    assert (code, len(record["left"]), len(record["removed"])) == (3, 1, 1)
    assert record["left"][0]["path"] == re.sub("Ann.*(@|%40)company", "A**@company", str(place))


def test_a_file_that_has_only_the_id_of_a_contact_is_left_and_named(shell: Shell, folder: Path, tmp_path: Path) -> None:
    ledger, notes = ("--path", str(folder / "a.ledger")), tmp_path / "notes.txt"
    _, planned = shell.json("erase", ANN, *ledger, "--dry-run")
    notes.write_text(f"call {planned['contacts'][0]['id']} back", encoding="utf-8")
    code, record = shell.json("erase", ANN, *ledger, "--path", str(notes), "--yes")
    assert (code, [each["path"] for each in record["left"]]) == (3, [str(notes)])


def test_a_store_that_is_named_twice_is_erased_once(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    places = (
        "--path",
        "a.ledger",
        "--path",
        str(folder / "a.ledger"),
        "--path",
        "ledger",
        "--path",
        f"{folder.as_uri()}/ledger/",
    )
    code, record = shell.json("erase", ANN, *places, "--yes")
    assert (code, len(record["removed"])) == (0, 2)


def test_a_link_to_a_place_that_is_searched_is_no_problem(shell: Shell, folder: Path) -> None:
    (folder / "people.csv").unlink()
    (folder / "link.db").symlink_to(folder / "run.db")
    assert shell("erase", ANN, "--path", str(folder), "--yes").code == 0


def test_the_log_of_a_killed_run_goes_with_its_journal(shell: Shell, tmp_path: Path) -> None:
    (killed := tmp_path / "killed").mkdir()
    writer = Store(tmp_path / "run.db").writer(Identity("space_1", {}), resume=False)
    writer.spool([(0, ANN, json.dumps({"email": ANN}).encode())])
    writer.end_spool(1)
    for name in ("run.db", "run.db-wal"):
        shutil.copy(tmp_path / name, killed)
    writer.close()
    os.mkfifo(killed / "pipe")
    assert shell("erase", ANN, "--path", str(killed), "--dry-run").code == 0
    assert shell("erase", ANN, "--path", str(killed), "--yes").code == 0
    assert find_traces(killed, ANN) == []


def test_a_file_that_cannot_be_read_is_left(shell: Shell, folder: Path) -> None:
    (folder / "loop").symlink_to(folder / "loop")
    places = ("--path", "/proc/self/mem", "--path", str(folder / "run.db"), "--path", str(folder / "loop"))
    code, record = shell.json("erase", ANN, *places, "--yes")
    assert (code, [each["path"] for each in record["left"]]) == (3, ["/proc/self/mem", str(folder / "loop")])


@pytest.mark.usefixtures("folder")
def test_the_ledgers_of_the_configured_workspaces_are_the_default(shell: Shell, tmp_path: Path) -> None:
    spaces = [
        f'w{at} = {{ id = "space_{at}", ledger = "{place}" }}' for at, place in enumerate(("missing.ledger", "imports/a.ledger"))
    ]
    (tmp_path / "outreach.toml").write_text("\n".join(["[workspaces]", *spaces, 'w2 = { id = "space_2" }', ""]))
    given = ("erase", ANN, "--config", str(tmp_path / "outreach.toml"), "--yes")
    assert "--path: missing" in shell.refused(*given, "--workspace", "w0")
    code, record = shell.json(*given)
    assert (code, [Path(each["path"]).name for each in record["removed"]]) == (0, ["a.ledger"])


def test_stores_are_found_under_a_url(shell: Shell, folder: Path) -> None:
    code, record = shell.json("erase", ANN, "--path", f"{folder.as_uri()}/ledger", "--path", f"{folder.as_uri()}/run", "--yes")
    assert (code, len(record["removed"])) == (0, 2)
    (folder / "parts").mkdir()
    shutil.copytree(folder / "run", folder / "parts" / "part-1")
    assert shell.json("erase", ANN, "--path", f"{folder.as_uri()}/parts", "--yes")[0] == 0


INPUTS: dict[str, str | None] = {
    "people.csv": PEOPLE,
    "people.jsonl": '{"file": "ann@company.example"}\n',
    "people.parquet": None,
}


@pytest.mark.parametrize("name", INPUTS)
def test_an_input_is_never_changed(tmp_path: Path, name: str) -> None:
    if text := INPUTS[name]:
        (tmp_path / name).write_text(text, encoding="utf-8")
    else:
        write_parquet(tmp_path / name)
    before = content_of(tmp_path)
    assert erase_rows(tmp_path / name, match_people([ANN, "ann@company.example"])) is None
    assert content_of(tmp_path) == before


def test_other_rows_of_an_edited_file_stay_byte_for_byte(tmp_path: Path) -> None:
    head, row = b"E-mail;Note,_row,_code,_field,_message,_text\r\n", b'"b\xf6, ""bo""\n",7,rejected,,,\n'
    named = f'"{ANN}",8,"re\njected",,,\n', f"cy,9,rejected,,same person as {ANN},\n"
    (tmp_path / "rejects.csv").write_bytes(head + row + "".join(named).encode() + row)
    assert erase_rows(tmp_path / "rejects.csv", match_people([ANN])) == 2
    assert (tmp_path / "rejects.csv").read_bytes() == head + row + row


@pytest.mark.parametrize("name", ["rejects.csv", "results.jsonl"])
def test_a_damaged_output_of_an_import_is_left(tmp_path: Path, name: str) -> None:
    damaged = {"rejects.csv": "E-mail,_row,_code,_field,_message,_text\r\na\rb,1\n", "results.jsonl": '{"file": \n'}
    (tmp_path / name).write_text(damaged[name], encoding="utf-8", newline="")
    with pytest.raises(InvalidRequest, match=f"{name} is damaged: .*; restore it, or remove the person from it yourself"):
        erase_rows(tmp_path / name, match_people([ANN]))
