"""Operate a client: limits, errors, events.

```python
import anyio
from outreach_async import OutreachClient, RateLimited
from outreach_async.fake import FakeService, FakeTransport, faults

fake = FakeService()
workspace = fake.add_workspace()
fake.faults.add(faults.status(429, retry_after=60))  # for a minute


async def main() -> None:
    events = []
    async with OutreachClient(transport=FakeTransport(fake), workspace=workspace, hooks=[events.append]) as client:
        try:
            await client.workspaces.fields(deadline=1.0)
        except RateLimited as error:
            print(type(error).__name__, error.maybe_applied, len(events) > 0)  # -> RateLimited False True


anyio.run(main)
```

Time limits and retries
-----------------------
`timeout` (30 s) limits each attempt. `deadline` (120 s) limits the whole
call, including its retries, its waits and the wait for one of
`max_in_flight` (64) slots. Transient failures are retried with jitter, up
to four attempts in total (`RetryPolicy`), within the deadline and a retry
budget. `Retry-After` pauses every task of the client. A read that is
refused with 429, with 403 or 503 and `Retry-After`, or with a message
about a rate limit, is retried until its deadline, unless `max_retries` is
given.

Rates
-----
`OutreachClient(rate=50)` or `OUTREACH_RATE=50` limits all requests of a
client and its copies, including retries: at most
`rate * t + max(1, rate / 10)` in any `t` seconds. Its calls, bulk runs and
audits share this rate, the limit that it learned from refusals, and one
queue in order of arrival. Rare refusals at random, which no limit
explains, hardly lower the learned limit: such a refusal only pauses the
client for its `Retry-After`. A client and its `with_options` copies share
connections, slots, rate and budget. Several clients, processes and hosts
can share one rate: see `outreach_async.rates`.

When something fails during a bulk run
--------------------------------------
A run does not raise for a row: the row's outcome says what happened. Every
error of a call or a run is an `OutreachError`, with `maybe_sent` and
`maybe_applied` (see `outreach_async.guides.concepts`). If ..., the run
...:

    a response is lost          sends the row again; `possible` lists every
                                possible status
    a 3xx, a 5xx, 408, 425      treats the request as possibly applied, as
      or 499                    `possible` shows; every other 4xx proves
                                that it was not applied
    429, 403 with `Retry-After` learns the rate limit; nothing is sent
      or a message about a      before the service allows it, or before the
      rate limit, with any      time that the message names, such as "retry
      status but 422            in 60 seconds" (words that the message only
                                quotes from the row do not count)
    20 errors with status 200   counts the service as down, until another
      in a row, or 100 of a     answer comes; a single such answer is final
      4xx without a meaning     for its row
    the service fails or is     pauses and probes, at no cost to the rows;
      down                      raises `BulkSuspended` after `max_outage`
                                seconds (by default 900, or a few attempts
                                if the service was never reached), or if
                                asked to wait for more than 15 minutes
    one row fails while others  ends the row as `unknown` after a few
      succeed                   attempts; if no other row succeeds, the
                                service counts as down
    an unknown key, or an       raises `BulkStopped`, which names the
      unknown workspace or      remedy; fix the cause and resume. A key can
      campaign of the run       always be corrected; a campaign, a
                                workspace, an option or the address only if
                                no row was applied. If the rows came with
                                several targets, only the rows of the
                                unknown one fail
    the first 50 answers are    raises `BulkStopped`, because the whole
      rejections                input or an option may be wrong
                                (`stop_after_rejects`). Rows that are not
                                sent, or that a ledger knows as rejected,
                                do not count. A resumed run sends all rows
                                again
    the process dies            on resume, sends the rows again that may
                                have been sent, with every possible status
                                in `possible`; the status of all other rows
                                is certain
    the journal is resumed      raises `InvalidRequest`, also if the run
      with other rows, options  was finished; with the same rows, a
      or at another address     finished run is reported again without a
                                request
    the journal is damaged      raises `JournalError`; `earlier="unknown"`,
                                also for a lost journal, continues with
                                every row marked as possibly sent, and
                                keeps the damaged file under another name
    an e-mail appears twice     sends its rows in order, one at a time; see
                                also `repeats=`. With a ledger, the same
                                rows in the same order are unchanged in the
                                next run

An audit waits for a service that is down or throttles requests, as a run
does. `audit(..., deadline=600)` limits the whole audit to ten minutes,
waits that long even for a service that it has not reached yet, and reports
the workspaces that were not read.

Logs, events and metrics
------------------------
`OUTREACH_LOG=info` logs retries (except in bulk runs and audits) and the
states of bulk runs to stderr; `debug` also logs every attempt. Records of
the logger `outreach_async` have their values as fields, and contain no
body, header or key. Errors and tracebacks never show a key either.

`OutreachClient(..., hooks=[print])` calls a function with each event: see
`outreach_async.hooks`. `hooks=[OtelHook()]` from `outreach_async.otel`
emits OpenTelemetry spans and metrics. `audit --output outreach.prom`
writes gauges for workspaces and domains to a file that node_exporter
reads.

Interpretations
---------------
The API documentation leaves much open. The client works with every
interpretation. The fake implements the most plausible one, and its
`Behaviour` selects others: see `outreach_async.fake.behaviour`.

    pages start at 0 or 1;     starts at 1, and reads page 0 last if the
      pages past the end       end shows that pages start at 0; with
                               `page=0`, continues if page 1 is a copy of
                               page 0
    a too large `display`      refuses more than 2,000 mailboxes; never
                               treats a short page as the last
    lists during inserts       removes duplicates and reports their number
    error statuses and bodies  any status from 300 is a `StatusError`, with
                               the message found in the body; 400 or 422
                               for a contact is a `ContactRejected`; an
                               error with status 200 is an
                               `UnexpectedResponse`
    authentication of reads;   none, pass `headers=` if needed; obeys 429
      rate limits              and `Retry-After`
    undocumented statuses,     kept as strings kept in `.extra`
      types, letters; fields
    a skipped duplicate and    makes no claim whether it joins the campaign
      its campaign
    equal e-mails              never has two in flight that might be equal
"""
