"""Texts that no spreadsheet runs, and that come back as they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async.spreadsheets import shield, unshield

SIGNS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
TEXTS = st.one_of(st.text(max_size=20), st.text(f"'{SIGNS}ab", max_size=6))


@given(TEXTS)
def test_what_is_shielded_is_no_formula_and_comes_back_as_it_was(text: str) -> None:
    assert not shield(text).startswith(tuple(SIGNS))
    assert unshield(shield(text)) == text


@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: f"U+{ord(sign):04X}")
def test_whatever_makes_a_spreadsheet_run_a_cell_is_shielded(sign: str) -> None:
    assert shield(f"{sign}1") == f"'{sign}1"


@pytest.mark.parametrize("text", ["", "ann@a.example", "'tis", " =1", "1+1"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert (shield(text), unshield(text)) == (text, text)
