"""Asking the workspace which fields it has, only if a file needs that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from outreach_async.importer.columns import Columns, knows_all, map_columns

if TYPE_CHECKING:
    from outreach_async.client import OutreachClient  # a client is given, so whoever calls has loaded it


async def columns_for(
    client: OutreachClient | None,
    headers: Sequence[str],
    overrides: Mapping[str, str] | None = None,
    *,
    ignore_unknown: bool = False,
) -> Columns:
    """Decide where each column goes, as `map_columns` does.

    The client's workspace is asked for its fields only if a column, or the code of an override, is not known without; nobody is
    asked if there is no client.

    Raises:
        InvalidRequest: A column that no field is known for, two columns for one field, or no column for the e-mail.
        OutreachError: The fields could not be read.

    Example:
        ```python
        columns = await columns_for(client, ["E-mail", "Plan"])
        print(columns.codes)  # -> ('email', 'custom_1')
        ```
    """
    overrides = overrides or {}
    fields = () if client is None or knows_all(headers, overrides) else await client.workspaces.fields()
    return map_columns(headers, overrides, fields, ignore_unknown=ignore_unknown)
