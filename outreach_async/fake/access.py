"""Who may ask (rules A2 and A3). No message, hint or header here says anything of the credential that was sent."""

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
    """Check an owner key, the workspace, and that the key's user belongs there; in this order (rule A4).

    Returns:
        The workspace.

    Raises:
        Refused: 401 for an unknown key, 404 for an unknown workspace, 403 for somebody else's.
    """
    spaces = world.keys.get(owner_key)
    if spaces is None:
        raise refused(401, "unknown_owner_key", "the owner_key is not known", "owner_key")
    found = find_workspace(workspace, world)
    if workspace not in spaces:
        raise refused(403, "workspace_denied", "the owner_key's user is not in this workspace", "workspace")
    return found


def authorized_workspace(owner_key: str, workspace: str, world: World, behaviour: Behaviour) -> Workspace:
    """Find the workspace of a creation, after checking the key as far as keys are checked.

    Raises:
        Refused: 401, 403 or 404.
    """
    if behaviour.owner_key == "check":
        return check_owner_key(owner_key, workspace, world)
    return find_workspace(workspace, world)


def find_workspace(workspace: str, world: World) -> Workspace:
    """Find a workspace.

    Raises:
        Refused: 404 if there is none with this id.
    """
    found = world.workspaces.get(workspace)
    if found is None:
        raise refused(404, "workspace_not_found", "there is no such workspace", "workspace")
    return found


def find_campaign(campaign: str, world: World, field: str, workspace: str | None = None) -> Campaign:
    """Find a campaign.

    Args:
        campaign: Its id.
        world: Where to look.
        field: What the id is called where it stands.
        workspace: The workspace it must be in; any if not given.

    Raises:
        Refused: 404, the same for an unknown one and another workspace's: the difference would tell what exists (rule C17).
    """
    found = world.campaigns.get(campaign)
    if found is None or workspace not in {None, found.workspace}:
        raise refused(404, "campaign_not_found", "there is no such campaign", field)
    return found
