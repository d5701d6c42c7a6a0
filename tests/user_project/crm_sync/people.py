"""The people of the CRM, as the service wants them."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from outreach_async import NewContact, WorkspaceField


def people(database: Path, *, plan_code: str | None = None) -> Iterator[NewContact]:
    """Yield a contact for each person, in an order that never changes: a run that is resumed counts on it."""
    with closing(sqlite3.connect(database)) as connection:
        for email, first, last, company, plan in connection.execute(
            "SELECT email, first, last, company, plan FROM people ORDER BY id"
        ):
            custom = {plan_code: plan} if plan_code and plan else {}
            yield NewContact(email, first_name=first, last_name=last, company_name=company, custom=custom)


def count(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        (total,) = connection.execute("SELECT count(*) FROM people").fetchone()
    return int(total)


def code_of(label: str, fields: list[WorkspaceField]) -> str | None:
    """Return the code under which the workspace keeps a field of its own."""
    return next((field.code for field in fields if field.label == label), None)
