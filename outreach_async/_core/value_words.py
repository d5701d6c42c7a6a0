"""Texts that are no value: errors of spreadsheets, what programs and people write for a missing value, and unfilled placeholders.

Case matters, because people are called Null and Nan. A text is in a set only as programs and people write it for no value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

ERRORS: Final = frozenset(
    {
        *("#N/A", "#REF!", "#NAME?", "#VALUE!", "#DIV/0!", "#NUM!", "#NULL!", "#SPILL!", "#CALC!", "#FIELD!", "#ERROR!"),
        *("#NV", "#BEZUG!", "#WERT!", "#ZAHL!", "#VALEUR!", "#NOM?", "#NOMBRE!"),
        *("#¡REF!", "#¿NOMBRE?", "#¡VALOR!", "#¡DIV/0!", "#¡NUM!", "#RIF!", "#NOME?", "#VALORE!", "#N/D", "#VALOR!", "#NÚM!"),
        *("#N/B", "#VERW!", "#NAAM?", "#WAARDE!", "#DEEL/0!", "#GETAL!"),
        *("#N/D!", "#ADR!", "#NAZWA?", "#ARG!", "#DZIEL/0!", "#LICZBA!", "#ODKAZ!", "#NÁZEV?", "#HODNOTA!", "#ČÍSLO!"),
        *("#\u041d/\u0414", "#ССЫЛКА!", "#ИМЯ?", "#ЗНАЧ!", "#ДЕЛ/0!", "#ЧИСЛО!"),
        *("#YOK", "#BAŞV!", "#AD?", "#DEĞER!", "#SAYI/0!", "#SAYI!"),
        *("#SAKNAS!", "#REFERENS!", "#NAMN?", "#VÄRDEFEL!", "#DIVISION/0!", "#OGILTIGT!"),
        *("#I/T", "#REFERENCE!", "#NAVN?", "#VÆRDI!", "#VERDI!"),
        *("#PUUTTUU!", "#VIITTAUS!", "#NIMI?", "#ARVO!", "#JAKO/0!", "#LUKU!"),
        *("#HIÁNYZIK", "#HIV!", "#NÉV?", "#ÉRTÉK!", "#ZÉRÓOSZTÓ!", "#SZÁM!"),
        *("#GETTING_DATA", "#CONNECT!", "#BLOCKED!", "#UNKNOWN!", "#EXTERNAL!", "#BUSY!", "#PYTHON!", "#TIMEOUT!"),
        *("Loading...", "[object Object]"),
        *(f"Err:{number}" for number in range(501, 541)),
        *("#" * count for count in range(3, 33)),
    }
)
"""The errors of Excel in the languages of Europe that most people use it in, of Google Sheets and LibreOffice, and of JavaScript.

The signs `####` are what a narrow column shows instead of a number or a date, and what is copied from there.
"""

_BY_PROGRAMS: Final = frozenset(
    {
        *("NaN", "NaT", "<NA>", "\\N", "undefined", "(null)", "<null>", "<none>", "<empty>", "[null]"),
        *("(blank)", "(none)", "(empty)", "(not set)", "(not provided)", "(unknown)", "--None--", "-None-"),
    }
)
"""The texts that databases, spreadsheets, CRMs and programs write for a missing value, and that nobody is called."""
_EXACT: Final = frozenset({"NULL", "nan", "None"})  # of databases, pandas and Python; surnames in files without case
_BY_PEOPLE: Final = frozenset(
    {
        *("null", "none", "NONE", "nil", "NIL", "NAN", "N/A", "n/a", "N/a", "N.A.", "n.a.", "N/D", "n/d", "k.A.", "k. A."),
        *(
            "not available",
            "Not available",
            "Not Available",
            "NOT AVAILABLE",
            "not applicable",
            "Not applicable",
            "Not Applicable",
        ),
        *("not provided", "Not provided", "Not Provided"),
    }
)
_SIGNS: Final = frozenset(sign * count for sign in "-.?_\u2013\u2014*" for count in range(1, 6))
_ZERO_DATES: Final = frozenset(
    f"{day}{time}"
    for day in ("0000-00-00", "0001-01-01", "00/00/0000", "01/01/0001", "1/1/0001", "1900-01-00")
    for time in ("", " 00:00:00", "T00:00:00", " 00:00", " 0:00", " 12:00:00 AM", "T00:00:00Z", "T00:00:00.000Z")
)
_ANYWHERE: Final = _BY_PROGRAMS | _EXACT
_EVERYDAY: Final = _ANYWHERE | _BY_PEOPLE | _SIGNS

MISSING: Final[Mapping[str, frozenset[str]]] = {
    "name": _BY_PROGRAMS | _SIGNS,
    "email": _EVERYDAY | {"NA", "Na", "na"},
    "phone": _EVERYDAY | {"NA", "na"},
    "zip": _EVERYDAY | {"NA"},
    "date": _EVERYDAY | {"NA", "na"} | _ZERO_DATES,
    "url": _EVERYDAY | {"NA", "na", "http://", "https://", "http://www.", "https://www.", "www."},
    "place": _EVERYDAY,  # NA is Namibia, and a province of Italy
    "text": _EVERYDAY | {"NA"},
    "note": _ANYWHERE - {"None"},
    "custom": _ANYWHERE - {"None"},
}
"""The texts that are not sent, by kind of field."""

SURNAMES: Final[Mapping[str, frozenset[str]]] = {
    "name": _EXACT | _BY_PEOPLE | {"Null", "NA", "Na", "na", "Nil", "Nan"},
    "note": frozenset({"null", "None", "N/A", "n/a"}),
    "custom": frozenset({"null", "None", "N/A", "n/a"}),
}
"""The texts that are sent although they may stand for a missing value: in names they are also names."""

_FIELDS: Final = (
    r"(?:(?:contact|company|first|last|full|middle|job|your|recipient|prospect|lead)[ _.-]?)?"
    r"(?:name|title|company|email|e-mail|city|phone|country|firstname|lastname|fname|lname|companyname)"
)
PLACEHOLDER: Final = re.compile(
    r"\{{2,3}[^{}]{1,80}\}{2,3}|\{%[^{}]{1,80}%\}|\$\{[\w. ]{1,80}\}|\{![\w. ]{1,80}\}|\*\|[^|*]{1,80}\|\*|%%?[A-Za-z_]{2,40}%%?"
    rf"|<%=?[^<>%]{{1,80}}%>|<test lead: [^<>]{{0,200}}>|[\[{{<\xab][\[{{<%$]?{_FIELDS}[%$]?[\]}}>\xbb]{{1,2}}",
    re.IGNORECASE,
)
"""A whole text that a program should have replaced by a value, in the notations of tools for mailings and lead forms."""
