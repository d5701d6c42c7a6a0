r"""What is done to a text before it is a value: small rules, each for one thing that spreadsheets and people do to cells.

A rewrite returns another text, or the same; a judge only reports. Rewrites run in the order of `REWRITES`, again and again until
none changes the text, and then the judges: so a value that was read once is not changed by reading it again.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable
from datetime import date, timedelta
from html.entities import name2codepoint
from typing import Final, Literal, NamedTuple, TypeAlias, get_args

from outreach_async._core.value_words import ERRORS, MISSING, PLACEHOLDER, SURNAMES

FieldKind: TypeAlias = Literal["email", "phone", "zip", "date", "url", "name", "place", "text", "note", "custom"]


class RuleFinding(NamedTuple):
    """What a rule found: its kind, what is the matter, and the remedy. Of a `damaged` text, nothing is sent."""

    kind: str
    what: str
    remedy: str
    damaged: bool = False
    detail: str = ""  # of this text alone


Rewrite: TypeAlias = Callable[[FieldKind, str], str]
Judge: TypeAlias = Callable[[FieldKind, str], RuleFinding | None]

CODES: Final[frozenset[FieldKind]] = frozenset({"email", "phone", "zip", "date", "url"})
"""Fields whose values have a form of their own."""
_LITERAL: Final = frozenset({"note", "custom"})  # fields whose values are sent to the letter, except for what is never meant
_NUMBERS: Final[frozenset[FieldKind]] = frozenset({"phone", "zip", "date"})
_DIGITS: Final[frozenset[FieldKind]] = frozenset({"phone", "zip"})
_PHONE: Final[frozenset[FieldKind]] = frozenset({"phone"})

# Characters.

_SPACES: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))  # also tabs, line breaks and the separators 0x1C to 0x1F
_INVISIBLE: Final = "\xad\u061c\u180e\u200b\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2060\u2066\u2067\u2068\u2069\ufeff"
_FILLERS: Final = "\u115f\u1160\u2800\u3164\uffa0"  # letters and symbols without ink
_JOINERS: Final = "\u200c\u200d"  # parts of words in Persian and in Indic scripts, and of emoji
AROUND: Final = _SPACES + _INVISIBLE + _FILLERS
_WITHOUT_BLANKS: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese and Khmer, with 200B between words
_HIDDEN: Final = re.compile(f"(?!(?<=[{_WITHOUT_BLANKS}])\u200b)[{_INVISIBLE}]")
_HIDDEN_IN_CODES: Final = re.compile(f"[{_INVISIBLE}{_JOINERS}]")
_ESCAPED: Final = re.compile(r"(?<!_x005F)_x(00[01][0-9A-F]|00[789][0-9A-F]|00A0|200B|FEFF)_", re.IGNORECASE)
_ESCAPED_AT_END: Final = re.compile(rf"{_ESCAPED.pattern}(?=[\r\n]|_x|\Z)", re.IGNORECASE)  # as a carriage return is
_BREAKS: Final = re.compile(r"[\t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+")
_LITERAL_BREAKS: Final = re.compile(r"[\v\f]|\r(?!\n)")
_CONTROLS: Final = re.compile(r"[\x01-\x08\x0e-\x1f\x7f]")
_C1: Final = re.compile("[\x80-\x84\x86-\x9f]")
_WIDE: Final = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}  # the ASCII characters that East Asian keyboards write
_DASHES: Final = dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe63\uff0d"), "-")
_OTHER_SIGNS: Final = "has digits, signs or blanks other than those of ASCII"
_HOST: Final = re.compile(r"(?:[a-z]+://)?[^/?#]*", re.IGNORECASE)
_BLANKS: Final = dict.fromkeys(map(ord, "\xa0\u1680\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))), " ")


def _unescape(kind: FieldKind, text: str) -> str:
    return (_ESCAPED_AT_END if kind in _LITERAL else _ESCAPED).sub(lambda found: chr(int(found[1], 16)), text)


def _unquote(kind: FieldKind, text: str) -> str:
    """Remove the quotes around a code, and those that follow a blank, which a reader of CSV takes for a part of the cell."""
    plain = text.strip(AROUND)
    if kind in CODES:
        inner = plain[1:-1] if len(plain) > 1 and plain[0] + plain[-1] in _QUOTES else plain
    else:
        inner = quoted[1] if text[:1].isspace() and (quoted := _QUOTED.fullmatch(plain)) else plain
    return text if inner == plain else inner.replace('""', '"')


_QUOTES: Final = frozenset({'""', "''", "``", "\u201c\u201d", "\u201e\u201c", "\u2018\u2019", "\xab\xbb"})
_QUOTED: Final = re.compile(r'"((?:[^"]|"")*)"', re.DOTALL)


def _trim(kind: FieldKind, text: str) -> str:
    value = text.strip(AROUND + _JOINERS if kind in CODES else AROUND).lstrip(_JOINERS)
    # A joiner at the end is a letter of some scripts, but never of Latin script.
    return plain if (plain := value.rstrip(_JOINERS)).isascii() else value


def _drop_hidden(kind: FieldKind, text: str) -> str:
    latin = _HIDDEN_IN_CODES.sub("", text)
    return latin if kind in _NUMBERS or latin.isascii() else _HIDDEN.sub("", text)


def _narrow(kind: FieldKind, text: str) -> str:
    """Write a code, or the blanks in the name of a place, with the characters of ASCII that are meant."""
    value = text.translate(_BLANKS)
    if kind in CODES:
        end = host.end() if kind == "url" and (host := _HOST.match(value)) else len(value)  # a path may have wide characters
        value = value[:end].translate(_WIDE) + value[end:]
    if kind in _NUMBERS:
        value = "".join(str(int(sign)) if sign.isdecimal() else sign for sign in value.translate(_DASHES))
    return value


def _join_lines(kind: FieldKind, text: str) -> str:
    if kind in _LITERAL:
        return _LITERAL_BREAKS.sub("\n", text)
    return " ".join(part.strip(" ") for part in _BREAKS.split(text)) if _BREAKS.search(text) else text


def _drop_controls(_kind: FieldKind, text: str) -> str:
    return _CONTROLS.sub("", text)


def _restore_signs(_kind: FieldKind, text: str) -> str:
    # Bytes of Windows-1252 that were read as Latin-1: quotes, dashes and the euro sign became control characters.
    return _C1.sub(lambda found: found[0].encode("latin-1").decode("cp1252", "ignore") or found[0], text)


# Guards of spreadsheets, and the labels of other programs.

_FORMULA: Final = re.compile(r'"?=\s*(?:(?P<quotes>"{1,4})(?P<bare>[^"]*)(?P=quotes)"{0,4}|"(?P<quoted>(?:[^"]|"")*)")\s*')
_TEXT_FORMULA: Final = re.compile(r'=\s*(?:T|TEXT|TRIM|CLEAN)\(\s*"([^"]*)"[^"()]*(?:"[^"]*")?\s*\)', re.IGNORECASE)
_HYPERLINK: Final = re.compile(r'=\s*HYPERLINK\(\s*"([^"]*)"\s*(?:[,;]\s*"([^"]*)"\s*)?\)', re.IGNORECASE)
_YEAR: Final = re.compile("'[0-9]{2}")  # of a century that is not said
_APOSTROPHE: Final = re.compile(r"'(?![0-9]{2}\Z)(?=[=+@-]|[0-9][0-9 .,/()+-]*\Z)")
_CODE_GUARD: Final = re.compile(r"\A(?:['\u2018\u2019`\xb4]+(?=[^'\u2018\u2019`\xb4])|=+\s*(?=[+(0-9]))")


def _unguard(kind: FieldKind, text: str) -> str:
    """Remove what keeps a spreadsheet from changing a text: an apostrophe, or a formula whose result is the text."""
    if formula := _FORMULA.fullmatch(text):
        return formula["bare"] if formula["quotes"] else formula["quoted"].replace('""', '"')
    if formula := _TEXT_FORMULA.fullmatch(text):
        return formula[1]
    if formula := _HYPERLINK.fullmatch(text):
        return formula[1] if kind in {"email", "url"} else formula[2] or formula[1]
    if kind in _NUMBERS:
        return text if kind == "date" and _YEAR.fullmatch(text) else _CODE_GUARD.sub("", text)
    return text[1:] if _APOSTROPHE.match(text) and not text.endswith("'") else text


_PHONE_WORDS: Final = (
    r"telephone|telefono|telefon|t\xe9l\xe9phone|t\xe9l|tel|phone|ph|mobile|mobil|mob|cellphone|cell|handy|work|home|office"
    r"|direct|main|whatsapp|callto|sms|\u0442\u0435\u043b\u0435\u0444\u043e\u043d|\u0442\u0435\u043b|\u043c\u043e\u0431"
    r"|\u7535\u8bdd|\u96fb\u8a71|\u624b\u673a|\u624b\u6a5f|\u643a\u5e2f|\uc804\ud654"
)
_PHONE_LABEL: Final = re.compile(
    rf"(?:(?:{_PHONE_WORDS})[\s.:]*|[cdhmoptw]\s*[.:]+\s*)(?=[+(0-9<{{])|(?-i:[A-Z]{{2}})[\s.:]*(?=\+)", re.IGNORECASE
)
_PHONE_NOTE: Final = re.compile(
    rf"(?<=[0-9])\s*(?:[(\[](?:{_PHONE_WORDS}|[a-z]|(?-i:[A-Z]{{2}}))[)\]]|(?:<br\s*/?>)+)\Z", re.IGNORECASE
)
_ZIP_LABEL: Final = re.compile(r"z(?:ip)?\s*:\s*", re.IGNORECASE)


def _unlabel(kind: FieldKind, text: str) -> str:
    label = (_PHONE_LABEL if kind == "phone" else _ZIP_LABEL).match(text)
    value = text[label.end() :] if label else text
    return _PHONE_NOTE.sub("", value) if kind == "phone" else value


# Notations of HTML and of mail.

_ENTITY: Final = re.compile(
    r"&(?:amp;|#0*38;|#[xX]0*26;)*(#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,7});"  # also encoded several times
)
_TAG: Final = re.compile(r"</?(?:a|b|i|u|p|br|div|span|strong|em|ul|ol|li|h[1-6]|img|table|tr|td|font)\b[^<>]*>", re.IGNORECASE)
_LAST_LETTER: Final = 0x2100  # the characters above are symbols of mathematics, which nobody writes by name in a cell
_NAMES: Final = {name: chr(code) for name, code in name2codepoint.items() if code < _LAST_LETTER} | {
    "apos": "'",
    "trade": "\u2122",
}
_WORD: Final = re.compile(r"=\?([A-Za-z0-9_.:-]+)(?:\*[A-Za-z-]+)?\?([bBqQ])\?([^?]*)\?=")
_BETWEEN_WORDS: Final = re.compile(r"(?<=\?=)\s+(?==\?)")


def _decode_entities(_kind: FieldKind, text: str) -> str:
    is_link_or_html = "://" in text or text.startswith("www.") or _TAG.search(text)
    return text if is_link_or_html else _ENTITY.sub(_decode_entity, text)


def _decode_entity(found: re.Match[str]) -> str:
    name = found[1]
    if not name.startswith("#"):
        return _NAMES.get(name, found[0])
    char = html.unescape(f"&{name};")
    return char if char and char != "\ufffd" else found[0]


def _decode_words(_kind: FieldKind, text: str) -> str:
    if not _WORD.search(text):
        return text
    try:
        return _WORD.sub(_decode_word, _BETWEEN_WORDS.sub("", text))
    except (LookupError, ValueError):
        return text


def _decode_word(found: re.Match[str]) -> str:
    import binascii

    charset, notation, text = found[1], found[2].upper(), found[3].encode("ascii")
    if notation == "B":
        return binascii.a2b_base64(text + b"=" * (-len(text) % 4)).decode(charset)
    return binascii.a2b_qp(text, header=True).decode(charset)


# Texts that are no value.


def _clear_error(_kind: FieldKind, text: str) -> str:
    return "" if text in ERRORS else text


def _clear_missing(kind: FieldKind, text: str) -> str:
    return "" if text in MISSING[kind] else text


def _clear_placeholder(_kind: FieldKind, text: str) -> str:
    return "" if PLACEHOLDER.fullmatch(text) else text


# Numbers and dates.

# The forms in which programs write a whole number stored as a float or a decimal. Three zeros are thousands: `1,000`.
_DECIMALS: Final = "is a number with decimals, so leading zeros or a plus sign may be lost,"
_DECIMAL: Final = re.compile(r"([0-9]{1,15})[.,]0{1,2}")
_SCIENTIFIC: Final = re.compile(r"[+-]?[0-9](?:[.,][0-9]+)?E\+[0-9]{2,}", re.IGNORECASE)  # the form that spreadsheets write
_MIDNIGHT: Final = re.compile(
    r"([0-9]{1,4}([-./])[0-9]{1,2}\2[0-9]{1,4})[T ]+(?:0{1,2}:00(?::00(?:[.,]0+)?)?|12:00(?::00)? ?AM)"
    r"(?: ?(?:Z|UTC|GMT|[+-][0-9]{2}:?[0-9]{2}))?",
    re.IGNORECASE,
)
_SERIAL: Final = re.compile(r"[2-5][0-9]{4}(?:\.[0-9]+)?")
_FIRST_DAY: Final = date(1899, 12, 30)  # of the serial numbers of spreadsheets


def _drop_decimals(_kind: FieldKind, text: str) -> str:
    return number[1] if (number := _DECIMAL.fullmatch(text)) else text


def _drop_midnight(_kind: FieldKind, text: str) -> str:
    return found[1] if (found := _MIDNIGHT.fullmatch(text)) else text


# Addresses and numbers inside other text.

_ADDRESS: Final = r"[^\s@,;|<>()\[\]\"]+@[^\s@,;|<>()\[\]\"/&:?]+\.[^\s@,;|<>()\[\]\"/&:?]+"
_ONE_ADDRESS: Final = re.compile(_ADDRESS)
_IN_ANGLES: Final = re.compile(rf"<\s*(?:mailto:)?\s*({_ADDRESS})\s*(?:\?[^<>]*)?(?:>|\Z)", re.IGNORECASE)
_MARKDOWN: Final = re.compile(rf"\[[^\[\]]*\]\(\s*<?(?:mailto:)?(?P<address>{_ADDRESS})(?:\?[^()]*)?>?\s*\)", re.IGNORECASE)
_MAILTO: Final = re.compile(rf"(?:mailto|smtp|e-?mail)\s*:[/\s]*(?P<address>{_ADDRESS})(?:\?.*)?", re.IGNORECASE)
_HREF: Final = re.compile(
    rf"<a\s[^<>]*href=(?P<quote>[\"']?)mailto:(?P<address>{_ADDRESS}?)(?:\?[^<>]*)?(?P=quote)[\s>].*", re.IGNORECASE | re.DOTALL
)
_COMMENTED: Final = re.compile(rf"(?P<address>{_ADDRESS})\s*\([^()@]*\)")
_LINK: Final = re.compile(r"(?:\[[^\[\]]*\]\(|<)\s*([^\s<>()]+)\s*[)>]")
_SEPARATORS: Final = re.compile(r"[\s,;|]+|:::")
_AND: Final = frozenset({"and", "or", "und", "oder", "et", "ou", "y", "o", "e", "&", "/", "+"})
_SEVERAL: Final = ":::"  # the separator with which Google Contacts writes several values into one cell
_PHONE_SEPARATORS: Final = re.compile(r"\s*(?:[\n\r,;|/&]|:::|\b(?:and|or|und|oder|et|ou)\b)\s*", re.IGNORECASE)
_TWO_ENDS: Final = re.compile(r"(.*[0-9])\s*[/&]\s*([0-9]{1,2})", re.DOTALL)  # 030 901820/21 is also 030 901821
_LEAST_DIGITS, _MOST_DIGITS, _LEAST_WITH_AREA = 7, 15, 9  # of a phone number


def _take_address(_kind: FieldKind, text: str) -> str:
    """Take an e-mail address out of `Name <a@b>`, of a link, and of the punctuation of the list that it was copied from."""
    value = text if _ANY_ENTITY.search(text) else text.strip(",;").rstrip(".")
    for form in (_MARKDOWN, _MAILTO, _HREF, _COMMENTED):
        if found := form.fullmatch(value.strip()):
            return found["address"]
    return addresses[0] if len(addresses := _IN_ANGLES.findall(value)) == 1 else value


def _take_link(_kind: FieldKind, text: str) -> str:
    value = text.strip(",;")
    if "/" not in value.replace("://", ""):
        value = value.rstrip(".")  # a path may end with a dot
    return found[1] if (found := _LINK.fullmatch(value)) and "." in found[1] else value


def _take_first(kind: FieldKind, text: str) -> str:
    values = _split_values(kind, text)
    return values[0] if len(values) >= (1 if _SEVERAL in text else 2) else text


def _split_values(kind: FieldKind, text: str) -> list[str]:
    """Return the values of a cell if it has several; fewer than two if it has one, or may have one."""
    if _SEVERAL in text:
        return [value.strip() for value in text.split(_SEVERAL) if value.strip()]
    if kind == "email":
        if len(values := _IN_ANGLES.findall(text)) > 1:
            return values
        return _keep_all(_ONE_ADDRESS, (part for word in _SEPARATORS.split(text) for part in _split_addresses(word)))
    if kind == "url":
        return _keep_all(_ONE_LINK, _SEPARATORS.split(text))
    return _split_numbers(text) if kind == "phone" else []


def _split_numbers(text: str) -> list[str]:
    if (ends := _TWO_ENDS.fullmatch(text)) and _count_digits(ends[1]) >= _LEAST_WITH_AREA:
        return [*ends.groups()]
    values = [value for value in _PHONE_SEPARATORS.split(text) if value]
    least = _LEAST_WITH_AREA if "/" in text else _LEAST_DIGITS  # a slash also separates an area code from a number
    return values if all(least <= _count_digits(value) <= _MOST_DIGITS for value in values) else []


_ONE_LINK: Final = re.compile(r"(?:https?://|www\.)[^\s,;|]+", re.IGNORECASE)


def _split_addresses(word: str) -> list[str]:
    return word.split("/") if word.count("@") > 1 else [word]


def _keep_all(form: re.Pattern[str], words: Iterable[str]) -> list[str]:
    values = [word for word in words if word and word not in _AND]
    return values if all(map(form.fullmatch, values)) else []


def _count_digits(text: str) -> int:
    return sum(map(str.isdecimal, text))


# The notations of phone numbers.

PHONE_EXTENSION: Final = re.compile(r"(?:#|,|;|x|ext\.?|extension)\s*[0-9]{1,7}\s*\Z", re.IGNORECASE)
_OTHER_EXTENSION: Final = re.compile(
    r"[\s(\[,;/-]*(?:extension|extn|ext|x|poste|durchwahl|dw|app|int|interno|anexo|ramal|\u0434\u043e\u0431"
    r"|\u5185\u7dda|\u5206\u6a5f|\u5206\u673a|\u8f49|\u8f6c|\ub0b4\uc120)\s*[.:=#]?\s*([0-9]{1,7})\s*[)\]]?\Z",
    re.IGNORECASE,
)
_DIALLED: Final = re.compile(r"\A(?:0011|011|00)[ .-]*(?=[1-9])")  # before calling codes, from Australia, the US and elsewhere
_AREA_CODE: Final = re.compile(r"([+(0-9][0-9 ().-]{1,12}?(?:/[0-9]{1,5})?)\s*/\s*([0-9][0-9 .-]{3,})")
_AROUND_PHONE: Final = re.compile(r"\A[^\w().+\0\ud800-\udfff-]+|[^\w().+\0\ud800-\udfff-]+\Z")
_BETWEEN_DIGITS: Final = re.compile(r"\+?[0-9]{1,4}([_\xb7\u2022\\:|*])[0-9]{2,}(?:\1[0-9]{2,})+")
_BRACKETS: Final = str.maketrans("[]", "()")
_MOST_OF_AREA: Final = 7  # digits of an area code with the calling code of its country


def _write_phone(_kind: FieldKind, text: str) -> str:
    value = _AROUND_PHONE.sub("", text.translate(_BRACKETS))
    if not PHONE_EXTENSION.search(value) and (extension := _OTHER_EXTENSION.search(value)):
        return f"{value[: extension.start()]} ext. {extension[1]}"
    if (parts := _AREA_CODE.fullmatch(value)) and _count_digits(parts[1]) <= _MOST_OF_AREA:
        return re.sub(r"\s*/\s*", " ", value)
    if signs := _BETWEEN_DIGITS.fullmatch(value):
        return value.replace(signs[1], " ")
    return _DIALLED.sub("+", value) if _count_digits(value) > _MOST_DIGITS else value


def _judge_phone(_kind: FieldKind, text: str) -> RuleFinding | None:
    number = PHONE_EXTENSION.sub("", text)
    digits = _count_digits(number)
    if any(map(str.isalpha, number)):
        return RuleFinding("phone", "has letters, and is no phone number", "enter the number again", damaged=True)
    if not _LEAST_DIGITS <= digits <= _MOST_DIGITS:
        what = f"has fewer than {_LEAST_DIGITS} digits" if digits < _LEAST_DIGITS else f"has more than {_MOST_DIGITS} digits"
        return RuleFinding("phone", f"{what}, and is no phone number", "enter the number again", damaged=True)
    return None


# Other judges.

_UNSENDABLE: Final = re.compile("[\0\ud800-\udfff]")
# UTF-8 read as Windows-1252: the first byte of a Latin, Cyrillic, punctuation or emoji character, then its continuation bytes.
_CONTINUATION: Final = f"[\x80-\x9f{bytes(range(0x80, 0xC0)).decode('cp1252', 'ignore')}]"
_MOJIBAKE: Final = re.compile(
    f"[\xc2-\xc5]{_CONTINUATION}|(?:[\xd0\xd1]{_CONTINUATION}){{2,}}|\xe2{_CONTINUATION}{{2}}|\xf0{_CONTINUATION}{{3}}"
)
_ANY_ENTITY: Final = re.compile(r"&#?[A-Za-z0-9]{2,8};")


def _judge_characters(_kind: FieldKind, text: str) -> RuleFinding | None:
    if not (found := _UNSENDABLE.search(text)):
        return None
    what = "a NUL character" if found[0] == "\0" else "a lone surrogate (half a character)"
    return RuleFinding("unsendable", f"contains {what}", "remove it", damaged=True)


def _judge_number(kind: FieldKind, text: str) -> RuleFinding | None:
    if not _SCIENTIFIC.fullmatch(text):
        return None
    what = "is a long number that a spreadsheet shortened, and its digits are lost"
    return RuleFinding("scientific", what, "enter it again as text", damaged=kind in _NUMBERS)


def find_mojibake(text: str) -> tuple[str, str] | None:
    """Return the first characters that were read in the wrong encoding, and what is probably meant."""
    for garbled in _MOJIBAKE.finditer(text):
        # Windows-1252 does not define some bytes. It is assumed that such a byte was decoded as Latin-1.
        try:
            bytes_read = (char.encode("cp1252" if ord(char) > 0xFF else "latin-1") for char in garbled[0])  # noqa: PLR2004 - a byte
            return garbled[0], b"".join(bytes_read).decode()
        except UnicodeDecodeError:
            continue
    return None


def _judge_encoding(_kind: FieldKind, text: str) -> RuleFinding | None:
    if text.isascii():
        return None
    if garbled := find_mojibake(text):
        detail = f": {garbled[0]!r} is probably {garbled[1]!r}"
        return RuleFinding("mojibake", "was read in the wrong encoding", "export the file again as UTF-8", detail=detail)
    if _C1.search(text):
        return RuleFinding("control", "has control characters", "remove them, or export the file again as UTF-8")
    return None


def _judge_notation(kind: FieldKind, text: str) -> RuleFinding | None:
    if text.startswith("'") and (kind == "email" or _YEAR.fullmatch(text)):
        return RuleFinding("guard", "begins with an apostrophe", "remove it, unless it is a part of the value")
    if kind == "url" and text.endswith("."):
        return RuleFinding("address", "ends with a dot", "remove it, unless it is a part of the link")
    if kind in {"email", "url"}:
        if _ANY_ENTITY.search(text):
            return RuleFinding(
                "entity", "has characters that may be in the notation of HTML, such as &#64;", "write them as text"
            )
    elif "_x" in text and _ESCAPED.search(text):
        return RuleFinding("escape", "may have characters in the notation of workbooks, such as _x000D_", "remove them")
    elif "=?" in text and _WORD.search(text):
        return RuleFinding("encoded", "is in the notation of e-mail headers, in an unknown encoding", "write it as text")
    return None


def _judge_words(kind: FieldKind, text: str) -> RuleFinding | None:
    if text not in SURNAMES.get(kind, frozenset()):
        return None
    return RuleFinding("missing", "may stand for a missing value", "clear the cell, unless it is meant")


def _judge_date(_kind: FieldKind, text: str) -> RuleFinding | None:
    if not _SERIAL.fullmatch(text):
        return None
    day = _FIRST_DAY + timedelta(int(text[:5]))
    what = "may be the number of a date in a spreadsheet"
    return RuleFinding("serial", what, "format the cell as a date, and export it as YYYY-MM-DD", detail=f": {day}")


ALL_KINDS: Final[tuple[FieldKind, ...]] = get_args(FieldKind)
_ALL: Final = frozenset(ALL_KINDS)
_SINGLE: Final = _ALL - _LITERAL

REWRITES: Final[tuple[tuple[frozenset[FieldKind], Rewrite, str, str, str], ...]] = (
    (_ALL, _unescape, "escape", "has characters in the notation of workbooks, such as _x000D_", "remove them"),
    (_ALL, _unquote, "quotes", "has quotes around it", "remove them"),
    (_ALL, _trim, "blanks", "has blanks or invisible characters around it", "remove them"),
    (
        _ALL,
        _unguard,
        "guard",
        "begins with an apostrophe or a formula, which keeps a spreadsheet from changing it",
        "remove it",
    ),
    (_SINGLE, _drop_hidden, "hidden", "has invisible characters", "remove them"),
    (CODES | {"place"}, _narrow, "width", _OTHER_SIGNS, "write them as on an English keyboard"),
    (_SINGLE, _take_first, "several", "has several values", "keep one value in a cell"),
    (_ALL - CODES, _restore_signs, "mojibake", "was read in the wrong encoding", "export the file again as UTF-8"),
    (_ALL, _join_lines, "lines", "has a line break or a tab", "write it in one line"),
    (_ALL, _drop_controls, "control", "has control characters", "remove them"),
    (_DIGITS, _unlabel, "label", "has a label", "keep only the number"),
    (_ALL - {"email", "url"}, _decode_entities, "entity", "has characters in the notation of HTML", "write them as text"),
    (_ALL, _decode_words, "encoded", "is in the notation of e-mail headers", "write it as text"),
    (_ALL, _clear_error, "error", "is an error of a program", "fix the formula, or clear the cell"),
    (_ALL, _clear_missing, "missing", "stands for a missing value", "clear the cell"),
    (_SINGLE, _clear_placeholder, "placeholder", "is a placeholder that was never filled", "clear the cell"),
    (_DIGITS, _drop_decimals, "decimal", _DECIMALS, "format the cell as text"),
    (frozenset({"date"}), _drop_midnight, "time", "is a date with the time of midnight", "keep only the date"),
    (frozenset({"email"}), _take_address, "address", "has more than the address", "keep only the address"),
    (frozenset({"url"}), _take_link, "address", "has more than the address", "keep only the address"),
    (
        _PHONE,
        _write_phone,
        "notation",
        "is a phone number in an unusual notation",
        "write it as in +1 206 555 0100 ext. 7",
    ),
)
"""The rules that change a text, in order: for which fields, and the kind of the change, what is the matter and the remedy."""
LOST: Final = frozenset({"error", "placeholder"})
"""The kinds of changes after which a text is damaged: it had a value, or should have got one."""

JUDGES: Final[tuple[tuple[frozenset[FieldKind], Judge], ...]] = (
    (_ALL, _judge_characters),
    (_ALL - {"email", "date", "url"}, _judge_number),
    (_PHONE, _judge_phone),
    (_ALL, _judge_encoding),
    (_ALL, _judge_notation),
    (_ALL, _judge_words),
    (frozenset({"date"}), _judge_date),
)
"""The rules that report what is sent as it is, or what is lost."""
