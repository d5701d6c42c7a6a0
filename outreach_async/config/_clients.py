"""Read the workspaces of a configuration file from a table of clients, such as the sheet in which an agency keeps them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from outreach_async._plumbing import require_types, show_name
from outreach_async.config._document import FileFault, read_document
from outreach_async.errors import InvalidRequest
from outreach_async.models import ID_PREFIXES

# In each list, a name that stands before another one wins if a table has columns of both.
_COLUMNS: Final = {
    "id": ("workspaceid", "spaceid", "id", "workspace", "space"),
    "name": ("name", "client", "clientname", "customer", "account", "company", "workspacename", "workspace", "space"),
    "groups": ("groups", "group", "tags", "tag", "labels"),
    "owner_key": ("ownerkey", "keyreference", "key", "apikey", "ownerapikey"),
}
_EXPECTED: Final = "expected env:NAME, file:PATH, command:PROGRAM ARGUMENTS or op://VAULT/ITEM/FIELD"
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


class ClientTable(Protocol):
    """What `read_clients` needs of a table; a file that `open_file` returns has it."""

    @property
    def name(self) -> str: ...
    @property
    def headers(self) -> Sequence[str]: ...
    def records(self) -> Iterator[tuple[int, Sequence[str], str | None]]: ...


def read_clients(file: ClientTable) -> tuple[list[str], list[str]]:
    r"""Return a table's workspaces as configuration, and its unused columns.

    They are lines of a configuration file, and names of columns. Columns
    are recognised by their names: the name and the id of a client's
    workspace and, optionally, its groups and where its owner key is. A
    workspace without a name gets its id without `space_`. Rows of blank
    cells are skipped. `outreach-async config init --from` writes the lines
    below `[workspaces]`.

    Args:
        file: The table, as `outreach_async.importer.open_file` opens it.

    Raises:
        InvalidRequest: A column is missing, or a value is invalid. A key
            that stands in the table is never shown.

    Example:
        ```python
        from outreach_async.importer import open_file

        Path("clients.csv").write_text("Client,Workspace id,Key,Since\nAcme,space_1,env:ACME_KEY,May\n")
        print(read_clients(open_file("clients.csv")))
        # -> (['Acme = { id = "space_1", owner_key = { env = "ACME_KEY" } }'], ["'Since'"])
        ```
    """
    require_types(read_clients, locals())
    table, headers = file.name, file.headers
    columns = _find_columns(table, headers)
    found, lines = dict[str, dict[str, Any]](), dict[str, int]()
    for line, cells, fault in file.records():
        if not any(cell.strip() for cell in cells):
            continue
        if fault is not None or len(cells) < len(headers):
            problem = fault or f"expected {len(headers)} cells, got {len(cells)}; add the others"
            raise InvalidRequest(f"{table}, line {line}: {problem}")
        values = {code: cells[at].strip() for code, at in columns.items()}
        name = values.get("name") or values["id"].removeprefix(ID_PREFIXES["workspace"])  # a name does not look like an id
        if name in found:
            named = headers[columns.get("name", columns["id"])]
            what = f"expected a name of its own, got {show_name(name)}, as in line {lines[name]}; rename one of the two"
            raise InvalidRequest(f"{table}, line {line}, {named}: {what}")
        found[name], lines[name] = {"id": values["id"]}, line
        if groups := [each.strip() for each in re.split("[,;|]", values.get("groups", "")) if each.strip()]:
            found[name]["groups"] = groups
        if key := values.get("owner_key"):
            found[name]["owner_key"] = _read_reference(f"{table}, line {line}, {headers[columns['owner_key']]}", key)
    if not found:
        raise InvalidRequest(f"{table}: expected a row for each client, got none; add them below the header")
    try:
        read_document(Path(), None, {"workspaces": found})
    except FileFault as wrong:
        # The keys are "workspaces", the name and, unless the name is wrong, the member.
        line, code = lines[wrong.keys[1]], next((key for key in wrong.keys[2:] if key in columns), "name")
        named = headers[columns.get(code, columns["id"])]
        raise InvalidRequest(f"{table}, line {line}, {named}: {wrong.text}") from None
    used = {*columns.values()}
    lines_of_toml = [f"{name if _BARE.fullmatch(name) else _quote(name)} = {_format(each)}" for name, each in found.items()]
    return lines_of_toml, [show_name(name) for at, name in enumerate(headers) if name.strip() and at not in used]


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_format(each)}' for name, each in value.items())} }}"
    return f"[{', '.join(map(_quote, value))}]" if isinstance(value, list) else _quote(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # a string of JSON without control characters is one of TOML


def _find_columns(table: str, headers: Sequence[str]) -> dict[str, int]:
    names = [re.sub(r"[\W_]", "", header).casefold() for header in headers]
    columns: dict[str, int] = {}
    for code, known in _COLUMNS.items():
        at = next((names.index(name) for name in known if name in names and names.index(name) not in columns.values()), None)
        if at is not None:
            columns[code] = at
    if "id" not in columns:
        got = ", ".join(map(show_name, filter(str.strip, headers)))
        raise InvalidRequest(f"{table}: expected a column with the ids of the workspaces, got {got}; name one of them 'id'")
    return columns


def _read_reference(place: str, text: str) -> dict[str, Any]:
    if text.startswith("op://"):
        return {"command": ["op", "read", text]}
    kind, separator, value = text.partition(":")
    value = value.strip()
    if not separator or kind not in {"env", "file", "command"} or not value or value.startswith(ID_PREFIXES["owner_key"]):
        remedy = "keep keys out of the table, and write where each one is stored"
        raise InvalidRequest(f"{place}: {_EXPECTED}, got something else, which may be a key; {remedy}")
    if kind != "command":
        return {kind: value}
    try:
        return {kind: shlex.split(value)}
    except ValueError:
        raise InvalidRequest(f"{place}: expected a command with closed quotes, got an open one; close it") from None
