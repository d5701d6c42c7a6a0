"""The runner of the mutants, and their list: that it is up to date. Whether each is killed, `python tests/mutants.py` says."""

from __future__ import annotations

import ast
from functools import cache

import pytest
from mutants import ROOT, Mutant, chosen, report
from mutants_listed import MUTANTS

KILLED = "test_fake_paging.py::test_p1_a_page_says_what_it_holds_of_how_much"
REAL = Mutant(
    "pages are counted one too many",
    "fake/paging.py",
    "pages = -(-total // query.display)",
    "pages = -(-total // query.display) + 1",
    (KILLED,),
)
HARMLESS = Mutant("nothing is wrong", "fake/paging.py", "last = max(pages - 1, 0)", "last = max(0, pages - 1)", (KILLED,))


def test_a_mutant_that_a_test_notices_is_killed_and_one_that_no_test_notices_survives(
    capfd: pytest.CaptureFixture[str],
) -> None:
    code = report([REAL, HARMLESS], [REAL, HARMLESS], copies=1)

    first, second, total = capfd.readouterr().out.splitlines()
    assert (first.split()[1], second.split()[1], total) == ("killed", "SURVIVED", "1 of 2 mutants killed")
    assert code == 1


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_listed_mutant_still_applies_and_its_tests_are_there(mutant: Mutant) -> None:
    text = (ROOT / "outreach_async" / mutant.file).read_text(encoding="utf-8")

    ast.parse(mutant.applied(text))
    assert mutant.tests
    for test in mutant.tests:
        file, _, name = test.partition("::")
        assert not name or name in defined(file), test


@cache
def defined(file: str) -> set[str]:
    """Return what a file of tests defines."""
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return {getattr(node, "name", "") for node in ast.walk(tree)}


def test_there_are_enough_mutants_and_no_two_are_the_same() -> None:
    assert len(MUTANTS) >= 25
    assert len({(mutant.file, mutant.old, mutant.new) for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_whose_place_has_changed_is_stale() -> None:
    with pytest.raises(ValueError, match="stands 0 times"):
        Mutant("x", "fake/paging.py", "no such text", "", (KILLED,)).applied("some text")


def test_mutants_are_chosen_by_number_or_by_words() -> None:
    assert chosen(MUTANTS, []) == list(MUTANTS)
    assert chosen(MUTANTS, ["2", "3"]) == list(MUTANTS[1:3])
    assert [mutant.name for mutant in chosen(MUTANTS, ["journal"])] == [m.name for m in MUTANTS if "journal" in m.name]
