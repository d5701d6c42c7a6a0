"""A DNS server on loopback, in a thread of its own, that answers from a table and counts the questions."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Mapping
from types import TracebackType
from typing import Final, Self

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset

ZONE: Final[Mapping[str, Mapping[str, str]]] = {
    "gmail.com": {"MX": "5 mail.gmail.com."},
    "mx.example": {"MX": "10 mail.mx.example."},
    "two.example": {"MX": "10 a.mx.example.\n20 b.mx.example."},
    "null.example": {"MX": "0 .", "A": "127.0.0.1"},
    "a.example": {"A": "127.0.0.1"},
    "aaaa.example": {"AAAA": "::1"},
    "empty.example": {},
    "xn--strae-oqa.example": {"MX": "10 mail.mx.example."},
}
"""The records by domain and type. Other domains do not exist; `servfail.*`, `refused.*` and `silent.*` are broken."""


class NameServer:
    """Answers questions over UDP. A domain `once.*` fails the first time that it is asked for."""

    def __init__(self, zone: Mapping[str, Mapping[str, str]] = ZONE) -> None:
        self.zone = zone
        self.questions: Counter[tuple[str, str]] = Counter()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as waker:
            waker.sendto(b"", self._socket.getsockname())
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            packet, peer = self._socket.recvfrom(4096)
            if not packet:
                return
            reply = self._answer(dns.message.from_wire(packet))
            if reply is not None:
                self._socket.sendto(reply.to_wire(), peer)

    def _answer(self, query: dns.message.Message) -> dns.message.Message | None:
        (question,) = query.question
        domain, kind = question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype)
        self.questions[domain, kind] += 1
        reply = dns.message.make_response(query)
        reply.flags |= dns.flags.RA
        first, _, rest = domain.partition(".")
        if first == "silent":
            return None
        if first == "once" and self.questions[domain, kind] == 1:
            first = "servfail"
        if first in {"servfail", "refused"}:
            reply.set_rcode(dns.rcode.from_text(first))
        elif (records := self.zone.get(rest if first == "once" else domain)) is None:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif kind in records:
            reply.answer.append(dns.rrset.from_text(question.name, 60, "IN", kind, *records[kind].split("\n")))
        return reply
