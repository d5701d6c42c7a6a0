"""Pause a run while the service fails: evaluate recent results, and open or close a circuit breaker."""

from __future__ import annotations

import math
from collections import deque
from typing import Final

import attrs

WINDOW_SIZE: Final = 100  # maximum number of recent attempts whose results are evaluated
MIN_RESULTS: Final = 20  # minimum number of results to decide whether the service is failing, or whether a row is the cause
FAILING_SHARE: Final = 0.5  # the service counts as failing if at least this fraction of the recent attempts failed
HEALTHY_SHARE: Final = 0.9  # a row is the cause if at least this fraction of the recent attempts to send other rows succeeded


@attrs.define(eq=False)
class FailureWindow:
    # The window stores only failures, each with its position among all results. Recording a success is therefore cheap.

    results: int = 0
    _since: int = 0
    _faults: deque[tuple[int, int, bool]] = attrs.field(factory=deque)

    def record_success(self) -> None:
        self.results += 1

    def record_fault(self, earlier_failures: int, *, is_refusal: bool = False) -> None:
        self._faults.append((self.results, earlier_failures, is_refusal))
        self.results += 1
        self._drop_old()

    def clear(self) -> None:
        self._since = self.results
        self._faults.clear()

    def _drop_old(self) -> None:
        while self._faults and self._faults[0][0] < self.results - WINDOW_SIZE:
            self._faults.popleft()

    @property
    def size(self) -> int:
        return min(self.results - self._since, WINDOW_SIZE)

    @property
    def is_failing(self) -> bool:
        """True if the service counts as failing: there are enough results, and at least half are failures other than refusals."""
        self._drop_old()
        faults = sum(not is_refusal for _, _, is_refusal in self._faults)
        return self.size >= MIN_RESULTS and faults >= FAILING_SHARE * self.size

    def is_row_at_fault(self, earlier_failures: int) -> bool | None:
        """Return whether a row that has just failed caused the failure; `None` if too few results of other rows are known."""
        # The row is the cause if nearly all attempts to send other rows succeed. The row's own failures must not count. However,
        # the window does not store which row failed. With each failure, it stores only the number of earlier failures of the same
        # row. For each number from 0 to `earlier_failures - 1`, one failure with this number is assumed to be the row's own, and
        # is ignored.
        self._drop_old()
        own = len({before for _, before, _ in self._faults if before < earlier_failures})
        others = self.size - own
        return None if others < MIN_RESULTS else others - (len(self._faults) - own) >= HEALTHY_SHARE * others


FIRST_PAUSE: Final = 5.0  # length of the first pause in seconds; each failed probe doubles it, up to `MAX_PAUSE`
MAX_PAUSE: Final = 60.0  # one probe a minute is no burden, and a run stays paused at most this long once the service is back
MIN_PAUSE: Final = 1.0  # pause after too many retries: short, because the service may be healthy. A failed probe doubles it.
PROBE_LEASE: Final = 120.0  # seconds after which a probe without a result counts as lost


@attrs.define(eq=False)
class Breaker:
    """A circuit breaker, which blocks the attempts of a run for a limited time."""

    # Initially, the breaker is closed, and attempts may start at any time. An open breaker blocks all attempts until the time
    # `opens_at`. From then on, a single attempt may start: the probe. If the probe succeeds, the breaker is closed.

    closed: bool = True
    opens_at: float = -math.inf
    tripped_at: float = -math.inf
    _interval: float = 0.0
    _probed_at: float = math.inf

    def trip(self, now: float, seconds: float = FIRST_PAUSE) -> None:
        if self.closed:
            self.tripped_at = now
        self.closed = False
        self._interval = seconds
        self.opens_at, self._probed_at = now + seconds, math.inf

    def record_start(self, now: float) -> None:
        """Record the start of an attempt. If the breaker is not closed, this attempt is the probe."""
        # Move `opens_at`, so that no other attempt starts while the probe is in flight. The time is limited, so a probe whose
        # result never arrives cannot pause the run forever.
        if not self.closed:
            self._probed_at, self.opens_at = now, now + PROBE_LEASE

    def is_probe(self, started: float) -> bool:
        # While the breaker waits for the probe, no other attempt starts, so all other attempts have earlier start times.
        return started >= self._probed_at

    def cancel_probe(self) -> None:
        """Record that the probe was cancelled, so that another attempt can become the probe."""
        self.opens_at, self._probed_at = -math.inf, math.inf

    def on_probe_failure(self, now: float, *, is_refusal: bool = False) -> None:
        """Record that the probe failed, and pause again, twice as long as before, up to `MAX_PAUSE`."""
        if not is_refusal:  # a refusal shows that the service is up: the new pause is as long as the last pause
            self._interval = min(2 * max(self._interval, MIN_PAUSE), MAX_PAUSE)
        self.opens_at, self._probed_at = now + self._interval, math.inf

    def shorten_pause(self, now: float, latest: float) -> None:
        """End the current pause at the time `latest` or earlier, unless that time has passed or a probe is in flight."""
        if not self.closed and now < latest and self._probed_at == math.inf:
            self.opens_at = min(self.opens_at, latest)

    def close(self) -> None:
        self.closed = True
        self.opens_at, self._probed_at = -math.inf, math.inf
