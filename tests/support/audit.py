"""Mailboxes to audit, and a minimal service that lists them."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import anyio
import attrs
from hypothesis import strategies as st

from outreach_async import Progress, Request, Response
from outreach_async.audit import Policy, Report
from outreach_async.audit._evaluation import AuditState, Judgement
from outreach_async.audit._run import WorkspaceReading, build_report, describe_mailboxes
from outreach_async.errors import OutreachError, StatusError
from outreach_async.models import Mailbox, MailboxStatus, MailboxType, Undecodable

HEALTHY: Final = Mailbox(
    id="mailbox_1",
    status=MailboxStatus.ACTIVE,
    email="ann@one.example",
    sender_name="Ann",
    campaigns=2,
    daily_limit=40,
    spf=True,
    dkim=True,
    dmarc=True,
    blacklists=0,
    age="1 year",
    sent_today=12,
    sent_30days=1000,
    opened_14days=41.5,
    sent_90days=2500,
    bounced_30days=0,
    avg_open_rate=43,
    avg_click_rate=2.5,
    last_activity="5 minutes ago",
    type=MailboxType.GOOGLE,
    created="1 year ago",
    domain_ip="192.0.2.1",
    server_ip="192.0.2.2",
    created_at=1_700_000_000,
)


def mailbox(**changes: Any) -> Mailbox:
    """Return a healthy mailbox with these changes."""
    return attrs.evolve(HEALTHY, **changes)


def mailboxes(count: int, **changes: Any) -> list[Mailbox]:
    """Return `count` mailboxes with unique ids and addresses."""
    domain = changes.pop("domain", "one.example")
    return [mailbox(id=f"mailbox_{domain}_{n}", email=f"m{n}@{domain}", **changes) for n in range(count)]


def wire(item: Any) -> dict[str, Any]:
    """Return a model as wire JSON."""
    return attrs.asdict(item, filter=lambda field, _: field.name != "_extra")


class MailboxService:
    """A transport that lists the mailboxes of workspaces. A number instead of a list is the error status of the response."""

    def __init__(self, workspaces: Mapping[str, Sequence[dict[str, Any]] | int]) -> None:
        self.workspaces = workspaces
        self.requests: list[tuple[str, int]] = []

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        query = parse_qs(urlsplit(request.target).query)
        workspace, page, display = query["workspace"][0], int(query["page"][0]), int(query["display"][0])
        self.requests.append((workspace, page))
        await self.wait_for_turn((workspace, page))
        items = self.workspaces.get(workspace, 404)
        if isinstance(items, int):
            return Response(items, {"content-type": "application/json"}, b'{"error": "no"}')
        return Response(200, {"content-type": "application/json"}, self._page(items, page, display))

    def _page(self, items: Sequence[dict[str, Any]], page: int, display: int) -> bytes:
        data = items[(page - 1) * display : page * display] if page else []
        pages = math.ceil(len(items) / display)
        listing = {"status": "ok", "headers": [], "data": data, "total_found": len(items)}
        return json.dumps({**listing, "current_page": page, "total_pages": pages}).encode()

    async def wait_for_turn(self, page_request: tuple[str, int]) -> None:
        """Wait until the response to this request may be sent; by default, do not wait."""

    async def aclose(self) -> None: ...


class ConductedService(MailboxService):
    """A service whose responses wait until nothing else can run."""

    # With a seed, one random response is released at a time; without a seed, all waiting responses are released together.

    def __init__(self, workspaces: Mapping[str, Sequence[dict[str, Any]] | int], *, seed: int | None) -> None:
        super().__init__(workspaces)
        self.waiting: dict[tuple[str, int], anyio.Event] = {}
        self.together: list[set[tuple[str, int]]] = []
        self._random = None if seed is None else random.Random(seed)  # noqa: S311 - an order, not a secret

    async def wait_for_turn(self, page_request: tuple[str, int]) -> None:
        self.waiting[page_request] = anyio.Event()
        await self.waiting[page_request].wait()

    async def conduct(self) -> None:
        """Release one response after another, until cancelled."""
        while True:
            await anyio.wait_all_tasks_blocked()
            self.together.append(set(self.waiting))
            for page_request in self._next(sorted(self.waiting)):
                self.waiting.pop(page_request).set()

    def _next(self, waiting: list[tuple[str, int]]) -> list[tuple[str, int]]:
        return [self._random.choice(waiting)] if self._random and waiting else waiting


NOW: Final = HEALTHY.created_at + 500 * 86_400
"""The time of audits, in Unix seconds."""


@attrs.frozen
class Shown:
    """The mailboxes of a workspace and the result of reading that workspace."""

    mailboxes: list[Mailbox]
    reading: WorkspaceReading


def report(*shown: Shown, policy: Policy | None = None, now: float = NOW, read: Sequence[Shown] | None = None) -> Report:
    """Audit mailboxes without a service; `read` is the order in which the workspaces are read."""
    state = _state_of(*shown, policy=policy, now=now, read=read)
    return build_report(Judgement(state), state, [each.reading for each in shown], {})


def separated(*shown: Shown) -> list[Report]:
    """Audit workspaces together without a service, and return their separate reports."""
    state, readings = _state_of(*shown), [each.reading for each in shown]
    whole = Judgement(state)
    return [build_report(Judgement(alone := state.alone(each.workspace), whole), alone, [each], {}) for each in readings]


def _state_of(*shown: Shown, policy: Policy | None = None, now: float = NOW, read: Sequence[Shown] | None = None) -> AuditState:
    state = AuditState([each.reading.workspace for each in shown], policy or Policy.default(), now)
    for each in read or shown:
        state.add_page(each.reading.workspace, each.mailboxes)
    return state


def reading(
    boxes: Iterable[Mailbox],
    *,
    workspace: str = "space_1",
    undecodable: Sequence[Undecodable] = (),
    missing: int = 0,
    error: OutreachError | None = None,
) -> Shown:
    found = list(boxes)
    return Shown(found, describe_mailboxes(workspace, len(found), undecodable, missing, error))


FIGURES = st.one_of(
    st.integers(0, 3000), st.integers(0, 20), st.floats(0, 100), st.sampled_from([-1, math.nan, math.inf, -math.inf, 10**400])
)
"""Values that a service may send where a count is expected, valid or not."""

DOMAINS = st.integers(0, 40).map(lambda n: f"domain{n}.example")

EMAILS = st.one_of(
    st.builds("{}@{}".format, st.integers(0, 99), DOMAINS), st.text(max_size=90), st.builds("x@{}".format, st.text(max_size=90))
)

MAILBOXES = st.builds(
    mailbox,
    id=st.integers(0, 10_000).map("mailbox_{}".format),
    status=st.one_of(st.just("active"), st.text(max_size=60)).map(MailboxStatus),
    email=EMAILS,
    campaigns=FIGURES,
    daily_limit=FIGURES,
    spf=st.booleans(),
    dkim=st.booleans(),
    dmarc=st.booleans(),
    blacklists=st.one_of(st.just(0), FIGURES),
    sent_today=FIGURES,
    sent_30days=FIGURES,
    bounced_30days=FIGURES,
)

_ERRORS = st.one_of(st.none(), st.builds(StatusError, st.text(max_size=200), status_code=st.sampled_from([401, 404])))

_UNDECODABLE = st.builds(
    Undecodable,
    index=st.integers(0, 1999),
    id=st.one_of(st.none(), st.text(max_size=30)),
    error=st.text(max_size=500),
    fields=st.fixed_dictionaries({}, optional={"email": st.one_of(EMAILS, st.none(), st.integers())}),
)


def _shown(workspace: int) -> st.SearchStrategy[Shown]:
    return st.builds(
        reading,
        st.lists(MAILBOXES, max_size=12, unique_by=lambda box: box.id),
        workspace=st.just(f"space_{workspace}"),
        undecodable=st.lists(_UNDECODABLE, max_size=2),
        missing=st.sampled_from([0, 0, 3]),
        error=_ERRORS,
    )


REPORTS = st.integers(1, 4).flatmap(lambda count: st.tuples(*map(_shown, range(count)))).map(lambda shown: report(*shown))
"""Reports of arbitrary mailboxes in one to four workspaces."""

_POOL = st.lists(
    st.builds(
        attrs.evolve,
        MAILBOXES,
        server_ip=st.integers(0, 4).map("192.0.2.{}".format),
        type=st.sampled_from(["Google", "SMTP & IMAP", "Exchange"]).map(MailboxType),
    ),
    min_size=1,
    max_size=20,
)


def _share(pool: list[Mailbox]) -> st.SearchStrategy[list[Shown]]:
    listed = st.lists(st.tuples(st.sampled_from(pool), st.sampled_from([None, 1, 2500, 0.3])), max_size=8)
    boxes = listed.map(lambda found: [box if limit is None else attrs.evolve(box, daily_limit=limit) for box, limit in found])
    once = boxes.map(lambda found: list({box.id: box for box in found}.values()))
    return st.integers(1, 5).flatmap(
        lambda count: st.tuples(
            *(st.builds(reading, once, workspace=st.just(f"space_{place}"), error=_ERRORS) for place in range(count))
        ).map(list)
    )


SHARED_FLEETS = _POOL.flatmap(_share)
"""Workspaces that share domains, servers and mailboxes. A shared mailbox may have a different daily limit in each workspace."""
