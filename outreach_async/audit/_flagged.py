"""The findings of an audit, in compressed blocks of mailboxes, from which `Finding` objects are built on access."""

from __future__ import annotations

import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, overload

import msgspec

from outreach_async.audit._conditions import DomainFacts, build_missing_authentication, email_domain
from outreach_async.audit._findings import Finding, Rule, Severity, Violation, build_finding
from outreach_async.models import Number

FIGURES: Final = (
    "sent_30days", "daily_limit", "sent_today", "bounced_30days", "blacklists", "opened_14days", "avg_open_rate",
)  # fmt: skip

_MAX_KEPT: Final = 20_000  # up to this number, the findings of a report are built once and kept
_BLOCK: Final = 256  # mailboxes in a block of bytes
_RECORD_BITS: Final = 32
_VIOLATION_BITS: Final = 8
_OTHER: Final = 1 << 63


class StoredViolation(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A finding about a mailbox. `rule` is the place of its rule among the policy's rules about mailboxes."""

    rule: int
    message: str
    figures: dict[str, Number]
    rank: int
    sure: bool


class Flagged(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A mailbox with findings. `row` is its place in the `MailboxColumns` of its workspace."""

    row: int
    id: str
    email: str
    status: str
    figures: tuple[Number, ...]
    violations: list[StoredViolation]


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(Flagged)


class FlaggedMailboxes:
    # A growing buffer would be copied again and again, and compression makes a mailbox three times as small.

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._open = bytearray()  # the block that is not complete yet
        self._ends = array("I")  # the end of each mailbox in its block
        self._odd: dict[int, Flagged] = {}  # those with texts that cannot be encoded
        self._last: tuple[int, bytes] = -1, b""  # the block that was read last

    def append(self, mailbox: Flagged) -> None:
        start = len(self._open)
        try:
            _encoder.encode_into(mailbox, self._open, -1)
        except UnicodeEncodeError:
            del self._open[start:]
            self._odd[len(self._ends)] = mailbox
        self._ends.append(len(self._open))
        if len(self._ends) % _BLOCK == 0:
            self._blocks.append(zlib.compress(self._open, 1))
            self._open.clear()

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, place: int) -> Flagged:
        if place in self._odd:
            return self._odd[place]
        block, at = divmod(place, _BLOCK)
        start, end = self._ends[place - 1] if at else 0, self._ends[place]
        if block == len(self._blocks):
            return _decoder.decode(bytes(self._open[start:end]))
        if self._last[0] != block:
            self._last = block, zlib.decompress(self._blocks[block])
        return _decoder.decode(memoryview(self._last[1])[start:end])

    def __iter__(self) -> Iterator[Flagged]:
        return map(self.__getitem__, range(len(self)))


class MailboxFindings:
    """Builds the findings about mailboxes. Those about SPF, DKIM and DMARC depend on the daily limits of whole domains."""

    def __init__(self, rules: Sequence[Rule], workspaces: Sequence[str], flagged: Sequence[FlaggedMailboxes]) -> None:
        self._rules = rules
        self._workspaces = workspaces
        self._flagged = flagged
        self.limits: Mapping[str, Number] = {}  # daily limits of domains, if they are high enough to make a finding critical

    def rank(self, violation: StoredViolation, domain: str | None) -> int:
        rule = self._rules[violation.rule]
        known = self._about_authentication(rule, domain)
        return violation.rank if known is None else (known.severity or rule.severity).rank

    def build(self, place: int, mailbox: Flagged, violation: StoredViolation) -> Finding:
        rule, domain = self._rules[violation.rule], email_domain(mailbox.email)
        known = self._about_authentication(rule, domain)
        if known is None:
            known = Violation(violation.message, violation.figures, SEVERITIES[violation.rank], violation.sure)
        workspace, sent = self._workspaces[place], mailbox.figures[0]
        return build_finding(rule, known, workspace, domain, sent, mailbox=mailbox.id, email=mailbox.email)

    def _about_authentication(self, rule: Rule, domain: str | None) -> Violation | None:
        if rule.lack is None or domain is None:
            return None
        return build_missing_authentication(rule.lack, DomainFacts(daily_limit=self.limits.get(domain, 0)), rule.thresholds)

    def at(self, reference: int) -> Finding:
        place = reference >> _RECORD_BITS + _VIOLATION_BITS
        mailbox = self._flagged[place][reference >> _VIOLATION_BITS & (1 << _RECORD_BITS) - 1]
        return self.build(place, mailbox, mailbox.violations[reference & (1 << _VIOLATION_BITS) - 1])


def refer(place: int, number: int, violation: int) -> int:
    """Return a 64-bit reference to a finding: the place of its workspace, the number of its mailbox, and its place there."""
    return (place << _RECORD_BITS | number) << _VIOLATION_BITS | violation


SEVERITIES: Final = tuple(Severity)


class FindingList(Sequence[Finding]):
    """The findings of an audit, the worst first, built when they are accessed. It equals a list of the same findings."""

    def __init__(self, mailboxes: MailboxFindings) -> None:
        self._mailboxes = mailboxes
        self._orders = [array("Q") for _ in Severity]
        self._others: list[Finding] = []
        self._kept: list[Finding] | None = None

    def extend(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self._orders[finding.severity.rank].append(_OTHER | len(self._others))
            self._others.append(finding)

    def append(self, rank: int, reference: int) -> None:
        self._orders[rank].append(reference)

    def with_severity(self, severity: Severity) -> Sequence[Finding]:
        alone = FindingList(self._mailboxes)
        alone._orders[severity.rank], alone._others = self._orders[severity.rank], self._others
        return alone

    def _build(self, reference: int) -> Finding:
        return self._others[reference ^ _OTHER] if reference & _OTHER else self._mailboxes.at(reference)

    def __len__(self) -> int:
        return sum(map(len, self._orders))

    def __iter__(self) -> Iterator[Finding]:
        if len(self) > _MAX_KEPT:
            return (self._build(reference) for order in self._orders for reference in order)
        if self._kept is None:
            self._kept = [self._build(reference) for order in self._orders for reference in order]
        return iter(self._kept)

    @overload
    def __getitem__(self, place: int) -> Finding: ...
    @overload
    def __getitem__(self, place: slice) -> list[Finding]: ...
    def __getitem__(self, place: int | slice) -> Finding | list[Finding]:
        if isinstance(place, slice):
            return [self[at] for at in range(*place.indices(len(self)))]
        at = range(len(self))[place]  # raises an error for an index that does not exist
        ends = list(accumulate(map(len, self._orders)))
        rank = bisect_right(ends, at)
        return self._build(self._orders[rank][at - ends[rank]])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FindingList | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (list(self),)
