"""What the fake does where the interface is silent: one typed value, a knob for every reading that a client can notice.

What the interface states has no knob. Each knob names its rule; its default is the reading that is easiest to defend.
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
