r"""Check a service against its API documentation.

The checks also measure the behaviour of the live service that the
documentation leaves open. Run it as a test suite, with pytest 8 or later:

    pytest --pyargs outreach_async.conformance --outreach-live https://... --outreach-workspace space_...

By default, the suite only reads. To let it create contacts, too, pass the
workspace id again with `--allow-writes space_...`, and set
`OUTREACH_OWNER_KEY` to the owner key.

The suite has a test for each documented rule that can be tested. It reads
up to 100 campaigns, the steps of ten of them, and up to 8,000 mailboxes.
To check `total_found` for lists of any length, it also reads the last page
of each list, and requests one page past the end. Values that contradict
each other count as violations, too: a percentage that its counts cannot
have, more opens or bounces than e-mails, a creation time in milliseconds
or in the future, or a list that never counts a new contact.

For many questions that the documentation leaves open,
`outreach_async.fake.Behaviour` has a setting, called a knob. The suite
finds out which value of each knob matches the service, and writes these
values to `behaviour.toml`, with which
`outreach_async.fake.behaviour.load_behaviour` configures a fake. A later
run fails if the measured value of a knob has changed.

From Python, `check` returns the violations of documented rules, and
`calibrate` the values of the knobs. Here, the service is a fake:

```python
import anyio
from outreach_async.conformance import Access, calibrate, check
from outreach_async.fake import Behaviour, FakeService, FakeTransport

fake = FakeService(behaviour=Behaviour(past_end="clamp"))
workspace = fake.add_workspace()
fake.add_mailboxes(workspace, 30)


async def main() -> None:
    transport = FakeTransport(fake)  # or HttpxTransport("https://api.example")
    print(await check(transport, Access(workspace)))  # -> []
    measured = await calibrate(transport, Access(workspace))
    print(measured.observed["past_end"], "-", measured.reasons["past_end"])
    # -> clamp - ...
    print(measured.to_toml().count("\n") > 20)  # -> True


anyio.run(main)
```

If several values of a knob match, `measured.undecided` has them, and
`measured.reasons` says why, as do the summary and the file of the suite.
With few values, `numbers` and `list_date` may be `mixed`. Three knobs are
never measured: `overwrite_unsent` and `overwrite_blank`, because no
operation reads a contact back, and `rate_limit`, to limit the load.
"""

from outreach_async.conformance._calibration import Calibration, calibrate
from outreach_async.conformance._probes import Access
from outreach_async.conformance._rules import RULES, Breach, check

__all__ = ["RULES", "Access", "Breach", "Calibration", "calibrate", "check"]
