"""One row of a file: a mapping of field codes to values that knows its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from outreach_async.checks import check_contact, contact_of
from outreach_async.errors import InvalidRequest


@attrs.frozen
class Remark:
    r"""A warning about one cell, which can be sent as it is.

    Attributes:
        kind: The kind of problem, in one word, such as `"mojibake"`.
        column: Name of the column.
        code: Field code that the column maps to.
        message: The problem and its remedy.

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
    r"""A row that `create_many` accepts: a mapping of the fields of a new contact.

    Reading the fields of a row with a fault raises `InvalidRequest`. A bulk run reports such a row as `rejected` with that
    reason, in the row's position; its source does not fail.

    Attributes:
        line: The line of the file on which the row begins, from 1; the header usually is line 1.
        cells: The strings in the file.
        members: The values by field code; blank cells are omitted.
        fault: Why the row cannot be read; `None` if it can.
        warnings: Problems found while reading; the row can still be sent.

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
        r"""Return the error that would reject the row before it is sent; `None` if the row can be sent.

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
