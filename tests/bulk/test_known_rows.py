"""A row that is only compared is encoded without being parsed; the bytes are those of the parsed row."""

from __future__ import annotations

from datetime import date
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from outreach_async import NewContact
from outreach_async.bulk.rows import RecentEmails, RowParser, SpooledRow
from outreach_async.operations import ContactRequests, RequestDefaults

REQUESTS = ContactRequests.from_options(
    "key_owner", "space_x", RequestDefaults.from_headers({}), duplicates="skip", strict_validation=False, campaign=None
)

NAMES = st.sampled_from(
    ["email", "city", "first_name", "address_1", "custom_1", "custom_20", "custom_x", "extra", "custom", "town"]
)
VALUES = st.none() | st.text() | st.sampled_from(["\ud800", " ", b"x", 3, date(2026, 1, 1), {"custom_3": "x"}, {"b": "y"}, {}])
DICTS = st.dictionaries(NAMES | st.integers(), VALUES) | st.builds(
    lambda row: {**row, "email": "a@b.example"}, st.dictionaries(NAMES, VALUES)
)
CONTACTS = st.builds(
    NewContact,
    VALUES,
    city=VALUES,
    job_start_date=VALUES,
    custom=st.dictionaries(NAMES, VALUES),
    extra=st.just({}) | st.dictionaries(NAMES, VALUES),
)


def both(row: Any, *, recent: bool = False) -> tuple[bytes, bytes]:
    """Return the bytes of a row without and with parsing it."""
    parsers = [RowParser(REQUESTS, RecentEmails() if recent else None) for _ in range(2)]
    return parsers[0].known_bytes(7, row), parsers[1].identifying_bytes(parsers[1].parse(7, row))


@given(DICTS | CONTACTS | VALUES)
@example({"custom_2": "x", "custom_1": "y", "zip": "1", "email": "a@b.example", "city": None})
@example(NewContact("a@b.example", custom={"custom_1": "x"}))
@example(NewContact("a@b.example", custom={"custom_1": 3}))
@example(NewContact("a@b.example", job_start_date=date(2026, 1, 1)))  # type: ignore[arg-type]  # an invalid value
def test_the_bytes_of_a_row_are_those_of_the_parsed_row(row: Any) -> None:
    known, parsed = both(row)
    assert known == parsed


def test_the_bytes_of_a_spooled_row_are_those_of_the_parsed_row() -> None:
    for row in (
        SpooledRow(7, b'{"email":"a@b.example","city":"x"}'),
        SpooledRow(7, b'{"email":"a@b.example"}', repeats=3),
        SpooledRow(7, b'"never sent"'),
    ):
        known, parsed = both(row)
        assert known == parsed


def test_repeats_are_rejected_although_a_row_is_only_compared() -> None:
    parser = RowParser(REQUESTS, RecentEmails())
    parser.known_bytes(0, {"email": "a@b.example"})
    assert b"row 0" in parser.known_bytes(1, {"email": "a@b.example"})
