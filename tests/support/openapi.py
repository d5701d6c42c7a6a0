"""The OpenAPI document of the service, and the validation of responses."""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from outreach_async.transport.wire import Response

DOCUMENT: dict[str, Any] = json.loads((files("outreach_async.fake") / "openapi.json").read_text(encoding="utf-8"))
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference into the components."""
    while "$ref" in node:
        _, *steps = node["$ref"].split("/")
        node = DOCUMENT
        for step in steps:
            node = node[step]
    return node


def closed(schema: Any) -> Any:
    """Allow no undocumented members in responses."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: closed(value) for name, value in schema.items()}
    return {**found, "additionalProperties": False} if "required" in schema and "properties" in schema else found


CLOSED = closed(DOCUMENT["components"])


@cache
def validator(operation: str, status: int) -> Draft202012Validator:
    """Return the validator of an operation's responses with a status."""
    documented = resolved(OPERATIONS[operation][2]["responses"][str(status)])
    return Draft202012Validator({"components": CLOSED, **documented["content"]["application/json"]["schema"]})


def checked(operation: str, response: Response) -> Any:
    """Return the document of a response after validating it for the operation and status."""
    answers = OPERATIONS[operation][2]["responses"]
    assert str(response.status) in answers, (response.status, response.body)
    documented = resolved(answers[str(response.status)])
    for name, header in documented["headers"].items():
        assert not resolved(header).get("required") or name in response.headers, name
    value = json.loads(response.body)
    assert response.headers["content-type"] in documented["content"]
    validator(operation, response.status).validate(value)
    return value
