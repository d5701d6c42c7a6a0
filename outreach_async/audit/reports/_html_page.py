"""Render a report or a brief as one self-contained HTML page (extra `html`).

The folder `templates` contains the markup, style and script of the pages: a macro for each kind of block. The script only copies
the list of what to stop.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from outreach_async.audit._report import Report
from outreach_async.audit._values import format_time, replace_unprintable
from outreach_async.audit.reports._client import ClientPage
from outreach_async.audit.reports._document import Extra, Styled, Title, build_document
from outreach_async.audit.reports.brief import Brief, workspace_label
from outreach_async.errors import InvalidRequest, format_count

if TYPE_CHECKING:
    from jinja2 import Environment

_TAGS: Final = {"": "bdi", "code": "code", "strong": "b"}
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|s|(?:second|minute|hour|day|week|month|year)s?|UTC)(?!\w))")
"""The space between a number and its unit, where a line must not break."""


def iterate_html(view: Report | Brief, extra: Extra = Extra()) -> Iterator[str]:  # noqa: B008 - it is frozen
    """Render a page that makes no requests, in pieces."""
    title, *parts = build_document(view, extra)
    workspaces = [each.id for each in view.workspaces] if isinstance(view, Brief) else view.workspaces
    subject = workspace_label(workspaces[0], view.names) if len(workspaces) == 1 else ""
    page = load_templates().get_template("page.html")
    return page.generate(title=title, subject=subject, time=format_time(view.at), client=None, parts=parts)


def render_client(page: ClientPage, texts: Mapping[str, str]) -> str:
    title = Title(1, [Styled(texts["title"] or page.name)])
    time = f"{f'{page.name}, ' if texts['title'] else ''}{page.period}"
    template = load_templates().get_template("page.html")
    return template.render(title=title, subject="", time=time, client=texts, parts=page.sections())


@cache
def load_templates() -> Environment:
    """Return the templates of the pages. The templates escape values, and replace unprintable characters in them."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise InvalidRequest("form: html needs the extra 'html'; run pip install 'outreach_async[html]'") from None

    def finalize(value: object) -> object:
        if not isinstance(value, str) or isinstance(value, Markup):
            return value
        return _UNIT.sub("\N{NO-BREAK SPACE}", replace_unprintable(value))

    templates = Environment(
        loader=PackageLoader("outreach_async.audit.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters |= {"counted": format_count, "kind": lambda block: type(block).__name__}
    templates.globals |= {"tags": _TAGS}
    for name, file in (("style", "page.css"), ("script", "page.js")):
        text = (files("outreach_async.audit.reports") / "templates" / file).read_text(encoding="utf-8")
        # The hash allows an inline style or script in the page's content security policy.
        digest = b64encode(sha256(text.encode()).digest()).decode()
        templates.globals |= {name: text, f"{name}_hash": f"sha256-{digest}"}
    return templates
