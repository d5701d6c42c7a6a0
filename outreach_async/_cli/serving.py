"""The command `serve`: serve the embedded service over HTTP, with the same sample data after every start."""

from __future__ import annotations

import json
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import Any

import attrs
import click

from outreach_async import Request
from outreach_async._cli.demo_data import NOW, SEED
from outreach_async._cli.files import explain_read_errors
from outreach_async._cli.messages import to_printable
from outreach_async.fake import Behaviour, FakeService, WorldError
from outreach_async.fake.behaviour import PRESETS, BehaviourFileError, load_behaviour
from outreach_async.fake.faults import Exchange, Service, SlicedService, exchange_in_slices
from outreach_async.fake.request_log import mask_target


def load_world(path: Path, seed: int = SEED, behaviour: Behaviour | None = None) -> FakeService:
    service = FakeService(seed, behaviour, NOW)
    try:
        with explain_read_errors("--world", path):
            service.load(path)
    except WorldError as error:
        raise click.UsageError(f"--world {path}: {error}") from error
    return service


def find_entry_ids(service: FakeService) -> dict[str, str | None]:
    """Return the id of the first workspace, an owner key and a campaign id of this workspace. A missing value is `None`."""
    document = json.loads(service.dump())
    space: dict[str, Any] = next(iter(document["workspaces"]), {"id": None, "campaigns": []})
    keys = (key for key, spaces in document["owner_keys"].items() if space["id"] in spaces)
    campaigns = (campaign["id"] for campaign in space["campaigns"])
    return {"workspace": space["id"], "owner_key": next(keys, None), "campaign": next(campaigns, None)}


def format_exports(values: Mapping[str, str | None]) -> str:
    names = ("base_url", "workspace", "owner_key")
    lines = [f"export OUTREACH_{name.upper()}={quote(value)}" for name in names if (value := values[name])]
    if values["campaign"]:
        lines.append(f"# try: outreach-async steps {values['campaign']}")
    return "".join(f"{line}\n" for line in lines)


@attrs.frozen
class LoggingService:
    """A service that prints a line to stderr for each request. The time does not include delays of injected faults."""

    service: Service | SlicedService

    def exchange_in_slices(self, request: Request, /) -> Generator[None, None, Exchange]:
        started = perf_counter()
        exchange = yield from exchange_in_slices(self.service, request)
        milliseconds = 1000 * (perf_counter() - started)
        status = "no response" if exchange.response is None else exchange.response.status
        fault = "" if exchange.struck == "ok" else f", fault {exchange.struck}"
        line = f"{request.method} {mask_target(request.target)} {status} {milliseconds:.1f} ms{fault}"
        sys.stderr.write(f"{to_printable(line)}\n")
        return exchange


def choose_behaviour(name: str) -> Behaviour:
    if name in PRESETS:
        return PRESETS[name]()
    if not Path(name).exists():
        raise click.UsageError(f"--behaviour: expected a file or one of {', '.join(PRESETS)}, got {name}; pass one of them.")
    try:
        with explain_read_errors("--behaviour", Path(name)):
            return load_behaviour(name)
    except BehaviourFileError as error:
        raise click.UsageError(f"--behaviour {error}") from error
