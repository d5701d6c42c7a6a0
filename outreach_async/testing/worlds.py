"""What a test needs of a fake's world before it can ask anything: a workspace, a key, credentials."""

from __future__ import annotations

import json
from typing import Any

from outreach_async.fake.service import FakeService


def first_workspace(fake: FakeService) -> str:
    """Get the id of a fake's first workspace; one is added to a fake that has none."""
    workspaces = _world(fake)["workspaces"]
    return str(workspaces[0]["id"]) if workspaces else fake.add_workspace()


def first_key(fake: FakeService, workspace: str) -> str:
    """Get the first key that opens a workspace; one is added if there is none."""
    keys: dict[str, list[str]] = _world(fake)["owner_keys"]
    return next((key for key, opened in keys.items() if workspace in opened), None) or fake.add_owner_key(workspace)


def credentials(fake: FakeService, key: str) -> dict[str, str]:
    """Make the header that a fake's behaviour asks for; none if it asks for none."""
    auth = fake.behaviour.auth
    if auth is None:
        return {}
    token = min(auth.tokens, default=key)
    return {auth.header: f"{auth.scheme} {token}".strip()}


def _world(fake: FakeService) -> Any:
    # Through the world file: what is stored has no other public door.
    return json.loads(fake.dump())
