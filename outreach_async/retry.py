"""Whether, and when, to try again: pure decisions over what is known of an attempt."""

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
_NEVER_BETTER: Final = frozenset({501, 505})
_CLIENT_ERRORS: Final = range(400, 500)
_NO_PROOF: Final = frozenset({_REQUEST_TIMEOUT, 425, 499})
"""Client errors that a proxy may answer although the service has the request."""


@attrs.frozen
class RetryPolicy:
    """How a client repeats.

    Attributes:
        attempts: Tries of one call at most, the first included; 1 repeats nothing.
        backoff: Seconds that the first wait may last; each further one twice as long.
        backoff_cap: Seconds that any such wait may last.
        retry_after_cap: Seconds at most that a `Retry-After` is honoured for, and that a bulk run is held up by refusals of a row
            before it stops.
        budget: Size of the retry budget that all calls of a client share. A repeat costs 14, one after a refusal 5, and a success
            gives back what its repeats cost, or 1. When it is used up, errors are raised without a repeat, but for rows of a bulk
            run: those are repeated all the same, each after its wait.
        jitter: Draws from [0, 1); each wait is a random part of its length, so that clients do not come back in step.

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
        """Refuse a policy that could never run."""
        if self.attempts < 1:
            raise InvalidRequest(f"attempts: expected at least 1, got {self.attempts}; 1 tries once and repeats nothing")
        for name in ("backoff", "backoff_cap", "retry_after_cap", "budget"):
            if not getattr(self, name) >= 0:
                raise InvalidRequest(f"{name}: expected 0 or more, got {getattr(self, name)}; 0 waits or spends nothing")


class Repeat(Enum):
    """When an operation may be sent again."""

    FREELY = "a read: sending it again changes nothing"
    KNOWINGLY = "a creation: safe for the data, but a lost answer makes the next one ambiguous"
    UNSENT = "unknown to the library: only if no byte has left"


class Evidence(Enum):
    """What a failed attempt says about the service's state."""

    NOT_SENT = "no byte left: nothing happened"
    REFUSED = "refused for now: nothing happened"
    AMBIGUOUS = "nothing happened, or it was carried out, or it still will be"
    FINAL = "refused for good, or answered beyond understanding"


def weigh(error: OutreachError, repeat: Repeat) -> Evidence:
    """Return what the error proves."""
    if isinstance(error, TransportError | DeadlineExceeded):
        return Evidence.AMBIGUOUS if error.maybe_sent else Evidence.NOT_SENT
    if isinstance(error, StatusError):
        return _weigh_status(error)
    if isinstance(error, UnexpectedResponse) and not error.well_formed and repeat is Repeat.KNOWINGLY:
        return Evidence.AMBIGUOUS  # it was very likely carried out; asking again tells
    return Evidence.FINAL


def _weigh_status(error: StatusError) -> Evidence:
    status = error.status_code or 0
    if status == _TOO_MANY_REQUESTS or (status == _UNAVAILABLE and "retry-after" in error.headers):
        return Evidence.REFUSED
    if status == _REQUEST_TIMEOUT or (status >= _SERVER_ERROR and status not in _NEVER_BETTER):
        return Evidence.AMBIGUOUS
    return Evidence.FINAL


def taints(error: OutreachError, evidence: Evidence) -> bool:
    """Whether the service may have carried the attempt out, now or later.

    Only two things prove that it did not: no byte left, or the service answered with a client error. 408, 425 and 499 prove
    nothing: a proxy may answer so after it has passed the request on. Any 3xx or 5xx may follow a creation: a redirect after a
    form is common, and a 503 is a refusal by convention only.
    """
    if evidence is Evidence.AMBIGUOUS:
        return True
    return isinstance(error, StatusError) and (error.status_code not in _CLIENT_ERRORS or error.status_code in _NO_PROOF)


def may_repeat(evidence: Evidence, repeat: Repeat) -> bool:
    """Whether the operation may be sent again after such an attempt."""
    if evidence is Evidence.FINAL:
        return False
    return evidence is Evidence.NOT_SENT or repeat is not Repeat.UNSENT


def backoff(policy: RetryPolicy, attempts: int) -> float:
    """Return seconds to wait after so many attempts: full jitter under an exponential ceiling."""
    ceiling = min(policy.backoff_cap, policy.backoff * 2.0 ** min(attempts - 1, 60))
    return policy.jitter() * ceiling


def cost(evidence: Evidence) -> int:
    """Return what a repeat after such an attempt takes from the retry budget, as AWS's clients count it."""
    return 5 if evidence is Evidence.REFUSED else 14
