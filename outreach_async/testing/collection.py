"""Run a test in virtual time under anyio's plugin, by overriding its `anyio_backend` fixture for this test only.

anyio's plugin gets the event loop and its options from one fixture, `anyio_backend`. Test suites override it with a value, with
parameters or at another scope. This module takes the value of their fixture and replaces its clock. It is the only module of the
package that needs pytest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outreach_async.testing.virtual_time import VirtualTime

_NAME = "anyio_backend"


def run_in_virtual_time(metafunc: pytest.Metafunc) -> None:
    """Run the event loop of a test in the time of its `outreach_virtual_time` fixture.

    A test that sets its event loop in a parametrize mark keeps that event loop.
    """
    definition = metafunc.definition
    fixtures: Sequence[Any] = metafunc._arg2fixturedefs.get(_NAME, ())  # noqa: SLF001 - pytest has no public way
    if not fixtures:
        return
    # The parameters are the fixture's own, or those of one that it overrides and requests. The override declares them again:
    # inherited parameters would bring their wider scope, but the clock belongs to a single test.
    last = next((each for each in reversed(fixtures) if each.params is not None or _NAME not in each.argnames), fixtures[0])
    manager = definition.session._fixturemanager  # noqa: SLF001 - the same

    def backend(anyio_backend: Any, outreach_virtual_time: VirtualTime) -> Any:
        return outreach_virtual_time.backend(anyio_backend)

    if hasattr(pytest, "register_fixture"):
        pytest.register_fixture(name=_NAME, func=backend, node=definition, params=last.params, ids=last.ids)
    else:  # before pytest 9.1
        register = manager._register_fixture  # noqa: SLF001 - it had no public name
        register(name=_NAME, func=backend, nodeid=definition.nodeid, params=last.params, ids=last.ids)
    metafunc._arg2fixturedefs[_NAME] = manager.getfixturedefs(_NAME, definition) or ()  # noqa: SLF001 - the same
