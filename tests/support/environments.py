"""Create virtual environments that do not see this source tree, from downloaded wheels of the locked versions."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

_UV: Final = Path(sys.executable).with_name("uv")
_WHEELHOUSE: Final = Path(__file__).parents[2] / ".wheelhouse"
_LOCKED: Final = _WHEELHOUSE.with_name(".ci") / "locked-user.txt"
_DOWNLOAD: Final = ".venv/bin/pip download --require-hashes -r .ci/locked-user.txt -d .wheelhouse"


def create_environment(folder: Path) -> Path:
    """Create a virtual environment in a folder, and return its `bin` (or `Scripts`) folder. Without wheels, skip the test."""
    if not _WHEELHOUSE.exists():
        pytest.skip(f"packages are installed from downloaded wheels; run: {_DOWNLOAD}")
    subprocess.run([_UV, "venv", "--quiet", "--offline", "--python", sys.executable, folder], check=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def install(programs: Path, *requirements: str | Path) -> None:
    """Install requirements in the virtual environment whose `bin` folder is `programs`."""
    wheels = ("--offline", "--no-index", "--find-links", _WHEELHOUSE, "--constraint", _LOCKED)
    subprocess.run([_UV, "pip", "install", "--quiet", *wheels, "--python", programs / "python", *requirements], check=True)
