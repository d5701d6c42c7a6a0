"""Audits and bulk runs against a simulated service with a rate limit."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Final

import anyio
import attrs
from support.audit import mailbox, wire
from support.flow import Run, Scenario, Service

from outreach_async import (
    NewContact,
    Outcome,
    OutreachClient,
    OutreachError,
    Progress,
    Request,
    Response,
    RetryPolicy,
    StatusError,
)
from outreach_async.audit import Report, audit
from outreach_async.testing import VirtualTime

_MEMBERS: Final = {"status": "ok", "headers": [], "total_found": 1, "current_page": 1, "total_pages": 1}
_PAGE: Final = json.dumps({**_MEMBERS, "data": [wire(mailbox())]}).encode()


def most_in_excess(starts: Sequence[float], rate: float) -> float:
    """Return by how many attempts the worst window exceeds what a rate allows; negative if no window exceeds it."""
    burst, lowest, most = max(1.0, rate / 10), math.inf, -math.inf
    for number, at in enumerate(starts):  # the worst window that ends here begins where `number - rate * at` is least
        lowest = min(lowest, number - rate * at)
        most = max(most, number + 1 - rate * at - lowest - burst)
    return most


class RateLimitedService(Service):
    """The simulated service as a transport. It creates contacts, and lists one mailbox for every workspace."""

    def __init__(self, scene: Scenario, broken: Mapping[str, Mapping[str, str]] | None = None) -> None:
        super().__init__(scene)
        self.broken = broken or {}
        self.sent: dict[str, list[float]] = {}
        self.added = 0

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        self.sent.setdefault(request.target, []).append(self.now())
        try:
            headers = await self.answer()
        except StatusError as error:
            return Response(error.status_code or 0, error.headers, b"{}")
        except OutreachError as error:
            progress.sent = error.maybe_sent
            raise
        for workspace, fields in self.broken.items():
            if f"workspace={workspace}&" in request.target:
                return Response(503, fields, b"{}")
        if request.method == "GET":
            return Response(200, headers, _PAGE)
        self.added += 1
        return Response(201, headers, b'{"status":"added","id":"contact_%d","details":null}' % self.added)

    async def aclose(self) -> None: ...


def create_client(service: RateLimitedService, seed: int = 0, **options: Any) -> OutreachClient:
    """Return a client of the service with seeded jitter."""
    jitter = random.Random(seed).random  # noqa: S311 - a simulation that can be repeated
    options = {"retry": RetryPolicy(jitter=jitter), "owner_key": "key_1", "workspace": "space_1", **options}
    return OutreachClient(transport=service, **options)


@attrs.frozen
class AuditResult:
    """The result of an audit: its report, its duration, and the service with its records."""

    report: Report
    seconds: float
    service: RateLimitedService

    @property
    def slowdown(self) -> float:
        """The duration as a multiple of the shortest possible one."""
        requests = len(self.report.workspaces)
        return self.seconds / ((requests - self.service.most(0)) / self.service.scene.limit(0))


async def run_audit(
    scene: Scenario,
    workspaces: int,
    *,
    broken: Mapping[str, Mapping[str, str]] | None = None,
    deadline: float | None = None,
    **options: Any,
) -> AuditResult:
    """Audit workspaces of one mailbox each. The other options are those of the client."""
    service = RateLimitedService(scene, broken)
    client = create_client(service, scene.seed, **options)
    began = anyio.current_time()
    names: Sequence[str] = [f"space_{number}" for number in range(workspaces)]
    report = await audit(client, names, deadline=deadline, clock=lambda: 0.0)
    return AuditResult(report, anyio.current_time() - began, service)


async def play_whole(scene: Scenario) -> Run:
    """Run a scenario with a client and a bulk run that creates contacts."""
    service = RateLimitedService(scene)
    client = create_client(service, scene.seed + 1, max_in_flight=scene.workers)
    rows = (NewContact(f"user{number}@a.example") for number in count())
    async with client.contacts.create_many(rows, concurrency=scene.workers) as outcomes:
        run = Run(scene, service, outcomes._pipeline._throttle)
        with anyio.move_on_after(scene.seconds):
            async for outcome in outcomes:
                run.failed += outcome.status is not Outcome.ADDED
    run.ended = service.now()
    return run


def simulate_whole(scene: Scenario, backend: str) -> Run:
    """Run a scenario with a client and a bulk run, in virtual time."""
    return anyio.run(play_whole, scene, backend=backend, backend_options=VirtualTime().options(backend))


@attrs.frozen
class HostsResult:
    """The combined results of several hosts, after the warm-up, and the times at which each host added contacts."""

    goodput: float
    refusals: float
    fairness: float
    added: Sequence[Sequence[float]]


async def run_hosts(
    scene: Scenario, hosts: int, *, warm_up: float = 20.0, ends: Mapping[int, float] | None = None, **options: Any
) -> HostsResult:
    """Create contacts with several concurrent clients, each of which stands for one host that may end early."""
    service = RateLimitedService(scene)
    added: list[list[float]] = [[] for _ in range(hosts)]
    starts = random.Random(scene.seed)  # noqa: S311 - a simulation that can be repeated

    async def create(host: int, start: float) -> None:
        await anyio.sleep(start)
        client = create_client(service, scene.seed + host, **options)
        rows = (NewContact(f"user{number}@h{host}.example") for number in count())
        with anyio.move_on_after((ends or {}).get(host, scene.seconds) - start):
            async with client, client.contacts.create_many(rows) as outcomes:
                async for outcome in outcomes:
                    assert outcome.certain, outcome
                    added[host].append(service.now())

    with anyio.move_on_after(scene.seconds):
        async with anyio.create_task_group() as group:
            for host in range(hosts):
                group.start_soon(create, host, starts.random())
    refused = sum(at >= warm_up for at, _ in service.refused)
    succeeded = sum(at >= warm_up for at in service.succeeded)
    counts = [sum(at >= warm_up for at in times) for times in added]
    return HostsResult(
        goodput=succeeded / scene.ideal(warm_up, scene.seconds),
        refusals=refused / max(1, refused + succeeded),
        fairness=min(counts) / max(1, *counts),
        added=added,
    )
