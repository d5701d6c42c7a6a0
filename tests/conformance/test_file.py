"""Behaviour files: what is written is read back, and invalid files are refused with the place of the error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from outreach_async.fake import Behaviour, HeaderAuth, RateLimit
from outreach_async.fake.behaviour import (
    KNOB_NAMES,
    KNOB_VALUES,
    BehaviourFileError,
    dump_behaviour,
    load_behaviour,
    load_knob_values,
)

words = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1).filter(str.strip)
limits = st.builds(
    RateLimit,
    limit=st.integers(0, 10**6),
    per=st.floats(min_value=0.001, allow_nan=False) | st.integers(1, 10**6),
    scope=st.sampled_from(["key", "workspace", "all"]),
    retry_after=st.sampled_from(["seconds", "date"]),
)
also: dict[str, st.SearchStrategy[Any]] = {
    "created_status": st.dictionaries(words, st.sampled_from([200, 201])),
    "campaign_max_display": st.integers(1, 10**9),
    "strict_fields": st.frozensets(words),
    "auth": st.none() | st.builds(HeaderAuth, header=words, scheme=st.just("") | words),
    "rate_limit": st.none() | limits,
}
behaviours = st.builds(
    Behaviour,
    **{knob: st.sampled_from(readings) | also.get(knob, st.nothing()) for knob, readings in KNOB_VALUES.items()},
    **{knob: values for knob, values in also.items() if knob not in KNOB_VALUES},
)


def written(folder: Path, text: str) -> Path:
    path = folder / "behaviour.toml"
    path.write_text(text, encoding="utf-8")
    return path


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # each example overwrites the file
@example(Behaviour(rate_limit=RateLimit(5, per=0.5)), {}, "")
@given(behaviours, st.dictionaries(st.sampled_from(KNOB_NAMES), st.text(st.characters(codec="utf-8"))), st.text(max_size=50))
def test_a_behaviour_file_is_read_back(tmp_path: Path, behaviour: Behaviour, notes: dict[str, str], about: str) -> None:
    path = written(tmp_path, dump_behaviour(behaviour, notes=notes, about=about))
    assert load_behaviour(path) == behaviour
    assert set(load_knob_values(path)) == set(KNOB_NAMES)


def test_tokens_are_left_out_and_may_be_added_by_hand(tmp_path: Path) -> None:
    auth = HeaderAuth("x-token", "", frozenset({"hush-hush"}))
    text = dump_behaviour(Behaviour(auth=auth))
    assert "hush" not in text
    assert load_behaviour(written(tmp_path, text)).auth == attrs.evolve(auth, tokens=())
    assert load_behaviour(written(tmp_path, f'{text}tokens = ["hush-hush"]\n')).auth == auth


def test_missing_knobs_have_their_default_and_undecided_ones_their_first_value(tmp_path: Path) -> None:
    path = written(tmp_path, 'past_end = "clamp"\n[undecided]\nover_max = ["serve", "clamp"]\n')
    assert load_behaviour(path) == Behaviour(past_end="clamp", over_max="serve")
    assert load_knob_values(path) == {"past_end": ("clamp",), "over_max": ("serve", "clamp")}


def test_an_unobserved_knob_is_a_comment_with_its_reason(tmp_path: Path) -> None:
    text = dump_behaviour(
        Behaviour(over_max="clamp", auth=HeaderAuth()),
        notes={"over_max": "either"},
        undecided={"over_max": ("clamp", "serve")},
        unseen={"order": "too\nfew", "auth": "nobody asked"},
    )
    assert "# order: too few\n" in text
    assert "# auth: nobody asked\n" in text
    assert '# either\nover_max = ["clamp", "serve"]\n' in text
    assert load_behaviour(written(tmp_path, text)) == Behaviour(over_max="clamp")


@pytest.mark.parametrize("behaviour", [Behaviour(email_key=str.lower), Behaviour(error_renderer=lambda _: (400, {}, b""))])
def test_a_function_cannot_be_written(behaviour: Behaviour) -> None:
    with pytest.raises(TypeError, match=r"(email_key|error_renderer): expected a value that TOML can represent"):
        dump_behaviour(behaviour)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("past_ned = 1", "did you mean past_end?"),
        ("wholly_else = 1", "a behaviour has no field 'wholly_else'"),
        ("[undecided]\npast_ned = [1]", "did you mean past_end?"),
        ("[auth]\nheadr = 'x'", "auth has no field 'headr'; did you mean header?"),
        ("past_end = 'klamp'", "past_end: expected one of 'empty', 'clamp', 'error', got 'klamp'"),
        ("past_end = 'none'", "past_end: expected one of 'empty', 'clamp', 'error', got 'none'"),
        ("skip_enrols = 1", "skip_enrols: expected one of False, True, got 1"),
        ("strict_fields = 5", "strict_fields: expected one of 'all'"),
        ("auth = 5", "auth: expected a table"),
        ("[auth]\nheader = 5", "auth.header: expected `str`, got `int`"),
        ("[auth]\ntokens = 'abc'", "auth.tokens: expected `array`, got `str`"),
        ("[rate_limit]\nlimit = '5'", "rate_limit.limit: expected `int`, got `str`"),
        ("[rate_limit]\nlimit = 5\nper = true", "rate_limit.per: expected `float`, got `bool`"),
        ("[rate_limit]\nlimit = 5\nper = 0", "per: expected more than 0 seconds, got 0"),
        ("undecided = 5", "undecided: expected a table"),
        ("[undecided]\npast_end = []", "undecided.past_end: expected a non-empty list of values"),
        ("[undecided]\npast_end = 'clamp'", "undecided.past_end: expected a non-empty list of values"),
        ("past_end = 'clamp'\n[undecided]\npast_end = ['clamp']", "past_end is also set at the top level of the file"),
        ("past_end = ", "not TOML"),
    ],
)
def test_an_invalid_file_is_refused_with_the_error_and_its_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(BehaviourFileError) as caught:
        load_behaviour(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_in_another_encoding_is_not_toml(tmp_path: Path) -> None:
    path = tmp_path / "behaviour.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BehaviourFileError, match="not TOML"):
        load_behaviour(path)
