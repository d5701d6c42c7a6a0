"""What a test orders of the fake with `@pytest.mark.outreach(...)`: read, checked and put together, without pytest."""

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
"""Behaviours by name. `pairwise` is a name too, for many of them."""

_NAMES: Final = ", ".join(map(repr, [*PRESETS, "pairwise"]))


class OrderError(ValueError):
    """A test orders what the fake cannot give; the message names the argument and what it takes."""


class Mark(Protocol):
    """A use of the marker, as pytest hands it over."""

    @property
    def args(self) -> tuple[Any, ...]:
        """What was given without a name."""

    @property
    def kwargs(self) -> Mapping[str, Any]:
        """What was given by name."""


@attrs.frozen(kw_only=True)
class Order:
    """What a test orders.

    Attributes:
        seed: What the fake makes up is drawn from it.
        world: What it has stored at first: a world file's path or text, or the document itself.
        behaviours: The readings in force; with more than one, the test runs once for each.
        faults: What goes wrong, in order, by operation.
        unfired: What becomes of a test that passes although a fault never struck: `error` fails it, `ignore` does not.
    """

    seed: int = 0
    world: str | Path | Mapping[str, Any] | None = None
    behaviours: tuple[Behaviour, ...] = (Behaviour(),)
    faults: Mapping[str, Sequence[Fault]] = attrs.field(factory=dict)
    unfired: Literal["error", "ignore"] = "error"

    def service(self, behaviour: Behaviour, clock: str | Callable[[], float]) -> FakeService:
        """Make the fake: with its world stored and its faults waiting.

        Raises:
            OrderError: The world makes none, or cannot be read.
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
    """Read what a test orders.

    Args:
        marks: The uses of the marker that hold for it, the closest first: what a closer one says, holds.
        folder: What relative paths start from: that of the test's file.
        default: The behaviours of a test that says none.

    Raises:
        OrderError: An argument is wrong.
    """
    given: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise OrderError(f"it takes arguments by name only ({', '.join(_READERS)}), not {mark.args[0]!r}")
        for name in mark.kwargs:
            _check_name(name)
        given = {**mark.kwargs, **given}
    read = {name: _READERS[name](value, folder) for name, value in given.items()}
    behaviours = read.pop("behaviour", tuple(default))
    return Order(behaviours=behaviours, **read)


def read_behaviours(value: Any, folder: Path) -> tuple[Behaviour, ...]:
    """Read the behaviours that a value stands for.

    Args:
        value: A behaviour, the name of one or of many, the path of a file, or readings by knob.
        folder: What a relative path starts from.

    Raises:
        OrderError: It stands for none.
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
    raise TypeError(f"{value!r} is none; it takes {_NAMES}, the path of a .toml file, a Behaviour, or readings by knob")


def _check_name(name: str) -> None:
    try:
        check_known(name, _READERS, "it")
    except TypeError as error:
        raise OrderError(str(error)) from None


def _seed(value: Any, _: Path) -> int:
    if type(value) is not int:
        raise OrderError(f"seed: must be a whole number, not {value!r}")
    return value


def _world(value: Any, folder: Path) -> str | Path | Mapping[str, Any]:
    if isinstance(value, Mapping):
        return value
    if isinstance(value, str | Path):
        text = isinstance(value, str) and value.lstrip().startswith("{")
        return str(value) if text else folder / value
    raise OrderError(f"world: must be a world file's path, its text or the document, not {type(value).__name__}")


def _faults(value: Any, _: Path) -> Mapping[str, Sequence[Fault]]:
    if not isinstance(value, Mapping):
        raise OrderError(f"faults: must be a mapping of operations to faults, not {type(value).__name__}")
    scripts = {operation: tuple(faults) if isinstance(faults, Sequence) else (faults,) for operation, faults in value.items()}
    try:
        for operation, script in scripts.items():
            Faults(0).script(operation, *script)
    except (TypeError, ValueError) as error:
        raise OrderError(f"faults: {error}") from error
    return scripts


def _unfired(value: Any, _: Path) -> Literal["error", "ignore"]:
    if value not in ("error", "ignore"):
        raise OrderError(f"unfired: must be 'error' or 'ignore', not {value!r}")
    return "ignore" if value == "ignore" else "error"


_READERS: Final[Mapping[str, Callable[[Any, Path], Any]]] = {
    "seed": _seed,
    "world": _world,
    "behaviour": read_behaviours,
    "faults": _faults,
    "unfired": _unfired,
}
"""What each argument takes."""
