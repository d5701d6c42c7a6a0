"""All errors that the library raises.

    OutreachError
     +-- InvalidRequest (also ValueError)        invalid arguments; nothing was sent
     +-- Excluded                                a row of a person who must not be written to; nothing was sent
     +-- TransportError                          no complete response arrived
     +-- DeadlineExceeded (also TimeoutError)    the call's deadline passed
     +-- UnexpectedResponse                      a response that differs from the documentation
     +-- StatusError                             a response with a status of 300 or more
     |    +-- ContactRejected                    400 or 422 for a contact
     |    +-- Unauthorized                       401
     |    +-- Forbidden                          403
     |    +-- NotFound                           404
     |    +-- RateLimited                        429
     +-- BulkError                               a bulk run that ended early
     |    +-- BulkStopped                        it cannot continue before you fix the cause
     |    +-- BulkSuspended                      a temporary problem: resume it later
     +-- JournalError                            a bulk run's journal that cannot be read or written

Errors do not show secrets. `owner_key` and the values of authorization headers are masked in messages, headers and bodies, also
where a response encodes them for JSON or a URL, or in base64; other encodings, such as hex, are not recognized. Tracebacks show
no frames of this library or of an HTTP library, whose locals contain requests. Every error can be pickled and copied.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self

_UNKNOWN_ISSUER: Final = {2, 18, 19, 20, 21}  # the codes of OpenSSL that certificates of one more issuer can cure
TRUST_REMEDY: Final = "to trust its issuer, set SSL_CERT_FILE to a file with the certificate of the issuer"
BODY_LIMIT = 4096  # maximum number of bytes of a response body that an error stores
# Some of them count as printable, but people cannot see them, so they can encode a hidden message.
INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U0001d159\U000e0000-\U000e0fff]"
)


def strip_invisible(text: str) -> str:
    """Return text of the service without characters that control a terminal, reverse text or show nothing."""
    if text.isascii() and text.isprintable():
        return text
    return INVISIBLE.sub("", re.sub(r"[\t\n\r\u2028\u2029]+", " ", text))


def shorten(text: str, limit: int) -> str:
    """Return at most `limit` characters of a string, followed by `...` if the string is longer."""
    return text if len(text) <= limit else f"{text[:limit]}..."


def format_count(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun, such as `1,234 parts` or `1 mailbox`."""
    regular = f"{noun}{'es' if noun.endswith('x') else 's'}"
    return f"{count:,} {noun if count == 1 else plural or regular}"


class OutreachError(Exception):
    """Base class of all errors that the library raises.

    Attributes:
        operation: The operation's name, such as `create_contact`; `None`
            outside an operation.
        status_code: The HTTP status of the response; `None` without one.
        headers: The response's header fields by lower-case name.
        body: The first bytes of the response body, at most `BODY_LIMIT`.
        request_id: The response's `x-request-id`; `None` without one.
        named_wait: Number of seconds to wait that the message of the
            service names, 0 if it only names a rate limit; `None` if it
            names neither.
        attempts: Number of attempts.
        maybe_sent: `False` only if it is certain that no byte of the
            request left this machine, in any attempt.
        maybe_applied: `False` only if it is certain that the service did
            not carry out the request in any attempt. Each attempt was then
            either not sent, or rejected with a 4xx status other than 408,
            425 and 499.

    Example:
        ```python
        try:
            await client.campaigns.steps("camp_gone")
        except OutreachError as error:
            print(error.operation, error.attempts, error.maybe_applied)  # -> list_steps 1 False
        ```
    """

    def __init__(
        self,
        message: str,
        *,
        operation: str | None = None,
        status_code: int | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        attempts: int = 0,
        maybe_sent: bool = False,
    ) -> None:
        super().__init__(message)
        self.operation = operation
        self.status_code = status_code
        self.headers: dict[str, str] = dict(headers or {})
        self.body = bytes(body[:BODY_LIMIT])
        self.request_id = self.headers.get("x-request-id")
        self.named_wait: float | None = None
        self.attempts = attempts
        self.maybe_sent = maybe_sent
        self.maybe_applied = maybe_sent

    def __reduce__(self) -> tuple[Callable[..., OutreachError], tuple[Any, ...]]:
        return _rebuild_error, (type(self), str(self), vars(self).copy())


def _rebuild_error(kind: type[OutreachError], message: str, attributes: dict[str, Any]) -> OutreachError:
    error = kind(message)
    vars(error).update(attributes)
    return error


def iterate_linked_errors(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and every linked error that a traceback may show: causes, contexts and members of exception groups."""
    seen: set[int] = set()  # an error can be its own cause
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            waiting += link.__cause__, link.__context__, *getattr(link, "exceptions", ())
            yield link


def lacks_descriptors(error: BaseException | None) -> bool:
    """Return whether an error, or one linked to it, says that the process or the system has too many files open."""
    links = () if error is None else iterate_linked_errors(error)
    return any(getattr(link, "errno", None) in {errno.EMFILE, errno.ENFILE} for link in links)


def lacks_issuer(error: BaseException | None) -> bool:
    """Return whether an error, or one linked to it, says that the issuer of a certificate is not trusted."""
    links = () if error is None else iterate_linked_errors(error)
    return any(getattr(link, "verify_code", None) in _UNKNOWN_ISSUER for link in links)


def drop_tracebacks(error: BaseException) -> None:
    """Drop the traceback of an error and of every error linked to it."""
    for link in iterate_linked_errors(error):
        link.__traceback__ = None


class InvalidRequest(OutreachError, ValueError):
    """The arguments are invalid. Nothing was sent.

    The message names the field, the type of the value and the remedy.

    Example:
        ```python
        try:
            await client.contacts.create(email="")
        except InvalidRequest as error:
            print(error)  # -> email: expected an address, got a blank string; give the contact an e-mail address
        ```
    """


class Excluded(OutreachError):
    """A row may not be sent, for example because the person has unsubscribed.

    The message is the reason. Raise it when `items()` of a mapping is
    iterated: `create_many` then sends nothing of the row, and reports it
    as `excluded`, which is no failure. Other rows of the person are sent
    unless they raise it, too; `File.rows` excludes all rows of a person.

    Attributes:
        kind: What excludes the row: `"consent"` for its own values,
            `"list"` for `exclude` of `create_many`, `"hold"` or `"gate"`.

    Example:
        ```python
        from collections import UserDict


        class Person(UserDict):
            unsubscribed = False

            def __iter__(self):
                if self.unsubscribed:
                    raise Excluded("unsubscribed")
                return super().__iter__()


        ann = Person(email="ann@company.example")
        ann.unsubscribed = True
        report = await client.contacts.create_many([ann])
        print(report.outcomes[Outcome.EXCLUDED], report.outcomes[Outcome.REJECTED])  # -> 1 0
        ```
    """

    kind: str = "consent"

    def __init__(self, message: str, *, kind: str = "consent", **details: Any) -> None:
        super().__init__(message, **details)
        if kind != self.kind:
            self.kind = kind


class TransportError(OutreachError):
    """No complete response arrived.

    No or a lost connection, a timeout of an attempt, or no HTTP response.

    Example:
        ```python
        def may_have_arrived(error):
            return isinstance(error, TransportError) and error.maybe_sent
        ```
    """


class DeadlineExceeded(OutreachError, TimeoutError):
    """The call did not end within its `deadline`.

    `__cause__` is the last attempt's error, if there was one.

    Example:
        ```python
        fake.faults.add(faults.hang())
        try:
            await client.workspaces.fields(deadline=0.01)
        except DeadlineExceeded as error:
            print(isinstance(error, TimeoutError))  # -> True
        ```
    """


class UnexpectedResponse(OutreachError):
    """The response does not match the service's API documentation.

    For example, it is not JSON, a field is missing, or a value has the
    wrong type.

    Attributes:
        well_formed: Whether the body was a JSON object. If so, the
            response was not damaged in transit.
        states_error: Whether the body was a JSON object with an error
            instead of data, such as `{"status": "error"}`.

    Example:
        ```python
        def is_damaged(error):
            return isinstance(error, UnexpectedResponse) and not error.well_formed
        ```
    """

    well_formed: bool = False
    states_error: bool = False


class StatusError(OutreachError):
    """The service returned an error status: 300 or more.

    Redirects count as errors, because they are never followed.

    Example:
        ```python
        def is_outage(error):
            return isinstance(error, StatusError) and error.status_code >= 500
        ```
    """


class ContactRejected(StatusError):
    """The service refused the data of a new contact, with status 400 or 422.

    Nothing was stored.

    Example:
        ```python
        try:
            await client.contacts.create(NewContact("ann@company.example", custom={"custom_99": "gold"}))
        except ContactRejected as error:
            print(error.status_code, error.maybe_applied)  # -> 400 False
        ```
    """


class Unauthorized(StatusError):
    """The service returned status 401: the owner key is missing or unknown.

    Example:
        ```python
        def needs_a_key(error):
            return isinstance(error, Unauthorized)
        ```
    """


class Forbidden(StatusError):
    """The service returned 403: a known owner key does not allow the call.

    Example:
        ```python
        def needs_another_key(error):
            return isinstance(error, Forbidden)
        ```
    """


class NotFound(StatusError):
    """The service returned 404: no such workspace, campaign or endpoint.

    Example:
        ```python
        def is_gone(error):
            return isinstance(error, NotFound)
        ```
    """


class RateLimited(StatusError):
    """The service throttled the call: 429, or a wait beyond the deadline.

    Attributes:
        retry_after: Number of seconds to wait, as the service asked;
            `None` if it stated none.

    Example:
        ```python
        fake.faults.script("list_fields", faults.status(429, retry_after=600))
        try:
            await client.workspaces.fields()  # 600 s exceed the deadline: raised at once
        except RateLimited as error:
            print(error.retry_after)  # -> 600.0
        ```
    """

    retry_after: float | None = None


class BulkError(OutreachError):
    """A bulk run ended early: base of `BulkStopped` and `BulkSuspended`.

    No further row was read. Without a journal, every row that was read has
    an outcome. With a journal, rows that were in progress may have no
    outcome yet.

    Attributes:
        report: Statistics of the run so far, as JSON values.
        resumable: Whether the run has a journal. If so, the same call with
            `resume=True` continues with the rows that have no outcome.

    Example:
        ```python
        try:
            await client.contacts.create_many([NewContact("ann@company.example")], owner_key="key_unknown")
        except BulkError as error:
            print(type(error).__name__, error.report["rows"])  # -> BulkStopped 1
        ```
    """

    report: Mapping[str, Any] | None = None
    resumable: bool = False

    @classmethod
    def over(cls, cause: OutreachError, text: str, remedy: str = "") -> Self:
        """Return an error like `cause`: `text`, its message, and a remedy."""
        names = ("operation", "status_code", "headers", "body", "attempts", "maybe_sent")
        message = f"{text}: {cause}; {remedy}" if remedy else f"{text}: {cause}"
        error = cls(message, **{name: getattr(cause, name) for name in names})
        error.__cause__ = cause
        return error


class BulkStopped(BulkError):
    """A bulk run stopped for a lasting reason.

    The reason is an error that affects every row, such as an unknown key,
    or `stop_after_rejects`. Fix the cause, which the message names, before
    you continue. A resumed run sends the rows again that the service had
    rejected. `__cause__` is the error; `None` after `stop_after_rejects`.

    Example:
        ```python
        def needs_a_fix(error):
            return isinstance(error, BulkStopped)
        ```
    """


class BulkSuspended(BulkError):
    """A bulk run stopped for a temporary reason.

    The service asked for a long wait, or was down or throttling too long.

    Attributes:
        retry_after: Number of seconds to wait before resuming; `None` if
            the service stated none.

    Example:
        ```python
        fake.faults.add(faults.status(503, retry_after=3600))
        try:
            await client.contacts.create_many([NewContact("ann@company.example")], journal="run.db")
        except BulkSuspended as error:
            print(error.retry_after, error.resumable)  # -> 3600.0 True
        ```
    """

    retry_after: float | None = None


class JournalError(OutreachError):
    """The journal of a bulk run cannot be read or written.

    For example, the disk is full or the file is damaged. No further
    request was started. After a disk error, the earlier contents of the
    journal are still valid: fix the cause and resume the run. A run with a
    damaged journal can only be continued with `earlier="unknown"`.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
        Path("run.db").write_bytes(Path("run.db").read_bytes()[:1000])
        try:
            Store("run.db").report()
        except JournalError as error:
            print(error)  # -> journal ...run.db is damaged: ...
        ```
    """
