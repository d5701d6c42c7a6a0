"""The OpenAPI 3.1 documents: the service's, kept in a file, and the control plane's, made from its table of operations."""

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
    "403": "Asked for by a name that is not allowed, or by a web page.",
}
_INFO: Final = {
    "title": "Control plane of the fake outreach service",
    "version": "1.0.0",
    "description": "Reset, seeding, faults, behaviour and time of the service that is served beside it.",
}


def service_document(url: str) -> dict[str, Any]:
    """Describe the service.

    Args:
        url: Where it is served.
    """
    return {**_file(), "servers": [{"url": url}]}


def control_document(url: str, routes: Iterable[Route]) -> dict[str, Any]:
    """Describe the control plane.

    Args:
        url: Where it is served.
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
    # Refused while it is read, when nobody knows yet whom it is for.
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
    from importlib.resources import files  # takes longer to import than all the rest

    document: dict[str, Any] = json.loads(files("outreach_async.fake").joinpath("openapi.json").read_text(encoding="utf-8"))
    return document
