"""A typed user's file: never run, only checked by mypy and pyright in strict mode."""

from collections.abc import AsyncIterator, Iterator
from typing import assert_type

import aiohttp
import httpx
import httpx2

from outreach_async import (
    AiohttpTransport,
    BulkReport,
    Collected,
    ContactOutcome,
    ContactRow,
    CreatedContact,
    HttpxTransport,
    Middleware,
    NewContact,
    Outcome,
    OutreachClient,
    OutreachError,
    Progress,
    Request,
    Response,
    RetryPolicy,
    Transport,
)
from outreach_async.audit import audit, check
from outreach_async.fake import Behaviour, FakeService, FakeTransport
from outreach_async.models import Campaign, CampaignSteps, Mailbox, Page, ResponseInfo, Step, WorkspaceField
from outreach_async.sync import SyncClient


class Recording(Middleware):
    """A user's transport around another."""

    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.seen: list[Request] = []

    async def send(self, request: Request, progress: Progress, /) -> Response:
        """Record the request and forward it."""
        self.seen.append(request)
        return await super().send(request, progress)


async def reads(client: OutreachClient) -> None:
    async for campaign in client.campaigns.list():
        assert_type(campaign, Campaign)
    assert_type(await client.mailboxes.list(page=3, display=500), Page[Mailbox])
    async for page in client.mailboxes.list(max_items=10).pages():
        assert_type(page.data[0], Mailbox)
    boxes = await client.mailboxes.list().collect(prefetch=4)
    assert_type(boxes, Collected[Mailbox])
    assert_type(boxes.missing, int)
    steps = await client.campaigns.steps("camp_1")
    assert_type(steps, CampaignSteps)
    assert_type(steps.data[0], Step)
    fields = await client.workspaces.fields()
    assert_type(fields[0], WorkspaceField)
    assert_type(fields.response, ResponseInfo | None)
    first = await client.campaigns.list()
    assert_type(list(first), list[Campaign])
    assert_type(await first.next_page(), Page[Campaign] | None)
    assert_type(await client.campaigns.list().first(), Campaign | None)
    assert_type(await client.request("GET", "/campaigns", params={"page": 1}, json={"a": [1]}), Response)


def rows() -> Iterator[NewContact]:
    yield NewContact("a@b.example", first_name="A", last_name=None, custom={"custom_1": "x"})


async def stream() -> AsyncIterator[dict[str, str]]:
    yield {"email": "a@b.example"}


async def writes(client: OutreachClient) -> None:
    created = await client.contacts.create(NewContact("a@b.example"), duplicates="update_missing_fields", timeout=None)
    assert_type(created, CreatedContact)
    assert_type(created.certain, bool)
    assert_type(created.possible, frozenset[Outcome])
    async with client.contacts.create_many(stream(), order="input") as outcomes:
        async for outcome in outcomes:
            assert_type(outcome, ContactOutcome)
            assert_type(outcome.error, OutreachError | None)
    assert_type(await client.contacts.create_many(rows()), BulkReport)
    assert_type(await client.contacts.create(email="a@b.example", first_name="A", custom={"custom_1": "x"}), CreatedContact)
    typed: list[ContactRow] = [{"email": "a@b.example", "first_name": None, "campaign": "Spring"}]
    assert_type(await client.contacts.create_many(typed), BulkReport)


async def misspelled_writes(client: OutreachClient) -> None:
    await client.contacts.create(emial="a@b.example")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await client.contacts.create(email="a@b.example", first_nam="A")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    misspelled: ContactRow = {"emial": "a@b.example"}  # type: ignore[typeddict-item]  # pyright: ignore[reportAssignmentType]
    await client.contacts.create_many([misspelled])


def synchronous(client: SyncClient) -> None:
    for campaign in client.campaigns.list(display=5):
        assert_type(campaign, Campaign)
    assert_type(client.mailboxes.list().first(), Mailbox | None)
    assert_type(client.campaigns.steps("camp_1"), CampaignSteps)
    assert_type(client.request("GET", "/campaigns", body=b"x", params={"page": 1}), Response)
    client.campaigns.list(pages=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    client.contacts.create_many(rows(), order="inputs")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    SyncClient("https://api.example", timeouts=5.0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    assert_type(client.with_options(timeout=5.0), SyncClient)
    assert_type(client.contacts.create_many(rows(), order="input").wait(), BulkReport)
    assert_type(client.contacts.create(email="a@b.example", city=None), CreatedContact)
    client.contacts.create(emial="a@b.example")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def wiring() -> None:
    fake = FakeService(seed=0, behaviour=Behaviour(), clock="2026-01-01T00:00:00Z")
    space = fake.add_workspace("space_1", custom_fields=["Plan"])
    key = fake.add_owner_key(space)
    transport: Transport = Recording(FakeTransport(fake))
    async with OutreachClient(transport=transport, owner_key=key, workspace=space, retry=RetryPolicy(attempts=2)) as client:
        await reads(client.with_options(workspace="space_2", timeout=5.0))
        report = await audit(client, [space])
        for mailbox in await client.mailboxes.list().collect():
            for finding in check(mailbox):
                finding.rule.upper()
        report.to_dict()
    OutreachClient(transport=HttpxTransport("https://api.example"), hooks=[print])


async def note(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    return await handler(request)


def own_clients() -> None:
    HttpxTransport(httpx.AsyncClient(base_url="https://api.example"))
    HttpxTransport(httpx2.AsyncClient(base_url="https://api.example"))
    AiohttpTransport(aiohttp.ClientSession("https://api.example"), middlewares=[note])


def clients_of_another_kind() -> None:
    HttpxTransport(httpx.Client())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    HttpxTransport(aiohttp.ClientSession())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    AiohttpTransport(httpx.AsyncClient())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
