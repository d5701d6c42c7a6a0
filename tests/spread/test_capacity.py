"""The capacity table of the guide is computed, and its model of journals agrees with imports in virtual time."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.capacity import (
    HOST_CPUS,
    OBJECT_BYTES,
    PATIENCE,
    ROW_BYTES,
    ROW_CPU,
    count_objects,
    make_table,
    plan_capacity,
    simulate_objects,
)

from outreach_async import spread


def test_the_table_in_the_guide_is_the_computed_one() -> None:
    assert textwrap.indent("\n".join(make_table()), "    ") in (spread.__doc__ or "")


@pytest.mark.thorough
@pytest.mark.parametrize(("rows", "rate"), [(100, 1.0), (500, 10.0), (2_000, 100.0)])
def test_a_journal_has_about_as_many_objects_and_bytes_as_the_model_says(rows: int, rate: float) -> None:
    objects, size = simulate_objects(rows, rate)
    assert objects == pytest.approx(count_objects(rows, rate), rel=0.1)
    assert size == pytest.approx(objects * OBJECT_BYTES + rows * ROW_BYTES, rel=0.1)


@given(st.integers(1, 10**8), st.integers(1, 10_000), st.floats(0.1, 10_000))
def test_an_import_takes_a_day_or_uses_the_permitted_rate(contacts: int, workspaces: int, permitted: float) -> None:
    need = plan_capacity(contacts, workspaces, permitted)
    rate = contacts / need.hours / 3600
    assert rate <= workspaces * permitted * 1.001
    assert rate * ROW_CPU <= need.hosts * HOST_CPUS
    assert need.hours * 3600 <= PATIENCE * 1.001 or rate >= workspaces * permitted * 0.999
