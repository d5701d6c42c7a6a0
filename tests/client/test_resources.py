"""The five operations over the wire, and what is refused before anything is sent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from itertools import product
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paging import PagingService
from support.tables import check_rows_async
from support.time import virtual_time
from support.transport import Script, added, lost, page, skipped

from outreach_async import (
    BulkReport,
    CampaignSteps,
    CreatedContact,
    InvalidRequest,
    Mailbox,
    NewContact,
    Outcome,
    OutreachClient,
    Pager,
    Response,
    RetryPolicy,
    UnexpectedResponse,
    WorkspaceField,
)
from outreach_async._vocabulary import STANDARD_FIELDS
from outreach_async.transport._wire import Transport

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
    (lambda c: c.workspaces.fields(), FIELDS, "/workspaces/space_1/all-fields"),
    (lambda c: c.workspaces.fields(workspace="space_2"), FIELDS, "/workspaces/space_2/all-fields"),
]


@pytest.mark.parametrize(("call", "answer", "target"), READS, ids=[target for _, _, target in READS])
async def test_a_read_sends_exactly_the_documented_request(call: Call, answer: Response, target: str) -> None:
    script = Script(answer)
    await call(client(script))
    (request,) = script.requests
    assert (request.method, request.target, request.headers, request.body) == ("GET", target, READ, b"")


async def test_steps_and_fields_are_returned_as_the_service_sent_them() -> None:
    steps = await client(Script(STEPS)).campaigns.steps("camp_1")
    assert steps == CampaignSteps(status="ok", days_left=3, days_left_date="Complete", days_left_display="3 days", data=[])
    fields = await client(Script(FIELDS)).workspaces.fields()
    assert fields == [WorkspaceField(label="Plan", code="custom_1", searchable=["plan"])]


async def test_both_lists_read_all_their_pages() -> None:
    for resource in (client(PagingService(5)).campaigns, client(PagingService(5)).mailboxes):
        pager: Pager[Any] = resource.list(display=2)
        assert [item.id async for item in pager] == [f"camp_{number}" for number in range(5)]
    assert isinstance((await client(PagingService(1)).mailboxes.list()).data[0], Mailbox)


# Undecodable items


BAD_ITEM = b'{"status":"ok","headers":[],"data":[{"id":"camp_1","steps":"3"}],"total_found":1,"current_page":1,"total_pages":1}'


@pytest.mark.parametrize("resource", ["campaigns", "mailboxes"])
async def test_an_undecodable_item_is_an_error_or_kept_as_the_caller_asks(resource: str) -> None:
    script = Script(Response(200, {}, BAD_ITEM))
    lists = getattr(client(script), resource)
    with pytest.raises(UnexpectedResponse, match=r"\$\.data\[0\]\."):
        await lists.list()
    lenient_page = await lists.list(undecodable="keep")
    assert (lenient_page.data, [item.id for item in lenient_page.undecodable]) == ([], ["camp_1"])
    assert (await lists.list(undecodable="keep").collect()).missing == 0


# Creating


async def test_a_creation_sends_exactly_the_documented_request() -> None:
    script = Script(added())
    contact = NewContact("A@b.example", first_name="Ann", zip=None, custom={"custom_1": "x"}, extra={"linkedin": "in/ann"})
    api_client = await client(script).contacts.create(contact, duplicates="overwrite", strict_validation=False, campaign="camp_1")
    (request,) = script.requests
    assert (request.method, request.target) == ("POST", "/contacts")
    assert request.headers == {**READ, "content-type": "application/json"}
    assert json.loads(request.body) == {
        "owner_key": "key_1",
        "workspace": "space_1",
        "email": "A@b.example",
        "upload_options": {"duplicates": "overwrite", "strict_validation": False, "campaign": "camp_1"},
        "first_name": "Ann",
        "zip": None,
        "custom_1": "x",
        "linkedin": "in/ann",
    }
    possible = frozenset({Outcome.ADDED})
    assert api_client == CreatedContact(
        status=Outcome.ADDED, id="contact_1", details=None, possible=possible, request_id="req_1", attempts=1
    )


def pairs_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "a member comes twice"
    return dict(pairs)


texts = st.text(st.characters(exclude_categories=["Cs"]))
members = st.dictionaries(st.sampled_from(STANDARD_FIELDS), st.none() | texts)
customs = st.dictionaries(st.integers(0, 99).map("custom_{}".format), st.none() | texts, max_size=3)


@given(members, customs, st.sampled_from(["skip", "overwrite", "update_missing_fields"]), st.booleans(), st.none() | texts)
async def test_only_fields_that_were_set_are_sent_and_the_three_options_always(
    fields: dict[str, Any], custom: dict[str, Any], duplicates: Any, strict: Any, campaign: str | None
) -> None:
    campaign = None if campaign is None else f"camp_1{campaign}"
    script = Script(added())
    contacts = client(script).contacts
    options = {"duplicates": duplicates, "strict_validation": strict, "campaign": campaign}
    await contacts.create(NewContact("a@b.example", **fields, custom=custom), **options)
    await contacts.create({"email": "a@b.example", **fields, **custom}, **options)
    for request in script.requests:
        assert json.loads(request.body, object_pairs_hook=pairs_once) == {
            "owner_key": "key_1",
            "workspace": "space_1",
            "upload_options": options,
            "email": "a@b.example",
            **fields,
            **custom,
        }


async def test_the_options_are_sent_even_if_none_was_passed() -> None:
    script = Script(added())
    await client(script).contacts.create(CONTACT)
    await client(script).contacts.create_many([CONTACT])
    for request in script.requests:
        options = json.loads(request.body)["upload_options"]
        assert options == {"duplicates": "skip", "strict_validation": True, "campaign": None}


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
    campaigns = [None, *(f"camp_{number}" for number in range(20))]
    sets = list(product(["key_1", "key_2"], ["space_1", "space_2"], ["skip", "overwrite"], [True, False], campaigns))
    for key, space, duplicates, strict, campaign in sets * 2:
        options: dict[str, Any] = {"duplicates": duplicates, "strict_validation": strict, "campaign": campaign}
        await api_client.contacts.create(CONTACT, owner_key=key, workspace=space, **options)
        sent = json.loads(script.requests[-1].body)
        assert sent == {"owner_key": key, "workspace": space, "upload_options": options, "email": CONTACT.email}
    assert len(script.requests) == 2 * len(sets)


@pytest.mark.parametrize("wrong", [1, 1.0])
async def test_a_value_merely_equal_to_a_valid_option_is_refused(wrong: Any) -> None:
    script = Script(added())
    api_client = client(script)
    await api_client.contacts.create(CONTACT, strict_validation=True)
    with pytest.raises(InvalidRequest, match=r"^strict_validation: expected bool"):
        await api_client.contacts.create(CONTACT, strict_validation=wrong)
    assert len(script.requests) == 1


async def test_no_repr_of_a_resource_shows_its_keys() -> None:
    api_client = client(Script(added()), owner_key="key_first")
    await api_client.contacts.create(CONTACT)
    await api_client.contacts.create(CONTACT, owner_key="key_second")
    resources = (api_client, api_client.contacts, api_client.campaigns, api_client.mailboxes, api_client.workspaces)
    assert not [resource for resource in resources if "key_" in repr(resource)]


@virtual_time
async def test_create_many_uses_the_timeouts_of_the_call() -> None:
    script = Script(8.0, added())
    api_client = client(script, timeout=None, deadline=5.0)
    assert (await api_client.contacts.create_many([CONTACT], deadline=None)).outcomes[Outcome.ADDED] == 1
    script.entries = [8.0, added()]
    api_client = client(script, timeout=None, deadline=5.0, retry=RetryPolicy(attempts=1))
    assert (await api_client.contacts.create_many([CONTACT])).outcomes[Outcome.UNKNOWN] == 1


@virtual_time
async def test_a_retried_creation_that_finds_the_contact_says_what_is_possible() -> None:
    api_client = await client(Script(lost(), skipped())).contacts.create(CONTACT)
    assert api_client.possible == {Outcome.ADDED, Outcome.SKIPPED}
    assert (api_client.status, api_client.certain, api_client.attempts) == (Outcome.SKIPPED, False, 2)


# Unusual ids


ids = texts.filter(bool).map("1{}".format) | st.sampled_from(["é ü/%2F?#", "..", ".", "%", "+ &=", "\0", "\U0001f600"])


@given(ids)
async def test_an_unusual_id_survives_encoding_and_decoding(odd: str) -> None:
    script = Script(page(), page(), STEPS, FIELDS)
    api_client = client(script, workspace=f"space_{odd}")
    await api_client.campaigns.list()
    await api_client.mailboxes.list()
    await api_client.campaigns.steps(f"camp_{odd}")
    await api_client.workspaces.fields()
    campaigns, mailboxes, steps, fields = [urlsplit(f"http://x{request.target}") for request in script.requests]
    for url in (campaigns, mailboxes):
        assert dict(parse_qsl(url.query, strict_parsing=True))["workspace"] == f"space_{odd}"
    assert [unquote(part) for part in steps.path.split("/")] == ["", "campaigns", f"camp_{odd}", "steps"]
    assert [unquote(part) for part in fields.path.split("/")] == ["", "workspaces", f"space_{odd}", "all-fields"]
    for request in script.requests:
        assert request.target.isascii()
        assert not set(request.target) & set(' "<>\\^`{|}#+\t\r\n\0')


async def test_an_unusual_id_is_percent_encoded_as_utf_8() -> None:
    script = Script(STEPS, page())
    await client(script).campaigns.steps("camp_é ü/%2F?#")
    await client(script).campaigns.list(workspace="space_a&page=9+b")
    assert [request.target for request in script.requests] == [
        "/campaigns/camp_%C3%A9%20%C3%BC%2F%252F%3F%23/steps",
        f"/campaigns?workspace={quote('space_a&page=9+b')}&page=1&display=100",
    ]


# Refused before anything is sent

WRONG_IDS: list[tuple[Any, str]] = [
    (7, "got int; "),
    (b"space_1", "got bytes; "),
    ("", "got a blank string; "),
    (" \t", "got a blank string; "),
    ("mailbox_1", "got what looks like a mailbox id .+; "),
    ("key_secret", "got what looks like an owner_key .+; "),
    ("SPACE_1", "got a string of 7 characters .+; "),
    ("x_\ud800", "got a string of 3 characters .+; "),
]

ID_CALLS: dict[str, tuple[str, str, Callable[[OutreachClient, Any], Any]]] = {
    "campaigns.list": ("workspace", "space_", lambda c, value: c.campaigns.list(workspace=value)),
    "mailboxes.list": ("workspace", "space_", lambda c, value: c.mailboxes.list(workspace=value)),
    "workspaces.fields": ("workspace", "space_", lambda c, value: c.workspaces.fields(workspace=value)),
    "campaigns.steps": ("campaign", "camp_", lambda c, value: c.campaigns.steps(value)),
    "create workspace": ("workspace", "space_", lambda c, value: c.contacts.create(CONTACT, workspace=value)),
    "create campaign": ("campaign", "camp_", lambda c, value: c.contacts.create(CONTACT, campaign=value)),
    "many workspace": ("workspace", "space_", lambda c, value: c.contacts.create_many([CONTACT], workspace=value)),
    "many campaign": ("campaign", "camp_", lambda c, value: c.contacts.create_many([CONTACT], campaign=value)),
}


async def test_an_invalid_id_is_refused_with_field_type_and_remedy() -> None:
    async def check(name: str, value: Any, fault: str) -> None:
        script = Script(page())
        field, prefix, call = ID_CALLS[name]
        value, fault = (prefix, f"got only the prefix '{prefix}'; ") if value == "prefix alone" else (value, fault)
        with pytest.raises(InvalidRequest, match=rf"^{field}: expected a string starting with '{prefix}', {fault}.+") as caught:
            await call(client(script), value)
        assert script.requests == []
        assert "secret" not in str(caught.value)
        assert (caught.value.maybe_sent, caught.value.attempts) == (False, 0)

    await check_rows_async(
        ((name, value, fault) for name in ID_CALLS for value, fault in [*WRONG_IDS, ("prefix alone", "")]), check
    )


@pytest.mark.parametrize(("field", "prefix", "call"), ID_CALLS.values(), ids=ID_CALLS)
async def test_an_id_with_a_lone_surrogate_is_refused(
    field: str, prefix: str, call: Callable[[OutreachClient, Any], Any]
) -> None:
    script = Script(page())
    with pytest.raises(InvalidRequest, match=rf"^{field}: expected .+ Unicode, got a lone surrogate at character 5|6; .+"):
        await call(client(script), f"{prefix}\ud800")
    assert script.requests == []


def contact(*arguments: Any, **fields: Any) -> NewContact:
    return NewContact(*arguments, **fields)


CREATIONS: list[tuple[Any, dict[str, Any], str]] = [
    (
        CONTACT,
        {"owner_key": "space_1"},
        "owner_key: expected .+ 'key_', got what looks like a workspace id .+; pass an owner key .+",
    ),
    (CONTACT, {"owner_key": ""}, "owner_key: expected .+ 'key_', got a blank string; .+"),
    (CONTACT, {"owner_key": 7}, "owner_key: expected .+ 'key_', got int; .+"),
    (CONTACT, {"duplicates": "Skip"}, "duplicates: expected one of 'skip', 'overwrite', .+, got 'Skip'; .+"),
    (CONTACT, {"duplicates": None}, "duplicates: expected one of .+, got None; .+"),
    (CONTACT, {"duplicates": ["skip"]}, "duplicates: expected one of .+, got list; .+"),
    (CONTACT, {"strict_validation": "true"}, "strict_validation: expected bool, got str; .+"),
    (CONTACT, {"strict_validation": 1}, "strict_validation: expected bool, got int; .+"),
    (CONTACT, {"strict_validation": None}, "strict_validation: expected bool, got None; .+"),
    (contact(""), {}, "email: expected an address, got a blank string; .+"),
    (contact(" \n"), {}, "email: expected an address, got a blank string; .+"),
    (contact(None), {}, "email: expected a string, got None; .+"),
    (contact(b"a@b.co"), {}, "email: expected a string, got bytes; .+"),
    (contact("\ud800@b.co"), {}, "email: expected .+ Unicode, got a lone surrogate at character 0; .+"),
    (contact("a@b.co", zip=12345), {}, "zip: expected a string or None, got int; .+"),
    (contact("a@b.co", city="\ud800"), {}, "city: expected .+ Unicode, got a lone surrogate at character 0; .+"),
    (contact("a@b.co", custom={"custom_x": "a"}), {}, r"custom\['custom_x'\]: expected a code of the form custom_<n>; .+"),
    (contact("a@b.co", custom={"plan": "a"}), {}, r"custom\['plan'\]: expected a code of the form custom_<n>; .+"),
    (contact("a@b.co", custom={"custom_1": 1}), {}, r"custom\['custom_1'\]: expected a string or None, got int; .+"),
    (contact("a@b.co", custom=[("custom_1", "x")]), {}, "custom: expected a mapping of codes to strings, got list; .+"),
    (contact("a@b.co", extra={1: "x"}), {}, "extra: expected codes as strings, got int; .+"),
    (contact("a@b.co", extra={"email": "x"}), {}, r"extra\['email'\]: this code is reserved; .+"),
    (contact("a@b.co", extra={"custom_1": "x"}), {}, r"extra\['custom_1'\]: this code is reserved; .+"),
    ({}, {}, "email: missing; .+"),
    ({"email": "a@b.co", "frist_name": "A"}, {}, "'frist_name': not a field of a contact; did you mean 'first_name'.+"),
    ("a@b.co", {}, "contact: expected NewContact or a mapping, got str; .+"),
    (None, {}, "contact: expected NewContact or a mapping, got None; .+"),
]


async def test_an_invalid_creation_is_refused() -> None:
    async def check(row: Any, options: dict[str, Any], message: str) -> None:
        script = Script(added())
        with pytest.raises(InvalidRequest, match=f"^{message}$") as caught:
            await client(script).contacts.create(row, **options)
        assert script.requests == []
        assert (caught.value.maybe_sent, caught.value.maybe_applied, caught.value.attempts) == (False, False, 0)

    await check_rows_async(CREATIONS, check)


async def test_create_many_refuses_an_invalid_option_at_once_and_an_invalid_row_alone() -> None:
    async def check(row: Any, options: dict[str, Any], message: str) -> None:
        script = Script(added())
        contacts = client(script).contacts
        if options:
            with pytest.raises(InvalidRequest, match=f"^{message}$"):
                contacts.create_many([row], **options)
        else:
            async with contacts.create_many([row, CONTACT], order="input") as outcomes:
                statuses = [(outcome.status, outcome.index) async for outcome in outcomes]
            assert statuses == [("rejected", 0), ("added", 1)]
        assert len(script.requests) == (0 if options else 1)

    await check_rows_async(CREATIONS, check)


LISTS: list[tuple[dict[str, Any], str]] = [
    ({"display": 0}, "display: expected at least 1, got 0; .+"),
    ({"display": "5"}, "display: expected a whole number, got str; .+"),
    ({"display": 5.0}, "display: expected a whole number, got float; .+"),
    ({"display": True}, "display: expected a whole number, got bool; .+"),
    ({"page": -1}, "page: expected at least 0, got -1; .+"),
    ({"page": None}, "page: expected a whole number, got None; .+"),
    ({"page": "1"}, "page: expected a whole number, got str; .+"),
    ({"page": 10**30}, "page: expected at most .+"),
    ({"max_items": 0}, "max_items: expected at least 1, got 0; .+"),
    ({"max_items": "9"}, "max_items: expected a whole number, got str; .+"),
    ({"undecodable": "skip"}, "undecodable: expected one of 'raise', 'keep', got 'skip'; .+"),
    ({"undecodable": "key_secret"}, "undecodable: expected one of 'raise', 'keep', got 'key_...'; .+"),
    ({"undecodable": True}, "undecodable: expected one of 'raise', 'keep', got bool; .+"),
]


@pytest.mark.parametrize(("options", "message"), LISTS, ids=repr)
@pytest.mark.parametrize("resource", ["campaigns", "mailboxes"])
def test_an_invalid_list_is_refused_before_it_is_used(resource: str, options: Any, message: str) -> None:
    script = Script(page())
    with pytest.raises(InvalidRequest, match=f"^{message}$") as caught:
        getattr(client(script), resource).list(**options)
    assert script.requests == []
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("display", [2001, 10**9])
def test_more_than_2000_mailboxes_per_page_are_refused_before_sending(display: int) -> None:
    script = Script(page())
    with pytest.raises(InvalidRequest, match=f"^display: expected at most 2000, got {display}; .+"):
        client(script).mailboxes.list(display=display)
    assert script.requests == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "random"}, "order: expected one of 'completion', 'input', got .+; .+"),
        ({"concurrency": 0}, "concurrency: expected .+; .+"),
    ],
    ids=repr,
)
def test_an_invalid_bulk_run_is_refused_before_it_is_entered(options: Any, message: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{message}$"):
        client(Script(added())).contacts.create_many([CONTACT], **options)
