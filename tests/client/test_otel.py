"""OpenTelemetry: spans and metrics of calls and bulk runs, as the SDK's in-memory exporters receive them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from support.time import virtual_time
from support.transport import HANG, Script, added, lost, page, skipped, status

from outreach_async import InvalidRequest, NewContact, OutreachClient, OutreachError, Progress, Request, Response, RetryPolicy
from outreach_async.otel import OtelHook

pytestmark = virtual_time

FULL: Callable[[], float] = lambda: 1.0  # noqa: E731 - every wait as long as it may be
CONTACT = NewContact("ann@b.example")
BASE = "https://ann:pass-word@api.example/v1"


class Telemetry:
    def __init__(self, *, base_url: str | None = BASE, **options: Any) -> None:
        self._spans = InMemorySpanExporter()
        self._metrics = InMemoryMetricReader()
        self.tracers = TracerProvider(**options)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        meters = MeterProvider(metric_readers=[self._metrics])
        self.hook = OtelHook(tracer_provider=self.tracers, meter_provider=meters, base_url=base_url)

    def client(self, transport: Any, **options: Any) -> OutreachClient:
        options = {"retry": RetryPolicy(jitter=FULL), "hooks": [self.hook], **options}
        return OutreachClient(transport=transport, owner_key="key_secret", workspace="space_1", **options)

    def spans(self, kind: SpanKind = SpanKind.CLIENT) -> list[ReadableSpan]:
        return [span for span in self._spans.get_finished_spans() if span.kind is kind]

    def points(self, name: str) -> list[Any]:
        data = self._metrics.get_metrics_data()
        resources = data.resource_metrics if data else []
        metrics = [metric for resource in resources for scope in resource.scope_metrics for metric in scope.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]

    def counts(self, name: str) -> dict[tuple[Any, ...], float]:
        return {tuple(point.attributes.values()): point.value for point in self.points(name)}


def ids(span: ReadableSpan) -> tuple[int, int]:
    own = span.get_span_context()
    assert own is not None
    return own.trace_id, own.span_id


def attributes(span: ReadableSpan) -> Mapping[str, Any]:
    assert span.attributes is not None
    return span.attributes


async def test_an_attempt_is_a_client_span_under_its_call_with_http_conventions() -> None:
    telemetry = Telemetry()
    await telemetry.client(Script(0.25, added())).contacts.create(CONTACT)
    (attempt,), (call,) = telemetry.spans(), telemetry.spans(SpanKind.INTERNAL)
    assert (attempt.name, call.name) == ("POST /v1/contacts", "create_contact")
    assert attempt.parent is not None
    assert (attempt.parent.span_id, call.parent) == (ids(call)[1], None)
    assert attributes(attempt) == {
        "http.request.method": "POST",
        "url.full": "https://api.example/v1/contacts",
        "url.scheme": "https",
        "url.template": "/v1/contacts",
        "server.address": "api.example",
        "server.port": 443,
        "http.response.status_code": 201,
        "http.response.header.x-request-id": ("req_1",),
    }
    assert attributes(call) == {"outreach.operation": "create_contact", "outreach.attempts": 1, "outreach.request_id": "req_1"}
    assert (attempt.status.status_code, call.status.status_code) == (StatusCode.UNSET, StatusCode.UNSET)


async def test_each_retry_is_a_span_with_its_ordinal_and_its_error() -> None:
    telemetry = Telemetry()
    one = telemetry.client(Script(lost(), status(503, retry_after="2"), HANG, page()), timeout=5.0)
    await one.campaigns.list(display=7)
    first, second, third, last = map(attributes, telemetry.spans())
    ordinals = [found_attributes.get("http.request.resend_count") for found_attributes in (first, second, third, last)]
    errors = [found_attributes.get("error.type") for found_attributes in (first, second, third, last)]
    assert ordinals == [None, 1, 2, 3]
    assert errors == ["TransportError", "503", "timeout", None]
    assert (second["http.response.status_code"], "http.response.status_code" in first) == (503, False)
    assert last["url.full"] == "https://api.example/v1/campaigns?workspace=space_1&page=1&display=7"
    codes = [span.status.status_code for span in telemetry.spans()]
    assert codes == [StatusCode.ERROR] * 3 + [StatusCode.UNSET]
    (call,) = telemetry.spans(SpanKind.INTERNAL)
    assert (attributes(call)["outreach.attempts"], call.status.status_code) == (4, StatusCode.UNSET)
    repeats = telemetry.counts("outreach.client.repeats")
    assert repeats == {("list_campaigns", "ambiguous"): 2, ("list_campaigns", "refused"): 1}


async def test_the_span_of_a_failed_call_has_its_error_class() -> None:
    telemetry = Telemetry()
    with pytest.raises(OutreachError):
        await telemetry.client(Script(status(404, b"{}"))).campaigns.steps("camp_1")
    (call,), (attempt,) = telemetry.spans(SpanKind.INTERNAL), telemetry.spans()
    assert (attributes(call)["error.type"], call.status.status_code) == ("NotFound", StatusCode.ERROR)
    assert (attempt.name, attributes(attempt)["error.type"]) == ("GET /v1/campaigns/{campaign_id}/steps", "404")


@pytest.mark.parametrize(("code", "error"), [(399, None), (400, "400")])
async def test_an_attempt_has_an_error_if_its_status_is_400_or_above(code: int, error: str | None) -> None:
    telemetry = Telemetry()
    with pytest.raises(OutreachError):
        await telemetry.client(Script(status(code, b"{}"))).campaigns.steps("camp_1")
    (attempt,) = telemetry.spans()
    assert attributes(attempt).get("error.type") == error


async def test_a_cancelled_call_ends_its_spans() -> None:
    telemetry = Telemetry()
    with anyio.move_on_after(3.0):
        await telemetry.client(Script(HANG)).workspaces.fields()
    (call,), (attempt,) = telemetry.spans(SpanKind.INTERNAL), telemetry.spans()
    assert (attributes(call)["error.type"], attributes(attempt)["error.type"]) == ("cancelled", "cancelled")
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_a_call_is_under_the_current_span_and_its_attempt_is_current_inside() -> None:
    telemetry = Telemetry()
    current: list[Any] = []

    class Looking(Script):
        async def send(self, request: Request, progress: Progress, /) -> Response:
            current.append(trace.get_current_span().get_span_context().span_id)
            return await super().send(request, progress)

    tracer = telemetry.tracers.get_tracer("user")
    with tracer.start_as_current_span("mine") as mine:
        await telemetry.client(Looking(lost(), added())).contacts.create(CONTACT)
        assert trace.get_current_span() is mine
        await telemetry.client(Looking(added())).contacts.create_many([CONTACT])
    single, row = telemetry.spans(SpanKind.INTERNAL)[:2]
    assert single.parent is not None
    assert row.parent is not None
    assert single.parent.span_id == row.parent.span_id == mine.get_span_context().span_id
    assert current == [ids(span)[1] for span in telemetry.spans()]
    assert attributes(row)["outreach.run"] > 0


async def test_the_duration_of_each_attempt_is_measured_in_seconds() -> None:
    telemetry = Telemetry()
    await telemetry.client(Script(2.0, status(500), 0.5, added(), 0.25, added())).contacts.create_many([CONTACT, CONTACT])
    points = telemetry.points("http.client.request.duration")
    found_attributes = {point.attributes["http.response.status_code"]: (point.count, point.sum) for point in points}
    assert found_attributes == {500: (1, pytest.approx(2.0)), 201: (2, pytest.approx(0.75))}
    assert points[0].attributes["error.type"] == "500"
    assert " ".join(sorted(points[1].attributes)) == (
        "http.request.method http.response.status_code server.address server.port url.scheme url.template"
    )
    assert points[0].explicit_bounds[0] == 0.005


async def test_rows_limits_and_states_of_bulk_runs_are_counted() -> None:
    telemetry = Telemetry()
    script = Script(added(), status(429, retry_after="5"), skipped(), lost(), skipped(), status(422), added())
    await telemetry.client(script).contacts.create_many([NewContact(f"u{n}@b.example") for n in range(9)], concurrency=1)
    rows = telemetry.counts("outreach.bulk.rows")
    assert rows == {("added", True): 6, ("skipped", True): 1, ("skipped", False): 1, ("rejected", True): 1}
    states = telemetry.counts("outreach.bulk.state_changes")
    assert (states["paused",], states["finished",]) == (1, 1)
    (limit,) = telemetry.points("outreach.bulk.rate_limit")
    assert limit.value > 0


async def test_a_method_unknown_to_the_conventions_is_other() -> None:
    telemetry = Telemetry()
    await telemetry.client(Script(page())).request("PURGE", "/campaigns")
    (span,) = telemetry.spans()
    named = [attributes(span)[name] for name in ("http.request.method", "http.request.method_original")]
    assert (span.name, named) == ("HTTP /v1/campaigns", ["_OTHER", "PURGE"])


@pytest.mark.parametrize(
    ("target", "route"),
    [
        ("/", "/"),
        ("/workspaces/space_1/all-fields?x=1", "/workspaces/{workspace_id}/all-fields"),
        ("/v2/campaigns/camp_abc/do_not_send/", "/v2/campaigns/{campaign_id}/do_not_send/"),
        ("/steps/personalized_step_1", "/steps/{personalized_template_id}"),
        ("/contacts/ann@company.example/3f2a", "/contacts/{id}/{id}"),
        ("/files/Ann%20Lee/1", "/files/{id}/{id}"),
    ],
)
async def test_the_spans_of_any_other_request_are_named_by_its_route(target: str, route: str) -> None:
    telemetry = Telemetry()
    await telemetry.client(Script(page())).request("GET", target)
    (span,) = telemetry.spans()
    assert (span.name, attributes(span)["url.template"]) == (f"GET /v1{route}", f"/v1{route}")


@pytest.mark.parametrize(
    ("own", "fallback", "url"),
    [
        (None, "http://fallback.example", ("http", "fallback.example", 80, "http://fallback.example/contacts")),
        ("http://api.example:8080", "http://b.example", ("http", "api.example", 8080, "http://api.example:8080/contacts")),
        (None, None, (None, None, None, None)),
    ],
    ids=["the hook's", "the transport's", "unknown"],
)
async def test_the_server_address_is_that_of_the_transport_or_else_of_the_hook(own: Any, fallback: Any, url: Any) -> None:
    telemetry, script = Telemetry(base_url=fallback), Script(added())
    script.base_url = own  # type: ignore[attr-defined]  # a transport may have one
    await telemetry.client(script).contacts.create(CONTACT)
    found = attributes(telemetry.spans()[0])
    assert tuple(map(found.get, ("url.scheme", "server.address", "server.port", "url.full"))) == url
    assert found["url.template"] == "/contacts"


def test_an_unknown_kind_of_event_is_ignored(anyio_backend: Any) -> None:
    unknown: Any = object()
    telemetry = Telemetry()
    telemetry.hook(unknown)
    assert telemetry.spans() == telemetry.points("outreach.bulk.rows") == []
    assert anyio_backend


def test_an_invalid_base_url_is_refused(anyio_backend: Any) -> None:
    with pytest.raises(InvalidRequest, match="base_url"):
        OtelHook(base_url="api.example")
    assert anyio_backend


async def test_without_an_sdk_the_hook_does_nothing(caplog: pytest.LogCaptureFixture) -> None:
    script = Script(lost(), added())
    one = OutreachClient(transport=script, owner_key="key_secret", workspace="space_1", hooks=[OtelHook()])
    await one.contacts.create(CONTACT)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def test_without_the_extra_the_error_names_it(anyio_backend: Any) -> None:
    code = "import sys\nsys.modules['opentelemetry'] = None\nimport outreach_async.otel"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "ImportError: opentelemetry is not installed; run: pip install 'outreach_async[otel]'"
    )
    assert anyio_backend
