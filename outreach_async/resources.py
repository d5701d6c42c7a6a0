"""What a client offers, by resource: each method checks, builds an operation and hands it to the engine."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from functools import lru_cache, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal

import attrs

from outreach_async import operations
from outreach_async.calls import Terms
from outreach_async.checks import contact_of, kind, require_number, require_seconds
from outreach_async.contacts import CreatedContact, NewContact
from outreach_async.engine import Engine
from outreach_async.errors import InvalidRequest, OutreachError, forget_frames
from outreach_async.models import Campaign, CampaignSteps, Mailbox, Page, WorkspaceField
from outreach_async.operations import Creation, Dialect, Operation
from outreach_async.pages import Pager
from outreach_async.secret import hide, opaque, opaque_async
from outreach_async.vocabulary import UNSET, DuplicatePolicy, Unset

if TYPE_CHECKING:
    from outreach_async.bulk import BulkRun, Journal, Order, Repeats

Keep = Literal["raise", "keep"]
Seconds = float | Unset | None

_OPTION_SETS: Final = 64
"""Sets of options, as of one campaign each, that a client keeps checked and encoded."""


@attrs.frozen(repr=False)
class Settings:
    """What a client was told, apart from its engine."""

    owner_key: object
    workspace: object
    headers: Mapping[str, str] = attrs.field(repr=False)  # tools such as rich show the fields of a class whose repr hides them
    timeout: float | None
    deadline: float | None
    dialect: Dialect
    _terms: Terms = attrs.field(init=False)

    @_terms.default
    def _usual(self) -> Terms:
        return Terms(self.timeout, self.deadline)

    def terms(self, timeout: Seconds, deadline: Seconds) -> Terms:
        """Return the time a call may take: the call's own bounds before the client's."""
        if timeout is UNSET and deadline is UNSET:
            return self._terms
        return Terms(
            self.timeout if isinstance(timeout, Unset) else require_seconds("timeout", timeout),
            self.deadline if isinstance(deadline, Unset) else require_seconds("deadline", deadline),
        )


@attrs.frozen
class _Resource:
    _engine: Engine = attrs.field(repr=False)
    _settings: Settings = attrs.field(repr=False)


class Campaigns(_Resource):
    """The campaigns of a workspace."""

    @opaque
    def list(
        self,
        *,
        workspace: str | None = None,
        page: int = 1,
        display: int = 100,
        max_items: int | None = None,
        undecodable: Keep = "raise",
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> Pager[Campaign]:
        """List campaigns (section "List campaigns"): await it for one page, iterate it for every campaign of every page.

        Args:
            workspace: Id of the workspace; the client's if not given.
            page: Page to start at.
            display: Campaigns per page.
            max_items: Campaigns at most, over all pages.
            undecodable: Whether an item that is not what the interface says is an error, or kept in the page's `undecodable`.
            timeout: Seconds of one attempt of one page.
            deadline: Seconds for one page.

        Raises:
            InvalidRequest: At once; the other errors of the tree come when it is awaited or iterated.

        Example:
            ```python
            async for campaign in client.campaigns.list(display=50):
                print(campaign.id, campaign.status)  # -> camp_1 live
            ```
        """
        make = _lister(operations.list_campaigns, self._settings, workspace, display, undecodable)
        return _pager(self._engine, self._settings.terms(timeout, deadline), make, page, max_items)

    @opaque_async
    async def steps(self, campaign: str, *, timeout: Seconds = UNSET, deadline: Seconds = UNSET) -> CampaignSteps:
        """Return the steps of a campaign, with statistics per template (section "List steps of a campaign").

        Args:
            campaign: Id of the campaign.
            timeout: Seconds of one attempt.
            deadline: Seconds of the call.

        Raises:
            OutreachError: Any of the tree.

        Example:
            ```python
            steps = await client.campaigns.steps("camp_1")
            print([step.order for step in steps.data], steps.days_left_display)  # -> [1, 2] 5 days
            ```
        """
        operation = operations.list_steps(campaign, self._settings.dialect)
        return await self._engine.run(operation, self._settings.terms(timeout, deadline))


class Mailboxes(_Resource):
    """The mailboxes of a workspace."""

    @opaque
    def list(
        self,
        *,
        workspace: str | None = None,
        page: int = 1,
        display: int = 500,
        max_items: int | None = None,
        undecodable: Keep = "raise",
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> Pager[Mailbox]:
        """List mailboxes (section "List mailboxes"): await it for one page, iterate it for every mailbox of every page.

        Args:
            workspace: Id of the workspace; the client's if not given.
            page: Page to start at.
            display: Mailboxes per page, at most 2,000.
            max_items: Mailboxes at most, over all pages.
            undecodable: Whether an item that is not what the interface says is an error, or kept in the page's `undecodable`.
            timeout: Seconds of one attempt of one page.
            deadline: Seconds for one page.

        Raises:
            InvalidRequest: At once; the other errors of the tree come when it is awaited or iterated.

        Example:
            ```python
            boxes = await client.mailboxes.list(display=2000).collect()
            print([mailbox.id for mailbox in boxes])  # -> ['mailbox_1', 'mailbox_2']
            ```
        """
        make = _lister(operations.list_mailboxes, self._settings, workspace, display, undecodable)
        return _pager(self._engine, self._settings.terms(timeout, deadline), make, page, max_items)


class Workspaces(_Resource):
    """What a workspace offers."""

    @opaque_async
    async def fields(
        self, *, workspace: str | None = None, timeout: Seconds = UNSET, deadline: Seconds = UNSET
    ) -> list[WorkspaceField]:
        """Return every field that contacts of the workspace can have (section "List fields of a workspace").

        Args:
            workspace: Id of the workspace; the client's if not given.
            timeout: Seconds of one attempt.
            deadline: Seconds of the call.

        Raises:
            OutreachError: Any of the tree.

        Example:
            ```python
            print([field.code for field in await client.workspaces.fields()][:3])  # -> ['email', 'first_name', 'middle_name']
            ```
        """
        operation = operations.list_fields(either(workspace, self._settings.workspace), self._settings.dialect)
        return (await self._engine.run(operation, self._settings.terms(timeout, deadline))).data


@attrs.frozen
class Contacts(_Resource):
    """Creating contacts."""

    # Of each client its own, for its keys hold owner keys; by types too, as 1 is no True.
    _known: Callable[..., Creation] = attrs.field(init=False, repr=False, eq=False)

    @_known.default
    def _keeping(self) -> Callable[..., Creation]:
        return lru_cache(_OPTION_SETS, typed=True)(partial(_creation, self._settings))

    async def create(
        self,
        contact: NewContact | Mapping[str, Any],
        *,
        duplicates: DuplicatePolicy = "skip",
        strict_validation: bool = True,
        campaign: str | None = None,
        owner_key: str | None = None,
        workspace: str | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> CreatedContact:
        """Create one contact (section "Create contact").

        A lost answer is repeated: that cannot make a second contact, as the service detects duplicates by e-mail and workspace.
        It may hide who made the first, and then the result's `certain` is false and `possible` holds every candidate.

        Args:
            contact: The contact, or a mapping with the same members.
            duplicates: What to do if the workspace has this e-mail.
            strict_validation: Whether the service validates the standard fields.
            campaign: Id of the campaign to add the contact to; none if not given.
            owner_key: API key of the owner; the client's if not given.
            workspace: Id of the workspace; the client's if not given.
            timeout: Seconds of one attempt.
            deadline: Seconds of the call.

        Raises:
            OutreachError: Any of the tree; `maybe_sent` tells whether the contact may have been created all the same.

        Example:
            ```python
            made = await client.contacts.create(NewContact("ann@company.example"), duplicates="overwrite", campaign="camp_1")
            print(made.status, made.attempts)  # -> added 1
            ```
        """
        key, owner_key = owner_key and hide(owner_key), None  # a cancellation keeps its frames
        try:
            creation = self._creation(
                key, workspace, duplicates=duplicates, strict_validation=strict_validation, campaign=campaign
            )
            return await self._engine.run(creation.of(contact_of(contact)), self._settings.terms(timeout, deadline))
        except OutreachError as error:  # as `opaque_async` does it, at no cost
            forget_frames(error)
            raise

    @opaque
    def create_many(
        self,
        rows: Iterable[NewContact | Mapping[str, Any]] | AsyncIterable[NewContact | Mapping[str, Any]],
        *,
        duplicates: DuplicatePolicy = "skip",
        strict_validation: bool = True,
        campaign: str | None = None,
        concurrency: int = 64,
        order: Order = "completion",
        repeats: Repeats = "serial",
        journal: str | PathLike[str] | Journal | None = None,
        resume: bool = False,
        earlier: Literal["known", "unknown"] = "known",
        spool: bool = False,
        total: int | None = None,
        stop_after_rejects: int | None = 50,
        max_outage: float = 900.0,
        owner_key: str | None = None,
        workspace: str | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> BulkRun:
        """Create any number of contacts, many at a time (section "Create contact").

        Use it as `async with client.contacts.create_many(rows) as outcomes: async for outcome in outcomes: ...`, or await it for
        a `BulkReport`. Rows are pulled on demand; a row that fails is an outcome, never an exception.

        With a journal the run survives its process: after a crash or a suspension, the same call with `resume=True` gives every
        row that has none its outcome, and none a second one.

        Args:
            rows: `NewContact` values or mappings, from any iterable or async iterable.
            duplicates: What to do if the workspace has an e-mail.
            strict_validation: Whether the service validates the standard fields.
            campaign: Id of the campaign to add the contacts to; none if not given.
            concurrency: Requests at a time at most; the client's `max_in_flight` bounds it further.
            order: Outcomes as they complete, or in the order of the rows (`"input"`).
            repeats: What to do with an e-mail that comes again: `"serial"` sends each row, one after the other; `"error"` rejects
                a row that repeats one of the last 10,000; `"first"`, `"last"` and `"coalesce"` send one row for each e-mail, the
                last of them with all rows' fields in it. These three read the whole input first, and need a journal.
            journal: A file to keep the run in; one row takes at most 60 bytes.
            resume: Go on with the journal if it is there, with the same rows and options. Without, one that is there is refused.
            earlier: What is known of earlier runs. `"known"` trusts the journal. `"unknown"` continues although the journal is
                damaged, empty or lost, and implies `resume`: every row without an outcome counts as possibly sent.
            spool: Keep the rows in the journal too, before the first is sent, so that a resumed run needs them no more.
            total: How many rows there are, for the progress; known already of what has a length.
            stop_after_rejects: Stop if so many rows, the first of the run, are all rejected for one reason; `None` never does.
            max_outage: Seconds to wait for a service that is down or only refuses, before the run is suspended.
            owner_key: API key of the owner; the client's if not given.
            workspace: Id of the workspace; the client's if not given.
            timeout: Seconds of one attempt.
            deadline: Seconds of one row's own attempts, waits and failures of the service not counted.

        Raises:
            InvalidRequest: At once, for a wrong option; when entered, for a journal of another run.
            JournalError: When entered or iterating: the journal is damaged, or cannot be read or written.
            BulkSuspended: When iterating, if the service was down or refusing for too long, or asks for a long wait.
            BulkStopped: When iterating, after the last outcome, if the service refused in a way that concerns every row.

        Example:
            ```python
            rows = [{"email": f"user{number}@company.example"} for number in range(3)]
            async with client.contacts.create_many(rows, order="input") as outcomes:
                async for outcome in outcomes:
                    print(outcome.index, outcome.status, outcome.certain)
            # -> 0 added True
            # -> 1 added True
            # -> 2 added True
            ```
        """
        from outreach_async.bulk.options import BulkOptions, bulk_run

        creation = self._creation(
            hide(owner_key), workspace, duplicates=duplicates, strict_validation=strict_validation, campaign=campaign
        )
        options = BulkOptions(
            concurrency=concurrency,
            order=order,
            repeats=repeats,
            journal=journal,
            resume=resume,
            earlier=earlier,
            spool=spool,
            total=total,
            stop_after_rejects=stop_after_rejects,
            max_outage=max_outage,
        )
        identity = {
            "workspace": either(workspace, self._settings.workspace),
            "options": {"duplicates": duplicates, "strict_validation": strict_validation, "campaign": campaign},
        }
        return bulk_run(self._engine, creation, self._settings.terms(timeout, deadline), rows, options=options, identity=identity)

    def _creation(self, owner_key: object, workspace: str | None, **options: object) -> Creation:
        try:
            return self._known(owner_key, workspace, **options)
        except TypeError:  # an option that cannot be hashed is wrong; the check says how
            return _creation(self._settings, owner_key, workspace, **options)


def _creation(settings: Settings, owner_key: object, workspace: str | None, **options: object) -> Creation:
    key, space = either(owner_key, settings.owner_key), either(workspace, settings.workspace)
    return Creation.under(key, space, settings.dialect, **options)


def either(given: object, default: object) -> object:
    """Return what a call was given, or else the client's default."""
    return default if given is None else given


def _lister(make: Any, settings: Settings, workspace: str | None, display: int, undecodable: Keep) -> Any:
    if undecodable not in ("raise", "keep"):
        raise InvalidRequest(f"undecodable: expected 'raise' or 'keep', got {kind(undecodable)}; pass one of them")
    space = either(workspace, settings.workspace)
    return lambda page: make(space, page, display, settings.dialect, keep=undecodable == "keep")


def _pager(engine: Engine, terms: Terms, make: Any, page: int, max_items: int | None) -> Pager[Any]:
    make(page)  # refuses wrong arguments at once
    if max_items is not None:
        require_number("max_items", max_items, least=1)

    async def fetch(number: int) -> Page[Any]:
        operation: Operation[Page[Any]] = make(number)
        return await engine.run(operation, terms)

    return Pager(fetch, page, max_items)
