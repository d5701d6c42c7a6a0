"""Several clients share one rate: how it is learned and divided, and what they achieve together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial

import anyio
import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.flow import Scenario
from support.rates import HostsResult, run_hosts
from support.time import virtual_time

from outreach_async import InvalidRequest, RateShare, RateUsage, SharedRate
from outreach_async.rates import RateCoordinator, water_level
from outreach_async.testing import VirtualTime

BUSY = 1000
DEMANDS = st.dictionaries(st.text("abcdef", min_size=1), st.integers(0, 200), min_size=1, max_size=8)


def report(client: str, wanted: int = BUSY, completed: int = 0, refused: int = 0, retry_after: float = 0.0) -> RateUsage:
    return RateUsage(client=client, seconds=0.25, wanted=wanted, completed=completed, refused=refused, retry_after=retry_after)


def settle(coordinator: RateCoordinator, demands: Mapping[str, int], since: float = 0.0) -> dict[str, RateShare]:
    """Let clients report four times a second for four seconds; return their last shares."""
    for tick in range(16):
        shares = {name: coordinator.step(report(name, wanted), since + tick / 4) for name, wanted in demands.items()}
    return shares


def learn(coordinator: RateCoordinator, allowed: int, since: float = 0.0) -> float:
    """Let two clients use a service that allows each of them `allowed` requests per quarter second; return the last rate."""
    due = {"a": 0.0, "b": 0.0}
    for tick in range(40):
        for name, requests in due.items():
            sent = int(requests)
            usage = report(name, completed=min(sent, allowed), refused=max(0, sent - allowed))
            due[name] = requests + coordinator.step(usage, since + tick / 4).rate / 4 - sent
    return coordinator.rate


@given(st.lists(st.floats(0, 1e6), max_size=9), st.floats(0.1, 1e6))
def test_a_rate_is_divided_with_max_min_fairness(demands: list[float], rate: float) -> None:
    level = water_level(rate, demands)
    if level == math.inf:
        assert sum(demands) <= rate * (1 + 1e-9)
    else:
        assert sum(min(level, demand) for demand in demands) == pytest.approx(rate)
        assert level >= rate / len(demands) * (1 - 1e-9)


@given(DEMANDS, st.floats(1, 1000))
def test_the_shares_of_busy_clients_never_exceed_the_rate(demands: dict[str, int], rate: float) -> None:
    shares = settle(RateCoordinator(rate), dict.fromkeys(demands, BUSY))
    assert sum(share.rate for share in shares.values()) == pytest.approx(rate)
    assert {share.expires_in for share in shares.values()} == {RateCoordinator.LIFETIME}


@given(DEMANDS, st.floats(1, 1000))
def test_a_client_gets_what_it_wants_or_an_equal_share(demands: dict[str, int], rate: float) -> None:
    shares = settle(RateCoordinator(rate), demands)
    for name, wanted in demands.items():
        assert shares[name].rate >= min(rate / len(demands), wanted / 0.25) * (1 - 1e-9)


def test_what_a_client_does_not_need_goes_to_the_others() -> None:
    shares = settle(RateCoordinator(100.0), {"busy": BUSY, "idle": 0, "slow": 5})
    assert shares["busy"].rate == pytest.approx(80)
    assert shares["slow"].rate == pytest.approx(25)  # the 20 per second that it needs, and some headroom
    assert shares["idle"].rate == 1


def test_a_new_client_gets_its_share_at_once_and_the_others_give_way() -> None:
    coordinator = RateCoordinator(90.0)
    settle(coordinator, {"a": BUSY, "b": BUSY})
    assert coordinator.step(report("c"), 4.0).rate == pytest.approx(30)
    assert coordinator.step(report("a"), 4.1).rate == pytest.approx(30)


def test_a_client_is_forgotten_when_its_share_expires() -> None:
    coordinator = RateCoordinator(90.0)
    settle(coordinator, {"a": BUSY, "b": BUSY})
    assert coordinator.step(report("a"), 3.75 + RateCoordinator.LIFETIME - 0.01).rate == pytest.approx(45)
    assert coordinator.step(report("a"), 3.75 + RateCoordinator.LIFETIME).rate == pytest.approx(90)


def test_an_unknown_limit_is_searched_from_below() -> None:
    coordinator = RateCoordinator()
    assert settle(coordinator, {"a": BUSY, "b": BUSY})["a"].rate == 5
    assert learn(coordinator, 10**6, since=4.0) > 100


def test_refusals_lower_the_rate_of_all_clients_to_what_is_allowed() -> None:
    coordinator = RateCoordinator()
    assert 40 < learn(coordinator, 10) <= 90


def test_a_configured_limit_is_used_at_once_and_lowered_by_refusals() -> None:
    coordinator = RateCoordinator(100.0)
    assert coordinator.rate == 100
    assert learn(coordinator, 10) < 90


def test_refusals_of_an_earlier_rate_do_not_lower_the_rate_again() -> None:
    coordinator = RateCoordinator(100.0)
    settle(coordinator, {"a": BUSY, "b": BUSY})
    coordinator.step(report("a", refused=3), 4.0)
    lowered = coordinator.rate
    assert lowered < 100
    coordinator.step(report("b", refused=3), 4.4)
    assert coordinator.rate == lowered


def test_a_report_of_three_refusals_lowers_a_high_rate_and_of_one_does_not() -> None:
    rates = []
    for refused in (1, 3):
        coordinator = RateCoordinator(900.0)
        for tick in range(8):
            coordinator.step(report("a", completed=225), tick / 4)
        coordinator.step(report("a", completed=225, refused=refused), 2.0)
        rates.append(coordinator.rate)
    assert rates[0] == 900 > rates[1]


def test_single_refusals_in_many_reports_lower_the_rate_only_for_a_while() -> None:
    coordinator, rates = RateCoordinator(900.0), []
    for tick in range(160):
        coordinator.step(report("a", completed=225, refused=1), tick / 4)
        rates.append(coordinator.rate)
    assert min(rates) == pytest.approx(720)
    assert sum(rates[80:]) / 80 > 0.9 * 900


def test_a_learned_limit_does_not_grow_during_a_hold() -> None:
    coordinator = RateCoordinator(900.0)
    for tick in range(8):
        coordinator.step(report("a", completed=225), tick / 4)
    coordinator.step(report("a", refused=3, retry_after=30.0), 2.0)
    lowered = coordinator.rate
    for at in range(3, 32):
        coordinator.step(attrs.evolve(report("a"), seconds=0.0), float(at))
    coordinator.step(report("a", completed=10), 32.0)
    assert coordinator.rate == lowered < 700


def test_a_limit_that_nobody_reaches_does_not_grow() -> None:
    coordinator = RateCoordinator()
    learned = learn(coordinator, 10)
    for tick in range(400):
        coordinator.step(report("a", wanted=1, completed=1), 20 + tick / 4)
    assert coordinator.rate == pytest.approx(learned, rel=0.05)


def test_a_retry_after_holds_all_clients_which_then_start_in_turn() -> None:
    coordinator = RateCoordinator(10.0)
    settle(coordinator, {"a": BUSY, "b": BUSY})
    assert coordinator.step(report("b", refused=1, retry_after=2.0), 4.0).hold > 2
    first, second = coordinator.step(report("a"), 4.5).hold, coordinator.step(report("b"), 4.5).hold
    assert first == pytest.approx(1.5)
    assert second == pytest.approx(1.5 + 1 / coordinator.rate)
    assert coordinator.step(report("a"), 6.0).hold == 0


def test_a_clock_that_is_set_back_changes_nothing() -> None:
    coordinator = RateCoordinator(90.0)
    settle(coordinator, {"a": BUSY, "b": BUSY}, since=1e6)
    assert coordinator.step(report("a"), 0.0).rate == pytest.approx(45)
    assert coordinator.step(report("a"), RateCoordinator.LIFETIME).rate == pytest.approx(90)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 99), st.integers(0, 9), st.integers(0, 9), st.floats(0, 3))))
def test_every_share_is_positive_and_finite(steps: list[tuple[str, int, int, int, float]]) -> None:
    coordinator, now = RateCoordinator(), 0.0
    for client, wanted, completed, refused, pause in steps:
        now += pause
        share = coordinator.step(report(client, wanted, completed, refused, pause if refused else 0.0), now)
        assert 0 < share.rate < math.inf  # `RateShare` checks this too


@pytest.mark.parametrize("field", ["seconds", "wanted", "completed", "refused", "retry_after"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, None, True])
def test_a_report_with_an_impossible_number_is_refused(field: str, value: float) -> None:
    numbers: dict[str, float] = {"seconds": 1, "wanted": 1, "completed": 1, "refused": 1, "retry_after": 1, field: value}
    with pytest.raises(InvalidRequest, match=f"^{field}: expected a finite number of at least 0, got"):
        RateUsage(client="a", **numbers)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("field", "bound"), [("rate", "greater than 0"), ("expires_in", "greater than 0"), ("hold", "of at least 0")]
)
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "1"])
def test_a_share_with_an_impossible_number_is_refused(field: str, bound: str, value: object) -> None:
    numbers: dict[str, object] = {"rate": 1, "expires_in": 1, "hold": 0, field: value}
    with pytest.raises(InvalidRequest, match=f"^{field}: expected a finite number {bound}, got"):
        RateShare(**numbers)  # type: ignore[arg-type]


def test_a_limit_that_is_no_positive_number_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"^limit: expected a finite number of requests per second"):
        SharedRate(limit=0)


@virtual_time
async def test_a_shared_rate_uses_the_clock_of_the_event_loop() -> None:
    rate = SharedRate(limit=90.0)
    await rate.renew(report("a"))
    assert (await rate.renew(report("b"))).rate == pytest.approx(45)
    await anyio.sleep(RateCoordinator.LIFETIME)
    assert (await rate.renew(report("b"))).rate == pytest.approx(90)


def share(scene: Scenario, clients: int, ends: Mapping[int, float] | None = None) -> HostsResult:
    run = partial(run_hosts, scene, clients, ends=ends, rate=SharedRate())
    return anyio.run(run, backend_options=VirtualTime().options("asyncio"))


@pytest.mark.nightly
@pytest.mark.parametrize("clients", [2, 8])
@pytest.mark.parametrize(("retry_after", "goodput"), [(None, 0.93), (1.0, 0.87)], ids=["429", "retry-after"])
def test_clients_share_a_learned_rate_fairly_and_use_it(clients: int, retry_after: float | None, goodput: float) -> None:
    result = share(Scenario(seconds=120, limits=[(0, 50.0)], asks=retry_after), clients)
    assert result.goodput >= goodput
    assert result.refusals <= 0.005
    assert result.fairness >= 0.9


@pytest.mark.thorough
def test_the_share_of_a_killed_client_goes_to_the_others_in_seconds() -> None:
    result = share(Scenario(seconds=40, limits=[(0, 50.0)]), 4, ends={3: 25.0})
    after = [sum(at >= 26 for at in times) for times in result.added]
    assert after[3] == 0
    assert max(after[:3]) <= 1.1 * min(after[:3])
    assert sum(27.5 <= at < 37.5 for times in result.added for at in times) >= 0.9 * 50 * 10
