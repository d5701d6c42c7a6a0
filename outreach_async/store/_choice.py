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
from outreach_async.bulk._rows import WHOLE_INPUT
from outreach_async.errors import InvalidRequest
from outreach_async.store.journal import Identity, JournalStore, journal_at
from outreach_async.store.journal._recorder import open_journal
from outreach_async.store.journal._records import Earlier
from outreach_async.store.ledger import Changed, Comparison, Ledger
from outreach_async.store.ledger._recorder import open_ledger
from outreach_async.transport._urls import service_address


@attrs.frozen(kw_only=True)
class StoreOptions:
    """The options of a run that are about its store; `create_many` documents them."""

    journal: str | os.PathLike[str] | JournalStore | None
    ledger: str | os.PathLike[str] | Ledger | None
    max_age: float | timedelta | None
    changed: Changed
    resume: bool
    earlier: Earlier
    spool: bool


def choose_store(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    """Validate the options. Return what opens the store of a run whose requests have the options `request`."""
    require_choice("earlier", options.earlier, get_args(Earlier))
    require_choice("changed", options.changed, get_args(Changed))
    return _choose_ledger(options, plan, request) or _choose_journal(options, plan, request)


def _identify(plan: Plan, options: Mapping[str, Any], **known: Any) -> Identity:
    address = service_address(plan.engine.transport)
    return Identity(str(plan.parser.targets.default.workspace), options, address=address, **known)


def _choose_journal(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    journal = options.journal
    if journal is None:
        if plan.repeats in WHOLE_INPUT:
            what = f"repeats: {plan.repeats!r} needs a journal, to store the whole input before the first row is sent"
            raise InvalidRequest(f"{what}; pass a journal")
        for name, needed in ("resume", options.resume), ("spool", options.spool), ("earlier", options.earlier == "unknown"):
            if needed:
                raise InvalidRequest(f'{name}: needs a journal, got None; pass journal="run.db"')
        return None
    if isinstance(journal, str | os.PathLike):
        journal = journal_at(journal)
    elif not isinstance(journal, JournalStore):
        raise InvalidRequest(f"journal: expected a path, URL or Journal, got {type_name(journal)}; pass the path of a file")
    recorded = {**request, "repeats": plan.repeats, "spool": options.spool}
    recorded |= {"blank": "clear"} if plan.blank == "clear" else {}
    known = {name: getattr(journal, name) for name in ("source", "fingerprint", "mapping")}
    how: dict[str, Any] = {"resume": options.resume, "earlier": options.earlier, "spool": options.spool, "repeats": plan.repeats}
    return partial(open_journal, journal, _identify(plan, recorded, **known), **how)


def _choose_ledger(options: StoreOptions, plan: Plan, request: Mapping[str, Any]) -> OpenRecorder | None:
    ledger = options.ledger
    if ledger is None:
        for name, given in ("max_age", options.max_age is not None), ("changed", options.changed == "ignore"):
            if given:
                raise InvalidRequest(f'{name}: needs a ledger, got None; pass ledger="contacts.ledger"')
        return None
    if isinstance(ledger, str | os.PathLike):
        ledger = Ledger(ledger)
    elif not isinstance(ledger, Ledger):
        raise InvalidRequest(f"ledger: expected a path, URL or Ledger, got {type_name(ledger)}; pass the path of a file")
    if is_url(ledger.location):
        open_objects(str(ledger.location), "ledger")  # refuses an unusable URL before the run starts; no request is sent
    fields = {name: value for name, value in request.items() if name != "campaign"}
    comparison = Comparison(plan.repeats, fields, options.max_age, ignore_changes=options.changed == "ignore")
    _require_ledger_options(options, plan)
    recorded = {**request, "repeats": plan.repeats, "timeout": plan.call_options.timeout}
    return partial(open_ledger, ledger, _identify(plan, recorded), comparison)


def _require_ledger_options(options: StoreOptions, plan: Plan) -> None:
    for name in "journal", "resume", "spool":
        if getattr(options, name):
            raise InvalidRequest(f"{name}: conflicts with ledger, which has a journal of its own; omit {name}")
    if options.earlier == "unknown":
        raise InvalidRequest("earlier: conflicts with ledger; to send every row again, pass max_age=0")
    if plan.repeats == "coalesce":
        raise InvalidRequest('repeats: "coalesce" conflicts with ledger; pass "serial", "last", "first" or "error"')
    if plan.repeats in WHOLE_INPUT and plan.source.read_again is None:
        raise InvalidRequest(
            f"repeats: with a ledger, {plan.repeats!r} needs rows that can be read twice, got an iterator or a stream; pass a"
            ' list or a data frame, or "serial"'
        )
    if plan.duplicates == "skip" and options.changed == "send":
        raise InvalidRequest(
            'duplicates: with a ledger and "skip", the service would ignore each changed row; pass duplicates="overwrite" or'
            ' "update_missing_fields", or changed="ignore" to send only new contacts'
        )
