"""Renew a client's share of a rate while the client is open."""

from __future__ import annotations

from typing import Final
from uuid import uuid4

import anyio
from anyio.abc import TaskGroup

from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.limiter import RateLimiter
from outreach_async.logs import LOGGER
from outreach_async.shared_rate import Rate, RateShare, RateUsage

_INTERVAL: Final = 0.25
"""Seconds between two reports."""
_IDLE_INTERVAL: Final = 0.5
"""Seconds between two reports of a client that sends nothing. The rate keeps a share for it, so that its next request need not
wait."""


class RatePoller:
    """Reports a client's usage to a rate and applies the shares that it returns, in a task of its own.

    Requests never wait for a report. If reports fail or hang, the client's last share expires, and the client sends nothing until
    a report succeeds.

    Args:
        rate: The rate.
        limiter: The client's limiter, which counts the usage and obeys the share.
    """

    def __init__(self, rate: Rate, limiter: RateLimiter) -> None:
        self._rate = rate
        self._limiter = limiter
        self._tasks: TaskGroup | None = None
        self._is_failing = False

    def require_running(self) -> None:
        """Check that the client is open.

        Raises:
            InvalidRequest: Nothing renews the share, so a request would wait forever.
        """
        if self._tasks is None:
            raise InvalidRequest("rate: a client with a shared rate works only while it is open; use `async with` on the client")

    async def start(self) -> None:
        """Start to renew the share.

        Raises:
            InvalidRequest: The client is already open.
        """
        if self._tasks is not None:
            raise InvalidRequest("rate: the client is already open; use one `async with` for each client with a shared rate")
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        self._tasks.start_soon(self._run)

    async def stop(self) -> None:
        """Stop renewing the share."""
        if self._tasks is None:  # the client was not opened, or has been closed already
            return
        tasks, self._tasks = self._tasks, None
        tasks.cancel_scope.cancel()
        # The error of the caller's block, if any, is not passed on: the task group would wrap it in an exception group.
        await tasks.__aexit__(None, None, None)

    async def _run(self) -> None:
        client = uuid4().hex  # made here, because a forked process must not report as its parent
        reported_at = anyio.current_time()
        while True:
            now = anyio.current_time()
            usage = self._take_usage(client, now - reported_at)
            reported_at = now
            await self._report(usage, now)
            await anyio.sleep(_INTERVAL if usage.wanted else _IDLE_INTERVAL)

    def _take_usage(self, client: str, seconds: float) -> RateUsage:
        counts = self._limiter.take_usage()
        return RateUsage(
            client=client,
            seconds=seconds,
            wanted=counts.wanted,
            succeeded=counts.answered,
            refused=counts.refused,
            retry_after=counts.retry_after,
        )

    async def _report(self, usage: RateUsage, now: float) -> None:
        """Report the usage at the time `now` and apply the share. A failure is logged, and the last share stays valid."""
        try:
            share = await self._rate.renew(usage)
            if not isinstance(share, RateShare):
                raise TypeError(f"renew() returned {type(share).__name__} instead of RateShare")  # noqa: TRY301 - logged below
        except Exception as error:  # noqa: BLE001 - a failing rate must not end the caller's tasks
            if not self._is_failing:
                self._is_failing = True
                # The text of another library's error may quote a password.
                text = (
                    f"{type(error).__name__}: {error}" if isinstance(error, OutreachError | TypeError) else type(error).__name__
                )
                LOGGER.warning("rate: no new share, so nothing is sent after the last one expires: %s", text)
            return
        if self._is_failing:
            self._is_failing = False
            LOGGER.info("rate: a new share has arrived")
        # The expiry counts from the report, and the hold from the reply: both err on the safe side.
        self._limiter.apply_share(share.rate, now + share.expires_in, anyio.current_time() + share.hold)
