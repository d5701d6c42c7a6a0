"""Headers of contact exports of other tools, and exports of one fictitious person."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Final


def _read_table() -> dict[str, tuple[str, str]]:
    lines = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8").splitlines()
    return {key: (tool, header) for key, tool, header in (line.split("\t") for line in lines)}


EXPORTS: Final = _read_table()
"""The name of each tool, and the header of its export."""

PERSON: Final = {
    "email": "ada.example@works.example",
    "first_name": "Ada",
    "last_name": "Example",
    "title": "Head of Looms",
    "company_name": "Works",
    "country": "United Kingdom",
}
"""Fields of a fictitious person, by field code. Most tools have columns for most of these fields."""


def write_export(header: str, codes: tuple[str | None, ...]) -> str:
    """Return a CSV export of `PERSON`."""
    columns = header.split(",")
    cells = [PERSON.get(code or "", "" if code else f"of {column}") for column, code in zip(columns, codes, strict=True)]
    file = io.StringIO()
    csv.writer(file).writerows([columns, cells])
    return file.getvalue()
