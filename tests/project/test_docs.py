"""Docstrings are correct and complete: every public name has a description and an example; examples print what they show."""

from __future__ import annotations

import importlib
import inspect
import pydoc
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import attrs
import pytest
from support.cli import serve_in_thread
from support.docs import (
    GUIDES,
    PACKAGES,
    Named,
    checks_arguments,
    constant_doc,
    example_namespace,
    example_world,
    examples_of,
    is_async,
    keeps_its_promise,
    methods,
    module_docs,
    promised_lines,
    properties,
    public,
    raised_errors,
    run_example,
)
from support.tables import check_rows

import outreach_async
from outreach_async import NewContact
from outreach_async.audit import Policy
from outreach_async.fake import FakeService
from outreach_async.fake.behaviour import load_behaviour
from outreach_async.fake.request_log import RequestLog
from outreach_async.resources import Campaigns, Contacts, Mailboxes, Workspaces

NAMES = [named for package in PACKAGES for named in public(package)]
PARTS = {
    "OutreachClient.campaigns": Campaigns,
    "OutreachClient.mailboxes": Mailboxes,
    "OutreachClient.contacts": Contacts,
    "OutreachClient.workspaces": Workspaces,
    "fake.FakeService.requests": RequestLog,
}
"""Attributes of public objects, which callers use without naming their classes."""
PART_NAMES = [
    Named(f"outreach_async.{path}", kind, "outreach_async.fake" if path.startswith("fake") else "outreach_async")
    for path, kind in PARTS.items()
]
CLASSES = [named for named in [*NAMES, *PART_NAMES] if inspect.isclass(named.value)]
CALLED = [method for named in CLASSES for method in methods(named)]
CONSTANTS = [named for named in NAMES if not inspect.isclass(named.value) and not inspect.isroutine(named.value)]
DEFINED = [named for named in [*NAMES, *CALLED] if named not in CONSTANTS]
SECONDS = {"timeout", "deadline", "seconds", "backoff", "backoff_cap", "retry_after", "retry_after_cap", "max_outage", "elapsed"}


def text_of(named: Named) -> str:
    return named.doc if named not in CONSTANTS else constant_doc(named)


def short_examples() -> Iterator[tuple[str, str, str]]:
    seen: set[str] = set()
    for named in [*NAMES, *CALLED, *PART_NAMES]:
        for number, code in enumerate(examples_of(text_of(named)), 1):
            if code not in seen:  # a name may be in more than one package
                seen.add(code)
                yield f"{named.id}-{number}", code, named.scope


def guides() -> Iterator[tuple[str, str]]:
    for name, text in sorted(module_docs()):
        for number, code in enumerate(examples_of(text), 1):
            yield f"{name}-{number}", code


def shown_file(module: str) -> str:
    """Return the file that is indented in the docstring of a module."""
    text = inspect.getdoc(importlib.import_module(module)) or ""
    return textwrap.dedent("\n".join(line for line in text.splitlines() if line.startswith("    ") or not line))


SHORT = list(short_examples())
GUIDE_BLOCKS = list(guides())
CELLS = [code for name, code in GUIDE_BLOCKS if name.startswith("outreach_async.guides.notebooks-")]
"""Cells of notebooks, which await without a function."""
LONG_BLOCKS = dict.fromkeys(("outreach_async.parts.dask-1", "outreach_async.parts.processes-1"), pytest.mark.nightly)


def test_a_public_name_has_a_docstring_with_one_example() -> None:
    def check(named: Named) -> None:
        text = text_of(named)
        assert text, "no docstring"
        assert not text.startswith(f"{getattr(named.value, '__name__', '')}("), "attrs made it up"
        assert len(examples_of(text)) == 1, "no example, or more than one"

    check_rows(((named,) for named in [*NAMES, *CALLED]), check)


def test_a_property_has_a_docstring() -> None:
    assert [each.id for kind in CLASSES for each in properties(kind) if not each.doc] == []


def entries_of(text: str) -> Iterator[tuple[str, str]]:
    """Yield each argument and attribute that a docstring describes, with the description. An entry may describe several."""
    for names, meaning in re.findall(r"^    \**(\w+(?:, \w+)*): (.*(?:\n        .*)*)", text, re.MULTILINE):
        yield from ((name, meaning) for name in names.split(", "))


def test_every_argument_of_a_call_is_documented_if_one_is() -> None:
    def check(named: Named) -> None:
        parameters = inspect.signature(named.value).parameters.values()
        names = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
        assert names - {"self", "cls"} <= dict(entries_of(named.doc)).keys()

    calls = [named for named in DEFINED if "\nArgs:\n" in named.doc]
    assert len(calls) > 20
    check_rows(((named,) for named in calls), check)


def test_every_attribute_of_a_value_is_documented() -> None:
    def check(named: Named) -> None:
        documented = dict(entries_of(named.doc)).keys()
        fields = {
            field.alias
            for field in attrs.fields(named.value)
            if field.init and not field.inherited and not field.name.startswith("_")
        }
        if named.value is NewContact:  # thirty of its fields are documented in one sentence
            fields = {"email", "first_name", "custom", "extra"}
        assert fields <= documented

    check_rows(((each,) for each in CLASSES if attrs.has(each.value)), check)


def test_errors_that_a_call_raises_are_in_its_docstring() -> None:
    def check(named: Named) -> None:
        _, _, documented = named.doc.partition("Raises:\n")
        assert all(f"{name}:" in documented for name in raised_errors(named.value))
        assert documented or not checks_arguments(named.value)

    check_rows(((each,) for each in DEFINED if not inspect.isclass(each.value)), check)


def test_a_time_has_its_unit() -> None:
    def check(named: Named) -> None:
        for name, meaning in entries_of(text_of(named)):
            if name in SECONDS:
                assert re.search(r"[Ss]econds|HTTP date|Duration|How .*Retry-After", meaning), f"{name}: {meaning}"

    check_rows(((named,) for named in [*NAMES, *CALLED]), check)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("code", "scope", "backend"),
    [
        pytest.param(code, scope, backend, id=f"{name}-{backend}")
        for name, code, scope in SHORT
        for backend in (("asyncio", "trio") if is_async(code) else ("asyncio",))
    ],
)
def test_a_short_example_prints_what_it_says(
    code: str, scope: str, backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = run_example(code, example_namespace(scope, example_world(), code), backend)
    assert keeps_its_promise(code, lines), lines


@pytest.fixture(scope="module")
def url_and_world() -> Iterator[tuple[str, FakeService]]:
    fake = example_world()
    with serve_in_thread(fake) as url:
        yield url, fake


@pytest.fixture
def served(url_and_world: tuple[str, FakeService], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Serve a new example world on a port, with the environment that refers to it."""
    url, fake = url_and_world
    fake.load(example_world().dump())
    monkeypatch.setenv("OUTREACH_BASE_URL", url)
    monkeypatch.setenv("OUTREACH_OWNER_KEY", "key_1")
    monkeypatch.setenv("OUTREACH_WORKSPACE", "space_1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.thorough
@pytest.mark.usefixtures("served")
@pytest.mark.parametrize("code", [pytest.param(code, id=name, marks=LONG_BLOCKS.get(name, ())) for name, code in GUIDE_BLOCKS])
def test_a_program_of_a_guide_prints_what_it_says(code: str) -> None:
    assert not is_async(code) or code in CELLS, "a guide's programs are whole"
    assert promised_lines(code), "it shows nothing"
    if "\nasync def test_" in code:
        lines = summary_of_tests(code)
    elif '__name__ == "__main__"' in code:
        lines = output_of_script(code)
    else:
        lines = run_example(code, {})
    assert keeps_its_promise(code, lines), lines


def output_of_script(code: str) -> list[str]:
    """Run a program whose child processes import it, and return the lines that it prints."""
    path = Path("program.py")
    path.write_text(code, encoding="utf-8")
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True).stdout.splitlines()


def summary_of_tests(code: str) -> list[str]:
    path = Path("test_guide.py")
    path.write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()[-1:]


@pytest.mark.parametrize("module", GUIDES)
def test_a_guide_has_a_program_and_is_at_most_2000_words(module: str) -> None:
    text = inspect.getdoc(importlib.import_module(module)) or ""
    assert examples_of(text)
    assert 50 <= len(text.split()) <= 2000


def test_the_text_of_a_public_docstring_fits_pydoc_on_a_terminal_of_80_columns() -> None:
    texts = [(name, text, 4) for name, text in module_docs() if name in GUIDES]
    texts += [(each.id, each.doc, 12 if "." in each.value.__qualname__ else 8) for each in DEFINED]
    wide = {name: found for name, text, indent in texts if (found := [*wide_lines(text, 79 - indent)])}
    assert wide == {}


def wide_lines(text: str, width: int) -> Iterator[str]:
    """Yield the lines that are wider, and can be wrapped. Programs, commands and names of attributes cannot."""
    section = ""
    for line in re.sub(r"^ *```\w*\n.*?```$", "", text, flags=re.MULTILINE | re.DOTALL).splitlines():
        if line and not line.startswith(" "):
            section = line
        described = section in {"Args:", "Attributes:", "Raises:"} and not re.match(r" +(\w+, ){6}", line)
        if len(line) > width and (described or not line.startswith((" ", "|"))):
            yield line


@cache
def summaries() -> frozenset[str]:
    """Return the first lines of all docstrings of the package."""
    sources = (path.read_text(encoding="utf-8") for path in Path(outreach_async.__file__).parent.rglob("*.py"))
    return frozenset(line for source in sources for line in re.findall(r'^ *r?"""(.+?)(?:"""|$)', source, re.MULTILINE))


@pytest.mark.parametrize("module", GUIDES)
def test_a_summary_fits_pydoc_on_a_terminal_of_80_columns(module: str) -> None:
    text = pydoc.plain(pydoc.render_doc(importlib.import_module(module)))
    # `attrs.resolve_types`, which converters call, sets an attribute, below which pydoc repeats the docstring of the class.
    shown = re.sub(r"^ *\|  __attrs_types_resolved__ .*\n(?: *\|      .*\n)*", "", text, flags=re.MULTILINE).splitlines()
    own = [line for line in shown if line.lstrip(" |").removeprefix(f"{module} - ") in summaries()]
    assert own
    assert [line for line in own if len(line) > 79] == []


def test_the_files_shown_in_docstrings_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "shown.toml"
    path.write_text(shown_file("outreach_async.fake.behaviour"), encoding="utf-8")
    assert load_behaviour(path).past_end == "clamp"
    path.write_text(shown_file("outreach_async.audit.policy"), encoding="utf-8")
    assert Policy.load(path).off == ["OA160"]
    fake = FakeService()
    fake.load(shown_file("outreach_async.fake.world_file").strip())
    assert len(fake.contacts("space_1")) == 1


@pytest.mark.parametrize("package", PACKAGES)
def test_pydoc_shows_exactly_the_public_names(package: str) -> None:
    module = importlib.import_module(package)
    text = pydoc.plain(pydoc.render_doc(module))
    listed = re.split(r"^(?:CLASSES|FUNCTIONS)$", text, maxsplit=1, flags=re.MULTILINE)[1]
    shown = set(re.findall(r"^    (?:class |async )?(\w+)(?:\(| = |$)", listed, re.MULTILINE))
    public_here = {name for name in module.__all__ if not inspect.ismodule(getattr(module, name))}
    bases = {base.__name__ for name in public_here for base in getattr(getattr(module, name), "__mro__", ())[1:]}
    assert {name for name in shown - bases if not name.startswith("_")} == public_here - bases
