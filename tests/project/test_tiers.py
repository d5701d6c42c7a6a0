"""The default tier: which runs of a test it leaves out, and what a test in it may cost."""

from __future__ import annotations

import pytest
from support.tiers import names_tests, repeated_on_other_loops


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        (["asyncio", "trio"], ["asyncio", "trio"]),
        (["a-asyncio", "a-trio", "b-asyncio", "b-trio", "c-asyncio", "c-trio"], ["a-asyncio", "b-trio", "c-asyncio"]),
        (["asyncio-a", "asyncio-b", "trio-a", "trio-b"], ["asyncio-a", "trio-b"]),
        (["a-asyncio", "b-asyncio", "b-trio"], ["a-asyncio", "b-trio"]),
        (["a-trio", "b-asyncio"], ["a-trio", "b-asyncio"]),
        (["a-asyncio", "a-trio", "a-uvloop", "b-asyncio", "b-trio"], ["a-asyncio", "a-trio", "a-uvloop", "b-asyncio", "b-trio"]),
        (["no loop", "another"], ["no loop", "another"]),
    ],
    ids=["alone", "sets", "loop first", "loop missing", "one loop each", "few sets", "no loop"],
)
def test_each_parameter_set_runs_on_one_loop_in_turn(parameters: list[str], kept: list[str]) -> None:
    tests = [f"tests/test_a.py::test_a[{each}]" for each in parameters]
    left_out = set(repeated_on_other_loops([*tests, "tests/test_a.py::test_b"]))
    assert [each for each in parameters if f"tests/test_a.py::test_a[{each}]" not in left_out] == kept
    assert left_out < set(tests)


@pytest.mark.parametrize(
    ("arguments", "keyword", "named"),
    [
        (["tests"], "", False),
        (["tests", "tests/bulk"], "", False),
        (["tests/store/test_kills.py"], "", True),
        (["tests", "tests/store/test_kills.py::test_a"], "", True),
        (["tests"], "kills", True),
    ],
)
def test_a_file_a_test_or_a_keyword_selects_thorough_tests_too(arguments: list[str], keyword: str, *, named: bool) -> None:
    assert names_tests(arguments, keyword) == named
