"""The status of a row is correct on every path of faults; tools/label_model.py walks many more paths."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest
from support.labels import Bounds, Rules, models
from support.outcome_oracle import DOUBTFUL, before_and_after

from outreach_async._engine.call import Call
from outreach_async._service.contacts import CreateContactResponse
from outreach_async._service.operations import AttemptInfo
from outreach_async._service.retry import FailureKind
from outreach_async.bulk._outcomes import ContactOutcome, answered_outcome, failed_outcome, unfinished_outcome
from outreach_async.bulk._pipeline import _Worker
from outreach_async.bulk._rows import NO_ROWS, CreateResult
from outreach_async.errors import OutreachError

FAULTY = Bounds(attempts=3, faults=3)
CRASHING = Bounds(attempts=3, faults=2, crashes=1)


@cache
def walk_models(bounds: Bounds, *, coalesce: bool = False) -> tuple[int, int, Counter[str]]:
    """Walk all models; return the number of paths, the number of those with the known exception, and the violations."""
    done = [model.walk() for model in models(bounds, coalesce=coalesce)]
    violations: Counter[str] = Counter()
    for model in done:
        violations.update(model.violations)
    return sum(model.leaves for model in done), sum(model.known for model in done), violations


@pytest.mark.thorough
@pytest.mark.parametrize(("bounds", "least"), [(FAULTY, 30_000), (CRASHING, 9_000)], ids=["faults", "crashes"])
def test_every_label_is_true_and_rows_are_applied_once_and_in_order(bounds: Bounds, least: int) -> None:
    leaves, _, violations = walk_models(bounds)
    assert leaves > least
    assert not violations


@pytest.mark.thorough
def test_only_a_late_overwrite_breaks_the_order_and_merging_prevents_it() -> None:
    apart = [model.walk() for model in models(Bounds(attempts=2, faults=2))]
    assert {model.duplicates for model in apart if model.known} == {"overwrite"}
    assert walk_models(FAULTY)[1] > 0
    assert walk_models(Bounds(attempts=2, faults=3, delays=0))[1] == 0
    leaves, known, violations = walk_models(FAULTY, coalesce=True)
    assert leaves > 100
    assert (known, violations) == (0, Counter())


@pytest.mark.parametrize("crashes", [0, 1], ids=["without a journal", "with one"])
@pytest.mark.parametrize("code", DOUBTFUL)
def test_a_status_that_may_follow_a_creation_leaves_every_label_true(code: int, crashes: int) -> None:
    for model in models(Bounds(attempts=2, faults=2, crashes=crashes, ways=before_and_after(code))):
        model.walk()
        assert (model.leaves > 4, model.violations, model.examples) == (True, Counter(), {})


def test_without_faults_every_label_is_certain() -> None:
    for model in models(Bounds(faults=0)):
        model.walk()
        assert (model.leaves, model.violations) == (1, Counter())


class Forgetful(Call[CreateResult]):
    """Breaks the rule that `maybe_applied` is kept: only the last attempt counts."""

    def record_failure(self, error: OutreachError, failure_kind: FailureKind) -> None:
        self.maybe_applied_earlier = False
        super().record_failure(error, failure_kind)


class Trusting(Call[CreateResult]):
    """Breaks the rule that a 503 may have been applied."""

    def record_failure(self, error: OutreachError, failure_kind: FailureKind) -> None:
        before = self.maybe_applied_earlier
        super().record_failure(error, failure_kind)
        if error.status_code == 503:
            self.maybe_applied_earlier = before


class Credulous(Call[CreateResult]):
    """Breaks the rule that a permanent status need not be a refusal."""

    def record_failure(self, error: OutreachError, failure_kind: FailureKind) -> None:
        before = self.maybe_applied_earlier
        super().record_failure(error, failure_kind)
        if failure_kind is FailureKind.FINAL:
            self.maybe_applied_earlier = before


def sure(index: int, row: object, answer: CreateContactResponse, trail: AttemptInfo) -> ContactOutcome:
    """Break the rule that an earlier ambiguous failure makes a response uncertain."""
    return answered_outcome(index, row, answer, AttemptInfo(trail.attempts, maybe_applied=False))


def hopeless(index: int, row: object, error: OutreachError, duplicates: str) -> ContactOutcome:
    """Break the rule that a failed row is uncertain if it may exist."""
    error.maybe_applied = False
    return failed_outcome(index, row, error, duplicates)


def dismissed(*arguments: Any, attempts: int, **_: Any) -> ContactOutcome:
    """Break the rule that a row in flight at the end of a run may exist."""
    return unfinished_outcome(*arguments, attempts=attempts, maybe_applied=False)


def unsuspecting(hand: _Worker) -> int | None:
    """Break the rule that an interrupted attempt may have been applied."""
    return hand.row.index if hand.row and hand.call and hand.call.maybe_applied_earlier else None


BROKEN = {
    "a taint is not kept": (FAULTY, Rules(call=Forgetful), "label excludes the true outcome"),
    "a 503 is trusted": (FAULTY, Rules(call=Trusting), "label excludes the true outcome"),
    "a final status is trusted": (FAULTY, Rules(call=Credulous), "label excludes the true outcome"),
    "a redirected row is no suspect": (CRASHING, Rules(call=Credulous), "label excludes the true outcome"),
    "a taint says nothing": (FAULTY, Rules(answered=sure), "label excludes the true outcome"),
    "a failure is final": (FAULTY, Rules(failed=hopeless), "not_applied although sent"),
    "the end is final": (FAULTY, Rules(unfinished=dismissed), "not_applied although sent"),
    "a kill leaves no suspects": (CRASHING, Rules(suspects=lambda _: NO_ROWS), "label excludes the true outcome"),
    "a cut attempt is no suspect": (CRASHING, Rules(suspect=unsuspecting), "label excludes the true outcome"),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", BROKEN)
def test_the_model_detects_a_broken_rule(name: str) -> None:
    bounds, rules, violation = BROKEN[name]
    small = Bounds(attempts=2, faults=2, crashes=bounds.crashes)
    found = [model.walk() for model in models(small, rules)]
    assert any(model.violations[violation] and model.examples[violation] for model in found)
