"""What an import prints of many rows: groups by reason with counts, on a terminal never more than fits on a screen."""

from __future__ import annotations

import csv
import gzip
import re
import shlex
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

import pytest
from support.cli import Served
from support.results import read_results

from outreach_async import ContactOutcome, Outcome, OutreachError
from outreach_async.fake import faults
from outreach_async.fake.faults import status
from outreach_async.importer import FailedRows

MAX_LINES = 38
"""Lines on a terminal, besides two progress bars."""


def rejected(message: str) -> ContactOutcome:
    error = OutreachError(message)
    return ContactOutcome(index=0, contact={}, status=Outcome.REJECTED, id=None, possible=frozenset(), attempts=1, error=error)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("country: 'Germny': expected a country's name; did you mean 'DE'?", "country: ...: expected a country's name"),
        ("email: same address as line 12; remove one", "email: same address as line ...; remove one"),
        ("no contact ann@x.example at https://x.example/a?b=c today", "no contact ... at ... today"),
        ("custom_3 must be at most 50 characters, not 61.", "custom_3 must be at most ... characters, not ...."),
        ("x" * 300, "x" * 200 + "..."),
    ],
)
def test_a_reason_has_none_of_the_values_of_its_row(message: str, reason: str) -> None:
    failed = FailedRows()
    failed.add(rejected(message))
    assert [group.key.reason for group in failed.failures] == [reason]


def test_a_reason_has_none_of_the_cells_of_its_row(served: Served) -> None:
    served.service.faults.script("create_contact", status(422, body=b'{"message": "Rom is no city, and Romania no Rom"}'))
    _, report = served.json("import", served.save("email,city,title\na@x.example,Rom,no\n"), *served.options)
    assert report["failures"][0]["reason"] == "... is no city, and Romania no ..."


def test_the_number_of_groups_is_bounded_and_their_counts_add_up() -> None:
    failed = FailedRows()
    for at in range(10_000):
        failed.add(rejected(f"reason {chr(97 + at % 500)}{chr(256 + at % 5000)}"))
    found = [*failed.failures]
    assert len(found) == 201
    assert sum(group.count for group in found) == failed.failures.count == 10_000
    assert found[0].key.reason == "other reasons"


def test_a_service_that_gives_every_row_a_reason_of_its_own_fills_no_screen(served: Served) -> None:
    words = ["".join(chr(97 + (at // 26**place) % 26) for place in range(3)) for at in range(60)]
    faults = [status(422, body=f'{{"message": "refused as {word}"}}'.encode()) for word in words]
    served.service.faults.script("create_contact", *faults)
    path = served.save("email\n" + "".join(f"u{at}@x.example\n" for at in range(60)))
    options = (*served.options, "--stop-after-rejects", "never")
    lines = served.shown("import", path, *options)
    assert len(lines) <= MAX_LINES
    assert sum("more reasons" in line for line in lines) == 1


PEOPLE = (
    "E-mail,Country,Work Phone,Note,Unsubscribed\n"
    "ann@x.example,Germny,+44 20 7946 0018,,\n"
    "bo@x.example,Frnace,12,,\n"
    "cy@x.example,,,key_abcdef123456,yes\n"
    "bad,DE,abc,,\n"
    "ANN@x.example,FR,,,\n"
    "di@x.example\n"
)
FOUND = [
    (2, "country", "warn", "country", "Country", "Germny"),
    (3, "phone", "drop", "work_phone", "Work Phone", "12"),
    (3, "country", "warn", "country", "Country", "Frnace"),
    (4, "consent", "error", "opt_out", "Unsubscribed", "yes"),
    (5, "phone", "drop", "work_phone", "Work Phone", "abc"),
    (5, "email", "warn", "email", "E-mail", "bad"),
    (7, "row", "error", None, None, None),
    (6, "repeat", "warn", "email", "E-mail", None),
]
IGNORED = ("--map", "Note=ignore")


@pytest.mark.parametrize("name", ["found.csv", "found.jsonl", "found.parquet"])
@pytest.mark.parametrize("dry", [("--dry-run",), ()])
def test_a_file_has_every_finding_with_its_place_and_value(served: Served, name: str, dry: tuple[str, ...]) -> None:
    people, path = served.save(PEOPLE), served.folder / name
    served("import", people, *IGNORED, *served.options, "--findings", str(path), *dry)
    rows = read_findings(path)
    names = ("line", "check", "level", "field", "column", "value")
    assert [tuple(row[each] or None for each in names) for row in rows] == FOUND
    assert {row["file"] for row in rows} == {people}
    assert all(row["message"] for row in rows)
    assert path.stat().st_mode & 0o077 == 0


def read_findings(path: Path) -> list[dict[str, Any]]:
    if path.suffix != ".csv":
        return read_results(path)
    with path.open(encoding="utf-8", newline="") as file:
        return [{**row, "line": int(row["line"])} for row in csv.DictReader(file)]


def test_findings_of_a_file_that_cannot_be_read_to_its_end_stand_beside(served: Served) -> None:
    path, beside = served.folder / "found.csv", served.folder / "found.partial.csv"
    chance = Random(1)  # noqa: S311 - no secret
    lines = "email,country\n" + "".join(f"u{chance.random()}@x.example,Germny\n" for _ in range(600))
    people = served.folder / "people.csv.gz"
    people.write_bytes(gzip.compress(lines.encode())[:-500])
    first = served("import", str(people), *served.options, "--findings", str(path))
    assert f"--findings is not complete: it wrote {beside}\n" in first.err  # no earlier file is said to be left
    path.write_text("file,line,record,check\n", encoding="utf-8")
    assert f"--findings is not complete: it wrote {beside}, and left {path} as it was" in served.refused(
        "import", str(people), *served.options, "--findings", str(path), "--force"
    )
    assert len(read_findings(beside)) > 100
    served("import", served.save(PEOPLE), *IGNORED, *served.options, "--findings", str(path), "--force")
    assert (beside.exists(), len(read_findings(path))) == (False, len(FOUND))


def test_rows_that_only_a_journal_has_cannot_be_checked_again(served: Served) -> None:
    path = served.folder / "f.csv"
    options = (*served.options, "--journal", str(served.folder / "run.db"), "--resume", "--findings", str(path))
    assert served.piped("email,country\nann@x.example,Germny\n", "import", "-", *options).code == 3
    with path.open(encoding="utf-8") as file:
        assert [(row["record"], row["line"], row["value"]) for row in csv.DictReader(file)] == [("1", "", "Germny")]
    refused = served.piped("", "import", "-", *options)
    assert (refused.code, "--findings: " in refused.err) == (2, True)


def test_excluded_rows_are_grouped_by_the_column_that_says_so(served: Served) -> None:
    people = "".join(f"u{at}@x.example,{'yes' if at % 2 else 'true'}\n" for at in range(10))
    code, report = served.json("import", served.save(f"email,unsubscribed\n{people}"), *served.options)
    (group,) = report["exclusions"]
    assert (code, group["status"], group["reason"], group["count"]) == (0, "excluded", "column 'unsubscribed'", 10)
    assert (report["failures"], report["remedies"]) == ([], [])
    lines = served.shown("import", served.save(f"email,unsubscribed\n{people}"), *served.options)
    assert "excluded: 10 rows: column 'unsubscribed'" in lines
    assert "people who must not be written to: 10 of 10 rows are not sent; --findings FILE lists all" in " ".join(
        " ".join(lines).split()
    )


@pytest.mark.parametrize("dry", [False, True])
def test_what_is_printed_names_the_files_that_were_written(served: Served, dry: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.folder)
    rows = "".join(f"u{at}@x.example,{'yes' if at % 2 else ''}{',' * (at % 5 == 0)}\n" for at in range(40))
    options = ["--dry-run"] if dry else ["--results", "ids.csv"]
    options += ["--findings", "f.csv", "--rejects", "r.csv"]
    shown = " ".join(served("import", served.save(f"email,unsubscribed\n{rows}"), *served.options, *options).out.split())
    assert re.findall(r"--(?:findings|rejects|results) FILE", shown) == []
    assert "rows are not sent; f.csv lists all" in shown
    assert ("and ids.csv has the reasons" in shown) is not dry


# Remedies.

NAMES = "email,country,work_phone,zip,website,city\n"
GOOD = "good@x.example,DE,+44 20 7946 0018,01234,x.example,Rome\n"


@pytest.mark.parametrize(
    ("rows", "options", "remedy"),
    [
        (["a@x.example,DE,call me,,,"], ("--check", "phone=error"), "--check phone=drop sends them without the phone"),
        (["a@x.example,Germny,,,,"], (), "--check country=drop sends them without the country"),
        (["a@x.example,Germny,,,,"], ("--check", "error"), "--check country=drop sends them without the country"),
        (["a@x.example,,,,,#REF!"], ("--check", "cells=error"), "--check cells=warn sends them"),
        ([" a@x.example,,,,,", "b@x.example,,,,, Oslo"], ("--check", "cells=error"), "--check cells=warn sends them"),
        (["info@x.example,,,,,"], ("--check", "role=error"), "--check role=warn sends them"),
        (["good@x.example,,,,,"], ("--repeats", "error"), "--repeats serial sends them, too"),
        (
            ["a@x.example,DE", "b@x.example"],
            (),
            "--short-rows pad sends them, with blank cells for those that are missing at the end",
        ),
        (
            ["a@x.example,Germny,,,,", "b@x.example,,,1234567890123456,,", "c@x.example,,,,no site,"],
            (),
            "--check country=drop --check website=drop --check zip=drop sends them without the country, website and zip",
        ),
    ],
)
@pytest.mark.parametrize("journal", [None, "a run.db", "file://{}/runs"])
def test_the_options_of_a_remedy_import_the_rows_that_it_counts(
    served: Served, rows: list[str], options: tuple[str, ...], remedy: str, journal: str | None
) -> None:
    path = served.save(NAMES + GOOD + "\n".join(rows))
    place = str(served.folder / journal) if journal == "a run.db" else journal and journal.format(served.folder)
    given = ("import", path, *served.options, *options, *(("--journal", place) if place else ()))
    code, report = served.json(*given)
    (found,) = report["remedies"]
    flags = remedy.partition(" sends")[0]
    again = f" --journal {shlex.quote(place.replace('run.db', 'run-2.db').replace('/runs', '/runs-2'))}" if place else ""
    assert (code, found) == (3, {"rows": len(rows), "remedy": remedy.replace(flags, flags + again, 1)})
    code, report = served.json(*given, *shlex.split(flags + again))
    assert (code, report["remedies"]) == (0, [])
    stored = [contact["email"] for contact in served.service.contacts("space_1")]
    assert {*stored} == {row.partition(",")[0].strip() for row in [GOOD, *rows]}


@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_rows_to_correct_are_written_where_the_remedy_says(
    served: Served, journal: bool, given: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(served.folder)
    path = served.save("email,country\ngood@x.example,DE\nbad,Germny\n")
    options = [*(("--journal", "run.db") if journal else ()), *(("--rejects", "my rejects.csv") if given else ())]
    lines = served("import", path, *served.options, *options).out.splitlines()
    wanted = "'my rejects.csv' has them" if given else "--rejects rejects.csv writes them to a file"
    wanted = f"outreach-async report run.db {wanted}" if journal and not given else wanted
    assert lines[-2:] == ["To import more rows:", f"  1 row: {wanted}; correct the email, country there, and import that file"]
    if not given:
        options += ["--rejects", "rejects.csv"]
        served(*(("report", "run.db", *options[2:]) if journal else ("import", path, *served.options, *options)))
    (rejects,) = served.folder.glob("*rejects.csv")
    rejects.write_text(rejects.read_text(encoding="utf-8").replace("bad,Germny", "bo@x.example,DE"), encoding="utf-8")
    assert served("import", str(rejects), *served.options).code == 0
    assert len(served.service.contacts("space_1")) == 2


@pytest.mark.parametrize("level", ["error", "warn"])
@pytest.mark.parametrize("row", ["bad,", "NULL,", "x", ", Lyon", "bad, Lyon", ",#REF!", "#REF!, Lyon"])
def test_no_level_of_a_check_sends_a_row_without_a_valid_address(served: Served, row: str, level: str) -> None:
    path = served.save(f"email,city\n{row}\n")
    _, report = served.json("import", path, "--dry-run", "--check", f"email={level}", "--check", "cells=error")
    if (row, level) == ("bad,", "warn"):  # the service decides
        assert report["remedies"] == []
        return
    ((rows, remedy),) = (each.values() for each in report["remedies"])
    assert rows == 1
    assert remedy.startswith("--rejects rejects.csv writes them to a file; correct the ")


@pytest.mark.parametrize("row", ["bad,Rome", ",Rome", "a@x.example", "a@x.example,#REF!", "no@x.example,Rome"])
def test_a_short_row_is_not_padded_if_that_may_send_who_opted_out(served: Served, row: str) -> None:
    rows = f"{row}{',no' * (row != 'a@x.example')}\nno@x.example,,yes,\n"
    path = served.save(f"email,city,unsubscribed,title\n{rows}")
    _, report = served.json("import", path, "--dry-run", "--check", "cells=error")
    assert [each["remedy"] for each in report["remedies"]] == [
        "--rejects rejects.csv writes them to a file; correct the rows there, and import that file"
    ]


def test_a_run_that_stops_names_the_rejects_beside(served: Served) -> None:
    path = served.save("email\n" + "bad\n" * 5)
    options = ("--stop-after-rejects", "2", "--concurrency", "1", "--rejects", str(served.folder / "r.csv"))
    out = served("import", path, *served.options, *options).out
    assert f"rows: {served.folder}/r.partial.csv has them; correct the email there, and import that file\n" in out


# A screen.

WORDS = [
    "",
    "x",
    "bad",
    "ä" * 40,
    "漢字" * 30,
    "Germny",
    "NULL",
    "#REF!",
    "12",
    "no site",
    "yes",
    "a b" * 60,
    "'",
    "\x07",
    "key_1",
]
FIELDS = ("country", "work_phone", "zip", "website", "timezone", "job_start_date", "unsubscribed", "title", "city", "state")


def draw_file(chance: Random) -> str:
    """Return a file that has many columns, or columns with many kinds of problems."""
    count = chance.choice([0, 3, 30, 988])
    extra = [f"{chance.choice(WORDS[1:])} {at}" for at in range(count)]
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(["email", *FIELDS, *extra])
    for at in range(60 if count < 900 else 5):
        email = chance.choice([f"u{at}@x.example", "bad", "", "@", "info@gamil.com", "same@x.example"])
        row = [email, *(chance.choice(WORDS) for _ in FIELDS), *extra]
        writer.writerow(row[: chance.choice([len(row), len(row), len(row), 3])])
    return text.getvalue()


@pytest.mark.parametrize("ending", ["none", "limit", "key", "unique", "dry", "ledger", "journal"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 6))])
def test_an_import_of_any_file_fits_on_a_screen(served: Served, ending: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(served.folder)  # short paths
    chance = Random(f"{ending} {seed}")  # noqa: S311 - no secret
    options = [*served.options, "--ignore-unknown", "--check", chance.choice(["warn", "error", "drop"])]
    options += ["--dry-run"] if ending == "dry" else []
    options += [] if ending == "limit" else ["--stop-after-rejects", "never"]
    options += [] if ending == "dry" else ["--results", "ids.csv", "--rejects", "rejects.csv"]
    if ending in {"ledger", "journal"}:
        served.service.faults.script("create_contact", faults.commit_then(faults.reset()))
        options += ["--ledger", "c.ledger", "--duplicates", "overwrite"] if ending == "ledger" else ["--journal", "run.db"]
    if ending == "key":
        served.service.faults.script("create_contact", faults.status(401))
    if ending == "unique":
        bodies = ["".join(chance.choices("abcdefg", k=90)) for _ in range(80)]
        served.service.faults.script("create_contact", *(status(422, body=f'{{"message": "no {body}"}}') for body in bodies))
    lines = served.shown("import", served.save(draw_file(chance)), *options)
    assert 3 < len(lines) <= MAX_LINES, "\n".join(lines)


def test_many_notes_and_targets_are_cut_on_a_terminal_and_listed_with_verbose(served: Served) -> None:
    campaigns = [f"camp_{at}" for at in range(2, 26)]
    for campaign in campaigns:
        served.service.add_campaign("space_1", id=campaign, name=campaign, status="live", steps=["A"])
    rows = "".join(f"u{campaign}@x.example,{campaign}{',x' * 8}\n" for campaign in campaigns)
    path = served.save(f"email,campaign,{','.join(['Old'] * 8)}\n{rows}")
    options = ("--ignore-unknown", *served.options)
    lines = served.shown("import", path, *options)
    assert "... and 4 more notes; --verbose lists all" in lines
    assert "... and 22 more targets; --json lists all" in lines
    assert len(lines) <= MAX_LINES
    lines = served.shown("import", path, *options, "--verbose")
    assert sum(line.startswith("note: ") for line in lines) == 7
    assert "... and 4 more targets; --json lists all" in lines


def test_rows_are_judged_in_blocks(served: Served) -> None:
    rows = "".join(f"u{at}@x.example,{'Germny' if at % 2 else 'Frnace'}\n" for at in range(501))
    _, report = served.json("import", served.save(f"email,country\n{rows}"), "--dry-run", "--check", "country=error")
    assert report["remedies"] == [{"rows": 501, "remedy": "--check country=drop sends them without the country"}]
