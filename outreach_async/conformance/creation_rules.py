"""Stated rules about creating contacts: what is accepted, what is refused, and the response. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from outreach_async.conformance.calibration import Measured
from outreach_async.conformance.read_probes import Asked
from outreach_async.conformance.rule import Rule, Subject, no_success, shown
from outreach_async.conformance.target import OUTCOMES
from outreach_async.conformance.write_probes import Membership

_TAKEN: Final = (200, 201)


# Subjects of rules.


def _creations(measured: Measured) -> Iterator[Subject]:
    if measured.trial:
        for outcome, asked in measured.trial.outcomes.items():
            yield Subject(asked, "the response", (outcome, asked))


def _first_creation(measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _creations(measured) if subject.value[0] == "added")


def _duplicates(measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _creations(measured) if subject.value[0] != "added")


def _skipped(measured: Measured) -> Iterator[Subject]:
    return (subject for subject in _creations(measured) if subject.value[0] == "skipped")


def _fields(measured: Measured) -> Iterator[Subject]:
    if measured.trial and measured.trial.fields:
        yield Subject(measured.trial.fields, "the response", ("added", measured.trial.fields))


def _lacking(measured: Measured) -> Iterator[Subject]:
    if measured.trial:
        for member, asked in measured.trial.lacking.items():
            yield Subject(asked, "the response", (member, asked))


def _ids(measured: Measured) -> Iterator[Subject]:
    """Yield the ids returned for one contact, by outcome, and that of another contact, if there is one."""
    if measured.trial:
        outcomes = {**measured.trial.outcomes, "another": measured.trial.fields}
        said = {outcome: _id(asked) for outcome, asked in outcomes.items() if asked and outcome != "skipped"}
        yield Subject(measured.trial.outcomes["updated_missing_fields"], "the contact", said)


def _id(asked: Asked) -> str | None:
    id_ = (asked.said or {}).get("id")
    return id_ if isinstance(id_, str) else None


def _memberships(measured: Measured) -> Iterator[Subject]:
    if measured.membership:
        yield Subject(measured.membership.asked, "the first step", measured.membership)


# Violations.


def _not_taken(creation: tuple[str, Asked]) -> Iterator[str]:
    return no_success(creation[1], _TAKEN)


def _taken(lacking: tuple[str, Asked]) -> Iterator[str]:
    member, asked = lacking
    if asked.said is not None:
        yield f"has the status {shown(asked.said.get('status'))}, although {member} was left out"


def _no_outcome(creation: tuple[str, Asked]) -> Iterator[str]:
    wanted, asked = creation
    said = asked.said or {}
    if said.get("status") != wanted:
        yield f"has the status {shown(said.get('status'))}, not {wanted!r}"


def _bad_result(creation: tuple[str, Asked]) -> Iterator[str]:
    outcome, asked = creation
    said = asked.said
    if said is None or said.get("status") not in OUTCOMES:
        return
    id_, details = said.get("id", KeyError), said.get("details", KeyError)
    if outcome == "skipped":
        if id_ is not None or not (isinstance(details, str) and details.strip()):
            yield f"has the id {shown(id_)} and details {shown(details)}, not null and a string"
    elif not (isinstance(id_, str) and id_.startswith("contact_")) or details is not None:
        yield f"has the id {shown(id_)} and details {shown(details)}, not contact_... and null"


def _other_id(ids: Mapping[str, str | None]) -> Iterator[str]:
    added = ids["added"]
    for outcome, id_ in ids.items():
        if None not in {added, id_} and (outcome == "another") == (id_ == added):
            yield f"has the id {shown(id_)} ({outcome}), but {shown(added)} when it was added"


def _miscounted(counted: Membership) -> Iterator[str]:
    if counted.joined != counted.before + 1:
        yield f"counts {counted.joined} contacts after {counted.before}, although one was created for the campaign"
    if counted.alone != counted.joined:
        yield f"counts {counted.alone} contacts after {counted.joined}, although one was created for none"


CREATION_RULES: Final[tuple[Rule, ...]] = (
    Rule("A1", "a contact is created with the owner_key in the body", _first_creation, _not_taken, writes=True),
    Rule("C1", "a duplicate has the same e-mail address in the same workspace", _duplicates, _no_outcome, writes=True),
    Rule("C2", "only a skipped contact has a null id, and only it has details", _creations, _bad_result, writes=True),
    Rule("C2-added", "a new contact has the status added", _first_creation, _no_outcome, writes=True),
    Rule("C2-id", "a contact has a unique id, which the responses to its duplicates repeat", _ids, _other_id, writes=True),
    Rule("C6", "a creation requires owner_key, workspace, email and upload_options", _lacking, _taken, writes=True),
    Rule(
        "C7", "a contact joins the campaign it is created with, and none if that is null", _memberships, _miscounted, writes=True
    ),
    Rule("C19", "the codes of all-fields are accepted at creation", _fields, _not_taken, writes=True),
    Rule("E1", "a duplicate is not an error", _skipped, _not_taken, writes=True),
)
"""Stated rules about creating contacts."""
