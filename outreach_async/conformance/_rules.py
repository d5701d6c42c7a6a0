"""The documented rules: about the items of lists, about responses and pages, and about creating contacts; and the check of all.

This module also defines the kinds of values that rules expect, and `StatedRule`: every rule is an instance of it.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import chain, islice
from statistics import median_low
from typing import Any, Final

import attrs

from outreach_async import Transport, errors
from outreach_async._plumbing import mask_string, require_types
from outreach_async.conformance._calibration import Measurement, measure_service
from outreach_async.conformance._probes import (
    COMPLETE,
    CUSTOM_CODE,
    MAX_MAILBOXES,
    OUTCOMES,
    Access,
    HttpExchange,
    MembershipCounts,
    PageSequence,
    SampledPage,
    WorkspaceSurvey,
    collect_percentages,
    count_decimals,
    extract_rows,
    parse_age,
    parse_document,
)
from outreach_async.models import STANDARD_FIELDS

# Kinds of values, and the documented fields of each object.

ValueKind = tuple[str, Callable[[Any], bool]]
"""A kind of value: its name, and a function that returns whether a value is of that kind."""
Shape = Mapping[str, ValueKind]  # the fields of a JSON object

_FIRST_TIMESTAMP: Final = 10**9
"""Smallest plausible Unix timestamp: September 2001. Smaller numbers are probably years, or dates such as 20260131."""
_LAST_TIMESTAMP: Final = 10**10
"""Largest plausible Unix timestamp, in 2286. Larger numbers are probably in milliseconds."""
_DAY: Final = 86400  # seconds
_MOST_AHEAD: Final = 3660 * _DAY  # by which the clock of the service may be ahead; that of a fake can be moved
_MOST_DAYS: Final = 3  # by which two estimates of one end may differ: both may be rounded or a day old
_MOST_WAIT: Final = 3660 * _DAY * 1000  # milliseconds
_ABSOLUTE_TIME: Final = re.compile(
    r"""\s*(?: [0-9.]+                              # a timestamp
        | [0-9]{4}-[0-9]{2}.*                     # 2026-01-31T12:00:00Z
        | [0-9]{1,2}([/.])[0-9]{1,2}\1[0-9]{2}.*  # 01/31/2026
        | [^\W\d_]{3,9}\.?\ [0-9]{1,2},?\ [0-9]{4}   # Jan 31, 2026
        | [0-9]{1,2}\.?\ [^\W\d_]{3,9}\.?,?\ [0-9]{4} # 31 January 2026
        | (in\ |-\ ?)[0-9].*                      # in 5 minutes, -5 minutes ago
    )\s*""",
    re.DOTALL | re.IGNORECASE | re.VERBOSE,
)
"""Pattern of absolute and future times, as opposed to relative times such as `5 minutes ago`."""


def is_number(value: Any) -> bool:
    return type(value) in {int, float}


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number of 0 or more. A float such as `3.0` counts as a whole number."""
    return is_number(value) and value >= 0 and (type(value) is int or value.is_integer())


COUNT: Final[ValueKind] = ("a whole number of 0 or more", is_count)
NON_NEGATIVE: Final[ValueKind] = ("a finite number of 0 or more", lambda value: 0 <= value < math.inf)
PERCENTAGE: Final[ValueKind] = ("a percentage from 0 to 100", lambda value: 0 <= value <= 100)  # noqa: PLR2004 - 100 %
TIMESTAMP: Final[ValueKind] = ("a Unix timestamp in seconds", lambda value: _FIRST_TIMESTAMP <= value < _LAST_TIMESTAMP)

_JSON_TYPES: Final[Mapping[str, ValueKind]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "number": ("a number", is_number),
    "boolean": ("a boolean", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
    "array": ("an array", lambda value: isinstance(value, list)),
    "object": ("an object", lambda value: isinstance(value, dict)),
}

_SCHEMAS: Final = {
    "campaign": "Campaign", "mailbox": "Mailbox", "field": "WorkspaceField", "step": "Step", "template": "Template",
    "steps": "CampaignSteps", "page": "CampaignPage",
}  # fmt: skip
_ID_PREFIXES: Final = {"campaign": "camp_", "mailbox": "mailbox_", "field": "", "step": "step_", "template": "temp_"}


def _read_kind(schema: Mapping[str, Any]) -> ValueKind:
    if schema.get("items") == {"type": "string"}:
        return "an array of strings", lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value)
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    kinds = [_JSON_TYPES[name] for name in types]
    return " or ".join(called for called, _ in kinds), lambda value: any(is_one(value) for _, is_one in kinds)


_schemas = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text(encoding="utf-8"))["components"]["schemas"]
SHAPES: Final[Mapping[str, Shape]] = {
    kind: {field: _read_kind(value) for field, value in _schemas[name]["properties"].items() if "const" not in value}
    for kind, name in _SCHEMAS.items()
}
"""The fields of each object, without `status` of responses: rule W2 is about it."""


Fault = tuple[str, str]  # the id of the rule, and a description of the violation


def find_misfits(rule: str, value: Any, shape: Shape) -> Iterator[Fault]:
    """Yield a fault for each field of `shape` that is missing from a value or has the wrong type. Other keys are allowed."""
    if not isinstance(value, dict):
        yield rule, f"is {_name_json_type(value)}, not an object"
        return
    for name, (called, is_one) in shape.items():
        if name not in value:
            yield rule, f"has no {name}"
        elif not is_one(value[name]):
            yield rule, f"{name} is {_name_json_type(value[name])}, not {called}"


def _name_json_type(value: Any) -> str:
    return next(called for called, is_one in _JSON_TYPES.values() if is_one(value))


# Rules.

_PERSONALIZED: Final = "PER"  # the `test_letter` of a personalized template
_MAX_CODES: Final = 5  # maximum number of missing codes that a message names
_PERCENTAGE_COUNTS: Final = {
    "opens": "opens_num", "replies": "replies_num", "bounces": "bounces_num",
    "opened": "opened_num", "clicked": "clicked_num", "replied": "replied_num", "unsubscribed": "unsubscribed_num",
}  # fmt: skip
"""Percentages of campaigns and templates, each with the count from which the percentage is computed."""

Row = Mapping[str, Any]
Subject = tuple[Any, ...]
"""What a rule checks: the `HttpExchange` that contains it, its location in the response, and the arguments of the check."""
Subjects = Callable[[Measurement], Iterator[Subject]]
Check = Callable[..., Iterator[Fault]]


@attrs.frozen
class StatedRule:
    id: str
    statement: str
    subjects: Subjects
    find_faults: Check  # it may also find the faults of other rules
    writes: bool = False


REGISTERED_RULES: Final[list[StatedRule]] = []


def stated(subjects: Subjects, statements: Mapping[str, str], *, writes: bool = False) -> Callable[[Check], Check]:
    """Make a function the check of rules. `writes` means that the rules can be checked only by creating contacts."""

    def register(find_faults: Check) -> Check:
        REGISTERED_RULES.extend(StatedRule(id_, text, subjects, find_faults, writes) for id_, text in statements.items())
        return find_faults

    return register


def shorten(value: object) -> str:
    return errors.shorten(repr(value), 60)


def find_unrelated(rule: str, counts: Row, *relations: str) -> Iterator[Fault]:
    """Yield a fault for each relation, such as `left_to_send + already_sent <= out_of`, that does not hold for the counts."""
    # A relation is ignored if one of its counts is missing or not a count: other rules are about that.
    for relation in relations:
        left, operator, right = re.split(" (<=|==) ", relation)
        sides: list[list[Any]] = [[counts.get(name) for name in side.split(" + ")] for side in (left, right)]
        if all(map(is_count, chain(*sides))):
            low, high = map(sum, sides)
            if low > high or (operator == "==" and low < high):
                yield rule, f"{left} is {low}, {'not' if operator == '==' else 'more than'} {high} ({right})"


# Subjects.


def _all_items(measured: Measurement) -> Iterator[Subject]:
    """Yield each item with its kind. Of a template, the order of its step follows."""
    survey = measured.survey
    exchanges = [("campaign", page.exchange) for page in survey.campaign_pages.pages]
    exchanges += [("mailbox", page.exchange) for page in survey.mailbox_pages.pages]
    exchanges += [("field", survey.fields), *(("step", exchange) for exchange in survey.steps.values())]
    for kind, exchange in exchanges:
        for place, value in enumerate(_as_list(exchange.payload or {}, "data")):
            yield exchange, f"data[{place}]", kind, value
            if kind == "step" and isinstance(value, dict):
                for number, template in enumerate(_as_list(value, "templates")):
                    yield exchange, f"data[{place}].templates[{number}]", "template", template, value.get("order")


def _as_list(document: Row, name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []


def _each(*kinds: str) -> Subjects:
    """Return a function that yields the items of some kinds that are objects, as `_all_items` does."""
    return lambda measured: (subject for subject in _all_items(measured) if subject[2] in kinds and isinstance(subject[3], dict))


def _campaigns(measured: Measurement) -> Iterator[Subject]:
    """For each campaign whose steps were read, yield its item in the campaign list, and the response of list-steps."""
    listed = {str(row.get("id")): row for row in measured.survey.campaign_pages.rows}
    for id_, exchange in measured.survey.steps.items():
        if exchange.payload is not None:
            yield exchange, "the response", listed[id_], exchange.payload


def _campaign_totals(measured: Measurement) -> Iterator[Subject]:
    """For each campaign whose steps were read, yield its item before and after the steps, and the steps."""
    # The item after the steps is empty if the campaign is no longer on the first page.
    later = {str(row.get("id")): row for row in measured.survey.campaigns_after.rows}
    for exchange, location, listed, _ in _campaigns(measured):
        yield exchange, location, listed, later.get(str(listed.get("id")), {}), exchange.rows


def _campaign_estimates(measured: Measurement) -> Iterator[Subject]:
    for exchange, location, listed, later, _ in _campaign_totals(measured):
        yield exchange, location, listed, later, (exchange.payload or {}).get("days_left")


def _rated_campaigns(measured: Measurement) -> Iterator[Subject]:
    return ((*subject, _rate_tolerance(measured)) for subject in _campaign_totals(measured))


def _rated_templates(measured: Measurement) -> Iterator[Subject]:
    """Yield each template, the number of bounced e-mails of its campaign, and the tolerance."""
    for exchange, location, listed, later, _ in _campaign_totals(measured):
        bounced = max((row["bounces_num"] for row in (listed, later) if is_count(row.get("bounces_num"))), default=None)
        for template in exchange.templates:
            yield exchange, f"{location} {shorten(template.get('id'))}", template, bounced, _rate_tolerance(measured)


def _rate_tolerance(measured: Measurement) -> float:
    """Return the largest difference between a percentage and its rounded or truncated value."""
    return 1.000001 * 10.0 ** -min(2, max(map(count_decimals, collect_percentages(measured.survey)), default=0))


def _sending_mailboxes(measured: Measurement) -> Iterator[Subject]:
    """Yield each mailbox, and the number of campaigns of the workspace."""
    campaigns = [page.total or 0 for page in measured.survey.campaign_pages.pages]
    for exchange, location, _, item in _each("mailbox")(measured):
        yield exchange, location, item, max(campaigns) or None


TimeRange = tuple[float, float]


def _dated_mailboxes(measured: Measurement) -> Iterator[Subject]:
    """Yield each mailbox with two ranges of the time of the check: according to this mailbox, and to the median one."""
    found = [
        (subject, _find_check_time(subject[3]["created_at"], age))
        for subject in _each("mailbox")(measured)
        if _has_time(subject[3], "created_at") and math.isfinite(age := _read_age(subject[3]))
    ]
    if found:
        median = median_low(times for _, times in found)
        yield from ((exchange, location, item, times, median) for (exchange, location, _, item), times in found)


def _find_check_time(created: float, age: float) -> TimeRange:
    # An age is rounded down to its unit: `1 month ago` may be almost two months. Months and years have different lengths.
    return created + 0.95 * age - _DAY, created + 2 * age + _DAY


def _created_items(measured: Measurement) -> Iterator[Subject]:
    """Yield campaigns and mailboxes, each with the latest plausible time of its creation."""
    mailboxes = list(_dated_mailboxes(measured))
    latest = time.time() + _MOST_AHEAD
    if mailboxes:
        latest = min(latest, mailboxes[0][4][1])
    yield from ((*subject, latest) for subject in _each("campaign", "mailbox")(measured))


def _ending_campaigns(measured: Measurement) -> Iterator[Subject]:
    """Yield each campaign whose end is a timestamp, and the time of the check according to most campaigns."""
    found = [
        subject
        for subject in _each("campaign")(measured)
        if _has_time(subject[3], "days_left_date") and _is_estimate(subject[3].get("days_left"))
    ]
    if found:
        now = median_low(_find_now(item) for *_, item in found)
        yield from ((exchange, location, item, now) for exchange, location, _, item in found)


def _read_age(mailbox: Row) -> float:
    age = parse_age(mailbox.get("created"))
    return math.inf if age is None else age


def _has_time(item: Row, name: str) -> bool:
    return is_number(item.get(name)) and TIMESTAMP[1](item[name])


def _is_estimate(value: Any) -> bool:
    return is_number(value) and NON_NEGATIVE[1](value)


def _find_now(campaign: Row) -> float:
    now: float = campaign["days_left_date"] - campaign["days_left"] * _DAY
    return now


def _add_up(templates: Sequence[Row], name: str) -> int | None:
    """Return the sum of a count over templates; `None` if there are no templates, or not every template has the count."""
    counts: list[Any] = [template.get(name) for template in templates]
    return sum(map(int, counts)) if counts and all(map(is_count, counts)) else None


def _unique_names(measured: Measurement) -> Iterator[Subject]:
    """For each response, yield the strings that must be unique in it: ids of items and templates, or codes of fields."""
    survey = measured.survey
    for page in (*survey.campaign_pages.pages, *survey.mailbox_pages.pages):
        yield page.exchange, "the page", page.ids
    ids: list[str] = []
    for exchange in survey.steps.values():
        ids += _collect_strings([*exchange.rows, *exchange.templates], "id")
        yield exchange, "the response", tuple(ids)  # ids are unique over all campaigns
    yield survey.fields, "the response", _collect_strings(survey.fields.rows, "code")


def _collect_strings(items: Sequence[Row], name: str) -> list[str]:
    return [item[name] for item in items if isinstance(item.get(name), str)]


def _fields(measured: Measurement) -> Iterator[Subject]:
    if (fields := measured.survey.fields).payload is not None:
        yield fields, "the list", fields.rows


# Checks.


@stated(_all_items, {"W4": "every item has every documented field, with the documented type"})
def _check_shape(kind: str, item: Any, _order: object = None) -> Iterator[Fault]:
    return find_misfits("W4", item, SHAPES[kind])


_ITEM_RULES: Final = {
    "W3": "every id starts with the prefix of its resource",
    "W4-shares": "a percentage is 0 if its count is 0, and only then, unless it was rounded",
}


@stated(_each(*SHAPES), _ITEM_RULES)
def _check_item(kind: str, item: Row, _order: object = None) -> Iterator[Fault]:
    prefix, id_ = _ID_PREFIXES[kind], item.get("id", "")
    if item.get("test_letter") == _PERSONALIZED:
        prefix = "personalized_step_"
    if prefix and not (isinstance(id_, str) and id_.startswith(prefix)):
        yield "W3", f"has the id {shorten(id_)}, which does not start with {prefix}"
    for name, count in _PERCENTAGE_COUNTS.items():
        comparable = name in SHAPES[kind] and _has_valid(kind, item, name) and _has_valid(kind, item, count)
        if comparable and (item[name] > 0 >= item[count] or (not item[name] and _is_noticeable(item, item[count]))):
            yield "W4-shares", f"{name} is {shorten(item[name])}, although {count} is {shorten(item[count])}"


def _is_noticeable(item: Row, count: Any) -> bool:
    """Return whether a count is more than 1 % of all e-mails that a template or a campaign can have sent."""
    factors: list[Any] = [item.get(name) for name in (("sent",) if "sent" in item else ("contacts", "steps"))]
    return all(map(is_count, (count, *factors))) and count <= math.prod(factors) < 100 * count


def _has_valid(kind: str, item: Row, name: str) -> bool:
    return name in item and SHAPES[kind][name][1](item[name])


def stated_values(id_: str, statement: str, value_kind: ValueKind, **names: str) -> None:
    """Add the rule that the named fields of some kinds of items have a kind of value."""

    def find_wrong(kind: str, item: Row, _order: object = None) -> Iterator[Fault]:
        return _find_wrong_values(id_, kind, item, value_kind, names[kind].split())

    stated(_each(*names), {id_: statement})(find_wrong)


def _find_wrong_values(rule: str, kind: str, item: Row, value_kind: ValueKind, names: Iterable[str]) -> Iterator[Fault]:
    description, is_of_kind = value_kind
    for name in names:
        if _has_valid(kind, item, name) and not is_of_kind(item[name]):
            yield rule, f"{name} is {shorten(item[name])}, not {description}"


@stated(_rated_templates, {"W4-rates": "a percentage of a template is its count as a share of the e-mails"})
def _check_template_rates(template: Row, bounced: Any, tolerance: float) -> Iterator[Fault]:
    # The API documentation does not state of which e-mails: all that were sent, those delivered, or those opened.
    sent: Any = template.get("sent")
    opened = template.get("opened_num")
    for name, counted in _PERCENTAGE_COUNTS.items():
        value: Any = template.get(name)
        count: Any = template.get(counted)
        if _is_percentage(value) and is_count(count) and is_count(sent) and 0 < count <= sent:
            delivered = sent - bounced if is_count(bounced) else 0
            shares = [(_share(count, sent), _share(count, delivered))]
            if is_count(opened) and name != "opened":
                shares.append((_share(count, opened),) * 2)
            if not any(low - tolerance <= value <= high + tolerance for low, high in shares):
                yield "W4-rates", f"{name} is {shorten(value)}, although {counted} is {count} and {sent} e-mails were sent"


def _is_percentage(value: Any) -> bool:
    return is_number(value) and PERCENTAGE[1](value)


def _share(count: Any, total: Any) -> float:
    return float(100 * count / max(count, total))


@stated(_rated_campaigns, {"W4-campaign-rates": "a percentage of a campaign is its count as a share of its e-mails or contacts"})
def _check_campaign_rates(before: Row, after: Row, steps: Sequence[Row], tolerance: float) -> Iterator[Fault]:
    # E-mails may be sent while the run reads. The percentage listed before the steps is therefore at least the share of what the
    # steps show, and the percentage listed after them is at most that.
    sent: list[Any] = [_add_up(extract_rows(step, "templates"), "sent") for step in steps]
    for name, counted in _PERCENTAGE_COUNTS.items():
        for row in (before, after):
            numbers: list[Any] = [row.get(key) for key in (name, counted, "contacts", "bounces_num")]
            value, count, contacts, bounced = numbers
            if not (sent and count and _is_percentage(value) and all(map(is_count, (count, contacts, bounced, *sent)))):
                continue
            low, high = _share(count, max(sum(sent), contacts)), _share(count, min(max(sent), contacts) - bounced)
            if (row is before and value < low - tolerance) or (row is after and value > high + tolerance):
                fault = f"{name} is {shorten(value)}, although {counted} is {count}, which is {low:.2f} % to {high:.2f} %"
                yield "W4-campaign-rates", fault


@stated(_campaign_totals, {"W4-sums": "opens_num and replies_num are the counts of all templates of a campaign"})
def _check_sums(before: Row, after: Row, steps: Sequence[Row]) -> Iterator[Fault]:
    # E-mails may be opened and answered while the run reads. The sum is therefore at least the count that was listed before the
    # steps, and at most the count that was listed after them.
    templates = [template for step in steps for template in extract_rows(step, "templates")]
    for name, part in (("opens_num", "opened_num"), ("replies_num", "replied_num")):
        whole, first, last = f"{part} of all templates", f"{name} listed before", f"{name} listed after"
        counts = {first: before.get(name), whole: _add_up(templates, part), last: after.get(name)}
        yield from find_unrelated("W4-sums", counts, f"{first} <= {whole}", f"{whole} <= {last}")


_TOTAL_RULES: Final = {
    "W4-bounces": "a campaign has at most as many bounces as e-mails sent",
    "W4-contacts": "contacts is the number of a campaign's contacts, and includes those of each step",
}


@stated(_campaign_totals, _TOTAL_RULES)
def _check_totals(before: Row, after: Row, steps: Sequence[Row]) -> Iterator[Fault]:
    templates = [template for step in steps for template in extract_rows(step, "templates")]
    counts = {"bounces_num": before.get("bounces_num"), "sent of all templates": _add_up(templates, "sent")}
    yield from find_unrelated("W4-bounces", counts, "bounces_num <= sent of all templates")
    # Contacts may join and leave while the run reads.
    listed: list[Any] = [row.get("contacts") for row in (before, after)]
    if all(map(is_count, listed)):
        for step in steps:
            counts = {"out_of": step.get("out_of"), "contacts of the campaign": max(listed)}
            yield from find_unrelated("W4-contacts", counts, "out_of <= contacts of the campaign")


@stated(_campaign_estimates, {"T13-same": "days_left is the same estimate in list-campaigns and list-steps"})
def _check_estimates(before: Row, after: Row, days_left: Any) -> Iterator[Fault]:
    listed: list[Any] = [row.get("days_left") for row in (before, after)]
    if all(map(_is_estimate, (*listed, days_left))) and not min(listed) - _MOST_DAYS <= days_left <= max(listed) + _MOST_DAYS:
        yield (
            "T13-same",
            f"has days_left {shorten(days_left)}, although the campaign is listed with {shorten(before['days_left'])}",
        )


_CAMPAIGN_RULES: Final = {
    "T13": "list-steps has days_left, days_left_date and days_left_display",
    "T13-days": "days_left is an estimate of the remaining days",
    "T14": "days_left_date is Complete either in both list-campaigns and list-steps, or in neither",
    "T14-left": "a finished campaign has nothing left to send",
    "T14-finished": "a campaign with nothing left to send is Complete",
    "W4-steps": "steps is the number of the campaign's steps",
}


@stated(_campaigns, _CAMPAIGN_RULES)
def _check_campaign(listed: Row, document: Row) -> Iterator[Fault]:
    yield from find_misfits("T13", document, SHAPES["steps"])
    for kind, row in ("campaign", listed), ("steps", document):
        yield from _find_wrong_values("T13-days", kind, row, NON_NEGATIVE, ["days_left"])
    date, steps, data = document.get("days_left_date"), extract_rows(document), document.get("data")
    if (listed.get("days_left_date") == COMPLETE) != (date == COMPLETE):
        given = shorten(listed.get("days_left_date"))
        yield "T14", f"has days_left_date {shorten(date)}, although the campaign is listed with {given}"
    left, done = ([step.get(name) for step in steps] for name in ("left_to_send", "already_sent"))
    if date == COMPLETE:
        counts = {"days_left": document.get("days_left")}
        counts |= {f"left_to_send of step {place}": count for place, count in enumerate(left)}
        yield from find_unrelated("T14-left", {**counts, "it is Complete": 0}, *(f"{name} == it is Complete" for name in counts))
    elif all(map(is_count, (*left, *done))) and any(done) and not any(left):
        fault = f"has days_left_date {shorten(date)}, not {COMPLETE!r}, although no step has contacts left to send"
        yield "T14-finished", fault
    counts = {"the number of steps": len(data) if isinstance(data, list) else None, "steps in the list": listed.get("steps")}
    yield from find_unrelated("W4-steps", counts, "the number of steps == steps in the list")


_STEP_RULES: Final = {
    "T3": "out_of is the total number of contacts that go through the step, and includes left_to_send and already_sent",
    "T3-sent": "already_sent includes every contact to which a template of the step was sent",
    "T7-unique": "each template of a step has its own test_letter",
}


@stated(_each("step"), _STEP_RULES)
def _check_step(_kind: str, step: Row) -> Iterator[Fault]:
    templates = extract_rows(step, "templates")
    counts = {**step, "sent of its templates": _add_up(templates, "sent")}
    yield from find_unrelated("T3", counts, "left_to_send + already_sent <= out_of")
    yield from find_unrelated("T3-sent", counts, "sent of its templates <= already_sent")
    yield from _find_repeated("T7-unique", _collect_strings(templates, "test_letter"))


def _find_repeated(rule: str, names: Sequence[str]) -> Iterator[Fault]:
    repeats = [name for place, name in enumerate(names) if name in names[:place]] if len(set(names)) < len(names) else []
    if repeats:
        yield rule, f"has {shorten(repeats[0])} more than once"


stated(_unique_names, {"W3-unique": "ids and field codes are unique"})(partial(_find_repeated, "W3-unique"))


@stated(
    lambda measured: ((one, "the steps' order", one.rows) for one in measured.survey.steps.values() if one.rows),
    {"T1": "order is the position of the step: 1, 2, ..."},
)
def _check_orders(steps: Sequence[Row]) -> Iterator[Fault]:
    orders: list[Any] = [step.get("order") for step in steps]
    if not all(map(is_count, orders)) or sorted(orders) != list(range(1, len(orders) + 1)):
        yield "T1", f"is {shorten(orders)}, not 1, 2, ..."


_TEMPLATE_RULES: Final = {
    "T6": "new_thread and subject are null if test_letter is PER",
    "T6-thread": "if test_letter is not PER, subject is null in a follow-up in the same thread, and a string in a new thread",
    "W4-most": "a template has at most as many opens, clicks, replies and unsubscribes as e-mails sent",
}


@stated(_each("template"), _TEMPLATE_RULES)
def _check_template(_kind: str, template: Row, step_order: Any) -> Iterator[Fault]:
    new, subject = template.get("new_thread"), template.get("subject")
    if template.get("test_letter") == _PERSONALIZED:
        for name in ("new_thread", "subject"):
            if template.get(name) is not None:
                yield "T6", f"has the {name} {shorten(template[name])}, not null"
    elif "new_thread" in template and new is None:
        yield "T6-thread", "has a null new_thread, which is valid only if test_letter is PER"
    elif new is False and step_order != 1 and subject is not None:
        fault = f"has the subject {shorten(subject)}, not null, although the template is a follow-up in the same thread"
        yield "T6-thread", fault
    elif new is True and "subject" in template and subject is None:
        yield "T6-thread", "has a null subject, although the template starts a new thread"
    for name in ("opened_num", "clicked_num", "replied_num", "unsubscribed_num"):
        yield from find_unrelated("W4-most", template, f"{name} <= sent")


@stated(_each("campaign"), {"W4-interested": "interested_num is the count of interested replies"})
def _check_interest(_kind: str, campaign: Row) -> Iterator[Fault]:
    return find_unrelated("W4-interested", campaign, "interested_num <= replies_num")


_CREATED: Final = "the created of a campaign and the created_at of a mailbox are past Unix timestamps"


@stated(_created_items, {"W4-created": _CREATED})
def _check_created(kind: str, item: Row, latest: float) -> Iterator[Fault]:
    past = "a past Unix timestamp in seconds", lambda value: _FIRST_TIMESTAMP <= value <= latest
    return _find_wrong_values("W4-created", kind, item, past, ["created" if kind == "campaign" else "created_at"])


@stated(_dated_mailboxes, {"W4-age": "created and created_at of a mailbox are the same time"})
def _check_age(mailbox: Row, times: TimeRange, median: TimeRange) -> Iterator[Fault]:
    if times[0] > median[1] or times[1] < median[0]:
        yield "W4-age", f"created_at is {shorten(mailbox['created_at'])}, although created is {shorten(mailbox['created'])}"


@stated(_ending_campaigns, {"T13-date": "days_left_date is the date in days_left days"})
def _check_end_date(campaign: Row, now: float) -> Iterator[Fault]:
    if abs(_find_now(campaign) - now) > _MOST_DAYS * _DAY:
        date, days = campaign["days_left_date"], campaign["days_left"]
        yield "T13-date", f"days_left_date is {shorten(date)}, although days_left is {shorten(days)}"


@stated(
    lambda measured: ((one, "the list", kind, measured.survey) for kind, one in measured.survey.unknown_workspace.items()),
    {"P13": "a list has only the items of its workspace"},
)
def _check_workspace(exchange_kind: str, survey: WorkspaceSurvey) -> Iterator[Fault]:
    listed = {"campaigns": survey.campaign_pages, "mailboxes": survey.mailbox_pages}
    if pages := listed.get(exchange_kind):
        own = {id_ for page in pages.pages for id_ in page.ids}
        shared = own.intersection(_collect_strings(survey.unknown_workspace[exchange_kind].rows, "id"))
        if shared:
            yield "P13", f"contains {shorten(min(shared))} of another workspace"


@stated(_sending_mailboxes, {"W4-campaigns": "campaigns of a mailbox is a number of campaigns of the workspace"})
def _check_mailbox_campaigns(mailbox: Row, total: int | None) -> Iterator[Fault]:
    counts = {"campaigns": mailbox.get("campaigns"), "campaigns of the workspace": total}
    return find_unrelated("W4-campaigns", counts, "campaigns <= campaigns of the workspace")


@stated(
    _each("mailbox"), {"W4-windows": "a mailbox sent at most as many e-mails in a window as in a longer one, and most bounced"}
)
def _check_windows(_kind: str, mailbox: Row) -> Iterator[Fault]:
    relations = "sent_today <= sent_30days", "sent_30days <= sent_90days", "bounced_30days <= sent_30days"
    return find_unrelated("W4-windows", mailbox, *relations)


_FIELD_RULES: Final = {
    "F1": "all-fields has all standard codes, and custom codes of the form custom_<n>",
    "F1-searchable": "searchable contains lower-case names",
}


@stated(_fields, _FIELD_RULES)
def _check_fields(fields: Sequence[Row]) -> Iterator[Fault]:
    codes = [field.get("code") for field in fields]
    missing = [code for code in ("email", *STANDARD_FIELDS) if code not in codes]
    if missing:
        more = f" and {len(missing) - _MAX_CODES} more" if len(missing) > _MAX_CODES else ""
        yield "F1", f"has no code {', '.join(missing[:_MAX_CODES])}{more}"
    for code in _collect_strings(fields, "code"):
        if code.startswith("custom") and not CUSTOM_CODE.fullmatch(code):
            yield "F1", f"has {shorten(code)}, which is not of the form custom_<n>"
    for place, field in enumerate(fields):
        for name in _as_list(field, "searchable"):
            if isinstance(name, str) and name != name.lower():
                yield "F1-searchable", f"has {shorten(name)} in data[{place}].searchable, which is not lower case"


stated_values(
    "W4-status",
    "a campaign is draft, live or paused",
    ("draft, live or paused", lambda value: value in {"draft", "live", "paused"}),
    campaign="status",
)
stated_values(
    "W4-counts",
    "counts are whole numbers of 0 or more",
    COUNT,
    campaign="steps contacts opens_num replies_num bounces_num interested_num",
    mailbox="campaigns daily_limit blacklists sent_today sent_30days sent_90days bounced_30days",
    step="left_to_send already_sent out_of",
    template="sent opened_num clicked_num replied_num unsubscribed_num",
)
stated_values(
    "W4-percentages",
    "the opens, interested, replies and bounces of campaigns, and the rates of mailboxes and templates, are percentages",
    PERCENTAGE,
    campaign="opens interested replies bounces",
    mailbox="opened_14days avg_open_rate avg_click_rate",
    template="opened clicked replied unsubscribed",
)
_WORDS: Final = ("active", "live", "Google", "SMTP & IMAP")
_FOLDED_WORDS: Final = frozenset(map(str.casefold, _WORDS))

stated_values("W4-initials", "the initials of a campaign are not negative", NON_NEGATIVE, campaign="initials")
stated_values(
    "W4-words",
    "statuses, types, labels and codes are not blank, and have the documented spelling",
    (
        "a word as documented, or another word",
        lambda value: value in _WORDS or value.strip().casefold() not in {"", *_FOLDED_WORDS},
    ),
    mailbox="status type",
    step="status",
    template="status",
    field="label code",
)
stated_values(
    "W4-date",
    "days_left_date is a string or a Unix timestamp",
    (TIMESTAMP[0], lambda value: isinstance(value, str) or TIMESTAMP[1](value)),
    campaign="days_left_date",
)
stated_values(
    "W4-relative",
    "last_activity, age, and the created field of a mailbox are relative times",
    ("a relative time", lambda value: not _ABSOLUTE_TIME.fullmatch(value)),
    campaign="last_activity",
    mailbox="age last_activity created",
)
stated_values(
    "W4-email",
    "email is a valid e-mail address",
    ("an e-mail address", lambda value: re.fullmatch(r"[^@\s]+@[^@\s]+", value) is not None),
    mailbox="email",
)
stated_values(
    "T1-type", "the only type of a step is auto_email", ("auto_email", lambda value: value == "auto_email"), step="type"
)
stated_values(
    "T1-wait",
    "wait_time is the time to wait between steps, in milliseconds",
    ("a number of milliseconds up to ten years", lambda value: 0 <= value <= _MOST_WAIT),
    step="wait_time",
)
stated_values("T1-templates", "a step has one or more templates", ("a non-empty array", bool), step="templates")
stated_values(
    "T7",
    "test_letter is A, B, ... or PER",
    ("an upper-case letter or PER", lambda value: re.fullmatch("[A-Z]+", value) is not None),
    template="test_letter",
)


# Responses and pages.


def _list_responses(measured: Measurement) -> Iterator[Subject]:
    return ((exchange, "the response", exchange) for exchange in measured.survey.list_exchanges)


def _all_responses(measured: Measurement) -> Iterator[Subject]:
    return chain(_list_responses(measured), ((exchange, "the response", exchange) for exchange, *_ in _created(measured)))


def _pages(measured: Measurement) -> Iterator[Subject]:
    pages = (page for page in measured.survey.pages if page.index or page.exchange.payload is not None)
    return ((page.exchange, "the page", page) for page in pages)


def _sequences_with_end(measured: Measurement) -> Iterator[Subject]:
    for sequence in measured.survey.page_sequences:
        if sequence.page_after is not None:
            yield sequence.page_after.exchange, "the page", sequence, sequence.page_after


def _page_sequences(measured: Measurement) -> Iterator[Subject]:
    """Yield each page sequence, and whether its list is sorted by creation time (ascending or descending)."""
    survey = measured.survey
    longest = (survey.campaign_pages, "created"), (survey.mailbox_pages, "created_at")
    for sequence, (pages, created) in zip(survey.page_sequences, longest * 2, strict=True):
        times: list[float] = [row[created] for row in pages.rows if is_number(row.get(created))]
        yield sequence.pages[-1].exchange, "the page", sequence, times in (sorted(times), sorted(times, reverse=True))


def _find_failure(rule: str, exchange: HttpExchange, statuses: Collection[int]) -> Iterator[Fault]:
    if exchange.response is None:
        yield rule, "did not arrive"
    elif exchange.response.status not in statuses:
        yield rule, f"has the status {exchange.response.status}"
    elif not isinstance(parse_document(exchange.response), dict):
        yield rule, "is not a JSON object"


_LIST_RULES: Final = {
    "W1": "each list request is answered with 200 and a JSON object",
    "W2": "the responses to the four list requests have the status ok",
}


@stated(_list_responses, _LIST_RULES)
def _check_list(exchange: HttpExchange) -> Iterator[Fault]:
    yield from _find_failure("W1", exchange, (200,))
    document = parse_document(exchange.response) if exchange.response is not None else None
    if isinstance(document, dict) and document.get("status") != "ok":
        yield "W2", f"has the status {shorten(document.get('status'))}, not 'ok'"


@stated(_all_responses, {"W1-json": "all bodies are JSON"})
def _check_strict_json(exchange: HttpExchange) -> Iterator[Fault]:
    def refuse_constant(constant: str) -> None:
        raise ValueError(f"{constant} is not a JSON number")

    if exchange.payload is not None and exchange.response is not None:
        try:
            json.loads(exchange.response.body.decode(), parse_constant=refuse_constant)
        except ValueError as error:
            yield "W1-json", f"is not JSON: {error}"


_PAGE_RULES: Final = {
    "P1": "a page has headers, total_found, current_page, total_pages, and no more items than the parameter display allows",
    "P1-counts": "total_found, current_page and total_pages are whole numbers of 0 or more",
    "P1-current": "current_page is the number of the requested page",
    "P1-pages": "total_pages is total_found divided by display, rounded up",
    "P1-total": "total_found is the number of items on all pages",
    "P14": "headers is an array of strings",
}


@stated(_pages, _PAGE_RULES)
def _check_page(page: SampledPage) -> Iterator[Fault]:
    document = page.exchange.payload
    if document is None:
        yield "P1-total", "was not served, although total_found on the first page implies that this page exists"
        return
    yield from find_misfits("P1", document, SHAPES["page"])
    yield from find_unrelated("P1", {"items": page.item_count, "display": page.display}, "items <= display")
    for name in ("total_found", "current_page", "total_pages"):
        if is_number(document.get(name)) and not is_count(document[name]):
            yield "P1-counts", f"has the {name} {shorten(document[name])}, not {COUNT[0]}"
    counts = {**document, "the requested page": page.number}
    yield from find_unrelated("P1-current", counts, "current_page == the requested page")
    if page.total is not None:
        # The API documentation does not state whether an empty list has one page or no page.
        needed = -(-page.total // page.size)
        counts = {**document, "needed pages": needed, "needed pages or 1": max(needed, 1)}
        yield from find_unrelated("P1-pages", counts, "needed pages <= total_pages", "total_pages <= needed pages or 1")
        expected = min(page.size, max(0, page.total - page.index * page.size))
        counts = {"items": page.item_count, "from total_found": expected}
        yield from find_unrelated("P1-total", counts, "items == from total_found")
    yield from find_misfits("P14", document, {"headers": SHAPES["page"]["headers"]})


@stated(_sequences_with_end, {"P1-end": "a page past the end is refused, is empty, or repeats items of other pages"})
def _check_end(sequence: PageSequence, after: SampledPage) -> Iterator[Fault]:
    new = set(after.ids) - {id_ for page in sequence.pages for id_ in page.ids}
    if new and after.total == sequence.pages[-1].total:  # items added during the run are not a violation
        fault = f"is past the end, but contains {shorten(min(new))}, which is on no other page: total_found is {after.total}"
        yield "P1-end", fault


@stated(_page_sequences, {"P1-repeat": "no item is on two pages"})
def _check_repeats(sequence: PageSequence, is_stable: bool) -> Iterator[Fault]:  # noqa: FBT001 - a subject has only values
    # If the list is not sorted by creation time, the fault is only a page that has several items and repeats all of them.
    seen: set[str] = set()
    if len({page.total for page in sequence.pages}) > 1:
        return  # items added or removed during the run shift all later items
    for page in sequence.pages:
        again = seen.intersection(page.ids)
        if again and (is_stable or len(again) == len(page.ids) > 1):
            fault = f"has the number {page.number} and contains {shorten(min(again))}, which is also on an earlier page"
            yield "P1-repeat", fault
        seen.update(page.ids)


@stated(
    lambda measured: ((page.exchange, "the response", page) for page in measured.survey.mailbox_pages.pages[:1]),
    {"P2": "mailboxes: display may be up to 2,000"},
)
def _check_mailbox_count(page: SampledPage) -> Iterator[Fault]:
    if page.exchange.payload is None:
        yield from _find_failure("P2", page.exchange, (200,))
    elif page.total is not None and len(page.exchange.rows) < min(page.total, MAX_MAILBOXES):
        yield "P2", f"contains {len(page.exchange.rows)} of {page.total} mailboxes at display={MAX_MAILBOXES}"


# Creating contacts.


def _creations(kind: str = "") -> Subjects:
    """Return a function that yields create requests: for a `known` or `new` contact, with all `fields`, or by outcome."""

    def find(measured: Measurement) -> Iterator[Subject]:
        if trial := measured.trial:
            sent = [("known", outcome, trial.outcomes[outcome]) for outcome in OUTCOMES[1:]]
            sent += [("new", "added", exchange) for exchange in (trial.outcomes["added"], *trial.other_new.values())]
            sent += [("fields", "added", trial.fields)] if trial.fields else []
            yield from ((each, "the response", outcome, each) for own, outcome, each in sent if kind in {"", own, outcome})

    return find


def _created(measured: Measurement) -> Iterator[Subject]:
    return (subject for subject in _creations()(measured) if subject[0].payload is not None)


def _incomplete_creations(measured: Measurement) -> Iterator[Subject]:
    omitted = measured.trial.incomplete if measured.trial else {}
    return ((exchange, "the response", member, exchange) for member, exchange in omitted.items())


def _returned_ids(measured: Measurement) -> Iterator[Subject]:
    """Yield a mapping of outcomes to the ids returned for one contact. The key `another` has the id of another contact."""
    if measured.trial:
        outcomes = {**measured.trial.outcomes, "another": measured.trial.fields}
        ids = {outcome: (exchange.payload or {}).get("id") for outcome, exchange in outcomes.items() if exchange}
        known = {outcome: id_ for outcome, id_ in ids.items() if isinstance(id_, str) and outcome != "skipped"}
        yield measured.trial.outcomes["updated_missing_fields"], "the contact", known


def _check_accepted(rule: str, _outcome: str, exchange: HttpExchange) -> Iterator[Fault]:
    return _find_failure(rule, exchange, (200, 201))


def _check_outcome(rule: str, expected: str, exchange: HttpExchange) -> Iterator[Fault]:
    status = (exchange.payload or {}).get("status")
    if status != expected:
        yield rule, f"has the status {shorten(status)}, not {expected!r}"


for _id, _statement, _subjects, _check in (
    ("A1", "a request with the owner_key in its body creates a contact", _creations("new"), _check_accepted),
    ("C19", "contacts can be created with every field that `all-fields` returns", _creations("fields"), _check_accepted),
    ("E1", "creating a duplicate contact is not an error", _creations("skipped"), _check_accepted),
    (
        "C1",
        "a contact with the same e-mail address in the same workspace is a duplicate",
        _creations("known"),
        _check_outcome,
    ),
    ("C2-added", "a new contact has the status added, whatever the duplicates option", _creations("new"), _check_outcome),
):
    stated(_subjects, {_id: _statement}, writes=True)(partial(_check, _id))


@stated(_incomplete_creations, {"C6": "a request must have owner_key, workspace, email and upload_options"}, writes=True)
def _check_refused(member: str, exchange: HttpExchange) -> Iterator[Fault]:
    if exchange.payload is not None:
        yield "C6", f"has the status {shorten(exchange.payload.get('status'))}, although the request omits {member}"


_RESULT: Final = "a skipped contact has a null id and a string in details; any other contact has an id and null details"


@stated(_created, {"C2": _RESULT}, writes=True)
def _check_result(outcome: str, exchange: HttpExchange) -> Iterator[Fault]:
    document = exchange.payload or {}
    id_, details = document.get("id", KeyError), document.get("details", KeyError)
    if outcome == "skipped":
        expected = "a null id and a string in details"
        is_right = id_ is None and isinstance(details, str) and bool(details.strip())
    else:
        expected = "an id contact_... and null details"
        is_right = isinstance(id_, str) and id_.startswith("contact_") and details is None
    if not is_right:
        yield "C2", f"has the id {shorten(id_)} and details {shorten(details)}; expected {expected}"


@stated(_returned_ids, {"C2-id": "each contact has a unique id; updating the contact returns the same id"}, writes=True)
def _check_ids(ids: Mapping[str, str]) -> Iterator[Fault]:
    added = ids.get("added")
    for outcome, id_ in ids.items() if added else ():
        if (outcome == "another") == (id_ == added):
            whose = "of another contact" if outcome == "another" else f"in the response with the status {outcome}"
            yield "C2-id", f"had the id {shorten(added)} when it was added, but the id {whose} is {shorten(id_)}"


@stated(
    lambda measured: iter([(found.exchange, "the first step", found)] if (found := measured.membership) else ()),
    {
        "C7": "a contact joins the campaign that it is created with; null means no campaign",
        "C7-listed": "contacts in list-campaigns counts a contact that has joined the campaign",
    },
    writes=True,
)
def _check_memberships(counts: MembershipCounts) -> Iterator[Fault]:
    names = "contacts before", "contacts after one was created with the campaign", "contacts after one was created without it"
    before, joined, other = names
    known = dict(zip(names, (counts.before, counts.after_joining, counts.after_other), strict=True))
    listed = {"contacts listed before": counts.listed_before, "contacts listed after one joined": counts.listed_after, "1": 1}
    yield from find_unrelated("C7-listed", listed, "contacts listed before + 1 <= contacts listed after one joined")
    yield from find_unrelated("C7", {**known, "1": 1}, f"{joined} == {before} + 1", f"{other} == {joined}")


# The check.

RULES: Final = tuple(REGISTERED_RULES)
"""The rules that `check` checks: the `id` and the `statement` of each, and whether it `writes`.

Example:
    ```python
    print([rule.statement for rule in RULES if rule.id == "T1-type"])  # -> ['the only type of a step is auto_email']
    ```
"""

_MAX_BREACHES: Final = 3


@attrs.frozen
class Breach:
    """A violation of a rule in the service's API documentation.

    Attributes:
        rule: The id of the rule.
        says: The wording of the rule.
        what: The location in the response, and a description of the
            violation.
        request: Method and target of the request.
        answered: The response of the service, shortened and with secrets
            masked, or the reason why no response arrived.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", daily_limit="many")
        (breach,) = await check(FakeTransport(fake), Access("space_1"))
        print(breach.rule, breach.what)  # -> W4 data[1] daily_limit is a string, not a number
        ```
    """

    rule: str
    says: str
    what: str
    request: str
    answered: str

    def __str__(self) -> str:
        context = f"interface: {self.says}", f"request: {self.request}", f"response: {self.answered}"
        return "\n  ".join((f"{self.rule}: {self.what}", *context))


def find_breaches(rule: StatedRule, measured: Measurement) -> list[Breach] | None:
    """Return the violations of a rule, at most three; `None` if the responses contain nothing to check."""
    subjects = list(rule.subjects(measured))
    faults = (
        (exchange, f"{location} {fault}")
        for exchange, location, *values in subjects
        for id_, fault in rule.find_faults(*values)
        if id_ == rule.id
    )
    access, breaches = measured.access, []
    for exchange, fault in islice(faults, _MAX_BREACHES):
        answered = exchange.error if exchange.response is None else access.format_response(exchange.response)
        what, request = (
            mask_string(text, access.secrets) for text in (fault, f"{exchange.request.method} {exchange.request.target}")
        )
        breaches.append(Breach(rule.id, rule.statement, what, request, answered))
    return breaches if subjects else None


async def check(transport: Transport, access: Access) -> list[Breach]:
    """Check a service against every testable rule in its API documentation.

    Args:
        transport: The transport to the service. It is not closed.
        access: The workspace and credentials.

    Returns:
        The violations, at most three per rule.

    Raises:
        InvalidRequest: An argument is of another type.

    Example:
        ```python
        print(await check(FakeTransport(fake), Access("space_1")))  # -> []
        ```
    """
    require_types(check, locals())
    measured = await measure_service(transport, access)
    return [breach for rule in RULES for breach in find_breaches(rule, measured) or ()]
