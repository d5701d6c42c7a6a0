"""Columns of a file that name the campaign and the workspace of each row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from outreach_async import Target
from outreach_async._plumbing import TARGET_FIELDS, ListingNeeded, Targets
from outreach_async.errors import InvalidRequest
from outreach_async.importer._columns import Columns
from outreach_async.importer._known_exports import clean_name, find_ambiguous, fold_name
from outreach_async.importer._rows import Row, RowFinding
from outreach_async.importer._table import File
from outreach_async.models import RUN_TARGET, STANDARD_FIELDS

REASON: Final = "every value is known"  # the reason for the code of a column that was recognised by its values
_FIELD_NAMES: Final = frozenset(map(fold_name, ("email", *STANDARD_FIELDS)))
_MAX_VALUES: Final = 10_000  # maximum number of different values in a column that is recognised


async def recognise_targets(file: File, overrides: Mapping[str, str], targets: Targets) -> tuple[dict[str, str], dict[str, str]]:
    """Return codes for the columns with names such as "Campaign" whose values are all ids or known names.

    If a value is unknown, return no codes, and for the columns what is wrong with the first such value.
    """
    chosen = {clean_name(column): code for column, code in overrides.items()}
    places: dict[str, list[int]] = {code: [] for code in TARGET_FIELDS}
    for at, header in enumerate(file.headers):
        # The table of common names takes time to load, and most files need no name of it.
        meanings = None if fold_name(header) in _FIELD_NAMES else find_ambiguous(header)
        code = chosen.get(clean_name(header), meanings.may_be[0] if meanings else None)
        if code in places:
            places[code].append(at)
    found = {clean_name(file.headers[at]): code for code, several in places.items() for at in several}
    found = {column: code for column, code in found.items() if column not in chosen}
    if not found or any(len(several) > 1 for several in places.values()):
        return {}, {}
    columns = [next(iter(places[code]), None) for code in TARGET_FIELDS]
    seen: set[tuple[str, ...]] = set()
    for line, cells, fault in file.records():
        pair = tuple("" if at is None or at >= len(cells) else cells[at] for at in columns)
        if fault is not None or pair in seen:
            continue
        if len(seen) == _MAX_VALUES:
            return {}, {}
        seen.add(pair)
        try:
            await targets.apply(targets.find, Target(*pair))
        except InvalidRequest as error:
            if not targets.refuses(Target(*pair)):
                return {}, dict.fromkeys(found, f"line {line}: {str(error).partition('; ')[0]}; such rows are rejected")
    return found, {}


def named_target(row: Row) -> Target:
    """Return the target that a row names; `RUN_TARGET` itself if it names none."""
    members = row.members
    if "campaign" not in members and "workspace" not in members:
        return RUN_TARGET
    return Target(*map(members.get, TARGET_FIELDS))


async def find_unknown_targets(named: Iterable[Target], targets: Targets) -> dict[Target, RowFinding]:
    """Return a finding for each target that is unknown. The campaigns of the workspaces of rows are listed."""
    findings: dict[Target, RowFinding] = {}
    for each in {*named} - {RUN_TARGET}:
        try:
            await targets.apply(targets.find, each)
        except InvalidRequest as error:
            field = str(error).partition(":")[0]
            findings[each] = RowFinding(field, "error", field, f"an unknown {field}", str(error))
    return findings


def with_ids(rows: Iterable[Row], columns: Columns, targets: Targets) -> Iterable[Row]:
    """Replace the names of targets by ids. A row with an unknown target gets a fault, unless it is not sent anyway."""
    return (_with_ids(row, targets) for row in rows) if set(TARGET_FIELDS) & {*columns.codes} else rows


def _with_ids(row: Row, targets: Targets) -> Row:
    if row.fault is not None or (named := named_target(row)) is RUN_TARGET:
        return row
    try:
        found = targets.find(named)
    except ListingNeeded:  # the file has changed since it was checked; the run finds this out
        return row
    except InvalidRequest as error:
        return attrs.evolve(row, fault=str(error)) if row.excluded is None else row
    return attrs.evolve(row, members={**row.members, **found._asdict()})
