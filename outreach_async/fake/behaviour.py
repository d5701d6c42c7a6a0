"""Configure how the fake interprets rules that the service's API documentation leaves open.

Each knob of `Behaviour` configures one rule. Rules that the API documentation states have no knob. The description of each knob
starts with a rule id, such as P8; the default is the most defensible interpretation. The open questions in this table have no
knob, because their interpretation is fixed:

| rule | question | the fake's interpretation |
|---|---|---|
| W5 | ids | prefix and 16 hexadecimal digits, the same for the same seed and calls |
| W6 | unknown path; another method; HEAD; one slash at the end | 404; 405 with `Allow`; as GET, without a body; ignored |
| W7 | a create request without `content-type: application/json` | accepted, with a hint |
| W8 | a body over 1 MiB; not an object; with NaN, a duplicate key or a lone surrogate | 413; 400 |
| W10 | times | Unix seconds; `wait_time` in milliseconds, as the API documentation states |
| W11 | headers of every response | `content-type: application/json`, `date` by its clock, and a unique `x-request-id` |
| W12 | `workspace` as a parameter of list-steps | ignored: campaign ids are global |
| A2 | an unknown owner key; a known one without access to the workspace | 401; 403 |
| A4 | several errors at once | the first in this order: JSON, presence, type, id, key, workspace, campaign, fields, values |
| P4, P5 | a missing or empty parameter; numbers | 400 that names it; 1 to 9 ASCII digits, without sign, space or fraction |
| P9 | `total_pages` of an empty list | 0 |
| P10, P11 | items created at once; added between two pages | in the order of adding; pages show the list of their moment |
| P12 | a parameter given twice; an unknown one | 400; ignored, with a hint |
| P13 | a create request for an unknown workspace; an id without its prefix | 404; 400 |
| P14 | `headers` | those in the API documentation; items always have every field |
| C4, C5 | the e-mail and owner of a duplicate | `overwrite` stores the new spelling, trimmed; the owner never changes |
| C8, C9 | an upload option with an invalid type or value, such as `"true"` or `Skip` | 400 |
| C13 | a blank field | counts as missing for `update_missing_fields`, which never stores a blank value |
| C14 | null for a field of a new contact; a number or a list | as if not sent; 400 |
| C17, C18 | campaigns that accept contacts | all of the workspace, in any status; 404 for others; a finished campaign reopens |
| C20 | a malformed custom code, such as `custom_x` or `custom_01` | 400 |
| C22 | `full_name` and the name parts | never derived from each other |
| C25 | a create request retried after its response was lost | treated as a duplicate; `skip` does not return the id |
| C27, C28 | strict validation | before the look-up of duplicates; 422 lists every failure |
| C27 | dates under strict validation | `YYYY-MM-DD`, `YYYY-MM`, `YYYY` and `MM/DD/YYYY` |
| T2 | order of steps and templates | steps by `order`; templates as seeded: A, B, ..., then PER |
| T4, T5 | `out_of` | `left_to_send` + `already_sent`, without contacts that left early; a new contact counts in all steps |
| T7 | which template is sent | the live templates of the step take turns, but `PER` is sent to a random share of contacts |
| T8 | percentages | of the e-mails sent, rounded half to even; 0 if none was sent |
| T9, T10 | counts of opens, clicks, replies and unsubscribes | once per e-mail; a campaign's counts are sums over its templates |
| T11 | `initials` and `interested` | `initials`: e-mails sent for step 1; `interested`: `interested_num` as a percentage (T8) |
| T12 | `wait_time` | counted from when the previous step's e-mail was sent; for the first step, from joining the campaign |
| T13, T17 | `days_left` | as if live: sum over steps of the wait, or of sending at its part of the limits if longer; at least 1 |
| T14, T15 | a campaign without contacts; one that no mailbox sends for | 0 days, `Not started`; 9999 days, `Unknown` |
| T16, T18 | dates and times as text | `Jan 4, 2026`, in UTC; `just now`, `5 minutes ago`, `1 day ago`, `3 months ago`, `Never` |
| T19 | statuses | others than the API documentation shows only if seeded; any to any, by `set_campaign`; only `live` ones send |
| B2, B3 | windows of a mailbox's counts | UTC days with today; opens and bounces by the day on which the e-mail was sent |
| B4, B5 | `campaigns`, `daily_limit` | all that use the mailbox, whatever their status; shared by all of them |
| F2 | order of all-fields | `email`, standard fields as documented, extra fields as seeded, custom fields by number |
| E2 | statuses of errors | 400 malformed, 401 and 403 keys, 404 ids, 405, 413, 422 strict validation, 429; no 5xx |
| E3 | hints about likely mistakes | in the header `x-fake-hint` and the request log, never in a body |

A behaviour file is TOML. Each key is a knob of `Behaviour`; a knob that is not in the file keeps its default. TOML has no null:
write `"none"` for `None`.

    past_end = "clamp"
    campaign_max_display = "none"
    strict_fields = ["email", "zip"]
    created_status = { added = 201, skipped = 201 }

    [undecided]  # values that measurements could not tell apart; the first one is used
    over_max = ["clamp", "serve"]

    [auth]
    header = "authorization"
    scheme = "Bearer"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, Final, Literal

import attrs

from outreach_async._files.toml import parse_toml
from outreach_async._types import require_types
from outreach_async.errors import InvalidRequest
from outreach_async.fake._arguments import check_known, convert, require_at_least, shown
from outreach_async.fake._messages import RENDERERS, ErrorRenderer, RendererName


def _to_codes(value: Any) -> Any:
    is_collection = isinstance(value, list | tuple | AbstractSet)
    return frozenset(value) if is_collection and all(isinstance(code, str) for code in value) else value


@attrs.frozen
class HeaderAuth:
    """A setting that requires a credential in a header (rule A3).

    A request without the credential gets 401.

    Attributes:
        header: Name of the header, in lower case.
        scheme: The authentication scheme before the credential; empty for
            none.
        tokens: Accepted credentials; if empty, every owner key of the
            service is accepted.

    Example:
        ```python
        fake.behaviour = Behaviour(auth=HeaderAuth())
        allowed = OutreachClient(transport=FakeTransport(fake), workspace="space_1", headers={"authorization": "Bearer key_1"})
        print(len(await allowed.workspaces.fields()))  # -> 37
        ```
    """

    header: str = "authorization"
    scheme: str = "Bearer"
    tokens: frozenset[str] = attrs.field(default=frozenset(), converter=_to_codes, repr=False)

    def __attrs_post_init__(self) -> None:
        require_types(HeaderAuth, attrs.asdict(self, recurse=False))
        if not self.header:
            raise InvalidRequest("header: expected the name of a header, got a blank string; pass one such as 'authorization'")


@attrs.frozen
class RateLimit:
    """A rate limit: 429 after `limit` requests in `per` seconds (rule E4).

    Attributes:
        limit: Requests allowed per window.
        per: Length of a window in seconds, measured by the fake's clock.
            Windows are consecutive and start at the Unix epoch.
        scope: The requests that are counted together: requests with the
            same owner key (`key`; requests without a key are counted
            together), requests for the same workspace (`workspace`), or
            all requests (`all`).
        retry_after: Format of `Retry-After`: whole seconds or HTTP date.

    Example:
        ```python
        fake.behaviour = Behaviour(rate_limit=RateLimit(limit=1, per=60))
        target = "/workspaces/space_1/all-fields"
        print([fake.handle(Request("GET", target)).status for _ in range(2)])  # -> [200, 429]
        ```
    """

    limit: int
    per: float = 60.0
    scope: Literal["key", "workspace", "all"] = "key"
    retry_after: Literal["seconds", "date"] = "seconds"

    def __attrs_post_init__(self) -> None:
        require_types(RateLimit, attrs.asdict(self, recurse=False))
        require_at_least("limit", 0, self.limit)
        if not self.per > 0:
            raise InvalidRequest(f"per: expected more than 0 seconds, got {shown(self.per)}; pass a number such as 60")


def _validate_knob(behaviour: object, attribute: attrs.Attribute[Any], value: object) -> None:
    """Raise `ValueError` for a value that a knob does not accept. The type must match too: `True` is not accepted for 1."""
    values, is_accepted = attribute.metadata["values"], attribute.metadata["is_accepted"]
    if not any(value == named and type(value) is type(named) for named in values) and not is_accepted(value):
        names = ", ".join(map(repr, values))
        raise ValueError(f"{type(behaviour).__name__}.{attribute.name}: expected one of {names}, got {shown(value)}")


def _knob(*values: Any, is_accepted: Callable[[Any], bool] = lambda _: False, **options: Any) -> Any:
    """Define a knob as an attrs field. The first of its predefined values is the default; `is_accepted` checks other values."""
    metadata = {"values": values, "is_accepted": is_accepted}
    return attrs.field(default=values[0], validator=_validate_knob, metadata=metadata, **options)


def _table(kind: type[Any]) -> Any:
    def check(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
        if not isinstance(value, kind | None):
            raise InvalidRequest(f"{attribute.name}: expected {kind.__name__} or None, got {shown(value)}; pass one of them")

    return attrs.field(default=None, validator=check)


@attrs.frozen(kw_only=True)
class Behaviour:
    """How the fake reads rules that the API documentation leaves open.

    Each attribute is a knob, with its rule.

    Attributes:
        email_key: C4. How e-mails are compared to find duplicates: without
            letter case (`lower`), exactly (`exact`), without the letter
            case of the domain (`domain_lower`), or, for Gmail addresses,
            also without dots and the part after a plus sign (`gmail`). A
            function takes the trimmed e-mail and returns the string to
            compare.
        created_status: C3. HTTP status of `added`, or a mapping of
            outcomes to statuses; the others keep their default.
        first_page: P3. The number of the first page.
        past_end: P8. A page past the end: an empty page (`empty`), the
            last page (`clamp`), or 404 (`error`).
        over_max: P6. A `display` over the maximum: 400 (`reject`), the
            maximum (`clamp`), or as many as requested (`serve`).
        campaign_max_display: P7. The maximum `display` for campaigns;
            `None` for no maximum. Mailboxes have 2,000.
        unknown_workspace: P13. A list of an unknown workspace: 404
            (`reject`), or an empty list (`empty`).
        bad_number: P5. A malformed or out-of-range `page` or `display`:
            400 (`reject`), or the first page and 10 (`default`).
        owner_key: A2. An owner key must be known (`check`), must start
            with `key_` (`prefix_only`), or can be anything (`off`).
        unknown_custom: C20. A `custom_<n>` that the workspace does not
            have: 400 (`reject`), `ignore` or `store`.
        unknown_body: C21. An unknown field other than `custom_<n>`:
            `ignore`, 400 (`reject`) or `store`.
        skip_enrols: C10. If true, a skipped contact joins the campaign.
        overwrite_unsent: C11. Whether `overwrite` keeps (`keep`) or clears
            (`clear`) a field that was not sent.
        overwrite_blank: C12. Whether `overwrite` clears (`clear`) or keeps
            (`keep`) a field that is sent as null or blank, or stores what
            is sent (`store`).
        missing_campaign: C7. A missing or empty `upload_options.campaign`:
            400 (`reject`), or as null (`null`).
        strict_fields: C27. The fields that strict validation checks: all
            standard fields (`all`), or a set of field codes.
        reenrol: C16. Adding a contact to a campaign that it is already in:
            no change (`noop`), or 409 (`error`).
        numbers: W9. The JSON type of whole percentages: `int_when_whole`,
            `float`, or some of each (`mixed`).
        list_date: T16. `days_left_date` in the campaign list: Unix seconds
            (`timestamp`), a string (`text`), or some of each (`mixed`). If
            there is no date, the value is a word: `Complete`,
            `Not started` or `Unknown`.
        order: P10. Lists by creation time with the oldest first (`oldest`)
            or the newest first (`newest`), or by `last_activity`.
        percent_digits: T8. Decimal places of percentages.
        error_renderer: E2. The format of errors: a name, or a function
            from `Refusal` to status, headers and body.
        auth: A3. The credential required in a header; `None` for none.
        rate_limit: E4. The rate limit; `None` for none.

    Raises:
        ValueError: A knob does not accept its value.

    Example:
        ```python
        fake = FakeService(behaviour=Behaviour(past_end="error", campaign_max_display=50))
        print(fake.behaviour.past_end)  # -> error
        ```
    """

    email_key: Literal["lower", "exact", "domain_lower", "gmail"] | Callable[[str], str] = _knob(
        "lower", "exact", "domain_lower", "gmail", is_accepted=callable
    )
    created_status: int | Mapping[str, int] = _knob(
        201,
        200,
        # The API documentation names these two statuses.
        is_accepted=lambda value: (
            isinstance(value, Mapping) and all(type(status) is int and status in {200, 201} for status in value.values())
        ),
        hash=False,
    )
    first_page: Literal[0, 1] = _knob(1, 0)
    past_end: Literal["empty", "clamp", "error"] = _knob("empty", "clamp", "error")
    over_max: Literal["reject", "clamp", "serve"] = _knob("reject", "clamp", "serve")
    campaign_max_display: int | None = _knob(None, 2000, 100, is_accepted=lambda value: type(value) is int and value > 0)
    unknown_workspace: Literal["reject", "empty"] = _knob("reject", "empty")
    bad_number: Literal["reject", "default"] = _knob("reject", "default")
    owner_key: Literal["check", "prefix_only", "off"] = _knob("check", "prefix_only", "off")
    unknown_custom: Literal["reject", "ignore", "store"] = _knob("reject", "ignore", "store")
    unknown_body: Literal["ignore", "reject", "store"] = _knob("ignore", "reject", "store")
    skip_enrols: bool = _knob(False, True)
    overwrite_unsent: Literal["keep", "clear"] = _knob("keep", "clear")
    overwrite_blank: Literal["clear", "keep", "store"] = _knob("clear", "keep", "store")
    missing_campaign: Literal["reject", "null"] = _knob("reject", "null")
    strict_fields: Literal["all"] | frozenset[str] = _knob(
        "all",
        frozenset[str](),
        is_accepted=lambda value: isinstance(value, frozenset) and all(isinstance(code, str) for code in value),
        converter=_to_codes,
    )
    reenrol: Literal["noop", "error"] = _knob("noop", "error")
    numbers: Literal["int_when_whole", "float", "mixed"] = _knob("int_when_whole", "float", "mixed")
    list_date: Literal["timestamp", "text", "mixed"] = _knob("timestamp", "text", "mixed")
    order: Literal["oldest", "newest", "last_activity"] = _knob("oldest", "newest", "last_activity")
    percent_digits: Literal[0, 1, 2] = _knob(2, 1, 0)
    error_renderer: RendererName | ErrorRenderer = _knob(*RENDERERS, is_accepted=callable)
    auth: HeaderAuth | None = _table(HeaderAuth)
    rate_limit: RateLimit | None = _table(RateLimit)

    @classmethod
    def strict(cls) -> Behaviour:
        """Return the behaviour that refuses all that the rules let it refuse.

        Example:
            ```python
            print(Behaviour.strict().unknown_body)  # -> reject
            ```
        """
        return cls(past_end="error", campaign_max_display=100, unknown_body="reject", reenrol="error")

    @classmethod
    def lenient(cls) -> Behaviour:
        """Return the behaviour that silently accepts all that rules allow.

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
            unknown_workspace="empty",
            bad_number="default",
            owner_key="off",
            unknown_custom="ignore",
            missing_campaign="null",
            strict_fields=frozenset(),
        )


# The functions that create the behaviours with a name.
PRESETS: Final = {"documented": Behaviour, "strict": Behaviour.strict, "lenient": Behaviour.lenient}

KNOB_NAMES: Final = tuple(field.name for field in attrs.fields(Behaviour))

# The predefined values of each knob, starting with the default. `auth` and `rate_limit` have none.
KNOB_VALUES: Final = {field.name: field.metadata["values"] for field in attrs.fields(Behaviour) if field.metadata}

NONE_VALUE: Final = "none"  # represents `None` in TOML
_UNDECIDED_TABLE: Final = "undecided"
_TABLE_CLASSES: Final[Mapping[str, type[HeaderAuth | RateLimit]]] = {"auth": HeaderAuth, "rate_limit": RateLimit}
_NULLABLE_KNOBS: Final = frozenset({"auth", "rate_limit", "campaign_max_display"})


class BehaviourFileError(ValueError):
    """A behaviour file is invalid. The message names the file, the key and the reason."""


def dump_behaviour(
    behaviour: Behaviour,
    *,
    about: str = "",
    notes: Mapping[str, str] | None = None,
    undecided: Mapping[str, Iterable[Any]] | None = None,
    unseen: Mapping[str, str] | None = None,
) -> str:
    """Serialize a behaviour as TOML, in the format that `load_behaviour` reads. `auth.tokens` is secret and is not written.

    `about` is a comment at the top, and `notes` are comments above knobs. `undecided` has the values that measurements could not
    tell apart, the one in `behaviour` first; a knob in `unseen` is not written, only the reason why its value is unknown. A knob
    whose value is a function raises `TypeError`.
    """
    notes, undecided, unseen = notes or {}, undecided or {}, unseen or {}
    values: dict[str, Any] = {knob: getattr(behaviour, knob) for knob in KNOB_NAMES}
    tables = {knob: value for knob, value in values.items() if attrs.has(type(value)) and knob not in unseen}
    lines = [*_comment_lines(about), *([""] if about else [])]
    for knob in KNOB_NAMES:
        if knob in unseen:
            lines += _comment_lines(f"{knob}: {' '.join(unseen[knob].split())}")
        elif knob not in tables and knob not in undecided:
            lines += [*_comment_lines(notes.get(knob, "")), _assignment(knob, values[knob])]
    if undecided:
        lines += ["", f"[{_UNDECIDED_TABLE}]  # values that measurements could not tell apart; the first one is used"]
        for knob, possible in undecided.items():
            lines += [*_comment_lines(notes.get(knob, "")), _assignment(knob, list(possible))]
    for knob, value in tables.items():
        members = attrs.asdict(value, filter=lambda attribute, _: attribute.name != "tokens")
        lines += ["", *_comment_lines(notes.get(knob, "")), f"[{knob}]", *(_assignment(*member) for member in members.items())]
    return "\n".join(lines) + "\n"


def _comment_lines(note: str) -> list[str]:
    # TOML forbids control characters in comments, and a note may quote text from a service.
    return ["# " + "".join(filter(str.isprintable, line)) for line in note.splitlines()]


def _assignment(name: str, value: Any) -> str:
    try:
        return f"{name} = {_to_toml(value)}"
    except TypeError:
        raise TypeError(
            f"{name}: expected a value that TOML can represent, got {type(value).__name__}; use a predefined value"
        ) from None


def _to_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_to_toml(name)} = {_to_toml(member)}" for name, member in value.items()) + " }"
    if isinstance(value, list | frozenset):
        return f"[{', '.join(map(_to_toml, sorted(value) if isinstance(value, frozenset) else value))}]"
    if isinstance(value, float):
        return repr(value)  # unlike JSON, TOML has infinity
    # TOML writes integers, booleans and strings as JSON does, but it forbids an unescaped DEL, and has no null.
    return json.dumps(NONE_VALUE if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")


def load_behaviour(path: str | Path) -> Behaviour:
    """Read a behaviour from a TOML file, or raise `BehaviourFileError`. Of several values of a knob, the first counts."""
    return Behaviour(**{knob: values[0] for knob, values in load_knob_values(path).items()})


def load_knob_values(path: str | Path) -> dict[str, tuple[Any, ...]]:
    """Read the possible values of each knob in a file: one value, or several values that measurements could not tell apart."""
    try:
        document = parse_toml(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise BehaviourFileError(f"{path}: the file is not TOML in UTF-8: {error}; correct the file") from None
    try:
        return dict(_parse_document(document))
    except (TypeError, ValueError) as error:
        raise BehaviourFileError(f"{path}: {error}") from None


def _parse_document(document: Mapping[str, Any]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    undecided = document.get(_UNDECIDED_TABLE, {})
    if not isinstance(undecided, dict):
        raise TypeError(f"{_UNDECIDED_TABLE}: expected a table, got {type(undecided).__name__}; write [{_UNDECIDED_TABLE}]")
    for knob, value in document.items():
        if knob != _UNDECIDED_TABLE:
            check_known([knob], (*KNOB_NAMES, _UNDECIDED_TABLE), "a behaviour")
            yield knob, (convert_knob(knob, value),)
    for knob, values in undecided.items():
        check_known([knob], KNOB_NAMES, "a behaviour")
        if not isinstance(values, list) or not values:
            raise ValueError(
                f"{_UNDECIDED_TABLE}.{knob}: expected a non-empty list of values, got {shown(values)}; list the possible values"
            )
        if knob in document:
            raise ValueError(f"{_UNDECIDED_TABLE}.{knob}: {knob} is also set at the top level of the file; remove one of the two")
        yield knob, tuple(convert_knob(knob, value) for value in values)


def convert_knob(knob: str, value: Any) -> Any:
    """Convert a value of a TOML or JSON document to the knob's type, and validate it with `Behaviour`."""
    if value == NONE_VALUE and knob in _NULLABLE_KNOBS:
        value = None
    elif (kind := _TABLE_CLASSES.get(knob)) and value is not None:
        if not isinstance(value, dict):
            raise TypeError(f'{knob}: expected a table or "{NONE_VALUE}", got {type(value).__name__}; write [{knob}]')
        check_known(value, attrs.fields_dict(kind), knob)
        value = convert(knob, value, kind)
    return getattr(Behaviour(**{knob: value}), knob)
