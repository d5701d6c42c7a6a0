"""Every error the library raises.

    OutreachError
     +-- InvalidRequest (also ValueError)        the caller's fault; nothing was sent
     +-- TransportError                          no whole answer arrived
     +-- DeadlineExceeded (also TimeoutError)    the call's time ran out
     +-- UnexpectedResponse                      an answer that the interface does not allow
     +-- StatusError                             an answer with a status of 300 or more
     |    +-- RateLimited                        429
     +-- BulkStopped                             a bulk run that could not go on
     |    +-- BulkSuspended                      and may go on later
     +-- JournalError                            a bulk run's journal that cannot be written or read

No error holds a secret: `owner_key` and the values of authorization headers are masked in messages, headers and bodies before an
error is made, also in base64, hex, HTML entities and percent-encoding. A traceback shows no frame of the library, whose locals
are answers and requests, and the errors of HTTP libraries that an error came from have no traceback. Every error survives
`pickle` and `copy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

BODY_LIMIT = 4096
"""Bytes of an answer's body that an error keeps."""


class OutreachError(Exception):
    """The root of the tree.

    Attributes:
        operation: The operation's name, such as `create_contact`; `None` outside one.
        status_code: The HTTP status of the answer; `None` when there was none.
        headers: The answer's header fields by lower-case name.
        body: The first bytes of the answer's body, at most `BODY_LIMIT`.
        request_id: The answer's `x-request-id`.
        attempts: How often the request was tried.
        maybe_sent: `False` only if it is certain that no byte of the request left this machine, in any attempt.
        maybe_applied: `False` only if it is certain that the service carried out no attempt: none was sent, or each was refused
            with a status of 4xx other than 408, 425 and 499.

    Example:
        ```python
        try:
            await client.campaigns.steps("camp_gone")
        except OutreachError as error:
            print(error.operation, error.status_code, error.attempts, error.maybe_applied)  # -> list_steps 404 1 False
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
        self.attempts = attempts
        self.maybe_sent = maybe_sent
        self.maybe_applied = maybe_sent

    def __reduce__(self) -> tuple[Callable[..., OutreachError], tuple[Any, ...]]:
        """Rebuild from the message and the attributes: the default would call `__init__` with the message alone."""
        return _rebuild, (type(self), str(self), vars(self).copy())


def _rebuild(kind: type[OutreachError], message: str, attributes: dict[str, Any]) -> OutreachError:
    error = kind(message)
    vars(error).update(attributes)
    return error


def linked(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and every other that a traceback may show with it; an error can be its own cause."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        link = waiting.pop()
        if link is not None and id(link) not in seen:
            seen.add(id(link))
            waiting += link.__cause__, link.__context__, *getattr(link, "exceptions", ())
            yield link


def forget_frames(error: BaseException) -> None:
    """Drop the traceback of an error and of every linked one.

    A traceback holds frames, and frames hold their locals: answers of megabytes, the error itself (so that only the garbage
    collector frees them), and keys and header fields, which tools that show locals would print.
    """
    for link in linked(error):
        link.__traceback__ = None


class InvalidRequest(OutreachError, ValueError):
    """The call can never be right. Nothing was sent; the message names the field, the value's kind and the remedy.

    Example:
        ```python
        try:
            await client.contacts.create(NewContact(""))
        except InvalidRequest as error:
            print(error, error.maybe_sent)
            # -> email: expected an address, got a blank text; give the contact an e-mail address False
        ```
    """


class TransportError(OutreachError):
    """No whole answer arrived: no connection, a lost one, a timeout of one attempt, or an answer that is not HTTP.

    Example:
        ```python
        fake.faults.add(faults.reset())  # whatever is asked, the connection is reset
        try:
            await client.workspaces.fields()
        except TransportError as error:
            print(error.attempts, error.maybe_sent)  # -> 4 True
        ```
    """


class DeadlineExceeded(OutreachError, TimeoutError):
    """The call's `deadline` ran out over its attempts and waits; `__cause__` is the last attempt's error, if there was one.

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
    """The service answered what its interface does not allow: no JSON, a missing field, a value of another kind, or no `ok`.

    Attributes:
        well_formed: The body was a JSON object, so this is the service's own word rather than a damaged answer.

    Example:
        ```python
        fake.faults.script("list_steps", faults.drift("days_left", "soon"))
        try:
            await client.campaigns.steps("camp_1")
        except UnexpectedResponse as error:
            print(error)  # -> list_steps: the service answered 200 with $.days_left: expected number, got str
        ```
    """

    well_formed: bool = False


class StatusError(OutreachError):
    """The service refused: an answer with a status of 300 or more. Redirects are refusals, as none is ever followed.

    Example:
        ```python
        try:
            await client.campaigns.steps("camp_gone")
        except StatusError as error:
            print(error.status_code, error.request_id is not None)  # -> 404 True
        ```
    """


class RateLimited(StatusError):
    """The service answered 429.

    Attributes:
        retry_after: Seconds that the service asked to wait; `None` when it did not say.

    Example:
        ```python
        fake.faults.script("list_fields", faults.status(429, retry_after=600))
        try:
            await client.workspaces.fields()  # 600 s are beyond the deadline of 120 s, so it is raised at once
        except RateLimited as error:
            print(error.retry_after)  # -> 600.0
        ```
    """

    retry_after: float | None = None


class BulkStopped(OutreachError):
    """A bulk run stopped over what concerns every row: an unknown key, workspace or campaign, or throttling without end.

    `__cause__` is the refusal. Every row that was read has its outcome; no further row was read.

    Attributes:
        report: The figures of the run so far, as JSON values.
        resumable: Whether a journal was kept, so that the same call with `resume=True` goes on with the rows that are left.

    Example:
        ```python
        try:
            await client.contacts.create_many([NewContact("ann@company.example")], campaign="camp_gone", stop_after_rejects=1)
        except BulkStopped as error:
            print(error.report["rows"], error.resumable)  # -> 1 False
        ```
    """

    report: Mapping[str, Any] | None = None
    resumable: bool = False

    @classmethod
    def over(cls, cause: OutreachError, text: str) -> Self:
        """Return the error of a run that stops over another error, with what that one carries.

        Args:
            cause: The other error.
            text: What becomes of the run.
        """
        error = cls(
            f"{text}: {cause}",
            operation=cause.operation,
            status_code=cause.status_code,
            headers=cause.headers,
            body=cause.body,
            attempts=cause.attempts,
            maybe_sent=cause.maybe_sent,
        )
        error.__cause__ = cause
        return error


class BulkSuspended(BulkStopped):
    """A bulk run stopped over what time may mend: the service asked for a long wait, or has been down or refusing for too long.

    Rows that were under way are left for later. With a journal, the same call with `resume=True` goes on where this one ended.

    Attributes:
        retry_after: Seconds after which it makes sense to go on; `None` when nobody said.

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
    """The journal of a bulk run cannot be written or read: a full disk, a damaged file. No further request was started.

    After an error of the disk, what the journal held before is still true, and the run can be resumed once the cause is mended.
    A damaged journal is continued only by `earlier="unknown"`.

    Example:
        ```python
        await client.contacts.create_many([{"email": "ann@company.example"}], journal="run.db")
        Path("run.db").write_bytes(Path("run.db").read_bytes()[:1000])
        try:
            Journal("run.db").report()
        except JournalError as error:
            print(error)  # -> journal ...run.db is damaged: ...
        ```
    """
