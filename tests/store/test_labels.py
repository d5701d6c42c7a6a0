"""The status of a row is true on every path of a few faults, kills and late requests that two rows of a contact can meet."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, Final, get_args

import pytest
from support.crashes import Simulation, kill_everywhere
from support.scenarios import ROW, TROUBLE, UNCLEAR, Late, Scenario

from outreach_async import DuplicatePolicy
from outreach_async.fake import faults
from outreach_async.fake.faults import Fault

ANN: Final = "ann@a.example"
ROWS: Final = [
    {"email": ANN, ROW: "0", "city": "first", "custom_2": "first"},
    {"email": ANN, ROW: "1", "city": "second", "custom_3": "second"},
]
"""Two rows of a contact. Their fields overlap, so that the contact shows the order in which they were applied."""
DOUBTFUL: Final = (*range(300, 309), 408, 425, 499, *range(500, 512), 520, 598, 599)
"""Statuses after which the creation may have been carried out. The same holds for every other 3xx and 5xx status."""
FAULTS: Final = (
    *TROUBLE[:15],
    faults.status(422),
    *TROUBLE[-5:],
    *(Late(f"late {count}", commits=False, requests=count) for count in (1, 2, 9)),
)


def scene(*script: Fault, **options: Any) -> Scenario:
    return Scenario(rows=ROWS, script=script, **{"attempts": 2, "concurrency": 2, **options})


def wrong_after(folder: Path, given: Scenario) -> list[str]:
    folder.mkdir()
    one = Simulation(given, folder, "asyncio")
    one.finish(iter(()))
    return one.violations()


@pytest.mark.nightly
@pytest.mark.parametrize("before", [(), (ANN,)], ids=["new", "known"])
@pytest.mark.parametrize("duplicates", get_args(DuplicatePolicy))
def test_every_label_is_true_after_any_two_faults(duplicates: DuplicatePolicy, before: tuple[str, ...], folder: Path) -> None:
    for number, script in enumerate(product(FAULTS, repeat=2)):
        wrong = wrong_after(folder / str(number), scene(*script, duplicates=duplicates, before=before))
        assert wrong == [], script


@pytest.mark.nightly
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.label)
def test_every_label_is_true_after_a_fault_and_kills_at_any_point(fault: Fault, folder: Path) -> None:
    for number, duplicates in enumerate(get_args(DuplicatePolicy)):
        (place := folder / str(number)).mkdir()
        for one in kill_everywhere(scene(fault, duplicates=duplicates), place, "asyncio"):
            assert one.violations() == [], duplicates


@pytest.mark.parametrize("code", DOUBTFUL)
def test_a_status_that_may_follow_a_creation_leaves_every_label_true(code: int, folder: Path) -> None:
    for number, fault in enumerate([faults.status(code), faults.commit_then(faults.status(code))]):
        assert wrong_after(folder / str(number), scene(fault)) == []


@pytest.mark.parametrize("script", [*zip(UNCLEAR), *product(UNCLEAR, repeat=2)], ids=str)
def test_an_error_with_a_status_of_success_leaves_every_label_true(script: tuple[Fault, ...], folder: Path) -> None:
    for number, duplicates in enumerate(get_args(DuplicatePolicy)):
        assert wrong_after(folder / str(number), scene(*script, duplicates=duplicates)) == []


def test_merging_the_rows_of_a_contact_keeps_a_late_row_from_replacing_another(folder: Path) -> None:
    late = Late("late", commits=False, requests=1)
    one = Simulation(scene(late, duplicates="overwrite", repeats="coalesce"), folder, "asyncio")
    one.finish(iter(()))
    one.world.is_order_known = True
    assert one.violations() == []
