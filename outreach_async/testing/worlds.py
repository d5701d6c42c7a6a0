"""Provide a workspace, an owner key and credentials of a fake to tests."""

from __future__ import annotations

import json
from typing import Any

from outreach_async.fake.service import FakeService


def first_workspace(fake: FakeService) -> str:
    """Return the id of the fake's first workspace. Add one if there is none."""
    workspaces = _world(fake)["workspaces"]
    return str(workspaces[0]["id"]) if workspaces else fake.add_workspace()


def first_key(fake: FakeService, workspace: str) -> str:
    """Return the first owner key of a workspace. Add one if there is none."""
    keys: dict[str, list[str]] = _world(fake)["owner_keys"]
    return next((key for key, opened in keys.items() if workspace in opened), None) or fake.add_owner_key(workspace)


def credentials(fake: FakeService, key: str) -> dict[str, str]:
    """Return the header that the fake's `auth` knob requires; empty if it requires none."""
    auth = fake.behaviour.auth
    if auth is None:
        return {}
    token = min(auth.tokens, default=key)
    return {auth.header: f"{auth.scheme} {token}".strip()}


def _world(fake: FakeService) -> Any:
    # The world file is the only public access to what is stored.
    return json.loads(fake.dump())
