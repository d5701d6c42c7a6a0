"""Inline SVG charts. Every bar shows its figure as text, and no chart depends on colour alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs

from outreach_async.audit.outputs.page.markup import Markup, joined, tag
from outreach_async.audit.outputs.words import figure

_WIDTH: Final = 340
_ROW: Final = 34
_LABEL: Final = 15
_BAR: Final = 10
_FIGURES: Final = 44
"""Width reserved for the figure at the end of a bar."""

_RADIUS: Final = 58
_ROUND: Final = 2 * math.pi * _RADIUS
_LONGEST: Final = 44
"""Maximum characters of a label."""

_HEIGHT: Final = 250
_FLOOR: Final = 222


@attrs.frozen
class Bar:
    """A bar of a bar chart.

    Attributes:
        label: Label above the bar.
        parts: Length of each part, by the CSS class that colours it.
        end: Figure at the end of the bar.
    """

    label: str
    parts: Mapping[str, float]
    end: str


def gauge(score: float | None, tone: str) -> Markup:
    """Render a score from 0 to 100 as a ring."""
    spoken = "No score" if score is None else f"Score {score:g} of 100"
    return _svg(
        *(140, 140, spoken, "gauge"),
        tag("circle", class_="ring", cx=70, cy=70, r=_RADIUS),
        _arc(score, tone) if score else None,
        tag("text", "-" if score is None else f"{score:g}", class_="big", x=70, y=80, text_anchor="middle"),
        tag("text", "of 100", class_="soft", x=70, y=100, text_anchor="middle"),
    )


def bars(title: str, note: str, lines: Sequence[Bar], *, full: float | None = None, legend: Markup | None = None) -> Markup:
    """Render a horizontal bar chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        lines: The bars, from top to bottom.
        full: Length that fills the whole width; by default that of the longest bar.
        legend: Legend of the colours.
    """
    most = full or max((sum(line.parts.values()) for line in lines), default=0) or 1
    drawn = (_line(line, at * _ROW, most) for at, line in enumerate(lines))
    spoken = "; ".join(f"{line.label}: {line.end}" for line in lines)
    return _figure(title, note, _svg(_WIDTH, max(1, len(lines)) * _ROW, f"{title}. {spoken}", "", *drawn), legend)


def columns(title: str, note: str, counts: Sequence[tuple[str, int, str]]) -> Markup:
    """Render a column chart.

    Args:
        title: Title of the chart.
        note: Explanation of the chart.
        counts: Label, count and CSS class of each column, from left to right.
    """
    most = max((count for _, count, _ in counts), default=0) or 1
    width = _WIDTH / len(counts)
    drawn = (_column(each, at * width, width, most) for at, each in enumerate(counts))
    spoken = "; ".join(f"{label}: {count:,}" for label, count, _ in counts)
    axis = tag("line", class_="axis", x1=0, y1=_FLOOR + 0.5, x2=_WIDTH, y2=_FLOOR + 0.5)
    return _figure(title, note, _svg(_WIDTH, _HEIGHT, f"{title}. {spoken}", "", *drawn, axis))


def key(entries: Iterable[tuple[str, str]]) -> Markup:
    """Render a legend from pairs of CSS class and meaning."""
    return tag("ul", *(tag("li", meaning, class_=kind) for kind, meaning in entries), class_="key", aria_hidden="true")


def _figure(title: str, note: str, *drawn: Markup | None) -> Markup:
    return tag("figure", tag("figcaption", title, tag("small", note)), *drawn, class_="card")


def _svg(width: int, height: int, spoken: str, kind: str, *drawn: Markup | None) -> Markup:
    return tag("svg", *drawn, class_=kind or None, viewBox=f"0 0 {width} {height}", role="img", aria_label=spoken)


def _arc(score: float, tone: str) -> Markup:
    length = _ROUND * min(100.0, score) / 100
    return tag(
        "circle",
        class_=f"ring arc {tone}",
        cx=70,
        cy=70,
        r=_RADIUS,
        stroke_dasharray=f"{length:.1f} {_ROUND:.1f}",
        transform="rotate(-90 70 70)",
    )


def _line(line: Bar, top: int, most: float) -> Markup:
    room, left = _WIDTH - _FIGURES, 0.0
    drawn = [tag("rect", class_="track", x=0, y=top + _LABEL + 3, width=room, height=_BAR, rx=3)]
    for kind, length in line.parts.items():
        wide = room * length / most
        if wide > 0:
            drawn.append(tag("rect", class_=kind, x=f"{left:.1f}", y=top + _LABEL + 3, width=f"{wide:.1f}", height=_BAR, rx=3))
        left += wide
    label = line.label if len(line.label) <= _LONGEST else f"{line.label[: _LONGEST - 1]}…"
    return joined(
        (
            tag("text", label, x=0, y=top + 11, direction="ltr"),
            *drawn,
            tag("text", line.end, x=_WIDTH, y=top + _LABEL + _BAR + 2, text_anchor="end"),
        )
    )


def _column(each: tuple[str, int, str], left: float, width: float, most: int) -> Markup:
    label, count, kind = each
    tall = (_FLOOR - 22) * count / most
    middle = f"{left + width / 2:.1f}"
    top = _FLOOR - max(tall, 2 if count else 0)
    return joined(
        (
            tag(
                "rect",
                class_=kind,
                x=f"{left + 2:.1f}",
                y=f"{top:.1f}",
                width=f"{width - 4:.1f}",
                height=f"{_FLOOR - top:.1f}",
                rx=3,
            ),
            tag("text", figure(count) if count else "", x=middle, y=f"{top - 6:.1f}", text_anchor="middle"),
            tag("text", label, class_="soft", x=middle, y=_FLOOR + 18, text_anchor="middle"),
        )
    )
