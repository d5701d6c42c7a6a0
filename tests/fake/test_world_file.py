from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.fake import KEY, SPACE, create, document, get, page, refusing, small_world, steps

from outreach_async.fake import Behaviour, FakeService, WorldError

BY_HAND: dict[str, Any] = {
    "version": 1,
    "now": "2026-05-01T00:00:00Z",
    "workspaces": [
        {
            "id": "space_1",
            "custom_fields": {"custom_1": "Plan"},
            "mailboxes": [{"email": "ada@north.example", "spf": False}, {}],
            "campaigns": [{"id": "camp_1", "name": "Spring", "status": "live", "steps": ["A|B", {"templates": ["A"]}]}],
            "contacts": [
                {"email": "bo@acme.example", "fields": {"city": "Lyon"}, "campaigns": ["camp_1"]},
                {"email": "cy@acme.example"},
            ],
        },
        {},
    ],
    "owner_keys": {"key_1": ["space_1"]},
}


def rich_world() -> FakeService:
    """A world that uses every feature."""
    fake = small_world(overwrite_blank="store")
    fake.advance(hours=5.5)
    space = fake.add_workspace(custom_fields={"custom_7": "É"}, extra_fields={"linkedin": "LinkedIn"})
    fake.add_owner_key(space, SPACE)
    boxes = fake.add_mailboxes(space, 5, trouble=0.5)
    fake.add_mailbox(SPACE, age="old", created_at=3, last_activity="?", opened_14days=101)
    documents: list[dict[str, Any]] = [
        {"sent": 40, "templates": "A|PER"},
        {"sent": 9, "wait_time": 1},
        {"templates": [{"new_thread": True, "body_text": None}]},
    ]
    camp = fake.add_campaign(space, mailboxes=boxes[:3], steps=documents)
    fake.add_campaign(space, steps=["A"], last_activity=None, contacts=3)
    fake.add_contacts(space, 4, campaign=camp)
    create(fake, "dee@b.co", first_name="D", campaign="camp_1")
    fake.advance(hours=1)
    create(fake, "dee@b.co", first_name=None, duplicates="overwrite", campaign="camp_2")
    return fake


def everything(fake: FakeService) -> list[Any]:
    spaces = [space["id"] for space in json.loads(fake.dump())["workspaces"]]
    lists = [page(fake, path, workspace=space).body for path in ("/campaigns", "/mailboxes") for space in spaces]
    return [
        *lists,
        *(get(fake, f"/workspaces/{space}/all-fields").body for space in spaces),
        *(fake.contacts(space) for space in spaces),
    ]


def test_a_dumped_and_loaded_world_is_the_same() -> None:
    fake, other = rich_world(), FakeService(seed=0)
    other.load(fake.dump())

    assert other.dump() == fake.dump()
    assert everything(other) == everything(fake)
    assert other.now == fake.now
    # Objects that are generated next are the same, too.
    assert [other.add_workspace(), other.add_mailboxes(SPACE, 2)] == [fake.add_workspace(), fake.add_mailboxes(SPACE, 2)]
    assert create(other)["id"] == create(fake)["id"]


def test_a_world_may_be_a_string_a_path_or_a_document(tmp_path: Path) -> None:
    dumped = rich_world().dump()
    file = tmp_path / "world.json"
    file.write_text(dumped, encoding="utf-8")
    loaded = []
    for source in (dumped, "\n " + dumped, file, str(file), json.loads(dumped)):
        fake = FakeService()
        fake.load(source)
        loaded.append(fake.dump())

    assert loaded == [dumped] * 5


def test_a_file_that_is_not_utf_8_is_a_world_error(tmp_path: Path) -> None:
    file = tmp_path / "world.json"
    file.write_bytes('{"é": 1}'.encode("latin-1"))
    with pytest.raises(WorldError, match=r"^\$: byte 3 is not valid UTF-8; save the file as UTF-8$"):
        FakeService().load(file)


def test_a_world_may_be_written_by_hand_with_only_the_essentials() -> None:
    fake = FakeService()
    fake.load(BY_HAND)
    mailboxes = document(page(fake, "/mailboxes"))["data"]

    assert [(box["spf"], box["campaigns"]) for box in mailboxes] == [(False, 0), (True, 0)]
    assert mailboxes[0]["email"] == "ada@north.example"
    assert [step["left_to_send"] for step in steps(fake, "camp_1")["data"]] == [1, 1]
    assert [(contact["email"], contact["fields"]) for contact in fake.contacts(SPACE)] == [
        ("bo@acme.example", {"city": "Lyon"}),
        ("cy@acme.example", {}),
    ]
    assert create(fake, owner_key=KEY, custom_1="gold")["status"] == "added"
    assert len(json.loads(fake.dump())["workspaces"]) == 2


BAD: list[tuple[Any, str]] = [
    ("{", r"\$: Expecting property name"),
    ('{"workspaces": [NaN', r"\$: NaN is not valid JSON"),
    ({"version": 2}, r"\$: version: expected 1, got 2; use a release that reads the file's version"),
    ({"workspace": []}, r"\$: object contains unknown field `workspace`; did you mean workspaces\?"),
    ({"workspaces": {}}, r"\$\.workspaces: expected `array`, got `object`"),
    ({"workspaces": [{}, {"id": "camp_1"}]}, r"\$\.workspaces\[1\]: id: expected a string that starts with space_, got 'camp_1'"),
    ({"workspaces": [{"id": 7}]}, r"\$\.workspaces\[0\]\.id: expected `str \| null`, got `int`"),
    ({"workspaces": [{"id": "space_1"}] * 2}, r"\$\.workspaces\[1\]: id: 'space_1' is already in use"),
    ({"workspaces": [{"custom_fields": {"Plan": "x"}}]}, r"\$\.workspaces\[0\]: custom_fields: expected a code such as custom_1"),
    ({"workspaces": [{"mailboxes": [{"sfp": True}]}]}, r"\$\.workspaces\[0\]\.mailboxes\[0\]: a mailbox has no field 'sfp'"),
    ({"workspaces": [{"mailboxes": [{}, 1]}]}, r"\$\.workspaces\[0\]\.mailboxes\[1\]: expected `object`, got `int`"),
    (
        {"workspaces": [{"campaigns": [{"steps": [{"wait_time": "3d"}]}]}]},
        r"\$\.workspaces\[0\]\.campaigns\[0\]: wait_time: expected",
    ),
    (
        {"workspaces": [{"campaigns": [{"workspace": "space_1"}]}]},
        r"\$\.workspaces\[0\]\.campaigns\[0\]: a campaign has no field 'workspace'; expected one of id, name,",
    ),
    ({"x": 1}, r"\$: object contains unknown field `x`; expected one of version, now, workspaces, owner_keys,"),
    (
        {"workspaces": [{"contacts": [{"email": "a@b.co", "campaigns": [{"when": 1}]}]}]},
        r"contacts\[0\]\.campaigns\[0\]: object contains unknown field `when`; expected one of id, at$",
    ),
    ({"simulation": {"evnts": []}}, r"\$\.simulation: object contains unknown field `evnts`; did you mean events\?"),
    ([], r"\$: expected `object`, got `array`"),
    (
        {"workspaces": [{"contacts": [{"fields": {}}]}]},
        r"\$\.workspaces\[0\]\.contacts\[0\]: object missing required field `email`",
    ),
    (
        {"workspaces": [{"contacts": [{"email": "a@b.co", "fields": {"city": 1}}]}]},
        r"contacts\[0\]: city: expected a string or null",
    ),
    (
        {"workspaces": [{"contacts": [{"email": "a@b.co", "campaigns": ["camp_9"]}]}]},
        r"contacts\[0\]: the workspace \w+ has no campaign 'camp_9'",
    ),
    (
        {"workspaces": [{"contacts": [{"email": "a@b.co", "campaigns": [{"at": 1}]}]}]},
        r"contacts\[0\]\.campaigns\[0\]: object missing required field `id`",
    ),
    ({"owner_keys": {"key_1": ["space_9"]}}, r"\$\.owner_keys: there is no workspace 'space_9'"),
    ({"made_up": {"camp_": -1}}, r"\$\.made_up\[\.\.\.\]: expected `int` >= 0"),
    ({"now": "2030-01-01", "workspaces": [1]}, r"workspaces\[0\]: expected `object`, got `int`"),
    ({"scripts": [{"contact": "a@b.co", "interested": 1}]}, r"\$\.scripts\[0\]: interested: expected true or false, got 1"),
    ({"now": "noon"}, r"\$\.now: expected an ISO 8601 time such as .*, got 'noon'"),
    ("[]", r"No such file|\[\]"),
]


@pytest.mark.parametrize(("source", "message"), BAD)
def test_an_invalid_world_is_refused_with_its_place_and_changes_nothing(source: Any, message: str) -> None:
    fake = rich_world()
    with refusing(fake, (WorldError, FileNotFoundError), message):
        fake.load(source)


RICH = json.loads(rich_world().dump())
Place = tuple[str | int, ...]


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    yield at
    for name, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*at, name))


def with_other(at: Place, value: object) -> Any:
    world = deepcopy(RICH)
    *way, last = at
    reduce(getitem, way, world)[last] = value
    return world


@given(st.sampled_from(list(places(RICH))[1:]), st.sampled_from([None, True, "x", "", 5, -3, 2.5, 10**30, [], ["x"], {}, [[]]]))
@settings(max_examples=scaled(80))
@example(("workspaces", 2, "mailboxes", 0, "opened_14days", 0), "x")
@example(("workspaces", 2, "mailboxes", 0, "opened_14days"), ["x"])
@example(("workspaces", 2, "campaigns", 0, "steps", 0), [])
@example(("workspaces", 2, "campaigns", 0, "steps", 0, "templates"), [])
@example(("workspaces", 2, "campaigns", 0, "steps", 0, "templates", 0), None)
@example(("workspaces", 2, "campaigns", 0, "steps", 1, "wait_time"), 10**30)
@example(("workspaces", 2, "campaigns", 0, "last_activity"), "x")
def test_a_value_of_the_wrong_type_is_refused_or_served(at: Place, value: object) -> None:
    fake = FakeService()
    try:
        fake.load(with_other(at, value))
    except WorldError:
        return
    assert everything(fake)
    fake.advance(days=2)
    assert everything(fake)


def test_an_invalid_owner_key_is_not_shown() -> None:
    with pytest.raises(WorldError) as caught:
        FakeService().load({"owner_keys": {"5ecret": []}})
    assert "5ecret" not in str(caught.value)


def test_a_world_is_read_under_the_behaviour_of_the_fake_that_loads_it() -> None:
    twice = {"workspaces": [{"contacts": [{"email": "a@b.co"}, {"email": "A@b.co"}]}]}

    with pytest.raises(WorldError, match="no other contact of the workspace has, got A@b"):
        FakeService().load(twice)
    exact = FakeService(behaviour=Behaviour(email_key="exact"))
    exact.load(twice)
    assert '"A@b.co"' in exact.dump()
