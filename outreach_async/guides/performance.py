"""What requests, rows and pages cost.

The figures are CPU time of the client, divided by that of a hand-written
loop on one `httpx.AsyncClient` (lower is better), with 64 requests in
flight, or 4 for pages. The loop has default limits, a task per request, a
semaphore and `asyncio.gather`. Each cell is the range of three runs: one
on an idle machine, and two on one that was busy with other work. The first
five rows are this library.

    | | one POST | bulk creation | a typed page | 100 pages of 20 ms, wall time |
    |---|---|---|---|---|
    | httpx (default) | 0.20 to 0.24 | 0.23 to 0.36 | 0.57 to 0.80 | 0.26 to 0.80 |
    | httpx2 | 0.21 to 0.26 | 0.24 to 0.33 | 0.66 to 0.78 | 0.24 to 0.52 |
    | aiohttp | 0.055 to 0.073 | 0.077 to 0.13 | 0.44 to 0.74 | 0.24 to 0.64 |
    | sockets | 0.028 to 0.040 | 0.043 to 0.061 |  |  |
    | sockets, httptools | 0.013 to 0.019 | 0.025 to 0.043 | 0.47 to 0.65 | 0.25 to 0.64 |
    | a client each | 0.29 to 0.32 | 0.30 to 0.42 |  |  |
    | aiohttp loop | 0.053 to 0.066 | 0.062 to 0.089 | 0.84 to 0.96 | 0.92 to 1.7 |
    | openapi-python-client |  | 0.89 to 1.3 | 1.5 to 1.9 | 1.2 to 2.2 |
    | typed loop by hand |  | 0.0086 to 0.012 |  |  |
    | raw asyncio, paced |  | 0.021 to 0.024 |  |  |
    | raw asyncio | 0.0070 to 0.0098 | 0.0064 to 0.0085 |  |  |

"A client each" is the loop with one `httpx.AsyncClient` per request in
flight, a common workaround for its pool. The typed loop is written by hand
on `asyncio.Protocol` and msgspec, without retries, limits, deadlines or
checks. Raw asyncio sends one prepared request; paced, it also waits busily
for as long per request as `create_many` computes, which shows what waking
up a server costs every client of this speed. `python -m benchmarks` (group
`bench`) measures these ratios on your machine. The runs, their machines
and versions are in `benchmarks/results` in the repository.

"Sockets" is `SocketTransport`, without an extra and with the extra
`httptools`. With httptools and a journal, ten million contacts take 9
minutes of CPU time, compared with two hours for the loop (extrapolated). A
journal costs 1.05 to 1.2 times the CPU time of a run without one on httpx,
and 1.3 to 1.5 times on sockets with httptools. Decoding a page into models
takes 1.2 times as long as msgspec alone on an idle machine, at most 2.2
times on a busy one, and a mailbox takes less than 1 kB. In bulk runs,
neither memory nor the cost per row grows with the number of rows.

A synchronous run (`outreach_async.sync`) takes 1.0 to 1.2 times the CPU
time of an asynchronous one with requests to a server, and 1.2 to 1.4 times
on a transport that answers at once.

A test that creates a contact with the fixture `outreach_client` takes 0.6
to 1.0 times the CPU time of one with respx and a client of httpx that
loads no certificates, both above an empty test.

A row that a ledger knows costs about as much as a plain SQLite lookup if
the run is awaited, and 1.4 times as much if its outcomes are iterated (a
lookup takes 5 to 9 us of CPU). The file takes 52 bytes for each contact,
and until the next run about 70 bytes more for each row that the last run
has sent. A second night of two million rows, of which 1 % have changed,
takes 15 s of CPU time, and the process 81 MiB.

At 1,000 rows a second, a journal does not delay the rows of a list, also
on a disk whose commits take 50 ms: the 99th percentile of the time from
the scheduled start of a row to its response stays at 23 ms on a quick disk
and 35 ms on the slow one, because rows are marked in the journal ahead. A
row that arrives one by one (from an async generator) cannot be marked
before it arrives, so it waits for these commits: 256 instead of 25 ms on
the slow disk, and 36 ms on a quick one.

By default (`--backend auto`), the command uses `SocketTransport`, or httpx
if the environment sets a proxy for the address; with `--verbose`, it says
which one and why. In Python, a client uses httpx, because respx and
pytest-httpx can replace it. This line chooses `SocketTransport`:

```python
from outreach_async import SocketTransport, OutreachClient

client = OutreachClient(transport=SocketTransport("https://api.example"))
print(client)  # -> <OutreachClient <SocketTransport to https://api.example> workspace=...
```

An `httpx.AsyncClient` of your own costs four to five times as much as the
default transport at 64 requests in flight.

`import outreach_async` costs a tenth of `import httpx`, because names are
imported on first use, and `from outreach_async import OutreachClient`
costs less than a third; creating the first client imports the rest.
Clients share one TLS context.
"""
