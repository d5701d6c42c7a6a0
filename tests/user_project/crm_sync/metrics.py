"""A hook that counts what our dashboard shows."""

from collections import Counter

from outreach_async.hooks import AttemptEnded, BulkStateChanged, Event, RetryScheduled, RowEnded


class Metrics:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.states: list[str] = []

    def __call__(self, event: Event, /) -> None:
        match event:
            case AttemptEnded(status_code=status):
                self.counts[f"status {status}"] += 1
            case RetryScheduled(evidence=evidence):
                self.counts[f"repeated, {evidence}"] += 1
            case RowEnded(status=outcome, certain=certain):
                self.counts[outcome.value if certain else f"{outcome.value}?"] += 1
            case BulkStateChanged(state=state):
                self.states.append(state)
            case _:
                pass
