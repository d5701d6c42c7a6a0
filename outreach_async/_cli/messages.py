"""Format values and library messages for the command line."""

from __future__ import annotations

import os
import re
import sys
import textwrap
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from outreach_async.errors import (
    BulkError,
    BulkStopped,
    DeadlineExceeded,
    OutreachError,
    TransportError,
    lacks_descriptors,
    lacks_issuer,
)

APPLIED: Final = "outreach_async.applied"  # in the context of the command: what it has changed
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")

_SAME_NAMES: Final = (
    "base_url blank campaign changed check concurrency deadline delimiter duplicates earlier encoding format header_row "
    "held_by hidden hold hold_domains ignore_unknown journal keep ledger map mapping max_age max_risk owner_key policy rate "
    "repeats resume sheet short_rows stop_after_rejects timeout workspace"
)
_FLAGS: Final = {
    **{name: f"--{name.replace('_', '-')}" for name in _SAME_NAMES.split()},
    "headers": "--header",
    "max_in_flight": "--concurrency",
    "mx": "--gate",
    "rows": "FILE",
    "strict_validation": "--strict",
    "workspaces": "--workspace",
}
"""Maps each argument of the library to the corresponding option or argument of the command."""

_LEADING_FIELD: Final = re.compile(rf"\A({'|'.join(_FLAGS)})(?=[:\[]|(?<=policy) )")
_CHANGED: Final = re.compile(rf"\b({'|'.join(_FLAGS)}) (?=was .* and is now )")
_ARGUMENT: Final = re.compile(rf"\b({'|'.join(_FLAGS)})=(?:(['\"])(.*?)\2|True\b|(\d[\d.]*))?(?=[\s;,.)]|\Z)")
_REPLACEMENTS: Final = (
    # A remedy for library and command, such as "resume with earlier='unknown' (on the command line: --resume --earlier unknown)".
    (re.compile(r"\b(?:pass|resume with) [^;()]*\([^();]*: (--resume[^();]*)\)"), r"run the import with \1"),
    (re.compile(r"\buse [^;()]*\(on the command line: (--backend [^()]*)\)"), r"pass \1"),
    # Remedies for which the command has no option.
    (re.compile(r"; encode it with urllib\.parse\.quote"), "; percent-encode it"),
    # Workbooks are read in another process, so only the text of a python-calamine exception is known.
    (re.compile(r"\b(workbook(?: that can be read)?) \([A-Z][^()]*\)(?=[,:])"), r"\1"),
    (re.compile(r"\bresume without rows \(rows=\[\]\)"), "run the import with --resume and an empty standard input (</dev/null)"),
    # The command stores the rows in the journal if, and only if, it reads them from a stream.
    (re.compile(r"\bspool was true and is now false\b"), "FILE was standard input or a pipe, and is now a file"),
    (re.compile(r"\bspool was false and is now true\b"), "FILE was a file, and is now standard input or a pipe"),
    (re.compile(r"\bstop_after_rejects=None\b"), "--stop-after-rejects never"),
    # Remedies that name an argument in plain words.
    (re.compile(r"\bpass a (workspace|campaign) id\b"), r"pass --\1"),
    (re.compile(r"\bpass an owner key\b"), "pass --owner-key"),
    (re.compile(r"\bcheck base_url\Z"), "check --base-url or OUTREACH_BASE_URL"),
    (re.compile(r"\bresume (?:its|the) run\b"), "run the import with --resume"),
    (re.compile(r"\bgot None\b"), "got nothing"),
    (re.compile(r"\bstrict_validation\b"), "--strict"),
)
"""Patterns of Python-specific text in library messages, with their replacements."""

_MOMENTS: Final = frozenset({"created", "created_at", "days_left_date"})  # Unix times have no thousands separators
_USUAL_WIDTH: Final = 80  # characters, of a terminal whose width is unknown
_NO_CONNECTION: Final = 0
_REMEDIES: Final[Mapping[tuple[int | None, str | None], str]] = {
    (_NO_CONNECTION, None): "check --base-url or OUTREACH_BASE_URL, and check that the service is running",
    (401, None): "if the service needs an authorization header, pass --header 'Authorization: ...'",
    (401, "create_contact"): "check --owner-key or OUTREACH_OWNER_KEY",
    (403, None): "check --workspace or OUTREACH_WORKSPACE; if the service needs an authorization header, check --header",
    (403, "create_contact"): "check --owner-key or OUTREACH_OWNER_KEY: the key must have access to --workspace",
    (404, None): "check --workspace or OUTREACH_WORKSPACE, and --base-url or OUTREACH_BASE_URL",
    (404, "create_contact"): "check --workspace, --campaign and --base-url",
    (404, "list_steps"): "check the campaign id (the command 'campaigns' lists the ids) and --base-url",
}
"""Remedies for failed requests, by status code and operation. For each status, `None` matches all operations not listed."""


def note_applied(text: str) -> None:
    """Note what the command has changed. If standard output cannot be written, stderr shows it."""
    context = click.get_current_context(silent=True)  # none in a program that calls the functions of a command
    (context.meta if context else {})[APPLIED] = text


def find_remedy(error: OutreachError) -> str:
    """Return the remedy to add to the message of a failed request; an empty string if the message needs no remedy."""
    if isinstance(error, BulkStopped):  # its message has the remedy
        return ""
    cause = error.__cause__ if isinstance(error, BulkError | DeadlineExceeded) else error
    if lacks_descriptors(cause):
        return "pass a smaller --concurrency" if isinstance(error, BulkError) else ""
    if lacks_issuer(cause) or "; check this proxy" in str(cause):  # the message has the remedy
        return ""
    unconnected = isinstance(cause, TransportError) and not cause.maybe_sent
    status = _NO_CONNECTION if unconnected else error.status_code
    return _REMEDIES.get((status, error.operation)) or _REMEDIES.get((status, None), "")


def to_printable(value: Any) -> str:
    """Return a value as one line that cannot move the cursor, change colours or reverse the direction of the text."""
    if value is None or isinstance(value, bool):
        return "" if value is None else "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.10g}"
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


def format_cell(value: Any, column: str = "") -> str:
    """Format a value for a table on a terminal, like `to_printable`, but with thousands separators in numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float) or column in _MOMENTS:
        return to_printable(value)
    return f"{value:,.10g}" if isinstance(value, float) else f"{value:,}"


def wrap_line(text: str, width: int) -> str:
    """Break a line between words, so that paths and addresses can be copied, and indent its continuation lines."""
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def wrap_error(text: str) -> str:
    """Wrap an error message if stderr is a terminal, but not its lines with an option that the user can copy."""
    if not sys.stderr.isatty():
        return text
    width = os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_WIDTH
    return "\n".join(wrap_line(line, width) if line.startswith("outreach-async: ") else line for line in text.splitlines())


def format_moment(value: Any) -> str:
    """Return a Unix time in seconds as a UTC date and time, or an empty string if the value is not a valid time."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    try:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return ""


def format_period(seconds: float) -> str:
    """Format a duration in its two largest units, such as `3 days` or `1 hour 30 minutes`."""

    def count_unit(count: float, unit: str) -> str:
        return f"{count:,.3g} {unit}{'' if count == 1 else 's'}" if count < 1000 else f"{count:,.0f} {unit}s"  # noqa: PLR2004 - digits

    try:
        whole = timedelta(seconds=round(seconds))
    except (OverflowError, ValueError):
        return ""
    if whole < timedelta(minutes=1):
        return count_unit(seconds, "second")
    hours, rest = divmod(whole.seconds, 3600)
    counts = [(whole.days, "day"), (hours, "hour"), (rest // 60, "minute"), (rest % 60, "second")]
    first = next(place for place, (count, _) in enumerate(counts) if count)
    return " ".join(count_unit(*each) for each in counts[first : first + 2] if each[0])


def format_seconds(seconds: float) -> str:
    """Format a duration in seconds, such as `1.5 s` or `90.0 s (1 minute 30 seconds)`."""
    return f"{seconds:,.1f} s" + (f" ({format_period(seconds)})" if seconds >= 60 else "")  # noqa: PLR2004 - a minute


def translate_arguments(text: str) -> str:
    """Replace the names of Python arguments in a message of the library with options of the command."""
    text = _LEADING_FIELD.sub(lambda found: _FLAGS[found[1]], text)
    text = _CHANGED.sub(lambda found: f"{_FLAGS[found[1]]} ", text)
    for pattern, replacement in _REPLACEMENTS:
        text = pattern.sub(replacement, text)
    return _ARGUMENT.sub(lambda found: f"{_FLAGS[found[1]]} {found[3] or found[4] or ''}".rstrip(), text)
