"""Turn the specifications of tests and world files into stored records. A call that fails leaves the world unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, Final, Self

import attrs

from outreach_async.fake.campaign_seeds import CampaignMaker, CampaignSeed
from outreach_async.fake.contact_seeds import ContactSeed, people
from outreach_async.fake.fields import CUSTOM, RESERVED, STANDARD
from outreach_async.fake.given import text, whole
from outreach_async.fake.mailbox_seeds import MailboxSeed, changed_mailbox, made_up_mailbox
from outreach_async.fake.records import CAMPAIGN_HEADERS, MAILBOX_HEADERS, Contact, Enrolment, Mailbox, Workspace
from outreach_async.fake.relative import DAY
from outreach_async.fake.world import ListKind, World

_YOUNGEST: Final = 45 * DAY
"""Minimum age of generated mailboxes, in seconds: they are past their warm-up."""

_OLDEST: Final = 600 * DAY


@attrs.frozen
class Seeder:
    """Adds records to a world.

    Attributes:
        world: The world.
        seed: Seed for generated data.
        now: The current time in Unix seconds.
        key: Key function for e-mails: two e-mails are duplicates if their keys are equal.
    """

    world: World = attrs.field(repr=False)
    seed: int
    now: float
    key: Callable[[str], str]
    _taken: list[str] = attrs.field(factory=list, repr=False)

    @contextmanager
    def all_or_nothing(self) -> Iterator[Self]:
        """Release every reserved id if the block fails. Records are stored last, when nothing can fail any more."""
        counters = dict(self.world.counters)
        try:
            yield self
        except BaseException:
            self.world.ids.difference_update(self._taken)
            self.world.counters = counters
            raise

    def id(self, prefix: str, given: str | None) -> str:
        """Reserve the given id, or generate one if it is `None`."""
        taken = self.world.new_id(self.seed, prefix) if given is None else self.world.take_id(text("id", given), prefix)
        self._taken.append(taken)
        return taken

    def workspace(
        self,
        id_: str | None,
        custom_fields: Iterable[str] | Mapping[str, str],
        extra_fields: Mapping[str, str],
        campaign_headers: Iterable[str] | None,
        mailbox_headers: Iterable[str] | None,
    ) -> str:
        """Add a workspace; see `FakeService.add_workspace`."""
        custom = _labels(custom_fields)
        taken = [code for code in extra_fields if code in STANDARD or code in RESERVED or code.startswith("custom_")]
        if taken:
            raise ValueError(f"extra_fields: these codes are reserved: {', '.join(taken)}; use other codes")
        workspace = Workspace(
            self.id("space_", id_),
            custom,
            {text("code", code): text("label", label) for code, label in extra_fields.items()},
            CAMPAIGN_HEADERS if campaign_headers is None else tuple(campaign_headers),
            MAILBOX_HEADERS if mailbox_headers is None else tuple(mailbox_headers),
        )
        self.world.add_workspace(workspace)
        return workspace.id

    def owner_key(self, workspaces: Sequence[str], key: str | None) -> str:
        """Add an owner key, or give an existing one access to more workspaces."""
        for workspace in workspaces:
            self.check_workspace(workspace)
        if key is not None and not key.startswith("key_"):
            raise ValueError("key: expected a string that starts with key_; omit it to generate one")  # the value may be a secret
        if key is None or key not in self.world.keys:
            key = self.id("key_", key)
        self.world.keys[key] = self.world.keys.get(key, frozenset()) | frozenset(workspaces)
        return key

    def mailboxes(self, workspace: str, given: Sequence[Mapping[str, Any]], trouble: float) -> list[str]:
        """Add one mailbox per mapping of given fields."""
        self.check_workspace(workspace)
        start = self._created(workspace, "mailbox", self.now - self._chance(workspace).uniform(_YOUNGEST, _OLDEST))
        first = len(self.world.mailboxes)
        made = [
            self._mailbox(MailboxSeed(workspace, first + place, min(start + 60 * place, int(self.now)), trouble, fields))
            for place, fields in enumerate(given)
        ]
        for mailbox in made:
            self.world.add_mailbox(mailbox)
        return [mailbox.id for mailbox in made]

    def _mailbox(self, seed: MailboxSeed) -> Mailbox:
        id_ = self.id("mailbox_", seed.given.get("id"))
        return made_up_mailbox(id_, seed, self._chance(id_), self.now)

    def campaign(self, seed: CampaignSeed) -> str:
        """Add a campaign; see `FakeService.add_campaign`."""
        self.check_workspace(seed.workspace)
        boxes = self._boxes(seed.workspace, seed.mailboxes)
        id_ = self.id("camp_", seed.id)
        maker = CampaignMaker(self._chance(id_), self.id, self._created(seed.workspace, "campaign", self.now), self.now)
        self.world.add_campaign(maker.make(attrs.evolve(seed, mailboxes=boxes), id_), self.now)
        return id_

    def _boxes(self, workspace: str, mailboxes: Iterable[str]) -> tuple[str, ...]:
        boxes = tuple(dict.fromkeys(mailboxes))
        for box in boxes:
            if box not in self.world.mailboxes or self.world.mailboxes[box].workspace != workspace:
                raise ValueError(f"the workspace {workspace} has no mailbox {box!r}; add it first")
        return boxes

    def set_campaign(self, id_: str, status: str | None, mailboxes: Iterable[str] | None, rates: Mapping[str, float]) -> None:
        """Change a campaign; see `FakeService.set_campaign`."""
        campaign = self.world.campaigns.get(id_)
        if campaign is None:
            raise ValueError(f"there is no campaign {id_!r}; add it first")
        changed = attrs.evolve(
            campaign,
            status=campaign.status if status is None else text("status", status),
            mailboxes=campaign.mailboxes if mailboxes is None else self._boxes(campaign.workspace, mailboxes),
            rates=campaign.rates.changed(rates),
        )
        self.world.set_campaign(changed, self.now)

    def set_mailbox(self, id_: str, fields: Mapping[str, Any]) -> None:
        """Change a mailbox; see `FakeService.set_mailbox`."""
        mailbox = self.world.mailboxes.get(id_)
        if mailbox is None:
            raise ValueError(f"there is no mailbox {id_!r}; add it first")
        self.world.set_mailbox(changed_mailbox(mailbox, fields), self.now)

    def contacts(
        self, workspace: str, rows: int | Iterable[Mapping[str, str | None]], campaign: str | None, owner: str | None
    ) -> list[str]:
        """Store contacts; see `FakeService.add_contacts`."""
        self.check_workspace(workspace)
        owner = next((key for key, spaces in self.world.keys.items() if workspace in spaces), "") if owner is None else owner
        enrolments = () if campaign is None else (Enrolment(campaign, self.now),)
        given = people(whole("contacts", rows), len(self.world.contacts[workspace])) if isinstance(rows, int) else rows
        codes = self.world.workspaces[workspace].codes
        return self.store(workspace, (ContactSeed.of(row, codes, enrolments, owner) for row in given))

    def store(self, workspace: str, seeds: Iterable[ContactSeed]) -> list[str]:
        """Store all contacts, or none if one is invalid."""
        made: dict[str, Contact] = {}
        for seed in seeds:
            email = text("email", seed.email).strip()
            key = self.key(email)
            if key in made or key in self.world.contacts[workspace]:
                raise ValueError(f"email: the workspace already has a contact with the e-mail {email}; remove one")
            made[key] = self._contact(workspace, email, seed)
        for key, contact in made.items():
            self.world.put_contact(workspace, key, contact)
        return [contact.id for contact in made.values()]

    def _contact(self, workspace: str, email: str, seed: ContactSeed) -> Contact:
        for enrolment in seed.enrolments:
            campaign = self.world.campaigns.get(enrolment.campaign)
            if campaign is None or campaign.workspace != workspace:
                raise ValueError(f"the workspace {workspace} has no campaign {enrolment.campaign!r}; add it first")
        created = int(self.now) if seed.created is None else whole("created", seed.created)
        return Contact(self.id("contact_", seed.id), email, seed.owner, seed.fields, seed.enrolments, created)

    def check_workspace(self, workspace: str) -> None:
        """Check that a workspace exists.

        Raises:
            ValueError: The workspace does not exist.
        """
        if workspace not in self.world.workspaces:
            raise ValueError(f"there is no workspace {workspace!r}; add it first")

    def _chance(self, name: str) -> Random:
        # Each record has a generator of its own: the order and number of other records do not change its values.
        return Random(f"{self.seed}|{name}")  # noqa: S311 - generated test data needs no cryptographic randomness

    def _created(self, workspace: str, kind: ListKind, wanted: float) -> int:
        """Return the creation time of the next item: never before the last one, which keeps lists in the order of calls."""
        return int(max(wanted, self.world.latest(workspace, kind)))


def _labels(custom_fields: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    if isinstance(custom_fields, str):
        raise TypeError("custom_fields: expected several labels, got one string; pass a list")
    if not isinstance(custom_fields, Mapping):
        custom_fields = {f"custom_{number}": label for number, label in enumerate(custom_fields, 1)}
    for code in custom_fields:
        if not CUSTOM.fullmatch(code):
            raise ValueError(f"custom_fields: expected codes of the form custom_<n>, such as custom_1, got {code!r}")
    return {code: text("label", label) for code, label in custom_fields.items()}
