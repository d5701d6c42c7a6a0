"""The options of the gate of `import`: what is not sent, when nothing is sent, and what the command says about it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from support.cli import Served, Shell, save_contacts
from support.name_server import NameServer

PEOPLE = (
    "email,Email Status\nann@mx.example,valid\nbo@none.example,\ninfo@mx.example,accept_all\ncy@x.mailinator.com,\n,valid\n"
    "dee@servfail.example,\n"
)
DRY = ("--base-url", "fake:", "--dry-run")


@pytest.mark.thorough
def test_bad_rows_are_not_sent_and_the_others_are(served: Served) -> None:
    with NameServer() as server:
        options = (*served.options, "--gate", f"mx@{server.address}", "--check", "consent=warn")
        code, report = served.json("import", served.save(PEOPLE), *options)
    assert (code, report["outcomes"]["added"], report["outcomes"]["excluded"], report["outcomes"]["rejected"]) == (3, 3, 2, 1)
    assert {contact["email"] for contact in served.service.contacts("space_1")} == {
        "ann@mx.example",
        "info@mx.example",
        "dee@servfail.example",
    }
    figures = {name: figure["rows"] for name, figure in report["gate"]["figures"].items()}
    expected = {"no_mail_server": 2, "disposable": 1, "role": 1, "catch_all": 1, "unknown": 1, "bounced": None}
    assert expected.items() <= figures.items()
    assert [(group["reason"], group["count"]) for group in report["exclusions"]] == [("gate: no mail server for ...", 2)]


def test_a_budget_stops_a_run_before_anything_is_sent_and_lists_risky_rows(served: Served) -> None:
    findings = served.folder / "findings.csv"
    given = ("import", served.save(PEOPLE), *served.options, "--gate", "--max-risk", "3%", "--findings", str(findings))
    done = served(*given)
    assert done.code == 3
    assert served.service.contacts("space_1") == []
    what = "--max-risk: expected at most 3% risky rows, got 2 of 5 (40%: 1 disposable, 1 role); nothing is sent"
    assert f"{what}; {findings} lists them; correct or remove them, or pass a larger --max-risk\n" in done.err
    rows = [row for row in csv.DictReader(findings.read_text(encoding="utf-8").splitlines()) if row["check"] == "gate"]
    assert [(row["line"], row["level"], row["value"]) for row in rows] == [
        ("4", "warn", "info@mx.example"),
        ("5", "warn", "cy@x.mailinator.com"),
    ]
    remedied = (*given[:-2], "--force")
    assert "; nothing is sent; add --findings FILE to list them; correct" in served(*remedied).err
    assert served(*(each.replace("3%", "0.4") for each in given)).code == 3  # because of the row without an e-mail
    assert len(served.service.contacts("space_1")) == 5


def test_a_look_up_that_failed_is_told_also_with_quiet(shell: Shell, tmp_path: Path) -> None:
    with NameServer({}) as server:
        done = shell("import", save_contacts(tmp_path, PEOPLE), *DRY, "--gate", f"mx@{server.address}", "--quiet")
    assert (done.code, done.out) == (3, "")
    what = "gate: the look-up failed: the resolver finds no mail server of gmail.com, so no row is withheld for its mail server"
    assert what in " ".join(done.err.split())


def test_a_dry_run_judges_as_the_run_does(shell: Shell, tmp_path: Path) -> None:
    path = save_contacts(tmp_path, PEOPLE.replace(",valid\ndee", "x@,valid\ndee"))
    done = shell("import", path, *DRY, "--gate", "--max-risk", "50%")
    assert done.code == 0
    assert "error: gate: line 6: email: not a valid address" in done.out
    assert "gate: 3 of 6 rows are risky (50%), and 1 of them are not sent; 80% of the others may bounce" in done.out
    assert "5 of 6 rows can be sent; nothing was created" in done.out
    stopped = shell("import", path, *DRY, "--gate", "--max-risk", "49%", "--json")
    assert stopped.code == 3
    result = json.loads(stopped.out.splitlines()[-1])
    assert (result["outcomes"]["excluded"], result["gate"]["risk"], result["gate"]["predicted"]) == (1, 0.5, 0.8)
    assert "got 3 of 6 (50%: 1 invalid, 1 disposable, 1 role)" in stopped.err


def test_a_dry_run_with_a_ledger_counts_what_the_gate_withholds(shell: Shell, tmp_path: Path) -> None:
    path, ledger = save_contacts(tmp_path, "email\nann@mx.example\nbo@\n"), ("--ledger", str(tmp_path / "a.ledger"))
    done = shell("import", path, *DRY, "--workspace", "space_1", *ledger, "--changed", "ignore", "--gate", "--json")
    counts = json.loads(done.out.splitlines()[-1])["ledger"]
    assert (counts["new"], counts["excluded"], counts["gated"]) == (1, 1, 1)


def test_addresses_that_have_bounced_are_bad(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "old.csv").write_text("E-mail\nANN@mx.example\n", encoding="utf-8")
    bounces = ("--bounced", str(tmp_path / "old.csv"))
    done = shell("import", save_contacts(tmp_path, PEOPLE), *DRY, "--gate", *bounces, "--json")
    result = json.loads(done.out.splitlines()[-1])
    assert result["gate"]["figures"]["bounced"] == {"rows": 1, "share": 0.2, "source": "list old.csv, 1 entry"}
    assert (result["outcomes"]["excluded"], result["gate"]["bad"]) == (1, 1)
    assert "--bounced: needs --gate; add --gate, or omit --bounced." in shell("import", "x.csv", *DRY, *bounces).err


@pytest.mark.parametrize("more", [(), ("--processes", "2")], ids=["one process", "processes"])
def test_a_list_without_any_risk_takes_one_line(served: Served, more: tuple[str, ...]) -> None:
    (served.folder / "old.txt").write_text("bo@mx.example\n", encoding="utf-8")
    with NameServer() as server:
        options = ("--gate", f"mx@{server.address}", "--bounced", str(served.folder / "old.txt"), "--dry-run", *more)
        done = served("import", served.save("email,Email Status\nann@mx.example,valid\n"), *served.options, *options)
    assert [line for line in done.out.splitlines() if "gate" in line or "unknown" in line] == [
        "gate: 0 of 1 rows are risky (0%), and 0 of them are not sent; 0% of the others may bounce, as far as is known"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--max-risk", "3%"), "--max-risk: needs --gate; add --gate, or omit --max-risk."),
        (("--gate", "--max-risk", "3"), "expected a share from 0 to 100%, such as 3% or 0.03, got '3'."),
        (("--gate", "--max-risk", "nan"), "expected a share from 0 to 100%, such as 3% or 0.03, got 'nan'."),
        (
            ("--gate", "people.csv"),
            "expected local, mx or mx@ADDRESS, got 'people.csv'; write --gate=local, or write FILE before",
        ),
        (("--gate=mx@",), "--gate: expected the address of a DNS resolver, got ''; pass one such as 127.0.0.1:53"),
        (("--gate=mx@mail",), "--gate: expected the address of a DNS resolver, got 'mail'; pass one such as 127.0.0.1:53"),
    ],
)
def test_a_wrong_option_of_the_gate_is_refused_with_a_remedy(
    shell: Shell, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    done = shell("import", save_contacts(tmp_path, PEOPLE), *DRY, *options)
    assert (done.code, message in done.err) == (2, True), done.err


def test_a_budget_allows_exactly_its_share(shell: Shell, tmp_path: Path) -> None:
    path = save_contacts(tmp_path, "\n".join(["email", *(f"{'info' if at < 29 else at}@a.example" for at in range(1000))]))
    assert [shell("import", path, *DRY, "--gate", "--max-risk", each).code for each in ("2.9%", "2.89%")] == [0, 3]


def test_rows_that_only_a_journal_has_are_not_sent_without_the_gate(served: Served) -> None:
    given = ("import", "-", *served.options, "--journal", str(served.folder / "run.db"), "--gate")
    assert served.piped("email\nann@mx.example\n", *given).code == 0
    refused = served.piped("", *given, "--resume")
    # Without the option, the rows that the gate has withheld would be sent.
    remedy = "its columns; pass the same rows to standard input again. Try"
    assert (refused.code, "--gate: " in refused.err, remedy in refused.err) == (2, True, True)
