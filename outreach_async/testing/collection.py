"""Run a test in virtual time under anyio's pytest plugin, by overriding the fixture `anyio_backend` for this test only.

anyio's plugin reads the event loop and its options from the fixture `anyio_backend`. Test suites may override this fixture
with another value, other parameters or another scope. This module takes the value of the suite's fixture and replaces the clock
in it. No other module of this package imports pytest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from outreach_async.testing.virtual_time import VirtualTime

_NAME = "anyio_backend"


def run_in_virtual_time(metafunc: pytest.Metafunc) -> None:
    """Run the event loop of a test in the virtual time of its `outreach_virtual_time` fixture.

    A test that sets its event loop in a parametrize mark keeps that event loop.
    """
    definition = metafunc.definition
    fixtures: Sequence[Any] = metafunc._arg2fixturedefs.get(_NAME, ())  # noqa: SLF001 - pytest has no public function for this
    if not fixtures:
        return
    # The parameters are those of the suite's fixture, or of a fixture that it overrides and requests. The new fixture declares
    # them again: inherited parameters would keep their wider scope, but the clock belongs to a single test.
    last = next((each for each in reversed(fixtures) if each.params is not None or _NAME not in each.argnames), fixtures[0])
    manager = definition.session._fixturemanager  # noqa: SLF001 - not public either

    def backend(anyio_backend: Any, outreach_virtual_time: VirtualTime) -> Any:
        return outreach_virtual_time.backend(anyio_backend)

    if hasattr(pytest, "register_fixture"):
        pytest.register_fixture(name=_NAME, func=backend, node=definition, params=last.params, ids=last.ids)
    else:  # before pytest 9.1
        register = manager._register_fixture  # noqa: SLF001 - not public before pytest 9.1
        register(name=_NAME, func=backend, nodeid=definition.nodeid, params=last.params, ids=last.ids)
    metafunc._arg2fixturedefs[_NAME] = manager.getfixturedefs(_NAME, definition) or ()  # noqa: SLF001 - the same
