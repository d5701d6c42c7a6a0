"""Runs through servers that stand in front of a service: nginx, HAProxy, and a proxy that asks for a password."""

from __future__ import annotations

import getpass
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from support.cli import serve_in_thread
from support.listener import refused_port
from support.neighbours import find_program, running, write
from support.scenarios import KEY, SPACE, new_fake
from support.transports import OWN, PROXYING, Make, over

from outreach_async import ContactOutcome, Outcome, OutreachClient, StatusError
from outreach_async.bulk import BulkReport
from outreach_async.fake import FakeService, faults

pytestmark = pytest.mark.nightly

CONCURRENCY: Final = 16


def rows(count: int) -> list[dict[str, Any]]:
    return [{"email": f"user{number}@a.example", "city": "Lyon"} for number in range(count)]


def emails(fake: FakeService) -> list[str]:
    return sorted(str(contact["email"]) for contact in fake.contacts(SPACE))


async def send(make: Make, url: str, rows: Any, **options: Any) -> tuple[BulkReport, list[ContactOutcome]]:
    """Create contacts, and return the report and the outcomes by their index."""
    async with OutreachClient(transport=make(url), owner_key=KEY, workspace=SPACE) as client:
        async with client.contacts.create_many(rows, concurrency=CONCURRENCY, order="input", **options) as outcomes:
            found = [outcome async for outcome in outcomes]
        return outcomes.report, found


def attempts(outcomes: list[ContactOutcome]) -> int:
    return sum(outcome.attempts for outcome in outcomes)


def require_truth(fake: FakeService, outcomes: list[ContactOutcome], count: int) -> None:
    """Require that each row was created once, and that its outcome says so."""
    assert emails(fake) == sorted(f"user{number}@a.example" for number in range(count))
    wrong = [outcome for outcome in outcomes if Outcome.ADDED not in outcome.possible or outcome.error is not None]
    assert (len(outcomes), wrong) == (count, [])


# nginx


@contextmanager
def nginx(folder: Path, fake: FakeService, server: str = "", location: str = "", http: str = "") -> Iterator[tuple[Any, str]]:
    """Run nginx in front of a fake, with these directives, and yield its process and URL."""
    program, port = find_program("nginx"), refused_port()
    temporary = "".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    with serve_in_thread(fake) as url:
        configuration = f"""
            user {getpass.getuser()};
            daemon off; pid {folder}/pid; error_log {folder}/error.log; worker_processes 2;
            events {{ worker_connections 256; }}
            http {{
                access_log off; {temporary} {http}
                upstream service {{ server {url.removeprefix("http://")}; keepalive 32; }}
                server {{
                    listen 127.0.0.1:{port}; {server}
                    location / {{ proxy_pass http://service; proxy_http_version 1.1; proxy_set_header Connection ""; {location} }}
                }}
            }}
            """
        with running(
            program, "-e", f"{folder}/error.log", "-c", write(folder / "nginx.conf", configuration), port=port
        ) as process:
            yield process, f"http://127.0.0.1:{port}"


@over(*OWN)
async def test_nginx_that_closes_each_connection_after_a_few_requests(make: Make, tmp_path: Path) -> None:
    fake = new_fake()
    with nginx(tmp_path, fake, "keepalive_requests 3;") as (_, url):
        report, outcomes = await send(make, url, rows(200))
    require_truth(fake, outcomes, 200)
    assert (report.outcomes[Outcome.ADDED], report.uncertain, attempts(outcomes)) == (200, 0, 200)


@over(*OWN)
async def test_nginx_that_reloads_under_a_run_loses_no_row(make: Make, tmp_path: Path) -> None:
    fake = new_fake()
    with nginx(tmp_path, fake) as (process, url):

        async def reloading() -> AsyncIterator[dict[str, Any]]:
            for number, row in enumerate(rows(600)):
                if number % 100 == 50:
                    process.send_signal(signal.SIGHUP)
                yield row

        _, outcomes = await send(make, url, reloading())
    require_truth(fake, outcomes, 600)


@pytest.mark.parametrize(("status", "count"), [(429, 100), (503, 40)])
@over("httpx", "sockets")
async def test_nginx_that_limits_the_rate_slows_a_run_down(make: Make, tmp_path: Path, status: int, count: int) -> None:
    fake = new_fake()
    zone = "limit_req_zone $binary_remote_addr zone=all:1m rate=50r/s;"
    limit = f"limit_req zone=all burst=10 nodelay; limit_req_status {status};"
    with nginx(tmp_path, fake, location=limit, http=zone) as (_, url):
        report, outcomes = await send(make, url, rows(count))
    require_truth(fake, outcomes, count)
    assert (report.outcomes[Outcome.ADDED], attempts(outcomes) > count) == (count, True)


@over(*OWN)
async def test_nginx_that_redirects_to_https_gets_one_request_and_is_named(make: Make, tmp_path: Path) -> None:
    fake = new_fake()
    with nginx(tmp_path, fake, location="return 301 https://$host$request_uri;") as (_, url):
        async with OutreachClient(transport=make(url), owner_key=KEY, workspace=SPACE) as client:
            with pytest.raises(StatusError, match=r"301.*https://127\.0\.0\.1") as caught:
                await client.contacts.create(email="ann@a.example")
    assert (caught.value.status_code, caught.value.attempts, fake.contacts(SPACE)) == (301, 1, [])


@over(*OWN)
async def test_nginx_that_refuses_a_large_body_fails_one_row(make: Make, tmp_path: Path) -> None:
    fake = new_fake()
    large = {"email": "large@a.example", "city": "x" * 100_000}
    with nginx(tmp_path, fake, "client_max_body_size 1k;") as (_, url):
        report, outcomes = await send(make, url, [*rows(20), large])
    require_truth(fake, outcomes[:20], 20)
    assert (report.outcomes[Outcome.ADDED], outcomes[20].certain) == (20, True), outcomes[20]
    assert "413" in str(outcomes[20].error)


# HAProxy


@contextmanager
def haproxy(folder: Path, fake: FakeService, timeouts: dict[str, str]) -> Iterator[str]:
    """Run HAProxy in front of a fake, with these time limits, and yield its URL."""
    program, port = find_program("haproxy"), refused_port()
    limits = {"connect": "10s", "client": "60s", "server": "60s"} | timeouts
    lines = "\n".join(f"timeout {name} {value}" for name, value in limits.items())
    with serve_in_thread(fake) as url:
        configuration = f"""
            defaults
                mode http
{lines}
            listen service
                bind 127.0.0.1:{port}
                server only {url.removeprefix("http://")}
            """
        with running(program, "-db", "-f", write(folder / "haproxy.cfg", configuration), port=port):
            yield f"http://127.0.0.1:{port}"


@over(*OWN)
async def test_haproxy_that_closes_idle_connections_at_once_loses_no_row(make: Make, tmp_path: Path) -> None:
    fake = new_fake()
    with haproxy(tmp_path, fake, {"http-keep-alive": "1ms"}) as url:
        _, outcomes = await send(make, url, rows(300))
    require_truth(fake, outcomes, 300)


@over(*OWN)
async def test_haproxy_that_answers_504_for_a_slow_service_makes_rows_uncertain(make: Make, tmp_path: Path) -> None:
    fake = new_fake()
    fake.faults.script("create_contact", *[faults.commit_then(faults.hang())] * 3)
    with haproxy(tmp_path, fake, {"server": "200ms"}) as url:
        report, outcomes = await send(make, url, rows(30))
    require_truth(fake, outcomes, 30)
    assert (report.outcomes[Outcome.ADDED], report.uncertain) == (27, 3)


# A proxy with a password


@contextmanager
def password_proxy(folder: Path) -> Iterator[int]:
    """Run a proxy that lets the user `ann` with the password `hunter2` pass, and yield its port."""
    program, port = find_program("tinyproxy"), refused_port()
    configuration = f"""
        Port {port}
        Listen 127.0.0.1
        BasicAuth ann hunter2
        LogLevel Critical
        LogFile "{folder}/log"
        """
    with running(program, "-d", "-c", write(folder / "tinyproxy.conf", configuration), port=port):
        yield port


@over(*PROXYING)
async def test_a_proxy_with_a_password_passes_what_has_it(make: Make, tmp_path: Path) -> None:
    fake = new_fake()
    with serve_in_thread(fake) as url, password_proxy(tmp_path) as port:
        _, outcomes = await send(partial(make, proxy=f"http://ann:hunter2@127.0.0.1:{port}"), url, rows(30))
    require_truth(fake, outcomes, 30)


@pytest.mark.parametrize("url", ["http://service.example", "https://service.example"])
@pytest.mark.parametrize("user", ["", "ann:wrong-s3cret@"])
@over(*PROXYING)
async def test_a_refusal_of_a_proxy_is_final_and_shows_no_password(make: Make, tmp_path: Path, user: str, url: str) -> None:
    status = 401 if user and url.startswith("http:") else 407  # to wrong ones, tinyproxy answers 401, as the service does
    with password_proxy(tmp_path) as port:
        transport = make(url, proxy=f"http://{user}127.0.0.1:{port}")
        async with OutreachClient(transport=transport, workspace=SPACE) as client:
            with pytest.raises(StatusError, match=str(status)) as caught:
                await client.workspaces.fields()
    assert (caught.value.attempts, caught.value.maybe_applied) == (1, False)
    assert "s3cret" not in f"{caught.value!r} {caught.value} {client!r}"
