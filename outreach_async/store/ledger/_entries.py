"""The entries of a ledger in one sorted file, to which the rows of a run are applied. Synchronous.

A generation is never changed after it is written: `apply` merges its entries with the rows of a run into a draft, and syncs it to
the disk. Its caller then publishes the draft under the ledger's name. A kill at any moment leaves the old generation or the new
one.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from enum import Enum, IntEnum
from functools import partial
from hashlib import blake2b
from heapq import nlargest
from itertools import chain
from math import inf
from mmap import ACCESS_READ, mmap
from pathlib import Path
from shutil import copyfileobj
from struct import Struct
from tempfile import TemporaryFile
from typing import IO, Any, Final, TypeAlias

import attrs
import msgspec

from outreach_async._files.atomic import sync
from outreach_async._wire_words import ID_PREFIXES
from outreach_async.bulk._rows import Repeats
from outreach_async.errors import InvalidRequest, JournalError
from outreach_async.models import Target

# A file has the magic bytes and the version, the entries in the order of their keys, the rejects in the same order, the ids that
# do not fit into an entry, the metadata as JSON, and the footer.
_MAGIC: Final = b"OALEDG" + sys.byteorder[:1].encode()  # the numbers in a file are in the order of the machine
FORMAT_VERSION: Final = 2
_HEADER: Final = _MAGIC + bytes([FORMAT_VERSION])
_ENTRY: Final = Struct("=QQI12s")
"""The key; the digest and the target; the flag, the form of the id and the time; the id."""
_REJECT: Final = Struct("=QI")
"""A row that the service rejected: its key, and the time of the last rejection. It is not an entry, because it says nothing about
the values of the contact: the row is sent again, but another rejection, also with other values, says nothing about the run."""
_FOOTER: Final = Struct("=QQQ")
"""The number of entries, the number of rejects, and the size of the metadata. A digest of the whole file follows."""
_DIGEST_SIZE: Final = 16
_ID: Final = Struct("=QI")
"""The place and the length of an id that does not fit."""
CAMPAIGN_BITS: Final = 16
"""The last bits of a key depend on the campaign too. The others are those of the contact, so its entries are neighbours."""
SIMILAR_BITS: Final = 32
"""The first half of a key is the same for all e-mails that a service may treat as equal, so their contacts are neighbours too."""
TARGET_BITS: Final = 20
_MAX_TARGET: Final = (1 << TARGET_BITS) - 1
DIGEST_BITS: Final = 43
_OUT_OF_DATE: Final = 1 << DIGEST_BITS
"""Digest of an entry whose contact may have other values now: those of a similar e-mail, or of an unanswered row."""
_UNCERTAIN: Final = _OUT_OF_DATE + 1
"""Digest of an entry whose contact may have been changed by an attempt, while no later answer says whether it was."""
_EPOCH: Final = 1_577_836_800
"""1 January 2020: times are stored as minutes since then, in 24 bits."""
_MAX_TIME: Final = (1 << 24) - 1
_FORM_SHIFT: Final = 24
_TEXT: Final = 15
"""The form of an id that does not fit. The form of another id is the number of its bytes; 0 if there is no id."""
_MAX_REJECT_AGE: Final = 90 * 24 * 60
"""Minutes after which a reject is forgotten, so that rows that left the input do not stay for ever."""
_GONE: Final = 1 << 31
"""Flag of an entry whose row the last whole input of its campaign did not have."""
LONGEST_DOUBT: Final = 3600.0
"""Maximum of seconds until answers settle what a run has left uncertain, as the clock of a later run sees it."""
_BUCKET_BITS: Final = 4
"""A bucket of the directory has about 16 entries: a search takes four steps, in two or three lines of memory."""
_PART_SIZE: Final = 1 << 15
"""Number of entries and rows that are merged at a time, so that it takes little memory."""
_ROWS_IN_MEMORY: Final = 1 << 16
_CHUNK_SIZE: Final = 2**20
_ID_PREFIX: Final = ID_PREFIXES["contact"]
_encode_lines: Final = msgspec.json.Encoder().encode_lines
_decode_lines: Final = msgspec.json.Decoder(tuple[int, int, int, int, str | None]).decode_lines


class RowChange(Enum):
    NEW = "new"
    CHANGED = "changed"
    EXPIRED = "expired"
    UNCERTAIN = "uncertain"
    UNCHANGED = "unchanged"


class Effect(IntEnum):
    """The effect of a sent row at the service, as far as its outcome shows it."""

    NONE = 0
    APPLIED = 1
    """The contact has the row's values."""
    RETRIED = 2
    """The contact has the row's values, but an earlier attempt may still arrive at the service."""
    POSSIBLE = 3
    """An attempt may have had an effect."""
    REJECTED = 4
    """The service rejected the row, and no attempt had an effect."""
    REJECTED_LAST = 5
    """The service rejected the last attempt, but an earlier one may have had an effect."""


_EFFECTLESS: Final = frozenset({Effect.NONE, Effect.REJECTED})
_UNSETTLED: Final = frozenset({Effect.POSSIBLE, Effect.REJECTED_LAST})
_REJECTIONS: Final = frozenset({Effect.REJECTED, Effect.REJECTED_LAST})
_ACCEPTED: Final = frozenset({Effect.APPLIED, Effect.RETRIED})


SentRow: TypeAlias = tuple[int, int, int, int, str | None]
"""A row that a run sent or may have sent: its key, digest, target, effect, and the id in its answer."""

Reject: TypeAlias = tuple[int, int]
"""A row that the service rejected: its key, and the time in minutes."""

StoredEntry: TypeAlias = tuple[int, int, bytes]
"""An entry without its key, as it is stored."""


@attrs.frozen
class AppliedRun:
    at: float
    counts: Mapping[str, int]
    targets: Mapping[int, Target]
    rows: int  # that it marked
    seen: bytearray | None = None
    """For each entry, whether the run's input has it; `None` unless all of the input was read."""
    compared: Collection[int] = ()
    """The targets of the input's rows, from which contacts may be gone."""
    request: Mapping[str, Any] = attrs.field(factory=dict)
    """The options that are part of its requests."""
    repeats: Repeats = "serial"
    settles_at: float = 0.0
    """Unix time at which none of its requests can arrive at the service any more."""


class Metadata(msgspec.Struct):
    """The metadata of a generation: its ledger, and the generations, times and counts of the runs."""

    address: str | None
    secret: bytes
    generation: int = 0
    request: Mapping[str, Any] = {}
    targets: dict[int, Target] = {}
    runs: list[tuple[int, int, Mapping[str, int]]] = []
    repeats: Repeats = "serial"
    """The policy of the last run."""
    settles_at: float = 0.0
    """Unix time from which the answers of a new run settle uncertain entries: no earlier request can arrive after them."""


def is_ledger_file(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


class Generation:
    """One generation of a ledger: its entries, open for reading. An entry is known by its place in the order of the keys."""

    def __init__(self, path: Path) -> None:
        if not is_ledger_file(path):
            raise InvalidRequest(f"ledger: {path} is not a ledger; pass the path of a ledger, or of a file that does not exist")
        with ExitStack() as stack:
            # Another program may overwrite the file while it is open. It would change the entries after they were checked, or
            # shorten the file, which kills a process that reads beyond its end.
            with path.open("rb") as file, TemporaryFile() as copy:
                copyfileobj(file, copy, _CHUNK_SIZE)
                copy.flush()
                content = stack.enter_context(memoryview(stack.enter_context(mmap(copy.fileno(), 0, access=ACCESS_READ))))
            self.count, self.reject_count, ids_end, end = _check(path, content)
            self.metadata = msgspec.json.decode(content[ids_end:end], type=Metadata)
            rejects_start = len(_HEADER) + self.count * _ENTRY.size
            ids_start = rejects_start + self.reject_count * _REJECT.size
            self.ids = stack.enter_context(content[ids_start:ids_end])
            self._rejects = stack.enter_context(content[rejects_start:ids_start])
            self.entries = stack.enter_context(content[len(_HEADER) : rejects_start])
            words = stack.enter_context(self.entries.cast("Q"))
            self.keys, self.checks = (stack.enter_context(words[at :: _ENTRY.size // 8]) for at in (0, 1))
            self._states = stack.enter_context(stack.enter_context(self.entries.cast("I"))[4 :: _ENTRY.size // 4])
            self.close = stack.pop_all().close
        self.targets = {target: number for number, target in self.metadata.targets.items()}
        self.name = blake2b(self.metadata.secret, digest_size=8).hexdigest()
        """Identifies the ledger in the journals of its runs, without its secret."""
        bits = max(0, self.count.bit_length() - _BUCKET_BITS)
        self._shift = 64 - bits
        self._directory = array("Q", [*(self.first_place(number << self._shift) for number in range(1 << bits)), self.count])

    def first_place(self, key: int) -> int:
        """Return the place of the first entry whose key is not less than this one."""
        return bisect_left(self.keys, key)

    def similar(self, key: int) -> range:
        """Return the places of the contacts whose e-mails a service may treat as equal to that of a key, in all campaigns."""
        first = key >> SIMILAR_BITS << SIMILAR_BITS
        bucket = first >> self._shift
        start = bisect_left(self.keys, first, self._directory[bucket], self._directory[bucket + 1])
        if start == self.count or self.keys[start] >> SIMILAR_BITS != key >> SIMILAR_BITS:
            return range(0)
        return range(start, bisect_right(self.keys, first | (1 << SIMILAR_BITS) - 1, start))

    def id_of(self, contact: int) -> str | None:
        """Return the id of a contact, by its entry in any campaign."""
        place = self.first_place(contact << CAMPAIGN_BITS)
        return self.id_at(place) if place < self.count and self.keys[place] >> CAMPAIGN_BITS == contact else None

    def digests_of(self, contact: int) -> set[int]:
        """Return the digests of a contact's entries, in all campaigns."""
        first, end = (self.first_place(contact + more << CAMPAIGN_BITS) for more in (0, 1))
        return {check >> TARGET_BITS for check in self.checks[first:end]}

    def locate(self, keys: Iterable[int]) -> list[int]:
        """Return the places of the entries with these keys; -1 for a key without an entry."""
        stored, directory, shift = self.keys, self._directory, self._shift
        places = list[int]()
        for key in keys:
            bucket = key >> shift
            end = directory[bucket + 1]
            place = bisect_left(stored, key, directory[bucket], end)
            places.append(place if place < end and stored[place] == key else -1)
        return places

    def judge(self, place: int, digest: int, target: int | None, fresh: range) -> RowChange:
        """Compare a row with its entry. `fresh` has the times of entries that are not too old, as `fresh_times` returns them."""
        known, known_target = self.checks[place] >> TARGET_BITS, self.checks[place] & _MAX_TARGET
        if known == _UNCERTAIN:
            return RowChange.UNCERTAIN
        if known_target != target:  # two campaigns have the same 16 bits for this contact
            return RowChange.NEW
        if known != digest:
            return RowChange.CHANGED
        return RowChange.UNCHANGED if self.time_at(place) in fresh else RowChange.EXPIRED

    def time_at(self, place: int) -> int:
        """Return the time of an entry, in minutes since the ledger's epoch."""
        return self._states[place] & _MAX_TIME

    def was_rejected(self, key: int) -> bool:
        """Return whether the service rejected a row with this key, and a later run has applied none."""
        return any(self.rejects(key, key + 1))

    def rejects(self, start: int, end: int) -> Iterator[Reject]:
        """Yield the rejects whose keys are in a range, in the order of the keys."""
        places = range(self.reject_count)
        for place in places[bisect_left(places, start, key=self._reject_key) :]:
            if (found := self._reject_at(place))[0] >= end:
                return
            yield found

    def _reject_at(self, place: int) -> Reject:
        key, time = _REJECT.unpack_from(self._rejects, place * _REJECT.size)
        return key, time

    def _reject_key(self, place: int) -> int:
        return self._reject_at(place)[0]

    def id_at(self, place: int) -> str | None:
        _, state, stored = read_entry(self.entries, place)
        return self.decode_id(state >> _FORM_SHIFT & _TEXT, stored)

    def decode_id(self, form: int, stored: bytes) -> str | None:
        if form == _TEXT:
            start, size = _ID.unpack(stored)
            return str(self.ids[start : start + size], "utf-8")
        return _ID_PREFIX + stored[:form].hex() if form else None

    def gone(self, seen: bytearray, targets: Collection[int | None], first: int, end: int) -> Iterator[int]:
        """Yield the entries of some targets, between two places, that an input does not have."""
        place = seen.find(0, first, end)
        while place >= 0:
            if self.checks[place] & _MAX_TARGET in targets:
                yield place
            place = seen.find(0, place + 1, end)

    def count_gone(self, seen: bytearray, targets: Iterable[Target]) -> int:
        """Return the number of entries of some targets that an input does not have."""
        return sum(1 for _ in self.gone(seen, {self.targets.get(target) for target in targets}, 0, self.count))

    def count_entries(self) -> tuple[int, int, dict[Target, int]]:
        """Return the numbers of uncertain and of gone entries, and the number of entries for each target."""
        sums = Counter(map(_MAX_TARGET.__and__, self.checks))
        uncertain = sum(map((_UNCERTAIN << TARGET_BITS).__le__, self.checks))
        gone = sum(map(_GONE.__le__, self._states))
        return uncertain, gone, {target: sums[number] for target, number in self.targets.items()}


def _check(path: Path, content: memoryview) -> tuple[int, int, int, int]:
    """Check the whole file. Return the numbers of entries and of rejects, and the ends of the ids and of the metadata."""
    # This is as fast as the disk, and what is read later needs no check of its own.
    end = len(content) - _FOOTER.size - _DIGEST_SIZE
    if end >= len(_HEADER) and content[len(_MAGIC)] > FORMAT_VERSION:
        raise InvalidRequest(f"ledger: {path} was written by a newer version of this library; use that version")
    is_ours = end >= len(_HEADER) and content[: len(_HEADER)] == _HEADER
    if not is_ours or _digest(content[:-_DIGEST_SIZE]).digest() != content[-_DIGEST_SIZE:]:
        raise damaged_error(path, "its checksum does not match")
    count, rejects, size = _FOOTER.unpack_from(content, end)
    return count, rejects, end - size, end


_digest: Final = partial(blake2b, digest_size=_DIGEST_SIZE)


def read_entry(entries: memoryview, place: int) -> StoredEntry:
    _, check, state, id_ = _ENTRY.unpack_from(entries, place * _ENTRY.size)
    return check, state, id_


def minutes(seconds: float) -> int:
    """Convert a Unix time to minutes since the ledger's epoch."""
    return min(max(0, int(seconds - _EPOCH) // 60), _MAX_TIME)


ALL_TIMES: Final = range(_MAX_TIME + 1)


def fresh_times(now: float, max_age: float | None) -> range:
    """Return the times of the entries that are not too old, in minutes since the ledger's epoch."""
    # 0 means that every row is sent, so no time is fresh, whatever the clock says. The age of an entry from the future is
    # unknown: the clock was ahead then, or is behind now.
    if max_age is None:
        return ALL_TIMES
    return range(minutes(now - max_age) + 1, minutes(now) + 1) if max_age else range(0)


def create(path: Path, address: str | None, secret: bytes) -> None:
    _write(path, [_HEADER, *_end(0, 0, Metadata(address, secret))])


def apply(opened: Generation, draft: Path, run: AppliedRun, sent: Iterable[SentRow]) -> int | None:
    """Apply the rows that a run sent: write the next generation to `draft`. Return the number of entries that are gone."""
    with TemporaryFile() as rows, TemporaryFile() as ids, TemporaryFile() as rejects:
        _write(draft, (merge := _Merge(opened, run, ids, rejects)).write(sent, rows))
    return merge.gone


def _write(path: Path, content: Iterable[bytes | bytearray | memoryview]) -> None:
    """Write a file that only its owner can read, and sync it to the disk. A digest of the content follows the content."""
    path.unlink(missing_ok=True)
    path.touch(0o600, exist_ok=False)
    digest = _digest()
    with path.open("wb") as file:
        for piece in content:
            digest.update(piece)
            file.write(piece)
        file.write(digest.digest())
    sync(path)


def _end(count: int, rejects: int, metadata: Metadata) -> tuple[bytes, bytes]:
    text = msgspec.json.encode(metadata)
    return text, _FOOTER.pack(count, rejects, len(text))


def _divide(rows: Iterable[SentRow], bits: int, file: IO[bytes]) -> Iterator[list[SentRow]]:
    """Divide rows into parts by the first bits of their keys, and yield the parts, each in the order of its rows."""
    parts = [list[SentRow]() for _ in range(1 << bits)]
    stored = [list[tuple[int, int]]() for _ in parts]
    for row in rows:
        part = parts[row[0] >> 64 - bits]
        part.append(row)
        if len(part) == _ROWS_IN_MEMORY >> bits:
            stored[row[0] >> 64 - bits].append((file.tell(), file.write(_encode_lines(part))))
            part.clear()
    for part, places in zip(parts, stored, strict=True):
        earlier = list[SentRow]()
        for offset, size in places:
            file.seek(offset)
            earlier += _decode_lines(file.read(size))
        yield earlier + part


class _Merge:
    """The merge of a generation with the rows of a run, part by part in the order of the keys."""

    def __init__(self, opened: Generation, run: AppliedRun, ids: IO[bytes], rejects: IO[bytes]) -> None:
        self.gone = None if run.seen is None else 0
        self._opened = opened
        self._run = run
        self._ids = ids
        self._rejects = rejects
        self._time = minutes(run.at)
        # A clock that was ahead must not keep entries uncertain for longer than a run can.
        self._settles_at = min(opened.metadata.settles_at, run.at + LONGEST_DOUBT)
        self._is_early = run.at < self._settles_at
        self._targets = {**opened.metadata.targets, **run.targets}
        workspaces = Counter(target.workspace for target in self._targets.values())
        self._shares_contacts = max(workspaces.values(), default=0) > 1

    def write(self, sent: Iterable[SentRow], file: IO[bytes]) -> Iterator[bytes | bytearray | memoryview]:
        """Yield the content of the next generation. The rows wait in a temporary file until it is the turn of their part."""
        yield _HEADER
        bits, count, first = (max(self._opened.count, self._run.rows) // _PART_SIZE).bit_length(), 0, 0
        for number, rows in enumerate(_divide(sent, bits, file), 1):
            end = self._opened.first_place(number << 64 - bits)
            yield (merged := self._merge(rows, first, end))
            count, first = count + len(merged) // _ENTRY.size, end
            self._merge_rejects(rows, number - 1 << 64 - bits, number << 64 - bits)
        reject_count = self._rejects.tell() // _REJECT.size
        yield from _content(self._rejects)
        yield self._opened.ids
        yield from _content(self._ids)
        known, run = self._opened.metadata, self._run
        counts = {**run.counts} if self.gone is None else {**run.counts, "gone": self.gone}
        runs = [*known.runs, (known.generation + 1, int(run.at), counts)]
        number, settles_at = known.generation + 1, self._settles_at
        metadata = Metadata(known.address, known.secret, number, run.request, self._targets, runs, run.repeats, settles_at)
        yield from _end(count, reject_count, metadata)

    def _merge(self, rows: Sequence[SentRow], first: int, end: int) -> bytearray:
        size, keys = _ENTRY.size, self._opened.keys[first:end]
        old = memoryview(bytearray(self._opened.entries[first * size : end * size]))
        self._mark_gone(old, first, end)
        changed = self._apply(rows, old, first)
        self._mark_replaced(rows, changed)
        pieces, copied = list[bytes | memoryview](), 0
        for key in sorted(changed):
            if (place := bisect_left(keys, key, copied)) > copied:
                pieces.append(old[copied * size : place * size])
            pieces.append(_ENTRY.pack(key, *changed[key]))
            copied = place + (place < len(keys) and keys[place] == key)
        pieces.append(old[copied * size :])
        return bytearray().join(pieces)

    def _merge_rejects(self, rows: Sequence[SentRow], first: int, end: int) -> None:
        """Write the rejects whose keys are in a range: those of the run, and earlier ones whose rows it did not apply."""
        kept = {key: self._time for key, _, _, effect, _ in rows if effect in _REJECTIONS}
        accepted = {key for key, _, _, effect, _ in rows if effect in _ACCEPTED}
        for key, time in self._opened.rejects(first, end):
            if key not in kept and key not in accepted and self._time - time <= _MAX_REJECT_AGE:
                kept[key] = min(time, self._time)
        self._rejects.write(b"".join(_REJECT.pack(*each) for each in sorted(kept.items())))

    def _mark_gone(self, entries: memoryview, first: int, end: int) -> None:
        """Mark the entries of the run's targets that its input did not have, and no longer those that it had."""
        if (seen := self._run.seen) is None or self.gone is None:
            return
        states = entries.cast("I")[4 :: _ENTRY.size // 4]
        for place in [place for place, state in enumerate(states) if state >= _GONE and seen[first + place]]:
            states[place] ^= _GONE
        for place in self._opened.gone(seen, self._run.compared, first, end):
            states[place - first] |= _GONE
            self.gone += 1

    def _apply(self, rows: Sequence[SentRow], entries: memoryview, first: int) -> dict[int, StoredEntry]:
        """Return the entries of the rows' keys. The rows are in the order in which they were sent, and keys may repeat."""
        changed = self._known_entries(rows, entries, first)
        keys_of = defaultdict[int, set[int]](set)
        for key in changed if self._shares_contacts else ():
            keys_of[key >> CAMPAIGN_BITS].add(key)
        uncertain = [key for key, (check, *_) in changed.items() if check >> TARGET_BITS == _UNCERTAIN]
        # A request of an earlier run may still arrive at the service, after the answers of this one.
        doubtful_before = {key >> CAMPAIGN_BITS for key in uncertain if self._is_early}
        doubtful = set[int]()
        for key, digest, target, effect, id_ in rows:
            if effect in _EFFECTLESS or target > _MAX_TARGET:  # rows of campaigns that have no number are sent every time
                continue
            contact, known = key >> CAMPAIGN_BITS, digest
            # A request without an answer may still arrive at the service, after a later row of this run for the same contact.
            if effect in _UNSETTLED or contact in doubtful:
                known, self._settles_at = _UNCERTAIN, max(self._settles_at, self._run.settles_at)
            elif contact in doubtful_before:
                known = _UNCERTAIN
            if effect != Effect.APPLIED:
                doubtful.add(contact)
            form, stored = self._encode_id(id_, changed.get(key))
            changed[key] = known << TARGET_BITS | target, form << _FORM_SHIFT | self._time, stored
            if not self._shares_contacts:
                continue
            keys_of[contact].add(key)
            for other in keys_of[contact] - {key}:
                check, state, stored = changed[other]
                if check >> TARGET_BITS != _UNCERTAIN:  # this row has replaced the values of another campaign's
                    replaced = _OUT_OF_DATE if known == _UNCERTAIN else digest
                    changed[other] = replaced << TARGET_BITS | check & _MAX_TARGET, state, stored
        return changed

    def _mark_replaced(self, rows: Sequence[SentRow], changed: dict[int, StoredEntry]) -> None:
        """Mark the entries of contacts whose values a row of a similar e-mail may have replaced."""
        if replaced := {*self._find_replaced(rows, changed)}:
            for key, (check, state, stored) in changed.items():
                if key >> CAMPAIGN_BITS in replaced and check >> TARGET_BITS != _UNCERTAIN:
                    changed[key] = _OUT_OF_DATE << TARGET_BITS | check & _MAX_TARGET, state, stored

    def _find_replaced(self, rows: Sequence[SentRow], changed: Iterable[int]) -> Iterator[int]:
        """Yield the contacts whose values a row of a similar e-mail may have replaced."""
        # Contacts with similar e-mails may be one at the service. They are two if the ids of both are known, and differ.
        similar = defaultdict[int, set[int]](set)
        for key in changed:
            similar[key >> SIMILAR_BITS].add(key >> CAMPAIGN_BITS)
        if all(len(contacts) == 1 for contacts in similar.values()):  # nearly always
            return
        applied, effective, ids = dict[int, int](), dict[int, float](), dict[int, str | None]()
        for at, (key, _, target, effect, id_) in enumerate(rows):
            if effect not in _EFFECTLESS and target <= _MAX_TARGET:
                contact = key >> CAMPAIGN_BITS
                applied[contact] = at
                # A request without an answer may still arrive after all others.
                effective[contact] = max(effective.get(contact, 0), at if effect == Effect.APPLIED else inf)
                ids[contact] = id_ or ids.get(contact)
        for group, contacts in similar.items():
            if len(contacts) > 1:
                for place in self._opened.similar(group << SIMILAR_BITS) if self._is_early else ():
                    if self._opened.checks[place] >> TARGET_BITS == _UNCERTAIN:  # an earlier request may still arrive, too
                        effective[self._opened.keys[place] >> CAMPAIGN_BITS] = inf
                known = {contact: ids.get(contact) or self._opened.id_of(contact) for contact in contacts}
                yield from _find_overtaken(known, applied, effective)

    def _known_entries(self, rows: Sequence[SentRow], entries: memoryview, first: int) -> dict[int, StoredEntry]:
        """Return the entries of the rows' contacts, and of contacts with similar e-mails, in all campaigns."""
        groups = {row[0] >> SIMILAR_BITS for row in rows}
        places = chain(*(self._opened.similar(group << SIMILAR_BITS) for group in groups))
        return {self._opened.keys[place]: read_entry(entries, place - first) for place in places}

    def _encode_id(self, id_: str | None, earlier: StoredEntry | None) -> tuple[int, bytes]:
        """Return the form and the stored bytes of an id; without an id, those of the earlier entry."""
        form, stored = (0, b"") if earlier is None else (earlier[1] >> _FORM_SHIFT & _TEXT, earlier[2])
        if id_ is None:
            return form, stored
        try:
            digits = bytes.fromhex(id_.removeprefix(_ID_PREFIX))
        except ValueError:
            digits = b""
        if 0 < len(digits) <= _ID.size and _ID_PREFIX + digits.hex() == id_:
            return len(digits), digits
        if form != _TEXT or self._opened.decode_id(form, stored) != id_:
            stored = _ID.pack(len(self._opened.ids) + self._ids.tell(), self._ids.write(id_.encode()))
        return _TEXT, stored


def _find_overtaken(ids: Mapping[int, str | None], applied: Mapping[int, int], effective: Mapping[int, float]) -> Iterator[int]:
    """Yield contacts to which the row of another one, which may be the same at the service, may have been applied later."""
    # For each id, only the two latest contacts count: one of them is another one.
    latest = defaultdict[str | None, list[tuple[float, int]]](list)
    for contact in effective.keys() & ids.keys():
        latest[ids[contact]].append((effective[contact], contact))
    latest = defaultdict(list, {id_: nlargest(2, each) for id_, each in latest.items()})
    anyone = nlargest(2, chain(*latest.values()))
    for contact, id_ in ids.items():
        rivals = anyone if id_ is None else latest[id_] + latest[None]
        if any(other != contact and at > applied.get(contact, -1) for at, other in rivals):
            yield contact


def _content(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    yield from iter(partial(file.read, _CHUNK_SIZE), b"")


def damaged_error(path: Path | str, reason: str) -> JournalError:
    return JournalError(
        f"ledger {path} is damaged: {reason}; move it away and restore a copy, or start a new ledger, which sends every row again"
    )
