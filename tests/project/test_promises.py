"""Promises of the texts, each kept with a second feature switched on: runs, calls and the fake."""

from __future__ import annotations

import csv
import json
import logging
import pickle
import traceback
from base64 import b64encode
from collections.abc import Iterator
from functools import partial
from itertools import count, pairwise
from pathlib import Path
from typing import Any
from unicodedata import normalize

import anyio
import pytest
from support.control import PlaneClient
from support.fake import KEY, SPACE, create, creation_request
from support.journal import copy_of
from support.listener import refused_port
from support.promises import Desk, Promise, Promises, outcomes_of, people

from outreach_async import (
    BulkStopped,
    BulkSuspended,
    DeadlineExceeded,
    Excluded,
    HttpxTransport,
    InvalidRequest,
    Middleware,
    Outcome,
    OutreachError,
    Progress,
    RateLimited,
    Request,
    Response,
    RetryPolicy,
    SharedRate,
    StatusError,
    Store,
    Target,
    TransportError,
)
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.hooks import AttemptEnded, AttemptStarted, CallEnded, CallStarted
from outreach_async.sync import SyncClient

BULK, CONCEPTS, CHANGELOG = "outreach_async/bulk/__init__.py", "outreach_async/guides/concepts.py", "CHANGELOG.md"
NIGHTLY, OPERATING = "outreach_async/guides/nightly.py", "outreach_async/guides/operating.py"
COMMANDS, HOOKS = "outreach_async/guides/command_line.py", "outreach_async/hooks.py"
promise = Promises()
LOST = faults.commit_then(faults.reset())


# Runs.


@promise(BULK, "the same call with `resume=True` continues: every remaining row gets exactly one outcome.")
async def a_kill_with_a_spool_and_lost_responses(desk: Desk) -> None:
    desk.fake.faults.script("create_contact", *[LOST, faults.ok] * 3)
    copies: list[Store] = []

    def kill(event: object) -> None:
        if isinstance(event, AttemptEnded) and not copies and len(desk.created()) == 7:
            copies.append(copy_of(desk.store(), desk.folder))
            scope.cancel()

    options: Any = {"spool": True, "concurrency": 3}
    with anyio.CancelScope() as scope:
        await desk.client(hooks=[kill]).contacts.create_many(iter(people(12)), journal=desk.store(), **options)
    await desk.client().contacts.create_many([], journal=copies[0], resume=True, **options)
    found = list(copies[0].outcomes())
    assert [each.index for each in found] == list(range(12))
    sent_twice = {email for email in desk.created() if desk.created().count(email) > 1}
    assert all("added" in each.possible for each in found)
    assert {f"u{each.index}@a.example" for each in found if each.certain}.isdisjoint(sent_twice)
    assert len(sent_twice) < 12


@promise(BULK, "Once a run is finished, a call with the same rows returns the recorded report without a request; other rows are")
async def a_finished_run_of_cells(desk: Desk) -> None:
    rows = ["email,zip", "ann@a.example,'01234", "bo@a.example,NULL"]
    run = partial(desk.client().contacts.create_many, journal=desk.store(), duplicates="overwrite", blank="clear", resume=True)
    first, sent = await run(csv.DictReader(rows)), len(desk.fake.requests)
    again = await run(csv.DictReader(rows))
    assert (again.outcomes, len(desk.fake.requests)) == (first.outcomes, sent)
    for others in ([*rows[:2], "bo@a.example,5"], [*rows, "cy@a.example,5"], rows[:2]):
        with pytest.raises(InvalidRequest):
            await run(csv.DictReader(others))
    assert len(desk.fake.requests) == sent


@promise(
    BULK, 'With `"first"`, `"last"` and `"coalesce"`, the other rows are `not_applied`; `outcome.repeats` is the index of the'
)
async def repeats_in_a_store_with_lost_responses(desk: Desk) -> None:
    rows = [{"email": f"{name}@a.example", "city": str(at)} for at, name in enumerate("abAbac")]
    for policy, place, kept in (
        ("first", "ledger", [0, 1, 0, 1, 0, 5]),
        ("last", "ledger", [4, 3, 4, 3, 4, 5]),
        ("coalesce", "journal", [0, 1, 2, 1, 0, 5]),
    ):
        desk.fake.faults.script("create_contact", LOST)
        options: Any = {"repeats": policy, "duplicates": "overwrite", place: desk.store(policy)}
        found = await outcomes_of(desk.client().contacts.create_many(rows, **options))
        assert [each.repeats if each.status == "not_applied" else each.index for each in found] == kept
        assert all(each.repeats is None for each in found if each.index in kept)


@promise(CHANGELOG, "with an outcome for every row. A failed row raises nothing.")
async def rows_of_every_kind_with_the_last_of_repeats_and_a_ledger(desk: Desk) -> None:
    class Unsubscribed(dict[str, str]):
        def items(self) -> Any:
            raise Excluded("unsubscribed")

    odd: list[Any] = [None, 5, {"mail": "x"}, {"email": " "}, {"email": "\ud800"}, Unsubscribed(email="u1@a.example")]
    rows = [*people(3), *odd, *people(2), {"email": "zoe@a.example", "campaign": "camp_none"}, None]
    desk.fake.faults.script("create_contact", faults.status(422), LOST)
    options: Any = {"repeats": "last", "duplicates": "overwrite", "ledger": desk.store("l")}
    found = await outcomes_of(desk.client().contacts.create_many(rows, **options))
    assert [each.index for each in found] == list(range(len(rows)))
    assert [found[at].status for at in (0, 3, 8, 11, 12)] == ["not_applied", "rejected", "excluded", "rejected", "rejected"]


@promise(CHANGELOG, "an unchanged file sends nothing, also if it repeats e-mails with other values.")
async def an_unchanged_input_of_two_campaigns_that_clears(desk: Desk) -> None:
    rows = [
        {"email": f"u{at % 3}@a.example", "city": "" if at % 2 else str(at), "campaign": f"camp_{at % 2 + 1}"} for at in range(9)
    ]
    options: Any = {"ledger": desk.store("l"), "duplicates": "overwrite", "blank": "clear"}
    await desk.client().contacts.create_many(rows, **options)
    sent = len(desk.created())
    report = await desk.client().contacts.create_many(rows, **options)
    assert (report.outcomes[Outcome.UNCHANGED], len(desk.created())) == (9, sent)


@promise(NIGHTLY, "so rows that stay wrong in the input do not stop a run.")
async def a_rejected_row_of_a_run_that_ignores_changes(desk: Desk) -> None:
    desk.fake.faults.add(faults.status(422), operation="create_contact", match=lambda request: b"u0@" in request.body)
    run = partial(desk.client().contacts.create_many, ledger=desk.store("l"), changed="ignore", concurrency=1)
    await run(people(2), stop_after_rejects=2)
    for night in range(2, 4):
        report = await run(people(night), stop_after_rejects=1)
        assert (report.outcomes[Outcome.REJECTED], desk.created().count("u0@a.example")) == (1, night)


@promise(
    CONCEPTS, 'With `blank="clear"` (`--blank clear`) and `duplicates="overwrite"`, it is sent as null, and the service clears'
)
async def a_cleared_field_with_a_ledger(desk: Desk) -> None:
    for city in ("Lyon", "", "NULL", "Bern"):
        rows = csv.DictReader(["email,city", f"ann@a.example,{city}"])
        await desk.client().contacts.create_many(rows, duplicates="overwrite", blank="clear", ledger=desk.store("l"))
        sent: Any = desk.fake.requests.of("create_contact")[-1].json
        contact: Any = desk.fake.contact(SPACE, "ann@a.example")
        expected = city if city in {"Lyon", "Bern"} else None
        assert (sent["city"], contact["fields"].get("city")) == (expected, expected)
    with pytest.raises(InvalidRequest, match="blank: expected duplicates"):
        await desk.client().contacts.create_many(people(1), duplicates="update_missing_fields", blank="clear")


@promise(CONCEPTS, "An outcome is never more certain than the facts.")
async def lost_responses_of_repeated_rows_in_a_journal(desk: Desk) -> None:
    desk.fake.add_contacts(SPACE, people(20)[::2])
    for fault, times in ((LOST, 1), (faults.status(429), 1), (faults.ok, None)):
        desk.fake.faults.add(fault, operation="create_contact", match=lambda request: b"u1@" in request.body, times=times)
    for fault in (LOST, faults.commit_then(faults.status(503)), faults.reset(), faults.status(429, retry_after=1)):
        desk.fake.faults.add(fault, operation="create_contact", p=0.2)
    rows = [*people(20), *people(20)]
    found = await outcomes_of(desk.client().contacts.create_many(rows, journal=desk.store(), concurrency=8, repeats="first"))
    for each in found[:20]:
        assert ("added" if each.index % 2 else "skipped") in each.possible
        assert each.certain == (len(each.possible) == 1)
    assert any(not each.certain for each in found)


@promise(CHANGELOG, "A run that was stopped before the service accepted a row sends all rows again when it is resumed.")
async def a_stopped_run_with_another_campaign_and_a_spool(desk: Desk) -> None:
    desk.fake.faults.add(faults.status(422), operation="create_contact", times=3)
    run = partial(desk.client().contacts.create_many, journal=desk.store(), spool=True, concurrency=1)
    with pytest.raises(BulkStopped):
        await run(iter(people(5)), stop_after_rejects=3, campaign="camp_1")
    report = await run([], resume=True, campaign="camp_2", stop_after_rejects=3)
    assert report.outcomes[Outcome.ADDED] == report.rows == 5


@promise(
    BULK, "every row without an outcome counts as possibly sent, so `skipped` is never certain, not even when this run is resumed"
)
async def an_old_copy_of_a_journal_and_a_kill(desk: Desk) -> None:
    desk.fake.add_contacts(SPACE, people(6))
    run = partial(desk.client(rate=1).contacts.create_many, people(6), concurrency=1)
    async with run(journal=desk.store()) as outcomes:
        await anext(outcomes)
    async with run(journal=desk.store(), earlier="unknown") as outcomes:
        await anext(outcomes)
        killed = copy_of(desk.store(), desk.folder)
    await run(journal=killed, resume=True)
    assert [sorted(each.possible) for each in killed.outcomes()] == [["skipped"], *[["added", "skipped"]] * 5]


@promise(
    BULK,
    "in flight has room (with a journal or a ledger, of at most 6,200 rows), and leaves it when you receive its outcome.",
    long=True,
)
async def a_slow_consumer_of_outcomes_in_the_order_of_the_input(desk: Desk) -> None:
    for most, options in (
        (20, {}),
        (6_200, {"journal": desk.store()}),
        (6_200, {"ledger": desk.store("l"), "changed": "ignore"}),
    ):
        pulled = count()
        rows = ({"email": f"u{next(pulled)}@a.example"} for _ in range(8_000))
        async with desk.client().contacts.create_many(rows, concurrency=2, order="input", **options) as outcomes:
            for received in range(8):
                await anyio.sleep(5)
                assert (await anext(outcomes)).index == received
            assert 2 * received < next(pulled) < most


class InFlight(Middleware):
    """Finds requests for what may be one contact that are in flight at the same time."""

    def __init__(self, fake: FakeService) -> None:
        super().__init__(FakeTransport(fake))
        self.now: list[str] = []
        self.clashes: list[bytes] = []
        self.most = 0

    async def send(self, request: Request, progress: Progress, /) -> Response:
        key = normalize("NFKC", request.body.decode()).casefold().partition('"email":"')[2][:1]
        self.clashes += [request.body] * (key in self.now)  # the client would retry after an exception
        self.now.append(key)
        self.most = max(self.most, len(self.now))
        await anyio.sleep(1)
        self.now.remove(key)
        return await super().send(request, progress)


@promise(CHANGELOG, "(case, accents, NFKC, dots at Gmail and others) are never in flight at the same time.")
async def similar_e_mails_of_two_campaigns_with_faults(desk: Desk) -> None:
    desk.fake.faults.add(LOST, operation="create_contact", p=0.2)
    names = (
        "ann@gmail.com",
        "A.nn@gmail.com",
        "ann+x@gmail.com",
        "\uff41nn@gmail.com",
        "bo@x.example",
        "BO@x.example",
        "b\u00f3@x.example",
    )
    rows: list[Any] = [({"email": name}, Target(campaign=f"camp_{at % 2 + 1}")) for at, name in enumerate(names * 3)]
    transport = InFlight(desk.fake)
    report = await desk.client(transport=transport).contacts.create_many(rows, concurrency=8)
    assert (report.rows, transport.clashes, transport.most) == (21, [], 2)


@promise(OPERATING, "raises `BulkSuspended` after `max_outage` seconds")
async def an_outage_of_a_run_with_a_shared_rate(desk: Desk) -> None:
    desk.fake.faults.script("create_contact", faults.ok)
    desk.fake.faults.add(faults.status(503), operation="create_contact")
    rows = people(8)
    async with desk.client(rate=SharedRate(20)) as client:
        with pytest.raises(BulkSuspended) as raised:
            await client.contacts.create_many(rows, journal=desk.store(), max_outage=60, concurrency=2)
        assert 60 <= desk.time.elapsed < 150
        assert raised.value.resumable
        desk.fake.faults.clear()
        report = await client.contacts.create_many(rows, journal=desk.store(), resume=True)
    assert report.rows == len(desk.fake.contacts(SPACE)) == 8


@promise(CONCEPTS, "Neither contains an owner key.")
async def a_key_that_the_service_echoes_in_a_spooled_run(desk: Desk) -> None:
    desk.fake.faults.add(faults.status(422, body=f'{{"message": "key_1 and {KEY}: bad"}}'), operation="create_contact")
    rows = people(3)
    await desk.client().contacts.create_many(rows, journal=desk.store(), spool=True)
    await desk.client().contacts.create_many(rows, ledger=desk.store("l"), duplicates="overwrite")
    written = b"".join(path.read_bytes() for path in desk.folder.iterdir())
    assert b"u0@a.example" in written
    assert KEY.encode() not in written


@promise(BULK, "An exception of your iterable is raised after the outcomes of the rows before it.")
async def a_failing_iterable_with_a_journal(desk: Desk) -> None:
    def rows() -> Iterator[dict[str, str]]:
        yield from people(5)
        raise LookupError("no more")

    seen = list[int]()

    async def receive() -> None:
        async with desk.client().contacts.create_many(rows(), journal=desk.store()) as outcomes:
            async for each in outcomes:
                seen.append(each.index)

    with pytest.raises(LookupError):
        await receive()
    assert sorted(seen) == list(range(5))
    assert (await desk.client().contacts.create_many(people(7), journal=desk.store(), resume=True)).rows == 7


@promise(
    BULK, "Leaving the block early cancels the requests in flight; the journal records which of their rows may have been sent."
)
async def a_block_left_while_responses_hang(desk: Desk) -> None:
    desk.fake.faults.script("create_contact", faults.ok, faults.commit_then(faults.hang()))
    async with desk.client().contacts.create_many(people(9), concurrency=2, journal=desk.store()) as outcomes:
        await anext(outcomes)
    report = desk.store().report()
    assert report.possibly_sent >= 1
    await desk.client().contacts.create_many(people(9), journal=desk.store(), resume=True)
    hung = desk.created()[1]
    assert [each.certain for each in desk.store().outcomes() if f"u{each.index}@a.example" == hung] == [False]


# Calls.


@promise(
    OPERATING,
    "`deadline` (120 s) limits the whole call, including its retries, its waits and the wait for one of `max_in_flight`",
)
async def a_deadline_of_a_copy_while_every_slot_is_taken(desk: Desk) -> None:
    desk.fake.faults.add(faults.hang(), operation="list_fields")
    client = desk.client(max_in_flight=1, timeout=25)

    async def fields(deadline: float, began: float) -> None:
        with pytest.raises(OutreachError):
            await client.with_options(headers={"x-a": "b"}).workspaces.fields(deadline=deadline)
        assert desk.time.elapsed - began == pytest.approx(deadline, abs=0.1)

    async with anyio.create_task_group() as tasks:
        for deadline in (40.0, 10.0, 90.0):
            tasks.start_soon(fields, deadline, desk.time.elapsed)


@promise(CHANGELOG, "`max_retries` also bounds the attempts of a read that the service throttles,")
async def throttled_pages_that_are_read_ahead(desk: Desk) -> None:
    desk.fake.faults.add(
        faults.status(429, retry_after=2), operation="list_mailboxes", match=lambda each: "page=2" in each.target
    )
    with pytest.raises(RateLimited):
        await desk.client(max_retries=2).mailboxes.list(display=1).collect(prefetch=4)
    pages = [entry.target for entry in desk.fake.requests.of("list_mailboxes") if "page=2" in entry.target]
    assert len(pages) == 3


@promise(OPERATING, "at most `rate * t + max(1, rate / 10)` in any `t` seconds.")
async def the_rate_of_a_run_a_copy_and_their_retries(desk: Desk) -> None:
    desk.fake.faults.add(faults.status(503), p=0.2)
    async with desk.client(rate=20) as client, anyio.create_task_group() as tasks:
        tasks.start_soon(partial(client.mailboxes.list(display=1).collect, prefetch=2))
        for _ in range(10):
            tasks.start_soon(client.with_options(headers={"x-a": "b"}, max_retries=9).workspaces.fields)
        await client.contacts.create_many(people(60), duplicates="overwrite")
    times = [entry.at for entry in desk.fake.requests]
    for first, began in enumerate(times):
        for last in range(first, len(times)):
            assert last - first + 1 <= 20 * (times[last] - began) + 2 + 1e-4


@promise(OPERATING, "`Retry-After` pauses every task of the client.")
async def a_pause_of_a_run_and_of_a_copy(desk: Desk) -> None:
    desk.fake.faults.script("create_contact", faults.ok, faults.status(429, retry_after=30))
    client = desk.client(deadline=None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(outcomes_of, client.contacts.create_many(people(8), concurrency=1)))
        for wait in (0.2, 5, 10):
            await anyio.sleep(wait)
            tasks.start_soon(client.with_options(max_retries=1).workspaces.fields)
    refused = next(entry.at for entry in desk.fake.requests if entry.status == 429)
    assert not [entry for entry in desk.fake.requests if refused < entry.at < refused + 30]


@promise(HOOKS, "Every start event is followed by its end event, even after an error or a cancellation.")
async def a_run_with_faults_that_is_left_early(desk: Desk) -> None:
    desk.fake.faults.add(faults.hang(), operation="create_contact", p=0.1)
    desk.fake.faults.add(faults.reset(), operation="create_contact", p=0.2)
    desk.fake.faults.add(faults.status(503), operation="create_contact", p=0.3)
    events: list[Any] = []
    client = desk.client(hooks=[events.append], timeout=2)
    async with client.contacts.create_many(people(30), concurrency=6, journal=desk.store()) as outcomes:
        for _ in range(5):
            await anext(outcomes)
    with anyio.move_on_after(0.1):
        desk.fake.faults.script("list_fields", faults.hang())
        await client.with_options(max_retries=1).workspaces.fields()
    for start, end in ((CallStarted, CallEnded), (AttemptStarted, AttemptEnded)):
        begun, ended = ([event.call for event in events if isinstance(event, kind)] for kind in (start, end))
        assert sorted(begun) == sorted(ended) != []


@promise(HOOKS, "Events contain no body, no header except the request id, no contact and no secret.")
async def events_of_other_requests_and_of_runs(desk: Desk) -> None:
    events: list[Any] = []
    client = desk.client(hooks=[events.append], headers={"x-token": "hunter2-header"})
    echoes: Any = {"body": '{"message": "hunter2@a.example"}', "headers": {"x-more": "hunter2"}}
    desk.fake.faults.script("create_contact", faults.ok, faults.status(503, **echoes), faults.status(422, **echoes))
    await client.request("GET", f"/campaigns?workspace={SPACE}&token=hunter2-query", headers={"x-more": "hunter2-more"})
    await client.request("POST", "/contacts", json={"owner_key": KEY, "email": "hunter2@a.example"})
    await client.contacts.create_many([{"email": "hunter2@a.example", "city": "hunter2"}], journal=desk.store())
    assert len(events) > 10
    assert not [event for event in events if "hunter2" in repr(event) or KEY in repr(event)]


@promise(HOOKS, "An exception in a hook does not affect the call; the first exception of each hook is logged.")
async def a_hook_that_fails_in_a_copy_with_retries(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    def fail(event: object) -> None:
        raise ValueError(f"{event}")

    desk.fake.faults.script("create_contact", faults.status(503), LOST)
    made = await desk.client().with_options(hooks=[fail, fail]).contacts.create(people(1)[0])
    assert (made.attempts, made.certain) == (3, False)
    assert len([record for record in caplog.records if record.exc_info or "hook" in record.message]) == 2
    assert KEY not in caplog.text


@promise(CHANGELOG, "Only a 4xx other than 408, 425 and 499 proves that it was not applied.")
async def every_status_of_a_call_and_of_a_run(desk: Desk) -> None:
    client = desk.client(max_retries=0)
    for code in (*range(300, 310), *range(400, 430), 451, 499, *range(500, 512)):
        proof = 400 <= code < 500 and code not in {408, 425, 499}
        for wait in (None, 1):
            desk.fake.faults.script("create_contact", faults.commit_then(faults.status(code, retry_after=wait)))
            with pytest.raises(StatusError) as raised:
                await client.contacts.create(email=f"c{code}@a.example")
            assert raised.value.maybe_applied is not proof, (code, wait)
    for code in (422, 425, 500):
        desk.fake.faults.script("create_contact", faults.commit_then(faults.status(code)))
        (found,) = await outcomes_of(desk.client().contacts.create_many([{"email": f"r{code}@a.example"}], concurrency=1))
        assert ("added" in found.possible) is (code != 422)


@promise(CHANGELOG, "Owner keys and passwords appear in no `repr`, traceback, log, journal or report.")
def secrets_with_a_proxy_and_hooks(_: Desk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://user:hunter2@127.0.0.1:{refused_port()}")
    caplog.set_level(logging.DEBUG, "outreach_async")
    events: list[Any] = []
    transport = HttpxTransport("http://bob:hunter2@api.example")
    policy = RetryPolicy(attempts=1)
    shown = [repr(transport)]
    with SyncClient(
        transport=transport, owner_key=KEY + "hunter2", workspace=SPACE, hooks=[events.append], retry=policy
    ) as client:
        shown.append(repr(client))
        for call in (partial(client.contacts.create, email="a@a.example"), partial(client.request, "POST", "/x", json={"a": 1})):
            with pytest.raises(TransportError) as raised:
                call()
            shown += [
                *traceback.TracebackException.from_exception(raised.value, capture_locals=True).format(),
                repr(raised.value),
                repr(pickle.loads(pickle.dumps(raised.value))),  # noqa: S301 - our own bytes
            ]
    assert "127.0.0.1" in "".join(shown)
    for secret in ("hunter2", *(b64encode(user + b":hunter2").decode() for user in (b"user", b"bob"))):
        assert secret not in "".join([*shown, caplog.text, repr(events)])


@promise(CHANGELOG, "Errors can be pickled.")
async def errors_of_a_journalled_run_that_the_service_echoes_a_key_to(desk: Desk) -> None:
    desk.fake.faults.add(faults.status(422, retry_after=3, body=f'{{"message": "{KEY} is wrong"}}'), operation="create_contact")
    with pytest.raises(BulkStopped) as raised:
        await desk.client().contacts.create_many(people(4), journal=desk.store(), stop_after_rejects=2, concurrency=1)
    for error in (raised.value, *[each.error for each in desk.store().outcomes()]):
        assert error is not None
        copied = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
        assert (type(copied), str(copied), vars(copied)) == (type(error), str(error), vars(error))
        assert KEY not in str(copied)


@promise(
    "outreach_async/pagination.py",
    "repeats: Number of items that appeared again on a later page, because other items were inserted during the walk.",
)
async def items_that_are_inserted_while_pages_are_read_ahead(desk: Desk) -> None:
    desk.fake.behaviour = type(desk.fake.behaviour)(order="newest")
    for number in range(6):
        desk.fake.add_campaign(SPACE, name=f"c{number}")
    inserted = iter(range(3))
    shown: dict[str, list[Any]] = {}  # by page: one that was read ahead may be read again

    class Inserting(Middleware):
        async def send(self, request: Request, progress: Progress, /) -> Response:
            if "page=2" in request.target or "page=3" in request.target:
                for _ in inserted:
                    desk.fake.add_campaign(SPACE, name="new")
                    break
            response = await super().send(request, progress)
            shown[request.target] = json.loads(response.body)["data"]
            return response

    client = desk.client(transport=Inserting(FakeTransport(desk.fake)))
    found = await client.campaigns.list(display=2).collect(prefetch=3)
    assert len({each.id for each in found}) == len(found)
    assert found.repeats == sum(map(len, shown.values())) - len(found) > 0
    assert {f"c{number}" for number in range(6)} <= {each.name for each in found}


# The fake.


@promise(
    "outreach_async/fake/__init__.py", "A snapshot contains the stored data and the time, but neither faults nor the request log."
)
async def a_snapshot_after_faults(_: Desk) -> None:
    fake = FakeService()
    fake.add_workspace(SPACE)
    fake.add_owner_key(SPACE, key=KEY)
    before, dumped = fake.snapshot(), fake.dump()
    fake.faults.script("create_contact", faults.ok, faults.status(503))
    create(fake)
    fake.advance(days=2)
    fake.restore(before)
    assert (fake.dump(), fake.faults.unfired, len(fake.requests)) == (dumped, ["create_contact: status(503)"], 1)


@promise("outreach_async/fake/faults.py", "the same requests in the same order get the same faults again.")
async def faults_at_random_beside_a_script(_: Desk) -> None:
    def statuses(*others: faults.Fault) -> list[int]:
        fake = FakeService(seed=5)
        fake.add_workspace(SPACE)
        fake.faults.add(faults.status(503), operation="list_fields", p=0.4)
        for each in others:
            fake.faults.add(each, operation="create_contact", p=0.9)
        fake.faults.script("list_campaigns", faults.status(500))
        return [fake.handle(Request("GET", f"/workspaces/{SPACE}/all-fields")).status for _ in range(40)]

    assert statuses() == statuses(faults.reset()) != [200] * 40


@promise(
    "outreach_async/fake/control/__init__.py",
    "its own below a base URL of its own: data, behaviour, time, faults and request log.",
)
async def sandboxes_under_faults(desk: Desk) -> None:
    plane = PlaneClient(desk.fake)
    one, other = plane.sandbox(), plane.sandbox(seed=7)

    def states() -> Any:
        return [
            [each("GET", path) for path in ("/world", "/behaviour", "/faults", "/requests", "/time")] for each in (plane, other)
        ]

    before = states()
    one("POST", "/faults", {"fault": {"name": "status", "code": 503}, "times": 2})
    one("PATCH", "/behaviour", {"past_end": "error"})
    one("POST", "/time/advance", {"days": 1})
    request = creation_request()
    assert one.send("POST", "/contacts", request.body, **request.headers).status == 503
    assert states() == before
    one("DELETE", "/faults")
    assert one.send("POST", "/contacts", request.body, **request.headers).status == 201
    assert states() == before


@promise(
    "outreach_async/testing.py",
    "It can be used for several calls of `anyio.run`, one after another: each starts when the last one ended.",
)
def virtual_time_of_three_runs_with_a_deadline(desk: Desk) -> None:
    desk.fake.faults.add(faults.hang(), operation="list_fields")

    async def fields() -> None:
        with pytest.raises((DeadlineExceeded, TransportError)):
            await desk.client(timeout=None).workspaces.fields(deadline=100)

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(fields, backend=backend, backend_options=desk.time.options(backend))
    times = [entry.at for entry in desk.fake.requests]
    assert [later - earlier for earlier, later in pairwise(times)] == pytest.approx([100, 100])
    assert desk.time.elapsed == pytest.approx(300)


@pytest.mark.parametrize(("promise", "backend"), promise.cases())
def test_a_promise_about_calls_and_runs_is_kept(
    promise: Promise, backend: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    promise.check(tmp_path, backend, request)
