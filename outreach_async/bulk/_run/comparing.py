"""Compare the rows of an input with a ledger, and supply only the new, the changed and the uncertain ones to the workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from hashlib import blake2b
from itertools import islice, repeat
from struct import Struct
from typing import Any, Final, TypeAlias

import attrs
import msgspec
from anyio.lowlevel import checkpoint

from outreach_async._service.contacts import NewContact, Target
from outreach_async._service.operations import ContactRequests, CopyDetector, RequestDefaults
from outreach_async.bulk._outcomes import ContactOutcome, LedgerCounts, UnsentRows, unchanged_outcome, unfinished_outcome
from outreach_async.bulk._rows import NO_ROWS, ParsedRow, PossiblySent, RowParser, Source, order_key
from outreach_async.bulk._run.windows import MAX_WINDOW_SIZE, WindowedFeed
from outreach_async.bulk._targets import Targets
from outreach_async.bulk.journal._identity import MarkedWindow
from outreach_async.bulk.ledger import LedgerOptions, OpenLedger, open_entries
from outreach_async.bulk.ledger._entries import CAMPAIGN_BITS, Entry, Generation, SeenKeys, Standing, decode_id, judge
from outreach_async.bulk.ledger._folding import encode_row
from outreach_async.errors import InvalidRequest

_MAX_COMPARED: Final = 4 * MAX_WINDOW_SIZE
"""Number of rows that are compared before those to be sent are marked, although they do not fill a window."""
_KEY: Final = Struct(">qQ")
_CONTACT_MASK: Final = -1 << CAMPAIGN_BITS
_CAMPAIGN_SHIFT: Final = 64 - CAMPAIGN_BITS
"""Multiplying by a random number of the campaign, and keeping the upper bits of 64, is a universal hash."""
_BATCH_SIZE: Final = 250
"""Number of rows that are encoded before other tasks may run."""

Prepared: TypeAlias = tuple[int, int, Target, ParsedRow | None]
"""The key, the digest and the target of a row, and the parsed row if parsing was necessary."""


class Comparer:
    """Compares rows with the entries of a ledger. It remembers which entries the run's own rows have made out of date."""

    def __init__(self, options: LedgerOptions, entries: Generation, parser: RowParser, *, only_counts: bool = False) -> None:
        self.counts = LedgerCounts()
        self.unchanged: Counter[Target] | None = Counter() if only_counts else None
        """The number of unchanged rows for each target, if nobody receives their outcomes."""
        self.seen = SeenKeys()
        self.marked: list[tuple[ParsedRow, bytes, Standing, Entry | None]] = []
        """The rows to be sent that are not marked yet, each with its encoding for the journal."""
        self.targets: dict[Target, int] = {parser.targets.default: 0}
        """The targets of the run, each with its number in the run's journal."""
        self._named: set[Target] = set()
        self.find = entries.find
        self._known_targets = entries.targets
        self._sharing: dict[Target, bool] = {}
        self._parser = parser
        self._oldest = options.oldest
        self._ignores_changes = options.ignore_changes
        self._secret = entries.secret
        self._key_starts: dict[Target, tuple[Any, int]] = {}
        # The options are part of the digest: with other options, the same row is another request.
        self._digest_start = blake2b(msgspec.json.encode(options.request, order="deterministic") + b"\n", digest_size=6)
        self._sent: dict[int, int] = {}
        """The digest of the rows that this run sends for a contact with entries; -1 if they differ."""

    def prepare(self, first: int, originals: Sequence[object]) -> list[Prepared | ContactOutcome]:
        """Compute the key and digest of each row. Return the outcome of a row that cannot be sent."""
        emails, encoded = [*map(_email_of, originals)], self._parser.try_encode(originals)
        if encoded is None or not all(isinstance(email, str) for email in emails):
            return [self._prepare_row(first + position, original) for position, original in enumerate(originals)]
        contents, targets = encoded
        targets = [self._parser.targets.default] * len(contents) if targets is None else targets
        keys = self._keys(map(order_key, emails), targets)
        self.seen.add(keys)
        return [*zip(keys, self._digests(contents), targets, repeat(None))]

    def _prepare_row(self, index: int, original: object) -> Prepared | ContactOutcome:
        row = self._parser.parse(index, original)
        if isinstance(row, ContactOutcome):
            if isinstance(email := _email_of(original), str):
                self.seen.add(self._keys([order_key(email)], [row.target]))  # the row is wrong, but it is not gone
                self._named.add(row.target)
            return row
        self.seen.add(keys := self._keys([row.key], [row.target]))
        return keys[0], self._digests([self._parser.contact_bytes(row)])[0], row.target, row

    @property
    def compared_targets(self) -> Collection[Target]:
        """The targets of the input's rows, from which contacts may be gone; of an input without rows, the run's own."""
        return self._named or {self._parser.targets.default}

    def _keys(self, orders: Iterable[str], targets: Iterable[Target]) -> list[int]:
        hashes, salts = list[bytes](), list[int]()
        last: Target | None = None
        start: Any = None
        salt = 0
        for order, target in zip(orders, targets, strict=True):
            if target is not last:
                start, salt = self._key_starts.get(last := target) or self._start_keys(target)
            hasher = start.copy()
            hasher.update(order.encode(errors="surrogatepass"))
            hashes.append(hasher.digest())
            salts.append(salt)
        pairs = zip(_KEY.iter_unpack(b"".join(hashes)), salts, strict=True)
        return [contact & _CONTACT_MASK | more * salt >> _CAMPAIGN_SHIFT & ~_CONTACT_MASK for (contact, more), salt in pairs]

    def _start_keys(self, target: Target) -> tuple[Any, int]:
        start = blake2b(msgspec.json.encode(target.workspace) + b"\n", key=self._secret, digest_size=_KEY.size)
        salt = blake2b(msgspec.json.encode(target.campaign), key=self._secret, digest_size=8).digest()
        self._key_starts[target] = starts = start, int.from_bytes(salt) | 1
        return starts

    def _digests(self, contents: Iterable[bytes]) -> list[int]:
        digests = list[int]()
        for content in contents:
            hasher = self._digest_start.copy()
            hasher.update(content)
            digests.append(int.from_bytes(hasher.digest()))
        return digests

    def settle(
        self, first: int, originals: Sequence[object], prepared: Sequence[Prepared | ContactOutcome], found: Mapping[int, Entry]
    ) -> Iterator[ParsedRow | ContactOutcome]:
        """Decide which rows are sent. Yield each row, or its outcome if it is not sent."""
        number, known, last, unchanged = 0, None, None, self.unchanged
        for index, item in enumerate(prepared, first):
            if isinstance(item, ContactOutcome):
                yield item
                continue
            key, digest, target, row = item
            if target is not last:
                last, known = target, self._known_targets.get(target)
                number = self.targets.setdefault(target, len(self.targets))
                self._named.add(target)
            standing, contact = Standing.NEW, key >> CAMPAIGN_BITS
            if (entry := found.get(key)) is not None:
                standing = judge(digest, known, entry, self._oldest)
                if standing is Standing.UNCHANGED and self._sent and self._sent.get(contact, digest) != digest:
                    standing = Standing.CHANGED  # an earlier row of this run gives the contact other values
                if standing is Standing.UNCHANGED or (standing is Standing.CHANGED and self._ignores_changes):
                    self.counts.unchanged += 1
                    if unchanged is not None:
                        unchanged[target] += 1
                        continue
                    yield unchanged_outcome(index, originals[index - first], decode_id(entry[-1]), target)
                    continue
            parsed = row or self._parser.parse(index, originals[index - first])
            if isinstance(parsed, ParsedRow):
                # An attempt of an earlier run may have added the contact, so the answer cannot prove that it existed before.
                parsed.maybe_sent = standing is Standing.UNCERTAIN
                setattr(self.counts, standing.value, getattr(self.counts, standing.value) + 1)
                self.marked.append((parsed, encode_row(key, digest, number), standing, entry))
                if entry is not None or self._shares_contacts(target):
                    self._sent[contact] = digest if self._sent.get(contact, digest) == digest else -1
            yield parsed

    def _shares_contacts(self, target: Target) -> bool:
        """Return whether the ledger has entries of the target's workspace in other campaigns."""
        if (found := self._sharing.get(target)) is None:
            found = any(other.workspace == target.workspace and other != target for other in self._known_targets)
            self._sharing[target] = found
        return found


_REASONS: Final = {
    Standing.NEW: "the ledger does not have the contact",
    Standing.CHANGED: "the row differs from the last row of the contact",
    Standing.EXPIRED: "the row was sent too long ago",
    Standing.UNCERTAIN: "an earlier attempt was not answered",
}


_DEFAULT_REQUEST: Final = {"duplicates": "overwrite", "strict_validation": True}


def count_changes(
    rows: Iterable[Any],
    options: LedgerOptions,
    targets: Targets,
    tell: Callable[[ContactOutcome], object],
) -> LedgerCounts:
    """Compare rows with a ledger, which is only read, and return what a run with these rows would find.

    `tell` receives an outcome for each row. A row that a run would send is `not_applied`, or `unknown` if it is uncertain.
    Without options of a request, the run would have those of the ledger's last run.
    """
    # The names of campaigns in the rows must be known to `targets`.
    workspace, campaign = targets.default
    remaining, first = iter(rows), 0
    with open_entries(options.ledger) as entries:
        options = attrs.evolve(options, request=options.request or entries.request or _DEFAULT_REQUEST)
        requests = ContactRequests.from_options(
            "key_unused",
            workspace,
            RequestDefaults.from_headers({}),
            **options.request,
            campaign=campaign,
            copy_detector=CopyDetector(),
        )
        comparer = Comparer(options, entries, RowParser(requests, targets=targets))
        while batch := [*islice(remaining, _BATCH_SIZE)]:
            prepared = comparer.prepare(first, batch)
            found = entries.find([item[0] for item in prepared if isinstance(item, tuple)])
            for row in comparer.settle(first, batch, prepared, found):
                tell(row if isinstance(row, ContactOutcome) else _unsent(*comparer.marked[-1], options.request["duplicates"]))
            comparer.marked.clear()
            first += len(batch)
        with closing(comparer.seen) as seen:
            comparer.counts.gone = entries.count_gone(seen, comparer.compared_targets)
    return comparer.counts


def _unsent(row: ParsedRow, _content: bytes, standing: Standing, entry: Entry | None, duplicates: str) -> ContactOutcome:
    """Return the outcome of a row that a run would send."""
    reason = InvalidRequest(f"ledger: {_REASONS[standing]}; import the file to send the row")
    is_uncertain = standing is Standing.UNCERTAIN
    outcome = unfinished_outcome(
        row.index, row.original, reason, duplicates, attempts=0, maybe_applied=is_uncertain, target=row.target
    )
    return attrs.evolve(outcome, id=None if entry is None else decode_id(entry[-1]))


def _email_of(original: Any) -> Any:
    original = original[0] if type(original) is tuple and original else original  # a contact and its target
    if type(original) is dict:  # nearly every row
        return original.get("email")
    if isinstance(original, NewContact):
        return original.email
    members = getattr(original, "members", original)  # a row of a file that cannot be sent has no items, only members
    return members.get("email") if isinstance(members, Mapping) else None


class LedgerFeed(WindowedFeed):
    """Supplies the rows of a run with a ledger: those to be sent, which are marked in the run's journal, and all outcomes."""

    def __init__(
        self, ledger: OpenLedger, source: Source, parser: RowParser, window_size: Callable[[], int], *, only_counts: bool
    ) -> None:
        super().__init__(ledger.journal, source, parser, window_size)
        self.numbers: dict[int, int] = {}
        """Numbers in the journal of the rows that are marked and have no outcome, by their index in the input."""
        run = ledger.run
        self.comparer = Comparer(ledger.options, run.entries, parser, only_counts=only_counts)
        self._marked_count = 0
        self._share = 1.0

    def remaining_possibly_sent(self) -> PossiblySent:
        """Return no rows: the ledger itself knows which rows an earlier run may have sent."""
        return NO_ROWS

    async def _fill_window(self) -> bool:
        """Compare rows until those to be sent fill a window. Mark these rows, and supply all rows."""
        size, is_last, first = self._window_size(), False, self._first
        rows: list[ParsedRow | ContactOutcome] = []
        marked = self.comparer.marked
        while self._first == first or (
            len(marked) < size and self._first - first < _MAX_COMPARED and self._source.ready and not self._ended
        ):
            # Enough rows for a window, if as many of them are sent as of the previous rows.
            wanted = min(int((size - len(marked)) / self._share) + 1, MAX_WINDOW_SIZE)
            originals = await self._read_rows(wanted, whole=False)
            is_last = not originals
            if is_last:
                break
            rows += await self._compare(originals)
            if len(originals) < wanted:  # the rows are large, or the next ones have not arrived
                break
        if compared := self._first - first:
            self._share = max(len(marked), 1) / compared
        if marked:
            await self._mark()
        self._rows.extend(_group(rows))
        if self.comparer.unchanged:
            self._rows.append(UnsentRows(first, [], self.comparer.unchanged.copy()))
            self.comparer.unchanged.clear()
        self._last_size = len(self._rows)
        if self._rows:
            self._notify()
        return not is_last

    async def _compare(self, originals: Sequence[object]) -> list[ParsedRow | ContactOutcome]:
        first, prepared = self._first, list[Prepared | ContactOutcome]()
        for start in range(0, len(originals), _BATCH_SIZE):
            batch = originals[start : start + _BATCH_SIZE]
            prepared += await self._parser.targets.apply(self.comparer.prepare, first + start, batch)
            await checkpoint()
        found = await self._thread.run(self.comparer.find, [item[0] for item in prepared if type(item) is tuple])
        self._first += len(originals)
        return [*self.comparer.settle(first, originals, prepared, found)]

    async def _mark(self) -> None:
        rows = [*self.comparer.marked]
        self.comparer.marked.clear()
        window = MarkedWindow(self._marked_count, len(rows), b"".join(content for _, content, *_ in rows))
        self.numbers.update((row.index, number) for number, (row, *_) in enumerate(rows, self._marked_count))
        await self._thread.run(self._writer.mark, window, {row.target: self.comparer.targets[row.target] for row, *_ in rows})
        self._marked_count += len(rows)


def _group(rows: Iterable[ParsedRow | ContactOutcome]) -> Iterator[ParsedRow | UnsentRows]:
    """Join consecutive outcomes."""
    unsent: list[ContactOutcome] = []
    for row in rows:
        if isinstance(row, ContactOutcome):
            unsent.append(row)
            continue
        if unsent:
            yield UnsentRows(unsent[0].index, unsent)
            unsent = []
        yield row
    if unsent:
        yield UnsentRows(unsent[0].index, unsent)
