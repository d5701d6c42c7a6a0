"""Validates the options of `create_many` and builds the run."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, Final, get_args

import attrs

from outreach_async.bulk.journal import Identity, Journal
from outreach_async.bulk.journal.values import Earlier
from outreach_async.bulk.order import Order
from outreach_async.bulk.pipeline import Plan
from outreach_async.bulk.record import Keeping
from outreach_async.bulk.rejects import SameReason
from outreach_async.bulk.repeats import WHOLE_INPUT, Recent, Repeats
from outreach_async.bulk.rows import Reader
from outreach_async.bulk.run import BulkRun
from outreach_async.bulk.source import Source
from outreach_async.calls import Terms
from outreach_async.checks import kind, require_number, require_seconds, shown
from outreach_async.engine import Engine
from outreach_async.errors import InvalidRequest
from outreach_async.operations import Creation

MAX_OUTAGE: Final = 900.0
"""Seconds that a run waits for a service that is down, unless `max_outage` says otherwise."""


@attrs.frozen(kw_only=True)
class BulkOptions:
    """The bulk options; `create_many` documents them."""

    concurrency: int
    order: Order
    repeats: Repeats
    journal: str | os.PathLike[str] | Journal | None
    resume: bool
    earlier: Earlier
    spool: bool
    total: int | None
    stop_after_rejects: int | None
    max_outage: float


def bulk_run(
    engine: Engine,
    creation: Creation,
    terms: Terms,
    rows: Iterable[Any] | AsyncIterable[Any],
    *,
    options: BulkOptions,
    identity: Mapping[str, Any],
) -> BulkRun:
    """Build the run.

    Args:
        engine: Sends requests.
        creation: The options of every contact request.
        terms: Timeout and deadline of a row.
        rows: The input.
        options: The bulk options.
        identity: Workspace and request options, without the owner key: a journal is resumed only with the same values.

    Raises:
        InvalidRequest: An option is invalid.
    """
    workers = min(require_number("concurrency", options.concurrency, least=1), engine.max_in_flight)
    _require_choice("order", options.order, get_args(Order))
    _require_choice("repeats", options.repeats, get_args(Repeats))
    _require_choice("earlier", options.earlier, get_args(Earlier))
    keeping = _keeping(options, identity)
    source = Source(rows)
    plan = Plan(
        engine=engine,
        creation=creation,
        terms=terms,
        source=source,
        workers=workers,
        order=options.order,
        rejects=SameReason(_number_or_none("stop_after_rejects", options.stop_after_rejects, least=1)),
        reader=Reader(creation, Recent() if options.repeats == "error" else None),
        max_outage=require_seconds("max_outage", options.max_outage) or MAX_OUTAGE,
        total=source.total if options.total is None else _number_or_none("total", options.total, least=0),
    )
    return BulkRun(plan, keeping)


def _require_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        listed = f"{', '.join(map(repr, choices[:-1]))} or {choices[-1]!r}"
        raise InvalidRequest(f"{name}: expected {listed}, got {shown(value)}; pass one of them")


def _number_or_none(name: str, value: int | None, *, least: int) -> int | None:
    return None if value is None else require_number(name, value, least=least)


def _keeping(options: BulkOptions, identity: Mapping[str, Any]) -> Keeping | None:
    if options.journal is None:
        _refuse_without_journal(options)
        return None
    journal = options.journal
    if not isinstance(journal, Journal):
        if not isinstance(journal, str | os.PathLike):
            raise InvalidRequest(f"journal: expected a path or a Journal, got {kind(journal)}; pass the path of a file")
        journal = Journal(journal)
    told = {"workspace": identity["workspace"], "options": {**identity["options"], "repeats": options.repeats}}
    known = Identity(**told, source=journal.source, fingerprint=journal.fingerprint, mapping=journal.mapping)
    return Keeping(journal, known, options.resume, options.spool, options.repeats, options.earlier)


def _refuse_without_journal(options: BulkOptions) -> None:
    if options.repeats in WHOLE_INPUT:
        raise InvalidRequest(
            f"repeats: {options.repeats!r} needs a journal, to store the whole input before the first row is sent; pass a journal"
        )
    for name in ("resume", "spool"):
        if getattr(options, name):
            raise InvalidRequest(f'{name}: expected a journal, got None; pass journal="run.db"')
    if options.earlier == "unknown":
        raise InvalidRequest('earlier: "unknown" needs a journal, got None; pass journal="run.db"')
