"""What is asked of a service, and what its answers say: requests and answers as values, nothing sent here.

A probe is a generator: it yields requests, is sent answers, and returns what they mean. It speaks HTTP, not the typed client, so
that an answer may be as odd as it likes.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from secrets import token_hex
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.refusals import masked_text, secret_parts
from outreach_async.transport.wire import Request, Response

T = TypeVar("T")

Dialogue = Generator[Request, Response, T]
"""Requests out, answers in, and at the end what they mean."""

DOMAIN: Final = "conformance.example"
"""Where every address of a creation is: nobody can have one there (RFC 2606)."""

OUTCOMES: Final = ("added", "skipped", "overwriten", "updated_missing_fields")
"""`status` of a creation, spelled as the interface does."""

_SHOWN: Final = 500
_READ: Final = 20_000
_TOO_MANY_REQUESTS: Final = 429


class Unclear(Exception):
    """An answer that decides nothing: none at all, a server's error, a redirect, or no JSON."""


@attrs.frozen
class Site:
    """Whom to ask, and as whom.

    Attributes:
        workspace: Workspace id.
        owner_key: API key of a user of the workspace; without it no contact is created.
        writes: Whether contacts may be created in the workspace.
        campaign: Id of a campaign of the workspace, not live, that created contacts may join; `None` if none may.
        gmail: Whether two of the contacts may have an address at gmail.com, in a form that Gmail gives nobody.
        headers: Header fields to send along, such as a credential.
        nonce: A text that makes this run's addresses its own.
        hidden: Further texts that must not be shown, such as a proxy's password.

    Raises:
        InvalidRequest: The values cannot go together.

    Example:
        ```python
        site = Site("space_1", owner_key="key_1", writes=True)
        print(len(await check(FakeTransport(fake), site)))  # -> 0
        ```
    """

    workspace: str = attrs.field(converter=str)
    owner_key: str | None = attrs.field(default=None, repr=False)
    writes: bool = False
    campaign: str | None = None
    gmail: bool = False
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    nonce: str = attrs.field(factory=lambda: token_hex(6))
    hidden: tuple[str, ...] = attrs.field(default=(), repr=False)

    def __attrs_post_init__(self) -> None:
        if self.writes and not self.owner_key:
            raise InvalidRequest("writes: creating contacts takes an owner_key; set OUTREACH_OWNER_KEY")
        if not self.writes and (self.campaign or self.gmail):
            raise InvalidRequest(
                "campaign, gmail: they say which contacts may be created, but writes are not allowed; allow those, or leave these"
            )

    @property
    def secrets(self) -> tuple[str, ...]:
        """Texts that must not be shown."""
        return (*((self.owner_key,) if self.owner_key else ()), *secret_parts(self.headers), *self.hidden)

    def get(self, path: str, **query: Any) -> Request:
        """Make a request for a path with query parameters."""
        return Request("GET", f"{path}?{urlencode(query)}" if query else path, self.headers)

    def page(self, kind: str, page: Any, display: Any, **query: Any) -> Request:
        """Make a request for a page of `campaigns` or `mailboxes`."""
        return self.get(f"/{kind}", workspace=self.workspace, display=display, page=page, **query)

    def fields(self) -> Request:
        """Make a request for the fields of the workspace."""
        return self.get(f"/workspaces/{quote(self.workspace, safe='')}/all-fields")

    def steps(self, campaign: str) -> Request:
        """Make a request for the steps of a campaign."""
        return self.get(f"/campaigns/{quote(campaign, safe='')}/steps")

    def address(self, name: str) -> str:
        """Make an address that nobody has and no other run uses."""
        return f"{name}-{self.nonce}@{DOMAIN}"

    def creation(
        self,
        email: str,
        duplicates: str = "skip",
        fields: Mapping[str, str] | None = None,
        *,
        key: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Request:
        """Make a creation.

        Args:
            email: The e-mail.
            duplicates: The duplicates option.
            fields: Further members of the body.
            key: An owner key instead of the site's.
            options: Members of `upload_options`; `LEFT_OUT` leaves one out.
        """
        given = {"duplicates": duplicates, "strict_validation": False, "campaign": None, **(options or {})}
        body = {
            "owner_key": self.owner_key if key is None else key,
            "workspace": self.workspace,
            "email": email,
            "upload_options": {name: value for name, value in given.items() if value is not LEFT_OUT},
            **(fields or {}),
        }
        return Request("POST", "/contacts", {**self.headers, "content-type": "application/json"}, json.dumps(body).encode())

    def told(self, answer: Response) -> str:
        """Show an answer in at most some 500 characters, without secrets."""
        body = masked_text(answer.body[:_READ].decode(errors="replace"), self.secrets)
        words = " ".join("".join(c if c.isprintable() else " " for c in body).split())
        return f"{answer.status} {words[:_SHOWN]}{'...' if len(words) > _SHOWN else ''}".rstrip()


LEFT_OUT: Final = object()
"""Stands for a member of `upload_options` that is not sent."""


def document(answer: Response) -> Any:
    """Read an answer's JSON; `None` if it is none."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def throttled(answer: Response) -> bool:
    """Tell whether the service asks to come back later, under whatever status."""
    return answer.status == _TOO_MANY_REQUESTS or "retry-after" in answer.headers


def accepted(answer: Response) -> bool:
    """Tell whether the service did what was asked: a refusal may come under status 200, too.

    Raises:
        Unclear: The answer says neither.
    """
    if throttled(answer):
        raise Unclear(f"the service answered {answer.status}: too many requests")
    if 400 <= answer.status < 500:  # noqa: PLR2004 - the range of refusals
        return False
    said = document(answer)
    if not 200 <= answer.status < 300 or not isinstance(said, dict):  # noqa: PLR2004 - the range of successes
        raise Unclear(f"the service answered {answer.status}{'' if said else ' without JSON'}")
    return said.get("status") in ("ok", *OUTCOMES)  # no set: it may be anything, a list too


def served(answer: Response) -> dict[str, Any]:
    """Read the document of an answer that must be a success.

    Raises:
        Unclear: It is none.
    """
    if not accepted(answer):
        raise Unclear(f"the service refused with {answer.status}")
    found: dict[str, Any] = document(answer)
    return found


def rows(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Read the items of a list's answer; whatever is no object is left out."""
    data = said.get("data")
    return [item for item in data if isinstance(item, dict)] if isinstance(data, list) else []


def number(said: Mapping[str, Any], name: str) -> int:
    """Read a whole number of an answer.

    Raises:
        Unclear: There is none.
    """
    value = said.get(name)
    if type(value) is not int and not (type(value) is float and value.is_integer()):
        raise Unclear(f"{name} is no whole number")
    return int(value)
