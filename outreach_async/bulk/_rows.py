"""Parse the rows of a run. For a row that must not be sent, create its outcome."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import (
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import attrs
import msgspec

from outreach_async._core.arguments import TARGET_FIELDS, is_missing, to_targeted_contact, unreadable
from outreach_async._core.codec import FIELD_ORDER, encode, encode_contact
from outreach_async._core.operations import AttemptInfo, ContactRequests, Operation, encode_cells, encode_plain, order_fields
from outreach_async._wire_words import CUSTOM_CODE, STANDARD_FIELDS, UNSET, Outcome, Unset
from outreach_async.bulk._contact_keys import contact_key, order_key, order_keys
from outreach_async.bulk._frames import UnsendableRow
from outreach_async.bulk._outcomes import ContactOutcome, unsent_outcome
from outreach_async.bulk._targets import ListingNeeded, Targets
from outreach_async.errors import Excluded, InvalidRequest
from outreach_async.models import RUN_TARGET, CreateContactResponse, NewContact, Target
from outreach_async.transport._wire import Request

CreateResult: TypeAlias = tuple[CreateContactResponse, AttemptInfo]


@attrs.define
class ParsedRow:
    index: int
    original: object
    email: str
    key: str
    request: Request
    operation: Operation[CreateResult]
    target: Target
    maybe_sent: bool = False
    rejected_before: bool = False
    """Whether the service rejected the same row in an earlier run, as the ledger shows."""


@attrs.frozen
class SpooledRow:
    """A row of the input, read from the journal's spool."""

    index: int
    payload: bytes
    repeats: int | None = None


@attrs.frozen
class PossiblySent:
    """A set of rows that may have been sent, stored as ranges of row indexes."""

    # If a process ends normally, it records exactly which rows have no outcome and may have been sent. If a process is killed,
    # the set contains every row that the journal marks as about to be sent. Some of these rows have an outcome and are not sent
    # again.

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int] = (), ranges: Iterable[tuple[int, int]] = ()) -> PossiblySent:
        """Return the set of rows whose indexes are in `indexes` or in one of the half-open `ranges`."""
        joined: list[tuple[int, int]] = []
        for first, end in sorted([*((index, index + 1) for index in indexes), *ranges]):
            if joined and first <= joined[-1][1]:
                joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
            elif first < end:
                joined.append((first, end))
        return cls(tuple(joined))

    def __contains__(self, index: int) -> bool:
        at = bisect_right(self.ranges, (index, float("inf")))
        return at > 0 and index < self.ranges[at - 1][1]

    def starting_at(self, index: int) -> PossiblySent:
        """Return the subset of rows whose index is at least `index`."""
        return PossiblySent.of(ranges=[(max(first, index), end) for first, end in self.ranges if end > index])


NO_ROWS: Final = PossiblySent()  # the empty set of rows


class RowParser:
    def __init__(
        self, contact_requests: ContactRequests, recent_emails: RecentEmails | None = None, targets: Targets | None = None
    ) -> None:
        self.targets = targets or Targets()
        self._own_requests = contact_requests
        self._requests: dict[Target, ContactRequests] = {}
        self._recent_emails = recent_emails
        self._is_plain = contact_requests.encodes_plainly

    def without_history(self) -> RowParser:
        """Return a parser that does not compare the e-mails of rows, and remembers none."""
        return RowParser(self._own_requests, None, self.targets)

    def parse(self, index: int, row: object) -> ParsedRow | ContactOutcome:
        """Return the parsed row or, if the row must not be sent, its outcome. Raise `ListingNeeded` as `Targets.find` does."""
        if not isinstance(row, SpooledRow):
            return self._parse_contact(index, row)
        content, target = decode_spooled(row.payload)
        known = self.targets.default if target is None else target
        if isinstance(content, str):
            return unsent_outcome(index, {}, Outcome.REJECTED, InvalidRequest(content), target=known)
        if isinstance(content, SpooledExclusion):
            return unsent_outcome(index, content.contact, Outcome.EXCLUDED, Excluded(content.reason), target=known)
        if row.repeats is not None:
            return unsent_outcome(index, content, Outcome.NOT_APPLIED, None, row.repeats, known)
        extra = {code: value for code, value in content.items() if code not in _KNOWN_CODES and not CUSTOM_CODE.fullmatch(code)}
        if extra:  # they are nested in a row, but not in a request
            content = {**{code: value for code, value in content.items() if code not in extra}, "extra": extra}
        return self._parse_contact(index, content if target is None else {**content, **target._asdict()})

    def _parse_contact(self, index: int, row: object) -> ParsedRow | ContactOutcome:
        if isinstance(row, UnsendableRow):
            return self._refuse(index, row, row.error)
        try:
            if (plain := self._encode_plain(row)) is not None:
                fields, target, email = plain
                requests = self.requests_for(target)
                request = requests.build_request(fields)
            else:
                contact, named = to_targeted_contact(row)
                target = self.targets.find(named)
                requests = self.requests_for(target)
                request, email = requests.build_row(contact), contact.email
            email = email if type(email) is str else str.__str__(email)  # of a subclass, a plain string
        except (InvalidRequest, Excluded) as error:
            return self._refuse(index, row, error)
        except (ListingNeeded, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001 - reading a row may run code of the caller, which may raise anything
            return self._refuse(index, row, unreadable(error))
        earlier = None if self._recent_emails is None else self._recent_emails.find_earlier(index, email, target)
        if earlier is not None:
            repeated = InvalidRequest(rejection_message(f"row {earlier}"))
            return unsent_outcome(index, row, Outcome.REJECTED, repeated, earlier, target)
        return ParsedRow(index, row, email, order_key(email), request, requests.row_operation, target)

    def parse_batch(self, first: int, originals: Sequence[Any]) -> list[ParsedRow | ContactOutcome] | None:
        """Return what `parse` returns for each of these rows; `None` if campaigns must be listed for one of them."""
        if (rows := self._parse_plain(first, originals)) is not None:
            return rows
        with suppress(ListingNeeded):
            return [self.parse(index, row) for index, row in enumerate(originals, first)]
        return None

    def _parse_plain(self, first: int, originals: Sequence[Any]) -> list[ParsedRow | ContactOutcome] | None:
        """Parse rows that are all dicts of strings in standard fields, in a fraction of the time; `None` for others."""
        if self._recent_emails is not None or not self._is_plain or {*map(type, originals)} != {dict}:
            return None
        try:
            lines = _encode_lines(originals)
            emails = [row.get("email") for row in originals]
        except Exception:  # noqa: BLE001 - code of the caller, as in `parse`, which says what is wrong
            return None
        if lines is None or {*map(type, emails)} != {str} or not all(map(str.strip, emails)):
            return None
        requests, target = self._own_requests, self.targets.default
        return [
            ParsedRow(index, row, email, key, requests.build_request(fields), requests.row_operation, target)
            for index, (row, email, key, fields) in enumerate(
                zip(originals, emails, order_keys(emails), lines, strict=True), first
            )
        ]

    def _encode_plain(self, row: Any) -> tuple[bytes, Target, str] | None:
        """Return the encoded fields, the target and the e-mail of a row of valid strings; `None` for any other row."""
        target = self.targets.default
        if not self._is_plain:  # a hook of the client's converter encodes contacts
            return None
        if type(row) is dict:
            if "campaign" in row or "workspace" in row:
                row = row.copy()
                named = Target(row.pop("workspace", None), row.pop("campaign", None))
                if not (fields := encode_plain(row)):  # an invalid row needs no list of campaigns
                    return None
                return fields, self.targets.find(named), row["email"]
            fields = encode_plain(row)
            return (fields, target, row["email"]) if fields else None
        cells = getattr(row, "plain", None)  # of a row of a file
        return (fields, target, row.email) if cells is not None and (fields := encode_cells(*cells)) else None

    def requests_for(self, target: Target) -> ContactRequests:
        if target is self.targets.default:
            return self._own_requests
        if (requests := self._requests.get(target)) is None:
            requests = self._own_requests.with_target(str(target.workspace), target.campaign)
            self._requests[target] = requests
        return requests

    def _refuse(self, index: int, row: object, error: InvalidRequest | Excluded) -> ContactOutcome:
        shown, target = row.values if isinstance(row, UnsendableRow) else row, self._target_of_invalid(row)
        if not isinstance(error, Excluded):
            return unsent_outcome(index, shown, Outcome.REJECTED, error, target=target)
        if self._recent_emails is not None and (email := email_of(row)):
            self._recent_emails.find_earlier(index, email, target)  # a later row of the person is a repeat
        return unsent_outcome(index, shown, Outcome.EXCLUDED, error, target=target)

    def _target_of_invalid(self, row: object) -> Target:
        """Return the target of a row that cannot be sent; `RUN_TARGET` if the row names an unknown one."""
        row = row.values if isinstance(row, UnsendableRow) else row
        contact, named = row if type(row) is tuple and len(row) == 2 else (row, RUN_TARGET)  # noqa: PLR2004 - a pair
        try:
            if named is RUN_TARGET:
                values = getattr(contact, "members", contact)  # a row of a file that cannot be sent has no items, only members
                named = Target(values.get("workspace"), values.get("campaign")) if isinstance(values, Mapping) else RUN_TARGET
            return self.targets.default if all(name is None for name in named) else self.targets.find(named)
        except (ListingNeeded, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - an unknown target, or a row that cannot be read
            return RUN_TARGET

    def try_encode(self, originals: Sequence[object]) -> tuple[list[bytes], list[Target] | None] | None:
        """Return an encoding and the target of each row without parsing the rows; `None` if the rows must be parsed."""
        # If all targets are the run's own, `None` stands for them. The encoding of a valid row equals its `identifying_bytes`. An
        # invalid row may have the encoding of a valid one: for example, a date is encoded as a string.
        # Every row must be parsed if a later row may repeat its e-mail, or if a hook encodes it.
        if self._recent_emails is not None or not self._is_plain:
            return None
        try:
            if {*map(type, originals)} == {dict} and (lines := _encode_lines(originals)) is not None:
                return lines, None
            encoded = [self._encode_known(row) for row in originals]  # `map` would take a StopIteration for its end
        except (ListingNeeded, MemoryError):
            raise
        except Exception:  # noqa: BLE001 - parsing reports the row whose values raise
            return None
        if None in encoded:
            return None
        contents, targets = [each[0] for each in encoded if each], [each[1] for each in encoded if each]
        return contents, None if targets.count(self.targets.default) == len(targets) else targets

    def _encode_known(self, row: Any) -> tuple[bytes, Target, str] | None:
        """Return the encoded fields, the target and the e-mail of a row; `None` if the row must be parsed."""
        if isinstance(row, NewContact):  # a subclass may have further fields
            return (encode_contact(row)[1:], self.targets.default, row.email) if type(row) is NewContact else None
        if type(row) is tuple and len(row) == 2 and isinstance(row[1], Target):  # noqa: PLR2004 - a pair
            contact, named = row
            if isinstance(contact, Mapping) and any(name in contact for name in TARGET_FIELDS):
                return None
            encoded = self._encode_known(contact)
            return encoded and (encoded[0], self.targets.find(named), encoded[2])
        if isinstance(row, SpooledRow):
            is_contact = row.repeats is None and row.payload.startswith(b"{")
            return (row.payload[1:], self.targets.default, "") if is_contact else None
        if (plain := self._encode_plain(row)) is not None or not isinstance(row, Mapping):
            return plain
        values = {name: value for name, value in row.items() if not is_missing(value)}  # not all of them are strings
        named = Target(values.pop("workspace", None), values.pop("campaign", None))
        fields = encode({name: values[name] for name in order_fields(tuple(values))})[1:]
        return (fields, self.targets.find(named), "") if len(fields) > 1 else None

    def contact_bytes(self, row: ParsedRow) -> bytes:
        return row.request.body[self.requests_for(row.target).prefix_size :]

    def identifying_bytes(self, row: ParsedRow | ContactOutcome) -> bytes:
        """Return bytes that identify a row: its contact and its target, or the row's error if the row is not sent."""
        if isinstance(row, ParsedRow):
            return self.add_target(self.contact_bytes(row), row.target)
        return str(row.error).encode()

    def identify(self, rows: Sequence[ParsedRow | ContactOutcome]) -> list[bytes]:
        """Return the `identifying_bytes` of rows."""
        default, start = self.targets.default, self._own_requests.prefix_size
        return [
            row.request.body[start:]
            if type(row) is ParsedRow and row.target is default  # nearly always
            else self.identifying_bytes(row)
            for row in rows
        ]

    def add_target(self, content: bytes, target: Target) -> bytes:
        """Return bytes that identify a row, from its encoding without its target."""
        # The run's own target is part of the run's identity. An encoded contact contains no line break.
        return content if target is self.targets.default else content + b"\n" + msgspec.json.encode(target)

    def encode_for_spool(self, row: object) -> tuple[str, bytes]:
        """Return what identifies repeats of the row, and its `SpooledRow.payload`; an empty string if it can never be sent."""
        default = target = self.targets.default
        try:
            if isinstance(row, UnsendableRow):
                raise row.error  # noqa: TRY301 - the row is stored as any other that is not sent
            contact, named = to_targeted_contact(row)
            if named is not RUN_TARGET:
                target = self.targets.find(named)
            requests = self.requests_for(target)
            requests.build_row(contact)
            payload, email = encode_contact(contact), str.__str__(contact.email)  # a hook takes part when the row is sent
        except (ListingNeeded, MemoryError):
            raise
        except Excluded as error:
            target, email = self._target_of_invalid(row), email_of(row) or ""
            content = encode_spooled(SpooledExclusion(email, str(error)), None if target is default else target)
            return _spool_key(email, None if target is default else target), content
        except Exception as error:  # noqa: BLE001 - as in `parse`
            rejection, target = error if isinstance(error, InvalidRequest) else unreadable(error), self._target_of_invalid(row)
            return "", encode_spooled(str(rejection), None if target is default else target)
        if target is default:
            return email, payload
        return _spool_key(email, target), encode_spooled(msgspec.Raw(payload), target)


_KNOWN_CODES: Final = frozenset({"email", *STANDARD_FIELDS})


class SpooledExclusion(NamedTuple):
    """What the spool has of a row that may not be sent. It takes part in the choice between the rows with its e-mail."""

    email: str
    reason: str

    @property
    def contact(self) -> dict[str, str]:
        return {"email": self.email} if self.email else {}


ERASED: Final = SpooledExclusion("", "erased")
"""What the spool has of a row of a person who was erased."""
_WITH_TARGET: Final = 3  # values: the content, and the two of its target


def decode_spooled(payload: bytes | str) -> tuple[Any, Target | None]:
    """Return the content of a spooled row, and the row's target; `None` for the run's own.

    The content is a contact, the error of an invalid row as a string, or a `SpooledExclusion`.
    """
    content, target = msgspec.json.decode(payload), None
    if isinstance(content, list) and len(content) == _WITH_TARGET:
        content, target = content[0], Target(*content[1:])
    return SpooledExclusion(*content) if isinstance(content, list) else content, target


def _spool_key(email: str, target: Target | None) -> str:
    """Return what identifies the rows of one contact in the spool; an empty string for a row without an e-mail."""
    return email if target is None or not email else "\n".join((email, *map(str, target)))


def encode_spooled(content: object, target: Target | None) -> bytes:
    return msgspec.json.encode(content if target is None else [content, *target])


_FIELDS: Final[Any] = msgspec.defstruct(
    "_FIELDS", [(name, str | None | Unset, UNSET) for name in FIELD_ORDER], forbid_unknown_fields=True, gc=False
)
_encode_structs: Final = msgspec.json.Encoder(enc_hook=str.__str__).encode_lines


@lru_cache(maxsize=256)  # nearly all rows of an input have the same keys
def _rows_with(keys: tuple[object, ...]) -> Any:
    """Return the type of a list of rows that all have these keys, and strings, if the keys are standard fields."""
    names = [name for name in FIELD_ORDER if name in keys]
    if len(names) < len(keys):
        return list[_FIELDS]
    return list[msgspec.defstruct("_Row", [(name, str) for name in names], forbid_unknown_fields=True, gc=False)]  # type: ignore[misc]


def _encode_lines(rows: Sequence[Any]) -> list[bytes] | None:
    """Return the encoded fields of dicts; `None` if one of them has other keys than standard fields, or other values."""
    # In half of the time that `encode_plain` needs, because msgspec reads all rows in one call; in less if they have equal keys.
    for kind in _rows_with(tuple(rows[0])), list[_FIELDS]:
        with suppress(msgspec.ValidationError):
            return _encode_structs(msgspec.convert(rows, kind))[1:-1].split(b"\n{")  # a line break in a string is escaped
    return None


Repeats = Literal["serial", "error", "first", "last", "coalesce"]
"""Policy for e-mails that occur more than once in the input. `serial` sends every row, one at a time per e-mail. `error` rejects
a row whose e-mail occurs in one of the previous 10,000 rows, regardless of case. `first` and `last` send only the first or last
row with each e-mail. `coalesce` sends the first row, and merges the others into it as `duplicates` specifies. `first`, `last` and
`coalesce` compare e-mails exactly, and store the whole input in the journal before the first row is sent. If the row that is
chosen is excluded, or with `coalesce` any of the rows, nothing is sent to the e-mail. With a ledger, `first` and `last` compare
e-mails regardless of case, and read the rows twice instead; `coalesce` needs a journal.

Example:
    ```python
    report = await client.contacts.create_many([{"email": "ann@company.example"}] * 2, repeats="error")
    print(report.outcomes[Outcome.ADDED], report.outcomes[Outcome.REJECTED])  # -> 1 1
    ```
"""

WHOLE_INPUT: Final = frozenset({"first", "last", "coalesce"})
"""Policies that require the whole input to be read before the first row is sent."""


def require_fitting(
    *,
    duplicates: str,
    blank: str | None = None,
    journal: object = None,
    ledger: object = None,
    max_age: object = None,
    changed: str = "send",
    hold: object = None,
    held_by: object = (),
    hold_domains: bool = False,
    resume: bool = False,
    earlier: str = "known",
    spool: bool = False,
    repeats: str = "serial",
) -> None:
    """Check that none of these options of a run conflicts with another, and that each has those that it needs."""
    has_ledger, ignores, forgets = ledger is not None, changed == "ignore", earlier == "unknown"
    has_none = not has_ledger and journal is None
    given = {"journal": journal is not None, "resume": resume, "spool": spool}
    needing = {"resume": resume, "spool": spool, "earlier": forgets}
    faults = {
        f'blank: expected duplicates="overwrite" with "clear", got {duplicates!r}, with which the service clears nothing;'
        ' pass duplicates="overwrite", or omit it': blank == "clear" and duplicates != "overwrite",
        'max_age: needs a ledger, got None; pass ledger="contacts.ledger"': not has_ledger and max_age is not None,
        'changed: needs a ledger, got None; pass ledger="contacts.ledger"': not has_ledger and ignores,
        'hold: needs a ledger, got None; pass ledger="contacts.ledger"': not has_ledger and hold is not None,
        **{
            f"{name}: needs a hold, got None; pass hold=7776000 (90 days), too": hold is None and bool(is_given)
            for name, is_given in {"held_by": held_by, "hold_domains": hold_domains}.items()
        },
        'duplicates: with a ledger and "skip", the service would ignore each changed row; pass duplicates="overwrite" or'
        ' duplicates="update_missing_fields", or changed="ignore" to send only new contacts': (
            has_ledger and duplicates == "skip" and not ignores
        ),
        **{
            f"{name}: conflicts with a ledger, which has a journal of its own; omit it": has_ledger and is_given
            for name, is_given in given.items()
        },
        "earlier: conflicts with a ledger; to send every row again, pass max_age=0": has_ledger and forgets,
        'repeats: "coalesce" conflicts with a ledger; pass repeats="serial", or "last", "first" or "error"': (
            has_ledger and repeats == "coalesce"
        ),
        f"repeats: {repeats!r} needs a journal, to store the whole input before the first row is sent;"
        ' pass journal="run.db"': has_none and repeats in WHOLE_INPUT,
        **{f'{name}: needs a journal, got None; pass journal="run.db"': has_none and needs for name, needs in needing.items()},
    }
    for text in (text for text, found in faults.items() if found):
        raise InvalidRequest(text)


_HISTORY_SIZE: Final = 10_000  # number of recent rows whose e-mails are stored


def rejection_message(position: str, *, remedy: bool = True) -> str:
    found = f"email: same address as {position}"
    return f"{found}; remove one of the rows, or choose another policy for repeats" if remedy else found


class RecentEmails:
    """Detects rows with the e-mail and target of a recent row, regardless of the e-mail's case and of spaces around it."""

    # A rejected row is reported, so the comparison can be as broad as services probably make it. The policies in `WHOLE_INPUT`
    # drop a row, so they compare identical e-mails only: dropping a row with a merely similar e-mail could lose a contact.
    def __init__(self, size: int = _HISTORY_SIZE) -> None:
        self._size = size
        # For each e-mail and target, the first and the latest row, in the order of the latest.
        self._rows: OrderedDict[tuple[str, Target], tuple[int, int]] = OrderedDict()

    def find_earlier(self, index: int, email: str, target: Target = RUN_TARGET) -> int | None:
        """Store this row, and return the index of the first of the rows that it repeats; `None` if it repeats none."""
        while self._rows and next(iter(self._rows.values()))[1] < index - self._size:
            self._rows.popitem(last=False)
        key = contact_key(email), target
        first, _ = self._rows.pop(key, (index, index))
        self._rows[key] = first, index  # also if this row is rejected: a later row may repeat this one
        return None if first == index else first


def email_of(row: Any) -> str | None:
    """Return the e-mail of a row as a plain string; `None` if it has none, or cannot be read."""
    row = row.values if isinstance(row, UnsendableRow) else row
    contact = row[0] if type(row) is tuple and row else row  # a contact and its target
    try:
        if isinstance(contact, NewContact):
            email: object = contact.email
        else:
            members = getattr(contact, "members", contact)  # a row of a file that cannot be sent has no items, only members
            email = members.get("email") if isinstance(members, Mapping) else None
        return str.__str__(email) if isinstance(email, str) else None
    except Exception:  # noqa: BLE001 - code of the caller, as in `RowParser.parse`
        return None
