"""Define the documented rules about the items of lists: campaigns, mailboxes, steps, templates and fields.

This module also defines the class `StatedRule`. Every rule is an instance of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async import errors
from outreach_async.conformance import _shapes as shapes
from outreach_async.conformance._calibration import Measurement
from outreach_async.conformance._read_probes import COMPLETE, HttpExchange
from outreach_async.conformance._shapes import ValueKind, find_misfits, is_count, is_number
from outreach_async.conformance._target import extract_rows
from outreach_async.fake._stored_records import CUSTOM_CODE, STANDARD_FIELDS

_MAX_SHOWN: Final = 60
_PERSONALIZED: Final = "PER"
_STANDARD_CODES: Final = ("email", *STANDARD_FIELDS)
_MAX_CODES: Final = 5
"""Maximum number of missing codes that a message names."""
_LEAST_SHARE: Final = 0.02
"""Smallest share of e-mails for which a percentage can be told from a fraction."""
_SHARE_TOLERANCE: Final = 0.005
"""Largest difference between a share and the same share rounded to two decimal places."""

_PERCENTAGE_COUNTS: Final = {
    "opens": "opens_num", "replies": "replies_num", "bounces": "bounces_num",
    "opened": "opened_num", "clicked": "clicked_num", "replied": "replied_num", "unsubscribed": "unsubscribed_num",
}  # fmt: skip
"""Percentages of campaigns and templates, each with the count from which the percentage is computed."""

Row = Mapping[str, Any]
Subject = tuple[HttpExchange, str, Any]
"""The subject of a rule: the response that contains it, its location in the response, and the value to check."""
Subjects = Callable[[Measurement], Iterator[Subject]]
Check = Callable[[Any], Iterator[str]]


@attrs.frozen
class StatedRule:
    id: str
    statement: str
    subjects: Subjects
    find_faults: Check
    writes: bool = False


REGISTERED_RULES: Final[list[StatedRule]] = []


def stated(id_: str, statement: str, subjects: Subjects, *, writes: bool = False) -> Callable[[Check], Check]:
    """Make a function the check of a rule. `writes` means that the rule can be checked only by creating contacts."""

    def register(find_faults: Check) -> Check:
        REGISTERED_RULES.append(StatedRule(id_, statement, subjects, find_faults, writes))
        return find_faults

    return register


def shorten(value: object) -> str:
    """Return `repr(value)`, cut to 60 characters."""
    return errors.shorten(repr(value), _MAX_SHOWN)


def find_unrelated(counts: Row, *relations: str) -> Iterator[str]:
    """Yield a fault for each relation, such as `left_to_send + already_sent <= out_of`, that does not hold for the counts."""
    # A relation is ignored if one of its counts is missing or not a count: other rules are about that.
    for relation in relations:
        left, operator, right = re.split(" (<=|==) ", relation)
        sides: list[list[Any]] = [[counts.get(name) for name in side.split(" + ")] for side in (left, right)]
        if all(map(is_count, chain(*sides))):
            low, high = map(sum, sides)
            if low > high or (operator == "==" and low < high):
                yield f"{left} is {low}, {'not' if operator == '==' else 'more than'} {high} ({right})"


# Items: subjects of rules.


@attrs.frozen
class Item:
    kind: str
    value: Any
    step_order: Any = None

    def has_valid(self, name: str) -> bool:
        """Return whether the item has the field `name`, with a value of the documented type."""
        return name in self.value and shapes.BY_ITEM[self.kind][name][1](self.value[name])


def _all_items(measured: Measurement) -> Iterator[Subject]:
    survey = measured.survey
    exchanges = [("campaign", page.exchange) for page in survey.campaign_pages.pages]
    exchanges += [("mailbox", page.exchange) for page in survey.mailbox_pages.pages]
    exchanges += [("field", survey.fields), *(("step", exchange) for exchange in survey.steps.values())]
    for kind, exchange in exchanges:
        for place, value in enumerate(_as_list(exchange.payload or {}, "data")):
            yield exchange, f"data[{place}]", Item(kind, value)
            if kind == "step" and isinstance(value, dict):
                for number, template in enumerate(_as_list(value, "templates")):
                    if isinstance(template, dict):
                        yield exchange, f"data[{place}].templates[{number}]", Item("template", template, value.get("order"))


def _as_list(document: Row, name: str) -> list[Any]:
    found = document.get(name)
    return found if isinstance(found, list) else []


def _each(kind: str) -> Subjects:
    return lambda measured: (
        subject for subject in _all_items(measured) if subject[2].kind == kind and isinstance(subject[2].value, dict)
    )


def _campaign_pairs(measured: Measurement) -> Iterator[Subject]:
    """For each campaign whose steps were read, yield its item in the campaign list, and the response of list-steps."""
    listed = {str(row.get("id")): row for row in measured.survey.campaign_pages.rows}
    for id_, exchange in measured.survey.steps.items():
        if exchange.payload is not None:
            yield exchange, "the response", (listed[id_], exchange.payload)


def _campaign_totals(measured: Measurement) -> Iterator[Subject]:
    """For each campaign whose steps were read, yield its item before and after the steps, and its templates."""
    # The item after the steps is empty if the campaign is no longer on the first page.
    later = {str(row.get("id")): row for row in measured.survey.campaigns_after.rows}
    for exchange, location, (listed, document) in _campaign_pairs(measured):
        templates = [template for step in extract_rows(document) for template in _templates_of(step)]
        yield exchange, location, (listed, later.get(str(listed.get("id")), {}), templates)


def _rated_items(measured: Measurement) -> Iterator[Subject]:
    """Yield templates and campaigns, each with the number of e-mails sent."""
    for exchange, location, item in _each("template")(measured):
        yield exchange, location, (item.value, item.value.get("sent"))
    for exchange, _, (listed, _, templates) in _campaign_totals(measured):
        yield exchange, "the campaign", (listed, _add_up(templates, "sent"))


def _templates_of(step: Row) -> list[dict[str, Any]]:
    return extract_rows({"data": step.get("templates")})


def _add_up(templates: Sequence[Row], name: str) -> int | None:
    """Return the sum of a count over templates; `None` if there are no templates, or not every template has the count."""
    counts: list[Any] = [template.get(name) for template in templates]
    return sum(map(int, counts)) if counts and all(map(is_count, counts)) else None


def _unique_names(measured: Measurement) -> Iterator[Subject]:
    """For each response, yield the strings that must be unique in it: ids of items and templates, or codes of fields."""
    survey = measured.survey
    for page in (*survey.campaign_pages.pages, *survey.mailbox_pages.pages):
        yield page.exchange, "the page", page.ids
    for exchange in survey.steps.values():
        templates = [template for step in exchange.rows for template in _templates_of(step)]
        yield exchange, "the response", _collect_strings([*exchange.rows, *templates], "id")
    yield survey.fields, "the response", _collect_strings(survey.fields.rows, "code")


def _collect_strings(items: Sequence[Row], name: str) -> list[str]:
    return [item[name] for item in items if isinstance(item.get(name), str)]


def _searchables(measured: Measurement) -> Iterator[Subject]:
    for place, field in enumerate(measured.survey.fields.rows):
        for name in _as_list(field, "searchable"):
            yield measured.survey.fields, f"data[{place}].searchable", name


# Items: violations.


@stated("W4", "every item has every documented field, with the documented type", _all_items)
def _check_shape(item: Item) -> Iterator[str]:
    return find_misfits(item.value, shapes.BY_ITEM[item.kind])


@stated("W3", "every id starts with the prefix of its resource", _all_items)
def _check_id_prefix(item: Item) -> Iterator[str]:
    row = item.value if isinstance(item.value, dict) else {"id": ""}
    prefix = "personalized_step_" if row.get("test_letter") == _PERSONALIZED else shapes.ID_PREFIXES[item.kind]
    id_ = row.get("id", "")
    if not (isinstance(id_, str) and id_.startswith(prefix)) and prefix:
        yield f"has the id {shorten(id_)}, which does not start with {prefix}"


def stated_values(id_: str, statement: str, kind: ValueKind, **names: str) -> None:
    """Add the rule that the named fields of campaigns, mailboxes, steps or templates are of a kind."""

    def find_subjects(measured: Measurement) -> Iterator[Subject]:
        return (subject for subject in _all_items(measured) if subject[2].kind in names)

    stated(id_, statement, find_subjects)(lambda item: _find_wrong_values(kind, item, names[item.kind].split()))


def _find_wrong_values(kind: ValueKind, item: Item, names: Iterable[str]) -> Iterator[str]:
    description, is_of_kind = kind
    for name in names if isinstance(item.value, dict) else ():
        if item.has_valid(name) and not is_of_kind(item.value[name]):
            yield f"{name} is {shorten(item.value[name])}, not {description}"


def stated_relations(id_: str, statement: str, item: str, *relations: str) -> None:
    """Add the rule that relations hold for the counts of campaigns, steps or templates."""
    stated(id_, statement, _each(item))(lambda item: find_unrelated(item.value, *relations))


@stated("W4-shares", "a percentage is 0 if its count is 0", _all_items)
def _check_percentages_of_zero(item: Item) -> Iterator[str]:
    for name, count in _PERCENTAGE_COUNTS.items() if isinstance(item.value, dict) else ():
        comparable = name in shapes.BY_ITEM[item.kind] and item.has_valid(name) and item.has_valid(count)
        if comparable and item.value[name] > 0 >= item.value[count]:
            yield f"{name} is {shorten(item.value[name])}, although {count} is {shorten(item.value[count])}"


@stated("W4-fractions", "percentages of campaigns and templates are not fractions", _rated_items)
def _check_fractions(rated: tuple[Row, Any]) -> Iterator[str]:
    """Yield a fault for each percentage that is its count divided by the e-mails sent, and not a hundred times that."""
    item, sent = rated
    count: Any
    for name, count in ((name, item.get(other)) for name, other in _PERCENTAGE_COUNTS.items() if name in item):
        if is_number(item[name]) and is_count(count) and is_count(sent) and sent:
            share = count / sent
            if share >= _LEAST_SHARE and abs(item[name] - share) <= _SHARE_TOLERANCE:
                yield f"{name} is {shorten(item[name])}, a fraction and not a percentage: {count} of {sent} e-mails"


@stated("W4-sums", "opens_num and replies_num are the counts of all templates of a campaign", _campaign_totals)
def _check_sums(totals: tuple[Row, Row, Sequence[Row]]) -> Iterator[str]:
    # E-mails may be opened and answered while the run reads. The sum is therefore at least the count that was listed before the
    # steps, and at most the count that was listed after them.
    before, after, templates = totals
    for name, part in (("opens_num", "opened_num"), ("replies_num", "replied_num")):
        whole, first, last = f"{part} of all templates", f"{name} listed before", f"{name} listed after"
        counts = {first: before.get(name), whole: _add_up(templates, part), last: after.get(name)}
        yield from find_unrelated(counts, f"{first} <= {whole}", f"{whole} <= {last}")


@stated("T3-sent", "already_sent includes every contact to which a template of the step was sent", _each("step"))
def _check_sent(item: Item) -> Iterator[str]:
    sent = _add_up(_templates_of(item.value), "sent")
    return find_unrelated({**item.value, "sent of its templates": sent}, "sent of its templates <= already_sent")


@stated("T7-unique", "each template of a step has its own test_letter", _each("step"))
def _check_letters(item: Item) -> Iterator[str]:
    return _check_unique(_collect_strings(_templates_of(item.value), "test_letter"))


@stated("T14-finished", "a campaign with nothing left to send is Complete", _campaign_pairs)
def _check_finished(pair: tuple[Row, Row]) -> Iterator[str]:
    steps, date = extract_rows(pair[1]), pair[1].get("days_left_date")
    left, done = ([step.get(name) for step in steps] for name in ("left_to_send", "already_sent"))
    if all(map(is_count, (*left, *done))) and any(done) and not any(left) and date != COMPLETE:
        yield f"has days_left_date {shorten(date)}, not {COMPLETE!r}, although no step has contacts left to send"


@stated("T13", "list-steps has days_left, days_left_date and days_left_display", _campaign_pairs)
def _check_step_list(pair: tuple[Row, Row]) -> Iterator[str]:
    return find_misfits(pair[1], shapes.STEPS)


@stated("T13-days", "days_left is an estimate of the remaining days", _campaign_pairs)
def _check_days_left(pair: tuple[Row, Row]) -> Iterator[str]:
    for kind, row in zip(("campaign", "steps"), pair, strict=True):
        yield from _find_wrong_values(shapes.NON_NEGATIVE, Item(kind, row), ["days_left"])


@stated(
    "T1",
    "order is the position of the step: 1, 2, ...",
    lambda measured: ((one, "the steps' order", one.rows) for one in measured.survey.steps.values() if one.rows),
)
def _check_orders(steps: Sequence[Row]) -> Iterator[str]:
    orders: list[Any] = [step.get("order") for step in steps]
    if not all(map(is_count, orders)) or sorted(orders) != list(range(1, len(orders) + 1)):
        yield f"is {shorten(orders)}, not 1, 2, ..."


@stated("T6", "new_thread and subject are null if test_letter is PER", _each("template"))
def _check_personalized(item: Item) -> Iterator[str]:
    for name in ("new_thread", "subject"):
        if item.value.get("test_letter") == _PERSONALIZED and item.value.get(name) is not None:
            yield f"has the {name} {shorten(item.value[name])}, not null"


@stated(
    "T6-thread",
    "if test_letter is not PER, subject is null in a follow-up in the same thread, and a string in a new thread",
    _each("template"),
)
def _check_thread(item: Item) -> Iterator[str]:
    template = item.value
    new, subject = template.get("new_thread"), template.get("subject")
    if template.get("test_letter") == _PERSONALIZED:
        return
    if "new_thread" in template and new is None:
        yield "has a null new_thread, which is valid only if test_letter is PER"
    if new is False and item.step_order != 1 and subject is not None:
        yield f"has the subject {shorten(subject)}, not null, although the template is a follow-up in the same thread"
    if new is True and "subject" in template and subject is None:
        yield "has a null subject, although the template starts a new thread"


@stated("W4-steps", "steps is the number of the campaign's steps", _campaign_pairs)
def _check_step_count(pair: tuple[Row, Row]) -> Iterator[str]:
    data = pair[1].get("data")
    counts = {"the number of steps": len(data) if isinstance(data, list) else None, "steps in the list": pair[0].get("steps")}
    return find_unrelated(counts, "the number of steps == steps in the list")


@stated("T14", "days_left_date is Complete either in both list-campaigns and list-steps, or in neither", _campaign_pairs)
def _check_date(pair: tuple[Row, Row]) -> Iterator[str]:
    listed, own = (item.get("days_left_date") for item in pair)
    if (listed == COMPLETE) != (own == COMPLETE):
        yield f"has days_left_date {shorten(own)}, although the campaign is listed with {shorten(listed)}"


@stated("T14-left", "a finished campaign has nothing left to send", _campaign_pairs)
def _check_complete_counts(pair: tuple[Row, Row]) -> Iterator[str]:
    document = pair[1]
    if document.get("days_left_date") == COMPLETE:
        counts = {"days_left": document.get("days_left")}
        counts |= {f"left_to_send of step {place}": step.get("left_to_send") for place, step in enumerate(extract_rows(document))}
        yield from find_unrelated({**counts, "it is Complete": 0}, *(f"{name} == it is Complete" for name in counts))


@stated("W3-unique", "ids and field codes are unique", _unique_names)
def _check_unique(ids: Sequence[str]) -> Iterator[str]:
    repeats = [id_ for place, id_ in enumerate(ids) if id_ in ids[:place]] if len(set(ids)) < len(ids) else []
    if repeats:
        yield f"has {shorten(repeats[0])} more than once"


@stated(
    "F1",
    "all-fields has all standard codes, and custom codes of the form custom_<n>",
    lambda measured: iter([(one, "the list", one.rows)] if (one := measured.survey.fields).payload is not None else ()),
)
def _check_codes(fields: Sequence[Row]) -> Iterator[str]:
    codes = [field.get("code") for field in fields]
    missing = [code for code in _STANDARD_CODES if code not in codes]
    if missing:
        more = f" and {len(missing) - _MAX_CODES} more" if len(missing) > _MAX_CODES else ""
        yield f"has no code {', '.join(missing[:_MAX_CODES])}{more}"
    odd = [code for code in codes if isinstance(code, str) and code.startswith("custom") and not CUSTOM_CODE.fullmatch(code)]
    if odd:
        yield f"has {shorten(odd[0])}, which is not of the form custom_<n>"


@stated("F1-searchable", "searchable contains lower-case names", _searchables)
def _check_lower_case(name: object) -> Iterator[str]:
    if isinstance(name, str) and name != name.lower():
        yield f"has {shorten(name)}, which is not lower case"


sent_most = (
    "opened_num <= sent",
    "replied_num <= sent",
    "unsubscribed_num <= sent",
)  # not clicks: an e-mail may have several links
stated_relations(
    "W4-most", "a template has at most as many opens, replies and unsubscribes as e-mails sent", "template", *sent_most
)
stated_relations(
    "W4-interested", "interested_num is the count of interested replies", "campaign", "interested_num <= replies_num"
)
stated_relations(
    "T3",
    "out_of is the total number of contacts that go through the step, and includes left_to_send and already_sent",
    "step",
    "left_to_send + already_sent <= out_of",
)
stated_values("W4-status", "a campaign is draft, live or paused", shapes.STATUS, campaign="status")
stated_values(
    "W4-counts",
    "counts are whole numbers of 0 or more",
    shapes.COUNT,
    campaign="steps contacts opens_num replies_num bounces_num interested_num",
    step="left_to_send already_sent out_of",
    template="sent opened_num clicked_num replied_num unsubscribed_num",
)
stated_values(
    "W4-percentages",
    "the opens, replies and bounces of campaigns, and the rates of mailboxes and templates, are percentages",
    shapes.PERCENTAGE,
    campaign="opens replies bounces",
    mailbox="opened_14days avg_open_rate avg_click_rate",
    template="opened clicked replied unsubscribed",
)
stated_values(
    "W4-created",
    "the created field of a campaign and the created_at field of a mailbox are Unix timestamps",
    shapes.TIMESTAMP,
    campaign="created",
    mailbox="created_at",
)
stated_values("W4-date", "days_left_date is a string or a Unix timestamp", shapes.TIMESTAMP_OR_STRING, campaign="days_left_date")
stated_values(
    "W4-relative",
    "last_activity, age, and the created field of a mailbox are relative times",
    shapes.RELATIVE_TIME,
    campaign="last_activity",
    mailbox="age last_activity created",
)
stated_values("W4-email", "email is a valid e-mail address", shapes.EMAIL, mailbox="email")
stated_values("T1-type", "the only type of a step is auto_email", shapes.AUTO_EMAIL, step="type")
stated_values("T1-wait", "wait_time is the time to wait between steps", shapes.NON_NEGATIVE, step="wait_time")
stated_values("T1-templates", "a step has one or more templates", shapes.NON_EMPTY_ARRAY, step="templates")
stated_values("T7", "test_letter is A, B, ... or PER", shapes.LETTER, template="test_letter")
