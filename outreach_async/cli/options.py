"""Options shared by all commands. They may stand before or after the name of the command."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Final, Literal, get_args

import attrs
import click

from outreach_async.validation import read_rate, require_rate

FAKE: Final = "fake:"
"""The base URL of the embedded service."""

Backend = Literal["httpx", "httpx2", "aiohttp"]

_SHARED_OPTIONS: Final = (
    click.option(
        "--base-url", metavar="URL", help=f"Base URL of the service; {FAKE!r} is an embedded service. [OUTREACH_BASE_URL]"
    ),
    click.option("--workspace", "workspaces", metavar="ID", multiple=True, help="Id of the workspace. [OUTREACH_WORKSPACE]"),
    click.option(
        "--owner-key", metavar="KEY", help="API key, used only by import; safer in the environment. [OUTREACH_OWNER_KEY]"
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object, the last line of stdout."),
    click.option("--backend", type=click.Choice(get_args(Backend)), help="HTTP library to use.  [default: httpx]"),
    click.option("--timeout", type=float, metavar="SECONDS", help="Timeout per attempt of a request.  [default: 30]"),
    click.option("--rate", type=float, metavar="N", help="Maximum number of requests per second. [OUTREACH_RATE]"),
    click.option("--header", "headers", metavar="'NAME: VALUE'", multiple=True, help="Header for every request; repeatable."),
)


@attrs.frozen(kw_only=True)
class Options:
    """The shared options, completed from the environment.

    Attributes:
        base_url: Base URL of the service; `None` if not given.
        workspaces: Ids of workspaces, in the order given.
        owner_key: API key; `None` if not given.
        as_json: Whether to print one JSON object on stdout.
        backend: The HTTP library.
        timeout: Timeout per attempt, in seconds.
        rate: Maximum number of requests per second; `None` for no limit.
        headers: Headers to send with every request.
    """

    base_url: str | None
    workspaces: tuple[str, ...]
    owner_key: str | None = attrs.field(repr=False)
    as_json: bool
    backend: Backend
    timeout: float
    rate: float | None
    headers: Mapping[str, str] = attrs.field(repr=False)

    @classmethod
    def of(cls, values: Mapping[str, Any], environment: Mapping[str, str]) -> Options:
        """Create the options from the command line. The environment provides options that are not given.

        For the embedded service, the environment provides only the rate: its key and workspace belong to another service.

        Raises:
            click.UsageError: A header is not of the form `Name: value`.
            InvalidRequest: The rate is not a finite number greater than 0.
        """
        rate = read_rate(environment) if values["rate"] is None else require_rate("--rate", values["rate"])
        base_url = values["base_url"] or environment.get("OUTREACH_BASE_URL") or None
        environment = {} if base_url == FAKE else environment
        return cls(
            base_url=base_url,
            workspaces=values["workspaces"] or tuple(environment.get("OUTREACH_WORKSPACE", "").split()),
            owner_key=values["owner_key"] or environment.get("OUTREACH_OWNER_KEY") or None,
            as_json=bool(values["as_json"]),
            backend=values["backend"] or "httpx",
            timeout=30.0 if values["timeout"] is None else values["timeout"],
            rate=rate,
            headers=dict(map(_parse_header, values["headers"])),
        )

    @property
    def workspace(self) -> str | None:
        """The workspace to work in; `None` if not given.

        Raises:
            click.UsageError: Several workspaces are given.
        """
        if len(self.workspaces) > 1:
            raise click.UsageError("--workspace: expected one workspace, got several; pass --workspace once.")
        return next(iter(self.workspaces), None)


def shared_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declare the shared options, which the command receives as `options`. Options after the command's name have priority."""

    @wraps(command)
    def with_options(**arguments: Any) -> Any:
        context = click.get_current_context()
        before = context.parent.params if context.parent else {}
        shared = {name: _prefer_later(before.get(name), arguments.pop(name)) for name in attrs.fields_dict(Options)}
        return command(options=Options.of(shared, os.environ), **arguments)

    return declare_options(with_options)


def declare_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the shared options to a command, which receives each option as a separate argument."""
    for option in reversed(_SHARED_OPTIONS):
        command = option(command)
    return command


def _prefer_later(before: Any, after: Any) -> Any:
    """Return the value given after the name of the command or, if it was omitted there, the value given before the name."""
    return before if after is None or after is False or after == () else after


def _parse_header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon or not name.strip():
        raise click.UsageError("--header: expected 'Name: value', got text without a name or colon; quote the whole header.")
    return name.strip(), value.strip()
