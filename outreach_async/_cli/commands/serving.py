"""The command `serve`: serve the embedded service over HTTP, with the same sample data after every start."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from time import perf_counter
from typing import Any

import anyio
import attrs
import click

from outreach_async import Request
from outreach_async._cli.demo_data import NOW, SEED, create_demo_world
from outreach_async._cli.files import explain_os_errors, explain_read_errors
from outreach_async._cli.messages import to_printable
from outreach_async._cli.process import OK, run_async
from outreach_async._cli.values import Options
from outreach_async.fake import Behaviour, FakeService, WorldError
from outreach_async.fake.behaviour import PRESETS, BehaviourFileError, load_behaviour
from outreach_async.fake.faults import Exchange, Service
from outreach_async.fake.request_log import mask_target
from outreach_async.fake.server import serve as serve_fake


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

    service: Service

    def exchange(self, request: Request, /) -> Exchange:
        started = perf_counter()
        exchange = self.service.exchange(request)
        milliseconds = 1000 * (perf_counter() - started)
        status = "no response" if exchange.response is None else exchange.response.status
        fault = "" if exchange.struck == "ok" else f", fault {exchange.struck}"
        line = f"{request.method} {mask_target(request.target)} {status} {milliseconds:.1f} ms{fault}"
        sys.stderr.write(f"{to_printable(line)}\n")
        return exchange


def serve(
    options: Options, host: str, port: int, *, world: Path | None, seed: int, behaviour: str, control_hosts: tuple[str, ...]
) -> int:
    from outreach_async.fake.control import ControlPlane, is_loopback  # slow to import, and no other command needs it

    choices = _load_behaviour(behaviour)
    service = create_demo_world(seed, choices) if world is None else load_world(world, seed, choices)
    controlled = bool(control_hosts) or is_loopback(host)
    served: Service = ControlPlane(service, control_hosts) if controlled else service
    served = LoggingService(served) if options.verbose else served

    def print_address(base_url: str) -> None:
        values = {"base_url": base_url, **find_entry_ids(service)}
        exports = "" if options.quiet else format_exports(values)
        sys.stdout.write(f"{json.dumps(values)}\n" if options.as_json else exports)
        sys.stdout.flush()
        if not controlled:
            options.screen().warn(
                f"the control plane under /_fake is off, because other machines can reach {host}; to turn it on, pass the name "
                "by which clients reach this server, such as --control-host localhost"
            )

    async def serve_until_interrupted() -> None:
        with explain_os_errors("--host", f"{host} --port {port}", "pass a local address and a free port, such as --port 0"):
            async with serve_fake(served, host, port) as url:
                print_address(url)
                await anyio.sleep_forever()

    return run_async(serve_until_interrupted, terminated=OK)


def _load_behaviour(name: str) -> Behaviour:
    if name in PRESETS:
        return PRESETS[name]()
    if not Path(name).exists():
        raise click.UsageError(f"--behaviour: expected a file or one of {', '.join(PRESETS)}, got {name}; pass one of them.")
    try:
        with explain_read_errors("--behaviour", Path(name)):
            return load_behaviour(name)
    except BehaviourFileError as error:
        raise click.UsageError(f"--behaviour {error}") from error
