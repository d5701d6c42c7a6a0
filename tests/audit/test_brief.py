"""The brief: changes since an earlier report, open tasks, and the baseline that a history provides."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import SHARED_FLEETS, Shown, reading, report
from support.audit_reports import AT, TEXTS, finding, make_report
from support.examples import WITHOUT_SHRINKING, scaled
from support.histories import baseline_of
from support.runs import client
from support.time import virtual_time
from support.transport import Script, added

from outreach_async.audit import CampaignResults, CampaignRow, Policy, Report, Score, Scores, Severity
from outreach_async.audit.campaigns import add_up
from outreach_async.audit.reports.brief import ChangeCounts, build_brief, read_imports
from outreach_async.bulk import Exclusions
from outreach_async.errors import StatusError
from outreach_async.store import Store

DAY = 86_400.0
WORSE = Severity.CRITICAL


def on_day(day: int, *findings: object, **about: object) -> Report:
    return make_report(findings, **{"at": AT + day * DAY, **about})  # type: ignore[arg-type]


def unread(workspace: str = "space_2", message: str = "could not be read: 503") -> object:
    return finding("OA901", workspace=workspace, mailbox=None, email=None, domain=None, message=message, sent_30days=None)


def two_spaces(day: int, *findings: object, gone: Sequence[str] = (), **about: object) -> Report:
    """Return the report of two workspaces; those in `gone` could not be read."""
    lost = [unread(workspace) for workspace in gone]
    return on_day(day, *findings, *lost, workspaces=["space_1", "space_2"], unreadable=list(gone), **about)


def elsewhere(rule: str = "OA102") -> object:
    return finding(rule, workspace="space_2", mailbox="mailbox_2", email="bo@two.example", domain="two.example")


def test_the_first_brief_has_tasks_and_nothing_new() -> None:
    brief = build_brief(on_day(0, finding()))
    assert (brief.since, brief.changes, brief.resolved, brief.score_before) == (None, None, [], None)
    assert [(task.rule, task.new, task.new_groups, task.worse) for task in brief.tasks] == [("OA101", 0, [], 0)]
    assert brief.workspaces[0].since is None


def test_only_new_notes_are_tasks() -> None:
    assert build_brief(on_day(0, finding("OA160"))).tasks == []
    (task,) = build_brief(on_day(1, finding("OA160"), finding("OA133")), on_day(0, finding("OA160"))).tasks
    assert (task.rule, task.new) == ("OA133", 1)


def test_tasks_are_ordered_by_severity_and_then_by_news() -> None:
    old = [
        finding("OA101", mailbox="mailbox_1"),
        finding("OA101", mailbox="mailbox_2"),
        finding("OA170", mailbox=None, email=None),
    ]
    new = [finding("OA102"), finding("OA104", severity=Severity.CRITICAL)]

    brief = build_brief(on_day(1, *old, *new), on_day(0, *old))

    assert [(task.rule, task.new) for task in brief.tasks] == [("OA104", 1), ("OA102", 1), ("OA101", 0), ("OA170", 0)]
    assert brief.changes == ChangeCounts(before=3, after=5, new=2, unchanged=3, resolved=0, not_judged=0)


def test_a_finding_that_became_worse_counts_as_worse() -> None:
    before, after = finding("OA110", severity=Severity.ERROR), finding("OA110", severity=Severity.CRITICAL)
    (task,) = build_brief(on_day(1, after), on_day(0, before)).tasks
    (milder,) = build_brief(on_day(1, before), on_day(0, after)).tasks
    assert (task.new, task.worse, milder.worse) == (0, 1, 0)


def test_a_workspace_has_its_score_now_and_before() -> None:
    earlier = on_day(0)
    scores = attrs.evolve(earlier.scores, workspaces={"space_1": Score(score=95.0, mailboxes=7, sent_30days=0)})
    (space,) = build_brief(on_day(1, scores=scores), earlier).workspaces

    assert (space.id, space.mailboxes, space.score, space.score_before, space.error) == ("space_1", 7, 95.0, 80.0, None)
    assert space.since == AT
    without = attrs.evolve(earlier.scores, workspaces={})
    (space,) = build_brief(on_day(1, scores=without), on_day(0, scores=without)).workspaces
    assert (space.mailboxes, space.score, space.score_before) == (0, None, None)


def test_unreadable_workspaces_and_those_no_longer_covered_are_named() -> None:
    brief = build_brief(two_spaces(1, gone=["space_2"]), two_spaces(0))
    assert [(space.error, space.since) for space in brief.workspaces] == [(None, AT), ("could not be read: 503", AT)]
    assert build_brief(on_day(1), two_spaces(0)).dropped == ["space_2"]


def test_a_workspace_that_cannot_be_read_loses_nothing(tmp_path: Path) -> None:
    first = two_spaces(0, finding(), elsewhere())
    kept = {"space_2": Score(score=70, mailboxes=3, sent_30days=1)}
    first = attrs.evolve(first, scores=attrs.evolve(first.scores, workspaces=first.scores.workspaces | kept))
    outages = [two_spaces(day, finding(), gone=["space_2"]) for day in (1, 2)]
    third = baseline_of(tmp_path, first, *outages)

    brief = build_brief(two_spaces(3, finding(), elsewhere()), third)

    assert third is not None
    assert third.last_read == {"space_1": AT + 2 * DAY, "space_2": AT}
    assert [score.score for score in third.scores.workspaces.values()] == [80.0, 70]
    assert brief.changes == ChangeCounts(before=3, after=2, new=0, unchanged=2, resolved=1, not_judged=0)
    assert [task.rule for task in brief.resolved] == ["OA901"]
    assert [space.since for space in brief.workspaces] == [AT + 2 * DAY, AT]


@pytest.mark.parametrize(
    ("later", "rules"),
    [
        (on_day(1, finding("OA902", message="does not match the documented API")), ["OA110", "OA902"]),
        (on_day(1, policy=Policy(off=["OA110"])), []),
        (on_day(1, finding(), unread("space_1"), unreadable=["space_1"]), ["OA101", "OA110", "OA901"]),
    ],
    ids=["unreadable mailbox", "rule turned off", "part of the only workspace"],
)
def test_findings_that_were_not_checked_again_stay_open(tmp_path: Path, later: Report, rules: list[str]) -> None:
    baseline = baseline_of(tmp_path, on_day(0, finding("OA110")), later)
    assert baseline is not None
    assert sorted(each.rule for each in baseline.findings) == rules


def test_an_audit_that_read_nothing_does_not_change_the_baseline(tmp_path: Path) -> None:
    nobody = Scores(overall=None, workspaces={}, domains={})
    nothing = on_day(1, unread("space_1"), unreadable=["space_1"], mailboxes=0, scores=nobody)
    baseline = baseline_of(tmp_path, on_day(0, finding()), nothing)

    assert baseline is not None
    assert (baseline.at, baseline.mailboxes, baseline.scores.overall) == (AT, 1, 80.0)
    assert baseline_of(tmp_path, nothing) is None


@pytest.mark.thorough
@given(SHARED_FLEETS, st.data())
@settings(max_examples=scaled(40), phases=WITHOUT_SHRINKING)
def test_after_an_outage_nothing_is_new_that_was_known_before(shown: list[Shown], data: st.DataObject) -> None:
    def audit(lost: frozenset[int], day: int) -> Report:
        spaces = [reading(each.mailboxes, workspace=each.reading.workspace) for each in shown]
        failed = StatusError("down", status_code=503)
        names = [each.reading.workspace for each in spaces]
        read = [reading([], workspace=names[at], error=failed) if at in lost else each for at, each in enumerate(spaces)]
        return attrs.evolve(report(*read), at=AT + day * DAY)

    none: frozenset[int] = frozenset()
    outages = [audit(data.draw(st.frozensets(st.integers(0, len(shown) - 1))), day) for day in (1, 2)]
    with TemporaryDirectory() as folder:
        baseline = baseline_of(Path(folder), audit(none, 0), *outages)

    brief = build_brief(audit(none, 3), baseline)

    assert brief.changes is not None
    assert (brief.changes.new, brief.changes.not_judged) == (0, 0)
    assert {task.rule for task in brief.resolved} <= {"OA901"}


@pytest.mark.thorough
@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=2))
@settings(max_examples=scaled(25))
def test_a_history_stores_what_any_service_may_send(names: list[tuple[str, str]]) -> None:
    reports = []
    for day, (space, text) in enumerate(names):
        score = Score(score=80.0, mailboxes=1, sent_30days=1000)
        scores = Scores(overall=80.0, workspaces={space: score}, domains={text: score})
        found = finding(workspace=space, mailbox=text, email=text, domain=text, message=text)
        reports.append(on_day(day, found, workspaces=[space], scores=scores))
    with TemporaryDirectory() as folder:
        baseline = baseline_of(Path(folder), *reports)

    assert baseline is not None
    assert Report.from_dict(json.loads(json.dumps(baseline.to_dict()))) == baseline


SUBJECTS = [
    finding(rule, workspace=space, mailbox=f"mailbox_{space}")
    for rule, space in itertools.product(("OA101", "OA110"), ("space_1", "space_2"))
]
DAYS = st.tuples(st.sets(st.sampled_from(range(len(SUBJECTS)))), st.sets(st.sampled_from(["space_1", "space_2"])))
"""The findings of a day, by their place in `SUBJECTS`, and the workspaces that could not be read."""


@given(st.lists(DAYS, min_size=3, max_size=3))
@settings(max_examples=scaled(15))
def test_the_next_brief_starts_from_what_the_last_one_had(days: list[tuple[set[int], set[str]]]) -> None:
    first, second, third = (
        two_spaces(day, *(SUBJECTS[at] for at in sorted(found) if SUBJECTS[at].workspace not in gone), gone=sorted(gone))
        for day, (found, gone) in enumerate(days)
    )
    with TemporaryDirectory() as folder:
        history = Path(folder)
        brief = build_brief(second, baseline_of(history, first))
        later = build_brief(third, baseline_of(history, first, second)).changes

    assert brief.changes is not None
    assert later is not None
    assert brief.changes.after <= later.before <= brief.changes.after + brief.changes.not_judged


def row(**about: Any) -> CampaignRow:
    figures: dict[str, Any] = dict.fromkeys(field.name for field in attrs.fields(CampaignRow))
    figures |= {"id": "camp_1", "name": "Spring", "workspace": "space_1", "status": "live", "rules": [], "last_activity": "now"}
    figures |= {"contacts": 100, "sent": 80, "replies_num": 8, "bounces_num": 1, "left_to_send": 20, "created": AT - DAY}
    return CampaignRow(**(figures | about))


def results(*rows: CampaignRow) -> CampaignResults:
    return CampaignResults(checked=len(rows), totals={"space_1": add_up(rows)}, rows=list(rows))


def test_an_audit_without_campaigns_has_none_in_its_brief() -> None:
    assert build_brief(on_day(1), on_day(0, campaigns=results(row()))).campaigns is None


@pytest.mark.parametrize(
    ("earlier", "later", "grown"),
    [
        (row(), row(contacts=150, sent=95, replies_num=9, bounces_num=1), (50, 15, 1, 0)),
        (row(), row(contacts=99, sent=None, replies_num=0), (None, None, None, 0)),
        (row(sent=None), row(), (0, None, 0, 0)),
        (None, row(), (None, None, None, None)),
        (None, row(created=None), (None, None, None, None)),
        (None, row(created=AT + 1), (100, 80, 8, 1)),
    ],
)
def test_a_campaign_has_what_was_added_since_the_earlier_report(
    earlier: CampaignRow | None, later: CampaignRow, grown: tuple[Any, ...]
) -> None:
    before = on_day(0, campaigns=results(*[earlier] if earlier else []))
    (campaign,) = build_brief(on_day(1, campaigns=results(later)), before).campaigns or []
    assert (campaign.new_contacts, campaign.new_sent, campaign.new_replies, campaign.new_bounces) == grown


def test_campaigns_are_in_the_order_of_workspaces_and_of_what_they_sent() -> None:
    names = (("camp_1", "space_1", 81), ("camp_2", "space_1", 99), ("camp_3", "space_2", 90), ("camp_4", "space_x", 90))
    before = results(*(row(id=id_, workspace=space) for id_, space, _ in names))
    after = results(*(row(id=id_, workspace=space, sent=sent) for id_, space, sent in reversed(names)))

    spaces = ["space_1", "space_2"]
    brief = build_brief(on_day(1, workspaces=spaces, campaigns=after), on_day(0, workspaces=spaces, campaigns=before))

    assert [each.id for each in brief.campaigns or []] == ["camp_2", "camp_1", "camp_3", "camp_4"]


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        # A campaign without its e-mails counts as not read: its figures are those of one moment.
        (
            on_day(0, campaigns=results(row())),
            on_day(1, campaigns=results(row(sent=None, contacts=120), row(id="camp_2", sent=None))),
            [("camp_1", 80, 100), ("camp_2", None, 100)],
        ),
        (
            two_spaces(0, campaigns=results(row(), row(id="camp_2", workspace="space_2"))),
            two_spaces(1, gone=["space_2"], campaigns=results()),
            [("camp_2", 80, 100)],
        ),
        (on_day(0, campaigns=results(row())), on_day(1), [("camp_1", 80, 100)]),
        (
            on_day(0),
            on_day(1, unread("space_1"), unreadable=["space_1"], mailboxes=0, campaigns=results(row())),
            [("camp_1", 80, 100)],
        ),
    ],
    ids=["unread figures", "incomplete workspace", "no campaigns read", "campaigns only"],
)
def test_the_baseline_keeps_campaigns_that_were_not_read_again(
    tmp_path: Path, earlier: Report, later: Report, expected: list[Any]
) -> None:
    baseline = baseline_of(tmp_path, earlier, later)
    assert baseline is not None
    assert baseline.campaigns is not None
    assert [(each.id, each.sent, each.contacts) for each in baseline.campaigns.rows] == expected


@virtual_time
async def test_an_import_has_the_numbers_of_its_last_run_and_the_prediction_of_all(tmp_path: Path) -> None:
    ledger, judged = Store(tmp_path / "a.ledger", inline=True), Exclusions(["b.example"], kind="gate")
    judged.figures = {"gate_rows": 4, "gate_unknown": 1}
    rows = [{"email": "ann@a.example"}, {"email": "bo@b.example"}, {"email": "cy@b.example"}]
    for exclude in (judged, Exclusions(["a.example"])):
        await client(Script(added())).contacts.create_many(rows, ledger=ledger, duplicates="overwrite", exclude=exclude)
    (found,) = read_imports([ledger])
    assert (found.excluded, found.held, found.gated, found.predicted) == (1, 0, 0, 0.25)
