from __future__ import annotations

import gzip
import json
import math
import subprocess
import sys
from typing import Any, get_args

import h11
import pytest
from support.fake import JSON, SPACE, creation, small_world
from support.raw_http import encode_request, exchange_bytes

from outreach_async.fake import FakeService
from outreach_async.fake._messages import MAX_REQUEST_BYTES
from outreach_async.fake.control import ControlPlane
from outreach_async.fake.control._fetch import Answer, open_fake
from outreach_async.fake.faults import MalformedKind
from outreach_async.fake.server import serve

HOST = "http://fake"
WORLD = json.loads(small_world().dump())
CAMPAIGNS = f"/campaigns?workspace={SPACE}&page=1&display=10"

# As a web page: only packages that exist for it, and no thread, socket, process, or file besides the modules and their data.
IN_A_PAGE = """
import sys
before = set(sys.modules)
packages = {"attr", "attrs", "msgspec", "outreach_async"}

class Page:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in packages | sys.stdlib_module_names:
            raise ImportError(name)

def audit(event, arguments):
    file = str(arguments[0]) if event == "open" else ""
    if not watching:
        return
    if event.startswith(("socket.", "subprocess.", "_thread.", "os.", "shutil.", "sqlite3.")) and event != "os.listdir":
        raise RuntimeError(event)
    if event == "open" and not file.endswith((".py", ".pyc", ".tsv", ".json")):
        raise RuntimeError(f"open {file}")

watching = True  # not what measures the coverage of this process at its end
sys.meta_path.insert(0, Page())
sys.addaudithook(audit)
from outreach_async.fake.control._fetch import open_fake
answer, problem = open_fake("http://fake", sys.argv[1].encode())
assert not problem, problem
for method, target in [("GET", sys.argv[2]), ("POST", "/_fake/sandboxes"), ("GET", "/_fake/openapi.json")]:
    print(answer(method, target, {"host": "fake"}, b"").status)
watching = False
print({"ssl", "socket", "email", "asyncio"} & set(sys.modules) - before)
"""


def test_the_fake_needs_only_what_a_web_page_has() -> None:
    command = [sys.executable, "-B", "-c", IN_A_PAGE, json.dumps({"world": WORLD}), CAMPAIGNS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("200\n201\n200\nset()\n", "")


def opened(**options: Any) -> Any:
    answer, problem = open_fake(HOST, json.dumps(options).encode())
    assert problem == ""
    return answer


def read_response(method: str, raw: bytes) -> Answer:
    """Return what a client gets from the bytes of a server."""
    client = h11.Connection(h11.CLIENT, max_incomplete_event_size=100 * 1024)
    client.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(raw)
    client.receive_data(b"")
    status, fields, body = None, dict[str, str](), b""
    try:
        while not isinstance(event := client.next_event(), h11.EndOfMessage):
            if isinstance(event, h11.Response):
                status, fields = event.status_code, {name.decode(): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return Answer(None, (), 0.0, (), "lost")
    except h11.RemoteProtocolError as error:
        return Answer(status, tuple(fields.items()), 0.0, [(0.0, body)], str(error))
    return Answer(status, tuple(fields.items()), 0.0, [(0.0, body)], "")


def comparable(answered: Answer, fault: object) -> object:
    """Return what a program notices: whether it gets a response, and what it can read of it."""
    if answered.status is None:
        return None
    fields, body, complete = dict(answered.headers), b"".join(part for _, part in answered.parts), not answered.lost
    if (fields.pop("content-encoding", "") and body) or answered.lost.endswith("content-encoding"):
        body, complete = b"", False  # not in gzip
    if fields.get("x-request-id", "").startswith("server_"):  # never reaches the fake: a random id, and the time of the computer
        del fields["x-request-id"], fields["date"]
    for name in ("connection", "transfer-encoding", *(() if complete and (body or not fault) else ("content-length",))):
        fields.pop(name, None)
    return answered.status, fields, body, complete


def inject(fault: Any) -> list[tuple[str, str, bytes, dict[str, str]]]:
    return [("POST", "/_fake/faults", json.dumps({"fault": fault, "times": 1}).encode(), {})] if fault else []


FAULTS = [
    {"name": "latency", "seconds": 0},
    {"name": "slow_drip", "bytes": 50, "every": 0},
    {"name": "wrong_length", "short_by": 3},
    {"name": "truncate", "after_bytes": 5},
    {"name": "truncate", "after_bytes": 10**6},
    {"name": "reset_mid_body", "after": 5},
    {"name": "status", "code": 204},
    {"name": "status", "code": 503, "headers": {"transfer-encoding": "chunked", "content-length": "1"}},
    *({"name": name} for name in ("refuse", "reset", "close")),
    *({"name": "malformed", "kind": kind} for kind in get_args(MalformedKind)),
]
CALLS = [
    *((method, CAMPAIGNS, b"", {}) for method in ("GET", "HEAD", "DELETE")),
    ("GET", "/nothing?%ff", b"", {}),
    *(("POST", "/contacts", json.dumps(creation(email, duplicates=how)).encode(), JSON) for email in ("Ann@a.co", "bo@a.co")
      for how in ("skip", "overwrite")),
    ("POST", "/contacts", gzip.compress(json.dumps(creation("cy@a.co")).encode()), {**JSON, "content-encoding": "gzip"}),
    ("POST", "/contacts", b"{}", {"content-encoding": "gzip"}),
    ("POST", "/contacts", b"{}", {"content-encoding": "br"}),
    ("POST", "/contacts", b"{", JSON),
    ("POST", "/_fake/time/advance", b'{"days": 1}', {}),
    ("PATCH", "/_fake/behaviour", b'{"order": "newest"}', {}),
    ("PATCH", "/_fake/behaviour", b'{"order": "up"}', {}),
    ("GET", "/_fake/world", b"", {"origin": "https://page.example"}),
    ("HEAD", "/_fake/requests", b"", {}),
]  # fmt: skip


async def test_fetch_gets_the_bytes_of_the_served_fake() -> None:
    served, answer = FakeService(), opened(world=WORLD)
    served.load(WORLD)
    damaged: list[Any] = [(fault, (method, CAMPAIGNS, b"", {})) for fault in FAULTS for method in ("GET", "HEAD")]
    async with serve(ControlPlane(served, ["fake"], origins=["*"])) as url:
        for fault, call in (*((None, call) for call in CALLS), *damaged):
            for method, target, body, headers in (*inject(fault), call):
                fields = [f"{name}: {value}" for name, value in headers.items()]
                raw, _ = await exchange_bytes(url, encode_request(method, target, body, *fields, "connection: close"))
                answered = answer(method, target, {**headers, "host": "fake"}, memoryview(body))
                got, expected = (comparable(each, fault) for each in (answered, read_response(method, raw)))
                assert got == expected


def test_a_response_that_never_comes_is_awaited_for_ever() -> None:
    answer = opened(world=WORLD)
    answer("POST", "/_fake/faults", {"host": "fake"}, b'{"fault": {"name": "hang"}}')
    assert answer("GET", CAMPAIGNS, {}, b"") == Answer(None, (), math.inf, (), "no response")


def test_a_body_that_a_server_refuses_is_refused() -> None:
    assert opened()("POST", "/contacts", JSON, bytes(MAX_REQUEST_BYTES + 1)).status == 413


def test_a_sandbox_is_below_the_url_of_the_fake() -> None:
    answer, _ = open_fake("https://api.example/v1", b"{}")
    assert answer is not None
    made = json.loads(answer("POST", "/_fake/sandboxes", {"host": "api.example"}, b"").parts[0][1])
    assert made["url"].startswith("https://api.example/v1/_fake/sandboxes/")


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"worlds": {}}, "worlds: Object contains unknown field `worlds`; did you mean world?"),
        ({"seed": "a"}, "seed: Expected `int | null`, got `str`; accepted: seed, world, behaviour"),
        ({"behaviour": {"orders": "up"}}, "behaviour.orders: a behaviour has no field 'orders'; did you mean order?"),
        (
            {"world": {"workspaces": [{"id": "s"}]}},
            "world.workspaces[0]: id: expected a string that starts with space_, got 's'; correct the option",
        ),
    ],
)
def test_options_that_are_wrong_are_named(options: dict[str, Any], problem: str) -> None:
    assert open_fake(HOST, json.dumps(options).encode()) == (None, problem)
