"""The public names of the package, and the cost of importing them."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys

import pytest
from support.tables import check_rows

import outreach_async
from outreach_async._core.operations import RequestDefaults
from outreach_async.converters import OutreachConverter

HEAVY = ["aiohttp", "anyio", "attrs", "cattrs", "httpcore", "httpx", "httpx2", "msgspec", "sniffio", "ssl", "trio"]


def printed(code: str) -> str:
    """Return what a new interpreter prints when it runs this code."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


NAMES = outreach_async.__all__


def test_the_public_names_are_sorted_and_listed() -> None:
    assert sorted(NAMES, key=lambda name: (not name.isupper(), name)) == NAMES
    assert dir(outreach_async) == sorted(NAMES)


def test_a_public_name_is_public_in_its_module() -> None:
    def check(name: str) -> None:
        value = getattr(outreach_async, name)
        assert getattr(outreach_async, name) is value
        if name not in {"UNSET", "DuplicatePolicy"}:  # a value, and a `Literal`
            assert (value.__name__, value.__module__.partition(".")[0]) == (name, "outreach_async")
            assert value.__doc__

    check_rows(((name,) for name in NAMES), check)


@pytest.mark.parametrize("name", ["Client", "httpx", "_HOME", "outreachclient", "version"])
def test_an_unknown_name_is_an_attribute_error_with_the_name(name: str) -> None:
    with pytest.raises(AttributeError, match=f"^module 'outreach_async' has no attribute '{name}'$"):
        getattr(outreach_async, name)
    assert not hasattr(outreach_async, name)


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = f"import sys, outreach_async\nprint([name for name in {HEAVY} if name in sys.modules])"
    assert printed(code) == "[]"


@pytest.mark.parametrize(
    ("name", "absent"),
    [
        ("NewContact", ["cattrs", "httpx", "anyio"]),
        ("OutreachError", ["attrs", "cattrs", "httpx", "msgspec", "anyio"]),
        ("OutreachClient", ["attrs", "cattrs", "httpx", "httpx2", "aiohttp", "anyio", "trio", "asyncio", "logging"]),
        ("RedisRate", ["redis", "httpx"]),
        ("HttpxTransport", ["cattrs", "httpx", "httpx2", "aiohttp", "trio"]),
        ("SocketTransport", ["cattrs", "h11", "httptools", "httpx", "httpx2", "aiohttp", "asyncio", "trio"]),
        ("AiohttpTransport", ["cattrs", "httpx", "httpx2", "aiohttp", "trio"]),
    ],
)
def test_a_public_name_imports_only_what_it_needs(name: str, absent: list[str]) -> None:
    code = f"import sys\nfrom outreach_async import {name}\nprint([name for name in {absent} if name in sys.modules])"
    assert printed(code) == "[]"


def test_the_version_is_the_installed_version_and_that_of_requests() -> None:
    assert outreach_async.__version__ == importlib.metadata.version("outreach_async")
    assert printed("import outreach_async\nprint(outreach_async.__version__)") == outreach_async.__version__
    assert (
        RequestDefaults.from_headers({}, OutreachConverter).read_headers["user-agent"]
        == f"outreach_async/{outreach_async.__version__}"
    )
