"""Group findings and failed rows by field and reason, with counts and a few examples: a million rows may share one reason."""

from __future__ import annotations

import re
from bisect import insort
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import attrs

from outreach_async import Outcome
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import Excluded, InvalidRequest, StatusError, shorten
from outreach_async.models import STANDARD_FIELDS

MAX_EXAMPLES: Final = 3
MAX_GROUPS: Final = 200  # a service may give every row a reason of its own
OTHER: Final = "other reasons"
_MAX_INSPECTED: Final = 1000  # characters of a message
_MAX_REASON: Final = 200
_MIN_VALUE: Final = 3  # characters: shorter values occur in other words
_VALUES: Final = re.compile(
    r"""(?<!\w)(?:(?P<quote>['"])(?:\\.|(?!(?P=quote)).)*(?P=quote)(?!\w))"""  # a quoted text, but no apostrophe in a word
    r"""|https?://\S+|[^\s@<>'"]+@[^\s@<>'"]+"""
    r"""|(?<![\w.+:#/-])(?!custom_\d)[\w.+:#/-]*\d(?:[\w.+:#/-]*[\w/])?""",  # a word with a digit, but no code of a field
    re.ASCII,
)
_GONE: Final = "..."
_SUGGESTION: Final = re.compile(r"; did you mean [^;?]*\.\.\.\?")
_COLUMN: Final = re.compile(r"((?:gate: )?(?:bounced: )?(?:column|the list) .*) (?:says|has) ", re.DOTALL)
_ANSWER_PREFIX: Final = re.compile(r"\A\w+: the service answered [0-9]+: ")
_LEADING_FIELD: Final = re.compile(r"(?P<field>[a-z][a-z0-9_]*): ")
_BODY_FIELD: Final = re.compile(rb'"(?:field|param|parameter|property)"\s*:\s*"(?P<field>[A-Za-z][A-Za-z0-9_.]{0,63})"')
_MESSAGE_FIELD: Final = re.compile(r"['\"]?(?P<field>[a-z][a-z0-9_]*)\b")
_CUSTOM_CODE: Final = re.compile(r"\bcustom_[0-9]+\b")


class FindingKey(NamedTuple):
    check: str
    level: str
    field: str
    reason: str


class RowKey(NamedTuple):
    """The outcome of a row that was not imported, and the status code of the service if it refused the row."""

    status: str
    status_code: int | None
    field: str
    reason: str


_Key = TypeVar("_Key", FindingKey, RowKey)


@attrs.define
class RowGroup(Generic[_Key]):
    r"""Findings or rows with one reason.

    Attributes:
        key: For findings, the check, its level, the field and the reason;
            for rows, the outcome, the status code of the service, the
            field and the reason.
        common: The message, if all have the same.
        count: Number of findings or rows.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,NULL\n")
        mapped = await ImportJob(file=open_file("people.csv")).map()
        (group,) = (await mapped.check()).findings
        print(group.key.check, group.count, group.examples[0]["line"])  # -> cells 1 2
        ```
    """

    key: _Key
    common: str | None
    count: int = 0
    _first: list[tuple[int, Mapping[str, Any]]] = attrs.Factory(list)

    @property
    def examples(self) -> list[Mapping[str, Any]]:
        """The first members by number, in order: rows complete in any order."""
        return [example for _, example in self._first]

    @property
    def messages(self) -> list[str]:
        """The messages of the examples, without what the group says already."""
        return [_ANSWER_PREFIX.sub("", str(each["message"])).removeprefix(f"{self.key.field}: ") for each in self.examples]

    def _offer(self, number: int, example: Callable[[], Mapping[str, Any]]) -> None:
        """Keep an example if few members have smaller numbers."""
        if len(self._first) < MAX_EXAMPLES or number < self._first[-1][0]:
            insort(self._first, (number, example()), key=itemgetter(0))
            del self._first[MAX_EXAMPLES:]


class Groups(Generic[_Key]):
    """Groups by key, the largest first. Their number is bounded: what exceeds it is counted as one group of each kind."""

    def __init__(self) -> None:
        self._groups: dict[_Key, RowGroup[_Key]] = {}
        self.count = 0

    def add(
        self, key: _Key, message: str, number: int = 0, example: Callable[[], Mapping[str, Any]] | None = None, count: int = 1
    ) -> None:
        """Count a member, or `count` of them. Its group keeps the example if few of its members have smaller numbers."""
        self.count += count
        if key not in self._groups and len(self._groups) >= MAX_GROUPS:
            key = key._replace(field="", reason=OTHER)
        group = self._groups.setdefault(key, RowGroup(key, message))
        if group.common != message:
            group.common = None
        group.count += count
        if example is not None:
            group._offer(number, example)  # noqa: SLF001 - of this module

    def __iter__(self) -> Iterator[RowGroup[_Key]]:
        return iter(sorted(self._groups.values(), key=lambda group: -group.count))

    def __len__(self) -> int:
        return len(self._groups)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the groups as they are in the JSON result of the command."""
        return [{**group.key._asdict(), "count": group.count, "examples": group.examples} for group in self]


def find_reason(message: str, values: Iterable[str] = ()) -> str:
    """Return a message without the values that differ from row to row: texts in quotes, addresses, numbers and `values`."""
    text = shorten(message, _MAX_INSPECTED)
    present = {value for value in values if len(value) >= _MIN_VALUE and value in text}
    return _remove_values(text, tuple(sorted(present, key=len, reverse=True)))


@lru_cache(maxsize=256)
def _remove_values(text: str, values: tuple[str, ...]) -> str:
    for value in values:
        text = re.sub(rf"(?<!\w){re.escape(value)}(?!\w)", _GONE, text)
    return shorten(_SUGGESTION.sub("", " ".join(_VALUES.sub(_GONE, text).split())), _MAX_REASON)


def excluded_reason(message: str, domains: Iterable[str]) -> str:
    found = _COLUMN.match(message)
    return shorten(found[1], _MAX_REASON) if found else find_reason(message, domains)


def find_field(outcome: ContactOutcome) -> str:
    """Return the fields named in an outcome's error, separated by commas."""
    # A local check names the field at the start of its message; the service names fields in its message or in the response body.
    error = outcome.error
    if isinstance(error, InvalidRequest):
        return match["field"] if (match := _LEADING_FIELD.match(str(error))) else ""
    if not isinstance(error, StatusError):
        return ""
    words = _ANSWER_PREFIX.sub("", str(error))
    leading = [match["field"] for part in words.split("; ") if (match := _MESSAGE_FIELD.match(part))]
    known = [name for name in leading if name in {"email", *STANDARD_FIELDS} or _CUSTOM_CODE.fullmatch(name)]
    if fields := known or _CUSTOM_CODE.findall(words)[:1]:
        return ", ".join(dict.fromkeys(fields))
    return named["field"].decode() if (named := _BODY_FIELD.search(error.body)) else ""


def row_key(outcome: ContactOutcome, message: str) -> RowKey:
    """Return the group of a row that was not imported; `message` is its error."""
    error, field = outcome.error, find_field(outcome)
    code = error.status_code if isinstance(error, StatusError) else None
    if isinstance(error, Excluded):
        domains = [value.rpartition("@")[2].lower() for value in _values_of(outcome)]
        return RowKey(outcome.status.value, code, field, excluded_reason(message, domains))
    reason = find_reason(_ANSWER_PREFIX.sub("", message), _values_of(outcome))
    if isinstance(error, InvalidRequest):
        reason = reason.removeprefix(f"{field}: ").removeprefix(f"{_GONE}: ")
    return RowKey(outcome.status.value, code, field, reason)


def _values_of(outcome: ContactOutcome) -> list[str]:
    # The names of fields and of outcomes are words of the reason, also if a cell has the same text.
    members = getattr(outcome.contact, "members", outcome.contact)
    values = members.values() if isinstance(members, Mapping) else ()
    return [text for value in values if isinstance(value, str) and (text := value.strip()) not in _WORDS]


_WORDS: Final = frozenset({"email", *STANDARD_FIELDS, *Outcome})
