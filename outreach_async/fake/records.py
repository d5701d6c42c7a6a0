"""What the fake stores: immutable records, so that a snapshot is a few copied tables of references.

A mapping inside a record is never changed once the record holds it. Texts that depend on the clock, and counts that follow from
other records, are not stored: they are made for each answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from outreach_async.fake.fields import STANDARD
from outreach_async.fake.simulation.chance import Rates

CAMPAIGN_HEADERS: Final = (
    "status", "name", "steps", "contacts", "opens", "initials", "interested", "replies", "bounces", "last_activity",
)  # fmt: skip
"""Columns of the campaign list, as the interface shows them."""

MAILBOX_HEADERS: Final = (
    "email", "sender_name", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "age", "sent_today", "sent_30days",
    "opened_14days", "sent_90days", "bounced_30days", "avg_open_rate", "avg_click_rate", "last_activity", "type", "created",
)  # fmt: skip
"""Columns of the mailbox list, as the interface shows them."""

MAILBOX_FIELDS: Final = (
    "id", "status", "email", "sender_name", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "age", "sent_today",
    "sent_30days", "opened_14days", "sent_90days", "bounced_30days", "avg_open_rate", "avg_click_rate", "last_activity", "type",
    "created", "domain_ip", "server_ip", "created_at",
)  # fmt: skip
"""Fields of a mailbox, in the interface's order."""

PERSONALIZED: Final = "PER"
"""`test_letter` of a step's personalized entry."""


@attrs.frozen
class Workspace:
    """A workspace.

    Attributes:
        id: Starts with `space_`.
        custom_fields: Labels by code.
        extra_fields: Labels by code of further standard fields that all-fields reveals.
        campaign_headers: Columns of the campaign list, as saved in the user's settings.
        mailbox_headers: Columns of the mailbox list.
        codes: Every code that a contact may carry, by itself: records share the texts of this table.
    """

    id: str
    custom_fields: Mapping[str, str]
    extra_fields: Mapping[str, str]
    campaign_headers: tuple[str, ...]
    mailbox_headers: tuple[str, ...]
    codes: Mapping[str, str] = attrs.field(init=False, eq=False, repr=False)

    @codes.default
    def _codes(self) -> Mapping[str, str]:
        return {code: code for code in (*STANDARD, *self.extra_fields, *self.custom_fields)}


@attrs.frozen
class Enrolment:
    """A contact's place in a campaign.

    Attributes:
        campaign: The campaign's id.
        at: When it joined, Unix seconds; the wait of step 1 runs from then.
    """

    campaign: str
    at: float


@attrs.frozen
class Contact:
    """A stored contact.

    Attributes:
        id: Starts with `contact_`.
        email: As sent, trimmed.
        owner: The owner key it was created with.
        fields: Values by code; `None` only where null is stored as such.
        enrolments: Its campaigns, in the order it joined them.
        created: Unix seconds.
    """

    id: str
    email: str
    owner: str = attrs.field(repr=False)
    fields: Mapping[str, str | None]
    enrolments: tuple[Enrolment, ...]
    created: int

    @property
    def campaigns(self) -> list[str]:
        """The ids of its campaigns."""
        return [enrolment.campaign for enrolment in self.enrolments]


@attrs.frozen
class Share:
    """A percentage before it is worked out: `n` of `of`."""

    n: int
    of: int


@attrs.frozen
class Template:
    """A template of a step, with the counts it was seeded with, which are unique per e-mail (rule T9).

    `rates` tell how people answer it; `None` for the campaign's.
    """

    id: str
    test_letter: str
    name: str
    status: str
    new_thread: bool | None
    subject: str | None
    body_text: str | None
    sent: int
    opened_num: int
    clicked_num: int
    replied_num: int
    unsubscribed_num: int
    rates: Rates | None = None


@attrs.frozen
class Step:
    """A step of a campaign.

    Attributes:
        id: Starts with `step_`.
        status: `live` by default.
        wait_time: Milliseconds from the send of the step before; from enrolment for the first.
        left_to_send: Contacts that were still to go through it when it was seeded, but for those that are stored: they all were.
        templates: Its templates.
    """

    id: str
    status: str
    wait_time: int
    left_to_send: int
    templates: tuple[Template, ...]

    @property
    def already_sent(self) -> int:
        """Contacts that had completed the step when it was seeded."""
        return sum(template.sent for template in self.templates)


@attrs.frozen
class Campaign:
    """A campaign, with the counts it was seeded with; what has come since is in its flow.

    Attributes:
        id: Starts with `camp_`.
        workspace: Its workspace's id.
        name: Its name.
        status: `draft`, `live`, `paused`, or what it was seeded with.
        mailboxes: Ids of the mailboxes it sends through.
        steps: Its steps in order.
        contacts: Contacts that are not stored one by one: those who were there when it was seeded.
        bounces_num: E-mails bounced.
        interested_num: Replies that show interest.
        created: Unix seconds.
        last_activity: Unix seconds; `None` for never.
        rates: How people answer its e-mails.
    """

    id: str
    workspace: str
    name: str
    status: str
    mailboxes: tuple[str, ...]
    steps: tuple[Step, ...]
    contacts: int
    bounces_num: int
    interested_num: int
    created: int
    last_activity: float | None
    rates: Rates

    def total(self, count: str) -> int:
        """Sum a seeded count, such as `sent`, over every template (rule T10)."""
        return sum(getattr(template, count) for step in self.steps for template in step.templates)


@attrs.frozen
class Mailbox:
    """A mailbox, with the figures it was seeded with; what it has sent since is in its ledger.

    Attributes:
        id: Starts with `mailbox_`.
        workspace: Its workspace's id.
        values: All of `MAILBOX_FIELDS`. Percentages may be a `Share`, `last_activity` a Unix time; `campaigns`, `age` and
            `created` are `None` unless they were set by hand.
        as_of: The time that the figures are of, Unix seconds.
    """

    id: str
    workspace: str
    values: Mapping[str, Any]
    as_of: float

    @property
    def created(self) -> float:
        """Unix seconds."""
        created: float = self.values["created_at"]
        return created

    @property
    def last_activity(self) -> float | None:
        """Unix seconds; `None` for never, and for a text set by hand."""
        value = self.values["last_activity"]
        return value if isinstance(value, int | float) else None

    @property
    def capacity(self) -> int:
        """E-mails that it can send a day; none if it is not active, or its limit is no number."""
        limit = self.values["daily_limit"]
        return max(0, int(limit)) if self.values["status"] == "active" and isinstance(limit, int | float) else 0
