"""Programs of users in a Python of their own: web servers, task queues, error reporters and notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from support.cli import environment, serve_in_thread
from support.listener import refused_port
from support.neighbours import PYTHON, needs, run_beside, running, write
from support.scenarios import KEY, SPACE, new_fake

from outreach_async.fake import FakeService

pytestmark = pytest.mark.nightly


@pytest.fixture
def fake() -> FakeService:
    return new_fake()


@pytest.fixture
def variables(fake: FakeService) -> Iterator[dict[str, str]]:
    """Serve the fake, and yield the variables that a client reads."""
    with serve_in_thread(fake) as url:
        yield {"OUTREACH_BASE_URL": url, "OUTREACH_OWNER_KEY": KEY, "OUTREACH_WORKSPACE": SPACE}


@needs("gunicorn", "gevent")
def test_greenlets_of_a_gunicorn_worker_use_clients_at_once(fake: FakeService, variables: dict[str, str], tmp_path: Path) -> None:
    app = """
        from threading import Lock
        from outreach_async.sync import SyncClient

        opening, opened = Lock(), []

        def get_client():
            with opening:
                if not opened:
                    opened.append(SyncClient().__enter__())
            return opened[0]

        def app(environ, start_response):
            made = get_client().contacts.create(email=environ["QUERY_STRING"])
            start_response("200 OK", [("content-length", str(len(made.status)))])
            return [made.status.encode()]
        """
    write(tmp_path / "site_app.py", app)
    port = refused_port()
    options = ("-k", "gevent", "-w", "2", "--worker-connections", "50", "-b", f"127.0.0.1:{port}", "--chdir", str(tmp_path))
    server = running(str(PYTHON), "-m", "gunicorn", *options, "site_app:app", port=port, env=environment(**variables))
    with (
        server,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as visitor,
        ThreadPoolExecutor(20) as pool,
    ):
        answers = list(pool.map(lambda number: visitor.get(f"/?user{number}@a.example").text, range(100)))
    assert answers == ["added"] * 100
    assert len(fake.contacts(SPACE)) == 100


@needs("celery")
def test_a_celery_worker_of_processes_opens_a_client_in_each(
    fake: FakeService, variables: dict[str, str], tmp_path: Path
) -> None:
    for name in "queue", "results":
        (tmp_path / name).mkdir()
    app = """
        import os

        from celery import Celery
        from celery.signals import worker_process_init, worker_process_shutdown

        from outreach_async.sync import SyncClient

        app = Celery("tasks", broker="filesystem://", backend="file://results", broker_connection_retry_on_startup=True)
        app.conf.broker_transport_options = {"data_folder_in": "queue", "data_folder_out": "queue"}
        client = SyncClient()  # made before the fork, and opened after it

        @worker_process_init.connect
        def open_client(**_):
            client.__enter__()

        @worker_process_shutdown.connect
        def close_client(**_):
            client.__exit__(None, None, None)

        @app.task
        def create(email):
            return client.contacts.create(email=email).status, os.getpid()
        """
    write(tmp_path / "tasks.py", app)
    script = """
        import subprocess, sys
        from celery import group
        import tasks

        worker = [sys.executable, "-m", "celery", "-A", "tasks", "worker", "--pool", "prefork", "-c", "3", "-l", "warning"]
        with subprocess.Popen([*worker, "--without-gossip", "--without-mingle"]) as running:
            try:
                jobs = [tasks.create.delay(f"user{number}@a.example") for number in range(60)]
                found = [job.get(timeout=50) for job in jobs]
            finally:
                running.terminate()
        assert {status for status, _ in found} == {"added"}, found
        assert running.returncode == 0, running.returncode
        print(len({process for _, process in found}), "processes")
        """
    printed = run_beside(
        write(tmp_path / "main.py", script), folder=tmp_path, C_FORCE_ROOT="1", PYTHONPATH=str(tmp_path), **variables
    )
    assert "3 processes" in printed
    assert len(fake.contacts(SPACE)) == 60


@needs("celery")
def test_a_client_that_was_open_before_a_fork_of_celery_says_what_to_do(variables: dict[str, str], tmp_path: Path) -> None:
    script = """
        import billiard

        from outreach_async import InvalidRequest
        from outreach_async.sync import SyncClient

        client = SyncClient().__enter__()
        client.workspaces.fields()

        def work(email):
            try:
                client.contacts.create(email=email)
            except InvalidRequest as error:
                return str(error)

        if __name__ == "__main__":
            with billiard.get_context("fork").Pool(1) as pool:
                print(pool.apply_async(work, ["ann@a.example"]).get(timeout=50))
            client.__exit__(None, None, None)
        """
    printed = run_beside(write(tmp_path / "main.py", script), folder=tmp_path, **variables)
    assert "fork" in printed
    assert "client" in printed


@needs("sentry_sdk")
@pytest.mark.parametrize("backend", ["httpx", "sockets", "fake"])
def test_sentry_reports_no_key_in_locals_breadcrumbs_or_spans(variables: dict[str, str], tmp_path: Path, backend: str) -> None:
    script = """
        import json, logging, os, sys
        import anyio, sentry_sdk
        from outreach_async import OutreachClient, SocketTransport
        from outreach_async.fake import FakeService, FakeTransport
        from outreach_async.sync import SyncClient

        sent = []
        logging.getLogger("outreach_async").setLevel(logging.DEBUG)
        sentry_sdk.init(
            "https://public@sentry.example/1", before_send=lambda event, hint: sent.append(event), traces_sample_rate=1.0,
            before_send_transaction=lambda event, hint: sent.append(event), include_local_variables=True, send_default_pii=True,
            max_request_body_size="always",
        )
        url = os.environ["OUTREACH_BASE_URL"]
        make = {
            "httpx": lambda: None, "sockets": lambda: SocketTransport(url), "fake": lambda: FakeTransport(FakeService()),
        }[sys.argv[1]]

        async def main():
            async with OutreachClient(transport=make(), workspace="space_of_nobody") as client:
                await client.contacts.create(email="ann@a.example", first_name="Ann-Private")

        def run():
            with SyncClient(transport=make(), workspace="space_of_nobody") as client:
                with client.contacts.create_many([{"email": "ann@a.example"}, {"email": "b@a.example"}]) as outcomes:
                    for outcome in outcomes:
                        raise outcome.error

        for work in lambda: anyio.run(main), run:
            with sentry_sdk.start_transaction(name="job"):
                try:
                    work()
                except Exception:
                    sentry_sdk.capture_exception()
        sentry_sdk.flush(0)
        print(json.dumps(sent, default=repr))
        """
    printed = run_beside(write(tmp_path / "main.py", script), backend, folder=tmp_path, **variables)
    events = json.loads(printed.splitlines()[0])
    assert sum("exception" in event for event in events) == 2
    assert '"vars"' in printed
    assert KEY not in printed


@needs("fastapi")
def test_fastapi_serves_requests_at_once_with_one_client(fake: FakeService, variables: dict[str, str], tmp_path: Path) -> None:
    script = """
        import anyio, httpx, sys
        sys.path.append(sys.argv[1])
        from fastapi_app import app, lifespan

        async def main():
            async with lifespan(app) as state:
                async def asgi(scope, receive, send):
                    await app({**scope, "state": dict(state)}, receive, send)

                async def visit(number):
                    answer = await visitor.post("/signups", json={"email": f"user{number}@a.example", "first_name": "Ann"})
                    answers.append(answer.json()["status"])

                answers = []
                async with httpx.AsyncClient(transport=httpx.ASGITransport(asgi), base_url="http://site.example") as visitor:
                    async with anyio.create_task_group() as group:
                        for number in range(50):
                            group.start_soon(visit, number)
                assert answers == ["added"] * 50, answers

        anyio.run(main)
        """
    examples = str(Path(__file__).parents[1] / "examples")
    run_beside(write(tmp_path / "main.py", script), examples, folder=tmp_path, **variables)
    assert len(fake.contacts(SPACE)) == 50


@needs("ipykernel", "jupyter_client")
def test_cells_of_a_notebook_share_an_async_client_and_run_a_synchronous_one(
    fake: FakeService, variables: dict[str, str], tmp_path: Path
) -> None:
    script = """
        from jupyter_client.manager import start_new_kernel

        cells = [
            "from outreach_async import OutreachClient; from outreach_async.sync import SyncClient",
            "client = OutreachClient()",
            "report = await client.contacts.create_many({'email': f'user{n}@a.example'} for n in range(30)); print(report.rows)",
            "print((await client.contacts.create(email='user0@a.example')).status)",
            "await client.aclose()",
            "with SyncClient() as own: print(own.contacts.create(email='ann@a.example').status)",
        ]
        manager, kernel = start_new_kernel(kernel_name="python3")
        try:
            printed = []
            for cell in cells:
                def take(message):
                    content = message["content"]
                    printed.append(content.get("text", "") or content.get("evalue", ""))
                kernel.execute_interactive(cell, timeout=50, output_hook=take)
            print(*printed)
        finally:
            kernel.stop_channels()
            manager.shutdown_kernel(now=True)
        """
    printed = run_beside(write(tmp_path / "main.py", script), folder=tmp_path, IPYTHONDIR=str(tmp_path), **variables)
    assert [word for word in printed.split() if word in {"30", "skipped", "added"}] == ["30", "skipped", "added"], printed
    assert len(fake.contacts(SPACE)) == 31
