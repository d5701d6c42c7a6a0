"""The flow of a bulk run: when the next attempt may start, and whose fault a failed one was.

Refusals drive the rate, never the concurrency. A `Retry-After` closes the gate for all workers; faults of the service open a
breaker, which pauses the run and fails no row. Each module decides one thing, from instants that it is given; only `flow` waits.
"""

from outreach_async.bulk.flow.flow import RunFlow

__all__ = ["RunFlow"]
