import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest


@pytest.fixture
def crm(tmp_path: Path) -> Callable[..., Path]:
    """Make a CRM of so many people."""

    def make(people: int) -> Path:
        database = tmp_path / "crm.db"
        rows = [(number, f"person{number}@company.example", "First", "Last", "Company", "gold") for number in range(people)]
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, email, first, last, company, plan)")
            connection.executemany("INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)", rows)
        return database

    return make
