"""Flow control of a bulk run: decides when the next attempt may start, and whether the row or the service caused a failure.

Refusals lower the rate, never the concurrency. A `Retry-After` closes the gate for all workers. Service faults open a breaker,
which pauses the run and fails no row. Each module makes one decision, from the instants passed to it; only `flow` waits.
"""

from outreach_async.bulk.flow.flow import RunFlow

__all__ = ["RunFlow"]
