"""Test certificates for TLS servers and clients."""

from __future__ import annotations

import ssl
from functools import cache

import attrs
import trustme


@attrs.frozen
class Certificates:
    """A certificate authority, and TLS contexts for servers and clients."""

    authority: trustme.CA
    server: ssl.SSLContext
    stranger: ssl.SSLContext
    client: ssl.SSLContext


@cache
def certificates() -> Certificates:
    authority = trustme.CA()
    server, stranger = (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) for _ in range(2))
    authority.issue_cert("localhost").configure_cert(server)
    authority.issue_cert("stranger.example").configure_cert(stranger)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.configure_trust(client)
    return Certificates(authority, server, stranger, client)


@attrs.frozen
class Mutual:
    """TLS contexts of a server that requires client certificates, and of a client that has one."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@cache
def mutual() -> Mutual:
    authority = certificates().authority
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority.issue_cert("localhost").configure_cert(server)
    authority.issue_cert("client@outreach.example").configure_cert(client)
    for side in (server, client):
        authority.configure_trust(side)
    server.verify_mode = ssl.CERT_REQUIRED
    return Mutual(server, client)
