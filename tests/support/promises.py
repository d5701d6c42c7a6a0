"""Sentences of the texts, each with a program that keeps it with a second feature switched on, and a small service for them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar

import anyio
import attrs
import pytest
from support.fake import KEY, SPACE

from outreach_async import OutreachClient, RetryPolicy, Store
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.testing import VirtualTime

ROOT: Final = Path(__file__).parents[2]
_Function = TypeVar("_Function", bound=Callable[..., Any])


@attrs.frozen
class Promise:
    """A sentence as it stands in a file, and the program that checks it."""

    file: str
    sentence: str
    program: Callable[..., Any]
    is_long: bool

    def check(self, folder: Path, backend: str, request: pytest.FixtureRequest) -> None:
        """Find the sentence in its file, and run the program, with the fixtures that it names."""
        assert self.sentence in text_of(self.file)
        desk, names = Desk(folder), list(inspect.signature(self.program).parameters)[1:]
        program = partial(self.program, desk, *map(request.getfixturevalue, names))
        anyio.run(program, backend=backend, backend_options=desk.time.options(backend)) if backend != "sync" else program()


class Promises(list[Promise]):
    """The promises of one file of tests."""

    def __call__(self, file: str, sentence: str, *, long: bool = False) -> Callable[[_Function], _Function]:
        """Decorate the program that checks a sentence of a file."""

        def add(program: _Function) -> _Function:
            self.append(Promise(file, sentence, program, long))
            return program

        return add

    def cases(self) -> list[Any]:
        """Return the parameters of a test with `promise` and `backend`: async programs run on both event loops."""
        return [
            pytest.param(each, backend, id=f"{each.program.__name__}-{backend}", marks=[pytest.mark.thorough] * each.is_long)
            for each in self
            for backend in (("asyncio", "trio") if inspect.iscoroutinefunction(each.program) else ("sync",))
        ]


@cache
def text_of(file: str) -> str:
    """Return the text of a file with its wrapped lines joined."""
    return re.sub(r"\s+", " ", (ROOT / file).read_text(encoding="utf-8"))


class Desk:
    """A service with one workspace, in virtual time, a client of it, and a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.time = folder, VirtualTime()
        self.fake = FakeService(clock=self.time)
        self.fake.add_workspace(SPACE)
        self.fake.add_owner_key(SPACE, key=KEY)
        self.boxes = self.fake.add_mailboxes(SPACE, 2)
        for id_ in ("camp_1", "camp_2"):
            self.fake.add_campaign(SPACE, id=id_, name=id_, status="live", mailboxes=self.boxes, steps=["A"])

    def client(self, **options: Any) -> OutreachClient:
        given = {"transport": FakeTransport(self.fake), "workspace": SPACE, "owner_key": KEY, **options}
        policy = {} if "max_retries" in options else {"retry": RetryPolicy(jitter=lambda: 0.5)}
        return OutreachClient(**{**policy, **given})

    def store(self, name: str = "run.db", **options: Any) -> Store:
        return Store(self.folder / name, inline=True, **options)

    def created(self) -> list[str]:
        """Return the e-mails of all requests that create a contact, in their order."""
        return [entry.json["email"] for entry in self.fake.requests.of("create_contact") if entry.json]


def people(count: int, **fields: Any) -> list[dict[str, Any]]:
    return [{"email": f"u{number}@a.example", **fields} for number in range(count)]


async def outcomes_of(run: Any) -> list[Any]:
    """Return the outcomes of a run, in the order of its rows."""
    async with run as outcomes:
        return sorted([each async for each in outcomes], key=lambda each: each.index)
