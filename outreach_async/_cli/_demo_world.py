"""The embedded service of the demo and of `--base-url fake:`, with the same sample data each time."""

from __future__ import annotations

import tomllib
from datetime import datetime
from importlib.resources import files
from typing import Any, Final

from outreach_async.fake import Behaviour, FakeService

WORKSPACES: Final = ("space_demo", "space_demo_eu")
OWNER_KEY: Final = "key_demo"
CAMPAIGN: Final = "camp_spring"

SEED: Final = 7
NOW: Final = "2026-03-02T09:00:00Z"
_WEBSITE_IP: Final = "198.51.100.20"


def create_demo_world(seed: int = SEED, behaviour: Behaviour | None = None) -> FakeService:
    service = FakeService(seed, behaviour, NOW)
    world = tomllib.loads((files("outreach_async._cli") / "data" / "world.toml").read_text(encoding="utf-8"))
    for workspace in world["workspaces"]:
        service.add_workspace(workspace["id"], custom_fields=["Plan", "Account manager"])
        boxes: list[str] = []
        for group in workspace["mailboxes"]:
            domain, count, size = group.pop("domain"), group.pop("count"), group.pop("per_domain", 4)
            fields = {"domain_ip": _WEBSITE_IP, **{name: _to_json(value) for name, value in group.items()}}
            for number, first in enumerate(range(0, count, size), 1):
                fields["domain"] = f"{domain}{number if number > 1 else ''}.example"
                boxes += service.add_mailboxes(workspace["id"], min(size, count - first), **fields)
        for campaign in workspace["campaigns"]:
            service.add_campaign(workspace["id"], mailboxes=boxes, **{name: _to_json(value) for name, value in campaign.items()})
    service.add_owner_key(*WORKSPACES, key=OWNER_KEY)
    service.add_contacts(WORKSPACES[0], 120, campaign="camp_renewals")
    return service


def _to_json(value: Any) -> Any:
    """Convert a TOML value to JSON: a time becomes Unix seconds, and an empty string becomes `None`, because TOML has no null."""
    if isinstance(value, datetime):
        return int(value.timestamp())
    return None if value == "" else value
