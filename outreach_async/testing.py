"""Tools for tests: virtual time and fake behaviours.

Pairwise behaviours cover the rules that the service's API documentation
does not specify. In virtual time, ten minutes of waiting take
milliseconds, and events occur in the same order as in real time. Use the
same clock for the event loop and the fake, so that the client's waits
match the times that the fake sends:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport, faults
from outreach_async.testing import VirtualTime

time = VirtualTime()
fake = FakeService(clock=time)
fake.faults.script("list_fields", faults.status(429, retry_after=600))


async def main() -> None:
    async with OutreachClient(transport=FakeTransport(fake), workspace=fake.add_workspace(), deadline=None) as client:
        await client.workspaces.fields()


anyio.run(main, backend="trio", backend_options=time.options("trio"))
print(time.elapsed >= 600)  # -> True
```

Virtual time jumps to the next timer as soon as all tasks are waiting, also
for other threads than those that write journals and ledgers, and for
sockets. So use it only with in-memory clients.

The knobs of `outreach_async.fake.Behaviour` have billions of combinations,
but most code depends on one or two of them. `pairwise()` returns about
thirty behaviours, which cover every pair of values of any two knobs. Test
your code against `FakeService(behaviour=...)` with each of them;
`differing` returns the knobs of one that do not have their defaults.

With pytest, use the fixtures and the marker of
`outreach_async.pytest_plugin` instead. This package itself does not need
pytest.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from itertools import combinations_with_replacement
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

import anyio

from outreach_async._plumbing import AT_WORK, require_types
from outreach_async.errors import InvalidRequest
from outreach_async.fake.behaviour import KNOB_NAMES, KNOB_VALUES, Behaviour

if TYPE_CHECKING:
    from trio.abc import Clock

__all__ = ["VirtualTime", "VirtualTimeLoop", "differing", "pairwise"]

_DEFAULT_START: Final = "2026-01-01T00:00:00Z"

# Options of anyio's backends that set the event loop or its clock.
_REPLACED_OPTIONS: Final = frozenset({"loop_factory", "use_uvloop", "clock"})


class _JumpSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # If no timer is set, or while a thread writes a journal, block: only a signal or a thread can wake the event loop.
        ready = super().select(None if timeout is None or (timeout and AT_WORK[get_ident()]) else 0)
        if not ready and timeout:
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio loop whose clock starts at 0 and jumps to the next timer.

    Example:
        ```python
        loop = VirtualTimeLoop()
        loop.run_until_complete(asyncio.sleep(3600))
        print(loop.time())  # -> 3600.0
        loop.close()
        ```
    """

    def __init__(self) -> None:
        self._jump_selector = _JumpSelector()
        super().__init__(self._jump_selector)

    def time(self) -> float:
        """Return the virtual time since the loop was created, in seconds."""
        return self._jump_selector.now


def _create_trio_clock() -> Clock:
    from trio.testing import MockClock

    clock = MockClock(autojump_threshold=0)
    to_sleep_time = clock.deadline_to_sleep_time

    def jump_or_block(deadline: float) -> float:
        # As for asyncio; trio would poll for a wake-up.
        clock.autojump_threshold = math.inf if deadline == math.inf or AT_WORK[get_ident()] else 0.0
        return to_sleep_time(deadline)

    clock.deadline_to_sleep_time = jump_or_block  # type: ignore[method-assign] # the class cannot be subclassed
    return clock


class VirtualTime:
    """A clock driven by an event loop.

    Pass the clock to `FakeService(clock=...)`, and its `options()` to
    `anyio.run`. The `FakeService` then uses this clock for rate limits,
    `Retry-After` and relative times. The clock advances when the client
    waits. It can be used for several calls of `anyio.run`, one after
    another: each starts when the last one ended.

    Args:
        start: Start time as an ISO 8601 string, by default in UTC.

    Raises:
        InvalidRequest: `start` is no time.

    Example:
        ```python
        time = VirtualTime("2026-05-01T12:00:00Z")
        anyio.run(anyio.sleep, 3600, backend_options=time.options("asyncio"))
        print(time.elapsed, time)  # -> 3600.0 <VirtualTime: 3600 s after its start>
        ```
    """

    def __init__(self, start: str = _DEFAULT_START) -> None:
        require_types(VirtualTime, {"start": start})
        try:
            moment = datetime.fromisoformat(start)
        except ValueError:
            got = f"a text of {len(start):,} characters"
            raise InvalidRequest(f"start: expected an ISO 8601 time, got {got}; pass a time such as {_DEFAULT_START}") from None
        self._start_time = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        self._elapsed_before = 0.0
        self._read_loop_time: Callable[[], float] = float  # returns zero until an event loop drives the clock

    def __repr__(self) -> str:
        return f"<VirtualTime: {self.elapsed:g} s after its start>"

    @property
    def elapsed(self) -> float:
        """Virtual time since the start, in seconds."""
        return self._elapsed_before + self._read_loop_time()

    def __call__(self) -> float:
        """Return the time of the clock, in Unix seconds."""
        try:
            running = anyio.current_time()
        except RuntimeError:  # no event loop is running, for example between an async fixture and its test
            pass
        else:
            if running != self._read_loop_time():
                raise RuntimeError(
                    "virtual time: expected the event loop that drives this clock, got another event loop; pass its options() to "
                    "anyio.run. Under pytest, check for an async fixture with a wider scope, or a parametrized `anyio_backend`"
                )
        return self._start_time + self.elapsed

    def options(self, backend: str, others: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return this time and `others` as `backend_options` of `anyio.run`.

        Example:
            ```python
            time = VirtualTime()
            anyio.run(anyio.sleep, 90, backend="trio", backend_options=time.options("trio"))
            print(time.elapsed)  # -> 90.0
            ```
        """
        kept = {name: value for name, value in (others or {}).items() if name not in _REPLACED_OPTIONS}
        if backend == "trio":
            clock = _create_trio_clock()
            self._attach(clock.current_time)
            return {**kept, "clock": clock}

        def create_loop() -> VirtualTimeLoop:
            loop = VirtualTimeLoop()
            self._attach(loop.time)
            return loop

        return {**kept, "loop_factory": create_loop}

    def _attach(self, read_time: Callable[[], float]) -> None:
        # The right side is evaluated first: `elapsed` still reads the clock of the previous run, so the times of all runs add up.
        self._elapsed_before, self._read_loop_time = self.elapsed, read_time


def cover_pairs(levels: Sequence[int]) -> list[tuple[int, ...]]:
    """Return rows for pairwise coverage of factors. A row has one level of each factor; the first row has all levels 0."""
    # The algorithm is greedy: it returns few rows, but not always the fewest possible. A dict instead of a set keeps its order,
    # which makes the result deterministic. A value paired with itself stands for the single value.
    values = [(factor, level) for factor, count in enumerate(levels) for level in range(count)]
    pairs = combinations_with_replacement(values, 2)
    missing = dict.fromkeys((one, other) for one, other in pairs if one == other or one[0] != other[0])
    rows: list[tuple[int, ...]] = []
    while missing or not rows:
        # Start with the first uncovered pair. For each other factor, choose the level that covers the most uncovered pairs.
        chosen = dict(next(iter(missing))) if rows else dict.fromkeys(range(len(levels)), 0)
        for factor in sorted(set(range(len(levels))) - chosen.keys(), key=lambda factor: -levels[factor]):
            gains = [
                sum((min(value, other), max(value, other)) in missing for other in chosen.items())
                for value in ((factor, level) for level in range(levels[factor]))
            ]
            chosen[factor] = gains.index(max(gains))
        rows.append(tuple(chosen[factor] for factor in range(len(levels))))
        for pair in combinations_with_replacement(enumerate(rows[-1]), 2):
            missing.pop(pair, None)
    return rows


@cache
def pairwise() -> tuple[Behaviour, ...]:
    """Return behaviours that cover every pair of values of any two knobs.

    The first behaviour is `Behaviour()`. The knobs `auth` and `rate_limit`
    have no predefined values, and keep their defaults.

    Example:
        ```python
        print(len(pairwise()), pairwise()[0] == Behaviour())  # -> 28 True
        ```
    """
    rows = cover_pairs([len(values) for values in KNOB_VALUES.values()])
    knobs = KNOB_VALUES.items()
    return tuple(Behaviour(**{knob: values[level] for (knob, values), level in zip(knobs, row, strict=True)}) for row in rows)


def differing(behaviour: Behaviour) -> dict[str, Any]:
    """Return the knobs that do not have their default values, by name.

    Example:
        ```python
        print(differing(Behaviour(past_end="clamp")))  # -> {'past_end': 'clamp'}
        ```
    """
    defaults = Behaviour()
    return {name: value for name in KNOB_NAMES if (value := getattr(behaviour, name)) != getattr(defaults, name)}
