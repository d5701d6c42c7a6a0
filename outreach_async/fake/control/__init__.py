"""The control plane: set up and drive the fake from any language, over plain HTTP and JSON under `/_fake/`.

`outreach-async serve` includes it. In Python, wrap a fake in `Controlled(fake)` before serving or mounting it. Below, `FAKE` is
the first line that `serve` prints, with `/_fake` appended. Fill a workspace:

    $ curl $FAKE/workspaces -d '{"id": "space_1", "custom_fields": ["Plan"]}'
    {"ids":["space_1"]}
    $ curl $FAKE/owner-keys -d '{"workspaces": ["space_1"], "key": "key_1"}'
    {"ids":["key_1"]}
    $ curl $FAKE/mailboxes -d '{"workspace": "space_1", "fields": {"id": "mailbox_1", "daily_limit": 40, "spf": false}}'
    {"ids":["mailbox_1"]}
    $ curl $FAKE/campaigns -d '{"workspace": "space_1", "id": "camp_1", "mailboxes": ["mailbox_1"], "steps": ["A|B"]}'
    {"ids":["camp_1"]}
    $ curl $FAKE/contacts -d '{"workspace": "space_1", "rows": [{"id": "contact_1", "email": "bo@acme.example", "city": "Lyon"}]}'
    {"ids":["contact_1"]}

Change it, or script what a contact does with an e-mail that the fake will send as time advances:

    $ curl -X PATCH $FAKE/campaigns -d '{"id": "camp_1", "status": "live", "rates": {"bounce": 0}}'
    {"ids":["camp_1"]}
    $ curl -X PATCH $FAKE/mailboxes -d '{"id": "mailbox_1", "fields": {"daily_limit": 20}}'
    {"ids":["mailbox_1"]}
    $ curl $FAKE/contacts/answers -d '{"contact": "bo@acme.example", "replies_after": "2h"}' -o /dev/null -w '%{http_code}'
    200

`GET $FAKE/world` returns everything as a world file, and `PUT $FAKE/world` loads one, of at most 16 MiB. `reset` restores the
state in which the server started, or the last `checkpoint`: the stored data, the time and the behaviour. It also removes pending
faults and empties the request log:

    $ curl -X POST $FAKE/checkpoint
    {"seed":0,"now":"2026-01-01T00:00:00Z","requests":0,"unfired":0,"openapi":"$FAKE/openapi.json","control":"$FAKE/control.json"}
    $ curl -X POST $FAKE/reset
    {"seed":0,"now":"2026-01-01T00:00:00Z","requests":0,"unfired":0,"openapi":"$FAKE/openapi.json","control":"$FAKE/control.json"}

Faults have the names and arguments of `outreach_async.fake.faults`. They strike in order, or by a rule, optionally with a
probability drawn from the seed:

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

Behaviour has the knobs of `Behaviour`. PATCH sets some of them, PUT starts from a preset:

    $ curl -X PATCH $FAKE/behaviour -d '{"past_end": "error", "rate_limit": {"limit": 100}}' -o /dev/null -w '%{http_code}'
    200
    $ curl -X PUT $FAKE/behaviour -d '{"preset": "strict", "numbers": "mixed"}' -o /dev/null -w '%{http_code}'
    200
    $ curl -X PATCH $FAKE/behaviour -d '{"past_end": "eror"}'
    {"error":{"message":"past_end: Invalid enum value 'eror'","field":"past_end","remedy":"use one of empty, clamp, error"}}

Time stands still until you advance it, by at most ten years per request:

    $ curl $FAKE/time/advance -d '{"days": 2, "hours": 12}'
    {"now":"2026-01-03T12:00:00Z","unix":1767441600.0}

Read the stored contacts, and the request log, which masks keys and holds only requests to the service:

    $ curl "$FAKE/contacts?workspace=space_1&email=BO@acme.example"
    {"contacts":[{"id":"contact_1","email":"bo@acme.example","fields":{"city":"Lyon"},"campaigns":[],"owner":"key_1","created":1767225600}]}
    $ curl "$FAKE/requests?operation=create_contact&last=5"
    {"total":0,"counts":{},"statuses":{},"requests":[]}

`GET $FAKE/control.json` describes all of this as OpenAPI 3.1, and `GET $FAKE/openapi.json` the service. Errors are 4xx with
`message`, `field` and `remedy`, and change nothing. The control plane accepts requests to `localhost` and IP addresses only, and
none from web pages.
"""

from __future__ import annotations

from outreach_async.fake.control.app import ControlPlane, is_loopback

__all__ = ["ControlPlane", "is_loopback"]
