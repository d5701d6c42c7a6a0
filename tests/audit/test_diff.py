from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import NOW, REPORTS, mailbox, mailboxes, reading, report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import Delta, Diff, Finding, Policy, Report, Severity
from outreach_async.errors import InvalidRequest, StatusError
from outreach_async.models import Undecodable


def changed(before: Report, after: Report) -> Diff:
    diff = after.since(before).diff
    assert diff is not None
    return diff


def names(findings: list[Finding]) -> list[tuple[str, str | None]]:
    return [(finding.rule, finding.mailbox) for finding in findings]


@pytest.mark.thorough
@given(REPORTS)
@settings(max_examples=scaled(20), phases=WITHOUT_SHRINKING)
def test_an_audit_compared_with_itself_has_nothing_new(found: Report) -> None:
    diff = changed(found, found)
    assert diff.empty
    assert [attrs.evolve(each, state=None) for each in diff.unchanged] == found.findings


def dated(day: float, *workspaces: str) -> Report:
    """Return an audit of workspaces on a day, with one finding per day so far."""
    boxes = [mailbox(id=f"mailbox_{n}", email=f"ann@d{n}.example", spf=False) for n in range(int(day))]
    return report(reading(boxes), *(reading([], workspace=each) for each in workspaces), now=NOW + day * 86_400)


@given(st.permutations(range(1, 6)))
def test_the_history_is_by_time_and_the_latest_audit_is_compared(order: list[int]) -> None:
    found = dated(6).since(*map(dated, order))
    assert [point.counts[Severity.ERROR] for point in found.history] == [1, 2, 3, 4, 5]
    assert found.diff is not None
    assert (found.diff.at, len(found.diff.new)) == (NOW + 5 * 86_400, 1)


def test_the_history_contains_that_of_the_earlier_audit_and_no_later_audit() -> None:
    yesterday = dated(2).since(dated(1))
    assert [point.at for point in dated(3).since(yesterday, dated(1)).history] == [NOW + 86_400, NOW + 2 * 86_400]
    assert dated(2).since(dated(2), dated(3), attrs.evolve(dated(1), at=0.0)).history == []


@pytest.mark.thorough
def test_the_history_has_at_most_100_audits() -> None:
    found = dated(3)
    for day in range(120):
        found = attrs.evolve(dated(1), at=NOW + day).since(found) if day else attrs.evolve(dated(1), at=NOW)
    assert [found.history[0].at, len(found.history)] == [NOW + 19, 100]


def test_a_comparison_names_the_workspaces_of_only_one_audit() -> None:
    diff = changed(dated(1, "space_2", "space_3"), dated(2, "space_3", "space_4"))
    assert (diff.added_workspaces, diff.removed_workspaces) == (["space_4"], ["space_2"])
    assert not changed(attrs.evolve(dated(1), workspaces=[]), dated(2)).added_workspaces


def test_findings_are_new_unchanged_or_resolved_per_mailbox() -> None:
    before = report(reading([mailbox(id="mailbox_1", spf=False), mailbox(id="mailbox_2", spf=False)]))
    after = report(reading([mailbox(id="mailbox_2", spf=False), mailbox(id="mailbox_3", spf=False)]))
    found = after.since(before)

    assert changed(before, before).empty
    assert [(each.mailbox, each.state) for each in found.findings] == [("mailbox_2", "unchanged"), ("mailbox_3", "new")]
    assert names(changed(before, after).resolved) == [("OA101", "mailbox_1")]


def test_a_mailbox_moved_to_another_workspace_is_the_same_mailbox() -> None:
    box = mailbox(spf=False)
    before = report(reading([box]), reading([], workspace="space_2"))
    after = report(reading([]), reading([box], workspace="space_2"))
    assert [names(each) for each in (changed(before, after).new, changed(before, after).resolved)] == [[], []]


def test_a_mailbox_in_two_workspaces_is_compared_per_workspace() -> None:
    box = mailbox(spf=False)
    before = report(reading([box]), reading([box], workspace="space_2"))
    after = report(reading([mailbox()]), reading([box], workspace="space_2"))
    diff = changed(before, after)

    assert [(each.workspace, each.state) for each in (*diff.unchanged, *diff.resolved)] == [
        ("space_2", "unchanged"),
        ("space_1", "resolved"),
    ]


def test_changed_values_and_severities_are_reported() -> None:
    before, after = report(reading([mailbox(blacklists=1)])), report(reading([mailbox(blacklists=4)]))

    about = {"kind": "mailbox", "key": "mailbox_1", "name": "ann@one.example", "rule": "OA110"}
    assert changed(before, after).deltas == [
        Delta(**about, figure="severity", before=3, after=4),  # type: ignore[arg-type]  # its kind is one of several strings
        Delta(**about, figure="blacklists", before=1, after=4),  # type: ignore[arg-type]  # the same
    ]


def test_changed_scores_and_totals_are_reported() -> None:
    before = report(reading(mailboxes(2)), reading(mailboxes(1, domain="gone.example"), workspace="space_2"))
    after = report(reading(mailboxes(2, spf=False)))
    moved = {(each.kind, each.key, each.figure): (each.before, each.after) for each in changed(before, after).scores}

    assert moved == {
        ("audit", "", "score"): (100, 50),
        ("audit", "", "mailboxes"): (3, 2),
        ("audit", "", "error"): (0, 2),
        ("workspace", "space_1", "score"): (100, 50),
        ("workspace", "space_2", "score"): (100, None),
        ("domain", "one.example", "score"): (100, 50),
        ("domain", "gone.example", "score"): (100, None),
    }


def test_changes_of_a_domain_are_reported_under_the_domain() -> None:
    before, after = report(reading(mailboxes(6))), report(reading(mailboxes(8)))
    (delta,) = changed(before, after).deltas
    assert (delta.kind, delta.key, delta.rule, delta.before, delta.after) == ("domain", "one.example", "OA170", 6, 8)


FAULT = Undecodable(index=0, id="mailbox_1", error="$.data[0].spf: expected bool, got str")
UNSEEN = {
    "a workspace that could not be read": report(reading([], error=StatusError("no"))),
    "a workspace that shows less than it counts": report(reading([], missing=1)),
    "a workspace that was not audited": report(reading([], workspace="space_2")),
    "a mailbox that could not be read": report(reading([], undecodable=[FAULT])),
    "a rule that is off": report(reading([mailbox(spf=False)]), policy=Policy.of({"off": ["OA101"]})),
}


@pytest.mark.parametrize("later", UNSEEN.values(), ids=list(UNSEEN))
def test_a_finding_on_something_unchecked_is_not_called_resolved(later: Report) -> None:
    diff = changed(report(reading([mailbox(spf=False)])), later)
    assert (names(diff.resolved), names(diff.not_judged)) == ([], [("OA101", "mailbox_1")])


def test_an_unreadable_workspace_is_resolved_once_it_can_be_read() -> None:
    before, after = report(reading([], error=StatusError("no"))), report(reading([mailbox()]))
    assert names(changed(before, after).resolved) == [("OA901", None)]


def test_a_report_in_the_first_format_can_be_compared() -> None:
    old = {"version": 1, "mailboxes": 1, "unreadable": [], "scores": {"overall": 80.0, "workspaces": {}, "domains": {}}}
    finding = report(reading([mailbox(spf=False)])).findings[0].to_dict()
    for added in ("figures", "state", "server_ip"):
        del finding[added]

    diff = changed(Report.from_dict({**old, "findings": [finding]}), report(reading([mailbox(spf=False)])))

    assert (names(diff.unchanged), diff.new, diff.resolved, diff.deltas) == ([("OA101", "mailbox_1")], [], [], [])


@pytest.mark.parametrize("values", [None, [], {}, {"version": 2}, {"version": 1}, {"version": 1, "mailboxes": "3"}])
def test_json_that_is_not_a_report_is_refused(values: object) -> None:
    with pytest.raises(InvalidRequest, match=r"report: .*; pass the output of `audit --json`"):
        Report.from_dict(values)
