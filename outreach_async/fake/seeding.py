"""Filling a world: what tests and world files ask for becomes records. A refusal to do so leaves the world as it was."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import attrs

from outreach_async.fake.campaign_seeds import CampaignSeed, made_up_campaign
from outreach_async.fake.fields import CUSTOM, RESERVED, STANDARD
from outreach_async.fake.given import check_known, text, whole
from outreach_async.fake.mailbox_seeds import MailboxSeed, made_up_mailbox
from outreach_async.fake.people import CITIES, FIRST_NAMES, LAST_NAMES, TITLES, company, domain
from outreach_async.fake.records import CAMPAIGN_HEADERS, MAILBOX_HEADERS, Contact, Enrolment, Workspace
from outreach_async.fake.relative import DAY
from outreach_async.fake.world import ListKind, World

_YOUNGEST: Final = 45 * DAY
"""Made-up mailboxes are older than this: past their warm-up."""

_OLDEST: Final = 600 * DAY


@attrs.frozen
class Seeder:
    """Fills a world.

    Attributes:
        world: The world.
        seed: What everything made up is drawn from.
        now: Unix seconds.
        key: Tells duplicate e-mails.
    """

    world: World
    seed: int
    now: float
    key: Callable[[str], str]

    def id(self, prefix: str, given: str | None) -> str:
        """Take the given id, or make one up."""
        return self.world.new_id(self.seed, prefix) if given is None else self.world.take_id(text("id", given), prefix)

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
            raise ValueError(f"extra_fields: {', '.join(taken)} cannot be a further standard field")
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
        """Add an owner key, or give a known one access to more workspaces."""
        for workspace in workspaces:
            self.check_workspace(workspace)
        if key is None or key not in self.world.keys:
            key = self.id("key_", key)
        self.world.keys[key] = self.world.keys.get(key, frozenset()) | frozenset(workspaces)
        return key

    def mailboxes(self, workspace: str, given: Sequence[Mapping[str, Any]], trouble: float) -> list[str]:
        """Add mailboxes, one for each mapping of given fields."""
        self.check_workspace(workspace)
        start = self._created(workspace, "mailbox", self.now - Random(f"{self.seed}|{workspace}").uniform(_YOUNGEST, _OLDEST))
        return [self._mailbox(workspace, fields, start + 60 * place, trouble) for place, fields in enumerate(given)]

    def _mailbox(self, workspace: str, given: Mapping[str, Any], created: int, trouble: float) -> str:
        id_ = self.id("mailbox_", given.get("id"))
        created = min(created, int(self.now))
        seed = MailboxSeed(id_, workspace, len(self.world.mailboxes), created, trouble, given)
        self.world.add_mailbox(made_up_mailbox(seed, Random(f"{self.seed}|{id_}"), self.now))
        return id_

    def campaign(self, given: Mapping[str, Any]) -> str:
        """Add a campaign; `given` holds the arguments of `FakeService.add_campaign`."""
        workspace = given["workspace"]
        self.check_workspace(workspace)
        boxes = tuple(dict.fromkeys(given["mailboxes"]))
        for box in boxes:
            if box not in self.world.mailboxes or self.world.mailboxes[box].workspace != workspace:
                raise ValueError(f"the workspace {workspace} has no mailbox {box!r}")
        id_ = self.id("camp_", given["id"])
        created = self._created(workspace, "campaign", self.now) if given["created"] is None else given["created"]
        seed = CampaignSeed(**{**given, "id": id_, "mailboxes": boxes, "steps": list(given["steps"]), "created": created})
        self.world.add_campaign(made_up_campaign(seed, Random(f"{self.seed}|{id_}"), self.id, self.now))
        return id_

    def contact(self, workspace: str, seed: ContactSeed) -> str:
        """Store a contact."""
        email = text("email", seed.email).strip()
        key = self.key(email)
        if key in self.world.contacts[workspace]:
            raise ValueError(f"the workspace has a contact with the e-mail {email}")
        for enrolment in seed.enrolments:
            campaign = self.world.campaigns.get(enrolment.campaign)
            if campaign is None or campaign.workspace != workspace:
                raise ValueError(f"the workspace {workspace} has no campaign {enrolment.campaign!r}")
        id_ = self.id("contact_", seed.id)
        created = int(self.now) if seed.created is None else whole("created", seed.created)
        contact = Contact(id_, email, seed.owner, seed.fields, seed.enrolments, created)
        self.world.put_contact(workspace, key, contact)
        return id_

    def contacts(
        self, workspace: str, rows: int | Iterable[Mapping[str, str | None]], campaign: str | None, owner: str | None
    ) -> list[str]:
        """Store contacts; see `FakeService.add_contacts`."""
        self.check_workspace(workspace)
        owner = next((key for key, spaces in self.world.keys.items() if workspace in spaces), "") if owner is None else owner
        enrolments = () if campaign is None else (Enrolment(campaign, self.now),)
        given = self._people(workspace, rows) if isinstance(rows, int) else rows
        codes = self.world.workspaces[workspace].codes
        return [self.contact(workspace, ContactSeed.of(row, codes, enrolments, owner)) for row in given]

    def _people(self, workspace: str, count: int) -> Iterator[dict[str, str | None]]:
        start = len(self.world.contacts[workspace])
        numbers = (number for number in itertools.count(start) if self.key(_email(number)) not in self.world.contacts[workspace])
        return (_person(number) for number in itertools.islice(numbers, whole("contacts", count)))

    def check_workspace(self, workspace: str) -> None:
        """Check that there is such a workspace.

        Raises:
            ValueError: There is none.
        """
        if workspace not in self.world.workspaces:
            raise ValueError(f"there is no workspace {workspace!r}: add it first")

    def _created(self, workspace: str, kind: ListKind, wanted: float) -> int:
        """Say when the next of a list was created: never before the last one, so that lists come in the order of calls."""
        return int(max(wanted, self.world.latest(workspace, kind)))


@attrs.frozen
class ContactSeed:
    """What is said of a contact before it is stored."""

    email: object
    fields: Mapping[str, str | None]
    enrolments: tuple[Enrolment, ...] = ()
    owner: str = attrs.field(default="", repr=False)
    id: str | None = None
    created: object = None

    @classmethod
    def of(
        cls, row: Mapping[str, str | None], codes: Mapping[str, str], enrolments: tuple[Enrolment, ...], owner: str
    ) -> ContactSeed:
        """Read a row: the e-mail, perhaps an id, and fields by their codes.

        Raises:
            TypeError: There is no such field, or a value is no text.
        """
        fields = {}
        for code, value in row.items():
            if code in {"id", "email"} or value is None:
                continue
            check_known(code, codes, "a contact")
            if not isinstance(value, str):
                raise TypeError(f"{code} must be a text, not {type(value).__name__}")
            fields[codes[code]] = value
        return cls(row.get("email"), fields, enrolments, owner, row.get("id"))


def _email(number: int) -> str:
    first, last = FIRST_NAMES[number % len(FIRST_NAMES)], LAST_NAMES[number * 7 % len(LAST_NAMES)]
    return f"{first}.{last}.{number}@{domain(number // 3)}".lower()


def _person(number: int) -> dict[str, str | None]:
    city, country = CITIES[number % len(CITIES)]
    return {
        "email": _email(number),
        "first_name": FIRST_NAMES[number % len(FIRST_NAMES)],
        "last_name": LAST_NAMES[number * 7 % len(LAST_NAMES)],
        "title": TITLES[number % len(TITLES)],
        "company_name": company(number // 3),
        "city": city,
        "country": country,
    }


def _labels(custom_fields: Iterable[str] | Mapping[str, str]) -> dict[str, str]:
    if not isinstance(custom_fields, Mapping):
        custom_fields = {f"custom_{number}": label for number, label in enumerate(custom_fields, 1)}
    for code in custom_fields:
        if not CUSTOM.fullmatch(code):
            raise ValueError(f"custom_fields: {code!r} is not of the form custom_<n>")
    return {code: text("label", label) for code, label in custom_fields.items()}
