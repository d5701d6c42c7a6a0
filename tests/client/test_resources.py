"""The five operations over the wire, and what is refused before anything is sent."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from decimal import Decimal
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import check_rows_async
from support.time import virtual_time
from support.transport import Script, added, page, skipped

from outreach_async import (
    UNSET,
    BulkReport,
    NewContact,
    Outcome,
    OutreachClient,
    Response,
    ResponseInfo,
    RetryPolicy,
    Transport,
)
from outreach_async.errors import InvalidRequest, UnexpectedResponse
from outreach_async.models import STANDARD_FIELDS

CONTACT = NewContact("a@b.example")
READ = {"accept": "application/json", "accept-encoding": "gzip, deflate", "user-agent": "outreach_async/0.1.0"}
STEPS = Response(200, {}, b'{"status":"ok","days_left":3,"days_left_date":"Complete","days_left_display":"3 days","data":[]}')
FIELDS = Response(200, {}, b'{"status":"ok","data":[{"label":"Plan","code":"custom_1","searchable":["plan"]}]}')

Call = Callable[[OutreachClient], Awaitable[Any]]


def client(transport: Transport, **options: Any) -> OutreachClient:
    return OutreachClient(transport=transport, **{"owner_key": "key_1", "workspace": "space_1", **options})


READS: list[tuple[Call, Response, str]] = [
    (lambda c: c.campaigns.list(), page(), "/campaigns?workspace=space_1&page=1&display=100"),
    (lambda c: c.campaigns.list(page=0), page(), "/campaigns?workspace=space_1&page=0&display=100"),
    (lambda c: c.campaigns.list(page=3, display=10**6), page(), "/campaigns?workspace=space_1&page=3&display=1000000"),
    (lambda c: c.campaigns.list(workspace="space_2"), page(), "/campaigns?workspace=space_2&page=1&display=100"),
    (lambda c: c.mailboxes.list(), page(), "/mailboxes?workspace=space_1&page=1&display=500"),
    (lambda c: c.mailboxes.list(page=2, display=2000), page(), "/mailboxes?workspace=space_1&page=2&display=2000"),
    (lambda c: c.mailboxes.list(workspace="space_2"), page(), "/mailboxes?workspace=space_2&page=1&display=500"),
    (lambda c: c.campaigns.steps("camp_1"), STEPS, "/campaigns/camp_1/steps"),
    (lambda c: c.campaigns.steps("camp_éü/%2F?#"), STEPS, "/campaigns/camp_%C3%A9%C3%BC%2F%252F%3F%23/steps"),
    (lambda c: c.workspaces.fields(), FIELDS, "/workspaces/space_1/all-fields"),
    (lambda c: c.workspaces.fields(workspace="space_2"), FIELDS, "/workspaces/space_2/all-fields"),
]


@pytest.mark.parametrize(("call", "answer", "target"), READS, ids=[target for _, _, target in READS])
async def test_a_read_sends_exactly_the_documented_request(call: Call, answer: Response, target: str) -> None:
    script = Script(answer)
    await call(client(script))
    (request,) = script.requests
    assert (request.method, request.target, request.headers, request.body) == ("GET", target, READ, b"")


SUCCESSES: list[tuple[Call, Response]] = [
    (lambda c: c.campaigns.list(), page()),
    (lambda c: c.mailboxes.list(), page()),
    (lambda c: c.campaigns.steps("camp_1"), STEPS),
    (lambda c: c.contacts.create(CONTACT), added()),
]


@pytest.mark.parametrize(("call", "answer"), SUCCESSES, ids=["campaigns", "mailboxes", "steps", "create"])
async def test_a_result_has_its_response_without_secrets(call: Call, answer: Response) -> None:
    echo = {"x-request-id": "req_9", "x-echo": "token hunter22 of key_1", "content-type": "application/json"}
    script = Script(Response(answer.status, echo, answer.body))
    found = (await call(client(script, headers={"authorization": "Bearer hunter22"}))).response
    assert (found.status, found.request_id) == (answer.status, "req_9")
    assert found.headers == {**echo, "x-echo": "token *** of ***"}
    raw = await client(script).request("GET", "/")
    assert (raw.request_id, Response(200).request_id, ResponseInfo(200, {}).request_id) == ("req_9", None, None)


BAD_ITEM = b'{"status":"ok","headers":[],"data":[{"id":"camp_1","steps":"3"}],"total_found":1,"current_page":1,"total_pages":1}'


def test_pythons_error_for_a_misspelled_option_names_the_public_class() -> None:
    for resource in ("Campaigns", "Mailboxes"):
        with pytest.raises(TypeError, match=rf"\A{resource}\.list\(\) got an unexpected keyword argument 'serch'"):
            getattr(client(Script()), resource.lower()).list(serch="north")


@pytest.mark.parametrize("resource", ["campaigns", "mailboxes"])
async def test_an_undecodable_item_is_an_error_or_kept_as_the_caller_asks(resource: str) -> None:
    script = Script(Response(200, {}, BAD_ITEM))
    lists = getattr(client(script), resource)
    with pytest.raises(UnexpectedResponse, match=r"\$\.data\[0\]\."):
        await lists.list()
    lenient_page = await lists.list(undecodable="keep")
    assert (lenient_page.data, [item.id for item in lenient_page.undecodable]) == ([], ["camp_1"])
    assert (await lists.list(undecodable="keep").collect()).missing == 0


def pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "a member comes twice"
    return dict(pairs)


texts = st.text(st.characters(exclude_categories=["Cs"]))
visible = texts.filter(lambda text: text.isprintable() and " " not in text)  # what ids and keys consist of
members = st.dictionaries(st.sampled_from(STANDARD_FIELDS), st.none() | texts)
customs = st.dictionaries(st.integers(0, 99).map("custom_{}".format), st.none() | texts, max_size=3)
extras = st.dictionaries(st.sampled_from(["linkedin", "twitter"]), st.none() | texts)
upload_options = st.fixed_dictionaries(
    {
        "duplicates": st.sampled_from(["skip", "overwrite", "update_missing_fields"]),
        "strict_validation": st.booleans(),
        "campaign": st.none() | visible.map("camp_1{}".format),
    }
)


@given(visible.filter(bool), members, customs, extras, upload_options)
async def test_only_fields_that_were_set_are_sent_and_the_three_options_always(
    odd: str, fields: Any, custom: Any, extra: Any, options: Any
) -> None:
    script = Script(added())
    contacts = client(script, owner_key=f"key_{odd}", workspace=f"space_{odd}").contacts
    unset = dict.fromkeys(set(STANDARD_FIELDS) - set(fields), UNSET)
    await contacts.create(NewContact("a@b.example", **fields, **unset, custom=custom, extra=extra), **options)
    await contacts.create({"email": "a@b.example", **fields, **custom, "extra": extra}, **options)
    await contacts.create(email="a@b.example", **fields, **custom, extra=extra, **options)
    for request in script.requests:
        assert (request.method, request.target) == ("POST", "/contacts")
        assert request.headers == {**READ, "content-type": "application/json"}
        assert json.loads(request.body, object_pairs_hook=pairs_once) == {
            "owner_key": f"key_{odd}",
            "workspace": f"space_{odd}",
            "upload_options": options,
            "email": "a@b.example",
            **fields,
            **custom,
            **extra,
        }


async def test_create_many_sends_the_same_requests_as_create() -> None:
    script = Script(added(), skipped())
    api_client = client(script)
    options: dict[str, Any] = {"duplicates": "overwrite", "strict_validation": False, "campaign": "camp_1"}
    options |= {"owner_key": "key_2", "workspace": "space_2"}
    report = await api_client.contacts.create_many([CONTACT, {"email": "c@d.example"}], **options, concurrency=1, order="input")
    await api_client.contacts.create(CONTACT, **options)
    await api_client.contacts.create({"email": "c@d.example"}, **options)
    assert isinstance(report, BulkReport)
    assert {outcome.value: count for outcome, count in report.outcomes.items() if count} == {"added": 1, "skipped": 1}
    assert script.requests[:2] == script.requests[2:]


async def test_options_are_sent_as_passed_whatever_was_sent_before() -> None:
    script = Script(added())
    api_client = client(script)
    campaigns = [None, *(f"camp_{number}" for number in range(4))]  # with the others, more sets than a client caches
    sets = list(product(["key_1", "key_2"], ["space_1", "space_2"], ["skip", "overwrite"], [True, False], campaigns))
    for key, space, duplicates, strict, campaign in sets * 2:
        options: dict[str, Any] = {"duplicates": duplicates, "strict_validation": strict, "campaign": campaign}
        await api_client.contacts.create(CONTACT, owner_key=key, workspace=space, **options)
        sent = json.loads(script.requests[-1].body)
        assert sent == {"owner_key": key, "workspace": space, "upload_options": options, "email": CONTACT.email}
    assert len(script.requests) == 2 * len(sets)


async def test_a_value_that_stands_for_a_missing_one_is_not_sent() -> None:
    script = Script(added())
    for missing in math.nan, Decimal("nan"):
        await client(script).contacts.create({"email": "a@b.example", "first_name": "Ann", "city": missing})
        sent = json.loads(script.requests[-1].body)
        assert {"email", "first_name"} == sent.keys() - {"owner_key", "workspace", "upload_options"}


@virtual_time
async def test_create_many_uses_the_timeouts_of_the_call() -> None:
    script = Script(8.0, added())
    api_client = client(script, timeout=None, deadline=5.0)
    assert (await api_client.contacts.create_many([CONTACT], deadline=None)).outcomes[Outcome.ADDED] == 1
    script.entries = [8.0, added()]
    api_client = client(script, timeout=None, deadline=5.0, retry=RetryPolicy(attempts=1))
    assert (await api_client.contacts.create_many([CONTACT])).outcomes[Outcome.UNKNOWN] == 1


REFUSED: list[tuple[Callable[[OutreachClient], Any], str]] = [
    (lambda c: c.campaigns.list(workspace="key_secret"), "workspace: expected .+, got what looks like an owner_key .+; .+"),
    (lambda c: c.mailboxes.list(workspace="camp_1"), "workspace: expected .+, got what looks like a campaign id .+; .+"),
    (lambda c: c.workspaces.fields(workspace=""), "workspace: expected .+, got a blank string; .+ OUTREACH_WORKSPACE"),
    (lambda c: c.campaigns.steps("space_1"), "campaign: expected .+, got what looks like a workspace id .+; .+ campaign list"),
    (lambda c: c.campaigns.list(display=0), "display: expected at least 1, got 0; .+"),
    (lambda c: c.mailboxes.list(display=2001), "display: expected at most 2000, got 2001; .+"),
    (lambda c: c.campaigns.list(page=-1), "page: expected at least 0, got -1; .+"),
    (lambda c: c.mailboxes.list(page=None), "page: expected a whole number, got None; .+"),  # type: ignore[arg-type]
    (lambda c: c.campaigns.list(max_items=0), "max_items: expected at least 1, got 0; .+"),
    (lambda c: c.mailboxes.list(max_items="9"), "max_items: expected a whole number, got str; .+"),  # type: ignore[arg-type]
    (lambda c: c.campaigns.list(undecodable="skip"), "undecodable: expected one of 'raise', 'keep', got 'skip'; .+"),  # type: ignore[arg-type]
    (lambda c: c.mailboxes.list(undecodable=True), "undecodable: expected one of .+, got bool; .+"),  # type: ignore[arg-type]
    (lambda c: c.contacts.create(CONTACT, owner_key="space_1"), "owner_key: expected .+, got what looks like a workspace id .+"),
    (lambda c: c.contacts.create(CONTACT, workspace="key_secret"), "workspace: expected .+, got what looks like an owner_key .+"),
    (lambda c: c.contacts.create(CONTACT, campaign="space_1"), "campaign: expected .+, got what looks like a workspace id .+"),
    (lambda c: c.contacts.create(CONTACT, duplicates=["skip"]), "duplicates: expected one of .+, got list; .+"),  # type: ignore[arg-type]
    (lambda c: c.contacts.create(CONTACT, strict_validation=1), "strict_validation: expected bool, got int; .+"),  # type: ignore[arg-type]
    (lambda c: c.contacts.create(NewContact("")), "email: expected an address, got a blank string; .+"),
    (lambda c: c.contacts.create({"email": "a@b.co", "frist_name": "A"}), "'frist_name': not a field .+ 'first_name'.+"),
    (lambda c: c.contacts.create_many([], owner_key="space_1"), "owner_key: expected .+, got what looks like a workspace id .+"),
    (lambda c: c.contacts.create_many([], workspace="key_secret"), "workspace: expected .+, got what looks like an owner_key .+"),
    (lambda c: c.contacts.create_many([], campaign=""), "campaign: expected .+, got a blank string; .+"),
    (lambda c: c.contacts.create_many([], duplicates="Skip"), "duplicates: expected one of .+, got 'Skip'; .+"),  # type: ignore[arg-type]
    (lambda c: c.contacts.create_many([], strict_validation=None), "strict_validation: expected bool, got None; .+"),  # type: ignore[arg-type]
    (lambda c: c.contacts.create_many([], order="random"), "order: expected one of .+, got 'random'; .+"),  # type: ignore[arg-type]
    (lambda c: c.campaigns.list().collect(prefetch=0), "prefetch: expected at least 1, got 0; .+"),
    (lambda c: c.request("get", "/"), "method: expected an HTTP method in upper case, .+"),
    (lambda c: c.request("GET", "/a/../b"), "target: expected no '.' or '..' segments, .+"),
    (lambda c: c.request("POST", "/", body="{}"), "body: expected bytes, got str; .+"),  # type: ignore[arg-type]
    (lambda c: c.request("GET", "/", headers={"a": "\n"}), r"headers\['a'\]: expected printable ASCII .+"),
    (lambda c: c.request("GET", "/", params=[("a", "b")]), "params: expected a mapping .+, got list; pass a dict"),  # type: ignore[arg-type]
    (lambda c: c.request("GET", "/", params={"a": b"b"}), "params: expected .+, got a value of the type bytes; convert it"),
    (lambda c: c.request("GET", "/", params={1: "b"}), "params: expected .+, got a name of the type int; convert it"),  # type: ignore[dict-item]
    (lambda c: c.request("GET", "/", params={"a": "\ud800"}), "params: expected valid Unicode, .+"),
    (lambda c: c.request("POST", "/", json={"a": object()}), r"json: expected a JSON value, .+ \(TypeError\); .+"),
    (lambda c: c.request("POST", "/", json={}, body=b"{}"), "json: expected no body beside it, got both; pass one of them"),
    (lambda c: c.contacts.create_many([], concurrency=0), "concurrency: expected at least 1, got 0; .+"),
]


@pytest.mark.parametrize(
    ("target", "params", "sent"),
    [
        ("/a", {}, "/a"),
        ("/a", {"none": None, "empty": []}, "/a"),
        ("/a", {"b": "x y&=%/?", "c": 1, "d": 2.5, "e": True}, "/a?b=x%20y%26%3D%25%2F%3F&c=1&d=2.5&e=true"),
        ("/a?b=1", {"c[]": ["é", "", None]}, "/a?b=1&c%5B%5D=%C3%A9&c%5B%5D="),
    ],
)
async def test_parameters_are_encoded_and_added_to_the_query(target: str, params: dict[str, Any], sent: str) -> None:
    script = Script(Response(200))
    await client(script).request("GET", target, params=params)
    assert [request.target for request in script.requests] == [sent]


@pytest.mark.parametrize("value", [{"a": [1, None, "é"]}, {}, [], 0, False, ""])
async def test_a_json_value_is_sent_and_read_as_such(value: Any) -> None:
    script = Script(Response(200, {}, json.dumps(value).encode()))
    response = await client(script).request("POST", "/a", json=value)
    (request,) = script.requests
    assert (json.loads(request.body), request.headers["content-type"]) == (value, "application/json")
    assert response.json() == value
    with pytest.raises(ValueError, match="Expecting value"):
        Response(200, {}, b"<html>").json()


async def test_an_invalid_argument_is_refused_before_anything_is_sent() -> None:
    async def check(call: Callable[[OutreachClient], Any], message: str) -> None:
        script = Script(added())
        one = client(script)
        await one.contacts.create(CONTACT, strict_validation=True)  # equal to 1, which is refused
        with pytest.raises(InvalidRequest, match=f"^{message}$") as caught:
            await call(one)
        assert len(script.requests) == 1
        assert "secret" not in str(caught.value)
        assert (caught.value.maybe_sent, caught.value.maybe_applied, caught.value.attempts) == (False, False, 0)

    await check_rows_async(REFUSED, check)
