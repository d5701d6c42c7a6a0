"""The entry for the registry of the Model Context Protocol is valid, and starts the server of this version."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft7Validator
from support.cli import COMMANDS

import outreach_async

ROOT: Final = Path(__file__).parents[2]
ENTRY: Final = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
(PACKAGE,) = ENTRY["packages"]
TEXT: Final = {"type": "string", "minLength": 1}
VERSION: Final = {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"}
ARGUMENT: Final = {"oneOf": [{"required": ["name", "value"]}, {"required": ["value"], "not": {"required": ["name"]}}]}


def members(required: str, **properties: object) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


RULES: Final = members(
    "$schema name description version packages",
    **{"$schema": {"const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"}},
    name={"type": "string", "pattern": r"^[a-zA-Z0-9][a-zA-Z0-9.-]*[a-zA-Z0-9]/[a-zA-Z0-9][a-zA-Z0-9._-]*[a-zA-Z0-9]$"},
    title={**TEXT, "maxLength": 100},
    description={**TEXT, "maxLength": 100},
    version=VERSION,
    repository=members("url source", url={"pattern": r"^https://github\.com/[\w.-]+/[\w.-]+$"}, source={"const": "github"}),
    websiteUrl={"pattern": "^https://"},
    packages={
        "type": "array",
        "items": members(
            "registryType identifier version transport",
            registryType={"const": "pypi"},
            registryBaseUrl={"const": "https://pypi.org"},
            identifier={"pattern": "^[a-z0-9-]+$"},  # also the name of the command that `uvx` starts
            version=VERSION,
            runtimeHint={"const": "uvx"},
            runtimeArguments={"type": "array", "items": {**ARGUMENT, "properties": {"type": {"const": "named"}}}},
            packageArguments={"type": "array", "items": {**ARGUMENT, "properties": {"type": {"const": "positional"}}}},
            transport=members("type", type={"const": "stdio"}),
            environmentVariables={
                "type": "array",
                "items": members(
                    "name description",
                    name={"pattern": "^OUTREACH_[A-Z_]+$"},
                    description=TEXT,
                    isRequired={"type": "boolean"},
                    isSecret={"type": "boolean"},
                    placeholder=TEXT,
                ),
            },
        ),
    },
)
"""What the schema and the registry's own checks demand of an entry such as this one, with one package on PyPI."""


def test_the_registry_accepts_the_entry() -> None:
    assert [f"{error.json_path}: {error.message}" for error in Draft7Validator(RULES).iter_errors(ENTRY)] == []


def test_every_version_in_the_entry_is_that_of_the_package() -> None:
    version = outreach_async.__version__
    assert (ENTRY["version"], PACKAGE["version"]) == (version, version)
    assert [argument["value"] for argument in PACKAGE["runtimeArguments"]] == [f"outreach-async[cli,mcp]=={version}"]


def test_the_readme_proves_who_owns_the_package() -> None:
    assert f"<!-- mcp-name: {ENTRY['name']} -->" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_entry_names_what_the_command_reads_and_declares_keys_secret() -> None:
    variables = {variable["name"]: variable.get("isSecret", False) for variable in PACKAGE["environmentVariables"]}
    described = {
        name for option in COMMANDS["mcp"].params for name in re.findall(r"OUTREACH_\w+", getattr(option, "help", None) or "")
    }
    assert variables.keys() <= described
    assert [name for name, secret in variables.items() if secret] == ["OUTREACH_OWNER_KEY"]


@pytest.mark.thorough
def test_the_entry_starts_a_server_on_sample_data() -> None:
    arguments = [argument["value"] for argument in PACKAGE["packageArguments"]]
    start = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": start})
    command, environment = [sys.executable, "-m", "outreach_async", *arguments], {**os.environ, "OUTREACH_BASE_URL": "fake:"}
    done = subprocess.run(command, input=f"{line}\n", env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["result"]["serverInfo"]["version"] == ENTRY["version"]
