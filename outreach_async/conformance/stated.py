"""What the interface states: each rule a name, a sentence, what it is about, and what breaks it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from outreach_async.conformance import shapes
from outreach_async.conformance.calibration import Measured, run
from outreach_async.conformance.carrying import Patience
from outreach_async.conformance.site import OUTCOMES, Site, document
from outreach_async.conformance.survey import COMPLETE, MAX_MAILBOXES, Asked
from outreach_async.fake.fields import CUSTOM
from outreach_async.refusals import masked_text
from outreach_async.transport.wire import Transport

_MANY: Final = 3
_SHOWN: Final = 60
_OK: Final = frozenset({200, 201})
_PERSONALIZED: Final = "PER"
_CODES: Final = ("first_name", "middle_name", "last_name", "full_name", "nickname", "email")


@attrs.frozen
class Subject:
    """One thing that a rule is about.

    Attributes:
        asked: Where it was seen.
        where: Where it stands in the answer.
        value: The thing.
    """

    asked: Asked
    where: str
    value: Any


@attrs.frozen
class Rule:
    """A rule that the interface states.

    Attributes:
        id: Its name.
        says: What the interface says.
        subjects: Finds what it is about.
        faults: Says what is wrong with one of them; nothing if it is as it should be.
        writes: Whether it shows only when contacts are created.
    """

    id: str
    says: str
    subjects: Callable[[Measured], Iterator[Subject]]
    faults: Callable[[Any], Iterator[str]]
    writes: bool = False


@attrs.frozen
class Breach:
    """A rule that the service does not keep.

    Attributes:
        rule: The rule's name.
        says: What the interface says.
        what: What is wrong, and where.
        request: Method and target.
        answered: What the service answered: bounded, and without secrets.

    Example:
        ```python
        fake.set_mailbox("mailbox_2", daily_limit="many")
        (breach,) = await check(FakeTransport(fake), Site("space_1"))
        print(breach.rule, breach.what)  # -> W4 data[1] daily_limit is a text, not a number
        ```
    """

    rule: str
    says: str
    what: str
    request: str
    answered: str

    def __str__(self) -> str:
        said = f"the interface says: {self.says}", f"asked: {self.request}", f"answered: {self.answered}"
        return "\n  ".join((f"{self.rule}: {self.what}", *said))


def breaches(rule: Rule, measured: Measured) -> list[Breach] | None:
    """Judge a rule.

    Returns:
        The first few breaches; `None` if nothing was seen that the rule is about.
    """
    subjects = list(rule.subjects(measured))
    found = ((subject, fault) for subject in subjects for fault in rule.faults(subject.value))
    few = [breach for breach, _ in zip((_breach(rule, *pair, measured.site) for pair in found), range(_MANY), strict=False)]
    return few if subjects else None


def _breach(rule: Rule, subject: Subject, fault: str, site: Site) -> Breach:
    asked = subject.asked
    answered = asked.trouble if asked.answer is None else site.told(asked.answer)
    what, request = f"{subject.where} {fault}", f"{asked.request.method} {asked.request.target}"
    return Breach(rule.id, rule.says, masked_text(what, site.secrets), masked_text(request, site.secrets), answered)


async def check(transport: Transport, site: Site, patience: Patience | None = None) -> list[Breach]:
    """Check a service against everything that the interface states.

    Args:
        transport: Where requests go; it stays open.
        site: Whom to ask, and as whom.
        patience: How long to wait.

    Returns:
        What it does not keep, at most three breaches a rule.

    Example:
        ```python
        print(await check(FakeTransport(fake), Site("space_1")))  # -> []
        ```
    """
    measured = await run(transport, site, patience or Patience())
    return [breach for rule in RULES for breach in breaches(rule, measured) or ()]


# What rules are about.


def _answers(measured: Measured) -> Iterator[Subject]:
    for asked in measured.survey.lists:
        yield Subject(asked, "the answer", asked)


def _creations(measured: Measured) -> Iterator[Subject]:
    if measured.trial:
        for outcome, asked in measured.trial.outcomes.items():
            yield Subject(asked, "the answer", (outcome, asked))


def _first_creation(measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _creations(measured) if subject.value[0] == "added")


def _duplicates(measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _creations(measured) if subject.value[0] != "added")


def _skipped(measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _creations(measured) if subject.value[0] == "skipped")


def _custom(measured: Measured) -> Iterator[Subject]:
    if measured.trial and measured.trial.custom:
        yield Subject(measured.trial.custom, "the answer", measured.trial.custom)


def _pages(measured: Measured) -> Iterator[Subject]:
    survey = measured.survey
    for display, pages in ((survey.display, survey.campaigns), (MAX_MAILBOXES, (survey.mailboxes,))):
        for asked in pages:
            if asked.said is not None:
                yield Subject(asked, "the page", (asked.said, display))


def _mailbox_page(measured: Measured) -> Iterator[Subject]:
    yield Subject(measured.survey.mailboxes, "the answer", measured.survey.mailboxes)


def _step_lists(measured: Measured) -> Iterator[Subject]:
    for asked in measured.survey.steps.values():
        if asked.said is not None:
            yield Subject(asked, "the answer", asked.said)


def _items(measured: Measured) -> Iterator[Subject]:
    """Find every item, with the table that it follows and the prefix of its id."""
    survey = measured.survey
    for asked in survey.campaigns:
        yield from _in(asked, "data", shapes.CAMPAIGN, "camp_")
    yield from _in(survey.mailboxes, "data", shapes.MAILBOX, "mailbox_")
    yield from _in(survey.fields, "data", shapes.FIELD, "")
    for asked in survey.steps.values():
        yield from _in(asked, "data", shapes.STEP, "step_")
    for subject in _templates(measured):
        prefix = "personalized_step_" if subject.value.get("test_letter") == _PERSONALIZED else "temp_"
        yield attrs.evolve(subject, value=(subject.value, shapes.TEMPLATE, prefix))


def _in(asked: Asked, member: str, shape: shapes.Shape, prefix: str) -> Iterator[Subject]:
    data = (asked.said or {}).get(member)
    for place, item in enumerate(data if isinstance(data, list) else ()):
        yield Subject(asked, f"{member}[{place}]", (item, shape, prefix))


def _steps(measured: Measured) -> Iterator[Subject]:
    for asked in measured.survey.steps.values():
        for place, step in enumerate(asked.rows):
            yield Subject(asked, f"data[{place}]", step)


def _orders(measured: Measured) -> Iterator[Subject]:
    for asked in measured.survey.steps.values():
        if asked.rows:
            yield Subject(asked, "the steps' order", [step.get("order") for step in asked.rows])


def _templates(measured: Measured) -> Iterator[Subject]:
    for subject in _steps(measured):
        found = subject.value.get("templates")
        for place, template in enumerate(found if isinstance(found, list) else ()):
            if isinstance(template, dict):
                yield Subject(subject.asked, f"{subject.where}.templates[{place}]", template)


def _personalized(measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _templates(measured) if subject.value.get("test_letter") == _PERSONALIZED)


def _codes(measured: Measured) -> Iterator[Subject]:
    if measured.survey.fields.said is not None:
        yield Subject(measured.survey.fields, "the list", [field.get("code") for field in measured.survey.fields.rows])


def _searchables(measured: Measured) -> Iterator[Subject]:
    for place, field in enumerate(measured.survey.fields.rows):
        names = field.get("searchable")
        for name in names if isinstance(names, list) else ():
            yield Subject(measured.survey.fields, f"data[{place}].searchable", name)


def _finished(measured: Measured) -> Iterator[Subject]:
    rows = {str(row.get("id")): row for row in measured.survey.campaign_rows}
    for id_, asked in measured.survey.steps.items():
        if asked.said is not None and rows[id_].get("days_left_date") == COMPLETE:
            yield Subject(asked, "days_left_date", asked.said.get("days_left_date"))


# What breaks them.


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _no_success(asked: Asked) -> Iterator[str]:
    if asked.answer is None:
        yield "did not come"
    elif asked.answer.status not in _OK:
        yield f"has the status {asked.answer.status}"
    elif not isinstance(document(asked.answer), dict):
        yield "is no JSON object"


def _no_ok(asked: Asked) -> Iterator[str]:
    said = document(asked.answer) if asked.answer is not None else None
    if isinstance(said, dict) and said.get("status") != "ok":
        yield f"has the status {_shown(said.get('status'))}, not 'ok'"


def _misshapen(item: tuple[Any, shapes.Shape, str]) -> Iterator[str]:
    return shapes.misfits(item[0], item[1])


def _misnamed(item: tuple[Any, shapes.Shape, str]) -> Iterator[str]:
    value, _, prefix = item
    id_ = value.get("id", "") if isinstance(value, dict) else ""
    if prefix and not (isinstance(id_, str) and id_.startswith(prefix)):
        yield f"has the id {_shown(id_)}, which does not start with {prefix}"


def _bad_page(page: tuple[Mapping[str, Any], int]) -> Iterator[str]:
    said, display = page
    yield from shapes.misfits(said, shapes.PAGE)
    data = said.get("data")
    if isinstance(data, list) and len(data) > display:
        yield f"holds {len(data)} items, more than display={display}"


def _bad_steps(said: Mapping[str, Any]) -> Iterator[str]:
    return shapes.misfits(said, shapes.STEPS)


def _bad_headers(page: tuple[Mapping[str, Any], int]) -> Iterator[str]:
    return shapes.misfits(page[0], {"headers": shapes.TEXTS})


def _bad_orders(orders: Sequence[Any]) -> Iterator[str]:
    if not all(map(_is_whole, orders)) or sorted(orders) != list(range(1, len(orders) + 1)):
        yield f"is {_shown(orders)}, not 1, 2, ..."


def _is_whole(value: object) -> bool:
    return type(value) is int or (type(value) is float and value.is_integer())


def _bad_type(step: Mapping[str, Any]) -> Iterator[str]:
    if step.get("type") != "auto_email":
        yield f"has the type {_shown(step.get('type'))}, not auto_email"


def _bad_flow(step: Mapping[str, Any]) -> Iterator[str]:
    counts: list[Any] = [step.get(name) for name in ("left_to_send", "already_sent", "out_of")]
    if not all(map(shapes.NUMBER[1], counts)):
        return  # W4 says so
    left, done, whole = counts
    if min(left, done) < 0 or left + done > whole:
        yield f"has {left} left and {done} sent, out of {whole}"


def _not_null(template: Mapping[str, Any]) -> Iterator[str]:
    for name in ("new_thread", "subject"):
        if template.get(name) is not None:
            yield f"has the {name} {_shown(template[name])}, not null"


def _not_complete(date: object) -> Iterator[str]:
    if date != COMPLETE:
        yield f"is {_shown(date)}, though the campaign is listed as Complete"


def _bad_codes(codes: Sequence[Any]) -> Iterator[str]:
    lacking = [code for code in _CODES if code not in codes]
    if lacking:
        yield f"lacks {', '.join(lacking)}"
    odd = [code for code in codes if isinstance(code, str) and code.startswith("custom") and not CUSTOM.fullmatch(code)]
    if odd:
        yield f"has {_shown(odd[0])}, which is not of the form custom_<n>"


def _not_lower(name: object) -> Iterator[str]:
    if isinstance(name, str) and name != name.lower():
        yield f"has {_shown(name)}, which is not lower case"


def _not_taken(creation: tuple[str, Asked]) -> Iterator[str]:
    return _no_success(creation[1])


def _no_outcome(creation: tuple[str, Asked]) -> Iterator[str]:
    wanted, asked = creation
    said = asked.said or {}
    if said.get("status") != wanted:
        yield f"has the status {_shown(said.get('status'))}, not {wanted!r}"


def _bad_result(creation: tuple[str, Asked]) -> Iterator[str]:
    outcome, asked = creation
    said = asked.said
    if said is None or said.get("status") not in OUTCOMES:
        return
    id_, details = said.get("id"), said.get("details")
    if outcome == "skipped":
        if id_ is not None or not isinstance(details, str):
            yield f"has the id {_shown(id_)} and details {_shown(details)}, not null and a text"
    elif not (isinstance(id_, str) and id_.startswith("contact_")) or details is not None:
        yield f"has the id {_shown(id_)} and details {_shown(details)}, not contact_... and null"


RULES: Final[tuple[Rule, ...]] = (
    Rule("W1", "each operation answers 200 or 201 with a JSON object", _answers, _no_success),
    Rule("W2", "answers of the four lists carry status ok", _answers, _no_ok),
    Rule("W3", "every id starts with the prefix of its resource", _items, _misnamed),
    Rule("W4", "every item has every field of its table, of the kind that stands there", _items, _misshapen),
    Rule("P1", "a page has headers, data of at most display items, total_found, current_page, total_pages", _pages, _bad_page),
    Rule("P2", "mailboxes: display may be up to 2,000", _mailbox_page, _no_success),
    Rule("P14", "headers is an array of strings", _pages, _bad_headers),
    Rule("T1", "order is the position of the step: 1, 2, ...", _orders, _bad_orders),
    Rule("T1-type", "the only type of a step is auto_email", _steps, _bad_type),
    Rule("T3", "left_to_send and already_sent are contacts of the out_of that go through the step", _steps, _bad_flow),
    Rule("T6", "new_thread and subject are null for the personalized entry", _personalized, _not_null),
    Rule("T13", "list-steps carries days_left, days_left_date and days_left_display", _step_lists, _bad_steps),
    Rule("T14", "days_left_date is Complete when the campaign is finished", _finished, _not_complete),
    Rule("F1", "all-fields has the standard codes, and custom codes of the form custom_<n>", _codes, _bad_codes),
    Rule("F1-searchable", "searchable holds lower-case names", _searchables, _not_lower),
    Rule("A1", "a contact is created with the owner_key in the body", _first_creation, _not_taken, writes=True),
    Rule("C1", "a duplicate is the same e-mail in the same workspace", _duplicates, _no_outcome, writes=True),
    Rule("C2", "id is null only when skipped; details is null but for that", _creations, _bad_result, writes=True),
    Rule("C2-added", "a new contact is added", _first_creation, _no_outcome, writes=True),
    Rule("C19", "codes of all-fields are taken at creation", _custom, _no_success, writes=True),
    Rule("E1", "a duplicate is no error", _skipped, _not_taken, writes=True),
)
"""The stated rules that can be seen from outside, in the order of the interface."""
