"""The e-mails and domains that a run must not write to."""

from __future__ import annotations

import hmac
import re
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b, sha256
from inspect import iscoroutine
from operator import methodcaller
from os import PathLike
from typing import Any, Final, TypeAlias
from zlib import crc32

from outreach_async._core.arguments import require_types, show_name, type_name
from outreach_async.bulk._contact_keys import contact_key, domain_key
from outreach_async.errors import INVISIBLE, Excluded, InvalidRequest, format_count

_NAMED: Final = re.compile(r"[^<>]*<([^<>]*)>")  # Ann <ann@x.example>
_QUOTED: Final = re.compile(r"""(["'])(.*)\1""")
_ADDRESS: Final = re.compile(r"(?:[^\s@]|\"[^\"]*\")+@[^\s@]+")
_DOMAIN: Final = re.compile(r"(?=.{1,253}$)(?:(?!-)[\w-]{1,63}(?<!-)\.)+(?!-|\d+$)[\w-]{2,63}(?<!-)")
_DIGEST: Final = re.compile(r"[0-9a-fA-F]{64}")
_FILE: Final = re.compile(r".*[\\/].*|.*\.(?:csv|tsv|txt|xlsx?|jsonl?|ndjson|parquet|gz|toml|ledger)", re.IGNORECASE)
_SIZE: Final = 8  # bytes of a hash; in a million entries, another address has the hash of one with a probability of 1 : 10^13
_READ_FILE: Final = 'to exclude the entries of a file, pass importer.read_exclusions("blocked.csv")'


class Exclusions:
    """E-mails and domains that must not be written to; see `create_many`.

    E-mails are compared as the service compares them, regardless of case.
    A domain excludes its addresses, but not those of its sub-domains. Its
    case, a trailing dot and its spelling in Punycode do not matter. Only
    hashes of the entries are kept, about 100 bytes each.

    Args:
        entries: E-mails (`"ann@x.example"`) and domains (`"x.example"` or
            `"@x.example"`); with a key, also HMAC-SHA256 marks of 64 hex
            digits: of an e-mail in lower case, or of `@` and a domain.
        name: The name of the list, for reasons and errors.
        key: The key of the marks.
        kind: The `kind` of the error `Excluded`.

    Attributes:
        figures: Numbers that a ledger stores in the counts of the run.

    Raises:
        InvalidRequest: An entry is none of these.

    Example:
        ```python
        blocked = Exclusions(["ann@company.example", "acme.example"], name="blocked")
        rows = [{"email": "Ann@Company.example"}, {"email": "bo@acme.example"}, {"email": "cy@x.example"}]
        report = await client.contacts.create_many(rows, exclude=blocked)
        print(report.outcomes[Outcome.EXCLUDED], report.outcomes[Outcome.ADDED])  # -> 2 1
        ```
    """

    def __init__(
        self, entries: Iterable[str] = (), *, name: str = "exclude", key: bytes | None = None, kind: str = "list"
    ) -> None:
        require_types(Exclusions, {"name": name, "key": key, "kind": kind})
        self.name, self.kind, self._key = name, kind, key
        self.figures: Mapping[str, int] = {}
        self._hashes: dict[bytes, str] = {}  # the reason by hash; a blank one stands for that of the list
        self._checksums, self._bits = array("I"), bytearray(8)
        self._domains: dict[bytes, str] = {}  # a mark does not show whether it is of a domain, so a keyed list has none here
        if not _is_iterable(entries):
            raise InvalidRequest(f"{name}: expected a list of e-mails and domains, got {type_name(entries)}; {_READ_FILE}")
        for entry in entries:
            self.add(entry)

    def add(self, entry: str, reason: str = "") -> None:
        """Add an e-mail, a domain or, with a key, a mark.

        Args:
            entry: The e-mail, domain or mark.
            reason: Why the person must not be written to; by default, that
                the list has the address or the domain.

        Raises:
            InvalidRequest: The entry is none of these, or the reason is no
                string. The message names the list.

        Example:
            ```python
            blocked = Exclusions()
            blocked.add("ann@company.example", "a customer of Bo")
            print(blocked.find(["bo@x.example", "ann@company.example"]))  # -> {1: Excluded('a customer of Bo')}
            ```
        """
        given: object = entry
        text = _clean(given) if isinstance(given, str) else ""
        domain = "" if "@" in text[1:] else domain_key(text.removeprefix("@").lower().removeprefix("www."))
        self._require_text(reason, "reason")
        if _DIGEST.fullmatch(text):
            if self._key is None:
                raise InvalidRequest(f"{self.name}: expected an e-mail or a domain, got a mark; pass the key of the list as key=")
            self._hashes[bytes.fromhex(text[: 2 * _SIZE])] = reason
        elif _ADDRESS.fullmatch(text):
            self.add_email(text, reason)
        elif _DOMAIN.fullmatch(domain) and not _FILE.fullmatch(domain):
            if self._key is None:
                self._domains[_encode(domain)] = reason
            else:
                self._hashes[_hasher(self._key)(f"@{domain}")] = reason
        else:
            got = show_name(text, 80) if isinstance(given, str) else type_name(given)
            remedy = _READ_FILE if isinstance(given, PathLike) or _FILE.fullmatch(text) else "correct or remove the entry"
            raise InvalidRequest(f"{self.name}: expected an e-mail or a domain, got {got}; {remedy}")

    def add_email(self, email: str, reason: str = "") -> None:
        """Add an e-mail as it is, even if it is no valid address.

        Example:
            ```python
            blocked = Exclusions()
            blocked.add_email("ann at company", "no address")
            print(blocked.find(["ANN at company"]))  # -> {0: Excluded('no address')}
            ```
        """
        self._require_text(email, "e-mail")
        self._require_text(reason, "reason")
        self._hashes[_hasher(self._key)(text := _spell(contact_key(email)))] = reason
        # A bit for each checksum, of 8 to 32 for each entry, tells of nearly all other addresses that they are not listed. Their
        # hashes would take twice the time, because the table of a million is too large for the cache of a processor.
        if self._key is None:
            self._checksums.append(crc32(_encode(text)))
            if grows := len(self._checksums) > len(self._bits):
                self._bits = bytearray(4 * len(self._bits))
            for checksum in self._checksums if grows else self._checksums[-1:]:
                self._bits[checksum >> 3 & len(self._bits) - 1] |= 1 << (checksum & 7)

    def _require_text(self, value: object, what: str) -> None:
        if not isinstance(value, str):  # with the reason None, nobody would be excluded
            raise InvalidRequest(f"{self.name}: expected a string as the {what}, got {type_name(value)}; pass one")

    def mark(self, email: str) -> str:
        """Return the mark of an e-mail, which a list with a key may have.

        It is the HMAC-SHA256 of the e-mail in lower case, with its domain
        in Unicode, not in Punycode, and without a dot at its end.

        Raises:
            InvalidRequest: The list has no key.

        Example:
            ```python
            blocked = Exclusions(key=b"secret")
            blocked.add(blocked.mark("ann@company.example"))
            print(len(blocked), blocked("Ann@Company.example"))  # -> 1 the list exclude has the address
            ```
        """
        require_types(Exclusions.mark, locals(), any_text=True)
        if self._key is None:
            raise InvalidRequest(f"{self.name}: expected a list with a key, got one without; pass key=")
        return hmac.digest(self._key, _encode(_spell(contact_key(email))), "sha256").hex()

    def find(self, emails: Sequence[str]) -> dict[int, Excluded]:
        """Return an error for each e-mail that is listed, by its position.

        Example:
            ```python
            print(Exclusions(["acme.example"]).find(["bo@acme.example", "bo@eu.acme.example"]))
            # -> {0: Excluded('the list exclude has the domain acme.example')}
            ```
        """
        return {at: error for at, email in enumerate(emails) if (error := self(email)) is not None}

    def __call__(self, email: str) -> Excluded | None:
        key, domain, text = contact_key(email), "", ""
        if key.isascii() and "xn--" not in key and key[-1:] != ".":
            if self._key is None:
                checksum = crc32(content := key.encode())
                is_listed = self._bits[checksum >> 3 & len(self._bits) - 1] >> (checksum & 7) & 1
                if not is_listed and not (self._domains and content.rpartition(b"@")[2] in self._domains):
                    return None  # nearly always
            text = key
        hash_, text = _hasher(self._key), text or _spell(key)
        reason = self._hashes.get(hash_(text))
        if reason is None and text is not key:  # others make marks of an address as it is written
            reason = self._hashes.get(hash_(key))
        if reason is None and (self._domains or self._key is not None):
            domain = text.rpartition("@")[2]
            reason = (
                self._domains.get(_encode(domain)) if self._key is None else self._hashes.get(_hash_domain(self._key, domain))
            )
        if reason is None:
            return None
        return Excluded(reason or f"the list {self.name} has the {f'domain {domain}' if domain else 'address'}", kind=self.kind)

    def __len__(self) -> int:
        return len(self._hashes) + len(self._domains)

    def __repr__(self) -> str:
        return f"<Exclusions {self.name!r}: {format_count(len(self), 'entry', 'entries')}>"  # not the key


def _is_iterable(entries: object) -> bool:
    return isinstance(entries, Iterable) and not isinstance(entries, str | bytes | PathLike)


def _clean(text: str) -> str:
    """Return an entry without the name of a person, quotes and blanks around it, and without invisible characters."""
    text = INVISIBLE.sub("", text).strip().removeprefix("*@")
    if named := _NAMED.fullmatch(text):
        text = named[1].strip()
    return quoted[2].strip() if (quoted := _QUOTED.fullmatch(text)) else text


def _spell(key: str) -> str:
    """Return a contact key with its domain in the spelling in which domains are compared."""
    local, at, domain = key.rpartition("@")
    return f"{local}{at}{domain_key(domain)}"


_encode: Final = methodcaller("encode", "utf-8", "surrogatepass")


@lru_cache(maxsize=64)
def _hasher(key: bytes | None) -> Callable[[str], bytes]:
    """Return a function that hashes a text to 64 bits, the same in every process."""
    if key is None:
        copy = blake2b(digest_size=_SIZE).copy

        def hash_text(text: str) -> bytes:
            (state := copy()).update(_encode(text))
            return state.digest()

        return hash_text
    # HMAC-SHA256, as in the module hmac, but in half of the time.
    size = sha256().block_size
    padded = (sha256(key).digest() if len(key) > size else key).ljust(size, b"\0")
    inner, outer = (sha256(bytes(byte ^ pad for byte in padded)).copy for pad in (0x36, 0x5C))

    def hash_mark(text: str) -> bytes:
        (first := inner()).update(_encode(text))
        (second := outer()).update(first.digest())
        return second.digest()[:_SIZE]

    return hash_mark


@lru_cache(maxsize=1 << 14)
def _hash_domain(key: bytes, domain: str) -> bytes:
    return _hasher(key)(f"@{domain}")


Finder: TypeAlias = Callable[[str], Excluded | None]
"""Returns an error if an e-mail must not be written to."""


def _ask(call: Callable[[str], object]) -> Finder:
    text = f"{getattr(call, '__name__', type(call).__name__)} excludes the address"

    def find(email: str) -> Excluded | None:
        result = call(contact_key(email))  # with the key, so that rows of one contact have one result
        if iscoroutine(result):
            result.close()
            raise InvalidRequest("exclude: expected a function that returns a bool or a text, got an async one; pass a plain one")
        return Excluded(result if isinstance(result, str) else text, kind="list") if result else None

    return find


def choose_finders(exclude: Any) -> tuple[Finder, ...]:
    """Return what finds the e-mails that the argument `exclude` of `create_many` excludes."""
    if exclude is None:
        return ()
    if not (is_iterable := _is_iterable(exclude)) and not callable(exclude) and not isinstance(exclude, Exclusions):
        raise InvalidRequest(
            f"exclude: expected e-mails and domains, Exclusions or a function, got {type_name(exclude)}; {_READ_FILE}"
        )
    finders, entries = list[Finder](), Exclusions()
    for each in exclude if is_iterable else [exclude]:
        if isinstance(each, Exclusions):
            finders.append(each)
        elif callable(each):
            finders.append(_ask(each))
        else:
            entries.add(each)
    if not finders and not entries:  # perhaps an iterator that another run has read
        raise InvalidRequest("exclude: expected entries, got none; pass None to exclude nobody")
    return (*finders, entries) if entries else (*finders,)


def find_error(finders: Sequence[Finder], email: str) -> Excluded | None:
    """Return what the first finder says that has an e-mail."""
    for find in finders:
        if (error := find(email)) is not None:
            return error
    return None
