from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake import KEY, OTHER, SPACE, START, create, creation, get, page, post, refusing, small_world, steps

import outreach_async.fake
from outreach_async import Request
from outreach_async.fake import Behaviour, FakeService, FakeTransport, RateLimit, faults
from outreach_async.fake.request_log import CAPACITY, Recorded, RequestLog, append_to

# Determinism.


def session(seed: int, behaviour: Behaviour) -> list[Any]:
    fake = FakeService(seed, behaviour)
    space = fake.add_workspace(custom_fields=["Plan"])
    key = fake.add_owner_key(space)
    boxes = fake.add_mailboxes(space, 20, trouble=0.3)
    camp = fake.add_campaign(space, status="live", mailboxes=boxes, steps=[{"sent": 40, "templates": "A|B|PER"}, {"sent": 20}])
    fake.add_contacts(space, 5, campaign=camp)
    first = behaviour.first_page
    answers = [page(fake, path, workspace=space, page=first) for path in ("/campaigns", "/mailboxes")]
    answers += [post(fake, creation(f"{n % 3}@b.co", owner_key=key, workspace=space, campaign=camp)) for n in range(5)]
    fake.advance(days=40)
    answers += [get(fake, f"/campaigns/{camp}/steps"), get(fake, f"/workspaces/{space}/all-fields"), get(fake, "/nothing")]
    return [space, key, boxes, camp, fake.dump(), *((answer.status, answer.headers, answer.body) for answer in answers)]


BEHAVIOURS = [Behaviour(), Behaviour.strict(), Behaviour.lenient(), Behaviour(numbers="mixed", list_date="mixed", first_page=0)]


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=["documented", "strict", "lenient", "mixed"])
def test_the_same_seed_and_calls_give_the_same_bytes(behaviour: Behaviour) -> None:
    assert session(3, behaviour) == session(3, behaviour) != session(4, behaviour)


@pytest.mark.thorough
def test_another_process_produces_the_same_bytes() -> None:
    script = "from fake.test_service import *; print(ascii(session(3, Behaviour(numbers='mixed'))))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, cwd=Path(__file__).parents[1], env=environment
    )

    assert ran.stdout.decode().strip() == ascii(session(3, Behaviour(numbers="mixed")))


def test_a_fake_runs_without_anyio() -> None:
    script = "from outreach_async.fake import FakeService; import sys; FakeService(); print('anyio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout.strip() == b"False"


# State and time.


def test_a_snapshot_keeps_the_state_and_the_time() -> None:
    fake = small_world()
    fake.advance(days=1)
    before, bytes_before = fake.dump(), page(fake, "/mailboxes").body
    saved = fake.snapshot()
    for _ in range(2):
        create(fake, "x@b.co", campaign="camp_1")
        create(fake, fake.contacts(SPACE)[0]["email"], duplicates="overwrite", first_name="Eve")
        fake.add_mailbox(SPACE)
        fake.add_campaign(SPACE)
        fake.add_workspace()
        fake.add_owner_key(SPACE)
        fake.advance(days=1)
        assert fake.dump() != before
        fake.restore(saved)
        assert (fake.dump(), page(fake, "/mailboxes").body) == (before, bytes_before)


def test_reset_restores_the_initial_state() -> None:
    fake, log = small_world(rate_limit=RateLimit(1)), list[Any]()
    fake.sim.watch(log.append)
    fake.faults.script("create_contact", faults.status(503))
    fake.advance(days=3)
    create_nothing = post(fake, creation())
    assert create_nothing.status == 503
    fake.faults.script("create_contact", faults.status(503))
    fake.reset()

    assert fake.dump() == FakeService().dump()
    assert repr(fake) == "<FakeService seed=0: 0 workspaces, 0 mailboxes, 0 campaigns, 0 contacts>"
    assert (len(fake.requests), fake.requests.counts, fake.requests.statuses, fake.faults.unfired) == (0, {}, {}, [])
    assert fake.now == START
    space = fake.add_workspace()
    assert space == FakeService().add_workspace()
    fake.add_campaign(space, status="live", mailboxes=[fake.add_mailbox(space)], steps=["A"], contacts=2)
    fake.advance(days=1)
    assert log == []
    assert post(fake, creation()).status == 401  # the counters of the rate limit are reset, too


def test_c24_of_many_threads_that_create_one_contact_exactly_one_adds_it() -> None:
    fake = small_world()
    answers: list[str] = []
    ready = threading.Barrier(8)

    def race() -> None:
        ready.wait()
        answers.extend(create(fake, f"{number}@b.co", campaign="camp_1")["status"] for number in range(40))

    threads = [threading.Thread(target=race) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(answers) == ["added"] * 40 + ["skipped"] * 280
    assert steps(fake, "camp_1")["data"][0]["left_to_send"] == 40
    assert [entry.number for entry in fake.requests] == list(range(321))


def test_a_clock_stands_still_or_follows_a_function_and_can_be_advanced() -> None:
    fake, times = FakeService(clock="2026-03-01T12:00:00+01:00"), [10.0]
    running = FakeService(clock=lambda: times[-1])

    assert (fake.now, running.now) == (START + 59 * 86400 + 11 * 3600, 10.0)
    times.append(20.5)
    for each in (fake, running):
        each.advance(minutes=1, seconds=0.5)
    assert (fake.now, running.now) == (START + 59 * 86400 + 11 * 3600 + 60.5, 81.0)


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_two_advances_equal_one_by_their_sum(one: int, other: int) -> None:
    stepped, at_once = FakeService(), FakeService()
    for step in (one, other):
        stepped.advance(seconds=step / 1_000_000)
    at_once.advance(seconds=(one + other) / 1_000_000)
    assert (stepped.now, stepped.dump()) == (at_once.now, at_once.dump())


@pytest.mark.parametrize("act", [lambda: FakeService(clock="noon"), lambda: FakeService().advance(days=-1)])
def test_an_invalid_time_is_refused(act: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match=r"expected an ISO 8601 time|expected a non-negative duration"):
        act()


# Seeding and reading.


def test_contacts_are_returned_as_plain_values() -> None:
    fake = small_world()
    rows: list[dict[str, str | None]] = [
        {"email": " Ada@Acme.example ", "first_name": "Ada", "custom_1": "gold", "city": None},
        {"email": "b@c.d", "id": "contact_b"},
    ]
    ids = fake.add_contacts(SPACE, rows, campaign="camp_1")

    assert fake.contacts(SPACE)[-2:] == [
        {
            "id": ids[0],
            "email": "Ada@Acme.example",
            "fields": {"first_name": "Ada", "custom_1": "gold"},
            "campaigns": ["camp_1"],
            "owner": KEY,
            "created": START,
        },
        {"id": "contact_b", "email": "b@c.d", "fields": {}, "campaigns": ["camp_1"], "owner": KEY, "created": START},
    ]
    assert fake.contact(SPACE, "ADA@acme.example") == fake.contacts(SPACE)[-2]
    assert fake.contact(SPACE, "nobody@acme.example") is None


def test_changing_returned_values_does_not_change_the_service() -> None:
    fake = small_world()
    before = fake.dump()
    found = fake.contacts(SPACE)[0]
    found["fields"]["first_name"] = "Eve"
    found["campaigns"].append("camp_9")

    assert fake.dump() == before


def test_generated_contacts_have_different_emails_and_fields() -> None:
    fake = FakeService()
    space = fake.add_workspace()
    ids = fake.add_contacts(space, 300) + fake.add_contacts(space, 200)
    found = fake.contacts(space)

    assert [contact["id"] for contact in found] == ids
    assert len({contact["email"] for contact in found}) == len(set(ids)) == 500
    assert {contact["owner"] for contact in found} == {""}
    assert all({"first_name", "last_name", "company_name", "country"} <= set(contact["fields"]) for contact in found)
    fake.add_contacts(space, [{"email": "a@b.co"}], owner_key="key_x")
    assert fake.contacts(space)[-1]["owner"] == "key_x"


def contacts(*rows: dict[str, Any]) -> Callable[[FakeService], Any]:
    """Return a call that adds these contacts after a valid one."""
    return lambda fake: fake.add_contacts(SPACE, [{"email": "first@b.co", "id": "contact_f"}, *rows])


MISSING = r"there is no workspace 'space_9'"
REFUSED: list[tuple[Callable[[FakeService], Any], type[Exception], str]] = [
    (contacts({"email": "a@b.co"}, {"email": "A@B.CO"}), ValueError, "no other contact of the workspace has, got A@B.CO"),
    (contacts({"email": " "}), ValueError, "email: expected a non-blank string"),
    (contacts({}), TypeError, "email: expected a string, got NoneType"),
    (
        contacts({"email": "a@b.co", "fist_name": "A"}),
        TypeError,
        r"a contact has no field 'fist_name'; did you mean first_name\?",
    ),
    (contacts({"email": "a@b.co", "city": 1}), TypeError, "city: expected a string or null, got int"),
    (contacts({"email": "a@b.co", "id": "x"}), ValueError, "starts with contact_"),
    (lambda fake: fake.add_contacts(SPACE, -1), ValueError, "expected an integer of at least 0, got -1"),
    (lambda fake: fake.add_contacts(SPACE, True), TypeError, "expected an integer"),
    (lambda fake: fake.add_contacts("space_9", 1), ValueError, MISSING),
    (lambda fake: fake.add_contacts(SPACE, 1, campaign="camp_3"), ValueError, "has no campaign 'camp_3'"),
    (lambda fake: fake.add_contacts(SPACE, 1, campaign="camp_9"), ValueError, "has no campaign 'camp_9'"),
    (lambda fake: fake.add_mailboxes("space_9", 1), ValueError, MISSING),
    (lambda fake: fake.add_mailbox("space_9"), ValueError, MISSING),
    (lambda fake: fake.add_campaign("space_9"), ValueError, MISSING),
    (lambda fake: fake.add_owner_key("space_9"), ValueError, MISSING),
    (lambda fake: fake.contacts("space_9"), ValueError, MISSING),
    (lambda fake: fake.contact("space_9", "a@b.co"), ValueError, MISSING),
    (lambda fake: fake.add_workspace(SPACE), ValueError, "id: 'space_1' is already in use"),
    (lambda fake: fake.add_workspace("1"), ValueError, "starts with space_"),
    (lambda fake: fake.add_workspace(custom_fields="Plan"), TypeError, "expected a list of labels"),
    (lambda fake: fake.add_workspace(custom_fields={"custom_01": "Plan"}), ValueError, "expected a code such as custom_1"),
    (lambda fake: fake.add_workspace(custom_fields=[" "]), ValueError, "label: expected a non-blank string"),
    (lambda fake: fake.add_workspace(extra_fields={"city": "City"}), ValueError, "these codes are reserved: city"),
    (lambda fake: fake.add_workspace(extra_fields={"email": "E"}), ValueError, "these codes are reserved: email"),
    (lambda fake: fake.add_workspace(extra_fields={"custom_1": "E"}), ValueError, "these codes are reserved: custom_1"),
    (lambda fake: fake.add_workspace(extra_fields=json.loads('{"x": 1}')), TypeError, "label: expected a string"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED, ids=[message for _, _, message in REFUSED])
def test_an_invalid_seed_or_a_missing_object_is_refused_and_changes_nothing(
    call: Callable[[FakeService], Any], error: type[Exception], message: str
) -> None:
    fake = small_world()
    with refusing(fake, error, message):
        call(fake)


def test_owner_keys_are_generated_or_passed_and_never_shown() -> None:
    fake = small_world()

    assert fake.add_owner_key(SPACE).startswith("key_")
    assert fake.add_owner_key(SPACE, OTHER, key="key_7") == "key_7"
    with pytest.raises(ValueError, match="starts with key_") as caught:
        fake.add_owner_key(SPACE, key="5ecret")
    assert "5ecret" not in str(caught.value)


# Faults and the request log.


@pytest.mark.parametrize(("fault", "stored"), [(faults.reset(), False), (faults.commit_then(faults.reset()), True)])
def test_a_fault_on_the_wire_needs_a_transport(fault: Any, stored: bool) -> None:
    fake = small_world()
    fake.faults.script("create_contact", fault)

    if stored:
        exchange = fake.exchange(Request("POST", "/contacts", {}, json.dumps(creation()).encode()))
        assert (exchange.fault, exchange.response and exchange.response.status) == (fault, 201)
    else:
        with pytest.raises(RuntimeError, match="use FakeTransport or a server"):
            post(fake, creation())
        assert fake.requests[-1].status is None
    assert fake.requests[-1].served == stored
    assert (fake.contact(SPACE, "ada@acme.example") is not None) == stored


def test_every_request_is_logged_unchanged() -> None:
    fake = small_world()
    post(fake, creation(zzz=1))
    fake.advance(seconds=5)
    get(fake, "/campaigns/camp_9/steps")
    post(fake, b"{")
    fake.handle(Request("GET", "/", {"authorization": "Bearer 5ecret"}))
    first, second, third, fourth = fake.requests

    assert (first.operation, first.method, first.target, first.json, first.status) == (
        "create_contact",
        "POST",
        "/contacts",
        creation(zzz=1),
        201,
    )
    assert (first.number, first.hints, first.served, first.at) == (0, ("unknown field zzz ignored",), True, START)
    assert (second.operation, second.method, second.json, second.status, second.at) == ("list_steps", "GET", None, 404, START + 5)
    assert (third.json, third.status) == (None, 400)
    assert repr(second) == "<Recorded #1 list_steps: GET /campaigns/camp_9/steps -> 404>"
    assert (fourth.headers, "5ecret" in repr(fourth)) == ({"authorization": "Bearer 5ecret"}, False)
    assert repr(fake.requests) == "<RequestLog of 4 requests>"
    assert CAPACITY == 10_000


def test_a_loop_over_the_log_ends_although_it_sends_requests() -> None:
    fake = small_world()
    fake.handle(Request("GET", "/"))
    for entry in fake.requests:
        fake.handle(Request(entry.method, entry.target))
        assert len(fake.requests) == 2


def entry(number: int) -> Recorded:
    operation = "list_steps" if number % 2 else "create_contact"
    return Recorded(number, operation, "GET", "/", {}, None, 200 + number % 2, (), served=True, request_id=None, at=0)


def by_index(index: Any) -> Callable[[Any], Any]:
    return lambda entries: entries[index]


READS = st.sampled_from([list, lambda entries: list(reversed(entries))]) | st.builds(
    by_index, st.integers(-12, 12) | st.slices(9)
)


@given(st.integers(0, 9), st.integers(1, 9), READS, st.integers(0, 12))
def test_a_log_is_the_list_of_all_requests_but_dropped_ones_raise_an_error(count: int, size: int, read: Any, most: int) -> None:
    entries, log = [*map(entry, range(count))], RequestLog(size)
    for each in entries:
        append_to(log, each)
    kept = entries[-size:]

    def check(found: Callable[[Any], Any], expected: Any) -> None:
        if all(each in kept for each in (expected if isinstance(expected, list) else [expected])):
            assert found(log) == expected
        else:
            with pytest.raises(LookupError, match=r"no longer in the log|keeps only"):
                found(log)

    try:
        expected = read(entries)
    except IndexError:
        with pytest.raises(IndexError):
            read(log)
    else:
        check(read, expected)
    for operation in ("create_contact", "list_steps", "list_fields"):
        own = [each for each in entries if each.operation == operation]
        check(methodcaller("of", operation), own)
        assert log.counts[operation] == len(own)
    assert log.recent(most) == kept[len(kept) - min(most, len(kept)) :]
    assert (len(log), log.statuses) == (count, Counter(each.status for each in entries))


def test_the_transport_is_imported_on_first_use() -> None:
    assert FakeTransport(small_world()).service is not None
    assert set(outreach_async.fake.__all__) <= {*dir(outreach_async.fake), "FakeTransport"}
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        outreach_async.fake.nothing  # noqa: B018 - the access is the test
