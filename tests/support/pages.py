"""Parsers of HTML and Markdown pages, which read them as a browser or a chat does."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser

from markdown_it import MarkdownIt
from markdown_it.token import Token

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])

PAIRS = [
    "heading",
    "paragraph",
    "strong",
    "bullet_list",
    "ordered_list",
    "list_item",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
]
MARKDOWN_TOKENS = {"inline", "text", "softbreak", "hardbreak", "code_inline"} | {
    f"{name}_{end}" for name in PAIRS for end in ("open", "close")
}
"""The only tokens that a report may contain. It has no links, images, HTML or italics."""


def tokens(text: str) -> Iterator[Token]:
    for token in PARSER.parse(text):
        yield token
        yield from token.children or ()


EMPTY = {"img", "meta", "link", "input", "rect", "circle", "line", "path"}


class Page(HTMLParser):
    """A parsed HTML page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.within: list[str] = []
        self.inline: dict[str, str] = {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in EMPTY:
            self.within.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        assert tag in EMPTY

    def handle_endtag(self, tag: str) -> None:
        assert self.within.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.within and self.within[-1] in {"script", "style"}:
            self.inline[self.within[-1]] = data
        else:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.elements if tag == name]
