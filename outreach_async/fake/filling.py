"""Filling a fake: workspaces, keys, mailboxes, campaigns and contacts as a test wants them, and changing them later."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Literal

from outreach_async.fake.campaign_seeds import CampaignSeed, StepSeed
from outreach_async.fake.seeding import Seeder


class Fillable(ABC):
    """What can be filled."""

    @abstractmethod
    def _seeding(self) -> AbstractContextManager[Seeder]:
        """Fill the world, with nobody else at it; what fails leaves no trace."""
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
            id: Its id; made up if not given.
            custom_fields: Labels of custom fields, which become `custom_1`, `custom_2`, ...; or labels by code.
            extra_fields: Labels by code of further standard fields, as all-fields may reveal them.
            campaign_headers: Columns of the campaign list, as the user's settings hold them.
            mailbox_headers: Columns of the mailbox list.

        Returns:
            Its id.

        Raises:
            ValueError: The id is taken or malformed, or a code is malformed.

        Example:
            ```python
            print(fake.add_workspace("space_2", custom_fields=["Plan", "Size"]))  # -> space_2
            ```
        """
        with self._seeding() as seeder:
            return seeder.workspace(id, custom_fields, extra_fields or {}, campaign_headers, mailbox_headers)

    def add_owner_key(self, *workspaces: str, key: str | None = None) -> str:
        """Add the API key of a user, or give the user of a known key access to more workspaces.

        Args:
            workspaces: Ids of the user's workspaces.
            key: The key; made up if not given.

        Returns:
            The key.

        Raises:
            ValueError: There is no such workspace, or the key is malformed.

        Example:
            ```python
            fake.add_workspace("space_2")
            print(fake.add_owner_key("space_1", "space_2", key="key_2"))  # -> key_2
            ```
        """
        with self._seeding() as seeder:
            return seeder.owner_key(workspaces, key)

    def add_mailbox(self, workspace: str, *, trouble: float = 0.0, **fields: Any) -> str:
        """Add a mailbox; see `add_mailboxes`.

        Returns:
            Its id.

        Raises:
            TypeError: A mailbox has no such field, or a value is not for JSON.
            ValueError: There is no such workspace.

        Example:
            ```python
            fake.add_mailbox("space_1", email="cy@north.example", dkim=False, bounced_30days=40)
            print([mailbox.email async for mailbox in client.mailboxes.list() if not mailbox.dkim])  # -> ['cy@north.example']
            ```
        """
        with self._seeding() as seeder:
            return seeder.mailboxes(workspace, [fields], trouble)[0]

    def add_mailboxes(self, workspace: str, count: int, *, trouble: float = 0.0, **fields: Any) -> list[str]:
        """Add mailboxes with made-up figures that agree with each other; all of them healthy.

        Args:
            workspace: Id of their workspace.
            count: How many.
            trouble: How probable it is that something is wrong with one, from 0 to 1.
            fields: Values for any field of a mailbox, taken as they are, damaged or not. `domain` gives their e-mails' domain;
                a rate may be a pair, the part and the whole; `last_activity` may be Unix seconds. `as_of` (Unix seconds, now if
                not given) is the time that the counts are of: from there they leave the windows of 30 and 90 days. A count or a
                percentage that no service can have counted, such as -5, stays as it is.

        Returns:
            Their ids.

        Raises:
            TypeError: A mailbox has no such field, or a value is not for JSON.
            ValueError: There is no such workspace.

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
        """Add a campaign. Every count and percentage of its answers follows from its templates.

        Args:
            workspace: Id of its workspace.
            id: Its id; made up if not given.
            name: Its name.
            status: `draft`, `live`, `paused`, or another that a client is to meet.
            mailboxes: Ids of the mailboxes that it sends through.
            steps: Its steps in order. A step is a text of template letters, such as `A|B|PER`, or a mapping with any of `id`,
                `status`, `wait_time` (milliseconds), `left_to_send`, `templates` (letters, or a list of letters and mappings with
                the fields of a template, and `rates` of its own; at least one, and `A` if it is left out) and `sent`: e-mails to
                share out over its templates, with made-up opens and replies.
            contacts: Contacts that are in it but not stored one by one; those of step 1 if not given.
            bounces_num: E-mails bounced; made up for steps with `sent`, else 0.
            interested_num: Replies that show interest; likewise.
            created: Unix seconds; now if not given.
            last_activity: Unix seconds, `None` for never, or `auto`: lately if anything was sent.
            rates: How people answer, shares by name: `open` 0.4, `click` 0.05, `reply` 0.06 and `unsubscribe` 0.01 of the e-mails
                that arrive, `bounce` 0.02 of those that are sent, `interested` 0.3 of the replies, unless said otherwise.

        Returns:
            Its id.

        Raises:
            TypeError: A step or template has no such field, or a value is of the wrong kind.
            ValueError: There is no such workspace or mailbox, the id is taken or malformed, a step has no template, or the
                counts do not agree.

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
        """Store contacts, as if they had always been there: no request is made of it.

        Args:
            workspace: Id of their workspace.
            rows: How many to make up; or mappings with `email`, perhaps `id`, and fields by code.
            campaign: Id of a campaign that they join.
            owner_key: The key they were created with; if not given, the first of the workspace.

        Returns:
            Their ids.

        Raises:
            TypeError: A contact has no such field, or a value is no text.
            ValueError: There is no such workspace or campaign, or an e-mail is blank or exists.

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
        """Change a campaign, as its user would in the service. What is not given stays; what follows, follows with `advance`.

        Args:
            campaign: Its id.
            status: `live` sends, from where it was; any other holds back what is due. Answers to what was sent come all the same.
            mailboxes: Ids of the mailboxes that it sends through from now on.
            rates: How people answer e-mails sent from now on; those of templates stay.

        Raises:
            TypeError: There is no such rate, or a value is of the wrong kind.
            ValueError: There is no such campaign or mailbox, or a rate is not from 0 to 1.

        Example:
            ```python
            fake.set_campaign("camp_1", status="paused", rates={"bounce": 0})
            print((await client.campaigns.list()).data[0].status)  # -> paused
            ```
        """
        with self._seeding() as seeder:
            seeder.set_campaign(campaign, status, mailboxes, rates or {})

    def set_mailbox(self, mailbox: str, **fields: Any) -> None:
        """Change a mailbox: any field but its id, when it was created, and what is counted.

        Args:
            mailbox: Its id.
            fields: New values by name. Only an `active` mailbox sends, as many e-mails a UTC day as `daily_limit` says.

        Raises:
            TypeError: A mailbox has no such field, it cannot be changed, or the value is not for JSON.
            ValueError: There is no such mailbox.

        Example:
            ```python
            fake.set_mailbox("mailbox_1", daily_limit=20, blacklists=2)
            print((await client.mailboxes.list()).data[0].blacklists)  # -> 2
            ```
        """
        with self._seeding() as seeder:
            seeder.set_mailbox(mailbox, fields)
