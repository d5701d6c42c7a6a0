"""The control plane on a port and mounted in another application: its examples, its documents, and the output of `serve`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.routing import Mount
from support.cli import serve_in_thread, start_command, wait_for_end
from support.control import PlaneClient
from support.examples import scaled
from support.fake import KEY, SPACE, START, creation, small_world
from support.openapi import DOCUMENT

from outreach_async.fake import Behaviour, FakeService, control
from outreach_async.fake.control import ControlPlane, is_loopback
from outreach_async.fake.control._control_plane import OPERATIONS


@pytest.fixture
def url() -> Iterator[str]:
    with serve_in_thread(ControlPlane(small_world())) as url:
        yield url


# The examples.

EXAMPLES = re.findall(r"^    \$ (curl .*)\n    (.*)$", str(control.__doc__), re.MULTILINE)


@pytest.mark.skipif(not shutil.which("curl"), reason="the examples are commands of curl")
def test_the_examples_have_the_documented_responses() -> None:
    assert len(EXAMPLES) == str(control.__doc__).count("$ curl") > 10
    with serve_in_thread(ControlPlane(FakeService())) as url:
        script = "\n".join(f"{command} --silent --show-error; echo" for command, _ in EXAMPLES)
        environment = {"FAKE": f"{url}/_fake", "PATH": os.defpath}
        done = subprocess.run(["/bin/sh", "-c", script], env=environment, capture_output=True, text=True, check=True)
    answers = done.stdout.replace(f"{url}/_fake", "$FAKE")
    documented = "".join(f"{answer}\n" for _, answer in EXAMPLES)
    assert re.sub("[0-9a-f]{16}", "ID", answers) == re.sub("[0-9a-f]{16}", "ID", documented)
    assert done.stderr == ""


# On a port.


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


@pytest.mark.thorough
async def test_a_large_world_can_be_imported(url: str) -> None:
    big = FakeService()
    big.add_workspace("space_big")
    big.add_contacts("space_big", 5_000)
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.put("/_fake/world", content=big.dump())).status_code == 200
        assert (await client.get("/_fake/world")).text == big.dump()


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


# Mounted.


@pytest.mark.parametrize(("prefix", "wanted"), [("", "https://localhost"), ("/deep/er é", "https://localhost/deep/er%20%C3%A9")])
async def test_a_mounted_fake_has_its_control_plane_under_its_prefix(prefix: str, wanted: str) -> None:
    app = Starlette(routes=[Mount(prefix, app=ControlPlane(small_world()).asgi())])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="https://localhost") as client:
        assert (await client.get(f"{prefix}/_fake/openapi.json")).json() == {**DOCUMENT, "servers": [{"url": wanted}]}
        sandbox = (await client.post(f"{prefix}/_fake/sandboxes")).json()["url"]
        assert sandbox.startswith(f"{wanted}/_fake/sandboxes/")
        assert (await client.get(f"{sandbox}/workspaces/{SPACE}/all-fields")).status_code == 200
        assert (await client.get(f"{prefix}/workspaces/{SPACE}/all-fields")).status_code == 200


async def test_a_mounted_fake_has_it_only_if_asked() -> None:
    transport = httpx.ASGITransport(app=small_world().asgi())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/_fake/time")).status_code == 404


# The documents.


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70_000) | st.floats(allow_nan=False) | st.text(max_size=5) | st.just(SPACE),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


PLANE = PlaneClient(small_world())


@settings(max_examples=scaled(100))
@given(st.sampled_from([(method, path) for path, methods in OPERATIONS.items() for method in methods]), JSON)
def test_any_json_is_carried_out_or_refused_with_an_error(operation: tuple[str, str], body: Any) -> None:
    response = PLANE.send(operation[0], f"/_fake{operation[1]}", json.dumps(body).encode())
    answer = json.loads(response.body)
    assert response.status < 300 or set(answer["error"]) == {"message", "field", "remedy"}
    PLANE("POST", "/reset")


# The command.


def serving(*arguments: str) -> Any:
    """Run `serve`, request its world and behaviour, and end it. `None` stands for a missing response."""
    with start_command("serve", "--json", *arguments) as process:
        assert process.stdout is not None
        base = json.loads(process.stdout.readline())["base_url"]
        port = base.rpartition(":")[2]
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/_fake") as client:
            answers = [client.get(path) for path in ("/behaviour", "/world")]
        process.send_signal(signal.SIGTERM)
        assert wait_for_end(process).err == ""
    return [answer.json() if answer.status_code == 200 else None for answer in answers]


@pytest.mark.thorough
def test_serve_accepts_a_seed_and_a_behaviour_from_a_preset_or_a_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        world, behaviour = Path(folder, "world.json"), Path(folder, "behaviour.toml")
        world.write_text('{"workspaces": [{}]}', encoding="utf-8")
        behaviour.write_text('past_end = "clamp"\n', encoding="utf-8")
        (knobs, dump) = serving("--world", str(world), "--seed", "3", "--behaviour", str(behaviour))
    assert knobs["past_end"] == "clamp"
    assert [space["id"] for space in dump["workspaces"]] == [FakeService(3).add_workspace()]


@pytest.mark.thorough
@pytest.mark.parametrize(("hosts", "expected_plane"), [((), False), (("--control-host", "fake"), True)])
def test_beyond_loopback_the_control_plane_must_be_requested(hosts: tuple[str, ...], expected_plane: bool) -> None:
    (knobs, _) = serving("--host", "0.0.0.0", "--behaviour", "strict", *hosts)  # noqa: S104 - the address is what is tested
    assert (knobs is not None) == expected_plane
    if expected_plane:
        assert knobs["past_end"] == Behaviour.strict().past_end


HOSTS = ["127.0.0.1", "127.9.9.9", "::1", "localhost", "0.0.0.0", "::", "10.0.0.1", "a", "localhost.a"]  # noqa: S104 - not bound


@pytest.mark.parametrize("host", HOSTS)
def test_loopback_is_what_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host) == (host in {"127.0.0.1", "127.9.9.9", "::1", "localhost"})
