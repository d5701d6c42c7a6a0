"""The kinds of values that options and arguments take. What only a run needs is imported when one begins."""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from outreach_async._plumbing import is_url

STDOUT: Final = Path("/dev/stdout")
_REMEDIES: Final = {
    "workspace": "pass the id of a workspace",
    "campaign": "pass the id of a campaign, as printed by the command 'campaigns'",
    "owner_key": "pass the API key of the user who owns the contacts",
}
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def _name_of(param: click.Parameter | None) -> str:
    return param.opts[0] if isinstance(param, click.Option) else param.human_readable_name if param else ""


class IdType(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions of click
    name = "id"

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002 - click's signature
        from outreach_async._plumbing import require_id

        name = _name_of(param) or self.kind
        ids = str(value).replace(",", " ").split() if self.kind == "workspace" else [value]  # `"$SPACES"` may contain several
        return " ".join(require_id(name, id_, self.kind, _REMEDIES[self.kind]) for id_ in ids or [value])


class _AnyIdType(click.ParamType):  # type: ignore[type-arg]  # as above
    """An id of which the command checks the kind, or a domain."""

    name = "id"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ARG002 - click's signature
        from outreach_async._plumbing import require_plain, trim

        found = trim(str(value)) or ""  # nothing is no omitted option: the command refuses it
        require_plain(_name_of(param), found, "pass one id")
        return found


class WorkspaceType(click.ParamType):  # type: ignore[type-arg]  # as above
    """A name, an id or a group of workspaces. The shell completes it, and commands look it up, in the configuration file."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the value, unless it is blank or an id of another kind."""
        from outreach_async._plumbing import trim
        from outreach_async.models import ID_PREFIXES

        text = trim(str(value)) or ""
        is_id = not text or text.startswith(tuple(ID_PREFIXES.values()))
        return IdType("workspace").convert(value, param, ctx) if is_id else text

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del param
        from outreach_async._plumbing import trim
        from outreach_async.config import read_config
        from outreach_async.errors import InvalidRequest

        given = {**ctx.find_root().params, **{name: value for name, value in ctx.params.items() if value}}
        words: dict[str, str] = {}
        with suppress(InvalidRequest):  # an error would be printed into the line that is being typed
            profile = given.get("profile") or trim(os.environ.get("OUTREACH_PROFILE"))
            # Names need no trust: nothing is run or sent.
            for each in read_config(given.get("config"), profile).workspaces:
                words |= {each.name: each.id, **dict.fromkeys(each.groups, "group")}
        words |= {"all": "every workspace"} if words else {}
        return [CompletionItem(word, help=text) for word, text in words.items() if word.lower().startswith(incomplete.lower())]


class _FileType(click.Path):
    """A file."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)
        self.name = "file"


class _OutputType(_FileType):
    """A file to write; `-` is standard output."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(str(STDOUT) if value == "-" else value, param, ctx)


class _LocationType(click.Path):
    """The path or the URL of a journal, a ledger or an input file."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)
        self.name = "path|url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if is_url(value) else super().convert(value, param, ctx)


def age(text: str) -> float:
    """Return the seconds of an age: a number of seconds, or a number and a unit."""
    if (found := re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", text)) is None:
        raise click.BadParameter(f"expected a number and a unit (s, m, h, d or w), such as 30d, got {text!r}.")
    if (seconds := float(found[1]) * _UNITS[found[2]]) == math.inf:
        raise click.BadParameter("expected an age that fits a float, got more; pass a smaller number.")
    return seconds


def limit(text: str) -> int | None:
    """Return a number from 1; `None` for `never`."""
    if text == "never":
        return None
    if not re.fullmatch(r"0*[1-9][0-9]{0,17}", str(text), re.ASCII):
        raise click.BadParameter(f"expected a whole number from 1, or never, got {text!r}.")
    return int(text)


def date(text: str) -> float:
    """Return a time in UTC, or the end of a day, in Unix seconds."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        what = "expected a day or a time in UTC, such as 2026-03-31 or 2026-03-31T08:00:00Z"
        raise click.BadParameter(f"{what}, got {text!r}.") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return math.nextafter(at.timestamp() + 86_400, 0) if re.fullmatch(r"[\dW-]+", text) else at.timestamp()


ANY_ID: Final = _AnyIdType()
CAMPAIGN: Final = IdType("campaign")
EXISTING: Final = click.Path(path_type=Path, exists=True, dir_okay=False)
FILE: Final = _FileType()
FOLDER: Final = click.Path(path_type=Path, file_okay=False)
LOCATION: Final = _LocationType()
OUTPUT: Final = _OutputType()
OWNER_KEY: Final = IdType("owner_key")
PRESET: Final = click.Path(readable=False)  # the shell completes files
WORKSPACE: Final = WorkspaceType()
