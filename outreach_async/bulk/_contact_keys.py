"""Which e-mail addresses are of one contact, and which may be."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

_AT_SIGN_FORMS: Final = dict.fromkeys((0xFE6B, 0xFF20), "@")
_IDEOGRAPHIC_FULL_STOP: Final = "\u3002"  # separates the labels of a domain, as a full stop does (RFC 3490, section 3.1)
_IGNORABLE_CHARACTERS: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)
"""Unicode's Default_Ignorable_Code_Point: zero-width characters, the byte order mark, variation selectors and others."""
_QUOTED_STRING: Final = re.compile(r'"((?:[^"\\]|\\.)+)"', re.DOTALL)
_QUOTED_PAIR: Final = re.compile(r"\\(.)", re.DOTALL)
_PLAIN_EMAIL: Final = re.compile(r"[a-z0-9._-]+@(?!g(?:oogle)?mail\.com$)(?!.*xn--)[a-z0-9.-]*[a-z0-9]")
"""An address that is its own key, as nearly all are."""
_PLAIN_EMAILS: Final = re.compile(r"(?:[a-z0-9._-]+@(?!g(?:oogle)?mail\.com\n)[a-z0-9.-]*[a-z0-9]\n|[a-z0-9_-]+@gmail\.com\n)*")
"""Addresses that are their own keys, a line each."""
_GMAIL: Final = "gmail.com"
_GOOGLEMAIL: Final = "googlemail.com"
_MAX_DOMAIN_LENGTH: Final = 253  # maximum length of a domain whose Punycode labels are decoded, in characters


def contact_key(email: str) -> str:
    """Return an e-mail as the service compares it: rows with the same key, in one workspace, are rows of one contact."""
    # Not `casefold`, which makes one of two people: "strasse" is not "stra\u00dfe". Too narrow a key costs a request. Too broad a
    # key would leave somebody out.
    return email.strip().lower()


def hash_contact(email: str) -> int:
    """Return a hash of the contact key, for sets of millions of people. It differs from process to process."""
    return hash(contact_key(email))


@lru_cache(maxsize=4096)
def domain_key(domain: str) -> str:
    """Return a domain in the spelling in which domains are compared."""
    domain = domain.strip().lower().replace(_IDEOGRAPHIC_FULL_STOP, ".").removesuffix(".")
    if domain.isascii() and "xn--" not in domain:
        return domain
    return unicodedata.normalize("NFKC", ".".join(map(_read_label, domain.split(".")))).lower()


def spellings(email: str) -> Sequence[str]:
    """Return the contact key of an e-mail, and those of the other spellings of its domain."""
    local, _, domain = (key := contact_key(email)).rpartition("@")
    labels = (known := domain_key(domain)).split(".")
    encoded = [label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in labels]
    return [*dict.fromkeys((key, f"{local}@{known}", f"{local}@{'.'.join(encoded)}"))]


def _read_label(label: str) -> str:
    try:
        return label[4:].encode("ascii").decode("punycode") if label.startswith("xn--") else label
    except UnicodeError:
        return label


def order_key(email: str) -> str:
    """Return a key that is equal for two e-mail addresses if, and only if, a service may treat the addresses as equal."""
    # It says what may be one contact, never what is one; see `contact_key`. Rows with the same key are sent one after the other,
    # and in a ledger, the values of one cast doubt on those of another. The key ignores case, compatibility forms (NFKC),
    # invisible characters, accents, a trailing dot, tags, quotes around the local part, the spelling of an international domain
    # and, in Gmail's domains, dots. The local part never becomes empty: if it consists of ignored characters alone, it is used
    # unchanged.
    if _PLAIN_EMAIL.fullmatch(email):
        return email
    fold: Callable[[str], str] = str.lower  # sufficient for ASCII addresses, which nearly all addresses are
    if not email.isascii():
        fold, email = _fold, email.translate(_AT_SIGN_FORMS)
    local, _, domain = email.rpartition("@")
    if fold is str.lower and local.isalnum() and domain[-1:].isalnum():  # as in most addresses, nothing else needs folding
        lowered = email.lower()
        if "xn--" not in lowered and not lowered.endswith(_GOOGLEMAIL):
            return lowered
    domain = fold(domain).replace(_IDEOGRAPHIC_FULL_STOP, ".").rstrip().rstrip(".")
    if "xn--" in domain and len(domain) <= _MAX_DOMAIN_LENGTH:
        domain = ".".join(map(_decode_label, domain.split(".")))
    domain = _GMAIL if domain == _GOOGLEMAIL else domain
    folded = fold(local).lstrip()
    if folded[:1] == '"' and (quoted := _QUOTED_STRING.fullmatch(folded)):
        folded = _QUOTED_PAIR.sub(r"\1", quoted[1])
    if (tag := folded.find("+", 1)) > 0:
        folded = folded[:tag]
    if domain == _GMAIL:
        folded = folded.replace(".", "") or folded
    return f"{folded or local.lstrip() or local}@{domain}"


def order_keys(emails: Sequence[str]) -> Sequence[str]:
    """Return the key of each e-mail address, quickly if all of them are their own keys."""
    lines = "\n".join(emails) + "\n"
    if _PLAIN_EMAILS.fullmatch(lines) and "xn--" not in lines and lines.count("\n") == len(emails):
        return emails
    return [*map(order_key, emails)]


def _fold(text: str) -> str:
    """Return a string in which equivalent characters are replaced by the same character, and ignored characters are removed."""
    # Each character is folded separately, so a string may be split before or after folding, with the same result.
    # Both `upper` and `casefold` are needed: some characters are folded to a different letter than their upper-case form.
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).upper().casefold())
    return "".join(character for character in _IGNORABLE_CHARACTERS.sub("", decomposed) if not unicodedata.combining(character))


def _decode_label(label: str) -> str:
    if not label.startswith("xn--"):
        return label
    try:
        return _fold(label[4:].encode("ascii").decode("punycode"))
    except UnicodeError:
        return label
