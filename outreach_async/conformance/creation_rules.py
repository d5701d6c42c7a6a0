"""The interface's rules about creating contacts: which requests are accepted or refused, and what the responses contain."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Final

from outreach_async.conformance.calibration import Measurement
from outreach_async.conformance.rule import RuleSubject, StatedRule, check_success, shorten
from outreach_async.conformance.survey import HttpExchange
from outreach_async.conformance.target import OUTCOMES
from outreach_async.conformance.write_probes import MembershipCounts

# Subjects of rules.


def _trial_creations(measured: Measurement, outcomes: Collection[str] = OUTCOMES) -> Iterator[RuleSubject]:
    if measured.trial:
        for outcome in outcomes:
            exchange = measured.trial.outcomes[outcome]
            yield RuleSubject(exchange, "the response", (outcome, exchange))


_first_creation = partial(_trial_creations, outcomes=["added"])
_duplicate_creations = partial(_trial_creations, outcomes=OUTCOMES[1:])
_skipped_creations = partial(_trial_creations, outcomes=["skipped"])


def _full_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial and measured.trial.fields:
        yield RuleSubject(measured.trial.fields, "the response", ("added", measured.trial.fields))


def _incomplete_creations(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.trial:
        for member, exchange in measured.trial.incomplete.items():
            yield RuleSubject(exchange, "the response", (member, exchange))


def _returned_ids(measured: Measurement) -> Iterator[RuleSubject]:
    """Yield the ids returned for the same contact, by outcome. The key `another` holds the id of another contact."""
    if measured.trial:
        outcomes = {**measured.trial.outcomes, "another": measured.trial.fields}
        ids = {outcome: _returned_id(exchange) for outcome, exchange in outcomes.items() if exchange and outcome != "skipped"}
        yield RuleSubject(measured.trial.outcomes["updated_missing_fields"], "the contact", ids)


def _returned_id(exchange: HttpExchange) -> str | None:
    id_ = (exchange.payload or {}).get("id")
    return id_ if isinstance(id_, str) else None


def _memberships(measured: Measurement) -> Iterator[RuleSubject]:
    if measured.membership:
        yield RuleSubject(measured.membership.exchange, "the first step", measured.membership)


# Violations.


def _check_accepted(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    return check_success(creation[1], (200, 201))


def _check_refused(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    member, exchange = creation
    if exchange.payload is not None:
        yield f"has the status {shorten(exchange.payload.get('status'))}, although the request omits {member}"


def _check_outcome(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    expected, exchange = creation
    status = (exchange.payload or {}).get("status")
    if status != expected:
        yield f"has the status {shorten(status)}, not {expected!r}"


def _check_result(creation: tuple[str, HttpExchange]) -> Iterator[str]:
    outcome, exchange = creation
    document = exchange.payload
    if document is None or document.get("status") not in OUTCOMES:
        return
    id_, details = document.get("id", KeyError), document.get("details", KeyError)
    if outcome == "skipped":
        if id_ is not None or not (isinstance(details, str) and details.strip()):
            yield f"has the id {shorten(id_)} and details {shorten(details)}, not null and a string"
    elif not (isinstance(id_, str) and id_.startswith("contact_")) or details is not None:
        yield f"has the id {shorten(id_)} and details {shorten(details)}, not contact_... and null"


def _check_ids(ids: Mapping[str, str | None]) -> Iterator[str]:
    added = ids["added"]
    for outcome, id_ in ids.items():
        if None not in {added, id_} and (outcome == "another") == (id_ == added):
            whose = "of another contact" if outcome == "another" else f"in the response with the status {outcome}"
            yield f"has the id {shorten(added)} when it is added, and the id {whose} is {shorten(id_)}"


def _check_memberships(counts: MembershipCounts) -> Iterator[str]:
    if counts.after_joining != counts.before + 1:
        yield f"counts {counts.after_joining} contacts, not {counts.before + 1}, after a contact was created with the campaign"
    if counts.after_other != counts.after_joining:
        yield f"counts {counts.after_other} contacts, not {counts.after_joining}, after a contact was created without a campaign"


CREATION_RULES: Final[tuple[StatedRule, ...]] = (
    StatedRule("A1", "a contact is created with the owner_key in the body", _first_creation, _check_accepted),
    StatedRule("C1", "a duplicate has the same e-mail address in the same workspace", _duplicate_creations, _check_outcome),
    StatedRule("C2", "only a skipped contact has a null id and details", _trial_creations, _check_result),
    StatedRule("C2-added", "a new contact has the status added", _first_creation, _check_outcome),
    StatedRule("C2-id", "a contact has a unique id, which the responses to its duplicates repeat", _returned_ids, _check_ids),
    StatedRule("C6", "a request must have owner_key, workspace, email and upload_options", _incomplete_creations, _check_refused),
    StatedRule(
        "C7", "a contact joins the campaign that it is created with; null means no campaign", _memberships, _check_memberships
    ),
    StatedRule("C19", "contacts can be created with the fields that all-fields lists", _full_creations, _check_accepted),
    StatedRule("E1", "a duplicate is not an error", _skipped_creations, _check_accepted),
)
"""The interface's rules about creating contacts. These rules can be observed only by creating contacts."""
