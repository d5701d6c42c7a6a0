"""Add workspaces, owner keys, mailboxes, campaigns and contacts to a fake, and change them later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

from outreach_async.fake.campaign_seeds import CampaignSeed, StepSeed
from outreach_async.fake.seeding import Seeder


class Fillable(ABC):
    """The methods that fill a fake."""

    @abstractmethod
    def _seeding(self) -> AbstractContextManager[Seeder]:
        """Lock the world and yield its seeder; a block that fails leaves the world unchanged."""
        ...

    def add_workspace(
        self,
        id: str | None = None,  # noqa: A002 - named as on the wire
        *,
        custom_fields: Iterable[str] | Mapping[str, str] = (),
        extra_fields: Mapping[str, str] | None = None,
        campaign_headers: Iterable[str] | None = None,
        mailbox_headers: Iterable[str] | None = None,
    ) -> str:
        """Add an empty workspace.

        Args:
            id: The workspace's id; generated if not given.
            custom_fields: Labels of custom fields, which get the codes `custom_1`, `custom_2`, ...; or labels by code.
            extra_fields: Labels by code of additional standard fields that all-fields lists.
            campaign_headers: Columns of the campaign list, as saved in the user's settings.
            mailbox_headers: Columns of the mailbox list.

        Returns:
            The workspace's id.

        Raises:
            ValueError: The id is malformed or already in use, or a code is malformed.

        Example:
            ```python
            print(fake.add_workspace("space_2", custom_fields=["Plan", "Size"]))  # -> space_2
            ```
        """
        with self._seeding() as seeder:
            return seeder.workspace(id, custom_fields, extra_fields or {}, campaign_headers, mailbox_headers)

    def add_owner_key(self, *workspaces: str, key: str | None = None) -> str:
        """Add a user's API key, or give the user of an existing key access to more workspaces.

        Args:
            workspaces: Ids of the workspaces that the user has access to.
            key: The key; generated if not given.

        Returns:
            The key.

        Raises:
            ValueError: A workspace does not exist, or the key is malformed.

        Example:
            ```python
            fake.add_workspace("space_2")
            print(fake.add_owner_key("space_1", "space_2", key="key_2"))  # -> key_2
            ```
        """
        with self._seeding() as seeder:
            return seeder.owner_key(workspaces, key)

    def add_mailbox(self, workspace: str, *, trouble: float = 0.0, **fields: Any) -> str:
        """Add a mailbox; see `add_mailboxes` for the fields.

        Returns:
            The mailbox's id.

        Raises:
            TypeError: A mailbox has no such field, or a value cannot be written as JSON.
            ValueError: The workspace does not exist.

        Example:
            ```python
            fake.add_mailbox("space_1", email="cy@north.example", dkim=False, bounced_30days=40)
            print([mailbox.email async for mailbox in client.mailboxes.list() if not mailbox.dkim])  # -> ['cy@north.example']
            ```
        """
        with self._seeding() as seeder:
            return seeder.mailboxes(workspace, [fields], trouble)[0]

    def add_mailboxes(self, workspace: str, count: int, *, trouble: float = 0.0, **fields: Any) -> list[str]:
        """Add healthy mailboxes with generated statistics that are consistent with each other.

        Args:
            workspace: Id of the workspace.
            count: Number of mailboxes.
            trouble: Probability that a mailbox has a problem, from 0 to 1.
            fields: Values for any field of a mailbox, used as they are, even if invalid. `domain` sets the domain of the e-mail
                addresses; a rate can be a pair of the part and the whole; `last_activity` can be Unix seconds. `as_of` (Unix
                seconds; now if not given) is the time of the counts: from then on, they leave the windows of 30 and 90 days. An
                impossible count or percentage, such as -5, is never changed.

        Returns:
            The mailboxes' ids.

        Raises:
            TypeError: A mailbox has no such field, or a value cannot be written as JSON.
            ValueError: The workspace does not exist.

        Example:
            ```python
            ids = fake.add_mailboxes("space_1", 50, trouble=0.2, domain="south.example")
            print(len(ids))  # -> 50
            ```
        """
        with self._seeding() as seeder:
            return seeder.mailboxes(workspace, [fields] * count, trouble)

    def add_campaign(
        self,
        workspace: str,
        *,
        id: str | None = None,  # noqa: A002 - named as on the wire
        name: str = "Campaign",
        status: str = "draft",
        mailboxes: Iterable[str] = (),
        steps: Iterable[StepSeed] = (),
        contacts: int | None = None,
        bounces_num: int | None = None,
        interested_num: int | None = None,
        created: int | None = None,
        last_activity: float | Literal["auto"] | None = "auto",
        rates: Mapping[str, float] | None = None,
    ) -> str:
        """Add a campaign. Every count and percentage in its responses follows from its templates.

        Args:
            workspace: Id of the workspace.
            id: The campaign's id; generated if not given.
            name: The campaign's name.
            status: `draft`, `live`, `paused`, or any other status to confront a client with.
            mailboxes: Ids of the mailboxes that it sends through.
            steps: The steps in order. A step is a string of template letters, such as `A|B|PER`, or a mapping with any of `id`,
                `status`, `wait_time` (milliseconds), `left_to_send`, `templates` (letters, or a list of letters and mappings with
                the fields of a template and its own `rates`; at least one template, `A` by default) and `sent`: the number of
                e-mails to distribute over the templates, with generated opens and replies.
            contacts: Number of contacts in the campaign that are not stored individually; by default those of step 1.
            bounces_num: Number of bounced e-mails; by default generated for steps with `sent`, and 0 otherwise.
            interested_num: Number of interested replies; the same default.
            created: Creation time in Unix seconds; now if not given.
            last_activity: Unix seconds, `None` for never, or `auto` for a recent time if anything was sent.
            rates: How recipients react, as shares by name. The defaults are `open` 0.4, `click` 0.05, `reply` 0.06 and
                `unsubscribe` 0.01 of the delivered e-mails, `bounce` 0.02 of the sent ones, and `interested` 0.3 of the replies.

        Returns:
            The campaign's id.

        Raises:
            TypeError: A step or template has no such field, or a value has the wrong type.
            ValueError: The workspace or a mailbox does not exist, the id is malformed or already in use, a step has no template,
                or the counts are inconsistent.

        Example:
            ```python
            camp = fake.add_campaign("space_1", name="Autumn", status="live", mailboxes=["mailbox_1"], steps=["A|B", "A"])
            print(len((await client.campaigns.steps(camp)).data))  # -> 2
            ```
        """
        seed = CampaignSeed(
            workspace=workspace,
            id=id,
            name=name,
            status=status,
            mailboxes=mailboxes,
            steps=steps,
            contacts=contacts,
            bounces_num=bounces_num,
            interested_num=interested_num,
            created=created,
            last_activity=last_activity,
            rates=rates or {},
        )
        with self._seeding() as seeder:
            return seeder.campaign(seed)

    def add_contacts(
        self,
        workspace: str,
        rows: int | Iterable[Mapping[str, str | None]],
        *,
        campaign: str | None = None,
        owner_key: str | None = None,
    ) -> list[str]:
        """Store contacts directly, without a request.

        Args:
            workspace: Id of the workspace.
            rows: Number of contacts to generate; or mappings with `email`, optionally `id`, and fields by code.
            campaign: Id of a campaign that they join.
            owner_key: The owner key of the contacts; by default the first key with access to the workspace.

        Returns:
            The contacts' ids.

        Raises:
            TypeError: A contact has no such field, or a value is not a string.
            ValueError: The workspace or campaign does not exist, or an e-mail is blank or already exists.

        Example:
            ```python
            fake.add_contacts("space_1", [{"email": "ann@company.example", "city": "Lyon"}], campaign="camp_1")
            print(len(fake.add_contacts("space_1", 100)))  # -> 100
            ```
        """
        with self._seeding() as seeder:
            return seeder.contacts(workspace, rows, campaign, owner_key)

    # Changing.

    def set_campaign(
        self,
        campaign: str,
        *,
        status: str | None = None,
        mailboxes: Iterable[str] | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Change a campaign, as its user would in the service. Omitted values stay; sending adapts with the next `advance`.

        Args:
            campaign: The campaign's id.
            status: `live` resumes sending; any other status holds back e-mails that are due. Recipients react to e-mails already
                sent in any status.
            mailboxes: Ids of the mailboxes that it sends through from now on.
            rates: How recipients react to e-mails sent from now on, as shares by name; rates of templates stay.

        Raises:
            TypeError: There is no such rate, or a value has the wrong type.
            ValueError: The campaign or a mailbox does not exist, or a rate is not from 0 to 1.

        Example:
            ```python
            fake.set_campaign("camp_1", status="paused", rates={"bounce": 0})
            print((await client.campaigns.list()).data[0].status)  # -> paused
            ```
        """
        with self._seeding() as seeder:
            seeder.set_campaign(campaign, status, mailboxes, rates or {})

    def set_mailbox(self, mailbox: str, **fields: Any) -> None:
        """Change a mailbox: any field except its id, its creation time, its last activity and its counts.

        Args:
            mailbox: The mailbox's id.
            fields: New values by name. Only an `active` mailbox sends, up to `daily_limit` e-mails per UTC day.

        Raises:
            TypeError: A mailbox has no such field, the field cannot be changed, or the value cannot be written as JSON.
            ValueError: The mailbox does not exist.

        Example:
            ```python
            fake.set_mailbox("mailbox_1", daily_limit=20, blacklists=2)
            print((await client.mailboxes.list()).data[0].blacklists)  # -> 2
            ```
        """
        with self._seeding() as seeder:
            seeder.set_mailbox(mailbox, fields)
