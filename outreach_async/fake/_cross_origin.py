"""Allow web pages of some origins to send requests to a served fake (CORS)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

import attrs

from outreach_async.fake._messages import identify_server
from outreach_async.fake.faults import Exchange, Service, SlicedService, exchange_in_slices
from outreach_async.transport._wire import Request, Response

ANY: Final = "*"

_METHODS: Final = "GET, HEAD, POST, PUT, PATCH, DELETE"
_ASKS_FOR: Final = "access-control-request-headers"


def is_allowed(origin: str, origins: frozenset[str]) -> bool:
    return bool(origins & {ANY, origin})


@attrs.frozen
class CrossOriginService:
    """A service that browsers may use from pages of the given origins. It answers preflights itself."""

    service: Service | SlicedService
    origins: frozenset[str]

    def exchange_in_slices(self, request: Request, /) -> Generator[None, None, Exchange]:
        origin = request.headers.get("origin", "")
        if not origin or not is_allowed(origin, self.origins):
            return (yield from exchange_in_slices(self.service, request))
        headers = {"access-control-allow-origin": origin, "access-control-expose-headers": "*", "vary": "origin"}
        if request.method == "OPTIONS" and "access-control-request-method" in request.headers:
            headers |= {"access-control-allow-methods": _METHODS, "access-control-max-age": "600", **identify_server()}
            return Exchange(Response(204, headers | {"access-control-allow-headers": request.headers.get(_ASKS_FOR, "*")}), None)
        exchange = yield from exchange_in_slices(self.service, request)
        response = exchange.response
        return (
            exchange
            if response is None
            else attrs.evolve(exchange, response=attrs.evolve(response, headers={**response.headers, **headers}))
        )
