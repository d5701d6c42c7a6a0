"""Imports with a journal: resuming, reporting, writing rejects, and importing corrected rejects."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from support.cli import KEY, Served, Shell, on_terminal, save_contacts
from support.results import UNCERTAIN, read_results

from outreach_async import OutreachClient, Store
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import commit_then, ok, reset, status

PEOPLE = "E-mail,First Name,Note\na@a.example,Ann,x\nnone,=1+1,\nb@b.example,Bo,'-y\n,Cy\nc@c.example,Cy,z\n"
MAPPED = ("--map", "Note=personal_note")


@pytest.mark.thorough
@pytest.mark.covers
def test_a_terminal_says_that_no_outcome_is_uncertain(shell: Shell, tmp_path: Path) -> None:
    journal = str(tmp_path / "run.db")
    shell("import", save_contacts(tmp_path, "email\na@a.example\n"), "--base-url", "fake:", "--journal", journal)
    assert on_terminal("report", journal, "--uncertain").err.startswith("No outcome is uncertain.")


def test_without_a_journal_a_long_wait_is_an_incomplete_import(served: Served) -> None:
    served.service.faults.add(status(429, retry_after=7200))
    assert served("import", served.save("email\na@a.example\n"), *served.options).code == 3


def test_the_same_command_continues_an_unfinished_run_and_only_that(served: Served) -> None:
    path, journal = (
        served.save("email,Town\n" + "".join(f"p{at}@a.example,x\n" for at in range(5))),
        str(served.folder / "run.db"),
    )
    command = ("import", path, "--journal", journal, *served.options, "--concurrency", "1")
    served.service.faults.script("create_contact", ok, status(401))
    assert (served(*command, "--map", "Town=city").code, served("report", journal).code) == (77, 3)  # stopped
    served.service.faults.script("create_contact", ok, status(429, retry_after=7200))
    suspended = served(*command, "--map", "Town=city")
    assert (suspended.code, served("report", journal).code) == (75, 75)
    assert f"Some rows remain. Run the same command again: it continues the run in {journal}." in suspended.out
    changed = served(*command, "--map", "Town=region")
    assert (changed.code, "'Town' was 'city' and is now 'region'" in changed.err) == (2, True)
    assert (served(*command, "--map", "Town=city").code, served("report", journal).code) == (0, 0)
    assert len(served.service.contacts("space_1")) == 5
    refused = served.refused(*command, "--map", "Town=city")
    assert f"--journal {journal}: its run is finished; add --resume to print its results, or pass another journal" in refused


@pytest.mark.thorough
def test_resuming_a_finished_run_checks_nothing_again_and_sends_nothing(served: Served) -> None:
    path, journal = served.save("email,Plan\na@a.example,gold\nnobody,\n"), str(served.folder / "run.db")
    first = served("import", path, *served.options, "--journal", journal)
    requests_before = len(served.service.requests)
    second = served("import", path, *served.options, "--journal", journal, "--resume")
    assert (first.code, second.code, len(served.service.requests)) == (3, 3, requests_before)
    assert "Plan" in first.out + first.err
    assert "Plan" not in second.out + second.err
    failure = first.out.index("line 3: nobody: rejected: ")
    assert second.out == f"The run in {journal} had already finished, so nothing was sent. Its results:\n{first.out[failure:]}"
    assert served.json("import", path, *served.options, "--journal", journal, "--resume")[1]["rows"] == 2
    assert served("report", journal, "--uncertain").out.splitlines()[0] == "record\tstatus\tpossible\tattempts\tid\terror\tremedy"
    assert served.json("report", journal, "--uncertain", "--input", path)[1]["uncertain_rows"] == []


def test_the_report_lists_rows_whose_response_was_lost(served: Served) -> None:
    served.service.faults.script("create_contact", commit_then(reset()), ok)
    path, journal = served.save("email\na@a.example\nb@a.example\n"), str(served.folder / "run.db")
    shown_output = served("import", path, *served.options, "--journal", journal, "--concurrency", "1").out
    assert "uncertain outcomes: 1 (a response was lost or inconclusive)" in shown_output
    assert f"list these rows with: outreach-async report {journal} --uncertain" in shown_output
    listed = served("report", journal, "--uncertain").out.splitlines()
    assert listed[:2] == ["record\tstatus\tpossible\tattempts\tid\terror\tremedy", "1\tskipped\tadded, skipped\t2\t\t\t"]
    assert f"list these rows with: outreach-async report {journal} --uncertain --input {path}" in shown_output
    assert "finished: 2 rows" in "\n".join(listed)
    assert f"input: {path}" in listed
    lone = served.save("email\nz@a.example\n")
    served.service.faults.script("create_contact", commit_then(reset()), ok)
    assert "to list them, import with --journal" in served("import", lone, *served.options).out


def test_the_report_names_the_campaigns_of_uncertain_rows_if_they_differ(served: Served) -> None:
    campaigns = [served.service.add_campaign("space_1", name=name) for name in ("Spring", "Autumn")]
    for _ in campaigns:
        served.service.faults.script("create_contact", commit_then(reset()), ok)
    path = served.save(f"email,campaign\na@a.example,{campaigns[0]}\nb@a.example,{campaigns[1]}\n")
    journal = str(served.folder / "run.db")
    served("import", path, *served.options, "--map", "campaign=campaign", "--journal", journal, "--concurrency", "1")
    header, *rows = served("report", journal, "--uncertain").out.splitlines()
    assert header.split("\t")[:3] == ["record", "workspace", "campaign"]
    assert [row.split("\t")[2] for row in rows[:2]] == campaigns


def test_the_report_adds_lines_and_emails_from_the_input(served: Served) -> None:
    served.service.faults.script("create_contact", ok, commit_then(reset()), ok)
    path, journal = served.save('personal_note,Mail\n"x\ny",a@a.example\n\nz, b@b.example\n'), str(served.folder / "run.db")
    served("import", path, *served.options, "--journal", journal, "--concurrency", "1")
    moved = (served.folder / "people.csv").rename(served.folder / "moved.csv")
    _, value = served.json("report", journal, "--uncertain", "--input", str(moved))
    assert value["uncertain_rows"] == [{"line": 5, "email": "b@b.example", **UNCERTAIN, "workspace": "space_1"}]
    listed = served("report", journal, "--uncertain", "--input", str(moved)).out.splitlines()
    assert listed[0] == "line\temail\tstatus\tpossible\tattempts\tid\terror\tremedy"
    assert listed[1] == "5\tb@b.example\tskipped\tadded, skipped\t2\t\t\t"
    unknown = {"record": 2, "email": "", **UNCERTAIN, "workspace": "space_1"}
    assert served.json("report", journal, "--uncertain")[1]["uncertain_rows"] == [unknown]
    results = served.folder / "results.csv"
    assert "2 rows written to" in served("report", journal, "--results", str(results), "--input", str(moved)).out
    header, first, last = results.read_text(encoding="utf-8").splitlines()
    assert header == "file,line,record,email,workspace,campaign,status,certain,possible,attempts,id,error,remedy"
    assert first.startswith(f"{moved},2,,a@a.example,space_1,,rejected,yes,rejected,1,,")
    assert last == f'{moved},5,,b@b.example,space_1,,skipped,no,"added, skipped",2,,,'
    moved.write_text("Mail\nc@c.example\n", encoding="utf-8")
    changed = served("report", journal, "--uncertain", "--input", str(moved))
    assert (changed.code, "--input: " in changed.err, "has changed since the run began" in changed.err) == (2, True, True)
    assert "--input: requires --uncertain, --rejects or --results" in served.refused("report", journal, "--input", str(moved))


def test_a_row_has_the_same_number_everywhere(served: Served) -> None:
    path, rejects = served.save("email,city\na@a.example,\n\nbad,x\n"), served.folder / "r"
    journal = ("--journal", str(served.folder / "run.db"))
    options = ("--repeats", "last", *journal, "--rejects", str(rejects), *served.options)
    out = served("import", path, *options).out
    assert "warning: email: line 4: email: 'bad': not a valid address" in out
    assert "\nline 4: bad: rejected: create_contact: " in out
    with rejects.open(encoding="utf-8", newline="") as file:
        assert [row["_row"] for row in csv.DictReader(file)] == ["4"]
    (failure,) = served.json("import", path, *served.options)[1]["failures"]
    (example,) = failure["examples"]
    assert (example["line"], example["email"], failure["status"], failure["count"]) == (4, "bad", "rejected", 1)


def test_a_row_that_only_the_journal_has_is_numbered_as_a_record(served: Served) -> None:
    rejects = served.folder / "r.csv"
    options = ("--journal", str(served.folder / "run.db"), "--repeats", "error", "--rejects", str(rejects), *served.options)
    out = served.piped("email\na@a.example\n\nbad\na@a.example\n", "import", "-", *options).out
    assert "warning: email: record 2: email: 'bad': not a valid address" in out
    assert "\nrecord 2: bad: rejected: create_contact: " in out
    assert "\nrecord 3: a@a.example: rejected: email: same address as record 1; " in out
    with rejects.open(encoding="utf-8", newline="") as file:
        rows = [(row["_row"], row["_message"].partition(";")[0]) for row in csv.DictReader(file)]
    assert (rows[0][0], rows[1]) == ("2", ("3", "email: same address as record 1"))


@pytest.mark.parametrize("journal", [True, False])
def test_rejects_have_the_columns_of_the_file_and_can_be_imported_again(served: Served, journal: bool) -> None:
    path, rejects = served.save(PEOPLE), served.folder / "rejects.csv"
    journal_options = ("--journal", str(served.folder / "run.db")) if journal else ()
    assert served("import", path, *served.options, *MAPPED, *journal_options, "--rejects", str(rejects)).code == 3
    with rejects.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["E-mail", "First Name", "Note", "_row", "_code", "_field", "_message", "_text"]
    assert [row[:5] for row in rows] == [["none", "'=1+1", "", "3", "rejected"], ["", "Cy", "", "5", "rejected"]]
    assert all(row[6] for row in rows)
    text = (
        rejects.read_text(encoding="utf-8")
        .replace("none", "d@d.example")
        .replace("\n,Cy", "\ne@e.example,Cy")
        .replace('",Cy"', "")
    )
    rejects.write_text(text, encoding="utf-8")
    code, value = served.json("import", str(rejects), *served.options, *MAPPED)
    assert (code, value["outcomes"]["added"]) == (0, 2)
    names = {contact["email"]: contact["fields"].get("first_name") for contact in served.service.contacts("space_1")}
    assert (names["d@d.example"], names["e@e.example"]) == ("=1+1", "Cy")


def test_the_report_writes_rejects_while_the_file_is_unchanged(served: Served) -> None:
    path, journal, rejects = served.save(PEOPLE), str(served.folder / "run.db"), served.folder / "rejects.csv"
    served("import", path, *served.options, *MAPPED, "--journal", journal)
    reported = served("report", journal, "--rejects", str(rejects))
    assert (reported.code, f"2 rows written to {rejects}" in reported.out) == (3, True)
    assert rejects.read_text(encoding="utf-8").count("rejected") == 2
    served.save(PEOPLE + "\n")
    assert "has changed since the run began" in served.refused("report", journal, "--rejects", str(rejects))


async def test_a_journal_without_a_file_has_no_rejects_to_write(shell: Shell, service: FakeService, tmp_path: Path) -> None:
    client = OutreachClient(transport=FakeTransport(service), owner_key=KEY, workspace="space_1")
    await client.contacts.create_many([{"email": "a@a.example"}], journal=Store(tmp_path / "run.db", inline=True))
    assert "the journal records no input file" in shell.refused(
        "report", str(tmp_path / "run.db"), "--rejects", str(tmp_path / "rejects.csv")
    )
    assert "\nfrom " not in shell("report", str(tmp_path / "run.db")).out
    assert "--input: the journal records no input file" in shell.refused(
        "report", str(tmp_path / "run.db"), "--uncertain", "--input", save_contacts(tmp_path, PEOPLE)
    )


def test_the_rejects_of_a_piped_input_come_from_its_journal(served: Served) -> None:
    journal, rejects = (str(served.folder / name) for name in ("run.db", "rejects.csv"))
    text = "email,city\na@a.example,x\na@a.example,y\n"
    served.piped(text, "import", "-", *served.options, "--journal", journal, "--repeats", "error")
    assert served("report", journal, "--rejects", rejects).code == 3
    with Path(rejects).open(encoding="utf-8-sig", newline="") as file:
        _, row = csv.reader(file)
    assert row[:5] == ["a@a.example", "y", "2", "rejected", "email"]
    assert row[5].startswith("email: same address as record 1; ")


@pytest.mark.parametrize("source", ["file", "stdin"])
def test_a_journal_has_the_people_who_may_not_be_written_to(served: Served, source: str) -> None:
    text, files = (
        "email,Unsubscribed\nann@x.example,\nBO@x.example,\nbo@x.example,yes\n",
        [str(served.folder / f"{name}.jsonl") for name in "ab"],
    )
    options = (*served.options, "--journal", journal := str(served.folder / "run.db"), "--results", files[0])
    people = served.save(text)
    done = served("import", people, *options) if source == "file" else served.piped(text, "import", "-", *options)
    again = served("report", journal, "--results", files[1])
    for shown, where in (done, files[0]), (again, files[1]), (served("report", journal), "--results FILE"):
        ended = f"excluded rows: 2; nothing is sent to these people, and {where} has the reasons"
        assert (shown.code, ended in shown.out.splitlines()) == (0, True)
    for path in files:
        _, other, bo = read_results(Path(path))
        assert (bo["email"], bo["status"], bo["error"]) == ("bo@x.example", "excluded", "column 'Unsubscribed' says 'yes'")
        number = "line 4" if source == "file" else "record 3"
        assert (other["email"], other["error"]) == (
            "BO@x.example",
            f"same address as {number}, whose person must not be written to",
        )
    assert served.json("report", journal)[1]["outcomes"]["excluded"] == 2
    assert [contact["email"] for contact in served.service.contacts("space_1")] == ["ann@x.example"]


def test_repeats_last_sends_one_row_per_email_and_exits_0(served: Served) -> None:
    path = served.save("email,city\na@a.example,x\na@a.example,y\nb@b.example,z\n")
    wait_for_end = served("import", path, *served.options, "--repeats", "last", "--journal", str(served.folder / "run.db"))
    assert wait_for_end.code == 0
    assert "1 of the not_applied rows are duplicates" in wait_for_end.out
    assert {contact["email"]: contact["fields"]["city"] for contact in served.service.contacts("space_1")} == {
        "a@a.example": "y",
        "b@b.example": "z",
    }
