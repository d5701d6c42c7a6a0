"""The control plane: HTTP and JSON endpoints under `/_fake/` that set up and control the fake from any language.

`outreach-async serve` includes the control plane. In Python, wrap a fake in `ControlPlane(fake)` before you serve it. The first
line that `serve` prints sets `OUTREACH_BASE_URL`, which the examples use, as the client and the commands do. `PUT /_fake/world`
replaces all stored data with those of a world file of at most 16 MiB; `outreach_async.fake.world_file` shows the format. Values
that the file omits are generated:

    $ curl -X PUT $OUTREACH_BASE_URL/_fake/world -d '{"workspaces": [{"id": "space_1", "campaigns": [{"id": "camp_1"}]}]}'
    {"now":"2026-03-02T09:00:00Z","unix":1772442000.0}

`GET /_fake/world` returns all stored data in this format. To pause a campaign, change the limit of a mailbox, add contacts, or
script how a contact reacts to an e-mail, edit the file and put it back: everything else continues as before.

`reset` restores the data, the time and the behaviour of the server's start, removes faults and empties the request log:

    $ curl -X POST $OUTREACH_BASE_URL/_fake/reset
    {"now":"2026-03-02T09:00:00Z","unix":1772442000.0}

Faults have the names and arguments of the functions in `outreach_async.fake.faults`. A script injects one fault into each of the
next requests of an operation. A rule injects a fault into every matching request, optionally with a probability:

    $ curl $OUTREACH_BASE_URL/_fake/faults/script -d '{"operation": "create_contact", "faults": [{"name": "hang"}]}'
    {"unfired":["create_contact: hang()"]}
    $ curl $OUTREACH_BASE_URL/_fake/faults -d '{"fault": {"name": "latency", "seconds": 2}, "operation": "list_steps", "p": 0.1}'
    {"unfired":["create_contact: hang()"]}
    $ curl $OUTREACH_BASE_URL/_fake/faults -d '{"fault": {"name": "truncate", "after_bytes": 5}, "containing": "bo@", "times": 1}'
    {"unfired":["create_contact: hang()","any request: truncate(5) (0 of 1)"]}
    $ curl -X DELETE $OUTREACH_BASE_URL/_fake/faults
    {"unfired":[]}

The behaviour has the knobs of `outreach_async.fake.Behaviour`. PATCH sets the given knobs. The others keep their values; with
`preset`, they get the values of the preset:

    $ curl -X PATCH $OUTREACH_BASE_URL/_fake/behaviour -d '{"preset": "strict", "order": "newest"}' -o /dev/null -w '%{http_code}'
    200
    $ curl -X PATCH $OUTREACH_BASE_URL/_fake/behaviour -d '{"presets": "strict"}'
    {"error":{"message":"a behaviour has no field 'presets'","field":"presets","remedy":"did you mean preset?"}}

The fake's time stands still until you advance it. Each request can advance it by at most ten years (3,660 days). Requests to the
same fake wait meanwhile; those to other sandboxes do not:

    $ curl $OUTREACH_BASE_URL/_fake/time/advance -d '{"days": 2, "hours": 12}'
    {"now":"2026-03-04T21:00:00Z","unix":1772658000.0}

Read the request log. The log masks keys, and contains no requests to the control plane:

    $ curl "$OUTREACH_BASE_URL/_fake/requests?operation=create_contact&last=5"
    {"total":0,"counts":{},"statuses":{},"requests":[]}

Sandboxes
---------
A sandbox is a fake of its own below a base URL of its own: data, behaviour, time, faults and request log. Parallel tests can
share one server if each of them creates a sandbox. It starts as the server did, unless `seed`, `world` or `behaviour` change it:

    $ curl $OUTREACH_BASE_URL/_fake/sandboxes -d '{"seed": 7, "behaviour": {"preset": "strict"}, "expires_after": 60}'
    {"url":"$OUTREACH_BASE_URL/_fake/sandboxes/3d1f0a86c24b97e5","expires_after":60.0}

Requests to the service use this URL as base URL, and the control plane of the sandbox is below it: `POST $URL/_fake/reset`.
The first lines of `serve` name a workspace and a key of its data; sandboxes have them, too, unless `world` replaces them. In
TypeScript, for one test:

```typescript
const FAKE = "http://127.0.0.1:8000/_fake" // outreach-async serve --port 8000
const { url } = await (await fetch(`${FAKE}/sandboxes`, { method: "POST" })).json() // the base URL for the code under test
const faults = { operation: "create_contact", faults: [{ name: "commit_then", fault: { name: "reset" } }] }
await fetch(`${url}/_fake/faults/script`, { method: "POST", body: JSON.stringify(faults) })
const { requests } = await (await fetch(`${url}/_fake/requests`)).json() // after the test: what was requested
await fetch(url, { method: "DELETE" })
```

`DELETE $URL` deletes the sandbox. A sandbox without requests for `expires_after` seconds, by default an hour, is deleted, too. A
server has at most 1,000 sandboxes. A new sandbox of the sample data takes 65 KiB; data are copied when they change.

Errors and versions
-------------------
An invalid request changes nothing: the response has a 4xx status, and an `error` with `message`, `field` and `remedy`. The
control plane accepts only requests to `localhost`, an IP address or a `--control-host`. It refuses requests from web pages,
except from each `--allow-origin http://localhost:5173` that you pass to `serve`: browsers let these pages read all responses,
of the service, too. Bodies may be compressed with gzip. With `--host localhost`, the fake is served on 127.0.0.1 and on ::1.

`/_fake` answers when the server is ready. Wait for it with `npx wait-on $OUTREACH_BASE_URL/_fake` or `start-server-and-test`.

`GET /_fake/openapi.json` returns an OpenAPI 3.1 document of the service and of the control plane. Its `info.version` follows
semantic versioning: operations and members are removed or changed only with a new major version. In TypeScript, for example,
`npx openapi-typescript $OUTREACH_BASE_URL/_fake/openapi.json -o service.d.ts` makes types of it.
`tests/examples/service.test.ts` in the repository is a complete test file for Node.js: each test creates a sandbox, advances its
time and scripts faults. For Java, pass `-g java --library native` to `openapi-generator-cli generate`.

Without Python
--------------
`tests/examples/javascript_fake` in the repository makes an npm package that runs the fake in a web page, or in Node.js, by
Pyodide. Neither Python nor a port is needed. Each `createFake` returns a fake of its own, with its control plane. Its `fetch`
answers as a served fake does, faults included, and `install` does so for the global `fetch`, for requests to its `url` only:

```typescript
import { createFake } from "outreach-async-fake"
const fake = await createFake({ url: "https://api.example", world: { owner_keys: { key_1: [] } } })
fake.install() // until fake.restore()
await fetch("https://api.example/_fake/time/advance", { method: "POST", body: '{"days": 1}' })
```

A test file that reads `OUTREACH_BASE_URL` needs no change: `node --import outreach-async-fake/global --test service.test.ts`.
The first fake of a process or page takes 3 to 4 s of CPU time, each further one 2 ms. A page loads 14.8 MB, or 7.6 MB with
gzip. The README of the package says more.

Clients that retry by themselves
--------------------------------
Many HTTP clients send a request again if the connection ends before the response starts, and tell nobody. A scripted `reset`,
`close` or `refuse` then disappears in a test: the call succeeds, and the request log has an entry more. Measured:

| client | retries by itself | sent at most | off |
|---|---|---|---|
| `java.net.http` of Java 17 | GET | twice | no |
| aiohttp 3.14 | GET | twice | no |
| `Net::HTTP` of Ruby 3.1 | GET, also after `reset_mid_body` | twice | `http.max_retries = 0` |
| curl 7.88 | every method, POST too, on a connection that has served before | twice | `-H "connection: close"` |
| `fetch` and `node:http` of Node.js 20 | nothing | once | |

Count calls by what your code returns, and attempts by `GET /_fake/requests`. To make a call fail, inject the fault into every
attempt: with a rule, which fires until faults are cleared, or with as many faults in the script as the client sends requests.

    $ curl $OUTREACH_BASE_URL/_fake/faults -d '{"fault": {"name": "reset"}, "operation": "list_fields"}'
    {"unfired":["list_fields: reset() (0 of 1)"]}

Or choose a fault that these clients do not retry: `truncate` and `malformed` break a response that has started, and
`status` answers. Ruby, however, returns a truncated body as if it were whole. A lost response of a creation, `commit_then` with
`reset`, reaches the code that called Java, aiohttp and Ruby, because they do not repeat a POST. With curl on a connection that
has served before, the second attempt meets the contact that the first has created: the outcome is that of a duplicate.

In a container
--------------
Save this as `Containerfile`. Clients reach the fake as `http://localhost:8000`, or as `http://fake:8000` in a network of Docker:

    FROM python:3.14-slim
    ARG PACKAGE="outreach_async[cli]"
    RUN pip install --no-cache-dir "$PACKAGE"
    USER 65534
    EXPOSE 8000
    HEALTHCHECK --interval=5s CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8000/_fake/time')"]
    ENTRYPOINT ["outreach-async", "serve", "--host", "0.0.0.0", "--port", "8000", "--control-host", "fake"]

    $ docker build --file Containerfile --tag outreach-fake .
    $ docker run --detach --rm --name fake --publish 127.0.0.1:8000:8000 outreach-fake --seed 3

With Podman, `--format docker` keeps the health check. `--control-host` is repeatable: add other names by which clients reach the
fake.
"""

from __future__ import annotations

from outreach_async.fake.control._control_plane import ControlPlane, is_loopback

__all__ = ["ControlPlane", "is_loopback"]
