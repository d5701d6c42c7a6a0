"""Build the site: a first page with tasks, a chapter for each guide, with the public names of its package, and a search.

Also build two texts for coding assistants (https://llmstxt.org): `llms.txt`, an overview with links to the chapters, and
`llms-full.txt`, every guide with the signatures of its public names.

Run: python tests/tools/api_pages.py FOLDER

Requires the extra `all` and the group `docs`. Open FOLDER/index.html in a browser; no server is needed. A chapter shows what
callers use: methods that have an example, and attributes with their types and descriptions. Of the code that attrs generates,
it shows only the constructor.
"""

from __future__ import annotations

import html
import importlib
import inspect
import json
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from pdoc import doc, render, render_helpers

import outreach_async

PARTS: Final = {
    "Concepts": ("outreach_async.guides", "outreach_async.guides.concepts"),
    "The client": (
        *("outreach_async", "outreach_async.resources", "outreach_async.models", "outreach_async.converters"),
        *("outreach_async.sync", "outreach_async.config", "outreach_async.guides.notebooks"),
    ),
    "Import a file": ("outreach_async.importer", "outreach_async.guides.command_line"),
    "Every night": (
        *("outreach_async.bulk", "outreach_async.guides.nightly", "outreach_async.guides.excluding", "outreach_async.store"),
    ),
    "Audit and brief": (
        *("outreach_async.audit", "outreach_async.audit.policy", "outreach_async.audit.campaigns"),
        *("outreach_async.audit.history", "outreach_async.audit.plan", "outreach_async.audit.reports"),
        *("outreach_async.audit.reports.brief", "outreach_async.mcp_server"),
    ),
    "Test your code": (
        *("outreach_async.pytest_plugin", "outreach_async.testing", "outreach_async.fake", "outreach_async.fake.behaviour"),
        *("outreach_async.fake.faults", "outreach_async.fake.world_file"),
        *("outreach_async.fake.request_log", "outreach_async.conformance"),
    ),
    "Test from another language": ("outreach_async.fake.control",),
    "Past one machine": (
        "outreach_async.parts",
        "outreach_async.parts.processes",
        "outreach_async.parts.dask",
        "outreach_async.rates",
    ),
    "Operate": (
        *("outreach_async.guides.operating", "outreach_async.hooks", "outreach_async.otel", "outreach_async.transport"),
        "outreach_async.guides.performance",
    ),
}
"""The modules that have a page, in reading order, by the part of the contents that lists them."""

CHAPTERS: Final = tuple(name for part in PARTS.values() for name in part)

TASKS: Final = {
    "You send contacts": {
        "Import a file of contacts": "outreach_async/importer.html",
        "Read workbooks of Excel, Parquet files and JSON Lines": "outreach_async/importer.html#formats",
        "Map the columns of a file to fields": "outreach_async/importer.html#columns",
        "Find invalid rows before anything is sent": "outreach_async/importer.html#checks",
        "Correct the rows that failed, and import them again": "outreach_async/importer.html#rejects",
        "Overwrite or skip duplicates, contacts that exist already": "outreach_async/guides/concepts.html#outcome-and-certainty",
        "Send only what changed, every night": "outreach_async/guides/nightly.html",
        "Schedule imports with cron, systemd, Airflow or Dagster": "outreach_async/guides/nightly.html#schedulers",
        "Send nothing to people who must not be written to": "outreach_async/guides/excluding.html",
        "Erase a person (GDPR)": "outreach_async/guides/excluding.html#people-who-ask-to-be-forgotten",
        "Resume after a crash, a kill or Ctrl-C": "outreach_async/bulk.html#journal-and-resume",
        "Import a large file faster, with several processes": "outreach_async/parts/processes.html",
        "Import with several machines": "outreach_async/parts.html",
        "Find the contact ids of the rows": "outreach_async/guides/command_line.html#imports",
    },
    "You work for many clients": {
        "Keep the keys and the names of all workspaces in one file": "outreach_async/config.html",
        "Say where the API keys are": "outreach_async/config.html#keys",
        "Audit the mailboxes of all workspaces": "outreach_async/audit.html",
        "Find domains without SPF, DKIM or DMARC": "outreach_async/audit.html#rules",
        "Send a report to each client": "outreach_async/guides/command_line.html#audits-and-briefs",
        "Post a brief to Slack, every morning": "outreach_async/guides/command_line.html#every-morning",
        "Check campaigns, steps and placeholders": "outreach_async/audit/campaigns.html",
        "Keep the figures of each day, and see trends": "outreach_async/audit/history.html",
        "Know when campaigns end, and what if": "outreach_async/audit/plan.html",
        "Turn rules off, and change thresholds": "outreach_async/audit.html#policies",
        "Connect an assistant (MCP)": "outreach_async/mcp_server.html",
    },
    "You test your product": {
        "Test Python code with pytest": "outreach_async/pytest_plugin.html",
        "Simulate lost responses, rate limits and outages": "outreach_async/fake.html#faults",
        "Test retries and waits without waiting": "outreach_async/fake.html#time",
        "Test in TypeScript, JavaScript or another language": "outreach_async/fake/control.html",
        "Run the fake in a container (Docker)": "outreach_async/fake/control.html#in-a-container",
        "Fill the fake with data": "outreach_async/fake.html#worlds",
        "Check a live service against its documentation": "outreach_async/conformance.html",
    },
    "You write and operate a program": {
        "Install the package and its extras": "outreach_async/guides.html#installation",
        "Read campaigns and mailboxes in Python": "outreach_async.html",
        "Explore pages and reports in a Jupyter notebook": "outreach_async/guides/notebooks.html",
        "Write a script without async and await": "outreach_async/sync.html",
        "Create millions of contacts in Python": "outreach_async/bulk.html",
        "Use one client in FastAPI, Django or a worker": "examples.html",
        "Know what a lost response or an error may have changed": "outreach_async/guides/concepts.html#outcome-and-certainty",
        "Set timeouts, deadlines and retries": "outreach_async/guides/operating.html#time-limits-and-retries",
        "Share a rate limit between processes and hosts": "outreach_async/rates.html",
        "Use a proxy, or certificates of your own": "outreach_async/transport.html#proxies-and-tls",
        "Use logging, OpenTelemetry and Prometheus": "outreach_async/guides/operating.html#logs-events-and-metrics",
        "Look up an exit code": "outreach_async/guides/command_line.html#exit-codes",
        "See what a request costs": "outreach_async/guides/performance.html",
    },
}
"""The tasks on the first page, by reader, each with the address of its section. The search finds a section by its tasks."""

EXAMPLES: Final = Path(__file__).parents[1] / "examples"

FIRST: Final = {"outreach_async": ["OutreachClient", "NewContact", "OutreachError", "RetryPolicy"]}
"""The names that come first in these modules. The others follow in alphabetical order."""

SHOWN: Final = {
    "outreach_async.resources": ["Campaigns", "Mailboxes", "Contacts", "Workspaces"],
    "outreach_async.fake.behaviour": ["load_behaviour", "dump_behaviour"],
    "outreach_async.fake.request_log": ["RequestLog", "mask_target"],
    "outreach_async.fake.control": [],
}
"""The names to show for these modules. Other modules show the names in their `__all__`."""


PROGRAMS: Final = {
    "List campaigns, and create a contact": "outreach_async",
    "Create any number of contacts": "outreach_async.bulk",
    "Import a file": "outreach_async.importer",
    "Audit mailboxes": "outreach_async.audit",
    "Test your own code, with pytest": "outreach_async.pytest_plugin",
}
"""The programs in the overview: the title of each, and the guide whose first program it is."""

ATTRIBUTE: Final = re.compile(r"^    (\w+(?:, \w+)*): (.*(?:\n     .*)*)", re.MULTILINE)
"""An entry in an `Attributes:` section, about one attribute or several."""

SECTION: Final = re.compile(r"^(.+)\n-+$", re.MULTILINE)
"""The heading of a section of a guide."""

PLAIN_BLOCK: Final = re.compile(r"(?<=<pre><code>).*?(?=</code></pre>)", re.DOTALL)
"""A table or commands in a guide, which are indented text."""

PROGRAM: Final = re.compile(r"^```(?:python|typescript)\n.*?^```$", re.MULTILINE | re.DOTALL)

QUALIFIER: Final = re.compile(r"\b(?:outreach_async|collections\.abc|msgspec|pathlib|typing)(?:\.[a-z_]\w*)*\.(?=[A-Z])")
"""The module name in front of a class name."""


def load_chapter(name: str) -> doc.Module:
    """Return the documentation of a module, restricted to what callers use."""
    module = importlib.import_module(name)
    names = SHOWN.get(name, getattr(module, "__all__", []))
    names = [*FIRST.get(name, []), *(other for other in names if other not in FIRST.get(name, []))]
    # Import the names that the module imports on first use: pdoc would report them as missing submodules.
    vars(module).update({public: getattr(module, public) for public in names} | {"__all__": names})
    # A constructor that attrs generates has the annotations of the base class, which name what only its module imports.
    for kind in [value for value in map(partial(getattr, module), names) if inspect.isclass(value)]:
        for base in [base for base in kind.__mro__ if base.__module__.startswith("outreach_async")]:
            vars(module).update(vars(sys.modules[base.__module__]) | vars(module))
    chapter = doc.Module(module)
    # Guides have no Google-style sections: a line such as `What cannot be observed:` introduces a table.
    chapter.docstring = re.sub(r"^([A-Z][A-Za-z ]+):$", r"\1: ", chapter.docstring, flags=re.MULTILINE)
    for member in chapter.members.values():
        if isinstance(member, doc.Class):
            foreign = [base for base in member.bases if not base[0].startswith("outreach_async")]
            member.bases = [(name, base, base) for _, base, _ in member.bases if base in names] + foreign
            select_members(member)
            describe_attributes(member)
        elif isinstance(member, doc.Variable) and not member.docstring:
            member.docstring = next(find_constant_docs(member.name, getattr(module, member.name)), "")
    return chapter


def select_members(kind: doc.Class) -> None:
    """Keep inherited members, and remove methods without an example, because callers do not call them."""
    is_protocol = getattr(kind.obj, "_is_protocol", False)  # callers implement the methods of a protocol
    for name, member in list(kind.members.items()):
        if member.taken_from[0].startswith("outreach_async"):
            # A base class has no page of its own.
            member.taken_from = (kind.modulename, f"{kind.qualname}.{name}")
        if name == "__init__":
            if member.docstring.startswith("Method generated by attrs"):
                member.docstring = ""
            if is_protocol:
                del kind.members[name]
        elif isinstance(member, doc.Function) and not is_protocol and "```python" not in member.docstring:
            del kind.members[name]


def describe_attributes(kind: doc.Class) -> None:
    """Move the descriptions of attributes from the docstrings of the class and its bases to the attributes."""
    constructor = kind.get("__init__")
    parameters = constructor.signature.parameters if isinstance(constructor, doc.Function) else {}
    descriptions: dict[str, str] = {}
    for base in reversed(kind.obj.__mro__):
        if base.__module__.startswith("outreach_async"):
            entries = ATTRIBUTE.findall(split_attributes(inspect.cleandoc(base.__doc__ or ""))[1])
            descriptions |= {name: text for names, text in entries for name in names.split(", ")}
    head, section, tail = split_attributes(kind.docstring)
    moved = set[str]()
    for name, member in list(kind.members.items()):
        if isinstance(member, doc.Variable) and not member.docstring:
            member.docstring = re.sub(r"\n +", "\n", descriptions.get(name, ""))
            moved.add(name)
            if not member.docstring and name in parameters:
                del kind.members[name]
    left = "".join(
        f"    {names}: {text}\n" for names, text in ATTRIBUTE.findall(section) if not moved.issuperset(names.split(", "))
    )
    kind.docstring = f"{head}Attributes:\n{left}{tail}" if left else head + tail


def split_attributes(docstring: str) -> tuple[str, str, str]:
    """Return the text before the `Attributes:` section, its entries, and the text after it."""
    head, _, rest = f"{docstring}\n".partition("Attributes:\n")
    entries = re.match(r"(    .*\n)*", rest)
    section = entries[0] if entries else ""
    return head, section, rest.removeprefix(section)


def find_constant_docs(name: str, value: object) -> Iterator[str]:
    """Yield the docstring of a constant from the module that defines it. Modules that import the constant do not have it."""
    for home in [module for key, module in sys.modules.items() if key.startswith("outreach_async.")]:
        if vars(home).get(name) is value and (member := doc.Module(home).get(name)) and member.docstring:
            yield member.docstring


def render_overview(chapters: dict[str, doc.Module]) -> str:
    """Return the overview for coding assistants: the most important programs, the chapters, and all public names."""
    summary, details, *_ = read_guide("outreach_async").split("\n\n")
    lines = ["# outreach_async", "", f"> {summary}", "", details]
    for title, guide in PROGRAMS.items():
        lines += ["", f"{title}:", "", PROGRAM.findall(read_guide(guide))[0]]
    lines += ["", "## Chapters", ""]
    lines += [f"- [{name}]({page_of(name)}): {read_guide(name).splitlines()[0]}" for name in chapters]
    lines += ["", "## Public names", ""]
    for name, chapter in chapters.items():
        if names := ", ".join(f"`{public}`" for public in chapter.members):
            lines.append(f"- [{name}]({page_of(name)}): {names}")
    every = "- [All guides](llms-full.txt): the chapters in one file, with the signatures of their names"
    return "\n".join([*lines, "", "## Optional", "", every, ""])


def render_full(chapters: dict[str, doc.Module]) -> str:
    """Return all guides, each followed by its public names with their signatures and summaries."""
    lines: list[str] = []
    for name, chapter in chapters.items():
        lines += [f"# {name}", "", read_guide(name), ""]
        for member in chapter.members.values():
            lines += [f"## {name}.{member.name}", "", *describe_member(member), ""]
    return "\n".join(lines)


def describe_member(member: doc.Doc[Any]) -> Iterator[str]:
    """Yield the lines that describe a public name: its summary, its signature, and, for a class, its members."""
    if summary := summarize(member):
        yield from (summary, "")
    if isinstance(member, doc.Class):
        constructor = member.get("__init__")
        signature = sign(constructor) if isinstance(constructor, doc.Function) else ""
        yield f"- `class {member.name}{signature.removeprefix('def __init__')}`"
        for name, part in member.members.items():
            if not name.startswith("_") and part.taken_from[0].startswith("outreach_async"):
                yield f"- `{sign(part)}`{f': {summary}' if (summary := summarize(part)) else ''}"
    else:
        yield f"- `{sign(member)}`"


def sign(member: doc.Doc[Any]) -> str:
    """Return the signature of a function as callers see it, or an attribute with its type, on one line."""
    if isinstance(member, doc.Function):
        text = f"{member.funcdef} {member.name}{member.signature}"
    else:
        text = f"{member.name}{member.annotation_str}" if isinstance(member, doc.Variable) else member.name
    one_line = re.sub(r"(?<=\() | (?=\)$)| (?=\) ->)", "", " ".join(text.split()))
    one_line = re.sub(r"= (?:functools\.partial\([^)]*\)|<[^,()]*>)", "= ...", one_line)  # the repr of an object is not useful
    return QUALIFIER.sub("", re.sub(r"(?<=\()(?:self|cls)(?:, (?:/, )?|(?=\)))", "", one_line))


def summarize(member: doc.Doc[Any]) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join(member.docstring.partition("\n\n")[0].split())


def read_guide(name: str) -> str:
    return inspect.getdoc(importlib.import_module(name)) or ""


def build_search_index(chapters: dict[str, doc.Module], examples: str) -> Iterator[dict[str, str]]:
    """Yield what the search finds: every section of the guides, every example, and the summary of every name."""
    for name, chapter in chapters.items():
        yield from index_sections(name, PROGRAM.sub("", read_guide(name)))
        for member in chapter.members.values():
            parts = member.members.values() if isinstance(member, doc.Class) else ()
            shown = (part for part in parts if not part.name.startswith("_") and part.taken_from[0].startswith("outreach_async"))
            for found in (member, *shown):
                about = {name: getattr(found, name) for name in ("fullname", "modulename", "qualname", "kind")}
                if isinstance(found, doc.Function):
                    signature = html.escape(sign(found).removeprefix(f"{found.funcdef} {found.name}"))
                    about |= {"funcdef": found.funcdef, "signature": f'<span class="signature">{signature}</span>'}
                if isinstance(found, doc.Variable):
                    about |= {"annotation": html.escape(found.annotation_str)}
                yield about | {"doc": show(summarize(found))}
    yield from index_sections("examples", PROGRAM.sub("", examples))


def index_sections(name: str, text: str) -> Iterator[dict[str, str]]:
    """Yield the beginning of a text, and each of its sections. Only their first words are shown."""
    first, *rest = SECTION.split(text)
    for title, words in [("", first), *zip(rest[::2], rest[1::2], strict=True)]:
        anchor = re.sub(r"[^\w.-]+", "-", title.lower()).strip("-")
        address = f"{page_of(name)}#{anchor}".removesuffix("#")
        summary, _, details = words.strip().partition("\n\n")
        yield {
            "fullname": f"{name}: {title}" if title else name,
            "modulename": name,
            "qualname": anchor,
            "kind": "section" if title else "module",
            "title": title or f"{name.rpartition('.')[2]} {summary.partition(':')[0] if not details else ''}",
            "tasks": " ".join(task for links in TASKS.values() for task, target in links.items() if target == address),
            "summary": "" if title else summary,
            "text": " ".join((words if title else details).split()),
            "doc": show(textwrap.shorten(words, 300, placeholder=" ...")),
        }


def show(text: str) -> str:
    text = re.sub("`+([^`]+)`+", r"<code>\1</code>", html.escape(text))
    return f"<p>{text.replace('`', '')}</p>"  # a shortened text may end within code


def read_examples() -> str:
    """Return the examples as Markdown: the first words of each are its heading."""
    sections = list[str]()
    for path in [path for path in sorted(EXAMPLES.glob("*.[pt][ys]")) if not path.name.startswith("test_")]:
        text = path.read_text(encoding="utf-8")
        pattern, language = (r'"""(.*?)"""\n+', "python") if path.suffix == ".py" else (r"((?://.*\n)+)", "typescript")
        about = re.match(pattern, text, re.DOTALL if language == "python" else 0)
        assert about, f"{path.name}: expected a docstring or a comment at its beginning"
        details = re.sub("^// ?", "", about[1], flags=re.MULTILINE)
        title = re.split("[.,:]", " ".join(details.split()))[0]
        code = text.removeprefix(about[0]).strip()
        sections.append(f"{title}\n{'-' * len(title)}\n{details.strip()}\n\n```{language}\n{code}\n```\n")
    return "\n".join(["Complete programs, whose tests run them.\n", *sections])


def finish_page(text: str) -> str:
    """Return a page with accessible links and headings, and with code in tables and commands instead of backticks."""
    # Links to names have a name of their own, and titles of sections in docstrings are bold, not headings.
    text = re.sub(r'<a class="headerlink" href="#([^"]*)"', r'<a class="headerlink" aria-label="Link to \1" href="#\1"', text)
    text = re.sub(r"<h6[^>]*>(.*?)</h6>", r"<p><strong>\1</strong></p>", text)
    return PLAIN_BLOCK.sub(lambda block: re.sub(r"(?<!`)`([^`]+)`(?!`)", r"<code>\1</code>", block[0]), text)


def page_of(name: str) -> str:
    return f"{name.replace('.', '/')}.html"


def render_page(template: str, title: str, text: str) -> str:
    body = render_helpers.to_html(text)
    return render.env.get_template(f"{template}.html.jinja2").render(title=title, text=body)


def main(folder: Path) -> None:
    # A class of typed rows has no bases at run time, so pdoc cannot know that its fields are inherited.
    warnings.filterwarnings("ignore", r"Cannot determine where outreach_async\.ContactRow\.")
    templates = Path(__file__).parent / "templates"
    render.configure(docformat="google", show_source=False, template_directory=templates)
    render.env.globals |= {"parts": PARTS, "tasks": TASKS, "version": outreach_async.__version__}
    chapters = {name: load_chapter(name) for name in CHAPTERS}
    examples = read_examples()
    pages = {page_of(name): render.html_module(chapter, chapters) for name, chapter in chapters.items()}
    pages["index.html"] = render_page("start", "Documentation", read_guide("outreach_async").partition("\n\n")[0])
    pages["examples.html"] = render_page("page", "Examples", examples)
    for name, text in pages.items():
        page = folder / name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(finish_page(text), encoding="utf-8")
    index = json.dumps([*build_search_index(chapters, examples)]).replace("</", "<\\/")
    found = render.env.get_template("search.js.jinja2").render(search_index=index)
    (folder / "search.js").write_text(found, encoding="utf-8")
    (folder / "llms.txt").write_text(render_overview(chapters), encoding="utf-8")
    (folder / "llms-full.txt").write_text(render_full(chapters), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
