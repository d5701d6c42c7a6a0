"""The records that the fake stores. Records and the mappings in them never change: a snapshot copies only the tables."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final

import attrs

from outreach_async.fake._arguments import check_known, require_count, require_mapping, require_string
from outreach_async.fake._clock import DAY

CAMPAIGN_HEADERS: Final = (
    "status", "name", "steps", "contacts", "opens", "initials", "interested", "replies", "bounces", "last_activity",
)  # fmt: skip

MAILBOX_HEADERS: Final = (
    "email", "sender_name", "campaigns", "daily_limit", "spf", "dkim", "dmarc", "blacklists", "age", "sent_today", "sent_30days",
    "opened_14days", "sent_90days", "bounced_30days", "avg_open_rate", "avg_click_rate", "last_activity", "type", "created",
)  # fmt: skip

MAILBOX_FIELDS: Final = ("id", "status", *MAILBOX_HEADERS, "domain_ip", "server_ip", "created_at")

PERSONALIZED: Final = "PER"  # the `test_letter` of a personalized template


@attrs.frozen
class Workspace:
    id: str
    custom_fields: Mapping[str, str]
    extra_fields: Mapping[str, str]
    codes: Mapping[str, str] = attrs.field(
        init=False,
        eq=False,
        repr=False,
        default=attrs.Factory(
            lambda self: {code: code for code in (*STANDARD_FIELDS, *self.extra_fields, *self.custom_fields)}, takes_self=True
        ),
    )


@attrs.frozen
class Enrolment:
    campaign: str
    at: float


@attrs.frozen
class Contact:
    id: str
    email: str
    owner: str = attrs.field(repr=False)
    created: int
    fields: Mapping[str, str | None]
    enrolments: tuple[Enrolment, ...]

    @property
    def campaigns(self) -> list[str]:
        return [enrolment.campaign for enrolment in self.enrolments]


@attrs.frozen
class Share:
    """A percentage that is stored as two counts. It is computed for each response as `100 * part / whole`."""

    part: int
    whole: int


def _validate_share(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"rates: expected a number for {attribute.name}, got {type(value).__name__}; pass a number such as 0.4")
    if not 0 <= value <= 1:
        raise ValueError(f"rates: expected a number from 0 to 1 for {attribute.name}, got {value}; pass a share such as 0.4")


@attrs.frozen
class Rates:
    """The shares of e-mails with each reaction. The defaults are those of healthy mailboxes, which generated counts follow."""

    open: float = attrs.field(default=0.5, validator=_validate_share)
    click: float = attrs.field(default=0.05, validator=_validate_share)
    reply: float = attrs.field(default=0.06, validator=_validate_share)
    bounce: float = attrs.field(default=0.006, validator=_validate_share)
    unsubscribe: float = attrs.field(default=0.01, validator=_validate_share)
    interested: float = attrs.field(default=0.3, validator=_validate_share)

    def with_changes(self, changes: Mapping[str, float]) -> Rates:
        check_known(require_mapping("rates", changes), attrs.fields_dict(Rates), "rates")
        return attrs.evolve(self, **changes)

    @property
    def effective_open(self) -> float:
        # Clicks, replies and unsubscribes require an open. If `open` is too low for them, this is the lowest sufficient share.
        return min(1.0, max(self.open, self.click, self.reply + self.unsubscribe))


def _validate_text(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    require_string(attribute.name, value)


def _validate_count(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    require_count(attribute.name, value)


@attrs.frozen
class Template:
    """A template of a step, with its seeded counts. An e-mail adds at most 1 to each count (rule T9)."""

    # `rates` are the probabilities of reactions to the template; `None` means the campaign's rates.

    id: str
    test_letter: str = attrs.field(validator=_validate_text)
    name: str = attrs.field(validator=_validate_text)
    status: str = attrs.field(validator=_validate_text)
    new_thread: bool | None
    subject: str | None
    body_text: str | None
    sent: int = attrs.field(validator=_validate_count)
    opened_num: int = attrs.field(validator=_validate_count)
    clicked_num: int = attrs.field(validator=_validate_count)
    replied_num: int = attrs.field(validator=_validate_count)
    unsubscribed_num: int = attrs.field(validator=_validate_count)
    rates: Rates | None

    def __attrs_post_init__(self) -> None:
        if not max(self.clicked_num, self.replied_num, self.unsubscribed_num) <= self.opened_num <= self.sent:
            raise ValueError(
                "templates: expected clicked_num, replied_num and unsubscribed_num <= opened_num <= sent, got "
                f"{self.clicked_num}, {self.replied_num} and {self.unsubscribed_num}, {self.opened_num}, {self.sent}"
            )


@attrs.frozen
class Step:
    id: str
    status: str = attrs.field(validator=_validate_text)
    wait_time: int = attrs.field(validator=_validate_count)
    left_to_send: int
    templates: tuple[Template, ...]

    @property
    def already_sent(self) -> int:
        """Number of contacts that have completed the step, as seeded. Contacts stored individually are not included."""
        return sum(template.sent for template in self.templates)


@attrs.frozen
class Campaign:
    """A campaign with its seeded counts. The current counts are in the `CampaignFlow` of the simulation."""

    id: str
    workspace: str
    name: str = attrs.field(validator=_validate_text)
    status: str = attrs.field(validator=_validate_text)
    mailboxes: tuple[str, ...]
    steps: tuple[Step, ...]
    contacts: int = attrs.field(validator=_validate_count)
    bounces_num: int = attrs.field(validator=_validate_count)
    interested_num: int = attrs.field(validator=_validate_count)
    created: int = attrs.field(validator=_validate_count)
    last_activity: float | None
    rates: Rates

    def total(self, count: str) -> int:
        return sum(getattr(template, count) for step in self.steps for template in step.templates)


def _share_or_none(value: Any, of: int) -> Share | None:
    if isinstance(value, Share):
        return value if 0 <= value.part <= value.whole else None
    fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100  # noqa: PLR2004 - a percentage
    return Share(round(of * value / 100), of) if fits else None


# Each statistic of a mailbox that a time window limits: the counter in `MailboxStats`, and the days of the window.
WINDOWS: Final = {
    "sent_today": ("sent", 1), "sent_30days": ("sent", 30), "sent_90days": ("sent", 90), "bounced_30days": ("bounced", 30),
}  # fmt: skip

FORTNIGHT: Final = 14


@attrs.frozen
class Mailbox:
    """A mailbox with its seeded statistics. The statistics since then are in the `MailboxStats` of the simulation."""

    id: str
    workspace: str
    values: Mapping[str, Any]
    as_of: float

    @cached_property
    def seeded_day(self) -> int:
        return int(self.as_of // DAY)

    @cached_property
    def seeded_age(self) -> int:
        """The days on which the mailbox may have sent the seeded e-mails, at least one."""
        return max(1, math.ceil((self.as_of - self.created) / DAY))

    @cached_property
    def seeded(self) -> Mapping[str, Any]:
        """The statistics as counts, and as a `Share` each of the rates. An impossible value is left out, and never changes."""
        counts = {name: self.values[name] for name in WINDOWS if type(self.values[name]) is int and self.values[name] >= 0}
        month, quarter = counts.get("sent_30days", 0), counts.get("sent_90days", 0)
        wholes = {"opened_14days": month * FORTNIGHT // 30, "avg_open_rate": quarter, "avg_click_rate": quarter}
        shares = {name: _share_or_none(self.values[name], of) for name, of in wholes.items()}
        return {**counts, **{name: share for name, share in shares.items() if share is not None}}

    @property
    def created(self) -> float:
        return float(self.values["created_at"])

    @property
    def last_activity(self) -> float | None:
        """Time of the last activity in Unix seconds; `None` for never, or if the stored value is not a number."""
        value = self.values["last_activity"]
        return value if isinstance(value, int | float) else None

    @property
    def capacity(self) -> int:
        limit = self.values["daily_limit"]
        return max(0, int(limit)) if self.values["status"] == "active" and isinstance(limit, int | float) else 0


_STANDARD_CODES: Final = (
    "first_name", "middle_name", "last_name", "full_name", "nickname", "title", "mobile_phone", "work_phone", "home_phone",
    "voip_phone", "other_phone", "company_name", "company_formal_name", "company_industry", "address_1", "address_2", "city",
    "zip", "region", "state", "country", "timezone", "gender", "occupation", "stack_overflow", "website", "website_2",
    "website_3", "personal_note", "personal_note_2", "personal_note_3", "job_start_date", "graduation_date", "school", "degree",
)  # fmt: skip

STANDARD_FIELDS: Final[dict[str, str]] = {code: code.replace("_", " ").capitalize() for code in _STANDARD_CODES} | {
    "voip_phone": "VoIP phone",
    "stack_overflow": "Stack Overflow",
}

CUSTOM_CODE: Final = re.compile(r"custom_[1-9][0-9]{0,8}", re.ASCII)

# Keys of the body of a create request that are no optional fields of the contact.
RESERVED_MEMBERS: Final = frozenset({"owner_key", "workspace", "email", "upload_options"})


def custom_number(code: str) -> int:
    return int(code.removeprefix("custom_"))
