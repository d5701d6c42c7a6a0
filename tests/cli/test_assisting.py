"""The command `mcp`, mostly in a separate process that the SDK's client calls, over a service on a real port."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from mcp.client.stdio import StdioServerParameters
from support.assistants import HOSTILE, MODES, Person, command_for, connected
from support.cli import COMMAND, KEY, Ended, Shell, serve_in_thread, start_command
from support.transports import LOOPS

from outreach_async import mcp_server
from outreach_async.fake import FakeService

FAKE = ("--base-url", "fake:")
HELLO = (
    '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-06-18", '
    '"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}}\n'
)


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Run the client on asyncio only: the tested command is another process, which chooses its own event loop."""
    return LOOPS["asyncio"]


@pytest.fixture(scope="module")
def served() -> Iterator[str]:
    """Serve campaigns with hostile names, and yield the address of the service. Tests may add contacts, which no test lists."""
    service = FakeService()
    for workspace in ("space_1", "space_2"):
        service.add_workspace(workspace)
        service.add_owner_key(workspace, key=KEY)
    for number, name in enumerate(HOSTILE):
        service.add_campaign("space_1", id=f"camp_{number}", name=name, steps=["A"])
    service.add_mailbox("space_1", email="ann@a.example", spf=False)
    with serve_in_thread(service) as url:
        yield url


@pytest.mark.nightly
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
        checked = await assistant.ask("check_contacts", contacts=[{"E-mail": "ann@a.example"}])
        created = await assistant.ask("create_contacts", workspace="space_1", contacts=[{"email": f"{mode}@a.example"}])
        refused = await assistant.fail("create_contacts", workspace="space_2", contacts=[{"email": "a@a.example"}])
        gone = await assistant.fail("campaign_steps", campaign="camp_gone")
    assert len(tools.model_dump_json(by_alias=True, exclude_none=True).encode()) < 5000
    assert (len(listed["campaigns"]), steps["total"], fields["total"], checked["sendable"]) == (len(HOSTILE), 1, 36, 1)
    assert all(campaign["name"].isprintable() for campaign in listed["campaigns"])
    (notice,) = {answer["notice"] for answer in (listed, steps, audit, fields, checked, created)}
    assert notice.startswith("This data comes from the outreach service")
    assert "OA101" in {task["rule"] for task in audit["tasks"]}
    assert (created["contacts"][0]["status"], created["contacts"][0]["certain"]) == ("added", True)
    assert "workspace: expected one of space_1, got another id" in refused
    assert "the service answered 404" in gone
    assert len(person.questions) == 1
    assert KEY.encode() not in assistant.bytes


@pytest.mark.thorough
async def test_the_embedded_service_needs_no_other_option() -> None:
    person = Person(create=True)
    async with connected(command_for(*FAKE, "--allow-writes", "space_demo"), person) as assistant:
        answer = await assistant.ask("list_mailboxes", page=2)
        created = await assistant.ask("create_contacts", workspace="space_demo", contacts=[{"email": "new@a.example"}])
    assert (answer["workspace"], answer["page"], len(answer["mailboxes"])) == ("space_demo", 2, 20)
    assert created["contacts"][0]["status"] == "added"


@pytest.mark.thorough
async def test_a_service_that_is_down_is_a_tool_error() -> None:
    command = command_for("--base-url", "http://127.0.0.1:1", "--workspace", "space_1", "--deadline", "0.5")
    async with connected(command) as assistant:
        assert "call the tool again later" in await assistant.fail("list_campaigns")
        answer = await assistant.ask("audit")
    assert answer["unreadable"] == ["space_1"]


@pytest.fixture
def last_brief(shell: Shell, served: str, tmp_path: Path) -> bytes:
    path = tmp_path / "written.db"
    done = shell("brief", "--base-url", served, "--workspace", "space_1", "--history", str(path))
    assert done.code == 1, done.err
    return path.read_bytes()


@pytest.mark.thorough
async def test_the_brief_compares_with_the_last_brief_of_the_command(served: str, tmp_path: Path, last_brief: bytes) -> None:
    path = tmp_path / "history.db"
    async with connected(command_for("--base-url", served, "--workspace", "space_1", "--history", str(path))) as assistant:
        first = await assistant.ask("brief")
        path.write_bytes(last_brief)
        second = await assistant.ask("brief")
        days = await assistant.ask("history")
    assert "There is no earlier brief" in first["summary"]
    assert "0 new, 0 resolved" in second["summary"]
    assert len(first["campaigns"]) == len(HOSTILE)
    assert [day["id"] for day in days["days"]] == ["space_1"]
    assert path.read_bytes() == last_brief


def test_a_wrong_history_is_an_error_at_the_start(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_text("[]", encoding="utf-8")
    assert f"--history: {path} is not a history; " in shell.refused("mcp", *FAKE, "--history", str(path))


def test_an_empty_stdin_ends_the_server(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    assert shell.piped("", "mcp", *FAKE) == Ended(0, "", "")
    assert caplog.text == ""


def test_an_input_that_is_not_the_protocol_ends_nothing(shell: Shell, caplog: pytest.LogCaptureFixture) -> None:
    done = shell.piped(f"hello\n[]\n{HELLO}", "mcp", *FAKE)
    assert done.code == 0
    assert [json.loads(line)["id"] for line in done.out.splitlines() if "result" in line] == [1]
    assert "Traceback" not in done.err + caplog.text


def started(*lines: str, answers: int, **environment: str) -> tuple[subprocess.Popen[str], IO[str], IO[str], list[str]]:
    """Start the server, send it lines, and return the process, its stdin, its stdout and the first answers."""
    process = start_command("mcp", *FAKE, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(lines))
    process.stdin.flush()
    return process, process.stdin, process.stdout, [process.stdout.readline() for _ in range(answers)]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("number", "code", "err"), [(signal.SIGINT, 130, "outreach-async: interrupted\n"), (signal.SIGTERM, 0, "")]
)
def test_a_signal_ends_the_server_at_once(number: int, code: int, err: str) -> None:
    process, _, _, _ = started(HELLO, answers=1)
    process.send_signal(number)  # stdin stays open
    assert process.wait(timeout=60) == code
    assert process.communicate() == ("", err)


@pytest.mark.thorough
@pytest.mark.covers
def test_a_client_that_is_gone_ends_the_server() -> None:
    process, stdin, stdout, _ = started(HELLO, answers=1)
    stdout.close()
    stdin.write('{"jsonrpc": "2.0", "id": 2, "method": "ping"}\n')
    stdin.flush()
    assert process.wait(timeout=60) == 0
    stdin.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.thorough
def test_stdout_carries_only_the_protocol_and_logs_go_to_stderr() -> None:
    call = '{"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "list_fields", "arguments": {}}}\n'
    ready = '{"jsonrpc": "2.0", "method": "notifications/initialized"}\n'
    process, _, _, lines = started(HELLO, ready, call, answers=2, OUTREACH_LOG="debug")
    out, err = process.communicate(timeout=60)
    assert [json.loads(line)["id"] for line in lines] == [1, 2]
    assert out == ""
    assert "list_fields" in err


@pytest.mark.thorough
def test_without_the_extra_the_command_names_it() -> None:
    code = f"import sys; sys.modules['mcp'] = None; from outreach_async._cli.app import run; sys.exit(run({['mcp', *FAKE]}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "outreach-async: mcp is not installed; run: pip install 'outreach_async[mcp]'\n"


def test_writable_workspaces_of_an_assistant_share_one_key(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, served: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OUTREACH_CONFIG", "outreach.toml")
    names = 'a = { id = "space_1" }\nb = { id = "space_2", owner_key = { env = "KEY_B" } }'
    Path("outreach.toml").write_text(f'base_url = "{served}"\n[workspaces]\n{names}', encoding="utf-8")
    Path("outreach.toml").chmod(0o600)
    err = shell.refused("mcp", "--allow-writes", "a", "--allow-writes", "b")
    assert "--allow-writes: expected workspaces with the same owner key, got 2 keys; run a server for each key." in err
    assert "--owner-key: expected " in shell.refused("mcp", "--allow-writes", "a")
    assert "--owner-key: the environment variable KEY_B is not set" in shell("mcp", "--allow-writes", "b").err
    assert "--allow-writes: expected a name, an id or a group" in shell("mcp", "--allow-writes", "c").err


@pytest.mark.thorough
async def test_the_configuration_that_is_shown_works(served: str) -> None:
    (shown,) = re.findall(r'\{\s*"mcpServers".*?\}\s*\}\s*\}\s*\}', str(mcp_server.__doc__), re.DOTALL)
    ((name, server),) = json.loads(shown)["mcpServers"].items()
    assert (name, server["command"]) == ("outreach", "outreach-async")
    assert server["env"].keys() == {"OUTREACH_BASE_URL"}
    env = command_for(OUTREACH_BASE_URL=served).env
    program, *rest = COMMAND
    async with connected(StdioServerParameters(command=program, args=[*rest, *server["args"]], env=env)) as assistant:
        assert (await assistant.ask("list_campaigns"))["total"] == len(HOSTILE)
