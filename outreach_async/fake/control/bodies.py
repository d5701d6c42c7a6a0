"""What a request of the control plane may say, and what is answered.

Structs, and not attrs classes as elsewhere: msgspec reads them strictly, says where an error is, refuses unknown members, and
makes the schemas of the OpenAPI document from these very classes.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from outreach_async.fake.control.fault_bodies import FaultBody

Operation = Literal["list_campaigns", "list_mailboxes", "create_contact", "list_steps", "list_fields", "unknown"]
"""As faults name them."""

Count = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
"""How many are made up in one request."""

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Rates = dict[Literal["open", "click", "reply", "bounce", "unsubscribe", "interested"], _Share]
_Period = Annotated[float, msgspec.Meta(ge=0)]
_Span = _Period | Annotated[str, msgspec.Meta(pattern=r"^(\d+(\.\d+)?(ms|s|m|h|d|w))+$")]
_Whole = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Body(msgspec.Struct, forbid_unknown_fields=True):
    """What a request may say; anything else is refused."""


class Nothing(Body):
    """No member at all."""


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
    """The API key of a user; made up if not given."""

    workspaces: list[str]
    key: Annotated[str, msgspec.Meta(pattern="^key_.")] | None = None


class Mailboxes(Body):
    """Mailboxes, made up but for the fields given."""

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
    """What changes of a campaign; what is not given stays."""

    id: str
    status: _Text | None = None
    mailboxes: list[str] | None = None
    rates: _Rates | None = None


class MailboxChange(Body):
    """What changes of a mailbox: fields by name."""

    id: str
    fields: dict[str, Any]


class NewContacts(Body):
    """Contacts: how many to make up, or rows of `email` and fields by code."""

    workspace: str
    rows: Count | list[dict[str, str | None]]
    campaign: str | None = None
    owner_key: str | None = None


class Answers(Body):
    """What a contact does with an e-mail that is still to be sent; what is not said does not happen."""

    contact: _Text
    """Its e-mail, or its id."""
    step: Annotated[int, msgspec.Meta(ge=1)] = 1
    campaign: str | None = None
    opens_after: _Span | None = None
    """Seconds, or a text such as `90s`, `2h` or `1d12h`, from the sending; the others likewise."""
    clicks_after: _Span | None = None
    replies_after: _Span | None = None
    unsubscribes_after: _Span | None = None
    bounces_after: _Span | None = None
    interested: bool = False


class Script(Body):
    """Faults that the next requests of an operation meet, one each, in order."""

    operation: Operation
    faults: Annotated[list[FaultBody], msgspec.Meta(min_length=1)]


class Rule(Body):
    """A fault that strikes every request which meets all conditions."""

    fault: FaultBody
    operation: Operation | None = None
    containing: str | None = None
    """A text that the request's target or body must contain."""
    times: Annotated[int, msgspec.Meta(ge=1)] | None = None
    p: _Share | None = None
    """How probable it is that the fault strikes; drawn from the seed."""


class Period(Body):
    """How far time moves on."""

    weeks: _Period = 0.0
    days: _Period = 0.0
    hours: _Period = 0.0
    minutes: _Period = 0.0
    seconds: _Period = 0.0


class WhichContacts(Body):
    """Whose contacts are wanted, and perhaps the one that an e-mail finds."""

    workspace: str
    email: str | msgspec.UnsetType = msgspec.UNSET


class WhichRequests(Body):
    """Which entries of the journal are wanted."""

    operation: Operation | msgspec.UnsetType = msgspec.UNSET
    last: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100


class Answer(msgspec.Struct):
    """What is answered."""


class State(Answer):
    """What is being served."""

    seed: int
    now: str
    requests: int
    """How many reached the service."""
    unfired: int
    """Faults that have not struck yet."""
    openapi: str
    """Where the service is described."""
    control: str
    """Where the control plane is described."""


class Made(Answer):
    """Ids of what was added, in order; for an owner key the key."""

    ids: list[str]


class Time(Answer):
    """The fake's time: ISO 8601 in UTC, and Unix seconds."""

    now: str
    unix: float


class Contacts(Answer):
    """Stored contacts, in the order they were stored."""

    contacts: list[dict[str, Any]]


class Asked(Answer):
    """A request in the journal, with every owner key masked and no header fields; `status` is null if no answer came."""

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
    """The fault that struck."""


class Requests(Answer):
    """The journal: how many requests there were, and the last ones."""

    total: int
    counts: dict[str, int]
    statuses: dict[str, int]
    requests: list[Asked]


class Waiting(Answer):
    """Faults that were asked for and have not struck."""

    unfired: list[str]


class Readings(Answer):
    """Every knob's reading, and the readings that it knows by name."""

    behaviour: dict[str, Any]
    readings: dict[str, list[Any]]


class Detail(Answer):
    """What is wrong, where, and what to do about it."""

    message: str
    field: str | None
    remedy: str


class Refusal(Answer):
    """An error of the control plane."""

    error: Detail
