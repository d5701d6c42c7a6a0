"""The options `--hold`, `--held-by` and `--hold-domains` of the command `import`, and the ledgers of a configuration file."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.cli import Served
from support.results import read_results

from outreach_async.store import Store

HELD = re.compile(r"held by acme since \d{4}-\d\d-\d\d until \d{4}-\d\d-\d\d")
WORKSPACES = """
[workspaces]
acme = { id = "space_1", groups = ["retail"], ledger = "acme.ledger" }
bolt = { id = "space_2", groups = ["retail"], ledger = "bolt.ledger" }
cold = { id = "space_3", groups = ["others"] }
"""
PEOPLE = "email,city\nann@x.example,Lyon\nbo@y.example,Bern\n"


@pytest.fixture
def agency(served: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """Return a served service, whose configuration file has workspaces with ledgers."""
    monkeypatch.chdir(served.folder)
    (served.folder / "outreach.toml").write_text(WORKSPACES, encoding="utf-8")
    (served.folder / "outreach.toml").chmod(0o600)
    for name in "acme", "bolt":
        assert served("import", served.save("email\n"), *options(served, name)).code == 0
    return served


def options(served: Served, name: str) -> tuple[str, ...]:
    return (*served.options, "--config", "outreach.toml", "--duplicates", "overwrite", "--ledger", f"{name}.ledger")


def test_a_group_of_workspaces_holds_and_a_dry_run_says_so_before(agency: Served) -> None:
    hold = (agency.save(PEOPLE), *options(agency, "bolt"), "--hold", "90d", "--held-by", "retail", "--results", "results.csv")
    agency("import", agency.save("email\nann@x.example\n"), *options(agency, "acme"))
    agency.save(PEOPLE)
    _, dry = agency.json("import", *hold, "--dry-run")
    (group,) = dry["exclusions"]
    assert (group["reason"], group["examples"][0]["email"]) == ("held by acme since ... until ...", "ann@x.example")
    assert (dry["outcomes"]["excluded"], dry["outcomes"]["not_applied"], dry["ledger"]["held"]) == (1, 1, 1)
    assert [row["status"] for row in read_results(Path("results.csv"))] == ["excluded", "not_applied"]
    assert "1 of 2 rows can be sent; nothing was created" in agency("import", *hold, "--dry-run").out
    assert not Path("bolt.ledger.hold-lock").exists()
    done = agency("import", *hold)
    assert (done.code, done.out.splitlines()[-1]) == (0, "ledger: 1 new, 1 excluded, 1 held")
    (first, second) = read_results(Path("results.csv"))
    assert HELD.fullmatch(first["error"])
    assert (first["status"], second["status"]) == ("excluded", "added")
    assert Store("bolt.ledger").contacts().runs[0][2]["held"] == 1


def test_the_first_imports_of_two_workspaces_need_no_ledger_and_hold(agency: Served) -> None:
    for path in (*agency.folder.glob("*.ledger*"),):
        path.unlink()
    for name, expected in ("acme", "2 new"), ("bolt", "2 excluded, 2 held"):
        done = agency("import", agency.save(PEOPLE), *options(agency, name), "--hold", "90d", "--held-by", "retail")
        assert (done.code, done.out.splitlines()[-1]) == (0, f"ledger: {expected}")
    Path("acme.ledger").unlink()  # its other file shows that it was there
    done = agency("import", agency.save(PEOPLE), *options(agency, "bolt"), "--hold", "90d", "--held-by", "retail")
    assert (done.code, "acme.ledger does not exist; restore it" in done.err) == (2, True)


def test_a_path_holds_under_its_configured_name_and_domains_on_request(agency: Served) -> None:
    agency("import", agency.save(PEOPLE), *options(agency, "acme"))
    other = agency.save("email\ncy@x.example\nann@x.example\n")
    hold = ("--hold", "90d", "--held-by", os.path.relpath("acme.ledger"), "--held-by", "bolt.ledger", "--hold-domains")
    code, report = agency.json("import", other, *options(agency, "bolt"), *hold)
    reasons = {group["reason"] for group in report["exclusions"]}
    assert (code, reasons) == (0, {"... is held by acme since ... until ...", "held by acme since ... until ..."})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("--held-by", "acme"), "--held-by: needs a hold, got nothing; pass --hold 7776000 (90 days), too"),
        (("--hold-domains",), "--hold-domains: needs a hold, got nothing; pass --hold 7776000 (90 days), too"),
        (("--hold", "0d"), "--hold: expected a period of more than 0 seconds, got 0.0; pass a longer one, or omit it"),
        (("--hold", "90d", "--held-by", "all"), "--held-by all: no ledger is configured for cold; add ledger = "),
        (("--hold", "90d", "--held-by", "retale"), "--held-by retale: does not exist; correct the path or the name"),
        (("--hold", "90d", "--held-by", "people.csv"), "people.csv is not a ledger; pass the path of a ledger"),
        (("--hold", "90d", "--held-by", "s3://b/x"), "--held-by: expected ledgers in files, which can be locked, got s3://b/x;"),
        (("--hold", "90d", "--held-by", "new.csv", "--rejects", "new.csv"), "are the same file; pass another path to --rejects"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_hold_that_cannot_be_kept_is_refused(agency: Served, given: tuple[str, ...], expected: str) -> None:
    before = sorted(agency.folder.iterdir())
    assert expected in agency.refused("import", agency.save(PEOPLE), *options(agency, "bolt"), *given)
    assert sorted(agency.folder.iterdir()) == before


def test_parts_have_no_ledger_and_hold_nobody(agency: Served) -> None:
    refused = agency.refused(
        "import", agency.save(PEOPLE), *agency.options, "--hold", "90d", "--processes", "2", "--journal", "runs"
    )
    assert "--hold: conflicts with --processes; one process compares millions of rows, so omit --processes" in refused


@pytest.mark.parametrize("ledger", ["5", '""', "[]"])
def test_a_ledger_of_the_configuration_is_a_path(agency: Served, ledger: str) -> None:
    Path("outreach.toml").write_text(f'[workspaces]\nacme = {{ id = "space_1", ledger = {ledger} }}\n', encoding="utf-8")
    assert "workspaces.acme.ledger: expected the path or URL of a ledger, got" in agency.refused(
        "config", "show", "--config", "outreach.toml"
    )
