"""Retry decisions: whether and when to retry, as pure functions of what is known about an attempt."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum
from typing import Final

import attrs

from outreach_async.errors import DeadlineExceeded, InvalidRequest, OutreachError, StatusError, TransportError, UnexpectedResponse

_REQUEST_TIMEOUT: Final = 408
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
_UNAVAILABLE: Final = 503
_PERMANENT_SERVER_ERRORS: Final = frozenset({501, 505})
_CLIENT_ERRORS: Final = range(400, 500)
_INCONCLUSIVE_STATUSES: Final = frozenset({_REQUEST_TIMEOUT, 425, 499})
"""Client errors that a proxy may return although the service has received the request."""


@attrs.frozen
class RetryPolicy:
    """The policy for retries of a client.

    Attributes:
        attempts: Maximum number of attempts per call, including the first; 1 disables retries.
        backoff: Maximum length of the first wait in seconds; doubled for each further wait.
        backoff_cap: Limit for the length of any such wait, in seconds.
        retry_after_cap: Maximum time in seconds for which a `Retry-After` is honoured. A bulk run that is asked to wait longer is
            suspended.
        budget: Size of the retry budget that all calls of a client share. A retry costs 14, or 5 after a throttled attempt. A
            success gives back what its retries cost, or 1. While the budget is empty, errors are raised without a retry. Rows of
            a bulk run are still retried: each run has a budget of this size, and pauses when it is empty.
        jitter: Returns a random number in [0, 1). Each wait is this fraction of its maximum, to keep clients out of step.

    Example:
        ```python
        fake.faults.script("list_fields", faults.status(503))
        once = OutreachClient(transport=FakeTransport(fake), workspace="space_1", retry=RetryPolicy(attempts=1))
        try:
            await once.workspaces.fields()
        except StatusError as error:
            print(error.status_code, error.attempts)  # -> 503 1
        ```
    """

    attempts: int = 4
    backoff: float = 0.5
    backoff_cap: float = 20.0
    retry_after_cap: float = 900.0
    budget: int = 500
    jitter: Callable[[], float] = attrs.field(default=random.random, eq=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Reject an invalid policy."""
        if self.attempts < 1:
            raise InvalidRequest(f"attempts: expected at least 1, got {self.attempts}; pass 1 to disable retries")
        for name in ("backoff", "backoff_cap", "retry_after_cap", "budget"):
            if not getattr(self, name) >= 0:
                raise InvalidRequest(f"{name}: expected 0 or more, got {getattr(self, name)}; pass 0 for none")


class Idempotency(Enum):
    """When an operation may be retried."""

    SAFE = "always: a read, which changes nothing"
    IDEMPOTENT = "always: a creation, where a lost response makes the outcome of the next attempt ambiguous"
    UNKNOWN = "only if no byte was sent: an operation unknown to the library"


class FailureKind(Enum):
    """What a failed attempt proves about the state of the service."""

    NOT_SENT = "no byte was sent: nothing happened"
    REFUSED = "throttled: nothing happened"
    AMBIGUOUS = "the request was not applied, was applied, or may still be applied"
    FINAL = "rejected permanently, or the response does not match the interface"


def classify(error: OutreachError, repeat: Idempotency) -> FailureKind:
    """Classify an error by what it proves."""
    if isinstance(error, TransportError | DeadlineExceeded):
        return FailureKind.AMBIGUOUS if error.maybe_sent else FailureKind.NOT_SENT
    if isinstance(error, StatusError):
        return _classify_status(error)
    if isinstance(error, UnexpectedResponse) and not error.well_formed and repeat is Idempotency.IDEMPOTENT:
        return FailureKind.AMBIGUOUS  # it was very likely applied; a retry will show
    return FailureKind.FINAL


def _classify_status(error: StatusError) -> FailureKind:
    status = error.status_code or 0
    if status == _TOO_MANY_REQUESTS or (status == _UNAVAILABLE and "retry-after" in error.headers):
        return FailureKind.REFUSED
    if status == _REQUEST_TIMEOUT or (status >= _SERVER_ERROR and status not in _PERMANENT_SERVER_ERRORS):
        return FailureKind.AMBIGUOUS
    return FailureKind.FINAL


def maybe_applied(error: OutreachError, evidence: FailureKind) -> bool:
    """Return whether the service may have applied the attempt, or may still apply it.

    Only two things prove that it did not: no byte was sent, or the service returned a client error. 408, 425 and 499 prove
    nothing, because a proxy may return them after passing the request on. Any 3xx or 5xx may follow a creation: a redirect after
    a form is common, and a 503 means throttling only by convention.
    """
    if evidence is FailureKind.AMBIGUOUS:
        return True
    return isinstance(error, StatusError) and (
        error.status_code not in _CLIENT_ERRORS or error.status_code in _INCONCLUSIVE_STATUSES
    )


def is_retryable(evidence: FailureKind, repeat: Idempotency) -> bool:
    """Return whether the operation may be retried after an attempt with this evidence."""
    if evidence is FailureKind.FINAL:
        return False
    return evidence is FailureKind.NOT_SENT or repeat is not Idempotency.UNKNOWN


def backoff_delay(policy: RetryPolicy, attempts: int) -> float:
    """Return the wait in seconds after this many attempts: exponential backoff with full jitter."""
    # The exponent is limited because a row of a bulk run can have any number of attempts, and 2.0**1024 overflows.
    ceiling = min(policy.backoff_cap, policy.backoff * 2.0 ** min(attempts - 1, 60))
    return policy.jitter() * ceiling


def retry_cost(evidence: FailureKind) -> int:
    """Return the cost of a retry after such an attempt, taken from the retry budget. The numbers are those of AWS's clients."""
    return 5 if evidence is FailureKind.REFUSED else 14
