"""Create virtual environments that do not see this source tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_UV = Path(sys.executable).with_name("uv")


def create_environment(folder: Path) -> Path:
    """Create a virtual environment in a folder, and return its `bin` (or `Scripts`) folder."""
    subprocess.run([_UV, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    return folder / ("Scripts" if sys.platform == "win32" else "bin")


def install(programs: Path, *requirements: str | Path) -> None:
    """Install requirements in the virtual environment whose `bin` folder is `programs`."""
    subprocess.run([_UV, "pip", "install", "--quiet", "--python", programs / "python", *requirements], check=True)
