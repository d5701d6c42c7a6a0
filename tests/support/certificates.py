"""Certificates that only these tests trust."""

from __future__ import annotations

import ssl
from functools import cache

import attrs
import trustme


@attrs.frozen
class Certificates:
    """What both sides of a TLS connection need.

    Attributes:
        authority: Who has issued them.
        server: For `localhost`.
        stranger: For another host.
        client: Trusts the authority and nobody else.
    """

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
    """Both sides of a TLS connection that requires client certificates."""

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
