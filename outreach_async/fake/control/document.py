"""The OpenAPI 3.1 documents: the service's, stored in a file, and the control plane's, generated from its table of routes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec

from outreach_async.fake.control.bodies import Nothing, Refusal

if TYPE_CHECKING:
    from outreach_async.fake.control.routes import Route

_REFUSALS: Final = {
    "400": "The request is malformed, or cannot be carried out.",
    "403": "The host name is not accepted, or the request comes from a web page.",
}
_INFO: Final = {
    "title": "Control plane of the fake outreach service",
    "version": "1.0.0",
    "description": "Reset and fill the fake service on the same server, and control its faults, behaviour and time.",
}


def service_document(url: str) -> dict[str, Any]:
    """Return the document of the service.

    Args:
        url: Base URL of the service.
    """
    return {**_file(), "servers": [{"url": url}]}


def control_document(url: str, routes: Iterable[Route]) -> dict[str, Any]:
    """Return the document of the control plane.

    Args:
        url: Base URL of the control plane.
        routes: Its operations.
    """
    routes = tuple(routes)
    kinds = list(dict.fromkeys(kind for route in routes for kind in (route.says, route.answers, Refusal)))
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    schemas = dict(zip(kinds, found, strict=True))
    paths: dict[str, Any] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas, components)
    return {
        "openapi": "3.1.0",
        "info": _INFO,
        "servers": [{"url": url}],
        "paths": paths,
        "components": {"schemas": components},
    }


def _operation(route: Route, schemas: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    refusals = {status: _answer(said, schemas[Refusal]) for status, said in _REFUSALS.items()}
    # The server refuses a long body while reading it, before it routes the request, so the answer is not a `Refusal`.
    refusals["413"] = _answer("The body is longer than 16 MiB.", {"type": "object"})
    return {
        "operationId": route.act.__name__.lstrip("_"),
        "summary": str(route.act.__doc__).partition("\n")[0],
        **_said(route, schemas[route.says], components),
        "responses": {str(route.status): _answer("Done.", schemas[route.answers]), **refusals},
    }


def _said(route: Route, schema: dict[str, Any], components: dict[str, Any]) -> dict[str, Any]:
    if route.method == "GET":
        object_ = components[schema["$ref"].rpartition("/")[2]]
        return {"parameters": [_parameter(name, said, object_) for name, said in object_["properties"].items()]}
    return {"requestBody": {"required": route.says is not Nothing, "content": {"application/json": {"schema": schema}}}}


def _parameter(name: str, schema: dict[str, Any], object_: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": name in object_.get("required", ()), "schema": schema}


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


@cache
def _file() -> dict[str, Any]:
    from importlib.resources import files  # slow to import, and used for this document only

    document: dict[str, Any] = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text(encoding="utf-8"))
    return document
