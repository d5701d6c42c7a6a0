"""Read the results files of imports."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet

UNCERTAIN: Final[dict[str, Any]] = {
    "campaign": None,
    "status": "skipped",
    "certain": False,
    "possible": ["added", "skipped"],
    "attempts": 2,
    "id": None,
    "error": None,
    "remedy": None,
}
"""The columns of a row that was sent twice, because the first response was lost."""


def read_results(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        return parquet.read_table(path).to_pylist()
    with path.open(encoding="utf-8", newline="") as file:
        if path.suffix == ".jsonl":
            return [json.loads(line) for line in file]
        return [
            {**row, "line": int(row["line"]), "certain": row["certain"] == "yes", "possible": row["possible"].split(", ")}
            for row in csv.DictReader(file)
        ]
