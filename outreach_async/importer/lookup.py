"""Map columns with the workspace's fields, requesting them only if a file needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from outreach_async.importer.columns import Columns, knows_all, map_columns

if TYPE_CHECKING:
    from outreach_async.client import OutreachClient  # imported only for types: a caller with a client has loaded it


async def columns_for(
    client: OutreachClient | None,
    headers: Sequence[str],
    overrides: Mapping[str, str] | None = None,
    *,
    ignore_unknown: bool = False,
) -> Columns:
    """Map each column to a field, as `map_columns` does.

    The client requests the workspace's fields only if a column, or the code of an override, cannot be mapped without them.
    Without a client, nothing is requested.

    Raises:
        InvalidRequest: A column is unknown or ambiguous, two columns map to one field, no column maps to `email`, or an override
            names an unknown column or field.
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
