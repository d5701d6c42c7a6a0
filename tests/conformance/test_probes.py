"""The interior of the conformance checks: probes and rules on unusual responses, the sender of requests, and drifts."""

from __future__ import annotations

import json
import math
import re
from argparse import Namespace
from collections.abc import Callable, Sequence
from email.utils import formatdate
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.calibration import (
    DRAFT,
    KEY,
    MANY,
    READER,
    SPACE,
    WRITER,
    Answering,
    altered,
    connected,
    document_changed,
    measure,
    measured,
    service,
    world,
)
from support.examples import scaled
from support.time import virtual_time

from outreach_async import Progress, Request, Response
from outreach_async.conformance import RULES, Access, Breach
from outreach_async.conformance import _probes as probes
from outreach_async.conformance._calibration import (
    MAX_CONTACTS,
    build_access,
    build_calibration,
    describe_run,
    find_drifts,
    measure_service,
    merge_earlier,
)
from outreach_async.conformance._probes import HttpExchange, InconclusiveError, KnobFinding, Sender, observed, unobserved
from outreach_async.conformance._rules import find_breaches
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake import Behaviour, FakeTransport, HeaderAuth, RateLimit, faults
from outreach_async.fake.behaviour import KNOB_NAMES, load_behaviour, load_knob_values


def answer(document: Any = None, status: int = 200, **headers: str) -> Response:
    body = b"" if document is None else json.dumps(document).encode()
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, body)


def page(count: int, total: int, current: int = 1, first: int = 0) -> Response:
    items = [{"id": f"mailbox_{first + place}"} for place in range(count)]
    return answer({"status": "ok", "data": items, "total_found": total, "current_page": current, "total_pages": total})


def run_probe(probe: probes.Probe, access: Access, *about: Any, answers: Sequence[Response]) -> KnobFinding:
    """Run a probe of a service that gives answers in order and then repeats the last one."""
    waiting = list(answers)
    return anyio.run(probe, connected(access, lambda _: waiting.pop(0) if len(waiting) > 1 else waiting[0]), *about)


REFUSED = answer({"message": "no"}, 400)
FIELDS = Request("GET", "/workspaces/space_1/all-fields")
REASON = "the service refused the request with 400"


# Responses.


@pytest.mark.parametrize(
    ("given_response", "verdict"),
    [
        (answer({"status": "ok"}), True),
        (answer({"status": "overwriten"}, 201), True),
        (answer({"status": "error"}), False),
        (answer({"status": "failed", "error": "no"}), False),
        (answer(None, 404), False),
        (answer({"status": "ok"}, 409), False),
    ],
)
def test_success_is_recognised_under_any_status(given_response: Response, verdict: bool) -> None:
    assert probes.is_accepted(given_response) is verdict


@pytest.mark.parametrize(
    "given_response",
    [
        answer([]),
        answer(),
        answer({}),
        answer({"status": "created"}, 201),
        answer({"status": ["ok"]}),
        answer({"status": "ok"}, 302),
        answer({}, 500),
        answer({}, 429),
        answer({}, retry_after="5"),
    ],
)
def test_a_response_that_is_neither_success_nor_refusal_decides_nothing(given_response: Response) -> None:
    with pytest.raises(InconclusiveError):
        probes.is_accepted(given_response)


@pytest.mark.parametrize("value", [None, True, "1", 1.5, math.nan, math.inf])
def test_a_count_that_is_not_an_integer_decides_nothing(value: Any) -> None:
    with pytest.raises(InconclusiveError, match="total_found is not a whole number"):
        probes.require_integer({"total_found": value}, "total_found")


def test_a_response_is_shown_short_printable_and_without_secrets() -> None:
    access = connected(Access(SPACE, KEY, headers={"authorization": "Bearer tok-123456"}), lambda _: REFUSED)
    shown = access.format_response(Response(500, {}, f"{KEY}\n\x1b[31m tok-123456 {'x' * 900}".encode()))
    assert shown.startswith("500 *** [31m *** xxx")
    assert shown.endswith("...")
    assert access.format_response(Response(204)) == "204"
    assert "tok-123456" not in repr(access)
    assert KEY not in repr(access)


def test_writing_needs_a_key_and_permission() -> None:
    with pytest.raises(InvalidRequest, match="owner_key: expected an API key"):
        Access(SPACE, writes=True)
    with pytest.raises(InvalidRequest, match="campaign: needs writes=True"):
        Access(SPACE, KEY, campaign="camp_1")


# Lists.


@pytest.mark.parametrize(
    ("answers", "possible"),
    [
        ([page(1, 9, 0), page(1, 9, 1, first=1)], (0,)),
        ([page(1, 9, 0), page(1, 9, 1)], (1,)),  # page 0 is a copy of page 1
        ([page(1, 1, 0), page(1, 1, 0)], (0,)),  # the last page again
        ([page(1, 1, 0), REFUSED], (0,)),
        ([page(0, 0, 0), page(0, 0, 1)], (0,)),
        ([page(1, 9, 1), page(1, 9, 1)], (1,)),
        ([REFUSED, page(1, 9)], (1,)),
    ],
)
def test_the_first_page_is_determined_from_pages_0_and_1(answers: list[Response], possible: tuple[int, ...]) -> None:
    assert run_probe(probes.probe_first_page, READER, answers=answers).possible == possible


def test_mixed_responses_to_bad_numbers_match_no_value() -> None:
    found = run_probe(probes.probe_bad_number, READER, 1, answers=[page(1, 9), REFUSED])
    assert found.possible == ()
    assert found.explanation.startswith("served: display=abc; refused: display=0,")


@pytest.mark.parametrize("status", ["created", "Added", None, 5])
def test_an_unknown_status_of_a_creation_leaves_the_knobs_unobserved(status: Any) -> None:
    def change(document: Any) -> None:
        if document.get("id"):
            document["status"] = status

    found = measured(altered(document_changed(change)), WRITER).findings
    assert {found[knob].possible for knob in ("created_status", "owner_key", "unknown_body", "missing_campaign")} == {()}
    assert found["owner_key"].explanation == f"the service responded with 201 and the unknown status {status!r}"


def test_an_unknown_status_in_later_creations_is_no_refusal() -> None:
    def change(request: Request, response: Response) -> Response:
        return answer({"status": "queued"}) if b"unknown-field" in request.body else response

    found = measured(altered(change), WRITER).findings["unknown_body"]
    assert found == unobserved("the service responded with 200 and the unknown status 'queued'")


def unknown_workspace_served(**answers: Response) -> KnobFinding:
    """Measure a service that gives these responses to requests for an unknown workspace, and else those of the fake."""

    def change(request: Request, response: Response) -> Response:
        kinds = [kind for kind in answers if kind in request.target and "space_conformance" in request.target]
        return answers[kinds[0]] if kinds else response

    return measured(altered(change), READER).findings["unknown_workspace"]


def test_lists_of_an_unknown_workspace_are_refused_empty_or_match_no_value() -> None:
    assert unknown_workspace_served() == observed("reject", "for an unknown workspace, campaigns, mailboxes, fields: refused")
    empty = answer({"status": "ok", "data": []})
    every = {"campaigns": empty, "mailboxes": empty, "fields": empty}
    assert unknown_workspace_served(**every) == observed("empty", "for an unknown workspace, campaigns, mailboxes, fields: empty")
    mixed = unknown_workspace_served(mailboxes=empty)
    assert mixed.possible == ()
    assert mixed.explanation.startswith(
        "for an unknown workspace, campaigns, fields: refused; mailboxes: empty; no value of this"
    )
    served = answer({"status": "ok", "data": [{"id": "x"}]})
    assert unknown_workspace_served(**dict.fromkeys(every, served)).possible == ()
    assert unknown_workspace_served(fields=answer({}, 500)) == unobserved("the service responded with 500")


def test_lists_that_cannot_be_read_tell_nothing_about_an_unknown_workspace() -> None:
    found = measured(service(Behaviour(auth=HeaderAuth("x-token", ""))), READER).findings["unknown_workspace"]
    assert found == unobserved("the lists of the workspace could not be read")


def test_a_maximum_below_the_documented_one_is_a_clamp() -> None:
    assert run_probe(probes.probe_over_max, READER, 1, answers=[page(100, 3000)]).is_only("clamp")


def test_different_limits_for_campaigns_and_mailboxes_match_no_value() -> None:
    find_maximum = probes.probe_campaign_max_display
    clamped = run_probe(find_maximum, READER, 1, observed("reject", ""), answers=[page(5, 9)])
    assert "behaves differently" in clamped.explanation

    def at_most_3(request: Request) -> Response:
        return page(3, 3) if int(request.target.split("display=")[1].split("&")[0]) <= 3 else REFUSED

    refused = anyio.run(find_maximum, connected(READER, at_most_3), 1, observed("clamp", ""))
    assert (refused.possible, refused.explanation) == (
        (),
        (
            "campaigns, display=3: served, but display=4 refused; "
            "for mailboxes, the service behaves differently, but the knob over_max applies to both lists"
        ),
    )
    assert anyio.run(find_maximum, connected(READER, at_most_3), 1, unobserved("")).is_only(3)


@pytest.mark.parametrize(("response", "why"), [(REFUSED, "refused every value of display"), (page(0, 9), "none of 9 served")])
def test_campaigns_that_are_never_served_have_no_maximum(response: Response, why: str) -> None:
    with pytest.raises(InconclusiveError, match=why):
        run_probe(probes.probe_campaign_max_display, READER, 1, observed("reject", ""), answers=[response])


def test_a_cut_list_of_campaigns_decides_what_too_few_mailboxes_could_not() -> None:
    over = KnobFinding(("clamp", "serve"), "too few")
    assert probes.refine_over_max(over, observed(5, "cut")).is_only("clamp")
    assert probes.refine_over_max(over, observed(None, "all")) == over
    assert probes.refine_over_max(observed("reject", ""), observed(5, "")).is_only("reject")


@pytest.mark.parametrize(
    ("given_response", "possible"),
    [
        (answer({"code": 5}, 400), ()),
        (Response(400, {}, b"<html>"), ("html",)),
        (Response(400, {"content-type": "Text/HTML; charset=x"}, b"oh"), ("html",)),
        (Response(400, {"content-type": "image/png"}, b"\x89"), ()),
        (answer({"error": {"code": 1}}), ("200_with_error",)),
    ],
)
def test_the_error_renderer_is_determined_from_the_form_of_a_refusal(given_response: Response, possible: tuple[str, ...]) -> None:
    assert probes.interpret_refusal(given_response).possible == possible


def test_without_a_refusal_the_error_renderer_is_unobserved() -> None:
    assert run_probe(probes.probe_error_renderer, READER, answers=[page(0, 0)]).explanation == "no request was refused"


def test_a_header_that_is_not_needed_is_not_a_credential() -> None:
    access = attrs.evolve(READER, headers={"x-note": "hello"})
    assert run_probe(probes.probe_auth, access, answers=[answer({"status": "ok"})]).is_only(None)


# Rows.


def survey(
    campaigns: list[Any] | None = None, mailboxes: list[Any] | None = None, templates: list[Any] | None = None
) -> probes.WorkspaceSurvey:
    def exchange_with(data: list[Any]) -> HttpExchange:
        return HttpExchange(FIELDS, answer({"status": "ok", "data": data}))

    def walk(data: list[Any] | None) -> probes.PageSequence:
        return probes.PageSequence((probes.SampledPage(exchange_with(data or []), 1, 0, 10, 10),))

    steps = {"c": exchange_with([{"templates": templates}])}
    pages = walk(campaigns)
    after = pages.pages[0].exchange
    return probes.WorkspaceSurvey(exchange_with([]), pages, walk(mailboxes), (walk([]), walk([])), steps, after, observed(1, ""))


@pytest.mark.parametrize(
    ("rates", "possible"),
    [
        ([], ()),
        ([1.5, 2.25], ()),
        ([1] * 12, ("int_when_whole",)),
        ([1.0] * 12, ("float",)),
        ([1] * 3, ("int_when_whole", "mixed")),
        ([1.0] * 3, ("float", "mixed")),
        ([1, 2.0], ("mixed",)),
        ([True, "1", None], ()),
    ],
)
def test_number_formatting_is_determined_from_whole_percentages(rates: list[Any], possible: tuple[str, ...]) -> None:
    assert probes.measure_numbers(survey(mailboxes=[{"avg_open_rate": rate} for rate in rates])).possible == possible


@pytest.mark.parametrize(
    ("rates", "possible"),
    [
        ([1.25], (2,)),
        ([1.125], ()),
        ([1 + place for place in range(12)], (0,)),
        ([1.5 + place for place in range(12)], (1,)),
        ([1.5] * 12, (2, 1)),
        ([1], ()),
        ([0, 100, *range(1, 12)], ()),
    ],
)
def test_decimal_places_are_determined_from_many_different_values(rates: list[Any], possible: tuple[int, ...]) -> None:
    found = probes.measure_percent_digits(survey(templates=[{"opened": rate} for rate in rates]))
    assert found.possible == possible


@pytest.mark.parametrize(
    ("dates", "possible"),
    [
        ([], ()),
        (["Complete"], ()),
        ([1] * 12, ("timestamp",)),
        (["Jan 4, 2026"] * 12, ("text",)),
        ([1], ("timestamp", "mixed")),
        (["Jan 4, 2026"], ("text", "mixed")),
        ([1, "Jan 4, 2026"], ("mixed",)),
        ([1] * 12 + ["Not started", "Unknown", "Complete"], ("timestamp",)),
        (["Unknown"] * 12, ()),
        ([None], ()),
    ],
)
def test_the_date_format_is_determined_from_the_dates(dates: list[Any], possible: tuple[str, ...]) -> None:
    assert probes.measure_list_date(survey([{"days_left_date": date} for date in dates])).possible == possible


@pytest.mark.parametrize(
    ("items", "possible"),
    [
        ([(1, "3 days ago"), (2, "1 day ago")], ("oldest",)),
        ([(2, "3 days ago"), (1, "1 day ago")], ("newest",)),
        ([(2, "an hour ago"), (1, "3 weeks ago"), (3, "Never")], ("last_activity",)),
        ([(2, "just now"), (1, "1 day ago")], ("newest", "last_activity")),
        ([(2, "1 day ago"), (1, "just now"), (3, "Never")], ()),
        ([(1, "voorgisteren"), (2, "gisteren")], ("oldest",)),
        ([(1, None), (2, 5)], ("oldest",)),
        ([(1, "just now")], ()),
    ],
)
def test_the_order_is_determined_from_creation_and_activity(items: list[tuple[int, Any]], possible: tuple[str, ...]) -> None:
    boxes = [{"created_at": created, "last_activity": activity} for created, activity in items]
    assert probes.measure_order(survey(mailboxes=boxes)).possible == possible


# Creations, and any responses.


def added(outcome: str = "added", status: int = 200) -> Response:
    return answer({"status": outcome, "id": None, "details": None}, status)


def trial(**statuses: int) -> probes.TrialCreations:
    return probes.TrialCreations({name: HttpExchange(FIELDS, added(name, status)) for name, status in statuses.items()})


def test_statuses_that_match_no_value_are_unobserved() -> None:
    assert probes.measure_created_status(trial(added=202)).possible == ()
    assert probes.measure_created_status(trial(skipped=200)).possible == ()
    assert probes.measure_created_status(trial(added=201, skipped=201)).possible == ({"added": 201, "skipped": 201},)


def test_a_creation_without_a_response_says_so() -> None:
    assert probes.TrialCreations({"added": HttpExchange(FIELDS, error="lost")}).failure == "lost"


def by_email(outcomes: Callable[[str], str]) -> Callable[[Request], Response]:
    return lambda request: added(outcomes(json.loads(request.body)["email"]))


def test_folding_only_the_case_of_the_domain_matches_no_value() -> None:
    service = by_email(lambda email: "added" if email.endswith("PLE") or email[0] == "s" else "skipped")
    assert anyio.run(probes.probe_email_key, connected(WRITER, service)).possible == ()


def test_an_existing_address_decides_nothing() -> None:
    with pytest.raises(InconclusiveError, match="a contact with a new address was not added"):
        run_probe(probes.probe_email_key, WRITER, answers=[added("skipped")])


def test_a_missing_and_an_empty_campaign_must_be_treated_alike() -> None:
    left_out, empty = (
        run_probe(probes.probe_missing_campaign, WRITER, answers=pair) for pair in ((added(), REFUSED), (REFUSED, added()))
    )
    assert (left_out.possible, empty.possible) == ((), ())
    assert "without the key campaign was accepted; " in left_out.explanation
    assert "with an empty campaign was accepted; " in empty.explanation


def test_values_refused_anyway_reveal_nothing_about_strict_validation() -> None:
    assert "even without strict validation" in run_probe(probes.probe_strict_fields, WRITER, answers=[REFUSED]).explanation


def test_without_the_fields_of_the_workspace_no_custom_code_is_unknown() -> None:
    lost = attrs.evolve(survey(), fields=HttpExchange(FIELDS, error="lost"))
    assert "could not be read" in run_probe(probes.probe_unknown_custom, WRITER, lost, answers=[added()]).explanation


def changed(path: str, change: Callable[[Any], None]) -> dict[str, KnobFinding]:
    apply = document_changed(change)
    wrong = altered(lambda request, response: apply(request, response) if path in request.target else response)
    return dict(measured(wrong, WRITER).findings)


def test_a_campaign_whose_counts_do_not_change_reveals_nothing_about_joining() -> None:
    def still(document: Any) -> None:
        for step in document.get("data", ()):
            step["out_of"] = 7

    found = changed("camp_draft/steps", still)
    assert found["skip_enrols"].explanation == found["reenrol"].explanation
    assert "7 contacts at first, 7 after a create request with the campaign" in found["reenrol"].explanation


def test_a_contact_refused_with_a_campaign_reveals_nothing_about_joining() -> None:
    def refused(request: Request, response: Response) -> Response:
        return REFUSED if b"guest" in request.body and b"camp_draft" in request.body else response

    found = measured(altered(refused), WRITER)
    assert found.findings["skip_enrols"].explanation == found.findings["reenrol"].explanation == REASON
    assert found.membership is not None


def test_a_count_that_jumps_matches_no_value() -> None:
    counts = iter([1, 1, 2, 2, 9])

    def jump(document: Any) -> None:
        document["data"][0]["out_of"] = next(counts)

    how = "a create request with the campaign was skipped; the campaign had 2 contacts before it, and 9 after it"
    assert changed("camp_draft/steps", jump)["skip_enrols"].explanation == how


def test_a_campaign_is_looked_for_on_a_bounded_number_of_pages() -> None:
    def endless(document: Any) -> None:
        if isinstance(document.get("data"), list):
            document.update(data=[{"id": "camp_other"}], total_pages=10**9)

    found = changed("/campaigns?", endless)
    assert found["skip_enrols"].explanation == "the campaign was not found in the workspace's list of campaigns"


def test_a_refused_list_reveals_nothing_about_paging() -> None:
    wrong = altered(lambda request, response: REFUSED if "/mailboxes" in request.target else response)
    found = measured(wrong, READER).findings
    assert found["past_end"] == found["over_max"] == found["bad_number"]
    assert found["past_end"].explanation == "the list could not be read"
    assert found["first_page"].explanation == REASON
    assert found["list_date"].is_observed


def test_reasons_contain_no_secret() -> None:
    wrong = altered(lambda request, response: answer({KEY: 1}, 400) if "conformance" in request.target else response)
    found = measured(wrong, WRITER).findings["error_renderer"]
    body = "the body of an error response with status 400"
    assert found.explanation == f"{body} is a JSON object with ***; no value of this knob matches this behaviour"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("ok"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
NAMES = "id status code searchable created last_activity days_left_date opens_num steps order type out_of templates sent opened"
items = st.dictionaries(st.sampled_from([*NAMES.split(), "test_letter"]), values | st.just("camp_draft"), max_size=6)
documents = values | st.fixed_dictionaries(
    {"status": st.sampled_from(["ok", "added", "skipped"]) | values},
    optional={
        "data": st.lists(items, max_size=3) | values,
        "total_found": st.integers(0, 9) | values,
        "total_pages": st.integers(0, 9) | values,
        "current_page": st.integers(0, 9) | values,
        "error": values,
    },
)
anything = st.builds(
    Response,
    st.sampled_from([200, 200, 200, 201, 302, 400, 404, 429, 500]),
    st.dictionaries(st.sampled_from(["content-type", "www-authenticate"]), st.sampled_from(["", "text/html", "Bearer x"])),
    documents.map(lambda document: json.dumps(document).encode()) | st.binary(max_size=9),
)


@pytest.mark.thorough
@settings(max_examples=scaled(30))
@given(st.lists(anything, min_size=1, max_size=12))
def test_a_run_ends_whatever_the_service_responds(answers: list[Response]) -> None:
    turns = cycle(answers)
    found = measured(Answering(lambda _: next(turns)), WRITER)
    known = build_calibration(found.findings)
    assert set(known.reasons) == set(KNOB_NAMES)
    assert known.to_toml()
    for rule in RULES:
        assert all(map(str, find_breaches(rule, found) or ()))


# Rules.

BY_ID = {rule.id: rule for rule in RULES}


def broken(change: Callable[[Request, Response], Response], *rules: str) -> list[Breach]:
    found = measured(altered(change), WRITER)
    return [breach for rule in rules or BY_ID for breach in find_breaches(BY_ID[rule], found) or ()]


@pytest.mark.thorough
def test_every_documented_rule_holds_in_a_large_workspace() -> None:
    found = measure(snapshot=world(MANY, 120))
    assert {rule.id: find_breaches(rule, found) for rule in RULES} == {rule: [] for rule in BY_ID}


def test_a_rule_without_observations_is_not_judged() -> None:
    fake = service()
    fake.reset()
    fake.add_workspace(SPACE)
    found = measure(access=attrs.evolve(WRITER, owner_key="key_unknown"), snapshot=fake.snapshot())
    unjudged = {rule.id for rule in RULES if find_breaches(rule, found) is None}
    assert unjudged == {
        *("W4-age", "W4-bounces", "W4-campaign-rates", "W4-campaigns", "W4-contacts", "W4-counts", "W4-created", "W4-date"),
        *("W4-email", "W4-initials", "W4-interested", "W4-most", "W4-percentages", "W4-rates", "W4-relative", "W4-status"),
        *("W4-steps", "W4-sums", "W4-windows"),
        *("T1", "T1-type", "T1-wait", "T1-templates", "T3", "T3-sent", "T6", "T6-thread", "T7", "T7-unique"),
        *("T13", "T13-days", "T14", "T14-finished", "T14-left", "T13-date", "T13-same", "C2", "C6", "C7"),
        *("C7-listed", "C19"),
    }


def refusing(status: int, body: bytes = b"no", *, path: str = "") -> Callable[[Request, Response], Response]:
    return lambda request, response: Response(status, {}, body) if path in request.target else response


def test_a_breach_is_short_and_complete_and_contains_no_secret() -> None:
    body = b'{"you sent": "' + KEY.encode() + b'", "pad": "' + b"x" * 5000 + b'"}'
    (first, *_) = broken(refusing(500, body), "W1")
    messages = str(first)
    assert messages.splitlines() == [
        "W1: the response has the status 500",
        "  interface: each list request is answered with 200 and a JSON object",
        f"  request: GET /campaigns?workspace={SPACE}&display=1&page=1",
        f"  response: {first.answered}",
    ]
    assert first.answered.startswith('500 {"you sent": "***", "pad": "xxx')
    assert len(first.answered) < 600
    assert KEY not in messages


def test_a_missing_response_is_a_breach_with_its_reason() -> None:
    found = measured(service(), READER)
    lost = attrs.evolve(found, survey=attrs.evolve(found.survey, fields=HttpExchange(FIELDS, error="no answer: gone")))
    found_now = find_breaches(BY_ID["W1"], lost) or []
    assert [(breach.what, breach.answered) for breach in found_now] == [("the response did not arrive", "no answer: gone")]


def test_rules_that_need_writes_are_not_judged_without_them() -> None:
    found = measured(service(), READER)
    assert {rule.id for rule in RULES if rule.writes} == {rule.id for rule in RULES if find_breaches(rule, found) is None}


# The sender of requests, drifts, and the options of a run.

Answer = Callable[[], Response]


class Scripted:
    """A transport that gives answers in order and then repeats the last one."""

    secrets = ("proxy-pass",)

    def __init__(self, *answers: Response | Exception) -> None:
        self.sent_count = 0
        self._answers = list(answers)

    async def send(self, _request: Request, _progress: Progress, /) -> Response:
        await anyio.lowlevel.checkpoint()
        self.sent_count += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("value", ["1", formatdate(0, usegmt=True)], ids=["seconds", "a date gone by"])
@virtual_time
async def test_a_throttled_request_is_sent_again_after_the_retry_after(value: str) -> None:
    late, ok = Response(429, {"retry-after": value}), Response(200, {}, b"{}")
    transport = Scripted(late, late, ok)
    sender = Sender(transport, max_throttled=2)
    started_at = anyio.current_time()
    assert await sender.send(FIELDS) == ok
    assert (transport.sent_count, sender.request_count, sender.retry_after_values) == (3, 3, [value] * 2)
    assert anyio.current_time() - started_at == pytest.approx(2)


async def test_a_retry_after_longer_than_the_patience_is_not_waited_for() -> None:
    late = Response(429, {"retry-after": "61"})
    transport = Scripted(late)
    assert await Sender(transport, max_throttled=60).send(FIELDS) == late
    assert transport.sent_count == 1


async def test_a_service_that_never_responds_is_reported_without_secrets() -> None:
    failing = Scripted(TransportError("no connection through proxy-pass for " + KEY))
    found = (await measure_service(failing, WRITER)).findings
    assert found["auth"].explanation == "no response: no connection through *** for ***"
    assert not any(finding.possible for finding in found.values())
    assert failing.sent_count == 3


@virtual_time
async def test_a_response_that_does_not_arrive_is_given_up() -> None:
    fake = service()
    fake.faults.add(faults.hang())
    with pytest.raises(InconclusiveError, match="no response within 30 s"):
        await Sender(FakeTransport(fake)).send(FIELDS)


async def test_a_rate_limit_is_reported_but_not_its_limit() -> None:
    fake = service(Behaviour(rate_limit=RateLimit(5)))
    found = (await measure_service(FakeTransport(fake), READER, max_throttled=0)).findings
    assert found["rate_limit"].possible == ()
    assert found["rate_limit"].explanation.startswith("there is a rate limit, but its value is unknown: ")
    assert "Retry-After '60'" in found["rate_limit"].explanation
    assert found["past_end"].possible == ()
    found = (await measure_service(FakeTransport(service()), READER)).findings
    assert re.fullmatch("not tested: [0-9]+ requests were .* none was throttled", found["rate_limit"].explanation)


async def test_throttling_with_status_200_is_not_a_refusal() -> None:
    fake = service(Behaviour(rate_limit=RateLimit(8), error_renderer="200_with_error"))
    found = (await measure_service(FakeTransport(fake), READER, max_throttled=0)).findings
    assert not {knob: finding for knob, finding in found.items() if finding.is_only("reject")}


def findings(**possible: tuple[Any, ...]) -> dict[str, KnobFinding]:
    return {knob: KnobFinding(readings, "so") for knob, readings in possible.items()}


def test_a_knob_with_another_value_has_drifted() -> None:
    before = {"past_end": ("empty",), "over_max": ("clamp", "serve"), "strict_fields": (frozenset({"zip"}),)}
    now = findings(past_end=("clamp",), over_max=("reject",), strict_fields=("all",))
    assert find_drifts(before, now) == [
        "past_end was 'empty', is now 'clamp': so",
        "over_max was 'clamp' or 'serve', is now 'reject': so",
        "strict_fields was ['zip'], is now 'all': so",
    ]


def test_an_unobserved_or_possibly_equal_knob_has_not_drifted() -> None:
    auth = HeaderAuth("authorization", "Bearer", frozenset({"hush-hush"}))
    before = {"past_end": ("empty",), "over_max": ("clamp", "serve"), "auth": (auth,), "order": ("oldest",)}
    now = findings(past_end=(), over_max=("serve",), auth=(HeaderAuth(),), order=("newest", "oldest"), numbers=("float",))
    assert find_drifts(before, now) == []


def test_more_precise_findings_of_an_earlier_run_are_kept() -> None:
    before = {"past_end": ("empty",), "over_max": ("serve",), "order": ("oldest",), "numbers": ("float",)}
    now = findings(past_end=(), over_max=("clamp", "serve"), order=("newest",), numbers=("int_when_whole", "mixed"), list_date=())
    merged = merge_earlier(before, now)
    assert {knob: finding.possible for knob, finding in merged.items()} == {
        "past_end": ("empty",),
        "over_max": ("serve",),
        "order": ("newest",),
        "numbers": ("int_when_whole", "mixed"),
        "list_date": (),
    }
    assert merged["past_end"].explanation == "observed by an earlier run, but not now: so"
    assert merged["over_max"].explanation == "so; an earlier run was more precise"
    assert merge_earlier({"over_max": ("clamp", "serve")}, now)["over_max"] == now["over_max"]  # it stays undecided


def test_a_calibration_is_read_back_from_its_file(tmp_path: Path) -> None:
    behaviour = attrs.evolve(Behaviour.lenient(), order="newest", numbers="mixed")
    known = build_calibration(measure(behaviour).findings)
    path = tmp_path / "behaviour.toml"
    path.write_text(known.to_toml("measured\ntoday"), encoding="utf-8")
    assert load_behaviour(path) == known.behaviour
    assert load_knob_values(path) == {knob: (reading,) for knob, reading in known.observed.items()} | dict(known.undecided)
    assert path.read_text(encoding="utf-8").startswith("# measured\n# today\n\n")
    assert find_drifts(load_knob_values(path), measure(behaviour).findings) == []


def test_findings_become_a_behaviour() -> None:
    known = build_calibration(
        {
            "past_end": observed("clamp", "so"),
            "over_max": KnobFinding(("serve", "clamp"), "or"),
            "order": unobserved("why"),
        }
    )
    assert known.behaviour == Behaviour(past_end="clamp", over_max="serve")
    assert (known.observed, known.undecided) == ({"past_end": "clamp"}, {"over_max": ("serve", "clamp")})
    assert known.unseen == {"order": "why"}


def options(live: str = "https://api.example", workspace: str = SPACE, **more: Any) -> Namespace:
    rest = {"allow_writes": None, "outreach_campaign": None, "outreach_header": [], **more}
    return Namespace(outreach_live=live, outreach_workspace=workspace, **rest)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (options(""), "--outreach-live"),
        (options(workspace=""), "--outreach-workspace"),
        (options("api.example"), "base_url"),
        (options(allow_writes="space_2"), "pass the same id"),
        (options(allow_writes=SPACE), "--allow-writes: .* OUTREACH_OWNER_KEY"),
        (options(outreach_campaign=SPACE), "--outreach-campaign: .* --allow-writes"),
        (options(outreach_header=["authorization"]), "NAME=VARIABLE, got a value without '='"),
        (options(outreach_header=["authorization=NOT_SET"]), "in NAME=VARIABLE, got a variable that is not set"),
    ],
)
def test_invalid_options_are_refused(given: Namespace, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        build_access(given, {})


def test_secrets_come_from_the_environment() -> None:
    given = options(allow_writes=SPACE, outreach_header=["Authorization=TOKEN"])
    access = build_access(given, {"TOKEN": "Bearer tok-123456", "OUTREACH_OWNER_KEY": KEY})
    assert (access.owner_key, access.headers, access.writes) == (KEY, {"authorization": "Bearer tok-123456"}, True)


def test_the_plan_describes_what_will_be_done() -> None:
    assert "It creates no contacts" in describe_run(READER)
    description = describe_run(WRITER)
    assert all(word in description for word in (SPACE, DRAFT, "conformance.example", "permanent", str(MAX_CONTACTS)))
    assert KEY not in description
    assert "None joins a campaign" in describe_run(attrs.evolve(WRITER, campaign=None))


def test_a_list_of_one_campaign_a_page_is_read_at_its_end() -> None:
    campaigns = measure(Behaviour(campaign_max_display=1, over_max="reject"), READER).survey.campaign_pages
    assert (campaigns.pages[-1].index, campaigns.page_after is None) == (19, False)
