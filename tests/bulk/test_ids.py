"""Responses that reach the wrong rows, for example after a duplicated response: a repeated contact id reveals them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from support.time import virtual_time
from support.transport import added, skipped

from outreach_async import ContactOutcome, Outcome, OutreachClient, Progress, Request, Response, Store, UnexpectedResponse

pytestmark = virtual_time
UNSURE = {Outcome.NOT_APPLIED, Outcome.ADDED, Outcome.SKIPPED}


class Desynchronised:
    """Responds to each row according to its number, a little later than to the row before."""

    def __init__(self, answer: Callable[[int], Response], seconds: float = 1.0) -> None:
        self.answer = answer
        self.seconds = seconds

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        number = int(json.loads(request.body)["custom_1"])
        await anyio.sleep(number * self.seconds)
        return self.answer(number)

    async def aclose(self) -> None: ...


def run(transport: Any, rows: Any, **options: Any) -> Any:
    client = OutreachClient(transport=transport, owner_key="key_1", workspace="space_1")
    return client.contacts.create_many(rows, **options)


def rows(*emails: str) -> list[dict[str, str]]:
    return [{"email": email, "custom_1": str(number)} for number, email in enumerate(emails)]


async def outcomes_of(run: Any, wait: float = 0.0) -> list[ContactOutcome]:
    async with run as outcomes:
        await anyio.sleep(wait)
        return sorted([outcome async for outcome in outcomes], key=lambda each: each.index)


EMAILS = [f"user{number}@a.example" for number in range(4)]


@pytest.mark.parametrize("order", ["completion", "input"])
async def test_rows_that_share_an_id_become_uncertain_unless_already_delivered(order: Any) -> None:
    one_behind = Desynchronised(lambda number: added(f"contact_{number - (number > 1)}"))
    found = await outcomes_of(run(one_behind, rows(*EMAILS), order=order), wait=60)
    ids = [(True, "contact_0"), (False, None), (False, None), (True, "contact_2")]
    assert [(each.certain, each.id) for each in found] == ids
    assert all(each.status is Outcome.UNKNOWN and each.possible == UNSURE for each in found[1:3])
    assert all(isinstance(each.error, UnexpectedResponse) and each.error.maybe_sent for each in found[1:3])
    remedy = "one of the two responses was not meant for its row; a mock must give each response an id of its own"
    assert [str(each.error) for each in found[1:3]] == [
        f"create_contact: rows {own} and {other} received the same contact id; {remedy}" for own, other in ((1, 2), (2, 1))
    ]


@pytest.mark.parametrize("order", ["completion", "input"])
async def test_a_delivered_outcome_is_not_changed(order: Any) -> None:
    twice = Desynchronised(lambda _: added("contact_1"))
    found = await outcomes_of(run(twice, rows(*EMAILS[:2]), order=order))
    assert [each.certain for each in found] == [True, False]


@pytest.mark.parametrize(("seconds", "certain"), [(0.01, [False, False]), (5, [True, False])], ids=["uncommitted", "committed"])
async def test_an_outcome_in_a_journal_is_revised_until_it_is_committed(
    journal: Store, seconds: float, certain: list[bool]
) -> None:
    twice = Desynchronised(lambda _: added("contact_1"), seconds)
    found = await outcomes_of(run(twice, rows(*EMAILS[:2]), journal=journal), wait=60)
    assert [each.certain for each in found] == [each.certain for each in journal.outcomes()] == certain


OVERWRITTEN = Response(200, {}, b'{"status": "overwriten", "id": "contact_1", "details": null}')


@pytest.mark.parametrize(
    ("answer", "is_certain"), [(OVERWRITTEN, True), (skipped(), True), (added(), False)], ids=["one id", "none", "added twice"]
)
async def test_rows_whose_emails_may_be_equal_may_share_an_id_unless_both_are_added(answer: Response, is_certain: bool) -> None:
    found = await outcomes_of(run(Desynchronised(lambda _: answer), rows("Ann@a.example", "ann@a.example")))
    assert [each.certain for each in found] == [True, is_certain]


@pytest.mark.parametrize("earlier", ["a call", "a run"])
async def test_a_row_added_with_the_id_of_an_earlier_call_or_run_is_uncertain(earlier: str) -> None:
    transport = Desynchronised(lambda _: added("contact_1"))
    client = OutreachClient(transport=transport, owner_key="key_1", workspace="space_1")
    first = rows(EMAILS[0])
    if earlier == "a call":
        await client.contacts.create(first[0])
    else:
        await outcomes_of(client.contacts.create_many(first))
    found = await outcomes_of(client.contacts.create_many(rows(EMAILS[1])))
    assert [(each.id, each.possible) for each in found] == [(None, frozenset(UNSURE))]
