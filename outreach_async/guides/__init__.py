"""Guides to what no single package explains: the concepts, operating a client, the command line, and performance.

Read `outreach_async.guides.concepts` first: every other guide uses its words. Then read the guide of your task:

    import a file               outreach_async.importer, outreach_async.guides.command_line
    every night                 outreach_async.bulk, outreach_async.bulk.ledger
    audit and brief             outreach_async.audit, outreach_async.audit.campaigns
    test your code              outreach_async.pytest_plugin, outreach_async.fake, outreach_async.testing
    test from another language  outreach_async.fake.control
    past one machine            outreach_async.spread, outreach_async.shared_rate
    operate                     outreach_async.guides.operating, outreach_async.hooks, outreach_async.otel
    performance                 outreach_async.guides.performance

```python
import pydoc

print(pydoc.locate("outreach_async.guides.concepts").__doc__.partition(":")[0])  # -> The words of this library
```
"""
