"""Look for what is left of a person in files: their address in any spelling, and the keyed digests of a ledger."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import anyio

from outreach_async import Progress, Request, Response
from outreach_async.store._ledgers import CAMPAIGN_BITS
from outreach_async.store._objects import _COMMON_TEXT, _DIGEST_SIZE, _MAGIC, _WBITS

ANN: Final = "Ann.O\u00e7a@company.example"
_BODY: Final = len(_MAGIC) + 1 + 3 * _DIGEST_SIZE + 8


def unpacked(content: bytes) -> Iterator[bytes]:
    """Yield the content of a file, and what is packed in it."""
    yield content
    if content.startswith(_MAGIC):
        yield zlib.decompressobj(wbits=_WBITS, zdict=_COMMON_TEXT).decompress(content[_BODY:])
    if content.startswith(b"\x1f\x8b"):
        yield gzip.decompress(content)


def find_traces(folder: Path, email: str, keys: Iterable[int] = ()) -> list[str]:
    """Return the names of the files that have an address or keys of a ledger, whatever their form."""
    wanted = email.lower()
    key_forms = [form for key in keys for form in (key.to_bytes(8, signed=True)[: -CAMPAIGN_BITS // 8], str(key).encode())]
    found = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()):
        for content in unpacked(path.read_bytes()):
            texts = [content.decode(errors="replace"), content.decode("utf-16", errors="replace")]
            texts.append(re.sub(r"\\u([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), texts[0]))
            spellings = [spelling for text in texts for spelling in (text, unquote(text))]
            if any(wanted in each.lower() for each in spellings) or any(form in content for form in key_forms):
                found.append(str(path.relative_to(folder)))
                break
    return found


class QuotingService:
    """A service that adds contacts, and rejects some addresses with a message that quotes them."""

    def __init__(self, rejected: Iterable[str] = (), answers: float = inf) -> None:
        """Create a service that hangs after a number of answers."""
        self.emails: list[str] = []
        self.hung = anyio.Event()
        self._rejected, self._answers = {*rejected}, answers

    async def send(self, request: Request, progress: Progress, /) -> Response:
        progress.sent = True
        email = json.loads(request.body)["email"]
        self.emails.append(email)
        if len(self.emails) > self._answers:
            self.hung.set()
            await anyio.sleep_forever()
        if email in self._rejected:
            return Response(422, {}, json.dumps({"detail": f"{email.upper()} is on a list"}).encode())
        return Response(
            201, {}, json.dumps({"status": "added", "id": f"contact_{len(self.emails):016x}", "details": None}).encode()
        )

    async def aclose(self) -> None: ...
