"""The pytest plugin for the fake service.

It has fixtures, and a marker that configures the fake. Reports of failures
show the fake's requests. pytest loads the plugin automatically. The plugin
does not affect tests that use none of its fixtures. A complete test file:

```python
import pytest
from outreach_async import NewContact
from outreach_async.fake import faults


@pytest.mark.anyio
@pytest.mark.outreach(faults={"create_contact": [faults.status(503, retry_after=60), faults.ok]})
async def test_a_throttled_creation_is_retried(outreach_client, outreach_fake, outreach_workspace, outreach_virtual_time):
    created = await outreach_client.contacts.create(NewContact("ann@company.example"))
    assert created.attempts == 2
    assert len(outreach_fake.contacts(outreach_workspace)) == 1
    assert outreach_virtual_time.elapsed >= 60


# -> 2 passed in ...s
```

The test passes twice: on asyncio and on trio. The fixtures:

    outreach_fake          a `FakeService` for this test only
    outreach_workspace     the id of a workspace in the fake: the first
                           workspace of its world, or a new empty one
    outreach_owner_key     an API key for that workspace
    outreach_client        an `OutreachClient` connected to the fake in
                           memory, closed after the test; works with any
                           event loop
    outreach_url           the base URL of the fake on a real port, for
                           code that needs one
    outreach_virtual_time  virtual time for the event loop and the fake:
                           waits take no time; unusable with sockets, or
                           threads but those of journals and ledgers
    outreach_behaviour     the `Behaviour` of the fake

The marker, with all its arguments:

    @pytest.mark.outreach(
        seed=7,
        world="world.json",  # relative to the test file; or the document
        # or "documented", "lenient", "pairwise", "behaviour.toml",
        # {"past_end": "clamp"}, a Behaviour
        behaviour="strict",
        faults={"create_contact": [faults.status(503), faults.ok]},
        unfired="ignore",  # else a fault that never fires fails the test
    )

You can also put the marker on classes and modules; each argument is taken
from the closest marker. With `behaviour="pairwise"`, a test runs about
thirty times. Together, the runs cover every combination of the values of
any two settings. The summary names the settings with which every run
failed: `failed under 18 of 28 behaviours: it fails with first_page=0, or
with past_end='clamp'`. `--outreach-behaviour` sets the default behaviour.

`outreach_virtual_time` requires tests that run through anyio's plugin:
`@pytest.mark.anyio`, or `anyio_mode = auto`. Set other event loops with a
fixture named `anyio_backend`. Tests that pytest-asyncio or pytest-trio
runs can use every other fixture.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

import pytest

# pytest imports this module in every test run, even if no test uses it. Slow imports are therefore deferred until needed.
if TYPE_CHECKING:
    from outreach_async.client import OutreachClient
    from outreach_async.fake import Behaviour, FakeService
    from outreach_async.fake.control import ControlPlane
    from outreach_async.pytest_plugin._marker import FakeConfig, FakeUse
    from outreach_async.testing import VirtualTime

_DEFAULT_BEHAVIOURS: pytest.StashKey[tuple[Behaviour, ...]] = pytest.StashKey()
_FAKE_USE: pytest.StashKey[FakeUse] = pytest.StashKey()
_BACKEND = "anyio_backend"
_MARKER_HELP = (
    "outreach(seed=0, world=None, behaviour='documented', faults={}, unfired='error'): "
    "configure the fake outreach service of this test; see outreach_async.pytest_plugin."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--outreach-behaviour` and the options of the conformance suite."""
    parser.getgroup("outreach_async").addoption(
        "--outreach-behaviour",
        metavar="BEHAVIOUR",
        help="default behaviour of the fake outreach service: documented, strict, lenient, pairwise or a .toml file",
    )
    # Here, because pytest loads the suite's conftest too late.
    group = parser.getgroup(
        "outreach_async conformance", "outreach_async conformance: pytest --pyargs outreach_async.conformance"
    )
    group.addoption("--outreach-live", metavar="URL", help="base URL of the service to check")
    group.addoption("--outreach-workspace", metavar="ID", help="id of the workspace to read")
    allowing = (
        "create contacts with the owner key in OUTREACH_OWNER_KEY; pass the workspace id again to confirm; default: only read"
    )
    group.addoption("--allow-writes", metavar="ID", help=allowing)
    group.addoption(
        "--outreach-campaign",
        metavar="ID",
        help="id of a draft campaign, to which two of the created contacts are added",
    )
    header = "header to send; its value is read from an environment variable; example: authorization=API_TOKEN; repeatable"
    group.addoption("--outreach-header", action="append", default=[], metavar="NAME=VARIABLE", help=header)
    record = "file for the measured behaviour; if it exists, its values are first compared with the new ones; default %(default)s"
    group.addoption("--outreach-record", default="behaviour.toml", metavar="FILE", help=record)
    drift = "what to do if the measured behaviour differs from the file; accept rewrites the file; default %(default)s"
    group.addoption("--outreach-drift", choices=["fail", "warn", "accept"], default="fail", help=drift)


def pytest_configure(config: pytest.Config) -> None:
    """Register the `outreach` marker, and read `--outreach-behaviour`."""
    config.addinivalue_line("markers", _MARKER_HELP)
    given = config.getoption("outreach_behaviour", None)
    if given is not None:
        from outreach_async.pytest_plugin._marker import read_behaviours

        try:
            config.stash[_DEFAULT_BEHAVIOURS] = read_behaviours(given, config.rootpath)
        except (OSError, TypeError, ValueError) as error:
            raise pytest.UsageError(f"--outreach-behaviour: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test with its marker's behaviours and virtual time."""
    if "outreach_behaviour" in metafunc.fixturenames:
        behaviours = _read_config(metafunc.definition).behaviours
        if len(behaviours) > 1:
            from outreach_async.pytest_plugin._marker import format_row_id

            metafunc.parametrize("outreach_behaviour", behaviours, ids=map(format_row_id, range(len(behaviours))))
    if {"outreach_virtual_time", _BACKEND} <= set(metafunc.fixturenames):
        _run_in_virtual_time(metafunc)


def _run_in_virtual_time(metafunc: pytest.Metafunc) -> None:
    definition = metafunc.definition
    fixtures: Sequence[Any] = metafunc._arg2fixturedefs.get(_BACKEND, ())  # noqa: SLF001 - pytest has no public function for this
    if not fixtures:
        return
    # The parameters are those of the suite's fixture, or of a fixture that it overrides and requests. The new fixture declares
    # them again: inherited parameters would keep their wider scope, but the clock belongs to a single test.
    last = next((each for each in reversed(fixtures) if each.params is not None or _BACKEND not in each.argnames), fixtures[0])
    manager = definition.session._fixturemanager  # noqa: SLF001 - not public either

    def backend(anyio_backend: Any, outreach_virtual_time: VirtualTime) -> Any:
        name, others = (anyio_backend, {}) if isinstance(anyio_backend, str) else anyio_backend
        return name, outreach_virtual_time.options(name, others)

    if hasattr(pytest, "register_fixture"):
        pytest.register_fixture(name=_BACKEND, func=backend, node=definition, params=last.params, ids=last.ids)
    else:  # before pytest 9.1
        register = manager._register_fixture  # noqa: SLF001 - not public before pytest 9.1
        register(name=_BACKEND, func=backend, nodeid=definition.nodeid, params=last.params, ids=last.ids)
    metafunc._arg2fixturedefs[_BACKEND] = manager.getfixturedefs(_BACKEND, definition) or ()  # noqa: SLF001 - the same


def _read_config(node: pytest.Item) -> FakeConfig:
    from outreach_async.pytest_plugin._marker import FakeConfig, FakeConfigError, read_config

    default = node.config.stash.get(_DEFAULT_BEHAVIOURS, FakeConfig().behaviours)
    try:
        return read_config(node.iter_markers("outreach"), node.path.parent, default)
    except FakeConfigError as error:
        raise _marker_failure(error) from None


def _marker_failure(error: Exception) -> BaseException:
    return pytest.fail.Exception(f"@pytest.mark.outreach: {error}", pytrace=False)


@pytest.fixture
def outreach_behaviour(request: pytest.FixtureRequest) -> Behaviour:
    """How the fake reads rules that the API documentation leaves open."""
    behaviours = _read_config(request.node).behaviours
    if len(behaviours) > 1:
        fault = "behaviour='pairwise': expected outreach_fake as an argument of the test, got getfixturevalue()"
        pytest.fail(f"{fault}; add the argument", pytrace=False)
    return behaviours[0]


def _explain_real_time(test: pytest.Function) -> str | None:
    """Return why the event loop of an async test would not run in virtual time; `None` if it does."""
    if not iscoroutinefunction(getattr(getattr(test.obj, "hypothesis", None), "inner_test", test.obj)):
        return None  # a sync test may pass the options of the clock to an event loop
    fault = "outreach_virtual_time: expected a test that anyio's plugin runs, got"
    for name in ("asyncio", "trio"):  # of a mark, and of the plugin that runs the tests with it
        if test.get_closest_marker(name) and test.config.pluginmanager.has_plugin(name):
            remedy = f"mark it with @pytest.mark.anyio, not with @pytest.mark.{name}, and do not set {name}_mode"
            return f"{fault} one that pytest-{name} runs; {remedy}"
    backends: Sequence[Any] = test._fixtureinfo.name2fixturedefs.get(_BACKEND, ())  # noqa: SLF001 - pytest has no public attribute
    if backends and backends[-1].func.__module__ == __name__:
        return None
    got = "another one, or one without the argument outreach_virtual_time, or with a parameter anyio_backend"
    return f"{fault} {got}; mark it with @pytest.mark.anyio, add the argument, and set event loops in a fixture anyio_backend"


@pytest.fixture
def outreach_virtual_time(request: pytest.FixtureRequest) -> VirtualTime:
    """The clock of event loop and fake: waits advance it and take no time."""
    from outreach_async.testing import VirtualTime

    if fault := _explain_real_time(request.node):
        pytest.fail(fault, pytrace=False)
    return VirtualTime()


@pytest.fixture
def outreach_fake(request: pytest.FixtureRequest, outreach_behaviour: Behaviour) -> FakeService:
    """This test's own in-memory fake, set up by `@pytest.mark.outreach`."""
    from outreach_async.pytest_plugin._marker import FakeConfigError, FakeUse

    clock = request.getfixturevalue("outreach_virtual_time") if "outreach_virtual_time" in request.fixturenames else None
    config = _read_config(request.node)
    try:
        fake = config.create_service(outreach_behaviour, clock)
    except FakeConfigError as error:
        raise _marker_failure(error) from None
    request.node.stash[_FAKE_USE] = FakeUse(fake, config, outreach_behaviour)
    return fake


@pytest.fixture
def outreach_workspace(outreach_fake: FakeService) -> str:
    """The id of the fake's first workspace, or of a new, empty one."""
    # `dump`, which returns a world file, is the only public way to read what the fake stores.
    workspaces = json.loads(outreach_fake.dump())["workspaces"]
    return str(workspaces[0]["id"]) if workspaces else outreach_fake.add_workspace()


@pytest.fixture
def outreach_owner_key(outreach_fake: FakeService, outreach_workspace: str) -> str:
    """An API key for the workspace of `outreach_workspace`."""
    keys: dict[str, list[str]] = json.loads(outreach_fake.dump())["owner_keys"]
    valid = (key for key, workspaces in keys.items() if outreach_workspace in workspaces)
    return next(valid, None) or outreach_fake.add_owner_key(outreach_workspace)


@pytest.fixture
def outreach_client(outreach_fake: FakeService, outreach_workspace: str, outreach_owner_key: str) -> Iterator[OutreachClient]:
    """A client of the fake, with `outreach_workspace`, `outreach_owner_key`."""
    from outreach_async.client import OutreachClient
    from outreach_async.fake import FakeTransport

    auth = outreach_fake.behaviour.auth
    headers = {auth.header: f"{auth.scheme} {min(auth.tokens, default=outreach_owner_key)}".strip()} if auth else {}
    transport = FakeTransport(outreach_fake)
    client = OutreachClient(transport=transport, workspace=outreach_workspace, owner_key=outreach_owner_key, headers=headers)
    yield client
    # The fake's transport closes without awaiting anything: run by hand, the coroutine needs no event loop.
    with pytest.raises(StopIteration):
        client.aclose().send(None)


@pytest.fixture(scope="session")
def _outreach_server() -> Iterator[tuple[ControlPlane, str]]:
    """Serve the fakes of all tests from one thread, each as a sandbox. Yield the server and its base URL."""
    from anyio.from_thread import start_blocking_portal

    from outreach_async.fake import FakeService
    from outreach_async.fake.control import ControlPlane
    from outreach_async.fake.server import serve

    plane = ControlPlane(FakeService())
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(plane)) as url:
        yield plane, url


@pytest.fixture
def outreach_url(request: pytest.FixtureRequest, outreach_fake: FakeService) -> Iterator[str]:
    """The fake's base URL on a real port; the control plane is at `/_fake`."""
    if "outreach_virtual_time" in request.fixturenames:
        fault = "outreach_url cannot be used with outreach_virtual_time: socket I/O does not follow virtual time"
        pytest.fail(f"{fault}; use outreach_client instead of outreach_url, or omit outreach_virtual_time", pytrace=False)
    plane, url = request.getfixturevalue("_outreach_server")
    with plane.sandbox(outreach_fake) as path:
        yield url + path


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail an otherwise successful test if one of its faults never fired."""
    __tracebackhide__ = True
    result = yield
    use = item.stash.get(_FAKE_USE, None)
    if use is not None and use.unfired:
        remedy = "remove them, or pass unfired='ignore' to @pytest.mark.outreach"
        pytest.fail(f"faults that never fired: {'; '.join(use.unfired)}\n{remedy}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the fake's configuration and requests to a failed test's report."""
    report = yield
    use = item.stash.get(_FAKE_USE, None)
    if use is not None:
        vars(report).update(outreach_row=use.row)  # pytest-xdist sends it
        if report.failed:
            report.sections.append(("outreach service", "\n".join(use.format_report())))
        if report.when == "teardown":
            del item.stash[_FAKE_USE]  # items live until the end of the run
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show which settings of the fake fail tests of several behaviours."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.getreports(name)]
    rows = [report for report in reports if getattr(report, "outreach_row", None) is not None]
    if any(report.failed for report in rows):
        from outreach_async.pytest_plugin._marker import summarize_failures

        terminalreporter.section("outreach behaviours")
        for line in summarize_failures((report.nodeid, report.outreach_row, report.failed) for report in rows):
            terminalreporter.line(line)
