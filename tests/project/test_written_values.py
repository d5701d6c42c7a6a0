"""A converter reads what `to_dict` of any model, contact or report has written."""

from __future__ import annotations

import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.docs import example_world
from support.wire import CONVERTER, KINDS, build_model, names, unhurried, wire

import outreach_async
from outreach_async import CreatedContact, NewContact, Outcome, OutreachClient, ResponseInfo, Store
from outreach_async.audit import audit
from outreach_async.audit.history import Readings
from outreach_async.audit.plan import build_plan
from outreach_async.audit.reports.brief import build_brief
from outreach_async.fake import FakeTransport
from outreach_async.parts import ImportReport, merge_reports

INNER = {"ResponseModel", "ResponseWithInfo", "RowGroup", "SyncPage", "RowOutcome", "_ImportReport", "GateReport"}
"""Base classes, what only the command writes, and what leaves something out: the report of a gate its exclusions, and the
lines of a results file the row itself."""


def written() -> Iterator[type]:
    """Yield every attrs class of the package with a `to_dict`."""
    for module in pkgutil.walk_packages(outreach_async.__path__, "outreach_async."):
        if module.name.endswith("__main__") or "._cli" in module.name:
            continue
        values = vars(importlib.import_module(module.name)).values()
        yield from (each for each in values if isinstance(each, type) and hasattr(each, "to_dict") and attrs.has(each))


async def reports(folder: Path) -> list[Any]:
    """Return a report of each kind, and a finding."""
    fake = example_world()
    fake.add_workspace("space_2")
    rows = [{"email": "ann@company.example"}, {"email": "bo@acme.example", "workspace": "space_2"}, {"email": ""}]
    async with OutreachClient(transport=FakeTransport(fake), workspace="space_1", owner_key="key_1") as client:
        ledger = await client.contacts.create_many(rows, ledger=folder / "all.ledger", changed="ignore", stop_after_rejects=None)
        bulk = [ledger, await client.contacts.create_many(rows[:1], journal=folder / "run.db")]
        checked = await audit(client, ["space_1"], campaigns=True, readings=(readings := Readings()))
    counts: dict[str, Any] = {
        "rows": 3,
        "outcomes": dict.fromkeys(Outcome, 0) | {Outcome.ADDED: 3},
        "uncertain": 0,
        "seconds": 0.5,
    }
    part = ImportReport(parts=("00000",), fingerprints=("4f",), **counts)
    stored = [Store(folder / "run.db").report(), Store(folder / "all.ledger").contacts()]
    return [
        *bulk,
        *stored,
        checked,
        *checked.findings,
        build_brief(checked),
        build_brief(checked, checked, [planned := build_plan(readings, "space_1", at=checked.at)]),
        planned,
        part,
        merge_reports([part]),
    ]


async def test_every_report_is_read_back(tmp_path: Path) -> None:
    read = [*(getattr(kind, "__origin__", kind) for kind in KINDS.values()), NewContact, CreatedContact]
    for report in await reports(tmp_path):
        assert CONVERTER.unstructure(report) == report.to_dict()
        again = CONVERTER.structure(json.loads(json.dumps(report.to_dict())), type(report))
        assert type(again) is type(report)
        assert again.to_dict() == report.to_dict()
        read.append(type(report))
    assert {kind.__name__ for kind in written()} - {kind.__name__ for kind in read} <= INNER


@unhurried
@given(names.flatmap(lambda name: st.tuples(st.just(name), wire(name))))
def test_every_model_is_read_back(answer: tuple[str, Any]) -> None:
    model = build_model(*answer)
    assert CONVERTER.structure(json.loads(model.to_json()), KINDS[answer[0]]) == model
    assert CONVERTER.structure(CONVERTER.unstructure(model), KINDS[answer[0]]).extra == model.extra


@given(
    st.text(),
    st.sampled_from(Outcome),
    st.text() | st.none(),
    st.dictionaries(st.sampled_from(["city", "custom_7", "x"]), st.text() | st.none()),
)
def test_contacts_and_their_results_are_read_back(
    email: str, status: Outcome, details: str | None, fields: dict[str, Any]
) -> None:
    custom, extra = ({name: fields[name] for name in fields.keys() & {known}} for known in ("custom_7", "x"))
    contact = NewContact(email, city=fields.get("city", "Lyon"), custom=custom, extra=extra)
    assert CONVERTER.structure(json.loads(contact.to_json()), NewContact) == contact
    info, possible = ResponseInfo(200, {}), frozenset({status, Outcome.ADDED})
    created = CreatedContact(
        status=status, id=details, details=details, possible=possible, attempts=2, response=info, extra={"x": [1]}
    )
    again = CONVERTER.structure(json.loads(created.to_json()), CreatedContact)
    assert (again, again.extra) == (created, created.extra)


@pytest.mark.parametrize(
    ("kind", "value"), [(NewContact, {"email": 5}), (NewContact, []), (CreatedContact, {"possible": "added"})]
)
def test_what_was_not_written_so_is_refused(kind: Any, value: Any) -> None:
    with pytest.raises((ValueError, ExceptionGroup)):
        CONVERTER.structure(value, kind)
