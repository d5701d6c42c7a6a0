"""What to do with each mailbox: it is decided once, from all findings about it, and every format says the same."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import attrs
from hypothesis import given, settings
from support.audit import SHARED_FLEETS, Shown, mailbox, mailboxes, reading, report, separated
from support.audit_reports import AT
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import CATALOGUE, Finding, Report, Severity
from outreach_async.audit.history import History, Readings
from outreach_async.audit.history._tables import record_mailboxes
from outreach_async.audit.reports import summarize, write
from outreach_async.audit.reports.brief import build_brief

ORDER = ["stop", "fix", "watch"]
BY_SEVERITY = {"critical": "stop", "error": "fix", "warning": "watch"}
PAUSE = re.compile(r"(?i)\bpaus|\bstop sending")
NAMES = {f"space_{at}": f"Client {at}" for at in range(5)}


def findings_of(found: Report, shown: Shown) -> dict[str, list[Finding]]:
    """Return the findings about each mailbox of a workspace, its domain and its server, by the id of the mailbox."""
    about: defaultdict[str, list[Finding]] = defaultdict(list)
    for each in (each for each in found.findings if each.workspace == shown.reading.workspace):
        for box in shown.mailboxes:
            is_own = each.mailbox == box.id and each.sent_30days is not None
            on_domain = each.mailbox is None and each.domain is not None and box.email.lower().endswith(f"@{each.domain}")
            on_server = each.server_ip == box.server_ip and box.type == "SMTP & IMAP"
            if is_own or on_domain or on_server:
                about[box.id].append(each)
    return about


def actions_of(found: Report) -> dict[tuple[str, str], str]:
    return {(each.workspace, each.mailbox): each.action for each in found.actions}


NOTED = mailbox(id="mailbox_y", email="y@two.example", domain_ip=None)
BULK = {"sent_30days": 60_000, "daily_limit": 2_400, "type": "SMTP & IMAP", "server_ip": "192.0.2.4"}
BIG = reading(
    [*mailboxes(2, **BULK), mailbox(id="mailbox_x", email="x@one.example", spf=False, **BULK), NOTED], workspace="space_9"
)
"""A domain that sends so much that all of its mailboxes must stop, although only one of them lacks a record."""


@given(SHARED_FLEETS)
@settings(max_examples=scaled(30), phases=WITHOUT_SHRINKING)
def test_a_mailbox_is_paused_by_a_remedy_if_and_only_if_it_is_to_stop(fleet: list[Shown]) -> None:
    found = report(*fleet, BIG)
    for shown in (*fleet, BIG):
        space, about = shown.reading.workspace, findings_of(found, shown)
        worst = {id_: min(each.severity.rank for each in known) for id_, known in about.items()}
        expected = {(space, id_): ORDER[rank] for id_, rank in worst.items() if rank < len(ORDER)}
        assert {key: action for key, action in actions_of(found).items() if key[0] == space} == expected
        for id_, known in about.items():
            asks = [bool(PAUSE.search(each.remedy)) for each in known]
            assert asks == [each.severity == "critical" for each in known]
            assert any(asks) == (expected.get((space, id_)) == "stop")
    assert [ORDER.index(each.action) for each in found.actions] == sorted(ORDER.index(each.action) for each in found.actions)
    assert [actions_of(found)["space_9", id_] for id_ in ("mailbox_one.example_0", "mailbox_x")] == ["stop", "stop"]


def test_every_rule_that_can_be_critical_says_what_to_pause() -> None:
    for rule in CATALOGUE.values():
        assert not PAUSE.search(rule.remedy)
        assert Severity.CRITICAL not in rule.severities or rule.scope in {"mailbox", "domain", "campaign"}


def told(found: Report) -> dict[str, Counter[str]]:
    """Return the numbers of mailboxes by action, as each format states them."""
    summary, brief = summarize(found), build_brief(found)
    counted = Counter({name: int(count.replace(",", "")) for count, name in re.findall(r"([\d,]+) to (\w+)", summary.to_do)})
    lists = json.loads(write(brief, "json"))["actions"]
    named = {action: sum(map(len, spaces.values())) for action, spaces in lists.items()}
    rows = csv.DictReader(io.StringIO(write(found, "csv")))
    known = {(row["workspace"], row["mailbox"]): row["action"] for row in rows if row["mailbox"] and row["sent_30days"]}
    gauges = re.findall(r'mailbox_actions{action="(\w+)"} (\d+)\.0', write(found, "prometheus"))
    slack = "\n".join(block["text"]["text"] for block in json.loads(write(brief, "slack"))["blocks"])
    return {
        "report": Counter(each.action for each in found.actions),
        "JSON": Counter(each["action"] for each in json.loads(write(found, "json"))["actions"]),
        "summary": counted,
        "brief": Counter(named),
        "CSV, of mailboxes with findings of their own": Counter(known.values()),
        "Prometheus": Counter({action: int(count) for action, count in gauges}),
        "Slack": Counter({name: int(count.replace(",", "")) for count, name in re.findall(r"([\d,]+) to (\w+)", slack)}),
    }


TROUBLED = [
    reading(mailboxes(2, domain="a.example", blacklists=3), workspace="space_0"),
    reading([*mailboxes(3, domain="b.example", spf=False), *mailboxes(1, domain="c.example", blacklists=4)], workspace="space_1"),
    reading([*mailboxes(1, domain="d.example", bounced_30days=40), *mailboxes(2, domain="e.example")], workspace="space_2"),
    *(reading(mailboxes(7, domain="f.example")[at * 3 : 3 + at * 4], workspace=f"space_{3 + at}") for at in (0, 1)),
]


def test_every_format_states_the_same_numbers_and_names_the_clients() -> None:
    found = attrs.evolve(report(*TROUBLED), names=NAMES)
    assert {name: +counts for name, counts in told(found).items()} == {
        name: Counter(stop=3, fix=3, watch=1 if name.startswith("CSV") else 8) for name in told(found)
    }

    brief = build_brief(found)
    assert brief.actions["stop"] == {"space_0": ["m0@a.example", "m1@a.example"], "space_1": ["m0@c.example"]}
    slack = "\n".join(block["text"]["text"] for block in json.loads(write(brief, "slack"))["blocks"])
    assert "*Stop now: 3 mailboxes*\n• *Client 0*: `m0@a.example`, `m1@a.example`\n• *Client 1*: `m0@c.example`" in slack
    assert {(task.rule, task.severity.value): task.workspaces for task in brief.tasks} == {
        ("OA110", "critical"): [("Client 0", 2), ("Client 1", 1)],
        ("OA101", "error"): [("Client 1", 3)],
        ("OA120", "warning"): [("Client 2", 1)],
        ("OA170", "warning"): [("Client 4", 4), ("Client 3", 3)],
    }
    assert "`Client 0` (2), `Client 1` (1)" in slack
    assert "`Client 2` (1)" in slack
    later = build_brief(attrs.evolve(report(*TROUBLED[1:]), names=NAMES, workspaces=list(NAMES)), found)
    assert "On blacklists*: 2 mailboxes on `a.example`\n      `Client 0` (2)" in write(later, "slack").encode().decode(
        "unicode_escape"
    )


@given(SHARED_FLEETS)
@settings(max_examples=scaled(30), phases=WITHOUT_SHRINKING)
def test_the_page_of_a_client_has_the_findings_actions_and_score_of_the_index(fleet: list[Shown]) -> None:
    whole = report(*fleet)
    for part in separated(*fleet):
        (space,) = part.workspaces
        assert part.findings == [each for each in whole.findings if each.workspace == space]
        assert part.actions == [each for each in whole.actions if each.workspace == space]
        score = whole.scores.workspaces.get(space)
        assert part.scores.overall == (score and score.score)
        assert part.scores.workspaces == ({space: score} if score else {})
        assert [row for row in part.rows if row not in whole.rows] == []
        assert [group for group in part.groups if group.kind == "workspace"] == [
            group for group in whole.groups if (group.kind, group.key) == ("workspace", space)
        ]


def test_workspaces_are_sorted_by_the_score_that_is_shown() -> None:
    troubles: list[dict[str, Any]] = [
        *({"blacklists": 3}, {"spf": False}, {"bounced_30days": 40}, {"blacklists": 1, "spf": False}, {})
    ]
    shown = [
        reading([*mailboxes(9, domain=f"ok{at}.example", sent_30days=100 * at), mailbox(**trouble)], workspace=f"space_{at}")
        for at, trouble in enumerate(troubles)
    ]
    html = write(report(*shown), "html")
    table = html.partition("Workspaces, worst first")[2].partition("</section>")[0]
    scores = [float(score) for score in re.findall(r'data-label="Score"><span class="score \w+" dir="auto">([\d.]+)<', table)]
    assert len(scores) == 5
    assert scores == sorted(scores)
    assert html.count("The score is the share of the e-mails of 30\xa0days that healthy mailboxes sent:") == 1


def test_a_history_has_the_actions_of_each_day(tmp_path: Path) -> None:
    history, day = History(tmp_path / "history.db"), 86_400
    states: list[dict[str, Any]] = [{"blacklists": 3}, {"blacklists": 1}, {"blacklists": 1}, {}, {"blacklists": 3}]
    for at, state in enumerate(states):
        boxes = [mailbox(**state), *mailboxes(1, domain="b.example", spf=False)]
        readings = Readings()
        record_mailboxes(readings, "space_1", boxes)
        assert history.append(attrs.evolve(report(reading(boxes)), at=AT + at * day), readings)

    days = [each.action for each in history.daily("mailbox", "mailbox_1")]
    assert days == ["stop", "fix", "fix", None, "stop"]
    spaces = [(each.stop, each.fix, each.watch) for each in history.daily("workspace")]
    assert spaces == [(1, 1, 0), (0, 2, 0), (0, 2, 0), (0, 1, 0), (1, 1, 0)]
    with history.tables() as tables:
        columns, rows = tables["actions"]
        assert sorted(row[:-1] for row in rows) == [(1, 1, 1, "stop"), (1, 2, 3, "fix"), (1, 5, 5, "stop"), (2, 1, 5, "fix")]
    assert columns == ["mailbox", "first", "last", "action", "crc"]
    assert history.prune(keep=2 * day) == 2
    assert [each.action for each in history.daily("mailbox", "mailbox_1")] == ["fix", None, "stop"]
