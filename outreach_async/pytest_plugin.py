"""The pytest plugin: the fake service as fixtures, a marker for what it is like, and what it saw in a failing test's report.

pytest finds it by itself. Nothing happens in tests that use none of its fixtures. A whole test file:

```python
import pytest
from outreach_async import NewContact
from outreach_async.fake import faults


@pytest.mark.anyio
@pytest.mark.outreach(faults={"create_contact": [faults.status(503, retry_after=60), faults.ok]})
async def test_a_refusal_is_repeated(outreach_client, outreach_fake, outreach_workspace, outreach_virtual_time):
    made = await outreach_client.contacts.create(NewContact("ann@company.example"))
    assert made.attempts == 2
    assert len(outreach_fake.contacts(outreach_workspace)) == 1
    assert outreach_virtual_time.elapsed >= 60


# -> 2 passed in ...s
```

It passed twice because anyio's plugin runs a test on asyncio and on trio. The fixtures:

    outreach_fake          a `FakeService` of this test alone
    outreach_workspace     the id of a workspace in it: the world's first, or an empty one
    outreach_owner_key     a key for that workspace
    outreach_client        an `OutreachClient` on the fake, in memory, closed at the end; on asyncio and trio, in any event loop
    outreach_url           the base URL of the fake on a real port, for code that insists on one
    outreach_virtual_time  waiting takes no time, in the event loop and for the fake; in memory only, not with sockets or threads
    outreach_behaviour     the `Behaviour` of the fake

The marker, with all that it takes:

    @pytest.mark.outreach(
        seed=7,
        world="world.json",          # or the document; a path is from the test's file
        behaviour="strict",          # "documented", "lenient", "pairwise", "behaviour.toml", {"past_end": "clamp"}, a Behaviour
        faults={"create_contact": [faults.status(503), faults.ok]},
        unfired="ignore",            # else a test fails if one of its faults never struck
    )

The marker also holds on classes and modules; the closest one decides, argument by argument. With `behaviour="pairwise"` a test
runs about thirty times, such that any two readings of two knobs meet once. The summary names the readings that explain its
failures, also when they are alternatives: `those with past_end='clamp' or past_end='error'`. `--outreach-behaviour` is for tests
that say none.

`outreach_virtual_time` is for tests that run through anyio's plugin: `@pytest.mark.anyio`, or `anyio_mode = auto`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

# pytest imports this module in every suite of an environment, used or not: whatever is heavy is imported where it is needed.
if TYPE_CHECKING:
    from outreach_async.client import OutreachClient
    from outreach_async.fake import Behaviour, FakeService
    from outreach_async.testing import VirtualTime
    from outreach_async.testing.orders import Order
    from outreach_async.testing.reports import Use

_DEFAULT: pytest.StashKey[tuple[Behaviour, ...]] = pytest.StashKey()
_USE: pytest.StashKey[Use] = pytest.StashKey()
_MARKER = (
    "outreach(seed=0, world=None, behaviour='documented', faults={}, unfired='error'): "
    "what the fake outreach service of this test is like; see outreach_async.pytest_plugin."
)


# What a test orders.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for tests that say no behaviour, and those of the conformance suite."""
    from outreach_async.conformance.options import add_options

    parser.getgroup("outreach_async").addoption(
        "--outreach-behaviour",
        metavar="BEHAVIOUR",
        help="how the fake outreach service behaves where tests do not say: documented, strict, lenient, pairwise, a .toml file",
    )
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and read the option."""
    config.addinivalue_line("markers", _MARKER)
    given = config.getoption("outreach_behaviour", None)
    if given is not None:
        from outreach_async.testing.orders import OrderError, read_behaviours

        try:
            config.stash[_DEFAULT] = read_behaviours(given, config.rootpath)
        except OrderError as error:
            raise pytest.UsageError(f"--outreach-behaviour: {error}") from None


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test once for each behaviour that it orders, in virtual time if it asks for it."""
    if "outreach_behaviour" in metafunc.fixturenames:
        behaviours = _order(metafunc.definition).behaviours
        if len(behaviours) > 1:
            from outreach_async.testing.reports import row_id

            metafunc.parametrize("outreach_behaviour", behaviours, ids=map(row_id, range(len(behaviours))))
    if {"outreach_virtual_time", "anyio_backend"} <= set(metafunc.fixturenames):
        from outreach_async.testing.collection import run_in_virtual_time

        run_in_virtual_time(metafunc)


def _order(node: pytest.Item) -> Order:
    from outreach_async.testing.orders import Order, OrderError, read_order

    default = node.config.stash.get(_DEFAULT, Order().behaviours)
    try:
        return read_order(node.iter_markers("outreach"), node.path.parent, default)
    except OrderError as error:
        raise _wrong(error) from None


def _wrong(error: Exception) -> BaseException:
    return pytest.fail.Exception(f"@pytest.mark.outreach: {error}", pytrace=False)


# Fixtures.


@pytest.fixture
def outreach_behaviour(request: pytest.FixtureRequest) -> Behaviour:
    """The readings that the fake takes where the interface is silent."""
    behaviours = _order(request.node).behaviours
    if len(behaviours) > 1:
        pytest.fail(
            "behaviour='pairwise': the test must have a fixture as an argument, getfixturevalue() is too late", pytrace=False
        )
    return behaviours[0]


@pytest.fixture
def outreach_virtual_time() -> VirtualTime:
    """The clock of the test's event loop: it jumps instead of waiting. The fake's clock follows it."""
    from outreach_async.testing import VirtualTime

    return VirtualTime()


@pytest.fixture
def outreach_fake(request: pytest.FixtureRequest, outreach_behaviour: Behaviour) -> FakeService:
    """The service in memory, as `@pytest.mark.outreach` says."""
    from outreach_async.testing.orders import OrderError
    from outreach_async.testing.reports import Use
    from outreach_async.testing.virtual_time import START

    virtual = "outreach_virtual_time" in request.fixturenames
    clock = request.getfixturevalue("outreach_virtual_time") if virtual else START
    order = _order(request.node)
    try:
        fake = order.service(outreach_behaviour, clock)
    except OrderError as error:
        raise _wrong(error) from None
    request.node.stash[_USE] = Use(fake, order, outreach_behaviour)
    return fake


@pytest.fixture
def outreach_workspace(outreach_fake: FakeService) -> str:
    """The id of a workspace in the fake: the world's first, or an empty one."""
    from outreach_async.testing.worlds import first_workspace

    return first_workspace(outreach_fake)


@pytest.fixture
def outreach_owner_key(outreach_fake: FakeService, outreach_workspace: str) -> str:
    """A key for the workspace."""
    from outreach_async.testing.worlds import first_key

    return first_key(outreach_fake, outreach_workspace)


@pytest.fixture
def outreach_client(outreach_fake: FakeService, outreach_workspace: str, outreach_owner_key: str) -> Iterator[OutreachClient]:
    """A client of the fake, in memory, for the workspace and the key."""
    from outreach_async.client import OutreachClient
    from outreach_async.fake.transport import FakeTransport
    from outreach_async.testing.worlds import credentials

    client = OutreachClient(
        transport=FakeTransport(outreach_fake),
        workspace=outreach_workspace,
        owner_key=outreach_owner_key,
        headers=credentials(outreach_fake, outreach_owner_key),
    )
    yield client
    # The fake's transport closes without waiting: no event loop is needed, and so none is prescribed.
    closing = client.aclose()
    with pytest.raises(StopIteration):
        closing.send(None)


@pytest.fixture
def outreach_url(request: pytest.FixtureRequest, outreach_fake: FakeService) -> Iterator[str]:
    """The base URL of the fake on a real port, served by a thread of its own."""
    from anyio.from_thread import start_blocking_portal

    from outreach_async.fake.server import serve

    if "outreach_virtual_time" in request.fixturenames:
        pytest.fail("outreach_url and outreach_virtual_time exclude each other: sockets take real time", pytrace=False)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(outreach_fake)) as url:
        yield url


# What becomes of a test.


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Fail a test that has passed although a fault that it ordered never struck."""
    __tracebackhide__ = True
    result = yield
    use = item.stash.get(_USE, None)
    if use is not None and use.unfired:
        pytest.fail(f"faults that never struck: {'; '.join(use.unfired)}", pytrace=False)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failure what the fake was like and what it was asked."""
    report = yield
    use = item.stash.get(_USE, None)
    if use is not None:
        vars(report)["outreach_row"] = use.row  # pytest-xdist carries it over
        if report.failed:
            report.sections.append(("outreach service", use.report()))
        if report.when == "teardown":
            del item.stash[_USE]  # items live as long as the run
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which readings the tests that ran under many behaviours could not bear."""
    reports = [report for name in ("passed", "failed") for report in terminalreporter.getreports(name)]
    rows = [report for report in reports if getattr(report, "outreach_row", None) is not None]
    if any(report.failed for report in rows):
        from outreach_async.testing.suspects import verdicts

        terminalreporter.section("outreach behaviours")
        for line in verdicts((report.nodeid, report.outreach_row, report.failed) for report in rows):
            terminalreporter.line(line)
