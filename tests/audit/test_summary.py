"""The summary of a report: audit and brief take every count from it, and its counts add up."""

from __future__ import annotations

import itertools
import json
from collections import Counter

import attrs
import pytest
from hypothesis import given, settings
from support.audit import REPORTS, mailboxes, reading, report
from support.audit_reports import HOSTILE_REPORTS, finding, make_report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import CATALOGUE, Report, Severity
from outreach_async.audit.reports import summarize, write
from outreach_async.audit.reports.brief import build_brief
from outreach_async.errors import StatusError

DAY = 86_400.0
WORLDS = REPORTS | HOSTILE_REPORTS


def next_day(report: Report) -> Report:
    return attrs.evolve(report, at=report.at + DAY, diff=None)


def head(markdown: str) -> str:
    """Return the first paragraph of a view without its title."""
    return markdown.split("\n\n")[1].strip().partition(": ")[2]


@pytest.mark.thorough
@given(WORLDS, WORLDS.map(next_day))
@settings(max_examples=scaled(40), phases=WITHOUT_SHRINKING)
def test_audit_and_brief_have_the_same_counts_and_they_add_up(before: Report, later: Report) -> None:
    compared, brief = later.since(before), build_brief(later, before)
    summary, changes = summarize(compared), brief.changes

    assert changes is not None
    assert changes.before == len(before.findings) == changes.unchanged + changes.resolved + changes.not_judged
    assert changes.after == len(compared.findings) == changes.unchanged + changes.new
    assert changes == summary.changes
    assert [attrs.evolve(each, state=None) for each in compared.findings if each.rule != "OA204"] == [
        attrs.evolve(each, state=None) for each in later.findings if each.rule != "OA204"
    ]
    assert {each.state for each in compared.findings} <= {"new", "unchanged"}
    assert json.loads(write(compared, "json"))["changes"] == json.loads(write(brief, "json"))["changes"]
    assert head(write(compared, "markdown")) == head(write(brief, "markdown"))
    assert [task for task in summary.tasks if task in brief.tasks] == brief.tasks
    assert sum(task.new for task in summary.tasks) == sum(task.new for task in brief.tasks) == changes.new
    assert sum(task.findings for task in summary.resolved) == changes.resolved
    assert sum(task.findings for task in brief.resolved) + brief.resolved_notes == changes.resolved


@pytest.mark.parametrize(
    "domains", sorted(set(itertools.permutations("aab")) | set(itertools.permutations("abb")) | {("a",) * 3})
)
def test_a_task_for_several_domains_fills_in_the_first_of_them(domains: tuple[str, ...]) -> None:
    found = [
        finding(mailbox=f"mailbox_{at}", email=f"{at}@{name}.example", domain=f"{name}.example")
        for at, name in enumerate(domains)
    ]
    for ordered in (found, found[::-1]):
        (task,) = summarize(make_report(ordered)).tasks
        more = " The same for 1 other domain." if len(set(domains)) > 1 else ""
        assert task.remedy == CATALOGUE["OA101"].remedy.replace("<domain>", "a.example") + more


@pytest.mark.thorough
@given(WORLDS)
@settings(max_examples=scaled(40), phases=WITHOUT_SHRINKING)
def test_every_finding_belongs_to_one_task(report: Report) -> None:
    tasks = summarize(report).tasks
    counts: Counter[Severity] = Counter()
    for task in tasks:
        counts[task.severity] += task.findings
        assert task.findings == sum(count for _, count in task.groups)

    assert {severity: counts[severity] for severity in Severity} == report.counts
    assert len({(task.rule, task.severity) for task in tasks}) == len(tasks)


def test_a_task_has_the_mailboxes_of_its_severity_only() -> None:
    severe = [finding("OA120", severity=Severity.CRITICAL, mailbox=f"mailbox_{n}", email=f"a{n}@one.example") for n in range(9)]
    notes = [finding("OA120", mailbox=f"mailbox_{n}", email=f"a{n}@two.example", domain="two.example") for n in (10, 11)]
    summary = summarize(make_report([*severe, *notes]))

    assert summary.verdict == "Stop sending from 9 mailboxes on 1 domain until the problem is fixed."
    assert [(task.severity, task.extent) for task in summary.tasks] == [
        ("critical", "9 mailboxes on one.example"),
        ("info", "2 mailboxes on two.example"),
    ]


def test_a_task_names_its_groups_in_order_and_its_first_subject() -> None:
    later = finding(email="z@two.example", domain="two.example", mailbox="mailbox_2")
    (task,) = summarize(make_report([later, finding()])).tasks
    assert task.groups == [("one.example", 1), ("two.example", 1)]
    assert task.example == "ann@one.example: what was seen"


def test_the_states_of_an_earlier_comparison_are_no_news() -> None:
    (task,) = summarize(make_report([finding(state="new")])).tasks
    assert (task.new, task.new_groups, task.news) == (0, [], "")


def test_a_mailbox_of_two_workspaces_counts_twice() -> None:
    (task,) = summarize(make_report([finding(), finding(workspace="space_2")])).tasks
    assert task.extent == "2 mailboxes on one.example"


def test_the_verdict_is_about_what_could_be_read() -> None:
    found = report(reading(mailboxes(1)), reading([], workspace="space_2", error=StatusError("refused")))
    assert summarize(found).verdict == "Not everything could be read. No problems found."


def test_a_score_of_100_beside_a_broken_campaign_is_explained() -> None:
    broken = finding("OA201", mailbox=None, email=None, domain=None, campaign="camp_1", campaign_name="Spring")
    for form in ("terminal", "markdown", "html"):
        assert "The score is about mailboxes: problems of campaigns do not lower it." in write(make_report([broken]), form)
        assert "do not lower it" not in write(make_report([finding()]), form)
