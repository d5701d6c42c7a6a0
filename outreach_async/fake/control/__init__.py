"""The control plane: HTTP and JSON endpoints under `/_fake/` that set up and control the fake from any language.

`outreach-async serve` includes the control plane. In Python, wrap a fake in `ControlPlane(fake)` before you serve or mount it. In
the examples, the variable `FAKE` is the URL on the first line that `serve` prints, with `/_fake` appended. `PUT $FAKE/world`
replaces all stored data with those of a world file of at most 16 MiB; `outreach_async.fake.world_file` shows the format. Values
that the file omits are generated. `GET $FAKE/world` returns all stored data in the same format:

    $ curl -XPUT $FAKE/world -d '{"workspaces":[{"id":"space_1","mailboxes":[{"id":"mailbox_1"}],"campaigns":[{"id":"camp_1"}]}]}'
    {"seed":0,"now":"2026-01-01T00:00:00Z","requests":0,"unfired":0,"openapi":"$FAKE/openapi.json","control":"$FAKE/control.json"}

Use a world file for the start. Once a campaign has sent e-mails, create contacts with the service's own `POST /contacts`: a
contact that a loaded file adds to the campaign gets no e-mail. Change a campaign or a mailbox, or script the reactions of a
contact to an e-mail that has not been sent yet:

    $ curl -X PATCH $FAKE/campaigns -d '{"id": "camp_1", "status": "live", "rates": {"bounce": 0}}'
    {"ids":["camp_1"]}
    $ curl -X PATCH $FAKE/mailboxes -d '{"id": "mailbox_1", "fields": {"daily_limit": 20}}'
    {"ids":["mailbox_1"]}
    $ curl $FAKE/contacts/answers -d '{"contact": "bo@acme.example", "replies_after": "2h"}' -o /dev/null -w '%{http_code}'
    200

`reset` restores the stored data, the time and the behaviour of the last `checkpoint`, or of the server's start. It also removes
pending faults and empties the request log:

    $ curl -X POST $FAKE/checkpoint
    {"seed":0,"now":"2026-01-01T00:00:00Z","requests":0,"unfired":0,"openapi":"$FAKE/openapi.json","control":"$FAKE/control.json"}
    $ curl -X POST $FAKE/reset
    {"seed":0,"now":"2026-01-01T00:00:00Z","requests":0,"unfired":0,"openapi":"$FAKE/openapi.json","control":"$FAKE/control.json"}

Faults have the names and arguments of the functions in `outreach_async.fake.faults`. A script injects one fault into each of the
next requests of an operation. A rule injects a fault into every matching request, optionally with a probability:

    $ curl $FAKE/faults/script -d '{"operation": "create_contact", "faults": [{"name": "status", "code": 503}, {"name": "ok"}]}'
    {"unfired":["create_contact: status(503)"]}
    $ curl $FAKE/faults/script -d '{"operation": "list_fields", "faults": [{"name": "commit_then", "fault": {"name": "reset"}}]}'
    {"unfired":["create_contact: status(503)","list_fields: commit_then(reset())"]}
    $ curl $FAKE/faults -d '{"fault": {"name": "latency", "seconds": 0.2}, "operation": "list_mailboxes", "p": 0.1}'
    {"unfired":["create_contact: status(503)","list_fields: commit_then(reset())"]}
    $ curl $FAKE/faults -d '{"fault": {"name": "truncate", "after_bytes": 5}, "containing": "bo@acme.example", "times": 1}'
    {"unfired":["create_contact: status(503)","list_fields: commit_then(reset())","any request: truncate(5) (0 of 1)"]}
    $ curl -X DELETE $FAKE/faults
    {"unfired":[]}

The behaviour has the knobs of `outreach_async.fake.Behaviour`. PATCH sets the given knobs and keeps the others. PUT resets every
knob to its value in a preset, and then sets the given knobs:

    $ curl -X PATCH $FAKE/behaviour -d '{"past_end": "error", "rate_limit": {"limit": 100}}' -o /dev/null -w '%{http_code}'
    200
    $ curl -X PUT $FAKE/behaviour -d '{"preset": "strict", "numbers": "mixed"}' -o /dev/null -w '%{http_code}'
    200
    $ curl -X PATCH $FAKE/behaviour -d '{"past_end": "eror"}'
    {"error":{"message":"past_end: Invalid enum value 'eror'","field":"past_end","remedy":"use one of empty, clamp, error"}}

The fake's time stands still until you advance it. Each request can advance it by at most ten years (3,660 days):

    $ curl $FAKE/time/advance -d '{"days": 2, "hours": 12}'
    {"now":"2026-01-03T12:00:00Z","unix":1767441600.0}

Read the request log. The log masks keys, and contains no requests to the control plane:

    $ curl "$FAKE/requests?operation=create_contact&last=5"
    {"total":0,"counts":{},"statuses":{},"requests":[]}

`GET $FAKE/control.json` returns an OpenAPI 3.1 document of the control plane. `GET $FAKE/openapi.json` returns an OpenAPI 3.1
document of the service. An invalid request changes nothing: the response has a 4xx status, and an `error` with `message`, `field`
and `remedy`. The control plane accepts only requests to `localhost`, an IP address or a `--control-host`, and refuses requests
from web pages.
"""

from __future__ import annotations

from outreach_async.fake.control._control_plane import ControlPlane, is_loopback

__all__ = ["ControlPlane", "is_loopback"]
