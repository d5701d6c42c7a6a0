"""The values that the service speaks of: frozen, slotted, named as on the wire.

Every answered model keeps the fields it does not know in `extra`, a plain dict outside equality and hash. Numbers are `int` or
`float`, as the service sent them. Texts such as `age` are relative and kept as they came.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeAlias, TypeVar

import attrs

from outreach_async.vocabulary import (
    CampaignStatus,
    MailboxStatus,
    MailboxType,
    StepStatus,
    StepType,
    TemplateStatus,
)

T = TypeVar("T")

Number: TypeAlias = int | float

NOT_ON_THE_WIRE: Final = frozenset({"_extra", "undecodable"})
"""Attributes of models that the library adds."""


class Answered:
    """What the service answers; it keeps the fields that it does not know.

    An empty dict in each of a million mailboxes would weigh more than their figures, so there is none until it is needed.
    """

    __slots__ = ()

    _extra: dict[str, Any] | None

    @property
    def extra(self) -> dict[str, Any]:
        """Fields of the answer that this class does not know."""
        return {} if self._extra is None else self._extra


@attrs.frozen(kw_only=True)
class Campaign(Answered):
    """A campaign as the campaign list shows it (section "Campaign").

    Attributes:
        id: Starts with `camp_`.
        status: `draft`, `live`, `paused`, or a text not seen before.
        name: Campaign name.
        steps: Number of steps.
        contacts: Number of contacts.
        opens: Opens, in percent.
        initials: Meaning omitted from the interface.
        interested: Percentage-like; meaning omitted from the interface.
        replies: Replies, in percent.
        bounces: Bounces; the interface gives no unit, `bounces_num` is the count.
        last_activity: How long ago the last activity was, as relative text.
        opens_num: Count of opens.
        replies_num: Count of replies.
        bounces_num: Count of bounces.
        interested_num: Count of interested replies.
        days_left: Estimated days until the campaign ends.
        days_left_date: Estimated end: a text or a Unix timestamp; `Complete` when finished.
        days_left_display: Human-readable form of the days left.
        created: Creation time, Unix timestamp.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        async for campaign in client.campaigns.list():
            print(campaign.name, campaign.status, campaign.steps, f"{campaign.opens} % opened")  # -> Spring live 2 0 % opened
        ```
    """

    id: str
    status: CampaignStatus
    name: str
    steps: Number
    contacts: Number
    opens: Number
    initials: Number
    interested: Number
    replies: Number
    bounces: Number
    last_activity: str
    opens_num: Number
    replies_num: Number
    bounces_num: Number
    interested_num: Number
    days_left: Number
    days_left_date: str | int | float
    days_left_display: str
    created: Number
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Mailbox(Answered):
    """A synced sending account (section "Mailbox"; the interface shows names and kinds only, units are as their names say).

    Attributes:
        id: Starts with `mailbox_`.
        status: `active`, or a text not seen before.
        email: The sending address.
        sender_name: The display name it sends under.
        campaigns: Number of campaigns.
        daily_limit: E-mails a day at most.
        spf: Whether the domain publishes SPF.
        dkim: Whether the domain signs with DKIM.
        dmarc: Whether the domain publishes DMARC.
        blacklists: Number of blacklists that name it.
        age: Relative text.
        sent_today: E-mails sent today.
        sent_30days: E-mails sent in 30 days.
        opened_14days: Opens of 14 days, in percent.
        sent_90days: E-mails sent in 90 days.
        bounced_30days: E-mails bounced in 30 days.
        avg_open_rate: Average open rate, in percent.
        avg_click_rate: Average click rate, in percent.
        last_activity: Relative text.
        type: `Google`, `SMTP & IMAP`, or a text not seen before.
        created: Relative text.
        domain_ip: Address of the domain, if it has one.
        server_ip: Address of the sending server.
        created_at: Creation time, Unix timestamp.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        async for mailbox in client.mailboxes.list():
            print(mailbox.email, mailbox.spf, mailbox.type)
        # -> ada@north.example True Google
        # -> bob@north.example False SMTP & IMAP
        ```
    """

    id: str
    status: MailboxStatus
    email: str
    sender_name: str
    campaigns: Number
    daily_limit: Number
    spf: bool
    dkim: bool
    dmarc: bool
    blacklists: Number
    age: str
    sent_today: Number
    sent_30days: Number
    opened_14days: Number
    sent_90days: Number
    bounced_30days: Number
    avg_open_rate: Number
    avg_click_rate: Number
    last_activity: str
    type: MailboxType
    created: str
    domain_ip: str | None
    server_ip: str
    created_at: Number
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Template(Answered):
    """One variant of a step's e-mail (section "Template").

    Attributes:
        id: Starts with `temp_`; the personalized entry's with `personalized_step_`.
        test_letter: `A`, `B`, ..., or `PER` for the personalized entry.
        name: Template name.
        status: `live`, or a text not seen before.
        new_thread: Whether it starts a new thread; `None` for the personalized entry.
        subject: `None` for the personalized entry and for follow-ups in the same thread.
        body_text: Body, with placeholders in double curly braces.
        sent: E-mails sent.
        opened: Opens, in percent.
        opened_num: Count of opens.
        clicked: Clicks, in percent.
        clicked_num: Count of clicks.
        replied: Replies, in percent.
        replied_num: Count of replies.
        unsubscribed: Unsubscribes, in percent.
        unsubscribed_num: Count of unsubscribes.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        for template in steps.data[0].templates:
            print(template.test_letter, template.sent, f"{template.opened} % opened")
        # -> A 0 0 % opened
        # -> B 0 0 % opened
        ```
    """

    id: str
    test_letter: str
    name: str
    status: TemplateStatus
    new_thread: bool | None
    subject: str | None
    body_text: str | None
    sent: Number
    opened: Number
    opened_num: Number
    clicked: Number
    clicked_num: Number
    replied: Number
    replied_num: Number
    unsubscribed: Number
    unsubscribed_num: Number
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Step(Answered):
    """One step of a campaign (section "Step").

    Attributes:
        id: Starts with `step_`.
        order: Position of the step, from 1.
        status: `live`, or a text not seen before.
        type: `auto_email`, or a text not seen before.
        wait_time: Wait between steps, in milliseconds.
        left_to_send: Contacts that still have to go through the step.
        already_sent: Contacts that have completed the step.
        out_of: Contacts that go through the step in total.
        templates: Its variants.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        for step in (await client.campaigns.steps("camp_1")).data:
            print(step.order, step.wait_time / 86_400_000, "days;", step.left_to_send, "of", step.out_of, "left")
        # -> 1 0.0 days; 40 of 40 left
        # -> 2 3.0 days; 40 of 40 left
        ```
    """

    id: str
    order: Number
    status: StepStatus
    type: StepType
    wait_time: Number
    left_to_send: Number
    already_sent: Number
    out_of: Number
    templates: list[Template]
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class WorkspaceField(Answered):
    """A field that contacts of a workspace can have (section "Workspace field").

    Attributes:
        label: Display name.
        code: Name to use when creating a contact; `custom_<n>` for a custom field.
        searchable: Lower-case names for filtering.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        fields = await client.workspaces.fields()
        print([field.code for field in fields if field.label == "Plan"])  # -> ['custom_1']
        ```
    """

    label: str
    code: str
    searchable: list[str]
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Undecodable:
    """An item of a page that is not what the interface says, kept where the caller asked for it rather than for an error.

    Attributes:
        index: Its place in the page's `data`, from 0.
        id: Its id, where that could be read.
        error: Every fault, each with its path and the value's kind; only the first where `fields` is cut short.
        fields: Its readable members as they came; of a page above 1 MiB, once such items make up 1 MiB, its id and status alone.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", daily_limit="many")
        page = await client.mailboxes.list(undecodable="keep")
        print([(item.id, item.error) for item in page.undecodable])
        # -> [('mailbox_2', '$.data[1].daily_limit: expected number, got str')]
        ```
    """

    index: int
    id: str | None
    error: str
    fields: dict[str, Any] = attrs.field(factory=dict, repr=False)


@attrs.frozen(kw_only=True)
class Page(Answered, Generic[T]):
    """One page of a list (sections "List campaigns" and "List mailboxes").

    Attributes:
        status: Always `ok`.
        headers: Column names saved in the user's settings; they never filter the items.
        data: The items.
        total_found: Items found by the search, over all pages.
        current_page: The page this is.
        total_pages: Pages available.
        undecodable: Items that could not be read; filled only where the caller asked to keep them.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        page = await client.mailboxes.list(display=1)
        print(len(page.data), page.total_found, page.current_page, page.total_pages)  # -> 1 2 1 2
        ```
    """

    status: str
    headers: list[str]
    data: list[T]
    total_found: Number
    current_page: Number
    total_pages: Number
    undecodable: list[Undecodable] = attrs.field(factory=list, eq=False)
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class CampaignSteps(Answered):
    """The steps of a campaign (section "List steps of a campaign").

    Attributes:
        status: Always `ok`.
        days_left: Estimated days until the campaign completes.
        days_left_date: Expected completion as text, or a Unix timestamp; `Complete` when done.
        days_left_display: Summary of the days left.
        data: The steps, in the service's order.
        extra: Fields of the answer that this class does not know.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        print(len(steps.data), steps.days_left, steps.days_left_display)  # -> 2 5 5 days
        ```
    """

    status: str
    days_left: Number
    days_left_date: str | int | float
    days_left_display: str
    data: list[Step]
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)


@attrs.frozen(kw_only=True)
class WorkspaceFields(Answered):
    """The fields of a workspace (section "List fields of a workspace").

    Attributes:
        status: Always `ok`.
        data: Standard and custom fields.
        extra: Fields of the answer that this class does not know.
    """

    status: str
    data: list[WorkspaceField]
    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)
