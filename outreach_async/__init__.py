"""An async client for the outreach service, on asyncio and trio.

    async with OutreachClient("https://api.example", owner_key="key_1", workspace="space_1") as client:
        async for campaign in client.campaigns.list(): ...
        async with client.contacts.create_many(rows) as outcomes:
            async for outcome in outcomes: ...

`outreach_async.fake` is the service in memory, for tests; `outreach_async.audit` judges mailboxes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from outreach_async.bulk import BulkProgress, BulkReport, ContactOutcome, Journal
    from outreach_async.client import OutreachClient
    from outreach_async.contacts import CreatedContact, NewContact
    from outreach_async.errors import (
        BulkStopped,
        BulkSuspended,
        DeadlineExceeded,
        InvalidRequest,
        JournalError,
        OutreachError,
        RateLimited,
        StatusError,
        TransportError,
        UnexpectedResponse,
    )
    from outreach_async.models import Campaign, CampaignSteps, Mailbox, Page, Step, Template, Undecodable, WorkspaceField
    from outreach_async.pages import Collected, Pager
    from outreach_async.retry import RetryPolicy
    from outreach_async.transport.aiohttp import AiohttpTransport
    from outreach_async.transport.httpx import HttpxTransport
    from outreach_async.transport.wire import Progress, Request, Response, Transport
    from outreach_async.vocabulary import UNSET, Outcome

__all__ = [
    "UNSET",
    "AiohttpTransport",
    "BulkProgress",
    "BulkReport",
    "BulkStopped",
    "BulkSuspended",
    "Campaign",
    "CampaignSteps",
    "Collected",
    "ContactOutcome",
    "CreatedContact",
    "DeadlineExceeded",
    "HttpxTransport",
    "InvalidRequest",
    "Journal",
    "JournalError",
    "Mailbox",
    "NewContact",
    "Outcome",
    "OutreachClient",
    "OutreachError",
    "Page",
    "Pager",
    "Progress",
    "RateLimited",
    "Request",
    "Response",
    "RetryPolicy",
    "StatusError",
    "Step",
    "Template",
    "Transport",
    "TransportError",
    "Undecodable",
    "UnexpectedResponse",
    "WorkspaceField",
]

_HOMES: Final = {
    "bulk": ("BulkProgress", "BulkReport", "ContactOutcome", "Journal"),
    "client": ("OutreachClient",),
    "contacts": ("CreatedContact", "NewContact"),
    "errors": (
        "BulkStopped",
        "BulkSuspended",
        "DeadlineExceeded",
        "InvalidRequest",
        "JournalError",
        "OutreachError",
        "RateLimited",
        "StatusError",
        "TransportError",
        "UnexpectedResponse",
    ),
    "models": ("Campaign", "CampaignSteps", "Mailbox", "Page", "Step", "Template", "Undecodable", "WorkspaceField"),
    "pages": ("Collected", "Pager"),
    "retry": ("RetryPolicy",),
    "transport.aiohttp": ("AiohttpTransport",),
    "transport.httpx": ("HttpxTransport",),
    "transport.wire": ("Progress", "Request", "Response", "Transport"),
    "vocabulary": ("UNSET", "Outcome"),
}
_HOME_OF: Final = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import outreach_async` costs next to nothing."""
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
