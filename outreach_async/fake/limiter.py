"""Limits (rule E4): requests per window and scope on the fake's clock, and concurrent exchanges."""

from __future__ import annotations

import math
from collections.abc import Callable
from email.utils import formatdate
from functools import partial

from outreach_async.fake.behaviour import RateLimit
from outreach_async.fake.refusals import refused


class Limiter:
    """Counts the requests of the current window, and the exchanges in flight."""

    def __init__(self) -> None:
        self._window = -1
        self._counts: dict[str, int] = {}
        self._under_way: set[object] = set()

    def admit(self, scope: str, limit: RateLimit, now: float) -> None:
        """Count a request.

        Raises:
            Refused: 429 with `Retry-After` if the window is full. A refused request does not count.
        """
        window = math.floor(now / limit.per)
        if window != self._window:
            self._window = window
            self._counts.clear()  # every scope has the same windows: no old count is needed again
        if self._counts.get(scope, 0) >= limit.limit:
            end = (window + 1) * limit.per
            wait = formatdate(math.ceil(end), usegmt=True) if limit.retry_after == "date" else str(max(1, math.ceil(end - now)))
            raise refused(429, "rate_limited", "too many requests", headers={"retry-after": wait})
        self._counts[scope] = self._counts.get(scope, 0) + 1

    def occupy(self, most: int) -> Callable[[], object]:
        """Take a place among the exchanges in flight.

        Returns:
            A function that frees the place. It can be called at any time, from any thread, and more than once.

        Raises:
            Refused: 429 with `Retry-After` if `most` exchanges are already in flight.
        """
        if len(self._under_way) >= most:
            message = f"more than {most} requests are under way at once"
            raise refused(429, "too_many_in_flight", message, headers={"retry-after": "1"}, knob="max_in_flight")
        # A set of tokens, not a counter: an exchange may be ended twice, and only the first end may free a place. `discard` is
        # atomic, and therefore needs no lock, although transports call it outside the fake's.
        place = object()
        self._under_way.add(place)
        return partial(self._under_way.discard, place)
