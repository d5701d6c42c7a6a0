"""Reads quota headers: `X-RateLimit-*`, the same names without `X-`, and the single `RateLimit` field of the later drafts.

    X-RateLimit-Limit: 60         RateLimit-Limit: 60, 60;w=60        RateLimit: limit=60, remaining=12, reset=30
    X-RateLimit-Remaining: 12     RateLimit-Remaining: 12             RateLimit: "default";r=12;t=30
    X-RateLimit-Reset: 30         RateLimit-Reset: 30                 RateLimit-Policy: "default";q=60;w=60

A `Reset` value is in seconds; one that would mean years is read as Unix time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

_EPOCH: Final = 1e8
"""Reset values from this number on, about three years in seconds, are read as Unix time."""
_PATIENCE: Final = 60.0
"""Seconds after a reset for which the known limit applies, if no response states a quota meanwhile."""
_NUMBER: Final = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)")
_PARAMETER: Final = re.compile(r"\b(limit|remaining|reset|q|r|t)\s*=\s*([0-9]{1,15})")
_SHORT: Final = {"q": "limit", "r": "remaining", "t": "reset"}
_FAMILIES: Final = ("x-ratelimit-", "ratelimit-")


@attrs.frozen
class Quota:
    """The quota that one response states.

    Attributes:
        remaining: Requests left until the reset.
        reset: Seconds until the reset.
        limit: Requests available after the reset; infinite if unknown.
    """

    remaining: float
    reset: float
    limit: float = math.inf


def is_told(headers: Mapping[str, str]) -> bool:
    """Return whether a response states a quota. This check runs for every response, so it must be cheap."""
    return "x-ratelimit-remaining" in headers or "ratelimit-remaining" in headers or "ratelimit" in headers


def read(headers: Mapping[str, str], wall: Callable[[], float]) -> Quota | None:
    """Return the quota that a response states; `None` if the number remaining or the reset is missing.

    Args:
        headers: The response's header fields, by lower-case name.
        wall: Returns Unix time in seconds, for a response without a valid `Date`.
    """
    told = _parameters(headers) or _fields(headers)
    if "remaining" not in told or "reset" not in told:
        return None
    reset = told["reset"]
    if reset >= _EPOCH:
        reset = max(0.0, reset - _sent(headers, wall))
    return Quota(told["remaining"], reset, told.get("limit", math.inf))


def _fields(headers: Mapping[str, str]) -> dict[str, float]:
    told: dict[str, float] = {}
    for family in _FAMILIES:
        for name in ("limit", "remaining", "reset"):
            if name not in told and (number := _NUMBER.match(headers.get(family + name, ""))):
                told[name] = float(number[1])
    return told


def _parameters(headers: Mapping[str, str]) -> dict[str, float]:
    text = f"{headers.get('ratelimit-policy', '')},{headers['ratelimit']}" if "ratelimit" in headers else ""
    return {_SHORT.get(name, name): float(value) for name, value in _PARAMETER.findall(text)}


def _sent(headers: Mapping[str, str], wall: Callable[[], float]) -> float:
    """Return the Unix time of a response by the service's own clock, to which its reset refers."""
    from email.utils import parsedate_to_datetime  # slow to import, and needed only for a reset in Unix time

    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return wall()


class Allowance:
    """The number of attempts that the quota still allows.

    Attempts in flight are subtracted from the stated remainder, because the service may not have counted them yet. This may send
    too few requests for a moment, never too many. A response is ignored if a later-started attempt's response was applied before.
    """

    __slots__ = ("_heeded", "_left", "_limit", "_resets_at")

    def __init__(self) -> None:
        self._left = self._limit = math.inf
        self._resets_at = self._heeded = -math.inf

    def heed(self, quota: Quota, *, started: float, now: float, in_flight: int) -> None:
        """Apply the quota of a response to an attempt that started at this instant."""
        if started >= self._heeded:
            self._heeded = started
            self._left, self._limit = quota.remaining - in_flight, quota.limit
            self._resets_at = now + quota.reset

    def opens_at(self, now: float) -> float:
        """Return the instant from which an attempt may start."""
        if self._left >= 1 or now >= self._resets_at:
            return -math.inf
        return self._resets_at

    def start(self, now: float) -> None:
        """Record the start of an attempt."""
        if now >= self._resets_at:
            self._left, self._resets_at = self._limit, now + _PATIENCE
        self._left -= 1

    def give_back(self) -> None:
        """Give a request back for an attempt that failed or did not start: the service may not have counted it."""
        self._left += 1
