"""Fuzz, guided by coverage, all code that reads external input: responses, header fields, request targets, URLs and files.

Run: python -m tools.fuzz TARGET [OPTION ...], with options of libFuzzer, such as -max_total_time=60 or -artifact_prefix=FOLDER/

Requires atheris: pip install atheris. A target starts from real responses and files. For every input, it must raise only its
documented errors, finish within 10 seconds, and use less than 1 GB. The test suite runs each target briefly, too.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from outreach_async import Store

LARGEST: Final = 4_096
"""Maximum size of an input in bytes. Small inputs suffice to find faults."""
_STATUSES: Final = (200, 201, 400, 429, 500)


def answer(data: bytes) -> None:
    """Parse a body as a response of each operation, as a success and as an error."""
    from support.fuzz import KEY, every_operation

    from outreach_async import Response
    from outreach_async._core.operations import AttemptInfo
    from outreach_async._core.responses import build_status_error
    from outreach_async.errors import BODY_LIMIT, OutreachError

    chosen, body = (data[0], data[1:]) if data else (0, b"")
    response = Response(_STATUSES[chosen % len(_STATUSES)], {}, body)
    for operation in every_operation():
        try:
            if response.status >= _STATUSES[2]:
                raise build_status_error(operation.name, response, operation.secrets, now=0.0)
            repr(operation.parse(response, AttemptInfo(1, maybe_applied=False)))
        except OutreachError as error:
            assert len(error.body) <= BODY_LIMIT  # noqa: PT017 - an error is allowed, not required
            assert KEY not in repr(vars(error)) + str(error)  # noqa: PT017 - an error is allowed, not required


def fields(data: bytes) -> None:
    """Decode header fields as a backend passes them on, parse `Retry-After`, and mask the key."""
    from support.fuzz import KEY

    from outreach_async._core.responses import mask_headers
    from outreach_async._plumbing import parse_retry_after
    from outreach_async.transport._response_reader import decode_headers

    lines = [line.partition(b":") for line in data.split(b"\n")]
    headers = decode_headers((name, value) for name, _, value in lines)
    retry_after = parse_retry_after(headers, now=0.0)
    assert retry_after is None or 0 <= retry_after < 1e18 + 1
    for text in mask_headers(headers, (KEY,)).items():
        assert KEY not in "".join(text)
        "".join(text).encode()


def intake(data: bytes) -> None:
    """Read a body in pieces, with one of the content encodings."""
    from outreach_async.errors import TransportError
    from outreach_async.transport._response_reader import BodyReader

    coding, size, body = (data[0] % 3, data[1] + 1, data[2:]) if len(data) > 1 else (0, 1, data)
    with suppress(TransportError):
        taking = BodyReader({"content-encoding": ("", "gzip", "deflate")[coding]}, LARGEST)
        for at in range(0, len(body), size):
            taking.feed(body[at : at + size])
        assert len(taking.finish()) <= LARGEST


def request(data: bytes) -> None:
    """Build a request from the input. If the client accepts it, a transport must send it unchanged."""
    from outreach_async._core import operations
    from outreach_async._core.operations import RequestDefaults
    from outreach_async._plumbing import require_headers
    from outreach_async.converters import OutreachConverter
    from outreach_async.errors import InvalidRequest
    from outreach_async.transport._sending import merge_headers as fields_to_send
    from outreach_async.transport._sending import require_origin_form

    parts = data.decode(errors="surrogateescape").split("\n", 3)
    method, target, name, value = [*parts, "", "", "", ""][:4]
    with suppress(InvalidRequest):
        defaults = RequestDefaults.from_headers({}, OutreachConverter)
        raw = operations.raw_request(method, target, b"", require_headers({name: value}), defaults, params={}, json=None).request
        assert require_origin_form(raw.target) == target
        assert fields_to_send(raw, {})[name.lower()] == value or name.lower() == "accept-encoding"
        assert re.fullmatch(r"[!-~]+", raw.method + raw.target)
    with suppress(InvalidRequest):
        listed = operations.list_steps(f"camp_{target}", RequestDefaults.from_headers({}, OutreachConverter)).request
        assert re.fullmatch(r"/campaigns/[A-Za-z0-9_.~%-]+/steps", listed.target)


def base_url(data: bytes) -> None:
    """Parse a base URL, and open the connection pools for it."""
    from outreach_async._plumbing import parse_base_url
    from outreach_async.errors import InvalidRequest
    from outreach_async.transport._aiohttp_session import encode_prefix
    from outreach_async.transport._httpx_pool import HttpxPool

    with suppress(InvalidRequest):
        base = parse_base_url(data.decode(errors="replace"))
        assert re.fullmatch(r"[^\s\\?#]+", str(base))
        encode_prefix(base)
        for library in ("httpx", "httpx2"):
            pool = HttpxPool(base, library, 1, 1, context=None, proxy=None)
            assert re.fullmatch(r"[!-~]+", pool.default_headers["host"])


def journal(data: bytes) -> None:
    from outreach_async.errors import InvalidRequest, JournalError

    path = scratch("journal.db", data)
    for read in (lambda: Store(path).report(), lambda: list(Store(path).outcomes()), lambda: list(Store(path).events())):
        with suppress(InvalidRequest, JournalError):
            read()


def audit(data: bytes) -> None:
    """Load the input as an earlier audit, and write the comparison in every format."""
    import click
    from support.fuzz import an_audit

    from outreach_async._cli.auditing import load_report
    from outreach_async.audit.reports import REPORT_FORMATS, write
    from outreach_async.errors import InvalidRequest

    with suppress(InvalidRequest, click.ClickException):
        earlier = load_report("--compare", scratch("audit.json", data))
        report = an_audit().since(earlier)
        for form in REPORT_FORMATS:
            write(report, form)


def world(data: bytes) -> None:
    import click

    from outreach_async._cli.serving import find_entry_ids, load_world

    with suppress(click.ClickException):
        find_entry_ids(load_world(scratch("world.json", data)))


def behaviour(data: bytes) -> None:
    from outreach_async.fake.behaviour import BehaviourFileError, load_behaviour

    with suppress(BehaviourFileError):
        load_behaviour(scratch("behaviour.toml", data))


TARGETS: Final[dict[str, Callable[[bytes], object]]] = {
    target.__name__: target for target in (answer, fields, intake, request, base_url, journal, audit, world, behaviour)
}


@cache
def _folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-"))


def scratch(name: str, data: bytes) -> Path:
    """Write a temporary file, which the next input replaces."""
    path = _folder() / name
    path.write_bytes(data)
    return path


def corpus(target: str) -> tuple[bytes, ...]:
    """Return the initial inputs of a target: realistic responses, and files that the library has written."""
    from support.fuzz import KEY, ODD_BODIES, a_behaviour, a_journal, a_world, an_audit, good_answers

    shallow = tuple(body for body in ODD_BODIES if len(body) < LARGEST)
    return {
        "answer": (
            *(bytes([status]) + body for body in good_answers() for status in (0, 1, 2)),
            *(b"\x00" + body for body in shallow),
        ),
        "fields": (
            b"retry-after:7\ndate:Sun, 06 Nov 1994 08:49:37 GMT",
            b"Retry-After:Sun, 06 Nov 1994 08:50:37 +0100\nx-request-id:req_1",
            f"set-cookie:a=b\nx:{KEY}".encode(),
        ),
        "intake": tuple(
            bytes([coding, 7]) + zlib.compress(body, wbits=bits) for body in good_answers() for coding, bits in ((1, 31), (2, 15))
        ),
        "request": (b"GET\n/campaigns?workspace=space_1\nx-a\nb", b"POST\n/contacts\naccept-encoding\nbr", b"GET\n/a%2fb/../c\n"),
        "base_url": (
            b"http://localhost:80/v1",
            b"https://user:pw@api.example",
            b"http://[::1]:8080/a%20b",
            "http://b\xfccher.example".encode(),
        ),
        "journal": (a_journal(),),
        "audit": (json.dumps(an_audit().to_dict()).encode(),),
        "world": (a_world().encode(), b'{"workspaces":[{"id":"space_1","contacts":[{"email":"a@b.co"}]}]}'),
        "behaviour": (a_behaviour().encode(), b"[auth]\nheader='x'\ntokens=['a']\n[undecided]\nover_max=['clamp','serve']\n"),
    }[target]


def main(name: str, *options: str) -> None:
    """Fuzz one target. libFuzzer prints the result, and ends the process."""
    atheris: Any = import_module("atheris")
    with atheris.instrument_imports(include=["outreach_async"], exclude=["outreach_async.fake._simulation"]):
        TARGETS[name](b"")  # imports the modules that the target needs
        seeds = corpus(name)
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-"))
    for number, seed in enumerate(seeds):
        (folder / str(number)).write_bytes(seed)
    limits = ["-timeout=10", "-rss_limit_mb=1024", f"-max_len={max(LARGEST, *map(len, seeds))}"]
    atheris.Setup([sys.argv[0], *limits, *options, str(folder)], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    if not TARGETS.keys() & set(sys.argv[1:2]):
        sys.exit(f"TARGET: expected one of {', '.join(TARGETS)}; pass one, and options of libFuzzer")
    main(*sys.argv[1:])
