"""Performance: what requests, rows and pages cost, beside other clients, and how to measure it yourself.

The figures are CPU time of the client with 64 requests in flight, relative to a hand-written loop on one `httpx.AsyncClient`
(lower is better). The loop has default limits, a task per request, a semaphore and `asyncio.gather`. "A client each" is the same
loop with one `httpx.AsyncClient` per request in flight, a common workaround for its pool.

    | | httpx (default) | httpx2 | aiohttp | httptools | others |
    |---|---|---|---|---|---|
    | one POST, bytes in and out | 0.22 | 0.24 | 0.06 | 0.01 | a client each 0.32, aiohttp loop 0.06, raw asyncio 0.006 |
    | bulk creation, rows in and outcomes out | 0.26 | 0.26 | 0.09 | 0.03 | a client each 0.31, aiohttp loop 0.06 |
    | a page of 2,000 mailboxes, typed | 0.55 | 0.62 | 0.46 | 0.46 | aiohttp loop to dicts 0.81 |
    | 100 pages of 20 ms each, wall time | 0.30 | 0.28 | 0.27 | 0.26 | openapi-python-client 1.10 |

`python -m benchmarks` (group `bench`) measures these ratios on your machine, beside a raw `asyncio.Protocol` and
openapi-python-client (0.98 for bulk creation, 1.64 for a page). `benchmarks/results` in the repository has a full run.

With httptools and a journal, ten million contacts take 19 minutes of CPU time, compared with almost 6 hours for the loop
(extrapolated). Decoding a page into models takes about as long as msgspec alone (1.2 times), and a mailbox takes less than 1 kB.
In bulk runs, neither memory nor the cost per row grows with the number of rows.

A row that a ledger knows costs 2.2 times as much as a plain SQLite lookup (14 us of CPU where a lookup takes 6, and where
sending a row with a journal takes 60). A row that was sent costs 5 us more when its run is added to the ledger. The file takes
47 bytes for each contact.

At 1,000 rows a second, a journal does not delay the rows of a list, also on a disk whose commits take 50 ms: the 99th percentile
of the time from the turn of a row to its response stays at 25 ms, because rows are marked in the journal before their turn. A row
that arrives one by one (from an async generator) has no turn before it arrives, so it waits for these commits: 237 instead of
23 ms on the slow disk, and 33 ms on a quick one.

An `httpx.AsyncClient` of your own costs four to five times as much as the default transport at 64 requests in flight. To choose
another transport for many requests, pass it to the client; on the command line, pass `--backend httptools`:

```python
from outreach_async import HttptoolsTransport, OutreachClient

client = OutreachClient(transport=HttptoolsTransport("https://api.example"))
print(client)  # -> <OutreachClient <HttptoolsTransport to https://api.example> workspace=...
```

`import outreach_async` costs a tenth of `import httpx`, because names are imported on first use, and
`from outreach_async import OutreachClient` costs less than a third; creating the first client imports the rest. Clients share one
TLS context.
"""
