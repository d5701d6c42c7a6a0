"""The control plane on a port: its examples, its documents, and the output of `serve`."""

from __future__ import annotations

import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import openapi_spec_validator
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.cli import serve_in_process, serve_in_thread, wait_for_end
from support.control import PlaneClient
from support.examples import scaled
from support.fake import KEY, SPACE, START, creation, small_world

from outreach_async._cli.demo_data import create_demo_world
from outreach_async.fake import Behaviour, FakeService, control
from outreach_async.fake.control import ControlPlane, is_loopback
from outreach_async.fake.control._control_plane import FAULT_FACTORIES, OPERATIONS, UNCHANGED


@pytest.fixture
def url() -> Iterator[str]:
    with serve_in_thread(ControlPlane(small_world())) as url:
        yield url


EXAMPLES = re.findall(r"^    \$ (curl .*)\n    (.*)$", str(control.__doc__), re.MULTILINE)


@pytest.mark.covers
@pytest.mark.thorough
@pytest.mark.skipif(not shutil.which("curl"), reason="the examples are commands of curl")
def test_the_examples_have_the_documented_responses() -> None:
    assert len(EXAMPLES) == str(control.__doc__).count("$ curl") > 10
    with serve_in_thread(ControlPlane(create_demo_world())) as url:  # as `serve` does
        script = "\n".join(f"{command} --silent --show-error; echo" for command, _ in EXAMPLES)
        environment = {"OUTREACH_BASE_URL": url, "PATH": os.defpath}
        done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    answers = done.stdout.replace(url, "$OUTREACH_BASE_URL")
    documented = "".join(f"{answer}\n" for _, answer in EXAMPLES)
    assert re.sub("[0-9a-f]{16}", "ID", answers) == re.sub("[0-9a-f]{16}", "ID", documented)
    assert done.stderr == ""


async def test_injected_faults_do_not_affect_the_control_plane(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        await client.post("/_fake/faults", json={"fault": {"name": "reset"}})
        with pytest.raises(httpx.ReadError):
            await client.get("/campaigns")
        assert (await client.get("/_fake/requests")).json()["total"] == 1
        await client.delete("/_fake/faults")
        assert (await client.post("/contacts", json=creation())).status_code == 201
        space, _ = (await client.get("/_fake/world")).json()["workspaces"]
        assert [contact["owner"] for contact in space["contacts"] if contact["email"] == "ada@acme.example"] == [KEY]


async def test_head_gets_the_length_of_the_body_that_get_has(url: str) -> None:
    def lines(answer: httpx.Response) -> dict[str, str]:
        return {**answer.headers, "x-request-id": ""}

    async with httpx.AsyncClient(base_url=url) as client:
        for target in ("/_fake", "/_fake/time", "/_fake/openapi.json", f"/campaigns?workspace={SPACE}&page=1&display=1"):
            read, probed = await client.get(target), await client.head(target)
            assert (probed.status_code, probed.content, lines(probed)) == (200, b"", lines(read))
        assert (await client.get((await client.get("/_fake")).json()["openapi"])).json()["openapi"].startswith("3.1.")


@pytest.mark.nightly
async def test_200_sandboxes_in_parallel_do_not_meet(url: str) -> None:
    limiter = anyio.CapacityLimiter(8)  # httpx is slow if many requests wait for a connection

    async def send(method: str, target: str, json: Any = None) -> Any:
        async with limiter:
            return (await http.request(method, target, json=json)).json()

    async def run(number: int) -> None:
        made = (await send("POST", "/_fake/sandboxes"))["url"]
        faults = [{"name": "status", "code": 400, "body": f'{{"status": {number}}}'}]
        await send("POST", f"{made}/_fake/faults/script", {"operation": "create_contact", "faults": faults})
        await send("POST", f"{made}/_fake/time/advance", {"hours": number})
        body = creation(f"ada{number}@acme.example")
        statuses = [(await send("POST", f"{made}/contacts", body))["status"] for _ in range(3)]
        assert statuses == [number, "added", "skipped"]
        space, _ = (await send("GET", f"{made}/_fake/world"))["workspaces"]
        assert [contact["email"] for contact in space["contacts"][3:]] == [body["email"]]
        assert (await send("GET", f"{made}/_fake/time"))["unix"] == START + 3600 * number
        await (send("POST", f"{made}/_fake/reset") if number % 2 else send("DELETE", made))

    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        async with anyio.create_task_group() as group:
            for number in range(200):
                group.start_soon(run, number)
        assert (await http.get("/_fake/requests")).json()["total"] == 0


PLANE = PlaneClient(small_world())
DESCRIBED = PLANE("GET", "/openapi.json")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70_000) | st.just(0.5) | st.sampled_from(["list_steps", SPACE, "strict", "x"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["city", "x"]), inner, max_size=2),
    max_leaves=4,
)
FAULTS = st.fixed_dictionaries(
    {"name": st.sampled_from(sorted(FAULT_FACTORIES))},
    optional=dict.fromkeys(("code", "body", "retry_after", "seconds", "after_bytes", "path", "change", "fault"), VALUES),
)
BODIES: dict[str, dict[str, Any]] = {
    "/world": {"workspaces": [{"id": SPACE}]},
    "/faults": {"fault": {"name": "hang"}, "operation": "list_steps", "containing": "x", "times": 1, "p": 0.5},
    "/faults/script": {"operation": "list_steps", "faults": [{"name": "ok"}, {"name": "status", "code": 503}]},
    "/behaviour": {"past_end": "error"},
    "/time/advance": {"days": 1, "hours": 0.5},
    "/sandboxes": {"seed": 1, "world": {}, "behaviour": {"preset": "strict"}, "expires_after": 60},
}
MEMBERS = sorted({name for body in BODIES.values() for name in body})


def conforms(value: Any, content: dict[str, Any]) -> bool:
    schema = content["content"]["application/json"]["schema"]
    return bool(Draft202012Validator({"components": DESCRIBED["components"], **schema}).is_valid(value))


@pytest.mark.covers
@pytest.mark.thorough
def test_the_document_of_service_and_control_plane_is_valid_and_has_a_version() -> None:
    assert DESCRIBED["openapi"].startswith("3.1.")
    openapi_spec_validator.validate(DESCRIBED)
    assert re.fullmatch(r"\d+\.\d+\.\d+", DESCRIBED["info"]["version"])
    inside = PLANE.sandbox()("GET", "/openapi.json")
    assert set(DESCRIBED["paths"]) - set(inside["paths"]) == {"/_fake/sandboxes", "/_fake/sandboxes/{id}"}


def test_the_document_has_every_operation_fault_and_argument() -> None:
    described = {path for path in DESCRIBED["paths"] if path.startswith("/_fake")}
    assert described == {f"/_fake{path}" for path in OPERATIONS}
    for path, methods in OPERATIONS.items():
        assert {method.lower() for method in methods} == DESCRIBED["paths"][f"/_fake{path}"].keys()
    schemas = [
        DESCRIBED["components"]["schemas"][ref["$ref"].rpartition("/")[2]]
        for ref in DESCRIBED["components"]["schemas"]["Fault"]["anyOf"]
    ]
    arguments = {
        name: schema["properties"].keys() - {"name"} for schema in schemas for name in schema["properties"]["name"]["enum"]
    }
    assert arguments == {name: inspect.signature(factory).parameters.keys() for name, factory in FAULT_FACTORIES.items()}


@settings(max_examples=scaled(200))
@given(
    st.sampled_from([(method, path) for path, methods in OPERATIONS.items() for method in methods if "{" not in path]),
    st.sets(st.sampled_from(MEMBERS), max_size=1),
    st.dictionaries(st.sampled_from([*MEMBERS, "x"]), VALUES | FAULTS | st.lists(FAULTS, max_size=2), max_size=2),
)
def test_the_control_plane_does_what_its_document_says(operation: tuple[str, str], left_out: set[str], other: Any) -> None:
    method, path = operation
    documented = DESCRIBED["paths"][f"/_fake{path}"][method.lower()]
    body = {name: value for name, value in (BODIES.get(path, {}) | other).items() if name not in left_out}
    response = PLANE.send(method, f"/_fake{path}", json.dumps(body).encode())
    answer, succeeded = json.loads(response.body), response.status < 300
    refused = DESCRIBED["components"]["responses"]["Refused"]
    assert conforms(answer, documented["responses"][str(response.status)] if succeeded else refused)
    if "requestBody" in documented:
        assert conforms(body, documented["requestBody"]) or response.status == 400
        well_formed = path not in {"/world", "/behaviour"} and conforms(body, documented["requestBody"])
        assert succeeded or not well_formed or answer["error"]["remedy"] == UNCHANGED or body.get("behaviour"), answer
    elif method != "GET":
        assert succeeded == (not body)
    PLANE("POST", "/reset")


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[httpx.Client, subprocess.Popen[str]]]:
    with serve_in_process(*arguments) as (process, values):
        port = values["base_url"].rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as client:
            yield client, process


@pytest.mark.thorough
def test_serve_accepts_a_seed_and_a_behaviour_from_a_preset_or_a_file(tmp_path: Path) -> None:
    world, behaviour = tmp_path / "world.json", tmp_path / "behaviour.toml"
    world.write_text('{"workspaces": [{}]}', encoding="utf-8")
    behaviour.write_text('past_end = "clamp"\n', encoding="utf-8")
    with serving("--world", str(world), "--seed", "3", "--behaviour", str(behaviour)) as (client, _):
        assert client.get("/_fake/behaviour").json()["past_end"] == "clamp"
        spaces = client.get("/_fake/world").json()["workspaces"]
    assert [space["id"] for space in spaces] == [FakeService(3).add_workspace()]


@pytest.mark.thorough
@pytest.mark.covers
def test_beyond_loopback_the_control_plane_is_requested_as_the_warning_says() -> None:
    beyond = ("--host", "0.0.0.0", "--behaviour", "strict")  # noqa: S104 - the address is what is tested
    with serving(*beyond) as (client, process):
        assert client.get("/_fake/behaviour").status_code == 404
        assert process.stderr is not None
        warning = process.stderr.readline()
    assert "the control plane under /_fake is off" in warning
    (remedy,) = re.findall(r"--control-host \w+", warning)
    with serving(*beyond, *remedy.split()) as (client, process):
        assert client.get("/_fake/behaviour").json()["past_end"] == Behaviour.strict().past_end
    assert wait_for_end(process).err == ""


@pytest.mark.thorough
def test_sigterm_ends_serve_at_once_whatever_its_connections_do() -> None:
    head = f"GET /workspaces/space_demo/all-fields?owner_key={KEY}s3cret HTTP/1.1\r\nhost: a\r\n".encode()
    with serving("--verbose") as (client, process), ExitStack() as stack:

        def connect(sent: bytes) -> socket.socket:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", client.base_url.port or 80), timeout=60))
            connection.sendall(sent)
            return connection

        assert connect(head + b"\r\n").recv(1024).startswith(b"HTTP/1.1 200 ")  # and stays open
        faults = [{"name": "hang"}, {"name": "latency", "seconds": 60}]
        client.post("/_fake/faults/script", json={"operation": "list_fields", "faults": faults}).raise_for_status()
        for unfinished in (b"", head, head + b"content-length: 9\r\n\r\n{", head + b"\r\n", head + b"\r\n"):
            connect(unfinished)
        while client.get("/_fake/requests").json()["total"] < 3:
            pass
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        ended = wait_for_end(process)
        # Ending takes 0.2 s on an idle machine, and waiting for a connection would take a minute or more.
        assert (ended.code, time.monotonic() - began < 20) == (0, True)
    lines = [re.sub(r"\d+\.\d ms", "N ms", line) for line in ended.err.splitlines() if "/_fake" not in line]
    request = "GET /workspaces/space_demo/all-fields?owner_key=***"
    assert sorted(lines) == [
        f"{request} 200 N ms",
        f"{request} 200 N ms, fault latency(60)",
        f"{request} no response N ms, fault hang()",
    ]


HOSTS = ["127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1", "a", "localhost.a"]  # noqa: S104 - not bound


@pytest.mark.parametrize("host", HOSTS)
def test_loopback_is_what_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host) == (host in {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
