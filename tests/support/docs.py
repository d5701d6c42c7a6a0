"""Find the public names and their docstrings, and run the examples in these docstrings."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib
import inspect
import io
import itertools
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

import anyio
import attrs

from outreach_async import OutreachClient, RetryPolicy, Transport
from outreach_async.audit import audit
from outreach_async.audit.history import History, Readings
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.fake.faults import Service
from outreach_async.sync import SyncClient

PACKAGES: Final = (
    "outreach_async",
    "outreach_async.audit",
    "outreach_async.audit.history",
    "outreach_async.audit.reports",
    "outreach_async.audit.reports.brief",
    "outreach_async.bulk",
    "outreach_async.config",
    "outreach_async.conformance",
    "outreach_async.converters",
    "outreach_async.fake",
    "outreach_async.fake.faults",
    "outreach_async.hooks",
    "outreach_async.importer",
    "outreach_async.mcp_server",
    "outreach_async.models",
    "outreach_async.otel",
    "outreach_async.parts",
    "outreach_async.parts.dask",
    "outreach_async.parts.processes",
    "outreach_async.store",
    "outreach_async.sync",
    "outreach_async.testing",
)
"""Packages that export public names."""

GUIDES: Final = (
    *PACKAGES,
    "outreach_async.guides",
    "outreach_async.guides.command_line",
    "outreach_async.guides.concepts",
    "outreach_async.guides.excluding",
    "outreach_async.guides.nightly",
    "outreach_async.guides.notebooks",
    "outreach_async.guides.operating",
    "outreach_async.guides.performance",
    "outreach_async.pytest_plugin",
    "outreach_async.rates",
    "outreach_async.transport",
)
"""Modules whose docstrings are guides."""

_ROOT: Final = Path(__file__).parents[2] / "outreach_async"
_PROTOCOLS: Final = (Transport, Service)
"""Protocols that document the methods of the classes that implement them."""
_FOR_CLIENTS: Final = {
    *("medium", "writer", "writer_thread"),
    *("encode_contact", "encodes_plainly", "reads_plainly", "has_own", "read_hooked"),
}
"""Methods of journals that only runs call, and of converters that only clients call."""
_PATIENCE: Final = 60.0
"""Timeout of an example, in seconds."""

_DOCSTRING: Final = re.compile(r'\A(?:#.*\n)*r?""".*?"""', re.DOTALL)
_FENCE: Final = re.compile(r"^( *)```python\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_SHOWN: Final = re.compile(r"# -> (.*)$", re.MULTILINE)


@attrs.frozen
class Named:
    """A public name, or a method or property of a public class."""

    id: str
    value: Any = attrs.field(repr=False, eq=False)
    scope: str
    """The package whose names the examples can use."""

    @property
    def doc(self) -> str:
        return inspect.getdoc(self.value) or ""

    @property
    def examples(self) -> list[str]:
        return examples_of(self.doc)


def examples_of(text: str) -> list[str]:
    return [textwrap.dedent(block) for _, block in _FENCE.findall(text)]


def module_docs() -> Iterator[tuple[str, str]]:
    """Yield the name and docstring of every module, without importing the module."""
    for path in _ROOT.rglob("*.py"):
        name = ".".join(path.relative_to(_ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        docstring = _DOCSTRING.match(path.read_text(encoding="utf-8"))  # parsing all modules would take a second
        yield name, (ast.get_docstring(ast.parse(docstring[0])) or "") if docstring else ""


def public(package: str) -> Iterator[Named]:
    """Yield the public names of a package, except modules."""
    module = importlib.import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if not isinstance(value, ModuleType):
            yield Named(f"{package}.{name}", value, package)


def methods(named: Named) -> Iterator[Named]:
    """Yield the public methods of a class, including inherited ones, except those that a protocol or another class defines."""
    if not inspect.isclass(named.value) or getattr(named.value, "_is_protocol", False):
        return
    protocols = [{name for name, value in vars(kind).items() if _is_method(name, value)} for kind in _PROTOCOLS]
    elsewhere = {name for names in protocols if names <= set(dir(named.value)) for name in names} | _FOR_CLIENTS
    for owner in _own(named.value):
        above = {name for base in owner.__mro__[1:] for name in vars(base)}
        for name, value in vars(owner).items():
            if _is_method(name, value) and name not in above | elsewhere:
                yield Named(f"{named.id}.{name}", inspect.unwrap(getattr(named.value, name)), named.scope)


def _own(kind: type) -> list[type]:
    return [base for base in kind.__mro__ if base.__module__.startswith("outreach_async") and not issubclass(base, BaseException)]


def _is_method(name: str, value: object) -> bool:
    return not name.startswith("_") and isinstance(value, classmethod | staticmethod | type(_is_method))


def properties(named: Named) -> Iterator[Named]:
    if inspect.isclass(named.value):
        for owner in _own(named.value):
            for name, value in vars(owner).items():
                if isinstance(value, property) and not name.startswith("_"):
                    yield Named(f"{named.id}.{name}", value, named.scope)


def constant_doc(named: Named) -> str:
    """Return the string literal below a constant in the source; empty if there is none."""
    module, _, name = named.id.rpartition(".")
    for home in _homes(module, name):
        body = ast.parse(inspect.getsource(home)).body
        for node, after in itertools.pairwise(body):
            if name in _assigned(node) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                return inspect.cleandoc(str(after.value.value))
    return ""


def _homes(module: str, name: str) -> Iterator[ModuleType]:
    yield from map(importlib.import_module, [module, *_imported(module, name)])


def _imported(module: str, name: str) -> list[str]:
    source = inspect.getsource(importlib.import_module(module))
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    return [str(node.module) for node in nodes if name in {alias.name for alias in node.names}]


def _assigned(node: ast.stmt) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


def raised_errors(function: Callable[..., Any]) -> set[str]:
    """Return the names of the exceptions that the code of a function raises directly."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
    calls = [node.exc for node in nodes if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)]
    return {call.func.id for call in calls if isinstance(call.func, ast.Name) and call.func.id[0].isupper()}


def checks_arguments(function: Callable[..., Any]) -> bool:
    """Return whether a function calls a validation helper that raises an exception."""
    nodes = ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function))))
    names = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return any(name.startswith(("require", "at_least")) for name in names)


def example_world() -> FakeService:
    """Return the fake service that the examples use."""
    fake = FakeService()
    fake.add_workspace("space_1", custom_fields=["Plan"])
    fake.add_owner_key("space_1", key="key_1")
    fake.add_mailbox("space_1", id="mailbox_1", email="ada@north.example")
    fake.add_mailbox("space_1", id="mailbox_2", email="bob@north.example", spf=False, domain_ip="192.0.2.1")
    fake.add_campaign(
        "space_1", id="camp_1", name="Spring", status="live", mailboxes=["mailbox_1"], steps=["A|B", "A"], contacts=40
    )
    fake.add_contacts("space_1", [{"id": "contact_1", "email": "bo@acme.example", "city": "Lyon"}])
    return fake


async def read_report(fake: FakeService) -> dict[str, Any]:
    """Return the report of an audit, and a history that contains it."""
    readings, history = Readings(), History("history.db")
    async with OutreachClient(transport=FakeTransport(fake), owner_key="key_1") as client:
        report = await audit(client, ["space_1"], campaigns=True, readings=readings)
    history.append(report, readings)
    return {"report": report, "history": history}


def example_namespace(scope: str, fake: FakeService, code: str) -> dict[str, Any]:
    """Return the names that a short example can use without imports, as stated in `help(outreach_async)`."""
    names: dict[str, Any] = anyio.run(read_report, fake) if re.search(r"\b(report|history)\b", code) else {}
    for package in dict.fromkeys(
        ("outreach_async", "outreach_async.fake", "outreach_async.audit", scope.rpartition(".")[0] or scope, scope)
    ):
        module = importlib.import_module(package)
        names |= {name: getattr(module, name) for name in module.__all__}
    kind: type[OutreachClient | SyncClient] = SyncClient if scope == "outreach_async.sync" else OutreachClient
    client = kind(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1", retry=RetryPolicy(backoff=0.0))
    return {"anyio": anyio, "asyncio": asyncio, "json": json, "Path": Path, "events": [], **names, "fake": fake, "client": client}


def compiled(code: str) -> CodeType:
    code_object: CodeType = compile(code, "<example>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    return code_object


def is_async(code: str) -> bool:
    return bool(compiled(code).co_flags & inspect.CO_COROUTINE)


def run_example(code: str, names: Mapping[str, Any], backend: str = "asyncio") -> list[str]:
    """Run an example and return the lines it prints."""
    namespace = {"__name__": "__main__", **names}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if is_async(code):

            async def main() -> None:
                with anyio.fail_after(_PATIENCE):
                    await eval(compiled(code), namespace)  # noqa: S307 - the project's own examples

            anyio.run(main, backend=backend)
        else:
            client = names.get("client")
            with client if isinstance(client, SyncClient) else contextlib.nullcontext():
                exec(compiled(code), namespace)  # noqa: S102 - the project's own examples
    return out.getvalue().splitlines()


def promised_lines(code: str) -> list[re.Pattern[str]]:
    """Return patterns of the lines that an example should print, from its `# ->` comments; `...` matches any text."""
    return [re.compile(".*".join(map(re.escape, line.rstrip().split("...")))) for line in _SHOWN.findall(code)]


def keeps_its_promise(code: str, lines: list[str]) -> bool:
    expected_lines = promised_lines(code)
    return len(expected_lines) == len(lines) and all(
        one.fullmatch(line.rstrip()) for one, line in zip(expected_lines, lines, strict=True)
    )
