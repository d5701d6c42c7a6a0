"""Reports for tests of report formats: a realistic fleet, and hostile values."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import attrs
from hypothesis import strategies as st
from support.audit import HEALTHY, NOW, mailbox, mailboxes, reading, report

from outreach_async.audit import (
    CATALOGUE,
    Delta,
    Diff,
    Finding,
    Group,
    HistoryPoint,
    MailboxAction,
    Policy,
    Report,
    Row,
    Score,
    Scores,
    Severity,
)
from outreach_async.audit.reports.brief import build_brief
from outreach_async.models import Mailbox, MailboxType, Number

T = TypeVar("T")

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


def group(kind: Any = "domain", key: str = "one.example", **about: Any) -> Group:
    """Return a group of mailboxes."""
    counts = dict.fromkeys(Severity, 0)
    values: dict[str, Any] = {
        "mailboxes": 1, "score": 100.0, "severity": None, "counts": counts, "sent_30days": 1000, "daily_limit": 40
    }  # fmt: skip
    return Group(kind=kind, key=key, **(values | about))


def list_actions(findings: Iterable[Finding]) -> list[MailboxAction]:
    """Return what to do with the mailboxes of findings, by the worst severity of each."""
    worst = {
        (each.workspace, each.mailbox): each for each in sorted(findings, key=lambda each: -each.severity.rank) if each.mailbox
    }
    known = sorted((each for each in worst.values() if each.sent_30days is not None), key=lambda each: each.severity.rank)
    return [
        MailboxAction(
            action=("stop", "fix", "watch")[each.severity.rank], workspace=each.workspace, mailbox=each.mailbox or "",
            email=each.email, domain=each.domain, sent_30days=each.sent_30days or 0,
        )
        for each in known
        if each.severity is not Severity.INFO
    ]  # fmt: skip


def make_report(findings: Sequence[Finding] = (), **about: Any) -> Report:
    """Return a report with these findings, and with the actions that follow from them."""
    scores = Scores(overall=80.0, workspaces={"space_1": Score(score=80.0, mailboxes=1, sent_30days=1000)}, domains={})
    values: dict[str, Any] = {
        "workspaces": ["space_1"], "mailboxes": 1, "unreadable": [], "findings": list(findings), "scores": scores, "at": AT,
        "actions": list_actions(findings),
    }  # fmt: skip
    return Report(**(values | about))


_TROUBLES: Final[tuple[dict[str, Any], ...]] = (
    {"spf": False, "dkim": False, "dmarc": False},
    {"blacklists": 4, "bounced_30days": 150, "opened_14days": 19},
    {"dkim": False},
    {"bounced_30days": 80},
    {"sent_today": 60},
    {"created_at": NOW - 8 * 86_400, "daily_limit": 30},
    {"sent_30days": 12},
)


def fleet(boxes: int = 2000, *, per_domain: int = 5, sick: float = 0.15, seed: int = 1, compared: bool = False) -> Report:
    """Return the report of `boxes` mailboxes in two workspaces. The fraction `sick` of their domains has one kind of problem."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    listed: list[Mailbox] = []
    for start in range(0, boxes, per_domain):
        trouble = chance.choice(_TROUBLES) if chance.random() < sick else {}
        for at in range(start, min(boxes, start + per_domain)):
            kind = MailboxType(chance.choice(["Google", "SMTP & IMAP"]))
            listed.append(mailbox(id=f"mailbox_{at}", email=f"sales{at}@outreach-{start}.example", type=kind, **trouble))
    found = _audited(listed)
    return found.since(_day_before(listed)) if compared else found


def _audited(listed: Sequence[Mailbox]) -> Report:
    halves = [reading(listed[part::2], workspace=f"space_{part + 1}") for part in (0, 1)]
    return attrs.evolve(report(*halves), at=AT)


def _day_before(listed: Sequence[Mailbox]) -> Report:
    """Return an earlier report: every seventh mailbox was healthy, and four others had a problem that is now resolved."""
    earlier = [attrs.evolve(HEALTHY, id=box.id, email=box.email) if at % 7 == 0 else box for at, box in enumerate(listed)]
    gone = mailboxes(4, domain="gone.example", blacklists=1)
    return attrs.evolve(_audited([*earlier, *gone]), at=AT - 86_400)


TEXTS = st.one_of(st.sampled_from(HOSTILE), st.text(max_size=40))
"""Arbitrary strings that a service may send."""

_SEVERITIES = st.sampled_from(list(Severity))
_FIGURES = st.one_of(st.integers(0, 10**9), st.floats(0, 10**9))
_SOME_FIGURE = st.none() | _FIGURES
_BY_HINT: Final[dict[Any, st.SearchStrategy[Any]]] = {
    str: TEXTS,
    str | None: st.none() | TEXTS,
    int: st.integers(0, 10**6),
    Number: _FIGURES,
    Number | None: _SOME_FIGURE,
    Severity: _SEVERITIES,
    Severity | None: st.none() | _SEVERITIES,
}


def drawn(model: type[T], **about: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Draw objects with arbitrary strings, figures and severities, and with other values for the fields in `about`."""
    hints = get_type_hints(model)
    known = {name: _BY_HINT[hint] for name, hint in hints.items() if hint in _BY_HINT}
    known |= {name: st.sampled_from(get_args(hint)) for name, hint in hints.items() if get_origin(hint) is Literal}
    return st.builds(model, **{**known, **about})


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
    drawn(
        Delta,
        rule=st.sampled_from([None, "OA110"]),
        figure=st.sampled_from(["score", "mailboxes", "blacklists", "sent_30days"]),
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
_PERCENT = st.floats(0, 100)
_ROWS = st.lists(drawn(Row, score=st.integers(0, 100), rules=st.just(["OA101"])), max_size=4)
_SCORE = drawn(Score, score=_PERCENT)
_SCORES = st.builds(
    Scores,
    overall=st.none() | _PERCENT,
    workspaces=st.dictionaries(TEXTS, _SCORE, max_size=2),
    domains=st.dictionaries(TEXTS, _SCORE, max_size=4),
)
_GROUPS = st.lists(drawn(Group, score=_PERCENT, counts=st.just(dict.fromkeys(Severity, 0))), max_size=5)
_POLICIES = st.builds(Policy, name=TEXTS, off=st.just(["OA160"]), thresholds=st.sampled_from([{}, {"OA120": {"warning": 0.03}}]))

_COUNTS = st.dictionaries(_SEVERITIES, st.integers(0, 10**6))
_HISTORY = st.lists(
    drawn(HistoryPoint, at=st.floats(1, AT), score=st.none() | _PERCENT, counts=_COUNTS),
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
).map(lambda report: attrs.evolve(report, actions=list_actions(report.findings)))
"""Reports with arbitrary strings."""

BRIEFS = st.builds(build_brief, HOSTILE_REPORTS, st.none() | HOSTILE_REPORTS)
VIEWS = HOSTILE_REPORTS | BRIEFS
"""Reports and briefs with arbitrary strings."""


def with_history(*scores: float | None, scope: str | None = None) -> Report:
    """Return a report whose history has one earlier audit per day, with these scores."""
    now = make_report([finding("OA110")])
    now = attrs.evolve(now, scores=attrs.evolve(now.scores, overall=100.0))
    (point,) = now.since(attrs.evolve(now, at=AT - 1)).history
    days = range(-len(scores), 0)
    history = [
        attrs.evolve(point, at=AT + day * 86_400, score=score, scope=scope or point.scope)
        for day, score in zip(days, scores, strict=True)
    ]
    return attrs.evolve(now, history=history)
