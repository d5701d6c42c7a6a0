"""The report as one HTML page. tests/tools/audit_pages.py checks it in a browser."""

from __future__ import annotations

import re
import sys
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from subprocess import run
from time import process_time

import attrs
import pytest
from hypothesis import given, settings
from support.audit import mailboxes, reading, report
from support.audit_reports import HOSTILE, VIEWS, finding, fleet, group, make_report, row, with_history, written
from support.examples import scaled
from support.pages import Page

from outreach_async.audit import Delta, Diff, Policy, PolicyUsed, Report, Severity
from outreach_async.audit.reports import write
from outreach_async.audit.reports._view import build_authentication
from outreach_async.audit.reports.brief import Brief, build_brief
from outreach_async.errors import StatusError


def page(found: Report) -> Page:
    return Page(write(found, "html"))


OURS = {tag for tag, _ in page(fleet(300, sick=0.5, compared=True)).elements}
OURS |= {tag for tag, _ in page(with_history(40.0, None, 60.0)).elements}
OURS |= {tag for tag, _ in page(report(reading([], error=StatusError("refused")))).elements}


@given(VIEWS)
@settings(max_examples=scaled(20))
def test_no_string_becomes_an_element_or_reverses_the_page(view: Report | Brief) -> None:
    text = written(view, "html")
    shown = Page(text)

    assert not shown.within
    assert {tag for tag, _ in shown.elements} <= OURS
    assert len(shown.all("script")) == len(shown.all("style")) == 1
    assert not [name for _, attributes in shown.elements for name in attributes if name.startswith("on") or name == "style"]
    assert not set(text) & set("\u202e\u2066\x1b\x00\r")
    text.encode("utf-8")


def test_every_injection_attempt_is_shown_as_plain_text() -> None:
    found = make_report([finding(email=text, message=text) for text in HOSTILE], rows=[row(email=text) for text in HOSTILE])
    words = page(found).words

    for text in HOSTILE:
        shown = "".join(character if character.isprintable() else "?" for character in text)
        assert words.count(shown) >= 2


def test_names_are_isolated_so_that_right_to_left_text_stays_local() -> None:
    text = write(make_report([finding(email="\u05d0@\u05d1.example")]), "html")

    assert "<bdi>\u05d0@\u05d1.example</bdi>" in text


@pytest.mark.parametrize("brief", [False, True])
def test_the_page_loads_nothing_from_elsewhere(brief: bool) -> None:
    found = fleet(300, sick=0.5, compared=True)
    shown = Page(written(build_brief(found) if brief else found, "html"))
    addresses = [
        attributes[name] or ""
        for _, attributes in shown.elements
        for name in ("src", "href", "action", "data", "poster")
        if name in attributes
    ]

    assert all(address.startswith("#") or address == "data:," for address in addresses)
    assert not re.search(r"url\(|@import|https?:", shown.inline["style"])
    assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\(|https?:|innerHTML|eval", shown.inline["script"])


def test_every_link_points_into_the_page() -> None:
    shown = page(fleet(300, sick=0.5, compared=True))
    ids = [attributes["id"] for _, attributes in shown.elements if "id" in attributes]

    assert len(set(ids)) == len(ids)
    assert {(link["href"] or "").removeprefix("#") for link in shown.all("a")} <= set(ids)


def test_the_content_policy_allows_only_the_pages_own_style_and_script() -> None:
    shown = page(fleet(20))
    (policy,) = [meta["content"] for meta in shown.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]

    assert policy is not None
    assert "default-src 'none'" in policy
    for kind in ("script", "style"):
        digest = b64encode(sha256(shown.inline[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_without_scripts_everything_is_shown_and_controls_are_hidden() -> None:
    found = fleet(300, sick=0.5, compared=True)
    shown = page(found)

    assert all("hidden" in attributes for tag, attributes in shown.elements if tag in {"form", "button"})
    assert len(shown.all("tr")) == 4 + len(found.groups) + len(found.rows) + len(found.findings)


def test_the_page_says_what_is_wrong_why_what_to_do_and_what_changed() -> None:
    text = page(fleet(300, sick=0.5, compared=True)).text
    order = [
        *("Stop sending from", "What to do, most urgent first", "For example", "Rule and source"),
        *(
            "What changed",
            "Resolved",
            "Changed figures",
            "At a glance",
            "Workspaces, providers",
            "Mailboxes with findings",
        ),
        *("All findings", "What this audit cannot check"),
    ]
    places = [text.rindex(each) if each.startswith(("What changed", "Resolved")) else text.index(each) for each in order]

    assert places == sorted(places)
    assert "d0.example : score 40 → 100 (better)" in page(_moved(40, 100)).text
    assert "d0.example : score 100 → 40 (worse)" in page(_moved(100, 40)).text


def test_tiles_count_mailboxes_by_their_worst_finding() -> None:
    found = report(reading([*mailboxes(2, domain="a.example", blacklists=3, spf=False), *mailboxes(3, domain="b.example")]))

    text = page(found).text

    assert "2 to stop now 0 to fix 0 to review 0 with notes only 3 without findings" in text
    assert "2,000 of the 5,000 e-mails of the last 30 days (40.0 %) came from mailboxes that must be stopped or fixed." in text


def test_implausible_volume_is_not_shown() -> None:
    assert "e-mails of the last 30 days" not in page(make_report([finding(sent_30days=9999)])).text


def test_minor_findings_are_collapsed_behind_serious_ones() -> None:
    both = page(make_report([finding("OA101"), finding("OA150"), finding("OA160")])).text
    later = page(make_report([finding("OA150")])).text

    assert "2 warnings and notes, less urgent" in both
    assert "less urgent" not in later
    assert "less urgent" not in page(make_report([finding("OA101")])).text


def test_an_empty_report_has_neither_charts_nor_tables() -> None:
    shown = page(make_report(mailboxes=0, denied=True, unreadable=["space_1"]))

    assert "Nothing could be read: the service denied access to every workspace." in shown.text
    assert not shown.all("table")
    assert "At a glance" not in shown.text


def test_the_policy_is_named_where_it_differs() -> None:
    used = PolicyUsed(name="ours", fingerprint="c0ffee", off=["OA160"], thresholds={"OA110": {"critical": 9}})
    text = page(make_report([finding("OA110")], policy=used)).text

    assert "ours c0ffee" in text
    assert "OA110 critical = 9" in text
    assert "Rules turned off OA160" in text
    assert "critical if 9 or more" in text


@pytest.mark.thorough
def test_long_lists_of_rules_and_changes_end_in_a_count() -> None:
    text = page(fleet(1000, sick=0.5, compared=True)).text
    many = make_report([finding(rule, state="new") for rule in _RULES], diff=_diff())

    assert "and 3 more tasks" in page(many).text
    assert re.search(r"and \d+ more", text)
    assert "and 2 more figures" in page(_moved(90, 80, count=14)).text


_RULES = ("OA101", "OA102", "OA103", "OA104", "OA110", "OA120", "OA130", "OA131", "OA132", "OA133", "OA140")


def test_an_audit_without_changes_shows_no_changed_values() -> None:
    text = page(make_report(diff=attrs.evolve(_diff(), new=[], resolved=[], scores=[], deltas=[]))).text

    assert "Nothing new." in text
    assert "Nothing resolved." in text
    assert "Changed figures" not in text


def _diff() -> Diff:
    found = fleet(100, sick=1.0, compared=True).diff
    assert found is not None
    return found


def _moved(before: float, after: float, count: int = 1) -> Report:
    """Return a report in which the scores of domains changed."""
    scores = [
        Delta(kind="domain", key=f"d{n}.example", name="", figure="score", before=before, after=after) for n in range(count)
    ]
    return make_report(diff=attrs.evolve(_diff(), scores=scores, deltas=[]))


def test_each_score_range_has_its_colour() -> None:
    text = write(make_report([finding()], groups=[group(key=str(score), score=score) for score in (95.0, 70.0, 10.0)]), "html")

    for kind in ("good", "warning", "critical"):
        assert f'class="score {kind}"' in text


def test_a_page_without_a_score_has_an_empty_gauge() -> None:
    scores = attrs.evolve(make_report().scores, overall=None)

    assert 'aria-label="No score"' in write(make_report(scores=scores), "html")


@pytest.mark.thorough
def test_a_chart_has_a_text_alternative() -> None:
    spoken = [svg["aria-label"] or "" for svg in page(fleet(300, sick=0.5)).all("svg")]

    assert "Score 40 of 100" in spoken
    assert any(label.startswith("Mailboxes by score. 0-19: ") for label in spoken)
    assert any(label.startswith("Findings by rule. ") for label in spoken)
    assert all(svg["role"] == "img" for svg in page(fleet(300, sick=0.5)).all("svg"))


def test_a_page_of_2000_mailboxes_stays_small_and_is_written_quickly() -> None:
    found = fleet(2000, sick=0.2, compared=True)
    began = process_time()
    text = write(found, "html")

    assert len(found.findings) > 400
    assert len(text) < 1_500_000
    assert process_time() - began < 5


@pytest.mark.thorough
def test_only_the_worst_2000_findings_are_shown_and_the_page_says_so() -> None:
    found = make_report(
        [finding(severity=Severity.INFO, mailbox=f"mailbox_{n}") for n in range(9_999)] + [finding("OA104", email="worst@x")]
    )
    shown = page(found)

    assert len(shown.all("tr")) == 1 + 2_000
    assert "The first 2,000 of 10,000; the JSON report contains all of them, and the CSV report all findings." in shown.text
    assert "worst@x" in shown.text


def test_a_finding_of_an_unknown_rule_is_shown() -> None:
    old = attrs.evolve(finding(), rule="OA999")

    for form in ("html", "terminal", "markdown"):
        assert "OA999" in write(make_report([old]), form)


def test_a_report_lists_authentication_per_domain() -> None:
    boxes = [
        *mailboxes(3, domain="a.example", spf=False),
        *mailboxes(1, domain="b.example", dkim=False),
        *mailboxes(3, domain="b.example")[1:],
    ]
    rows = re.findall(r"<tr data-severity.*?</tr>", write(report(reading(boxes)), "html").partition("All findings")[0], re.DOTALL)

    shown = [re.findall(r'badge \w+">(yes|no|some)</span>(?:<span class="under">(.*?)<)?', row) for row in rows[:2]]
    assert shown == [[("no", ""), ("yes", ""), ("yes", "")], [("yes", ""), ("some", "2 of 3"), ("yes", "")]]


def test_authentication_that_the_policy_does_not_check_is_unknown() -> None:
    found = report(reading(mailboxes(1, spf=False)), policy=Policy.of({"off": ["OA101"]}))

    assert [(each.status, each.tone) for each in build_authentication(found)("one.example", 1)] == [
        ("-", "unknown"),
        ("yes", "good"),
        ("yes", "good"),
    ]


def test_the_ring_has_the_colour_of_the_verdict() -> None:
    boxes = [*mailboxes(1, blacklists=3), *(box for n in range(25) for box in mailboxes(4, domain=f"d{n}.example"))]

    assert '<circle class="ring arc critical"' in write(report(reading(boxes)), "html")
    assert '<circle class="ring arc good"' in write(report(reading(boxes[1:])), "html")


def test_a_dns_record_of_a_remedy_is_code() -> None:
    text = write(make_report([finding("OA103")]), "html")

    assert "<code>v=DMARC1; p=none; rua=mailto:dmarc@one.example</code>" in text


def test_every_score_with_a_critical_finding_looks_critical() -> None:
    spaces = [group("workspace", "space_1", score=95.0, severity=Severity.CRITICAL)]

    assert '<b class="score critical">95</b>' in write(make_report([finding("OA110")], groups=spaces), "html")


@pytest.mark.covers
@pytest.mark.thorough
def test_a_page_without_its_extra_says_which_one_to_install() -> None:
    script = (
        "import sys; sys.modules['jinja2'] = None\n"
        "from outreach_async.audit.reports import WRITERS, write\n"
        "from support.audit_reports import make_report\n"
        "print(write(make_report(), 'markdown')[:7])\n"
        "try: write(make_report(), 'html')\n"
        "except Exception as error: print(type(error).__name__, error)"
    )

    done = run([sys.executable, "-c", script], capture_output=True, check=True, text=True, cwd=Path(__file__).parents[1])

    assert done.stdout.splitlines() == [
        "# Mailb",
        "InvalidRequest form: html needs the extra 'html'; run pip install 'outreach_async[html]'",
    ]


def test_a_line_never_breaks_between_a_figure_and_its_unit() -> None:
    messages = ["15.2 % bounced in 30 days", "older than 1 day", "in 5 mailboxes", "since 22:23 UTC", "7 sites", "a %", "3 %x"]
    page = write(make_report([finding(message=message) for message in messages]), "html")
    shown = [message for message in Page(page).words if message.replace("\xa0", " ").strip() in messages]
    assert {message.strip() for message in shown} == {
        *(
            "15.2\xa0% bounced in 30\xa0days",
            "older than 1\xa0day",
            "in 5 mailboxes",
            "since 22:23\xa0UTC",
            "7 sites",
            "a %",
            "3 %x",
        )
    }


def test_other_formats_have_plain_spaces() -> None:
    audited = make_report([finding(message="15.2 % bounced in 30 days")])
    assert all("\xa0" not in write(audited, form) for form in ("terminal", "markdown", "csv", "json"))
