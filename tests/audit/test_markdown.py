"""The Markdown report, parsed by a Markdown parser."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit_reports import HOSTILE, VIEWS, finding, fleet, make_report
from support.examples import WITHOUT_SHRINKING, scaled
from support.pages import MARKDOWN_TOKENS, tokens

from outreach_async.audit import Policy, Report
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import Brief


def unread(workspace: str, message: str) -> Report:
    """Return a report that shows an id as code, and a message as text."""
    about = finding("OA901", mailbox=None, email=None, domain=None, message=message, workspace=workspace)
    return make_report([about], policy=Policy())


@pytest.mark.thorough
@given(VIEWS)
@settings(max_examples=scaled(40), phases=WITHOUT_SHRINKING)
def test_no_string_becomes_markup(view: Report | Brief) -> None:
    assert {token.type for token in tokens(write(view, "markdown"))} <= MARKDOWN_TOKENS


def test_every_name_renders_unchanged() -> None:
    for text in HOSTILE:
        shown = "".join(character if character.isprintable() else "?" for character in text)
        parsed = list(tokens(write(unread(text, text), "markdown")))
        assert shown.strip() in [token.content.strip() for token in parsed if token.type == "code_inline"]
        assert f": {shown}".rstrip() in "".join(token.content for token in parsed if token.type == "text")


def test_a_dns_record_can_be_copied_from_code() -> None:
    text = write(make_report([finding("OA103"), finding("OA101")]), "markdown")

    spans = [token.content for token in tokens(text) if token.type == "code_inline"]
    assert {"v=DMARC1; p=none; rua=mailto:dmarc@one.example", "_dmarc.one.example", "_dmarc", "v=spf1", "~all"} <= set(spans)
    assert "`v=DMARC1; p=none; rua=mailto:dmarc@one.example`" in text


@given(st.text(alphabet="-+#=>*_.: 1a)`~|<&;[]!@\\"))
@settings(max_examples=scaled(200))
def test_the_start_of_a_line_is_never_markup(text: str) -> None:
    shown = "".join(
        token.content for token in tokens(write(unread("x", text), "markdown")) if token.type in {"text", "code_inline"}
    )
    assert f"x: {text}".rstrip() in shown


@pytest.mark.parametrize("remedy", ["- stop", "+ stop", "# stop", "= stop", "> stop", "1. stop", "12) stop"])
def test_a_remedy_cannot_begin_a_list_a_heading_or_a_quotation(remedy: str) -> None:
    text = write(make_report([attrs.evolve(finding(), remedy=remedy)]), "markdown")
    assert remedy in [token.content for token in tokens(text) if token.type == "text"]
    assert {token.type for token in tokens(text)} <= MARKDOWN_TOKENS


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        (plain := "15.2 % (97 of 640; +2) in space_1, SMTP & IMAP at 08:00 -> a-b #", plain),
        ("http://x www.x.example @ann :fire: #12", r"http\://x www\.x.example \@ann \:fire: \#12"),
    ],
)
def test_only_what_would_become_markup_or_a_link_is_escaped(text: str, escaped: str) -> None:
    assert f"`x`: {escaped}\n" in write(unread("x", text), "markdown")


def test_the_columns_of_a_table_are_aligned() -> None:
    rows = [line for line in write(fleet(300, sick=0.4), "markdown").splitlines() if line.startswith("| ")]
    assert len(rows) > 5
    assert len({len(row) for row in rows}) == 1


def test_the_lines_of_a_table_are_parsed_as_its_rows() -> None:
    text = write(fleet(300, sick=0.4), "markdown")
    kinds = Counter(token.type for token in tokens(text))
    assert kinds["thead_open"] == kinds["table_open"] > 0
    assert kinds["tr_open"] == sum(line.startswith("| ") for line in text.splitlines()) - kinds["table_open"]


def test_a_blank_name_is_still_a_code_span() -> None:
    assert "`  `: refused" in write(unread("", "refused"), "markdown")


def test_actions_come_first_then_changes_then_domains() -> None:
    text = write(fleet(300, sick=0.4, compared=True), "markdown")
    order = [
        *("# Mailbox audit", "**Stop sending from", "## What to do", "## Resolved", "## What changed", "## Domains"),
        "## What this audit cannot check",
    ]

    assert [text.index(each) for each in order] == sorted(text.index(each) for each in order)
    assert "- **ERROR** OA110 **On blacklists**: 4 mailboxes on `gone.example`" in text
    assert "- Overall: mailboxes 304 -> 300" in text
