"""The input and the faults of a simulated run, and the service with a ledger of what it did."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import attrs
from support.runs import OptedOut

from outreach_async import DuplicatePolicy, Outcome, OutreachClient, Request, Response, RetryPolicy, Transport
from outreach_async._plumbing import WHOLE_INPUT
from outreach_async.bulk import Order, Repeats
from outreach_async.fake import FakeService, faults
from outreach_async.fake.faults import Exchange, Fault, inject

SPACE: Final = "space_1"
KEY: Final = "key_of_the_owner"
HEADERS: Final = {"content-type": "application/json"}
NO_FIELD: Final = "custom_x"
"""A name that no field can have."""
BAD: Final = 300
ROW: Final = "custom_1"
"""The field that contains the index of its row."""
UNCLEAR: Final[tuple[Fault, ...]] = tuple(
    fault
    for body in (b'{"status":"error","message":"internal"}', b'{"status":"error","message":"Rate limit: retry in 2 seconds"}')
    for fault in (faults.status(200, body=body), faults.commit_then(faults.status(200, body=body)))
)
"""Errors with a status of success: the creation may have been carried out."""
TROUBLE: Final[tuple[Fault, ...]] = (
    faults.refuse(),
    faults.reset(),
    faults.hang(),
    faults.status(500),
    faults.status(502, body="<html>", headers={"content-type": "text/html"}),
    faults.status(429, retry_after=1),
    faults.status(429),
    faults.status(503, retry_after=1),
    faults.commit_then(faults.reset()),
    faults.commit_then(faults.hang()),
    faults.commit_then(faults.status(500)),
    faults.commit_then(faults.status(503, retry_after=1)),
    faults.truncate(5),
    faults.status(303),
    faults.status(499),
    *(faults.commit_then(faults.status(code)) for code in (301, 302, 303, 425, 499, 501, 505)),
    faults.status(403, retry_after=1),
    *UNCLEAR,
)


@attrs.frozen
class Late(Fault):
    """A lost request that the service carries out after a number of further requests, as an intermediary may release it."""

    requests: int


@attrs.frozen(kw_only=True)
class Scenario:
    """The input, the options and the faults of a run."""

    rows: Sequence[Any]
    duplicates: DuplicatePolicy = "skip"
    repeats: Repeats = "serial"
    before: Sequence[str] = ()
    trouble: float = 0.3
    faults: Sequence[Fault] = attrs.field(default=TROUBLE, repr=False)
    attempts: int = 4
    concurrency: int = 4
    seed: int = 0
    order: Order = "completion"
    spool: bool = False
    journal_seconds: float = 0.02
    caller_seconds: float = 0.0
    misdirected: float = 0.0
    script: Sequence[Fault] | None = None
    """The faults of the first requests, in order; later requests have none. Without a script, faults are random."""

    def sent_for(self, members: dict[str, Any]) -> int:
        """Return the index of the row that is sent with these members."""
        if self.repeats not in WHOLE_INPUT:
            return int(members[ROW])
        group = self.group(members["email"])
        return group[-1] if self.repeats == "last" else group[0]

    def group(self, email: str) -> list[int]:
        """Return the indices of the rows with exactly this e-mail, without the invalid ones."""
        return [index for index, row in enumerate(self.rows) if is_contact(row) and row["email"] == email]

    def is_excluded(self, index: int) -> bool:
        """Return whether a row may not be sent, itself or because another one is merged into it."""
        row = self.rows[index]
        if self.repeats != "coalesce" or not valid(row):
            return isinstance(row, OptedOut)
        group = self.group(row["email"])
        return group[0] == index and any(isinstance(self.rows[each], OptedOut) for each in group)

    def means(self, index: int) -> list[dict[str, Any]]:
        """Return the rows that a sent row stands for: itself, or all rows merged into it."""
        rows = self.group(self.rows[index]["email"]) if self.repeats == "coalesce" else [index]
        return [dict(self.rows[row]) for row in rows]


def valid(row: Any) -> bool:
    """Return whether a row can be sent."""
    return is_contact(row) and not isinstance(row, OptedOut)


def is_contact(row: Any) -> bool:
    """Return whether a row is that of a contact, who may have opted out."""
    return isinstance(row, dict) and bool(row["email"].strip()) and NO_FIELD not in row


class World:
    """The service, its faults, and the ledger of what it did. One world outlives all processes of a run."""

    def __init__(self, scene: Scenario, clock: Callable[[], float]) -> None:
        self.scene = scene
        self.fake = service(scene, clock)
        self.ledger: list[tuple[int, Outcome]] = []
        self.sends: Counter[int] = Counter()
        self.struck = self.open = self.most_open = 0
        self.delivered: dict[str, Response] = {}
        self.late: list[tuple[int, Callable[[], object]]] = []
        """Late requests, each with the number of requests after which it is carried out."""
        self.is_order_known = True

    def weather(self, row: int, number: int) -> tuple[Fault, float, float]:
        """Return the fault of a request, and the seconds that the request and its response take."""
        chance = random.Random(f"{self.scene.seed} {row} {number}")  # noqa: S311 - repeatable, not secret
        way, answer = chance.uniform(0.01, 0.2), chance.uniform(0.01, 0.2)
        if (script := self.scene.script) is not None:
            position = self.sends.total() - 1
            return (script[position] if position < len(script) else faults.ok), way, answer
        return (chance.choice(self.scene.faults) if chance.random() < self.scene.trouble else faults.ok), way, answer

    def row_of(self, request: Request) -> int:
        """Return the index of the row that a request sends."""
        return self.scene.sent_for(json.loads(request.body))

    def execute(self, row: int, request: Request, fault: Fault, serve: Callable[[], Response]) -> Exchange:
        """Execute a request with its fault, and then the late requests that are due."""
        if isinstance(fault, Late):
            self.late.append((self.sends.total() + fault.requests, partial(self.carry_out, row, request)))
            self.is_order_known = self.scene.duplicates != "overwrite"  # it may replace the values of a later row
            fault = faults.reset()
        exchange = inject(fault, serve)
        self.carry_out_late(self.sends.total())
        return exchange

    def carry_out_late(self, requests: float) -> None:
        """Carry out the late requests that are due after this number of requests."""
        due, self.late = [each for each in self.late if each[0] <= requests], [each for each in self.late if each[0] > requests]
        for _, carry_out in due:
            carry_out()

    def carry_out(self, row: int, request: Request) -> Response:
        """Let the service execute a request, and record a creation in the ledger."""
        response = self.fake.handle(request)
        document = json.loads(response.body)
        if "id" in document:
            self.ledger.append((row, Outcome(document["status"])))
        return response

    def misdirect(self, email: str, number: int, answer: Response) -> Response:
        """Return the response, or a copy of a response for another e-mail."""
        chance = random.Random(f"{self.scene.seed} {email} {number}")  # noqa: S311 - repeatable, not secret
        others = [all_rows for other, all_rows in self.delivered.items() if other.lower() != email.lower()]
        if answer.status < BAD and others and chance.random() < self.scene.misdirected:
            self.struck += 1
            return chance.choice(others)
        if answer.status < BAD and json.loads(answer.body).get("id"):
            self.delivered.setdefault(email, answer)
        return answer


def client_of(transport: Transport, attempts: int) -> OutreachClient:
    """Return a client of the service, whose delays are not random."""
    retry = RetryPolicy(attempts=attempts, jitter=lambda: 0.5)
    return OutreachClient(transport=transport, owner_key=KEY, workspace=SPACE, retry=retry)


def new_fake(*fields: str, **options: Any) -> FakeService:
    """Return a fake with a workspace that has these custom fields, and its key."""
    fake = FakeService(**options)
    fake.add_workspace(SPACE, custom_fields=fields)
    fake.add_owner_key(SPACE, key=KEY)
    return fake


def service(scene: Scenario, clock: Callable[[], float]) -> FakeService:
    """Return the service of a scenario in its initial state."""
    fake = new_fake("Row", "Plan", "Note", clock=clock)
    for email in scene.before:
        fake.handle(creation({"email": email, "city": "Lyon", "custom_2": "before"}, "skip"))
    return fake


def creation(members: dict[str, Any], duplicates: str) -> Request:
    """Return the request that creates a contact."""
    options = {"duplicates": duplicates, "strict_validation": False, "campaign": None}
    body = {"owner_key": KEY, "workspace": SPACE, "upload_options": options, **members}
    return Request("POST", "/contacts", HEADERS, json.dumps(body).encode())


def seeded(seed: int, rows: int = 20, **options: Any) -> Scenario:
    """Draw a scenario. About a third of its rows repeat an e-mail, some of them in upper case. A few rows may not be sent."""
    chance = random.Random(f"rows {seed}")  # noqa: S311 - repeatable, not secret
    all_rows: list[Any] = []
    for index in range(rows):
        email = f"user{chance.randrange(max(1, 2 * rows // 3))}@a.example"
        if chance.random() < 0.1 and options.get("repeats") != "coalesce":
            email = email.upper()  # the service treats it as the same contact, but the rows are not merged
        row = {"email": email if chance.random() > 0.05 else " ", ROW: str(index)}
        for field in ("custom_2", "custom_3", "city"):
            if chance.random() < 0.6:
                row[field] = chance.choice(["x", "y", "z", f"of row {index}"])
        all_rows.append(OptedOut(row) if chance.random() < 0.06 else row)
    before = [f"user{number}@a.example" for number in range(rows) if chance.random() < 0.2]
    options = {"attempts": chance.choice([2, 4]), "trouble": chance.choice([0.15, 0.4]), **options}
    return Scenario(rows=all_rows, before=before, seed=seed, **options)
