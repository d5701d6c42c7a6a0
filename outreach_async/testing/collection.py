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
    given: Sequence[Any] = metafunc._arg2fixturedefs.get(_NAME, ())  # noqa: SLF001 - pytest has no public way
    if not given:
        return
    params, ids = _find_parameters(given)
    _register_fixture(definition, params, ids)
    manager = definition.session._fixturemanager  # noqa: SLF001 - the same
    metafunc._arg2fixturedefs[_NAME] = manager.getfixturedefs(_NAME, definition) or ()  # noqa: SLF001 - the same


def _find_parameters(given: Sequence[Any]) -> tuple[Any, Any]:
    """Return the parameters of a test's `anyio_backend`, either its own or those of a fixture that it overrides and requests.

    The override declares them again. Inherited parameters would bring their wider scope, but the clock belongs to a single test.
    """
    last = next((each for each in reversed(given) if each.params is not None or _NAME not in each.argnames), given[0])
    return last.params, last.ids


def _register_fixture(definition: pytest.Item, params: Any, ids: Any) -> None:
    def backend(anyio_backend: Any, outreach_virtual_time: VirtualTime) -> Any:
        return outreach_virtual_time.backend(anyio_backend)

    if hasattr(pytest, "register_fixture"):
        pytest.register_fixture(name=_NAME, func=backend, node=definition, params=params, ids=ids)
    else:  # before pytest 9.1
        manager = definition.session._fixturemanager  # noqa: SLF001 - it had no public name
        manager._register_fixture(name=_NAME, func=backend, nodeid=definition.nodeid, params=params, ids=ids)  # noqa: SLF001 - the same
