"""The figures of days on the HTML page: charts, workspaces and campaigns."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import NOW, mailboxes, reading, report
from support.campaigns import DAY
from support.campaigns import row as campaign_row
from support.cli import Shell
from support.examples import scaled
from support.pages import Page

from outreach_async.audit import CampaignResults, Report
from outreach_async.audit.campaigns import CampaignTotals
from outreach_async.audit.history import DayFigures
from outreach_async.audit.reports import write
from outreach_async.audit.reports.brief import build_brief
from outreach_async.fake import FakeService

LAST = date(2026, 3, 1)


def day(back: int = 0, workspace: str = "space_1", campaign: str | None = None, **about: Any) -> DayFigures:
    values: dict[str, Any] = {
        "date": str(LAST - timedelta(days=back)),
        "name": "",
        "sent": 100,
        "replied": 3,
        "interested": 2,
        "bounced": 1,
    }
    return DayFigures(workspace=workspace, id=campaign or workspace, **(values | about))


def audited(**campaigns: Any) -> Report:
    found = report(*(reading(mailboxes(1, domain=f"d{at}.example", spf=False), workspace=f"space_{at}") for at in (1, 2)))
    return attrs.evolve(found, **campaigns)


def shown(days: list[DayFigures], found: Report | None = None) -> str:
    return write(found or audited(), "html", days=days)


def test_the_trends_are_sums_over_the_workspaces_with_dates_and_a_scale() -> None:
    days = [day(back, space) for back in range(10) for space in ("space_1", "space_2")]
    text = Page(shown(days)).text

    assert "Sent, replied, interested and bounced per day, 20 Feb to 1 Mar" in text
    assert "Sent per day 200 on 1 Mar; 2,000 in 10 days 0 100 200 20 Feb 23 Feb 26 Feb 1 Mar" in text
    assert "Replied per day 6 on 1 Mar; 60 (3.0 % of sent) in 10 days" in text
    assert "1 Mar 200 6 4 2 - 28 Feb" in text


def test_only_the_last_thirty_days_are_drawn() -> None:
    assert "per day, 31 Jan to 1 Mar" in shown([day(back) for back in range(90)])


def test_an_unknown_day_is_a_gap_and_an_estimate_is_pale() -> None:
    plain = shown([day(back) for back in range(5)])
    gaps = shown([day(back, sent=None if back == 1 else 100, spread_over=1 + (back == 3)) for back in (0, 1, 3, 4)])

    assert 'class="gap"' not in plain + shown([day()])
    assert "Pale bars are estimates" not in plain
    assert "1 Mar: 100, 100, -, -, 100" in gaps
    assert "Pale bars are estimates" in gaps
    assert gaps.count('class="info pale"') == 1


def test_a_sum_is_unknown_if_the_figure_of_a_workspace_is() -> None:
    days = [day(), day(workspace="space_2", sent=None), day(1, opened=4), day(1, "space_2", replied=None, opened=5)]
    assert "1 Mar - 6 4 2 - 28 Feb 200 - 4 2 9" in Page(shown(days)).text


def test_a_sum_is_an_estimate_if_the_figure_of_a_workspace_is() -> None:
    page = shown([day(), day(workspace="space_2", spread_over=2)])
    assert "1 Mar (estimate) 200 6 4 2" in Page(page).text


def test_a_day_without_a_known_figure_is_not_drawn() -> None:
    unread = day(workspace="space_2", sent=None, replied=None, interested=None, bounced=None, opened=5)
    text = Page(shown([day(), unread, day(1), day(1, "space_2")])).text
    assert "Sent per day 200 on 28 Feb; 200 in 1 days" in text
    assert "Sent, 7 days Replied Interested Bounced Trend" in text
    assert "1,000 200 3.0 % 4 1.0 % ▅▅" in text
    assert "1,000 100 3.0 % 2 1.0 % ▅ " in text
    assert "No trend yet" in Page(shown([unread])).text


def test_a_workspace_shows_its_last_seven_days_and_its_trend() -> None:
    text = Page(
        shown([*(day(back) for back in range(20)), *(day(back, "space_2", sent=7, replied=0) for back in range(20))])
    ).text
    assert "Sent, 30 days Sent, 7 days Replied Interested Bounced Trend" in text
    assert f"1,000 700 3.0 % 14 1.0 % {'▅' * 20}" in text
    assert f"1,000 49 0.0 % 14 14.3 % {'▅' * 20}" in text


def test_without_days_a_workspace_shows_the_totals_of_its_campaigns() -> None:
    known = CampaignTotals(campaigns=1, sent=1000, replies_num=20, interested_num=7, bounces_num=10)
    campaigns = CampaignResults(checked=1, totals={"space_1": known, "space_2": CampaignTotals()}, rows=[])
    text = Page(shown([], audited(campaigns=campaigns, unreadable=["space_2"]))).text
    assert "Sent, 30 days Sent in campaigns Replied Interested Bounced" in text
    assert "1 error 1,000 1,000 2.0 % 7 1.0 %" in text
    assert "not read completely, 1 error 1,000 - - - -" in text


def test_a_campaign_has_its_days_on_demand() -> None:
    rows = [campaign_row(id=f"camp_{at}", name=f"Number {at}", workspace="space_1") for at in range(23)]
    campaigns = CampaignResults(checked=23, totals={}, rows=rows)
    found = audited(campaigns=campaigns)
    text = Page(shown([day(back, campaign="camp_3", sent=20 + back) for back in range(3)], found)).text

    assert "Campaigns per day Number 3 space_1 Sent per day 20 on 1 Mar; 63 in 3 days" in text
    assert "3 more campaigns" in text
    assert "Campaigns per day" not in shown([day()], found)


def test_more_replies_than_sent_have_no_share() -> None:
    assert "Replied per day 3 on 1 Mar; 3 in 1 days" in Page(shown([day(sent=2)])).text


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 10**400])
def test_an_impossible_figure_is_unknown(value: float) -> None:
    text = shown([day(sent=value), day(1)])
    assert "Sent per day - on 1 Mar; 100 in 2 days" in Page(text).text
    assert "Sent per day, 28 Feb to 1 Mar: 100, -" in text


@given(st.dictionaries(st.integers(0, 29), st.none() | st.integers(0, 10**15) | st.floats(0, 1e15), min_size=1))
@settings(max_examples=scaled(25))
def test_bars_stay_within_the_chart(values: dict[int, float | None]) -> None:
    found = attrs.evolve(audited(), workspaces=["space_1"])
    figure = shown([day(back, sent=value) for back, value in values.items()], found).partition("Sent per day")[2]
    chart, _, _ = figure.partition("</figure>")
    bars = re.findall(r"M([\d.]+) 72v-([\d.]+)h([\d.]+)v[\d.]+z", chart)

    for x, height, width in bars:
        assert 46 <= float(x) <= float(x) + float(width) <= 416.2
        assert 1 <= float(height) <= 72 - 9
    assert all(9 <= float(y) <= 72 for y in re.findall(r'class="grid" d="M46 ([\d.]+)H416"', chart))
    assert 1 <= chart.count('y="88"') <= 4
    assert len(bars) == sum(bool(value) for value in values.values())


def test_the_days_of_a_page_are_those_of_its_workspaces_and_campaigns() -> None:
    campaigns = CampaignResults(checked=1, totals={}, rows=[campaign_row(id="camp_1", name="Spring", workspace="space_1")])
    known = [
        day(sent=5),
        day(campaign="camp_1", sent=6, spread_over=3),
        day(campaign="mailbox_1", sent=77, sent_today=5),
        DayFigures(date=str(LAST), workspace=None, id="one.example", name="one.example", sent=777, replied=1, bounced=0),
        day(workspace="space_9", sent=7777),
        day(workspace="space_9", campaign="camp_9", sent=77_777),
    ]

    text = Page(shown(known, audited(campaigns=campaigns))).text

    assert "Sent per day 5 on 1 Mar; 5 in 1 days" in text
    assert "Campaigns per day Spring space_1 Sent per day 6 on 1 Mar; 6 in 1 days" in text
    assert "77" not in text


def test_a_task_says_since_when_it_is_open() -> None:
    found = audited().since(attrs.evolve(audited(), at=NOW - DAY))
    opened = {("space_1", "OA101", "error"): NOW - 20 * DAY, ("space_9", "OA101", "error"): NOW - 90 * DAY}
    brief = write(build_brief(audited(), attrs.evolve(audited(), at=NOW - DAY)), "html", opened=opened)

    for text in (write(found, "html", opened=opened), brief):
        assert f"open since {(datetime.fromtimestamp(NOW - 20 * DAY, UTC)):%-d %b}<" in text
    assert "open since before " in write(found, "html")


def test_a_task_whose_findings_are_all_new_is_not_said_to_be_older() -> None:
    healthy = attrs.evolve(audited(), findings=[], at=NOW - DAY)
    page = write(audited().since(healthy), "html", opened={("space_1", "OA101", "error"): NOW - 20 * DAY})
    assert "( new )" in Page(page).text
    assert "open since" not in page


@pytest.mark.parametrize("command", ["audit", "brief"])
def test_a_command_shows_days_of_the_history_and_since_when_tasks_are_open(
    shell: Shell, service: FakeService, server_options: tuple[str, ...], tmp_path: Path, command: str
) -> None:
    pages = ("reports/index.html", "reports/space_1.html") if command == "audit" else ()
    options = ["--campaigns", "--output-folder", str(tmp_path / "reports")] if pages else []
    outputs = ("--history", str(tmp_path / "history.db"), "--output", str(tmp_path / "a.html"), *options)
    first = shell(command, *server_options, *outputs)
    before = (tmp_path / "a.html").read_text()
    began = datetime.fromtimestamp(service.now, UTC)
    service.advance(days=1)
    second = shell(command, *server_options, *outputs)

    assert (first.err, second.err) == ("", "")
    assert "No trend yet" in before
    for name in ("a.html", *pages):
        assert "Sent, replied, interested and bounced per day, " in (tmp_path / name).read_text()
    assert f"open since {began:%-d %b}" in (tmp_path / "a.html").read_text()
