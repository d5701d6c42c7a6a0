"""The brief in every format: on a terminal, as text, Markdown, JSON and HTML."""

from __future__ import annotations

import io
import json
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from rich.console import Console
from support.audit_reports import AT, BRIEFS, finding, fleet, make_report
from support.examples import WITHOUT_SHRINKING, scaled
from support.pages import Page

from outreach_async.audit import Report, Severity
from outreach_async.audit.reports import StyledReport, schema, write
from outreach_async.audit.reports.brief import Brief, CampaignBrief, ChangeCounts, WorkspaceBrief, build_brief

DAY = 86_400.0


def brief_of(*findings: Any, since: Report | None = None, **about: Any) -> Brief:
    return build_brief(make_report(findings, **about), since)


def earlier(*findings: Any, **about: Any) -> Report:
    return make_report(findings, at=AT - DAY, **about)


def lines_of(brief: Brief) -> list[str]:
    return write(brief, "terminal").splitlines()


def test_an_empty_brief_has_only_a_head() -> None:
    assert lines_of(brief_of())[-1] == "There is no earlier brief to compare with."
    assert lines_of(brief_of(since=earlier())) == [
        "Outreach brief: 1 mailbox, 0 domains, 1 workspace. Score 80 of 100.",
        "No problems found.",
        "Mailboxes: 0 to stop, 0 to fix, 0 to watch, 1 with nothing to do.",
        "Findings: 0 critical, 0 errors, 0 warnings, 0 notes. Audited 2026-03-02 08:00",
        "UTC.",
        "Since 2026-03-01 08:00 UTC (24 hours): 0 findings, 0 before; 0 new, 0 resolved,",
        "0 unchanged.",
    ]


def test_a_changed_score_is_shown_with_the_earlier_one() -> None:
    scores = attrs.evolve(make_report().scores, overall=62.5)
    unknown = attrs.evolve(make_report().scores, overall=None)
    assert lines_of(brief_of(since=earlier(scores=scores)))[0].endswith("Score 80 of 100, was 62.5.")
    assert lines_of(brief_of(since=earlier(), scores=unknown))[0].endswith("No score.")


def test_news_are_marked_and_located() -> None:
    old, other = finding("OA110"), finding("OA101")
    new = finding("OA110", mailbox="mailbox_9", email="zoe@new.example", domain="new.example")
    text = write(brief_of(old, new, other, finding("OA102"), since=earlier(old, other)), "terminal")

    assert "On blacklists: 2 mailboxes on 2 domains (1 new)\n" in text
    assert "            New: new.example (1)\n" in text
    assert "No DKIM: 1 mailbox on one.example (new)\n" in text
    assert "No SPF: 1 mailbox on one.example\n" in text


def test_only_the_most_urgent_tasks_have_their_remedy() -> None:
    errors = [finding(rule) for rule in ("OA101", "OA102", "OA103", "OA110", "OA130", "OA141")]
    mild = ("OA131", "OA132", "OA140", "OA150", "OA170", "OA172", "OA205", "OA206", "OA211")
    lines = lines_of(brief_of(*errors, *(finding(rule, severity=Severity.WARNING) for rule in mild)))

    urgent, rest = lines[: lines.index("LESS URGENT")], lines[lines.index("LESS URGENT") + 1 :]
    assert sum(line.startswith("  ERROR ") for line in urgent) == 5
    assert len(urgent) > 15
    assert [line.split()[0] for line in rest if " OA" in line] == ["ERROR", *["WARNING"] * 7]
    assert rest[-1] == "  and 2 more tasks"
    alone = lines_of(brief_of(finding("OA132", severity=Severity.WARNING)))
    assert "LESS URGENT" not in alone
    assert "            Lower the daily limit" in "\n".join(alone)


def test_notes_are_only_counted() -> None:
    assert lines_of(brief_of(finding("OA160"), finding("OA133")))[-1] == "2 notes. The audit lists every finding."


def test_resolved_tasks_are_listed_and_resolved_notes_are_counted() -> None:
    rules = ("OA101", "OA102", "OA103", "OA110", "OA130", "OA141")
    lines = lines_of(brief_of(since=earlier(*map(finding, rules), finding("OA160"))))
    section = lines[lines.index("RESOLVED") + 1 :]
    assert "  ERROR     OA101  No SPF: 1 mailbox on one.example" in section
    assert section[5:] == ["  and 1 more task", "  and 1 note"]


def space(id_: str, **about: Any) -> WorkspaceBrief:
    values = {"mailboxes": 1, "score": 90.0, "score_before": None, "error": None, "since": AT - DAY}
    return WorkspaceBrief(id=id_, **(values | about))


def gaps(*spaces: WorkspaceBrief, **about: Any) -> list[str]:
    brief = attrs.evolve(brief_of(since=earlier()), workspaces=list(spaces), **about)
    lines = lines_of(brief)
    return lines[lines.index("MISSING OR OUT OF DATE") + 1 :] if "MISSING OR OUT OF DATE" in lines else []


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({"error": "refused"}, "  space_1: refused (last read 2026-03-01 08:00 UTC)"),
        ({"error": "refused", "since": None}, "  space_1: refused (never read before)"),
        ({"since": None}, "  space_1: is covered for the first time."),
        ({"since": AT - 3 * DAY}, "  space_1: is compared with an older audit (2026-02-27 08:00 UTC)."),
    ],
)
def test_a_workspace_that_is_not_up_to_date_is_named(about: dict[str, Any], line: str) -> None:
    assert gaps(space("space_1", **about)) == [line]


def test_dropped_workspaces_and_unchecked_findings_are_gaps_and_five_are_named() -> None:
    changes = ChangeCounts(before=3, after=0, new=0, unchanged=0, resolved=0, not_judged=3)

    assert gaps(space("space_1"), dropped=["space_2"], changes=changes) == [
        "  space_2: is no longer covered.",
        "  3 earlier findings could not be checked again.",
    ]
    assert gaps(space("space_1")) == []
    lines = gaps(*(space(f"space_{at}", since=None) for at in range(8)))
    assert (len(lines), lines[-1]) == (6, "  and 3 more workspaces")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0 minutes"),
        (59, "1 minute"),
        (7_199, "120 minutes"),
        (7_200, "2 hours"),
        (86_400, "24 hours"),
        (172_800, "2 days"),
        (8 * 86_400, "8 days"),
    ],
)
def test_a_span_is_in_minutes_hours_or_days(seconds: float, text: str) -> None:
    assert f" UTC ({text}): " in build_brief(make_report(), make_report(at=AT - seconds)).changed


@given(BRIEFS, st.integers(20, 120))
@settings(max_examples=scaled(15), phases=WITHOUT_SHRINKING)
def test_a_terminal_of_any_width_shows_the_words_of_the_text(brief: Brief, width: int) -> None:
    page = io.StringIO()
    Console(file=page, width=width, color_system=None).print(StyledReport(brief))
    assert "".join(page.getvalue().split()).casefold() == "".join(write(brief, "terminal").split()).casefold()


@pytest.mark.thorough
def test_the_page_shows_tasks_news_gaps_and_what_is_resolved() -> None:
    brief = build_brief(fleet(300, sick=0.5), attrs.evolve(fleet(300, sick=0.5, seed=2), at=AT - DAY))
    words = Page(write(brief, "html")).text

    assert "What to do, most urgent first" in words
    assert brief.changes is not None
    assert f"{brief.changes.new:,} new, {brief.changes.resolved:,} resolved" in words
    assert all(task.title in words for task in (*brief.tasks, *brief.resolved[:8]))
    assert "Missing or out of date" not in words
    assert "is no longer covered." in Page(write(attrs.evolve(brief, dropped=["space_9"]), "html")).text


@pytest.mark.thorough
@given(BRIEFS)
@settings(max_examples=scaled(20), phases=WITHOUT_SHRINKING)
def test_every_brief_conforms_to_the_schema(brief: Brief) -> None:
    Draft202012Validator(schema(Brief)).validate(json.loads(write(brief, "json")))


def campaign(**about: Any) -> CampaignBrief:
    values: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(CampaignBrief)) | {
        "id": "camp_1", "name": "Spring", "workspace": "space_1", "status": "live", "status_before": "live",
        "contacts": 100, "sent": 80, "replies_num": 8, "bounces_num": 2, "left_to_send": 20,
        "new_contacts": 0, "new_sent": 15, "new_replies": 1, "new_bounces": 0, "end": AT + 9 * DAY, "end_before": AT + 9 * DAY,
    }  # fmt: skip
    return CampaignBrief(**(values | about))


def section(*campaigns: CampaignBrief, **about: Any) -> list[str]:
    brief = attrs.evolve(brief_of(since=earlier()), campaigns=list(campaigns), **about)
    lines = lines_of(brief)
    return " ".join(lines[lines.index("CAMPAIGNS") + 1 :]).replace("     ", " ").split("   ")


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({}, "Spring: 15 sent, 1 reply; ends 2026-03-11"),
        ({"new_replies": 2, "new_bounces": 3, "new_contacts": 1}, "Spring: 15 sent, 2 replies, 3 bounces, 1 new contact; ends"),
        ({"end": AT + 12 * DAY}, "; ends 2026-03-14, 3 days later"),
        ({"end": AT + 8 * DAY}, "; ends 2026-03-10, 1 day earlier"),
        ({"end_before": None}, "; ends 2026-03-11"),
        ({"end": None}, "Spring: 15 sent, 1 reply"),
        ({"left_to_send": 0}, "; all sent"),
        ({"new_sent": 0, "new_replies": 0}, "Spring: nothing sent; ends"),
        ({"new_sent": None, "new_replies": None}, "Spring: sent unknown; ends"),
        ({"status": "paused"}, "Spring (paused, was live): 15 sent, 1 reply"),
        ({"status": "paused", "status_before": "paused"}, "Spring (paused): 15 sent, 1 reply"),
        ({"name": ""}, "camp_1: 15 sent, 1 reply"),
        ({"name": "A" * 100_000}, f"{'A' * 60}...: 15 sent, 1 reply"),
        ({"status_before": None}, "Spring: 80 sent, 8 replies, 2 bounces, 100 contacts so far; ends"),
    ],
)
def test_a_campaign_is_one_line(about: dict[str, Any], line: str) -> None:
    text = " ".join(" ".join(section(campaign(**about))).split())
    assert line in text
    assert "later" not in text or "later" in line


def test_the_sums_over_campaigns_come_first() -> None:
    assert "In 24 hours: 30 e-mails sent, 1 reply, 0 interested, 0 bounces, 1 new contact." in " ".join(
        " ".join(section(campaign(), campaign(id="camp_2", new_replies=None, new_contacts=1))).split()
    )


@pytest.mark.parametrize(
    ("about", "spaces"), [({"new_sent": None}, []), ({}, [space("space_1", error="could not be read: 503")])]
)
def test_sums_that_miss_something_are_marked_as_incomplete(about: dict[str, Any], spaces: list[WorkspaceBrief]) -> None:
    text = " ".join(" ".join(section(campaign(id="camp_2"), campaign(**about), workspaces=spaces)).split())
    assert text.startswith("In 24 hours (incomplete data): ")


def test_without_campaigns_nothing_is_said_about_them() -> None:
    brief = attrs.evolve(brief_of(since=earlier()), campaigns=[])
    assert "CAMPAIGNS" not in lines_of(brief)
    assert "e-mails sent" not in write(brief, "terminal") + Page(write(brief, "html")).text


def test_campaigns_that_do_nothing_are_only_counted() -> None:
    nothing = dict.fromkeys(("new_sent", "new_replies", "new_interested", "new_bounces", "new_contacts", "left_to_send"), 0)
    quiet = [campaign(name="Quiet", **nothing), campaign(name="Quiet", **nothing, status="draft", status_before="draft")]
    assert "Quiet" not in " ".join(section(campaign(), *quiet))
    assert "2 more campaigns send nothing." in " ".join(section(campaign(), *quiet))
    assert "1 more campaign sends nothing." in " ".join(section(campaign(), quiet[0]))


def test_ten_campaigns_are_shown_below_their_workspaces() -> None:
    many = [campaign(name=f"Number {at}", workspace=f"space_{at // 6}") for at in range(12)]
    text = " ".join(section(*many, workspaces=[space("space_0"), space("space_1")]))
    assert text.count("Number ") == 10
    assert text.index("space_0") < text.index("Number 0:") < text.index("space_1") < text.index("Number 6:")
    assert "2 more campaigns." in text


def test_the_page_has_the_other_active_campaigns_on_demand() -> None:
    many = [campaign(name=f"Number {at}", new_sent=at + 1) for at in range(12)]
    text = Page(write(attrs.evolve(brief_of(since=earlier()), campaigns=many), "html")).text
    assert "2 more campaigns." in text
    assert "More campaigns Number 10 : 11 sent, 1 reply; ends 2026-03-11 Number 11 : 12 sent" in text


def test_less_urgent_tasks_have_their_remedy_on_demand() -> None:
    rules = ("OA101", "OA131", "OA132", "OA140", "OA150", "OA170", "OA172", "OA205", "OA206", "OA211")
    brief = brief_of(*(finding(rule, severity=Severity.WARNING if rule != "OA101" else Severity.ERROR) for rule in rules))
    text = Page(write(brief, "html")).text
    assert all(task.title in text and task.remedy.partition("`")[0].strip() in text for task in brief.tasks)
    assert "1 more task warning OA" in text


def test_the_first_brief_has_no_sums() -> None:
    brief = attrs.evolve(brief_of(), campaigns=[campaign(status_before=None)])
    assert "In " not in write(brief, "terminal")
    assert "e-mails sent" not in Page(write(brief, "html")).text


def test_the_page_lists_campaigns() -> None:
    brief = attrs.evolve(brief_of(since=earlier()), campaigns=[campaign(), campaign(name="Early", status_before=None)])
    shown = Page(write(brief, "html"))

    assert "Spring : 15 sent, 1 reply; ends 2026-03-11" in shown.text
    assert "Early : 80 sent, 8 replies, 2 bounces, 100 contacts so far; ends 2026-03-11" in shown.text
    assert "30 e-mails sent" in shown.text
    assert "Mailbox audit" not in shown.text
