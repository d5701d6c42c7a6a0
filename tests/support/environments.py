"""Separate environments, which have what is installed in them and nothing of this source tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_UV = Path(sys.executable).with_name("uv")


def create_environment(folder: Path) -> Path:
    """Create an environment in a folder, and return its folder of programs."""
    subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def install(programs: Path, *requirements: str | Path) -> None:
    """Install requirements in an environment, as pip would."""
    subprocess.run([_UV, "pip", "install", "--quiet", "--python", programs / "python", *requirements], check=True)
