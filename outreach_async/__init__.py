"""An asyncio and trio client for the outreach service.

Import the public names from `outreach_async` itself. This minimal program
reads `OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and `OUTREACH_WORKSPACE`
from the environment; you can also pass these values to `OutreachClient` as
arguments. In all docstrings, "the API documentation" means the
documentation of the service's API. Names of sections refer to it.

```python
import anyio
from outreach_async import OutreachClient, OutreachError


async def main() -> None:
    async with OutreachClient() as client:
        async for campaign in client.campaigns.list():
            print(campaign.name, campaign.status)  # -> Spring live
        try:
            created = await client.contacts.create(email="ann@company.example", first_name="Ann")
        except OutreachError as error:
            print("failed:", error, "- may have been created" if error.maybe_applied else "- was not created")
        else:
            print(created.status, created.certain)  # -> added True


anyio.run(main)
```

`outreach_async.guides` lists the guides by task; read them with
`python -m pydoc outreach_async.guides` or `help()`.

The short examples in docstrings assume an open `client` that is connected
to `fake`, a `FakeService` with a small workspace `space_1`. They also
assume imports of `anyio`, `asyncio`, `json` and `Path`, and of the public
names of `outreach_async`, `outreach_async.fake` and the package that
contains the docstring. `report` is the report of an audit of `space_1` and
its campaigns, and `history` a `History` that contains it. Examples use
`await` at the top level, as `python -m asyncio` allows. `# ->` marks the
output of a line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from outreach_async._lazy import import_on_use

if TYPE_CHECKING:
    from outreach_async._core.limits import Rate, RateShare, RateUsage
    from outreach_async._core.retry import RetryPolicy
    from outreach_async._wire_words import UNSET, ContactFields, ContactRow, DuplicatePolicy, Outcome
    from outreach_async.bulk import BulkProgress, BulkReport, ContactOutcome
    from outreach_async.client import OutreachClient
    from outreach_async.errors import (
        BulkError,
        BulkStopped,
        BulkSuspended,
        ContactRejected,
        DeadlineExceeded,
        Excluded,
        Forbidden,
        InvalidRequest,
        JournalError,
        NotFound,
        OutreachError,
        RateLimited,
        StatusError,
        TransportError,
        Unauthorized,
        UnexpectedResponse,
    )
    from outreach_async.models import (
        Campaign,
        CampaignSteps,
        CreatedContact,
        FieldList,
        Mailbox,
        NewContact,
        Page,
        ResponseInfo,
        Step,
        Target,
        Template,
        Undecodable,
        WorkspaceField,
    )
    from outreach_async.pagination import Collected, Pager
    from outreach_async.rates import SharedRate
    from outreach_async.rates._redis import RedisRate
    from outreach_async.store import Store
    from outreach_async.transport._aiohttp import AiohttpTransport
    from outreach_async.transport._httpx import HttpxTransport
    from outreach_async.transport._sockets import SocketTransport
    from outreach_async.transport._wire import Middleware, Progress, Request, Response, Transport

    __version__: str

__all__ = [
    "UNSET",
    "AiohttpTransport",
    "BulkError",
    "BulkProgress",
    "BulkReport",
    "BulkStopped",
    "BulkSuspended",
    "Campaign",
    "CampaignSteps",
    "Collected",
    "ContactFields",
    "ContactOutcome",
    "ContactRejected",
    "ContactRow",
    "CreatedContact",
    "DeadlineExceeded",
    "DuplicatePolicy",
    "Excluded",
    "FieldList",
    "Forbidden",
    "HttpxTransport",
    "InvalidRequest",
    "JournalError",
    "Mailbox",
    "Middleware",
    "NewContact",
    "NotFound",
    "Outcome",
    "OutreachClient",
    "OutreachError",
    "Page",
    "Pager",
    "Progress",
    "Rate",
    "RateLimited",
    "RateShare",
    "RateUsage",
    "RedisRate",
    "Request",
    "Response",
    "ResponseInfo",
    "RetryPolicy",
    "SharedRate",
    "SocketTransport",
    "StatusError",
    "Step",
    "Store",
    "Target",
    "Template",
    "Transport",
    "TransportError",
    "Unauthorized",
    "Undecodable",
    "UnexpectedResponse",
    "WorkspaceField",
]

_EXPORTS: Final = {
    "bulk": "BulkProgress BulkReport ContactOutcome",
    "client": "OutreachClient",
    "errors": (
        "BulkError BulkStopped BulkSuspended ContactRejected DeadlineExceeded Excluded Forbidden InvalidRequest JournalError "
        "NotFound OutreachError RateLimited StatusError TransportError Unauthorized UnexpectedResponse"
    ),
    "models": (
        "Campaign CampaignSteps CreatedContact FieldList Mailbox NewContact Page ResponseInfo Step Target Template Undecodable "
        "WorkspaceField"
    ),
    "pagination": "Collected Pager",
    "rates": "SharedRate",
    "rates._redis": "RedisRate",
    "_core.retry": "RetryPolicy",
    "_core.limits": "Rate RateShare RateUsage",
    "store": "Store",
    "transport._aiohttp": "AiohttpTransport",
    "transport._httpx": "HttpxTransport",
    "transport._sockets": "SocketTransport",
    "transport._wire": "Middleware Progress Request Response Transport",
    "_wire_words": "UNSET ContactFields ContactRow DuplicatePolicy Outcome",
}
_import: Final = import_on_use(__name__, __name__, _EXPORTS)


def __getattr__(name: str) -> Any:
    """Import a public name, or read the version, when it is first used."""
    if name == "__version__":
        return import_module("importlib.metadata").version(__name__)
    if name in {"converters", "hooks"}:  # the client's annotations name them
        return import_module(f"{__name__}.{name}")
    return _import(name)


def __dir__() -> list[str]:
    return sorted(__all__)
