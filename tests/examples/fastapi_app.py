"""A FastAPI app whose requests share one client. Run it with `uvicorn fastapi_app:app`.

The client reads `OUTREACH_BASE_URL`, `OUTREACH_OWNER_KEY` and `OUTREACH_WORKSPACE` from the environment. It is opened when the
app starts and closed when the app stops, so that requests share its connections, its rate limit and its retry budget.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from outreach_async import BulkReport, ContactRejected, InvalidRequest, Mailbox, NewContact, OutreachClient, OutreachError
from outreach_async.audit import Report, audit


class State(TypedDict):
    outreach: OutreachClient


@asynccontextmanager
async def lifespan(_app: FastAPI) -> AsyncIterator[State]:
    async with OutreachClient(deadline=10.0) as client:  # a visitor waits for at most ten seconds
        yield {"outreach": client}


def get_outreach(request: Request) -> OutreachClient:
    client: OutreachClient = request.state.outreach
    return client


class Signup(BaseModel):
    email: str
    first_name: str


app = FastAPI(lifespan=lifespan)


@app.post("/signups")
async def sign_up(signup: Signup, client: Annotated[OutreachClient, Depends(get_outreach)]) -> dict[str, str]:
    contact = NewContact(signup.email, first_name=signup.first_name)
    created = await client.contacts.create(contact, duplicates="update_missing_fields")
    return {"status": created.status}


@app.get("/mailboxes/first")
async def first_mailbox(client: Annotated[OutreachClient, Depends(get_outreach)]) -> Mailbox | None:
    return await client.mailboxes.list().first()  # FastAPI writes models, pages and reports as JSON


@app.post("/imports")
async def import_signups(signups: list[Signup], client: Annotated[OutreachClient, Depends(get_outreach)]) -> BulkReport:
    return await client.contacts.create_many([signup.model_dump() for signup in signups])


@app.get("/audit")
async def audit_workspace(client: Annotated[OutreachClient, Depends(get_outreach)], workspace: str) -> Report:
    return await audit(client, [workspace])


@app.get("/mailboxes")
async def mailboxes(client: Annotated[OutreachClient, Depends(get_outreach)]) -> list[str]:
    return [mailbox.email async for mailbox in client.mailboxes.list()]


@app.exception_handler(OutreachError)
async def on_outreach_error(_request: Request, error: Exception) -> JSONResponse:
    """Answer 422 if the visitor's data is invalid, and 503 if the service failed. Messages of the library contain no secret."""
    status = 422 if isinstance(error, InvalidRequest | ContactRejected) else 503
    return JSONResponse({"error": str(error)}, status_code=status)
