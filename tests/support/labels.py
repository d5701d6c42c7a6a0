"""An exhaustive model of outcome labels: all sequences of faults that two rows with the same e-mail can meet.

A minimal service keeps a ledger of its effects. The code of the library decides the labels: `classify`,
`Call.record_failure`, `Call.fail`, `answered_outcome`, `failed_outcome`, `unfinished_outcome`, `PossiblySent`,
`_Worker.possibly_sent_index` and `merge`. The model walks every path, without random choices, and compares the labels with the
ledger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final, TypeVar

import attrs
from support.outcome_oracle import (
    BEFORE,
    CUTS,
    DEATHS,
    FAULTS,
    FIELDS,
    FIRST,
    INVALID,
    SECOND,
    Act,
    Payload,
    Sent,
    Service,
    Way,
    apply,
    find_wrong_labels,
    sequences,
    when_applied,
)

from outreach_async._engine.call import Call, CallOptions
from outreach_async._engine.limiter import RateLimiter
from outreach_async._engine.run_throttle import RunThrottle
from outreach_async._service.contacts import CreateContactResponse
from outreach_async._service.operations import AttemptInfo, Operation
from outreach_async._service.retry import Idempotency, RetryPolicy, classify, is_retryable
from outreach_async._vocabulary import DUPLICATE_OUTCOMES, DUPLICATE_POLICIES, Outcome
from outreach_async.bulk._outcomes import ContactOutcome, affects_every_row, answered_outcome, failed_outcome, unfinished_outcome
from outreach_async.bulk._pipeline import _Worker
from outreach_async.bulk._rows import NO_ROWS, CreateResult, ParsedRow, PossiblySent
from outreach_async.bulk.journal._writer import merge
from outreach_async.errors import BulkSuspended, OutreachError
from outreach_async.transport._wire import Request, Response


def _unread(_response: Response, _trail: AttemptInfo) -> CreateResult:
    raise NotImplementedError  # the model supplies the parsed response


CREATE: Final = Operation("create_contact", Request("POST", "/contacts"), _unread, Idempotency.IDEMPOTENT)
TERMS: Final = CallOptions(None, None)
THROTTLE: Final = RunThrottle(RateLimiter(RetryPolicy(), max_in_flight=1), RetryPolicy())


HALTED: Final = BulkSuspended("the service is down")
ONLY_ADDED: Final = frozenset({Outcome.ADDED})
ANSWERS: Final = {
    status: CreateContactResponse(status=status, id=None if status is Outcome.SKIPPED else "contact_1", details=None)
    for status in (Outcome.ADDED, *DUPLICATE_OUTCOMES.values())
}


def left_by_a_kill(marked: int) -> PossiblySent:
    """Return the rows that a killed process may have sent, like a journal's writer: all `marked` rows."""
    return PossiblySent.of(ranges=[(0, marked)])


@attrs.frozen
class Rules:
    """The decisions of the library. Tests replace one of them to check that the model detects the defect."""

    call: type[Call[CreateResult]] = Call
    answered: Callable[..., ContactOutcome] = answered_outcome
    failed: Callable[..., ContactOutcome] = failed_outcome
    unfinished: Callable[..., ContactOutcome] = unfinished_outcome
    suspects: Callable[[int], PossiblySent] = left_by_a_kill
    suspect: Callable[[_Worker], int | None] = _Worker.possibly_sent_index


@attrs.frozen
class Bounds:
    """Limits of the paths that a model walks."""

    attempts: int = 3
    faults: int = 6
    crashes: int = 0
    delays: int = 1
    ways: tuple[Way, ...] = FAULTS


@attrs.define(slots=False)
class At:
    """The state of the model at one point of a path."""

    service: Service
    call: Call[CreateResult]
    faults: int
    crashes: int
    delays: int
    row: int = 0
    outcomes: tuple[ContactOutcome, ...] = ()
    suspects: PossiblySent = NO_ROWS
    started_rows: int = 0
    marked: int = 0
    refused: frozenset[int] = frozenset()
    sent: frozenset[int] = frozenset()
    late: bool = False
    overtaken: bool = False
    path: tuple[Any, ...] = ()


class Model:
    """A walk of all paths for one duplicates option and one initial state of the service."""

    def __init__(
        self, duplicates: str, before: Payload | None, bounds: Bounds, rules: Rules | None = None, *, coalesce: bool = False
    ) -> None:
        self.duplicates = duplicates
        self.before = before
        self.bounds = bounds
        self.rules = rules or Rules()
        self.rows = _merged(duplicates) if coalesce else (Sent(FIRST, (FIRST,)), Sent(SECOND, (SECOND,)))
        self.leaves = self.known = 0
        self.violations: Counter[str] = Counter()
        self.examples: dict[str, tuple[str, ...]] = {}
        self._in_turn: dict[tuple[bool | None, ...], frozenset[Any]] = {}

    def walk(self) -> Model:
        """Walk all paths, and return this model."""
        bounds = self.bounds
        self._attempt(At(Service(self.before), self._call(0, NO_ROWS), bounds.faults, bounds.crashes, bounds.delays))
        return self

    def _call(self, row: int, suspects: PossiblySent) -> Call[CreateResult]:
        call = self.rules.call(CREATE, TERMS, THROTTLE, float)  # a constant clock: `float()` is 0.0
        call.maybe_applied_earlier = row in suspects
        return call

    # One attempt

    def _attempt(self, at: At) -> None:
        """Continue the path with every possible result of the next attempt."""
        for place in (at, *self._arrivals(at)) if at.service.delayed else (at,):
            if place.row in place.refused:
                self._fault(place, INVALID)
            else:
                self._answer(place)
            if place.faults:
                for way in self.bounds.ways:
                    if not (way.invalid and place.row in place.refused):
                        self._fault(place, way)
                if place.crashes:
                    self._crash(place)
                elif not self.bounds.crashes:
                    self._give_up_run(place)

    def _arrivals(self, at: At) -> Iterator[At]:
        """Yield one state for each delayed request, in which that request arrives now."""
        for place, row in enumerate(at.service.delayed):
            left = at.service.delayed[:place] + at.service.delayed[place + 1 :]
            service = self._act(Service(at.service.contact, left, at.service.ledger), row, "now")
            yield changed(at, service=service, late=True, path=(at.path, f"row {row} arrives"))

    def _act(self, service: Service, row: int, act: Act) -> Service:
        if act == "never":
            return service
        if act == "later":
            return Service(service.contact, (*service.delayed, row), service.ledger)
        contact, outcome = apply(self.duplicates, service.contact, self.rows[row].payload)
        return Service(contact, service.delayed, (*service.ledger, (row, outcome)))

    def _meets(self, at: At, act: Act, name: str, *, sent: bool) -> At | None:
        """Return the state after the service handles an attempt in this way; `None` if that is impossible."""
        if act != "never" and at.row in at.refused:
            return None
        if act == "later" and not at.delays:
            return None
        return changed(
            at,
            service=self._act(at.service, at.row, act),
            delays=at.delays - (act == "later"),
            sent=at.sent | {at.row} if sent else at.sent,
            path=(at.path, name),
        )

    def _answer(self, at: At) -> None:
        service, call = self._act(at.service, at.row, "now"), at.call
        trail = AttemptInfo(call.attempts + 1, call.maybe_applied_earlier)
        outcome = self.rules.answered(at.row, None, ANSWERS[service.ledger[-1][1]], trail)
        self._settle(changed(at, service=service, sent=at.sent | {at.row}, path=(at.path, "ok")), outcome)

    def _fault(self, before: At, way: Way) -> None:
        at = self._meets(before, way.act, way.name, sent=way.sent)
        if at is None:
            return
        error, call = way.error(), changed(at.call)
        at.call = call
        at.faults = max(0, at.faults - 1)  # a permanent rejection occurs again even without faults left
        if way.invalid:
            at.refused |= {at.row}
        evidence = classify(error, call.operation.idempotency)
        call.record_failure(error, evidence)
        if is_retryable(evidence, call.operation.idempotency) and call.attempts < self.bounds.attempts:
            self._attempt(at)
            return
        if affects_every_row(error) and not is_retryable(evidence, call.operation.idempotency):
            self._stop_run(at)
            return
        try:
            call.fail(error)
        except OutreachError:
            error.__traceback__ = None  # it would keep the whole path in memory
        self._settle(at, self.rules.failed(at.row, None, error, self.duplicates))

    def _settle(self, at: At, outcome: ContactOutcome) -> None:
        """Add the outcome of the current row, then continue with the next row or end the path."""
        at.outcomes = (*at.outcomes, outcome)
        at.row += 1
        if at.row == len(self.rows):
            self._end(at)
        else:
            at.call = self._call(at.row, at.suspects)
            self._attempt(at)

    # The end of a process

    def _crash(self, at: At) -> None:
        """End the process now in every possible way, and resume the run in another process."""
        for name, act in DEATHS:
            if (dead := self._meets(at, act, f"killed {name}", sent=act != "never")) is not None:
                self._die(dead)
        for sent, act in CUTS:
            if (cut := self._meets(at, act, f"cut, sent: {sent}, {act}", sent=sent)) is not None:
                self._stop(cut, sent=sent)
        if at.call.attempts:
            self._stop(changed(at, path=(at.path, "stopped")), sent=None)

    def _die(self, at: At) -> None:
        """Kill the process, for every possible number of marked rows and recorded outcomes."""
        for marked in range(max(at.marked, at.row + 1), len(self.rows) + 1):
            for pending_row in range(at.started_rows, at.row + 1):
                forgotten = any(outcome.error for outcome in at.outcomes[pending_row:])
                self._resume(changed(at, overtaken=forgotten or at.overtaken), pending_row, self.rules.suspects(marked), marked)

    def _stop(self, at: At, *, sent: bool | None) -> None:
        """Stop the run in order and resume it."""
        hand = _Worker()
        hand.row = ParsedRow(at.row, None, "", CREATE, at.row in at.suspects)
        hand.call = changed(at.call)
        if sent is not None:
            hand.call.start_attempt(0.0).sent = sent
        suspect = self.rules.suspect(hand)
        left = at.suspects.starting_at(at.row + 1).ranges
        suspects = PossiblySent.of([] if suspect is None else [suspect], left)
        self._resume(at, at.row, suspects, max(at.marked, at.row + 1))

    def _resume(self, at: At, row: int, suspects: PossiblySent, marked: int) -> None:
        resumed = changed(at, row=row, outcomes=at.outcomes[:row], suspects=suspects, started_rows=row, marked=marked)
        resumed.call = self._call(row, suspects)
        resumed.path = (at.path, f"resumed at row {row}, {marked} marked")
        resumed.faults = max(0, resumed.faults - 1)
        resumed.crashes -= 1
        self._attempt(resumed)

    def _stop_run(self, at: At) -> None:
        """End a run because of an error that affects every row. With a journal, resume the run if crashes are left."""
        if not self.bounds.crashes:
            self._give_up_run(at)
        elif at.crashes:
            self._stop(at, sent=None)

    def _give_up_run(self, at: At) -> None:
        """End a run without a journal: every remaining row gets the outcome of an unfinished row."""
        at = changed(at, path=(at.path, "given up"), faults=max(0, at.faults - 1))
        for row in range(at.row, len(self.rows)):
            call = at.call if row == at.row else self._call(row, NO_ROWS)
            known = {"attempts": call.attempts, "maybe_applied": call.maybe_applied_earlier}
            at.outcomes = (*at.outcomes, self.rules.unfinished(row, None, HALTED, self.duplicates, **known))
        self._end(at)

    # The end of a path

    def _end(self, at: At) -> None:
        """Check the outcomes at the end of a path, for every order in which delayed requests arrive or never arrive."""
        self._judge(at)
        for late in self._arrivals(at):
            self._end(late)

    def _judge(self, at: At) -> None:
        self.leaves += 1
        outcomes = at.outcomes
        for outcome in outcomes:
            for kind in find_wrong_labels(outcome, at.service.truth(outcome.index), sent=outcome.index in at.sent):
                self._blame(kind, at)
        if sum(outcome.possible == ONLY_ADDED for outcome in outcomes) > (self.before is None):
            self._blame("added twice", at)
        if at.faults == self.bounds.faults and not all(outcome.certain for outcome in outcomes):
            self._blame("uncertain without a fault", at)
        if at.service.contact not in self._made(tuple(map(when_applied, outcomes))):
            if at.overtaken or (self.duplicates == "overwrite" and len(self.rows) > 1 and at.late):
                self.known += 1
            else:
                self._blame("contact is not the result of the rows in order", at)

    def _made(self, sure: tuple[bool | None, ...]) -> frozenset[Any]:
        if sure not in self._in_turn:
            self._in_turn[sure] = sequences(self.duplicates, self.before, self.rows, sure)
        return self._in_turn[sure]

    def _blame(self, kind: str, at: At) -> None:
        self.violations[kind] += 1
        if kind not in self.examples:
            steps, path = [], at.path
            while path:
                path, step = path
                steps.append(step)
            self.examples[kind] = tuple(reversed(steps))


T = TypeVar("T")


def changed(thing: T, **changes: Any) -> T:
    """Return a copy of an object with changed attributes. `copy.copy` and `attrs.evolve` would double the time of the model."""
    copied: T = object.__new__(type(thing))
    vars(copied).update(vars(thing), **changes)
    return copied


def _merged(duplicates: str) -> tuple[Sent, ...]:
    """Return the row that results from merging both rows, as the journal's spool merges them."""
    first, second = ({name: value for name, value in zip(FIELDS, row, strict=True) if value} for row in (FIRST, SECOND))
    members = merge(first, second, duplicates)
    return (Sent(tuple(members.get(name) for name in FIELDS), (FIRST, SECOND)),)


def models(bounds: Bounds, rules: Rules | None = None, *, coalesce: bool = False) -> list[Model]:
    """Return one model for each duplicates option, with a new contact and with an existing contact."""
    pairs = product(DUPLICATE_POLICIES, (None, BEFORE))
    return [Model(duplicates, before, bounds, rules, coalesce=coalesce) for duplicates, before in pairs]
