"""The Markdown report, parsed by a Markdown parser."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import REPORTS
from support.audit_reports import AT, HOSTILE, HOSTILE_REPORTS, finding, fleet, make_report
from support.examples import scaled
from support.pages import MARKDOWN_TOKENS, tokens

from outreach_async.audit import PolicyUsed, Report
from outreach_async.audit._report import Delta, Diff
from outreach_async.audit.reports import write
from outreach_async.audit.reports._text import escape_markdown, format_code


@pytest.mark.thorough
@given(HOSTILE_REPORTS)
@settings(max_examples=scaled(25))
def test_no_string_becomes_markup(report: Report) -> None:
    assert {token.type for token in tokens(write(report, "markdown"))} <= MARKDOWN_TOKENS


@pytest.mark.thorough
@given(REPORTS)
@settings(max_examples=scaled(20))
def test_every_row_of_a_table_has_the_same_number_of_cells(report: Report) -> None:
    text = write(report, "markdown")

    for block in text.split("\n\n"):
        if block.startswith("| "):
            heads = block.splitlines()[0].count(" | ")
            assert all(line.replace("\\|", "").count(" | ") == heads for line in block.splitlines())


def test_every_name_renders_unchanged() -> None:
    for text in HOSTILE:
        shown = "".join(character if character.isprintable() else "?" for character in text)
        (span,) = [token for token in tokens(f"a {format_code(text)}") if token.type == "code_inline"]
        assert span.content.replace("\\|", "|").strip() == shown.strip()
        assert "".join(token.content for token in tokens(f"a {escape_markdown(text)}") if token.type == "text") == f"a {shown}"


def test_a_dns_record_can_be_copied_from_code() -> None:
    text = write(make_report([finding("OA103"), finding("OA101")]), "markdown")

    spans = [token.content for token in tokens(text) if token.type == "code_inline"]
    assert {"v=DMARC1; p=none; rua=mailto:dmarc@one.example", "_dmarc.one.example", "_dmarc.<domain>", "v=spf1", "~all"} <= set(
        spans
    )
    assert "`v=DMARC1; p=none; rua=mailto:dmarc@one.example`" in text


@given(st.text(alphabet="-+#=>*_.: 1a)`~|<&;[]!@\\"))
@settings(max_examples=scaled(200))
def test_the_start_of_a_line_is_never_markup(text: str) -> None:
    found = make_report(
        [finding("OA901", mailbox=None, email=None, domain=None, message=text, workspace="x")], policy=PolicyUsed()
    )
    shown = "".join(token.content for token in tokens(write(found, "markdown")) if token.type in {"text", "code_inline"})

    assert f"x: {text}".rstrip() in shown


@pytest.mark.parametrize("remedy", ["- stop", "+ stop", "# stop", "= stop", "> stop", "1. stop", "12) stop"])
def test_a_remedy_cannot_begin_a_list_a_heading_or_a_quotation(remedy: str) -> None:
    text = write(make_report([attrs.evolve(finding(), remedy=remedy)]), "markdown")

    assert remedy in [token.content for token in tokens(text) if token.type == "text"]
    assert {token.type for token in tokens(text)} <= MARKDOWN_TOKENS


def test_text_that_is_no_markup_has_no_backslashes() -> None:
    text = "15.2 % (97 of 640; +2) in space_1, SMTP & IMAP at 08:00 -> a-b #"

    assert escape_markdown(text) == text


def test_addresses_and_mentions_do_not_become_links() -> None:
    assert escape_markdown("http://x www.x.example @ann :fire: #12") == r"http\://x www\.x.example \@ann \:fire: \#12"


def test_the_columns_of_a_table_are_aligned() -> None:
    rows = [line for line in write(fleet(300, sick=0.4), "markdown").splitlines() if line.startswith("| ")]

    assert len(rows) > 5
    assert len({len(row) for row in rows}) == 1


def test_a_blank_name_is_still_a_code_span() -> None:
    assert format_code("") == "`  `"


def test_actions_come_first_then_changes_then_domains() -> None:
    text = write(fleet(300, sick=0.4, compared=True), "markdown")
    order = [
        "# Mailbox audit",
        "**Stop sending from",
        "## What to do",
        "## Resolved",
        "## What changed",
        "## Domains",
        "## Findings by domain",
        "## What this audit cannot check",
    ]

    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "- **ERROR** OA110 **On blacklists**: 2 mailboxes on `gone.example`" in text
    assert "- Overall: score 94 -> 91.4" in text


def test_a_report_with_hundreds_of_findings_fits_on_a_page() -> None:
    report = fleet(2000, sick=0.3)
    text = write(report, "markdown")

    assert len(report.findings) > 400
    assert len(text.splitlines()) < 200
    assert "The JSON and CSV reports list every finding." in text
    assert "more domains with errors" in text


def test_a_clean_report_is_short() -> None:
    text = write(fleet(20, sick=0), "markdown")

    assert "**No problems found.**" in text
    assert not [title for title in ("## What to do", "## Findings", "## Domains", "## What changed") if title in text]


def test_unread_workspaces_are_listed() -> None:
    unread = [
        finding("OA901", mailbox=None, email=None, domain=None, workspace=f"space_{n}", message="refused") for n in range(12)
    ]
    text = write(make_report(unread), "markdown")

    assert "## Not read and not checked" in text
    assert "- and `space_10`, `space_11`" in text


def test_only_the_first_values_and_places_are_named() -> None:
    report = fleet(2000, sick=0.5, compared=True)

    assert " more\n" in write(report, "markdown")


def test_changed_values_beyond_ten_are_counted() -> None:
    moved = [
        Delta(kind="domain", key=f"d{n}.example", name="d.example", figure="score", before=90.0, after=80.0) for n in range(12)
    ]
    text = write(
        make_report(diff=Diff(at=AT, new=[], resolved=[], unchanged=[], not_judged=[], deltas=[], scores=moved)), "markdown"
    )

    assert text.count("score 90 -> 80") == 10
    assert "- and 2 more figures changed" in text
