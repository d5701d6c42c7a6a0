"""Create a client from the options of the command line."""

from __future__ import annotations

import logging
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from outreach_async import SocketTransport, Transport
from outreach_async._cli.values import FAKE, MAX_IN_FLIGHT, Options
from outreach_async._plumbing import Secret, configure_logging, create_transport, require_id
from outreach_async.client import OutreachClient
from outreach_async.config import KeyReference

if TYPE_CHECKING:
    from outreach_async.sync import SyncClient


def open_client(
    options: Options, *, workspace: str | None = None, max_in_flight: int = MAX_IN_FLIGHT, writes: bool = False
) -> OutreachClient:
    """Create a client from the options of the command line. Only one that `writes` has a key. No request is sent."""
    return OutreachClient(**_client_arguments(options, workspace, max_in_flight, writes=writes))


def open_sync_client(options: Options) -> SyncClient:
    from outreach_async.sync import SyncClient  # imported on demand: few commands need it

    return SyncClient(**_client_arguments(options, None, MAX_IN_FLIGHT, writes=False))


@asynccontextmanager
async def open_each(options: Options) -> AsyncIterator[dict[str, OutreachClient]]:
    """Open a client that only reads for each workspace, by id. Those without a rate of their own share one."""
    embedded = _embedded_workspaces(options)[:1]
    ids = workspaces_of(options) if options.workspaces or not embedded else embedded
    given = _client_arguments(options, ids[0], MAX_IN_FLIGHT, writes=False)
    del given["workspace"]
    if options.sources["rate"] not in {"--rate", "OUTREACH_RATE"}:
        del given["rate"]  # those of the workspaces and of the file
    async with options.config.clients(*ids, read_only=True, **given) as clients:
        yield {each.id: clients[each.name] for each in options.config.find(*ids)}


def find_owner_key(options: Options, workspace: str | None) -> Secret | None:
    """Return the owner key: that of the command line or the environment, or the one that the configuration file refers to."""
    if options.owner_key is not None:
        return Secret(options.owner_key)
    reference = _find_reference(options, workspace)
    return None if reference is None else reference.read()


def _find_reference(options: Options, workspace: str | None) -> KeyReference | None:
    return options.config.key_of(options.config.find(workspace)[0] if workspace else None)


def _client_arguments(options: Options, workspace: str | None, max_in_flight: int, *, writes: bool) -> dict[str, Any]:
    if not options.timeout > 0:
        raise click.UsageError(f"--timeout: expected more than 0 seconds, got {options.timeout:g}; pass, for example, 30.")
    if options.verbose:
        configure_logging("debug")
    space = workspace or options.workspace or next(iter(_embedded_workspaces(options)), None)
    transport: Transport
    owner_key: Any
    if options.base_url == FAKE:
        from outreach_async._cli.demo_data import OWNER_KEY, create_demo_world
        from outreach_async.fake import FakeTransport

        transport, owner_key = FakeTransport(create_demo_world()), options.owner_key or OWNER_KEY
    else:
        transport = create_transport(_require_base_url(options), options.backend, max_in_flight)
        logging.getLogger("outreach_async").debug("backend: %s, %s", repr(transport), _explain_backend(options, transport))
        owner_key = find_owner_key(options, space) if writes else options.owner_key
    return {
        "transport": transport,
        "owner_key": owner_key,
        "workspace": space,
        "headers": options.headers,
        "timeout": options.timeout,
        "rate": options.own_rates.get(space or "", options.rate),
        "max_in_flight": max_in_flight,
    }


def _explain_backend(options: Options, transport: Transport) -> str:
    if options.backend != "auto":
        return f"from {options.sources['backend']}"
    if isinstance(transport, SocketTransport):
        return "because the environment sets no proxy for this address"
    return "because the environment sets a proxy for this address"


def require_credentials(options: Options) -> None:
    """Check that a base URL, an owner key and one workspace are given. For the embedded service, the base URL suffices."""
    if options.base_url != FAKE:
        _require_base_url(options)
        if options.owner_key is not None or _find_reference(options, options.workspace) is None:
            require_id("--owner-key", options.owner_key, "owner_key", "pass --owner-key or set OUTREACH_OWNER_KEY")
        require_id("--workspace", options.workspace, "workspace", "pass --workspace or set OUTREACH_WORKSPACE")


def refused_workspaces(options: Options) -> dict[str, str]:
    """Return the reason for each configured workspace to which one run cannot send, because its owner key is another one."""
    if options.owner_key is not None or not options.workspaces:
        return {}
    config, run = options.config, str(options.workspace)
    used = config.find(run)[0].owner_key or config.owner_key
    return {
        each.id: f"expected a workspace with the owner key of {options.name_of(run)}, got {each.name}, which has another key; "
        f"import its rows with --workspace {shlex.quote(each.name)}"
        for each in config.workspaces
        if (each.owner_key or config.owner_key) != used
    }


def workspaces_of(options: Options) -> list[str]:
    """Return the ids of the workspaces to work in. For the embedded service, the default is every workspace of that service."""
    workspaces = options.workspaces or _embedded_workspaces(options)
    if not workspaces:
        which = "NAME, --workspace GROUP or --workspace all" if options.config.workspaces else "ID"
        raise click.UsageError(f"--workspace: missing; pass --workspace {which}, or set OUTREACH_WORKSPACE.")
    return list(workspaces)


def _embedded_workspaces(options: Options) -> tuple[str, ...]:
    if options.base_url != FAKE:
        return ()
    from outreach_async._cli.demo_data import WORKSPACES  # imported on demand: the embedded service takes time to load

    return WORKSPACES


def _require_base_url(options: Options) -> str:
    if options.base_url is None:
        remedy = f"pass --base-url URL (or --base-url {FAKE} for an embedded service), or set OUTREACH_BASE_URL."
        raise click.UsageError(f"--base-url: missing; {remedy}")
    return options.base_url
