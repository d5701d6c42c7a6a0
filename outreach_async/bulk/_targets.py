"""Find the workspace and the campaign that a row names, by id or name. The campaigns of a workspace are listed at most once."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar, cast

from outreach_async._core.arguments import (
    is_missing,
    require_encodable,
    require_id,
    show_name,
    similar_names,
    trim,
    type_name,
)
from outreach_async._wire_words import ID_PREFIXES
from outreach_async.bulk._outcomes import stopped_by
from outreach_async.errors import BulkError, InvalidRequest, OutreachError, StatusError
from outreach_async.models import RUN_TARGET, Campaign, Target

T = TypeVar("T")

ListCampaigns: TypeAlias = Callable[[str], AsyncIterable[Campaign]]  # lists the campaigns of a workspace

_WORKSPACE_PREFIX: Final = ID_PREFIXES["workspace"]
_CAMPAIGN_PREFIX: Final = ID_PREFIXES["campaign"]
_MAX_SUGGESTIONS: Final = 100  # maximum number of unknown names for which similar names are searched, which is slow
_MAX_REMEMBERED: Final = 10_000
_MAX_IDS: Final = 5
_UNKNOWN_STATUSES: Final = (403, 404)  # of a workspace or a campaign that does not exist, or that is not the caller's


class ListingNeeded(Exception):
    """A row names a campaign of a workspace whose campaigns have not been listed."""

    def __init__(self, workspace: str) -> None:
        self.workspace = workspace


class Targets:
    """The targets of a run: its own, and those that its rows name."""

    def __init__(
        self,
        default: Target = RUN_TARGET,
        list_campaigns: ListCampaigns | None = None,
        workspaces: Mapping[str, str] = MappingProxyType({}),
        refused: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.default = default
        self._list_campaigns = list_campaigns
        self._workspaces = workspaces  # ids by name
        self._refused = refused  # for ids of workspaces that the run cannot send to, the reason and a remedy
        self._campaigns: dict[str, dict[str, list[str]]] = {}  # for each workspace, the ids by name
        # The ids of the campaigns that rows have named, by workspace and name. A resumed run starts with those of its journal, so
        # that a campaign may get another name meanwhile.
        self.names: dict[tuple[str, str], str] = {}
        self._unknown_workspaces: dict[str, str] = {}  # the service's answer, by id
        self._found: dict[Target, Target | str] = {}
        self._suggested = 0

    def find(self, named: Target) -> Target:
        """Return the target that a row names, as ids. Raise `ListingNeeded` if the campaigns must be listed first."""
        if named is RUN_TARGET:
            return self.default
        try:
            found = self._found[named]
        except Exception:  # noqa: BLE001 - it is new, or a value is not a string: its hash and comparison may raise anything
            found = self._remember(named)
        if type(found) is str:
            raise InvalidRequest(found)
        return cast("Target", found)

    def _remember(self, named: Target) -> Target | str:
        try:
            found: Target | str = self._resolve(named)
        except InvalidRequest as error:
            found = str(error)
        if len(self._found) == _MAX_REMEMBERED:
            self._found.clear()
        if all(value is None or type(value) is str for value in named):
            self._found[named] = found
        return found

    def refuses(self, named: Target) -> bool:
        """Return whether a row names a known workspace to which the run cannot send."""
        try:
            return self._find_workspace(_to_text("workspace", named.workspace)) in self._refused
        except InvalidRequest:
            return False

    def _resolve(self, named: Target) -> Target:
        workspace = self._find_workspace(_to_text("workspace", named.workspace))
        if (reason := self._refused.get(workspace)) is not None:
            raise InvalidRequest(f"workspace: {reason}")
        name = _to_text("campaign", named.campaign)
        if not name and workspace != self.default.workspace and self.default.campaign is not None:
            raise InvalidRequest(
                f"campaign: expected a campaign of {workspace}, got none, and the run's campaign belongs to"
                f" {self.default.workspace}; name a campaign in the row"
            )
        campaign = name or self.default.campaign
        if name and not name.startswith(_CAMPAIGN_PREFIX):
            campaign = self._find_campaign(workspace, name)
        elif name:
            campaign = require_id("campaign", name, "campaign", "correct the id, or use the exact name of a campaign")
        # The run's own target stays one object, so that it can be compared by identity.
        found = Target(workspace or None, campaign)
        return self.default if found == self.default else found

    def _find_workspace(self, name: str) -> str:
        if not name:
            return self.default.workspace or ""
        if name.startswith(_WORKSPACE_PREFIX) and name != _WORKSPACE_PREFIX:
            return require_id("workspace", name, "workspace", "correct the id")
        if (known := self._workspaces.get(name)) is not None:
            return require_id("workspace", known, "workspace", "correct the id of this name")
        near = f"did you mean {self._suggest(name, self._workspaces)}?" if self._workspaces else "use its id"
        raise InvalidRequest(f"workspace: expected an id ({_WORKSPACE_PREFIX}...), got {show_name(name)}; {near}")

    def _find_campaign(self, workspace: str, name: str) -> str:
        if (answer := self._unknown_workspaces.get(workspace)) is not None:
            raise InvalidRequest(f"workspace: expected a known workspace, got {show_name(workspace)}: {answer}; correct the id")
        if (known := self.names.get((workspace, name))) is not None:
            return known
        if workspace not in self._campaigns:
            if self._list_campaigns is None:
                raise InvalidRequest(f"campaign: the names of campaigns are unknown here, got {show_name(name)}; use an id")
            raise ListingNeeded(workspace)
        names = self._campaigns[workspace]
        ids = names.get(name, [])
        if len(ids) == 1:
            self.names[workspace, name] = ids[0]
            return ids[0]
        if ids:
            several = f"{len(ids)} with this name ({', '.join(ids[:_MAX_IDS])}{', ...' if len(ids) > _MAX_IDS else ''})"
            raise InvalidRequest(
                f"campaign: expected one campaign named {show_name(name)} in {workspace}, got {several}; use an id"
            )
        near = self._suggest(name, names)
        remedy = f"did you mean {near}?" if near else f"use an id ({_CAMPAIGN_PREFIX}...), or the exact name"
        raise InvalidRequest(f"campaign: expected the name of a campaign in {workspace}, got {show_name(name)}; {remedy}")

    def _suggest(self, name: str, known: Iterable[str]) -> str:
        self._suggested += 1
        if self._suggested > _MAX_SUGGESTIONS:
            return ""
        return similar_names(name, known, 0.5)

    def add_campaigns(self, workspace: str, campaigns: Iterable[Campaign]) -> None:
        names = self._campaigns.setdefault(workspace, {})
        for campaign in campaigns:
            ids = names.setdefault(trim(campaign.name) or "", [])
            if campaign.id not in ids:  # a campaign can occur on two pages, if others are created meanwhile
                ids.append(campaign.id)

    async def list_campaigns(self, workspace: str) -> None:
        """List the campaigns of a workspace, so that `find` knows their names."""
        if workspace in self._campaigns or workspace in self._unknown_workspaces:
            return  # another task has listed them meanwhile
        list_campaigns = cast("ListCampaigns", self._list_campaigns)
        try:
            campaigns = [campaign async for campaign in list_campaigns(workspace)]
        except BulkError:
            raise
        except OutreachError as error:
            if workspace == self.default.workspace or not fails_only_its_rows(error):
                raise stopped_by(error, f"the campaigns of {workspace} cannot be listed") from error
            self._unknown_workspaces[workspace] = str(error)
        else:
            self.add_campaigns(workspace, campaigns)

    def find_listed(self, named: Target) -> Target | None:
        """Return what `find` returns; `None` if the campaigns must be listed first."""
        with suppress(ListingNeeded):
            return self.find(named)
        return None

    async def apply(self, call: Callable[..., T], *arguments: Any) -> T:
        """Return the result of a call that finds targets. List campaigns, and call again, if this is necessary."""
        while True:
            try:
                return call(*arguments)
            except ListingNeeded as needed:
                await self.list_campaigns(needed.workspace)


def fails_only_its_rows(error: OutreachError) -> bool:
    """Return whether an error refuses the target of a request, and so says nothing about rows with other targets."""
    return isinstance(error, StatusError) and error.status_code in _UNKNOWN_STATUSES


def _to_text(field: str, value: object) -> str:
    if value is None or is_missing(value):
        return ""
    if not isinstance(value, str):
        raise InvalidRequest(f"{field}: expected an id or a name, got {type_name(value)}; pass a string")
    value = str.__str__(value)  # of a subclass, a plain string
    require_encodable(field, value)
    return trim(value) or ""
