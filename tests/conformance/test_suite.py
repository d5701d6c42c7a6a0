"""The shipped suite as users run it: against a live base URL, here that of the fake on a real port."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from support.calibration import BEARER, DRAFT, KEY, SPACE, altered, document_changed, service

from outreach_async.conformance import RULES
from outreach_async.fake import Behaviour, HeaderAuth
from outreach_async.fake.behaviour import load_behaviour
from outreach_async.fake.faults import Service
from outreach_async.fake.server import serve

pytest_plugins = ["pytester"]

WRITING = sum(rule.writes for rule in RULES)
"""Number of tests that write to the service."""

READING = len(RULES) - WRITING + 1
"""Number of tests that only read, including the test of the measured knobs."""

WRITES = ("--allow-writes", SPACE, "--outreach-campaign", DRAFT)


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal("asyncio") as portal:
        yield portal


@pytest.fixture
def suite(pytester: pytest.Pytester, portal: BlockingPortal, monkeypatch: pytest.MonkeyPatch) -> Suite:
    monkeypatch.setenv("OUTREACH_OWNER_KEY", KEY)
    monkeypatch.setenv("API_TOKEN", BEARER["authorization"])
    return Suite(pytester, portal)


class Suite:
    """Runs the suite against a service on a real port."""

    def __init__(self, pytester: pytest.Pytester, portal: BlockingPortal) -> None:
        self._pytester = pytester
        self._portal = portal
        self.record = pytester.path / "behaviour.toml"

    def against(self, live: Service, *options: str, plugins: Sequence[object] = ()) -> pytest.RunResult:
        with self._portal.wrap_async_context_manager(serve(live)) as url:
            return self.run("--outreach-live", url, "--outreach-workspace", SPACE, *options, plugins=plugins)

    def run(self, *options: str, plugins: Sequence[object] = ()) -> pytest.RunResult:
        apart = ("-p", "no:cacheprovider", "-p", "no:xdist")
        return self._pytester.runpytest_inprocess("--pyargs", "outreach_async.conformance", *apart, *options, plugins=plugins)


@pytest.mark.covers
@pytest.mark.thorough
def test_a_read_only_run_says_so_first_and_writes_what_it_measured(suite: Suite) -> None:
    fake = service(Behaviour(past_end="clamp"))
    before = fake.dump()
    done = suite.against(fake, "-rs")
    done.assert_outcomes(passed=READING, skipped=WRITING)
    done.stdout.fnmatch_lines([f"outreach conformance: The run only reads workspace {SPACE}*", "*past_end: clamp*"])
    done.stdout.fnmatch_lines(["SKIPPED*C1: creating contacts was not allowed"])
    assert fake.dump() == before
    assert load_behaviour(suite.record) == Behaviour(past_end="clamp")
    assert "# email_key: creating contacts was not allowed\n" in suite.record.read_text(encoding="utf-8")


@pytest.mark.thorough
def test_a_run_with_writes_measures_more_and_a_read_only_one_keeps_that(suite: Suite) -> None:
    behaviour = Behaviour(created_status=200, owner_key="off", auth=HeaderAuth())
    fake = service(behaviour)
    header = ("--outreach-header", "authorization=API_TOKEN")
    done = suite.against(fake, *header, *WRITES)
    done.assert_outcomes(passed=READING + WRITING)
    done.stdout.fnmatch_lines(["outreach conformance: The run creates up to*", "*created_status: 200*"])
    assert KEY not in done.stdout.str() + suite.record.read_text(encoding="utf-8")
    assert load_behaviour(suite.record) == behaviour
    suite.against(fake, *header).assert_outcomes(passed=READING, skipped=WRITING)
    assert load_behaviour(suite.record) == behaviour


@pytest.mark.covers
@pytest.mark.thorough
def test_drift_fails_or_warns_and_keeps_the_file_or_is_accepted(suite: Suite) -> None:
    fake = service()
    suite.against(fake).assert_outcomes(passed=READING, skipped=WRITING)
    first = suite.record.read_text(encoding="utf-8")
    fake.behaviour = Behaviour(past_end="clamp")
    failed = suite.against(fake)
    failed.assert_outcomes(passed=READING - 1, skipped=WRITING, failed=1)
    failed.stdout.fnmatch_lines(["*pass --outreach-drift=accept:", "past_end was 'empty', is now 'clamp': page*"])
    warned = suite.against(fake, "--outreach-drift=warn")
    warned.assert_outcomes(passed=READING, skipped=WRITING)
    warned.stdout.fnmatch_lines(["drift: past_end was 'empty', is now 'clamp': page*"])
    assert suite.record.read_text(encoding="utf-8") == first
    suite.against(fake, "--outreach-drift=accept").assert_outcomes(passed=READING, skipped=WRITING)
    assert load_behaviour(suite.record).past_end == "clamp"


def test_a_broken_rule_fails_with_its_name_its_sentence_and_the_response(suite: Suite) -> None:
    wrong = altered(document_changed(lambda document: document.update(status="fine")))
    done = suite.against(wrong, "-k", "W2")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(
        [
            "W2: the response has the status 'fine', not 'ok'",
            "  interface: the responses to the four list requests have the status ok",
            "  request: GET /*",
            '  response: 200 {"status": "fine"*',
        ]
    )


@pytest.mark.covers
@pytest.mark.thorough
def test_nothing_is_written_if_nothing_can_be_read(suite: Suite) -> None:
    done = suite.against(service(Behaviour(auth=HeaderAuth("x-token", ""))))
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["nothing in the workspace could be read, so nothing was measured; check the URL*"])
    assert not suite.record.exists()


@pytest.mark.covers
@pytest.mark.thorough
def test_a_service_that_is_not_reachable_is_reported_once(suite: Suite) -> None:
    done = suite.run("--outreach-live", "http://127.0.0.1:1", "--outreach-workspace", SPACE)
    text = done.stdout.str() + done.stderr.str()
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert text.count("http://127.0.0.1:1 is not reachable: no connection to http://127.0.0.1:1") == 1
    assert "FAILURES" not in text
    assert not suite.record.exists()


@pytest.mark.covers
@pytest.mark.thorough
def test_an_invalid_file_is_reported_before_any_request(suite: Suite) -> None:
    suite.record.write_text("past_ned = 1", encoding="utf-8")
    fake = service()
    done = suite.against(fake, "-k", "W1")
    done.stdout.fnmatch_lines(["*did you mean past_end?*"])
    assert len(fake.requests) == 0


@pytest.mark.covers
@pytest.mark.thorough
def test_missing_options_are_reported_before_anything_is_done(suite: Suite) -> None:
    done = suite.run()
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert "--outreach-live, --outreach-workspace: expected a value, got none; pass both" in done.stdout.str() + done.stderr.str()


def test_measuring_one_service_from_several_processes_is_refused(suite: Suite) -> None:
    class Worker:
        """Marks a process as a pytest-xdist worker."""

        def pytest_configure(self, config: pytest.Config) -> None:
            config.workerinput = {}  # type: ignore[attr-defined]  # as pytest-xdist does

    fake = service()
    done = suite.against(fake, "-k", "W2", plugins=[Worker()])
    done.assert_outcomes(errors=1)
    done.stdout.fnmatch_lines(["*expected one process, got a pytest-xdist worker; run pytest without -n*"])
    assert len(fake.requests) == 0
