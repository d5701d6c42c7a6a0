"""Columns of the input that a results file has after its own, so that people can join it on a key of theirs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from outreach_async._service.validation import hint_similar, show_name
from outreach_async.errors import InvalidRequest

ALL: Final = "all"
_PREFIX: Final = "input_"
_MIN_SIMILARITY: Final = 0.5


class KeptColumns:
    """Picks cells by the name of their column.

    A column whose name is that of a column of results, regardless of case, is renamed `input_NAME`: so is `id`.
    """

    def __init__(self, wanted: Iterable[str], headers: Iterable[Sequence[str]], taken: Iterable[str]) -> None:
        known: dict[str, None] = {}
        for each in headers:
            known |= dict.fromkeys(_name_columns(each))
        names: dict[str, None] = {}
        for name in (each.strip() for each in wanted):
            if name != ALL and name not in known:
                near = hint_similar(name, known, _MIN_SIMILARITY)
                raise InvalidRequest(f"keep: the file has no column {show_name(name)}{near}; use a name from its header")
            names |= known if name == ALL else {name: None}
        results = {*map(str.casefold, taken)}
        used = results | {*map(str.casefold, names)}
        self.names: dict[str, str] = {}
        for name in names:
            # Some readers ignore case. Arrow and UTF-8 cannot store lone surrogates.
            given = name.encode(errors="backslashreplace").decode()
            if name.casefold() in results:
                while given.casefold() in used:
                    given = f"{_PREFIX}{given}"
                used.add(given.casefold())
            self.names[name] = given
        self._places: dict[tuple[str, ...], list[tuple[int, str]]] = {}

    def pick(self, headers: tuple[str, ...], cells: Sequence[str]) -> Mapping[str, str | None]:
        """Return the cells of a row as in its file, `None` where it has none, by the names of the results file."""
        if not self.names:
            return {}
        if (places := self._places.get(headers)) is None:
            named = enumerate(_name_columns(headers))
            places = self._places[headers] = [(at, self.names[name]) for at, name in named if name in self.names]
        return {name: cells[at] if at < len(cells) else None for at, name in places}


def _name_columns(headers: Sequence[str]) -> list[str]:
    """Return the names of columns, which are unique except for blank ones."""
    return [header.strip() or f"column {at}" for at, header in enumerate(headers, 1)]
