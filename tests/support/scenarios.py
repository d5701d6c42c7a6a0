"""The input and the faults of a simulated run, and the service that records what was really done."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

import attrs

from outreach_async import Outcome
from outreach_async.bulk.outcomes import Order
from outreach_async.bulk.rows import WHOLE_INPUT, Repeats
from outreach_async.fake import FakeService, faults
from outreach_async.fake.fault_plan import Fault
from outreach_async.transport.wire import Request, Response
from outreach_async.vocabulary import DuplicatePolicy

SPACE: Final = "space_1"
KEY: Final = "key_of_the_owner"
HEADERS: Final = {"content-type": "application/json"}
NO_FIELD: Final = "custom_x"
"""A name that no field can have."""
BAD: Final = 300
ROW: Final = "custom_1"
"""The field that contains the index of a row."""
TROUBLE: Final[tuple[Fault, ...]] = (
    faults.refuse(),
    faults.reset(),
    faults.hang(),
    faults.status(500),
    faults.html_502(),
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
)


@attrs.frozen(kw_only=True)
class Scenario:
    """What is to be done, and in what weather.

    Attributes:
        rows: The input.
        duplicates: The duplicates option.
        repeats: What to do with an e-mail that comes again.
        before: E-mails that the workspace has at first.
        trouble: How probable it is that a request meets a fault.
        faults: Those there are.
        attempts: Of a row in one process.
        concurrency: Requests at a time.
        seed: Of the weather.
        order: In which outcomes reach the caller.
        spool: Whether the journal keeps the input.
        journal_seconds: The longest that a call of the journal takes.
        caller_seconds: The longest that the caller takes over an outcome.
        misdirected: How probable it is that an answer is a copy of the one to another row, where that names a contact.
    """

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

    def sent_for(self, members: dict[str, Any]) -> int:
        """Return the index of the row of a request."""
        if self.repeats not in WHOLE_INPUT:
            return int(members[ROW])
        group = self.group(members["email"])
        return group[-1] if self.repeats == "last" else group[0]

    def group(self, email: str) -> list[int]:
        """Return the valid rows with exactly this e-mail."""
        return [index for index, row in enumerate(self.rows) if valid(row) and row["email"] == email]

    def means(self, index: int) -> list[dict[str, Any]]:
        """Return the rows that a row stands for when it is sent: itself, or all rows merged into it."""
        rows = self.group(self.rows[index]["email"]) if self.repeats == "coalesce" else [index]
        return [dict(self.rows[row]) for row in rows]


def valid(row: Any) -> bool:
    """Return whether a row can be sent."""
    return isinstance(row, dict) and bool(row["email"].strip()) and NO_FIELD not in row


class World:
    """The service, the weather, and the ledger of what was really done; it outlives every process.

    Attributes:
        fake: The service.
        ledger: Row and outcome of each creation that was carried out.
        sends: How often each row was sent.
        struck: Faults that have struck.
        open: Requests under way.
        most_open: The most there were at a time.
        given: Answers that name a contact and have reached the process that lives, by the e-mail they are for.
    """

    def __init__(self, scene: Scenario, clock: Callable[[], float]) -> None:
        self.scene = scene
        self.fake = service(scene, clock)
        self.ledger: list[tuple[int, Outcome]] = []
        self.sends: Counter[int] = Counter()
        self.struck = self.open = self.most_open = 0
        self.delivered: dict[str, Response] = {}

    def weather(self, row: int, number: int) -> tuple[Fault, float, float]:
        """Return what happens to a request, and the seconds that it and its answer take."""
        chance = random.Random(f"{self.scene.seed} {row} {number}")  # noqa: S311 - repeatable, not secret
        way, answer = chance.uniform(0.01, 0.2), chance.uniform(0.01, 0.2)
        return (chance.choice(self.scene.faults) if chance.random() < self.scene.trouble else faults.ok), way, answer

    def carry_out(self, row: int, request: Request) -> Response:
        """Let the service execute the request."""
        response = self.fake.handle(request)
        document = json.loads(response.body)
        if "id" in document:
            self.ledger.append((row, Outcome(document["status"])))
        return response

    def misdirect(self, email: str, number: int, answer: Response) -> Response:
        """Return the answer, or a copy of one that another e-mail was given."""
        chance = random.Random(f"{self.scene.seed} {email} {number}")  # noqa: S311 - repeatable, not secret
        others = [all_rows for other, all_rows in self.delivered.items() if other.lower() != email.lower()]
        if answer.status < BAD and others and chance.random() < self.scene.misdirected:
            self.struck += 1
            return chance.choice(others)
        if answer.status < BAD and json.loads(answer.body).get("id"):
            self.delivered.setdefault(email, answer)
        return answer


def service(scene: Scenario, clock: Callable[[], float]) -> FakeService:
    """Return the initial service of a scenario."""
    fake = FakeService(clock=clock)
    fake.add_workspace(SPACE, custom_fields=["Row", "Plan", "Note"])
    fake.add_owner_key(SPACE, key=KEY)
    for email in scene.before:
        fake.handle(creation({"email": email, "city": "Lyon", "custom_2": "before"}, "skip"))
    return fake


def creation(members: dict[str, Any], duplicates: str) -> Request:
    """Make the request that creates a contact."""
    options = {"duplicates": duplicates, "strict_validation": False, "campaign": None}
    body = {"owner_key": KEY, "workspace": SPACE, "upload_options": options, **members}
    return Request("POST", "/contacts", HEADERS, json.dumps(body).encode())


def seeded(seed: int, rows: int = 20, **options: Any) -> Scenario:
    """Draw a scene: about a third of its rows repeat an e-mail, some spelled otherwise, and a few can never be sent."""
    chance = random.Random(f"rows {seed}")  # noqa: S311 - repeatable, not secret
    all_rows: list[Any] = []
    for index in range(rows):
        email = f"user{chance.randrange(max(1, 2 * rows // 3))}@a.example"
        if chance.random() < 0.1 and options.get("repeats") != "coalesce":
            email = email.upper()  # the same contact, by another name: rows that are not merged
        row = {"email": email if chance.random() > 0.05 else " ", ROW: str(index)}
        for field in ("custom_2", "custom_3", "city"):
            if chance.random() < 0.6:
                row[field] = chance.choice(["x", "y", "z", f"of row {index}"])
        all_rows.append(row)
    before = [f"user{number}@a.example" for number in range(rows) if chance.random() < 0.2]
    options = {"attempts": chance.choice([2, 4]), "trouble": chance.choice([0.15, 0.4]), **options}
    return Scenario(rows=all_rows, before=before, seed=seed, **options)
