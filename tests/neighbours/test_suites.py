"""Test suites of users with other pytest plugins and tools for tests, in a Python of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.cli import KEY, serve_in_thread, small_service
from support.neighbours import needs, run_beside, write

pytestmark = pytest.mark.nightly

HEAD = """
import json
import os

import httpx
import pytest

from outreach_async import OutreachClient, RateLimited, TransportError
from outreach_async.sync import SyncClient

URL = "https://api.example"
ADDED = {"status": "added", "id": "contact_1", "details": None}
OPTIONS = {"base_url": URL, "owner_key": "key_1", "workspace": "space_1"}
"""


def passes(folder: Path, suite: str, count: int, *plugins: str, **variables: str) -> None:
    """Run a suite of one file with these plugins and warnings as errors, and require that so many tests pass, and no more."""
    (folder / "test_it.py").write_text(HEAD + suite, encoding="utf-8")
    variables["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    named = [part for name in ("outreach_async", *plugins) for part in ("-p", name)]
    options = ("-o", "asyncio_mode=auto", "-o", "asyncio_default_fixture_loop_scope=function") if "asyncio" in plugins else ()
    printed = run_beside("-m", "pytest", "-q", "-W", "error", *named, *options, folder=folder, **variables)
    assert re.search(rf"^{count} passed in", printed, re.MULTILINE), printed


@needs("respx")
def test_respx_answers_every_method_of_a_client_without_configuration(tmp_path: Path) -> None:
    suite = """
import respx

@respx.mock(base_url=URL)
def test_it(respx_mock):
    route = respx_mock.post("/contacts").mock(side_effect=[httpx.Response(503), httpx.Response(200, json=ADDED)])
    with SyncClient(**OPTIONS) as client:
        made = client.contacts.create(email="ann@a.example", duplicates="overwrite")
    assert (made.id, made.attempts, route.call_count) == ("contact_1", 2, 2)
    assert json.loads(route.calls.last.request.content)["email"] == "ann@a.example"

@respx.mock
def test_an_error_of_the_network():
    respx.post(f"{URL}/contacts").mock(side_effect=httpx.ConnectError("no route"))
    with SyncClient(**OPTIONS, max_retries=0) as client, pytest.raises(TransportError, match="no route") as caught:
        client.contacts.create(email="ann@a.example")
    assert not caught.value.maybe_sent
"""
    passes(tmp_path, suite, 2, "respx")


@needs("pytest_httpx", "trio")
def test_pytest_httpx_answers_a_client_and_a_bulk_run_on_both_loops(tmp_path: Path) -> None:
    suite = """
pytestmark = pytest.mark.anyio

async def test_create(httpx_mock):
    httpx_mock.add_response(method="POST", url=f"{URL}/contacts", json=ADDED)
    async with OutreachClient(**OPTIONS) as client:
        assert (await client.contacts.create(email="ann@a.example")).certain
    assert json.loads(httpx_mock.get_request().content)["workspace"] == "space_1"

@pytest.mark.httpx_mock(can_send_already_matched_responses=True)
async def test_create_many(httpx_mock):
    httpx_mock.add_response(json=ADDED | {"id": None})
    async with OutreachClient(**OPTIONS) as client:
        report = await client.contacts.create_many([{"email": f"user{each}@a.example"} for each in range(50)])
    assert (report.rows, len(httpx_mock.get_requests())) == (50, 50)

async def test_an_exception(httpx_mock):
    httpx_mock.add_exception(httpx.ReadTimeout("late"))
    async with OutreachClient(**OPTIONS, max_retries=0) as client:
        with pytest.raises(TransportError, match="late") as caught:
            await client.contacts.create(email="ann@a.example")
    assert caught.value.maybe_applied
"""
    passes(tmp_path, suite, 6, "anyio", "pytest_httpx")


@needs("vcr")
def test_vcrpy_replays_what_it_has_recorded_without_the_service(tmp_path: Path) -> None:
    suite = """
import vcr

def test_it():
    tape = vcr.use_cassette("cassette.yaml", record_mode=os.environ["MODE"])
    with tape as cassette, SyncClient(os.environ["URL"], workspace="space_1") as client:
        assert [campaign.id for campaign in client.campaigns.list()] == ["camp_1"]
        assert len(client.mailboxes.list().collect()) == 3
    assert cassette.play_count == (2 if os.environ["MODE"] == "none" else 0)
"""
    with serve_in_thread(small_service()) as url:
        passes(tmp_path, suite, 1, MODE="all", URL=url)
    passes(tmp_path, suite, 1, MODE="none", URL=url)
    assert KEY not in (tmp_path / "cassette.yaml").read_text(encoding="utf-8")


FROZEN = """
from datetime import UTC, datetime
import {module} as frozen

@frozen.{name}("2030-05-01T12:00:00Z"{options})
def test_frozen_time_stops_nothing(outreach_fake, outreach_url, outreach_workspace, outreach_owner_key):
    from outreach_async.fake import faults

    outreach_fake.faults.script("create_contact", faults.status(503), faults.hang())
    options = dict(workspace=outreach_workspace, owner_key=outreach_owner_key, timeout=0.5, rate=100, deadline=30)
    with SyncClient(outreach_url, **options) as client:
        made = client.contacts.create(email="ann@a.example")
        with client.contacts.create_many({{"email": f"user{{each}}@a.example"}} for each in range(30)) as outcomes:
            assert len(list(outcomes)) == 30
    assert datetime.now(UTC).year == 2030
    assert (made.status, made.attempts) == ("added", 3)

@frozen.{name}("2030-05-01T12:00:00Z"{options})
def test_a_date_of_retry_after_is_read_by_the_frozen_clock(respx_mock):
    dated = httpx.Response(429, headers={{"retry-after": "Wed, 01 May 2030 12:00:40 GMT"}})
    respx_mock.post(f"{{URL}}/contacts").mock(return_value=dated)
    with SyncClient(**OPTIONS, max_retries=0) as client, pytest.raises(RateLimited) as caught:
        client.contacts.create(email="ann@a.example")
    assert caught.value.retry_after == pytest.approx(40, abs=5)
"""


@needs("time_machine", "respx")
@pytest.mark.parametrize("options", ["", ", tick=False"])
def test_time_machine_moves_the_date_and_nothing_else(tmp_path: Path, options: str) -> None:
    passes(tmp_path, FROZEN.format(module="time_machine", name="travel", options=options), 2, "respx")


@needs("freezegun", "respx")
def test_freezegun_moves_the_date_and_nothing_else_with_real_asyncio(tmp_path: Path) -> None:
    suite = FROZEN.format(module="freezegun", name="freeze_time", options=", real_asyncio=True")
    passes(tmp_path, suite, 2, "respx")


FIXTURES = """
from outreach_async.fake import faults

{mark}
@pytest.mark.outreach(faults={{"create_contact": [faults.status(503), faults.ok]}})
async def test_fixtures_of_the_plugin(outreach_client, outreach_fake, outreach_workspace):
    made = await outreach_client.contacts.create(email="ann@a.example")
    assert (made.attempts, len(outreach_fake.contacts(outreach_workspace))) == (2, 1)

{fixture}
async def client(outreach_url, outreach_workspace, outreach_owner_key):
    async with OutreachClient(outreach_url, workspace=outreach_workspace, owner_key=outreach_owner_key) as client:
        yield client

{mark}
async def test_a_client_of_an_async_fixture(client):
    report = await client.contacts.create_many([{{"email": f"user{{each}}@a.example"}} for each in range(30)])
    assert report.rows == 30
"""


@needs("pytest_asyncio")
def test_pytest_asyncio_in_automatic_mode_runs_async_fixtures_and_tests(tmp_path: Path) -> None:
    suite = FIXTURES.format(mark="", fixture="@pytest.fixture")
    passes(tmp_path, suite, 2, "asyncio")


@needs("pytest_trio")
def test_pytest_trio_runs_async_fixtures_and_tests(tmp_path: Path) -> None:
    suite = FIXTURES.format(mark="@pytest.mark.trio", fixture="@pytest.fixture")
    passes(tmp_path, suite, 2, "trio")


@needs("pytest_asyncio")
def test_virtual_time_under_pytest_asyncio_says_what_to_do(tmp_path: Path) -> None:
    write(tmp_path / "test_it.py", "async def test_it(outreach_virtual_time):\n    pass\n")
    code = "import pytest, sys; sys.exit(pytest.main(['-o', 'asyncio_mode=auto']) != pytest.ExitCode.TESTS_FAILED)"
    printed = run_beside("-c", code, folder=tmp_path)
    assert "outreach_virtual_time: expected a test that anyio's plugin runs, got one that pytest-asyncio runs" in printed
