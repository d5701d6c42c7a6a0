"""The pure parts of the journal: storing outcomes, merging rows and recognising file systems."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.journal import outcomes
from support.scenarios import SPACE, Scenario, creation, service
from tools.journal_child import outcome

from outreach_async import ContactOutcome, DuplicatePolicy, Outcome, Target, errors
from outreach_async.errors import InvalidRequest, OutreachError, RateLimited
from outreach_async.store import Identity
from outreach_async.store import _records as identity
from outreach_async.store._records import (
    MESSAGE_LIMIT,
    decode_outcome,
    decode_totals,
    encode_batch,
    require_checksums,
    to_json,
    to_storable,
)
from outreach_async.store._sqlite import file_system_type, read_mounts, require_local
from outreach_async.store._writer import merge_contacts

OWN = {Target(): 0}
NAMES = ["email", "city", "title", "custom_1"]


def numbered(found: ContactOutcome) -> dict[Target, int]:
    """Return a number for the outcome's target."""
    return {found.target: 0 if found.target == Target() else 7}


def through(found: ContactOutcome) -> ContactOutcome:
    """Store an outcome and read it back, without a database."""
    row, _, texts = stored(found)
    return decode_outcome(row, texts.get(row[6]), found.contact, found.target)


def stored(found: ContactOutcome) -> tuple[list[Any], int, dict[int, str]]:
    """Return the columns of an outcome, their checksum, and the texts of errors by their digests."""
    changes = {name: msgspec.json.decode(rows) for name, rows in encode_batch([found], numbered(found))}
    ((*row, crc),) = changes.get("outcomes") or changes["plain outcomes"]
    return [*row, *[None] * (9 - len(row))], crc, dict(changes.get("errors", ()))


def test_totals_without_a_later_outcome_are_read_as_none_of_it() -> None:
    totals = {"rows": 2, "outcomes": {"added": 2}, "uncertain": 0, "seconds": 0.5, "repeats": 0}
    assert decode_totals(totals).outcomes == dict.fromkeys(Outcome, 0) | {Outcome.ADDED: 2}


@pytest.mark.parametrize(
    "kind", [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, OutreachError)]
)
def test_an_error_is_read_back_as_the_same_class(kind: type[OutreachError]) -> None:
    error = through(outcome(1, error=kind("it failed", status_code=500))).error
    assert (type(error), str(error), error and error.status_code) == (kind, "it failed", 500)


def test_an_error_of_a_foreign_class_is_read_back_as_the_nearest_of_ours() -> None:
    class Teapot(RateLimited):
        pass

    assert type(through(outcome(1, error=Teapot("x"))).error) is RateLimited


def test_an_error_message_is_bounded_and_may_contain_surrogates() -> None:
    error = through(outcome(1, error=OutreachError("\ud800" + "x" * 1000))).error
    assert str(error) == "\\ud800" + "x" * (MESSAGE_LIMIT - 1)


@given(outcomes())
def test_checksums_do_not_depend_on_how_the_row_is_written_as_json(found: ContactOutcome) -> None:
    row, crc, _ = stored(found)
    require_checksums(msgspec.json.format(to_json([row]), indent=2), to_json([crc]))


@given(st.text(max_size=6), st.text(max_size=6))
def test_different_strings_stay_different_when_stored_without_nul(one: str, other: str) -> None:
    assert (to_storable(one) == to_storable(other)) == (one == other)
    assert "\0" not in to_storable(one)


members = st.dictionaries(st.sampled_from(NAMES[1:]), st.none() | st.sampled_from(["", " ", "a", "b", "c"])).map(
    lambda fields: {"email": "a@a.example", **fields}
)


@given(st.lists(members, min_size=1, max_size=6), st.sampled_from(get_args(DuplicatePolicy)), st.none() | members)
def test_a_merged_row_has_the_effect_of_its_rows_one_after_the_other(
    rows: list[dict[str, Any]], duplicates: DuplicatePolicy, before: dict[str, Any] | None
) -> None:
    given_rows = [{**row} for row in rows]
    merged = functools.reduce(lambda earlier, later: merge_contacts(earlier, later, duplicates), rows)
    assert rows == given_rows
    assert merged is not rows[0] or len(rows) == 1
    scene = Scenario(rows=rows, duplicates=duplicates)
    stored = []
    for sent in (rows, [merged]):
        fake = service(scene, lambda: 0.0)
        for members, option in [(before, "skip")] * (before is not None) + [(row, duplicates) for row in sent]:
            assert fake.handle(creation(members or {}, option)).status < 300
        contact = fake.contact(SPACE, "a@a.example")
        stored.append(contact and {name: value for name, value in contact["fields"].items() if value and value.strip()})
    assert stored[0] == stored[1] is not None


def test_a_number_does_not_count_as_blank() -> None:
    assert merge_contacts({"custom_1": 0}, {"custom_1": "x"}, "update_missing_fields") == {"custom_1": 0}


MOUNTS = """\
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 27 0:40 / /data rw - nfs4 server:/data rw
31 30 0:41 / /data/local\\040disk rw - xfs /dev/sdb rw
32 27 0:42 / /over rw shared:1 - ext4 /dev/sdc rw
33 32 0:43 / /over rw - fuse.sshfs host: rw
"""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/home/run.db", "ext4"),
        ("/data/run.db", "nfs4"),
        ("/database/run.db", "ext4"),
        ("/data/local disk/run.db", "xfs"),
        ("/data", "nfs4"),
        ("/over/run.db", "fuse.sshfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_the_last_innermost_mount(path: str, expected: str) -> None:
    assert file_system_type(path, MOUNTS) == expected


def test_without_a_list_of_mounts_no_file_system_is_refused(tmp_path: Path) -> None:
    assert read_mounts(tmp_path / "none") == ""
    assert file_system_type("/run.db", "") is None
    require_local("/run.db", "")
    assert file_system_type(str(tmp_path), read_mounts()) is not None


def test_only_network_file_systems_are_refused_by_name() -> None:
    for kind in ("ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "apfs", "fuseblk", "fuse.fuse-overlayfs"):
        require_local("/run.db", f"27 1 254:0 / / rw - {kind} x rw")
    for kind in ("nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "fuse.sshfs", "fuse.s3fs"):
        with pytest.raises(InvalidRequest, match=f"network file system .{kind}."):
            require_local("/run.db", f"27 1 254:0 / / rw - {kind} x rw")


options = st.dictionaries(st.sampled_from("abc"), st.none() | st.booleans() | st.text(max_size=2), max_size=3)
identities = st.builds(
    Identity,
    st.sampled_from(["space_1", "space_2"]),
    options,
    st.none() | st.text(max_size=2),
    st.sampled_from([None, "f", "g"]),
    address=st.sampled_from([None, "https://a.example", "https://b.example"]),
)


@given(identities, identities)
def test_only_the_same_run_can_be_resumed(recorded: Identity, passed: Identity) -> None:
    same = (
        (recorded.workspace, recorded.address) == (passed.workspace, passed.address)
        and all(recorded.options.get(name) == passed.options.get(name) for name in "abc")
        and (None in (recorded.fingerprint, passed.fingerprint) or recorded.fingerprint == passed.fingerprint)
    )
    if same:
        identity.require_same_run("run.db", passed, identity.encode_identity(recorded))
    else:
        with pytest.raises(InvalidRequest, match=r"run\.db belongs to another run"):
            identity.require_same_run("run.db", passed, identity.encode_identity(recorded))


def test_the_refusal_of_another_run_names_what_changed_but_no_key() -> None:
    before = Identity("space_1", {"campaign": None, "spool": True}, fingerprint="f", address="https://a.example")
    recorded = identity.encode_identity(before)
    passed = Identity("space_2", {"campaign": "key_secret", "spool": True}, fingerprint="g", address="https://b.example")
    with pytest.raises(InvalidRequest) as caught:
        identity.require_same_run("run.db", passed, recorded)
    message = str(caught.value)
    assert "base_url was 'https://a.example' and is now 'https://b.example'; workspace was 'space_1' and is now" in message
    assert "is now 'space_2'; campaign was null and is now 'key_...'" in message
    assert "its fingerprint differs" in message
    assert "spool" not in message
    assert "secret" not in message


def test_a_column_that_is_another_field_now_is_another_input() -> None:
    before = identity.encode_identity(Identity("space_1", {}, mapping={"Mail": "email", "Town": "city"}))
    identity.require_same_run("run.db", Identity("space_1", {}, mapping={"Mail": "email"}), before)
    with pytest.raises(InvalidRequest, match="the field of column 'Town' was 'city' and is now 'title'"):
        identity.require_same_run("run.db", Identity("space_1", {}, mapping={"Town": "title"}), before)
