"""Turn the text of a cell into the value of a field: undo or find what spreadsheets, exports and people did to it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from outreach_async._core.arguments import show_name
from outreach_async._core.value_rules import (
    ALL_KINDS,
    AROUND,
    CODES,
    JUDGES,
    LOST,
    REWRITES,
    FieldKind,
    RuleFinding,
    find_mojibake,
)
from outreach_async._core.value_words import ERRORS, MISSING, SURNAMES
from outreach_async._wire_words import STANDARD_FIELDS


class Change(NamedTuple):
    """What was changed in a text, or found in it: a `value` is sent instead, a text without one is sent as it is."""

    kind: str
    message: str
    reason: str
    """The message without the text, which is equal for all texts with this problem."""
    value: str | None = None
    damaged: bool = False

    @property
    def loss(self) -> str:
        """The message about a value that is left out because it is damaged."""
        what, _, remedy = self.message.rpartition("; ")
        return f"{what}, so it is not sent; {remedy}"

    # What readers of files find, which know the type of a cell.

    @classmethod
    def of_number(cls, text: str, *, exact: bool = False) -> Change:
        # Leading zeros, a plus sign or digits may be lost if the cell is a phone number or a postal code.
        if not exact and len(text.lstrip("-")) > _EXACT_DIGITS:
            remedy = "restore the other digits, and format the cell as text"
            reason = f"is a number in the file, and only its first {_EXACT_DIGITS} digits are exact; {remedy}"
            return cls("digits", f"{text} {reason}", reason, damaged=True)
        reason = "is a number in the file, so leading zeros or a plus sign may be lost; format the cell as text"
        return cls("number", f"{text} {reason}", reason)

    @classmethod
    def of_error(cls) -> Change:
        message = "the cell's value is an error such as #N/A; fix the formula, or clear the cell"
        return cls("error", message, message, damaged=True)


PHONE_FIELDS: Final = tuple(code for code in STANDARD_FIELDS if code.endswith("_phone"))
_KINDS: Final[Mapping[str, FieldKind]] = {
    **dict.fromkeys(STANDARD_FIELDS, "text"),
    "email": "email",
    **dict.fromkeys(PHONE_FIELDS, "phone"),
    "zip": "zip",
    **dict.fromkeys(("job_start_date", "graduation_date"), "date"),
    **dict.fromkeys(("website", "website_2", "website_3", "stack_overflow"), "url"),
    **dict.fromkeys(("first_name", "middle_name", "last_name", "full_name", "nickname"), "name"),
    **dict.fromkeys(("country", "state", "region", "timezone"), "place"),
    **dict.fromkeys(("personal_note", "personal_note_2", "personal_note_3"), "note"),
}  # all other codes are of custom fields
_REWRITES: Final = {
    kind: [(rule, RuleFinding(name, what, remedy, name in LOST)) for kinds, rule, name, what, remedy in REWRITES if kind in kinds]
    for kind in ALL_KINDS
}
_JUDGES: Final = {kind: [judge for kinds, judge in JUDGES if kind in kinds] for kind in ALL_KINDS}
_EXACT_DIGITS: Final = 15  # maximum number of digits that both a float and a spreadsheet preserve
_MOST_CHARACTERS: Final = 1000  # of an e-mail address, a number or a date
_MOST_ROUNDS: Final = 8  # more than this, and somebody nested notations to keep the processor busy


_HOPELESS: Final = RuleFinding("long", "is too long or too often encoded", "enter the value again", damaged=True)


def read_value(code: str, text: str) -> tuple[str, tuple[Change, ...]]:
    """Return the value to send in the field `code`, and what was changed or found.

    A blank text is an empty value, which is no change. The value is read as itself.
    """
    kind = _KINDS.get(code, "custom")
    if not text.strip(AROUND):
        return "", ()
    rewritten = _rewrite(kind, text)
    if rewritten is None:
        return text, (_describe(text, _HOPELESS, None),)
    value, found = rewritten
    judged = [judgement for judge in _JUDGES[kind] if (judgement := judge(kind, value))] if value else []
    if damage := next((finding for finding in (*found.values(), *judged) if finding.damaged), None):
        return text, (_describe(text, damage, None),)  # then nothing of the text is sent
    kinds = found.keys() - {"blanks"} or found.keys()  # blanks around a text matter only alone
    reported = [finding for each, finding in found.items() if each in kinds] if value else [*found.values()][-1:]
    return value, (*(_describe(text, finding, value) for finding in reported), *(_describe(text, each, None) for each in judged))


def _rewrite(kind: FieldKind, text: str) -> tuple[str, Mapping[str, RuleFinding]] | None:
    """Return a text that no rewrite changes, and the first finding of each kind that led to it; `None` for a hopeless text."""
    found: dict[str, RuleFinding] = {}
    if len(text) > _MOST_CHARACTERS and kind in {"email", "phone", "zip", "date"}:
        return None
    for _ in range(_MOST_ROUNDS):
        if not text.isascii() and find_mojibake(text):  # its blanks and soft hyphens are halves of letters
            return text, found
        before = text
        for rewrite, finding in _REWRITES[kind]:
            if (value := rewrite(kind, text)) != text:
                found.setdefault(finding.kind, finding)
                text = value
        if text == before or not text:
            return text, found
    return None


def _describe(text: str, finding: RuleFinding, value: str | None) -> Change:
    kind, what, remedy, damaged, detail = finding
    sent = "" if value is None else f" and is sent as {show_name(value)}" if value else " and is not sent"
    return Change(kind, f"{show_name(text)} {what}{detail}{sent}; {remedy}", f"{what}; {remedy}", value, damaged)


# The search for texts that may be changed. Nearly all texts are plain, so it looks at all texts of a column at once.

_ALNUM: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_NOT_ASCII: Final = bytes(range(0x80, 0x100))
_TEXT_CHARACTERS: Final = _ALNUM + b"\n .,()/!?@$~^&*-"
_PLAIN: Final[Mapping[FieldKind, bytes]] = {
    **dict.fromkeys(ALL_KINDS, _TEXT_CHARACTERS),
    "email": _ALNUM + b"\n@.+-",
    "phone": b"\n0123456789 ()+.-",
    "zip": _ALNUM + b"\n -",
    "date": b"\n0123456789-",
    "url": _ALNUM + b"\n/.~?+@!$*()-",
}
"""The characters of ASCII that no rule looks for, unless they are in one of the words below, or a blank is around the text."""
_TEXT_HINTS: Final[Mapping[int, tuple[str, ...]]] = {
    ord(char): hints
    for char, hints in {
        **dict.fromkeys("#]}>\\`", ()),
        "'": ("\n'",),
        '"': ('\n"',),
        ";": ("&",),
        ":": (":::",),
        "_": ("_x",),
        "=": ("\n=", "=?"),
        "%": ("\n%",),
        "[": ("\n[",),
        "{": ("\n{", "\n$"),
        "<": ("\n<",),
        "|": ("*|",),
        "+": ("E+", "e+"),
    }.items()
}
"""Other characters of texts, and what texts with this character must contain if a rule is for one of them."""
_HINTS: Final[Mapping[FieldKind, Mapping[int, tuple[str, ...]]]] = {
    **dict.fromkeys(ALL_KINDS, _TEXT_HINTS),
    "phone": {},
    "zip": {},
    "date": {},
    "email": {ord("_"): ("_x",)},
    "url": {**{ord(char): () for char in "&#"}, **{ord(char): _TEXT_HINTS[ord(char)] for char in ":_=%"}},
}
_WORDS: Final = {kind: MISSING[kind] | ERRORS | SURNAMES.get(kind, frozenset()) for kind in ALL_KINDS}
# The first letters of UTF-8 in a wrong encoding, and all that is invisible, blank or wide.
_ODD: Final = re.compile(
    "[\x80-\xa0\xab\xad\u061c\u115f\u1160\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ufeff\uff00-\uffef"
    "\xc2-\xc5\xd0\xd1\xe2\xf0\ud800-\udfff]"
)
_PHONE_LENGTHS: Final = frozenset(range(7, 16))
_DATE_LENGTHS: Final = frozenset({len("2024"), len("2024-05"), len("2024-05-01")})
_FEW: Final = 8  # texts


def find_suspects(code: str, texts: Collection[str]) -> set[str]:
    """Return the texts that `read_value` may change, or find something in. It takes a fiftieth of the time of reading them."""
    return {*find_odd(texts, partial(_are_plain, _KINDS.get(code, "custom")))}


def find_odd(texts: Collection[str], are_plain: Callable[[Collection[str]], bool]) -> Collection[str]:
    """Return the texts that are not plain. Halves are judged as a whole: one odd text must not cost a look at every other."""
    if are_plain(texts):
        return ()
    if len(texts) <= _FEW:
        return [text for text in texts if not are_plain((text,))]
    values = [*texts]
    half = len(values) // 2
    return [*find_odd(values[:half], are_plain), *find_odd(values[half:], are_plain)]


def _are_plain(kind: FieldKind, texts: Collection[str]) -> bool:
    """Return true only if no rule for this kind of field changes one of the texts, or reports it."""
    values = [*filter(None, texts)]
    if not values:
        return True
    lines = "\n".join(("", *values, ""))
    is_ascii = lines.isascii()
    if not is_ascii and (kind in CODES or _ODD.search(lines)):
        return False
    encoded = lines.encode()
    others = encoded.translate(None, _PLAIN[kind] if is_ascii else _PLAIN[kind] + _NOT_ASCII)
    hints = _HINTS[kind]
    if others and not all((hint := hints.get(char)) is not None and not any(map(lines.__contains__, hint)) for char in {*others}):
        return False
    if lines.count("\n") != len(values) + 1 or "\n " in lines or " \n" in lines or not _WORDS[kind].isdisjoint(texts):
        return False
    return _have_plain_forms(kind, encoded, values)


def _have_plain_forms(kind: FieldKind, encoded: bytes, values: Sequence[str]) -> bool:
    match kind:
        case "phone":
            digits = encoded.translate(None, b" ()+.-")[1:-1].split(b"\n")
            return _PHONE_LENGTHS.issuperset(map(len, digits)) and b".0\n" not in encoded and b".00\n" not in encoded
        case "date":
            return _DATE_LENGTHS.issuperset(map(len, values))
        case "email":
            return b".\n" not in encoded and max(map(len, values)) <= _MOST_CHARACTERS
        case "url":
            return b".\n" not in encoded
        case "zip":
            return max(map(len, values)) <= _MOST_CHARACTERS
        case _:
            return True
