"""The command `contacts create`: create one contact."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import click
from click import Choice

from outreach_async._cli.options import CAMPAIGN, Command, SuggestingGroup, option, writing

if TYPE_CHECKING:
    from outreach_async._cli.output import Screen
    from outreach_async._cli.values import Options
    from outreach_async.bulk import ContactOutcome
    from outreach_async.models import WorkspaceField


@click.group(cls=SuggestingGroup, no_args_is_help=False)
def contacts() -> None:
    """Create a contact."""


@contacts.command(cls=Command)
@option("--email", metavar="ADDRESS", required=True, help="E-mail address, by which the service detects duplicates.")
@option(
    "--set",
    "sets",
    metavar="FIELD=VALUE",
    multiple=True,
    help=(
        "Set a field by its code or label, such as first_name=Ann, custom_1=Gold or Plan=Gold; repeatable. The "
        "command 'fields' lists codes and labels."
    ),
)
@option(
    "--duplicates",
    type=Choice(["skip", "overwrite", "update_missing_fields"]),
    default="skip",
    help="Policy if the workspace already has a contact with this e-mail.",
)
@option("--campaign", type=CAMPAIGN, metavar="CAMPAIGN", help="Add the contact to this campaign.")
@option("--strict/--no-strict", default=True, help="Let the service validate the standard fields.")
@writing
def create(
    options: Options,
    *,
    email: str,
    sets: tuple[str, ...],
    duplicates: Literal["skip", "overwrite", "update_missing_fields"],
    campaign: str | None,
    strict: bool,
) -> int:
    """Create one contact, and print its outcome and id.

        outreach-async contacts create --email ann@x.example --set first_name=Ann

    Nothing is sent if a list of the configuration file (exclude) has the e-mail address.

    Exit codes: 0 added, skipped, overwriten or updated_missing_fields; 2 wrong usage; 3 rejected, excluded, not_applied or
    unknown; 77 not allowed (the service answered 401 or 403).
    """
    from outreach_async._cli.process import run_async

    policies = {"duplicates": duplicates, "campaign": campaign, "strict_validation": strict}
    return run_async(partial(_create, options, email, _parse_settings(sets), policies))


def _parse_settings(texts: Iterable[str]) -> dict[str, str]:
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


def _build_contact(email: str, values: Mapping[str, str], fields: Sequence[WorkspaceField]) -> dict[str, Any]:
    contact: dict[str, Any] = {"email": email}
    extra: dict[str, str] = {}
    for name, value in values.items():
        code = _find_code(name, fields)
        if code in contact or code in extra:
            raise click.UsageError(f"--set: the field {code!r} is set twice, once as {name!r}; remove one of the settings.")
        (contact if _is_code(code) else extra)[code] = value
    return {**contact, "extra": extra} if extra else contact


def _is_code(name: str) -> bool:
    from outreach_async._plumbing import CUSTOM_CODE
    from outreach_async.models import STANDARD_FIELDS

    return name in STANDARD_FIELDS or CUSTOM_CODE.fullmatch(name) is not None


def _find_code(name: str, fields: Sequence[WorkspaceField]) -> str:
    from outreach_async.models import STANDARD_FIELDS

    codes = [field.code for field in fields]
    if _is_code(name) or name in codes:
        return name
    found = [field.code for field in fields if field.label.casefold() == name.casefold()]
    if len(found) > 1:
        raise click.UsageError(f"--set: several fields have the label {name!r}; pass one of their codes: {', '.join(found)}.")
    if not found:
        labels = {label.casefold(): label for label in (*STANDARD_FIELDS, *codes, *(field.label for field in fields))}
        near = [labels[label] for label in get_close_matches(name.casefold(), labels, n=1)]
        meant = f"did you mean {near[0]!r}?" if near else "the command 'fields' lists the codes and labels."
        raise click.UsageError(f"--set: the workspace has no field {name!r}; {meant}")
    return found[0]


async def _create(options: Options, email: str, values: Mapping[str, str], policies: Mapping[str, Any]) -> int:
    from outreach_async import Outcome
    from outreach_async._cli.connection import open_client
    from outreach_async._cli.process import NOT_ALLOWED, exit_code, format_message
    from outreach_async._plumbing import failed_outcome, unsent_outcome
    from outreach_async.bulk import ContactOutcome
    from outreach_async.errors import InvalidRequest, OutreachError

    screen = options.screen()
    for listed in options.read_lists():
        if found := listed.find([email]):
            outcome = unsent_outcome(0, {"email": email}, Outcome.EXCLUDED, found[0])
            return _print_outcome(screen, outcome, email, str(found[0]))
    async with open_client(options, writes=True) as client:
        fields = () if all(map(_is_code, values)) else await client.workspaces.fields()
        contact = _build_contact(email, values, fields)
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
    from outreach_async import Outcome
    from outreach_async._cli.messages import note_applied
    from outreach_async._cli.process import INCOMPLETE, OK, format_message
    from outreach_async.models import FAILED_OUTCOMES

    possible = sorted(outcome.possible)
    uncertain = "" if outcome.certain else f" (uncertain: {' or '.join(possible)})"
    text = " ".join(filter(None, (outcome.status, outcome.id))) + uncertain + (f": {details}" if details else "")
    note_applied(f"the contact: {text}")
    screen.print_line(text)
    result = {name: getattr(outcome, name) for name in ("status", "id", "certain", "attempts")}
    error = None if outcome.error is None else format_message(outcome.error)
    screen.print_result({"email": email, **result, "details": details, "possible": possible, "error": error})
    return INCOMPLETE if outcome.status in {*FAILED_OUTCOMES, Outcome.EXCLUDED} else OK
