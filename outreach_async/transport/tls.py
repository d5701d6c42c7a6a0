"""Whom a TLS connection trusts. Transports that trust the same share one context: reading certificates takes 20 ms and more."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Final, Self, cast

import attrs

from outreach_async.errors import InvalidRequest
from outreach_async.transport.evidence import said

_KEPT: Final = 8
_PROTOCOLS: Final = ("http/1.1",)


@attrs.frozen
class Trust:
    """Whom to trust. The environment is read once, when a transport is made, as httpx reads it when a client is made.

    Attributes:
        given: A context that was made elsewhere; it goes before all else.
        file: Certificates instead of the library's own, as `SSL_CERT_FILE` names them.
        folder: The same as `SSL_CERT_DIR` names them; `file` goes before it.
    """

    given: ssl.SSLContext | None
    file: str | None
    folder: str | None

    @classmethod
    def of(cls, given: object, environment: Mapping[str, str], *, trust_env: bool) -> Self:
        """Choose between what was given, what the environment names if it is trusted, and the library's own.

        Raises:
            InvalidRequest: What was given is no context.
        """
        if given is not None and not isinstance(given, ssl.SSLContext):
            raise InvalidRequest(
                f"ssl_context: expected an ssl.SSLContext, got {type(given).__name__}; "
                "make one with ssl.create_default_context(cafile=...)"
            )
        trusted = environment if trust_env else {}
        return cls(given, trusted.get("SSL_CERT_FILE") or None, trusted.get("SSL_CERT_DIR") or None)

    def context(self, library: str) -> ssl.SSLContext:
        """Return the context: made for the first who asks, and shared by all who trust the same.

        Args:
            library: Whose own choice to take if nothing else is named: httpx trusts certifi's list, httpx2 the system's, and
                aiohttp, which would look into the environment by itself, is made to trust what httpx does.

        Raises:
            InvalidRequest: The certificates that the environment names cannot be read.
        """
        if self.given is not None:
            return self.given
        try:
            return _shared(library, self.file, self.folder, _version(self.file))
        except OSError as error:
            raise InvalidRequest(f"ssl_context: what SSL_CERT_FILE or SSL_CERT_DIR names cannot be read: {said(error)}") from None


@lru_cache(_KEPT)
def _shared(library: str, file: str | None, folder: str | None, version: object) -> ssl.SSLContext:
    del version  # it only tells one state of the file from the next
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
    """Tell when a file was written: certificates are replaced in place."""
    if file is None:
        return None
    found = Path(file).stat()
    return found.st_ino, found.st_mtime_ns, found.st_size
