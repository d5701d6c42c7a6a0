"""Guides to what no single package explains.

Read `outreach_async.guides.concepts` first: every other guide uses its
words. Then read the guide of your task:

    write a program, or a script     outreach_async.OutreachClient,
                                     outreach_async.sync,
                                     outreach_async.config
    read and write values your way   outreach_async.converters
    use the command line             outreach_async.guides.command_line,
                                     with exit codes and the brief in Slack
    import a file                    outreach_async.importer
    send what changed, every night   outreach_async.guides.nightly
    not write to some people         outreach_async.guides.excluding
    create many rows, and resume     outreach_async.bulk
    use more CPUs or machines        outreach_async.parts,
                                     outreach_async.parts.processes,
                                     outreach_async.rates
    read journals and ledgers        outreach_async.store
    audit, and keep daily figures    outreach_async.audit,
                                     outreach_async.audit.policy,
                                     outreach_async.audit.campaigns,
                                     outreach_async.audit.history
    plan when campaigns end          outreach_async.audit.plan
    connect an assistant             outreach_async.mcp_server
    test your code                   outreach_async.pytest_plugin,
                                     outreach_async.fake,
                                     outreach_async.fake.faults,
                                     outreach_async.testing
    test in another language         outreach_async.fake.control
    check a live service             outreach_async.conformance
    explore in a notebook            outreach_async.guides.notebooks
    operate                          outreach_async.guides.operating,
                                     outreach_async.hooks,
                                     outreach_async.otel
    choose a transport               outreach_async.transport,
                                     outreach_async.guides.performance

```python
import pydoc

print(pydoc.locate("outreach_async.guides.concepts").__doc__.partition(":")[0])  # -> The words of this library
```

Installation
------------
The package needs Python 3.11 or newer. It is typed, and its models are
immutable. `pip install outreach_async` installs the client, over httpx;
before the first release, run `pip install .` in a checkout. Extras add the
rest, as in `pip install '.[cli,xlsx]'`, and `all` adds everything:

    cli, html                      the command `outreach-async`, with HTML
                                   reports; only the reports
    httpx2, aiohttp                further HTTP libraries
    httptools                      a faster parser for `SocketTransport`
                                   and the command
    xlsx, parquet, validate        workbooks; Parquet files and data
                                   frames; checks of e-mail addresses and
                                   phone numbers
    lake, dask, redis              files and journals in object stores;
                                   imports on a Dask cluster; one rate for
                                   several hosts
    otel, prometheus, mcp          OpenTelemetry spans and metrics; audit
                                   metrics for Prometheus; tools for
                                   assistants
"""
