"""Five nights with people who stay wrong in the input: by command, in Python, by the nightly example and in parts."""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import duckdb
import pytest
from support.cli import KEY, Served

from outreach_async import BulkStopped, InvalidRequest
from outreach_async.fake import FakeService
from outreach_async.parts import Connection, import_part, merge_reports, plan

Person = tuple[str, str]
"""An e-mail and a first name."""
Kind = Literal["unsent", "answered"]
Position = Literal["start", "middle", "end"]
Night = Callable[[list[Person], int], None]
"""Imports the people of a night, whose number is from 1. It raises `BulkStopped` if the run stops."""

WRONG = 60  # more than the number of rejected rows after which a run stops
CORRECTED = 10  # people who are corrected on the third night
GOOD = [(f"good{number}@x.example", "Ann") for number in range(6)]
EXAMPLES = Path(__file__).parents[1] / "examples"


def people(kind: Kind, position: Position, night: int) -> list[Person]:
    """Return the people of a night: some who are wrong, and a new one for each night at the end."""
    wrong = [
        (f"fixed{number}@x.example" if number < CORRECTED and night >= 3 else _wrong_email(kind, number), "Bo")
        for number in range(WRONG)
    ]
    at = {"start": 0, "middle": len(GOOD) // 2, "end": len(GOOD)}[position]
    return [*GOOD[:at], *wrong, *GOOD[at:], *((f"new{number}@x.example", "Cy") for number in range(1, night + 1))]


def _wrong_email(kind: Kind, number: int) -> str:
    # A blank e-mail is never sent. The service refuses the other ones.
    return " " * (number + 1) if kind == "unsent" else f"@wrong{number}"


def write(path: Path, rows: list[Person]) -> str:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("email", "first_name"), *rows])
    return str(path)


def live(night: Night, service: FakeService, kind: Kind, position: Position, *, remembers: bool = True) -> None:
    """Live through five nights, and check after each that the service has everyone who is right."""
    for number in range(1, 6):
        rows, before = people(kind, position, number), len(service.requests)
        # Nobody knows yet who is wrong, so the first night may stop, but no later one.
        may_stop = kind == "answered" and (number == 1 if remembers else False)
        try:
            night(rows, number)
        except BulkStopped:
            assert may_stop, f"night {number} stopped"
            continue
        stored = {contact["email"] for contact in service.contacts("space_1")}
        assert stored == {email for email, _ in rows if email.endswith("@x.example")}, f"night {number}"
        if number == 5 and remembers:
            created = sum(request.operation == "create_contact" for request in service.requests[before:])
            assert created == 1 + (kind == "answered") * (WRONG - CORRECTED)


SCENARIOS = pytest.mark.parametrize(
    ("kind", "position"), [(k, p) for k in ("unsent", "answered") for p in ("start", "middle", "end")]
)


@pytest.mark.thorough
@SCENARIOS
def test_five_nights_by_command(served: Served, kind: Kind, position: Position) -> None:
    results = served.folder / "ids.csv"
    options = ("--ledger", str(served.folder / "people.ledger"), "--duplicates", "overwrite", "--results", str(results))

    def send(rows: list[Person], _number: int) -> None:
        done = served("import", write(served.folder / "people.csv", rows), *served.options, *options)
        assert done.code == 3
        if "run stopped" in done.err:
            assert "pass --stop-after-rejects never to go on despite it" in done.err
            assert not results.exists()
            raise BulkStopped(done.err)
        assert results.read_text(encoding="utf-8").count("\n") == len(rows) + 1

    live(send, served.service, kind, position)


@pytest.mark.thorough
@SCENARIOS
def test_five_nights_by_the_nightly_example(
    served: Served, monkeypatch: pytest.MonkeyPatch, kind: Kind, position: Position
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    job, database = importlib.import_module("nightly"), str(served.folder / "people.duckdb")
    monkeypatch.setenv("OUTREACH_BASE_URL", served.options[served.options.index("--base-url") + 1])
    monkeypatch.setenv("OUTREACH_WORKSPACE", "space_1")
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)

    def send(rows: list[Person], _number: int) -> None:
        with duckdb.connect(database) as db:
            db.execute("CREATE OR REPLACE TABLE people (email VARCHAR, first_name VARCHAR, city VARCHAR, campaign VARCHAR)")
            db.executemany("INSERT INTO people VALUES (?, ?, NULL, NULL)", rows)
        job.send_changes(database)

    live(send, served.service, kind, position)


@pytest.mark.thorough
@SCENARIOS
def test_five_nights_in_parts(served: Served, monkeypatch: pytest.MonkeyPatch, kind: Kind, position: Position) -> None:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    # An import in parts has no ledger, so it does not remember who was wrong. Its remedy is to turn the limit off.
    limit = None if (kind, position) == ("answered", "start") else 50
    url = served.options[served.options.index("--base-url") + 1]
    connection = Connection(base_url=url, workspace="space_1", concurrency=1, stop_after_rejects=limit)

    def send(rows: list[Person], number: int) -> None:
        made = plan([write(served.folder / f"people{number}.csv", rows)], duplicates="overwrite")
        folder = served.folder / f"journals{number}"
        assert merge_reports([import_part(part, folder, connection) for part in made.parts]).rows == len(rows)

    live(send, served.service, kind, position, remembers=False)


@pytest.mark.parametrize("value", [0, -1, "never"])
def test_an_invalid_number_of_rejects_is_refused_for_parts(value: object) -> None:
    with pytest.raises(InvalidRequest, match="stop_after_rejects: expected"):
        Connection(base_url="https://api.example", workspace="space_1", stop_after_rejects=value)  # type: ignore[arg-type]


@pytest.mark.parametrize("place", ["nothing", "journal", "ledger"])
def test_the_printed_remedy_for_rejected_rows_sends_all_of_them(served: Served, place: str) -> None:
    wrong = served.save("email\n" + "".join(f"@wrong{number}\n" for number in range(9)) + "ann@x.example\n")
    options = () if place == "nothing" else (f"--{place}", str(served.folder / "record"), "--duplicates", "overwrite")
    command = ("import", wrong, *served.options, *options, "--concurrency", "1")
    stopped = served(*command, "--stop-after-rejects", "4")
    again = "run the import with --resume" if place == "journal" else "run again"
    remedy = f"; fix the cause, or pass --stop-after-rejects never to go on despite it; then {again}\n"
    assert (stopped.code, stopped.err.endswith(remedy)) == (3, True)
    if place != "nothing":
        assert "Some rows remain. Fix the cause of the error. Then " in stopped.out
    code, report = served.json(*command, "--stop-after-rejects", "never", *(("--resume",) if place == "journal" else ()))
    assert (code, report["rows"], report["outcomes"]["added"], report["outcomes"]["rejected"]) == (3, 10, 1, 9)
    assert sorted(contact["email"] for contact in served.service.contacts("space_1")) == ["ann@x.example"]
