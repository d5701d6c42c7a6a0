"""The command `serve`: the service in memory, on a real port."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Final

import click

from outreach_async.cli.completion import of_words
from outreach_async.cli.exits import OK
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.world import SEED, demo_world, entrance, stored_world
from outreach_async.fake import Behaviour, FakeService
from outreach_async.fake.behaviourfile import BehaviourFileError, load_behaviour
from outreach_async.fake.server import run

PRESETS: Final = ("documented", "strict", "lenient")


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port to listen at; 0 takes a free one."
)
@click.option(
    "--world", type=click.Path(path_type=Path), metavar="FILE", help="JSON file of what it holds; the demo's world by default."
)
@click.option("--seed", type=int, default=SEED, show_default=True, help="What is made up, and chance, is drawn from it.")
@click.option(
    "--behaviour",
    default=PRESETS[0],
    show_default=True,
    metavar="PRESET|FILE",
    shell_complete=of_words(lambda: PRESETS, or_file=True),
    help=f"How it reads what the interface leaves open: {', '.join(PRESETS)}, or a TOML file of knobs.",
)
@click.option(
    "--control-host",
    "control_hosts",
    multiple=True,
    metavar="NAME",
    help="Name, besides localhost and IP addresses, by which the control plane may be asked for; repeatable. "
    "Beyond loopback there is a control plane only if one is given.",
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
    """Serve the embedded service until stopped.

    The first line on stdout is the base URL, the second a JSON object with a workspace, an owner key and a campaign to use.

    Under /_fake/ is the control plane, plain HTTP and JSON: reset, seeding, faults, behaviour and time. /_fake/control.json
    describes it and /_fake/openapi.json the service, both as OpenAPI 3.1.
    """
    from outreach_async.fake.control import Controlled, is_loopback  # no other command needs it, and its forms take time to make

    read = _behaviour(behaviour)
    service = demo_world(seed, read) if world is None else stored_world(world, seed, read)
    controlled = Controlled(service, control_hosts) if control_hosts or is_loopback(host) else service
    return run_async(partial(run, controlled, host, port, partial(_announce, service)), terminated=OK)


def _behaviour(said: str) -> Behaviour:
    """Take a preset, or read a file.

    Raises:
        click.UsageError: There is neither such a preset nor such a file, or the file makes no behaviour.
        OSError: It cannot be read.
    """
    if said in PRESETS:
        preset: Behaviour = getattr(Behaviour, said)()
        return preset
    try:
        return load_behaviour(said)
    except FileNotFoundError as error:
        raise click.UsageError(f"--behaviour {said}: no file, and no preset; those are {', '.join(PRESETS)}.") from error
    except BehaviourFileError as error:
        raise click.UsageError(f"--behaviour {error}") from error


def _announce(service: FakeService, base_url: str) -> None:
    sys.stdout.write(f"{base_url}\n{json.dumps(entrance(service))}\n")
    sys.stdout.flush()
