"""An S3 server for tests (moto, on loopback), and a proxy in front of it that loses replies.

Run: python -m support.s3

Prints the port of a server, and exits when its standard input is closed.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

Fault = Literal["pass", "drop the reply", "answer 503", "refuse with 503", "conflict", "forbid"]

BUCKET = "journals"
SECRET = "s3cr3t/k3y"


def environment(port: int) -> dict[str, str]:
    """Return environment variables that make obstore use a server on loopback."""
    return {
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
    }


@contextmanager
def serve_s3() -> Iterator[int]:
    """Run an S3 server with an empty bucket in a separate process, and yield its port."""
    command = [sys.executable, "-m", "support.s3"]
    with subprocess.Popen(
        command,
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()


class Proxy:
    """A proxy in front of an S3 server. Each PUT takes the next of `faults`; if there is none, it passes."""

    def __init__(self, upstream: int) -> None:
        self.faults: deque[Fault] = deque()
        self.puts: list[str] = []
        self.forbids_reads = False
        self.ignores_conditions = False
        self._upstream = upstream
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port = self._server.server_address[1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _forward(self) -> None:
                proxy.answer(self)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = _forward  # noqa: N815 - names of http.server

            def log_message(self, *_: Any) -> None: ...

        return Handler

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Forward a request and return its reply, or inject the fault of the request."""
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        fault: Fault = "forbid" if self.forbids_reads else "pass"
        if handler.command == "PUT":
            self.puts.append(handler.path)
            fault = self.faults.popleft() if self.faults else "pass"
        if fault == "refuse with 503":
            _reply(handler, 503, {}, b"<Error><Code>SlowDown</Code></Error>")
            return
        if fault == "conflict":
            _reply(handler, 409, {}, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
            return
        if fault == "forbid":
            _reply(handler, 403, {}, f"<Error><Code>AccessDenied</Code><Message>{SECRET}</Message></Error>".encode())
            return
        upstream = http.client.HTTPConnection("127.0.0.1", self._upstream, timeout=30)
        headers = {k: v for k, v in handler.headers.items() if not (self.ignores_conditions and k.lower() == "if-none-match")}
        upstream.request(handler.command, handler.path, body, headers)
        response = upstream.getresponse()
        content = response.read()
        upstream.close()
        if fault == "drop the reply":
            handler.close_connection = True
        elif fault == "answer 503":
            _reply(handler, 503, {}, b"<Error><Code>SlowDown</Code></Error>")
        else:
            _reply(handler, response.status, dict(response.getheaders()), content)

    @contextmanager
    def running(self) -> Iterator[Proxy]:
        """Answer requests until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _reply(handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], content: bytes) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        if name.lower() not in {"connection", "content-length", "transfer-encoding", "date", "server"}:
            handler.send_header(name, value)
    handler.send_header("Content-Length", headers.get("Content-Length", str(len(content))))  # a reply to HEAD has no content
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


def main() -> None:
    from moto.server import ThreadedMotoServer  # slow to import, and only the process of the server needs it

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    request.add_header("Authorization", "AWS4-HMAC-SHA256 Credential=id/20260101/us-east-1/s3/aws4_request, Signature=none")
    urllib.request.urlopen(request).close()  # noqa: S310 - loopback
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
