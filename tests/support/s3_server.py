"""An S3 server (moto) on loopback.

Run: python -m support.s3_server

Prints its port, and exits when its standard input is closed.
"""

from __future__ import annotations

import sys
import urllib.request

BUCKET = "journals"


def main() -> None:
    from moto.server import ThreadedMotoServer  # slow to import; the tests need only `BUCKET`

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
