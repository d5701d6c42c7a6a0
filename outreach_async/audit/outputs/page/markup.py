"""HTML builder that escapes everything except `Markup`; strings from outside cannot become markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final

from outreach_async.audit.outputs.words import printable

_EMPTY: Final = frozenset({"input", "rect", "circle", "line", "path"})
"""Elements without content. SVG elements need the closing slash; HTML elements ignore it."""

Content = object
"""A string, a number or markup; `None` renders nothing."""


class Markup(str):
    """A string that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *content: Content, **attributes: str | float | bool | None) -> Markup:
    """Render an element.

    Args:
        name: Name of the element.
        content: Content of the element; escaped unless it is markup.
        attributes: Attributes by name: `_` becomes `-`, and a trailing `_` is dropped (`class_`, `for_`). `True` renders an
            attribute without a value; `False` and `None` omit it.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Markup(f"<{name}{written}/>" if name in _EMPTY else f"<{name}{written}>{joined(content)}</{name}>")


def joined(content: Iterable[Content]) -> Markup:
    """Concatenate contents."""
    return Markup("".join(map(_escaped, content)))


def name(text: str, /, **attributes: str | None) -> Markup:
    """Render a name from outside; `bdi` keeps right-to-left characters from affecting the surrounding text."""
    return tag("bdi", text, **attributes)


def _escaped(content: Content) -> str:
    if content is None:
        return ""
    return content if isinstance(content, Markup) else escape(printable(str(content)))


def _attribute(key: str, value: str | float | bool | None) -> str:  # noqa: FBT001 - HTML has boolean attributes
    written = key.rstrip("_").replace("_", "-")
    if value is None or value is False:
        return ""
    return f" {written}" if value is True else f' {written}="{escape(printable(str(value)))}"'
