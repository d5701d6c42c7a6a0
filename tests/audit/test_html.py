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
from support.audit_reports import HOSTILE, VIEWS, finding, fleet, make_report, row, with_history
from support.examples import WITHOUT_SHRINKING, scaled
from support.pages import Page

from outreach_async.audit import Delta, Diff, Policy, Report, Severity
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import Brief, build_brief
from outreach_async.errors import StatusError


def page(found: Report) -> Page:
    return Page(write(found, "html"))


COMPARED = page(fleet(300, sick=0.5, compared=True))
"""The page of many mailboxes, compared with the day before. Tests read it, and change nothing."""

OURS = {tag for tag, _ in COMPARED.elements}
OURS |= {tag for tag, _ in page(with_history(40.0, None, 60.0)).elements}
OURS |= {tag for tag, _ in page(report(reading([], error=StatusError("refused")))).elements}


@pytest.mark.thorough
@given(VIEWS)
@settings(max_examples=scaled(20), phases=WITHOUT_SHRINKING)
def test_no_string_becomes_an_element_or_reverses_the_page(view: Report | Brief) -> None:
    text = write(view, "html")
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


@pytest.mark.thorough
def test_the_page_loads_nothing_from_elsewhere_and_its_links_point_into_it() -> None:
    brief = Page(write(build_brief(fleet(300, sick=0.5, compared=True)), "html"))
    for shown in (COMPARED, brief):
        ids = [attributes["id"] for _, attributes in shown.elements if "id" in attributes]
        addresses = {value or "" for _, each in shown.elements for name, value in each.items() if name in LOADING}

        assert len(set(ids)) == len(ids)
        assert addresses <= {"data:,", *(f"#{id_}" for id_ in ids)}
        assert not re.search(r"url\(|@import|https?:", shown.inline["style"])
        assert not re.search(r"fetch|XMLHttpRequest|WebSocket|import\(|https?:|innerHTML|eval", shown.inline["script"])


LOADING = {"src", "href", "action", "data", "poster"}


def test_the_content_policy_allows_only_the_pages_own_style_and_script() -> None:
    (policy,) = [meta["content"] for meta in COMPARED.all("meta") if meta.get("http-equiv") == "Content-Security-Policy"]

    assert policy is not None
    assert "default-src 'none'" in policy
    for kind in ("script", "style"):
        digest = b64encode(sha256(COMPARED.inline[kind].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_implausible_volume_is_not_shown() -> None:
    assert "e-mails of the last 30 days" not in page(make_report([finding(sent_30days=9999)])).text


def test_the_policy_is_named_where_it_differs() -> None:
    used = Policy(name="ours", fingerprint="c0ffee", off=["OA160"], thresholds={"OA110": {"critical": 9}})
    text = page(make_report([finding("OA110")], policy=used)).text

    assert "ours c0ffee" in text
    assert "OA110 critical = 9" in text
    assert "Rules turned off : OA160" in text
    assert "critical if 9 or more" in text


@pytest.mark.thorough
def test_long_lists_of_rules_and_changes_end_in_a_count() -> None:
    text = page(fleet(1000, sick=0.5, compared=True)).text
    many = make_report([finding(rule, state="new") for rule in _RULES], diff=_diff())
    assert page(many).text.count("( new )") == len(_RULES)
    assert re.search(r"and \d+ more", text)
    assert "and 4 more changed figures" in page(_moved(90, 80, count=14)).text


_RULES = ("OA101", "OA102", "OA103", "OA104", "OA110", "OA120", "OA130", "OA131", "OA132", "OA133", "OA140")


def test_an_audit_without_changes_shows_no_changed_values() -> None:
    text = page(make_report(diff=attrs.evolve(_diff(), new=[], resolved=[], scores=[], deltas=[]))).text
    assert "0 new, 0 resolved" in text
    assert "What changed" not in text
    assert " -> " not in text


def _diff() -> Diff:
    found = fleet(100, sick=1.0, compared=True).diff
    assert found is not None
    return found


def _moved(before: float, after: float, count: int = 1) -> Report:
    scores = [
        Delta(kind="domain", key=f"d{n}.example", name="", figure="score", before=before, after=after) for n in range(count)
    ]
    return make_report(diff=attrs.evolve(_diff(), scores=scores, deltas=[]))


@pytest.mark.thorough
def test_a_page_of_2000_mailboxes_stays_small_and_is_written_quickly() -> None:
    found = fleet(2000, sick=0.2, compared=True)
    began = process_time()
    text = write(found, "html")

    assert len(found.findings) > 400
    assert len(text) < 1_500_000
    assert process_time() - began < 5


def test_a_finding_of_an_unknown_rule_is_shown() -> None:
    old = attrs.evolve(finding(), rule="OA999")
    for form in ("html", "terminal", "markdown"):
        assert "OA999" in write(make_report([old]), form)


def test_authentication_that_the_policy_does_not_check_is_unknown() -> None:
    found = report(reading(mailboxes(1, spf=False)), policy=Policy.of({"off": ["OA101"]}))
    states = re.findall(r'<td data-label="(?:SPF|DKIM|DMARC)"><span class="(\w+)" dir="auto">(.+?)</span>', write(found, "html"))
    assert states == [("unknown", "-"), ("good", "yes"), ("good", "yes")]


def test_a_dns_record_is_code_and_names_keep_their_direction_to_themselves() -> None:
    text = write(make_report([finding("OA103", email="\u05d0@\u05d1.example")]), "html")
    assert '<code dir="auto">v=DMARC1; p=none; rua=mailto:dmarc@one.example</code>' in text
    assert '<b dir="auto">\u05d0@\u05d1.example</b>' in text
    assert "<bdi>\u05d0@\u05d1.example</bdi>" in write(make_report([finding("OA104", email="\u05d0@\u05d1.example")]), "html")


@pytest.mark.covers
@pytest.mark.thorough
def test_a_format_without_its_extra_says_which_one_to_install() -> None:
    script = (
        "import sys; sys.modules |= {'jinja2': None, 'prometheus_client': None}\n"
        "from outreach_async.audit.reports import write\n"
        "from support.audit_reports import make_report\n"
        "print(write(make_report(), 'markdown')[:7])\n"
        "for form in ('html', 'prometheus'):\n"
        "    try: write(make_report(), form)\n"
        "    except Exception as error: print(type(error).__name__, error)"
    )

    done = run([sys.executable, "-c", script], capture_output=True, check=True, text=True, cwd=Path(__file__).parents[1])

    assert done.stdout.splitlines() == [
        "# Mailb",
        "InvalidRequest form: html needs the extra 'html'; run pip install 'outreach_async[html]'",
        "InvalidRequest prometheus_client is not installed; run: pip install 'outreach_async[prometheus]'",
    ]


def test_a_line_never_breaks_between_a_figure_and_its_unit() -> None:
    messages = ["15.2 % bounced in 30 days", "older than 1 day", "in 5 mailboxes", "since 22:23 UTC", "7 sites", "a %", "3 %x"]
    audited = make_report([finding(message=message) for message in messages])
    page = write(audited, "html")
    expected = "15.2\xa0% bounced in 30\xa0days|older than 1\xa0day|in 5 mailboxes|since 22:23\xa0UTC|7 sites|a %|3 %x"

    shown = {word.strip() for word in Page(page).words}
    assert shown >= set(expected.split("|"))
    assert not shown & (set(messages) - set(expected.split("|")))
    assert all("\xa0" not in write(audited, form) for form in ("terminal", "markdown", "csv", "json"))


def test_everything_is_shown_without_scripts_but_the_buttons_that_copy() -> None:
    assert COMPARED.all("button") == [{"type": "button", "class": "copy", "hidden": None}] * 2  # what to stop, and what to fix
    assert not COMPARED.all("form")


@pytest.mark.thorough
def test_the_page_says_what_to_stop_first_then_tasks_workspaces_and_details() -> None:
    text = COMPARED.text
    order = [
        *("Stop sending from", "Stop now", "No trend yet", "Workspaces, worst first", "What to do, most urgent first"),
        *("Resolved", "What changed", "History", "Domains, worst first", "What this audit cannot check"),
        *("Mailboxes with findings", "Providers and servers", "How this audit scores"),
    ]

    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "d0.example : score 40 -> 100 (better)" in page(_moved(40, 100)).text
    assert "d0.example : score 100 -> 40 (worse)" in page(_moved(100, 40)).text


def test_every_address_to_stop_is_listed_once() -> None:
    boxes = mailboxes(20, domain="a.example", blacklists=3, spf=False, dkim=False, dmarc=False)
    shown = write(report(reading(boxes)), "html")

    (stopped,) = re.findall(r'<div class="names".*?</section>', shown, re.DOTALL)
    addresses = re.findall(r"<li><bdi>(.*?)</bdi></li>", stopped)
    assert sorted(addresses) == sorted(box.email for box in boxes)
    assert "Stop now: 20 mailboxes" in shown
    assert "Stop now" not in write(report(reading(mailboxes(1, spf=False))), "html")


def test_the_page_counts_mailboxes_by_what_to_do_with_them() -> None:
    found = report(reading([*mailboxes(2, domain="a.example", blacklists=3, spf=False), *mailboxes(3, domain="b.example")]))
    text = page(found).text
    assert "Mailboxes: 2 to stop, 0 to fix, 0 to watch, 3 with nothing to do." in text
    assert "2,000 of the 5,000 e-mails of the last 30 days (40.0 %) came from mailboxes that must be stopped or fixed." in text


def test_only_bad_mailboxes_with_a_known_volume_count_for_their_share() -> None:
    known = finding("OA150", mailbox="mailbox_2", severity=Severity.WARNING, sent_30days=300)
    found = [finding(sent_30days=400), finding(mailbox="mailbox_3", sent_30days=None), known]
    text = page(make_report(found, mailboxes=3)).text
    assert "Mailboxes: 0 to stop, 1 to fix, 1 to watch, 1 with nothing to do." in text
    assert "400 of the 1,000 e-mails of the last 30 days (40.0 %)" in text


def test_each_task_has_its_severity_and_rule_and_an_anchor() -> None:
    shown = page(make_report([finding("OA101"), finding("OA150"), finding("OA160")]))
    tasks = [item["id"] for item in shown.all("li") if "id" in item]
    assert tasks == ["OA101-error", "OA150-warning", "OA160-info"]
    assert re.search(r"error OA101 No SPF : .*warning OA150 Falling open rate : .*info OA160 ", shown.text)


def test_a_task_lists_its_worst_findings_and_counts_the_others() -> None:
    known = [finding("OA150", mailbox=f"mailbox_{at}", email=f"m{at:03}@one.example", message="was seen") for at in range(1_030)]
    text = page(make_report([attrs.evolve(known[-1], state="new", confidence="low"), *known[-2::-1]])).text

    assert text.count(": was seen") == 101  # an example, and the findings on demand
    assert "and 930 more findings" in text
    assert "m000@one.example" in text
    assert "m1029@one.example" not in text
    few = page(make_report([attrs.evolve(known[0], state="new", confidence="low")])).text
    assert "m000@one.example : was seen (sample too small to be certain) new" in few


def test_an_empty_report_has_neither_trends_nor_tables() -> None:
    shown = page(make_report(mailboxes=0, denied=True, unreadable=["space_1"]))
    assert "Nothing could be read: the service denied access to every workspace." in shown.text
    assert "No trend yet" in shown.text
    assert not shown.all("table")
    assert not shown.all("svg")


@pytest.mark.parametrize(
    ("score", "severity", "tone"), [(97.0, "critical", "critical"), (97.0, "info", "good"), (70.0, "error", "warning")]
)
def test_the_score_has_the_colour_of_the_verdict(score: float, severity: str, tone: str) -> None:
    found = make_report([finding(severity=Severity(severity))])
    scored = attrs.evolve(found, scores=attrs.evolve(found.scores, overall=score))
    assert f'<p class="score {tone}"><span class="small soft">Score of 100</span><b>{score:g}</b>' in write(scored, "html")
    unknown = attrs.evolve(found, scores=attrs.evolve(found.scores, overall=None))
    assert '<p class="score info"><span class="small soft">Score of 100</span><b>-</b>' in write(unknown, "html")


def test_a_report_lists_authentication_per_domain() -> None:
    boxes = [
        *mailboxes(3, domain="a.example", spf=False),
        *mailboxes(1, domain="b.example", dkim=False),
        *mailboxes(3, domain="b.example")[1:],
    ]
    (table,) = re.findall(r">Domains, worst first</h2>.*?</table>", write(report(reading(boxes)), "html"), re.DOTALL)
    rows = re.findall(r"<tr>.*?</tr>", table.partition("<tbody>")[2], re.DOTALL)

    shown = [re.findall(r'"auto">(yes|no|some)</span>(?:<span class="under">(.*?)<)?', row) for row in rows]
    assert shown == [[("no", ""), ("yes", ""), ("yes", "")], [("yes", ""), ("some", "2 of 3"), ("yes", "")]]


@pytest.mark.thorough
def test_long_tables_end_in_a_count() -> None:
    found = make_report([finding()], rows=[row(id=f"mailbox_{at}") for at in range(600)])
    shown = page(found)
    assert "The first 500 of 600; the JSON report has all." in shown.text
    assert sum(tag == "tr" for tag, _ in shown.elements) == 1 + 500


def test_a_workspace_has_a_row_with_its_name_score_change_and_tasks() -> None:
    sick = mailboxes(2, domain="a.example", spf=False)
    later = report(reading(sick), reading(mailboxes(2, domain="b.example"), workspace="space_2"))
    earlier = report(reading([attrs.evolve(box, spf=True) for box in sick]), reading([], workspace="space_2"))
    text = page(attrs.evolve(later, names={"space_1": "acme"}).since(earlier)).text

    assert "Workspaces, worst first Workspace Score Tasks Change Sent, 30 days acme space_1 " in text
    assert re.search(r"acme space_1 [\d.]+ 1 error -[\d.]+ \(worse\) 2,000 1 more workspace", text)
    assert "space_2 100 no tasks 2,000" in text
    assert "Sent, 30 days Change" not in page(later).text


def test_a_workspace_that_was_not_read_is_first_and_says_so() -> None:
    text = page(report(reading(mailboxes(1, spf=False)), reading([], workspace="space_2", error=StatusError("refused")))).text
    assert "Sent, 30 days space_2 - not read completely, 1 error - space_1 " in text
    read = attrs.evolve(report(reading([]), reading([], workspace="space_2")), unreadable=["space_2"])
    assert "Sent, 30 days space_2 - not read completely - 1 more workspace" in page(read).text


def test_a_report_of_one_workspace_is_titled_with_its_name_and_has_no_cards() -> None:
    text = page(attrs.evolve(report(reading(mailboxes(1, spf=False))), names={"space_1": "acme"})).text
    assert "Mailbox audit of acme (space_1)" in text
    assert "Workspaces, worst first" not in text
