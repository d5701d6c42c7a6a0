from __future__ import annotations

import json
import pickle
import random
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.audit import NOW, SHARED_FLEETS, MailboxService, Shown, mailbox, mailboxes, part_of, reading, report
from support.examples import WITHOUT_SHRINKING, scaled

from outreach_async.audit import AuditPart, Policy, Report, audit_part, merge
from outreach_async.client import OutreachClient
from outreach_async.errors import InvalidRequest, StatusError

KEY = b"pepper"


def as_json(found: Report) -> str:
    return json.dumps(found.to_dict())


def merged(fleet: Sequence[Shown], parts: Sequence[AuditPart]) -> Report:
    return merge(parts, workspaces=[each.reading.workspace for each in fleet])


def split(fleet: Sequence[Shown], draw: Callable[[int], int]) -> list[list[Shown]]:
    parts: dict[int, list[Shown]] = {}
    for each in fleet:
        parts.setdefault(draw(len(fleet)), []).append(each)
    return list(parts.values())


@pytest.mark.thorough
@given(SHARED_FLEETS, st.randoms(use_true_random=False))
@settings(max_examples=scaled(60), phases=WITHOUT_SHRINKING)
def test_merged_parts_give_the_report_of_one_audit(fleet: list[Shown], chance: random.Random) -> None:
    parts = [part_of(*shown) for shown in split(fleet, chance.randrange)]
    again = [part_of(*shown) for shown in split(fleet, chance.randrange)]
    every = parts + again
    chance.shuffle(every)
    read = list(fleet)
    chance.shuffle(read)

    whole = as_json(report(*fleet, read=read))

    assert as_json(merged(fleet, parts)) == whole
    assert as_json(merged(fleet, every[::-1])) == as_json(merged(fleet, every))
    assert as_json(merged(fleet, parts + parts[::-1])) == whole


def test_a_mailbox_of_two_parts_counts_as_its_first_workspace_lists_it() -> None:
    first = reading([mailbox(daily_limit=6000, spf=False)])
    second = reading([mailbox(daily_limit=10, spf=False)], workspace="space_2")
    parts = [part_of(second), part_of(first)]

    whole = merge(parts, workspaces=["space_1", "space_2"])
    reverse = merge(parts, workspaces=["space_2", "space_1"])

    assert [one.severity.value for one in whole.findings if one.rule == "OA101"] == ["critical", "critical"]
    assert [one.severity.value for one in reverse.findings if one.rule == "OA101"] == ["error", "error"]


def test_a_workspace_that_no_part_contains_is_unreadable() -> None:
    found = merge([part_of(reading(mailboxes(2)))], workspaces=["space_1", "space_2"])

    (finding,) = found.findings
    assert (finding.rule, finding.workspace, finding.message) == (
        "OA901", "space_2", "could not be read: no part contains this workspace",
    )  # fmt: skip
    assert (found.mailboxes, found.unreadable, found.denied, found.exit_code()) == (2, ["space_2"], False, 3)


def test_of_two_readings_the_more_complete_one_counts() -> None:
    failed = part_of(reading(mailboxes(1), error=StatusError("no", status_code=500)))
    done = part_of(reading(mailboxes(3)))
    for parts in ([failed, done], [done, failed]):
        assert (merge(parts, workspaces=["space_1"]).mailboxes, merge(parts, workspaces=["space_1"]).incomplete) == (3, False)


OTHER_POLICY = Policy.of({"off": ["OA101"]})


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (part_of(reading([], workspace="space_2"), now=NOW + 1), f"expected parts with at {NOW}.0, got {NOW + 1}.0 for space_2"),
        (
            part_of(reading([], workspace="space_2"), key=b"salt"),
            "expected parts with salt .*, got .* for space_2; use the same `salt` for all parts",
        ),
        (
            part_of(reading([], workspace="space_2"), policy=OTHER_POLICY),
            "with policy .*, got .* for space_2; use the same `policy` for all parts",
        ),
        (part_of(reading([], workspace="space_9")), "only workspaces of the audit, got 'space_9'; add this id"),
        (
            attrs.evolve(part_of(), workspaces=tuple(attrs.evolve(each, data=b"?") for each in part_of(reading([])).workspaces)),
            "space_1: damaged",
        ),
    ],
)
def test_parts_that_do_not_belong_together_are_refused(other: AuditPart, message: str) -> None:
    parts = [part_of(reading([])), other] if "damaged" not in message else [other]
    with pytest.raises(InvalidRequest, match=message):
        merge(parts, workspaces=["space_1", "space_2"])


def test_parts_of_another_policy_than_the_one_of_the_merge_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="parts: expected at least one part, got none"):
        merge([], workspaces=["space_1"])
    with pytest.raises(InvalidRequest, match=r"with policy .* for space_1"):
        merge([part_of(reading([]))], workspaces=["space_1"], policy=OTHER_POLICY)
    assert merge([part_of(reading([]), policy=OTHER_POLICY)], workspaces=["space_1"], policy=OTHER_POLICY).policy.off == ["OA101"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"salt": ""}, "salt: expected a non-empty string"),
        ({"salt": b"pepper"}, "salt: expected a non-empty string"),
        ({"at": True}, "at: expected a time in Unix seconds, got bool"),
        ({"at": float("nan")}, "at: expected a time in Unix seconds"),
        ({"at": "now"}, "at: expected a time in Unix seconds, got str"),
    ],
)
async def test_invalid_options_of_a_part_are_refused(options: dict[str, Any], message: str) -> None:
    client = OutreachClient(transport=MailboxService({}))
    with pytest.raises(InvalidRequest, match=message):
        await audit_part(client, ["space_1"], **{"at": NOW, "salt": "pepper", **options})


@pytest.mark.parametrize("name", ["names", "clock", "dispaly"])
async def test_an_option_that_a_part_does_not_have_is_an_error(name: str) -> None:
    options: dict[str, Any] = {"at": NOW, "salt": "pepper", name: None}
    with pytest.raises(TypeError, match=f"argument '{name}'"):
        await audit_part(OutreachClient(transport=MailboxService({})), ["space_1"], **options)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "part: expected version 1, got list"),
        ({"version": 2}, "part: expected version 1, got version 2"),
        ({"version": 1, "at": "now"}, r"part: .*; pass the output of `AuditPart.to_dict`"),
    ],
)
def test_json_that_is_no_part_is_refused(values: object, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        AuditPart.from_dict(values)


def test_a_part_does_not_show_healthy_addresses_salt_or_data() -> None:
    part = part_of(reading([*mailboxes(3), mailbox(id="mailbox_bad", email="bad@one.example", spf=False)]))
    text = repr(part) + json.dumps(part.to_dict()) + repr([pickle.dumps(each.data) for each in part.workspaces])
    assert "m1@one.example" not in text
    assert "pepper" not in text
    assert "data=" not in repr(part)


def test_a_part_takes_less_than_40_bytes_per_healthy_mailbox() -> None:
    boxes = [mailbox(id=f"mailbox_{n}", email=f"a{n}@d{n // 4}.example", sent_30days=n % 700) for n in range(4_000)]
    assert len(pickle.dumps(part_of(reading(boxes)))) < 40 * 4_000
