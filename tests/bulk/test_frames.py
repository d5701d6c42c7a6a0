"""Rows of data frames: which cells are sent, and which columns, cells and frames are refused with a remedy."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scenarios import KEY, SPACE, new_fake
from support.tables import check_rows
from support.time import virtual_time

from outreach_async import ContactOutcome, InvalidRequest, Outcome, OutreachClient, Store
from outreach_async.bulk import ArrowStream, Numbers
from outreach_async.bulk._frames import FrameRow, UnsendableRow, read_frame
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.importer import map_columns, open_file
from outreach_async.models import STANDARD_FIELDS
from outreach_async.sync import SyncClient

ROWS: list[dict[str, str | None]] = [
    {"email": "ann@company.example", "zip": "01234", "custom_1": None},
    {"email": "bob@company.example", "zip": None, "custom_1": "gold"},
    {"email": "cyd@company.example", "zip": "", "custom_1": "Nan"},
]
SENT = [{name: cell for name, cell in row.items() if cell} for row in ROWS]
TABLE = pa.Table.from_pylist(ROWS)


FRAMES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "pandas, objects with NaN": lambda: pd.DataFrame(ROWS, dtype=object).where(lambda frame: frame.notna(), float("nan")),
    "pandas, categories": lambda: pd.DataFrame(ROWS).astype("category"),
    "pandas, sorted": lambda: pd.DataFrame(ROWS[::-1]).sort_values("email"),
    "pandas, e-mail as index": lambda: pd.DataFrame(ROWS).set_index("email"),
    "polars": lambda: pl.DataFrame(ROWS),
    "polars, categories": lambda: pl.DataFrame(ROWS).with_columns(pl.all().cast(pl.Categorical)),
    "pyarrow table": lambda: TABLE,
    "pyarrow reader": TABLE.to_reader,
    "pyarrow batch": lambda: TABLE.to_batches()[0],
    "pyarrow large strings": lambda: TABLE.cast(pa.schema([(name, pa.large_string()) for name in TABLE.column_names])),
}


def client_of(fake: FakeService) -> OutreachClient:
    return OutreachClient(transport=FakeTransport(fake), workspace=SPACE, owner_key=KEY)


async def outcomes_of(frame: Any, **options: Any) -> list[ContactOutcome]:
    async with client_of(new_fake("Plan")).contacts.create_many(frame, order="input", **options) as outcomes:
        return [outcome async for outcome in outcomes]


def rows_of(frame: Any, numbers: Numbers = "format") -> list[FrameRow]:
    return [*itertools.chain(*read_frame(frame, numbers)[0])]


@virtual_time
@pytest.mark.parametrize("name", FRAMES)
async def test_a_frame_creates_its_contacts_and_does_not_send_blank_values(name: str) -> None:
    fake, frame = new_fake("Plan"), FRAMES[name]()
    assert isinstance(frame, ArrowStream)
    async with client_of(fake).contacts.create_many(frame) as outcomes:
        assert outcomes.progress.total == (None if name == "pyarrow reader" else 3)
        assert [outcome.status async for outcome in outcomes] == [Outcome.ADDED] * 3
    bodies = [request.json or {} for request in fake.requests.of("create_contact")]
    sent = [{field: body[field] for field in ("email", "zip", "custom_1") if field in body} for body in bodies]
    assert sorted(sent, key=lambda row: row["email"]) == SENT


@virtual_time
async def test_a_total_may_be_passed_and_is_unknown_for_an_input_without_length() -> None:
    campaigns: Any = client_of(new_fake("Plan")).campaigns.list()
    for rows, total in (TABLE, 7), (TABLE.to_reader(), None), (campaigns, None):
        async with client_of(new_fake("Plan")).contacts.create_many(rows, total=total) as outcomes:
            assert outcomes.progress.total == total


cells = st.none() | st.text(st.characters(codec="utf-8"), max_size=5)
columns = st.lists(st.sampled_from(STANDARD_FIELDS), unique=True, max_size=4)


@pytest.mark.thorough
@given(st.data(), columns, st.integers(0, 12), st.integers(1, 5))
def test_any_strings_arrive_unchanged_in_batches_of_any_size(
    data: st.DataObject, names: list[str], count: int, size: int
) -> None:
    rows = [
        {"email": f"{number}@a.example", **{name: data.draw(cells.filter(lambda text: text != "nan")) for name in names}}
        for number in range(count)
    ]
    schema = pa.schema([(name, pa.string()) for name in ("email", *names)])
    batches = [pa.RecordBatch.from_pylist(rows[start : start + size], schema) for start in range(0, count, size)]
    expected = [{name: cell for name, cell in row.items() if cell is not None} for row in rows]
    assert rows_of(pa.RecordBatchReader.from_batches(schema, batches)) == expected


@virtual_time
async def test_batches_are_read_only_when_their_rows_are_needed() -> None:
    schema = pa.schema([("email", pa.string())])
    read: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in itertools.count():
            read.append(number)
            yield pa.RecordBatch.from_pylist([{"email": f"{number}.{row}@a.example"} for row in range(10)], schema)

    endless = pa.RecordBatchReader.from_batches(schema, batches())
    async with client_of(new_fake("Plan")).contacts.create_many(endless, concurrency=4) as outcomes:
        taken = 0
        async for _ in outcomes:
            taken += 1
            assert len(read) * 10 <= taken + 10 * 8
            if taken == 200:
                break


def test_a_large_batch_is_converted_in_slices() -> None:
    emails = [f"{number}@a.example" for number in range(2000)]
    slices = [*read_frame(pa.table({"email": emails}))[0]]
    assert len(slices) > 1
    assert [row["email"] for rows in slices for row in rows if isinstance(row, dict)] == emails


# Cells


TYPED = pa.table(
    {
        "email": ["ann@company.example", "bob@company.example"],
        "zip": [75001, None],
        "mobile_phone": [41791234567.0, None],
        "job_start_date": [dt.date(2026, 5, 4), None],
        "custom_1": [dt.datetime(2026, 5, 4, 9, 30, tzinfo=dt.UTC), None],
        "custom_2": [True, None],
        "custom_3": [decimal.Decimal("1.50"), None],
        "custom_4": [b"K\xc3\xb6ln", None],
        "custom_5": [float("nan"), 0.5],
    }
)
FORMATTED = {
    "email": "ann@company.example",
    "zip": "75001",
    "mobile_phone": "41791234567",
    "job_start_date": "2026-05-04",
    "custom_1": "2026-05-04T09:30:00Z",
    "custom_2": "TRUE",
    "custom_3": "1.50",
    "custom_4": "Köln",
}


def test_numbers_and_dates_are_sent_as_from_a_parquet_file(tmp_path: Path) -> None:
    pq.write_table(TYPED, tmp_path / "people.parquet")
    file = open_file(tmp_path / "people.parquet")
    imported = [dict(row) for row in file.rows(map_columns(file.headers))]
    assert rows_of(TYPED) == imported == [FORMATTED, {"email": "bob@company.example", "custom_5": "0.5"}]
    assert rows_of(pl.from_arrow(TYPED)) == imported


def test_integers_that_pandas_made_floats_are_sent_without_a_decimal_point() -> None:
    frame = pd.DataFrame({"email": ["a@a.example", "b@a.example"], "zip": [75001, None]})
    sent = [{"email": "a@a.example", "zip": "75001"}, {"email": "b@a.example"}]
    assert rows_of(frame) == sent
    frame["zip"] = frame["zip"].astype("Int64").astype("string")  # the remedy for numbers that are rejected
    assert rows_of(frame) == sent


FINDING = (
    "rows: expected strings in column 'zip', got int64; its values are sent as text, so leading zeros or a plus sign may be lost;"
    " convert the column to strings, or pass numbers='reject'"
)


@virtual_time
async def test_a_column_of_numbers_is_a_finding_and_a_logged_warning(caplog: pytest.LogCaptureFixture) -> None:
    frame = pa.table({"email": ["a@a.example"], "zip": [75001], "job_start_date": [dt.date(2026, 5, 4)], "city": ["Lyon"]})
    run = client_of(new_fake("Plan")).contacts.create_many(frame)
    report = await run
    assert report.outcomes[Outcome.ADDED] == 1
    date = FINDING.replace("'zip', got int64", "'job_start_date', got date32[day]").replace(
        ", so leading zeros or a plus sign may be lost", ""
    )
    assert run.findings == (FINDING, date)
    assert caplog.messages[:2] == [f"create_many: {finding}" for finding in run.findings]
    run = client_of(new_fake("Plan")).contacts.create_many([{"email": "a@a.example"}])
    assert run.findings == ()
    run.close()


def test_the_synchronous_client_formats_and_rejects_numbers_too() -> None:
    frame = pa.table({"email": ["a@a.example"], "zip": [75001]})
    with SyncClient(transport=FakeTransport(new_fake("Plan")), workspace=SPACE, owner_key=KEY) as client:
        run = client.contacts.create_many(frame)
        assert (run.findings, run.wait().outcomes[Outcome.ADDED]) == ((FINDING,), 1)
        assert client.contacts.create_many(frame, numbers="reject").wait().outcomes[Outcome.REJECTED] == 1


@virtual_time
async def test_a_whole_number_that_pandas_made_a_float_can_be_rejected() -> None:
    frame = pd.DataFrame({"email": ["a@a.example", "b@a.example"], "zip": [75001, None]})
    first, second = await outcomes_of(frame, numbers="reject")
    assert (first.status, second.status) == ("rejected", "added")
    assert first.contact == {"email": "a@a.example", "zip": 75001.0}
    assert str(first.error) == (
        "zip: expected a string, got an integer stored as a float (pandas does this if a column has missing values); "
        "convert it: df['zip'] = df['zip'].astype('Int64').astype('string')"
    )


def test_a_nested_column_is_refused_before_anything_is_sent() -> None:
    frame = pa.table({"email": ["a@a.example"], "custom_1": [["x"]]})
    with pytest.raises(InvalidRequest, match=r"column 'custom_1', got list<.*>; convert the column to strings, or drop it"):
        read_frame(frame)


def test_a_value_that_cannot_be_sent_rejects_its_row_with_the_reason() -> None:
    as_text = "the string that astype(str) returns for a missing value; set missing values to null before converting a column"

    def check(cell: object, numbers: Numbers, reason: str) -> None:
        (row,) = rows_of(pa.table({"email": ["a@a.example"], "custom_1": [cell]}), numbers)
        assert isinstance(row, UnsendableRow)
        assert row.reason == f"custom_1: expected {reason}"

    kinds = [(75001, "int"), (1.5, "float"), (True, "bool"), (b"x", "bytes"), (["x"], "list"), (dt.date(2026, 5, 4), "date")]
    digits = "a float of at most 15 digits, got more, which are not exact; read the column as strings"
    rows: list[tuple[object, Numbers, str]] = [
        (4179123456712345678.0, "format", digits),
        (b"K\xf6ln", "format", "a string, got bytes; convert the column to strings"),
        *((text, "format", f"a value, got '{text}', {as_text} to strings") for text in ("nan", "NaT", "<NA>")),
        *((cell, "reject", f"a string, got {kind}; convert the column to strings") for cell, kind in kinds),
    ]
    check_rows(rows, check)


@pytest.mark.parametrize("kind", [pa.null(), pa.float64(), pa.int64(), pa.timestamp("s"), pa.float32()])
def test_a_column_of_another_type_without_values_is_unset(kind: pa.DataType) -> None:
    missing = [float("nan"), None] if pa.types.is_floating(kind) else [None, None]
    frame = pa.table({"email": pa.array(["a@a.example", "b@a.example"]), "zip": pa.array(missing, kind)})
    assert rows_of(frame) == [{"email": "a@a.example"}, {"email": "b@a.example"}]


@pytest.mark.parametrize(
    ("column", "numbers", "got"),
    [
        (pa.array([0, 10**15, None], pa.timestamp("s")), "reject", ["datetime", "TimestampScalar"]),
        (pa.array([0, 2**30, None], pa.date32()), "reject", ["date", "Date32Scalar"]),
        (pa.array([0, 1, None], pa.timestamp("s", tz="Europe/Nowhere")), "format", ["TimestampScalar", "TimestampScalar"]),
    ],
    ids=["time", "date", "zone"],
)
def test_a_value_that_python_cannot_represent_rejects_only_its_row(column: Any, numbers: Numbers, got: list[str]) -> None:
    frame = pa.table({"email": ["a@a.example", "b@a.example", "c@a.example"], "city": column})
    *odd, last = rows_of(frame, numbers)
    reason = "city: expected a string, got {}; convert the column to strings"
    assert [row.reason for row in odd if isinstance(row, UnsendableRow)] == [reason.format(kind) for kind in got]
    assert last == {"email": "c@a.example"}


@virtual_time
async def test_a_row_without_an_email_is_rejected() -> None:
    (outcome,) = await outcomes_of(pl.DataFrame({"email": [None], "zip": ["1"]}))
    assert (outcome.status, str(outcome.error)) == ("rejected", "email: missing; give the contact an e-mail address")


@virtual_time
@pytest.mark.parametrize("spool", [False, True])
async def test_a_run_of_a_frame_can_be_resumed_and_keeps_its_reasons(tmp_path: Path, spool: bool) -> None:
    frame = pl.DataFrame({"email": [f"{number}@a.example" for number in range(30)], "zip": ["nan", *["1"] * 29]})
    client, journal = client_of(new_fake("Plan")), tmp_path / "run.db"
    options: dict[str, Any] = {"journal": journal, "spool": spool, "normalise": False}
    async with client.contacts.create_many(frame, concurrency=2, **options) as outcomes:
        async for _ in outcomes:
            outcomes.drain()
    report = await client.contacts.create_many(frame, resume=True, **options)
    assert (report.rows, report.outcomes[Outcome.ADDED], report.outcomes[Outcome.REJECTED]) == (30, 29, 1)
    (rejected,) = [outcome for outcome in Store(journal).outcomes() if outcome.status == "rejected"]
    assert "got 'nan', the string that" in str(rejected.error)


# Columns


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["email", "First Name"], "got 'First Name' (did you mean 'first_name'?); rename or drop these columns"),
        (
            ["email", "unsubscribed"],
            "got 'unsubscribed'; rename or drop these columns; if one says who must not be written to, first drop the rows",
        ),
        (["email", *"uvwxyz0"], "got 'u', 'v', 'w', 'x', 'y' and 2 more; rename or drop"),
        (["email", "custom_"], "got 'custom_'"),
        (["email", "key_secret"], "got 'key_...'; rename"),
        (["Email"], "got 'Email' (did you mean 'email'?); rename"),
        (["email", "zip", "zip"], "expected unique column names, got 'zip' more than once; rename or drop a column"),
        (["zip"], "expected a column 'email', got none; rename the column that contains the e-mail addresses"),
        ([], "expected a column 'email', got none"),
    ],
)
def test_a_column_that_is_no_field_is_refused_before_anything_is_sent(names: list[str], message: str) -> None:
    fake = new_fake("Plan")
    frame = pa.table([["x"]] * len(names), names=names)
    with pytest.raises(InvalidRequest, match=f"^rows: .*{re.escape(message)}"):
        client_of(fake).contacts.create_many(frame)
    assert not list(fake.requests)


# Frames


class DataFrame:
    """A data frame without Arrow's interface. Iterating over it yields the names of its columns."""

    def __iter__(self) -> Iterator[str]:
        return iter(["email"])


class Interchange:
    """A data frame with only the older interface."""

    def __dataframe__(self) -> None:
        return None


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (DataFrame(), "expected a data frame with __arrow_c_stream__, got DataFrame without it; collect or compute"),
        (Interchange(), "got Interchange without it; collect or compute a lazy frame, or upgrade the library (pandas to 2.2"),
        (pl.LazyFrame(ROWS), "got LazyFrame without it; collect or compute"),
        ({"email": ["a@a.example"], "zip": ["1"]}, "got a dict of columns; pass pyarrow.table(rows)"),
        ({"email": "a@a.example"}, "got a single dict"),
        ({}, "got a single dict"),
        (pd.Series(["a@a.example"]), "expected a data frame, got Series (Cannot import schema"),
        (pl.Series(["a@a.example"]), "expected a data frame, got Series (Cannot import schema"),
        (pd.DataFrame({"email": ["a@a.example", 1.5]}), "got DataFrame (Expected bytes, got a 'float' object; Conversion failed"),
        (pd.DataFrame([["a", "b"]], columns=["email", "email"]), "got DataFrame (Duplicate column names found"),
    ],
)
def test_an_input_that_cannot_be_read_as_a_frame_has_a_remedy(rows: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^rows: .*{re.escape(message)}") as caught:
        client_of(new_fake("Plan")).contacts.create_many(rows)
    assert ("; " in str(caught.value), caught.value.maybe_sent) == (True, False)


def test_a_frame_with_a_key_in_a_cell_does_not_show_it() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_frame(pd.DataFrame({"email": [1.5, "key_secret"]}))
    assert "secret" not in str(caught.value)


def test_a_frame_without_pyarrow_says_which_extra_to_install() -> None:
    code = """
import sys
sys.modules["pyarrow"] = None  # as if it were not installed
from outreach_async.bulk._frames import read_frame
try:
    read_frame(None)
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        "rows: pyarrow is required to read a data frame and is not installed; run: pip install 'outreach_async[parquet]'\n"
    )


@pytest.mark.thorough
def test_a_query_of_duckdb_is_a_frame_like_every_other() -> None:
    command = [sys.executable, "-m", "support.duckdb_query", json.dumps(ROWS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    created = {"total": 3, "statuses": ["added"] * 3, "sent": SENT}
    rows = [{name: cell for name, cell in row.items() if cell is not None} for row in ROWS]
    assert json.loads(done.stdout) == {"rows": rows, "stream": True, "asyncio": created, "trio": created}
