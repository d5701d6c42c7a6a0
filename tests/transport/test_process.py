"""Whole processes: how they end with requests in flight, and what a forked child may do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from support.certificates import certificates
from support.listener import Listener, Peer
from support.transports import LOOPS

pytestmark = pytest.mark.thorough

PRELUDE: Final = """
import gc, os, signal, ssl, sys, traceback
import anyio
import anyio.to_thread
from outreach_async.errors import InvalidRequest, TransportError
from support.transports import MAKERS, runs_on
from outreach_async.transport._wire import Progress, Request

POST = Request("POST", "/contacts", {}, b"{}")
HANG = Request("POST", "/hang", {}, b"{}")
urls, pem, loop = sys.argv[1].split(), sys.argv[2], sys.argv[3]
options = {"debug": False} if loop == "asyncio" else {}  # asyncio's would tell of slow steps
context = ssl.create_default_context(cafile=pem)

names = [name for name in MAKERS if runs_on(name, loop)]

def make(name, url):
    return MAKERS[name](url.rstrip("/"), tls=context)
"""


def run(script: str, *urls: str, pem: Path | str = "", loop: str = "asyncio") -> None:
    """Run the prelude and a script with warnings as errors. Check that they succeed and print nothing."""
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", PRELUDE + script, " ".join(urls), str(pem), loop]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def answer_or_hang(peer: Peer) -> None:
    while True:
        if not peer.request().startswith(b"POST /hang"):
            peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pem = tmp_path_factory.mktemp("tls") / "authority.pem"
    certificates().authority.cert_pem.write_to_path(str(pem))
    return pem


CLOSING: Final = """
async def use(name, url):
    transport = make(name, url)
    outcomes = []

    async def hang():
        try:
            await transport.send(HANG, Progress())
        except TransportError as error:
            outcomes.append(error.maybe_sent)

    async with anyio.create_task_group() as group:
        for _ in range(3):
            await transport.send(POST, Progress())
            group.start_soon(hang)
        await anyio.wait_all_tasks_blocked()
        await transport.aclose()
    assert len(outcomes) == 3, (name, outcomes)
    try:
        await transport.send(POST, Progress())
    except InvalidRequest as error:
        assert "closed; make a new " in str(error)
    else:
        raise AssertionError(name)

async def main():
    for url in urls:
        for name in names:
            await use(name, url)
            gc.collect()

anyio.run(main, backend=loop, backend_options=options)
gc.collect()
"""


@pytest.mark.nightly
@pytest.mark.parametrize("loop", LOOPS)
def test_a_process_that_closes_with_requests_in_flight_ends_without_warnings(loop: str, authority: Path) -> None:
    with Listener(answer_or_hang) as plain, Listener(answer_or_hang, tls=certificates().server) as tls:
        run(CLOSING, plain.url, tls.url, pem=authority, loop=loop)
        for listener in (plain, tls):
            listener.wait_idle()


FORKING: Final = """
async def refused(transport, reason):
    try:
        await transport.send(POST, Progress())
    except InvalidRequest as error:
        assert reason in str(error), error
    else:
        raise AssertionError("not refused")

async def in_the_child(name, used, unused):
    await refused(used, "before this process was forked, so its connections belong to the parent; make a new client")
    await used.aclose()
    await refused(used, "closed; make a new ")
    if name == "aiohttp_session":
        await refused(unused, "the session belongs to another event loop")
    else:
        assert (await unused.send(POST, Progress())).status == 200
    await unused.aclose()

def fork(*arguments):
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    try:
        signal.set_wakeup_fd(-1)  # the parent's
        anyio.run(in_the_child, *arguments, backend=loop, backend_options=options)
        arguments = None
        gc.collect()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)

async def use(name, url):
    used, unused = make(name, url), make(name, url)
    outcomes = []

    async def hang():
        try:
            await used.send(HANG, Progress())
        except TransportError as error:
            outcomes.append(error.maybe_sent)

    async with anyio.create_task_group() as group:
        group.start_soon(hang)
        await anyio.wait_all_tasks_blocked()
        await used.send(POST, Progress())
        assert await anyio.to_thread.run_sync(fork, name, used, unused) == 0, name
        assert (await used.send(POST, Progress())).status == 200
        assert outcomes == []
        await used.aclose()
    assert outcomes == [True]
    await unused.aclose()

async def main():
    for url in urls:
        for name in names:
            await use(name, url)

anyio.run(main, backend=loop, backend_options=options)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "fork"), reason="on Windows no process is forked")
@pytest.mark.parametrize("loop", LOOPS)
def test_a_forked_child_must_create_a_new_client_and_does_no_harm(loop: str, authority: Path) -> None:
    with Listener(answer_or_hang) as plain, Listener(answer_or_hang, tls=certificates().server) as tls:
        run(FORKING, plain.url, tls.url, pem=authority, loop=loop)
        for listener in (plain, tls):
            listener.wait_idle()
            # For each transport: one that hangs, one that the parent keeps using after the fork, and those of the child.
            assert len(listener.peers) == (18 if loop == "trio" else 23)
