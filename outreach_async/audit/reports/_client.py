"""Build the page that an agency sends to a client, from a history alone: what was sent in the client's workspace in a period.

A figure of a period is the sum over its days and over the campaigns of the workspace. What is not known is never shown as 0.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Final

import attrs

from outreach_async._plumbing import require_id
from outreach_async.audit._findings import campaign_label
from outreach_async.audit._rules import CATALOGUE
from outreach_async.audit._values import DAY, format_figure, format_percent
from outreach_async.audit.campaigns import LIVE, CampaignRow
from outreach_async.audit.history import DayFigures, History
from outreach_async.audit.plan import range_of_estimate
from outreach_async.audit.reports import _document as doc
from outreach_async.audit.reports._days import TONES, Series, day_of, draw_trend, format_day, index_days
from outreach_async.errors import InvalidRequest, format_count
from outreach_async.models import Number

_FIGURES: Final = {
    "sent": "E-mails sent",
    "replied": "Replies",
    "interested": "Interested",
    "bounced": "Bounces",
    "added": "New contacts",
}
_SHARES: Final = {"replied": ("sent", "e-mails"), "interested": ("replied", "replies"), "bounced": ("sent", "e-mails")}
_MAX_CAMPAIGNS: Final = 20
_MAX_LOGO: Final = 200_000
_IMAGES: Final = {
    "png": rb"\x89PNG\r\n\x1a\n",
    "jpeg": rb"\xff\xd8\xff",
    "webp": rb"RIFF....WEBP",
    "svg+xml": rb"(?:\xef\xbb\xbf)?(?>\s+|<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>\[]*(?:\[.*?\]\s*)?>)*+<svg[\s>]",
}
_A_DAY: Final = timedelta(days=1)
_EPOCH: Final = date(1970, 1, 1)
_ALL: Final = 100_000  # days


def embed_logo(content: bytes) -> str:
    """Return an image as a data URI. A browser runs nothing of an SVG that is the source of an `img` element."""
    kind = next((kind for kind, start in _IMAGES.items() if re.match(start, content, re.DOTALL)), None)
    if kind is None or len(content) > _MAX_LOGO:
        got = "a larger one" if kind else "another file"
        raise InvalidRequest(f"logo: expected a PNG, JPEG, SVG or WebP image of at most 200 kB, got {got}; pass another")
    return f"data:image/{kind};base64,{b64encode(content).decode()}"


@attrs.frozen
class _Amount:
    """A number of a period, and the days of which it is not known. It is rough if a total was spread over days out of it, too."""

    value: Number | None
    unknown: Collection[date] = ()
    is_rough: bool = False

    def __str__(self) -> str:
        if self.value is None:
            return "not known"
        if self.unknown and not self.is_rough:
            return f"at least {math.floor(self.value + 1e-6):,}"
        return f"{'about ' if self.is_rough else ''}{round(self.value):,}"

    def share_of(self, whole: _Amount) -> float | None:
        if self.value is None or not whole.value or self.unknown or whole.unknown:
            return None
        return self.value / whole.value


@attrs.frozen
class ClientPage:
    """What a history says of a workspace from `first` to `last`: the days, and the last readings."""

    workspace: str
    name: str
    first: date
    last: date
    days: Series
    campaigns: dict[str, Series]
    rows: dict[str, CampaignRow]
    read: float
    health: DayFigures | None

    @property
    def period(self) -> str:
        before = _name_period(self.first - (self.last - self.first) - _A_DAY, self.first - _A_DAY)
        return f"{_name_period(self.first, self.last)}, compared with {before}"

    def sections(self) -> Iterator[doc.Section]:
        days = [self.first + place * _A_DAY for place in range((self.last - self.first).days + 1)]
        periods = days, [day - len(days) * _A_DAY for day in days]
        now, before = ({name: self._measure(name, period) for name in _FIGURES} for period in periods)
        figures = doc.Figures({title: _describe(name, now, before) for name, title in _FIGURES.items()})
        notes = [doc.Entry([doc.Styled(note, doc.SOFT)]) for note in self._notes([*now.values(), *before.values()])]
        yield doc.Section("Results", [figures, doc.Entries(notes)])
        if known := {day: each for day, each in self.days.items() if self.first <= day <= self.last}:
            yield doc.Section("Day by day", [draw_trend(known, name) for name in TONES])
        yield doc.Section("Campaigns", list(self._list_campaigns(days)))
        yield doc.Section("Deliverability", [_text(" ".join(self._describe_mailboxes(now["bounced"].share_of(now["sent"]))))])

    def _measure(self, name: str, days: Sequence[date], alone: Series | None = None) -> _Amount:
        """Add up the days of all campaigns, or of one. A day is known if it is known of all, or of this one."""
        chosen = self.campaigns.values() if alone is None else [alone]
        unknown = {
            day for day in days if _value(self.days, day, name) is None and (alone is None or _value(alone, day, name) is None)
        }
        total: Number = sum(_value(each, day, name) or 0 for each in chosen for day in days)
        borders = (days[0], days[0] - _A_DAY), (days[-1], days[-1] + _A_DAY)
        is_rough = any(_is_one_total(each.get(day), each.get(outside), name) for each in chosen for day, outside in borders)
        return _Amount(None if unknown and not total else total, unknown, is_rough)

    def _list_campaigns(self, days: Sequence[date]) -> Iterator[doc.Block]:
        names, found = [name for name in _FIGURES if name != "added"], list[tuple[float, str, list[str]]]()
        for id_ in self.campaigns | self.rows:
            row, series = self.rows.get(id_), self.campaigns.get(id_, {})
            created, known = (
                ((row.created if row else 0) or 0) // DAY,
                min(series, default=date.max),
            )  # any number, also beyond calendars
            own = [day for day in days if day >= known or (day - _EPOCH).days >= created]
            amounts = [self._measure(name, own, series) if own else _Amount(0) for name in names]
            if any(each.value for each in amounts) or (row and row.status == LIVE and row.left_to_send != 0):
                label = campaign_label(row.name if row else series[max(series)].name, id_)
                status = doc.format_status(row.status) if row else "deleted"
                found.append((-(amounts[0].value or 0), label, [status, *map(str, amounts), *_describe_end(row, self.read)]))
        titles = (_FIGURES[name].removeprefix("E-mails ").capitalize() for name in names)
        lines = [[doc.Styled(name, doc.STRONG), *map(doc.Styled, texts)] for _, name, texts in sorted(found)[:_MAX_CAMPAIGNS]]
        yield doc.Grid(("Campaign", "Status", *titles, "Left to send", "Expected end"), lines)
        if (more := sorted(found)[_MAX_CAMPAIGNS:]) or not lines:
            sent = format_count(round(-sum(each[0] for each in more)), "e-mail")
            text = f"{format_count(len(more), 'more campaign')} sent {sent}."
            yield _text(text if more else "No campaign sent anything, or will.")

    def _notes(self, amounts: Collection[_Amount]) -> Iterator[str]:
        """Yield why amounts are not known, or not exact."""
        begin, end = min(self.days, default=date.max), max(self.days, default=date.min)
        missing = set[date]().union(*(each.unknown for each in amounts))
        reasons = {
            "Records of campaigns begin later": {day for day in missing if day < begin},
            "Campaigns could not be read": {day for day in missing if day > max(begin, end)},
            "A campaign was reset, moved or deleted, or lost contacts": {day for day in missing if begin <= day <= end},
        }
        for reason, days in reasons.items():
            if days:
                named = f"{format_count(len(days), 'day')} ({_name_period(min(days), max(days))})"
                yield f"{reason}, so figures of {named} are not known."
        if any(each.is_rough for each in amounts):
            yield "A figure with “about” has a part of a total that was read for several days together."
        if any(each.spread_over > 1 for day, each in self.days.items() if self.first <= day <= self.last):
            yield doc.PALE
        yield "Days end when the figures are read, not at midnight."

    def _describe_mailboxes(self, bounced: float | None) -> Iterator[str]:
        if bounced is not None:
            limit = format_percent(CATALOGUE["OA120"].thresholds["warning"])
            yield f"{format_percent(bounced)} of the e-mails bounced, and less than {limit} is good."
        if self.health is None or self.health.stop is None or self.health.fix is None:
            yield "What the mailboxes need is not known."
            return
        stop, fix = (format_count(each, "mailbox") if each else "no mailbox" for each in (self.health.stop, self.health.fix))
        day = date.fromisoformat(self.health.date)
        yield f"On {_name_period(day, day)}, {stop} had to stop sending, and {fix} needed a repair."


def _text(text: str) -> doc.Paragraph:
    return doc.Paragraph([[doc.Styled(text)]])


def _value(series: Series, day: date, name: str) -> Number | None:
    return getattr(series.get(day), name, None)


def _is_one_total(day: DayFigures | None, other: DayFigures | None, name: str) -> bool:
    """Return whether figures of two days in a row may have parts of one total, which was spread over them."""
    if not day or not other or not getattr(day, name) or not getattr(other, name):
        return False
    return day.spread_over == other.spread_over > 1


def _describe(name: str, now: Mapping[str, _Amount], before: Mapping[str, _Amount]) -> list[str]:
    whole, noun = _SHARES.get(name, ("", ""))
    share, change = now[name].share_of(now.get(whole, _Amount(None))), now[name].share_of(before[name])
    texts = [str(now[name]), *([] if share is None else [f"{format_percent(share)} of {noun}"])]
    return [*texts, f"before: {before[name]}{'' if change is None else f' ({100 * change - 100:+,.0f} %)'}"]


def _name_period(first: date, last: date) -> str:
    begin = f"{format_day(first)}{'' if first.year == last.year else f' {first.year}'} to " if first < last else ""
    return f"{begin}{format_day(last)} {last.year}"


def _describe_end(row: CampaignRow | None, read: float) -> tuple[str, str]:
    """Return the number of e-mails that are left to send, and the expected end."""
    if row is None or row.status != LIVE:
        return "-", "-"
    end = "not known" if row.end is None else _name_period(*map(day_of, range_of_estimate(read, row.end)))
    return format_figure(row.left_to_send), "all sent" if row.left_to_send == 0 else end


def read_clients(history: History, workspaces: Collection[str] | None, first: date, last: date) -> list[ClientPage]:
    """Return the pages of workspaces, by default of all that the history knows."""
    remedy = "pass the id of a workspace"
    wanted = None if workspaces is None else [require_id("workspaces", each, "workspace", remedy) for each in workspaces]
    days = history.daily("workspace", workspaces=wanted, days=_ALL)
    names = {each.id: each.name for each in days}
    if unknown := [each for each in wanted or () if each not in names]:
        raise InvalidRequest(f"workspaces: {history.path} has no audit of {', '.join(unknown)}; pass others")
    known = index_days([*days, *history.daily("campaign", workspaces=wanted, days=_ALL)], names)
    state = history.baseline(list(names), until=math.nextafter(((last - _EPOCH).days + 1) * DAY, 0))
    rows = state.campaigns.rows if state and state.campaigns else []
    health = {each.id: each for each in days if each.date <= str(last) and each.sent_30days is not None}
    return [
        ClientPage(
            *(space, name, first, last),
            days=known.get((space,), {}),
            campaigns={key[1]: series for key, series in known.items() if key[1:] and key[0] == space},
            rows={row.id: row for row in rows if row.workspace == space},
            read=state.last_read.get(space, state.at) if state else 0.0,
            health=health.get(space),
        )
        for space, name in names.items()
    ]
