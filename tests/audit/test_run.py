from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import anyio
import pytest
from support.audit import NOW, ConductedService, MailboxService, mailbox, mailboxes, reading, report, wire
from support.time import virtual_time

from outreach_async import Progress, Request, Response, RetryPolicy
from outreach_async.audit import audit, stream
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest


def clock() -> float:
    return NOW


SMALL = {"space_1": [wire(box) for box in mailboxes(3)], "space_2": [wire(box) for box in mailboxes(2, domain="two.example")]}


def client_of(service: MailboxService, **options: Any) -> OutreachClient:
    return OutreachClient(transport=service, **options)


class ShortPages(MailboxService):
    def _page(self, items: Sequence[dict[str, Any]], page: int, display: int) -> bytes:
        return super()._page(items, page, min(display, 1))


async def test_all_large_workspaces_are_read_although_two_are_at_a_time() -> None:
    boxes = {f"space_{number}": SMALL["space_1"] for number in range(5)}
    with anyio.fail_after(20):
        found = await audit(client_of(ShortPages(boxes)), boxes)
    assert (found.mailboxes, found.unreadable) == (15, [])


async def test_an_undecodable_mailbox_repeated_on_a_later_page_is_one_finding() -> None:
    damaged = wire(mailbox(id="mailbox_bad")) | {"spf": None}
    nameless = damaged | {"id": 7}
    boxes = [damaged, nameless, wire(mailbox(id="mailbox_a")), damaged, nameless, wire(mailbox(id="mailbox_b"))]
    found = await audit(client_of(MailboxService({"space_1": boxes})), ["space_1"], display=3)

    assert [(one.rule, one.mailbox) for one in found.findings if one.rule == "OA902"] == [
        ("OA902", "mailbox_bad"),
        ("OA902", None),
        ("OA902", None),
    ]


async def test_a_mailbox_repeated_on_a_later_page_counts_once() -> None:
    boxes = [wire(box) for box in mailboxes(3, spf=False)]
    found = await audit(client_of(MailboxService({"space_1": [*boxes, boxes[1], *boxes[2:]]})), ["space_1"], display=3)
    assert found.mailboxes == 3
    assert [one.mailbox for one in found.findings if one.rule == "OA101"] == [box["id"] for box in boxes]


async def test_a_workspace_is_read_with_its_own_client() -> None:
    shared, own = MailboxService(SMALL), MailboxService(SMALL)
    spaces = [*SMALL, "space_gone"]
    async with stream(client_of(shared), spaces, clients={"space_2": client_of(own)}, clock=clock) as findings:
        assert [one.rule async for one in findings] == ["OA901"]
        assert (findings.progress.mailboxes, findings.progress.workspaces, findings.progress.eta) == (5, 3, 0.0)
    assert ({space for space, _ in shared.requests}, {space for space, _ in own.requests}) == (
        {"space_1", "space_gone"},
        {"space_2"},
    )


async def test_a_workspace_passed_twice_is_read_once() -> None:
    service = MailboxService(SMALL)
    found = await audit(client_of(service), ["space_2", "space_1", "space_2"])
    assert (found.workspaces, found.mailboxes) == (["space_2", "space_1"], 5)
    assert sorted(service.requests) == [("space_1", 1), ("space_2", 1)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("workspaces", value) for value in ([], [None], ["space_1", 7], ["space_1", "key_secret"])),
        *(("display", value) for value in (0, 2001, "10")),
        *(("deadline", value) for value in (0, -1.0, "10")),
        *(("names", value) for value in (["space_1"], {"space_1": 1}, {1: "acme"}, "acme")),
        *(("clients", value) for value in (["space_1"], {"space_1": "acme"})),
        *(("predicted", value) for value in ([0.1], {"camp_1": 1.5}, {"camp_1": -0.1}, {"camp_1": math.nan}, {"camp_1": "2 %"})),
        *((name, 5) for name in ("policy", "readings", "clock", "campaigns")),
    ],
)
async def test_an_invalid_argument_is_refused_before_anything_is_sent(name: str, value: Any) -> None:
    service, given = MailboxService(SMALL), {"workspaces": ["space_1"], name: value}
    with pytest.raises(InvalidRequest, match=f"^{name}: expected") as caught:
        await audit(client_of(service), **given)
    assert service.requests == []
    assert "secret" not in str(caught.value)


def _fleet() -> dict[str, list[dict[str, Any]] | int]:
    draw = random.Random(1)  # noqa: S311 - sample data, not secrets
    fleet: dict[str, list[dict[str, Any]] | int] = {"space_5": 404}
    for space in (1, 2, 3, 4):
        boxes = mailboxes(10, domain=f"d{space}.example")
        fleet[f"space_{space}"] = [
            wire(box) | {"spf": draw.random() > 0.3, "blacklists": draw.choice([0, 0, 1])} for box in boxes
        ]
    return fleet


async def _conducted(
    fleet: Any, workspaces: list[str], seed: int | None, **options: Any
) -> tuple[dict[str, Any], ConductedService]:
    service = ConductedService(fleet, seed=seed)
    async with anyio.create_task_group() as group:
        group.start_soon(service.conduct)
        found = await audit(client_of(service, **options), workspaces, display=2, clock=clock)
        group.cancel_scope.cancel()
    return found.to_dict(), service


@virtual_time
@pytest.mark.parametrize("seed", range(3))
async def test_the_report_does_not_depend_on_the_order_of_responses(seed: int) -> None:
    workspaces = ["space_3", "space_5", "space_1", "space_4", "space_2"]
    undisturbed = await audit(client_of(MailboxService(_fleet())), workspaces, clock=clock)
    shuffled, _ = await _conducted(_fleet(), workspaces, seed)
    assert shuffled == undisturbed.to_dict()
    assert shuffled["unreadable"] == ["space_5"]


@virtual_time
async def test_workspaces_and_pages_are_read_concurrently() -> None:
    _, service = await _conducted(_fleet(), ["space_1", "space_2", "space_3"], seed=None)
    assert service.together[0] == {("space_1", 1), ("space_2", 1), ("space_3", 1)}
    assert any(len({page for space, page in together if space == "space_1"}) > 1 for together in service.together)


@virtual_time
@pytest.mark.parametrize("in_flight", [8, 64])
async def test_as_many_workspaces_are_read_at_once_as_the_client_allows(in_flight: int) -> None:
    fleet = {f"space_{n}": [wire(box) for box in mailboxes(2)] for n in range(100)}
    found, service = await _conducted(fleet, list(fleet), seed=None, max_in_flight=in_flight)
    assert found["mailboxes"] == 200
    assert max(map(len, service.together)) == len(service.together[0]) == in_flight


@pytest.mark.thorough
@virtual_time
async def test_only_two_workspaces_with_many_full_pages_are_read_at_once() -> None:
    boxes = [wire(box) for box in mailboxes(3)]
    service = ConductedService({f"space_{n}": boxes * 2000 for n in range(4)}, seed=None)
    async with anyio.create_task_group() as group:
        group.start_soon(service.conduct)
        await audit(client_of(service), list(service.workspaces), display=2000, clock=clock)
        group.cancel_scope.cancel()

    later = [{(space, page) for space, page in together if page > 1} for together in service.together]
    assert max(map(len, later)) == 4  # two pages of each workspace


async def test_a_cancelled_audit_leaves_the_client_usable() -> None:
    service = ConductedService(SMALL, seed=None)
    client = client_of(service, max_in_flight=1)

    async with anyio.create_task_group() as group:
        group.start_soon(audit, client, ["space_1", "space_2"])
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()
    async with anyio.create_task_group() as group:
        group.start_soon(service.conduct)
        found = await audit(client, ["space_1", "space_2"])
        group.cancel_scope.cancel()

    assert found.mailboxes == 5


@pytest.mark.parametrize(("status", "code"), [(401, 77), (403, 77), (404, 3)])
async def test_an_audit_denied_everywhere_has_its_own_exit_code(status: int, code: int) -> None:
    found = await audit(client_of(MailboxService({"space_1": status, "space_2": status})), ["space_1", "space_2"])
    assert (found.unreadable, found.exit_code()) == (["space_1", "space_2"], code)


def test_the_volume_of_a_domain_is_summed_over_workspaces() -> None:
    volume = {"daily_limit": 100, "sent_30days": 1000, "spf": False}
    alone = report(reading(mailboxes(49, **volume)))
    together = report(reading(mailboxes(49, **volume)), reading([mailbox(id="mailbox_x", **volume)], workspace="space_2"))
    assert {one.severity for one in alone.findings if one.rule == "OA101"} == {"error"}
    assert {one.severity for one in together.findings if one.rule == "OA101"} == {"critical"}


def test_a_mailbox_shared_by_two_workspaces_counts_once_for_its_domain() -> None:
    shared = mailboxes(26, daily_limit=100, spf=False)
    found = report(reading(shared), reading(shared, workspace="space_2"))
    assert {one.severity for one in found.findings if one.rule == "OA101"} == {"error"}
    assert [one.message for one in found.findings if one.rule == "OA170"] == ["26 mailboxes share this domain"] * 2
    assert found.mailboxes == 52


def test_mailboxes_that_share_only_an_id_both_count_for_their_domain() -> None:
    boxes = [mailbox(email=f"{name}@one.example", daily_limit=2500, spf=False) for name in ("ann", "bob")]
    found = report(reading(boxes[:1]), reading(boxes[1:], workspace="space_2"))
    assert {one.severity for one in found.findings if one.rule == "OA101"} == {"critical"}


@pytest.mark.parametrize(
    ("changes", "codes"),
    [
        ({}, {"critical": 0, "error": 0, "warning": 0, "info": 0}),
        ({"bounced_30days": 20}, {"critical": 0, "error": 0, "warning": 0, "info": 1}),
        ({"bounced_30days": 40}, {"critical": 0, "error": 0, "warning": 1, "info": 1}),
        ({"spf": False}, {"critical": 0, "error": 1, "warning": 1, "info": 1}),
        ({"blacklists": 3}, {"critical": 1, "error": 1, "warning": 1, "info": 1}),
    ],
)
def test_the_exit_code_counts_findings_of_the_given_severity_or_worse(changes: dict[str, Any], codes: dict[str, int]) -> None:
    found = report(reading([mailbox(**changes)]))
    assert {bar: found.exit_code(bar) for bar in codes} == codes
    assert found.exit_code() == codes["error"]
    with pytest.raises(InvalidRequest, match="expected one of critical, error, warning, info, got 'severe'"):
        found.exit_code("severe")


async def test_pages_read_before_one_that_fails_are_judged() -> None:
    service = FailingService({"space_1": [wire(box) for box in mailboxes(5, dkim=False)]}, page=3)
    found = await audit(client_of(service, retry=RetryPolicy(attempts=1)), ["space_1"], display=2)

    assert (found.mailboxes, found.unreadable, found.denied, found.exit_code()) == (4, ["space_1"], False, 3)
    assert [one.rule for one in found.findings] == ["OA102"] * 4 + ["OA901"]
    assert found.findings[-1].message.startswith("could not be read completely (mailboxes read: 4): ")
    assert found.scores.workspaces["space_1"].mailboxes == 4


async def test_an_audit_denied_halfway_is_not_denied_everywhere() -> None:
    service = FailingService({"space_1": [wire(box) for box in mailboxes(5)]}, page=2, status=403)
    found = await audit(client_of(service), ["space_1"], display=2)
    assert (found.mailboxes, found.denied, found.exit_code()) == (2, False, 3)


class FailingService(MailboxService):
    def __init__(self, workspaces: Any, *, page: int, status: int = 500) -> None:
        super().__init__(workspaces)
        self._refused = page
        self._status = status

    async def send(self, request: Request, progress: Progress, /) -> Response:
        response = await super().send(request, progress)
        return Response(self._status, {}, b"{}") if self.requests[-1][1] == self._refused else response
