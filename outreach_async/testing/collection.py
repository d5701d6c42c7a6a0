"""How a test comes to run in virtual time under anyio's plugin: its `anyio_backend` is overridden, for this test alone.

anyio's plugin asks one fixture, `anyio_backend`, for the event loop and its options. Suites override it with a value, with
parameters or at another scope; what stands here takes whatever theirs gives and replaces its clock. The only module of this
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
    """Let a test's event loop run in the time of its fixture `outreach_virtual_time`.

    A test that chooses its event loop in a parametrize mark stays in that one.
    """
    definition = metafunc.definition
    given: Sequence[Any] = metafunc._arg2fixturedefs.get(_NAME, ())  # noqa: SLF001 - pytest tells no other way
    if not given:
        return
    params, ids = _parameters(given)
    _register(definition, params, ids)
    manager = definition.session._fixturemanager  # noqa: SLF001 - the same
    metafunc._arg2fixturedefs[_NAME] = manager.getfixturedefs(_NAME, definition) or ()  # noqa: SLF001 - the same


def _parameters(given: Sequence[Any]) -> tuple[Any, Any]:
    """Find the parameters that a test's `anyio_backend` has, its own or those of one that it overrides and asks for.

    They are repeated at the override: taken from below they would bring their wider scope along, and the time is one test's.
    """
    last = next((each for each in reversed(given) if each.params is not None or _NAME not in each.argnames), given[0])
    return last.params, last.ids


def _register(definition: pytest.Item, params: Any, ids: Any) -> None:
    def backend(anyio_backend: Any, outreach_virtual_time: VirtualTime) -> Any:
        return outreach_virtual_time.backend(anyio_backend)

    if hasattr(pytest, "register_fixture"):
        pytest.register_fixture(name=_NAME, func=backend, node=definition, params=params, ids=ids)
    else:  # before pytest 9.1
        manager = definition.session._fixturemanager  # noqa: SLF001 - it had no public name
        manager._register_fixture(name=_NAME, func=backend, nodeid=definition.nodeid, params=params, ids=ids)  # noqa: SLF001 - the same
