"""Runs that an error stops: what they say, and what a resumed run sends again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.runs import OptedOut, client, rows
from support.scenarios import KEY, SPACE, new_fake
from support.time import virtual_time
from support.transport import Script, added, lost, skipped, status
from tools.journal_child import recorded_identity

from outreach_async import BulkStopped, InvalidRequest, Outcome, OutreachClient, RetryPolicy
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.store import Store

pytestmark = virtual_time

BLANK = {"email": ""}


def facts(store: Store) -> list[tuple[int, str, list[str]]]:
    return [(outcome.index, outcome.status.value, sorted(outcome.possible)) for outcome in store.outcomes()]


@pytest.mark.parametrize("code", [422, 425])  # 425 leaves open whether the row was applied
async def test_rows_that_the_service_rejected_before_a_stop_are_sent_again(journal: Store, code: int) -> None:
    people: list[Any] = [BLANK, *rows(20)]
    options: Any = {"journal": journal, "concurrency": 1, "stop_after_rejects": 3}
    policy = RetryPolicy(attempts=2, jitter=lambda: 0.0)
    script = Script(status(code), lost(), status(code), status(code))  # the second row may have been applied
    with pytest.raises(BulkStopped, match="the first 3 rows were all rejected") as stopped:
        await client(script, retry=policy).contacts.create_many(people, **options)
    assert stopped.value.report is not None
    assert stopped.value.report["rows"] == journal.report().rows == 4
    script = Script(status(422), skipped())
    report = await client(script, retry=policy).contacts.create_many(people, resume=True, **options)
    assert len(script.requests) == 20
    found = facts(journal)
    assert [label for _, label, _ in found] == ["rejected", "rejected", *["skipped"] * 19]
    possible = [possible for _, _, possible in found]
    certain, maybe = ["skipped"], ["added", "skipped"]
    assert possible[2:] == [maybe, certain if code == 422 else maybe, *[certain] * 17]
    assert possible[1] == (["rejected"] if code == 422 else ["added", "rejected", "skipped"])
    recorded = journal.report()
    assert (report.rows, report.outcomes) == (recorded.rows, recorded.outcomes)
    assert (recorded.outcomes[Outcome.REJECTED], recorded.outcomes[Outcome.SKIPPED], recorded.state) == (2, 19, "finished")
    assert report.uncertain == recorded.uncertain == sum(len(each) > 1 for each in possible)
    ((_, kind, data),) = journal.events()
    assert (kind, data) == ("resumed", {"after": "stopped", "reopened": 3})


async def test_rows_without_a_clear_answer_are_sent_again_with_rejected_ones(journal: Store) -> None:
    script = Script(status(422), status(200, b'{"status": "error"}'), status(422))
    with pytest.raises(BulkStopped):
        await client(script).contacts.create_many(rows(5), journal=journal, concurrency=1, stop_after_rejects=2)
    assert [label for _, label, _ in facts(journal)] == ["rejected", "unknown", "rejected"]
    script = Script(skipped())
    await client(script).contacts.create_many(rows(5), journal=journal, concurrency=1, resume=True)
    certain, maybe = ["skipped"], ["added", "skipped"]
    assert facts(journal) == [(at, "skipped", maybe if at == 1 else certain) for at in range(5)]
    assert len(script.requests) == 5


async def test_a_row_rejected_before_another_was_accepted_never_replaces_its_values(journal: Store) -> None:
    ann = [{"email": "ann@a.example", "city": city} for city in ("Oslo", "Rome")]
    with pytest.raises(BulkStopped):
        await client(Script(status(422), added(), status(401))).contacts.create_many(
            [*ann, *rows(1)], journal=journal, concurrency=1
        )
    script = Script(added())
    await client(script).contacts.create_many([*ann, *rows(1)], journal=journal, concurrency=1, resume=True)
    assert [label for _, label, _ in facts(journal)] == ["rejected", "added", "added"]
    assert len(script.requests) == 1


async def test_a_run_that_was_rejected_again_can_be_resumed_again(journal: Store) -> None:
    for attempt in range(3):
        with pytest.raises(BulkStopped):
            await client(Script(status(422))).contacts.create_many(
                rows(20), journal=journal, resume=attempt > 0, stop_after_rejects=5 + attempt, concurrency=1
            )
        assert journal.report().rows == 5 + attempt
    report = await client(Script(status(422))).contacts.create_many(
        rows(20), journal=journal, resume=True, stop_after_rejects=None
    )
    assert (report.rows, journal.report().rows) == (20, 20)


async def test_a_resumed_run_whose_rows_were_accepted_is_not_stopped_by_rejections(journal: Store) -> None:
    options: Any = {"journal": journal, "concurrency": 1, "stop_after_rejects": 3}
    with pytest.raises(BulkStopped, match="this error affects every row"):
        await client(Script(added(), status(401))).contacts.create_many(rows(20), **options)
    report = await client(Script(status(422))).contacts.create_many(rows(20), resume=True, **options)
    assert (report.outcomes[Outcome.ADDED], report.outcomes[Outcome.REJECTED]) == (1, 19)


@pytest.fixture
def fake() -> FakeService:
    return new_fake()


async def create(fake: FakeService, journal: Store, **options: Any) -> Any:
    async with OutreachClient(transport=FakeTransport(fake), owner_key=KEY, workspace=SPACE) as outreach:
        people = [OptedOut(email="out@a.example"), *({"email": f"user{number}@a.example"} for number in range(9))]
        return await outreach.contacts.create_many(people, journal=journal, concurrency=1, stop_after_rejects=2, **options)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "owner_key": ({"owner_key": "key_wrong"}, r"check owner_key= \(OUTREACH_OWNER_KEY\); then resume the run"),
    "workspace": ({"workspace": "space_wrong"}, "check campaign=, workspace= and base_url=; then resume the run"),
    "campaign": ({"campaign": "camp_wrong"}, "check campaign=, workspace= and base_url=; then resume the run"),
    "option": ({"strict_validation": False}, "fix the cause, or pass stop_after_rejects=None .*; then resume the run"),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_corrected_option_is_accepted_if_no_row_was_applied(fake: FakeService, journal: Store, wrong: str) -> None:
    options, remedy = WRONG[wrong]
    if wrong == "option":
        lenient = b'"strict_validation":false'
        fake.faults.add(faults.status(422), operation="create_contact", match=lambda request: lenient in request.body)
    with pytest.raises(BulkStopped, match=remedy):
        await create(fake, journal, **options)
    report = await create(fake, journal, resume=True)
    assert (report.rows, report.uncertain, len(fake.contacts(SPACE))) == (10, 0, 9)
    assert (journal.report().workspace, journal.report().outcomes[Outcome.ADDED]) == (SPACE, 9)
    assert (await create(fake, journal, resume=True)).rows == 10  # the journal has the corrected option


@pytest.mark.parametrize("earlier", ["added", "lost", "lost, then rejected", "killed"])
async def test_a_corrected_option_is_refused_if_a_row_may_have_been_applied(
    fake: FakeService, journal: Store, earlier: str
) -> None:
    answers = {"added": [faults.ok], "lost": [faults.reset()], "killed": []}
    fake.faults.script("create_contact", *answers.get(earlier, [faults.reset(), faults.status(422)]), faults.status(401))
    with pytest.raises(BulkStopped):
        await create(fake, journal)
    if earlier == "killed":
        writer = journal.writer(recorded_identity(journal), resume=True)
        writer.close()  # the journal says that its run has not ended
    with pytest.raises(InvalidRequest, match=r"campaign was null and is now .camp_other"):
        await create(fake, journal, campaign="camp_other", resume=True)


ELSEWHERE = r"check base_url= \(OUTREACH_BASE_URL\), because the answer is not that of the service"
CAUSES: dict[int, str] = {
    401: r"check owner_key= \(OUTREACH_OWNER_KEY\)",
    403: r"check owner_key= \(OUTREACH_OWNER_KEY\), which needs access to workspace=",
    404: "check campaign=, workspace= and base_url=",
    307: "check base_url",
    **dict.fromkeys((405, 501, 505), ELSEWHERE),
}


@pytest.mark.parametrize("code", CAUSES)
@pytest.mark.parametrize("record", ["nothing", "journal", "ledger"])
async def test_an_error_that_stops_a_run_names_its_own_remedy(tmp_path: Path, code: int, record: str) -> None:
    options: dict[str, Any] = {} if record == "nothing" else {record: tmp_path / "file"}
    options |= {"duplicates": "overwrite"}
    again = "resume the run" if record == "journal" else "run again"
    with pytest.raises(BulkStopped, match=f"this error affects every row: .*; {CAUSES[code]}; then {again}$"):
        await client(Script(status(code))).contacts.create_many(rows(3), **options)


LISTED: dict[int, str] = {
    401: "pass headers=, if the service needs an authorization$",
    403: "check workspace=, and pass headers= if the service needs an authorization$",
    404: "check workspace= and base_url=$",
}


@pytest.mark.parametrize("code", LISTED)
async def test_campaigns_that_cannot_be_listed_name_their_own_remedy(code: int) -> None:
    with pytest.raises(BulkStopped, match=f"the campaigns of space_1 cannot be listed: .*; {LISTED[code]}") as caught:
        await client(Script(status(code))).contacts.create_many([{"email": "a@a.example", "campaign": "Spring"}])
    assert caught.value.__cause__ is not None
