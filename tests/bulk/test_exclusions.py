"""Rows of people who must not be written to: which are found, and that nothing of them is sent."""

from __future__ import annotations

import hmac
import json
import pickle
import unicodedata
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.examples import scaled
from support.runs import OptedOut, client, outcomes_of
from support.time import virtual_time
from support.transport import HANG, Script, added, skipped
from support.wire import unhurried

from outreach_async import Excluded, InvalidRequest, Outcome, OutreachClient
from outreach_async.bulk import Exclusions
from outreach_async.fake import FakeService, FakeTransport
from outreach_async.store import Store
from outreach_async.sync import SyncClient

LOCALS, DOMAINS = ["ann", "Ann", "bo", "o'neil", "ann+x"], ["a.example", "A.example", "eu.a.example", "bücher.example"]
EMAILS = st.builds("{}@{}".format, st.sampled_from(LOCALS), st.sampled_from(DOMAINS))
ENTRIES = st.lists(st.one_of(EMAILS, st.sampled_from(DOMAINS), st.sampled_from(DOMAINS).map("@{}.".format)), max_size=4)
MEDIA: dict[str, dict[str, Any]] = {
    "none": {},
    "no repeats": {"repeats": "error"},
    "journal": {"journal": "run.db"},
    "spool": {"journal": "run.db", "spool": True},
    "first": {"journal": "run.db", "repeats": "first"},
    "coalesce": {"journal": "run.db", "repeats": "coalesce"},
    "ledger": {"ledger": "contacts.ledger", "duplicates": "overwrite"},
    "last of a ledger": {"ledger": "contacts.ledger", "duplicates": "overwrite", "repeats": "last"},
}


def is_on(entries: list[str], email: str) -> bool:
    """Return whether a list has an e-mail or its domain: the oracle."""
    email = email.lower()
    return email in {entry.lower() for entry in entries} or email.partition("@")[2] in {
        entry.lower().strip("@.") for entry in entries
    }


@pytest.mark.parametrize("key", [None, b"key", b"k" * 99])
@given(st.lists(EMAILS), ENTRIES)
def test_a_list_finds_an_email_if_it_has_its_address_or_domain(key: bytes | None, emails: list[str], entries: list[str]) -> None:
    listed = pickle.loads(pickle.dumps(Exclusions(entries, key=key, name="blocked.csv")))  # noqa: S301 - our own bytes
    found = listed.find(emails)
    assert {*found} == {at for at, email in enumerate(emails) if is_on(entries, email)}
    assert all(str(error).startswith("the list blocked.csv has the ") and error.kind == "list" for error in found.values())


def test_a_list_that_grows_finds_each_of_its_entries_and_no_other() -> None:
    emails, listed = [f"u{number}@a.example" for number in range(2_000)], Exclusions()
    for number, email in enumerate(emails[:1_000], 1):
        listed.add(email)
        if number in {8, 9, 32, 33, 128, 129, 1_000}:
            assert [*listed.find(emails)] == [*range(number)]


@pytest.mark.parametrize("key", [b"key", b"k" * 64, b"k" * 65])
def test_a_mark_is_the_hmac_of_an_address_or_of_a_domain(key: bytes) -> None:
    marks = [hmac.new(key, text.encode(), "sha256").hexdigest() for text in ("ann@x.example", "@a.example")]
    assert Exclusions(key=key).mark(" Ann@X.example.") == marks[0]
    with pytest.raises(InvalidRequest, match="blocked: expected a list with a key, got one without; pass key="):
        Exclusions(name="blocked").mark("ann@x.example")
    listed = Exclusions([marks[0], marks[1].upper()], key=key)
    assert {*listed.find(["Ann@X.example", "bo@x.example", "bo@A.example.", "bo@eu.a.example"])} == {0, 2}
    assert "key" not in repr(listed)


@pytest.mark.parametrize(
    "entry", ["\ufeffann@x.example\r\n", "Ann <ann@x.example>", '"ann@x.example"', "'Ann B' <ANN@x.example >", "<ann@x.example>"]
)
def test_what_surrounds_an_address_does_not_hide_it(entry: str) -> None:
    assert {*Exclusions([entry]).find(["ann@x.example"])} == {0}


@pytest.mark.parametrize(
    "entry",
    [
        "bücher.example",
        "bücher\u3002example",
        "xn--bcher-kva.example",
        unicodedata.normalize("NFD", "BÜCHER.example."),
        "@XN--BCHER-KVA.example",
    ],
)
def test_a_domain_is_compared_in_all_its_spellings(entry: str) -> None:
    assert {
        *Exclusions([entry]).find(["a@xn--bcher-kva.example", "a@bücher.EXAMPLE", "a@bucher.example", "a@xn--\ud800.example"])
    } == {0, 1}


@pytest.mark.parametrize("key", [None, b"key"])
def test_an_address_is_found_in_all_spellings_of_its_domain(key: bytes | None) -> None:
    spelled = ["ann@bücher.example", "Ann@XN--bcher-kva.example", "ann@xn--bcher-kva.example."]
    for entry in spelled:
        assert {*Exclusions([entry], key=key).find([*spelled, "bo@bücher.example"])} == {0, 1, 2}
    made = hmac.new(b"key", spelled[2].encode(), "sha256").hexdigest()
    assert {*Exclusions([made], key=b"key").find(spelled)} == {2}


@virtual_time
async def test_of_several_lists_the_first_that_has_a_person_gives_the_reason() -> None:
    lists: list[Any] = [
        Exclusions(["b.example"], name="one"),
        Exclusions(["ann@a.example", "b.example"], name="two"),
        lambda _: "all",
    ]
    rows = [ANN, BO, {"email": "cy@c.example"}]
    found = await outcomes_of(client(Script()).contacts.create_many(rows, exclude=lists, order="input"))
    reasons = ["the list two has the address", "the list one has the domain b.example", "all"]
    assert [str(outcome.error) for outcome in found] == reasons


READ = 'to exclude the entries of a file, pass importer.read_exclusions("blocked.csv")'


@pytest.mark.parametrize(
    ("exclude", "message"),
    [
        ("blocked.csv", f"expected e-mails and domains, Exclusions or a function, got str; {READ}"),
        (Path("blocked.csv"), f"expected e-mails and domains, Exclusions or a function, got PosixPath; {READ}"),
        (3, f"expected e-mails and domains, Exclusions or a function, got int; {READ}"),
        (["a.example", "blocked.csv"], f"expected an e-mail or a domain, got 'blocked.csv'; {READ}"),
        (["a.example", "lists/blocked"], f"expected an e-mail or a domain, got 'lists/blocked'; {READ}"),
        ([Path("blocked")], f"expected an e-mail or a domain, got PosixPath; {READ}"),
        (["ann"], "expected an e-mail or a domain, got 'ann'; correct or remove the entry"),
        ([float("nan")], "expected an e-mail or a domain, got float; correct or remove the entry"),
        (["a" * 64], "expected an e-mail or a domain, got a mark; pass the key of the list as key="),
        (iter([]), "expected entries, got none; pass None to exclude nobody"),
    ],
)
async def test_an_entry_that_excludes_nobody_is_refused(exclude: Any, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        client(Script()).contacts.create_many([], exclude=exclude)
    assert str(caught.value) == f"exclude: {message}"


def test_a_list_refuses_a_single_text_and_names_itself() -> None:
    with pytest.raises(InvalidRequest, match=r"^vips: expected a list of e-mails and domains, got str; "):
        Exclusions("ann@x.example", name="vips")


@pytest.mark.parametrize("reason", [None, 5, b"a"])
@pytest.mark.parametrize("entry", ["ann@x.example", "x.example", "0" * 64])
def test_a_reason_that_is_no_string_is_refused_instead_of_lost(entry: str, reason: Any) -> None:
    vips = Exclusions(name="vips", key=b"k")
    for add in (vips.add, vips.add_email):
        with pytest.raises(InvalidRequest, match=r"^vips: expected a string as the reason, got "):
            add(entry, reason)
    with pytest.raises(InvalidRequest, match=r"^vips: expected a string as the e-mail, got None; pass one"):
        vips.add_email(None)  # type: ignore[arg-type]
    assert len(vips) == 0


async def test_an_async_function_is_refused_because_its_result_would_exclude_all() -> None:
    async def is_blocked(email: str) -> bool:
        raise AssertionError(email)

    for exclude in is_blocked, partial(is_blocked):
        with pytest.raises(InvalidRequest, match="got an async one; pass a plain one"):
            await client(script := Script(added())).contacts.create_many([ANN], exclude=exclude)
        assert not script.requests


@virtual_time
@pytest.mark.parametrize(
    "medium", ["none", *(pytest.param(each, marks=pytest.mark.thorough) for each in MEDIA if each != "none")]
)
@settings(unhurried, max_examples=scaled(40))
@given(st.lists(EMAILS, max_size=6), ENTRIES, st.booleans())
async def test_exactly_the_listed_rows_are_excluded_and_not_sent(
    medium: str, emails: list[str], entries: list[str], calls: bool
) -> None:
    fake = FakeService(seed=1)
    key = fake.add_owner_key(fake.add_workspace(id="space_1"))
    exclude: Any = (lambda email: is_on(entries, email) and email.islower() and "never") if calls else Exclusions(entries)
    with TemporaryDirectory() as folder:
        paths: Any = {name: str(Path(folder, name)) for name in ("journal", "ledger") if name in MEDIA[medium]}
        async with OutreachClient(transport=FakeTransport(fake), owner_key=key, workspace="space_1") as sender:
            run = sender.contacts.create_many(
                [{"email": email} for email in emails], exclude=[exclude], **(MEDIA[medium] | paths)
            )
            found = {outcome.index: outcome for outcome in await outcomes_of(run)}
    sent = [(each.json or {})["email"] for each in fake.requests.of("create_contact")]
    assert not any(is_on(entries, email) for email in sent)
    for index, email in enumerate(emails):
        outcome = found[index]
        chooses = MEDIA[medium].get("repeats", "error") != "error"
        expected = is_on(entries, email) and not (chooses and outcome.repeats is not None)  # not sent anyway
        assert (outcome.status is Outcome.EXCLUDED) is expected
        assert not expected or (outcome.certain, str(outcome.error).startswith("never" if calls else "the list")) == (True, True)


ANN, BO = {"email": "ann@a.example"}, {"email": "bo@b.example"}


@virtual_time
@pytest.mark.parametrize("options", [{}, {"spool": True}])
async def test_a_row_that_may_have_been_sent_before_it_is_excluded_is_unknown(journal: Store, options: dict[str, Any]) -> None:
    async with client(Script(HANG)).contacts.create_many([ANN], journal=journal, **options):
        await anyio.sleep(1)
    script = Script(added())
    run = client(script).contacts.create_many([ANN], journal=journal, exclude=["a.example"], resume=True, **options)
    (outcome,) = await outcomes_of(run)
    assert (outcome.status.value, {*map(str, outcome.possible)}, outcome.attempts) == (
        "unknown",
        {"not_applied", "added", "skipped"},
        0,
    )
    assert not script.requests
    ((stored,), report) = [*journal.outcomes()], journal.report()
    assert isinstance(stored.error, Excluded)
    assert (str(stored.error), stored.error.kind, report.state) == (
        "the list exclude has the domain a.example",
        "list",
        "finished",
    )


@virtual_time
@pytest.mark.parametrize("medium", ["none", "ledger"])
async def test_a_function_that_fails_ends_the_run_before_its_row_is_sent(path: Path, medium: str) -> None:
    options: dict[str, Any] = {"ledger": path, "duplicates": "overwrite"} if medium == "ledger" else {}
    script = Script(added())
    with pytest.raises(ZeroDivisionError):
        await client(script).contacts.create_many([BO, ANN], exclude=lambda email: email == "ann@a.example" and 1 / 0, **options)
    assert not [request for request in script.requests if b"ann@" in request.body]


@virtual_time
async def test_a_row_that_may_have_been_sent_stays_so_if_a_function_fails(journal: Store) -> None:
    async with client(Script(HANG)).contacts.create_many([ANN], journal=journal):
        await anyio.sleep(1)
    for _ in range(2):
        script = Script(added())
        with pytest.raises(ZeroDivisionError):
            await client(script).contacts.create_many([ANN], journal=journal, exclude=lambda _: 1 / 0, resume=True)
        assert not script.requests
    (outcome,) = await outcomes_of(client(Script(skipped())).contacts.create_many([ANN], journal=journal, resume=True))
    assert (outcome.status, outcome.certain) == ("skipped", False)


@virtual_time
async def test_a_ledger_keeps_what_it_knows_of_a_contact_whom_a_list_has_for_a_night(journal: Store) -> None:
    nights: list[tuple[Any, list[str]]] = [
        (None, ["added", "added"]),
        (["ANN@a.example"], ["excluded", "unchanged"]),
        ([lambda email: email == "bo@b.example"], ["unchanged", "excluded"]),
        (None, ["unchanged", "unchanged"]),
    ]
    for exclude, expected in nights:
        sender = client(Script(added()))
        async with sender.contacts.create_many(
            [ANN, BO], ledger=journal, duplicates="overwrite", exclude=exclude, order="input"
        ) as run:
            assert [outcome.status async for outcome in run] == expected
        counts: Any = run.report.ledger
        assert (counts.excluded, counts.held, counts.gated, counts.gone) == (expected.count("excluded"), 0, 0, 0)
    assert [sums.get("excluded", 0) for _, _, sums in journal.contacts().runs] == [0, 1, 1, 0]


@virtual_time
async def test_a_ledger_counts_the_rows_that_a_gate_withheld_among_the_excluded(journal: Store) -> None:
    exclude = [Exclusions(["a.example"]), Exclusions(["b.example"], kind="gate")]
    counts: Any = (
        await client(Script()).contacts.create_many([ANN, BO], ledger=journal, duplicates="overwrite", exclude=exclude)
    ).ledger
    assert (counts.excluded, counts.held, counts.gated) == (2, 0, 1)


async def test_a_row_that_cannot_be_sent_stays_rejected_with_and_without_a_ledger(path: Path) -> None:
    rows: Any = [{"email": "ann@a.example", "city": 3}, OptedOut(ANN)]
    modes: list[dict[str, Any]] = [{}, {"ledger": path, "duplicates": "overwrite"}]
    for options in modes:
        found = await outcomes_of(client(Script()).contacts.create_many(rows, exclude=["a.example"], order="input", **options))
        assert [(outcome.status, getattr(outcome.error, "kind", None)) for outcome in found] == [
            ("rejected", None),
            ("excluded", "consent"),
        ]


@virtual_time
@settings(unhurried, max_examples=scaled(30))
@given(
    st.lists(EMAILS, max_size=8),
    st.lists(st.tuples(ENTRIES, st.integers(1, 4)), max_size=3),
    ENTRIES,
    st.sampled_from([{}, {"spool": True}, {"repeats": "last"}]),
)
async def test_each_process_of_a_run_excludes_whom_its_own_lists_have(
    emails: list[str], earlier: list[tuple[list[str], int]], last: list[str], options: dict[str, Any]
) -> None:
    rows, known = [{"email": email} for email in emails], set[int]()
    with TemporaryDirectory() as folder:
        journal = Store(Path(folder, "run.db"), inline=True)
        for entries, count in [*earlier, (last, 99)]:
            script = Script(0.5, added(), 0.5, skipped())
            run = client(script).contacts.create_many(
                rows, journal=journal, exclude=Exclusions(entries), resume=True, concurrency=2, **options
            )
            for outcome in await outcomes_of(run, count):
                is_listed = is_on(entries, emails[outcome.index])
                assert not isinstance(outcome.error, Excluded) or is_listed
                assert not is_listed or outcome.attempts == 0
                assert outcome.index not in known
            assert not any(is_on(entries, json.loads(request.body)["email"]) for request in script.requests)
            known |= {outcome.index for outcome in journal.outcomes()}
        assert (known, journal.report().state) == ({*range(len(rows))}, "finished")


def test_the_synchronous_client_excludes_the_same_people() -> None:
    fake = FakeService(seed=1)
    key = fake.add_owner_key(fake.add_workspace(id="space_1"))
    with SyncClient(transport=FakeTransport(fake), owner_key=key, workspace="space_1") as sender:
        report = sender.contacts.create_many([ANN, BO], exclude=[lambda email: email.startswith("bo"), "x.example"]).wait()
    assert (report.outcomes[Outcome.EXCLUDED], report.outcomes[Outcome.ADDED]) == (1, 1)
