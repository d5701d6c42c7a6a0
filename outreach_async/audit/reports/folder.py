"""Render a page for each workspace, which contains nothing of the others, and an index of all.

An agency can send a page to its client: it is the report of an audit of this client's workspace alone. Beside each page is its
JSON report, with which `outreach-async audit --output-folder reports` compares the next page.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType
from typing import Final

from outreach_async.audit._report import Report
from outreach_async.audit.history import DayFigures
from outreach_async.audit.reports._html_page import Opened, iterate_html

__all__ = ["name_pages", "render_folder"]

INDEX: Final = "index"
_UNSAFE: Final = re.compile(r"[^a-z0-9_]+")
_MAX_STEM: Final = 60


def name_pages(workspaces: Iterable[str], names: Mapping[str, str]) -> dict[str, str]:
    """Return the name of the files of each workspace, without a suffix, by workspace id: its name, or else its id.

    Example:
        ```python
        print(name_pages(["space_1", "space_2"], {"space_1": "Acme GmbH"}))  # -> {'space_1': 'acme-gmbh', 'space_2': 'space_2'}
        ```
    """
    stems = {each: _UNSAFE.sub("-", names.get(each, each).lower()).strip("-")[:_MAX_STEM] for each in workspaces}
    counts = Counter(stems.values())
    unclear = {"", INDEX, *(stem for stem, count in counts.items() if count > 1)}
    digests = {each: blake2b(each.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest() for each in stems}
    return {each: f"{stem or 'workspace'}-{digests[each]}" if stem in unclear else stem for each, stem in stems.items()}


def render_folder(
    whole: Report, parts: Sequence[Report], *, days: Iterable[DayFigures] = (), opened: Opened = MappingProxyType({})
) -> dict[str, str]:
    """Return the files of a folder by name: the index, and a page and a JSON report for each workspace.

    Args:
        whole: The report on all workspaces, for the index, which links to the pages.
        parts: The reports of the single workspaces, as from `AuditRun.separate`, each compared with its own earlier report if
            there is one.
        days: Figures of workspaces and campaigns from `History.daily`; a page contains only those of its workspace.
        opened: The times from `History.opened`, since which findings are open.

    Example:
        ```python
        run = stream(client, ["space_1"])
        print(list(render_folder(await run, run.separate())))  # -> ['index.html', 'space_1.html', 'space_1.json']
        ```
    """
    known, stems = list(days), name_pages(whole.workspaces, whole.names)
    pages = {each: f"{stem}.html" for each, stem in stems.items()}
    files = {f"{INDEX}.html": "".join(iterate_html(whole, days=known, opened=opened, pages=pages))}
    for part in parts:
        stem = stems[part.workspaces[0]]
        files[f"{stem}.html"] = "".join(iterate_html(part, days=known, opened=opened))
        files[f"{stem}.json"] = f"{json.dumps(part.to_dict(), indent=1, allow_nan=False)}\n"
    return files
