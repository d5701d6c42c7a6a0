"""The command `mcp` in a separate process, called by the SDK's client, over a service in another process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp.client.stdio import StdioServerParameters
from support.assistants import HOSTILE, MODES, Person, command_for, connected
from support.cli import COMMAND, KEY, Shell, start_command

from outreach_async.mcp_server.answers import NOTICE

FAKE = ("--base-url", "fake:")
HELLO = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", '
    '"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}\n'
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Serve campaigns with hostile names in another process, and yield the address of the service."""
    world = tmp_path_factory.mktemp("world") / "world.json"
    campaigns = [{"id": f"camp_{number}", "name": name, "steps": ["A"]} for number, name in enumerate(HOSTILE)]
    spaces = [
        {"id": "space_1", "campaigns": campaigns, "mailboxes": [{"email": "ann@a.example", "spf": False}]},
        {"id": "space_2"},
    ]
    world.write_text(json.dumps({"workspaces": spaces, "owner_keys": {KEY: ["space_1", "space_2"]}}), encoding="utf-8")
    with start_command("serve", "--json", "--world", str(world)) as process:
        assert process.stdout is not None
        values = json.loads(process.stdout.readline())
        yield values["base_url"]
        process.terminate()


@pytest.mark.parametrize("mode", MODES)
async def test_an_assistant_reads_and_creates_over_stdio(served: str, mode: str) -> None:
    person = Person(create=True)
    command = command_for("--workspace", "space_1", "--allow-writes", "space_1", OUTREACH_BASE_URL=served, OUTREACH_OWNER_KEY=KEY)
    async with connected(command, person, mode) as assistant:
        tools = await assistant.client.list_tools()
        listed = await assistant.ask("list_campaigns")
        steps = await assistant.ask("campaign_steps", campaign="camp_0")
        audit = await assistant.ask("audit")
        fields = await assistant.ask("list_fields")
        checked = await assistant.ask("check_contacts", rows=[{"E-mail": "ann@a.example"}])
        report = json.loads(await assistant.read("outreach://audit/latest"))
        created = await assistant.ask("create_contacts", workspace="space_1", contacts=[{"email": f"{mode}@a.example"}])
        refused = await assistant.fail("create_contacts", workspace="space_2", contacts=[{"email": "a@a.example"}])
        gone = await assistant.fail("campaign_steps", campaign="camp_gone")
    assert len(tools.model_dump_json(by_alias=True, exclude_none=True).encode()) < 5000
    assert (len(listed["campaigns"]), steps["total"], fields["total"], checked["sendable"]) == (len(HOSTILE), 1, 36, 1)
    assert all(campaign["name"].isprintable() for campaign in listed["campaigns"])
    assert {answer["notice"] for answer in (listed, steps, audit, fields, checked, created)} == {NOTICE}
    assert "OA101" in {action["rule"] for action in audit["actions"]}
    assert report["report"]["mailboxes"] == 1
    assert created["contacts"][0]["status"] in {"added", "skipped"}  # the test on the other event loop may have created it
    assert created["contacts"][0]["certain"]
    assert "workspace: expected one of space_1, got another id" in refused
    assert "the service answered 404" in gone
    assert len(person.questions) == 1
    assert KEY.encode() not in assistant.bytes


async def test_the_embedded_service_needs_no_other_option() -> None:
    person = Person(create=True)
    async with connected(command_for(*FAKE, "--allow-writes", "space_demo"), person) as assistant:
        answer = await assistant.ask("list_mailboxes", page=2)
        created = await assistant.ask("create_contacts", workspace="space_demo", contacts=[{"email": "new@a.example"}])
    assert (answer["workspace"], answer["page"], len(answer["mailboxes"])) == ("space_demo", 2, 20)
    assert created["contacts"][0]["status"] == "added"


async def test_a_service_that_is_down_is_a_tool_error(tmp_path: Path) -> None:
    del tmp_path
    command = command_for("--base-url", "http://127.0.0.1:1", "--workspace", "space_1", "--deadline", "0.5")
    async with connected(command) as assistant:
        assert "call the tool again later" in await assistant.fail("list_campaigns")
        answer = await assistant.ask("audit")
    assert answer["unreadable"] == ["space_1"]


async def test_the_brief_compares_with_the_last_brief_of_the_command(served: str, tmp_path: Path) -> None:
    path = tmp_path / "last.json"
    options = ("--base-url", served, "--workspace", "space_1", "--since", str(path))
    async with connected(command_for(*options)) as assistant:
        first = await assistant.ask("brief")
        done = await anyio.run_process([*COMMAND, "brief", *options], check=False)
        written = path.read_bytes()
        second = await assistant.ask("brief")
    assert done.returncode == 1, done.stderr
    assert "There is no earlier brief" in first["summary"]
    assert "0 new findings, 0 resolved" in second["summary"]
    assert len(first["campaigns"]) == len(HOSTILE)
    assert path.read_bytes() == written


def test_a_wrong_file_of_the_last_brief_is_an_error_at_the_start(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "last.json"
    path.write_text("[]", encoding="utf-8")
    done = shell("mcp", *FAKE, "--since", str(path))
    assert (done.code, done.out) == (2, "")
    assert f"--since {path}: " in done.err


def ended(text: str, *arguments: str) -> Any:
    """Run the command with `text` as its whole input."""
    process = start_command("mcp", *FAKE, *arguments, stdin=subprocess.PIPE)
    out, err = process.communicate(text, timeout=60)
    return process.returncode, out, err


def test_a_closed_stdin_ends_the_server() -> None:
    assert ended("") == (0, "", "")
    code, out, err = ended(HELLO)
    assert (code, err) == (0, "")
    (line,) = out.splitlines()
    assert json.loads(line)["result"]["serverInfo"]["name"] == "outreach-async"


def test_an_input_that_is_not_the_protocol_ends_nothing() -> None:
    code, out, err = ended(f"hello\n[]\n{HELLO}")
    assert code == 0
    assert [json.loads(line)["id"] for line in out.splitlines() if "result" in line] == [1]
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("number", "code", "err"), [(signal.SIGINT, 130, "outreach-async: interrupted\n"), (signal.SIGTERM, 0, "")]
)
def test_a_signal_ends_the_server_at_once(number: int, code: int, err: str) -> None:
    process = start_command("mcp", *FAKE, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(HELLO)
    process.stdin.flush()
    assert process.stdout.readline().startswith("{")
    process.send_signal(number)  # stdin stays open
    assert process.wait(timeout=60) == code
    assert process.communicate() == ("", err)


def test_a_client_that_is_gone_ends_the_server() -> None:
    process = start_command("mcp", *FAKE, stdin=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(HELLO)
    process.stdin.flush()
    process.stdout.readline()
    process.stdout.close()
    process.stdin.write('{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n')
    process.stdin.flush()
    assert process.wait(timeout=60) == 0
    process.stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


def test_stdout_carries_only_the_protocol_and_logs_go_to_stderr() -> None:
    call = '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_fields", "arguments": {}}}\n'
    ready = '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    process = start_command("mcp", *FAKE, stdin=subprocess.PIPE, env={"OUTREACH_LOG": "debug"})
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(HELLO + ready + call)
    process.stdin.flush()
    lines = [process.stdout.readline() for _ in range(2)]
    out, err = process.communicate(timeout=60)
    assert [json.loads(line)["id"] for line in lines] == [1, 2]
    assert out == ""
    assert "list_fields" in err


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("--base-url", "http://127.0.0.1:1"), "--workspace: missing"),
        (("--workspace", "space_1"), "--base-url: missing"),
        (("--base-url", "http://127.0.0.1:1", "--allow-writes", "space_1"), "--owner-key: "),
        ((*FAKE, "--allow-writes", "camp_1"), "--allow-writes: expected a string starting with 'space_'"),
        ((*FAKE, "--deadline", "0"), "--deadline: expected more than 0 seconds"),
        ((*FAKE, "--json"), "No such option"),
        ((*FAKE, "--timeout", "0"), "--timeout: expected more than 0 seconds"),
        ((*FAKE, "--rate", "0"), "--rate: expected a finite number"),
        ((*FAKE, "--header", "x"), "--header: expected 'Name: value'"),
        ((*FAKE, "--owner-key", "space_1"), "--owner-key: expected a string starting with 'key_'"),
    ],
)
def test_wrong_usage_is_an_error_that_names_the_option(shell: Shell, arguments: tuple[str, ...], error: str) -> None:
    done = shell("mcp", *arguments)
    assert (done.code, done.out) == (2, "")
    assert error in done.err


def test_without_the_extra_the_command_names_it() -> None:
    code = f"import sys; sys.modules['mcp'] = None; from outreach_async.cli.app import run; sys.exit(run({['mcp', *FAKE]}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "outreach-async: mcp is not installed; run: pip install 'outreach_async[mcp]'\n"


def configurations() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the assistant configurations in the README and in the guide."""
    from outreach_async import mcp_server

    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    for text in (readme, str(mcp_server.__doc__)):
        (found,) = re.findall(r'\{\s*"mcpServers".*?\}\s*\}\s*\}\s*\}', text, re.DOTALL)
        yield text, json.loads(found)


@pytest.mark.parametrize("place", [0, 1], ids=["readme", "guide"])
async def test_the_configuration_that_is_shown_works(served: str, place: int) -> None:
    _, configuration = list(configurations())[place]
    ((name, server),) = configuration["mcpServers"].items()
    assert (name, server["command"]) == ("outreach", "outreach-async")
    assert server["env"].keys() == {"OUTREACH_BASE_URL"}
    env = command_for(OUTREACH_BASE_URL=served).env
    program, *rest = COMMAND
    async with connected(StdioServerParameters(command=program, args=[*rest, *server["args"]], env=env)) as assistant:
        assert (await assistant.ask("list_campaigns"))["total"] == len(HOSTILE)
