"""The bodies of the control plane's requests and responses.

They are structs, and not attrs classes as elsewhere: msgspec parses them strictly, locates errors, refuses unknown members, and
generates the schemas of the OpenAPI document from these classes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from outreach_async.fake.control.fault_bodies import FaultBody

Operation = Literal["list_campaigns", "list_mailboxes", "create_contact", "list_steps", "list_fields", "unknown"]
"""Operations, as faults name them."""

Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
"""Number of items to generate in one request."""

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Rates = dict[Literal["open", "click", "reply", "bounce", "unsubscribe", "interested"], _Share]
_Period = Annotated[float, msgspec.Meta(ge=0)]
_Span = _Period | Annotated[str, msgspec.Meta(pattern=r"^(\d+(\.\d+)?(ms|s|m|h|d|w))+$")]
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """A request body. Unknown members are refused."""


class Nothing(Body):
    """A body without members."""


class Workspace(Body):
    """A workspace, as `FakeService.add_workspace` takes it."""

    id: Annotated[str, msgspec.Meta(pattern="^space_.")] | None = None
    custom_fields: list[_Text] | dict[Annotated[str, msgspec.Meta(pattern=r"^custom_[1-9]\d{0,8}$")], _Text] = msgspec.field(
        default_factory=list
    )
    extra_fields: dict[_Text, _Text] = msgspec.field(default_factory=dict)
    campaign_headers: list[str] | None = None
    mailbox_headers: list[str] | None = None


class OwnerKey(Body):
    """The API key of a user; generated if `key` is null."""

    workspaces: list[str]
    key: Annotated[str, msgspec.Meta(pattern="^key_.")] | None = None


class Mailboxes(Body):
    """Mailboxes, generated except for the given fields."""

    workspace: str
    count: Count = 1
    trouble: _Share = 0.0
    fields: dict[str, Any] = msgspec.field(default_factory=dict)


class Campaign(Body):
    """A campaign, as `FakeService.add_campaign` takes it."""

    workspace: str
    id: Annotated[str, msgspec.Meta(pattern="^camp_.")] | None = None
    name: str = "Campaign"
    status: str = "draft"
    mailboxes: list[str] = msgspec.field(default_factory=list)
    steps: list[str | dict[str, Any]] = msgspec.field(default_factory=list)
    contacts: _Whole | None = None
    bounces_num: _Whole | None = None
    interested_num: _Whole | None = None
    created: _Whole | None = None
    last_activity: _Period | Literal["auto"] | None = "auto"
    rates: _Rates | None = None


class CampaignChange(Body):
    """Changes of a campaign. Omitted members stay as they are."""

    id: str
    status: _Text | None = None
    mailboxes: list[str] | None = None
    rates: _Rates | None = None


class MailboxChange(Body):
    """Changes of a mailbox: fields by name."""

    id: str
    fields: dict[str, Any]


class NewContacts(Body):
    """Contacts: a number to generate, or rows of `email` and fields by code."""

    workspace: str
    rows: Count | list[dict[str, str | None]]
    campaign: str | None = None
    owner_key: str | None = None


class Answers(Body):
    """The actions of a contact on an e-mail that is still to be sent. Omitted actions do not happen."""

    contact: _Text
    """The contact's e-mail address or id."""
    step: Annotated[int, msgspec.Meta(ge=1)] = 1
    campaign: str | None = None
    opens_after: _Span | None = None
    """Seconds from the sending, or a string such as `90s`, `2h` or `1d12h`; the same for the others."""
    clicks_after: _Span | None = None
    replies_after: _Span | None = None
    unsubscribes_after: _Span | None = None
    bounces_after: _Span | None = None
    interested: bool = False


class Script(Body):
    """Faults for the next requests of an operation, one each, in order."""

    operation: Operation
    faults: Annotated[list[FaultBody], msgspec.Meta(min_length=1)]


class Rule(Body):
    """A fault that strikes every request that meets all conditions."""

    fault: FaultBody
    operation: Operation | None = None
    containing: str | None = None
    """A string that the request's target or body must contain."""
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    p: _Share | None = None
    """Probability that the fault strikes, drawn from the seed."""


class Period(Body):
    """The time to advance by."""

    weeks: _Period = 0.0
    days: _Period = 0.0
    hours: _Period = 0.0
    minutes: _Period = 0.0
    seconds: _Period = 0.0


class WhichContacts(Body):
    """The workspace whose contacts to list, and optionally the e-mail address of one of them."""

    workspace: str
    email: str | msgspec.UnsetType = msgspec.UNSET


class WhichRequests(Body):
    """The entries of the request log to list."""

    operation: Operation | msgspec.UnsetType = msgspec.UNSET
    last: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100


class Answer(msgspec.Struct):
    """A response body."""


class State(Answer):
    """The state of the server."""

    seed: int
    now: str
    requests: int
    """Number of requests that reached the service."""
    unfired: int
    """Number of faults that have not struck yet."""
    openapi: str
    """URL of the service's OpenAPI document."""
    control: str
    """URL of the control plane's OpenAPI document."""


class Made(Answer):
    """Ids of the added items in order; for an owner key, the key."""

    ids: list[str]


class Time(Answer):
    """The fake's time: ISO 8601 in UTC, and Unix seconds."""

    now: str
    unix: float


class Contacts(Answer):
    """Stored contacts, in the order of their creation."""

    contacts: list[dict[str, Any]]


class Asked(Answer):
    """A request in the log. Owner keys are masked, header fields are omitted, and `status` is null if no response was sent."""

    number: int
    operation: Operation
    method: str
    target: str
    json: Any
    status: int | None
    hints: list[str]
    served: bool
    request_id: str | None
    at: float
    fault: str | None
    """The fault that struck; null if none did."""


class Requests(Answer):
    """The request log: the number of requests, and the last ones."""

    total: int
    counts: dict[str, int]
    statuses: dict[str, int]
    requests: list[Asked]


class Waiting(Answer):
    """Faults that have not struck yet."""

    unfired: list[str]


class Readings(Answer):
    """The value of every knob, and the named values that it accepts."""

    behaviour: dict[str, Any]
    readings: dict[str, list[Any]]


class Detail(Answer):
    """What is wrong, where, and how to correct it."""

    message: str
    field: str | None
    remedy: str


class Refusal(Answer):
    """An error of the control plane."""

    error: Detail
