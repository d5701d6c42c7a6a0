"""Pages, lists and reports in notebooks: short reprs, HTML tables and data frames."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import polars as pl
import pytest
from pydantic import TypeAdapter

from outreach_async import BulkReport, Mailbox, OutreachClient, Page
from outreach_async import _display as display
from outreach_async.audit import audit
from outreach_async.errors import InvalidRequest
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.models import NewContact, Undecodable
from outreach_async.store import Store
from outreach_async.sync import SyncClient

KEY = "key_0123456789abcdef"
SCRIPT = "<script>alert('x')</script>"


def world(boxes: int = 214) -> FakeService:
    fake = FakeService()
    fake.add_workspace("space_1")
    fake.add_owner_key("space_1", key=KEY)
    fake.add_mailboxes("space_1", boxes, spf=False)
    fake.add_campaign("space_1", id="camp_1", name=SCRIPT, steps=["A|B", "A"], contacts=5)
    fake.add_campaign("space_1", id="camp_2", steps=[{"sent": 30}], contacts=30, status="paused")
    return fake


def connect(fake: FakeService) -> OutreachClient:
    return OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key=KEY)


async def all_results(client: OutreachClient, ledger: str) -> dict[str, Any]:
    return {
        "page": await client.mailboxes.list(display=214),
        "collected": await client.mailboxes.list().collect(),
        "campaigns": await client.campaigns.list(),
        "steps": await client.campaigns.steps("camp_1"),
        "fields": await client.workspaces.fields(),
        "run": await client.contacts.create_many([{"email": "ann@company.example"}], ledger=ledger, changed="ignore"),
        "ledger": Store(ledger).contacts(),
        "audit": await audit(client, ["space_1"]),
    }


async def test_pages_lists_and_reports_have_short_reprs_tables_and_frames(tmp_path: Any) -> None:
    async with connect(world()) as client:
        results = await all_results(client, str(tmp_path / "contacts.ledger"))
    rows = {"page": 214, "collected": 214, "campaigns": 2, "steps": 2, "fields": 36, "run": 9, "ledger": 1}
    rows["audit"] = len(results["audit"].findings)
    for name, value in results.items():
        assert len(repr(value)) <= 2000, name
        assert len(value.to_frame("pandas")) == len(value.to_frame("polars")) == rows[name], name
        table = value._repr_html_()
        assert table.count("<tr>") == min(rows[name], 30) + 1, name
        assert (f"<p>{rows[name] - 30} more rows</p>" in table) is (rows[name] > 30), name
        assert KEY not in table + repr(value), name
    assert results["page"].to_frame("pandas")["email"].tolist() == [box.email for box in results["page"]]
    assert results["campaigns"].to_frame("polars")["days_left_date"].to_list()[1] == "Complete"
    assert results["steps"].to_frame("polars")["templates"].to_list()[0][1]["test_letter"] == "B"
    assert dict(results["run"].to_frame("polars").rows())["added"] == 1
    assert ", ... and 212 more], total_found=214, " in repr(results["page"])


async def test_a_table_escapes_and_shortens_what_the_service_sends() -> None:
    fake = world(1)
    fake.add_mailbox("space_1", id="mailbox_1", sender_name="&" * 500, created_at=1)
    async with connect(fake) as client:
        campaigns = (await client.campaigns.list())._repr_html_()
        mailbox = (await client.mailboxes.list()).data[0]
    assert SCRIPT not in campaigns
    assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;" in campaigns
    table = mailbox._repr_html_()
    assert table.startswith("<table><thead><tr><th>field</th><th>value</th></tr></thead>")
    assert re.search(r"<td>sender_name</td><td>(&amp;){100}\.\.\.</td>", table)
    assert "<td>domain_ip</td>" in table


def test_any_repr_has_at_most_2000_characters() -> None:
    fake = world(0)
    for _ in range(3):
        fake.add_mailbox("space_1", sender_name="x" * 5000, email=f"{'x' * 5000}@north.example", server_ip="x" * 5000)
    with SyncClient(transport=FakeTransport(fake), workspace="space_1") as client:
        page = client.mailboxes.list().page()
    assert len(repr(page)) <= 2000
    assert len(repr(page.data[0])) <= 2000
    assert repr(page.data[0]).startswith("Mailbox(id='mailbox_")
    assert repr(page).startswith("SyncPage(status='ok', headers=['email', ")
    assert len(page.to_frame()) == 3
    assert len(repr(NewContact("ann@company.example", personal_note="x" * 9000))) <= 2000
    assert len(repr(Undecodable(index=0, id=None, error="x" * 9000))) <= 2000


def test_an_empty_page_has_an_empty_frame() -> None:
    with SyncClient(transport=FakeTransport(world(0)), workspace="space_1") as client:
        page = client.mailboxes.list().page()
    assert page.to_frame("pandas").empty
    assert page.to_frame("polars").is_empty()


@pytest.mark.parametrize(
    ("installed", "library", "chosen"),
    [
        ({"pandas", "polars"}, None, "pandas"),
        ({"polars"}, None, "polars"),
        ({"pandas", "polars"}, "polars", "polars"),
    ],
)
def test_the_library_is_the_given_or_the_installed_one(installed: set[str], library: str | None, chosen: str) -> None:
    assert display.choose_library(library, find=finder(installed)) == chosen


@pytest.mark.parametrize(
    ("library", "message"),
    [
        (None, "library: expected pandas or polars, got neither; run: pip install pandas"),
        ("polars", "library: expected polars, which is not installed; run: pip install polars"),
        ("excel", "library: expected 'pandas' or 'polars', got 'excel'; pass one of them"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(library: str | None, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{re.escape(message)}$"):
        display.choose_library(library, find=finder(set()))


def finder(installed: set[str]) -> Callable[[str], object]:
    return lambda name: find_spec("json") if name in installed else None


def test_pydantic_checks_and_writes_models_and_reports() -> None:
    with SyncClient(transport=FakeTransport(world(1)), workspace="space_1", owner_key=KEY) as client:
        page = client.mailboxes.list().page()
        report = client.contacts.create_many([{"email": "ann@company.example"}]).wait()
    assert TypeAdapter(Page[Mailbox]).dump_python(page) == page.to_dict()
    assert TypeAdapter(list[Mailbox]).dump_python(page.data)[0]["email"] == page.data[0].email
    assert TypeAdapter(BulkReport).dump_json(report).startswith(b'{"rows":1,"outcomes":{"added":1,')
    assert TypeAdapter(Mailbox).json_schema(mode="serialization") == {"type": "object", "title": "Mailbox"}
    with pytest.raises(ValueError, match="instance of Mailbox"):
        TypeAdapter(Mailbox).validate_python({"id": "mailbox_1"})
    assert isinstance(page.to_frame("polars"), pl.DataFrame)
