"""The command `serve`: the embedded service on a real port, with the same sample data at every start."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import click

from outreach_async.cli.app import create_completer
from outreach_async.cli.exits import OK
from outreach_async.cli.options import Options, shared_options
from outreach_async.cli.process import run_async
from outreach_async.cli.writing import explain_os_errors, explain_read_errors
from outreach_async.fake import Behaviour, FakeService, WorldError
from outreach_async.fake.behaviour import BehaviourFileError, load_behaviour
from outreach_async.fake.fault_plan import Service
from outreach_async.fake.server import serve_forever

WORKSPACES: Final = ("space_demo", "space_demo_eu")
OWNER_KEY: Final = "key_demo"
CAMPAIGN: Final = "camp_spring"

SEED: Final = 7
_NOW: Final = "2026-03-02T09:00:00Z"


def _days_ago(days: int) -> int:
    return int(datetime.fromisoformat(_NOW).timestamp()) - days * 86_400


@attrs.frozen
class _MailboxGroup:
    """A group of similar mailboxes.

    Attributes:
        name: Base of their domains: `<name>.example`, then `<name>2.example` and so on.
        count: Number of mailboxes.
        fields: Fields that differ from those of healthy mailboxes.
        per_domain: Number of mailboxes per domain.
    """

    name: str
    count: int
    fields: dict[str, Any] = attrs.field(factory=dict)
    per_domain: int = 4

    def domains(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the number of mailboxes of each domain, and their fields."""
        for first in range(0, self.count, self.per_domain):
            number = first // self.per_domain + 1
            fields = {"domain": f"{self.name}{number if number > 1 else ''}.example", "domain_ip": _WEBSITE_IP, **self.fields}
            yield min(self.per_domain, self.count - first), fields


_WEBSITE_IP: Final = "198.51.100.20"

_BLACKLISTED: Final = {
    "blacklists": 4,
    "dmarc": False,
    "sent_30days": 640,
    "bounced_30days": 97,
    "opened_14days": [19, 298],
    "avg_open_rate": [1_310, 4_900],
    "type": "SMTP & IMAP",
    "server_ip": "203.0.113.99",
}

_MAILBOXES: Final[dict[str, tuple[_MailboxGroup, ...]]] = {
    WORKSPACES[0]: (
        _MailboxGroup("northwind-mail", 64),
        _MailboxGroup("hello-northwind", 48),
        _MailboxGroup(
            "northwind-hello", 2, {"daily_limit": 25, "sent_today": 31}
        ),  # the limit was lowered from 40 after they had sent
        _MailboxGroup("northwind-team", 4, {"dkim": False}),
        _MailboxGroup("try-northwind", 40),
        _MailboxGroup("northwind-try", 3, {"blacklists": 1}),
        _MailboxGroup("get-northwind", 31),
        _MailboxGroup("northwind-get", 4, {"sent_30days": 810, "bounced_30days": 58}),
        _MailboxGroup("northwind-go", 2, {"sent_30days": 118, "bounced_30days": 3}),  # too few e-mails for a verdict
        _MailboxGroup("northwind-news", 11, {"domain_ip": None}, per_domain=11),
        _MailboxGroup("northwind-offers", 5, _BLACKLISTED, per_domain=5),
    ),
    WORKSPACES[1]: (
        _MailboxGroup("northwind-post", 48),
        _MailboxGroup("northwind-versand", 3, {"status": "disconnected", "sent_today": 0}),
        _MailboxGroup("northwind-kontakt", 23, {"domain_ip": None}),
        _MailboxGroup("moin-northwind", 44),
        _MailboxGroup("northwind-brief", 4, {"dmarc": False}),
        _MailboxGroup(
            "northwind-neu", 4, {"spf": False, "dkim": False, "dmarc": False, "created_at": _days_ago(8), "daily_limit": 30}
        ),
    ),
}

_CAMPAIGNS: Final[dict[str, tuple[dict[str, Any], ...]]] = {
    WORKSPACES[0]: (
        {
            "id": CAMPAIGN,
            "name": "Spring launch",
            "status": "live",
            "created": _days_ago(49),
            "contacts": 9_400,
            "steps": [{"templates": "A|B|PER", "sent": 6_100}, {"templates": "A|B", "sent": 3_900}, {"sent": 1_450}],
        },
        {
            "id": "camp_renewals",
            "name": "Renewals, first quarter",
            "status": "live",
            "created": _days_ago(30),
            "contacts": 1_200,
            "steps": [{"templates": "A|B", "sent": 800}, {"sent": 310}],
        },
        {
            "id": "camp_winback",
            "name": "Win back 2025",
            "status": "live",
            "created": _days_ago(118),
            "contacts": 640,
            "steps": [{"templates": "A|B", "sent": 640}],
        },
        {
            "id": "camp_webinar",
            "name": "Webinar invitation",
            "status": "paused",
            "created": _days_ago(20),
            "contacts": 2_300,
            "steps": [{"sent": 410}, "A"],
        },
        {"id": "camp_partners", "name": "Partner outreach", "status": "draft", "created": _days_ago(3), "steps": ["A|B", "A"]},
    ),
    WORKSPACES[1]: (
        {
            "id": "camp_dach",
            "name": "Österreich und Süddeutschland",
            "status": "live",
            "created": _days_ago(61),
            "contacts": 3_100,
            "steps": [{"templates": "A|PER", "sent": 1_900}, {"sent": 720}],
        },
        {
            "id": "camp_fair",
            "name": "Trade fair follow-up",
            "status": "paused",
            "created": _days_ago(12),
            "contacts": 540,
            "steps": [{"sent": 120}, "A"],
        },
    ),
}


def create_demo_world(seed: int = SEED, behaviour: Behaviour | None = None) -> FakeService:
    """Return the embedded service with its initial data."""
    service = FakeService(seed, behaviour, _NOW)
    for workspace in WORKSPACES:
        service.add_workspace(workspace, custom_fields=["Plan", "Account manager"])
        boxes = [
            id_
            for group in _MAILBOXES[workspace]
            for count, fields in group.domains()
            for id_ in service.add_mailboxes(workspace, count, **fields)
        ]
        for campaign in _CAMPAIGNS[workspace]:
            service.add_campaign(workspace, mailboxes=boxes, **campaign)
    service.add_owner_key(*WORKSPACES, key=OWNER_KEY)
    service.add_contacts(WORKSPACES[0], 120, campaign="camp_renewals")
    return service


def load_world(path: Path, seed: int = SEED, behaviour: Behaviour | None = None) -> FakeService:
    """Return a service with the data of a world file.

    Raises:
        click.ClickException: The file cannot be read, or is not a valid world.
    """
    service = FakeService(seed, behaviour, _NOW)
    try:
        with explain_read_errors("--world", path):
            service.load(path)
    except (WorldError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--world {path}: {error}") from error
    return service


def find_entry_ids(service: FakeService) -> dict[str, str | None]:
    """Return the first workspace with one of its owner keys and campaigns; `None` for what does not exist."""
    document = json.loads(service.dump())
    space: dict[str, Any] = next(iter(document["workspaces"]), {"id": None, "campaigns": []})
    keys = (key for key, spaces in document["owner_keys"].items() if space["id"] in spaces)
    campaigns = (campaign["id"] for campaign in space["campaigns"])
    return {"workspace": space["id"], "owner_key": next(keys, None), "campaign": next(campaigns, None)}


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
    shell_complete=create_completer(lambda: PRESETS, or_file=True),
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
    from outreach_async.fake.control import ControlPlane, is_loopback  # slow to import, and no other command needs it

    read = _load_behaviour(behaviour)
    service = create_demo_world(seed, read) if world is None else load_world(world, seed, read)
    controlled = ControlPlane(service, control_hosts) if control_hosts or is_loopback(host) else service
    return run_async(partial(_run_server, controlled, host, port, partial(_print_address, service)), terminated=OK)


async def _run_server(service: Service, host: str, port: int, started: Callable[[str], None]) -> None:
    with explain_os_errors(
        "--host", f"{host} --port {port}", "pass an address of this machine and a free port, such as --port 0"
    ):
        await serve_forever(service, host, port, started)


def _load_behaviour(said: str) -> Behaviour:
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
        with explain_read_errors("--behaviour", Path(said)):
            return load_behaviour(said)
    except BehaviourFileError as error:
        raise click.UsageError(f"--behaviour {error}") from error


def _print_address(service: FakeService, base_url: str) -> None:
    sys.stdout.write(f"{base_url}\n{json.dumps(find_entry_ids(service))}\n")
    sys.stdout.flush()
