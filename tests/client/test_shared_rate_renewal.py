"""A client renews its share of a shared rate while it is open, concurrently with its requests."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, NoReturn

import anyio
import attrs
import pytest
from support.time import virtual_time

from outreach_async import NewContact, OutreachClient, RateShare, RateUsage, SharedRate
from outreach_async.errors import DeadlineExceeded, InvalidRequest, TransportError
from outreach_async.fake import FakeService, FakeTransport, faults

pytestmark = virtual_time


def raise_error(error: Exception) -> Callable[[], NoReturn]:
    def fail() -> NoReturn:
        raise error

    return fail


@attrs.define
class ScriptedRate:
    """A rate with one scripted answer for each report. It calls callables, and records every report with its time."""

    answers: Iterator[Any]
    reports: list[tuple[float, RateUsage]] = attrs.field(factory=list)

    async def renew(self, usage: RateUsage, /) -> RateShare:
        self.reports.append((anyio.current_time(), usage))
        answer = next(self.answers)
        share: RateShare = answer() if callable(answer) else answer
        return share


def share(rate: float = 10.0, expires_in: float = 1.5, hold: float = 0.0) -> RateShare:
    return RateShare(rate=rate, expires_in=expires_in, hold=hold)


def scripted(*answers: object) -> ScriptedRate:
    """Return a rate that gives these answers and then repeats the last one."""

    def run() -> Iterator[object]:
        yield from answers
        yield from repeat(answers[-1])

    return ScriptedRate(run())


@pytest.fixture
def service() -> FakeService:
    fake = FakeService()
    fake.add_workspace("space_1")
    return fake


def open_client(service: FakeService, rate: Any, **options: Any) -> OutreachClient:
    key = service.add_owner_key("space_1")
    return OutreachClient(
        **{"transport": FakeTransport(service), "workspace": "space_1", "owner_key": key, "rate": rate, **options}
    )


async def send(client: OutreachClient, number: int) -> list[float]:
    """Send requests concurrently, and return after how many seconds each was answered."""
    began, ends = anyio.current_time(), []

    async def one() -> None:
        await client.workspaces.fields()
        ends.append(anyio.current_time() - began)

    async with anyio.create_task_group() as group:
        for _ in range(number):
            group.start_soon(one)
    return ends


def rate_records(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.getMessage().startswith("rate:")]


async def test_requests_start_at_the_rate_of_the_share(service: FakeService) -> None:
    async with open_client(service, scripted(share(rate=10.0))) as client:
        ends = await send(client, 21)
    assert ends[-1] == pytest.approx(2.0, abs=0.05)


async def test_reports_come_four_times_a_second_and_twice_while_idle(service: FakeService) -> None:
    rate = scripted(share(rate=10.0))
    async with open_client(service, rate) as client:
        began = anyio.current_time()
        await send(client, 31)
        busy = [usage for at, usage in rate.reports if 0.9 < at - began < 1.9]
        await anyio.sleep(2)
        later = len(rate.reports)
        await anyio.sleep(10)
    assert len(busy) == 4
    assert 19 <= len(rate.reports) - later <= 21


async def test_a_report_says_what_was_wanted_answered_and_refused(service: FakeService) -> None:
    service.faults.script("list_fields", faults.status(429), faults.status(429, retry_after=2))
    rate = scripted(share(rate=100.0))
    async with open_client(service, rate) as client:
        await send(client, 5)
        await anyio.sleep(1)
    usages = [usage for _, usage in rate.reports]
    assert usages[0].seconds == 0
    assert sum(usage.completed for usage in usages) == 5
    assert sum(usage.refused for usage in usages) == 2
    assert 1.5 < max(usage.retry_after for usage in usages) <= 2.2
    assert max(usage.wanted for usage in usages) >= 5
    assert len({usage.client for usage in usages}) == 1
    assert sum(usage.seconds for usage in usages) == pytest.approx(rate.reports[-1][0] - rate.reports[0][0] - 2, abs=0.2)


async def test_nothing_is_sent_after_a_share_expired_until_the_next(service: FakeService) -> None:
    failing = [raise_error(TransportError("down"))] * 15
    async with open_client(service, scripted(share(rate=100.0, expires_in=1.0), *failing, share(rate=100.0))) as client:
        assert (await send(client, 1))[0] == pytest.approx(0.0, abs=0.01)
        await anyio.sleep(1.2)
        waited = await send(client, 1)
    assert 1 < waited[0] < 8


async def test_a_hold_delays_every_request(service: FakeService) -> None:
    async with open_client(service, scripted(share(hold=5.0), share(hold=4.5), share(hold=4.25), share())) as client:
        assert (await send(client, 1))[0] > 0.7


async def test_a_failing_rate_is_logged_once_and_once_when_it_is_back(
    service: FakeService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "outreach_async")
    failing = [raise_error(TransportError("no server"))] * 3
    async with open_client(service, scripted(share(), *failing, share(), raise_error(ValueError("p4ss")), "nonsense", share())):
        await anyio.sleep(10)
    assert rate_records(caplog) == [
        ("WARNING", "rate: renewing the share failed (TransportError: no server); nothing is sent after the last share expires"),
        ("INFO", "rate: renewing the share works again"),
        ("WARNING", "rate: renewing the share failed (ValueError); nothing is sent after the last share expires"),
        ("INFO", "rate: renewing the share works again"),
    ]


async def test_an_object_that_is_no_share_is_logged_and_not_used(service: FakeService, caplog: pytest.LogCaptureFixture) -> None:
    failure = "TypeError: renew() returned float instead of RateShare"
    async with open_client(service, scripted(5.0), deadline=3.0) as client:
        with pytest.raises(DeadlineExceeded) as caught:
            await client.workspaces.fields()
    expected = "list_fields: no attempt could start within the deadline of 3 s; renewing the share of the rate failed"
    assert str(caught.value) == f"{expected}: {failure}"
    assert (
        rate_records(caplog)[0][1] == f"rate: renewing the share failed ({failure}); nothing is sent after the last share expires"
    )


@pytest.mark.thorough
async def test_a_rate_that_hangs_delays_no_request_and_no_exit(service: FakeService) -> None:
    class Hanging:
        reports = 0

        async def renew(self, _usage: RateUsage, /) -> RateShare:
            self.reports += 1
            if self.reports > 1:
                await anyio.sleep_forever()
            return share(rate=100.0, expires_in=60.0)

    began = anyio.current_time()
    async with open_client(service, Hanging()) as client:
        await send(client, 300)
    assert anyio.current_time() - began < 3


@pytest.mark.parametrize("error", [KeyError("mine"), InvalidRequest("mine"), KeyboardInterrupt()])
async def test_an_error_of_the_block_passes_through_unchanged(service: FakeService, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with open_client(service, SharedRate()):
            raise error
    assert caught.value is error


async def test_a_cancelled_block_ends_the_reports_and_nothing_else(service: FakeService) -> None:
    rate = scripted(share())
    async with anyio.create_task_group() as group:
        with anyio.move_on_after(1) as scope:
            async with open_client(service, rate):
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        reports = len(rate.reports)
        await anyio.sleep(5)
        assert not group.cancel_scope.cancel_called
    assert len(rate.reports) == reports


@pytest.mark.parametrize("used", ["call", "run"])
@pytest.mark.parametrize("state", ["not open", "closed"])
async def test_a_client_that_is_not_open_says_so(service: FakeService, used: str, state: str) -> None:
    client = open_client(service, SharedRate())
    if state == "closed":
        async with client:
            pass
    with pytest.raises(InvalidRequest, match=r"^rate: a client with a shared rate works only while it is open; use `async with`"):
        await (client.workspaces.fields() if used == "call" else client.contacts.create_many([NewContact("a@a.example")]))
    await client.__aexit__(None, None, None)  # as an `AsyncExitStack` does to which an unopened client was pushed


async def test_a_client_with_a_shared_rate_is_opened_once_at_a_time(service: FakeService) -> None:
    client = open_client(service, SharedRate())
    async with client:
        with pytest.raises(InvalidRequest, match=r"^rate: the client is already open"):
            await client.__aenter__()
        assert await client.workspaces.fields()


async def test_a_client_reports_under_an_id_of_its_own_which_its_copies_share(service: FakeService) -> None:
    rate = scripted(share())
    async with open_client(service, rate) as client, open_client(service, rate), client.with_options(timeout=5.0) as copy:
        assert await copy.workspaces.fields()
        await anyio.sleep(1)
    assert len({usage.client for _, usage in rate.reports}) == 2
