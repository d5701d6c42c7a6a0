"""Define the documented rules about the items of lists: campaigns, mailboxes, steps, templates and fields.

This module also defines the class `StatedRule`. Every rule is an instance of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, Final

import attrs

from outreach_async import errors
from outreach_async.conformance import _shapes as shapes
from outreach_async.conformance._calibration import Measurement
from outreach_async.conformance._read_probes import COMPLETE, HttpExchange
from outreach_async.conformance._shapes import Shape, ValueKind, find_misfits, is_count, is_number
from outreach_async.conformance._target import extract_rows
from outreach_async.fake._stored_records import CUSTOM_CODE, STANDARD_FIELDS

Item = Mapping[str, Any]

_MAX_SHOWN: Final = 60
_PERSONALIZED: Final = "PER"
_STANDARD_CODES: Final = ("email", *STANDARD_FIELDS)
_MAX_CODES: Final = 5
"""Maximum number of missing codes that a message names."""
_LEAST_SHARE: Final = 0.02
"""Smallest share of e-mails for which a percentage can be told from a fraction."""
_SHARE_TOLERANCE: Final = 0.005
"""Largest difference between a share and the same share rounded to two decimal places."""


Subjects = Callable[[Measurement], "Iterator[RuleSubject]"]
Check = Callable[[Any], Iterator[str]]


@attrs.frozen
class RuleSubject:
    exchange: HttpExchange
    location: str
    value: Any


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


_SHAPES: Final = {"campaign": shapes.CAMPAIGN, "mailbox": shapes.MAILBOX, "step": shapes.STEP, "template": shapes.TEMPLATE}

_PERCENTAGE_COUNTS: Final = {
    "opens": "opens_num", "replies": "replies_num", "bounces": "bounces_num",
    "opened": "opened_num", "clicked": "clicked_num", "replied": "replied_num", "unsubscribed": "unsubscribed_num",
}  # fmt: skip
"""Percentages of campaigns and templates, each with the count from which the percentage is computed."""


# Items: subjects of rules.


@attrs.frozen
class ListedItem:
    item: Any
    shape: Shape
    prefix: str

    def has_valid(self, name: str) -> bool:
        """Return whether the item has the field `name`, with a value of the type in `shape`."""
        return isinstance(self.item, dict) and name in self.item and self.shape[name][1](self.item[name])


def _all_items(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield every item that was read, as a `ListedItem` with its shape and the prefix of its id."""
    yield from _listed(measured, shapes.CAMPAIGN)
    yield from _listed(measured, shapes.MAILBOX)
    yield from _items_in(measured.survey.fields, shapes.FIELD, "")
    yield from _listed(measured, shapes.STEP)
    for subject in _templates(measured):
        prefix = "personalized_step_" if subject.value.get("test_letter") == _PERSONALIZED else "temp_"
        yield RuleSubject(subject.exchange, subject.location, ListedItem(subject.value, shapes.TEMPLATE, prefix))


def _listed(measured: Measurement, shape: Shape) -> Iterator[RuleSubject]:
    survey = measured.survey
    exchanges: Iterable[HttpExchange]
    if shape is shapes.STEP:
        exchanges, prefix = survey.steps.values(), "step_"
    else:
        pages, prefix = (survey.campaign_pages, "camp_") if shape is shapes.CAMPAIGN else (survey.mailbox_pages, "mailbox_")
        exchanges = (page.exchange for page in pages.pages)
    return chain.from_iterable(_items_in(exchange, shape, prefix) for exchange in exchanges)


def _items_in(exchange: HttpExchange, shape: Shape, prefix: str) -> Iterator[RuleSubject]:
    data = (exchange.payload or {}).get("data")
    for place, item in enumerate(data if isinstance(data, list) else ()):
        yield RuleSubject(exchange, f"data[{place}]", ListedItem(item, shape, prefix))


def _objects(shape: Shape, measured: Measurement) -> Iterator[RuleSubject]:
    return (subject for subject in _listed(measured, shape) if isinstance(subject.value.item, dict))


_campaigns = partial(_objects, shapes.CAMPAIGN)
_mailboxes = partial(_objects, shapes.MAILBOX)
_steps = partial(_objects, shapes.STEP)


def _templates(measured: Measurement) -> Iterator[RuleSubject]:
    return (RuleSubject(one.exchange, one.location, one.value[1]) for one in _ordered_templates(measured))


def _ordered_templates(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield every template, as a pair of the `order` of its step and the template itself."""
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


def _campaign_totals(measured: Measurement) -> Iterator[RuleSubject]:
    """For each campaign whose steps were read, yield its item before and after the steps, and its templates."""
    # The item after the steps is empty if the campaign is no longer on the first page.
    later = {str(row.get("id")): row for row in measured.survey.campaigns_after.rows}
    for subject in _campaign_pairs(measured):
        listed, document = subject.value
        templates = [template for step in extract_rows(document) for template in _templates_of(step)]
        yield attrs.evolve(subject, value=(listed, later.get(str(listed.get("id")), {}), templates))


def _rated_items(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield templates and campaigns, each with the number of e-mails sent."""
    for subject in _templates(measured):
        yield attrs.evolve(subject, value=(subject.value, subject.value.get("sent")))
    for subject in _campaign_totals(measured):
        listed, _, templates = subject.value
        yield attrs.evolve(subject, location="the campaign", value=(listed, _add_up(templates, "sent")))


def _templates_of(step: Item) -> list[dict[str, Any]]:
    return extract_rows({"data": step.get("templates")})


def _unique_names(measured: Measurement) -> Iterator[RuleSubject]:
    """For each response, yield the strings that must be unique in it: ids of items and templates, or codes of fields."""
    survey = measured.survey
    for page in (*survey.campaign_pages.pages, *survey.mailbox_pages.pages):
        yield RuleSubject(page.exchange, "the page", page.ids)
    for exchange in survey.steps.values():
        templates = [template for step in exchange.rows for template in _templates_of(step)]
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


# Items: violations.


@stated("W4", "every item has every documented field, with the documented type", _all_items)
def _check_shape(listed: ListedItem) -> Iterator[str]:
    return find_misfits(listed.item, listed.shape)


@stated("W3", "every id starts with the prefix of its resource", _all_items)
def _check_id_prefix(listed: ListedItem) -> Iterator[str]:
    id_ = listed.item.get("id", "") if isinstance(listed.item, dict) else ""
    if listed.prefix and not (isinstance(id_, str) and id_.startswith(listed.prefix)):
        yield f"has the id {shorten(id_)}, which does not start with {listed.prefix}"


def stated_values(id_: str, statement: str, kind: ValueKind, **names: str) -> None:
    """Add the rule that the named fields of campaigns, mailboxes, steps or templates are of a kind."""
    fields = [(_SHAPES[item], each.split()) for item, each in names.items()]

    def find_subjects(measured: Measurement) -> Iterator[RuleSubject]:
        for subject in _all_items(measured):
            for shape, listed_names in fields:
                if subject.value.shape is shape:
                    yield attrs.evolve(subject, value=(subject.value, listed_names))

    stated(id_, statement, find_subjects)(lambda subject: _find_wrong_values(kind, *subject))


def _find_wrong_values(kind: ValueKind, listed: ListedItem, names: Iterable[str]) -> Iterator[str]:
    description, is_of_kind = kind
    for name in names:
        if listed.has_valid(name) and not is_of_kind(listed.item[name]):
            yield f"{name} is {shorten(listed.item[name])}, not {description}"


@stated("W4-shares", "a percentage is 0 if its count is 0", _all_items)
def _check_percentages_of_zero(listed: ListedItem) -> Iterator[str]:
    for name, count in _PERCENTAGE_COUNTS.items():
        comparable = name in listed.shape and listed.has_valid(name) and listed.has_valid(count)
        if comparable and listed.item[name] > 0 >= listed.item[count]:
            yield f"{name} is {shorten(listed.item[name])}, although {count} is {shorten(listed.item[count])}"


@stated("W4-fractions", "percentages of campaigns and templates are not fractions", _rated_items)
def _check_fractions(rated: tuple[Item, Any]) -> Iterator[str]:
    """Yield a fault for each percentage that is its count divided by the e-mails sent, and not a hundred times that."""
    item, sent = rated
    count: Any
    for name, count in ((name, item.get(other)) for name, other in _PERCENTAGE_COUNTS.items() if name in item):
        if is_number(item[name]) and is_count(count) and is_count(sent) and sent:
            share = count / sent
            if share >= _LEAST_SHARE and abs(item[name] - share) <= _SHARE_TOLERANCE:
                yield f"{name} is {shorten(item[name])}, a fraction and not a percentage: {count} of {sent} e-mails"


def _add_up(templates: Sequence[Item], name: str) -> int | None:
    """Return the sum of a count over templates; `None` if there are no templates, or not every template has the count."""
    counts: list[Any] = [template.get(name) for template in templates]
    return sum(map(int, counts)) if counts and all(map(is_count, counts)) else None


@stated("W4-sums", "opens_num and replies_num are the counts of all templates of a campaign", _campaign_totals)
def _check_sums(totals: tuple[Item, Item, Sequence[Item]]) -> Iterator[str]:
    # E-mails may be opened and answered while the run reads. The sum is therefore at least the count that was listed before the
    # steps, and at most the count that was listed after them.
    before, after, templates = totals
    for name, part in (("opens_num", "opened_num"), ("replies_num", "replied_num")):
        total = _add_up(templates, part)
        if total is None:
            continue
        if is_count(before.get(name)) and total < before[name]:
            yield f"has {total} in {part} of all templates, although the campaign is listed with {before[name]} in {name}"
        elif is_count(after.get(name)) and total > after[name]:
            yield f"has {total} in {part} of all templates, although the campaign is listed with {after[name]} in {name}"


@stated("W4-most", "a template has at most as many opens, replies and unsubscribes as e-mails sent", _templates)
def _check_most(template: Item) -> Iterator[str]:
    # Clicks are left out, because an e-mail may have several links.
    sent = template.get("sent")
    for name in ("opened_num", "replied_num", "unsubscribed_num"):
        if is_count(sent) and is_count(template.get(name)) and template[name] > sent:
            yield f"has {template[name]} in {name}, more than the {sent} e-mails sent"


@stated("T3-sent", "already_sent includes every contact to which a template of the step was sent", _steps)
def _check_sent(listed: ListedItem) -> Iterator[str]:
    sent, done = _add_up(_templates_of(listed.item), "sent"), listed.item.get("already_sent")
    if sent is not None and is_count(done) and done < sent:
        yield f"has already_sent {done}, fewer than the {sent} e-mails that its templates sent"


@stated("T7-unique", "each template of a step has its own test_letter", _steps)
def _check_letters(listed: ListedItem) -> Iterator[str]:
    return _check_unique(_collect_strings(_templates_of(listed.item), "test_letter"))


@stated("T14-finished", "a campaign with nothing left to send is Complete", _step_lists)
def _check_finished(document: Item) -> Iterator[str]:
    steps = extract_rows(document)
    left, done = ([step.get(name) for step in steps] for name in ("left_to_send", "already_sent"))
    date = document.get("days_left_date")
    if all(map(is_count, (*left, *done))) and any(done) and not any(left) and date != COMPLETE:
        yield f"has days_left_date {shorten(date)}, not {COMPLETE!r}, although no step has contacts left to send"


@stated("W4-interested", "interested_num is the count of interested replies", _campaigns)
def _check_interested(listed: ListedItem) -> Iterator[str]:
    names = "interested_num", "replies_num"
    if all(map(listed.has_valid, names)) and listed.item[names[0]] > listed.item[names[1]]:
        yield f"interested_num is {shorten(listed.item[names[0]])}, more than the {shorten(listed.item[names[1]])} replies"


@stated("T13", "list-steps has days_left, days_left_date and days_left_display", _step_lists)
def _check_step_list(document: Item) -> Iterator[str]:
    return find_misfits(document, shapes.STEPS)


@stated("T13-days", "days_left is an estimate of the remaining days", _campaign_pairs)
def _check_days_left(pair: tuple[Item, Item]) -> Iterator[str]:
    for item, shape in zip(pair, (shapes.CAMPAIGN, shapes.STEPS), strict=True):
        yield from _find_wrong_values(shapes.NON_NEGATIVE, ListedItem(item, shape, ""), ["days_left"])


@stated("T1", "order is the position of the step: 1, 2, ...", _orders)
def _check_orders(orders: Sequence[Any]) -> Iterator[str]:
    if not all(map(is_count, orders)) or sorted(orders) != list(range(1, len(orders) + 1)):
        yield f"is {shorten(orders)}, not 1, 2, ..."


@stated(
    "T3", "out_of is the total number of contacts that go through the step, and includes left_to_send and already_sent", _steps
)
def _check_step_counts(listed: ListedItem) -> Iterator[str]:
    names = "left_to_send", "already_sent", "out_of"
    if all(map(listed.has_valid, names)):
        left, done, whole = (listed.item[name] for name in names)
        if left + done > whole:
            yield f"has left_to_send {left} and already_sent {done}, together more than out_of {whole}"


@stated("T6", "new_thread and subject are null if test_letter is PER", _templates)
def _check_personalized(template: Item) -> Iterator[str]:
    for name in ("new_thread", "subject"):
        if template.get("test_letter") == _PERSONALIZED and template.get(name) is not None:
            yield f"has the {name} {shorten(template[name])}, not null"


@stated(
    "T6-thread",
    "if test_letter is not PER, subject is null in a follow-up in the same thread, and a string in a new thread",
    _ordered_templates,
)
def _check_thread(ordered: tuple[Any, Item]) -> Iterator[str]:
    order, template = ordered
    new, subject = template.get("new_thread"), template.get("subject")
    if template.get("test_letter") == _PERSONALIZED:
        return
    if "new_thread" in template and new is None:
        yield "has a null new_thread, which is valid only if test_letter is PER"
    if new is False and order != 1 and subject is not None:
        yield f"has the subject {shorten(subject)}, not null, although the template is a follow-up in the same thread"
    if new is True and "subject" in template and subject is None:
        yield "has a null subject, although the template starts a new thread"


@stated("W4-steps", "steps is the number of the campaign's steps", _campaign_pairs)
def _check_step_count(pair: tuple[Item, Item]) -> Iterator[str]:
    listed, document = pair
    data = document.get("data")
    if is_count(listed.get("steps")) and isinstance(data, list) and listed["steps"] != len(data):
        yield f"has {len(data)} steps, although the campaign is listed with {listed['steps']}"


@stated("T14", "days_left_date is Complete either in both list-campaigns and list-steps, or in neither", _campaign_pairs)
def _check_date(pair: tuple[Item, Item]) -> Iterator[str]:
    listed, own = (item.get("days_left_date") for item in pair)
    if (listed == COMPLETE) != (own == COMPLETE):
        yield f"has days_left_date {shorten(own)}, although the campaign is listed with {shorten(listed)}"


@stated("T14-left", "a finished campaign has nothing left to send", _campaign_pairs)
def _check_complete_counts(pair: tuple[Item, Item]) -> Iterator[str]:
    document = pair[1]
    if document.get("days_left_date") != COMPLETE:
        return
    if is_count(document.get("days_left")) and document["days_left"]:
        yield f"has days_left_date {COMPLETE!r}, but days_left is {document['days_left']}"
    steps = document.get("data")
    for place, step in enumerate(steps if isinstance(steps, list) else ()):
        left = step.get("left_to_send") if isinstance(step, dict) else None
        if is_count(left) and left:
            yield f"has days_left_date {COMPLETE!r}, but data[{place}] has {left} left to send"


@stated("W3-unique", "ids and field codes are unique", _unique_names)
def _check_unique(ids: Sequence[str]) -> Iterator[str]:
    repeats = [id_ for place, id_ in enumerate(ids) if id_ in ids[:place]] if len(set(ids)) < len(ids) else []
    if repeats:
        yield f"has {shorten(repeats[0])} more than once"


@stated("F1", "all-fields has all standard codes, and custom codes of the form custom_<n>", _codes)
def _check_codes(codes: Sequence[Any]) -> Iterator[str]:
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
