"""Add workspaces, owner keys, mailboxes, campaigns and contacts to a fake. A call that fails changes no stored data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from random import Random
from typing import Any, Final, Literal, Self

import attrs

from outreach_async.fake._arguments import require_count, require_string
from outreach_async.fake._clock import DAY
from outreach_async.fake._seeds import (
    CampaignBuilder,
    CampaignSeed,
    ContactSeed,
    StepSeed,
    generate_mailbox,
    generate_people,
    update_mailbox,
)
from outreach_async.fake._stored_records import (
    CAMPAIGN_HEADERS,
    CUSTOM_CODE,
    MAILBOX_HEADERS,
    RESERVED_MEMBERS,
    STANDARD_FIELDS,
    Contact,
    Enrolment,
    Workspace,
)
from outreach_async.fake._world import ListKind, World

# Generated mailboxes are older than this, so that their warm-up is over.
_MIN_AGE: Final = 45 * DAY

_MAX_AGE: Final = 600 * DAY


@attrs.frozen
class Seeder:
    world: World = attrs.field(repr=False)
    seed: int
    now: float
    email_key: Callable[[str], str]
    _reserved_ids: list[str] = attrs.field(factory=list, repr=False)

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        """Undo the reservation of ids if the block raises an exception."""
        # Records need no removal, because all checks run before the first record is stored.
        counters = dict(self.world.counters)
        try:
            yield self
        except BaseException:
            self.world.ids.difference_update(self._reserved_ids)
            self.world.counters = counters
            raise

    def reserve_id(self, prefix: str, id_: str | None) -> str:
        """Reserve an id and return it. If `id_` is `None`, generate an id first."""
        world = self.world
        id_ = world.new_id(self.seed, prefix) if id_ is None else world.reserve_id(require_string("id", id_), prefix)
        self._reserved_ids.append(id_)
        return id_

    def add_workspace(
        self,
        id_: str | None,
        custom_fields: Iterable[str] | Mapping[str, str],
        extra_fields: Mapping[str, str],
        campaign_headers: Iterable[str] | None,
        mailbox_headers: Iterable[str] | None,
    ) -> str:
        custom = _check_labels(custom_fields)
        other_codes = {*STANDARD_FIELDS, *RESERVED_MEMBERS}
        if reserved := [code for code in extra_fields if code in other_codes or code.startswith("custom_")]:
            raise ValueError(f"extra_fields: these codes are reserved: {', '.join(reserved)}; use other codes")
        workspace = Workspace(
            self.reserve_id("space_", id_),
            custom,
            {require_string("code", code): require_string("label", label) for code, label in extra_fields.items()},
            CAMPAIGN_HEADERS if campaign_headers is None else tuple(campaign_headers),
            MAILBOX_HEADERS if mailbox_headers is None else tuple(mailbox_headers),
        )
        self.world.add_workspace(workspace)
        return workspace.id

    def add_owner_key(self, workspaces: Sequence[str], key: str | None) -> str:
        for workspace in workspaces:
            self.check_workspace(workspace)
        if key is not None and not key.startswith("key_"):
            raise ValueError("key: expected a string that starts with key_; pass no key to generate one")  # `key` may be a secret
        if key is None or key not in self.world.owner_keys:
            key = self.reserve_id("key_", key)
        self.world.owner_keys[key] = self.world.owner_keys.get(key, frozenset()) | frozenset(workspaces)
        return key

    def add_mailboxes(self, workspace: str, rows: Sequence[Mapping[str, Any]], trouble: float) -> list[str]:
        self.check_workspace(workspace)
        start = self._creation_time(workspace, "mailbox", self.now - self._random_for(workspace).uniform(_MIN_AGE, _MAX_AGE))
        first = len(self.world.mailboxes)
        mailboxes = []
        for number, fields in enumerate(rows):
            id_ = self.reserve_id("mailbox_", fields.get("id"))
            created, random = min(start + 60 * number, int(self.now)), self._random_for(id_)
            generated = generate_mailbox(
                id_, workspace, first + number, created, fields, trouble=trouble, random=random, now=self.now
            )
            mailboxes.append(generated)
        for mailbox in mailboxes:
            self.world.add_mailbox(mailbox)
        return [mailbox.id for mailbox in mailboxes]

    def add_campaign(self, seed: CampaignSeed) -> str:
        self.check_workspace(seed.workspace)
        boxes = self._check_mailboxes(seed.workspace, seed.mailboxes)
        id_ = self.reserve_id("camp_", seed.id)
        created = self._creation_time(seed.workspace, "campaign", self.now)
        builder = CampaignBuilder(self._random_for(id_), self.reserve_id, created, self.now)
        self.world.add_campaign(builder.build(attrs.evolve(seed, mailboxes=boxes), id_), self.now)
        return id_

    def _check_mailboxes(self, workspace: str, mailboxes: Iterable[str]) -> tuple[str, ...]:
        boxes = tuple(dict.fromkeys(mailboxes))
        for box in boxes:
            if box not in self.world.mailboxes or self.world.mailboxes[box].workspace != workspace:
                raise ValueError(f"the workspace {workspace} has no mailbox {box!r}; add the mailbox first")
        return boxes

    def set_campaign(self, id_: str, status: str | None, mailboxes: Iterable[str] | None, rates: Mapping[str, float]) -> None:
        campaign = self.world.campaigns.get(id_)
        if campaign is None:
            raise ValueError(f"there is no campaign {id_!r}; add the campaign first")
        changed = attrs.evolve(
            campaign,
            status=campaign.status if status is None else require_string("status", status),
            mailboxes=campaign.mailboxes if mailboxes is None else self._check_mailboxes(campaign.workspace, mailboxes),
            rates=campaign.rates.with_changes(rates),
        )
        self.world.set_campaign(changed, self.now)

    def set_mailbox(self, id_: str, fields: Mapping[str, Any]) -> None:
        mailbox = self.world.mailboxes.get(id_)
        if mailbox is None:
            raise ValueError(f"there is no mailbox {id_!r}; add the mailbox first")
        self.world.set_mailbox(update_mailbox(mailbox, fields), self.now)

    def add_contacts(
        self, workspace: str, rows: int | Iterable[Mapping[str, str | None]], campaign: str | None, owner: str | None
    ) -> list[str]:
        self.check_workspace(workspace)
        if owner is None:
            owner = next((key for key, spaces in self.world.owner_keys.items() if workspace in spaces), "")
        if isinstance(rows, int):
            rows = generate_people(require_count("contacts", rows), len(self.world.contacts[workspace]))
        enrolments = () if campaign is None else (Enrolment(campaign, self.now),)
        codes = self.world.workspaces[workspace].codes
        return self.store_contacts(workspace, (ContactSeed.from_row(row, codes, enrolments, owner) for row in rows))

    def store_contacts(self, workspace: str, seeds: Iterable[ContactSeed]) -> list[str]:
        """Store contacts and return their ids. If any contact is invalid, no contact is stored."""
        stored: dict[str, Contact] = {}
        for seed in seeds:
            email = require_string("email", seed.email).strip()
            key = self.email_key(email)
            if key in stored or key in self.world.contacts[workspace]:
                raise ValueError(
                    f"email: expected an address that no other contact of the workspace has, got {email}; use another address"
                )
            stored[key] = self._build_contact(workspace, email, seed)
        for key, contact in stored.items():
            self.world.store_contact(workspace, key, contact)
        return [contact.id for contact in stored.values()]

    def _build_contact(self, workspace: str, email: str, seed: ContactSeed) -> Contact:
        for enrolment in seed.enrolments:
            campaign = self.world.campaigns.get(enrolment.campaign)
            if campaign is None or campaign.workspace != workspace:
                raise ValueError(f"the workspace {workspace} has no campaign {enrolment.campaign!r}; add the campaign first")
        created = int(self.now) if seed.created is None else require_count("created", seed.created)
        return Contact(self.reserve_id("contact_", seed.id), email, seed.owner, created, seed.fields, seed.enrolments)

    def check_workspace(self, workspace: str) -> None:
        if workspace not in self.world.workspaces:
            raise ValueError(f"there is no workspace {workspace!r}; add the workspace first")

    def _random_for(self, name: str) -> Random:
        # Each record has its own generator, so that the order and number of other records do not change its values.
        return Random(f"{self.seed}|{name}")  # noqa: S311 - generated test data needs no cryptographic randomness

    def _creation_time(self, workspace: str, kind: ListKind, preferred: float) -> int:
        """Return the later of `preferred` and the newest item's creation time, so that creation times never decrease."""
        order = self.world.creation_order[workspace, kind]
        return int(max(preferred, order[-1][0] if order else 0))


def _check_labels(custom_fields: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(custom_fields, str):
        raise TypeError("custom_fields: expected a list of labels or a mapping of codes to labels, got a string; pass a list")
    if not isinstance(custom_fields, Mapping):
        custom_fields = {f"custom_{number}": label for number, label in enumerate(custom_fields, 1)}
    for code in custom_fields:
        if not CUSTOM_CODE.fullmatch(code):
            raise ValueError(f"custom_fields: expected a code such as custom_1, got {code!r}; use custom_ and a positive integer")
    return {code: require_string("label", label) for code, label in custom_fields.items()}


class WorldBuilder(ABC):
    """The methods of a fake that add and change stored data."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Seeder]:
        """Lock the stored data and yield a `Seeder` that changes the data. A block that raises an exception changes nothing."""
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
            custom_fields: A list of labels of custom fields, or a mapping of codes to labels. The labels of a list get the codes
                `custom_1`, `custom_2`, and so on.
            extra_fields: Labels of fields that are neither standard nor custom, by code.
            campaign_headers: Column names that the campaign list returns in `headers`.
            mailbox_headers: Column names that the mailbox list returns in `headers`.

        Returns:
            The workspace's id.

        Raises:
            ValueError: The id is malformed or already in use, or a code is malformed.

        Example:
            ```python
            print(fake.add_workspace("space_2", custom_fields=["Plan", "Size"]))  # -> space_2
            ```
        """
        with self._transaction() as seeder:
            return seeder.add_workspace(id, custom_fields, extra_fields or {}, campaign_headers, mailbox_headers)

    def add_owner_key(self, *workspaces: str, key: str | None = None) -> str:
        """Add an owner key, or give an existing owner key access to more workspaces.

        Args:
            workspaces: Ids of the workspaces that the key gets access to.
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
        with self._transaction() as seeder:
            return seeder.add_owner_key(workspaces, key)

    def add_mailbox(self, workspace: str, *, trouble: float = 0.0, **fields: Any) -> str:
        """Add a mailbox; see `add_mailboxes` for the fields.

        Returns:
            The mailbox's id.

        Raises:
            TypeError: The name of a field is unknown, or a value cannot be written as JSON.
            ValueError: The workspace does not exist, or a number is not finite.

        Example:
            ```python
            fake.add_mailbox("space_1", email="cy@north.example", dkim=False, bounced_30days=40)
            print([mailbox.email async for mailbox in client.mailboxes.list() if not mailbox.dkim])  # -> ['cy@north.example']
            ```
        """
        return self.add_mailboxes(workspace, 1, trouble=trouble, **fields)[0]

    def add_mailboxes(self, workspace: str, count: int, *, trouble: float = 0.0, **fields: Any) -> list[str]:
        """Add mailboxes with generated statistics that are consistent with each other.

        Args:
            workspace: Id of the workspace.
            count: Number of mailboxes.
            trouble: Probability that a mailbox has a problem, from 0 to 1.
            fields: Values for any field of a mailbox, used unchanged, even if invalid. `domain` sets the domain of the e-mail
                addresses; a rate can be two integers, `[part, whole]`; `last_activity` can be Unix seconds. `as_of` sets the time
                of the statistics in Unix seconds, by default now. The counts of e-mails in the last 30 and 90 days decrease
                after that time. An impossible count or percentage, such as -5, never changes.

        Returns:
            The mailboxes' ids.

        Raises:
            TypeError: The name of a field is unknown, or a value cannot be written as JSON.
            ValueError: The workspace does not exist, or a number is not finite.

        Example:
            ```python
            ids = fake.add_mailboxes("space_1", 50, trouble=0.2, domain="south.example")
            print(len(ids))  # -> 50
            ```
        """
        with self._transaction() as seeder:
            return seeder.add_mailboxes(workspace, [fields] * count, trouble)

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
        """Add a campaign. The counts and percentages in responses are computed from the counts of its templates.

        Args:
            workspace: Id of the workspace.
            id: The campaign's id; generated if not given.
            name: The campaign's name.
            status: `draft`, `live`, `paused`, or any other status, to test how a client handles it.
            mailboxes: Ids of the mailboxes that the campaign sends through.
            steps: The steps in order. A step is a string of template letters, such as `A|B|PER`, or a mapping with any of `id`,
                `status`, `wait_time` (milliseconds), `left_to_send`, `templates` and `sent`. `templates`, by default `A`, is a
                string of letters, or a non-empty list of letters and mappings. Such a mapping has fields of a template, and
                optionally the template's own `rates`. `sent` is the number of e-mails to distribute over the templates; their
                opens and replies are generated.
            contacts: Number of contacts of the campaign, not including those that `add_contacts` or requests add. By default, the
                number of e-mails that step 1 has sent or has left to send.
            bounces_num: Number of bounced e-mails; by default generated for steps with `sent`, and 0 otherwise.
            interested_num: Number of interested replies; by default generated for steps with `sent`, and 0 otherwise.
            created: Creation time in Unix seconds; now if not given.
            last_activity: Time of the last activity in Unix seconds, `None` for never, or `auto` for a recent time if any e-mail
                was sent.
            rates: Rates of reactions from 0 to 1, by kind of reaction. The defaults are `open` 0.4, `click` 0.05, `reply` 0.06
                and `unsubscribe` 0.01 of the delivered e-mails, `bounce` 0.02 of the sent e-mails, and `interested` 0.3 of
                the replies.

        Returns:
            The campaign's id.

        Raises:
            TypeError: The name of a field in a step or template is unknown, or a value has the wrong type.
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
        with self._transaction() as seeder:
            return seeder.add_campaign(seed)

    def add_contacts(
        self,
        workspace: str,
        rows: int | Iterable[Mapping[str, str | None]],
        *,
        campaign: str | None = None,
        owner_key: str | None = None,
    ) -> list[str]:
        """Store contacts directly, without a request to the fake.

        Args:
            workspace: Id of the workspace.
            rows: Number of contacts to generate; or mappings with `email`, optionally `id`, and fields by code.
            campaign: Id of a campaign that the contacts join.
            owner_key: The owner key of the contacts; by default the first key with access to the workspace.

        Returns:
            The contacts' ids.

        Raises:
            TypeError: A row has an unknown key, or a value has the wrong type.
            ValueError: The workspace or campaign does not exist, or an e-mail is blank or already exists.

        Example:
            ```python
            fake.add_contacts("space_1", [{"email": "ann@company.example", "city": "Lyon"}], campaign="camp_1")
            print(len(fake.add_contacts("space_1", 100)))  # -> 100
            ```
        """
        with self._transaction() as seeder:
            return seeder.add_contacts(workspace, rows, campaign, owner_key)

    # Changing.

    def set_campaign(
        self,
        campaign: str,
        *,
        status: str | None = None,
        mailboxes: Iterable[str] | None = None,
        rates: Mapping[str, float] | None = None,
    ) -> None:
        """Change a campaign, as a user of the service would. Omitted values stay unchanged.

        The changes take effect with the next `advance`.

        Args:
            campaign: The campaign's id.
            status: `live` resumes sending; any other status holds back e-mails that are due. In any status, recipients react to
                e-mails that were already sent.
            mailboxes: Ids of the mailboxes that the campaign sends through from now on.
            rates: Rates of reactions to e-mails sent from now on, by kind of reaction. A template with its own rates keeps them.

        Raises:
            TypeError: The name of a rate is unknown, or a value has the wrong type.
            ValueError: The campaign or a mailbox does not exist, or a rate is not from 0 to 1.

        Example:
            ```python
            fake.set_campaign("camp_1", status="paused", rates={"bounce": 0})
            print((await client.campaigns.list()).data[0].status)  # -> paused
            ```
        """
        with self._transaction() as seeder:
            seeder.set_campaign(campaign, status, mailboxes, rates or {})

    def set_mailbox(self, mailbox: str, /, **fields: Any) -> None:
        """Change a mailbox: any field except its id, its creation time, its last activity and its counts.

        Args:
            mailbox: The mailbox's id.
            fields: New values by name. Only an `active` mailbox sends, up to `daily_limit` e-mails per UTC day.

        Raises:
            TypeError: The name of a field is unknown, the field cannot be changed, or its value cannot be written as JSON.
            ValueError: The mailbox does not exist, or a number is not finite.

        Example:
            ```python
            fake.set_mailbox("mailbox_1", daily_limit=20, blacklists=2)
            print((await client.mailboxes.list()).data[0].blacklists)  # -> 2
            ```
        """
        with self._transaction() as seeder:
            seeder.set_mailbox(mailbox, fields)
