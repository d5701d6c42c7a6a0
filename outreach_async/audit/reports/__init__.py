"""Render or summarize a report or a brief.

The formats are text, Markdown, HTML, JSON, messages of Slack and more;
`html` and `prometheus` need the extras of the same names. `REPORT_FORMATS`
and `BRIEF_FORMATS` have the names of all:

```python
from pathlib import Path

import anyio
from outreach_async import OutreachClient
from outreach_async.audit import audit
from outreach_async.audit.reports import format_of, summarize, write


async def main() -> None:
    async with OutreachClient() as client:
        report = await audit(client, ["space_1"])
    Path("audit.md").write_text(write(report, format_of("audit.md")))
    print(summarize(report).verdict)  # -> Fix 1 mailbox on 1 domain today; nothing is critical.


anyio.run(main)
```

`render_folder` renders a page for each workspace, and an index of all. An
agency can send a page to its client: of other workspaces, it has no name,
id or address, but how many mailboxes share a domain or a server with this
client's. Beside each page is its JSON report, with which
`outreach-async audit --output-folder reports` compares the next page.
`render_clients` renders pages on a period, from a history.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path, PurePath
from types import MappingProxyType, SimpleNamespace
from typing import Any, Final
from unicodedata import category, normalize

import attrs

from outreach_async._plumbing import escape_formula, require_module, require_types, show_name
from outreach_async.audit._findings import Finding
from outreach_async.audit._prometheus import PROMETHEUS, render_prometheus
from outreach_async.audit._report import Report
from outreach_async.audit._rules import rule_title
from outreach_async.audit._values import format_time
from outreach_async.audit.history import DayFigures, History
from outreach_async.audit.reports._client import embed_logo, read_clients
from outreach_async.audit.reports._document import Extra, Opened
from outreach_async.audit.reports._html_page import iterate_html, load_templates, render_client
from outreach_async.audit.reports._text_formats import (
    StyledReport,
    render_brief_slack,
    render_markdown,
    render_text,
    require_link,
)
from outreach_async.audit.reports.brief import Brief, Summary, Task, index_actions, summarize
from outreach_async.errors import InvalidRequest


def render_csv(report: Report) -> Iterator[str]:
    r"""Render the findings as CSV (RFC 4180), with the rule's title, the workspace's name, and what to do with the subject."""
    # Strings that a spreadsheet would evaluate as a formula get a leading apostrophe. Control characters become escapes such as
    # `\x1b`. `spreadsheets.unescape_formula` reverses both changes.
    writer: Any = csv.writer(SimpleNamespace(write=str))  # `writerow` returns what `write` returns
    yield writer.writerow([*(field.name for field in attrs.fields(Finding)), "title", "workspace_name", "action"])
    action_of = index_actions(report)
    for finding in report.findings:
        figures = json.dumps(finding.figures) if finding.figures else None
        added = {"figures": figures, "title": rule_title(finding.rule), "name": report.names.get(finding.workspace)}
        cells = (finding.to_dict() | added | {"action": action_of(finding)}).values()
        yield writer.writerow([escape_formula(cell) if isinstance(cell, str) else cell for cell in cells])


def render_json(report: Report) -> Iterator[str]:
    """Render a report as one JSON object, which `Report.from_dict` can read for comparison with a later audit."""
    counts = {severity.value: count for severity, count in report.counts.items()}
    values = attrs.evolve(report, findings=[], actions=[]).to_dict() | {"counts": counts}
    rest = json.dumps(values, indent=1, allow_nan=False)
    for name, items in (("findings", report.findings), ("actions", report.actions)):
        # Quotes in strings are escaped, so that this is the list, which is the first one of this name.
        head, mark, rest = rest.partition(f'"{name}": []')
        yield head
        before, after = f'"{name}": [', mark
        for item in items:
            row = item.to_dict() if isinstance(item, Finding) else attrs.asdict(item)
            text = json.dumps(row, allow_nan=False, separators=(",\n   ", ": "))  # `indent` is ten times slower
            yield f"{before}\n  {{\n   {text[1:-1]}\n  }}"
            before, after = ",", "\n ]"
        yield after
    yield f"{rest}\n"


def schema(model: type[Report | Brief] = Report) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a report or brief as JSON.

    Example:
        ```python
        print(schema()["type"])  # -> object
        ```
    """
    name = f"{model.__name__.lower()}.schema.json"
    text = (files("outreach_async.audit.reports") / "data" / name).read_text(encoding="utf-8")
    values: dict[str, Any] = json.loads(text)
    return values


__all__ = [
    "BRIEF_FORMATS",
    "REPORT_FORMATS",
    "SUFFIXES",
    "StyledReport",
    "Summary",
    "Task",
    "format_of",
    "format_time",
    "has_format",
    "iterate",
    "name_pages",
    "render_clients",
    "render_folder",
    "require_extra",
    "require_link",
    "schema",
    "summarize",
    "write",
]

_FORMATS: Final[dict[type[Report | Brief], dict[str, tuple[Callable[..., Iterable[str]], bytes]]]] = {
    Report: {
        "terminal": (render_text, rb"Mailbox audit: "),
        "json": (render_json, rb'\s*\{\s*"version":'),
        "csv": (render_csv, rb"(?:\xef\xbb\xbf)?rule,severity,workspace,"),
        "markdown": (render_markdown, rb"# Mailbox audit\r?\n"),
        "html": (iterate_html, rb"<!doctype html>.*?<title>Mailbox audit, "),
        "prometheus": (render_prometheus, rb"# HELP outreach_audit_"),
    },
    Brief: {
        "terminal": (render_text, rb"Outreach brief: "),
        "json": (
            lambda brief: f"{json.dumps(brief.to_dict(), indent=1, allow_nan=False)}\n",
            rb'\s*\{\s*"version":\s*[0-9]+,\s*"at":',
        ),
        "markdown": (render_markdown, rb"# Outreach brief\r?\n"),
        "html": (iterate_html, rb"<!doctype html>.*?<title>Outreach brief, "),
        "slack": (render_brief_slack, rb'\s*\{\s*"text":\s*"Outreach brief: '),
    },
}
"""For each format, what renders it, and a pattern of the first bytes of a file."""
_CLIENT: Final = rb'<!doctype html>.*?<meta name="description" content="Client report">'
_HEAD_SIZE: Final = 4096


def iterate(
    view: Report | Brief,
    form: str,
    *,
    days: Iterable[DayFigures] = (),
    opened: Opened = MappingProxyType({}),
    link: str | None = None,
) -> Iterable[str]:
    """Render a report or a brief in pieces, as `write` does, to save memory.

    Raises:
        InvalidRequest: The format is unknown, the extra it needs is not
            installed, or the link is not a URL.

    Example:
        ```python
        print(next(iter(iterate(report, "csv"))).partition(",")[0])  # -> rule
        ```
    """
    known = _FORMATS[Brief if isinstance(view, Brief) else Report]
    if form not in known:
        raise InvalidRequest(f"form: expected one of {', '.join(known)}, got {show_name(form)}; pass one of them")
    more = [Extra(days=days, opened=opened)] if form == "html" else [link] if form == "slack" else []
    made = known[form][0](view, *more)
    return [made] if isinstance(made, str) else made


def write(
    view: Report | Brief,
    form: str,
    *,
    days: Iterable[DayFigures] = (),
    opened: Opened = MappingProxyType({}),
    link: str | None = None,
) -> str:
    """Render a report or a brief as a string.

    Args:
        view: The report of an audit, or a brief.
        form: Name of the format, one of `REPORT_FORMATS` for a report, and
            of `BRIEF_FORMATS` for a brief.
        days: Figures of workspaces and campaigns from `History.daily`,
            which the format `html` shows as trends.
        opened: The times from `History.opened`, since which findings are
            open. The format `html` shows them beside the tasks.
        link: URL of the whole report, to which the format `slack` links.

    Raises:
        InvalidRequest: The format is unknown, the extra it needs is not
            installed, or the link is not a URL.

    Example:
        ```python
        print(write(report, "markdown").splitlines()[0])  # -> # Mailbox audit
        ```
    """
    require_types(write, locals())
    return "".join(iterate(view, form, days=days, opened=opened, link=link))


def require_extra(form: str) -> None:
    """Check that a format's extra is installed, before an audit of minutes.

    Raises:
        InvalidRequest: It is not installed.

    Example:
        ```python
        require_extra("html")
        ```
    """
    if form == "html":
        load_templates()
    elif form == "prometheus":
        require_module(*PROMETHEUS)


REPORT_FORMATS: Final = tuple(_FORMATS[Report])
"""Names of the formats of a report. The format `terminal` is plain text of at most 80 columns.

Example:
    ```python
    print(*REPORT_FORMATS)  # -> terminal json csv markdown html prometheus
    ```
"""

BRIEF_FORMATS: Final = tuple(_FORMATS[Brief])
"""Names of the formats of a brief. The format `slack` is the JSON of a message for an incoming webhook.

Example:
    ```python
    print(*BRIEF_FORMATS)  # -> terminal json markdown html slack
    ```
"""

SUFFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {".txt": "terminal", ".json": "json", ".csv": "csv", ".md": "markdown", ".markdown": "markdown"}
    | {".html": "html", ".htm": "html", ".prom": "prometheus"}
)
"""Names of the formats by the suffix of a file.

Example:
    ```python
    print(SUFFIXES[".md"])  # -> markdown
    ```
"""


def has_format(form: str, path: Path, model: type[Report | Brief] = Report) -> bool:
    """Return whether a file begins like a report or a brief in a format.

    Such a file may be replaced by one. The format `client` is that of the
    pages of `render_clients`.

    Example:
        ```python
        Path("audit.md").write_text(write(report, "markdown"))
        print(has_format("markdown", Path("audit.md")), has_format("csv", Path("audit.md")))  # -> True False
        ```
    """
    with path.open("rb") as file:
        return re.match(_CLIENT if form == "client" else _FORMATS[model][form][1], file.read(_HEAD_SIZE), re.DOTALL) is not None


def format_of(name: str) -> str:
    """Return a file name's format, such as `markdown` for `audit.md`.

    Raises:
        InvalidRequest: The name's suffix belongs to no format.

    Example:
        ```python
        print(format_of("audit.prom"))  # -> prometheus
        ```
    """
    form = SUFFIXES.get(PurePath(name).suffix.lower())
    if form is None:
        raise InvalidRequest(f"{name}: expected a name ending in one of {', '.join(SUFFIXES)}; rename the file, or pass a format")
    return form


INDEX: Final = "index"
_MAX_DAYS: Final = 366  # of the period of a client's page
_RESERVED: Final = re.compile("index|con|prn|aux|nul|(com|lpt)[0-9]")  # the index, and devices of Windows
_MAX_STEM: Final = 120  # bytes


def name_pages(workspaces: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return each workspace's file name without suffix: its name, else id.

    Example:
        ```python
        print(name_pages(["space_1", "space_2"], {"space_1": "Acme GmbH"}))  # -> {'space_1': 'acme-gmbh', 'space_2': 'space_2'}
        ```
    """
    stems = {each: _stem_of(names.get(each, each)) for each in workspaces}
    plain = {
        stem: "".join(each for each in normalize("NFKD", stem) if not category(each).startswith("M")) for stem in stems.values()
    }
    counts = Counter(plain[stem] for stem in stems.values())  # some file systems take ü for u and a mark
    digests = {each: blake2b(each.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest() for each in stems}
    clear = {stem for stem in plain if plain[stem] and counts[plain[stem]] == 1 and not _RESERVED.fullmatch(stem)}
    return {each: stem if stem in clear else f"{stem or 'workspace'}-{digests[each]}" for each, stem in stems.items()}


def _stem_of(name: str) -> str:
    """Return the letters, marks and digits of a name, with hyphens between them."""
    kept = "".join(
        each if each.isalnum() or category(each)[0] == "M" or each == "_" else "-" for each in normalize("NFKC", name).casefold()
    )
    return normalize("NFC", re.sub("-+", "-", kept)).encode()[:_MAX_STEM].decode(errors="ignore").strip("-")


def render_folder(
    whole: Report, parts: Sequence[Report], *, days: Iterable[DayFigures] = (), opened: Opened = MappingProxyType({})
) -> dict[str, str]:
    """Return files by name: the index, and pages and JSON of workspaces.

    Args:
        whole: The report on all workspaces, for the index, which links to
            the pages.
        parts: The reports of the single workspaces, as from
            `AuditRun.separate`, each compared with its own earlier report
            if there is one.
        days: Figures of workspaces and campaigns from `History.daily`; a
            page contains only those of its workspace.
        opened: The times from `History.opened`, since which findings are
            open.

    Raises:
        InvalidRequest: An argument is of another type.

    Example:
        ```python
        run = stream(client, ["space_1"])
        print(list(render_folder(await run, run.separate())))  # -> ['index.html', 'space_1.html', 'space_1.json']
        ```
    """
    require_types(render_folder, locals())
    known, stems = list(days), name_pages(whole.workspaces, whole.names)
    pages = {each: f"{stem}.html" for each, stem in stems.items()}
    files = {f"{INDEX}.html": "".join(iterate_html(whole, Extra(days=known, opened=opened, pages=pages)))}
    for part in parts:
        stem = stems[part.workspaces[0]]
        files[f"{stem}.html"] = "".join(iterate_html(part, Extra(days=known, opened=opened)))
        files[f"{stem}.json"] = f"{json.dumps(part.to_dict(), indent=1, allow_nan=False)}\n"
    return files


def render_clients(
    history: History,
    workspaces: Collection[str] | None = None,
    *,
    first: date,
    last: date,
    title: str = "",
    note: str = "",
    logo: bytes = b"",
) -> dict[str, str]:
    """Return a page for each client by file name: what was sent in a period.

    Figures are compared with those of as many days before the period.

    Args:
        history: The history, whose audits have read campaigns.
        workspaces: Ids of workspaces; by default, all that it knows.
        first, last: The days of the period, in UTC, at most 366.
        title: The title of the pages, by default the workspace's name.
        note: A comment, of which each line is a paragraph.
        logo: A PNG, JPEG, SVG or WebP image of at most 200,000 bytes.

    Raises:
        InvalidRequest: An argument is invalid, the history does not know a
            workspace, or the extra `html` is not installed.

    Example:
        ```python
        from datetime import date

        print(*render_clients(history, first=date(2026, 1, 1), last=date(2026, 1, 7)))  # -> space_1.html
        ```
    """
    require_types(render_clients, locals(), any_text=True)
    if not 0 <= (last - first).days < _MAX_DAYS:
        raise InvalidRequest(
            f"first: expected a period of 1 to {_MAX_DAYS} days up to {last}, got it from {first}; pass another day"
        )
    texts = {"title": title, "note": note, "logo": embed_logo(logo) if logo else ""}
    pages = read_clients(history, workspaces, first, last)
    stems = name_pages([each.workspace for each in pages], {each.workspace: each.name for each in pages})
    return {f"{stems[each.workspace]}.html": render_client(each, texts) for each in pages}
