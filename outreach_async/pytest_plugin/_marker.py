"""Choose behaviours for tests, configure the fake of a test from its marker, and report failed tests, with masked secrets."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from outreach_async.fake import FakeService
from outreach_async.fake.behaviour import KNOB_NAMES, PRESETS, Behaviour, load_behaviour
from outreach_async.fake.faults import Fault, Faults
from outreach_async.testing import differing, pairwise

if TYPE_CHECKING:
    import pytest


class FakeConfigError(ValueError):
    pass


@attrs.frozen(kw_only=True)
class FakeConfig:
    seed: int = 0
    world: str | Path | Mapping[str, Any] | None = None
    behaviours: tuple[Behaviour, ...] = (Behaviour(),)
    faults: Mapping[str, Sequence[Fault]] = attrs.field(factory=dict)
    unfired: Literal["error", "ignore"] = "error"

    def create_service(self, behaviour: Behaviour, clock: Callable[[], float] | None = None) -> FakeService:
        fake = FakeService(self.seed, behaviour) if clock is None else FakeService(self.seed, behaviour, clock)
        if self.world is not None:
            try:
                fake.load(self.world)
            except (OSError, ValueError) as error:
                raise FakeConfigError(f"world: {error}") from error
        for operation, faults in self.faults.items():
            fake.faults.script(operation, *faults)
        return fake


def read_config(marks: Iterable[pytest.Mark], folder: Path, default: Sequence[Behaviour]) -> FakeConfig:
    given: dict[str, Any] = {}
    for mark in marks:
        if mark.args:
            raise FakeConfigError(
                f"expected keyword arguments ({', '.join(_ARGUMENTS)}), got {mark.args[0]!r}; pass it by keyword"
            )
        given = {**mark.kwargs, **given}
    values: dict[str, Any] = {"behaviours": tuple(default)}
    for name, value in given.items():
        try:
            _check_known(name, _ARGUMENTS, "the marker")
            values["behaviours" if name == "behaviour" else name] = _read_argument(name, value, folder)
        except (OSError, TypeError, ValueError) as error:
            raise FakeConfigError(f"{name}: {error}" if name in _ARGUMENTS else str(error)) from None
    return FakeConfig(**values)


def _check_known(name: str, known: Sequence[str], what: str) -> None:
    if name not in known:
        near = get_close_matches(name, known, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"expected one of {', '.join(known)}"
        raise TypeError(f"{what} has no field {name!r}; {remedy}")


def read_behaviours(value: Any, folder: Path) -> tuple[Behaviour, ...]:
    if isinstance(value, Behaviour):
        return (value,)
    if value == "pairwise":
        return pairwise()
    if isinstance(value, Mapping):
        for knob in value:
            _check_known(knob, KNOB_NAMES, "Behaviour")
        return (Behaviour(**value),)
    if isinstance(value, str) and value in PRESETS:
        return (PRESETS[value](),)
    if isinstance(value, str | Path) and Path(value).suffix == ".toml":
        return (load_behaviour(folder / value),)
    names = ", ".join(map(repr, [*PRESETS, "pairwise"]))
    raise TypeError(
        f"expected {names}, the path of a .toml file, a Behaviour or a mapping of knobs, got {value!r}; pass one of them"
    )


def _read_argument(name: str, value: Any, folder: Path) -> Any:
    if name == "behaviour":
        return read_behaviours(value, folder)
    if name == "seed" and type(value) is not int:
        raise TypeError(f"expected a whole number, got {value!r}; pass a number such as 7")
    if name == "unfired" and value not in ("error", "ignore"):
        raise ValueError(f"expected 'error' or 'ignore', got {value!r}; pass one of them")
    if name == "world" and not isinstance(value, Mapping):
        if not isinstance(value, str | Path):
            kinds = "the path of a world file, its content as a string, or the parsed document"
            raise TypeError(f"expected {kinds}, got {type(value).__name__}; pass one of them")
        return value if isinstance(value, str) and value.lstrip().startswith("{") else folder / value
    if name == "faults":
        if not isinstance(value, Mapping):
            raise TypeError(f"expected a mapping of operations to faults, got {type(value).__name__}; pass a dict")
        value = {operation: tuple(script) if isinstance(script, Sequence) else (script,) for operation, script in value.items()}
        for operation, script in value.items():
            Faults(0).script(operation, *script)  # checks them
    return value


_ARGUMENTS: Final = ("seed", "world", "behaviour", "faults", "unfired")


_MAX_REQUESTS: Final = 20  # in the report of a failed test
_MAX_BODY_LENGTH: Final = 300


@attrs.frozen
class FakeUse:
    fake: FakeService
    config: FakeConfig
    behaviour: Behaviour

    @property
    def unfired(self) -> list[str]:
        """Descriptions of the faults that never fired; empty if the test ignores such faults."""
        return _count_repeats(self.fake.faults.unfired) if self.config.unfired == "error" else []

    @property
    def row(self) -> int | None:
        rows = self.config.behaviours
        return rows.index(self.behaviour) if len(rows) > 1 else None

    def format_report(self) -> Iterator[str]:
        yield f"seed: {self.fake.seed}"
        row = "" if self.row is None else f"{format_row_id(self.row)} of {len(self.config.behaviours)}: "
        yield f"behaviour: {row}{format_settings(self.fake.behaviour)}"
        yield from (f"never fired: {fault}" for fault in _count_repeats(self.fake.faults.unfired))
        recent = [each.masked() for each in self.fake.requests.recent(_MAX_REQUESTS)]
        yield f"requests: {len(self.fake.requests)}{', the last ones:' if recent else ''}"
        for each in recent:
            status = "no response" if each.status is None else str(each.status)
            fault = f", fault {each.fault}" if each.fault else ""
            after = each.at - recent[0].at
            yield f"#{each.number} +{after:.3f} s {each.method} {each.target} -> {status}{fault}"
            if each.json is not None:
                body = json.dumps(each.json, ensure_ascii=False)
                yield f"    body: {body if len(body) <= _MAX_BODY_LENGTH else body[:_MAX_BODY_LENGTH] + '...'}"
            yield from (f"    hint: {hint}" for hint in each.hints)


def format_row_id(number: int) -> str:
    return f"row{number:02}"


def format_settings(behaviour: Behaviour) -> str:
    """Return the knobs that do not have their default values, as `knob=value` pairs; `all defaults` if there are none."""
    return ", ".join(f"{knob}={format_setting(value)}" for knob, value in differing(behaviour).items()) or "all defaults"


def _count_repeats(texts: Iterable[str]) -> list[str]:
    return [f"{text}, {times} times" if times > 1 else text for text, times in Counter(texts).items()]


def format_setting(value: Any) -> str:
    # The repr of a function contains a memory address, which differs between runs.
    return getattr(value, "__qualname__", None) or repr(value)


def summarize_failures(ran: Iterable[tuple[str, int, bool]]) -> list[str]:
    """Return one line for each test that failed at least once, with the settings that explain its failures."""
    tests: dict[str, dict[int, bool]] = {}
    for test, row, failed in ran:
        rows = tests.setdefault(test.replace(format_row_id(row), "row*"), {})
        rows[row] = rows.get(row, False) or failed
    lines = []
    for name, rows in tests.items():
        if failing := [pairwise()[row] for row, failed in rows.items() if failed]:
            passing = [pairwise()[row] for row, failed in rows.items() if not failed]
            # With some of the rows, as with `-x` or `-k`, every setting of the only row that failed would look guilty.
            causes = find_causes(failing, passing) if len(rows) == len(pairwise()) else []
            reason = f": it fails with {', or with '.join(causes)}" if causes else ""
            lines.append(f"{name} failed under {len(failing)} of {len(rows)} behaviours{reason}")
    return lines


def find_causes(failing: Iterable[Behaviour], passing: Iterable[Behaviour]) -> list[str]:
    """Return the fewest settings such that every run with one of them failed, those with the most failures first."""
    rest = [set(differing(behaviour).items()) for behaviour in failing]
    innocent = {setting for behaviour in passing for setting in differing(behaviour).items()}
    if set() in rest:
        return ["all defaults"]
    causes = []
    while guilty := Counter(setting for settings in rest for setting in settings - innocent):
        cause = max(sorted(guilty, key=repr), key=lambda setting: guilty[setting])
        causes.append(f"{cause[0]}={format_setting(cause[1])}")
        rest = [settings for settings in rest if cause not in settings]
    return causes
