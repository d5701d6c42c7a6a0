"""Put the wheels that Pyodide loads into the folder `wheels`: this project's, and those that wheels.txt pins.

Run: python3 build.py, and then `npm pack`, which makes the package; `npm pack` runs this program, too.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# That of the Pyodide in package.json: `info` in its pyodide-lock.json names the Python and the platform.
PYODIDE = ("--python-version", "3.14", "--platform", "pyemscripten_2026_0_wasm32", "--only-binary", ":all:")


def build() -> None:
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    with tempfile.TemporaryDirectory() as found:
        pinned = ["--require-hashes", "--requirement", str(FOLDER / "wheels.txt")]
        subprocess.run([*pip, "download", "--no-deps", "--dest", found, *PYODIDE, *pinned], check=True)
        subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", found, str(FOLDER.parents[2])], check=True)
        wheels = FOLDER / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        wheels.mkdir()
        for wheel in Path(found).iterdir():
            shutil.copyfile(wheel, wheels / f"{wheel.name.partition('-')[0]}.whl")  # a name without a version, as index.js has it


if __name__ == "__main__":
    build()
