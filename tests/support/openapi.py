"""The OpenAPI document of the service, and the validation of responses."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from outreach_async import Response

DOCUMENT: dict[str, Any] = json.loads((files("outreach_async.fake") / "openapi.json").read_text(encoding="utf-8"))
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def resolve_reference(node: dict[str, Any]) -> dict[str, Any]:
    """Return the component that a reference points to; return any other node as it is."""
    while "$ref" in node:
        _, *steps = node["$ref"].split("/")
        node = DOCUMENT
        for step in steps:
            node = node[step]
    return node


def forbid_unknown_members(schema: Any) -> Any:
    """Return a copy of a schema that rejects undocumented members."""
    if isinstance(schema, list):
        return [forbid_unknown_members(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: forbid_unknown_members(value) for name, value in schema.items()}
    return {**found, "additionalProperties": False} if "required" in schema and "properties" in schema else found


CLOSED = forbid_unknown_members(DOCUMENT["components"])


@cache
def validator(operation: str, status: int) -> Draft202012Validator:
    """Return a validator for the responses of an operation with a status."""
    documented = resolve_reference(OPERATIONS[operation][2]["responses"][str(status)])
    return Draft202012Validator({"components": CLOSED, **documented["content"]["application/json"]["schema"]})


def check_response(operation: str, response: Response) -> Any:
    """Validate a response for its operation and status, and return its document."""
    answers = OPERATIONS[operation][2]["responses"]
    assert str(response.status) in answers, (response.status, response.body)
    documented = resolve_reference(answers[str(response.status)])
    for name, header in documented["headers"].items():
        assert not resolve_reference(header).get("required") or name in response.headers, name
    value = json.loads(response.body)
    assert response.headers["content-type"] in documented["content"]
    validator(operation, response.status).validate(value)
    return value
