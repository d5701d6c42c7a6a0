"""The control plane's operations as a table: method, path, request body and response."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from outreach_async.fake.control import acts, bodies
from outreach_async.fake.control.acts import Control
from outreach_async.fake.control.document import control_document, service_document
from outreach_async.fake.control.knob_bodies import Knobs, NewBehaviour
from outreach_async.fake.control.reading import Problem, read_body, read_query

PREFIX: Final = "/_fake"
"""Prefix of the control plane's paths. No path of the service begins with it."""


@attrs.frozen
class Route:
    """One operation of the control plane.

    Attributes:
        method: HTTP method.
        path: Path after the prefix.
        act: Function that carries it out.
        answers: Type of the response, for the document; bytes are JSON already.
        says: Type of the request body; for GET, of the query.
        status: HTTP status of the response.
    """

    method: str
    path: str
    act: Callable[[Control, Any], Any]
    answers: Any
    says: Any = bodies.Nothing
    status: int = 200

    def carry_out(self, control: Control, query: str, body: bytes) -> Any:
        """Carry out a request, and return the content of the response.

        Raises:
            Problem: The request is invalid, or cannot be carried out.
        """
        if self.method == "GET":
            return self.act(control, read_query(query, self.says))
        return self.act(control, read_body(body or b"{}" if self.says is bodies.Nothing else body, self.says))


def _openapi(control: Control, _: bodies.Nothing) -> dict[str, Any]:
    """Describe the service (OpenAPI 3.1)."""
    return service_document(control.base_url)


def _control(control: Control, _: bodies.Nothing) -> dict[str, Any]:
    """Describe the control plane (OpenAPI 3.1)."""
    return control_document(f"{control.base_url}{PREFIX}", ROUTES)


ROUTES: Final = (
    Route("GET", "/", acts.state, bodies.State),
    Route("GET", "/openapi.json", _openapi, dict[str, Any]),
    Route("GET", "/control.json", _control, dict[str, Any]),
    Route("POST", "/reset", acts.reset, bodies.State),
    Route("POST", "/checkpoint", acts.checkpoint, bodies.State),
    Route("GET", "/world", acts.get_world, dict[str, Any]),
    Route("PUT", "/world", acts.put_world, bodies.State, dict[str, Any]),
    Route("POST", "/workspaces", acts.add_workspace, bodies.Made, bodies.Workspace, 201),
    Route("POST", "/owner-keys", acts.add_owner_key, bodies.Made, bodies.OwnerKey, 201),
    Route("POST", "/mailboxes", acts.add_mailboxes, bodies.Made, bodies.Mailboxes, 201),
    Route("PATCH", "/mailboxes", acts.change_mailbox, bodies.Made, bodies.MailboxChange),
    Route("POST", "/campaigns", acts.add_campaign, bodies.Made, bodies.Campaign, 201),
    Route("PATCH", "/campaigns", acts.change_campaign, bodies.Made, bodies.CampaignChange),
    Route("GET", "/contacts", acts.list_contacts, bodies.Contacts, bodies.WhichContacts),
    Route("POST", "/contacts", acts.add_contacts, bodies.Made, bodies.NewContacts, 201),
    Route("POST", "/contacts/answers", acts.settle_answers, bodies.State, bodies.Answers),
    Route("GET", "/requests", acts.list_requests, bodies.Requests, bodies.WhichRequests),
    Route("DELETE", "/requests", acts.clear_requests, bodies.State),
    Route("GET", "/faults", acts.list_faults, bodies.Waiting),
    Route("POST", "/faults", acts.add_fault, bodies.Waiting, bodies.Rule, 201),
    Route("POST", "/faults/script", acts.script_faults, bodies.Waiting, bodies.Script, 201),
    Route("DELETE", "/faults", acts.clear_faults, bodies.Waiting),
    Route("GET", "/behaviour", acts.get_behaviour, bodies.Readings),
    Route("PUT", "/behaviour", acts.put_behaviour, bodies.Readings, NewBehaviour),
    Route("PATCH", "/behaviour", acts.patch_behaviour, bodies.Readings, Knobs),
    Route("GET", "/time", acts.get_time, bodies.Time),
    Route("POST", "/time/advance", acts.advance, bodies.Time, bodies.Period),
)
"""Every operation of the control plane."""

_BY_PATH: Final[Mapping[str, Mapping[str, Route]]] = {
    route.path: {other.method: other for other in ROUTES if other.path == route.path} for route in ROUTES
}


def find_route(method: str, path: str) -> Route:
    """Return the route of a request.

    Args:
        method: HTTP method.
        path: Path after the prefix; a trailing slash is ignored.

    Raises:
        Problem: 404 for an unknown path, 405 for another method on a known one.
    """
    methods = _BY_PATH.get(path.rstrip("/") or "/")
    if methods is None:
        raise Problem(404, "unknown path", None, f"see {PREFIX}/control.json for every path")
    if method not in methods:
        allowed = ", ".join(methods)
        raise Problem(405, f"{method} is not allowed here", None, f"allowed: {allowed}", {"allow": allowed})
    return methods[method]
