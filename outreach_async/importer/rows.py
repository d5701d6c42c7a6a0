"""One row of a file: a mapping that knows its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from outreach_async.checks import check_contact, contact_of
from outreach_async.errors import InvalidRequest


@attrs.frozen
class Remark:
    r"""What a person should know of one cell, though it can be sent as it stands.

    Attributes:
        kind: What was found, in one word, such as `"mojibake"`.
        column: Name of the column.
        code: What the column is sent under.
        message: What is the matter, and what to do.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,OrlÃ©ans\n", encoding="utf-8")
        file = open_file("people.csv")
        print([remark.kind for row in file.rows(map_columns(file.headers)) for remark in row.warnings])  # -> ['mojibake']
        ```
    """

    kind: str
    column: str
    code: str
    message: str


@attrs.frozen
class Row(Mapping[str, Any]):
    r"""A row as `create_many` takes it: its members are those of a new contact.

    Reading the members of a row with a fault raises `InvalidRequest`, so a bulk run reports it as `rejected` for that reason, at
    its place, instead of the source failing under it.

    Attributes:
        line: The line of the file on which the row begins, from 1; the header usually is line 1.
        cells: The texts as they stand in the file.
        members: What the cells mean, by code; an empty cell means nothing.
        fault: Why the row cannot be read; `None` if it can.
        warnings: What reading it brought to light and a person should know; the row can be sent.

    Example:
        ```python
        Path("people.csv").write_text("E-mail,City\nann@company.example,Lyon\n")
        file = open_file("people.csv")
        (row,) = file.rows(map_columns(file.headers))
        print(row.line, dict(row))  # -> 2 {'email': 'ann@company.example', 'city': 'Lyon'}
        ```
    """

    line: int
    cells: tuple[str, ...]
    members: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)
    fault: str | None = None
    warnings: tuple[Remark, ...] = ()

    def refusal(self) -> InvalidRequest | None:
        r"""Return why a run would refuse the row before sending it; `None` if it would send it.

        Example:
            ```python
            Path("people.csv").write_text('E-mail,City\n" ",Lyon\n')
            file = open_file("people.csv")
            print([str(row.refusal()) for row in file.rows(map_columns(file.headers))])
            # -> ['email: expected an address, got a blank string; give the contact an e-mail address']
            ```
        """
        try:
            check_contact(contact_of(self))
        except InvalidRequest as error:
            return error
        return None

    def __getitem__(self, code: str) -> Any:
        return self._readable()[code]

    def __iter__(self) -> Iterator[str]:
        return iter(self._readable())

    def __len__(self) -> int:
        return len(self.members)

    def _readable(self) -> Mapping[str, Any]:
        if self.fault is not None:
            raise InvalidRequest(self.fault)
        return self.members
