"""Measure the progress of an audit, and estimate the time left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import attrs

from outreach_async._plumbing import RateEstimator, RunThrottle, describe_pace


@attrs.frozen(kw_only=True)
class AuditProgress:
    """The progress of an audit.

    Attributes:
        workspaces, total: Number of finished workspaces, including those that could not be read, and of all workspaces.
        mailboxes, campaigns: Numbers read; a campaign counts even if its steps could not be read.
        rate: Recent reading rate, in mailboxes per second.
        state: `running`; `throttled` while a rate limit delays requests; `paused` while the service is down or requested a wait.
        resumes, why: Seconds until the pause ends, and its reason; 0.0 and an empty string if the audit is not paused.
        eta: Estimated seconds until the last workspace is read; `None` if unknown.

    Example:
        ```python
        async with stream(client, ["space_1"]) as findings:
            async for _ in findings:
                print(findings.progress)  # -> 1 of 1 workspaces, 2 mailboxes, ...
        ```
    """

    workspaces: int
    total: int
    mailboxes: int
    campaigns: int = 0
    rate: float
    state: Literal["running", "throttled", "paused"]
    resumes: float
    eta: float | None
    why: str = ""

    def __str__(self) -> str:
        """Return the progress as text: `3 of 9 workspaces, 1,234 mailboxes, 57/s, ETA 0:01:30`."""
        campaigns = [f"{self.campaigns:,} campaigns"] if self.campaigns else []
        counts = [f"{self.workspaces:,} of {self.total:,} workspaces", f"{self.mailboxes:,} mailboxes", *campaigns]
        return ", ".join([*counts, *describe_pace(self.rate, "/s", self.state, self.resumes, self.why, self.eta)])


class ProgressMeter:
    def __init__(self, workspaces: int, throttles: Sequence[RunThrottle], now: float) -> None:
        self._total = workspaces
        self._throttles = throttles
        self.campaigns = 0
        self._mailboxes = self._ended = self._pages_read = 0
        self._pages_left: dict[str, int] = {}  # for each workspace that was started
        self._mailbox_rate, self._page_rate = RateEstimator(now), RateEstimator(now)

    def expect_requests(self, workspace: str, count: int) -> None:
        self._pages_left[workspace] = self._pages_left.get(workspace, 0) + count

    def add_request(self, workspace: str) -> None:
        """Count a response. The estimate of the time left treats every response like a page."""
        self._pages_left[workspace] = max(0, self._pages_left.get(workspace, 0) - 1)
        self._pages_read += 1
        self._page_rate.add(1)

    def add_mailboxes(self, count: int) -> None:
        self._mailboxes += count
        self._mailbox_rate.add(count)

    def end_workspace(self, workspace: str) -> None:
        self._pages_left[workspace] = 0
        self._ended += 1

    def measure(self, now: float) -> AuditProgress:
        # Several clients are as far as the one that waits longest.
        throttle = max(self._throttles, key=lambda each: (each.opens_at, each.state(now) != "running"))
        state, pause = throttle.state(now), max(0.0, throttle.opens_at - now)
        limits = [each.limit or math.inf for each in self._throttles]
        rate = min(self._page_rate.rate(now), sum(limits))
        started, left = len(self._pages_left), float(sum(self._pages_left.values()))
        left += (self._total - started) * ((self._pages_read + left) / started if started else 1.0)
        return AuditProgress(
            workspaces=self._ended,
            total=self._total,
            mailboxes=self._mailboxes,
            campaigns=self.campaigns,
            rate=self._mailbox_rate.rate(now),
            state=state,
            resumes=pause,
            eta=pause + left / rate if rate else None,
            why=throttle.pause_reason if state == "paused" else "",
        )
