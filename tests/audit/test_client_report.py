"""The pages for clients: every figure is that of the readings or is not shown, and nothing of another client is."""

from __future__ import annotations

import math
import random
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from html import unescape
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import mailbox
from support.audit_reports import HOSTILE
from support.campaigns import DAY
from support.cli import Shell
from support.examples import WITHOUT_SHRINKING, scaled
from support.histories import START, DrawnWorld, Sent, append_days
from support.history_oracle import Drawn, Seen, figures_of
from support.pages import Page

from outreach_async.audit import MailboxAction
from outreach_async.audit.history import History
from outreach_async.audit.history._tables import CAMPAIGN, records_of
from outreach_async.audit.reports import has_format, render_clients
from outreach_async.errors import InvalidRequest

NAMES: Final = {
    "sent": "E-mails sent",
    "replied": "Replies",
    "interested": "Interested",
    "bounced": "Bounces",
    "added": "New contacts",
}
TILE: Final = re.compile(r"<div><dt>([^<]*)</dt><dd>([^<]*)</dd>.*?<dd>before: ([^<(]*?)(?: \([^<]*)?</dd></div>")
ROW: Final = re.compile(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', re.DOTALL)


def shown_on(page: str) -> dict[str, tuple[str, str]]:
    """Return the figures of a page by title: those of the period, and those before it."""
    return {title: (now, before) for title, now, before in TILE.findall(page)}


def rows_of(page: str) -> dict[str, list[str]]:
    cells = {name: re.findall(r"<td.*?>(.*?)</td>", rest) for name, rest in ROW.findall(page)}
    return {re.sub("<.*?>", "", name): [re.sub("<.*?>", "", each) for each in found] for name, found in cells.items()}


def day_of(number: int) -> date:
    return date(1970, 1, 1) + timedelta(days=number)


def amount(parts: Sequence[Mapping[int, Any]], whole: Mapping[int, Any], name: str, first: int, last: int) -> set[str]:
    """Return the amounts of a period that are right: two if days at its ends may have parts of one total."""
    days = range(first, last + 1)
    total = round(sum(part[day][name] or 0 for part in parts for day in days if day in part), 3)  # the oracle rounds, too
    is_known = all(day in whole and whole[day][name] is not None for day in days)
    if not is_known and not total:
        return {"not known"}
    pairs = [(part.get(one), part.get(other)) for part in parts for one, other in ((first, first - 1), (last, last + 1))]
    may_be_one = any(one and other and one[name] and other[name] for one, other in pairs)
    exact = f"{round(total):,}" if is_known else f"at least {math.floor(total):,}"
    return {exact, *(f"about {round(total + error):,}" for error in (-0.01, 0.01) if may_be_one)}


def crosses(seen: Sequence[Seen], key: tuple[str, str], border: int) -> bool:
    """Return whether a campaign was read before the day before a border and next after it, and had sent e-mails meanwhile."""
    read = [(each.day, each.campaigns[key].sent) for each in seen if key in each.campaigns]
    return any(one[0] + 1 < border <= two[0] and two[1] > one[1] for one, two in pairwise(read))


@settings(max_examples=scaled(4), deadline=None, phases=WITHOUT_SHRINKING)
@given(st.integers(0, 2**32))
def test_every_figure_of_a_page_is_the_sum_of_its_days(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - a sample
    with TemporaryDirectory() as folder:
        drawn = Drawn(Path(folder), chance)
        for _ in range(chance.randint(2, 9)):
            drawn.read()
            drawn.pass_time()
            for act, share in ((drawn.add, 0.2), (drawn.move, 0.5), (drawn.prune, 0.1)):
                if chance.random() < share:
                    act()
        days = range(int(START // DAY) - 3, drawn.seen[-1].day + 3)
        first, last = sorted(chance.choices(days, k=2))
        pages = render_clients(drawn.history, first=day_of(first), last=day_of(last))
    oracle = figures_of(drawn.seen)
    for space in {space for each in drawn.seen for space in each.states}:
        page = unescape(pages[f"{space}.html"])
        whole = {day: figures for (kind, id_, day), figures in oracle.items() if (kind, id_) == ("workspace", space)}
        parts: dict[str, dict[int, Any]] = {}
        for (kind, id_, day), figures in oracle.items():
            if kind == "campaign" and id_.endswith(f"@{space}"):
                parts.setdefault(id_.partition("@")[0], {})[day] = figures
        size = last - first + 1
        for name, title in NAMES.items():
            now, before = shown_on(page)[title]
            assert now in amount([*parts.values()], whole, name, first, last), (name, seed)
            assert before in amount([*parts.values()], whole, name, first - size, first - 1), (name, seed)
        for label, texts in rows_of(page).items():
            part = parts[id_ := f"camp_{re.sub('[^0-9]', '', label)}"]
            created = [seen.campaigns[space, id_].created // DAY for seen in drawn.seen if (space, id_) in seen.campaigns]
            begin = min(*part, *created)
            for name, text in zip(NAMES, texts[1:5], strict=False):
                known = {
                    day: part[day] if day in part and part[day][name] is not None else figures for day, figures in whole.items()
                }
                right = amount([part], known, name, max(first, int(begin)), last) if begin <= last else {"0"}
                assert text in right | ({"not known"} if texts[0] == "deleted" else set()), (id_, name, seed)
        spread = [border for id_ in parts for border in (first, last + 1) if crosses(drawn.seen, (space, id_), border)
                  and parts[id_].get(border, {}).get("sent")]  # fmt: skip
        assert not spread or shown_on(page)["E-mails sent"][0].startswith("about "), seed


def client(folder: Path, days: int = 7, **about: Any) -> tuple[History, DrawnWorld]:
    """Return a history of a workspace that was read each day; its campaign has sent ten e-mails between."""
    append_days(folder / "history.db", days, spaces=["space_1"], **about)
    return History(folder / "history.db"), DrawnWorld(["space_1"])


def page_of(history: History, first: int = 4, last: int = 6, **about: Any) -> str:
    """Return the page of the only workspace. The days count from the first reading."""
    begin = datetime.fromtimestamp(START, UTC).date()
    (page,) = render_clients(history, first=begin + timedelta(first), last=begin + timedelta(last), **about).values()
    return page


def text_of(history: History, first: int = 4, last: int = 6) -> str:
    return Page(page_of(history, first, last)).text


MARKS: Final = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=20)


@settings(max_examples=scaled(12), deadline=None, phases=WITHOUT_SHRINKING)
@given(st.lists(MARKS, min_size=8, max_size=8))
def test_a_page_contains_nothing_of_another_client(drawn: list[str]) -> None:
    world = DrawnWorld(["space_ownmark", "space_othermark"])
    for space, mark, texts in (("space_ownmark", "ownmark", drawn[:4]), ("space_othermark", "othermark", drawn[4:])):
        world.campaigns[f"camp_{mark}"] = Sent(space, START - DAY, name=f"{texts[0]}{mark}{texts[1]}", sent=len(mark) * 1_111)
        world.boxes[space] = [mailbox(id=f"mailbox_{mark}", email=f"{mark}@{mark}.example")]
    names = {"space_ownmark": f"{drawn[2]}ownmark", "space_othermark": f"othermark{drawn[6]}"}
    with TemporaryDirectory() as folder:
        history = History(Path(folder) / "history.db")
        for day in range(3):
            for each in world.campaigns.values():
                each.sent += len(each.workspace) * 1_111
            report, readings = world.read(START + day * DAY)
            history.append(attrs.evolve(report, names=names), readings)
        pages = render_clients(history, first=day_of(int(START // DAY) + 1), last=day_of(int(START // DAY) + 2))
    assert len(pages) == 2
    for file, page in pages.items():
        own, other = ("ownmark", "othermark") if "ownmark" in file else ("othermark", "ownmark")
        figures = {each: f"{2_222 * len(f'space_{each}'):,}" for each in (own, other)}
        assert other not in unescape(file + page)
        assert figures[other] not in page
        assert own in Page(page).text
        assert shown_on(page)["E-mails sent"][0] == figures[own]


@pytest.mark.parametrize("text", HOSTILE)
def test_names_titles_and_notes_are_text(tmp_path: Path, text: str) -> None:
    history, _ = client(tmp_path, 3, name=text)
    page = Page(page_of(history, 1, 2, title=text, note=f"{text}\n\nSecond"))

    assert {name for name, _ in page.elements} == {
        name for name, _ in Page(page_of(history, 1, 2, title="T", note="a\nb")).elements
    }
    assert not page.all("img")
    assert page.text.count("Second") == 1


def test_a_page_has_no_rules_commands_or_ids(tmp_path: Path) -> None:
    page = page_of(client(tmp_path)[0])
    assert not re.search(r"OA\d{3}|outreach|--[a-z]|camp_|mailbox_", Page(page).text)
    assert Page(page).all("meta")[-1] == {"name": "description", "content": "Client report"}


def test_a_page_compares_the_period_with_as_many_days_before_it(tmp_path: Path) -> None:
    text = text_of(client(tmp_path)[0])

    assert text.startswith("space_1, 6 Mar to 8 Mar 2026, compared with 3 Mar to 5 Mar 2026 Skip")
    assert "Results E-mails sent 30 before: 30 (+0 %) Replies 0 0.0 % of e-mails before: 0 Interested 0 before: 0" in text
    assert "not known" not in text.partition("Deliverability")[0]
    assert "Campaigns Campaign Status Sent Replies Interested Bounces Left to send Expected end Spring live 30 0 0 0 500" in text
    assert "0.0 % of the e-mails bounced, and less than 2.0 % is good. What the mailboxes need is not known." in text


def test_a_page_says_why_figures_are_not_known(tmp_path: Path) -> None:
    history, world = client(tmp_path, 0)
    sent = world.campaigns["camp_0"] = Sent("space_1", START - DAY)
    for day, unread in ((0, False), (1, False), (2, False), (4, False), (5, True), (6, True)):
        sent.sent = 5 if day == 2 else sent.sent + 12  # a reset
        history.append(*world.read(START + day * DAY, ["space_1"] if unread else []))

    before, reset, spread, ended = (text_of(history, *period) for period in ((0, 1), (1, 2), (4, 4), (4, 6)))
    assert "E-mails sent at least 12 before: not known" in before
    assert "Records of campaigns begin later, so figures of 3 days (28 Feb to 2 Mar 2026) are not known." in before
    assert "E-mails sent at least 12" in reset
    assert "lost contacts, so figures of 1 day (4 Mar 2026) are not known." in reset
    assert "E-mails sent about 6 before: about 6 (+0 %)" in spread
    assert "A figure with “about” has a part of a total that was read for several days together." in spread
    assert "Pale bars are estimates" in spread
    assert "E-mails sent about 6 before: about 18" in ended
    assert "Campaigns could not be read, so figures of 2 days (7 Mar to 8 Mar 2026) are not known." in ended
    assert all("A figure with" not in each for each in (before, reset))


def test_parts_of_a_total_add_up_to_it(tmp_path: Path) -> None:
    history, world = client(tmp_path, 0)
    for day in (0, 10):
        world.campaigns["camp_0"] = Sent("space_1", START - DAY, sent=day // 10)
        history.append(*world.read(START + day * DAY))
    assert "E-mails sent 1 before: not known" in text_of(history, 1, 10)  # ten times 0.1 is less


def test_a_page_lists_the_campaigns_that_sent_or_will_with_their_ends(tmp_path: Path) -> None:
    history, world = client(tmp_path, 0)
    states: dict[str, dict[str, Any]] = {"draft": {"status": "draft"}, "gone": {}, "open": {"days_left": 0}, "live": {}}
    for name, about in states.items():
        world.campaigns[f"camp_{name}"] = Sent("space_1", START - DAY, name=name, **about)
    for day in range(4):
        if day == 3:
            del world.campaigns["camp_gone"]
        for name, each in world.campaigns.items():
            each.sent += 10 * (name in {"camp_gone", "camp_live"})
        history.append(*world.read(START + day * DAY))
    rows, first = rows_of(page_of(history, 1, 3)), rows_of(page_of(history, 0, 0))

    assert rows["live"] == ["live", "30", "0", "0", "0", "500", "9 Mar to 20 Mar 2026"]
    assert rows["gone"] == ["deleted", "at least 20", "not known", "not known", "not known", "-", "-"]
    assert rows["open"][-2:] == ["500", "not known"]
    assert "draft" not in rows
    assert list(rows)[:2] == ["live", "gone"]
    assert {name: row[:2] for name, row in first.items()} == {name: ["live", "not known"] for name in ("gone", "live", "open")}


def test_a_campaign_that_has_sent_all_says_so(tmp_path: Path) -> None:
    history, world = client(tmp_path, 0)
    world.campaigns["camp_0"] = sent = Sent("space_1", START - DAY)
    for day in range(2):
        report, readings = world.read(START + day * DAY)
        ((labels, figures),) = records_of(readings, "space_1", CAMPAIGN)
        done = tuple(0 if name == "left_to_send" else value for name, value in zip(CAMPAIGN.figures, figures, strict=True))
        records_of(readings, "space_1", CAMPAIGN)[0] = labels, done
        history.append(report, readings)
        sent.sent += 10
    assert rows_of(page_of(history, 1, 1))["Spring"][-2:] == ["0", "all sent"]


def test_a_page_lists_twenty_campaigns_and_adds_up_the_others(tmp_path: Path) -> None:
    history, _ = client(tmp_path, 3, campaigns=23)
    page = page_of(history, 1, 2)
    assert len(ROW.findall(page)) == 20
    assert "3 more campaigns sent 60 e-mails." in Page(page).text


@pytest.mark.parametrize("created", [-1e15, 1e15, 0])
def test_a_page_bears_any_time_of_creation_and_any_status(tmp_path: Path, created: float) -> None:
    history, world = client(tmp_path, 0)
    world.campaigns["camp_0"] = sent = Sent("space_1", created, status="s" * 99)
    for day in range(3):
        history.append(*world.read(START + day * DAY))
        sent.sent += 10
    assert rows_of(page_of(history, 1, 2))["Spring"][:2] == ["ssssss…", "20"]


def test_a_page_without_active_campaigns_says_so(tmp_path: Path) -> None:
    history, world = client(tmp_path, 0)
    world.campaigns["camp_0"] = Sent("space_1", START - DAY, status="paused")
    for day in range(2):
        history.append(*world.read(START + day * DAY))
    assert "Campaigns No campaign sent anything, or will. Deliverability" in text_of(history, 1, 1)


def test_a_page_says_what_the_mailboxes_needed_on_its_last_day(tmp_path: Path) -> None:
    history, world = client(tmp_path, 0)
    world.campaigns["camp_0"] = Sent("space_1", START - DAY)
    world.boxes["space_1"] = [mailbox(id=f"mailbox_{at}") for at in range(4)]
    about: dict[str, Any] = {"workspace": "space_1", "email": None, "domain": None, "sent_30days": 1}
    for day, actions in enumerate([["fix"], ["stop", "fix", "fix", "watch"], []]):
        report, readings = world.read(START + day * DAY)
        found = [MailboxAction(action=each, mailbox=f"mailbox_{at}", **about) for at, each in enumerate(actions)]  # type: ignore[arg-type]  # its words
        history.append(attrs.evolve(report, actions=found), readings)
    assert "On 3 Mar 2026, 1 mailbox had to stop sending, and 2 mailboxes needed a repair." in text_of(history, 1, 1)
    assert "On 4 Mar 2026, no mailbox had to stop sending, and no mailbox needed a repair." in text_of(history, 1, 2)


SVG: Final = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
IMAGES: Final = {
    "png": b"\x89PNG\r\n\x1a\n\0",
    "jpeg": b"\xff\xd8\xff\xe0",
    "webp": b"RIFF\n\0\0\0WEBPVP8 ",
    "svg+xml": f'\ufeff<?xml version="1.0"?><!-- <svg --><!DOCTYPE svg PUBLIC "a" [<!ENTITY x "y">]>\n{SVG}'.encode(),
}


@pytest.mark.parametrize("kind", IMAGES)
def test_a_logo_becomes_an_image_of_the_page_by_its_content(tmp_path: Path, kind: str) -> None:
    page = page_of(client(tmp_path, 3)[0], 1, 2, logo=IMAGES[kind])
    (image,) = Page(page).all("img")
    assert image == {"src": f"data:image/{kind};base64,{b64encode(IMAGES[kind]).decode()}", "alt": ""}
    assert "alert(1)" not in page


@pytest.mark.parametrize(
    ("logo", "got"),
    [
        (b"GIF89a", "another file"),
        (b"<html><svg></svg></html>", "another file"),
        (b"<!---->" * 20_000 + b"<html>", "another file"),
        (IMAGES["png"] + bytes(200_000), "a larger one"),
    ],
)
def test_a_logo_that_is_no_small_image_is_refused(tmp_path: Path, logo: bytes, got: str) -> None:
    expected = f"^logo: expected a PNG, JPEG, SVG or WebP image of at most 200 kB, got {got}; pass another$"
    with pytest.raises(InvalidRequest, match=expected):
        page_of(client(tmp_path, 3)[0], 1, 2, logo=logo)


@pytest.mark.parametrize(("first", "last"), [(3, 2), (-366, 0)])
def test_a_period_has_one_to_366_days(tmp_path: Path, first: int, last: int) -> None:
    with pytest.raises(InvalidRequest, match=r"^first: expected a period of 1 to 366 days up to 2026-03-0[24], got it from"):
        page_of(client(tmp_path, 3)[0], first, last)


# The command.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A history of the days from 2 March to 10 April 2026."""
    append_days(tmp_path / "history.db", 2, gap=39)
    return tmp_path / "history.db"


@pytest.mark.parametrize(
    ("options", "period"),
    [
        ("", "4 Apr to 10 Apr 2026, compared with 28 Mar to 3 Apr 2026"),
        ("--since month", "1 Apr to 10 Apr 2026"),
        ("--since month --until month", "1 Mar to 31 Mar 2026"),
        ("--since 7d --until yesterday", "3 Apr to 9 Apr 2026"),
        ("--since last-monday", "7 Apr to 10 Apr 2026"),
        ("--since 2026-03-05 --until 2026-03-06", "6 Mar 2026, compared with 5 Mar 2026"),
        ("--since 2025-12-30 --until 2026-03-06", "31 Dec 2025 to 6 Mar 2026"),
    ],
)
def test_the_command_writes_a_page_for_each_workspace(shell: Shell, path: Path, options: str, period: str) -> None:
    folder = path.parent / "reports"
    code, result = shell.json("client-report", str(path), "--output-folder", str(folder), *options.split())
    assert (code, result) == (0, {"pages": [str(folder / "space_1.html"), str(folder / "space_2.html")]})
    for page in folder.iterdir():
        text = page.read_text(encoding="utf-8")
        assert Page(text).text.startswith(f"{page.stem}, {period}")
        assert has_format("client", page)


def test_a_page_has_the_title_the_note_and_the_logo_of_the_command(shell: Shell, path: Path) -> None:
    (path.parent / "logo").write_text(SVG)
    command = ("client-report", str(path), "--output-folder", str(path.parent), "--workspace", "space_2", "--logo")
    ended = shell(*command, str(path.parent / "logo"), "--title", "North Agency", "--note", "Thank you!\nSee you in May.")

    assert (ended.code, ended.out) == (0, f"Written: {path.parent / 'space_2.html'}\n")
    page = Page((path.parent / "space_2.html").read_text(encoding="utf-8"))
    title = "North Agency space_2, 4 Apr to 10 Apr 2026, compared with 28 Mar to 3 Apr 2026"
    assert f"{title} Thank you! See you in May. Results" in page.text
    assert len(page.all("img")) == 1
    assert f"FILE {path}: the last audit is of 2026-04-10, with which the pages end; run 'outreach-async brief" in ended.err


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("--since 2026-04-10", "--since: expected a period of 1 to 366 days up to 2026-04-10, got it from 2026-04-11"),
        ("--since 9999999d", "--since: expected a period of 1 to 366 days up to 2026-04-10, got it from 1970-01-0"),
        ("--since 9999-12-31", "--since: expected a period of 1 to 366 days up to 2026-04-10, got it from 2026-04-11"),
        ("--since soon", "--since"),
        ("--until 2026-04-11", "--until: expected a day from 2026-03-02 to 2026-04-10, which "),
        ("--until 2026-03-01", "--until: expected a day from 2026-03-02 to 2026-04-10, which "),
        ("--workspace space_9", "--workspace: PATH has no audit of space_9; pass others"),
        ("--logo PATH", "--logo: expected a PNG, JPEG, SVG or WebP image of at most 200 kB, got another file; pass another"),
    ],
)
def test_bad_options_get_errors_that_name_them(shell: Shell, path: Path, options: str, error: str) -> None:
    folder = path.parent / "reports"
    given = [each.replace("PATH", str(path)) for each in options.split()]
    ended = shell("client-report", str(path), "--output-folder", str(folder), *given)
    assert ended.code == 2
    assert error.replace("PATH", str(path)) in ended.err
    assert not folder.exists()


def test_without_figures_of_campaigns_the_command_says_what_to_run(shell: Shell, tmp_path: Path) -> None:
    remedy = "run 'outreach-async brief --history history.db' each day, which writes it"
    missing = shell("client-report", "--output-folder", str(tmp_path))
    append_days(tmp_path / "history.db", 2, campaigns=0)
    empty = shell("client-report", str(tmp_path / "history.db"), "--output-folder", str(tmp_path))
    assert (missing.code, empty.code) == (2, 2)
    assert f"FILE: missing; a client report needs a history: {remedy}." in missing.err
    assert f"history.db: has no figures of campaigns; {remedy}." in empty.err


def test_a_page_replaces_only_its_like(shell: Shell, path: Path) -> None:
    command = ("client-report", str(path), "--output-folder", str(path.parent))
    page = path.parent / "space_1.html"
    page.write_text("my own page")
    refused = shell(*command)
    assert (refused.code, page.read_text()) == (2, "my own page")
    assert "does not look like an output of this option; pass another path, or overwrite the file with --force" in refused.err
    assert [shell(*command, *force).code for force in (["--force"], [])] == [0, 0]


@pytest.mark.thorough
def test_the_history_of_the_demo_makes_pages(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    shell("brief", "--base-url", "fake:", "--history", str(path), "--output", str(tmp_path / "brief.md"))
    ended = shell("client-report", str(path), "--output-folder", str(tmp_path / "reports"))
    assert ended.code == 0
    text = Page((tmp_path / "reports" / "space_demo.html").read_text(encoding="utf-8")).text
    assert re.search(r"On 2 Mar 2026, \d+ mailboxes had to stop sending, and \d+ mailboxes needed a repair\.", text)
    assert "E-mails sent not known before: not known" in text
