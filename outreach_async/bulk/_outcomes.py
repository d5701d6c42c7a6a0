"""Outcomes of rows, the order in which they are delivered, and the report of a run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TypeAlias

import attrs
import msgspec

from outreach_async._core.operations import AttemptInfo
from outreach_async._core.retry import FailureKind, Idempotency, classify, explain_error, is_permanent_rejection, maybe_applied
from outreach_async._display import TabularReport, show_object
from outreach_async._wire_words import DUPLICATE_OUTCOMES, SERVICE_OUTCOMES, Outcome
from outreach_async.errors import BulkStopped, InvalidRequest, OutreachError, StatusError, UnexpectedResponse
from outreach_async.models import CERTAIN_OUTCOMES, RUN_TARGET, CreateContactResponse, Target, possible_outcomes


def _show_row(row: object) -> str:
    try:
        return repr(row)
    except Exception:  # noqa: BLE001 - a rejected row may have values whose own code raises
        return f"<{type(row).__name__}>"


@attrs.frozen(kw_only=True)
class ContactOutcome:
    """The outcome of one row of a bulk run.

    Attributes:
        index: Index of the row in the input, from 0.
        contact: The row as the caller passed it; a copy if the row is a
            dict. Values that are normalised are those that are sent.
        status: The status in the service's last response, or one of the
            values of `Outcome` that a run determines. A row is `excluded`
            if reading it raises `Excluded`, if `exclude` has its e-mail,
            or if a ledger holds it; its `error` then has the reason.
        id: Id of the contact; `None` if the service returned none.
        possible: Every outcome that is consistent with what is known about
            the attempts.
        attempts: Number of attempts to send the row.
        error: The error of a row that failed or was not sent, or `None`.
        repeats: Index of the row with the same e-mail because of which
            this row was not sent or was rejected; otherwise `None`.
        target: Ids of the row's workspace and campaign. Both are `None` if
            the row names a target that is unknown.

    Example:
        ```python
        async with client.contacts.create_many([{"email": "bo@acme.example"}]) as outcomes:
            async for outcome in outcomes:
                print(outcome.index, outcome.status, outcome.id, outcome.attempts)  # -> 0 skipped None 1
        ```
    """

    index: int
    contact: object = attrs.field(repr=_show_row)
    status: Outcome
    id: str | None
    possible: frozenset[Outcome]
    attempts: int
    error: OutreachError | None = None
    repeats: int | None = None
    target: Target = RUN_TARGET

    @property
    def certain(self) -> bool:
        """True if `status` is the only possible outcome."""
        return len(self.possible) == 1


def answered_outcome(
    index: int, row: object, answer: CreateContactResponse, info: AttemptInfo, target: Target = RUN_TARGET
) -> ContactOutcome:
    possible = info.possible or possible_outcomes(answer.status, maybe_applied=info.maybe_applied)
    return build_outcome(index, row, answer.status, answer.id, possible, info.attempts, None, None, target)


def failed_outcome(index: int, row: object, error: OutreachError, duplicates: str, target: Target = RUN_TARGET) -> ContactOutcome:
    attempts, maybe_sent = error.attempts, error.maybe_applied
    outcome = unfinished_outcome(index, row, error, duplicates, attempts=attempts, maybe_applied=maybe_sent, target=target)
    if not is_permanent_rejection(error) or maybe_applied(error, FailureKind.FINAL):
        return outcome
    # The row itself is rejected, although an earlier attempt may have been applied.
    possible = outcome.possible - {Outcome.NOT_APPLIED} | {Outcome.REJECTED}
    return attrs.evolve(outcome, status=Outcome.REJECTED, possible=possible)


def unfinished_outcome(
    index: int,
    row: object,
    cause: OutreachError,
    duplicates: str,
    *,
    attempts: int,
    maybe_applied: bool,
    target: Target = RUN_TARGET,
) -> ContactOutcome:
    """Return the outcome of a row that was still being processed when the run ended."""
    if not maybe_applied:
        return build_outcome(index, row, Outcome.NOT_APPLIED, None, _NOT_APPLIED, attempts, cause, None, target)
    possible = _NOT_APPLIED | {Outcome.ADDED, DUPLICATE_OUTCOMES[duplicates]}
    return build_outcome(index, row, Outcome.UNKNOWN, None, possible, attempts, cause, None, target)


def unsent_outcome(  # noqa: PLR0917 - the fields of an outcome, in their order
    index: int,
    row: object,
    status: Outcome,
    cause: OutreachError | None,
    repeats: int | None = None,
    target: Target = RUN_TARGET,
) -> ContactOutcome:
    """Return the outcome of a row that is not sent, such as an invalid row or a row that repeats an e-mail."""
    possible = frozenset({status})
    return build_outcome(index, row, status, None, possible, 0, cause, repeats, target)


_UNCHANGED, _NOT_APPLIED = CERTAIN_OUTCOMES[Outcome.UNCHANGED], CERTAIN_OUTCOMES[Outcome.NOT_APPLIED]
_set_index, _set_contact, _set_status, _set_id, _set_possible, _set_attempts, _set_error, _set_repeats, _set_target = (
    getattr(ContactOutcome, field.name).__set__ for field in attrs.fields(ContactOutcome)
)


def build_outcome(  # noqa: PLR0917 - the fields of an outcome, by position because that is faster
    index: int,
    contact: object,
    status: Outcome,
    id_: str | None,
    possible: frozenset[Outcome],
    attempts: int,
    error: OutreachError | None,
    repeats: int | None,
    target: Target,
) -> ContactOutcome:
    """Return an outcome, as the class does, but faster."""
    # The fields are set through their slots, because the `__init__` of a frozen attrs class looks up each field by its name.
    outcome: ContactOutcome = object.__new__(ContactOutcome)
    _set_index(outcome, index)
    _set_contact(outcome, contact)
    _set_status(outcome, status)
    _set_id(outcome, id_)
    _set_possible(outcome, possible)
    _set_attempts(outcome, attempts)
    _set_error(outcome, error)
    _set_repeats(outcome, repeats)
    _set_target(outcome, target)
    return outcome


def unchanged_outcome(index: int, row: object, id_: str | None, target: Target) -> ContactOutcome:
    """Return the outcome of a row that is not sent, because the contact with this id already has its values."""
    return build_outcome(index, row, Outcome.UNCHANGED, id_, _UNCHANGED, 0, None, None, target)


@attrs.frozen
class UnsentRows:
    """Consecutive rows that are not sent, from row `index` on: their outcomes, which are delivered together."""

    index: int
    outcomes: list[ContactOutcome]
    unchanged: Mapping[Target, int] = MappingProxyType({})  # rows that are only counted: nobody receives their outcomes


def is_superseded(outcome: ContactOutcome) -> bool:
    return outcome.repeats is not None and outcome.status is Outcome.NOT_APPLIED


def is_rejected_repeat(outcome: ContactOutcome) -> bool:
    return outcome.repeats is not None and outcome.status is Outcome.REJECTED


_HISTORY_SIZE: Final = 4096  # minimum number of recent responses whose contact ids are stored


class RecentIds:
    """Detects a response that contains the id of another row's contact."""

    # If a server or proxy writes a response twice, each later response on that connection is received for the wrong row. The same
    # id is allowed for rows whose e-mails the service may treat as equal, unless the later one was added.

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, int]] = {}
        self._older_rows: dict[str, tuple[int, int]] = {}

    def find_earlier(self, outcome: ContactOutcome, key: str) -> int | None:
        """Return the index of an earlier row whose contact cannot have the same id as this row's; `None` if there is none."""
        # If the id is new, it is stored with the key and index of this row.
        if outcome.id is None:
            return None
        key_hash = hash(key)  # stored instead of the key, because it is smaller
        found = self._rows.get(outcome.id) or self._older_rows.get(outcome.id)
        if found is None:
            if len(self._rows) == _HISTORY_SIZE:
                self._older_rows, self._rows = self._rows, {}
            self._rows[outcome.id] = key_hash, outcome.index
            return None
        earlier_hash, earlier = found
        return None if earlier_hash == key_hash and outcome.status != Outcome.ADDED else earlier


def misdirected_outcome(outcome: ContactOutcome, other: int, duplicates: str) -> ContactOutcome:
    """Return the outcome of a row whose response may belong to another row, because both rows received the same id."""
    text = (
        f"create_contact: rows {outcome.index} and {other} received the same contact id;"
        " one of the two responses was not meant for its row; a mock must give each response an id of its own"
    )
    error = UnexpectedResponse(text, operation="create_contact", attempts=outcome.attempts, maybe_sent=True)
    return failed_outcome(outcome.index, outcome.contact, error, duplicates, outcome.target)


def affects_every_row(error: OutreachError) -> bool:
    """Return whether an error that is no longer retried affects every row, for example because the key or base URL is wrong."""
    # Rows are validated before they are sent, so the cause of an InvalidRequest is not a row, but for example a closed transport.
    return isinstance(error, InvalidRequest) or (isinstance(error, StatusError) and explain_error(error).affects_every_row)


_OTHER_ADDRESS: Final = "check base_url= (OUTREACH_BASE_URL), because the answer is not that of the service"
_STOP_REMEDIES: Final[Mapping[tuple[str, int | None], str]] = {
    ("create_contact", 401): "check owner_key= (OUTREACH_OWNER_KEY)",
    ("create_contact", 403): "check owner_key= (OUTREACH_OWNER_KEY), which needs access to workspace=",
    ("create_contact", 404): "check campaign=, workspace= and base_url=",
    ("list_campaigns", 401): "pass headers=, if the service needs an authorization",
    ("list_campaigns", 403): "check workspace=, and pass headers= if the service needs an authorization",
    ("list_campaigns", 404): "check workspace= and base_url=",
    ("create_contact", 405): _OTHER_ADDRESS,
    ("create_contact", 501): _OTHER_ADDRESS,
    ("create_contact", 505): _OTHER_ADDRESS,
}
"""What fixes the cause that stopped a run, by operation and status."""


def stopped_by(error: OutreachError, what: str, again: str = "") -> BulkStopped:
    """Return the error that stops a run because of an answer. `again` says how the run goes on once its cause is fixed."""
    remedy = _STOP_REMEDIES.get((error.operation or "", error.status_code), "")  # others are in the message, as of a redirect
    return BulkStopped.over(error, f"run stopped: {what}", "; ".join(filter(None, (remedy, again and f"then {again}"))))


def is_final_answer(error: OutreachError) -> bool:
    """Return whether an error is the service's final answer about the row. A retry cannot resolve such an error."""
    return isinstance(error, StatusError | UnexpectedResponse) and classify(error, Idempotency.IDEMPOTENT) is FailureKind.FINAL


@attrs.define
class LedgerCounts:
    """The number of rows of a run by what its ledger knew about them.

    Rows that are rejected before sending are not counted.

    Attributes:
        new: Rows without an entry.
        changed: Rows that differ from the last row of their contact.
        expired: Rows whose entry is older than `max_age`.
        uncertain: Rows whose contact may have been changed by an attempt
            without an answer.
        unchanged: Rows not sent, because the contact has their values.
        excluded: Rows that are not sent, because the person must not be
            written to. What the ledger knows of the contact stays.
        held: The excluded rows of people whom a ledger holds.
        gated: The excluded rows that a gate withheld.
        gone: Contacts of the ledger that the input does not have; `None`
            until the run has finished the whole input.
        repeated: Rows with the e-mail and the target of another row;
            `None` if the input cannot be read twice.
        kept: Fields, not rows: those without a value in the changed rows
            of a file, a data frame or a `csv.DictReader`. What the service
            has for them stays, with `duplicates="overwrite"`, too. The
            ledger does not know which of them had a value.

    Example:
        ```python
        rows = [{"email": "ann@company.example"}, {"email": "bo@acme.example"}]
        await client.contacts.create_many(rows[:1], ledger="contacts.ledger", duplicates="overwrite")
        report = await client.contacts.create_many(rows, ledger="contacts.ledger", duplicates="overwrite")
        print(report.ledger.new, report.ledger.unchanged, report.ledger.gone)  # -> 1 1 0
        ```
    """

    new: int = 0
    changed: int = 0
    expired: int = 0
    uncertain: int = 0
    unchanged: int = 0
    excluded: int = 0
    held: int = 0
    gated: int = 0
    gone: int | None = None
    repeated: int | None = None
    kept: int = 0


Targeted: TypeAlias = Mapping[Target, Mapping[Outcome, int]]
"""The number of rows for each target and outcome. Outcomes that did not occur are left out.

Example:
    ```python
    rows = [{"email": "ann@company.example"}, {"email": "bo@acme.example"}]
    targets: Targeted = (await client.contacts.create_many(rows)).targets
    print(sum(sum(counts.values()) for counts in targets.values()))  # -> 2
    ```
"""


@attrs.frozen(repr=False)
class BulkReport(TabularReport):
    """The report of a run: the number of rows with each outcome.

    These numbers add up to `rows`.

    Attributes:
        rows: Number of rows whose outcome was returned.
        outcomes: Number of rows by outcome; 0 for one that did not occur.
        uncertain: Number of rows with more than one possible outcome.
        repeats: Number of `not_applied` rows that another row with the
            same e-mail replaced.
        seconds: Duration of the run so far.
        ledger: Number of rows by what the run's ledger knew about them;
            `None` without a ledger.
        targets: Number of rows by target and outcome.

    Example:
        ```python
        rows = [{"email": "ann@company.example"}, {"email": "bo@acme.example"}]
        report = await client.contacts.create_many(rows)
        print(report.rows, report.outcomes[Outcome.ADDED], report.outcomes[Outcome.SKIPPED], report.uncertain)  # -> 2 1 1 0
        ```
    """

    rows: int
    outcomes: dict[Outcome, int]
    uncertain: int
    seconds: float
    repeats: int = 0
    ledger: LedgerCounts | None = None
    targets: Targeted = attrs.field(factory=dict)

    def __repr__(self) -> str:
        return show_object(self)

    def _table(self) -> Sequence[Any]:
        return [{"outcome": outcome.value, "rows": count} for outcome, count in self.outcomes.items()]

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON values, with wire names of outcomes.

        Example:
            ```python
            report = await client.contacts.create_many([{"email": "ann@company.example"}])
            print(report.to_dict()["outcomes"]["added"])  # -> 1
            ```
        """
        counts: dict[str, Any] = {} if self.ledger is None else {"ledger": attrs.asdict(self.ledger)}
        if len(self.targets) > 1:
            counts["targets"] = [
                {**target._asdict(), "outcomes": {outcome.value: count for outcome, count in found.items()}}
                for target, found in self.targets.items()
            ]
        return {
            "rows": self.rows,
            "outcomes": {outcome.value: count for outcome, count in self.outcomes.items()},
            "uncertain": self.uncertain,
            "repeats": self.repeats,
            "seconds": round(self.seconds, 3),
            **counts,
        }

    @classmethod
    def _from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the report that `to_dict` wrote: a converter calls this."""
        targets = {(each["workspace"], each["campaign"]): each["outcomes"] for each in values.get("targets", ())}
        return msgspec.convert({**values, "targets": targets}, cls)


def add_counts(*each: Mapping[Outcome, int]) -> dict[Outcome, int]:
    """Add up numbers of rows by outcome. The result has every outcome, with 0 if it did not occur."""
    sums = Counter(dict.fromkeys(Outcome, 0))
    for counts in each:
        sums.update(counts)
    return dict(sums)


def add_targets(*each: Targeted) -> Targeted:
    """Add up counts, in the order of the targets' ids. Outcomes that did not occur are left out."""
    sums: dict[Target, Counter[Outcome]] = {}
    for found in each:
        for target, counts in found.items():
            sums.setdefault(target, Counter()).update(counts)
    targets = sorted(sums, key=lambda target: [id_ or "" for id_ in target])
    return {target: {outcome: rows for outcome, rows in sorted(sums[target].items()) if rows} for target in targets}


def add_reports(reports: Iterable[Any]) -> dict[str, Any]:
    """Return the sums of the outcomes and the targets of reports, which have attributes of these names."""
    each = list(reports)
    return {
        "outcomes": add_counts(*(report.outcomes for report in each)),
        "targets": add_targets(*(report.targets for report in each)),
    }


class OutcomeCounts:
    """Counts outcomes by target and status. `begun` has the counts of earlier processes, which `targets` divides."""

    def __init__(self, begun: BulkReport | None = None, targets: Targeted = MappingProxyType({})) -> None:
        self._targets = {target: Counter(counts) for target, counts in targets.items()}
        self._last: Target | None = None
        self._counter = Counter[Outcome]()
        self._uncertain = begun.uncertain if begun else 0
        self._repeats = begun.repeats if begun else 0

    @property
    def rows(self) -> int:
        return sum(counter.total() for counter in self._targets.values())

    @property
    def accepted(self) -> bool:
        """Whether the service has accepted a row."""
        return any(outcome in SERVICE_OUTCOMES for counter in self._targets.values() for outcome in +counter)

    def add(self, outcome: ContactOutcome) -> None:
        if outcome.target is not self._last:
            self._select(outcome.target)
        self._counter[outcome.status] += 1
        if len(outcome.possible) != 1:
            self._uncertain += 1
        if outcome.repeats is not None:
            self._repeats += is_superseded(outcome)

    def add_unchanged(self, target: Target, rows: int) -> None:
        self._select(target)
        self._counter[Outcome.UNCHANGED] += rows

    def _select(self, target: Target) -> None:
        if (counter := self._targets.get(target)) is None:
            counter = self._targets[target] = Counter()
        self._last, self._counter = target, counter

    def report(self, seconds: float) -> BulkReport:
        sums = add_counts(*self._targets.values())
        return BulkReport(self.rows, sums, self._uncertain, seconds, self._repeats, targets=add_targets(self._targets))


Order = Literal["completion", "input"]
"""Order of the returned outcomes. `completion` returns each outcome as soon as it is known. `input` returns outcomes in the order
of the rows: an outcome is returned after the outcomes of all earlier rows.

Example:
    ```python
    async with client.contacts.create_many([{"email": ""}, {"email": "ann@company.example"}], order="input") as outcomes:
        print([outcome.index async for outcome in outcomes])  # -> [0, 1]
    ```
"""


Revision = Callable[[ContactOutcome], ContactOutcome]
"""A function that takes the outcome of a row and returns the outcome that replaces it."""


class CompletionOrder(deque[ContactOutcome]):
    """Outcomes that the caller has not received yet, in the order in which they were added. It delays none."""

    def expect(self, _index: int) -> None: ...

    def forget(self, _index: int) -> None: ...

    def revise(self, index: int, revised: Revision) -> None:
        revise(self, index, revised)


class InputOrder:
    """Outcomes that the caller has not received yet, in the order of the rows. Its length is 0 while none is ready."""

    def __init__(self) -> None:
        self._expected: deque[int] = deque()
        self._outcomes: dict[int, ContactOutcome] = {}

    def __len__(self) -> int:
        return len(self._outcomes) if self._expected and self._expected[0] in self._outcomes else 0

    def expect(self, index: int) -> None:
        """Delay the outcomes of later rows until the row with this index has its outcome."""
        self._expected.append(index)

    def forget(self, index: int) -> None:
        """No longer delay the outcomes of later rows until this row has its outcome."""
        self._expected.remove(index)

    def extend(self, outcomes: Iterable[ContactOutcome]) -> None:
        self._outcomes.update((outcome.index, outcome) for outcome in outcomes)

    def revise(self, index: int, revised: Revision) -> None:
        if index in self._outcomes:
            self._outcomes[index] = revised(self._outcomes[index])

    def popleft(self) -> ContactOutcome:
        return self._outcomes.pop(self._expected.popleft())


def revise(outcomes: MutableSequence[ContactOutcome], index: int, revised: Revision) -> None:
    """Replace a row's outcome with the result of `revised`, if it is still in `outcomes`."""
    for position, outcome in enumerate(outcomes):
        if outcome.index == index:
            outcomes[position] = revised(outcome)


OutcomeBuffer = CompletionOrder | InputOrder


class RejectStreak:
    """Detects that the service rejects the first `rows` rows that it answers, whatever the reasons."""

    def __init__(self, rows: int | None) -> None:
        self.remaining = rows or 0  # 0 once a row was accepted
        self._rows = rows
        self._reasons: Counter[str] = Counter()

    def end(self) -> None:
        """Look no further, because the service has accepted a row."""
        self.remaining = 0

    def check(self, outcome: ContactOutcome, *, rejected_before: bool, again: str) -> BulkStopped | None:
        """Count the outcome of a row that was sent. Return the error that stops the run if it is the last, and all were rejected.

        `again` says how a run that was stopped goes on.
        """
        if not is_rejection(outcome):
            if outcome.error is None:
                self.end()
            return None  # an attempt without an answer says nothing about rows
        # A row that was rejected before is rejected for a reason of its own. It says nothing about the input or the options.
        if rejected_before:
            return None
        self._reasons[str(outcome.error)] += 1
        self.remaining -= 1
        if self.remaining:
            return None
        ((reason, count),) = self._reasons.most_common(1)
        share = "" if count == self._rows else f" ({count:,} of them with this error)"
        return BulkStopped(
            f"run stopped: the first {self._rows:,} rows were all rejected{share}: {reason};"
            f" fix the cause, or pass stop_after_rejects=None to go on despite it; then {again}"
        )


def is_rejection(outcome: ContactOutcome) -> bool:
    """Return whether the last answer of the service to a row was a refusal. A row that is not sent has no such answer."""
    # A refusal does not prove that the row was not applied, for example if the status is 425. The outcome is then `unknown`.
    error = outcome.error
    return outcome.attempts > 0 and error is not None and is_permanent_rejection(error)
