"""HTML by construction: whatever is not markup already is escaped, so that no text from outside can become any."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from outreach_async.audit.outputs.words import printable

_EMPTY: Final = frozenset({"input", "rect", "circle", "line", "path"})
"""Elements without content; those of SVG need the slash that HTML's own ignore."""

Content = object
"""Text, a figure or markup; `None` is nothing."""


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Write an element.

    Args:
        name: Of the element.
        content: What is in it; escaped unless it is markup.
        attributes: By name, `_` for `-`, a `_` at the end dropped (`class_`, `for_`). `True` is an attribute without a value;
            `False` and `None` leave it out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{written}/>" if name in _EMPTY else f"<{name}{written}>{joined(content)}</{name}>")


def joined(content: Iterable[Content]) -> Markup:
    """Write one thing after another."""
    return Markup("".join(map(_escaped, content)))


def name(text: str, /, **attributes: str | None) -> Markup:
    """Write what somebody else named; a name that runs from right to left turns nothing around it."""
    return tag("bdi", text, **attributes)


def _escaped(content: Content) -> str:
    if content is None:
        return ""
    return content if isinstance(content, Markup) else escape(printable(str(content)))


def _attribute(key: str, value: str | float | bool | None) -> str:  # noqa: FBT001 - a boolean is what HTML calls it
    written = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {written}" if value is True else f' {written}="{escape(printable(str(value)))}"'
