"""Read and check the arguments of `@pytest.mark.outreach(...)`, without importing pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Protocol

import attrs

from outreach_async.fake.behaviour import Behaviour
from outreach_async.fake.behaviourfile import KNOBS, load_behaviour
from outreach_async.fake.exchange import Fault
from outreach_async.fake.faults import Faults
from outreach_async.fake.given import check_known
from outreach_async.fake.service import FakeService
from outreach_async.testing.pairwise import pairwise

PRESETS: Final[Mapping[str, Callable[[], Behaviour]]] = {
    "documented": Behaviour.documented,
    "strict": Behaviour.strict,
    "lenient": Behaviour.lenient,
}
"""Behaviours by name. The name `pairwise` also exists, for many behaviours."""

_NAMES: Final = ", ".join(map(repr, [*PRESETS, "pairwise"]))


class OrderError(ValueError):
    """An argument of the marker is invalid; the message names the argument and the valid values."""


class Mark(Protocol):
    """One use of the marker, as passed by pytest."""

    @property
    def args(self) -> tuple[Any, ...]:
        """The positional arguments."""

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """The keyword arguments."""


@attrs.frozen(kw_only=True)
class Order:
    """The configuration of a test's fake.

    Attributes:
        seed: Seed for generated data.
        world: The initial data: the path of a world file, its content as a string, or the parsed document.
        behaviours: The behaviours to test under; if there are several, the test runs once for each.
        faults: Faults to inject, in order, by operation.
        unfired: What happens if a test passes although a fault never fired: `error` fails the test, `ignore` does not.
    """

    seed: int = 0
    world: str | Path | Mapping[str, Any] | None = None
    behaviours: tuple[Behaviour, ...] = (Behaviour(),)
    faults: Mapping[str, Sequence[Fault]] = attrs.field(factory=dict)
    unfired: Literal["error", "ignore"] = "error"

    def service(self, behaviour: Behaviour, clock: str | Callable[[], float]) -> FakeService:
        """Make the fake, with its world loaded and its faults scheduled.

        Raises:
            OrderError: The world is invalid or cannot be read.
        """
        fake = FakeService(self.seed, behaviour, clock)
        if self.world is not None:
            try:
                fake.load(self.world)
            except (OSError, ValueError) as error:
                raise OrderError(f"world: {error}") from error
        for operation, faults in self.faults.items():
            fake.faults.script(operation, *faults)
        return fake


def read_order(marks: Iterable[Mark], folder: Path, default: Sequence[Behaviour]) -> Order:
    """Read the configuration of a test.

    Args:
        marks: The uses of the marker that apply to the test, closest first. The closest one that sets an argument decides.
        folder: The base of relative paths: the directory of the test file.
        default: The behaviours if no marker sets them.

    Raises:
        OrderError: An argument is invalid.
    """
    given: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise OrderError(f"expected keyword arguments ({', '.join(_READERS)}), got {mark.args[0]!r}; pass it by keyword")
        for name in mark.kwargs:
            _check_name(name)
        given = {**mark.kwargs, **given}
    read = {name: _READERS[name](value, folder) for name, value in given.items()}
    behaviours = read.pop("behaviour", tuple(default))
    return Order(behaviours=behaviours, **read)


def read_behaviours(value: Any, folder: Path) -> tuple[Behaviour, ...]:
    """Return the behaviours described by a value.

    Args:
        value: A behaviour, the name of one or more, the path of a file, or a mapping of knobs to values.
        folder: The base of relative paths.

    Raises:
        OrderError: The value describes no behaviour.
    """
    if isinstance(value, Behaviour):
        return (value,)
    if value == "pairwise":
        return pairwise()
    try:
        return (_behaviour(value, folder),)
    except (OSError, TypeError, ValueError) as error:
        raise OrderError(f"behaviour: {error}") from error


def _behaviour(value: Any, folder: Path) -> Behaviour:
    if isinstance(value, Mapping):
        for knob in value:
            check_known(knob, KNOBS, "Behaviour")
        return Behaviour(**value)
    if isinstance(value, str) and value in PRESETS:
        return PRESETS[value]()
    if isinstance(value, str | Path) and Path(value).suffix == ".toml":
        return load_behaviour(folder / value)
    raise TypeError(f"expected {_NAMES}, the path of a .toml file, a Behaviour or a mapping of knobs, got {value!r}")


def _check_name(name: str) -> None:
    try:
        check_known(name, _READERS, "the marker")
    except TypeError as error:
        raise OrderError(str(error)) from None


def _seed(value: Any, _: Path) -> int:
    if type(value) is not int:
        raise OrderError(f"seed: expected a whole number, got {value!r}")
    return value


def _world(value: Any, folder: Path) -> str | Path | Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str | Path):
        text = isinstance(value, str) and value.lstrip().startswith("{")
        return str(value) if text else folder / value
    raise OrderError(f"world: expected the path of a world file, its content or the document, got {type(value).__name__}")


def _faults(value: Any, _: Path) -> Mapping[str, Sequence[Fault]]:
    if not isinstance(value, Mapping):
        raise OrderError(f"faults: expected a mapping of operations to faults, got {type(value).__name__}")
    scripts = {operation: tuple(faults) if isinstance(faults, Sequence) else (faults,) for operation, faults in value.items()}
    try:
        for operation, script in scripts.items():
            Faults(0).script(operation, *script)
    except (TypeError, ValueError) as error:
        raise OrderError(f"faults: {error}") from error
    return scripts


def _unfired(value: Any, _: Path) -> Literal["error", "ignore"]:
    if value not in ("error", "ignore"):
        raise OrderError(f"unfired: expected 'error' or 'ignore', got {value!r}")
    return "ignore" if value == "ignore" else "error"


_READERS: Final[Mapping[str, Callable[[Any, Path], Any]]] = {
    "seed": _seed,
    "world": _world,
    "behaviour": read_behaviours,
    "faults": _faults,
    "unfired": _unfired,
}
"""The parser of each argument."""
