"""What is refused before anything is sent, and the messages."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from http import HTTPMethod
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import check_rows

from outreach_async import UNSET, Outcome
from outreach_async._core.arguments import (
    check_contact,
    choose_contact,
    require_body,
    require_method,
    require_target,
    require_upload_options,
    to_contact,
)
from outreach_async._plumbing import (
    require_encodable,
    require_headers,
    require_id,
    require_number,
    require_seconds,
)
from outreach_async.errors import InvalidRequest
from outreach_async.models import ID_PREFIXES, RESERVED_FIELDS, STANDARD_FIELDS, NewContact

KEY = "key_4f9a8b7c6d"
NO_WORKSPACE = "workspace: expected a string starting with 'space_'"
NO_CAMPAIGN = "campaign: expected a string starting with 'camp_'"
CAMPAIGN_REMEDY = "pass a campaign id, or None for no campaign"
NO_POLICY = "duplicates: expected one of 'skip', 'overwrite', 'update_missing_fields'"
FIELDS_REMEDY = "use the codes of client.workspaces.fields()"
OTHERWISE = "Otherwise, pass other field codes of the workspace in 'extra'"
NO_METHOD = "method: expected an HTTP method in upper case"
NO_PATH = "target: expected a path that starts with exactly one '/'; pass a target such as '/campaigns?page=1'"
NOT_ENCODED = (
    "target: expected a percent-encoded path and query, got other characters, or a '?' without a query;"
    " use urllib.parse.quote, or remove the '?'"
)
HEADER_FAULT = "expected printable ASCII without spaces at the ends"
CODE_FAULT = f"expected a code of the form custom_<n>; {FIELDS_REMEDY}"
NAME_FAULT = "headers: expected field names of letters, digits and hyphens; remove spaces and line breaks"
OTHER_CODES = "not a field of a contact; pass other field codes of the workspace in 'extra'"
SURROGATE = "expected valid Unicode, got a lone surrogate at character {}; decode the input with the correct encoding"
DOTS = "target: expected no '.' or '..' segments, which HTTP libraries treat differently; remove them"
NO_PATHS = ["", "x", "//a.example/x", "https://a.example"]
NO_TARGETS = ["/a?", "/a b", "/a#b", "/é", "/a\\b", "/a\r\nx: y", '/"', "/<", "/^", "/a\n"]
DOTTED = ["/.", "/..", "/a/../b", "/a/.", "/./a", "/%2e", "/%2E%2e/a", "/a/.%2E?x", "/a/%2e./b"]


def workspace(value: Any) -> str:
    return require_id("workspace", value, "workspace", "pass one")


def number(value: Any, most: int = 2**63 - 1) -> int:
    return require_number("page", value, least=1, most=most)


def seconds(value: Any) -> float | None:
    return require_seconds("timeout", value)


def members(email: Any = "a@b.example", **fields: Any) -> dict[str, str | None]:
    contact = NewContact(email, **fields)
    check_contact(contact)
    return contact.to_dict()


def options(duplicates: Any = "skip", *, strict: Any = True, campaign: Any = None) -> None:
    require_upload_options(duplicates, strict, campaign)


REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (lambda: workspace(None), f"{NO_WORKSPACE}, got None; pass one"),
    (lambda: workspace(""), f"{NO_WORKSPACE}, got a blank string; pass one"),
    (lambda: workspace("space_"), f"{NO_WORKSPACE}, got only the prefix 'space_'; pass one"),
    (lambda: workspace("camp_1"), f"{NO_WORKSPACE}, got what looks like a campaign id (camp_...); pass one"),
    (lambda: workspace("space_1 space_2"), "workspace: expected one id, got 2 in one string; pass one"),
    (lambda: workspace("space_1,space_2, space_3"), "workspace: expected one id, got 3 in one string; pass one"),
    (lambda: choose_contact(None, UNSET, {}), "email: missing; pass email= and the other fields of the contact, or a NewContact"),
    (lambda: choose_contact(None, UNSET, {"city": "x"}), "email: missing; give the contact an e-mail address"),
    (
        lambda: choose_contact(NewContact("a@b.example"), UNSET, {"city": "x"}),
        "contact: expected a contact or its fields, got both; put every field into the contact",
    ),
    (
        lambda: choose_contact(None, "a@b.example", {"first_nam": "x"}),
        f"'first_nam': not a field of a contact; did you mean 'first_name'? {OTHERWISE}",
    ),
    (
        lambda: choose_contact(None, "a@b.example", {"custom_1": "x", "campain": "camp_1"}),
        "campain: not an argument of create; did you mean 'campaign'?",
    ),
    (lambda: workspace(KEY), f"{NO_WORKSPACE}, got what looks like an owner_key (key_...); pass one"),
    (lambda: workspace("Space_1"), f"{NO_WORKSPACE}, got a string of 7 characters without that prefix; pass one"),
    (lambda: workspace("space_\ud800"), f"workspace: {SURROGATE.format(6)}"),
    (lambda: number("1"), "page: expected a whole number, got str; pass an int of at least 1"),
    (lambda: number(True), "page: expected a whole number, got bool; pass an int of at least 1"),
    (lambda: number(0), "page: expected at least 1, got 0; pass a larger number"),
    (lambda: number(-(10**5000)), "page: expected at least 1, got a number of 16610 bits; pass a larger number"),
    (lambda: number(2**63), "page: expected at most 9223372036854775807, got a number of 64 bits; pass a smaller number"),
    (lambda: seconds("30"), "timeout: expected seconds as a number or None, got str; pass a number such as 30.0"),
    (lambda: seconds(True), "timeout: expected seconds as a number or None, got bool; pass a number such as 30.0"),
    (lambda: seconds(0), "timeout: expected more than 0 seconds, got 0; pass a positive number"),
    (lambda: seconds(math.nan), "timeout: expected more than 0 seconds, got nan; pass a positive number"),
    (lambda: seconds(10**5000), "timeout: expected seconds that fit a float, got a number of 16610 bits; pass a smaller number"),
    (lambda: options(duplicates="Skip"), f"{NO_POLICY}, got 'Skip'; pass one of them"),
    (lambda: options(duplicates=KEY), f"{NO_POLICY}, got 'key_...'; pass one of them"),
    (lambda: options(duplicates=["skip"]), f"{NO_POLICY}, got list; pass one of them"),
    (lambda: options(strict=1), "strict_validation: expected bool, got int; pass True or False"),
    (lambda: options(campaign="space_1"), f"{NO_CAMPAIGN}, got what looks like a workspace id (space_...); {CAMPAIGN_REMEDY}"),
    (lambda: members(None), "email: expected a string, got None; give the contact an e-mail address"),
    (lambda: members(" \t"), "email: expected an address, got a blank string; give the contact an e-mail address"),
    (lambda: members("a\udfff@b.example"), f"email: {SURROGATE.format(1)}"),
    (lambda: members(zip=75001), "zip: expected a string or None, got int; convert it with str()"),
    (lambda: members(city=["Paris"]), "city: expected a string or None, got list; convert it with str()"),
    (lambda: members(custom=None), "custom: expected a mapping of codes to strings, got None; pass a dict"),
    (lambda: members(custom={1: "x"}), f"custom: expected codes as strings, got int; {FIELDS_REMEDY}"),
    (lambda: members(custom={"": "x"}), f"custom: expected codes as strings, got an empty string; {FIELDS_REMEDY}"),
    (lambda: members(custom={"plan": "x"}), f"custom['plan']: {CODE_FAULT}"),
    (lambda: members(custom={"custom_1\n": "x"}), f"custom['custom_1\\n']: {CODE_FAULT}"),
    (lambda: members(custom={"custom_٣": "x"}), f"custom['custom_٣']: {CODE_FAULT}"),
    (lambda: members(custom={KEY: "x"}), f"custom['key_...']: {CODE_FAULT}"),
    (lambda: members(custom={"custom_1": 5}), "custom['custom_1']: expected a string or None, got int; convert it with str()"),
    (lambda: members(extra={"linkedin": 5}), "extra['linkedin']: expected a string or None, got int; convert it with str()"),
    (lambda: members(extra={"a\udc00": "x"}), f"extra: {SURROGATE.format(1)}"),
    (lambda: members(extra={"custom_1": "x"}), "extra['custom_1']: this code is reserved; pass the value in custom"),
    (lambda: members(extra={"owner_key": "x"}), "extra['owner_key']: this code is reserved; pass the value as an argument"),
    (lambda: to_contact(KEY), "contact: expected NewContact or a mapping, got str; pass email= or build NewContact(email, ...)"),
    (lambda: to_contact({}), "email: missing; give the contact an e-mail address"),
    (lambda: to_contact({"email": "a@b.example", "qqq": "A"}), f"'qqq': {OTHER_CODES}"),
    (lambda: to_contact({"email": "a@b.example", KEY: "A"}), f"'key_...': {OTHER_CODES}"),
    (
        lambda: to_contact({"email": "a@b.example", 5: "A"}),
        "contact: expected strings as keys, got int; use the field names of NewContact",
    ),
    (
        lambda: to_contact({"email": "a@b.example", "custom": 5, "custom_1": "x"}),
        "custom: expected a mapping of codes to strings, got int; pass a dict",
    ),
    (lambda: require_method("get"), f"{NO_METHOD}, got a string with other characters; pass a method such as 'GET'"),
    (lambda: require_method(None), f"{NO_METHOD}, got None; pass a method such as 'GET'"),
    (lambda: require_body("{}"), "body: expected bytes, got str; encode it, for example with json.dumps(value).encode()"),
    (lambda: require_target(None), "target: expected a string such as '/campaigns?page=1', got None; pass a path and query"),
    *((partial(require_target, target), NO_PATH) for target in NO_PATHS),
    *((partial(require_target, target), NOT_ENCODED) for target in NO_TARGETS),
    *((partial(require_target, target), DOTS) for target in DOTTED),
    (lambda: require_headers(None), "headers: expected a mapping of strings to strings, got None; pass a dict"),
    *((partial(require_headers, {name: "x"}), NAME_FAULT) for name in ["", "a b", "a:", "a\r\nb", "é", 5, None]),
    *(
        (partial(require_headers, {"X-A": value}), f"headers['X-A']: {HEADER_FAULT}, got other characters; encode or remove them")
        for value in ["a\r\nb", "a\n", "\x00", "\x7f", "\u0100", "\xe9", " a", "a\t"]
    ),
    (lambda: require_headers({"X-A": b"x"}), f"headers['X-A']: {HEADER_FAULT}, got bytes; pass a string"),
    (lambda: require_headers({"x-a": None}), f"headers['x-a']: {HEADER_FAULT}, got None; pass a string"),
]


def test_an_error_names_the_field_the_type_and_the_remedy() -> None:
    def check(call: Callable[[], Any], message: str) -> None:
        with pytest.raises(InvalidRequest) as caught:
            call()
        assert str(caught.value) == message
        assert KEY not in repr(caught.value)
        assert caught.value.maybe_sent is False

    check_rows(REFUSALS, check)


UNKEYED: list[Callable[[str], Any]] = [
    *(lambda text, what=what: require_id(what, text, what, "remedy") for what in ID_PREFIXES if what != "owner_key"),
    number,
    lambda text: number(1, most=0) if text else None,
    seconds,
    lambda text: options(duplicates=text),
    lambda text: options(strict=text),
    lambda text: options(campaign=text),
    lambda text: members(custom={text: "x"}),
    lambda text: members(custom=text),
    lambda text: members(extra={text: 5}),
    lambda text: members(city=[text]),
    lambda text: members(custom={"custom_1": [text]}),
    to_contact,
    lambda text: to_contact({"email": "a@b.example", text: "x"}),
    lambda text: to_contact({text: "x"}),
    require_body,
    require_method,
    require_target,
    lambda text: require_target("/a b?" + text),
    require_headers,
    lambda text: require_headers({text: None}),
    lambda text: require_headers({"a " + text: "x"}),
    lambda text: require_headers({"authorization": text + "\n"}),
    lambda text: require_headers({"authorization": [text]}),
]


@given(st.sampled_from(UNKEYED), st.text("abcXYZ0189-_'\"\\/é", min_size=1))
def test_no_error_shows_a_key_wherever_it_was_passed(call: Callable[[str], Any], rest: str) -> None:
    key = f"key_{rest}"
    with pytest.raises(InvalidRequest) as caught:
        call(key)
    text = str(caught.value)
    assert key not in text
    assert repr(key)[1:-1] not in text


AROUND = st.text("\n\r\t \ufeff\u00a0\u2028\u200b", max_size=3)


@given(st.sampled_from(sorted(ID_PREFIXES)), st.text(min_size=1), AROUND, AROUND)
def test_an_id_is_one_line_of_visible_characters_whatever_surrounds_it(what: str, rest: str, before: str, after: str) -> None:
    id_ = ID_PREFIXES[what] + rest
    if rest.isprintable() and " " not in rest:
        assert require_id("x", before + id_ + after, what, "remedy") == id_
    elif rest[-1:].isalnum():
        with pytest.raises(InvalidRequest) as caught:
            require_id("x", before + id_ + after, what, "remedy")
        assert len(rest) < 9 or rest not in str(caught.value)


@pytest.mark.parametrize(
    ("inside", "got"),
    [
        ("\n", "a line break at character 5"),
        ("\r\n", "a line break at character 5"),
        (" ", "whitespace at character 5"),
        ("\u00a0", "whitespace at character 5"),
        (" \u200b", "whitespace at character 5"),
        ("\x00", "an invisible character at character 5"),
        ("\ufeff", "an invisible character at character 5"),
        ("\nkey_", "2 in one string; remedy"),
    ],
)
def test_a_key_with_something_inside_is_refused_with_its_place(inside: str, got: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"^owner_key: expected one .*, got {got}") as caught:
        require_id("owner_key", f"key_1{inside}hunter2", "owner_key", "remedy")
    assert "hunter2" not in str(caught.value)


@given(st.sampled_from(sorted(ID_PREFIXES)), st.text(), st.sampled_from(["", *ID_PREFIXES.values()]))
def test_a_string_without_the_prefix_is_not_an_id(what: str, rest: str, prefix: str) -> None:
    text = prefix + rest
    if not text.startswith(ID_PREFIXES[what]):
        with pytest.raises(InvalidRequest):
            require_id("x", text, what, "remedy")


@given(st.text(), st.characters(categories=["Cs"]), st.text())
def test_a_lone_surrogate_is_reported_with_its_position(before: str, surrogate: str, after: str) -> None:
    with pytest.raises(InvalidRequest, match=f"at character {len(before)};") as caught:
        require_encodable("x", before + surrogate + after)
    str(caught.value).encode()


@given(st.integers(), st.integers(0, 5), st.integers(5, 10))
def test_an_integer_within_bounds_is_accepted(value: int, least: int, most: int) -> None:
    if least <= value <= most:
        assert require_number("x", value, least=least, most=most) == value
    else:
        with pytest.raises(InvalidRequest):
            require_number("x", value, least=least, most=most)


@given(st.none() | st.integers(1, 10**300) | st.floats(min_value=0, exclude_min=True, allow_nan=False))
def test_seconds_are_any_positive_number_or_none(value: float | None) -> None:
    assert require_seconds("x", value) == (None if value is None else float(value))
    assert type(require_seconds("x", value)) in {float, type(None)}


@given(
    st.dictionaries(st.sampled_from(STANDARD_FIELDS), st.none() | st.text(), max_size=5),
    st.dictionaries(st.integers(0).map("custom_{}".format), st.none() | st.text(), max_size=3),
    st.dictionaries(st.text(min_size=1), st.none() | st.text(), max_size=3),
)
def test_a_contact_of_strings_is_accepted_unchanged(
    standard: dict[str, Any], custom: dict[str, Any], extra: dict[str, Any]
) -> None:
    extra = {code: value for code, value in extra.items() if code not in RESERVED_FIELDS and not code.startswith("custom_")}
    accepted = members("a@b.example", **standard, custom=custom, extra=extra)
    assert accepted == {"email": "a@b.example", **standard, **custom, **extra}


def test_extra_may_not_contain_a_member_with_its_own_argument() -> None:
    def check(code: str) -> None:
        with pytest.raises(InvalidRequest, match=re.escape(f"extra[{code!r}]")):
            members(extra={code: "x"})

    check_rows(((code,) for code in sorted(RESERVED_FIELDS)), check)


def test_a_row_may_contain_custom_codes_beside_its_fields() -> None:
    row = {"email": "a@b.example", "city": None, "custom_1": "x", "custom": {"custom_2": "y"}, "extra": {"linkedin": "z"}}
    assert to_contact(row) == NewContact(
        "a@b.example", city=None, custom={"custom_1": "x", "custom_2": "y"}, extra={"linkedin": "z"}
    )


def test_the_values_of_a_row_are_checked_when_it_is_sent() -> None:
    contact = to_contact({"email": 5, "custom": "no mapping"})
    with pytest.raises(InvalidRequest, match="email: expected a string"):
        check_contact(contact)


@pytest.mark.parametrize("method", ["GET", "POST", "M-SEARCH", HTTPMethod.DELETE])
def test_a_method_in_capitals_is_accepted(method: str) -> None:
    assert require_method(method) == method


@pytest.mark.parametrize(
    "target",
    ["/", "/campaigns?page=1&display=5", "/a%2F..%2Fb", "/a..b", "/...", "/a?x=../..", "/a[0]", "/a;b=c,d", "/a//b"],
)
def test_a_valid_target_is_accepted_unchanged(target: str) -> None:
    assert require_target(target) == target


def test_a_member_of_an_open_enumeration_is_accepted_as_a_string() -> None:
    assert members(city=Outcome.ADDED)["city"] == "added"
