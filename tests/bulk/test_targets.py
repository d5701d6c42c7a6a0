"""Rows that name their campaign and workspace, by id or name."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.runs import drain, outcomes_of
from support.scenarios import KEY, SPACE
from support.time import ALLOW_LOOP_FIXTURE, virtual_time
from support.transport import Script, added, status

from outreach_async import (
    BulkStopped,
    BulkSuspended,
    Campaign,
    ContactOutcome,
    InvalidRequest,
    NewContact,
    Outcome,
    OutreachClient,
    Progress,
    Request,
    Response,
    RetryPolicy,
    Target,
)
from outreach_async._plumbing import Targets
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.store import Store

pytestmark = virtual_time

OTHER = "space_2"
SPRING, AUTUMN, FAR = Target(SPACE, "camp_1"), Target(SPACE, "camp_2"), Target(OTHER, "camp_3")
NAMES = {"camp_1": "Spring", "camp_2": "Autumn", "camp_3": "Spring"}
NO_WORKSPACE = "list_campaigns: the service answered 404: no workspace has this id"


class Listed:
    """A transport to the fake that records the requests, and takes a while to list campaigns."""

    def __init__(self, fake: FakeService, answer: Response | None = None) -> None:
        self._inner = FakeTransport(fake)
        self._answer = answer
        self.listed: list[str] = []
        self.created: list[tuple[str, str, str | None]] = []

    async def send(self, request: Request, progress: Progress, /) -> Response:
        if request.method == "GET":
            self.listed.append(parse_qs(urlsplit(request.target).query)["workspace"][0])
            await anyio.sleep(1.0)
            if self._answer is not None:
                progress.sent = True
                return self._answer
        else:
            body = json.loads(request.body)
            self.created.append((body["email"], body["workspace"], body["upload_options"]["campaign"]))
        return await self._inner.send(request, progress)

    async def aclose(self) -> None: ...


class Slow(Listed):
    """A transport to a service whose responses take two seconds."""

    async def send(self, request: Request, progress: Progress, /) -> Response:
        await anyio.sleep(2.0)
        return await super().send(request, progress)


def service() -> FakeService:
    fake = FakeService()
    for workspace in (SPACE, OTHER):
        fake.add_workspace(workspace)
    fake.add_owner_key(SPACE, OTHER, key=KEY)
    for target in (SPRING, AUTUMN, FAR):
        fake.add_campaign(str(target.workspace), id=target.campaign, name=NAMES[str(target.campaign)])
    return fake


@pytest.fixture
def fake() -> FakeService:
    return service()


def client(transport: Any) -> OutreachClient:
    transport = FakeTransport(transport) if isinstance(transport, FakeService) else transport
    return OutreachClient(transport=transport, owner_key=KEY, workspace=SPACE, retry=RetryPolicy(attempts=2))


async def run(transport: Any, rows: Any, **options: Any) -> list[ContactOutcome]:
    options = {"order": "input", "stop_after_rejects": None, **options}
    return await outcomes_of(client(transport).contacts.create_many(rows, **options))


def campaigns_of(fake: FakeService) -> dict[tuple[str, str], list[str]]:
    """Return the campaigns of each contact, by workspace and e-mail."""
    return {(space, each["email"]): each["campaigns"] for space in (SPACE, OTHER) for each in fake.contacts(space)}


def spell(email: str, target: Target, way: str) -> object:
    """Return a row in one of the ways in which a row can name its target."""
    workspace, campaign = target
    if way == "pair":
        return NewContact(email), target
    if way == "mapping in a pair":
        return {"email": email}, target
    return {"email": email, "workspace": workspace, "campaign": NAMES.get(str(campaign)) if way == "name" else campaign}


ROWS = st.lists(
    st.tuples(
        st.integers(0, 5).map("user{}@a.example".format),
        st.sampled_from([SPRING, AUTUMN, FAR, Target(OTHER), Target(SPACE)]),
        st.sampled_from(["id", "name", "pair", "mapping in a pair"]),
    ),
    max_size=12,
)


@given(ROWS, st.sampled_from([None, "journal", "ledger", "spool"]))
@settings(max_examples=scaled(20), suppress_health_check=ALLOW_LOOP_FIXTURE)
async def test_a_run_with_targets_equals_the_runs_of_one_target_each(
    rows: list[tuple[str, Target, str]], record: str | None
) -> None:
    one, each = service(), service()
    options: dict[str, Any] = {"duplicates": "overwrite"}
    with TemporaryDirectory() as folder:
        if record == "ledger":
            options["ledger"] = Store(Path(folder, "ledger"), inline=True)
        elif record is not None:
            options |= {"journal": Store(Path(folder, "run.db"), inline=True), "spool": record == "spool"}
        found = await run(one, [spell(*row) for row in rows], **options)
    for target in dict.fromkeys(target for _, target, _ in rows):
        own = [{"email": email} for email, other, _ in rows if other == target]
        await run(each, own, duplicates="overwrite", workspace=target.workspace, campaign=target.campaign)
    assert {key: sorted(found) for key, found in campaigns_of(one).items()} == {
        key: sorted(found) for key, found in campaigns_of(each).items()
    }
    assert [outcome.target for outcome in found] == [target for _, target, _ in rows]


async def test_rows_without_a_value_have_the_target_of_the_run(fake: FakeService) -> None:
    rows: list[Any] = [{"email": "a@a.example"}, {"email": "b@a.example", "campaign": " ", "workspace": ""}]
    found = await run(fake, [*rows, (NewContact("c@a.example"), Target())], campaign="camp_2")
    assert {outcome.target for outcome in found} == {AUTUMN}
    assert [*campaigns_of(fake).values()] == [["camp_2"]] * 3


async def test_a_pair_that_cannot_be_sent_is_rejected_with_its_target(fake: FakeService, journal: Store) -> None:
    found = await run(transport := Listed(fake), [({"email": ""}, AUTUMN)], journal=journal)
    assert not transport.created
    assert [(outcome.status, outcome.target) for outcome in found] == [(Outcome.REJECTED, AUTUMN)]


@pytest.mark.parametrize(
    "row", [{"email": "", "city": "x"}, ({"email": ""},), ({"email": ""}, AUTUMN, 5), [{"email": ""}, AUTUMN]]
)
async def test_only_a_pair_that_cannot_be_sent_has_a_target(row: Any, fake: FakeService) -> None:
    found = await run(Listed(fake), [row], campaign="camp_1")
    assert [(outcome.status, outcome.target) for outcome in found] == [(Outcome.REJECTED, SPRING)]


async def test_an_unknown_name_rejects_its_row_before_it_is_sent(fake: FakeService) -> None:
    fake.add_campaign(SPACE, id="camp_4", name="Autumn")
    rows: list[Mapping[str, Any]] = [
        {"email": "a@a.example", "campaign": "Sprnig"},
        {"email": "b@a.example", "campaign": "Autumn"},
        {"email": "c@a.example", "campaign": 5},
        {"email": "d@a.example", "workspace": "Sales", "campaign": "camp_1"},
        {"email": "e@a.example", "campaign": ["camp_1"]},
        {"email": "f@a.example", "campaign": "\ud800"},
        {"email": "g@a.example", "workspace": "space_9", "campaign": "Spring"},
        {"email": "h@a.example", "campaign": "Nowhere near"},
    ]
    found = await run(transport := Listed(fake), rows)
    assert not transport.created
    assert {(outcome.status, outcome.target) for outcome in found} == {(Outcome.REJECTED, Target())}
    assert [str(outcome.error) for outcome in found] == [
        "campaign: expected the name of a campaign in space_1, got 'Sprnig'; did you mean 'Spring'?",
        "campaign: expected one campaign named 'Autumn' in space_1, got 2 with this name (camp_2, camp_4); use an id",
        "campaign: expected an id or a name, got int; pass a string",
        "workspace: expected an id (space_...), got 'Sales'; use its id",
        "campaign: expected an id or a name, got list; pass a string",
        "campaign: expected valid Unicode, got a lone surrogate at character 0; decode the input with the correct encoding",
        f"workspace: expected a known workspace, got 'space_9': {NO_WORKSPACE}; correct the id",
        "campaign: expected the name of a campaign in space_1, got 'Nowhere near'; use an id (camp_...), or the exact name",
    ]


async def test_a_row_of_another_workspace_does_not_get_the_campaign_of_the_run(fake: FakeService) -> None:
    (found,) = await run(fake, [{"email": "a@a.example", "workspace": OTHER}], campaign="camp_1")
    assert str(found.error) == (
        "campaign: expected a campaign of space_2, got none, and the run's campaign belongs to space_1;"
        " name a campaign in the row"
    )


@pytest.mark.parametrize("is_stream", [False, True])
async def test_rows_with_one_email_keep_order_and_index_while_campaigns_are_listed(fake: FakeService, is_stream: bool) -> None:
    rows = [{"email": "ann@a.example", "campaign": name} for name in ("Spring", "camp_2", None, "camp_1")]

    async def stream() -> AsyncIterator[Mapping[str, Any]]:
        for row in rows:
            yield row

    outcomes = await run(transport := Listed(fake), stream() if is_stream else rows, concurrency=4)
    assert [campaign for _, _, campaign in transport.created] == ["camp_1", "camp_2", None, "camp_1"]
    assert [outcome.index for outcome in outcomes] == [0, 1, 2, 3]


async def test_rows_of_a_stream_have_their_index_whichever_worker_takes_them(fake: FakeService) -> None:
    async def stream() -> AsyncIterator[Mapping[str, Any]]:
        for number in range(200):
            yield {"email": f"user{number}@a.example", "campaign": "Spring" if number % 7 == 3 else None}

    outcomes = await run(Listed(fake), stream(), concurrency=8)
    assert [str(outcome.contact["email"]) for outcome in outcomes] == [f"user{number}@a.example" for number in range(200)]  # type: ignore[index]


async def test_no_row_overtakes_one_whose_campaigns_are_being_listed(fake: FakeService) -> None:
    rows = [{"email": "bo@a.example"}, {"email": "ann@a.example", "campaign": "Spring"}, *[{"email": "ann@a.example"}] * 2]
    await run(transport := Listed(fake), iter(rows), concurrency=2)
    assert [campaign for email, _, campaign in transport.created if email == "ann@a.example"] == ["camp_1", None, None]


async def test_an_unknown_campaign_fails_only_the_rows_that_name_it(fake: FakeService) -> None:
    rows = [
        {"email": "a@a.example", "campaign": "camp_9"},
        {"email": "b@a.example", "workspace": "space_9"},
        {"email": "c@a.example", "campaign": "camp_1"},
    ]
    found = await run(fake, rows, concurrency=1)
    assert [outcome.status.value for outcome in found] == ["rejected", "rejected", "added"]
    assert [outcome.target for outcome in found] == [Target(SPACE, "camp_9"), Target("space_9"), SPRING]


async def test_an_unknown_campaign_of_the_run_stops_it(fake: FakeService) -> None:
    with pytest.raises(BulkStopped, match="this error affects every row"):
        await run(
            fake, [{"email": "a@a.example"}, {"email": "b@a.example", "campaign": "camp_1"}], campaign="camp_9", concurrency=1
        )


async def test_a_run_stops_if_every_row_names_one_unknown_campaign(fake: FakeService) -> None:
    rows = [{"email": f"user{number}@a.example", "campaign": "camp_9"} for number in range(99)]
    with pytest.raises(BulkStopped, match="the first 20 rows were all rejected"):
        await run(fake, rows, stop_after_rejects=20, concurrency=1)


ELSEWHERE = {"workspace": OTHER}


@pytest.mark.parametrize(
    ("answer", "row"), [(status(401), ELSEWHERE), (status(404), {}), (status(400), ELSEWHERE), (added(), {})], ids=repr
)
@pytest.mark.parametrize("journal", [False, True])
async def test_a_run_stops_if_campaigns_cannot_be_listed(
    answer: Response, row: dict[str, str], journal: bool, fake: FakeService, tmp_path: Path
) -> None:
    transport, record = Listed(fake, answer), Store(tmp_path / "run.db", inline=True) if journal else None
    with pytest.raises(BulkStopped, match=r"the campaigns of space_\d cannot be listed"):
        await run(transport, [{"email": "a@a.example", "campaign": "Spring", **row}], journal=record)
    assert not transport.created


async def test_rows_that_wait_for_campaigns_that_cannot_be_listed_are_not_applied(fake: FakeService) -> None:
    read, found = [0], list[ContactOutcome]()

    async def stream() -> AsyncIterator[Mapping[str, Any]]:
        for number in range(50):
            read[0] += 1
            yield {"email": f"user{number}@a.example", "campaign": "Spring"}

    transport = Listed(fake, status(401))
    async with client(transport).contacts.create_many(stream(), concurrency=4) as outcomes:
        with pytest.raises(BulkStopped, match="the campaigns of space_1 cannot be listed"):
            await drain(outcomes, found)
    assert {(outcome.status, str(outcome.error)) for outcome in found} == {
        (Outcome.NOT_APPLIED, "the run ended before this row was sent")
    }
    assert ([outcome.index for outcome in found], transport.listed) == ([*range(1, read[0])], [SPACE])


async def test_a_run_is_suspended_if_the_service_is_down_when_campaigns_are_listed(fake: FakeService) -> None:
    with pytest.raises(BulkSuspended, match="list_campaigns: the service answered 500"):
        await run(Listed(fake, status(500)), [{"email": "a@a.example", "campaign": "Spring"}])


@pytest.mark.parametrize("journal", [False, True])
async def test_a_drained_run_does_not_apply_rows_that_wait_for_a_list(journal: bool, fake: FakeService, tmp_path: Path) -> None:
    rows, record = (
        [{"email": "a@a.example", "campaign": "Spring"}],
        Store(tmp_path / "run.db", inline=True) if journal else None,
    )
    async with client(Listed(fake, status(429))).contacts.create_many(rows, journal=record) as outcomes:
        await anyio.sleep(1.5)
        outcomes.drain()
        found = [(outcome.index, outcome.status) async for outcome in outcomes]
    assert found == ([] if journal else [(0, Outcome.NOT_APPLIED)])


async def test_a_drained_run_with_a_row_in_flight_leaves_rows_that_wait_for_a_list(fake: FakeService, tmp_path: Path) -> None:
    async def stream() -> AsyncIterator[dict[str, str]]:
        yield {"email": "a@a.example", "campaign": "camp_1"}
        await anyio.sleep(0.1)
        yield {"email": "b@a.example", "campaign": "Spring"}

    journal = Store(tmp_path / "run.db", inline=True)
    async with client(Slow(fake, status(429))).contacts.create_many(stream(), journal=journal) as outcomes:
        await anyio.sleep(1.5)
        outcomes.drain()
        assert [outcome.index async for outcome in outcomes] == [0]


async def test_a_run_that_is_closed_while_campaigns_are_listed_ends(fake: FakeService) -> None:
    async with client(Listed(fake)).contacts.create_many([{"email": "a@a.example", "campaign": "Spring"}] * 3):
        await anyio.sleep(0.5)
    assert campaigns_of(fake) == {}


async def test_names_of_workspaces_may_come_from_a_mapping() -> None:
    targets = Targets(SPRING, workspaces={"Sales": OTHER})
    assert targets.find(Target("Sales", "camp_3")) == FAR
    for named, message in (Target("Slaes"), "did you mean 'Sales'"), (Target(OTHER, "Spring"), "unknown here, got 'Spring'"):
        with pytest.raises(InvalidRequest, match=message):
            targets.find(named)


async def test_similar_names_are_searched_for_only_for_the_first_100_unknown_names() -> None:
    targets = Targets(SPRING, workspaces={"Sales": OTHER})

    def suggests(name: str) -> bool:
        with pytest.raises(InvalidRequest, match=f"got '{name}'") as refused:
            targets.find(Target(name))
        return "did you mean 'Sales'" in str(refused.value)

    assert [suggests(f"Sales{number}") for number in range(101)] == [True] * 100 + [False]


async def test_a_campaign_on_two_pages_is_one_and_a_workspace_is_listed_once(fake: FakeService) -> None:
    campaigns, listed = await client(fake).campaigns.list().collect(), list[str]()

    async def twice(workspace: str) -> AsyncIterator[Campaign]:
        listed.append(workspace)
        for campaign in (*campaigns, *campaigns):
            yield campaign

    targets = Targets(Target(SPACE), twice)
    for _ in range(2):
        await targets.list_campaigns(SPACE)
    assert (targets.find(Target(campaign="Spring")), listed) == (SPRING, [SPACE])


def test_values_that_are_remembered_are_bounded(anyio_backend: object) -> None:
    del anyio_backend
    targets = Targets(SPRING)
    targets.add_campaigns(SPACE, ())
    for number in range(10_010):
        with pytest.raises(InvalidRequest, match="expected the name of a campaign"):
            targets.find(Target(None, f"name {number}"))
    assert len(targets._found) < 100


async def test_repeats_have_the_same_email_and_the_same_target(fake: FakeService, journal: Store) -> None:
    rows = [{"email": "ann@a.example", "city": city, "campaign": name} for city, name in [("Rome", "Spring"), ("Bern", "camp_2")]]
    rows += [{"email": "ann@a.example", "title": "CEO", "campaign": "camp_1"}]
    found = await run(fake, rows, repeats="error")
    assert [outcome.status.value for outcome in found] == ["added", "skipped", "rejected"]
    await run(fake, rows, repeats="coalesce", journal=journal, duplicates="overwrite")
    assert [outcome.repeats for outcome in journal.outcomes()] == [None, None, 0]
    assert (fake.contact(SPACE, "ann@a.example") or {})["fields"] == {"city": "Bern", "title": "CEO"}


@pytest.mark.parametrize("spool", [False, True])
async def test_a_journal_has_the_target_of_each_row_and_refuses_others(spool: bool, fake: FakeService, journal: Store) -> None:
    rows: list[Any] = [
        {"email": "a@a.example", "campaign": "Spring"},
        {"email": "b@a.example", "workspace": OTHER, "city": "Rome"},
        {"email": "c@a.example"},
        {"email": " ", "campaign": "camp_1"},
        {"email": "d@a.example", "campaign": "nowhere"},
    ]
    found = await run(fake, rows, journal=journal, spool=spool)
    targets = [SPRING, Target(OTHER), Target(SPACE), SPRING, Target()]
    assert [outcome.target for outcome in found] == targets
    assert [outcome.target for outcome in journal.outcomes()] == targets
    rows[0] = {"email": "a@a.example", "campaign": "camp_2"}
    with pytest.raises(InvalidRequest, match="the input changed"):
        await run(fake, rows, journal=journal, resume=True, spool=spool)


async def test_a_spooled_row_keeps_its_extra_fields_beside_its_target(fake: FakeService, tmp_path: Path) -> None:
    contact = NewContact("ann@a.example", custom={"custom_1": "x"}, extra={"campaign": "y"})
    transport, journal = Script(added()), Store(tmp_path / "run.db", inline=True)
    (found,) = await run(transport, [(contact, AUTUMN)], journal=journal, spool=True)
    body = json.loads(transport.requests[0].body)
    assert (found.status, found.target, body["upload_options"]["campaign"]) == (Outcome.ADDED, AUTUMN, "camp_2")
    assert (body["custom_1"], body["campaign"]) == ("x", "y")
    assert not fake.contacts(SPACE)


async def test_a_resumed_run_keeps_the_targets_of_its_rows(fake: FakeService, journal: Store) -> None:
    rows = [{"email": f"user{at}@a.example", "campaign": NAMES[f"camp_{at % 2 + 1}"]} for at in range(40)]

    def broken() -> Iterator[Mapping[str, str]]:
        yield from rows[:15]
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        await run(fake, broken(), journal=journal, concurrency=4)
    assert 0 < len([*journal.outcomes()]) < 40
    await run(fake, rows, journal=journal, resume=True)
    assert Counter(outcome.target for outcome in journal.outcomes()) == {SPRING: 20, AUTUMN: 20}
    assert campaigns_of(fake) == {(SPACE, f"user{at}@a.example"): [f"camp_{at % 2 + 1}"] for at in range(40)}


@pytest.mark.thorough
async def test_a_ledger_knows_each_contact_of_each_campaign(fake: FakeService, tmp_path: Path) -> None:
    options: dict[str, Any] = {"ledger": Store(tmp_path / "ledger", inline=True), "duplicates": "overwrite"}
    rows = [{"email": "ann@a.example", "campaign": "Spring"}, {"email": "ann@a.example", "campaign": "Autumn"}]
    rows += [{"email": "bo@a.example"}, {"email": "cy@a.example", "workspace": OTHER, "campaign": "Spring"}]
    first = await run(fake, rows, **options)
    assert [outcome.status.value for outcome in first] == ["added", "overwriten", "added", "added"]
    again = await run(transport := Listed(fake), [*rows, {"email": "bo@a.example", "campaign": "camp_2"}], **options)
    assert [outcome.status.value for outcome in again] == ["unchanged"] * 4 + ["overwriten"]
    assert [(outcome.id, outcome.target) for outcome in again[:4]] == [(outcome.id, outcome.target) for outcome in first]
    assert transport.created == [("bo@a.example", SPACE, "camp_2")]
    report = options["ledger"].contacts()
    assert report.targets == {Target(SPACE): 1, SPRING: 1, AUTUMN: 2, FAR: 1}
    await run(fake, rows[1:3], **options)
    assert options["ledger"].contacts().gone == 1  # the contact of Autumn; those of campaigns without a row are not compared
    await run(fake, rows[:1], **options)
    assert options["ledger"].contacts().gone == 1
    await run(fake, [{"email": " ", "campaign": "Autumn"}], **options)
    assert options["ledger"].contacts().gone == 2
    await run(fake, [], **options)
    assert options["ledger"].contacts().gone == 3  # the run's own contact


async def test_a_frame_may_have_a_column_of_campaigns(fake: FakeService) -> None:
    frame = pa.table({"email": ["a@a.example", "b@a.example", "c@a.example"], "campaign": ["Spring", None, "camp_2"]})
    found = await run(fake, frame)
    assert [outcome.target for outcome in found] == [SPRING, Target(SPACE), AUTUMN]
    numbers = pa.table({"email": [1, 2], "campaign": ["Spring", "nowhere"]})
    refused = await run(fake, numbers, numbers="reject")
    assert [outcome.target for outcome in refused] == [SPRING, Target()]


async def test_a_single_contact_takes_its_campaign_as_an_argument(fake: FakeService) -> None:
    with pytest.raises(InvalidRequest, match="campaign: not a field of a contact; pass it as an argument"):
        await client(fake).contacts.create({"email": "a@a.example", "campaign": "camp_1"})


@pytest.mark.parametrize("spool", [False, True])
async def test_a_campaign_may_be_renamed_before_its_run_is_resumed(spool: bool, fake: FakeService, tmp_path: Path) -> None:
    rows = [{"email": f"ann{number}@a.example", "campaign": "Spring"} for number in range(60)]
    options = {"journal": Store(tmp_path / "run.db", inline=True), "resume": True, "spool": spool}
    async with client(Slow(fake)).contacts.create_many(rows, concurrency=2, **options) as outcomes:  # type: ignore[arg-type]
        async for _ in outcomes:
            outcomes.drain()
    assert 0 < len(fake.contacts(SPACE)) < len(rows)
    no_campaigns = Response(200, {}, b'{"status":"ok","data":[],"meta":{"total_found":0,"page":1,"display":100}}')
    listed = Listed(fake, no_campaigns)  # the service no longer has a campaign with the name
    await run(listed, rows, **options)
    assert (listed.listed, {*map(tuple, campaigns_of(fake).values())}, len(fake.contacts(SPACE))) == (
        [],
        {("camp_1",)},
        len(rows),
    )


@pytest.mark.parametrize("kept", ["journal", "ledger"])
async def test_a_report_counts_the_outcomes_of_each_target(kept: str, fake: FakeService, tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"email": "ann@a.example", "campaign": "Spring"},
        {"email": "bo@a.example", "campaign": "Autumn"},
        {"email": "cy@a.example", "campaign": "Spring"},
        {"email": "", "campaign": "Autumn"},
    ]
    store = Store(tmp_path / "run.db", inline=True) if kept == "journal" else Store(tmp_path / "ledger", inline=True)
    options: dict[str, Any] = {kept: store, "duplicates": "overwrite", "concurrency": 1}
    report = await client(fake).contacts.create_many(rows, **options)
    found = {SPRING: {Outcome.ADDED: 2}, AUTUMN: {Outcome.ADDED: 1, Outcome.REJECTED: 1}}
    assert report.targets == found
    assert report.to_dict()["targets"][0] == {"workspace": SPACE, "campaign": "camp_1", "outcomes": {"added": 2}}
    if kept == "journal":
        assert store.report().targets == found
        resumed = await client(fake).contacts.create_many(rows, **options, resume=True)
    else:
        found = {SPRING: {Outcome.UNCHANGED: 2}, AUTUMN: {Outcome.UNCHANGED: 1, Outcome.REJECTED: 1}}
        resumed = await client(fake).contacts.create_many(rows, **options)
    assert (resumed.targets, resumed.rows) == (found, 4)
    alone = await client(fake).contacts.create_many(rows[:1])
    assert (alone.targets, "targets" in alone.to_dict()) == ({SPRING: {Outcome.SKIPPED: 1}}, False)
