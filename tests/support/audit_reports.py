"""Handmade reports for tests of report formats: a realistic fleet, and hostile values. Nothing is audited."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, get_args

import attrs
from hypothesis import strategies as st

from outreach_async.audit._findings import GROUP_KINDS, Finding, Group, GroupKind, Row, Severity
from outreach_async.audit._report import Delta, Diff, HistoryPoint, Report, SubjectKind
from outreach_async.audit._rules import CATALOGUE
from outreach_async.audit._scoring import Score, Scores, mailbox_score
from outreach_async.audit.policy import PolicyUsed
from outreach_async.audit.reports import write, write_brief
from outreach_async.audit.reports.brief import Brief, build_brief

AT: Final = 1_772_438_400.0
"""2026-03-02 08:00 UTC."""

HOSTILE: Final = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "</style><img src=x onerror=alert(3)>",
    '"><svg onload=alert(4)>',
    "' onmouseover='alert(5)",
    "\u202egnp.exe@evil.example",
    "\u05d0\u05d1\u05d2@\u05d3\u05d4.example",
    '=HYPERLINK("http://evil.example")',
    *("+1", "-1", "@SUM(A1)", "\tx", "\rx", "\x1b[2J", "\x00", "\ud800"),
    *("[x](javascript:alert(6))", "| a | b |", "`code`", "**bold**", "&lt;", "$script ${style}", "%s {0}"),
    "a" * 400 + "@" + "b" * 200 + ".example",
)
"""Names that attack report formats."""


def finding(rule: str = "OA101", **about: Any) -> Finding:
    """Return a finding about a mailbox."""
    known = CATALOGUE[rule]
    values: dict[str, Any] = {
        "severity": known.severity,
        "workspace": "space_1",
        "mailbox": "mailbox_1",
        "email": "ann@one.example",
        "domain": "one.example",
        "message": "what was seen",
        "sent_30days": 1000,
    }
    values |= about
    return Finding(rule=rule, remedy=known.remedy.replace("<domain>", values["domain"] or "<domain>"), **values)


def row(**about: Any) -> Row:
    """Return the row of a mailbox with findings."""
    values: dict[str, Any] = {
        "id": "mailbox_1",
        "email": "ann@one.example",
        "workspace": "space_1",
        "domain": "one.example",
        "type": "Google",
        "status": "active",
        "server_ip": "192.0.2.2",
        "score": 80,
        "severity": Severity.ERROR,
        "rules": ["OA101"],
        "daily_limit": 40,
        "sent_today": 12,
        "sent_30days": 1000,
        "bounced_30days": 3,
        "blacklists": 0,
        "opened_14days": 41.5,
        "avg_open_rate": 43,
    }
    return Row(**(values | about))


def group(kind: GroupKind = "domain", key: str = "one.example", **about: Any) -> Group:
    """Return a group of mailboxes."""
    counts = dict.fromkeys(Severity, 0)
    values: dict[str, Any] = {
        "mailboxes": 1, "score": 100.0, "severity": None, "counts": counts, "sent_30days": 1000, "daily_limit": 40
    }  # fmt: skip
    return Group(kind=kind, key=key, **(values | about))


def make_report(findings: Sequence[Finding] = (), **about: Any) -> Report:
    """Return a report with these findings."""
    scores = Scores(overall=80.0, workspaces={"space_1": Score(score=80.0, mailboxes=1, sent_30days=1000)}, domains={})
    values: dict[str, Any] = {
        "workspaces": ["space_1"], "mailboxes": 1, "unreadable": [], "findings": list(findings), "scores": scores, "at": AT
    }  # fmt: skip
    return Report(**(values | about))


Trouble = tuple[str, Severity, Callable[[random.Random], str]]

_TROUBLES: Final[tuple[tuple[Trouble, ...], ...]] = (
    (("OA104", Severity.CRITICAL, lambda _: "SPF, DKIM and DMARC are all missing"),),
    (
        ("OA110", Severity.CRITICAL, lambda chance: f"on {chance.randint(3, 6)} blacklists"),
        ("OA120", Severity.CRITICAL, lambda chance: f"{chance.randint(120, 190) / 10} % bounced in 30 days (97 of 640)"),
        ("OA150", Severity.WARNING, lambda _: "19 % opened in 14 days, 37 % before"),
    ),
    (("OA102", Severity.ERROR, lambda _: "no DKIM signature"),),
    (("OA120", Severity.ERROR, lambda chance: f"{chance.randint(55, 95) / 10} % bounced in 30 days (58 of 810)"),),
    (("OA130", Severity.ERROR, lambda chance: f"{chance.randint(41, 70)} e-mails sent today, over the daily limit of 40"),),
    (("OA132", Severity.WARNING, lambda _: "8 days old with a daily limit of 30"),),
    (("OA133", Severity.INFO, lambda _: "12 e-mails in 30 days of 880"),),
)


def fleet(boxes: int = 2000, *, per_domain: int = 10, sick: float = 0.15, seed: int = 1, compared: bool = False) -> Report:
    """Return a report on `boxes` mailboxes. The fraction `sick` of their domains has one kind of problem each."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    findings: list[Finding] = []
    rows: list[Row] = []
    for at in range(0, boxes, per_domain):
        if chance.random() < sick:
            found, shown = _troubled(at, min(per_domain, boxes - at), chance.choice(_TROUBLES), chance)
            findings += found
            rows += shown
    report = _summed(boxes, per_domain, findings, sorted(rows, key=lambda each: (each.score, each.email)))
    return compare_by_hand(report) if compared else report


def compare_by_hand(report: Report) -> Report:
    """Add a comparison to a report: every seventh finding is new, and four findings of other mailboxes are resolved."""
    states = [attrs.evolve(each, state="unchanged" if at % 7 else "new") for at, each in enumerate(report.findings)]
    gone = [
        finding(rule, email=f"box{at}@gone.example", domain="gone.example", state="resolved")
        for at, rule in enumerate(("OA110", "OA110", "OA101", "OA141"))
    ]
    boxes = report.rows[:3]
    diff = Diff(
        at=AT - 86_400,
        new=[each for each in states if each.state == "new"],
        unchanged=[each for each in states if each.state == "unchanged"],
        resolved=gone,
        not_judged=[],
        deltas=[
            Delta(kind="mailbox", key=box.id, name=box.email, rule="OA110", figure="blacklists", before=1, after=4)
            for box in boxes
        ],
        scores=[
            Delta(kind="audit", key="", name="", figure="score", before=94.0, after=report.scores.overall),
            Delta(kind="domain", key="gone.example", name="gone.example", figure="score", before=40.0, after=100.0),
            Delta(kind="domain", key="d3.example", name="d3.example", figure="score", before=100.0, after=22.5),
            Delta(kind="workspace", key="space_1", name="space_1", figure="mailboxes", before=990, after=1000),
        ],
    )
    return attrs.evolve(report, findings=states, diff=diff)


def _troubled(start: int, count: int, troubles: Sequence[Trouble], chance: random.Random) -> tuple[list[Finding], list[Row]]:
    findings: list[Finding] = []
    rows: list[Row] = []
    domain = f"outreach-{start}.example"
    for at in range(start, start + count):
        about = {"workspace": f"space_{1 + at % 2}", "mailbox": f"mailbox_{at}", "email": f"sales{at}@{domain}", "domain": domain}
        found = [finding(rule, severity=severity, message=say(chance), **about) for rule, severity, say in troubles]
        findings += found
        rows.append(
            row(
                id=about["mailbox"],
                email=about["email"],
                workspace=about["workspace"],
                domain=domain,
                score=mailbox_score(found),
                severity=min((each.severity for each in found), key=lambda severity: severity.rank),
                rules=[each.rule for each in found],
                type=chance.choice(["Google", "SMTP & IMAP"]),
            )
        )
    return findings, rows


def _summed(boxes: int, per_domain: int, findings: Sequence[Finding], rows: list[Row]) -> Report:
    per: defaultdict[str | None, list[Finding]] = defaultdict(list)
    for each in findings:
        per[each.domain].append(each)
    groups = [_group(f"outreach-{at}.example", min(per_domain, boxes - at), per) for at in range(0, boxes, per_domain)]
    groups.sort(key=lambda each: (each.score, each.key))
    spaces = [group("workspace", f"space_{n}", mailboxes=boxes // 2, score=91.0, sent_30days=boxes * 500) for n in (1, 2)]
    kinds = [group("type", key, mailboxes=boxes // 2, score=90.0) for key in ("Google", "SMTP & IMAP")]
    return Report(
        workspaces=["space_1", "space_2"],
        mailboxes=boxes,
        unreadable=[],
        findings=list(findings),
        scores=Scores(
            overall=91.4,
            workspaces={each.key: Score(score=91.0, mailboxes=each.mailboxes, sent_30days=boxes * 500) for each in spaces},
            domains={
                each.key: Score(score=each.score, mailboxes=each.mailboxes, sent_30days=each.sent_30days) for each in groups
            },
        ),
        at=AT,
        groups=[*groups, *spaces, *kinds],
        totals={"workspace": 2, "domain": len(groups), "type": 2, "server_ip": 0},
        rows=rows,
    )


def _group(domain: str, boxes: int, findings: dict[str | None, list[Finding]]) -> Group:
    found = findings.get(domain, [])
    score = min((mailbox_score([each]) for each in found), default=100)
    worst = min((each.severity for each in found), key=lambda severity: severity.rank, default=None)
    counts = Counter(each.severity for each in found)
    return group(
        key=domain,
        mailboxes=boxes,
        score=float(min(score, 40) if worst is Severity.CRITICAL else score),
        severity=worst,
        counts={severity: counts[severity] for severity in Severity},
        sent_30days=boxes * 1000,
        daily_limit=boxes * 40,
    )


TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40))
"""Arbitrary strings that a service may send."""

_SEVERITIES = st.sampled_from(list(Severity))
_FIGURES = st.one_of(st.integers(0, 10**6), st.floats(0, 10**6))
_SOME_FIGURE = st.one_of(st.none(), _FIGURES)


def _findings(state: Iterable[Any]) -> st.SearchStrategy[list[Finding]]:
    return st.lists(
        st.builds(
            finding,
            rule=st.sampled_from(sorted(CATALOGUE)),
            severity=_SEVERITIES,
            workspace=TEXTS,
            mailbox=st.one_of(st.none(), TEXTS),
            email=st.one_of(st.none(), TEXTS),
            domain=st.one_of(st.none(), TEXTS),
            server_ip=st.one_of(st.none(), TEXTS),
            message=TEXTS,
            confidence=st.sampled_from(["high", "low"]),
            sent_30days=_SOME_FIGURE,
            figures=st.dictionaries(st.sampled_from(["blacklists", "sent_30days"]), _FIGURES, max_size=2),
            state=st.sampled_from(list(state)),
        ),
        max_size=8,
    )


_DELTAS = st.lists(
    st.builds(
        Delta,
        kind=st.sampled_from(get_args(SubjectKind)),
        key=TEXTS,
        name=TEXTS,
        rule=st.sampled_from([None, "OA110"]),
        figure=st.sampled_from(["score", "mailboxes", "blacklists", "sent_30days"]),
        before=_SOME_FIGURE,
        after=_SOME_FIGURE,
    ),
    max_size=14,
)
_DIFFS = st.builds(
    Diff,
    at=st.just(AT),
    new=_findings(["new"]),
    unchanged=_findings(["unchanged"]),
    resolved=_findings(["resolved"]),
    not_judged=_findings(["unchanged"]),
    deltas=_DELTAS,
    scores=_DELTAS,
    added_workspaces=st.lists(TEXTS, max_size=7, unique=True),
    removed_workspaces=st.lists(TEXTS, max_size=7, unique=True),
)
_ROWS = st.lists(
    st.builds(
        row, id=TEXTS, email=TEXTS, workspace=TEXTS, type=TEXTS, status=TEXTS, rules=st.just(["OA101"]), sent_30days=_FIGURES
    ),
    max_size=4,
)
_SCORE = st.builds(Score, score=st.floats(0, 100), mailboxes=st.integers(0, 999), sent_30days=_FIGURES)
_SCORES = st.builds(
    Scores,
    overall=st.one_of(st.none(), st.floats(0, 100)),
    workspaces=st.dictionaries(TEXTS, _SCORE, max_size=2),
    domains=st.dictionaries(TEXTS, _SCORE, max_size=4),
)
_GROUPS = st.lists(
    st.builds(
        group, kind=st.sampled_from(GROUP_KINDS), key=TEXTS, severity=st.one_of(st.none(), _SEVERITIES), score=st.floats(0, 100)
    ),
    max_size=5,
)
_POLICIES = st.builds(
    PolicyUsed, name=TEXTS, off=st.just(["OA160"]), thresholds=st.sampled_from([{}, {"OA120": {"warning": 0.03}}])
)

_HISTORY = st.lists(
    st.builds(
        HistoryPoint,
        at=st.floats(1, AT),
        score=st.one_of(st.none(), st.floats(0, 100)),
        mailboxes=st.integers(0, 10**6),
        counts=st.dictionaries(_SEVERITIES, st.integers(0, 10**6)),
        scope=TEXTS,
    ),
    max_size=4,
)

HOSTILE_REPORTS = st.builds(
    Report,
    workspaces=st.lists(TEXTS, max_size=3, unique=True),
    mailboxes=st.integers(0, 10**6),
    unreadable=st.lists(TEXTS, max_size=2, unique=True),
    findings=_findings([None, "new", "unchanged"]),
    scores=_SCORES,
    denied=st.booleans(),
    at=st.just(AT),
    policy=_POLICIES,
    groups=_GROUPS,
    totals=st.just({}),
    rows=_ROWS,
    diff=st.one_of(st.none(), _DIFFS),
    history=_HISTORY,
)
"""Reports with arbitrary strings."""

BRIEFS = st.builds(build_brief, HOSTILE_REPORTS, st.none() | HOSTILE_REPORTS)
VIEWS = HOSTILE_REPORTS | BRIEFS
"""Reports and briefs with arbitrary strings."""


def written(view: Report | Brief, form: str) -> str:
    """Render a report or a brief."""
    return write_brief(view, form) if isinstance(view, Brief) else write(view, form)


def with_history(*scores: float | None, scope: str | None = None) -> Report:
    """Return a report whose history has one earlier audit per day, with these scores."""
    now = make_report([finding("OA110")])
    now = attrs.evolve(now, scores=attrs.evolve(now.scores, overall=100.0))
    point = HistoryPoint.of(now)
    days = range(-len(scores), 0)
    history = [
        attrs.evolve(point, at=AT + day * 86_400, score=score, scope=scope or point.scope)
        for day, score in zip(days, scores, strict=True)
    ]
    return attrs.evolve(now, history=history)
