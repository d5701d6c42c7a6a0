"""A service on a real socket that fails at random, and a record of the requests that have reached it."""

from __future__ import annotations

import os
import random
import re
import stat
from collections import Counter
from typing import Final

from support.listener import Listener, Peer

from outreach_async import Progress, Request
from outreach_async.fake import FakeService, FakeTransport

ADDED: Final = b'{"status":"added","id":"contact_1","details":null}'
SKIPPED: Final = b'{"status":"skipped","id":null,"details":"duplicate"}'
PAGES: Final = 3
_ID: Final = re.compile(rb"id-\d+(?:-\d+)?(?=[^\d-])")
_PAGE: Final = re.compile(rb"[?&]page=(\d+)")


class FlakyBehaviour:
    """A listener with random faults. The faults of a connection depend only on the seed and the number of the connection."""

    def __init__(self, seed: int, pages: list[bytes]) -> None:
        self.calm = False
        self._seeds = random.Random(seed)  # noqa: S311 - faults, not secrets
        self._pages = pages

    def __call__(self, peer: Peer) -> None:
        chance = random.Random(self._seeds.random())  # noqa: S311 - faults, not secrets
        if chance.random() < 0.1 and not self.calm:
            peer.reset()
            return
        while self._exchange(peer, chance):
            pass

    def _exchange(self, peer: Peer, chance: random.Random) -> bool:
        """Respond to one request or inject a fault; return whether the connection remains usable."""
        answer = self._answer(peer, peer.request())
        fault = chance.randrange(10)
        if fault == 0 and not self.calm:
            peer.reset()
        elif fault == 1 and not self.calm:
            return False
        elif fault == 2 and not self.calm:
            peer.outlast()
        elif fault == 3 and not self.calm:
            peer.send(answer[:-1])
            peer.read()
        else:
            peer.send(answer)
            return True
        return False

    def _answer(self, peer: Peer, request: bytes) -> bytes:
        if request.startswith(b"POST "):
            body = ADDED if peer.seen(request) == 1 else SKIPPED
        else:
            page = _PAGE.search(request)
            body = self._pages[int(page[1]) - 1 if page else 0]
        return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


async def mailbox_pages() -> list[bytes]:
    """Return the bodies of all pages of a list of mailboxes."""
    fake = FakeService(seed=1)
    space = fake.add_workspace()
    fake.add_mailboxes(space, PAGES)
    target = f"/mailboxes?workspace={space}&display=1&page="
    transport = FakeTransport(fake)
    return [(await transport.send(Request("GET", f"{target}{page + 1}"), Progress())).body for page in range(PAGES)]


def arrived(listener: Listener) -> set[bytes]:
    """Return the ids that have arrived, including those of incomplete requests."""
    return {found for peer in listener.peers for found in _ID.findall(peer.received + b" ")}


def deliveries(listener: Listener) -> Counter[bytes]:
    """Return the number of complete requests for each id."""
    return Counter(found for request in listener.requests for found in _ID.findall(request)[:1])


def open_sockets() -> int:
    """Return the number of open sockets of this process, on systems where sockets have file descriptors."""
    return sum(_is_socket(descriptor) for descriptor in range(1024))


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False
