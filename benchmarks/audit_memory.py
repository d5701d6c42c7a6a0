"""Measure the peak memory of an audit, and of its reports as text, JSON and HTML. The service runs in another process.

Run: python benchmarks/audit_memory.py [mailboxes] [workspaces] [findings]

Without `findings`, all mailboxes are healthy, and four share a domain. With it, every mailbox has a finding, they are on 2,000
domains, and the reports are written too.
"""

from __future__ import annotations

import json
import math
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer
from tempfile import TemporaryDirectory
from typing import Any, Final

import anyio

from outreach_async import OutreachClient
from outreach_async._plumbing import atomic_write
from outreach_async.audit import audit
from outreach_async.audit.reports import iterate

_DISPLAY: Final = 2_000
_SICK_DOMAINS: Final = 2_000
_A_DOMAIN: Final = 4
"""Number of mailboxes per domain, as in the demo and in most workspaces."""


def _sick(number: int) -> dict[str, Any]:
    """Return the fields of a mailbox with a finding, on one of 2,000 domains."""
    domain = number % _SICK_DOMAINS
    about: dict[str, Any] = {"email": f"firstname.lastname{number}@outreach-domain{domain}.example", "domain_ip": "203.0.113.9"}
    kinds: dict[int, dict[str, Any]] = {0: {"dkim": False}, 1: {"domain_ip": None}, 2: {"bounced_30days": 60 + number % 40}}
    return _mailbox(number) | about | kinds[number % 3]


def _mailbox(number: int) -> dict[str, Any]:
    return {
        "id": f"mailbox_{number:016x}",
        "status": "active",
        "email": f"firstname.lastname{number}@outreach-domain{number // _A_DOMAIN}.example",
        "sender_name": "Firstname Lastname, Example Company",
        "campaigns": number % 5,
        "daily_limit": 40,
        "spf": True,
        "dkim": True,
        "dmarc": True,
        "blacklists": 0,
        "age": "2 years",
        "sent_today": number % 40,
        "sent_30days": 400 + number % 400,
        "opened_14days": 45.5,
        "sent_90days": 1200 + number % 1200,
        "bounced_30days": number % 3,
        "avg_open_rate": 46.25,
        "avg_click_rate": 2.5,
        "last_activity": f"{1 + number % 23} hours ago",
        "type": "Google" if number % 2 else "SMTP & IMAP",
        "created": "2 years ago",
        "domain_ip": f"203.0.113.{number % 250}",
        "server_ip": f"198.51.{number // 250 % 250}.{number % 250}",
        "created_at": 1_700_000_000 + number,
    }


class _Handler(StreamRequestHandler):
    """Handler that lists the mailboxes of a workspace `space_<first>x<count>`, numbered from `first`."""

    def handle(self) -> None:
        """Respond to requests until the connection is closed."""
        while line := self.rfile.readline():
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            found = re.search(rb"workspace=space_(\d+)x(\d+)(findings)?", line)
            page = re.search(rb"page=(\d+)", line)
            assert found is not None
            assert page is not None
            body = _page(int(found[1]), int(found[2]), int(page[1]), sick=found[3] is not None)
            head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.wfile.write(head.encode() + body)


def _page(first: int, count: int, page: int, *, sick: bool) -> bytes:
    numbers = range(first, first + count)[(page - 1) * _DISPLAY : page * _DISPLAY]
    listing = {"status": "ok", "headers": [], "data": list(map(_sick if sick else _mailbox, numbers)), "total_found": count}
    return json.dumps({**listing, "current_page": page, "total_pages": math.ceil(count / _DISPLAY)}).encode()


def _serve() -> None:
    ThreadingTCPServer.daemon_threads = True
    with ThreadingTCPServer(("127.0.0.1", 0), _Handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


@contextmanager
def service() -> Iterator[str]:
    """Run the service in another process, and yield its URL."""
    with subprocess.Popen([sys.executable, __file__, "--serve"], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - this script
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


async def _audit(url: str, mailboxes: int, workspaces: int, kind: str) -> None:
    """Audit mailboxes spread over workspaces, and print the peak memory of this process in KiB."""
    each = mailboxes // workspaces
    async with OutreachClient(url) as client:
        report = await audit(client, [f"space_{number * each}x{each}{kind}" for number in range(workspaces)])
    assert report.mailboxes == each * workspaces
    with TemporaryDirectory() as folder:
        for form in ("terminal", "json", "html") if kind else ():
            atomic_write(Path(folder) / form, iterate(report, form))
    assert bool(kind) == bool(report.findings), report.findings[:3]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def peak(mailboxes: int, workspaces: int, kind: str = "") -> int:
    """Return the peak memory in KiB of a new process that audits this number of mailboxes."""
    with service() as url:
        command = [sys.executable, __file__, "--child", url, str(mailboxes), str(workspaces), kind]
        return int(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)  # noqa: S603 - this script


def main() -> None:
    """Print the peak memory and the time."""
    if sys.argv[1:2] == ["--serve"]:
        _serve()
    elif sys.argv[1:2] == ["--child"]:
        anyio.run(_audit, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    else:
        mailboxes, workspaces, kind = (sys.argv[1:] + ["100000", "1", ""][len(sys.argv) - 1 :])[:3]
        began = time.perf_counter()
        kib = peak(int(mailboxes), int(workspaces), kind)
        seconds = time.perf_counter() - began
        print(f"{mailboxes} mailboxes in {workspaces} workspaces {kind}: {kib / 1024:.1f} MiB, {seconds:.0f} s")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    main()
