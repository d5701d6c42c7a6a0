"""Performance: what requests, rows and pages cost, beside other clients, and how to measure it yourself.

The figures are CPU time of the client, divided by that of a hand-written
loop on one `httpx.AsyncClient` (lower is better), with 64 requests in
flight, or 4 for pages. The loop has default limits, a task per request, a
semaphore and `asyncio.gather`. Each cell is the range of several runs,
most of them on a machine that was busy with other work. The first four
rows are this library.

    | | one POST | bulk creation | a typed page | 100 pages of 20 ms, wall time |
    |---|---|---|---|---|
    | httpx (default) | 0.20 to 0.36 | 0.20 to 0.28 | 0.41 to 0.78 | 0.43 to 0.57 |
    | httpx2 | 0.21 to 0.38 | 0.22 to 0.29 | 0.37 to 0.78 | 0.36 to 0.48 |
    | aiohttp | 0.061 to 0.079 | 0.095 to 0.12 | 0.41 to 0.67 | 0.39 to 0.51 |
    | sockets, httptools | 0.011 to 0.014 | 0.030 to 0.036 | 0.39 to 0.64 | 0.36 to 0.45 |
    | a client each | 0.28 to 0.49 | 0.31 to 0.33 |  |  |
    | aiohttp loop | 0.045 to 0.061 | 0.048 to 0.061 | 0.63 to 0.90 | 0.91 to 1.1 |
    | openapi-python-client |  | 0.69 to 1.00 | 1.1 to 2.1 | 1.1 to 1.5 |
    | typed loop by hand |  | 0.0068 to 0.0099 |  |  |
    | raw asyncio, paced |  | 0.023 to 0.028 |  |  |
    | raw asyncio | 0.0041 to 0.0084 | 0.0053 to 0.0069 |  |  |

"A client each" is the loop with one `httpx.AsyncClient` per request in
flight, a common workaround for its pool. The typed loop is written by hand
on `asyncio.Protocol` and msgspec, without retries, limits, deadlines or
checks. Raw asyncio sends one prepared request; paced, it also waits busily
for as long per request as `create_many` computes, which shows what waking
up a server costs every client of this speed. `python -m benchmarks` (group
`bench`) measures these ratios on your machine. The runs, their machines
and versions are in `benchmarks/results` in the repository.

"Sockets" is `SocketTransport`, here with the extra `httptools`. Without
it, a POST takes about twice the CPU time, which is still a sixth of that
of the default. With httptools and a journal, ten million contacts take 19
minutes of CPU time, compared with almost 6 hours for the loop
(extrapolated). Decoding a page into models takes at most 1.4 times as long
as msgspec alone, and a mailbox takes less than 1 kB. In bulk runs, neither
memory nor the cost per row grows with the number of rows.

A synchronous run (`outreach_async.sync`) takes 1.2 to 1.4 times the CPU
time of an asynchronous one, on a transport that answers at once; with
requests to a server, the difference is smaller.

A row that a ledger knows costs 1.1 to 1.4 times as much as a plain SQLite
lookup if the run is awaited, and 2.1 to 2.6 times if its outcomes are
iterated (a lookup takes 5 to 9 us of CPU). The file takes 52 bytes for
each contact, and until the next run about 70 bytes more for each row that
the last run has sent. A second night of two million rows, of which 1 %
have changed, takes 15 s of CPU time, and the process 81 MiB.

At 1,000 rows a second, a journal does not delay the rows of a list, also
on a disk whose commits take 50 ms: the 99th percentile of the time from
the scheduled start of a row to its response stays at 25 ms, because rows
are marked in the journal ahead. A row that arrives one by one (from an
async generator) cannot be marked before it arrives, so it waits for these
commits: 237 instead of 23 ms on the slow disk, and 33 ms on a quick one.

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
