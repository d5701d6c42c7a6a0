"""The site: one command builds them, with every guide and every public name, and with nothing that a tool generated."""

from __future__ import annotations

import html
import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import GUIDES, PACKAGES, examples_of, methods, module_docs, public
from tools.api_pages import TASKS

import outreach_async

pytestmark = pytest.mark.nightly

ROOT = Path(__file__).parents[2]
SEARCHES = {
    "FastAPI": ["examples.html#a-fastapi-app-whose-requests-share-one-client"],
    "timout": ["outreach_async/guides/operating.html#time-limits-and-retries"],
    "retry": ["outreach_async/guides/operating.html#time-limits-and-retries", "outreach_async.html#RetryPolicy"],
    "rate limit": ["outreach_async/rates.html", "outreach_async/guides/operating.html#rates"],
    "proxy": ["outreach_async/transport.html#proxies-and-tls"],
    "resume after crash": ["outreach_async/bulk.html#journal-and-resume"],
    "lost response": ["outreach_async/guides/concepts.html#outcome-and-certainty"],
    "duplicates": ["outreach_async/guides/concepts.html#outcome-and-certainty"],
    "ledger": ["outreach_async/guides/nightly.html", "outreach_async/guides/concepts.html#journal-and-ledger"],
    "exclude": ["outreach_async/guides/excluding.html"],
    "gdpr": ["outreach_async/guides/excluding.html#people-who-ask-to-be-forgotten"],
    "cron": ["outreach_async/guides/nightly.html#schedulers"],
    "s3": ["outreach_async/store.html#objects"],
    "excel": ["outreach_async/importer.html#formats"],
    "api key": ["outreach_async/config.html#keys"],
    "spf": ["outreach_async/audit.html#rules", "outreach_async/audit.html"],
    "slack": ["outreach_async/guides/command_line.html#every-morning"],
    "exit code": ["outreach_async/guides/command_line.html#exit-codes"],
    "pytest": ["outreach_async/pytest_plugin.html"],
    "typescript": ["outreach_async/fake/control.html", "examples.html#tests-of-a-program-in-typescript"],
    "opentelemetry": ["outreach_async/otel.html", "outreach_async/guides/operating.html#logs-events-and-metrics"],
    "create_many": ["outreach_async/resources.html#Contacts.create_many"],
    "SyncClient": ["outreach_async/sync.html#SyncClient"],
    "jupyter": ["outreach_async/guides/notebooks.html"],
}
"""What people search for, with the addresses of which one must be the first result."""

ASK = """
const [path, terms] = process.argv.slice(1);
global.window = {};
require(path);
console.log(JSON.stringify(JSON.parse(terms).map((term) => window.pdocSearch(term).map(({doc}) => doc))));
"""
"""Runs searches as a page does."""


def search(site: Path, *terms: str) -> list[list[str]]:
    """Return the addresses that each search finds, the best first."""
    node = shutil.which("node")
    if not node:
        pytest.skip("the search is a script, which Node.js runs")
    command = [node, "-e", ASK, str(site / "search.js"), json.dumps(terms)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [[address(found) for found in results] for results in json.loads(done.stdout)]


def address(entry: dict[str, str]) -> str:
    return f"{entry['modulename'].replace('.', '/')}.html#{entry['qualname']}".removesuffix("#")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, str(ROOT / "tests" / "tools" / "api_pages.py"), str(folder)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def page(site: Path, module: str) -> str:
    return (site / f"{module.replace('.', '/')}.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_public_name_can_be_found(site: Path, package: str) -> None:
    index = (site / "search.js").read_text(encoding="utf-8")
    assert {named.id for named in public(package) if f'"fullname": "{named.id}"' not in index.replace('":"', '": "')} == set()


def test_the_search_loads_fast_and_finds_nothing_private(site: Path) -> None:
    text = (site / "search.js").read_text(encoding="utf-8")
    assert len(text) < 1_000_000
    assert re.findall(r'"fullname": "[^"]*\._[^"]*"', text) == []


def test_most_searches_find_the_right_page_first(site: Path) -> None:
    first = {term: found[:1] for term, found in zip(SEARCHES, search(site, *SEARCHES), strict=True)}
    wrong = {term: found for term, found in first.items() if not set(found) & set(SEARCHES[term])}
    assert len(wrong) <= 2, wrong


def test_a_search_for_a_task_finds_its_section_first(site: Path) -> None:
    tasks = {task: target for links in TASKS.values() for task, target in links.items()}
    first = {task: found[0] for task, found in zip(tasks, search(site, *tasks), strict=True)}
    assert {task: found for task, found in first.items() if found != tasks[task]} == {}


def test_a_search_without_a_match_finds_nothing(site: Path) -> None:
    assert search(site, "xylophone", "") == [[], []]


def test_every_result_of_a_search_leads_to_a_name_or_a_section(site: Path) -> None:
    (index,) = re.findall(r"const docs = (\[.*\]);$", (site / "search.js").read_text(encoding="utf-8"), re.MULTILINE)
    for entry in json.loads(index):
        place, _, name = address(entry).partition("#")
        assert not name or f'id="{name}"' in (site / place).read_text(encoding="utf-8"), address(entry)


def test_no_page_and_no_search_result_shows_a_backtick(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = re.sub(r"<(script|style).*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert re.findall(".*`.*", re.sub(r"<pre><span></span>.*?</pre>", "", text, flags=re.DOTALL)) == [], path.name
    assert re.findall(r'"doc": "[^"]*`', (site / "search.js").read_text(encoding="utf-8")) == []


def test_the_first_page_is_short_and_pages_list_names_with_closed_members(site: Path) -> None:
    first = (site / "index.html").read_text(encoding="utf-8")
    assert len(re.sub(r"<(script|style).*?</\1>|<[^>]*>", " ", first, flags=re.DOTALL).split()) < 500
    assert [link for links in TASKS.values() for link in links.values() if f'href="{link}"' not in first] == []
    for path in site.rglob("outreach_async/**/*.html"):
        text = re.sub(r"<details.*?</details>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert set(re.findall(r'<div id="(.*?)" class="classattr"', text)) <= set(re.findall(r'<div id="(.*?\.__init__)"', text))


def test_a_page_begins_with_the_version_and_the_client_is_the_first_name(site: Path) -> None:
    for path in site.rglob("outreach_async/**/*.html"):
        assert f"</a> <span>{outreach_async.__version__}</span></header>" in path.read_text(encoding="utf-8")
    names = re.findall(r'href="#([^"]+)">', page(site, "outreach_async"))
    assert names[:4] == ["OutreachClient", "OutreachClient.from_config", "OutreachClient.with_options", "OutreachClient.request"]


def test_the_contents_list_the_guides_in_the_order_of_the_concepts(site: Path) -> None:
    parts = re.findall(r"<summary>(.*?)</summary>", page(site, "outreach_async").partition("</nav>")[0])
    assert ", ".join(parts) == (
        "Contents, Concepts, The client, Import a file, Every night, Audit and brief, Test your code, "
        "Test from another language, Past one machine, Operate"
    )


def test_every_guide_is_a_chapter_that_the_first_page_lists(site: Path) -> None:
    first_lines = {name: text.partition("\n")[0] for name, text in module_docs()}
    contents = page(site, "outreach_async")
    for module in GUIDES:
        assert html.escape(first_lines[module].partition("`")[0], quote=False) in page(site, module)
        assert f'href="{module.replace(".", "/")}.html"' in contents
    assert "outreach_async.html" in (site / "index.html").read_text(encoding="utf-8")


def test_every_link_leads_to_a_name(site: Path) -> None:
    for path in site.rglob("*.html"):
        text = re.sub(r"<script>.*?</script>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target, name in re.findall(r'href="(?!https:)([^"#]*)#?([^"]*)"', text):
            there = (path.parent / target).resolve() if target else path
            assert there.is_file(), f"{path.name}: {target}"
            assert not name or f'id="{html.unescape(name)}"' in there.read_text(encoding="utf-8"), f"{path.name}: {target}#{name}"


def test_nothing_that_a_tool_generated_is_shown(site: Path) -> None:
    for path in [*site.rglob("*.html"), site / "search.js"]:
        text = path.read_text(encoding="utf-8")
        assert "generated by attrs" not in text
        assert "Automatically created by" not in text
        assert set(re.findall(r'id="[^"]*\b(__\w+__)"', text)) <= {"__init__"}
        assert set(re.findall(r'"qualname": ?"[^"]*\b(__\w+__)"', text)) <= {"__init__"}


@pytest.fixture(scope="module")
def overview(site: Path) -> str:
    return (site / "llms.txt").read_text(encoding="utf-8")


def listed_names(overview: str) -> dict[str, list[str]]:
    """Return the public names that the overview lists, by module."""
    _, _, names = overview.partition("## Public names\n")
    return {
        module: re.findall("`(.+?)`", rest)
        for module, rest in re.findall(r"^- \[(outreach_async.*?)\]\(.*?\): (.*)$", names, re.MULTILINE)
    }


def test_the_overview_has_a_title_a_summary_and_sections_of_links(overview: str) -> None:
    head, *sections = re.split(
        r"^## (.*)\n", re.sub(r"^```python\n.*?^```$", "", overview, flags=re.MULTILINE | re.DOTALL), flags=re.MULTILINE
    )
    lines = head.splitlines()
    assert (lines[0], lines[2]) == ("# outreach_async", f"> {guide('outreach_async').splitlines()[0]}")
    assert sections[::2] == ["Chapters", "Public names", "Optional"]
    for section in sections[1::2]:
        assert all(re.fullmatch(r"- \[.+?\]\(.+?\): .+", line) for line in section.split("\n") if line)


def test_the_overview_lists_every_public_name_and_no_other(overview: str) -> None:
    listed = listed_names(overview)
    assert {package: sorted(listed[package]) for package in PACKAGES} == {
        package: sorted(named.id.removeprefix(f"{package}.") for named in public(package)) for package in PACKAGES
    }
    assert not [name for names in listed.values() for name in names if name.startswith("_")]


def test_every_link_of_the_overview_leads_to_a_file(site: Path, overview: str) -> None:
    targets = re.findall(r"\]\((.+?)\)", overview)
    assert len(targets) > 2 * len(PACKAGES)
    assert [target for target in targets if not (site / target).is_file()] == []


def test_the_programs_of_the_overview_are_those_of_guides(overview: str) -> None:
    programs = examples_of(overview)
    tested = {code for module in GUIDES for code in examples_of(guide(module))}
    assert len(set(programs)) == 5
    assert set(programs) <= tested


@pytest.mark.parametrize("package", PACKAGES)
def test_the_full_text_has_every_guide_and_public_name_with_its_methods(site: Path, package: str) -> None:
    full = (site / "llms-full.txt").read_text(encoding="utf-8")
    assert {module for module in GUIDES if f"# {module}\n\n{guide(module)}\n" not in full} == set()
    entries = dict(re.findall(r"^## (outreach_async\S*)\n(.*?)(?=^# |^## outreach_async|\Z)", full, re.MULTILINE | re.DOTALL))
    for named in public(package):
        name = named.id.rpartition(".")[2]
        assert re.search(rf"^- `(?:class |(?:async )?def )?{name}\b", entries[named.id], re.MULTILINE), named.id
        for method in methods(named):
            assert re.search(rf"^- `(?:async )?def {method.id.rpartition('.')[2]}\(", entries[named.id], re.MULTILINE), method.id


def guide(module: str) -> str:
    return inspect.getdoc(importlib.import_module(module)) or ""
