"""The small parts of a bulk run: possibly sent rows, the order of outcomes, rates, progress, and stopping on rejects."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from attrs import evolve
from hypothesis import example, given
from hypothesis import strategies as st
from support.runs import client, rows
from support.time import virtual_time
from support.transport import Script, added, lost, status

from outreach_async import BulkProgress, BulkStopped, ContactOutcome, Outcome, Response, RetryPolicy
from outreach_async._cli.output import format_progress
from outreach_async._core.operations import AttemptInfo
from outreach_async._plumbing import RateEstimator, RecentEmails
from outreach_async.bulk._outcomes import RecentIds, answered_outcome
from outreach_async.bulk._rows import PossiblySent
from outreach_async.models import CreateContactResponse

RANGES = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6)


def outcome(index: int) -> ContactOutcome:
    return answered_outcome(
        index,
        None,
        CreateContactResponse(status=Outcome.ADDED, id="contact_1", details=None),
        AttemptInfo(1, maybe_applied=False),
    )


@given(st.lists(st.integers(0, 40)), RANGES, st.integers(0, 41))
def test_possibly_sent_rows_are_exactly_those_passed(indexes: list[int], ranges: list[tuple[int, int]], since: int) -> None:
    expected = {*indexes, *(row for first, end in ranges for row in range(first, end))}
    possibly_sent = PossiblySent.of(indexes, ranges)
    assert {row for row in range(-1, 45) if row in possibly_sent} == expected
    assert {row for row in range(45) if row in possibly_sent.starting_at(since)} == {row for row in expected if row >= since}
    assert all(end < first for (_, end), (first, _) in zip(possibly_sent.ranges, possibly_sent.ranges[1:], strict=False))
    assert PossiblySent.of(ranges=possibly_sent.ranges) == possibly_sent


@given(st.lists(st.sampled_from(["a", "A", " a", "b", "c"]), max_size=30), st.integers(1, 10))
@example(["a", "b", "c", "a"], 1)
@example(["a", "b", "a", "b", "a"], 2)
def test_a_repeated_email_within_reach_refers_to_the_row_that_was_sent(emails: list[str], reach: int) -> None:
    recent, sent = RecentEmails(reach), dict[str, int]()
    keys = [email.strip().lower() for email in emails]
    for index, (email, key) in enumerate(zip(emails, keys, strict=True)):
        if key not in keys[max(0, index - reach) : index]:
            sent[key] = index
        assert recent.find_earlier(index, email) == (None if sent[key] == index else sent[key])


@given(st.floats(0.5, 10_000), st.lists(st.floats(0.1, 20), min_size=1, max_size=50))
def test_a_steady_rate_is_measured_correctly_however_often_it_is_read(rate: float, steps: list[float]) -> None:
    now = 100.0
    pace = RateEstimator(now)
    for step in steps:
        now += step
        pace.add(round(rate * step * 1000))
        assert pace.rate(now) / 1000 == pytest.approx(rate, rel=0.02, abs=0.02)


def test_a_rate_forgets_old_rows() -> None:
    pace = RateEstimator(0.0)
    for second in range(600):
        pace.add(100)
        pace.rate(second + 1.0)
    for second in range(600, 720):
        pace.add(10)
        pace.rate(second + 1.0)
    assert pace.rate(720.0) == pytest.approx(10, rel=0.2)
    assert RateEstimator(0.0).rate(0.0) == 0


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ({}, "1 of 2,000 rows, 1,234 rows/s, ETA 0:01:40"),
        ({"rate": 1.25, "eta": None, "total": None}, "1 rows, 1.2 rows/s"),
        ({"state": "throttled"}, "1 of 2,000 rows, 1,234 rows/s, throttled, ETA 0:01:40"),
        ({"rate": 0.0, "state": "paused", "resumes": 42.0, "eta": None}, "1 of 2,000 rows, 0 rows/s, paused for 0:00:42"),
        (
            {"state": "paused", "resumes": 42.0, "why": "[x]", "eta": None},
            "1 of 2,000 rows, 1,234 rows/s, paused for 0:00:42 ([x])",
        ),
    ],
)
def test_a_progress_as_text_shows_the_rows_the_rate_the_state_and_the_eta(progress: dict[str, Any], text: str) -> None:
    values: dict[str, Any] = {"rows": 1, "total": 2000, "rate": 1234.4, "state": "running", "resumes": 0.0, "eta": 100.0}
    assert str(BulkProgress(**values | progress)) == text


def test_a_terminal_shows_a_progress_without_control_characters_and_exceptions() -> None:
    why = "create_contact: ConnectError: \x1b refused"
    paused = BulkProgress(rows=1, total=2, rate=0.0, state="paused", resumes=0.0, eta=None, why=why)
    assert format_progress(paused) == "1 of 2 rows, 0 rows/s, paused (create_contact: \\x1b refused)"


@pytest.mark.thorough
@virtual_time
async def test_the_eta_is_within_15_percent_after_5_percent_of_a_steady_run() -> None:
    began = anyio.current_time()
    async with client(Script(added(), seconds=1.0)).contacts.create_many(rows(4000), concurrency=10, total=4000) as outcomes:
        async for seen in outcomes:
            if seen.index == 200:
                progress, then = outcomes.progress, anyio.current_time() - began
    whole = anyio.current_time() - began
    assert progress.eta is not None
    assert then + progress.eta == pytest.approx(whole, rel=0.15)
    assert (progress.state, progress.total, outcomes.progress.eta) == ("running", 4000, 0)


@virtual_time
async def test_progress_shows_a_pause_and_its_end() -> None:
    script = Script(added(), status(429, retry_after="60"), added())
    async with client(script).contacts.create_many(list(rows(4)), concurrency=1) as outcomes:
        await anext(outcomes)
        await anyio.sleep(5)
        paused = outcomes.progress
        assert (paused.state, paused.rows, paused.total) == ("paused", 1, 4)
        assert paused.rate == pytest.approx(1 / 5, abs=0.1)  # of what the run has done, although the limit is higher
        assert paused.resumes == pytest.approx(55, abs=1.1)
        assert paused.eta is not None
        assert paused.eta >= paused.resumes
        assert [each.status async for each in outcomes] == ["added"] * 3


@virtual_time
@pytest.mark.parametrize("journal", [False, True])
@pytest.mark.parametrize("code", [422, 425])  # 425 is ambiguous
async def test_a_run_stops_if_its_first_rows_are_all_rejected(tmp_path: Any, code: int, journal: bool) -> None:
    script = Script(status(code, b'{"error":{"message":"first_name must be given"}}'))
    options: dict[str, Any] = {"journal": tmp_path / "run.db"} if journal else {}
    with pytest.raises(BulkStopped, match=rf"the first 50 rows were all rejected: .*{code}.*first_name must be given"):
        await client(script).contacts.create_many(rows(1000), concurrency=4, **options)
    assert len(script.requests) < 50 + 2 * 4


@virtual_time
async def test_a_run_also_stops_if_its_first_rows_are_rejected_for_different_reasons() -> None:
    script = Script(*(status(422, b'{"error": "no %d"}' % (number % 3)) for number in range(50)), added())
    pattern = r"the first 50 rows were all rejected \(17 of them with this error\): .*422: no 0; fix the cause, or pass"
    with pytest.raises(BulkStopped, match=pattern):
        await client(script).contacts.create_many(rows(1000), concurrency=1)
    assert len(script.requests) == 50


@virtual_time
@pytest.mark.parametrize("accepted", [False, True])
async def test_only_answers_count_among_the_first_rows(accepted: bool) -> None:
    mixed = [{"email": ""} if number % 2 else {"email": f"user{number}@a.example"} for number in range(200)]
    # Every third row is lost twice, which is its last attempt, and the others are rejected.
    answers: list[Response | Exception] = [lost(), lost(), status(422), status(422)] * 50
    script = Script(*answers[:40], *([added()] if accepted else ()), *answers)
    run = client(script, retry=RetryPolicy(attempts=2, jitter=lambda: 0.0)).contacts.create_many(
        mixed, concurrency=1, stop_after_rejects=30
    )
    if accepted:
        assert (await run).rows == 200
        return
    with pytest.raises(BulkStopped, match="the first 30 rows were all rejected"):
        await run
    assert len(script.requests) == 60


@virtual_time
async def test_repeats_error_rejects_a_repeated_row_and_names_the_first() -> None:
    emails = ["a@a.example", "b@a.example", "A@a.example", "c@a.example", "c@a.example"]
    rows = [{"email": email} for email in emails]
    run = client(Script(added())).contacts.create_many(rows, repeats="error", order="input")
    async with run as outcomes:
        found = [(each.status.value, each.repeats) async for each in outcomes]
    assert found == [("added", None), ("added", None), ("rejected", 0), ("added", None), ("rejected", 3)]


def test_at_least_the_last_4096_ids_are_remembered() -> None:
    ids = RecentIds()

    def find_earlier(contact_id: str, key: str, index: int) -> int | None:
        return ids.find_earlier(evolve(outcome(index), id=contact_id), key)

    for number in range(2 * 4096 + 1):
        assert find_earlier(f"contact_{number}", f"key {number}", number) is None
    assert find_earlier("contact_4096", "another", 10_000) == 4096
    assert find_earlier("contact_0", "another", 10_001) is None
