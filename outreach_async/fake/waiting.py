"""Faults that wait for requests: in order, or by rules. Synchronous, and pure but for the counting of what has fired."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

import attrs

from outreach_async.fake.exchange import Exchange, Fault, ok
from outreach_async.fake.given import at_least
from outreach_async.fake.targets import ROUTES
from outreach_async.transport.wire import Request, Response

OPERATIONS: Final = (*(route.operation for route in ROUTES), "unknown")
"""What a request may ask for, as faults name it; `unknown` is every request that is none of the five.

Example:
    ```python
    print(OPERATIONS[:3])  # -> ('list_campaigns', 'list_mailboxes', 'create_contact')
    ```
"""


class Faults:
    """The faults that wait for a service's requests.

    A request takes the next fault of its operation's script; without one, the first rule that strikes it.

    Args:
        seed: What chance is drawn from, with the request's number.

    Example:
        ```python
        fake.faults.script("create_contact", status(503), ok, commit_then(reset()))
        fake.faults.add(latency(0.2), operation="list_mailboxes", p=0.1)
        print(fake.faults.unfired)  # -> ['create_contact: status(503)', 'create_contact: commit_then(reset())']
        ```
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._requests = 0
        self._scripts: dict[str, deque[Fault]] = {}
        self._rules: list[_Rule] = []

    def script(self, operation: str, *faults: Fault) -> None:
        """Let the operation's next requests meet these faults, one each, in order, after those scripted before.

        Args:
            operation: One of `OPERATIONS`.
            faults: Faults, with `ok` for a request that goes well.

        Raises:
            ValueError: There is no such operation.
            TypeError: A fault is none, such as the function that makes it.

        Example:
            ```python
            fake.faults.script("create_contact", status(429, retry_after=2), ok)
            ```
        """
        _check_operation(operation)
        for fault in faults:
            require_fault(fault)
        self._scripts.setdefault(operation, deque()).extend(faults)

    def add(
        self,
        fault: Fault,
        *,
        operation: str | None = None,
        match: Callable[[Request], bool] | None = None,
        times: int | None = None,
        p: float | None = None,
    ) -> None:
        """Let a fault strike every request that meets all conditions.

        Args:
            fault: The fault.
            operation: One of `OPERATIONS`; every request if not given.
            match: What must be true of the request.
            times: How often the fault strikes at most; without end if not given.
            p: How probable it is that it strikes, from 0 to 1; certain if not given.

        Raises:
            ValueError: There is no such operation, or a figure is out of its range.
            TypeError: The fault is none, such as the function that makes it.

        Example:
            ```python
            fake.faults.add(reset(), operation="create_contact", match=lambda request: b"bo@acme" in request.body, times=2)
            ```
        """
        require_fault(fault)
        if operation is not None:
            _check_operation(operation)
        if times is not None:
            at_least("times", 1, times)
        if p is not None and not 0 <= p <= 1:
            raise ValueError(f"p={p}: a probability is from 0 to 1")
        self._rules.append(_Rule(fault, operation, match, times, p, salt=f"{self._seed}|{len(self._rules)}"))

    def clear(self) -> None:
        """Forget every fault, and count requests from the start again.

        Example:
            ```python
            fake.faults.add(hang())
            fake.faults.clear()
            print(fake.faults.unfired)  # -> []
            ```
        """
        self._requests = 0
        self._scripts.clear()
        self._rules.clear()

    @property
    def unfired(self) -> list[str]:
        """What has not struck as asked, a text each: the rest of the scripts, rules that struck too seldom.

        `ok` and rules with a probability promise nothing and are never here.
        """
        # Copies: another thread's requests may meet some meanwhile.
        scripts = [(name, tuple(faults)) for name, faults in tuple(self._scripts.items())]
        scripted = [f"{name}: {fault.label}" for name, faults in scripts for fault in faults if fault is not ok]
        return scripted + [rule.shortfall for rule in tuple(self._rules) if rule.shortfall]

    def assert_all_fired(self) -> None:
        """Check that no fault was asked for in vain.

        Raises:
            AssertionError: Some were; the message names them.

        Example:
            ```python
            fake.faults.script("list_fields", ok)
            fake.faults.assert_all_fired()
            ```
        """
        unfired = self.unfired
        if unfired:
            raise AssertionError(f"faults that never struck: {'; '.join(unfired)}")

    def around(self, operation: str, request: Request, serve: Callable[[], Response]) -> Exchange:
        """Carry one request out, with whatever fault waits for it.

        Args:
            operation: What the request asks for, one of `OPERATIONS`.
            request: The request.
            serve: The service's own act; called at most once.
        """
        self._requests += 1
        return self._next(operation, request).strike(serve)

    def _next(self, operation: str, request: Request) -> Fault:
        script = self._scripts.get(operation)
        if script:
            return script.popleft()
        for rule in self._rules:
            if rule.strikes(operation, request, self._requests):
                rule.struck += 1
                return rule.fault
        return ok


@attrs.define
class _Rule:
    """A fault and the conditions under which it strikes."""

    fault: Fault
    operation: str | None
    match: Callable[[Request], bool] | None
    times: int | None
    p: float | None
    salt: str
    struck: int = 0

    def strikes(self, operation: str, request: Request, number: int) -> bool:
        return (
            self.operation in {None, operation}
            and (self.times is None or self.struck < self.times)
            and (self.match is None or self.match(request))
            and (self.p is None or _chance(self.salt, number) < self.p)
        )

    @property
    def shortfall(self) -> str:
        wanted = self.times or 1
        if self.struck >= wanted or self.p is not None or self.fault is ok:
            return ""
        return f"{self.operation or 'any request'}: {self.fault.label} ({self.struck} of {wanted})"


def _chance(salt: str, number: int) -> float:
    # By the request's number and not from a running generator: another rule, or a request that this one does not look at, then
    # moves no draw.
    digest = hashlib.blake2b(f"{salt}|{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def require_fault(fault: object) -> None:
    """Refuse what is no fault, such as the function that makes one.

    Raises:
        TypeError: It is none.
    """
    if not isinstance(fault, Fault):
        name = getattr(fault, "__name__", type(fault).__name__)
        raise TypeError(f"{name} is not a fault: write a call, such as {name if callable(fault) else 'status'}(...)")


def _check_operation(operation: str) -> None:
    if operation not in OPERATIONS:
        raise ValueError(f"no operation {operation!r}: there are {', '.join(OPERATIONS)}")
