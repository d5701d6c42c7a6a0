"""Stated rules about creating contacts: what is accepted, what is refused, and the response. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from outreach_async.conformance.calibration import Measurement
from outreach_async.conformance.rule import RuleSubject, StatedRule, check_success, shorten
from outreach_async.conformance.survey import HttpExchange
from outreach_async.conformance.target import OUTCOMES
from outreach_async.conformance.write_probes import MembershipCounts

_SUCCESS_STATUSES: Final = (200, 201)


# Subjects of rules.


def _trial_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial:
        for outcome, asked in measured.trial.outcomes.items():
            yield RuleSubject(asked, "the response", (outcome, asked))


def _first_creation(measured: Measurement) -> Iterator[RuleSubject]:
    return (subject for subject in _trial_creations(measured) if subject.value[0] == "added")


def _duplicate_creations(measured: Measurement) -> Iterator[RuleSubject]:
    return (subject for subject in _trial_creations(measured) if subject.value[0] != "added")


def _skipped_creations(measured: Measurement) -> Iterator[RuleSubject]:
    return (subject for subject in _trial_creations(measured) if subject.value[0] == "skipped")


def _full_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial and measured.trial.fields:
        yield RuleSubject(measured.trial.fields, "the response", ("added", measured.trial.fields))


def _incomplete_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial:
        for member, asked in measured.trial.incomplete.items():
            yield RuleSubject(asked, "the response", (member, asked))


def _returned_ids(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield the ids returned for one contact, by outcome, and that of another contact, if there is one."""
    if measured.trial:
        outcomes = {**measured.trial.outcomes, "another": measured.trial.fields}
        said = {outcome: _returned_id(asked) for outcome, asked in outcomes.items() if asked and outcome != "skipped"}
        yield RuleSubject(measured.trial.outcomes["updated_missing_fields"], "the contact", said)


def _returned_id(asked: HttpExchange) -> str | None:
    id_ = (asked.payload or {}).get("id")
    return id_ if isinstance(id_, str) else None


def _memberships(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.membership:
        yield RuleSubject(measured.membership.exchange, "the first step", measured.membership)


# Violations.


def _check_accepted(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    return check_success(creation[1], _SUCCESS_STATUSES)


def _check_refused(lacking: tuple[str, HttpExchange]) -> Iterator[str]:
    member, asked = lacking
    if asked.payload is not None:
        yield f"has the status {shorten(asked.payload.get('status'))}, although {member} was left out"


def _check_outcome(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    wanted, asked = creation
    said = asked.payload or {}
    if said.get("status") != wanted:
        yield f"has the status {shorten(said.get('status'))}, not {wanted!r}"


def _check_result(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    outcome, asked = creation
    said = asked.payload
    if said is None or said.get("status") not in OUTCOMES:
        return
    id_, details = said.get("id", KeyError), said.get("details", KeyError)
    if outcome == "skipped":
        if id_ is not None or not (isinstance(details, str) and details.strip()):
            yield f"has the id {shorten(id_)} and details {shorten(details)}, not null and a string"
    elif not (isinstance(id_, str) and id_.startswith("contact_")) or details is not None:
        yield f"has the id {shorten(id_)} and details {shorten(details)}, not contact_... and null"


def _check_ids(ids: Mapping[str, str | None]) -> Iterator[str]:
    added = ids["added"]
    for outcome, id_ in ids.items():
        if None not in {added, id_} and (outcome == "another") == (id_ == added):
            yield f"has the id {shorten(id_)} ({outcome}), but {shorten(added)} when it was added"


def _check_membership_counts(counted: MembershipCounts) -> Iterator[str]:
    if counted.after_joining != counted.before + 1:
        yield f"counts {counted.after_joining} contacts after {counted.before}, although one was created for the campaign"
    if counted.after_other != counted.after_joining:
        yield f"counts {counted.after_other} contacts after {counted.after_joining}, although one was created for none"


CREATION_RULES: Final[tuple[StatedRule, ...]] = (
    StatedRule("A1", "a contact is created with the owner_key in the body", _first_creation, _check_accepted, writes=True),
    StatedRule(
        "C1", "a duplicate has the same e-mail address in the same workspace", _duplicate_creations, _check_outcome, writes=True
    ),
    StatedRule(
        "C2", "only a skipped contact has a null id, and only it has details", _trial_creations, _check_result, writes=True
    ),
    StatedRule("C2-added", "a new contact has the status added", _first_creation, _check_outcome, writes=True),
    StatedRule(
        "C2-id", "a contact has a unique id, which the responses to its duplicates repeat", _returned_ids, _check_ids, writes=True
    ),
    StatedRule(
        "C6",
        "a creation requires owner_key, workspace, email and upload_options",
        _incomplete_creations,
        _check_refused,
        writes=True,
    ),
    StatedRule(
        "C7",
        "a contact joins the campaign it is created with, and none if that is null",
        _memberships,
        _check_membership_counts,
        writes=True,
    ),
    StatedRule("C19", "the codes of all-fields are accepted at creation", _full_creations, _check_accepted, writes=True),
    StatedRule("E1", "a duplicate is not an error", _skipped_creations, _check_accepted, writes=True),
)
"""Stated rules about creating contacts."""
