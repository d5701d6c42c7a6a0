"""Decoding a page of 2,000 mailboxes, and encoding one contact with fifteen fields."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any, Final

import attrs
import msgspec

from benchmarks.groups.rounds import Bench, Job, present
from benchmarks.measuring import Figures, timed
from benchmarks.peers import generated, ours
from benchmarks.results import Table
from benchmarks.workload import BIG, OWNER_KEY, WORKSPACE, Pages, body_of
from outreach_async._core.operations import ContactRequests, CopyDetector, RequestDefaults
from outreach_async._wire_words import MailboxStatus
from outreach_async.converters import OutreachConverter
from outreach_async.models import Mailbox, Page

_SECONDS: Final = 0.4

_GENERATED: Final = "openapi-python-client"


def _decoders(body: bytes) -> dict[str, Callable[[], Any]]:
    page: Any = Page[Mailbox]
    decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(page)
    ours, hooked, own = OutreachConverter(), OutreachConverter(), OutreachConverter()
    hooked.register_structure_hook(MailboxStatus, lambda value, kind: kind(value))
    own.use(_OwnMailbox)
    every = _vary_page(body, lambda box: box.update(region="eu", tags=["a", "b"]))
    null = _vary_page(body, lambda box: box.update(sender_name=None))
    return {
        "msgspec, the same classes": lambda: decoder.decode(body),
        "converters.loads": lambda: ours.loads(body, page),
        "the same, two unknown fields in every mailbox": lambda: ours.loads(every, page),
        "the same, for the first time": lambda: OutreachConverter().loads(every, page),
        "the same, a required null in every mailbox, kept": lambda: ours.loads(null, page, keep=True),
        "the same, a subclass with the two fields": lambda: own.loads(every, page),
        "the same, a hook for the status": lambda: hooked.loads(body, page),
        "json.loads, dicts": lambda: json.loads(body),
        _GENERATED: lambda: generated.module("models").MailboxPage.from_dict(json.loads(body)),
    }


@attrs.frozen(kw_only=True)
class _OwnMailbox(Mailbox):
    region: str = ""
    tags: list[str] = attrs.field(factory=list)


def _vary_page(body: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """Return the page with each of its mailboxes changed."""
    page = json.loads(body or b'{"data": []}')
    for box in page["data"]:
        change(box)
    return json.dumps(page, separators=(",", ":")).encode()


def _encoders() -> dict[str, Callable[[], Any]]:
    creation = ContactRequests.from_options(
        OWNER_KEY,
        WORKSPACE,
        RequestDefaults.from_headers({}, OutreachConverter),
        duplicates="skip",
        strict_validation=False,
        campaign=None,
        copy_detector=CopyDetector(),
    )
    ready, body = ours.contact(1), body_of(1)
    french = attrs.evolve(ready, first_name="Zoé", city="Orléans", personal_note="rencontrée à la foire")
    custom = attrs.evolve(ready, custom={"custom_1": "gold", "custom_2": "x", "custom_33": "hello"})
    return {
        "dict, json.dumps": lambda: json.dumps(body).encode(),
        "dict, msgspec": lambda: msgspec.json.encode(body),
        "NewContact to request, checks included": lambda: creation.build(ready),
        "the same, not all ASCII": lambda: creation.build(french),
        "the same, with three custom variables": lambda: creation.build(custom),
        "building the NewContact": lambda: ours.contact(1),
        _GENERATED: lambda: json.dumps(generated.contact().to_dict()).encode(),
    }


def measure_decode(row: str, seconds: float) -> Figures:
    """Measure one decoder and the memory of its models. Runs in the worker process."""
    work = _decoders(Pages(BIG, 1).body(1))[row]
    figures = timed(work, seconds)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kept = work()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept
    return {**figures, "kept": (after - before) / BIG}


def measure_encode(row: str, seconds: float) -> Figures:
    """Measure one encoder. Runs in the worker process."""
    return timed(_encoders()[row], seconds)


def _rows(names: list[str]) -> list[str]:
    return present({name: "openapi_python_client" if name == _GENERATED else "" for name in names})


def decode(bench: Bench) -> list[Table]:
    """Measure decoders."""
    time = Table("Decoding a page of 2,000 mailboxes", "client CPU, us a page", ("msgspec, the same classes",))
    kept = Table("Memory that a decoded mailbox keeps", "bytes")

    def take(job: Job, figures: Figures) -> None:
        time.add(job.row, "CPU", figures["cpu"])
        kept.add(job.row, "kept", figures["kept"])

    bench.interleave(_jobs(bench, measure_decode, list(_decoders(b""))), take)
    return [time, kept]


def encode(bench: Bench) -> list[Table]:
    """Measure encoders."""
    table = Table("Encoding one contact of fifteen fields", "client CPU, us", ("dict, json.dumps", "dict, msgspec"))
    jobs = _jobs(bench, measure_encode, list(_encoders()))
    bench.interleave(jobs, lambda job, figures: table.add(job.row, "CPU", figures["cpu"]))
    return [table]


def _jobs(bench: Bench, function: Callable[..., Figures], names: list[str]) -> list[Job]:
    return [Job(row, "CPU", function, {"row": row, "seconds": _SECONDS * bench.scale}) for row in _rows(names)]
