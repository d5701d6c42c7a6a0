"""What test suites and frameworks ask of classes: specs for mocks, type hints at run time, and an error instead of a pickle."""

from __future__ import annotations

import inspect
import os
import pickle
import pkgutil
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from unittest import mock

import pytest

import outreach_async
from outreach_async import InvalidRequest, OutreachClient, RedisRate
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.sync import SyncClient

_WITHOUT_NAMES = {"guides", "conftest", "test_conformance", "__main__", "pytest_plugin"}


def public_modules() -> Iterator[str]:
    yield "outreach_async"
    for module in pkgutil.walk_packages(outreach_async.__path__, "outreach_async."):
        parts = module.name.split(".")[1:]
        if not _WITHOUT_NAMES.intersection(parts) and not any(part.startswith("_") for part in parts):
            yield module.name


def public_names(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Return the names that a module documents, or else those that it defines."""
    if hasattr(module, "__all__"):
        yield from ((name, getattr(module, name)) for name in module.__all__)
    else:
        yield from (
            (name, value)
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
        )


def functions_of(value: object) -> Iterator[Callable[..., object]]:
    if inspect.isfunction(value):
        yield value
    elif isinstance(value, type):
        yield value
        for name, member in vars(value).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if inspect.isfunction(function) and (name == "__init__" or not name.startswith("_")):
                yield function


@pytest.mark.parametrize("name", [*public_modules()])
def test_the_annotations_of_every_public_name_can_be_evaluated(name: str) -> None:
    for _, value in public_names(import_module(name)):
        for function in functions_of(value):
            typing.get_type_hints(function)
            with suppress(ValueError):  # typed dicts, and errors without arguments of their own, have the builtin signature
                inspect.signature(function, eval_str=True)


@pytest.mark.parametrize("client", [OutreachClient, SyncClient])
def test_a_mock_made_from_a_client_knows_its_resources_and_their_parameters(client: type) -> None:
    made = mock.create_autospec(client, instance=True)
    inspect.signature(made.contacts.create).bind(email="ann@acme.example", duplicates="skip")
    with pytest.raises(TypeError):
        made.campaigns.steps()  # needs a campaign
    with pytest.raises(AttributeError):
        made.contacts.find  # noqa: B018 - reading it raises
    assert mock.MagicMock(spec=client).workspaces


def cannot_be_pickled() -> dict[str, object]:
    client = OutreachClient(transport=FakeTransport(FakeService()), workspace="space_1", owner_key="key_secret")
    run = client.contacts.create_many([])
    run.close()  # otherwise it warns that it was never started
    sync = SyncClient(transport=FakeTransport(FakeService()), workspace="space_1")
    return {
        "client": client,
        "resource": client.contacts,
        "pager": client.campaigns.list(),
        "run": run,
        "sync client": sync,
        "fake": FakeTransport(FakeService()),
        "rate": RedisRate("redis://:key_secret@127.0.0.1:1", key="outreach:rate"),
    }


@pytest.mark.parametrize("kind", [*cannot_be_pickled()])
def test_what_cannot_be_pickled_says_what_to_do_instead(kind: str) -> None:
    with pytest.raises(
        InvalidRequest, match=r"pickle: expected data that can be copied, got a [^;]*; [^;]* (in each process|on a port)(?m:$)"
    ):
        pickle.dumps(cannot_be_pickled()[kind])


def test_the_class_of_a_client_is_imported_without_what_only_its_methods_need() -> None:
    code = (
        "import sys, typing; from outreach_async import OutreachClient; found = set(sys.modules)\n"
        "typing.get_type_hints(OutreachClient.__init__)\n"
        "print(*({'anyio', 'attrs', 'httpx', 'outreach_async.hooks', 'sqlite3'} & found))"
    )
    # A process whose coverage is measured imports sqlite3 for that.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "\n"
