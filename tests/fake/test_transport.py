from __future__ import annotations

import anyio
import pytest
from support.echo_service import CREATE, TinyService, answer_to
from support.time import virtual_time

from outreach_async import Progress, Request, Response, Transport
from outreach_async.errors import TransportError
from outreach_async.fake import FakeTransport
from outreach_async.fake import faults as f


async def test_it_is_a_transport_and_its_repr_shows_no_more() -> None:
    service = TinyService()
    transport = FakeTransport(service)
    assert isinstance(transport, Transport)
    assert transport.service is service
    assert repr(transport) == "<FakeTransport to TinyService>"
    await transport.aclose()
    assert repr(transport) == "<FakeTransport to TinyService, closed>"


async def test_a_request_sent_once_counts_as_sent_whatever_happens_next() -> None:
    service, progress = TinyService(), Progress()
    service.faults.script("create_contact", f.refuse())
    progress.sent = True
    transport = FakeTransport(service)
    with pytest.raises(TransportError) as refused:
        await transport.send(CREATE, progress)
    assert refused.value.maybe_sent
    assert progress.sent is True


@virtual_time
@pytest.mark.parametrize(
    "fault",
    [f.ok, f.status(503), f.latency(9), f.slow_drip(every=9), f.wrong_length(3), f.truncate(2), f.malformed("bad_chunk")],
    ids=lambda fault: fault.label,
)
async def test_head_gets_a_head_whatever_happens_to_the_body(fault: f.Fault) -> None:
    service = TinyService()
    service.faults.script("create_contact", fault)
    got = await FakeTransport(service).send(Request("HEAD", "/contacts"), Progress())
    assert (got.status, got.body) == (503 if fault == f.status(503) else 201, b"")


@pytest.mark.parametrize("fault", [f.latency(0.02), f.slow_drip(bytes=100, every=0.01)], ids=lambda fault: fault.label)
async def test_a_delayed_response_takes_its_time_and_arrives_completely(fault: f.Fault) -> None:
    service = TinyService()
    service.faults.script("create_contact", fault)
    start = anyio.current_time()
    assert (await FakeTransport(service).send(CREATE, Progress())).body == answer_to(CREATE)
    assert anyio.current_time() - start >= 0.015


@virtual_time
@pytest.mark.parametrize(
    ("fault", "acts"),
    [(f.hang(), 0), (f.latency(3600), 1), (f.slow_drip(every=3600), 1), (f.commit_then(f.hang()), 1)],
    ids=lambda value: getattr(value, "label", value),
)
async def test_a_cancelled_wait_counts_as_sent(fault: f.Fault, acts: int) -> None:
    service, progress = TinyService(), Progress()
    service.faults.script("create_contact", fault)
    with anyio.move_on_after(0.01) as scope:
        await FakeTransport(service).send(CREATE, progress)
    assert scope.cancelled_caught
    assert progress.sent is True
    assert len(service.requests) == acts


async def test_a_cancellation_after_the_service_acted_keeps_the_response() -> None:
    class Cancelling(TinyService):
        def exchange(self, request: Request, /) -> f.Exchange:
            scope.cancel()
            return super().exchange(request)

    answers: list[Response] = []
    with anyio.CancelScope() as scope:
        answers.append(await FakeTransport(Cancelling()).send(CREATE, Progress()))
    assert len(answers) == 1
