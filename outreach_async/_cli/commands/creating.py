"""The command `contacts create`: create one contact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Any, Final

import click

from outreach_async import DuplicatePolicy
from outreach_async._cli.connection import open_client
from outreach_async._cli.messages import note_applied
from outreach_async._cli.output import Screen
from outreach_async._cli.process import INCOMPLETE, NOT_ALLOWED, OK, exit_code, format_message, run_async
from outreach_async._cli.values import Options
from outreach_async._plumbing import CUSTOM_CODE, failed_outcome
from outreach_async.bulk import ContactOutcome
from outreach_async.errors import InvalidRequest, OutreachError
from outreach_async.models import FAILED_OUTCOMES, STANDARD_FIELDS, WorkspaceField

_KNOWN: Final = frozenset({*STANDARD_FIELDS})


def create(
    options: Options,
    email: str,
    sets: tuple[str, ...],
    *,
    duplicates: DuplicatePolicy,
    campaign: str | None,
    strict: bool,
) -> int:
    policies = {"duplicates": duplicates, "campaign": campaign, "strict_validation": strict}
    return run_async(partial(_create, options, email, parse_settings(sets), policies))


def parse_settings(texts: Iterable[str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name:
            raise click.UsageError(f"--set: expected FIELD=VALUE, got {text!r}; pass, for example, --set first_name=Ann.")
        if name == "email":
            raise click.UsageError("--set: cannot set the e-mail address; pass it with --email.")
        if name in values:
            raise click.UsageError(f"--set: the field {name!r} is set twice; remove one of the settings.")
        values[name] = value
    return values


def build_contact(email: str, values: Mapping[str, str], fields: Sequence[WorkspaceField]) -> dict[str, Any]:
    contact: dict[str, Any] = {"email": email}
    extra: dict[str, str] = {}
    for name, value in values.items():
        code = _find_code(name, fields)
        if code in contact or code in extra:
            raise click.UsageError(f"--set: the field {code!r} is set twice, once as {name!r}; remove one of the settings.")
        (contact if _is_code(code) else extra)[code] = value
    return {**contact, "extra": extra} if extra else contact


def _is_code(name: str) -> bool:
    return name in _KNOWN or CUSTOM_CODE.fullmatch(name) is not None


def _find_code(name: str, fields: Sequence[WorkspaceField]) -> str:
    codes = [field.code for field in fields]
    if _is_code(name) or name in codes:
        return name
    found = [field.code for field in fields if field.label.casefold() == name.casefold()]
    if len(found) > 1:
        raise click.UsageError(f"--set: several fields have the label {name!r}; pass one of their codes: {', '.join(found)}.")
    if not found:
        labels = {label.casefold(): label for label in (*_KNOWN, *codes, *(field.label for field in fields))}
        near = [labels[label] for label in get_close_matches(name.casefold(), labels, n=1)]
        meant = f"did you mean {near[0]!r}?" if near else "the command 'fields' lists the codes and labels."
        raise click.UsageError(f"--set: the workspace has no field {name!r}; {meant}")
    return found[0]


async def _create(options: Options, email: str, values: Mapping[str, str], policies: Mapping[str, Any]) -> int:
    screen = options.screen()
    async with open_client(options, writes=True) as client:
        fields = () if all(map(_is_code, values)) else await client.workspaces.fields()
        contact = build_contact(email, values, fields)
        try:
            created = await client.contacts.create(contact, **policies)
        except InvalidRequest:  # nothing was sent
            raise
        except OutreachError as error:
            if exit_code(error) == NOT_ALLOWED:
                raise
            screen.warn(format_message(error))
            return _print_outcome(screen, failed_outcome(0, contact, error, policies["duplicates"]), email)
    members = {name: getattr(created, name) for name in ("status", "id", "possible", "attempts")}
    return _print_outcome(screen, ContactOutcome(index=0, contact=contact, **members), email, created.details)


def _print_outcome(screen: Screen, outcome: ContactOutcome, email: str, details: str | None = None) -> int:
    possible = sorted(outcome.possible)
    uncertain = "" if outcome.certain else f" (uncertain: {' or '.join(possible)})"
    text = " ".join(filter(None, (outcome.status, outcome.id))) + uncertain + (f": {details}" if details else "")
    note_applied(f"the contact: {text}")
    screen.print_line(text)
    result = {name: getattr(outcome, name) for name in ("status", "id", "certain", "attempts")}
    error = None if outcome.error is None else format_message(outcome.error)
    screen.print_result({"email": email, **result, "details": details, "possible": possible, "error": error})
    return INCOMPLETE if outcome.status in FAILED_OUTCOMES else OK
