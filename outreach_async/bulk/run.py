"""The run object that `create_many` returns: enter it to iterate over the outcomes, or await it for the report."""

from __future__ import annotations

from collections.abc import Generator
from types import TracebackType
from typing import Any, NoReturn

import anyio
from anyio.abc import TaskGroup

from outreach_async.bulk.pipeline import Outcomes, Plan
from outreach_async.bulk.record import Keeping, opened
from outreach_async.bulk.report import BulkReport
from outreach_async.errors import InvalidRequest, JournalError


class BulkRun:
    """A bulk run that has not started: enter it to iterate over the outcomes, or await it for the report.

    Example:
        ```python
        report = await client.contacts.create_many([{"email": "ann@company.example"}])
        print(report.rows)  # -> 1
        ```
    """

    def __init__(self, plan: Plan, keeping: Keeping | None) -> None:
        self._plan = plan
        self._keeping = keeping
        self._begun = False
        self._outcomes: Outcomes
        self._group: TaskGroup

    def __await__(self) -> Generator[Any, Any, BulkReport]:
        """Run to the end and return the report."""
        return self._to_end().__await__()

    async def _to_end(self) -> BulkReport:
        async with self as outcomes:
            async for _ in outcomes:
                pass
        return outcomes.report

    async def __aenter__(self) -> Outcomes:
        """Start the workers.

        Raises:
            InvalidRequest: The journal belongs to another run, or is in use; or this run has already started.
            JournalError: The journal cannot be read or written.
        """
        if self._begun:
            raise InvalidRequest("create_many: this run has already started; call create_many again to start another")
        self._begun = True
        self._outcomes = Outcomes(self._plan)
        if self._keeping is not None:
            self._outcomes.record_in(await opened(self._keeping))
        self._group = await anyio.create_task_group().__aenter__()
        self._outcomes.start(self._group)
        return self._outcomes

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Cancel the requests in flight, and record what is known. An exception of the block passes through unchanged.

        Raises:
            JournalError: The end of the run could not be recorded. A resumed run counts rows without an outcome as possibly sent.
        """
        passing = kind is not None
        try:
            if self._outcomes.under_way:
                self._group.cancel_scope.cancel()
            await self._group.__aexit__(None, None, None)
        except BaseException:
            passing = True
            raise
        finally:
            with anyio.CancelScope(shield=True):  # a cancelled run also commits the outcomes it has
                try:
                    await self._outcomes.close()
                except JournalError:
                    if not passing:  # it must not replace a cancellation or the caller's own exception
                        raise

    def __aiter__(self) -> NoReturn:
        """Refuse `async for` on the run itself: only a block with an end can stop the workers.

        Raises:
            InvalidRequest: Always; the message shows how to iterate.
        """
        raise InvalidRequest(
            "create_many: expected `async with ... as outcomes`, got `async for`; iterate over `outcomes` inside it"
        )
