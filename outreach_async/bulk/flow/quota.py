"""What answers say of a quota: `X-RateLimit-*`, the same names without the `X-`, and the one field of the later drafts.

    X-RateLimit-Limit: 60         RateLimit-Limit: 60, 60;w=60        RateLimit: limit=60, remaining=12, reset=30
    X-RateLimit-Remaining: 12     RateLimit-Remaining: 12             RateLimit: "default";r=12;t=30
    X-RateLimit-Reset: 30         RateLimit-Reset: 30                 RateLimit-Policy: "default";q=60;w=60

`Reset` is in seconds, or where that would be years, in Unix time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import attrs

_EPOCH: Final = 1e8
_PATIENCE: Final = 60.0
"""Seconds after a reset for which its quota is believed, should no answer speak of it again."""
_NUMBER: Final = re.compile(r"\s*([0-9]{1,15}(?:\.[0-9]{1,9})?)")
_PARAMETER: Final = re.compile(r"\b(limit|remaining|reset|q|r|t)\s*=\s*([0-9]{1,15})")
_SHORT: Final = {"q": "limit", "r": "remaining", "t": "reset"}
_FAMILIES: Final = ("x-ratelimit-", "ratelimit-")


@attrs.frozen
class Quota:
    """One answer's word.

    Attributes:
        remaining: Requests that may still be made.
        reset: Seconds until there are more.
        limit: How many there are then; infinite if unknown.
    """

    remaining: float
    reset: float
    limit: float = math.inf


def is_told(headers: Mapping[str, str]) -> bool:
    """Whether an answer speaks of a quota; cheap, for it is asked of every answer."""
    return "x-ratelimit-remaining" in headers or "ratelimit-remaining" in headers or "ratelimit" in headers


def read(headers: Mapping[str, str], wall: Callable[[], float]) -> Quota | None:
    """Return an answer's word on a quota; `None` if it says too little to act on.

    Args:
        headers: The answer's, by lower-case name.
        wall: Returns Unix time, for an answer without a `Date`.
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
    """Return when an answer was made by the service's own clock, which it counts a reset by."""
    from email.utils import parsedate_to_datetime  # heavy, and needed only for a reset in Unix time

    try:
        return parsedate_to_datetime(headers["date"]).timestamp()
    except (KeyError, ValueError, OverflowError):
        return wall()


class Allowance:
    """How many attempts a quota still allows.

    Those under way count as not yet subtracted from what an answer says remains: that may ask too little for a moment, never too
    much. An answer to an attempt that began before the one heeded last says nothing new.
    """

    __slots__ = ("_heeded", "_left", "_limit", "_resets_at")

    def __init__(self) -> None:
        self._left = self._limit = math.inf
        self._resets_at = self._heeded = -math.inf

    def heed(self, quota: Quota, *, started: float, now: float, in_flight: int) -> None:
        """Take in an answer's word."""
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
        """Take in that an attempt starts."""
        if now >= self._resets_at:
            self._left, self._resets_at = self._limit, now + _PATIENCE
        self._left -= 1

    def give_back(self) -> None:
        """Take in that an attempt failed, and may never have counted."""
        self._left += 1
