"""The control plane: a request has the same result as the Python call."""

from __future__ import annotations

import json
import weakref
from collections.abc import Generator
from copy import copy
from typing import Any, get_args

import attrs
import pytest
from support.control import HOST, PlaneClient
from support.fake import KEY, SPACE, START, creation, get, post, small_world

from outreach_async import Request
from outreach_async._cli.demo_data import create_demo_world
from outreach_async.fake import Behaviour, FakeService, HeaderAuth, RateLimit, Recorded, faults
from outreach_async.fake._clock import DAY
from outreach_async.fake.behaviour import KNOB_NAMES, KNOB_VALUES
from outreach_async.fake.control import ControlPlane
from outreach_async.fake.control._control_plane import FAULT_FACTORIES, MAX_SANDBOXES, OperationName, Problem, Sandboxes
from outreach_async.fake.faults import Exchange, run_to_end


def state(plane: PlaneClient) -> list[Any]:
    """Return everything that a refused request must leave unchanged."""
    return [plane("GET", path) for path in ("/world", "/behaviour", "/faults", "/requests")]


def test_a_world_is_exported_and_imported_unchanged() -> None:
    plane, expected = PlaneClient(), small_world()
    expected.advance(days=3)
    plane("PUT", "/world", json.loads(expected.dump()))
    assert plane.fake.dump() == expected.dump()
    assert plane.send("GET", "/_fake/world").body.decode() == expected.dump()


# Reading and resetting.


def test_the_request_log_shows_no_key() -> None:
    plane = PlaneClient(small_world())
    post(plane.fake, creation(owner_key="a-real-secret", note=["key_s3cret", {"key_s3cret": 1}], key_s3cret="x"))
    get(plane.fake, f"/workspaces/{KEY}s3cret/all-fields")
    plane.fake.faults.script("list_fields", faults.hang())
    plane.fake.exchange(Request("GET", f"/workspaces/{SPACE}/all-fields?owner_key=a-real-secret"))
    logged_requests = plane.send("GET", "/_fake/requests").body
    assert b"s3cret" not in logged_requests
    assert b"real-secret" not in logged_requests
    journal = json.loads(logged_requests)
    assert (journal["total"], journal["counts"]) == (3, {"create_contact": 1, "list_fields": 2})
    assert journal["statuses"] == {"400": 2, "unanswered": 1}
    first, _, last = journal["requests"]
    assert set(first) == {field.name for field in attrs.fields(Recorded)} - {"headers"}
    assert (first["number"], first["operation"], first["method"], first["target"]) == (0, "create_contact", "POST", "/contacts")
    assert (first["json"]["owner_key"], first["json"]["email"], first["status"]) == ("***", "ada@acme.example", 400)
    assert (last["status"], last["served"], last["request_id"], last["fault"]) == (None, False, None, "hang()")
    assert first["request_id"]
    assert last["hints"] == ["unknown parameter owner_key ignored"]


def test_the_request_log_can_be_filtered_and_cleared() -> None:
    plane = PlaneClient(small_world())
    for _ in range(3):
        post(plane.fake, creation())
        get(plane.fake, "/nowhere")
    logged_requests = plane("GET", "/requests?operation=unknown&last=2")
    assert [entry["number"] for entry in logged_requests["requests"]] == [3, 5]
    assert logged_requests["total"] == 6
    assert plane("DELETE", "/requests") == {"total": 0, "counts": {}, "statuses": {}, "requests": []}


def test_control_requests_are_not_logged_and_meet_no_faults() -> None:
    plane = PlaneClient(small_world())
    plane.fake.faults.add(faults.status(500))
    plane("GET", "/time")
    plane.problem("GET", "/nothing", status=404)
    assert len(plane.fake.requests) == 0
    assert plane.send("GET", "/campaigns").status == 500


@pytest.mark.parametrize("target", ["/campaigns", "/_fakes", "/x/_fake/", "/%5Ffake/reset", "/"])
def test_requests_outside_the_prefix_go_to_the_service(target: str) -> None:
    plane = PlaneClient()
    plane.send("GET", target)
    assert [entry.target for entry in plane.fake.requests] == [target]


@pytest.mark.parametrize(("path", "status"), [("", 200), ("/", 200), ("/time/", 200), ("/time?", 200), ("/time/?a", 400)])
def test_a_trailing_slash_does_not_matter(path: str, status: int) -> None:
    assert PlaneClient().send("GET", f"/_fake{path}").status == status


def test_reset_restores_the_initial_state_any_number_of_times() -> None:
    plane = PlaneClient(small_world(past_end="clamp"))
    before = state(plane)
    for _ in range(2):
        post(plane.fake, creation())
        plane("POST", "/faults/script", {"operation": "list_steps", "faults": [{"name": "hang"}]})
        plane("PATCH", "/behaviour", {"preset": "lenient"})
        plane("POST", "/time/advance", {"hours": 5})
        assert all(now != was for now, was in zip(state(plane), before, strict=True))
        assert plane("POST", "/reset") == {"now": "2026-01-01T00:00:00Z", "unix": 1767225600.0}
        assert state(plane) == before


# Faults.

ARGUMENTS: dict[str, dict[str, Any]] = {
    "status": {"code": 429, "retry_after": 2, "body": "slow down", "headers": {"x-a": "b c"}},
    "drift": {"path": "data.status", "change": {"a": [None]}},
    "latency": {"seconds": 0.5},
    "malformed": {"kind": "garbage"},
    "truncate": {"after_bytes": 3},
    "reset_mid_body": {"after": 3},
    "wrong_length": {"short_by": 2},
    "slow_drip": {"bytes": 4, "every": 0.5},
}


@pytest.mark.parametrize("name", sorted(set(FAULT_FACTORIES) - {"commit_then", "ok"}))
def test_every_fault_can_be_scripted_alone_and_after_the_commit(name: str) -> None:
    plane, fault_arguments = PlaneClient(), ARGUMENTS.get(name, {})
    fault = FAULT_FACTORIES[name](**fault_arguments)
    body = [
        {"name": name, **fault_arguments},
        *([{"name": "commit_then", "fault": {"name": name, **fault_arguments}}] if name != "refuse" else []),
    ]
    expected = [fault, *(faults.commit_then(fault) for _ in body[1:])]
    logged_requests = plane("POST", "/faults/script", {"operation": "list_steps", "faults": body})
    assert logged_requests["unfired"] == [f"list_steps: {fault.label}" for fault in expected]
    request = Request("GET", "/campaigns/camp_1/steps")
    twin = FakeService()
    twin.faults.script("list_steps", *expected)
    for _ in expected:
        ours, theirs = plane.fake.exchange(request), twin.exchange(request)
        assert (ours.response, ours.fault) == (theirs.response, theirs.fault)


def test_there_is_a_schema_for_every_fault() -> None:
    created_ids = {name for name in faults.__all__ if name in FAULT_FACTORIES}
    assert created_ids == set(faults.__all__) - {"OPERATIONS", "Exchange", "Fault", "Faults"}
    assert set(get_args(OperationName)) == set(faults.OPERATIONS)


def test_a_rule_applies_only_to_matching_requests() -> None:
    plane = PlaneClient(small_world())
    rule = {"fault": {"name": "status", "code": 500}, "operation": "create_contact", "containing": "bad@", "times": 1}
    assert plane("POST", "/faults", rule)["unfired"] == ["create_contact: status(500) (0 of 1)"]
    plane("POST", "/faults", {"fault": {"name": "status", "code": 501}, "containing": "/workspaces/bad"})
    emails = ["good@a.example", "bad@a.example", "bad@a.example"]
    assert [post(plane.fake, creation(email)).status for email in emails] == [201, 500, 201]
    assert [get(plane.fake, f"/workspaces/{id_}/all-fields").status for id_ in (SPACE, "bad")] == [200, 501]
    assert plane("DELETE", "/faults") == {"unfired": []}


# Behaviour.


def test_every_value_of_every_knob_can_be_set_and_read() -> None:
    plane = PlaneClient()
    assert list(plane("GET", "/behaviour")) == list(KNOB_NAMES)
    for knob, values in KNOB_VALUES.items():
        for value in values:
            written = list(value) if isinstance(value, frozenset) else value
            assert plane("PATCH", "/behaviour", {knob: written})[knob] == written


def test_knobs_are_set_one_by_one_or_from_a_preset() -> None:
    plane = PlaneClient()
    plane("PATCH", "/behaviour", {"past_end": "error", "strict_fields": ["zip", "city"], "created_status": {"skipped": 201}})
    knobs = plane("PATCH", "/behaviour", {"rate_limit": {"limit": 3}, "auth": {"tokens": ["s3cret"]}})
    assert plane.fake.behaviour == Behaviour(
        past_end="error",
        strict_fields=frozenset({"zip", "city"}),
        created_status={"skipped": 201},
        rate_limit=RateLimit(3),
        auth=HeaderAuth(tokens=["s3cret"]),
    )
    assert (knobs["strict_fields"], knobs["auth"]["tokens"]) == (["city", "zip"], ["***"])
    assert knobs["rate_limit"] == {"limit": 3, "per": 60.0, "scope": "key", "retry_after": "seconds"}
    plane("PATCH", "/behaviour", {"preset": "lenient", "numbers": "mixed"})
    assert plane.fake.behaviour == attrs.evolve(Behaviour.lenient(), numbers="mixed")


def test_a_knob_set_to_a_function_shows_its_name() -> None:
    plane = PlaneClient(FakeService(behaviour=Behaviour(email_key=str.casefold)))
    assert plane("GET", "/behaviour")["email_key"] == "function casefold"


# Sandboxes.


def test_a_sandbox_starts_as_the_server_did_and_shares_nothing_with_others() -> None:
    plane = PlaneClient(small_world(past_end="clamp"))
    start = state(plane)
    post(plane.fake, creation())
    changed, other = plane.sandbox(), plane.sandbox()
    assert state(changed) == start
    changed("POST", "/faults", {"fault": {"name": "status", "code": 500}, "times": 2})
    changed("PATCH", "/behaviour", {"past_end": "error"})
    changed("POST", "/time/advance", {"days": 3})
    assert changed.send("GET", f"/workspaces/{SPACE}/all-fields").status == 500
    assert all(now != was for now, was in zip(state(changed), start, strict=True))
    assert [entry["target"] for entry in changed("GET", "/requests")["requests"]] == [f"/workspaces/{SPACE}/all-fields"]
    assert state(other) == start
    assert [contact["email"] for contact in plane.fake.contacts(SPACE)][3:] == ["ada@acme.example"]
    assert len(plane.fake.requests) == 1
    changed("POST", "/reset")
    assert state(changed) == start


def test_a_sandbox_can_have_its_own_seed_world_and_behaviour() -> None:
    plane = PlaneClient(small_world())
    inside = plane.sandbox(seed=7, world={"workspaces": [{}]}, behaviour={"preset": "strict", "numbers": "mixed"})
    (workspace,) = inside("GET", "/world")["workspaces"]
    assert workspace["id"] == FakeService(7).add_workspace()
    assert inside("GET", "/behaviour")["numbers"] == "mixed"
    before = state(inside)
    inside("PUT", "/world", {})
    inside("POST", "/reset")
    assert state(inside) == before
    assert len(json.loads(plane.fake.dump())["workspaces"]) == 2


def test_a_sandbox_ends_when_it_is_deleted_or_unused_for_long() -> None:
    plane = PlaneClient(small_world())
    used, unused, deleted = (plane.sandbox(expires_after=60) for _ in range(3))
    assert deleted.send("DELETE", "").status == 200
    plane.time = 50.0
    used("GET", "/time")
    plane.time = 100.0
    used("GET", "/time")
    for ended in (unused, deleted):
        assert "deleted or has expired" in ended.problem("GET", "/time", status=404)["message"]
        assert ended.send("GET", f"/workspaces/{SPACE}/all-fields").status == 404
    assert plane.send("DELETE", "/_fake/sandboxes/none").status == 404


def test_unused_and_deleted_sandboxes_make_room_and_free_their_memory() -> None:
    now, fake = [0.0], FakeService()
    sandboxes = Sandboxes(lambda: now[0])
    held = [weakref.ref(sandboxes.add(fake, 60)) for _ in range(MAX_SANDBOXES)]
    with pytest.raises(Problem) as refused:
        sandboxes.add(fake, 60)
    assert (refused.value.status, "shorter expires_after" in refused.value.remedy) == (409, True)
    deleted = held[0]()
    assert deleted is not None
    sandboxes.delete(deleted.id)
    del deleted
    assert held[0]() is None
    now[0] = 61.0
    sandboxes.add(fake, 60)
    assert all(instance() is None for instance in held)


def test_a_sandbox_has_no_sandboxes() -> None:
    inside = PlaneClient().sandbox()
    inside.problem("POST", "/sandboxes", status=404)
    assert inside.send("GET", "/").status == 405


# Refusals.

REFUSED: list[tuple[str, str, Any, str | None, str]] = [
    ("POST", "/time/advance", b"{", None, "send one JSON object"),
    ("PUT", "/world", b'{"now": "\xff"}', None, "send one JSON object"),
    ("PUT", "/world", b'{"now":' + b"[" * 100_000, None, "send one JSON object"),
    ("POST", "/time/advance", {"day": 1}, "day", "did you mean days?"),
    ("POST", "/time/advance", {"days": True}, "days", "accepted: weeks, days"),
    *(("POST", "/time/advance", {name: -1}, name, "accepted:") for name in ("weeks", "days", "hours", "minutes", "seconds")),
    ("POST", "/sandboxes", {"expires_after": 0}, "expires_after", "accepted: seed, world"),
    ("PUT", "/world", {"workspaces": [{"id": SPACE, "mailboxes": [{"sfp": 1}]}]}, "workspaces[0].mailboxes[0]", "send it again"),
    ("PUT", "/world", {"version": 9}, None, "send it again"),
    ("GET", "/requests?last=1&last=2", None, "last", "send the parameter once"),
    ("GET", "/requests?last=0", None, "last", "accepted: operation, last"),
    ("GET", "/time?a=b", None, "a", "remove unknown keys and parameters"),
    ("POST", "/reset", {"all": True}, "all", "remove unknown keys and parameters"),
    ("POST", "/faults/script", {"operation": "create", "faults": [{"name": "ok"}]}, "operation", "accepted: operation, faults"),
    ("POST", "/faults/script", {"operation": "list_steps", "faults": []}, "faults", "status(code"),
    ("POST", "/faults/script", {"operation": "list_steps", "faults": [{"name": "stat"}]}, "faults[0].name", "status(code"),
    (
        "POST",
        "/faults/script",
        {"operation": "list_steps", "faults": [{"name": "ok"}, {"name": "status", "code": 204, "body": "x"}]},
        "faults[1].body",
        "omit body",
    ),
    ("POST", "/faults", {"fault": {"name": "status", "code": 200, "headers": {"a b": "c"}}}, "fault.headers", "status(code"),
    ("POST", "/faults", {"fault": {"name": "malformed", "kind": "x"}}, "fault.kind", "pass one of them"),
    ("POST", "/faults", {"fault": {"name": "latency", "seconds": -1}}, "fault.seconds", "use a number in this range"),
    (
        "POST",
        "/faults",
        {"fault": {"name": "commit_then", "fault": {"name": "refuse"}}},
        "fault.fault",
        "use commit_then(reset())",
    ),
    ("PATCH", "/behaviour", {"past_end": "eror"}, "past_end", "send it again"),
    ("PATCH", "/behaviour", {"past": "error"}, "past", "did you mean past_end?"),
    ("PATCH", "/behaviour", [], None, "a body must be a JSON object"),
    ("PATCH", "/behaviour", {"order": "newest", "campaign_max_display": -1}, "campaign_max_display", "send it again"),
    ("PATCH", "/behaviour", {"rate_limit": {"limit": -1}}, "rate_limit", "use a number in this range"),
    ("PATCH", "/behaviour", {"rate_limit": {"limits": 1}}, "rate_limit", "did you mean limit?"),
    ("PATCH", "/behaviour", {"rate_limit": {}}, "rate_limit", "send it again"),
    ("PATCH", "/behaviour", {"preset": "lax"}, "preset", "send it again"),
    ("POST", "/sandboxes", {"behaviour": {"past_end": "eror"}}, "behaviour.past_end", "send it again"),
    ("POST", "/sandboxes", {"world": {"workspaces": [{"id": "x"}]}}, "world.workspaces[0]", "send it again"),
    ("POST", "/time/advance", {"days": 3661}, None, "advance in several requests"),
    ("POST", "/time/advance", {"weeks": 1e308}, None, "advance in several requests"),
]


@pytest.mark.parametrize(("method", "path", "body", "field", "remedy"), REFUSED)
def test_an_error_names_the_place_and_the_remedy_and_changes_nothing(
    method: str, path: str, body: Any, field: str | None, remedy: str
) -> None:
    plane = PlaneClient(small_world())
    before = state(plane)
    error = plane.problem(method, path, body)
    assert (error["field"], remedy in error["remedy"]) == (field, True), error
    assert state(plane) == before


def test_an_error_shows_no_key() -> None:
    error = PlaneClient().problem("PUT", "/world", {"owner_keys": {"key_1": ["key_s3cret"]}})
    assert "s3cret" not in str(error)


def test_time_cannot_advance_beyond_its_maximum() -> None:
    plane = PlaneClient()
    plane("PUT", "/world", {"now": "8999-12-31T00:00:00Z"})
    assert "year 9000" in plane.problem("POST", "/time/advance", {"days": 2})["message"]
    plane("POST", "/time/advance", {"days": 1})


def in_slices(plane: PlaneClient, method: str, path: str, body: bytes = b"") -> Generator[None, None, Exchange]:
    return plane.controlled.exchange_in_slices(Request(method, f"{plane.base}/_fake{path}", HOST, body))


def answer_of(slices: Generator[None, None, Exchange]) -> Any:
    response = run_to_end(slices).response
    assert response is not None
    return json.loads(response.body)


def test_while_a_sandbox_advances_its_requests_wait_and_others_are_answered() -> None:
    plane = PlaneClient(small_world())
    plane.fake.add_campaign(SPACE, status="live", mailboxes=plane.fake.add_mailboxes(SPACE, 9), steps=["A"], contacts=300)
    plane.controlled = ControlPlane(plane.fake)
    busy, quiet = plane.sandbox(), plane.sandbox()
    advance = in_slices(busy, "POST", "/time/advance", b'{"days": 30}')
    waiting = in_slices(busy, "GET", "/time")
    next(advance)
    for _ in range(3):
        next(waiting)
        next(advance)
        assert answer_of(in_slices(quiet, "GET", "/time"))["unix"] == START
    assert answer_of(advance)["unix"] == answer_of(waiting)["unix"] == START + 30 * DAY
    quiet("POST", "/time/advance", {"days": 30})
    assert busy("GET", "/world") == quiet("GET", "/world")


@pytest.mark.parametrize("path", ["/world", "/sandboxes"])
def test_while_a_world_is_loaded_others_are_answered_and_see_the_old_data(path: str) -> None:
    source = small_world()
    source.add_contacts(SPACE, 200)
    world = json.loads(source.dump())
    plane = PlaneClient()
    quiet = plane.sandbox()
    method, body = ("PUT", world) if path == "/world" else ("POST", {"world": world})
    loading = in_slices(plane, method, path, json.dumps(body).encode())
    for _ in range(3):
        next(loading)
        assert answer_of(in_slices(quiet, "GET", "/world"))["workspaces"] == plane("GET", "/world")["workspaces"] == []
    answer = answer_of(loading)
    made = plane if path == "/world" else copy(plane)
    made.base = answer.get("url", "").removeprefix(f"http://{HOST['host']}")
    assert made.send("GET", "/_fake/world").body.decode() == source.dump()


def test_the_next_advance_completes_one_that_is_abandoned() -> None:
    plane = PlaneClient(small_world())
    plane.fake.add_campaign(SPACE, status="live", mailboxes=plane.fake.add_mailboxes(SPACE, 9), steps=["A"], contacts=300)
    plane.controlled = ControlPlane(plane.fake)
    abandoned, whole = plane.sandbox(), plane.sandbox()
    advance = in_slices(abandoned, "POST", "/time/advance", b'{"days": 30}')
    next(advance)
    advance.close()
    answer_of(in_slices(abandoned, "POST", "/time/advance", b'{"days": 1}'))
    whole("POST", "/time/advance", {"days": 31})
    assert abandoned("GET", "/world") == whole("GET", "/world")


def test_a_refusal_in_slices_is_the_same() -> None:
    plane = PlaneClient()
    for path in ("/nothing", "/sandboxes/none/_fake/time"):
        assert answer_of(in_slices(plane, "GET", path)) == json.loads(plane.send("GET", f"/_fake{path}").body)


def test_every_answer_has_the_date_of_its_fake_and_an_id_of_its_own() -> None:
    plane = PlaneClient(small_world())
    inside = plane.sandbox()
    inside("POST", "/time/advance", {"days": 1})
    plane.fake.faults.script("unknown", faults.status(503), faults.status(503, headers={"date": "never"}))
    targets = ["/_fake", "/_fake/x", "/", "/", "/", "/_fake/sandboxes/none"]
    answers = [plane.send("GET", target) for target in targets]
    first = "Thu, 01 Jan 2026 00:00:00 GMT"
    assert [answer.headers["date"] for answer in answers] == [first, first, first, "never", first, first]
    second = [inside.send("GET", target) for target in ("/_fake/time", "/_fake/x", "/")]
    assert {answer.headers["date"] for answer in second} == {"Fri, 02 Jan 2026 00:00:00 GMT"}
    control = [*answers[:2], answers[-1], *second[:2]]
    assert len({answer.headers["x-request-id"] for answer in control}) == 5
    assert len({answer.headers["x-request-id"] for answer in answers}) == 6


def test_a_number_without_a_fraction_is_an_integer() -> None:
    plane, other = PlaneClient(), PlaneClient()
    steps = [{"wait_time": 1000.0, "templates": [{"sent": 0.0, "rates": {"open": 1.0}}]}]
    contacts = [{"email": "ann@company.example", "created": 1767225600.0}]
    world = {"version": 1.0, "workspaces": [{"campaigns": [{"contacts": 3.0, "steps": steps}], "contacts": contacts}]}
    plane("PUT", "/world", world)
    other("PUT", "/world", json.loads(json.dumps(world).replace(".0", "")))
    assert plane("GET", "/world") == other("GET", "/world")
    assert plane.sandbox(seed=754.0)("GET", "/time")["unix"] == START
    knobs = {"first_page": 0.0, "campaign_max_display": 50.0, "created_status": {"added": 200.0}, "rate_limit": {"limit": 2.0}}
    assert plane("PATCH", "/behaviour", knobs)["first_page"] == 0
    plane("POST", "/faults", {"fault": {"name": "truncate", "after_bytes": 3.0}, "times": 2.0})
    assert plane("GET", "/faults") == {"unfired": ["any request: truncate(3) (0 of 2)"]}
    assert plane.problem("POST", "/sandboxes", {"seed": 7.5})["field"] == "seed"


def test_a_value_that_is_kept_as_it_is_sent_keeps_its_type() -> None:
    plane = PlaneClient()
    world = {"version": 1.0, "workspaces": [{"id": SPACE, "mailboxes": [{"daily_limit": 40.0, "sent_today": 3}]}]}
    plane("PUT", "/world", world)
    assert b'"daily_limit":40.0,' in plane.send("GET", f"/mailboxes?workspace={SPACE}&display=1&page=1").body
    fault = {"name": "drift", "path": "status", "change": 1.0}
    plane("POST", "/faults", {"fault": fault, "times": 1.0})
    assert b'"status": 1.0,' in plane.send("GET", f"/workspaces/{SPACE}/all-fields").body


def test_the_examples_of_the_document_exist() -> None:
    plane = PlaneClient(create_demo_world())
    for inside in (plane, plane.sandbox(), plane.sandbox(world=json.loads(small_world().dump()))):
        described = json.loads(inside.send("GET", "/_fake/openapi.json").body)
        components = described["components"]
        parameters, members = components["parameters"].values(), components["schemas"]["CreateContact"]["properties"]
        example = {each["name"]: each["schema"].get("examples", [1])[0] for each in parameters}
        body = {name: member["examples"][0] for name, member in members.items() if "examples" in member}
        options = {"duplicates": "skip", "strict_validation": False, "campaign": example["campaign_id"]}
        assert inside.send("GET", f"/campaigns/{example['campaign_id']}/steps").status == 200
        assert inside.send("GET", f"/workspaces/{example['workspace_id']}/all-fields").status == 200
        assert inside.send("GET", f"/mailboxes?workspace={example['workspace']}&page=1&display=1").status == 200
        assert inside.send("POST", "/contacts", json.dumps({**body, "upload_options": options}).encode()).status == 201
    assert b'"examples": ["space_1"]' not in PlaneClient().send("GET", "/_fake/openapi.json").body


def test_an_unknown_path_is_404_and_a_wrong_method_405() -> None:
    plane = PlaneClient()
    assert "/time/advance" in plane.problem("GET", "/nothing", status=404)["remedy"]
    assert plane.problem("PUT", "/behaviours", status=404)["field"] is None
    assert plane.problem("POST", "/behaviour", status=405)["remedy"] == "use one of GET, HEAD, PATCH"
    assert plane.send("POST", "/_fake/behaviour").headers["allow"] == "GET, HEAD, PATCH"
    assert plane.send("HEAD", "/_fake/reset").status == 405


# Allowed hosts.


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:80", "[::1]:8080", "localhost", "LocalHost:1", "api.localhost:80", "10.0.0.7"]
)
def test_ip_addresses_and_localhost_are_allowed_as_hosts(host: str) -> None:
    document = json.loads(PlaneClient().send("GET", "/_fake/openapi.json", host=host).body)
    assert document["servers"] == [{"url": f"http://{host}"}]


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "[::1", "fake", "[x]"]
)
def test_another_host_is_refused_but_the_service_still_responds_to_it(host: str) -> None:
    plane = PlaneClient()
    response = plane.send("POST", "/_fake/reset", host=host)
    assert (response.status, json.loads(response.body)["error"]["field"]) == (403, "host")
    assert "--control-host" in json.loads(response.body)["error"]["remedy"]
    assert plane.send("GET", "/campaigns", host=host).status == 400


def test_an_allowed_host_is_accepted() -> None:
    plane = PlaneClient(None, "Fake", "fake.example")
    assert [plane.send("GET", "/_fake/time", host=host).status for host in ("fake:80", "FAKE.example", "x.fake")] == [
        200,
        200,
        403,
    ]


@pytest.mark.parametrize(
    ("origin", "status"), [("http://127.0.0.1:80", 200), ("http://127.0.0.1:81", 403), ("null", 403), ("", 403)]
)
def test_a_web_page_of_another_origin_is_refused(origin: str, status: int) -> None:
    assert PlaneClient().send("POST", "/_fake/reset", origin=origin).status == status
