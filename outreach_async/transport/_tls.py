"""Build SSL contexts. Transports with equal trust settings share a context, because loading certificates takes 20 ms or more."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Self

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.transport._sending import describe_cause


@attrs.frozen
class TrustSettings:
    """The certificates that a transport trusts."""

    # The environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` are read once, when the transport is made. They have the same
    # meaning as in httpx. If all three attributes are `None`, the transport trusts the default certificates; see `get_context`.

    ssl_context: ssl.SSLContext | None
    file: str | None
    directory: str | None

    @classmethod
    def from_environment(cls, ssl_context: object, environment: Mapping[str, str], *, trust_env: bool) -> Self:
        if ssl_context is not None and not isinstance(ssl_context, ssl.SSLContext):
            remedy = "make one with ssl.create_default_context(cafile=...)"
            raise InvalidRequest(f"ssl_context: expected an ssl.SSLContext, got {type(ssl_context).__name__}; {remedy}")
        trusted = environment if trust_env else {}
        return cls(ssl_context, trusted.get("SSL_CERT_FILE") or None, trusted.get("SSL_CERT_DIR") or None)

    def get_context(self, library: str) -> ssl.SSLContext:
        """Return the SSL context. It is made on first use and shared by all transports with the same settings."""
        if self.ssl_context is not None:
            return self.ssl_context
        try:
            return _shared_context(library, self.file, self.directory, _file_version(self.file))
        except OSError as error:
            text = f"cannot read certificates ({describe_cause(error)}); correct or unset these environment variables"
            raise InvalidRequest(f"SSL_CERT_FILE, SSL_CERT_DIR: {text}") from None


@lru_cache(8)
def _shared_context(library: str, file: str | None, directory: str | None, _version: object) -> ssl.SSLContext:
    """Return a cached SSL context. `_version` is only part of the cache key, so that a changed `file` is loaded again."""
    if file is not None:
        context = ssl.create_default_context(cafile=file)
    elif directory is not None:
        context = ssl.create_default_context(capath=directory)
    elif library in {"aiohttp", "httptools"}:
        import certifi

        context = ssl.create_default_context(cafile=certifi.where())
    else:
        context = import_module(library).create_ssl_context(trust_env=False)
    context.set_alpn_protocols(("http/1.1",))
    return context


def _file_version(file: str | None) -> object:
    """Return a value that changes when a certificate file changes. The file may be replaced while a program is running."""
    if file is None:
        return None
    status = Path(file).stat()
    return status.st_ino, status.st_mtime_ns, status.st_size
