"""Draw results as an SVG of horizontal bars, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

import attrs

from benchmarks.report import ratios, short
from benchmarks.results import Table

_WIDTH: Final = 920
_NAMES: Final = 330
_BAR: Final = 16
_STEP: Final = 24
_HEAD: Final = 52
_GAP: Final = 26

_STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600; font-size: 15px } .unit, .figure { fill: #57606a }
.ours { fill: #1f6feb } .peer { fill: #9aa4af } .limit { fill: #c9a227 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .unit, .figure { fill: #9da7b1 } .ours { fill: #58a6ff } .peer { fill: #6e7681 } .limit { fill: #d4a72c }
}
"""

_OURS: Final = (
    "HttpxTransport",
    "AiohttpTransport",
    "OutreachClient",
    "create",
    "converters",
    "contacts.",
    "import outreach",
    "from outreach",
)
_LIMITS: Final = ("raw ", "msgspec")


@attrs.frozen
class Bars:
    """A bar chart of one column of a table.

    Attributes:
        table: The table.
        column: The column to draw.
    """

    table: Table
    column: str

    def rows(self) -> list[tuple[str, float]]:
        """Return the rows that have a value, in the order of the table."""
        found = [(row, self.table.median(row, self.column)) for row in self.table.samples]
        return [(row, figure) for row, figure in found if figure is not None]

    def height(self) -> int:
        """Return the height in pixels."""
        return _HEAD + _STEP * len(self.rows()) + _GAP

    def drawn(self, top: int) -> Iterator[str]:
        """Yield the SVG elements, starting `top` pixels from the top."""
        rows = self.rows()
        longest = max(figure for _, figure in rows)
        yield _text(0, top + 20, self.table.title, "title")
        yield _text(0, top + 38, f"{self.table.unit}: {self.column}{self.table.legend()}", "unit")
        for number, (row, figure) in enumerate(rows):
            yield from self._bar(top + _HEAD + number * _STEP, row, figure, longest)

    def _bar(self, top: int, row: str, figure: float, longest: float) -> Iterator[str]:
        width = max(1.0, (_WIDTH - _NAMES - 120) * figure / longest)
        yield f'<text x="{_NAMES - 8}" y="{top + 13}" text-anchor="end">{escape(row)}</text>'
        yield f'<rect class="{_kind(row)}" x="{_NAMES}" y="{top}" width="{width:.1f}" height="{_BAR}" rx="2"/>'
        yield _text(_NAMES + width + 6, top + 13, f"{short(figure)}{ratios(self.table, row, self.column)}", "figure")


def _kind(row: str) -> str:
    if row.startswith(_LIMITS):
        return "limit"
    return "ours" if row.startswith(_OURS) else "peer"


def _text(x: float, y: float, text: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>'


def svg(pictures: Iterable[Bars]) -> str:
    """Return an SVG with the charts below each other."""
    elements: list[str] = []
    top = 0
    for bars in pictures:
        elements += bars.drawn(top)
        top += bars.height()
    size = f'viewBox="-12 0 {_WIDTH + 24} {top}" width="{_WIDTH + 24}" height="{top}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">'
    return "\n".join([head, f"<style>{_STYLE}</style>", *elements, "</svg>", ""])
