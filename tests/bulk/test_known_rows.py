"""A row that is only compared is encoded without parsing; its bytes equal those of the parsed row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.files import read_row

from outreach_async import ContactOutcome, NewContact, Target
from outreach_async._core.operations import ContactRequests, CopyDetector, RequestDefaults
from outreach_async._plumbing import RecentEmails, Targets, order_key
from outreach_async.bulk._contact_keys import order_keys
from outreach_async.bulk._rows import ParsedRow, RowParser, SpooledRow
from outreach_async.bulk._source import Source, approximate_size
from outreach_async.converters import OutreachConverter
from outreach_async.errors import InvalidRequest
from outreach_async.importer import Columns

REQUESTS = ContactRequests.from_options(
    "key_owner",
    "space_x",
    RequestDefaults.from_headers({}, OutreachConverter),
    duplicates="skip",
    strict_validation=False,
    campaign=None,
    copy_detector=CopyDetector(),
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


def both(row: Any) -> tuple[bytes | None, bytes | None]:
    """Return the bytes of the unparsed row (`None` if it must be parsed) and of the parsed row (`None` if it is invalid)."""
    parser = RowParser(REQUESTS)
    encoded, parsed = parser.try_encode([row]), parser.parse(7, row)
    return encoded[0][0] if encoded else None, parser.identifying_bytes(parsed) if isinstance(parsed, ParsedRow) else None


@given(DICTS | CONTACTS | VALUES)
@example({"custom_2": "x", "custom_1": "y", "zip": "1", "email": "a@b.example", "city": None})
@example(NewContact("a@b.example", custom={"custom_1": "x"}))
@example(NewContact("a@b.example", custom={"custom_1": 3}))
@example(NewContact("a@b.example", job_start_date=date(2026, 1, 1)))  # type: ignore[arg-type]  # an invalid value
def test_the_bytes_of_a_valid_row_are_those_of_the_parsed_row(row: Any) -> None:
    encoded, parsed = both(row)
    assert None in (encoded, parsed) or encoded == parsed


@given(st.lists(DICTS.map(lambda row: {**row, "email": "a@b.example"}) | CONTACTS | DICTS, max_size=3))
@example([{"email": "a@b.example", "city": "x"}, {"email": "b@b.example", "zip": None}])
@example([{"email": "a@b.example"}, {"email": "\ud800@b.example"}])
@example([{"email": " "}])
@example([{"city": "x"}])
@example([{"email": "a@b.example", "campaign": "camp_1"}])
@example([{"email": "a@b.example"}, {"email": 3}, {"email": "A@b.example"}])
def test_rows_that_are_parsed_together_equal_those_parsed_alone(given_rows: list[Any]) -> None:
    def compare(row: object) -> object:
        return row if isinstance(row, ParsedRow) else repr(row)  # errors are equal only to themselves

    for parser in RowParser(REQUESTS), RowParser(REQUESTS, RecentEmails()):
        parsed = parser.parse_batch(7, given_rows)
        if parsed is not None:
            assert [*map(compare, parsed)] == [compare(parser.parse(index, row)) for index, row in enumerate(given_rows, 7)]


def test_plain_rows_are_parsed_together() -> None:
    parser = RowParser(REQUESTS)
    for batch in (
        [{"email": "a@b.example", "city": "x"}, {"email": "b@b.example", "city": "y"}],
        [{"email": "a@b.example", "city": None}, {"email": "A@b.example", "custom_1": "y"}],
        [{"email": "a@b.example", "campaign": "camp_1"}, {"email": "a@b.example"}],
    ):
        assert parser.parse_batch(3, batch) == [parser.parse(index, row) for index, row in enumerate(batch, 3)]


def test_a_row_that_is_slow_to_come_ends_a_batch() -> None:
    now = 0.0

    def slow_rows() -> Iterator[dict[str, str]]:
        nonlocal now
        for number in range(6):
            now += 1.0 if number == 2 else 0.0001
            yield {"email": f"user{number}@b.example"}

    source = Source(slow_rows())
    assert [len(source.pull_quickly(64, 10**6, lambda: now)[0]) for _ in range(3)] == [3, 3, 0]


CODES = ["email", "city", "zip", "custom_2", "custom_1", "campaign", "town", None]
CELLS = st.text() | st.sampled_from(
    ["", " ", "\xa0", "a@b.example", "\ud800", "\0", "NULL", "4.1E+11", "75001.0", "a ::: b", "camp_1"]
)


@given(st.permutations(CODES), st.integers(1, len(CODES)), st.data())
@example(["email", "city", "custom_2", "custom_1"], 4, ("a@b.example", "", " x", "y"))
@example(["email", "city"], 2, ("", "x"))
def test_a_row_of_a_file_is_sent_as_its_fields_would_be(codes: list[str | None], width: int, data: Any) -> None:
    codes = codes if "email" in codes[:width] else ["email", *codes]
    columns = Columns(tuple(map(str, codes[:width])), tuple(codes[:width]))
    cells = data if isinstance(data, tuple) else data.draw(st.tuples(*[CELLS] * width))
    row, parser = read_row(columns, *cells), RowParser(REQUESTS)
    if row.fault is not None:
        with pytest.raises(InvalidRequest):
            dict(row)
        assert row.plain is None
    elif isinstance(sent := parser.parse(7, row), ParsedRow):
        expected = parser.parse(7, MappingProxyType(dict(row)))
        assert isinstance(expected, ParsedRow)
        assert (sent.operation.request, sent.key, sent.target) == (expected.operation.request, expected.key, expected.target)
    else:
        rejected = parser.parse(7, MappingProxyType(dict(row)))
        assert isinstance(rejected, ContactOutcome)
        assert str(sent.error) == str(rejected.error)


def test_the_size_of_a_row_of_a_file_is_that_of_its_cells() -> None:
    row = read_row(Columns(("E-mail", "City"), ("email", "city")), "a@b.example", "x" * 1000)
    assert approximate_size(row) == 1011


@pytest.mark.parametrize(
    "row",
    [
        {"custom_2": "x", "zip": "1", "email": "a@b.example", "city": None},
        {"city": "Orl\u00e9ans\n{", "email": "a@b.example"},
        NewContact("a@b.example", city="x"),
        NewContact("a@b.example", city=None, custom={"custom_1": "x"}, extra={"field_1": "y"}),
        MappingProxyType({"zip": "1", "email": "a@b.example"}),
        SpooledRow(7, b'{"city":"x","email":"a@b.example"}'),
    ],
)
def test_a_valid_row_is_not_parsed(row: object) -> None:
    encoded, parsed = both(row)
    assert encoded is not None
    assert encoded == parsed


@pytest.mark.parametrize(
    "row",
    [
        *({"email": "a@b.example", "town": "x"}, {"email": "\ud800"}, 3, None),
        SpooledRow(7, b'{"email":"a@b.example"}', repeats=3),
        ({"email": "a@b.example", "campaign": "camp_1"}, Target(campaign="camp_2")),
    ],
)
def test_an_invalid_or_superseded_row_has_no_bytes_of_a_valid_row(row: object) -> None:
    encoded, _ = both(row)
    assert not encoded


@given(st.lists(CONTACTS | DICTS, min_size=1, max_size=4))
def test_rows_that_are_encoded_together_have_the_bytes_of_each(rows: list[Any]) -> None:
    parser = RowParser(REQUESTS)
    together, each = parser.try_encode(rows), [parser.try_encode([row]) for row in rows]
    assert together is None or [([content], None) for content in together[0]] == each


def test_a_row_that_is_nested_too_deeply_is_parsed() -> None:
    nested: list[Any] = []
    for _ in range(200_000):
        nested = [nested]
    assert both({"email": "a@b.example", "city": nested}) == (None, None)


@pytest.mark.parametrize(
    "row",
    [
        {"email": "a@b.example", "campaign": "camp_1", "zip": "1"},
        {"custom_2": "x", "workspace": "space_2", "email": "a@b.example", "campaign": None},
        MappingProxyType({"email": "a@b.example", "city": None, "workspace": "space_2", "campaign": "camp_1"}),
        (NewContact("a@b.example", city="x"), Target("space_2", "camp_1")),
        ({"email": "a@b.example", "city": "x"}, Target(campaign="camp_1")),
    ],
)
def test_a_valid_row_with_a_target_is_not_parsed(row: object) -> None:
    parser = RowParser(REQUESTS, targets=Targets(Target("space_x")))
    parsed = parser.parse(7, row)
    assert isinstance(parsed, ParsedRow)
    assert parser.try_encode([row]) == ([parser.contact_bytes(parsed)], [parsed.target])
    assert parser.identifying_bytes(parsed) == parser.add_target(parser.contact_bytes(parsed), parsed.target)


def test_rows_are_parsed_if_later_rows_may_repeat_their_email() -> None:
    assert RowParser(REQUESTS, RecentEmails()).try_encode([{"email": "a@b.example"}]) is None


ADDRESSES = st.builds(
    "{}@{}".format,
    st.sampled_from(["ann", "a.nn", "a-b", "Ann", "a+b", "\u00e4nn"]),
    st.sampled_from(["a.example", "gmail.com", "googlemail.com", "xn--bcher-kva.example", "b\u00fccher.example"]),
)


@given(st.lists(ADDRESSES, max_size=3))
@example(["ann@a.example\nann@gmail.com"])
def test_several_addresses_have_the_keys_of_each(emails: list[str]) -> None:
    assert [*order_keys(emails)] == [*map(order_key, emails)]
