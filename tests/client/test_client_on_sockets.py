"""Faults on real sockets: every call raises the expected error or has a correct outcome, and the client stays usable."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import attrs
import pytest
from support.time import MOVABLE, jump
from support.transports import Make, over

from outreach_async import DuplicatePolicy, NewContact, Outcome, OutreachClient, Request, RetryPolicy
from outreach_async.errors import BulkSuspended, OutreachError, RateLimited, StatusError, TransportError, UnexpectedResponse
from outreach_async.fake import FakeService
from outreach_async.fake import faults as f
from outreach_async.fake.server import serve

CONTACT: Final = NewContact("ann@company.example", first_name="Ann")

FAULTS: Final[dict[str, tuple[f.Fault, type[OutreachError]]]] = {
    "closed early": (f.close(), TransportError),
    "reset": (f.reset(), TransportError),
    "hang": (f.hang(), TransportError),
    "slow drip": (f.slow_drip(every=0.1), TransportError),
    "truncated": (f.truncate(12), TransportError),
    "reset in mid body": (f.reset_mid_body(12), TransportError),
    "bad chunk": (f.malformed("bad_chunk"), TransportError),
    "no final chunk": (f.malformed("no_final_chunk"), TransportError),
    "garbage": (f.malformed("garbage"), TransportError),
    "header too long": (f.malformed("long_header"), TransportError),
    "wrong encoding": (f.malformed("wrong_encoding"), TransportError),
    "empty 200": (f.status(200, body=""), UnexpectedResponse),
    "HTML 200": (f.status(200, body="<html>maintenance</html>"), UnexpectedResponse),
    "200 with an error inside": (f.status(200, body='{"status":"error","error":{"message":"no"}}'), UnexpectedResponse),
    "HTML 502": (f.status(502, body="<html>", headers={"content-type": "text/html"}), StatusError),
    "503": (f.status(503), StatusError),
    "429": (f.status(429, retry_after=0), RateLimited),
}
"""Each fault, and the error of a call that is not retried."""

PATIENCE: Final = 30.0
"""Timeout per attempt, in seconds: enough on any machine. Faults that only a timeout ends advance the clock (see `Hurried`)."""

before_and_after = pytest.mark.parametrize("committed", [False, True], ids=["before the commit", "after the commit"])

POLICIES: Final[tuple[DuplicatePolicy, ...]] = ("skip", "overwrite", "update_missing_fields")


@attrs.frozen
class Hurried:
    """A service that lets the client's timeout expire as soon as a fault begins that only a timeout ends."""

    fake: FakeService

    def exchange(self, request: Request, /) -> f.Exchange:
        exchange = self.fake.exchange(request)
        if exchange.fault is not None and exchange.fault.kind in {"hang", "slow_drip"}:
            jump(PATIENCE)
        return exchange


@asynccontextmanager
async def world(make: Make, *, attempts: int = 1, hurried: bool = False) -> AsyncIterator[tuple[FakeService, OutreachClient]]:
    fake = FakeService(seed=3)
    space = fake.add_workspace()
    fake.add_mailboxes(space, 3)
    policy = RetryPolicy(attempts=attempts, backoff=0.0)
    async with serve(Hurried(fake) if hurried else fake) as url:
        client = OutreachClient(
            transport=make(url), owner_key=fake.add_owner_key(space), workspace=space, retry=policy, timeout=PATIENCE
        )
        async with client:
            yield fake, client


def stored(fake: FakeService, client: OutreachClient) -> list[dict[str, Any]]:
    return fake.contacts(str(client._settings.workspace))


@pytest.mark.nightly
@over("httpx", "aiohttp", "httptools", loops=MOVABLE)
@before_and_after
async def test_each_fault_of_a_read_is_a_named_error_and_the_client_stays_usable(make: Make, committed: bool) -> None:
    for name, (fault, kind) in FAULTS.items():
        async with world(make, attempts=2, hurried=True) as (fake, client):
            fake.faults.add(f.commit_then(fault) if committed else fault, operation="list_mailboxes")
            with pytest.raises(OutreachError) as caught:
                await client.mailboxes.list(deadline=None)  # with a deadline, a refused read is retried until the deadline
            assert type(caught.value) is kind, name
            assert caught.value.operation == "list_mailboxes", name
            assert caught.value.attempts == (1 if kind is UnexpectedResponse else 2), name
            fake.faults.clear()
            assert len((await client.mailboxes.list()).data) == 3, name


@over("httpx", "aiohttp", "httptools", loops=MOVABLE)
@before_and_after
async def test_an_error_never_denies_that_a_contact_may_have_been_created(make: Make, committed: bool) -> None:
    for name, (fault, kind) in FAULTS.items():
        async with world(make, hurried=True) as (fake, client):
            fake.faults.script("create_contact", f.commit_then(fault) if committed else fault)
            with pytest.raises(OutreachError) as caught:
                await client.contacts.create(CONTACT)
            assert type(caught.value) is kind, name
            assert caught.value.maybe_sent, name
            # A 429 is trusted to mean that nothing was done.
            assert caught.value.maybe_applied or not stored(fake, client) or name == "429", name


@pytest.mark.thorough
@over("httpx", "aiohttp", "httptools", loops=MOVABLE)
@before_and_after
async def test_a_creation_retried_after_any_fault_makes_one_contact(make: Make, committed: bool) -> None:
    for name, (fault, _) in FAULTS.items():
        if name == "200 with an error inside":
            continue  # a response of the service, which is not retried
        async with world(make, attempts=3, hurried=True) as (fake, client):
            fake.faults.script("create_contact", f.commit_then(fault) if committed and name != "429" else fault)
            created = await client.contacts.create(CONTACT, duplicates=POLICIES[len(name) % 3])
            assert Outcome.ADDED in created.possible, name  # the true outcome: the workspace was empty
            assert created.attempts >= 2, name
            assert len(stored(fake, client)) == 1, name


@pytest.mark.thorough
@over("httpx", "aiohttp", "httptools")
async def test_a_bulk_run_under_faults_has_a_true_outcome_for_every_row(make: Make) -> None:
    # The checks hold however many attempts time out, so a busy machine changes nothing.
    async with world(make, attempts=3) as (fake, served), served.with_options(timeout=0.7) as client:
        for number, (name, (fault, _)) in enumerate(FAULTS.items()):
            lost_answer = number % 2 == 1 and name != "429"  # a 429 is trusted to mean that nothing was done
            fake.faults.add(f.commit_then(fault) if lost_answer else fault, operation="create_contact", p=0.02)
        rows = [NewContact(f"user{number}@company.example") for number in range(120)]
        async with client.contacts.create_many(rows, concurrency=8) as outcomes:
            found = [outcome async for outcome in outcomes]
        stored_emails = {contact["email"] for contact in stored(fake, client)}
    assert sorted(outcome.index for outcome in found) == list(range(120))
    for outcome in found:
        truth = Outcome.ADDED if rows[outcome.index].email in stored_emails else Outcome.NOT_APPLIED
        assert truth in outcome.possible, outcome


@over("httpx", "aiohttp", "httptools")
async def test_a_content_length_too_small_is_an_error_on_every_backend(make: Make) -> None:
    async with world(make) as (fake, client):
        fake.faults.script("create_contact", f.wrong_length())
        with pytest.raises((UnexpectedResponse, TransportError)) as caught:
            await client.contacts.create(CONTACT)
        assert caught.value.maybe_applied
        assert len((await client.mailboxes.list()).data) == 3


@pytest.mark.thorough
@pytest.mark.covers
@over("httpx", "aiohttp", "httptools")
async def test_a_refused_connection_proves_that_nothing_was_sent(make: Make) -> None:
    dead = OutreachClient(
        transport=make("http://127.0.0.1:1"), owner_key="key_1", workspace="space_1", retry=RetryPolicy(attempts=2)
    )
    async with dead:
        with pytest.raises(TransportError) as caught:
            await dead.contacts.create(CONTACT)
        assert (caught.value.maybe_sent, caught.value.maybe_applied, caught.value.attempts) == (False, False, 2)
        with pytest.raises(BulkSuspended, match="service unreachable") as ended:
            await dead.contacts.create_many([CONTACT])
        assert ended.value.report is not None
        assert ended.value.report["outcomes"]["not_applied"] == 1
