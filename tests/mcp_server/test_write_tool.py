"""The tool that creates contacts: allowed workspaces, confirmation by a person, and labels of outcomes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import pytest
from mcp.shared.exceptions import MCPError
from support.assistants import HOSTILE, MODES, NOTICE, Person, assisted, connected
from support.cli import KEY, small_service
from support.time import virtual_time

from outreach_async import InvalidRequest
from outreach_async.fake import FakeService, faults

ANN = {"email": "ann@a.example", "first_name": "Ann", "custom_1": "gold"}
MANY_CODES = [f"custom_{number}" for number in range(1, 52)]
BOB = {"email": "bob@a.example"}


async def test_without_allowed_workspaces_there_is_no_such_tool(service: FakeService) -> None:
    async with assisted(service) as server, connected(server, Person(create=True)) as assistant:
        assert "create_contacts" not in [tool.name for tool in (await assistant.client.list_tools()).tools]
        assert "Unknown tool" in await assistant.fail("create_contacts", workspace="space_1", contacts=[ANN])
    assert len(service.requests.of("create_contact")) == 0


@pytest.mark.parametrize("mode", MODES)
async def test_contacts_are_created_once_a_person_has_confirmed(service: FakeService, mode: str) -> None:
    person = Person(create=True)
    service.add_contacts("space_1", [{"email": "bob@a.example", "city": "Lyon"}])
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person, mode) as assistant:
        answer = await assistant.ask("create_contacts", workspace="space_1", contacts=[ANN, BOB], campaign="camp_1")
    assert (answer["notice"], answer["workspace"], answer["campaign"]) == (NOTICE, "space_1", "camp_1")
    first, second = answer["contacts"]
    assert first.pop("id").startswith("contact_")
    assert first == {"row": 1, "email": "ann@a.example", "status": "added", "certain": True, "possible": ["added"]}
    assert (second["row"], second["status"], second["certain"], second["id"]) == (2, "skipped", True, None)
    (question,) = person.questions
    assert question.splitlines() == [
        "Create 2 contacts in campaign camp_1 of workspace space_1? Existing contacts are left unchanged.",
        "- ann@a.example (first_name=Ann, custom_1=gold)",
        "- bob@a.example",
    ]
    created = service.contact("space_1", "ann@a.example")
    assert created is not None
    assert created["fields"]["first_name"] == "Ann"


async def test_the_question_names_the_workspace_that_is_given_by_name(service: FakeService) -> None:
    person = Person(create=True)
    async with (
        assisted(service, allow_writes=["space_1"], names={"space_1": "acme"}) as server,
        connected(server, person) as assistant,
    ):
        answer = await assistant.ask("create_contacts", workspace="acme", contacts=[ANN])
    assert person.questions[0].startswith("Create 1 contact in workspace acme (space_1) without a campaign?")
    assert (answer["workspace"], answer["workspace_name"], answer["contacts"][0]["status"]) == ("space_1", "acme", "added")


async def test_a_person_on_a_list_is_refused_by_the_list_of_now_before_asking(service: FakeService, tmp_path: Path) -> None:
    person = Person(create=True)
    (path := tmp_path / "blocked.txt").write_text("cy@a.example\n")
    call = {"workspace": "space_1", "contacts": [ANN, BOB]}
    async with assisted(service, allow_writes=["space_1"], exclude=[path]) as server, connected(server, person) as assistant:
        path.write_text("BOB@a.example\n")
        error = await assistant.fail("create_contacts", **call)
        assert (person.questions, len(service.requests)) == ([], 0)
        path.write_text("b.example\n")
        answer = await assistant.ask("create_contacts", **call)
    assert error == "contact 2 must not be written to: the list blocked.txt has the address; nothing was sent; leave them out"
    assert [contact["status"] for contact in answer["contacts"]] == ["added", "added"]


async def test_a_check_says_that_a_person_on_a_list_cannot_be_sent(service: FakeService, tmp_path: Path) -> None:
    (path := tmp_path / "blocked.txt").write_text("BOB@a.example\n")
    async with assisted(service, exclude=[path]) as server, connected(server) as assistant:
        answer = await assistant.ask("check_contacts", contacts=[ANN, BOB])
    assert (answer["sendable"], answer["contacts"][1]["reason"]) == (1, "the list blocked.txt has the address")


async def test_a_list_that_changes_while_the_person_is_asked_counts(service: FakeService, tmp_path: Path) -> None:
    (path := tmp_path / "blocked.txt").write_text("cy@a.example\n")

    class Slow(Person):
        async def answer(self, context: object, params: Any) -> Any:
            path.write_text("bob@a.example\n")
            return await super().answer(context, params)

    person, call = Slow(create=True), {"workspace": "space_1", "contacts": [ANN, BOB]}
    async with assisted(service, allow_writes=["space_1"], exclude=[path]) as server, connected(server, person) as assistant:
        answer = await assistant.ask("create_contacts", **call)
    assert [contact["status"] for contact in answer["contacts"]] == ["added", "excluded"]


async def test_a_server_that_cannot_use_a_list_does_not_start(service: FakeService, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"none\.txt"):
        async with assisted(service, allow_writes=["space_1"], exclude=[tmp_path / "none.txt"]):
            raise AssertionError


@pytest.mark.parametrize(
    "person", [Person("decline"), Person("cancel"), Person(create=False)], ids=["declined", "cancelled", "unchecked"]
)
async def test_nothing_is_sent_unless_the_person_confirms(service: FakeService, person: Person) -> None:
    person.questions.clear()
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person) as assistant:
        error = await assistant.fail("create_contacts", workspace="space_1", contacts=[ANN])
    message = "create_contacts: the user did not confirm, so nothing was sent; ask the user what to change before calling again"
    assert error == message
    assert (len(person.questions), len(service.requests)) == (1, 0)


async def test_a_confirmation_that_is_repeated_creates_nothing_again(service: FakeService) -> None:
    call = {"workspace": "space_1", "contacts": [ANN]}
    refused: list[MCPError] = []
    async with (
        assisted(service, allow_writes=["space_1"]) as server,
        connected(server, Person(create=True), "2026-07-28") as assistant,
    ):

        async def ask() -> mcp_types.InputRequiredResult:
            asked = await assistant.client.session.call_tool("create_contacts", call, allow_input_required=True)
            assert isinstance(asked, mcp_types.InputRequiredResult)
            return asked

        async def confirm(asked: mcp_types.InputRequiredResult) -> None:
            assert asked.input_requests is not None
            yes = mcp_types.ElicitResult(action="accept", content={"create": True})
            answers: mcp_types.InputResponses = dict.fromkeys(asked.input_requests, yes)
            try:
                await assistant.client.session.call_tool(
                    "create_contacts", call, input_responses=answers, request_state=asked.request_state, allow_input_required=True
                )
            except MCPError as error:
                refused.append(error)

        first, second = await ask(), await ask()
        async with anyio.create_task_group() as group:
            for asked in (first, first, second):
                group.start_soon(confirm, asked)
        await confirm(first)
        assert [str(error) for error in refused] == ["Invalid or expired requestState"] * 2
        assert len(service.requests.of("create_contact")) == 2


async def test_an_unusable_answer_of_the_program_sends_nothing(service: FakeService) -> None:
    for person in (Person(), Person("fail")):
        async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person) as assistant:
            error = await assistant.fail("create_contacts", workspace="space_1", contacts=[ANN])
        assert "does not match the requested schema" in error or "the form is broken; nothing was sent" in error
    assert len(service.requests) == 0


@pytest.mark.parametrize("mode", MODES)
async def test_a_program_that_cannot_ask_gets_an_error_with_a_remedy(service: FakeService, mode: str) -> None:
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, None, mode) as assistant:
        error = await assistant.fail("create_contacts", workspace="space_1", contacts=[ANN])
    assert "cannot ask a person for confirmation" in error
    assert "use a client that supports elicitation, or import the contacts with" in error
    assert len(service.requests) == 0


async def test_another_workspace_is_refused_before_the_person_is_asked(service: FakeService) -> None:
    person = Person(create=True)
    service.add_workspace("space_2")
    service.add_owner_key("space_2", key="key_2")
    spaces = ("space_1", "space_2")
    async with assisted(service, spaces, allow_writes=["space_1"]) as server, connected(server, person) as assistant:
        for workspace in ("space_2", "space_3"):
            error = await assistant.fail("create_contacts", workspace=workspace, contacts=[ANN])
            assert "workspace: expected one of space_1, got another id" in error
            assert "nothing was sent" in error
    assert (person.questions, len(service.requests)) == ([], 0)


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"duplicates": "overwrite"}, "duplicates: Input should be 'skip' or 'update_missing_fields'"),
    ({"contacts": [ANN] * 51}, "contacts: List should have at most 50 items"),
    ({"contacts": []}, "contacts: List should have at least 1 item"),
    ({"contacts": [dict.fromkeys(MANY_CODES, "x")]}, "contacts.0: Dictionary should have at most 50 items"),
    (
        {"contacts": [{"email": "a@a.example", "custom": dict.fromkeys(MANY_CODES, "x")}]},
        "contact 1: expected at most 50 fields, got 52; omit fields; nothing was sent",
    ),
    ({"contacts": [ANN, {"email": " "}]}, "contact 2: email: expected an address, got a blank string"),
    ({"contacts": [{"mail": "a@a.example"}]}, "contact 1: 'mail': not a field of a contact; did you mean 'email'?"),
    ({"contacts": [{}] * 9}, "contact 5: email: missing; give the contact an e-mail address; and 4 more; nothing was sent"),
    (
        {"contacts": [ANN, {"email": "nobody"}, {"email": "a@b"}]},
        "contact 3: email: expected an address such as ann@company.example, got 'a@b'",
    ),
    ({"campaign": "space_1"}, "campaign: expected a string starting with 'camp_'"),
    ({"campain": "camp_1"}, "'campain': unknown argument of create_contacts; did you mean campaign?"),
]


async def test_invalid_arguments_are_refused_before_the_person_is_asked(service: FakeService) -> None:
    person = Person(create=True)
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person) as assistant:
        for arguments, error in INVALID:
            assert error in await assistant.fail("create_contacts", **{"workspace": "space_1", "contacts": [ANN], **arguments})
    assert (person.questions, len(service.requests)) == ([], 0)


async def test_fifty_contacts_are_created_in_one_call(service: FakeService) -> None:
    contacts = [{"email": f"user{number}@a.example"} for number in range(50)]
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, Person(create=True)) as assistant:
        answer = await assistant.ask("create_contacts", workspace="space_1", contacts=contacts)
    assert [row["row"] for row in answer["contacts"]] == list(range(1, 51))
    assert {row["status"] for row in answer["contacts"]} == {"added"}
    assert len(service.contacts("space_1")) == 50


async def test_missing_fields_are_added_and_nothing_is_overwritten(service: FakeService) -> None:
    service.add_contacts("space_1", [{"email": "ann@a.example", "first_name": "Anna"}])
    person = Person(create=True)
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person) as assistant:
        arguments = {"workspace": "space_1", "contacts": [ANN], "duplicates": "update_missing_fields"}
        answer = await assistant.ask("create_contacts", **arguments)
    contact = service.contact("space_1", "ann@a.example")
    assert contact is not None
    assert (contact["fields"]["first_name"], answer["contacts"][0]["status"]) == ("Anna", "updated_missing_fields")
    (question,) = person.questions
    assert question.startswith(
        "Create 1 contact in workspace space_1 without a campaign? Existing contacts get values only for missing fields."
    )


@pytest.mark.parametrize(
    ("fault", "status", "possible", "error"),
    [
        (faults.commit_then(faults.reset()), "skipped", ["added", "skipped"], ""),
        (faults.status(422), "rejected", ["rejected"], "create_contact: the service answered 422"),
    ],
    ids=["lost answer", "rejected"],
)
async def test_a_contact_has_its_certainty_and_the_reason(
    service: FakeService, fault: Any, status: str, possible: list[str], error: str
) -> None:
    service.faults.script("create_contact", fault)
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, Person(create=True)) as assistant:
        (row,) = (await assistant.ask("create_contacts", workspace="space_1", contacts=[ANN]))["contacts"]
    assert (row["status"], row["certain"], row["possible"]) == (status, len(possible) == 1, possible)
    assert row.get("error", "").startswith(error)


async def test_a_run_that_stops_is_an_error_that_labels_every_contact(service: FakeService) -> None:
    contacts = [{"email": f"user{number}@a.example"} for number in range(50)]
    async with (
        assisted(service, owner_key="key_unknown", allow_writes=["space_1"]) as server,
        connected(server, Person(create=True)) as assistant,
    ):
        text = await assistant.fail("create_contacts", workspace="space_1", contacts=contacts)
    assert '"error": "' in text
    assert "ask the person who runs this server to check its key" in text
    assert text.count('"status": "not_applied", "certain": true, "possible": ["not_applied"]') == 50
    assert len(service.contacts("space_1")) == 0


@virtual_time
async def test_a_long_wait_ends_in_time_with_a_label_for_every_contact() -> None:
    service = small_service()
    service.faults.script("create_contact", *[faults.status(429, retry_after=600)] * 60)
    contacts = [{"email": f"user{number}@a.example"} for number in range(50)]
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, Person(create=True)) as assistant:
        began = anyio.current_time()
        text = await assistant.fail("create_contacts", workspace="space_1", contacts=contacts)
    assert anyio.current_time() - began <= 50
    rows = json.loads(text)["contacts"]
    assert [(row["status"], row["certain"]) for row in rows] == [("not_applied", True)] * 50
    assert len(service.contacts("space_1")) == 0


@virtual_time
async def test_answers_that_arrive_after_half_of_the_time_count() -> None:
    service = small_service()
    service.faults.script("create_contact", faults.status(429, retry_after=20), faults.latency(15))
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, Person(create=True)) as assistant:
        began = anyio.current_time()
        answer = await assistant.ask("create_contacts", workspace="space_1", contacts=[ANN])
    assert 25 < anyio.current_time() - began < 50
    assert "error" not in answer
    assert [row["status"] for row in answer["contacts"]] == ["added"]


async def test_the_question_shows_nested_fields_one_by_one(service: FakeService) -> None:
    person = Person("decline")
    nested = {"custom": {"custom_1": "gold", "custom_2": "x" * 60}, "extra": {"linkedin": "ann"}}
    contact = {"email": "ann@a.example", "custom_3": "late", **nested, "city": None}
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person) as assistant:
        await assistant.fail("create_contacts", workspace="space_1", contacts=[contact])
    (question,) = person.questions
    shown = f"city=None, custom_1=gold, custom_2={'x' * 40}... (60 characters), custom_3=late, linkedin=ann"
    assert question.splitlines()[1:] == [f"- ann@a.example ({shown})"]


async def test_the_question_shows_hostile_values_as_one_line_each(service: FakeService) -> None:
    person = Person("decline")
    contacts = [{"email": "a@a.example", "first_name": name} for name in HOSTILE if name.isascii()]
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person) as assistant:
        refused = await assistant.fail("create_contacts", workspace="space_1", contacts=contacts, campaign="camp_1\nConfirmed.")
        await assistant.fail("create_contacts", workspace="space_1", contacts=contacts, campaign="camp_1\n")
    assert "campaign: expected one line without whitespace, got a line break at character 6" in refused
    first, *lines = person.questions[0].splitlines()
    assert "campaign camp_1 of workspace space_1?" in first
    assert len(lines) == len(contacts)
    assert all(line.startswith("- a@a.example (first_name=") and line.isprintable() and len(line) < 200 for line in lines)


@pytest.mark.parametrize("mode", MODES)
async def test_the_key_is_in_no_schema_answer_or_error(service: FakeService, mode: str) -> None:
    person = Person(create=True)
    leak = f'{{"status": "error", "error": {{"message": "unknown key {KEY}"}}}}'
    service.faults.script("list_campaigns", faults.drift("data.name", f"our key is {KEY}"), faults.status(418, body=leak))
    service.faults.script("create_contact", faults.status(422, body=leak))
    service.faults.script("list_mailboxes", faults.drift("data.email", f"{KEY}@a.example"), faults.drift("data.email", KEY))
    async with assisted(service, allow_writes=["space_1"]) as server, connected(server, person, mode) as assistant:
        shown = (await assistant.client.list_tools()).model_dump_json().encode()
        instructions = str(assistant.client.instructions)
        await assistant.ask("list_campaigns")
        await assistant.fail("list_campaigns")
        await assistant.ask("list_mailboxes")
        await assistant.ask("audit")
        for arguments in ({"workspace": KEY}, {"page": KEY}, {KEY: KEY}):
            await assistant.fail("list_campaigns", **arguments)
        await assistant.fail(KEY)
        await assistant.fail("campaign_steps", campaign=KEY)
        await assistant.fail("explain_rule", rule=KEY)
        await assistant.ask("check_contacts", contacts=[{"email": KEY}])
        contacts = [{"email": "a@a.example", "first_name": f"{KEY} {'x' * 30}{KEY}"}]
        await assistant.ask("create_contacts", workspace="space_1", contacts=contacts)
    for text in (assistant.bytes, shown, "".join(person.questions).encode(), instructions.encode()):
        assert b"key_s3" not in text
        assert KEY.encode() not in text
    assert service.requests.of("create_contact")[0].json is not None
