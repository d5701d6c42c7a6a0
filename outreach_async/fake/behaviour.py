"""What the fake does where the interface is silent: one typed value, a knob for every reading that a client can notice.

What the interface states has no knob. Each knob names its rule; its default is the reading that is easiest to defend.

What is left open and has no knob either is read in one way:

| rule | what | the fake |
|---|---|---|
| W5 | ids | prefix and 16 hexadecimal digits, the same for the same seed and calls |
| W6 | unknown path | 404 |
| W6 | another method of a known path, HEAD too | 405 with `Allow` |
| W6 | one slash at the end of a path | as without it |
| W7 | a creation without `content-type: application/json` | accepted, with a hint |
| W8 | a body that is no JSON object, or has NaN, a member twice or a lone surrogate | 400 |
| W8 | a body over 1 MiB | 413 |
| W10 | times | Unix seconds; `wait_time` in milliseconds, as stated |
| W11 | headers of every answer | `content-type: application/json` and an `x-request-id` of its own |
| W12 | `workspace` as a parameter of list-steps | ignored: campaign ids are global |
| A2 | an owner key that is known, but not for the workspace | 403; an unknown one 401 |
| A4 | several things wrong at once | the first of JSON, presence, type, id, key, workspace, campaign, fields, values |
| P4 | a required parameter that is missing or empty | 400 with its name |
| P5 | digits of a number | 1 to 9 ASCII digits, leading zeros too; no sign, blank or fraction |
| P9 | `total_pages` of an empty list | 0 |
| P10 | items created at the same time | in the order in which they were added |
| P11 | pages while items are added | each page is of its own instant: rows may shift |
| P12 | a parameter given twice | 400 |
| P12 | an unknown parameter | ignored, with a hint |
| P13 | an unknown workspace | 404; an id without its prefix 400 |
| P14 | `headers` | the columns of the interface, or as seeded; items have every field anyway |
| C4, C15 | the stored e-mail | as sent, trimmed; `overwrite` stores the new spelling |
| C5 | the owner of a duplicate | stays, whoever overwrites it |
| C8, C9 | an option of another kind or value, such as `"true"` or `Skip` | 400 |
| C13 | a field that is blank | is missing to `update_missing_fields`, which never stores a blank value |
| C14 | null for a field of a new contact | as not sent; a number or a list 400 |
| C17 | a campaign that is unknown, or of another workspace | 404, and nothing is stored |
| C18 | campaigns that take contacts | all, whatever their status; a finished one opens again |
| C20 | a custom code of another form, such as `custom_x` or `custom_01` | 400 |
| C22 | `full_name` | not made of its parts, nor the parts of it |
| C25 | a creation that is sent again after its answer was lost | a duplicate; `skip` does not give its id |
| C27 | dates under strict validation | `YYYY-MM-DD`, `YYYY-MM`, `YYYY` and `MM/DD/YYYY` |
| C28 | strict validation of a duplicate | before it is found to be one: 422, with every fault listed |
| T2 | order of steps and templates | steps by `order`; A, B, ..., then PER, as seeded |
| T4, T5 | `out_of` | `left_to_send` + `already_sent`, without who left early; who joins is in every step's |
| T7 | which template is sent | by turns among those of a step that are live |
| T8 | percentages | of the e-mails sent, rounded half to even; 0 where none was sent |
| T9, T10 | counts of opens, clicks, replies and unsubscribes | once per e-mail; a campaign's are sums over its templates |
| T11 | `initials` and `interested` | contacts that got step 1; percentage of `interested_num` |
| T12 | `wait_time` | from the send of the step before; that of the first step from joining |
| T13 | `days_left` | what is left over what its mailboxes can send a day, plus the waits; 1 or more |
| T14 | a campaign without contacts | 0 days, `Not started` in the list and in the steps |
| T15 | a campaign that no mailbox sends for | 9999 days, `Unknown` in the list and in the steps |
| T16 | dates as text | `Jan 4, 2026`, in UTC and English |
| T17 | the end of a draft or paused campaign | as if it were live |
| T18 | relative texts | `just now`, `5 minutes ago`, `1 day ago`, `3 months ago`, `Never` |
| T19 | statuses of campaigns, steps and mailboxes | those that the interface shows; others by seeding alone |
| T19 | transitions | any to any, by `set_campaign` alone; only `live` campaigns, steps and templates send |
| B2 | windows of a mailbox | `sent_today` is of the UTC day; 30 and 90 days include today |
| B3 | `opened_14days` and `bounced_30days` | of the e-mails sent in these days, whenever they are opened or bounce |
| B4 | `campaigns` of a mailbox | all that use it, whatever their status |
| B5 | `daily_limit` | one for all campaigns of the mailbox |
| F2 | order of all-fields | `email`, standard fields as in the interface, further ones as seeded, custom ones by number |
| E2 | statuses of refusals | 400 malformed, 401 and 403 keys, 404 ids, 405, 413, 422 strict validation, 429; no 5xx |
| E3 | hints at what may have been meant | in the header `x-fake-hint` and the journal, never in a body |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import attrs

from outreach_async.fake.refusals import RENDERERS, ErrorRenderer, RendererName

EmailKey = Literal["lower", "exact", "domain_lower", "gmail"]
PastEnd = Literal["empty", "clamp", "error"]
OverMax = Literal["reject", "clamp", "serve"]
Order = Literal["oldest", "newest", "last_activity"]
Numbers = Literal["int_when_whole", "float", "mixed"]

READINGS: Final[dict[str, tuple[Any, ...]]] = {
    "email_key": ("lower", "exact", "domain_lower", "gmail"),
    "created_status": (201, 200),
    "first_page": (1, 0),
    "past_end": ("empty", "clamp", "error"),
    "over_max": ("reject", "clamp", "serve"),
    "campaign_max_display": (None, 2000, 100),
    "bad_number": ("reject", "default"),
    "owner_key": ("check", "prefix_only", "off"),
    "unknown_custom": ("reject", "ignore", "store"),
    "unknown_body": ("ignore", "reject", "store"),
    "skip_enrols": (False, True),
    "overwrite_unsent": ("keep", "clear"),
    "overwrite_blank": ("clear", "keep", "store"),
    "missing_campaign": ("reject", "null"),
    "strict_fields": ("all", frozenset[str]()),
    "reenrol": ("noop", "restart", "error"),
    "numbers": ("int_when_whole", "float", "mixed"),
    "list_date": ("timestamp", "text", "mixed"),
    "order": ("oldest", "newest", "last_activity"),
    "percent_digits": (2, 1, 0),
    "error_renderer": tuple(RENDERERS),
}
"""The readings of each knob, the default first. `auth`, `rate_limit` and `max_in_flight` take values of their own."""

# Knobs that take more than the readings named, and what they take.
_ALSO: Final[dict[str, Callable[[Any], bool]]] = {
    "email_key": callable,
    "created_status": lambda value: (
        isinstance(value, Mapping) and set(value.values()) <= {200, 201}
    ),  # the interface names the two
    "campaign_max_display": lambda value: type(value) is int and value > 0,
    "strict_fields": lambda value: isinstance(value, frozenset),
    "error_renderer": callable,
}


def _texts(values: Iterable[str]) -> frozenset[str]:
    return frozenset(values)


@attrs.frozen
class HeaderAuth:
    """Ask for a credential in a header (rule A3); without it every operation answers 401.

    Attributes:
        header: The header's name, lower case.
        scheme: The word before the credential; empty for none.
        tokens: Credentials that are accepted; if empty, every owner key of the service.

    Example:
        ```python
        fake.behaviour = Behaviour(auth=HeaderAuth())
        allowed = OutreachClient(transport=FakeTransport(fake), workspace="space_1", headers={"authorization": "Bearer key_1"})
        print(len(await allowed.workspaces.fields()))  # -> 37
        ```
    """

    header: str = "authorization"
    scheme: str = "Bearer"
    tokens: frozenset[str] = attrs.field(default=frozenset(), converter=_texts, repr=False)


@attrs.frozen
class RateLimit:
    """Answer 429 to more than `limit` requests in a window of `per` seconds of the fake's clock (rule E4).

    Attributes:
        limit: Requests that a window allows.
        per: Seconds of a window. Windows follow each other without a gap, from the clock's zero on.
        scope: Whose requests are counted together: those of one owner key (those without any share one window), those for one
            workspace, or all.
        retry_after: How `Retry-After` is written: whole seconds or an HTTP date.

    Example:
        ```python
        fake.behaviour = Behaviour(rate_limit=RateLimit(limit=1, per=60))
        target = "/workspaces/space_1/all-fields"
        print([fake.handle(Request("GET", target)).status for _ in range(2)])  # -> [200, 429]
        ```
    """

    limit: int = attrs.field(validator=attrs.validators.ge(0))
    per: float = attrs.field(default=60.0, validator=attrs.validators.gt(0))
    scope: Literal["key", "workspace", "all"] = attrs.field(
        default="key", validator=attrs.validators.in_(("key", "workspace", "all"))
    )
    retry_after: Literal["seconds", "date"] = attrs.field(default="seconds", validator=attrs.validators.in_(("seconds", "date")))


def _reading(behaviour: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Refuse what is no reading of a knob. Types count: `True` is not 1."""
    readings = READINGS[attribute.name]
    if any(value == reading and type(value) is type(reading) for reading in readings):
        return
    also = _ALSO.get(attribute.name)
    if also is None or not also(value):
        names = ", ".join(map(repr, readings))
        raise ValueError(f"{type(behaviour).__name__}: {attribute.name}={value!r} is no reading; those are {names}")


def _places(behaviour: object, attribute: attrs.Attribute[Any], value: object) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{type(behaviour).__name__}: {attribute.name}={value!r} must be a whole number from 1 on, or None")


def _knob(name: str, **options: Any) -> Any:
    return attrs.field(default=READINGS[name][0], validator=_reading, **options)


def _codes(value: str | Iterable[str]) -> str | frozenset[str]:
    return value if isinstance(value, str) else frozenset(value)


@attrs.frozen(kw_only=True)
class Behaviour:
    """The readings that a fake takes.

    Attributes:
        email_key: C4. What two e-mails must share to be duplicates: everything but letter case, everything, everything but the
            domain's letter case, or everything that Gmail looks at. A function of the trimmed e-mail may decide instead.
        created_status: C3. HTTP status of `added`; or of each outcome by its name, the default for those not named.
        first_page: P3. The number of the first page.
        past_end: P8. A page past the end: an empty one, the last one, or 404.
        over_max: P6. A `display` over the maximum: 400, silently the maximum, or served.
        campaign_max_display: P7. The maximum `display` for campaigns; `None` for none. That for mailboxes is stated: 2,000.
        bad_number: P5. A `page` or `display` that is no number of the allowed range: 400, or as if it were the first page or 10.
        owner_key: A2. Keys are checked, or must only look like keys, or may be anything.
        unknown_custom: C20. A well-formed `custom_<n>` that the workspace has not: 400, dropped or stored.
        unknown_body: C21. Another unknown body field: dropped, 400 or stored.
        skip_enrols: C10. Whether a skipped contact still joins the campaign.
        overwrite_unsent: C11. What `overwrite` does with fields that were not sent.
        overwrite_blank: C12. What `overwrite` does with null and blank values.
        missing_campaign: C7. A missing or empty `upload_options.campaign`: 400, or as null.
        strict_fields: C27. The fields that strict validation looks at: all standard fields, or the codes given.
        reenrol: C16. A contact joins a campaign it is in: nothing happens, it starts anew, or 409.
        numbers: W9. Percentages: whole ones as JSON integers, all as floats, or either by turns.
        list_date: T16. `days_left_date` in the campaign list: Unix seconds, a text, or either by turns. Where there is no date,
            the list has the word of list-steps: `Complete`, `Not started` or `Unknown`.
        order: P10. How lists are ordered: by creation, by creation from the end, or by last activity, latest first.
        percent_digits: T8. Decimal places of percentages.
        error_renderer: E2. What refusals look like: a name, or a function from `Refusal` to status, headers and body.
        auth: A3. The credential asked for in a header; `None` for none.
        rate_limit: E4. The rate limit; `None` for none.
        max_in_flight: E4. Exchanges that may be under way at once, whatever carries them; one more is 429. `None` for no limit.
            The fake answers at once: exchanges overlap only while answers are written, or held back as `faults.latency` does.

    Raises:
        ValueError: A reading is none.

    Example:
        ```python
        fake = FakeService(behaviour=Behaviour(past_end="error", campaign_max_display=50))
        print(fake.behaviour.past_end)  # -> error
        ```
    """

    email_key: EmailKey | Callable[[str], str] = _knob("email_key")
    created_status: int | Mapping[str, int] = _knob("created_status", hash=False)
    first_page: Literal[0, 1] = _knob("first_page")
    past_end: PastEnd = _knob("past_end")
    over_max: OverMax = _knob("over_max")
    campaign_max_display: int | None = _knob("campaign_max_display")
    bad_number: Literal["reject", "default"] = _knob("bad_number")
    owner_key: Literal["check", "prefix_only", "off"] = _knob("owner_key")
    unknown_custom: Literal["reject", "ignore", "store"] = _knob("unknown_custom")
    unknown_body: Literal["ignore", "reject", "store"] = _knob("unknown_body")
    skip_enrols: bool = _knob("skip_enrols")
    overwrite_unsent: Literal["keep", "clear"] = _knob("overwrite_unsent")
    overwrite_blank: Literal["clear", "keep", "store"] = _knob("overwrite_blank")
    missing_campaign: Literal["reject", "null"] = _knob("missing_campaign")
    strict_fields: Literal["all"] | frozenset[str] = _knob("strict_fields", converter=_codes)
    reenrol: Literal["noop", "restart", "error"] = _knob("reenrol")
    numbers: Numbers = _knob("numbers")
    list_date: Literal["timestamp", "text", "mixed"] = _knob("list_date")
    order: Order = _knob("order")
    percent_digits: Literal[0, 1, 2] = _knob("percent_digits")
    error_renderer: RendererName | ErrorRenderer = _knob("error_renderer")
    auth: HeaderAuth | None = None
    rate_limit: RateLimit | None = None
    max_in_flight: int | None = attrs.field(default=None, validator=_places)

    @classmethod
    def documented(cls) -> Behaviour:
        """Take the default of every knob.

        Example:
            ```python
            print(Behaviour.documented() == Behaviour())  # -> True
            ```
        """
        return cls()

    @classmethod
    def strict(cls) -> Behaviour:
        """Refuse whatever may be refused.

        Example:
            ```python
            print(Behaviour.strict().unknown_body)  # -> reject
            ```
        """
        return cls(
            past_end="error",
            campaign_max_display=100,
            unknown_body="reject",
            reenrol="error",
        )

    @classmethod
    def lenient(cls) -> Behaviour:
        """Accept whatever may be accepted, silently.

        Example:
            ```python
            print(Behaviour.lenient().owner_key)  # -> off
            ```
        """
        return cls(
            created_status=200,
            past_end="clamp",
            over_max="clamp",
            campaign_max_display=100,
            bad_number="default",
            owner_key="off",
            unknown_custom="ignore",
            missing_campaign="null",
            strict_fields=frozenset(),
        )
