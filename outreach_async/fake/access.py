"""Authentication and look-ups (rules A2 and A3). Messages, hints and headers never reveal the credential that was sent."""

from __future__ import annotations

from collections.abc import Mapping

from outreach_async.fake.behaviour import Behaviour, HeaderAuth
from outreach_async.fake.records import Campaign, Workspace
from outreach_async.fake.refusals import refused
from outreach_async.fake.world import World


def check_header(headers: Mapping[str, str], auth: HeaderAuth, world: World) -> None:
    """Check the credential in a header.

    Raises:
        Refused: 401 if it is missing or unknown.
    """
    scheme, _, token = headers.get(auth.header, "").rpartition(" ")
    known = token in auth.tokens if auth.tokens else token in world.keys
    if not known or scheme.lower() != auth.scheme.lower():
        challenge = {"www-authenticate": auth.scheme} if auth.scheme else {}
        raise refused(401, "unauthorized", f"the header {auth.header} must carry a known credential", headers=challenge)


def check_owner_key(owner_key: str, workspace: str, world: World) -> Workspace:
    """Check the owner key, then the workspace, then the access of the key's user, in this order (rule A4).

    Returns:
        The workspace.

    Raises:
        Refused: 401 for an unknown key, 404 for an unknown workspace, 403 for a workspace the user has no access to.
    """
    spaces = world.keys.get(owner_key)
    if spaces is None:
        raise refused(401, "unknown_owner_key", "the owner_key is not known", "owner_key")
    found = find_workspace(workspace, world)
    if workspace not in spaces:
        raise refused(403, "workspace_denied", "the owner_key's user is not in this workspace", "workspace")
    return found


def authorized_workspace(owner_key: str, workspace: str, world: World, behaviour: Behaviour) -> Workspace:
    """Return the workspace of a creation. The key is checked only if `behaviour.owner_key` is `check`.

    Raises:
        Refused: 401 for an unknown key, 403 for a workspace the user has no access to, 404 for an unknown workspace.
    """
    if behaviour.owner_key == "check":
        return check_owner_key(owner_key, workspace, world)
    return find_workspace(workspace, world)


def find_workspace(workspace: str, world: World) -> Workspace:
    """Return a workspace by id.

    Raises:
        Refused: 404 for an unknown id.
    """
    found = world.workspaces.get(workspace)
    if found is None:
        raise refused(404, "workspace_not_found", "there is no such workspace", "workspace")
    return found


def find_campaign(campaign: str, world: World, field: str, workspace: str | None = None) -> Campaign:
    """Return a campaign by id.

    Args:
        campaign: The campaign's id.
        world: The stored data.
        field: Name of the body field or path parameter that holds the id, for the error.
        workspace: Id of the workspace it must belong to; any workspace if not given.

    Raises:
        Refused: 404. An unknown campaign and one of another workspace get the same error: a difference would reveal which ids
            exist (rule C17).
    """
    found = world.campaigns.get(campaign)
    if found is None or workspace not in {None, found.workspace}:
        raise refused(404, "campaign_not_found", "there is no such campaign", field)
    return found
