"""Promises of the texts about commands, files, audits and configuration, each kept with a second feature switched on."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from support.cli import KEY, Served, start_command
from support.files import sheet_of, workbook
from support.files import text as to_cell
from support.listener import Listener, serve
from support.promises import Desk, Promise, Promises, people
from support.results import read_results

from outreach_async import InvalidRequest, OutreachClient, Store
from outreach_async.audit import audit
from outreach_async.audit.history import History, Readings
from outreach_async.config import load_config
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.importer import ImportJob, open_file

README, CHANGELOG, NIGHTLY = "README.md", "CHANGELOG.md", "outreach_async/guides/nightly.py"
COMMANDS, HISTORY = "outreach_async/guides/command_line.py", "outreach_async/audit/history/__init__.py"
promise = Promises()


def within(served: Served, *names: str) -> list[str]:
    return [str(served.folder / name) for name in names]


@promise(README, "outreach-async import contacts.csv --dry-run # shows where each column goes, and creates nothing")
def a_dry_run_with_a_journal_and_json(_: Desk, served: Served) -> None:
    journal, findings = within(served, "j.db", "f.csv")
    path = served.save("email,Plan,Campaign\nann@a.example,gold,Spring\n")
    options = ("--journal", journal, "--findings", findings)
    code, value = served.json("import", path, *served.options, "--dry-run", *options)
    assert (code, value["dry_run"]) == (0, True)
    assert value["columns"] == {"email": "email", "Plan": "custom_1", "Campaign": "campaign"}
    assert {entry.operation for entry in served.service.requests} <= {"list_campaigns", "list_fields"}
    assert len(served.service.requests) <= 2
    assert not Path(journal).exists()
    assert "Plan\tcustom_1\t" in served("import", path, *served.options, "--dry-run").out
    assert not served.service.requests.of("create_contact")


@promise(COMMANDS, "the same command continues later; with neither `--journal` nor `--ledger`, `import` returns 3 instead")
def a_suspended_import_with_rejects_and_results(_: Desk, served: Served) -> None:
    path = served.save("email\nann@a.example\nbo@a.example\n")
    journal, rejects, results = within(served, "j.db", "x.csv", "r.jsonl")
    files = ("--rejects", rejects, "--results", results)
    busy = faults.status(429, retry_after=2000)
    served.service.faults.add(busy, operation="create_contact", match=lambda each: b"bo@a.example" in each.body)
    assert served("import", path, *served.options, "--rejects", rejects).code == 3
    served.service.requests.clear()
    for _again in range(2):
        assert served("import", path, *served.options, "--journal", journal, *files).code == 75
        assert not Path(results).exists()
    served.service.faults.clear()
    assert served("import", path, *served.options, "--journal", journal, *files).code == 0
    assert [row["status"] for row in read_results(Path(results))] == ["skipped", "added"]
    sent = [entry.json["email"] for entry in served.service.requests.of("create_contact") if entry.json]
    assert (sent.count("ann@a.example"), sent.count("bo@a.example")) == (1, 3)


@promise(COMMANDS, "not allowed: the service answered 401 or 403, to an audit for every workspace")
def an_audit_that_is_denied_with_a_history(_: Desk, served: Served) -> None:
    served.service.add_workspace("space_2")
    served.service.add_mailboxes("space_2", 1, spf=False)
    (history,) = within(served, "h.db")
    command = ("audit", *served.options, "--workspace", "space_2", "--history", history)
    served.service.faults.add(faults.status(403), match=lambda each: "space_2" in each.target)
    assert served(*command).code == 3
    served.service.faults.add(faults.status(401))
    before = History(history).baseline(["space_1"])
    assert served(*command).code == 77
    assert History(history).baseline(["space_1"]) == before is not None


@promise(COMMANDS, "takes precedence over 1")
def an_incomplete_audit_with_findings_and_outputs(_: Desk, served: Served) -> None:
    served.service.add_mailbox("space_1", email="a@new.example", spf=False)
    (report,) = within(served, "a.json")
    assert served("audit", *served.options, "--fail-on", "error").code == 1
    options = ("--workspace", "space_none", "--fail-on", "error", "--output", report)
    assert served("audit", *served.options, *options).code == 3
    assert json.loads(Path(report).read_text(encoding="utf-8"))["unreadable"] == ["space_none"]


@promise(
    COMMANDS,
    "If the brief cannot be delivered, it is still written, the exit code is 69, and the next brief shows the same changes.",
)
def a_brief_that_cannot_be_posted_with_a_history(_: Desk, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    history, page = within(served, "h.db", "b.json")
    command = ("brief", *served.options, "--history", history, "--output", page, "--post", "env:HOOK")

    def changes(answer: bytes) -> tuple[int, Any]:
        with Listener(serve(answer)) as receiver:
            monkeypatch.setenv("HOOK", f"{receiver.url}/services/hunter2")
            done = served(*command)
        assert "hunter2" not in done.out + done.err
        return done.code, json.loads(Path(page).read_text(encoding="utf-8"))["changes"]

    bad, good = (b"HTTP/1.1 %b\r\ncontent-length: 2\r\n\r\nok" % each for each in (b"500 Bad", b"200 OK"))
    assert changes(good)[0] == 0
    served.service.add_mailbox("space_1", email="a@new.example", spf=False)
    (first, failed), (last, posted) = changes(bad), changes(good)
    assert (first, last) == (69, 1)
    assert failed == posted


@promise(COMMANDS, "A command never overwrites its input, its journal or another output,")
def outputs_under_other_names_with_force(_: Desk, served: Served) -> None:
    text = "email\nann@a.example\n"
    path = served.save(text)
    link, hard, journal, ids, partial_ids = within(served, "link.csv", "hard.csv", "j.csv", "ids.csv", "ids.partial.csv")
    Path(link).symlink_to(path)
    (served.folder / "again").symlink_to(served.folder)
    os.link(path, hard)
    for option, name in (("--results", link), ("--rejects", hard), ("--findings", path), ("--save-mapping", link)):
        served.refused("import", path, *served.options, option, name, "--force")
    used = (("--journal", journal, f"{served.folder}/again/J.csv"), ("--journal", journal, f"{journal}-wal"))
    for option, name, other in (*used, ("--rejects", ids, ids), ("--rejects", ids, partial_ids)):
        served.refused("import", path, *served.options, option, name, "--results", other, "--force")
    assert (Path(path).read_text(encoding="utf-8"), len(served.service.requests.of("create_contact"))) == (text, 0)


@promise(COMMANDS, "they are written beside them, as `ids.partial.csv` for `ids.csv`, and the command names the file.")
def an_early_end_after_a_finished_import_with_kept_columns(_: Desk, served: Served) -> None:
    path, (ids, partial_ids) = served.save("email,Lead\nann@a.example,7\n"), within(served, "ids.csv", "ids.partial.csv")
    command = ("import", path, *served.options, "--results", ids, "--keep", "Lead", "--ignore-unknown")
    assert served(*command).code == 0
    finished = Path(ids).read_bytes()
    served.service.faults.add(faults.status(429, retry_after=2000), operation="create_contact", times=1)
    done = served(*command)
    assert (done.code, Path(ids).read_bytes(), partial_ids in done.out + done.err) == (3, finished, True)
    assert [(row["status"], row["Lead"]) for row in read_results(Path(partial_ids))] == [("not_applied", "7")]
    assert served(*command).code == 0
    assert not Path(partial_ids).exists()


@promise(CHANGELOG, "The first Ctrl-C waits for requests in flight, and the second cancels them.", long=True)
def two_ctrl_c_with_a_journal_and_results(_: Desk, served: Served) -> None:
    path, (journal, ids) = (
        served.save("email\n" + "".join(f"u{at}@a.example\n" for at in range(9))),
        within(served, "j.db", "ids.csv"),
    )
    command = ("import", path, *served.options, "--concurrency", "1", "--journal", journal, "--results", ids)
    sent = served.service.requests
    for fault, presses in ((faults.latency(1), 1), (faults.commit_then(faults.hang()), 2)):
        served.service.faults.script("create_contact", faults.ok, fault)
        before = len(sent.of("create_contact"))
        with start_command(*command, env={"OUTREACH_OWNER_KEY": KEY}) as process:
            while process.poll() is None and len(sent.of("create_contact")) < before + 2:
                sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.stderr is not None
            assert any("again to cancel" in line for line in process.stderr)
            if presses > 1:
                process.send_signal(signal.SIGINT)
            assert process.wait(timeout=20) == 130  # after the first alone, a request may take 30 s
    assert Store(journal).report().possibly_sent in {1, 2}  # with the row that was marked next
    code, value = served.json(*command)
    assert (code, value["rows"], value["uncertain"], value["outcomes"]["added"]) == (0, 9, 1, 8)


@promise(README, "CSV, JSON Lines, Parquet and workbooks are checked before anything is sent, and no row is lost.")
def every_row_of_a_damaged_file_with_checks(_: Desk, served: Served) -> None:
    lines = [
        "ann@a.example,Ann,75001",
        "bo@a.example",
        "x@a.example,too,many,cells",
        "bad,B,1",
        ",C,2",
        "cy@a.example,#REF!,'01234",
        "cy@a.example,D,3",
    ]
    path, (ids, rejects) = served.save("email,first_name,zip\n" + "\n".join(lines) + "\n"), within(served, "ids.jsonl", "x.csv")
    done = served("import", path, *served.options, "--results", ids, "--rejects", rejects, "--check", "zip=drop")
    assert done.code == 3
    rows = read_results(Path(ids))
    assert [row["line"] for row in rows] == list(range(2, 9))
    assert {row["email"] for row in rows if row["status"] in {"added", "skipped"}} == {"ann@a.example", "cy@a.example"}
    names = [entry.json.get("first_name") for entry in served.service.requests.of("create_contact") if entry.json]
    assert sorted(names, key=str) == ["Ann", "B", "D", None]
    failed = [row for row in rows if row["status"] == "rejected"]
    assert len(Path(rejects).read_text(encoding="utf-8").splitlines()) == 1 + len(failed) == 5
    sent = len(served.service.requests)
    Path(path).write_bytes(b"email\n" + b"".join(b"u%d@a.example\n" % at for at in range(9_000)) + b"\xff@a.example\n")
    assert "line 9002" in served.refused("import", path, *served.options)
    assert len(served.service.requests) == sent
    table, objects, book = within(served, "a.parquet", "a.jsonl", "a.xlsx")
    emails, pyarrow = ["cy@a.example", "bad", "bad@"], pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"email": emails}), table)
    Path(objects).write_text('{"email": "cy@a.example"}\n[1]\n{"email": ""}\n', encoding="utf-8")
    Path(book).write_bytes(workbook({"A": sheet_of([[to_cell(each)] for each in ("email", *emails)])}))
    for file in (table, objects, book):
        assert served("import", file, *served.options, "--results", ids).code == 3
        assert [row["status"] for row in read_results(Path(ids))] == ["skipped", "rejected", "rejected"]


@promise(CHANGELOG, "and so are all other rows of these people;")
def people_who_opted_out_with_the_last_of_repeats(_: Desk, served: Served) -> None:
    lines = ["ann@a.example,,1", "ANN@a.example,yes,2", "Ann@A.example,,3", "bo@a.example,no,4"]
    path, (ledger,) = served.save("email,Unsubscribed,zip\n" + "\n".join(lines) + "\n"), within(served, "l.db")
    options = ("--ledger", ledger, "--duplicates", "overwrite", "--repeats", "last", "--ignore-unknown")
    code, value = served.json("import", path, *served.options, *options)
    assert (code, value["outcomes"]["excluded"], value["outcomes"]["added"]) == (0, 3, 1)
    assert [entry.json["email"] for entry in served.service.requests.of("create_contact") if entry.json] == ["bo@a.example"]


@promise(
    NIGHTLY, "`import` exits with 75 if the service was down for too long, with 77 if the key was refused, with 3 if rows failed"
)
def nights_with_results_and_a_wrong_key(_: Desk, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    path, (ledger, ids) = served.save("email\nann@a.example\n"), within(served, "l.db", "ids.csv")
    command = ("import", path, *served.options, "--ledger", ledger, "--duplicates", "overwrite", "--results", ids)
    monkeypatch.setenv("OUTREACH_OWNER_KEY", "key_wrong")
    assert served(*command).code == 77
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    served.service.faults.script("create_contact", faults.status(422))
    assert [served(*command).code for _again in range(2)] == [3, 0]
    sent = len(served.service.requests)
    assert (served(*command).code, len(served.service.requests)) == (0, sent)
    served.save("email\nbo@a.example\n")
    served.service.faults.script("create_contact", faults.status(503, retry_after=2000))
    assert served(*command).code == 75


@promise("outreach_async/audit/__init__.py", "whatever cannot be read is a finding:")
async def an_audit_with_a_client_for_each_workspace(desk: Desk) -> None:
    other = FakeService(clock=desk.time)
    other.add_workspace("space_2")
    other.faults.add(faults.status(503))
    desk.fake.add_workspace("space_2")
    other_client = OutreachClient(transport=FakeTransport(other), workspace="space_2")
    report = await audit(desk.client(), ["space_1", "space_2"], clients={"space_2": other_client}, deadline=30, campaigns=True)
    assert (report.unreadable, report.mailboxes) == (["space_2"], 2)
    assert [finding.workspace for finding in report.findings if finding.rule.startswith("OA9")] == ["space_2"]
    assert desk.time.elapsed <= 31


@promise(HISTORY, "It contains the addresses of mailboxes, so only its owner can read it.")
def a_history_under_an_open_umask_that_is_pruned(_: Desk, served: Served) -> None:
    (path,) = within(served, "h.db")
    before = os.umask(0)
    try:
        assert served("audit", *served.options, "--history", path).code == 0
        assert "1 snapshot" in served("history", "prune", "--after", "2000-01-01", path).out
    finally:
        os.umask(before)
    assert {stat.S_IMODE(each.stat().st_mode) for each in served.folder.glob("h.db*")} == {0o600}


@promise(HISTORY, "A file that is not a history is never changed, and a history belongs to the address of one service.")
async def a_history_of_another_address_with_a_password(desk: Desk) -> None:
    readings = Readings()
    report = await audit(desk.client(), ["space_1"], readings=readings)
    path = desk.folder / "h.db"
    History(path, address="https://bob:hunter2@api.example").append(report, readings)
    assert b"hunter2" not in path.read_bytes()
    assert History(path, address="https://api.example").baseline(report.workspaces) is not None
    with pytest.raises(InvalidRequest):
        History(path, address="https://other.example").append(report, readings)
    text, table = desk.folder / "people.csv", desk.folder / "people.db"
    text.write_bytes(b"email\n")
    with closing(sqlite3.connect(table)) as db:
        db.execute("CREATE TABLE people (email)")
    for foreign in (text, table):
        content = foreign.read_bytes()
        with pytest.raises(InvalidRequest):
            History(foreign).append(report, readings)
        assert foreign.read_bytes() == content


@promise(CHANGELOG, "and for each workspace a page to send to a client, without names and addresses of the others.")
def pages_of_two_workspaces_that_share_a_domain(_: Desk, served: Served) -> None:
    served.service.add_workspace("space_2")
    served.service.add_mailbox("space_2", email="secret@shared.example", spf=False)
    served.service.add_mailbox("space_1", email="own@shared.example", spf=False)
    folder, config = within(served, "reports", "o.toml")
    Path(config).touch(0o600)
    names = '[workspaces]\nNorthwind = { id = "space_1" }\nSouthridge = { id = "space_2" }\n'
    Path(config).write_text(names, encoding="utf-8")
    options = ("--workspace", "space_2", "--workspace", "space_none", "--config", config, "--history", *within(served, "h.db"))
    for _again in range(2):
        assert served("audit", *served.options, *options, "--output-folder", folder, "--force").code == 3
    own: dict[str, tuple[str, ...]] = {
        "northwind": ("Northwind", "space_1", "own@shared"),
        "southridge": ("Southridge", "space_2", "secret@shared"),
        "space_none": ("space_none",),
    }
    pages = [each for each in Path(folder).iterdir() if each.stem in own]
    assert len(pages) == 6
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for stem, words in own.items():
            assert [word in text for word in words] == [stem == page.stem] * len(words)


@promise(CHANGELOG, "Its keys are sent to no other address than the file's.")
def keys_of_a_file_for_another_address(_: Desk, served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    path = served.folder / "o.toml"
    path.touch(0o600)
    path.write_text(
        'base_url = "https://api.example"\nowner_key = { env = "FILE_KEY" }\nworkspace = "space_1"\n', encoding="utf-8"
    )
    monkeypatch.setenv("FILE_KEY", KEY)
    monkeypatch.delenv("OUTREACH_OWNER_KEY")
    people_file = served.save("email\nann@a.example\n")
    served.refused("import", people_file, "--config", str(path), *served.options[:2])
    monkeypatch.setenv("OUTREACH_BASE_URL", served.options[1])
    served.refused("import", people_file, "--config", str(path))
    for url in ({}, {"base_url": "https://api.example.org"}, {"base_url": "http://api.example"}):
        with pytest.raises(InvalidRequest):
            load_config(path).client(read_only=False, **url)
    assert not served.service.requests.of("create_contact")


@promise(
    "outreach_async/importer/__init__.py",
    "If its size or its modification time changes, every later read raises `InvalidRequest`",
)
async def a_file_that_changes_after_its_check_with_a_journal(desk: Desk) -> None:
    path, text = desk.folder / "people.csv", "email\n" + "".join(f"{each['email']}\n" for each in people(50))
    for changed, seconds in ((text + "new@a.example\n", 0), (text.replace("u7@", "n7@"), 1)):
        path.write_text(text, encoding="utf-8")
        mapped, at = await ImportJob(file=open_file(path)).map(), path.stat().st_mtime_ns
        await mapped.check()
        path.write_text(changed, encoding="utf-8")
        os.utime(path, ns=(at, at + seconds * 10**9))
        with pytest.raises(InvalidRequest):
            await desk.client().contacts.create_many(mapped.rows(), journal=desk.store(f"{seconds}.db"))
    assert not desk.created()


@pytest.mark.parametrize(("promise", "backend"), promise.cases())
def test_a_promise_about_commands_and_files_is_kept(
    promise: Promise, backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    promise.check(tmp_path, backend, request)
