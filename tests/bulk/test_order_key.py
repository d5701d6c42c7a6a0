"""Order keys: equal for addresses that a service may treat as equal, and different for all others."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outreach_async._plumbing import contact_key, order_key

SAME: Final = {
    "case of a sharp s": ("strasse@a.example", "STRAßE@a.example"),
    "case of a dotless i": ("ilker@a.example", "\u0131lker@a.example"),
    "surrounding blanks": ("ann@a.example", " ann@a.example\n"),
    "NFKC: ligature": ("office@a.example", "o\ufb03ce@a.example"),
    "composition": ("é@a.example", "e\u0301@a.example"),
    "Gmail's dots": ("ann@gmail.com", "a.n.n@GMAIL.com"),
    "Gmail's tags": ("ann@gmail.com", "ann+list@gmail.com"),
    "googlemail": ("ann@gmail.com", "ann@googlemail.com"),
    "googlemail in capitals": ("ann@gmail.com", "Ann@GoogleMail.com"),
    "googlemail, dots, tag and trailing dot": ("ann@gmail.com", "a.nn+x+y@googlemail.com."),
    "a tag behind a leading plus": ("+15551234@sms.example", "+15551234+list@sms.example"),
    "a quoted local part": ("ann@a.example", '"ann"@a.example'),
    "a quoted pair": ('"a\\"b"@a.example', '"a\\"\\b"@a.example'),
    "a tag within quotes": ("ann@a.example", '"ann+list"@a.example'),
    "accents": ("rene@a.example", "rené@a.example"),
    "accents of the domain": ("ann@bucher.example", "ann@bücher.example"),
    "an international domain": ("ann@bücher.example", "ann@xn--bcher-kva.example"),
    "ideographic full stops of the domain": ("ann@bücher.example", "ann@bücher\u3002example"),
}
OTHER: Final = {
    "another name": ("ann@a.example", "bob@a.example"),
    "another domain": ("ann@a.example", "ann@b.example"),
    "ideographic full stops of the local part": ("a\u3002b@a.example", "a.b@a.example"),
    "dots elsewhere": ("ann@a.example", "a.nn@a.example"),
    "a domain that only looks like Gmail's": ("ann@gmail.example", "a.nn@gmail.example"),
    "telephone numbers": ("+15551234@sms.example", "+15559876@sms.example"),
    "Cyrillic": ("иван@a.example", "петр@a.example"),
    "Chinese": ("北京@a.example", "上海@a.example"),
    "Devanagari vowels": ("कि@a.example", "कु@a.example"),
    "no Latin letter and none at all": ("北京@a.example", "@a.example"),
    "dots alone": (".@gmail.com", "+@gmail.com"),
    "zero-width characters alone": ("\u200b@a.example", "\u200c@a.example"),
    "accents alone": ("\u0301@a.example", "\u0308@a.example"),
    "quotes around nothing": ('""@a.example', "@a.example"),
    "blanks alone": (" @a.example", "@a.example"),
    "the digits of a Punycode label": ("ann@xn--bcher-kva.example", "ann@xn--bcher-kvb.example"),
    "no address": ("nobody", "somebody"),
}


@pytest.mark.parametrize(("one", "other"), SAME.values(), ids=SAME)
def test_addresses_that_a_service_may_treat_as_equal_share_a_key(one: str, other: str) -> None:
    assert order_key(one) == order_key(other)


@pytest.mark.parametrize(("one", "other"), OTHER.values(), ids=OTHER)
def test_other_addresses_have_different_keys(one: str, other: str) -> None:
    assert order_key(one) != order_key(other)


@pytest.mark.parametrize("local", ["+1555", "+", "++", ".", "...", ".+x", "\u200b", "\ufeff", "\u0301", '""', " ", "", "\uff0b1"])
@pytest.mark.parametrize("domain", ["sms.example", "gmail.com"])
def test_a_local_part_never_folds_to_nothing(local: str, domain: str) -> None:
    assert order_key(f"{local}@{domain}").rpartition("@")[0] or not local


# Every character

RESPELL: Final[tuple[Callable[[str], str], ...]] = (
    str.upper,
    str.lower,
    str.title,
    str.casefold,
    *(lambda text, form=form: unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")),
)


@pytest.mark.thorough
@pytest.mark.parametrize("respell", RESPELL)
def test_letter_case_and_normal_form_do_not_change_the_key(respell: Callable[[str], str]) -> None:
    characters = (chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000)
    spelled = ((character, respell(character)) for character in characters)
    apart = [
        f"U+{ord(character):04X}"
        for character, other in spelled
        if other != character and order_key(f"a{character}b@a.example") != order_key(f"a{other}b@a.example")
    ]
    assert apart == []


# Random addresses

DOMAINS: Final = ("a.example", "gmail.com", "googlemail.com", "xn--bcher-kva.example")


def _between(text: str, inserted: str, place: int) -> str:
    at = place % (len(text) + 1)
    return text[:at] + inserted + text[at:]


CHANGES: Final[tuple[Callable[[str, int], str], ...]] = (
    lambda email, _: email.upper(),
    lambda email, _: unicodedata.normalize("NFKD", email),
    lambda email, _: f"{email}.".replace("..", "."),
    lambda email, _: email.replace("gmail.com", "googlemail.com"),
    lambda email, place: _between(email, "\u200b", place),
    lambda email, place: _between(email, "\ufeff", place),
    lambda email, place: re.sub("([a-z])", "\\1\u0301", email, count=1 + place % 3),
    lambda email, _: email.replace("@", "+tag@") if not email.endswith('"') and '"@' not in email else email,
    lambda email, _: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" and c not in '"\\' else c for c in email),
)


@given(
    st.builds("{}@{}".format, st.text("abcxyzйи北", min_size=1, max_size=6), st.sampled_from(["a.example", "gmail.com"])),
    st.lists(st.tuples(st.sampled_from(CHANGES), st.integers(0, 30)), max_size=5),
)
def test_respelling_an_address_keeps_its_key(email: str, changes: list[tuple[Any, int]]) -> None:
    spelled = email
    for change, place in changes:
        spelled = change(spelled, place)
    assert order_key(spelled) == order_key(email)


ANY_TEXT = st.text(st.characters(exclude_categories=[]), min_size=1).filter(str.strip)


@given(st.builds("{}@{}".format, ANY_TEXT, ANY_TEXT), st.sampled_from([str, str.lower]))
def test_rows_of_one_contact_have_one_order_key(email: str, respell: Callable[[str], str]) -> None:
    spelled = respell(f" {email} ")
    assert contact_key(spelled) != contact_key(email) or order_key(spelled) == order_key(email)


@given(st.text())
def test_any_string_has_a_key(text: str) -> None:
    assert isinstance(order_key(text), str)


@pytest.mark.parametrize("label", ["xn--999999999", "xn--\u5317"])
def test_a_label_with_invalid_punycode_is_kept(label: str) -> None:
    assert order_key(f"a@{label}.example") == f"a@{label}.example"


def test_a_domain_longer_than_the_maximum_is_not_decoded() -> None:
    label = "xn--bcher-kva"
    longest = ".".join([label] * 18)  # 251 characters
    assert label not in order_key(f"a@{longest}")
    assert order_key(f"a@{longest}.{label}") == f"a@{longest}.{label}"


def test_a_very_long_address_is_still_folded() -> None:
    assert order_key("a@" + "ü." * 200_000) == "a@" + "u." * 199_999 + "u"
