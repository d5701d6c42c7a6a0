"""The records that the fake stores, and their generation: people, mailboxes and campaigns.

Records and the mappings in them never change: a snapshot copies only the tables.

Generated mailboxes have no problems by default. If the caller passes a value for a mailbox, the value is used unchanged, even
if it is invalid, because tests of audits need invalid values. Inconsistent counts of a campaign are refused, never corrected.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Any, Final, Literal, TypedDict

import attrs

from outreach_async.fake._arguments import check_known, read_table, require_count, require_mapping, require_string, require_time
from outreach_async.fake._clock import DAY
from outreach_async.fake._messages import encode

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


# The order of a template's counts in `CampaignFlow.counts`.
COUNT_NAMES: Final = ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")


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


# People.

_HEADS: Final = ("north", "bright", "clear", "blue", "swift", "stone", "green", "prime", "true", "west", "silver", "river")
_TAILS: Final = ("peak", "path", "works", "field", "labs", "bridge", "point", "signal", "harbor", "craft", "grove", "line")

TITLES: Final = (
    "Chief Executive", "Head of Sales", "Engineer", "Marketing Lead", "Operations Manager", "Founder", "Buyer", "Analyst",
)  # fmt: skip
CITIES: Final = (("Lyon", "FR"), ("Austin", "US"), ("Porto", "PT"), ("Osaka", "JP"), ("Leeds", "GB"), ("Krakow", "PL"))


def generate_domain(number: int) -> str:
    """Return a generated domain such as `northpeak.example`. Each number gives a different domain."""
    turn, place = divmod(number, len(_HEADS) * len(_TAILS))
    head, tail = _HEADS[place % len(_HEADS)], _TAILS[place // len(_HEADS)]
    return f"{head}{tail}{turn + 1 if turn else ''}.example"


def generate_name(first: int, last: int) -> tuple[str, str]:
    """Return a first name and a last name by their indexes in the table of names. Indexes past the end wrap around."""
    names = read_table("names")
    return names[first % len(names)][0], names[last % len(names)][1]


def generate_people(count: int, start: int) -> Iterator[Mapping[str, str | None]]:
    """Generate people, numbered from `start`. The same number always gives the same person."""
    for number in range(start, start + count):
        first, last = generate_name(number, number * 7)
        domain = generate_domain(number // 3)
        city, country = CITIES[number % len(CITIES)]
        yield {
            "email": f"{first}.{last}.{number}@{domain}".lower(),
            "first_name": first,
            "last_name": last,
            "title": TITLES[number % len(TITLES)],
            "company_name": domain.removesuffix(".example").capitalize(),
            "city": city,
            "country": country,
        }


MAILBOXES_PER_DOMAIN: Final = 4
HEALTHY: Final = Rates()

_RATE_FIELDS: Final = ("opened_14days", "avg_open_rate", "avg_click_rate")

_COUNT_FIELDS: Final = (
    "sent_today", "sent_30days", "opened_14days", "sent_90days", "bounced_30days", "avg_open_rate", "avg_click_rate",
)  # fmt: skip
_CHANGEABLE: Final = tuple(name for name in MAILBOX_FIELDS if name not in {"id", "created_at", "last_activity", *_COUNT_FIELDS})

MAILBOX_ARGUMENTS: Final = (*MAILBOX_FIELDS, "domain", "as_of")

_WINDOW_DAYS: Final = {"sent_today": 1, "sent_30days": 30, "sent_90days": 90, "life": math.inf}

# Each function takes the values of a generated mailbox and returns the values to change.
_PROBLEMS: Final[tuple[Callable[[Mapping[str, Any]], dict[str, Any]], ...]] = (
    lambda _: {"spf": False},
    lambda _: {"dmarc": False},
    lambda _: {"spf": False, "dkim": False, "dmarc": False},
    lambda _: {"blacklists": 2},
    lambda values: {"bounced_30days": values["sent_30days"] // 8},
    lambda values: {"sent_today": _count_or_zero(values["daily_limit"]) + 15},
    lambda _: {"status": "error"},
)


def generate_mailbox(
    id_: str, workspace: str, number: int, created: int, fields: Mapping[str, Any], *, trouble: float, random: Random, now: float
) -> Mailbox:
    fields = {name: _check_value(name, value) for name, value in fields.items()}
    as_of = fields.pop("as_of", now)
    domain = str(fields.pop("domain", generate_domain(number // MAILBOXES_PER_DOMAIN)))
    values = {**_generate_identity(random, number, domain), "created_at": created, **fields, "id": id_}
    values |= _generate_activity(random, values, now)
    if random.random() < trouble:
        values |= random.choice(_PROBLEMS)(values)
    values |= fields
    return Mailbox(id_, workspace, {name: values[name] for name in MAILBOX_FIELDS}, as_of)


def update_mailbox(mailbox: Mailbox, fields: Mapping[str, Any]) -> Mailbox:
    for name, value in fields.items():
        if name in MAILBOX_FIELDS and name not in _CHANGEABLE:
            raise TypeError(f"field {name!r} of a mailbox cannot be changed; use one of {', '.join(_CHANGEABLE)}")
        check_known([name], _CHANGEABLE, "a mailbox")
        _require_json(name, value)
    return attrs.evolve(mailbox, values={**mailbox.values, **fields})


def _require_json(name: str, value: object) -> None:
    try:
        encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        wrong = ValueError if type(error) is ValueError else TypeError
        raise wrong(f"{name}: {error}; pass a value that JSON has") from None


def _check_value(name: str, value: Any) -> Any:
    check_known([name], MAILBOX_ARGUMENTS, "a mailbox")
    _require_json(name, value)
    if name in {"created_at", "as_of"}:
        require_time(name, value)
    if name not in _RATE_FIELDS or not isinstance(value, list | tuple):
        return value
    if len(value) != 2:  # noqa: PLR2004 - a part and a whole
        raise TypeError(f"{name}: expected a number, or two integers [part, whole], got {value!r}; use a pair such as [97, 640]")
    return Share(*(require_count(name, number) for number in value))


def _generate_identity(random: Random, number: int, domain: str) -> dict[str, Any]:
    count = len(read_table("names"))
    first, last = generate_name(number, number // count)
    again = number // count**2
    server = f"203.0.113.{random.randint(1, 254)}"
    return {
        "status": "active",
        "email": f"{first}.{last}{again or ''}@{domain}".lower(),
        "sender_name": f"{first} {last}",
        "campaigns": None,
        "daily_limit": 40,
        "spf": True,
        "dkim": True,
        "dmarc": True,
        "blacklists": 0,
        "age": None,
        "type": random.choice(("Google", "SMTP & IMAP")),
        "created": None,
        "domain_ip": random.choice((None, server, server, server)),
        "server_ip": server,
    }


def _generate_activity(random: Random, values: Mapping[str, Any], now: float) -> dict[str, Any]:
    days = max(0.0, (now - values["created_at"]) / DAY)
    daily = _count_or_zero(values["daily_limit"]) * random.uniform(0.5, 0.8)
    sent = {name: int(daily * min(window, days)) for name, window in _WINDOW_DAYS.items()}
    month = _count_or_zero(values.get("sent_30days", sent["sent_30days"]))
    life = max(sent["life"], month)
    fortnight = month * 14 // 30
    opens = HEALTHY.open * random.uniform(0.9, 1.1)
    return {
        "sent_today": min(sent["sent_today"], month),
        "sent_30days": month,
        "sent_90days": max(sent["sent_90days"], month),
        "opened_14days": Share(int(fortnight * opens * random.uniform(0.92, 1.0)), fortnight),
        "bounced_30days": int(month * HEALTHY.bounce * random.uniform(0.0, 2.0)),
        "avg_open_rate": Share(int(life * opens), life),
        "avg_click_rate": Share(int(life * HEALTHY.click * random.uniform(0.5, 1.2)), life),
        "last_activity": max(values["created_at"], now - random.uniform(0, DAY)) if month else None,
    }


def _count_or_zero(value: object) -> int:
    return max(0, int(value)) if isinstance(value, int | float) else 0


# Campaigns.

_STEP_FIELDS: Final = ("id", "status", "wait_time", "left_to_send", "sent", "templates")
_TEMPLATE_FIELDS: Final = tuple(field.name for field in attrs.fields(Template))
_DEFAULT_WAIT: Final = 3 * DAY * 1000
_MAX_WAIT: Final = 3650 * DAY * 1000

StepSeed = str | Mapping[str, Any]
ReserveId = Callable[[str, str | None], str]


class CampaignFields(TypedDict, total=False):
    id: str | None
    name: str
    status: str
    mailboxes: Iterable[str]
    steps: Iterable[StepSeed]
    contacts: int | None
    bounces_num: int | None
    interested_num: int | None
    created: int | None
    last_activity: float | Literal["auto"] | None
    rates: Mapping[str, float] | None


@attrs.frozen
class CampaignBuilder:
    random: Random
    reserve_id: ReserveId
    now: float
    rates: Rates

    def build(self, id_: str, workspace: str, mailboxes: tuple[str, ...], created: int, fields: CampaignFields) -> Campaign:
        # If the specification of a step has `sent`, the counts of its templates are generated. Otherwise, omitted counts are 0.
        rows: list[Mapping[str, Any]] = [
            {"templates": seed} if isinstance(seed, str) else require_mapping("a step", seed) for seed in fields.get("steps", ())
        ]
        totals = [row["sent"] for row in rows if "sent" in row]
        contacts, bounces, interested = fields.get("contacts"), fields.get("bounces_num"), fields.get("interested_num")
        bounces = (
            (int(totals[0] * self.rates.bounce) if totals else 0) if bounces is None else require_count("bounces_num", bounces)
        )
        steps = self._build_steps(rows, contacts, bounces)
        if contacts is None:
            contacts = steps[0].left_to_send + steps[0].already_sent if steps else 0
        if interested is None:
            replied = sum(_sum_counts(step.templates, "replied_num") for step in steps)
            interested = int(replied * self.rates.interested) if totals else 0
        campaign = Campaign(
            id=id_,
            workspace=workspace,
            name=fields.get("name", "Campaign"),
            status=fields.get("status", "draft"),
            mailboxes=mailboxes,
            steps=steps,
            contacts=contacts,
            bounces_num=bounces,
            interested_num=interested,
            created=created,
            last_activity=None,
            rates=self.rates,
        )
        _check_counts(campaign)
        activity = fields.get("last_activity", "auto")
        if activity == "auto":
            activity = max(created, self.now - self.random.uniform(0, DAY)) if campaign.total("sent") else None
        return attrs.evolve(campaign, last_activity=None if activity is None else require_time("last_activity", activity))

    def _build_steps(self, rows: Sequence[Mapping[str, Any]], contacts: int | None, bounces: int) -> tuple[Step, ...]:
        templates = [self._build_templates(row, order) for order, row in enumerate(rows, 1)]
        lefts = _count_left_to_send(rows, templates, contacts, bounces)
        steps = []
        for number, (row, parts, left) in enumerate(zip(rows, templates, lefts, strict=True)):
            check_known(row, _STEP_FIELDS, "a step")
            wait = row.get("wait_time", _DEFAULT_WAIT if number else 0)
            steps.append(Step(self.reserve_id("step_", row.get("id")), row.get("status", "live"), wait, left, parts))
            if wait > _MAX_WAIT:
                raise ValueError(f"wait_time: expected at most {_MAX_WAIT} ms (ten years), got {wait}; use a smaller number")
        return tuple(steps)

    def _build_templates(self, step: Mapping[str, Any], order: int) -> tuple[Template, ...]:
        value = step.get("templates", "A")
        given = value.split("|") if isinstance(value, str) and value.strip() else value
        if isinstance(given, str) or not isinstance(given, Sequence) or not given:
            raise ValueError(
                f"steps[{order - 1}].templates: expected one or more templates, got {value!r}; "
                "pass letters such as A|B or a list of templates, or omit the key for a step with one template"
            )
        seeds = [{"test_letter": seed} if isinstance(seed, str) else require_mapping("a template", seed) for seed in given]
        if "sent" in step and any(count in seed for seed in seeds for count in COUNT_NAMES):
            raise ValueError("sent: conflicts with the counts of the step's templates; omit sent for the step or these counts")
        # The e-mails are distributed evenly, because templates take turns (rule T7).
        each, rest = divmod(require_count("sent", step.get("sent", 0)), len(seeds))
        return tuple(self._build_template(seed, order, place, each + (place < rest)) for place, seed in enumerate(seeds))

    def _build_template(self, seed: Mapping[str, Any], order: int, place: int, sent: int) -> Template:
        check_known(seed, _TEMPLATE_FIELDS, "a template")
        values = {"test_letter": chr(ord("A") + place), "new_thread": order == 1, **seed}
        personalized = values["test_letter"] == PERSONALIZED
        follows = order > 1 and not values["new_thread"]
        if personalized:  # rule T6: neither thread nor subject
            values |= {"new_thread": seed.get("new_thread"), "subject": seed.get("subject")}
        rates = None if seed.get("rates") is None else self.rates.with_changes(seed["rates"])
        defaults = {
            "name": f"Step {order} {values['test_letter']}",
            "status": "live",
            "subject": None if follows else "A question, {{first_name}}",
            "body_text": "Hi {{first_name}}, a word about {{company_name}}?",
            **(self._generate_counts(sent, rates or self.rates) if sent else dict.fromkeys(COUNT_NAMES, 0)),
        }
        values = defaults | values
        if personalized and (values["new_thread"] is not None or values["subject"] is not None):
            raise ValueError(f"new_thread, subject: expected neither for a {PERSONALIZED} template; omit both")
        if follows and values["subject"] is not None:
            raise ValueError(
                f"subject: expected none for a follow-up in the same thread, got {values['subject']!r}; "
                "omit it, or set new_thread to true"
            )
        id_ = self.reserve_id("personalized_step_" if personalized else "temp_", seed.get("id"))
        return Template(**{**values, "id": id_, "rates": rates})

    def _generate_counts(self, sent: int, rates: Rates) -> dict[str, int]:
        shares = {"clicked_num": rates.click, "replied_num": rates.reply, "unsubscribed_num": rates.unsubscribe}
        opened = min(sent, int(sent * rates.effective_open * self.random.uniform(0.9, 1.1)))
        responses = {name: min(opened, int(sent * share * self.random.uniform(0.6, 1.2))) for name, share in shares.items()}
        return {"sent": sent, "opened_num": opened} | responses


def _count_left_to_send(
    rows: Sequence[Mapping[str, Any]], steps: Sequence[Sequence[Template]], contacts: int | None, bounces: int
) -> list[int]:
    # If the specification of a step has `left_to_send`, this value is used. Otherwise, the number is calculated from the other
    # counts. Contacts who replied, unsubscribed or bounced are not counted, because they receive no further steps.
    lefts: list[int] = []
    for place, (row, templates) in enumerate(zip(rows, steps, strict=True)):
        sent = _sum_counts(templates, "sent")
        if place:
            before = steps[place - 1]
            exits = _sum_counts(before, "replied_num") + _sum_counts(before, "unsubscribed_num") + (bounces if place == 1 else 0)
            coming = lefts[-1] + max(0, _sum_counts(before, "sent") - sent - exits)
        else:
            coming = 0 if contacts is None else require_count("contacts", contacts) - sent
            if coming < 0:
                raise ValueError(
                    f"contacts: expected at least {sent} (e-mails sent for step 1), got {contacts}; use a larger number"
                )
        lefts.append(require_count("left_to_send", row.get("left_to_send", coming)))
    return lefts


def _sum_counts(templates: Iterable[Template], count: str) -> int:
    return sum(getattr(template, count) for template in templates)


def _check_counts(campaign: Campaign) -> None:
    """Check the counts of a campaign (rules T3, T4 and T10)."""
    whole = [campaign.contacts, *(step.left_to_send + step.already_sent for step in campaign.steps)]
    sent = [step.already_sent for step in campaign.steps]
    if any(later > earlier for figures in (whole, sent) for earlier, later in pairwise(figures)):
        raise ValueError(
            "steps: no step may have more contacts or sent e-mails than the previous step, or more contacts than the campaign; "
            f"got contacts {whole} and sent e-mails {sent}; correct the counts"
        )
    limits = {
        "interested_num": (campaign.total("replied_num"), "replies"),
        "bounces_num": (campaign.total("sent") - campaign.total("opened_num"), "unopened e-mails"),
    }
    for name, (most, what) in limits.items():
        if (count := getattr(campaign, name)) > most:
            raise ValueError(f"{name}: expected at most {most} (number of {what}), got {count}; use a smaller number")
