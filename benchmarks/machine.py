"""Describe the machine and its packages, and pin processes to cores."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

PACKAGES: Final = (
    "httpx", "httpcore", "httpx2", "aiohttp", "httptools", "uvloop", "anyio", "msgspec", "cattrs", "attrs",
    "openapi-python-client", "respx",
)  # fmt: skip


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _pin(core: int) -> None:
    os.sched_setaffinity(0, {core})


def pin_server() -> None:
    """Pin this process to the last core, if there are several: away from the client, which is measured."""
    if len(cores := _cores()) > 1:
        _pin(cores[-1])


def pin_client() -> None:
    """Pin this process to the first core, if there are several."""
    if len(cores := _cores()) > 1:
        _pin(cores[0])


def pin_process(number: int) -> None:
    """Pin this process, number `number` from 0 of several, to a core of its own; to none if there is only one."""
    unpin()
    if len(cores := _cores()) > 1:
        _pin(cores[number % len(cores)])


def unpin() -> None:
    """Let this process and the ones that it starts use every core."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def installed(packages: Iterable[str] = PACKAGES) -> dict[str, str]:
    """Return the versions of the packages that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def described() -> list[str]:
    """Return lines that describe the machine, for the report."""
    pinned = "client and server pinned to a core each" if len(_cores()) > 1 else "client and server not pinned"
    loop = "uvloop" if installed(["uvloop"]) else "asyncio"
    return [
        f"{_model()}, {os.cpu_count()} cores; {pinned}",
        f"the server: prepared responses, an asyncio.Protocol on {loop}",
        f"{platform.system()} {platform.release()}, {platform.python_implementation()} {platform.python_version()}",
        ", ".join(f"{name} {found}" for name, found in installed().items()),
    ]


def _model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
