"""Programs that generators make of the OpenAPI document: what they require of its schemas, and clients in TypeScript and Java."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from jsonschema import Draft202012Validator
from support.cli import serve_in_thread
from support.control import PlaneClient
from support.fake import creation, get, post, small_world

from outreach_async._cli.demo_data import create_demo_world
from outreach_async.fake import FakeService, HeaderAuth, RateLimit, Recorded, faults
from outreach_async.fake._records import MAILBOX_ARGUMENTS, CampaignFields, Rates, Template
from outreach_async.fake.behaviour import KNOB_NAMES, KNOB_VALUES, PRESETS, Behaviour
from outreach_async.fake.control import ControlPlane
from outreach_async.fake.world_file import SCRIPT_MEMBERS, WorkspaceDocument, WorldDocument

DESCRIBED = PlaneClient()("GET", "/openapi.json")
SCHEMAS = DESCRIBED["components"]["schemas"]
HERE = Path(__file__).parent


def walk(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path of every object in a document, and the object."""
    if isinstance(value, dict):
        yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        yield from walk(item, f"{path}/{name}")


def validate(schema: str, value: Any) -> None:
    Draft202012Validator({"components": DESCRIBED["components"], "$ref": f"#/components/schemas/{schema}"}).validate(value)


# What generators do not understand.


def test_no_member_has_a_default_which_generators_would_require_or_send() -> None:
    assert [path for path, schema in walk(DESCRIBED) if "default" in schema and not path.endswith("/properties")] == []


def test_every_object_names_its_members_or_the_type_of_all() -> None:
    objects = [(path, schema) for path, schema in walk(DESCRIBED) if schema.get("type") == "object" and not path.endswith("/if")]
    assert [path for path, schema in objects if not {"properties", "additionalProperties"} & schema.keys()] == []


def test_no_choice_has_a_list_or_a_map_from_which_java_would_make_no_class() -> None:
    choices = [(path, schema["anyOf"]) for path, schema in walk(DESCRIBED) if "anyOf" in schema]
    nullable = {"type": "null"}
    found = [
        path
        for path, options in choices
        if nullable not in options and any(option.get("type") in {"array", "object"} for option in options)
    ]
    assert len(choices) > 20
    assert found == []


def test_every_enumeration_has_a_type() -> None:
    assert [path for path, schema in walk(DESCRIBED) if "enum" in schema and "type" not in schema] == []


@pytest.mark.parametrize(
    ("method", "path"), [("POST", "/_fake/sandboxes"), ("POST", "/_fake/reset"), ("DELETE", "/_fake/faults")]
)
def test_null_is_an_optional_body_that_is_not_sent(method: str, path: str) -> None:
    plane = PlaneClient()
    assert plane.send(method, path, b" null\n").status == plane.send(method, path, b"").status < 300


def test_null_is_no_body_where_one_is_required() -> None:
    assert PlaneClient().problem("POST", "/time/advance", b"null")["field"] is None


# The schemas of knobs, worlds and entries of the request log.


def members(schema: str) -> set[str]:
    return set(SCHEMAS[schema]["properties"])


def test_the_schemas_have_the_members_of_the_classes() -> None:
    knobs = set(KNOB_NAMES)
    assert members("BehaviourBody") == knobs | {"preset"}
    assert set(SCHEMAS["BehaviourBody"]["properties"]["preset"]["enum"]) == set(PRESETS)
    assert members("BehaviourResponse") == knobs == set(SCHEMAS["BehaviourResponse"]["required"])
    assert members("HeaderAuth") == set(attrs.fields_dict(HeaderAuth))
    assert members("RateLimit") == set(attrs.fields_dict(RateLimit))
    logged = set(attrs.fields_dict(Recorded)) - {"headers"}
    assert members("LoggedRequest") == logged == set(SCHEMAS["LoggedRequest"]["required"])
    assert members("World") == set(WorldDocument.__struct_fields__)
    assert members("WorldWorkspace") == set(WorkspaceDocument.__struct_fields__)
    assert members("WorldMailbox") == set(MAILBOX_ARGUMENTS)
    assert members("WorldCampaign") == set(CampaignFields.__annotations__)
    assert members("WorldTemplate") == set(attrs.fields_dict(Template))
    assert members("WorldRates") == set(attrs.fields_dict(Rates))
    assert members("WorldScript") == set(SCRIPT_MEMBERS)


def test_the_schema_of_knobs_accepts_what_a_behaviour_accepts() -> None:
    plane = PlaneClient()
    for knob, values in KNOB_VALUES.items():
        for value in values:
            body = {knob: sorted(value) if isinstance(value, frozenset) else value}
            validate("BehaviourBody", body)
            validate("BehaviourResponse", plane("PATCH", "/behaviour", body))
        documented = SCHEMAS["BehaviourBody"]["properties"][knob].get("enum", [])
        assert set(documented) <= set(values), knob
    others: list[Any] = [{"auth": {"tokens": ["a"]}}, {"rate_limit": {"limit": 1}}, {"auth": "none", "rate_limit": None}]
    for body in others:
        validate("BehaviourBody", body)
        validate("BehaviourResponse", plane("PATCH", "/behaviour", body))
    plane.fake.behaviour = Behaviour(email_key=str.upper, error_renderer=lambda _: (500, {}, b""))
    validate("BehaviourResponse", plane("GET", "/behaviour"))


@pytest.mark.parametrize(
    ("create", "days"),
    [
        *((small_world, 0), (small_world, 3)),
        pytest.param(create_demo_world, 0, marks=[pytest.mark.thorough, pytest.mark.covers]),
        pytest.param(create_demo_world, 3, marks=pytest.mark.thorough),
    ],
)
def test_every_world_that_is_read_has_the_documented_schema(create: Callable[[], FakeService], days: int) -> None:
    fake = create()
    fake.sim.script("ann@company.example", replies_after="2h", interested=True)
    fake.advance(days=days)
    validate("World", json.loads(fake.dump()))


def test_every_entry_of_the_request_log_has_the_documented_schema() -> None:
    plane = PlaneClient(small_world())
    plane.fake.faults.script("list_fields", faults.hang())
    post(plane.fake, creation())
    get(plane.fake, "/nowhere")
    plane.fake.faults.script("unknown", faults.status(503))
    get(plane.fake, "/nowhere")
    log = plane("GET", "/requests")
    assert len(log["requests"]) == 3
    validate("RequestsResponse", log)


# Clients. All generators but the first are not among the requirements of the tests.


def run(*command: object, folder: Path) -> str:
    done = subprocess.run([*map(str, command)], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def require_program(name: str, remedy: str) -> str:
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"needs {name}; {remedy}")
    return path


FLOW = """
import sys
sys.path.insert(0, ".")
from generated import Client
from generated.api.control_plane import advance, change_behaviour, create_sandbox, get_world, list_requests, put_world
from generated.models import AdvanceBody, BehaviourBody, BehaviourBodyPastEnd, SandboxBody

url = create_sandbox.sync(client=Client(sys.argv[1]), body=SandboxBody(seed=3)).url
inside = Client(url)
print(advance.sync(client=inside, body=AdvanceBody(days=2)).unix)
print(change_behaviour.sync(client=inside, body=BehaviourBody(past_end=BehaviourBodyPastEnd.CLAMP)).past_end.value)
print(put_world.sync(client=inside, body=get_world.sync(client=inside)).unix)
print(list_requests.sync(client=inside, last=5).requests)
"""


@pytest.mark.thorough
def test_a_generated_client_in_python_sets_up_a_sandbox(tmp_path: Path) -> None:
    pytest.importorskip("openapi_python_client", reason="the group bench installs openapi-python-client")
    (tmp_path / "openapi.json").write_text(json.dumps(DESCRIBED), encoding="utf-8")
    files = ("--path", "openapi.json", "--output-path", "generated")
    run(sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none", *files, folder=tmp_path)
    (tmp_path / "flow.py").write_text(FLOW, encoding="utf-8")
    fake = small_world()
    fake.advance(days=1)
    with serve_in_thread(ControlPlane(fake)) as url:
        printed = run(sys.executable, "flow.py", url, folder=tmp_path)
    assert printed.splitlines() == ["1767484800.0", "clamp", "1767484800.0", "[]"]


@pytest.mark.nightly
def test_the_documented_requests_are_values_of_the_generated_types(tmp_path: Path) -> None:
    remedy = "npm install --global openapi-typescript typescript"
    generate, compile_types = (require_program(name, remedy) for name in ("openapi-typescript", "tsc"))
    (tmp_path / "openapi.json").write_text(json.dumps(DESCRIBED), encoding="utf-8")
    shutil.copy(HERE / "documented_requests.ts", tmp_path)
    run(generate, "openapi.json", "-o", "service.d.ts", folder=tmp_path)
    options = ("--noEmit", "--strict", "--module", "nodenext", "--skipLibCheck")
    run(compile_types, *options, "documented_requests.ts", folder=tmp_path)


GENERATED = "package javax.annotation; public @interface Generated { String[] value(); String date(); String comments(); }"


@pytest.mark.nightly
def test_a_generated_client_in_java_runs_a_whole_flow(tmp_path: Path) -> None:
    tools = pytest.importorskip("openapi_generator_cli", reason="needs openapi-generator; pip install openapi-generator-cli")
    java, javac = (require_program(name, "install a JDK of version 17 or later") for name in ("java", "javac"))
    jar = next(Path(tools.__path__[0]).rglob("openapi-generator*.jar"))  # it contains Jackson, too
    (tmp_path / "openapi.json").write_text(json.dumps(DESCRIBED), encoding="utf-8")
    plain = ("-g", "java", "--library", "native", "--additional-properties", "openApiNullable=false")
    run(java, "-jar", jar, "generate", "-i", "openapi.json", "-o", "client", *plain, folder=tmp_path)
    (tmp_path / "Generated.java").write_text(GENERATED, encoding="utf-8")
    sources = (tmp_path / "client" / "src" / "main").rglob("*.java")
    run(javac, "-nowarn", "-d", "out", "-cp", jar, *sources, HERE / "GeneratedClient.java", "Generated.java", folder=tmp_path)
    with serve_in_thread(ControlPlane(FakeService())) as url:
        printed = run(java, "-cp", f"out:{jar}", "GeneratedClient", url, folder=tmp_path)
    assert printed.splitlines() == [
        "[create_contact: status(503)]",
        "503",
        "added",
        "1767398400.0",
        "clamp",
        "1",
        "POST /contacts 503 status(503)",
        "POST /contacts 201 null",
        "ann@company.example",
    ]
