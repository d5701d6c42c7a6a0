"""The event loop of a synchronous client, which runs in a thread of its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager, suppress
from threading import Lock
from typing import Any, Final, ParamSpec, TypeVar

import anyio
from anyio import from_thread
from anyio.from_thread import BlockingPortal, start_blocking_portal

from outreach_async.errors import InvalidRequest, OutreachError, drop_tracebacks

P = ParamSpec("P")
T = TypeVar("T")

# A waiting thread looks for a Ctrl-C after this many seconds. A lock without a timeout can miss one, and always does on Windows.
_INTERRUPT_DELAY: Final = 0.1


class _Interruptible:
    """Work in an event loop, which an exception in the calling thread cancels."""

    _scope: anyio.CancelScope | None = None  # None if the work was interrupted before it reached the event loop

    def __init__(self, portal: BlockingPortal, work: Callable[[], Awaitable[Any]]) -> None:
        self._portal, self._work = portal, work

    async def run(self) -> Any:
        with anyio.CancelScope() as self._scope:
            return await self._work()

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    def await_step(self, step: Callable[[], Any], result: Future[Any] | None = None) -> Any:
        """Call a function in the event loop. Wait for the result, by default for what the function returns."""
        try:
            self.started = self._portal.start_task_soon(step)
            future, ended = result or self.started, Lock()
            ended.acquire()
            future.add_done_callback(lambda _: ended.release())
            while not ended.acquire(timeout=_INTERRUPT_DELAY):  # `concurrent.futures.wait` would take twice as long
                pass
            return future.result()
        except BaseException as error:
            if isinstance(error, OutreachError):
                drop_tracebacks(error)  # the frames may contain secrets
            # A KeyboardInterrupt can come before the future of the work is known, so cancelling the future is not enough.
            with suppress(RuntimeError):  # the event loop has ended, and the work with it
                self._portal.start_task_soon(self._cancel)  # runs after the step has started, as the event loop keeps their order
            raise


class _BlockFailed(Exception):
    """Stands for the exception that left a `with` block of the caller."""


class _SharedLoop:
    """An event loop that runs while any of its users needs it."""

    def __init__(self) -> None:
        self._lock, self._users, self._exits = Lock(), 0, ExitStack()

    @contextmanager
    def use(self) -> Iterator[BlockingPortal]:
        with self._lock:  # until the event loop has started or ended: the next one cannot start before
            if not self._users:
                self._portal = self._exits.enter_context(start_blocking_portal())
            self._users += 1
        try:
            yield self._portal
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._exits.close()


_SHARED: Final[dict[int, _SharedLoop]] = {}


def run_loop(modules: Mapping[str, Any] = sys.modules) -> AbstractContextManager[BlockingPortal]:
    """Return a context manager that runs an event loop beside the caller. Under gevent, the callers in an OS thread share it."""
    # If gevent has replaced threads by greenlets, the event loop runs in the OS thread of its callers, and asyncio allows one.
    gevent = modules.get("gevent.monkey")
    if gevent is None or not gevent.is_module_patched("threading"):
        return start_blocking_portal()
    if vars(from_thread)["Lock"] is gevent.get_original("threading", "Lock"):
        got = "a call after anyio was imported, whose locks would stop every greenlet"
        raise InvalidRequest(f"gevent: expected monkey.patch_all() before other imports, got {got}; call it first in the program")
    return _SHARED.setdefault(threading.get_native_id(), _SharedLoop()).use()


class ClientLoop:
    """The event loop of a client, in a separate thread."""

    def __init__(self) -> None:
        self.portal: BlockingPortal | None = None
        self._process = os.getpid()

    def start(self, exits: ExitStack) -> None:
        """Start the event loop. The stack stops it."""
        exits.callback(setattr, self, "portal", None)  # calls after the end of the loop raise an error
        self.portal, self._process = exits.enter_context(run_loop()), os.getpid()
        exits.callback(self._abandon_after_fork)

    @property
    def _is_inherited(self) -> bool:
        return self._process != os.getpid()

    def _abandon_after_fork(self) -> None:
        # A forked child has no thread that runs the event loop. Without this, its end would wait for the event loop forever.
        if self.portal is not None and self._is_inherited:
            self.portal._event_loop_thread_id = None  # noqa: SLF001 - there is no other way to end a portal of another process

    def run(self, function: Callable[P, Awaitable[T]], *arguments: P.args, **options: P.kwargs) -> T:
        work = _Interruptible(self.require_portal(), lambda: function(*arguments, **options))
        result: T = work.await_step(work.run)
        return result

    @contextmanager
    def hold(self, manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
        """Enter and leave an async context manager in the event loop. A Ctrl-C ends the waits for both."""
        # `BlockingPortal.wrap_async_context_manager` waits without a timeout, and can miss a Ctrl-C; see `_INTERRUPT_DELAY`.
        entered: Future[tuple[T, anyio.Event]] = Future()
        failed = False

        def raise_failure() -> None:
            if failed:
                raise _BlockFailed  # for the manager; the exception itself propagates in the calling thread

        async def enter_and_leave() -> None:
            try:
                with suppress(_BlockFailed):
                    async with manager as value:
                        leaving = anyio.Event()
                        entered.set_result((value, leaving))
                        await leaving.wait()
                        raise_failure()
            except BaseException as error:
                if not entered.done():
                    entered.set_exception(error)
                raise

        work = _Interruptible(self.require_portal(), enter_and_leave)
        value, leaving = work.await_step(work.run, entered)
        held = work.started
        try:
            yield value
        except BaseException:
            failed = True
            raise
        finally:
            if not self._is_inherited:
                work.await_step(leaving.set, held)

    def require_portal(self) -> BlockingPortal:
        if self.portal is None:
            remedy = "use it inside `with SyncClient() as client:`"
            raise InvalidRequest(f"client: expected an open client, got a closed one; {remedy}")
        if self._is_inherited:
            got = "one that was opened before this process was forked"
            raise InvalidRequest(f"client: expected a client of this process, got {got}; make a new client")
        return self.portal
