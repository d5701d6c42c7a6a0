"""Stated rules about campaigns, mailboxes, steps, templates and fields, wherever they are listed. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from outreach_async.conformance import rule
from outreach_async.conformance.calibration import Measured
from outreach_async.conformance.read_probes import COMPLETE, Asked
from outreach_async.conformance.rule import Rule, Subject, shown
from outreach_async.conformance.target import rows
from outreach_async.fake.records import CUSTOM

Item = Mapping[str, Any]

_PERSONALIZED: Final = "PER"
_CODES: Final = ("first_name", "middle_name", "last_name", "full_name", "nickname", "email")

_TABLES: Final = {
    "campaign": rule.CAMPAIGN,
    "mailbox": rule.MAILBOX,
    "step": rule.STEP,
    "template": rule.TEMPLATE,
    "answer": rule.STEPS,
}

_SHARES: Final = {
    "opens": "opens_num", "replies": "replies_num", "bounces": "bounces_num",
    "opened": "opened_num", "clicked": "clicked_num", "replied": "replied_num", "unsubscribed": "unsubscribed_num",
}  # fmt: skip
"""Percentages of campaigns and templates, each with the count it belongs to."""


@attrs.frozen
class Listed:
    """An item of a list.

    Attributes:
        item: The item, which may be any JSON value.
        shape: Its table.
        prefix: The prefix of its id; empty if it has none.
    """

    item: Any
    shape: rule.Shape
    prefix: str

    def has(self, name: str) -> bool:
        """Return whether the item has a field of the type in its table."""
        return isinstance(self.item, dict) and name in self.item and self.shape[name][1](self.item[name])


# Subjects of rules.


def _items(measured: Measured) -> Iterator[Subject]:
    """Yield every item, with its table and the prefix of its id."""
    survey = measured.survey
    for page in survey.campaign_pages.pages:
        yield from _in(page.asked, rule.CAMPAIGN, "camp_")
    for page in survey.mailbox_pages.pages:
        yield from _in(page.asked, rule.MAILBOX, "mailbox_")
    yield from _in(survey.fields, rule.FIELD, "")
    for asked in survey.steps.values():
        yield from _in(asked, rule.STEP, "step_")
    for subject in _templates(measured):
        prefix = "personalized_step_" if subject.value.get("test_letter") == _PERSONALIZED else "temp_"
        yield attrs.evolve(subject, value=Listed(subject.value, rule.TEMPLATE, prefix))


def _in(asked: Asked, shape: rule.Shape, prefix: str) -> Iterator[Subject]:
    data = (asked.said or {}).get("data")
    for place, item in enumerate(data if isinstance(data, list) else ()):
        yield Subject(asked, f"data[{place}]", Listed(item, shape, prefix))


def _of(shape: rule.Shape, measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _items(measured) if subject.value.shape is shape and isinstance(subject.value.item, dict))


def _campaigns(measured: Measured) -> Iterator[Subject]:
    return _of(rule.CAMPAIGN, measured)


def _mailboxes(measured: Measured) -> Iterator[Subject]:
    return _of(rule.MAILBOX, measured)


def _steps(measured: Measured) -> Iterator[Subject]:
    return _of(rule.STEP, measured)


def _templates(measured: Measured) -> Iterator[Subject]:
    return (attrs.evolve(subject, value=subject.value[1]) for subject in _ordered_templates(measured))


def _ordered_templates(measured: Measured) -> Iterator[Subject]:
    """Yield every template, with the order of its step."""
    for asked in measured.survey.steps.values():
        for place, step in enumerate(asked.rows):
            found = step.get("templates")
            for number, template in enumerate(found if isinstance(found, list) else ()):
                if isinstance(template, dict):
                    yield Subject(asked, f"data[{place}].templates[{number}]", (step.get("order"), template))


def _step_lists(measured: Measured) -> Iterator[Subject]:
    for asked in measured.survey.steps.values():
        if asked.said is not None:
            yield Subject(asked, "the response", asked.said)


def _orders(measured: Measured) -> Iterator[Subject]:
    for asked in measured.survey.steps.values():
        if asked.rows:
            yield Subject(asked, "the steps' order", [step.get("order") for step in asked.rows])


def _pairs(measured: Measured) -> Iterator[Subject]:
    """Yield campaigns whose steps were read: the item of the list, and the response of list-steps."""
    listed = {str(row.get("id")): row for row in measured.survey.campaign_rows}
    for id_, asked in measured.survey.steps.items():
        if asked.said is not None:
            yield Subject(asked, "the response", (listed[id_], asked.said))


def _names(measured: Measured) -> Iterator[Subject]:
    """Yield what must be unique within a response: ids, including those of templates, and the codes of fields."""
    survey = measured.survey
    for page in (*survey.campaign_pages.pages, *survey.mailbox_pages.pages):
        yield Subject(page.asked, "the page", page.ids)
    for asked in survey.steps.values():
        templates = [item for step in asked.rows for item in rows({"data": step.get("templates")})]
        yield Subject(asked, "the response", _texts([*asked.rows, *templates], "id"))
    yield Subject(survey.fields, "the response", _texts(survey.fields.rows, "code"))


def _texts(items: Sequence[Item], name: str) -> list[str]:
    return [item[name] for item in items if isinstance(item.get(name), str)]


def _codes(measured: Measured) -> Iterator[Subject]:
    if measured.survey.fields.said is not None:
        yield Subject(measured.survey.fields, "the list", [field.get("code") for field in measured.survey.fields.rows])


def _searchables(measured: Measured) -> Iterator[Subject]:
    for place, field in enumerate(measured.survey.fields.rows):
        names = field.get("searchable")
        for name in names if isinstance(names, list) else ():
            yield Subject(measured.survey.fields, f"data[{place}].searchable", name)


# Violations.


def _misshapen(listed: Listed) -> Iterator[str]:
    return rule.misfits(listed.item, listed.shape)


def _misnamed(listed: Listed) -> Iterator[str]:
    id_ = listed.item.get("id", "") if isinstance(listed.item, dict) else ""
    if listed.prefix and not (isinstance(id_, str) and id_.startswith(listed.prefix)):
        yield f"has the id {shown(id_)}, which does not start with {listed.prefix}"


def _are(kind: rule.Kind, **names: str) -> Callable[[Listed], Iterator[str]]:
    """Return a function that yields the fields, by item, that are not of a kind narrower than the type in their table."""
    tables = [(_TABLES[item], fields.split()) for item, fields in names.items()]
    called, is_one = kind

    def faults(listed: Listed) -> Iterator[str]:
        for name in (name for shape, fields in tables if shape is listed.shape for name in fields):
            if listed.has(name) and not is_one(listed.item[name]):
                yield f"{name} is {shown(listed.item[name])}, not {called}"

    return faults


def _share_of_nothing(listed: Listed) -> Iterator[str]:
    for name, count in _SHARES.items():
        if name in listed.shape and listed.has(name) and listed.has(count) and listed.item[name] > 0 >= listed.item[count]:
            yield f"{name} is {shown(listed.item[name])}, although {count} is {shown(listed.item[count])}"


def _interest_without_reply(listed: Listed) -> Iterator[str]:
    names = "interested_num", "replies_num"
    if all(map(listed.has, names)) and listed.item[names[0]] > listed.item[names[1]]:
        yield f"interested_num is {shown(listed.item[names[0]])}, more than the {shown(listed.item[names[1]])} replies"


def _bad_steps(said: Item) -> Iterator[str]:
    return rule.misfits(said, rule.STEPS)


def _bad_days(pair: tuple[Item, Item]) -> Iterator[str]:
    for said, shape in zip(pair, (rule.CAMPAIGN, rule.STEPS), strict=True):
        yield from _are(rule.AMOUNT, campaign="days_left", answer="days_left")(Listed(said, shape, ""))


def _bad_orders(orders: Sequence[Any]) -> Iterator[str]:
    if not all(map(rule.is_count, orders)) or sorted(orders) != list(range(1, len(orders) + 1)):
        yield f"is {shown(orders)}, not 1, 2, ..."


def _bad_flow(listed: Listed) -> Iterator[str]:
    names = "left_to_send", "already_sent", "out_of"
    if all(map(listed.has, names)):
        left, done, whole = (listed.item[name] for name in names)
        if left + done > whole:
            yield f"has {left} left and {done} sent, out of {whole}"


def _not_null(template: Item) -> Iterator[str]:
    for name in ("new_thread", "subject"):
        if template.get("test_letter") == _PERSONALIZED and template.get(name) is not None:
            yield f"has the {name} {shown(template[name])}, not null"


def _bad_thread(ordered: tuple[Any, Item]) -> Iterator[str]:
    order, template = ordered
    new, subject = template.get("new_thread"), template.get("subject")
    if template.get("test_letter") == _PERSONALIZED:
        return
    if "new_thread" in template and new is None:
        yield "has no new_thread, which only the personalized entry may omit"
    if new is False and order != 1 and subject is not None:
        yield f"has the subject {shown(subject)}, not null, although it follows up in the same thread"
    if new is True and "subject" in template and subject is None:
        yield "has no subject, although it starts a thread"


def _other_steps(pair: tuple[Item, Item]) -> Iterator[str]:
    listed, said = pair
    data = said.get("data")
    if rule.is_count(listed.get("steps")) and isinstance(data, list) and listed["steps"] != len(data):
        yield f"has {len(data)} steps, although the campaign is listed with {listed['steps']}"


def _half_complete(pair: tuple[Item, Item]) -> Iterator[str]:
    listed, said = ({"days_left_date": None, **one}["days_left_date"] for one in pair)
    if (listed == COMPLETE) != (said == COMPLETE):
        yield f"has days_left_date {shown(said)}, although the campaign is listed with {shown(listed)}"


def _unfinished(pair: tuple[Item, Item]) -> Iterator[str]:
    said = pair[1]
    if said.get("days_left_date") != COMPLETE:
        return
    if rule.is_count(said.get("days_left")) and said["days_left"]:
        yield f"has days_left_date {COMPLETE!r}, but days_left {said['days_left']}"
    steps = said.get("data")
    for place, step in enumerate(steps if isinstance(steps, list) else ()):
        left = step.get("left_to_send") if isinstance(step, dict) else None
        if rule.is_count(left) and left:
            yield f"has days_left_date {COMPLETE!r}, but data[{place}] has {left} left to send"


def _repeated(ids: Sequence[str]) -> Iterator[str]:
    repeats = [id_ for place, id_ in enumerate(ids) if id_ in ids[:place]] if len(set(ids)) < len(ids) else []
    if repeats:
        yield f"has {shown(repeats[0])} more than once"


def _bad_codes(codes: Sequence[Any]) -> Iterator[str]:
    lacking = [code for code in _CODES if code not in codes]
    if lacking:
        yield f"lacks {', '.join(lacking)}"
    odd = [code for code in codes if isinstance(code, str) and code.startswith("custom") and not CUSTOM.fullmatch(code)]
    if odd:
        yield f"has {shown(odd[0])}, which is not of the form custom_<n>"


def _not_lower(name: object) -> Iterator[str]:
    if isinstance(name, str) and name != name.lower():
        yield f"has {shown(name)}, which is not lower case"


_counts = _are(
    rule.COUNT,
    campaign="steps contacts opens_num replies_num bounces_num interested_num",
    step="left_to_send already_sent out_of",
    template="sent opened_num clicked_num replied_num unsubscribed_num",
)
_percentages = _are(
    rule.PERCENTAGE,
    campaign="opens replies bounces",
    mailbox="opened_14days avg_open_rate avg_click_rate",
    template="opened clicked replied unsubscribed",
)
_moments = _are(rule.MOMENT, campaign="created", mailbox="created_at")
_dates = _are(rule.MOMENT_OR_TEXT, campaign="days_left_date")
_ages = _are(rule.AGO, campaign="last_activity", mailbox="age last_activity created")

ITEM_RULES: Final[tuple[Rule, ...]] = (
    Rule("W3", "every id starts with the prefix of its resource", _items, _misnamed),
    Rule("W3-unique", "ids and field codes are unique", _names, _repeated),
    Rule("W4", "every item has every field of its table, with the type given there", _items, _misshapen),
    Rule("W4-status", "a campaign is draft, live or paused", _campaigns, _are(rule.STATUS, campaign="status")),
    Rule("W4-counts", "counts are whole numbers of 0 or more", _items, _counts),
    Rule("W4-percentages", "opens, replies, bounces and rates are percentages", _items, _percentages),
    Rule("W4-shares", "a percentage agrees with its count", _items, _share_of_nothing),
    Rule("W4-interested", "interested_num is the count of interested replies", _campaigns, _interest_without_reply),
    Rule("W4-created", "the time of creation is a Unix timestamp", _items, _moments),
    Rule("W4-date", "days_left_date is a string or a Unix timestamp", _campaigns, _dates),
    Rule("W4-relative", "times of activity and ages are relative texts", _items, _ages),
    Rule("W4-email", "email is an e-mail address", _mailboxes, _are(rule.EMAIL, mailbox="email")),
    Rule("W4-steps", "steps is the number of the campaign's steps", _pairs, _other_steps),
    Rule("T1", "order is the position of the step: 1, 2, ...", _orders, _bad_orders),
    Rule("T1-type", "the only type of a step is auto_email", _steps, _are(rule.AUTO_EMAIL, step="type")),
    Rule("T1-wait", "wait_time is the wait between steps", _steps, _are(rule.AMOUNT, step="wait_time")),
    Rule("T1-templates", "a step has one or more templates", _steps, _are(rule.SOME, step="templates")),
    Rule("T3", "left_to_send and already_sent are part of out_of, the contacts that go through the step", _steps, _bad_flow),
    Rule("T6", "new_thread and subject are null for the personalized entry", _templates, _not_null),
    Rule("T6-thread", "apart from that, only follow-ups in the same thread have no subject", _ordered_templates, _bad_thread),
    Rule("T7", "test_letter is A, B, ... or PER", _items, _are(rule.LETTER, template="test_letter")),
    Rule("T13", "list-steps has days_left, days_left_date and days_left_display", _step_lists, _bad_steps),
    Rule("T13-days", "days_left is an estimate of the remaining days", _pairs, _bad_days),
    Rule("T14", "days_left_date is Complete for a finished campaign, in the list and in the steps", _pairs, _half_complete),
    Rule("T14-left", "a finished campaign has nothing left to send", _pairs, _unfinished),
    Rule("F1", "all-fields has the standard codes, and custom codes of the form custom_<n>", _codes, _bad_codes),
    Rule("F1-searchable", "searchable holds lower-case names", _searchables, _not_lower),
)
"""Stated rules about items."""
