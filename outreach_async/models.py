"""Models of the service's resources and new contacts.

They are frozen attrs classes with slots, and with the wire format's field
names. Every response model keeps unknown fields in `extra`, a plain dict
that equality and hash ignore. Numbers are `int` or `float`, as the service
sent them. Relative times such as `age` stay strings.

A status or a kind is a member of an enumeration that the service may
extend: an unknown string becomes a new member. Compare members with `==`,
also with strings. Use the enumerations in your annotations:

```python
import anyio
from outreach_async import OutreachClient
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.models import Mailbox, MailboxStatus


def with_status(mailboxes: list[Mailbox], status: MailboxStatus) -> list[str]:
    return [mailbox.email for mailbox in mailboxes if mailbox.status == status]


async def main() -> None:
    fake = FakeService()
    space = fake.add_workspace()
    fake.add_mailbox(space, email="ada@north.example")
    async with OutreachClient(transport=FakeTransport(fake), workspace=space) as client:
        page = await client.mailboxes.list()
        print(with_status(page.data, MailboxStatus.ACTIVE))  # -> ['ada@north.example']


anyio.run(main)
```
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

import attrs

from outreach_async._display import MAX_REPR, Serialized, Tabular, TabularReport, show_list, show_object
from outreach_async._wire_words import (
    FAILED_OUTCOMES,
    ID_PREFIXES,
    MAX_MAILBOX_DISPLAY,
    RESERVED_FIELDS,
    STANDARD_FIELDS,
    UNSET,
    CampaignStatus,
    MailboxStatus,
    MailboxType,
    OpenEnum,
    Outcome,
    StepStatus,
    StepType,
    TemplateStatus,
    Unset,
)
from outreach_async.errors import InvalidRequest, shorten

__all__ = [
    "FAILED_OUTCOMES",
    "ID_PREFIXES",
    "MAX_MAILBOX_DISPLAY",
    "RESERVED_FIELDS",
    "RUN_TARGET",
    "STANDARD_FIELDS",
    "Campaign",
    "CampaignStatus",
    "CampaignSteps",
    "FieldList",
    "Mailbox",
    "MailboxStatus",
    "MailboxType",
    "Number",
    "Page",
    "ResponseInfo",
    "Step",
    "StepStatus",
    "StepType",
    "TabularReport",
    "Template",
    "TemplateStatus",
    "Undecodable",
    "WorkspaceField",
]

T = TypeVar("T")

Number: TypeAlias = int | float
"""A number of a response: an `int` or a `float`, as the service sent it.

Example:
    ```python
    limit: Number = (await client.mailboxes.list()).data[0].daily_limit
    print(limit > 0)  # -> True
    ```
"""

LOCAL_FIELDS: Final = frozenset({"_extra", "_link", "_response", "undecodable"})  # attributes that the library adds
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _to_datetime(field: str, seconds: Number) -> datetime:
    """Return a Unix time as a UTC datetime. Times before 1970 work on every platform, unlike with `datetime.fromtimestamp`."""
    try:
        return _EPOCH + timedelta(seconds=seconds)
    except (ValueError, OverflowError):
        message = f"{field}: expected a Unix time in the years 1 to 9999, got {seconds}; use the number in {field}"
        raise ValueError(message) from None


def _date_or_none(value: str | Number) -> datetime | None:
    return None if isinstance(value, str) else _to_datetime("days_left_date", value)


@attrs.frozen(kw_only=True, repr=False)
class ResponseModel(Serialized):
    """Base class of response models, which keep unknown fields."""

    # An empty `extra` is created on access: an empty dict in every object would waste memory.

    _extra: dict[str, Any] | None = attrs.field(default=None, alias="extra", eq=False, repr=False)

    @property
    def extra(self) -> dict[str, Any]:
        """Response fields that this class does not define."""
        return {} if self._extra is None else self._extra

    def to_dict(self) -> dict[str, Any]:
        """Return known and unknown fields as JSON, by the service's names.

        Example:
            ```python
            print((await client.campaigns.list()).data[0].to_dict()["replies_num"])  # -> 0
            ```
        """
        names = (field.name for field in attrs.fields(type(self)) if field.name not in LOCAL_FIELDS)
        return {**{name: _to_json_value(getattr(self, name)) for name in names}, **self.extra}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict()` as a JSON string.

        Example:
            ```python
            field = (await client.workspaces.fields())[0]
            print(field.to_json())  # -> {"label": "Email", "code": "email", "searchable": ["email"]}
            ```
        """
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def __repr__(self) -> str:
        return show_object(self)

    def _table(self) -> Sequence[Any]:
        return [{"field": name, "value": value} for name, value in self.to_dict().items()]


def _to_json_value(value: Any) -> Any:
    if isinstance(value, ResponseModel):
        return value.to_dict()
    if isinstance(value, list):
        return list(map(_to_json_value, value))
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    return str(value) if isinstance(value, OpenEnum) else value


@attrs.frozen
class ResponseInfo:
    """The status and the header fields of a successful response.

    Attributes:
        status: The HTTP status code.
        headers: Header fields by lower-case name. Secrets of the client
            are masked.

    Example:
        ```python
        created = await client.contacts.create(email="ann@company.example")
        print(created.response.status, created.response.request_id == created.request_id)  # -> 201 True
        ```
    """

    status: int
    headers: Mapping[str, str] = attrs.field(repr=False)

    @property
    def request_id(self) -> str | None:
        """The response's `x-request-id`; `None` without one."""
        return self.headers.get("x-request-id")


@attrs.frozen(kw_only=True, repr=False)
class ResponseWithInfo(ResponseModel):
    """Base class of what a call returns."""

    _response: ResponseInfo | None = attrs.field(default=None, eq=False, repr=False)

    @property
    def response(self) -> ResponseInfo | None:
        """Status and headers of the response; `None` if no call returned it."""
        return self._response


@attrs.frozen(kw_only=True, repr=False)
class Campaign(ResponseModel):
    """A campaign in the campaign list (API documentation: "Campaign").

    Attributes:
        id: Id of the campaign; starts with `camp_`.
        status: `draft`, `live`, `paused` or an unknown string.
        name: Campaign name.
        steps: Number of steps.
        contacts: Number of contacts.
        opens, replies, bounces: Rate, in percent.
        opens_num, replies_num, bounces_num, interested_num: Count;
            `interested_num` counts interested replies.
        initials, interested: A number that the API documentation does not
            explain; `interested` looks like a percentage.
        days_left: Estimated days until the campaign ends.
        days_left_date: Estimated end of the campaign, as a Unix timestamp
            or a string; `Complete` if the campaign has ended.
        days_left_display, last_activity: Human-readable text: the days
            left, or the time since the last activity.
        created: Creation time, as a Unix timestamp.

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

    @property
    def created_datetime(self) -> datetime:
        """`created` as a UTC datetime; `ValueError` if it is out of range."""
        return _to_datetime("created", self.created)

    @property
    def days_left_datetime(self) -> datetime | None:
        """`days_left_date` in UTC; `None` if text, `ValueError` out of range."""
        return _date_or_none(self.days_left_date)


@attrs.frozen(kw_only=True, repr=False)
class Mailbox(ResponseModel):
    """A synced sending account (API documentation: "Mailbox").

    The units are inferred: the documentation states only the names and
    types of the fields.

    Attributes:
        id: Id of the mailbox; starts with `mailbox_`.
        status: `active` or an unknown string.
        email: The sending address.
        sender_name: The display name of the sender.
        campaigns: Number of campaigns.
        daily_limit: Maximum number of e-mails per day.
        spf, dkim, dmarc: Whether the domain publishes SPF, signs with
            DKIM, or publishes DMARC.
        blacklists: Number of blacklists that list the mailbox.
        sent_today, sent_30days, sent_90days: E-mails sent today, or in so
            many days.
        bounced_30days: E-mails bounced in 30 days.
        opened_14days, avg_open_rate, avg_click_rate: Rate, in percent:
            opened in 14 days, and on average opened or clicked.
        age, created, last_activity: Time since the creation or the last
            activity, as human-readable text.
        type: `Google`, `SMTP & IMAP` or an unknown string.
        domain_ip: IP address of the domain; `None` if it has none.
        server_ip: IP address of the sending server.
        created_at: Creation time, as a Unix timestamp.

    Example:
        ```python
        print([(mailbox.email, mailbox.type.value) async for mailbox in client.mailboxes.list(max_items=1)])
        # -> [('ada@north.example', 'Google')]
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

    @property
    def created_datetime(self) -> datetime:
        """`created_at` as a UTC datetime; `ValueError` if it is out of range."""
        return _to_datetime("created_at", self.created_at)


@attrs.frozen(kw_only=True, repr=False)
class Template(ResponseModel):
    """One variant of a step's e-mail (API documentation: "Template").

    Attributes:
        id: Id of the template; starts with `temp_`, or with
            `personalized_step_` for a personalized template.
        test_letter: Letter of the variant: `A`, `B`, ..., or `PER` for a
            personalized template.
        name: Template name.
        status: `live` or an unknown string.
        new_thread: Whether the e-mail starts a new thread; `None` for a
            personalized template.
        subject: Subject line; `None` for a personalized template and for
            follow-ups in the same thread.
        body_text: Body text, which may contain placeholders in double
            curly braces; may be `None`.
        sent: E-mails sent.
        opened, clicked, replied, unsubscribed: Rate, in percent.
        opened_num, clicked_num, replied_num, unsubscribed_num: Count.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        print([template.test_letter for template in steps.data[0].templates])  # -> ['A', 'B']
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


@attrs.frozen(kw_only=True, repr=False)
class Step(ResponseModel):
    """One step of a campaign (API documentation: "Step").

    Attributes:
        id: Id of the step; starts with `step_`.
        order: Position of the step, from 1.
        status: `live` or an unknown string.
        type: `auto_email` or an unknown string.
        wait_time: Wait between steps, in milliseconds.
        left_to_send: Number of contacts that have yet to pass the step.
        already_sent: Number of contacts that have completed the step.
        out_of: Total number of contacts that go through the step.
        templates: Templates of the step.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        print([(step.order, step.wait_time / 86_400_000) for step in steps.data])  # -> [(1, 0.0), (2, 3.0)]
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


@attrs.frozen(kw_only=True, repr=False)
class WorkspaceField(ResponseModel):
    """A field of contacts (API documentation: "Workspace field").

    Attributes:
        label: Display name.
        code: Name to use in a new contact; `custom_<n>` for custom fields.
        searchable: Lower-case names for filtering.

    Example:
        ```python
        fields = await client.workspaces.fields()
        print([field.code for field in fields if field.label == "Plan"])  # -> ['custom_1']
        ```
    """

    label: str
    code: str
    searchable: list[str]


@attrs.frozen(kw_only=True, repr=False)
class Undecodable:
    """A list item that does not match the service's API documentation.

    Pages contain such items only if the caller passed
    `undecodable="keep"`. If a response is larger than 1 MiB, only its
    first undecodable items are kept in full, up to 1 MiB in total. For the
    other undecodable items, `error` contains only the first fault, and
    `fields` contains only `id` and `status`.

    Attributes:
        index: Index of the item in the `data` of the response, from 0.
        id: Id of the item; `None` if it could not be read.
        error: Faults of the item, each with its path and the type of the
            value.
        fields: Keys and values of the item, unchanged.

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

    def __repr__(self) -> str:
        return show_object(self)


@attrs.frozen(kw_only=True, repr=False)
class Page(ResponseWithInfo, Tabular, Generic[T]):
    """One page of a list (sections "List campaigns" and "List mailboxes").

    Iterate over it for its items, which `len` counts.

    Attributes:
        status: Always `ok`.
        headers: Column names saved in the user's settings; they do not
            filter the items.
        data: The items, without those in `undecodable`.
        total_found: Number of items on all pages together, as counted by
            the service.
        current_page: Number of this page.
        total_pages: Number of pages available.
        undecodable: Items that do not match the service's API
            documentation; always empty without `undecodable="keep"`.

    Example:
        ```python
        page = await client.mailboxes.list(display=1)
        print(len(page), page.total_found, page.current_page, page.total_pages)  # -> 1 2 1 2
        ```
    """

    status: str
    headers: list[str]
    data: list[T]
    total_found: Number
    current_page: Number
    total_pages: Number
    undecodable: list[Undecodable] = attrs.field(factory=list, eq=False)
    _link: Any = attrs.field(default=None, eq=False, repr=False)  # a `pagination._WalkLink`

    def __iter__(self) -> Iterator[T]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        """Return `True`, also for a page without items."""
        return True

    @property
    def has_next(self) -> bool:
        """Whether `next_page()` requests a page; past the end, it is `None`."""
        has_next: bool = self._require_link().has_next(self)
        return has_next

    async def next_page(self) -> Page[T] | None:
        """Fetch the page after this one; `None` at the end of the list.

        A page that was fetched once is kept.

        Example:
            ```python
            page = await client.mailboxes.list(display=1)
            second = await page.next_page()
            print(second.current_page, second.has_next, await second.next_page())  # -> 2 False None
            ```
        """
        page: Page[T] | None = await self._require_link().next_page(self)
        return page

    def _table(self) -> Sequence[Any]:
        return self.data

    def _require_link(self) -> Any:
        if self._link is None:
            raise InvalidRequest("page: expected a page that a client has returned, got a copy; list it again with page=")
        return self._link


@attrs.frozen(kw_only=True, repr=False)
class CampaignSteps(ResponseWithInfo, Tabular):
    """A campaign's steps (API documentation: "List steps of a campaign").

    Attributes:
        status: Always `ok`.
        days_left: Estimated days until the campaign completes.
        days_left_date: Estimated end of the campaign, as a string;
            `Complete` if the campaign has ended. A Unix timestamp, as in
            the list of campaigns, is accepted too.
        days_left_display: The days left, as human-readable text.
        data: The steps, in the service's order.

    Example:
        ```python
        steps = await client.campaigns.steps("camp_1")
        print(len(steps.data), steps.days_left, steps.days_left_display)  # -> 2 4 4 days
        ```
    """

    status: str
    days_left: Number
    days_left_date: str | int | float
    days_left_display: str
    data: list[Step]

    def _table(self) -> Sequence[Any]:
        return self.data

    @property
    def days_left_datetime(self) -> datetime | None:
        """`days_left_date` in UTC; `None` if text, `ValueError` out of range."""
        return _date_or_none(self.days_left_date)


@attrs.frozen(kw_only=True, repr=False)
class WorkspaceFields(ResponseWithInfo):
    """The response with the fields of a workspace; `client.workspaces.fields()` returns its `data`."""

    status: str
    data: list[WorkspaceField]


class FieldList(list[WorkspaceField], Tabular):
    """The fields of a workspace, with the `response` that listed them.

    Example:
        ```python
        fields = await client.workspaces.fields()
        print(len(fields), fields.response.status)  # -> 37 200
        ```
    """

    response: ResponseInfo | None = None

    def __repr__(self) -> str:
        return show_list(self)

    def _table(self) -> Sequence[Any]:
        return self


OptionalString: TypeAlias = str | Unset | None


@attrs.frozen(kw_only=True, repr=False)
class CreateContactResponse(ResponseWithInfo):
    """The answer to the creation of a contact, as the service sends it."""

    status: Outcome
    id: str | None
    details: str | None


@attrs.frozen(kw_only=True, repr=False)
class CreatedContact(CreateContactResponse):
    """The result of creating a contact (API documentation: "Create contact").

    Attributes:
        status: The status in the last response: `added`, `skipped`,
            `overwriten`, `updated_missing_fields` or an unknown string.
        id: Id of the contact; starts with `contact_`. `None` if the
            contact was skipped, or if the id contained the owner key or
            came from an earlier response.
        details: `None` on success; a short string if the contact was
            skipped as a duplicate.
        possible: Every outcome that is consistent with the responses.
            There can be more than one after a lost response: if a retry
            finds the contact, an earlier attempt of the same call may have
            added it. Nor is `added` certain if a server or proxy has sent
            an earlier response again, as its id shows.
        request_id: The response's `x-request-id`; `None` if the response
            has none.
        attempts: Number of attempts.

    Example:
        ```python
        created = await client.contacts.create(NewContact("bo@acme.example"))
        print(created.status, created.certain)  # -> skipped True
        ```
    """

    possible: frozenset[Outcome]
    request_id: str | None = None
    attempts: int = 1

    @property
    def certain(self) -> bool:
        """True if `status` is known to be the effect of this call."""
        return len(self.possible) == 1


def possible_outcomes(status: Outcome, *, maybe_applied: bool) -> frozenset[Outcome]:
    """Return the outcomes that are consistent with the responses: an earlier attempt may have added the contact."""
    return frozenset({status, Outcome.ADDED}) if maybe_applied else CERTAIN_OUTCOMES.get(status) or frozenset({status})


CERTAIN_OUTCOMES: Final = {outcome: frozenset({outcome}) for outcome in Outcome}  # shared, because nearly every outcome needs one


class Target(NamedTuple):
    """Where a contact goes: its workspace, and the campaign it is added to.

    See `create_many` for how a row names its target. If the service does
    not know the target of a row (403 or 404), the rows that name it are
    `rejected`, and the others are sent; an unknown target of the run
    itself stops the run.

    Rates and pauses are those of the client, whatever the targets. Rows
    with one e-mail are sent one after the other, also to different
    campaigns. With `duplicates="skip"`, the service leaves an existing
    contact as it is: pass another policy to add it to further campaigns. A
    journal is not resumed with rows of other targets; a ledger has an
    entry for each.

    Attributes:
        workspace: Id of the workspace.
        campaign: Id of the campaign; in a row, also its name. `None` in an
            outcome means no campaign.

    Example:
        ```python
        rows = [
            {"email": "ann@company.example", "campaign": "Spring"},
            (NewContact("cy@company.example"), Target()),
        ]
        async with client.contacts.create_many(rows, order="input") as outcomes:
            print([outcome.target.campaign async for outcome in outcomes])  # -> ['camp_1', None]
        ```
    """

    workspace: str | None = None
    campaign: str | None = None


RUN_TARGET: Final = Target()
"""The target of a row that names none: the workspace and the campaign of the run.

Example:
    ```python
    outcomes = client.contacts.create_many([{"email": "bo@acme.example"}])
    async with outcomes as found:
        print([outcome.target == RUN_TARGET async for outcome in found])  # -> [False]
    ```
"""
standard_values: Final = attrgetter(*STANDARD_FIELDS)


def _copy_mapping(value: Any) -> Any:  # later changes by the caller do not affect the contact
    return dict(value) if type(value) is dict or isinstance(value, Mapping) else value  # a check of the class alone is faster


@attrs.frozen(repr=False)
class NewContact:
    """A contact to create (API documentation: "Create contact").

    Only the fields that you set are sent, under the same names; `None` is
    sent as null. The constructor checks nothing: a client checks each
    contact before sending it. In a bulk run, an invalid contact does not
    affect other rows.

    Attributes:
        email: E-mail address. The service detects duplicates by e-mail and
            workspace.
        first_name: First name. The others are named likewise; a `state` or
            `country` may be abbreviated.
        custom: Custom variables by code, such as `{"custom_1": "x"}`;
            `client.workspaces.fields()` lists the codes.
        extra: Values of fields that are neither standard nor custom, by
            code; `client.workspaces.fields()` lists the codes.

    Example:
        ```python
        ann = NewContact("ann@company.example", first_name="Ann", custom={"custom_1": "gold"})
        print((await client.contacts.create(ann)).status)  # -> added
        ```
    """

    email: str
    first_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    middle_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    last_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    full_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    nickname: OptionalString = attrs.field(default=UNSET, kw_only=True)
    title: OptionalString = attrs.field(default=UNSET, kw_only=True)
    mobile_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    work_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    home_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    voip_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    other_phone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    company_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    company_formal_name: OptionalString = attrs.field(default=UNSET, kw_only=True)
    company_industry: OptionalString = attrs.field(default=UNSET, kw_only=True)
    address_1: OptionalString = attrs.field(default=UNSET, kw_only=True)
    address_2: OptionalString = attrs.field(default=UNSET, kw_only=True)
    city: OptionalString = attrs.field(default=UNSET, kw_only=True)
    zip: OptionalString = attrs.field(default=UNSET, kw_only=True)
    region: OptionalString = attrs.field(default=UNSET, kw_only=True)
    state: OptionalString = attrs.field(default=UNSET, kw_only=True)
    country: OptionalString = attrs.field(default=UNSET, kw_only=True)
    timezone: OptionalString = attrs.field(default=UNSET, kw_only=True)
    gender: OptionalString = attrs.field(default=UNSET, kw_only=True)
    occupation: OptionalString = attrs.field(default=UNSET, kw_only=True)
    stack_overflow: OptionalString = attrs.field(default=UNSET, kw_only=True)
    website: OptionalString = attrs.field(default=UNSET, kw_only=True)
    website_2: OptionalString = attrs.field(default=UNSET, kw_only=True)
    website_3: OptionalString = attrs.field(default=UNSET, kw_only=True)
    personal_note: OptionalString = attrs.field(default=UNSET, kw_only=True)
    personal_note_2: OptionalString = attrs.field(default=UNSET, kw_only=True)
    personal_note_3: OptionalString = attrs.field(default=UNSET, kw_only=True)
    job_start_date: OptionalString = attrs.field(default=UNSET, kw_only=True)
    graduation_date: OptionalString = attrs.field(default=UNSET, kw_only=True)
    school: OptionalString = attrs.field(default=UNSET, kw_only=True)
    degree: OptionalString = attrs.field(default=UNSET, kw_only=True)
    _custom: Mapping[str, str | None] = attrs.field(
        factory=dict, alias="custom", converter=_copy_mapping, hash=False, kw_only=True
    )
    _extra: Mapping[str, str | None] = attrs.field(factory=dict, alias="extra", converter=_copy_mapping, hash=False, kw_only=True)

    @property
    def custom(self) -> Mapping[str, str | None]:
        """Custom variables by code."""
        return self._custom

    @property
    def extra(self) -> Mapping[str, str | None]:
        """Values of other fields by code."""
        return self._extra

    def standard(self) -> dict[str, str | None]:
        """Return the values of the standard fields set, by wire name.

        Example:
            ```python
            print(NewContact("ann@company.example", city="Lyon").standard())  # -> {'city': 'Lyon'}
            ```
        """
        return {name: value for name, value in zip(STANDARD_FIELDS, standard_values(self), strict=True) if value is not UNSET}

    def to_dict(self) -> dict[str, str | None]:
        """Return the contact in a create request: the e-mail and set fields.

        Example:
            ```python
            print(NewContact("ann@company.example", custom={"custom_1": "gold"}).to_dict())
            # -> {'email': 'ann@company.example', 'custom_1': 'gold'}
            ```
        """
        names = (
            () if type(self) is NewContact else [name for name in attrs.fields_dict(type(self)) if name not in _CONTACT_FIELDS]
        )
        more = {name: value for name in names if (value := getattr(self, name)) is not UNSET}
        return {"email": self.email, **self.standard(), **more, **self.custom, **self.extra}

    def to_json(self, *, indent: int | None = None) -> str:
        """Return `to_dict()` as a JSON string.

        Example:
            ```python
            print(NewContact("ann@company.example").to_json())  # -> {"email": "ann@company.example"}
            ```
        """
        return json.dumps(self.to_dict(), indent=indent, ensure_ascii=False)

    def __repr__(self) -> str:
        pairs: dict[str, Any] = dict(self.standard())
        pairs |= {name: value for name, value in (("custom", self.custom), ("extra", self.extra)) if value}
        shown = f"NewContact({', '.join([repr(self.email), *(f'{name}={value!r}' for name, value in pairs.items())])})"
        return shorten(shown, MAX_REPR - 3)


_CONTACT_FIELDS: Final = attrs.fields_dict(NewContact).keys()
