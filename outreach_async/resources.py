"""The client's resources. Each method checks its arguments, builds an operation and passes it to the engine."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from datetime import timedelta
from functools import cache, lru_cache, partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, Unpack

import attrs

from outreach_async import _plumbing, bulk, store
from outreach_async._core import operations
from outreach_async._core.arguments import (
    choose_contact,
    read_rate,
    require_choice,
    require_id,
    require_number,
    require_rate,
    require_readable,
    require_seconds,
    require_types,
    trim,
    type_name,
)
from outreach_async._core.attempts import CallOptions, Throttle
from outreach_async._core.engine import Engine, build_observer
from outreach_async._core.limits import Rate
from outreach_async._core.logs import configure_logging, warn_of_cleared, warn_of_plain_http
from outreach_async._core.operations import KEY_REMEDY, ContactRequests, PageBuilder, RequestDefaults
from outreach_async._core.retry import RetryPolicy
from outreach_async._wire_words import UNSET, ContactFields, ContactRow, DuplicatePolicy, Outcome, Unset
from outreach_async._wire_words import Seconds as Seconds  # noqa: PLC0414 - exported
from outreach_async.bulk._throttle import RunThrottle
from outreach_async.errors import InvalidRequest, OutreachError, drop_tracebacks
from outreach_async.models import Campaign, CampaignSteps, CreatedContact, FieldList, Mailbox, NewContact, Page, Target
from outreach_async.pagination import Pager
from outreach_async.transport._backends import create_transport
from outreach_async.transport._secret import OWNER_KEY, Secret, drop_frames, hide
from outreach_async.transport._wire import Transport

if TYPE_CHECKING:
    from outreach_async.converters import OutreachConverter

T = TypeVar("T", bound=Campaign | Mailbox)

RowValue: TypeAlias = "NewContact | ContactRow | Mapping[str, Any] | tuple[NewContact | Mapping[str, Any], Target]"
"""A row of `create_many`: a contact, with its target if it has its own."""

UndecodableAction = Literal["raise", "keep"]

_MAX_OPTION_SETS: Final = 64  # maximum number of sets of request options that a client caches, for example one set per campaign


@attrs.frozen(repr=False)
class Settings:
    """The options of a client that its resources use: key, workspace, header fields and time limits."""

    owner_key: object
    workspace: object
    headers: Mapping[str, str] = attrs.field(repr=False)  # rich shows fields even if the class's repr hides them
    limits: CallOptions
    converter: object = attrs.field(repr=False)
    request_defaults: RequestDefaults

    def call_options(self, timeout: Seconds, deadline: Seconds) -> CallOptions:
        """Return the time limits of a call. A limit that is `UNSET` defaults to the client's limit."""
        if timeout is UNSET and deadline is UNSET:
            return self.limits
        return CallOptions(
            self.limits.timeout if isinstance(timeout, Unset) else require_seconds("timeout", timeout),
            self.limits.deadline if isinstance(deadline, Unset) else require_seconds("deadline", deadline),
        )


@attrs.frozen
class _Resource:
    _engine: Engine = attrs.field(repr=False)
    _settings: Settings = attrs.field(repr=False)
    _throttle: Throttle | None = attrs.field(default=None, repr=False)  # of a run; by default, the client's

    def _list(
        self, build: Callable[..., PageBuilder[T]], space: object, pages: tuple[Any, Any, Any], keep: str, *limits: Seconds
    ) -> Pager[T]:
        options = self._settings.call_options(*limits)
        require_choice("undecodable", keep, ("raise", "keep"))
        (page, display, most), workspace = pages, default_to(space, self._settings.workspace)
        build_page = build(workspace, display, self._settings.request_defaults, keep=keep == "keep")
        require_number("page", page, least=0)  # the API documentation does not show whether pages start at 0 or 1
        if most is not None:
            require_number("max_items", most, least=1)
        return Pager(partial(self._fetch, build_page, options), page, most)

    def _fetch(self, build_page: PageBuilder[T], options: CallOptions, number: int) -> Coroutine[Any, Any, Page[T]]:
        return self._engine.run(build_page(number), options, self._throttle)


class Campaigns(_Resource):
    """Methods for the campaigns of a workspace."""

    @drop_frames
    def list(
        self,
        *,
        workspace: str | None = None,
        page: int = 1,
        display: int = 100,
        max_items: int | None = None,
        undecodable: UndecodableAction = "raise",
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> Pager[Campaign]:
        """List campaigns (API documentation: "List campaigns").

        Await the result for one page, or iterate over it for all items of
        all pages.

        Args:
            workspace: Id of the workspace; defaults to the client's.
            page: Number of the page to start at.
            display: Number of items per page.
            max_items: Maximum number of items, over all pages, or `None`.
            undecodable: Policy for items that do not match the API
                documentation: `"raise"` raises an error, `"keep"` puts the
                item in the page's `undecodable`.
            timeout, deadline: Limits of each attempt and of each page, in
                seconds; default to the client's.

        Raises:
            InvalidRequest: An argument is invalid; raised at once. Other
                errors are raised when a page is fetched.

        Example:
            ```python
            async for campaign in client.campaigns.list(display=50):
                print(campaign.id, campaign.status)  # -> camp_1 live
            ```
        """
        return self._list(operations.list_campaigns, workspace, (page, display, max_items), undecodable, timeout, deadline)

    async def steps(self, campaign: str, *, timeout: Seconds = UNSET, deadline: Seconds = UNSET) -> CampaignSteps:
        """Return the steps of a campaign.

        API documentation: "List steps of a campaign".

        Args:
            campaign: Id of the campaign.
            timeout, deadline: Limits of each attempt and of the call, in
                seconds; default to the client's.

        Example:
            ```python
            steps = await client.campaigns.steps("camp_1")
            print([step.order for step in steps.data], steps.days_left_display)  # -> [1, 2] 4 days
            ```
        """
        with drop_frames:
            operation = operations.list_steps(campaign, self._settings.request_defaults)
            return await self._engine.run(operation, self._settings.call_options(timeout, deadline), self._throttle)


class Mailboxes(_Resource):
    """Methods for the mailboxes of a workspace."""

    @drop_frames
    def list(
        self,
        *,
        workspace: str | None = None,
        page: int = 1,
        display: int = 500,
        max_items: int | None = None,
        undecodable: UndecodableAction = "raise",
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> Pager[Mailbox]:
        """List mailboxes (API documentation: "List mailboxes").

        Use the result as that of `Campaigns.list`.

        Args:
            display: Number of items per page, at most 2,000.
            workspace, page, max_items, undecodable: As for
                `Campaigns.list`.
            timeout, deadline: As for `Campaigns.list`, in seconds.

        Example:
            ```python
            print(len(await client.mailboxes.list().collect()))  # -> 2
            ```
        """
        return self._list(operations.list_mailboxes, workspace, (page, display, max_items), undecodable, timeout, deadline)


class Workspaces(_Resource):
    """Methods for workspaces: `fields()` lists the fields of a workspace."""

    async def fields(self, *, workspace: str | None = None, timeout: Seconds = UNSET, deadline: Seconds = UNSET) -> FieldList:
        """Return all fields of contacts.

        API documentation: "List fields of a workspace".

        Args:
            workspace: Id of the workspace; defaults to the client's.
            timeout, deadline: Limits of each attempt and of the call, in
                seconds; default to the client's.

        Example:
            ```python
            print([field.code for field in await client.workspaces.fields()][:3])  # -> ['email', 'first_name', 'middle_name']
            ```
        """
        with drop_frames:
            operation = operations.list_fields(default_to(workspace, self._settings.workspace), self._settings.request_defaults)
            options = self._settings.call_options(timeout, deadline)
            answer = await self._engine.run(operation, options, self._throttle)
        fields = FieldList(answer.data)
        fields.response = answer.response
        return fields


@attrs.frozen
class Contacts(_Resource):
    """Methods for contacts: `create()` one, `create_many()` any number."""

    # Each client has its own cache, because the cache keys contain owner keys. The cache is typed, because 1 == True.
    _cached_requests: Callable[..., ContactRequests] = attrs.field(
        default=attrs.Factory(lambda self: lru_cache(_MAX_OPTION_SETS, typed=True)(self._build_requests), takes_self=True),
        init=False,
        repr=False,
        eq=False,
    )

    async def create(
        self,
        contact: NewContact | Mapping[str, Any] | None = None,
        *,
        email: str | Unset = UNSET,
        duplicates: DuplicatePolicy = "skip",
        strict_validation: bool = True,
        campaign: str | None = None,
        owner_key: str | None = None,
        workspace: str | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
        **fields: Unpack[ContactFields],
    ) -> CreatedContact:
        """Create one contact (API documentation: "Create contact").

        The request is retried after a lost response. A retry cannot create
        a second contact, because the service detects duplicates by e-mail
        and workspace. But it can be unknown which attempt or client
        created the contact: then the result is not `certain`, and its
        `possible` contains every possible outcome.

        Args:
            contact: A `NewContact`, or a mapping with the same field names
                as keys, instead of `email` and `fields`.
            email: E-mail address of the contact.
            duplicates: Action of the service if the workspace already has
                a contact with this e-mail: `"skip"`, `"overwrite"` or
                `"update_missing_fields"`.
            strict_validation: Whether the service checks standard fields.
            campaign: Id of the campaign to add the contact to, or `None`.
            owner_key, workspace: API key of the owner, and id of the
                workspace; default to the client's.
            timeout, deadline: Limits of each attempt and of the call, in
                seconds; default to the client's.
            **fields: Other fields of the contact, such as `first_name` and
                `custom`; see `NewContact`. `None` is sent as null, and
                with `"overwrite"` clears the field of an existing contact,
                which logs a warning once; leave out a field to keep its
                value.

        Raises:
            OutreachError: The call failed; the error's `maybe_applied`
                states whether the contact may have been created.

        Example:
            ```python
            created = await client.contacts.create(email="ann@company.example", first_name="Ann", campaign="camp_1")
            print(created.status, created.attempts)  # -> added 1
            ```
        """
        key, owner_key = hide(owner_key), None  # a cancellation's traceback shows this frame: no secrets in it
        try:
            with require_readable():
                requests = self._contact_requests(
                    key, workspace, duplicates=duplicates, strict_validation=strict_validation, campaign=campaign
                )
                chosen = choose_contact(contact, email, fields)
                operation = requests.build(chosen)
            created = await self._engine.run(operation, self._settings.call_options(timeout, deadline))
        except OutreachError as error:  # as `drop_frames` does, but faster
            drop_tracebacks(error)
            raise
        if created.status == Outcome.OVERWRITTEN:
            warn_of_cleared(tuple(code for code, value in chosen.to_dict().items() if value is None))
        return created

    @drop_frames
    def create_many(
        self,
        rows: Iterable[RowValue] | AsyncIterable[RowValue] | bulk.ArrowStream,
        *,
        duplicates: DuplicatePolicy = "skip",
        strict_validation: bool = True,
        campaign: str | None = None,
        concurrency: int = 64,
        order: bulk.Order = "completion",
        repeats: bulk.Repeats = "serial",
        numbers: bulk.Numbers = "format",
        normalise: bool | None = None,
        blank: bulk.Blank | None = None,
        exclude: bulk.Exclusions
        | Callable[[str], object]
        | Iterable[str | bulk.Exclusions | Callable[[str], object]]
        | None = None,
        journal: str | PathLike[str] | store.Store | None = None,
        ledger: str | PathLike[str] | store.Store | None = None,
        max_age: float | timedelta | None = None,
        changed: store.Changed = "send",
        hold: float | timedelta | None = None,
        held_by: Iterable[str | PathLike[str] | store.Store] = (),
        hold_domains: bool = False,
        resume: bool = False,
        earlier: Literal["known", "unknown"] = "known",
        spool: bool = False,
        total: int | None = None,
        stop_after_rejects: int | None = 50,
        max_outage: float | None = None,
        owner_key: str | None = None,
        workspace: str | None = None,
        timeout: Seconds = UNSET,
        deadline: Seconds = UNSET,
    ) -> bulk.BulkRun:
        """Create any number of contacts concurrently.

        API documentation: "Create contact". Use the result in `async with`
        to iterate over the outcomes, or await it for a `BulkReport`, also
        as a task. Rows are read on demand. A row that fails is reported as
        an outcome, never as an exception. A dict is copied when it is
        read, so a generator may fill one dict again. A row whose `items()`
        raises `Excluded` is not sent, and has the outcome `excluded`.

        Rows of a data frame and of a `csv.DictReader` are the cells of a
        table, and are sent as the command `import` sends them: blanks
        around a value, guards of spreadsheets and texts such as `NULL` are
        removed, and a damaged value, such as `#REF!`, is left out. If it
        is the e-mail, the row is rejected. What was changed is logged, and
        counted in the run's `findings`. Other rows were built by a program
        that knows what it means, so they are sent as they are: `None` as
        null, which clears a field with `duplicates="overwrite"`, and `""`
        as a blank text. But NaN is not sent, nor are `NaT` and `NA` of
        pandas: `to_dict("records")` returns them for missing values.

        A mapping may name its target in `campaign` and `workspace`; for a
        `NewContact`, pass a pair with a `Target`. A value is an id, or the
        name of a campaign, whose workspace is then listed once. A missing
        or blank value means the run's own. A row with an unknown or
        ambiguous name is rejected, and nothing of it is sent.

        Args:
            rows: `NewContact` values, mappings, or pairs of these and a
                `Target`, from any iterable or async iterable; or a
                `csv.DictReader`, or a pandas, polars, pyarrow or DuckDB
                data frame (extra `parquet`), with columns named after the
                fields of `NewContact`, `custom_<n>`, `campaign` or
                `workspace`.
            duplicates, strict_validation, owner_key, workspace: As for
                `create`.
            campaign: Id of the campaign to add the contacts to, unless
                their rows name another one; `None` for no campaign.
            concurrency: Maximum number of requests in flight; the client's
                `max_in_flight` may lower it.
            order: Order of the outcomes: as the rows complete
                (`"completion"`), or in the order of the rows (`"input"`).
            repeats: Policy for rows with the same e-mail; see `Repeats`.
                `"serial"` sends each of these rows, one after the other.
                With `"first"`, `"last"` and `"coalesce"`, the run needs a
                journal, and reads all rows before it sends one; or, with
                the first two, a ledger, and rows that can be read twice,
                such as a list.
            numbers: Policy for values of a data frame that are not
                strings, such as numbers and dates; see `Numbers`.
            normalise: Whether the values are read as an import reads
                cells; by default, only those of a data frame or of a
                `csv.DictReader`. Pass `True` for other rows with texts of
                cells, such as a generator over a `csv.DictReader`.
            blank: What a blank value means: `"keep"` keeps what the
                contact has in the service, `"clear"` clears it; see
                `Blank`. By default, `"keep"` for a data frame, for a
                `csv.DictReader`, and with `normalise=True`; other rows are
                sent as they are.
            exclude: Who must not be written to: e-mails and domains, an
                `Exclusions`, a function that is called with the e-mail of
                each row in lower case and returns a reason or a bool, or
                an iterable of all of these. Such a row is `excluded` just
                before it would be sent; one that an earlier process may
                have sent is `unknown`. A resumed run may exclude others.
                To read a file, pass `importer.read_exclusions(path)`.
            journal: Location of the journal, which stores the run's
                progress: a file path, or the URL of an object store or a
                folder (`s3://bucket/prefix`, `gs://`, `az://`,
                `file:///folder`, `memory://name`). For more options, pass
                a `Store`. A row takes 25 to 75 bytes, by the length of the
                service's ids; rows that are stored, as by `spool`, also
                take their data, and each different error its text.
            ledger: Location of a ledger, which remembers the last certain
                outcome of each contact over all runs: a file path, or a
                URL as for `journal`. Only new rows, changed rows, and rows
                whose last outcome is uncertain are sent; the others are
                `unchanged`. Make the same call after a crash, and with
                each new input.
            max_age: Age of an entry in the ledger, in seconds or as a
                `timedelta`, from which its row is sent again: others may
                have edited the contact. With 0, every row is sent, also
                with `changed="ignore"`.
            changed: `"send"` sends a row that differs from the last row of
                its contact. `"ignore"` does not; `duplicates="skip"` needs
                this.
            hold: Period in seconds or as a `timedelta`. A row of a person
                to whom the ledger has sent within it is `excluded`, unless
                it updates the person in the same campaign and workspace.
            held_by: Ledgers that also hold the people to whom they have
                sent: paths, or a mapping of paths to names, which need not
                exist before their first run. Of runs whose ledgers hold
                each other, one sends to a person, also if they import the
                person at the same moment.
            hold_domains: Whether a person holds everybody with the domain,
                unless that is one of a provider, such as gmail.com.
            resume: Continue the run of an existing journal after a crash
                or a suspension, with the same rows, options and address of
                the service; every row gets exactly one outcome. If an
                error stopped the run before the service accepted a row,
                all rows are sent again. If it has certainly applied none,
                `campaign`, `workspace`, `duplicates`, `strict_validation`
                and the address may be corrected. Without `resume`, an
                existing journal is an error.
            earlier: `"known"` if the journal has every row that an earlier
                run may have sent. With `"unknown"`, every row without an
                outcome counts as possibly sent; it implies `resume`, and
                continues even a damaged, empty or lost journal.
            spool: Save all rows in the journal before the first row is
                sent. To resume the run, pass the same rows or none.
            total: Number of rows, for progress reports; defaults to the
                length of `rows`, if it has one.
            stop_after_rejects: Number of rows after which the run stops if
                the service rejects all of them, because the whole input or
                an option may be wrong; `None` never stops it. Only answers
                count until the service accepts a row: not rows that are
                not sent, and with a ledger not rows of a contact whose row
                it has rejected before. A resumed run may have another
                number.
            max_outage: Number of seconds without any success after which
                the run is suspended; a request in flight still ends on its
                own. By default 900; but a run that has never reached the
                service is suspended after a few attempts, because the
                address may be wrong.
            timeout, deadline: Limits of each attempt, and of all attempts
                of a row together, in seconds. Waits, and attempts that
                fail because of an outage, do not count.

        Raises:
            InvalidRequest: An option is invalid (raised at once), or the
                journal belongs to another run (raised on entry).
            JournalError: The journal is damaged, or cannot be read or
                written; raised on entry or during iteration.
            BulkSuspended: The service was down or throttling for too long,
                or asked for a long wait; raised during iteration.
            BulkStopped: An error of the service affects every row; raised
                during iteration, after the last outcome.

        Example:
            ```python
            rows = [{"email": f"user{number}@company.example"} for number in range(2)]
            async with client.contacts.create_many(rows, order="input") as outcomes:
                print([(outcome.index, outcome.certain) async for outcome in outcomes])  # -> [(0, True), (1, True)]
            ```
        """
        from outreach_async.bulk._run import BulkRun, create_plan
        from outreach_async.store._recorder import choose_store

        request_options = {"duplicates": duplicates, "strict_validation": strict_validation, "campaign": campaign}
        requests = self._contact_requests(hide(owner_key), workspace, **request_options)
        plan = create_plan(
            self._engine,
            requests,
            self._settings.call_options(timeout, deadline),
            rows,
            campaigns=self._campaign_lister,
            concurrency=concurrency,
            order=order,
            repeats=repeats,
            numbers=numbers,
            normalise=normalise,
            blank=blank,
            total=total,
            stop_after_rejects=stop_after_rejects,
            max_outage=max_outage,
            exclude=exclude,
        )
        flags = {"resume": resume, "spool": spool, "normalise": normalise, "hold_domains": hold_domains}
        require_types(Contacts.create_many, flags)
        # The store records what is sent, not how it is spelled in the arguments.
        recorded = {**request_options, "duplicates": requests.duplicates, "campaign": requests.target.campaign}
        opens_store = choose_store(
            plan,
            recorded,
            journal=journal,
            ledger=ledger,
            max_age=max_age,
            changed=changed,
            hold=hold,
            held_by=held_by,
            hold_domains=hold_domains,
            resume=resume,
            earlier=earlier,
            spool=spool,
        )
        return BulkRun(plan, opens_store)

    def _campaign_lister(self, throttle: Throttle | None) -> Callable[[str], Pager[Campaign]]:
        campaigns = Campaigns(self._engine, self._settings, throttle)
        return lambda workspace: campaigns.list(workspace=workspace, undecodable="keep")

    def _contact_requests(self, owner_key: object, workspace: str | None, **options: object) -> ContactRequests:
        try:
            return self._cached_requests(owner_key, workspace, **options)
        except TypeError:  # an unhashable option is invalid: the next line raises its error
            return self._build_requests(owner_key, workspace, **options)

    def _build_requests(self, owner_key: object, workspace: str | None, **options: object) -> ContactRequests:
        key, space = default_to(owner_key, self._settings.owner_key), default_to(workspace, self._settings.workspace)
        defaults = self._settings.request_defaults
        requests = ContactRequests.from_options(key, space, defaults, copy_detector=self._engine.copy_detector, **options)
        if isinstance(base_url := getattr(self._engine.transport, "base_url", None), str):
            warn_of_plain_http(base_url)
        return requests


def targets_of(
    contacts: Contacts, campaign: str | None, workspaces: Mapping[str, str], refused: Mapping[str, str]
) -> _plumbing.Targets:
    """Return the targets that rows may name, with the client's workspace and a campaign as the default; see `Targets`."""
    workspace: Any = contacts._settings.workspace  # noqa: SLF001 - a class of this module
    lister = contacts._campaign_lister(None)  # noqa: SLF001 - as above
    return _plumbing.Targets(Target(workspace, campaign), lister, workspaces, refused)


def default_to(value: object, default: object) -> object:
    """Return `value`, or `default` if `value` is `None`."""
    return default if value is None else value


@attrs.frozen
class RunResources:
    """The resources of a client for one run that reads. Its requests share a throttle, as those of a bulk run do."""

    campaigns: Campaigns
    mailboxes: Mailboxes
    workspaces: Workspaces
    throttle: RunThrottle
    max_in_flight: int


def open_run(campaigns: Campaigns, mailboxes: Mailboxes, workspaces: Workspaces, *, max_outage: float | None) -> RunResources:
    """Return the resources of a client for one run."""
    engine = mailboxes._engine  # noqa: SLF001 - the resources are classes of this module
    throttle = RunThrottle(engine.limiter, engine.policy, max_outage=max_outage)
    return RunResources(
        attrs.evolve(campaigns, throttle=throttle),
        attrs.evolve(mailboxes, throttle=throttle),
        attrs.evolve(workspaces, throttle=throttle),
        throttle,
        engine.max_in_flight,
    )


# What a client is made of.


def build_settings(
    owner_key: object,
    workspace: object,
    headers: Mapping[str, str],
    limits: CallOptions,
    transport: Transport,
    *,
    converter: object,
) -> Settings:
    """Check the options that a request needs. The transport may know secrets of its own."""
    # The owner key is one of the secrets to mask in errors: `request()` may send the key, and a response may repeat it.
    key, defaults = trim(hide(owner_key)), RequestDefaults.from_headers(headers, _require_converter(converter))
    secrets = (*defaults.secrets, *map(Secret, getattr(transport, "secrets", ())))
    if isinstance(key, Secret) and OWNER_KEY.fullmatch(key.reveal()):  # another string could be a common word
        require_id("owner_key", key.reveal(), "owner_key", KEY_REMEDY)
        secrets += (key,)
    return Settings(key, trim(workspace), headers, limits, converter, attrs.evolve(defaults, secrets=secrets))


def _require_converter(converter: object) -> Callable[[], OutreachConverter]:
    """Return a function that returns the converter that was passed to a client, or the one of clients without their own."""
    if converter is None:
        return _default_converter
    from outreach_async.converters import OutreachConverter

    if not isinstance(converter, OutreachConverter):
        remedy = "pass OutreachConverter()"
        raise InvalidRequest(f"converter: expected an OutreachConverter, got {type_name(converter)}; {remedy}")
    return lambda: converter


@cache
def _default_converter() -> OutreachConverter:
    from outreach_async.converters import OutreachConverter

    return OutreachConverter()


def resolve_transport(base_url: str | None, transport: object, limit: int) -> Transport:
    """Return the transport that was passed, or one to the URL."""
    if transport is not None:
        if base_url is not None:
            raise InvalidRequest("base_url: expected either base_url or transport, got both; leave out base_url")
        # A check of the methods is not enough: a transport class, and a client of httpx or httpx2, have methods of these names.
        homes = {base.__module__.partition(".")[0] for base in type(transport).__mro__}
        if not isinstance(transport, Transport) or isinstance(transport, type) or homes & {"httpx", "httpx2"}:
            raise InvalidRequest(
                f"transport: expected a transport, got {type_name(transport)}; wrap a client, for example HttpxTransport(client)"
            )
        return transport
    url: object = base_url if base_url is not None else trim(os.environ.get("OUTREACH_BASE_URL"))
    if url is None or url == "":
        raise InvalidRequest("base_url: missing; pass base_url= or transport=, or set OUTREACH_BASE_URL")
    if not isinstance(url, str):
        raise InvalidRequest(f"base_url: expected a URL, got {type_name(url)}; pass a client as transport=HttpxTransport(client)")
    return create_transport(url, "httpx", limit)


def build_engine(transport: Transport, limit: int, rate: object, policy: RetryPolicy, hooks: object) -> Engine:
    """Return the engine of a new client. By default, its rate is that of the environment."""
    configure_logging()
    observer = build_observer(hooks, transport)
    if rate is None:
        rate = read_rate(os.environ)
    elif not isinstance(rate, Rate) or isinstance(rate, type):
        rate = require_rate("rate", rate)
    return Engine(transport, max_in_flight=limit, policy=policy, rate=rate, observer=observer)


def build_policy(retry: object, max_retries: object, default: RetryPolicy) -> RetryPolicy:
    """Return the policy that `retry` or `max_retries` asks for."""
    if retry is not None and max_retries is not None:
        raise InvalidRequest("max_retries: expected either max_retries or retry, got both; pass retry=RetryPolicy(attempts=...)")
    if retry is not None and not isinstance(retry, RetryPolicy):
        remedy = "pass max_retries=, or retry=RetryPolicy(attempts=...)"
        raise InvalidRequest(f"retry: expected a RetryPolicy, got {type_name(retry)}; {remedy}")
    if max_retries is None:
        return retry or default
    return attrs.evolve(default, attempts=require_number("max_retries", max_retries, least=0) + 1, counts_refusals=True)
