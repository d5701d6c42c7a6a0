"""Build SSL contexts. Transports with the same trust settings share one, because loading certificates takes 20 ms or more."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Final, Self, cast

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.transport.sending import said

_KEPT: Final = 8
_PROTOCOLS: Final = ("http/1.1",)


@attrs.frozen
class Trust:
    """The certificates to trust. The environment is read once, when the transport is made, as httpx does for a client.

    Attributes:
        given: A context made by the user; it overrides everything else.
        file: File of trusted certificates, from `SSL_CERT_FILE`; `None` for the default of the library.
        folder: Directory of trusted certificates, from `SSL_CERT_DIR`; `file` takes precedence.
    """

    given: ssl.SSLContext | None
    file: str | None
    folder: str | None

    @classmethod
    def of(cls, given: object, environment: Mapping[str, str], *, trust_env: bool) -> Self:
        """Return the trust settings: the context passed, else those of the environment if `trust_env` is set, else the defaults.

        Raises:
            InvalidRequest: `given` is not an `ssl.SSLContext`.
        """
        if given is not None and not isinstance(given, ssl.SSLContext):
            raise InvalidRequest(
                f"ssl_context: expected an ssl.SSLContext, got {type(given).__name__}; "
                "make one with ssl.create_default_context(cafile=...)"
            )
        trusted = environment if trust_env else {}
        return cls(given, trusted.get("SSL_CERT_FILE") or None, trusted.get("SSL_CERT_DIR") or None)

    def context(self, library: str) -> ssl.SSLContext:
        """Return the context. It is made on first use and shared by all transports with the same settings.

        Args:
            library: The library whose default certificates to use if no others are set: certifi's for httpx, the system's for
                httpx2. For aiohttp, which would read only some of the environment by itself, they are certifi's, as for httpx.

        Raises:
            InvalidRequest: The certificates named by the environment cannot be read.
        """
        if self.given is not None:
            return self.given
        try:
            return _shared(library, self.file, self.folder, _version(self.file))
        except OSError as error:
            raise InvalidRequest(
                f"SSL_CERT_FILE, SSL_CERT_DIR: cannot read certificates ({said(error)}); correct the path or unset the variable"
            ) from None


@lru_cache(_KEPT)
def _shared(library: str, file: str | None, folder: str | None, version: object) -> ssl.SSLContext:
    del version  # part of the cache key only, so that a replaced file is read again
    if file is not None:
        context = ssl.create_default_context(cafile=file)
    elif folder is not None:
        context = ssl.create_default_context(capath=folder)
    else:
        context = _own(library)
    context.set_alpn_protocols(_PROTOCOLS)
    return context


def _own(library: str) -> ssl.SSLContext:
    if library == "aiohttp":
        import certifi

        return ssl.create_default_context(cafile=certifi.where())
    return cast("ssl.SSLContext", import_module(library).create_ssl_context(trust_env=False))


def _version(file: str | None) -> object:
    """Return a value that changes when the file does, because certificates are replaced in place."""
    if file is None:
        return None
    found = Path(file).stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
