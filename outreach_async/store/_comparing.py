"""Compare the rows of an input with a ledger.

First, the rows about one contact are found, before any is sent: which of them count, and what they come to in order. A ledger has
one digest for each contact. A contact with several rows in an input has that of the row which was applied last, after those
before it. So an input that has the same rows again, in the same order, has the same digests, and sends nothing.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from hashlib import blake2b
from itertools import chain, islice
from struct import unpack
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

import attrs
import msgspec

from outreach_async._core.operations import ContactRequests, CopyDetector, RequestDefaults
from outreach_async._wire_words import Outcome
from outreach_async.bulk._cells import count_kept
from outreach_async.bulk._contact_keys import contact_key, domain_key, hash_contact, order_keys
from outreach_async.bulk._exclusions import Finder, find_error
from outreach_async.bulk._outcomes import (
    ContactOutcome,
    LedgerCounts,
    UnsentRows,
    is_rejected_repeat,
    unchanged_outcome,
    unfinished_outcome,
    unsent_outcome,
)
from outreach_async.bulk._rows import ParsedRow, RecentEmails, Repeats, RowParser, email_of
from outreach_async.bulk._targets import ListingNeeded, Targets
from outreach_async.converters import OutreachConverter
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.models import RUN_TARGET, Target
from outreach_async.store._holds import Holds
from outreach_async.store._ledgers import (
    CAMPAIGN_BITS,
    SIMILAR_BITS,
    TARGET_BITS,
    LedgerEntries,
    RowChange,
    hash_domain,
    load_entries,
    no_entries,
    start_contacts,
    start_domains,
    translate_ledger_errors,
)
from outreach_async.store._schema import DIGEST_BITS
from outreach_async.store._store import Comparison, Store, read_clock

_SIMILAR_MASK: Final = -1 << SIMILAR_BITS
_CONTACT_MASK: Final = -1 << CAMPAIGN_BITS
_HASH_SIZE: Final = 8
_EXTRA_BITS: Final = 8 * _HASH_SIZE - DIGEST_BITS
_NO_NUMBER: Final = -1  # of a target of which the ledger has no entries
_NO_TARGET: Final = Target("", "")  # of a row without an e-mail, or with an unknown campaign
BATCH_SIZE: Final = 250  # rows that are encoded before other tasks may run

Parse: TypeAlias = Callable[[int, object], ParsedRow | ContactOutcome]  # parses the row with an index

NO_DIGEST: Final = -1  # of a row that cannot be sent: no entry has it
BUCKETS: Final = 256


@attrs.frozen
class PreparedRows:
    """Rows with what is compared of each: its key, digest and target."""

    first: int
    originals: Sequence[object]
    emails: Sequence[str]
    keys: Sequence[int]
    digests: list[int]
    targets: Sequence[Target]
    parsed: list[ParsedRow | ContactOutcome | None]
    """The rows that had to be parsed; the outcome of a row that cannot be sent."""
    marks: dict[int, int] = attrs.field(factory=dict)
    """The digest with which a row is marked if it is sent, by its position, if that is another one."""


def find_repeated(buckets: Iterable[array[int]]) -> set[int]:
    """Return the numbers that occur more than once, of which each bucket has all that are equal."""
    found = set[int]()
    for bucket in buckets:
        seen = set[int]()
        found.update(value for value in bucket if value in seen or seen.add(value))  # type: ignore[func-returns-value]
    return found


class _Sequence:
    """The rows of one contact that count, in all campaigns: each digest stands for all rows up to one of them."""

    __slots__ = ("_last", "digest", "done", "done_digest", "length")

    def __init__(self) -> None:
        self.done = 0
        """Number of rows that the contact has, according to its entries."""
        self.done_digest = NO_DIGEST
        self.restart()

    def restart(self) -> None:
        self.length, self.digest, self._last = 0, NO_DIGEST, NO_DIGEST

    def extend(self, digest: int) -> None:
        if not self.length:
            self.digest = digest
        elif digest != self._last:  # the same values twice change nothing
            content = self.digest.to_bytes(_HASH_SIZE) + digest.to_bytes(_HASH_SIZE)
            self.digest = int.from_bytes(blake2b(content, digest_size=_HASH_SIZE).digest()) >> 8 * _HASH_SIZE - DIGEST_BITS
        self._last = digest
        self.length += 1


@attrs.define
class _Repeats:
    """The rows with one e-mail and target."""

    rows: int = 0
    chosen: int = 0
    """Index of the row that counts, if only one does; and its number among the rows of the group."""
    chosen_row: int = 0
    passed: int = 0


class RepeatPlan:
    """The rows whose e-mail occurs more than once in an input, as a first reading of the input finds them."""

    def __init__(self, policy: Repeats) -> None:
        self._chooses = policy in {"first", "last"}
        self._policy = policy
        self._recent = RecentEmails() if policy == "error" else None
        self._groups = defaultdict[tuple[str, Target], _Repeats](_Repeats)
        self._sequences = defaultdict[int, _Sequence](_Sequence)
        self._sendable: list[tuple[int, _Repeats, int, int]] = []

    @property
    def repeated(self) -> int:
        """The number of rows that have the e-mail and the target of another row."""
        return sum(group.rows for group in self._groups.values() if group.rows > 1)

    def add(self, indexes: Sequence[int], rows: PreparedRows, parse: Parse) -> None:
        """Add rows, in their order. Each has its index in the input."""
        for position, index in enumerate(indexes):
            if not _takes_part(_parsed(rows, position, parse)):
                continue
            group, digest = self._group(rows, position), rows.digests[position]
            if self._policy == "last" or not group.rows:
                group.chosen, group.chosen_row = index, group.rows
            group.rows += 1
            earlier = self._recent and self._recent.find_earlier(index, rows.emails[position], rows.targets[position])
            if digest != NO_DIGEST and earlier is None:
                self._sendable.append((index, group, rows.keys[position] >> CAMPAIGN_BITS, digest))

    def finish(self, find_known: Callable[[int], Collection[int]]) -> None:
        """Compare the rows of each contact with the digests of its entries, which `find_known` returns."""
        known = dict[int, Collection[int]]()
        for index, group, contact, digest in self._sendable:
            if contact not in known:
                known[contact] = find_known(contact)
            sequence = self._sequences[contact]
            if not self._chooses or index == group.chosen:
                sequence.extend(digest)
                if sequence.digest in known[contact]:
                    sequence.done, sequence.done_digest = sequence.length, sequence.digest
        self._sendable.clear()
        for sequence in self._sequences.values():
            sequence.restart()

    def apply(self, rows: PreparedRows, parse: Parse) -> None:
        """Set what the next rows of the second reading are compared with, and the outcomes of those that do not count."""
        for position, key in enumerate(rows.keys) if self._sequences else ():
            if (sequence := self._sequences.get(key >> CAMPAIGN_BITS)) is None:
                continue
            row = _parsed(rows, position, parse)
            if not _takes_part(row):
                continue
            group = self._group(rows, position)
            group.passed += 1
            # By its number, because a table may return equal rows in another order when it is read again.
            counts = not self._chooses or group.passed == group.chosen_row + 1
            if isinstance(row, ContactOutcome):  # an excluded row is not sent, whether it counts or not
                continue
            if not counts:
                index, original, target = rows.first + position, rows.originals[position], rows.targets[position]
                rows.digests[position] = NO_DIGEST
                rows.parsed[position] = unsent_outcome(index, original, Outcome.NOT_APPLIED, None, group.chosen, target)
                continue
            sequence.extend(rows.digests[position])
            rows.marks[position] = sequence.digest
            rows.digests[position] = sequence.done_digest if sequence.length <= sequence.done else sequence.digest

    def _group(self, rows: PreparedRows, position: int) -> _Repeats:
        return self._groups[contact_key(rows.emails[position]), rows.targets[position]]


def _parsed(rows: PreparedRows, position: int, parse: Parse) -> ParsedRow | ContactOutcome:
    """Parse a row. Only this shows whether it can be sent: one with a date has the encoding of one with a string."""
    if (row := rows.parsed[position]) is None:
        row = rows.parsed[position] = parse(rows.first + position, rows.originals[position])
        if isinstance(row, ContactOutcome):
            rows.digests[position] = NO_DIGEST
    return row


def _takes_part(row: ParsedRow | ContactOutcome) -> bool:
    """Return whether a row says something about its contact: it can be sent, or it says that it must not be sent."""
    return not isinstance(row, ContactOutcome) or row.status is Outcome.EXCLUDED


def _hashes(start: Any, contents: Iterable[bytes], form: str = "q") -> Sequence[int]:
    """Return the hashes of contents, each with a prefix that has been hashed already; with the form "q", they are signed."""
    copy, hashes = start.copy, list[bytes]()
    for content in contents:
        hasher = copy()
        hasher.update(content)
        hashes.append(hasher.digest())
    return unpack(f">{len(hashes)}{form}", b"".join(hashes))


def _hash_each(texts: Sequence[str], pairs: Sequence[tuple[Any, int]]) -> Sequence[int]:
    contents, first = [text.encode(errors="surrogatepass") for text in texts], pairs[0][0]
    if all(start is first for start, _ in pairs):  # nearly always
        return _hashes(first, contents)
    return [*chain(*(_hashes(start, [content]) for content, (start, _) in zip(contents, pairs, strict=True)))]


KeyStart: TypeAlias = tuple[Any, int]
"""The hash of a target's workspace, with which keys begin, and the last bits of its number, with which they end."""


def start_keys(secret: bytes, target: Target, number: int) -> KeyStart:
    """Return the start of the keys of a target, which has a number in the ledger."""
    return start_contacts(secret, target.workspace), number & ~_CONTACT_MASK


def hash_keys(emails: Sequence[str], pairs: Sequence[KeyStart]) -> list[int]:
    """Return the key of each e-mail, with the start of the keys of its target."""
    similar = order_keys(emails)
    groups = _hash_each(similar, pairs)
    if similar is emails:  # most addresses are their own keys
        return [each & _CONTACT_MASK | number for each, (_, number) in zip(groups, pairs, strict=True)]
    contacts = _hash_each([*map(contact_key, emails)], pairs)
    return [
        group & _SIMILAR_MASK | contact & _CONTACT_MASK & ~_SIMILAR_MASK | number
        for group, contact, (_, number) in zip(groups, contacts, pairs, strict=True)
    ]


class MarkedRow(NamedTuple):
    """A row to be sent, with what is compared of it, and the place of its entry, or -1."""

    row: ParsedRow
    key: int
    digest: int
    change: RowChange
    place: int


class Comparer:
    """Compares rows with the entries of a ledger. It remembers which entries the run's own rows have made out of date."""

    def __init__(
        self,
        options: Comparison,
        entries: LedgerEntries,
        parser: RowParser,
        now: float,
        *,
        only_counts: bool = False,
        width: int = 0,
        exclusions: Sequence[Finder] = (),
        holds: Holds | None = None,
    ) -> None:
        """Create a comparer of rows that, before their blank fields were left out, had `width` fields, if that is known."""
        self.counts = LedgerCounts()
        self.unchanged: Counter[Target] = Counter()
        """The number of unchanged rows for each target, if nobody receives their outcomes."""
        self.seen = bytearray(entries.count)
        """For each entry, 1 if a row of the input has its key."""
        self.marked: list[MarkedRow] = []
        """The rows to be sent that are not marked yet."""
        self.targets = {**entries.targets}
        """The targets of the run, each with its number in the run's journal."""
        self._named: set[Target] = set()
        self._entries = entries
        self._parser = parser
        self._only_counts = only_counts
        self._fresh = entries.fresh_runs(now, options.max_age)
        self._ignores_changes = options.ignore_changes
        self._width = width
        self.exclusions = exclusions
        self.holds = holds
        self._key_starts: dict[Target, KeyStart] = {}
        # The options are part of the digest: with other options, the same row is another request.
        start = msgspec.json.encode(options.request, order="deterministic") + b"\n"
        self._digest_start = blake2b(start, digest_size=_HASH_SIZE)
        self._plan = RepeatPlan("serial")
        self._sent: dict[int, int] = {}
        """The digest of the rows that this run sends for a contact with entries, or with a similar one; -1 if they differ."""
        self._sent_similar: dict[int, dict[str | None, int]] = {}
        """For e-mails of which the ledger has several, the contact of the rows that this run sends, by id; -1 if they differ. The
        contact of rows without a known id has the key `None`, and that of all rows the key ""."""

    def plan_repeats(self, policy: Repeats, read: Callable[[], Iterable[Any]]) -> Iterator[ListingNeeded | None]:
        """Read the input, so that rows of one contact are compared together. Yield after each batch, and for each listing."""
        # The hashes of the e-mails take eight bytes for each row. A few of those that are found may have different e-mails.
        hashes, parser, first = [array("q") for _ in range(BUCKETS)], self._parser.without_history(), 0
        for batch in _batches(read()):
            for value in map(hash_contact, filter(None, _emails_of(batch))):
                hashes[value % BUCKETS].append(value)
            yield None
        repeated, plan = find_repeated(hashes), RepeatPlan(policy)
        for batch in _batches(read()) if repeated else ():
            chosen = [at for at, email in enumerate(_emails_of(batch)) if email and hash_contact(email) in repeated]
            while chosen:
                try:
                    rows = [batch[at] for at in chosen]
                    plan.add([first + at for at in chosen], self._parse(0, rows, _emails_of(rows), parser), parser.parse)
                    break
                except ListingNeeded as needed:
                    yield needed
            first += len(batch)
            yield None
        plan.finish(self._entries.digests_of)
        self._plan = plan
        self.counts.repeated = plan.repeated

    def prepare(self, first: int, originals: Sequence[Any]) -> PreparedRows:
        """Compute what is compared of rows. Nothing is remembered, so this may be repeated once campaigns are listed."""
        emails = _emails_of(originals)
        encoded = self._parser.try_encode(originals)
        if encoded is None or {*map(type, emails)} != {str}:
            return self._parse(first, originals, emails, self._parser)
        contents, targets = encoded
        targets = [self._parser.targets.default] * len(contents) if targets is None else targets
        keys, digests = self._keys(emails, targets), self._digests(contents)
        return PreparedRows(first, originals, emails, keys, digests, targets, [None] * len(contents))

    def _parse(self, first: int, originals: Sequence[object], emails: Sequence[Any], parser: RowParser) -> PreparedRows:
        """Parse the rows that need it, such as those that may not be sent, and prepare the others without."""
        known, contents, targets = list[str](), list[bytes | None](), list[Target]()
        parsed = list[ParsedRow | ContactOutcome | None]()
        for index, (original, email) in enumerate(zip(originals, emails, strict=True), first):
            row, content, address = None, None, email or ""
            if type(email) is str and (encoded := parser.try_encode([original])) is not None:
                (content,), (target,) = encoded[0], encoded[1] or [parser.targets.default]
            elif isinstance(row := parser.parse(index, original), ParsedRow):
                content, target, address = parser.contact_bytes(row), row.target, row.email
            else:  # nothing is sent, but the contact is not gone
                target = row.target
            parsed.append(row)
            contents.append(content)
            known.append(address)
            targets.append(target if address and target != RUN_TARGET else _NO_TARGET)
        found = iter(self._digests(content for content in contents if content is not None))
        digests = [NO_DIGEST if content is None else next(found) for content in contents]
        return PreparedRows(first, originals, known, self._keys(known, targets), digests, targets, parsed)

    @property
    def compared_targets(self) -> Collection[Target]:
        """The targets of the input's rows, from which contacts may be gone; of an input without rows, the run's own."""
        return self._named or {self._parser.targets.default}

    def _keys(self, emails: Sequence[str], targets: Sequence[Target]) -> list[int]:
        return hash_keys(emails, [self._key_starts.get(target) or self._start_keys(target) for target in targets])

    def _start_keys(self, target: Target) -> KeyStart:
        number = 0 if target is _NO_TARGET else self._number(target)
        self._key_starts[target] = starts = start_keys(self._entries.header.secret, target, number)
        return starts

    def _number(self, target: Target) -> int:
        if target not in self.targets:  # the numbers of the ledger may have gaps: a target is recorded when a row of it is marked
            self.targets[target] = max(self.targets.values(), default=0) + 1
        return self.targets[target]

    def encode_marked(self, first: int) -> str:
        """Return the rows that are about to be sent as the columns of their table, numbered from `first`; see `sent`."""
        start, rows = start_domains(self._entries.header.secret), list[tuple[int, ...]]()
        for number, (row, key, digest, *_) in enumerate(self.marked, first):
            domain = domain_key(row.email.rpartition("@")[2]).encode(errors="surrogatepass")
            rows.append((number, key, digest, self.targets[row.target], hash_domain(start, domain)))
        return msgspec.json.encode(rows).decode()

    def _digests(self, contents: Iterable[bytes]) -> list[int]:
        return [digest >> _EXTRA_BITS for digest in _hashes(self._digest_start, contents, "Q")]

    def settle(self, rows: PreparedRows) -> list[ParsedRow | UnsentRows]:
        """Decide which rows are sent. Return these and, in their places, the outcomes of the others."""
        self._plan.apply(rows, self._parser.parse)
        self._exclude(rows)
        entries, seen, sent, fresh = self._entries, self.seen, self._sent, self._fresh
        checks, only_counts, sent_similar = entries.checks, self._only_counts, self._sent_similar
        settled, group = list[ParsedRow | UnsentRows](), list[ContactOutcome]()
        last, number, unchanged, places = _NO_TARGET, _NO_NUMBER, 0, entries.locate(rows.keys)
        for position, (key, place, digest, target) in enumerate(zip(rows.keys, places, rows.digests, rows.targets, strict=True)):
            if target is not last and target is not _NO_TARGET:
                self._count_unchanged(last, unchanged)
                last, number, unchanged = target, entries.targets.get(target, _NO_NUMBER), 0
                self._name(target)
            if place >= 0:
                seen[place] = 1
            if (
                place >= 0
                and checks[place] == digest << TARGET_BITS | number
                and key >> CAMPAIGN_BITS not in sent
                and key >> SIMILAR_BITS not in sent_similar
                and (fresh is None or entries.is_fresh(place, fresh))
            ):
                row = None  # nearly always
            else:
                row = self._decide(position, rows, place)
            if row is None:
                unchanged += 1
                if not only_counts:
                    index, id_ = rows.first + position, entries.id_at(place)
                    group.append(unchanged_outcome(index, rows.originals[position], id_, target))
            elif isinstance(row, ContactOutcome):
                group.append(row)
            else:
                if group:
                    settled.append(UnsentRows(group[0].index, group))
                    group = []
                settled.append(row)
        self._count_unchanged(last, unchanged)
        if group:
            settled.append(UnsentRows(group[0].index, group))
        return settled

    def _exclude(self, rows: PreparedRows) -> None:
        """Set the outcomes of rows whose people must not be written to, unless the rows are not sent anyway."""
        for position, email in enumerate(rows.emails) if self.exclusions else ():
            if (error := find_error(self.exclusions, email)) is None:
                continue
            row = _parsed(rows, position, self._parser.parse)
            if isinstance(row, ParsedRow) or is_rejected_repeat(row):
                outcome = unsent_outcome(row.index, rows.originals[position], Outcome.EXCLUDED, error, target=row.target)
                rows.parsed[position], rows.digests[position] = outcome, NO_DIGEST

    def _name(self, target: Target) -> None:
        self._named.add(target)
        self._number(target)

    def _count_unchanged(self, target: Target, rows: int) -> None:
        self.counts.unchanged += rows
        if rows and self._only_counts:
            self.unchanged[target] += rows

    def _decide(self, position: int, rows: PreparedRows, place: int) -> ParsedRow | ContactOutcome | None:
        """Return a row that is sent, or the outcome of a row that cannot be sent; `None` for an unchanged row."""
        row, digest, target = rows.parsed[position], rows.digests[position], rows.targets[position]
        if isinstance(row, ContactOutcome):
            self.counts.excluded += row.status is Outcome.EXCLUDED
            self.counts.gated += getattr(row.error, "kind", "") == "gate"
            return row
        key, change = rows.keys[position], RowChange.NEW
        if place >= 0:
            change = self._entries.judge(place, digest, self._entries.targets.get(target), self._fresh)
        mark = rows.marks.get(position, digest)
        if change is RowChange.UNCHANGED and self._has_replaced(key, mark):
            change = RowChange.CHANGED
        if change is RowChange.CHANGED and self._ignores_changes:
            change = RowChange.UNCHANGED if self._entries.is_fresh(place, self._fresh) else RowChange.EXPIRED
        if change is RowChange.UNCHANGED:
            return None
        row = row or self._parser.parse(rows.first + position, rows.originals[position])
        if isinstance(row, ParsedRow):
            if self.holds is not None and (held := self.holds.claim(row, is_new=change is RowChange.NEW)) is not None:
                return self._hold(row, held)
            # An attempt of an earlier run may have added the contact, so the answer cannot prove that it existed before.
            row.maybe_sent = change is RowChange.UNCERTAIN
            row.rejected_before = self._entries.was_rejected(key)
            setattr(self.counts, change.value, getattr(self.counts, change.value) + 1)
            if change is RowChange.CHANGED:  # perhaps because a value was emptied
                self.counts.kept += count_kept(row.original, self._width)
            self.marked.append(MarkedRow(row, key, mark, change, place))
            self._remember(key, mark)
        return row

    def _hold(self, row: ParsedRow, held: Excluded) -> ContactOutcome:
        self.counts.excluded += 1
        self.counts.held += 1
        return unsent_outcome(row.index, row.original, Outcome.EXCLUDED, held, target=row.target)

    def withdraw(self, held: Mapping[int, Excluded]) -> dict[int, ContactOutcome]:
        """Leave out new rows that turn out to be held, by their index. Return their outcomes."""
        withdrawn = [each.row for each in self.marked if each.row.index in held]
        self.counts.new -= len(withdrawn)
        self.marked = [each for each in self.marked if each.row.index not in held]
        return {row.index: self._hold(row, held[row.index]) for row in withdrawn}

    def _remember(self, key: int, digest: int) -> None:
        """Remember a row that is sent: later rows are compared with the values that it gives to contacts with entries."""
        if not (places := self._entries.similar(key)):
            return
        contact, keys = key >> CAMPAIGN_BITS, self._entries.keys
        self._sent[contact] = digest if self._sent.get(contact, digest) == digest else -1
        if {keys[places[0]] >> CAMPAIGN_BITS, keys[places[-1]] >> CAMPAIGN_BITS} != {contact}:
            contacts = self._sent_similar.setdefault(key >> SIMILAR_BITS, {})
            for id_ in (self._entries.id_of(contact), ""):
                contacts[id_] = contact if contacts.get(id_, contact) == contact else -1

    def _has_replaced(self, key: int, digest: int) -> bool:
        """Return whether this run sends a row that may give other values to the contact of an entry."""
        contact = key >> CAMPAIGN_BITS
        if self._sent.get(contact, digest) != digest:
            return True
        if not (contacts := self._sent_similar.get(key >> SIMILAR_BITS)):
            return False
        # Contacts with similar e-mails may be one at the service. They are two if the ids of both are known, and differ.
        ids = (None, id_) if (id_ := self._entries.id_of(contact)) else ("",)
        return any(contacts.get(each, contact) != contact for each in ids)


_REASONS: Final = {
    RowChange.NEW: "the ledger does not have the contact",
    RowChange.CHANGED: "the row differs from the last row of the contact",
    RowChange.EXPIRED: "the row was sent too long ago",
    RowChange.UNCERTAIN: "an earlier attempt was not answered",
}


_DEFAULT_REQUEST: Final = {"duplicates": "overwrite", "strict_validation": True}


def count_changes(
    read: Callable[[], Iterable[Any]],
    ledger: Store,
    targets: Targets,
    tell: Callable[[ContactOutcome], object],
    *,
    holding: Mapping[str, Any] = MappingProxyType({}),
    exclude: Sequence[Finder] = (),
    **options: Any,
) -> LedgerCounts:
    """Compare the rows that `read` returns with a ledger, which is only read, and return what a run with them would find.

    `tell` receives an outcome for each row. A row that a run would send is `not_applied`, or `unknown` if it is uncertain.
    The options are those of `Comparison`; `holding` has those of `Holds`, and `exclude` finds people to whom no row is sent.
    Options of a request, and a policy for repeats, that are not given are those of the ledger's last run.
    """
    # The names of campaigns in the rows must be known to `targets`.
    workspace, campaign = targets.default
    first = 0
    now = read_clock(ledger)
    with closing(ledger.medium()) as medium, translate_ledger_errors(medium.name):
        exists = medium.exists()
        entries = medium.query(load_entries) if exists else no_entries()
        if (holds := Holds.of(ledger, **holding)) is not None:
            holds.open(entries.header.address, now, claims=False)
            if exists:
                holds.load_own(medium.query)
    last = entries.runs[-1] if entries.runs else None
    request = options.pop("request", None) or (last.request if last else _DEFAULT_REQUEST)
    compared = Comparison(**options, request=request)
    requests = ContactRequests.from_options(
        "key_unused",
        workspace,
        RequestDefaults.from_headers({}, OutreachConverter),
        **request,
        campaign=campaign,
        copy_detector=CopyDetector(),
    )
    policy = compared.repeats or (last.repeats if last else "serial")
    parser = RowParser(requests, RecentEmails() if policy == "error" else None, targets)
    comparer = Comparer(compared, entries, parser, now, exclusions=exclude, holds=holds)
    for _ in comparer.plan_repeats(policy, read):
        pass
    for batch in _batches(read()):
        settled, marked = comparer.settle(comparer.prepare(first, batch)), iter(comparer.marked)
        for each in settled:
            for outcome in each.outcomes if isinstance(each, UnsentRows) else [_unsent(next(marked), request, entries)]:
                tell(outcome)
        comparer.marked.clear()
        first += len(batch)
    comparer.counts.gone, *_ = entries.find_gone(comparer.seen, comparer.compared_targets)
    return comparer.counts


def _unsent(marked: MarkedRow, request: Mapping[str, Any], entries: LedgerEntries) -> ContactOutcome:
    row, reason = marked.row, InvalidRequest(f"ledger: {_REASONS[marked.change]}; import the file to send the row")
    is_uncertain, duplicates = marked.change is RowChange.UNCERTAIN, request["duplicates"]
    outcome = unfinished_outcome(
        row.index, row.original, reason, duplicates, attempts=0, maybe_applied=is_uncertain, target=row.target
    )
    return attrs.evolve(outcome, id=None if marked.place < 0 else entries.id_at(marked.place))


def _batches(rows: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(rows)
    while batch := [*islice(remaining, BATCH_SIZE)]:
        yield batch


def _emails_of(originals: Sequence[Any]) -> Sequence[Any]:
    with suppress(Exception):  # of a key's own comparison
        if {*map(type, originals)} == {dict}:  # nearly always
            emails = [row.get("email") for row in originals]
            if {*map(type, emails)} == {str}:
                return emails
    return [*map(email_of, originals)]
