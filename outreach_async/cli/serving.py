"""The command `serve`: the embedded service on a real port."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import click

from outreach_async.cli.completion import of_words
from outreach_async.cli.exits import OK
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.world import SEED, demo_world, entrance, stored_world
from outreach_async.cli.writing import named, readable
from outreach_async.fake import Behaviour, FakeService
from outreach_async.fake.behaviourfile import BehaviourFileError, load_behaviour
from outreach_async.fake.exchange import Service
from outreach_async.fake.server import run

PRESETS: Final = ("documented", "strict", "lenient")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port to listen on; 0 picks a free one."
)
@click.option(
    "--world",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON file with the initial data; the demo's by default.",
)
@click.option("--seed", type=int, default=SEED, show_default=True, help="Seed for generated data.")
@click.option(
    "--behaviour",
    default=PRESETS[0],
    show_default=True,
    metavar="PRESET|FILE",
    shell_complete=of_words(lambda: PRESETS, or_file=True),
    help=f"Behaviour where the interface leaves it open: {', '.join(PRESETS)}, or a TOML file.",
)
@click.option(
    "--control-host",
    "control_hosts",
    multiple=True,
    metavar="NAME",
    help="Host name that requests to the control plane may use, besides localhost and IP addresses; repeatable. "
    "With a --host beyond loopback, the control plane is available only with this option.",
)
@shared_options
def serve(
    *,
    options: Options,  # noqa: ARG001 - every command takes the options
    host: str,
    port: int,
    world: Path | None,
    seed: int,
    behaviour: str,
    control_hosts: tuple[str, ...],
) -> int:
    """Serve the embedded service over HTTP until interrupted.

    The first line on stdout is the base URL. The second is a JSON object with a workspace, an owner key and a campaign to use.

    The control plane under /_fake/ resets the service, seeds data, injects faults, changes the behaviour and moves the clock,
    with HTTP and JSON. Two OpenAPI 3.1 documents describe it and the service: /_fake/control.json and /_fake/openapi.json.
    """
    from outreach_async.fake.control import Controlled, is_loopback  # slow to import, and no other command needs it

    read = _behaviour(behaviour)
    service = demo_world(seed, read) if world is None else stored_world(world, seed, read)
    controlled = Controlled(service, control_hosts) if control_hosts or is_loopback(host) else service
    return run_async(partial(_served, controlled, host, port, partial(_announce, service)), terminated=OK)


async def _served(service: Service, host: str, port: int, started: Callable[[str], None]) -> None:
    with named("--host", f"{host} --port {port}", "pass an address of this machine and a free port, such as --port 0"):
        await run(service, host, port, started)


def _behaviour(said: str) -> Behaviour:
    """Return a preset, or read a file.

    Raises:
        click.ClickException: There is no such preset or readable file, or the file is not a valid behaviour.
    """
    if said in PRESETS:
        preset: Behaviour = getattr(Behaviour, said)()
        return preset
    if not Path(said).exists():
        raise click.UsageError(f"--behaviour: expected a file or one of {', '.join(PRESETS)}, got {said}; pass one of them.")
    try:
        with readable("--behaviour", Path(said)):
            return load_behaviour(said)
    except BehaviourFileError as error:
        raise click.UsageError(f"--behaviour {error}") from error


def _announce(service: FakeService, base_url: str) -> None:
    sys.stdout.write(f"{base_url}\n{json.dumps(entrance(service))}\n")
    sys.stdout.flush()
