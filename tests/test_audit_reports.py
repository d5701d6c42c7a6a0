from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from subprocess import run

import pytest
from hypothesis import given, settings
from rich.cells import cell_len
from rich.console import Console
from support_audit import REPORTS, mailbox, mailboxes, reading, report

from outreach_async.audit import Report, Severity
from outreach_async.audit.overview import overview
from outreach_async.audit.terminal import report_renderable
from outreach_async.audit.text import report_text
from outreach_async.errors import StatusError
from outreach_async.models import Undecodable


def drawn(found: Report, *, width: int = 80, colour: bool = False) -> str:
    page = io.StringIO()
    Console(file=page, width=width, color_system="standard" if colour else None, force_terminal=colour).print(
        report_renderable(found)
    )
    return page.getvalue()


def joined(text: str) -> str:
    """The text without its layout, so that a word broken over two lines is found."""
    return "".join(text.split())


FLEET = report(
    reading(
        [
            *mailboxes(3, domain="worst.example", spf=False, dkim=False, dmarc=False),
            *mailboxes(2, domain="bad.example", blacklists=1),
            *mailboxes(2, domain="mild.example", bounced_30days=40),
            *mailboxes(4, domain="good.example"),
        ]
    ),
    reading([], workspace="space_2", error=StatusError("list_mailboxes: 403", status_code=403)),
)


def test_the_json_has_this_shape() -> None:
    found = report(
        reading(mailboxes(1, blacklists=1, sent_30days=10.5)), reading([], workspace="space_2", error=StatusError("refused"))
    )

    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == {
        "version": 1,
        "mailboxes": 1,
        "unreadable": ["space_2"],
        "findings": [
            {
                "rule": "OA110",
                "severity": "error",
                "workspace": "space_1",
                "mailbox": "mailbox_one.example_0",
                "email": "m0@one.example",
                "domain": "one.example",
                "message": "on 1 blacklist",
                "remedy": "Pause its campaigns, look one.example and its server_ip up at check.spamhaus.org and "
                "mxtoolbox.com/blacklists, remove the cause, then ask each list to delist them.",
                "confidence": "high",
                "sent_30days": 10.5,
            },
            {
                "rule": "OA901",
                "severity": "error",
                "workspace": "space_2",
                "mailbox": None,
                "email": None,
                "domain": None,
                "message": "could not be read: refused",
                "remedy": "Check the id of the workspace, the right to read it and the way to the service, then run the audit "
                "again.",
                "confidence": "high",
                "sent_30days": None,
            },
        ],
        "scores": {
            "overall": 80.0,
            "workspaces": {"space_1": {"score": 80.0, "mailboxes": 1, "sent_30days": 10.5}},
            "domains": {"one.example": {"score": 80.0, "mailboxes": 1, "sent_30days": 10.5}},
        },
    }


@given(REPORTS)
@settings(max_examples=60)
def test_any_report_is_json_without_figures_that_json_lacks(found: Report) -> None:
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)) == found.to_dict()


@given(REPORTS)
@settings(max_examples=60)
def test_the_text_is_80_columns_wide_at_most_and_holds_no_control_character(found: Report) -> None:
    lines = report_text(found).split("\n")

    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)


@given(REPORTS)
@settings(max_examples=30)
def test_the_drawing_is_80_columns_wide_at_most(found: Report) -> None:
    assert max(map(cell_len, drawn(found).split("\n"))) <= 80


@given(REPORTS)
@settings(max_examples=50)
def test_every_domain_with_an_error_or_worse_is_named(found: Report) -> None:
    view = overview(found)

    grave = {finding.domain for finding in found.findings if finding.severity.reaches(Severity.ERROR) and finding.mailbox}
    named = {domain.name for domain in (*view.worst, *view.rest)}

    assert {domain for domain in grave if domain and domain.isprintable()} <= named
    assert all(joined(name) in joined(report_text(found)) for name in named)


@given(REPORTS)
@settings(max_examples=50)
def test_the_worst_domains_come_first(found: Report) -> None:
    view = overview(found)
    order = [(domain.severity.rank, -1 if domain.score is None else domain.score) for domain in (*view.worst, *view.rest)]

    assert order == sorted(order)
    assert all(
        [issue.severity.rank for issue in domain.issues] == sorted(issue.severity.rank for issue in domain.issues)
        for domain in view.worst
    )


@pytest.mark.parametrize("write", [report_text, drawn])
def test_a_report_says_what_is_bad_and_what_to_do(write: Callable[[Report], str]) -> None:
    text = write(FLEET)

    assert text.startswith("Mailbox audit: 11 mailboxes, 4 domains, 2 workspaces. Score")
    assert "3 critical, 12 error, 2 warning, 0 info" in text
    assert "space_2: could not be read: list_mailboxes: 403" in text
    assert text.index("worst.example") < text.index("bad.example") < text.index("mild.example")
    assert "OA104  Nothing proves the sender: 3 mailboxes" in text
    assert joined("such as m0@worst.example: none of SPF, DKIM and DMARC") in joined(text)
    assert "Stop sending from <domain>" in text
    assert "1 domain without any finding." in text
    for unknowable in ("complaint rates", "(p=)", "which blacklists", "DNS look-ups"):
        assert unknowable in text
    assert "good.example" not in text


@pytest.mark.parametrize("write", [report_text, drawn])
def test_two_thousand_mailboxes_can_be_read(write: Callable[[Report], str]) -> None:
    boxes = [box for n in range(200) for box in mailboxes(10, domain=f"domain{n}.example", spf=n % 2 == 0, blacklists=n % 3 == 0)]

    text = write(report(reading(boxes)))

    assert len(text.splitlines()) < 250
    assert all(f"domain{n}.example" in text for n in range(200) if n % 2 or n % 3 == 0)
    assert "66 domains without any finding." in text


@pytest.mark.parametrize("write", [report_text, drawn])
def test_domains_with_warnings_only_are_summed_after_the_tenth(write: Callable[[Report], str]) -> None:
    boxes = [box for n in range(14) for box in mailboxes(1, domain=f"d{n}.example", bounced_30days=40)]

    text = write(report(reading(boxes)))

    assert "4 further domains with warnings or notes only; 0 domains without any finding." in text
    assert "Further domains with errors" not in text


@pytest.mark.parametrize("write", [report_text, drawn])
def test_every_unread_workspace_is_named(write: Callable[[Report], str]) -> None:
    failures = [reading([], workspace=f"space_{n}", error=StatusError("refused")) for n in range(1, 14)]

    text = write(report(*failures))

    assert text.startswith("Mailbox audit: 0 mailboxes, 0 domains, 13 workspaces. No score.")
    assert "space_10: could not be read: refused" in text
    assert "and space_11, space_12, space_13" in text


@pytest.mark.parametrize("write", [report_text, drawn])
def test_a_clean_report_asks_for_nothing(write: Callable[[Report], str]) -> None:
    text = write(report(reading(mailboxes(1))))

    assert "Mailbox audit: 1 mailbox, 1 domain, 1 workspace. Score 100 of 100." in text
    assert "1 domain without any finding." in text
    assert "What to do" not in text


@pytest.mark.parametrize("write", [report_text, drawn])
def test_a_mailbox_that_was_not_judged_shows_under_its_domain_without_a_score(write: Callable[[Report], str]) -> None:
    items = [
        Undecodable(index=0, id="mailbox_1", error="$.data[0].spf: expected bool, got str", fields={"email": "a@lost.example"})
    ]

    text = write(report(reading([], undecodable=items)))

    assert "lost.example" in text
    assert "not scored, 0 mailboxes" in text
    assert joined("a@lost.example: not what the interface says") in joined(text)


def test_a_mailbox_without_any_readable_name_shows_under_its_workspace() -> None:
    text = report_text(
        report(reading([], undecodable=[Undecodable(index=3, id=None, error="$.data[3]: expected object, got int")]))
    )

    assert "space_1: not what the interface says: $.data[3]: expected object, got int" in text


@pytest.mark.parametrize("write", [report_text, drawn])
def test_a_mailbox_without_a_domain_shows_all_the_same(write: Callable[[Report], str]) -> None:
    assert "(no domain)" in write(report(reading([mailbox(email="", spf=False)])))


@pytest.mark.parametrize("write", [report_text, drawn])
def test_what_the_service_says_cannot_steer_a_terminal(write: Callable[[Report], str]) -> None:
    box = mailbox(email="\x1b[2J[red]a[/red]\u202e\r@evil\x07.example", status="\x1b]0;title\x07", spf=False)

    text = write(report(reading([box])))

    assert "[red]a[/red]" in text
    assert "evil?.example" in text
    assert not set(text) & set("\x1b\x07\r\u202e")


@pytest.mark.parametrize("length", [42, 43, 48, 120])
@pytest.mark.parametrize("worse", [0, 10])
def test_a_long_domain_is_never_cut_in_detail_or_in_brief(length: int, worse: int) -> None:
    domain = "-".join("abcdefghij" * 12)[: length - 8] + ".example"
    boxes = [box for n in range(worse) for box in mailboxes(1, domain=f"d{n}.example", blacklists=3)]

    text = report_text(report(reading([*boxes, *mailboxes(1, domain=domain, spf=False)])))

    assert joined(domain) in joined(text)
    assert max(map(len, text.split("\n"))) <= 80


@pytest.mark.parametrize(
    ("changes", "style"),
    [({}, "green"), ({"spf": False}, "yellow"), ({"spf": False, "dkim": False, "dmarc": False}, "red")],
)
def test_a_score_is_coloured_by_how_good_it_is(changes: dict[str, bool], style: str) -> None:
    note = {"bounced_30days": 20}
    colour = {"green": "\x1b[32m", "yellow": "\x1b[33m", "red": "\x1b[31m"}[style]

    assert f"{colour}score" in drawn(report(reading([mailbox(**note, **changes)])), colour=True)


def test_the_audit_needs_rich_for_nothing_but_drawing() -> None:
    script = "import sys; sys.modules['rich'] = None; import outreach_async.audit.text as text; print(text.report_text.__name__)"

    done = run([sys.executable, "-c", script], capture_output=True, check=True, text=True)

    assert done.stdout == "report_text\n"
