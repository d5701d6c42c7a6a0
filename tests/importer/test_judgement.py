"""The dry run judges the values that a run sends: what it does not report, a strict service accepts."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled

from outreach_async import Outcome
from outreach_async.client import OutreachClient
from outreach_async.fake import Behaviour, FakeService, FakeTransport
from outreach_async.importer import ImportJob, Preflight, Row, open_file
from outreach_async.models import STANDARD_FIELDS

KEY = "key_1"
PHONES = [
    "+1 206 555 0100",
    "020 7946 0018",
    "+44 (0)20 7946 0018",
    "12345",
    "4.1E+11",
    "+49/30/901820",
    "ext. 5",
    "p:+442079460018",
    "UK: [+44] 20 7946 0018",
    "0011 44 20 7946 0018",
    "206_555_0100 poste 7",
    "+44 20 7946 0018 / 19",
]
USUAL = {
    "email": ["ann@acme.example", "Ann Lee <ann@acme.example>", "mailto:ann@acme.example", "a@b", "ann@@acme.example", "NULL"],
    **dict.fromkeys((code for code in STANDARD_FIELDS if code.endswith("phone")), PHONES),
    "country": ["US", "Republic of Austria", "Germany", "UK", "the Netherlands", "Côte d'Ivoire", "Atlantis", "DE ", "Congo"],
    "state": ["WA", "Washington DC", "New York", "new-york", "Bayern", "NSW", "D.C.", "12", "Québec", "P.R."],
    "timezone": ["Europe/Berlin", "UTC+05:30", "GMT+2", "CET", "europe/berlin", "GMT+02:00", "EST5EDT", "localtime"],
    "website": [
        "https://a.example/x?y",
        "a.example",
        "a.example/x",
        "www.a_b.example",
        "http://a",
        "HTTPS://BÜCHER.example",
        "a.example.",
    ],
    "stack_overflow": ["https://stackoverflow.com/users/1", "annlee", "ann lee", "https://so.example/1", "//stackoverflow.com/1"],
    "zip": ["01234", "SW1A 1AA", '="01234"', "75001.0", "'01234", "12345-6789-1234", "z:01234", "〒100-0001"],
    "job_start_date": [
        "2024-02-29",
        "2023-02-29",
        "02/03/2024",
        "2024",
        "2024-05-01 00:00:00",
        "2024-05-01T00:00:00Z",
        "0000-01-01",
    ],
}
USUAL["graduation_date"] = USUAL["job_start_date"]
USUAL["website_2"] = USUAL["website_3"] = USUAL["website"]
WORDS = ["Ann", "Acme, Ltd", "#N/A", "O&#39;Brien", "x ::: y", "undefined", "[object Object]", "-", "x" * 1001, "Zoë", "Ã©"]
ODD = [
    "",
    "",
    "",
    "\xa0",
    " ",
    "\t",
    "'",
    "\u200b",
    "\u202e",
    "\n",
    "\r\n",
    "_x000D_",
    "\x1f",
    "\x7f",
    "\x85",
    "\ufeff",
    '"',
    "\ue000",
]


def cells_of(code: str) -> st.SearchStrategy[str]:
    usual = st.sampled_from(USUAL.get(code, WORDS))
    odd = st.builds(
        "{}{}{}".format, st.sampled_from(ODD), usual | st.sampled_from(WORDS) | st.text(max_size=6), st.sampled_from(ODD)
    )
    return usual | odd


@st.composite
def files(draw: st.DrawFn) -> list[list[str]]:
    """Draw a table whose rows have one odd cell each, so that no other finding hides what is wrong with it."""
    others = st.sampled_from([code for code in USUAL if code not in {"email", "country"}]) | st.sampled_from(STANDARD_FIELDS)
    codes = list(dict.fromkeys(["email", "country", *draw(st.lists(others, min_size=2, max_size=5))]))
    rows = [codes]
    for number in range(draw(st.integers(1, 8))):
        row = [f"p{number}@acme.example", draw(st.sampled_from(["", "US", "Germany"])), *[""] * (len(codes) - 2)]
        at = draw(st.integers(0, len(codes) - 1))
        row[at] = draw(cells_of(codes[at]))
        rows.append(row)
    return rows


async def check_judgement(table: list[list[str]], behaviour: Behaviour) -> None:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(table)
    file = open_file(io.BytesIO(text.getvalue().encode("utf-8", "surrogatepass")), format="csv", encoding="utf-8")
    mapped = await ImportJob(file=file).map()
    judged = {row.line: (row, findings) for row, findings in file.check(mapped.columns)}
    refused = list[int]()
    await mapped.check(Preflight(on_unsent=lambda row, _error: refused.append(row.line)))
    service = FakeService(behaviour=behaviour)
    service.add_workspace("space_1")
    service.add_owner_key("space_1", key=KEY)
    client = OutreachClient(transport=FakeTransport(service), owner_key=KEY, workspace="space_1")
    run = client.contacts.create_many(mapped.rows(), duplicates="overwrite", stop_after_rejects=None, order="input")
    async with client, run as outcomes:
        async for outcome in outcomes:
            row = outcome.contact
            assert isinstance(row, Row)
            expected, findings = judged[row.line]
            assert (row, row.sent) == (expected, expected.sent)
            assert (row.line in refused) == (row.fault is not None) == (outcome.attempts == 0)
            if not findings and row.fault is None:
                assert outcome.status in {Outcome.ADDED, Outcome.OVERWRITTEN}, (dict(row), outcome.error)


@given(table=files(), strict=st.booleans())
@settings(max_examples=scaled(40), deadline=None)
async def test_a_row_without_a_finding_is_accepted_by_a_strict_service(table: list[list[str]], *, strict: bool) -> None:
    await check_judgement(table, Behaviour.strict() if strict else Behaviour())


@pytest.mark.nightly
@given(table=files())
@settings(max_examples=2000, deadline=None)
async def test_a_row_of_many_files_without_a_finding_is_accepted(table: list[list[str]]) -> None:
    await check_judgement(table, Behaviour.strict())
