"""Pure functions that classify failures and decide whether and when to retry. `_STATUSES` is the only table of statuses."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Container
from enum import Enum
from typing import Any, Final

import attrs

from outreach_async import errors
from outreach_async._core.arguments import require_float, require_number, type_name


@attrs.frozen
class RetryPolicy:
    """The rules by which a client retries failed attempts.

    Attributes:
        attempts: Maximum number of attempts per call, including the first;
            1 disables retries.
        backoff: Maximum length of the first wait in seconds; doubled for
            each further wait.
        backoff_cap: Upper limit for the doubled `backoff`, in seconds.
        retry_after_cap: Maximum wait for a `Retry-After`, in seconds. A
            bulk run that is asked to wait longer is suspended.
        budget: Size of the retry budget that all calls of a client share.
            A retry costs 14, or 5 after a throttled attempt. A successful
            call refunds the cost of its retries, or 1 if it had none.
            While the budget is empty, errors are raised without a retry.
            Each bulk run has its own budget of this size, and pauses when
            it is empty.
        jitter: Function that returns a random number in [0, 1), by which
            each wait is multiplied.
        counts_refusals: Whether attempts that the service throttled count,
            too. By default, a throttled read is retried until its
            deadline. The argument `max_retries` of a client sets this.

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
    counts_refusals: bool = attrs.field(default=False, kw_only=True)

    def __attrs_post_init__(self) -> None:
        require_number("attempts", self.attempts, least=1)
        require_number("budget", self.budget, least=0)
        for name in ("backoff", "backoff_cap", "retry_after_cap"):
            expected, remedy = "seconds from 0", "pass a number such as 0.5"
            require_float(
                name, getattr(self, name), lambda value: 0 <= value <= sys.float_info.max or value == math.inf, expected, remedy
            )
        jitter: Any = self.jitter
        counts: Any = self.counts_refusals
        if not isinstance(counts, bool):
            raise errors.InvalidRequest(f"counts_refusals: expected bool, got {type_name(counts)}; pass True or False")
        if not callable(jitter):
            got = f"expected a function that returns a random number, got {type_name(jitter)}"
            raise errors.InvalidRequest(f"jitter: {got}; pass, for example, random.random")


class Idempotency(Enum):
    SAFE = "a read: may be retried even if the request was sent, because a read changes nothing"
    IDEMPOTENT = (
        "a create request: may be retried even if the request was sent; a retry after a lost response may not show whether "
        "the contact already existed"
    )
    UNKNOWN = "any other operation: may be retried only if no byte was sent"


class FailureKind(Enum):
    """Kinds of failed attempts, by what the failure proves about the request."""

    NOT_SENT = "no byte was sent: the request was not applied"
    REFUSED = "throttled by the service"
    AMBIGUOUS = "the request was not applied, was applied, or may still be applied"
    UNCLEAR = "the answer to a creation has no known meaning: final for one row, but an outage if there is no other answer"
    FINAL = "rejected permanently, or the response does not match the API documentation"


class RetryDecision(Enum):
    RETRY = "retry; the service or the network failed; the failure does not count towards the call's maximum number of attempts"
    RETRY_COUNTED = "retry; the failure counts towards the call's maximum number of attempts"
    GIVE_UP = "do not retry: the error is final, the call has used up its attempts, or the retry budget is empty"
    STOP_RUN = "the run is over"


@attrs.frozen
class FailedAttempt:
    """A failed attempt, with the data that a throttle needs."""

    error: errors.OutreachError
    kind: FailureKind
    started: float
    ended: float
    counted_failures: int = 0
    retry_after: float | None = None
    can_retry: bool = True
    can_wait: bool = False
    earlier_failures: int = 0
    first_failed_at: float = math.inf
    run: int | None = None

    @property
    def description(self) -> str:
        """The failure, without a quotation of the response."""
        if (status := self.error.status_code) is None:
            return str(self.error)
        return f"the service answered {status}{' with an error' if isinstance(self.error, errors.UnexpectedResponse) else ''}"

    @property
    def is_about_rate(self) -> bool:
        """Whether a refusal limits the rate of requests; otherwise the service is only unavailable for a while."""
        return self.error.status_code != _UNAVAILABLE or self.error.named_wait is not None


@attrs.frozen
class StatusMeaning:
    """The meaning of an error status. Every decision that depends on a status uses this meaning."""

    failure_kind: FailureKind
    maybe_applied: bool = False
    affects_every_row: bool = False
    is_denied: bool = False
    rejects_data: bool = False
    may_be_past_end: bool = False
    may_name_limit: bool = True
    error_class: type[errors.StatusError] = errors.StatusError


_STATUSES: Final = {
    400: StatusMeaning(FailureKind.FINAL, rejects_data=True, may_be_past_end=True),
    401: StatusMeaning(FailureKind.FINAL, affects_every_row=True, is_denied=True, error_class=errors.Unauthorized),
    403: StatusMeaning(FailureKind.FINAL, affects_every_row=True, is_denied=True, error_class=errors.Forbidden),
    404: StatusMeaning(FailureKind.FINAL, affects_every_row=True, may_be_past_end=True, error_class=errors.NotFound),
    405: StatusMeaning(FailureKind.FINAL, affects_every_row=True),
    407: StatusMeaning(FailureKind.FINAL, affects_every_row=True),  # of a proxy, so it says nothing about the owner key
    # A proxy may return 408, 425 and 499 after passing the request on.
    408: StatusMeaning(FailureKind.AMBIGUOUS, maybe_applied=True),
    416: StatusMeaning(FailureKind.FINAL, may_be_past_end=True),
    # It is about the content of the request, so a "quota" in its message is a field. Some services throttle with 400.
    422: StatusMeaning(FailureKind.FINAL, rejects_data=True, may_be_past_end=True, may_name_limit=False),
    425: StatusMeaning(FailureKind.FINAL, maybe_applied=True),
    # Throttling ends a run only after it has lasted too long; until then, the request is retried.
    429: StatusMeaning(FailureKind.REFUSED, affects_every_row=True, error_class=errors.RateLimited),
    499: StatusMeaning(FailureKind.FINAL, maybe_applied=True),
    501: StatusMeaning(FailureKind.FINAL, maybe_applied=True, affects_every_row=True),
    505: StatusMeaning(FailureKind.FINAL, maybe_applied=True, affects_every_row=True),
}
_UNAVAILABLE: Final = 503
_WITH_RETRY_AFTER: Final = {
    403: StatusMeaning(FailureKind.REFUSED, error_class=errors.Forbidden),
    503: StatusMeaning(FailureKind.REFUSED, maybe_applied=True),
}
_STATUS_CLASSES: Final = {
    3: StatusMeaning(FailureKind.FINAL, maybe_applied=True, affects_every_row=True),  # many sites redirect after accepting a form
    4: StatusMeaning(FailureKind.FINAL),
    5: StatusMeaning(FailureKind.AMBIGUOUS, maybe_applied=True),  # also for 600 and more
}
_NO_STATUS: Final = StatusMeaning(FailureKind.FINAL, maybe_applied=True)


def explain_status(status: int | None, headers: Container[str] = ()) -> StatusMeaning:
    """Return the meaning of a status. `headers` are the header fields of its response, by lower-case name."""
    status = status or 0
    if status in _WITH_RETRY_AFTER and "retry-after" in headers:
        return _WITH_RETRY_AFTER[status]
    return _STATUSES.get(status) or _STATUS_CLASSES.get(min(status // 100, 5), _NO_STATUS)


def explain_error(error: errors.StatusError) -> StatusMeaning:
    """Return the meaning of an error status and its message: a rate limit asks to wait, with nearly any status."""
    meaning = explain_status(error.status_code, error.headers)
    if error.named_wait is None or meaning.failure_kind is FailureKind.REFUSED:
        return meaning
    return attrs.evolve(meaning, failure_kind=FailureKind.REFUSED, affects_every_row=False)


def is_denied(error: errors.OutreachError) -> bool:
    """Return whether an error refuses the key or its access to a workspace. One that asks to wait does not."""
    asks_to_wait = isinstance(error, errors.BulkSuspended) or error.named_wait is not None
    return not asks_to_wait and explain_status(error.status_code, error.headers).is_denied


def classify(error: errors.OutreachError, idempotency: Idempotency) -> FailureKind:
    """Classify an error as a kind of failure, by what the error proves about the request."""
    is_creation = idempotency is Idempotency.IDEMPOTENT
    if isinstance(error, errors.TransportError | errors.DeadlineExceeded):
        return FailureKind.AMBIGUOUS if error.maybe_sent else FailureKind.NOT_SENT
    if isinstance(error, errors.StatusError):
        meaning = explain_error(error)
        is_known = meaning.rejects_data or meaning.affects_every_row or meaning.failure_kind is not FailureKind.FINAL
        return meaning.failure_kind if is_known or not is_creation else FailureKind.UNCLEAR
    if isinstance(error, errors.UnexpectedResponse):
        if error.named_wait is not None:
            return FailureKind.REFUSED
        if is_creation:  # of a damaged answer, the request was very likely applied; a retry will show whether it was
            return FailureKind.UNCLEAR if error.well_formed else FailureKind.AMBIGUOUS
    return FailureKind.FINAL


def maybe_applied(error: errors.OutreachError, failure_kind: FailureKind) -> bool:
    """Return whether the service may have applied the attempt, or may still apply it."""
    if failure_kind is FailureKind.AMBIGUOUS or isinstance(error, errors.UnexpectedResponse):
        return True
    return isinstance(error, errors.StatusError) and explain_error(error).maybe_applied


def is_permanent_rejection(error: errors.OutreachError) -> bool:
    """Return whether an error is a permanent rejection: an error status that a retry would not change."""
    return isinstance(error, errors.StatusError) and classify(error, Idempotency.SAFE) is FailureKind.FINAL


def is_retryable(failure_kind: FailureKind, idempotency: Idempotency) -> bool:
    if failure_kind is FailureKind.FINAL:
        return False
    return failure_kind is FailureKind.NOT_SENT or idempotency is not Idempotency.UNKNOWN


def backoff_delay(policy: RetryPolicy, attempts: int) -> float:
    """Return the wait in seconds after `attempts` failed attempts, by exponential backoff with full jitter."""
    # The exponent is limited because a row of a bulk run can have any number of attempts, and 2.0**1024 overflows.
    ceiling = min(policy.backoff_cap, policy.backoff * 2.0 ** min(attempts - 1, 60))
    return policy.jitter() * ceiling


def retry_cost(failure_kind: FailureKind) -> int:
    """Return what a retry after this kind of failure takes from the retry budget, as in the AWS SDKs."""
    return 5 if failure_kind is FailureKind.REFUSED else 14
