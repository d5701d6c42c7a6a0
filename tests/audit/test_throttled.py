"""Audits of a service that limits the rate, or that is down for a while."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Any

import anyio
import pytest
from support.flow import Scenario, Trouble
from support.rates import AuditResult, run_audit

from outreach_async.testing import VirtualTime


@pytest.fixture
def play(anyio_backend_name: str) -> Any:
    """Return a function that runs an audit in virtual time."""
    options = VirtualTime().options(anyio_backend_name)
    return lambda *values, **given: anyio.run(
        partial(run_audit, *values, **given), backend=anyio_backend_name, backend_options=options
    )


def on_one_loop(name: str) -> pytest.MarkDecorator:
    """Run a test on one event loop only; other tests check that both loops give the same result."""
    return pytest.mark.parametrize("anyio_backend_name", [name])


@pytest.mark.nightly
@pytest.mark.parametrize("in_flight", [8, 64])
@pytest.mark.parametrize("asks", [None, 1.0])
@pytest.mark.parametrize("burst", [4, 40])
@on_one_loop("asyncio")
def test_400_workspaces_are_read_under_a_limit_of_40_per_second(
    play: Any, burst: float, asks: float | None, in_flight: int
) -> None:
    scene = Scenario(seconds=0, limits=[(0, 40)], burst=burst / 40, asks=asks)
    result: AuditResult = play(scene, 400, max_in_flight=in_flight)
    assert result.report.unreadable == []
    assert result.slowdown <= (1.3 if asks is None else 2.3)


@pytest.mark.thorough
@pytest.mark.parametrize("in_flight", [8, 50, 64])
@on_one_loop("trio")
def test_500_workspaces_take_as_many_rounds_as_slots_require(play: Any, in_flight: int) -> None:
    scene = Scenario(seconds=0, limits=[(0, 1e6)], latency=0.1)
    result: AuditResult = play(scene, 500, max_in_flight=in_flight)
    assert result.report.unreadable == []
    assert result.seconds <= 1.2 * math.ceil(500 / in_flight) * 0.1


@pytest.mark.thorough
@pytest.mark.parametrize("workspaces", [1, 3, 100])
@pytest.mark.parametrize("kind", ["refused", "503", "hanging", "429"])
def test_an_outage_of_five_minutes_makes_no_workspace_unreadable(play: Any, kind: Trouble, workspaces: int) -> None:
    scene = Scenario(seconds=0, limits=[(0, 1000)], latency=0.5, outages=[(0.1, 300, kind)])
    result: AuditResult = play(scene, workspaces + 1, max_in_flight=1 if workspaces < 100 else 64)
    assert result.report.unreadable == []
    assert 300 <= result.seconds <= 300 + 60 + 30 + 15


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("kind", "seconds", "message"), [("refused", 3.5, "nobody listens"), ("503", 901, "503"), ("429", 901, "429")]
)
@on_one_loop("asyncio")
def test_an_endless_outage_ends_the_audit_with_its_error(play: Any, kind: Trouble, seconds: float, message: str) -> None:
    result: AuditResult = play(Scenario(seconds=0, limits=[(0, 100)], outages=[(0, 9999, kind)]), 100)
    assert len(result.report.unreadable) == 100
    assert result.seconds <= seconds
    texts = {finding.message for finding in result.report.findings}
    assert all(message in text and "suspended" not in text for text in texts)


@pytest.mark.nightly
@pytest.mark.parametrize("headers", [{}, {"retry-after": "1"}, {"retry-after": "30"}], ids=str)
@pytest.mark.parametrize(("workspaces", "in_flight"), [(4, 1), (400, 8), (400, 64)])
@on_one_loop("trio")
def test_a_workspace_that_always_fails_delays_others_at_most_once(
    play: Any, workspaces: int, in_flight: int, headers: dict[str, str]
) -> None:
    scene = Scenario(seconds=0, limits=[(0, 1e6)], latency=0.1)
    undisturbed: AuditResult = play(scene, workspaces, max_in_flight=in_flight)
    result: AuditResult = play(scene, workspaces, max_in_flight=in_flight, broken={"space_1": headers})
    assert result.report.unreadable == ["space_1"]
    sent = {target.partition("workspace=")[2].partition("&")[0]: times for target, times in result.service.sent.items()}
    assert len(sent["space_1"]) <= 5
    others_done = max(times[-1] for space, times in sent.items() if space != "space_1")
    assert others_done <= undisturbed.seconds + 1 + 1.2 * float(headers.get("retry-after", 0)) + 2


@pytest.mark.thorough
def test_workspaces_not_read_before_the_deadline_are_reported(play: Any) -> None:
    result: AuditResult = play(Scenario(seconds=0, limits=[(0, 10)]), 100, deadline=4.0)
    assert result.seconds == pytest.approx(4)
    assert 10 <= result.report.mailboxes <= 42
    assert len(result.report.unreadable) == 100 - result.report.mailboxes
    (message,) = {finding.message for finding in result.report.findings}
    assert message.startswith("could not be read: the deadline of 4 s for the audit passed")
    assert result.report.exit_code() == 3


def test_nothing_is_sent_after_the_deadline_of_an_audit(play: Any) -> None:
    scene = Scenario(seconds=0, limits=[(0, 100)], latency=0.5, outages=[(0, 9999, "hanging")])
    result: AuditResult = play(scene, 50, deadline=0.1, max_in_flight=2)
    assert result.seconds == pytest.approx(0.1)
    assert (len(result.service.started), result.report.mailboxes) == (2, 0)


@pytest.mark.parametrize(("kind", "reason"), [("refused", "nobody listens"), ("503", "503")])
def test_with_a_deadline_an_audit_waits_for_a_service_never_reached(play: Any, kind: Trouble, reason: str) -> None:
    scene = Scenario(seconds=0, limits=[(0, 100)], outages=[(0, 50, kind)])
    result: AuditResult = play(scene, 2, deadline=1200.0)
    assert result.report.unreadable == []
    result = play(scene, 2, deadline=40.0)
    assert result.seconds == pytest.approx(40)
    (message,) = {finding.message for finding in result.report.findings}
    assert re.fullmatch(
        f"could not be read: the deadline of 40 s for the audit passed; the last request failed: .*{reason}.*", message
    )


@on_one_loop("trio")
def test_a_deadline_longer_than_15_minutes_outlasts_an_outage_of_20_minutes(play: Any) -> None:
    result: AuditResult = play(Scenario(seconds=0, limits=[(0, 100)], outages=[(0, 1200, "503")]), 2, deadline=3600.0)
    assert result.report.unreadable == []
