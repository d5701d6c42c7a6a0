"""The pytest plugin in separate suites, loaded through its entry point like an installed plugin."""

from __future__ import annotations

import json

import pytest
import trio.testing

import outreach_async
import outreach_async.fake.server
from outreach_async.fake import Behaviour

pytest_plugins = ["pytester"]

# An inner suite unloads the modules that it was the first to import. Import them here: the next suite would import other classes
# of the same names, and some are slow to import.
LOADED = [
    *(getattr(outreach_async, name) for name in outreach_async.__all__),
    outreach_async.fake.server,
    outreach_async.fake.FakeTransport,
    trio.testing,
]

HEAD = """
import anyio
import pytest

from outreach_async import InvalidRequest, NewContact, OutreachClient, StatusError, TransportError
from outreach_async.fake import Behaviour, FakeService, HeaderAuth, faults

pytestmark = pytest.mark.anyio
ANN = NewContact("ann@acme.example")
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, outreach_behaviour: Behaviour) -> Suite:
    """Return a suite. The behaviour is used so that this process has loaded all of the plugin."""
    del outreach_behaviour
    return Suite(pytester)


class Suite:
    """A suite of one file, with warnings as errors, run in this process."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester

    def run(self, test: str, *options: str) -> pytest.RunResult:
        self.pytester.makepyfile(HEAD + test)
        return self.pytester.runpytest_inprocess("-W", "error", "-p", "no:cacheprovider", *options)

    def passes(self, test: str, count: int, *options: str) -> None:
        self.output_of(test, *options, passed=count)

    def output_of(self, test: str, *options: str, **outcomes: int) -> str:
        result = self.run(test, *options)
        result.assert_outcomes(**outcomes)
        return result.stdout.str()


# Fixtures.


def test_each_fixture_serves_async_and_sync_tests_on_both_loops(suite: Suite) -> None:
    suite.passes(
        """
import httpx

SEEN = []

async def test_the_client_has_the_workspace_and_the_key(
    outreach_client, outreach_fake, outreach_workspace, outreach_owner_key
):
    made = await outreach_client.contacts.create(ANN)
    (stored,) = outreach_fake.contacts(outreach_workspace)
    assert (stored["id"], stored["owner"]) == (made.id, outreach_owner_key)
    SEEN.append((outreach_client, outreach_fake))

async def test_each_test_has_its_own_fake_and_its_client_is_closed_afterwards(outreach_fake):
    assert len(outreach_fake.requests) == 0
    client, fake = SEEN[-1]
    assert fake is not outreach_fake
    with pytest.raises(InvalidRequest, match="closed"):
        await client.contacts.create(ANN)

def test_the_url_serves_the_fake_and_its_control_plane(outreach_url, outreach_fake, outreach_workspace):
    answer = httpx.get(f"{outreach_url}/workspaces/{outreach_workspace}/all-fields")
    assert answer.json()["status"] == "ok"
    assert outreach_fake.requests.counts["list_fields"] == 1
    assert httpx.get(f"{outreach_url}/_fake/requests").json()["total"] == 1

async def test_the_url_serves_a_client_of_the_test(outreach_url, outreach_fake, outreach_workspace, outreach_owner_key):
    async with OutreachClient(outreach_url, owner_key=outreach_owner_key, workspace=outreach_workspace) as client:
        await client.contacts.create(ANN)
    assert outreach_fake.contact(outreach_workspace, ANN.email)

@pytest.mark.parametrize(
    "outreach_behaviour",
    [Behaviour(auth=HeaderAuth()), Behaviour(auth=HeaderAuth("x-token", "", tokens={"word"})), Behaviour()],
    ids=["key", "token", "none"],
)
async def test_the_client_has_the_credential_that_the_behaviour_requires(outreach_client):
    assert await outreach_client.workspaces.fields()
""",
        13,
    )


@pytest.mark.thorough
def test_the_fixtures_serve_the_mode_of_anyio(suite: Suite) -> None:
    suite.pytester.makeini("[pytest]\nanyio_mode = auto\n")
    suite.passes("pytestmark = []\nasync def test_read(outreach_client): assert await outreach_client.workspaces.fields()", 2)


# The marker.


@pytest.mark.thorough
def test_the_marker_sets_seed_world_behaviour_and_faults(suite: Suite) -> None:
    world = {
        "workspaces": [{"id": "space_w", "campaigns": [{"id": "camp_1"}]}, {"id": "space_v"}],
        "owner_keys": {"key_w": ["space_w"]},
    }
    suite.pytester.makefile(".json", world=json.dumps(world))
    suite.pytester.makefile(".toml", behaviour='past_end = "error"')
    suite.passes(
        """
@pytest.mark.outreach(seed=7, world="world.json", behaviour="behaviour.toml")
class TestMarked:
    @pytest.mark.outreach(faults={"create_contact": [faults.status(503), faults.ok, faults.commit_then(faults.reset())]})
    async def test_all(self, outreach_client, outreach_fake, outreach_workspace, outreach_owner_key):
        assert (outreach_fake.seed, outreach_workspace, outreach_owner_key) == (7, "space_w", "key_w")
        assert (await outreach_client.campaigns.list()).data[0].id == "camp_1"
        with pytest.raises(StatusError):
            await outreach_client.mailboxes.list(page=9)
        assert (await outreach_client.contacts.create(ANN)).attempts == 2
        assert (await outreach_client.contacts.create(ANN)).attempts == 2

    @pytest.mark.outreach(seed=8, behaviour="lenient")
    def test_closest(self, outreach_fake, outreach_behaviour):
        assert (outreach_fake.seed, outreach_fake.behaviour) == (8, Behaviour.lenient())
        assert outreach_behaviour is outreach_fake.behaviour
""",
        3,
    )


def test_a_test_without_a_behaviour_uses_that_of_the_command_line(suite: Suite) -> None:
    suite.pytester.makefile(".toml", ours='past_end = "clamp"')
    suite.passes(
        """
def test_default(outreach_fake):
    assert outreach_fake.behaviour == Behaviour(past_end="clamp")

@pytest.mark.outreach(behaviour="strict")
def test_own(outreach_fake):
    assert outreach_fake.behaviour == Behaviour.strict()
""",
        2,
        "--outreach-behaviour=ours.toml",
    )


def test_an_invalid_behaviour_on_the_command_line_is_a_usage_error(suite: Suite) -> None:
    result = suite.run("def test_any(outreach_fake): pass", "--outreach-behaviour=loose")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--outreach-behaviour: expected 'documented', *, got 'loose'*"])


def test_each_form_of_an_argument_of_the_marker_is_accepted(suite: Suite) -> None:
    world = json.dumps({"workspaces": [{"id": "space_1"}], "owner_keys": {"key_1": ["space_1"]}})
    suite.pytester.makefile(".json", world=world)
    suite.pytester.makefile(".toml", behaviour='past_end = "clamp"')
    suite.passes(
        f"""
import json
from pathlib import Path

WORLD = {world!r}
CLAMP = Behaviour(past_end="clamp")

def outreach(*ids, **arguments):
    return pytest.param(arguments, marks=pytest.mark.outreach(**arguments))

@pytest.mark.parametrize("given", [outreach(world=each) for each in (json.loads(WORLD), WORLD, "world.json", Path("world.json"))])
def test_worlds(given, outreach_workspace):
    assert outreach_workspace == "space_1"

@pytest.mark.parametrize(
    "given", [outreach(behaviour=each) for each in (CLAMP, {{"past_end": "clamp"}}, "behaviour.toml", Path("behaviour.toml"))]
)
def test_behaviours(given, outreach_behaviour):
    assert outreach_behaviour == CLAMP

@pytest.mark.parametrize("given", [outreach(behaviour=each) for each in ("documented", "strict", "lenient")])
def test_presets(given, outreach_behaviour):
    assert outreach_behaviour == getattr(Behaviour, given["behaviour"], Behaviour)()

@pytest.mark.outreach(
    unfired="ignore", faults={{"create_contact": [faults.status(503), faults.ok], "list_fields": faults.hang()}}
)
def test_faults(outreach_fake):
    assert outreach_fake.faults.unfired == ["create_contact: status(503)", "list_fields: hang()"]

@pytest.mark.outreach(seed=2, behaviour="strict")
class TestMarked:
    @pytest.mark.outreach(seed=1)
    def test_the_closest_marker_wins_for_each_argument(self, outreach_fake):
        assert (outreach_fake.seed, outreach_fake.behaviour) == (1, Behaviour.strict())
""",
        13,
    )


NO_BEHAVIOUR = (
    "behaviour: expected 'documented', 'strict', 'lenient', 'pairwise', the path of a .toml file, a Behaviour or a mapping of "
    "knobs, got"
)
WRONG = {
    "sed=1": "the marker has no field 'sed'; did you mean seed?",
    "clock=1": "the marker has no field 'clock'; expected one of seed, world, behaviour, faults, unfired",
    "seed='1'": "seed: expected a whole number, got '1'",
    "seed=True": "seed: expected a whole number, got True",
    "'strict'": "expected keyword arguments (seed, world, behaviour, faults, unfired), got 'strict'; pass it by keyword",
    "world=7": "world: expected the path of a world file, its content as a string, or the parsed document, got int",
    "world='absent.json'": "world: [Errno 2] No such file or directory",
    "world={'workspaces': 7}": "world: $.workspaces: expected `array`",
    "behaviour='strickt'": f"{NO_BEHAVIOUR} 'strickt'",
    "behaviour=None": f"{NO_BEHAVIOUR} None",
    "behaviour='absent.toml'": "behaviour: [Errno 2] No such file or directory",
    "behaviour={'past_end': 'fly'}": "behaviour: Behaviour.past_end: expected one of 'empty', 'clamp', 'error', got 'fly'",
    "behaviour={'past_ends': 'clamp'}": "behaviour: Behaviour has no field 'past_ends'; did you mean past_end?",
    "faults=[faults.ok]": "faults: expected a mapping of operations to faults, got list",
    "faults={'create': faults.ok}": "faults: operation: expected one of list_campaigns",
    "faults={'list_steps': faults.reset}": "faults: expected a fault, got reset; pass a fault, such as reset(...)",
    "unfired='warn'": "unfired: expected 'error' or 'ignore', got 'warn'",
}


def test_an_invalid_argument_of_the_marker_is_one_line_with_what_it_accepts(suite: Suite) -> None:
    test = "def test_any(outreach_fake): pass"
    tests = {f"test_{at}": f"{HEAD}@pytest.mark.outreach({marker})\n{test}\n" for at, marker in enumerate(WRONG)}
    suite.pytester.makepyfile(**tests)
    told = suite.pytester.runpytest_inprocess("-p", "no:cacheprovider", "--continue-on-collection-errors").stdout.str()
    for marker, complaint in WRONG.items():
        assert f"\n@pytest.mark.outreach: {complaint}" in told, marker


def test_a_fixture_requested_dynamically_obeys_the_marker_except_pairwise(suite: Suite) -> None:
    output = suite.output_of(
        """
@pytest.mark.outreach(seed=3)
def test_late(request):
    assert request.getfixturevalue("outreach_fake").seed == 3

@pytest.mark.outreach(behaviour="pairwise")
def test_too_late(request):
    request.getfixturevalue("outreach_fake")
""",
        passed=1,
        failed=1,
    )
    assert "behaviour='pairwise': expected outreach_fake as an argument of the test" in output


# Results of tests.


def test_a_pairwise_test_runs_under_every_row_and_names_the_failing_setting(suite: Suite) -> None:
    rows = outreach_async.testing.pairwise()
    bad = [row for row in rows if row.past_end == "clamp"]
    output = suite.output_of(
        """
@pytest.mark.outreach(behaviour="pairwise")
def test_reads(outreach_fake):
    assert outreach_fake.behaviour.past_end != "clamp"
""",
        failed=len(bad),
        passed=len(rows) - len(bad),
    )
    number = rows.index(bad[0])
    assert f"test_reads[row{number:02}]" in output
    assert f"behaviour: row{number:02} of {len(rows)}: {outreach_async.pytest_plugin._marker.format_settings(bad[0])}\n" in output
    assert "past_end='clamp'" in outreach_async.pytest_plugin._marker.format_settings(bad[0])
    assert f"test_reads[row*] failed under {len(bad)} of {len(rows)} behaviours: it fails with past_end='clamp'\n" in output


def test_passing_tests_add_nothing_to_the_output(suite: Suite) -> None:
    output = suite.output_of(
        "@pytest.mark.outreach(behaviour='pairwise')\ndef test_any(outreach_fake): pass",
        "-rA",
        passed=len(outreach_async.testing.pairwise()),
    )
    assert "outreach service" not in output
    assert "outreach behaviours" not in output


@pytest.mark.covers
@pytest.mark.thorough
def test_a_failing_test_shows_its_last_requests_and_no_key(suite: Suite) -> None:
    output = suite.output_of(
        """
@pytest.mark.outreach(seed=5, faults={"create_contact": [faults.status(503), faults.ok, faults.reset()]})
async def test_fails(outreach_fake, outreach_client, outreach_virtual_time):
    for number in range(25):
        await outreach_client.request("GET", f"/workspaces/space_0/all-fields?owner_key=key_secret{number}")
    await outreach_client.contacts.create(NewContact("ann@acme.example", extra={"first_nam": "key_secret"}))
    await anyio.sleep(30)
    with pytest.raises(TransportError):
        await outreach_client.request("POST", "/contacts", body=b'{"owner_key": "secret", "x": [{"owner_key": "secret"}]}')
    outreach_fake.faults.script("list_steps", faults.hang())
    outreach_fake.faults.script("list_fields", *[faults.close()] * 300)
    raise ValueError("enough")
""",
        "--tb=short",
        failed=2,
    )
    section = output.partition("- outreach service -")[2].partition("____")[0].splitlines()
    assert "seed: 5" in section
    assert "behaviour: all defaults" in section
    assert [line for line in section if "fired:" in line] == [
        "never fired: list_steps: hang()",
        "never fired: list_fields: close(), 300 times",
    ]
    assert "requests: 28, the last ones:" in section
    logged = [line for line in section if line.startswith("#")]
    assert len(logged) == 20
    assert logged[0] == "#8 +0.000 s GET /workspaces/space_0/all-fields?owner_key=*** -> 404"
    assert logged[-3].endswith("POST /contacts -> 503, fault status(503)")
    assert "    hint: " in "\n".join(section)
    assert "secret" not in "\n".join(section)


@pytest.mark.parametrize(
    ("marker", "outcomes"),
    [("", {"failed": 1}), ("@pytest.mark.outreach(unfired='ignore')", {"passed": 1}), ("@pytest.mark.xfail", {"xfailed": 1})],
    ids=["error", "ignore", "expected"],
)
def test_a_fault_that_never_fired_fails_the_passing_test(suite: Suite, marker: str, outcomes: dict[str, int]) -> None:
    output = suite.output_of(
        f"""
{marker}
def test_orders(outreach_fake):
    outreach_fake.faults.script("create_contact", faults.status(503), faults.ok)
""",
        **outcomes,
    )
    assert ("faults that never fired: create_contact: status(503)" in output) == ("failed" in outcomes)


def test_a_fake_is_released_when_its_test_ends(suite: Suite) -> None:
    suite.pytester.makeconftest("""
import gc, weakref, pytest

FAKES = []

@pytest.fixture(autouse=True)
def watched(outreach_fake):
    FAKES.append(weakref.ref(outreach_fake))

def pytest_sessionfinish():
    gc.collect()
    assert [fake() for fake in FAKES] == [None, None, None]
""")
    suite.passes("@pytest.mark.parametrize('number', range(3))\ndef test_any(number): pass", 3)


# Virtual time.

WAITING = """
import time

async def test_waits(outreach_virtual_time, outreach_fake, outreach_client):
    began, real, now = anyio.current_time(), time.monotonic(), outreach_fake.now
    outreach_fake.faults.script("create_contact", faults.status(429, retry_after=900))
    await outreach_client.contacts.create(ANN, deadline=None)
    await anyio.sleep(2700)
    assert 3600 <= outreach_fake.now - now == pytest.approx(anyio.current_time() - began)
    assert outreach_virtual_time.elapsed == anyio.current_time()
    outreach_fake.advance(hours=1)
    assert outreach_fake.now - now >= 7200
    assert time.monotonic() - real < 30
"""


@pytest.mark.parametrize(
    ("backend", "count"),
    [
        ("", 2),
        ("@pytest.fixture\ndef anyio_backend(): return 'asyncio'", 1),
        ("@pytest.fixture(scope='session')\ndef anyio_backend(): return ('trio', {'strict_exception_groups': True})", 1),
        ("@pytest.fixture(params=['trio', ('asyncio', {'debug': True})])\ndef anyio_backend(request): return request.param", 2),
        ("@pytest.fixture(scope='module')\ndef anyio_backend(anyio_backend): return anyio_backend", 2),
    ],
    ids=["plain", "value", "session", "parameters", "overrides"],
)
def test_an_hour_passes_at_once_on_every_event_loop_of_the_suite(suite: Suite, backend: str, count: int) -> None:
    suite.passes(f"{WAITING}\n{backend}\n", count)


def test_only_tests_with_virtual_time_and_their_async_fixtures_use_it(suite: Suite) -> None:
    suite.passes(
        """
import time

@pytest.fixture
async def waited(outreach_virtual_time):
    await anyio.sleep(60)
    yield
    await anyio.sleep(60)

async def test_goes_on(waited, outreach_fake, outreach_client, outreach_virtual_time):
    await outreach_client.contacts.create(ANN)
    assert outreach_virtual_time.elapsed == 60

async def test_real(outreach_client):
    began = time.monotonic()
    await anyio.sleep(0.01)
    assert time.monotonic() - began >= 0.009

async def test_another(outreach_virtual_time):
    await anyio.sleep(3600)
    assert outreach_virtual_time.elapsed == 3600
""",
        6,
    )


def test_it_works_before_pytest_9_1(suite: Suite) -> None:
    suite.pytester.makeconftest("""
import pytest

def pytest_configure(config):
    kept = vars(pytest).pop("register_fixture")
    config.add_cleanup(lambda: setattr(pytest, "register_fixture", kept))
""")
    suite.passes(WAITING, 2, "-W", "ignore::pytest.PytestRemovedIn10Warning")


ANOTHER_PLUGIN = """
import asyncio
import inspect

import pytest

class Plugin:
    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem):
        if not pyfuncitem.get_closest_marker("asyncio") or not inspect.iscoroutinefunction(pyfuncitem.obj):
            return None
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
        return True

def pytest_configure(config):
    config.addinivalue_line("markers", "asyncio: run by another plugin")
    config.pluginmanager.register(Plugin(), "asyncio")
"""
WAITS = "    await anyio.sleep(86_400)\n"
IN_REAL_TIME = {
    "a mark of another plugin": f"@pytest.mark.asyncio\nasync def test_it(outreach_virtual_time):\n{WAITS}",
    "a fixture requested too late": f"async def test_it(request):\n    request.getfixturevalue('outreach_virtual_time')\n{WAITS}",
    "an event loop of its own": "@pytest.mark.parametrize('anyio_backend', ['asyncio'])\n"
    f"async def test_it(outreach_virtual_time):\n{WAITS}",
    "no mark": f"pytestmark = []\nasync def test_it(outreach_virtual_time):\n{WAITS}",
}


@pytest.mark.parametrize("test", IN_REAL_TIME.values(), ids=IN_REAL_TIME)
def test_a_test_that_would_wait_in_real_time_fails_at_once(suite: Suite, test: str) -> None:
    suite.pytester.makeconftest(ANOTHER_PLUGIN)
    result = suite.run(test)
    assert (result.ret, result.parseoutcomes().get("passed")) == (pytest.ExitCode.TESTS_FAILED, None)
    output = result.stdout.str()
    assert "outreach_virtual_time: expected a test that anyio's plugin runs, got" in output
    assert "mark it with @pytest.mark.anyio" in output
    assert ("one that pytest-asyncio runs" in output) == ("mark.asyncio" in test)


def test_beside_another_plugin_virtual_time_and_sync_tests_work(suite: Suite) -> None:
    suite.pytester.makeconftest(ANOTHER_PLUGIN)
    suite.passes(
        """
async def test_marked_for_anyio(outreach_virtual_time):
    await anyio.sleep(3600)
    assert outreach_virtual_time.elapsed == 3600

@pytest.mark.asyncio
def test_sync(outreach_virtual_time):
    anyio.run(anyio.sleep, 3600, backend_options=outreach_virtual_time.options("asyncio"))
    assert outreach_virtual_time.elapsed == 3600

@pytest.mark.asyncio
async def test_real_time(outreach_client):
    await outreach_client.contacts.create(ANN)
""",
        5,
    )


def test_a_real_port_and_virtual_time_cannot_be_combined(suite: Suite) -> None:
    output = suite.output_of("async def test_both(outreach_virtual_time, outreach_url): pass", errors=2)
    assert "outreach_url cannot be used with outreach_virtual_time: socket I/O does not follow virtual time" in output


# Import time, and other plugins.


@pytest.mark.thorough
def test_a_suite_that_does_not_use_it_imports_only_the_plugin(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other plugins import more
    pytester.makepyfile("""
import sys

def test_loaded(request):
    ours = {name for name in sys.modules if name.startswith("outreach_async.")}
    assert ours == {"outreach_async._lazy", "outreach_async.pytest_plugin"}
    assert not {"attrs", "httpx", "trio", "asyncio"} & set(sys.modules)
""")
    pytester.runpytest_subprocess("-p", "outreach_async.pytest_plugin").assert_outcomes(passed=1)


@pytest.mark.thorough
def test_with_xdist_rows_reports_and_summaries_are_complete(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # each worker would load every installed plugin
    pytester.makepyfile("""
import pytest

@pytest.mark.outreach(behaviour="pairwise")
def test_reads(outreach_fake):
    assert outreach_fake.behaviour.first_page == 1
""")
    bad = [row for row in outreach_async.testing.pairwise() if row.first_page == 0]
    result = pytester.runpytest_subprocess("-p", "xdist.plugin", "-p", "outreach_async.pytest_plugin", "-n", "2")
    result.assert_outcomes(failed=len(bad), passed=len(outreach_async.testing.pairwise()) - len(bad))
    output = result.stdout.str()
    assert output.count("- outreach service -") == len(bad)
    assert f"test_reads[row*] failed under {len(bad)} of" in output
    assert "behaviours: it fails with first_page=0\n" in output
