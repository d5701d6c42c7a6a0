"""Check that a tag can be released, and write the notes of its version: its section of the changelog.

Run: python -m tools.release TAG [FILE]

The tag is `v` and the version in pyproject.toml, and the changelog has a section for that version, with its date. Requires only
Python. Exits with 1, and writes nothing, if a check fails.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_SECTION: Final = re.compile(r"^## \[([^]\n]+)\](?: - ([^\n]+))?\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def find_notes(tag: str, version: str, changelog: str) -> str:
    """Return the notes of a version without its title; raise `ValueError` if the tag cannot be released."""
    if tag != f"v{version}":
        raise ValueError(f"tag: expected v{version}, as in pyproject.toml, got {tag}; change one of them")
    sections = {str(name): (str(date), str(text)) for name, date, text in _SECTION.findall(changelog)}
    if version not in sections:
        raise ValueError(f"CHANGELOG.md: expected a section '## [{version}] - YYYY-MM-DD', got none; add it")
    date, text = sections[version]
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", date):
        raise ValueError(f"CHANGELOG.md: expected the date of {version} as YYYY-MM-DD, got {date or 'none'}; set it")
    if not text.strip():
        raise ValueError(f"CHANGELOG.md: expected what changed in {version}, got nothing; add it")
    return text.strip() + "\n"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("tag")
    parser.add_argument("file", nargs="?", type=Path, help="where to write the notes (default: standard output)")
    options = parser.parse_args(arguments)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    try:
        notes = find_notes(options.tag, version, (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.file is None:
        sys.stdout.write(notes)
    else:
        options.file.write_text(notes, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
