"""Every documented rule is checked: a service that breaks a rule is reported as breaking it."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import aclosing
from importlib.resources import files
from typing import Any, Final

import anyio
import attrs
import pytest
from support.calibration import DRAFT, READER, SPACE, WRITER, Answering, service
from support.cli import serve_in_process
from support.fake import document as said_by
from support.fake import page
from support.transports import LOOPS

from outreach_async import HttpxTransport, Progress, Request, Response
from outreach_async.conformance import RULES, Access, Breach, check
from outreach_async.fake import Behaviour, FakeService, FakeTransport

KINDS: Final = {
    "campaigns": "/campaigns?",
    "mailboxes": "/mailboxes?",
    "steps": "/steps",
    "fields": "/all-fields",
    "contacts": "/contacts",
}
"""The part of the target that identifies each operation."""

OK: Final = 200

Answered = Callable[[Request, Response], Response]
Asked = Callable[[Any], None]
Changed = Callable[[Any], object]


def _unchanged(_: Request, response: Response) -> Response:
    return response


def _as_asked(_: Any) -> None:
    """Leave a creation unchanged."""


@attrs.frozen
class Wrong:
    answered: Answered = _unchanged
    change_request: Asked = _as_asked

    def of(self, fake: FakeService) -> FakeTransport:
        """Return a transport to a fake with this defect."""

        def answer(request: Request) -> Response:
            if request.body and self.change_request is not _as_asked:
                body = json.loads(request.body)
                self.change_request(body)
                request = attrs.evolve(request, body=json.dumps(body).encode())
            return self.answered(request, fake.handle(request))

        return FakeTransport(Answering(answer))


def document(kind: str, change: Changed, *, containing: str = "") -> Wrong:
    """Return a defect that changes the documents of successful responses of an operation."""

    def answered(request: Request, response: Response) -> Response:
        if not _is(kind, request, containing) or response.status > OK + 1:
            return response
        payload = json.loads(response.body)
        change(payload)
        return attrs.evolve(response, body=json.dumps(payload).encode())

    return Wrong(answered)


def _is(kind: str, request: Request, containing: str) -> bool:
    return KINDS[kind] in request.target and (containing in request.target or containing in request.body.decode())


def put(kind: str, path: str, value: Any, *, containing: str = "") -> Wrong:
    """Return a defect that sets the value at a path. A function computes it from the old value; `KeyError` removes it."""

    def change(payload: Any) -> None:
        *way, last = path.split(".")
        for name in way:
            payload = _part(payload, name)
        if payload is not None and _part(payload, last, KeyError) is not KeyError:
            key = int(last) if isinstance(payload, list) else last
            if value is KeyError:
                del payload[key]
            else:
                payload[key] = value(payload[key]) if callable(value) else value

    return document(kind, change, containing=containing)


def _part(payload: Any, name: str, default: Any = None) -> Any:
    if isinstance(payload, dict):
        return payload.get(name, default)
    return payload[int(name)] if isinstance(payload, list) and int(name) < len(payload) else default


def refused(kind: str, status: int, *, containing: str = "", body: bytes | None = None) -> Wrong:
    """Return a defect that responds with another status, and with another body if one is passed."""
    return Wrong(
        lambda request, response: (
            attrs.evolve(response, status=status, body=response.body if body is None else body)
            if _is(kind, request, containing)
            else response
        )
    )


DONE: Final = "camp_done"
"""The id of a finished campaign, the first in the list."""

LIVE: Final = [row["id"] for row in said_by(page(service(), "/campaigns", workspace=SPACE, display=5))["data"]][1]
"""The id of a live campaign, the second in the list: a step with A and B, then one with A and PER."""


def fewer(payload: Any) -> None:
    """Report consistently that there are only ten campaigns."""
    display = 10 if len(payload["data"]) != 1 else 1
    payload.update(total_found=10, total_pages=10 // display)


def more(payload: Any) -> None:
    """Report consistently one mailbox more than there is."""
    payload["total_found"] += 1
    payload["total_pages"] = payload["total_found"] if len(payload["data"]) == 1 else 1


def first_page_again(request: Request, response: Response) -> Response:
    if "/campaigns?" not in request.target or "display=10" not in request.target:
        return response
    payload = json.loads(response.body)
    if payload["data"]:
        payload["data"] = FIRST_CAMPAIGNS
    return attrs.evolve(response, body=json.dumps(payload).encode())


def not_a_number(request: Request, response: Response) -> Response:
    payload = json.loads(response.body)
    if "/mailboxes?" in request.target and payload.get("data"):
        payload["data"][0]["sent_today"] = float("nan")
    return attrs.evolve(response, body=json.dumps(payload).encode())


FIRST_CAMPAIGNS: Final = said_by(page(service(), "/campaigns", workspace=SPACE, display=10))["data"]


YEAR: Final = 365 * 86400
SENT: Final = ("sent_today", "sent_30days", "sent_90days", "bounced_30days")


def own_mailboxes(request: Request, response: Response) -> Response:
    """Serve the mailboxes of the workspace for every workspace."""
    if "/mailboxes?workspace=space_conformance" not in request.target:
        return response
    return service().handle(attrs.evolve(request, target=f"/mailboxes?workspace={SPACE}&display=1&page=1"))


def no_contacts_in_draft(payload: Any) -> None:
    for item in payload["data"]:
        if item["id"] == DRAFT:
            item["contacts"] = 0


def same_id_twice(payload: Any) -> None:
    for item, other in zip(payload["data"][:1], payload["data"][1:2], strict=False):
        other["id"] = item["id"]


def first_and_second(name: str) -> Callable[[Any], None]:
    def change(payload: Any) -> None:
        payload["data"][1][name] = payload["data"][0][name]

    return change


def one_item_too_many(payload: Any) -> None:
    payload["data"] += (
        [{**payload["data"][-1], "id": f"camp_surplus{payload['current_page']}"}] if len(payload["data"]) == 10 else []
    )


def of_nothing(name: str) -> Callable[[Any], Any]:
    """Return a change that sets a percentage although its count is zero."""
    return lambda item: {**item, name: 5, f"{name}_num": 0, "interested_num": 0}


def steps_of(campaign: str, path: str, value: Any) -> Wrong:
    return put("steps", path, value, containing=campaign)


def of_creation(outcome: str, *, containing: str = "", **members: Any) -> Wrong:
    def change(payload: Any) -> None:
        if payload["status"] == outcome:
            payload.update(members)

    return document("contacts", change, containing=containing)


def lacking(member: str, value: Any) -> Wrong:
    """Accept a creation without a required member, as if the member were present."""

    def change_request(body: Any) -> None:
        if body.get("email", "without-email").startswith("without-"):
            place = body.get("upload_options", {}) if member in {"duplicates", "strict_validation"} else body
            place.setdefault(member, value)

    return Wrong(change_request=change_request)


def campaign_as(value: str | None) -> Wrong:
    """Create every contact as if its request named this campaign, or none."""
    return Wrong(change_request=lambda body: body.get("upload_options", {}).update(campaign=value))


def shares_of(*names: str) -> Callable[[Any], Any]:
    return lambda item: {**item, **{name: item[name] / 100 for name in names}}


def finished(payload: Any) -> None:
    """Call a finished campaign anything but complete, in the list and in its steps."""
    for item in (payload, *payload["data"]):
        if item.get("days_left_date") == "Complete":
            item.update(days_left_date="Jan 31, 2026", days_left_display="Done")


def in_list_and_steps(change: Changed) -> Wrong:
    listed, steps = document("campaigns", change), document("steps", change)
    return Wrong(lambda request, response: steps.answered(request, listed.answered(request, response)))


PER: Final = "data.1.templates.1"
FOLLOW_UP: Final = "data.1.templates.0"
FIRST: Final = "data.0.templates.0"


def row(rule: str, what: str, wrong: Wrong, *others: str) -> Any:
    """Return a row of the table: a broken rule, what is wrong, the change, and other rules that then cannot hold either."""
    return pytest.param(rule, wrong, {rule, *others}, id=f"{rule}: {what}")


WRONG: Final = [
    row("W1", "a list that is created", refused("fields", 201)),
    row("W1", "a list of fields that is an array", refused("fields", 200, body=b"[]")),
    row("W1", "a server's error", refused("steps", 500, containing=LIVE)),
    row("W1-json", "a number that is none", Wrong(not_a_number), "W4-counts"),
    row("W2", "another status", put("fields", "status", "fine")),
    row("W2", "no status", put("steps", "status", KeyError, containing=LIVE)),
    row("P1", "no total_found", put("mailboxes", "total_found", KeyError)),
    row("P1", "a total_found that is text", put("mailboxes", "total_found", "30")),
    row("P1", "no total_pages", put("campaigns", "total_pages", KeyError)),
    row("P1", "no current_page", put("campaigns", "current_page", KeyError)),
    row("P1", "more items than display", document("campaigns", one_item_too_many), "P1-total"),
    row("P1-counts", "half a page", put("mailboxes", "total_pages", 1.5)),
    row("P1-counts", "a page below zero", put("mailboxes", "current_page", -1)),
    row("P1-counts", "fewer than none", put("mailboxes", "total_found", -30)),
    row("P1-current", "the next page", put("mailboxes", "current_page", lambda page: page + 1)),
    row("P1-current", "always the first page", put("campaigns", "current_page", 1)),
    row("P1-pages", "one page more", put("mailboxes", "total_pages", lambda pages: pages + 1)),
    row("P1-pages", "no page at all", put("campaigns", "total_pages", 0)),
    row("P1-total", "1 found of 30", put("mailboxes", "total_found", 1), "P1-pages"),
    row("P1-total", "19 found of 20", put("campaigns", "total_found", 19), "P1-pages"),
    row("P1-total", "21 found of 20", put("campaigns", "total_found", 21), "P1-pages"),
    row("P1-total", "far more found than there are", put("campaigns", "total_found", 10**6), "P1-pages"),
    row("P1-total", "a page that is refused, though counted in", refused("campaigns", 404, containing="display=10&page=2")),
    row("P1", "no array of data", put("mailboxes", "data", None), "P2"),
    row("P1-total", "31 found of 30, with as many pages", document("mailboxes", more), "P2"),
    row("P1-end", "10 found of 20, with as many pages", document("campaigns", fewer), "W4-campaigns"),
    row("P1-repeat", "the first page as every page", Wrong(first_page_again)),
    row("P2", "20 mailboxes at most", put("mailboxes", "data", lambda items: items[:20]), "P1-total"),
    row("P2", "no page of 2,000", refused("mailboxes", 400, containing="display=2000"), "W1"),
    row("P14", "a header that is no text", put("mailboxes", "headers", ["email", 1]), "P1"),
    row("P14", "no headers", put("campaigns", "headers", None), "P1"),
    row("W3", "a mailbox without prefix", put("mailboxes", "data.0.id", "box_1", containing="display=2000")),
    row(
        "W3",
        "a campaign without prefix",
        put("campaigns", "data.5.id", lambda id_: id_.replace("camp_", "campaign_"), containing="page=2"),
    ),
    row("W3", "a step without prefix", steps_of(LIVE, "data.0.id", "1")),
    row("W3", "a template without prefix", steps_of(LIVE, f"{FIRST}.id", "personalized_step_1")),
    row("W3", "a personalized entry as a template", steps_of(LIVE, f"{PER}.id", "temp_1")),
    row("W3-unique", "two mailboxes of one id", document("mailboxes", same_id_twice)),
    row("W3-unique", "two steps of one id", document("steps", first_and_second("id"), containing=LIVE)),
    row(
        "W3-unique",
        "two templates of one id",
        steps_of(LIVE, "data.0.templates", lambda both: [both[0], both[0]]),
        "T3-sent",
        "T7-unique",
        "W4-sums",
        "W4-campaign-rates",
    ),
    row("W3-unique", "a step of several campaigns", put("steps", "data.0.id", "step_1")),
    row("W3-unique", "two fields of one code", put("fields", "data.20.code", "custom_1"), "F1"),
    row("W4", "an item that is a number", put("fields", "data.20", 5), "F1"),
    row("W4", "a template that is text", steps_of(DRAFT, "data.0.templates.1", "B")),
    row("W4", "a count of contacts that is null", steps_of(LIVE, "data.0.out_of", None)),
    row("W4-status", "archived", put("campaigns", "data.1.status", "archived")),
    row("T1-templates", "a draft's step without templates", steps_of(DRAFT, "data.0.templates", [])),
    row("W4-status", "Live", put("campaigns", "data.1.status", "Live")),
    *(
        row("W4-counts", f"half of a campaign's {name}", put("campaigns", f"data.1.{name}", lambda count: count + 0.5))
        for name in ("steps", "contacts", "opens_num", "replies_num", "bounces_num")
    ),
    row("W4-counts", "half an interest", put("campaigns", "data.1.interested_num", 0.5)),
    row("W4-counts", "fewer than no bounces", put("campaigns", "data.1.bounces_num", -1)),
    *(
        row("W4-counts", f"half of a step's {name}", steps_of(LIVE, f"data.0.{name}", lambda count: count - 0.5))
        for name in ("left_to_send", "already_sent")
    ),
    row("W4-counts", "half a contact more in all", steps_of(LIVE, "data.0.out_of", lambda count: count + 0.5)),
    *(
        row("W4-counts", f"half of a template's {name}", steps_of(LIVE, f"{FIRST}.{name}", lambda count: count + 0.5))
        for name in ("sent", "opened_num", "clicked_num", "replied_num", "unsubscribed_num")
    ),
    *(
        row("W4-percentages", f"{value} % {name}", put(kind, f"data.1.{name}", value))
        for value in (-1, 100.5)
        for kind, names in (
            ("campaigns", ("opens", "replies", "bounces")),
            ("mailboxes", ("opened_14days", "avg_open_rate", "avg_click_rate")),
        )
        for name in names
        if (name, value) != ("bounces", 100.5)
    ),
    *(
        row("W4-percentages", f"{name} below zero", steps_of(LIVE, f"{FIRST}.{name}", -0.01))
        for name in ("opened", "clicked", "replied", "unsubscribed")
    ),
    *(
        row("W4-shares", f"{name} of nothing", put("campaigns", "data.1", of_nothing(name)), *others)
        for name, others in (("opens", set[str]()), ("replies", {"W4-sums"}), ("bounces", set[str]()))
    ),
    *(
        row("W4-shares", f"{name} of nothing", steps_of(LIVE, FIRST, of_nothing(name)), *others)
        for name, others in (
            ("opened", {"W4-sums"}),
            ("clicked", set[str]()),
            ("replied", set[str]()),
            ("unsubscribed", set[str]()),
        )
    ),
    row("W4-shares", "0 % of many opens", put("campaigns", "data.8.opens", 0, containing="display=10&page=2")),
    row("W4-rates", "fractions", steps_of(LIVE, FIRST, shares_of("opened", "replied"))),
    *(
        row("W4-rates", f"{value} % {name}", steps_of(LIVE, f"{FIRST}.{name}", value), *(() if value else ("W4-shares",)))
        for name, value in (
            ("opened", 0),
            ("opened", 100),
            ("opened", 51.63),
            ("opened", 53.63),
            ("clicked", 0),
            ("clicked", 4.2),
            ("clicked", 50),
        )
    ),
    row("W4-campaign-rates", "fractions", put("campaigns", "data.1", shares_of("opens", "replies"))),
    *(
        row(
            "W4-campaign-rates",
            f"{value} % {name}",
            put("campaigns", f"data.1.{name}", value),
            *(() if value else ("W4-shares",)),
        )
        for name, value in (("opens", 0), ("opens", 100), ("opens", 52.5), ("opens", 18), ("replies", 0.5), ("replies", 50))
    ),
    row("W4-bounces", "more bounces than e-mails", put("campaigns", "data.1.bounces_num", 38), "W4-campaign-rates", "W4-shares"),
    row("W4-contacts", "fewer contacts than in a step", put("campaigns", "data.1.contacts", 99)),
    row("W4-contacts", "no contacts", put("campaigns", "data.1.contacts", 0)),
    row("W4-contacts", "more in a step than there are", steps_of(LIVE, "data.0.out_of", 101)),
    row("W4-contacts", "a step of 10 trillion contacts", steps_of(LIVE, "data.0.out_of", 10**13)),
    *(row("W4-initials", f"{value} initials", put("campaigns", "data.1.initials", value)) for value in (-1, -0.5)),
    row("W4-sums", "an open more than the templates", put("campaigns", "data.1.opens_num", lambda count: count + 1)),
    row(
        "W4-sums",
        "an open fewer than the templates",
        put("campaigns", "data.1.opens_num", lambda count: count - 1),
        "W4-campaign-rates",
    ),
    row("W4-sums", "a reply more than the templates", put("campaigns", "data.1.replies_num", lambda count: count + 1)),
    *(
        row("W4-most", f"more than it sent in {name}", steps_of(LIVE, f"{FIRST}.{name}", 10**6), *others)
        for name, others in (
            ("opened_num", {"W4-sums"}),
            ("clicked_num", set[str]()),
            ("replied_num", {"W4-sums"}),
            ("unsubscribed_num", set[str]()),
        )
    ),
    row("W4-interested", "more interest than replies", put("campaigns", "data.1.interested_num", 10**6)),
    *(row("W4-created", f"created {value}", put("campaigns", "data.0.created", value)) for value in (0, 2026, 20260131)),
    row("W4-created", "a campaign created in milliseconds", put("campaigns", "data.0.created", lambda created: created * 1000)),
    row("W4-created", "a campaign created in two years", put("campaigns", "data.0.created", lambda created: created + 2 * YEAR)),
    row("W4-created", "a mailbox created in milliseconds", put("mailboxes", "data.1.created_at", lambda created: created * 1000)),
    row(
        "W4-created", "a mailbox created in 50 years", put("mailboxes", "data.1.created_at", lambda at: at + 50 * YEAR), "W4-age"
    ),
    *(
        row(
            "W4-age",
            f"created {days} days off",
            put("mailboxes", "data.1.created_at", lambda created, d=days: created + d * 86400),
        )
        for days in (-600, 200)
    ),
    row("W4-age", "created just now", put("mailboxes", "data.1.created", "just now")),
    row("W4-age", "created 20 years ago", put("mailboxes", "data.1.created", "20 years ago")),
    row("W4-created", "created before 1970", put("mailboxes", "data.0.created_at", -5)),
    row("W4-date", "a date as a number", put("campaigns", "data.1.days_left_date", 20260131)),
    row("W4-date", "a date in milliseconds", put("campaigns", "data.1.days_left_date", 1770681600000)),
    row("T13-date", "a date in two years", put("campaigns", "data.1.days_left_date", 1830681600)),
    row("T13-date", "a date before the days left", put("campaigns", "data.1.days_left_date", 1767225600)),
    row("T13-same", "a hundred times the days left", steps_of(LIVE, "days_left", 4000)),
    row("T13-same", "no days left", steps_of(LIVE, "days_left", 0)),
    *(
        row("W4-relative", f"the activity {text!r}", put("mailboxes", "data.0.last_activity", text))
        for text in ("in 5 minutes", "-5 minutes ago", "2026-01-31t12:00:00z")
    ),
    row("W4-relative", "a campaign's activity as a date", put("campaigns", "data.1.last_activity", "2026-01-31T12:00:00Z")),
    row("W4-relative", "a mailbox's activity as a timestamp", put("mailboxes", "data.0.last_activity", "1767225600")),
    row("W4-relative", "a mailbox's age as a date", put("mailboxes", "data.0.age", "Jan 31, 2026")),
    row("W4-relative", "a mailbox's creation as a date", put("mailboxes", "data.0.created", "31/01/2026")),
    *(
        row("W4-counts", f"{value} of a mailbox's {name}", put("mailboxes", f"data.1.{name}", value))
        for name in ("campaigns", "daily_limit", "blacklists", "sent_today", "bounced_30days")
        for value in (-1, 0.5)
    ),
    row("W4-counts", "fewer than no e-mails", put("mailboxes", "data.1", lambda item: {**item, **dict.fromkeys(SENT, -5)})),
    row("W4-campaigns", "more campaigns than there are", put("mailboxes", "data.1.campaigns", 21)),
    row("W4-windows", "more today than in 30 days", put("mailboxes", "data.1.sent_today", 10**4)),
    row("W4-windows", "more in 30 days than in 90", put("mailboxes", "data.1.sent_30days", 10**6)),
    row("W4-windows", "fewer in 90 days than in 30", put("mailboxes", "data.1.sent_90days", 500)),
    row("W4-windows", "more bounces than e-mails", put("mailboxes", "data.1.bounced_30days", 10**4)),
    *(
        row("W4-words", f"{kind}: {path.rpartition('.')[2]} {word!r}", put(kind, path, word))
        for kind, path, words in (
            ("mailboxes", "data.1.status", ("", "ACTIVE", " active")),
            ("mailboxes", "data.1.type", (" ", "google", "SMTP & imap")),
            ("steps", "data.0.status", ("", "Live")),
            ("steps", f"{FIRST}.status", (" ", "LIVE")),
            ("fields", "data.20.label", ("",)),
        )
        for word in words
    ),
    row("W4-percentages", "an interest of 101 %", put("campaigns", "data.1.interested", 101)),
    row("P13", "the mailboxes of another workspace", Wrong(own_mailboxes)),
    row("W4-email", "no address", put("mailboxes", "data.0.email", "nobody")),
    row("W4-steps", "a step more than listed", put("campaigns", "data.0.steps", 2)),
    row(
        "T1",
        "steps from 0",
        document("steps", lambda payload: [step.update(order=step["order"] - 1) for step in payload["data"]]),
    ),
    row("T1", "two first steps", steps_of(LIVE, "data.1.order", 1)),
    row("T1", "half a place", steps_of(LIVE, "data.1.order", 1.5)),
    row("T1-type", "another type", steps_of(LIVE, "data.0.type", "call")),
    row("T1-wait", "a wait below zero", steps_of(LIVE, "data.1.wait_time", -1)),
    row("T1-wait", "a wait in nanoseconds", steps_of(LIVE, "data.1.wait_time", 3 * 86400 * 10**9)),
    row("T1-templates", "a step without templates", steps_of(LIVE, "data.1.templates", [])),
    row("T3", "more contacts than there are", steps_of(LIVE, "data.0.out_of", lambda count: count - 1)),
    row("T3-sent", "fewer contacts than e-mails", steps_of(LIVE, "data.0.already_sent", lambda count: count - 1)),
    row("T6", "a personalized entry with a thread", steps_of(LIVE, f"{PER}.new_thread", value=True)),
    row("T6", "a personalized entry with a subject", steps_of(LIVE, f"{PER}.subject", "Hello")),
    row("T6-thread", "a follow-up with a subject", steps_of(LIVE, f"{FOLLOW_UP}.subject", "Hello")),
    row("T6-thread", "a template of no thread", steps_of(LIVE, f"{FOLLOW_UP}.new_thread", None)),
    row("T6-thread", "a thread without a subject", steps_of(LIVE, f"{FIRST}.subject", None)),
    *(
        row("T7", f"the letter {letter!r}", steps_of(LIVE, f"{FIRST}.test_letter", letter))
        for letter in ("a", "1", "", "Variant A")
    ),
    row("T7-unique", "two templates of one letter", steps_of(LIVE, "data.0.templates.1.test_letter", "A")),
    row("T13", "days that are text", steps_of(LIVE, "days_left", "soon")),
    row("T13", "no display of days", steps_of(LIVE, "days_left_display", KeyError)),
    row("T13", "a date that is a number", steps_of(LIVE, "days_left_date", 1767225600)),
    row("T13-days", "days below zero in the steps", steps_of(LIVE, "days_left", -1)),
    row("T13-days", "days below zero in the list", put("campaigns", "data.1.days_left", -1)),
    row("T14", "complete in the list alone", put("campaigns", "data.1.days_left_date", "Complete")),
    row("T14", "complete in the steps alone", put("campaigns", "data.0.days_left_date", "Feb 1, 2026")),
    row("T14-left", "days left of what is complete", steps_of(DONE, "days_left", 3)),
    row("T14-finished", "a finished campaign that is not complete", in_list_and_steps(finished)),
    row(
        "T14-left",
        "a contact left in what is complete",
        steps_of(DONE, "data.0", lambda step: {**step, "left_to_send": 1, "out_of": 31}),
        "W4-contacts",
    ),
    row("F1", "a standard code that is not there", put("fields", "data.0", lambda field: {**field, "code": "mail"})),
    row("F1", "a field of new contacts that is not listed", document("fields", lambda payload: payload["data"].pop(20))),
    row("F1", "a custom code of another form", put("fields", "data.36.code", "custom_x"), "C19"),
    row("F1-searchable", "a name in capitals", put("fields", "data.0.searchable", ["E-Mail"])),
    row("A1", "a key that is refused", refused("contacts", 403, containing="trial-"), "C1", "C2-added", "E1"),
    row("C1", "a duplicate that is added", of_creation("skipped", status="added")),
    row("C1", "a corrected spelling", of_creation("overwriten", status="overwritten")),
    row("C1", "an update of another name", of_creation("updated_missing_fields", status="updated")),
    row("C2", "a skipped duplicate with an id", of_creation("skipped", id="contact_1")),
    row("C2", "a skipped duplicate without details", of_creation("skipped", details=None)),
    row("C2", "a skipped duplicate with a blank text", of_creation("skipped", details=" ")),
    row("C2", "a success with details", of_creation("overwriten", details="done")),
    row("C2", "a success without id", of_creation("updated_missing_fields", id=None)),
    row("C2", "a new contact with every field without id", of_creation("added", containing='"custom_1":', id=None)),
    row("C2", "a contact without prefix", of_creation("updated_missing_fields", id="c1"), "C2-id"),
    row("C2-added", "a new contact that is a duplicate", of_creation("added", status="overwriten")),
    *(
        row("C2-added", f"a new contact with {policy} that is {status}", of_creation("added", containing=policy, status=status))
        for policy, status in (("overwrite", "overwriten"), ("update_missing_fields", "updated_missing_fields"))
    ),
    row("C2-id", "an overwritten contact of another id", of_creation("overwriten", id="contact_other")),
    row(
        "C2-id",
        "one id for every contact",
        document("contacts", lambda payload: payload.update(id=payload["id"] and "contact_1")),
    ),
    *(
        row("C6", f"a creation without {member}", lacking(member, value))
        for member, value in (
            ("owner_key", WRITER.owner_key),
            ("workspace", SPACE),
            ("email", "nobody@conformance.example"),
            ("upload_options", {"duplicates": "skip", "strict_validation": False, "campaign": None}),
            ("duplicates", "skip"),
            ("strict_validation", False),
        )
    ),
    row("C7", "contacts that join nothing", campaign_as(None), "C7-listed"),
    row("C7-listed", "a count of contacts that is never counted again", document("campaigns", no_contacts_in_draft)),
    row("C7", "contacts that join without being asked", campaign_as(DRAFT)),
    row("C19", "a listed field that is refused", refused("contacts", 400, containing='"custom_1":')),
    row("E1", "a conflict", refused("contacts", 409, containing='"duplicates": "skip"'), "A1", "C1", "C2-added"),
]


WRITE_RULES: Final = {rule.id for rule in RULES if rule.writes}


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run on asyncio only: the services are in memory, and other tests of the conformance checks run on both event loops."""
    return LOOPS["asyncio"]


@pytest.mark.parametrize(("_rule", "wrong", "broken"), WRONG)
async def test_a_service_that_breaks_one_rule_is_found_to_break_it(_rule: str, wrong: Wrong, broken: set[str]) -> None:
    # Creations are most of the requests.
    access = WRITER if WRITE_RULES & broken or wrong.change_request is not _as_asked else READER
    found = await check(wrong.of(service()), access)
    assert {breach.rule for breach in found} == broken, [str(breach) for breach in found]


SCHEMAS: Final = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text("utf-8"))["components"]["schemas"]
FIELDS: Final = [
    (kind, path, name)
    for kind, path, schema in (
        ("campaigns", "data.9", "Campaign"),
        ("mailboxes", "data.1", "Mailbox"),
        ("steps", "data.0", "Step"),
        ("steps", PER, "Template"),
        ("fields", "data.20", "WorkspaceField"),
    )
    for name in SCHEMAS[schema]["properties"]
]
ALSO: Final = {
    "id": {"W3"},
    "test_letter": {"W3", "T6-thread"},
    "new_thread": {"T6"},
    "subject": {"T6"},
    "order": {"T1"},
    "days_left_date": {"T14"},
    "templates": {"W4-sums"},
    "code": {"F1"},
    "searchable": {"F1-searchable"},
}
"""Further rules that a missing or invalid field may break."""


@pytest.mark.nightly
@pytest.mark.parametrize("value", [KeyError, {"a": [1]}], ids=["missing", "an object"])
@pytest.mark.parametrize(("kind", "path", "name"), FIELDS, ids=[f"{kind} {name}" for kind, _, name in FIELDS])
async def test_a_missing_field_or_one_of_another_type_is_found(kind: str, path: str, name: str, value: Any) -> None:
    wrong = put(kind, f"{path}.{name}", value, containing=LIVE if kind == "steps" else "")
    found = {breach.rule for breach in await check(wrong.of(service()), WRITER)}
    assert "W4" in found
    assert found <= {"W4"} | ALSO.get(name, set())


async def test_the_steps_of_a_finished_campaign_are_read_whatever_it_is_called() -> None:
    def rename(payload: Any) -> None:
        for item in payload["data"]:
            if item["id"] == DONE:
                item.update(days_left_date="Jan 31, 2026", status="live", opens_num=0)

    fake = service()
    await check(document("campaigns", rename).of(fake), READER)
    assert any(DONE in recorded.target for recorded in fake.requests.of("list_steps"))


def test_every_rule_has_a_service_that_breaks_it() -> None:
    assert {rule.id for rule in RULES} == {each.values[0] for each in WRONG}


# Correct services.


@pytest.mark.parametrize("order", ["oldest", "newest", "last_activity"])
@pytest.mark.parametrize(
    "happen",
    [
        lambda fake: fake.add_campaign(SPACE, steps=["A"]),
        lambda fake: fake.add_mailbox(SPACE),
        lambda fake: fake.advance(minutes=7),
    ],
    ids=["campaigns are added", "mailboxes are added", "time passes"],
)
async def test_changes_during_the_check_are_not_breaches(order: Any, happen: Callable[[FakeService], object]) -> None:
    fake = service(Behaviour(order=order))

    def answer(request: Request) -> Response:
        happen(fake)
        return fake.handle(request)

    assert await check(FakeTransport(Answering(answer)), WRITER) == []


async def test_one_page_of_an_empty_list_and_a_subject_in_the_first_step_are_right() -> None:
    empty = FakeService()
    access = Access(empty.add_workspace())
    assert await check(put("mailboxes", "total_pages", 1).of(empty), access) == []
    first = steps_of(LIVE, f"{FIRST}.new_thread", value=False)
    assert await check(first.of(service()), WRITER) == []


def last_item_again(request: Request, response: Response) -> Response:
    """Repeat the last item of a page on the next one, as a list sorted by last activity may."""
    if "display=10&page=2" not in request.target:
        return response
    payload = json.loads(response.body)
    payload["data"] = payload["data"][:-1] + BY_ACTIVITY[-1:]
    return attrs.evolve(response, body=json.dumps(payload).encode())


BY_ACTIVITY: Final = said_by(page(service(Behaviour(order="last_activity")), "/campaigns", workspace=SPACE, display=10))["data"]


@pytest.mark.parametrize(("answered", "broken"), [(last_item_again, set()), (first_page_again, {"P1-repeat"})])
async def test_in_a_list_by_activity_only_a_repeated_whole_page_is_a_breach(answered: Answered, broken: set[str]) -> None:
    fake = service(Behaviour(order="last_activity"))
    found = await check(Wrong(answered).of(fake), WRITER)
    assert {breach.rule for breach in found} == broken, [str(breach) for breach in found]


@pytest.mark.nightly
@pytest.mark.parametrize("days", [0, 8])
def test_the_embedded_service_keeps_every_rule_as_time_passes(days: int) -> None:
    async def check_later(place: dict[str, str]) -> list[Breach]:
        async with aclosing(HttpxTransport(place["base_url"])) as transport:
            body = json.dumps({"days": days}).encode()
            moved = Request("POST", "/_fake/time/advance", {"content-type": "application/json"}, body)
            assert (await transport.send(moved, Progress())).status == OK
            access = Access(place["workspace"], place["owner_key"], writes=True, campaign="camp_partners")
            return await check(transport, access)

    with serve_in_process() as (_, place):
        assert anyio.run(check_later, place) == []
