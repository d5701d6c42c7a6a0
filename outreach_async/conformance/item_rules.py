"""The interface's rules about the items of lists: campaigns, mailboxes, steps, templates and fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async.conformance import rule
from outreach_async.conformance.calibration import Measurement
from outreach_async.conformance.read_probes import COMPLETE, HttpExchange
from outreach_async.conformance.rule import RuleSubject, StatedRule, shorten
from outreach_async.conformance.target import extract_rows
from outreach_async.fake.stored_records import CUSTOM_CODE

Item = Mapping[str, Any]

_PERSONALIZED: Final = "PER"
_STANDARD_CODES: Final = ("first_name", "middle_name", "last_name", "full_name", "nickname", "email")

_SHAPES: Final = {
    "campaign": rule.CAMPAIGN,
    "mailbox": rule.MAILBOX,
    "step": rule.STEP,
    "template": rule.TEMPLATE,
    "response": rule.STEPS,
}

_PERCENTAGE_COUNTS: Final = {
    "opens": "opens_num", "replies": "replies_num", "bounces": "bounces_num",
    "opened": "opened_num", "clicked": "clicked_num", "replied": "replied_num", "unsubscribed": "unsubscribed_num",
}  # fmt: skip
"""Percentages of campaigns and templates, each with the count from which the percentage is computed."""


@attrs.frozen
class ListedItem:
    """An item of a list.

    Attributes:
        item: The item, which may be any JSON value.
        shape: The table of the item's fields and their types.
        prefix: The prefix that the item's id must have; empty for an item without an id.
    """

    item: Any
    shape: rule.Shape
    prefix: str

    def has_valid(self, name: str) -> bool:
        """Return whether the item has the field, with a value of the type that `shape` gives."""
        return isinstance(self.item, dict) and name in self.item and self.shape[name][1](self.item[name])


# Subjects of rules.


def _all_items(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield every item that was read, as a `ListedItem` with the table of its fields and the prefix of its id."""
    yield from _listed(measured, rule.CAMPAIGN)
    yield from _listed(measured, rule.MAILBOX)
    yield from _items_in(measured.survey.fields, rule.FIELD, "")
    yield from _listed(measured, rule.STEP)
    for subject in _templates(measured):
        prefix = "personalized_step_" if subject.value.get("test_letter") == _PERSONALIZED else "temp_"
        yield RuleSubject(subject.exchange, subject.location, ListedItem(subject.value, rule.TEMPLATE, prefix))


def _listed(measured: Measurement, shape: rule.Shape) -> Iterator[RuleSubject]:
    """Yield every campaign, mailbox or step that was read."""
    survey = measured.survey
    exchanges: Iterable[HttpExchange]
    if shape is rule.STEP:
        exchanges, prefix = survey.steps.values(), "step_"
    else:
        pages, prefix = (survey.campaign_pages, "camp_") if shape is rule.CAMPAIGN else (survey.mailbox_pages, "mailbox_")
        exchanges = (page.exchange for page in pages.pages)
    return chain.from_iterable(_items_in(exchange, shape, prefix) for exchange in exchanges)


def _items_in(exchange: HttpExchange, shape: rule.Shape, prefix: str) -> Iterator[RuleSubject]:
    data = (exchange.payload or {}).get("data")
    for place, item in enumerate(data if isinstance(data, list) else ()):
        yield RuleSubject(exchange, f"data[{place}]", ListedItem(item, shape, prefix))


def _objects(shape: rule.Shape, measured: Measurement) -> Iterator[RuleSubject]:
    return (subject for subject in _listed(measured, shape) if isinstance(subject.value.item, dict))


_campaigns = partial(_objects, rule.CAMPAIGN)
_mailboxes = partial(_objects, rule.MAILBOX)
_steps = partial(_objects, rule.STEP)


def _templates(measured: Measurement) -> Iterator[RuleSubject]:
    return (RuleSubject(one.exchange, one.location, one.value[1]) for one in _ordered_templates(measured))


def _ordered_templates(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield every template, paired with the `order` of its step."""
    for exchange in measured.survey.steps.values():
        for place, step in enumerate(exchange.rows):
            found = step.get("templates")
            for number, template in enumerate(found if isinstance(found, list) else ()):
                if isinstance(template, dict):
                    yield RuleSubject(exchange, f"data[{place}].templates[{number}]", (step.get("order"), template))


def _step_lists(measured: Measurement) -> Iterator[RuleSubject]:
    return (attrs.evolve(subject, value=subject.value[1]) for subject in _campaign_pairs(measured))


def _orders(measured: Measurement) -> Iterator[RuleSubject]:
    for exchange in measured.survey.steps.values():
        if exchange.rows:
            yield RuleSubject(exchange, "the steps' order", [step.get("order") for step in exchange.rows])


def _campaign_pairs(measured: Measurement) -> Iterator[RuleSubject]:
    """For each campaign whose steps were read, yield its item in the campaign list, and the response of list-steps."""
    listed = {str(row.get("id")): row for row in measured.survey.campaign_pages.rows}
    for id_, exchange in measured.survey.steps.items():
        if exchange.payload is not None:
            yield RuleSubject(exchange, "the response", (listed[id_], exchange.payload))


def _unique_names(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield the names that must be unique within a response: ids, including those of templates, and codes of fields."""
    survey = measured.survey
    for page in (*survey.campaign_pages.pages, *survey.mailbox_pages.pages):
        yield RuleSubject(page.exchange, "the page", page.ids)
    for exchange in survey.steps.values():
        templates = [template for step in exchange.rows for template in extract_rows({"data": step.get("templates")})]
        yield RuleSubject(exchange, "the response", _collect_strings([*exchange.rows, *templates], "id"))
    yield RuleSubject(survey.fields, "the response", _collect_strings(survey.fields.rows, "code"))


def _collect_strings(items: Sequence[Item], name: str) -> list[str]:
    return [item[name] for item in items if isinstance(item.get(name), str)]


def _codes(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.survey.fields.payload is not None:
        yield RuleSubject(measured.survey.fields, "the list", [field.get("code") for field in measured.survey.fields.rows])


def _searchables(measured: Measurement) -> Iterator[RuleSubject]:
    for place, field in enumerate(measured.survey.fields.rows):
        names = field.get("searchable")
        for name in names if isinstance(names, list) else ():
            yield RuleSubject(measured.survey.fields, f"data[{place}].searchable", name)


# Violations.


def _check_shape(listed: ListedItem) -> Iterator[str]:
    return rule.find_misfits(listed.item, listed.shape)


def _check_id_prefix(listed: ListedItem) -> Iterator[str]:
    id_ = listed.item.get("id", "") if isinstance(listed.item, dict) else ""
    if listed.prefix and not (isinstance(id_, str) and id_.startswith(listed.prefix)):
        yield f"has the id {shorten(id_)}, which does not start with {listed.prefix}"


def _check_values(kind: rule.ValueKind, **names: str) -> Callable[[ListedItem], Iterator[str]]:
    """Return a check that the given fields have values of `kind`, which is narrower than the fields' type in the table."""
    tables = [(_SHAPES[item], fields.split()) for item, fields in names.items()]
    description, is_of_kind = kind

    def find_faults(listed: ListedItem) -> Iterator[str]:
        for name in (name for shape, fields in tables if shape is listed.shape for name in fields):
            if listed.has_valid(name) and not is_of_kind(listed.item[name]):
                yield f"{name} is {shorten(listed.item[name])}, not {description}"

    return find_faults


def _check_percentages_of_zero(listed: ListedItem) -> Iterator[str]:
    for name, count in _PERCENTAGE_COUNTS.items():
        comparable = name in listed.shape and listed.has_valid(name) and listed.has_valid(count)
        if comparable and listed.item[name] > 0 >= listed.item[count]:
            yield f"{name} is {shorten(listed.item[name])}, although {count} is {shorten(listed.item[count])}"


def _check_interested(listed: ListedItem) -> Iterator[str]:
    names = "interested_num", "replies_num"
    if all(map(listed.has_valid, names)) and listed.item[names[0]] > listed.item[names[1]]:
        yield f"interested_num is {shorten(listed.item[names[0]])}, more than the {shorten(listed.item[names[1]])} replies"


def _check_days_left(pair: tuple[Item, Item]) -> Iterator[str]:
    for item, shape in zip(pair, (rule.CAMPAIGN, rule.STEPS), strict=True):
        yield from _check_values(rule.NON_NEGATIVE, campaign="days_left", response="days_left")(ListedItem(item, shape, ""))


def _check_orders(orders: Sequence[Any]) -> Iterator[str]:
    if not all(map(rule.is_count, orders)) or sorted(orders) != list(range(1, len(orders) + 1)):
        yield f"is {shorten(orders)}, not 1, 2, ..."


def _check_step_counts(listed: ListedItem) -> Iterator[str]:
    names = "left_to_send", "already_sent", "out_of"
    if all(map(listed.has_valid, names)):
        left, done, whole = (listed.item[name] for name in names)
        if left + done > whole:
            yield f"has left_to_send {left} and already_sent {done}, together more than out_of {whole}"


def _check_personalized(template: Item) -> Iterator[str]:
    for name in ("new_thread", "subject"):
        if template.get("test_letter") == _PERSONALIZED and template.get(name) is not None:
            yield f"has the {name} {shorten(template[name])}, not null"


def _check_thread(ordered: tuple[Any, Item]) -> Iterator[str]:
    order, template = ordered
    new, subject = template.get("new_thread"), template.get("subject")
    if template.get("test_letter") == _PERSONALIZED:
        return
    if "new_thread" in template and new is None:
        yield "has the new_thread null, which is valid only for the personalized entry"
    if new is False and order != 1 and subject is not None:
        yield f"has the subject {shorten(subject)}, not null, although it follows up in the same thread"
    if new is True and "subject" in template and subject is None:
        yield "has the subject null, although it starts a thread"


def _check_step_count(pair: tuple[Item, Item]) -> Iterator[str]:
    listed, document = pair
    data = document.get("data")
    if rule.is_count(listed.get("steps")) and isinstance(data, list) and listed["steps"] != len(data):
        yield f"has {len(data)} steps, although the campaign is listed with {listed['steps']}"


def _check_date(pair: tuple[Item, Item]) -> Iterator[str]:
    listed, own = (item.get("days_left_date") for item in pair)
    if (listed == COMPLETE) != (own == COMPLETE):
        yield f"has days_left_date {shorten(own)}, although the campaign is listed with {shorten(listed)}"


def _check_complete_counts(pair: tuple[Item, Item]) -> Iterator[str]:
    document = pair[1]
    if document.get("days_left_date") != COMPLETE:
        return
    if rule.is_count(document.get("days_left")) and document["days_left"]:
        yield f"has days_left_date {COMPLETE!r}, but days_left {document['days_left']}"
    steps = document.get("data")
    for place, step in enumerate(steps if isinstance(steps, list) else ()):
        left = step.get("left_to_send") if isinstance(step, dict) else None
        if rule.is_count(left) and left:
            yield f"has days_left_date {COMPLETE!r}, but data[{place}] has {left} left to send"


def _check_unique(ids: Sequence[str]) -> Iterator[str]:
    repeats = [id_ for place, id_ in enumerate(ids) if id_ in ids[:place]] if len(set(ids)) < len(ids) else []
    if repeats:
        yield f"has {shorten(repeats[0])} more than once"


def _check_codes(codes: Sequence[Any]) -> Iterator[str]:
    missing = [code for code in _STANDARD_CODES if code not in codes]
    if missing:
        yield f"has no code {', '.join(missing)}"
    odd = [code for code in codes if isinstance(code, str) and code.startswith("custom") and not CUSTOM_CODE.fullmatch(code)]
    if odd:
        yield f"has {shorten(odd[0])}, which is not of the form custom_<n>"


def _check_lower_case(name: object) -> Iterator[str]:
    if isinstance(name, str) and name != name.lower():
        yield f"has {shorten(name)}, which is not lower case"


_check_step_list = partial(rule.find_misfits, shape=rule.STEPS)
_check_counts = _check_values(
    rule.COUNT,
    campaign="steps contacts opens_num replies_num bounces_num interested_num",
    step="left_to_send already_sent out_of",
    template="sent opened_num clicked_num replied_num unsubscribed_num",
)
_check_percentages = _check_values(
    rule.PERCENTAGE,
    campaign="opens replies bounces",
    mailbox="opened_14days avg_open_rate avg_click_rate",
    template="opened clicked replied unsubscribed",
)
_check_timestamps = _check_values(rule.TIMESTAMP, campaign="created", mailbox="created_at")
_check_dates = _check_values(rule.TIMESTAMP_OR_STRING, campaign="days_left_date")
_check_relative_times = _check_values(rule.RELATIVE_TIME, campaign="last_activity", mailbox="age last_activity created")

ITEM_RULES: Final[tuple[StatedRule, ...]] = (
    StatedRule("W3", "every id starts with the prefix of its resource", _all_items, _check_id_prefix),
    StatedRule("W3-unique", "ids and field codes are unique", _unique_names, _check_unique),
    StatedRule("W4", "every item has every field of its table, with the type given there", _all_items, _check_shape),
    StatedRule("W4-status", "a campaign is draft, live or paused", _campaigns, _check_values(rule.STATUS, campaign="status")),
    StatedRule("W4-counts", "counts are whole numbers of 0 or more", _all_items, _check_counts),
    StatedRule("W4-percentages", "opens, replies, bounces and rates are percentages", _all_items, _check_percentages),
    StatedRule("W4-shares", "a percentage agrees with its count", _all_items, _check_percentages_of_zero),
    StatedRule("W4-interested", "interested_num is the count of interested replies", _campaigns, _check_interested),
    StatedRule("W4-created", "the time of creation is a Unix timestamp", _all_items, _check_timestamps),
    StatedRule("W4-date", "days_left_date is a string or a Unix timestamp", _campaigns, _check_dates),
    StatedRule("W4-relative", "times of activity and ages are relative times", _all_items, _check_relative_times),
    StatedRule("W4-email", "email is an e-mail address", _mailboxes, _check_values(rule.EMAIL, mailbox="email")),
    StatedRule("W4-steps", "steps is the number of the campaign's steps", _campaign_pairs, _check_step_count),
    StatedRule("T1", "order is the position of the step: 1, 2, ...", _orders, _check_orders),
    StatedRule("T1-type", "the only type of a step is auto_email", _steps, _check_values(rule.AUTO_EMAIL, step="type")),
    StatedRule("T1-wait", "wait_time is the wait between steps", _steps, _check_values(rule.NON_NEGATIVE, step="wait_time")),
    StatedRule("T1-templates", "a step has one or more templates", _steps, _check_values(rule.NON_EMPTY_ARRAY, step="templates")),
    StatedRule(
        "T3", "out_of counts the contacts of the step, including left_to_send and already_sent", _steps, _check_step_counts
    ),
    StatedRule("T6", "new_thread and subject are null for the personalized entry", _templates, _check_personalized),
    StatedRule(
        "T6-thread",
        "except for the personalized entry, only follow-ups in the same thread have no subject",
        _ordered_templates,
        _check_thread,
    ),
    StatedRule("T7", "test_letter is A, B, ... or PER", _all_items, _check_values(rule.LETTER, template="test_letter")),
    StatedRule("T13", "list-steps has days_left, days_left_date and days_left_display", _step_lists, _check_step_list),
    StatedRule("T13-days", "days_left is an estimate of the remaining days", _campaign_pairs, _check_days_left),
    StatedRule("T14", "list-campaigns and list-steps agree on days_left_date Complete", _campaign_pairs, _check_date),
    StatedRule("T14-left", "a finished campaign has nothing left to send", _campaign_pairs, _check_complete_counts),
    StatedRule("F1", "all-fields has the standard codes, and custom codes of the form custom_<n>", _codes, _check_codes),
    StatedRule("F1-searchable", "searchable holds lower-case names", _searchables, _check_lower_case),
)
"""The interface's rules about campaigns, mailboxes, steps, templates and fields."""
