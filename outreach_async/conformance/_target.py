"""Build requests, send them over a transport, and interpret the responses.

A probe sends requests and returns a finding. Probes use plain HTTP, so that they can handle any response.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from secrets import token_hex
from typing import Any, Final
from urllib.parse import quote, urlencode

import anyio
import attrs

from outreach_async import Progress, Request, Response, Transport
from outreach_async._plumbing import mask_string, parse_retry_after, require_plain, secret_parts, trim
from outreach_async.errors import InvalidRequest, TransportError, shorten


@attrs.frozen
class KnobFinding:
    possible: tuple[Any, ...]
    explanation: str

    @property
    def is_observed(self) -> bool:
        return len(self.possible) == 1

    def is_only(self, value: object) -> bool:
        return self.possible == (value,)


def observed(value: Any, how: str) -> KnobFinding:
    return KnobFinding((value,), how)


def ambiguous(values: Iterable[Any], how: str) -> KnobFinding:
    return KnobFinding(tuple(values), how)


def unobserved(why: str) -> KnobFinding:
    return KnobFinding((), why)


Probe = Callable[..., Awaitable[KnobFinding]]


async def run_probe(probe: Probe, *about: Any) -> KnobFinding:
    """Run a probe. If a response is missing or inconclusive, the finding has no value, and says so."""
    try:
        return await probe(*about)
    except InconclusiveError as error:
        return unobserved(str(error))


_RESPONSE_TIMEOUT: Final = 30.0  # seconds
MAX_THROTTLED: Final = 120.0  # seconds of waiting, in total, before retries of throttled requests
_MAX_UNANSWERED: Final = 3  # maximum number of requests to a service that has never responded


class Sender:
    """Sends requests over a transport. If the first three requests get no response, it sends no more."""

    def __init__(self, transport: Transport, secrets: tuple[str, ...] = (), max_throttled: float = MAX_THROTTLED) -> None:
        self.request_count = 0
        self.retry_after_values: list[str] = []
        self._transport = transport
        self._remaining_wait = max_throttled
        self._responded = False
        self._failure = ""
        self._secrets = secrets

    async def send(self, request: Request) -> Response:
        """Send a request, and again after each throttled response. Without a response, raise `InconclusiveError`."""
        while True:
            response = await self._send_once(request)
            if not is_throttled(response):
                return response
            self.retry_after_values.append(response.headers.get("retry-after", ""))
            # At least a second: waits of 0 s would never use up the budget, and the loop would never end.
            wait = max(1.0, parse_retry_after(response.headers, now=time.time()) or 0.0)
            if wait > self._remaining_wait:
                return response
            self._remaining_wait -= wait
            await anyio.sleep(wait)

    async def _send_once(self, request: Request) -> Response:
        if not self._responded and self.request_count == _MAX_UNANSWERED:  # otherwise, each request could wait for its timeout
            raise InconclusiveError(self._failure)
        self.request_count += 1
        try:
            with anyio.fail_after(_RESPONSE_TIMEOUT):
                response = await self._transport.send(request, Progress())
        except TimeoutError:
            self._failure = f"no response within {_RESPONSE_TIMEOUT:g} s"
            raise InconclusiveError(self._failure) from None
        except TransportError as error:
            self._failure = f"no response: {mask_string(str(error), self._secrets)}"
            raise InconclusiveError(self._failure) from None
        self._responded = True
        return response


DOMAIN: Final = "conformance.example"
"""Domain of the created contacts' e-mail addresses. RFC 2606 reserves `.example`, so no real address has this domain."""
CUSTOM_CODE: Final = re.compile(r"custom_[1-9][0-9]{0,8}", re.ASCII)
NO_MATCH: Final = "no value of this knob matches this behaviour"
OUTCOMES: Final = ("added", "skipped", "overwriten", "updated_missing_fields")
"""Values of `status` in the response to a create request, spelled as in the service's API documentation."""

_MAX_SHOWN: Final = 500
_MAX_BODY_READ: Final = 20_000
_TOO_MANY_REQUESTS: Final = 429


class InconclusiveError(Exception):
    """Raised if a response is missing or inconclusive, such as a server error, a redirect or invalid JSON."""


def _lower_names(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _strip(value: str | None) -> str | None:
    return trim(value)  # type: ignore[no-any-return]  # a string stays one


def _strip_workspace(value: object) -> str:
    return trim(str(value)) or ""


@attrs.frozen
class Access:
    """The workspace to check, the credentials, and the permission to create contacts.

    Attributes:
        workspace: Workspace id.
        owner_key: API key of a user of the workspace; required to create contacts.
        writes: Whether contacts may be created in the workspace.
        campaign: Id of a draft campaign to which contacts may be added; `None` for no campaign.
        headers: Header fields to send, such as `authorization`.
        nonce: A string that makes the addresses of this run unique.

    Raises:
        InvalidRequest: The values contradict each other.

    Example:
        ```python
        access = Access("space_1", owner_key="key_1", writes=True)
        print(len(await check(FakeTransport(fake), access)))  # -> 0
        ```
    """

    workspace: str = attrs.field(converter=_strip_workspace)
    owner_key: str | None = attrs.field(default=None, repr=False, converter=_strip)
    writes: bool = False
    campaign: str | None = attrs.field(default=None, converter=_strip)
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False, converter=_lower_names)
    nonce: str = attrs.field(factory=partial(token_hex, 6))

    def __attrs_post_init__(self) -> None:
        for field in ("workspace", "owner_key", "campaign"):
            require_plain(field, getattr(self, field) or "", "correct it")
        if self.writes and not self.owner_key:
            raise InvalidRequest("owner_key: expected an API key for writes=True, got none; pass an owner_key, or omit writes")
        if not self.writes and self.campaign:
            raise InvalidRequest("campaign: needs writes=True, got writes=False; pass writes=True, or omit campaign")


def secrets_of(access: Access, transport: object) -> tuple[str, ...]:
    """Return the strings to mask in reports and errors. A transport may have secrets, such as a proxy password."""
    own = [access.owner_key] if access.owner_key else []
    return (*own, *secret_parts(access.headers), *getattr(transport, "secrets", ()))


@attrs.frozen
class Requests(Access):
    """Builds the requests to a workspace. `send` sends one of them."""

    send: Callable[[Request], Awaitable[Response]] = attrs.field(kw_only=True, repr=False, eq=False)
    secrets: tuple[str, ...] = attrs.field(default=(), kw_only=True, repr=False)

    def get(self, path: str, **query: Any) -> Request:
        return Request("GET", f"{path}?{urlencode(query)}" if query else path, self.headers)

    def page(self, kind: str, page: Any, display: Any) -> Request:
        return self.get(f"/{kind}", workspace=self.workspace, display=display, page=page)

    def fields(self) -> Request:
        return self.get(f"/workspaces/{quote(self.workspace, safe='')}/all-fields")

    def steps(self, campaign: str) -> Request:
        return self.get(f"/campaigns/{quote(campaign, safe='')}/steps")

    def address(self, name: str) -> str:
        return f"{name}-{self.nonce}@{DOMAIN}"

    def creation(
        self,
        email: str,
        duplicates: str = "skip",
        fields: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
        omit: str = "",
    ) -> Request:
        """Return a request that creates a contact. `options` are those of `upload_options`; `omit` is a key to leave out."""
        given: dict[str, Any] = {"duplicates": duplicates, "strict_validation": False, "campaign": None, **(options or {})}
        body: dict[str, Any] = {
            "owner_key": self.owner_key if key is None else key,
            "workspace": self.workspace,
            "email": email,
            "upload_options": given,
            **(fields or {}),
        }
        (body if omit in body else given).pop(omit, None)
        return Request("POST", "/contacts", {**self.headers, "content-type": "application/json"}, json.dumps(body).encode())

    def format_response(self, response: Response) -> str:
        """Return a response as a string of about 500 characters at most, with secrets masked."""
        body = mask_string(response.body[:_MAX_BODY_READ].decode(errors="replace"), self.secrets)
        words = " ".join("".join(c if c.isprintable() else " " for c in body).split())
        return f"{response.status} {shorten(words, _MAX_SHOWN)}".rstrip()


def parse_document(response: Response) -> Any:
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def is_throttled(response: Response) -> bool:
    return response.status == _TOO_MANY_REQUESTS or "retry-after" in response.headers


def is_accepted(response: Response) -> bool:
    """Return whether a response shows that the service accepted the request. A response with the status 200 can be a refusal."""
    if is_throttled(response):
        raise InconclusiveError(f"the service throttled the request with {response.status}")
    if 400 <= response.status < 500:  # noqa: PLR2004 - the range of refusals
        return False
    document = parse_document(response)
    if not 200 <= response.status < 300 or not isinstance(document, dict):  # noqa: PLR2004 - the range of successes
        fault = "" if isinstance(document, dict) else " without a JSON object"
        raise InconclusiveError(f"the service responded with {response.status}{fault}")
    return document.get("status") in ("ok", *OUTCOMES)  # a tuple, not a set, because the value may be unhashable


def require_success(response: Response) -> dict[str, Any]:
    if not is_accepted(response):
        raise InconclusiveError(f"the service refused the request with {response.status}")
    found: dict[str, Any] = parse_document(response)
    return found


def extract_rows(document: Mapping[str, Any], name: str = "data") -> list[dict[str, Any]]:
    """Return the items of a list in a document. Items that are not objects are left out."""
    data = document.get(name)
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def require_integer(document: Mapping[str, Any], name: str) -> int:
    value = document.get(name)
    if type(value) is not int and not (type(value) is float and value.is_integer()):
        raise InconclusiveError(f"{name} is not a whole number")
    return int(value)
