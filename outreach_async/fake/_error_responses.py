"""Error responses of the service (rules E2 and E3). A renderer turns a `Refusal`, which describes an error, into a response."""

from __future__ import annotations

import html
import http.client
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import attrs

from outreach_async.transport._wire import Response

_MAX_NAME_LENGTH: Final = 60
_KEY_PATTERN: Final = re.compile(r"(?<=key_)[0-9A-Za-z_-]+|(?<=owner_key=)[^&]*")


@attrs.frozen
class Refusal(Exception):
    """An error with which the service refuses a request.

    Attributes:
        status: HTTP status code.
        code: The kind of error, such as `unknown_owner_key`.
        message: The reason. It never contains an owner key.
        field: The body field (with dots between nested names) or query parameter at fault; `None` if there is no single one.
        hints: Hints about likely mistakes, for the `x-fake-hint` header and the request log.
        headers: Additional header fields of the response, such as `retry-after`.

    Example:
        ```python
        fake.behaviour = Behaviour(error_renderer=lambda refusal: (refusal.status, {}, refusal.code.encode()))
        print(fake.handle(Request("GET", "/campaigns/camp_gone/steps")).body)  # -> b'campaign_not_found'
        ```
    """

    status: int
    code: str
    message: str
    field: str | None = None
    hints: tuple[str, ...] = ()
    headers: Mapping[str, str] = attrs.Factory(dict)


def refusal_error(
    status: int,
    code: str,
    message: str,
    field: str | None = None,
    *,
    hints: tuple[str, ...] = (),
    headers: Mapping[str, str] | None = None,
    knob: str = "",
) -> Refusal:
    # If `knob`, the name of an attribute of `Behaviour`, is given, a hint says that this attribute decided the refusal.
    decided = (f"decided by Behaviour.{knob}",) if knob else ()
    return Refusal(status, code, message, field, (*hints, *decided), headers or {})


def sanitize_name(name: str) -> str:
    """Shorten a name that a request contains, escape characters that are not ASCII, and mask owner keys."""
    # The result can be shown in messages. A caller that mixes up arguments may send an owner key as a name.
    return mask_owner_keys(name)[:_MAX_NAME_LENGTH].encode("unicode_escape").decode("ascii")


def mask_owner_keys(text: str) -> str:
    return _KEY_PATTERN.sub("***", text)


def mask_document(value: Any) -> Any:
    """Return a JSON document with every owner key replaced by `***`. Any value of the key `owner_key` is replaced, too."""
    if isinstance(value, dict):
        return {mask_owner_keys(name): "***" if name == "owner_key" else mask_document(item) for name, item in value.items()}
    if isinstance(value, list):
        return [mask_document(item) for item in value]
    return mask_owner_keys(value) if isinstance(value, str) else value


RenderedError = tuple[int, Mapping[str, str], bytes]

ErrorRenderer = Callable[[Refusal], RenderedError]


def _render_json(status: int, document: Any) -> RenderedError:
    return status, {"content-type": "application/json"}, json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()


def render_nested(refusal: Refusal) -> RenderedError:
    error = {"code": refusal.code, "message": refusal.message, "field": refusal.field}
    return _render_json(refusal.status, {"status": "error", "error": error})


BODILESS: Final = (204, 304)


def error_response(code: int) -> Response:
    """Return an error response in the service's default format."""
    if code in BODILESS:
        return Response(code)
    message = http.client.responses.get(code, "Error")
    return Response(*render_nested(Refusal(code, message.lower().replace(" ", "_"), message)))


RendererName = Literal["nested", "flat", "text", "html", "200_with_error"]

_HTML: Final = "<html><head><title>{status}</title></head><body><p>{message}</p></body></html>"

RENDERERS: Final[dict[RendererName, ErrorRenderer]] = {
    "nested": render_nested,
    "flat": lambda refusal: _render_json(refusal.status, {"message": refusal.message}),
    "text": lambda refusal: (refusal.status, {"content-type": "text/plain; charset=utf-8"}, refusal.message.encode()),
    "html": lambda refusal: (
        refusal.status,
        {"content-type": "text/html; charset=utf-8"},
        _HTML.format(status=refusal.status, message=html.escape(refusal.message)).encode(),
    ),
    "200_with_error": lambda refusal: (200, *render_nested(refusal)[1:]),
}
