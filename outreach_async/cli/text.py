"""Make strings fit to print on a command line."""

from __future__ import annotations

import re
from typing import Any, Final

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_KEY: Final = re.compile(r"\bkey_[^\s'\")]+")

_FLAGS: Final = {
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            *("base_url", "campaign", "check", "concurrency", "duplicates", "earlier", "encoding", "format", "journal", "map"),
            *("mapping", "owner_key", "policy", "rate", "repeats", "resume", "sheet", "timeout", "workspace"),
        )
    },
    "headers": "--header",
    "max_in_flight": "--concurrency",
    "rows": "FILE",
    "strict_validation": "--strict",
    "workspaces": "--workspace",
}
"""What sets each argument of the library on the command line."""

_FIELD: Final = re.compile(rf"\A({'|'.join(_FLAGS)})(?=[:\[]|(?<=policy) )")
_VALUED: Final = re.compile(r"\b(earlier|encoding|format|repeats|sheet)=(['\"])(.*?)\2")
_UNVALUED: Final = re.compile(r"\b(base_url|journal|owner_key|workspace)=(?:\"[^\"]*\")?(?=[\s;,.)]|\Z)")

_IN_PYTHON: Final = (
    # A remedy for both callers, such as "pass resume=True (for the command: --resume)": only the part for the command is kept.
    (re.compile(r"\bpass [^;()]*\([^();]*: (--resume[^();]*)\)"), r"run the import with \1"),
    (re.compile(r"(--[a-z-]+ [^\s()]+) \([a-z_]+=(['\"]).*?\2\)"), r"\1"),
    # What the command has no option for.
    (re.compile(r",? or (?:pass stop_after_rejects=None|turn off stop_after_rejects)[^;]*"), ""),
    (re.compile(r"; encode it with urllib\.parse\.quote"), "; percent-encode it"),
    # Remedies in words.
    (re.compile(r"\bpass a workspace id\b"), "pass --workspace"),
    (re.compile(r"\bpass an owner key\b"), "pass --owner-key"),
    (re.compile(r"\bpass a campaign id\b"), "pass --campaign"),
    (re.compile(r"\bpass a journal\b"), "pass --journal"),
    (re.compile(r"\bresume its run\b"), "run the import with --resume"),
    (re.compile(r"\bresume the run\b"), "run the import with --resume"),
    # Arguments with values, then names alone.
    (re.compile(r"\bpass resume=True(?:,| and) ?earlier=(['\"])unknown\1"), "run the import with --resume --earlier unknown"),
    (re.compile(r"\bpass resume=True\b"), "run the import with --resume"),
    (re.compile(r"\bresume=True\b"), "--resume"),
    (re.compile(r"\bignore_unknown\b(?:=True)?"), "--ignore-unknown"),
    (re.compile(r"\bstrict_validation\b"), "--strict"),
    (re.compile(r"\bgot None\b"), "got nothing"),
    (re.compile(r"\b(with|as in|example) ('[^'=]+=[a-z0-9_]+')"), r"\1 --map \2"),
)
"""Patterns of Python code in the library's messages, and what to print instead, in the order of replacement."""


def printable(value: Any) -> str:
    """Return a value as one line that is safe to print.

    Control characters are escaped: a string from the service or a file must not move the cursor, change colours or reverse
    the line.
    """
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.10g}"
        case _:
            return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(value))


def without_keys(text: str) -> str:
    """Return a string with every owner key masked: a message may quote an argument that was a key in the wrong place."""
    return _KEY.sub("key_***", text)


def with_flags(text: str) -> str:
    """Return a message of the library with options of the command instead of Python arguments."""
    text = _FIELD.sub(lambda found: _FLAGS[found[1]], text)
    for pattern, replacement in _IN_PYTHON:
        text = pattern.sub(replacement, text)
    text = _VALUED.sub(r"--\1 \3", text)
    return _UNVALUED.sub(lambda found: _FLAGS[found[1]], text)
