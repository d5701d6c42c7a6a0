from __future__ import annotations

from typing import Any, cast

import attrs
import pytest
from support.tables import check_rows

from outreach_async import InvalidRequest
from outreach_async.fake import Behaviour, HeaderAuth, RateLimit
from outreach_async.fake.behaviour import KNOB_VALUES


def test_documented_is_the_first_value_of_every_knob() -> None:
    assert attrs.asdict(Behaviour()) == {name: readings[0] for name, readings in KNOB_VALUES.items()} | {
        "auth": None,
        "rate_limit": None,
    }


def test_every_knob_with_a_fixed_set_of_values_lists_them() -> None:
    assert {field.name for field in attrs.fields(Behaviour)} - set(KNOB_VALUES) == {"auth", "rate_limit"}


def test_an_invalid_value_is_refused_by_name() -> None:
    def check(reading: Any, knob: str) -> None:
        if knob == "strict_fields" and isinstance(reading, list):
            return
        with pytest.raises((ValueError, TypeError), match=rf"{knob}:|not iterable"):
            Behaviour(**{knob: reading})

    check_rows(((reading, knob) for reading in ["no such reading", -1, 1.5, ["all", 3.0]] for knob in KNOB_VALUES), check)


@pytest.mark.parametrize("knob", ["auth", "rate_limit"])
def test_a_table_of_another_class_is_refused_by_name(knob: str) -> None:
    with pytest.raises(InvalidRequest, match=f"{knob}: expected .* or None, got 5; pass"):
        Behaviour(**cast("dict[str, Any]", {knob: 5}))


def test_open_knobs_accept_other_values() -> None:
    behaviour = Behaviour(
        email_key=str.upper,
        created_status={"skipped": 201},
        campaign_max_display=7,
        strict_fields={"email"},  # type: ignore[arg-type]  # a converter makes it a frozenset
        error_renderer=lambda refusal: (refusal.status, {}, b""),
    )

    assert behaviour.strict_fields == frozenset({"email"})


def test_the_presets_are_different_behaviours() -> None:
    assert len({Behaviour(), Behaviour.strict(), Behaviour.lenient()}) == 3


@pytest.mark.parametrize(
    ("kind", "wrong", "name"),
    [
        (Behaviour, {"first_page": True}, r"first_page: .*, got True"),
        (Behaviour, {"created_status": {"added": 202}}, "created_status"),
        (RateLimit, {"limit": -1}, "limit"),
        (RateLimit, {"limit": 1, "per": 0}, "per"),
        (RateLimit, {"limit": 1, "scope": "user"}, "scope"),
        (RateLimit, {"limit": 1, "retry_after": "soon"}, "retry_after"),
    ],
)
def test_a_value_outside_its_range_is_refused_by_name(kind: Any, wrong: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=name):
        kind(**wrong)


def test_tokens_are_not_shown() -> None:
    assert "key_secret" not in repr(Behaviour(auth=HeaderAuth(tokens=frozenset({"key_secret"}))))
