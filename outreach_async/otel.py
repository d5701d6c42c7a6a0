"""Record spans and metrics with OpenTelemetry.

Both follow the semantic conventions for HTTP. Install the extra `otel`.

```python
import anyio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from outreach_async import OutreachClient
from outreach_async.otel import OtelHook

spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))


async def main() -> None:
    async with OutreachClient(hooks=[OtelHook(tracer_provider=provider)]) as client:
        await client.workspaces.fields()
    print([(span.name, span.kind.name) for span in spans.get_finished_spans()])
    # -> [('GET /workspaces/{workspace_id}/all-fields', 'CLIENT'), ('list_fields', 'INTERNAL')]


anyio.run(main)
```

A call is recorded as a span of kind INTERNAL, and each attempt as a child
span of kind CLIENT, as the conventions require for retried requests.
During an attempt, its span is the current span, which lets instrumented
HTTP libraries add child spans. The route of a `client.request()` is its
path with placeholders for ids, such as `/contacts/{contact_id}`.

`OtelHook` sends no trace header, because the service is a third party; an
instrumented HTTP library may send one. By default, `OtelHook` uses the
global providers. Pass `base_url` to `OtelHook` if the transport has none.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import urlsplit

import attrs

from outreach_async import hooks
from outreach_async._plumbing import parse_base_url, require_types
from outreach_async.models import ID_PREFIXES

try:
    from opentelemetry import context, metrics, trace
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanKind, StatusCode, TracerProvider
except ImportError as missing:
    raise ImportError("opentelemetry is not installed; run: pip install 'outreach_async[otel]'") from missing

__all__ = ["OtelHook"]

_SCOPE: Final = "outreach_async"
_SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.38.0"
_FIRST_ERROR_STATUS: Final = 400
URL_TEMPLATES: Final = {
    "list_campaigns": "/campaigns",
    "list_mailboxes": "/mailboxes",
    "create_contact": "/contacts",
    "list_steps": "/campaigns/{campaign_id}/steps",
    "list_fields": "/workspaces/{workspace_id}/all-fields",
}
_WORD: Final = re.compile(r"(?:[a-z]+(?:[-_][a-z]+)*|v[0-9]{1,3})?")
_METHODS: Final = frozenset({"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY", "TRACE"})
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # seconds, as the conventions say


@attrs.define
class _CallSpans:
    name: str
    span: Span
    attributes: dict[str, Any]
    url_attributes: dict[str, Any]
    attempt_span: Span = trace.INVALID_SPAN
    context_token: Any = None


class OtelHook:
    """A hook that records the events of clients as spans and metrics.

    - `http.client.request.duration`: the duration of each attempt, in
      seconds
    - `outreach.client.repeats`: the number of retries, by operation and
      kind of failure
    - `outreach.bulk.rows`: the number of rows, by outcome
    - `outreach.bulk.rate_limit`: the rate limit of a bulk run, in requests
      per second
    - `outreach.bulk.state_changes`: the number of state changes of bulk
      runs, by new state

    Args:
        tracer_provider, meter_provider: Provide the tracer and the meter;
            default to the global providers.
        base_url: Address of the service, for clients whose transport has
            no `base_url`; user and password are removed.

    Raises:
        InvalidRequest: `base_url` is not a valid base URL.

    Example:
        ```python
        hook = OtelHook(base_url="https://api.example")
        client = OutreachClient(transport=FakeTransport(fake), workspace="space_1", hooks=[hook])
        print(len(await client.workspaces.fields()))  # -> 37
        ```
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        base_url: str | None = None,
    ) -> None:
        require_types(OtelHook, locals())
        self._base_url = None if base_url is None else str(parse_base_url(base_url))
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider, schema_url=_SCHEMA_URL)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider, schema_url=_SCHEMA_URL)
        self._durations = meter.create_histogram(
            "http.client.request.duration", "s", "Duration of HTTP client requests.", explicit_bucket_boundaries_advisory=_BUCKETS
        )
        self._retries = meter.create_counter("outreach.client.repeats", "{repeat}", "Number of retries.")
        self._rows = meter.create_counter("outreach.bulk.rows", "{row}", "Number of bulk rows with an outcome.")
        self._rate_limits = meter.create_gauge("outreach.bulk.rate_limit", "{request}/s", "Rate limit of a bulk run.")
        self._state_changes = meter.create_counter(
            "outreach.bulk.state_changes", "{change}", "Number of state changes of bulk runs."
        )
        self._calls: dict[int, _CallSpans] = {}

    def __call__(self, event: hooks.Event, /) -> None:
        """Record an event."""
        match event:
            case hooks.CallStarted():
                self._start_call(event)
            case hooks.AttemptStarted():
                self._start_attempt(self._calls[event.call], event)
            case hooks.AttemptEnded():
                self._end_attempt(self._calls[event.call], event)
            case hooks.CallEnded():
                self._end_call(self._calls.pop(event.call), event)
            case hooks.RetryScheduled():
                self._retries.add(1, {"outreach.operation": event.operation, "outreach.evidence": event.evidence})
            case hooks.RowEnded():
                self._rows.add(1, {"outreach.outcome": event.status.value, "outreach.certain": event.certain})
            case hooks.BulkStateChanged():
                self._state_changes.add(1, {"outreach.state": event.state})
        if isinstance(event, hooks.BulkStateChanged | hooks.BulkRateChanged) and event.limit is not None:
            self._rate_limits.set(event.limit)

    def _start_call(self, event: hooks.CallStarted) -> None:
        base_url = event.base_url or self._base_url
        parts = urlsplit(base_url or "")
        is_known = event.method in _METHODS
        attributes: dict[str, Any] = {"http.request.method": event.method if is_known else "_OTHER"}
        span_attributes: dict[str, Any] = {} if is_known else {"http.request.method_original": event.method}
        if base_url is not None:
            span_attributes["url.full"] = base_url + event.target
            port = parts.port or (443 if parts.scheme == "https" else 80)
            attributes |= {"server.address": parts.hostname, "server.port": port, "url.scheme": parts.scheme}
        attributes["url.template"] = parts.path + (URL_TEMPLATES.get(event.operation) or find_route(event.target))
        call_attributes: dict[str, Any] = {"outreach.operation": event.operation}
        if event.run is not None:
            call_attributes["outreach.run"] = event.run
        span = self._tracer.start_span(event.operation, kind=SpanKind.INTERNAL, attributes=call_attributes)
        name = f"{event.method if is_known else 'HTTP'} {attributes['url.template']}"
        self._calls[event.call] = _CallSpans(name, span, attributes, span_attributes)

    def _start_attempt(self, call: _CallSpans, event: hooks.AttemptStarted) -> None:
        attributes = {**call.attributes, **call.url_attributes}
        if event.attempt > 1:
            attributes["http.request.resend_count"] = event.attempt - 1
        parent = trace.set_span_in_context(call.span)
        call.attempt_span = self._tracer.start_span(call.name, parent, kind=SpanKind.CLIENT, attributes=attributes)
        call.context_token = context.attach(trace.set_span_in_context(call.attempt_span))

    def _end_attempt(self, call: _CallSpans, event: hooks.AttemptEnded) -> None:
        context.detach(call.context_token)
        result: dict[str, Any] = {}
        if event.status_code is not None:
            result["http.response.status_code"] = event.status_code
        if event.error is not None or (event.status_code or 0) >= _FIRST_ERROR_STATUS:
            result["error.type"] = event.error or str(event.status_code)  # the conventions require the status
        if event.request_id is not None:
            call.attempt_span.set_attribute("http.response.header.x-request-id", [event.request_id])
        _end_span(call.attempt_span, result)
        self._durations.record(event.seconds, {**call.attributes, **result}, trace.set_span_in_context(call.attempt_span))

    def _end_call(self, call: _CallSpans, event: hooks.CallEnded) -> None:
        call.span.set_attribute("outreach.attempts", event.attempts)
        if event.request_id is not None:
            call.span.set_attribute("outreach.request_id", event.request_id)
        _end_span(call.span, {} if event.error is None else {"error.type": event.error})


def _end_span(span: Span, attributes: dict[str, Any]) -> None:
    span.set_attributes(attributes)
    if "error.type" in attributes:
        span.set_status(StatusCode.ERROR)
    span.end()


def find_route(target: str) -> str:
    """Return the path of a target with placeholders for ids, so that the names of spans are few."""
    return "/".join(map(_name_segment, target.partition("?")[0].split("/")))


def _name_segment(segment: str) -> str:
    for kind, prefix in ID_PREFIXES.items():
        if segment.startswith(prefix):
            return f"{{{kind.replace(' ', '_')}_id}}"
    return segment if _WORD.fullmatch(segment) else "{id}"
