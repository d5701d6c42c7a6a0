"""The client that openapi-python-client generates from the service's OpenAPI document, used as its README says."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measuring import Once, Whole
from benchmarks.worker import GENERATED, ROOT
from benchmarks.workload import OPTIONS, OWNER_KEY, ROW, WORKSPACE, rows

_PACKAGE = "outreach_generated"
_RENAMED = {"zip": "zip_"}  # the generator avoids names of builtins


def generate(directory: Path) -> None:
    """Generate the client into a directory, and make it importable for workers."""
    document = ROOT / "outreach_async" / "fake" / "openapi.json"
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--path", str(document), "--output-path", str(directory / _PACKAGE)]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - this interpreter, with fixed arguments
    os.environ[GENERATED] = str(directory)


def module(name: str) -> Any:
    """Import a module of the generated client."""
    return import_module(f"{_PACKAGE}.{name}")


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[Any]:
    async with module("client").Client(base_url=url) as client:
        yield client


def contact(row: Mapping[str, str] = ROW) -> Any:
    """Return the body of a creation."""
    models = module("models")
    options = models.UploadOptions.from_dict(OPTIONS)
    fields = {_RENAMED.get(name, name): value for name, value in row.items()}
    return models.CreateContact(owner_key=OWNER_KEY, workspace=WORKSPACE, upload_options=options, **fields)


@asynccontextmanager
async def create(url: str, _concurrency: int) -> AsyncIterator[Once]:
    """Create a contact."""
    send = module("api.contacts.create_contact").asyncio
    async with _client(url) as client:
        yield lambda: send(client=client, body=contact())


@asynccontextmanager
async def mailboxes(workspace: str, display: int, url: str, _concurrency: int) -> AsyncIterator[Once]:
    """Get the first page of mailboxes."""
    get = module("api.mailboxes.list_mailboxes").asyncio
    async with _client(url) as client:
        yield lambda: get(client=client, workspace=workspace, display=display, page=1)


@asynccontextmanager
async def bulk(url: str, concurrency: int) -> AsyncIterator[Whole]:
    """Create contacts with one task each, a semaphore and gather."""
    send = module("api.contacts.create_contact").asyncio
    room = asyncio.Semaphore(concurrency)
    async with _client(url) as client:

        async def one(row: dict[str, str]) -> bool:
            async with room:
                answer = await send(client=client, body=contact(row))
            return bool(answer.status == "added")

        async def whole(count: int) -> int:
            return sum(await asyncio.gather(*map(one, rows(count))))

        yield whole


@asynccontextmanager
async def walk(workspace: str, display: int, url: str) -> AsyncIterator[Whole]:
    """Get every page."""
    get = module("api.mailboxes.list_mailboxes").asyncio
    async with _client(url) as client:

        async def whole(_pages: int) -> int:
            items: list[Any] = []
            page, pages = 1, 1
            while page <= pages:
                answer = await get(client=client, workspace=workspace, display=display, page=page)
                items += answer.data
                pages = answer.total_pages
                page += 1
            return len(items)

        yield whole
