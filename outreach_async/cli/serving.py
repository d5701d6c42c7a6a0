"""The command `serve`: the service in memory, on a real port."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import click

from outreach_async.cli.exits import OK
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.running import run_async
from outreach_async.cli.world import demo_world, entrance, stored_world
from outreach_async.fake import FakeService
from outreach_async.fake.server import run


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen at.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default=True, help="Port to listen at; 0 takes a free one."
)
@click.option(
    "--world", type=click.Path(path_type=Path), metavar="FILE", help="JSON file of what it holds; the demo's world by default."
)
@shared_options
def serve(options: Options, host: str, port: int, world: Path | None) -> int:  # noqa: ARG001 - every command takes the options
    """Serve the embedded service until stopped.

    The first line on stdout is the base URL, the second a JSON object with a workspace, an owner key and a campaign to use.
    """
    service = demo_world() if world is None else stored_world(world)
    return run_async(partial(run, service, host, port, partial(_announce, service)), terminated=OK)


def _announce(service: FakeService, base_url: str) -> None:
    sys.stdout.write(f"{base_url}\n{json.dumps(entrance(service))}\n")
    sys.stdout.flush()
