"""The history of audits, as trend lines."""

from __future__ import annotations

import attrs
import pytest
from support.audit_reports import AT, finding, make_report, with_history
from support.pages import Page

from outreach_async.audit import Diff
from outreach_async.audit.reports import write


def test_without_earlier_audits_there_is_no_history() -> None:
    assert "HISTORY" not in write(make_report(), "terminal")
    assert "History" not in write(make_report(), "html")


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_text_and_markdown_show_the_history_as_sparklines(form: str) -> None:
    text = write(with_history(40.0, None, 60.0), form)
    assert "4 audits since 2026-02-27 08:00 UTC." in text
    (line,) = [line for line in text.splitlines() if "▁·" in line]
    assert line.replace("|", " ").split() == ["Score", "▁·▃█", "40", "100"]
    assert "▅▅" in write(with_history(100.0), form)


def test_the_page_shows_the_history_as_a_table() -> None:
    text = write(with_history(40.0, None, 60.0), "html")
    assert "4 audits since 2026-02-27 08:00\N{NO-BREAK SPACE}UTC." in text
    assert "Figure Trend First Now Score ▁·▃█ 40 100 Critical" in Page(text).text
    assert '<span class="trend" dir="auto" aria-hidden="true">▁·▃█</span>' in text


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_an_impossible_score_of_the_history_is_a_gap(form: str) -> None:
    assert "▁·█" in write(with_history(40.0, float("inf")), form)


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_a_history_over_other_workspaces_says_so(form: str) -> None:
    assert "3 audits since 2026-02-28 08:00 UTC. 2 of them do not cover the same workspaces as this audit." in " ".join(
        write(with_history(40.0, 50.0, scope="other"), form).split()
    )


@pytest.mark.parametrize("form", ["terminal", "markdown", "html"])
def test_a_comparison_of_other_workspaces_says_so(form: str) -> None:
    names = [f"space_{n}" for n in range(7)]
    diff = Diff(at=AT, new=[], unchanged=[], resolved=[], added_workspaces=["space_9"], removed_workspaces=names)
    text = " ".join(write(make_report(diff=diff), form).split())

    shown = "space_0, space_1, space_2, space_3, space_4 and 2 more"
    assert f"different workspaces: only this audit covers space_9; only the earlier audit covers {shown}." in text
    assert "different workspaces" not in write(
        make_report(diff=attrs.evolve(diff, added_workspaces=[], removed_workspaces=[])), form
    )


def test_the_counts_of_the_history_are_by_severity() -> None:
    found = attrs.evolve(with_history(1.0), findings=[finding("OA104"), finding("OA104"), finding("OA150")])
    rows = [line.split() for line in write(found, "terminal").splitlines()]

    last = {
        row[0]: row[-1] for row in rows if len(row) == 4 and row[0] in {"Score", "Critical", "Errors", "Warnings", "Mailboxes"}
    }
    assert last == {"Score": "100", "Critical": "2", "Errors": "0", "Warnings": "1", "Mailboxes": "1"}
