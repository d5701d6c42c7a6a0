"""The command `import --ledger`, and the report of a ledger."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.cli import Shell, save_contacts

from outreach_async.fake import FakeService, faults

FIRST = "email,city\nann@x.example,Lyon\nbo@x.example,Bern\n"
SECOND = "email,city\nann@x.example,Rome\ncy@x.example,Oslo\n,Oslo\n"
OVERWRITE = ("--duplicates", "overwrite")


@pytest.fixture
def ledger(tmp_path: Path) -> str:
    return str(tmp_path / "contacts.ledger")


def test_a_second_import_sends_what_changed_and_says_so(
    shell: Shell, server_options: tuple[str, ...], service: FakeService, tmp_path: Path, ledger: str
) -> None:
    options = (*server_options, "--ledger", ledger, *OVERWRITE)
    first = shell("import", save_contacts(tmp_path, FIRST), *options)
    assert (first.code, first.out.splitlines()[-1]) == (0, "ledger: 2 new")
    dry = shell("import", save_contacts(tmp_path, SECOND), *options, "--dry-run")
    expected = "ledger: 1 new, 1 changed, 1 gone"
    assert (dry.code, dry.out.splitlines()[-1]) == (3, expected)
    code, report = shell.json("import", save_contacts(tmp_path, SECOND), *options)
    assert (code, report["outcomes"]["added"], report["outcomes"]["overwriten"], report["outcomes"]["rejected"]) == (3, 1, 1, 1)
    assert report["ledger"] == {"new": 1, "changed": 1, "expired": 0, "uncertain": 0, "unchanged": 0, "gone": 1}
    assert shell("import", save_contacts(tmp_path, FIRST), *options, "--max-age", "0").out.splitlines()[-1] == (
        "ledger: 1 changed, 1 expired, 1 gone"
    )
    assert {contact["email"]: contact["fields"]["city"] for contact in service.contacts("space_1")} == {
        "ann@x.example": "Lyon",
        "bo@x.example": "Bern",
        "cy@x.example": "Oslo",
    }


def test_a_stopped_import_names_the_command_that_continues_it(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path, ledger: str
) -> None:
    options = (*server_options, "--ledger", ledger, *OVERWRITE)
    done = shell("import", save_contacts(tmp_path, FIRST), *options, "--campaign", "camp_unknown")
    assert done.out.splitlines()[-1] == "Some rows remain. Run the same command again: it sends what the ledger does not know."
    assert shell("import", save_contacts(tmp_path, FIRST), *options).out.splitlines()[-1] == "ledger: 2 new"


def test_a_row_with_a_fault_is_not_gone(shell: Shell, server_options: tuple[str, ...], tmp_path: Path, ledger: str) -> None:
    options = (*server_options, "--ledger", ledger, *OVERWRITE, "--check", "error")
    shell("import", save_contacts(tmp_path, "email,work_phone\nann@x.example,+4915112345\nbo@x.example,\n"), *options)
    done = shell("import", save_contacts(tmp_path, "email,work_phone\nann@x.example,4.92E+11\nbo@x.example,\n"), *options)
    assert (done.code, done.out.splitlines()[-1]) == (3, "ledger: 1 unchanged")


def test_a_dry_run_compares_with_an_empty_ledger_and_creates_none(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path, ledger: str
) -> None:
    path = save_contacts(tmp_path, FIRST)
    code, report = shell.json("import", path, *server_options, "--ledger", ledger, *OVERWRITE, "--dry-run", "--check", "off")
    assert (code, report["ledger"]["new"], report["ledger"]["gone"]) == (0, 2, 0)
    assert os.listdir(tmp_path) == ["people.csv"]  # noqa: PTH208 - names


def test_an_interrupted_import_is_continued_by_the_same_command(
    shell: Shell, server_options: tuple[str, ...], service: FakeService, tmp_path: Path, ledger: str
) -> None:
    service.faults.script("create_contact", faults.commit_then(faults.reset()), faults.reset())
    rows = "".join(f"user{number}@x.example,Lyon\n" for number in range(20))
    options = (*server_options, "--ledger", ledger, *OVERWRITE)
    first = shell("import", save_contacts(tmp_path, f"email,city\n{rows}"), *options, "--concurrency", "1")
    assert "uncertain outcomes: 1 (a response was lost or inconclusive)\n" in first.out
    assert "--journal" not in first.out
    second = shell("import", save_contacts(tmp_path, f"email,city\n{rows}"), *options)
    assert second.out.splitlines()[-2] == "ledger: 1 uncertain, 19 unchanged"


def test_a_report_shows_the_contacts_and_runs_of_a_ledger(shell: Shell, server_options: tuple[str, ...], tmp_path: Path) -> None:
    for location in (str(tmp_path / "contacts.ledger"), (tmp_path / "lake").as_uri()):
        shell("import", save_contacts(tmp_path, FIRST), *server_options, "--ledger", location, *OVERWRITE)
        done = shell("report", location)
        assert (done.code, done.out.splitlines()[:3]) == (
            0,
            ["workspace\tcampaign\tcontacts", "space_1\t\t2", "2 contacts, 0 uncertain, 0 gone from the last input"],
        )
        assert shell.json("report", location)[1]["contacts"] == 2
    failed = shell("report", location, "--results", str(tmp_path / "out.csv"))
    assert (failed.code, failed.err.split(";")[0]) == (2, "outreach-async: --results: a ledger has no e-mails")


def test_a_report_names_a_run_that_is_not_included(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path, ledger: str
) -> None:
    shell("import", save_contacts(tmp_path, FIRST), *server_options, "--ledger", ledger, *OVERWRITE)
    older = Path(ledger).read_bytes()
    shell("import", save_contacts(tmp_path, SECOND), *server_options, "--ledger", ledger, *OVERWRITE)
    Path(ledger).write_bytes(older)
    assert "A run is not included: it is under way, or its process was killed." in shell("report", ledger).out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--ledger", "l"),
            "--duplicates skip: with --ledger, the service would ignore each changed row; pass --duplicates overwrite",
        ),
        (("--ledger", "l", *OVERWRITE, "--journal", "j"), "--journal: conflicts with --ledger, which has a journal of its own"),
        (("--ledger", "l", *OVERWRITE, "--resume"), "--resume: conflicts with --ledger"),
        (("--ledger", "l", *OVERWRITE, "--earlier", "unknown"), "--earlier unknown: conflicts with --ledger"),
        (("--ledger", "l", *OVERWRITE, "--repeats", "last"), "--repeats last: conflicts with --ledger"),
        (("--ledger", "l", *OVERWRITE, "--dask", "local"), "--ledger: conflicts with --dask"),
        (("--max-age", "30d"), "--max-age: needs a ledger; pass --ledger PATH."),
        (("--changed", "ignore"), "--changed: needs a ledger; pass --ledger PATH."),
        (("--ledger", __file__, *OVERWRITE), f"--ledger: {__file__} is not a ledger"),
        (("--ledger", "l", *OVERWRITE, "--max-age", "old"), "Invalid value for '--max-age': expected a number and a unit"),
    ],
)
def test_what_contradicts_a_ledger_is_refused(
    shell: Shell, server_options: tuple[str, ...], tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = shell("import", save_contacts(tmp_path, FIRST), *server_options, *arguments)
    assert (done.code, done.err.startswith(f"outreach-async: {message}")) == (2, True), done.err
