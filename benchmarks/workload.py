"""The data of the benchmarks: one contact with fifteen fields, and pages of mailboxes."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

OWNER_KEY: Final = "key_0123456789abcdef"
WORKSPACE: Final = "space_0123456789abcdef"

FIELDS: Final[dict[str, Any]] = {
    "first_name": "Ann",
    "last_name": "Example",
    "full_name": "Ann Example",
    "title": "Head of Sales",
    "work_phone": "+1 202 555 0143",
    "company_name": "Company",
    "company_industry": "Software",
    "address_1": "1 Main Street",
    "city": "Springfield",
    "zip": "12345",
    "state": "IL",
    "country": "US",
    "website": "https://company.example",
    "personal_note": "met at the fair",
}
"""Fourteen optional fields. The e-mail is the fifteenth."""

OPTIONS: Final[dict[str, Any]] = {"duplicates": "skip", "strict_validation": False, "campaign": None}

CREATED: Final = b'{"status":"added","id":"contact_0123456789abcdef","details":null}'
"""Response to a creation."""
_next_contact: Final = count(1).__next__

ANSWER_FIELDS: Final = {"content-type": "application/json", "x-request-id": "req_0123456789abcdef"}

BIG: Final = 2000
"""Mailboxes in a large page: the maximum of the service."""

_MARK: Final = b"#page#"


def numbered(answer: bytes) -> bytes:
    """Give the contact in a response a new id, as a service does. A bulk run treats a second e-mail with one id as uncertain."""
    return answer.replace(b"contact_0123456789abcdef", b"contact_%016x" % _next_contact())


def email(number: int) -> str:
    """Return a unique e-mail address for a number."""
    return f"user{number}@company{number % 997}.example"


def body_of(number: int) -> dict[str, Any]:
    """Return the body of a creation as an application would write it."""
    return {"owner_key": OWNER_KEY, "workspace": WORKSPACE, "upload_options": OPTIONS, "email": email(number), **FIELDS}


@cache
def _csv_file(count: int) -> Path:
    """Write a file of `count` contacts, once per process."""
    folder = TemporaryDirectory(prefix="benchmarks-")
    _FOLDERS.append(folder)
    path = Path(folder.name) / "contacts.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["email", *FIELDS])
        writer.writeheader()
        writer.writerows({"email": email(number), **FIELDS} for number in range(count))
    return path


_FOLDERS: Final[list[TemporaryDirectory[str]]] = []


def rows(count: int) -> Iterator[dict[str, str]]:
    """Yield the rows of a CSV file of contacts, as every client of the bulk benchmarks reads them."""
    with _csv_file(count).open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def bodies(count: int) -> Iterator[dict[str, Any]]:
    """Yield bodies of creations."""
    return map(body_of, range(count))


ROW: Final[dict[str, str]] = {"email": email(1), **FIELDS}

BODY: Final = json.dumps(body_of(1), separators=(",", ":")).encode()


def shape(items: int, pages: int, delay_ms: int = 0) -> str:
    """Return the id of a workspace with this list; the server delays each response by `delay_ms` milliseconds."""
    return f"space_{items}x{pages}x{delay_ms}"


def page_target(workspace: str, display: int, page: int) -> str:
    """Return the target of one page of mailboxes."""
    return f"/mailboxes?workspace={workspace}&page={page}&display={display}"


def _mailbox(number: int) -> dict[str, Any]:
    return {
        "id": f"mailbox_{_MARK.decode()}{number:010x}",
        "status": "active",
        "email": f"firstname.lastname{number}@outreach-domain{number // 4}.example",
        "sender_name": "Firstname Lastname, Example Company",
        "campaigns": number % 5,
        "daily_limit": 40,
        "spf": True,
        "dkim": True,
        "dmarc": number % 10 != 0,
        "blacklists": 0,
        "age": f"{1 + number % 11} months ago",
        "sent_today": number % 40,
        "sent_30days": 400 + number % 400,
        "opened_14days": round(40 + number % 1900 / 100, 2),
        "sent_90days": 1200 + number % 1200,
        "bounced_30days": number % 7,
        "avg_open_rate": round(41 + number % 1700 / 100, 2),
        "avg_click_rate": round(2 + number % 300 / 100, 2),
        "last_activity": f"{1 + number % 23} hours ago",
        "type": "Google" if number % 2 else "SMTP & IMAP",
        "created": f"{1 + number % 11} months ago",
        "domain_ip": None if number % 4 == 0 else f"203.0.113.{number % 250}",
        "server_ip": f"198.51.100.{number % 250}",
        "created_at": 1767225600 + number,
    }


_HEADERS: Final = [
    "email",
    "sender_name",
    "campaigns",
    "daily_limit",
    "spf",
    "dkim",
    "dmarc",
    "blacklists",
    "age",
    "last_activity",
]


class Pages:
    """The rendered pages of a list, with different ids on each page.

    Args:
        items: Mailboxes per page.
        pages: Number of pages.
    """

    def __init__(self, items: int, pages: int) -> None:
        document = {
            "status": "ok",
            "headers": _HEADERS,
            "data": [_mailbox(number) for number in range(items)],
            "total_found": items * pages,
            "current_page": "#number#",
            "total_pages": pages,
        }
        self._text = json.dumps(document, separators=(",", ":")).encode()

    def body(self, page: int) -> bytes:
        """Return the body of a page, counted from 1."""
        return self._text.replace(_MARK, b"%06d" % page).replace(b'"#number#"', b"%d" % page)
