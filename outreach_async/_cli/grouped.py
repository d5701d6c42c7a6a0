"""Print findings and failed rows in groups: one reason is one line with a count, whatever the number of rows."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final

import attrs

from outreach_async._cli.output import Screen
from outreach_async.errors import format_count, shorten
from outreach_async.importer import RowGroup

_MAX_EXAMPLES: Final = 3  # of a group
_LEAST: Final = 3  # lines of each kind of groups, however many lines the others take
_MAX_SILENT: Final = 10  # groups on stderr, if nothing else is printed
_MAX_HEIGHT: Final = 2  # lines of a terminal for one line of text
_LEVELS: Final = {"error": "error", "drop": "left out", "warn": "warning"}


@attrs.frozen
class Shown:
    """A group as people read it: a line with its count, and examples below it, or one line for its only member."""

    count: int
    heading: str
    first: str
    examples: Sequence[str]
    only: str

    def lines(self, few: int) -> list[str]:
        if self.count == 1:
            return [self.only]
        return [self.heading, *(f"  {text}" for text in self.examples[:few])] if few else [f"{self.heading}; first: {self.first}"]


def show_finding(group: RowGroup[Any]) -> Shown:
    check, level, field, _ = group.key
    name = f"{_LEVELS.get(level, level)}: {check}"
    reason, examples = _find_common(group)
    in_field = "" if field in {"", check} else f" in {field}"
    heading = f"{name}: {format_count(group.count, 'finding')}{in_field}: {reason}"
    first = group.examples[0]
    return Shown(group.count, heading, _number(first), examples, _join(name, _number(first), first["message"]))


def show_rows(group: RowGroup[Any]) -> Shown:
    status, code, field, _ = group.key
    reason, examples = _find_common(group)
    named = reason if not field or reason.startswith(field) else f"{field}: {reason}"
    answered = f" (the service answered {code})" if code else ""
    heading = f"{status}: {format_count(group.count, 'row')}: {named}{answered}"
    first = group.examples[0]
    only = _join(_number(first), first.get("email"), status, first["message"])
    return Shown(group.count, heading, _number(first), examples, only)


def _find_common(group: RowGroup[Any]) -> tuple[str, list[str]]:
    """Return the reason of a group, and lines with what its examples do not have in common."""
    texts = group.messages
    places = [(_number(each), each.get("email")) for each in group.examples]
    if group.common is not None:
        return texts[0], ["; ".join(_join(*place) for place in places)]
    return group.key.reason, [_join(*place, text) for place, text in zip(places, texts, strict=True)]


def _join(*parts: str | None) -> str:
    return ": ".join(filter(None, parts))


def _number(example: Mapping[str, Any]) -> str:
    unit = "line" if "line" in example else "record"
    return _join(example.get("file"), f"{unit} {example[unit]}")


def print_groups(screen: Screen, groups: Sequence[Shown], noun: str, where: str, reserve: int) -> None:
    """Print groups, the largest first; if they take too many lines, with fewer examples, and then without the last groups.

    `where` is the option with the file that has every member.
    """
    if screen.is_silent:
        for line in _listed([each.lines(0)[0] for each in groups], groups, _MAX_SILENT, noun, where):
            screen.warn(line)
        return
    room = screen.room(reserve)
    for few in (_MAX_EXAMPLES, 1, 0):
        lines = [fit_line(screen, line) for each in groups for line in each.lines(few)]
        if room is None or sum(map(screen.height, lines)) <= max(room, _LEAST):
            break
    else:
        heights = [*accumulate(map(screen.height, lines))]
        lines = _listed(lines, groups, bisect_left(heights, max(room or 0, _LEAST)), noun, where)  # the last line counts the rest
    for line in lines:
        screen.print_line(line)


def _listed(lines: Sequence[str], groups: Sequence[Shown], few: int, noun: str, where: str) -> list[str]:
    if len(groups) <= few:
        return [*lines]
    count = sum(each.count for each in groups[few:])
    reasons = format_count(len(groups) - few, "more reason" if few else "reason")
    return [*lines[:few], f"... and {reasons}: {format_count(count, noun)}; {where} lists all"]


def fit_line(screen: Screen, line: str) -> str:
    """Shorten a line that would take too much of a terminal."""
    if screen.console is None or screen.verbose:
        return line
    width = _MAX_HEIGHT * screen.console.width
    while screen.height(line) > _MAX_HEIGHT:
        line = shorten(line, width := width - 8)
    return line
