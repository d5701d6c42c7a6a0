"""The command `import --ledger`, and the report of a ledger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cli import Served
from support.results import read_results

from outreach_async.fake import faults

FIRST = "email,city\nann@x.example,Lyon\nbo@x.example,Bern\n"
SECOND = "email,city\nann@x.example,Rome\ncy@x.example,Oslo\n,Oslo\n"
OVERWRITE = ("--duplicates", "overwrite")


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return str(tmp_path / "contacts.ledger")


@pytest.mark.thorough
def test_a_second_import_sends_what_changed_and_says_so(served: Served, ledger: str) -> None:
    options = (*served.options, "--ledger", ledger, *OVERWRITE)
    first = served("import", served.save(FIRST), *options)
    assert (first.code, first.out.splitlines()[-1]) == (0, "ledger: 2 new")
    dry = served("import", served.save(SECOND), *options, "--dry-run")
    expected = "ledger: 1 new, 1 changed, 1 gone"
    assert (dry.code, expected in dry.out.splitlines()) == (3, True)
    code, report = served.json("import", served.save(SECOND), *options)
    assert (code, report["outcomes"]["added"], report["outcomes"]["overwriten"], report["outcomes"]["rejected"]) == (3, 1, 1, 1)
    assert report["ledger"] == {
        **dict.fromkeys(("expired", "uncertain", "unchanged", "excluded", "held", "gated", "repeated", "kept"), 0),
        "new": 1,
        "changed": 1,
        "gone": 1,
    }
    assert served("import", served.save(FIRST), *options, "--max-age", "0").out.splitlines()[-1] == (
        "ledger: 1 changed, 1 expired, 1 gone"
    )
    assert {contact["email"]: contact["fields"]["city"] for contact in served.service.contacts("space_1")} == {
        "ann@x.example": "Lyon",
        "bo@x.example": "Bern",
        "cy@x.example": "Oslo",
    }


def test_a_cell_that_was_emptied_keeps_its_value_unless_blank_cells_clear(served: Served, ledger: str) -> None:
    full, emptied = "email,city,zip\nann@x.example,Lyon,#REF!\n", "email,city,zip\nann@x.example,,#REF!\n"
    options = (*served.options, "--ledger", ledger, *OVERWRITE)
    remedy = "to clear the fields of blank cells, pass --duplicates overwrite --blank clear"
    note = f"note: the changed rows have 1 blank cell, for which the service keeps its values; {remedy}"

    def night(text: str, *more: str) -> tuple[list[str], dict[str, str]]:
        done = served("import", served.save(text), *options, *more)
        (contact,) = served.service.contacts("space_1")
        return done.out.splitlines()[-2:], contact["fields"]

    night(full)
    assert night(emptied, "--dry-run") == (["ledger: 1 changed", note], {"city": "Lyon"})
    assert night(emptied) == (["ledger: 1 changed", note], {"city": "Lyon"})
    lines, fields = night(emptied, *remedy.split(" pass ")[1].split())
    assert (lines[-1], fields) == ("ledger: 1 changed", {})
    for more in (), ("--dry-run",):
        assert night(emptied, "--blank", "clear", *more)[0][-1] == "ledger: 1 unchanged"
    found = served(
        "report", ledger, "--input", served.save(emptied), "--results", str(served.folder / "ids.csv"), "--blank", "clear"
    )
    assert "ledger: 1 unchanged\n" in found.out


@pytest.mark.thorough
def test_a_stopped_import_names_the_command_that_continues_it(served: Served, ledger: str) -> None:
    options = (*served.options, "--ledger", ledger, *OVERWRITE)
    done = served("import", served.save(FIRST), *options, "--campaign", "camp_unknown")
    again = "Fix the cause of the error. Then run the same command again: it sends what the ledger does not know."
    assert done.out.splitlines()[-1] == f"Some rows remain. {again}"
    assert served("import", served.save(FIRST), *options).out.splitlines()[-1] == "ledger: 2 new"


@pytest.mark.thorough
def test_a_row_with_a_fault_is_not_gone_and_among_the_rejects(served: Served, ledger: str) -> None:
    rejects = served.folder / "rejects.csv"
    repeats = ("--repeats", "last", "--rejects", str(rejects))
    options = (*served.options, "--ledger", ledger, *OVERWRITE, *repeats, "--check", "error")
    served("import", served.save("email,work_phone\nann@x.example,+4915112345\nbo@x.example,\n"), *options)
    done = served("import", served.save("email,work_phone\nann@x.example,4.92E+11\nbo@x.example,\n"), *options)
    assert (done.code, "ledger: 1 unchanged" in done.out.splitlines()) == (3, True)
    assert rejects.read_text(encoding="utf-8-sig").splitlines()[1].startswith("ann@x.example,4.92E+11,")
    assert done.out.endswith("To import more rows:\n  1 row: --check phone=drop sends them without the phone\n")


@pytest.mark.thorough
def test_a_person_who_opts_out_for_some_nights_is_neither_sent_nor_forgotten(served: Served, ledger: str) -> None:
    path = served.folder / "out.jsonl"
    options = (*served.options, "--ledger", ledger, *OVERWRITE, "--results", str(path))
    known, out = ("ledger: 2 unchanged", "unchanged"), ("ledger: 1 unchanged, 1 excluded", "excluded")
    nights = [("", "ledger: 2 new", "added"), ("", *known), ("true", *out), ("2026-05-04", *out), ("no", *known)]
    for cell, summary, label in nights:
        people = served.save(f"email,Unsubscribed\nann@x.example,\nbo@x.example,{cell}\n")
        dry = served("import", people, *options, "--dry-run")
        assert (dry.code, summary in dry.out.splitlines()) == (0, True)
        done = served("import", people, *options)
        assert (done.code, summary in done.out.splitlines()) == (0, True)
        assert ("\nexcluded rows: 1; " in done.out) is (label == "excluded")
        bo = read_results(path)[1]
        reason = f"column 'Unsubscribed' says '{cell}'" if label == "excluded" else None
        assert (bo["status"], bo["certain"], bo["error"], bo["remedy"]) == (label, True, reason, None)
    assert ", 0 gone from the last input" in served("report", ledger).out


@pytest.mark.thorough
@pytest.mark.covers
@pytest.mark.parametrize(
    ("other", "counts"),
    [
        ("ann@x.example,Spring,\n", "1 unchanged, 2 excluded"),
        ("ann@x.example,,\n", "1 unchanged, 2 excluded"),
        ("BO@x.example,,\n", "3 excluded"),
    ],
)
def test_a_person_who_opts_out_is_found_in_the_campaign_that_the_row_names(
    served: Served, ledger: str, other: str, counts: str
) -> None:
    path = served.folder / "out.jsonl"
    options = (*served.options, "--ledger", ledger, *OVERWRITE, "--map", "campaign=campaign", "--results", str(path))
    rows = f"email,campaign,Unsubscribed\n{other}bo@x.example,Spring,"
    assert served("import", served.save(f"{rows}\n"), *options).code == 0
    for more in ("--dry-run",), ():
        done = served("import", served.save(f"{rows}yes\ncy@x.example,Nowhere,yes\n"), *options, *more)
        assert (done.code, f"ledger: {counts}" in done.out.splitlines()) == (0, True)
        assert [(row["status"], row["campaign"]) for row in read_results(path)][1:] == [
            ("excluded", "camp_1"),
            ("excluded", None),
        ]


def test_a_dry_run_compares_with_an_empty_ledger_and_creates_none(served: Served, ledger: str) -> None:
    path = served.save(FIRST)
    code, report = served.json("import", path, *served.options, "--ledger", ledger, *OVERWRITE, "--dry-run", "--check", "off")
    assert (code, report["ledger"]["new"], report["ledger"]["gone"]) == (0, 2, 0)
    assert os.listdir(served.folder) == ["people.csv"]  # noqa: PTH208 - names


@pytest.mark.thorough
def test_an_interrupted_import_is_continued_by_the_same_command(served: Served, ledger: str) -> None:
    served.service.faults.script("create_contact", faults.commit_then(faults.reset()), faults.reset())
    rows = "".join(f"user{number}@x.example,Lyon\n" for number in range(20))
    options = (*served.options, "--ledger", ledger, *OVERWRITE)
    first = served("import", served.save(f"email,city\n{rows}"), *options, "--concurrency", "1")
    assert "uncertain outcomes: 1 (a response was lost or inconclusive)\n" in first.out
    assert "--journal" not in first.out
    second = served("import", served.save(f"email,city\n{rows}"), *options)
    assert second.out.splitlines()[-2] == "ledger: 1 uncertain, 19 unchanged"


@pytest.mark.thorough
def test_a_report_shows_the_contacts_and_runs_of_a_ledger(served: Served) -> None:
    places = (str(served.folder / "contacts.ledger"), "added"), ((served.folder / "lake").as_uri(), "overwritten")
    for location, outcome in places:
        served("import", served.save(FIRST), *served.options, "--ledger", location, *OVERWRITE)
        done = served("report", location)
        assert f" UTC: 2 {outcome}, " in done.out
        assert (done.code, done.out.splitlines()[:3]) == (
            0,
            ["workspace\tcampaign\tcontacts", "space_1\t\t2", "2 contacts, 0 uncertain, 0 gone from the last input"],
        )
        assert served.json("report", location)[1]["contacts"] == 2


def test_a_report_writes_what_a_ledger_knows_of_each_row(served: Served, ledger: str) -> None:
    path = served.folder / "out.jsonl"
    served.service.faults.script("create_contact", faults.commit_then(faults.reset()))
    options = (*served.options, "--duplicates", "update_missing_fields", "--no-strict", "--ledger", ledger)
    served("import", served.save("email,city\nlost@x.example,Oslo\n"), *options)
    served("import", served.save(FIRST), *options, "--results", str(path))
    ids = {row["email"]: row["id"] for row in read_results(path)}
    lost = served.service.contact("space_1", "lost@x.example")
    assert lost is not None
    people = served.save(f"{FIRST.replace('Bern', 'Rome')},Oslo\nnew@x.example,\nlost@x.example,Oslo\n")
    code, report = served.json("report", ledger, "--input", people, "--results", str(path))
    assert (code, report["contacts"], report["input"]) == (
        0,
        3,
        {
            "new": 1,
            "changed": 1,
            "expired": 0,
            "uncertain": 1,
            "unchanged": 1,
            "excluded": 0,
            "held": 0,
            "gated": 0,
            "gone": 0,
            "repeated": 0,
            "kept": 0,
        },
    )
    assert [(row["line"], row["email"], row["status"], row["id"]) for row in read_results(path)] == [
        (2, "ann@x.example", "unchanged", ids["ann@x.example"]),
        (3, "bo@x.example", "not_applied", ids["bo@x.example"]),
        (4, "", "rejected", None),
        (5, "new@x.example", "not_applied", None),
        (6, "lost@x.example", "unknown", lost["id"]),
    ]
    assert f"5 rows written to {path}\n" in served("report", ledger, "--input", people, "--results", str(path)).out


@pytest.mark.parametrize(
    ("content", "options", "statuses"),
    [
        ("email,Campaign\nann@x.example,camp_1\nann@x.example,\n", (), ["unchanged", "unchanged"]),
        ("email\nann@x.example\n", ("--campaign", "camp_1", "--workspace", "space_1"), ["unchanged"]),
        ("email,Stadt\nann@x.example,Lyon\n", ("--map", "Stadt=city", "--campaign", "camp_1"), ["not_applied"]),
        ("email,Nr\nann@x.example,7\n", ("--ignore-unknown", "--campaign", "camp_1"), ["unchanged"]),
        ("email,phone\nann@x.example,12\n", ("--check", "phone=error", "--campaign", "camp_1"), ["rejected"]),
        ("email,unsubscribed\nann@x.example,yes\n", ("--check", "consent=off", "--campaign", "camp_1"), ["unchanged"]),
    ],
)
def test_a_report_of_a_ledger_finds_rows_by_their_campaign(
    served: Served, ledger: str, content: str, options: tuple[str, ...], statuses: list[str]
) -> None:
    path = served.folder / "out.jsonl"
    rows = served.save("email,Campaign\nann@x.example,Spring\nann@x.example,\n")
    assert served("import", rows, *served.options, "--ledger", ledger, *OVERWRITE).code == 0
    assert served("report", ledger, "--input", served.save(content), "--results", str(path), *options).code == 0
    assert [row["status"] for row in read_results(path)] == statuses


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--results", "out.csv"), "--results: a ledger keeps no rows of its input; pass --input FILE, too."),
        (("--input", __file__), "--input: a ledger keeps no rows of its input; pass --results PATH, too."),
        (("--rejects", "out.csv"), "--rejects: a ledger keeps no rows of its input; pass --results PATH --input FILE"),
        (("--uncertain",), "--uncertain: a ledger keeps no rows of its input; pass --results PATH --input FILE"),
        (
            ("--results", "{0}/out.csv", "--input", "{0}/people.csv"),
            "--input: its rows do not name their campaign, and the ledger",
        ),
        (
            ("--results", "{0}/out.csv", "--input", "{0}/people.csv", "--campaign", "camp_9"),
            "--input: the ledger has no contacts of this workspace and campaign",
        ),
        (
            ("--results", "{0}/out.csv", "--input", "{0}/people.csv", "--campaign", "Spring"),
            "--campaign: expected an id, because a ledger has no names, got 'Spring'; pass the id, or run the import",
        ),
        (
            ("--results", "{0}/out.csv", "--input", "{0}/people.csv", "--map", "city=campaign"),
            "--input: its rows name the campaign 'Lyon', and a ledger has only ids; run the import with --dry-run",
        ),
    ],
)
def test_a_report_of_a_ledger_refuses_what_it_cannot_show(
    served: Served, ledger: str, options: tuple[str, ...], message: str
) -> None:
    for campaign in ((), ("--campaign", "camp_1")):
        served("import", served.save(FIRST), *served.options, "--ledger", ledger, *OVERWRITE, *campaign)
    done = served("report", ledger, *(option.format(served.folder) for option in options))
    assert (done.code, done.err.startswith(f"outreach-async: {message}")) == (2, True), done.err


@pytest.mark.parametrize("command", ["report", "import"])
def test_results_of_a_file_that_cannot_be_read_to_its_end_replace_none(served: Served, ledger: str, command: str) -> None:
    people, path = Path(served.save(FIRST)), served.folder / "ids.csv"
    served("import", str(people), *served.options, "--ledger", ledger, *OVERWRITE, "--results", str(path))
    before = path.read_bytes()
    people.write_bytes(people.read_bytes() + b"".join(b"u%d@x.example,x\n" % at for at in range(9000)) + b"\xff,x\n")
    options = (ledger, "--input", str(people)) if command == "report" else (str(people), *served.options, "--dry-run", *OVERWRITE)
    options = (*options, *(("--ledger", ledger, "--rejects", str(served.folder / "r.csv")) if command == "import" else ()))
    done = served(command, *options, "--results", str(path))
    assert (done.code, path.read_bytes(), (served.folder / "r.csv").exists()) == (2, before, False), done
    assert "wrote" in done.err


def test_the_options_of_a_ledger_are_refused_for_a_journal(served: Served) -> None:
    journal = str(served.folder / "run.db")
    served("import", served.save(FIRST), *served.options, "--journal", journal)
    for options in (("--map", "City=city"), ("--ignore-unknown",), ("--campaign", "camp_1")):
        assert f"{options[0]}: JOURNAL is not a ledger" in served.refused("report", journal, *options)


def test_a_report_names_a_run_that_is_not_included(served: Served, tmp_path: Path) -> None:
    ledger = (tmp_path / "shared").as_uri()
    served("import", served.save(FIRST), *served.options, "--ledger", ledger, *OVERWRITE)
    (tmp_path / "shared" / "run-000002").mkdir()
    assert "A run is not included: it is under way, or its process was killed." in served("report", ledger).out
