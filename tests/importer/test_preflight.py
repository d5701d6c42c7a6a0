"""The preflight of a whole file: its counts, its findings, and that they add up."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.bulk import Repeats
from outreach_async.errors import Excluded, OutreachError
from outreach_async.importer import CheckPolicy, ImportJob, MappedFile, Preflight, Row, open_file

ADDRESSES = st.sampled_from(
    ["a@a.example", "A@a.example", "b@b.example", "", "a@@a.example", " ", "info@gamil.com", "ü@b.example"]
)
OTHERS = st.sampled_from(["", "US", "Germny", "x\ny"])
REPEATS: tuple[Repeats, ...] = ("serial", "error", "first", "last", "coalesce")


def table(rows: Iterable[Sequence[str]]) -> io.BytesIO:
    text = io.StringIO()
    csv.writer(text).writerows([("email", "country"), *rows])
    return io.BytesIO(text.getvalue().encode())


async def mapped(rows: Iterable[Sequence[str]], *checks: str, **overrides: str) -> MappedFile:
    return await ImportJob(file=open_file(table(rows), format="csv"), overrides=overrides, checks=CheckPolicy.of(checks)).map()


async def preflight_of(
    rows: Iterable[Sequence[str]], *checks: str, repeats: Repeats = "serial"
) -> tuple[Preflight, list[tuple[Row, OutreachError]]]:
    refused: list[tuple[Row, OutreachError]] = []
    file = await mapped(rows, *checks)
    return await file.check(Preflight(repeats=repeats, on_unsent=lambda row, error: refused.append((row, error)))), refused


def counts(found: Preflight) -> dict[str, int]:
    """Return the number of findings of each check."""
    groups = [*found.findings]
    return {
        check: sum(group.count for group in groups if group.key.check == check) for check in {each.key.check for each in groups}
    }


def examples_of(found: Preflight) -> list[tuple[int, str]]:
    """Return the line and the message of each example of the only group."""
    (group,) = found.findings
    return [(example["line"], example["message"]) for example in group.examples]


@given(
    repeats=st.sampled_from(REPEATS),
    rows=st.lists(st.tuples(ADDRESSES, OTHERS), max_size=12),
    level=st.sampled_from(["off", "warn", "error"]),
)
async def test_sent_refused_and_superseded_rows_add_up_to_all_rows(
    repeats: Repeats, rows: list[tuple[str, str]], level: str
) -> None:
    rows = [row for row in rows if any(map(str.strip, row))]
    found, refused = await preflight_of(rows, level, repeats=repeats)
    assert found.rows == found.sent + found.refused + found.superseded == len(rows)
    assert found.refused == len(refused)
    assert min(found.sent, found.refused, found.superseded) >= 0
    if repeats in {"first", "last", "coalesce"}:
        good = [row[0] for row in rows if row not in [refused_row.cells for refused_row, _ in refused]]
        assert found.sent == len(set(good))


@given(
    rows=st.lists(st.tuples(st.sampled_from(["a@a.example", "b@b.example", "A@a.example", "Ann <a@a.example>"]), st.booleans())),
    repeats=st.sampled_from(REPEATS),
)
async def test_an_excluded_row_excludes_all_rows_of_its_person(rows: list[tuple[str, bool]], repeats: Repeats) -> None:
    checked, told = await mapped([(email, "yes" if out else "") for email, out in rows], country="opt_out"), dict[int, str]()

    def tell(row: Row, error: OutreachError) -> None:
        if isinstance(error, Excluded):
            told[row.line] = str(error)

    found = await checked.check(Preflight(repeats=repeats, on_unsent=tell))
    file, columns = checked.file, checked.columns
    addresses = [email.removeprefix("Ann <").rstrip(">") for email, _ in rows]
    people = dict[str, int]()
    for line, (address, (_, is_out)) in enumerate(zip(addresses, rows, strict=True), 2):
        if is_out:
            people.setdefault(address.lower(), line)
    reasons = {
        line: "column 'country' says 'yes'"
        if is_out
        else f"same address as line {people[address.lower()]}, whose person must not be written to"
        for line, (address, (_, is_out)) in enumerate(zip(addresses, rows, strict=True), 2)
        if address.lower() in people
    }
    others = [address for address in addresses if address.lower() not in people]
    kept = {"serial": others, "error": {*map(str.lower, others)}}.get(repeats, {*others})
    assert (told, found.excluded, found.sent) == (reasons, len(reasons), len(kept))
    assert {row.line: row.excluded for row in file.rows(columns) if row.excluded} == reasons
    assert {row.line: row.excluded for row in file.rows(columns, checks=["off"]) if row.excluded} == reasons
    assert [row.excluded for row in file.rows(columns, checks=["consent=warn"])] == [None] * len(rows)


REFUSED: dict[str, tuple[list[tuple[str, ...]], str, dict[str, int], list[tuple[int, str]]]] = {
    "warnings": ([("a@@a.example", "US"), ("b@b.example", "Germny")], "warn", {"email": 1, "country": 1}, []),
    "errors": (
        [("a@@a.example", "US"), ("b@b.example", "Germny"), ("c@c.example", "US")],
        "error",
        {"email": 1, "country": 1},
        [(2, "email: "), (3, "country: ")],
    ),
    "damaged": ([("a@a.example", ""), ("NULL", ""), (" ", "US")], "warn", {"cells": 1}, [(3, "email: "), (4, "email: ")]),
    "misfit": ([("a@a.example", "US", "more"), ("b@b.example", "US")], "error", {}, [(2, "expected 2 cells, as in the header")]),
}
"""Rows, the level of all checks, the findings by check, and the lines that are refused, each with the reason."""


@pytest.mark.parametrize(("rows", "level", "findings", "refusals"), REFUSED.values(), ids=REFUSED)
async def test_rows_are_refused_for_errors_and_what_can_never_be_sent(
    rows: list[tuple[str, ...]], level: str, findings: dict[str, int], refusals: list[tuple[int, str]]
) -> None:
    found, refused = await preflight_of(rows, level)
    assert (found.rows, found.refused, counts(found)) == (len(rows), len(refusals), findings)
    assert [row.line for row, _ in refused] == [line for line, _ in refusals]
    assert all(str(error).startswith(reason) for (_, error), (_, reason) in zip(refused, refusals, strict=True))


async def test_findings_are_counted_per_kind_with_their_first_lines() -> None:
    found, _ = await preflight_of([(f"p{at}@a.example", "Germny" if at % 2 else "US") for at in range(2500)])
    (group,) = found.findings
    assert (group.key.check, group.count, [example["line"] for example in group.examples]) == ("country", 1250, [3, 5, 7])
    assert "did you mean 'DE'?" in group.examples[0]["message"]


async def test_rows_that_repeat_an_email_name_the_row_they_repeat() -> None:
    rows = [("a@a.example", ""), ("b@b.example", ""), ("A@a.example", ""), ("a@a.example", ""), ("", "US"), ("", "US")]
    found, _ = await preflight_of(rows)
    assert examples_of(found) == [(4, "email: same address as line 2"), (5, "email: same address as line 2")]
    assert (found.sent, found.superseded, found.refused) == (4, 0, 2)
    found, _ = await preflight_of(rows, repeats="last")
    assert examples_of(found) == [(5, "email: same address as line 2")]
    assert (found.sent, found.superseded, found.refused) == (3, 1, 2)
    found, refused = await preflight_of(rows, repeats="error")
    assert [(row.line, str(error).partition(";")[0]) for row, error in refused][:2] == [
        (4, "email: same address as line 2"),
        (5, "email: same address as line 2"),
    ]
    assert (found.sent, found.refused, counts(found)) == (2, 4, {})
    assert [(found.find_number(at), found.find_place(at)) for at in (3, 99)] == [(5, "line 5"), (None, None)]
    assert counts((await preflight_of(rows, "repeat=off"))[0]) == {}
    rows = [("a@a.example", ""), ("a@a.example ::: b@b.example", "")]
    for level, repeats in ("warn", 1), ("off", None):  # without the check of cells, the whole cell is sent
        assert counts((await preflight_of(rows, f"cells={level}"))[0]).get("repeat") == repeats


@pytest.mark.parametrize(("count", "length", "chunks"), [(1250, 0, [0, 500, 1000]), (100, 100_000, [0, 42, 84])])
async def test_progress_is_shown_and_few_long_rows_are_held_at_a_time(count: int, length: int, chunks: list[int]) -> None:
    rows = [(f"p{at}@a.example", "x" * length) for at in range(count)]
    shown = list[int]()
    await (await mapped(rows, "off")).check(Preflight(on_progress=shown.append))
    assert shown == chunks


async def test_a_row_is_refused_with_the_reason_of_a_run() -> None:
    file = open_file(io.BytesIO(b"email,Campaign,country\na@a.example,Sprnig,Germny\n"), format="csv")
    checked = await ImportJob(file=file, overrides={"Campaign": "campaign"}, checks=CheckPolicy.of(["error"])).map()
    refused: list[str] = []
    await checked.check(Preflight(on_unsent=lambda _row, error: refused.append(str(error))))
    assert refused == [row.fault for row in checked.rows()] != []


@given(st.lists(st.sampled_from("abcdef"), max_size=30))
async def test_every_duplicate_is_found_with_the_first_row_of_its_email(letters: list[str]) -> None:
    emails, told = [f"{letter}@a.example" for letter in letters], list[tuple[int, str]]()
    checked = await mapped([(email, "") for email in emails])
    found = await checked.check(Preflight(on_finding=lambda _file, line, finding, _cells: told.append((line, finding.message))))
    first = [(line, emails.index(email)) for line, email in enumerate(emails) if emails.index(email) != line]
    assert told == [(line + 2, f"email: same address as line {at + 2}") for line, at in first]
    assert found.repeated == len(told)


async def test_the_rows_of_a_stream_with_a_journal_are_numbered_by_their_position() -> None:
    file = attrs.evolve(
        open_file(table([("a@a.example", "x\ny"), ("bad", ""), ("a@a.example", "")]), format="csv"), unit="record"
    )
    checked = await ImportJob(file=file).map()
    found = await checked.check(Preflight(repeats="error"))
    assert {example["record"] for group in found.findings for example in group.examples} == {1, 2}
    assert (found.find_place(1), [row.line for row in checked.rows()]) == ("record 2", [1, 2, 3])
