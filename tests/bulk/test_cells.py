"""Rows of tables and other rows: which values are read as the cells of a file, and what a blank one means on every route."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from decimal import Decimal
from itertools import count, product
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.runs import outcomes_of
from support.scenarios import KEY, SPACE, new_fake
from support.tables import check_rows, check_rows_async
from support.time import virtual_time

from outreach_async import InvalidRequest, NewContact, Outcome, OutreachClient, Store, Target
from outreach_async.bulk._cells import read_csv
from outreach_async.bulk._frames import UnsendableRow
from outreach_async.bulk._source import Source, freeze
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.importer import Columns, map_columns, open_file
from outreach_async.sync import SyncClient

HEADER = ["email", "city", "zip", "custom_1"]
Table = list[list[str]]
NIGHTS: list[Table] = [
    [["ann@a.example", "Lyon", "01234", "gold"], ["bo@a.example", "Bern", "", "tin"], ["cy@a.example", "", "", ""]],
    [["ann@a.example", "", "09999", "gold"], ["bo@a.example", "Bern", "", " "], ["cy@a.example", "Rome", "", ""]],
    [["ann@a.example", "", "09999", "gold"], ["bo@a.example", "Bern", "3000", "tin"], ["cy@a.example", "", "", ""]],
]


def csv_of(table: Table) -> str:
    written = io.StringIO()
    csv.writer(written).writerows([HEADER, *table])
    return written.getvalue()


def reader_of(table: Table) -> csv.DictReader[str]:
    return csv.DictReader(io.StringIO(csv_of(table)))


def dicts_of(table: Table) -> list[dict[str, str | None]]:
    return [{name: cell or None for name, cell in zip(HEADER, row, strict=True)} for row in table]


def file_of(table: Table) -> Any:
    file = open_file(io.BytesIO(csv_of(table).encode()), format="csv")
    return file.rows(map_columns(file.headers))


def contacts_of(table: Table) -> list[tuple[NewContact, Target]]:
    return [(NewContact(email, city=city, zip=zip_, custom={"custom_1": plan}), Target()) for email, city, zip_, plan in table]


async def stream_of(table: Table) -> AsyncIterator[Mapping[str, str]]:
    for row in reader_of(table):
        yield MappingProxyType(row)


TABLES: dict[str, Callable[[Table], Any]] = {
    "a csv.DictReader": reader_of,
    "pandas": lambda table: pd.DataFrame(dicts_of(table)),
    "pandas with NaN": lambda table: pd.DataFrame(dicts_of(table), dtype=object).fillna(float("nan")),
    "polars": lambda table: pl.DataFrame(dicts_of(table)),
    "pyarrow": lambda table: pa.table({name: [*cells] for name, cells in zip(HEADER, zip(*table, strict=True), strict=True)}),
}
OTHERS: dict[str, Callable[[Table], Any]] = {
    "a generator over a csv.DictReader": lambda table: (row for row in reader_of(table)),
    "dicts": dicts_of,
    "records of pandas": lambda table: pd.DataFrame(dicts_of(table)).fillna(float("nan")).to_dict("records"),
    "contacts with targets": contacts_of,
    "an async generator": stream_of,
}


def client_of(fake: FakeService) -> OutreachClient:
    return OutreachClient(transport=FakeTransport(fake), workspace=SPACE, owner_key=KEY)


def stored(fake: FakeService) -> dict[str, dict[str, str]]:
    return {contact["email"]: contact["fields"] for contact in fake.contacts(SPACE)}


def expected(nights: list[Table], blank: str) -> dict[str, dict[str, str]]:
    """Return what contacts have after some nights that overwrite."""
    contacts: dict[str, dict[str, str]] = {}
    for table in nights:
        for email, *cells in table:
            fields = contacts.setdefault(email, {})
            for name, cell in zip(HEADER[1:], cells, strict=True):
                if cell.strip():
                    fields[name] = cell
                elif blank == "clear":
                    fields.pop(name, None)
    return contacts


MEANINGS: list[tuple[dict[str, Any], str, list[Callable[[Table], Any]]]] = [
    ({}, "keep", [*TABLES.values(), file_of]),
    ({"blank": "keep"}, "keep", [*TABLES.values(), file_of, *OTHERS.values()]),
    ({"blank": "clear"}, "clear", [*TABLES.values(), file_of, *OTHERS.values()]),
    ({"normalise": True}, "keep", [*OTHERS.values()]),
    ({"normalise": False}, "keep", [*TABLES.values()]),
    ({"normalise": False, "blank": "clear"}, "clear", [reader_of, stream_of]),
    ({}, "clear", [dicts_of]),  # `None` is sent as null
]


@virtual_time
@pytest.mark.parametrize(("options", "meaning", "routes"), MEANINGS)
async def test_a_blank_value_has_one_meaning_over_three_nights_on_every_route(
    options: dict[str, Any], meaning: str, routes: list[Callable[[Table], Any]]
) -> None:
    async def check(make: Callable[[Table], Any]) -> None:
        fake = new_fake("Plan")
        async with client_of(fake) as client:
            for number, table in enumerate(NIGHTS, 1):
                await client.contacts.create_many(make(table), duplicates="overwrite", **options)
                assert stored(fake) == expected(NIGHTS[:number], meaning)

    await check_rows_async(((make,) for make in routes), check)


@pytest.mark.thorough
@virtual_time
@pytest.mark.parametrize(("options", "meaning", "routes"), MEANINGS)
@pytest.mark.parametrize("record", ["journal", "spool", "ledger"])
async def test_a_blank_value_has_the_same_meaning_with_a_journal_and_a_ledger(
    folder: Path, record: str, options: dict[str, Any], meaning: str, routes: list[Callable[[Table], Any]]
) -> None:
    async def check(make: Callable[[Table], Any], number: int) -> None:
        fake = new_fake("Plan")
        async with client_of(fake) as client:
            for night, table in enumerate(NIGHTS, 1):
                place = folder / f"{number}.{night}"
                recorded: dict[str, Any] = {"journal": Store(place, inline=True), "spool": record == "spool"}
                if record == "ledger":
                    recorded = {"ledger": Store(folder / str(number), inline=True)}
                for again in range(2):
                    recorded |= {} if record == "ledger" else {"resume": bool(again)}
                    report = await client.contacts.create_many(make(table), duplicates="overwrite", **options, **recorded)
                    assert stored(fake) == expected(NIGHTS[:night], meaning)
                assert report.outcomes[Outcome.UNCHANGED] == (3 if record == "ledger" else 0)
        assert len(fake.requests.of("create_contact")) == (8 if record == "ledger" else 9)

    await check_rows_async(((make, number) for number, make in enumerate(routes)), check)


def test_the_synchronous_client_gives_a_blank_value_the_same_meaning() -> None:
    for make in reader_of, TABLES["polars"], dicts_of, file_of:
        for blank in "keep", "clear":
            fake = new_fake("Plan")
            with SyncClient(transport=FakeTransport(fake), workspace=SPACE, owner_key=KEY) as client:
                for table in NIGHTS:
                    client.contacts.create_many(make(table), duplicates="overwrite", blank=blank).wait()
            assert stored(fake) == expected(NIGHTS, blank)


@virtual_time
async def test_a_file_and_a_reader_of_the_same_file_are_the_same_rows_for_a_ledger(folder: Path) -> None:
    ledger, fake = Store(folder / "ledger", inline=True), new_fake("Plan")
    table = [["ann@a.example", "NULL", "01234", " "], ["bo@a.example", "Bern", "#N/A", ""]]
    async with client_of(fake) as client:
        for make in file_of, reader_of, TABLES["pandas"], TABLES["polars"]:
            await client.contacts.create_many(make(table), ledger=ledger, duplicates="overwrite")
    assert len(fake.requests.of("create_contact")) == 2


TEXTS = [
    *(
        "",
        " ",
        "Ann",
        "NULL",
        "null",
        "N/A",
        "#REF!",
        "nan",
        "\\N",
        "\xa0x ",
        "'+44 20 7946 0018",
        '="01234"',
        "&amp;",
        "-",
        "Zoë",
    ),
    *(
        "{{city}}",
        "75001.0",
        "4.1E+11",
        "x:::y",
        "OrlÃ©ans",
        "[object Object]",
        "_x000D_",
        "a, b",
        '"q"',
        "\u200bx",
        "2026-05-04",
    ),
]
FIELDS = ["email", "city", "zip", "first_name", "custom_1", "website", "job_start_date", "personal_note", "country"]
EMAILS = [
    "a@a.example",
    " B@a.example",
    "NULL",
    "",
    "Ann <a@a.example>",
    "mailto:a@a.example",
    "#N/A",
    "a@a.example, b@a.example",
]
CELLS = st.sampled_from(TEXTS) | st.text("ab '=\xa0#", max_size=4)


@given(st.lists(st.tuples(st.sampled_from(EMAILS), *[CELLS] * 8), max_size=8))
def test_a_file_and_a_reader_of_the_same_file_send_the_same_values(table: list[tuple[str, ...]]) -> None:
    written = io.StringIO()
    csv.writer(written).writerows([FIELDS, *(row for row in table if any(map(str.strip, row)))])
    file = open_file(io.BytesIO(written.getvalue().encode()), format="csv", delimiter=",")
    for blank in "keep", "clear":
        reader = csv.DictReader(io.StringIO(written.getvalue(), newline=""))
        sent = [*Source(reader, blank=cast("Any", blank)).iterator]
        for row, found in zip(file.rows(map_columns(file.headers)), sent, strict=True):
            expected = row.clear_blanks() if blank == "clear" else row
            is_refused = row.fault is not None
            assert is_refused is (isinstance(found, UnsendableRow) or not found["email"])
            assert is_refused or dict(expected) == found


# What is read, and what was found


@virtual_time
async def test_values_are_read_as_cells_only_in_tables_and_on_request(caplog: pytest.LogCaptureFixture) -> None:
    row = ["ann@a.example", "NULL", "75001", "#REF!"]
    missing = "city: row 0: 'NULL' stands for a missing value and is not sent; clear the cell"
    error = "custom_1: row 0: '#REF!' is an error of a program, so it is not sent; fix the formula, or clear the cell"
    logged = [
        "create_many: city: the value of row 0 stands for a missing value; clear the cell",
        "create_many: custom_1: the value of row 0 is an error of a program; fix the formula, or clear the cell",
    ]
    as_it_is = {"city": "NULL", "zip": "75001", "custom_1": "#REF!"}

    async def check(make: Callable[[Table], Any], normalise: bool | None, is_read: bool) -> None:
        fake = new_fake("Plan")
        caplog.clear()
        run = client_of(fake).contacts.create_many(make([row]), strict_validation=False, normalise=normalise)
        await run
        assert stored(fake) == {"ann@a.example": {"zip": "75001"} if is_read else as_it_is}
        assert run.findings == ((missing, error) if is_read else ())
        assert [message for message in caplog.messages if message.startswith("create_many")] == (logged if is_read else [])

    rows = [
        *((make, None, True) for make in TABLES.values()),
        *((make, None, False) for make in OTHERS.values()),
        *((make, False, False) for make in TABLES.values()),
        *((make, True, True) for make in OTHERS.values()),
    ]
    await check_rows_async(rows, check)


@virtual_time
async def test_findings_are_counted_by_field_and_kind_and_bounded() -> None:
    rows = ({"email": f"u{number}@a.example", "custom": {f"custom_{number % 150}": "#REF!"}} for number in range(300))
    run = client_of(new_fake("Plan")).contacts.create_many(rows, normalise=True)
    await run
    assert len(run.findings) == 101
    assert run.findings[0].startswith("custom_0: row 0: '#REF!' is an error")
    assert run.findings[0].endswith(" (2 rows)")
    assert run.findings[-1] == "100 more findings of other kinds"


@virtual_time
async def test_a_row_whose_email_is_lost_is_rejected_as_it_was() -> None:
    for make in TABLES["polars"], reader_of, OTHERS["an async generator"], contacts_of:
        run = client_of(new_fake("Plan")).contacts.create_many(make([["#N/A", "", "1", "NULL"]]), normalise=True)
        (outcome,) = await outcomes_of(run)
        assert outcome.status == Outcome.REJECTED
        assert str(outcome.error).startswith("email: '#N/A' is an error of a program")
        assert run.findings == ()
        assert "NULL" in repr(outcome.contact)


@virtual_time
async def test_a_blank_email_is_rejected_as_it_was() -> None:
    for make in TABLES["polars"], reader_of, OTHERS["an async generator"]:
        (outcome,) = await outcomes_of(
            client_of(new_fake("Plan")).contacts.create_many(make([["  ", "", "1", ""]]), normalise=True)
        )
        assert cast("Any", outcome.contact)["email"] == "  "
        assert str(outcome.error).startswith("email: expected an address, got a blank string")


@virtual_time
async def test_a_row_that_a_run_reads_twice_is_logged_and_counted_once(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"email": "a@a.example", "city": city} for city in ("NULL", "Lyon")]
    for name, make in ("dicts", lambda: rows), ("frame", lambda: pl.DataFrame(rows)):
        caplog.clear()
        ledger = Store(folder / name, inline=True)
        run = client_of(new_fake("Plan")).contacts.create_many(make(), normalise=True, ledger=ledger, duplicates="overwrite")
        await run
        assert (len(caplog.messages), len(run.findings)) == (1, 1)
        assert "rows)" not in run.findings[0]


@virtual_time
async def test_a_value_that_is_lost_never_clears_a_field() -> None:
    async def check(make: Callable[[Table], Any], lost: str) -> None:
        fake = new_fake("Plan")
        before = ["ann@a.example", "Lyon", "01234", "gold"]
        async with client_of(fake) as client:
            for row in before, [*before[:3], lost]:
                await client.contacts.create_many(make([row]), duplicates="overwrite", blank="clear")
            assert stored(fake)["ann@a.example"]["custom_1"] == "gold"
            await client.contacts.create_many(make([[*before[:3], "NULL"]]), duplicates="overwrite", blank="clear")
        assert "custom_1" not in stored(fake)["ann@a.example"]

    await check_rows_async(product((reader_of, TABLES["polars"], file_of), ("#REF!", "\0")), check)


@virtual_time
async def test_a_key_that_an_object_of_a_file_does_not_have_keeps_its_field() -> None:
    fake = new_fake("Plan")
    nights = [
        ('{"email": "ann@a.example", "city": "Lyon"}', "keep", "Lyon"),
        ('{"email": "ann@a.example"}', "keep", "Lyon"),
        ('{"email": "ann@a.example"}', "clear", "Lyon"),
        ('{"email": "ann@a.example", "city": null}', "keep", "Lyon"),
        ('{"email": "ann@a.example", "city": null}', "clear", None),
    ]
    async with client_of(fake) as client:
        for line, blank, city in nights:
            file = open_file(io.BytesIO(f'{line}\n{{"email": "bo@a.example", "city": "Rome"}}'.encode()), format="jsonl")
            rows = file.rows(map_columns(file.headers))
            await client.contacts.create_many(rows, duplicates="overwrite", blank=cast("Any", blank))
            assert stored(fake)["ann@a.example"].get("city") == city


class Text(str):
    """A text of another class, as some data frames contain them."""

    __slots__ = ()


@virtual_time
async def test_what_is_changed_is_sent_and_what_is_no_text_stays() -> None:
    fake = new_fake("Plan")
    rows: list[Any] = [
        {"email": " a@a.example ", "work_phone": Text("'+44 20 7946 0018"), "custom": {"custom_1": "\xa0x", "custom_2": ""}},
        {"email": Text("b@a.example"), "zip": 75001},
        {"email": None, "extra": {"code": " "}},
        (NewContact("d@a.example", city="N/A", custom={"custom_1": "x"}), Target()),
        7,
    ]
    outcomes = await outcomes_of(client_of(fake).contacts.create_many(rows, normalise=True, order="input"))
    assert [str(outcome.error or "") for outcome in outcomes] == [
        "",
        "zip: expected a string or None, got int; convert it with str()",
        "email: missing; give the contact an e-mail address",
        "",
        "contact: expected NewContact or a mapping, got int; pass email= or build NewContact(email, ...)",
    ]
    assert stored(fake) == {"a@a.example": {"work_phone": "+44 20 7946 0018", "custom_1": "x"}, "d@a.example": {"custom_1": "x"}}


def test_blank_cells_of_a_row_of_a_file_are_cleared_unless_it_cannot_be_sent() -> None:
    file = open_file(
        io.BytesIO(b"email,LinkedIn,X,city,campaign\na@a.example, ,@ann,NULL,\n,,,,x\na@a.example,,\n"), format="csv"
    )
    columns = Columns(file.headers, ("email", "linkedin_url", "x_name", "city", "campaign"))
    first, *faulty = file.rows(columns)
    cleared = first.clear_blanks()
    assert dict(cleared) == {"email": "a@a.example", "city": None, "extra": {"linkedin_url": None, "x_name": "@ann"}}
    assert (first.blanks, cleared.blanks, cleared.clear_blanks()) == (("linkedin_url", "city"), (), cleared)
    assert [(row.blanks, row.clear_blanks() is row) for row in faulty] == [((), True)] * 2


# csv.DictReader


@virtual_time
async def test_a_row_of_a_reader_with_other_cells_than_the_header_is_rejected() -> None:
    text = "email,city,zip\nann@a.example,Lyon\nbo@a.example,Bern,3000,x,y\ncy@a.example,Rome,00100\n"
    short, long, whole = await outcomes_of(
        client_of(new_fake("Plan")).contacts.create_many(csv.DictReader(io.StringIO(text)), order="input")
    )
    assert str(short.error) == (
        "row: expected 3 cells, as in the header, got 2; add the missing cells, or pass restval='' to DictReader, which leaves"
        " their fields blank"
    )
    assert str(long.error) == "row: expected 3 cells, as in the header, got 5; quote cells that contain the delimiter"
    assert whole.status == Outcome.ADDED
    remedied = csv.DictReader(io.StringIO(text.replace(",x,y", "")), restval="")
    report = await client_of(new_fake("Plan")).contacts.create_many(remedied)
    assert report.outcomes[Outcome.ADDED] == 3


@virtual_time
async def test_columns_that_no_field_is_named_after_are_refused_before_all_else() -> None:
    def refused(*lines: str) -> str:
        with pytest.raises(InvalidRequest) as caught:
            client_of(new_fake("Plan")).contacts.create_many(csv.DictReader(lines))
        return str(caught.value)

    assert refused("E-mail,city", "a@a.example,Lyon").startswith(
        "rows: expected columns named after the fields of NewContact, or custom_<n>, got 'E-mail' (did you mean 'email'?)"
    )
    assert "got 'email' more than once" in refused("email,email", "a@a.example,b@a.example")
    assert "expected a column 'email', got none" in refused("city", "Lyon")
    assert (await client_of(new_fake("Plan")).contacts.create_many(csv.DictReader([]))).rows == 0


class Renamed(csv.DictReader):  # type: ignore[type-arg]  # a generic class from Python 3.12 on
    """A reader that gives rows other keys than the names of the columns."""

    def __next__(self) -> dict[str | Any, str | Any]:
        return {name.lower(): value for name, value in super().__next__().items()}


@virtual_time
async def test_a_reader_that_renames_its_columns_is_read_as_cells_too() -> None:
    fake = new_fake("Plan")
    await client_of(fake).contacts.create_many(Renamed(["EMAIL,CITY,ZIP", "a@a.example,NULL,1", "b@a.example,,2"]))
    assert stored(fake) == {"a@a.example": {"zip": "1"}, "b@a.example": {"zip": "2"}}


def test_none_is_a_blank_cell_if_a_reader_returns_it_for_a_cell_without_quotes() -> None:
    rows: list[dict[str, str | None]] = [{"email": "a@a.example", "city": None}]
    reader = csv.DictReader(["email,city"])
    for quoting, kind in (csv.QUOTE_MINIMAL, UnsendableRow), (5, dict):
        reader.reader = cast("Any", SimpleNamespace(line_num=1, dialect=SimpleNamespace(quoting=quoting)))
        reader.fieldnames = ["email", "city"]
        reader.__class__ = type("Fixed", (csv.DictReader,), {"__iter__": lambda _: iter(rows)})
        assert [type(row) for chunk in read_csv(reader, freeze) for row in chunk] == [kind]


def test_rows_are_read_ahead_only_while_the_lines_come_quickly() -> None:
    def sizes(seconds: float) -> list[int]:
        reader = csv.DictReader(["email", *(f"u{number}@a.example" for number in range(600))])
        return [len(chunk) for chunk in read_csv(reader, freeze, clock=count(0.0, seconds).__next__)]

    assert sizes(0.0) == [250, 250, 100]
    assert sizes(1.0) == [*[1] * 600, 0]


@virtual_time
async def test_the_rows_before_an_error_of_the_lines_are_sent() -> None:
    def lines() -> Iterator[str]:
        yield from ("email,city\n", "a@a.example,Lyon\n", "b@a.example,NULL\n")
        raise OSError("the disk is gone")

    fake = new_fake("Plan")
    with pytest.raises(OSError, match="the disk is gone"):
        await client_of(fake).contacts.create_many(csv.DictReader(lines()))
    assert stored(fake) == {"a@a.example": {"city": "Lyon"}, "b@a.example": {}}


# Options, and values for missing ones


@virtual_time
async def test_what_blank_and_normalise_cannot_mean_is_refused_before_all_else(folder: Path) -> None:
    def check(options: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            client_of(new_fake("Plan")).contacts.create_many([{"email": "a@a.example"}], **options)
        assert str(caught.value).startswith(message)

    clearing = 'blank: expected duplicates="overwrite" with "clear", got '
    rows: list[tuple[dict[str, Any], str]] = [
        ({"blank": "clear"}, f"{clearing}'skip', with which the service clears nothing; pass duplicates=\"overwrite\", or omit"),
        ({"blank": "clear", "duplicates": "update_missing_fields"}, f"{clearing}'update_missing_fields'"),
        ({"blank": "drop"}, "blank: expected one of 'keep', 'clear', got 'drop'"),
        ({"normalise": "yes"}, "normalise: expected a bool or None, got str; pass True, False, or None"),
    ]
    check_rows(rows, check)
    options: dict[str, Any] = {"journal": Store(folder / "run.db", inline=True), "duplicates": "overwrite"}
    await client_of(new_fake("Plan")).contacts.create_many([{"email": "a@a.example"}], blank="clear", **options)
    with pytest.raises(InvalidRequest, match="belongs to another run: blank was 'clear' and is now null"):
        await client_of(new_fake("Plan")).contacts.create_many([{"email": "a@a.example"}], resume=True, **options)


MISSING = [
    *(
        float("nan"),
        np.float64("nan"),
        np.float32("nan"),
        np.datetime64("NaT", "s"),
        pd.NaT,
        pd.NA,
        Decimal("NaN"),
        Decimal("sNaN"),
    ),
]


@virtual_time
async def test_a_missing_value_of_a_frame_is_no_value_of_a_record_either(folder: Path) -> None:
    async def check(missing: object) -> None:
        fake, ledger = new_fake("Plan"), Store(folder / str(id(missing)), inline=True)
        rows: list[Any] = [
            {"email": "a@a.example", "city": missing, "campaign": missing, "custom_1": missing, "zip": "1"},
            {"email": missing, "city": "Lyon"},
        ]
        async with client_of(fake) as client:
            for night, unchanged in (rows, 0), ([{"email": "a@a.example", "zip": "1"}], 1), (rows, 1):
                options: dict[str, Any] = {"ledger": ledger, "duplicates": "overwrite", "order": "input"}
                outcomes = await outcomes_of(client.contacts.create_many(night, **options))
                assert [outcome.status for outcome in outcomes].count(Outcome.UNCHANGED) == unchanged
            assert str(outcomes[-1].error) == "email: missing; give the contact an e-mail address"
            await client.contacts.create({"email": "b@a.example", "city": missing})
        assert stored(fake) == {"a@a.example": {"zip": "1"}, "b@a.example": {}}

    await check_rows_async(((missing,) for missing in MISSING), check)


@virtual_time
async def test_the_message_about_a_number_names_a_remedy_that_loses_nothing() -> None:
    rows: list[Any] = [
        NewContact("a@a.example", city=float("nan")),  # type: ignore[arg-type]
        {"email": "a@a.example", "zip": 75001.0},
        {"email": "a@a.example", "zip": 75001},
        {"email": "a@a.example", "zip": np.float32(1.5)},
    ]
    outcomes = await outcomes_of(client_of(new_fake("Plan")).contacts.create_many(rows, order="input"))
    assert [str(outcome.error) for outcome in outcomes] == [
        "city: expected a string or None, got NaN, which stands for a missing value; omit the field",
        "zip: expected a string or None, got float; convert it with f'{value:.15g}', because str() may add '.0'",
        "zip: expected a string or None, got int; convert it with str()",
        "zip: expected a string or None, got float32; convert it with str()",
    ]


@virtual_time
async def test_a_blank_target_is_that_of_the_run() -> None:
    fake = new_fake("Plan")
    fake.add_campaign(SPACE, id="camp_1")
    for blank in "keep", "clear":
        rows = csv.DictReader(["email,campaign", "a@a.example, "])
        run = client_of(fake).contacts.create_many(rows, campaign="camp_1", duplicates="overwrite", blank=cast("Any", blank))
        (outcome,) = await outcomes_of(run)
        assert (outcome.error, outcome.target.campaign) == (None, "camp_1")


# What a ledger can say about values that were emptied


@pytest.mark.parametrize(
    "names", [{"a csv.DictReader", "a file", "dicts"}, pytest.param({*TABLES, *OTHERS}, marks=pytest.mark.thorough, id="all")]
)
@virtual_time
async def test_a_ledger_counts_the_fields_without_a_value_of_changed_rows(names: set[str], folder: Path) -> None:
    async def check(name: str, make: Callable[[Table], Any], options: dict[str, Any], kept: list[int]) -> None:
        ledger, found = Store(folder / f"{name} {options}", inline=True), list[int]()
        async with client_of(new_fake("Plan")) as client:
            for table in (*NIGHTS, NIGHTS[-1]):
                report = await client.contacts.create_many(make(table), ledger=ledger, duplicates="overwrite", **options)
                found.append(0 if report.ledger is None else report.ledger.kept)
        assert found == kept
        assert all("kept" not in counts for _, _, counts in ledger.contacts().runs)

    tables = TABLES | {"a file": file_of}
    rows: list[tuple[str, Callable[[Table], Any], dict[str, Any], list[int]]] = [
        *((name, make, {}, [0, 5, 3, 0]) for name, make in tables.items()),
        *((name, make, {"blank": "clear"}, [0, 0, 0, 0]) for name, make in tables.items()),
        *((name, make, {}, [0, 0, 0, 0]) for name, make in OTHERS.items()),
    ]
    await check_rows_async([row for row in rows if row[0] in names], check)
