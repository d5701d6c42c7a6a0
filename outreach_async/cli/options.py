"""The options that every command shares, before or after the command's name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, Literal

import attrs
import click

FAKE: Final = "fake:"
"""The base URL of the embedded service."""

BACKENDS: Final = ("httpx", "httpx2", "aiohttp")

Backend = Literal["httpx", "httpx2", "aiohttp"]

_SHARED: Final = (
    click.option("--base-url", metavar="URL", help=f"Where the service is, or {FAKE!r} for an embedded one. [OUTREACH_BASE_URL]"),
    click.option("--workspace", "workspaces", metavar="ID", multiple=True, help="Workspace to work in. [OUTREACH_WORKSPACE]"),
    click.option("--owner-key", metavar="KEY", help="API key, for import only; better set OUTREACH_OWNER_KEY than type it."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object as the last line of stdout."),
    click.option("--backend", type=click.Choice(BACKENDS), help="HTTP library to use; httpx by default."),
    click.option("--timeout", type=float, metavar="SECONDS", help="Bound of one attempt of one request; 30 by default."),
    click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Header to send with every request."),
)


@attrs.frozen(kw_only=True)
class Options:
    """What the shared options say, the environment included.

    Attributes:
        base_url: Where the service is; `None` if nobody said.
        workspaces: Ids of workspaces, in the order given.
        owner_key: API key; `None` if nobody said.
        as_json: Whether stdout is for one JSON object.
        backend: The HTTP library.
        timeout: Seconds of one attempt.
        headers: Header fields to send along.
    """

    base_url: str | None
    workspaces: tuple[str, ...]
    owner_key: str | None = attrs.field(repr=False)
    as_json: bool
    backend: Backend
    timeout: float
    headers: Mapping[str, str] = attrs.field(repr=False)

    @classmethod
    def of(cls, given: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
        """Complete what was given.

        The embedded service takes nothing from the environment: a key and a workspace that are set there belong to another.

        Raises:
            click.UsageError: A header that is none.
        """
        base_url = given["base_url"] or environment.get("OUTREACH_BASE_URL") or None
        around = {} if base_url == FAKE else environment
        return cls(
            base_url=base_url,
            workspaces=given["workspaces"] or tuple(around.get("OUTREACH_WORKSPACE", "").split()),
            owner_key=given["owner_key"] or around.get("OUTREACH_OWNER_KEY") or None,
            as_json=bool(given["as_json"]),
            backend=given["backend"] or "httpx",
            timeout=30.0 if given["timeout"] is None else given["timeout"],
            headers=dict(map(_header, given["headers"])),
        )

    @property
    def workspace(self) -> str | None:
        """The one workspace to work in, if one is given.

        Raises:
            click.UsageError: Several are.
        """
        if len(self.workspaces) > 1:
            raise click.UsageError("This command works in one workspace; give --workspace once.")
        return next(iter(self.workspaces), None)


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the shared options for a command, which takes them as `options`; what follows its name wins."""

    @wraps(command)
    def with_options(**arguments: Any) -> Any:
        context = click.get_current_context()
        before = context.parent.params if context.parent else {}
        given = {name: _later(before.get(name), arguments.pop(name)) for name in _NAMES}
        return command(options=Options.of(given, os.environ), **arguments)

    return declared(with_options)


def declared(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the shared options."""
    for option in reversed(_SHARED):
        command = option(command)
    return command


_NAMES: Final = ("base_url", "workspaces", "owner_key", "as_json", "backend", "timeout", "headers")


def _later(before: Any, after: Any) -> Any:
    """Return what stands after the command's name if anything does, else what stands before it."""
    return before if after is None or after is False or after == () else after


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header: expected 'Name: value'; the value is not shown, as it may be a secret.")
    return name.strip(), value.strip()
