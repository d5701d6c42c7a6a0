"""The history of audits, as trend lines."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.audit_reports import AT, finding, make_report, with_history
from support.pages import Page

from outreach_async.audit import Diff, HistoryPoint, Severity
from outreach_async.audit.reports import write
from outreach_async.audit.reports._view import MAX_POINTS, Trend, build_trends


@pytest.mark.parametrize(
    ("values", "line"),
    [([1, 2, 3], "▁▅█"), ([5, 5], "▅▅"), ([0, None, 7], "▁·█"), ([None], "·"), ([40.0, 100.0, 40.0], "▁█▁")],
)
def test_a_sparkline_has_a_bar_for_each_value(values: list[float | None], line: str) -> None:
    assert Trend("Score", values).sparkline == line


@given(st.lists(st.none() | st.floats(0, 1e15), min_size=1))
def test_heights_lie_between_0_and_1(values: list[float | None]) -> None:
    assert all(height is None or 0 <= height <= 1 for height in Trend("Score", values).heights)


def test_without_earlier_audits_there_is_no_history() -> None:
    assert build_trends(make_report()) is None
    assert "History" not in write(make_report(), "html")


@pytest.mark.parametrize("form", ["terminal", "markdown"])
def test_text_and_markdown_show_the_history_as_sparklines(form: str) -> None:
    text = write(with_history(40.0, None, 60.0), form)

    assert "4 audits since 2026-02-27 08:00 UTC." in text
    (line,) = [line for line in text.splitlines() if "▁·" in line]
    assert line.replace("|", " ").split() == ["Score", "▁·▃█", "40", "100"]


def test_the_page_shows_the_history_as_lines_with_dates_and_a_scale() -> None:
    text = write(with_history(40.0, None, 60.0), "html")

    assert '<path class="line good" d="M46.0 46.8L292.7 34.2L416.0 9.0h.1"/>' in text
    assert 'aria-label="Score: 40, then -, then 60, then 100"' in text
    assert "4 audits since 2026-02-27 08:00\N{NO-BREAK SPACE}UTC." in text
    shown = Page(text).text
    assert "Score 100 0 50 100 27 Feb 2 Mar" in shown
    assert write(with_history(None), "html").count('class="line good" d="M416.0 9.0h.1"') == 1


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


def test_only_the_latest_audits_are_drawn() -> None:
    trends = build_trends(with_history(*range(100)))

    assert trends is not None
    assert [len(trend.values) for trend in trends.trends] == [MAX_POINTS] * 5
    assert (trends.trends[0].first, trends.trends[1].last) == ("71", "0")


def test_the_counts_of_the_history_are_by_severity() -> None:
    trends = build_trends(attrs.evolve(with_history(1.0), findings=[finding("OA104"), finding("OA104"), finding("OA150")]))

    assert trends is not None
    assert {trend.name: trend.last for trend in trends.trends} == {
        "Score": "100", "Critical": "2", "Errors": "0", "Warnings": "1", "Mailboxes": "1"
    }  # fmt: skip
    assert HistoryPoint.of(make_report([finding("OA104")])).counts[Severity.CRITICAL] == 1
