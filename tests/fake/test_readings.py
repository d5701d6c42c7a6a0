"""The table of fixed interpretations is true and complete: every row is tested, and every tested row is in the table."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

import pytest
from support.fake import (
    FIELDS,
    JSON,
    KEY,
    OTHER,
    SPACE,
    START,
    create,
    creation,
    document,
    get,
    page,
    post,
    refusal,
    small_world,
    steps,
)
from support.tables import check_rows

import outreach_async.fake.behaviour
from outreach_async.fake import FakeService
from outreach_async.fake._stored_records import CAMPAIGN_HEADERS, MAILBOX_HEADERS, STANDARD_FIELDS
from outreach_async.transport._wire import Request, Response

Row = tuple[str, str, str]
Tried = Callable[[FakeService], object]

TRIED: Final[dict[Row, Tried]] = {}
"""The test of each row of the table: the rule, the question and the interpretation."""

DAY: Final = 86_400
DAY_MS: Final = DAY * 1000


def row(rule: str, what: str, reading: str) -> Callable[[Tried], Tried]:
    """Register the function as the test of a row."""

    def keep(tried: Tried) -> Tried:
        TRIED[rule, what, reading] = tried
        return tried

    return keep


def table() -> list[Row]:
    """Parse the table in the docstring."""
    lines = re.findall(
        r"^\| ([A-Z]\d+(?:, [A-Z]\d+)*) \| (.+?) \| (.+) \|$", outreach_async.fake.behaviour.__doc__ or "", re.MULTILINE
    )
    return [(rule, what, reading) for rule, what, reading in lines]


def ask(fake: FakeService, method: str, target: str, body: bytes = b"") -> Response:
    return fake.handle(Request(method, target, JSON if body else {}, body))


def listed(fake: FakeService, id_: str, path: str = "/campaigns", space: str = SPACE) -> Any:
    (found,) = [item for item in document(page(fake, path, workspace=space, display=100))["data"] if item["id"] == id_]
    return found


def stored(fake: FakeService, email: str = "ada@acme.example") -> Any:
    return fake.contact(SPACE, email)


def hints(fake: FakeService) -> str:
    return " ".join(fake.requests[-1].hints)


@row("W5", "ids", "prefix and 16 hexadecimal digits, the same for the same seed and calls")
def ids(fake: FakeService) -> None:
    contact_id = create(fake)["id"]
    assert re.fullmatch(r"contact_[0-9a-f]{16}", contact_id)
    assert create(small_world())["id"] == contact_id


@row("W6", "unknown path", "404")
def unknown_path(fake: FakeService) -> None:
    refusal(get(fake, "/nowhere"), 404, "not_found")


@row("W6", "another method on a known path, including HEAD", "405 with `Allow`")
def other_method(fake: FakeService) -> None:
    for method in ("HEAD", "OPTIONS", "DELETE"):
        answer = ask(fake, method, FIELDS)
        assert (answer.status, answer.headers["allow"]) == (405, "GET")


@row("W6", "one slash at the end of a path", "ignored")
def trailing_slash(fake: FakeService) -> None:
    assert get(fake, f"{FIELDS}/").body == get(fake, FIELDS).body


@row("W7", "a create request without `content-type: application/json`", "accepted, with a hint")
def content_type(fake: FakeService) -> None:
    assert post(fake, creation(), {}).status == 201
    assert "content-type" in hints(fake)


@row("W8", "a body that is not a JSON object, or contains NaN, a duplicate key or a lone surrogate", "400")
def bad_bodies(fake: FakeService) -> None:
    for body in (b"{", b"[]", b'{"a": NaN}', b'{"a": 1, "a": 2}', b'{"a": "\\ud800"}'):
        assert post(fake, body).status == 400


@row("W8", "a body over 1 MiB", "413")
def large_body(fake: FakeService) -> None:
    assert [post(fake, b" " * (2**20 + more)).status for more in (0, 1)] == [400, 413]


@row("W10", "times", "Unix seconds; `wait_time` in milliseconds, as the API documentation states")
def seconds(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, steps=["A", "A"])
    assert listed(fake, camp)["created"] == START
    assert steps(fake, camp)["data"][1]["wait_time"] == 3 * DAY_MS


@row("W11", "headers of every response", "`content-type: application/json` and a unique `x-request-id`")
def headers_of_answers(fake: FakeService) -> None:
    answers = get(fake, FIELDS), get(fake, "/nowhere")
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert len({answer.headers["x-request-id"] for answer in answers}) == 2


@row("W12", "`workspace` as a parameter of list-steps", "ignored: campaign ids are global")
def steps_of_another_workspace(fake: FakeService) -> None:
    assert get(fake, "/campaigns/camp_1/steps", workspace=OTHER).body == get(fake, "/campaigns/camp_1/steps").body


@row("A2", "a known owner key without access to the workspace", "403; 401 for an unknown key")
def foreign_key(fake: FakeService) -> None:
    assert [post(fake, creation(owner_key=key)).status for key in ("key_2", "key_9")] == [403, 401]


@row(
    "A4",
    "several errors at once",
    "the first in this order: JSON, presence, type, id, key, workspace, campaign, fields, values",
)
def order_of_checks(fake: FakeService) -> None:
    wrong: dict[str, Any] = {"strict_validation": "no", "custom_9": "x", "campaign": "camp_9", "workspace": "space_9"}
    statuses = [post(fake, creation(**wrong, owner_key="key_9")).status]
    for repaired in ("strict_validation", "workspace", "campaign", "custom_9"):
        del wrong[repaired]
        statuses.append(post(fake, creation(**wrong)).status)
    assert statuses == [400, 404, 404, 400, 201]


@row("P4", "a required parameter that is missing or empty", "400 that names the parameter")
def missing_parameter(fake: FakeService) -> None:
    for more in ("", "&display="):
        assert refusal(get(fake, f"/campaigns?workspace={SPACE}&page=1{more}"), 400, "missing_parameter")["field"] == "display"


@row("P5", "format of a number", "1 to 9 ASCII digits, leading zeros allowed; no sign, space or fraction")
def digits(fake: FakeService) -> None:
    statuses = [page(fake, "/campaigns", display=text).status for text in ("007", "+1", " 1", "1.0", "٣", "1000000000")]
    assert statuses == [200, 400, 400, 400, 400, 400]


@row("P9", "`total_pages` of an empty list", "0")
def no_pages(fake: FakeService) -> None:
    assert document(page(fake, "/mailboxes", workspace=OTHER))["total_pages"] == 0


@row("P10", "items created at the same time", "in the order in which they were added")
def ties(fake: FakeService) -> None:
    camps = [fake.add_campaign(SPACE, created=START) for _ in range(5)]
    found = [item["id"] for item in document(page(fake, "/campaigns"))["data"]]
    assert [id_ for id_ in found if id_ in camps] == camps


@row("P11", "pages read while items are added", "each page shows the list at that moment: items may shift")
def shifting(fake: FakeService) -> None:
    first = document(page(fake, "/campaigns", display=1))
    fake.add_campaign(SPACE)
    assert document(page(fake, "/campaigns", display=1, page=2))["total_found"] == first["total_found"] + 1


@row("P12", "a parameter given twice", "400")
def repeated_parameter(fake: FakeService) -> None:
    assert get(fake, f"/campaigns?workspace={SPACE}&display=1&page=1&page=1").status == 400


@row("P12", "an unknown parameter", "ignored, with a hint")
def unknown_parameter(fake: FakeService) -> None:
    assert page(fake, "/campaigns", pages=2).status == 200
    assert "page" in hints(fake)


@row("P13", "an unknown workspace", "404; 400 for an id without its prefix")
def unknown_workspace(fake: FakeService) -> None:
    assert [page(fake, "/campaigns", workspace=id_).status for id_ in ("space_9", "camp_1")] == [404, 400]


@row("P14", "`headers`", "those in the API documentation, unless `add_workspace` sets others; items always have every field")
def saved_headers(fake: FakeService) -> None:
    space = fake.add_workspace(campaign_headers=["name"])
    fake.add_campaign(space)
    found = [document(page(fake, path)) for path in ("/campaigns", "/mailboxes")]
    assert [tuple(items["headers"]) for items in found] == [CAMPAIGN_HEADERS, MAILBOX_HEADERS]
    own = document(page(fake, "/campaigns", workspace=space))
    assert (own["headers"], own["data"][0].keys()) == (["name"], found[0]["data"][0].keys())


@row("C4, C15", "the stored e-mail", "as sent, trimmed; `overwrite` stores the new spelling")
def spelling(fake: FakeService) -> None:
    create(fake, " Ada@Acme.example ")
    assert stored(fake)["email"] == "Ada@Acme.example"
    create(fake, "ADA@acme.example", duplicates="update_missing_fields")
    assert stored(fake)["email"] == "Ada@Acme.example"
    create(fake, "ADA@acme.example", duplicates="overwrite")
    assert stored(fake)["email"] == "ADA@acme.example"


@row("C5", "the owner of a duplicate", "unchanged, whoever overwrites the contact")
def owner(fake: FakeService) -> None:
    create(fake)
    create(fake, owner_key=fake.add_owner_key(SPACE), duplicates="overwrite")
    assert stored(fake)["owner"] == KEY


@row("C8, C9", 'an upload option with an invalid type or value, such as `"true"` or `Skip`', "400")
def options(fake: FakeService) -> None:
    for option in ({"strict_validation": "true"}, {"strict_validation": 1}, {"duplicates": "Skip"}):
        assert post(fake, creation(**option)).status == 400


@row("C13", "a blank field", "counts as missing for `update_missing_fields`, which never stores a blank value")
def blank(fake: FakeService) -> None:
    create(fake, city=" ", title="CEO")
    create(fake, city="Lyon", title=" ", duplicates="update_missing_fields")
    assert stored(fake)["fields"] == {"city": "Lyon", "title": "CEO"}


@row("C14", "null for a field of a new contact", "as if not sent; 400 for a number or a list")
def null(fake: FakeService) -> None:
    create(fake, city=None)
    assert stored(fake)["fields"] == {}
    assert [post(fake, creation("bo@acme.example", city=value)).status for value in (7, ["Lyon"])] == [400, 400]


@row("C17", "an unknown campaign, or one of another workspace", "404, and nothing is stored")
def foreign_campaign(fake: FakeService) -> None:
    assert [post(fake, creation(campaign=camp)).status for camp in ("camp_9", "camp_3")] == [404, 404]
    assert stored(fake) is None


@row("C18", "campaigns that accept contacts", "all, whatever their status; a finished campaign reopens")
def every_campaign(fake: FakeService) -> None:
    camps = [fake.add_campaign(SPACE, status=status, steps=[{"sent": 3}]) for status in ("draft", "live", "paused")]
    assert {listed(fake, camp)["days_left_date"] for camp in camps} == {"Complete"}
    for number, camp in enumerate(camps):
        create(fake, f"p{number}@acme.example", campaign=camp)
    assert "Complete" not in {listed(fake, camp)["days_left_date"] for camp in camps}


@row("C20", "a malformed custom code, such as `custom_x` or `custom_01`", "400")
def malformed_code(fake: FakeService) -> None:
    assert [post(fake, creation(**{code: "x"})).status for code in ("custom_x", "custom_", "custom_01")] == [400, 400, 400]


@row("C22", "`full_name`", "never derived from the name parts; they are never derived from `full_name`")
def names(fake: FakeService) -> None:
    create(fake, full_name="Ada Lovelace")
    assert stored(fake)["fields"] == {"full_name": "Ada Lovelace"}


@row("C25", "a create request retried after its response was lost", "treated as a duplicate; `skip` does not return the id")
def sent_again(fake: FakeService) -> None:
    create(fake)
    assert create(fake)["id"] is None
    assert create(fake, duplicates="update_missing_fields")["id"] is not None


@row("C27", "dates under strict validation", "`YYYY-MM-DD`, `YYYY-MM`, `YYYY` and `MM/DD/YYYY`")
def dates(fake: FakeService) -> None:
    values = ("2026-02-28", "2026-02", "2026", "02/28/2026", "28/02/2026", "2026-02-30")
    bodies = [creation(f"p{n}@acme.example", strict_validation=True, job_start_date=value) for n, value in enumerate(values)]
    assert [post(fake, body).status for body in bodies] == [201, 201, 201, 201, 422, 422]


@row("C28", "strict validation of a duplicate", "before the look-up of duplicates: 422 that lists every failure")
def strict_first(fake: FakeService) -> None:
    create(fake)
    answer = refusal(post(fake, creation(strict_validation=True, zip="?" * 99, country="Atlantis")), 422, "validation_failed")
    assert "zip" in answer["message"]
    assert "country" in answer["message"]


@row("T2", "order of steps and templates", "steps by `order`; templates as seeded: A, B, ..., then PER")
def order_of_steps(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, steps=["A|B|PER", "A"])
    data = steps(fake, camp)["data"]
    assert [step["order"] for step in data] == [1, 2]
    assert [template["test_letter"] for template in data[0]["templates"]] == ["A", "B", "PER"]


@row("T4, T5", "`out_of`", "`left_to_send` + `already_sent`, without contacts that left early; a new contact counts in all steps")
def out_of(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, steps=[{"sent": 10, "left_to_send": 5}, {"sent": 4, "left_to_send": 2}])
    create(fake, campaign=camp)
    assert [(step["left_to_send"], step["out_of"]) for step in steps(fake, camp)["data"]] == [(6, 16), (3, 7)]


@row("T7", "which template is sent", "the live templates of the step take turns, but `PER` is sent to a random share of contacts")
def by_turns(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, status="live", mailboxes=fake.add_mailboxes(SPACE, 1), steps=["A|B"], contacts=10)
    fake.advance(days=1)
    assert [template["sent"] for template in steps(fake, camp)["data"][0]["templates"]] == [5, 5]


@row("T8", "percentages", "of the e-mails sent, rounded half to even; 0 if none was sent")
def percentages(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, steps=[{"templates": [{"sent": 3200, "opened_num": 1}, {}]}])
    assert [template["opened"] for template in steps(fake, camp)["data"][0]["templates"]] == [0.03, 0]
    camp = fake.add_campaign(SPACE, steps=[{"templates": [{"sent": 800, "opened_num": 1}]}])
    assert listed(fake, camp)["opens"] == 0.12


@row(
    "T9, T10",
    "counts of opens, clicks, replies and unsubscribes",
    "once per e-mail; a campaign's counts are sums over its templates",
)
def sums(fake: FakeService) -> None:
    counts = {"sent": 9, "opened_num": 5, "replied_num": 2}
    camp = fake.add_campaign(SPACE, steps=[{"templates": [counts, counts]}])
    assert [listed(fake, camp)[name] for name in ("opens_num", "replies_num")] == [10, 4]
    with pytest.raises(ValueError, match="<= opened_num <= sent"):
        fake.add_campaign(SPACE, steps=[{"templates": [{"sent": 1, "opened_num": 2}]}])


@row(
    "T11",
    "`initials` and `interested`",
    "`initials`: e-mails sent for step 1; `interested`: `interested_num` as a percentage (T8)",
)
def initials(fake: FakeService) -> None:
    counts = {"sent": 10, "opened_num": 4, "replied_num": 2}
    camp = fake.add_campaign(SPACE, steps=[{"templates": [counts]}, {"templates": [{"sent": 5}]}], interested_num=2)
    assert (listed(fake, camp)["initials"], listed(fake, camp)["interested"]) == (10, 13.33)


def sent_after(fake: FakeService, days: float, **campaign: Any) -> list[int]:
    """Return how many contacts got each of two steps after some days. The second step follows a day after the first."""
    items = {
        "status": "live",
        "steps": ["A", {"wait_time": DAY_MS}],
        "rates": {"reply": 0, "bounce": 0, "unsubscribe": 0},
    } | campaign
    camp = fake.add_campaign(SPACE, mailboxes=fake.add_mailboxes(SPACE, 1), contacts=4, **items)
    fake.advance(days=days)
    return [step["already_sent"] for step in steps(fake, camp)["data"]]


@row("T12", "`wait_time`", "counted from when the previous step's e-mail was sent; for the first step, from joining the campaign")
def waits(fake: FakeService) -> None:
    assert [sent_after(small_world(), days) for days in (0.9, 1.1)] == [[4, 0], [4, 4]]
    assert sent_after(fake, 0.9, steps=[{"wait_time": DAY_MS}, "A"]) == [0, 0]


@row("T13", "`days_left`", "e-mails left, divided by the number that the mailboxes can send per day, plus the waits; at least 1")
def days_left(fake: FakeService) -> None:
    boxes = fake.add_mailboxes(SPACE, 1, daily_limit=10)
    camp = fake.add_campaign(SPACE, status="live", mailboxes=boxes, contacts=30, steps=["A", {"wait_time": 2 * DAY_MS}])
    assert steps(fake, camp)["days_left"] == 8
    assert listed(fake, camp)["days_left_display"] == "8 days"


@row("T14", "a campaign without contacts", "0 days, `Not started` in the list and in the steps")
def not_started(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, steps=["A"])
    for items in (listed(fake, camp), steps(fake, camp)):
        assert [items[name] for name in ("days_left", "days_left_date", "days_left_display")] == [0, "Not started", "Not started"]


@row("T15", "a campaign that no mailbox sends for", "9999 days, `Unknown` in the list and in the steps")
def unknown_end(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, steps=["A"], contacts=5)
    for items in (listed(fake, camp), steps(fake, camp)):
        assert [items[name] for name in ("days_left", "days_left_date", "days_left_display")] == [9999, "Unknown", "Unknown"]


@row("T16", "dates as text", "`Jan 4, 2026`, in UTC and English")
def date_text(fake: FakeService) -> None:
    camp = fake.add_campaign(SPACE, mailboxes=fake.add_mailboxes(SPACE, 1, daily_limit=40), steps=["A"], contacts=100)
    assert steps(fake, camp)["days_left_date"] == "Jan 4, 2026"


@row("T17", "the estimated end of a draft or paused campaign", "as if it were live")
def paused_end(fake: FakeService) -> None:
    boxes = fake.add_mailboxes(SPACE, 1, daily_limit=10)
    camps = [fake.add_campaign(SPACE, status=status, mailboxes=boxes, contacts=25, steps=["A"]) for status in ("draft", "paused")]
    assert {steps(fake, camp)["days_left"] for camp in camps} == {3}


@row("T18", "relative times", "`just now`, `5 minutes ago`, `1 day ago`, `3 months ago`, `Never`")
def relative(fake: FakeService) -> None:
    passed = (30, 5 * 60, 40 * 3600, 95 * DAY)
    camps = [fake.add_campaign(SPACE, last_activity=START - seconds) for seconds in passed] + [fake.add_campaign(SPACE)]
    texts = [listed(fake, camp)["last_activity"] for camp in camps]
    assert texts == ["just now", "5 minutes ago", "1 day ago", "3 months ago", "Never"]


@row("T19", "statuses of campaigns, steps and mailboxes", "those that the API documentation shows; others only if seeded")
def statuses(fake: FakeService) -> None:
    seeded = fake.add_campaign(SPACE, status="archived", steps=[{"status": "stopped"}])
    assert (listed(fake, seeded)["status"], steps(fake, seeded)["data"][0]["status"]) == ("archived", "stopped")
    others = [item["status"] for item in document(page(fake, "/campaigns"))["data"] if item["id"] != seeded]
    assert set(others) <= {"draft", "live", "paused"}
    assert {box["status"] for box in document(page(fake, "/mailboxes"))["data"]} == {"active"}


@row("T19", "changes of status", "any to any, only by `set_campaign`; only `live` campaigns, steps and templates send")
def transitions(fake: FakeService) -> None:
    for status in ("draft", "paused", "archived"):
        assert sent_after(small_world(), 3, status=status) == [0, 0]
    assert sent_after(small_world(), 3, steps=[{"status": "stopped"}, "A"]) == [0, 0]
    camp = fake.add_campaign(SPACE, mailboxes=fake.add_mailboxes(SPACE, 1), steps=["A"], contacts=4)
    for status, sent in (("paused", 0), ("live", 4), ("draft", 4), ("paused", 4)):
        fake.set_campaign(camp, status=status)
        fake.advance(days=1)
        assert (listed(fake, camp)["status"], steps(fake, camp)["data"][0]["already_sent"]) == (status, sent)


@row("B2", "time windows of a mailbox's counts", "`sent_today` covers the UTC day; the windows of 30 and 90 days include today")
def windows(fake: FakeService) -> None:
    box = fake.add_mailbox(SPACE, sent_today=7, sent_30days=7, sent_90days=7)
    seen = []
    for days in (1, 28, 1, 60):
        fake.advance(days=days)
        found = listed(fake, box, "/mailboxes")
        seen.append([found[name] for name in ("sent_today", "sent_30days", "sent_90days")])
    assert seen == [[0, 7, 7], [0, 7, 7], [0, 0, 7], [0, 0, 0]]


@row("B3", "`opened_14days` and `bounced_30days`", "cover the e-mails sent in these days, whenever they are opened or bounce")
def cohorts(fake: FakeService) -> None:
    (box,) = fake.add_mailboxes(SPACE, 1, sent_30days=0, created_at=START)
    camp = fake.add_campaign(SPACE, status="live", mailboxes=[box], steps=["A"], rates={"open": 0, "bounce": 0})
    create(fake, campaign=camp)
    fake.sim.script("ada@acme.example", opens_after="10d")
    seen = []
    for days in (9, 2, 4):
        fake.advance(days=days)
        seen.append(listed(fake, box, "/mailboxes")["opened_14days"])
    assert seen == [0, 100, 0]


@row("B4", "`campaigns` of a mailbox", "all that use it, whatever their status")
def campaigns_of_a_mailbox(fake: FakeService) -> None:
    box = fake.add_mailbox(SPACE)
    for status in ("draft", "live", "paused"):
        fake.add_campaign(SPACE, status=status, mailboxes=[box])
    assert listed(fake, box, "/mailboxes")["campaigns"] == 3


@row("B5", "`daily_limit`", "shared by all campaigns of the mailbox")
def one_limit(fake: FakeService) -> None:
    boxes = fake.add_mailboxes(SPACE, 1, daily_limit=10, sent_today=0)
    camps = [fake.add_campaign(SPACE, status="live", mailboxes=boxes, steps=["A"], contacts=20) for _ in range(2)]
    fake.advance(hours=1)
    assert sum(steps(fake, camp)["data"][0]["already_sent"] for camp in camps) == 10


@row(
    "F2",
    "order of all-fields",
    "`email`, standard fields as documented, extra fields as seeded, custom fields by number",
)
def order_of_fields(fake: FakeService) -> None:
    space = fake.add_workspace(custom_fields={"custom_10": "J", "custom_2": "B"}, extra_fields={"linkedin": "LinkedIn"})
    codes = [field["code"] for field in document(get(fake, f"/workspaces/{space}/all-fields"))["data"]]
    assert codes == ["email", *STANDARD_FIELDS, "linkedin", "custom_2", "custom_10"]


@row(
    "E2",
    "statuses of errors",
    "400 malformed, 401 and 403 keys, 404 ids, 405, 413, 422 strict validation, 429; no 5xx",
)
def statuses_of_refusals(fake: FakeService) -> None:
    refused = [
        post(fake, b"{").status,
        post(fake, creation(owner_key="key_9")).status,
        post(fake, creation(owner_key="key_2")).status,
        get(fake, "/campaigns/camp_9/steps").status,
        ask(fake, "PUT", FIELDS).status,
        post(fake, b" " * (2**20 + 1)).status,
        post(fake, creation(strict_validation=True, zip="?" * 99)).status,
    ]
    assert refused == [400, 401, 403, 404, 405, 413, 422]


@row("E3", "hints about likely mistakes", "in the header `x-fake-hint` and the request log, never in a body")
def where_hints_are(fake: FakeService) -> None:
    answer = post(fake, creation(frist_name="Ada"))
    assert "first_name" in answer.headers["x-fake-hint"]
    assert "first_name" in hints(fake)
    assert json.loads(answer.body).keys() == {"status", "id", "details"}


def test_a_fixed_interpretation_is_as_the_table_says() -> None:
    def check(rule: str, what: str, reading: str) -> None:
        TRIED[rule, what, reading](small_world())

    check_rows(TRIED, check)


def test_the_table_has_exactly_the_tested_rows() -> None:
    assert table() == list(TRIED)
