"""Test the served fake against its OpenAPI documents with schemathesis. This command is not part of the test suite.

    python -m tools.schemathesis_run --st "uvx --from schemathesis==4.32.5 st" --seconds 60

Starts `outreach-async serve` with a small world, and runs schemathesis with all checks four times: with the service's document as
served; with the same document restricted to existing ids, so that most requests succeed, first without and then with strict
validation; and with the document of the control plane. Exits with 0 if nothing was found.

`--st` accepts any command that runs schemathesis; it need not be installed in this environment.
"""

from __future__ import annotations

import argparse
import copy
import json
import re
import shlex
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WORLD = {
    "now": "2026-01-01T00:00:00Z",
    "workspaces": [
        {
            "id": "space_1",
            "custom_fields": {"custom_1": "Plan"},
            "mailboxes": [{"id": "mailbox_1"}, {"spf": False}],
            "campaigns": [
                {
                    "id": "camp_1",
                    "status": "live",
                    "mailboxes": ["mailbox_1"],
                    "steps": [{"templates": "A|B|PER", "sent": 20, "left_to_send": 4}, "A"],
                },
                {"id": "camp_2", "name": "Empty"},
            ],
            "contacts": [{"email": "bo@acme.example", "fields": {"city": "Lyon"}, "campaigns": ["camp_1"]}],
        },
        {"id": "space_2"},
    ],
    "owner_keys": {"key_1": ["space_1", "space_2"]},
}

# The fake rightly rejects some requests that a document allows: the document cannot describe the contents of a workspace, the
# rules of strict validation, or the order in which data must be seeded.
NOT_ALL_ACCEPTED = ("--exclude-checks", "positive_data_acceptance")


@contextmanager
def serving() -> Iterator[str]:
    """Serve the world, and yield the base URL."""
    with tempfile.TemporaryDirectory() as folder:
        world = Path(folder, "world.json")
        world.write_text(json.dumps(WORLD), encoding="utf-8")
        command = [sys.executable, "-P", "-m", "outreach_async", "serve", "--json", "--world", str(world)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield json.loads(server.stdout.readline())["base_url"]
            finally:
                server.terminate()


def narrow_ids(document: Any, *, strict: bool) -> Any:
    """Return a copy of the document that allows only existing ids."""
    narrow = copy.deepcopy(document)
    schemas, parameters = narrow["components"]["schemas"], narrow["components"]["parameters"]
    body, options = schemas["CreateContact"], schemas["UploadOptions"]["properties"]
    for schema in (parameters["Workspace"]["schema"], parameters["WorkspaceId"]["schema"], body["properties"]["workspace"]):
        schema["enum"] = ["space_1", "space_2"]
    body["properties"]["workspace"]["enum"] = ["space_1"]
    body["properties"]["owner_key"]["enum"] = ["key_1"]
    body["patternProperties"] = {"^custom_1$": {"type": ["string", "null"]}}
    body["propertyNames"] = {"anyOf": [{"const": "custom_1"}, {"not": {"pattern": "^custom_"}}]}
    parameters["CampaignId"]["schema"]["enum"] = ["camp_1", "camp_2"]
    options["campaign"]["enum"] = ["camp_1", "camp_2", None]
    options["strict_validation"]["enum"] = [strict]
    return narrow


def turn(url: str, **knobs: str) -> None:
    """Set knobs of the fake's behaviour."""
    request = urllib.request.Request(f"{url}/_fake/behaviour", json.dumps(knobs).encode(), method="PATCH")  # noqa: S310 - the URL of its own server
    urllib.request.urlopen(request).close()  # noqa: S310 - the same


def run(st: list[str], title: str, location: str, *options: str) -> bool:
    """Run schemathesis once, and print the result; return whether nothing was found."""
    command = [*st, "run", location, "--checks", "all", "--continue-on-failure", "--no-color", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    counts = re.search(r"Test cases:\s*\n\s*(.*)", done.stdout)
    print(f"{title}: {counts[1] if counts else 'no test was run'}")  # noqa: T201 - a command's report
    if done.returncode:
        print(done.stdout, done.stderr)  # noqa: T201 - the same
    return not done.returncode


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--st", default="st", help="command that runs schemathesis")
    parser.add_argument("--seconds", default="60", help="time limit for each of the four runs")
    parser.add_argument("--seed", default="1", help="seed of the generated requests")
    arguments = parser.parse_args()
    st = shlex.split(arguments.st)
    print(subprocess.run([*st, "--version"], capture_output=True, text=True, check=True).stdout.strip())  # noqa: T201 - a command's report
    with serving() as url, tempfile.TemporaryDirectory() as folder:
        bound = ("--max-time", arguments.seconds, "--seed", arguments.seed)
        with urllib.request.urlopen(f"{url}/_fake/openapi.json") as answer:  # noqa: S310 - its own server
            document = json.load(answer)
        found = [run(st, "service", f"{url}/_fake/openapi.json", *bound)]
        for strict, options in ((False, ()), (True, NOT_ALL_ACCEPTED)):
            # In the strict run, a page past the end returns the last page, so that its items can be requested next.
            turn(url, past_end="clamp" if strict else "empty")
            path = Path(folder, f"{strict}.json")
            path.write_text(json.dumps(narrow_ids(document, strict=strict)), encoding="utf-8")
            found.append(run(st, f"service, ids that exist, strict {strict}", str(path), "--url", url, *bound, *options))
        found.append(run(st, "control plane", f"{url}/_fake/control.json", *bound, *NOT_ALL_ACCEPTED))
    return 0 if all(found) else 1


if __name__ == "__main__":
    sys.exit(main())
