"""Run a dialogue over a transport: one request at a time, each with its own timeout, waiting when the service asks for it."""

from __future__ import annotations

import time
from functools import partial
from typing import TypeVar

import anyio
import attrs

from outreach_async.conformance.site import Dialogue, Unclear, throttled
from outreach_async.errors import TransportError
from outreach_async.refusals import masked_text, retry_after
from outreach_async.transport.wire import Progress, Request, Response, Transport

T = TypeVar("T")


@attrs.frozen
class Patience:
    """How long to wait.

    Attributes:
        answer: Timeout of one response, in seconds.
        throttled: Most seconds to wait in total because of `Retry-After`.

    Example:
        ```python
        print(await check(FakeTransport(fake), Site("space_1"), Patience(answer=5.0, throttled=0.0)))  # -> []
        ```
    """

    answer: float = 30.0
    throttled: float = 120.0


class Carrier:
    """Runs dialogues over a transport.

    Args:
        transport: The transport.
        patience: How long to wait.
        secrets: Strings to mask in errors.

    Attributes:
        asked: Number of requests sent.
        waits: Every `Retry-After` received, as written.
    """

    def __init__(self, transport: Transport, patience: Patience, secrets: tuple[str, ...] = ()) -> None:
        self.asked = 0
        self.waits: list[str] = []
        self._transport = transport
        self._patience = patience
        self._left = patience.throttled
        self._secrets = secrets

    async def carry(self, dialogue: Dialogue[T]) -> T:
        """Run a dialogue to its end and return its result.

        A request without a response raises `Unclear` inside the dialogue.
        """
        go_on = partial(next, dialogue)
        while True:
            try:
                request = go_on()
            except StopIteration as end:
                value: T = end.value
                return value
            try:
                answer = await self._exchange(request)
            except Unclear as unclear:
                go_on = partial(dialogue.throw, unclear)
            else:
                go_on = partial(dialogue.send, answer)

    async def _exchange(self, request: Request) -> Response:
        while True:
            answer = await self._send(request)
            if not throttled(answer):
                return answer
            self.waits.append(answer.headers.get("retry-after", ""))
            # At least a second: without a valid Retry-After, waits of 0 would never use up the budget and the loop never end.
            wait = max(1.0, retry_after(answer.headers, now=time.time()) or 0.0)
            if wait > self._left:
                return answer
            self._left -= wait
            await anyio.sleep(wait)

    async def _send(self, request: Request) -> Response:
        self.asked += 1
        try:
            with anyio.fail_after(self._patience.answer):
                return await self._transport.send(request, Progress())
        except TimeoutError:
            raise Unclear(f"no response within {self._patience.answer:g} s") from None
        except TransportError as error:
            raise Unclear(f"no response: {masked_text(str(error), self._secrets)}") from None
