"""The findings of an audit, which are built when they are accessed."""

from __future__ import annotations

import json
import pickle
import zlib
from collections.abc import Callable
from typing import Any

import attrs
import pandas as pd
import polars as pl
import pytest
from support.audit import mailbox, mailboxes, part_of, reading, report
from support.audit_reports import finding, fleet
from support.campaigns import row

from outreach_async.audit import Report, merge
from outreach_async.audit._flagged import FindingList, MailboxFindings
from outreach_async.audit._totals import GroupTotals
from outreach_async.errors import InvalidRequest


def test_findings_are_accessed_like_a_list() -> None:
    found = fleet(60, sick=0.8).findings
    known = list(found)

    assert isinstance(found, FindingList)
    assert len(known) == len(found) > 10
    assert found == known == found
    assert found != known[1:]
    assert found != "text"
    assert [found[at] for at in range(-len(known), len(known))] == 2 * known
    assert (found[2:5], found[::-7], repr(found)) == (known[2:5], known[::-7], repr(known))
    with pytest.raises(IndexError):
        found[len(known)]


def test_a_report_is_copied_by_pickle_and_json() -> None:
    found = fleet(60, sick=0.8)
    assert pickle.loads(pickle.dumps(found)) == found  # noqa: S301 - our own bytes
    assert Report.from_dict(json.loads(json.dumps(found.to_dict()))) == found


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_data_frames_of_a_report_have_a_row_an_object_and_a_column_a_field(frame: Callable[[Any], Any]) -> None:
    found = fleet(12, sick=0.8)
    for rows in (found.findings, list(found.findings), found.rows, found.groups, [row(), row()]):
        made = frame(rows)
        assert made.shape == (len(rows), len(attrs.fields(type(rows[0]))))
        assert list(made.columns) == [field.name for field in attrs.fields(type(rows[0]))]
    assert list(frame(found.findings)["email"]) == [each.email for each in found.findings]


def test_many_findings_are_not_kept() -> None:
    found = FindingList(MailboxFindings((), (), ()))
    found.extend([finding()] * 20_001)
    assert sum(each.rule == "OA101" for each in found) == 20_001
    assert iter(found) is not iter(found)


def test_an_address_that_is_no_valid_text_is_kept() -> None:
    boxes = [mailbox(id=f"mailbox_{at}", email=email, spf=False) for at, email in enumerate(["a@b", "\ud800@b", "c@b"])]
    assert [each.email for each in report(reading(boxes)).findings] == ["a@b", "\ud800@b", "c@b"]


def test_sums_have_an_upper_limit() -> None:
    totals = GroupTotals()
    for _ in range(2):
        totals.add("one.example", 2**63 - 1, 2**63 - 1, 0)
    assert (totals["one.example"].sent_30days, totals["one.example"].daily_limit) == ((2**63 - 1) / 1000,) * 2


@pytest.mark.parametrize("changed", [{"row": 99}, {"rule": 99}])
def test_a_part_whose_findings_refer_to_nothing_is_damaged(changed: dict[str, int]) -> None:
    part = part_of(reading(mailboxes(2, spf=False)))
    content = json.loads(zlib.decompress(part.workspaces[0].data))
    row, *about, ((rule, *violation),) = content["flagged"][0]
    content["flagged"][0] = [changed.get("row", row), *about, [[changed.get("rule", rule), *violation]]]
    space = attrs.evolve(part.workspaces[0], data=zlib.compress(json.dumps(content).encode()))

    with pytest.raises(InvalidRequest, match="space_1: damaged"):
        merge([attrs.evolve(part, workspaces=(space,))], workspaces=["space_1"])
