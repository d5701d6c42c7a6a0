"""The arguments of the marker: accepted values, errors, and which marker takes precedence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from outreach_async.fake import Behaviour, faults
from outreach_async.pytest_plugin._marker import FakeConfig, FakeConfigError, read_behaviours, read_config
from outreach_async.testing import pairwise

WORLD = {"workspaces": [{"id": "space_1"}], "owner_keys": {"key_1": ["space_1"]}}
HERE = Path("/folder/of/the/test")
CLAMPING = Behaviour(past_end="clamp")


def order(*marks: dict[str, Any], folder: Path = HERE) -> FakeConfig:
    return read_config([pytest.mark.outreach(**mark).mark for mark in marks], folder, [CLAMPING])


def test_a_test_without_a_marker_gets_the_defaults() -> None:
    assert order() == FakeConfig(behaviours=(CLAMPING,))
    assert attrs.asdict(FakeConfig())["seed"] == 0


def test_arguments_of_the_closest_marker_take_precedence_one_by_one() -> None:
    config = order({"seed": 1}, {"seed": 2, "behaviour": "strict"}, {"behaviour": "lenient", "unfired": "ignore"})
    assert config == FakeConfig(seed=1, behaviours=(Behaviour.strict(),), unfired="ignore")


@pytest.mark.parametrize(
    ("argument", "behaviours"),
    [
        ("documented", (Behaviour(),)),
        ("strict", (Behaviour.strict(),)),
        ("lenient", (Behaviour.lenient(),)),
        ("pairwise", pairwise()),
        (CLAMPING, (CLAMPING,)),
        ({"past_end": "clamp"}, (CLAMPING,)),
    ],
    ids=["documented", "strict", "lenient", "pairwise", "value", "mapping"],
)
def test_a_behaviour_is_a_name_a_value_or_a_mapping_of_knobs(argument: Any, behaviours: tuple[Behaviour, ...]) -> None:
    assert order({"behaviour": argument}).behaviours == read_behaviours(argument, HERE) == behaviours


@pytest.mark.parametrize("as_given", [str, Path])
def test_a_behaviour_file_is_found_next_to_the_test(tmp_path: Path, as_given: Any) -> None:
    (tmp_path / "behaviour.toml").write_text('past_end = "clamp"\n', encoding="utf-8")
    assert read_behaviours(as_given("behaviour.toml"), tmp_path) == (CLAMPING,)


@pytest.mark.parametrize(
    "argument",
    [WORLD, json.dumps(WORLD), "world.json", Path("world.json"), "/absolute"],
    ids=["document", "text", "name", "path", "absolute"],
)
def test_a_world_is_a_document_a_string_or_a_file_next_to_the_test(argument: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "world.json", tmp_path / "absolute.json"):
        path.write_text(json.dumps(WORLD), encoding="utf-8")
    world = str(tmp_path / "absolute.json") if argument == "/absolute" else argument
    fake = order({"world": world}, folder=tmp_path).create_service(Behaviour())
    assert [space["id"] for space in json.loads(fake.dump())["workspaces"]] == ["space_1"]


def test_faults_are_scripted_in_order_and_one_needs_no_list() -> None:
    scripts = {"create_contact": [faults.status(503), faults.ok, faults.reset()], "list_fields": faults.hang()}
    fake = order({"faults": scripts}).create_service(Behaviour())
    assert fake.faults.unfired == ["create_contact: status(503)", "create_contact: reset()", "list_fields: hang()"]


NO_BEHAVIOUR = (
    "behaviour: expected 'documented', 'strict', 'lenient', 'pairwise', the path of a .toml file, a Behaviour or a mapping of "
    "knobs, got"
)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"sed": 1}, "the marker has no field 'sed'; did you mean seed?"),
    ({"clock": 1}, "the marker has no field 'clock'; expected one of seed, world, behaviour, faults, unfired"),
    ({"seed": "1"}, "seed: expected a whole number, got '1'"),
    ({"seed": True}, "seed: expected a whole number, got True"),
    ({"world": 7}, "world: expected the path of a world file, its content as a string, or the parsed document, got int"),
    ({"behaviour": "strickt"}, f"{NO_BEHAVIOUR} 'strickt'"),
    ({"behaviour": None}, f"{NO_BEHAVIOUR} None"),
    ({"behaviour": "absent.toml"}, "behaviour: [Errno 2] No such file or directory: '/folder/of/the/test/absent.toml'"),
    ({"behaviour": {"past_end": "fly"}}, "behaviour: Behaviour.past_end: expected one of 'empty', 'clamp', 'error', got 'fly'"),
    ({"behaviour": {"past_ends": "clamp"}}, "behaviour: Behaviour has no field 'past_ends'; did you mean past_end?"),
    ({"faults": [faults.ok]}, "faults: expected a mapping of operations to faults, got list"),
    ({"faults": {"create": faults.ok}}, "faults: operation: expected one of list_campaigns"),
    ({"faults": {"list_steps": faults.reset}}, "faults: expected a fault, got reset; pass a fault, such as reset(...)"),
    ({"unfired": "warn"}, "unfired: expected 'error' or 'ignore', got 'warn'"),
]


@pytest.mark.parametrize(("argument", "complaint"), WRONG, ids=[next(iter(argument)) for argument, _ in WRONG])
def test_an_invalid_argument_is_named_with_what_it_accepts(argument: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FakeConfigError) as caught:
        order(argument)
    assert str(caught.value).startswith(complaint)


def test_a_positional_argument_is_refused() -> None:
    with pytest.raises(FakeConfigError, match=r"^expected keyword arguments \(seed, .*\), got 'strict'; pass it by keyword$"):
        read_config([pytest.mark.outreach("strict").mark], HERE, [CLAMPING])


@pytest.mark.parametrize("world", ["absent.json", {"workspaces": 7}], ids=["absent", "malformed"])
def test_an_invalid_world_is_refused_by_name(world: Any) -> None:
    with pytest.raises(FakeConfigError, match=r"^world: (\[Errno 2\].*absent.json|\$.workspaces: expected `array`)"):
        order({"world": world}).create_service(Behaviour())
