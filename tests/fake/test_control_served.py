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

import httpx
import openapi_spec_validator
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from starlette.applications import Starlette
from starlette.routing import Mount
from support.cli import serve_in_thread, start_command, wait_for_end
from support.control import PlaneClient
from support.examples import scaled
from support.fake import KEY, SPACE, creation, small_world
from support.openapi import DOCUMENT

from outreach_async.fake import Behaviour, FakeService, control
from outreach_async.fake.control import ControlPlane, is_loopback
from outreach_async.fake.control._operations import OPERATIONS
from outreach_async.fake.control._schemas import FAULT_FACTORIES


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
    answered = done.stdout.replace(f"{url}/_fake", "$FAKE").splitlines()
    assert answered == [answer for _, answer in EXAMPLES]
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


async def test_a_rebound_dns_name_is_refused(url: str) -> None:
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/_fake/world", headers={"host": "evil.example"})).status_code == 403
        assert (await client.post("/_fake/reset", headers={"origin": "https://evil.example"})).status_code == 403


@pytest.mark.thorough
async def test_a_large_world_can_be_imported(url: str) -> None:
    big = FakeService()
    big.add_workspace("space_big")
    big.add_contacts("space_big", 5_000)
    async with httpx.AsyncClient(base_url=url) as client:
        assert (await client.put("/_fake/world", content=big.dump())).status_code == 200
        assert (await client.get("/_fake/world")).text == big.dump()


# Mounted.


@pytest.mark.parametrize(("prefix", "wanted"), [("", "https://localhost"), ("/deep/er é", "https://localhost/deep/er%20%C3%A9")])
async def test_a_mounted_fake_has_its_control_plane_under_its_prefix(prefix: str, wanted: str) -> None:
    app = Starlette(routes=[Mount(prefix, app=ControlPlane(small_world()).asgi())])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="https://localhost") as client:
        assert (await client.get(f"{prefix}/_fake/openapi.json")).json()["servers"] == [{"url": wanted}]
        assert (await client.get(f"{prefix}/_fake/control.json")).json()["servers"] == [{"url": f"{wanted}/_fake"}]
        assert (await client.get(f"{prefix}/workspaces/{SPACE}/all-fields")).status_code == 200


async def test_a_mounted_fake_has_it_only_if_asked() -> None:
    transport = httpx.ASGITransport(app=small_world().asgi())
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert (await client.get("/_fake/time")).status_code == 404


# The documents.


@pytest.mark.thorough
async def test_the_openapi_document_of_the_service_has_its_own_address(url: str) -> None:
    async with httpx.AsyncClient() as client:
        document = (await client.get(f"{url}/_fake/openapi.json")).json()
    assert document == {**DOCUMENT, "servers": [{"url": url}]}
    openapi_spec_validator.validate(document)


CONTROL: dict[str, Any] = PlaneClient()("GET", "/control.json")


@pytest.mark.thorough
def test_the_control_plane_is_documented_completely() -> None:
    openapi_spec_validator.validate(CONTROL)
    assert CONTROL["servers"] == [{"url": "http://127.0.0.1:80/_fake"}]
    body = {(method.upper(), path) for path, methods in CONTROL["paths"].items() for method in methods}
    assert body == {(route.method, route.path) for route in OPERATIONS}
    names = [body["operationId"] for methods in CONTROL["paths"].values() for body in methods.values()]
    assert len(set(names)) == len(names)
    forms = [schema for name, schema in CONTROL["components"]["schemas"].items() if name.endswith("Fault")]
    assert {schema["properties"]["name"]["enum"][0] for schema in forms} == {"ok", *FAULT_FACTORIES}


@pytest.mark.parametrize("route", OPERATIONS, ids=lambda route: f"{route.method} {route.path}")
def test_every_description_is_present(route: Any) -> None:
    assert CONTROL["paths"][route.path][route.method.lower()]["summary"].endswith(".")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70_000) | st.floats(allow_nan=False) | st.text(max_size=5) | st.just(SPACE),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=5,
)


@st.composite
def questions(draw: st.DrawFn) -> tuple[Any, Any]:
    """Draw an operation with documented or other members."""
    route = draw(st.sampled_from(OPERATIONS))
    names = getattr(route.request, "__struct_fields__", ("now", "workspaces", "owner_keys", "x"))
    return route, draw(st.dictionaries(st.sampled_from([*names, "x"]), JSON, max_size=3) | JSON)


@settings(max_examples=scaled(100))
@given(questions())
def test_every_response_conforms_to_the_document(question: tuple[Any, Any]) -> None:
    route, body = question
    response = PLANE.send(route.method, f"/_fake{route.path}", json.dumps(body).encode())
    answers = CONTROL["paths"][route.path][route.method.lower()]["responses"]
    schema = answers[str(response.status)]["content"][response.headers["content-type"]]["schema"]
    Draft202012Validator({"components": CONTROL["components"], **schema}).validate(json.loads(response.body))
    PLANE("POST", "/reset")


PLANE = PlaneClient(small_world())


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


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_loopback_is_what_only_this_machine_reaches(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "a", "localhost.a"])  # noqa: S104 - nothing is bound
def test_everything_else_is_not_loopback(host: str) -> None:
    assert not is_loopback(host)
