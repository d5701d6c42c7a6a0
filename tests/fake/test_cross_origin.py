"""Web pages use a served fake from the origins that are allowed, and from no others."""

from __future__ import annotations

import json

import pytest
from support.control import HOST
from support.fake import SPACE, small_world

from outreach_async import Request, Response
from outreach_async.fake import FakeService, faults
from outreach_async.fake._cross_origin import CrossOriginService
from outreach_async.fake.control import ControlPlane
from outreach_async.fake.faults import run_to_end

PAGE = "http://localhost:5173"
FIELDS = f"/workspaces/{SPACE}/all-fields"


def send(fake: FakeService, origins: set[str], method: str, target: str, **headers: str) -> Response | None:
    service = CrossOriginService(ControlPlane(fake, origins=origins), frozenset(origins))
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return run_to_end(service.exchange_in_slices(Request(method, target, {**HOST, **named}))).response


def answered(response: Response | None) -> tuple[int, str | None]:
    assert response is not None
    return response.status, response.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("origins", [{PAGE}, {"*"}, {"http://a", PAGE}])
def test_pages_of_an_allowed_origin_read_every_response(origins: set[str]) -> None:
    fake = small_world()
    fake.faults.script("list_fields", faults.ok, faults.status(503), faults.reset())
    targets = (FIELDS, FIELDS, "/nothing", "/_fake/time", "/_fake/x")
    found = [send(fake, origins, "GET", target, origin=PAGE) for target in targets]
    assert [answered(response) for response in found] == [(status, PAGE) for status in (200, 503, 404, 200, 404)]
    assert {response.headers["access-control-expose-headers"] for response in found if response} == {"*"}
    assert {response.headers["vary"] for response in found if response} == {"origin"}
    assert send(fake, origins, "GET", FIELDS, origin=PAGE) is None


@pytest.mark.parametrize("target", ["/contacts", "/_fake/faults/script"])
def test_a_preflight_allows_the_methods_and_headers_that_the_page_asks_for(target: str) -> None:
    asked = {"access_control_request_method": "POST", "access_control_request_headers": "content-type,x-a"}
    fake = small_world()
    response = send(fake, {PAGE}, "OPTIONS", target, origin=PAGE, **asked)
    assert answered(response) == (204, PAGE)
    assert response is not None
    assert {"date", "x-request-id"} <= response.headers.keys()
    assert response.headers["access-control-allow-headers"] == "content-type,x-a"
    assert {"POST", "PATCH"} <= set(response.headers["access-control-allow-methods"].split(", "))
    assert len(fake.requests) == 0
    assert answered(send(fake, {PAGE}, "OPTIONS", target, origin=PAGE)) == (405, PAGE)  # not a preflight


@pytest.mark.parametrize("origin", ["http://localhost:5174", "https://localhost:5173", "null"])
def test_pages_of_other_origins_read_no_response_and_control_nothing(origin: str) -> None:
    fake = small_world()
    preflight = {"access_control_request_method": "GET"}
    assert answered(send(fake, {PAGE}, "GET", FIELDS, origin=origin)) == (200, None)
    assert answered(send(fake, {PAGE}, "OPTIONS", FIELDS, origin=origin, **preflight)) == (405, None)
    refused = send(fake, {PAGE}, "POST", "/_fake/reset", origin=origin)
    assert answered(refused) == (403, None)
    assert refused is not None
    assert "--allow-origin" in json.loads(refused.body)["error"]["remedy"]


def test_programs_which_send_no_origin_are_served_as_before() -> None:
    assert answered(send(small_world(), {PAGE}, "GET", FIELDS)) == (200, None)
    assert answered(send(small_world(), {"*"}, "POST", "/_fake/reset")) == (200, None)
