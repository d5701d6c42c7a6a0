"""Checks that a journal belongs to the run that is resumed. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from outreach_async.bulk.journal.values import Identity
from outreach_async.checks import shown
from outreach_async.errors import InvalidRequest


def facts(identity: Identity) -> dict[str, Any]:
    """Return an identity as the JSON values that reading it back gives."""
    known: dict[str, Any] = msgspec.json.decode(
        msgspec.json.encode(
            {
                "workspace": identity.workspace,
                "options": dict(identity.options),
                "source": identity.source,
                "fingerprint": identity.fingerprint,
                "mapping": None if identity.mapping is None else dict(identity.mapping),
            }
        )
    )
    return known


def require_same(path: str, identity: Identity, kept: Mapping[str, Any]) -> None:
    """Refuse to resume another run.

    Args:
        path: Path of the journal.
        identity: Identity of the run to resume.
        kept: The result of `facts` for the run that the journal belongs to.

    Raises:
        InvalidRequest: The two differ; the message lists the changes.
    """
    if changes := list(_changes(kept, facts(identity))):
        raise InvalidRequest(
            f"journal: {path} belongs to another run: {'; '.join(changes)};"
            " resume with the original input and options, or pass another journal path"
        )


def _changes(kept: Mapping[str, Any], given: Mapping[str, Any]) -> Iterator[str]:
    if kept["workspace"] != given["workspace"]:
        yield _change("workspace", kept["workspace"], given["workspace"])
    before, now = kept["options"], given["options"]
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            yield _change(name, before.get(name), now.get(name))
    if None not in (kept["fingerprint"], given["fingerprint"]) and kept["fingerprint"] != given["fingerprint"]:
        yield "the input has changed since the run began (its fingerprint differs)"
    if kept["mapping"] is not None:
        for column, code in (given["mapping"] or {}).items():
            if kept["mapping"].get(column) != code:
                before = kept["mapping"].get(column)
                yield f"the input changed: {_change(f'the field of column {shown(column)}', before, code)}"


def _change(name: str, before: object, now: object) -> str:
    return f"{name} was {_value(before)} and is now {_value(now)}"


def _value(value: object) -> str:
    return shown(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
