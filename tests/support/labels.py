"""Every way in which two rows of one e-mail can meet faults, and whether what is said of them afterwards is true.

A service of a few lines keeps a ledger of what it did; the library's own decisions (`weigh`, `Call.learn`, `Call.fail`,
`answered`, `failed`, `unfinished`, `Suspects`, `_Hand.suspect`, `merge`) say what a row is told to have done. Every path is
walked: nothing is drawn, and nothing that the library decides is decided here.
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

from outreach_async.bulk.journal.writer import merge
from outreach_async.bulk.outcomes import ContactOutcome, affects_every_row, answered_outcome, failed_outcome, unfinished_outcome
from outreach_async.bulk.pipeline import _Worker
from outreach_async.bulk.rows import NO_ROWS, CreateResult, ParsedRow, PossiblySent
from outreach_async.bulk.throttle import RunThrottle
from outreach_async.call import Call, CallOptions
from outreach_async.contacts import CreateContactResponse
from outreach_async.errors import BulkSuspended, OutreachError
from outreach_async.limiter import RateLimiter
from outreach_async.operations import AttemptInfo, Operation
from outreach_async.retry import Idempotency, RetryPolicy, classify, is_retryable
from outreach_async.transport.wire import Request, Response
from outreach_async.vocabulary import DUPLICATE_OUTCOMES, DUPLICATE_POLICIES, Outcome


def _unread(_response: Response, _trail: AttemptInfo) -> CreateResult:
    raise NotImplementedError  # the model hands out what would have been read


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
    """Return the rows that a process which was killed may have sent, as a journal's writer does."""
    return PossiblySent.of(ranges=[(0, marked)])


@attrs.frozen
class Rules:
    """What the library decides, to be broken once in order to see that the model notices.

    Attributes:
        call: Of what kind a row's call is.
        answered: Makes the outcome of an answer.
        failed: Makes that of a failure.
        unfinished: Makes that of a row under way when a run without a journal ends.
        suspects: Returns the rows that a process which was killed may have sent, of those marked.
        suspect: Returns the row in a hand, if it may have been sent.
    """

    call: type[Call[CreateResult]] = Call
    answered: Callable[..., ContactOutcome] = answered_outcome
    failed: Callable[..., ContactOutcome] = failed_outcome
    unfinished: Callable[..., ContactOutcome] = unfinished_outcome
    suspects: Callable[[int], PossiblySent] = left_by_a_kill
    suspect: Callable[[_Worker], int | None] = _Worker.possibly_sent_index


@attrs.frozen
class Bounds:
    """How far to go.

    Attributes:
        attempts: Of a row in one process.
        faults: Of a path, crashes and stops included.
        crashes: Kills, and ends in order, of a path; each is followed by a resume.
        delays: Requests of a path that the service meets later.
        ways: In which an attempt can fail.
    """

    attempts: int = 3
    faults: int = 6
    crashes: int = 0
    delays: int = 1
    ways: tuple[Way, ...] = FAULTS


@attrs.define(slots=False)
class At:
    """Where a path is.

    Attributes:
        service: The service's side.
        call: Of the row in hand.
        faults: Left.
        crashes: Left.
        delays: Left.
        row: Index of the row in hand.
        outcomes: Of the rows before it.
        suspects: Rows that an earlier process may have sent.
        begun: The first row of this process: the outcomes from it on may not be kept yet.
        marked: Rows that the journal knows as about to be sent, at least.
        refused: Rows that the service found wrong: it will again.
        sent: Rows of which an attempt left that the service did not surely refuse.
        late: Whether a request that was delayed has arrived.
        overtaken: Whether a kill took the outcome of a row that had failed, so that it is sent again, after a later row was.
        path: What happened last, after the path before.
    """

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
    """Walks all paths of one option and one state of the service before.

    Args:
        duplicates: The duplicates option.
        before: What is stored at first.
        bounds: How far to go.
        rules: What the library decides.
        coalesce: Whether the rows are merged into one before they are sent.

    Attributes:
        leaves: Paths walked to their end.
        violations: By kind.
        known: Paths that break the order of the rows in one of two known ways: an old overwriting that arrives after a later one,
            and a failed row that is sent again after a later one because a kill took its outcome.
        examples: The first path of each violation.
    """

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
        """Walk them all."""
        bounds = self.bounds
        self._attempt(At(Service(self.before), self._call(0, NO_ROWS), bounds.faults, bounds.crashes, bounds.delays))
        return self

    def _call(self, row: int, suspects: PossiblySent) -> Call[CreateResult]:
        call = self.rules.call(CREATE, TERMS, THROTTLE, float)  # a clock that stands still
        call.maybe_applied_earlier = row in suspects
        return call

    # One attempt

    def _attempt(self, at: At) -> None:
        """Let all that can happen to the next attempt happen."""
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
        """Let each request that was delayed arrive now."""
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
        """Let the service meet an attempt as it will; `None` if it will not."""
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
        at.faults = max(0, at.faults - 1)  # one that was met before may be met again
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
            error.__traceback__ = None  # which would hold on to all of the path
        self._settle(at, self.rules.failed(at.row, None, error, self.duplicates))

    def _settle(self, at: At, outcome: ContactOutcome) -> None:
        """Go on with the next row, or come to the end."""
        at.outcomes = (*at.outcomes, outcome)
        at.row += 1
        if at.row == len(self.rows):
            self._end(at)
        else:
            at.call = self._call(at.row, at.suspects)
            self._attempt(at)

    # The end of a process

    def _crash(self, at: At) -> None:
        """Let the process end now, and another one resume the run."""
        for name, act in DEATHS:
            if (dead := self._meets(at, act, f"killed {name}", sent=act != "never")) is not None:
                self._die(dead)
        for sent, act in CUTS:
            if (cut := self._meets(at, act, f"cut, sent: {sent}, {act}", sent=sent)) is not None:
                self._stop(cut, sent=sent)
        if at.call.attempts:
            self._stop(changed(at, path=(at.path, "stopped")), sent=None)

    def _die(self, at: At) -> None:
        """Kill the process, whatever was marked and whichever of its outcomes were kept by then."""
        for marked in range(max(at.marked, at.row + 1), len(self.rows) + 1):
            for pending_row in range(at.started_rows, at.row + 1):
                forgotten = any(outcome.error for outcome in at.outcomes[pending_row:])
                self._resume(changed(at, overtaken=forgotten or at.overtaken), pending_row, self.rules.suspects(marked), marked)

    def _stop(self, at: At, *, sent: bool | None) -> None:
        """End the run in order, in the middle of an attempt or between two."""
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
        """End a run over a refusal that concerns every row; one with a journal is resumed, as long as processes are left."""
        if not self.bounds.crashes:
            self._give_up_run(at)
        elif at.crashes:
            self._stop(at, sent=None)

    def _give_up_run(self, at: At) -> None:
        """End a run that keeps no journal: every row read is given an outcome."""
        at = changed(at, path=(at.path, "given up"), faults=max(0, at.faults - 1))
        for row in range(at.row, len(self.rows)):
            call = at.call if row == at.row else self._call(row, NO_ROWS)
            known = {"attempts": call.attempts, "maybe_applied": call.maybe_applied_earlier}
            at.outcomes = (*at.outcomes, self.rules.unfinished(row, None, HALTED, self.duplicates, **known))
        self._end(at)

    # The end of a path

    def _end(self, at: At) -> None:
        """Judge, for every way in which requests that were delayed arrive after all or never."""
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
                self._blame("not as one after the other", at)

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
    """Copy something, but for what changes: `copy.copy` and `attrs.evolve` take as long as everything else here."""
    copied: T = object.__new__(type(thing))
    vars(copied).update(vars(thing), **changes)
    return copied


def _merged(duplicates: str) -> tuple[Sent, ...]:
    """Return the one row that stands for both, merged as the journal's spool merges it."""
    first, second = ({name: value for name, value in zip(FIELDS, row, strict=True) if value} for row in (FIRST, SECOND))
    members = merge(first, second, duplicates)
    return (Sent(tuple(members.get(name) for name in FIELDS), (FIRST, SECOND)),)


def models(bounds: Bounds, rules: Rules | None = None, *, coalesce: bool = False) -> list[Model]:
    """Return a model of each option, for a contact that is new and for one that is there already."""
    pairs = product(DUPLICATE_POLICIES, (None, BEFORE))
    return [Model(duplicates, before, bounds, rules, coalesce=coalesce) for duplicates, before in pairs]
