"""Choose the store of a run by the options of `create_many`: a journal, a ledger, or none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, get_args

import attrs

from outreach_async._core.arguments import require_choice, type_name
from outreach_async._files.objects import is_url, open_objects
from outreach_async.bulk._pipeline import Plan
from outreach_async.bulk._ports import OpenRecorder
from outreach_async.bulk._rows import WHOLE_INPUT, require_fitting
from outreach_async.errors import InvalidRequest
from outreach_async.store._recorder import open_journal, open_ledger
from outreach_async.store._records import Earlier, Identity
from outreach_async.store._store import Changed, Comparison, Store
from outreach_async.transport._urls import service_address


@attrs.frozen(kw_only=True)
class StoreOptions:
    """The options of a run that are about its store; `create_many` documents them."""

    journal: str | os.PathLike[str] | Store | None
    ledger: str | os.PathLike[str] | Store | None
    max_age: float | timedelta | None
    changed: Changed
    resume: bool
    earlier: Earlier
    spool: bool


def choose_store(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    """Validate the options. Return what opens the store of a run whose requests have the options `request`."""
    require_choice("earlier", options.earlier, get_args(Earlier))
    require_choice("changed", options.changed, get_args(Changed))
    ledger = _choose_ledger(options, plan, request)
    require_fitting(**attrs.asdict(options, recurse=False), repeats=plan.repeats, duplicates=plan.duplicates)
    return ledger or _choose_journal(options, plan, request)


def _identify(plan: Plan, options: Mapping[str, Any], **known: Any) -> Identity:
    address = service_address(plan.engine.transport)
    return Identity(str(plan.parser.targets.default.workspace), options, address=address, **known)


def _to_store(given: str | os.PathLike[str] | Store, field: str) -> Store:
    if isinstance(given, Store):
        return given
    if not isinstance(given, str | os.PathLike):
        raise InvalidRequest(f"{field}: expected a path, URL or Store, got {type_name(given)}; pass the path of a file")
    if is_url(given):
        open_objects(str(given), field)  # refuses an unusable URL, and names the field; no request is sent
    return Store(given)


def _choose_journal(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    if (journal := options.journal) is None:
        return None
    journal = _to_store(journal, "journal")
    recorded = {**request, "repeats": plan.repeats, "spool": options.spool}
    recorded |= {"blank": "clear"} if plan.blank == "clear" else {}
    known = {name: getattr(journal, name) for name in ("source", "fingerprint", "mapping")}
    how: dict[str, Any] = {"resume": options.resume, "earlier": options.earlier, "spool": options.spool, "repeats": plan.repeats}
    return partial(open_journal, journal, _identify(plan, recorded, **known), **how)


def _choose_ledger(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    ledger = options.ledger
    if ledger is None:
        return None
    ledger = _to_store(ledger, "ledger")
    fields = {name: value for name, value in request.items() if name != "campaign"}
    comparison = Comparison(plan.repeats, fields, options.max_age, ignore_changes=options.changed == "ignore")
    if plan.repeats in WHOLE_INPUT and plan.source.read_again is None:
        raise InvalidRequest(
            f"repeats: with a ledger, {plan.repeats!r} needs rows that can be read twice, got an iterator or a stream; pass a"
            ' list or a data frame, or "serial"'
        )
    recorded = {**request, "repeats": plan.repeats, "timeout": plan.call_options.timeout}
    return partial(open_ledger, ledger, _identify(plan, recorded), comparison)
