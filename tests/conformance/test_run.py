"""A run over a transport: waiting, giving up, drift, and merging earlier results."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from email.utils import formatdate
from pathlib import Path
from typing import Any

import anyio
import attrs
import pytest
from support.calibration import KEY, READER, SPACE, WRITER, measure, service
from support.time import virtual_time

from outreach_async import Progress, Request, Response
from outreach_async.conformance._calibration import build_access, build_calibration, find_drifts, measure_service, merge_earlier
from outreach_async.conformance._target import (
    Dialogue,
    DialogueRunner,
    InconclusiveError,
    KnobFinding,
    observed,
    unobserved,
)
from outreach_async.errors import InvalidRequest, TransportError
from outreach_async.fake import Behaviour, FakeTransport, HeaderAuth, RateLimit, faults
from outreach_async.fake.behaviour import load_behaviour, load_knob_values

Answer = Callable[[], Response]


class Scripted:
    """A transport that gives answers in order and then repeats the last one."""

    secrets = ("proxy-pass",)

    def __init__(self, *answers: Response | Exception) -> None:
        self.sent_count = 0
        self._answers = list(answers)

    async def send(self, _request: Request, _progress: Progress, /) -> Response:
        await anyio.lowlevel.checkpoint()
        self.sent_count += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def aclose(self) -> None:
        """Do nothing."""


def one_question() -> Dialogue[object]:
    try:
        return (yield READER.fields())
    except InconclusiveError as unclear:
        return str(unclear)


@pytest.mark.parametrize("value", ["1", formatdate(0, usegmt=True)], ids=["seconds", "a date gone by"])
@virtual_time
async def test_a_throttled_request_is_sent_again_after_the_retry_after(value: str) -> None:
    late, ok = Response(429, {"retry-after": value}), Response(200, {}, b"{}")
    transport = Scripted(late, late, ok)
    carrier = DialogueRunner(transport, max_throttled=2)
    started_at = anyio.current_time()
    assert await carrier.run(one_question()) == ok
    assert (transport.sent_count, carrier.request_count, carrier.retry_after_values) == (3, 3, [value] * 2)
    assert anyio.current_time() - started_at == pytest.approx(2)


async def test_a_retry_after_longer_than_the_patience_is_not_waited_for() -> None:
    late = Response(429, {"retry-after": "61"})
    transport = Scripted(late)
    assert await DialogueRunner(transport, max_throttled=60).run(one_question()) == late
    assert transport.sent_count == 1


async def test_a_service_that_never_responds_is_reported_without_secrets() -> None:
    failing = Scripted(TransportError("no connection through proxy-pass for " + KEY))
    found = (await measure_service(failing, WRITER)).findings
    assert found["auth"].explanation == "no response: no connection through *** for ***"
    assert not any(finding.possible for finding in found.values())
    assert failing.sent_count == 3


@virtual_time
async def test_a_response_that_does_not_arrive_is_given_up() -> None:
    fake = service()
    fake.faults.add(faults.hang())
    assert await DialogueRunner(FakeTransport(fake)).run(one_question()) == "no response within 30 s"


async def test_a_dialogue_that_handles_no_errors_ends_with_them() -> None:
    def unaware() -> Dialogue[Response]:
        return (yield READER.fields())

    with pytest.raises(InconclusiveError, match="no response"):
        await DialogueRunner(Scripted(TransportError("gone"))).run(unaware())


async def test_a_rate_limit_is_reported_but_not_its_limit() -> None:
    fake = service(Behaviour(rate_limit=RateLimit(5)))
    found = (await measure_service(FakeTransport(fake), READER, max_throttled=0)).findings
    assert found["rate_limit"].possible == ()
    assert found["rate_limit"].explanation.startswith("there is a rate limit, but its value is unknown: ")
    assert "Retry-After '60'" in found["rate_limit"].explanation
    assert found["past_end"].possible == ()
    found = (await measure_service(FakeTransport(service()), READER)).findings
    assert re.fullmatch("not tested: [0-9]+ requests were .* none was throttled", found["rate_limit"].explanation)


async def test_throttling_with_status_200_is_not_a_refusal() -> None:
    fake = service(Behaviour(rate_limit=RateLimit(8), error_renderer="200_with_error"))
    found = (await measure_service(FakeTransport(fake), READER, max_throttled=0)).findings
    assert not {knob: finding for knob, finding in found.items() if finding.is_only("reject")}


def findings(**possible: tuple[Any, ...]) -> dict[str, KnobFinding]:
    return {knob: KnobFinding(readings, "so") for knob, readings in possible.items()}


def test_a_knob_with_another_value_has_drifted() -> None:
    before = {"past_end": ("empty",), "over_max": ("clamp", "serve"), "strict_fields": (frozenset({"zip"}),)}
    now = findings(past_end=("clamp",), over_max=("reject",), strict_fields=("all",))
    assert find_drifts(before, now) == [
        "past_end was 'empty', is now 'clamp': so",
        "over_max was 'clamp' or 'serve', is now 'reject': so",
        "strict_fields was ['zip'], is now 'all': so",
    ]


def test_an_unobserved_or_possibly_equal_knob_has_not_drifted() -> None:
    auth = HeaderAuth("authorization", "Bearer", frozenset({"hush-hush"}))
    before = {"past_end": ("empty",), "over_max": ("clamp", "serve"), "auth": (auth,), "order": ("oldest",)}
    now = findings(past_end=(), over_max=("serve",), auth=(HeaderAuth(),), order=("newest", "oldest"), numbers=("float",))
    assert find_drifts(before, now) == []


def test_more_precise_findings_of_an_earlier_run_are_kept() -> None:
    before = {"past_end": ("empty",), "over_max": ("serve",), "order": ("oldest",), "numbers": ("float",)}
    now = findings(past_end=(), over_max=("clamp", "serve"), order=("newest",), numbers=("int_when_whole", "mixed"), list_date=())
    merged = merge_earlier(before, now)
    assert {knob: finding.possible for knob, finding in merged.items()} == {
        "past_end": ("empty",),
        "over_max": ("serve",),
        "order": ("newest",),
        "numbers": ("int_when_whole", "mixed"),
        "list_date": (),
    }
    assert merged["past_end"].explanation == "observed by an earlier run, but not now: so"
    assert merged["over_max"].explanation == "so; an earlier run was more precise"
    assert merge_earlier({"over_max": ("clamp", "serve")}, now)["over_max"] == now["over_max"]  # it stays undecided


def test_a_calibration_is_read_back_from_its_file(tmp_path: Path) -> None:
    behaviour = attrs.evolve(Behaviour.lenient(), order="newest", numbers="mixed")
    known = build_calibration(measure(behaviour).findings)
    path = tmp_path / "behaviour.toml"
    path.write_text(known.to_toml("measured\ntoday"), encoding="utf-8")
    assert load_behaviour(path) == known.behaviour
    assert load_knob_values(path) == {knob: (reading,) for knob, reading in known.observed.items()} | dict(known.undecided)
    assert path.read_text(encoding="utf-8").startswith("# measured\n# today\n\n")
    assert find_drifts(load_knob_values(path), measure(behaviour).findings) == []


def test_findings_become_a_behaviour() -> None:
    known = build_calibration(
        {"past_end": observed("clamp", "so"), "over_max": KnobFinding(("serve", "clamp"), "or"), "order": unobserved("why")}
    )
    assert known.behaviour == Behaviour(past_end="clamp", over_max="serve")
    assert (known.observed, known.undecided) == ({"past_end": "clamp"}, {"over_max": ("serve", "clamp")})
    assert known.unseen == {"order": "why"}


def options(live: str = "https://api.example", workspace: str = SPACE, **more: Any) -> Namespace:
    rest = {"allow_writes": None, "outreach_campaign": None, "outreach_header": [], **more}
    return Namespace(outreach_live=live, outreach_workspace=workspace, **rest)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (options(""), "--outreach-live"),
        (options(workspace=""), "--outreach-workspace"),
        (options("api.example"), "base_url"),
        (options(allow_writes="space_2"), "pass the same id"),
        (options(allow_writes=SPACE), "--allow-writes: .* OUTREACH_OWNER_KEY"),
        (options(outreach_campaign=SPACE), "--outreach-campaign: .* --allow-writes"),
        (options(outreach_header=["authorization"]), "NAME=VARIABLE, got a value without '='"),
        (options(outreach_header=["authorization=NOT_SET"]), "in NAME=VARIABLE, got a variable that is not set"),
    ],
)
def test_invalid_options_are_refused(given: Namespace, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        build_access(given, {})


def test_secrets_come_from_the_environment() -> None:
    given = options(allow_writes=SPACE, outreach_header=["Authorization=TOKEN"])
    access = build_access(given, {"TOKEN": "Bearer tok-123456", "OUTREACH_OWNER_KEY": KEY})
    assert (access.owner_key, access.headers, access.writes) == (KEY, {"authorization": "Bearer tok-123456"}, True)
