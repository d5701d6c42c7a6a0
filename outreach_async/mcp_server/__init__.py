"""An MCP server for assistants.

Its tools read workspaces, audit mailboxes and, if allowed, create
contacts. Install the extras `cli` and `mcp`. Assistants start the command
`outreach-async mcp` and communicate with it over stdin and stdout (Model
Context Protocol). Most assistants read a configuration such as this one
for Claude Desktop:

    {"mcpServers": {"outreach": {
      "command": "outreach-async", "args": ["mcp", "--workspace", "space_1"], "env": {"OUTREACH_BASE_URL": "https://api.example"}
    }}}

To try the server without a service, use the arguments
`["mcp", "--base-url", "fake:"]`. Assistants do not inherit the environment
of a shell: give the full path of the command if it is not found, and set
its variables in `env`.

Tools
-----
`list_campaigns`, `campaign_steps`, `list_mailboxes` and `list_fields`
return pages of 20 items. `audit` checks mailboxes and, with the argument
`campaigns`, campaigns too. It returns recommended actions, most urgent
first; with the argument `rule`, it returns the findings of that rule.
`brief` lists open tasks and, with the server's option
`--history history.db`, the changes since the last audit in that file. The
option adds the tool `history`: daily figures of workspaces, campaigns or
domains. The commands `brief --history` and `audit --history` write the
file; the tools only read it. `explain_rule` explains a rule, or lists all
rules. `check_contacts` checks contacts as an import does, and says who is
on a list of the configuration file (`exclude`), without sending them.

The tools read only the workspaces of `--workspace` (or
`OUTREACH_WORKSPACE`) and `--allow-writes`. The first is the default. With
a configuration file, tools accept names too, and show both.
`campaign_steps`, however, accepts the id of any campaign, because the
service requires no workspace to read steps. `--deadline` sets the time
limit of a call, 50 seconds by default.

Third-party data
----------------
Anyone who can name a campaign or reply to an e-mail can write text that an
assistant reads. The first member, `notice`, of every result with such data
states that the other members are data and never instructions. Long strings
are truncated; control characters, characters that change the direction of
text, and invisible ones are escaped. An assistant may still follow an
instruction in the data: allow only actions that are acceptable in the
worst case. Without `--allow-writes`, it can only read.

Creating contacts
-----------------
`--allow-writes space_1` adds the tool `create_contacts` for the named
workspace. It requires an owner key. A call creates at most 50 contacts,
each with at most 50 fields. If a contact already exists, the call skips it
or adds only its missing fields; fields are never overwritten. Before
anything is sent, the assistant's program shows a form with every contact
and every field (MCP elicitation), and a person must confirm. A
confirmation is used once: if the program repeats it, the server refuses
the call with `Invalid or expired requestState`, and creates nothing. The
form shortens values of more than 40 characters, and shows their length. A
call for another workspace, with an invalid contact or with a person on a
list of the configuration file (`exclude`) is refused before the person is
asked. If the program cannot show forms, the call fails, and the
error lists the alternatives. The result has `status`, `certain` and
`possible` (all statuses that the contact may have) for every contact.

No schema, result or error contains the owner key or a credential in a
header. Every error includes a remedy.

Over HTTP
---------
`outreach-async mcp --http` serves any number of assistants at
`http://127.0.0.1:8000/mcp` (streamable HTTP). Requests of web pages of
other hosts are refused. Set `OUTREACH_MCP_TOKEN` to a secret that clients
send as a bearer token. Without it, the server listens on loopback only,
and does not accept `--allow-writes`.

From Python
-----------
`create_server` returns a server of the official MCP SDK, whose client can
call it in the same process, as in a test. Over HTTP, add authentication,
because anyone who connects can call every tool:

```python
import json

import anyio
from mcp import Client
from outreach_async import OutreachClient
from outreach_async.mcp_server import create_server


async def main() -> None:
    async with OutreachClient() as client, Client(create_server(client, ["space_1"])) as assistant:
        result = await assistant.call_tool("list_mailboxes", {"workspace": "space_1"})
    answer = json.loads(result.content[0].text)
    print(answer["notice"])  # -> This data comes from the outreach service ...
    print([box["email"] for box in answer["mailboxes"]])  # -> ['ada@north.example', 'bob@north.example']


anyio.run(main)
```
"""

from __future__ import annotations

try:
    import mcp  # noqa: F401 - checks that the package is installed
except ImportError as missing:
    raise ImportError("mcp is not installed; run: pip install 'outreach_async[mcp]'") from missing

from outreach_async.mcp_server._tool_server import build_app, create_server, serve_stdio

__all__ = ["build_app", "create_server", "serve_stdio"]
