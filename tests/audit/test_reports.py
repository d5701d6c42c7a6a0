from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from subprocess import run
from typing import Any

import pytest
from hypothesis import given, settings
from rich.cells import cell_len
from rich.console import Console
from support.audit import REPORTS, mailbox, mailboxes, reading, report
from support.audit_reports import AT, VIEWS, finding, fleet, make_report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import Delta, Diff, Report, Severity
from outreach_async.audit.reports import StyledReport, write
from outreach_async.audit.reports.brief import Brief
from outreach_async.errors import StatusError
from outreach_async.models import Undecodable


def render_text(found: Report | Brief) -> str:
    return write(found, "terminal")


def drawn(found: Report | Brief, *, width: int = 80, colour: bool = False) -> str:
    page = io.StringIO()
    Console(file=page, width=width, color_system="standard" if colour else None, force_terminal=colour).print(StyledReport(found))
    return page.getvalue()


def joined(text: str) -> str:
    """Remove the whitespace of a text, so that a word broken over two lines is found."""
    return "".join(text.split())


def joined_lines(text: str) -> str:
    return " ".join(text.split())


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


@pytest.mark.thorough
def test_the_repr_of_a_report_shows_its_numbers_and_not_its_findings() -> None:
    found = report(reading(mailboxes(2000, blacklists=1)), reading([], workspace="space_2", error=StatusError("403")))
    assert repr(found) == ("<Report workspaces=2 unreadable=1 mailboxes=2000 score=45.0 critical=0 error=2001 warning=1 info=0>")


@pytest.mark.thorough
@given(REPORTS | VIEWS)
@settings(max_examples=scaled(40), phases=WITHOUT_SHRINKING)
def test_text_has_at_most_80_columns_and_no_control_characters(view: Report | Brief) -> None:
    lines = write(view, "terminal").split("\n")
    assert max(map(len, lines)) <= 80
    assert all(line.isprintable() for line in lines)
    assert max(map(cell_len, drawn(view).split("\n"))) <= 80


@pytest.mark.thorough
@given(REPORTS)
@settings(max_examples=scaled(25), phases=WITHOUT_SHRINKING)
def test_the_domains_with_the_most_severe_findings_are_named_worst_first(found: Report) -> None:
    text = joined(render_text(found))
    checked = [finding for finding in found.findings if finding.mailbox and finding.rule != "OA902"]  # OA902 was not decoded
    grave = {finding.domain for finding in checked if finding.severity.reaches(Severity.ERROR)}
    shown = [group.key for group in found.groups if group.kind == "domain" and group.severity is not None]

    assert {domain for domain in grave if domain and domain.isprintable()} <= set(shown)
    table = text.partition("DOMAINS,WORSTFIRST")[2]
    assert all(joined(name) in table for name in shown if name.isprintable())


def test_a_report_says_what_is_wrong_and_what_to_do() -> None:
    text = render_text(FLEET)

    assert text.startswith("Mailbox audit: 11 mailboxes, 4 domains, 2 workspaces. Score")
    assert "3 critical, 12 errors, 2 warnings, 0 notes" in text
    assert "space_2: could not be read: list_mailboxes: 403" in text
    assert text.index("\nworst.example") < text.index("\nbad.example") < text.index("\nmild.example")
    assert joined("OA104  No sender authentication: 3 mailboxes on worst.example") in joined(text)
    assert joined("For example m0@worst.example: SPF, DKIM and DMARC are all missing") in joined(text)
    assert joined("Pause the mailbox: take it out of its campaigns. Publish SPF and DMARC for worst.example") in joined(text)
    assert "1 domain without findings." in text
    for unknowable in ("complaint rates", "(p=)", "names of the blacklists", "DNS lookups"):
        assert unknowable in text
    assert "good.example" not in text


@pytest.mark.parametrize(
    ("severity", "verdict"),
    [
        ("critical", "Stop sending from 1 mailbox on 1 domain until the problem is fixed."),
        ("error", "Fix 1 mailbox on 1 domain today; nothing is critical."),
        ("warning", "Watch 1 mailbox on 1 domain; nothing is broken."),
        ("info", "No risks found; there are 2 notes."),
    ],
)
def test_the_verdict_is_that_of_the_worst_finding(severity: str, verdict: str) -> None:
    note = finding("OA133", severity=Severity.INFO)
    assert verdict in render_text(make_report([note, finding(severity=Severity(severity))]))


def test_a_server_is_named_where_mailboxes_share_it() -> None:
    shared = {"domain_ip": "192.0.2.1", "server_ip": "192.0.2.9", "type": "SMTP & IMAP"}
    text = render_text(report(reading([mailbox(**shared, blacklists=1), mailbox(id="mailbox_2", **shared)])))
    assert "OA172 Server shared with a blacklisted mailbox: 2 mailboxes on 192.0.2.9" in joined_lines(text)
    assert "Mailboxes: 0 to stop, 1 to fix, 1 to watch, 0 with nothing to do." in text
    assert "NOT READ" not in text


def test_a_clean_and_an_empty_report_say_so_and_ask_for_nothing() -> None:
    clean = render_text(report(reading(mailboxes(1))))

    assert "Mailbox audit: 1 mailbox, 1 domain, 1 workspace. Score 100 of 100." in clean
    assert "No problems found." in clean
    assert "1 domain without findings." in clean
    assert "What to do" not in clean
    assert "No mailboxes were checked." in render_text(make_report(mailboxes=0))
    denied = render_text(make_report(mailboxes=0, denied=True))
    assert "Nothing could be read: the service denied access to every workspace." in denied


@pytest.mark.thorough
def test_changes_since_the_earlier_audit_are_listed() -> None:
    text = joined_lines(render_text(fleet(300, sick=0.4, compared=True)))

    assert "Since 2026-03-01 08:00 UTC (24 hours): " in text
    assert "4 resolved" in text
    assert re.search(r"(?i)CRITICAL OA110 On blacklists: \d+ mailboxes on [^(]+ \(\d+ new\)", text)
    assert "ERROR OA110 On blacklists: 4 mailboxes on gone.example" in text
    assert "Overall: mailboxes 304 -> 300" in text
    assert "Overall" not in joined_lines(render_text(fleet(300, sick=0.4)))


def moved(*deltas: Delta, **about: Any) -> Report:
    values: dict[str, Any] = {"new": [], "unchanged": [], "resolved": [], "scores": list(deltas)}
    return make_report(diff=Diff(at=AT - 86_400, **(values | about)))


def delta(figure: str, before: float | None, after: float | None, **about: Any) -> Delta:
    values: dict[str, Any] = {"kind": "mailbox", "key": "mailbox_1", "name": "ann@one.example"}
    return Delta(figure=figure, before=before, after=after, **(values | about))


def test_findings_that_were_not_judged_again_are_not_called_resolved() -> None:
    text = render_text(moved(not_judged=[finding()]))
    assert "0 findings, 1 before; 0 new, 0 resolved, 0 unchanged, 1 not checked this time." in joined_lines(text)


def test_the_first_ten_changed_values_are_listed_and_a_severity_is_named() -> None:
    moves = [delta("blacklists", 0, n, name=f"m{n}@one.example") for n in range(1, 13)]
    text = render_text(moved(*moves, delta("severity", 2, 400, rule="OA120")))
    assert text.count("blacklists 0 -> ") == 9
    assert "and 3 more changed figures" in text
    assert "severity warning -> critical" in render_text(moved(delta("severity", 2, 4, rule="OA120")))


MORE_IS_BETTER = {"score", "replied_num", "opened_14days", "avg_open_rate", "avg_click_rate"}
MORE_IS_WORSE = {
    *("critical", "error", "warning", "severity"),
    *("bounces_num", "bounced_30days", "unsubscribed_num", "blacklists", "listed", "placeholders", "days"),
}


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_every_view_says_which_change_is_better(form: str) -> None:
    deltas = [delta(figure, 1, 2) for figure in ("score", "blacklists", "sent")]
    text = joined_lines(write(moved(*deltas), form)).replace("&gt;", ">")
    assert [text.count(f"1 -> 2 ({judged})") for judged in ("better", "worse")] == [1, 1]


def test_every_figure_has_a_direction_and_a_new_one_has_none() -> None:
    neutral = {"info", "mailboxes", "campaigns", "daily_limit", "sent", "sent_today", "sent_30days", "left_to_send"}
    known = {*MORE_IS_BETTER, *MORE_IS_WORSE, *neutral}

    def judged(before: float | None, after: float) -> set[str]:
        shown = (joined_lines(render_text(moved(delta(name, before, after, name=f"<{name}>")))) for name in [*known, "mine"])
        return {
            f"{found[1]} {found[2]}" for text in shown if (found := re.search(r"<(\w+)>: [^>]*->[^(]*\((better|worse)\)", text))
        }

    assert judged(1, 2) == {*(f"{name} better" for name in MORE_IS_BETTER), *(f"{name} worse" for name in MORE_IS_WORSE)}
    assert judged(2, 1) == {*(f"{name} worse" for name in MORE_IS_BETTER), *(f"{name} better" for name in MORE_IS_WORSE)}
    assert judged(None, 2) == set()
    assert {name for found in fleet(200, sick=0.5).findings for name in found.figures} <= known


def test_the_fifty_worst_domains_are_listed_and_the_others_counted() -> None:
    boxes = [box for n in range(60) for box in mailboxes(1, domain=f"d{n}.example", bounced_30days=40, blacklists=3 * (n < 9))]
    text = render_text(report(reading([*boxes, *mailboxes(1, domain="good.example")])))
    assert len(re.findall(r"(?m)^d\d+\.example ", text)) == 50
    assert all(f"\nd{n}.example " in text for n in range(9))
    assert "10 more domains with findings; 1 domain without findings." in text


def test_every_unread_workspace_is_named() -> None:
    failures = [reading([], workspace=f"space_{n}", error=StatusError("refused")) for n in range(1, 14)]
    text = render_text(report(*failures))
    assert text.startswith("Mailbox audit: 0 mailboxes, 0 domains, 13 workspaces. No score.")
    assert "space_10: could not be read: refused" in text
    assert "and space_11, space_12, space_13" in text


def test_a_mailbox_that_was_not_judged_is_the_example_of_its_task() -> None:
    named = Undecodable(index=0, id="mailbox_1", error="$.data[0].spf: expected bool", fields={"email": "a@lost.example"})
    unnamed = Undecodable(index=3, id=None, error="$.data[3]: expected object, got int")
    texts = [joined(render_text(report(reading([], undecodable=[each])))) for each in (named, unnamed)]
    assert joined("a@lost.example: does not match the documented API") in texts[0]
    assert joined("space_1: does not match the documented API: $.data[3]: expected object, got int") in texts[1]


@pytest.mark.parametrize("write", [render_text, drawn])
def test_strings_of_the_service_cannot_control_a_terminal(write: Callable[[Report], str]) -> None:
    box = mailbox(email="\x1b[2J[red]a[/red]\u202e\r@evil\x07.example", status="\x1b]0;title\x07", spf=False)
    text = write(report(reading([box])))
    assert "[red]a[/red]" in joined(text)
    assert "evil?.example" in text
    assert not set(text) & set("\x1b\x07\r\u202e")


@pytest.mark.parametrize("length", [42, 43, 48, 120])
@pytest.mark.parametrize("worse", [0, 10])
def test_a_long_domain_is_never_cut(length: int, worse: int) -> None:
    domain = "-".join("abcdefghij" * 12)[: length - 8] + ".example"
    boxes = [box for n in range(worse) for box in mailboxes(1, domain=f"d{n}.example", blacklists=3)]
    text = render_text(report(reading([*boxes, *mailboxes(1, domain=domain, spf=False)])))
    assert joined(domain) in joined(text)
    assert max(map(len, text.split("\n"))) <= 80


@pytest.mark.parametrize("write", [render_text, drawn])
def test_a_dns_record_stays_on_one_line(write: Callable[[Report], str]) -> None:
    text = write(make_report([finding("OA103")]))
    assert "v=DMARC1; p=none; rua=mailto:dmarc@one.example" in text
    assert "`" not in text


def test_authentication_is_shown_for_each_domain() -> None:
    boxes = [*mailboxes(2, domain="a.example", spf=False), *mailboxes(1, dkim=False), *mailboxes(3)[1:]]
    lines = [line.split() for line in render_text(report(reading(boxes))).splitlines()]
    assert ["Domain", "Score", "SPF", "DKIM", "DMARC", "Critical", "Errors", "Warnings"] in lines
    assert ["a.example", "50", "no", "yes", "yes", "0", "2", "0"] in lines
    assert ["one.example", "83.3", "yes", "some", "yes", "0", "1", "0"] in lines


def test_text_terminal_and_markdown_have_the_same_lines() -> None:
    found = fleet(200, sick=0.4, compared=True)
    words = [re.sub(r"[^0-9a-z]", "", write_(found).lower()) for write_ in (render_text, drawn)]
    assert words[0] == words[1]
    marked = re.sub(r"[^0-9a-z]", "", re.sub(r"^\d+\.", "", write(found, "markdown"), flags=re.MULTILINE).lower())
    assert marked == "mailboxaudit" + words[0]


def test_terminal_output_uses_the_width_of_the_console() -> None:
    assert max(map(cell_len, drawn(FLEET, width=200).split("\n"))) > 100


@pytest.mark.parametrize(
    ("changes", "shown"),
    [({}, "\x1b[32m100"), ({"spf": False}, "\x1b[33m50"), ({"spf": False, "dkim": False, "dmarc": False}, "\x1b[31m1.2")],
)
def test_a_score_has_the_colour_of_its_range(changes: dict[str, bool], shown: str) -> None:
    assert shown in drawn(report(reading([mailbox(bounced_30days=20, **changes)])), colour=True)


def test_a_count_of_findings_has_the_colour_of_its_severity() -> None:
    text = drawn(report(reading(mailboxes(1, spf=False))), colour=True)
    assert re.search(r"one\.example.*\x1b\[2m0\x1b\[0m +\x1b\[1;31m1\x1b\[0m +\x1b\[2m0", text)


@pytest.mark.thorough
def test_only_terminal_output_needs_rich() -> None:
    block = "import sys; sys.modules['rich'] = None"
    script = f"{block}; from outreach_async.audit.reports import write; print(write.__name__)"
    done = run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert done.stdout == "write\n"
