"""From options to a client."""

from __future__ import annotations

import click

from outreach_async.cli.options import FAKE, Options
from outreach_async.client import OutreachClient
from outreach_async.transport.wire import Transport

_MAX_IN_FLIGHT = 64


def open_client(options: Options, *, workspace: str | None = None, max_in_flight: int = _MAX_IN_FLIGHT) -> OutreachClient:
    """Make a client; nothing is sent.

    Args:
        options: What the command line says.
        workspace: Workspace to work in, instead of the one of the options.
        max_in_flight: Requests at a time at most.

    Raises:
        click.UsageError: No base URL.
        InvalidRequest: A value that can never be right, or a backend that is not installed.
    """
    transport, owner_key = _embedded() if options.base_url == FAKE else (_transport(options, max_in_flight), None)
    return OutreachClient(
        transport=transport,
        owner_key=options.owner_key or owner_key,
        workspace=workspace or workspace_of(options),
        headers=options.headers,
        timeout=options.timeout,
        max_in_flight=max_in_flight,
    )


def workspace_of(options: Options) -> str | None:
    """Return the one workspace to work in; the embedded service's first if none is given."""
    return options.workspace or next(iter(_offered(options)), None)


def workspaces_of(options: Options) -> list[str]:
    """Return the workspaces to work in; all of the embedded service's if none is given.

    Raises:
        click.UsageError: There is none.
    """
    found = options.workspaces or _offered(options)
    if not found:
        raise click.UsageError("No workspace: give --workspace ID, or set OUTREACH_WORKSPACE.")
    return list(found)


def _offered(options: Options) -> tuple[str, ...]:
    if options.base_url != FAKE:
        return ()
    from outreach_async.cli.world import WORKSPACES  # the embedded service is imported for those who want it

    return WORKSPACES


def _embedded() -> tuple[Transport, str]:
    from outreach_async.cli.world import OWNER_KEY, demo_world
    from outreach_async.fake.transport import FakeTransport

    return FakeTransport(demo_world()), OWNER_KEY


def _transport(options: Options, max_in_flight: int) -> Transport:
    if options.base_url is None:
        raise click.UsageError(f"No base URL: give --base-url URL (or --base-url {FAKE} to try it), or set OUTREACH_BASE_URL.")
    if options.backend == "aiohttp":
        from outreach_async.transport.aiohttp import AiohttpTransport

        return AiohttpTransport(options.base_url)
    from outreach_async.transport.httpx import HttpxTransport

    return HttpxTransport(options.base_url, family=options.backend, max_in_flight=max_in_flight)
